//! Appends: dense, in order, all or nothing.

use super::harness::{
    Harness, Owner, assert_durable, assert_refused, lines, message, new, open_from, read_all, seq,
};
use crate::error::Error;
use crate::store::{
    Append, EventLines, Fence, IdempotencyRecord, MessageQuery, QueuedMessage, SessionNumber,
    SessionState, Store,
};
use bytes::Bytes;

pub(super) async fn events_come_back_byte_for_byte(harness: &mut Harness) {
    let owner = Owner::new(harness.store(), "t", "s").await;
    let long = format!("{{\"long\":\"{}\"}}", "é".repeat(600_000));
    let odd = [
        "{}",
        "{\"a\":1}",
        " {\"b\" : 1.0, \"b\":1e400 } ",
        "{\"esc\":\"\\u0000\\ud83d\\ude00\\/\"}",
        "{\"raw\":\"日本語 👩‍👩‍👧 \u{2028}\u{7f}\"}",
        "{\"cr\":1}\r",
        "{\"seq\":77,\"id\":\"not mine\"}",
        &long,
    ];
    let mut written = Vec::new();
    for size in [1, 3, odd.len()] {
        for part in odd.chunks(size) {
            let first = written.len() as u64 + 1;
            let bytes: String = part.iter().flat_map(|line| [line, "\n"]).collect();
            let count = u32::try_from(part.len()).unwrap();
            let lines = Some(EventLines { first: seq(first), count, bytes: Bytes::from(bytes) });
            harness.store().append(Append { lines, ..owner.nothing() }).await.unwrap();
            written.extend_from_slice(part);
        }
    }
    assert_durable!(harness, |store| {
        let found = read_all(store, owner.no, 1, 1000).await;
        assert_eq!(found.len(), written.len());
        for ((at, found), written) in found.iter().zip(&written) {
            assert!(found == written.as_bytes(), "event {at} came back as another one");
        }
    });
}

pub(super) async fn events_are_dense_and_in_order(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let mut other = Owner::new(harness.store(), "t", "other").await;
    for count in [1, 1, 5, 64, 2, 300, 1] {
        harness.store().append(owner.events(count)).await.unwrap();
        harness.store().append(other.events(2)).await.unwrap();
        let record = owner.record(harness.store()).await;
        assert_eq!((record.first.get(), record.head.get()), (1, owner.last));
    }
    assert_durable!(harness, |store| {
        owner.check(store).await;
        other.check(store).await;
    });
    // An owner that continues after the store was opened again.
    let mut owner = Owner::acquire(harness.store(), owner.record(harness.store()).await).await;
    harness.store().append(owner.events(3)).await.unwrap();
    assert_durable!(harness, |store| owner.check(store).await);
}

/// An append that would change everything.
fn append_with_everything(owner: &Owner, lines: Option<EventLines>) -> Append {
    Append {
        lines,
        now_ms: 99,
        messages: vec![message("new", 1, 2, "unseen")],
        superseded: vec!["m".to_owned()],
        state: Some(open_from(1)),
        idempotency: Some(IdempotencyRecord {
            tenant: "t".into(),
            key: "key".to_owned(),
            fingerprint: [1; 32],
            response: String::new(),
        }),
        enqueue: vec![QueuedMessage {
            id: "q2".to_owned(),
            reply_id: "r2".to_owned(),
            json: Bytes::from_static(b"{}"),
        }],
        dequeue: vec!["q".to_owned()],
        ..owner.nothing()
    }
}

/// A session with two messages and one queued message.
async fn session_with_content(store: &dyn Store, id: &str) -> Owner {
    let mut owner = Owner::new(store, "t", id).await;
    let append = owner.reply(3, "m", "words");
    let queued = QueuedMessage {
        id: "q".to_owned(),
        reply_id: "r".to_owned(),
        json: Bytes::from_static(b"{}"),
    };
    store.append(Append { enqueue: vec![queued], ..append }).await.unwrap();
    store.append(owner.reply(2, "n", "more")).await.unwrap();
    owner
}

/// Asserts that nothing of [`append_with_everything`] is in a [`session_with_content`].
pub(super) async fn assert_unchanged(store: &dyn Store, owner: &Owner) {
    owner.check(store).await;
    let record = owner.record(store).await;
    assert_eq!(record.state, SessionState::default());
    assert_eq!(record.updated_ms, 0);
    let query = MessageQuery { limit: 10, sub_agents: true, ..MessageQuery::default() };
    let messages = store.list_messages(owner.no, &query).await.unwrap();
    assert_eq!(messages, [message("m", 1, 3, "words"), message("n", 4, 5, "more")]);
    let queue = store.list_queued(owner.no).await.unwrap();
    assert_eq!(queue.iter().map(|queued| &*queued.id).collect::<Vec<_>>(), ["q"]);
    assert_eq!(store.find_idempotency_record("t", "key").await.unwrap(), None);
}

pub(super) async fn an_append_that_does_not_go_on_from_the_end_writes_nothing(
    harness: &mut Harness,
) {
    let store = harness.store();
    let owner = session_with_content(store, "s").await;
    for first in [1, 3, 5, 7, 100, u64::from(u32::MAX), u64::MAX / 2] {
        let append = append_with_everything(&owner, Some(lines(owner.no, first, 2)));
        assert_refused!(store.append(append).await, Error::OutOfOrder);
    }
    let empty = store.create_session(new("t", "empty", 0)).await.unwrap().0;
    let empty = Owner::acquire(store, empty).await;
    let append = Append { lines: Some(lines(empty.no, 2, 1)), ..empty.nothing() };
    assert_refused!(store.append(append).await, Error::OutOfOrder);
    assert_durable!(harness, |store| {
        assert_unchanged(store, &owner).await;
        empty.check(store).await;
    });
    // Only the bad append was refused: a correct one is accepted.
    let mut owner = Owner::acquire(harness.store(), owner.record(harness.store()).await).await;
    harness.store().append(owner.events(1)).await.unwrap();
    assert_durable!(harness, |store| owner.check(store).await);
}

