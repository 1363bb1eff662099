//! One who watches a session.

use super::backlog;
use super::cache::Backlogs;
use super::feed::{FAILED, Feed, Feeds, Taken};
use super::follow::messages_at;
use super::writer::{Framing, Merge, Shape, Writer};
use crate::auth::{expired, has_passed};
use crate::error::ApiError;
use bytes::Bytes;
use serde_json::json;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use turnwire_core::event::{Custom, CustomValue, Message, Reset, Supersede};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{Event, Msg, Seq};
use turnwire_log::store::{SessionStatus, Store};
use turnwire_log::walk::MessagePages;
use turnwire_log::{Error, HeadState, Result, Session};
use turnwire_wires::registry::ResumeMode;

/// Who is no further behind than this takes part in the feed.
const NEAR: u64 = 1024;

/// Where a watcher begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the first event.
    Beginning,
    /// Behind this place.
    After(u64),
    /// With what comes next.
    Now,
    /// The token leads nowhere: it is told so, and gets everything.
    Reset(&'static str),
}

/// When a stream ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Never.
    Closed,
    /// When no reply is open.
    Idle,
    /// When this place was sent, and no reply is open or one waits.
    Paused(u64),
}

/// One who watches a session: a place in its log, and how to go on from there.
pub struct Watcher {
    session: Arc<Session>,
    shape: Shape,
    until: Until,
    cursor: u64,
    /// What is there up to here is read from the log, and merged where that is wanted; what comes
    /// behind it is taken from the feed.
    missed: u64,
    head: watch::Receiver<HeadState>,
    feed: Option<(Arc<Feed>, watch::Receiver<u64>)>,
    writer: Option<Box<Writer>>,
    /// What has to be said before anything else.
    first: Option<Bytes>,
    /// Messages whose events are gone, which come before all events.
    older: Option<Box<Older>>,
    /// When it last had something to say, and what wakes it when that was long ago. Setting a timer
    /// takes a lock that all share, so it is left as it is while events come.
    spoke: Instant,
    quiet: Pin<Box<Sleep>>,
    /// When the credentials of its client expire.
    expires_at: Option<Instant>,
    shared: Arc<Shared>,
    has_ended: bool,
}

/// What all watchers share.
pub struct Shared {
    /// The feeds.
    pub feeds: Feeds,
    /// The backlogs.
    pub backlogs: Backlogs,
    /// Ends all streams, except answers to requests.
    pub shutdown: CancellationToken,
    /// Ends the answers to requests, too.
    pub closing: CancellationToken,
    /// How often a quiet stream says that it is still there.
    pub heartbeat: Duration,
}

impl Watcher {
    /// Begins to watch, up to the moment when the client's credentials expire.
    pub async fn new(
        session: Arc<Session>,
        shape: Shape,
        start: Start,
        until: Until,
        expires_at: Option<Instant>,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let head = session.watch_head();
        let mut watcher = Self {
            session,
            shape,
            until,
            cursor: 0,
            missed: 0,
            head,
            feed: None,
            writer: None,
            first: None,
            older: None,
            spoke: Instant::now(),
            quiet: Box::pin(sleep_until(earlier(Instant::now() + shared.heartbeat, expires_at))),
            expires_at,
            shared,
            has_ended: false,
        };
        watcher.begin(start).await?;
        Ok(watcher)
    }

    /// Finds the place where it begins, and what has to be said there.
    async fn begin(&mut self, start: Start) -> Result<()> {
        self.missed = match self.shape.merge {
            Merge::Deltas => self.head.borrow().head,
            Merge::Nothing => 0,
        };
        match start {
            Start::Now => self.cursor = self.head.borrow().head,
            Start::After(seq) => {
                self.cursor = match self.shape.wire.resume {
                    ResumeMode::Replay => backlog::turn_start(&self.session, seq).await?,
                    ResumeMode::Tail | ResumeMode::Snapshot => seq,
                };
            }
            Start::Beginning | Start::Reset(_) => self.start_over(start).await?,
        }
        if self.shape.wire.resume == ResumeMode::Snapshot && self.cursor > 0 {
            self.snapshot().await?;
        }
        Ok(())
    }

    /// What a client is told that comes in somewhere, where its protocol wants a picture first.
    async fn snapshot(&mut self) -> Result<()> {
        let mut writer = Box::new(backlog::warm(&self.session, &self.shape, self.cursor).await?);
        let turn = backlog::turn_start(&self.session, self.cursor).await?;
        writer.resume(&messages_at(&self.session, self.cursor, turn).await?);
        self.first = Some(writer.take());
        self.writer = Some(writer);
        Ok(())
    }

