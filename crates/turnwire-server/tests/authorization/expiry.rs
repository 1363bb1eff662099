//! Nothing outlives the credentials that it was opened with.

use crate::harness::{Endless, Server, jwt, now};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, advance};
use tower::ServiceExt;
use turnwire_agent::Replier;
use turnwire_log::store::{NewSession, SessionKey, SessionStatus};
use turnwire_log::{Log, MemoryStore, Session};
use turnwire_server::auth::{Auth, Identity};
use turnwire_server::config::Config;
use turnwire_server::{App, Caller};
use turnwire_wires::Wire;

/// How long the credentials of these tests are good.
const LIFE: Duration = Duration::from_secs(100);

/// The routes, for somebody whose credentials expire.
struct TestServer {
    app: Arc<App>,
    caller: Caller,
}

impl TestServer {
    fn new() -> Self {
        let config = Config::default();
        let everybody = Auth::without_credentials(&config.limits).authenticate_token("").unwrap();
        let expires_at = Some(Instant::now() + LIFE);
        let identity = Identity { expires_at, ..(*everybody.0).clone() };
        let log = Arc::new(Log::new(Arc::new(MemoryStore::default()), "test"));
        let endless: Arc<dyn Replier> = Arc::new(Endless);
        let app = App::new(config, log, BTreeMap::from([("endless".to_owned(), endless)])).unwrap();
        Self { app, caller: Caller(Arc::new(identity)) }
    }

