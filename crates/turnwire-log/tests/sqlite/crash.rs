//! Kills the process at random moments; nothing that was acknowledged is lost.
//!
//! A failing run prints its seed. `TURNWIRE_CRASHES` sets the number of kills.

use crate::harness::{Owner, assert_events, folder, is_no_session, open, open_small, record, seq};
use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{env, io};
use turnwire_log::SqliteStore;
use turnwire_log::store::{Retention, SessionNumber, Store};

const STORE_VAR: &str = "TURNWIRE_CRASH_STORE";
const TEST_NAME: &str = "crash::nothing_acknowledged_is_lost_when_the_process_is_killed";

/// What was acknowledged: the least head of each session, and deleted sessions.
#[derive(Default)]
struct Acknowledged {
    ends: BTreeMap<(String, i64), u64>,
    deleted: HashSet<i64>,
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    if let Ok(path) = env::var(STORE_VAR) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        return runtime.block_on(write_until_killed(Path::new(&path)));
    }
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let crashes = env::var("TURNWIRE_CRASHES").ok().and_then(|value| value.parse().ok());
    let (_folder, path) = folder();
    let mut promised = Acknowledged::default();
    for _ in 0..crashes.unwrap_or(6) {
        run_and_kill(&path, rng.usize(1..400), &mut promised);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(verify(&path, &promised));
    }
}

/// Starts a process that writes, and kills it after so many acknowledgements.
fn run_and_kill(path: &Path, enough: usize, promised: &mut Acknowledged) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", TEST_NAME, "--nocapture", "--test-threads=2"])
        .env(STORE_VAR, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut seen = 0;
    for line in out.lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["appended", id, no, last] => {
                let end = promised.ends.entry(((*id).to_owned(), no.parse().unwrap())).or_default();
                *end = last.parse::<u64>().unwrap().max(*end);
            }
            ["deleted", no] => {
                promised.deleted.insert(no.parse().unwrap());
            }
            _ => continue,
        }
        seen += 1;
        if seen == enough {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success(), "it ended by itself");
}

async fn verify(path: &Path, promised: &Acknowledged) {
    let store = open(path);
    for ((id, no), end) in &promised.ends {
        if promised.deleted.contains(no) {
            assert!(
                is_no_session(&store.read_events(SessionNumber(*no), seq(1), 1).await),
                "{no} is back"
            );
            continue;
        }
        let Some(found) = record(&store, id).await.filter(|found| found.number.0 == *no) else {
            // Deleted, but the acknowledgement did not arrive.
            continue;
        };
        assert!(found.head.get() >= *end, "{id} has {}, and {end} were acknowledged", found.head);
        let owner = Owner::new(&store, id).await;
        assert_events(&store, &owner, found.first.get(), found.head.get()).await;
    }
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
}

/// Writes to a few sessions at once, and prints what is durable.
async fn write_until_killed(path: &Path) {
    let store = Arc::new(open_small(path));
    let writers: Vec<_> =
        (0..8).map(|number| tokio::spawn(write(Arc::clone(&store), number.to_string()))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write(store: Arc<SqliteStore>, id: String) {
    let print_line = |line: String| io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut owner = Owner::new(&store, &id).await;
    for round in 0_u64.. {
        let size = fastrand::u32(1..5);
        let append = match fastrand::u8(..4) {
            0 => owner.reply(size, &format!("{id}-{round}"), "some words"),
            _ => owner.events(size),
        };
        store.append(append).await.unwrap();
        print_line(format!("appended {id} {} {}", owner.no.0, owner.last));
        match fastrand::u8(..100) {
            0 => {
                store.delete_session(owner.no).await.unwrap();
                print_line(format!("deleted {}", owner.no.0));
                owner = Owner::new(&store, &id).await;
            }
            1 => {
                let retention = Retention { max_bytes: Some(20_000), ..Retention::default() };
                store.apply_retention(retention).await.unwrap();
            }
            _ => {}
        }
    }
}
