//! Any text as a device profile: it is refused with an error or it describes a device that can be made.
pub fn run(text: &str) {
    if let Ok(profile) = device::Profile::parse(text) {
        let units = match &profile.parameters {
            device::Parameters::XPoint(p) => p.channels.value,
            // The memory of a page-level translation layer is proportional to the drive's pages.
            device::Parameters::Nand(p) if p.collection.value == device::Collection::PageLevel => {
                u32::MAX
            }
            device::Parameters::Nand(p) => p.read_units.value.max(p.channels.value),
            device::Parameters::Flow(_) => 0,
            _ => u32::MAX,
        };
        // Absurd but possible counts only cost memory.
        if units < 100_000 {
            let _ = device::Model::new(&profile, device::Condition::Steady, units::Seed(1));
        }
    }
}