    async fn send(&self, method: &str, path: &str, headers: &str, body: Body) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some((name, value)) = headers.split_once(": ") {
            request = request.header(name, value);
        }
        let mut request = request.body(body).unwrap();
        request.extensions_mut().insert(self.caller.clone());
        crate::checked_router::checked_router(self.app.clone()).oneshot(request).await.unwrap()
    }

    async fn session(&self, id: &str) -> Arc<Session> {
        let new = NewSession {
            key: SessionKey::new("default", id),
            agent: "external".to_owned(),
            title: String::new(),
            metadata: turnwire_core::Fields::default(),
            now_ms: 0,
        };
        self.app.log.create_session(new).await.unwrap().0
    }

    /// A session with a reply that is open.
    async fn open_reply(&self, id: &str) -> Arc<Session> {
        let session = self.session(id).await;
        let lines = [
            r#"{"id":"1","reply_id":"r","type":"REPLY_START","name":"x"}"#,
            r#"{"id":"2","reply_id":"r","type":"TEXT_BLOCK_START","block_id":"b"}"#,
            r#"{"id":"3","reply_id":"r","type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"word"}"#,
        ];
        let events = lines.join("\n");
        let path = format!("/v1/sessions/{id}/events");
        let answer = self.send("POST", &path, "turnwire-producer: p.1", events.into()).await;
        assert_eq!(answer.status(), 200);
        session
    }
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn last_frame(text: &str) -> &str {
    text.trim_end().rsplit("\n\n").next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_ends_at_the_expiry_on_every_wire_and_says_why() {
    for wire in Wire::all().filter(|wire| wire.can_encode()) {
        let server = TestServer::new();
        let session = server.open_reply("s").await;
        let start = Instant::now();
        let path = format!("/v1/sessions/s/events?wire={}", wire.name);
        let response = server.send("GET", &path, "", Body::empty()).await;
        assert_eq!(response.status(), 200, "{}", wire.name);
        let text = text(response).await;
        assert!(start.elapsed() <= LIFE, "{}: {:?}", wire.name, start.elapsed());
        let last = last_frame(&text);
        assert!(last.contains("credentials_expired"), "{}: {last}", wire.name);
        assert!(last.contains("connect again with new credentials"), "{}: {last}", wire.name);
        // A client that resumes does so behind the last event that it got.
        assert!(!last.lines().any(|line| line.starts_with("id:")), "{}: {last}", wire.name);
        // The reply goes on, and nothing of this is in the log.
        assert_eq!(
            (session.head_state().status, session.head_state().head.get()),
            (SessionStatus::Running, 3)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_never_quiet_ends_at_the_expiry_too() {
    let server = TestServer::new();
    server.open_reply("s").await;
    let response = server.send("GET", "/v1/sessions/s/events", "", Body::empty()).await;
    let mut body = response.into_body();
    let (mut sent, mut last) = (0, Bytes::new());
    // One event a second, and more of them than the credentials live seconds.
    while let Some(frame) = body.frame().await {
        last = frame.unwrap().into_data().unwrap();
        sent += 1;
        assert!(sent < 1000, "it never ends");
        advance(Duration::from_secs(1)).await;
        let event = format!(
            r#"{{"id":"d{sent}","reply_id":"r","type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"x"}}"#
        );
        let path = "/v1/sessions/s/events";
        server.send("POST", path, "turnwire-producer: p.1", event.into()).await;
    }
    let last = String::from_utf8(last.to_vec()).unwrap();
    assert!(last.contains("credentials_expired"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_every_protocol_ends_at_the_expiry_with_its_own_error() {
    let messages = json!([{"role": "user", "content": "hello"}]);
    let ag_ui = json!({
        "threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}],
    });
    let ai_sdk = json!({
        "id": "c", "trigger": "submit-message",
        "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
    });
    let cases = [
        ("/ag-ui/endless", ag_ui, r#""type":"RUN_ERROR""#),
        ("/ai-sdk/endless", ai_sdk, r#""type":"error""#),
        (
            "/v1/chat/completions",
            json!({"model": "endless", "messages": messages, "stream": true}),
            r#""error":{"#,
        ),
        (
            "/v1/responses",
            json!({"model": "endless", "input": "hi", "stream": true}),
            "response.failed",
        ),
        (
            "/v1/messages",
            json!({"model": "endless", "messages": messages, "max_tokens": 9, "stream": true}),
            r#""type":"error""#,
        ),
    ];
    for (path, request, error) in cases {
        let server = TestServer::new();
        let response = server.send("POST", path, "", request.to_string().into()).await;
        assert_eq!(response.status(), 200, "{path}");
        let id = response.headers()["turnwire-session"].to_str().unwrap().to_owned();
        let text = text(response).await;
        // Some protocols say once more behind an error that they have ended.
        let last = text.trim_end().rsplit("\n\n").take(3);
        let is_error = |frame: &str| frame.contains(error) && frame.contains("have expired");
        assert_eq!(last.filter(|frame| is_error(frame)).count(), 1, "{path}: {text}");
        let session =
            server.app.log.open_session(&SessionKey::new("default", id)).await.unwrap().unwrap();
        assert_eq!(
            session.head_state().status,
            SessionStatus::Running,
            "{path}: the reply goes on"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_one_piece_is_401_when_the_credentials_expire_before_it_is_there() {
    let messages = json!([{"role": "user", "content": "hello"}]);
    for (path, request) in [
        ("/v1/chat/completions", json!({"model": "endless", "messages": messages})),
        ("/v1/responses", json!({"model": "endless", "input": "hi"})),
        ("/v1/messages", json!({"model": "endless", "messages": messages, "max_tokens": 9})),
    ] {
        let server = TestServer::new();
        let response = server.send("POST", path, "", request.to_string().into()).await;
        assert_eq!(response.status(), 401, "{path}");
        assert!(text(response).await.contains("the credentials have expired"), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_followed_on_a_post_ends_at_the_expiry() {
    let server = TestServer::new();
    let made = json!({"id": "s", "agent": "endless"}).to_string();
    assert_eq!(server.send("POST", "/v1/sessions", "", made.into()).await.status(), 201);
    let body = r#"{"content":"hello"}"#;
    let accept = "accept: text/event-stream";
    let response = server.send("POST", "/v1/sessions/s/messages", accept, body.into()).await;
    assert_eq!(response.status(), 200);
    let text = text(response).await;
    assert!(text.contains("REPLY_START"), "{text}");
    assert!(last_frame(&text).contains("credentials_expired"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_an_agent_elsewhere_does_not_wait_for_ever() {
    let server = TestServer::new();
    server.session("c").await;
    let body = json!({
        "id": "c", "trigger": "submit-message",
        "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
    });
    let response = server.send("POST", "/ai-sdk/external", "", body.to_string().into()).await;
    assert_eq!(response.status(), 401);
}

#[tokio::test(start_paused = true)]
async fn a_download_of_the_log_that_takes_too_long_ends_with_the_error() {
    let server = TestServer::new();
    server.open_reply("s").await;
    for number in 0..3 {
        let large = "x".repeat(400_000);
        let event = format!(
            r#"{{"id":"l{number}","reply_id":"r","type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"{large}"}}"#
        );
        let path = "/v1/sessions/s/events";
        server.send("POST", path, "turnwire-producer: p.1", event.into()).await;
    }
    let accept = "accept: application/x-ndjson";
    let response = server.send("GET", "/v1/sessions/s/events", accept, Body::empty()).await;
    let mut body = response.into_body();
    assert!(body.frame().await.is_some());
    advance(LIFE).await;
    let last = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let last: Value = serde_json::from_slice(&last).unwrap();
    assert_eq!(last["error"]["type"], "credentials_expired", "{last}");
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_piped_reply_is_ended_as_interrupted_at_the_expiry() {
    let server = TestServer::new();
    let session = server.session("s").await;
    // More of the stream comes every second, for ever.
    let lines = stream::iter(0_u64..).then(|number| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let rest = match number {
            0 => r#""type":"REPLY_START","name":"x""#.to_owned(),
            1 => r#""type":"TEXT_BLOCK_START","block_id":"b""#.to_owned(),
            _ => r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"word ""#.to_owned(),
        };
        Ok::<_, Infallible>(format!("{{\"id\":\"{number}\",\"reply_id\":\"r\",{rest}}}\n"))
    });
    let body = Body::from_stream(lines);
    let response = server.send("POST", "/v1/sessions/s/replies", "", body).await;
    assert_eq!(response.status(), 401);
    let body = text(response).await;
    assert!(body.contains("credentials_expired") && body.contains("interrupted"), "{body}");
    assert_eq!(session.head_state().status, SessionStatus::Idle);
    let stored = session.find_message("r").await.unwrap().unwrap();
    let message: Value = serde_json::from_slice(&stored.json).unwrap();
    assert_eq!(message["finished_reason"], "interrupted", "{message}");
    assert!(message.to_string().contains("word word"), "what came before is kept");
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_has_expired_opens_nothing() {
    let server = TestServer::new();
    advance(LIFE).await;
    for (method, path) in
        [("GET", "/v1/sessions"), ("POST", "/v1/tickets"), ("POST", "/v1/sessions/s/messages")]
    {
        let response = server.send(method, path, "", Body::empty()).await;
        assert_eq!(response.status(), 401, "{path}");
    }
}

async fn make(server: &Server, token: &str, id: &str) {
    let body = json!({"id": id, "agent": "endless"}).to_string();
    assert_eq!(server.call("POST", "/v1/sessions", token, &body).await.status, 201);
}

fn server() -> Server {
    Server::start("", vec![("endless", Arc::new(Endless) as Arc<dyn Replier>)])
}

#[tokio::test]
async fn a_stream_that_was_opened_with_a_jwt_ends_with_it() {
    let server = server();
    let token = jwt("ada", "read chat", now() + 1.5);
    make(&server, &token, "s").await;
    let stream = server.open("GET", "/v1/sessions/s/events", &token, "").await;
    let answer = crate::running::within(stream.read_to_end()).await.unwrap();
    assert!(answer.text().contains("credentials_expired"), "{}", answer.text());
    // Whoever comes back with the same token is told, also as a ticket's maker.
    for (method, path) in [("GET", "/v1/sessions/s"), ("POST", "/v1/tickets")] {
        let answer = server.call(method, path, &token, "").await;
        assert_eq!(answer.status, 401);
        assert!(answer.text().contains("expired"), "{}", answer.text());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_ticket_makes_no_ticket_and_expires_with_its_maker() {
    let server = server();
    let token = jwt("ada", "read chat", now() + 2.0);
    let other = jwt("ada", "read chat", now() + 600.0);
    make(&server, &other, "s").await;
    let ticket = async |token: &str| {
        let made = server.call("POST", "/v1/tickets", token, "").await;
        assert_eq!(made.status, 201);
        let made = made.json();
        (made["ticket"].as_str().unwrap().to_owned(), made["expires_in"].as_u64().unwrap())
    };
    assert_eq!(ticket(&other).await.1, 60);
    let (first, life) = ticket(&token).await;
    assert!(life <= 2, "{life}");
    let path = format!("/v1/tickets?ticket={first}");
    let refused = server.open("POST", &path, "", "").await.read_to_end().await.unwrap();
    assert_eq!(refused.status, 403);
    assert!(
        refused.text().contains("a ticket cannot create further tickets"),
        "{}",
        refused.text()
    );
    // A stream and a socket that were opened with a ticket end when its maker's credentials do.
    let (second, _) = ticket(&token).await;
    let (third, _) = ticket(&token).await;
    let (unused, _) = ticket(&token).await;
    let mut socket = server.socket(&format!("wire=turnwire&ticket={second}"), None).await;
    let path = format!("/v1/sessions/s/events?ticket={third}");
    let stream = server.open("GET", &path, "", "").await;
    let answer = crate::running::within(stream.read_to_end()).await.unwrap();
    assert!(answer.text().contains("credentials_expired"), "{}", answer.text());
    assert_eq!(socket.closed().await, (4401, "credentials expired".to_owned()));
    let path = format!("/v1/sessions/s?ticket={unused}");
    assert_eq!(server.open("GET", &path, "", "").await.read_to_end().await.unwrap().status, 401);
    server.stop().await;
}

#[tokio::test]
async fn a_socket_closes_when_its_credentials_expire_unless_it_brings_new_ones() {
    let server = server();
    let long = jwt("ada", "read chat", now() + 600.0);
    for (wire, first) in [("turnwire", "MESSAGE"), ("blocks", "message_start")] {
        make(&server, &long, wire).await;
        let short = jwt("ada", "read chat", now() + 1.5);
        let subscribe = json!({"type": "subscribe", "session_id": wire});
        let mut left = server.socket(&format!("wire={wire}"), Some(&short)).await;
        left.send(subscribe.clone()).await;
        left.wait_for("subscribed").await;
        // Credentials that come as a command expire, too.
        let mut late = server.socket(&format!("wire={wire}"), None).await;
        late.send(json!({"type": "auth", "token": short})).await;
        let mut renewed = server.socket(&format!("wire={wire}"), Some(&short)).await;
        renewed.send(subscribe).await;
        renewed.wait_for("subscribed").await;
        renewed.send(json!({"type": "auth", "token": long})).await;
        assert_eq!(left.closed().await, (4401, "credentials expired".to_owned()), "{wire}");
        assert_eq!(late.closed().await, (4401, "credentials expired".to_owned()), "{wire}");
        // The one that has new credentials goes on, with what it had subscribed to.
        let path = format!("/v1/sessions/{wire}/messages");
        let sent = server.call("POST", &path, &long, r#"{"content":"hello"}"#).await;
        assert_eq!(sent.status, 202);
        renewed.wait_for(first).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_socket_of_responses_closes_when_its_credentials_expire() {
    let server = server();
    let short = jwt("ada", "read chat", now() + 1.5);
    let idle = server.try_socket_at("/v1/responses", Some(&short)).await;
    let mut busy = server.try_socket_at("/v1/responses", Some(&short)).await.unwrap();
    busy.send(json!({"type": "response.create", "model": "endless", "input": "hello"})).await;
    for mut socket in [idle.unwrap(), busy] {
        assert_eq!(socket.closed().await, (4401, "credentials expired".to_owned()));
    }
    let refused = server.try_socket_at("/v1/responses", Some(&short)).await;
    assert_eq!(refused.map(drop), Err(401));
    server.stop().await;
}
