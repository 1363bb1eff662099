//! Backups with the programs of Postgres, by the commands of `docs/cluster.md`.

use crate::harness::{Running, run, server};
use std::process::Stdio;

/// The statement that the page names, which gives every session another epoch.
fn documented_statement() -> &'static str {
    let page = include_str!("../../../../docs/cluster.md");
    let line = page.lines().find(|line| line.contains("UPDATE turnwire.sessions SET epoch"));
    line.unwrap().split('"').nth(1).unwrap()
}

impl Running {
    /// Has the demo agent answer in the session `paris`, and returns the resume token of the last event.
    fn talk(&self, text: &str) -> String {
        let message = format!(r#"{{"content":"{text}"}}"#);
        let posted = self.request("POST", "/v1/sessions/paris/messages", &message);
        assert!(posted.starts_with("HTTP/1.1 202"), "{posted}");
        let events = self.request("GET", "/v1/sessions/paris/events?after=0&until=idle", "");
        let mut ids = events.lines().filter_map(|line| line.strip_prefix("id: "));
        ids.next_back().unwrap().trim().to_owned()
    }
}

#[test]
fn a_dump_of_a_running_server_is_restored_and_no_client_resumes_in_events_that_are_gone() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (folder, database, restored) =
        (folder.path(), server.create_database(), server.create_database());
    let running = Running::start(folder, &server.url(&database));
    let created = running.request("POST", "/v1/sessions", r#"{"id":"paris","agent":"demo"}"#);
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    running.talk("rain in Paris");
    let dump = server.program("pg_dump");
    let dump = { dump }
        .args(["--format=custom", "--schema=turnwire", "--dbname", &database])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(dump.status.success());
    std::fs::write(folder.join("turnwire.dump"), dump.stdout).unwrap();
    let token = running.talk("and tomorrow?");
    drop(running);

    let status = server
        .program("pg_restore")
        .args(["--exit-on-error", "--dbname", &restored])
        .arg(folder.join("turnwire.dump"))
        .status();
    assert!(status.unwrap().success());
    server.run(&restored, documented_statement());
    let url = server.url(&restored);
    let (status, _, error) = run(folder, &["doctor", "--store", &url]);
    assert_eq!(status, 0, "{error}");

    let running = Running::start(folder, &url);
    let messages = running.request("GET", "/v1/sessions/paris/messages", "");
    assert!(messages.contains("rain in Paris") && !messages.contains("tomorrow"), "{messages}");
    // Other events get the seqs that the client has seen.
    running.talk("snow in Oslo");
    let other = running.talk("sun in Rome");
    let seq = |token: &str| token.rsplit('.').next().unwrap().parse::<u64>().unwrap();
    assert!(seq(&other) > seq(&token), "{other} {token}");
    let path = format!("/v1/sessions/paris/events?after={token}&until=idle");
    let resumed = running.request("GET", &path, "");
    assert!(resumed.contains("RESET") && resumed.contains("rain in Paris"), "{resumed}");
}
