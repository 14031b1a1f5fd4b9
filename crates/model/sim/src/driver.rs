//! The virtual-time driver: any clients against a block device behind a submission path, with the workload
//! code and the recorder of measured trials.
//!
//! Invariants: time never goes back; at one time clients that asked to be called come first, in the order in
//! which they asked, then the device.

use device::{Device, Event, EventQueue, Slab};
use stats::{Recorded, Recorder, Recording, Timeline};
use units::Nanos;
use workload::{BlockOp, Client, Issue, Outcome, Step, Workload};

use crate::BlockPath;
use crate::block_path::{Done, Ticket};

#[derive(Debug, Clone, Copy)]
struct InFlight {
    client: u32,
    issue: Issue<BlockOp>,
    issued: Nanos,
}

/// Events between two checks for a stop: a few milliseconds.
pub const STEPS: u32 = 1 << 14;

struct Driver<'a, D, W> {
    target: &'a mut BlockPath<D>,
    clients: Vec<Client<W>>,
    now: Nanos,
    /// Clients that asked to be called again.
    wakes: EventQueue<Event>,
    /// `[client]`: when it will next be called, if planned.
    wake_at: Vec<Option<Nanos>>,
    slots: Slab<InFlight>,
    /// `[client]`: one for each thread, as on a real host; its time never goes back.
    recorders: Vec<Recorder>,
}

/// Runs the clients over an idle target until they are finished and nothing is in flight. A closed loop over
/// a target that takes no time never ends.
///
/// # Panics
/// If operations are in flight and no event is pending: the device lost one. A result
/// without them would be wrong.
#[must_use]
pub fn run<D: Device, W: Workload<Op = BlockOp>>(
    mut target: BlockPath<D>,
    clients: Vec<Client<W>>,
    timeline: Timeline,
) -> Recording {
    run_unless(&mut target, clients, timeline, &|| false).expect("invariant: nobody stops it")
}

/// Like [`run`], but calls `stop` every [`STEPS`] events; returns `None` if it returned true.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_unless<D: Device, W: Workload<Op = BlockOp>>(
    target: &mut BlockPath<D>,
    clients: Vec<Client<W>>,
    timeline: Timeline,
    stop: &dyn Fn() -> bool,
) -> Option<Recording> {
    let mut driver = Driver {
        target,
        now: Nanos::ZERO,
        wakes: EventQueue::default(),
        wake_at: vec![None; clients.len()],
        slots: Slab::default(),
        recorders: clients.iter().map(|client| Recorder::of(client, timeline)).collect(),
        clients,
    };
    let clients = 0..driver.clients.len() as u32;
    clients.clone().for_each(|client| driver.pump(client));
    if !driver.drain(stop) {
        return None;
    }
    let now = clients.fold(driver.now, |latest, client| latest.max(driver.target.free_at(client)));
    let mut recording = Recording::default();
    for (recorder, client) in driver.recorders.into_iter().zip(&mut driver.clients) {
        if client.recorded {
            let shares = recorder.due_shares(&client.classes);
            recording.merge(&recorder.finish(now));
            recording.missed_by(&shares, &mut client.workload, (&timeline, Nanos::MAX));
        }
    }
    Some(recording)
}

impl<D: Device, W: Workload<Op = BlockOp>> Driver<'_, D, W> {
    /// Runs until no client will issue anything again; background work of a device has no end. Returns
    /// whether it completed.
    fn drain(&mut self, stop: &dyn Fn() -> bool) -> bool {
        let mut steps = 0u32;
        while !self.wakes.is_empty() || self.slots.in_use() > 0 {
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(STEPS) && stop() {
                return false;
            }
            let wake = self.wakes.next_time().unwrap_or(Nanos::MAX);
            match self.target.next_event() {
                Some(at) if at < wake => {
                    self.now = at;
                    if let Some(done) = self.target.advance(at) {
                        self.ended(done);
                    }
                }
                _ => {
                    let Some((at, event)) = self.wakes.pop_due(wake) else {
                        let lost = self.slots.in_use();
                        panic!("{lost} operations never ended: the target is idle");
                    };
                    self.now = at;
                    let client = event.of();
                    // A call planned for a later time than another one is obsolete.
                    if self.wake_at[client as usize] == Some(at) {
                        self.wake_at[client as usize] = None;
                        self.pump(client);
                    }
                }
            }
        }
        true
    }

    #[inline]
    fn ended(&mut self, done: Done) {
        let Done { slot, at } = done;
        let InFlight { client, issue, issued } = self.slots.take(slot);
        let of = client as usize;
        let recorder = &mut self.recorders[of];
        while recorder.poll(at).is_some() {}
        let ended = (Outcome::Done, issue.op.length);
        BlockOp::record(&mut Default::default(), recorder, &issue, (issued, at), ended);
        self.clients[of].workload.completed(issue.id, Outcome::Done, at);
        self.pump(client);
    }

    /// Lets a client issue what it can at its thread's current time.
    #[inline]
    fn pump(&mut self, client: u32) {
        loop {
            let at = self.target.free_at(client).max(self.now);
            match self.clients[client as usize].workload.next(at) {
                Step::Issue(issue) => {
                    let slot = self.slots.put(InFlight { client, issue, issued: at });
                    self.target.submit(self.now, Ticket { client, slot }, issue.op);
                }
                Step::WaitUntil(until) => {
                    let until = until.max(at + Nanos(1));
                    let planned = &mut self.wake_at[client as usize];
                    if planned.is_none_or(|planned| until < planned) {
                        *planned = Some(until);
                        self.wakes.push(until, Event::new(0, client));
                    }
                    return;
                }
                Step::WaitCompletion | Step::Finished => return,
            }
        }
    }
}
