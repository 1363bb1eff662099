//! Messages compared with their events.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use turnwire_core::{Event, Fields, Seq};
use turnwire_log::doctor::{self, SessionFinding};
use turnwire_log::store::{
    Append, MessageQuery, NewSession, Retention, SessionKey, SessionRecord, SessionState,
    SessionStatus, Store, StoredMessage,
};
use turnwire_log::{Log, MemoryStore, Session};
use turnwire_testkit::{check_property, one_in, stream};

async fn session(log: &Log) -> Arc<Session> {
    let new = NewSession {
        key: SessionKey::new("t", "s"),
        agent: "external".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    };
    log.create_session(new).await.unwrap().0
}

async fn publish(session: &Arc<Session>, events: &[Event<'static>]) {
    let change = |tx: &mut turnwire_log::Transaction<'_>| {
        for event in events {
            tx.push(&mut event.clone(), None).unwrap();
        }
        Ok::<_, turnwire_log::Error>(())
    };
    session.transact(&[], change).await.unwrap();
}

fn user_message(id: &str) -> Event<'static> {
    let line = format!(
        r#"{{"id":"e-{id}","type":"MESSAGE","message":{{"id":"{id}","name":"alice","role":"user","content":"hi"}}}}"#
    );
    Event::from_json(&line).unwrap().into_owned()
}

fn supersede(id: &str) -> Event<'static> {
    let line = format!(r#"{{"id":"x-{id}","type":"SUPERSEDE","message_ids":["{id}"]}}"#);
    Event::from_json(&line).unwrap().into_owned()
}

async fn record(store: &dyn Store) -> SessionRecord {
    store.find_session(&SessionKey::new("t", "s")).await.unwrap().unwrap()
}

async fn findings(store: &dyn Store) -> Vec<SessionFinding> {
    doctor::check(store, &record(store).await).await.unwrap()
}

async fn messages(store: &dyn Store) -> Vec<StoredMessage> {
    let query = MessageQuery { limit: usize::MAX, sub_agents: true, ..MessageQuery::default() };
    store.list_messages(record(store).await.number, &query).await.unwrap()
}

#[test]
fn what_was_folded_as_it_came_is_found_healthy() {
    check_property("what_was_folded_as_it_came", 200, |rng| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let log = Log::new(Arc::new(MemoryStore::default()), "test");
            let session = session(&log).await;
            publish(&session, &[user_message("u"), user_message("v"), supersede("u")]).await;
            let (events, _) = stream::random_replies(rng);
            let cut = rng.usize(..=events.len());
            publish(&session, &events[..cut]).await;
            if one_in(rng, 2) {
                let retention = Retention { before_ms: Some(i64::MAX), ..Retention::default() };
                log.apply_retention(retention).await.unwrap();
            }
            publish(&session, &events[cut..]).await;
            assert_eq!(findings(&**log.store()).await, []);
        });
    });
}

#[test]
fn whatever_happened_to_messages_they_are_made_again() {
    check_property("whatever_happened_to_messages", 200, |rng| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let log = Log::new(Arc::new(MemoryStore::default()), "test");
            let store = &**log.store();
            let session = session(&log).await;
            publish(&session, &[user_message("u"), user_message("v"), supersede("u")]).await;
            publish(&session, &stream::random_replies(rng).0).await;
            let healthy = messages(store).await;
            let mut broken = healthy[rng.usize(..healthy.len())].clone();
            let mut outdated = false;
            match rng.u8(..7) {
                0 => broken.json = "{}".into(),
                1 => broken.text.push('x'),
                2 => broken.superseded = !broken.superseded,
                3 => broken.event_id.push('x'),
                4 => broken.of_sub_agent = !broken.of_sub_agent,
                5 => broken.last = broken.last.next(),
                _ => {
                    broken.fold_version = 0;
                    outdated = true;
                }
            }
            // A message beyond the head counts as not there yet.
            let is_last = !record(store).await.head.includes(broken.last);
            let id = broken.id.clone();
            store.replace_messages(session.number(), vec![broken]).await.unwrap();
            let found = findings(store).await;
            let expected = if outdated {
                SessionFinding::Outdated(id)
            } else if is_last {
                SessionFinding::Missing(id)
            } else {
                SessionFinding::Different(id)
            };
            assert_eq!(found, [expected]);
            assert!(found[0].can_be_repaired());
            doctor::repair(store, &record(store).await, &found).await.unwrap();
            assert_eq!(messages(store).await, healthy);
            assert_eq!(findings(store).await, []);
        });
    });
}

