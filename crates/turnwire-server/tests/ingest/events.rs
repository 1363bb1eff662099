//! The forms of a request body; and that all of it is stored, or nothing.

use crate::harness::{Server, end, event, lines, reply, start, text};
use std::fmt::Write as _;
use turnwire_core::{Event, Head};
use turnwire_wires::{EncoderOptions, Frames, Wire};

#[tokio::test]
async fn the_bytes_that_were_sent_are_the_bytes_that_are_stored() {
    let server = Server::new().await;
    let session = server.session("s").await;
    // Odd spacing, a needless escape, an unknown field.
    let mut sent = reply("r");
    sent[1] = sent[1].replace(':', " : ");
    sent[2] = sent[2].replace("\"delta\":\"Hello\"", r#""delta":"Hell\u006f","mood":[1, 2]"#);
    let answer = server.publish("s", "p.1", &sent.join("\n")).await;
    answer.assert_stored(5, 0);
    assert_eq!(answer.json["last_event_id"], session.resume_token(Head::new(5)));
    assert!(answer.json.get("skipped").is_none());
    assert_eq!(lines(&session).await, sent);
    let message = session.find_message("r").await.unwrap().unwrap();
    assert_eq!(message.text, "Hello");
}

#[tokio::test]
async fn a_whole_request_sent_again_stores_nothing() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let body = reply("r").join("\n");
    server.publish("s", "p.1", &body).await.assert_stored(5, 0);
    let again = server.publish("s", "p.1", &body).await;
    again.assert_stored(0, 5);
    assert_eq!(again.json["last_event_id"], session.resume_token(Head::new(5)));
    assert_eq!(lines(&session).await.len(), 5);
    assert!(server.app.metrics.text().contains("turnwire_events_stored_total 5\n"));
    assert!(server.app.metrics.text().contains("turnwire_events_repeated_total 5\n"));
}

#[tokio::test]
async fn one_event_that_does_not_fit_is_named_and_nothing_is_stored() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut body = reply("r");
    body[3] = event("x", "r", r#""type":"TEXT_BLOCK_DELTA","block_id":"other","delta":"?""#);
    let answer = server.publish("s", "p.1", &body.join("\n\n")).await;
    answer.assert_error(422, "refused", &["event 3", "line 7", "TEXT_BLOCK_DELTA", "UnknownBlock"]);
    assert_eq!(session.head_state().head.get(), 0);
    assert_eq!(session.snapshot().await.unwrap().open.len(), 0);
    // A refused event may be sent again when it is corrected.
    server.publish("s", "p.1", &reply("r").join("\n")).await.assert_stored(5, 0);
}

