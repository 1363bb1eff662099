//! A subscriber: one client that follows a session or a reply.
//!
//! [`Subscriber`] is the only loop that waits for events after a cursor, sends heartbeats, and ends a stream: when it is
//! complete, when the client's credentials expire, or when the server stops. Its [`Source`] reads and encodes the
//! events: [`SessionSource`](super::SessionSource) for streams of a session,
//! [`ReplySource`](super::ReplySource) for the response to one request.

use super::backlog_cache::BacklogCache;
use super::feed::{FeedState, Feeds};
use crate::auth::is_expired;
use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use turnwire_core::Head;
use turnwire_log::{Error, HeadState, Result, Session};
use turnwire_wires::Wire;

/// What all subscribers share.
pub struct StreamContext {
    /// The live feeds.
    pub feeds: Feeds,
    /// Backlogs that were encoded recently.
    pub backlogs: BacklogCache,
    /// Ends all streams, except responses to requests.
    pub shutdown: CancellationToken,
    /// Ends responses to requests, too.
    pub force_stop: CancellationToken,
    /// How often a silent stream sends a heartbeat.
    pub heartbeat: Duration,
    /// Whether streams stay open while the store cannot be read, because it is a database that may come back.
    pub outlives_store_errors: bool,
}

/// How long a stream waits until it reads again after an error of the store.
const READ_PAUSE: Duration = Duration::from_millis(500);

/// One client that follows a session or a reply.
pub struct Subscriber<S> {
    position: Position,
    pub(super) source: S,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Only the final frames are left to send.
    Ending,
    Ended,
}

/// Where a subscriber is in the log of its session.
pub struct Position {
    pub(super) session: Arc<Session>,
    pub(super) context: Arc<StreamContext>,
    pub(super) cursor: Head,
    head: watch::Receiver<HeadState>,
    /// When the client's credentials expire.
    expires_at: Option<Instant>,
    last_sent: Instant,
    /// Resetting a timer takes a lock that all timers share. So it is left alone while events come, and reset when it
    /// fires too early.
    heartbeat_timer: Pin<Box<Sleep>>,
}

/// Reads and encodes the events of a subscriber.
pub trait Source: Send {
    /// The protocol.
    fn wire(&self) -> &'static Wire;

    /// What ends the stream when the server stops.
    fn stop_token<'c>(&self, context: &'c StreamContext) -> &'c CancellationToken;

    /// Sent before everything else, at once.
    fn greeting(&self, _position: &Position) -> Option<Bytes> {
        None
    }

    /// Whether there are frames to send.
    fn has_output(&self) -> bool;

    /// Takes the frames to send.
    fn take_bytes(&mut self) -> Bytes;

    /// Decides what to do next, without waiting. May produce output.
    fn next_step(&mut self, position: &mut Position, head: HeadState) -> Result<Step>;

    /// Does what `next_step` answered with [`Step::Read`].
    fn read(
        &mut self,
        position: &mut Position,
        head: HeadState,
    ) -> impl Future<Output = Result<Step>> + Send;

    /// Produces the final frames.
    fn end(&mut self, position: &Position, end: StreamEnd) -> impl Future<Output = ()> + Send;

    /// The live feed to wait on instead of the session's head, which also reports that the server stops.
    fn feed(&mut self) -> Option<&mut watch::Receiver<FeedState>> {
        None
    }

    /// Called when the feed has changed.
    fn feed_changed(&mut self) {}

    /// The bytes of a heartbeat. Nothing has happened for a while.
    fn heartbeat(&mut self) -> Bytes;
}

/// What a subscriber does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send the output, or decide again.
    Continue,
    /// Read the log.
    Read,
    /// Wait for more events.
    Wait,
    /// Send the final frames, and end.
    End(StreamEnd),
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Everything was sent.
    Complete,
    /// The client's credentials expired.
    Expired,
    /// The server stops, or the session was deleted.
    Stopped,
}

/// What a subscriber has for its client.
pub(super) enum Next {
    /// The source has output.
    Frames,
    /// Nothing happened for a while.
    Heartbeat,
}

impl Position {
    fn wake_at(&self, last_sent: Instant) -> Instant {
        earliest(last_sent + self.context.heartbeat, self.expires_at)
    }

    /// The state of the session now.
    pub(super) fn head(&self) -> HeadState {
        *self.head.borrow()
    }
}

