//! Retention: whole finished replies, the oldest first, never their messages.

use super::harness::{
    Harness, Owner, assert_durable, assert_refused, line, lines, message, open_from, seq,
};
use crate::error::Error;
use crate::store::{
    Append, IdempotencyRecord, MessageQuery, Retention, RetentionReport, SessionState, Store,
};
use turnwire_core::Seq;

fn older_than(before_ms: i64) -> Retention {
    Retention { before_ms: Some(before_ms), ..Retention::default() }
}

fn at_most(max_bytes: u64) -> Retention {
    Retention { max_bytes: Some(max_bytes), ..Retention::default() }
}

/// The report of deleting the events between two seqs.
fn expected_report(owner: &Owner, first: u64, last: u64) -> RetentionReport {
    let bytes = (first..=last).map(|place| line(owner.no, place).len() as u64).sum();
    RetentionReport { events: last + 1 - first, bytes, sessions: 1, ..RetentionReport::default() }
}

/// Asserts that a session has everything from a seq on, and nothing before.
async fn assert_begins_at(store: &dyn Store, owner: &Owner, first: u64) {
    owner.check(store).await;
    assert_eq!(owner.record(store).await.first.get(), first);
    if first > 1 {
        assert_refused!(store.read_events(owner.no, seq(first - 1), 100).await, Error::Trimmed(_));
    }
}

/// Appends events at a time.
async fn append_at(
    store: &dyn Store,
    owner: &mut Owner,
    now_ms: i64,
    append: impl Fn(Append) -> Append,
) {
    owner.now_ms = now_ms;
    let events = owner.events(1);
    store.append(append(events)).await.unwrap();
}

pub(super) async fn retention_removes_nothing_that_it_was_not_asked_to(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    owner.now_ms = 10;
    harness.store().append(owner.reply(3, "m", "")).await.unwrap();
    assert_durable!(harness, |store| {
        for retention in [
            Retention::default(),
            older_than(10),
            older_than(i64::MIN),
            at_most(1 << 40),
            at_most(u64::MAX),
            Retention { keys_before_ms: Some(i64::MAX), ..Retention::default() },
        ] {
            assert_eq!(store.apply_retention(retention).await.unwrap(), RetentionReport::default());
        }
        assert_begins_at(store, &owner, 1).await;
    });
}

pub(super) async fn old_replies_go_and_their_messages_stay(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    let mut other = Owner::new(store, "other", "s").await;
    for (now_ms, id, count) in [(10, "a", 3), (20, "b", 4), (30, "c", 2)] {
        owner.now_ms = now_ms;
        store.append(owner.reply(count, id, "words")).await.unwrap();
    }
    other.now_ms = 25;
    store.append(other.reply(5, "x", "words")).await.unwrap();
    let before = owner.record(store).await;
    assert_eq!(store.apply_retention(older_than(21)).await.unwrap(), expected_report(&owner, 1, 7));
    assert_eq!(store.apply_retention(older_than(21)).await.unwrap(), RetentionReport::default());
    assert_durable!(harness, |store| {
        assert_begins_at(store, &owner, 8).await;
        assert_begins_at(store, &other, 1).await;
        let record = owner.record(store).await;
        assert_eq!(record, crate::store::SessionRecord { first: seq(8), ..before.clone() });
        let query = MessageQuery { limit: 9, ..MessageQuery::default() };
        let messages = store.list_messages(owner.no, &query).await.unwrap();
        let expected = [("a", 1, 3), ("b", 4, 7), ("c", 8, 9)];
        assert_eq!(messages, expected.map(|(id, first, last)| message(id, first, last, "words")));
    });
}

pub(super) async fn everything_can_go_and_the_log_goes_on(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let empty = Owner::new(harness.store(), "t", "empty").await;
    harness.store().append(owner.reply(3, "a", "")).await.unwrap();
    harness.store().append(owner.reply(2, "b", "")).await.unwrap();
    let everything = harness.store().apply_retention(older_than(1)).await.unwrap();
    assert_eq!(everything, expected_report(&owner, 1, 5));
    assert_durable!(harness, |store| {
        assert_begins_at(store, &owner, 6).await;
        assert_begins_at(store, &empty, 1).await;
        assert_eq!(store.read_events(owner.no, seq(6), 100).await.unwrap(), []);
        let again = store.apply_retention(at_most(0)).await.unwrap();
        assert_eq!(again, RetentionReport::default());
    });
    let mut owner = Owner::acquire(harness.store(), owner.record(harness.store()).await).await;
    assert_eq!(owner.last, 5);
    harness.store().append(owner.reply(3, "c", "")).await.unwrap();
    assert_durable!(harness, |store| assert_begins_at(store, &owner, 6).await);
}

