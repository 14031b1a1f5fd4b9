//! Threads that wait for a core, and migrations between cores.

use std::collections::BTreeSet;

use units::Nanos;

use super::{Scheduler, State, TaskId, Wake, Waker};

/// What ends a wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum WokenBy {
    /// Another thread.
    Thread(TaskId, Waker),
    /// A timer or a device; an idle core is woken this much later than usual.
    Interrupt(Nanos),
}

/// Ready threads of one core, by virtual deadline, with the sum of their virtual run times.
#[derive(Debug, Default)]
pub(super) struct RunQueue {
    by_deadline: BTreeSet<(i64, TaskId)>,
    run_times: i128,
}

impl RunQueue {
    pub fn is_empty(&self) -> bool {
        self.by_deadline.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_deadline.len()
    }
}

/// Longest turn of a thread that spins while others that spin are behind.
const SPIN: Nanos = Nanos(20_000);

impl Scheduler {
    /// The running thread lets the others on its core run first (sched_yield(2)).
    pub fn give_way(&mut self, id: TaskId) {
        let slice = self.costs.slice.get() as i64;
        let task = self.task_mut(id);
        task.deadline = task.run_time + slice;
        let core = task.core;
        self.cores[core].preempt = true;
        self.task_mut(id).spins = self.cores[core].queue.is_empty();
    }

    /// Whether the running thread polls for what another thread will do, alone on its core. Until that one
    /// acts, its turns may be long.
    #[must_use]
    pub fn spins(&self, id: TaskId) -> bool {
        let task = self.task(id);
        task.spins && self.cores[task.core].queue.is_empty()
    }

    /// The running thread does something else than letting others run first.
    pub fn act(&mut self, id: TaskId) {
        self.task_mut(id).spins = false;
    }

    /// Time of the running thread that is furthest behind, without those that also spin; not much later than
    /// `task`'s, because those may stop.
    pub(super) fn first_acting(&self, task: TaskId) -> Nanos {
        let running = self.cores.iter().filter_map(|core| core.running);
        let acting = running.filter(|other| *other != task && !self.spins(*other));
        let latest = self.task(task).at + SPIN;
        acting.map(|other| self.task(other).at).min().map_or(latest, |at| at.min(latest))
    }

    /// Mean virtual run time of a core's running and ready threads.
    pub(super) fn mean_of(&self, core: usize) -> i64 {
        let Some(running) = self.cores[core].running else {
            return self.mean_of_ready(core);
        };
        let queue = &self.cores[core].queue;
        let sum = queue.run_times + i128::from(self.task(running).run_time);
        (sum / (queue.len() as i128 + 1)) as i64
    }

    fn mean_of_ready(&self, core: usize) -> i64 {
        let queue = &self.cores[core].queue;
        match queue.len() {
            0 => self.cores[core].run_time,
            len => (queue.run_times / len as i128) as i64,
        }
    }

    /// The running thread of a core waits, ends or was preempted; the core picks another.
    pub(super) fn leave(&mut self, id: TaskId, mean: i64) {
        let (core, at) = (self.task(id).core, self.task(id).at);
        self.vacate(core, mean, at);
    }

    pub(super) fn vacate(&mut self, core: usize, mean: i64, at: Nanos) {
        let place = &mut self.cores[core];
        place.running = None;
        place.run_time = mean;
        place.free_at = at;
        place.preempt = false;
        self.idle.insert(core);
        self.fill(core);
    }

    /// An idle core takes the thread with the earliest deadline of those that are not ahead of their share,
    /// or steals the one that has been ready for longest.
    pub(super) fn fill(&mut self, core: usize) {
        let mean = self.mean_of_ready(core);
        let queue = &self.cores[core].queue;
        let due = |(_, task): &&(i64, TaskId)| self.task(*task).run_time <= mean;
        let own = queue.by_deadline.iter().find(due).or_else(|| queue.by_deadline.first());
        let at = self.cores[core].free_at;
        if let Some(&(_, task)) = own {
            self.dequeue(task);
            self.begin(task, core, at, Nanos::ZERO);
        } else if let Some(task) = self.oldest.first().map(|(_, task)| *task) {
            self.move_to(task, core);
            let at = at.max(self.task(task).at) + self.costs.migration;
            self.begin(task, core, at, Nanos::ZERO);
        }
    }

    /// Takes a ready thread out of its queue and gives it the same lag on another core.
    fn move_to(&mut self, task: TaskId, core: usize) {
        let lag = self.mean_of(self.task(task).core) - self.task(task).run_time;
        self.dequeue(task);
        let (mean, slice) = (self.mean_of(core), self.costs.slice.get() as i64);
        let state = self.task_mut(task);
        state.run_time = mean - lag;
        state.deadline = state.run_time + slice;
        self.counts.migrations += 1;
    }

    pub(super) fn enqueue(&mut self, id: TaskId, core: usize) {
        let task = self.task_mut(id);
        task.core = core;
        let (deadline, run_time, at) = (task.deadline, task.run_time, task.at);
        let queue = &mut self.cores[core].queue;
        queue.by_deadline.insert((deadline, id));
        queue.run_times += i128::from(run_time);
        self.oldest.insert((at, id));
    }

