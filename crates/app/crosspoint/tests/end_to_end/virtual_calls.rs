//! Virtual time: system calls that no replaced function makes.

use crate::support::{Scratch, expect, skip, stderr, stdout};
use crate::virtual_time::{count, exec, has_python};

/// What programs do without the C library's functions, or within them, would be missing: here stdio, and a
/// system call by an instruction of the program, with all signals blocked.
#[test]
fn calls_that_bypass_the_replaced_functions_are_simulated() {
    let test = "calls_that_bypass_the_replaced_functions_are_simulated";
    let Some(()) = has_python() else { return };
    // SAFETY: switches off what is off (PR_SET_SYSCALL_USER_DISPATCH).
    if unsafe { libc::prctl(59, 0, 0, 0, 0) } != 0 {
        return skip(test, "Syscall User Dispatch (Linux 5.11)");
    }
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("data"), vec![7; 1 << 20]).expect("written");
    // The machine code makes any system call.
    let script = "import ctypes, mmap, os, signal, time\n\
        libc = ctypes.CDLL(None)\n\
        code = mmap.mmap(-1, 4096, prot=7)\n\
        code.write(bytes.fromhex('4889f84889f74889d64889ca4d89c20f05c3'))\n\
        place = ctypes.addressof(ctypes.c_char.from_buffer(code))\n\
        call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * 5)(place)\n\
        signal.signal(signal.SIGUSR1, lambda *_: print('handled'))\n\
        signal.raise_signal(signal.SIGUSR1)\n\
        every = (ctypes.c_uint64 * 1)(2 ** 64 - 1)\n\
        call(14, signal.SIG_BLOCK, ctypes.addressof(every), None, 8)\n\
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n\
        print(signal.SIGUSR1 in blocked, signal.SIGSYS in blocked)\n\
        libc.fopen.restype = ctypes.c_void_p\n\
        page = ctypes.create_string_buffer(1 << 20)\n\
        f = ctypes.c_void_p(libc.fopen(b'data', b'r+'))\n\
        print(libc.fread(page, 1, 1 << 20, f))\n\
        libc.rewind(f); libc.fwrite(page, 1, 4096, f); libc.fclose(f)\n\
        os.fsync(os.open('data', os.O_RDWR))\n\
        begin = time.monotonic()\n\
        call(35, ctypes.addressof((ctypes.c_long * 2)(3000, 0)), None, None, None)\n\
        print(round(time.monotonic() - begin))";
    let output = exec(&scratch, "--on model:intel-s3520", script);
    expect(&output, 0);
    let words = ["handled", "True", "False", "1048576", "3000"];
    assert_eq!(stdout(&output).split_whitespace().collect::<Vec<_>>(), words);
    let summary = stderr(&output);
    let pages = count(&summary, "hits") + count(&summary, "misses");
    assert!((256.0..270.0).contains(&pages), "{summary}");
    assert!(count(&summary, "writes") >= 1.0, "{summary}");
}