impl<S: Source> Subscriber<S> {
    /// A subscriber at the start of a session's log; its source moves it to where it begins.
    pub(super) fn open(
        session: Arc<Session>,
        source: S,
        expires_at: Option<Instant>,
        context: Arc<StreamContext>,
    ) -> Self {
        let now = Instant::now();
        let first_heartbeat = earliest(now + context.heartbeat, expires_at);
        let position = Position {
            head: session.watch_head(),
            session,
            context,
            cursor: Head::EMPTY,
            expires_at,
            last_sent: now,
            heartbeat_timer: Box::pin(sleep_until(first_heartbeat)),
        };
        Self { position, source, state: State::Open }
    }

    pub(super) fn parts(&mut self) -> (&mut Position, &mut S) {
        (&mut self.position, &mut self.source)
    }

    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// Its session.
    pub fn session(&self) -> &Arc<Session> {
        &self.position.session
    }

    /// What to send before everything else.
    pub(super) fn greeting(&self) -> Option<Bytes> {
        self.source.greeting(&self.position)
    }

    /// Its protocol.
    pub fn wire(&self) -> &'static Wire {
        self.source.wire()
    }

    /// The next bytes; `None` at the end of the stream. The future must not be dropped before it is ready: events that
    /// it has read would be lost to this subscriber.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        Some(match self.advance().await? {
            Ok(Next::Frames) => Ok(self.source.take_bytes()),
            Ok(Next::Heartbeat) => Ok(self.source.heartbeat()),
            Err(error) => Err(error),
        })
    }

    /// Goes on until there is something to send; `None` at the end of the stream.
    pub(super) async fn advance(&mut self) -> Option<Result<Next>> {
        let mut now = Instant::now();
        self.position.last_sent = now;
        loop {
            let is_open = self.state == State::Open;
            let has_expired = is_open && is_expired(self.position.expires_at, now);
            if self.state == State::Ended {
                return None;
            } else if !has_expired && self.source.has_output() {
                return Some(Ok(Next::Frames));
            } else if !is_open {
                self.state = State::Ended;
                return None;
            }
            let head = *self.position.head.borrow_and_update();
            let step = if has_expired {
                Ok(Step::End(StreamEnd::Expired))
            } else {
                self.source.next_step(&mut self.position, head)
            };
            let step = match step {
                // Boxed, so that a subscriber that waits does not hold the memory that reading needs.
                Ok(Step::Read) => Box::pin(self.source.read(&mut self.position, head)).await,
                other => other,
            };
            match step {
                Ok(Step::Continue | Step::Read) => {}
                Ok(Step::Wait) => {
                    let has_more = self.wait().await;
                    now = Instant::now();
                    if !has_more && !is_expired(self.position.expires_at, now) {
                        return Some(Ok(Next::Heartbeat));
                    }
                }
                Ok(Step::End(end)) => {
                    self.state = State::Ending;
                    Box::pin(self.source.end(&self.position, end)).await;
                }
                // A database may be away for a while, and come back.
                Err(Error::Store(_)) if self.position.context.outlives_store_errors => {
                    let token = self.source.stop_token(&self.position.context).clone();
                    token.run_until_cancelled(tokio::time::sleep(READ_PAUSE)).await;
                    now = Instant::now();
                    if now >= self.position.last_sent + self.position.context.heartbeat {
                        return Some(Ok(Next::Heartbeat));
                    }
                }
                Err(error) => {
                    self.state = State::Ended;
                    return Some(Err(error));
                }
            }
        }
    }

    /// Waits for more events. `false`: it is time for a heartbeat, or the credentials have expired.
    async fn wait(&mut self) -> bool {
        let Self { position, source, .. } = self;
        let Position { head, context, expires_at, last_sent, heartbeat_timer: timer, .. } =
            position;
        let silence = async {
            loop {
                timer.as_mut().await;
                let wake_at = earliest(*last_sent + context.heartbeat, *expires_at);
                if Instant::now() >= wake_at {
                    return;
                }
                timer.as_mut().reset(wake_at);
            }
        };
        let stop = source.stop_token(context);
        if let Some(feed) = source.feed() {
            tokio::select! {
                biased;
                _ = feed.changed() => {
                    source.feed_changed();
                    return true;
                }
                () = silence => {}
            }
        } else {
            tokio::select! {
                biased;
                _ = head.changed() => return true,
                () = stop.cancelled() => return true,
                () = silence => {}
            }
        }
        let next = position.wake_at(Instant::now());
        position.heartbeat_timer.as_mut().reset(next);
        false
    }
}

fn earliest(one: Instant, other: Option<Instant>) -> Instant {
    other.map_or(one, |other| one.min(other))
}
