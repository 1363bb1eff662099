//! Where ids and times come from: always from outside.
//!
//! Nothing in this crate reads a clock or makes up an id. Who builds messages or events hands in a
//! [`Stamp`]: the real one (`System`, with the feature `system`) or, in a test, [`Fixed`].
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
pub struct Fixed(AtomicU64);

impl Stamp for Fixed {
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
pub struct System;

#[cfg(feature = "system")]
impl Stamp for System {
    fn id(&self) -> String {
        uuid::Uuid::now_v7().simple().to_string()
    }

    fn now(&self) -> String {
        format!("{:.3}", jiff::Timestamp::now())
    }
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;

    #[test]
    fn the_real_stamp_has_the_documented_shape() {
        let (id, now) = (System.id(), System.now());
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert_eq!(now.len(), "2026-01-01T00:00:00.000Z".len(), "{now}");
        assert!(now.ends_with('Z'), "{now}");
        assert_ne!(id, System.id());
    }
}
