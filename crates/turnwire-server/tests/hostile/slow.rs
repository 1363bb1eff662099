use crate::attack::{Target, request, until_closed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn send(target: &Target, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(target.address()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// The beginning of a request that announces more bytes than it sends.
fn unfinished(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    [request_head(method, path, headers, 100_000), body.as_bytes().to_vec()].concat()
}

/// The head of a request with a body of this length.
fn request_head(method: &str, path: &str, headers: &str, length: usize) -> Vec<u8> {
    request(method, path, &format!("{headers}content-length: {length}\r\n"), b"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stops_in_the_middle_is_let_go() {
    let target = Target::new().await;
    let producer = "turnwire-producer: p.1\r\n";
    let heads: [&[u8]; 4] =
        [b"", b"G", b"GET / HTTP/1.1\r\nhost: loc", b"POST /v1/sessions HTTP/1.1\r\n"];
    let mut open = Vec::new();
    for head in heads {
        open.push((String::from_utf8_lossy(head).into_owned(), send(&target, head).await));
    }
    for (method, path, headers) in [
        ("POST", "/v1/sessions", ""),
        ("PATCH", "/v1/sessions/s", ""),
        ("POST", "/v1/sessions/s/messages", ""),
        ("POST", "/v1/sessions/s/events", producer),
        ("POST", "/v1/blobs", ""),
    ] {
        let bytes = unfinished(method, path, headers, r#"{"content":"#);
        open.push((format!("{method} {path}"), send(&target, &bytes).await));
    }
    for (name, mut stream) in open {
        let received = until_closed(&mut stream).await;
        let received = String::from_utf8_lossy(&received);
        let is_refused = received.is_empty() || received.starts_with("HTTP/1.1 4");
        assert!(is_refused, "{name}: {received}");
    }
    target.still_serves().await;
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_comes_a_byte_at_a_time_has_no_more_time_than_others() {
    let target = Target::new().await;
    let mut stream = TcpStream::connect(target.address()).await.unwrap();
    let (mut from, mut to) = stream.split();
    let drip = async {
        // It never ends, as long as the server reads.
        let _ = to.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n").await;
        loop {
            if to.write_all(b"x-drip: drop\r\n").await.is_err() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let mut received = Vec::new();
    let closed = async {
        let _ = from.read_to_end(&mut received).await;
    };
    let over = async {
        tokio::select! { () = drip => {}, () = closed => {} }
    };
    crate::running::within(over).await;
    target.still_serves().await;
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hangs_up_in_the_middle_leaves_nothing_behind() {
    let target = Target::new().await;
    let whole = request("POST", "/v1/sessions/s/messages", "", br#"{"content":"hello"}"#);
    for cut in 0..whole.len() {
        let stream = send(&target, &whole[..cut]).await;
        if cut % 2 == 0 {
            stream.set_zero_linger().unwrap();
        }
        drop(stream);
    }
    let mut stream = send(&target, &request("GET", "/v1/sessions/s/events", "", b"")).await;
    let _ = stream.read_u8().await.unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    target.still_serves().await;
    target.stop().await;
}

/// Sends an endless body, one byte at a time, as long as the server reads. Returns the response.
async fn drip(target: &Target, path: &str, headers: &str, encoding: &str) -> String {
    let head = request("POST", path, &format!("{headers}{encoding}"), b"");
    let mut stream = send(target, &head).await;
    let (mut from, mut to) = stream.split();
    let drops: &[u8] = if encoding.contains("chunked") { b"1\r\n \r\n" } else { b" " };
    let dripping = async {
        while to.write_all(drops).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
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
    crate::running::within(over).await;
    String::from_utf8(received).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_comes_a_byte_at_a_time_is_408_and_the_connection_is_closed() {
    let server = Target::new().await;
    let target = &server;
    let producer = "turnwire-producer: p.1\r\n";
    let cases = [
        ("/v1/sessions", "", r#"{"error":{"type":"timeout""#),
        ("/v1/sessions/s/messages", "", r#"{"error":{"type":"timeout""#),
        ("/v1/sessions/s/events", producer, r#"{"error":{"type":"timeout""#),
        ("/v1/blobs", "", r#"{"error":{"type":"timeout""#),
        ("/ag-ui/demo", "", r#"{"error":{"type":"timeout""#),
        (
            "/v1/chat/completions",
            "",
            r#""type":"invalid_request_error","param":null,"code":"timeout""#,
        ),
        ("/v1/responses", "", r#""type":"invalid_request_error","param":null,"code":"timeout""#),
        ("/v1/messages", "", r#"{"type":"error","error":{"type":"invalid_request_error""#),
    ];
    let each = cases.map(|(path, headers, error)| async move {
        for encoding in ["content-length: 100000\r\n", "transfer-encoding: chunked\r\n"] {
            let received = drip(target, path, headers, encoding).await;
            assert!(received.starts_with("HTTP/1.1 408"), "{path}: {received}");
            assert!(received.contains("connection: close"), "{path}: {received}");
            let body = received.split_once("\r\n\r\n").unwrap().1;
            assert!(body.contains("too slowly"), "{path}: {body}");
            assert!(same_words(body, error), "{path}: {body}");
        }
    });
    futures_util::future::join_all(each).await;
    server.still_serves().await;
    server.stop().await;
}

/// Whether a body contains these words, in any order of its fields.
/// A refused request whose body comes after its head leaves the connection usable; without the body, the connection is
/// closed, and the response says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_is_read_to_its_end() {
    let target = Target::new().await;
    let origin = "origin: https://evil.example\r\n";
    for (path, headers) in [("/v1/nothing", ""), ("/v1/sessions", origin), ("/v1/sessions?x=1", "")]
    {
        let head = unfinished("POST", path, headers, "");
        let mut stream = send(&target, &head).await;
        let received = until_closed(&mut stream).await;
        let received = String::from_utf8_lossy(&received);
        assert!(received.starts_with("HTTP/1.1 4"), "{path}: {received}");
        assert!(received.contains("connection: close"), "{path}: {received}");

        let mut stream = send(&target, &request_head("POST", path, headers, 2)).await;
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        stream.write_all(b"{}").await.unwrap();
        let last = request("GET", "/healthz", "connection: close\r\n", b"");
        stream.write_all(&last).await.unwrap();
        let received = until_closed(&mut stream).await;
        let received = String::from_utf8_lossy(&received);
        assert!(received.starts_with("HTTP/1.1 4"), "{path}: {received}");
        assert!(received.contains("HTTP/1.1 200"), "{path}: {received}");
    }
    target.stop().await;
}

fn same_words(body: &str, words: &str) -> bool {
    words.split(',').all(|word| body.contains(word.trim_matches(|c| c == '{' || c == '}')))
}
