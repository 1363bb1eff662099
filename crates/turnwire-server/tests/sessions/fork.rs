//! Forks.

use crate::harness::{Server, asking, publish, reply, user_message};
use serde_json::{Value, json};
use turnwire_core::{Fields, Seq};
use turnwire_log::Session;
use turnwire_log::store::{EventLines, NewSession, SessionKey};

async fn text(session: &Session) -> Vec<String> {
    let from = session.first_seq().await.unwrap();
    let rows = session.read_events(from, usize::MAX).await.unwrap();
    let lines = rows.iter().flat_map(EventLines::iter);
    lines.map(|(_, line)| String::from_utf8(line.to_vec()).unwrap()).collect()
}

async fn messages(server: &Server, session: &str) -> Value {
    let path = format!("/v1/sessions/{session}/messages?agents=all&limit=500");
    server.get(&path).await.expect(200)["messages"].clone()
}

#[tokio::test]
async fn a_fork_has_the_bytes_up_to_its_point() {
    let server = Server::new();
    let session = server.make("s").await;
    publish(&session, &[user_message("u", "hi")]).await;
    publish(&session, &reply("r", "Hello")).await;
    publish(&session, &reply("later", "x")).await;
    server.call("PATCH", "/v1/sessions/s", r#"{"title":"T","metadata":{"a":1}}"#).await.expect(200);
    let fork = server.post("/v1/sessions/s/fork?at=6", r#"{"id":"f"}"#).await.expect(201);
    assert_eq!(fork["metadata"], json!({"a": 1, "forked_from": {"session": "s", "seq": 6}}));
    assert_eq!((&fork["title"], &fork["last_seq"]), (&json!("T"), &json!(6)));
    assert_eq!((&fork["agent"], &fork["status"]), (&json!("external"), &json!("idle")));
    assert_ne!(fork["epoch"], session.epoch());
    assert_eq!(text(&*server.session("f").await).await, text(&session).await[..6]);
    let all = messages(&server, "s").await;
    assert_eq!(messages(&server, "f").await, json!(all.as_array().unwrap()[..2]));
    // The end, where no point is given; nothing, before the first event.
    assert_eq!(server.post("/v1/sessions/s/fork", "").await.expect(201)["last_seq"], 11);
    let none = server.post("/v1/sessions/s/fork?at=0", r#"{"title":"N"}"#).await.expect(201);
    assert_eq!((&none["last_seq"], &none["title"]), (&json!(0), &json!("N")));
    // Each goes its own way.
    publish(&server.session("f").await, &reply("later", "other")).await;
    assert_eq!(messages(&server, "s").await, all);
}

#[tokio::test]
async fn a_fork_in_the_middle_of_a_reply_ends_it_there() {
    let server = Server::new();
    let session = server.make("s").await;
    let sub = |line: &String| line.replacen('{', r#"{"agent_path":"main/sub","#, 1);
    publish(&session, &asking("r")).await;
    publish(&session, &reply("sub", "half").iter().map(sub).collect::<Vec<_>>()[..3]).await;
    let fork = server.post("/v1/sessions/s/fork", r#"{"id":"f"}"#).await.expect(201);
    assert_eq!((&fork["status"], &fork["pending"]), (&json!("idle"), &json!([])));
    let all = messages(&server, "f").await;
    let reasons = all.as_array().unwrap().iter().map(|message| &message["finished_reason"]);
    assert_eq!(reasons.collect::<Vec<_>>(), ["interrupted", "interrupted"]);
    let result = all[0]["content"].as_array().unwrap().last().unwrap();
    assert_eq!((&result["type"], &result["state"]), (&json!("tool_result"), &json!("interrupted")));
    // What belongs to the sub-agent is still known as its own.
    let own = server.get("/v1/sessions/f/messages").await.expect(200);
    assert_eq!(own["messages"].as_array().unwrap().len(), 1);
    let events = text(&*server.session("f").await).await;
    assert!(events[7].contains(r#""agent_path":"main/sub""#), "{}", events[7]);
    // The original still waits.
    assert_eq!(server.get("/v1/sessions/s").await.expect(200)["status"], "waiting");
}

#[tokio::test]
async fn messages_whose_events_are_gone_come_whole() {
    let server = Server::new();
    let session = server.make("s").await;
    let sub = |line: &String| line.replacen('{', r#"{"agent_path":"main/sub","#, 1);
    publish(&session, &[user_message("u", "hi")]).await;
    publish(&session, &reply("old", "wrong")).await;
    let supersede = r#"{"id":"x","type":"SUPERSEDE","message_ids":["old"]}"#;
    publish(&session, &[supersede.to_owned()]).await;
    publish(&session, &reply("r", "Hello")).await;
    publish(&session, &reply("sub", "there").iter().map(sub).collect::<Vec<_>>()).await;
    server.trim().await;
    publish(&session, &reply("kept", "rest")).await;
    publish(&session, &[r#"{"id":"y","type":"SUPERSEDE","message_ids":["r"]}"#.to_owned()]).await;
    let kept = session.first_seq().await.unwrap();
    assert_eq!(kept, Seq::new(18).unwrap());

    server.post("/v1/sessions/s/fork", r#"{"id":"f"}"#).await.expect(201);
    assert_eq!(messages(&server, "f").await, messages(&server, "s").await);
    let own = server.get("/v1/sessions/f/messages").await.expect(200);
    assert_eq!(own["messages"], server.get("/v1/sessions/s/messages").await.json()["messages"]);
    // At a point before it was taken back, a message still counts.
    server.post("/v1/sessions/s/fork?at=22", r#"{"id":"g"}"#).await.expect(201);
    let ids: Vec<Value> =
        messages(&server, "g").await.as_array().unwrap().iter().map(|m| m["id"].clone()).collect();
    assert_eq!(ids, ["u", "r", "sub", "kept"]);

    let gone = server.post("/v1/sessions/s/fork?at=16", "").await.expect(410);
    assert_eq!(gone["error"]["type"], "trimmed");
    server.post("/v1/sessions/s/fork?at=17", "").await.expect(201);
}

#[tokio::test]
async fn a_long_log_is_copied_in_pieces() {
    let server = Server::new();
    let session = server.make("s").await;
    let text = "x".repeat(100_000);
    for n in 0..40 {
        publish(&session, &reply(&format!("r{n}"), &text)).await;
    }
    let fork = server.post("/v1/sessions/s/fork?at=198", r#"{"id":"f"}"#).await.expect(201);
    assert_eq!(fork["last_seq"], 200);
    let (f, s) = (messages(&server, "f").await, messages(&server, "s").await);
    assert_eq!(f.as_array().unwrap()[..39], s.as_array().unwrap()[..39]);
}

#[tokio::test]
async fn a_fork_that_a_crash_left_in_the_middle_is_gone_after_the_start() {
    let server = Server::new();
    let session = server.make("s").await;
    publish(&session, &reply("r", "x")).await;
    server.post("/v1/sessions/s/fork", r#"{"id":"whole"}"#).await.expect(201);
    for agent in ["demo", "external"] {
        let new = NewSession {
            key: SessionKey::new(session.key().tenant.clone(), agent),
            agent: agent.to_owned(),
            title: String::new(),
            metadata: Fields::default(),
            now_ms: 0,
        };
        server.app.log.create_fork(new).await.unwrap();
        server.get(&format!("/v1/sessions/{agent}")).await.expect(200);
    }
    server.app.turns.recover().await.unwrap();
    server.get("/v1/sessions/whole").await.expect(200);
    for agent in ["demo", "external"] {
        server.get(&format!("/v1/sessions/{agent}")).await.expect(404);
    }
}

#[tokio::test]
async fn a_fork_does_not_take_the_name_of_another() {
    let server = Server::new();
    publish(&server.make("s").await, &reply("r", "x")).await;
    publish(&server.make("t").await, &[user_message("u", "x")]).await;
    let before = server.get("/v1/sessions/t").await.expect(200);
    server.post("/v1/sessions/s/fork", r#"{"id":"t"}"#).await.expect(409);
    server.post("/v1/sessions/s/fork", r#"{"id":"s"}"#).await.expect(409);
    assert_eq!(server.get("/v1/sessions/t").await.expect(200), before);
    for (query, body, status) in [
        ("?at=x", "", 400),
        ("?at=1", r#"{"agent":"demo"}"#, 400),
        ("?at=1", r#"{"id":"a b"}"#, 400),
        ("?at=OTHER.1", "", 410),
    ] {
        server.post(&format!("/v1/sessions/s/fork{query}"), body).await.expect(status);
    }
    let all = server.get("/v1/sessions").await.expect(200);
    assert_eq!(all["sessions"].as_array().unwrap().len(), 2);
}
