//! Copies between the engines: all equal, also after a copy was interrupted, and differences are noticed.

use crate::harness::TestDatabase;
use bytes::Bytes;
use rusqlite::types::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use turnwire_core::{Head, Seq};
use turnwire_log::client_history::HistoryDigest;
use turnwire_log::copy::{CopyReport, CopyStore, compare, copy};
use turnwire_log::sqlite::{Options, SqliteCopy};
use turnwire_log::store::cluster::{ClusterStore, Node};
use turnwire_log::store::{
    Append, Blob, EventLines, HistoryMark, HistoryState, IdempotencyRecord, NewSession,
    QueuedMessage, Retention, SessionKey, SessionNumber, SessionPatch, SessionState, Store,
    StoredMessage, to_hex,
};
use turnwire_log::{Error, PostgresStore, SqliteStore, VisibleSessions};
use turnwire_testkit::{Rng, check_property, one_in, pick, values};

/// Milliseconds of the first event.
const START_MS: i64 = 1_700_000_000_000;

const TENANTS: [&str; 3] = ["default", "other\0", "\u{1A}third"];

fn hash(rng: &mut Rng) -> [u8; 32] {
    [rng.u8(..4); 32]
}

fn text_with_reference(rng: &mut Rng) -> String {
    let hash = hash(rng);
    format!("{} blobs/{}", values::text(rng), to_hex(&hash))
}

/// JSON on one line.
fn line(rng: &mut Rng, padding: usize) -> String {
    let text = if one_in(rng, 4) { text_with_reference(rng) } else { values::text(rng) };
    let json = serde_json::json!(text);
    format!("{{\"text\":{json},\"pad\":\"{}\"}}\n", "x".repeat(padding))
}

fn state(rng: &mut Rng, head: Head) -> SessionState {
    let tokens = rng.u32(..1000);
    let mut state: SessionState = serde_json::from_value(serde_json::json!({
        "status": *pick(rng, &["idle", "running", "waiting"]),
        "usage": { "input_tokens": tokens, "output_tokens": tokens / 2 },
        "cost": one_in(rng, 2).then(|| u64::from(tokens) * 1000),
        "subs": { values::text(rng): { "usage": { "input_tokens": 1, "output_tokens": 2 } } },
        "producer": { "id": values::id(rng), "fence": tokens, "holder": "h" },
        "rules": [values::rule(rng)],
        "held": [{ "reply_id": "r", "event_id": "e", "block_id": "b", "json": values::text(rng) }],
    }))
    .unwrap();
    if one_in(rng, 3) && !head.is_empty() {
        state.open_from = Some(head.previous());
    }
    if one_in(rng, 2) {
        let digest = HistoryDigest([rng.u8(..); 16]);
        state.history = Some(HistoryState {
            root: digest,
            input: digest,
            answer: one_in(rng, 2).then_some(digest),
            client: rng.i64(..),
            request: 0,
            reply_id: values::id(rng),
            results_after: one_in(rng, 2).then_some(head),
            blocks: 1,
            prefill: None,
        });
    }
    state
}

trait Previous {
    fn previous(self) -> Seq;
}

impl Previous for Head {
    fn previous(self) -> Seq {
        Seq::new(self.get()).unwrap()
    }
}

/// An append of everything that an append can have.
fn append(rng: &mut Rng, base: Append, head: &mut Head, number: usize) -> Append {
    let count = rng.u32(..4);
    let first = head.next();
    // In some sessions they are so long that the session has several parts.
    let padding = if base.session.0 % 3 == 0 { 200_000 } else { rng.usize(..200) };
    let bytes: String = (0..count).map(|_| line(rng, padding)).collect();
    let lines = EventLines { first, count, bytes: Bytes::from(bytes) };
    if count > 0 {
        *head = lines.last().into();
    }
    let message = |rng: &mut Rng| StoredMessage {
        id: format!("{}{number}", values::text(rng)),
        first,
        last: lines.last(),
        event_id: values::text(rng),
        of_sub_agent: one_in(rng, 4),
        superseded: one_in(rng, 4),
        fold_version: rng.u32(..9),
        json: Bytes::from(text_with_reference(rng)),
        text: values::text(rng),
    };
    let key = |rng: &mut Rng| IdempotencyRecord {
        tenant: (*pick(rng, &TENANTS)).into(),
        key: format!("{}{}{number}", values::text(rng), base.session.0),
        fingerprint: [rng.u8(..); 32],
        response: values::text(rng),
    };
    let queued = |rng: &mut Rng| QueuedMessage {
        id: format!("q{number}"),
        reply_id: values::id(rng),
        json: Bytes::from(text_with_reference(rng)),
    };
    let mark = |rng: &mut Rng| HistoryMark {
        digest: HistoryDigest([rng.u8(..3); 16]),
        seq: first,
        client: rng.i64(..),
    };
    Append {
        messages: if count > 0 { vec![message(rng)] } else { Vec::new() },
        lines: (count > 0).then_some(lines),
        state: one_in(rng, 2).then(|| state(rng, *head)),
        idempotency: one_in(rng, 2).then(|| key(rng)),
        enqueue: if one_in(rng, 3) { vec![queued(rng)] } else { Vec::new() },
        dequeue: if one_in(rng, 5) {
            vec![format!("q{}", number.saturating_sub(2))]
        } else {
            Vec::new()
        },
        history: (0..rng.usize(..3)).map(|_| mark(rng)).collect(),
        now_ms: START_MS + i64::try_from(number).unwrap() * 1_500_000,
        ..base
    }
}

