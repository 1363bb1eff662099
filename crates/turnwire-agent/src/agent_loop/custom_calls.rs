//! Free-text tools of a client, for a model whose protocol has only functions: the model's calls become free-text calls
//! again, and those of the conversation become calls of functions.

use crate::client_context::ClientContext;
use crate::config::LoopConfig;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use turnwire_core::event::ToolCallDelta;
use turnwire_core::{BlockKind, ContentBlock, Event, EventKind, Fields, Json, Msg, ToolCall};
use turnwire_wires::model_request::FREE_TEXT;

/// The fields that mark a free-text call, by the client's wire.
const MARKS: [(&str, &str, &str); 2] =
    [("openai-chat", "custom", "true"), ("openai-responses", "item_type", "\"custom_tool_call\"")];

/// The free-text tools that the model has as functions.
#[derive(Default)]
pub(super) struct CustomCalls {
    names: HashSet<String>,
    /// The wire of the client.
    wire: String,
    /// The inputs of open calls so far, by their ids.
    open: HashMap<String, String>,
}

impl CustomCalls {
    pub(super) fn new(config: &LoopConfig, client: &ClientContext) -> Self {
        let tools = config.named_client_tools(client).into_iter();
        let tools = tools.filter(|(tool, _)| config.tool_as_function(tool, client).is_some());
        let names = tools.map(|(_, name)| name).collect();
        Self { names, wire: client.wire.clone(), open: HashMap::new() }
    }

    /// The conversation with calls of functions.
    pub(super) fn to_functions(&self, messages: Vec<Msg>) -> Vec<Msg> {
        if self.names.is_empty() {
            return messages;
        }
        messages.into_iter().map(|msg| self.message_to_functions(msg)).collect()
    }

    fn message_to_functions(&self, msg: Msg) -> Msg {
        let is_free_text = |block: &ContentBlock| {
            ToolCall::from_block(block)
                .is_some_and(|call| self.names.contains(&call.name) && has_mark(&call.rest))
        };
        if !msg.content().iter().any(is_free_text) {
            return msg;
        }
        let mut blocks = msg.content().to_vec();
        for block in blocks.iter_mut().filter(|block| is_free_text(block)) {
            if let ContentBlock::ToolCall(call) = block {
                call.input = json!({ FREE_TEXT: call.input }).to_string();
                for (_, field, _) in MARKS {
                    call.rest.remove(field);
                }
            }
        }
        msg.to_builder().content(blocks).build().unwrap_or(msg)
    }

    /// The events of a call as those of a free-text call. Its text is known when its JSON is complete.
    pub(super) fn read_event(&mut self, mut event: Event<'static>) -> Vec<Event<'static>> {
        if let EventKind::ToolCallStart(start) = &event.kind
            && self.names.contains(&*start.tool_call_name)
        {
            self.open.insert(start.tool_call_id.to_string(), String::new());
        } else if let EventKind::ToolCallDelta(part) = &event.kind
            && let Some(input) = self.open.get_mut(&*part.tool_call_id)
        {
            input.push_str(&part.delta);
            return Vec::new();
        } else if let EventKind::ToolCallEnd(end) = &mut event.kind
            && let Some(input) = self.open.remove(&*end.tool_call_id)
        {
            let mark = MARKS.iter().find(|(wire, ..)| *wire == self.wire);
            if let Some((_, field, value)) = mark
                && let Ok(value) = Json::parse(value)
            {
                end.extra.insert(*field, value);
            }
            let (tool_call_id, delta) = (end.tool_call_id.clone(), read_free_text(input));
            let mut text = event.clone();
            text.kind = ToolCallDelta { tool_call_id, delta: delta.into() }.into();
            return vec![text, event];
        }
        vec![event]
    }
}

fn has_mark(rest: &Fields) -> bool {
    MARKS.iter().any(|(_, field, value)| rest.raw(field).is_some_and(|it| it.text() == *value))
}

/// The text in the input of a function; an input of another form is the text.
fn read_free_text(input: String) -> String {
    let fields = serde_json::from_str::<Fields>(&input).unwrap_or_default();
    fields.get::<String>(FREE_TEXT).ok().flatten().unwrap_or(input)
}