pub(super) async fn an_open_reply_stays(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    store.append(owner.reply(3, "done", "")).await.unwrap();
    let append = owner.events(2);
    store.append(Append { state: Some(open_from(4)), ..append }).await.unwrap();
    // Something finished after it: a message, or a sub-agent's reply.
    let append = owner.reply(2, "behind", "");
    store.append(Append { state: Some(open_from(4)), ..append }).await.unwrap();
    assert_eq!(store.apply_retention(older_than(1)).await.unwrap(), expected_report(&owner, 1, 3));
    assert_eq!(store.apply_retention(at_most(0)).await.unwrap(), RetentionReport::default());
    assert_durable!(harness, |store| assert_begins_at(store, &owner, 4).await);
    // Once it has ended, it may be deleted.
    let mut owner = Owner::acquire(harness.store(), owner.record(harness.store()).await).await;
    let append = owner.events(1);
    let messages = vec![message("open", 4, 8, "")];
    let state = Some(SessionState::default());
    harness.store().append(Append { messages, state, ..append }).await.unwrap();
    assert_eq!(
        harness.store().apply_retention(older_than(1)).await.unwrap(),
        expected_report(&owner, 4, 8)
    );
    assert_durable!(harness, |store| assert_begins_at(store, &owner, 9).await);
}

pub(super) async fn replies_that_overlap_go_together(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    // a: 2 to 4, b: 3 to 6, c: 7.
    for now_ms in 1..=7 {
        append_at(store, &mut owner, now_ms, |append| Append {
            messages: match now_ms {
                4 => vec![message("a", 2, 4, "")],
                6 => vec![message("b", 3, 6, "")],
                7 => vec![message("c", 7, 7, "")],
                _ => Vec::new(),
            },
            ..append
        })
        .await;
    }
    for before in [5, 6] {
        // Events outside of replies may be deleted before them.
        let first = expected_report(&owner, 1, 1);
        let done = store.apply_retention(older_than(before)).await.unwrap();
        assert_eq!(
            done,
            if before == 5 { first } else { RetentionReport::default() },
            "before {before}"
        );
    }
    assert_begins_at(store, &owner, 2).await;
    assert_eq!(store.apply_retention(older_than(7)).await.unwrap(), expected_report(&owner, 2, 6));
    assert_durable!(harness, |store| assert_begins_at(store, &owner, 7).await);
}

pub(super) async fn a_finished_reply_that_overlaps_an_open_one_stays(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    // Open from 3, and a: 2 to 5.
    for now_ms in 1..=6 {
        append_at(store, &mut owner, now_ms, |append| Append {
            messages: if now_ms == 5 { vec![message("a", 2, 5, "")] } else { Vec::new() },
            state: (now_ms >= 3).then(|| open_from(3)),
            ..append
        })
        .await;
    }
    assert_eq!(
        store.apply_retention(older_than(100)).await.unwrap(),
        expected_report(&owner, 1, 1)
    );
    assert_eq!(store.apply_retention(at_most(0)).await.unwrap(), RetentionReport::default());
    assert_durable!(harness, |store| assert_begins_at(store, &owner, 2).await);
}

pub(super) async fn an_old_event_behind_a_young_one_stays(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    // The clock went backwards.
    for (now_ms, id) in [(10, "a"), (1000, "b"), (20, "c"), (2000, "d")] {
        owner.now_ms = now_ms;
        harness.store().append(owner.reply(2, id, "")).await.unwrap();
    }
    let done = harness.store().apply_retention(older_than(500)).await.unwrap();
    assert_eq!(done, expected_report(&owner, 1, 2));
    assert_durable!(harness, |store| assert_begins_at(store, &owner, 3).await);
}

/// A reply of exactly 1,000 bytes in two events.
fn thousand_bytes(owner: &mut Owner, now_ms: i64) -> Append {
    owner.now_ms = now_ms;
    let append = owner.reply(2, &format!("m{now_ms}"), "");
    let text = format!("{{\"pad\":\"{}\"}}\n", "x".repeat(489));
    let lines = append
        .lines
        .map(|lines| crate::store::EventLines { bytes: text.repeat(2).into(), ..lines });
    Append { lines, ..append }
}

