//! Sessions: create, find, change, delete.

use super::harness::{Harness, Owner, all_of, assert_durable, assert_refused, message, new, seq};
use crate::error::Error;
use crate::store::{
    Append, IdempotencyRecord, MessageQuery, NewSession, QueuedMessage, SessionKey, SessionPatch,
    SessionRecord, SessionState, Store,
};
use bytes::Bytes;
use std::collections::HashSet;
use tokio::task::JoinSet;
use turnwire_core::{Fields, Head, Json};

pub(super) async fn a_session_is_made_once_and_found_again(harness: &mut Harness) {
    let mut first =
        NewSession { title: "Weather".to_owned(), ..new("alice", "chat", 1_700_000_000_123) };
    first.metadata.insert("colour", "blue");
    let (record, made) = harness.store().create_session(first.clone()).await.unwrap();
    assert!(made);
    assert!(record.epoch.len() >= 10, "too easily guessed: {}", record.epoch);
    assert!(
        record.epoch.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
        "not lower-case letters and digits: {}",
        record.epoch,
    );
    let expected = SessionRecord {
        number: record.number,
        key: SessionKey::new("alice", "chat"),
        epoch: record.epoch.clone(),
        agent: "demo".to_owned(),
        title: "Weather".to_owned(),
        metadata: first.metadata.clone(),
        created_ms: 1_700_000_000_123,
        updated_ms: 1_700_000_000_123,
        first: seq(1),
        head: Head::EMPTY,
        state: SessionState::default(),
    };
    assert_eq!(record, expected);
    assert_durable!(harness, |store| {
        assert_eq!(store.find_session(&expected.key).await.unwrap().as_ref(), Some(&expected));
        let (agent, title) = ("other".to_owned(), "Other".to_owned());
        let again = NewSession { agent, title, ..new("alice", "chat", 5) };
        let (found, made) = store.create_session(again).await.unwrap();
        assert!(!made);
        assert_eq!(found, expected);
        let unknown = SessionKey::new("alice", "Chat");
        assert_eq!(store.find_session(&unknown).await.unwrap(), None);
    });
}

pub(super) async fn one_id_is_another_session_for_another_tenant(harness: &mut Harness) {
    let (alice, _) = harness.store().create_session(new("alice", "chat", 1)).await.unwrap();
    let (bob, made) = harness.store().create_session(new("bob", "chat", 2)).await.unwrap();
    assert!(made);
    assert_ne!(alice.number, bob.number);
    assert_ne!(alice.epoch, bob.epoch);
    assert_durable!(harness, |store| {
        assert_eq!(store.find_session(&alice.key).await.unwrap().as_ref(), Some(&alice));
        assert_eq!(store.find_session(&bob.key).await.unwrap().as_ref(), Some(&bob));
    });
}

pub(super) async fn many_who_make_one_session_at_once_get_the_same(harness: &mut Harness) {
    for id in 0..10 {
        let mut makers = JoinSet::new();
        for _ in 0..8 {
            let store = harness.share();
            makers.spawn(async move {
                store.create_session(new("t", &id.to_string(), 1)).await.unwrap()
            });
        }
        let answers = makers.join_all().await;
        assert_eq!(answers.iter().filter(|(_, made)| *made).count(), 1, "made once");
        assert!(answers.iter().all(|(record, _)| *record == answers[0].0));
    }
    assert_durable!(harness, |store| assert_eq!(
        store.list_sessions(&all_of("t")).await.unwrap().len(),
        10
    ));
}

pub(super) async fn a_fork_is_open_until_it_is_complete(harness: &mut Harness) {
    let (record, made) = harness.store().create_fork(new("t", "s", 0)).await.unwrap();
    assert!(made && record.state.is_forking);
    assert_durable!(harness, |store| {
        let (again, made) = store.create_fork(new("t", "s", 0)).await.unwrap();
        assert!(!made);
        assert_eq!(again, record);
        assert_eq!(store.list_open_sessions().await.unwrap(), std::slice::from_ref(&record));
    });
    let owner = Owner::acquire(harness.store(), record).await;
    let state = Some(SessionState::default());
    harness.store().append(Append { state, ..owner.nothing() }).await.unwrap();
    assert_durable!(harness, |store| assert_eq!(store.list_open_sessions().await.unwrap(), []));
}

pub(super) async fn a_session_made_again_has_another_number_and_epoch(harness: &mut Harness) {
    let (mut numbers, mut epochs) = (HashSet::new(), HashSet::new());
    for round in 0..6 {
        let (record, made) = harness.store().create_session(new("t", "s", round)).await.unwrap();
        assert!(made);
        assert!(numbers.insert(record.number), "the number {:?} was used before", record.number);
        assert!(epochs.insert(record.epoch.clone()), "the epoch was used before");
        assert_eq!(record.created_ms, round);
        harness.store().delete_session(record.number).await.unwrap();
        if round % 2 == 1 {
            harness.reopen().await;
        }
        assert_eq!(harness.store().find_session(&record.key).await.unwrap(), None);
    }
}

