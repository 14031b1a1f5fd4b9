//! Places in memory that processes share.

/// What added to an address gives the key of that place in shared memory, which is the same in all
/// processes, from the line of its mapping in maps(5); `None` if that has another, or is not shared.
#[must_use]
pub fn shared_base(line: &str, address: u64) -> Option<u64> {
    let mut fields = line.split(' ');
    let (from, to) = fields.next()?.split_once('-')?;
    let [from, to] = [from, to].map(|end| u64::from_str_radix(end, 16).ok());
    let from = from.filter(|from| (*from..to.unwrap_or(0)).contains(&address))?;
    fields.next()?.ends_with('s').then_some(())?;
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let device =
        u64::from_str_radix(major, 16).ok()? << 20 | u64::from_str_radix(minor, 16).ok()?;
    let inode: u64 = fields.next()?.parse().ok()?;
    let file = (device << 40 ^ inode).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Some(file.wrapping_add(offset).wrapping_sub(from))
}

#[cfg(test)]
mod tests {
    use super::shared_base;

    /// Processes that map a file at different places would never wake each other.
    #[test]
    fn a_place_has_one_key_in_all_processes() {
        let one =
            "7f0000002000-7f0000004000 rw-s 00001000 00:01 1029                       /dev/zero";
        let two =
            "550000000000-550000008000 rw-s 00000000 00:01 1029                       /dev/zero";
        let key = |line, address: u64| Some(shared_base(line, address)?.wrapping_add(address));
        assert!(key(one, 0x7f00_0000_2010).is_some());
        assert_eq!(key(one, 0x7f00_0000_2010), key(two, 0x5500_0000_1010));
        assert_ne!(key(one, 0x7f00_0000_2010), key(two, 0x5500_0000_1014));
        assert_eq!(key(one, 0x7f00_0000_4000), None);
        assert_eq!(shared_base("7f00-7f10 rw-p 00000000 00:00 0 ", 0x7f00), None);
    }
}
