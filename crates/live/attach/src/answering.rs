//! What requests of the kernel come to: an answer at once, or something that the model times.
//!
//! Invariant: every request that expects an answer gets one.

use device::{Device, Operation};
use rustix::io::Errno;

use crate::store::Store;
use crate::timed::{ServedDisk, UnderWay};
use crate::wire::{Attributes, FILE, FuseAnswer, FuseOperation, FuseRequest, NAME, ROOT};

/// What is to be done about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing, not even an answer.
    Silent,
    /// To answer: with an error, or with what was put into the answer.
    Now(Option<i32>),
    /// To do what is below at the model's time, then to answer.
    Timed(Operation, u64, u32),
}

/// Decides about a request to a disk.
pub(crate) fn decide(
    store: &Store,
    owner: (u32, u32),
    request: &FuseRequest<'_>,
    answer: &mut FuseAnswer,
) -> Decision {
    let size = store.size().get();
    let of = |node| Attributes { node, size, owner };
    let answer = answer.clear();
    let mut error = None;
    match request.asked {
        FuseOperation::Silent => return Decision::Silent,
        FuseOperation::Read { offset, length } => {
            let length = u64::from(length).min(size.saturating_sub(offset)) as u32;
            return timed(Operation::Read, (offset, length));
        }
        // It would be with the model for as long as a way to beyond its end takes.
        FuseOperation::Write { offset, data }
            if offset.checked_add(data.len() as u64).is_none_or(|end| end > size) =>
        {
            error = Some(Errno::NOSPC);
        }
        FuseOperation::Write { offset, data } => {
            let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
            answer.written(length);
            return timed(Operation::Write, (offset, length));
        }
        FuseOperation::Flush => return Decision::Timed(Operation::Flush, 0, 0),
        FuseOperation::Discard { offset, length } => {
            return timed(Operation::Discard, (offset, part_of(store, offset, length)));
        }
        // What was agreed on at the beginning stands.
        FuseOperation::Init { .. } => error = Some(Errno::IO),
        FuseOperation::Lookup { name, .. } if request.node == ROOT && name == NAME.as_bytes() => {
            answer.entry(of(FILE));
        }
        FuseOperation::Lookup { .. } => error = Some(Errno::NOENT),
        FuseOperation::SetAttributes { size: Some(other), .. } if other != size => {
            error = Some(Errno::PERM);
        }
        FuseOperation::SetAttributes { owner: true, .. } | FuseOperation::Forbidden => {
            error = Some(Errno::PERM);
        }
        FuseOperation::Allocate { end } if end > size => error = Some(Errno::NOSPC),
        FuseOperation::Allocate { .. } => {}
        FuseOperation::Attributes | FuseOperation::SetAttributes { .. } => {
            answer.attributes(of(request.node));
        }
        FuseOperation::Open { direct } => answer.opened(direct),
        FuseOperation::OpenDirectory => answer.opened(false),
        FuseOperation::ReadDirectory { from: 0 } => answer.directory(),
        FuseOperation::Statistics => answer.statistics(size),
        FuseOperation::ReadDirectory { .. } | FuseOperation::Nothing => {}
        FuseOperation::Malformed => error = Some(Errno::IO),
        FuseOperation::Unknown => error = Some(Errno::NOSYS),
    }
    Decision::Now(error.map(Errno::raw_os_error))
}

/// How much of a range the model gets: there are no longer discards than this.
fn part_of(store: &Store, offset: u64, length: u64) -> u32 {
    length.min(store.size().get().saturating_sub(offset)).min(1 << 30) as u32
}

/// Hands a request to the model if requests are timed by now, and does what it changes meanwhile. Whether it
/// was handed over; else it is to be answered at once.
pub(crate) fn hand_over<D: Device>(
    disk: &ServedDisk<D>,
    slot: UnderWay,
    asked: &FuseOperation<'_>,
    failed: &mut FailedChanges,
) -> bool {
    let timed = disk.is_timed();
    if timed {
        disk.model().submit(slot);
    }
    if let Some(error) = disk.medium.comes(slot.key(), &slot.request(0), asked) {
        failed.note(slot.token, error);
    }
    timed
}

/// Requests that will end with an error, while the model times them: next to never any.
#[derive(Debug, Default)]
pub(crate) struct FailedChanges(Vec<(u64, i32)>);

impl FailedChanges {
    /// The one with that token failed.
    fn note(&mut self, token: u64, error: i32) {
        self.0.push((token, error));
    }

    /// The error of the one with that token, which is answered now.
    #[inline]
    pub fn take(&mut self, token: u64) -> Option<i32> {
        let place = self.0.iter().position(|(failed, _)| *failed == token)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// One without bytes asks nothing of the model.
fn timed(operation: Operation, (offset, length): (u64, u32)) -> Decision {
    if length == 0 { Decision::Now(None) } else { Decision::Timed(operation, offset, length) }
}
