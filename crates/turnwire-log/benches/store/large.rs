//! Opening a large store, and reads from it.

use crate::load::{append, create_session, events, runtime};
use crate::with_temp_store;
use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use turnwire_core::Seq;
use turnwire_log::SqliteStore;
use turnwire_log::sqlite::Options;
use turnwire_log::store::{SessionKey, SessionNumber, SessionQuery, Store};

/// Creates the store, and measures it in a new process.
pub(crate) fn measure(sessions: usize) {
    with_temp_store(|path| {
        fill_store(path, sessions);
        let bytes = std::fs::metadata(path).unwrap().len();
        println!("{sessions} sessions of 100 events, {} MiB", bytes >> 20);
        let me = env::current_exe().unwrap();
        let child = Command::new(me).args(["--bench", "look"]).arg(path).status().unwrap();
        assert!(child.success());
    });
}

fn fill_store(path: &Path, sessions: usize) {
    let runtime = runtime();
    let store = Arc::new(SqliteStore::open(path, Options::default()).unwrap());
    let tasks: Vec<_> = (0..250)
        .map(|task| {
            let store = Arc::clone(&store);
            runtime.spawn(async move {
                for number in (task..sessions).step_by(250) {
                    let (no, fence) = create_session(&store, format!("session-{number}")).await;
                    // The last append is small, so that as much as possible is in the tail.
                    let most = store.append(append(no, fence, 1, 99, events(99)));
                    store.append(append(no, fence, 100, 1, events(1))).await.unwrap();
                    most.await.unwrap();
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
        // One reply of many events, nearly each in its own commit.
        let (long, fence) = create_session(&store, "long".to_owned()).await;
        let mut written = Vec::new();
        for first in 1..=100_000 {
            written.push(store.append(append(long, fence, first, 1, events(1))));
            if written.len() == 16 || first == 100_000 {
                for written in written.drain(..) {
                    written.await.unwrap();
                }
            }
        }
    });
}

pub(crate) fn measure_open(path: &Path) {
    let runtime = runtime();
    let before = resident();
    let start = Instant::now();
    let store = SqliteStore::open(path, Options::default()).unwrap();
    let time = |start: Instant| start.elapsed().as_secs_f64() * 1000.0;
    println!("open: {:.1} ms, {:.1} MiB of memory", time(start), (resident() - before) / 1024.0);
    runtime.block_on(async {
        let query = SessionQuery::latest("bench", 50);
        for _ in 0..2 {
            let start = Instant::now();
            assert_eq!(store.list_sessions(&query).await.unwrap().len(), 50);
            println!("list of 50 sessions: {:.2} ms", time(start));
            let start = Instant::now();
            assert_eq!(store.list_open_sessions().await.unwrap().len(), 0);
            println!("open sessions: {:.2} ms", time(start));
            let start = Instant::now();
            store.read_events(SessionNumber(7), Seq::FIRST, 1 << 20).await.unwrap();
            println!("100 events: {:.2} ms", time(start));
            let long =
                store.find_session(&SessionKey::new("bench", "long")).await.unwrap().unwrap();
            let start = Instant::now();
            let mut next = 1;
            while next <= 100_000 {
                let page =
                    store.read_events(long.number, Seq::new(next).unwrap(), 1 << 20).await.unwrap();
                next = page.last().unwrap().last().next().get();
            }
            println!(
                "100,000 events, each written alone, in pages of 1 MiB: {:.1} ms",
                time(start)
            );
        }
    });
    println!("memory then: {:.1} MiB", (resident() - before) / 1024.0);
}

/// The resident memory of this process, in KiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}
