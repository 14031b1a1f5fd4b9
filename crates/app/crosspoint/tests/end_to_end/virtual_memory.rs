//! Mapped files and the page cache in virtual time.

use std::process::Output;
use std::time::{Duration, Instant};

use crate::support::{Scratch, expect, stderr, stdout};
use crate::virtual_time::{PYTHON, count, exec, has_python};

/// Runs a script whose files are in memory, as files that are mapped must be.
fn exec_in_memory(options: &[&str], script: &str) -> Output {
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let scratch = Scratch::new();
    let mut command = scratch.crosspoint();
    command.args(["exec", "--on", "model:intel-p4800x"]).args(options);
    command.arg("--directory").arg(memory.path()).args(["--", PYTHON, "-c", script]);
    let output = command.current_dir(memory.path()).output().expect("it starts");
    expect(&output, 0);
    output
}

/// The summary's line on the device.
fn device_line(summary: &str) -> &str {
    summary.lines().find(|line| line.starts_with("device:")).expect("a line")
}

/// Contents and flushes of a file that is written through a mapping: a page that stayed writable after a
/// flush would be missing from the next one.
#[test]
fn mappings_are_written_and_flushed() {
    let Some(()) = has_python() else { return };
    let script = "import mmap, os\n\
        f = os.open('data', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 64 * 4096)\n\
        m = mmap.mmap(f, 64 * 4096)\n\
        def write(pages, value):\n    for i in pages: m[i * 4096] = value\n\
        write(range(8), 1); m.flush()\n\
        write(range(8), 2); m.flush()\n\
        m.flush()\n\
        source = open('source', 'w+b', buffering=0); source.write(b'z' * 8192); source.seek(0)\n\
        source.readinto(memoryview(m)[8 * 4096:10 * 4096]); m.flush()\n\
        m[9 * 4096] = 3; m.flush()\n\
        all = os.pread(f, 64 * 4096, 0)\n\
        print([all[i * 4096] for i in (0, 7, 8, 9, 10)])\n\
        private = mmap.mmap(f, 4096, flags=mmap.MAP_PRIVATE); private[0] = 9; m[0] = 4; m.flush()\n\
        print(private[0])\n\
        alone = mmap.mmap(os.open('data', os.O_RDONLY), 8192, prot=mmap.PROT_READ)\n\
        print(alone[4096])";
    let output = exec_in_memory(&[], script);
    assert_eq!(stdout(&output), "[2, 2, 122, 3, 0]\n9\n2\n");
    let summary = stderr(&output);
    assert_eq!(count(&summary, "flushes"), 6.0, "{summary}");
    let line = device_line(&summary);
    // 8 and 8 pages, 2, 1 and 1, and two commits of 12 KiB for what was allocated; the other file stays
    // dirty.
    assert!(line.contains("writes (104 KiB)"), "{summary}");
}

/// Memory that takes the place of a part of a mapping would be zeroed when that part's pages leave the page
/// cache.
#[test]
fn memory_in_place_of_a_mapping_survives_an_eviction() {
    let Some(()) = has_python() else { return };
    let script = "import ctypes, mmap, os\n\
        f = os.open('data', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 64 * 4096)\n\
        m = mmap.mmap(f, 64 * 4096)\n\
        for i in range(64): m[i * 4096] = 5\n\
        m.flush()\n\
        start = ctypes.addressof(ctypes.c_char.from_buffer(m)); c = ctypes.CDLL(None)\n\
        place = lambda page: ctypes.c_void_p(start + page * 4096)\n\
        c.mmap.restype = ctypes.c_void_p\n\
        fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10\n\
        c.munmap(place(48), ctypes.c_size_t(16 * 4096))\n\
        size = ctypes.c_size_t(8 * 4096); none = ctypes.c_long(0)\n\
        for page in (16, 48):\n    c.mmap(place(page), size, 3, fixed, -1, none)\n    \
            ctypes.memset(place(page), 7, 8 * 4096)\n\
        o = os.open('other', os.O_RDWR | os.O_CREAT); os.write(o, bytes(1 << 23)); os.fsync(o)\n\
        for i in range(0, 1 << 23, 1 << 16): os.pread(o, 1 << 16, i)\n\
        byte = lambda page: ctypes.c_char.from_address(start + page * 4096).value[0]\n\
        print([byte(page) for page in (0, 15, 16, 23, 24, 47, 48, 55)])";
    let output = exec_in_memory(&["--memory", "4MiB"], script);
    assert_eq!(stdout(&output), "[5, 5, 7, 7, 5, 5, 7, 7]\n");
}

