//! One who watches a session.

use super::backlog;
use super::backlog_cache::BacklogCache;
use super::feed::{FEED_ENDED, Feed, FeedRead, Feeds};
use super::reply_stream::messages_as_of;
use super::writer::{Framing, Merge, StreamFormat, StreamWriter};
use crate::auth::{expired_error, is_expired};
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
use turnwire_log::message_pages::MessagePages;
use turnwire_log::store::{SessionStatus, Store};
use turnwire_log::{Error, HeadState, Result, Session};
use turnwire_wires::registry::ResumeMode;

/// Who is no further behind than this takes part in the feed.
const MAX_FEED_LAG: u64 = 1024;

/// Where a watcher begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
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
pub enum EndCondition {
    /// Never.
    Never,
    /// When no reply is open.
    Idle,
    /// When this place was sent, and no reply is open or one waits.
    Paused(u64),
}

/// One who watches a session: a place in its log, and how to go on from there.
pub struct Subscriber {
    session: Arc<Session>,
    shape: StreamFormat,
    until: EndCondition,
    cursor: u64,
    /// What is there up to here is read from the log, and merged where that is wanted; what comes
    /// behind it is taken from the feed.
    backlog_end: u64,
    head: watch::Receiver<HeadState>,
    feed: Option<(Arc<Feed>, watch::Receiver<u64>)>,
    writer: Option<Box<StreamWriter>>,
    /// What has to be said before anything else.
    initial_frames: Option<Bytes>,
    /// Messages whose events are gone, which come before all events.
    trimmed: Option<Box<TrimmedMessages>>,
    /// When it last had something to say, and what wakes it when that was long ago. Setting a timer
    /// takes a lock that all share, so it is left as it is while events come.
    last_sent: Instant,
    heartbeat_timer: Pin<Box<Sleep>>,
    /// When the credentials of its client expire.
    expires_at: Option<Instant>,
    shared: Arc<StreamContext>,
    has_ended: bool,
}

/// What all watchers share.
pub struct StreamContext {
    /// The feeds.
    pub feeds: Feeds,
    /// The backlogs.
    pub backlogs: BacklogCache,
    /// Ends all streams, except answers to requests.
    pub shutdown: CancellationToken,
    /// Ends the answers to requests, too.
    pub force_stop: CancellationToken,
    /// How often a quiet stream says that it is still there.
    pub heartbeat: Duration,
}

impl Subscriber {
    /// Begins to watch, up to the moment when the client's credentials expire.
    pub async fn new(
        session: Arc<Session>,
        shape: StreamFormat,
        start: StartPosition,
        until: EndCondition,
        expires_at: Option<Instant>,
        shared: Arc<StreamContext>,
    ) -> Result<Self> {
        let head = session.watch_head();
        let mut watcher = Self {
            session,
            shape,
            until,
            cursor: 0,
            backlog_end: 0,
            head,
            feed: None,
            writer: None,
            initial_frames: None,
            trimmed: None,
            last_sent: Instant::now(),
            heartbeat_timer: Box::pin(sleep_until(earliest(
                Instant::now() + shared.heartbeat,
                expires_at,
            ))),
            expires_at,
            shared,
            has_ended: false,
        };
        watcher.seek(start).await?;
        Ok(watcher)
    }

    /// Finds the place where it begins, and what has to be said there.
    async fn seek(&mut self, start: StartPosition) -> Result<()> {
        self.backlog_end = match self.shape.merge {
            Merge::Deltas => self.head.borrow().head,
            Merge::Nothing => 0,
        };
        match start {
            StartPosition::Now => self.cursor = self.head.borrow().head,
            StartPosition::After(seq) => {
                self.cursor = match self.shape.wire.resume {
                    ResumeMode::Replay => backlog::turn_start(&self.session, seq).await?,
                    ResumeMode::Tail | ResumeMode::Snapshot => seq,
                };
            }
            StartPosition::Beginning | StartPosition::Reset(_) => self.start_over(start).await?,
        }
        if self.shape.wire.resume == ResumeMode::Snapshot && self.cursor > 0 {
            self.write_snapshot().await?;
        }
        Ok(())
    }

    /// What a client is told that comes in somewhere, where its protocol wants a picture first.
    async fn write_snapshot(&mut self) -> Result<()> {
        let mut writer =
            Box::new(backlog::warmed_writer(&self.session, &self.shape, self.cursor).await?);
        let turn = backlog::turn_start(&self.session, self.cursor).await?;
        writer.write_snapshot(&messages_as_of(&self.session, self.cursor, turn).await?);
        self.initial_frames = Some(writer.take_bytes());
        self.writer = Some(writer);
        Ok(())
    }