/// Fills a store with random sessions and blobs.
async fn fill(rng: &mut Rng, store: &dyn Store) {
    for n in 0..rng.usize(1..50) {
        let new = NewSession {
            key: SessionKey::new(*pick(rng, &TENANTS), format!("{}{n}", values::text(rng))),
            agent: pick(rng, &["demo", "a\0gent"]).to_string(),
            title: values::text(rng),
            metadata: serde_json::from_value(serde_json::json!({ "m": text_with_reference(rng) }))
                .unwrap(),
            now_ms: START_MS,
        };
        let (record, _) = store.create_session(new).await.unwrap();
        let fence = store.acquire_lease(record.number, "test").await.unwrap().fence;
        let (mut head, base) = (record.head, Append::empty(record.number, fence, 0));
        for number in 0..rng.usize(..8) {
            store.append(append(rng, base.clone(), &mut head, number)).await.unwrap();
        }
        if one_in(rng, 4) {
            let patch =
                SessionPatch { title: Some(values::text(rng)), metadata: Some(<_>::default()) };
            store.patch_session(record.number, patch).await.unwrap();
        }
        if one_in(rng, 6) {
            store.delete_session(record.number).await.unwrap();
        }
    }
    for _ in 0..rng.usize(..6) {
        let bytes = Bytes::from(vec![rng.u8(..); *pick(rng, &[0, 10, 256 << 10, 600_000])]);
        let blob = Blob { media_type: values::text(rng), bytes };
        let tenant = *pick(rng, &TENANTS);
        store.put_blob(tenant, hash(rng), blob).await.unwrap();
    }
    let before_ms = one_in(rng, 2).then_some(START_MS + 4_000_000);
    store.apply_retention(Retention { before_ms, ..Retention::default() }).await.unwrap();
}

/// The rows of the tables of a file that a copy keeps as they are.
fn dump(path: &Path) -> Vec<Vec<Value>> {
    let file = rusqlite::Connection::open(path).unwrap();
    let mut rows = Vec::new();
    for table in [
        "SELECT * FROM sessions ORDER BY no",
        "SELECT session, id, first, last, event_id, of_sub_agent, superseded, fold_version, crc, json, text
         FROM messages WHERE session IN (SELECT no FROM sessions) ORDER BY session, id",
        "SELECT session, id, reply_id, crc, json FROM queue WHERE session IN (SELECT no FROM sessions) ORDER BY session, no",
        "SELECT * FROM keys WHERE session IN (SELECT no FROM sessions) ORDER BY tenant, key",
        "SELECT * FROM history WHERE session IN (SELECT no FROM sessions) ORDER BY session, seq, no",
        "SELECT tenant, hash, media_type, i.size FROM blobs b JOIN blob_info i ON i.blob = b.no ORDER BY tenant, hash",
        "SELECT * FROM blob_references WHERE session IN (SELECT no FROM sessions) ORDER BY tenant, hash, session",
        "SELECT * FROM blob_usage ORDER BY tenant",
    ] {
        let mut statement = file.prepare(table).unwrap();
        let columns = statement.column_count();
        let mut found = statement.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            rows.push((0..columns).map(|at| row.get(at).unwrap()).collect());
        }
    }
    rows
}

