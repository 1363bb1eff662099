//! One reply as one answer: what a client of another protocol gets for its request.
//!
//! A watcher of a session sees everything that happens there, and shares what is encoded with all
//! who watch in the same shape. The answer to a request is about one reply, in words of its own (what
//! the client calls its run, which model it asked for), and it ends when the reply does, or when the
//! reply waits for somebody.

use super::backlog::warm_up_encoder;
use super::pending_calls::PendingCalls;
use crate::auth::{expired_error, is_expired, wait_until_expired};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use turnwire_core::event::ReplyEnd;
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{ErrorType, Event, EventKind, FinishedReason, Msg, ReplyError, Seq, coalesce};
use turnwire_log::store::{EventLines, MessageQuery, SessionStatus};
use turnwire_log::{Error, HeadState, Result, Session, Snapshot};
use turnwire_wires::{Encode, EncoderOptions, Frames, Wire, sse};

/// How much of the log is read at a time.
const READ_BYTES: usize = 256 * 1024;

/// How an answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyPosition {
    /// With the first event of the reply: everything comes again.
    Start,
    /// Behind this place. What was before it the client has had in earlier answers.
    After(u64),
    /// With a picture of the conversation as it stands, where the protocol has one; then what comes.
    Snapshot,
}

/// What a reply may wait for without the answer coming to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PausePolicy {
    /// Nothing: whatever it waits for, the client is told and answers.
    Any,
    /// A person's yes or no, which somebody else will give: the client of this protocol cannot.
    ExternalOnly,
    /// Its own beginning: somebody elsewhere is to publish it, and while no reply is named the first
    /// that comes is the one. After that as with `Any`.
    AwaitStart,
}

/// What is to be told, and how.
pub struct ReplyStreamOptions {
    /// The protocol.
    pub wire: &'static Wire,
    /// What its encoder is told.
    pub encoding: EncoderOptions,
    /// The reply.
    pub reply_id: String,
    /// Where to begin.
    pub begin: ReplyPosition,
    /// At which pauses to end.
    pub pause: PausePolicy,
    /// Whether a frame is the last of an answer. Without it only the reply's end and its pauses are.
    pub is_last: Option<fn(&str) -> bool>,
    /// When the credentials of the client expire. The answer ends then; the reply does not.
    pub expires_at: Option<Instant>,
}

/// One reply on its way to one client.
pub struct ReplyStream {
    session: Arc<Session>,
    shared: Arc<super::StreamContext>,
    wire: &'static Wire,
    encode: Box<dyn Encode>,
    pending_calls: PendingCalls,
    reply_id: String,
    pause: PausePolicy,
    is_last: Option<fn(&str) -> bool>,
    /// Whether an event begins another answer: this one ends before it.
    begins_another: Option<fn(&Event<'_>) -> bool>,
    /// Every event is told by itself.
    unmerged: bool,
    /// Something was told.
    has_sent: bool,
    /// Which frames the client gets.
    filter: Option<FrameFilter>,
    cursor: u64,
    head: watch::Receiver<HeadState>,
    frames: Frames,
    state: StreamState,
    expires_at: Option<Instant>,
    /// How it has ended, or will.
    ended: AnswerEnd,
}

/// Whether a client gets a frame.
type FrameFilter = Box<dyn Fn(&str) -> bool + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamState {
    /// There are frames before the first event.
    Begun,
    Going,
    Ended,
}

/// What comes next.
pub enum NextFrames<'f> {
    /// Frames, at least one.
    Frames(&'f Frames),
    /// Nothing for so long that the client is told that we are still here.
    Heartbeat,
}

/// How an answer in one piece has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerEnd {
    /// All of it is there.
    Complete,
    /// The client's credentials expired before it was.
    Expired,
    /// The server stopped before it was.
    ServerStopped,
}

/// What clients are told of an answer that did not finish before the server stopped.
pub const SERVER_STOPPING: &str = "server_stopping";

