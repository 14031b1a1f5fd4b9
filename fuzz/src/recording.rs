//! Any bytes as a recording, and as a stream of events of two threads: refused, or broken down and replayed.
use capture::{Breakdown, Decoder, Event, Header, Predictor, Recording, Thread, Timeline};

pub fn run(bytes: &[u8]) {
    if let Ok(recording) = Recording::parse(bytes) {
        let _ = recording.events();
    }
    let mut events: Vec<Event> = Decoder::new(bytes).flatten().collect();
    for event in &mut events {
        event.thread %= 3;
    }
    let end = events.last().map_or(0, |event| event.at);
    let thread = |tid| Thread { tid, pid: 7, name: String::new() };
    let header = Header { cpus: 2, end, thread: vec![thread(1), thread(2)], ..Header::default() };
    let timeline = Timeline::new(&header, &events);
    let _ = Breakdown::new(&header, &timeline);
    let _ = Predictor::new(&header, &timeline, None).on_ideal_drive();
}
