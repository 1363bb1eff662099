//! Progress of the model calls of a reply. The message does not contain it, but the agent loop needs it to
//! resume the reply after a crash.
//!
//! ```
//! use turnwire_core::{Event, ModelCalls};
//!
//! let mut calls = ModelCalls::default();
//! for line in [
//!     r#"{"type":"MODEL_CALL_START","reply_id":"r"}"#,
//!     r#"{"type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#,
//! ] {
//!     calls.observe(&Event::from_json(line)?);
//! }
//! // The process crashed here: repeat the call and discard the blocks of the first attempt.
//! assert_eq!(calls.open_blocks.as_deref(), Some(&["b".to_owned()][..]));
//! assert_eq!(calls.ended, 0);
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::event::{Event, EventKind};
use crate::msg::ReplyError;
use crate::names::FinishedReason;

/// Progress of the model calls of a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelCalls {
    /// Number of calls that started.
    pub started: u32,
    /// Number of calls that ended, without interrupted calls and calls whose blocks were discarded.
    pub ended: u32,
    /// Why the last call ended.
    pub last_reason: Option<FinishedReason>,
    /// Error of the last call.
    pub last_error: Option<ReplyError>,
    /// Ids of the tool calls of the last call.
    pub tool_calls: Vec<String>,
    /// Ids of the blocks of the running call. `None`: no call is running.
    pub open_blocks: Option<Vec<String>>,
    /// Ids of the tool calls of the running call.
    open_tool_calls: Vec<String>,
}

impl ModelCalls {
    /// Takes the next event of the reply. Repeated events change nothing.
    pub fn observe(&mut self, event: &Event<'_>) {
        let kind = &event.kind;
        if matches!(kind, EventKind::ModelCallStart(_)) && self.open_blocks.is_none() {
            self.open_blocks = Some(Vec::new());
            self.started += 1;
        } else if let EventKind::ModelCallEnd(end) = kind {
            let tool_calls = std::mem::take(&mut self.open_tool_calls);
            let is_whole =
                end.discard.is_empty() && end.finished_reason != FinishedReason::Interrupted;
            if self.open_blocks.take().is_some() && is_whole {
                self.ended += 1;
                self.last_reason = Some(end.finished_reason.clone());
                self.last_error.clone_from(&end.error);
                self.tool_calls = tool_calls;
            }
        } else if let (Some(blocks), Some(id)) = (&mut self.open_blocks, kind.started_block_id()) {
            push_once(blocks, id);
            if matches!(kind, EventKind::ToolCallStart(_)) {
                push_once(&mut self.open_tool_calls, id);
            }
        }
    }
}

fn push_once(ids: &mut Vec<String>, id: &str) {
    if !id.is_empty() && ids.iter().all(|known| known != id) {
        ids.push(id.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(lines: &[&str]) -> ModelCalls {
        let mut calls = ModelCalls::default();
        for line in lines {
            calls.observe(&Event::from_json(line).unwrap());
        }
        calls
    }

    const START: &str = r#"{"type":"MODEL_CALL_START","reply_id":"r"}"#;
    const TEXT: &str = r#"{"type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#;
    const CALL: &str =
        r#"{"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"c","tool_call_name":"t"}"#;
    const END: &str = r#"{"type":"MODEL_CALL_END","reply_id":"r","finished_reason":"tool_calls"}"#;
    const DISCARD: &str =
        r#"{"type":"MODEL_CALL_END","reply_id":"r","finished_reason":"error","discard":["b","c"]}"#;

    #[test]
    fn an_ended_call_lists_its_tool_calls() {
        let calls = after(&[START, TEXT, CALL, CALL, END]);
        assert_eq!((calls.ended, calls.open_blocks), (1, None));
        assert_eq!(calls.tool_calls, ["c"]);
        assert_eq!(calls.last_reason, Some(FinishedReason::ToolCalls));
    }

    #[test]
    fn a_discarded_call_does_not_count() {
        let calls = after(&[START, TEXT, CALL, DISCARD]);
        assert_eq!(calls, ModelCalls { started: 1, ..ModelCalls::default() });
        let calls = after(&[START, TEXT, CALL, DISCARD, START, END]);
        assert_eq!((calls.started, calls.ended, calls.tool_calls.len()), (2, 1, 0));
    }

    #[test]
    fn blocks_between_calls_belong_to_no_call() {
        assert_eq!(after(&[TEXT, CALL]), ModelCalls::default());
    }
}