pub(super) async fn a_patch_changes_what_it_names_and_nothing_else(harness: &mut Harness) {
    let store = harness.store();
    let (mut expected, _) = store.create_session(new("t", "s", 7)).await.unwrap();
    let (other, _) = store.create_session(new("t", "other", 7)).await.unwrap();
    let metadata: Fields = [("a", 1), ("b", 2)].into_iter().collect();
    let changes = [
        SessionPatch { title: Some("New".to_owned()), metadata: None },
        SessionPatch { title: None, metadata: Some(metadata.clone()) },
        SessionPatch { title: Some("Newer".to_owned()), metadata: None },
        SessionPatch::default(),
        SessionPatch { title: Some(String::new()), metadata: Some(Fields::default()) },
        SessionPatch { title: Some("Last".to_owned()), metadata: Some(metadata) },
        SessionPatch::default(),
    ];
    for patch in changes {
        if let Some(title) = &patch.title {
            expected.title.clone_from(title);
        }
        if let Some(metadata) = &patch.metadata {
            expected.metadata = metadata.clone();
        }
        assert_eq!(store.patch_session(expected.number, patch).await.unwrap(), expected);
    }
    assert_durable!(harness, |store| {
        assert_eq!(store.find_session(&expected.key).await.unwrap().as_ref(), Some(&expected));
        assert_eq!(store.find_session(&other.key).await.unwrap().as_ref(), Some(&other));
    });
}

pub(super) async fn metadata_and_names_come_back_as_they_were_given(harness: &mut Harness) {
    let odd = [
        "",
        " ",
        "a'b\"c",
        "'; DROP TABLE sessions; --",
        "日本語 👩‍👩‍👧 \u{202e}",
        "a\0b",
        "%_*?\n\t\\",
    ];
    let mut made = Vec::new();
    for (at, text) in odd.iter().enumerate() {
        let mut given = new(&format!("tenant {text}"), &format!("id {text}"), -1);
        given.agent = (*text).to_owned();
        given.title = (*text).to_owned();
        given.metadata.insert("z", *text);
        given
            .metadata
            .insert(*text, Json::parse("{\"n\":12345678901234567890123,\"e\":1e400}").unwrap());
        given.metadata.insert("a", at as u64);
        let (record, is_new) = harness.store().create_session(given.clone()).await.unwrap();
        assert!(is_new);
        made.push((given, record));
    }
    assert_durable!(harness, |store| {
        for (given, record) in &made {
            let found = store.find_session(&given.key).await.unwrap().unwrap();
            assert_eq!(found, *record);
            assert_eq!((&found.agent, &found.title), (&given.agent, &given.title));
            let text = |fields: &Fields| serde_json::to_string(fields).unwrap();
            assert_eq!(text(&found.metadata), text(&given.metadata), "the order too");
            let list = store.list_sessions(&all_of(&given.key.tenant)).await.unwrap();
            assert_eq!(list, [found]);
        }
    });
}

/// A session with content of every kind.
async fn filled_session(store: &dyn Store, id: &str) -> Owner {
    let mut owner = Owner::new(store, "t", id).await;
    let append = owner.reply(3, "m", "some words");
    let append = Append {
        idempotency: Some(IdempotencyRecord {
            tenant: "t".into(),
            key: format!("{id}/key"),
            fingerprint: [7; 32],
            response: "done".to_owned(),
        }),
        enqueue: vec![QueuedMessage {
            id: "q".to_owned(),
            reply_id: "r".to_owned(),
            json: Bytes::from_static(b"{}"),
        }],
        state: Some(super::harness::open_from(4)),
        ..append
    };
    store.append(append).await.unwrap();
    store.append(owner.events(1)).await.unwrap();
    owner
}

