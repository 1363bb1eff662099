//! Writes an event as JSON: AgentScope's fields in AgentScope's order, then ours, then unknown fields.

use super::Event;
use crate::json::{entries_of, entry_if, entry_known};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

impl Event<'_> {
    /// The event as one line of JSON.
    pub fn to_json(&self) -> String {
        // Cannot fail: every key is a string and every value is plain.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        entry_known(&mut map, "id", &self.id)?;
        entry_known(&mut map, "created_at", &self.created_at)?;
        // An event of an unknown type gets no fields that it did not have.
        if self.kind.is_known() || !self.metadata.is_empty() {
            map.serialize_entry("metadata", &self.metadata)?;
        }
        map.serialize_entry("type", self.kind.type_name())?;
        self.kind.write_lead(&mut map)?;
        // AgentScope's service sends an empty `reply_id` if there is no reply.
        if self.kind.needs_reply() || !self.reply_id.is_empty() {
            map.serialize_entry("reply_id", &self.reply_id)?;
        }
        self.kind.write(&mut map)?;
        entry_if(&mut map, "seq", self.seq.as_ref())?;
        entry_if(&mut map, "seq_from", self.seq_from.as_ref())?;
        if let Some(agent) = &self.agent {
            entry_if(&mut map, "agent_path", agent.agent_path.as_ref())?;
            entry_if(&mut map, "parent_tool_call_id", agent.parent_tool_call_id.as_ref())?;
        }
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}