impl ReplyStream {
    /// Begins to tell.
    pub async fn new(
        session: Arc<Session>,
        tell: ReplyStreamOptions,
        shared: Arc<super::StreamContext>,
    ) -> Result<Self> {
        let encode = tell.wire.encoder(&tell.encoding);
        let encode = encode.map_err(|error| Error::Store(error.to_string()))?;
        let head = session.watch_head();
        let mut follow = Self {
            session,
            shared,
            wire: tell.wire,
            encode,
            pending_calls: PendingCalls::default(),
            reply_id: tell.reply_id,
            pause: tell.pause,
            is_last: tell.is_last,
            begins_another: None,
            unmerged: false,
            has_sent: false,
            filter: None,
            cursor: 0,
            head,
            frames: Frames::default(),
            state: StreamState::Begun,
            expires_at: tell.expires_at,
            ended: AnswerEnd::Complete,
        };
        follow.seek(tell.begin).await?;
        Ok(follow)
    }

    async fn seek(&mut self, begin: ReplyPosition) -> Result<()> {
        let session = &self.session;
        let snapshot = session.snapshot().await?;
        let first = first_seq_of(session, &snapshot, &self.reply_id).await?;
        // Of a reply whose events are gone there is only the message.
        let start = first.filter(|first| *first >= snapshot.first).map(|first| first.get() - 1);
        self.cursor = match begin {
            ReplyPosition::Start => start.unwrap_or(0),
            ReplyPosition::After(place) => {
                if let Some(start) = start.filter(|start| place > *start) {
                    warm_up_encoder(session, &mut *self.encode, start, place).await?;
                    // The answer before this one ended here.
                    self.encode.end(&mut self.frames);
                    self.frames.clear();
                }
                place
            }
            ReplyPosition::Snapshot => {
                let place = snapshot.head;
                let start = start.map_or(place, |start| start.min(place));
                warm_up_encoder(session, &mut *self.encode, start, place).await?;
                let mut messages = finished_messages_as_of(session, place, start).await?;
                messages.extend(snapshot.open.iter().map(|reply| reply.msg().clone()));
                self.encode.resume(&messages, &mut self.frames);
                place
            }
        };
        Ok(())
    }

    /// Ends before an event that another answer begins with, however soon it comes. What comes before
    /// anything was told belongs to this one.
    #[must_use]
    pub fn end_before(mut self, begins_another: fn(&Event<'_>) -> bool) -> Self {
        self.begins_another = Some(begins_another);
        self
    }

    /// Tells every event by itself, so that the same frames come every time.
    #[must_use]
    pub fn unmerged(mut self) -> Self {
        self.unmerged = true;
        self
    }

    /// Leaves out of the body what the client has already.
    #[must_use]
    pub fn keep_frames(mut self, keep: impl Fn(&str) -> bool + Send + 'static) -> Self {
        self.filter = Some(Box::new(keep));
        self
    }

    /// The protocol.
    pub fn wire(&self) -> &'static Wire {
        self.wire
    }

