//! A fake model provider (OpenAI Chat) for the time of a measurement. Its tokens carry the time, as
//! those of the server's model `clock`.

use super::error::{BenchError, Result};
use serde_json::Value;
use std::io;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::SystemTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use turnwire_agent::model::clock::{ClockRequest, TimedToken};

/// Larger than any request of a measurement.
const MAX_REQUEST: usize = 1 << 20;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Transfer-Encoding: chunked\r\n\r\n";
/// The JSON around a token's text.
const BEFORE: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"clock","choices":[{"index":0,"delta":{"content":""#;
const BEHIND: &str = "\"},\"finish_reason\":null}]}\n\n";
const END: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
    \"model\":\"clock\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
    data: [DONE]\n\n";

/// Listens until it is dropped.
pub(super) struct FakeProvider {
    _connections: JoinSet<()>,
}

impl FakeProvider {
    pub(super) async fn start(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            BenchError::new(format!("cannot listen at {address} as the model provider: {error}"))
        })?;
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while open.try_join_next().is_some() {}
                open.spawn(async move {
                    // A closed connection is a cancelled request.
                    let _ = serve(stream).await;
                });
            }
        });
        Ok(Self { _connections: connections })
    }
}

/// Answers the requests of a connection.
async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut inbox = Vec::new();
    loop {
        let request = loop {
            if let Some((request, length)) = parse_request(&inbox)? {
                inbox.drain(..length);
                break request;
            }
            if inbox.len() > MAX_REQUEST || stream.read_buf(&mut inbox).await? == 0 {
                return Ok(());
            }
        };
        send_tokens(&mut stream, request).await?;
    }
}

/// The requested tokens, and the length of the request; `None` while it is incomplete.
fn parse_request(bytes: &[u8]) -> io::Result<Option<(ClockRequest, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
    let httparse::Status::Complete(head) = request.parse(bytes).map_err(wrong)? else {
        return Ok(None);
    };
    let length = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse().ok())
        .unwrap_or(0_usize);
    let whole = head.saturating_add(length);
    let Some(body) = bytes.get(head..whole) else { return Ok(None) };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let last = body.pointer("/messages").and_then(Value::as_array).and_then(|all| all.last());
    let content = last.and_then(|message| message.get("content")).map(Value::to_string);
    Ok(Some((ClockRequest::parse(&content.unwrap_or_default()), whole)))
}

/// Sends each token when it is due, in its own packet.
async fn send_tokens(stream: &mut TcpStream, request: ClockRequest) -> io::Result<()> {
    let begin = Instant::now();
    stream.write_all(HEAD).await?;
    let mut chunk = Vec::new();
    let length = BEFORE.len() + 1 + usize::from(TimedToken::DIGITS) + BEHIND.len();
    for nth in 0..request.tokens {
        tokio::time::sleep_until(begin + request.due(nth)).await;
        let token = TimedToken::new(nth, SystemTime::now());
        chunk.clear();
        write!(chunk, "{length:x}\r\n{BEFORE}{token}{BEHIND}\r\n")?;
        stream.write_all(&chunk).await?;
    }
    let end = format!("{:x}\r\n{END}\r\n0\r\n\r\n", END.len());
    stream.write_all(end.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_when_it_is_complete() {
        let body = r#"{"model":"clock","messages":[{"role":"system","content":"1 2"},{"role":"user","content":"30 tokens, 10 a second"}]}"#;
        let length = body.len();
        let request = format!(
            "POST /chat/completions HTTP/1.1\r\nhost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        for cut in 0..request.len() {
            assert!(parse_request(&request.as_bytes()[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        let followed = request.clone() + "POST";
        let found = parse_request(followed.as_bytes()).unwrap();
        assert_eq!(found, Some((ClockRequest { tokens: 30, rate: 10 }, request.len())));
        assert!(parse_request(b"\x16\x03\x01 not http\r\n\r\n").is_err());
    }
}
