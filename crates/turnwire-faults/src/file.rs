//! What of one file is durable, and what a power cut may leave of the rest.

use fastrand::Rng;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// A change that no sync has made durable yet.
#[derive(Debug, Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

/// A file, by its name.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Its bytes as of the last sync.
    durable: Vec<u8>,
    /// What was changed since.
    pending: Vec<Change>,
    /// Whether it is there, as a program sees it.
    exists: bool,
    /// Whether that is known to the folder on the disk. If not, the name still stands for `former`.
    is_name_durable: bool,
    previous: Option<Vec<u8>>,
    /// How often a sync has failed.
    pub(crate) failures: u64,
}

impl File {
    /// A file that was there before.
    pub(crate) fn existing(durable: Vec<u8>) -> Self {
        Self { durable, exists: true, is_name_durable: true, ..Self::default() }
    }

    /// Says that somebody has opened it, and so made it where it was not there.
    pub(crate) fn mark_opened(&mut self) {
        if !self.exists {
            self.exists = true;
            self.is_name_durable = false;
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.pending.push(Change::Write { at, bytes: bytes.to_vec() });
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.pending.push(Change::Truncate(len));
    }

    /// Makes all durable. Whether the folder was synced too: SQLite does that for a new file.
    pub(crate) fn sync(&mut self) -> bool {
        for change in std::mem::take(&mut self.pending) {
            apply_change(&mut self.durable, &change);
        }
        !self.is_name_durable
    }

    /// A sync that failed: some of it is durable, and the rest never will be. A system that could
    /// not write its pages forgets that they were to be written.
    pub(crate) fn fail_sync(&mut self, rng: &mut Rng) {
        self.durable = self.surviving_bytes(rng);
        self.pending.clear();
        self.failures += 1;
    }

    pub(crate) fn delete(&mut self, rng: &mut Rng) {
        if self.is_name_durable {
            self.previous = self.exists.then(|| self.surviving_bytes(rng));
        }
        self.exists = false;
        self.is_name_durable = false;
        self.durable.clear();
        self.pending.clear();
    }

    /// The folder was synced.
    pub(crate) fn make_name_durable(&mut self) {
        self.is_name_durable = true;
        self.previous = None;
    }

    /// What may be there after a power cut.
    pub(crate) fn after_power_cut(&self, rng: &mut Rng) -> Option<Vec<u8>> {
        if !self.is_name_durable && rng.bool() {
            return self.previous.clone();
        }
        self.exists.then(|| self.surviving_bytes(rng))
    }

    fn surviving_bytes(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let loss = UnsyncedLoss::random(rng);
        for change in &self.pending {
            match change {
                Change::Write { at, bytes: written } => {
                    for (at, sector) in sectors(*at, written) {
                        if loss.keeps(rng) {
                            write_at(&mut bytes, at, sector);
                        } else if loss.corrupts(rng) {
                            let spoilt: Vec<u8> = sector.iter().map(|_| rng.u8(..)).collect();
                            write_at(&mut bytes, at, &spoilt);
                        }
                    }
                }
                Change::Truncate(_) => {
                    if loss.keeps(rng) {
                        apply_change(&mut bytes, change);
                    }
                }
            }
        }
        bytes
    }
}

/// How much of what was not synced is lost.
#[derive(Debug, Clone, Copy)]
enum UnsyncedLoss {
    All,
    Nothing,
    /// Each sector by itself, kept with this chance.
    Some(f64),
    /// The same, and what was not kept may hold anything.
    Corrupted(f64),
}

impl UnsyncedLoss {
    fn random(rng: &mut Rng) -> Self {
        match rng.u8(..6) {
            0 => Self::All,
            1 => Self::Nothing,
            2 => Self::Some(0.98),
            3 => Self::Some(rng.f64()),
            4 => Self::Corrupted(0.95),
            _ => Self::Corrupted(rng.f64()),
        }
    }

