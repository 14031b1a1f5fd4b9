//! Sleeping on a word of the shared memory.

use std::sync::atomic::AtomicU32;

/// Sleeps while `word` is `value`, for at most `timeout`.
pub fn wait(word: &AtomicU32, value: u32, timeout: Option<std::time::Duration>) {
    let limit = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    futex(word, libc::FUTEX_WAIT, value, limit);
}

/// Wakes one sleeper.
pub fn wake(word: &AtomicU32) {
    futex(word, libc::FUTEX_WAKE, 1, std::ptr::null());
}

/// Does not use the C library's `syscall`, which the simulation replaces.
#[cfg(target_arch = "x86_64")]
fn futex(word: &AtomicU32, operation: i32, value: u32, limit: *const libc::timespec) {
    // SAFETY: a futex on a live word; registers are declared as the kernel uses them.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_futex => _,
            in("rdi") word.as_ptr(),
            in("rsi") i64::from(operation),
            in("rdx") u64::from(value),
            in("r10") limit,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
}

/// Other architectures have no shim yet.
#[cfg(not(target_arch = "x86_64"))]
fn futex(word: &AtomicU32, operation: i32, value: u32, limit: *const libc::timespec) {
    // SAFETY: a futex on a live word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, limit) };
}
