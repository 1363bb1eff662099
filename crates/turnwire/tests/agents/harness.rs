//! Starts the real program in its own folder, and sends requests to it.

use crate::fake_provider::FakeProvider;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use turnwire_testkit::net::{HttpResponse, SseParser, StreamingResponse, http, send_http};

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(30);
pub const KEY: &str = "sk-very-secret-key";

pub struct TestServer {
    pub folder: TempDir,
    child: Option<Child>,
    pub address: SocketAddr,
}

/// Settings of the agent `friday`, with more lines.
pub fn friday_settings(provider: &FakeProvider, lines: &str) -> String {
    format!(
        "default_agent = \"friday\"\n[agents.friday]\nmodel = \"openai:fake\"\nbase_url = \"http://{}\"\n\
         api_key_env = \"FAKE_KEY\"\nsystem = \"You are Friday.\"\nretries = 0\n{lines}\n",
        provider.address
    )
}

pub fn turnwire(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwire"));
    command.args(args).current_dir(folder).stdin(Stdio::null()).env_remove("TURNWIRE_CONFIG");
    command.env("TURNWIRE_TEST_MCP_SERVE", "1");
    command.env("FAKE_KEY", KEY).env("TURNWIRE_STORE", "sqlite:turnwire.db");
    command
}

impl TestServer {
    pub fn start(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("turnwire.toml"), settings).unwrap();
        let (child, address) = spawn_server(folder.path());
        Self { folder, child: Some(child), address }
    }

    #[cfg(feature = "bench")]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM. The caller waits for the returned process.
    pub fn terminate(&mut self) -> Child {
        let child = self.child.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        child
    }

    pub fn restart(&mut self) {
        let (child, address) = spawn_server(self.folder.path());
        self.child = Some(child);
        self.address = address;
    }

    /// Runs a command beside the server.
    pub fn run(&self, args: &[&str]) -> Output {
        turnwire(self.folder.path(), args).output().unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("server.log")).unwrap()
    }

    pub async fn request(&self, method: &str, path: &str, body: &Value) -> HttpResponse {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("content-type", "application/json")];
        let answer = send_http(self.address, method, path, &headers, body.as_bytes());
        tokio::time::timeout(TIMEOUT, answer).await.expect("it hangs").unwrap()
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self.request("GET", path, &Value::Null).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    pub async fn post(&self, path: &str, body: Value) -> HttpResponse {
        self.request("POST", path, &body).await
    }

    pub async fn create_session(&self, id: &str) {
        let answer = self.post("/v1/sessions", json!({"id": id, "agent": "friday"})).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// Sends a message, and returns the reply id.
    pub async fn send_message(&self, session: &str, text: &str) -> String {
        let path = format!("/v1/sessions/{session}/messages");
        let answer = self.post(&path, json!({"content": text})).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["reply_id"].as_str().unwrap().to_owned()
    }

    /// A stream of events.
    pub async fn watch(&self, path: &str) -> EventStream {
        let request = http::request(self.address, "GET", path, &[], b"");
        let incoming = StreamingResponse::send(self.address, &request).await.unwrap();
        assert_eq!(incoming.status, 200);
        EventStream { incoming, sse: SseParser::default(), waiting: Vec::new() }
    }

    /// Waits until a session is `idle`, `running` or `waiting`.
    pub async fn until(&self, session: &str, status: &str) -> Value {
        self.until_one_of(session, &[status]).await
    }

    /// Waits until a session is idle or waiting.
    pub async fn until_settled(&self, session: &str) -> Value {
        self.until_one_of(session, &["idle", "waiting"]).await
    }

    async fn until_one_of(&self, session: &str, statuses: &[&str]) -> Value {
        let mut watch = self.watch(&format!("/v1/sessions/{session}/events")).await;
        loop {
            let view = self.get(&format!("/v1/sessions/{session}")).await;
            if statuses.iter().any(|status| view["status"] == *status) {
                return view;
            }
            watch.next().await.expect("the stream goes on");
        }
    }

    pub async fn message(&self, session: &str, id: &str) -> Value {
        self.get(&format!("/v1/sessions/{session}/messages/{id}")).await
    }

    /// Waits until the metrics have these lines: events are visible before they are counted.
    /// Returns all metrics.
    pub async fn counts(&self, lines: &[&str]) -> String {
        let until = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let metrics = self.request("GET", "/metrics", &Value::Null).await.text();
            let Some(missing) = lines.iter().find(|line| !metrics.contains(**line)) else {
                return metrics;
            };
            assert!(tokio::time::Instant::now() < until, "{missing} is not in\n{metrics}");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn_server(folder: &Path) -> (Child, SocketAddr) {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("server.log"));
    let mut command = turnwire(folder, &["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(log.unwrap()).spawn().unwrap();
    let mut banner = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut banner).unwrap();
    let address = banner.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
    let Some(address) = address else {
        panic!("{}", std::fs::read_to_string(folder.join("server.log")).unwrap());
    };
    (child, address.parse().unwrap())
}

/// A subscriber.
pub struct EventStream {
    incoming: StreamingResponse,
    sse: SseParser,
    waiting: Vec<Value>,
}

impl EventStream {
    /// The next event. `None`: the stream has ended.
    pub async fn next(&mut self) -> Option<Value> {
        while self.waiting.is_empty() {
            let bytes = tokio::time::timeout(TIMEOUT, self.incoming.next_bytes()).await;
            let bytes = bytes.expect("it hangs").unwrap()?;
            let frames = self.sse.feed(&bytes).into_iter().filter_map(|frame| frame.data);
            self.waiting.extend(frames.filter_map(|data| serde_json::from_str(&data).ok()));
        }
        Some(self.waiting.remove(0))
    }

    /// Reads until an event of this type.
    pub async fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if event["type"] == kind {
                return event;
            }
        }
    }
}

/// The text of a message.
pub fn message_text(message: &Value) -> String {
    let blocks = message["content"].as_array().unwrap().iter();
    blocks.filter_map(|block| block["text"].as_str()).collect()
}
