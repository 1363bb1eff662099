//! The demo agent in every scene, with a crash at any point.

use crate::harness::*;
use fastrand::Rng;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use turnwire_core::{FinishedReason, Msg};
use turnwire_log::store::SessionStatus;
use turnwire_log::{MemoryStore, Session, Store};
use turnwire_testkit::check_property;

/// Approves everything, and sends a result for each external call.
pub async fn answer_all(server: &Harness, session: &Session) {
    let mut n = 0;
    loop {
        let head = until(session, |head| head.status != SessionStatus::Running).await;
        if head.status == SessionStatus::Idle {
            return;
        }
        let list =
            server.request_json("GET", "/v1/approvals", None, &serde_json::Value::Null).await.body;
        for item in list["approvals"].as_array().unwrap() {
            for call in item["confirm"].as_array().unwrap() {
                n += 1;
                let answer = server.post_event(json!({"type": "USER_CONFIRM_RESULT", "id": format!("a{n}"), "reply_id": item["reply_id"],
                    "confirm_results": [{"confirmed": true, "tool_call": {"id": call["id"]}}]})).await;
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
            for call in item["external"].as_array().unwrap() {
                n += 1;
                let answer = server.post_event(json!({"type": "EXTERNAL_EXECUTION_RESULT", "id": format!("a{n}"), "reply_id": item["reply_id"],
                    "execution_results": [{"type": "tool_result", "id": call["id"], "name": "x", "output": "done", "state": "success"}]})).await;
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
        }
    }
}

const SCENES: [&str; 10] = [
    "hello", "weather", "approve", "parallel", "browser", "image", "team", "json", "fail",
    "long 50",
];

#[tokio::test]
async fn every_scene_comes_to_its_end() {
    for scene in SCENES {
        let server = Harness::new();
        let session = server.session("s", "demo").await;
        let answer = server.send_text(scene).await;
        answer_all(&server, &session).await;
        let msg = message(&session, answer.body["reply_id"].as_str().unwrap()).await;
        let expected =
            if scene == "fail" { FinishedReason::Error } else { FinishedReason::Completed };
        assert_eq!(msg.finished_reason(), Some(&expected), "{scene}: {:?}", msg.error());
        check_projection(&session).await;
    }
}

/// The texts of a message and of its tool results.
fn shown(msg: &Msg) -> String {
    format!(
        "{:?} {:?}",
        msg.text("|"),
        msg.tool_calls()
            .map(|(call, result)| (call.name.clone(), result.map(|r| r.state.clone())))
            .collect::<Vec<_>>()
    )
}

/// What an uninterrupted reply shows.
async fn smooth(scene: &str) -> String {
    let server = Harness::new();
    let session = server.session("s", "demo").await;
    let answer = server.send_text(scene).await;
    answer_all(&server, &session).await;
    shown(&message(&session, answer.body["reply_id"].as_str().unwrap()).await)
}

#[test]
fn every_scene_is_whole_after_crashes_anywhere() {
    check_property("crashes in every scene", 5, |rng| {
        for scene in SCENES {
            crash(scene, rng);
        }
    });
}

fn crash(scene: &str, rng: &mut Rng) {
    // In memory: the tasks of another store would outlive the runtime, which stands for the process.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let mut reply = String::new();
    for life in 0..=4 {
        // Only this thread runs, so the run ends exactly where it is cut.
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Harness::with_store(store.clone(), "");
            let session = server.session("s", "demo").await;
            server.app.turns.recover().await.unwrap();
            if life == 0 {
                let answer = server.send_text(scene).await;
                answer.body["reply_id"].as_str().unwrap().clone_into(&mut reply);
            }
            if life < 4 {
                let enough = session.head_state().head.next().plus(rng.u64(..7));
                until(&session, |head| {
                    head.head.includes(enough) || head.status != SessionStatus::Running
                })
                .await;
                return;
            }
            answer_all(&server, &session).await;
            let msg = message(&session, &reply).await;
            assert_eq!(count(&session, "MESSAGE").await, 1);
            assert_eq!(count(&session, "REPLY_END").await, 1 + usize::from(scene == "team"));
            check_projection(&session).await;
            // A tool that was interrupted never runs twice, and the answer says so.
            if !shown(&msg).contains("Interrupted") {
                assert_eq!(shown(&msg), smooth(scene).await, "{scene}");
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(20));
    }
}
