//! The memory that the simulation shares with its programs.
//!
//! Each simulated thread has a slot. It writes a call and its arguments there, wakes the coordinator and
//! sleeps until it is given the turn again. Only the thread that has the turn writes, so the fields need no
//! lock; the two futex words order everything else.

mod files;
mod futex;
mod shared_memory;
mod totals;

use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};

pub use files::{access, file_number, is_shared_memory, resize};
pub use futex::{wait, wake};
pub use shared_memory::shared_base;
pub use totals::{TOTALS_FUNCTION, Totals, TotalsOf};

/// Value of [`Header::magic`]: the version of this layout.
pub const MAGIC: u64 = 0x6372_6f73_7370_0009;
/// Maximum number of threads in a simulation, including ended ones.
pub const SLOTS: usize = 4096;
/// Maximum number of keys, or of files, that a thread waits for at once.
pub const KEYS: usize = 40;
/// Slots of the main threads of processes that were admitted from outside.
pub const PROCESSES: usize = 8;
/// Maximum number of evicted mapped pages reported per access.
pub const EVICTED: usize = 9;
/// Bit of the byte of a reported page: it was written back, not evicted.
pub const CLEANED: u64 = 1;
/// Entries of [`Header::awaited`].
pub const HASHES: usize = 4096;
/// Environment variable with the path of the memory.
pub const PATH_VARIABLE: &str = "CROSSPOINT_VTIME";
/// Environment variable with the directory whose files are on the modelled drive.
pub const DIRECTORY_VARIABLE: &str = "CROSSPOINT_VTIME_DIR";
/// Environment variable with the beginning of the write-ahead log's paths in it, if that may have a
/// drive of its own.
pub const WAL_VARIABLE: &str = "CROSSPOINT_VTIME_WAL";
/// Environment variable with the number of the slot for the program's main thread.
pub const SLOT_VARIABLE: &str = "CROSSPOINT_VTIME_SLOT";
/// No deadline, no event.
pub const NEVER: u64 = u64::MAX;

/// A request of a thread to the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// Gives up the turn if others are due first. Argument: 1 to let others have its core.
    Yield,
    /// Waits. Arguments: the kind of wait (its index in `sim::scheduler::Wait::ALL`), a deadline, a key of
    /// which to wake one waiter first (0: none), the number of keys, the keys. Returns an [`End`].
    Block,
    /// Wakes waiters of a key. Arguments: the key, the maximum number. Returns the number.
    Wake,
    /// Allocates a slot for a new thread. Returns its number.
    Spawn,
    /// The new thread exists and is ready. Arguments: its number, its process if that is a new one,
    /// otherwise 0.
    Start,
    /// Takes back the last `Spawn`: the thread could not be created. Argument: its number.
    Cancel,
    /// The thread ends, or its process does. Arguments: 1 if its process does, the key of those who join it.
    Exit,
    /// A read or write of a file. Arguments: the file, offset, length, flags of [`access`]. Fills them with
    /// how many mapped pages left the page cache or became clean, at most [`EVICTED`], and the file and byte
    /// of each, with [`CLEANED`]. If there are any, the thread has to ask for more before it waits.
    Access,
    /// A flush. Arguments: the file, whether its metadata has to be written too, and the first page and the
    /// end of the range (0: the whole file). Fills them as [`Call::Access`] does.
    Sync,
    /// The size of a file was set, or found. Arguments: the file, its size, the kind of [`resize`], and if it
    /// was opened, 2 for a file of the write-ahead log and 1 for others.
    Resize,
    /// A file was removed.
    Remove,
    /// Clean pages of a file leave the page cache. Arguments: the file, offset, length (0: to the end).
    Evict,
    /// Asks for more such pages; it ends with none, when the access or flush has ended.
    Evicted,
    /// The thread waits outside of the simulation, without the turn, until it says that it has returned.
    Leave,
    /// Waits until a file is ready. Arguments: a deadline, the number of files, at most [`KEYS`], and for
    /// each its descriptor with the events of poll(2) in the upper half. Returns an [`End`].
    WaitFiles,
    /// A file that others wait for may be ready.
    Notify,
    /// Fills its arguments with [`Totals`]; the first argument is a [`TotalsOf`].
    Totals,
    /// A signal was sent. Arguments: the process (0: several), its number, and [`Header::returns`] before.
    Signal,
    /// Sets a timer. Arguments: its number in the process, the time of its first signal ([`NEVER`]: none),
    /// the interval (0: once), the signal, the thread (0: the process), the signal's value, and 1 to change
    /// nothing. Fills the second and third with what they were.
    Timer,
    /// Something that is not simulated was called. Arguments: its name, encoded by [`name_to_arguments`]. The
    /// last call, see [`Call::of`].
    Uncovered,
}

