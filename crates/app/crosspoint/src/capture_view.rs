//! What a recording shows, as text and as a JSON document.

use capture::{
    Breakdown, Class, ClassTime, DriveLoad, Gain, Header, Part, Parts, Predictor, RequestPath,
    Requests,
};
use serde_json::{Value, json};
use units::{Bytes, Nanos, human_count};

use crate::words::plain;

/// Shares below this are left out of tables for people.
const SHOWN: f64 = 0.005;

/// Standard error of the cost of recording above which it says nothing.
const COST_ERROR_MAX: f64 = 0.15;

const fn name(class: Class) -> &'static str {
    match class {
        Class::Foreground => "foreground",
        Class::Background => "background",
        Class::Client => "clients",
        Class::FileSystem => "file system",
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The largest parts of some time, as `37 % read, 12 % CPU`.
fn largest(parts: &Parts, most: usize) -> String {
    let total = parts.values().sum::<u64>().max(1) as f64;
    let mut parts: Vec<(f64, Part)> =
        parts.iter().map(|(part, time)| (*time as f64 / total, *part)).collect();
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let shown = parts.into_iter().take(most).filter(|(share, _)| *share >= SHOWN);
    shown
        .map(|(share, part)| format!("{} {}", percent(share), part.name()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// For people.
pub fn text(
    (header, breakdown, predictor): (&Header, &Breakdown, &Predictor),
    paths: &[RequestPath; 3],
) -> String {
    let mut lines = vec![facts(header)];
    let foreground = breakdown.classes.get(&Class::Foreground);
    if let Some(time) = foreground {
        lines.push(limit(header, time));
    }
    lines.push(free_drive(predictor));
    lines.push(String::new());
    lines.push(format!("{:<20}{}", "share of time", columns(breakdown)));
    for part in Part::ALL {
        let shares =
            Class::ALL.map(|class| breakdown.classes.get(&class).map(|time| time.share(part)));
        if shares.iter().flatten().any(|share| *share >= SHOWN) {
            let cells = shares.into_iter().flatten().map(|share| match share {
                share if share >= SHOWN => format!("{:>13}", percent(share)),
                _ => format!("{:>13}", ""),
            });
            lines.push(format!("{:<20}{}", part.name(), cells.collect::<String>()));
        }
    }
    let threads = breakdown.classes.values().map(|time| format!("{:>13}", time.threads));
    lines.push(format!("{:<20}{}", "threads", threads.collect::<String>()));
    if let Some(time) = foreground.filter(|time| !time.behind.is_empty()) {
        lines.push(String::new());
        lines.push(format!(
            "while the foreground waited for other threads, those spent: {}",
            largest(&time.behind, 5)
        ));
    }
    if foreground.is_some() {
        lines.push(String::new());
        lines.push(axis(header, breakdown));
    }
    lines.extend(path_table(paths));
    for (number, load) in &breakdown.drives {
        let disk = header.disk.iter().find(|disk| disk.number == *number);
        let name = disk.map_or_else(String::new, |disk| plain(&disk.name));
        lines.push(String::new());
        lines.push(drive(header, &name, load));
    }
    lines.join("\n")
}

/// Kinds of requests, in the order of `Timeline::paths`.
const KINDS: [&str; 3] = ["read", "write", "flush"];

/// Mean times of the parts of a request's path.
fn path_parts(path: &RequestPath) -> [(&'static str, Nanos); 5] {
    let mean = |sum: u64| Nanos(sum / path.count.max(1));
    [
        ("submission", mean(path.submission)),
        ("block layer", mean(path.queue)),
        ("driver and drive", mean(path.drive)),
        ("wake-up", mean(path.wake)),
        ("completion", mean(path.completion)),
    ]
}

/// The mean path of a request through the kernel.
fn path_table(paths: &[RequestPath; 3]) -> Vec<String> {
    let counted = || KINDS.iter().zip(paths).filter(|(_, path)| path.count > 0);
    if counted().next().is_none() {
        return Vec::new();
    }
    let names = path_parts(&RequestPath::default()).map(|(name, _)| format!("{name:>18}"));
    let mut lines = vec![String::new(), format!("{:<20}{}", "mean path", names.concat())];
    lines.extend(counted().map(|(kind, path)| {
        let times = path_parts(path).map(|(_, time)| format!("{:>18}", time.to_string()));
        format!("{:<20}{}", format!("{kind} ({})", human_count(path.count as f64)), times.concat())
    }));
    lines
}

fn facts(header: &Header) -> String {
    let of = |client| {
        let names = header.process.iter().filter(|one| one.client == client);
        names
            .map(|one| format!("{} ({})", plain(&one.name), one.pid))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let clients = match of(true) {
        none if none.is_empty() => String::new(),
        some => format!(", clients {some}"),
    };
    let cost = header.overhead.map_or_else(String::new, |cost| {
        if cost.error > COST_ERROR_MAX {
            return "; the rate of context switches varies too much to tell what recording costs"
                .to_owned();
        }
        if cost.lost < cost.error * 2.0 {
            return "; the cost of recording is too small to measure here".to_owned();
        }
        format!(
            "; recording costs {:.0} % of the context switches (\u{b1}{:.0})",
            cost.lost * 100.0,
            cost.error * 200.0
        )
    });
    let lost = match header.lost {
        0 => String::new(),
        lost => format!("; {} events were lost", human_count(lost as f64)),
    };
    let others = per_second(header.other_requests, header);
    let others = match others {
        few if few < 10.0 => String::new(),
        many => format!("; other programs: {} block requests/s", human_count(many)),
    };
    let load = match header.other_load {
        load if load < 0.05 => String::new(),
        load => format!("; other load {} of the CPUs", percent(load)),
    };
    format!(
        "{} on {} CPUs, {}{clients}{load}{others}{cost}{lost}",
        of(false),
        header.cpus,
        header.length()
    )
}

/// A rate; of an empty recording 0.
fn per_second(count: u64, header: &Header) -> f64 {
    match header.length().as_secs_f64() {
        0.0 => 0.0,
        seconds => count as f64 / seconds,
    }
}

/// The largest parts of the foreground's time.
fn limit(header: &Header, time: &ClassTime) -> String {
    let busy = |part: &Part| {
        !matches!(part, Part::Wait(capture::Waiting::Message | capture::Waiting::Timer))
    };
    let parts: Parts = time
        .parts
        .iter()
        .filter(|(part, _)| busy(part))
        .map(|(part, time)| (*part, *time))
        .collect();
    let rate = match time.sends {
        0 => String::new(),
        sends => {
            format!("{} responses/s; ", human_count(per_second(sends, header)))
        }
    };
    let idle = 1.0 - parts.values().sum::<u64>() as f64 / time.total().max(1) as f64;
    let idle = if idle < 0.05 { String::new() } else { format!(" (idle {})", percent(idle)) };
    format!("{rate}busy time of the foreground threads{idle}: {}", largest(&parts, 4))
}

/// What the fastest drive imaginable would give.
fn free_drive(predictor: &Predictor) -> String {
    if !predictor.is_faithful() {
        return refusal(predictor);
    }
    let gain = predictor.on_ideal_drive();
    format!(
        "predicted for an infinitely fast drive: {:.2}x to {:.2}x this rate, with the same clients",
        gain.least, gain.most
    )
}

/// Why nothing is predicted.
fn refusal(predictor: &Predictor) -> String {
    if predictor.is_idle() {
        return "no prediction: no thread of the database was busy".to_owned();
    }
    if predictor.identity_error().abs() <= capture::IDENTITY_MAX {
        return format!(
            "no prediction: {:.0} % of the foreground's time is unattributed (limit: 10 %)",
            predictor.unattributed() * 100.0
        );
    }
    format!(
        "no prediction: the replay on the recorded drive differs from the recording by {:+.0} % \
         (limit: \u{b1}10 %)",
        predictor.identity_error() * 100.0
    )
}

fn columns(breakdown: &Breakdown) -> String {
    let shown = Class::ALL.iter().filter(|class| breakdown.classes.contains_key(class));
    shown.map(|class| format!("{:>13}", name(*class))).collect()
}

/// Foreground time by interval, the largest parts.
fn axis(header: &Header, breakdown: &Breakdown) -> String {
    let step = header.length().as_secs_f64() / breakdown.intervals.len().max(1) as f64;
    let rows = breakdown.intervals.iter().enumerate().map(|(index, parts)| {
        let at = Nanos((index as f64 * step * 1e9) as u64);
        format!("{:>8}  {}", at.to_string(), largest(parts, 4))
    });
    std::iter::once("foreground over time".to_owned()).chain(rows).collect::<Vec<_>>().join("\n")
}

fn drive(header: &Header, name: &str, load: &DriveLoad) -> String {
    let row = |kind: &str, requests: &Requests| {
        let time = |share| {
            requests.percentile(share).map_or_else(String::new, |time| Nanos(time).to_string())
        };
        format!(
            "  {kind:<8}{:>9}/s {:>12}/s  mean size {:>9}  p50 {:>9}  p99 {:>9}",
            human_count(per_second(requests.count, header)),
            Bytes(per_second(requests.bytes, header) as u64).to_string(),
            Bytes(requests.bytes / requests.count.max(1)).to_string(),
            time(0.5),
            time(0.99)
        )
    };
    let kinds =
        ["reads", "writes", "flushes"].iter().zip(&load.kinds).filter(|(_, one)| one.count > 0);
    let rows = kinds.map(|(kind, requests)| row(kind, requests)).collect::<Vec<_>>().join("\n");
    format!("{name}: {:.2} requests in flight\n{rows}", load.depth)
}

/// For programs.
pub fn document(
    (header, breakdown, predictor): (&Header, &Breakdown, &Predictor),
    paths: &[RequestPath; 3],
) -> Value {
    let free = predictor.is_faithful().then(|| predictor.on_ideal_drive());
    let parts = |parts: &Parts| {
        let values = parts.iter().map(|(part, time)| (part.name().to_owned(), json!(time)));
        Value::Object(values.collect())
    };
    let class = |(class, time): (&Class, &ClassTime)| {
        json!({
            "class": name(*class),
            "threads": time.threads,
            "responses": time.sends,
            "time_ns": parts(&time.parts),
            "behind_other_threads_ns": parts(&time.behind),
        })
    };
    let requests = |requests: &Requests| {
        json!({
            "count": requests.count,
            "bytes": requests.bytes,
            "p50_ns": requests.percentile(0.5),
            "p99_ns": requests.percentile(0.99),
        })
    };
    let drive = |(number, load): (&u32, &DriveLoad)| {
        let [reads, writes, flushes] = &load.kinds;
        json!({
            "disk": header.disk.iter().find(|disk| disk.number == *number).map(|disk| &disk.name),
            "in_flight": load.depth,
            "reads": requests(reads),
            "writes": requests(writes),
            "flushes": requests(flushes),
            "durable_writes": load.durable,
        })
    };
    let path = |(kind, path): (&&str, &RequestPath)| {
        let parts = path_parts(path).map(|(name, time)| (name.to_owned(), json!(time.get())));
        json!({"kind": kind, "count": path.count, "mean_ns": Value::Object(parts.into_iter().collect())})
    };
    json!({
        "schema": 1,
        "seconds": header.length().as_secs_f64(),
        "lost_events": header.lost,
        "overhead": header.overhead.map(|cost| json!({"share": cost.lost, "error": cost.error})),
        "other_load": header.other_load,
        "classes": breakdown.classes.iter().map(class).collect::<Vec<_>>(),
        "foreground_over_time_ns": breakdown.intervals.iter().map(parts).collect::<Vec<_>>(),
        "free_drive_gain": free.map(|gain| json!({"least": gain.least, "most": gain.most})),
        "drives": breakdown.drives.iter().map(drive).collect::<Vec<_>>(),
        "paths": KINDS.iter().zip(paths).map(path).collect::<Vec<_>>(),
    })
}

/// A drive and its prediction; `None` for the recorded one.
type Row = (String, Option<Gain>);

/// Predictions for people.
pub fn prediction_text(header: &Header, predictor: &Predictor, rows: &[Row]) -> String {
    if rows.is_empty() {
        return refusal(predictor);
    }
    let identity = predictor.identity_error() * 100.0;
    let rate = per_second(predictor.responses(), header) * predictor.undisturbed();
    let head = ["times the present rate", "range", "responses/s"];
    let line = |name: &str, [expected, range, responses]: [&str; 3]| {
        let responses = if rate > 0.0 { format!(" {responses:>22}") } else { String::new() };
        format!("{name:<28} {expected:>22} {range:>18}{responses}")
    };
    let mut lines = vec![line("drive", head)];
    for (name, gain) in rows {
        let Some(gain) = gain else {
            lines.push(line(name, ["1", "", &human_count(rate)]));
            continue;
        };
        let [least, most] = [gain.least, gain.most].map(|ratio| human_count(rate * ratio));
        let range = format!("{:.2} to {:.2}", gain.least, gain.most);
        let responses = format!("{least} to {most}");
        lines.push(line(name, [&format!("{:.2}", gain.expected), &range, &responses]));
    }
    lines.push(format!(
        "Same clients, without recording. Check: the replay on the recorded drive takes {:.1} % {} than the \
         recording.",
        identity.abs(),
        if identity < 0.0 { "less time" } else { "more time" }
    ));
    lines.push(
        "Measured rates inside such ranges: 17 of 21 (MariaDB), 3 of 16 (RocksDB, LMDB; most were \
         lower); with group commit by 8 writers the error was 45 % (docs/VALIDATION.md)"
            .to_owned(),
    );
    lines.join("\n")
}

/// Predictions for programs.
pub fn predictions(header: &Header, predictor: &Predictor, rows: &[Row]) -> Value {
    let row = |(name, gain): &Row| {
        gain.as_ref().map(|gain| {
            json!({
                "drive": name,
                "ratio_least": gain.least,
                "ratio_expected": gain.expected,
                "ratio_most": gain.most,
                "forced_waits": gain.forced,
            })
        })
    };
    json!({
        "schema": 1,
        "seconds": header.length().as_secs_f64(),
        "responses": predictor.responses(),
        "undisturbed_ratio": predictor.undisturbed(),
        "identity_error": predictor.identity_error(),
        "faithful": predictor.is_faithful(),
        "predictions": rows.iter().filter_map(row).collect::<Vec<_>>(),
    })
}
