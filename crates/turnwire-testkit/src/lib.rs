//! Generators and checks that Turnwire's own tests share. Not published.
//!
//! ```
//! use turnwire_testkit::{check, random_reply};
//!
//! check("a_reply_folds_to_its_message", 3, |rng| {
//!     let made = reply(rng, "r1");
//!     let mut msg = turnwire_core::Msg::reply("r1", "");
//!     for event in &made.events {
//!         msg.append_event(event).unwrap();
//!     }
//!     assert_eq!(msg, made.message);
//! });
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`mod@reply`] | well-formed replies, with the message that they must become |
//! | `net` | with the feature `net`: plain clients, and a proxy that cuts connections anywhere |
//! | [`stream`] | many replies in one stream, repeats, noise |
//! | [`values`] | messages, blocks and events with anything in them |

#![expect(clippy::print_stderr, reason = "tests print their seed")]

#[cfg(feature = "net")]
pub mod net;
pub mod reply;
mod skip;
pub mod stream;
pub mod values;

pub use fastrand::Rng;
pub use reply::{GeneratedReply, random_reply};
pub use skip::{fixtures, skip};

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Runs a property over many random cases. The seed of a case that fails is printed, and
/// `TURNWIRE_SEED` runs that one again.
pub fn check_property(name: &str, cases: u64, property: impl Fn(&mut Rng)) {
    let given = std::env::var("TURNWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = given.unwrap_or_else(|| fastrand::u64(..u64::MAX - cases));
    let cases = if given.is_some() { 1 } else { cases };
    eprintln!("{name}: {cases} cases from seed {first}");
    for seed in first..first + cases {
        let case = || property(&mut Rng::with_seed(seed));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(case)) {
            eprintln!("{name} fails; run it again with TURNWIRE_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// One of the items.
///
/// # Panics
///
/// Where there is none.
#[expect(clippy::indexing_slicing, reason = "a number below the length")]
pub fn pick<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    &items[rng.usize(..items.len())]
}

/// True once in `n`.
pub fn one_in(rng: &mut Rng, n: usize) -> bool {
    rng.usize(..n) == 0
}
