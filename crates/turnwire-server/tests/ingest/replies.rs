//! Piped streams: each becomes one reply, and whatever happens to the stream, the reply ends.

use crate::harness::{
    Answer, OpenPipe, Server, end, event, reply, start, text, wait_for_seq, wait_until_idle,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turnwire_core::{Event, Msg};
use turnwire_log::Session;
use turnwire_server::Scope;
use turnwire_server::config::{Config, HumanDuration};
use turnwire_wires::{EncoderOptions, Frames, Wire, sse};

const OPENAI_CHAT: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1767225600,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1767225600,"model":"m","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1767225600,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

"#;

const OPENAI_RESPONSES: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1767225600,"status":"in_progress","model":"m","output":[]}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}

event: response.content_part.added
data: {"type":"response.content_part.added","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hello"}

event: response.output_text.done
data: {"type":"response.output_text.done","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"text":"Hello"}

event: response.content_part.done
data: {"type":"response.content_part.done","sequence_number":5,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hello","annotations":[]}}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":6,"output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello","annotations":[]}]}}

event: response.completed
data: {"type":"response.completed","sequence_number":7,"response":{"id":"resp_1","object":"response","created_at":1767225600,"status":"completed","model":"m","output":[],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}}

"#;

const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

"#;

const GEMINI: &str = r#"data: {"candidates":[{"content":{"parts":[{"text":"Hel"}],"role":"model"},"index":0}],"modelVersion":"m","responseId":"g1"}

