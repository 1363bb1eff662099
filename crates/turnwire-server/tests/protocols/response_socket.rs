//! The WebSocket of the Responses API.

use crate::blocks::Socket;
use crate::blocks::running::{Running, within};
use crate::checked_http::send_http;
use crate::open_responses::checked;
use crate::test_store::test_store;
use async_trait::async_trait;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_tungstenite::tungstenite::Message;
use turnwire_agent::{AgentError, DemoAgent, Journal, Replier, ReplyRequest};
use turnwire_log::store::{SessionQuery, SessionStatus};
use turnwire_server::App;

/// An agent that begins to reply and never ends.
struct Endless;

#[async_trait]
impl Replier for Endless {
    fn description(&self) -> &'static str {
        "never ends"
    }

    fn model_name(&self) -> &'static str {
        "endless"
    }

    async fn run(&self, _: ReplyRequest, _: &mut dyn Journal) -> Result<(), AgentError> {
        std::future::pending().await
    }
}

pub struct SocketServer {
    server: Running,
    app: Arc<App>,
}

impl SocketServer {
    pub fn new(settings: &str) -> Self {
        let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(0.0));
        let slow: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(50.0));
        let agents = [("demo", demo), ("slow", slow), ("endless", Arc::new(Endless) as _)];
        let (server, app) = Running::start(test_store(), settings, agents);
        Self { server, app }
    }

    pub async fn open(&self) -> ResponseClient {
        self.open_with(&[]).await
    }

    async fn open_with(&self, headers: &[(&'static str, &'static str)]) -> ResponseClient {
        ResponseClient(Socket::open(self.server.address, "/v1/responses", headers).await)
    }

    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let sent = send_http(self.server.address, method, path, &[], body.as_bytes());
        let answer = within(sent).await.unwrap();
        (answer.status, serde_json::from_str(&answer.text()).unwrap_or_default())
    }

    async fn sessions(&self) -> usize {
        let query = SessionQuery::latest("default", 1000);
        self.app.log.list_sessions(&query).await.unwrap().len()
    }

    pub async fn stop(self) {
        self.server.stop().await;
    }
}

pub struct ResponseClient(Socket);

impl ResponseClient {
    pub async fn send(&mut self, more: Value) {
        let mut message = json!({"type": "response.create", "model": "demo"});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.0.send(&message).await;
    }

    /// The events up to the end of a response, or up to an error.
    pub async fn events(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.0.next().await;
            let kind = event["type"].as_str().unwrap().to_owned();
            events.push(event);
            let ends =
                ["response.completed", "response.failed", "response.incomplete", "error", "closed"];
            if ends.contains(&kind.as_str()) {
                return events;
            }
        }
    }

    /// Creates a response, and returns its last state.
    pub async fn create(&mut self, more: Value) -> Value {
        self.send(more).await;
        let events = self.events().await;
        for (at, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], at, "{event}");
        }
        let end = events.last().unwrap();
        assert_eq!(end["type"], "response.completed", "{end}");
        checked(end["response"].clone())
    }

    /// The code of the error that a message is answered with.
    pub async fn error(&mut self, more: Value) -> String {
        self.send(more).await;
        self.next_error().await
    }

    async fn next_error(&mut self) -> String {
        let error = self.0.next().await;
        assert_eq!(error["type"], "error", "{error}");
        assert!(error["status"].as_u64() >= Some(400), "{error}");
        assert!(error["error"]["message"].is_string() && error["error"]["type"].is_string());
        error["error"]["code"].as_str().unwrap().to_owned()
    }

    /// How the connection is closed.
    async fn closed(&mut self) -> String {
        loop {
            let message = self.0.next().await;
            if message["type"] == "closed" {
                return message["how"].as_str().unwrap().to_owned();
            }
        }
    }
}

