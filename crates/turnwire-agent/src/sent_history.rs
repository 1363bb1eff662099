//! What the history in a client's request has beside what the log keeps of it: it belongs to this request alone.
//!
//! It is part of the user's message, or of the last tool result, and so in the log: a reply that continues after a restart
//! finds it again.
//!
//! ```
//! use turnwire_agent::SentHistory;
//! use turnwire_wires::{anthropic, cache_marks};
//!
//! let mut request = anthropic::read_request(r#"{"model": "m", "messages": [{"role": "user", "content": [
//!     {"type": "text", "text": "Hi!", "cache_control": {"type": "ephemeral"}}]}]}"#)?;
//! let sent = SentHistory::take_from(&mut request.messages);
//! assert_eq!(sent.cache_marks.len(), 1);
//! assert!(!cache_marks::has_any(&request.messages[0].content()[0]));
//! let msg = sent.attach_to(request.messages[0].clone());
//! assert_eq!(SentHistory::from_msg(&msg), Some(sent));
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::places::{BlockIndex, split_entries};
use crate::request_metadata;
use serde::{Deserialize, Serialize};
use turnwire_core::{BlockKind, ContentBlock, Fields, Json, Msg, Payload, Role, ToolResult};
use turnwire_wires::{cache_marks, native};

/// The key in the metadata of a message or a tool result.
const METADATA_KEY: &str = "sent_history";

/// How many caching marks of a request reach the model. Providers accept only a few.
const MAX_CACHE_MARKS: usize = 64;

/// What the history in a client's request has beside what the log keeps of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentHistory {
    /// The caching marks. They replace those of earlier requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_marks: Vec<SentCacheMark>,
    /// What the last answer has beside what the log has of it. It holds for later requests, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<SentAnswer>,
}

/// What a client's copy of an answer has beside what the log has of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentAnswer {
    /// Reasoning, if the log has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<ContentBlock>,
    /// Fields of the message, by the name of their wire.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub fields: Fields,
}

impl SentAnswer {
    /// What the messages of an answer have beside its text and its calls.
    pub fn read(sent: &[Msg]) -> Option<Self> {
        let blocks = || sent.iter().flat_map(Msg::content);
        let is_thinking = |block: &&ContentBlock| matches!(block, ContentBlock::Thinking(_));
        let thinking = blocks().filter(is_thinking).cloned().collect();
        let rest = blocks().last().and_then(rest_of);
        let fields = rest.map(native::message_fields).unwrap_or_default();
        Some(Self { thinking, fields }).filter(|answer| *answer != Self::default())
    }

    /// The same without what the last answer in a reply has.
    pub fn without(mut self, reply: &Msg) -> Option<Self> {
        let blocks = reply.content();
        let from = blocks.iter().rposition(is_input).map_or(0, |at| at + 1);
        if has_thinking(blocks.get(from..).unwrap_or_default()) {
            self.thinking.clear();
        }
        Some(self).filter(|answer| *answer != Self::default())
    }

    /// Adds it to the answer in these blocks of a message.
    fn apply(self, content: &mut Vec<ContentBlock>, from: usize, to: usize) {
        if let Some(rest) = to.checked_sub(1).and_then(|at| content.get_mut(at)).and_then(rest_mut)
        {
            native::add_message_fields(rest, &self.fields);
        }
        if !has_thinking(content.get(from..to).unwrap_or_default()) {
            content.splice(from..from, self.thinking);
        }
    }
}

fn has_thinking(blocks: &[ContentBlock]) -> bool {
    blocks.iter().any(|block| matches!(block, ContentBlock::Thinking(_)))
}

/// Whether a block of a reply is between two answers of the model.
fn is_input(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::ToolResult(_) | ContentBlock::Hint(_))
}

fn rest_of(block: &ContentBlock) -> Option<&Fields> {
    match block {
        ContentBlock::Text(block) => Some(&block.rest),
        ContentBlock::Thinking(block) => Some(&block.rest),
        ContentBlock::Data(block) => Some(&block.rest),
        ContentBlock::ToolCall(call) => Some(&call.rest),
        ContentBlock::ToolResult(_) | ContentBlock::Hint(_) | ContentBlock::Other(_) => None,
    }
}

