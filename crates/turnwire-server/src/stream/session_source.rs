//! The events of a session, for subscribers that may share the work of encoding.
//!
//! Far from the end of the log a subscriber reads it page by page (`backlog`). Near the end it takes what was encoded
//! once for all subscribers with the same format (`feed`).

use super::backlog;
use super::feed::{Feed, FeedRead, FeedState};
use super::snapshot::{messages_as_of, parse_message};
use super::subscriber::{Position, Source, Step, StreamContext, StreamEnd, Subscriber};
use super::writer::{Framing, LastReply, Merge, StreamFormat, StreamWriter};
use crate::auth::expired_error;
use crate::error::ApiError;
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use turnwire_core::event::{Custom, CustomValue, Message, Reset, Supersede};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{Event, Head, Seq};
use turnwire_log::message_pages::MessagePages;
use turnwire_log::store::{SessionStatus, Store};
use turnwire_log::{Error, HeadState, Result, Session};
use turnwire_wires::registry::ResumeMode;
use turnwire_wires::{Frames, Wire, sse};

/// A subscriber takes part in the live feed if it is at most so many events behind.
const MAX_FEED_LAG: u64 = 1024;

/// A subscriber of a session.
pub type SessionSubscriber = Subscriber<SessionSource>;

/// Where a subscriber begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
    /// With the first event.
    Beginning,
    /// After this seq.
    After(Head),
    /// With the next event.
    Now,
    /// The resume token is invalid: the client is told why, and gets everything.
    Reset(&'static str),
}

/// When a stream ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndCondition {
    /// Never.
    Never,
    /// When no reply is open.
    Idle,
    /// When the next reply has ended, or waits for an answer: an agent elsewhere publishes it.
    NextReply {
        /// The seq of its first event at the earliest.
        first: Seq,
    },
    /// When a reply has ended, or waits for an answer.
    Reply {
        /// The reply.
        id: String,
        /// The seq of its first event.
        first: Seq,
    },
}

/// Reads and encodes the events of a session.
pub struct SessionSource {
    format: StreamFormat,
    end: EndCondition,
    /// Up to here events are read from the log, and merged if the format asks for that. Later ones come from the
    /// feed. `None`: the next read is from the log, however near its head is.
    backlog_end: Option<Head>,
    feed: Option<(Arc<Feed>, watch::Receiver<FeedState>)>,
    writer: Option<Box<StreamWriter>>,
    /// Messages whose events were deleted by retention. They come before all events.
    trimmed: Option<Box<TrimmedMessages>>,
    output: Bytes,
    /// The end of the reply is in the output.
    has_reply_end: bool,
}

struct TrimmedMessages {
    pages: MessagePages<Arc<dyn Store>>,
    superseded: Vec<String>,
}

impl SessionSubscriber {
    /// Subscribes to a session, until the client's credentials expire.
    pub async fn new(
        session: Arc<Session>,
        format: StreamFormat,
        start: StartPosition,
        end: EndCondition,
        expires_at: Option<Instant>,
        context: Arc<StreamContext>,
    ) -> Result<Self> {
        let source = SessionSource {
            format,
            end,
            backlog_end: Some(Head::EMPTY),
            feed: None,
            writer: None,
            trimmed: None,
            output: Bytes::new(),
            has_reply_end: false,
        };
        let mut subscriber = Self::open(session, source, expires_at, context);
        let (position, source) = subscriber.parts();
        source.seek(position, start).await?;
        Ok(subscriber)
    }

    /// Whether it would end at once, without a single event.
    pub fn ends_immediately(&self) -> bool {
        let (position, source) = (self.position(), &self.source);
        source.output.is_empty()
            && source.trimmed.is_none()
            && source.is_done(position, position.head())
    }
}

impl SessionSource {
    /// Moves to the position where the stream begins, and produces the frames that come first there.
    async fn seek(&mut self, position: &mut Position, start: StartPosition) -> Result<()> {
        let head = position.head().head;
        self.backlog_end = Some(match self.format.merge {
            Merge::Deltas => head,
            Merge::Nothing => Head::EMPTY,
        });
        match start {
            StartPosition::Now => position.cursor = head,
            StartPosition::After(cursor) => {
                position.cursor = match self.format.wire.resume {
                    ResumeMode::Replay => backlog::turn_start(&position.session, cursor).await?,
                    ResumeMode::Tail | ResumeMode::Snapshot => cursor,
                };
            }
            StartPosition::Beginning => self.start_over(position, None).await?,
            StartPosition::Reset(reason) => self.start_over(position, Some(reason)).await?,
        }
        if self.format.wire.resume == ResumeMode::Snapshot && !position.cursor.is_empty() {
            self.write_snapshot(position).await?;
        }
        Ok(())
    }

