//! Synced appends of one event through the Postgres engine, beside `pgbench` with one-row INSERT commits and as many
//! clients, on the same server: `cargo bench -p turnwire-log --features postgres --bench postgres`.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and may fail")]

use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwire_core::{Fields, Head};
use turnwire_log::PostgresStore;
use turnwire_log::store::{Append, EventLines, NewSession, SessionKey, Store};
use turnwire_testkit::postgres::PostgresServer;

const CLIENTS: usize = 256;
const SESSIONS: usize = 1000;
const SECONDS: u32 = 5;
const ROUNDS: usize = 3;
/// An event of 200 bytes.
const EVENT_BYTES: usize = 200;

fn main() {
    let settings =
        ["fsync=on", "full_page_writes=on", "max_connections=400", "shared_buffers=256MB"];
    let Some(server) = PostgresServer::start("the figures of the Postgres engine", &settings)
    else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = server.url(&server.create_database());
    for round in 1..=ROUNDS {
        for events in [1, 64] {
            let appends = runtime.block_on(append(&url, round, events));
            println!(
                "round {round}: {appends:8.0} appends/s of {events} events, {CLIENTS} at once"
            );
        }
        let inserts = server.pgbench(CLIENTS, EVENT_BYTES, SECONDS);
        println!("round {round}: {inserts:8.0} commits/s of pgbench with {CLIENTS} clients");
    }
}

/// Appends to many sessions at once, and returns how many became durable per second.
async fn append(url: &str, round: usize, events: u32) -> f64 {
    let store = Arc::new(PostgresStore::open(url).await.unwrap());
    let mut sessions = Vec::new();
    for at in 0..SESSIONS {
        let new = NewSession {
            key: SessionKey::new("t", format!("{round}-{events}-{at}")),
            agent: "bench".to_owned(),
            title: String::new(),
            metadata: Fields::default(),
            now_ms: 0,
        };
        let (record, _) = store.create_session(new).await.unwrap();
        let lease = store.acquire_lease(record.number, "bench").await.unwrap();
        sessions.push((record.number, lease.fence, Head::EMPTY));
    }
    // Random letters, which Postgres cannot compress well.
    let letters = || (1..EVENT_BYTES).map(|_| fastrand::alphanumeric()).chain(['\n']);
    let line = bytes::Bytes::from((0..events).flat_map(|_| letters()).collect::<String>());
    let start = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let mine: Vec<_> =
            sessions.drain(..sessions.len().min(SESSIONS.div_ceil(CLIENTS))).collect();
        let (store, line) = (Arc::clone(&store), line.clone());
        clients.spawn(append_in_turn(store, mine, line, events, start));
    }
    let all: u64 = clients.join_all().await.into_iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let rate = all as f64 / start.elapsed().as_secs_f64();
    rate
}

async fn append_in_turn(
    store: Arc<PostgresStore>,
    mut sessions: Vec<(turnwire_log::store::SessionNumber, turnwire_log::store::Fence, Head)>,
    bytes: bytes::Bytes,
    count: u32,
    start: Instant,
) -> u64 {
    let mut appends = 0;
    while start.elapsed() < Duration::from_secs(SECONDS.into()) && !sessions.is_empty() {
        for (number, fence, head) in &mut sessions {
            let lines = EventLines { first: head.next(), count, bytes: bytes.clone() };
            *head = lines.last().into();
            let append = Append { lines: Some(lines), ..Append::empty(*number, *fence, 0) };
            store.append(append).await.unwrap();
            appends += 1;
        }
    }
    appends
}
