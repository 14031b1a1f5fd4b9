//! The kernel's side: two instances of event tracing, and how records become events.
//!
//! Threads: scheduling and system calls of the chosen threads. Drives: requests of everybody, because
//! completions run in whatever thread was interrupted. Invariant: records carry no buffer contents; pointers
//! are dropped here.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use capture::{Decoder, Disk, Encoder, Event, EventKind, Io, SwitchOut, WokenBy};
use device::Operation;
use observe::BlockDevice;
use stack::{Journal, StackError, TraceInstance};

use crate::calls::{self, Recorded};
use crate::pages::{Field, Layout, lost_before, visit};
use crate::processes::Descriptors;

const THREAD_EVENTS: [&str; 4] =
    ["sched/sched_switch", "sched/sched_waking", "raw_syscalls/sys_enter", "raw_syscalls/sys_exit"];
/// Drives without a request queue complete bios, others issue and complete requests.
const DRIVE_EVENTS: [&str; 4] = [
    "block/block_bio_queue", "block/block_rq_issue", "block/block_rq_complete",
    "block/block_bio_complete",
];
/// Largest page of a ring buffer.
const PAGE_MAX: usize = 1 << 16;
/// Buffer per CPU, in KiB, and the most of all CPUs.
const THREAD_BUFFER: u32 = 16 << 10;
const DRIVE_BUFFER: u32 = 4 << 10;
const BUFFERS_MAX: u32 = 512 << 10;
/// Flags of a record: in an interrupt handler, in a deferred one.
const HARD_INTERRUPT: u64 = 0x08;
const SOFT_INTERRUPT: u64 = 0x10;
/// States of a thread that left its CPU.
const STATE_SLEEPS: u64 = 1;
const STATE_BLOCKS: u64 = 2;
const STATE_ENDS: u64 = 0x10 | 0x20 | 0x40;
/// Set in the state of a thread that was preempted.
const STATE_PREEMPTED: u64 = 0x100;

/// One instance with a pipe and a stream for each CPU.
struct Buffers {
    pipes: Vec<File>,
    streams: Vec<Encoder>,
    /// Events that did not fit, by CPU, before [`Self::forget`].
    dropped: Vec<u64>,
    events: &'static [&'static str],
    /// Pages of the buffer of a CPU.
    pages: usize,
    // Dropped last: an instance whose pipes are open cannot be removed.
    instance: TraceInstance,
}

impl Buffers {
    fn create(
        journal: &Journal,
        label: &str,
        (events, buffer): (&'static [&'static str], u32),
    ) -> Result<Self, StackError> {
        let instance = TraceInstance::create(journal, label)?;
        let path = instance.path();
        let set = |name: &str, value: &str| put(&path.join(name), value);
        set("tracing_on", "0")?;
        set("trace_clock", "mono")?;
        // The page after a gap is marked as such only if new events replace old ones.
        set("options/overwrite", "1")?;
        let cpus = fs::read_dir(path.join("per_cpu")).map_or(1, |all| all.count() as u32);
        let buffer = buffer.min(BUFFERS_MAX / cpus.max(1)).max(1 << 10);
        set("buffer_size_kb", &buffer.to_string())?;
        let mut pipes = Vec::new();
        for cpu in 0.. {
            let pipe = path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            if !pipe.exists() {
                break;
            }
            let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe);
            pipes.push(opened.map_err(StackError::io("open", &pipe))?);
        }
        let streams = pipes.iter().map(|_| Encoder::default()).collect();
        let dropped = vec![0; pipes.len()];
        // Larger pages are fewer.
        let pages = buffer as usize / 4;
        Ok(Self { pipes, streams, dropped, events, pages, instance })
    }

    fn path(&self) -> &Path {
        self.instance.path()
    }

    fn switch(&self, on: bool) -> Result<(), StackError> {
        let value = if on { "1" } else { "0" };
        for event in self.events {
            put(&self.path().join("events").join(event).join("enable"), value)?;
        }
        put(&self.path().join("tracing_on"), value)
    }

    /// Reads what the kernel has, as many pages as its buffer: one that is filled as fast as it is read would
    /// never be empty. `page` is scratch space.
    fn drain(
        &mut self,
        page: &mut [u8],
        mut decode: impl FnMut(u64, &[u8], &mut Encoder),
    ) -> io::Result<()> {
        for cpu in 0..self.pipes.len() {
            for _ in 0..=self.pages {
                let read = match self.pipes[cpu].read(page) {
                    Ok(0) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                };
                if let Some(until) = lost_before(&page[..read]) {
                    // From the last event before the gap.
                    for (at, what) in [(0, EventKind::Lost), (until, EventKind::Recovered)] {
                        self.streams[cpu].push(&Event { at, thread: 0, what });
                    }
                }
                visit(&page[..read], |at, payload| {
                    decode(at, payload, &mut self.streams[cpu]);
                });
            }
        }
        Ok(())
    }

    /// Events that did not fit into the buffer of a CPU since the instance was created.
    fn dropped_on(&self, cpu: usize) -> u64 {
        let path = self.path().join(format!("per_cpu/cpu{cpu}/stats"));
        let stats = fs::read_to_string(path).unwrap_or_default();
        let dropped = stats.lines().find_map(|line| line.strip_prefix("overrun: "));
        dropped.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    }

    /// Events that did not fit since [`Self::forget`].
    fn lost(&self) -> u64 {
        (0..self.pipes.len())
            .map(|cpu| self.dropped_on(cpu).saturating_sub(self.dropped[cpu]))
            .sum()
    }

    /// Forgets what was read so far.
    fn forget(&mut self) {
        for cpu in 0..self.pipes.len() {
            self.streams[cpu] = Encoder::default();
            self.dropped[cpu] = self.dropped_on(cpu);
        }
    }
}