    /// Produces the snapshot that some protocols send first to a client that joins in the middle.
    async fn write_snapshot(&mut self, position: &Position) -> Result<()> {
        let (session, cursor) = (&position.session, position.cursor);
        let mut writer = Box::new(backlog::warmed_writer(session, &self.format, cursor).await?);
        let turn = backlog::turn_start(session, cursor).await?;
        writer.write_snapshot(&messages_as_of(session, cursor, turn).await?);
        self.output = writer.take().bytes;
        self.writer = Some(writer);
        Ok(())
    }

    /// Starts with everything: messages whose events were deleted, then the events.
    async fn start_over(
        &mut self,
        position: &mut Position,
        reset: Option<&'static str>,
    ) -> Result<()> {
        let session = &position.session;
        let kept = session.first_seq().await?;
        let mut writer =
            Box::new(backlog::warmed_writer(session, &self.format, Head::EMPTY).await?);
        if let Some(reason) = reset {
            let epoch = session.epoch().to_owned();
            writer.write_event(&Event::new("", Reset { epoch, reason: reason.to_owned() }));
        }
        self.trimmed = (kept > Seq::FIRST).then(|| {
            let pages = session.message_pages().before(kept);
            Box::new(TrimmedMessages { pages, superseded: Vec::new() })
        });
        self.output = writer.take().bytes;
        self.writer = Some(writer);
        position.cursor = kept.previous();
        Ok(())
    }

    /// Produces the next messages whose events were deleted.
    async fn read_trimmed(&mut self) -> Result<()> {
        let (Some(trimmed), Some(writer)) = (&mut self.trimmed, &mut self.writer) else {
            self.trimmed = None;
            return Ok(());
        };
        let messages = trimmed.pages.next_page().await?;
        if messages.is_empty() {
            let message_ids = std::mem::take(&mut trimmed.superseded);
            if !message_ids.is_empty() {
                writer.write_event(&Event::new("", Supersede { message_ids }));
            }
            self.trimmed = None;
        } else {
            for stored in messages {
                let Some(msg) = parse_message(&stored.json) else { continue };
                if stored.superseded {
                    trimmed.superseded.push(stored.id);
                }
                let mut event = Event::new("", Message { message: Box::new(msg) });
                event.seq = Some(stored.last);
                writer.write_event(&event);
            }
        }
        self.output = writer.take().bytes;
        Ok(())
    }

    /// Reads the backlog, or joins the live feed if that has the next events.
    async fn read_log(&mut self, position: &mut Position, head: HeadState) -> Result<()> {
        let Position { session, context, cursor, .. } = position;
        // Feeds end when the server stops; the response to a request continues from the log.
        let has_backlog = self.backlog_end.is_none_or(|end| *cursor < end);
        let is_near = !has_backlog && head.head.events_after(*cursor) <= MAX_FEED_LAG;
        if is_near && !context.shutdown.is_cancelled() {
            let (format, writer) = (&self.format, &mut self.writer);
            let feed = context.feeds.join(session, format, *cursor, writer, &context.shutdown);
            if *cursor >= feed.start() {
                let receiver = feed.subscribe();
                // A feed that ended before this subscription does not report it any more.
                if !context.shutdown.is_cancelled() {
                    self.feed = Some((feed, receiver));
                    self.writer = None;
                }
                return Ok(());
            }
        }
        let (format, writer) = (&self.format, &mut self.writer);
        let (page, last) =
            backlog::read_page(session, format, &context.backlogs, writer, *cursor).await?;
        *cursor = last;
        self.backlog_end = Some(self.backlog_end.map_or(head.head, |end| end.min(head.head)));
        (self.output, self.has_reply_end) = page.slice(0, self.last_reply());
        Ok(())
    }

    /// The reply whose end also ends the stream.
    fn last_reply(&self) -> LastReply<'_> {
        match &self.end {
            EndCondition::Reply { id, .. } => LastReply::Id(id),
            EndCondition::NextReply { .. } => LastReply::Next,
            EndCondition::Never | EndCondition::Idle => LastReply::None,
        }
    }

    fn is_done(&self, position: &Position, head: HeadState) -> bool {
        if self.has_reply_end {
            return true;
        }
        let has_all = position.cursor >= head.head;
        match &self.end {
            EndCondition::Never => false,
            EndCondition::Idle => has_all && head.status == SessionStatus::Idle,
            // Until its first event the session may be idle.
            EndCondition::NextReply { first } => {
                has_all && position.cursor.includes(*first) && head.status == SessionStatus::Waiting
            }
            EndCondition::Reply { first, .. } => {
                has_all && position.cursor.includes(*first) && head.status != SessionStatus::Running
            }
        }
    }

    /// The writer at the cursor.
    async fn writer_at(&mut self, position: &Position) -> Option<Box<StreamWriter>> {
        if let Some(writer) = self.writer.take() {
            return Some(writer);
        }
        let writer = backlog::warmed_writer(&position.session, &self.format, position.cursor).await;
        writer.ok().map(Box::new)
    }

    /// Produces the last frame for a client whose credentials have expired: a `CUSTOM` event if the protocol can
    /// carry it, else a server-sent event of its own.
    async fn write_expired(&mut self, position: &Position) {
        self.writer = None;
        let Some(mut writer) = self.writer_at(position).await else { return };
        let error = expired_error();
        writer.write_event(&closing_event(&error));
        self.output = writer.take().bytes;
        if self.output.is_empty() && self.format.framing == Framing::Sse {
            let (mut frames, mut out) = (Frames::default(), String::new());
            frames.push_text(error.name(), &error.json());
            sse::write(&frames, None, &mut out);
            self.output = out.into();
        }
    }
}

