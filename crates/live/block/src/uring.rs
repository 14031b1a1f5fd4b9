//! The io_uring driver: registered file and buffers, submissions and completions in batches.
//!
//! The ring is single-issuer with deferred task work where the kernel has it (6.1 and later), plain
//! otherwise. Invariants: one clock reading a batch, after waiting and before recording; the loop
//! allocates nothing. What it is not: a general ring; it drives one client on one thread.

use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, opcode, squeue, types};
use stats::{Recorder, Sample};
use units::Nanos;
use workload::{
    BlockClient, BlockGroup, BlockOp, ClientIndex, Issue, OpClass, OpId, Outcome, Step, Workload,
};

use crate::buffers::Buffers;
use crate::shared::{BlockShared, ClientEnd};

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

/// Runs one client of `group` on a ring; `number` names it in progress. Says which ring features were
/// had.
pub(crate) fn run_uring(
    shared: &BlockShared<'_>,
    group: &BlockGroup,
    index: ClientIndex,
    number: u32,
) -> Result<(ClientEnd, String), UringFailure> {
    let spec = shared.spec;
    let client = BlockClient::new(group.plan.clone(), spec.seed, index);
    let depth = group.plan.queue_depth;
    let set_up = |error: std::io::Error| UringFailure::SetUp(error.to_string());
    let (ring, mut features) = new_ring(depth).map_err(set_up)?;
    let size = group.plan.sizes.largest() as usize;
    let seed = spec.seed.derive("ring", u64::from(number));
    let mut buffers = Buffers::new(depth as usize, size, group.random_payload, seed);
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
    ring.submitter().register_files(&shared.target.descriptors()).map_err(set_up)?;
    let flight = Flight {
        buffers,
        slots: vec![None; depth as usize],
        fixed,
        client,
        number,
        batch: group.batch.max(1),
        write_flags: if group.plan.dsync { libc::RWF_DSYNC } else { 0 },
        in_flight: 0,
    };
    let mut driver = Driver { ring, flight };
    let end = driver.run(shared, group).map_err(UringFailure::Running)?;
    Ok((end, features))
}

impl Drop for Driver {
    /// The kernel takes a ring apart after it was closed, in its own time; the target must not stay
    /// claimed until then, or the next exclusive opener is refused.
    fn drop(&mut self) {
        if self.flight.in_flight > 0 {
            // The ring broke down: the kernel may still write into the buffers after it is closed, so
            // they are never given back.
            self.flight.buffers.leak();
        }
        let _ = self.ring.submitter().unregister_files();
        if self.flight.fixed {
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
        .setup_no_sqarray()
        .build(entries);
    match best {
        Ok(ring) => Ok((ring, "deferred task work".to_owned())),
        Err(_) => IoUring::new(entries).map(|ring| (ring, "plain ring".to_owned())),
    }
}

/// A ring and what is in flight on it, in the order in which they go.
struct Driver {
    ring: IoUring,
    flight: Flight,
}

impl Driver {
    fn run(&mut self, shared: &BlockShared<'_>, group: &BlockGroup) -> Result<ClientEnd, String> {
        let (mut submitter, queue, ends) = self.ring.split();
        // Only saves a look-up at each system call, for as long as this submitter is used; older kernels
        // (before 5.18) do without.
        let _ = submitter.register_ring_fd();
        self.flight.run(&mut Sides { submitter, queue, ends }, shared, group)
    }
}

/// The sides of a ring.
struct Sides<'a> {
    submitter: Submitter<'a>,
    queue: SubmissionQueue<'a>,
    ends: CompletionQueue<'a>,
}

/// A client and its operations.
struct Flight {
    buffers: Buffers,
    /// `[slot]`: what is in flight in it, and since when.
    slots: Vec<Option<(Issue<BlockOp>, Nanos)>>,
    fixed: bool,
    client: BlockClient,
    number: u32,
    /// Completions to wait for at once.
    batch: u32,
    /// `RWF_*` flags of every write.
    write_flags: i32,
    in_flight: u32,
}

impl Flight {
    fn run(
        &mut self,
        ring: &mut Sides<'_>,
        shared: &BlockShared<'_>,
        group: &BlockGroup,
    ) -> Result<ClientEnd, String> {
        let mut recorder = shared.spec.recorder(group);
        let mut stopped = false;
        let mut now = shared.clock.now();
        loop {
            stopped |= shared.roll(&mut recorder, (self.number, group.recorded), now);
            let mut wait_until = None;
            if !stopped && !shared.is_over() {
                wait_until = self.issue(&mut ring.queue, shared, now)?;
            }
            if self.in_flight == 0 {
                let Some(until) = wait_until else { break };
                let pause = until.since(now);
                if pause > SPIN {
                    std::thread::sleep((pause - SPIN).into());
                }
                now = shared.clock.now();
                continue;
            }
            self.wait(ring, wait_until.map(|until| until.since(now)))?;
            now = shared.clock.now();
            stopped |= shared.roll(&mut recorder, (self.number, group.recorded), now);
            self.reap(&mut ring.ends, shared, now, &mut recorder);
        }
        let client = self.client.clone();
        Ok(shared.finish(group, (self.number, client, recorder), (now, stopped)))
    }