fn rest_mut(block: &mut ContentBlock) -> Option<&mut Fields> {
    match block {
        ContentBlock::Text(block) => Some(&mut block.rest),
        ContentBlock::Thinking(block) => Some(&mut block.rest),
        ContentBlock::Data(block) => Some(&mut block.rest),
        ContentBlock::ToolCall(call) => Some(&mut call.rest),
        ContentBlock::ToolResult(_) | ContentBlock::Hint(_) | ContentBlock::Other(_) => None,
    }
}

/// Adds to the answers what clients sent with them.
pub(crate) fn apply_answers(messages: &mut [Msg]) {
    let mut last_reply = None;
    for at in 0..messages.len() {
        let Some(msg) = messages.get_mut(at) else { return };
        match msg.role() {
            Role::User => {
                let answer = read_answer(msg.metadata());
                let reply = last_reply.and_then(|at: usize| messages.get_mut(at));
                if let Some((answer, reply)) = answer.zip(reply) {
                    let from = reply.content().iter().rposition(is_input).map_or(0, |at| at + 1);
                    let to = reply.content().len();
                    edit_content(reply, |content| answer.apply(content, from, to));
                }
            }
            Role::Assistant => {
                last_reply = Some(at);
                let notes = msg.content().iter().enumerate().rev().filter_map(|(at, block)| {
                    Some((at, read_answer(&ToolResult::from_block(block)?.metadata)?))
                });
                let notes: Vec<_> = notes.collect();
                if !notes.is_empty() {
                    edit_content(msg, |content| {
                        for (at, answer) in notes {
                            let before = content.get(..at).unwrap_or_default();
                            let to = before.iter().rposition(|block| !is_input(block));
                            let to = to.map_or(0, |at| at + 1);
                            let before = before.get(..to).unwrap_or_default();
                            let from = before.iter().rposition(is_input).map_or(0, |at| at + 1);
                            answer.apply(content, from, to);
                        }
                    });
                }
            }
            Role::System | Role::Tool => {}
        }
    }
}

fn read_answer(metadata: &Fields) -> Option<SentAnswer> {
    let has_one = |json: &&Json| json.text().contains("\"answer\"");
    metadata.raw(METADATA_KEY).filter(has_one)?.parse_as::<SentHistory>().ok()?.answer
}