    /// The session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The next frames; `None` when the answer has ended. An error breaks it off: the client is to
    /// come back.
    pub async fn next(&mut self) -> Option<Result<NextFrames<'_>>> {
        if self.state == StreamState::Begun {
            self.state = StreamState::Going;
            self.look_for_the_last();
            if !self.frames.is_empty() {
                return Some(Ok(NextFrames::Frames(&self.frames)));
            }
        }
        self.frames.clear();
        if self.state == StreamState::Ended {
            return None;
        }
        match Box::pin(self.advance()).await {
            Ok(true) if self.frames.is_empty() => None,
            Ok(true) => Some(Ok(NextFrames::Frames(&self.frames))),
            Ok(false) => Some(Ok(NextFrames::Heartbeat)),
            Err(error) => {
                self.state = StreamState::Ended;
                Some(Err(error))
            }
        }
    }

    /// Goes on until there are frames, or the end. `false`: there is nothing to say.
    async fn advance(&mut self) -> Result<bool> {
        while self.frames.is_empty() && self.state == StreamState::Going {
            let head = *self.head.borrow_and_update();
            if head.is_deleted {
                return Err(Error::NoSession);
            }
            if is_expired(self.expires_at, Instant::now()) {
                self.end_expired();
            } else if self.cursor < head.head {
                self.read_events(head.head).await?;
            } else if self.shared.force_stop.is_cancelled() {
                self.end_stopped();
            } else if !self.awaits_start() && is_paused(&self.session, head, self.pause).await? {
                self.finish();
            } else if !self.wait().await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads what is there, up to the end of the reply.
    async fn read_events(&mut self, to: u64) -> Result<()> {
        let from = Seq::new(self.cursor.saturating_add(1)).unwrap_or(Seq::FIRST);
        let rows = self.session.read_events(from, READ_BYTES).await?;
        let mut events = Vec::new();
        for (seq, line) in
            rows.iter().flat_map(EventLines::iter).take_while(|(seq, _)| seq.get() <= to)
        {
            events.push(Session::parse_event(seq, line)?);
        }
        self.cursor = rows.last().map_or(to, |rows| rows.last().min(to));
        if self.unmerged {
            self.encode_events(events);
        } else {
            self.encode_events(coalesce(events));
        }
        Ok(())
    }

    fn encode_events<'e>(&mut self, events: impl IntoIterator<Item = Event<'e>>) {
        for event in events {
            if self.has_sent && self.begins_another.is_some_and(|is| is(&event)) {
                self.finish();
                return;
            }
            if self.awaits_start() && event.kind.is_part_of_reply() && !event.is_from_sub_agent() {
                self.reply_id = event.reply_id.to_string();
            }
            self.pending_calls.observe(&event);
            self.encode.encode(&event, &mut self.frames);
            self.has_sent |= !self.frames.is_empty();
            let is_end = matches!(event.kind, EventKind::ReplyEnd(_));
            if is_end && event.reply_id == self.reply_id {
                self.finish();
            }
            self.look_for_the_last();
            if self.state == StreamState::Ended {
                return;
            }
        }
    }

    /// Whether the reply is still to come, and nobody knows its name.
    fn awaits_start(&self) -> bool {
        self.pause == PausePolicy::AwaitStart && self.reply_id.is_empty()
    }

    fn look_for_the_last(&mut self) {
        if let Some(is_last) = self.is_last
            && self.frames.iter().last().is_some_and(|(_, text)| is_last(text))
        {
            self.state = StreamState::Ended;
        }
    }

    /// Says what the protocol says at its end.
    fn finish(&mut self) {
        if self.pause == PausePolicy::ExternalOnly {
            self.pending_calls.encode_end(&self.reply_id, &mut *self.encode, &mut self.frames);
        }
        self.encode.end(&mut self.frames);
        if let Some(word) = self.wire.end_marker {
            self.frames.push_text("", word);
        }
        self.state = StreamState::Ended;
    }

    /// Ends the answer because the credentials expired.
    fn end_expired(&mut self) {
        let error = expired_error();
        let message = format!("{}; {}", error.message(), error.hint_text());
        self.end_with_error(AnswerEnd::Expired, ErrorType::Authentication, message);
    }

    /// Ends the answer because the server stops before the reply has ended.
    fn end_stopped(&mut self) {
        let message = format!(
            "the server is restarting before the reply has ended; do not ask again: the reply is in \
             the session {}",
            self.session.id()
        );
        self.end_with_error(
            AnswerEnd::ServerStopped,
            ErrorType::Other(SERVER_STOPPING.into()),
            message,
        );
    }

    /// Ends the answer with the protocol's own error: to this client it looks as if the reply had failed,
    /// and only to this one.
    fn end_with_error(&mut self, ended: AnswerEnd, kind: ErrorType, message: String) {
        let error = ReplyError { r#type: kind, message, ..ReplyError::default() };
        let failed = ReplyEnd {
            session_id: self.session.id().to_owned(),
            finished_reason: FinishedReason::Error,
            error: Some(error),
            ..ReplyEnd::default()
        };
        let event = Event::new(self.reply_id.clone(), failed).stamped(&SystemStamp);
        self.encode.encode(&event, &mut self.frames);
        self.ended = ended;
        self.finish();
    }

    /// Waits for more. `false`: it took long.
    async fn wait(&mut self) -> bool {
        let closing = self.shared.force_stop.clone();
        tokio::select! {
            _ = self.head.changed() => true,
            () = closing.cancelled() => true,
            () = wait_until_expired(self.expires_at) => true,
            () = tokio::time::sleep(self.shared.heartbeat) => false,
        }
    }

    /// The next bytes of a body of server-sent events.
    pub async fn next_bytes(&mut self) -> Option<Result<Bytes>> {
        let mut out = String::new();
        let only = self.filter.take();
        while out.is_empty() {
            match self.next().await? {
                Ok(NextFrames::Frames(frames)) => match &only {
                    Some(keep) => sse::write(&filter_frames(frames, keep), None, &mut out),
                    None => sse::write(frames, None, &mut out),
                },
                Ok(NextFrames::Heartbeat) => sse::write_comment("", &mut out),
                Err(error) => return Some(Err(error)),
            }
        }
        self.filter = only;
        Some(Ok(Bytes::from(out)))
    }

    /// Takes everything to the end, frame by frame: for an answer in one piece.
    pub async fn collect(mut self, mut each: impl FnMut(&str, &str)) -> Result<AnswerEnd> {
        while let Some(next) = self.next().await {
            if let NextFrames::Frames(frames) = next? {
                for (name, text) in frames.iter() {
                    each(name, text);
                }
            }
        }
        Ok(self.ended)
    }
}

fn filter_frames(frames: &Frames, keep: &FrameFilter) -> Frames {
    let mut kept = Frames::default();
    for (name, text) in frames.iter().filter(|(_, text)| keep(text)) {
        kept.push_text(name, text);
    }
    kept
}

/// Whether the reply waits for this client, or has ended without being seen to.
async fn is_paused(session: &Arc<Session>, head: HeadState, pause: PausePolicy) -> Result<bool> {
    match (head.status, pause) {
        (SessionStatus::Running, _) => Ok(false),
        (SessionStatus::Waiting, PausePolicy::ExternalOnly) => {
            let snapshot = session.snapshot().await?;
            Ok(snapshot.pending_calls().iter().any(|pending| !pending.external.is_empty()))
        }
        (SessionStatus::Idle | SessionStatus::Waiting, _) => Ok(true),
    }
}

/// The first event of a reply, if it is there.
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

/// The messages of the conversation as they stood at a place in a turn that began behind `turn`:
/// those that are finished, without the ones that were superseded, and those that grow. Sub-agents'
/// are among them as far as they are of this turn.
pub(super) async fn messages_as_of(
    session: &Arc<Session>,
    place: u64,
    turn: u64,
) -> Result<Vec<Msg>> {
    let mut messages = finished_messages_as_of(session, place, turn).await?;
    let at = Seq::new(place).unwrap_or(Seq::FIRST);
    for id in session.unfinished_messages_at(at).await? {
        messages.extend(session.message_at(&id, at).await?);
    }
    Ok(messages)
}

/// How many bytes of messages a picture of a conversation has at the most: the latest ones. A client of
/// such a protocol sends all that it has with each request, so it cannot use more than a body may have.
const SNAPSHOT_BYTES: usize = 16 << 20;

async fn finished_messages_as_of(
    session: &Arc<Session>,
    place: u64,
    turn: u64,
) -> Result<Vec<Msg>> {
    let (mut messages, mut bytes) = (Vec::new(), 0);
    let mut before = Seq::new(place.saturating_add(1));
    while bytes < SNAPSHOT_BYTES {
        let query = MessageQuery {
            before,
            limit: 64,
            max_bytes: Some(1 << 20),
            sub_agents: true,
            ..MessageQuery::default()
        };
        let stored = session.list_messages(&query).await?;
        let Some(first) = stored.first() else { break };
        before = Some(first.first);
        for stored in stored.iter().rev().filter(|stored| {
            stored.last.get() <= place
                && !stored.superseded
                && (!stored.of_sub_agent || stored.first.get() > turn)
        }) {
            bytes += stored.size();
            messages.extend(super::subscriber::parse_message(&stored.json));
        }
    }
    messages.reverse();
    Ok(messages)
}
