//! Reads a response as it is now, without waiting for its end.

use super::response_id::{FoundResponse, is_tool_result};
use super::{encoding, wire};
use crate::error::{ApiError, ApiResult};
use serde_json::Value;
use turnwire_core::{Event, EventKind, coalesce};
use turnwire_log::Session;
use turnwire_log::store::EventLines;
use turnwire_wires::{Encode, Frames};

/// How much of the log is read at a time.
const CHUNK: usize = 256 * 1024;

/// Reads a response.
pub(super) async fn read_current(found: &FoundResponse) -> ApiResult<Value> {
    let snapshot = found.session.snapshot().await?;
    let encode = wire()?.encoder(&encoding(found));
    let mut reading = ResponseReader {
        encode: encode.map_err(ApiError::internal)?,
        frames: Frames::default(),
        found,
        has_frames: false,
        is_finished: false,
    };
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
    reading.encode.end(&mut reading.frames);
    let mut response = reading.response()?;
    if is_open && !waits && !reading.is_finished {
        mark_in_progress(&mut response);
    }
    Ok(response)
}

struct ResponseReader<'f> {
    encode: Box<dyn Encode>,
    frames: Frames,
    found: &'f FoundResponse,
    has_frames: bool,
    /// The response has ended: by the end of the reply, or by tool results.
    is_finished: bool,
}

impl ResponseReader<'_> {
    fn read_events(&mut self, events: Vec<Event<'_>>) {
        for event in coalesce(events) {
            let seq = event.seq;
            if seq.is_some() && seq == self.found.id.results {
                // Earlier events belong to an earlier response.
                self.encode.end(&mut self.frames);
                self.frames.clear();
                self.has_frames = false;
            } else if self.has_frames && self.found.id.results <= seq && is_tool_result(&event) {
                self.is_finished = true;
                return;
            }
            // Only the last frame counts.
            self.has_frames |= !self.frames.is_empty();
            self.frames.clear();
            self.encode.encode(&event, &mut self.frames);
            self.has_frames |= !self.frames.is_empty();
            let is_end = matches!(event.kind, EventKind::ReplyEnd(_));
            if is_end && event.reply_id == self.found.id.reply {
                self.is_finished = true;
                return;
            }
        }
    }

    fn response(&self) -> ApiResult<Value> {
        let last = self.frames.iter().last();
        response_in_frame(last.map_or("", |(_, text)| text))
    }
}

/// The response in its last frame.
pub(super) fn response_in_frame(frame: &str) -> ApiResult<Value> {
    #[derive(serde::Deserialize)]
    struct Last {
        response: Value,
    }
    let last: Last = serde_json::from_str(frame).map_err(ApiError::internal)?;
    Ok(last.response)
}

/// Marks a response as running: removes its end, and calls of which it is not known who executes them.
fn mark_in_progress(response: &mut Value) {
    let Some(fields) = response.as_object_mut() else { return };
    fields.insert("status".to_owned(), "in_progress".into());
    fields.insert("incomplete_details".to_owned(), Value::Null);
    fields.insert("usage".to_owned(), Value::Null);
    let Some(Value::Array(output)) = fields.get_mut("output") else { return };
    output.retain(|item| {
        !matches!(
            item.get("type").and_then(Value::as_str),
            Some("function_call" | "custom_tool_call")
        )
    });
    for item in output {
        if let Some(status) = item.get_mut("status").filter(|status| *status == "incomplete") {
            *status = "in_progress".into();
        }
    }
}
