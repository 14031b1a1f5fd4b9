//! The scheduler of a simulated host: which thread of a real program runs on which virtual core, and when.
//!
//! One thread really runs at a time. It charges the CPU time that it used, waits, wakes others and ends;
//! [`Scheduler::next`] then names the thread that is furthest behind and how far it may run. The rules are a
//! subset of those of Linux 6.6 and later: a woken thread goes to its previous core if that is idle, then to
//! any idle core, then to the core of the thread that woke it; each core picks the earliest virtual deadline
//! among the threads that are not ahead of their share (EEVDF; I. Stoica and H. Abdel-Wahab, 1995), and an
//! idle core steals.
//!
//! Invariants: the clock never goes back; a core runs one thread at a time, and no core is idle while a
//! thread waits for one; the time of a thread is the sum of its [`Times`].

mod costs;
mod queue;
mod times;

pub use costs::{SchedulerCosts, SplitTimes, WakeCost, WakeTimes, Waker};
use queue::{RunQueue, WokenBy};
pub use times::{Counts, Times, Wait, Wake};

use std::collections::{BTreeSet, HashMap, VecDeque};

use device::EventQueue;
use units::Nanos;

/// A thread of the simulation, in order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// Identifies what a thread waits for: a lock, a condition variable, a socket. A waker uses the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The thread runs until its own time is past `until`; [`Nanos::MAX`] if nothing else is pending.
    Run {
        /// The thread.
        task: TaskId,
        /// Time of the next event of any other thread or of the device.
        until: Nanos,
    },
    /// The device has an event at this time; advance it and [`complete`](Scheduler::complete) what is done.
    Device(Nanos),
    /// Deadlock: no thread and no timer can end any wait.
    Stuck,
    /// No thread is left.
    Finished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ready,
    Blocked(Wait),
    Ended,
}

#[derive(Debug)]
struct Task {
    state: State,
    /// Its own time: the end of its last stretch, or the start of its wait.
    at: Nanos,
    began: Nanos,
    core: usize,
    /// Virtual run time, deadline, and the lag when it went to sleep, ns.
    run_time: i64,
    deadline: i64,
    lag: i64,
    /// Changes whenever a wait ends, so that older timers and queue entries are recognized.
    wait: u64,
    /// Whether the last wait ended by its deadline.
    timed_out: bool,
    /// It has only let others run first since its last other call, and there were none on its core.
    spins: bool,
    /// The last wait, until it is asked for.
    woken: Option<Wake>,
    times: Times,
}

#[derive(Debug, Default)]
struct Core {
    running: Option<TaskId>,
    /// The last thread; switching back to it costs nothing.
    last: Option<TaskId>,
    /// When it became idle.
    free_at: Nanos,
    queue: RunQueue,
    /// Mean virtual run time when the last thread left.
    run_time: i64,
    /// A woken thread will preempt the running one at its next event.
    preempt: bool,
}

/// The threads and virtual cores of a host.
#[derive(Debug)]
pub struct Scheduler {
    costs: SchedulerCosts,
    now: Nanos,
    tasks: Vec<Task>,
    cores: Vec<Core>,
    idle: BTreeSet<usize>,
    /// Ready threads of all cores, by the time since when they have been ready.
    oldest: BTreeSet<(Nanos, TaskId)>,
    /// Running threads by their own time; an entry with another time than the thread's is stale.
    running: EventQueue<TaskId>,
    timers: EventQueue<(TaskId, u64)>,
    waiting: HashMap<Key, VecDeque<(TaskId, u64)>>,
    /// The thread that really runs.
    current: Option<TaskId>,
    next_balance: Nanos,
    waits: u64,
    alive: u32,
    counts: Counts,
}

impl Scheduler {
    /// A host of `cores` idle cores, at least one.
    #[must_use]
    pub fn new(cores: usize, costs: SchedulerCosts) -> Self {
        let cores = cores.max(1);
        Self {
            costs,
            now: Nanos::ZERO,
            tasks: Vec::new(),
            cores: (0..cores).map(|_| Core::default()).collect(),
            idle: (0..cores).collect(),
            oldest: BTreeSet::new(),
            running: EventQueue::default(),
            timers: EventQueue::default(),
            waiting: HashMap::new(),
            current: None,
            next_balance: costs.balance,
            waits: 0,
            alive: 0,
            counts: Counts::default(),
        }
    }

    /// Time of the latest event.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// A thread's own time.
    #[must_use]
    pub fn time_of(&self, task: TaskId) -> Nanos {
        self.task(task).at
    }

    /// A thread's time by kind, up to its last event.
    #[must_use]
    pub fn times(&self, task: TaskId) -> Times {
        self.task(task).times
    }

    /// Counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the last wait of a thread ended by its deadline.
    #[must_use]
    pub fn timed_out(&self, task: TaskId) -> bool {
        self.task(task).timed_out
    }

    /// The wait that ended before this stretch; later calls return `None` until another ends.
    pub fn take_wake(&mut self, task: TaskId) -> Option<Wake> {
        self.task_mut(task).woken.take()
    }

