//! Who may publish, and when.

use crate::harness::{Server, end, event, lines, reply, start, text};
use std::sync::Arc;
use turnwire_core::Event;
use turnwire_server::Scope;
use turnwire_server::config::Config;

#[tokio::test]
async fn a_lower_fence_is_refused_and_a_higher_one_takes_over() {
    let server = Server::new().await;
    let session = server.session("s").await;
    server.publish("s", "p.5", &start("r")).await.assert_stored(1, 0);
    server.publish("s", "p.5", &text("r", "one").join("\n")).await.assert_stored(3, 0);
    // A later run continues the same reply.
    server.publish("s", "p.6", &text("r", "two").join("\n")).await.assert_stored(3, 0);
    let late = server.publish("s", "p.5", &end("r")).await;
    late.assert_error(409, "fenced", &["fence 6", "higher than 5"]);
    // Also if all events are repeats.
    server.publish("s", "p.5", &start("r")).await.assert_error(409, "fenced", &[]);
    server.publish("s", "p.6", &end("r")).await.assert_stored(1, 0);
    // And if no reply is open any more.
    server.publish("s", "p.5", &start("r2")).await.assert_error(409, "fenced", &[]);
    assert_eq!(lines(&session).await.len(), 8);
}

#[tokio::test]
async fn a_fence_is_known_after_the_session_was_let_go() {
    let server = Server::new().await;
    drop(server.session("s").await);
    server.publish("s", "p.5", &start("r")).await.assert_stored(1, 0);
    while server.app.log.loaded_count() > 0 {
        server.app.log.evict_idle().await.unwrap();
        tokio::task::yield_now().await;
    }
    server.publish("s", "p.4", &end("r")).await.assert_error(409, "fenced", &[]);
    // The open reply still belongs to p.
    server.publish("s", "q.1", &start("r2")).await.assert_error(409, "busy", &["producer p"]);
    server.publish("s", "p.5", &end("r")).await.assert_stored(1, 0);
    server.publish("s", "q.1", &start("r2")).await.assert_stored(1, 0);
}

