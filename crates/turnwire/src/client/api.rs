//! The routes that a conversation needs.

use super::http::{Ask, Place};
use super::trouble::Trouble;
use super::watch::Patience;
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use turnwire_core::{Event, Msg, Stamp, ToolCall, stamp::SystemStamp};
use url::form_urlencoded::byte_serialize;

/// A server, and how to ask it.
#[derive(Clone)]
pub(crate) struct Client {
    place: Place,
    patience: Patience,
}

/// A session, as far as a conversation looks at it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SessionInfo {
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) title: Option<String>,
    pub(crate) status: String,
    pub(crate) epoch: String,
    pub(crate) last_seq: u64,
    pub(crate) pending: Vec<Pending>,
    pub(crate) created_at: String,
}

/// What a reply waits for.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Pending {
    pub(crate) reply_id: String,
    #[serde(default)]
    pub(crate) confirm: Vec<ToolCall>,
    #[serde(default)]
    pub(crate) external: Vec<ToolCall>,
}

/// The latest messages, and the point from which to watch.
#[derive(Debug, Deserialize)]
pub(crate) struct History {
    pub(crate) messages: Vec<Msg>,
    pub(crate) last_event_id: String,
    pub(crate) status: String,
    pub(crate) has_more: bool,
}

/// A message that was taken.
#[derive(Debug, Deserialize)]
pub(crate) struct Sent {
    pub(crate) message_id: String,
    pub(crate) reply_id: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    sessions: Vec<SessionInfo>,
}

impl Client {
    pub(crate) fn new(place: Place, patience: Patience) -> Self {
        Self { place, patience }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Makes a session, or finds the one with this id.
    pub(crate) async fn create(
        &self,
        id: Option<&str>,
        agent: Option<&str>,
    ) -> Result<SessionInfo, Trouble> {
        // With an id of our own, a request that was lost can be sent again.
        let id = id.map_or_else(|| SystemStamp.id(), str::to_owned);
        let mut body = json!({ "id": id });
        if let (Some(agent), Some(fields)) = (agent, body.as_object_mut()) {
            fields.insert("agent".to_owned(), agent.into());
        }
        self.post("/v1/sessions", &[], body.to_string().into()).await
    }

    /// Gives a session a title.
    pub(crate) async fn entitle(&self, id: &str, title: &str) -> Result<(), Trouble> {
        let path = format!("/v1/sessions/{}", escaped(id));
        let body = json!({ "title": title }).to_string().into();
        self.whole(&Method::PATCH, &path, &[], &body).await.map(drop)
    }

    pub(crate) async fn session(&self, id: &str) -> Result<SessionInfo, Trouble> {
        self.get(&format!("/v1/sessions/{}", escaped(id))).await
    }

    /// The sessions that changed last.
    pub(crate) async fn sessions(&self, limit: usize) -> Result<Vec<SessionInfo>, Trouble> {
        let page: Page = self.get(&format!("/v1/sessions?limit={limit}")).await?;
        Ok(page.sessions)
    }

    pub(crate) async fn history(&self, id: &str, limit: usize) -> Result<History, Trouble> {
        self.get(&format!("/v1/sessions/{}/messages?limit={limit}", escaped(id))).await
    }

    /// Sends a text.
    pub(crate) async fn send(&self, id: &str, text: &str) -> Result<Sent, Trouble> {
        let path = format!("/v1/sessions/{}/messages", escaped(id));
        let (key, body) = (SystemStamp.id(), json!({ "content": text }).to_string());
        self.post(&path, &[("idempotency-key", &key)], body.into()).await
    }

    /// Has a message answered again.
    pub(crate) async fn retry(&self, id: &str, message: &str) -> Result<Sent, Trouble> {
        let path = format!("/v1/sessions/{}/messages/{}/retry", escaped(id), escaped(message));
        let key = SystemStamp.id();
        self.post(&path, &[("idempotency-key", &key)], Bytes::new()).await
    }

    /// Says something to an open reply.
    pub(crate) async fn answer(&self, id: &str, event: Event<'_>) -> Result<(), Trouble> {
        let path = format!("/v1/sessions/{}/events", escaped(id));
        // Its id makes it safe to send again.
        let body = event.stamped(&SystemStamp).to_json();
        let _: serde_json::Value = self.post(&path, &[], body.into()).await?;
        Ok(())
    }

    /// The log as it is, one event a line.
    pub(crate) async fn log(&self, id: &str) -> Result<String, Trouble> {
        let path = format!("/v1/sessions/{}/events", escaped(id));
        let accept = [("accept", "application/x-ndjson")];
        let bytes = self.whole(&Method::GET, &path, &accept, &Bytes::new()).await?;
        String::from_utf8(bytes.into())
            .map_err(|_| Trouble::Strange("the log is no UTF-8".to_owned()))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        read(&self.whole(&Method::GET, path, &[], &Bytes::new()).await?)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Bytes,
    ) -> Result<T, Trouble> {
        read(&self.whole(&Method::POST, path, headers, &body).await?)
    }

    /// Sends until there is an answer, or patience ends.
    async fn whole(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &Bytes,
    ) -> Result<Bytes, Trouble> {
        let mut waiting = self.patience.begin();
        loop {
            let ask = Ask { method: method.clone(), path, headers, body: body.clone() };
            match self.place.whole(ask).await {
                Err(Trouble::Lost(why)) if waiting.again().await => {
                    tracing::debug!(path, why, "sent again");
                }
                done => return done,
            }
        }
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Trouble> {
    serde_json::from_slice(bytes)
        .map_err(|error| Trouble::Strange(format!("the answer cannot be understood: {error}")))
}

/// What came from outside, as a part of a path.
pub(super) fn escaped(part: &str) -> String {
    byte_serialize(part.as_bytes()).collect::<String>().replace('+', "%20")
}
