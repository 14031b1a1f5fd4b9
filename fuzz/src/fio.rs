//! Any text as a fio job file: it is rejected, or converted to a valid study.
const AROUND: study::Surroundings<'_> = study::Surroundings {
    include: &|_| Ok("[global]\nbs=8k\n".to_owned()),
    variable: &|name| (name.len() % 2 == 0).then(|| "16".to_owned()),
};

pub fn run(text: &str) {
    if let Ok(imported) = study::import_fio(text, "fuzzed", &AROUND) {
        study::parse(&imported.text, study::Engines::ANY).expect("an imported study is a study");
    }
}