#[tokio::test]
async fn another_producer_waits_until_nothing_is_open() {
    let server = Server::new().await;
    server.session("s").await;
    server.publish("s", "p.1", &start("r")).await.assert_stored(1, 0);
    server.publish("s", "q.9", &start("r2")).await.assert_error(409, "busy", &["producer p"]);
    server.publish("s", "p.1", &end("r")).await.assert_stored(1, 0);
    server.publish("s", "q.9", &start("r2")).await.assert_stored(1, 0);
    server.publish("s", "p.1", &start("r3")).await.assert_error(409, "busy", &["producer q"]);
    server
        .publish("s", "p.1", &event("c", "", r#""type":"CUSTOM","name":"x""#))
        .await
        .assert_error(409, "busy", &[]);
}

#[tokio::test]
async fn a_fence_is_known_after_others_have_published() {
    let server = Server::new().await;
    server.session("s").await;
    server.publish("s", "p.5", &reply("r0").join("\n")).await.assert_stored(5, 0);
    for n in 1..10 {
        let body = reply(&format!("r{n}")).join("\n");
        server.publish("s", &format!("q{n}.1"), &body).await.assert_stored(5, 0);
    }
    server.publish("s", "p.4", &start("late")).await.assert_error(409, "fenced", &["fence 5"]);
    server.publish("s", "p.5", &start("right")).await.assert_stored(1, 0);
}

#[tokio::test]
async fn nobody_writes_into_a_reply_of_the_sessions_own_agent() {
    let server = Server::new().await;
    let session = server.session("s").await;
    // The producer was here before.
    server.publish("s", "p.1", &reply("r0").join("\n")).await.assert_stored(5, 0);
    let begin = start("own");
    session
        .transact(&["own"], |tx| {
            let mut event = Event::from_json(&begin).unwrap();
            tx.push(&mut event, None).map_err(|why| turnwire_log::Error::Refused { at: 0, why })
        })
        .await
        .unwrap();
    let delta = text("own", "mine").join("\n");
    server.publish("s", "p.1", &delta).await.assert_error(409, "busy", &["own agent"]);
    server.publish("s", "p.2", &reply("r1").join("\n")).await.assert_error(
        409,
        "busy",
        &["own agent"],
    );
    let finish = end("own");
    session
        .transact(&["own"], |tx| {
            let mut event = Event::from_json(&finish).unwrap();
            tx.push(&mut event, None).map_err(|why| turnwire_log::Error::Refused { at: 0, why })
        })
        .await
        .unwrap();
    server.publish("s", "p.2", &reply("r1").join("\n")).await.assert_stored(5, 0);
}

#[tokio::test]
async fn of_two_producers_that_race_one_gets_the_session() {
    let server = Arc::new(Server::new().await);
    for round in 0..50 {
        let id = format!("s{round}");
        let session = server.session(&id).await;
        let tasks = ["p", "q", "r"].map(|name| {
            let (server, id) = (server.clone(), id.clone());
            tokio::spawn(async move {
                let mut body = vec![start(name)];
                body.extend(text(name, "won"));
                server.publish(&id, &format!("{name}.1"), &body.join("\n")).await.status
            })
        });
        let mut statuses = Vec::new();
        for task in tasks {
            statuses.push(task.await.unwrap());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409, 409]);
        assert_eq!(session.snapshot().await.unwrap().open.len(), 1);
    }
}

#[tokio::test]
async fn of_two_runs_that_race_the_earlier_never_writes_behind_the_later() {
    let server = Arc::new(Server::new().await);
    for round in 0..50 {
        let id = format!("s{round}");
        let session = server.session(&id).await;
        server.publish(&id, "p.1", &start("r")).await.assert_stored(1, 0);
        let run = |fence: u32| {
            let (server, id) = (server.clone(), id.clone());
            tokio::spawn(async move {
                for n in 0..5 {
                    let body = text("r", &format!("f{fence}n{n}")).join("\n");
                    let answer = server.publish(&id, &format!("p.{fence}"), &body).await;
                    if answer.status != 200 {
                        answer.assert_error(409, "fenced", &[]);
                        break;
                    }
                }
            })
        };
        let (one, two) = (run(1), run(2));
        one.await.unwrap();
        two.await.unwrap();
        let lines = lines(&session).await;
        let first = lines.iter().position(|line| line.contains("f2n0")).unwrap();
        assert!(lines[first..].iter().all(|line| !line.contains("\"f1n")), "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| line.contains("f2n")).count(), 15);
    }
}

#[tokio::test]
async fn a_producer_cannot_confirm() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut body = vec![start("r")];
    body.push(event(
        "t",
        "r",
        r#""type":"TOOL_CALL_START","tool_call_id":"c","tool_call_name":"pay""#,
    ));
    let call = r#"{"type":"tool_call","id":"c","name":"pay","input":"{}"}"#;
    body.push(event("q", "r", &format!(r#""type":"REQUIRE_USER_CONFIRM","tool_calls":[{call}]"#)));
    server.publish("s", "p.1", &body.join("\n")).await.assert_stored(3, 0);
    let yes = event(
        "y",
        "r",
        &format!(
            r#""type":"USER_CONFIRM_RESULT","confirm_results":[{{"confirmed":true,"tool_call":{call}}}]"#
        ),
    );
    server.publish("s", "p.1", &yes).await.assert_error(403, "forbidden", &["USER_CONFIRM_RESULT"]);
    assert_eq!(session.head_state().head.get(), 3);
    // Without the header it is a user's answer, and counts once.
    let path = "/v1/sessions/s/events";
    server.post(path, "", yes.as_bytes()).await.assert_stored(1, 0);
    server.post(path, "", yes.as_bytes()).await.assert_stored(0, 1);
    let no = yes.replace("\"id\":\"y\"", "\"id\":\"n\"").replace("true", "false");
    assert_eq!(server.post(path, "", no.as_bytes()).await.status, 409);
    // The producer continues after the answer.
    server.publish("s", "p.1", &end("r")).await.assert_stored(1, 0);
}

#[tokio::test]
async fn without_a_producer_only_answers_are_taken() {
    let server = Server::new().await;
    let session = server.session("s").await;
    server.publish("s", "p.1", &start("r")).await.assert_stored(1, 0);
    let answers = [
        event("1", "r", r#""type":"USER_INTERRUPT""#),
        event("2", "r", r#""type":"HINT_BLOCK","block_id":"h","hint":"psst""#),
        event("3", "", r#""type":"CUSTOM","name":"x""#),
    ];
    let path = "/v1/sessions/s/events";
    server.post(path, "", answers.join("\n").as_bytes()).await.assert_stored(3, 0);
    for other in [start("q"), end("r"), r#"{"id":"1","type":"NEW"}"#.to_owned()] {
        let body = format!("{}\n{other}", answers[2]);
        let answer = server.post(path, "", body.as_bytes()).await;
        answer.assert_error(422, "no_producer", &[]);
        assert!(answer.json["error"]["hint"].as_str().unwrap().contains("Turnwire-Producer"));
    }
    assert_eq!(session.head_state().head.get(), 4);
}

#[tokio::test]
async fn publishing_needs_its_scope() {
    let server = Server::with(Config::default(), &[Scope::Read, Scope::Chat]).await;
    server.session("s").await;
    server.publish("s", "p.1", &start("r")).await.assert_error(403, "forbidden", &["publish"]);
}

#[tokio::test]
async fn a_hint_needs_the_scope_to_publish_and_one_that_starts_a_reply_that_to_chat() {
    let hint = r#"{"type":"HINT_BLOCK","id":"h","hint":"psst"}"#.as_bytes();
    let path = "/v1/sessions/s/events";
    let server = Server::with(Config::default(), &[Scope::Read, Scope::Chat, Scope::Approve]).await;
    let session = server.session("s").await;
    server.post(path, "", hint).await.assert_error(403, "forbidden", &["publish"]);
    assert_eq!(session.head_state().head.get(), 0);
    let server = Server::with(Config::default(), &[Scope::Publish]).await;
    let session = server.session("s").await;
    let trigger = format!("{path}?reply=true");
    server.post(&trigger, "", hint).await.assert_error(403, "forbidden", &["chat"]);
    assert_eq!(session.head_state().head.get(), 0);
    server.post(path, "", hint).await.assert_stored(1, 0);
    // A producer's hint belongs to its reply.
    let bare = r#"{"type":"HINT_BLOCK","id":"i","hint":"psst"}"#;
    server.publish("s", "p.1", bare).await.assert_error(422, "refused", &["reply_id"]);
    assert_eq!(session.head_state().head.get(), 1);
}

#[tokio::test]
async fn a_header_that_is_no_producer_is_named() {
    let server = Server::new().await;
    server.session("s").await;
    for bad in ["p", "p.", ".1", "p.x", "p q.1", "p.1, q.2"] {
        server.publish("s", bad, &start("r")).await.assert_error(
            400,
            "bad_request",
            &["Turnwire-Producer"],
        );
    }
    let twice = "turnwire-producer: p.1\r\nturnwire-producer: p.2\r\n";
    let answer = server.post("/v1/sessions/s/events", twice, start("r").as_bytes()).await;
    answer.assert_error(400, "bad_request", &["Turnwire-Producer"]);
}
