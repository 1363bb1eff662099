//! The routes over an engine in memory, and events to put there.

use crate::test_store::test_store;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tower::ServiceExt;
use turnwire_core::Event;
use turnwire_log::store::{Retention, SessionKey};
use turnwire_log::{Error, Log, Session};
use turnwire_server::auth::{Auth, Identity, Scopes, SessionPattern};
use turnwire_server::config::Config;
use turnwire_server::{App, Caller};

pub struct Server {
    pub app: Arc<App>,
    router: Router,
    caller: Caller,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap()
    }

    /// The body, if this was the status.
    pub fn expect(&self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.bytes);
        assert_eq!(self.status.as_u16(), status, "{text}");
        if self.bytes.is_empty() { Value::Null } else { self.json() }
    }
}

fn everybody(config: &Config) -> Caller {
    Auth::without_credentials(&config.limits).authenticate_token("").unwrap()
}

impl Server {
    pub fn new() -> Self {
        Self::with("")
    }

    pub fn with(settings: &str) -> Self {
        let config = Config::parse("turnwire.toml", settings).unwrap();
        let caller = everybody(&config);
        let agent: Arc<dyn turnwire_agent::Replier> = Arc::new(Silent);
        let log = Arc::new(Log::new(test_store(), "test"));
        let app = App::new(config, log, BTreeMap::from([("demo".to_owned(), agent)])).unwrap();
        let router = crate::checked_router::checked_router(app.clone());
        Self { app, router, caller }
    }

    /// The same server for somebody who reaches only these sessions, or may only do this.
    pub fn seen_by(&self, sessions: Option<&[&str]>, scopes: Scopes) -> Self {
        let identity = Identity {
            sessions: sessions
                .map(|rules| rules.iter().map(|rule| SessionPattern::new(rule)).collect()),
            ..Identity::new(self.caller.0.tenant.clone(), scopes)
        };
        let caller = Caller(Arc::new(identity));
        Self { app: self.app.clone(), router: self.router.clone(), caller }
    }

    pub async fn send(&self, mut request: Request<Body>) -> Answer {
        request.extensions_mut().insert(self.caller.clone());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    pub async fn call(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        self.send(request).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Body::empty()).await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.call("POST", path, body.to_owned()).await
    }

    pub async fn make(&self, id: &str) -> Arc<Session> {
        let body = format!(r#"{{"id":"{id}","agent":"external"}}"#);
        self.post("/v1/sessions", &body).await.expect(201);
        self.session(id).await
    }

    pub async fn session(&self, id: &str) -> Arc<Session> {
        let key = SessionKey::new("default", id);
        self.app.log.open_session(&key).await.unwrap().unwrap()
    }

    /// Removes all events that can go.
    pub async fn trim(&self) {
        let retention = Retention { before_ms: Some(i64::MAX), ..Retention::default() };
        self.app.log.apply_retention(retention).await.unwrap();
    }
}

/// An agent that nobody asks.
struct Silent;

#[async_trait::async_trait]
impl turnwire_agent::Replier for Silent {
    fn description(&self) -> &'static str {
        "says nothing"
    }

    fn model_name(&self) -> &'static str {
        "demo"
    }

    async fn run(
        &self,
        _: turnwire_agent::ReplyRequest,
        _: &mut dyn turnwire_agent::Journal,
    ) -> Result<(), turnwire_agent::AgentError> {
        Ok(())
    }
}

pub async fn publish(session: &Arc<Session>, lines: &[String]) {
    let change = |tx: &mut turnwire_log::Transaction<'_>| {
        for (at, line) in lines.iter().enumerate() {
            let mut event = Event::from_json(line).unwrap();
            tx.push(&mut event, Some(line)).map_err(|why| Error::Refused { at, why })?;
        }
        Ok::<_, Error>(())
    };
    session.transact(&[], change).await.unwrap();
}

fn line(id: &str, reply: &str, rest: &str) -> String {
    format!(r#"{{"id":"{id}","reply_id":"{reply}",{rest}}}"#)
}

/// A `MESSAGE` event of a user.
pub fn user_message(id: &str, text: &str) -> String {
    let message = format!(r#"{{"id":"{id}","name":"alice","role":"user","content":"{text}"}}"#);
    format!(r#"{{"id":"e-{id}","type":"MESSAGE","message":{message}}}"#)
}

/// A reply in five events, with usage.
pub fn reply(id: &str, text: &str) -> Vec<String> {
    let parts = [
        r#""type":"REPLY_START","name":"friday""#.to_owned(),
        r#""type":"TEXT_BLOCK_START","block_id":"b""#.to_owned(),
        format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"{text}""#),
        r#""type":"TEXT_BLOCK_END","block_id":"b""#.to_owned(),
        r#""type":"REPLY_END""#.to_owned(),
    ];
    parts.iter().enumerate().map(|(n, rest)| line(&format!("{id}-{n}"), id, rest)).collect()
}

/// A reply that waits for a person.
pub fn asking(id: &str) -> Vec<String> {
    let ask = r#""type":"REQUIRE_USER_CONFIRM","created_at":"2026-01-01T00:00:00.000Z","tool_calls":[{"type":"tool_call","id":"c","name":"trade","input":"{}"}]"#;
    let parts = [
        r#""type":"REPLY_START","name":"friday""#,
        r#""type":"TOOL_CALL_START","tool_call_id":"c","tool_call_name":"trade""#,
        r#""type":"TOOL_CALL_END","tool_call_id":"c""#,
        ask,
    ];
    parts.iter().enumerate().map(|(n, rest)| line(&format!("{id}-{n}"), id, rest)).collect()
}
