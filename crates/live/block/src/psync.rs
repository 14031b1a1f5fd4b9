//! Threads with pread and pwrite, one for each operation in flight.
//!
//! Each thread is a client of its own at queue depth 1 with its own recorder; recordings are merged
//! afterwards. Invariant: all threads share one time origin. What it is not: io_uring's equal in cost;
//! the result says which path ran.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use stats::Sample;
use units::Nanos;
use workload::{
    BlockClient, BlockGroup, BlockOp, BlockPlan, ClientIndex, OpClass, Outcome, Step, Workload,
};

use crate::buffers::Buffers;
use crate::shared::{BlockShared, ClientEnd};

/// Threads that a group needs on this path.
pub(crate) fn threads_of(group: &BlockGroup) -> u32 {
    group.plan.queue_depth * group.clients
}

/// How long before an operation is due a thread stops sleeping: sleeps overshoot by up to 0.1 ms.
const SPIN: Nanos = Nanos::from_micros(60);

/// Runs one thread of `group`; `number` names it in progress.
pub(crate) fn run_psync(
    shared: &BlockShared<'_>,
    group: &BlockGroup,
    index: ClientIndex,
    number: u32,
) -> ClientEnd {
    let spec = shared.spec;
    let plan = BlockPlan { queue_depth: 1, ..group.plan.clone() };
    let size = plan.sizes.largest() as usize;
    // In phase with others there is no use in exactness, and every spinning thread takes CPU.
    let spin = if spec.spin { SPIN } else { Nanos::ZERO };
    let mut client = BlockClient::new(plan, spec.seed, index);
    let seed = spec.seed.derive("thread", u64::from(number));
    let mut buffers = Buffers::new(1, size, group.random_payload, seed);
    let mut recorder = spec.recorder(group);
    let mut now = shared.clock.now();
    let mut stopped = false;
    loop {
        stopped |= shared.roll(&mut recorder, (number, group.recorded), now);
        if stopped || shared.is_over() {
            break;
        }
        let issue = match client.next(now) {
            Step::Issue(issue) => issue,
            Step::WaitUntil(until) => {
                let pause = until.since(now);
                if pause > spin {
                    std::thread::sleep((pause - spin).into());
                }
                now = shared.clock.now();
                continue;
            }
            Step::WaitCompletion | Step::Finished => break,
        };
        shared.watch_lag(&issue, now);
        let (issued, op) = (now, issue.op);
        let outcome = perform(shared, op, &mut buffers);
        now = shared.clock.now();
        stopped |= shared.roll(&mut recorder, (number, group.recorded), now);
        if stopped {
            break;
        }
        recorder.record(Sample::of(&issue, (issued, now), (outcome, issue.op.length)));
        shared.conclude(op, outcome, buffers.get(0));
        client.completed(issue.id, outcome, now);
    }
    shared.finish(group, (number, client, recorder), (now, stopped))
}

fn perform(shared: &BlockShared<'_>, op: BlockOp, buffers: &mut Buffers) -> Outcome {
    let (file, offset) = shared.target.locate(op.offset);
    let file = shared.target.file(file);
    let length = op.length as usize;
    let result = match op.class {
        OpClass::Read | OpClass::BackgroundRead => {
            file.read_at(&mut buffers.get(0)[..length], offset)
        }
        OpClass::Write | OpClass::BackgroundWrite => {
            let buffer = buffers.stamped(0, length);
            shared.prepare(op, buffer);
            if op.dsync {
                write_durably(file, buffer, offset)
            } else {
                file.write_at(buffer, offset)
            }
        }
        // Block workloads have no other classes.
        _ => file.sync_data().map(|()| 0),
    };
    match result {
        Ok(bytes) if bytes == length => Outcome::Done,
        // A short transfer inside the span: the target lost its end.
        Ok(_) => Outcome::Failed(libc::EIO),
        Err(error) => Outcome::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// pwritev2(2) with `RWF_DSYNC`: on a device a write with forced unit access.
fn write_durably(file: &File, buffer: &[u8], offset: u64) -> std::io::Result<usize> {
    let vector = libc::iovec { iov_base: buffer.as_ptr() as *mut _, iov_len: buffer.len() };
    let at = libc::off_t::try_from(offset).map_err(std::io::Error::other)?;
    // SAFETY: the vector describes `buffer`, which lives through the call; the kernel only reads it.
    let written =
        unsafe { libc::pwritev2(file.as_raw_fd(), &raw const vector, 1, at, libc::RWF_DSYNC) };
    usize::try_from(written).map_err(|_| std::io::Error::last_os_error())
}
