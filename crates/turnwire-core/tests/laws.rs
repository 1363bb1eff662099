//! The laws of the fold as properties over random streams. A failing case prints its seed; run it again with
//! `TURNWIRE_SEED`.
//!
//! `json.rs` pins the bytes of a fixed stream. Law 5 (linear) counts work inside the crate: see `src/work.rs`.
//! Law 6 concerns the wires.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use turnwire_core::{Event, Folder, Msg, Outcome, Seq, coalesce};
use turnwire_testkit::{check_property, one_in, pick, stream, values};

const CASES: u64 = 1500;

fn folded(events: &[Event<'_>]) -> Vec<Msg> {
    let mut folder = Folder::default();
    for event in events {
        folder.push(event).unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
    }
    folder.into_messages().collect()
}

fn bytes(messages: &[Msg]) -> Vec<String> {
    messages.iter().map(Msg::to_json).collect()
}

/// The message as a client would store it: its JSON and that of its cursor.
fn stored(msg: &Msg) -> (String, String) {
    (msg.to_json(), serde_json::to_string(&msg.cursor()).unwrap())
}

fn loaded((message, cursor): &(String, String)) -> Msg {
    Msg::from_json(message).unwrap().with_cursor(serde_json::from_str(cursor).unwrap())
}

#[test]
fn law_1_one_reply_one_message() {
    check_property("law_1_one_reply_one_message", CASES, |rng| {
        let (events, expected) = stream::random_replies(rng);
        assert_eq!(folded(&events), expected);
    });
}

#[test]
fn law_2_deterministic() {
    check_property("law_2_deterministic", CASES, |rng| {
        let (events, _) = stream::random_replies(rng);
        // Folded twice, and folded after reading them from JSON: the same bytes. (The hash tables of the fold
        // have a random seed per message, so an influence of their order would show.)
        let once = bytes(&folded(&events));
        assert_eq!(bytes(&folded(&events)), once);
        let lines: Vec<String> = events.iter().map(Event::to_json).collect();
        let read: Vec<Event<'_>> =
            lines.iter().map(|line| Event::from_json(line).unwrap()).collect();
        assert_eq!(bytes(&folded(&read)), once);
    });
}

#[test]
fn law_3_splittable() {
    check_property("law_3_splittable", 300, |rng| {
        let with_seq = rng.bool();
        let made = turnwire_testkit::random_reply(rng, "r");
        let events = if with_seq { stream::with_seqs(made.events) } else { made.events };
        for split in 0..=events.len() {
            let (first, second) = events.split_at(split);
            let mut msg = Msg::reply("r", "");
            for event in first {
                msg.append_event(event).unwrap();
            }
            let mut msg = loaded(&stored(&msg));
            for event in second {
                msg.append_event(event).unwrap();
            }
            assert_eq!(msg, made.message, "split at {split} of {}", events.len());
            // The cursor was restored: every event is a repeat now.
            let before = stored(&msg);
            for event in events.iter().filter(|event| event.kind.is_part_of_reply()) {
                assert_eq!(msg.append_event(event).unwrap(), Outcome::Repeated);
            }
            assert_eq!(stored(&msg), before);
        }
    });
}

#[test]
fn law_3_splittable_a_folder_is_stored_and_continues() {
    check_property("law_3_splittable_a_folder_is_stored_and_continues", 100, |rng| {
        let mut events = stream::random_replies(rng).0;
        let has_reset = one_in(rng, 3);
        if has_reset {
            let reset = r#"{"id":"reset","type":"RESET","epoch":"e"}"#;
            events.insert(rng.usize(..=events.len()), Event::from_json(reset).unwrap());
        }
        let (mut whole, mut split) = (Folder::default(), Folder::default());
        for event in &events {
            whole.push_tolerant(event);
            if one_in(rng, 4) {
                split = Folder::load(&split.dump()).unwrap();
            }
            split.push_tolerant(event);
        }
        assert_eq!(split.dump(), whole.dump());
        assert!(split.history().eq(whole.history()));
        // The cursors were restored: every event is a repeat. A reset is one only directly after itself.
        let (mut again, before) = (Folder::load(&split.dump()).unwrap(), split.dump());
        for event in events.iter().filter(|event| !has_reset && event.kind.is_part_of_reply()) {
            assert_ne!(again.push_tolerant(event).0, Outcome::Applied, "{event:?}");
        }
        assert_eq!(again.dump(), before);
    });
}

#[test]
fn law_4_idempotent() {
    check_property("law_4_idempotent", CASES, |rng| {
        let (events, expected) = stream::random_replies(rng);
        let events = if rng.bool() { stream::with_seqs(events) } else { events };
        let repeated = stream::with_repeats(rng, &events);
        assert_eq!(folded(&repeated), expected);
    });
}

#[test]
fn law_4_a_refused_event_changes_nothing_and_may_come_again() {
    check_property("law_4_a_refused_event_changes_nothing", CASES, |rng| {
        let made = turnwire_testkit::random_reply(rng, "r");
        let mut msg = Msg::reply("r", "");
        for event in &made.events {
            if one_in(rng, 3) {
                let misfit = match stream::second_start(&msg) {
                    Some(second) if rng.bool() => second,
                    _ => stream::misfit(rng, "r"),
                };
                let before = stored(&msg);
                let first = msg.append_event(&misfit).unwrap_err();
                assert_eq!(stored(&msg), before, "{first}");
                let again = msg.append_event(&misfit).unwrap_err();
                assert_eq!(again, first, "it was not remembered");
            }
            if one_in(rng, 8) {
                // An event of another reply is always refused.
                let foreign = stream::misfit(rng, "another");
                let before = stored(&msg);
                msg.append_event(&foreign).unwrap_err();
                assert_eq!(stored(&msg), before);
            }
            msg.append_event(event).unwrap();
        }
        assert_eq!(msg, made.message);
    });
}

#[test]
fn tolerant_applies_what_it_can_and_reports_the_rest() {
    check_property("tolerant", CASES, |rng| {
        let (events, expected) = stream::random_replies(rng);
        let mut folder = Folder::default();
        for event in &events {
            if one_in(rng, 4) && !event.reply_id.is_empty() && folder.get(&event.reply_id).is_some()
            {
                let misfit = stream::misfit(rng, &event.reply_id);
                let (outcome, problem) = folder.push_tolerant(&misfit);
                assert_eq!(outcome, Outcome::Skipped);
                problem.unwrap();
            }
            let (_, problem) = folder.push_tolerant(event);
            assert_eq!(problem, None);
        }
        assert_eq!(folder.messages().cloned().collect::<Vec<_>>(), expected);
    });
}

#[test]
fn law_7_unknown_survives_in_events() {
    check_property("law_7_unknown_survives_in_events", 4 * CASES, |rng| {
        let event = values::event(rng);
        let line = event.to_json();
        assert!(!line.contains('\n'));
        let read = Event::from_json(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(read, event, "{line}");
        assert_eq!(read.to_json(), line);
        let tree: serde_json::Value = serde_json::from_str(&line).unwrap();
        let from_tree: Event<'static> = serde_json::from_value(tree).unwrap();
        assert_eq!(from_tree.kind.type_name(), event.kind.type_name());
    });
}

#[test]
fn law_7_unknown_survives_in_messages() {
    check_property("law_7_unknown_survives_in_messages", 4 * CASES, |rng| {
        let msg = values::message(rng);
        let line = msg.to_json();
        let read = Msg::from_json(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(read, msg);
        assert_eq!(read.to_json(), line);
    });
}

#[test]
fn law_7_unknown_events_never_fail_a_stream() {
    check_property("law_7_unknown_events_never_fail_a_stream", CASES, |rng| {
        let (events, expected) = stream::random_replies(rng);
        let mut folder = Folder::default();
        for event in &events {
            // Before, between and after the events of a reply, also after its end; with common fields of
            // unusual types.
            let line = *pick(
                rng,
                &[
                    r#"{"type":"LATER","delta":{"a":1},"block_id":7,"id":null}"#,
                    r#"{"type":"LATER","seq":"first","metadata":[1],"reply_id":"r"}"#,
                    r#"{"type":"LATER","seq":0,"metadata":null,"created_at":12}"#,
                    r#"{"\u0074ype":"LATER","x":1e999}"#,
                ],
            );
            let unknown = Event::from_json(line).unwrap();
            assert_eq!(Event::from_json(&unknown.to_json()).unwrap(), unknown);
            let mut unknown = unknown.into_owned();
            unknown.reply_id = event.reply_id.clone();
            assert_eq!(folder.push(&unknown).unwrap(), Outcome::Ignored);
            folder.push(event).unwrap();
            assert_eq!(folder.push(&unknown).unwrap(), Outcome::Ignored);
        }
        assert_eq!(folder.messages().cloned().collect::<Vec<_>>(), expected);
    });
}

#[test]
fn coalesced_events_fold_to_the_same() {
    check_property("coalesced_events_fold_to_the_same", CASES, |rng| {
        let (events, expected) = stream::random_replies(rng);
        let plain = events.into_iter().map(|mut event| {
            // Events with unknown fields are not merged; here most have none.
            if !one_in(rng, 9) {
                event.rest = turnwire_core::Fields::default();
            }
            event
        });
        let events = stream::with_seqs(plain.collect());
        let merged: Vec<Event<'_>> = coalesce(events.iter().cloned()).collect();
        assert_eq!(bytes(&folded(&merged)), bytes(&expected));
        // Merging twice equals merging once, and every seq is covered once, in order.
        let again: Vec<Event<'_>> = coalesce(merged.iter().cloned()).collect();
        assert_eq!(again, merged);
        let mut next = Seq::FIRST;
        for event in &merged {
            assert_eq!(event.seq_from.or(event.seq), Some(next));
            next = event.seq.unwrap().next();
        }
        assert_eq!(next.get(), events.len() as u64 + 1);
        // A client that has seen a part and requests the rest gets the same messages.
        let seen = rng.usize(..=events.len());
        let mut folder = Folder::default();
        for event in events.iter().take(seen) {
            folder.push(event).unwrap();
        }
        for event in coalesce(events.iter().skip(seen).cloned()) {
            folder.push(&event).unwrap();
        }
        assert_eq!(folder.messages().map(Msg::to_json).collect::<Vec<_>>(), bytes(&expected));
    });
}
