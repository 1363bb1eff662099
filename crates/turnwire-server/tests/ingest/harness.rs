//! A server with the routes under test, and a client that sends raw requests.

use crate::test_store::test_store;
use axum::Router;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use turnwire_core::{Fields, Seq};
use turnwire_log::store::{EventLines, NewSession, SessionKey, SessionStatus};
use turnwire_log::{Log, Session};
use turnwire_server::auth::{Auth, Identity, Scopes};
use turnwire_server::config::Config;
use turnwire_server::{App, Caller, Scope};

pub struct Server {
    pub app: Arc<App>,
    pub address: SocketAddr,
}

pub struct Answer {
    pub status: u16,
    pub json: Value,
}

impl Answer {
    pub fn message(&self) -> &str {
        self.json["error"]["message"].as_str().unwrap_or_default()
    }

    pub fn kind(&self) -> &str {
        self.json["error"]["type"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub fn assert_error(&self, status: u16, kind: &str, says: &[&str]) {
        assert_eq!((self.status, self.kind()), (status, kind), "{}", self.json);
        for word in says {
            assert!(self.message().contains(word), "{word}: {}", self.json);
        }
    }

    #[track_caller]
    pub fn assert_stored(&self, stored: u64, repeated: u64) {
        assert_eq!(self.status, 200, "{}", self.json);
        let counts = (self.json["stored"].as_u64(), self.json["repeated"].as_u64());
        assert_eq!(counts, (Some(stored), Some(repeated)), "{}", self.json);
    }
}

pub fn caller(scopes: &[Scope]) -> Caller {
    let open = Auth::without_credentials(&Config::default().limits).authenticate_token("").unwrap();
    let scopes: Scopes = scopes.iter().copied().collect();
    let tenant = Arc::clone(&open.0.tenant);
    Caller(Arc::new(Identity::new(tenant, scopes)))
}

impl Server {
    pub async fn new() -> Self {
        Self::with(Config::default(), &Scope::ALL).await
    }

    pub async fn with(config: Config, scopes: &[Scope]) -> Self {
        Self::start(config, |router| router.layer(axum::Extension(caller(scopes)))).await
    }

    /// A server whose sockets have no credentials yet.
    pub async fn closed(config: Config) -> Self {
        Self::start(config, |router| router).await
    }

    /// The whole server, including the guard.
    pub fn whole(mut config: Config) -> Self {
        config.listen = "127.0.0.1:0".parse().unwrap();
        let log = Arc::new(Log::new(test_store(), "test"));
        let app = App::new(config, log, BTreeMap::new()).unwrap();
        let server = turnwire_server::Server::bind(app.clone()).unwrap();
        let address = server.address();
        tokio::spawn(server.run(std::future::pending()));
        Self { app, address }
    }

    async fn start(config: Config, layer: impl FnOnce(Router) -> Router) -> Self {
        let log = Arc::new(Log::new(test_store(), "test"));
        let app = App::new(config, log, BTreeMap::new()).unwrap();
        let router = layer(crate::checked_router::checked_router(app.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { app, address }
    }

    pub async fn session(&self, id: &str) -> Arc<Session> {
        let new = NewSession {
            key: SessionKey::new("default", id),
            agent: "external".to_owned(),
            title: String::new(),
            metadata: Fields::default(),
            now_ms: 0,
        };
        self.app.log.create_session(new).await.unwrap().0
    }

    /// Sends a request, and returns the response.
    pub async fn post(&self, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses a body early need not read all of it.
        let _ = stream.write_all(body).await;
        answer(stream).await
    }

    pub async fn publish(&self, session: &str, producer: &str, body: &str) -> Answer {
        let path = format!("/v1/sessions/{session}/events");
        self.post(&path, &format!("turnwire-producer: {producer}\r\n"), body.as_bytes()).await
    }
}

/// A body that is sent piece by piece.
pub struct OpenPipe(pub TcpStream);

impl OpenPipe {
    pub async fn new(server: &Server, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        Self(stream)
    }

    pub async fn send(&mut self, text: &str) {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        // A request that was refused may be closed already: its answer says why.
        let _ = self.0.write_all(chunk.as_bytes()).await;
    }

    pub async fn end(mut self) -> Answer {
        let _ = self.0.write_all(b"0\r\n\r\n").await;
        answer(self.0).await
    }
}

pub async fn answer(mut stream: TcpStream) -> Answer {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    let all = String::from_utf8(all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {all:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let json = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {all:?}"));
    Answer { status, json }
}

/// Waits until so many events are durable.
pub async fn wait_for_seq(session: &Session, last: u64) {
    let mut head = session.watch_head();
    head.wait_for(|head| head.head.get() >= last).await.unwrap();
}

/// Waits until no reply is open.
pub async fn wait_until_idle(session: &Session) {
    let mut head = session.watch_head();
    head.wait_for(|head| head.head.get() > 0 && head.status == SessionStatus::Idle).await.unwrap();
}

/// The log of a session, one line per event.
pub async fn lines(session: &Session) -> Vec<String> {
    let rows = session.read_events(Seq::FIRST, usize::MAX).await.unwrap();
    let lines = rows.iter().flat_map(EventLines::iter);
    lines.map(|(_, line)| String::from_utf8(line.to_vec()).unwrap()).collect()
}

/// An event with an id and a reply.
pub fn event(id: &str, reply: &str, rest: &str) -> String {
    format!(r#"{{"id":"{id}","reply_id":"{reply}","created_at":"2026-01-01T00:00:00Z",{rest}}}"#)
}

pub fn start(reply: &str) -> String {
    event(&format!("{reply}-start"), reply, r#""type":"REPLY_START","name":"friday""#)
}

pub fn end(reply: &str) -> String {
    event(&format!("{reply}-end"), reply, r#""type":"REPLY_END""#)
}

pub fn text(reply: &str, word: &str) -> Vec<String> {
    let id = |n: &str| format!("{reply}-{word}-{n}");
    vec![
        event(&id("a"), reply, &format!(r#""type":"TEXT_BLOCK_START","block_id":"{word}""#)),
        event(
            &id("b"),
            reply,
            &format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"{word}","delta":"{word}""#),
        ),
        event(&id("c"), reply, &format!(r#""type":"TEXT_BLOCK_END","block_id":"{word}""#)),
    ]
}

/// A reply from its start to its end.
pub fn reply(reply: &str) -> Vec<String> {
    let mut lines = vec![start(reply)];
    lines.extend(text(reply, "Hello"));
    lines.push(end(reply));
    lines
}
