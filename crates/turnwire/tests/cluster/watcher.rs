//! A subscriber that follows sessions across nodes, on one of several wires. It resumes with its last event id.

use crate::checker::Violation;
use crate::client::Client;
use crate::connection::{Connection, Request};
use crate::harness::{ClusterTest, KnownSession, pause};
use crate::history::{Shown, digest, token_seq};
use crate::socket::{Received, Socket};
use crate::transcript::Transcript;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwire_testkit::net::SseParser;
use turnwire_testkit::one_in;

/// Between two looks for a session.
const POLL: Duration = Duration::from_millis(50);

/// After a connection that failed.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// The longest time until everything has come.
const MAX_BEHIND: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchedWire {
    /// Every event as it was written.
    Raw,
    /// With merged deltas.
    Merged,
    WebSocket,
    AgUi,
}

pub const WIRES: [WatchedWire; 4] =
    [WatchedWire::Raw, WatchedWire::Merged, WatchedWire::WebSocket, WatchedWire::AgUi];

/// Follows one session after the other until the writers have finished.
pub fn run(client: &mut Client, wire: WatchedWire) {
    let mut done: Vec<String> = Vec::new();
    loop {
        let test = client.test.clone();
        let is_wanted = |session: &KnownSession| {
            // Producers use block ids again, which AG-UI renames differently after a snapshot.
            let is_readable = wire != WatchedWire::AgUi || !session.id.starts_with("external");
            is_readable && !done.contains(&session.id)
        };
        match test.pick_active(&mut client.rng, is_wanted) {
            Some(session) => {
                Watcher::new(test, session.clone(), wire).follow(client);
                done.push(session.id.clone());
            }
            None if test.is_at_rest() => break,
            None => pause(POLL),
        }
    }
}

/// What one watcher has.
pub struct Watcher {
    test: Arc<ClusterTest>,
    session: Arc<KnownSession>,
    wire: WatchedWire,
    number: usize,
    token: Option<String>,
    last: u64,
    /// The head of the session after it settled.
    end: Option<u64>,
    transcript: Transcript,
    is_broken: bool,
}

impl Watcher {
    pub fn new(test: Arc<ClusterTest>, session: Arc<KnownSession>, wire: WatchedWire) -> Self {
        Self {
            number: test.next_number(),
            test,
            session,
            wire,
            token: None,
            last: 0,
            end: None,
            transcript: Transcript::default(),
            is_broken: false,
        }
    }

