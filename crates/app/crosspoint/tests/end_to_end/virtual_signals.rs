//! Virtual time: signals, timers, preemption, and locks that processes share.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Scratch, expect, has, skip, stdout};
use crate::virtual_time::{PYTHON, exec, has_python};

const ON: &str = "--on model:intel-s3520";

/// Runs a script and its words, to compare with those of the same script in real time, where it takes longer.
fn says(script: &str, words: &str) {
    let Some(()) = has_python() else { return };
    let output = exec(&Scratch::new(), ON, script);
    expect(&output, 0);
    assert_eq!(stdout(&output).split_whitespace().collect::<Vec<_>>().join(" "), words);
}

/// A time limit on the real clock would end, or spare, another command than it does in reality.
#[test]
fn timers_and_the_waits_that_they_interrupt_are_in_virtual_time() {
    let script = "import os, select, signal, time\n\
        now = lambda: round(time.monotonic() - begin, 2)\n\
        class Late(Exception): pass\n\
        def late(*_): raise Late\n\
        def limited(seconds, wait):\n\
        \x20   global begin; begin = time.monotonic(); signal.alarm(seconds)\n\
        \x20   try: wait()\n\
        \x20   except Late: print(now())\n\
        signal.signal(signal.SIGALRM, late)\n\
        pipe, _ = os.pipe()\n\
        limited(100, lambda: time.sleep(1000))\n\
        limited(200, lambda: os.read(pipe, 1))\n\
        limited(300, lambda: select.select([pipe], [], []))\n\
        limited(400, signal.pause)\n\
        times = []; signal.signal(signal.SIGALRM, lambda *_: times.append(now()))\n\
        begin = time.monotonic(); signal.setitimer(signal.ITIMER_REAL, 50, 25)\n\
        time.sleep(101); print(*times, round(signal.getitimer(signal.ITIMER_REAL)[0]))";
    says(script, "100.0 200.0 300.0 400.0 50.0 75.0 100.0 24");
}

/// A server that its clients or children wake by signals would answer too late, or never.
#[test]
fn signals_between_processes_arrive_in_virtual_time() {
    let script = "import os, signal, time\n\
        now = lambda: round(time.monotonic() - begin, 2)\n\
        begin = time.monotonic()\n\
        def child(work):\n    pid = os.fork()\n    if pid: return pid\n    work(); os._exit(3)\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n\
        print(signal.sigtimedwait([signal.SIGUSR1], 5), now())\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); signal.alarm(5)\n\
        print(signal.sigtimedwait([signal.SIGALRM], 100).si_signo == signal.SIGALRM, now())\n\
        pid = child(lambda: (time.sleep(10), os.kill(os.getppid(), signal.SIGUSR1)))\n\
        print(signal.sigtimedwait([signal.SIGUSR1], 100).si_signo == signal.SIGUSR1, now())\n\
        print(os.waitpid(pid, 0)[1] >> 8)\n\
        ended = []; signal.signal(signal.SIGCHLD, lambda *_: ended.append(now()))\n\
        pid = child(lambda: time.sleep(5)); time.sleep(10); print(*ended, now()); os.wait()\n\
        pid = child(lambda: time.sleep(1000)); time.sleep(1); os.kill(pid, signal.SIGTERM)\n\
        print(os.waitpid(pid, 0)[1], now())";
    says(script, "None 5.0 True 10.0 True 20.0 3 25.0 30.0 15 31.0");
}

/// A signal that comes before the wait for it would be lost, and the wait never end: shells wait so.
#[test]
fn a_pending_signal_ends_the_wait_that_unblocks_it() {
    let script = "import ctypes, os, signal, time\n\
        c = ctypes.CDLL(None, use_errno=True); none = (ctypes.c_uint64 * 16)()\n\
        signal.signal(signal.SIGUSR1, lambda *_: None); begin = time.monotonic()\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n\
        limit = (ctypes.c_long * 2)(10, 0)\n\
        for wait in (lambda: c.sigsuspend(none), lambda: c.ppoll(None, 0, limit, none)):\n\
        \x20   os.kill(os.getpid(), signal.SIGUSR1); print(wait(), ctypes.get_errno())\n\
        print(round(time.monotonic() - begin))";
    says(script, "-1 4 -1 4 0");
}

/// PostgreSQL's processes wake each other so; the kernel would show the coordinator's signals instead.
#[test]
fn signal_files_become_ready_in_virtual_time() {
    let script = "import ctypes, os, select, signal, struct, time\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])\n\
        set = (ctypes.c_uint64 * 16)(1 << (signal.SIGURG - 1))\n\
        file = ctypes.CDLL(None).signalfd(-1, set, os.O_NONBLOCK)\n\
        poll = select.epoll(); poll.register(file, select.EPOLLIN); begin = time.monotonic()\n\
        print(len(poll.poll(10)), round(time.monotonic() - begin, 1))\n\
        if os.fork() == 0:\n    time.sleep(10); os.kill(os.getppid(), signal.SIGURG); os._exit(0)\n\
        print(len(poll.poll(100)), round(time.monotonic() - begin, 1))\n\
        print(struct.unpack('I', os.read(file, 128)[:4])[0] == signal.SIGURG, os.wait()[1])";
    says(script, "0 10.0 1 20.0 True 0");
}

