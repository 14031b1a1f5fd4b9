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
    let script = "import ctypes, mmap, signal, time\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n\
        libc = ctypes.CDLL(None)\n\
        libc.fopen.restype = ctypes.c_void_p\n\
        page = ctypes.create_string_buffer(1 << 20)\n\
        f = ctypes.c_void_p(libc.fopen(b'data', b'r+'))\n\
        print(libc.fread(page, 1, 1 << 20, f))\n\
        libc.rewind(f); libc.fwrite(page, 1, 4096, f); libc.fclose(f)\n\
        code = mmap.mmap(-1, 4096, prot=7)\n\
        code.write(bytes.fromhex('b8230000000f05c3'))\n\
        place = ctypes.addressof(ctypes.c_char.from_buffer(code))\n\
        sleep = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)(place)\n\
        begin = time.monotonic()\n\
        sleep(ctypes.addressof((ctypes.c_long * 2)(3000, 0)), None)\n\
        print(round(time.monotonic() - begin))";
    let output = exec(&scratch, "--on model:intel-s3520", script);
    expect(&output, 0);
    assert_eq!(stdout(&output).split_whitespace().collect::<Vec<_>>(), ["1048576", "3000"]);
    let summary = stderr(&output);
    let pages = count(&summary, "hits") + count(&summary, "misses");
    assert!((256.0..270.0).contains(&pages), "{summary}");
}
