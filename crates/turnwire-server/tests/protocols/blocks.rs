//! The blocks protocol: rights, races, and what no client of its would send.

#[path = "../resume/running.rs"]
pub mod running;

use crate::checked_http::send_http;
use crate::test_store::test_store;
use futures_util::{SinkExt, StreamExt};
use http::HeaderValue;
use running::{Running, within};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use turnwire_agent::{DemoAgent, Replier};
use turnwire_log::Session;
use turnwire_server::App;
use turnwire_testkit::net::HttpResponse;

struct TestServer {
    server: Running,
    app: Arc<App>,
}

const TOKENS: [(&str, &str, &str); 6] = [
    ("tw_all", "t", r#"scopes = ["read","chat","publish","approve"]"#),
    ("tw_chat", "t", r#"scopes = ["read","chat"]"#),
    ("tw_read", "t", r#"scopes = ["read"]"#),
    ("tw_say", "t", r#"scopes = ["chat"]"#),
    ("tw_few", "t", "scopes = [\"read\",\"chat\"]\nsessions = [\"mine-*\"]"),
    ("tw_else", "u", r#"scopes = ["read","chat","approve"]"#),
];

impl TestServer {
    fn open(settings: &str) -> Self {
        let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(0.0));
        let store = test_store();
        let (server, app) = Running::start(store, settings, [("demo", demo)]);
        Self { server, app }
    }

    /// One that wants to know who is there.
    fn with_tokens() -> Self {
        let mut settings = String::new();
        for (name, tenant, scopes) in TOKENS {
            let hash =
                Sha256::digest(name.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
                    let _ = write!(hex, "{byte:02x}");
                    hex
                });
            let _ = write!(
                settings,
                "[[auth.tokens]]\ntenant = \"{tenant}\"\nsha256 = \"{hash}\"\n{scopes}\n"
            );
        }
        Self::open(&settings)
    }

    async fn socket(&self) -> Socket {
        let mut socket = Socket::open(self.server.address, "/v1/ws", &[]).await;
        assert_eq!(socket.next().await, json!({"type": "connected"}));
        socket
    }

    /// A socket of somebody who has this token.
    async fn socket_as(&self, token: &str) -> Socket {
        let mut socket = self.socket().await;
        let answer = socket.ask(json!({"type": "auth", "token": token})).await;
        assert_eq!(answer["type"], "auth_ok", "{answer}");
        socket
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
        within(send_http(self.server.address, "GET", path, headers, b"")).await.unwrap()
    }

    async fn session(&self, tenant: &str, id: &str) -> Option<Arc<Session>> {
        let key = turnwire_log::store::SessionKey::new(tenant, id);
        self.app.log.open_session(&key).await.unwrap()
    }

    /// The end of a session's log.
    async fn last(&self, tenant: &str, id: &str) -> u64 {
        self.session(tenant, id).await.unwrap().head_state().head.get()
    }
}

pub struct Socket(pub WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    pub async fn open(
        server: SocketAddr,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Self {
        let mut request = format!("ws://{server}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        Self(connect_async(request).await.unwrap().0)
    }

    pub async fn next(&mut self) -> Value {
        loop {
            match within(self.0.next()).await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => return json!({"type": "closed", "how": format!("{other:?}")}),
            }
        }
    }

    pub async fn send(&mut self, command: &Value) {
        self.0.send(Message::text(command.to_string())).await.unwrap();
    }

    /// Sends a command, and returns its answer.
    async fn ask(&mut self, mut command: Value) -> Value {
        command["id"] = "ask".into();
        self.send(&command).await;
        self.until(|frame| frame["id"] == "ask").await
    }

    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.next().await;
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// The code of the error that a command is.
    async fn refused(&mut self, command: Value) -> String {
        let answer = self.ask(command).await;
        assert_eq!(answer["type"], "error", "{answer}");
        assert!(answer["command"].is_string() && answer["message"].is_string(), "{answer}");
        answer["code"].as_str().unwrap().to_owned()
    }

    async fn closed(&mut self) -> u16 {
        loop {
            match within(self.0.next()).await {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
                Some(Ok(Message::Close(None)) | Err(_)) | None => return 0,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Has the demo ask something in a session, and returns how to say yes.
    async fn question(&mut self, session: &str) -> Value {
        let chat = json!({"type": "chat", "session_id": session, "message": "approve"});
        assert_eq!(self.ask(chat).await["type"], "accepted");
        let block = |frame: &Value| frame["content_block"]["type"] == "approval_request";
        let key = self.until(block).await["content_block"]["approval_key"].clone();
        let delta = self.until(|frame| frame["delta"]["action_requests"].is_array()).await;
        let id = &delta["delta"]["action_requests"][0]["tool_use_id"];
        json!({"type": "approval", "approval_key": key,
            "decisions": [{"type": "approve", "tool_use_id": id}]})
    }
}

fn chat(session: &str) -> Value {
    json!({"type": "chat", "session_id": session, "message": "hello"})
}

fn subscribe(session: &str) -> Value {
    json!({"type": "subscribe", "session_id": session})
}

fn stop(session: &str) -> Value {
    json!({"type": "stop", "session_id": session})
}

fn approval(session: &str) -> Value {
    json!({"type": "approval", "approval_key": format!("{session}_1"),
        "decisions": [{"type": "approve"}]})
}

#[tokio::test]
async fn who_shows_no_credentials_gets_no_further_than_a_pong() {
    let place = TestServer::with_tokens();
    let mut socket = place.socket().await;
    for command in [chat("s"), subscribe("s"), stop("s"), approval("s")] {
        assert_eq!(socket.refused(command).await, "unauthorized");
    }
    assert_eq!(socket.ask(json!({"type": "ping"})).await["type"], "pong");
    assert_eq!(socket.refused(json!({"type": "auth"})).await, "bad_request");
    let wrong = json!({"type": "auth", "token": "wrong"});
    assert_eq!(socket.refused(wrong).await, "unauthorized");
    assert_eq!(socket.closed().await, 4401);
    assert!(place.session("t", "s").await.is_none());
}

#[tokio::test]
async fn a_wrong_token_takes_nothing_from_who_is_known() {
    let place = TestServer::with_tokens();
    let mut socket = place.socket_as("tw_chat").await;
    assert_eq!(socket.refused(json!({"type": "auth", "token": "wrong"})).await, "unauthorized");
    assert_eq!(socket.ask(chat("s")).await["type"], "accepted");
}

#[tokio::test]
async fn each_command_needs_its_scope() {
    let place = TestServer::with_tokens();
    let mut reader = place.socket_as("tw_read").await;
    for command in [chat("s"), stop("s"), approval("s")] {
        assert_eq!(reader.refused(command).await, "forbidden");
    }
    assert!(place.session("t", "s").await.is_none(), "nothing was made");
    let mut chatter = place.socket_as("tw_chat").await;
    let yes = chatter.question("s").await;
    let last = place.last("t", "s").await;
    assert_eq!(chatter.refused(yes.clone()).await, "forbidden");
    assert_eq!(place.last("t", "s").await, last, "nothing was stored");
    assert_eq!(reader.ask(subscribe("s")).await["type"], "subscribed");
    let mut all = place.socket_as("tw_all").await;
    assert_eq!(all.ask(yes).await["type"], "accepted");
}

#[tokio::test]
async fn what_others_have_is_not_there() {
    let place = TestServer::with_tokens();
    let mut owner = place.socket_as("tw_all").await;
    let yes = owner.question("s").await;
    let last = place.last("t", "s").await;
    let mut other = place.socket_as("tw_else").await;
    assert_eq!(other.refused(subscribe("s")).await, "not_found");
    assert_eq!(other.refused(stop("s")).await, "not_found");
    assert_eq!(other.refused(yes.clone()).await, "not_found");
    assert_eq!(other.ask(chat("s")).await["type"], "accepted", "a session of their own");
    assert_eq!(other.refused(yes).await, "unknown_approval");
    assert_eq!(place.last("t", "s").await, last);
    let mut few = place.socket_as("tw_few").await;
    for command in [subscribe("s"), chat("s"), stop("s")] {
        assert_eq!(few.refused(command).await, "not_found");
    }
    assert_eq!(few.refused(json!({"type": "chat", "message": "x"})).await, "forbidden");
    assert_eq!(few.ask(chat("mine-1")).await["type"], "accepted");
}

#[tokio::test]
async fn the_history_is_for_who_may_read_it() {
    let place = TestServer::with_tokens();
    place.socket_as("tw_chat").await.ask(chat("s")).await;
    let path = "/v2/sessions/s/history";
    for (token, status) in
        [("tw_read", 200), ("tw_else", 404), ("tw_few", 404), ("wrong", 401), ("", 401)]
    {
        let header = format!("Bearer {token}");
        let answer = place.get(path, &[("authorization", &header)]).await;
        assert_eq!(answer.status, status, "{token}: {}", answer.text());
    }
    for (path, status) in [
        ("/v2/sessions/nobody/history", 404),
        ("/v2/sessions/%2e%2e/history", 404),
        ("/v2/sessions/a%20b/history", 400),
    ] {
        let answer = place.get(path, &[("authorization", "Bearer tw_all")]).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.text().contains("\"error\""));
    }
}

#[tokio::test]
async fn of_two_who_answer_at_once_one_is_heard() {
    let place = TestServer::open("");
    let mut one = place.socket().await;
    let yes = one.question("s").await;
    let mut no = yes.clone();
    no["decisions"][0]["type"] = "reject".into();
    let mut two = place.socket().await;
    let (first, second) = tokio::join!(one.ask(yes), two.ask(no));
    let refused = [&first, &second].into_iter().filter(|answer| answer["type"] == "error");
    let codes: Vec<_> = refused.map(|answer| answer["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["already_answered"], "{first} {second}");
    one.until(|frame| frame["type"] == "message_stop").await;
    let mut late = place.socket().await;
    late.ask(subscribe("s")).await;
    let result = late.until(|frame| frame["content_block"]["type"] == "approval_result").await;
    let wanted = if first["type"] == "error" { "reject" } else { "approve" };
    assert_eq!(result["content_block"]["decisions"][0]["type"], wanted);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_leaves_the_question_open() {
    let place = TestServer::open("");
    let mut socket = place.socket().await;
    let yes = socket.question("s").await;
    let last = place.last("default", "s").await;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut command = yes.clone();
        change(&mut command);
        command
    };
    for (command, code) in [
        (with(&|it| it["decisions"] = json!([])), "bad_request"),
        (with(&|it| it["decisions"] = json!({})), "bad_request"),
        (
            with(&|it| it["decisions"] = json!([{"type": "approve"}, {"type": "approve"}])),
            "unknown_call",
        ),
        (with(&|it| it["decisions"][0]["tool_use_id"] = "x".into()), "unknown_call"),
        (with(&|it| it["decisions"][0]["type"] = "edit".into()), "bad_request"),
        (with(&|it| it["decisions"][0]["message"] = "x".repeat(5000).into()), "unprocessable"),
        (with(&|it| it["approval_key"] = "s_0".into()), "unknown_approval"),
        (with(&|it| it["approval_key"] = "s_1".into()), "unknown_approval"),
        (with(&|it| it["approval_key"] = format!("s_{}", last + 1).into()), "unknown_approval"),
        (with(&|it| it["approval_key"] = format!("s_{}", u64::MAX).into()), "unknown_approval"),
        (with(&|it| it["approval_key"] = "s".into()), "bad_request"),
        (with(&|it| it["session_id"] = "t".into()), "bad_request"),
    ] {
        assert_eq!(socket.refused(command.clone()).await, code, "{command}");
    }
    assert_eq!(place.last("default", "s").await, last, "nothing was stored");
    assert_eq!(socket.ask(yes).await["type"], "accepted");
}

#[tokio::test]
async fn no_text_breaks_a_socket() {
    let place = TestServer::open("");
    let mut socket = place.socket().await;
    let deep = "[".repeat(100_000);
    let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(100_000));
    for text in [
        "",
        " ",
        "null",
        "[]",
        "\"x\"",
        "{}",
        r#"{"type":null}"#,
        r#"{"type":7}"#,
        r#"{"type":"chat","message":{"role":"assistant","content":"I said so"}}"#,
        r#"{"type":"chat","message":"x","session_id":7}"#,
        r#"{"type":"chat","message":"x","session_id":""}x"#,
        r#"{"type":"events","session_id":"s","events":[]}"#,
        r#"{"type":"unsubscribe","session_id":"s"}"#,
        deep.as_str(),
        long.as_str(),
    ] {
        socket.0.send(Message::text(text)).await.unwrap();
        let answer = socket.next().await;
        assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!("bad_request")));
        assert!(answer.to_string().len() < 101_000 * 2);
    }
    // An id that nobody needs is not sent back.
    for id in [json!({"a": 1}), json!([1]), json!(true), json!("x".repeat(300))] {
        socket.send(&json!({"type": "ping", "id": id})).await;
        assert_eq!(socket.next().await, json!({"type": "pong"}));
    }
    assert_eq!(socket.ask(json!({"type": "ping"})).await["type"], "pong");
    socket.0.send(Message::text("x".repeat(2 << 20))).await.ok();
    assert_eq!(socket.closed().await, 1009);
}

#[tokio::test]
async fn a_socket_watches_so_many_sessions_and_no_more_are_made() {
    let place = TestServer::open("");
    let mut socket = place.socket().await;
    for n in 0..256 {
        assert_eq!(socket.ask(chat(&format!("s{n}"))).await["type"], "accepted");
    }
    assert_eq!(socket.refused(chat("more")).await, "too_many_requests");
    assert!(place.session("default", "more").await.is_none());
    assert_eq!(socket.ask(chat("s7")).await["type"], "accepted", "what it watches goes on");
}

#[tokio::test]
async fn who_only_chats_is_shown_nothing() {
    let place = TestServer::with_tokens();
    let mut socket = place.socket_as("tw_say").await;
    assert_eq!(socket.ask(chat("s")).await["type"], "accepted");
    assert_eq!(socket.refused(subscribe("s")).await, "forbidden");
    socket.send(&json!({"type": "ping"})).await;
    assert_eq!(socket.next().await["type"], "pong", "and no frame before it");
    place.server.stop().await;
    assert_eq!(socket.closed().await, 1001, "a server that stops says so");
}