    /// Whether no thread has a core.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle.len() == self.cores.len()
    }

    /// Adds a thread that is ready now.
    pub fn enter(&mut self) -> TaskId {
        let id = self.reserve();
        self.start(id);
        id
    }

    /// Adds a thread that does not run before [`start`](Self::start).
    pub fn reserve(&mut self) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        let at = self.now;
        self.tasks.push(Task {
            state: State::Blocked(Wait::Sleep),
            at,
            began: at,
            core: 0,
            run_time: 0,
            deadline: 0,
            lag: 0,
            wait: 0,
            timed_out: false,
            spins: false,
            woken: None,
            times: Times::default(),
        });
        self.alive += 1;
        id
    }

    /// Makes a reserved thread ready, at its creator's time.
    pub fn start(&mut self, id: TaskId) {
        let at = self.current.map_or(self.now, |current| self.task(current).at).max(self.now);
        let task = self.task_mut(id);
        (task.at, task.began) = (at, at);
        self.place(id, at, WokenBy::Interrupt(Nanos::ZERO));
    }

    /// Drops a reserved thread that will not be started.
    pub fn cancel(&mut self, id: TaskId) {
        self.task_mut(id).state = State::Ended;
        self.alive -= 1;
    }

    /// Charges `cpu` of CPU time to the running thread.
    pub fn charge(&mut self, task: TaskId, cpu: Nanos) {
        let task = self.task_mut(task);
        debug_assert_eq!(task.state, State::Running);
        task.at += cpu;
        task.run_time += cpu.get() as i64;
        task.times.cpu += cpu;
    }

    /// The running thread waits for any of `keys`, or until `deadline`.
    pub fn block(&mut self, id: TaskId, keys: &[Key], deadline: Option<Nanos>, wait: Wait) {
        // The I/O path's own times include going to sleep.
        if !matches!(wait, Wait::Read | Wait::Write | Wait::Flush) {
            self.charge(id, self.costs.block);
        }
        self.counts.waits += 1;
        self.waits += 1;
        let entry = (id, self.waits);
        self.task_mut(id).wait = self.waits;
        for key in keys {
            let queue = self.waiting.entry(*key).or_default();
            // A wait for several keys leaves stale entries at those that did not end it.
            while queue.back().is_some_and(|old| is_over(&self.tasks, *old)) {
                queue.pop_back();
            }
            queue.push_back(entry);
        }
        if let Some(deadline) = deadline {
            self.timers.push(deadline.max(self.task(id).at), entry);
        }
        let (slice, mean) = (self.costs.slice.get() as i64, self.mean_of(self.task(id).core));
        let task = self.task_mut(id);
        task.lag = (mean - task.run_time).clamp(-slice, slice);
        task.state = State::Blocked(wait);
        self.leave(id, mean);
    }

    /// The running thread ends.
    pub fn exit(&mut self, id: TaskId) {
        let task = self.task(id);
        debug_assert_eq!(task.times.total(), task.at.since(task.began));
        let mean = self.mean_of(self.task(id).core);
        self.task_mut(id).state = State::Ended;
        self.alive -= 1;
        self.leave(id, mean);
    }

    /// Ends a thread whatever it does, because its process has ended.
    pub fn remove(&mut self, id: TaskId) {
        match self.task(id).state {
            State::Ended => return,
            State::Running => return self.exit(id),
            State::Ready => self.dequeue(id),
            // Its timers and keys are stale from now on.
            State::Blocked(_) => self.task_mut(id).wait = 0,
        }
        self.task_mut(id).state = State::Ended;
        self.alive -= 1;
    }

    /// Wakes up to `most` waiters of `key` in arrival order; returns their number. `waker` is the running
    /// thread, which pays the CPU time.
    pub fn wake(&mut self, waker: TaskId, key: Key, most: usize, kind: Waker) -> usize {
        let mut woken = 0;
        while woken < most
            && let Some(task) = self.first_of(key)
        {
            let at = self.task(waker).at;
            let background = !self.task(waker).times.serves();
            let waiter = self.task_mut(task);
            waiter.timed_out = false;
            if background && waiter.state == State::Blocked(Wait::Lock) && waiter.times.serves() {
                waiter.state = State::Blocked(Wait::Background);
            }
            self.place(task, at, WokenBy::Thread(waker, kind));
            woken += 1;
        }
        woken
    }

    /// The first waiter of `key`; removes the key with the last one.
    fn first_of(&mut self, key: Key) -> Option<TaskId> {
        let queue = self.waiting.get_mut(&key)?;
        let mut found = None;
        while let Some(entry) = queue.pop_front() {
            if !is_over(&self.tasks, entry) {
                found = Some(entry.0);
                break;
            }
        }
        if queue.is_empty() {
            self.waiting.remove(&key);
        }
        found
    }

    /// A blocked thread waits for something else from `at` on.
    pub fn wait_for(&mut self, id: TaskId, at: Nanos, wait: Wait) {
        let task = self.task_mut(id);
        if let State::Blocked(before) = task.state {
            task.times.waits[before as usize] += at.since(task.at);
            task.at = task.at.max(at);
            task.state = State::Blocked(wait);
        }
    }

    /// The device has completed at `at` what `task` waits for; returns whether it was still waiting.
    pub fn complete(&mut self, task: TaskId, at: Nanos) -> bool {
        self.complete_late(at, task, Nanos::ZERO)
    }

    /// The same; waking an idle core takes `late` longer than it costs.
    pub fn complete_late(&mut self, at: Nanos, task: TaskId, late: Nanos) -> bool {
        let waits = matches!(self.task(task).state, State::Blocked(_));
        if waits {
            self.task_mut(task).timed_out = false;
            self.now = self.now.max(at);
            self.place(task, at, WokenBy::Interrupt(late));
        }
        waits
    }

    /// What happens next, given the time of the device's next event.
    pub fn next(&mut self, device: Option<Nanos>) -> Next {
        if let Some(current) = self.current.take() {
            self.settle(current);
        }
        loop {
            let running = self.first_running();
            let timer = self.first_timer();
            let event = [timer, device].into_iter().flatten().min();
            match (running, event) {
                (Some((task, at)), event) if event.is_none_or(|event| event > at) => {
                    self.running.pop_due(at);
                    self.now = self.now.max(at);
                    if self.now >= self.next_balance {
                        self.balance();
                    }
                    if self.replaced(task) {
                        continue;
                    }
                    self.current = Some(task);
                    return Next::Run { task, until: self.horizon(task, event) };
                }
                (_, Some(at)) if device == Some(at) => return Next::Device(at),
                (_, Some(at)) => self.expire(at),
                (_, None) if self.alive == 0 => return Next::Finished,
                (_, None) => return Next::Stuck,
            }
        }
    }

    /// The first timer fires.
    fn expire(&mut self, at: Nanos) {
        if let Some((at, (task, _))) = self.timers.pop_due(at) {
            self.now = self.now.max(at);
            self.task_mut(task).timed_out = true;
            self.place(task, at, WokenBy::Interrupt(Nanos::ZERO));
        }
    }

    /// How far `task` may run: to the next event of another, or to the end of its slice if others wait.
    fn horizon(&mut self, task: TaskId, event: Option<Nanos>) -> Nanos {
        let other = match self.spins(task) {
            true => Some(self.first_acting(task)),
            false => self.first_running().map(|(_, at)| at),
        };
        let state = self.task(task);
        let left = Nanos(u64::try_from(state.deadline - state.run_time).unwrap_or_default());
        let queue = &self.cores[state.core].queue;
        let slice = (!queue.is_empty()).then(|| state.at + left);
        [event, other, slice].into_iter().flatten().min().unwrap_or(Nanos(u64::MAX))
    }

    /// The running thread that is furthest behind.
    fn first_running(&mut self) -> Option<(TaskId, Nanos)> {
        while let Some((at, task)) = self.running.peek() {
            let state = self.task(*task);
            if state.state == State::Running && state.at == at {
                return Some((*task, at));
            }
            self.running.pop_due(at);
        }
        None
    }

    fn first_timer(&mut self) -> Option<Nanos> {
        while let Some((at, entry)) = self.timers.peek() {
            if !is_over(&self.tasks, *entry) {
                return Some(at);
            }
            self.timers.pop_due(at);
        }
        None
    }

    /// The thread that really ran has returned: others may take its core.
    fn settle(&mut self, id: TaskId) {
        if self.task(id).state == State::Running && !self.replaced(id) {
            self.running.push(self.task(id).at, id);
        }
    }

    /// Whether a running thread lost its core to a waiting one.
    fn replaced(&mut self, id: TaskId) -> bool {
        let task = self.task(id);
        let (core, over) = (task.core, task.run_time >= task.deadline);
        if self.cores[core].queue.is_empty() {
            self.cores[core].preempt = false;
            if over {
                let slice = self.costs.slice.get() as i64;
                let task = self.task_mut(id);
                task.deadline = task.run_time + slice;
            }
            return false;
        }
        if !self.cores[core].preempt && !over {
            return false;
        }
        self.counts.preemptions += 1;
        let mean = self.mean_of(core);
        let slice = self.costs.slice.get() as i64;
        let task = self.task_mut(id);
        if over {
            task.deadline = task.run_time + slice;
        }
        task.state = State::Ready;
        let at = task.at;
        self.enqueue(id, core);
        self.vacate(core, mean, at);
        true
    }

    fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.0 as usize]
    }

    fn task_mut(&mut self, id: TaskId) -> &mut Task {
        &mut self.tasks[id.0 as usize]
    }
}

/// Whether the wait that an entry refers to has ended.
fn is_over(tasks: &[Task], (task, wait): (TaskId, u64)) -> bool {
    tasks[task.0 as usize].wait != wait
}

#[cfg(test)]
mod tests;
