//! The events of a session: each once and in order, across lost connections and restarts.

use super::api::escape_path_segment;
use super::error::ClientError;
use super::http::{ApiRequest, Endpoint};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use turnwire_core::{Event, EventKind, Head};
use turnwire_wires::body::FrameReader;

/// A server sends a heartbeat every 15 seconds by default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryLimit {
    /// Until the user gives up.
    Unlimited,
    /// For this time.
    For(Duration),
}

impl RetryLimit {
    pub(super) fn start_backoff(self) -> Backoff {
        let end = match self {
            Self::Unlimited => None,
            Self::For(time) => Some(Instant::now() + time),
        };
        Backoff { end, next: Duration::from_millis(100) }
    }
}

/// The state of a retry loop.
pub(super) struct Backoff {
    end: Option<Instant>,
    next: Duration,
}

impl Backoff {
    /// Waits, longer each time; `false` when the limit is reached.
    pub(super) async fn wait(&mut self) -> bool {
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return false;
        }
        sleep(self.next).await;
        self.next = (self.next * 2).min(Duration::from_secs(2));
        true
    }
}

/// An event of the session, or a change of the connection.
#[derive(Debug)]
pub(crate) enum StreamNotice {
    /// An event, and its JSON.
    Event(Box<Event<'static>>, String),
    /// The connection is lost and retried.
    Disconnected(String),
    /// The connection is restored.
    Reconnected,
}

/// The session to follow, and the cursor.
#[derive(Debug, Clone)]
pub(crate) struct StreamTarget {
    pub(crate) session: String,
    pub(crate) epoch: String,
    /// The last known event.
    pub(crate) cursor: Head,
    /// Every event as written, instead of merged deltas.
    pub(crate) raw: bool,
}

/// A stream of events that reconnects by itself. Dropping it ends it.
pub(crate) struct EventStream {
    notices: mpsc::Receiver<Result<StreamNotice, ClientError>>,
    task: JoinHandle<()>,
    epoch: String,
    cursor: Head,
}

impl EventStream {
    pub(crate) fn new(endpoint: Endpoint, retry_limit: RetryLimit, target: StreamTarget) -> Self {
        let (epoch, cursor) = (target.epoch.clone(), target.cursor);
        let backoff = retry_limit.start_backoff();
        let mut watcher = StreamTask {
            endpoint,
            target,
            retry_limit,
            stream: None,
            backoff,
            is_loss_reported: false,
        };
        // In its own task, because the caller drops `next` futures in a `select!`.
        let (sender, notices) = mpsc::channel(256);
        let task = tokio::spawn(async move {
            loop {
                let notice = watcher.next().await;
                let is_over = notice.is_err();
                if sender.send(notice).await.is_err() || is_over {
                    return;
                }
            }
        });
        Self { notices, task, epoch, cursor }
    }

    /// The next notice. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<StreamNotice, ClientError> {
        let Some(notice) = self.notices.recv().await else {
            return Err(ClientError::Transient("the stream has ended".to_owned()));
        };
        if let Ok(StreamNotice::Event(event, _)) = &notice {
            if let EventKind::Reset(reset) = &event.kind {
                self.epoch.clone_from(&reset.epoch);
                self.cursor = Head::EMPTY;
            }
            self.cursor = event.seq.map_or(self.cursor, Head::from);
        }
        notice
    }

    /// The epoch of the session, and the cursor after the last returned event.
    pub(crate) fn position(&self) -> (&str, Head) {
        (&self.epoch, self.cursor)
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task that keeps the connection open.
struct StreamTask {
    endpoint: Endpoint,
    target: StreamTarget,
    retry_limit: RetryLimit,
    stream: Option<SseResponse>,
    backoff: Backoff,
    /// The loss of the connection was reported.
    is_loss_reported: bool,
}

/// A streaming response.
struct SseResponse {
    body: Incoming,
    frames: FrameReader,
    ready: std::collections::VecDeque<String>,
}

impl StreamTask {
    async fn next(&mut self) -> Result<StreamNotice, ClientError> {
        loop {
            let error = match self.stream.as_mut() {
                None => match self.connect().await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        if std::mem::take(&mut self.is_loss_reported) {
                            return Ok(StreamNotice::Reconnected);
                        }
                        continue;
                    }
                    Err(error) => error,
                },
                Some(stream) => match stream.next().await {
                    Ok(text) => match self.parse_event(text) {
                        Some(notice) => return notice,
                        None => continue,
                    },
                    Err(why) => ClientError::Transient(why),
                },
            };
            self.stream = None;
            let ClientError::Transient(why) = error else { return Err(error) };
            if !self.is_loss_reported {
                self.is_loss_reported = true;
                self.backoff = self.retry_limit.start_backoff();
                return Ok(StreamNotice::Disconnected(why));
            }
            if !self.backoff.wait().await {
                return Err(ClientError::Transient(why));
            }
        }
    }

