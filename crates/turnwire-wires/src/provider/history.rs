//! A provider's messages on their way in: what a model says and what its calls give is one reply of
//! ours, until somebody else speaks.

use serde::Deserialize;
use serde_json::value::RawValue;
use turnwire_core::{ContentBlock, Error, ErrorKind, Msg, Result, Role, ToolResult};

/// The messages so far.
#[derive(Default)]
pub(crate) struct HistoryReader {
    messages: Vec<(Role, Vec<ContentBlock>)>,
    /// The calls that have no result yet: name and id.
    pending_calls: Vec<(String, String)>,
    /// How many ids were made up.
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

    /// Somebody's message of its own. What its role cannot hold is left out.
    pub(crate) fn push_message(&mut self, role: Role, mut blocks: Vec<ContentBlock>) {
        use ContentBlock::{Data, Other, Text};
        match role {
            Role::System => blocks.retain(|block| matches!(block, Text(_))),
            Role::User => blocks.retain(|block| matches!(block, Text(_) | Data(_) | Other(_))),
            Role::Assistant | Role::Tool => {}
        }
        self.messages.push((role, blocks));
    }

    /// What the model said.
    pub(crate) fn push_reply(&mut self, blocks: Vec<ContentBlock>) {
        self.append_to_reply(Role::Assistant, blocks);
    }

    /// What its calls gave. Results that nobody asked for are a message of their own.
    pub(crate) fn push_results(&mut self, results: Vec<ContentBlock>) {
        self.append_to_reply(Role::Tool, results);
    }

    /// What one call gave, where each is a message of its own.
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

    /// The id of a call; a new one where none is given.
    pub(crate) fn register_call(&mut self, given: Option<&str>, name: &str) -> String {
        let id = self.id_or_new(given);
        self.pending_calls.push((name.to_owned(), id.clone()));
        id
    }

    /// The name and id of the call that a result is for. Where no id is given, it is the first that
    /// waits, of that name if there is one.
    pub(crate) fn match_result(
        &mut self,
        given: Option<&str>,
        name: Option<&str>,
    ) -> (String, String) {
        let given = given.filter(|id| !id.is_empty());
        let name = name.filter(|name| !name.is_empty());
        let found = self.pending_calls.iter().position(|(call, id)| match (given, name) {
            (Some(given), _) => id == given,
            (None, Some(name)) => call == name,
            (None, None) => true,
        });
        let (call, id) = match found.map(|at| self.pending_calls.remove(at)) {
            Some(call) => call,
            None => (String::new(), self.id_or_new(given)),
        };
        (name.map_or(call, str::to_owned), id)
    }

    fn id_or_new(&mut self, given: Option<&str>) -> String {
        if let Some(given) = given.filter(|given| !given.is_empty()) {
            return given.to_owned();
        }
        self.generated_ids += 1;
        format!("call-{}", self.generated_ids)
    }
}
