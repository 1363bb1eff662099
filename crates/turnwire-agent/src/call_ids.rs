//! Gives tool calls ids that are unique in their session, even if a provider reuses ids.
//!
//! Clients refer to a call by its id, and repeat old results with each request. So an id that the session
//! used before is replaced when the model's answer is read. The log and every later request to the provider
//! have the new id, in the call and in its result.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use turnwire_core::{ContentBlock, Event, EventKind, Msg, ToolCall, event_kinds};

/// The shortest run of letters and digits that counts as random.
const MIN_RANDOM_CHARS: usize = 16;

/// Whether an id looks random, so that no other call has it: `call_0` does not; `call_Vx3KcT0yqP1sQ8mZ`
/// does, and so does an id that contains a UUID.
pub fn is_random_id(id: &str) -> bool {
    let is_uuid = |window: &[u8]| {
        window.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    id.split(|letter: char| !letter.is_ascii_alphanumeric())
        .any(|run| run.len() >= MIN_RANDOM_CHARS)
        || id.as_bytes().windows(36).any(is_uuid)
}

/// The ids of the calls of one model call.
pub(crate) struct CallIds {
    /// The seed of new ids, unique for each model call.
    prefix: String,
    /// Whether the reply is a sub-agent's: other sub-agents run at the same time, with ids that are not
    /// known here.
    is_of_sub_agent: bool,
    used: HashSet<String>,
    renamed: HashMap<String, String>,
    generated: u32,
}

impl CallIds {
    pub(crate) fn new<'m>(
        prefix: &str,
        depth: u32,
        messages: impl Iterator<Item = &'m Msg>,
        used: &[String],
    ) -> Self {
        let in_messages = messages.flat_map(tool_call_ids).map(str::to_owned);
        Self {
            prefix: prefix.to_owned(),
            is_of_sub_agent: depth > 0,
            used: in_messages.chain(used.iter().cloned()).collect(),
            renamed: HashMap::new(),
            generated: 0,
        }
    }

    /// Replaces the ids in an event of the model.
    pub(crate) fn rewrite_ids(&mut self, mut event: Event<'static>) -> Event<'static> {
        match &mut event.kind {
            EventKind::ToolCallStart(start) => {
                let id = self.assign_id(&start.tool_call_id);
                start.tool_call_id = id.into();
            }
            EventKind::Block(block) => {
                if let ContentBlock::ToolCall(call) = &mut *block.block {
                    call.id = self.assign_id(&call.id);
                }
            }
            EventKind::ToolCallDelta(part) => self.replace_id(&mut part.tool_call_id),
            EventKind::ToolCallEnd(end) => self.replace_id(&mut end.tool_call_id),
            EventKind::ToolResultStart(start) => self.replace_id(&mut start.tool_call_id),
            EventKind::ToolResultTextDelta(part) => self.replace_id(&mut part.tool_call_id),
            EventKind::ToolResultDataDelta(part) => self.replace_id(&mut part.tool_call_id),
            EventKind::ToolResultEnd(end) => self.replace_id(&mut end.tool_call_id),
            EventKind::ModelCallEnd(end) => {
                for id in &mut end.discard {
                    if let Some(renamed) = self.renamed.get(id) {
                        id.clone_from(renamed);
                    }
                }
            }
            event_kinds!(
                ModelCallStart Hint reply text thinking data pending_call notice session
            ) => {}
        }
        event
    }

    /// The id of a call that starts.
    fn assign_id(&mut self, id: &str) -> String {
        let is_shared = self.is_of_sub_agent && !is_random_id(id);
        if !is_shared && !self.used.contains(id) {
            self.used.insert(id.to_owned());
            self.renamed.remove(id);
            return id.to_owned();
        }
        let new = loop {
            let mut hasher = DefaultHasher::new();
            (&self.prefix, self.generated, id).hash(&mut hasher);
            self.generated += 1;
            let new = format!("call_{:016x}", hasher.finish());
            if self.used.insert(new.clone()) {
                break new;
            }
        };
        self.renamed.insert(id.to_owned(), new.clone());
        new
    }

    fn replace_id(&self, id: &mut turnwire_core::event::Text<'static>) {
        if let Some(renamed) = self.renamed.get(&**id) {
            *id = renamed.clone().into();
        }
    }
}

/// The ids of the tool calls in a message.
pub fn tool_call_ids(msg: &Msg) -> impl Iterator<Item = &str> {
    msg.blocks::<ToolCall>().map(|call| call.id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_core::event::{ToolCallEnd, ToolCallStart};

    fn start(ids: &mut CallIds, id: &'static str) -> String {
        let start = ToolCallStart { tool_call_id: id.into(), tool_call_name: "f".into() };
        let EventKind::ToolCallStart(start) = ids.rewrite_ids(Event::new("r", start)).kind else {
            panic!("the kind of an event never changes")
        };
        start.tool_call_id.into_owned()
    }

    fn reply(id: &str) -> Msg {
        Msg::reply("m", "a")
            .to_builder()
            .content([ContentBlock::from(ToolCall::new(id, "f", "{}"))])
            .build()
            .unwrap()
    }

    #[test]
    fn an_id_that_the_session_has_is_replaced_until_the_call_ends() {
        let before = reply("call_0");
        let mut ids = CallIds::new("r-1-", 0, [&before].into_iter(), &["old".to_owned()]);
        let new = start(&mut ids, "call_0");
        assert!(new != "call_0" && is_random_id(&new) && new.len() <= 40, "{new}");
        let end =
            ToolCallEnd { tool_call_id: "call_0".into(), extra: turnwire_core::Fields::default() };
        let EventKind::ToolCallEnd(end) = ids.rewrite_ids(Event::new("r", end)).kind else {
            panic!()
        };
        assert_eq!(end.tool_call_id, new.as_str());
        assert_eq!(start(&mut ids, "call_1"), "call_1");
        let twice = [start(&mut ids, "call_1"), start(&mut ids, "call_0"), start(&mut ids, "old")];
        assert_eq!(twice.iter().chain([&new]).collect::<HashSet<_>>().len(), 4);
        // Reading the same answer again gives the same ids.
        let mut again = CallIds::new("r-1-", 0, [&before].into_iter(), &[]);
        assert_eq!(start(&mut again, "call_0"), new);
    }

    #[test]
    fn a_sub_agents_calls_keep_only_ids_that_nobody_else_can_have() {
        let mut ids = CallIds::new("r.0-1-", 1, std::iter::empty(), &[]);
        assert_ne!(start(&mut ids, "call_0"), "call_0");
        assert_eq!(start(&mut ids, "toolu_01A09q90qw90lq91"), "toolu_01A09q90qw90lq91");
    }

    #[test]
    fn only_long_runs_of_letters_and_digits_are_random() {
        for id in
            ["call_Vx3KcT0yqP1sQ8mZabcdefgh", "chatcmpl-tool-0123456789abcdef0123456789abcdef"]
        {
            assert!(is_random_id(id), "{id}");
        }
        assert!(is_random_id("call_0193b5f2-7c1e-7a60-9d1c-3a5b7c9d1e2f-1"));
        for id in
            ["", "0", "call_0", "functions.get_weather:0", "D681PevKs", "a-b-c-d-e-f-g-h-i-j-k"]
        {
            assert!(!is_random_id(id), "{id}");
        }
    }
}
