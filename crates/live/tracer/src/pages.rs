//! Pages of the kernel's ring buffer, as `trace_pipe_raw` returns them, and the fields of events.
//!
//! Source: Linux, Documentation/trace/ring-buffer-design.rst and include/linux/ring_buffer.h.

use std::fs;
use std::io;
use std::path::Path;

/// Time stamp and length at the start of a page.
const HEADER: usize = 16;
/// Set in the length if events before this page were lost.
const MISSED: u64 = 1 << 31;
/// Set if their number is stored in the page.
const MISSED_STORED: u64 = 1 << 30;

/// Time of the first event if events before this page were lost.
pub fn lost_before(page: &[u8]) -> Option<u64> {
    word(page, 8, 8).filter(|length| length & MISSED != 0)?;
    word(page, 0, 8)
}

/// Calls `visit` with time and payload of each event.
pub fn visit(page: &[u8], mut visit: impl FnMut(u64, &[u8])) {
    let Some((mut at, length)) = word(page, 0, 8).zip(word(page, 8, 8)) else { return };
    let length = (length & !(MISSED | MISSED_STORED)) as usize;
    let end = (HEADER + length).min(page.len());
    let mut position = HEADER;
    while let Some(head) = word(&page[..end], position, 4) {
        position += 4;
        let (kind, delta) = (head & 31, head >> 5);
        let next = word(&page[..end], position, 4);
        let size = match (kind, next) {
            // The rest of the page is empty.
            (29, _) if delta == 0 => break,
            (29, Some(size)) => {
                at += delta;
                position += size as usize;
                continue;
            }
            (30, Some(high)) => {
                at += delta + (high << 27);
                position += 4;
                continue;
            }
            (31, Some(high)) => {
                at = (at & (31 << 59)) | (delta + (high << 27));
                position += 4;
                continue;
            }
            (0, Some(size)) if size >= 4 => {
                position += 4;
                size as usize - 4
            }
            (0 | 29.., _) => break,
            (words, _) => words as usize * 4,
        };
        at += delta;
        let Some(payload) = page[..end].get(position..position + size) else { break };
        visit(at, payload);
        position += size;
    }
}

/// A little-endian integer of `size` bytes.
fn word(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + size)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// A field of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// Its value in a payload; zero if that is too short.
    pub fn of(self, payload: &[u8]) -> u64 {
        word(payload, self.offset, self.size.min(8)).unwrap_or_default()
    }

    /// Its bytes.
    pub fn bytes(self, payload: &[u8]) -> &[u8] {
        payload.get(self.offset..self.offset + self.size).unwrap_or_default()
    }

    /// Element `index` of an array of eight-byte integers.
    pub fn element(self, payload: &[u8], index: usize) -> u64 {
        word(payload, self.offset + index * 8, 8).unwrap_or_default()
    }
}

/// Number and fields of a kind of event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Its number, in the first two bytes of the payload.
    pub id: u64,
    fields: Vec<(String, Field)>,
}

impl Layout {
    /// Reads the `format` file of an event such as `sched/sched_switch`.
    pub fn read(instance: &Path, event: &str) -> io::Result<Self> {
        let text = fs::read_to_string(instance.join("events").join(event).join("format"))?;
        Self::parse(&text)
            .ok_or_else(|| io::Error::other(format!("the format of {event} is unknown")))
    }

    fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        let fields = text.lines().filter_map(|line| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
            let name = parts.next()?.rsplit(' ').next()?;
            let name = name.split('[').next()?.to_owned();
            let number =
                |part: &str, key| part.strip_prefix(key).and_then(|text| text.parse().ok());
            let offset = number(parts.next()?, "offset:")?;
            let size = number(parts.next()?, "size:")?;
            Some((name, Field { offset, size }))
        });
        Some(Self { id, fields: fields.collect() })
    }

    /// A field by name.
    pub fn field(&self, name: &str) -> io::Result<Field> {
        let found = self.fields.iter().find(|(own, _)| own == name);
        found.map(|(_, field)| *field).ok_or_else(|| io::Error::other(format!("no field {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(missed: u64, words: &[u32]) -> Vec<u8> {
        let mut page = 1000u64.to_le_bytes().to_vec();
        page.extend(((words.len() as u64 * 4) | missed).to_le_bytes());
        words.iter().for_each(|word| page.extend(word.to_le_bytes()));
        page.resize(4096, 0);
        page
    }

    /// Times that are wrong by one record kind shift every wait of the recording.
    #[test]
    fn every_kind_of_record_advances_the_time_as_documented() {
        let words = [
            5 << 5 | 1,
            0xaa, // 4 bytes, 5 ns later
            7 << 5 | 30,
            1, // 7 ns + 2^27 ns
            3 << 5,
            8,
            0xbb, // 4 bytes with an explicit length
            2 << 5 | 29,
            8,
            0, // padding of two words
            1,
            0xcc,
        ];
        let mut seen = Vec::new();
        visit(&page(0, &words), |at, payload| seen.push((at, payload.to_vec())));
        let late = 1005 + 7 + (1 << 27) + 3;
        let of = |byte: u8| vec![byte, 0, 0, 0];
        assert_eq!(seen, [(1005, of(0xaa)), (late, of(0xbb)), (late + 2, of(0xcc))]);
    }

    /// A gap that is not noticed counts as whatever the thread did before it.
    #[test]
    fn a_page_tells_that_events_before_it_were_lost() {
        assert_eq!(lost_before(&page(0, &[])), None);
        assert_eq!(lost_before(&page(MISSED, &[])), Some(1000));
        let stored = page(MISSED | MISSED_STORED, &[5 << 5 | 1, 0xaa]);
        assert_eq!(lost_before(&stored), Some(1000));
        let mut seen = 0;
        visit(&stored, |_, _| seen += 1);
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_page_cut_anywhere_does_not_panic() {
        let full = page(0, &[5 << 5 | 2, 1, 2, 3 << 5, 100, 9, 31, 2, 28, 1]);
        for length in 0..80 {
            visit(&full[..length], |_, _| {});
        }
    }

    #[test]
    fn a_layout_has_the_fields_of_its_format_file() {
        let text = "name: x\nID: 372\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n";
        let layout = Layout::parse(text).unwrap();
        assert_eq!(layout.id, 372);
        assert_eq!(layout.field("rwbs").unwrap(), Field { offset: 34, size: 10 });
        assert!(layout.field("prev_pid").is_err());
    }
}
