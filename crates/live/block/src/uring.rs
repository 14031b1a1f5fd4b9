//! The io_uring driver: registered file and buffers, submissions and completions in batches.
//!
//! The ring is single-issuer with deferred task work where the kernel has it (6.1 and later), plain
//! otherwise. Invariants: one clock reading a batch, after waiting and before recording; the loop
//! allocates nothing. What it is not: a general ring; it drives one client on one thread.

use std::fs::File;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use observe::Control;
use stats::{Recorder, Recording};
use units::Nanos;
use workload::{BlockClient, BlockOp, ClientIndex, Issue, OpClass, OpId, Outcome, Step, Workload};

use crate::buffers::Buffers;
use crate::psync::record;
use crate::{Clock, Spec};

/// io_uring_enter(2): process completions, waiting for as many as asked (none).
const IORING_ENTER_GETEVENTS: u32 = 1;
/// How long before an operation is due the driver stops sleeping: sleeps overshoot by up to 0.1 ms.
const SPIN: Nanos = Nanos::from_micros(120);

/// Whether this process may use io_uring.
///
/// # Errors
/// What the kernel said.
pub fn available() -> Result<(), String> {
    IoUring::new(2).map(|_| ()).map_err(|error| error.to_string())
}

pub(crate) enum UringFailure {
    SetUp(String),
    Running(String),
}

/// Runs one client on a ring. Says which ring features were had.
pub(crate) fn run_uring(
    target: &File,
    spec: &Spec,
    index: ClientIndex,
    control: &Control<'_>,
    clock: Clock,
) -> Result<(Recording, String), UringFailure> {
    let client = BlockClient::new(spec.plan, spec.seed, index);
    let depth = spec.plan.queue_depth;
    let (ring, mut features) = new_ring(depth).map_err(|e| UringFailure::SetUp(e.to_string()))?;
    let size = usize::try_from(spec.plan.block_size.get()).unwrap_or(0);
    let mut buffers = Buffers::new(depth as usize, size, spec.seed);
    let vectors: Vec<libc::iovec> = (0..depth as usize)
        .map(|index| {
            let buffer = buffers.get(index);
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }
        })
        .collect();
    // SAFETY: the buffers live in `buffers`, which neither moves its storage nor shrinks, and which is
    // dropped after the ring (fields of `Driver` drop in order, ring first).
    let fixed = unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
    features.push_str(if fixed { ", registered buffers" } else { ", plain buffers" });
    ring.submitter()
        .register_files(&[target.as_raw_fd()])
        .map_err(|error| UringFailure::SetUp(error.to_string()))?;
    let slots = vec![None; depth as usize];
    let index = index.index;
    let (batch, in_flight, failed) = (spec.batch.max(1), 0, false);
    let driver = Driver { ring, buffers, slots, fixed, client, index, batch, in_flight, failed };
    let recording = driver.run(spec, control, clock).map_err(UringFailure::Running)?;
    Ok((recording, features))
}

