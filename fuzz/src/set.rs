//! Any text as `--set`: refused, or the result is checked like any study.
const STUDY: &str = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
    [[experiment]]\nname = \"e\"\n[experiment.block]\nqueue_depth = [1, 4]\n";

pub fn run(text: &str) {
    if let Ok(changed) = study::apply_overrides(STUDY, &[text.to_owned()]) {
        let _ = study::parse(&changed, study::Engines::ANY);
    }
}
