//! Any text as a study: it is refused with an error or its resolved form plans the same trials.
pub fn run(text: &str) {
    match study::parse(text, study::Engines::ANY) {
        Err(error) => {
            if let Some(span) = error.span {
                assert!(text.get(span).is_some(), "the error points outside the text");
            }
        }
        Ok(parsed) => {
            let again = study::parse(&study::resolved_text(&parsed), study::Engines::ANY)
                .expect("resolved is valid");
            assert_eq!(parsed, again);
        }
    }
    let _ = study::apply_overrides(text, &["stack.a.size=1GiB".to_owned()]);
}