    /// Issues what the client wants now; says when it wants to be asked again, if it waits.
    fn issue(
        &mut self,
        queue: &mut SubmissionQueue<'_>,
        shared: &BlockShared<'_>,
        now: Nanos,
    ) -> Result<Option<Nanos>, String> {
        // What the kernel has taken has left its places.
        queue.sync();
        loop {
            match self.client.next(now) {
                Step::Issue(issue) => {
                    shared.watch_lag(&issue, now);
                    self.push(queue, shared, issue, now)?;
                }
                Step::WaitUntil(until) => return Ok(Some(until)),
                Step::WaitCompletion | Step::Finished => return Ok(None),
            }
        }
    }

    #[inline]
    fn push(
        &mut self,
        queue: &mut SubmissionQueue<'_>,
        shared: &BlockShared<'_>,
        issue: Issue<BlockOp>,
        now: Nanos,
    ) -> Result<(), String> {
        let slot = issue.id.0;
        let entry = self.entry(shared, issue.op, slot).user_data(u64::from(slot));
        // SAFETY: buffer and file outlive the operation: both are held until the ring is gone, and a
        // slot is not reused before its completion was taken.
        let pushed = unsafe { queue.push(&entry) };
        pushed.map_err(|_| "the submission queue is full; it holds the queue depth".to_owned())?;
        self.slots[slot as usize] = Some((issue, now));
        self.in_flight += 1;
        Ok(())
    }

    #[inline]
    fn entry(&mut self, shared: &BlockShared<'_>, op: BlockOp, slot: u32) -> squeue::Entry {
        let (place, offset) = shared.target.locate(op.offset);
        let (file, length) = (types::Fixed(place as u32), op.length);
        match op.class {
            OpClass::Read | OpClass::BackgroundRead => {
                let buffer = self.buffers.get(slot as usize).as_mut_ptr();
                if self.fixed {
                    opcode::ReadFixed::new(file, buffer, length, slot as u16).offset(offset).build()
                } else {
                    opcode::Read::new(file, buffer, length).offset(offset).build()
                }
            }
            OpClass::Write | OpClass::BackgroundWrite => {
                let buffer = self.buffers.stamped(slot as usize, length as usize);
                shared.prepare(op, buffer);
                let (buffer, flags) = (buffer.as_ptr(), self.write_flags);
                if self.fixed {
                    let write = opcode::WriteFixed::new(file, buffer, length, slot as u16);
                    write.offset(offset).rw_flags(flags).build()
                } else {
                    opcode::Write::new(file, buffer, length).offset(offset).rw_flags(flags).build()
                }
            }
            // Block workloads have no other classes.
            _ => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }

    /// Submits, and waits for a batch of completions, or, when the next operation is due after `pause`,
    /// until shortly before then: sleeping is not exact enough to pace by.
    fn wait(&mut self, ring: &mut Sides<'_>, pause: Option<Nanos>) -> Result<(), String> {
        ring.queue.sync();
        loop {
            let waited = match pause {
                None => ring.submitter.submit_and_wait(self.batch.min(self.in_flight) as usize),
                Some(pause) if pause > SPIN => {
                    let time = std::time::Duration::from(pause - SPIN);
                    let time = types::Timespec::from(time);
                    let arguments = types::SubmitArgs::new().timespec(&time);
                    ring.submitter.submit_with_args(1, &arguments)
                }
                Some(_) => submit_and_look(ring),
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

    /// Records every completion that is there, as known complete at `now`.
    fn reap(
        &mut self,
        ends: &mut CompletionQueue<'_>,
        shared: &BlockShared<'_>,
        now: Nanos,
        recorder: &mut Recorder,
    ) {
        ends.sync();
        for entry in &mut *ends {
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
            recorder.record(Sample::of(&issue, (issued, now), (outcome, issue.op.length)));
            shared.conclude(issue.op, outcome, self.buffers.get(slot));
            self.client.completed(OpId(slot as u32), outcome, now);
        }
        // Their places are the kernel's again.
        ends.sync();
    }
}

/// Submits and lets the kernel post what has completed, without waiting.
fn submit_and_look(ring: &mut Sides<'_>) -> std::io::Result<usize> {
    ring.queue.sync();
    let count = u32::try_from(ring.queue.len()).unwrap_or(u32::MAX);
    // SAFETY: every entry in the queue was pushed under the promises of `push`.
    unsafe { ring.submitter.enter::<libc::sigset_t>(count, 0, IORING_ENTER_GETEVENTS, None) }
}