    /// Everything that there is: messages whose events are gone, whole; then the events.
    async fn start_over(&mut self, start: StartPosition) -> Result<()> {
        let kept = self.session.first_seq().await?;
        let mut writer = Box::new(backlog::warmed_writer(&self.session, &self.shape, 0).await?);
        if let StartPosition::Reset(reason) = start {
            let epoch = self.session.epoch().to_owned();
            writer.write_event(&Event::new("", Reset { epoch, reason: reason.to_owned() }));
        }
        self.trimmed = (kept > Seq::FIRST).then(|| {
            let messages = self.session.message_pages().before(kept);
            Box::new(TrimmedMessages { messages, superseded: Vec::new() })
        });
        self.initial_frames = Some(writer.take_bytes());
        self.writer = Some(writer);
        self.cursor = kept.get() - 1;
        Ok(())
    }

    /// Some more messages whose events are gone; nothing when there are no more.
    async fn read_trimmed(&mut self) -> Result<Option<Bytes>> {
        let (Some(older), Some(writer)) = (&mut self.trimmed, &mut self.writer) else {
            return Ok(None);
        };
        let messages = older.messages.next_page().await?;
        if messages.is_empty() {
            let message_ids = std::mem::take(&mut older.superseded);
            self.trimmed = None;
            if !message_ids.is_empty() {
                writer.write_event(&Event::new("", Supersede { message_ids }));
            }
            return Ok(Some(writer.take_bytes()));
        }
        for stored in messages {
            let Some(msg) = parse_message(&stored.json) else { continue };
            if stored.superseded {
                older.superseded.push(stored.id);
            }
            let mut event = Event::new("", Message { message: Box::new(msg) });
            event.seq = Some(stored.last);
            writer.write_event(&event);
        }
        Ok(Some(writer.take_bytes()))
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
    pub fn ends_immediately(&self) -> bool {
        let head = *self.head.borrow();
        self.initial_frames.as_ref().is_none_or(Bytes::is_empty)
            && self.trimmed.is_none()
            && self.is_done(head)
    }

    /// What ends the stream when the server stops. The answer to a request has time to finish.
    fn stop_token(&self) -> &CancellationToken {
        match self.until {
            EndCondition::Never | EndCondition::Idle => &self.shared.shutdown,
            EndCondition::Paused(_) => &self.shared.force_stop,
        }
    }

    fn is_done(&self, head: HeadState) -> bool {
        self.cursor >= head.head
            && match self.until {
                EndCondition::Never => false,
                EndCondition::Idle => head.status == SessionStatus::Idle,
                EndCondition::Paused(seq) => {
                    self.cursor >= seq && head.status != SessionStatus::Running
                }
            }
    }

    /// The next bytes; `None` when the stream ends. It has to be awaited to its end: what it has
    /// read when it is dropped is lost to this watcher.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        if self.has_ended {
            return None;
        }
        self.last_sent = Instant::now();
        if is_expired(self.expires_at, self.last_sent) {
            return Box::pin(self.end_expired()).await;
        }
        if let Some(first) = self.initial_frames.take().filter(|first| !first.is_empty()) {
            return Some(Ok(first));
        }
        while self.trimmed.is_some() {
            match Box::pin(self.read_trimmed()).await {
                Ok(Some(bytes)) if !bytes.is_empty() => return Some(Ok(bytes)),
                Ok(_) => {}
                Err(error) => return Some(Box::pin(self.restart_if_trimmed(error)).await),
            }
        }
        loop {
            let head = *self.head.borrow_and_update();
            if head.is_deleted || self.stop_token().is_cancelled() {
                self.has_ended = true;
                return None;
            }
            if self.is_done(head) {
                self.has_ended = true;
                return Box::pin(self.final_frames()).await.map(Ok);
            }
            let nothing_yet = if self.cursor < head.head {
                match self.feed.as_ref().map(|(feed, _)| feed.read_after(self.cursor)) {
                    Some(FeedRead::Bytes(bytes, last)) => {
                        self.cursor = last;
                        if bytes.is_empty() {
                            continue;
                        }
                        return Some(Ok(bytes));
                    }
                    Some(FeedRead::NotYet) => true,
                    Some(FeedRead::Gone) => {
                        self.feed = None;
                        self.backlog_end = head.head;
                        false
                    }
                    None => false,
                }
            } else {
                true
            };
            if nothing_yet {
                if !self.wait().await {
                    if is_expired(self.expires_at, Instant::now()) {
                        return Box::pin(self.end_expired()).await;
                    }
                    return Some(Ok(heartbeat_frame(self.shape.framing)));
                }
                continue;
            }
            // Boxed, so that one who waits does not hold the room that reading needs.
            match Box::pin(self.read_log(head)).await {
                Ok(Some(bytes)) if !bytes.is_empty() => return Some(Ok(bytes)),
                Ok(_) => {}
                Err(error) => return Some(Box::pin(self.restart_if_trimmed(error)).await),
            }
        }
    }

    /// A watcher so slow that what it had to read next is gone starts over; anything else ends it.
    async fn restart_if_trimmed(&mut self, error: Error) -> Result<Bytes> {
        if matches!(error, Error::Trimmed(_)) {
            self.feed = None;
            self.seek(StartPosition::Reset("the events after the token were deleted by retention"))
                .await?;
            return Ok(self.initial_frames.take().unwrap_or_default());
        }
        self.has_ended = true;
        Err(error)
    }

    /// Reads what is in the log, or joins the feed, which has it. `None`: look again.
    async fn read_log(&mut self, head: HeadState) -> Result<Option<Bytes>> {
        // Feeds end when the server stops; an answer that goes on reads the log.
        let is_near = self.cursor >= self.backlog_end && head.head - self.cursor <= MAX_FEED_LAG;
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
            backlog::read_page(session, shape, &shared.backlogs, writer, self.cursor).await?;
        self.cursor = last;
        self.backlog_end = self.backlog_end.min(head.head);
        Ok(Some(bytes))
    }

    /// Ends because the client's credentials have expired. The last frame says so: a `CUSTOM` event where
    /// the protocol has a place for it, otherwise a server-sent event of its own.
    async fn end_expired(&mut self) -> Option<Result<Bytes>> {
        self.has_ended = true;
        let mut writer =
            backlog::warmed_writer(&self.session, &self.shape, self.cursor).await.ok()?;
        writer.write_event(&closing_event(&expired_error()));
        let bytes = writer.take_bytes();
        Some(Ok(match self.shape.framing {
            Framing::Sse if bytes.is_empty() => {
                format!("event: {}\ndata: {}\n\n", expired_error().name(), expired_error().json())
                    .into()
            }
            Framing::Sse | Framing::WebSocket => bytes,
        }))
    }

    /// Waits for more. `false`: it took so long that the client is told that we are still here, or its
    /// credentials have expired.
    async fn wait(&mut self) -> bool {
        let stop = self.stop_token().clone();
        let Self {
            feed,
            head,
            backlog_end: missed,
            last_sent: spoke,
            heartbeat_timer: quiet,
            shared,
            expires_at,
            ..
        } = &mut *self;
        let has_been_quiet = async {
            loop {
                quiet.as_mut().await;
                let until = earliest(*spoke + shared.heartbeat, *expires_at);
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
                    if more.is_err() || *encoded.borrow() == FEED_ENDED {
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
        let next = earliest(Instant::now() + self.shared.heartbeat, self.expires_at);
        self.heartbeat_timer.as_mut().reset(next);
        false
    }

    /// What the protocol says at its end.
    async fn final_frames(&mut self) -> Option<Bytes> {
        if self.shape.is_canonical() {
            return None;
        }
        let mut writer = self.writer.take();
        if writer.is_none() {
            let warm = backlog::warmed_writer(&self.session, &self.shape, self.cursor).await;
            writer = Some(Box::new(warm.ok()?));
        }
        let mut writer = writer?;
        writer.write_end(self.shape.wire.end_marker);
        Some(writer.take_bytes()).filter(|bytes| !bytes.is_empty())
    }
}

fn earliest(one: Instant, other: Option<Instant>) -> Instant {
    other.map_or(one, |other| one.min(other))
}

/// An event that tells a client why its stream ends here. It is sent, never stored.
fn closing_event(error: &ApiError) -> Event<'static> {
    let value = json!({ "message": error.message(), "hint": error.hint_text() });
    Event::new("", Custom { name: error.name().to_owned(), value: CustomValue(value.into()) })
        .stamped(&SystemStamp)
}

fn heartbeat_frame(framing: Framing) -> Bytes {
    match framing {
        Framing::Sse => Bytes::from_static(b": \n\n"),
        Framing::WebSocket => Bytes::new(),
    }
}

pub(super) fn parse_message(json: &[u8]) -> Option<Msg> {
    Msg::from_json(std::str::from_utf8(json).ok()?).ok()
}

/// Messages whose events are gone, of which some were handed out already.
struct TrimmedMessages {
    messages: MessagePages<Arc<dyn Store>>,
    superseded: Vec<String>,
}
