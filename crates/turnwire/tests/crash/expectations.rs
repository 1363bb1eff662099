//! What was sent, acknowledged and seen. It is kept by the test, which is never killed.

use crate::http::{Client, Request};
use crate::server_address::ServerAddress;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

/// What everybody shares.
pub struct Expectations {
    pub seed: u64,
    pub server: Arc<ServerAddress>,
    sessions: Mutex<BTreeMap<String, SessionExpectation>>,
    tally: Mutex<Tally>,
}

/// What one session is expected to be.
#[derive(Default)]
pub struct SessionExpectation {
    pub epoch: String,
    pub kind: Kind,
    pub stage: Stage,
    /// Something was asked of it since it was last looked at.
    pub touched: bool,
    /// It was looked at since it came to rest.
    pub is_checked: bool,
    /// A stop is under way: what waits may wait no more.
    pub is_stopping: bool,
    /// Its log as it was last read, a hash for each event: it must never change.
    pub log: Vec<u64>,
    /// What a watcher that takes the log as it is was shown, by place.
    pub seen: BTreeMap<u64, u64>,
    /// The furthest place that anybody was shown.
    pub shown: u64,
    pub published: Published,
    /// The messages and retries that were posted, in order.
    pub requests: Vec<KeyedRequest>,
    /// What waited for somebody, by the id of the call.
    pub pending: HashMap<String, PendingState>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A producer writes its replies.
    #[default]
    External,
    /// The demo agent does.
    Demo,
    /// A copy of another one, up to a point.
    Fork,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Active,
    /// Nothing runs, waits or comes any more.
    Settled,
    /// Its end was asked for, or was answered.
    Deleting,
    Deleted,
}

/// What a producer sent to a session.
#[derive(Default)]
pub struct Published {
    /// All events in order, as they were sent.
    pub sent: Vec<String>,
    /// So many of them were acknowledged.
    pub acknowledged: usize,
    /// So many of them are in the log, as it was last read.
    pub stored: usize,
    /// A request that brings the log to so many is under way.
    pub under_way: Option<usize>,
}

/// A request with an `Idempotency-Key`.
#[derive(Clone)]
pub struct KeyedRequest {
    pub request: Request,
    /// The id that the message was given; empty for a retry.
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

/// What was counted.
#[derive(Default)]
pub struct Tally {
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    /// Anything else that must not be.
    pub wrong: u64,
    pub why: Vec<String>,
    pub counts: BTreeMap<&'static str, u64>,
}

/// What must not be.
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

    /// Works on the book of one session.
    pub fn with_session<R>(&self, id: &str, work: impl FnOnce(&mut SessionExpectation) -> R) -> R {
        let mut books = self.sessions();
        let book = books.get_mut(id).unwrap();
        book.touched = true;
        work(book)
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

    /// Makes a session, and opens its book.
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
