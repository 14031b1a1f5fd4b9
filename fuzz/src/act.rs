//! Any text as an ACT configuration: it is rejected with a line of the text, or its load can be generated.
pub fn run(text: &str) {
    match act::Config::parse(text) {
        Err(error) => assert!(error.line <= text.lines().count(), "a line outside the text"),
        Ok(config) => {
            let load = act::Load::of(&config);
            assert!(load.large_reads >= 0.0 && load.large_writes >= 0.0);
            let shape = act::Shape {
                device: units::Bytes(1 << 30),
                smallest_request: 512,
                service_threads: 4,
            };
            for phase in [act::Phase::Independent, act::Phase::Act] {
                let _ = act::groups(&config, phase, shape, units::Nanos::from_secs(1));
            }
        }
    }
}
