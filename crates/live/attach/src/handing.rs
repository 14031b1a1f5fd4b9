//! Submits requests to the model, for all transports.

use crate::medium::Change;
use crate::timed::{ServedDisk, UnderWay};

/// Submits a request to the model if timing has started, and applies its change in any case, while the model
/// times it. Returns whether it was submitted; otherwise it must be answered at once.
pub(crate) fn hand_over(
    disk: &ServedDisk,
    slot: UnderWay,
    change: Change<'_>,
    failed: &mut FailedChanges,
) -> bool {
    let timed = disk.is_timed();
    if timed {
        disk.model().submit(slot);
    }
    if let Some(error) = disk.medium.comes(slot.key(), &slot.request(0), change) {
        failed.note(slot.token, error);
    }
    timed
}

/// Requests that will end with an error, while the model times them; nearly always empty.
#[derive(Debug, Default)]
pub(crate) struct FailedChanges(Vec<(u64, i32)>);

impl FailedChanges {
    /// Records the error of the request with this token.
    fn note(&mut self, token: u64, error: i32) {
        self.0.push((token, error));
    }

    /// Takes the error of the request with this token.
    #[inline]
    pub fn take(&mut self, token: u64) -> Option<i32> {
        let place = self.0.iter().position(|(failed, _)| *failed == token)?;
        Some(self.0.swap_remove(place).1)
    }
}
