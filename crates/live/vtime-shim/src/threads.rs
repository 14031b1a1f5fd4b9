//! Threads and what they wait for: mutexes, condition variables, read-write locks, semaphores, futexes.
//!
//! Locks are taken by the real try-call, so their state is the C library's; a thread that does not get one
//! waits in the simulation. Condition variables exist only in the simulation.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicI32, AtomicU64};

use libc::{
    clockid_t, pthread_attr_t, pthread_cond_t, pthread_mutex_t, pthread_once_t, pthread_rwlock_t,
    pthread_t, sem_t, timespec,
};
use vtime::wire::{Call, End, SLOTS};

use crate::real::{errno, real, set_errno, system_call};
use crate::shared_memory;
use crate::turn::{Turn, Wait, begin, end, key_of, slot};

type Main = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Defines functions of the C library by what each does in the simulation; outside of it the real one is
/// called.
macro_rules! simulated {
    ($(
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $answer:ty, |$turn:ident| $body:expr;
    )*) => {$(
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            type Real = unsafe extern "C" fn($($type),*) -> $answer;
            match Turn::enter() {
                // SAFETY: the caller's arguments.
                None => unsafe { real!($name: Real)($($argument),*) },
                Some($turn) => $body,
            }
        }
    )*};
}

/// What a new thread needs.
struct Start {
    main: Main,
    argument: *mut c_void,
    slot: i64,
}

/// The `pthread_t` of each slot.
static HANDLES: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Key whose destructor runs when a thread ends, after those of its thread-local objects; -1 before it is
/// created.
static END: AtomicI32 = AtomicI32::new(-1);

fn handle_key(thread: pthread_t) -> u64 {
    key_of(thread as *const u8)
}

thread_local! {
    /// How often the destructor of [`END`] has run.
    static ROUNDS: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C" fn ended(place: *mut c_void) {
    // Destructors of other keys may use locks: the last round is the end (PTHREAD_DESTRUCTOR_ITERATIONS).
    let round = ROUNDS.with(|rounds| rounds.replace(rounds.get() + 1));
    if round < 3 {
        // SAFETY: a key that was made.
        unsafe { libc::pthread_setspecific(END.load(Relaxed) as u32, place) };
        return;
    }
    // SAFETY: the calling thread.
    end(false, handle_key(unsafe { libc::pthread_self() }));
}

extern "C-unwind" fn start(place: *mut c_void) -> *mut c_void {
    // SAFETY: made by `pthread_create` for this thread alone.
    let Start { main, argument, slot: number } = *unsafe { Box::from_raw(place.cast::<Start>()) };
    if let Some(slot) = slot(number) {
        begin(slot);
        // SAFETY: a key that was made; any value but null.
        unsafe { libc::pthread_setspecific(END.load(Relaxed) as u32, place.cast_const()) };
    }
    main(argument)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    main: Main,
    argument: *mut c_void,
) -> c_int {
    type Real =
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Main, *mut c_void) -> c_int;
    let real = real!(pthread_create: Real);
    let Some(turn) = Turn::enter() else {
        // SAFETY: the caller's arguments.
        return unsafe { real(thread, attributes, main, argument) };
    };
    turn.tick();
    if END.load(Relaxed) < 0 {
        let mut key = 0;
        // SAFETY: a local variable; only the thread with the turn is here.
        unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        END.store(key as i32, Relaxed);
    }
    let slot = turn.call(Call::Spawn, &[]);
    let place = Box::into_raw(Box::new(Start { main, argument, slot }));
    // SAFETY: the caller's arguments, and a start routine that takes `place`.
    let code = unsafe { real(thread, attributes, start, place.cast()) };
    if code == 0 {
        // SAFETY: set by the call.
        HANDLES[slot as usize].store(unsafe { *thread }, Relaxed);
        turn.call(Call::Start, &[slot as u64, 0]);
    } else {
        turn.call(Call::Cancel, &[slot as u64]);
        // SAFETY: no thread has taken ownership.
        drop(unsafe { Box::from_raw(place) });
    }
    code
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int {
    // Inside the library for the real call, too: the kernel wakes it when the thread is gone.
    let turn = Turn::enter();
    if let Some(turn) = &turn {
        let found = HANDLES.iter().rposition(|handle| handle.load(Relaxed) == thread);
        if let Some(slot) = found.and_then(|number| slot(number as i64)) {
            while slot.ended.load(Acquire) == 0 {
                turn.block(Wait::Lock, None, Some(handle_key(thread)), 0);
                turn.run_handlers();
            }
        }
    }
    // SAFETY: the caller's arguments.
    unsafe {
        real!(pthread_join: unsafe extern "C" fn(pthread_t, *mut *mut c_void) -> c_int)(
            thread, value,
        )
    }
}

