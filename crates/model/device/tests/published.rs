//! Published jobs that nothing can be compared with are rejected while parsing.

use crosspoint_device::{BUILT_IN, Profile};

/// A profile with one published job: the required keys, and `more`.
fn profile(capacity: &str, more: &str) -> Result<Profile, String> {
    let drive = BUILT_IN.iter().find(|(name, _)| *name == "samsung-pm9a3").expect("it ships").1;
    let constants = drive.split("[[acceptance]]").next().expect("constants");
    let constants =
        constants.replace("capacity = \"960GB\"", &format!("capacity = \"{capacity}\""));
    let job = "host = \"io_uring\"\nthreads = 1\nqueue_depth = 1\nblock_size = \"512B\"\n\
               read_share = \"100%\"\nlatency_mean = \"1us\"\nsource = \"a test\"\n";
    Profile::parse(&format!("{constants}\n[[acceptance]]\n{job}{more}"))
        .map_err(|error| error.to_string())
}

/// Each of these made `device check` panic, or would have.
#[test]
fn jobs_without_work_are_refused() {
    let refused = [
        ("beside_depth = 0\n", "depth"),
        ("beside_depth = 1\nbeside_threads = 0\n", "beside_threads"),
        ("beside_threads = 2\n", "beside_threads"),
        ("beside_writes = \"1k/s\"\nbeside_threads = 2\n", "beside_threads"),
        ("beside_depth = 65536\nbeside_threads = 64\n", "in flight"),
        ("beside_reads = \"1%\"\n", "beside_reads"),
        ("beside_depth = 1\nbeside_reads = \"51%\"\n", "beside_reads"),
        ("evenly = true\n", "evenly"),
        ("from_submission = true\n", "from_submission"),
    ];
    for (more, names) in refused {
        let error = profile("960GB", more).expect_err(more);
        assert!(error.contains(names), "{more}: {error}");
    }
    let error = profile("1KiB", "beside_depth = 1\n").expect_err("nothing to write to");
    assert!(error.contains("larger than the device"), "{error}");
    profile("960GB", "beside_depth = 64\nbeside_threads = 6\nbeside_reads = \"1%\"\n")
        .expect("sound");
}
