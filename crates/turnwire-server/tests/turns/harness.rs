//! A server without a network: the handlers over a store.

use crate::fake_agent::FakeAgent;
use crate::test_store::test_store;
use axum::body::Body;
use axum::{Extension, Router};
use http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_core::{Event, EventKind, Fields, Msg, Seq};
use turnwire_log::store::{NewSession, SessionKey, SessionStatus};
use turnwire_log::{HeadState, Log, Session, Store};
use turnwire_server::auth::Auth;
use turnwire_server::config::{Config, Limits};
use turnwire_server::turns::client_events::{self, EventsAccepted};
use turnwire_server::{App, Caller};

/// No wait in these tests takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Harness {
    pub app: Arc<App>,
    pub actor: Arc<FakeAgent>,
    caller: Caller,
    router: Router,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn kind(&self) -> &str {
        self.body["error"]["type"].as_str().unwrap_or_default()
    }
}

impl Harness {
    pub fn new() -> Self {
        Self::with_store(test_store(), "")
    }

    /// A server over a store, with these settings. It has not recovered anything yet.
    pub fn with_store(store: Arc<dyn Store>, settings: &str) -> Self {
        Self::with_agents(store, settings, Vec::new())
    }

    /// The same, with more agents.
    pub fn with_agents(
        store: Arc<dyn Store>,
        settings: &str,
        more: Vec<(&str, Arc<dyn Replier>)>,
    ) -> Self {
        let actor = FakeAgent::new();
        let agents: [(_, Arc<dyn Replier>); 2] =
            [("actor", actor.clone()), ("demo", Arc::new(DemoAgent::with_rate(0.0)))];
        let agents: BTreeMap<_, _> =
            agents.into_iter().chain(more).map(|(name, agent)| (name.to_owned(), agent)).collect();
        let config = Config::parse("test", settings).unwrap();
        let app = App::new(config, Arc::new(Log::new(store, "test")), agents).unwrap();
        let caller =
            Auth::without_credentials(&Limits::default()).authenticate_token("anybody").unwrap();
        let router =
            crate::checked_router::checked_router(app.clone()).layer(Extension(caller.clone()));
        Self { app, actor, caller, router }
    }

    pub async fn session(&self, id: &str, agent: &str) -> Arc<Session> {
        let new = NewSession {
            key: SessionKey::new("default", id),
            agent: agent.to_owned(),
            title: String::new(),
            metadata: Fields::default(),
            now_ms: 0,
        };
        self.app.log.create_session(new).await.unwrap().0
    }

    pub async fn request(&self, request: Request<Body>) -> http::Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub async fn request_json(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> Answer {
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.request(request.body(Body::from(body)).unwrap()).await;
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.request_json("POST", path, None, &body).await
    }

    /// Sends a message to the session `s`.
    pub async fn send_text(&self, text: &str) -> Answer {
        self.post("/v1/sessions/s/messages", json!({"content": text})).await
    }

    /// Stops the open reply of a session.
    pub async fn stop(&self, session: &Arc<Session>) -> EventsAccepted {
        client_events::stop_reply(&self.app, session, &self.caller).await.unwrap()
    }

    /// Sends an event to the session `s`.
    pub async fn post_event(&self, event: Value) -> Answer {
        self.post("/v1/sessions/s/events", json!([event])).await
    }
}

/// Waits until the head of a session matches.
pub async fn until(session: &Session, wanted: impl FnMut(&HeadState) -> bool) -> HeadState {
    let mut head = session.watch_head();
    let head = tokio::time::timeout(PATIENCE, head.wait_for(wanted)).await;
    *head.expect("it takes too long").unwrap()
}

pub async fn until_idle(session: &Session) {
    until(session, |head| head.status == SessionStatus::Idle).await;
}

pub async fn until_waiting(session: &Session) {
    until(session, |head| head.status == SessionStatus::Waiting).await;
}

/// Polls until something holds that has no notification.
pub async fn eventually(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it takes too long");
}

/// The log of a session.
pub async fn events(session: &Session) -> Vec<Event<'static>> {
    let mut events = Vec::new();
    for rows in session.read_events(Seq::FIRST, usize::MAX).await.unwrap() {
        for (seq, line) in rows.iter() {
            events.push(Session::parse_event(seq, line).unwrap().into_owned());
        }
    }
    events
}

pub async fn types(session: &Session) -> Vec<String> {
    events(session).await.iter().map(|event| event.kind.type_name().to_owned()).collect()
}

pub async fn count(session: &Session, kind: &str) -> usize {
    types(session).await.iter().filter(|name| *name == kind).count()
}

/// A finished message.
pub async fn message(session: &Session, id: &str) -> Msg {
    let stored = session.find_message(id).await.unwrap().expect("the message is finished");
    Msg::from_json(std::str::from_utf8(&stored.json).unwrap()).unwrap()
}

/// The events of a stream that has ended.
pub async fn frames(response: http::Response<Body>) -> Vec<Event<'static>> {
    let body = axum::body::to_bytes(response.into_body(), usize::MAX);
    // Heartbeats reset a timeout of single reads, so the timeout is for the whole stream.
    let bytes = tokio::time::timeout(PATIENCE, body).await.expect("it goes on").unwrap();
    let text = std::str::from_utf8(&bytes).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|line| Event::from_json(line).unwrap().into_owned()).collect()
}

/// Checks that folding the log gives the stored messages.
pub async fn check_projection(session: &Session) {
    let mut replies: BTreeMap<String, Msg> = BTreeMap::new();
    for event in events(session).await {
        if event.reply_id.is_empty() || !event.kind.is_part_of_reply() {
            continue;
        }
        let id = event.reply_id.to_string();
        let msg = replies.entry(id.clone()).or_insert_with(|| Msg::reply(id, ""));
        msg.append_event(&event).unwrap();
        if matches!(event.kind, EventKind::ReplyEnd(_)) {
            let stored = message(session, msg.id()).await;
            assert_eq!(*msg, stored);
        }
    }
}
