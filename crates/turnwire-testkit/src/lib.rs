//! Generators and checks for Turnwire's own tests. Not published.
//!
//! ```
//! use turnwire_testkit::{check_property, random_reply};
//!
//! check_property("a_reply_folds_to_its_message", 3, |rng| {
//!     let made = random_reply(rng, "r1");
//!     let mut msg = turnwire_core::Msg::reply("r1", "");
//!     for event in &made.events {
//!         msg.append_event(event).unwrap();
//!     }
//!     assert_eq!(msg, made.message);
//! });
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`reply`] | random well-formed replies, with the message that they must fold into |
//! | `net` | with the feature `net`: HTTP and SSE clients, and a proxy that cuts connections |
//! | [`postgres`] | a real Postgres, and pgbouncer |
//! | [`stream`] | streams of many replies, with repeated and misplaced events |
//! | [`values`] | random messages, blocks and events |

#![expect(clippy::print_stderr, reason = "tests print their seed")]
#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(feature = "net")]
pub mod net;
pub mod postgres;
pub mod reply;
mod skip;
pub mod stream;
pub mod values;

pub use fastrand::Rng;
pub use reply::{GeneratedReply, random_reply};
pub use skip::{fixtures, skip};

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs the example of the repository's README as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Checks a property with many random cases. A failing case prints its seed; set `TURNWIRE_SEED` to run it
/// again.
pub fn check_property(name: &str, cases: u64, property: impl Fn(&mut Rng)) {
    let seed = std::env::var("TURNWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = seed.unwrap_or_else(|| fastrand::u64(..u64::MAX - cases));
    let cases = if seed.is_some() { 1 } else { cases };
    eprintln!("{name}: {cases} cases from seed {first}");
    for seed in first..first + cases {
        let case = || property(&mut Rng::with_seed(seed));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(case)) {
            eprintln!("{name} failed; run it again with TURNWIRE_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// A random item.
///
/// # Panics
///
/// If there is none.
#[expect(clippy::indexing_slicing, reason = "a number below the length")]
pub fn pick<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    &items[rng.usize(..items.len())]
}

/// True with the probability 1/`n`.
pub fn one_in(rng: &mut Rng, n: usize) -> bool {
    rng.usize(..n) == 0
}
