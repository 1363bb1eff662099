//! The SQLite engine: what the conformance tests cannot test.

use crate::harness::*;
use bytes::Bytes;
use std::sync::Arc;
use turnwire_log::sqlite::{LayoutSizes, Options};
use turnwire_log::store::{
    Append, Blob, EventLines, IdempotencyRecord, QueuedMessage, Retention, SessionKey,
    SessionNumber, SessionPatch, SessionQuery, SessionState, Store,
};
use turnwire_log::{Error, SearchQuery, SqliteStore, VisibleSessions};

const SEGMENTS: &str = "SELECT count(*) FROM segments";
const TAIL: &str = "SELECT count(*) FROM tail";

#[tokio::test]
async fn one_bad_request_leaves_the_others_of_its_transaction_alone() {
    let (_folder, path) = folder();
    let store = open(&path);
    let mut owners = Vec::new();
    for number in 0..20 {
        owners.push(Owner::new(&store, &number.to_string()).await);
    }
    let mut pending = Vec::new();
    for round in 0..10 {
        for (number, owner) in owners.iter_mut().enumerate() {
            let mut append = owner.events(2);
            if number % 5 == 0 && round == 3 {
                append.fence = turnwire_log::store::Fence(1);
                owner.last -= 2;
                pending.push((number, false, store.append(append)));
            } else {
                pending.push((number, true, store.append(append)));
            }
        }
        let nowhere = Append { session: SessionNumber(999), ..owners.first().unwrap().nothing() };
        assert!(is_no_session(&store.append(nowhere).await));
    }
    for (number, good, append) in pending {
        assert_eq!(append.await.is_ok(), good, "session {number}");
    }
    for owner in &owners {
        assert_events(&store, owner, 1, owner.last).await;
    }
}

#[tokio::test]
async fn a_statement_that_sqlite_refuses_fails_its_own_request_only() {
    let (_folder, path) = folder();
    let store = open(&path);
    let mut good = Owner::new(&store, "good").await;
    let mut bad = Owner::new(&store, "bad").await;
    // Inserts a row where the next row of this session will be, which no request does.
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute(
        "INSERT INTO segments (session, last, count, size, ms, crc, bytes)
         VALUES (?1, 100, 100, 1, 0, 0, x'0a')",
        [bad.no.0],
    )
    .unwrap();
    let before: Vec<_> = (0..5).map(|_| store.append(good.events(1))).collect();
    let refused = store.append(bad.events(100));
    let behind = store.append(bad.nothing());
    let after: Vec<_> = (0..5).map(|_| store.append(good.events(1))).collect();
    for append in before.into_iter().chain(after) {
        append.await.unwrap();
    }
    assert!(refused.await.is_err() && behind.await.is_err());
    assert_events(&store, &good, 1, 10).await;
}

#[tokio::test]
async fn events_gather_move_and_are_swept_without_a_gap() {
    let (_folder, path) = folder();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut ends = vec![0_u64; 30];
    for _ in 0..4 {
        let store = open_small(&path);
        let mut owners = Vec::new();
        for number in 0..ends.len() {
            owners.push(Owner::new(&store, &number.to_string()).await);
        }
        for _ in 0..300 {
            let at = rng.usize(..owners.len());
            let owner = owners.get_mut(at).unwrap();
            let done = store.append(owner.events(rng.u32(1..4)));
            if rng.u8(..4) == 0 {
                done.await.unwrap();
                assert_events(&store, owner, 1, owner.last).await;
            }
        }
        for owner in &mut owners {
            store.append(owner.events(1)).await.unwrap();
            assert_events(&store, owner, 1, owner.last).await;
        }
        ends = owners.iter().map(|owner| owner.last).collect();
    }
    assert!(count(&path, SEGMENTS) > 100);
    let tail = count(&path, TAIL);
    assert!(tail < 200, "{tail} rows were never cleared");
    let store = open(&path);
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
    for (number, end) in ends.iter().enumerate() {
        let owner = Owner::new(&store, &number.to_string()).await;
        assert_events(&store, &owner, 1, *end).await;
    }
}