/// Output that a shell redirects would bypass the drive: its descriptor is older than the program.
#[test]
fn redirected_output_is_on_the_drive() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let mut command = scratch.crosspoint();
    command.args(["exec", "--on", "model:intel-p4800x", "--", "/bin/sh", "-c"]);
    command.arg(format!(
        "exec {PYTHON} -c 'import os; os.write(1, bytes(1 << 20)); os.fsync(1)' > data"
    ));
    let output = command.output().expect("it starts");
    expect(&output, 0);
    let summary = stderr(&output);
    let line = device_line(&summary);
    assert!(line.contains("writes (1.01 MiB)") && line.contains("1 flushes"), "{summary}");
}

/// A temporary file is removed while it is open: its reads and writes would be free.
#[test]
fn a_removed_file_is_on_the_drive_until_it_is_closed() {
    let Some(()) = has_python() else { return };
    let script = "import mmap, os\n\
        f = os.open('data', os.O_RDWR | os.O_CREAT); os.pwrite(f, bytes(64 * 4096), 0)\n\
        g = os.dup(f); os.unlink('data'); os.close(f); os.fsync(g)\n\
        os.posix_fadvise(g, 0, 0, os.POSIX_FADV_DONTNEED)\n\
        os.posix_fadvise(g, 0, 0, os.POSIX_FADV_RANDOM)\n\
        for i in range(64): os.pread(g, 4096, i * 4096)\n\
        t = os.open('target', os.O_RDWR | os.O_CREAT); os.ftruncate(t, 2 * 4096)\n\
        m = memoryview(mmap.mmap(t, 2 * 4096))\n\
        os.lseek(g, 0, 0); print(os.readv(g, [m[:4096], m[4096:]]))\n\
        os.truncate('target', 4096); os.close(g)";
    let output = exec_in_memory(&[], script);
    assert_eq!(stdout(&output), "8192\n", "buffers in mapped files");
    let summary = stderr(&output);
    let line = device_line(&summary);
    assert!(line.contains("reads (256 KiB)") && line.contains("writes (268 KiB)"), "{summary}");
}

/// Memory that a program needs is not page cache.
#[test]
fn the_page_cache_is_what_the_program_leaves() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let hits = |held: u32| {
        let script = format!(
            "import os\nheld = b'x' * ({held} << 20)\n\
             f = os.open('data', os.O_RDWR | os.O_CREAT); os.pwrite(f, bytes(24 << 20), 0)\n\
             os.fsync(f); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)\n\
             os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)\n\
             for _ in range(2):\n    for i in range(6144): os.pread(f, 4096, i * 4096)"
        );
        let output = exec(&scratch, "--on model:intel-p4800x --memory 64MiB", &script);
        expect(&output, 0);
        let summary = stderr(&output);
        let line = summary.lines().find(|line| line.contains("page cache:")).expect("a line");
        assert!(!line.contains("1/32"), "{summary}");
        count(&summary, "hits")
    };
    assert!(hits(0) >= 6_100.0, "the file fits");
    let few = hits(44);
    assert!(few < 5_000.0, "{few} hits in 24 MiB, although 44 of 64 MiB are in use");
}

