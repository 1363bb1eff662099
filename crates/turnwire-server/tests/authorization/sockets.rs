//! A socket that authenticates again watches no more than its new credentials reach.

use crate::harness::{ADMIN, Server, Socket, token};
use serde_json::{Value, json};

const SCOPES: &str = r#""read","chat""#;

fn server() -> Server {
    let tokens = [
        token(ADMIN, "acme", "\"admin\"", ""),
        token("tw_all", "acme", SCOPES, ""),
        token("tw_some", "acme", SCOPES, "sessions = [\"a*\"]\n"),
        token("tw_chat", "acme", "\"chat\"", ""),
        token("tw_other", "other", SCOPES, ""),
    ];
    Server::start(&tokens.concat(), Vec::new())
}

/// Publishes one event into each session.
async fn publish(server: &Server, sessions: &[&str], id: &str) {
    for session in sessions {
        let event = json!({"id": id, "reply_id": "", "type": "CUSTOM", "name": id, "value": 1});
        let path = format!("/v1/sessions/{session}/events");
        let answer = server.call("POST", &path, ADMIN, &event.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

async fn authenticate(socket: &mut Socket, token: &str) -> Vec<Value> {
    socket.send(json!({"type": "auth", "token": token, "id": "auth"})).await;
    let mut before = Vec::new();
    loop {
        let message = socket.next().await.unwrap();
        if message["id"] == "auth" {
            assert_ne!(message["type"], "error", "{message}");
            return before;
        }
        before.push(message);
    }
}

/// Everything that comes before the answer to a ping.
async fn until_pong(socket: &mut Socket) -> Vec<Value> {
    socket.send(json!({"type": "ping", "id": "pong"})).await;
    let mut seen = Vec::new();
    loop {
        let message = socket.next().await.unwrap();
        if message["id"] == "pong" {
            return seen;
        }
        seen.push(message);
    }
}

/// The sessions that the client was told it watches no longer.
fn lost(messages: &[Value]) -> Vec<&str> {
    let is_end = |message: &&Value| {
        matches!(message["type"].as_str(), Some("unsubscribed" | "error"))
            && message["code"] == "forbidden"
    };
    let mut lost: Vec<&str> =
        messages.iter().filter(is_end).filter_map(|it| it["session_id"].as_str()).collect();
    lost.sort_unstable();
    lost
}

async fn watching(server: &Server, wire: &str, sessions: &[&str]) -> Socket {
    let mut socket = server.socket(&format!("wire={wire}"), Some("tw_all")).await;
    for session in sessions {
        socket.send(json!({"type": "subscribe", "session_id": session})).await;
        socket.wait_for("subscribed").await;
    }
    socket
}

#[tokio::test]
async fn subscriptions_out_of_reach_of_the_new_credentials_end() {
    let server = server();
    let sessions = ["a1", "a2", "b1"];
    for session in sessions {
        let made = json!({"id": session, "agent": "external"}).to_string();
        assert_eq!(server.call("POST", "/v1/sessions", ADMIN, &made).await.status, 201);
        let made = server.call("POST", "/v1/sessions", "tw_other", &made).await;
        assert_eq!(made.status, 201);
    }
    for wire in ["turnwire", "agentscope", "blocks"] {
        // The same credentials, or others that reach as far, change nothing.
        let mut socket = watching(&server, wire, &sessions).await;
        for token in ["tw_all", ADMIN] {
            assert_eq!(lost(&authenticate(&mut socket, token).await), Vec::<&str>::new());
        }
        // Fewer sessions.
        let ended = authenticate(&mut socket, "tw_some").await;
        assert_eq!(lost(&ended), ["b1"], "{wire}: {ended:?}");
        // No right to read.
        let ended = authenticate(&mut socket, "tw_chat").await;
        assert_eq!(lost(&ended), ["a1", "a2"], "{wire}: {ended:?}");
        // Another tenant, which has sessions of the same names.
        let mut socket = watching(&server, wire, &sessions).await;
        let ended = authenticate(&mut socket, "tw_other").await;
        assert_eq!(lost(&ended), sessions, "{wire}: {ended:?}");
        until_pong(&mut socket).await;
        publish(&server, &sessions, &format!("after-{wire}")).await;
        let seen = until_pong(&mut socket).await;
        assert_eq!(seen, Vec::<Value>::new(), "{wire}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_stays_in_reach_goes_on_and_bad_credentials_change_nothing() {
    let server = server();
    for session in ["a1", "b1"] {
        let made = json!({"id": session, "agent": "external"}).to_string();
        assert_eq!(server.call("POST", "/v1/sessions", ADMIN, &made).await.status, 201);
    }
    let mut socket = watching(&server, "turnwire", &["a1", "b1"]).await;
    socket.send(json!({"type": "auth", "token": "wrong"})).await;
    assert_eq!(socket.wait_for("error").await["code"], "unauthorized");
    publish(&server, &["b1"], "one").await;
    assert_eq!(socket.wait_for("CUSTOM").await["session_id"], "b1");
    authenticate(&mut socket, "tw_some").await;
    publish(&server, &["b1", "a1"], "two").await;
    let event = socket.wait_for("CUSTOM").await;
    assert_eq!((&event["session_id"], &event["name"]), (&json!("a1"), &json!("two")));
    // It cannot come back to what is out of reach.
    socket.send(json!({"type": "subscribe", "session_id": "b1"})).await;
    assert_eq!(socket.wait_for("error").await["code"], "not_found");
    server.stop().await;
}

#[tokio::test]
async fn a_socket_that_authenticates_again_counts_once() {
    let limits = "[limits]\nconnections_per_tenant = 1\n";
    let tokens = [limits.to_owned(), token("tw_all", "acme", SCOPES, "")].concat();
    let server = Server::start(&tokens, Vec::new());
    let mut socket = server.socket("wire=turnwire", None).await;
    for _ in 0..3 {
        authenticate(&mut socket, "tw_all").await;
    }
    server.stop().await;
}