pub(super) async fn what_is_queued_behind_a_failed_append_fails_too(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = session_with_content(store, "s").await;
    let good = store.append(owner.events(2));
    let mut lost = owner.clone();
    lost.last += 1;
    let failed = [
        // A gap, an append after the gap, and one without events that depends on it.
        store.append(lost.events(2)),
        store.append(lost.events(1)),
        store.append(append_with_everything(&lost, None)),
        store.append(lost.events(3)),
    ];
    // The log still ends after the correct append.
    let goes_on = store.append(owner.events(1));
    let rests_on_it = Append { dequeue: vec!["nobody".to_owned()], ..owner.nothing() };
    let rests_on_it = store.append(rests_on_it);

    goes_on.await.unwrap();
    rests_on_it.await.unwrap();
    good.await.unwrap();
    for append in failed {
        assert_refused!(append.await, Error::OutOfOrder);
    }
    assert_unchanged(store, &owner).await;

    // A new owner depends on no failed append.
    assert_refused!(store.append(lost.events(1)).await, Error::OutOfOrder);
    let owner = Owner::acquire(store, owner.record(store).await).await;
    store.append(owner.nothing()).await.unwrap();
    assert_durable!(harness, |store| assert_unchanged(store, &owner).await);
}

pub(super) async fn appends_land_in_the_order_of_the_calls_not_of_the_polls(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let mut pending: Vec<_> =
        (0..60).map(|at| harness.store().append(owner.events(at % 3 + 1))).collect();
    while let Some(append) = pending.pop() {
        append.await.unwrap();
    }
    assert_durable!(harness, |store| owner.check(store).await);
}

pub(super) async fn appends_land_though_nobody_waits_for_them(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    for at in 0..40 {
        drop(harness.store().append(owner.events(at % 3 + 1)));
    }
    harness.store().append(owner.events(1)).await.unwrap();
    assert_durable!(harness, |store| owner.check(store).await);
}

pub(super) async fn a_later_append_is_not_durable_before_an_earlier_one(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let earlier: Vec<_> = (0..40).map(|_| harness.store().append(owner.events(1))).collect();
    harness.store().append(owner.events(1)).await.unwrap();
    // The earlier appends were never polled.
    owner.check(harness.store()).await;
    for append in earlier {
        append.await.unwrap();
    }
    assert_durable!(harness, |store| owner.check(store).await);
}

pub(super) async fn a_failure_in_one_session_leaves_the_others_alone(harness: &mut Harness) {
    let store = harness.store();
    let deleted = Owner::new(store, "t", "deleted").await;
    store.delete_session(deleted.no).await.unwrap();
    let outdated = Owner::new(store, "t", "taken").await;
    let taken = Owner::acquire(store, outdated.record(store).await).await;
    let mut good = Owner::new(store, "t", "good").await;
    let bad = session_with_content(store, "bad").await;
    let (mut fine, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        fine.push(store.append(good.events(2)));
        refused.push(store.append(append_with_everything(&bad, Some(lines(bad.no, 90, 1)))));
        refused
            .push(store.append(append_with_everything(&outdated, Some(lines(outdated.no, 1, 1)))));
        fine.push(store.append(good.events(1)));
        refused.push(store.append(append_with_everything(&deleted, Some(lines(deleted.no, 1, 1)))));
    }
    for append in fine {
        append.await.unwrap();
    }
    for (at, append) in refused.into_iter().enumerate() {
        match at % 3 {
            0 => assert_refused!(append.await, Error::OutOfOrder),
            1 => assert_refused!(append.await, Error::Fenced),
            _ => assert_refused!(append.await, Error::NoSession),
        }
    }
    assert_durable!(harness, |store| {
        good.check(store).await;
        taken.check(store).await;
        assert_unchanged(store, &bad).await;
    });
}

pub(super) async fn an_append_without_events_changes_the_rest(harness: &mut Harness) {
    let owner = session_with_content(harness.store(), "s").await;
    harness.store().append(append_with_everything(&owner, None)).await.unwrap();
    assert_durable!(harness, |store| {
        owner.check(store).await;
        let record = owner.record(store).await;
        assert_eq!((record.state, record.updated_ms), (open_from(1), 99));
        assert!(store.find_message(owner.no, "new").await.unwrap().is_some());
        assert!(store.find_message(owner.no, "m").await.unwrap().unwrap().superseded);
        let queue = store.list_queued(owner.no).await.unwrap();
        assert_eq!(queue.iter().map(|queued| &*queued.id).collect::<Vec<_>>(), ["q2"]);
        assert!(store.find_idempotency_record("t", "key").await.unwrap().is_some());
    });
}

pub(super) async fn an_append_to_a_session_that_never_was_is_no_session(harness: &mut Harness) {
    let owner = Owner::new(harness.store(), "t", "s").await;
    for no in [0, -1, owner.no.0 + 1, i64::MAX, i64::MIN] {
        let no = SessionNumber(no);
        let lines = Some(lines(no, 1, 1));
        for fence in [owner.fence, Fence(0), Fence(u64::MAX)] {
            let append = Append { session: no, fence, lines: lines.clone(), ..owner.nothing() };
            assert_refused!(harness.store().append(append).await, Error::NoSession);
        }
        assert_refused!(harness.store().read_events(no, seq(1), 10).await, Error::NoSession);
    }
    assert_durable!(harness, |store| owner.check(store).await);
}
