//! Clients that reconnect in the middle of a turn.

use crate::fake_clients::{Flutter, React};
use crate::harness::{encoder, frames_of, full_turn};
use turnwire_core::{Event, coalesce};
use turnwire_testkit::{Rng, check_property, stream};
use turnwire_wires::blocks::DisplayMode;

/// A client that has the frames of the first events, and gets the others from another encoder that
/// has seen the same events.
fn resume_at(events: &[Event<'static>], at: usize, merged: bool) -> (React, Flutter) {
    let (seen, missed) = events.split_at(at);
    let (mut react, mut flutter) = (React::default(), Flutter::default());
    let mut show = |frames: Vec<Vec<String>>| {
        for frame in frames.concat() {
            react.apply_frame(&frame);
            flutter.apply_frame(&frame);
        }
    };
    show(frames_of(&mut *encoder(DisplayMode::Agent), seen));
    let mut late = encoder(DisplayMode::Agent);
    let (seen, missed): (Vec<Event<'_>>, Vec<Event<'_>>) = if merged {
        (coalesce(seen.to_vec()).collect(), coalesce(missed.to_vec()).collect())
    } else {
        (seen.to_vec(), missed.to_vec())
    };
    frames_of(&mut *late, &seen);
    show(frames_of(&mut *late, &missed));
    (react, flutter)
}

fn reply(rng: &mut Rng) -> Vec<Event<'static>> {
    stream::with_seqs(turnwire_testkit::random_reply(rng, "m1").events)
}

#[test]
fn a_client_that_reconnects_anywhere_ends_with_the_same_blocks() {
    check_property("a_client_that_comes_back_anywhere", 60, |rng| {
        let events = reply(rng);
        let whole = resume_at(&events, events.len(), false);
        for at in 0..events.len() {
            assert_eq!(resume_at(&events, at, false), whole, "from {at}");
        }
    });
}

#[test]
fn a_client_that_gets_merged_deltas_ends_with_the_same_blocks() {
    check_property("a_client_that_gets_merged_deltas", 60, |rng| {
        let events = reply(rng);
        let whole = resume_at(&events, events.len(), false);
        for at in 0..events.len() {
            assert_eq!(resume_at(&events, at, true), whole, "from {at}");
        }
    });
}

#[test]
fn a_client_that_reconnects_during_an_approval_keeps_its_blocks() {
    let events = full_turn();
    let whole = resume_at(&events, events.len(), false);
    for at in 0..events.len() {
        for merged in [false, true] {
            assert_eq!(resume_at(&events, at, merged), whole, "from {at}");
        }
    }
}
