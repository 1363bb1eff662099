//! A real server on a free port, and a client that sends raw bytes.

use crate::test_store::test_store;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use turnwire_server::config::Config;
use turnwire_server::{App, Server};

/// No wait in these tests takes so long.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Running {
    pub app: Arc<App>,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

/// Starts a server with these settings, on a free port unless they set one.
pub fn start(settings: &str) -> Running {
    let listen = if settings.contains("listen =") { "" } else { "listen = \"127.0.0.1:0\"\n" };
    let config = Config::parse("test", &format!("{listen}{settings}")).unwrap();
    start_with(config)
}

pub fn start_with(config: Config) -> Running {
    let app = App::new(config, log(), BTreeMap::new()).unwrap();
    let server = Server::bind(Arc::clone(&app)).unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    Running { app, address, stop: Some(stop), task }
}

pub fn log() -> Arc<turnwire_log::Log> {
    Arc::new(turnwire_log::Log::new(test_store(), "test"))
}

impl Running {
    /// Stops it, and waits until it has stopped.
    pub async fn stop(mut self) {
        self.stop.take();
        within(self.task).await.unwrap();
    }

    /// Stops it, and does not wait.
    pub fn begin_stop(&mut self) {
        self.stop.take();
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request on a connection of its own.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut stream = self.connect().await;
        let request = self.request(method, path, headers);
        stream.write_all(request.as_bytes()).await.unwrap();
        within(read_answer(&mut stream)).await.expect("an answer")
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            let _ = write!(text, "host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text.push_str("\r\n");
        text
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[]).await
    }

    /// The value of a counter.
    pub fn metric(&self, name: &str) -> u64 {
        let text = self.app.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }
}

/// Fails a test that would hang.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("this takes too long")
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn kind(&self) -> String {
        self.json()["error"]["type"].as_str().unwrap_or_default().to_owned()
    }
}

/// Reads one response; `None` if the connection ends before it begins.
pub async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> Option<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return None,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut answer = Answer { status, head, body: String::new() };
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    answer.body = String::from_utf8_lossy(&body).into_owned();
    Some(answer)
}

/// Waits until the other side has closed the connection.
pub async fn closed(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    let end = async {
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return true,
                Ok(_) => {}
            }
        }
    };
    within(end).await
}

pub fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A token for `[[auth.tokens]]`.
pub fn token(token: &str, tenant: &str, scopes: &str) -> String {
    let hash = sha256(token);
    let scopes: Vec<String> = scopes.split(',').map(|scope| format!("\"{scope}\"")).collect();
    let scopes = scopes.join(",");
    format!("[[auth.tokens]]\ntenant = \"{tenant}\"\nsha256 = \"{hash}\"\nscopes = [{scopes}]\n")
}