#[tokio::test]
async fn tolerant_leaves_out_what_does_not_fit_and_reports_it() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut body = reply("r");
    body.insert(1, event("x", "r", r#""type":"TEXT_BLOCK_END","block_id":"other""#));
    body.push(r#"{"type":"RESET","id":"z"}"#.to_owned());
    let path = "/v1/sessions/s/events?tolerant=true";
    let producer = "turnwire-producer: p.1\r\n";
    let answer = server.post(path, producer, body.join("\n").as_bytes()).await;
    answer.assert_stored(5, 0);
    let skipped = answer.json["skipped"].as_array().unwrap();
    assert_eq!((&skipped[0]["at"], &skipped[0]["type"]), (&1.into(), &"TEXT_BLOCK_END".into()));
    assert!(skipped[0]["message"].as_str().unwrap().starts_with("UnknownBlock"));
    assert_eq!((&skipped[1]["at"], &skipped[1]["type"]), (&6.into(), &"RESET".into()));
    assert_eq!(lines(&session).await, reply("r"));
    // A line that is not an event is an error in both modes.
    body[2] = "nonsense".to_owned();
    let answer = server.post(path, producer, body.join("\n").as_bytes()).await;
    answer.assert_error(400, "not_json", &["event 2", "line 3"]);
}

#[tokio::test]
async fn a_list_lines_and_server_sent_events_are_the_same() {
    let server = Server::new().await;
    let pretty: Vec<serde_json::Value> =
        reply("r").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut sse = String::from(": hello\n\n");
    for line in reply("r") {
        write!(sse, "id: e.1\ndata: {line}\n\n").unwrap();
    }
    let bodies = [
        ("list", format!("[{}]", reply("r").join(","))),
        ("pretty", serde_json::to_string_pretty(&pretty).unwrap()),
        ("crlf", reply("r").join("\r\n")),
        ("cr", reply("r").join("\r")),
        ("bom", format!("\u{feff}{}\n", reply("r").join("\n"))),
        ("spaces", format!("\n \t{}  \n\n", reply("r").join("  \n\n "))),
        ("sse", sse),
    ];
    for (name, body) in bodies {
        let session = server.session(name).await;
        server.publish(name, "p.1", &body).await.assert_stored(5, 0);
        let lines = lines(&session).await;
        assert!(lines.iter().all(|line| !line.contains(['\n', '\r'])), "{name}");
        let message = session.find_message("r").await.unwrap().unwrap();
        assert_eq!((&*message.text, message.last.get()), ("Hello", 5), "{name}");
        server.publish(name, "p.1", &body).await.assert_stored(0, 5);
    }
}

#[tokio::test]
async fn one_event_may_be_written_over_several_lines() {
    let server = Server::new().await;
    let pretty = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        serde_json::to_string_pretty(&value).unwrap()
    };
    for wire in ["turnwire", "agentscope", "agentscope-java"] {
        let session = server.session(wire).await;
        let path = format!("/v1/sessions/{wire}/events?wire={wire}");
        let event = match wire {
            "agentscope-java" => {
                r#"{"type":"AGENT_START","id":"r-s","createdAt":"2026-01-01T00:00:00Z",
                    "replyId":"r","sessionId":"s","name":"friday","role":"assistant"}"#
            }
            _ => &start("r"),
        };
        let body = format!("\n{}\r\n", pretty(event).replace('\n', "\r\n"));
        let producer = "turnwire-producer: p.1\r\n";
        server.post(&path, producer, body.as_bytes()).await.assert_stored(1, 0);
        server.post(&path, producer, body.as_bytes()).await.assert_stored(0, 1);
        let lines = lines(&session).await;
        assert!(lines.len() == 1 && !lines[0].contains(['\n', '\r']), "{wire}: {lines:?}");
    }
    // Errors are the same as before.
    server.session("s").await;
    let publish = async |body: &str| server.publish("s", "p.1", body).await;
    publish("{\n  \"id\": \"x\"\n}").await.assert_error(
        422,
        "not_an_event",
        &["event 0", "line 1"],
    );
    publish("{\n  \"id\": \"x\"").await.assert_error(400, "not_json", &["event 0", "line 1"]);
    let two = format!("{}\n{}", pretty(&start("r")), pretty(&end("r")));
    publish(&two).await.assert_error(400, "not_json", &["event 0", "line 1", "is not JSON"]);
    let second = format!("{}\n{{\n}}", start("r"));
    publish(&second).await.assert_error(400, "not_json", &["event 1", "line 2"]);
}

#[tokio::test]
async fn a_problem_in_a_pretty_list_has_its_line() {
    let server = Server::new().await;
    let body = format!("[\n  {},\n  {{\n    \"id\": \"x\"\n  }}\n]", start("r"));
    server.session("s").await;
    server.publish("s", "p.1", &body).await.assert_error(
        422,
        "not_an_event",
        &["event 1", "line 3"],
    );
}

#[tokio::test]
async fn a_place_that_an_event_brings_is_replaced() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let brought = start("r").replace("{\"id\"", "{\"seq\":77,\"seq_from\":70,\"id\"");
    server.publish("s", "p.1", &brought).await.assert_stored(1, 0);
    let lines = lines(&session).await;
    assert!(!lines[0].contains("seq"), "{}", lines[0]);
    assert_eq!(session.head_state().head.get(), 1);
}

#[tokio::test]
async fn sixty_four_events_are_one_request() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut body = vec![start("r")];
    for n in 0..20 {
        body.extend(text("r", &format!("w{n}")));
    }
    body.extend([
        event("m1", "r", r#""type":"MODEL_CALL_START""#),
        event("m2", "r", r#""type":"MODEL_CALL_END""#),
        end("r"),
    ]);
    assert_eq!(body.len(), 64);
    server.publish("s", "p.1", &body.join("\n")).await.assert_stored(64, 0);
    assert_eq!(lines(&session).await, body);
}

#[tokio::test]
async fn recordings_in_older_names_are_read() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let old = [
        r#"{"id":"1","type":"RUN_STARTED","replyId":"r","createdAt":"2026-01-01","name":"friday"}"#,
        r#"{"id":"2","type":"TEXT_BLOCK_START","replyId":"r","blockId":"b"}"#,
        r#"{"id":"3","type":"TEXT_BLOCK_DELTA","replyId":"r","blockId":"b","delta":"Old"}"#,
        r#"{"id":"4","type":"RUN_FINISHED","replyId":"r"}"#,
    ];
    server.publish("s", "p.1", &old.join("\n")).await.assert_stored(4, 0);
    assert_eq!(session.find_message("r").await.unwrap().unwrap().text, "Old");
    // The same as a pretty-printed list.
    let values: Vec<serde_json::Value> =
        old.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let pretty = serde_json::to_string_pretty(&values).unwrap();
    server.publish("s", "p.1", &pretty).await.assert_stored(0, 4);
}

