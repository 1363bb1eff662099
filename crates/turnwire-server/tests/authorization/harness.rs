//! Servers, agents and credentials.

use crate::checked_http::send_http;
use crate::test_store::test_store;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{SinkExt, StreamExt};
use ring::hmac;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use turnwire_agent::{AgentError, Journal, Replier, ReplyRequest};
use turnwire_server::App;
use turnwire_testkit::net::{HttpResponse, StreamingResponse};

use crate::running::{Running, within};

/// The token of an administrator, where there is one.
pub const ADMIN: &str = "tw_admin";
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// An agent that begins to reply and never ends.
pub struct Endless;

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

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A signed JWT of the tenant `acme`.
pub fn jwt(subject: &str, scope: &str, exp: f64) -> String {
    let claims = json!({
        "iss": "https://id.example", "aud": "turnwire", "exp": exp, "sub": subject,
        "tenant": "acme", "scope": scope,
    });
    sign(&claims)
}

pub fn sign(claims: &Value) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let message =
        format!("{}.{}", encode(br#"{"alg":"HS256"}"#), encode(claims.to_string().as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    format!("{message}.{}", encode(hmac::sign(&key, message.as_bytes()).as_ref()))
}

/// The SHA-256 of a text.
pub fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A token for the settings. `more` are further lines of it.
pub fn token(text: &str, tenant: &str, scopes: &str, more: &str) -> String {
    let hash = hash(text);
    format!(
        "[[auth.tokens]]\ntenant = \"{tenant}\"\nsha256 = \"{hash}\"\nscopes = [{scopes}]\n{more}"
    )
}

/// A server that takes JWTs, with no leeway.
pub struct Server {
    running: Running,
    pub app: Arc<App>,
    _folder: TempDir,
}

impl Server {
    /// Starts one. `tokens` are further settings.
    pub fn start(tokens: &str, agents: Vec<(&'static str, Arc<dyn Replier>)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, SECRET).unwrap();
        let settings = format!(
            "{tokens}\n[auth.jwt]\nalgorithm = \"HS256\"\nsecret_file = '{}'\n\
             issuer = \"https://id.example\"\naudience = \"turnwire\"\nleeway = \"0s\"\n",
            file.display()
        );
        let (running, app) = Running::start(test_store(), &settings, agents);
        Self { running, app, _folder: folder }
    }

    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    pub async fn stop(self) {
        self.running.stop().await;
    }

    pub async fn call(&self, method: &str, path: &str, token: &str, body: &str) -> HttpResponse {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let headers = if token.is_empty() { &[][..] } else { &headers };
        within(send_http(self.address(), method, path, headers, body.as_bytes())).await.unwrap()
    }

    /// Opens a stream, whose body is read as it comes.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: &str,
    ) -> StreamingResponse {
        use tokio::io::AsyncWriteExt as _;
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        let bearer = match token {
            "" => String::new(),
            token => format!("authorization: Bearer {token}\r\n"),
        };
        let (host, length) = (self.address(), body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{bearer}content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        within(StreamingResponse::read_head(stream)).await.unwrap()
    }

    /// Opens a socket on `/v1/ws`.
    pub async fn socket(&self, query: &str, token: Option<&str>) -> Socket {
        self.try_socket(query, token).await.unwrap()
    }

    /// Opens a socket, or says with which status that was refused.
    pub async fn try_socket(&self, query: &str, token: Option<&str>) -> Result<Socket, u16> {
        self.try_socket_at(&format!("/v1/ws?{query}"), token).await
    }

    /// The same on any path.
    pub async fn try_socket_at(&self, path: &str, token: Option<&str>) -> Result<Socket, u16> {
        let url = format!("ws://{}{path}", self.address());
        let mut request = url.into_client_request().unwrap();
        if let Some(token) = token {
            let bearer = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", bearer);
        }
        let stream = TcpStream::connect(self.address()).await.unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Socket(socket)),
            Err(Error::Http(refused)) => Err(refused.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A client of a socket.
pub struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    pub async fn send(&mut self, command: Value) {
        self.0.send(Message::text(command.to_string())).await.unwrap();
    }

    /// The next message that is JSON; otherwise how the socket was closed.
    pub async fn next(&mut self) -> Result<Value, (u16, String)> {
        loop {
            match within(self.0.next()).await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(Some(frame)))) => {
                    return Err((frame.code.into(), frame.reason.to_string()));
                }
                Some(Ok(_)) => {}
                Some(Err(Error::ConnectionClosed)) | None => return Err((0, String::new())),
                Some(Err(error)) => panic!("{error}"),
            }
        }
    }

    /// The next message of this type. Others are passed over.
    pub async fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next().await.unwrap();
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// How the socket is closed.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Err(close) = self.next().await {
                return close;
            }
        }
    }
}
