//! This thread's place in the simulation: its slot, its CPU time, its calls.

use std::cell::Cell;
use std::ffi::{c_int, c_short};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use vtime::wire::{self, Call, End, NEVER, Shared, Slot, Totals, TotalsOf};

use crate::real::{errno, nanos, set_errno, system_call};
use crate::{dispatch, handlers};

/// Stretches of CPU time longer than this are checked against the thread's CPU clock, because it may have
/// been preempted, ns.
const LONG: u64 = 25_000;

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
static PROCESS: AtomicU32 = AtomicU32::new(0);

struct State {
    slot: Cell<Option<&'static Slot>>,
    /// Nesting depth inside the library: its own calls use the real functions.
    inside: Cell<u32>,
    /// Time-stamp counter at the end of the last call.
    last: Cell<u64>,
    /// The thread's CPU clock at the last check, and the CPU time counted since, ns.
    checked: Cell<u64>,
    counted: Cell<u64>,
    /// CPU time since it got the turn, ns.
    used: Cell<u64>,
}

thread_local! {
    static STATE: State = const {
        State {
            slot: Cell::new(None),
            inside: Cell::new(0),
            last: Cell::new(0),
            checked: Cell::new(0),
            counted: Cell::new(0),
            used: Cell::new(0),
        }
    };
}

/// The shared memory, if this process is in a simulation.
pub fn shared() -> Option<&'static Shared> {
    // SAFETY: set once to a mapping that stays.
    unsafe { SHARED.load(Acquire).as_ref() }
}

/// Whether only the drive is simulated.
pub fn is_real_time(shared: &Shared) -> bool {
    shared.header.real_time.load(Relaxed) == 1
}

/// A key that is unique in the simulation: an address of this process.
pub fn key_of<T: ?Sized>(place: *const T) -> u64 {
    place.cast::<u8>() as u64 ^ (u64::from(PROCESS.load(Relaxed)) << 47)
}

/// The time-stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: it has no preconditions.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// CPU time of this thread by its own clock, ns.
fn cpu_clock() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let place = &raw mut time as i64;
    let clock = i64::from(libc::CLOCK_THREAD_CPUTIME_ID);
    system_call(libc::SYS_clock_gettime, [clock, place, 0, 0, 0, 0]);
    nanos(time)
}

impl State {
    fn charge(&self) {
        let Some(shared) = shared() else { return };
        match shared.header.fixed.load(Relaxed) {
            0 => {}
            fixed => return self.used.set(self.used.get() + fixed),
        }
        let now = ticks();
        let tick = shared.header.tick.load(Relaxed);
        let passed = now.wrapping_sub(self.last.get());
        let mut time = ((u128::from(passed) * u128::from(tick)) >> 32) as u64;
        self.last.set(now);
        if time > LONG {
            let clock = cpu_clock();
            let own = clock.saturating_sub(self.checked.get()).saturating_sub(self.counted.get());
            time = time.min(own);
            self.checked.set(clock);
            self.counted.set(0);
            self.last.set(ticks());
        } else {
            self.counted.set(self.counted.get() + time);
        }
        self.used.set(self.used.get() + time);
    }

    fn restart(&self) {
        self.last.set(ticks());
    }

    fn got_turn(&self) {
        self.used.set(0);
        self.checked.set(cpu_clock());
        self.counted.set(0);
        self.restart();
    }
}

/// Held while a thread is inside the library: its CPU time has been charged, and is counted again on drop.
pub struct Turn {
    slot: &'static Slot,
    shared: &'static Shared,
}

impl Turn {
    /// Enters the library; `None` for a thread that is not in the simulation, or is inside already.
    pub fn enter() -> Option<Self> {
        let shared = shared().filter(|shared| !is_real_time(shared))?;
        let slot = STATE.with(|state| {
            let slot = state.slot.get().filter(|_| state.inside.get() == 0)?;
            state.charge();
            state.inside.set(1);
            slot.enter();
            dispatch::let_through(true);
            Some(slot)
        })?;
        Some(Self { slot, shared })
    }

