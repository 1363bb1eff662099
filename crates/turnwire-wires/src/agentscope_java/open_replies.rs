//! What has to be remembered of a stream to know which reply an event of Java's belongs to. It
//! depends on the events alone, in our form, so the reader and the writer remember the same.

use super::message::{self, AgentResult};
use std::borrow::Cow;
use std::collections::BTreeMap;
use turnwire_core::{Event, EventKind, Fields};

/// The replies that are open, one for each agent.
#[derive(Default)]
pub(super) struct OpenReplies {
    /// The session's own agent's.
    own: Option<OpenReply>,
    /// Those of the others, by the path of the agent.
    others: BTreeMap<String, OpenReply>,
    /// How many of them have this id.
    ids: BTreeMap<String, usize>,
}

/// A reply between `AGENT_START` and `AGENT_END`.
#[derive(Default)]
pub(super) struct OpenReply {
    pub reply_id: String,
    pub session_id: String,
    /// How many model calls have begun.
    pub model_calls: u64,
    /// What its `AGENT_RESULT` said.
    pub agent_result: Option<AgentResult>,
    /// The tools of the calls that have no result yet.
    tool_names: BTreeMap<String, String>,
}

/// The ids that Java gives to the one text and the one thinking block of every model call.
pub(super) fn is_constant_block_id(block_id: &str) -> bool {
    matches!(block_id, "text" | "thinking")
}

impl OpenReplies {
    /// A stream in whose middle this reply is open.
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

    /// The reply that an event with the id of its step belongs to. Every step of a Java agent has an
    /// id of its own; a sub-agent's reply is never that of the agent above.
    pub fn outer_reply_id<'a>(&'a self, path: Option<&str>, own: &'a str) -> Cow<'a, str> {
        match (self.find_reply(path), path) {
            (Some(open), _) => Cow::Borrowed(&open.reply_id),
            (None, Some(path)) if self.ids.contains_key(own) => Cow::Owned(format!("{own}/{path}")),
            (None, _) => Cow::Borrowed(own),
        }
    }

    /// The id of a text or thinking block, which has to be the only one of its reply.
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

    /// Remembers what the event tells.
    pub fn apply_event(&mut self, event: &Event<'_>) {
        let path = path_of(event);
        match &event.kind {
            // A reply that goes on after a pause starts again.
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
            _ => {}
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

    /// The open reply that the event is part of.
    fn reply_of(&mut self, event: &Event<'_>) -> Option<&mut OpenReply> {
        let open = match path_of(event) {
            None | Some("") => self.own.as_mut(),
            Some(path) => self.others.get_mut(path),
        }?;
        (open.reply_id == event.reply_id).then_some(open)
    }
}

/// The path of the agent that an event comes from.
pub(super) fn path_of<'e>(event: &'e Event<'_>) -> Option<&'e str> {
    event.agent.as_ref()?.agent_path.as_deref()
}
