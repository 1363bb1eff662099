use crate::gated_store::{GatedStore, Operation};
use crate::harness::*;
use crate::running::within;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use turnwire_agent::DemoAgent;
use turnwire_core::Head;
use turnwire_testkit::net::{StreamingResponse, http};

/// How many bytes a client that reads nothing is sent at most: the system's buffers, and little
/// more.
const BUFFERED: u64 = 12 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_08_a_slow_consumer_is_closed_and_comes_back() {
    let server = Harness::with_store(GatedStore::new(), "[limits]\nwrite_stall = \"300ms\"");
    let session = server.session("external").await;
    server.publish(&start("r")).await;
    let mut slow = server.watch("raw=true").await;
    assert_eq!(slow.seqs(2).await, [1, 2]);
    let before = server.metric("turnwire_bytes_sent_total");
    let big = "x".repeat(1_000_000);
    let last = 32;
    for at in 0..30 {
        assert_eq!(server.publish(&[delta("r", at, &big)]).await.status, 200);
    }
    // Nothing is kept for it beyond what was being sent: the other 30 MB were not even read.
    let end = async {
        while server.metric("turnwire_slow_clients_total") == 0 {
            tokio::task::yield_now().await;
        }
    };
    within(end).await;
    let sent = server.metric("turnwire_bytes_sent_total") - before;
    assert!(sent < BUFFERED, "{sent} bytes were sent to one who reads nothing");
    // What it received has no gap, and from there it can resume, as often as needed.
    let (mut seen, mut token) = (vec![1, 2], session.resume_token(Head::new(2)));
    while seen.last() != Some(&last) {
        while let Some((event, id)) = slow.next().await {
            seen.push(event["seq"].as_u64().unwrap());
            token = id.unwrap();
            if seen.last() == Some(&last) {
                break;
            }
        }
        slow = server.watch(&format!("raw=true&after={token}")).await;
    }
    assert_eq!(seen, up_to(last));
    server.stop().await;
}