#[tokio::test]
async fn a_large_append_is_read_in_small_pages() {
    let (_folder, path) = folder();
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    store.append(owner.events(3)).await.unwrap();
    store.append(owner.events(20_000)).await.unwrap();
    assert!(count(&path, SEGMENTS) > 10, "it is one row");
    let page = store.read_events(owner.no, seq(10_000), 100).await.unwrap();
    assert_eq!(page.iter().map(|lines| lines.first.get()).collect::<Vec<_>>(), [10_000]);
    let mut next = 1;
    while next <= owner.last {
        let page = store.read_events(owner.no, seq(next), 1 << 20).await.unwrap();
        for lines in &page {
            for (at, found) in lines.iter() {
                assert_eq!(found, line("s", at.get()).trim_end().as_bytes());
            }
        }
        next = page.last().unwrap().last().next().get();
    }
}

#[tokio::test]
async fn lines_that_are_not_as_many_as_announced_are_refused() {
    let (_folder, path) = folder();
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    let lines = |bytes: &'static str, count| EventLines {
        first: seq(1),
        count,
        bytes: Bytes::from_static(bytes.as_bytes()),
    };
    for (bytes, count) in [("a\nb\n", 1), ("a\n", 2), ("a\nb", 2), ("", 1)] {
        let append = Append { lines: Some(lines(bytes, count)), ..owner.nothing() };
        sentence!(store.append(append).await, Store);
    }
    store.append(owner.events(1)).await.unwrap();
    assert_events(&store, &owner, 1, 1).await;
}

#[tokio::test]
async fn fences_rise_when_the_store_is_opened_again() {
    let (_folder, path) = folder();
    let mut fences = Vec::new();
    for _ in 0..3 {
        let store = open(&path);
        let mut owner = Owner::new(&store, "s").await;
        fences.push(owner.fence);
        store.append(owner.events(1)).await.unwrap();
    }
    assert!(fences.is_sorted() && fences.first() < fences.last(), "{fences:?}");
    let store = open(&path);
    let no = record(&store, "s").await.unwrap().number;
    let late = store.append(Append::empty(no, *fences.last().unwrap(), 0)).await;
    assert!(matches!(late, Err(Error::Fenced)), "a lease of a process that has ended");
}

#[tokio::test]
async fn all_that_was_handed_in_is_written_before_the_store_ends() {
    let (_folder, path) = folder();
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    for _ in 0..500 {
        // Nobody awaits it.
        drop(store.append(owner.events(1)));
    }
    drop(store);
    let store = open(&path);
    assert_events(&store, &owner, 1, 500).await;
}