fn text_of(response: &Value) -> String {
    let parts = response["output"].as_array().unwrap().iter();
    parts.filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

#[tokio::test]
async fn requests_are_answered_one_after_the_other() {
    let server = SocketServer::new("");
    let mut client = server.open().await;
    for input in ["first", "second", "third"] {
        client.send(json!({"input": input, "store": false, "stream": true})).await;
    }
    let mut ids = Vec::new();
    for _ in 0..3 {
        let events = client.events().await;
        assert_eq!(events[0]["type"], "response.created", "{events:?}");
        let end = events.last().unwrap();
        assert_eq!(end["type"], "response.completed", "{end}");
        let ours = &end["response"]["id"];
        let named = events.iter().filter_map(|event| event.get("response"));
        assert!(named.clone().all(|response| response["id"] == *ours), "{events:?}");
        ids.push(ours.clone());
        // The same response is there over HTTP.
        let path = format!("/v1/responses/{}", ours.as_str().unwrap());
        assert_eq!(server.ask("GET", &path, &Value::Null).await, (200, end["response"].clone()));
    }
    assert_eq!(server.sessions().await, 3);
    server.stop().await;
}

#[tokio::test]
async fn a_response_that_is_not_stored_continues_on_its_connection_only() {
    let server = SocketServer::new("");
    let mut client = server.open().await;
    let first = client.create(json!({"input": "Remember it.", "store": false})).await;
    let more = json!({"input": "And now?", "store": false, "previous_response_id": first["id"]});
    let second = client.create(more.clone()).await;
    assert_ne!(first["id"], second["id"]);
    assert_eq!(server.sessions().await, 1);

    let mut other = server.open().await;
    assert_eq!(other.error(more.clone()).await, "previous_response_not_found");
    assert_eq!(server.sessions().await, 1);
    // The connection goes on.
    other.create(json!({"input": "Then from the start.", "store": false})).await;
    // Whoever stores finds it: the log has everything.
    let stored = json!({"input": "Go on.", "previous_response_id": second["id"]});
    other.create(stored).await;
    assert_eq!(server.sessions().await, 2);
    let unknown =
        json!({"input": "x", "store": false, "previous_response_id": "resp_nobody~nothing"});
    assert_eq!(client.error(unknown.clone()).await, "previous_response_not_found");
    let (status, answer) = server
        .ask(
            "POST",
            "/v1/responses",
            &json!({"model": "demo", "input": "x", "previous_response_id": "resp_a~b"}),
        )
        .await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("previous_response_id")));
    server.stop().await;
}

#[tokio::test]
async fn a_response_that_could_not_be_continued_is_forgotten() {
    let server = SocketServer::new("");
    let mut client = server.open().await;
    let first = client.create(json!({"input": "Remember it.", "store": false})).await;
    let result = json!([{"type": "function_call_output", "call_id": "call_none", "output": "x"}]);
    let failed = json!({"input": result, "store": false, "previous_response_id": first["id"]});
    assert_eq!(client.error(failed).await, "unknown_call");
    let again = json!({"input": "Again.", "store": false, "previous_response_id": first["id"]});
    assert_eq!(client.error(again.clone()).await, "previous_response_not_found");
    // A prepared request, too.
    let prepared = client.create(json!({"input": "one", "generate": false})).await;
    let wrong = json!({"input": 7, "previous_response_id": prepared["id"]});
    assert_eq!(client.error(wrong).await, "invalid_request");
    let after = json!({"input": "two", "previous_response_id": prepared["id"]});
    assert_eq!(client.error(after).await, "previous_response_not_found");
    server.stop().await;
}