/// Without common keys, processes never wake each other: "deadlock".
#[test]
fn processes_share_locks_conditions_and_semaphores() {
    let script = "import ctypes, mmap, multiprocessing, os, time\n\
        c = ctypes.CDLL(None)\n\
        memory = mmap.mmap(-1, 4096)\n\
        place = ctypes.addressof(ctypes.c_char.from_buffer(memory))\n\
        at = lambda offset: ctypes.c_void_p(place + offset)\n\
        mutex, condition, semaphore, flag = at(0), at(64), at(128), 200\n\
        about = ctypes.create_string_buffer(64)\n\
        for kind, object in (('mutex', mutex), ('cond', condition)):\n\
        \x20   getattr(c, f'pthread_{kind}attr_init')(about)\n\
        \x20   getattr(c, f'pthread_{kind}attr_setpshared')(about, 1)\n\
        \x20   getattr(c, f'pthread_{kind}_init')(object, about)\n\
        c.sem_init(semaphore, 1, 0)\n\
        other = multiprocessing.Semaphore(0)\n\
        def turns(own, rounds):\n\
        \x20   for _ in range(rounds):\n\
        \x20       c.pthread_mutex_lock(mutex)\n\
        \x20       while memory[flag] != own: c.pthread_cond_wait(condition, mutex)\n\
        \x20       memory[flag] = 1 - own; c.pthread_cond_signal(condition)\n\
        \x20       c.pthread_mutex_unlock(mutex)\n\
        begin = time.monotonic()\n\
        if os.fork() == 0:\n\
        \x20   time.sleep(10); turns(0, 100); c.sem_post(semaphore); time.sleep(10)\n\
        \x20   other.release(); os._exit(0)\n\
        turns(1, 100); c.sem_wait(semaphore); print(round(time.monotonic() - begin))\n\
        other.acquire(); print(round(time.monotonic() - begin), os.wait()[1])";
    says(script, "10 20 0");
}

/// Threads that compute without a call would stop all others, among them their own time limit.
#[test]
fn a_thread_without_calls_is_preempted() {
    let script = "import os, signal\n\
        pid = os.fork()\n\
        if pid == 0:\n    sum(range(1 << 60))\n\
        signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL)); signal.alarm(1)\n\
        print(os.waitpid(pid, 0)[1])";
    says(script, "9");
}

/// Copies within the kernel take no simulated time; programs have to fall back to reads and writes.
#[test]
fn copies_within_the_kernel_become_reads_and_writes() {
    let script = "import errno, os\n\
        page = os.open('data', os.O_RDWR | os.O_CREAT); os.write(page, bytes(4096))\n\
        to = os.open('copy', os.O_RDWR | os.O_CREAT)\n\
        def code(call):\n    try: return call()\n    except OSError as error: return error.errno\n\
        print(code(lambda: os.copy_file_range(page, to, 4096, 0)) == errno.EXDEV)\n\
        print(code(lambda: os.sendfile(to, page, 0, 4096)) == errno.EINVAL)";
    says(script, "True True");
}

/// Processes of the command must not outlive it, whatever they do, however Crosspoint ends.
#[test]
fn nothing_outlives_a_stopped_simulation() {
    let Some(()) = has_python() else { return };
    if !has("pgrep") {
        return skip("nothing_outlives_a_stopped_simulation", "pgrep");
    }
    let scratch = Scratch::new();
    // Their command line has the name of this test's folder.
    let name = scratch.path().display().to_string();
    let left = |wanted: usize| {
        let began = Instant::now();
        loop {
            let found = Command::new("pgrep").args(["-cf", &name]).output().expect("it starts");
            let found: usize = stdout(&found).trim().parse().expect("a number");
            if found == wanted || began.elapsed() > Duration::from_secs(60) {
                return found;
            }
            std::thread::yield_now();
        }
    };
    let script = "import os\nos.fork(); os.fork()\nsum(range(1 << 60))";
    for (signal, code) in [(libc::SIGTERM, Some(130)), (libc::SIGKILL, None)] {
        let mut command = scratch.crosspoint();
        command.arg("exec").args(ON.split(' ')).args(["--", PYTHON, "-c", script, &name]);
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
        assert_eq!(left(5), 5, "the command and its children");
        // SAFETY: a child of this test that has not been waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        assert_eq!(child.wait().expect("it ends").code(), code);
        assert_eq!(left(0), 0, "after signal {signal}");
    }
}
