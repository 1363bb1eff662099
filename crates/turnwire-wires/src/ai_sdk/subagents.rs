//! Encodes sub-agents: each is a `data-subagent` part of the main message with the sub-agent's
//! message so far.

use super::chunk::{Chunk, Subagent};
use super::message;
use crate::stream::Frames;
use std::collections::HashMap;
use turnwire_core::event::{
    SubAgent, TextBlockDelta, ThinkingBlockDelta, ToolCallDelta, ToolResultTextDelta,
};
use turnwire_core::{Event, EventKind, Msg, ToolCall, ToolResult, event_kinds};

/// The size that an event other than a delta may add to a message's JSON.
const BLOCK_COST: usize = 400;

#[derive(Debug, Default)]
pub(super) struct Subagents {
    by_reply: HashMap<String, SubagentState>,
    /// The replies in order of their first events.
    order: Vec<String>,
}

#[derive(Debug)]
struct SubagentState {
    agent: SubAgent,
    msg: Msg,
    size: usize,
    /// The size at which it is written next. It doubles, so the total stays linear.
    next_size: usize,
    is_changed: bool,
    is_shown: bool,
}

impl Subagents {
    pub(super) fn has(&self, reply_id: &str) -> bool {
        self.by_reply.contains_key(reply_id)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Applies a sub-agent's event. Returns whether to write its message now.
    pub(super) fn apply_event(&mut self, event: &Event<'_>) -> bool {
        let id = &*event.reply_id;
        if !self.by_reply.contains_key(id) {
            self.order.push(id.to_owned());
            let agent = event.agent.as_deref().cloned().unwrap_or_default();
            let msg = Msg::reply(id, "");
            let sub = SubagentState {
                agent,
                msg,
                size: 0,
                next_size: 1,
                is_changed: false,
                is_shown: false,
            };
            self.by_reply.insert(id.to_owned(), sub);
        }
        let Some(sub) = self.by_reply.get_mut(id) else { return false };
        // Invalid events are ignored, as in the message.
        let _ = sub.msg.append_event_tolerant(event);
        sub.is_changed = true;
        sub.size += event_size(&event.kind);
        let is_turn = matches!(
            event.kind,
            event_kinds!(ReplyEnd RequireUserConfirm RequireExternalExecution)
        );
        is_turn || sub.size >= sub.next_size
    }

    /// Writes a sub-agent's message so far. Returns whether it is the first time.
    pub(super) fn show_message(&mut self, reply_id: &str, out: &mut Frames) -> bool {
        self.write_message(reply_id, out);
        let Some(sub) = self.by_reply.get_mut(reply_id) else { return false };
        sub.is_changed = false;
        sub.next_size = sub.size.saturating_mul(2);
        !std::mem::replace(&mut sub.is_shown, true)
    }

    /// Writes a sub-agent's message so far.
    pub(super) fn write_message(&self, reply_id: &str, out: &mut Frames) {
        let Some(sub) = self.by_reply.get(reply_id) else { return };
        let chunk = Chunk::DataSubagent {
            id: reply_id,
            data: Subagent {
                agent_path: sub.agent.agent_path.as_deref(),
                parent_tool_call_id: sub.agent.parent_tool_call_id.as_deref(),
                message: &message::write_message(&sub.msg),
            },
        };
        out.push("", &chunk);
    }

    /// The replies that changed since they were last written.
    pub(super) fn changed(&self) -> Vec<String> {
        let is_changed = |id: &&String| self.by_reply.get(*id).is_some_and(|sub| sub.is_changed);
        self.order.iter().filter(is_changed).cloned().collect()
    }

    /// The path of a reply's agent.
    pub(super) fn path(&self, reply_id: &str) -> Option<&str> {
        self.by_reply.get(reply_id)?.agent.agent_path.as_deref()
    }

    pub(super) fn call(&self, reply_id: &str, id: &str) -> Option<&ToolCall> {
        self.by_reply.get(reply_id)?.msg.blocks().find(|call: &&ToolCall| call.id == id)
    }

    pub(super) fn result(&self, reply_id: &str, id: &str) -> Option<&ToolResult> {
        self.by_reply.get(reply_id)?.msg.blocks().find(|result: &&ToolResult| result.id == id)
    }
}

fn event_size(kind: &EventKind<'_>) -> usize {
    if let EventKind::TextBlockDelta(TextBlockDelta { delta, .. })
    | EventKind::ThinkingBlockDelta(ThinkingBlockDelta { delta, .. })
    | EventKind::ToolCallDelta(ToolCallDelta { delta, .. })
    | EventKind::ToolResultTextDelta(ToolResultTextDelta { delta, .. }) = kind
    {
        delta.len()
    } else {
        BLOCK_COST
    }
}
