//! What the kernel reported about a thread or a drive, and the compact encoding of a stream of it.
//!
//! A stream holds the events of one CPU in order of time: per event a tag, the time since the previous event
//! and the fields, as variable-length integers. Invariant: decoding any bytes ends with an error or a stream,
//! never a panic.

use device::Operation;

/// A system call that may wait, by what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// Reads from a file or a socket.
    Read,
    /// Writes to a file or a socket.
    Write,
    /// Makes a file durable.
    Flush,
    /// Submits asynchronous I/O, or waits for its completion.
    AsyncIo,
    /// Waits until one of several descriptors is ready.
    Poll,
    /// A futex or semaphore.
    Lock,
    /// Sleeps for a time.
    Sleep,
    /// Returned from; also every call that is not recorded.
    None,
}

/// What a descriptor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A data file, or a file of unknown purpose.
    Data,
    /// A write-ahead or redo log, or a journal.
    Log,
    /// A socket.
    Socket,
    /// A pipe, event or timer.
    Other,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WokenBy {
    /// The running thread.
    Thread,
    /// A deferred interrupt (softirq) on the running thread's CPU: a completion, or a message over loopback
    /// that this thread sends.
    Deferred,
    /// An interrupt.
    Interrupt,
}

/// How a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchOut {
    /// Another thread took the CPU.
    Preempted,
    /// It sleeps; signals may end the sleep.
    Sleeps,
    /// It sleeps and cannot be interrupted: usually I/O.
    Blocks,
    /// It ended.
    Ends,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The thread has a CPU from now on.
    Runs {
        /// The thread that had it before; 0 if the CPU was idle.
        after: u32,
    },
    /// The thread left its CPU.
    Leaves(SwitchOut),
    /// The thread is ready again.
    Woken {
        /// The thread that was running; 0 for an idle CPU.
        waker: u32,
        /// What it was doing.
        by: WokenBy,
    },
    /// The thread entered a system call.
    Enters {
        /// The call.
        call: Call,
        /// What it acts on.
        file: FileKind,
    },
    /// The thread returned from a system call.
    Returns,
    /// The thread submitted a request to a drive.
    Submits(Io),
    /// The block layer passed a request to the driver; `thread` has no meaning.
    Issues(Io),
    /// A drive completed a request; `thread` has no meaning.
    Completes(Io),
    /// The events of this CPU or drive that follow were lost ...
    Lost,
    /// ... until here.
    Recovered,
}

/// A request to a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Device number of the whole drive.
    pub drive: u32,
    /// The operation.
    pub operation: Operation,
    /// A write that has to be durable, or is preceded by a flush.
    pub durable: bool,
    /// First sector (512 bytes). Some completions carry the sector after the last one instead, with
    /// `bytes` = 0.
    pub sector: u64,
    /// Bytes; 0 for a flush.
    pub bytes: u32,
}

/// An event of one thread, at nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: u64,
    /// Thread ID.
    pub thread: u32,
    /// What.
    pub what: EventKind,
}

const CALLS: [Call; 8] = [
    Call::Read,
    Call::Write,
    Call::Flush,
    Call::AsyncIo,
    Call::Poll,
    Call::Lock,
    Call::Sleep,
    Call::None,
];
const FILES: [FileKind; 4] = [FileKind::Data, FileKind::Log, FileKind::Socket, FileKind::Other];
const LEAVES: [SwitchOut; 4] =
    [SwitchOut::Preempted, SwitchOut::Sleeps, SwitchOut::Blocks, SwitchOut::Ends];
const OPERATIONS: [Operation; 5] = [
    Operation::Read,
    Operation::Write,
    Operation::Flush,
    Operation::Discard,
    Operation::WriteZeroes,
];

/// Encodes the events of one CPU.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    at: u64,
    events: usize,
}

impl Encoder {
    /// The encoded stream so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of events.
    #[must_use]
    pub const fn events(&self) -> usize {
        self.events
    }

