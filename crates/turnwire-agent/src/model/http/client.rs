//! The connections to one provider.

use super::framing::{Framing, Head};
use super::line::{self, Line, PIECE, Way};
use super::provider::setup;
use crate::model::ModelError;
use crate::web;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use std::error::Error;
use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use url::{Position, Url};

/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(90);
/// How often those are looked through.
const LOOK: Duration = Duration::from_secs(15);

/// A client for one address. It is HTTP/1.1, so that one answer is one connection: whoever drops the
/// answer closes it, and no other waits behind it.
pub(super) struct Client {
    way: Way,
    /// How long a connection may take.
    connect: Duration,
    home: Arc<Home>,
}

/// Why a provider did not answer.
pub(super) enum Trouble {
    /// No connection in time.
    Slow,
    /// No connection.
    Unreached(Box<dyn Error + Send + Sync>),
    /// No answer.
    Broken(Box<dyn Error + Send + Sync>),
}

impl Client {
    pub fn new(address: &Url, connect: Duration) -> Result<Self, ModelError> {
        let way =
            Way::to(address).map_err(|error| setup(format!("TLS cannot be used: {error}")))?;
        Ok(Self { way, connect, home: Arc::default() })
    }

    /// Posts a body, and waits for the head of the answer.
    pub async fn post(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<(Head, Body), Trouble> {
        let question = Bytes::from(head(url, headers, body.len()));
        loop {
            let idle = self.home.take();
            let is_new = idle.is_none();
            let mut line = match idle {
                Some(line) => line,
                None => match timeout(self.connect, self.way.connect()).await {
                    Err(_) => return Err(Trouble::Slow),
                    Ok(Err(why)) => return Err(Trouble::Unreached(why)),
                    Ok(Ok(line)) => line,
                },
            };
            match line::ask(&mut line, &question, body).await {
                Ok((head, behind)) => {
                    let home = head.is_kept.then(|| Arc::clone(&self.home));
                    let framing = head.framing;
                    let line = Some(line);
                    let body = Body { line, framing, held: behind, is_fresh: true, home };
                    return Ok((head, body));
                }
                // It was closed while nobody used it.
                Err(broken) if broken.is_silent && !is_new => {}
                Err(broken) => return Err(Trouble::Broken(broken.into())),
            }
        }
    }
}

/// The head of a question.
fn head(url: &Url, headers: &HeaderMap, length: usize) -> Vec<u8> {
    let path = &url[Position::BeforePath..Position::AfterQuery];
    let host = &url[Position::BeforeHost..Position::AfterPort];
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    for (name, value) in [
        ("user-agent", HeaderValue::from_static(web::USER_AGENT)),
        ("accept", HeaderValue::from_static("*/*")),
        ("content-length", HeaderValue::from(length)),
    ] {
        if !headers.contains_key(name) {
            line::push(&mut head, name, &value);
        }
    }
    for (name, value) in headers {
        line::push(&mut head, name.as_str(), value);
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// The body of an answer. Dropping it closes the connection, unless it was read to its end.
pub(super) struct Body {
    /// Nothing once the body is over.
    line: Option<Line>,
    framing: Framing,
    /// What came and was not passed on.
    held: Vec<u8>,
    /// Whether something can be done with that before more comes.
    is_fresh: bool,
    /// Where the connection goes behind the end, if it can be used again.
    home: Option<Arc<Home>>,
}

impl Body {
    /// Passes on what comes next. Whether more may follow.
    pub async fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<bool, &'static str> {
        poll_fn(|cx| self.poll_read(cx, &mut each)).await
    }

    /// The same, for whoever polls.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<bool, &'static str>> {
        if std::mem::take(&mut self.is_fresh) {
            let held = std::mem::take(&mut self.held);
            return Poll::Ready(self.decode(&held, each));
        }
        let Some(line) = &mut self.line else { return Poll::Ready(Ok(false)) };
        let mut space = [MaybeUninit::uninit(); PIECE];
        let mut piece = ReadBuf::uninit(&mut space);
        // A line between two chunks that is not whole, which is far shorter than a piece.
        piece.put_slice(&self.held);
        let is_read = ready!(Pin::new(line).poll_read(cx, &mut piece)).is_ok();
        if piece.filled().len() > self.held.len() {
            return Poll::Ready(self.decode(piece.filled(), each));
        }
        self.line = None;
        let is_whole = is_read && self.framing == Framing::UntilClosed;
        Poll::Ready(if is_whole { Ok(false) } else { Err("the connection broke") })
    }

    fn decode(&mut self, bytes: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<bool, &'static str> {
        let used = self.framing.decode(bytes, each).inspect_err(|_| self.line = None)?;
        let rest = bytes.get(used..).unwrap_or_default();
        if self.framing != Framing::Over {
            rest.clone_into(&mut self.held);
            return Ok(true);
        }
        if let (Some(line), Some(home), []) = (self.line.take(), self.home.take(), rest) {
            home.give(line);
        }
        Ok(false)
    }
}

/// Where connections wait for their next use.
#[derive(Default)]
struct Home {
    rack: Mutex<Rack>,
}

#[derive(Default)]
struct Rack {
    /// The one that was used last is at the end.
    lines: Vec<(Instant, Line)>,
    /// Whether somebody throws the old ones away.
    is_watched: bool,
}

impl Home {
    /// One that is open, if there is any.
    fn take(&self) -> Option<Line> {
        let mut rack = self.rack.lock();
        while let Some((since, mut line)) = rack.lines.pop() {
            if is_good(since, &mut line) {
                return Some(line);
            }
        }
        None
    }

    /// Takes one in. Without a runtime, nobody would throw it away in time.
    fn give(self: &Arc<Self>, line: Line) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut rack = self.rack.lock();
        rack.lines.push((Instant::now(), line));
        if !std::mem::replace(&mut rack.is_watched, true) {
            runtime.spawn(watch(Arc::downgrade(self)));
        }
    }
}

/// Throws old and closed connections away, as long as there are any.
async fn watch(home: Weak<Home>) {
    loop {
        sleep(LOOK).await;
        let Some(home) = home.upgrade() else { return };
        let mut rack = home.rack.lock();
        rack.lines.retain_mut(|(since, line)| is_good(*since, line));
        if rack.lines.is_empty() {
            rack.is_watched = false;
            return;
        }
    }
}

/// Whether a connection can be used again: the other side has neither closed it nor said anything.
fn is_good(since: Instant, line: &mut Line) -> bool {
    let mut space = [MaybeUninit::uninit(); 1];
    let mut cx = Context::from_waker(Waker::noop());
    let read = Pin::new(line).poll_read(&mut cx, &mut ReadBuf::uninit(&mut space));
    since.elapsed() < IDLE && read.is_pending()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_for_its_next_use_but_not_for_ever() {
        let home = Arc::new(Home::default());
        let (line, _other) = duplex(64);
        home.give(Box::new(line));
        sleep(IDLE / 2).await;
        let line = home.take().expect("it is still good");
        assert!(home.take().is_none(), "it is used once at a time");
        home.give(line);
        sleep(IDLE + LOOK).await;
        assert!(home.rack.lock().lines.is_empty(), "nobody asked for it, and it is closed");
        assert!(!home.rack.lock().is_watched, "nothing is left to look at");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_closed_or_says_something_is_not_used_again() {
        let home = Arc::new(Home::default());
        let (closed, other) = duplex(64);
        drop(other);
        home.give(Box::new(closed));
        let (chatty, mut other) = duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut other, b"HTTP/1.1 408").await.expect("room");
        home.give(Box::new(chatty));
        assert!(home.take().is_none());
    }
}
