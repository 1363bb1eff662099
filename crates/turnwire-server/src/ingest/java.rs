//! Continues the reply of an AgentScope Java agent over several requests.
//!
//! In this wire the reply of an event and the ids of its blocks depend on earlier events of the
//! stream. Here a stream comes in many requests, and any of them may be repeated. So each request
//! gets a new decoder, which is first fed with what the log has of the reply.

use super::batch::{self, BatchEvent, BodyFrames};
use crate::error::{ApiError, ApiResult};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use turnwire_core::{Event, EventKind, Head, Seq, event_kinds};
use turnwire_log::Session;
use turnwire_log::store::{EventLines, SessionNumber};
use turnwire_wires::{Decoder, Encode, EncoderOptions, Frames as Encoded, Wire};

pub(super) const WIRE: &str = "agentscope-java";
/// How many sessions are kept in memory. For others the log is read again.
const MAX_SESSIONS: usize = 1024;
/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 1 << 20;

/// The open replies of Java agents.
#[derive(Default)]
pub(super) struct JavaReplies {
    by_session: Mutex<HashMap<SessionNumber, KnownReply>>,
}

/// What is known of one reply.
struct KnownReply {
    reply_id: String,
    /// The log was read up to here.
    read_to: Head,
    /// The events that change how later ones are decoded, on this wire.
    lines: Vec<EncodedEvent>,
    encode: Box<dyn Encode>,
}

struct EncodedEvent {
    event_id: String,
    is_start: bool,
    text: String,
}

/// The first start or end of the agent's own reply in a request.
enum ReplyEdge {
    Start(String),
    End(String),
}

impl JavaReplies {
    /// Decodes a request.
    pub async fn decode(
        &self,
        session: &Arc<Session>,
        body: &str,
        frames: &BodyFrames<'_>,
    ) -> ApiResult<Vec<BatchEvent<'static>>> {
        let alone = batch::decode_frames(&mut batch::new_decoder(WIRE, None)?, body, frames)?;
        let snapshot = session.snapshot().await?;
        let own = snapshot.open.iter().find(|reply| !reply.is_of_sub_agent());
        let open = own.map(|reply| (reply.msg().id().to_owned(), reply.first_seq()));
        let mut decoder = match (find_edge(&alone), open) {
            (Some(ReplyEdge::Start(id) | ReplyEdge::End(id)), Some((open, first)))
                if id == open =>
            {
                self.decoder_within(session, open, first, &alone).await?
            }
            (None, Some((open, first))) => {
                self.decoder_within(session, open, first, &alone).await?
            }
            // The end of a reply that is not open: repeated events are recognised by their ids.
            (Some(ReplyEdge::End(id)), _) => batch::new_decoder(WIRE, Some(id))?,
            (Some(ReplyEdge::Start(_)) | None, _) => return Ok(alone),
        };
        batch::decode_frames(&mut decoder, body, frames)
    }

    /// A decoder that has seen the earlier events of the reply.
    async fn decoder_within(
        &self,
        session: &Arc<Session>,
        reply_id: String,
        first: Seq,
        batch: &[BatchEvent<'_>],
    ) -> ApiResult<Decoder> {
        let known = self.by_session.lock().remove(&session.number());
        let mut known = match known.filter(|known| known.reply_id == reply_id) {
            Some(known) => known,
            None => KnownReply::new(reply_id, first)?,
        };
        known.catch_up(session).await?;
        // A repeated event has not happened yet for this decoder.
        let again: HashSet<&str> = batch.iter().map(|item| &*item.event.id).collect();
        let before = || known.lines.iter().filter(|line| !again.contains(&*line.event_id));
        let has_start = before().any(|line| line.is_start);
        let reply_id = (!has_start).then(|| known.reply_id.clone());
        let mut decoder = batch::new_decoder(WIRE, reply_id)?;
        for line in before() {
            decoder.feed(line.text.as_bytes(), &mut |_| ());
            decoder.feed(b"\n", &mut |_| ());
        }
        let mut all = self.by_session.lock();
        if all.len() >= MAX_SESSIONS {
            all.clear();
        }
        all.insert(session.number(), known);
        Ok(decoder)
    }
}

impl KnownReply {
    fn new(reply_id: String, first: Seq) -> ApiResult<Self> {
        let wire = Wire::named(WIRE).ok_or_else(|| ApiError::internal("a wire is missing"))?;
        let encode = wire.encoder(&EncoderOptions::default()).map_err(ApiError::internal)?;
        Ok(Self { reply_id, read_to: first.previous(), lines: Vec::new(), encode })
    }

    async fn catch_up(&mut self, session: &Session) -> ApiResult<()> {
        let mut frames = Encoded::default();
        while self.read_to < session.head_state().head {
            let rows = session.read_events(self.read_to.next(), READ_BYTES).await?;
            let Some(last) = rows.last().map(EventLines::last) else { break };
            for (seq, line) in rows.iter().flat_map(EventLines::iter) {
                let event = Session::parse_event(seq, line)?;
                frames.clear();
                self.encode.encode(&event, &mut frames);
                if changes_decoding(&event) {
                    self.lines.extend(frames.iter().map(|(_, text)| EncodedEvent {
                        event_id: event.id.to_string(),
                        is_start: matches!(event.kind, EventKind::ReplyStart(_)),
                        text: text.to_owned(),
                    }));
                }
            }
            self.read_to = last.into();
        }
        Ok(())
    }
}

fn find_edge(items: &[BatchEvent<'_>]) -> Option<ReplyEdge> {
    let own = items.iter().map(|item| &item.event).filter(|event| event.agent.is_none());
    own.into_iter().find_map(|event| match &event.kind {
        EventKind::ReplyStart(_) => Some(ReplyEdge::Start(event.reply_id.to_string())),
        EventKind::ReplyEnd(_) => Some(ReplyEdge::End(event.reply_id.to_string())),
        event_kinds!(model_call content tool pending_call notice session) => None,
    })
}

/// Whether an event changes how later ones are decoded.
fn changes_decoding(event: &Event<'_>) -> bool {
    match &event.kind {
        event_kinds!(ModelCallStart ToolCallStart ToolResultStart ToolResultEnd reply) => true,
        EventKind::Unknown(word) => word == "AGENT_RESULT",
        event_kinds!(
            ModelCallEnd ToolCallDelta ToolCallEnd ToolResultTextDelta ToolResultDataDelta Custom
            Message Supersede Reset content pending_call notice
        ) => false,
    }
}