    /// Appends an event; one that is older than its predecessor gets the predecessor's time.
    pub fn push(&mut self, event: &Event) {
        let (tag, fields) = parts(event.what);
        self.bytes.push(tag);
        self.events += 1;
        self.number(event.at.saturating_sub(self.at));
        self.at = self.at.max(event.at);
        self.number(u64::from(event.thread));
        for field in fields.into_iter().flatten() {
            self.number(field);
        }
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// Tag and fields of an event.
fn parts(what: EventKind) -> (u8, [Option<u64>; 4]) {
    let index = |found: Option<usize>| found.unwrap_or_default() as u8;
    match what {
        EventKind::Runs { after } => (0, [Some(u64::from(after)), None, None, None]),
        EventKind::Leaves(leave) => {
            (1 + index(LEAVES.iter().position(|one| *one == leave)), [None; 4])
        }
        EventKind::Woken { waker, by } => {
            let tag = match by {
                WokenBy::Thread => 5,
                WokenBy::Interrupt => 6,
                WokenBy::Deferred => 81,
            };
            (tag, [Some(u64::from(waker)), None, None, None])
        }
        EventKind::Enters { call, file } => {
            let call = index(CALLS.iter().position(|one| *one == call));
            let file = index(FILES.iter().position(|one| *one == file));
            (8 + call * 4 + file, [None; 4])
        }
        EventKind::Returns => (7, [None; 4]),
        EventKind::Submits(io) => io_parts(48, io),
        EventKind::Completes(io) => io_parts(64, io),
        EventKind::Issues(io) => io_parts(82, io),
        EventKind::Lost => (80, [None; 4]),
        EventKind::Recovered => (92, [None; 4]),
    }
}

fn io_parts(base: u8, io: Io) -> (u8, [Option<u64>; 4]) {
    let operation =
        OPERATIONS.iter().position(|one| *one == io.operation).unwrap_or_default() as u8;
    let fields = [u64::from(io.drive), io.sector, u64::from(io.bytes)].map(Some);
    (base + operation * 2 + u8::from(io.durable), [fields[0], fields[1], fields[2], None])
}

/// Decodes a stream; ends with an error at the first byte that no encoder writes.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Decoder<'a> {
    /// Of an encoded stream.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn event(&mut self, tag: u8) -> Option<Event> {
        let since = self.number()?;
        self.at = self.at.checked_add(since)?;
        let thread = self.small()?;
        let what = match tag {
            0 => EventKind::Runs { after: self.small()? },
            1..=4 => EventKind::Leaves(LEAVES[usize::from(tag - 1)]),
            5 | 6 | 81 => {
                let by = match tag {
                    5 => WokenBy::Thread,
                    6 => WokenBy::Interrupt,
                    _ => WokenBy::Deferred,
                };
                EventKind::Woken { waker: self.small()?, by }
            }
            7 => EventKind::Returns,
            8..40 => EventKind::Enters {
                call: CALLS[usize::from(tag - 8) / 4],
                file: FILES[usize::from(tag - 8) % 4],
            },
            48..58 => EventKind::Submits(self.io(tag - 48)?),
            64..74 => EventKind::Completes(self.io(tag - 64)?),
            80 => EventKind::Lost,
            92 => EventKind::Recovered,
            82..92 => EventKind::Issues(self.io(tag - 82)?),
            _ => return None,
        };
        Some(Event { at: self.at, thread, what })
    }

    fn io(&mut self, tag: u8) -> Option<Io> {
        Some(Io {
            drive: self.small()?,
            operation: OPERATIONS[usize::from(tag / 2)],
            durable: tag % 2 == 1,
            sector: self.number()?,
            bytes: self.small()?,
        })
    }
}

impl Iterator for Decoder<'_> {
    /// The event, or `Err` once at the first byte that cannot be decoded.
    type Item = Result<Event, ()>;

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        let event = self.event(*tag).ok_or(());
        if event.is_err() {
            self.bytes = &[];
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_io() -> impl Strategy<Value = Io> {
        let operation = prop::sample::select(OPERATIONS.to_vec());
        (any::<u32>(), operation, any::<bool>(), any::<u64>(), any::<u32>()).prop_map(
            |(drive, operation, durable, sector, bytes)| Io {
                drive,
                operation,
                durable,
                sector,
                bytes,
            },
        )
    }

    fn any_what() -> impl Strategy<Value = EventKind> {
        prop_oneof![
            any::<u32>().prop_map(|after| EventKind::Runs { after }),
            prop::sample::select(LEAVES.to_vec()).prop_map(EventKind::Leaves),
            (
                any::<u32>(),
                prop::sample::select(vec![WokenBy::Thread, WokenBy::Deferred, WokenBy::Interrupt])
            )
                .prop_map(|(waker, by)| EventKind::Woken { waker, by }),
            (prop::sample::select(CALLS.to_vec()), prop::sample::select(FILES.to_vec()))
                .prop_map(|(call, file)| EventKind::Enters { call, file }),
            Just(EventKind::Returns),
            any_io().prop_map(EventKind::Submits),
            any_io().prop_map(EventKind::Completes),
            any_io().prop_map(EventKind::Issues),
            Just(EventKind::Lost),
            Just(EventKind::Recovered),
        ]
    }

    proptest! {
        /// A recording that decodes to something else explains the wrong minute.
        #[test]
        fn what_was_encoded_is_decoded(
            raw in prop::collection::vec((0u64..1 << 40, any::<u32>(), any_what()), 0..200),
        ) {
            let mut at = 0;
            let events: Vec<Event> = raw.into_iter().map(|(since, thread, what)| {
                at += since;
                Event { at, thread, what }
            }).collect();
            let mut encoder = Encoder::default();
            events.iter().for_each(|event| encoder.push(event));
            let decoded: Result<Vec<Event>, ()> = Decoder::new(encoder.bytes()).collect();
            prop_assert_eq!(decoded, Ok(events));
        }

        #[test]
        fn garbage_ends(raw in prop::collection::vec(any::<u8>(), 0..400)) {
            let count = Decoder::new(&raw).count();
            prop_assert!(count <= raw.len());
        }
    }
}
