//! Crashes: a runtime is dropped with all its tasks, without any cleanup.

use crate::harness::*;
use crate::test_store::test_store;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use turnwire_core::{FinishedReason, Msg};
use turnwire_log::Store;
use turnwire_log::store::SessionStatus;
use turnwire_testkit::check_property;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs a server, then ends it like a crash.
fn run_server<R>(
    store: &Arc<dyn Store>,
    settings: &str,
    live: impl AsyncFnOnce(Harness) -> R,
) -> R {
    let runtime = runtime();
    let store: Arc<dyn Store> = store.clone();
    let result = runtime.block_on(async {
        let server = Harness::with_store(store, settings);
        server.app.turns.recover().await.unwrap();
        live(server).await
    });
    runtime.shutdown_timeout(Duration::from_secs(20));
    result
}

#[test]
fn a_crash_in_the_middle_of_a_reply_is_made_up_for() {
    check_property("crashes in the middle of a reply", 10, |rng| {
        let store = test_store();
        let reply = run_server(&store, "", async |server| {
            server.session("s", "actor").await;
            let answer = server.send_text("count").await;
            answer.body["reply_id"].as_str().unwrap().to_owned()
        });
        // It crashes repeatedly, and gets a little further each time.
        let mut permitted = 0;
        while permitted < 9 {
            let more = rng.usize(1..4);
            permitted += more;
            run_server(&store, "", async |server| {
                let session = server.session("s", "actor").await;
                server.actor.gate.add_permits(more);
                eventually(|| {
                    let is_over = session.head_state().status == SessionStatus::Idle;
                    is_over || server.actor.gate.available_permits() == 0
                })
                .await;
                if session.head_state().status == SessionStatus::Idle {
                    return;
                }
                let partial = server.actor.calls.lock()[0].partial.clone();
                assert!(partial.is_none_or(|text| "0123456789".starts_with(&text)));
            });
        }
        run_server(&store, "", async |server| {
            let session = server.session("s", "actor").await;
            server.actor.gate.add_permits(10);
            until_idle(&session).await;
            let msg = message(&session, &reply).await;
            assert_eq!(msg.text("").as_deref(), Some("0123456789"));
            assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
            assert_eq!(count(&session, "MESSAGE").await, 1);
            check_projection(&session).await;
        });
    });
}

#[test]
fn a_crash_right_after_the_message_starts_its_reply_later() {
    let store = test_store();
    let reply = run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        // As if it had crashed between the commit and the agent's first event.
        server.app.turns.shutdown().await;
        let answer = server.send_text("hello").await;
        assert_eq!(session.head_state().status, SessionStatus::Running);
        answer.body["reply_id"].as_str().unwrap().to_owned()
    });
    run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        until_idle(&session).await;
        assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("re: hello"));
        assert_eq!(server.actor.calls.lock()[0].partial, None);
    });
}

#[test]
fn the_queue_survives_a_crash() {
    let store = test_store();
    run_server(&store, "", async |server| {
        server.session("s", "actor").await;
        server.send_text("hold").await;
        for text in ["first", "second"] {
            server.post("/v1/sessions/s/messages?queue=true", json!({"content": text})).await;
        }
    });
    run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        assert_eq!(session.snapshot().await.unwrap().queue.len(), 2);
        server.actor.gate.add_permits(1);
        until(&session, |_| server.actor.calls.lock().len() == 3).await;
        until_idle(&session).await;
        let last = server.actor.calls.lock()[2].history.clone();
        assert_eq!(last[2..], ["first", "re: first", "second"]);
    });
}

#[test]
fn the_queue_of_an_idle_session_gets_its_turn_after_a_restart() {
    let store = test_store();
    run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        // It crashed after the reply ended, before the next began.
        let json = Msg::user("u", "hello").to_builder().id("m").build().unwrap().to_json();
        let queued = turnwire_log::store::QueuedMessage {
            id: "m".into(),
            reply_id: "r".into(),
            json: json.into(),
        };
        session
            .transact(&[], |tx| {
                tx.enqueue(queued);
                Ok::<_, turnwire_log::Error>(())
            })
            .await
            .unwrap();
    });
    run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        until(&session, |head| head.head.get() > 2).await;
        until_idle(&session).await;
        assert_eq!(message(&session, "r").await.text("").as_deref(), Some("re: hello"));
    });
}