    /// Like `enter`, for functions that use the drive, which are replaced in real time as well.
    pub fn enter_file() -> Option<Self> {
        let shared = shared()?;
        if !is_real_time(shared) {
            return Self::enter();
        }
        let slot = STATE.with(|state| {
            if state.inside.get() > 0 {
                return None;
            }
            if state.slot.get().is_none() {
                let number = shared.header.used.fetch_add(1, AcqRel) as usize;
                // Without a slot its accesses would bypass the drive.
                let slot = shared.slots.get(number).unwrap_or_else(|| std::process::abort());
                slot.until.store(NEVER, Relaxed);
                state.slot.set(Some(slot));
            }
            state.inside.set(1);
            state.slot.get()
        })?;
        Some(Self { slot, shared })
    }

    /// Like `enter_file`, without charging the last `ticks_lost` to the program.
    pub fn enter_late(ticks_lost: u64) -> Option<Self> {
        skip(ticks_lost);
        Self::enter_file()
    }

    /// Whether this thread is in the simulation.
    pub fn is_simulated() -> bool {
        let real = shared().is_none_or(is_real_time);
        !real && STATE.with(|state| state.slot.get().is_some() && state.inside.get() == 0)
    }

    /// The thread's slot: another one in a child process that was made while this thread was inside.
    fn slot(&self) -> &'static Slot {
        STATE.with(|state| state.slot.get()).unwrap_or(self.slot)
    }

    /// Virtual time of this thread, ns.
    pub fn now(&self) -> u64 {
        self.slot().at.load(Relaxed) + STATE.with(|state| state.used.get())
    }

    /// Time of day at virtual time 0, ns.
    pub fn epoch(&self) -> u64 {
        self.shared.header.epoch.load(Relaxed)
    }

    /// Converts an absolute time to virtual time.
    pub fn deadline(&self, time: libc::timespec) -> u64 {
        nanos(time).saturating_sub(self.epoch())
    }

    /// Virtual cores.
    pub fn cores(&self) -> u32 {
        self.shared.header.cores.load(Relaxed)
    }

    /// Calls the coordinator, and returns once this thread has the turn again.
    pub fn call(&self, call: Call, arguments: &[u64]) -> i64 {
        let before = errno();
        let spins = self.shared.header.spins.load(Relaxed);
        self.post(call, arguments, spins);
        self.slot().take_turn(spins, self.shared);
        if !is_real_time(self.shared) {
            STATE.with(State::got_turn);
        }
        set_errno(before);
        self.slot().answer.load(Relaxed)
    }

    fn post(&self, call: Call, arguments: &[u64], spins: u32) {
        let slot = self.slot();
        for (place, argument) in slot.arguments.iter().zip(arguments) {
            place.store(*argument, Relaxed);
        }
        slot.cpu.store(STATE.with(|state| state.used.get()), Relaxed);
        slot.call.store(call as u32, Relaxed);
        slot.look(spins);
        slot.send(&self.shared.header);
    }

    /// Runs a system call that waits for other programs; the other threads continue meanwhile.
    pub fn outside(&self, wait: impl Fn() -> i64) -> i64 {
        loop {
            if handlers::is_waiting() && !self.run_handlers() {
                return -i64::from(libc::EINTR);
            }
            self.post(Call::Leave, &[], 0);
            let done = wait();
            self.slot().rejoin(&self.shared.header);
            self.slot().take_turn(0, self.shared);
            STATE.with(State::got_turn);
            // Without a handler that has yet to run, a signal of this library has ended it.
            if done != -i64::from(libc::EINTR) || !self.run_handlers() {
                return done;
            }
        }
    }

    /// An argument of the last call, which the coordinator may have changed.
    pub fn argument(&self, place: usize) -> u64 {
        self.slot().arguments[place].load(Relaxed)
    }

    /// Counters of this thread, of all threads, or of what serves this process.
    pub fn totals(&self, of: TotalsOf) -> Totals {
        self.call(Call::Totals, &[of as u64]);
        Totals::of(std::array::from_fn(|place| self.argument(place)))
    }

    /// Whether this thread polls, and no other thread or the drive can do anything yet.
    pub fn is_alone(&self) -> bool {
        if self.slot().yields.load(Relaxed) == 0 || self.now() >= self.slot().until.load(Relaxed) {
            return false;
        }
        self.slot().yields.store(wire::YIELDED, Relaxed);
        true
    }

    /// Gives up the turn if another thread or the drive is due.
    pub fn tick(&self) {
        let until = self.slot().until.load(Relaxed);
        let slack = self.shared.header.slack.load(Relaxed);
        if self.now() > until.saturating_add(slack) {
            self.call(Call::Yield, &[0]);
        }
    }

    /// Waits for one key. Before that, wakes one waiter of `wakes`.
    pub fn block(&self, wait: Wait, deadline: Option<u64>, key: Option<u64>, wakes: u64) -> End {
        let count = u64::from(key.is_some());
        let deadline = deadline.unwrap_or(NEVER);
        let arguments = [wait as u64, deadline, wakes, count, key.unwrap_or_default()];
        End::of(self.call(Call::Block, &arguments))
    }

    /// Waits for files, each with events of poll(2).
    pub fn wait_files(&self, files: &[(c_int, c_short)], deadline: Option<u64>) -> End {
        let mut arguments = [0; 2 + wire::KEYS];
        arguments[0] = deadline.unwrap_or(NEVER);
        arguments[1] = files.len() as u64;
        for (place, (file, events)) in arguments[2..].iter_mut().zip(files) {
            *place = u64::from(*file as u32) | (u64::from(*events as u16) << 32);
        }
        End::of(self.call(Call::WaitFiles, &arguments))
    }

    /// Waits for a file; false if a signal ended that whose handler interrupts calls.
    pub fn await_file(&self, file: c_int, events: c_short) -> bool {
        self.wait_files(&[(file, events)], None) != End::Interrupted || self.run_handlers()
    }

    /// Runs the signal handlers that have yet to run, as the program; returns whether the calls that they
    /// interrupted are restarted.
    pub fn run_handlers(&self) -> bool {
        self.slot().signaled.store(0, Relaxed);
        if !handlers::is_waiting() {
            return true;
        }
        dispatch::let_through(false);
        STATE.with(|state| state.inside.set(0));
        self.slot().leave();
        STATE.with(State::restart);
        let restarts = handlers::run_waiting();
        STATE.with(State::charge);
        STATE.with(|state| state.inside.set(1));
        self.slot().enter();
        dispatch::let_through(true);
        restarts
    }

    /// Number of arrivals from outside so far, among them those of signals.
    pub fn arrivals(&self) -> u32 {
        self.shared.header.returns.load(Acquire)
    }

    /// Whether a thread waits for a file: for its data, or only for space to write.
    pub fn is_file_awaited(&self, data: bool) -> bool {
        let header = &self.shared.header;
        let count = if data { &header.awaited_files } else { &header.awaited_space };
        count.load(Relaxed) > 0
    }

    /// After something that may have made a file ready for another thread: with data, or only with space.
    pub fn notify(&self, data: bool) {
        if self.is_file_awaited(data) {
            self.call(Call::Notify, &[]);
        }
    }

    /// Runs a system call that does not wait; its CPU time is charged.
    pub fn charged<T>(&self, call: impl FnOnce() -> T) -> T {
        STATE.with(State::restart);
        let result = call();
        STATE.with(State::charge);
        result
    }

    /// Whether a thread may be waiting for a key.
    pub fn is_awaited(&self, key: u64) -> bool {
        self.shared.header.awaited[wire::hash(key)].load(Relaxed) > 0
    }

    /// Wakes up to `most` waiters of a key; returns their number.
    pub fn wake(&self, key: u64, most: u64) -> i64 {
        if !self.is_awaited(key) {
            return 0;
        }
        self.call(Call::Wake, &[key, most])
    }

    /// Ends the simulation because of a call that is not simulated.
    pub fn uncovered(&self, name: &str) {
        self.call(Call::Uncovered, &wire::name_to_arguments(name));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        dispatch::let_through(false);
        self.slot().leave();
        STATE.with(|state| {
            state.inside.set(0);
            // The program's time begins.
            state.restart();
        });
        if handlers::is_waiting() && STATE.with(|state| state.slot.get().is_some()) {
            self.slot().signaled.store(0, Relaxed);
            handlers::run_waiting();
        }
    }
}

