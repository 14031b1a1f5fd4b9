//! Applies requests to a disk's data, with the faults of a plan.
//!
//! Invariants: without a plan nothing is locked or kept; after a power cut every request fails, and nothing
//! changes, until power is restored.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use device::{FaultError, FaultPlan, FaultyDrive, Judgement, Operation, Request};
use rustix::io::Errno;
use units::Nanos;

use crate::failures::{errno, lock};
use crate::store::Store;
use crate::unflushed::{Key, PowerCut, Unflushed};

const EIO: i32 = Errno::IO.raw_os_error();

/// A plan that is under way.
#[derive(Debug)]
struct Planned {
    drive: FaultyDrive,
    began: Instant,
    /// Device time passes this many times slower than the clock.
    scale: u32,
    unflushed: Unflushed,
    /// The effect of the power cut, after it happened.
    cut: Option<PowerCut>,
}

impl Planned {
    fn now(&self) -> Nanos {
        Nanos(Nanos::from(self.began.elapsed()).get() / u64::from(self.scale))
    }
}

/// The data of a disk.
#[derive(Debug)]
pub(crate) struct Medium {
    store: Store,
    is_planned: AtomicBool,
    planned: Mutex<Option<Planned>>,
}

impl Medium {
    pub fn new(store: Store) -> Self {
        Self { store, is_planned: AtomicBool::new(false), planned: Mutex::default() }
    }

    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Starts a fault plan; without one there are no faults, and power is restored.
    pub fn begin(&self, plan: Option<FaultPlan>, scale: u32) {
        let mut planned = lock(&self.planned);
        self.is_planned.store(plan.is_some(), Ordering::Release);
        *planned = plan.map(|plan| Planned {
            drive: FaultyDrive::new(plan),
            began: Instant::now(),
            scale,
            unflushed: Unflushed::default(),
            cut: None,
        });
    }

    /// The effect of the power cut, if it happened.
    pub fn power_cut(&self) -> Option<PowerCut> {
        lock(&self.planned).as_ref().and_then(|planned| planned.cut.clone())
    }

    /// Cuts the power now, if there is a plan.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn cut(&self) -> io::Result<()> {
        match lock(&self.planned).as_mut() {
            Some(planned) => self.cut_now(planned),
            None => Ok(()),
        }
    }

    fn cut_now(&self, planned: &mut Planned) -> io::Result<()> {
        if planned.cut.is_none() {
            let seed = planned.drive.plan().seed;
            // Whatever happens to the store, the power is off.
            planned.cut = Some(PowerCut::default());
            planned.cut = Some(planned.unflushed.cut(&self.store, seed)?);
        }
        Ok(())
    }

    /// Called when a request arrives: applies its change unless a fault prevents it. Returns the errno that
    /// it will end with.
    #[inline]
    pub fn comes(&self, key: Key, request: &Request, change: Change<'_>) -> Option<i32> {
        if !self.is_planned.load(Ordering::Acquire) {
            return change.made(&self.store).err();
        }
        self.comes_with_faults((key, request), change)
    }

    fn comes_with_faults(
        &self,
        (key, request): (Key, &Request),
        change: Change<'_>,
    ) -> Option<i32> {
        let mut planned = lock(&self.planned);
        let Some(planned) = planned.as_mut() else { return change.made(&self.store).err() };
        if planned.cut.is_some() {
            return Some(EIO);
        }
        let of = (key, request);
        match planned.drive.judge(planned.now(), request) {
            Judgement::PowerCut => {
                // A write in flight at the cut may be present, in part, or absent.
                let _ = self.done(of, change, &mut planned.unflushed);
                let _ = self.cut_now(planned);
                Some(EIO)
            }
            Judgement::Fails(FaultError::Io) => Some(EIO),
            Judgement::Fails(FaultError::ReadOnly) => Some(Errno::ROFS.raw_os_error()),
            Judgement::FailsBeyond(bytes) if self.store.used().is_ok_and(|used| used >= bytes) => {
                Some(Errno::NOSPC.raw_os_error())
            }
            Judgement::Lies => None,
            Judgement::Rots(draw) => {
                let done = self.done(of, change, &mut planned.unflushed);
                done.and_then(|()| {
                    self.rot((request.offset, request.length), draw).map_err(|e| errno(&e))
                })
                .err()
            }
            Judgement::Right | Judgement::FailsBeyond(_) => {
                self.done(of, change, &mut planned.unflushed).err()
            }
        }
    }

    /// Applies a change and logs it.
    fn done(
        &self,
        (key, request): (Key, &Request),
        change: Change<'_>,
        unflushed: &mut Unflushed,
    ) -> Result<(), i32> {
        match request.operation {
            Operation::Read => return Ok(()),
            Operation::Flush => unflushed.flush_comes(key),
            Operation::Write | Operation::Discard | Operation::WriteZeroes => {
                let range = match change {
                    Change::Discard { offset, length } => (offset, length),
                    Change::Write { .. } | Change::None => {
                        (request.offset, u64::from(request.length))
                    }
                };
                unflushed.changes(key, &self.store, range).map_err(|error| errno(&error))?;
            }
        }
        change.made(&self.store)
    }

    /// Flips one bit in a range.
    fn rot(&self, (offset, length): (u64, u32), draw: u64) -> io::Result<()> {
        let at = offset + (draw >> 3) % u64::from(length.max(1));
        let mut byte = [0];
        self.store.read(at, &mut byte)?;
        byte[0] ^= 1 << (draw & 7);
        self.store.write(at, &byte)
    }

    /// Called when a request is answered: returns an errno if the power is off.
    #[inline]
    pub fn ends(&self, key: Key) -> Option<i32> {
        if !self.is_planned.load(Ordering::Acquire) {
            return None;
        }
        let mut planned = lock(&self.planned);
        let planned = planned.as_mut()?;
        if planned.cut.is_none() && planned.drive.is_cut(planned.now()) {
            let _ = self.cut_now(planned);
        }
        if planned.cut.is_some() {
            return Some(EIO);
        }
        let protected = planned.drive.plan().protects();
        planned.unflushed.acknowledge(key, protected);
        None
    }
}

/// A change of a request on the medium.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    /// No change.
    None,
    /// Writes these bytes.
    Write { offset: u64, data: &'a [u8] },
    /// Zeroes a range: discards, and writes of zeros.
    Discard { offset: u64, length: u64 },
}

impl Change<'_> {
    /// Applies the change.
    ///
    /// # Errors
    /// The errno for the answer.
    fn made(self, store: &Store) -> Result<(), i32> {
        let done = match self {
            Self::Write { offset, data } => store.write(offset, data),
            Self::Discard { offset, length } => store.discard(offset, length),
            Self::None => Ok(()),
        };
        done.map_err(|error| errno(&error))
    }
}
