use crate::faulty_store::FaultyStore;
use crate::harness::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use turnwire_core::EventKind;

async fn ask(house: &Harness, id: &str) -> Answer {
    house
        .request_json("POST", &format!("/v1/sessions/s/messages/{id}/retry"), None, &Value::Null)
        .await
}

#[tokio::test]
async fn a_retry_takes_the_old_reply_out_of_the_history() {
    let house = Harness::new();
    let session = house.session("s", "actor").await;
    let first = house.send_text("one").await.body;
    until_idle(&session).await;
    let (question, old) =
        (first["message_id"].as_str().unwrap(), first["reply_id"].as_str().unwrap());
    let before = session.head_state().head;
    let answer = ask(&house, old).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.body["message_id"], question);
    assert_eq!(answer.body["last_event_id"], json!(session.resume_token(before)));
    until_idle(&session).await;
    assert!(session.find_message(old).await.unwrap().unwrap().superseded);
    let log = events(&session).await;
    let at = usize::try_from(before).unwrap();
    assert!(matches!(&log[at].kind, EventKind::Supersede(s) if s.message_ids == [old]));
    assert!(matches!(&log[at + 1].kind, EventKind::ReplyStart(_)));
    assert_eq!(house.actor.calls.lock()[1].history, ["one"]);
    // A superseded message cannot be retried.
    let stale = ask(&house, old).await;
    assert_eq!((stale.status.as_u16(), stale.kind()), (409, "superseded"));
    // The question can.
    assert_eq!(ask(&house, question).await.status, 202);
    until_idle(&session).await;
    check_projection(&session).await;
}

#[tokio::test]
async fn a_retry_of_an_earlier_message_takes_all_behind_it_out() {
    let house = Harness::new();
    let session = house.session("s", "actor").await;
    let mut said = Vec::new();
    for text in ["one", "two", "three"] {
        said.push(house.send_text(text).await.body);
        until_idle(&session).await;
    }
    assert_eq!(ask(&house, said[1]["message_id"].as_str().unwrap()).await.status, 202);
    until_idle(&session).await;
    assert_eq!(house.actor.calls.lock()[3].history, ["one", "re: one", "two"]);
    house.send_text("four").await;
    until_idle(&session).await;
    assert_eq!(house.actor.calls.lock()[4].history, ["one", "re: one", "two", "re: two", "four"]);
}

#[tokio::test]
async fn nothing_is_retried_while_a_reply_is_open() {
    let house = Harness::new();
    let session = house.session("s", "actor").await;
    let first = house.send_text("one").await.body;
    until_idle(&session).await;
    let held = house.send_text("hold").await.body;
    let busy = ask(&house, first["message_id"].as_str().unwrap()).await;
    assert_eq!((busy.status.as_u16(), busy.kind()), (409, "busy"));
    assert_eq!(ask(&house, held["message_id"].as_str().unwrap()).await.status, 409);
    assert_eq!(ask(&house, held["reply_id"].as_str().unwrap()).await.status, 409);
    house.actor.gate.add_permits(1);
    until_idle(&session).await;
    let unknown = ask(&house, "nowhere").await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn a_retry_that_is_sent_twice_is_done_once() {
    let house = Harness::new();
    let session = house.session("s", "actor").await;
    let first = house.send_text("one").await.body;
    until_idle(&session).await;
    let path = format!("/v1/sessions/s/messages/{}/retry", first["message_id"].as_str().unwrap());
    let done = house.request_json("POST", &path, Some("k"), &Value::Null).await;
    until_idle(&session).await;
    let again = house.request_json("POST", &path, Some("k"), &Value::Null).await;
    assert_eq!((again.status.as_u16(), &again.body), (202, &done.body));
    assert_eq!(count(&session, "SUPERSEDE").await, 1);
}

#[tokio::test]
async fn for_an_agent_elsewhere_a_retry_is_only_logged() {
    let house = Harness::new();
    let session = house.session("s", "external").await;
    let one = house.send_text("one").await.body;
    house.send_text("two").await;
    let answer = ask(&house, one["message_id"].as_str().unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.body.get("reply_id")), (202, None));
    assert_eq!(types(&session).await, ["MESSAGE", "MESSAGE", "SUPERSEDE"]);
}

#[tokio::test]
async fn what_comes_in_while_a_retry_is_planned_is_taken_out_too() {
    let store = Arc::new(FaultyStore::default());
    let house = Arc::new(Harness::with_store(store.clone(), ""));
    let session = house.session("s", "external").await;
    let one = house.send_text("one").await.body["message_id"].as_str().unwrap().to_owned();
    house.send_text("two").await;
    store.is_slow_to_read.store(true, Ordering::SeqCst);
    let retry = tokio::spawn({
        let house = house.clone();
        async move { ask(&house, &one).await }
    });
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    house.send_text("three").await;
    store.hand_out.add_permits(100);
    assert_eq!(retry.await.unwrap().status, 202);
    let log = events(&session).await;
    let EventKind::Supersede(supersede) = &log.last().unwrap().kind else { panic!() };
    assert_eq!(supersede.message_ids.len(), 2);
}
