//! Any bytes as a recording, and as a stream of events of two threads: refused, or broken down and replayed.
use capture::{Arrivals, Breakdown, Decoder, Event, Header, Predictor, Recording, Thread, Timeline};

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
    let header = Header {
        kernel: String::new(),
        cpus: 2,
        start: 0,
        end,
        lost: 0,
        other_requests: 0,
        other_load: 0.0,
        steal: 0.0,
        overhead: None,
        process: vec![],
        thread: vec![thread(1), thread(2)],
        disk: vec![],
    };
    let timeline = Timeline::new(&header, &events);
    let _ = Breakdown::new(&header, &timeline);
    let _ = Predictor::new(&header, &timeline, None, Arrivals::Open).on_a_free_drive();
}
