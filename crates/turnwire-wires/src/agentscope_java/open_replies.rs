//! The open replies of a stream, to find the reply of an event. It depends only on our events, so
//! encoder and decoder agree.

use super::message::{self, AgentResult};
use std::borrow::Cow;
use std::collections::BTreeMap;
use turnwire_core::{Event, EventKind, Fields, event_kinds};

/// The open replies, at most one for each agent.
#[derive(Default)]
pub(super) struct OpenReplies {
    /// The reply of the session's own agent.
    own: Option<OpenReply>,
    /// The replies of sub-agents, by agent path.
    others: BTreeMap<String, OpenReply>,
    /// How many open replies have this id.
    ids: BTreeMap<String, usize>,
}

/// A reply between `AGENT_START` and `AGENT_END`.
#[derive(Default)]
pub(super) struct OpenReply {
    pub reply_id: String,
    pub session_id: String,
    /// How many model calls have started.
    pub model_calls: u64,
    /// The content of its `AGENT_RESULT`.
    pub agent_result: Option<AgentResult>,
    /// Tool names of calls without a result.
    tool_names: BTreeMap<String, String>,
}

/// The block ids that Java uses in every model call.
pub(super) fn is_constant_block_id(block_id: &str) -> bool {
    matches!(block_id, "text" | "thinking")
}

impl OpenReplies {
    /// A stream that starts inside this reply.
    pub fn within(reply_id: Option<&str>) -> Self {
        let mut track = Self::default();
        if let Some(reply_id) = reply_id {
            track.start(None, OpenReply { reply_id: reply_id.to_owned(), ..OpenReply::default() });
        }
        track
    }

    /// The open reply of the agent with this path.
    pub fn find_reply(&self, path: Option<&str>) -> Option<&OpenReply> {
        match path {
            None | Some("") => self.own.as_ref(),
            Some(path) => self.others.get(path),
        }
    }

    /// The reply that an event belongs to. Every step of a Java agent has an id of its own; a
    /// sub-agent's reply never has the id of its parent's.
    pub fn outer_reply_id<'a>(&'a self, path: Option<&str>, own: &'a str) -> Cow<'a, str> {
        match (self.find_reply(path), path) {
            (Some(open), _) => Cow::Borrowed(&open.reply_id),
            (None, Some(path)) if self.ids.contains_key(own) => Cow::Owned(format!("{own}/{path}")),
            (None, _) => Cow::Borrowed(own),
        }
    }

    /// The id of a text or thinking block, made unique within its reply.
    pub fn block_id<'a>(&self, path: Option<&str>, own: &str, block_id: &'a str) -> Cow<'a, str> {
        let Some(open) = self.find_reply(path).filter(|_| is_constant_block_id(block_id)) else {
            return Cow::Borrowed(block_id);
        };
        if open.reply_id != own {
            Cow::Owned(format!("{own}:{block_id}"))
        } else if open.model_calls > 1 {
            Cow::Owned(format!("{block_id}:{}", open.model_calls))
        } else {
            Cow::Borrowed(block_id)
        }
    }

    /// The tool of a call.
    pub fn tool_name(&self, path: Option<&str>, call: &str) -> Option<&str> {
        self.find_reply(path)?.tool_names.get(call).map(String::as_str)
    }

    /// Updates the state.
    pub fn apply_event(&mut self, event: &Event<'_>) {
        let path = path_of(event);
        match &event.kind {
            // A reply that continues after a pause starts again.
            EventKind::ReplyStart(start) if self.reply_of(event).is_none() => {
                let open = OpenReply {
                    reply_id: event.reply_id.to_string(),
                    session_id: start.session_id.clone(),
                    ..OpenReply::default()
                };
                self.start(path, open);
            }
            EventKind::ReplyEnd(_) if self.reply_of(event).is_some() => {
                self.end(path);
            }
            EventKind::ModelCallStart(_) => {
                if let Some(open) = self.reply_of(event) {
                    open.model_calls += 1;
                }
            }
            EventKind::ToolCallStart(start) => {
                if let Some(open) = self.reply_of(event) {
                    open.tool_names
                        .insert(start.tool_call_id.to_string(), start.tool_call_name.to_string());
                }
            }
            EventKind::ToolResultStart(start) => {
                if let Some(open) = self.reply_of(event) {
                    open.tool_names
                        .insert(start.tool_call_id.to_string(), start.tool_call_name.to_string());
                }
            }
            EventKind::ToolResultEnd(end) => {
                if let Some(open) = self.reply_of(event) {
                    open.tool_names.remove(&*end.tool_call_id);
                }
            }
            EventKind::Unknown(word) if word == "AGENT_RESULT" => {
                if let Ok(Some(result)) = event.rest.get::<Fields>("result")
                    && let Some(open) = self.reply_of(event)
                {
                    open.agent_result = Some(message::read_agent_result(&result));
                }
            }
            event_kinds!(
                ModelCallEnd ToolCallDelta ToolCallEnd ToolResultTextDelta ToolResultDataDelta
                reply content pending_call notice session
            ) => {}
        }
    }

    fn start(&mut self, path: Option<&str>, open: OpenReply) {
        self.end(path);
        *self.ids.entry(open.reply_id.clone()).or_default() += 1;
        match path {
            None | Some("") => self.own = Some(open),
            Some(path) => drop(self.others.insert(path.to_owned(), open)),
        }
    }

    fn end(&mut self, path: Option<&str>) {
        let ended = match path {
            None | Some("") => self.own.take(),
            Some(path) => self.others.remove(path),
        };
        let Some(open) = ended else { return };
        if let Some(count) = self.ids.get_mut(&open.reply_id) {
            *count -= 1;
            if *count == 0 {
                self.ids.remove(&open.reply_id);
            }
        }
    }

    /// The open reply of an event.
    fn reply_of(&mut self, event: &Event<'_>) -> Option<&mut OpenReply> {
        let open = match path_of(event) {
            None | Some("") => self.own.as_mut(),
            Some(path) => self.others.get_mut(path),
        }?;
        (open.reply_id == event.reply_id).then_some(open)
    }
}

/// The path of an event's agent.
pub(super) fn path_of<'e>(event: &'e Event<'_>) -> Option<&'e str> {
    event.agent.as_ref()?.agent_path.as_deref()
}
