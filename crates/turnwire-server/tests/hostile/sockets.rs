use crate::attack::{Target, until_closed};
use crate::running::within;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\n";
const KEY: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const VERSION: &str = "sec-websocket-version: 13\r\n";

fn handshake(headers: &str) -> Vec<u8> {
    crate::attack::request("GET", "/v1/ws?wire=turnwire", headers, b"")
}

#[tokio::test]
async fn a_bad_handshake_is_a_clear_4xx() {
    let target = Target::new().await;
    let cases = [
        String::new(),
        UPGRADE.to_owned(),
        format!("{UPGRADE}{KEY}"),
        format!("{UPGRADE}{VERSION}"),
        format!("{UPGRADE}{KEY}sec-websocket-version: 8\r\n"),
        format!("connection: close\r\nupgrade: websocket\r\n{KEY}{VERSION}"),
        format!("connection: upgrade\r\nupgrade: h2c\r\n{KEY}{VERSION}"),
        format!("{UPGRADE}{KEY}{VERSION}origin: https://evil.example\r\n"),
        format!("authorization: Bearer wrong\r\n{UPGRADE}{KEY}{VERSION}"),
    ];
    for headers in &cases {
        let mut attack = crate::attack::Attack::raw(headers, handshake(headers));
        attack.wanted = crate::attack::Expected::Clear;
        target.try_attack(&attack).await.unwrap_or_else(|why| panic!("{headers:?}: {why}"));
    }
    eprintln!("{} bad handshakes were refused", cases.len());
    target.still_serves().await;
    target.stop().await;
}