impl Source for SessionSource {
    fn wire(&self) -> &'static Wire {
        self.format.wire
    }

    /// The response to a request has time to finish, but a reply that somebody else may publish is not waited for.
    fn stop_token<'c>(&self, context: &'c StreamContext) -> &'c CancellationToken {
        match self.end {
            EndCondition::Never | EndCondition::Idle | EndCondition::NextReply { .. } => {
                &context.shutdown
            }
            EndCondition::Reply { .. } => &context.force_stop,
        }
    }

    /// A comment tells proxies and clients at once that there is a stream. The time to reconnect is random, so that
    /// clients that lose their connections together do not come back together.
    fn greeting(&self, position: &Position) -> Option<Bytes> {
        let spread =
            position.head().head.get().wrapping_mul(0x9e37_79b9) % 1000 + random_below(1000);
        let mut out = String::new();
        sse::write_greeting("turnwire", 1000 + spread, &mut out);
        Some(out.into())
    }

    fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    fn take_bytes(&mut self) -> Bytes {
        std::mem::take(&mut self.output)
    }

    fn next_step(&mut self, position: &mut Position, head: HeadState) -> Result<Step> {
        if head.is_deleted || self.stop_token(&position.context).is_cancelled() {
            return Ok(Step::End(StreamEnd::Stopped));
        }
        if self.trimmed.is_some() {
            return Ok(Step::Read);
        }
        if self.is_done(position, head) {
            return Ok(Step::End(StreamEnd::Complete));
        }
        if position.cursor >= head.head {
            return Ok(Step::Wait);
        }
        let Some((feed, _)) = &self.feed else { return Ok(Step::Read) };
        Ok(match feed.read_after(position.cursor, self.last_reply()) {
            FeedRead::Events { bytes, last, has_reply_end } => {
                position.cursor = last.into();
                self.output = bytes;
                self.has_reply_end = has_reply_end;
                Step::Continue
            }
            FeedRead::NotYet => Step::Wait,
            FeedRead::Gone => {
                self.feed = None;
                self.backlog_end = Some(head.head);
                Step::Read
            }
        })
    }

    async fn read(&mut self, position: &mut Position, head: HeadState) -> Result<Step> {
        let read = if self.trimmed.is_some() {
            self.read_trimmed().await
        } else {
            self.read_log(position, head).await
        };
        match read {
            Ok(()) => {}
            // The client was so slow that retention has deleted its next events.
            Err(Error::Trimmed(_)) => {
                self.feed = None;
                let reason = "the events after the token were deleted by retention";
                self.seek(position, StartPosition::Reset(reason)).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(Step::Continue)
    }

    async fn end(&mut self, position: &Position, end: StreamEnd) {
        match end {
            StreamEnd::Stopped => {}
            StreamEnd::Expired => self.write_expired(position).await,
            StreamEnd::Complete => {
                if self.format.is_canonical() {
                    return;
                }
                let Some(mut writer) = self.writer_at(position).await else { return };
                writer.write_end(self.format.wire.end_marker);
                self.output = writer.take().bytes;
            }
        }
    }

    fn feed(&mut self) -> Option<&mut watch::Receiver<FeedState>> {
        self.feed.as_mut().map(|(_, receiver)| receiver)
    }

    fn feed_changed(&mut self) {
        if self.feed.as_ref().is_some_and(|(_, receiver)| *receiver.borrow() == FeedState::Ended) {
            self.feed = None;
            // It reads the log itself next, and so finds out what is wrong.
            self.backlog_end = None;
        }
    }

    /// A silent session needs no feed.
    fn heartbeat(&mut self) -> Bytes {
        self.feed = None;
        match self.format.framing {
            Framing::Sse => sse_heartbeat(),
            Framing::WebSocket => Bytes::new(),
        }
    }
}

/// A heartbeat as a comment of server-sent events.
pub(super) fn sse_heartbeat() -> Bytes {
    let mut out = String::new();
    sse::write_comment("", &mut out);
    out.into()
}

/// A random number below `limit`; 0 if the system has no randomness.
fn random_below(limit: u64) -> u64 {
    let mut bytes = [0; 2];
    let _ = getrandom::fill(&mut bytes);
    u64::from(u16::from_le_bytes(bytes)) % limit
}

/// An event that tells a client why its stream ends. It is sent, never stored.
fn closing_event(error: &ApiError) -> Event<'static> {
    let value = json!({ "message": error.message(), "hint": error.hint_text() });
    Event::new("", Custom { name: error.name().to_owned(), value: CustomValue(value.into()) })
        .stamped(&SystemStamp)
}