impl Call {
    /// The call with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        // SAFETY: the variants are numbered from 0 to the last one.
        (number <= Self::Uncovered as u32).then(|| unsafe { std::mem::transmute(number) })
    }
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub enum End {
    /// What was waited for.
    Woken = 0,
    /// The deadline.
    Late = 1,
    /// A signal, whose handler has yet to run.
    Interrupted = 2,
}

impl End {
    /// From the answer of a call.
    #[must_use]
    pub const fn of(answer: i64) -> Self {
        match answer {
            1 => Self::Late,
            2 => Self::Interrupted,
            _ => Self::Woken,
        }
    }
}

/// A name as arguments of [`Call::Uncovered`], cut to their length.
#[must_use]
pub fn name_to_arguments(name: &str) -> [u64; 4 + KEYS] {
    let mut words = [0; 4 + KEYS];
    for (word, bytes) in words.iter_mut().zip(name.as_bytes().chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    words
}

/// The name in arguments of [`Call::Uncovered`].
#[must_use]
pub fn name_of_arguments(words: impl Iterator<Item = u64>) -> String {
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Fields of the whole simulation.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// Virtual cores that programs see.
    pub cores: AtomicU32,
    /// Number of calls so far; the coordinator sleeps on it.
    pub calls: AtomicU32,
    /// 1 while the coordinator sleeps.
    pub asleep: AtomicU32,
    /// How often a thread polls for its turn before it sleeps: 0 if coordinator and program share a CPU.
    pub spins: AtomicU32,
    /// Time of day at virtual time 0, ns; all clocks of a program show this plus its virtual time.
    pub epoch: AtomicU64,
    /// How far a thread may run past the next event of another, ns.
    pub slack: AtomicU64,
    /// Nanoseconds per tick of the time-stamp counter, times 2^32.
    pub tick: AtomicU64,
    /// Set once a program has loaded the library.
    pub joined: AtomicU32,
    /// Number of processes with a slot; they may not have started yet.
    pub admitted: AtomicU32,
    /// One more than the slot of the process whose end is that of the simulation; 0 until it is admitted.
    pub main: AtomicU32,
    /// Ends the simulation.
    pub stop: AtomicU32,
    /// Set once the simulation has ended.
    pub over: AtomicU32,
    /// Process of the coordinator.
    pub owner: AtomicU32,
    /// Number of files that threads wait for; with none, nobody has to be notified.
    pub awaited_files: AtomicU32,
    /// Number of files among them that threads wait to write to.
    pub awaited_space: AtomicU32,
    /// Number of returns from outside, and of signals that arrived, so far.
    pub returns: AtomicU32,
    /// 1 if only the drive is simulated: threads run on real CPUs, with the real clock and real locks.
    pub real_time: AtomicU32,
    /// CPU time of every stretch instead of the measured one, ns; 0: it is measured.
    pub fixed: AtomicU64,
    /// Number of slots in use, in real time: a thread takes one at its first access.
    pub used: AtomicU32,
    /// Number of waiters by hash of the key; waking without waiters needs no call.
    pub awaited: [AtomicU16; HASHES],
}

/// Fields of one thread.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    /// The turn: a futex on which the thread sleeps.
    pub turn: AtomicU32,
    /// How it waits: asleep, polling for its turn, or told to forward one.
    pub waiting: AtomicU32,
    /// The slot to which it forwards the turn.
    pub next: AtomicU32,
    /// 1 while a call is not answered.
    pub pending: AtomicU32,
    /// Process and thread IDs; 0 until it has started.
    pub process: AtomicU32,
    /// Thread ID.
    pub thread: AtomicU32,
    /// The thread's virtual time when it got the turn, ns.
    pub at: AtomicU64,
    /// It has to make a call once its time is past this, ns.
    pub until: AtomicU64,
    /// CPU time since it got the turn, ns.
    pub cpu: AtomicU64,
    /// Not 0 if it may let others run first without a call, as there are none before `until`; [`YIELDED`]
    /// once it has.
    pub yields: AtomicU32,
    /// Number of the [`Call`].
    pub call: AtomicU32,
    /// 1 once the thread has ended.
    pub ended: AtomicU32,
    /// 1 once the thread has returned from outside.
    pub returned: AtomicU32,
    /// Whether the thread may be preempted: 0, or bits of [`guard`].
    pub guard: AtomicU32,
    /// 1 while a signal's handler has yet to run, which ends waits that can be interrupted.
    pub signaled: AtomicU32,
    /// Arguments of the call.
    pub arguments: [AtomicU64; 4 + KEYS],
    /// Result of the call.
    pub answer: AtomicI64,
}

