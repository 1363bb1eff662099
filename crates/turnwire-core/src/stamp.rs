//! Sources of ids and timestamps.
//!
//! Nothing else in this crate reads a clock or makes an id. Code that creates messages or events passes a
//! [`Stamp`]: `SystemStamp` (with the feature `system`) or, in tests, [`FixedStamp`].
//!
//! ```
//! use turnwire_core::{FixedStamp, Msg};
//!
//! let msg = Msg::user("alice", "hi").stamped(&FixedStamp::default());
//! assert_eq!(msg.id(), "00000000000000000000000000000001");
//! assert_eq!(msg.created_at(), "2026-01-01T00:00:00.000Z");
//! ```

#[cfg(feature = "system")]
use std::sync::atomic::AtomicI64;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "system")]
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of ids and timestamps.
pub trait Stamp {
    /// A new id: 32 hexadecimal digits.
    fn id(&self) -> String;
    /// The current time: ISO 8601 in UTC, with milliseconds.
    fn now(&self) -> String;
}

/// For tests: the ids 1, 2, 3, … and always the same time.
#[derive(Debug, Default)]
pub struct FixedStamp(AtomicU64);

impl Stamp for FixedStamp {
    fn id(&self) -> String {
        format!("{:032x}", self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn now(&self) -> String {
        "2026-01-01T00:00:00.000Z".to_owned()
    }
}

/// What [`unix_millis`] adds to the system's clock.
#[cfg(feature = "system")]
static CORRECTION: AtomicI64 = AtomicI64::new(0);

/// The time in milliseconds since 1970: the system's clock, corrected by [`correct_clock`].
#[cfg(feature = "system")]
pub fn unix_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX).saturating_add(clock_correction())
}

/// Moves the clock of this process. Processes that compare times with each other agree on one clock in this way.
#[cfg(feature = "system")]
pub fn correct_clock(by_millis: i64) {
    CORRECTION.store(by_millis, Ordering::Relaxed);
}

/// By how many milliseconds the clock was moved.
#[cfg(feature = "system")]
pub fn clock_correction() -> i64 {
    CORRECTION.load(Ordering::Relaxed)
}

/// The system's clock, and unique ids (UUID version 7).
#[cfg(feature = "system")]
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemStamp;

#[cfg(feature = "system")]
impl Stamp for SystemStamp {
    fn id(&self) -> String {
        system::to_hex(system::new_uuid())
    }

    fn now(&self) -> String {
        system::format_time(unix_millis())
    }
}

/// The system's clock, and consecutive ids that start at a unique one. [`EventIds`](crate::EventIds) stores
/// consecutive ids in constant space.
#[cfg(feature = "system")]
#[derive(Debug)]
pub struct SequentialStamp {
    first: u128,
    next_offset: AtomicU64,
}

#[cfg(feature = "system")]
impl Default for SequentialStamp {
    fn default() -> Self {
        Self { first: system::new_uuid().as_u128(), next_offset: AtomicU64::new(0) }
    }
}

#[cfg(feature = "system")]
impl Stamp for SequentialStamp {
    fn id(&self) -> String {
        let given = self.next_offset.fetch_add(1, Ordering::Relaxed);
        system::to_hex(uuid::Uuid::from_u128(self.first.wrapping_add(given.into())))
    }

    fn now(&self) -> String {
        SystemStamp.now()
    }
}

/// Ids and timestamps from the system. Every token of a reply gets both, so they have to be cheap.
#[cfg(feature = "system")]
mod system {
    use super::unix_millis;
    use jiff::Timestamp;
    use std::cell::RefCell;
    use uuid::{Builder, Uuid};

    /// Random bytes per id.
    const ID_BYTES: usize = 10;

    thread_local! {
        /// Random bytes for many ids, fetched at once, and the position of the next.
        static RANDOM_POOL: RefCell<([u8; 64 * ID_BYTES], usize)> = const { RefCell::new(([0; _], 64 * ID_BYTES)) };
        /// The last timestamp, as milliseconds and as text.
        static LAST_TIME: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }

    /// A new unique id.
    pub(super) fn new_uuid() -> Uuid {
        let millis = u64::try_from(unix_millis()).unwrap_or_default();
        take_random().map_or_else(Uuid::now_v7, |random| {
            Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
        })
    }

    pub(super) fn to_hex(id: Uuid) -> String {
        id.simple().encode_lower(&mut [0; 32]).to_owned()
    }

    /// Takes fresh random bytes; `None` if the system has none.
    fn take_random() -> Option<[u8; ID_BYTES]> {
        RANDOM_POOL.with_borrow_mut(|(bytes, at)| {
            if *at >= bytes.len() {
                getrandom::fill(bytes).ok()?;
                *at = 0;
            }
            let part = bytes.get_mut(*at..)?.first_chunk_mut::<ID_BYTES>()?;
            *at += ID_BYTES;
            Some(std::mem::take(part))
        })
    }

    /// A timestamp as text. Cached, because many events happen in the same millisecond.
    pub(super) fn format_time(millis: i64) -> String {
        LAST_TIME.with_borrow_mut(|(last, text)| {
            if *last != millis {
                *last = millis;
                let time = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
                *text = format!("{time:.3}");
            }
            text.clone()
        })
    }
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;

    #[test]
    fn the_system_stamp_has_the_documented_form() {
        let (id, now) = (SystemStamp.id(), SystemStamp.now());
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert_eq!(now.len(), "2026-01-01T00:00:00.000Z".len(), "{now}");
        assert!(now.ends_with('Z'), "{now}");
        assert_ne!(id, SystemStamp.id());
    }

    #[test]
    fn ids_are_unique_across_threads() {
        let ids = || (0..1000).map(|_| SystemStamp.id()).collect::<Vec<_>>();
        let other = std::thread::spawn(ids);
        let all: Vec<String> = ids().into_iter().chain(other.join().unwrap()).collect();
        let different: std::collections::HashSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        let random = |id: &String| !id[13..].trim_start_matches('0').is_empty();
        assert!(all.iter().all(|id| id.as_bytes()[12] == b'7' && random(id)), "{all:?}");
    }

    #[test]
    fn sequential_ids_count_up_from_different_starts() {
        let (one, other) = (SequentialStamp::default(), SequentialStamp::default());
        let ids: Vec<String> = (0..300).map(|_| one.id()).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| id.len() == 32), "{ids:?}");
        let numbers: Vec<u128> =
            ids.iter().map(|id| u128::from_str_radix(id, 16).unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1));
        assert!(!ids.contains(&other.id()));
    }

    #[test]
    fn the_cached_time_follows_the_clock() {
        assert_eq!(system::format_time(1), "1970-01-01T00:00:00.001Z");
        assert_eq!(system::format_time(1), "1970-01-01T00:00:00.001Z");
        assert_eq!(system::format_time(2), "1970-01-01T00:00:00.002Z");
    }
}