/// Takes a lock, given the function that tries.
unsafe fn take_lock<T: Sharable>(
    turn: &Turn,
    lock: *mut T,
    deadline: Option<u64>,
    attempt: unsafe extern "C" fn(*mut T) -> c_int,
) -> c_int {
    // SAFETY: the caller's lock.
    unsafe {
        let wanted = Wanted { key: key(lock), deadline, interruptible: false };
        take(turn, &wanted, || match attempt(lock) {
            libc::EBUSY if T::is_own(lock) => libc::EDEADLK,
            code => code,
        })
    }
}

/// What a thread waits for, until when, and whether signals end that.
struct Wanted {
    key: u64,
    deadline: Option<u64>,
    interruptible: bool,
}

/// Takes a lock by try-calls; waits in between. Returns the errno, `ETIMEDOUT` after the deadline.
fn take(turn: &Turn, wanted: &Wanted, mut attempt: impl FnMut() -> c_int) -> c_int {
    turn.tick();
    loop {
        match attempt() {
            libc::EBUSY | libc::EAGAIN => {}
            code => return code,
        }
        match turn.block(Wait::Lock, wanted.deadline, Some(wanted.key), 0) {
            End::Woken => {}
            End::Late => return libc::ETIMEDOUT,
            End::Interrupted if turn.run_handlers() || !wanted.interruptible => {}
            End::Interrupted => return libc::EINTR,
        }
    }
}

/// Objects of the C library that processes may share.
trait Sharable {
    /// Whether this one is shared.
    unsafe fn is_shared(place: *const Self) -> bool;

    /// Whether the calling thread has it, and may be told so instead of waiting for itself.
    unsafe fn is_own(_place: *const Self) -> bool {
        false
    }
}

/// A word of an object, by its place among the words.
unsafe fn word<T>(place: *const T, number: usize) -> u32 {
    // SAFETY: the caller's object has that many words.
    unsafe { place.cast::<u32>().add(number).read_volatile() }
}

/// Word of a condition in which [`pthread_cond_init`] notes that it is shared. In the simulation the C
/// library does not use its conditions.
const CONDITION_WORD: usize = 10;
const SHARED_CONDITION: u32 = 0x5348_4152;

/// Defines by which word objects of a type are marked as shared (glibc's `struct_mutex.h`, `struct_rwlock.h`,
/// `semaphoreP.h`).
macro_rules! sharable {
    ($($type:ty, $number:expr, |$word:ident| $marked:expr $(, $own:ident)?;)*) => {$(
        impl Sharable for $type {
            $(unsafe fn is_own(place: *const Self) -> bool {
                // SAFETY: the caller's object.
                unsafe { $own(place) }
            })?

            unsafe fn is_shared(place: *const Self) -> bool {
                // SAFETY: the caller's object.
                let $word = unsafe { word(place, $number) };
                $marked
            }
        }
    )*};
}
sharable! {
    pthread_mutex_t, 4, |kind| kind & 128 != 0, is_own_mutex;
    pthread_rwlock_t, 7, |shared| shared != 0, is_own_write_lock;
    sem_t, 2, |shared| shared != 0;
    libc::pthread_barrier_t, 3, |shared| shared != 0;
    pthread_cond_t, CONDITION_WORD, |mark| mark == SHARED_CONDITION;
}

fn own_thread() -> u32 {
    system_call(libc::SYS_gettid, [0; 6]) as u32
}

unsafe fn is_own_mutex(place: *const pthread_mutex_t) -> bool {
    // SAFETY: the caller's mutex: its kind, and its owner.
    let (kind, owner) = unsafe { (word(place, 4), word(place, 2)) };
    kind & 3 == libc::PTHREAD_MUTEX_ERRORCHECK as u32 && owner == own_thread()
}

unsafe fn is_own_write_lock(place: *const pthread_rwlock_t) -> bool {
    // SAFETY: the caller's lock: the thread that writes.
    let owner = unsafe { word(place, 6) };
    owner != 0 && owner == own_thread()
}

