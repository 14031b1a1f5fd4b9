//! The directory after a power cut.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use units::{Seed, Share};

use super::{CutLosses, Flush, Medium, Metadata, PAGE, Page, PageId};

/// Bytes that a drive writes whole.
const SECTOR: usize = 512;

/// Draws of one cut.
struct Draws {
    seed: Seed,
    count: u64,
    /// Some cuts lose everything (0); the others keep the latest contents with a probability of 0 to 4
    /// fourths.
    mode: u64,
}

impl Draws {
    fn new(seed: Seed) -> Self {
        let mut own = Self { seed: seed.derive("power cut", 0), count: 0, mode: 0 };
        own.mode = own.below(6);
        own
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.count += 1;
        self.seed.derive("draw", self.count).0 % limit.max(1)
    }

    /// One of `count` states, the last of which is the latest.
    fn state(&mut self, count: usize) -> usize {
        let last = count as u64 - 1;
        let mode = self.mode;
        let state = match mode {
            0 => 0,
            _ if self.below(4) + 1 < mode => last,
            _ => self.below(last),
        };
        state as usize
    }
}

/// A possible content of a page: a flush's number, or the current content.
struct State {
    page: Page,
    flush: Option<u64>,
    /// It was being written when power was cut.
    is_in_flight: bool,
}

/// The names and sizes after the cut.
struct Chosen {
    metadata: Metadata,
    /// The commit that they are of; `None` for those of no commit.
    flush: Option<u64>,
}

