//! Two requests at once: one wins, and the other gets an error. Each race runs many times, on two
//! threads.

use crate::harness::*;
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::sync::Arc;
use turnwire_core::FinishedReason;

const ROUNDS: usize = 60;

/// The responses of clients that send at the same time.
async fn at_once<F>(count: usize, mut ask: impl FnMut(usize) -> F) -> Vec<Answer>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let start = Arc::new(tokio::sync::Barrier::new(count));
    let tasks = (0..count).map(|n| {
        let (start, asked) = (start.clone(), ask(n));
        tokio::spawn(async move {
            start.wait().await;
            asked.await
        })
    });
    join_all(tasks.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect()
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_messages_at_once_one_starts_a_reply() {
    for _ in 0..ROUNDS {
        let server = Arc::new(Harness::new());
        let session = server.session("s", "actor").await;
        let answers = at_once(2, |_| {
            let server = server.clone();
            async move { server.send_text("hold").await }
        })
        .await;
        assert_eq!(statuses(&answers), [202, 409]);
        server.actor.gate.add_permits(1);
        until(&session, |head| head.head.get() >= 6).await;
        until_idle(&session).await;
        assert_eq!(count(&session, "MESSAGE").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_answers_at_once_one_counts() {
    for _ in 0..ROUNDS {
        let server = Arc::new(Harness::new());
        let session = server.session("s", "actor").await;
        let reply = server.send_text("ask").await.body["reply_id"].clone();
        until_waiting(&session).await;
        let answers = at_once(2, |n| {
            let (server, reply) = (server.clone(), reply.clone());
            async move {
                server
                    .post_event(json!({"type": "USER_CONFIRM_RESULT", "id": format!("a{n}"), "reply_id": reply,
                        "confirm_results": [{"confirmed": n == 0, "tool_call": {"id": "c1"}}]}))
                    .await
            }
        })
        .await;
        assert_eq!(statuses(&answers), [200, 409]);
        until_idle(&session).await;
        let expected = if answers[0].status == 200 { "yes " } else { "done " };
        let msg = message(&session, reply.as_str().unwrap()).await;
        assert_eq!(msg.text("").as_deref(), Some(expected));
        assert_eq!(server.actor.calls.lock().len(), 2);
        assert_eq!(count(&session, "USER_CONFIRM_RESULT").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_request_sent_several_times_at_once_is_done_once() {
    for _ in 0..ROUNDS {
        let server = Arc::new(Harness::new());
        let session = server.session("s", "actor").await;
        let answers =
            at_once(4, |_| {
                let server = server.clone();
                let body = json!({"content": "hold"});
                async move {
                    server.request_json("POST", "/v1/sessions/s/messages", Some("k"), &body).await
                }
            })
            .await;
        assert_eq!(statuses(&answers), [202; 4]);
        assert!(answers.iter().all(|answer| answer.body == answers[0].body));
        let fresh = answers.iter().filter(|a| !a.headers.contains_key("idempotency-replayed"));
        assert_eq!(fresh.count(), 1);
        assert_eq!(count(&session, "MESSAGE").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_and_the_end_at_once_leave_one_end() {
    for round in 0..ROUNDS {
        let server = Arc::new(Harness::new());
        let session = server.session("s", "actor").await;
        let reply = server.send_text("hold").await.body["reply_id"].clone();
        until(&session, |head| head.head.get() >= 4).await;
        let answers = at_once(2, |n| {
            let (server, reply) = (server.clone(), reply.clone());
            async move {
                if n == 0 {
                    server.actor.gate.add_permits(1);
                    if round % 2 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                server
                    .post_event(
                        json!({"type": "USER_INTERRUPT", "id": format!("s{n}"), "reply_id": reply}),
                    )
                    .await
            }
        })
        .await;
        assert_eq!(statuses(&answers), [200, 200]);
        until_idle(&session).await;
        let msg = message(&session, reply.as_str().unwrap()).await;
        let stopped = answers.iter().filter(|answer| answer.body["stored"] == 1).count();
        let reason = msg.finished_reason().unwrap();
        assert_eq!(stopped == 1, *reason == FinishedReason::Interrupted, "{stopped} {reason}");
        assert_eq!(count(&session, "REPLY_END").await, 1);
        // The session is free again.
        assert_eq!(server.send_text("hello").await.status, 202);
        check_projection(&session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_and_a_message_at_once_do_not_both_start() {
    for _ in 0..ROUNDS {
        let server = Arc::new(Harness::new());
        let session = server.session("s", "actor").await;
        let first = server.send_text("one").await.body;
        until_idle(&session).await;
        let answers = at_once(2, |n| {
            let (server, id) = (server.clone(), first["reply_id"].as_str().unwrap().to_owned());
            async move {
                if n == 0 {
                    return server.send_text("hold").await;
                }
                let path = format!("/v1/sessions/s/messages/{id}/retry");
                server.request_json("POST", &path, None, &Value::Null).await
            }
        })
        .await;
        // The first may be answered before the second is checked, unless it is held.
        let both = statuses(&answers);
        assert!(both == [202, 409] || (both == [202, 202] && answers[1].status == 202), "{both:?}");
        server.actor.gate.add_permits(1);
        until_idle(&session).await;
        check_projection(&session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_messages_are_answered_in_order_and_once_each() {
    for _ in 0..10 {
        let server = Arc::new(Harness::new());
        let session = server.session("s", "actor").await;
        let answers = at_once(12, |n| {
            let server = server.clone();
            async move {
                server
                    .post("/v1/sessions/s/messages?queue=true", json!({"content": format!("m{n}")}))
                    .await
            }
        })
        .await;
        assert_eq!(statuses(&answers), [202; 12]);
        eventually(|| {
            server.actor.calls.lock().len() == 12 && server.app.turns.active_sessions() == 0
        })
        .await;
        let last = server.actor.calls.lock()[11].history.clone();
        assert_eq!(last.len(), 23);
        for pair in last.chunks(2).filter(|pair| pair.len() == 2) {
            assert_eq!(pair[1], format!("re: {}", pair[0]));
        }
        assert_eq!(count(&session, "REPLY_END").await, 12);
        check_projection(&session).await;
    }
}
