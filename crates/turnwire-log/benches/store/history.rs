//! How long it takes to find a session by the history that a client sends, and what that costs in the store.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use turnwire_core::{Fields, Msg, Seq};
use turnwire_log::SqliteStore;
use turnwire_log::client_history::{HistoryDigest, history_steps};
use turnwire_log::sqlite::Options;
use turnwire_log::store::{
    Append, HistoryMark, HistoryState, NewSession, SessionKey, SessionState, Store,
};

/// How many sessions are written at the same time.
const AT_ONCE: usize = 2_000;
/// How often each history is looked up.
const ROUNDS: usize = 200;

/// Fills a store with sessions of one turn, and looks up histories of 2 and 2,000 messages.
pub fn measure(path: &Path, sessions: usize) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(path, Options::default()).unwrap();
        let without = fill(&store, path, sessions, 0).await;
        let with = fill(&store, path, sessions, 2).await;
        println!("| figure | measured |");
        println!("|---|---|");
        println!(
            "| bytes in the store to recognise a session of one turn | {} |",
            with.saturating_sub(without) / sessions as u64
        );
        for (messages, known) in [(2, 2), (2_000, 2_000), (2, 0), (2_000, 0)] {
            // No session has the conversation with this number.
            let number = if known == 0 { sessions } else { sessions / 2 };
            let history = conversation(number, messages);
            let bytes: usize = history.iter().map(|msg| msg.to_json().len()).sum();
            mark_last(&store, sessions, &history, known).await;
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                let begin = Instant::now();
                let digests: Vec<_> = digests(&history).into_iter().rev().collect();
                let found = store.find_history(&digests).await.unwrap();
                times.push(begin.elapsed());
                assert_eq!(found.is_empty(), known == 0);
            }
            times.sort_unstable();
            let at = |share: usize| times.get(times.len() * share / 100).copied();
            println!(
                "| {} history of {messages} messages ({} KiB), p50 / p99 | {:.3} / {:.3} ms |",
                if known == 0 { "an unknown" } else { "a known" },
                bytes / 1024,
                milliseconds(at(50)),
                milliseconds(at(99)),
            );
        }
    });
}

fn milliseconds(time: Option<Duration>) -> f64 {
    time.unwrap_or_default().as_secs_f64() * 1000.0
}

/// Adds sessions with so many marks each, and returns how much the store has grown.
async fn fill(store: &SqliteStore, path: &Path, sessions: usize, marks: usize) -> u64 {
    let before = size(store, path).await;
    for start in (0..sessions).step_by(AT_ONCE) {
        let mut tasks = Vec::new();
        for number in start..sessions.min(start + AT_ONCE) {
            let digests = digests(&conversation(number, 2));
            let marks: Vec<HistoryMark> =
                digests.into_iter().take(marks).map(|digest| mark(digest, 1)).collect();
            tasks.push(append(store, format!("{}-{number:06}", marks.len()), marks));
        }
        futures_util::future::join_all(tasks).await;
    }
    size(store, path).await - before
}

/// Marks the end of a history in the last session.
async fn mark_last(store: &SqliteStore, sessions: usize, history: &[Msg], known: usize) {
    let digests = digests(history);
    let last = digests.last().filter(|_| known > 2).map(|digest| mark(*digest, 1));
    append(store, format!("last-{sessions}-{known}"), last.into_iter().collect()).await;
}

async fn append(store: &SqliteStore, id: String, history: Vec<HistoryMark>) {
    let new = NewSession {
        key: SessionKey::new("tenant", id),
        agent: "agent".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    };
    let (record, _) = store.create_session(new).await.unwrap();
    let lease = store.acquire_lease(record.number, "bench").await.unwrap();
    let known = history.first().map(|mark| HistoryState {
        root: mark.digest,
        input: mark.digest,
        answer: history.get(1).map(|mark| mark.digest),
        client: 0,
        request: i64::MAX,
        reply_id: "8f14e45fceea167a5a36dedd4bea2543".to_owned(),
        results_after: None,
        blocks: 0,
        prefill: None,
    });
    let state = Some(SessionState { history: known, ..SessionState::default() });
    let append = Append { history, state, ..Append::empty(record.number, lease.fence, 0) };
    store.append(append).await.unwrap();
}

fn mark(digest: HistoryDigest, seq: u64) -> HistoryMark {
    HistoryMark { digest, seq: Seq::new(seq).unwrap(), client: 0 }
}

/// The digests of all states of a history.
fn digests(history: &[Msg]) -> Vec<HistoryDigest> {
    let mut digest = HistoryDigest::root("tenant", "agent", "holder");
    let mut all = Vec::new();
    for step in history_steps(history) {
        digest = digest.with_step(&step);
        all.push(digest);
    }
    all
}

/// A conversation of messages of about 200 bytes.
fn conversation(number: usize, messages: usize) -> Vec<Msg> {
    let text =
        |at: usize| format!("message {at} of conversation {number}: {}", "words ".repeat(24));
    let message = |at: usize| match at % 2 {
        0 => Msg::user("user", text(at).as_str()),
        _ => Msg::assistant("assistant", text(at).as_str()),
    };
    (0..messages).map(message).collect()
}

async fn size(store: &SqliteStore, path: &Path) -> u64 {
    let copy = path.with_extension("copy");
    let _ = fs::remove_file(&copy);
    store.backup(&copy, |_| {}).await.unwrap();
    fs::metadata(&copy).unwrap().len()
}
