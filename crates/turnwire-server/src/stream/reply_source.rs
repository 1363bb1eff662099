//! One reply as the response to one request, in the words of the client's protocol.
//!
//! Each response has its own encoder, because it contains what the client sent: the id of its run, the model that it
//! asked for. It ends when the reply ends, or when the reply waits for the client.
//!
//! A response whose frames are numbered can be resumed after any of them (`frame_id`): it is encoded again from its
//! start, and the frames that the client has are left out.

use super::backlog::warm_up_encoder;
use super::frame_id::{FrameId, FrameNumbering, ResponseKey};
use super::held_call::HeldCall;
use super::pending_calls::PendingCalls;
use super::session_source::sse_heartbeat;
use super::snapshot::{finished_messages_as_of, messages_as_of};
use super::subscriber::{Next, Position, Source, Step, StreamContext, StreamEnd, Subscriber};
use crate::auth::{expired_error, is_valid_id};
use crate::deliveries::Delivery;
use bytes::Bytes;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{ErrorType, Event, EventKind, Head, Seq, coalesce};
use turnwire_log::store::{EventLines, SessionStatus};
use turnwire_log::{Error, HeadState, Result, Session, Snapshot};
use turnwire_wires::collect::WholeResponse;
use turnwire_wires::{Encode, EncoderOptions, Frames, StreamFailure, Wire, sse};

/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 256 * 1024;

/// A subscriber of one reply.
pub type ReplySubscriber = Subscriber<ReplySource>;

/// Where the response begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyPosition {
    /// With the first event of the reply.
    Start,
    /// After this cursor. The client has received the events up to it in earlier responses.
    After(Head),
    /// With a snapshot of the conversation, if the protocol has one; then new events.
    Snapshot,
    /// The same, as of this cursor: the client had a response that began there.
    SnapshotAt(Head),
}

/// For what a reply may wait without ending the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PausePolicy {
    /// For nothing: the client is told about every pending call, and answers it.
    Any,
    /// For approvals, which somebody else gives: the client of this protocol cannot.
    ExternalOnly,
    /// For its first event: an agent elsewhere will publish it, and if the reply has no id yet, the first reply is
    /// taken. From then on like `Any`.
    AwaitStart,
}

/// What to stream, and how.
pub struct ReplyStreamOptions {
    /// The protocol.
    pub wire: &'static Wire,
    /// The options of its encoder.
    pub encoding: EncoderOptions,
    /// The reply.
    pub reply_id: String,
    /// Where to begin.
    pub begin: ReplyPosition,
    /// At which pauses to end.
    pub pause: PausePolicy,
    /// When the client's credentials expire. The response ends then; the reply does not.
    pub expires_at: Option<Instant>,
}

/// A response in one piece.
#[derive(Debug, Clone, PartialEq)]
pub enum CollectedAnswer {
    /// The whole response, or the error that the reply ended with. `None` if there was nothing to write.
    Complete(Option<WholeResponse>),
    /// The client's credentials expired first.
    Expired,
    /// The server stopped first.
    ServerStopped,
}

/// The error type of a response that did not finish before the server stopped.
pub const SERVER_STOPPING: &str = "server_stopping";

/// Reads and encodes the events of one reply.
pub struct ReplySource {
    wire: &'static Wire,
    encoder: Box<dyn Encode>,
    pending_calls: PendingCalls,
    reply_id: String,
    pause: PausePolicy,
    /// Whether an event begins another response: this one ends before it.
    begins_another: Option<fn(&Event<'_>) -> bool>,
    /// Deltas are never merged.
    unmerged: bool,
    /// How many frames are still to be left out.
    skip: usize,
    /// The frames have ids.
    numbering: Option<FrameNumbering>,
    /// The response ends here, because it ended here when it was sent first.
    end_at: Option<Head>,
    /// The encoder has produced frames.
    has_frames: bool,
    frames: Frames,
    /// The last frame is in `frames`, or was sent.
    is_finished: bool,
    /// Why the response has ended.
    end: StreamEnd,
    /// Notes whether the client receives all of it.
    delivery: Option<Delivery>,
    /// Leaves out what is discarded later.
    held: Option<HeldCall>,
}

impl ReplySubscriber {
    /// Begins a response.
    pub async fn new(
        session: Arc<Session>,
        options: ReplyStreamOptions,
        context: Arc<StreamContext>,
    ) -> Result<Self> {
        let encoder = options.wire.encoder(&options.encoding);
        let source = ReplySource {
            wire: options.wire,
            encoder: encoder.map_err(|error| Error::Store(error.to_string()))?,
            pending_calls: PendingCalls::default(),
            reply_id: options.reply_id,
            pause: options.pause,
            begins_another: None,
            unmerged: false,
            skip: 0,
            numbering: None,
            end_at: None,
            has_frames: false,
            frames: Frames::default(),
            is_finished: false,
            end: StreamEnd::Complete,
            delivery: None,
            held: None,
        };
        let mut subscriber = Self::open(session, source, options.expires_at, context);
        let (position, source) = subscriber.parts();
        source.seek(position, options.begin).await?;
        source.is_finished = source.frames.ends_answer();
        Ok(subscriber)
    }

