//! A thread and the connections that it serves.
//!
//! A thread that sleeps for each result pays for the sleep and the wake-up; one that serves several
//! connections finds the next result there already. So a thread sends on every connection that has something
//! due and takes results as they come. Invariants: one statement in flight a connection; response time ends
//! when the thread has the whole result, so what a result waits for its thread is in it; one recorder a
//! thread.
//! What it is not: a choice of what is sent; each connection has a client of its own.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use observe::Clock;
use rustix::event::epoll;
use rustix::io::Errno;
use stats::{Recorded, Recorder, Recording, SqlParts};
use units::Nanos;
use workload::{Client, Issue, Outcome, SqlOp, Step, Workload};

use crate::engine::{Engine, Session, SqlError};
use crate::shared::{FAILURES_MAX, SqlShared};

/// One connection and what it is about.
struct Link<S, W> {
    session: S,
    client: W,
    parts: SqlParts,
    /// What is in flight, and when it was sent.
    sent: Option<(Issue<SqlOp>, Nanos)>,
    /// When it has something to send again, where nothing is in flight.
    due: Option<Nanos>,
}

/// A thread's connections.
pub(crate) struct ClientThread<'a, S, W> {
    shared: &'a SqlShared<'a>,
    /// Number of the thread, from 0.
    number: u32,
    links: Vec<Link<S, W>>,
    clock: Clock,
    recorder: Recorder,
    trouble: Trouble,
    stopped: bool,
}

/// What a thread gave.
pub(crate) struct ClientThreadEnd<W> {
    pub recording: Recording,
    pub failure: Option<String>,
    pub clients: Vec<W>,
    /// When it ended.
    pub at: Nanos,
}

/// What went wrong.
#[derive(Default)]
struct Trouble {
    /// The first failure's words.
    first: Option<String>,
    count: u32,
}

/// Connects the clients, waits with the others, and runs them to their end.
pub(crate) fn run<E: Engine, W: Workload<Op = SqlOp>>(
    engine: &E,
    shared: &SqlShared<'_>,
    (number, clients): (u32, Vec<Client<W>>),
) -> Result<ClientThreadEnd<W>, SqlError> {
    let sessions: Result<Vec<_>, SqlError> = clients.iter().map(|_| engine.session(true)).collect();
    if sessions.is_err() {
        shared.failed.store(true, Ordering::Relaxed);
    }
    // Every thread passes both barriers, even one that cannot go on, so that none waits for ever.
    shared.start.wait();
    shared.start.wait();
    let clock = *shared.clock.get_or_init(Clock::start);
    let spec = shared.spec;
    // Clients of one trial are recorded alike.
    let recorder = Recorder::of(&clients[0], spec.timeline);
    let link = |(client, session): (Client<W>, _)| Link {
        session,
        client: client.workload,
        parts: SqlParts::default(),
        sent: None,
        due: Some(Nanos::ZERO),
    };
    let links: Vec<_> = clients.into_iter().zip(sessions?).map(link).collect();
    let trouble = Trouble::default();
    let mut thread =
        ClientThread { shared, number, links, clock, recorder, trouble, stopped: false };
    let ended = if thread.links.len() == 1 { thread.run_one() } else { thread.run_many() };
    if let Err(error) = ended {
        thread.trouble.first.get_or_insert_with(|| format!("waiting for results: {error}"));
        shared.failed.store(true, Ordering::Relaxed);
    }
    Ok(thread.end())
}

