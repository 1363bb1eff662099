//! Finished messages.

use super::harness::{Harness, Owner, assert_durable, message, seq};
use crate::store::{Append, MessageQuery, StoredMessage};
use bytes::Bytes;

/// A query for all messages.
fn all() -> MessageQuery {
    MessageQuery { limit: 1000, sub_agents: true, ..MessageQuery::default() }
}

pub(super) async fn messages_come_in_the_order_of_their_first_events(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let inner = message("inner", 2, 4, "two");
    let outer = message("outer", 1, 6, "one");
    let last = message("a last", 5, 8, "three");
    for (count, finished) in [(4, &inner), (2, &outer), (2, &last)] {
        let append = owner.events(count);
        let messages = vec![finished.clone()];
        harness.store().append(Append { messages, ..append }).await.unwrap();
    }
    assert_durable!(harness, |store| {
        let found = store.list_messages(owner.no, &all()).await.unwrap();
        assert_eq!(found, [outer.clone(), inner.clone(), last.clone()]);
    });
}

/// The expected result of a query.
fn expected<'a>(messages: &'a [StoredMessage], query: &MessageQuery) -> Vec<&'a StoredMessage> {
    let mut found: Vec<_> = messages
        .iter()
        .filter(|message| query.before.is_none_or(|before| message.first < before))
        .filter(|message| query.after.is_none_or(|after| message.first > after))
        .filter(|message| query.sub_agents || !message.of_sub_agent)
        .collect();
    if query.after.is_some() {
        found.truncate(query.limit);
    } else {
        found.drain(..found.len().saturating_sub(query.limit));
    }
    found
}

pub(super) async fn messages_are_listed_by_place_limit_and_author(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let mut messages = Vec::new();
    for at in 0..8_u64 {
        let first = owner.last + 1;
        let append = owner.events(3);
        let mut finished = message(&format!("m{at}"), first, owner.last, "");
        finished.of_sub_agent = at % 3 == 1;
        messages.push(finished.clone());
        harness.store().append(Append { messages: vec![finished], ..append }).await.unwrap();
    }
    let places = || [None, Some(1), Some(4), Some(5), Some(10), Some(22), Some(25), Some(u64::MAX)];
    let mut queries = Vec::new();
    for before in places() {
        for after in places() {
            for limit in [0, 1, 2, 5, 8, 100] {
                let (before, after) = (before.map(seq), after.map(seq));
                for sub_agents in [false, true] {
                    queries.push(MessageQuery {
                        before,
                        after,
                        limit,
                        sub_agents,
                        max_bytes: None,
                    });
                }
            }
        }
    }
    assert_durable!(harness, |store| {
        for query in &queries {
            let found = store.list_messages(owner.no, query).await.unwrap();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected(&messages, query), "{query:?}");
        }
    });
}

pub(super) async fn a_message_comes_back_whole(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let long = "wörd ".repeat(200_000);
    let mut whole = Vec::new();
    for (at, text) in ["", "a\0b", "日本語 \"quoted\"\n'single'", &long].into_iter().enumerate()
    {
        let append = owner.events(1);
        let place = seq(owner.last);
        let message = StoredMessage {
            id: format!("{at} '\" 日本\0"),
            first: place,
            last: place,
            event_id: format!("event {at}\0"),
            of_sub_agent: at % 2 == 0,
            superseded: at % 2 == 1,
            fold_version: u32::MAX - 1,
            json: Bytes::from(format!("{{\"text\": {text:?} }}")),
            text: text.to_owned(),
        };
        whole.push(message.clone());
        harness.store().append(Append { messages: vec![message], ..append }).await.unwrap();
    }
    assert_durable!(harness, |store| {
        for message in &whole {
            let found = store.find_message(owner.no, &message.id).await.unwrap();
            assert!(found.as_ref() == Some(message), "{} is not what it was", message.id);
        }
        assert!(store.list_messages(owner.no, &all()).await.unwrap() == whole);
        assert_eq!(store.find_message(owner.no, "nobody").await.unwrap(), None);
    });
}