/// Whether this thread is in the simulation and inside the library: it may not have the turn.
pub fn is_inside() -> bool {
    STATE.with(|state| state.slot.get().is_some() && state.inside.get() > 0)
}

/// A signal has arrived that makes a file ready.
pub fn tell_arrival() {
    if let Some(shared) = shared() {
        shared.header.tell();
    }
}

/// Ends this process if the simulation has ended.
pub fn end_if_abandoned() {
    if shared().is_some_and(|shared| shared.header.is_abandoned()) {
        system_call(libc::SYS_exit_group, [i64::from(libc::SIGKILL) + 128, 0, 0, 0, 0, 0]);
    }
}

/// Runs a system call that is not replaced, which no preemption interrupts.
pub fn undisturbed<T>(call: impl FnOnce() -> T) -> T {
    let slot = STATE.with(|state| state.slot.get().filter(|_| state.inside.get() == 0));
    slot.inspect(|slot| slot.enter());
    let done = call();
    slot.inspect(|slot| slot.leave());
    done
}

/// The signal of preemption has arrived; returns whether this thread is in the program.
pub fn is_preempted() -> bool {
    STATE.with(|state| state.slot.get()).is_some_and(Slot::preempted)
}

/// A signal has arrived whose handler has yet to run.
pub fn interrupt() {
    if let (Some(shared), Some(slot)) = (shared(), STATE.with(|state| state.slot.get())) {
        slot.interrupt(&shared.header);
    }
}

