//! dbg
use crosspoint_capture::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let r = Recording::parse(&std::fs::read(&a[1]).unwrap()).unwrap();
    let events = r.events().unwrap();
    let t = Timeline::new(&r.header, &events);
    let none = t.requests.iter().filter(|q| q.completed.is_none()).count();
    println!("requests {} incomplete {none}", t.requests.len());
    let mut shown = 0;
    for (i, q) in t.requests.iter().enumerate() {
        if q.completed.is_some_and(|c| c - q.submitted > 50_000_000) && shown < 3 {
            shown += 1;
            println!("{i} {q:?} took {}", q.completed.unwrap() - q.submitted);
            for e in &events {
                let near = |io: &Io| {
                    io.drive == q.io.drive
                        && io.sector + u64::from(io.bytes) / 512 + 64 >= q.io.sector
                        && io.sector <= q.io.sector + u64::from(q.io.bytes) / 512 + 64
                };
                if let What::Submits(io) | What::Completes(io) = &e.what {
                    if near(io)
                        && e.at + 20_000_000 > q.submitted
                        && e.at < q.submitted + 60_000_000
                    {
                        println!(
                            "   {} {} {:?}",
                            e.at as i64 - q.submitted as i64,
                            e.thread,
                            e.what
                        );
                    }
                }
            }
        }
    }
    if a.len() > 2 {
        println!(
            "identity {}",
            Predictor::new(&r.header, &t, None, Arrivals::Closed).identity_error()
        );
    }
}
