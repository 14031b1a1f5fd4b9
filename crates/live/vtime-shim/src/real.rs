//! The real functions behind the replaced ones, and system calls without the C library.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Address of the next definition of a function, found once.
pub fn next(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = place.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: a string with a terminating 0.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    place.store(found, Ordering::Relaxed);
    found
}

/// The real function of that name and type.
macro_rules! real {
    ($name:ident: $type:ty) => {{
        static PLACE: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes(),
        ) {
            Ok(name) => name,
            Err(_) => panic!("a name with 0"),
        };
        let found = crate::real::next(&PLACE, NAME);
        #[allow(unused_unsafe, reason = "some uses are within an unsafe block")]
        // SAFETY: the C library defines it with this type.
        let found = unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(found) };
        found
    }};
}
pub(crate) use real;

/// Defines functions that are a system call: its number, and code that runs before and may return the result.
/// Arguments are sign- or zero-extended by their own types.
macro_rules! kernel {
    ($(
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $answer:ty
            = $number:ident $(+ $more:expr)?, $first:expr;
    )*) => {$(
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            if let Some(answer) = $first {
                return answer;
            }
            #[allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "of several types")]
            let given = [$($argument as i64,)* $($more as i64)?];
            let mut registers = [0; 6];
            registers[..given.len()].copy_from_slice(&given);
            crate::real::answer(crate::real::system_call(libc::$number, registers)) as $answer
        }
    )*};
}
pub(crate) use kernel;

/// Defines exported functions with short bodies.
macro_rules! calls {
    ($(
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $answer:ty = $body:expr;
    )*) => {$(
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            $body
        }
    )*};
}
pub(crate) use calls;

/// Defines aliases of functions.
macro_rules! same {
    ($($name:ident = $other:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            // SAFETY: the caller's arguments.
            unsafe { $other($($argument),*) }
        }
    )*};
}
pub(crate) use same;

/// A system call; negative error numbers are returned as they are.
pub fn system_call(number: i64, arguments: [i64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let answer;
    // SAFETY: what the kernel does with the arguments is the caller's responsibility; the registers are those
    // of the x86-64 convention.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    answer
}

/// Nanoseconds of a time; a program may ask for one that does not end.
pub fn nanos(time: libc::timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// `errno` of this thread.
pub fn errno() -> i32 {
    // SAFETY: always valid.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: always valid.
    unsafe { *libc::__errno_location() = value };
}

/// Converts a system call's result to the C library's convention.
pub fn answer(value: i64) -> i64 {
    if (-4095..0).contains(&value) {
        set_errno(-value as i32);
        return -1;
    }
    value
}
