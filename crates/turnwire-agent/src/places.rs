//! Places in a conversation, counted from its end: where a client has its system messages.
//!
//! A client cuts a conversation into other messages than the log does, and the log may have replaced the oldest ones by a
//! summary. But both have the same entries: a user message, an answer of the model, the results of its calls.

use turnwire_core::{ContentBlock, Msg, Role, content_blocks};

/// Kinds of entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Input,
    Answer,
    Results,
}

impl EntryKind {
    fn new(role: Role, block: &ContentBlock) -> Self {
        match block {
            ContentBlock::ToolResult(_) => Self::Results,
            ContentBlock::Hint(_) => match role {
                Role::Tool => Self::Results,
                Role::Assistant | Role::User | Role::System => Self::Input,
            },
            content_blocks!(Text Thinking Data ToolCall Other) => match role {
                Role::Tool => Self::Results,
                Role::Assistant => Self::Answer,
                Role::User | Role::System => Self::Input,
            },
        }
    }
}

/// The index of a message, and of a block in it.
pub(crate) type BlockIndex = (usize, usize);

/// The entries of a conversation, each as its blocks. System messages are none.
pub(crate) fn split_entries(messages: &[Msg]) -> Vec<Vec<BlockIndex>> {
    let mut entries: Vec<Vec<BlockIndex>> = Vec::new();
    let mut last = None;
    for (at, msg) in messages.iter().enumerate().filter(|(_, msg)| msg.role() != Role::System) {
        for (block_at, block) in msg.content().iter().enumerate() {
            let kind = EntryKind::new(msg.role(), block);
            // Every user message and every hint is an entry of its own.
            let is_same = kind != EntryKind::Input || (msg.role() == Role::User && block_at > 0);
            match entries.last_mut().filter(|_| is_same && last == Some(kind)) {
                Some(entry) => entry.push((at, block_at)),
                None => entries.push(vec![(at, block_at)]),
            }
            last = Some(kind);
        }
    }
    entries
}

/// Inserts messages, each before as many of the last entries as it says. They are in their order.
pub(crate) fn insert_messages(messages: Vec<Msg>, new: Vec<(usize, Msg)>) -> Vec<Msg> {
    if new.is_empty() {
        return messages;
    }
    let entries = split_entries(&messages);
    let begin = |following: usize| match entries.len().checked_sub(following) {
        Some(at) => entries.get(at).and_then(|entry| entry.first()).copied(),
        None => Some((0, 0)),
    };
    let mut new = new.into_iter().map(|(following, msg)| (begin(following), msg)).peekable();
    let mut all = Vec::new();
    for (at, msg) in messages.into_iter().enumerate() {
        let mut from = 0;
        while let Some((Some((_, block)), inserted)) =
            new.next_if(|(begin, _)| begin.is_some_and(|(message, _)| message == at))
        {
            all.extend(part_of(&msg, from, block));
            all.push(inserted);
            from = block;
        }
        all.extend(if from == 0 { Some(msg) } else { part_of(&msg, from, usize::MAX) });
    }
    all.extend(new.map(|(_, msg)| msg));
    all
}

/// The blocks of a message from an index to another; `None` if there are none.
fn part_of(msg: &Msg, from: usize, to: usize) -> Option<Msg> {
    let blocks = msg.content().get(from..to.min(msg.content().len()))?;
    let part = || msg.to_builder().content(blocks.to_vec()).build().ok();
    if blocks.is_empty() { None } else { part() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_core::{HintBlock, ToolCall, ToolResult};

    fn texts(messages: &[Msg]) -> Vec<String> {
        let block = |block: &ContentBlock| match block {
            ContentBlock::Text(block) => block.text.clone(),
            ContentBlock::ToolCall(call) => format!("call {}", call.id),
            ContentBlock::ToolResult(result) => format!("result {}", result.id),
            ContentBlock::Hint(_) => "hint".to_owned(),
            ContentBlock::Thinking(_) | ContentBlock::Data(_) | ContentBlock::Other(_) => {
                String::new()
            }
        };
        let text = |msg: &Msg| msg.content().iter().map(block).collect::<Vec<_>>().join("|");
        messages.iter().map(text).collect()
    }

    fn insert(messages: &[Msg], places: &[usize]) -> Vec<String> {
        let new = places.iter().map(|place| (*place, Msg::system("", format!("S{place}"))));
        texts(&insert_messages(messages.to_vec(), new.collect()))
    }

    #[test]
    fn a_place_is_the_same_in_the_messages_of_a_client_and_in_those_of_the_log() {
        let call = || ContentBlock::from(ToolCall::new("1", "f", "{}"));
        let result = || ContentBlock::from(ToolResult::success("1", "ok"));
        let of_client = [
            Msg::user("", "A"),
            Msg::assistant("", vec![call()]),
            Msg::tool("", vec![ToolResult::success("1", "ok")]),
            Msg::assistant("", "B"),
            Msg::user("", "C"),
            Msg::user("", "D"),
        ];
        let of_log = [
            Msg::user("", "A"),
            Msg::assistant("", vec![call(), result(), "B".into()]),
            Msg::user("", "C"),
            Msg::user("", "D"),
        ];
        assert_eq!(split_entries(&of_client).len(), 6);
        assert_eq!(split_entries(&of_log).len(), 6);
        assert_eq!(
            insert(&of_log, &[7, 5, 3, 3, 1, 0]),
            ["S7", "A", "S5", "call 1|result 1", "S3", "S3", "B", "C", "S1", "D", "S0"]
        );
        assert_eq!(
            insert(&of_client, &[3, 1, 0]),
            ["A", "call 1", "result 1", "S3", "B", "C", "S1", "D", "S0"]
        );
    }

    #[test]
    fn user_text_beside_results_is_an_entry() {
        let hint = HintBlock { hint: "And?".into(), ..HintBlock::default() };
        let result = ToolResult::success("1", "ok");
        let call = ToolCall::new("1", "f", "{}");
        let reply = Msg::assistant("", vec![call.into(), result.into(), hint.into()]);
        let log = [Msg::user("", "A"), reply];
        assert_eq!(insert(&log, &[2, 1]), ["A", "call 1", "S2", "result 1", "S1", "hint"]);
        assert_eq!(insert(&[], &[0]), ["S0"]);
    }
}