    /// Follows the session until it has settled and everything was received.
    pub fn follow(&mut self, client: &mut Client) {
        let mut deadline = None;
        while !self.is_finished(client) {
            let read = match self.wire {
                WatchedWire::WebSocket => self.read_socket(client),
                WatchedWire::Raw | WatchedWire::Merged | WatchedWire::AgUi => self.read_sse(client),
            };
            self.test
                .history
                .count(if read.is_ok() { "streams that ended" } else { "streams broken off" }, 1);
            client.move_on();
            if read.is_err() {
                pause(RECONNECT_PAUSE);
            }
            if self.session.is_settled() {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + MAX_BEHIND);
                if Instant::now() > deadline {
                    let (last, end, wire) = (self.last, self.end, self.wire);
                    self.report(
                        Violation::Lost,
                        format!("{wire:?} is at {last}, the end is {end:?}"),
                    );
                }
            }
        }
        if !self.is_broken && self.wire == WatchedWire::AgUi {
            self.compare_messages(client);
        }
    }

    fn report(&mut self, what: Violation, why: String) {
        self.is_broken = true;
        self.test.history.record(&self.session.id, |session| session.wrong.push((what, why)));
    }

    fn is_finished(&mut self, client: &mut Client) -> bool {
        if self.session.is_settled() && self.end.is_none() {
            let view = self.test.clone().view(client, &self.session.id);
            self.end = view.and_then(|view| view["last_seq"].as_u64());
        }
        self.has_everything()
    }

    fn has_everything(&self) -> bool {
        self.is_broken || self.end.is_some_and(|end| self.last >= end)
    }

    /// Whether a stream should be left: everything is there, it is not known yet where the end is, or by chance.
    fn wants_to_leave(&self, client: &mut Client) -> bool {
        self.has_everything()
            || (self.session.is_settled() && self.end.is_none())
            || one_in(&mut client.rng, 300)
    }

    fn path(&self) -> String {
        let query = match self.wire {
            WatchedWire::Raw | WatchedWire::WebSocket => "raw=true",
            WatchedWire::Merged => "raw=false",
            WatchedWire::AgUi => "wire=ag-ui",
        };
        format!("/v1/sessions/{}/events?{query}", self.session.id)
    }

    fn read_sse(&mut self, client: &mut Client) -> io::Result<()> {
        let mut request = Request::get(self.path()).header("accept", "text/event-stream");
        if let Some(token) = &self.token {
            request = request.header("last-event-id", token);
        }
        self.transcript.reconnect();
        let mut connection = Connection::open(client.address())?;
        connection.send(&request)?;
        if !self.accepts(connection.read_head()?.status) {
            return Ok(());
        }
        let mut parser = SseParser::default();
        while let Some(chunk) = connection.read_chunk()? {
            for frame in parser.feed(&chunk) {
                if let Some(data) = frame.data {
                    self.take(&data, frame.id);
                }
            }
            if self.wants_to_leave(client) {
                break;
            }
        }
        Ok(())
    }

    /// Whether a stream follows. A node without the session is stale: somebody knows that it exists.
    fn accepts(&mut self, status: u16) -> bool {
        match status {
            200 => return true,
            503 => self.test.history.count("streams refused with 503", 1),
            404 => self.report(Violation::StaleRead, "a stream was answered 404".to_owned()),
            status => self.report(Violation::Wrong, format!("a stream was answered {status}")),
        }
        false
    }

    fn read_socket(&mut self, client: &mut Client) -> io::Result<()> {
        let mut socket = Socket::open(client.address())?;
        socket.subscribe(&self.session.id, self.token.as_deref())?;
        loop {
            match socket.next()? {
                Received::Text(text) => {
                    let frame: Value = serde_json::from_str(&text)?;
                    match frame["type"].as_str() {
                        Some("subscribed") => {}
                        // The store is away, or the node stops.
                        Some("unsubscribed" | "error") => break,
                        _ => self.take(&text, frame["event_id"].as_str().map(str::to_owned)),
                    }
                }
                Received::SignOfLife => {}
                Received::Closed => break,
            }
            if self.wants_to_leave(client) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a frame.
    fn take(&mut self, data: &str, token: Option<String>) {
        let frame: Value = serde_json::from_str(data).unwrap_or_default();
        if frame["type"] == "RESET" {
            return self.report(Violation::StaleRead, format!("reset after {}: {data}", self.last));
        }
        let head = token.as_ref().and_then(|token| token_seq(&Value::from(token.as_str())));
        if self.wire == WatchedWire::AgUi {
            self.transcript.push(&frame, token.is_some());
        }
        // Only the last frame of an event has a token.
        let (Some(seq), Some(token)) = (head, token) else { return };
        let (first, digest) = match self.wire {
            WatchedWire::Raw => (seq, Some(digest(data))),
            WatchedWire::WebSocket => (seq, None),
            WatchedWire::Merged => (frame["seq_from"].as_u64().unwrap_or(seq), None),
            // Some events have no frame.
            WatchedWire::AgUi => (seq.min(self.last + 1), None),
        };
        let shown = Shown { at: self.test.history.now(), watcher: self.number, first, seq, digest };
        self.test.history.record(&self.session.id, |session| session.shown.push(shown));
        self.test.history.count("events watched", 1);
        self.last = seq;
        self.token = Some(token);
    }

    /// However often its stream was broken off, the client has the messages that the server has.
    fn compare_messages(&mut self, client: &mut Client) {
        let path = format!("/v1/sessions/{}/messages?wire=ag-ui&limit=500", self.session.id);
        let page = client.call(&Request::get(path)).json();
        let mut theirs = Transcript::default();
        let snapshot = json!({"type": "MESSAGES_SNAPSHOT", "messages": page["messages"]});
        theirs.push(&snapshot, true);
        if let Some((id, text)) = self.transcript.find_missing(&theirs).first() {
            let mine = self.transcript.text(id);
            let trail = self.transcript.describe_trail(id);
            let why = format!("ag-ui has {mine:?} as {id}, not {text:?}; it got {trail}");
            self.report(Violation::Changed, why);
        }
        self.test.history.count("ag-ui streams compared", 1);
    }
}