/// All events with their seqs, and the totals of tenants.
async fn events_and_totals(store: &dyn Store) -> (Vec<(SessionNumber, Seq, Bytes)>, Vec<String>) {
    let mut events = Vec::new();
    for record in store.list_all_sessions(SessionNumber(0), 1000).await.unwrap() {
        let mut next = record.first;
        while record.head.includes(next) {
            for (seq, line) in store
                .read_events(record.number, next, 1 << 20)
                .await
                .unwrap()
                .iter()
                .flat_map(EventLines::iter)
            {
                assert_eq!(seq, next);
                next = next.next();
                events.push((record.number, seq, Bytes::copy_from_slice(line)));
            }
        }
    }
    let mut totals = Vec::new();
    for tenant in TENANTS {
        let all = store.agent_totals(tenant, &VisibleSessions::ALL, None).await.unwrap();
        // An agent whose sessions are gone may have zeros.
        let used = all.into_iter().filter(|(_, sum)| sum.total() != <_>::default());
        totals.extend(used.map(|(agent, sum)| format!("{tenant} {agent} {:?}", sum.total())));
    }
    (events, totals)
}

async fn copy_all(from: &dyn CopyStore, to: &dyn CopyStore) -> CopyReport {
    let report = copy(from, to, &|_| ()).await.unwrap();
    let compared = compare(from, to, &|_| ()).await.unwrap();
    assert_eq!(compared.differences, []);
    report
}

/// Runs a copy, and drops it after so many reports of progress and some yields.
async fn interrupted(from: &dyn CopyStore, to: &dyn CopyStore, reports: u64, yields: usize) {
    let seen = Arc::new(AtomicU64::new(0));
    let progress = |_| {
        seen.fetch_add(1, Ordering::Relaxed);
    };
    let interrupt = async {
        while seen.load(Ordering::Relaxed) < reports {
            tokio::task::yield_now().await;
        }
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = copy(from, to, &progress) => drop(done.unwrap()),
        () = interrupt => {}
    }
}

struct Files {
    _folder: tempfile::TempDir,
    source: PathBuf,
    back: PathBuf,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        Self { source: path("source.db"), back: path("back.db"), _folder: folder }
    }
}

