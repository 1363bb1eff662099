//! Where ids and times come from: always from outside.
//!
//! Nothing in this crate reads a clock or makes up an id. Who builds messages or events hands in a
//! [`Stamp`]: the real one (`SystemStamp`, with the feature `system`) or, in a test, [`FixedStamp`].
//!
//! ```
//! use turnwire_core::{Fixed, Msg};
//!
//! let msg = Msg::user("alice", "hi").stamped(&Fixed::default());
//! assert_eq!(msg.id(), "00000000000000000000000000000001");
//! assert_eq!(msg.created_at(), "2026-01-01T00:00:00.000Z");
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of ids and times.
pub trait Stamp {
    /// A new id: 32 hexadecimal digits.
    fn id(&self) -> String;
    /// The time: ISO 8601 in UTC, with milliseconds.
    fn now(&self) -> String;
}

/// The same ids and the same time in every run: 1, 2, 3, … and a morning that stands still.
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

/// The real clock, and ids that nobody else has (UUID version 7).
#[cfg(feature = "system")]
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemStamp;

#[cfg(feature = "system")]
impl Stamp for SystemStamp {
    fn id(&self) -> String {
        system::to_hex(system::new_uuid())
    }

    fn now(&self) -> String {
        system::format_time(system::unix_millis())
    }
}

/// The real clock, and ids that count up from one that nobody else has. Who remembers them needs no
/// room for each: see [`EventIds`](crate::EventIds).
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

/// A token of a reply has an id and a time of its own, so what they cost is much of what a token costs.
#[cfg(feature = "system")]
mod system {
    use jiff::Timestamp;
    use std::cell::RefCell;
    use std::time::{SystemTime, UNIX_EPOCH};
    use uuid::{Builder, Uuid};

    /// What the random part of an id takes.
    const PART: usize = 10;

    thread_local! {
        /// The system is asked for randomness for many ids at a time, and where the next is.
        static RANDOM: RefCell<([u8; 64 * PART], usize)> = const { RefCell::new(([0; _], 64 * PART)) };
        /// The last time that was told, and how it is written.
        static TOLD: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }

    /// One that nobody else has.
    pub(super) fn new_uuid() -> Uuid {
        let millis = u64::try_from(unix_millis()).unwrap_or_default();
        take_random().map_or_else(Uuid::now_v7, |random| {
            Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
        })
    }

    pub(super) fn to_hex(id: Uuid) -> String {
        id.simple().encode_lower(&mut [0; 32]).to_owned()
    }

    /// Random bytes that nobody else gets; `None` where the system gives none.
    fn take_random() -> Option<[u8; PART]> {
        RANDOM.with_borrow_mut(|(bytes, at)| {
            if *at >= bytes.len() {
                getrandom::fill(bytes).ok()?;
                *at = 0;
            }
            let part = bytes.get_mut(*at..)?.first_chunk_mut::<PART>()?;
            *at += PART;
            Some(std::mem::take(part))
        })
    }

    /// Since 1970.
    pub(super) fn unix_millis() -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// A time as text: many events are of one millisecond.
    pub(super) fn format_time(millis: i64) -> String {
        TOLD.with_borrow_mut(|(last, text)| {
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
    fn the_real_stamp_has_the_documented_shape() {
        let (id, now) = (SystemStamp.id(), SystemStamp.now());
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert_eq!(now.len(), "2026-01-01T00:00:00.000Z".len(), "{now}");
        assert!(now.ends_with('Z'), "{now}");
        assert_ne!(id, SystemStamp.id());
    }

    #[test]
    fn no_id_comes_twice_in_whichever_thread() {
        let ids = || (0..1000).map(|_| SystemStamp.id()).collect::<Vec<_>>();
        let other = std::thread::spawn(ids);
        let all: Vec<String> = ids().into_iter().chain(other.join().unwrap()).collect();
        let different: std::collections::HashSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        let random = |id: &String| !id[13..].trim_start_matches('0').is_empty();
        assert!(all.iter().all(|id| id.as_bytes()[12] == b'7' && random(id)), "{all:?}");
    }

    #[test]
    fn a_series_counts_up_and_no_two_begin_alike() {
        let (one, other) = (SequentialStamp::default(), SequentialStamp::default());
        let ids: Vec<String> = (0..300).map(|_| one.id()).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| id.len() == 32), "{ids:?}");
        let numbers: Vec<u128> =
            ids.iter().map(|id| u128::from_str_radix(id, 16).unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1));
        assert!(!ids.contains(&other.id()));
    }

    #[test]
    fn a_time_is_written_anew_when_it_is_another() {
        assert_eq!(system::format_time(1), "1970-01-01T00:00:00.001Z");
        assert_eq!(system::format_time(1), "1970-01-01T00:00:00.001Z");
        assert_eq!(system::format_time(2), "1970-01-01T00:00:00.002Z");
    }
}
