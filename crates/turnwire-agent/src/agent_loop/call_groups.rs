//! The group of a call, for a client whose protocol has groups of tools: a model of another protocol knows only the
//! functions in them.

use crate::client_context::ClientContext;
use std::collections::HashMap;
use turnwire_core::{Event, EventKind};

/// The field of a call that names its group.
const NAMESPACE: &str = "namespace";

/// Adds the group to the calls of a model.
#[derive(Default)]
pub(super) struct CallGroups {
    /// The group of each function.
    groups: HashMap<String, String>,
    /// The groups of open calls, by their ids.
    open: HashMap<String, String>,
}

impl CallGroups {
    pub(super) fn new(client: &ClientContext) -> Self {
        let grouped = client
            .tools
            .iter()
            .filter_map(|tool| Some((tool.name.clone(), tool.namespace.clone()?)));
        Self { groups: grouped.collect(), open: HashMap::new() }
    }

    pub(super) fn add_group(&mut self, mut event: Event<'static>) -> Event<'static> {
        if self.groups.is_empty() {
            return event;
        }
        if let EventKind::ToolCallStart(start) = &event.kind
            && let Some(group) = self.groups.get(&*start.tool_call_name)
        {
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
