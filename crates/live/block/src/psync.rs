//! Threads with pread and pwrite, one for each operation in flight.
//!
//! Each thread is a client of its own at queue depth 1 with its own recorder; recordings are merged
//! afterwards. Invariant: all threads share one time origin. What it is not: io_uring's equal in cost;
//! the result says which path ran.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use observe::Control;
use stats::{Recorder, Recording, Sample};
use units::Nanos;
use workload::{
    BlockClient, BlockOp, BlockPlan, ClientIndex, Issue, OpClass, Outcome, Step, Workload,
};

use crate::buffers::Buffers;
use crate::{Clock, Spec};

/// Runs `spec` with as many threads as its queue depth.
pub(crate) fn run_psync(
    target: &File,
    spec: &Spec,
    control: &Control<'_>,
    clock: Clock,
) -> Recording {
    let of = spec.plan.queue_depth * spec.threads;
    let plan = BlockPlan { queue_depth: 1, ..spec.plan };
    let failed = AtomicBool::new(false);
    let failed = &failed;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..of)
            .map(|index| {
                let client = BlockClient::new(plan, spec.seed, ClientIndex { index, of });
                scope.spawn(move || {
                    run_thread(target, spec, (index, client), control, (clock, failed))
                })
            })
            .collect();
        let mut merged = Recording::default();
        for thread in threads {
            if let Ok(recording) = thread.join() {
                merged.merge(&recording);
            }
        }
        merged
    })
}

fn run_thread(
    target: &File,
    spec: &Spec,
    (index, mut client): (u32, BlockClient),
    control: &Control<'_>,
    (clock, failed): (Clock, &AtomicBool),
) -> Recording {
    let size = usize::try_from(spec.plan.block_size.get()).unwrap_or(0);
    let mut buffers = Buffers::new(1, size, spec.seed.derive("thread", u64::from(index)));
    let mut recorder = spec.recorder();
    let mut now = clock.now();
    'trial: loop {
        while let Some(summary) = recorder.poll(now) {
            control.tell(index, summary);
            if control.stopping() {
                break 'trial;
            }
        }
        if failed.load(Ordering::Relaxed) {
            break;
        }
        let issue = match client.next(now) {
            Step::Issue(issue) => issue,
            Step::WaitUntil(until) => {
                std::thread::sleep(until.since(now).into());
                now = clock.now();
                continue;
            }
            Step::WaitCompletion | Step::Finished => break,
        };
        let issued = now;
        let outcome = perform(target, issue.op, &mut buffers);
        now = clock.now();
        while let Some(summary) = recorder.poll(now) {
            control.tell(index, summary);
            if control.stopping() {
                break 'trial;
            }
        }
        record(&mut recorder, issue, (issued, now), outcome);
        client.completed(issue.id, outcome, now);
        if outcome != Outcome::Done && spec.stop_on_error {
            failed.store(true, Ordering::Relaxed);
        }
    }
    let mut recording = recorder.finish(now);
    recording.missed_arrivals = client.missed();
    recording
}

fn perform(target: &File, op: BlockOp, buffers: &mut Buffers) -> Outcome {
    let result = match op.class {
        OpClass::Read => target.read_at(buffers.get(0), op.offset),
        OpClass::Write => target.write_at(buffers.stamped(0), op.offset),
    };
    match result {
        Ok(bytes) if bytes == op.length as usize => Outcome::Done,
        // A short transfer inside the span: the target lost its end.
        Ok(_) => Outcome::Failed(libc::EIO),
        Err(error) => Outcome::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

#[inline]
pub(crate) fn record(
    recorder: &mut Recorder,
    issue: Issue<BlockOp>,
    (issued, completed): (Nanos, Nanos),
    outcome: Outcome,
) {
    recorder.record(Sample {
        class: issue.op.class,
        intended: issue.intended,
        issued,
        completed,
        bytes: issue.op.length,
        outcome,
        position: issue.op.offset,
    });
}
