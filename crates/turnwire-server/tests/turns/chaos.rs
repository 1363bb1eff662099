//! Several clients send random requests while the server crashes and restarts.

use crate::harness::*;
use crate::test_store::test_store;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use turnwire_core::EventKind;
use turnwire_log::sqlite::Options;
use turnwire_log::store::SessionStatus;
use turnwire_log::{Session, SqliteStore, Store};
use turnwire_testkit::{check_property, one_in, pick};

/// The responses that a client got.
#[derive(Default)]
struct ClientRecord {
    accepted: BTreeSet<String>,
    refused: BTreeSet<String>,
    cancelled: BTreeSet<String>,
}

#[test]
fn whatever_clients_do_at_once_each_message_is_answered_once_and_in_turn() {
    check_property("chaos in memory", 4, |rng| {
        chaos(&test_store(), rng);
    });
}

#[test]
fn the_same_on_a_disk() {
    check_property("chaos on a disk", 2, |rng| {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("db"), Options::default()).unwrap();
        chaos(&(Arc::new(store) as _), rng);
    });
}

fn chaos(store: &Arc<dyn Store>, rng: &mut Rng) {
    let mut record = ClientRecord::default();
    for life in 0..4 {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let seeds: Vec<u64> = (0..4).map(|_| rng.u64(..)).collect();
        let records = runtime.block_on(async {
            let server = Arc::new(Harness::with_store(store.clone(), ""));
            let session = server.session("s", "demo").await;
            server.app.turns.recover().await.unwrap();
            let clients = seeds
                .into_iter()
                .enumerate()
                .map(|(n, seed)| tokio::spawn(client(server.clone(), format!("{life}-{n}"), seed)));
            let mut records = Vec::new();
            for client in clients.collect::<Vec<_>>() {
                records.push(client.await.unwrap());
            }
            if life == 3 {
                settle(&server, &session).await;
            }
            records
        });
        for one in records {
            record.accepted.extend(one.accepted);
            record.refused.extend(one.refused);
            record.cancelled.extend(one.cancelled);
        }
        runtime.shutdown_timeout(Duration::from_secs(20));
    }
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Harness::with_store(store.clone(), "");
        let session = server.session("s", "demo").await;
        inspect(&session, &record).await;
    });
}

async fn client(server: Arc<Harness>, name: String, seed: u64) -> ClientRecord {
    let mut rng = Rng::with_seed(seed);
    let mut record = ClientRecord::default();
    let mut mine: Vec<String> = Vec::new();
    for n in 0..15 {
        match rng.u8(..10) {
            0..5 => {
                let id = format!("m{name}-{n}");
                let queue = if rng.bool() { "?queue=true" } else { "" };
                let text =
                    *pick(&mut rng, &["hello", "approve", "weather", "parallel", "long 5", "team"]);
                let path = format!("/v1/sessions/s/messages{queue}");
                let body = json!({"role": "user", "id": id, "content": text});
                // Some requests are sent twice.
                let mut answer = server.request_json("POST", &path, Some(&id), &body).await;
                if one_in(&mut rng, 3) {
                    let again = server.request_json("POST", &path, Some(&id), &body).await;
                    if answer.status == 202 {
                        assert_eq!(answer.body, again.body);
                    }
                    answer = again;
                }
                match answer.status.as_u16() {
                    202 => {
                        record.accepted.insert(id.clone());
                        mine.push(id);
                    }
                    409 | 429 => drop(record.refused.insert(id)),
                    other => panic!("{other} {}", answer.body),
                }
            }
            5..7 => answer(&server, &mut rng, &format!("{name}-{n}")).await,
            7 => {
                let session = server.session("s", "demo").await;
                server.stop(&session).await;
            }
            8 if !mine.is_empty() => {
                let id = pick(&mut rng, &mine);
                let path = format!("/v1/sessions/s/messages/{id}");
                let answer = server.request_json("DELETE", &path, None, &Value::Null).await;
                match answer.status.as_u16() {
                    204 => drop(record.cancelled.insert(id.clone())),
                    404 => assert!(record.cancelled.contains(id), "{id} is lost"),
                    409 => {}
                    other => panic!("{other} {}", answer.body),
                }
            }
            9 if !mine.is_empty() => {
                let path = format!("/v1/sessions/s/messages/{}/retry", pick(&mut rng, &mine));
                let answer = server.request_json("POST", &path, None, &Value::Null).await;
                assert!(matches!(answer.status.as_u16(), 202 | 404 | 409), "{}", answer.body);
            }
            _ => tokio::task::yield_now().await,
        }
    }
    record
}

/// Answers a pending call in a random way.
async fn answer(server: &Harness, rng: &mut Rng, id: &str) {
    let list = server.request_json("GET", "/v1/approvals", None, &Value::Null).await.body;
    for item in list["approvals"].as_array().unwrap() {
        for call in item["confirm"].as_array().unwrap() {
            let event = json!({"type": "USER_CONFIRM_RESULT", "id": id, "reply_id": item["reply_id"],
                "confirm_results": [{"confirmed": rng.bool(), "tool_call": {"id": call["id"]}}]});
            let answer = server.post_event(event).await;
            assert!(matches!(answer.status.as_u16(), 200 | 409), "{}", answer.body);
        }
    }
}

/// Answers everything until nothing is left to do.
async fn settle(server: &Harness, session: &Arc<Session>) {
    let mut rng = Rng::with_seed(1);
    for n in 0.. {
        let head = until(session, |head| head.status != SessionStatus::Running).await;
        let queue = session.snapshot().await.unwrap().queue;
        if head.status == SessionStatus::Idle
            && queue.is_empty()
            && server.app.turns.active_sessions() == 0
        {
            return;
        }
        answer(server, &mut rng, &format!("settle-{n}")).await;
        tokio::task::yield_now().await;
    }
}

async fn inspect(session: &Session, record: &ClientRecord) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut open: Option<String> = None;
    let mut answered = BTreeSet::new();
    for event in events(session).await {
        let is_top = !event.is_from_sub_agent();
        match &event.kind {
            EventKind::Message(message) => {
                assert_eq!(open, None, "a message came into the middle of a reply");
                *seen.entry(message.message.id().to_owned()).or_default() += 1;
            }
            EventKind::ReplyStart(_) if is_top => {
                assert!(open.is_none() || open.as_deref() == Some(&*event.reply_id));
                open = Some(event.reply_id.to_string());
            }
            EventKind::ReplyEnd(_) if is_top => {
                assert_eq!(open.take().as_deref(), Some(&*event.reply_id));
            }
            EventKind::UserConfirmResult(result) => {
                for result in &result.confirm_results {
                    let is_new =
                        answered.insert((event.reply_id.to_string(), result.tool_call.id.clone()));
                    assert!(is_new, "a call was answered twice");
                }
            }
            _ => {}
        }
    }
    assert_eq!(open, None);
    for id in &record.accepted {
        let times = seen.get(id).copied().unwrap_or_default();
        assert_eq!(times, usize::from(!record.cancelled.contains(id)), "{id}");
    }
    for id in &record.refused {
        assert!(!seen.contains_key(id), "{id} was refused");
    }
    check_projection(session).await;
}
