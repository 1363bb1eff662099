//! Truncates long tool results for the model. The log keeps the whole result.

use std::borrow::Cow;
use turnwire_core::{BlockKind, ContentBlock, Msg, Part, Payload, ToolResult};

/// The default limit of characters of a tool result that the model gets.
pub const RESULT_LIMIT: usize = 50_000;

/// Truncates the results in a message: keeps the start and the end of each long text. Binary data is not
/// changed.
pub(crate) fn truncate_results(msg: &Msg, limit: usize) -> Cow<'_, Msg> {
    let is_long = |block: &ContentBlock| {
        ToolResult::from_block(block)
            .is_some_and(|result| text_length(&result.output, limit) > limit)
    };
    if !msg.content().iter().any(is_long) {
        return Cow::Borrowed(msg);
    }
    let content = msg.content().iter().map(|block| match ToolResult::from_block(block) {
        Some(result) if is_long(block) => {
            let output = truncate_output(&result.output, limit);
            ContentBlock::ToolResult(ToolResult { output, ..result.clone() })
        }
        _ => block.clone(),
    });
    let content: Vec<ContentBlock> = content.collect();
    // Same block types and same role, so the message is valid again.
    msg.to_builder().content(content).build().map_or(Cow::Borrowed(msg), Cow::Owned)
}

/// The number of characters; or the number of bytes, if that is within the limit.
fn text_length(output: &Payload, limit: usize) -> usize {
    let count = |text: &str| if text.len() <= limit { text.len() } else { text.chars().count() };
    match output {
        Payload::Text(text) => count(text),
        Payload::Parts(parts) => parts.iter().map(|part| part_text(part).map_or(0, count)).sum(),
    }
}

fn part_text(part: &Part) -> Option<&str> {
    match part {
        Part::Text(block) => Some(&block.text),
        Part::Data(_) | Part::Other(_) => None,
    }
}

fn truncate_output(output: &Payload, limit: usize) -> Payload {
    match output {
        Payload::Text(text) => Payload::Text(truncate_text(text, limit)),
        Payload::Parts(parts) => {
            // Each text gets an equal share; a short text leaves the rest of its share to the next ones.
            let mut texts = parts.iter().filter(|part| part_text(part).is_some()).count();
            let mut left = limit;
            let parts = parts.iter().map(|part| match part {
                Part::Text(block) => {
                    let share = left / texts.max(1);
                    texts -= 1;
                    left = left.saturating_sub(share.min(block.text.chars().count()));
                    let mut block = block.clone();
                    block.text = truncate_text(&block.text, share);
                    Part::Text(block)
                }
                Part::Data(_) | Part::Other(_) => part.clone(),
            });
            Payload::Parts(parts.collect())
        }
    }
}

/// Shortens a text to `limit` characters, with a line that says how many are missing.
pub(crate) fn truncate_text(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    if count <= limit {
        return text.to_owned();
    }
    let (head, tail) = (limit - limit / 2, limit / 2);
    let at = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
    let head = text.get(..at(head)).unwrap_or_default();
    let tail = text.get(at(count - tail)..).unwrap_or_default();
    let left_out = count - limit;
    format!("{head}\n[{left_out} characters were left out here]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_core::DataBlock;

    #[test]
    fn head_and_tail_stay_and_a_line_states_how_much_is_missing() {
        let text = format!("{}é{}", "a".repeat(60), "z".repeat(60));
        assert_eq!(truncate_text(&text, 7), "aaaa\n[114 characters were left out here]\nzzz");
        assert_eq!(truncate_text(&text, 121), text);
        assert_eq!(truncate_text("ééé", 1), "é\n[2 characters were left out here]\n");
        assert_eq!(truncate_text("ééé", 0), "\n[3 characters were left out here]\n");
    }

    #[test]
    fn bytes_stay_and_short_texts_leave_room_to_long_ones() {
        let bytes = DataBlock::bytes(vec![7; 1000], "image/png");
        let parts: Vec<Part> =
            vec!["ab".into(), bytes.clone().into(), "x".repeat(50).as_str().into()];
        let msg = Msg::assistant("a", ToolResult::success("c", parts));
        assert!(matches!(truncate_results(&msg, 52), Cow::Borrowed(_)));
        let cut = truncate_results(&msg, 20).into_owned();
        let Payload::Parts(parts) = &cut.first::<ToolResult>().unwrap().output else {
            panic!("parts")
        };
        assert_eq!(parts[0], "ab".into());
        assert_eq!(parts[1], bytes.into());
        assert_eq!(part_text(&parts[2]).unwrap().matches('x').count(), 18);
    }
}
