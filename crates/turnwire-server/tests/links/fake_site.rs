//! A web server that behaves as badly as it is asked to.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

pub const PNG: &[u8] = b"\x89PNG\r\n\x1a\nnot much of a picture";

pub struct FakeSite {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    /// Changes with each request.
    requests: watch::Sender<usize>,
    /// How many of those who wait at `/gate.png` may go on.
    pub gate: Arc<Semaphore>,
}

impl FakeSite {
    pub async fn open() -> Self {
        Self::open_with(None).await
    }

    /// The same behind TLS.
    pub async fn open_with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let gate = Arc::new(Semaphore::new(0));
        let requests = watch::Sender::new(0);
        let (asked_, gate_, requests_) = (asked.clone(), gate.clone(), requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, gate, tls) = (asked_.clone(), gate_.clone(), tls.clone());
                let requests = requests_.clone();
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            answer(tls.accept(stream).await.ok()?, asked, gate, requests).await
                        }
                        None => answer(stream, asked, gate, requests).await,
                    }
                });
            }
        });
        Self { address, asked, requests, gate }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits for the first so many requests.
    pub async fn wait_for_requests(&self, count: usize) {
        self.requests.subscribe().wait_for(|requests| *requests >= count).await.unwrap();
    }

    /// The paths that were asked for. A connection on which nothing was asked is an empty one.
    pub fn requested_paths(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    asked: Arc<Mutex<Vec<String>>>,
    gate: Arc<Semaphore>,
    requests: watch::Sender<usize>,
) -> Option<()> {
    let at = {
        let mut asked = asked.lock();
        asked.push(String::new());
        asked.len() - 1
    };
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1)?.to_owned();
    asked.lock()[at].clone_from(&path);
    requests.send_modify(|requests| *requests += 1);
    let whole = |kind: &str, body: &[u8]| {
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    let (name, query) = path.split_once('?').unwrap_or((&path, ""));
    let bytes = match name {
        "/cat.png" | "/same.png" | "/b%C3%A1o.png" => whole("image/png", PNG),
        "/gate.png" => {
            gate.acquire().await.ok()?.forget();
            whole("image/png", PNG)
        }
        "/lying.png" => whole("image/jpeg", PNG),
        // Any type that the query says.
        "/as" => whole(&query.replace("%20", " "), b"<script>1</script>"),
        "/page" => whole("text/html; charset=utf-8", b"<h1>Please accept cookies</h1>"),
        "/zip" => whole("application/zip", b"PK\x03\x04"),
        "/empty" => whole("image/png", b""),
        "/notes" => whole("text/plain", b"some notes"),
        "/large" => b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 99999999\r\n\r\n".to_vec(),
        "/endless" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n").await.ok()?;
            stream.write_all(b"transfer-encoding: chunked\r\n\r\n").await.ok()?;
            // Until nobody reads it any more.
            loop {
                let chunk = [b"400\r\n".as_slice(), &[7; 1024], b"\r\n"].concat();
                stream.write_all(&chunk).await.ok()?;
            }
        }
        "/broken" => {
            b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 100\r\n\r\nonly this".to_vec()
        }
        "/gzip" => {
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx".to_vec()
        }
        "/slow" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n").await.ok()?;
            // It never says more.
            let _ = stream.read_u8().await;
            return None;
        }
        "/to" => format!("HTTP/1.1 302 Found\r\nlocation: {query}\r\ncontent-length: 0\r\n\r\n").into_bytes(),
        "/loop" => b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /loop\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "/rubbish" => b"who is there?\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
    };
    stream.write_all(&bytes).await.ok()?;
    stream.shutdown().await.ok()
}
