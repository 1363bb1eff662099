use crate::attack::{Attack, Target, request, until_closed};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

pub fn all() -> Vec<Attack> {
    let auth = "host: localhost\r\nauthorization: Bearer tw_all\r\n";
    let get = |rest: &str| format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{rest}\r\n");
    let post = |headers: &str, body: &str| {
        format!("POST /v1/sessions HTTP/1.1\r\n{auth}{headers}\r\n{body}")
    };
    let mut all = vec![
        Attack::raw("a line that is no request", "hello there\r\n\r\n"),
        Attack::raw("no version", "GET /\r\n\r\n"),
        Attack::raw("an unknown version", "GET / HTTP/3.7\r\nhost: localhost\r\n\r\n"),
        Attack::raw("a method with a space", "GE T / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        Attack::raw("a method that is no word", "G@{}T / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        Attack::raw("bytes of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice())
            .ended(),
        Attack::raw("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        Attack::raw("NUL in the path", "GET /\0 HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        Attack::raw("NUL in a header", get("x-a: a\0b\r\n")),
        Attack::raw("a header without a colon", get("nothing\r\n")),
        Attack::raw("a header with a space before its colon", get("x-a : b\r\n")),
        Attack::raw("a header that goes on on the next line", get("x-a: b\r\n c: d\r\n")),
        Attack::raw("a bare CR in a header", get("x-a: b\rc: d\r\n")),
        Attack::raw("a header of 100 KB", get(&format!("x-a: {}\r\n", "a".repeat(100_000)))),
        Attack::raw("5,000 headers", get(&"x-a: b\r\n".repeat(5_000))),
        Attack::raw("a path of 100 KB", format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000))),
        Attack::raw("no host", "GET /healthz HTTP/1.1\r\n\r\n"),
        Attack::raw("two hosts", get("host: other\r\n")),
        Attack::raw("another host", "GET /healthz HTTP/1.1\r\nhost: evil.example\r\n\r\n"),
        Attack::raw(
            "another host in the address",
            "GET http://evil.example/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        ),
        Attack::raw("a host that is none", "GET /healthz HTTP/1.1\r\nhost: a b/c\r\n\r\n"),
        Attack::raw("an origin elsewhere", get("origin: https://evil.example\r\n")),
        Attack::raw("a tunnel", "CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        Attack::raw("two lengths", post("content-length: 2\r\ncontent-length: 3\r\n", "{}x")),
        Attack::raw("a list of lengths", post("content-length: 2, 3\r\n", "{}x")),
        Attack::raw("a negative length", post("content-length: -1\r\n", "{}")),
        Attack::raw("a length with a sign", post("content-length: +2\r\n", "{}")),
        Attack::raw("a length in hex", post("content-length: 0x2\r\n", "{}")),
        Attack::raw(
            "a length beyond numbers",
            post(&format!("content-length: {}\r\n", "9".repeat(40)), "{}"),
        ),
        Attack::raw("a length beyond the limit", post("content-length: 99999999999\r\n", "{}")),
        Attack::raw(
            "chunks and a length",
            post("transfer-encoding: chunked\r\ncontent-length: 40\r\n", "zz\r\n\r\n"),
        ),
        Attack::raw("chunks twice", post("transfer-encoding: chunked, chunked\r\n", "0\r\n\r\n")),
        Attack::raw("chunks not last", post("transfer-encoding: chunked, gzip\r\n", "0\r\n\r\n")),
        Attack::raw(
            "chunks under another name",
            post("transfer-encoding: xchunked\r\n", "0\r\n\r\n"),
        ),
        Attack::raw(
            "chunks in HTTP/1.0",
            format!(
                "POST /v1/sessions HTTP/1.0\r\n{auth}transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
    ];
    for (name, chunks) in [
        ("a chunk without a size", "\r\nabc\r\n"),
        ("a chunk whose size is a word", "many\r\nabc\r\n"),
        ("a chunk of a negative size", "-5\r\nabc\r\n"),
        ("a chunk of 2^70 bytes", "400000000000000000\r\nabc\r\n"),
        ("a chunk longer than its size", "2\r\nabcdef\r\n0\r\n\r\n"),
        ("a chunk with an endless extension", &format!("2;{}", "a".repeat(60_000))),
    ] {
        all.push(Attack::raw(name, post("transfer-encoding: chunked\r\n", chunks)));
    }
    all
}

/// A length and chunks: a parser that uses the length sees another request after the chunks. Here
/// it is neither answered nor executed, and the connection is closed.
#[tokio::test]
async fn a_request_that_is_hidden_in_another_is_never_done() {
    let target = Target::new().await;
    let hidden = request("DELETE", "/v1/sessions/s", "", b"");
    for headers in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "content-length: 5\r\nTransfer-Encoding: CHUNKED\r\n",
    ] {
        let outer = request("POST", "/v1/sessions/s/messages", headers, b"");
        let bytes = [&outer, &b"0\r\n\r\n"[..], &hidden].concat();
        let mut stream = TcpStream::connect(target.address()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let received = String::from_utf8(until_closed(&mut stream).await).unwrap();
        assert_eq!(received.matches("HTTP/1.1 ").count(), 1, "{headers}: {received}");
        assert!(received.starts_with("HTTP/1.1 400"), "{headers}: {received}");
    }
    target.still_serves().await;
    target.stop().await;
}

impl Attack {
    /// Nothing more is sent, so the request never becomes complete: closing is the only way out.
    fn ended(mut self) -> Self {
        self.bytes.extend_from_slice(b"\r\n\r\n");
        self
    }
}
