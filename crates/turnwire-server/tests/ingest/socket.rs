//! Several sessions on one WebSocket.

use crate::harness::{Server, answer, end, event, reply, start, text, wait_for_seq};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use turnwire_core::Head;
use turnwire_server::Scope;
use turnwire_server::config::{ByteSize, Config, HumanDuration};

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(server: &Server) -> Self {
        Self::open_wire(server, "turnwire").await
    }

    async fn open_wire(server: &Server, wire: &str) -> Self {
        let url = format!("ws://{}/v1/ws?wire={wire}", server.address);
        let (socket, _) = connect_async(url.into_client_request().unwrap()).await.unwrap();
        Self(socket)
    }

    async fn send(&mut self, command: Value) {
        self.0.send(Message::text(command.to_string())).await.unwrap();
    }

    /// The next frame.
    async fn next(&mut self) -> Value {
        loop {
            match self.0.next().await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a command, and returns the next frame.
    async fn ask(&mut self, command: Value) -> Value {
        self.send(command).await;
        self.next().await
    }

    /// The next so many frames.
    async fn frames(&mut self, count: usize) -> Vec<Value> {
        let mut frames = Vec::new();
        for _ in 0..count {
            frames.push(self.next().await);
        }
        frames
    }

    /// The code that it is closed with.
    async fn closed(&mut self) -> u16 {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
                Some(Ok(Message::Close(None))) | None => return 0,
                Some(Ok(_)) => {}
                Some(Err(error)) => panic!("{error}"),
            }
        }
    }
}

fn seqs(frames: &[Value]) -> Vec<u64> {
    frames.iter().map(|frame| frame["seq"].as_u64().unwrap()).collect()
}

fn subscribe(session: &str, more: &Value) -> Value {
    let mut command = json!({"type": "subscribe", "session_id": session});
    for (key, value) in more.as_object().unwrap() {
        command[key] = value.clone();
    }
    command
}

#[tokio::test]
async fn one_socket_watches_several_sessions() {
    let server = Server::new().await;
    let (one, two) = (server.session("one").await, server.session("two").await);
    server.publish("one", "p.1", &reply("r").join("\n")).await.assert_stored(5, 0);
    let mut socket = Socket::open(&server).await;
    let answer = socket.ask(subscribe("one", &json!({"id": "a", "raw": true}))).await;
    assert_eq!(
        answer,
        json!({"type": "subscribed", "session_id": "one", "status": "idle", "last_seq": 5,
               "last_event_id": one.resume_token(Head::new(5)), "id": "a"})
    );
    let frames = socket.frames(5).await;
    assert_eq!(seqs(&frames), [1, 2, 3, 4, 5]);
    assert_eq!(frames[4]["event_id"], one.resume_token(Head::new(5)));
    assert!(frames.iter().all(|frame| frame["session_id"] == "one"), "{frames:?}");
    let answer = socket.ask(subscribe("two", &json!({"id": 7}))).await;
    assert_eq!((&answer["type"], &answer["id"]), (&"subscribed".into(), &7.into()));
    // Events are told apart by their session.
    server.publish("two", "p.1", &start("q")).await.assert_stored(1, 0);
    let frame = socket.next().await;
    assert_eq!((&frame["session_id"], &frame["seq"]), (&"two".into(), &1.into()));
    assert_eq!(frame["event_id"], two.resume_token(Head::new(1)));
    server.publish("one", "p.1", &start("q")).await.assert_stored(1, 0);
    assert_eq!(socket.next().await["event_id"], one.resume_token(Head::new(6)));
    // After `unsubscribe` no more events come.
    let unsubscribe = json!({"type": "unsubscribe", "session_id": "two", "id": 8});
    assert_eq!(socket.ask(unsubscribe.clone()).await["type"], "unsubscribed");
    assert_eq!(socket.ask(unsubscribe).await["code"], "not_subscribed");
    server.publish("two", "p.1", &end("q")).await.assert_stored(1, 0);
    server.publish("one", "p.1", &end("q")).await.assert_stored(1, 0);
    assert_eq!(socket.next().await["event_id"], one.resume_token(Head::new(7)));
}