fn put(path: &Path, value: &str) -> Result<(), StackError> {
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(StackError::io("write", path))
}

/// Layouts of the thread events.
struct ThreadLayouts {
    ids: [u64; 4],
    pid: Field,
    flags: Field,
    prev: Field,
    state: Field,
    next: Field,
    woken: Field,
    number: Field,
    ended: Field,
    arguments: Field,
}

/// Layout of a drive event.
struct DriveLayout {
    id: u64,
    pid: Field,
    drive: Field,
    sector: Field,
    sectors: Field,
    flags: Field,
}

/// Both instances.
pub struct Kernel {
    threads: Buffers,
    drives: Buffers,
    of_threads: ThreadLayouts,
    of_drives: [DriveLayout; 4],
    known: HashMap<i64, &'static Recorded>,
    whole: HashMap<u32, u32>,
    /// Requests of programs that are not recorded.
    pub other_requests: u64,
    page: Vec<u8>,
}

impl Kernel {
    /// Prepares them; nothing is recorded yet.
    ///
    /// # Errors
    /// Without root, or if the kernel lacks an event.
    pub fn prepare(journal: &Journal) -> Result<Self, StackError> {
        let threads = Buffers::create(journal, "threads", (&THREAD_EVENTS, THREAD_BUFFER))?;
        let drives = Buffers::create(journal, "drives", (&DRIVE_EVENTS, DRIVE_BUFFER))?;
        let layouts = || -> io::Result<(ThreadLayouts, [DriveLayout; 4])> {
            let [queue, issue, request, bio] =
                DRIVE_EVENTS.map(|event| drive_layout(drives.path(), event));
            Ok((thread_layouts(threads.path())?, [queue?, issue?, request?, bio?]))
        };
        let (of_threads, of_drives) =
            layouts().map_err(StackError::io("read formats in", threads.path()))?;
        // All calls are traced: a filter with 40 numbers costs as much as the event.
        put(&threads.path().join("options/event-fork"), "1")?;
        let known = calls::all().map(|one| (one.number, one)).collect();
        let (whole, page) = (HashMap::new(), vec![0; PAGE_MAX]);
        Ok(Self { threads, drives, of_threads, of_drives, known, whole, other_requests: 0, page })
    }

    /// Chooses the threads to record; what they start later follows by itself.
    pub fn choose(&self, tids: &[u32]) -> Result<(), StackError> {
        let path = self.threads.path().join("set_event_pid");
        let text: String = tids.iter().map(|tid| format!("{tid} ")).collect();
        // One write: each waits until all CPUs have passed a quiescent state.
        let chosen = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        chosen.map_err(StackError::io("write", path))
    }

    /// The system call that a thread is in, as `/proc` shows it.
    pub fn current_call(&self, tid: u32, descriptors: &mut Descriptors) -> Option<EventKind> {
        let text = fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
        let mut fields = text.split_whitespace();
        let one = self.known.get(&fields.next()?.parse().ok()?)?;
        let first = u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok()?;
        Some(EventKind::Enters { call: one.call, file: one.file(tid, first, descriptors) })
    }

    /// Starts or stops recording.
    pub fn switch(&self, on: bool) -> Result<(), StackError> {
        let mut order = [&self.drives, &self.threads];
        if !on {
            order.reverse();
        }
        order.into_iter().try_for_each(|one| one.switch(on))
    }