    /// Ends before an event with which another response begins, unless nothing was sent yet.
    #[must_use]
    pub fn end_before(mut self, begins_another: fn(&Event<'_>) -> bool) -> Self {
        self.source.begins_another = Some(begins_another);
        self
    }

    /// Notes whether the client receives all of it.
    #[must_use]
    pub(crate) fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.source.delivery = Some(delivery);
        self
    }

    /// Leaves out what a crash has broken off, for clients that cannot take text back. A response in one piece waits
    /// for the end of each model call; a stream only where the reply has events already.
    #[must_use]
    pub(crate) fn without_discarded(mut self, collects: bool) -> Self {
        let head = self.position().head().head;
        self.source.held = Some(HeldCall::new((!collects).then_some(head)));
        self
    }

    /// Encodes every event by itself, so that the same frames come every time.
    #[must_use]
    pub fn unmerged(mut self) -> Self {
        self.source.unmerged = true;
        self
    }

    /// Leaves out the first frames, which the client has already.
    #[must_use]
    pub fn skip_frames(mut self, count: u64) -> Self {
        self.source.skip = usize::try_from(count).unwrap_or(usize::MAX);
        self.source.drop_skipped();
        self
    }

    /// Gives every frame an id, with which the client can resume the response. Without an id remain responses to a
    /// session that has no reply, and replies of external agents whose id cannot be part of one.
    #[must_use]
    pub(crate) fn numbered(mut self, response: &ResponseKey) -> Self {
        let is_named = match response.reply_id.as_str() {
            "" => self.source.pause == PausePolicy::AwaitStart,
            reply_id => is_valid_id(reply_id),
        };
        if is_named {
            let mut response = response.clone();
            if response.begin == ReplyPosition::Snapshot {
                response.begin = ReplyPosition::SnapshotAt(self.position().cursor);
            }
            self.source.numbering = Some(FrameNumbering::new(&response));
        }
        self.unmerged()
    }

    /// Continues a response after a frame that the client has.
    #[must_use]
    pub(crate) fn resume_after(mut self, id: &FrameId) -> Self {
        self.source.end_at = id.paused_at;
        self.numbered(&id.response).skip_frames(id.number.saturating_add(1))
    }

    /// The next frames, for a transport other than server-sent events. Empty: nothing has happened for a while. `None`: the
    /// response has ended.
    pub(crate) async fn next_frames(&mut self) -> Option<Result<Frames>> {
        Some(match self.advance().await? {
            Ok(Next::Frames) => Ok(std::mem::take(&mut self.source.frames)),
            Ok(Next::Heartbeat) => Ok(Frames::default()),
            Err(error) => Err(error),
        })
    }

