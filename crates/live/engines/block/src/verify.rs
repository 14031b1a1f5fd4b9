//! Verification of block trials: every write is stamped, every read of a written block is checked, and at the
//! end every acknowledged write is read back.
//!
//! Blocks that this run never wrote are not checked. Stamping and checking cost about a microsecond per 4
//! KiB, so rates of verified trials are not the device's.

use std::os::unix::fs::FileExt;

use thiserror::Error;
use units::{Seed, Share};
use workload::stamp::{Wrong, check, stamp};
use workload::{BlockOp, OpClass};

use crate::buffers::Buffers;
use crate::{Ledger, Target};

/// Corrupt data.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{kind} at byte {offset}: {wrong}; acknowledged was write {acknowledged} of that block")]
pub struct Corruption {
    /// Its kind: torn, misdirected, lost, stale, damaged, or overwritten by others.
    pub kind: &'static str,
    /// What the block contains.
    pub wrong: Wrong,
    /// Offset of the block.
    pub offset: u64,
    /// The acknowledged generation.
    pub acknowledged: u32,
    /// The block as first read.
    pub block: Vec<u8>,
}

/// Before an operation: stamps the buffer of a write.
#[inline]
pub(crate) fn before(ledger: &Ledger, op: BlockOp, buffer: &mut [u8]) {
    if op.class == OpClass::Write {
        let generation = ledger.issue(op.offset);
        stamp(buffer, op.offset, generation, ledger.run());
    }
}

/// After a successful operation: records a write, checks a read.
pub(crate) fn after(
    ledger: &Ledger,
    target: &Target,
    op: BlockOp,
    buffer: &[u8],
) -> Result<(), Box<Corruption>> {
    match op.class {
        OpClass::Write => ledger.acknowledge(op.offset),
        OpClass::Read if check_block(ledger, target, op.offset, &buffer[..op.length as usize])? => {
            ledger.count_check();
        }
        _ => {}
    }
    Ok(())
}

fn check_block(
    ledger: &Ledger,
    target: &Target,
    offset: u64,
    block: &[u8],
) -> Result<bool, Box<Corruption>> {
    let expected = ledger.expected(offset);
    if expected.acknowledged == 0 {
        return Ok(false);
    }
    let Err(wrong) = check(block, offset, ledger.run(), expected) else { return Ok(true) };
    // Read again: a lost write stays lost, a stale read does not.
    let again = read_block(target, offset, block.len());
    let healed = again.is_ok_and(|again| check(&again, offset, ledger.run(), expected).is_ok());
    let kind = match wrong {
        Wrong::Old { .. } if healed => "stale read",
        // An earlier write of ours had arrived, so another process has written since.
        Wrong::Old { found: 0 } if expected.acknowledged > 1 => "overwritten by others",
        Wrong::Old { .. } => "lost write",
        _ => wrong.word(),
    };
    let acknowledged = expected.acknowledged;
    Err(Box::new(Corruption { kind, wrong, offset, acknowledged, block: block.to_vec() }))
}

fn read_block(target: &Target, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = Buffers::new(1, length, Share::NONE, Seed(0));
    let (file, at) = target.locate(offset);
    target.file(file).read_exact_at(buffer.get(0), at)?;
    Ok(buffer.get(0).to_vec())
}