    /// Moves what the kernel has into the streams; returns their size in bytes and number of events.
    pub fn drain(&mut self, descriptors: &mut Descriptors) -> io::Result<(usize, usize)> {
        let (of, known) = (&self.of_threads, &self.known);
        self.threads.drain(&mut self.page, |at, payload, stream| {
            of.decode((at, payload), (known, descriptors), stream);
        })?;
        let (of, whole) = (&self.of_drives, &mut self.whole);
        let other = &mut self.other_requests;
        self.drives.drain(&mut self.page, |at, payload, stream| {
            match decode_drive(of, whole, (at, payload)) {
                Some(Event { what: EventKind::Submits(_), thread, .. })
                    if descriptors.is_other_program(thread) =>
                {
                    *other += 1;
                }
                Some(event) => stream.push(&event),
                None => {}
            }
        })?;
        let sizes = self.all_streams().map(|one| (one.bytes().len(), one.events()));
        Ok(sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
    }

    fn all_streams(&self) -> impl Iterator<Item = &Encoder> {
        self.threads.streams.iter().chain(&self.drives.streams)
    }

    /// The events so far, by stream.
    pub fn streams(&self) -> impl Iterator<Item = impl Iterator<Item = Event>> {
        self.all_streams().map(|one| Decoder::new(one.bytes()).flatten())
    }

    /// Forgets what was recorded so far.
    pub fn forget(&mut self) {
        self.other_requests = 0;
        self.threads.forget();
        self.drives.forget();
    }

    /// The streams, and the number of events that were lost.
    pub fn finish(self) -> (Vec<Encoder>, u64) {
        let all = [self.threads, self.drives];
        let lost = all.iter().map(Buffers::lost).sum();
        (all.into_iter().flat_map(|one| one.streams).collect(), lost)
    }
}

fn thread_layouts(instance: &Path) -> io::Result<ThreadLayouts> {
    let [switch, waking, enter, exit] = THREAD_EVENTS.map(|event| Layout::read(instance, event));
    let (switch, waking, enter, exit) = (switch?, waking?, enter?, exit?);
    Ok(ThreadLayouts {
        ids: [switch.id, waking.id, enter.id, exit.id],
        pid: switch.field("common_pid")?,
        flags: switch.field("common_flags")?,
        prev: switch.field("prev_pid")?,
        state: switch.field("prev_state")?,
        next: switch.field("next_pid")?,
        woken: waking.field("pid")?,
        number: enter.field("id")?,
        ended: exit.field("id")?,
        arguments: enter.field("args")?,
    })
}

fn drive_layout(instance: &Path, event: &str) -> io::Result<DriveLayout> {
    let layout = Layout::read(instance, event)?;
    Ok(DriveLayout {
        id: layout.id,
        pid: layout.field("common_pid")?,
        drive: layout.field("dev")?,
        sector: layout.field("sector")?,
        sectors: layout.field("nr_sector")?,
        flags: layout.field("rwbs")?,
    })
}

impl ThreadLayouts {
    fn decode(
        &self,
        (at, payload): (u64, &[u8]),
        (calls, descriptors): (&HashMap<i64, &'static Recorded>, &mut Descriptors),
        stream: &mut Encoder,
    ) {
        let kind = u64::from(u16::from_le_bytes([
            payload.first().copied().unwrap_or_default(),
            payload.get(1).copied().unwrap_or_default(),
        ]));
        let id = |field: Field| field.of(payload) as u32;
        let own = id(self.pid);
        match self.ids.iter().position(|one| *one == kind) {
            Some(0) => {
                let (prev, next) = (id(self.prev), id(self.next));
                let leave = leave(self.state.of(payload));
                if prev != 0 {
                    stream.push(&Event { at, thread: prev, what: EventKind::Leaves(leave) });
                }
                if next != 0 {
                    stream.push(&Event { at, thread: next, what: EventKind::Runs { after: prev } });
                }
            }
            Some(1) => {
                let by = match self.flags.of(payload) {
                    flags if flags & HARD_INTERRUPT != 0 => WokenBy::Interrupt,
                    flags if flags & SOFT_INTERRUPT != 0 => WokenBy::Deferred,
                    _ => WokenBy::Thread,
                };
                let what = EventKind::Woken { waker: own, by };
                stream.push(&Event { at, thread: id(self.woken), what });
            }
            Some(2) => {
                let Some(one) = calls.get(&(self.number.of(payload) as i64)) else { return };
                let file = one.file(own, self.arguments.element(payload, 0), descriptors);
                let what = EventKind::Enters { call: one.call, file };
                stream.push(&Event { at, thread: own, what });
            }
            Some(3) if calls.contains_key(&(self.ended.of(payload) as i64)) => {
                stream.push(&Event { at, thread: own, what: EventKind::Returns });
            }
            _ => {}
        }
    }
}

fn leave(state: u64) -> SwitchOut {
    match state {
        state if state & STATE_PREEMPTED != 0 => SwitchOut::Preempted,
        state if state & STATE_ENDS != 0 => SwitchOut::Ends,
        state if state & STATE_BLOCKS != 0 => SwitchOut::Blocks,
        state if state & STATE_SLEEPS != 0 => SwitchOut::Sleeps,
        0 => SwitchOut::Preempted,
        _ => SwitchOut::Sleeps,
    }
}

fn decode_drive(
    of: &[DriveLayout; 4],
    whole: &mut HashMap<u32, u32>,
    (at, payload): (u64, &[u8]),
) -> Option<Event> {
    let kind = u64::from(u16::from_le_bytes([*payload.first()?, *payload.get(1)?]));
    let index = of.iter().position(|one| one.id == kind)?;
    let layout = &of[index];
    let bytes = layout.sectors.of(payload) as u32 * 512;
    let (operation, durable) = operation(layout.flags.bytes(payload), bytes)?;
    let number = layout.drive.of(payload) as u32;
    let drive = *whole
        .entry(number)
        .or_insert_with(|| drive(number).and_then(|one| number_of(&one)).unwrap_or(number));
    let io = Io { drive, operation, durable, sector: layout.sector.of(payload), bytes };
    let what = match index {
        0 => EventKind::Submits(io),
        1 => EventKind::Issues(io),
        _ => EventKind::Completes(io),
    };
    Some(Event { at, thread: layout.pid.of(payload) as u32, what })
}

/// Operation, and whether it has to be durable, from letters such as `WS`, `FWS` or `WFS`: a flush before,
/// the operation, forced unit access. `None` for the flushes that the kernel makes of other requests.
fn operation(letters: &[u8], bytes: u32) -> Option<(Operation, bool)> {
    let text = letters.split(|byte| *byte == 0).next()?;
    let (flush, text) = text.strip_prefix(b"F").map_or((false, text), |rest| (true, rest));
    let durable = flush || text.get(1) == Some(&b'F');
    match text.first() {
        Some(b'R') => Some((Operation::Read, false)),
        Some(b'W') if flush && bytes == 0 => Some((Operation::Flush, true)),
        Some(b'W') => Some((Operation::Write, durable)),
        Some(b'D') => Some((Operation::Discard, false)),
        _ => None,
    }
}

/// The whole drive of a device number in the kernel's own encoding.
fn drive(number: u32) -> Option<BlockDevice> {
    let number = libc::makedev(number >> 20, number & 0xf_ffff);
    BlockDevice::numbered(number).map(|device| device.whole())
}

/// Number of a drive in the kernel's own encoding.
fn number_of(device: &BlockDevice) -> Option<u32> {
    let number = device.number()?;
    Some(libc::major(number) << 20 | libc::minor(number))
}

/// Description of a drive for the header.
pub fn describe_drive(number: u32) -> Disk {
    let found = drive(number);
    let below = found.iter().flat_map(BlockDevice::made_of).filter(|path| path.starts_with("/dev"));
    let below = below.filter_map(|path| number_of(&BlockDevice::under(&path)?.whole()));
    Disk { number, made_of: below.collect(), name: found.map_or_else(String::new, |one| one.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal commit read as a plain write hides the flush that a commit waits for.
    #[test]
    fn letters_of_requests_are_told_apart() {
        let of = |text: &[u8], bytes| operation(text, bytes);
        assert_eq!(of(b"RA\0\0", 4096), Some((Operation::Read, false)));
        assert_eq!(of(b"WS\0", 4096), Some((Operation::Write, false)));
        assert_eq!(of(b"WFS\0", 4096), Some((Operation::Write, true)));
        assert_eq!(of(b"FWFS", 4096), Some((Operation::Write, true)));
        assert_eq!(of(b"FWS\0", 0), Some((Operation::Flush, true)));
        assert_eq!(of(b"FF\0", 0), None);
        assert_eq!(of(b"DS", 4096), Some((Operation::Discard, false)));
    }

    #[test]
    fn a_preempted_thread_does_not_wait() {
        assert_eq!(leave(0), SwitchOut::Preempted);
        assert_eq!(leave(0x100), SwitchOut::Preempted);
        assert_eq!(leave(1), SwitchOut::Sleeps);
        assert_eq!(leave(2), SwitchOut::Blocks);
        assert_eq!(leave(0x10), SwitchOut::Ends);
    }
}
