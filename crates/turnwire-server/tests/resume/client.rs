//! A client that subscribes and resumes in one of several ways.

use crate::writers::request_until_answered;
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use tokio::sync::watch;
use turnwire_core::{Event, FoldCursor, Folder, Msg};
use turnwire_testkit::Rng;
use turnwire_testkit::net::{Frame, SseParser, StreamingResponse, http};
use turnwire_wires::{DecoderOptions, Wire};

/// How a client resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeMethod {
    /// With `Last-Event-ID`, like a browser's `EventSource`.
    LastEventId,
    /// With `after`, like a client that cannot set headers.
    After,
    /// It discards everything, loads the messages, and subscribes from there.
    Reload,
}

/// What a client subscribes to, and how.
#[derive(Debug, Clone)]
pub struct ClientPlan {
    pub session: String,
    pub method: ResumeMethod,
    pub raw: bool,
    pub wire: &'static str,
}

impl ClientPlan {
    pub fn random(rng: &mut Rng, session: String) -> Self {
        let way =
            [ResumeMethod::LastEventId, ResumeMethod::After, ResumeMethod::Reload][rng.usize(..3)];
        let wire =
            if way != ResumeMethod::Reload && rng.u8(..4) == 0 { "agentscope" } else { "turnwire" };
        Self { session, method: way, raw: rng.bool(), wire }
    }
}

/// What a client has received.
#[derive(Default)]
pub struct ClientState {
    pub folder: Folder,
    /// The seq of the last event, with its token.
    pub last: u64,
    pub token: Option<String>,
    pub frames: usize,
    pub connections: usize,
}

impl ClientState {
    fn take_frame(&mut self, plan: &ClientPlan, frame: Frame) {
        assert_eq!(frame.event, None, "no names, so that `onmessage` gets all");
        if let Some(data) = frame.data {
            self.take(plan, &data, frame.id);
        }
    }

    /// Takes a complete frame with its token.
    pub fn take(&mut self, plan: &ClientPlan, data: &str, token: Option<String>) {
        self.frames += 1;
        let wire = Wire::named(plan.wire).unwrap();
        let decoder = wire.decoder(&DecoderOptions::default()).unwrap();
        for event in decoder.decode_all(data.as_bytes()).unwrap() {
            assert_ne!(event.kind.type_name(), "RESET", "{plan:?}: {data}");
            if let Some(seq) = event.seq {
                let from = event.seq_from.unwrap_or(seq).get();
                assert_eq!(from, self.last + 1, "{plan:?}: lost, doubled or reordered: {data}");
                self.last = seq.get();
            }
            self.fold(plan, &event);
        }
        if let Some(id) = token {
            let seq: u64 = id.rsplit_once('.').unwrap().1.parse().unwrap();
            assert!(seq >= self.last, "{plan:?}: {id} behind {}", self.last);
            self.last = seq;
            self.token = Some(id);
        }
    }

    fn fold(&mut self, plan: &ClientPlan, event: &Event<'_>) {
        let outcome = self.folder.push(event);
        let outcome = outcome.unwrap_or_else(|why| panic!("{plan:?}: {why}: {}", event.to_json()));
        assert_ne!(outcome, turnwire_core::Outcome::Repeated, "{plan:?}: {}", event.to_json());
    }
}

/// Subscribes until it has everything that was ever written.
pub async fn watch(
    proxy: SocketAddr,
    plan: ClientPlan,
    mut end: watch::Receiver<Option<u64>>,
) -> ClientState {
    let mut seen = ClientState::default();
    while !has_all(&seen, *end.borrow()) {
        if plan.method == ResumeMethod::Reload {
            let connections = seen.connections;
            seen = load(proxy, &plan.session).await;
            seen.connections = connections;
        }
        seen.connections += 1;
        // However a connection ends, it resumes from what it has.
        let _ = watch_once(proxy, &plan, &mut seen, &mut end).await;
    }
    seen
}

pub fn has_all(seen: &ClientState, end: Option<u64>) -> bool {
    end.is_some_and(|end| {
        assert!(seen.last <= end, "there is nothing behind the end");
        seen.last == end
    })
}

async fn watch_once(
    proxy: SocketAddr,
    plan: &ClientPlan,
    seen: &mut ClientState,
    end: &mut watch::Receiver<Option<u64>>,
) -> io::Result<()> {
    let ClientPlan { session, raw, wire, .. } = plan;
    let mut path = format!("/v1/sessions/{session}/events?wire={wire}&raw={raw}");
    let token = seen.token.clone().unwrap_or_default();
    let mut headers = vec![("accept", "text/event-stream")];
    match plan.method {
        _ if token.is_empty() => {}
        ResumeMethod::LastEventId => headers.push(("last-event-id", &token)),
        ResumeMethod::After | ResumeMethod::Reload => path.extend(["&after=", &token]),
    }
    let request = http::request(proxy, "GET", &path, &headers, b"");
    let mut incoming = StreamingResponse::send(proxy, &request).await?;
    assert_eq!(incoming.status, 200, "{}", incoming.head);
    let mut sse = SseParser::default();
    while !has_all(seen, *end.borrow()) {
        let bytes = tokio::select! {
            bytes = incoming.next_bytes() => bytes?,
            _ = end.changed() => continue,
        };
        let Some(bytes) = bytes else { return Ok(()) };
        for frame in sse.feed(&bytes) {
            seen.take_frame(plan, frame);
        }
    }
    Ok(())
}

/// Loads the messages, and the cursor to resume from.
async fn load(proxy: SocketAddr, session: &str) -> ClientState {
    let path = format!("/v1/sessions/{session}/messages?agents=all&limit=500");
    let page = request_until_answered(proxy, "GET", &path, &[], b"").await.json();
    assert_eq!(page["has_more"], false);
    let token = page["last_event_id"].as_str().unwrap().to_owned();
    let messages = page["messages"].as_array().unwrap().iter().map(|message| {
        let msg = Msg::from_json(&message.to_string()).unwrap();
        match page["cursors"].get(msg.id()) {
            Some(cursor) => {
                msg.with_cursor(serde_json::from_value::<FoldCursor>(cursor.clone()).unwrap())
            }
            None => msg,
        }
    });
    ClientState {
        folder: messages.collect(),
        last: token.rsplit_once('.').unwrap().1.parse().unwrap(),
        token: Some(token),
        ..ClientState::default()
    }
}

/// The messages of a folder as JSON, sorted by id: a client that loads a page sees open ones early.
pub fn messages(folder: &Folder) -> Vec<Value> {
    sorted(folder.history().map(|msg| serde_json::from_str(&msg.to_json()).unwrap()).collect())
}

pub fn sorted(mut messages: Vec<Value>) -> Vec<Value> {
    messages.sort_by_key(|message| message["id"].as_str().unwrap().to_owned());
    messages
}