data: {"candidates":[{"content":{"parts":[{"text":"lo"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2},"modelVersion":"m","responseId":"g1"}

"#;

const DASHSCOPE: &str = r#"id:1
event:result
:HTTP_STATUS/200
data:{"output":{"choices":[{"message":{"content":"Hel","role":"assistant"},"finish_reason":"null"}]},"usage":{"input_tokens":1,"output_tokens":1},"request_id":"d1"}

id:2
event:result
:HTTP_STATUS/200
data:{"output":{"choices":[{"message":{"content":"lo","role":"assistant"},"finish_reason":"stop"}]},"usage":{"input_tokens":1,"output_tokens":2},"request_id":"d1"}

"#;

const OLLAMA: &str = r#"{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"Hel"},"done":false}
{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"lo"},"done":false}
{"model":"m","created_at":"2026-01-01T00:00:01Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":1,"eval_count":2}
"#;

/// The same reply on a wire with an encoder.
fn encoded_reply(wire: &str) -> String {
    let mut encoder = Wire::named(wire).unwrap().encoder(&EncoderOptions::default()).unwrap();
    let (mut frames, mut body) = (Frames::default(), String::new());
    for line in reply("r") {
        encoder.encode(&Event::from_json(&line).unwrap(), &mut frames);
    }
    encoder.end(&mut frames);
    sse::write(&frames, None, &mut body);
    body
}

async fn pipe(server: &Server, session: &str, query: &str, body: &str) -> Answer {
    server.post(&format!("/v1/sessions/{session}/replies{query}"), "", body.as_bytes()).await
}

async fn message(session: &Session, answer: &Answer) -> Msg {
    assert_eq!(answer.status, 200, "{}", answer.json);
    let id = answer.json["reply_id"].as_str().unwrap();
    let stored = session.find_message(id).await.unwrap().unwrap();
    assert_eq!(answer.json["last_event_id"], session.resume_token(stored.last.into()));
    Msg::from_json(std::str::from_utf8(&stored.json).unwrap()).unwrap()
}

#[tokio::test]
async fn every_wire_with_a_stream_in_becomes_a_reply() {
    let server = Server::new().await;
    let streams = [
        ("openai-chat", OPENAI_CHAT.to_owned(), Some("chatcmpl-1")),
        ("openai-responses", OPENAI_RESPONSES.to_owned(), Some("resp_1")),
        ("anthropic", ANTHROPIC.to_owned(), Some("msg_1")),
        ("gemini", GEMINI.to_owned(), Some("g1")),
        ("dashscope", DASHSCOPE.to_owned(), Some("d1")),
        ("ollama", OLLAMA.to_owned(), None),
        ("turnwire", reply("r").join("\n"), Some("r")),
        ("agentscope", encoded_reply("agentscope"), Some("r")),
        ("agentscope-java", encoded_reply("agentscope-java"), Some("r")),
        ("blocks", encoded_reply("blocks"), Some("r")),
    ];
    let readable = Wire::all().filter(|wire| wire.can_decode()).count();
    assert_eq!(streams.len(), readable, "a wire is missing here");
    for (wire, body, id) in streams {
        let session = server.session(wire).await;
        let answer = pipe(&server, wire, &format!("?wire={wire}"), &body).await;
        let msg = message(&session, &answer).await;
        assert_eq!(msg.text("").as_deref(), Some("Hello"), "{wire}");
        assert_eq!(answer.json["finished_reason"], "completed", "{wire}");
        if let Some(id) = id {
            assert_eq!(msg.id(), id, "{wire}");
        }
        // The same stream with another reply id, split into single bytes.
        let mut piping = OpenPipe::new(
            &server,
            &format!("/v1/sessions/{wire}/replies?wire={wire}&reply_id=again"),
            "",
        )
        .await;
        for at in body.char_indices().map(|(at, _)| at) {
            let rest = &body[at..];
            let len = rest.chars().next().unwrap().len_utf8();
            piping.send(&rest[..len]).await;
        }
        let answer = piping.end().await;
        let again = message(&session, &answer).await;
        assert_eq!((again.id(), again.text("").as_deref()), ("again", Some("Hello")), "{wire}");
        assert_eq!(session.snapshot().await.unwrap().open.len(), 0, "{wire}");
    }
}

#[tokio::test]
async fn a_stream_without_an_id_gets_a_new_one_each_time() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let first = pipe(&server, "s", "?wire=ollama", OLLAMA).await;
    let second = pipe(&server, "s", "?wire=ollama", OLLAMA).await;
    assert_ne!(message(&session, &first).await.id(), message(&session, &second).await.id());
}

#[tokio::test]
async fn a_stream_that_came_before_is_not_stored_again() {
    let server = Server::new().await;
    let session = server.session("s").await;
    pipe(&server, "s", "?wire=anthropic", ANTHROPIC).await;
    let last = session.head_state().head;
    let again = pipe(&server, "s", "?wire=anthropic", ANTHROPIC).await;
    again.assert_error(409, "duplicate", &["msg_1"]);
    let again = pipe(&server, "s", "?wire=anthropic&reply_id=msg_1", ANTHROPIC).await;
    again.assert_error(409, "duplicate", &["msg_1"]);
    assert_eq!(session.head_state().head, last);
}

#[tokio::test]
async fn what_comes_is_stored_as_it_comes() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut piping = OpenPipe::new(&server, "/v1/sessions/s/replies", "").await;
    piping.send(&format!("{}\n", start("r"))).await;
    wait_for_seq(&session, 1).await;
    piping.send(&format!("{}\n", text("r", "one").join("\n"))).await;
    wait_for_seq(&session, 4).await;
    let open = session.snapshot().await.unwrap().open;
    assert_eq!(open[0].msg().text("").as_deref(), Some("one"));
    // No other reply can begin meanwhile.
    pipe(&server, "s", "", &reply("q").join("\n")).await.assert_error(409, "busy", &["pipe-"]);
    server.publish("s", "p.1", &reply("q").join("\n")).await.assert_error(409, "busy", &["pipe-"]);
    piping.send(&end("r")).await;
    let answer = piping.end().await;
    assert_eq!(message(&session, &answer).await.text("").as_deref(), Some("one"));
}

#[tokio::test]
async fn a_body_that_breaks_off_ends_its_reply_as_interrupted() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut piping = OpenPipe::new(&server, "/v1/sessions/s/replies?wire=anthropic", "").await;
    let cut = ANTHROPIC.find("event: content_block_stop").unwrap();
    piping.send(&ANTHROPIC[..cut]).await;
    wait_for_seq(&session, 4).await;
    drop(piping);
    wait_until_idle(&session).await;
    let stored = session.find_message("msg_1").await.unwrap().unwrap();
    let msg = Msg::from_json(std::str::from_utf8(&stored.json).unwrap()).unwrap();
    assert_eq!(msg.finished_reason().unwrap().as_str(), "interrupted");
    assert_eq!(msg.text("").as_deref(), Some("Hello"));
    // Fewer bytes than announced.
    let session = server.session("t").await;
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = "POST /v1/sessions/t/replies HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n";
    AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
    let body = format!("{}\n", start("r"));
    AsyncWriteExt::write_all(&mut stream, body.as_bytes()).await.unwrap();
    wait_for_seq(&session, 1).await;
    drop(stream);
    wait_until_idle(&session).await;
}

#[tokio::test]
async fn a_stream_that_ends_before_its_end_is_not_taken_for_complete() {
    let server = Server::new().await;
    let session = server.session("s").await;
    // The stream of a provider reports it itself.
    let cut = OPENAI_CHAT.find("data: [DONE]").unwrap();
    let cut = OPENAI_CHAT[..cut].rfind("data: ").unwrap();
    let answer = pipe(&server, "s", "?wire=openai-chat", &OPENAI_CHAT[..cut]).await;
    assert_eq!(answer.json["finished_reason"], "truncated", "{}", answer.json);
    message(&session, &answer).await;
    // A canonical stream has no end then: the reply is ended, and its open blocks are closed.
    let mut body = reply("r");
    body.truncate(3);
    body.push(event(
        "c",
        "r",
        r#""type":"TOOL_CALL_START","tool_call_id":"c","tool_call_name":"x""#,
    ));
    let answer = pipe(&server, "s", "", &body.join("\n")).await;
    let msg = message(&session, &answer).await;
    assert_eq!(answer.json["finished_reason"], "interrupted");
    assert_eq!(msg.tool_calls().next().unwrap().1.unwrap().state.as_str(), "interrupted");
}

