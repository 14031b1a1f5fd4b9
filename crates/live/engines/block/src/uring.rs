//! An io_uring session: registered files and buffers, batched submissions and completions.
//!
//! The ring is single-issuer with deferred task work if available (Linux 6.1 and later), otherwise plain.
//! Submitting and collecting allocate nothing.

use engine::{Completion, Ended, EngineError, Session, Submit, Wait};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, opcode, squeue, types};
use units::{Nanos, Seed};
use workload::{BlockGroup, BlockOp, Issue, OpClass, OpId};

use crate::buffers::Buffers;
use crate::checked::Checked;

/// io_uring_enter(2): process completions, waiting for the requested number (none).
const IORING_ENTER_GETEVENTS: u32 = 1;
/// How long before an operation is due the thread stops sleeping: sleeps overshoot by up to 0.1 ms.
const SPIN: Nanos = Nanos::from_micros(120);

/// Checks that this process can use io_uring.
///
/// # Errors
/// The kernel's message.
pub fn available() -> Result<(), String> {
    IoUring::new(2).map(|_| ()).map_err(|error| error.to_string())
}

/// A ring and the buffers that it refers to. Fields drop in order, the ring first.
pub(crate) struct Ring {
    ring: IoUring,
    buffers: Buffers,
    /// Ring features in use, for the result.
    pub features: String,
    fixed: bool,
    /// Operations in flight.
    in_flight: u32,
}

impl Ring {
    /// A ring for one client of `group`.
    pub fn new(data: Checked<'_>, group: &BlockGroup, seed: Seed) -> std::io::Result<Self> {
        let depth = group.plan.queue_depth;
        let (ring, mut features) = new_ring(depth)?;
        let size = group.plan.sizes.largest() as usize;
        let mut buffers = Buffers::new(depth as usize, size, group.random_payload, seed);
        let vectors: Vec<libc::iovec> = (0..depth as usize)
            .map(|index| {
                let buffer = buffers.get(index);
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }
            })
            .collect();
        // SAFETY: the buffers live in `buffers`, which neither moves its storage nor shrinks, and which is
        // dropped after the ring.
        let fixed = unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
        features.push_str(if fixed { ", registered buffers" } else { ", plain buffers" });
        ring.submitter().register_files(&data.target.descriptors())?;
        Ok(Self { ring, buffers, features, fixed, in_flight: 0 })
    }

    /// The session on it.
    pub fn session<'a>(&'a mut self, data: Checked<'a>, group: &BlockGroup) -> Uring<'a> {
        let depth = group.plan.queue_depth as usize;
        let (mut submitter, queue, ends) = self.ring.split();
        // Only saves a look-up at each system call, for as long as this submitter is used; older kernels
        // (before 5.18) do without.
        let _ = submitter.register_ring_fd();
        Uring {
            sides: Sides { submitter, queue, ends },
            data,
            buffers: &mut self.buffers,
            lengths: vec![0; depth],
            fixed: self.fixed,
            batch: group.batch.max(1),
            write_flags: if group.plan.dsync { libc::RWF_DSYNC } else { 0 },
            in_flight: &mut self.in_flight,
        }
    }
}

impl Drop for Ring {
    /// The kernel tears a ring down after it was closed, asynchronously; the target must not stay claimed
    /// until then, or the next exclusive open fails.
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The ring failed: the kernel may still write into the buffers after it is closed, so they are
            // never freed.
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
        .setup_no_sqarray()
        .build(entries);
    match best {
        Ok(ring) => Ok((ring, "deferred task work".to_owned())),
        Err(_) => IoUring::new(entries).map(|ring| (ring, "plain ring".to_owned())),
    }
}

/// Both queues of a ring.
struct Sides<'a> {
    submitter: Submitter<'a>,
    queue: SubmissionQueue<'a>,
    ends: CompletionQueue<'a>,
}

