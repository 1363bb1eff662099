//! What was sent, acknowledged and seen. It is kept by the test, which is never killed.

use crate::beacon::Beacon;
use crate::http::{Client, Request};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

/// What everybody shares.
pub struct World {
    pub seed: u64,
    pub beacon: Arc<Beacon>,
    books: Mutex<BTreeMap<String, Book>>,
    tally: Mutex<Tally>,
}

/// What one session is expected to be.
#[derive(Default)]
pub struct Book {
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
    pub asked: Vec<Asked>,
    /// What waited for somebody, by the id of the call.
    pub questions: HashMap<String, Question>,
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
pub struct Asked {
    pub request: Request,
    /// The id that the message was given; empty for a retry.
    pub message_id: String,
    pub answer: Reply,
}

#[derive(Clone, PartialEq)]
pub enum Reply {
    /// None yet.
    None,
    /// It was acknowledged with this.
    Accepted(Value),
    /// It was refused: it must have no effect.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
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
pub enum Broken {
    Lost,
    Duplicated,
    Reordered,
    Wrong,
}

impl World {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            seed,
            beacon: Arc::default(),
            books: Mutex::default(),
            tally: Mutex::default(),
        })
    }

    pub fn books(&self) -> MutexGuard<'_, BTreeMap<String, Book>> {
        self.books.lock().unwrap()
    }

    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap()
    }

    /// Works on the book of one session.
    pub fn with<R>(&self, id: &str, work: impl FnOnce(&mut Book) -> R) -> R {
        let mut books = self.books();
        let book = books.get_mut(id).unwrap();
        book.touched = true;
        work(book)
    }

    pub fn count(&self, what: &'static str, by: u64) {
        *self.tally().counts.entry(what).or_default() += by;
    }

    pub fn report(&self, broken: Broken, why: impl Into<String>) {
        let mut tally = self.tally();
        let Tally { lost, duplicated, reordered, wrong, .. } = &mut *tally;
        *match broken {
            Broken::Lost => lost,
            Broken::Duplicated => duplicated,
            Broken::Reordered => reordered,
            Broken::Wrong => wrong,
        } += 1;
        if tally.why.len() < 40 {
            tally.why.push(why.into());
        }
    }

    pub fn is_sound(&self) -> bool {
        let Tally { lost, duplicated, reordered, wrong, .. } = *self.tally();
        lost + duplicated + reordered + wrong == 0
    }

    /// Makes a session, and opens its book.
    pub fn make(&self, client: &mut Client, id: &str, kind: Kind) {
        if let Some(deleted) = self.books().get_mut(id) {
            // From here on it may be there again.
            deleted.stage = Stage::Deleting;
        }
        let agent = if kind == Kind::External { "external" } else { "demo" };
        let make = Request::post("/v1/sessions", &json!({"id": id, "agent": agent}));
        let answer = client.sure(&make);
        if !matches!(answer.status, 200 | 201) {
            self.report(Broken::Wrong, format!("{id} was not made: {}", answer.text()));
        }
        let epoch = answer.json()["epoch"].as_str().unwrap_or_default().to_owned();
        self.books().insert(id.to_owned(), Book { epoch, kind, ..Book::default() });
        self.count("sessions", 1);
    }
}

pub fn hash(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
