//! Schemas that are too expensive, in a process that is killed: the reply ends with a typed error,
//! and a restart does not repeat it.

use crate::client::{TestClient, ask, begin_with};
use crate::server::Process;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use turnwire_core::{Fields, Msg};
use turnwire_log::sqlite::Options;
use turnwire_log::store::{NewSession, QueuedMessage, SessionKey};
use turnwire_log::{Log, SqliteStore, Transaction};
use turnwire_testkit::values;

fn doubling_schema() -> Value {
    serde_json::from_str(&values::doubling_schema()).unwrap()
}

fn message(schema: &Value) -> Value {
    json!({"role": "user", "name": "ann", "content": "go",
        "metadata": {"client": {"output_schema": schema}}})
}

/// Stores a message that the current server would refuse.
async fn store_message(folder: &Path, schema: &Value) {
    let store = SqliteStore::open(folder.join("turnwire.db"), Options::default()).unwrap();
    let log = Log::new(Arc::new(store), "older");
    let msg = Msg::from_json(&message(schema).to_string()).unwrap();
    let msg = msg.to_builder().id("m").build().unwrap();
    let new = NewSession {
        key: SessionKey::new("default", "s"),
        agent: "friday".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 1,
    };
    let queued =
        QueuedMessage { id: "m".to_owned(), reply_id: "r".to_owned(), json: msg.to_json().into() };
    let (session, _) = log.create_session(new).await.unwrap();
    let enqueue = |tx: &mut Transaction<'_>| {
        tx.enqueue(queued);
        Ok::<_, turnwire_log::Error>(())
    };
    session.transact(&[], enqueue).await.unwrap();
}

/// The error of a reply.
async fn error_of(visitor: &mut TestClient, reply: &str) -> Value {
    let events = visitor.events_until_end(reply).await;
    events.last().unwrap()["error"].clone()
}

#[tokio::test]
async fn a_stored_schema_that_costs_too_much_ends_its_reply_and_no_restart_repeats_it() {
    let folder = tempfile::tempdir().unwrap();
    store_message(folder.path(), &doubling_schema()).await;
    let process = Process::start(folder.path());
    let mut visitor = TestClient::connect(process.address).await;
    let error = error_of(&mut visitor, "r").await;
    assert_eq!(error["type"], "invalid_request", "{error}");
    assert!(error["message"].as_str().unwrap().contains("too large"), "{error}");
    let before = visitor.get("/v1/sessions/s").await;
    process.kill();
    let process = Process::start(folder.path());
    let visitor = TestClient::connect(process.address).await;
    let after = visitor.get("/v1/sessions/s").await;
    assert_eq!(after["status"], "idle");
    assert_eq!(after["last_event_id"], before["last_event_id"]);
    // A retry is refused with the reason.
    let path = "/v1/sessions/s/messages/m/retry";
    let refused = ask(process.address, "POST", path, &Value::Null).await.unwrap();
    assert_eq!(refused["error"]["type"], "schema_too_large", "{refused}");
}

#[tokio::test]
async fn an_answer_that_costs_too_much_ends_its_reply_also_when_the_process_was_killed() {
    let schema = json!({"type": "string", "pattern": "^a{20000}$"});
    for kill_at in ["TEXT_BLOCK_END", "MODEL_CALL_END"] {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(folder.path());
        let reply = begin_with(process.address, "answers", &message(&schema)).await;
        let mut visitor = TestClient::connect(process.address).await;
        while visitor.next().await["type"] != kill_at {}
        process.kill();
        let process = Process::start(folder.path());
        let mut visitor = TestClient::connect(process.address).await;
        let error = error_of(&mut visitor, &reply).await;
        assert_eq!(error["type"], "invalid_request", "{error}");
        assert!(error["message"].as_str().unwrap().contains("cannot be checked"), "{error}");
    }
}
