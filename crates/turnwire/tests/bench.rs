//! `turnwire bench`, from outside, against a fake server.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod fake_server;

use fake_server::{FakeServer, Fault};
use serde_json::Value;
use std::net::TcpListener;
use std::process::{Command, Output};

fn bench(url: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnwire"))
        .args(["bench", "--url", url])
        .args(args)
        .env_remove("TURNWIRE_TOKEN")
        .output()
        .unwrap()
}

fn figures(url: &str, args: &[&str]) -> Value {
    let output = bench(url, &[args, &["--json"]].concat());
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problems}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Exit status and standard error.
fn failure(url: &str, args: &[&str]) -> (i32, String) {
    let output = bench(url, args);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

const INGEST: [&str; 11] = [
    "ingest",
    "--connections",
    "4",
    "--sessions",
    "10",
    "--batch",
    "7",
    "--seconds",
    "1",
    "--warm-up",
    "0",
];

#[test]
fn ingest_counts_what_the_server_has_stored() {
    let fake = FakeServer::start(Fault::None);
    let figures = figures(&fake.url, &[&INGEST[..], &["--keep"]].concat());
    let (sessions, events) = fake.remaining();
    assert_eq!(sessions, 10);
    let rate = figures["events_per_second"].as_f64().unwrap();
    // The last POST of each connection may be answered after the second.
    let stored = f64::from(u32::try_from(events).unwrap());
    assert!(rate > 0.0 && rate <= stored && rate >= stored - 4.0 * 7.0, "{rate} of {stored}");
    let latency = &figures["latency_ms"];
    assert!(latency["p50"].as_f64() <= latency["p99"].as_f64());
    assert!(latency["p99"].as_f64() <= latency["max"].as_f64());
}

#[test]
fn sessions_are_deleted_unless_keep_is_given() {
    let fake = FakeServer::start(Fault::None);
    figures(&fake.url, &INGEST);
    assert_eq!(fake.remaining(), (0, 0));
}

#[test]
fn fanout_measures_every_event_for_every_watcher() {
    let fake = FakeServer::start(Fault::None);
    let args = ["fanout", "--watchers", "20", "--rate", "200", "--seconds", "1", "--warm-up", "1"];
    let figures = figures(&fake.url, &args);
    assert_eq!(figures["deliveries_per_second"], 4000.0);
    assert_eq!(figures["lost"], 0);
    let (sent, due) = (&figures["latency_ms"], &figures["latency_from_due_ms"]);
    assert!(sent["p50"].as_f64() <= due["p50"].as_f64(), "{figures}");
}

#[test]
fn a_server_that_loses_an_event_fails_the_measurement() {
    let fake = FakeServer::start(Fault::LosesOne);
    let args = ["fanout", "--watchers", "3", "--rate", "50", "--seconds", "1", "--warm-up", "0"];
    let output = bench(&fake.url, &args);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("lost") && text.contains("3  <- must be 0"), "{text}");
}

#[test]
fn late_join_compares_the_replay_with_the_message() {
    let fake = FakeServer::start(Fault::None);
    let figures = figures(&fake.url, &["late-join", "--deltas", "3000", "--joins", "3"]);
    assert!(figures["message_bytes"].as_u64().unwrap() > 3000 * 8);
    // The fake merges nothing.
    assert!(figures["ratio"].as_f64().unwrap() > 10.0, "{figures}");
}

#[test]
fn resume_storm_waits_until_all_have_caught_up() {
    let fake = FakeServer::start(Fault::None);
    let figures = figures(&fake.url, &["resume-storm", "--watchers", "20", "--deltas", "2000"]);
    assert!(figures["all_ms"].as_f64() >= figures["latency_ms"]["p50"].as_f64(), "{figures}");
    assert_eq!(figures["out_of_order"], 0);
}

#[test]
fn idle_and_stalled_read_the_memory_of_the_process() {
    let fake = FakeServer::start(Fault::None);
    let pid = std::process::id().to_string();
    let idle = ["idle", "--pid", &pid, "--watchers", "30", "--sessions", "4", "--seconds", "0"];
    let figures_of_idle = figures(&fake.url, &idle);
    assert!(figures_of_idle["mib_before"].as_f64().unwrap() > 0.0);
    let stalled = figures(&fake.url, &["stalled", "--pid", &pid, "--events", "2000"]);
    assert!(stalled["mib_most"].as_f64() >= stalled["mib_before"].as_f64());
}

#[test]
fn fill_keeps_finished_replies() {
    let fake = FakeServer::start(Fault::None);
    figures(&fake.url, &["fill", "--sessions", "70", "--events", "10"]);
    assert_eq!(fake.remaining(), (70, 700));
}

#[test]
fn an_unreachable_server_is_reported_with_advice() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (status, stderr) = failure(&format!("http://{free}"), &INGEST);
    assert_eq!(status, 2);
    assert!(stderr.contains("cannot reach") && stderr.contains("turnwire serve"), "{stderr}");
}

#[test]
fn a_token_is_asked_for_and_sent() {
    let fake = FakeServer::start(Fault::WantsToken);
    let (status, stderr) = failure(&fake.url, &INGEST);
    assert_eq!(status, 2);
    assert!(stderr.contains("401") && stderr.contains("--token"), "{stderr}");
    figures(&fake.url, &[&INGEST[..], &["--token", "secret"]].concat());
}

#[test]
fn the_first_refusal_ends_the_measurement_in_the_servers_words() {
    let fake = FakeServer::start(Fault::RefusesEvents);
    let (status, stderr) = failure(&fake.url, &INGEST);
    assert_eq!(status, 2);
    assert!(stderr.contains("a POST of events was answered with 422: no. Stop it."), "{stderr}");
}

#[test]
fn a_broken_connection_is_reported() {
    let fake = FakeServer::start(Fault::BreaksOff);
    let (status, stderr) = failure(&fake.url, &INGEST);
    assert_eq!(status, 2);
    assert!(stderr.contains("broke"), "{stderr}");
}

#[test]
fn invalid_settings_are_reported_before_anything_is_sent() {
    for args in [
        &["ingest", "--connections", "10", "--sessions", "5"][..],
        &["ingest", "--batch", "0"],
        &["fanout", "--rate", "0"],
        &["idle"],
    ] {
        let (status, stderr) = failure("http://127.0.0.1:1", args);
        assert_eq!(status, 2, "{args:?}");
        assert!(!stderr.contains("cannot reach"), "{stderr}");
    }
    let (status, stderr) = failure("https://127.0.0.1", &INGEST);
    assert_eq!(status, 2);
    assert!(stderr.contains("only http://"), "{stderr}");
}