    fn keeps(self, rng: &mut Rng) -> bool {
        match self {
            Self::All => false,
            Self::Nothing => true,
            Self::Some(chance) | Self::Corrupted(chance) => rng.f64() < chance,
        }
    }

    fn corrupts(self, rng: &mut Rng) -> bool {
        matches!(self, Self::Corrupted(_)) && rng.bool()
    }
}

/// The parts of a write that lie in one sector each.
fn sectors(at: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (head, rest) = bytes.split_at(bytes.len().min((SECTOR - at % SECTOR) % SECTOR));
    let behind = at + head.len();
    let first = (!head.is_empty()).then_some((at, head));
    let others = rest.chunks(SECTOR).enumerate();
    first.into_iter().chain(others.map(move |(n, part)| (behind + n * SECTOR, part)))
}

fn write_at(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    let end = at + part.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(place) = bytes.get_mut(at..end) {
        place.copy_from_slice(part);
    }
}

fn apply_change(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { at, bytes: written } => write_at(bytes, *at, written),
        Change::Truncate(len) => bytes.truncate(*len),
    }
}

#[cfg(test)]
mod tests {
    use super::{File, SECTOR, sectors};
    use fastrand::Rng;

    fn images(file: &File) -> Vec<Option<Vec<u8>>> {
        let mut all: Vec<_> =
            (0..200).map(|seed| file.after_power_cut(&mut Rng::with_seed(seed))).collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn what_was_synced_is_there_and_the_rest_may_be() {
        let mut file = File::existing(b"ab".to_vec());
        file.write(1, b"xy");
        assert!(!file.sync());
        assert_eq!(images(&file), [Some(b"axy".to_vec())]);
        file.write(0, b"z");
        let some = images(&file);
        assert!(some.contains(&Some(b"axy".to_vec())) && some.contains(&Some(b"zxy".to_vec())));
        file.truncate(1);
        assert!(images(&file).contains(&Some(b"z".to_vec())));
        assert!(images(&file).contains(&Some(b"axy".to_vec())));
    }

    #[test]
    fn a_write_is_torn_where_sectors_meet() {
        let bytes = vec![1; 2 * SECTOR];
        let parts: Vec<_> = sectors(500, &bytes).map(|(at, part)| (at, part.len())).collect();
        assert_eq!(parts, [(500, 12), (512, 512), (1024, 500)]);
        assert_eq!(sectors(512, &[1; 3]).map(|(at, part)| (at, part.len())).next(), Some((512, 3)));
        let mut file = File::existing(vec![0; 2 * SECTOR]);
        file.write(0, &bytes);
        let torn = [vec![0; SECTOR], vec![1; SECTOR]].concat();
        assert!(images(&file).contains(&Some(torn)));
    }

    #[test]
    fn what_a_failed_sync_has_lost_does_not_come_back_with_the_next() {
        let lost = (0..50).any(|seed| {
            let mut file = File::existing(b"old".to_vec());
            file.write(0, b"new");
            file.fail_sync(&mut Rng::with_seed(seed));
            file.sync();
            images(&file) == [Some(b"old".to_vec())]
        });
        assert!(lost);
    }

    #[test]
    fn a_new_name_and_a_removed_one_need_a_sync_too() {
        let mut file = File::default();
        file.mark_opened();
        file.write(0, b"a");
        assert!(images(&file).contains(&None));
        assert!(file.sync());
        file.make_name_durable();
        assert_eq!(images(&file), [Some(b"a".to_vec())]);
        file.delete(&mut Rng::with_seed(1));
        assert_eq!(images(&file), [None, Some(b"a".to_vec())]);
        file.mark_opened();
        file.write(0, b"b");
        let some = images(&file);
        assert!(some.contains(&Some(b"a".to_vec())) && some.contains(&Some(b"b".to_vec())));
        file.sync();
        file.make_name_durable();
        assert_eq!(images(&file), [Some(b"b".to_vec())]);
    }
}
