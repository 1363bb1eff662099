//! Reads a response as it is now, without waiting for its end.

use super::encoding;
use super::response_id::{FoundResponse, is_tool_result};
use crate::error::{ApiError, ApiResult};
use turnwire_core::{Event, EventKind, Json, coalesce};
use turnwire_log::Session;
use turnwire_log::store::EventLines;
use turnwire_wires::openai_responses::ResponseBuilder;

/// How much of the log is read at a time.
const CHUNK: usize = 256 * 1024;

/// Reads a response.
pub(super) async fn read_current(found: &FoundResponse) -> ApiResult<Json> {
    let snapshot = found.session.snapshot().await?;
    let builder = ResponseBuilder::new(&encoding(found));
    let mut reading = ResponseReader { builder, found, is_finished: false };
    let mut from = found.first;
    while !reading.is_finished && snapshot.head.includes(from) {
        let rows = found.session.read_events(from, CHUNK).await?;
        let Some(last) = rows.last().map(EventLines::last) else { break };
        let mut events = Vec::new();
        let lines = rows.iter().flat_map(EventLines::iter);
        for (seq, line) in lines.take_while(|(seq, _)| snapshot.head.includes(*seq)) {
            events.push(Session::parse_event(seq, line)?);
        }
        reading.read_events(events);
        from = last.next();
    }
    let pending = snapshot.pending_calls();
    let waits = pending.iter().any(|pending| !pending.external.is_empty());
    let is_open = snapshot.open.iter().any(|reply| reply.msg().id() == found.id.reply);
    let response = if is_open && !waits && !reading.is_finished {
        reading.builder.into_running()
    } else {
        reading.builder.into_ended()
    };
    response.ok_or_else(|| ApiError::internal("the response has no events"))
}

struct ResponseReader<'f> {
    builder: ResponseBuilder,
    found: &'f FoundResponse,
    /// The response has ended: by the end of the reply, or by tool results.
    is_finished: bool,
}

impl ResponseReader<'_> {
    fn read_events(&mut self, events: Vec<Event<'_>>) {
        for event in coalesce(events) {
            let seq = event.seq;
            if seq.is_some() && seq == self.found.id.results {
                // Earlier events belong to an earlier response.
                self.builder.restart();
            } else if self.builder.has_begun()
                && self.found.id.results <= seq
                && is_tool_result(&event)
            {
                self.is_finished = true;
                return;
            }
            self.builder.push(&event);
            let is_end = matches!(event.kind, EventKind::ReplyEnd(_));
            if is_end && event.reply_id == self.found.id.reply {
                self.is_finished = true;
                return;
            }
        }
    }
}
