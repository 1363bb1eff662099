//! An attack, and the server that is attacked.

use crate::checked_http::send_http;
use crate::running::{Running, within};
use crate::test_store::test_store;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_testkit::net::{HttpResponse, StreamingResponse};

/// The expected result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// This status, with an error in our usual form.
    Error(u16),
    /// Any 4xx, with an error in our usual form.
    Clear,
    /// Any 4xx error, or the connection is closed.
    Refusal,
    /// It is harmless, and succeeds.
    Success,
}

/// The bytes of a request.
pub struct Attack {
    pub name: String,
    pub bytes: Vec<u8>,
    pub wanted: Expected,
}

impl Attack {
    /// Bytes that are not a valid request.
    pub fn raw(name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.to_owned(), bytes: bytes.into(), wanted: Expected::Refusal }
    }

    /// A request that is valid HTTP.
    pub fn new(
        status: u16,
        method: &str,
        path: &str,
        headers: &str,
        body: impl AsRef<[u8]>,
    ) -> Self {
        let body = body.as_ref();
        let start: String = String::from_utf8_lossy(body).chars().take(40).collect();
        let path_start: String = path.chars().take(80).collect();
        let headers_start: String = headers.trim().chars().take(60).collect();
        Self {
            name: format!("{method} {path_start} [{headers_start}] {start}"),
            bytes: request(method, path, headers, body),
            wanted: Expected::Error(status),
        }
    }

    pub fn harmless(mut self) -> Self {
        self.wanted = Expected::Success;
        self
    }
}

/// The bytes of a request with all scopes. Each line of `headers` ends with `\r\n`.
pub fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}");
    if !headers.contains("authorization") {
        head.push_str("authorization: Bearer tw_all\r\n");
    }
    if !body.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(head, "content-length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// A server with a session of each kind.
pub struct Target {
    server: Running,
}

/// The longest time that a server may take for an attack.
const PATIENCE: Duration = Duration::from_secs(30);

impl Target {
    pub async fn new() -> Self {
        Self::with("").await
    }

    pub async fn with(limits: &str) -> Self {
        let mut settings = format!(
            "[limits]\nheaders_timeout = \"1s\"\nbody_timeout = \"1s\"\nbody = \"2 MiB\"\nevent = \"1 MiB\"\n{limits}\n"
        );
        for (name, scopes) in [
            ("tw_all", r#""read","chat","publish","approve""#),
            ("tw_chat", r#""read","chat""#),
            ("tw_read", r#""read""#),
        ] {
            let hash =
                Sha256::digest(name.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
                    let _ = write!(hex, "{byte:02x}");
                    hex
                });
            let _ = write!(
                settings,
                "[[auth.tokens]]\ntenant = \"t\"\nsha256 = \"{hash}\"\nscopes = [{scopes}]\n"
            );
        }
        let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(0.0));
        let store = test_store();
        let (server, _) = Running::start(store, &settings, [("demo", demo)]);
        let target = Self { server };
        target.ask("POST", "/v1/sessions", br#"{"id":"s","agent":"external"}"#).await;
        assert_eq!(target.ask("POST", "/v1/blobs", b"bytes").await.status, 201);
        let start = br#"{"id":"1","type":"REPLY_START","reply_id":"r","name":"x"}"#;
        let published = target.ask("POST", "/v1/sessions/s/events", start).await;
        assert_eq!(published.status, 200, "{}", published.text());
        target
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    async fn ask(&self, method: &str, path: &str, body: &[u8]) -> HttpResponse {
        let headers = [("authorization", "Bearer tw_all"), ("turnwire-producer", "p.1")];
        within(send_http(self.address(), method, path, &headers, body)).await.unwrap()
    }

    /// Sends the bytes, and checks the response.
    pub async fn try_attack(&self, attack: &Attack) -> Result<(), String> {
        let answer = timeout(PATIENCE, self.answer(&attack.bytes)).await;
        let answer = answer.map_err(|_| "neither an answer nor a close".to_owned())?;
        let answer = match (answer, attack.wanted) {
            (Ok(answer), _) => answer,
            (Err(_), Expected::Refusal) => return self.is_alive().await,
            (Err(why), _) => return Err(format!("closed without an answer: {why}")),
        };
        let text = answer.text();
        let text: String = text.chars().take(300).collect();
        let status = answer.status;
        let is_fine = match attack.wanted {
            Expected::Error(wanted) => status == wanted && is_clear(&answer),
            Expected::Clear => (400..500).contains(&status) && is_clear(&answer),
            Expected::Refusal => {
                (400..500).contains(&status) && (answer.body.is_empty() || is_clear(&answer))
            }
            Expected::Success => (200..300).contains(&status),
        };
        if !is_fine {
            return Err(format!("wanted {:?}, got {status} {text}", attack.wanted));
        }
        self.is_alive().await
    }

    async fn answer(&self, bytes: &[u8]) -> io::Result<HttpResponse> {
        let mut stream = TcpStream::connect(self.address()).await?;
        // It may be refused before all of it was sent.
        let _ = stream.write_all(bytes).await;
        StreamingResponse::read_head(stream).await?.read_to_end().await
    }

    async fn is_alive(&self) -> Result<(), String> {
        match timeout(PATIENCE, send_http(self.address(), "GET", "/healthz", &[], b"")).await {
            Ok(Ok(answer)) if answer.status == 200 => Ok(()),
            other => Err(format!("afterwards: {other:?}")),
        }
    }

    /// Checks that nothing was stored, and that everything works.
    pub async fn still_serves(&self) {
        let session = self.ask("GET", "/v1/sessions/s", b"").await.json();
        assert_eq!(session["last_seq"], 1, "{session}");
        let end = br#"{"id":"2","type":"REPLY_END","reply_id":"r"}"#;
        let ended = self.ask("POST", "/v1/sessions/s/events", end).await;
        assert_eq!(ended.status, 200, "{}", ended.text());
        let page = self.ask("GET", "/v1/sessions/s/messages", b"").await.json();
        assert_eq!(page["messages"].as_array().map(Vec::len), Some(1), "{page}");
    }

    pub async fn stop(self) {
        self.server.stop().await;
    }
}

/// Whether it is an error in our usual form.
fn is_clear(answer: &HttpResponse) -> bool {
    let json = answer.json();
    let has = |name: &str| json["error"][name].as_str().is_some_and(|text| !text.is_empty());
    let is_json = answer.header("content-type") == Some("application/json");
    is_json && has("type") && has("message") && json != Value::Null
}

/// Waits until the server has closed, and returns what it sent before.
pub async fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("it was not closed");
    received
}
