//! A client that sends messages to agents whose tools leave marks outside, and waits until everything has ended.

use crate::checker::Violation;
use crate::client::Client;
use crate::connection::Request;
use crate::harness::{ClusterTest, pause};
use crate::history::{Append, message_name};
use serde_json::json;
use std::time::{Duration, Instant};
use turnwire_testkit::{one_in, pick};

const MESSAGES_PER_SESSION: usize = 4;

/// The longest time for a session to come to rest.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Between two looks at a session.
const POLL: Duration = Duration::from_millis(50);

/// Sends messages until the test ends.
pub fn run(client: &mut Client) {
    while !client.test.is_ending() {
        let agent = *pick(&mut client.rng, &["marker", "marker", "demo"]);
        let session = client.test.clone().create_session(client, agent);
        let writer = client.test.next_number();
        for number in 0..MESSAGES_PER_SESSION {
            if client.test.is_ending() {
                break;
            }
            let text = random_message(client, agent, &format!("{}-c{number}", session.id));
            let may_wait = client.rng.bool();
            if !send(client, &session.id, writer, number, &text, may_wait)
                || one_in(&mut client.rng, 3)
            {
                wait_until_idle(client, &session.id);
            }
        }
        wait_until_idle(client, &session.id);
        session.settle();
        check_replies(client, &session.id);
    }
}

fn random_message(client: &mut Client, agent: &str, call: &str) -> String {
    let rng = &mut client.rng;
    match (agent, rng.u32(..4)) {
        ("demo", 0) => "weather".to_owned(),
        ("demo", _) => format!("long {}", rng.u32(20..150)),
        (_, 0) => format!("say {}", rng.u32(5..40)),
        (_, 1) => format!("mark {call} {}", rng.u32(..300)),
        _ => format!("ask {call} {}", rng.u32(..200)),
    }
}

/// Sends a message until it is answered. Returns whether it was taken.
pub fn send(
    client: &mut Client,
    session: &str,
    writer: usize,
    number: usize,
    text: &str,
    may_wait: bool,
) -> bool {
    let history = &client.test.clone().history;
    let id = format!("{session}-m{number}");
    let path = format!("/v1/sessions/{session}/messages?queue={may_wait}");
    let request = Request::post(path, &json!({"id": id, "content": text}))
        .header("idempotency-key", id.clone());
    let began = history.now();
    let answer = client.call(&request);
    let (acknowledged, json) = (history.now(), answer.json());
    match answer.status {
        202 => {
            let head = if may_wait { 0 } else { ClusterTest::acknowledged_head(&json) };
            let names = vec![message_name(&id)];
            let reply = json["reply_id"].as_str().unwrap_or_default().to_owned();
            history.record(session, |session| {
                session.replies.push((reply, text.to_owned()));
                session.appends.push(Append {
                    began,
                    acknowledged,
                    writer,
                    names,
                    head,
                    is_exact: false,
                });
            });
            history.count("messages acknowledged", 1);
            true
        }
        // A reply runs.
        409 if !may_wait => false,
        status => {
            let why = format!("message {id} was answered {status}: {}", answer.text());
            history.record(session, |session| session.wrong.push((Violation::Wrong, why)));
            false
        }
    }
}

/// Waits until nothing runs and nothing is in the queue. Approvers decide on its calls meanwhile.
pub fn wait_until_idle(client: &mut Client, session: &str) {
    let test = client.test.clone();
    let begun = Instant::now();
    loop {
        let view = test.view(client, session).unwrap_or_default();
        if view["status"] == "idle" && view["queued"].as_array().is_some_and(Vec::is_empty) {
            return;
        }
        if begun.elapsed() > SETTLE_TIMEOUT {
            let why = format!("does not come to rest: {view}");
            test.history.record(session, |session| session.wrong.push((Violation::Lost, why)));
            return;
        }
        pause(POLL);
    }
}

/// Every reply says what an undisturbed agent says: nobody else wrote into it.
pub fn check_replies(client: &mut Client, session: &str) {
    let history = &client.test.clone().history;
    let mut replies = Vec::new();
    history.record(session, |session| replies.clone_from(&session.replies));
    // What the model is told about a tool that was interrupted differs.
    replies.retain(|(_, message)| message.starts_with("long") || message.starts_with("say"));
    for (id, message) in replies {
        let path = format!("/v1/sessions/{session}/messages/{id}");
        let reply = client.call(&Request::get(path)).json();
        let blocks = reply["content"].as_array().into_iter().flatten();
        let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
        let known = history.known_reply(&message, &text);
        if reply["finished_reason"] != "completed" || text != known {
            let why = format!("to {message:?} it said {reply}, and elsewhere {known:?}");
            history.record(session, |session| session.wrong.push((Violation::Wrong, why)));
        }
    }
}