/// The last `lost` ticks are not the program's.
pub fn skip(lost: u64) {
    STATE.with(|state| state.last.set(state.last.get().saturating_add(lost).min(ticks())));
}

/// Kinds of waits, in the order of `sim::scheduler::Wait`.
#[derive(Clone, Copy)]
pub enum Wait {
    Lock = 0,
    Sleep = 5,
}

/// The slot of a thread that was made by this process.
pub fn slot(number: i64) -> Option<&'static Slot> {
    shared()?.slots.get(usize::try_from(number).ok()?)
}

/// This thread takes a slot, and waits for its first turn.
pub fn begin(slot: &'static Slot) {
    let thread = system_call(libc::SYS_gettid, [0; 6]);
    slot.process.store(PROCESS.load(Relaxed), Relaxed);
    slot.thread.store(thread as u32, Relaxed);
    let Some(shared) = shared() else { return };
    STATE.with(|state| {
        state.slot.set(Some(slot));
        state.inside.set(1);
    });
    slot.take_turn(0, shared);
    STATE.with(State::got_turn);
    slot.guard.store(wire::guard::INSIDE, Relaxed);
    dispatch::begin();
    drop(Turn { slot, shared });
}

/// The only thread of a new child process takes the slot of that number.
pub fn begin_child(slot: i64) {
    STATE.with(|state| state.slot.set(None));
    PROCESS.store(system_call(libc::SYS_getpid, [0; 6]) as u32, Relaxed);
    if let Some(slot) = self::slot(slot) {
        begin(slot);
    }
}

/// In real time a child process takes a slot of its own when it first uses the drive.
pub fn begin_real_child() {
    if shared().is_some_and(is_real_time) {
        STATE.with(|state| state.slot.set(None));
    }
}

/// ID of this process.
pub fn process() -> u32 {
    PROCESS.load(Relaxed)
}

/// This thread or its process leaves the simulation for good.
pub fn end(process: bool, key: u64) {
    let Some(turn) = Turn::enter() else { return };
    turn.call(Call::Exit, &[u64::from(process), key]);
    STATE.with(|state| state.slot.set(None));
    drop(turn);
    dispatch::end();
}

/// The thread of a program that called execve keeps its slot and its turn.
pub fn keep(slot: &'static Slot) {
    STATE.with(|state| {
        state.slot.set(Some(slot));
        state.got_turn();
    });
    slot.guard.store(0, Relaxed);
    dispatch::begin();
}

/// This process is in the simulation that has this memory.
pub fn attach(shared: &'static Shared, process: u32) {
    PROCESS.store(process, Relaxed);
    SHARED.store(std::ptr::from_ref(shared).cast_mut(), Release);
}