#[tokio::test]
async fn a_bad_frame_ends_the_reply_with_an_error() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let body = format!("{}\n{}\nnonsense\n{}", start("r"), text("r", "one").join("\n"), end("r"));
    let answer = pipe(&server, "s", "", &body).await;
    answer.assert_error(422, "refused", &["event 4", "line 5"]);
    let stored = session.find_message("r").await.unwrap().unwrap();
    let msg = Msg::from_json(std::str::from_utf8(&stored.json).unwrap()).unwrap();
    assert_eq!(msg.finished_reason().unwrap().as_str(), "error");
    assert!(msg.error().unwrap().message.contains("line 5"), "{:?}", msg.error());
    assert_eq!(msg.text("").as_deref(), Some("one"));
    // An event that does not fit is the same; tolerant mode leaves both out.
    let lost = event("x", "q", r#""type":"TEXT_BLOCK_END","block_id":"none""#);
    let second = start("other");
    let confirm = event("y", "q", r#""type":"USER_CONFIRM_RESULT","confirm_results":[]"#);
    for (bad, why) in [(&lost, "UnknownBlock"), (&second, "one reply"), (&confirm, "confirm")] {
        let id = server.app.log.loaded_count();
        let name = format!("s{id}");
        let session = server.session(&name).await;
        let body = format!("{}\n{bad}\n{}", start("q"), end("q"));
        pipe(&server, &name, "", &body).await.assert_error(422, "refused", &["event 1", why]);
        wait_until_idle(&session).await;
        let body = body.replace("\"q\"", "\"q2\"").replace("\"q-", "\"q2-");
        let answer = pipe(&server, &name, "?tolerant=true", &body).await;
        assert_eq!(answer.json["finished_reason"], "completed", "{}", answer.json);
        assert_eq!(answer.json["skipped"][0]["at"], 1);
    }
}

#[tokio::test]
async fn a_stream_in_which_nothing_begins_leaves_nothing() {
    let server = Server::new().await;
    let session = server.session("s").await;
    pipe(&server, "s", "", "").await.assert_error(400, "bad_request", &["no event"]);
    pipe(&server, "s", "?wire=openai-chat", "nonsense").await.assert_error(
        422,
        "refused",
        &["event 0"],
    );
    pipe(&server, "s", "?wire=ag-ui", "{}").await.assert_error(400, "wrong_wire", &["ag-ui"]);
    pipe(&server, "s", "?wire=no", "{}").await.assert_error(400, "unknown_wire", &[]);
    pipe(&server, "nowhere", "", "{}").await.assert_error(404, "not_found", &[]);
    assert_eq!(session.head_state().head.get(), 0);
}

#[tokio::test]
async fn a_sender_that_falls_silent_is_interrupted() {
    let mut config = Config::default();
    config.producers.silence = HumanDuration(Duration::from_millis(50));
    let server = Server::with(config, &Scope::ALL).await;
    let session = server.session("s").await;
    let mut piping = OpenPipe::new(&server, "/v1/sessions/s/replies", "").await;
    piping.send(&format!("{}\n", start("r"))).await;
    wait_until_idle(&session).await;
    let answer = crate::harness::answer(piping.0).await;
    answer.assert_error(408, "timeout", &[]);
}

#[tokio::test]
async fn a_sender_that_drips_bytes_without_an_event_is_interrupted() {
    for (query, drop) in [
        ("", " "),
        ("", "\n"),
        ("?wire=anthropic", ": still here\n\n"),
        ("?tolerant=true", "nonsense\n"),
        ("?tolerant=true", "{\"type\":\"TEXT_BLOCK_DELTA\",\"id\":\"x\"}\n"),
    ] {
        let mut config = Config::default();
        config.producers.silence = HumanDuration(Duration::from_millis(50));
        let server = Server::with(config, &Scope::ALL).await;
        let session = server.session("s").await;
        let path = format!("/v1/sessions/s/replies{query}");
        let mut piping = OpenPipe::new(&server, &path, "").await;
        if query != "?wire=anthropic" {
            piping.send(&format!("{}\n", start("r"))).await;
            wait_for_seq(&session, 1).await;
        }
        let (mut from, mut to) = piping.0.into_split();
        let dripping = async {
            let chunk = format!("{:x}\r\n{drop}\r\n", drop.len());
            while to.write_all(chunk.as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut received = Vec::new();
        let over = async {
            tokio::select! {
                () = dripping => {}
                _ = from.read_to_end(&mut received) => {}
            }
        };
        tokio::time::timeout(Duration::from_secs(20), over).await.expect("it ends");
        let received = String::from_utf8(received).unwrap();
        assert!(received.starts_with("HTTP/1.1 408"), "{query} {drop:?}: {received}");
        assert_eq!(session.snapshot().await.unwrap().open.len(), 0);
    }
}

#[tokio::test]
async fn an_event_that_never_ends_is_counted_and_refused() {
    let mut config = Config::default();
    config.limits.buffered_per_tenant = turnwire_server::config::ByteSize::kib(64);
    let server = Server::with(config, &Scope::ALL).await;
    let session = server.session("s").await;
    let mut piping = OpenPipe::new(&server, "/v1/sessions/s/replies", "").await;
    piping.send(&format!("{}\n", start("r"))).await;
    wait_for_seq(&session, 1).await;
    let chunk = format!("{:x}\r\n{}\r\n", 4096, "x".repeat(4096));
    for _ in 0..20 {
        // It may be refused in the middle.
        let _ = piping.0.write_all(chunk.as_bytes()).await;
    }
    wait_until_idle(&session).await;
    crate::harness::answer(piping.0).await.assert_error(429, "too_many_bytes", &[]);
}

#[tokio::test]
async fn a_stop_ends_the_reply_although_the_stream_goes_on() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut piping = OpenPipe::new(&server, "/v1/sessions/s/replies", "").await;
    piping.send(&format!("{}\n", start("r"))).await;
    wait_for_seq(&session, 1).await;
    let stop = event("stop", "r", r#""type":"USER_INTERRUPT""#);
    server.post("/v1/sessions/s/events", "", stop.as_bytes()).await.assert_stored(1, 0);
    let answer = crate::harness::answer(piping.0).await;
    assert_eq!((answer.status, &answer.json["finished_reason"]), (200, &"interrupted".into()));
    wait_until_idle(&session).await;
}

#[tokio::test]
async fn a_server_that_stops_leaves_nothing_open() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut piping = OpenPipe::new(&server, "/v1/sessions/s/replies", "").await;
    piping.send(&format!("{}\n", start("r"))).await;
    wait_for_seq(&session, 1).await;
    server.app.shutdown.cancel();
    // It may continue until `stop_timeout` is over.
    piping.send(&format!("{}\n", text("r", "more").join("\n"))).await;
    wait_for_seq(&session, 4).await;
    server.app.force_stop.cancel();
    server.app.tasks.close();
    server.app.tasks.wait().await;
    assert_eq!(session.snapshot().await.unwrap().open.len(), 0);
    crate::harness::answer(piping.0).await.assert_error(503, "unavailable", &[]);
}

#[tokio::test]
async fn a_later_run_of_the_producer_takes_the_reply_over() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let header = "turnwire-producer: p.1\r\n";
    let mut piping = OpenPipe::new(&server, "/v1/sessions/s/replies", header).await;
    piping.send(&format!("{}\n", start("r"))).await;
    wait_for_seq(&session, 1).await;
    server.publish("s", "p.2", &text("r", "later").join("\n")).await.assert_stored(3, 0);
    piping.send(&format!("{}\n", text("r", "early").join("\n"))).await;
    crate::harness::answer(piping.0).await.assert_error(409, "fenced", &[]);
    server.publish("s", "p.2", &end("r")).await.assert_stored(1, 0);
    assert_eq!(session.find_message("r").await.unwrap().unwrap().text, "later");
}

#[tokio::test]
async fn of_streams_that_race_one_gets_the_session() {
    let server = std::sync::Arc::new(Server::new().await);
    for round in 0..20 {
        let id = format!("s{round}");
        let session = server.session(&id).await;
        let mut tasks = Vec::new();
        for name in ["a", "b", "c"] {
            let (server, id) = (server.clone(), id.clone());
            tasks.push(tokio::spawn(async move {
                let mut piping =
                    OpenPipe::new(&server, &format!("/v1/sessions/{id}/replies"), "").await;
                piping.send(&format!("{}\n", start(name))).await;
                let session = server.session(&id).await;
                wait_for_seq(&session, 1).await;
                piping.send(&end(name)).await;
                piping.end().await.status
            }));
        }
        let mut statuses = Vec::new();
        for task in tasks {
            statuses.push(task.await.unwrap());
        }
        assert!(statuses.contains(&200), "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
        let snapshot = session.snapshot().await.unwrap();
        assert_eq!(snapshot.open.len(), 0);
    }
}
