//! Clients that write: a producer, and a user of the demo agent. Their requests go through the same
//! network, are cut off, and are sent again.

use serde_json::{Value, json};
use std::net::SocketAddr;
use turnwire_core::Event;
use turnwire_testkit::net::{HttpResponse, send_http};
use turnwire_testkit::{Rng, stream};

/// Repeats a request until it gets a whole response.
pub async fn request_until_answered(
    proxy: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    loop {
        if let Ok(answer) = send_http(proxy, method, path, headers, body).await {
            assert!(answer.status < 500, "{method} {path}: {answer:?}");
            return answer;
        }
    }
}

/// Publishes random replies, in batches of random size, each until it is acknowledged.
pub async fn publish_replies(proxy: SocketAddr, session: String, mut rng: Rng, rounds: usize) {
    let path = format!("/v1/sessions/{session}/events?tolerant=true");
    for _ in 0..rounds {
        let (events, _) = stream::random_replies(&mut rng);
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            let batch: Vec<Event<'static>> = events.by_ref().take(rng.usize(1..30)).collect();
            let lines: Vec<String> = batch.iter().map(Event::to_json).collect();
            let body = lines.join("\n");
            let headers = [("turnwire-producer", "chaos.1")];
            let answer =
                request_until_answered(proxy, "POST", &path, &headers, body.as_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let done = answer.json();
            let count = |name: &str| done[name].as_u64().unwrap();
            let skipped = done["skipped"].as_array().unwrap().len() as u64;
            let all = count("stored") + count("repeated") + skipped;
            assert_eq!(all, batch.len() as u64, "{done}");
        }
    }
}

/// Sends messages to the demo agent. A repeated request must not add a second message.
pub async fn send_messages(proxy: SocketAddr, session: String, mut rng: Rng, rounds: usize) {
    let messages = format!("/v1/sessions/{session}/messages?queue=true");
    let mut message_ids = Vec::new();
    for at in 0..rounds {
        let words = ["hello", "weather in Paris", "image", "team", "json", "fail", "long 40"];
        let body = json!({"content": words[rng.usize(..words.len())]}).to_string();
        let key = format!("{session}-{at}");
        let headers = [("idempotency-key", key.as_str())];
        let answer =
            request_until_answered(proxy, "POST", &messages, &headers, body.as_bytes()).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        message_ids.push(answer.json()["message_id"].clone());
    }
    // Every message is there once, and was answered.
    let path = format!("/v1/sessions/{session}");
    loop {
        let session = request_until_answered(proxy, "GET", &path, &[], b"").await.json();
        if session["status"] == "idle" && session["queued"].as_array().is_none_or(Vec::is_empty) {
            break;
        }
    }
    let path = format!("/v1/sessions/{session}/messages?limit=500");
    let page = request_until_answered(proxy, "GET", &path, &[], b"").await.json();
    let of = |role: &str| -> Vec<Value> {
        let all = page["messages"].as_array().unwrap().iter();
        all.filter(|message| message["role"] == role).map(|message| message["id"].clone()).collect()
    };
    assert_eq!(of("user"), message_ids);
    assert_eq!(of("assistant").len(), message_ids.len());
}