#[test]
fn an_approval_survives_a_crash_and_is_answered_once() {
    let store = test_store();
    let reply = run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        let answer = server.send_text("ask").await;
        until_waiting(&session).await;
        answer.body["reply_id"].clone()
    });
    let confirm = |id: &str| {
        json!({"type": "USER_CONFIRM_RESULT", "id": id, "reply_id": reply,
            "confirm_results": [{"confirmed": true, "tool_call": {"id": "c1"}}]})
    };
    run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        let pending = session.snapshot().await.unwrap().pending_calls();
        assert_eq!(pending[0].confirm[0].id, "c1");
        assert!(server.actor.calls.lock().is_empty(), "what waits is left alone");
        assert_eq!(server.post_event(confirm("a1")).await.status, 200);
        // It crashes before the outcome is known.
    });
    run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        until_idle(&session).await;
        assert_eq!(server.post_event(confirm("a1")).await.body["repeated"], 1);
        assert_eq!(server.post_event(confirm("a2")).await.status, 409);
        let msg = message(&session, reply.as_str().unwrap()).await;
        assert_eq!(msg.text("").as_deref(), Some("yes "));
        assert_eq!(count(&session, "USER_CONFIRM_RESULT").await, 1);
        check_projection(&session).await;
    });
}

#[test]
fn the_time_limit_of_a_question_survives_a_crash() {
    let store = test_store();
    let settings =
        |time: &str| format!("[agents.actor]\nmodel = \"demo\"\napproval_timeout = \"{time}\"");
    let reply = run_server(&store, &settings("1h"), async |server| {
        let session = server.session("s", "actor").await;
        let answer = server.send_text("ask").await;
        until_waiting(&session).await;
        answer.body["reply_id"].as_str().unwrap().to_owned()
    });
    run_server(&store, &settings("1ms"), async |server| {
        let session = server.session("s", "actor").await;
        until_idle(&session).await;
        assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("done "));
    });
}

#[test]
fn where_the_settings_say_so_an_open_reply_ends_with_a_restart() {
    let store = test_store();
    let settings = "[agents.actor]\nmodel = \"demo\"\non_restart = \"stop\"";
    let (held, asked) = run_server(&store, settings, async |server| {
        let (session, other) =
            (server.session("s", "actor").await, server.session("w", "actor").await);
        let held = server.send_text("hold").await;
        server.post("/v1/sessions/w/messages", json!({"content": "ask"})).await;
        until(&session, |head| head.head.get() >= 4).await;
        until_waiting(&other).await;
        (held.body["reply_id"].as_str().unwrap().to_owned(), other.head_state().head)
    });
    run_server(&store, settings, async |server| {
        let (session, other) =
            (server.session("s", "actor").await, server.session("w", "actor").await);
        until_idle(&session).await;
        let msg = message(&session, &held).await;
        assert_eq!(msg.finished_reason(), Some(&FinishedReason::Interrupted));
        assert_eq!(msg.text("").as_deref(), Some("before "));
        let log = events(&session).await;
        let types: Vec<&str> = log.iter().map(|event| event.kind.type_name()).collect();
        // The open reply is closed, and nothing else happens.
        assert!(types.ends_with(&["TEXT_BLOCK_DELTA", "TEXT_BLOCK_END", "REPLY_END"]), "{types:?}");
        // A pending approval stays pending.
        assert_eq!(
            (other.head_state().status, other.head_state().head),
            (SessionStatus::Waiting, asked)
        );
    });
}

#[test]
fn a_graceful_stop_leaves_replies_open() {
    let store = test_store();
    let reply = run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        let answer = server.send_text("hold").await;
        until(&session, |head| head.head.get() >= 4).await;
        server.app.turns.shutdown().await;
        assert_eq!(server.app.turns.active_sessions(), 0);
        assert_eq!(
            (session.head_state().status, session.head_state().head.get()),
            (SessionStatus::Running, 4)
        );
        answer.body["reply_id"].as_str().unwrap().to_owned()
    });
    run_server(&store, "", async |server| {
        let session = server.session("s", "actor").await;
        server.actor.gate.add_permits(1);
        until_idle(&session).await;
        assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("before after"));
    });
}

#[test]
fn an_owner_that_was_replaced_writes_nothing_more() {
    let store = test_store();
    let runtime = runtime();
    runtime.block_on(async {
        let old = Harness::with_store(store.clone(), "");
        let session = old.session("s", "actor").await;
        let answer = old.send_text("hold").await;
        until(&session, |head| head.head.get() >= 4).await;
        // Another process takes over while this one sleeps.
        let new = Harness::with_store(store.clone(), "");
        new.app.turns.recover().await.unwrap();
        let taken = new.session("s", "actor").await;
        eventually(|| new.actor.calls.lock().len() == 1).await;
        old.actor.gate.add_permits(1);
        eventually(|| old.app.turns.active_sessions() == 0).await;
        new.actor.gate.add_permits(1);
        until_idle(&taken).await;
        let msg = message(&taken, answer.body["reply_id"].as_str().unwrap()).await;
        assert_eq!(msg.text("").as_deref(), Some("before after"));
        assert_eq!(count(&taken, "REPLY_END").await, 1);
    });
}