    pub(super) fn dequeue(&mut self, id: TaskId) {
        let task = self.task(id);
        let (core, deadline, run_time, at) = (task.core, task.deadline, task.run_time, task.at);
        let queue = &mut self.cores[core].queue;
        queue.by_deadline.remove(&(deadline, id));
        queue.run_times -= i128::from(run_time);
        self.oldest.remove(&(at, id));
    }

    /// A thread starts to run on an idle core, at `at` or as soon as it is ready, with `first` of CPU time.
    fn begin(&mut self, id: TaskId, core: usize, at: Nanos, first: Nanos) {
        let switch = self.cores[core].last != Some(id);
        self.idle.remove(&core);
        let place = &mut self.cores[core];
        place.last = Some(id);
        place.running = Some(id);
        self.counts.switches += u64::from(switch);
        let cost = first + if switch { self.costs.switch } else { Nanos::ZERO };
        let task = self.task_mut(id);
        task.times.run_queue += at.since(task.at);
        task.at = task.at.max(at);
        task.core = core;
        task.state = State::Running;
        self.charge(id, cost);
        self.running.push(self.task(id).at, id);
    }

    /// A wait ended at `at`: gives the thread an idle core, or a place in a queue.
    pub(super) fn place(&mut self, id: TaskId, at: Nanos, by: WokenBy) {
        let (cost, waker, late) = match by {
            WokenBy::Thread(waker, kind) => (self.costs.of(kind), Some(waker), Nanos::ZERO),
            WokenBy::Interrupt(late) => (self.costs.interrupt, None, late),
        };
        let target = self.idle_core_for(id);
        if let Some(waker) = waker {
            self.charge(waker, if target.is_some() { cost.waker } else { cost.busy });
        }
        let at = waker.map_or(at, |waker| self.task(waker).at);
        let idle = target.map_or(Nanos::ZERO, |core| at.since(self.cores[core].free_at));
        let task = self.task_mut(id);
        let State::Blocked(wait) = task.state else { return };
        task.woken = Some(Wake { wait, idle });
        task.wait = 0;
        task.times.waits[wait as usize] += at.since(task.at);
        task.at = task.at.max(at);
        task.state = State::Ready;
        match target {
            Some(core) => {
                self.counts.idle_wakes += 1;
                let (mean, slice) = (self.cores[core].run_time, self.costs.slice.get() as i64);
                let task = self.task_mut(id);
                let latency = cost.latency + late;
                task.times.wake_up += latency;
                task.at += latency;
                task.run_time = mean;
                task.deadline = mean + slice;
                let free = self.cores[core].free_at;
                self.begin(id, core, free, cost.wakee);
            }
            None => self.queue_up(id, waker),
        }
    }

    /// Its previous core if that is idle, or any idle one.
    fn idle_core_for(&self, id: TaskId) -> Option<usize> {
        let own = self.task(id).core;
        if self.idle.contains(&own) { Some(own) } else { self.idle.first().copied() }
    }

    /// No core is idle: the thread waits on its waker's core, or on its own if that has fewer in its queue.
    fn queue_up(&mut self, id: TaskId, waker: Option<TaskId>) {
        self.counts.busy_wakes += 1;
        let own = self.task(id).core;
        let length = |core: usize| self.cores[core].queue.len();
        let of_waker = waker.map(|waker| self.task(waker).core);
        let core = of_waker.filter(|core| length(*core) <= length(own) + 1).unwrap_or(own);
        let mean = self.mean_of(core);
        let waiting = self.cores[core].queue.len() as i64 + 1;
        let slice = self.costs.slice.get() as i64;
        let task = self.task_mut(id);
        // Joining shrinks its lag by its own weight, so it is scaled up first.
        task.run_time = mean - (task.lag + task.lag / waiting);
        task.deadline = task.run_time + slice;
        let (run_time, deadline) = (task.run_time, task.deadline);
        self.enqueue(id, core);
        let mean = self.mean_of(core);
        if let Some(running) = self.cores[core].running {
            let runner = self.task(running);
            if run_time <= mean && (runner.run_time > mean || deadline < runner.deadline) {
                self.cores[core].preempt = true;
            }
        }
    }

    /// The longest queue gives one thread to the shortest.
    pub(super) fn balance(&mut self) {
        self.next_balance = self.now + self.costs.balance;
        let lengths = || self.cores.iter().map(|core| core.queue.len()).enumerate();
        let longest = lengths().max_by_key(|(_, length)| *length);
        let shortest = lengths().min_by_key(|(_, length)| *length);
        let (Some((from, most)), Some((to, least))) = (longest, shortest) else { return };
        if most < least + 2 {
            return;
        }
        let queue = &self.cores[from].queue.by_deadline;
        let ready = queue.iter().map(|(_, task)| *task);
        if let Some(task) = ready.min_by_key(|task| self.task(*task).at) {
            self.move_to(task, to);
            self.enqueue(task, to);
        }
    }
}