#[tokio::test]
async fn a_client_that_comes_back_goes_on_where_it_was() {
    let server = Server::new().await;
    let session = server.session("s").await;
    server.publish("s", "p.1", &reply("r").join("\n")).await.assert_stored(5, 0);
    let mut socket = Socket::open(&server).await;
    for (name, token) in [
        ("last_event_id", session.resume_token(Head::new(3))),
        ("after", session.resume_token(Head::new(3))),
        ("after", "3".into()),
    ] {
        // A new subscription begins again from the token.
        socket.ask(subscribe("s", &json!({name: token, "raw": true}))).await;
        assert_eq!(seqs(&socket.frames(2).await), [4, 5], "{name}");
    }
    socket.ask(subscribe("s", &json!({"after": "now"}))).await;
    server.publish("s", "p.1", &start("q")).await.assert_stored(1, 0);
    assert_eq!(seqs(&socket.frames(1).await), [6]);
    for token in ["other.3", "99", "nonsense"] {
        socket.ask(subscribe("s", &json!({"last_event_id": token, "raw": true}))).await;
        let frames = socket.frames(7).await;
        assert_eq!(frames[0]["type"], "RESET", "{token}");
        assert_eq!(frames[0]["epoch"], session.epoch());
        assert_eq!(seqs(&frames[1..]), [1, 2, 3, 4, 5, 6]);
    }
    // Missed deltas are merged.
    let deltas: Vec<String> = (0..1100)
        .map(|n| {
            event(&format!("d{n}"), "q", r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"x""#)
        })
        .collect();
    let begin = event("b", "q", r#""type":"TEXT_BLOCK_START","block_id":"b""#);
    server
        .publish("s", "p.1", &format!("{begin}\n{}", deltas.join("\n")))
        .await
        .assert_stored(1101, 0);
    let mut late = Socket::open(&server).await;
    late.ask(subscribe("s", &json!({"after": session.resume_token(Head::new(7))}))).await;
    let merged = late.next().await;
    assert_eq!((&merged["seq"], &merged["seq_from"]), (&1107.into(), &8.into()));
    assert_eq!(merged["delta"], "x".repeat(1100));
}

#[tokio::test]
async fn agentscopes_frames_come_with_their_session_and_token() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let message = r#"{"id":"m","type":"MESSAGE","message":{"id":"u","name":"alice","role":"user","content":"hi"}}"#;
    server.publish("s", "p.1", message).await.assert_stored(1, 0);
    let mut socket = Socket::open_wire(&server, "agentscope").await;
    socket.ask(subscribe("s", &json!({}))).await;
    let frame = socket.next().await;
    assert_eq!((&frame["type"], &frame["name"]), (&"CUSTOM".into(), &"message".into()));
    assert_eq!(
        (&frame["session_id"], &frame["event_id"]),
        (&"s".into(), &session.resume_token(Head::new(1)).into())
    );
}

#[tokio::test]
async fn answers_messages_and_stops_are_taken() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut socket = Socket::open(&server).await;
    // In an external session a message is only logged.
    let chat = json!({"type": "chat", "session_id": "s", "content": "hello", "id": "1"});
    let answer = socket.ask(chat).await;
    assert_eq!((&answer["type"], &answer["id"]), (&"accepted".into(), &"1".into()), "{answer}");
    assert_eq!(answer["last_event_id"], session.resume_token(Head::new(1)));
    let id = answer["message_id"].as_str().unwrap();
    assert_eq!(session.find_message(id).await.unwrap().unwrap().text, "hello");
    for message in
        [json!("hi"), json!({"id": "mine", "role": "user", "name": "u", "content": "hi"})]
    {
        let chat = json!({"type": "chat", "session_id": "s", "message": message});
        assert_eq!(socket.ask(chat).await["type"], "accepted");
    }
    assert_eq!(session.find_message("mine").await.unwrap().unwrap().text, "hi");
    // Answers.
    let call = r#"{"type":"tool_call","id":"c","name":"pay","input":"{}"}"#;
    let ask = [
        start("r"),
        event("t", "r", r#""type":"TOOL_CALL_START","tool_call_id":"c","tool_call_name":"pay""#),
        event("q", "r", &format!(r#""type":"REQUIRE_USER_CONFIRM","tool_calls":[{call}]"#)),
    ];
    server.publish("s", "p.1", &ask.join("\n")).await.assert_stored(3, 0);
    let call: Value = serde_json::from_str(call).unwrap();
    let yes = |id: &str| {
        let result = json!({"confirmed": true, "tool_call": call});
        let event = json!({"id": id, "type": "USER_CONFIRM_RESULT", "reply_id": "r",
                           "confirm_results": [result]});
        json!({"type": "events", "session_id": "s", "events": [event]})
    };
    let answer = socket.ask(yes("y")).await;
    assert_eq!((&answer["type"], &answer["stored"]), (&"accepted".into(), &1.into()), "{answer}");
    assert_eq!(socket.ask(yes("y")).await["repeated"], 1);
    let answer = socket.ask(yes("z")).await;
    assert_eq!((&answer["type"], &answer["command"]), (&"error".into(), &"events".into()));
    let answer = socket.ask(json!({"type": "stop", "session_id": "s", "id": "x"})).await;
    assert_eq!((&answer["type"], &answer["id"]), (&"accepted".into(), &"x".into()), "{answer}");
    assert_eq!(answer["last_event_id"], session.resume_token(session.head_state().head));
}

#[tokio::test]
async fn what_does_not_work_is_said_and_the_socket_stays_open() {
    let server = Server::new().await;
    server.session("s").await;
    let mut socket = Socket::open(&server).await;
    let events =
        |events: Value| json!({"type": "events", "session_id": "s", "events": events, "id": 1});
    let cases = [
        (json!({"type": "subscribe", "id": 1}), "subscribe", "bad_request"),
        (subscribe("nowhere", &json!({"id": 1})), "subscribe", "not_found"),
        (subscribe("a/b", &json!({"id": 1})), "subscribe", "bad_request"),
        (json!({"type": "dance", "id": 1}), "dance", "unknown_command"),
        (json!({"type": "subscribe", "session_id": 7, "id": 1}), "subscribe", "bad_request"),
        (json!({"type": "auth", "id": 1}), "auth", "bad_request"),
        (json!({"type": "chat", "session_id": "s", "id": 1}), "chat", "bad_request"),
        (
            json!({"type": "chat", "session_id": "s", "content": 7, "id": 1}),
            "chat",
            "not_a_message",
        ),
        (events(json!(null)), "events", "bad_request"),
        (events(json!([])), "events", "bad_request"),
        (events(json!([{"id": "1"}])), "events", "not_an_event"),
        (
            events(json!([{"id": "1", "type": "REPLY_START", "reply_id": "r"}])),
            "events",
            "no_producer",
        ),
    ];
    for (command, name, code) in cases {
        let answer = socket.ask(command.clone()).await;
        assert_eq!(answer["type"], "error", "{command}");
        assert_eq!((&answer["command"], &answer["code"]), (&name.into(), &code.into()), "{answer}");
        assert_eq!(answer["id"], 1, "{answer}");
        assert!(!answer["message"].as_str().unwrap().is_empty());
    }
    for text in ["", "nonsense", "[]", "7", "null", "{", &"[".repeat(100_000)] {
        socket.0.send(Message::text(text)).await.unwrap();
        let answer = socket.next().await;
        assert_eq!((&answer["type"], &answer["code"]), (&"error".into(), &"bad_request".into()));
    }
    socket.0.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    assert_eq!(socket.next().await["type"], "error");
    assert_eq!(
        socket.ask(json!({"type": "ping", "id": "p"})).await,
        json!({"type": "pong", "id": "p"})
    );
}

#[tokio::test]
async fn each_command_needs_its_scope() {
    let server = Server::with(Config::default(), &[Scope::Approve]).await;
    server.session("s").await;
    let mut socket = Socket::open(&server).await;
    for command in [
        subscribe("s", &json!({})),
        json!({"type": "chat", "session_id": "s", "content": "x"}),
        json!({"type": "stop", "session_id": "s"}),
        json!({"type": "events", "session_id": "s",
               "events": [{"id": "1", "type": "USER_INTERRUPT", "reply_id": "r"}]}),
    ] {
        assert_eq!(socket.ask(command).await["code"], "forbidden");
    }
}

fn with_token() -> (Config, String) {
    let (token, hash) = turnwire_server::auth::generate_token().unwrap();
    let text = format!(
        "[[auth.tokens]]\ntenant = \"default\"\nsha256 = \"{hash}\"\nscopes = [\"read\", \"chat\"]\n"
    );
    (Config::parse("turnwire.toml", &text).unwrap(), token)
}

#[tokio::test]
async fn credentials_may_come_as_the_first_command() {
    let (config, token) = with_token();
    let server = Server::closed(config).await;
    server.session("s").await;
    let mut socket = Socket::open(&server).await;
    assert_eq!(socket.ask(json!({"type": "ping"})).await["type"], "pong");
    let answer = socket.ask(subscribe("s", &json!({}))).await;
    assert_eq!((&answer["type"], &answer["code"]), (&"error".into(), &"unauthorized".into()));
    let answer = socket.ask(json!({"type": "auth", "token": token, "id": 1})).await;
    assert_eq!(answer, json!({"type": "authenticated", "id": 1}));
    assert_eq!(socket.ask(subscribe("s", &json!({}))).await["type"], "subscribed");
    // Invalid credentials later change nothing.
    assert_eq!(socket.ask(json!({"type": "auth", "token": "tw_x"})).await["code"], "unauthorized");
    assert_eq!(socket.ask(subscribe("s", &json!({}))).await["type"], "subscribed");
    // Invalid credentials at first close the socket.
    let mut socket = Socket::open(&server).await;
    assert_eq!(socket.ask(json!({"type": "auth", "token": "tw_x"})).await["code"], "unauthorized");
    assert_eq!(socket.closed().await, 4401);
}

#[tokio::test]
async fn who_shows_no_credentials_is_closed() {
    let (mut config, _) = with_token();
    config.limits.headers_timeout = HumanDuration(Duration::from_millis(30));
    let server = Server::closed(config).await;
    let mut socket = Socket::open(&server).await;
    assert_eq!(socket.closed().await, 4401);
}

#[tokio::test]
async fn messages_that_cannot_be_read_close_the_socket_with_the_reason() {
    let mut config = Config::default();
    config.limits.websocket_frame = ByteSize::kib(4);
    let server = Server::with(config, &Scope::ALL).await;
    let mut socket = Socket::open(&server).await;
    socket.0.send(Message::text("x".repeat(4097))).await.unwrap();
    assert_eq!(socket.closed().await, 1009);
    let mut socket = Socket::open(&server).await;
    let frame = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
    socket.0.send(Message::Frame(frame)).await.unwrap();
    assert_eq!(socket.closed().await, 1007);
    let mut socket = Socket::open(&server).await;
    let frame = Frame::message(vec![1], OpCode::Data(Data::Continue), true);
    socket.0.send(Message::Frame(frame)).await.unwrap();
    assert_eq!(socket.closed().await, 1002);
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_closed() {
    let mut config = Config::default();
    config.limits.heartbeat = HumanDuration(Duration::from_millis(500));
    let server = Server::with(config, &Scope::ALL).await;
    let mut socket = Socket::open(&server).await;
    // A handshake by hand, so that no pong is sent.
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let hello = "GET /v1/ws?wire=turnwire HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    silent.write_all(hello.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let waits = tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut all);
    // A client that answers pings stays connected.
    tokio::select! {
        _ = waits => {}
        _ = socket.closed() => panic!("the one that answers was closed"),
    }
    let close =
        all.windows(4).any(|bytes| bytes[0] == 0x88 && bytes[2..4] == 4008u16.to_be_bytes());
    assert!(close, "{all:?}");
    assert_eq!(socket.ask(json!({"type": "ping"})).await["type"], "pong");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_and_the_session_goes_on() {
    let mut config = Config::default();
    config.limits.write_stall = HumanDuration(Duration::from_millis(200));
    let server = Server::whole(config);
    let session = server.session("s").await;
    let begin = format!("{}\n{}", start("r"), text("r", "b")[0]);
    server.publish("s", "p.1", &begin).await.assert_stored(2, 0);
    let large = "x".repeat(3 << 20);
    let before = Arc::strong_count(&session);
    let mut socket = Socket::open(&server).await;
    socket.ask(subscribe("s", &json!({"raw": true}))).await;
    for n in 0..7 {
        let delta = format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"{large}""#);
        server.publish("s", "p.1", &event(&format!("d{n}"), "r", &delta)).await.assert_stored(1, 0);
    }
    // The subscription has ended when nothing holds the session any more.
    while Arc::strong_count(&session) > before {
        tokio::task::yield_now().await;
    }
    wait_for_seq(&session, 9).await;
    drop(socket);
}

#[tokio::test]
async fn a_session_that_is_deleted_is_said_to_be_gone() {
    let server = Server::new().await;
    let session = server.session("s").await;
    let mut socket = Socket::open(&server).await;
    socket.ask(subscribe("s", &json!({}))).await;
    server.app.log.delete_session(session.key()).await.unwrap();
    let frame = socket.next().await;
    assert_eq!((&frame["type"], &frame["code"]), (&"unsubscribed".into(), &"not_found".into()));
    // A new session of the same name is another session.
    let session = server.session("s").await;
    let answer = socket.ask(subscribe("s", &json!({}))).await;
    assert_eq!(answer["last_event_id"], session.resume_token(Head::new(0)));
}

#[tokio::test]
async fn a_socket_watches_only_so_many_sessions() {
    let server = Server::new().await;
    let mut socket = Socket::open(&server).await;
    for n in 0..256 {
        server.session(&format!("s{n}")).await;
        let answer = socket.ask(subscribe(&format!("s{n}"), &json!({}))).await;
        assert_eq!(answer["type"], "subscribed");
    }
    server.session("more").await;
    assert_eq!(socket.ask(subscribe("more", &json!({}))).await["code"], "too_many_requests");
    socket.ask(json!({"type": "unsubscribe", "session_id": "s7"})).await;
    assert_eq!(socket.ask(subscribe("more", &json!({}))).await["type"], "subscribed");
}

#[tokio::test]
async fn a_server_that_stops_says_so() {
    let server = Server::new().await;
    server.session("s").await;
    let mut socket = Socket::open(&server).await;
    socket.ask(subscribe("s", &json!({}))).await;
    server.app.shutdown.cancel();
    assert_eq!(socket.closed().await, 1001);
}

#[tokio::test]
async fn what_is_no_socket_gets_an_answer() {
    let server = Server::new().await;
    let get = async |path: &str, headers: &str| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        answer(stream).await
    };
    get("/v1/ws", "").await.assert_error(400, "bad_request", &["not a WebSocket"]);
    get("/v1/ws?wire=ag-ui", "").await.assert_error(400, "bad_request", &[]);
    get("/v1/ws?wire=turnwire", "").await.assert_error(400, "bad_request", &["not a WebSocket"]);
}
