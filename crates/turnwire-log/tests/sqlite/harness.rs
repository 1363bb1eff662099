//! The harness of the SQLite tests.

use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use turnwire_core::{Fields, Seq};
use turnwire_log::sqlite::{LayoutSizes, Options};
use turnwire_log::store::{
    Append, EventLines, Fence, NewSession, SessionKey, SessionNumber, SessionRecord, SessionState,
    Store, StoredMessage,
};
use turnwire_log::{Error, Result, SqliteStore};

/// Sizes so small that nearly every append moves events.
pub(crate) const SMALL_SIZES: LayoutSizes = LayoutSizes {
    large_bytes: 150,
    gathered_bytes: 250,
    row_bytes: 400,
    row_ms: 0,
    sweep_rows: 8,
    sweep_bytes: 1000,
    clear_rows: 3,
};

/// A folder, and a path in it where no store exists yet.
pub(crate) fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    (folder, path)
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Options::default()).unwrap()
}

pub(crate) fn open_small(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Options { sizes: SMALL_SIZES, ..Options::default() }).unwrap()
}

pub(crate) fn seq(place: u64) -> Seq {
    Seq::new(place).unwrap()
}

pub(crate) fn new(id: &str) -> NewSession {
    NewSession {
        key: SessionKey::new("tenant", id),
        agent: "demo".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    }
}

/// The event at a seq. No two of a store are equal.
pub(crate) fn line(id: &str, place: u64) -> String {
    format!("{{\"session\":\"{id}\",\"event\":\"event {place} of {id}\"}}\n")
}

pub(crate) fn message(id: &str, first: u64, last: u64, text: &str) -> StoredMessage {
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

/// The owner of a session's lease.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) id: String,
    pub(crate) no: SessionNumber,
    pub(crate) fence: Fence,
    pub(crate) last: u64,
    pub(crate) now_ms: i64,
}

impl Owner {
    /// Acquires the lease of a session, and creates it if necessary.
    pub(crate) async fn new(store: &SqliteStore, id: &str) -> Self {
        let no = store.create_session(new(id)).await.unwrap().0.number;
        let fence = store.acquire_lease(no, "test").await.unwrap().fence;
        let last = record(store, id).await.unwrap().head.get();
        Self { id: id.to_owned(), no, fence, last, now_ms: 0 }
    }

    pub(crate) fn nothing(&self) -> Append {
        Append::empty(self.no, self.fence, self.now_ms)
    }

    /// An append of the next events; counts them as durable.
    pub(crate) fn events(&mut self, count: u32) -> Append {
        let first = self.last + 1;
        self.last += u64::from(count);
        let bytes: String = (first..=self.last).map(|place| line(&self.id, place)).collect();
        let lines = EventLines { first: seq(first), count, bytes: Bytes::from(bytes) };
        Append { lines: Some(lines), ..self.nothing() }
    }

    /// An append of a whole reply with its message.
    pub(crate) fn reply(&mut self, count: u32, id: &str, text: &str) -> Append {
        let first = self.last + 1;
        let append = self.events(count);
        let messages = vec![message(id, first, self.last, text)];
        Append { messages, state: Some(SessionState::default()), ..append }
    }
}

pub(crate) async fn record(store: &SqliteStore, id: &str) -> Option<SessionRecord> {
    store.find_session(&SessionKey::new("tenant", id)).await.unwrap()
}

/// Reads everything of a session from a seq on.
pub(crate) async fn read(store: &SqliteStore, no: SessionNumber, from: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut next = from;
    loop {
        let page = store.read_events(no, seq(next), 300).await?;
        let Some(last) = page.last() else { return Ok(bytes) };
        next = last.last().next().get();
        for lines in page {
            bytes.extend_from_slice(&lines.bytes);
        }
    }
}

/// Asserts that a session has exactly the events between two seqs, both included.
pub(crate) async fn assert_events(store: &SqliteStore, owner: &Owner, first: u64, last: u64) {
    let found = read(store, owner.no, first).await.unwrap();
    let expected: String = (first..=last).map(|place| line(&owner.id, place)).collect();
    assert_eq!(String::from_utf8(found).unwrap(), expected);
    let record = record(store, &owner.id).await.unwrap();
    assert_eq!((record.first.get(), record.head.get()), (first, last));
}

/// The text of an error that must be of this kind.
macro_rules! sentence {
    ($result:expr, $kind:ident) => {
        match $result.map(drop) {
            Err(Error::$kind(sentence)) => sentence,
            other => panic!("{} expected, but: {other:?}", stringify!($kind)),
        }
    };
}
pub(crate) use sentence;

/// Runs a counting query on the file.
pub(crate) fn count(path: &Path, sql: &str) -> i64 {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.query_one(sql, [], |row| row.get(0)).unwrap()
}

/// Waits until a query counts what it should.
pub(crate) async fn wait_for_count(path: &Path, sql: &str, wanted: i64) {
    let end = std::time::Instant::now() + Duration::from_mins(1);
    while count(path, sql) != wanted {
        assert!(std::time::Instant::now() < end, "{sql} is {}", count(path, sql));
        tokio::task::yield_now().await;
    }
}

/// Whether the result is `NoSession`.
pub(crate) fn is_no_session<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::NoSession))
}

/// Makes a store one of the second version.
pub fn make_second_version(conn: &rusqlite::Connection) {
    conn.execute_batch(
        "DROP TABLE totals; DROP TABLE uncounted; DROP TABLE history;
         ALTER TABLE sessions DROP COLUMN history; PRAGMA user_version = 2",
    )
    .unwrap();
}
