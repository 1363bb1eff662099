//! Reads a provider's list of messages. Consecutive messages of the model, and the tool results between them, become one
//! assistant message.

use serde::Deserialize;
use serde_json::value::RawValue;
use turnwire_core::{ContentBlock, Error, ErrorKind, Msg, Result, Role, ToolResult};

/// Collects the messages of a provider's history.
#[derive(Default)]
pub(crate) struct HistoryReader {
    messages: Vec<(Role, Vec<ContentBlock>)>,
    /// Calls without a result so far: name and id.
    pending_calls: Vec<(String, String)>,
    /// The number of ids that were generated.
    generated_ids: usize,
}

impl HistoryReader {
    /// Reads a list of messages, or a single one.
    pub(crate) fn read<'t, M: Deserialize<'t>>(
        text: &'t str,
        each: impl Fn(&mut Self, M),
    ) -> Result<Vec<Msg>> {
        let list: Vec<&'t RawValue> = if text.trim_ascii_start().starts_with('[') {
            serde_json::from_str(text)
        } else {
            serde_json::from_str(text).map(|one| vec![one])
        }
        .map_err(|error| Error::new(ErrorKind::NotJson, error.to_string()))?;
        let mut history = Self::default();
        for (at, message) in list.iter().enumerate() {
            let message = super::parse_frame(message.get()).map_err(|error| {
                Error::new(ErrorKind::NotAMessage, error.message()).at(format!("[{at}]"))
            })?;
            each(&mut history, message);
        }
        let build = |(role, content): (Role, Vec<ContentBlock>)| {
            Msg::builder(role).content(content).build()
        };
        history.messages.into_iter().map(build).collect()
    }

    /// Adds a message. Blocks that its role cannot hold are left out.
    pub(crate) fn push_message(&mut self, role: Role, mut blocks: Vec<ContentBlock>) {
        use ContentBlock::{Data, Other, Text};
        match role {
            Role::System => blocks.retain(|block| matches!(block, Text(_))),
            Role::User => blocks.retain(|block| matches!(block, Text(_) | Data(_) | Other(_))),
            Role::Assistant | Role::Tool => {}
        }
        self.messages.push((role, blocks));
    }

    /// Adds what the model said.
    pub(crate) fn push_reply(&mut self, blocks: Vec<ContentBlock>) {
        self.append_to_reply(Role::Assistant, blocks);
    }

    /// Adds tool results. Results without a reply before them are a message of their own.
    pub(crate) fn push_results(&mut self, results: Vec<ContentBlock>) {
        self.append_to_reply(Role::Tool, results);
    }

    /// Adds one tool result, for protocols in which each is a message.
    pub(crate) fn push_result(&mut self, result: Option<ToolResult>) {
        let result = result.map(ContentBlock::from);
        match self.messages.last_mut() {
            Some((Role::Assistant | Role::Tool, content)) => content.extend(result),
            _ => self.messages.push((Role::Tool, result.into_iter().collect())),
        }
    }

    fn append_to_reply(&mut self, role: Role, mut blocks: Vec<ContentBlock>) {
        match self.messages.last_mut() {
            Some((Role::Assistant, content)) => content.append(&mut blocks),
            _ => self.messages.push((role, blocks)),
        }
    }

    /// Remembers a call and returns its id, or a new one if none is given.
    pub(crate) fn register_call(&mut self, known_id: Option<&str>, name: &str) -> String {
        let id = self.id_or_new(known_id);
        self.pending_calls.push((name.to_owned(), id.clone()));
        id
    }

    /// Finds the name and id of the call that a result is for. Without an id it is the first pending call, of that name if one
    /// is given.
    pub(crate) fn match_result(
        &mut self,
        known_id: Option<&str>,
        name: Option<&str>,
    ) -> (String, String) {
        let known_id = known_id.filter(|id| !id.is_empty());
        let name = name.filter(|name| !name.is_empty());
        let found = self.pending_calls.iter().position(|(call, id)| match (known_id, name) {
            (Some(known_id), _) => id == known_id,
            (None, Some(name)) => call == name,
            (None, None) => true,
        });
        let (call, id) = match found.map(|at| self.pending_calls.remove(at)) {
            Some(call) => call,
            None => (String::new(), self.id_or_new(known_id)),
        };
        (name.map_or(call, str::to_owned), id)
    }

    fn id_or_new(&mut self, known_id: Option<&str>) -> String {
        if let Some(known_id) = known_id.filter(|known_id| !known_id.is_empty()) {
            return known_id.to_owned();
        }
        self.generated_ids += 1;
        format!("call-{}", self.generated_ids)
    }
}
