//! What clients did and saw, in the order of one clock. `checker` reads it.

use crate::checker::Violation;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A moment: later ones are larger. Whatever ended before something else began has the smaller one.
pub type Tick = u64;

/// Shared by all clients.
#[derive(Default)]
pub struct History {
    clock: AtomicU64,
    sessions: Mutex<BTreeMap<String, SessionHistory>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// What an agent says to a message: always the same.
    known_replies: Mutex<BTreeMap<String, String>>,
    /// What is wrong with no session.
    reports: Mutex<Vec<String>>,
}

/// What clients did to one session, and saw of it.
#[derive(Default)]
pub struct SessionHistory {
    /// When its creation was acknowledged.
    pub created: Option<Tick>,
    pub appends: Vec<Append>,
    pub reads: Vec<Read>,
    pub shown: Vec<Shown>,
    pub answers: Vec<Answer>,
    /// Replies that were acknowledged, and the messages that they answer: each must end.
    pub replies: Vec<(String, String)>,
    /// What each node has when everything has come to rest.
    pub last_logs: Vec<Vec<LogEvent>>,
    /// What a client saw itself.
    pub wrong: Vec<(Violation, String)>,
}

/// Acknowledged events.
#[derive(Debug, Clone, Default)]
pub struct Append {
    pub began: Tick,
    pub acknowledged: Tick,
    /// Who sent it: the appends of one writer keep their order.
    pub writer: usize,
    /// The names of its events, in order.
    pub names: Vec<String>,
    /// The head that the acknowledgement gave; 0 for a message that may still be in the queue.
    pub head: u64,
    /// Whether its events are known to be the last ones up to `head`.
    pub is_exact: bool,
}

/// A request that read a session.
#[derive(Debug, Clone, Default)]
pub struct Read {
    pub began: Tick,
    pub ended: Tick,
    pub what: &'static str,
    /// `None`: the session does not exist.
    pub head: Option<u64>,
    /// Seq and digest of each event, if the read brings events.
    pub events: Vec<(u64, u64)>,
}

/// An event that a watcher received.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    pub at: Tick,
    pub watcher: usize,
    pub first: u64,
    pub seq: u64,
    /// Of an event that came as it was written.
    pub digest: Option<u64>,
}

/// A decision that was sent.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// See [`question_name`].
    pub question: String,
    pub id: String,
    /// Whether the server said that this decision counts.
    pub is_accepted: bool,
}

/// An event of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogEvent {
    pub seq: u64,
    pub name: String,
    pub digest: u64,
    /// The questions that it decides, and whether it allows the calls.
    pub decided: Vec<(String, bool)>,
    pub ended_reply: Option<String>,
    /// A call whose result says that the tool did its work.
    pub succeeded: Option<String>,
}

/// The name of a message among the names of events.
pub fn message_name(id: &str) -> String {
    format!("message {id}")
}

/// The name of the question whether a call may run. Random replies use the same call ids again.
pub fn question_name(reply: &str, call: &str) -> String {
    format!("{reply} {call}")
}

/// The call that a question is about.
pub fn asked_call(question: &str) -> &str {
    question.split_once(' ').map_or(question, |(_, call)| call)
}

pub fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The seq of a resume token.
pub fn token_seq(token: &Value) -> Option<u64> {
    token.as_str()?.rsplit_once('.')?.1.parse().ok()
}

impl LogEvent {
    pub fn parse(line: &str) -> Self {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = event["type"].as_str().unwrap_or_default();
        let decided = event["confirm_results"].as_array().into_iter().flatten();
        let reply = text(&event["reply_id"]);
        let decided = decided.map(|one| {
            (question_name(&reply, &text(&one["tool_call"]["id"])), one["confirmed"] == true)
        });
        Self {
            seq: event["seq"].as_u64().unwrap_or_default(),
            name: match kind {
                "MESSAGE" => message_name(&text(&event["message"]["id"])),
                _ => text(&event["id"]),
            },
            digest: digest(line),
            decided: decided.collect(),
            ended_reply: (kind == "REPLY_END").then(|| text(&event["reply_id"])),
            succeeded: (kind == "TOOL_RESULT_END" && event["state"] == "success")
                .then(|| text(&event["tool_call_id"])),
        }
    }
}

impl History {
    pub fn now(&self) -> Tick {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, SessionHistory>> {
        self.sessions.lock().unwrap()
    }

    /// Changes the history of one session.
    pub fn record(&self, session: &str, change: impl FnOnce(&mut SessionHistory)) {
        change(self.sessions().entry(session.to_owned()).or_default());
    }

    pub fn count(&self, what: &'static str, by: u64) {
        *self.counts.lock().unwrap().entry(what).or_default() += by;
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap().clone()
    }

    pub fn report(&self, why: &str) {
        self.reports.lock().unwrap().push(why.to_owned());
    }

    pub fn reports(&self) -> Vec<String> {
        self.reports.lock().unwrap().clone()
    }

    /// What was said to a message before; the first time, this.
    pub fn known_reply(&self, message: &str, reply: &str) -> String {
        let mut known_replies = self.known_replies.lock().unwrap();
        known_replies.entry(message.to_owned()).or_insert_with(|| reply.to_owned()).clone()
    }
}