    /// Counts the frames that the response has so far, without the end marker. They are not sent.
    pub(crate) async fn count_frames(mut self) -> Result<u64> {
        let (position, source) = self.parts();
        let mut count = source.frames.len();
        let head = position.head().head;
        while !source.is_finished && position.cursor < head {
            source.frames.clear();
            source.read_events(position, head).await?;
            count += source.frames.len();
        }
        let has_marker = source.is_finished && source.wire.end_marker.is_some();
        count -= usize::from(has_marker);
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Waits for the end, and returns the whole response. The encoder must [collect](EncoderOptions::collects) it.
    pub async fn collect(mut self) -> Result<CollectedAnswer> {
        while let Some(next) = self.advance().await {
            if let Next::Frames = next? {
                self.source.frames.clear();
            }
        }
        Ok(match self.source.end {
            StreamEnd::Complete => CollectedAnswer::Complete(self.source.encoder.take_response()),
            StreamEnd::Expired => CollectedAnswer::Expired,
            StreamEnd::Stopped => CollectedAnswer::ServerStopped,
        })
    }
}

impl ReplySource {
    async fn seek(&mut self, position: &mut Position, begin: ReplyPosition) -> Result<()> {
        let session = &position.session;
        let snapshot = session.snapshot().await?;
        let first = first_seq_of(session, &snapshot, &self.reply_id).await?;
        // If retention has deleted the events of the reply, only its message is left.
        let start = first.filter(|first| *first >= snapshot.first).map(Seq::previous);
        position.cursor = match begin {
            ReplyPosition::Start => start.unwrap_or_default(),
            ReplyPosition::After(cursor) => {
                if let Some(start) = start.filter(|start| cursor > *start) {
                    warm_up_encoder(session, &mut *self.encoder, start, cursor).await?;
                    // The previous response ended here.
                    self.encoder.end(&mut self.frames);
                    self.encoder.take_response();
                    self.frames.clear();
                }
                cursor
            }
            ReplyPosition::Snapshot | ReplyPosition::SnapshotAt(_) => {
                let cursor = if let ReplyPosition::SnapshotAt(cursor) = begin {
                    cursor
                } else {
                    snapshot.head
                };
                let start = start.map_or(cursor, |start| start.min(cursor));
                warm_up_encoder(session, &mut *self.encoder, start, cursor).await?;
                let messages = if cursor == snapshot.head {
                    let mut messages = finished_messages_as_of(session, cursor, start).await?;
                    messages.extend(snapshot.open.iter().map(|reply| reply.msg().clone()));
                    messages
                } else {
                    messages_as_of(session, cursor, start).await?
                };
                self.encoder.resume(&messages, &mut self.frames);
                cursor
            }
        };
        Ok(())
    }

    /// Reads the next events, up to the end of the reply.
    async fn read_events(&mut self, position: &mut Position, to: Head) -> Result<()> {
        let next = position.cursor.next();
        let rows = position.session.read_events(next, READ_BYTES).await?;
        let mut events = Vec::new();
        let lines = rows.iter().flat_map(EventLines::iter);
        for (seq, line) in lines.take_while(|(seq, _)| to.includes(*seq)) {
            events.push(Session::parse_event(seq, line)?);
        }
        position.cursor = rows.last().map_or(to, |rows| to.min(rows.last().into()));
        if self.unmerged {
            self.encode_events(events);
        } else {
            self.encode_events(coalesce(events));
        }
        self.drop_skipped();
        Ok(())
    }

    /// Drops the frames that are to be left out.
    fn drop_skipped(&mut self) {
        let skipped = self.skip.min(self.frames.len());
        if skipped == 0 {
            return;
        }
        self.frames.remove_first(skipped);
        self.skip -= skipped;
        if let Some(numbering) = &mut self.numbering {
            numbering.skip(skipped);
        }
    }

    /// Up to where the log is read.
    fn read_limit(&self, head: Head) -> Head {
        self.end_at.map_or(head, |end| end.min(head))
    }

    /// Encodes events, up to the end of the response.
    fn encode_events<'e>(&mut self, events: impl IntoIterator<Item = Event<'e>>) {
        for event in events {
            match &mut self.held {
                Some(held) => held.push(event).iter().for_each(|event| self.encode_event(event)),
                None => self.encode_event(&event),
            }
            if self.is_finished {
                return;
            }
        }
    }

    fn encode_event(&mut self, event: &Event<'_>) {
        if self.is_finished {
            return;
        }
        if self.has_frames && self.begins_another.is_some_and(|begins| begins(event)) {
            return self.finish();
        }
        if self.awaits_start() && event.kind.is_part_of_reply() && !event.is_from_sub_agent() {
            self.reply_id = event.reply_id.to_string();
        }
        self.pending_calls.observe(event);
        self.encoder.encode(event, &mut self.frames);
        self.has_frames |= !self.frames.is_empty();
        let is_end = matches!(event.kind, EventKind::ReplyEnd(_));
        if is_end && event.reply_id == self.reply_id {
            self.finish();
        }
        self.is_finished |= self.frames.ends_answer();
    }

    /// Whether the reply has not begun, and its id is unknown.
    fn awaits_start(&self) -> bool {
        self.pause == PausePolicy::AwaitStart && self.reply_id.is_empty()
    }

