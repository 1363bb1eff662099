//! The harness of the cases: a store that can be opened again, and an owner that writes to it.

use super::Engine;
use crate::store::{
    Append, EventLines, Fence, NewSession, SessionKey, SessionNumber, SessionQuery, SessionRecord,
    SessionState, SessionStatus, Store, StoredMessage,
};
use bytes::Bytes;
use std::sync::Arc;
use turnwire_core::{Fields, Seq};

/// Asserts that a result is this error.
macro_rules! assert_refused {
    ($result:expr, $why:pat) => {{
        let result = $result;
        assert!(matches!(result, Err($why)), "{} expected, but: {result:?}", stringify!($why));
    }};
}
pub(super) use assert_refused;

/// Runs assertions, opens the store again, and runs them a second time.
macro_rules! assert_durable {
    ($harness:expr, |$store:ident| $assertions:expr) => {
        $harness.check_twice(async |$store| $assertions).await
    };
}
pub(super) use assert_durable;

/// An engine and its store.
pub(super) struct Harness {
    engine: Box<dyn Engine>,
    /// `None` only while it is opened again.
    store: Option<Arc<dyn Store>>,
}

impl Harness {
    pub(super) async fn open(engine: Box<dyn Engine>) -> Self {
        let store = Some(engine.open().await);
        Self { engine, store }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &**self.store.as_ref().unwrap()
    }

    /// The store for a task. The task must end before the store is opened again.
    pub(super) fn share(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().unwrap())
    }

    pub(super) async fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        self.store = Some(self.engine.reopen(store).await);
    }

    pub(super) async fn check_twice(&mut self, check: impl AsyncFn(&dyn Store)) {
        check(self.store()).await;
        self.reopen().await;
        check(self.store()).await;
    }
}

/// A seq from a number.
pub(super) fn seq(place: u64) -> Seq {
    Seq::new(place).unwrap()
}

/// A session to create.
pub(super) fn new(tenant: &str, id: &str, now_ms: i64) -> NewSession {
    NewSession {
        key: SessionKey::new(tenant, id),
        agent: "demo".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms,
    }
}

/// A query for all sessions of a tenant.
pub(super) fn all_of(tenant: &str) -> SessionQuery {
    SessionQuery::latest(tenant, 1000)
}

/// The ids of some sessions.
pub(super) fn ids(records: &[SessionRecord]) -> Vec<&str> {
    records.iter().map(|record| &*record.key.id).collect()
}

/// A state with a reply that is open from a seq on.
pub(super) fn open_from(place: u64) -> SessionState {
    SessionState {
        status: SessionStatus::Running,
        open_from: Some(seq(place)),
        ..SessionState::default()
    }
}

/// A finished message.
pub(super) fn message(id: &str, first: u64, last: u64, text: &str) -> StoredMessage {
    StoredMessage {
        id: id.to_owned(),
        first: seq(first),
        last: seq(last),
        event_id: String::new(),
        of_sub_agent: false,
        superseded: false,
        fold_version: 1,
        json: Bytes::from(format!("{{\"id\":{id:?},\"text\":{text:?}}}")),
        text: text.to_owned(),
    }
}

/// An event of a session. No two are equal, and they differ in length.
pub(super) fn line(session: SessionNumber, place: u64) -> String {
    let pad = usize::try_from(place % 31 * 7 % 31).unwrap();
    format!("{{\"session\":{},\"event\":{place},\"pad\":\"{:pad$}\"}}\n", session.0, "")
}

/// Events of a session, from a seq on.
pub(super) fn lines(session: SessionNumber, first: u64, count: u32) -> EventLines {
    let places = first..first + u64::from(count);
    let bytes: String = places.map(|place| line(session, place)).collect();
    EventLines { first: seq(first), count, bytes: Bytes::from(bytes) }
}

/// The owner of a session's lease, and the session's head.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub(super) key: SessionKey,
    pub(super) no: SessionNumber,
    pub(super) fence: Fence,
    pub(super) last: u64,
    pub(super) now_ms: i64,
}

impl Owner {
    /// Creates a session and acquires its lease.
    pub(super) async fn new(store: &dyn Store, tenant: &str, id: &str) -> Self {
        Self::acquire(store, store.create_session(new(tenant, id, 0)).await.unwrap().0).await
    }

    /// Acquires the lease of an existing session.
    pub(super) async fn acquire(store: &dyn Store, record: SessionRecord) -> Self {
        let fence = store.acquire_lease(record.number, "owner").await.unwrap().fence;
        Self { key: record.key, no: record.number, fence, last: record.head.get(), now_ms: 0 }
    }

    /// An append of the next events.
    pub(super) fn events(&mut self, count: u32) -> Append {
        let lines = lines(self.no, self.last + 1, count);
        self.last = lines.last().get();
        Append { lines: Some(lines), ..self.nothing() }
    }

    /// An empty append.
    pub(super) fn nothing(&self) -> Append {
        Append::empty(self.no, self.fence, self.now_ms)
    }

    /// An append of a whole reply with its message.
    pub(super) fn reply(&mut self, count: u32, id: &str, text: &str) -> Append {
        let first = self.last + 1;
        let append = self.events(count);
        Append {
            messages: vec![message(id, first, self.last, text)],
            state: Some(SessionState::default()),
            ..append
        }
    }

    pub(super) async fn record(&self, store: &dyn Store) -> SessionRecord {
        store.find_session(&self.key).await.unwrap().unwrap()
    }

    /// Asserts that the session has exactly the events from the first that is kept up to the head.
    pub(super) async fn check(&self, store: &dyn Store) {
        let record = self.record(store).await;
        assert_eq!(record.number, self.no);
        assert_eq!(record.head.get(), self.last);
        let kept = read_all(store, self.no, record.first.get(), 1 << 20).await;
        let expected: Vec<_> = (record.first.get()..=self.last)
            .map(|place| (place, Bytes::from(line(self.no, place).trim_end().to_owned())))
            .collect();
        assert_eq!(kept, expected);
    }
}

/// Reads all events from a seq on with their seqs, in pages, and asserts that there is no gap
/// between pages.
pub(super) async fn read_all(
    store: &dyn Store,
    session: SessionNumber,
    from: u64,
    max_bytes: usize,
) -> Vec<(u64, Bytes)> {
    let mut found = Vec::new();
    let mut next = from;
    loop {
        let page = store.read_events(session, seq(next), max_bytes).await.unwrap();
        if page.is_empty() {
            return found;
        }
        for lines in page {
            assert_eq!(lines.first.get(), next, "a gap, or something twice");
            assert_eq!(lines.iter().count() as u64, u64::from(lines.count));
            assert!(lines.count > 0, "events that are none");
            assert!(lines.bytes.ends_with(b"\n"));
            next += u64::from(lines.count);
            found.extend(lines.iter().map(|(at, line)| (at.get(), Bytes::copy_from_slice(line))));
        }
    }
}
