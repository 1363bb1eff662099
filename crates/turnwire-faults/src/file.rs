//! The durable and the unsynced content of one file, and what a power cut may leave of it.

use fastrand::Rng;

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;

/// A change that was not synced yet.
#[derive(Debug, Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

/// A file name and its content.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Content at the last sync.
    durable: Vec<u8>,
    /// Changes since then.
    pending: Vec<Change>,
    /// Whether programs see the file.
    exists: bool,
    /// Whether the folder on the disk knows that. If not, the name still refers to `previous`.
    is_name_durable: bool,
    previous: Option<Vec<u8>>,
    /// Number of failed syncs.
    pub(crate) failures: u64,
}

impl File {
    /// An existing file.
    pub(crate) fn existing(durable: Vec<u8>) -> Self {
        Self { durable, exists: true, is_name_durable: true, ..Self::default() }
    }

    /// Marks the file as opened, which creates it if it did not exist.
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

    /// Makes all changes durable. Returns whether the folder was synced too: SQLite does that for a new file.
    pub(crate) fn sync(&mut self) -> bool {
        for change in std::mem::take(&mut self.pending) {
            apply_change(&mut self.durable, &change);
        }
        !self.is_name_durable
    }

    /// A failed sync: some changes are durable, the rest is lost. A system that could not write its pages
    /// drops them.
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

    /// What may be on the disk after a power cut.
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

/// How much unsynced data is lost.
#[derive(Debug, Clone, Copy)]
enum UnsyncedLoss {
    All,
    Nothing,
    /// Each sector is kept with this probability.
    Some(f64),
    /// The same, and lost sectors may contain garbage.
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

/// Splits a write at sector boundaries.
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
    fn synced_data_stays_and_unsynced_data_may_stay() {
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
    fn a_write_is_torn_at_sector_boundaries() {
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
    fn data_lost_by_a_failed_sync_stays_lost() {
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
    fn creating_and_deleting_a_file_need_a_sync() {
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
