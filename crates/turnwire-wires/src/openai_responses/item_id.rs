//! Ids of output items. In a response of a session an id says where the item is stored, so that a client can send the id
//! back instead of the item (`item_reference`), and nothing has to be stored for it.
//!
//! ```
//! use turnwire_wires::openai_responses::ItemId;
//!
//! let id = ItemId::parse("msg_session~reply~-1-1").unwrap();
//! assert_eq!((id.session(), id.message()), ("session", "reply"));
//! assert_eq!(id.to_string(), "msg_session~reply~-1-1");
//! assert_eq!(ItemId::parse("msg_0c3f"), None);
//! ```

use super::client_call::ClientCall;
use super::{NAME, item};
use crate::provider;
use std::fmt;
use turnwire_core::{ContentBlock, Msg, TextBlock, ThinkingBlock, content_blocks};

/// The last part of the id of a message that is the structured output of its reply.
const STRUCTURED_OUTPUT: &str = "structured_output";
/// The prefix of a function call, and of a call of a custom tool.
const CALL_PREFIXES: [&str; 2] = ["fc", "ctc"];

/// The id of an output item: `msg_SESSION~REPLY~BLOCK`. `rs_`, `fc_`, `ctc_` and `ig_` are reasoning, calls and images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemId<'a> {
    prefix: &'a str,
    session: &'a str,
    message: &'a str,
    /// The id of the block, without the message's id if it begins with that.
    block: &'a str,
}

impl<'a> ItemId<'a> {
    pub(super) fn new(
        prefix: &'a str,
        session: &'a str,
        message: &'a str,
        block: Option<&'a str>,
    ) -> Self {
        let block = block.unwrap_or(STRUCTURED_OUTPUT);
        Self { prefix, session, message, block: shorten(block, message) }
    }

    /// Reads an id. `None` if it does not say where the item is.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (prefix, place) = text.split_once('_')?;
        let mut parts = place.splitn(3, '~');
        let (session, message, block) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = [prefix, session, message, block].iter().all(|part| !part.is_empty());
        is_whole.then_some(Self { prefix, session, message, block })
    }

    /// The session that has the item.
    pub fn session(self) -> &'a str {
        self.session
    }

    /// The message that has the item.
    pub fn message(self) -> &'a str {
        self.message
    }

    /// The blocks of the item.
    fn find_in(self, msg: &Msg) -> Option<Vec<ContentBlock>> {
        let is_call = CALL_PREFIXES.contains(&self.prefix);
        let is_item = |block: &ContentBlock| {
            matches!(block, ContentBlock::ToolCall(_)) == is_call
                && block_id(block).is_some_and(|id| shorten(id, self.message) == self.block)
        };
        let Some(at) = msg.content().iter().position(is_item) else {
            let output = msg.structured_output().filter(|_| self.block == STRUCTURED_OUTPUT)?;
            return Some(vec![TextBlock::new(output.text()).into()]);
        };
        let blocks = msg.content().get(at..)?;
        let last = blocks.iter().take_while(|block| continues_item(block)).count();
        let last = last.min(blocks.len().saturating_sub(1));
        blocks.get(..=last).map(<[ContentBlock]>::to_vec)
    }
}

impl fmt::Display for ItemId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}~{}~{}", self.prefix, self.session, self.message, self.block)
    }
}

/// The blocks of a message that were written as the item with this id: one of ours, or the id of an item that only the
/// provider knows.
pub fn find_item(msg: &Msg, id: &str) -> Option<Vec<ContentBlock>> {
    if let Some(id) = ItemId::parse(id) {
        return id.find_in(msg);
    }
    let is_item = |block: &&ContentBlock| {
        let found: Option<String> = match block {
            ContentBlock::Other(fields) => {
                let item = provider::block_to_item(NAME, fields);
                item.and_then(|item| item.get("id").ok().flatten())
            }
            ContentBlock::ToolCall(call) => {
                ClientCall::of_call(&call.rest).and_then(|kind| kind.item_id(&call.id, &call.rest))
            }
            content_blocks!(Text Thinking Hint Data ToolResult) => None,
        };
        found.as_deref() == Some(id)
    };
    Some(vec![msg.content().iter().find(is_item)?.clone()])
}

/// Most block ids begin with the id of their message, which is left out.
fn shorten<'b>(block: &'b str, message: &str) -> &'b str {
    block.strip_prefix(message).filter(|rest| rest.starts_with('-')).unwrap_or(block)
}

/// The id by which a block can be found.
fn block_id(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Text(block) => Some(&block.id),
        ContentBlock::Thinking(block) => Some(&block.id),
        ContentBlock::Data(block) => Some(&block.id),
        ContentBlock::ToolCall(call) => Some(&call.id),
        ContentBlock::Hint(_) | ContentBlock::ToolResult(_) | ContentBlock::Other(_) => None,
    }
}

/// Whether the next block belongs to the same item.
fn continues_item(block: &ContentBlock) -> bool {
    let thinking: Option<&ThinkingBlock> = match block {
        ContentBlock::Thinking(block) => Some(block),
        ContentBlock::Text(_)
        | ContentBlock::Hint(_)
        | ContentBlock::Data(_)
        | ContentBlock::ToolCall(_)
        | ContentBlock::ToolResult(_)
        | ContentBlock::Other(_) => None,
    };
    thinking.is_some_and(|block| item::continues_reasoning(&block.rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn msg(content: &serde_json::Value) -> Msg {
        let json = json!({"id": "r", "role": "assistant", "name": "a", "content": content});
        Msg::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn an_item_is_found_by_its_kind_and_its_block() {
        let msg = msg(&json!([
            {"type": "thinking", "id": "r-1-1", "thinking": "a", "item_id": "rs_1"},
            {"type": "thinking", "id": "r-1-2", "thinking": "b", "item_id": "rs_1", "summary": []},
            {"type": "text", "id": "r-1-3", "text": "t"},
            {"type": "text", "id": "c", "text": "u"},
            {"type": "tool_call", "id": "c", "name": "f", "input": "{}"},
            {"type": "web_search_call", "id": "ws_1", "from_wire": "openai-responses"},
        ]));
        for (id, places) in [
            ("rs_s~r~-1-1", Some(0..2)),
            ("msg_s~r~-1-3", Some(2..3)),
            ("msg_s~r~r-1-3", None),
            ("msg_s~r~c", Some(3..4)),
            ("fc_s~r~c", Some(4..5)),
            ("ws_1", Some(5..6)),
            ("ws_2", None),
            ("msg_s~r~structured_output", None),
        ] {
            let expected = places.map(|places| msg.content()[places].to_vec());
            assert_eq!(find_item(&msg, id), expected, "{id}");
        }
    }

    #[test]
    fn an_id_is_read_back() {
        for text in ["msg_s~r~-1-1", "fc_a_b~r~call_1", "rs_s~r~rs_t~q~-1"] {
            assert_eq!(ItemId::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "msg", "msg_s", "msg_s~r", "msg_s~r~", "msg_~r~b", "_s~r~b", "msg_s~~b"] {
            assert_eq!(ItemId::parse(text), None, "{text}");
        }
    }
}
