//! A fake provider that sends scripted bytes.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// One step of a response.
#[derive(Debug, Clone)]
pub enum ServerStep {
    Send(Vec<u8>),
    /// Waits for a permit.
    Wait(Arc<Semaphore>),
    /// Closes the connection.
    HangUp,
    /// Sends nothing until the client closes the connection.
    Hold,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub head: String,
    pub body: serde_json::Value,
    /// The number of its connection.
    pub connection: usize,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A server on a free port.
pub struct FakeProvider {
    pub base: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    hung_up: Arc<Semaphore>,
}

impl FakeProvider {
    /// Sends these responses in order; after the last it closes the connection.
    pub async fn start(answers: impl IntoIterator<Item = Vec<ServerStep>>) -> Self {
        Self::start_with(None, answers).await
    }

    /// The same, with TLS.
    pub async fn start_with(
        tls: Option<TlsAcceptor>,
        answers: impl IntoIterator<Item = Vec<ServerStep>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let base = match tls {
            Some(_) => format!("https://localhost:{port}"),
            None => format!("http://127.0.0.1:{port}"),
        };
        let requests = Arc::new(Mutex::new(Vec::new()));
        let hung_up = Arc::new(Semaphore::new(0));
        let answers: Arc<Mutex<VecDeque<Vec<ServerStep>>>> =
            Arc::new(Mutex::new(answers.into_iter().collect()));
        let fake = Self { base, requests: Arc::clone(&requests), hung_up: Arc::clone(&hung_up) };
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (requests, answers) = (Arc::clone(&requests), Arc::clone(&answers));
                let (hung_up, tls) = (Arc::clone(&hung_up), tls.clone());
                stream.set_nodelay(true).unwrap();
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, connection, &requests, &answers, &hung_up).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, connection, &requests, &answers, &hung_up).await;
                            }
                        }
                    }
                });
            }
        });
        fake
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().clone()
    }

    /// Waits until a client has closed its connection.
    pub async fn wait_for_disconnect(&self) {
        self.hung_up.acquire().await.unwrap().forget();
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    requests: &Mutex<Vec<ReceivedRequest>>,
    answers: &Mutex<VecDeque<Vec<ServerStep>>>,
    hung_up: &Semaphore,
) {
    let mut read = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut read).await {
        requests.lock().push(ReceivedRequest {
            head,
            body: serde_json::from_slice(&body).unwrap_or_default(),
            connection,
        });
        let Some(steps) = answers.lock().pop_front() else { return };
        for step in steps {
            match step {
                ServerStep::Send(bytes) => {
                    let sent = async {
                        stream.write_all(&bytes).await?;
                        stream.flush().await
                    };
                    if sent.await.is_err() {
                        return hung_up.add_permits(1);
                    }
                }
                ServerStep::Wait(gate) => gate.acquire().await.unwrap().forget(),
                ServerStep::HangUp => return,
                ServerStep::Hold => {
                    let mut rest = [0; 64];
                    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                    return hung_up.add_permits(1);
                }
            }
        }
    }
}

/// The next request: its head and its body.
async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
) -> Option<(String, Vec<u8>)> {
    loop {
        let end = read.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        if let Some(end) = end {
            let head = String::from_utf8(read[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
            });
            let whole = end + length.unwrap_or(0);
            if read.len() >= whole {
                let rest = read.split_off(whole);
                let body = std::mem::replace(read, rest).split_off(end);
                return Some((head, body));
            }
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

/// The head of a stream.
pub fn stream_head(media_type: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
    format!("{head}content-type: {media_type}\r\n\r\n").into_bytes()
}

pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A complete stream, in pieces of `cut` bytes.
pub fn whole_stream(body: &str, cut: usize) -> Vec<ServerStep> {
    let mut steps = open_stream(body, cut);
    steps.push(ServerStep::Send(LAST_CHUNK.to_vec()));
    steps
}

/// A stream without an end.
pub fn open_stream(body: &str, cut: usize) -> Vec<ServerStep> {
    let mut steps = vec![ServerStep::Send(stream_head("text/event-stream; charset=utf-8"))];
    steps.extend(body.as_bytes().chunks(cut).map(|piece| ServerStep::Send(chunk(piece))));
    steps
}

/// A response that is not a stream.
pub fn status_response(status: &str, headers: &str, body: &str) -> Vec<ServerStep> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    vec![ServerStep::Send(head.into_bytes())]
}
