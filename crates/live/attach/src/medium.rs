//! What requests do to the data of a disk, with the faults of a plan if it has one.
//!
//! Invariants: without a plan nothing is locked and nothing is kept; once the power has gone every request
//! ends with an error, and nothing is changed, until it is back.

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
    /// What the power cut did, once it came.
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

    /// From now on faults are as planned; without a plan there are none, and the power is back.
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

    /// What the power cut did, if there was one.
    pub fn power_cut(&self) -> Option<PowerCut> {
        lock(&self.planned).as_ref().and_then(|planned| planned.cut.clone())
    }

    /// The power goes now, if there is a plan.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn cut(&self) -> io::Result<()> {
        match lock(&self.planned).as_mut() {
            Some(planned) => self.cut_now(planned),
            None => Ok(()),
        }
    }

    fn cut_now(&self, planned: &mut Planned) -> io::Result<()> {
        if planned.cut.is_none() {
            let seed = planned.drive.plan().seed;
            // Whatever happens to the store, the power has gone.
            planned.cut = Some(PowerCut::default());
            planned.cut = Some(planned.unflushed.cut(&self.store, seed)?);
        }
        Ok(())
    }

    /// A request has come: what it changes is changed. The number of the error with which it will end.
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
                // What is under way when the power goes may be there, in part, or not at all.
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

    /// Does what was asked, noted in the log.
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

    /// Turns one bit of a range over.
    fn rot(&self, (offset, length): (u64, u32), draw: u64) -> io::Result<()> {
        let at = offset + (draw >> 3) % u64::from(length.max(1));
        let mut byte = [0];
        self.store.read(at, &mut byte)?;
        byte[0] ^= 1 << (draw & 7);
        self.store.write(at, &byte)
    }

    /// A request is answered now; the number of the error with which it ends for want of power.
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

/// What a request changes on the medium.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    /// Nothing.
    None,
    /// These bytes are there from now on.
    Write { offset: u64, data: &'a [u8] },
    /// A range is zeros from now on: of discards, and of writes of zeros.
    Discard { offset: u64, length: u64 },
}

impl Change<'_> {
    /// Makes it.
    ///
    /// # Errors
    /// The number of the error that the request is to be answered with.
    fn made(self, store: &Store) -> Result<(), i32> {
        let done = match self {
            Self::Write { offset, data } => store.write(offset, data),
            Self::Discard { offset, length } => store.discard(offset, length),
            Self::None => Ok(()),
        };
        done.map_err(|error| errno(&error))
    }
}