async fn filled(rng: &mut Rng, files: &Files) {
    let store = SqliteStore::open(&files.source, Options::default()).unwrap();
    fill(rng, &store).await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn random_sessions_come_back_from_postgres_as_they_were() {
    check_property("copies", 2, |rng| {
        let Some(database) = TestDatabase::new() else { return };
        runtime().block_on(async {
            let files = Files::new();
            filled(rng, &files).await;
            let source = SqliteStore::open_source(&files.source).unwrap();
            let target = PostgresStore::open_copy(&database.url()).await.unwrap();
            copy_all(&source, &target).await;
            target.finish_copy().await.unwrap();
            drop(target);

            let middle = PostgresStore::open_source(&database.url()).await.unwrap();
            let back = SqliteCopy::open(&files.back).unwrap();
            copy_all(&middle, back.store()).await;
            back.finish().await.unwrap();
            assert_eq!(dump(&files.back), dump(&files.source));
            drop(source);
            let source = SqliteStore::open(&files.source, Options::default()).unwrap();
            let back = SqliteStore::open(&files.back, Options::default()).unwrap();
            assert_eq!(events_and_totals(&back).await, events_and_totals(&source).await);

            // The next session gets a new number.
            let store = PostgresStore::open(&database.url()).await.unwrap();
            let last = store.list_all_sessions(SessionNumber(0), 1000).await.unwrap().pop();
            let new = NewSession {
                key: SessionKey::new("t", "new"),
                agent: String::new(),
                title: String::new(),
                metadata: <_>::default(),
                now_ms: 0,
            };
            let (created, is_new) = store.create_session(new).await.unwrap();
            assert!(is_new && last.is_none_or(|last| created.number > last.number));
        });
    });
}

#[test]
fn an_interrupted_copy_continues_and_doubles_nothing() {
    check_property("interrupted copies", 2, |rng| {
        let Some(database) = TestDatabase::new() else { return };
        runtime().block_on(async {
            let files = Files::new();
            filled(rng, &files).await;
            let source = SqliteStore::open_source(&files.source).unwrap();
            for _ in 0..3 {
                let target = PostgresStore::open_copy(&database.url()).await.unwrap();
                interrupted(&source, &target, rng.u64(1..4), rng.usize(..100)).await;
                let error = PostgresStore::open(&database.url()).await.err().unwrap();
                assert!(
                    error.to_string().contains("is not complete; run `turnwire copy` again"),
                    "{error}"
                );
            }
            let target = PostgresStore::open_copy(&database.url()).await.unwrap();
            copy_all(&source, &target).await;
            target.finish_copy().await.unwrap();
            for _ in 0..3 {
                let back = SqliteCopy::open(&files.back).unwrap();
                interrupted(&target, back.store(), rng.u64(1..4), rng.usize(..100)).await;
                assert!(!files.back.exists());
            }
            let back = SqliteCopy::open(&files.back).unwrap();
            copy_all(&target, back.store()).await;
            let again = copy_all(&target, back.store()).await;
            assert_eq!((again.sessions, again.blobs), (0, 0));
            back.finish().await.unwrap();
            assert_eq!(dump(&files.back), dump(&files.source));
        });
    });
}

/// A store with one session that has something of everything, and its copy.
async fn copied(database: &TestDatabase, files: &Files) -> (SqliteStore, PostgresStore) {
    let store = SqliteStore::open(&files.source, Options::default()).unwrap();
    let mut rng = Rng::with_seed(7);
    let new = NewSession {
        key: SessionKey::new("default", "one"),
        agent: "demo".to_owned(),
        title: "Title".to_owned(),
        metadata: <_>::default(),
        now_ms: START_MS,
    };
    let (record, _) = store.create_session(new).await.unwrap();
    let lease = store.acquire_lease(record.number, "test").await.unwrap();
    let lines = EventLines {
        first: Seq::FIRST,
        count: 2,
        bytes: Bytes::from_static(b"{\"a\":1}\n{\"a\":2}\n"),
    };
    let base = Append::empty(record.number, lease.fence, START_MS);
    let mut full =
        Append { lines: None, ..append(&mut rng, base.clone(), &mut record.head.clone(), 1) };
    full.messages = vec![StoredMessage {
        id: "m".to_owned(),
        first: Seq::FIRST,
        last: lines.last(),
        event_id: String::new(),
        of_sub_agent: false,
        superseded: false,
        fold_version: 1,
        json: Bytes::from_static(b"{}"),
        text: "words".to_owned(),
    }];
    full.lines = Some(lines);
    full.state = Some(SessionState {
        usage: serde_json::from_value(serde_json::json!({"input_tokens": 5, "output_tokens": 6}))
            .unwrap(),
        ..SessionState::default()
    });
    full.idempotency = Some(IdempotencyRecord {
        tenant: "default".into(),
        key: "k".to_owned(),
        fingerprint: [1; 32],
        response: "r".to_owned(),
    });
    full.enqueue = vec![QueuedMessage {
        id: "q".to_owned(),
        reply_id: "r".to_owned(),
        json: Bytes::from_static(b"{}"),
    }];
    full.dequeue = Vec::new();
    full.history = vec![HistoryMark { digest: HistoryDigest([1; 16]), seq: Seq::FIRST, client: 1 }];
    store.append(full).await.unwrap();
    let blob = Blob { media_type: "text/plain".to_owned(), bytes: Bytes::from_static(b"bytes") };
    store.put_blob("default", [9; 32], blob).await.unwrap();
    drop(store);
    let source = SqliteStore::open_source(&files.source).unwrap();
    let target = PostgresStore::open_copy(&database.url()).await.unwrap();
    copy_all(&source, &target).await;
    (source, target)
}

#[tokio::test]
async fn a_comparison_notices_whatever_differs() {
    let Some(database) = TestDatabase::new() else { return };
    let files = Files::new();
    let (source, target) = copied(&database, &files).await;
    for (change, back, expected) in [
        (
            "UPDATE turnwire.segments SET bytes = '{\"a\":1}\n{\"a\":3}\n'",
            "UPDATE turnwire.segments SET bytes = '{\"a\":1}\n{\"a\":2}\n'",
            "event 2 differs",
        ),
        (
            "UPDATE turnwire.messages SET superseded = true",
            "UPDATE turnwire.messages SET superseded = false",
            "messages differ",
        ),
        (
            "UPDATE turnwire.messages SET session = -session",
            "UPDATE turnwire.messages SET session = -session",
            "messages differ: 1 in the source, 0 in the target",
        ),
        (
            "UPDATE turnwire.keys SET response = 'x'",
            "UPDATE turnwire.keys SET response = 'r'",
            "idempotency keys differ",
        ),
        (
            "UPDATE turnwire.queue SET reply_id = 'x'",
            "UPDATE turnwire.queue SET reply_id = 'r'",
            "queued messages differ",
        ),
        (
            "UPDATE turnwire.history SET client = 2",
            "UPDATE turnwire.history SET client = 1",
            "states of the conversation differ",
        ),
        (
            "UPDATE turnwire.sessions SET title = title || 'x', head = head + 1",
            "UPDATE turnwire.sessions SET title = rtrim(title, 'x'), head = head - 1",
            "differs: title, head",
        ),
        (
            "UPDATE turnwire.sessions SET no = no + 5",
            "UPDATE turnwire.sessions SET no = no - 5",
            "the session is missing in the target",
        ),
        (
            "UPDATE turnwire.totals SET input = input + 1",
            "UPDATE turnwire.totals SET input = input - 1",
            "the usage of agent demo of tenant default differs",
        ),
        (
            "UPDATE turnwire.blob_pieces SET bytes = 'bytez'",
            "UPDATE turnwire.blob_pieces SET bytes = 'bytes'",
            "of tenant default is missing or differs",
        ),
        (
            "UPDATE turnwire.blobs SET media_type = 'x'",
            "UPDATE turnwire.blobs SET media_type = 'text/plain'",
            "of tenant default is missing or differs",
        ),
        (
            "INSERT INTO turnwire.blobs (tenant, hash, media_type, size, upload) VALUES ('x', 'x', '', 0, 0)",
            "DELETE FROM turnwire.blobs WHERE tenant = 'x'",
            "1 blobs are not in the source",
        ),
    ] {
        database.run(change);
        let found = compare(&source, &target, &|_| ()).await.unwrap();
        let texts: Vec<String> = found.differences.iter().map(ToString::to_string).collect();
        assert!(texts.iter().any(|text| text.contains(expected)), "{change}: {texts:?}");
        database.run(back);
        let found = compare(&source, &target, &|_| ()).await.unwrap();
        assert_eq!(found.differences, [], "{back}");
    }
}

#[tokio::test]
async fn a_target_with_other_data_is_refused_and_not_changed() {
    let Some(database) = TestDatabase::new() else { return };
    let files = Files::new();
    let (source, target) = copied(&database, &files).await;
    // Of another source.
    database.run("UPDATE turnwire.sessions SET epoch = 'x'");
    let error = copy(&source, &target, &|_| ()).await.unwrap_err();
    assert!(error.to_string().contains("has changed since it was copied"), "{error}");
    database.run("UPDATE turnwire.sessions SET no = 99");
    let error = copy(&source, &target, &|_| ()).await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    target.finish_copy().await.unwrap();
    let error = PostgresStore::open_copy(&database.url()).await.err().unwrap();
    assert!(error.to_string().contains("a copy needs a database without"), "{error}");
    PostgresStore::open(&database.url()).await.unwrap();
    let error = SqliteCopy::open(&files.source).err().unwrap();
    assert!(error.to_string().contains("already exists; a copy never changes a file"), "{error}");
}

#[tokio::test]
async fn a_source_that_a_server_uses_is_refused() {
    let Some(database) = TestDatabase::new() else { return };
    let files = Files::new();
    let (source, target) = copied(&database, &files).await;
    target.finish_copy().await.unwrap();
    drop((source, target));
    let file = SqliteStore::open(&files.source, Options::default()).unwrap();
    assert!(matches!(SqliteStore::open_source(&files.source), Err(Error::Locked(_))));
    drop(file);
    let held = SqliteStore::open_source(&files.source).unwrap();
    assert!(matches!(SqliteStore::open(&files.source, Options::default()), Err(Error::Locked(_))));
    drop(held);

    let store = PostgresStore::open(&database.url()).await.unwrap();
    let source = PostgresStore::open_source(&database.url()).await.unwrap();
    assert!(source.count_other_connections().await.unwrap() > 0);
    let node = Node { id: "server".to_owned(), ..Node::default() };
    store.join(&node, Duration::from_mins(1)).await.unwrap();
    let error = PostgresStore::open_source(&database.url()).await.err().unwrap();
    assert!(matches!(error, Error::Locked(_)), "{error}");
    assert!(error.to_string().contains("1 of our servers use"), "{error}");
    store.remove_node("server").await.unwrap();
    PostgresStore::open_source(&database.url()).await.unwrap();
}