    async fn connect(&self) -> Result<SseResponse, ClientError> {
        let StreamTarget { session, epoch, cursor, raw } = &self.target;
        let path = format!("/v1/sessions/{}/events?raw={raw}", escape_path_segment(session));
        let token = format!("{epoch}.{cursor}");
        let headers = [("accept", "text/event-stream"), ("last-event-id", &*token)];
        let ask =
            ApiRequest { method: Method::GET, path: &path, headers: &headers, body: Bytes::new() };
        let (head, body) = self.endpoint.send(ask).await?.into_parts();
        if head.status.is_success() {
            return Ok(SseResponse { body, frames: FrameReader::default(), ready: <_>::default() });
        }
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes);
        Err(ClientError::from_response(head.status.as_u16(), &bytes.unwrap_or_default()))
    }

    fn parse_event(&mut self, text: String) -> Option<Result<StreamNotice, ClientError>> {
        let event = match Event::from_json(&text) {
            Ok(event) => event.into_owned(),
            Err(error) => {
                return Some(Err(ClientError::Unexpected(format!("invalid event: {error}"))));
            }
        };
        if let EventKind::Reset(reset) = &event.kind {
            // All events come again.
            self.target.epoch.clone_from(&reset.epoch);
            self.target.cursor = Head::EMPTY;
        } else if let Some(seq) = event.seq {
            if self.target.cursor.includes(seq) {
                return None;
            }
            self.target.cursor = seq.into();
        }
        Some(Ok(StreamNotice::Event(Box::new(event), text)))
    }
}

impl SseResponse {
    /// The next frame.
    async fn next(&mut self) -> Result<String, String> {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return Ok(text);
            }
            let frame = timeout(IDLE_TIMEOUT, self.body.frame()).await;
            let frame = frame.map_err(|_| "no data for 75 seconds".to_owned())?;
            let frame = frame.ok_or_else(|| "the server closed the stream".to_owned())?;
            let frame = frame.map_err(|error| error.to_string())?;
            let Some(bytes) = frame.data_ref() else { continue };
            let ready = &mut self.ready;
            // Invalid UTF-8 is dropped; the next frames are still good.
            self.frames.feed(bytes, &mut |frame| ready.extend(frame.text.ok().map(str::to_owned)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use turnwire_core::Seq;

    fn event(seq: u64) -> String {
        let json = format!(r#"{{"type":"CUSTOM","id":"{seq}","name":"n","seq":{seq}}}"#);
        format!("id: e.{seq}\ndata: {json}\n\n")
    }

    /// Answers each connection with the next of these, cut off at its end, and returns the
    /// requests.
    async fn serve_responses(listener: TcpListener, answers: Vec<String>) -> Vec<String> {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let count = stream.read(&mut request).await.unwrap();
            asked.push(String::from_utf8_lossy(&request[..count]).into_owned());
            // Longer than the body: the connection is cut off.
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
            stream.write_all(format!("{head}: hello\n\n{answer}").as_bytes()).await.unwrap();
        }
        asked
    }

    #[tokio::test]
    async fn the_stream_resumes_after_the_last_event_and_drops_repeated_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(&listener.local_addr().unwrap().to_string(), None).unwrap();
        let reset = "data: {\"type\":\"RESET\",\"epoch\":\"f\",\"reason\":\"restored\"}\n\n";
        let answers = vec![
            // The last frame is incomplete: it does not count.
            format!("{}{}{}", event(5), event(6), &event(7)[..20]),
            format!("{}{}", event(6), event(7)),
            format!("{reset}{}", event(1)),
            String::new(),
        ];
        let serving = tokio::spawn(serve_responses(listener, answers));
        let (session, epoch) = ("a b".to_owned(), "e".to_owned());
        let target = StreamTarget { session, epoch, cursor: Head::new(4), raw: true };
        let mut watch = EventStream::new(endpoint, RetryLimit::For(Duration::from_secs(1)), target);
        let mut seen = Vec::new();
        let end = loop {
            match watch.next().await {
                Ok(StreamNotice::Event(event, _)) => seen.push(event.seq.map_or(0, Seq::get)),
                Ok(StreamNotice::Disconnected(_) | StreamNotice::Reconnected) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(end, ClientError::Transient(_)), "{end:?}");
        assert_eq!(seen, [5, 6, 7, 0, 1]);
        assert_eq!(watch.position(), ("f", Head::new(1)));
        let asked = serving.await.unwrap();
        let tokens: Vec<_> = asked
            .iter()
            .filter_map(|request| {
                request.lines().find_map(|line| line.strip_prefix("last-event-id: "))
            })
            .collect();
        assert_eq!(tokens, ["e.4", "e.6", "e.7", "f.1"]);
        assert!(asked[0].starts_with("GET /v1/sessions/a%20b/events?raw=true "), "{}", asked[0]);
    }
}
