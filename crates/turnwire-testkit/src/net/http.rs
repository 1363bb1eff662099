//! A minimal HTTP/1.1 client for tests: one request on one connection.

use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Additional headers of a request.
pub type Headers<'a> = &'a [(&'a str, &'a str)];

/// The bytes of a request.
pub fn request(
    host: SocketAddr,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &[u8],
) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
    for (name, value) in headers {
        // Writing to a string cannot fail.
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if !body.is_empty() {
        let _ = write!(head, "content-length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// Sends a request on a new connection and reads the whole response. An incomplete response is an error.
pub async fn send_http(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &[u8],
) -> io::Result<HttpResponse> {
    let headers = [headers, &[("connection", "close")]].concat();
    StreamingResponse::send(to, &request(to, method, path, &headers, body))
        .await?
        .read_to_end()
        .await
}

/// A complete response.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; `null` if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The `type` of an error response.
    pub fn error_type(&self) -> String {
        let kind =
            self.json().pointer("/error/type").and_then(|kind| kind.as_str().map(str::to_owned));
        kind.unwrap_or_default()
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// A response that is read piece by piece.
#[derive(Debug)]
pub struct StreamingResponse {
    /// The status.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    stream: TcpStream,
    /// Bytes that were read but not returned yet.
    buffer: Vec<u8>,
    left: BodyLeft,
}

/// The rest of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyLeft {
    /// This many bytes.
    Bytes(usize),
    /// The size of the next chunk.
    ChunkSize,
    /// This many bytes of a chunk, and its line end.
    Chunk(usize),
    /// Nothing.
    Nothing,
}

impl StreamingResponse {
    /// Sends bytes on a new connection and reads the head of the response.
    pub async fn send(to: SocketAddr, request: &[u8]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(to).await?;
        stream.write_all(request).await?;
        Self::read_head(stream).await
    }

    /// Reads the head of a response.
    pub async fn read_head(mut stream: TcpStream) -> io::Result<Self> {
        let mut buffer = Vec::new();
        let end = loop {
            if let Some(at) = find(&buffer, b"\r\n\r\n") {
                break at;
            }
            read_more(&mut stream, &mut buffer).await?;
        };
        let rest = buffer.split_off(end + 4);
        let head = String::from_utf8(buffer)
            .map_err(|_| invalid_data("the response head is not UTF-8"))?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| invalid_data("the response head has no status"))?;
        let length = header(&head, "content-length").and_then(|length| length.parse().ok());
        let left = match length {
            _ if matches!(status, 100..=199 | 204 | 304) => BodyLeft::Nothing,
            Some(length) => BodyLeft::Bytes(length),
            None if header(&head, "transfer-encoding") == Some("chunked") => BodyLeft::ChunkSize,
            None => BodyLeft::Nothing,
        };
        Ok(Self { status, head, stream, buffer: rest, left })
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The next bytes of the body; `None` at its end. An incomplete body is an error. Cancel-safe: bytes that
    /// were read are kept.
    pub async fn next_bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.left {
                BodyLeft::Nothing | BodyLeft::Bytes(0) => return Ok(None),
                BodyLeft::Bytes(left) if !self.buffer.is_empty() => {
                    let count = left.min(self.buffer.len());
                    self.left = BodyLeft::Bytes(left - count);
                    return Ok(Some(self.buffer.drain(..count).collect()));
                }
                BodyLeft::ChunkSize => {
                    if let Some(end) = find(&self.buffer, b"\r\n") {
                        let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                        let text = String::from_utf8_lossy(&line);
                        let size = usize::from_str_radix(text.trim(), 16);
                        self.left =
                            match size.map_err(|_| invalid_data("a chunk without a size"))? {
                                0 => BodyLeft::Nothing,
                                size => BodyLeft::Chunk(size),
                            };
                        continue;
                    }
                }
                BodyLeft::Chunk(left) if self.buffer.len() >= left + 2 => {
                    let bytes = self.buffer.drain(..left).collect();
                    self.buffer.drain(..2);
                    self.left = BodyLeft::ChunkSize;
                    return Ok(Some(bytes));
                }
                BodyLeft::Chunk(left) if !self.buffer.is_empty() && self.buffer.len() < left => {
                    let bytes: Vec<u8> = std::mem::take(&mut self.buffer);
                    self.left = BodyLeft::Chunk(left - bytes.len());
                    return Ok(Some(bytes));
                }
                BodyLeft::Bytes(_) | BodyLeft::Chunk(_) => {}
            }
            read_more(&mut self.stream, &mut self.buffer).await?;
        }
    }

    /// Reads the rest of the body.
    pub async fn read_to_end(mut self) -> io::Result<HttpResponse> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next_bytes().await? {
            body.extend(bytes);
        }
        Ok(HttpResponse { status: self.status, head: self.head, body })
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

fn invalid_data(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(buffer).await? {
        0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the response is incomplete")),
        _ => Ok(()),
    }
}