async fn open(target: &Target) -> TcpStream {
    let mut stream = TcpStream::connect(target.address()).await.unwrap();
    let bytes = handshake(&format!("{UPGRADE}{KEY}{VERSION}"));
    stream.write_all(&bytes).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// A frame with a mask of zeros.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..=125 => frame.push(0x80 | u8::try_from(len).unwrap()),
        len @ 126..=0xffff => {
            frame.push(0xfe);
            frame.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            frame.push(0xff);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_are_none_close_the_socket() {
    let target = Target::with("websocket_frame = \"64 KiB\"").await;
    let huge = [&[0x81, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    let long = [&[0x81, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat();
    let piece = vec![b'x'; 60_000];
    let pieces = [masked(0x01, &piece), masked(0x00, &piece)].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("not masked", vec![0x81, 0x02, b'{', b'}']),
        ("an unknown opcode", masked(0x83, b"{}")),
        ("an unknown control opcode", masked(0x8b, b"")),
        ("reserved bits", masked(0xf1, b"{}")),
        ("text that is no UTF-8", masked(0x81, b"\xff\xfe")),
        ("a fragmented ping", masked(0x09, b"x")),
        ("a ping of 126 bytes", masked(0x89, &[b'x'; 126])),
        ("a continuation of nothing", masked(0x80, b"x")),
        ("a text in the middle of a text", [masked(0x01, b"{"), masked(0x81, b"}")].concat()),
        ("a close with half a code", masked(0x88, b"\x03")),
        ("a close whose reason is no UTF-8", masked(0x88, b"\x03\xe8\xff")),
        ("a frame over the limit", masked(0x81, &vec![b'x'; 70_000])),
        ("a message over the limit, in pieces", pieces),
        ("a frame of 2^40 bytes", long),
        ("a frame of 2^64 bytes", huge),
    ];
    for (name, frames) in &cases {
        let mut stream = open(&target).await;
        let _ = stream.write_all(frames).await;
        let received = until_closed(&mut stream).await;
        assert!(received.is_empty() || received[0] == 0x88, "{name}: {received:?}");
    }
    eprintln!("{} bad frames closed their sockets", cases.len());
    target.still_serves().await;
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_make_no_sense_are_answered_and_the_socket_stays() {
    let target = Target::new().await;
    let url = format!("ws://{}/v1/ws?wire=turnwire", target.address());
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("authorization", "Bearer tw_read".parse().unwrap());
    request.headers_mut().insert("host", "localhost".parse().unwrap());
    let stream = TcpStream::connect(target.address()).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let deep = "[".repeat(50_000);
    let long = "s".repeat(129);
    let commands = [
        String::new(),
        "nonsense".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        "{}".to_owned(),
        deep.clone(),
        format!(r#"{{"type":"chat","session_id":"s","content":{deep}"#),
        r#"{"type":7}"#.to_owned(),
        r#"{"type":"dance"}"#.to_owned(),
        r#"{"type":"subscribe"}"#.to_owned(),
        r#"{"type":"subscribe","session_id":7}"#.to_owned(),
        r#"{"type":"subscribe","session_id":"none"}"#.to_owned(),
        format!(r#"{{"type":"subscribe","session_id":"{long}"}}"#),
        r#"{"type":"subscribe","session_id":"s","raw":"perhaps"}"#.to_owned(),
        r#"{"type":"unsubscribe","session_id":"s"}"#.to_owned(),
        r#"{"type":"events","session_id":"s","events":{}}"#.to_owned(),
        r#"{"type":"events","session_id":"s","events":[]}"#.to_owned(),
        r#"{"type":"events","session_id":"s","events":[{"id":"x","type":"REPLY_START","reply_id":"q"}]}"#.to_owned(),
        r#"{"type":"events","session_id":"s","events":[7]}"#.to_owned(),
        r#"{"type":"chat","session_id":"s"}"#.to_owned(),
        r#"{"type":"chat","session_id":"s","content":"no right to"}"#.to_owned(),
        r#"{"type":"chat","session_id":"s","message":{"role":"assistant","content":"x"}}"#.to_owned(),
        r#"{"type":"stop","session_id":"s"}"#.to_owned(),
        r#"{"type":"auth"}"#.to_owned(),
    ];
    for command in &commands {
        socket.send(Message::text(command.clone())).await.unwrap();
        let answer = within(socket.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
        let start: String = command.chars().take(60).collect();
        assert_eq!(answer["type"], "error", "{start}: {answer}");
        let has = |name: &str| answer[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(has("code") && has("message"), "{start}: {answer}");
        assert_ne!(answer["code"], "internal", "{start}: {answer}");
    }
    socket.send(Message::binary(vec![0; 9])).await.unwrap();
    let answer = within(socket.next()).await.unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("error"), "{answer}");
    socket.send(Message::text(json!({"type": "ping", "id": 1}).to_string())).await.unwrap();
    let answer = within(socket.next()).await.unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(answer.to_text().unwrap()).unwrap()["type"], "pong");
    eprintln!("{} commands were answered with an error", commands.len());
    target.still_serves().await;
    target.stop().await;
}

/// Sends a frame repeatedly, up to `times`, and returns the frames of the server.
async fn flood(target: &Target, start: &[u8], frame: &[u8], times: usize) -> Vec<(u8, Vec<u8>)> {
    let mut stream = open(target).await;
    stream.write_all(start).await.unwrap();
    let (mut from, mut to) = stream.split();
    let flooding = async {
        for _ in 0..times {
            if to.write_all(frame).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut received = Vec::new();
    let over = async {
        tokio::select! {
            () = flooding => {}
            _ = from.read_to_end(&mut received) => {}
        }
    };
    within(over).await;
    frames(&received)
}

/// The first bytes and payloads of short frames.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, length, rest @ ..] = bytes {
        let (length, rest) = match *length {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            length => (usize::from(length), rest),
        };
        let end = length.min(rest.len());
        frames.push((*first, rest[..end].to_vec()));
        bytes = &rest[end..];
    }
    frames
}

/// The close code of a socket.
fn closed_with(frames: &[(u8, Vec<u8>)]) -> Option<u16> {
    let (_, payload) = frames.iter().find(|(first, _)| *first == 0x88)?;
    Some(u16::from_be_bytes([payload[0], payload[1]]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_short_messages_closes_the_socket() {
    let target = Target::with("websocket_messages_per_second = 10").await;
    for (name, frame) in [
        ("pings", masked(0x89, b"")),
        ("long pings", masked(0x89, &[b'x'; 125])),
        ("pongs", masked(0x8a, b"")),
        ("empty texts", masked(0x81, b"")),
        ("pings of our own", masked(0x81, br#"{"type":"ping"}"#)),
        ("nonsense", masked(0x81, b"x")),
        ("empty binaries", masked(0x82, b"")),
        ("empty texts in two pieces", [masked(0x01, b""), masked(0x80, b"")].concat()),
    ] {
        let received = flood(&target, b"", &frame, 1_000_000).await;
        assert_eq!(closed_with(&received), Some(1008), "{name}");
        // The limit is ten a second, with a burst of ten seconds.
        assert!(received.len() <= 400, "{name}: {} answers", received.len());
    }
    target.still_serves().await;
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_without_end_close_the_socket() {
    let target = Target::with("websocket_frame = \"4 KiB\"").await;
    let start = masked(0x01, b"{");
    for (name, frame) in [
        ("nothing", masked(0x00, b"")),
        ("nothing, and pings between", [masked(0x00, b""), masked(0x89, b"")].concat()),
    ] {
        let received = flood(&target, &start, &frame, 1_000_000).await;
        // The reason may be lost if the server had unread data.
        let code = closed_with(&received);
        assert!(matches!(code, None | Some(1008 | 1009)), "{name}: {code:?}");
    }
    // Frames within the rate are not counted against it.
    let mut patient = open(&target).await;
    patient.write_all(&start).await.unwrap();
    for _ in 0..5_000 {
        patient.write_all(&masked(0x8a, &[b'x'; 125])).await.unwrap();
    }
    patient.write_all(&masked(0x80, br#""type":"ping"}"#)).await.unwrap();
    let mut answer = [0; 17];
    within(patient.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer[2..], br#"{"type":"pong"}"#);
    drop(patient);
    target.still_serves().await;
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_not_complete_are_counted() {
    let target = Target::with("buffered_per_tenant = \"2 MiB\"").await;
    let whole = masked(0x81, &vec![b' '; 1 << 20]);
    let mut closing = FuturesUnordered::new();
    for _ in 0..8 {
        let mut stream = open(&target).await;
        // It may be closed before all of it was sent.
        let _ = stream.write_all(&whole[..600 << 10]).await;
        closing.push(async move { frames(&until_closed(&mut stream).await) });
    }
    // At most three fit.
    for _ in 0..5 {
        let received = within(closing.next()).await.unwrap();
        assert_eq!(closed_with(&received), Some(1013));
    }
    drop(closing);
    target.still_serves().await;
    target.stop().await;
}
