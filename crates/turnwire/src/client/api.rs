//! The API routes that `turnwire chat` and `replay` use.

use super::error::ClientError;
use super::event_stream::RetryLimit;
use super::http::{ApiRequest, Endpoint};
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use turnwire_core::{Event, Head, Msg, Stamp, ToolCall, stamp::SystemStamp};
use url::form_urlencoded::byte_serialize;

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    endpoint: Endpoint,
    retry_limit: RetryLimit,
}

/// The fields of a session that a conversation reads.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SessionInfo {
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) title: Option<String>,
    pub(crate) status: String,
    pub(crate) epoch: String,
    pub(crate) last_seq: Head,
    pub(crate) pending: Vec<PendingCalls>,
    pub(crate) created_at: String,
}

/// The pending calls of a reply.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PendingCalls {
    pub(crate) reply_id: String,
    #[serde(default)]
    pub(crate) confirm: Vec<ToolCall>,
    #[serde(default)]
    pub(crate) external: Vec<ToolCall>,
}

/// The latest messages, and the resume token to follow from.
#[derive(Debug, Deserialize)]
pub(crate) struct History {
    pub(crate) messages: Vec<Msg>,
    pub(crate) last_event_id: String,
    pub(crate) status: String,
    pub(crate) has_more: bool,
}

/// An accepted message.
#[derive(Debug, Deserialize)]
pub(crate) struct SentMessage {
    pub(crate) message_id: String,
    pub(crate) reply_id: Option<String>,
}

/// An agent of the server.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AgentInfo {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) default: bool,
}

#[derive(Deserialize)]
struct AgentList {
    agents: Vec<AgentInfo>,
}

#[derive(Deserialize)]
struct SessionPage {
    sessions: Vec<SessionInfo>,
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint, retry_limit: RetryLimit) -> Self {
        Self { endpoint, retry_limit }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Creates a session, or returns the existing one with this id.
    pub(crate) async fn create_session(
        &self,
        id: Option<&str>,
        agent: Option<&str>,
    ) -> Result<SessionInfo, ClientError> {
        // With a client-side id, a lost request can be repeated.
        let id = id.map_or_else(|| SystemStamp.id(), str::to_owned);
        let mut body = json!({ "id": id });
        if let (Some(agent), Some(fields)) = (agent, body.as_object_mut()) {
            fields.insert("agent".to_owned(), agent.into());
        }
        self.post("/v1/sessions", &[], body.to_string().into()).await
    }

    /// Sets the title of a session.
    pub(crate) async fn set_title(&self, id: &str, title: &str) -> Result<(), ClientError> {
        let path = format!("/v1/sessions/{}", escape_path_segment(id));
        let body = json!({ "title": title }).to_string().into();
        self.send_with_retry(&Method::PATCH, &path, &[], &body).await.map(drop)
    }

    pub(crate) async fn get_session(&self, id: &str) -> Result<SessionInfo, ClientError> {
        self.get(&format!("/v1/sessions/{}", escape_path_segment(id))).await
    }

    /// The sessions, latest change first.
    pub(crate) async fn list_sessions(
        &self,
        limit: usize,
    ) -> Result<Vec<SessionInfo>, ClientError> {
        let page: SessionPage = self.get(&format!("/v1/sessions?limit={limit}")).await?;
        Ok(page.sessions)
    }

    pub(crate) async fn get_history(&self, id: &str, limit: usize) -> Result<History, ClientError> {
        self.get(&format!("/v1/sessions/{}/messages?limit={limit}", escape_path_segment(id))).await
    }

    /// The agents of the server.
    pub(crate) async fn list_agents(&self) -> Result<Vec<AgentInfo>, ClientError> {
        let list: AgentList = self.get("/v1/agents").await?;
        Ok(list.agents)
    }

    /// Sends a message: its text, or blocks.
    pub(crate) async fn send_message(
        &self,
        id: &str,
        content: &Value,
    ) -> Result<SentMessage, ClientError> {
        let path = format!("/v1/sessions/{}/messages", escape_path_segment(id));
        let (key, body) = (SystemStamp.id(), json!({ "content": content }).to_string());
        self.post(&path, &[("idempotency-key", &key)], body.into()).await
    }

    /// Requests a new reply to a message.
    pub(crate) async fn retry_message(
        &self,
        id: &str,
        message: &str,
    ) -> Result<SentMessage, ClientError> {
        let path = format!(
            "/v1/sessions/{}/messages/{}/retry",
            escape_path_segment(id),
            escape_path_segment(message)
        );
        let key = SystemStamp.id();
        self.post(&path, &[("idempotency-key", &key)], Bytes::new()).await
    }

    /// Sends an event to an open reply.
    pub(crate) async fn send_event(&self, id: &str, event: Event<'_>) -> Result<(), ClientError> {
        let path = format!("/v1/sessions/{}/events", escape_path_segment(id));
        // Its id makes it safe to repeat.
        let body = event.stamped(&SystemStamp).to_json();
        let _: Value = self.post(&path, &[], body.into()).await?;
        Ok(())
    }

    /// The log, one event per line.
    pub(crate) async fn read_log(&self, id: &str) -> Result<String, ClientError> {
        let path = format!("/v1/sessions/{}/events", escape_path_segment(id));
        let accept = [("accept", "application/x-ndjson")];
        let bytes = self.send_with_retry(&Method::GET, &path, &accept, &Bytes::new()).await?;
        String::from_utf8(bytes.into())
            .map_err(|_| ClientError::Unexpected("the log is not UTF-8".to_owned()))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        parse_json(&self.send_with_retry(&Method::GET, path, &[], &Bytes::new()).await?)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Bytes,
    ) -> Result<T, ClientError> {
        parse_json(&self.send_with_retry(&Method::POST, path, headers, &body).await?)
    }

    /// Repeats a request until there is a response or the retry limit is reached.
    async fn send_with_retry(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &Bytes,
    ) -> Result<Bytes, ClientError> {
        let mut waiting = self.retry_limit.start_backoff();
        loop {
            let ask = ApiRequest { method: method.clone(), path, headers, body: body.clone() };
            match self.endpoint.send_and_collect(ask).await {
                Err(ClientError::Transient(why)) if waiting.wait().await => {
                    tracing::debug!(path, why, "sent again");
                }
                done => return done,
            }
        }
    }
}

fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ClientError::Unexpected(format!("invalid response: {error}")))
}

/// Escapes untrusted text as a path segment.
pub(super) fn escape_path_segment(part: &str) -> String {
    byte_serialize(part.as_bytes()).collect::<String>().replace('+', "%20")
}