#[tokio::test]
async fn what_nobody_knows_is_kept_as_it_is() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let unknown = r#"{"id":"1","type":"SOMETHING_NEW","deep":{"a":[1,2.50]}}"#;
    server.publish("s", "p.1", unknown).await.assert_stored(1, 0);
    server.publish("s", "p.1", unknown).await.assert_stored(0, 1);
    assert_eq!(lines(&session).await, [unknown]);
}

#[tokio::test]
async fn whole_messages_come_in_once() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let message = r#"{"id":"e1","type":"MESSAGE","message":{"id":"u1","name":"alice","role":"user","content":"hi"}}"#;
    server.publish("s", "p.1", message).await.assert_stored(1, 0);
    server.publish("s", "p.1", message).await.assert_stored(0, 1);
    let other = message.replace("e1", "e2");
    server.publish("s", "p.1", &other).await.assert_error(422, "refused", &["MESSAGE", "u1"]);
    assert_eq!(session.find_message("u1").await.unwrap().unwrap().text, "hi");
    let supersede = r#"{"id":"e3","type":"SUPERSEDE","message_ids":["u1"]}"#;
    server.publish("s", "p.1", supersede).await.assert_stored(1, 0);
    assert!(session.find_message("u1").await.unwrap().unwrap().superseded);
}

#[tokio::test]
async fn agentscopes_own_stream_becomes_canonical() {
    let server = Server::new().await;
    let session = server.session("s").await;
    // Our own events are `CUSTOM` on that wire.
    let message = r#"{"id":"m","type":"MESSAGE","message":{"id":"u","name":"alice","role":"user","content":"hi"}}"#;
    let wire = Wire::named("agentscope").unwrap();
    let mut encoder = wire.encoder(&EncoderOptions::default()).unwrap();
    let mut frames = Frames::default();
    for line in [&start("r"), message, &end("r")] {
        encoder.encode(&Event::from_json(line).unwrap(), &mut frames);
    }
    let body: Vec<&str> = frames.iter().map(|(_, text)| text).collect();
    assert!(body[1].contains("CUSTOM"), "{}", body[1]);
    let body = body.join("\n");
    let path = "/v1/sessions/s/events?wire=agentscope";
    let producer = "turnwire-producer: p.1\r\n";
    server.post(path, producer, body.as_bytes()).await.assert_stored(3, 0);
    server.post(path, producer, body.as_bytes()).await.assert_stored(0, 3);
    assert!(session.find_message("r").await.unwrap().is_some());
    assert_eq!(session.find_message("u").await.unwrap().unwrap().text, "hi");
}

#[tokio::test]
async fn wires_without_ids_are_sent_elsewhere() {
    let server = Server::new().await;
    server.session("s").await;
    let post = async |wire: &str| {
        let path = format!("/v1/sessions/s/events?wire={wire}");
        server.post(&path, "turnwire-producer: p.1\r\n", b"{}").await
    };
    let answer = post("openai-chat").await;
    answer.assert_error(400, "wrong_wire", &["openai-chat", "no ids"]);
    assert!(answer.json["error"]["hint"].as_str().unwrap().contains("/replies"));
    post("ag-ui").await.assert_error(400, "wrong_wire", &["no decoder"]);
    let answer = post("nothing").await;
    answer.assert_error(400, "unknown_wire", &[]);
    assert!(answer.json["error"]["hint"].as_str().unwrap().contains("agentscope-java"));
}

#[tokio::test]
async fn events_without_ids_are_refused_because_a_retry_would_double_them() {
    let server = Server::new().await;
    server.session("s").await;
    let body = r#"{"type":"REPLY_START","reply_id":"r"}"#;
    server.publish("s", "p.1", body).await.assert_error(422, "no_id", &["event 0", "REPLY_START"]);
}

#[tokio::test]
async fn only_a_session_that_is_there_takes_events() {
    let server = Server::new().await;
    server.publish("nowhere", "p.1", &start("r")).await.assert_error(404, "not_found", &[]);
    server.publish("a%20b", "p.1", &start("r")).await.assert_error(400, "bad_request", &[]);
}