/// The shared memory.
#[repr(C)]
#[derive(Debug)]
pub struct Shared {
    /// Fields of the whole simulation.
    pub header: Header,
    /// One per thread.
    pub slots: [Slot; SLOTS],
}

/// Bits of [`Slot::guard`].
pub mod guard {
    /// The thread is in the library or in a system call, which a signal would interrupt.
    pub const INSIDE: u32 = 1;
    /// The signal of preemption has been sent, and has not arrived.
    pub const SENT: u32 = 2;
}

/// Signal that asks a thread to give up its turn if others are due: `SIGWINCH`, which does nothing in a
/// program that has just been executed.
pub const PREEMPTION: u32 = 28;
/// Its code, by which it differs from the program's own.
pub const PREEMPTION_CODE: i32 = -64;

/// See [`Slot::yields`].
pub const YIELDED: u32 = 2;

/// Index of a key in [`Header::awaited`].
#[must_use]
pub fn hash(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize
}

/// The key of a process whose threads wait for a blocked signal.
#[must_use]
pub fn signal_key(process: u32) -> u64 {
    (u64::MAX >> 1) ^ (u64::from(process) << 16)
}

/// The key of a process that waits for its children.
#[must_use]
pub fn child_key(parent: u32) -> u64 {
    u64::MAX ^ (u64::from(parent) << 16)
}

impl Header {
    /// Something has arrived from outside.
    pub fn tell(&self) {
        self.returns.fetch_add(1, Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
        wake(&self.calls);
        wake(&self.returns);
    }

    /// Whether nobody will give turns any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed) as libc::pid_t;
        // SAFETY: it sends no signal.
        let code = unsafe { libc::kill(owner, 0) };
        let gone = || std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        self.over.load(Ordering::Relaxed) == 1 || code != 0 && gone()
    }
}

impl Shared {
    /// Wakes all threads, to find that the simulation is over.
    pub fn wake_all(&self) {
        let used = self.slots.iter().filter(|slot| slot.process.load(Ordering::Relaxed) != 0);
        used.for_each(|slot| wake(&slot.turn));
    }

    /// Maps the memory.
    ///
    /// # Errors
    /// If the file is too short or cannot be mapped.
    pub fn map(file: &std::fs::File) -> std::io::Result<&'static Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let size = size_of::<Self>();
        if file.metadata()?.len() < size as u64 {
            return Err(std::io::Error::other("the shared memory is too short"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file of this size; it is never unmapped.
        let place =
            unsafe { mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, file, 0) }?;
        // SAFETY: page-aligned, long enough, and every bit pattern is valid for atomics.
        Ok(unsafe { &*place.cast::<Self>() })
    }
}

impl Slot {
    /// The thread enters the library or a system call: waits for a signal of preemption that has been sent,
    /// which runs its handler here.
    pub fn enter(&self) {
        let mut now = self.guard.fetch_or(guard::INSIDE, Ordering::SeqCst);
        // It arrives within microseconds, unless its thread was exchanged.
        for _ in 0..ARRIVAL_SPINS {
            if now & guard::SENT == 0 {
                return;
            }
            std::hint::spin_loop();
            now = self.guard.load(Ordering::SeqCst);
        }
        // It could not be sent.
        self.guard.fetch_and(!guard::SENT, Ordering::SeqCst);
    }

    /// The thread is back in the program.
    pub fn leave(&self) {
        self.guard.fetch_and(!guard::INSIDE, Ordering::SeqCst);
    }

    /// Whether a signal of preemption may be sent now; it has to be.
    #[must_use]
    pub fn may_preempt(&self) -> bool {
        let all = Ordering::SeqCst;
        self.guard.compare_exchange(0, guard::SENT, all, all).is_ok()
    }

    /// The signal of preemption has arrived; returns whether the thread is in the program.
    pub fn preempted(&self) -> bool {
        self.guard.fetch_and(!guard::SENT, Ordering::SeqCst) & guard::INSIDE == 0
    }