/// A caching mark, and its place in the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentCacheMark {
    /// How many entries of the conversation follow the one with the mark: user messages, answers, results of calls.
    pub following: usize,
    /// How many blocks of the entry follow the one with the mark.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blocks_following: usize,
    /// The part of the block that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<usize>,
    /// The call, if it is on a result: the log may have the results in another order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The mark, by the name of its wire.
    pub by_wire: Fields,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl SentHistory {
    /// Takes off the messages of a request what belongs to the request alone. System messages keep theirs.
    pub fn take_from(messages: &mut [Msg]) -> Self {
        let mut cache_marks = Vec::new();
        let is_marked = |msg: &Msg| {
            msg.role() != Role::System && msg.content().iter().any(cache_marks::has_any)
        };
        if !messages.iter().any(is_marked) {
            return Self::default();
        }
        let entries = split_entries(messages);
        for (at, entry) in entries.iter().enumerate() {
            let is_same = |one: &BlockIndex, other: &BlockIndex| one.0 == other.0;
            let mut blocks_following = entry.len();
            for places in entry.chunk_by(is_same) {
                let Some(msg) = places.first().and_then(|(at, _)| messages.get_mut(*at)) else {
                    continue;
                };
                edit_blocks(msg, places.iter().map(|(_, block)| *block), |block| {
                    blocks_following -= 1;
                    let call = ToolResult::from_block(block).map(|result| result.id.clone());
                    let marks = cache_marks::take(block).into_iter().map(|mark| SentCacheMark {
                        following: entries.len() - at - 1,
                        blocks_following,
                        part: mark.part,
                        call: call.clone(),
                        by_wire: mark.by_wire,
                    });
                    cache_marks.extend(marks);
                });
            }
        }
        cache_marks.truncate(MAX_CACHE_MARKS);
        Self { cache_marks, ..Self::default() }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads it from a message.
    pub fn from_msg(msg: &Msg) -> Option<Self> {
        request_metadata::value_of_message(METADATA_KEY, msg)
    }

    /// That of a reply: of its last tool result that has one, or of the message that is answered. Also returns how many
    /// blocks of the reply came before it.
    pub fn in_force(history: &[Msg], reply: Option<&Msg>) -> (Self, usize) {
        let (found, before) = request_metadata::value_for_reply(METADATA_KEY, history, reply);
        (found.unwrap_or_default(), before)
    }

    /// Adds it to a message, unless it is empty.
    pub fn attach_to(&self, msg: Msg) -> Msg {
        if self.is_empty() {
            return msg;
        }
        request_metadata::set_on_message(METADATA_KEY, self, msg)
    }

    /// Adds it to a tool result, also if it is empty: it replaces that of the message from here on.
    pub fn attach_to_result(&self, result: &mut ToolResult) {
        request_metadata::set_on_result(METADATA_KEY, self, result);
    }

    /// Removes it from a tool result.
    pub fn remove_from_result(result: &mut ToolResult) {
        result.metadata.remove(METADATA_KEY);
    }

    /// Adds it to the messages for the model. `since` is how many entries the conversation has more than the request.
    pub(crate) fn apply(&self, messages: &mut [Msg], since: usize) {
        // Logs of earlier versions have marks of earlier requests.
        for msg in messages.iter_mut().filter(|msg| msg.content().iter().any(cache_marks::has_any))
        {
            edit_blocks(msg, 0..msg.content().len(), |block| drop(cache_marks::take(block)));
        }
        if self.cache_marks.is_empty() {
            return;
        }
        let entries = split_entries(messages);
        for mark in &self.cache_marks {
            let at = entries.len().checked_sub(mark.following + since + 1);
            let entry = at.and_then(|at| entries.get(at));
            let place = entry.and_then(|entry| find_block(messages, entry, mark));
            let Some((at, block)) = place else { continue };
            let Some(msg) = messages.get_mut(at) else { continue };
            edit_blocks(msg, [block], |block| {
                let part = hint_part(block, mark).or(mark.part);
                cache_marks::set(block, part, &mark.by_wire);
            });
        }
    }
}

/// The block of an entry that a mark is for.
fn find_block(messages: &[Msg], entry: &[BlockIndex], mark: &SentCacheMark) -> Option<BlockIndex> {
    let has_call = |(at, block): &&BlockIndex| {
        let block = messages.get(*at).and_then(|msg| msg.content().get(*block));
        let id = block.and_then(ToolResult::from_block).map(|result| &result.id);
        id.is_some() && id == mark.call.as_ref()
    };
    let by_place = || {
        let at = entry.len().saturating_sub(mark.blocks_following + 1);
        entry.get(at)
    };
    entry.iter().find(has_call).or_else(by_place).copied()
}

/// The part of a hint that a mark is for: what a user says beside results is one block there.
fn hint_part(hint: &ContentBlock, mark: &SentCacheMark) -> Option<usize> {
    let ContentBlock::Hint(hint) = hint else { return None };
    let Payload::Parts(parts) = &hint.hint else { return None };
    parts.len().checked_sub(mark.blocks_following + 1)
}

/// Edits blocks of a message.
fn edit_blocks(
    msg: &mut Msg,
    blocks: impl IntoIterator<Item = usize>,
    mut edit: impl FnMut(&mut ContentBlock),
) {
    edit_content(msg, |content| {
        for at in blocks {
            content.get_mut(at).into_iter().for_each(&mut edit);
        }
    });
}

/// Edits the blocks of a message; it may have them in its role.
fn edit_content(msg: &mut Msg, edit: impl FnOnce(&mut Vec<ContentBlock>)) {
    let mut content = msg.content().to_vec();
    edit(&mut content);
    if let Ok(edited) = msg.to_builder().content(content).build() {
        *msg = edited;
    }
}
