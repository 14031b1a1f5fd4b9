//! Decides on kernel requests: answered at once, or timed by the model.
//!
//! Invariant: every request that expects an answer gets one.

use device::Operation;
use rustix::io::Errno;

use super::wire::{Attributes, FILE, FuseAnswer, FuseOperation, FuseRequest, NAME, ROOT};
use crate::medium::Change;
use crate::store::Store;

/// Decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// No answer.
    Silent,
    /// Answer now: with an error, or with the prepared answer.
    Now(Option<i32>),
    /// Do the operation at the model's time, then answer.
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
        // A write beyond the end would take the model's time without an effect.
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
        // The negotiation at mount time stands.
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

/// The change that a request makes on the medium.
pub(crate) const fn change<'a>(asked: &FuseOperation<'a>) -> Change<'a> {
    match *asked {
        FuseOperation::Write { offset, data } => Change::Write { offset, data },
        FuseOperation::Discard { offset, length } => Change::Discard { offset, length },
        _ => Change::None,
    }
}

/// Bytes of a range within the disk, at most 1 GiB, that are submitted to the model.
fn part_of(store: &Store, offset: u64, length: u64) -> u32 {
    length.min(store.size().get().saturating_sub(offset)).min(1 << 30) as u32
}

/// An empty request is not timed.
fn timed(operation: Operation, (offset, length): (u64, u32)) -> Decision {
    if length == 0 { Decision::Now(None) } else { Decision::Timed(operation, offset, length) }
}
