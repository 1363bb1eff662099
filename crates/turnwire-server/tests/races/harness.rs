//! A server over a gated store, and clients for the tests.

use crate::checked_http::send_http;
use crate::gated_store::GatedStore;
use crate::running::{Running, within};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinHandle;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_core::Event;
use turnwire_log::Session;
use turnwire_log::store::{Retention, SessionKey};
use turnwire_server::App;
use turnwire_testkit::net::{Frame, HttpResponse, SseParser, StreamingResponse, http};

pub struct Harness {
    pub gate: Arc<GatedStore>,
    pub app: Arc<App>,
    pub address: SocketAddr,
    server: Running,
}

impl Harness {
    pub fn new() -> Self {
        Self::with_store(GatedStore::new(), "")
    }

    pub fn with_store(gate: Arc<GatedStore>, settings: &str) -> Self {
        Self::with_agent(gate, settings, "demo", Arc::new(DemoAgent::with_rate(0.0)))
    }

    pub fn with_agent(
        gate: Arc<GatedStore>,
        settings: &str,
        name: &'static str,
        agent: Arc<dyn Replier>,
    ) -> Self {
        let (server, app) = Running::start(gate.clone(), settings, [(name, agent)]);
        Self { gate, app, address: server.address, server }
    }

    pub async fn stop(self) {
        self.server.stop().await;
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        within(send_http(self.address, method, path, headers, body.as_bytes())).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> HttpResponse {
        self.send("GET", path, &[], "").await
    }

    /// Sends a request, and does not wait for the response.
    pub fn begin(
        &self,
        method: &'static str,
        path: &'static str,
        headers: &'static [(&'static str, &'static str)],
        body: &str,
    ) -> JoinHandle<HttpResponse> {
        let (address, body) = (self.address, body.to_owned());
        tokio::spawn(async move {
            within(send_http(address, method, path, headers, body.as_bytes())).await.unwrap()
        })
    }

    /// Creates the session `s`.
    pub async fn session(&self, agent: &str) -> Arc<Session> {
        let body = json!({"id": "s", "agent": agent}).to_string();
        let made = self.send("POST", "/v1/sessions", &[], &body).await;
        assert_eq!(made.status, 201, "{}", made.text());
        self.open_session("s").await
    }

    pub async fn open_session(&self, id: &str) -> Arc<Session> {
        self.app.log.open_session(&SessionKey::new("default", id)).await.unwrap().unwrap()
    }

    /// Publishes to the session `s`.
    pub async fn publish(&self, lines: &[String]) -> HttpResponse {
        self.send("POST", EVENTS, PRODUCER, &lines.join("\n")).await
    }

    pub fn begin_publish(&self, lines: &[String]) -> JoinHandle<HttpResponse> {
        self.begin("POST", EVENTS, PRODUCER, &lines.join("\n"))
    }

    /// Deletes all events that retention can delete.
    pub async fn trim(&self) {
        let retention = Retention { before_ms: Some(i64::MAX), ..Retention::default() };
        self.app.log.apply_retention(retention).await.unwrap();
    }

    pub async fn watch(&self, query: &str) -> EventStream {
        EventStream::open(self.address, &format!("{EVENTS}?{query}"), &[]).await
    }

    /// The log as NDJSON.
    pub async fn log(&self) -> Vec<Value> {
        let answer = self.send("GET", EVENTS, LINES, "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn metric(&self, name: &str) -> u64 {
        let text = self.app.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.expect(&text).parse().unwrap()
    }
}

pub const EVENTS: &str = "/v1/sessions/s/events";
pub const MESSAGES: &str = "/v1/sessions/s/messages";
pub const PRODUCER: &[(&str, &str)] = &[("turnwire-producer", "p.1")];
pub const LINES: &[(&str, &str)] = &[("accept", "application/x-ndjson")];

/// Polls until something holds that has no notification.
pub async fn eventually(mut holds: impl FnMut() -> bool) {
    within(async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A client of server-sent events.
pub struct EventStream {
    pub incoming: StreamingResponse,
    sse: SseParser,
    frames: VecDeque<Frame>,
}

impl EventStream {
    pub async fn open(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let request = http::request(to, "GET", path, headers, b"");
        let incoming = within(StreamingResponse::send(to, &request)).await.unwrap();
        assert_eq!(incoming.status, 200, "{}", incoming.head);
        Self::from_incoming(incoming)
    }

    pub fn from_incoming(incoming: StreamingResponse) -> Self {
        Self { incoming, sse: SseParser::default(), frames: VecDeque::new() }
    }

    /// The next frame; `None` when the stream has ended or broken off.
    pub async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            let bytes = within(self.incoming.next_bytes()).await.ok()??;
            self.frames.extend(self.sse.feed(&bytes));
        }
    }

    /// The next event with its token; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<(Value, Option<String>)> {
        loop {
            let frame = self.frame().await?;
            if let Some(data) = frame.data {
                return Some((serde_json::from_str(&data).unwrap(), frame.id));
            }
        }
    }

    /// The types of the next events.
    pub async fn types(&mut self, count: usize) -> Vec<String> {
        let mut types = Vec::new();
        for _ in 0..count {
            types.push(self.next().await.unwrap().0["type"].as_str().unwrap().to_owned());
        }
        types
    }

    /// The seqs of the next events, up to `last`.
    pub async fn seqs(&mut self, last: u64) -> Vec<u64> {
        let mut seqs = Vec::new();
        while seqs.last().is_none_or(|seq| *seq < last) {
            let (event, _) = self.next().await.expect("it ended early");
            let seq = event["seq"].as_u64().unwrap();
            seqs.extend(event["seq_from"].as_u64().unwrap_or(seq)..=seq);
        }
        seqs
    }
}

fn line(id: &str, reply: &str, rest: &str) -> String {
    let line = format!(r#"{{"id":"{id}","reply_id":"{reply}",{rest}}}"#);
    Event::from_json(&line).unwrap();
    line
}

pub fn start(reply: &str) -> Vec<String> {
    vec![
        line(&format!("{reply}-start"), reply, r#""type":"REPLY_START","name":"friday""#),
        line(&format!("{reply}-block"), reply, r#""type":"TEXT_BLOCK_START","block_id":"b""#),
    ]
}

pub fn delta(reply: &str, at: usize, text: &str) -> String {
    let rest = format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"{text}""#);
    line(&format!("{reply}-{at}"), reply, &rest)
}

pub fn deltas(reply: &str, places: std::ops::Range<usize>) -> Vec<String> {
    places.map(|at| delta(reply, at, &format!("{at} "))).collect()
}

pub fn end(reply: &str) -> Vec<String> {
    vec![
        line(&format!("{reply}-done"), reply, r#""type":"TEXT_BLOCK_END","block_id":"b""#),
        line(&format!("{reply}-end"), reply, r#""type":"REPLY_END""#),
    ]
}

/// A whole reply: four events and so many deltas.
pub fn reply(id: &str, count: usize) -> Vec<String> {
    [start(id), deltas(id, 0..count), end(id)].concat()
}

/// The numbers from 1 to `last`.
pub fn up_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}