impl Drop for Driver {
    /// The kernel takes a ring apart after it was closed, in its own time; the target must not stay
    /// claimed until then, or the next exclusive opener is refused.
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The ring broke down: the kernel may still write into the buffers after it is closed, so
            // they are never given back.
            self.buffers.leak();
        }
        let _ = self.ring.submitter().unregister_files();
        if self.fixed {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

fn new_ring(depth: u32) -> std::io::Result<(IoUring, String)> {
    let entries = depth.next_power_of_two().max(2);
    let best = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .build(entries);
    match best {
        Ok(ring) => Ok((ring, "deferred task work".to_owned())),
        Err(_) => IoUring::new(entries).map(|ring| (ring, "plain ring".to_owned())),
    }
}

struct Driver {
    ring: IoUring,
    buffers: Buffers,
    /// `[slot]`: what is in flight in it, and since when.
    slots: Vec<Option<(Issue<BlockOp>, Nanos)>>,
    fixed: bool,
    client: BlockClient,
    index: u32,
    /// Completions to wait for at once.
    batch: u32,
    in_flight: u32,
    failed: bool,
}

impl Driver {
    fn run(
        mut self,
        spec: &Spec,
        control: &Control<'_>,
        clock: Clock,
    ) -> Result<Recording, String> {
        let mut recorder = spec.recorder();
        let mut stopping = false;
        let mut now = clock.now();
        loop {
            while let Some(summary) = recorder.poll(now) {
                control.tell(self.index, summary);
                stopping |= control.stopping();
            }
            let mut wait_until = None;
            stopping |= self.failed && spec.stop_on_error;
            if !stopping {
                wait_until = self.issue(now)?;
            }
            if self.in_flight == 0 {
                match wait_until {
                    Some(until) => {
                        let pause = until.since(now);
                        if pause > SPIN {
                            std::thread::sleep((pause - SPIN).into());
                        }
                        now = clock.now();
                        continue;
                    }
                    None => {
                        let mut recording = recorder.finish(now);
                        recording.missed_arrivals = self.client.missed();
                        return Ok(recording);
                    }
                }
            }
            self.wait(wait_until.map(|until| until.since(now)))?;
            now = clock.now();
            while let Some(summary) = recorder.poll(now) {
                control.tell(self.index, summary);
                stopping |= control.stopping();
            }
            self.reap(now, &mut recorder);
        }
    }

    /// Issues what the client wants now; says when it wants to be asked again, if it waits.
    fn issue(&mut self, now: Nanos) -> Result<Option<Nanos>, String> {
        loop {
            match self.client.next(now) {
                Step::Issue(issue) => self.push(issue, now)?,
                Step::WaitUntil(until) => return Ok(Some(until)),
                Step::WaitCompletion | Step::Finished => return Ok(None),
            }
        }
    }

    #[inline]
    fn push(&mut self, issue: Issue<BlockOp>, now: Nanos) -> Result<(), String> {
        let slot = issue.id.0;
        let (file, length, offset) = (types::Fixed(0), issue.op.length, issue.op.offset);
        let entry = match (issue.op.class, self.fixed) {
            (OpClass::Read, true) => {
                let buffer = self.buffers.get(slot as usize).as_mut_ptr();
                opcode::ReadFixed::new(file, buffer, length, slot as u16).offset(offset).build()
            }
            (OpClass::Read, false) => {
                let buffer = self.buffers.get(slot as usize).as_mut_ptr();
                opcode::Read::new(file, buffer, length).offset(offset).build()
            }
            (OpClass::Write, true) => {
                let buffer = self.buffers.stamped(slot as usize).as_ptr();
                opcode::WriteFixed::new(file, buffer, length, slot as u16).offset(offset).build()
            }
            (OpClass::Write, false) => {
                let buffer = self.buffers.stamped(slot as usize).as_ptr();
                opcode::Write::new(file, buffer, length).offset(offset).build()
            }
        };
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: buffer and file outlive the operation: both are held until the ring is gone, and a
        // slot is not reused before its completion was taken.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| "the submission queue is full; it holds the queue depth".to_owned())?;
        self.slots[slot as usize] = Some((issue, now));
        self.in_flight += 1;
        Ok(())
    }

    /// Submits, and waits for a batch of completions, or, when the next operation is due after `pause`,
    /// until shortly before then: sleeping is not exact enough to pace by.
    fn wait(&mut self, pause: Option<Nanos>) -> Result<(), String> {
        loop {
            let waited = match pause {
                None => self.ring.submit_and_wait(self.batch.min(self.in_flight) as usize),
                Some(pause) if pause > SPIN => {
                    let time = std::time::Duration::from(pause - SPIN);
                    let time = types::Timespec::from(time);
                    let arguments = types::SubmitArgs::new().timespec(&time);
                    self.ring.submitter().submit_with_args(1, &arguments)
                }
                Some(_) => self.submit_and_look(),
            };
            match waited {
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // The time is over; whatever has completed is there.
                    Some(libc::ETIME) => return Ok(()),
                    _ => return Err(error.to_string()),
                },
            }
        }
    }

    /// Submits and lets the kernel post what has completed, without waiting.
    fn submit_and_look(&mut self) -> std::io::Result<usize> {
        let mut queue = self.ring.submission();
        queue.sync();
        let count = u32::try_from(queue.len()).unwrap_or(u32::MAX);
        drop(queue);
        // SAFETY: every entry in the queue was pushed under the promises of `push`.
        unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(count, 0, IORING_ENTER_GETEVENTS, None)
        }
    }

    /// Records every completion that is there, as known complete at `now`.
    fn reap(&mut self, now: Nanos, recorder: &mut Recorder) {
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            let Some((issue, issued)) = self.slots.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            let outcome = match entry.result() {
                bytes if bytes == issue.op.length as i32 => Outcome::Done,
                // A short transfer inside the span: the target lost its end.
                bytes if bytes >= 0 => Outcome::Failed(libc::EIO),
                errno => Outcome::Failed(-errno),
            };
            self.in_flight -= 1;
            self.failed |= outcome != Outcome::Done;
            record(recorder, issue, (issued, now), outcome);
            self.client.completed(OpId(slot as u32), outcome, now);
        }
    }
}
