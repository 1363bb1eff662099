//! Simple layouts of events with group commit, to compare with.

use bytes::Bytes;
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One row per append, and an index over all sessions.
    Segments,
    /// One row per event, and an index over all sessions.
    Rows,
    /// One row per event, ordered by session and seq.
    Key,
}

impl Layout {
    pub(crate) const ALL: [Self; 3] = [Self::Segments, Self::Rows, Self::Key];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Segments => "a row per append + index (session, last)",
            Self::Rows => "a row per event + index (session, seq)",
            Self::Key => "key (session, seq) without rowid",
        }
    }

    fn tables(self) -> &'static str {
        match self {
            Self::Segments | Self::Rows => {
                "CREATE TABLE events (no INTEGER PRIMARY KEY, session, seq, crc, ms, bytes);
                 CREATE UNIQUE INDEX place ON events (session, seq)"
            }
            Self::Key => {
                "CREATE TABLE events (session, seq, crc, ms, bytes, PRIMARY KEY (session, seq))
                 WITHOUT ROWID"
            }
        }
    }
}

struct Request {
    session: usize,
    first: u64,
    bytes: Bytes,
    done: oneshot::Sender<()>,
}

pub(crate) struct PlainStore {
    requests: Option<Sender<Request>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for PlainStore {
    fn drop(&mut self) {
        self.requests = None;
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl PlainStore {
    pub(crate) fn open(path: &Path, layout: Layout) -> Self {
        let conn = connect(path);
        conn.execute_batch(layout.tables()).unwrap();
        let (requests, waiting) = mpsc::channel();
        let (written, checkpoints) = mpsc::sync_channel(1);
        let checkpointer = connect(path);
        let threads = vec![
            thread::spawn(move || {
                let mut group: Vec<Request> = Vec::new();
                while next(&waiting, &mut group) {
                    write(&conn, layout, &group);
                    for request in group.drain(..) {
                        let _ = request.done.send(());
                    }
                    let _ = written.try_send(());
                }
            }),
            thread::spawn(move || {
                while checkpoints.recv().is_ok() {
                    let left = |mode: &str| {
                        let sql = format!("PRAGMA wal_checkpoint({mode})");
                        checkpointer
                            .query_one(&sql, [], |row| {
                                Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?)
                            })
                            .unwrap()
                    };
                    if left("NOOP") > 1024 {
                        left("PASSIVE");
                    }
                    thread::sleep(Duration::from_millis(2));
                }
            }),
        ];
        Self { requests: Some(requests), threads }
    }

    pub(crate) fn append(&self, session: usize, first: u64, bytes: Bytes) -> oneshot::Receiver<()> {
        let (done, waiting) = oneshot::channel();
        let request = Request { session, first, bytes, done };
        self.requests.as_ref().unwrap().send(request).ok().unwrap();
        waiting
    }
}

fn connect(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = wal; PRAGMA synchronous = full;
         PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -16384;",
    )
    .unwrap();
    conn
}

fn next(waiting: &Receiver<Request>, group: &mut Vec<Request>) -> bool {
    group.extend(waiting.recv().ok());
    group.extend(waiting.try_iter());
    !group.is_empty()
}

fn write(conn: &Connection, layout: Layout, group: &[Request]) {
    let begin = conn.unchecked_transaction().unwrap();
    let mut insert = conn
        .prepare_cached(
            "INSERT INTO events (session, seq, crc, ms, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .unwrap();
    let mut row = |session: usize, seq: u64, bytes: &[u8]| {
        let (session, seq) = (i64::try_from(session).unwrap(), i64::try_from(seq).unwrap());
        insert
            .execute(params![session, seq, crc32fast::hash(bytes), 1_767_323_045_678_i64, bytes])
            .unwrap();
    };
    for request in group {
        match layout {
            Layout::Segments => row(request.session, request.first, &request.bytes),
            Layout::Rows | Layout::Key => {
                let lines = request.bytes.split_inclusive(|&byte| byte == b'\n');
                lines.zip(request.first..).for_each(|(line, seq)| row(request.session, seq, line));
            }
        }
    }
    begin.commit().unwrap();
}