/// Symas wrote LMDB through its map: a page of a file is new, one of a bare device is read first. The load
/// times depend on it.
#[test]
fn a_bare_model_is_read_before_it_is_written_through_the_map() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let text = "schema = 2\nname = \"db\"\n[[stack]]\nname = \"raw\"\n\
        device = \"model:intel-p4800x\"\nfile_system = \"raw\"\n\
        [[stack]]\nname = \"ext4\"\ndevice = \"model:intel-p4800x\"\n\
        [[experiment]]\nname = \"load\"\nwarm_up = \"0s\"\nduration = \"10s\"\n\
        interval = \"50ms\"\n[experiment.job]\nengine = \"lmdb\"\nworkload = \"overwrite\"\n\
        records = 10_000\nvalue_size = \"4000B\"\nload_batch = 1\noperations = 100\n\
        [experiment.job.options]\nwrite_map = [false, true]\n";
    std::fs::write(scratch.path().join("db.toml"), text).expect("written");
    expect(&scratch.run("run db.toml --out run"), 0);
    let document = scratch.json("figures run --json");
    let mut seen = 0;
    for one in document["figures"].as_array().expect("a list") {
        let (stack, point) = (one["stack"].as_str().expect("a stack"), &one["point"]);
        let (map, value) = (point.get("write_map").is_some(), one["value"].as_f64());
        let allowed = match one["metric"].as_str() {
            Some("blocks_out_per_record") => 8.0..8.3,
            Some("blocks_in_per_record") if stack == "raw" && map => 8.0..8.3,
            Some("blocks_in_per_record") => 0.0..0.1,
            _ => continue,
        };
        assert!(allowed.contains(&value.expect("a number")), "{one}");
        seen += 1;
    }
    assert_eq!(seen, 8, "{document}");
}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> u64 {
    // SAFETY: it has no preconditions.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// There is no virtual time on other processors yet.
#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> u64 {
    0
}

/// Lookups that miss the page cache would be too fast: a skipped wait leaves the caches warm. The command
/// computes for 150 us after each wait that took real time; this has to be charged after the others.
#[test]
fn skipped_waits_are_charged_what_real_ones_cost() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    // The real clock is the time-stamp counter, in ticks per ns: system calls show virtual time.
    let (clock, ticks) = (Instant::now(), time_stamp());
    while clock.elapsed() < Duration::from_millis(20) {}
    let rate = (time_stamp() - ticks) as f64 / clock.elapsed().as_nanos() as f64;
    let script = "import ctypes, mmap, os, time\n\
        with open('data', 'wb') as f: f.write(bytes(1 << 20)); os.fsync(f.fileno())\n\
        f = os.open('data', os.O_RDONLY | os.O_DIRECT)\n\
        page, libc = mmap.mmap(-1, 4096), ctypes.CDLL(None)\n\
        code = mmap.mmap(-1, 4096, prot=7)\n\
        code.write(bytes.fromhex('0f3148c1e2204809d0c3'))\n\
        place = ctypes.addressof(ctypes.c_char.from_buffer(code))\n\
        ticks = ctypes.CFUNCTYPE(ctypes.c_uint64)(place)\n\
        real = lambda: ticks() / RATE\n\
        at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n\
        times = []\n\
        for i in range(1500):\n    begin, now = time.monotonic(), real()\n\
        \x20   libc.pread(f, at, 4096, ctypes.c_long(i % 256 * 4096)); end = real()\n\
        \x20   times.append(time.monotonic() - begin)\n\
        \x20   while end - now > 80000 and real() - end < 150000: pass\n\
        print(sorted(times[:60])[30], sorted(times[800:])[350])";
    let script = script.replace("RATE", &rate.to_string());
    let output = exec(&scratch, "--on model:intel-s3520 --cores 2", &script);
    expect(&output, 0);
    let text = stdout(&output);
    let times: Vec<f64> = text.split_whitespace().map(|time| time.parse().unwrap()).collect();
    // On a busy machine skipped waits also seem to take real time.
    assert!((30e-6..160e-6).contains(&(times[1] - times[0])), "{times:?}");
}