#[tokio::test]
async fn a_full_store_says_so_keeps_what_it_has_and_goes_on_when_there_is_room() {
    for sizes in [LayoutSizes::default(), SMALL_SIZES] {
        let (_folder, path) = folder();
        let options = Options { max_bytes: Some(400 << 10), sizes, ..Options::default() };
        let store = SqliteStore::open(&path, options).unwrap();
        let mut owner = Owner::new(&store, "s").await;
        let mut other = Owner::new(&store, "other").await;
        let full = loop {
            let before = owner.clone();
            match store.append(owner.events(40)).await {
                Ok(()) => {
                    if store.append(other.events(1)).await.is_err() {
                        other.last -= 1;
                    }
                }
                Err(error) => {
                    owner = before;
                    break error;
                }
            }
        };
        let sentence = sentence!(Err::<(), _>(full), Full);
        assert!(sentence.contains("store.db"), "{sentence}");
        assert!(matches!(store.check_health().await, Err(Error::Full(_))), "healthy, and full");
        // What is queued after a failed append fails too.
        let (first, second) = (store.append(owner.clone().events(40)), {
            let mut ahead = owner.clone();
            ahead.last += 40;
            store.append(ahead.events(1))
        });
        assert!(first.await.is_err() && second.await.is_err());
        assert_events(&store, &owner, 1, owner.last).await;
        store.set_max_bytes(None);
        store.check_health().await.unwrap();
        store.append(owner.events(40)).await.unwrap();
        store.append(other.events(1)).await.unwrap();
        drop(store);
        let store = open(&path);
        assert_events(&store, &owner, 1, owner.last).await;
        assert_events(&store, &other, 1, other.last).await;
        assert_eq!(store.check(|_| {}).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_deleted_session_stays_deleted_and_its_rows_go() {
    let (_folder, path) = folder();
    let store = open_small(&path);
    let mut gone = Owner::new(&store, "gone").await;
    let mut kept = Owner::new(&store, "kept").await;
    for number in 0..150 {
        store.append(gone.reply(3, &number.to_string(), "secret")).await.unwrap();
        store.append(kept.events(1)).await.unwrap();
    }
    let key = IdempotencyRecord {
        tenant: "tenant".into(),
        key: "k".to_owned(),
        fingerprint: [1; 32],
        response: "{}".to_owned(),
    };
    let queued =
        QueuedMessage { id: "q".into(), reply_id: "r".into(), json: Bytes::from_static(b"{}") };
    let append = Append { idempotency: Some(key), enqueue: vec![queued], ..gone.nothing() };
    store.append(append).await.unwrap();
    let titled = SessionPatch { title: Some("secret".to_owned()), metadata: None };
    store.patch_session(gone.no, titled).await.unwrap();
    store.delete_session(gone.no).await.unwrap();
    assert!(is_no_session(&store.delete_session(gone.no).await));
    // Possibly before the rows are removed.
    drop(store);
    let store = open_small(&path);
    assert_eq!(record(&store, "gone").await, None);
    assert!(is_no_session(&store.read_events(gone.no, seq(1), 100).await));
    assert!(is_no_session(&store.append(gone.events(1)).await));
    assert_eq!(store.find_idempotency_record("tenant", "k").await.unwrap(), None);
    let again = Owner::new(&store, "gone").await;
    assert!(again.no > gone.no && again.last == 0);
    wait_for_count(&path, "SELECT count(*) FROM deleted", 0).await;
    for table in ["segments", "tail", "messages", "queue", "keys"] {
        let left = format!("SELECT count(*) FROM {table} WHERE session = {}", gone.no.0);
        assert_eq!(count(&path, &left), 0, "{table}");
    }
    assert_eq!(count(&path, "SELECT count(*) FROM words WHERE words MATCH 'secret'"), 0);
    assert_events(&store, &kept, 1, kept.last).await;
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
}

#[tokio::test]
async fn words_are_searched_that_were_written_just_before() {
    let (_folder, path) = folder();
    let store = open(&path);
    let found = async |store: &SqliteStore, words: &str| {
        let search = SearchQuery::new(words).unwrap();
        let query = SessionQuery { search, ..SessionQuery::latest("tenant", 10) };
        store.list_sessions(&query).await.unwrap().len()
    };
    let mut owner = Owner::new(&store, "s").await;
    let long = "lorem ipsum ".repeat(40_000) + "behind";
    for number in 0..20 {
        let text = format!("the needle{number} is here {long}");
        store.append(owner.reply(1, &number.to_string(), &text)).await.unwrap();
        assert_eq!(found(&store, &format!("needle{number}")).await, 1);
    }
    assert_eq!(found(&store, "behind").await, 0, "only the beginning of a long text is indexed");
    store.append(owner.reply(1, "x", "another needle20")).await.unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(found(&store, "needle20").await, 1);
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
}

#[tokio::test]
async fn retention_cuts_rows_in_which_replies_share() {
    let (_folder, path) = folder();
    // All events of one time share rows.
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    owner.now_ms = 1000;
    for number in 0..500 {
        store.append(owner.reply(3, &number.to_string(), "")).await.unwrap();
    }
    let segments = count(&path, SEGMENTS);
    assert!((1..100).contains(&segments), "{segments} rows");
    let bytes: u64 = (1..=1500).map(|place| line("s", place).len() as u64).sum();
    let half = Retention { max_bytes: Some(bytes / 2), ..Retention::default() };
    let removed = store.apply_retention(half).await.unwrap();
    assert!(removed.events > 600 && removed.events % 3 == 0, "{removed:?}");
    assert!((bytes / 2..bytes / 2 + 300).contains(&removed.bytes), "{removed:?} of {bytes}");
    let first = removed.events + 1;
    assert_events(&store, &owner, first, 1500).await;
    drop(store);
    let store = open(&path);
    assert_events(&store, &owner, first, 1500).await;
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
    let read = store.read_events(owner.no, seq(first - 1), 100).await;
    assert!(matches!(read, Err(Error::Trimmed(at)) if at == seq(first)), "{read:?}");
}

#[tokio::test]
async fn retention_goes_on_where_a_crash_left_it() {
    let (_folder, path) = folder();
    let store = open_small(&path);
    let mut owner = Owner::new(&store, "s").await;
    for number in 0..50 {
        store.append(owner.reply(5, &number.to_string(), "")).await.unwrap();
    }
    drop(store);
    // The events no longer count, and their rows are still there.
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute("UPDATE sessions SET first = 101", []).unwrap();
    drop(conn);
    let left = "SELECT count(*) FROM segments WHERE last <= 100";
    assert!(count(&path, left) > 0);
    let store = open_small(&path);
    assert_events(&store, &owner, 101, 250).await;
    let retention = Retention { before_ms: Some(1), ..Retention::default() };
    store.apply_retention(retention).await.unwrap();
    assert_eq!(count(&path, left), 0);
}

#[tokio::test]
async fn a_clock_that_goes_backwards_changes_no_order() {
    let (_folder, path) = folder();
    let store = open_small(&path);
    let mut owner = Owner::new(&store, "s").await;
    for now_ms in [1000, -5, i64::MIN, i64::MAX, 0, 500] {
        owner.now_ms = now_ms;
        store.append(owner.reply(4, &now_ms.to_string(), "")).await.unwrap();
    }
    assert_events(&store, &owner, 1, 24).await;
    let retention = Retention { before_ms: Some(1001), ..Retention::default() };
    assert_eq!(store.apply_retention(retention).await.unwrap().events, 12);
    assert_events(&store, &owner, 13, 24).await;
}

#[tokio::test]
async fn a_tool_looks_at_a_store_that_a_server_writes() {
    let (_folder, path) = folder();
    let store = open_small(&path);
    let mut owner = Owner::new(&store, "s").await;
    store.append(owner.events(2)).await.unwrap();
    let tool = Arc::new(SqliteStore::open_read_only(&path).unwrap());
    for round in 0..60 {
        store.append(owner.events(round % 3 + 1)).await.unwrap();
        assert_events(&tool, &owner, 1, owner.last).await;
    }
    sentence!(tool.create_session(new("t")).await, Denied);
    sentence!(tool.append(owner.events(1)).await, Denied);
    sentence!(tool.delete_session(owner.no).await, Denied);
    let all = tool.list_all_sessions(SessionNumber(0), 10).await.unwrap();
    assert_eq!(all.iter().map(|record| record.number).collect::<Vec<_>>(), [owner.no]);
    store.delete_session(owner.no).await.unwrap();
    assert!(is_no_session(&tool.read_events(owner.no, seq(1), 100).await));
    assert_eq!(record(&tool, "s").await, None);
    drop(store);
    assert_eq!(record(&tool, "s").await, None);
}

#[tokio::test]
async fn sessions_of_all_tenants_are_walked_in_pages() {
    let (_folder, path) = folder();
    let store = open(&path);
    for number in 0..25 {
        let key = SessionKey::new(format!("tenant {}", number % 4), number.to_string());
        store.create_session(turnwire_log::store::NewSession { key, ..new("") }).await.unwrap();
    }
    let mut found = Vec::new();
    let mut after = SessionNumber(0);
    loop {
        let page = store.list_all_sessions(after, 7).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.number;
        found.extend(page.iter().map(|record| record.key.id.to_string()));
    }
    assert_eq!(found, (0..25).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn blobs_and_epochs_are_as_they_should_be() {
    let (_folder, path) = folder();
    let store = open(&path);
    let blob = Blob { media_type: "image/png".into(), bytes: Bytes::from(vec![7; 300_000]) };
    store.put_blob("tenant", [9; 32], blob.clone()).await.unwrap();
    let epoch = store.create_session(new("s")).await.unwrap().0.epoch;
    assert!(
        epoch.len() >= 10
            && epoch.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    );
    drop(store);
    let store = open(&path);
    assert_eq!(store.read_blob("tenant", [9; 32]).await.unwrap(), Some(blob));
    assert_eq!(record(&store, "s").await.unwrap().epoch, epoch);
}

#[tokio::test]
async fn what_sessions_of_an_earlier_version_spent_is_counted() {
    let (_folder, path) = folder();
    let store = open(&path);
    let spending = |tokens| SessionState {
        usage: turnwire_core::Usage { input_tokens: tokens, ..Default::default() },
        ..SessionState::default()
    };
    let mut owners = Vec::new();
    for id in 0..600 {
        let mut owner = Owner::new(&store, &id.to_string()).await;
        let append = owner.events(1);
        store.append(Append { state: Some(spending(1)), ..append }).await.unwrap();
        owners.push(owner);
    }
    drop(store);
    let conn = rusqlite::Connection::open(&path).unwrap();
    make_second_version(&conn);
    drop(conn);
    let store = open(&path);
    // Some change and some are deleted, before or after they are counted.
    let last = owners.pop().unwrap();
    store.delete_session(last.no).await.unwrap();
    let mut first = Owner::new(&store, "0").await;
    let append = first.events(1);
    store.append(Append { state: Some(spending(1000)), ..append }).await.unwrap();
    let totals = store.agent_totals("tenant", &VisibleSessions::ALL, None).await.unwrap();
    let tokens: Vec<_> = totals.values().map(|agent| agent.total().usage.input_tokens).collect();
    assert_eq!(tokens, [1598]);
    assert_eq!(count(&path, "SELECT count(*) FROM uncounted"), 0);
    drop(store);
    // It reads no sessions: so few steps would not suffice for a list of them.
    let options = Options { query_steps: Some(2000), ..Options::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    assert_eq!(store.agent_totals("tenant", &VisibleSessions::ALL, None).await.unwrap(), totals);
    let listed = store.list_sessions(&SessionQuery::latest("tenant", 1000)).await;
    assert!(matches!(listed, Err(Error::TooSlow)), "{listed:?}");
}

#[tokio::test]
async fn the_most_expensive_search_that_is_allowed_is_interrupted() {
    let (_folder, path) = folder();
    let store = open(&path);
    let letters = "abcdefghijklmnopqrstuvwxyzäöüßéè";
    let words: Vec<String> = letters.chars().map(|letter| format!("{letter}x")).collect();
    assert_eq!(words.len(), turnwire_log::search::MAX_WORDS);
    let mut owner = Owner::new(&store, "s").await;
    for number in 0..400 {
        let text: Vec<String> = words.iter().map(|word| format!("{word}{number}")).collect();
        let reply = owner.reply(1, &number.to_string(), &text.join(" "));
        store.append(reply).await.unwrap();
    }
    let search = SearchQuery::new(&words.join(" ")).unwrap();
    let query = SessionQuery { search, ..SessionQuery::latest("tenant", 1) };
    assert_eq!(store.list_sessions(&query).await.unwrap().len(), 1);
    drop(store);
    let options = Options { query_steps: Some(1000), ..Options::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    for _ in 0..10 {
        let found = store.list_sessions(&query).await;
        assert!(matches!(found, Err(Error::TooSlow)), "{found:?}");
    }
    let few = SessionQuery::latest("tenant", 1);
    assert_eq!(store.list_sessions(&few).await.unwrap().len(), 1, "the connections are still good");
}