pub(super) async fn the_oldest_go_until_the_rest_is_small_enough(harness: &mut Harness) {
    let store = harness.store();
    let mut one = Owner::new(store, "t", "one").await;
    let mut two = Owner::new(store, "t", "two").await;
    let mut three = Owner::new(store, "other", "three").await;
    for (owner, now_ms) in [(&mut one, 1), (&mut two, 2), (&mut three, 3)] {
        store.append(thousand_bytes(owner, now_ms)).await.unwrap();
    }
    for (owner, now_ms) in [(&mut three, 4), (&mut one, 5), (&mut two, 6)] {
        store.append(thousand_bytes(owner, now_ms)).await.unwrap();
    }
    let firsts = async |store: &dyn Store| {
        let mut firsts: Vec<u64> = Vec::new();
        for owner in [&one, &two, &three] {
            firsts.push(owner.record(store).await.first.get());
        }
        firsts
    };
    assert_eq!(store.apply_retention(at_most(6500)).await.unwrap(), RetentionReport::default());
    let done = store.apply_retention(at_most(4500)).await.unwrap();
    assert_eq!(
        done,
        RetentionReport { events: 4, bytes: 2000, sessions: 2, ..RetentionReport::default() }
    );
    assert_eq!(firsts(store).await, [3, 3, 1]);
    let done = store.apply_retention(at_most(2500)).await.unwrap();
    assert_eq!(
        done,
        RetentionReport { events: 4, bytes: 2000, sessions: 1, ..RetentionReport::default() }
    );
    assert_eq!(firsts(store).await, [3, 3, 5]);
    // Both limits: whichever deletes more.
    let both = Retention { before_ms: Some(6), max_bytes: Some(1 << 30), ..Retention::default() };
    let done = store.apply_retention(both).await.unwrap();
    assert_eq!(
        done,
        RetentionReport { events: 2, bytes: 1000, sessions: 1, ..RetentionReport::default() }
    );
    assert_durable!(harness, |store| assert_eq!(firsts(store).await, [5, 3, 5]));
    harness.store().apply_retention(at_most(0)).await.unwrap();
    assert_durable!(harness, |store| assert_eq!(firsts(store).await, [5, 5, 5]));
}

pub(super) async fn replies_of_one_append_are_told_apart_or_kept(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    // One append: a: 1 to 3, b: 4 to 6, and the beginning of a reply that stays open.
    let append = owner.events(8);
    let messages = vec![message("a", 1, 3, ""), message("b", 4, 6, "")];
    store.append(Append { messages, state: Some(open_from(7)), ..append }).await.unwrap();
    let done = store.apply_retention(older_than(1)).await.unwrap();
    let first = owner.record(store).await.first;
    assert!([1, 4, 7].map(seq).contains(&first), "cut in the middle of a reply, at {first}");
    assert_eq!(done.events, first.get() - 1);
    assert_durable!(harness, |store| assert_begins_at(store, &owner, first.get()).await);
    let mut owner = Owner::acquire(harness.store(), owner.record(harness.store()).await).await;
    let append = owner.events(1);
    let (state, messages) = (Some(SessionState::default()), vec![message("c", 7, 9, "")]);
    harness.store().append(Append { messages, state, ..append }).await.unwrap();
    harness.store().apply_retention(older_than(1)).await.unwrap();
    assert_durable!(harness, |store| assert_begins_at(store, &owner, 10).await);
}

pub(super) async fn old_keys_go(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let key = |now_ms: i64| IdempotencyRecord {
        tenant: if now_ms % 2 == 0 { "t" } else { "u" }.into(),
        key: now_ms.to_string(),
        fingerprint: [0; 32],
        response: String::new(),
    };
    for now_ms in 1..=6 {
        append_at(harness.store(), &mut owner, now_ms, |append| Append {
            idempotency: Some(key(now_ms)),
            ..append
        })
        .await;
    }
    let retention = Retention { keys_before_ms: Some(4), ..Retention::default() };
    let done = harness.store().apply_retention(retention).await.unwrap();
    assert_eq!(done, RetentionReport { keys: 3, ..RetentionReport::default() });
    assert_durable!(harness, |store| {
        for now_ms in 1..=6 {
            let key = key(now_ms);
            let found = store.find_idempotency_record(&key.tenant, &key.key).await.unwrap();
            assert_eq!(found.is_some(), now_ms >= 4, "the key of {now_ms}");
        }
        assert_begins_at(store, &owner, 1).await;
    });
}

pub(super) async fn retention_among_appends_loses_nothing(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let (store, no) = (harness.share(), owner.no);
    let writer = tokio::spawn(async move {
        for at in 0..150 {
            owner.now_ms = at;
            let append = store.append(owner.reply(2, &at.to_string(), ""));
            if at % 4 == 0 {
                append.await.unwrap();
            }
        }
        store.append(owner.reply(2, "last", "")).await.unwrap();
        owner
    });
    let mut events = 0;
    while !writer.is_finished() {
        let done = harness.store().apply_retention(at_most(400)).await.unwrap();
        events += done.events;
        // What is not trimmed can be read, also during retention.
        let mut from = Seq::FIRST;
        while let Err(error) = harness.store().read_events(no, from, 1000).await {
            let Error::Trimmed(first) = error else { panic!("{error:?}") };
            assert!(first > from, "trimmed at {from}, and {first} is the earliest");
            from = first;
        }
        tokio::task::yield_now().await;
    }
    let owner = writer.await.unwrap();
    events += harness.store().apply_retention(at_most(400)).await.unwrap().events;
    assert_durable!(harness, |store| {
        owner.check(store).await;
        let record = owner.record(store).await;
        assert_eq!((record.head.get(), record.first.get()), (302, events + 1));
        let kept = lines(owner.no, record.first.get(), u32::try_from(302 - events).unwrap());
        assert!(kept.bytes.len() <= 400);
    });
}