impl Medium {
    /// Cuts the power: writes the image, and reports the losses.
    pub fn cut(mut self) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut draws = Draws::new(self.plan.seed);
        let mut losses = CutLosses::default();
        let chosen = self.choose(&mut draws, &mut losses)?;
        fs::create_dir(&self.plan.image)?;
        // A directory sorts before what is in it.
        for (path, number) in &chosen.metadata.names {
            let path = self.plan.image.join(path);
            match number {
                None => fs::create_dir(path)?,
                Some(number) => {
                    let file = File::create_new(path)?;
                    self.fill(&file, (*number, &chosen), (&mut draws, &mut losses))?;
                }
            }
        }
        let _ = self.plan.losses.set(losses);
        Ok(())
    }

    /// Chooses a state of the file system.
    fn choose(&mut self, draws: &mut Draws, losses: &mut CutLosses) -> io::Result<Chosen> {
        let names = self.walk()?;
        let now = self.metadata_of(names);
        let mut states = vec![(Some(self.metadata.0), self.metadata.1.clone())];
        let later = self.flushes.range(self.metadata.0..);
        let commits = later.filter_map(|(id, flush)| Some((Some(*id), flush.metadata.clone()?)));
        states.extend(commits);
        let grows = |(number, size): (&u64, &u64)| {
            let file = self.files.get(number).and_then(|version| version.file.as_ref());
            file.and_then(|file| file.metadata().ok()).is_some_and(|data| data.len() > *size)
        };
        if states.last().is_some_and(|(_, last)| *last != now) || now.sizes.iter().any(grows) {
            states.push((None, now));
        }
        let differs = |of: &(_, Metadata)| of.1 != states[states.len() - 1].1;
        losses.unflushed += u64::from(states.iter().any(differs));
        let state = draws.state(states.len());
        losses.lost += u64::from(differs(&states[state]));
        let (flush, metadata) = states.swap_remove(state);
        Ok(Chosen { metadata, flush })
    }

    /// The possible contents of a page, the latest last.
    fn states(&self, page: PageId) -> io::Result<Vec<State>> {
        let (from, durable) = self.durable.get(&page).cloned().unwrap_or_default();
        let mut states = vec![State { page: durable, flush: Some(from), is_in_flight: false }];
        for (id, Flush { pages, is_dropped, .. }) in self.flushes.range(from..) {
            if let Some(contents) = pages.get(&page) {
                let (page, flush) = (contents.clone(), Some(*id));
                states.push(State { page, flush, is_in_flight: !is_dropped });
            }
        }
        if self.unflushed.contains(&page) {
            let is_in_flight = self.direct_in_flight.values().any(|pages| pages.contains(&page));
            states.push(State { page: self.current(page)?, flush: None, is_in_flight });
        }
        Ok(states)
    }

    /// The size of a file after the cut.
    fn size(&self, number: u64, chosen: &Chosen, draws: &mut Draws) -> io::Result<u64> {
        let size = chosen.metadata.sizes[&number];
        let (None, Some(file)) = (chosen.flush, &self.files[&number].file) else { return Ok(size) };
        // Data that was written back may have extended it.
        let current = file.metadata()?.len();
        let more = draws.below(current.saturating_sub(size).div_ceil(PAGE as u64) + 1);
        let extended = size.next_multiple_of(PAGE as u64) + more * PAGE as u64;
        Ok(if more == 0 { size } else { extended.min(current) })
    }

    /// The least recent state that a page can have, as file systems write data before metadata
    /// (data=ordered).
    fn least(&self, (number, page): PageId, states: &[State], chosen: &Chosen) -> usize {
        let is_honest = self.plan.dropped_flushes == Share::NONE;
        let size = chosen.metadata.sizes[&number];
        match chosen.flush {
            _ if !is_honest => 0,
            None if (page + 1) * PAGE as u64 > size => states.len() - 1,
            Some(flush) if flush > self.metadata.0 => {
                states.iter().position(|one| one.flush == Some(flush)).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Writes the contents of a file.
    fn fill(
        &self,
        file: &File,
        (number, chosen): (u64, &Chosen),
        (draws, losses): (&mut Draws, &mut CutLosses),
    ) -> io::Result<()> {
        let size = self.size(number, chosen, draws)?;
        file.set_len(size)?;
        let range = (number, 0)..=(number, u64::MAX);
        let mut pages: BTreeSet<u64> =
            self.durable.range(range.clone()).map(|((_, page), _)| *page).collect();
        pages.extend(self.unflushed.range(range.clone()).map(|(_, page)| *page));
        for flush in self.flushes.values() {
            pages.extend(flush.pages.range(range.clone()).map(|((_, page), _)| *page));
        }
        let counts = self.files.get(&number).is_some_and(|file| file.was_flushed);
        for page in pages {
            let (start, states) = (page * PAGE as u64, self.states((number, page))?);
            let last = &states[states.len() - 1].page;
            let differs = |of: &Page| counts && of != last;
            losses.unflushed += u64::from(states.iter().any(|state| differs(&state.page)));
            if start >= size {
                losses.lost += u64::from(differs(&None));
                continue;
            }
            let least = self.least((number, page), &states, chosen);
            let state = draws.state(states.len()).max(least);
            let mut contents = states[state].page.clone();
            let next = states.get(state + 1).filter(|next| next.is_in_flight);
            if let Some(next) = next.filter(|_| draws.below(2) == 0) {
                contents = tear([contents, next.page.clone()], draws);
                let is_mixed = contents != states[state].page && contents != next.page;
                losses.torn += u64::from(counts && is_mixed);
            }
            losses.lost += u64::from(differs(&contents));
            if let Some(contents) = contents {
                let room = (size - start).min(PAGE as u64) as usize;
                file.write_all_at(&contents[..room], start)?;
            }
        }
        Ok(())
    }
}

/// Sectors of two contents.
fn tear(of: [Page; 2], draws: &mut Draws) -> Page {
    let zeros = || Arc::new([0; PAGE]);
    let [old, new] = of.map(|page| page.unwrap_or_else(zeros));
    let mut torn = *old;
    for start in (0..PAGE).step_by(SECTOR) {
        if draws.below(2) == 0 {
            torn[start..start + SECTOR].copy_from_slice(&new[start..start + SECTOR]);
        }
    }
    Some(Arc::new(torn))
}