pub(super) async fn a_deleted_session_is_gone_with_all_it_had(harness: &mut Harness) {
    let gone = filled_session(harness.store(), "gone").await;
    let stays = filled_session(harness.store(), "stays").await;
    harness.store().delete_session(gone.no).await.unwrap();
    assert_durable!(harness, |store| {
        assert_eq!(store.find_session(&gone.key).await.unwrap(), None);
        for list in [
            store.list_sessions(&all_of("t")).await.unwrap(),
            store.list_open_sessions().await.unwrap(),
        ] {
            assert_eq!(super::harness::ids(&list), ["stays"]);
        }
        assert_refused!(store.read_events(gone.no, seq(1), 100).await, Error::NoSession);
        let patch = SessionPatch::default();
        assert_refused!(store.patch_session(gone.no, patch).await, Error::NoSession);
        assert_refused!(store.acquire_lease(gone.no, "me").await, Error::NoSession);
        let append = Append::empty(gone.no, gone.fence, 0);
        assert_refused!(store.append(append).await, Error::NoSession);
        assert_refused!(
            store.replace_messages(gone.no, vec![message("m", 1, 3, "")]).await,
            Error::NoSession
        );
        // Whether these fail or are empty is up to the engine.
        assert!(!matches!(store.find_message(gone.no, "m").await, Ok(Some(_))));
        let query = MessageQuery { limit: 10, sub_agents: true, ..MessageQuery::default() };
        assert!(store.list_messages(gone.no, &query).await.unwrap_or_default().is_empty());
        assert!(store.list_queued(gone.no).await.unwrap_or_default().is_empty());
        assert_eq!(store.find_idempotency_record("t", "gone/key").await.unwrap(), None);

        stays.check(store).await;
        assert!(store.find_message(stays.no, "m").await.unwrap().is_some());
        assert_eq!(store.list_queued(stays.no).await.unwrap().len(), 1);
        assert!(store.find_idempotency_record("t", "stays/key").await.unwrap().is_some());
    });
    // The second delete has nothing to delete: an engine may say so, and must not fail in another
    // way.
    let again = harness.store().delete_session(gone.no).await;
    assert!(matches!(again, Ok(()) | Err(Error::NoSession)), "{again:?}");
}

pub(super) async fn a_session_made_again_has_nothing_of_the_deleted_one(harness: &mut Harness) {
    let gone = filled_session(harness.store(), "s").await;
    harness.store().delete_session(gone.no).await.unwrap();
    let (made, is_new) = harness.store().create_session(new("t", "s", 9)).await.unwrap();
    assert!(is_new);
    assert_eq!(
        (made.first, made.head, &made.state),
        (seq(1), Head::EMPTY, &SessionState::default())
    );
    assert_durable!(harness, |store| {
        assert_eq!(store.find_session(&gone.key).await.unwrap().as_ref(), Some(&made));
        assert_eq!(store.read_events(made.number, seq(1), 100).await.unwrap(), []);
        let query = MessageQuery { limit: 10, sub_agents: true, ..MessageQuery::default() };
        assert_eq!(store.list_messages(made.number, &query).await.unwrap(), []);
        assert_eq!(store.list_queued(made.number).await.unwrap(), []);
    });
    let mut owner = Owner::acquire(harness.store(), made).await;
    harness.store().append(owner.events(2)).await.unwrap();
    assert_durable!(harness, |store| owner.check(store).await);
}

pub(super) async fn an_append_after_a_delete_is_no_session(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = filled_session(store, "s").await;
    store.delete_session(owner.no).await.unwrap();
    let next = owner.events(1);
    assert_refused!(store.append(next.clone()).await, Error::NoSession);
    assert_refused!(store.append(owner.nothing()).await, Error::NoSession);
    // Not even if a session with this name exists again.
    let (made, _) = store.create_session(new("t", "s", 0)).await.unwrap();
    assert_refused!(store.append(next.clone()).await, Error::NoSession);
    assert_durable!(harness, |store| {
        assert_refused!(store.append(next.clone()).await, Error::NoSession);
        assert_eq!(store.find_session(&made.key).await.unwrap().as_ref(), Some(&made));
    });
}

pub(super) async fn a_delete_among_appends_leaves_nothing_behind(harness: &mut Harness) {
    for round in 0..8 {
        let mut owner = Owner::new(harness.store(), "t", "s").await;
        let store = harness.store();
        let before: Vec<_> = (0..round).map(|_| store.append(owner.events(2))).collect();
        let (deleted, behind) = tokio::join!(store.delete_session(owner.no), async {
            let pending: Vec<_> = (0..8).map(|_| store.append(owner.events(2))).collect();
            let mut results = Vec::new();
            for append in pending {
                results.push(append.await);
            }
            results
        });
        deleted.unwrap();
        // Once an append finds no session, none after it does.
        let mut gone = false;
        for append in before {
            gone |= append.await.is_err();
        }
        for result in behind {
            assert!(!(gone && result.is_ok()), "written behind one that was not");
            gone |= result.is_err();
        }
        assert_refused!(store.append(owner.events(1)).await, Error::NoSession);
        assert_eq!(store.find_session(&owner.key).await.unwrap(), None);
        if round % 4 == 3 {
            harness.reopen().await;
            assert_eq!(harness.store().find_session(&owner.key).await.unwrap(), None);
            assert_eq!(harness.store().list_sessions(&all_of("t")).await.unwrap(), []);
        }
    }
}