impl<S: Session, W: Workload<Op = SqlOp>> ClientThread<'_, S, W> {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn over(&self) -> bool {
        self.stopped || self.shared.failed.load(Ordering::Relaxed)
    }

    /// Sends on one connection until something is in flight, or nothing is due; what is due is noted.
    fn feed(&mut self, number: usize, mut now: Nanos) {
        while !self.over() {
            let link = &mut self.links[number];
            let issue = match link.client.next(now) {
                Step::Issue(issue) => issue,
                Step::WaitUntil(due) => {
                    link.due = Some(due);
                    return;
                }
                Step::WaitCompletion | Step::Finished => {
                    link.due = None;
                    return;
                }
            };
            (link.sent, link.due) = (Some((issue, now)), None);
            match link.session.send(&issue.op) {
                Ok(()) => return,
                Err(error) => {
                    now = self.clock.now();
                    self.completed(number, now, Err(error));
                }
            }
        }
    }

    /// Records what came of the statement in flight, and tells its client.
    fn completed(&mut self, number: usize, now: Nanos, result: Result<(), SqlError>) {
        self.poll(now);
        let link = &mut self.links[number];
        let Some((issue, issued)) = link.sent.take() else { return };
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(error) => self.trouble.outcome(self.shared, &mut link.session, &error),
        };
        let times = (issued, now);
        SqlOp::record(&mut link.parts, &mut self.recorder, &issue, times, (outcome, 0));
        link.client.completed(issue.id, outcome, now);
    }

    /// Ends the intervals that are over.
    fn poll(&mut self, now: Nanos) {
        while let Some(summary) = self.recorder.poll(now) {
            self.shared.control.tell(self.number, summary);
            self.shared.control.keep(&mut self.recorder, self.number, now);
            self.stopped |= self.shared.control.stopping();
        }
    }

    /// One connection: its results are waited for.
    fn run_one(&mut self) -> Result<(), Errno> {
        let mut now = self.now();
        loop {
            self.feed(0, now);
            if self.over() {
                return Ok(());
            }
            if self.links[0].sent.is_some() {
                let result = self.links[0].session.receive(true);
                now = self.now();
                self.completed(0, now, result.map(|_| ()));
                continue;
            }
            let Some(due) = self.links[0].due else { return Ok(()) };
            let interval = self.shared.spec.timeline.interval;
            observe::rest(due.since(now), interval);
            now = self.now();
            self.poll(now);
        }
    }

    /// Several connections: results are taken as they come.
    fn run_many(&mut self) -> Result<(), Errno> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, link) in self.links.iter().enumerate() {
            let descriptor: BorrowedFd<'_> = link.session.descriptor().ok_or(Errno::BADF)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, descriptor, data, epoll::EventFlags::IN)?;
        }
        let mut events = Vec::with_capacity(self.links.len());
        let mut now = self.now();
        loop {
            for number in 0..self.links.len() {
                if self.links[number].due.is_some_and(|due| due <= now) {
                    self.feed(number, now);
                }
            }
            if self.over() || self.idle() {
                return Ok(());
            }
            let next = self.links.iter().filter_map(|link| link.due).min();
            let interval = self.shared.spec.timeline.interval;
            let wait = next.map_or(interval, |due| due.since(now).min(interval));
            let wait = rustix::event::Timespec {
                tv_sec: (wait.get() / 1_000_000_000) as i64,
                tv_nsec: (wait.get() % 1_000_000_000) as i64,
            };
            events.clear();
            match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            now = self.now();
            self.poll(now);
            for event in &events {
                let number = event.data.u64() as usize;
                if self.links[number].sent.is_none() {
                    continue;
                }
                let result = match self.links[number].session.receive(false) {
                    Ok(false) => continue,
                    Ok(true) => Ok(()),
                    Err(error) => Err(error),
                };
                now = self.now();
                self.completed(number, now, result);
                self.feed(number, now);
            }
        }
    }

    /// Nothing is in flight and nothing will be.
    fn idle(&self) -> bool {
        self.links.iter().all(|link| link.sent.is_none() && link.due.is_none())
    }

    fn end(self) -> ClientThreadEnd<W> {
        let now = self.now();
        let all_done = !self.over() && now < self.shared.spec.timeline.end();
        let mut recorder = self.recorder;
        self.shared.control.leave(&mut recorder, self.number, now);
        let recording = if all_done { recorder.finish_early(now) } else { recorder.finish(now) };
        let clients = self.links.into_iter().map(|link| link.client).collect();
        ClientThreadEnd { recording, failure: self.trouble.first, clients, at: now }
    }
}

impl Trouble {
    /// What a statement that failed means: the transaction begins again, or the trial ends.
    fn outcome<S: Session>(
        &mut self,
        shared: &SqlShared<'_>,
        session: &mut S,
        error: &SqlError,
    ) -> Outcome {
        let mut over = false;
        if error.gave_up() {
            shared.given_up.fetch_add(1, Ordering::Relaxed);
        } else {
            self.count += 1;
            self.first.get_or_insert_with(|| error.to_string());
            let lost = matches!(error, SqlError::Lost(_));
            over = shared.spec.stop_on_error || lost || self.count >= FAILURES_MAX;
        }
        if !over && let Err(error) = session.roll_back() {
            self.first.get_or_insert_with(|| error.to_string());
            over = true;
        }
        if over {
            shared.failed.store(true, Ordering::Relaxed);
        }
        Outcome::Failed(error.code())
    }
}