/// One client's operations on a ring; an operation's id is the number of its slot and buffer.
pub(crate) struct Uring<'a> {
    sides: Sides<'a>,
    data: Checked<'a>,
    buffers: &'a mut Buffers,
    /// `[slot]`: bytes that its operation is to move.
    lengths: Vec<u32>,
    fixed: bool,
    /// Completions to wait for at once.
    batch: u32,
    /// `RWF_*` flags of every write.
    write_flags: i32,
    in_flight: &'a mut u32,
}

impl Session for Uring<'_> {
    type Op = BlockOp;

    fn capacity(&self) -> usize {
        self.lengths.len()
    }

    #[inline]
    fn submit(&mut self, issue: &Issue<BlockOp>) -> Submit {
        let slot = issue.id.0;
        let entry = self.entry(issue.op, slot).user_data(u64::from(slot));
        // SAFETY: buffer and file outlive the operation: both are held until the ring is gone, and a slot is
        // not reused before its completion was taken.
        let pushed = unsafe { self.sides.queue.push(&entry) };
        if pushed.is_err() {
            return Submit::Full;
        }
        self.lengths[slot as usize] = issue.op.length;
        *self.in_flight += 1;
        Submit::Queued
    }

    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> Result<(), EngineError> {
        self.wait(wait.due_in).map_err(|error| EngineError::failed("io_uring", "wait", error))?;
        self.sides.ends.sync();
        for entry in &mut self.sides.ends {
            let slot = entry.user_data() as u32;
            *self.in_flight -= 1;
            let ended = ended(self.lengths[slot as usize], entry.result());
            done.push(Completion { id: OpId(slot), ended });
        }
        // Returns the completion slots to the kernel; it has taken the submissions.
        self.sides.ends.sync();
        self.sides.queue.sync();
        Ok(())
    }

    #[inline]
    fn verify(&mut self, issue: &Issue<BlockOp>) -> Result<(), EngineError> {
        self.data.after(issue.op, self.buffers.get(issue.id.0 as usize))
    }

    fn spin(&self) -> Nanos {
        SPIN
    }
}

/// How an operation ended, by its completion's result.
#[inline]
fn ended(length: u32, result: i32) -> Ended {
    match result {
        bytes if bytes == length as i32 => Ok(length),
        // A short transfer inside the span: the target has shrunk.
        bytes if bytes >= 0 => Err(EngineError::Os(libc::EIO)),
        errno => Err(EngineError::Os(-errno)),
    }
}

impl Uring<'_> {
    #[inline]
    fn entry(&mut self, op: BlockOp, slot: u32) -> squeue::Entry {
        let (place, offset) = self.data.target.locate(op.offset);
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
                self.data.before(op, buffer);
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

    /// Submits and waits for a batch of completions; if the next operation is due after `pause`, waits only
    /// until shortly before that, because sleeping is not accurate enough for pacing.
    fn wait(&mut self, pause: Option<Nanos>) -> std::io::Result<()> {
        let ring = &mut self.sides;
        ring.queue.sync();
        loop {
            let waited = match pause {
                None => ring.submitter.submit_and_wait(self.batch.min(*self.in_flight) as usize),
                Some(pause) if pause > SPIN => {
                    let time = types::Timespec::from(std::time::Duration::from(pause - SPIN));
                    let arguments = types::SubmitArgs::new().timespec(&time);
                    ring.submitter.submit_with_args(1, &arguments)
                }
                Some(_) => submit_and_look(ring),
            };
            match waited {
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Timed out; completed operations are available.
                    Some(libc::ETIME) => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
    }
}

/// Submits and lets the kernel post completions, without waiting.
fn submit_and_look(ring: &mut Sides<'_>) -> std::io::Result<usize> {
    ring.queue.sync();
    let count = u32::try_from(ring.queue.len()).unwrap_or(u32::MAX);
    // SAFETY: every entry in the queue was pushed under the promises of `submit`.
    unsafe { ring.submitter.enter::<libc::sigset_t>(count, 0, IORING_ENTER_GETEVENTS, None) }
}
