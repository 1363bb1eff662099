//! The group of a call, for a client whose protocol has groups of tools: a model of another protocol knows only the
//! functions in them.

use crate::client_context::ClientContext;
use crate::config::LoopConfig;
use std::collections::HashMap;
use turnwire_core::{ContentBlock, Event, EventKind, Msg, ToolCall};

/// The field of a call that names its group.
const NAMESPACE: &str = "namespace";

/// Adds the group to the calls of a model.
#[derive(Default)]
pub(super) struct CallGroups {
    /// The own name and the group of each function, by the name that the model gets.
    groups: HashMap<String, (String, String)>,
    /// The groups of open calls, by their ids.
    open: HashMap<String, String>,
}

impl CallGroups {
    pub(super) fn new(config: &LoopConfig, client: &ClientContext) -> Self {
        let tools = config.named_client_tools(client).into_iter();
        let grouped = tools
            .filter_map(|(tool, name)| Some((name, (tool.name.clone(), tool.namespace.clone()?))));
        Self { groups: grouped.collect(), open: HashMap::new() }
    }

    /// The conversation with the names that the model gets.
    pub(super) fn rename_calls(&self, messages: Vec<Msg>) -> Vec<Msg> {
        if self.groups.iter().all(|(name, (own, _))| name == own) {
            return messages;
        }
        messages.into_iter().map(|msg| self.rename_in_message(msg)).collect()
    }

    fn rename_in_message(&self, msg: Msg) -> Msg {
        if msg.blocks::<ToolCall>().all(|call| self.model_name(call).is_none()) {
            return msg;
        }
        let mut blocks = msg.content().to_vec();
        for block in &mut blocks {
            if let ContentBlock::ToolCall(call) = block
                && let Some(name) = self.model_name(call)
            {
                call.name = name.to_owned();
            }
        }
        msg.to_builder().content(blocks).build().unwrap_or(msg)
    }

    /// The name that the model has for a call, if it is another one.
    fn model_name(&self, call: &ToolCall) -> Option<&str> {
        let group: String = call.rest.get(NAMESPACE).ok().flatten()?;
        let is_it = |own: &(String, String)| own.0 == call.name && own.1 == group;
        let (name, _) = self.groups.iter().find(|(_, own)| is_it(own))?;
        (*name != call.name).then_some(name)
    }

    pub(super) fn add_group(&mut self, mut event: Event<'static>) -> Event<'static> {
        if self.groups.is_empty() {
            return event;
        }
        if let EventKind::ToolCallStart(start) = &mut event.kind
            && let Some((own, group)) = self.groups.get(&*start.tool_call_name)
        {
            start.tool_call_name = own.clone().into();
            self.open.insert(start.tool_call_id.to_string(), group.clone());
        } else if let EventKind::ToolCallEnd(end) = &mut event.kind
            && let Some(group) = self.open.remove(&*end.tool_call_id)
            && end.extra.raw(NAMESPACE).is_none()
        {
            end.extra.insert(NAMESPACE, group);
        }
        event
    }
}
