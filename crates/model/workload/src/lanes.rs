//! Several clients of one thread as one workload: each has a lane, with one operation in flight.
//!
//! A thread that serves several connections is driven like one that serves one. Lanes are called in the order
//! in which they became ready.

use std::collections::VecDeque;

use units::Nanos;

use crate::{Client, Issue, OpClass, OpId, Operation, Outcome, Step, Workload};

/// An operation of one lane; its id is the lane's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneOp<Op> {
    /// Number of the lane, from 0.
    pub lane: u32,
    /// The operation of its client.
    pub op: Op,
}

impl<Op: Operation> Operation for LaneOp<Op> {
    fn class(&self) -> OpClass {
        self.op.class()
    }

    fn position(&self) -> u64 {
        self.op.position()
    }
}

/// State of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// In the queue of ready lanes.
    Ready,
    /// Waits until this instant.
    Until(Nanos),
    /// Its operation, by its client's ID.
    InFlight(OpId),
    /// Finished.
    Idle,
}

/// Clients, each with a lane.
#[derive(Debug)]
pub struct Lanes<W> {
    clients: Vec<W>,
    lanes: Vec<Lane>,
    ready: VecDeque<u32>,
    in_flight: u32,
    waiting: u32,
}

impl<W: Workload> Lanes<W> {
    /// The clients of a thread as one; all are recorded like the first.
    ///
    /// # Panics
    /// Without a client.
    #[must_use]
    pub fn of(clients: Vec<Client<W>>) -> Client<Self> {
        let first = clients.first().expect("a thread has a client");
        let (classes, open_loop, recorded) =
            (first.classes.clone(), first.open_loop, first.recorded);
        let clients: Vec<W> = clients.into_iter().map(|client| client.workload).collect();
        let count = clients.len();
        let workload = Self {
            clients,
            lanes: vec![Lane::Ready; count],
            ready: (0..count as u32).collect(),
            in_flight: 0,
            waiting: 0,
        };
        Client { workload, classes, open_loop, recorded }
    }

    /// Marks lanes whose wake-up time has come as ready; returns the earliest wake-up time of the others.
    fn wake(&mut self, now: Nanos) -> Option<Nanos> {
        let mut next: Option<Nanos> = None;
        if self.waiting == 0 {
            return next;
        }
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let Lane::Until(due) = *lane else { continue };
            if due <= now {
                *lane = Lane::Ready;
                self.waiting -= 1;
                self.ready.push_back(number as u32);
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        next
    }
}

impl<W: Workload> Workload for Lanes<W> {
    type Op = LaneOp<W::Op>;

    fn next(&mut self, now: Nanos) -> Step<Self::Op> {
        loop {
            while let Some(lane) = self.ready.pop_front() {
                let place = lane as usize;
                match self.clients[place].next(now) {
                    Step::Issue(Issue { id, op, intended }) => {
                        self.lanes[place] = Lane::InFlight(id);
                        self.in_flight += 1;
                        return Step::Issue(Issue {
                            id: OpId(lane),
                            op: LaneOp { lane, op },
                            intended,
                        });
                    }
                    Step::WaitUntil(due) => {
                        self.lanes[place] = Lane::Until(due);
                        self.waiting += 1;
                    }
                    Step::WaitCompletion | Step::Finished => self.lanes[place] = Lane::Idle,
                }
            }
            match self.wake(now) {
                _ if !self.ready.is_empty() => {}
                Some(due) => return Step::WaitUntil(due),
                None if self.in_flight > 0 => return Step::WaitCompletion,
                None => return Step::Finished,
            }
        }
    }

    fn missed(&mut self, until: Nanos) -> u64 {
        self.clients.iter_mut().map(|client| client.missed(until)).sum()
    }

    fn completed(&mut self, id: OpId, outcome: Outcome, now: Nanos) {
        let place = id.0 as usize;
        let Some(Lane::InFlight(own)) = self.lanes.get(place).copied() else { return };
        self.clients[place].completed(own, outcome, now);
        self.lanes[place] = Lane::Ready;
        self.in_flight -= 1;
        self.ready.push_back(id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KvAction, KvOp};

    /// Issues at fixed instants, one at a time.
    #[derive(Debug)]
    struct At(VecDeque<u64>, bool);

    impl Workload for At {
        type Op = KvOp;

        fn next(&mut self, now: Nanos) -> Step<KvOp> {
            let Some(due) = self.0.front().copied() else { return Step::Finished };
            if self.1 {
                return Step::WaitCompletion;
            }
            if due > now.get() {
                return Step::WaitUntil(Nanos(due));
            }
            self.0.pop_front();
            self.1 = true;
            let op =
                KvOp { class: OpClass::Read, action: KvAction::Get, record: due, generation: 0 };
            Step::Issue(Issue { id: OpId(7), op, intended: Nanos(due) })
        }

        fn completed(&mut self, id: OpId, _: Outcome, _: Nanos) {
            assert_eq!(id, OpId(7), "a client sees its own names");
            self.1 = false;
        }
    }

    fn lanes(of: &[&[u64]]) -> Lanes<At> {
        let client = |times: &&[u64]| Client {
            workload: At(times.iter().copied().collect(), false),
            classes: vec![OpClass::Read],
            open_loop: true,
            recorded: true,
        };
        Lanes::of(of.iter().map(client).collect()).workload
    }

    fn lane(step: Step<LaneOp<KvOp>>) -> u32 {
        let Step::Issue(issue) = step else { panic!("{step:?}") };
        assert_eq!(issue.id.0, issue.op.lane);
        issue.op.lane
    }

    /// Every lane must be used: a forgotten one leaves its connection idle.
    #[test]
    fn every_lane_is_asked_when_it_is_due_and_after_its_operation() {
        let mut lanes = lanes(&[&[0, 5], &[20], &[10, 10]]);
        assert_eq!(lane(lanes.next(Nanos(0))), 0);
        assert_eq!(lanes.next(Nanos(0)), Step::WaitUntil(Nanos(10)));
        assert_eq!(lane(lanes.next(Nanos(12))), 2);
        assert_eq!(lanes.next(Nanos(12)), Step::WaitUntil(Nanos(20)));
        lanes.completed(OpId(2), Outcome::Done, Nanos(13));
        lanes.completed(OpId(0), Outcome::Done, Nanos(13));
        assert_eq!(lane(lanes.next(Nanos(13))), 2, "in the order in which they became ready");
        assert_eq!(lane(lanes.next(Nanos(13))), 0);
        assert_eq!(lane(lanes.next(Nanos(30))), 1);
        assert_eq!(lanes.next(Nanos(30)), Step::WaitCompletion);
        for id in 0..3 {
            lanes.completed(OpId(id), Outcome::Done, Nanos(31));
        }
        assert_eq!(lanes.next(Nanos(31)), Step::Finished);
    }
}