#[tokio::test]
async fn a_message_without_events_is_named_and_left_alone() {
    let log = Log::new(Arc::new(MemoryStore::default()), "test");
    let store = &**log.store();
    let session = session(&log).await;
    publish(&session, &[user_message("u")]).await;
    let ghost = StoredMessage { id: "ghost".to_owned(), ..messages(store).await[0].clone() };
    store.replace_messages(session.number(), vec![ghost]).await.unwrap();
    let found = findings(store).await;
    assert_eq!(found, [SessionFinding::WithoutEvents("ghost".to_owned())]);
    assert!(!found[0].can_be_repaired());
    doctor::repair(store, &record(store).await, &found).await.unwrap();
    assert_eq!(messages(store).await.len(), 2);
}

#[tokio::test]
async fn a_state_that_is_wrong_is_put_right() {
    let log = Log::new(Arc::new(MemoryStore::default()), "test");
    let store = &**log.store();
    let session = session(&log).await;
    publish(&session, &[user_message("u")]).await;
    let lines = [
        r#"{"id":"1","reply_id":"r","type":"REPLY_START","name":"friday"}"#,
        r#"{"id":"2","reply_id":"r","type":"TOOL_CALL_START","tool_call_id":"c","tool_call_name":"t"}"#,
        r#"{"id":"3","reply_id":"r","type":"TOOL_CALL_END","tool_call_id":"c"}"#,
        r#"{"id":"4","reply_id":"r","type":"REQUIRE_USER_CONFIRM","tool_calls":[{"type":"tool_call","id":"c","name":"t","input":"{}"}]}"#,
        r#"{"id":"5","reply_id":"r","type":"USER_CONFIRM_RESULT","confirm_results":[{"confirmed":true,"tool_call":{"type":"tool_call","id":"c","name":"t","input":"{}"},"rules":[{"tool_name":"t","behavior":"allow"}]}]}"#,
    ];
    let events = lines.map(|line| Event::from_json(line).unwrap().into_owned());
    publish(&session, &events).await;
    let healthy = record(store).await;
    assert_eq!(healthy.state.rules.len(), 1);
    assert_eq!(
        (healthy.state.status, healthy.state.open_from),
        (SessionStatus::Running, Seq::new(2))
    );
    let lease = store.acquire_lease(session.number(), "x").await.unwrap();
    let append = Append {
        state: Some(SessionState::default()),
        ..Append::empty(session.number(), lease.fence, 1)
    };
    store.append(append).await.unwrap();
    let found = findings(store).await;
    assert_eq!(found, [SessionFinding::State]);
    doctor::repair(store, &record(store).await, &found).await.unwrap();
    assert_eq!(record(store).await.state, healthy.state);
    assert_eq!(findings(store).await, []);
}

#[tokio::test]
async fn an_event_that_does_not_fit_is_named_and_the_rest_still_counts() {
    let log = Log::new(Arc::new(MemoryStore::default()), "test");
    let store = &**log.store();
    let session = session(&log).await;
    publish(&session, &[user_message("u")]).await;
    let lease = store.acquire_lease(session.number(), "x").await.unwrap();
    let bytes = "{\"type\":\"TEXT_BLOCK_END\",\"reply_id\":\"r\",\"block_id\":\"?\"}\nnothing\n";
    let append = Append {
        lines: Some(turnwire_log::store::EventLines {
            first: Seq::new(2).unwrap(),
            count: 2,
            bytes: bytes.into(),
        }),
        ..Append::empty(session.number(), lease.fence, 1)
    };
    store.append(append).await.unwrap();
    let log = Log::new(log.store().clone(), "again");
    let session = log.open_session(&SessionKey::new("t", "s")).await.unwrap();
    drop(session);
    let found = findings(store).await;
    let places: Vec<_> = found
        .iter()
        .map(|finding| match finding {
            SessionFinding::Event(seq, _) => seq.get(),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(places, [2, 3]);
}
