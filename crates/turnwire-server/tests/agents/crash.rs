//! The process is killed after each event of a run and started again: the message is the same, and
//! no tool that must not run twice has run twice.
//!
//! `TURNWIRE_SEED` repeats the order of an earlier run.

use crate::client::{TestClient, begin};
use crate::server::{Process, effects};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use turnwire_log::SqliteStore;
use turnwire_log::doctor;
use turnwire_log::store::{SessionKey, Store};

/// Cases that do not fit into this time are left for another seed.
const TIME: Duration = Duration::from_secs(30);
/// Most of a case is waiting.
const SIDE_BY_SIDE: usize = 4;
/// The tools that must not run twice. Each is called once.
const ONCE: [&str; 3] = ["once", "asked", "dig"];

/// The outcome of a run.
struct Outcome {
    text: String,
    events: Vec<Value>,
    /// The states of the results, by tool name.
    states: BTreeMap<String, String>,
}

/// One run; the process is killed after so many events.
async fn run(folder: &Path, kill_after: Option<usize>) -> Outcome {
    let mut process = Process::start(folder);
    let reply = begin(process.address).await;
    if let Some(count) = kill_after {
        let mut visitor = TestClient::connect(process.address).await;
        for nth in 1..=count {
            let event = visitor.next().await;
            if nth < count && event["type"] == "REQUIRE_USER_CONFIRM" {
                visitor.allow().await;
            }
        }
        process.kill();
        process = Process::start(folder);
    }
    let mut visitor = TestClient::connect(process.address).await;
    let events = visitor.events_until_end(&reply).await;
    let all = visitor.get("/v1/sessions/s/messages?agents=all").await;
    let messages = all["messages"].as_array().unwrap();
    let own = messages.iter().find(|message| message["id"] == *reply).unwrap();
    let text = |message: &Value| -> String {
        let blocks = message["content"].as_array().unwrap().iter();
        blocks
            .filter(|block| block["type"] == "text")
            .map(|it| it["text"].as_str().unwrap())
            .collect()
    };
    let blocks = messages.iter().flat_map(|message| message["content"].as_array().unwrap());
    let results = blocks.filter(|block| block["type"] == "tool_result");
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let states = results.map(|result| (word(&result["name"]), word(&result["state"]))).collect();
    Outcome { text: text(own), events, states }
}

/// Checks that everything that was opened is closed, and nothing happened twice.
async fn judge(folder: &Path, outcome: &Outcome, expected: &str) -> Result<(), String> {
    if outcome.text != expected {
        return Err(format!("it says {:?}", outcome.text));
    }
    for tool in ONCE {
        let state = outcome.states.get(tool).map(String::as_str);
        match (effects(folder, tool), state) {
            (1, Some("success" | "interrupted")) | (0, Some("interrupted")) => {}
            (count, state) => return Err(format!("{tool} ran {count} times: {state:?}")),
        }
    }
    let again = (effects(folder, "again"), outcome.states.get("again").map(String::as_str));
    // One more run is allowed; but a tool that has produced output does not start again.
    if !matches!(again, (1 | 2, Some("success")) | (0 | 1, Some("interrupted"))) {
        return Err(format!("again ran {} times: {:?}", again.0, again.1));
    }
    let of = |kind: &str| -> Vec<&Value> {
        let events = outcome.events.iter().filter(|event| event["type"] == kind);
        events.map(|event| &event["reply_id"]).collect()
    };
    let (mut started, mut ended) = (of("REPLY_START"), of("REPLY_END"));
    started.sort_by_key(ToString::to_string);
    started.dedup();
    ended.sort_by_key(ToString::to_string);
    if started != ended {
        return Err(format!("{started:?} began, and {ended:?} ended"));
    }
    let store = SqliteStore::open_read_only(folder.join("turnwire.db")).unwrap();
    let record = store.find_session(&SessionKey::new("default", "s")).await.unwrap().unwrap();
    let found = doctor::check(&store, &record).await.unwrap();
    if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
}

fn block_on<R>(work: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn a_reply_survives_a_kill_after_each_of_its_events() {
    let seed = std::env::var("TURNWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let began = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let reference = block_on(run(folder.path(), None));
    assert_eq!(reference.text, "Let me see. May I? All done.");
    block_on(judge(folder.path(), &reference, &reference.text)).unwrap();
    assert!(ONCE.iter().all(|tool| reference.states[*tool] == "success"));
    // After the last event there is nothing to continue.
    let mut places: Vec<usize> = (1..reference.events.len()).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut places);
    println!("{} places to be killed at, seed {seed}", places.len());
    let (next, places) = (AtomicUsize::new(0), Arc::new(places));
    let expected = reference.text.as_str();
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            let (next, places) = (&next, places.clone());
            scope.spawn(move || {
                while began.elapsed() < TIME
                    && let Some(&place) = places.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let folder = tempfile::tempdir().unwrap();
                    let verdict = block_on(async {
                        let outcome = run(folder.path(), Some(place)).await;
                        judge(folder.path(), &outcome, expected).await
                    });
                    if let Err(why) = verdict {
                        let kept = folder.keep();
                        let kept = kept.display();
                        assert_eq!(
                            why, "",
                            "killed after {place} events, seed {seed}, kept in {kept}"
                        );
                    }
                }
            });
        }
    });
    let done = next.load(Ordering::Relaxed).min(places.len());
    println!("{done} of {} places in {:?}", places.len(), began.elapsed());
}
