//! Any bytes as output of the kernel and blkid: paths, devices, cgroups and signatures; no panic, and
//! unparsed text is never taken for empty.
use stack::parsing::{mounted_at, own_group, parse_mounts, signature_of, swaps_on};

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(parse_mounts(&text).len() <= text.lines().count());
    let _ = mounted_at(&text, &["8:1".to_owned()], &["sda1"]);
    assert!(swaps_on(&text).len() <= text.lines().count());
    let _ = own_group(&text, Some("memory"));
    let _ = own_group(&text, None);
    let code = bytes.first().map(|byte| i32::from(*byte));
    let said = bytes.get(1..).unwrap_or_default();
    let nothing = signature_of(code, said) == stack::parsing::Signature::None;
    assert_eq!(nothing, code == Some(2) && said.is_empty());
}
