//! One drive left out: writes that flash drives throttle, with constants of the other drives alone.
//!
//! Invariant: a drive's figures never choose the constants that they are compared with here.

use std::fmt::Write;

use device::{Constant, Evidence, NandParameters, Parameters, Profile};
use units::{Bytes, Nanos};
use validate::{Check, median_absolute};

/// A drive whose writes are throttled: its profile, its figures, and its constants.
type Drive<'a> = (&'a Profile, &'a [Check], &'a NandParameters);

/// Groups of metrics: the start of their names, and their title.
const GROUPS: [(&[&str], &str); 3] =
    [(&["mean", "p50"], "mean, p50"), (&["p99 "], "p99"), (&["p99.9"], "p99.9 and beyond")];

/// The table.
pub fn table(out: &mut String, profiles: &[(Profile, Vec<Check>)]) {
    let drives: Vec<Drive<'_>> = profiles.iter().filter_map(throttled).collect();
    let _ = writeln!(out, "\n## Leave-one-drive-out: throttled writes of flash drives\n");
    let _ = writeln!(
        out,
        "For each drive, the size of the write buffer, the length of collection bursts (geometric means per \
         program unit) and the suspend time (mean) are replaced by the other drives' values; its rates, \
         over-provisioning and single-request latencies stay its own. Figures: held out, and tails that \
         these constants were fitted to. The two 7450s are of one family, so only the CM7-R is predicted \
         without a relative. Percentiles of mixed workloads are not reliable for a drive that \
         was not measured.\n"
    );
    let _ = writeln!(
        out,
        "| drive left out | metrics | figures | median error, own constants | of the others | within 25 %, \
         own | of the others |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|---|---|");
    for (place, (profile, own, constants)) in drives.iter().enumerate() {
        let others = drives.iter().enumerate().filter(|(other, _)| *other != place);
        let others: Vec<&NandParameters> = others.map(|(_, (.., constants))| *constants).collect();
        let replaced = with_constants_of(constants, &others);
        let parameters = Parameters::Nand(Box::new(replaced));
        let left_out = runner::check_profile(&Profile { parameters, ..(*profile).clone() });
        for (starts, title) in GROUPS {
            let is_meant = |one: &Check| {
                starts.iter().any(|start| format!("{} ", one.metric).starts_with(start))
            };
            let pairs = own.iter().zip(&left_out).filter(|(one, _)| is_throttled(one));
            let pairs = pairs.filter(|(one, _)| is_meant(one));
            // Without a prediction it is a miss.
            let (own, others): (Vec<f64>, Vec<f64>) = pairs
                .filter_map(|(own, other)| Some((own.error()?, other.error().unwrap_or(-1.0))))
                .unzip();
            let percent = |errors: &[f64]| median_absolute(errors).unwrap_or(0.0) * 100.0;
            let within = |errors: &[f64]| errors.iter().filter(|one| one.abs() <= 0.25).count();
            let _ = writeln!(
                out,
                "| {} | {title} | {} | {:.1} % | {:.1} % | {} | {} |",
                profile.name,
                own.len(),
                percent(&own),
                percent(&others),
                within(&own),
                within(&others)
            );
        }
    }
}

fn throttled((profile, checks): &(Profile, Vec<Check>)) -> Option<Drive<'_>> {
    match &profile.parameters {
        Parameters::Nand(own) if own.collection_burst.is_some() => Some((profile, checks, own)),
        _ => None,
    }
}

/// Whether a figure is of reads and writes next to each other, and no evidence for the other constants.
fn is_throttled(one: &Check) -> bool {
    let mixed = one.shape.as_ref().is_some_and(|shape| shape.background_writes > 0);
    let tail = one.metric.starts_with("p99");
    mixed && (one.evidence == Evidence::HeldOut || one.evidence == Evidence::Fitted && tail)
}

/// A drive's constants with those that throttle its writes taken from others.
fn with_constants_of(own: &NandParameters, others: &[&NandParameters]) -> NandParameters {
    let units = f64::from(own.program_units.value);
    let bytes = |of: &dyn Fn(&NandParameters) -> Bytes| {
        let logs = others.iter().map(|one| {
            let units = f64::from(one.program_units.value);
            (of(one).get() as f64 / units).ln()
        });
        let per_unit = (logs.sum::<f64>() / others.len() as f64).exp();
        Constant::measured(Bytes((per_unit * units) as u64), "other drives")
    };
    let time = |one: &&NandParameters| one.suspend_time.as_ref().map(|time| time.value.get());
    let times: Vec<u64> = others.iter().filter_map(time).collect();
    let mean = times.iter().sum::<u64>() / (times.len() as u64).max(1);
    NandParameters {
        write_buffer: bytes(&|one| one.write_buffer.value),
        collection_burst: Some(bytes(&|one| {
            one.collection_burst.as_ref().map_or(Bytes(0), |burst| burst.value)
        })),
        suspend_time: Some(Constant::measured(Nanos(mean), "other drives")),
        ..own.clone()
    }
}
