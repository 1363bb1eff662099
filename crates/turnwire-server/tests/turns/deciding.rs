//! Who decided about a call, what was accepted along with it, and taking that back.

use crate::harness::*;
use crate::test_store::test_store;
use serde_json::{Value, json};

async fn get(server: &Harness, path: &str) -> Value {
    let answer = server.request_json("GET", path, None, &Value::Null).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

#[tokio::test]
async fn a_decision_says_what_was_changed_and_an_accepted_rule_can_be_revoked() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    let sent = server.send_text("ask").await;
    until_waiting(&session).await;
    let rule = json!({"tool_name": "trade", "rule_content": "amount<5", "behavior": "allow", "source": "demo"});
    let reply = sent.body["reply_id"].clone();
    let decided = json!({"type": "USER_CONFIRM_RESULT", "id": "a1", "reply_id": reply,
        "metadata": {"client": "tests", "by": "somebody else"},
        "confirm_results": [{"confirmed": true, "message": "small enough", "rules": [rule],
            "tool_call": {"id": "c1", "name": "trade", "input": "{\"amount\":2}"}}]});
    assert_eq!(server.post_event(decided).await.status, 200);
    until_idle(&session).await;

    let found = get(&server, "/v1/sessions/s/decisions").await;
    let [decision] = found["decisions"].as_array().unwrap().as_slice() else { panic!("{found}") };
    let of = |name: &str| decision[name].clone();
    assert_eq!(
        (of("call_id"), of("confirmed"), of("expired")),
        (json!("c1"), json!(true), json!(false))
    );
    assert_eq!((of("client"), of("reason")), (json!("tests"), json!("small enough")));
    assert_eq!(of("by"), Value::Null, "only the credentials say who decided");
    assert_eq!(of("input_after"), json!("{\"amount\":2}"));
    assert!(of("input_before").as_str().is_some_and(|before| !before.contains("2}")), "{decision}");
    assert_eq!(found["rules"].as_array().map(Vec::len), Some(1));

    // Twice: a request that is sent again changes nothing.
    for _ in 0..2 {
        let revoked = server.post("/v1/sessions/s/rules/revoke", json!({"rule": rule})).await;
        assert_eq!(revoked.status, 204);
    }
    assert_eq!(get(&server, "/v1/sessions/s/decisions").await["rules"], json!([]));
    let log = events(&session).await;
    assert_eq!(log.iter().filter(|event| event.kind.type_name() == "CUSTOM").count(), 1);
    assert!(session.snapshot().await.unwrap().state.rules.is_empty());
}

#[tokio::test]
async fn an_expired_question_is_told_apart_from_a_denial() {
    let settings = "[agents.actor]\nmodel = \"demo\"\napproval_timeout = \"50ms\"";
    let server = Harness::with_store(test_store(), settings);
    server.app.turns.recover().await.unwrap();
    let session = server.session("s", "actor").await;
    server.send_text("ask").await;
    until(&session, |head| head.head.get() > 5).await;
    until_idle(&session).await;
    let found = get(&server, "/v1/sessions/s/decisions").await;
    assert_eq!(found["decisions"][0]["expired"], json!(true), "{found}");
    assert_eq!(get(&server, "/v1/sessions/s").await["outcome"], json!("expired"));
}

#[tokio::test]
async fn messages_are_found_by_their_words_with_an_excerpt() {
    let server = Harness::new();
    let session = server.session("s", "actor").await;
    server.send_text("Somewhere a Pangolin hides").await;
    until_idle(&session).await;
    let found = get(&server, "/v1/sessions/s/search?q=pangolin+some").await;
    // The agent repeats it; the latest comes first.
    assert_eq!(found["hits"][1]["excerpt"], json!("Somewhere a Pangolin hides"), "{found}");
    assert_eq!(get(&server, "/v1/sessions/s/search?q=angolin").await["hits"], json!([]));
}

#[tokio::test]
async fn a_caller_learns_what_its_credentials_allow() {
    let me = get(&Harness::new(), "/v1/me").await;
    assert_eq!(me["scopes"], json!(["read", "chat", "publish", "approve", "admin"]), "{me}");
    assert_eq!((&me["limited"], &me["subject"]), (&json!(false), &Value::Null));
}