    /// Everything that there is: messages whose events are gone, whole; then the events.
    async fn start_over(&mut self, start: Start) -> Result<()> {
        let kept = self.session.first_seq().await?;
        let mut writer = Box::new(backlog::warm(&self.session, &self.shape, 0).await?);
        if let Start::Reset(reason) = start {
            let epoch = self.session.epoch().to_owned();
            writer.event(&Event::new("", Reset { epoch, reason: reason.to_owned() }));
        }
        self.older = (kept > Seq::FIRST).then(|| {
            let messages = self.session.message_pages().before(kept);
            Box::new(Older { messages, superseded: Vec::new() })
        });
        self.first = Some(writer.take());
        self.writer = Some(writer);
        self.cursor = kept.get() - 1;
        Ok(())
    }

    /// Some more messages whose events are gone; nothing when there are no more.
    async fn read_older(&mut self) -> Result<Option<Bytes>> {
        let (Some(older), Some(writer)) = (&mut self.older, &mut self.writer) else {
            return Ok(None);
        };
        let messages = older.messages.next_page().await?;
        if messages.is_empty() {
            let message_ids = std::mem::take(&mut older.superseded);
            self.older = None;
            if !message_ids.is_empty() {
                writer.event(&Event::new("", Supersede { message_ids }));
            }
            return Ok(Some(writer.take()));
        }
        for stored in messages {
            let Some(msg) = read(&stored.json) else { continue };
            if stored.superseded {
                older.superseded.push(stored.id);
            }
            let mut event = Event::new("", Message { message: Box::new(msg) });
            event.seq = Some(stored.last);
            writer.event(&event);
        }
        Ok(Some(writer.take()))
    }