    /// Gives the turn to the thread. `last` made the last call and may wake this one: on their common CPU
    /// that is cheaper than from another. `number` is the index of this slot.
    pub fn give_turn(&self, number: u32, last: Option<&Self>) {
        self.turn.store(1, Ordering::SeqCst);
        if let Some(last) = last.filter(|last| !std::ptr::eq(*last, self)) {
            last.next.store(number, Ordering::SeqCst);
            let (all, waiting) = (Ordering::SeqCst, &last.waiting);
            if waiting.compare_exchange(LOOKING, FORWARDS, all, all).is_ok() {
                return;
            }
        }
        if self.waiting.load(Ordering::SeqCst) == ASLEEP {
            wake(&self.turn);
        }
    }

    /// The thread will poll for its turn, unless `spins` is 0; called before its call.
    pub fn look(&self, spins: u32) {
        let waiting = if spins > 0 { LOOKING } else { ASLEEP };
        self.waiting.store(waiting, Ordering::SeqCst);
    }

    /// Tells a polling thread to sleep: its turn will not come soon.
    pub fn let_sleep(&self) {
        self.waiting.store(ASLEEP, Ordering::SeqCst);
    }

    /// Waits for the turn and takes it: polls `spins` times before it sleeps.
    /// Ends the process if the simulation has ended meanwhile.
    pub fn take_turn(&self, spins: u32, shared: &Shared) {
        let slots = &shared.slots;
        for _ in 0..spins {
            if self.turn.load(Ordering::Acquire) == 1 {
                self.turn.store(0, Ordering::Relaxed);
                return;
            }
            if self.waiting.load(Ordering::Acquire) != LOOKING {
                break;
            }
            std::hint::spin_loop();
        }
        if self.waiting.swap(ASLEEP, Ordering::SeqCst) == FORWARDS
            && let Some(next) = slots.get(self.next.load(Ordering::SeqCst) as usize)
        {
            wake(&next.turn);
        }
        while self.turn.swap(0, Ordering::SeqCst) == 0 {
            if shared.header.over.load(Ordering::SeqCst) == 0 {
                wait(&self.turn, 0, Some(OWNER_INTERVAL));
            }
            if self.turn.load(Ordering::SeqCst) == 0 && shared.header.is_abandoned() {
                // SAFETY: it ends the process.
                unsafe { libc::syscall(libc::SYS_exit_group, libc::SIGKILL + 128) };
            }
        }
    }

    /// The name of a call that is not simulated: the arguments of [`Call::Uncovered`].
    #[must_use]
    pub fn uncovered_name(&self) -> String {
        name_of_arguments(self.arguments.iter().map(|word| word.load(Ordering::Relaxed)))
    }

    /// The thread has written a call.
    pub fn send(&self, header: &Header) {
        self.pending.store(1, Ordering::SeqCst);
        header.calls.fetch_add(1, Ordering::SeqCst);
        if header.asleep.load(Ordering::SeqCst) == 1 {
            wake(&header.calls);
        }
    }

    /// Marks the thread as returned from outside of the simulation.
    pub fn rejoin(&self, header: &Header) {
        self.returned.store(1, Ordering::SeqCst);
        header.tell();
    }

    /// A signal has arrived, whose handler runs once the thread has the turn.
    pub fn interrupt(&self, header: &Header) {
        self.signaled.store(1, Ordering::SeqCst);
        header.tell();
    }

    /// Waits for a call of the thread, or for `limit`; returns whether there is one.
    #[must_use]
    pub fn await_call(&self, header: &Header, limit: std::time::Duration) -> bool {
        let is_pending = || self.pending.load(Ordering::SeqCst) == 1;
        for _ in 0..header.spins.load(Ordering::Relaxed) * COORDINATOR_SPINS {
            if is_pending() {
                return true;
            }
            std::hint::spin_loop();
        }
        let seen = header.calls.load(Ordering::SeqCst);
        header.asleep.store(1, Ordering::SeqCst);
        if !is_pending() {
            wait(&header.calls, seen, Some(limit));
        }
        header.asleep.store(0, Ordering::SeqCst);
        is_pending()
    }
}

/// How often a thread looks for a signal that has been sent to it.
const ARRIVAL_SPINS: u32 = 1 << 22;
/// How often a sleeping thread checks that its simulation still runs.
const OWNER_INTERVAL: std::time::Duration = std::time::Duration::from_secs(2);
/// Sleeps on its turn, or is about to.
const ASLEEP: u32 = 0;
/// Polls for its turn.
const LOOKING: u32 = 1;
/// Told to wake the slot `next`, and then to sleep.
const FORWARDS: u32 = 2;
/// The coordinator polls this many times as often as a thread before it sleeps.
const COORDINATOR_SPINS: u32 = 16;