#[tokio::test]
async fn row_09_proxies_are_told_and_the_stream_speaks_at_once_and_stays_awake() {
    let server = Harness::with_store(GatedStore::new(), "[limits]\nheartbeat = \"40ms\"");
    server.session("demo").await;
    let mut quiet = server.watch("").await;
    let request = http::request(
        server.address,
        "POST",
        MESSAGES,
        &[("accept", "text/event-stream")],
        br#"{"content":"hello"}"#,
    );
    let reply = EventStream::from_incoming(
        within(StreamingResponse::send(server.address, &request)).await.unwrap(),
    );
    for watching in [&quiet, &reply] {
        let header = |name| watching.incoming.header(name);
        assert_eq!(header("content-type"), Some("text/event-stream"));
        assert_eq!(header("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(header("x-accel-buffering"), Some("no"));
        assert_eq!(header("content-encoding"), None);
    }
    let hello = quiet.frame().await.unwrap();
    assert!(hello.comments > 0 && hello.data.is_none(), "{hello:?}");
    // After the last event heartbeats come.
    let mut beats = 0;
    while beats < 3 {
        let frame = quiet.frame().await.unwrap();
        beats += usize::from(frame.data.is_none() && frame.comments > 0);
    }
    server.stop().await;
}

const SESSIONS: usize = 20;

#[tokio::test]
async fn row_10_many_sessions_are_watched_on_one_socket() {
    let server = Harness::new();
    let url = format!("ws://{}/v1/ws?wire=turnwire", server.address);
    let (mut socket, _) = within(tokio_tungstenite::connect_async(url)).await.unwrap();
    for at in 0..SESSIONS {
        let body = json!({"id": format!("s{at}"), "agent": "external"}).to_string();
        assert_eq!(server.send("POST", "/v1/sessions", &[], &body).await.status, 201);
        let command = json!({"type": "subscribe", "session_id": format!("s{at}")});
        socket.send(Message::text(command.to_string())).await.unwrap();
    }
    for at in 0..SESSIONS {
        // Session ids inside of events do not matter.
        let mut lines = reply(&format!("r{at}"), 3);
        lines[2] = lines[2].replacen('{', r#"{"metadata":{"session_id":"theirs"},"#, 1);
        lines[3] = lines[3].replacen('{', r#"{"session_id":"theirs","#, 1);
        let path = format!("/v1/sessions/s{at}/events");
        let answer = server.send("POST", &path, PRODUCER, &lines.join("\n")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let mut seen = vec![Vec::new(); SESSIONS];
    while seen.iter().any(|seen| seen.last() != Some(&7)) {
        let message = within(socket.next()).await.unwrap().unwrap();
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        if frame["type"] == "subscribed" {
            continue;
        }
        let session = frame["session_id"].as_str().unwrap();
        let at: usize = session[1..].parse().unwrap();
        assert_eq!(frame["reply_id"], format!("r{at}"));
        let seq = frame["seq"].as_u64().unwrap();
        assert!(frame["event_id"].as_str().unwrap().ends_with(&format!(".{seq}")));
        seen[at].extend(frame["seq_from"].as_u64().unwrap_or(seq)..=seq);
    }
    assert!(seen.iter().all(|seen| *seen == up_to(7)), "{seen:?}");
    server.stop().await;
}

#[tokio::test]
async fn row_16_closing_the_tab_does_not_stop_the_reply() {
    let gate = GatedStore::new();
    let server = Harness::with_agent(gate, "", "demo", Arc::new(DemoAgent::with_rate(200.0)));
    let session = server.session("demo").await;
    let request = http::request(
        server.address,
        "POST",
        MESSAGES,
        &[("accept", "text/event-stream")],
        br#"{"content":"long 50"}"#,
    );
    let incoming = within(StreamingResponse::send(server.address, &request)).await.unwrap();
    let mut asking = EventStream::from_incoming(incoming);
    let mut watching = server.watch("").await;
    let mut reply = Value::Null;
    while reply.is_null() {
        reply = asking.next().await.unwrap().0["reply_id"].clone();
    }
    watching.next().await.unwrap();
    // Both disconnect, one in the middle of the response, the other in the middle of the stream.
    drop((asking, watching));
    let mut head = session.watch_head();
    let idle = head.wait_for(|head| head.status == turnwire_log::store::SessionStatus::Idle);
    within(idle).await.unwrap();
    let path = format!("{MESSAGES}/{}", reply.as_str().unwrap());
    let message = server.get(&path).await.json();
    assert_eq!(message["finished_reason"], "completed", "{message}");
    server.stop().await;
}

#[tokio::test]
async fn row_16_leaving_before_the_answer_does_not_take_the_message_back() {
    let server = Harness::new();
    let session = server.session("demo").await;
    server.gate.close(Operation::Appends);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let body = br#"{"content":"hello"}"#;
    let request = http::request(server.address, "POST", MESSAGES, &[], body);
    stream.write_all(&request).await.unwrap();
    server.gate.wait_for_waiting(Operation::Appends, 1).await;
    drop(stream);
    // The server has noticed the disconnect before the message is durable.
    eventually(|| server.metric("turnwire_connections") == 0).await;
    server.gate.open(Operation::Appends);
    let mut head = session.watch_head();
    let done = |head: &turnwire_log::HeadState| {
        head.head.get() > 2 && head.status == turnwire_log::store::SessionStatus::Idle
    };
    within(head.wait_for(done)).await.unwrap();
    let page = server.get(MESSAGES).await.json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_17_everyone_comes_back_at_once_and_one_reads() {
    const WATCHERS: usize = 60;
    let server = Harness::new();
    server.session("external").await;
    server.publish(&reply("r", 1500)).await;
    server.gate.close(Operation::Reads);
    let before = server.gate.state().reads;
    let mut watching = Vec::new();
    for _ in 0..WATCHERS {
        watching.push(server.watch("raw=true").await);
    }
    server.gate.wait_for_waiting(Operation::Reads, 1).await;
    server.gate.open(Operation::Reads);
    let mut retries = std::collections::BTreeSet::new();
    for watching in &mut watching {
        let hello = watching.frame().await.unwrap();
        retries.insert(hello.retry.expect("how long to wait before coming back"));
        assert_eq!(watching.seqs(1504).await, up_to(1504));
    }
    let reads = server.gate.state().reads - before;
    assert!(reads <= 2, "{WATCHERS} watchers of the same events made {reads} reads");
    assert!(retries.len() > WATCHERS / 4, "they all come back at the same time: {retries:?}");
    assert!(retries.iter().all(|retry| (500..10_000).contains(retry)), "{retries:?}");
    server.stop().await;
}