    /// The place up to which everything was handed out.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Its protocol.
    pub fn wire(&self) -> &'static turnwire_wires::Wire {
        self.shape.wire
    }

    /// Its session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whether it would end at once, without a single event.
    pub fn is_over(&self) -> bool {
        let head = *self.head.borrow();
        self.first.as_ref().is_none_or(Bytes::is_empty)
            && self.older.is_none()
            && self.is_done(head)
    }

    /// What ends the stream when the server stops. The answer to a request has time to finish.
    fn stop(&self) -> &CancellationToken {
        match self.until {
            Until::Closed | Until::Idle => &self.shared.shutdown,
            Until::Paused(_) => &self.shared.closing,
        }
    }

    fn is_done(&self, head: HeadState) -> bool {
        self.cursor >= head.head
            && match self.until {
                Until::Closed => false,
                Until::Idle => head.status == SessionStatus::Idle,
                Until::Paused(seq) => self.cursor >= seq && head.status != SessionStatus::Running,
            }
    }

    /// The next bytes; `None` when the stream ends. It has to be awaited to its end: what it has
    /// read when it is dropped is lost to this watcher.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        if self.has_ended {
            return None;
        }
        self.spoke = Instant::now();
        if has_passed(self.expires_at, self.spoke) {
            return Box::pin(self.expire()).await;
        }
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some(Ok(first));
        }
        while self.older.is_some() {
            match Box::pin(self.read_older()).await {
                Ok(Some(bytes)) if !bytes.is_empty() => return Some(Ok(bytes)),
                Ok(_) => {}
                Err(error) => return Some(Box::pin(self.recover(error)).await),
            }
        }
        loop {
            let head = *self.head.borrow_and_update();
            if head.is_deleted || self.stop().is_cancelled() {
                self.has_ended = true;
                return None;
            }
            if self.is_done(head) {
                self.has_ended = true;
                return Box::pin(self.last_words()).await.map(Ok);
            }
            let nothing_yet = if self.cursor < head.head {
                match self.feed.as_ref().map(|(feed, _)| feed.take(self.cursor)) {
                    Some(Taken::Bytes(bytes, last)) => {
                        self.cursor = last;
                        if bytes.is_empty() {
                            continue;
                        }
                        return Some(Ok(bytes));
                    }
                    Some(Taken::NotYet) => true,
                    Some(Taken::Gone) => {
                        self.feed = None;
                        self.missed = head.head;
                        false
                    }
                    None => false,
                }
            } else {
                true
            };
            if nothing_yet {
                if !self.wait().await {
                    if has_passed(self.expires_at, Instant::now()) {
                        return Box::pin(self.expire()).await;
                    }
                    return Some(Ok(heartbeat(self.shape.framing)));
                }
                continue;
            }
            // Boxed, so that one who waits does not hold the room that reading needs.
            match Box::pin(self.read(head)).await {
                Ok(Some(bytes)) if !bytes.is_empty() => return Some(Ok(bytes)),
                Ok(_) => {}
                Err(error) => return Some(Box::pin(self.recover(error)).await),
            }
        }
    }

    /// A watcher so slow that what it had to read next is gone starts over; anything else ends it.
    async fn recover(&mut self, error: Error) -> Result<Bytes> {
        if matches!(error, Error::Trimmed(_)) {
            self.feed = None;
            self.begin(Start::Reset("the events behind the token are no longer kept")).await?;
            return Ok(self.first.take().unwrap_or_default());
        }
        self.has_ended = true;
        Err(error)
    }

    /// Reads what is in the log, or joins the feed, which has it. `None`: look again.
    async fn read(&mut self, head: HeadState) -> Result<Option<Bytes>> {
        // Feeds end when the server stops; an answer that goes on reads the log.
        let is_near = self.cursor >= self.missed && head.head - self.cursor <= NEAR;
        if is_near && !self.shared.shutdown.is_cancelled() {
            let Self { session, shape, shared, cursor, writer, .. } = &mut *self;
            let feed = shared.feeds.join(session, shape, *cursor, writer, &shared.shutdown);
            if self.cursor >= feed.start() {
                let receiver = feed.subscribe();
                // One that ended before it was subscribed to says nothing more.
                if !self.shared.shutdown.is_cancelled() {
                    self.feed = Some((feed, receiver));
                    self.writer = None;
                }
                return Ok(None);
            }
        }
        let Self { session, shape, shared, writer, .. } = self;
        let (bytes, last) =
            backlog::next(session, shape, &shared.backlogs, writer, self.cursor).await?;
        self.cursor = last;
        self.missed = self.missed.min(head.head);
        Ok(Some(bytes))
    }

    /// Ends because the client's credentials have expired. The last frame says so: a `CUSTOM` event where
    /// the protocol has a place for it, otherwise a server-sent event of its own.
    async fn expire(&mut self) -> Option<Result<Bytes>> {
        self.has_ended = true;
        let mut writer = backlog::warm(&self.session, &self.shape, self.cursor).await.ok()?;
        writer.event(&closing(&expired()));
        let bytes = writer.take();
        Some(Ok(match self.shape.framing {
            Framing::Sse if bytes.is_empty() => {
                format!("event: {}\ndata: {}\n\n", expired().name(), expired().json()).into()
            }
            Framing::Sse | Framing::Socket => bytes,
        }))
    }

    /// Waits for more. `false`: it took so long that the client is told that we are still here, or its
    /// credentials have expired.
    async fn wait(&mut self) -> bool {
        let stop = self.stop().clone();
        let Self { feed, head, missed, spoke, quiet, shared, expires_at, .. } = &mut *self;
        let has_been_quiet = async {
            loop {
                quiet.as_mut().await;
                let until = earlier(*spoke + shared.heartbeat, *expires_at);
                if Instant::now() >= until {
                    return;
                }
                quiet.as_mut().reset(until);
            }
        };
        if let Some((_, encoded)) = feed {
            // A feed also says when the server stops.
            tokio::select! {
                biased;
                more = encoded.changed() => {
                    if more.is_err() || *encoded.borrow() == FAILED {
                        *feed = None;
                        // It reads the log itself next, and so learns what is wrong.
                        *missed = u64::MAX;
                    }
                    return true;
                }
                () = has_been_quiet => {}
            }
        } else {
            tokio::select! {
                biased;
                _ = head.changed() => return true,
                () = stop.cancelled() => return true,
                () = has_been_quiet => {}
            }
        }
        // A quiet session needs no feed.
        self.feed = None;
        let next = earlier(Instant::now() + self.shared.heartbeat, self.expires_at);
        self.quiet.as_mut().reset(next);
        false
    }

    /// What the protocol says at its end.
    async fn last_words(&mut self) -> Option<Bytes> {
        if self.shape.is_canonical() {
            return None;
        }
        let mut writer = self.writer.take();
        if writer.is_none() {
            let warm = backlog::warm(&self.session, &self.shape, self.cursor).await;
            writer = Some(Box::new(warm.ok()?));
        }
        let mut writer = writer?;
        writer.end(self.shape.wire.end_marker);
        Some(writer.take()).filter(|bytes| !bytes.is_empty())
    }
}

fn earlier(one: Instant, other: Option<Instant>) -> Instant {
    other.map_or(one, |other| one.min(other))
}

/// An event that tells a client why its stream ends here. It is sent, never stored.
fn closing(error: &ApiError) -> Event<'static> {
    let value = json!({ "message": error.message(), "hint": error.hint_text() });
    Event::new("", Custom { name: error.name().to_owned(), value: CustomValue(value.into()) })
        .stamped(&SystemStamp)
}

fn heartbeat(framing: Framing) -> Bytes {
    match framing {
        Framing::Sse => Bytes::from_static(b": \n\n"),
        Framing::Socket => Bytes::new(),
    }
}

pub(super) fn read(json: &[u8]) -> Option<Msg> {
    Msg::from_json(std::str::from_utf8(json).ok()?).ok()
}

/// Messages whose events are gone, of which some were handed out already.
struct Older {
    messages: MessagePages<Arc<dyn Store>>,
    superseded: Vec<String>,
}
