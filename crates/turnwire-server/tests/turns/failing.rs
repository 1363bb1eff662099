use crate::faulty_store::FaultyStore;
use crate::harness::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use turnwire_core::{ErrorType, FinishedReason};
use turnwire_log::MemoryStore;

#[tokio::test]
async fn an_agent_that_fails_leaves_a_reply_with_an_error() {
    for (wish, why) in [
        ("fail", "no luck"),
        ("panic", "panicked"),
        ("misfit", "TEXT_BLOCK_DELTA does not fit"),
        ("foreign", "names the reply another"),
        ("nothing", "without ending"),
    ] {
        let server = Harness::new();
        let session = server.session("s", "actor").await;
        let answer = server.send_text(wish).await;
        until_idle(&session).await;
        let reply = message(&session, answer.body["reply_id"].as_str().unwrap()).await;
        assert_eq!(reply.finished_reason(), Some(&FinishedReason::Error), "{wish}");
        let error = reply.error().unwrap();
        assert_eq!(error.r#type, ErrorType::Internal);
        assert!(error.message.contains(why), "{wish}: {}", error.message);
        check_projection(&session).await;
        // The session still works.
        assert_eq!(server.send_text("hello").await.status, 202);
        until_idle(&session).await;
    }
}

#[tokio::test]
async fn a_sub_agents_reply_is_closed_before_its_parents() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let answer = server.send_text("team").await;
    until(&session, |head| head.head.get() >= 6).await;
    server
        .post_event(
            serde_json::json!({"type": "USER_INTERRUPT", "reply_id": answer.body["reply_id"]}),
        )
        .await;
    until_idle(&session).await;
    let ends: Vec<_> = events(&session)
        .await
        .into_iter()
        .filter(|event| event.kind.type_name() == "REPLY_END")
        .collect();
    let parent = answer.body["reply_id"].as_str().unwrap();
    assert_eq!(ends.len(), 2);
    assert_eq!(ends[0].reply_id, format!("{parent}-sub"));
    assert_eq!(ends[0].agent.as_ref().unwrap().agent_path.as_deref(), Some("actor/helper"));
    assert_eq!((&*ends[1].reply_id, &ends[1].agent), (parent, &None));
    check_projection(&session).await;
}

#[tokio::test]
async fn a_sub_agents_reply_that_was_forgotten_is_closed() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let answer = server.send_text("team orphan").await;
    until_idle(&session).await;
    let sub = format!("{}-sub", answer.body["reply_id"].as_str().unwrap());
    assert_eq!(message(&session, &sub).await.finished_reason(), Some(&FinishedReason::Interrupted));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_let_go_does_not_hold_up_the_session() {
    let server = Harness::with_store(Arc::new(MemoryStore::default()), "");
    let session = server.session("s", "actor").await;
    let answer = server.send_text("stubborn").await;
    until(&session, |head| head.head.get() >= 3).await;
    assert_eq!(server.stop(&session).await.stored, 1);
    let reply = message(&session, answer.body["reply_id"].as_str().unwrap()).await;
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Interrupted));
    let next = server.send_text("hello").await;
    until_idle(&session).await;
    assert!(message(&session, next.body["reply_id"].as_str().unwrap()).await.error().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reply_goes_on_when_a_full_disk_has_room_again() {
    let store = Arc::new(FaultyStore::default());
    let server = Harness::with_store(store.clone(), "");
    let session = server.session("s", "actor").await;
    let answer = server.send_text("hold").await;
    until(&session, |head| head.head.get() >= 4).await;
    store.is_full.store(true, Ordering::SeqCst);
    server.actor.gate.add_permits(1);
    // Other clients see it; the agent waits.
    assert_eq!(
        server.post_event(serde_json::json!({"type": "CUSTOM", "name": "x"})).await.status,
        507
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(session.head_state().head.get(), 4);
    store.is_full.store(false, Ordering::SeqCst);
    until_idle(&session).await;
    let reply = message(&session, answer.body["reply_id"].as_str().unwrap()).await;
    assert_eq!(reply.text("").as_deref(), Some("before after"));
    check_projection(&session).await;
}

#[tokio::test]
async fn a_deleted_session_takes_its_agent_with_it() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    server.send_text("hold").await;
    until(&session, |head| head.head.get() >= 4).await;
    server.app.log.delete_session(session.key()).await.unwrap();
    server.actor.gate.add_permits(1);
    eventually(|| server.app.turns.active_sessions() == 0).await;
}
