//! The middle of a Java agent's reply.
//!
//! Which reply an event of Java's belongs to, and what its blocks are called, depends on what came
//! before it in the stream. A stream comes in many requests here, and any of them may come twice. So
//! for each request a decoder is made that is told what the log has of the reply.

use super::batch::{self, Frames, Item};
use crate::error::{ApiError, ApiResult};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use turnwire_core::{Event, EventKind, Seq};
use turnwire_log::Session;
use turnwire_log::store::{EventLines, SessionNumber};
use turnwire_wires::{Decoder, Encode, EncoderOptions, Frames as Encoded, Wire};

pub(super) const WIRE: &str = "agentscope-java";
/// How many sessions are remembered. Of another one the log is read again.
const REMEMBERED: usize = 1024;
/// How much is read of the log at a time.
const CHUNK: usize = 1 << 20;

/// What has to be told of the replies that grow.
#[derive(Default)]
pub(super) struct Replies {
    known: Mutex<HashMap<SessionNumber, Known>>,
}

/// What has to be told of one reply.
struct Known {
    reply_id: String,
    /// The log was read up to here.
    up_to: u64,
    /// The events that count, on Java's wire.
    lines: Vec<Line>,
    encode: Box<dyn Encode>,
}

struct Line {
    event_id: String,
    is_start: bool,
    text: String,
}

/// The first that a request says about where the agent's own reply begins or ends.
enum Edge {
    Start(String),
    End(String),
}

impl Replies {
    /// Decodes a request.
    pub async fn decode(
        &self,
        session: &Arc<Session>,
        body: &str,
        frames: &Frames<'_>,
    ) -> ApiResult<Vec<Item<'static>>> {
        let alone = batch::decode(&mut batch::decoder(WIRE, None)?, body, frames)?;
        let (open, _) = session
            .transact(&[], |tx| {
                let own = tx.replies().iter().find(|reply| !reply.is_of_sub_agent());
                let own = own.map(|reply| (reply.msg().id().to_owned(), reply.first_seq()));
                Ok::<_, ApiError>(own)
            })
            .await?;
        let mut decoder = match (edge(&alone), open) {
            (Some(Edge::Start(id) | Edge::End(id)), Some((open, first))) if id == open => {
                self.within(session, open, first, &alone).await?
            }
            (None, Some((open, first))) => self.within(session, open, first, &alone).await?,
            // The end of a reply that is not open: what is sent again is known by its ids.
            (Some(Edge::End(id)), _) => batch::decoder(WIRE, Some(id))?,
            (Some(Edge::Start(_)) | None, _) => return Ok(alone),
        };
        batch::decode(&mut decoder, body, frames)
    }

    /// A decoder that knows what came before.
    async fn within(
        &self,
        session: &Arc<Session>,
        reply_id: String,
        first: Seq,
        batch: &[Item<'_>],
    ) -> ApiResult<Decoder> {
        let known = self.known.lock().remove(&session.number());
        let mut known = match known.filter(|known| known.reply_id == reply_id) {
            Some(known) => known,
            None => Known::new(reply_id, first)?,
        };
        known.read_on(session).await?;
        // What is sent again has not happened yet.
        let again: HashSet<&str> = batch.iter().map(|item| &*item.event.id).collect();
        let before = || known.lines.iter().filter(|line| !again.contains(&*line.event_id));
        let has_start = before().any(|line| line.is_start);
        let reply_id = (!has_start).then(|| known.reply_id.clone());
        let mut decoder = batch::decoder(WIRE, reply_id)?;
        for line in before() {
            decoder.feed(line.text.as_bytes(), &mut |_| ());
            decoder.feed(b"\n", &mut |_| ());
        }
        let mut all = self.known.lock();
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(session.number(), known);
        Ok(decoder)
    }
}

impl Known {
    fn new(reply_id: String, first: Seq) -> ApiResult<Self> {
        let wire = Wire::named(WIRE).ok_or_else(|| ApiError::internal("a wire is gone"))?;
        let encode = wire.encoder(&EncoderOptions::default()).map_err(ApiError::internal)?;
        Ok(Self { reply_id, up_to: first.get() - 1, lines: Vec::new(), encode })
    }

    async fn read_on(&mut self, session: &Session) -> ApiResult<()> {
        let mut frames = Encoded::default();
        while self.up_to < session.head_state().head {
            let from = Seq::new(self.up_to + 1).unwrap_or(Seq::FIRST);
            let rows = session.read_events(from, CHUNK).await?;
            let Some(last) = rows.last().map(EventLines::last) else { break };
            for (seq, line) in rows.iter().flat_map(EventLines::iter) {
                let event = Session::parse_event(seq, line)?;
                frames.clear();
                self.encode.encode(&event, &mut frames);
                if counts(&event) {
                    self.lines.extend(frames.iter().map(|(_, text)| Line {
                        event_id: event.id.to_string(),
                        is_start: matches!(event.kind, EventKind::ReplyStart(_)),
                        text: text.to_owned(),
                    }));
                }
            }
            self.up_to = last;
        }
        Ok(())
    }
}

fn edge(items: &[Item<'_>]) -> Option<Edge> {
    let own = items.iter().map(|item| &item.event).filter(|event| event.agent.is_none());
    own.into_iter().find_map(|event| match &event.kind {
        EventKind::ReplyStart(_) => Some(Edge::Start(event.reply_id.to_string())),
        EventKind::ReplyEnd(_) => Some(Edge::End(event.reply_id.to_string())),
        _ => None,
    })
}

/// Whether what comes later is read differently for it.
fn counts(event: &Event<'_>) -> bool {
    match &event.kind {
        EventKind::ReplyStart(_)
        | EventKind::ReplyEnd(_)
        | EventKind::ModelCallStart(_)
        | EventKind::ToolCallStart(_)
        | EventKind::ToolResultStart(_)
        | EventKind::ToolResultEnd(_) => true,
        EventKind::Unknown(word) => word == "AGENT_RESULT",
        _ => false,
    }
}
