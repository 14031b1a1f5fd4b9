//! A watcher that maintains the document of its run and forwards every event.
//!
//! Invariant: a run whose document cannot be served runs all the same.

use std::sync::{Arc, Mutex, PoisonError};

use runner::{Event, Watcher};
use study::Trial;

use crate::line::Line;
use crate::live::{Live, LiveTrial};

/// Forwards events to another watcher and to connected readers.
pub struct Telling {
    inner: Box<dyn Watcher>,
    live: Arc<Mutex<Live>>,
    line: Option<Line>,
    /// The estimate refers to the end of the current trial, counted from its start.
    began: std::time::Instant,
    after: f64,
}

impl Telling {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Watcher>) -> Self {
        let began = std::time::Instant::now();
        Self { inner, live: Arc::default(), line: None, began, after: 0.0 }
    }

    fn note(&mut self, event: &Event<'_>) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Started { folder, study, plan, done, seconds } => {
                (self.after, self.began) = (*seconds, std::time::Instant::now());
                *live = Live {
                    schema: 1,
                    study: study.name.clone(),
                    question: study.question.clone(),
                    process: std::process::id(),
                    trials: plan.trials.len(),
                    done: *done as usize,
                    ..Live::default()
                };
                drop(live);
                self.line = Line::open(folder, Arc::clone(&self.live)).ok();
                live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            }
            Event::Preparing { stack, done, of } => {
                live.doing = format!("preparing {stack}: {done} of {of}");
            }
            Event::TrialStarted { trial } => {
                live.doing.clear();
                live.running.retain(|one| one.number != trial.number);
                live.running.push(begun(trial));
            }
            Event::Loading { done, of } => live.doing = format!("loading {done} of {of} records"),
            Event::Interval { trial, progress } => {
                live.doing.clear();
                if let Some(one) = live.running_mut(trial.number) {
                    one.add(&progress.summary);
                }
            }
            Event::TrialEnded { trial, headline, seconds_left, .. } => {
                (self.after, self.began) = (*seconds_left, std::time::Instant::now());
                live.done += 1;
                live.running.retain(|one| one.number != trial.number);
                live.say(format!("{} {}: {headline}", name(trial), trial.point_text()));
            }
            Event::Note(note) => live.say(format!("note: {note}")),
        }
        live.seconds_left = (self.after - self.began.elapsed().as_secs_f64()).max(0.0);
    }
}

fn name(trial: &Trial) -> String {
    format!("{} {} {}", trial.experiment, trial.stack, trial.job.engine())
}

fn begun(trial: &Trial) -> LiveTrial {
    LiveTrial {
        number: trial.number,
        name: name(trial),
        point: trial.point_text(),
        ..LiveTrial::default()
    }
}

impl Watcher for Telling {
    fn event(&mut self, event: &Event<'_>) {
        self.note(event);
        self.inner.event(event);
    }
}