pub(super) async fn a_list_of_messages_ends_when_it_has_so_many_bytes(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    for id in ["a", "b", "c", "d"] {
        harness.store().append(owner.reply(1, id, &"x".repeat(1000))).await.unwrap();
    }
    assert_durable!(harness, |store| {
        let size = store.find_message(owner.no, "a").await.unwrap().unwrap().size();
        for (bytes, first, last) in [
            (0, vec!["b"], vec!["d"]),
            (1, vec!["b"], vec!["d"]),
            (size, vec!["b"], vec!["d"]),
            (size + 1, vec!["b", "c"], vec!["c", "d"]),
            (3 * size, vec!["b", "c", "d"], vec!["b", "c", "d"]),
            (usize::MAX, vec!["b", "c", "d"], vec!["a", "b", "c", "d"]),
        ] {
            let latest = MessageQuery { max_bytes: Some(bytes), ..all() };
            let behind = MessageQuery { after: Some(seq(1)), ..latest.clone() };
            for (query, expected) in [(behind, first), (latest, last)] {
                let found = store.list_messages(owner.no, &query).await.unwrap();
                let found: Vec<_> = found.iter().map(|message| &*message.id).collect();
                assert_eq!(found, expected, "{query:?}");
            }
        }
    });
}

pub(super) async fn a_message_belongs_to_its_session(harness: &mut Harness) {
    let mut one = Owner::new(harness.store(), "t", "one").await;
    let mut two = Owner::new(harness.store(), "t", "two").await;
    harness.store().append(one.reply(2, "m", "of one")).await.unwrap();
    harness.store().append(two.reply(2, "m", "of two")).await.unwrap();
    let append = one.nothing();
    let superseded = vec!["m".to_owned()];
    harness.store().append(Append { superseded, ..append }).await.unwrap();
    assert_durable!(harness, |store| {
        let superseded = StoredMessage { superseded: true, ..message("m", 1, 2, "of one") };
        assert_eq!(store.list_messages(one.no, &all()).await.unwrap(), [superseded]);
        assert_eq!(
            store.list_messages(two.no, &all()).await.unwrap(),
            [message("m", 1, 2, "of two")]
        );
    });
}

pub(super) async fn superseded_messages_stay_and_say_so(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    for id in ["a", "b", "c"] {
        harness.store().append(owner.reply(2, id, "")).await.unwrap();
    }
    let append = owner.reply(2, "d", "");
    let superseded = ["b", "c", "nobody"].map(str::to_owned).into();
    harness.store().append(Append { superseded, ..append }).await.unwrap();
    assert_durable!(harness, |store| {
        let found = store.list_messages(owner.no, &all()).await.unwrap();
        let found: Vec<_> = found.iter().map(|found| (&*found.id, found.superseded)).collect();
        assert_eq!(found, [("a", false), ("b", true), ("c", true), ("d", false)]);
        assert!(store.find_message(owner.no, "c").await.unwrap().unwrap().superseded);
    });
}

pub(super) async fn messages_made_again_take_the_place_of_the_old(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    for id in ["a", "b", "c"] {
        store.append(owner.reply(2, id, "old")).await.unwrap();
    }
    store.append(owner.events(4)).await.unwrap();
    let before = owner.record(store).await;
    let again = StoredMessage {
        fold_version: 2,
        event_id: "event".to_owned(),
        of_sub_agent: true,
        superseded: true,
        ..message("b", 3, 6, "new")
    };
    let moved = message("c", 7, 8, "moved");
    let added = message("added", 5, 5, "added");
    let messages = vec![moved.clone(), again.clone(), added.clone()];
    store.replace_messages(owner.no, messages.clone()).await.unwrap();
    store.replace_messages(owner.no, Vec::new()).await.unwrap();
    assert_durable!(harness, |store| {
        let expected = [message("a", 1, 2, "old"), again.clone(), added.clone(), moved.clone()];
        assert_eq!(store.list_messages(owner.no, &all()).await.unwrap(), expected);
        assert_eq!(store.find_message(owner.no, "c").await.unwrap(), Some(moved.clone()));
        assert_eq!(owner.record(store).await, before);
        owner.check(store).await;
        // The same again changes nothing.
        store.replace_messages(owner.no, messages.clone()).await.unwrap();
    });
}
