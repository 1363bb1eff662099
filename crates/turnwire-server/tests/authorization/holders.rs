//! Idempotency keys belong to whoever holds the credentials.

use crate::checked_http::send_http;
use crate::harness::{Server, jwt, now, token};
use serde_json::{Value, json};
use std::sync::Arc;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_testkit::net::HttpResponse;

const SCOPES: &str = r#""read","chat""#;

fn server() -> Server {
    let tokens = [
        token("tw_ada", "acme", SCOPES, "subject = \"ada\"\n"),
        token("tw_ada_2", "acme", SCOPES, "subject = \"ada\"\n"),
        token("tw_bob", "acme", SCOPES, "subject = \"bob\"\n"),
        token("tw_nobody", "acme", SCOPES, ""),
        token("tw_no_one", "acme", SCOPES, ""),
    ];
    let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(0.0));
    Server::start(&tokens.concat(), vec![("demo", demo)])
}

async fn ask(server: &Server, path: &str, token: &str, key: &str, body: &Value) -> HttpResponse {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("idempotency-key", key)];
    let body = body.to_string();
    let asked = send_http(server.address(), "POST", path, &headers, body.as_bytes());
    crate::running::within(asked).await.unwrap()
}

fn is_replayed(answer: &HttpResponse) -> bool {
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    answer.header("idempotency-replayed") == Some("true")
}

#[tokio::test]
async fn a_key_replays_the_answer_to_its_own_holder_only() {
    let server = server();
    let made = json!({"id": "s", "agent": "demo"}).to_string();
    server.call("POST", "/v1/sessions", "tw_ada", &made).await;
    let body = json!({"content": "hello"});
    let path = "/v1/sessions/s/messages?queue=true";
    let renewed = [jwt("carol", "chat", now() + 600.0), jwt("carol", "chat", now() + 601.0)];
    let other = jwt("ada", "chat", now() + 600.0);
    for (token, replayed) in [
        ("tw_ada", false),
        ("tw_ada", true),
        // Another token of the same subject, and one of another.
        ("tw_ada_2", true),
        ("tw_bob", false),
        ("tw_bob", true),
        // Tokens that name nobody are each their own.
        ("tw_nobody", false),
        ("tw_no_one", false),
        ("tw_nobody", true),
        // A JWT that was renewed is the same subject's; a JWT is never a token's.
        (&renewed[0], false),
        (&renewed[1], true),
        (&other, false),
    ] {
        let answer = ask(&server, path, token, "key-1", &body).await;
        assert_eq!(is_replayed(&answer), replayed, "{token}: {}", answer.text());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_key_leads_nobody_else_into_the_session_that_it_made() {
    let server = server();
    let messages = json!([{"role": "user", "content": "hello"}]);
    let completion = json!({"model": "demo", "messages": messages, "max_tokens": 10});
    for (path, body) in [
        ("/v1/chat/completions", &completion),
        ("/v1/messages", &completion),
        ("/v1/responses", &json!({"model": "demo", "input": "hello"})),
    ] {
        let mut sessions = Vec::new();
        for token in ["tw_ada", "tw_ada_2", "tw_bob"] {
            let answer = ask(&server, path, token, "key-2", body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            sessions.push(answer.header("turnwire-session").unwrap().to_owned());
        }
        assert_eq!(sessions[0], sessions[1], "{path}: the same subject");
        assert_ne!(sessions[0], sessions[2], "{path}: another subject");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_key_of_another_holder_is_no_key_of_a_chat_or_of_a_result() {
    let server = server();
    // The AI SDK: the same request of somebody else finds the message there, and not the key.
    let chat = json!({"id": "c", "trigger": "submit-message", "messages": [
        {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]});
    assert_eq!(ask(&server, "/ai-sdk/demo", "tw_ada", "key-3", &chat).await.status, 200);
    assert_eq!(ask(&server, "/ai-sdk/demo", "tw_ada_2", "key-3", &chat).await.status, 200);
    let other = ask(&server, "/ai-sdk/demo", "tw_bob", "key-3", &chat).await;
    assert_eq!(
        (other.status, other.error_type().as_str()),
        (422, "nothing_new"),
        "{}",
        other.text()
    );

    // The result of a call is told again to its sender alone.
    let first = completion("browser", None);
    let answer = ask(&server, "/v1/chat/completions", "tw_ada", "key-4", &first).await;
    let call = &answer.json()["choices"][0]["message"]["tool_calls"][0];
    let session = answer.header("turnwire-session").unwrap().to_owned();
    let result = completion("browser", Some(call));
    let bring = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("idempotency-key", "key-5"),
            ("turnwire-session", session.as_str()),
        ];
        let body = result.to_string();
        let asked = call_with(&server, &headers, &body);
        crate::running::within(asked).await
    };
    assert_eq!(bring("tw_ada").await.status, 200);
    assert!(is_replayed(&bring("tw_ada_2").await));
    let other = bring("tw_bob").await;
    assert_eq!(other.status, 409, "{}", other.text());
    server.stop().await;
}

async fn call_with(server: &Server, headers: &[(&str, &str)], body: &str) -> HttpResponse {
    let path = "/v1/chat/completions";
    send_http(server.address(), "POST", path, headers, body.as_bytes()).await.unwrap()
}

fn completion(word: &str, call: Option<&Value>) -> Value {
    let mut messages = vec![json!({"role": "user", "content": word})];
    if let Some(call) = call {
        messages.push(json!({"role": "assistant", "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "done"}));
    }
    json!({"model": "demo", "messages": messages})
}
