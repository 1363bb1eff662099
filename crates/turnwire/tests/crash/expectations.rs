//! What the server must have: everything sent, acknowledged and shown. Kept by the test, which is
//! never killed.

use crate::http::{Client, Request};
use crate::server_address::ServerAddress;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

/// Shared by all clients.
pub struct Expectations {
    pub seed: u64,
    pub server: Arc<ServerAddress>,
    sessions: Mutex<BTreeMap<String, SessionExpectation>>,
    tally: Mutex<Tally>,
}

/// The expected state of one session.
#[derive(Default)]
pub struct SessionExpectation {
    pub epoch: String,
    pub kind: Kind,
    pub stage: Stage,
    /// Used since the last check.
    pub touched: bool,
    /// Checked since it settled.
    pub is_checked: bool,
    /// A stop is in progress: pending calls may end.
    pub is_stopping: bool,
    /// A hash per event of the log when it was last read: it must never change.
    pub log: Vec<u64>,
    /// A hash per event that a raw subscriber received, by seq.
    pub seen: BTreeMap<u64, u64>,
    /// The largest seq that any subscriber received.
    pub shown: u64,
    pub published: Published,
    /// Posted messages and retries, in order.
    pub requests: Vec<KeyedRequest>,
    /// Pending calls, by call id.
    pub pending: HashMap<String, PendingState>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A producer publishes its replies.
    #[default]
    External,
    /// The demo agent replies.
    Demo,
    /// A fork of another session.
    Fork,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Active,
    /// Nothing runs, is pending, or will come.
    Settled,
    /// Its deletion was requested or confirmed.
    Deleting,
    Deleted,
}

/// Events that a producer sent to a session.
#[derive(Default)]
pub struct Published {
    /// All events in order, as sent.
    pub sent: Vec<String>,
    /// How many were acknowledged.
    pub acknowledged: usize,
    /// How many were in the log when it was last read.
    pub stored: usize,
    /// A request in flight that brings the log to this number.
    pub under_way: Option<usize>,
}

/// A request with an `Idempotency-Key`.
#[derive(Clone)]
pub struct KeyedRequest {
    pub request: Request,
    /// The message id; empty for a retry.
    pub message_id: String,
    pub answer: RecordedAnswer,
}

#[derive(Clone, PartialEq)]
pub enum RecordedAnswer {
    /// None yet.
    None,
    /// It was acknowledged with this.
    Accepted(Value),
    /// It was refused: it must have no effect.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingState {
    /// Somebody saw it.
    Open,
    /// An answer is under way.
    Answering,
    /// The answer was acknowledged.
    Answered,
    /// Its reply was stopped.
    Stopped,
}

/// Counters of the test.
#[derive(Default)]
pub struct Tally {
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    /// Any other violation.
    pub wrong: u64,
    pub why: Vec<String>,
    pub counts: BTreeMap<&'static str, u64>,
}

/// A violation.
#[derive(Clone, Copy)]
pub enum Violation {
    Lost,
    Duplicated,
    Reordered,
    Wrong,
}

impl Expectations {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            seed,
            server: Arc::default(),
            sessions: Mutex::default(),
            tally: Mutex::default(),
        })
    }

    pub fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, SessionExpectation>> {
        self.sessions.lock().unwrap()
    }

    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap()
    }

    /// Runs `work` on the state of one session.
    pub fn with_session<R>(&self, id: &str, work: impl FnOnce(&mut SessionExpectation) -> R) -> R {
        let mut books = self.sessions();
        let session = books.get_mut(id).unwrap();
        session.touched = true;
        work(session)
    }

    pub fn count(&self, what: &'static str, by: u64) {
        *self.tally().counts.entry(what).or_default() += by;
    }

    pub fn report(&self, broken: Violation, why: impl Into<String>) {
        let mut tally = self.tally();
        let Tally { lost, duplicated, reordered, wrong, .. } = &mut *tally;
        *match broken {
            Violation::Lost => lost,
            Violation::Duplicated => duplicated,
            Violation::Reordered => reordered,
            Violation::Wrong => wrong,
        } += 1;
        if tally.why.len() < 40 {
            tally.why.push(why.into());
        }
    }

    pub fn has_no_violations(&self) -> bool {
        let Tally { lost, duplicated, reordered, wrong, .. } = *self.tally();
        lost + duplicated + reordered + wrong == 0
    }

    /// Creates a session and its expected state.
    pub fn create_session(&self, client: &mut Client, id: &str, kind: Kind) {
        if let Some(deleted) = self.sessions().get_mut(id) {
            // From here on it may be there again.
            deleted.stage = Stage::Deleting;
        }
        let agent = if kind == Kind::External { "external" } else { "demo" };
        let make = Request::post("/v1/sessions", &json!({"id": id, "agent": agent}));
        let answer = client.call_until_answered(&make);
        if !matches!(answer.status, 200 | 201) {
            self.report(Violation::Wrong, format!("{id} was not made: {}", answer.text()));
        }
        let epoch = answer.json()["epoch"].as_str().unwrap_or_default().to_owned();
        self.sessions().insert(
            id.to_owned(),
            SessionExpectation { epoch, kind, ..SessionExpectation::default() },
        );
        self.count("sessions", 1);
    }
}

pub fn hash_bytes(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
