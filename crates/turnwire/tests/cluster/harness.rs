//! What all clients of a test share: where the nodes are, which sessions there are, and the history.

use crate::checker::Violation;
use crate::client::Client;
use crate::connection::{Answer, Request};
use crate::history::{History, Read, token_seq};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use turnwire_testkit::{Rng, pick};

pub struct ClusterTest {
    pub addresses: Vec<String>,
    pub history: History,
    sessions: Mutex<Vec<Arc<KnownSession>>>,
    /// Questions whose answer was acknowledged.
    pub answered: Mutex<Vec<String>>,
    is_ending: AtomicBool,
    is_at_rest: AtomicBool,
    names: AtomicUsize,
}

/// A session that somebody made.
pub struct KnownSession {
    pub id: String,
    is_settled: AtomicBool,
}

impl KnownSession {
    /// Nobody writes to it any more, and nothing runs.
    pub fn settle(&self) {
        self.is_settled.store(true, Ordering::SeqCst);
    }

    pub fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::SeqCst)
    }
}

impl ClusterTest {
    pub fn new(addresses: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            addresses,
            history: History::default(),
            sessions: Mutex::default(),
            answered: Mutex::default(),
            is_ending: AtomicBool::new(false),
            is_at_rest: AtomicBool::new(false),
            names: AtomicUsize::new(0),
        })
    }

    /// Writers start nothing new, and finish what they started.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
    }

    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// All writers have finished.
    pub fn rest(&self) {
        self.is_at_rest.store(true, Ordering::SeqCst);
    }

    pub fn is_at_rest(&self) -> bool {
        self.is_at_rest.load(Ordering::SeqCst)
    }

    pub fn next_number(&self) -> usize {
        self.names.fetch_add(1, Ordering::SeqCst)
    }

    pub fn sessions(&self) -> Vec<Arc<KnownSession>> {
        self.sessions.lock().unwrap().clone()
    }

    /// A random session that has not settled, if there is one that `wants` accepts.
    pub fn pick_active(
        &self,
        rng: &mut Rng,
        wants: impl Fn(&KnownSession) -> bool,
    ) -> Option<Arc<KnownSession>> {
        let mut sessions = self.sessions();
        sessions.retain(|session| !session.is_settled() && wants(session));
        (!sessions.is_empty()).then(|| pick(rng, &sessions).clone())
    }

    /// Creates a session.
    pub fn create_session(&self, client: &mut Client, agent: &str) -> Arc<KnownSession> {
        let id = format!("{agent}-{}", self.next_number());
        let answer =
            client.call(&Request::post("/v1/sessions", &json!({"id": id, "agent": agent})));
        assert!(matches!(answer.status, 200 | 201), "{id}: {}", answer.text());
        let now = self.history.now();
        self.history.record(&id, |session| session.created = Some(now));
        self.history.count("sessions", 1);
        let session = Arc::new(KnownSession { id, is_settled: AtomicBool::new(false) });
        self.sessions.lock().unwrap().push(session.clone());
        session
    }

    /// Reads a session once, with its head, and records that. `None`: no answer.
    pub fn view(&self, client: &mut Client, session: &str) -> Option<Value> {
        let began = self.history.now();
        let answer = client.call_once(&Request::get(format!("/v1/sessions/{session}")))?;
        let view = answer.json();
        let head = view["last_seq"].as_u64();
        self.record_read(
            session,
            &answer,
            Read { began, what: "session", head, ..Read::default() },
        );
        Some(view)
    }

    /// Records a read that was answered with content, or with 404.
    pub fn record_read(&self, session: &str, answer: &Answer, read: Read) {
        if !matches!((answer.status, read.head), (200, Some(_)) | (404, None)) {
            let why = format!("{} was answered {}: {}", read.what, answer.status, answer.text());
            return self
                .history
                .record(session, |session| session.wrong.push((Violation::Wrong, why)));
        }
        let read = Read { ended: self.history.now(), ..read };
        self.history.count("reads", 1);
        self.history.record(session, |history| history.reads.push(read));
    }

    /// The head that an acknowledgement gives.
    pub fn acknowledged_head(answer: &Value) -> u64 {
        token_seq(&answer["last_event_id"]).unwrap_or_default()
    }
}

/// A pause between two requests.
pub fn pause(time: Duration) {
    thread::sleep(time);
}
