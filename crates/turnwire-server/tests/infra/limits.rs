//! Limits: too large, too slow, too many.

use crate::harness::{Answer, Running, closed, read_answer, start, token, within};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use turnwire_server::config::Config;
use turnwire_server::{App, Server};

#[tokio::test]
async fn a_head_that_is_too_large_is_431() {
    let server = start("");
    let fits = "x".repeat(10_000);
    assert_eq!(server.send("GET", "/healthz", &[("x-filler", &fits)]).await.status, 200);
    let big = "x".repeat(17_000);
    assert_eq!(server.send("GET", "/healthz", &[("x-filler", &big)]).await.status, 431);
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("x-{n}"), n.to_string())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(server.send("GET", "/healthz", &many).await.status, 431);
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_http_is_answered_and_closed() {
    let server = start("");
    for bytes in [
        &b"hello\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
    ] {
        let mut stream = server.connect().await;
        stream.write_all(bytes).await.unwrap();
        assert!(closed(&mut stream).await);
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_head_that_does_not_come_closes_the_connection() {
    let server = start("[limits]\nheaders_timeout = \"100ms\"");
    let mut silent = server.connect().await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: lo").await.unwrap();
    assert!(closed(&mut silent).await);
    assert!(closed(&mut slow).await);
    assert_eq!(server.metric("turnwire_slow_clients_total"), 2);
    server.stop().await;
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_and_others_are_not() {
    let server = start("[limits]\nidle_timeout = \"100ms\"\nheaders_timeout = \"5s\"");
    let mut stream = server.connect().await;
    let request = server.request("GET", "/healthz", &[]);
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(within(read_answer(&mut stream)).await.unwrap().status, 200);
    }
    assert!(closed(&mut stream).await);
    assert_eq!(server.metric("turnwire_slow_clients_total"), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_closed() {
    let server = start("[limits]\nwrite_stall = \"100ms\"");
    let mut stream = server.connect().await;
    let request = server.request("GET", "/openapi.json", &[]).repeat(2_000);
    // The server stops reading when it cannot write, so this write may fail.
    let _ = tokio::time::timeout(
        std::time::Duration::from_secs(5),
        stream.write_all(request.as_bytes()),
    )
    .await;
    let end = async {
        while server.metric("turnwire_slow_clients_total") == 0 {
            tokio::task::yield_now().await;
        }
    };
    within(end).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_has_its_rate() {
    let tokens = token("tw_a", "a", "read") + &token("tw_b", "b", "read");
    let server = start(&format!("[limits]\nrequests_per_second = 5\n{tokens}"));
    let send = async |token: &str| server.send("GET", "/v1/agents", &[("x-api-key", token)]).await;
    let mut last = send("tw_a").await;
    for _ in 0..1_000 {
        if last.status == 429 {
            break;
        }
        last = send("tw_a").await;
    }
    assert_eq!(last.status, 429);
    assert_eq!(last.header("retry-after"), Some("1"));
    assert_ne!(send("tw_b").await.status, 429);
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_has_its_connections() {
    let tokens = token("tw_a", "a", "read") + &token("tw_b", "b", "read");
    let server = start(&format!("[limits]\nconnections_per_tenant = 2\n{tokens}"));
    let request = |token| server.request("GET", "/v1/agents", &[("x-api-key", token)]);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect().await;
        stream.write_all(request("tw_a").as_bytes()).await.unwrap();
        assert_ne!(within(read_answer(&mut stream)).await.unwrap().status, 429);
        open.push(stream);
    }
    let mut third = server.connect().await;
    third.write_all(request("tw_a").as_bytes()).await.unwrap();
    let answer = within(read_answer(&mut third)).await.unwrap();
    assert_eq!((answer.status, answer.kind().as_str()), (429, "too_many_connections"));
    assert!(closed(&mut third).await);
    let mut other = server.connect().await;
    other.write_all(request("tw_b").as_bytes()).await.unwrap();
    assert_ne!(within(read_answer(&mut other)).await.unwrap().status, 429);
    server.stop().await;
}

#[tokio::test]
async fn there_are_only_so_many_connections() {
    let server = start("[limits]\nconnections = 1");
    let mut first = server.connect().await;
    first.write_all(server.request("GET", "/healthz", &[]).as_bytes()).await.unwrap();
    assert_eq!(within(read_answer(&mut first)).await.unwrap().status, 200);
    let mut second = server.connect().await;
    let answer = within(read_answer(&mut second)).await.unwrap();
    assert_eq!((answer.status, answer.kind().as_str()), (503, "unavailable"));
    drop(first);
    let end = async {
        while server.metric("turnwire_connections") > 0 {
            tokio::task::yield_now().await;
        }
    };
    within(end).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    server.stop().await;
}

/// A request with an endless body, on a connection of its own.
async fn unfinished(server: &Running, token: &str, bytes: usize) -> TcpStream {
    let headers = [("x-api-key", token), ("transfer-encoding", "chunked")];
    let head = server.request("POST", "/v1/sessions", &headers);
    let chunk = format!("{bytes:x}\r\n{}\r\n", " ".repeat(bytes));
    let mut stream = server.connect().await;
    // It may be refused before all of it was sent.
    let _ = stream.write_all((head + &chunk).as_bytes()).await;
    stream
}

/// How many of these connections are answered within `wanted`; the others are still open.
async fn answered(open: &mut Vec<TcpStream>, wanted: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    while answers.len() < wanted {
        let waiting = open.iter_mut().map(|stream| Box::pin(stream.readable()));
        let (_, at, _) = within(futures_util::future::select_all(waiting)).await;
        let answer = within(read_answer(&mut open[at])).await.expect("an answer");
        answers.push(answer);
        open.swap_remove(at);
    }
    answers
}

#[tokio::test]
async fn bytes_that_are_held_are_counted_per_tenant() {
    let tokens = token("tw_a", "a", "chat") + &token("tw_b", "b", "chat");
    let server = start(&format!(
        "[limits]\nbody = \"1 MiB\"\nbuffered_per_tenant = \"1 MiB\"\nbuffered = \"3 MiB\"\n{tokens}"
    ));
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(unfinished(&server, "tw_a", 300 << 10).await);
    }
    // At most three fit.
    for answer in answered(&mut open, 5).await {
        assert_eq!((answer.status, answer.kind().as_str()), (429, "too_many_bytes"));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    let mut other = unfinished(&server, "tw_b", 600 << 10).await;
    other.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = within(read_answer(&mut other)).await.unwrap();
    assert_ne!((answer.status, answer.kind().as_str()), (429, "too_many_bytes"));
    // Requests that were accepted continue.
    let mut finished = 0;
    for mut stream in open {
        let _ = stream.write_all(b"0\r\n\r\n").await;
        let answer = within(read_answer(&mut stream)).await.unwrap();
        match (answer.status, answer.kind().as_str()) {
            (422, "no_such_agent") => finished += 1,
            (429, "too_many_bytes") => {}
            _ => panic!("{answer:?}"),
        }
    }
    assert!(finished > 0);
    let mut again = unfinished(&server, "tw_a", 600 << 10).await;
    again.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(within(read_answer(&mut again)).await.unwrap().status, 422);
    server.stop().await;
}

#[tokio::test]
async fn bytes_that_are_held_are_counted_in_all() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let tokens: String =
        names.iter().map(|name| token(&format!("tw_{name}"), name, "chat")).collect();
    let server = start(&format!(
        "[limits]\nbody = \"1 MiB\"\nbuffered_per_tenant = \"1 MiB\"\nbuffered = \"1 MiB\"\n{tokens}"
    ));
    let mut open = Vec::new();
    for name in names {
        open.push(unfinished(&server, &format!("tw_{name}"), 300 << 10).await);
    }
    for answer in answered(&mut open, 3).await {
        assert_eq!((answer.status, answer.kind().as_str()), (503, "too_many_bytes"));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    drop(open);
    server.stop().await;
}

#[tokio::test]
async fn a_body_without_credentials_is_not_read() {
    let server = start(&token("tw_a", "a", "chat"));
    for (method, path) in [
        ("POST", "/v1/sessions"),
        ("PATCH", "/v1/sessions/s"),
        ("POST", "/v1/sessions/s/messages"),
        ("POST", "/v1/sessions/s/events"),
        ("POST", "/v1/sessions/s/replies"),
        ("POST", "/v1/blobs"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/responses"),
        ("POST", "/ag-ui/demo"),
        ("POST", "/ai-sdk/demo"),
        ("POST", "/v1/tickets"),
    ] {
        let mut stream = server.connect().await;
        let head = server.request(method, path, &[("content-length", "10000000")]);
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = within(read_answer(&mut stream)).await.unwrap();
        assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
        assert!(closed(&mut stream).await);
    }
    server.stop().await;
}

#[tokio::test]
async fn stopping_finishes_what_is_open_and_takes_nothing_new() {
    let mut server = start("[limits]\nstop_timeout = \"10s\"");
    let mut idle = server.connect().await;
    idle.write_all(server.request("GET", "/healthz", &[]).as_bytes()).await.unwrap();
    assert_eq!(within(read_answer(&mut idle)).await.unwrap().status, 200);
    let address = server.address;
    server.begin_stop();
    within(server.app.shutdown.cancelled()).await;
    assert!(closed(&mut idle).await);
    server.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let server = start("[limits]\nstop_timeout = \"50ms\"\nheaders_timeout = \"1h\"");
    let mut half = server.connect().await;
    half.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let end = async {
        while server.metric("turnwire_connections") < 1 {
            tokio::task::yield_now().await;
        }
    };
    within(end).await;
    server.stop().await;
    let mut rest = Vec::new();
    assert!(within(half.read_to_end(&mut rest)).await.map_or(true, |count| count == 0));
}

#[tokio::test]
async fn other_machines_are_let_in_only_when_it_is_safe() {
    let credentials = token("tw_a", "a", "read");
    let bind = |settings: &str| {
        let config = Config::parse("test", settings).unwrap();
        Server::bind(App::new(config, crate::harness::log(), BTreeMap::new()).unwrap())
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let open = bind("listen = \"0.0.0.0:0\"").unwrap_err();
    assert!(open.contains("no credentials") && open.contains("turnwire token new"), "{open}");
    let proxy = bind("listen = \"0.0.0.0:0\"\nbehind_proxy = true").unwrap_err();
    assert!(proxy.contains("no credentials"), "{proxy}");
    let clear = bind(&format!("listen = \"0.0.0.0:0\"\n{credentials}")).unwrap_err();
    assert!(clear.contains("TLS") && clear.contains("--behind-proxy"), "{clear}");
    assert_eq!(
        bind(&format!("listen = \"0.0.0.0:0\"\nbehind_proxy = true\n{credentials}")),
        Ok(())
    );
    assert_eq!(
        bind("listen = \"[::1]:0\"").is_ok(),
        std::net::TcpListener::bind("[::1]:0").is_ok()
    );
}

#[tokio::test]
async fn a_taken_port_is_said_with_a_hint() {
    let server = start("");
    let config = Config::parse("test", &format!("listen = \"{}\"", server.address)).unwrap();
    let error = Server::bind(App::new(config, crate::harness::log(), BTreeMap::new()).unwrap())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains(&server.address.to_string()) && error.contains("--listen"), "{error}");
    let app = Arc::clone(&server.app);
    server.stop().await;
    assert!(app.shutdown.is_cancelled());
}
