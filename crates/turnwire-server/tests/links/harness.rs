//! A server, and an agent that keeps what it is handed.

use crate::checked_http::send_http;
use crate::running::{Running, within};
use crate::test_store::test_store;
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use turnwire_agent::{AgentError, Journal, Replier, ReplyRequest};
use turnwire_core::event::ReplyEnd;
use turnwire_core::{Event, Msg};
use turnwire_log::store::SessionKey;
use turnwire_server::App;
use turnwire_testkit::net::HttpResponse;

pub struct TestServer {
    pub server: Running,
    pub app: Arc<App>,
    /// The conversations that the agent was handed.
    pub received: Arc<Mutex<Vec<Vec<Msg>>>>,
}

/// Listens, and says nothing.
struct RecordingAgent(Arc<Mutex<Vec<Vec<Msg>>>>);

#[async_trait]
impl Replier for RecordingAgent {
    fn description(&self) -> &'static str {
        "Listens"
    }

    fn model_name(&self) -> &'static str {
        "none"
    }

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        self.0.lock().push(turn.history);
        journal.commit(vec![Event::new(turn.reply_id, ReplyEnd::default())]).await
    }
}

/// Says nothing, and does not end.
struct StuckAgent;

#[async_trait]
impl Replier for StuckAgent {
    fn description(&self) -> &'static str {
        "Never ends"
    }

    fn model_name(&self) -> &'static str {
        "none"
    }

    async fn run(&self, turn: ReplyRequest, _: &mut dyn Journal) -> Result<(), AgentError> {
        turn.stop.cancelled().await;
        Err(AgentError::Stopped)
    }
}

impl TestServer {
    pub fn open(settings: &str) -> Self {
        let received = Arc::<Mutex<Vec<Vec<Msg>>>>::default();
        let agent: Arc<dyn Replier> = Arc::new(RecordingAgent(received.clone()));
        let store = test_store();
        let (server, app) =
            Running::start(store, settings, [("demo", agent), ("never", Arc::new(StuckAgent))]);
        Self { server, app, received }
    }

    pub async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        let headers = [("content-type", "application/json")];
        let body = body.to_string();
        within(send_http(self.server.address, "POST", path, &headers, body.as_bytes()))
            .await
            .unwrap()
    }

    pub async fn get(&self, path: &str) -> HttpResponse {
        within(send_http(self.server.address, "GET", path, &[], b"")).await.unwrap()
    }

    /// A session in which nobody answers.
    pub async fn wait_until_idle(&self, id: &str) {
        let made = self.post("/v1/sessions", &json!({"id": id, "agent": "external"})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }

    /// Says something with links to pictures.
    pub async fn send_links(&self, session: &str, urls: &[&str]) -> HttpResponse {
        let links =
            urls.iter().map(|url| json!({"type": "data", "source": {"type": "url", "url": url}}));
        let mut content = vec![json!({"type": "text", "text": "look"})];
        content.extend(links);
        let path = format!("/v1/sessions/{session}/messages");
        self.post(&path, &json!({"content": content})).await
    }

    /// The files of the last message of a session.
    pub async fn files(&self, session: &str) -> Vec<Value> {
        let page = self.get(&format!("/v1/sessions/{session}/messages")).await.json();
        let messages = page["messages"].as_array().unwrap().clone();
        let users: Vec<&Value> = messages.iter().filter(|msg| msg["role"] == "user").collect();
        let content = users.last().unwrap()["content"].as_array().unwrap();
        content.iter().filter(|block| block["type"] != "text").cloned().collect()
    }

    /// The end of a session's log.
    pub async fn last_seq(&self, session: &str) -> u64 {
        let key = SessionKey::new("default", session);
        self.app.log.open_session(&key).await.unwrap().unwrap().head_state().head.get()
    }

    /// How many sessions there are.
    pub async fn sessions(&self) -> usize {
        let page = self.get("/v1/sessions").await.json();
        page["sessions"].as_array().unwrap().len()
    }
}
