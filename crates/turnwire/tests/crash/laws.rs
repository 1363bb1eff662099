//! Laws 8 and 9, with a server that is killed with SIGKILL.

use crate::http::{Connection, Request};
use crate::server::Server;
use serde_json::{Value, json};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use turnwire_core::{FinishedReason, Msg};

/// How often law 8 kills a server.
const KILLS: usize = 8;

/// How many subscribers watch the reply that is killed.
const SUBSCRIBERS: usize = 3;

/// A stream that sends nothing for so long waits for the database.
const SILENCE: Duration = Duration::from_millis(100);

/// A reply that takes longer than this never ends.
const MAX_REPLY_TIME: Duration = Duration::from_mins(1);

fn call(server: &Server, request: &Request) -> Value {
    let answer = Connection::open(&server.address).unwrap().call(request).unwrap();
    assert!(matches!(answer.status, 200..=202), "{}: {}", request.path, answer.text());
    answer.json()
}

fn create_session(server: &Server, id: &str) {
    call(server, &Request::post("/v1/sessions", &json!({"id": id, "agent": "demo"})));
}

/// Sends a message that the demo agent answers with so many words, and returns the id of the reply.
fn ask_for_words(server: &Server, session: &str, words: u32) -> String {
    let body = json!({"content": format!("long {words}")});
    let accepted = call(server, &Request::post(format!("/v1/sessions/{session}/messages"), &body));
    accepted["reply_id"].as_str().unwrap().to_owned()
}

/// Subscribes to the unmerged events of a session.
fn subscribe(server: &Server, session: &str) -> Connection {
    let mut connection = Connection::open(&server.address).unwrap();
    let path = format!("/v1/sessions/{session}/events?raw=true");
    connection.send(&Request::get(path).header("accept", "text/event-stream")).unwrap();
    assert_eq!(connection.read_head().unwrap().status, 200);
    connection
}

/// The next complete events of a stream, as JSON; `None` when the connection breaks.
fn next_events(connection: &mut Connection, unread: &mut String) -> Option<Vec<String>> {
    let chunk = connection.read_chunk().ok()??;
    unread.push_str(&String::from_utf8(chunk).unwrap());
    let complete = unread.rfind("\n\n").map_or(0, |end| end + 2);
    let events: String = unread.drain(..complete).collect();
    Some(events.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect())
}

/// Reads a stream until it breaks, announces each event, and returns all of them.
fn read_until_broken(mut stream: Connection, seen: Sender<()>) -> JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let (mut all, mut unread) = (Vec::new(), String::new());
        while let Some(events) = next_events(&mut stream, &mut unread) {
            for event in events {
                all.push(event);
                // The test counts only up to the kill.
                let _ = seen.send(());
            }
        }
        all
    })
}

fn seq_of(event: &str) -> usize {
    let event: Value = serde_json::from_str(event).unwrap();
    event["seq"].as_u64().and_then(|seq| seq.try_into().ok()).unwrap()
}

#[test]
fn law_8_write_before_show_a_kill_takes_back_no_event_that_a_subscriber_saw() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..KILLS {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path());
        create_session(&server, "s");
        let (received, was_received) = mpsc::channel();
        let subscribers: Vec<_> = (0..SUBSCRIBERS)
            .map(|_| read_until_broken(subscribe(&server, "s"), received.clone()))
            .collect();
        ask_for_words(&server, "s", 1000);
        for _ in 0..rng.usize(1..1000) {
            was_received.recv_timeout(MAX_REPLY_TIME).unwrap();
        }
        // While another program holds the database, nothing becomes durable: what is shown now was
        // shown too early, and the kill takes it back.
        let database = rusqlite::Connection::open(folder.path().join("turnwire.db")).unwrap();
        database.busy_timeout(MAX_REPLY_TIME).unwrap();
        database.execute_batch("BEGIN IMMEDIATE").unwrap();
        while was_received.recv_timeout(SILENCE).is_ok() {}
        server.kill();
        drop(database);
        let shown = subscribers.into_iter().flat_map(|subscriber| subscriber.join().unwrap());
        let shown: Vec<String> = shown.collect();
        assert!(!shown.iter().any(|event| event.contains("REPLY_END")), "killed too late");

        let server = Server::start(folder.path());
        let log = Request::get("/v1/sessions/s/events").header("accept", "application/x-ndjson");
        let log = Connection::open(&server.address).unwrap().call(&log).unwrap().text();
        let log: Vec<&str> = log.lines().collect();
        for event in &shown {
            let seq = seq_of(event);
            assert_eq!(log.get(seq - 1), Some(&event.as_str()), "event {seq} was shown");
        }
    }
}

/// Waits until nothing runs, without subscribing to anything.
fn wait_until_idle(server: &Server, session: &str) {
    let begun = Instant::now();
    while call(server, &Request::get(format!("/v1/sessions/{session}")))["status"] != "idle" {
        assert!(begun.elapsed() < MAX_REPLY_TIME, "{session} never becomes idle");
        thread::yield_now();
    }
}

fn find_reply(server: &Server, session: &str, reply: &str) -> Msg {
    let page = call(server, &Request::get(format!("/v1/sessions/{session}/messages")));
    let messages = page["messages"].as_array().unwrap();
    let message = messages.iter().find(|message| message["id"] == reply).unwrap();
    Msg::from_json(&message.to_string()).unwrap()
}

/// Reads some events of a reply, and disconnects.
fn read_some_and_disconnect(server: &Server, session: &str, mut stream: Connection) {
    let (mut count, mut unread) = (0, String::new());
    while count < 20 {
        count += next_events(&mut stream, &mut unread).unwrap().len();
    }
    drop(stream);
    let status = &call(server, &Request::get(format!("/v1/sessions/{session}")))["status"];
    assert_eq!(status, "running", "the reply ended before the only subscriber left");
}

#[test]
fn law_9_disconnect_is_not_stop_a_reply_outlives_its_subscribers_and_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    for session in ["undisturbed", "left", "killed", "stopped"] {
        create_session(&server, session);
    }
    let undisturbed = ask_for_words(&server, "undisturbed", 1000);
    wait_until_idle(&server, "undisturbed");
    let whole = find_reply(&server, "undisturbed", &undisturbed).text("");

    // The only subscriber leaves: the reply goes on to its end.
    let stream = subscribe(&server, "left");
    let left = ask_for_words(&server, "left", 1000);
    read_some_and_disconnect(&server, "left", stream);
    wait_until_idle(&server, "left");

    // The only subscriber leaves, and then the server is killed: nobody asks the next one for anything.
    let stream = subscribe(&server, "killed");
    let killed = ask_for_words(&server, "killed", 1000);
    read_some_and_disconnect(&server, "killed", stream);
    server.kill();
    let server = Server::start(folder.path());
    wait_until_idle(&server, "killed");

    for (session, reply) in [("left", left), ("killed", killed)] {
        let reply = find_reply(&server, session, &reply);
        assert_eq!(reply.finished_reason(), Some(&FinishedReason::Completed), "{session}");
        assert_eq!(reply.text(""), whole, "{session}");
    }

    // A stop is a request of its own, and does end a reply.
    let stream = subscribe(&server, "stopped");
    let stopped = ask_for_words(&server, "stopped", 1000);
    read_some_and_disconnect(&server, "stopped", stream);
    let stop = json!({"type": "USER_INTERRUPT", "id": "stop", "reply_id": stopped});
    call(&server, &Request::post("/v1/sessions/stopped/events", &stop));
    wait_until_idle(&server, "stopped");
    let reply = find_reply(&server, "stopped", &stopped);
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Interrupted));
}