#[tokio::test]
async fn a_prepared_request_is_continued_as_if_it_had_been_sent() {
    let server = SocketServer::new("");
    let mut client = server.open().await;
    let tools = json!([{"type": "function", "name": "f", "parameters": {"type": "object"}}]);
    let prepare = json!({"input": "My name is Ann.", "generate": false, "tools": tools});
    let prepared = client.create(prepare).await;
    assert_eq!((&prepared["output"], &prepared["status"]), (&json!([]), &json!("completed")));
    assert_eq!(prepared["tools"][0]["name"], "f");
    assert_eq!(server.sessions().await, 0, "nothing is stored");
    let rest = json!([{"role": "user", "content": "What is my name?"}]);
    let response = client
        .create(json!({"input": rest, "store": false, "previous_response_id": prepared["id"]}))
        .await;
    assert_eq!(server.sessions().await, 1);
    let id = response["id"].as_str().unwrap();
    let (_, items) =
        server.ask("GET", &format!("/v1/responses/{id}/input_items?order=asc"), &Value::Null).await;
    let texts: Vec<&Value> =
        items["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts, ["My name is Ann.", "What is my name?"]);

    // One that continues a response.
    let after = json!({"input": [], "generate": false, "store": false, "previous_response_id": id});
    let prepared = client.create(after).await;
    let next = json!({"input": "Again.", "store": false, "previous_response_id": prepared["id"]});
    client.create(next).await;
    assert_eq!(server.sessions().await, 1);
    // No other connection knows it.
    let next = json!({"input": "Again.", "previous_response_id": prepared["id"]});
    assert_eq!(server.open().await.error(next).await, "previous_response_not_found");
    server.stop().await;
}

#[tokio::test]
async fn messages_that_make_no_sense_are_answered_and_the_connection_stays() {
    let server = SocketServer::new("");
    let mut client = server.open().await;
    for (message, code) in [
        ("{", "invalid_request"),
        ("[]", "invalid_request"),
        ("{}", "unknown_message_type"),
        (r#"{"type":"response.steer","input":"x"}"#, "unknown_message_type"),
        (r#"{"type":"response.create"}"#, "invalid_request"),
        (r#"{"type":"response.create","model":"demo"}"#, "invalid_request"),
        (
            r#"{"type":"response.create","model":"demo","input":"x","store":"no"}"#,
            "invalid_request",
        ),
        (
            r#"{"type":"response.create","model":"demo","input":"x","generate":1}"#,
            "invalid_request",
        ),
        (
            r#"{"type":"response.create","model":"demo","input":"x","stream_id":1}"#,
            "invalid_request",
        ),
        (r#"{"type":"response.create","model":"nobody","input":"x"}"#, "model_not_found"),
        (r#"{"type":"response.create","model":"nobody","generate":false}"#, "model_not_found"),
    ] {
        client.0.0.send(Message::text(message)).await.unwrap();
        assert_eq!(client.next_error().await, code, "{message}");
    }
    let long = json!({"input": "x", "stream_id": "x".repeat(257)});
    assert_eq!(client.error(long).await, "invalid_request");
    client.0.0.send(Message::binary(vec![1, 2])).await.unwrap();
    assert_eq!(client.next_error().await, "bad_request");
    assert_eq!(server.sessions().await, 0);
    // Codex says that it has read a response. There is no answer to that.
    client
        .0
        .0
        .send(Message::text(r#"{"type":"response.processed","response_id":"r"}"#))
        .await
        .unwrap();
    client.create(json!({"input": "hello"})).await;
    server.stop().await;
}

#[tokio::test]
async fn every_event_names_the_lane_of_its_request() {
    let server = SocketServer::new("");
    let mut client = server.open().await;
    client.send(json!({"input": "one", "stream_id": "a \"b\""})).await;
    client.send(json!({"input": "two"})).await;
    client.send(json!({"model": "nobody", "input": "three", "stream_id": "c"})).await;
    for lane in [json!("a \"b\""), Value::Null, json!("c")] {
        for event in client.events().await {
            assert_eq!(event["stream_id"], lane, "{event}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn pings_are_answered_while_a_response_runs_and_another_waits() {
    let server = SocketServer::new("[limits]\nstop_timeout = \"100ms\"\n");
    let mut client = server.open().await;
    for input in ["one", "two"] {
        client.send(json!({"model": "endless", "input": input})).await;
    }
    let socket = &mut client.0.0;
    socket.send(Message::Ping("still there?".into())).await.unwrap();
    loop {
        match within(socket.next()).await.unwrap().unwrap() {
            Message::Pong(payload) if payload == "still there?" => break,
            Message::Text(_) | Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(server.sessions().await, 1, "the second waits");
    // No more than so many.
    for input in 0..64 {
        client.send(json!({"model": "endless", "input": input.to_string()})).await;
    }
    assert_eq!(client.next_error().await, "too_many_requests");
    server.stop().await;
}

#[tokio::test]
async fn a_reply_outlives_the_connection() {
    let server = SocketServer::new("");
    let mut client = server.open().await;
    client.send(json!({"model": "slow", "input": "hello"})).await;
    let created = client.0.next().await;
    drop(client);
    let id = created["response"]["id"].as_str().unwrap().to_owned();
    let query = SessionQuery::latest("default", 1);
    let key = server.app.log.list_sessions(&query).await.unwrap()[0].key.clone();
    let session = server.app.log.open_session(&key).await.unwrap().unwrap();
    let mut head = session.watch_head();
    within(head.wait_for(|head| head.status == SessionStatus::Idle)).await.unwrap();
    let (_, response) = server.ask("GET", &format!("/v1/responses/{id}"), &Value::Null).await;
    assert_eq!(response["status"], "completed");
    assert!(!text_of(&response).is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_sends_the_response_to_its_end() {
    let server = SocketServer::new("");
    let mut client = server.open().await;
    client.send(json!({"model": "slow", "input": "hello"})).await;
    assert_eq!(client.0.next().await["type"], "response.created");
    let stopping = tokio::spawn(server.stop());
    let events = client.events().await;
    assert_eq!(events.last().unwrap()["type"], "response.completed", "{events:?}");
    let closed = client.closed().await;
    assert!(closed.contains("the server is stopping"), "{closed}");
    within(stopping).await.unwrap();
}

#[tokio::test]
async fn a_connection_has_a_time_limit_and_the_response_is_sent_before() {
    let server = SocketServer::new("[limits]\nresponse_socket = \"1ms\"\n");
    let mut client = server.open().await;
    assert_eq!(client.next_error().await, "websocket_connection_limit_reached");
    let closed = client.closed().await;
    assert!(closed.contains("time limit reached"), "{closed}");
    server.stop().await;

    let server = SocketServer::new("[limits]\nresponse_socket = \"300ms\"\n");
    let mut client = server.open().await;
    client.send(json!({"model": "slow", "input": "hello"})).await;
    let events = client.events().await;
    assert_eq!(events.last().unwrap()["type"], "response.completed", "{events:?}");
    assert_eq!(client.next_error().await, "websocket_connection_limit_reached");
    server.stop().await;
}

#[tokio::test]
async fn a_message_may_be_as_large_as_a_body_and_no_larger() {
    let server = SocketServer::new("[limits]\nbody = \"3 MiB\"\n");
    let mut client = server.open().await;
    client.create(json!({"input": "x".repeat(2 << 20)})).await;
    client.send(json!({"input": "x".repeat(3 << 20)})).await;
    let closed = client.closed().await;
    assert!(closed.contains("a message is too large"), "{closed}");
    server.stop().await;
}

#[tokio::test]
async fn the_handshake_may_name_a_session() {
    let server = SocketServer::new("");
    // A key is for one request, so it says nothing of those on a connection.
    let headers = [("turnwire-session", "mine"), ("idempotency-key", "once")];
    let mut client = server.open_with(&headers).await;
    for input in ["one", "two"] {
        let response = client.create(json!({"input": input})).await;
        assert!(response["id"].as_str().unwrap().starts_with("resp_mine~"), "{response}");
    }
    assert_eq!(server.sessions().await, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_foreign_origin_and_a_request_without_upgrade_are_refused() {
    let server = SocketServer::new("");
    let (status, answer) = server.ask("GET", "/v1/responses", &Value::Null).await;
    assert_eq!((status, &answer["error"]["type"]), (400, &json!("invalid_request_error")));
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("origin", "https://elsewhere.example"),
    ];
    let sent = send_http(server.server.address, "GET", "/v1/responses", &upgrade, b"");
    assert_eq!(within(sent).await.unwrap().status, 403);
    server.stop().await;
}