    /// Writes what the protocol sends at its end.
    fn finish(&mut self) {
        for event in self.held.take().iter_mut().flat_map(HeldCall::release) {
            self.encode_event(&event);
        }
        if self.pause == PausePolicy::ExternalOnly {
            let calls = self.pending_calls.take();
            if !calls.is_empty() {
                self.encoder.settle_calls(&self.reply_id, &calls, &mut self.frames);
            }
        }
        self.encoder.end(&mut self.frames);
        if let Some(marker) = self.wire.end_marker {
            self.frames.push_text("", marker);
        }
        self.is_finished = true;
    }

    /// Ends the response with the protocol's own error: for this client, and only for it, the reply has failed.
    fn finish_with_error(&mut self, error_type: ErrorType, message: String) {
        let (reply_id, created_at) = (self.reply_id.clone(), SystemStamp.now());
        if let Some(numbering) = &mut self.numbering {
            numbering.unnumbered_from = Some(self.frames.len());
        }
        let failure = StreamFailure { reply_id, created_at, error_type, message };
        self.encoder.fail(&failure, &mut self.frames);
        self.finish();
    }
}

impl Source for ReplySource {
    fn wire(&self) -> &'static Wire {
        self.wire
    }

    fn stop_token<'c>(&self, context: &'c StreamContext) -> &'c CancellationToken {
        &context.force_stop
    }

    fn has_output(&self) -> bool {
        !self.frames.is_empty()
    }

    fn take_bytes(&mut self) -> Bytes {
        let mut out = String::new();
        match &mut self.numbering {
            Some(numbering) => numbering.write(&self.frames, &mut out),
            None => sse::write(&self.frames, None, &mut out),
        }
        self.frames.clear();
        out.into()
    }

    fn next_step(&mut self, position: &mut Position, head: HeadState) -> Result<Step> {
        if head.is_deleted {
            return Err(Error::NoSession);
        }
        if self.is_finished {
            return Ok(Step::End(StreamEnd::Complete));
        }
        if position.cursor < self.read_limit(head.head) {
            return Ok(Step::Read);
        }
        if self.end_at.is_some() {
            return Ok(Step::End(StreamEnd::Complete));
        }
        if position.context.force_stop.is_cancelled() {
            return Ok(Step::End(StreamEnd::Stopped));
        }
        Ok(match (head.status, self.pause) {
            _ if self.awaits_start() => Step::Wait,
            (SessionStatus::Running, _) => Step::Wait,
            (SessionStatus::Waiting, PausePolicy::ExternalOnly) => Step::Read,
            (SessionStatus::Idle | SessionStatus::Waiting, _) => Step::End(StreamEnd::Complete),
        })
    }

    async fn read(&mut self, position: &mut Position, head: HeadState) -> Result<Step> {
        let to = self.read_limit(head.head);
        if position.cursor < to {
            self.read_events(position, to).await?;
            return Ok(Step::Continue);
        }
        // The reply waits. The response ends only if it waits for the client.
        let pending = position.session.snapshot().await?.pending_calls();
        let waits_for_client = pending.iter().any(|pending| !pending.external.is_empty());
        Ok(if waits_for_client { Step::End(StreamEnd::Complete) } else { Step::Wait })
    }

    async fn end(&mut self, position: &Position, end: StreamEnd) {
        if let Some(delivery) = self.delivery.take_if(|_| end == StreamEnd::Complete) {
            delivery.complete();
        }
        if self.is_finished {
            return;
        }
        self.end = end;
        match end {
            StreamEnd::Complete => {
                if let Some(numbering) = &mut self.numbering {
                    numbering.paused_at = Some(position.cursor);
                }
                self.finish();
                self.drop_skipped();
            }
            StreamEnd::Expired => {
                let error = expired_error();
                let message = format!("{}; {}", error.message(), error.hint_text());
                self.finish_with_error(ErrorType::Authentication, message);
            }
            StreamEnd::Stopped => {
                let message = format!(
                    "the server is restarting before the reply has ended; do not ask again: the \
                     reply is in the session {}",
                    position.session.id()
                );
                let kind = ErrorType::Other(SERVER_STOPPING.into());
                self.finish_with_error(kind, message);
            }
        }
    }

    fn heartbeat(&mut self) -> Bytes {
        sse_heartbeat()
    }
}

/// The seq of the first event of a reply, if the reply exists.
async fn first_seq_of(
    session: &Session,
    snapshot: &Snapshot,
    reply_id: &str,
) -> Result<Option<Seq>> {
    if let Some(reply) = snapshot.open.iter().find(|reply| reply.msg().id() == reply_id) {
        return Ok(Some(reply.first_seq()));
    }
    Ok(session.find_message(reply_id).await?.map(|message| message.first))
}