/// The key of an object.
unsafe fn key<T: Sharable>(place: *const T) -> u64 {
    // SAFETY: the caller's object.
    if unsafe { T::is_shared(place) } { shared_memory::key(place) } else { key_of(place) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_init(
    condition: *mut pthread_cond_t,
    attributes: *const libc::pthread_condattr_t,
) -> c_int {
    type Real = unsafe extern "C" fn(*mut pthread_cond_t, *const libc::pthread_condattr_t) -> c_int;
    let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
    // SAFETY: the caller's arguments.
    unsafe {
        let code = real!(pthread_cond_init: Real)(condition, attributes);
        if code == 0 && Turn::is_simulated() && !attributes.is_null() {
            libc::pthread_condattr_getpshared(attributes, &raw mut shared);
            if shared == libc::PTHREAD_PROCESS_SHARED {
                condition.cast::<u32>().add(CONDITION_WORD).write(SHARED_CONDITION);
            }
        }
        code
    }
}

/// Defines functions that take a lock, each by its name, the name of its variant with a time limit, the
/// function that tries, and the type.
macro_rules! lock {
    ($($name:ident, $timed:ident, $attempt:ident, $type:ty;)*) => {$(
        simulated! {
            $name(lock: *mut $type) -> c_int, |turn| {
                // SAFETY: the caller's lock.
                unsafe { take_lock(&turn, lock, None, libc::$attempt) }
            };
            $timed(lock: *mut $type, until: *const timespec) -> c_int, |turn| {
                // SAFETY: the caller's time.
                let deadline = turn.deadline(unsafe { *until });
                // SAFETY: the caller's lock.
                unsafe { take_lock(&turn, lock, Some(deadline), libc::$attempt) }
            };
        }
    )*};
}
lock! {
    pthread_mutex_lock, pthread_mutex_timedlock, pthread_mutex_trylock, pthread_mutex_t;
    pthread_rwlock_rdlock, pthread_rwlock_timedrdlock, pthread_rwlock_tryrdlock, pthread_rwlock_t;
    pthread_rwlock_wrlock, pthread_rwlock_timedwrlock, pthread_rwlock_trywrlock, pthread_rwlock_t;
}

/// Words of a barrier (glibc's `pthreadP.h`): threads that have come, 0 between two rounds, so that the C
/// library can destroy it; and number of the round.
const CAME: usize = 0;
const ROUND: usize = 1;
const NEEDED: usize = 2;

simulated! {
    pthread_barrier_wait(barrier: *mut libc::pthread_barrier_t) -> c_int, |turn| {
        turn.tick();
        // SAFETY: the caller's barrier; only the thread that has the turn uses it.
        let (own, needed, round, came) = unsafe {
            let words = barrier.cast::<u32>();
            *words.add(CAME) += 1;
            (key(barrier), word(barrier, NEEDED), word(barrier, ROUND), word(barrier, CAME))
        };
        if came >= needed {
            // SAFETY: as above.
            unsafe {
                *barrier.cast::<u32>().add(CAME) = 0;
                *barrier.cast::<u32>().add(ROUND) = round.wrapping_add(1);
            }
            turn.wake(own, u64::MAX);
            return libc::PTHREAD_BARRIER_SERIAL_THREAD;
        }
        // SAFETY: as above.
        while unsafe { word(barrier, ROUND) } == round {
            turn.block(Wait::Lock, None, Some(own), 0);
            turn.run_handlers();
        }
        0
    };
}

/// Defines functions that release something: name, type and number of waiters to wake.
macro_rules! release {
    ($($name:ident($type:ty), $most:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(place: *mut $type) -> c_int {
            // SAFETY: the caller's argument.
            let code = unsafe { real!($name: unsafe extern "C" fn(*mut $type) -> c_int)(place) };
            if let Some(turn) = Turn::enter() {
                // SAFETY: the caller's object.
                turn.wake(unsafe { key(place) }, $most);
                turn.tick();
            }
            code
        }
    )*};
}
release! {
    pthread_mutex_unlock(pthread_mutex_t), 1;
    pthread_rwlock_unlock(pthread_rwlock_t), u64::MAX;
    sem_post(sem_t), 1;
}

/// Waits for a condition in the simulation.
unsafe fn wait_for(
    turn: &Turn,
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Option<u64>,
) -> c_int {
    type Real = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
    // SAFETY: the caller's objects; it holds the mutex.
    let (lock, own) = unsafe { (key(mutex), key(condition)) };
    // SAFETY: as above.
    let refused = unsafe { real!(pthread_mutex_unlock: Real)(mutex) };
    if refused != 0 {
        return refused;
    }
    // In one call; otherwise a signal between the two would be lost.
    let wakes = if turn.is_awaited(lock) { lock } else { 0 };
    // A signal wakes it as if for no reason, which programs have to expect.
    let end = turn.block(Wait::Lock, deadline, Some(own), wakes);
    turn.run_handlers();
    // SAFETY: the caller passes a valid mutex.
    match unsafe { take_lock(turn, mutex, None, libc::pthread_mutex_trylock) } {
        0 if end == End::Late => libc::ETIMEDOUT,
        code => code,
    }
}

/// Wakes waiters of a condition.
fn signal(turn: &Turn, condition: *mut pthread_cond_t, most: u64) -> c_int {
    // SAFETY: the caller's condition.
    turn.wake(unsafe { key(condition) }, most);
    turn.tick();
    0
}

simulated! {
    pthread_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int, |turn| {
        // SAFETY: the caller's arguments.
        unsafe { wait_for(&turn, condition, mutex, None) }
    };
    pthread_cond_timedwait(
        condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec
    ) -> c_int, |turn| {
        // SAFETY: the caller's arguments.
        unsafe { wait_for(&turn, condition, mutex, Some(turn.deadline(*until))) }
    };
    /// All clocks of the simulation show the same time.
    pthread_cond_clockwait(
        condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, _clock: clockid_t,
        until: *const timespec
    ) -> c_int, |turn| {
        // SAFETY: the caller's arguments.
        unsafe { wait_for(&turn, condition, mutex, Some(turn.deadline(*until))) }
    };
    pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int, |turn| {
        signal(&turn, condition, 1)
    };
    pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int, |turn| {
        signal(&turn, condition, u64::MAX)
    };
}

/// The C library waits in the kernel for another thread's initialization. Bit 0 of the word: running; bit 1:
/// done (nptl/pthread_once.c).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_once(
    once: *mut pthread_once_t,
    run: extern "C-unwind" fn(),
) -> c_int {
    const RUNNING: c_int = 1;
    const DONE: c_int = 2;
    type Real = unsafe extern "C-unwind" fn(*mut pthread_once_t, extern "C-unwind" fn()) -> c_int;
    // SAFETY: the caller's word, which is only accessed as an atomic.
    let state = unsafe { AtomicI32::from_ptr(once.cast()) };
    if state.load(Acquire) & DONE != 0 {
        return 0;
    }
    if !Turn::is_simulated() {
        // SAFETY: the caller's arguments.
        return unsafe { real!(pthread_once: Real)(once, run) };
    }
    while state.load(Acquire) & RUNNING != 0 {
        if let Some(turn) = Turn::enter() {
            turn.block(Wait::Lock, None, Some(key_of(once)), 0);
            turn.run_handlers();
        }
    }
    if state.load(Acquire) & DONE == 0 {
        state.store(RUNNING, Relaxed);
        run();
        state.store(DONE, std::sync::atomic::Ordering::Release);
        if let Some(turn) = Turn::enter() {
            turn.wake(key_of(once), u64::MAX);
        }
    }
    0
}

/// Takes a semaphore by try-calls.
fn sem_take(turn: &Turn, semaphore: *mut sem_t, deadline: Option<u64>) -> c_int {
    let attempt = || {
        // SAFETY: the caller's semaphore.
        if unsafe { libc::sem_trywait(semaphore) } == 0 { 0 } else { errno() }
    };
    // SAFETY: the caller's semaphore.
    let wanted = Wanted { key: unsafe { key(semaphore) }, deadline, interruptible: true };
    match take(turn, &wanted, attempt) {
        0 => 0,
        code => {
            set_errno(code);
            -1
        }
    }
}

simulated! {
    sem_wait(semaphore: *mut sem_t) -> c_int, |turn| sem_take(&turn, semaphore, None);
    sem_timedwait(semaphore: *mut sem_t, until: *const timespec) -> c_int, |turn| {
        // SAFETY: the caller's time.
        sem_take(&turn, semaphore, Some(turn.deadline(unsafe { *until })))
    };
    sem_clockwait(semaphore: *mut sem_t, _clock: clockid_t, until: *const timespec) -> c_int, |turn| {
        // SAFETY: the caller's time.
        sem_take(&turn, semaphore, Some(turn.deadline(unsafe { *until })))
    };
}
