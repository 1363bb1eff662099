//! Messages: pages, what is open, the point from which to watch, one message at any point.

use crate::harness::{Server, asking, publish, reply, user_message};
use fastrand::Rng;
use serde_json::{Value, json};
use std::sync::Arc;
use turnwire_core::event::Supersede;
use turnwire_core::{Event, FoldCursor, Folder, Head, Msg, Seq};
use turnwire_log::Session;
use turnwire_testkit::{check_property, one_in, stream};

fn ids(page: &Value) -> Vec<&str> {
    let messages = page["messages"].as_array().unwrap();
    messages.iter().map(|message| message["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_latest_page_has_what_is_open_and_says_where_to_go_on() {
    let server = Server::new();
    let session = server.make("s").await;
    publish(&session, &[user_message("u1", "hi")]).await;
    publish(&session, &reply("r1", "Hello")).await;
    publish(&session, &asking("r2")).await;
    publish(&session, &reply("r3", "half")[..3]).await;
    let page = server.get("/v1/sessions/s/messages").await.expect(200);
    assert_eq!(ids(&page), ["u1", "r1", "r2", "r3"]);
    assert_eq!(page["messages"][3]["content"][0]["text"], "half");
    assert_eq!(page["cursors"]["r3"], json!({"started": true, "seq": 13}));
    assert_eq!(page["cursors"].as_object().unwrap().len(), 2);
    assert_eq!(page["last_event_id"], session.resume_token(Head::new(13)));
    assert_eq!(page["status"], "waiting");
    assert_eq!(page["pending"][0]["confirm"][0]["id"], "c");
    assert_eq!((&page["has_more"], &page["next_before"]), (&json!(false), &Value::Null));
}

#[tokio::test]
async fn pages_go_back_to_the_first_message() {
    let server = Server::new();
    let session = server.make("s").await;
    for n in 0..7 {
        publish(&session, &reply(&format!("r{n}"), "x")).await;
    }
    // An old one that is still open is in the latest page all the same.
    let other = server.make("t").await;
    publish(&other, &asking("open")).await;
    for n in 0..5 {
        publish(&other, &[user_message(&format!("u{n}"), "x")]).await;
    }
    let page = server.get("/v1/sessions/t/messages?limit=2").await.expect(200);
    assert_eq!(ids(&page), ["open", "u3", "u4"]);
    assert_eq!(page["next_before"], "u3");

    let (mut seen, mut path) = (Vec::new(), "/v1/sessions/s/messages?limit=3".to_owned());
    loop {
        let page = server.get(&path).await.expect(200);
        seen.push(ids(&page).join(" "));
        let Some(next) = page["next_before"].as_str() else { break };
        path = format!("/v1/sessions/s/messages?limit=3&before={next}");
    }
    assert_eq!(seen, ["r4 r5 r6", "r1 r2 r3", "r0"]);
    server.get("/v1/sessions/s/messages?before=none").await.expect(404);
    server.get("/v1/sessions/s/messages?limit=x").await.expect(400);
    server.get("/v1/sessions/s/messages?agents=some").await.expect(400);
}

#[tokio::test]
async fn what_was_superseded_and_what_sub_agents_said_comes_only_when_asked_for() {
    let server = Server::new();
    let session = server.make("s").await;
    let sub = |line: &String| line.replacen('{', r#"{"agent_path":"main/sub","#, 1);
    publish(&session, &reply("old", "x")).await;
    publish(&session, &reply("sub", "x").iter().map(sub).collect::<Vec<_>>()).await;
    publish(&session, &reply("sub-open", "x")[..2].iter().map(sub).collect::<Vec<_>>()).await;
    let supersede = r#"{"id":"x","type":"SUPERSEDE","message_ids":["old"]}"#;
    publish(&session, &[supersede.to_owned()]).await;
    publish(&session, &reply("new", "x")).await;
    for (query, expected) in [
        ("", "new"),
        ("?agents=all", "sub sub-open new"),
        ("?superseded=true", "old new"),
        ("?superseded=true&agents=all", "old sub sub-open new"),
        // What does not count takes no room.
        ("?limit=1&superseded=false", "new"),
    ] {
        let page = server.get(&format!("/v1/sessions/s/messages{query}")).await.expect(200);
        assert_eq!(ids(&page).join(" "), expected, "{query}");
    }
}

#[tokio::test]
async fn a_page_says_whose_the_messages_of_sub_agents_are() {
    let server = Server::new();
    let session = server.make("s").await;
    let of = |id: &str, path: &str, call: &str| -> Vec<String> {
        let whose = format!(r#"{{"agent_path":"{path}","parent_tool_call_id":"{call}","#);
        reply(id, "x").iter().map(|line| line.replacen('{', &whose, 1)).collect()
    };
    publish(&session, &reply("top", "x")[..2]).await;
    publish(&session, &of("sub", "main/researcher", "c1")).await;
    publish(&session, &of("deep", "main/researcher/reader", "c2")).await;
    publish(&session, &reply("top", "x")[2..]).await;
    let message = user_message("told", "hi").replacen('{', r#"{"agent_path":"main/teller","#, 1);
    publish(&session, &[message]).await;
    publish(&session, &of("open", "main/writer", "c3")[..2]).await;

    let by = |path: &str, call: &str| json!({"agent_path": path, "parent_tool_call_id": call});
    let all = json!({
        "sub": by("main/researcher", "c1"),
        "deep": by("main/researcher/reader", "c2"),
        "told": {"agent_path": "main/teller"},
        "open": by("main/writer", "c3"),
    });
    let page = server.get("/v1/sessions/s/messages?agents=all").await.expect(200);
    assert_eq!(page["agents"], all);
    let page = server.get("/v1/sessions/s/messages").await.expect(200);
    assert_eq!(page["agents"], json!({}), "none of them is there");
    let page = server.get("/v1/sessions/s/messages?agents=all&before=told&limit=1").await;
    assert_eq!(page.expect(200)["agents"], json!({"deep": all["deep"]}), "of this page only");

    // Of events that are no longer kept, only who wrote the message is left.
    server.trim().await;
    let page = server.get("/v1/sessions/s/messages?agents=all").await.expect(200);
    assert_eq!(page["agents"]["sub"], json!({"agent_path": "external/friday"}));
    assert_eq!(page["agents"]["open"], all["open"]);
}

#[tokio::test]
async fn a_message_can_be_read_at_any_point() {
    let server = Server::new();
    let session = server.make("s").await;
    publish(&session, &[user_message("u", "hi")]).await;
    publish(&session, &reply("r", "Hello")).await;
    publish(&session, &reply("open", "Hel")[..3]).await;
    let at = |id: &str, at: &str| {
        let (server, path) = (&server, format!("/v1/sessions/s/messages/{id}?at={at}"));
        async move { server.get(&path).await }
    };
    let now = server.get("/v1/sessions/s/messages/r").await.expect(200);
    assert_eq!(now["content"][0]["text"], "Hello");
    for (id, place, text) in [
        ("r", "3", json!("")),
        ("r", "4", json!("Hello")),
        ("r", "6", json!("Hello")),
        ("r", "99999999", json!("Hello")),
        ("open", "8", json!("")),
        ("open", "9", json!("Hel")),
        ("u", "1", json!("hi")),
        ("r", &session.resume_token(Head::new(4)), json!("Hello")),
    ] {
        let message = at(id, place).await.expect(200);
        assert_eq!(message["content"][0]["text"], text, "{id} at {place}");
    }
    assert_eq!(at("r", "6").await.expect(200), now);
    assert_eq!(at("r", "2").await.expect(200)["content"], json!([]));
    let early = at("r", "1").await.expect(404);
    assert_eq!(early["error"]["type"], "not_begun");
    at("r", "0").await.expect(404);
    at("none", "3").await.expect(404);
    at("r", "x").await.expect(400);
    at("r", "-1").await.expect(400);
    at("r", "OTHER.3").await.expect(410);

    server.trim().await;
    let gone = at("r", "4").await.expect(410)["error"].to_string();
    assert!(gone.contains("trimmed") && gone.contains("the earliest event is 7"), "{gone}");
    assert_eq!(at("r", "7").await.expect(200), now);
    assert_eq!(server.get("/v1/sessions/s/messages/r").await.expect(200), now);
    assert_eq!(at("open", "8").await.expect(200)["content"][0]["text"], "");
}

/// Loads the history as a client does, and what it needs to go on.
async fn load(server: &Server) -> (Folder, u64) {
    let (mut pages, mut cursors, mut last) = (Vec::new(), json!({}), None);
    let mut path = "/v1/sessions/s/messages?agents=all&limit=3".to_owned();
    loop {
        let page = server.get(&path).await.expect(200);
        if last.is_none() {
            cursors = page["cursors"].clone();
            let token = page["last_event_id"].as_str().unwrap().to_owned();
            last = Some(token.split_once('.').unwrap().1.parse().unwrap());
        }
        pages.push(page["messages"].as_array().unwrap().clone());
        let Some(next) = page["next_before"].as_str() else { break };
        path = format!("/v1/sessions/s/messages?agents=all&limit=3&before={next}");
    }
    let messages = pages.into_iter().rev().flatten().map(|message| {
        let msg = Msg::from_json(&message.to_string()).unwrap();
        match cursors.get(msg.id()) {
            Some(cursor) => {
                let cursor: FoldCursor = serde_json::from_value(cursor.clone()).unwrap();
                msg.with_cursor(cursor)
            }
            None => msg,
        }
    });
    (messages.collect(), last.unwrap())
}

/// All that the server has, sorted by id: a page that is loaded early shows open ones early.
fn sorted(messages: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut messages: Vec<Value> = messages.collect();
    messages.sort_by_key(|message| message["id"].as_str().unwrap().to_owned());
    messages
}

async fn push(session: &Arc<Session>, events: &[Event<'static>]) {
    let change = |tx: &mut turnwire_log::Transaction<'_>| {
        for event in events {
            tx.push(&mut event.clone(), None).unwrap();
        }
        Ok::<_, turnwire_log::Error>(())
    };
    session.transact(&[], change).await.unwrap();
}

/// Replies, messages between them, and some that are taken back.
fn events(rng: &mut Rng) -> Vec<Event<'static>> {
    let (mut events, _) = stream::random_replies(rng);
    for n in 0..rng.usize(..9) {
        let at = rng.usize(..=events.len());
        events.insert(
            at,
            Event::from_json(&user_message(&format!("u{n}"), "hi")).unwrap().into_owned(),
        );
    }
    if let Some(end) = events.iter().position(|event| event.kind.type_name() == "REPLY_END")
        && one_in(rng, 2)
    {
        let message_ids = vec![events[end].reply_id.to_string()];
        let mut event = Event::new("", Supersede { message_ids });
        event.id = "supersede".into();
        events.insert(rng.usize(end + 1..=events.len()), event);
    }
    events
}

#[test]
fn history_and_then_the_events_behind_it_are_what_the_server_has() {
    check_property("history_and_then_the_events", 150, |rng| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let server = Server::new();
            let session = server.make("s").await;
            let mut left = events(rng);
            let mut loaded = Vec::new();
            while !left.is_empty() {
                let count = rng.usize(1..=left.len().min(9));
                let some: Vec<_> = left.drain(..count).collect();
                // Some load while the session changes, some while it rests.
                if one_in(rng, 2) {
                    let session = session.clone();
                    let pushing = tokio::spawn(async move {
                        for event in some {
                            push(&session, &[event]).await;
                        }
                    });
                    loaded.push(load(&server).await);
                    pushing.await.unwrap();
                } else {
                    push(&session, &some).await;
                }
                if one_in(rng, 4) {
                    loaded.push(load(&server).await);
                }
            }
            let page = server.get("/v1/sessions/s/messages?agents=all&limit=500").await.expect(200);
            let expected = sorted(page["messages"].as_array().unwrap().iter().cloned());
            loaded.push(load(&server).await);
            for (mut folder, last) in loaded {
                let from = Seq::new(last + 1).unwrap();
                for lines in session.read_events(from, usize::MAX).await.unwrap() {
                    for (seq, line) in lines.iter() {
                        folder.push(&Session::parse_event(seq, line).unwrap()).unwrap();
                    }
                }
                let json = |msg: &Msg| serde_json::from_str(&msg.to_json()).unwrap();
                assert_eq!(sorted(folder.history().map(json)), expected, "loaded at {last}");
            }
        });
    });
}