/// Reads back every block with an acknowledged write; returns their number. Stops early if `go_on` returns
/// `false`.
///
/// # Errors
/// The first corrupt or unreadable block.
pub fn read_back(
    target: &Target,
    ledger: &Ledger,
    go_on: &dyn Fn() -> bool,
) -> std::io::Result<Result<u64, Box<Corruption>>> {
    let length = usize::try_from(ledger.block().get()).map_err(std::io::Error::other)?;
    let mut buffer = Buffers::new(1, length, Share::NONE, Seed(0));
    let mut checked = 0;
    for offset in ledger.acknowledged() {
        if checked % 1024 == 0 && !go_on() {
            break;
        }
        let (file, at) = target.locate(offset);
        target.file(file).read_exact_at(buffer.get(0), at)?;
        if let Err(corruption) = check_block(ledger, target, offset, buffer.get(0)) {
            return Ok(Err(corruption));
        }
        checked += 1;
    }
    Ok(Ok(checked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockSpec, Path, RunError, run};
    use observe::Control;
    use stats::Timeline;
    use std::fs::File;
    use std::sync::atomic::AtomicBool;
    use units::{Bytes, Nanos, Seed};
    use workload::{BlockGroup, BlockPlan};

    const BLOCK: u64 = 4096;
    const SPAN: Bytes = Bytes(256 * BLOCK);

    /// A target after a verified trial of writes and reads, with its ledger.
    struct Written {
        dir: tempfile::TempDir,
        target: Target,
        ledger: Ledger,
    }

    fn open(dir: &tempfile::TempDir) -> (File, std::path::PathBuf) {
        let path = dir.path().join("data");
        (File::options().read(true).write(true).open(&path).unwrap(), path)
    }

    fn verified_trial(path: Path, depth: u32) -> Written {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("data"), vec![0; SPAN.get() as usize]).unwrap();
        let target = Target::one(open(&dir).0, SPAN);
        let (ledger, _) = Ledger::open(&dir.path().join("ledger"), 9, Bytes(BLOCK), SPAN).unwrap();
        let result = trial(&target, &ledger, path, depth).unwrap();
        assert!(ledger.checked() > 100, "{} checked on {}", ledger.checked(), result.path);
        Written { dir, target, ledger }
    }

    fn trial(
        target: &Target,
        ledger: &Ledger,
        path: Path,
        depth: u32,
    ) -> Result<stats::TrialResult, RunError> {
        let interval = Nanos::from_millis(10);
        let timeline = Timeline { warm_up: Nanos::ZERO, measure: interval * 10, interval };
        let plan = BlockPlan {
            read_share: "50%".parse().unwrap(),
            queue_depth: depth,
            exclusive: true,
            ..BlockPlan::reads(BLOCK as u32, SPAN, timeline.end())
        };
        let group = BlockGroup { clients: 2, ..BlockGroup::new(plan) };
        let spec = BlockSpec {
            path,
            verify: Some(ledger),
            ..BlockSpec::new(vec![group], timeline, Seed(1))
        };
        let stop = AtomicBool::new(false);
        run(target, &spec, &Control { stop: &stop, progress: None, keep: None })
    }

    fn check_all(written: &Written) -> Result<u64, Box<Corruption>> {
        read_back(&written.target, &written.ledger, &|| true).unwrap()
    }

    #[test]
    fn good_data_passes_on_both_paths() {
        for (path, depth) in [(Path::Auto, 8), (Path::Psync, 2)] {
            let written = verified_trial(path, depth);
            assert!(check_all(&written).unwrap() > 100);
        }
    }

    /// A write that did not arrive in whole, in place or at all must be found and named.
    #[test]
    fn planted_corruption_of_each_kind_is_named() {
        let written = verified_trial(Path::Auto, 4);
        let (file, _) = open(&written.dir);
        let twice = |offset: &u64| written.ledger.expected(*offset).acknowledged >= 2;
        let mut blocks = written.ledger.acknowledged().filter(twice);
        let (one, other) = (blocks.next().unwrap(), blocks.next().unwrap());
        let mut good = vec![0; BLOCK as usize];
        file.read_exact_at(&mut good, one).unwrap();
        let mut old = good.clone();
        stamp(&mut old, one, 1, written.ledger.run());
        let mut torn = good.clone();
        torn[1024..2048].copy_from_slice(&old[1024..2048]);
        let mut damaged = good.clone();
        damaged[3000] ^= 1;
        for (planted, kind) in
            [(old, "lost write"), (torn, "torn write"), (damaged, "damaged data")]
        {
            file.write_all_at(&planted, one).unwrap();
            let found = check_all(&written).unwrap_err();
            assert_eq!((found.kind, found.offset), (kind, one), "{found}");
            file.write_all_at(&good, one).unwrap();
        }
        let mut displaced = vec![0; BLOCK as usize];
        file.read_exact_at(&mut displaced, other).unwrap();
        file.write_all_at(&good, other).unwrap();
        let found = check_all(&written).unwrap_err();
        assert_eq!((found.kind, found.offset), ("misdirected write", other));
        assert_eq!(found.wrong, Wrong::Misdirected { belongs: one });
        file.write_all_at(&displaced, other).unwrap();
        assert!(check_all(&written).is_ok());
    }

    /// A stale read and a lost write are different faults of a drive.
    #[test]
    fn a_stale_read_is_not_a_lost_write() {
        let written = verified_trial(Path::Auto, 4);
        let twice = |offset: &u64| written.ledger.expected(*offset).acknowledged >= 2;
        let offset = written.ledger.acknowledged().find(twice).unwrap();
        let mut old = read_block(&written.target, offset, BLOCK as usize).unwrap();
        stamp(&mut old, offset, 1, written.ledger.run());
        let found = check_block(&written.ledger, &written.target, offset, &old).unwrap_err();
        assert_eq!(found.kind, "stale read");
    }

    /// Wrong data met during a trial must end it, on either path.
    #[test]
    fn a_trial_stops_at_wrong_data() {
        for path in [Path::Auto, Path::Psync] {
            let written = verified_trial(path, 2);
            let (file, _) = open(&written.dir);
            let zeros = vec![0; BLOCK as usize];
            for offset in written.ledger.acknowledged() {
                file.write_all_at(&zeros, offset).unwrap();
            }
            let error = trial(&written.target, &written.ledger, path, 2).unwrap_err();
            let RunError::WrongData(found) = error else { panic!("{error}") };
            let lost = found.acknowledged == 1 && found.kind == "lost write";
            assert!(lost || found.kind == "overwritten by others", "{found}");
            assert_eq!(found.wrong, Wrong::Old { found: 0 });
        }
    }
}
