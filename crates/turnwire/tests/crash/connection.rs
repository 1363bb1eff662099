//! An HTTP/1.1 connection with keep-alive that knows when a response is complete. The cluster tests use it, too.

use crate::PATIENCE;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[derive(Clone)]
pub struct Request {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &'static str, path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: body.into() }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path, "")
    }

    pub fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new("POST", path, body.to_string())
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// A connection.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(address: &str) -> io::Result<Self> {
        Self::open_with_patience(address, PATIENCE)
    }

    /// Opens a connection that fails when nothing comes for this time.
    pub fn open_with_patience(address: &str, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    pub fn send(&mut self, request: &Request) -> io::Result<()> {
        let Request { method, path, headers, body } = request;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.0.get_mut().write_all(&bytes)
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// Reads the head of a response.
    pub fn read_head(&mut self) -> io::Result<Answer> {
        let first = self.read_line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| Error::other(format!("no answer: {first}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.read_line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Answer { status, headers, body: Vec::new() })
    }

    /// Reads the next chunk of a body; `None` at its end.
    pub fn read_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = self.read_line()?;
        let size = usize::from_str_radix(&size, 16).map_err(Error::other)?;
        let mut chunk = vec![0; size];
        self.0.read_exact(&mut chunk)?;
        self.read_line()?;
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    pub fn call(&mut self, request: &Request) -> io::Result<Answer> {
        self.send(request)?;
        let mut answer = self.read_head()?;
        if let Some(length) = answer.header("content-length") {
            answer.body = vec![0; length.parse().map_err(Error::other)?];
            self.0.read_exact(&mut answer.body)?;
        } else if answer.status != 204 {
            while let Some(chunk) = self.read_chunk()? {
                answer.body.extend_from_slice(&chunk);
            }
        }
        Ok(answer)
    }
}
