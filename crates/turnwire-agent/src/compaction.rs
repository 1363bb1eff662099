//! Compaction: replacing old messages by a summary when the context window is full.
//!
//! The summary is a hint in the reply that needed it; the hint's source says how far the summary reaches.
//! So the summary is in the log, next to everything it replaces, and what the model gets follows from the
//! log alone: see [`model_view`].
//!
//! A call and its result stay together, and the message that is being answered stays unchanged.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use turnwire_core::{BlockKind, ContentBlock, HintBlock, Json, Msg, Payload, Role, Source};

/// Estimated bytes per token.
pub const BYTES_PER_TOKEN: usize = 4;

/// Estimated cost of an image or file, in bytes of text.
const DATA_BYTES: usize = 1600 * BYTES_PER_TOKEN;

/// The first line of a summary.
pub const SUMMARY_PREFIX: &str = "What was said before, in short:\n";

/// The most characters of one block in the text to summarize.
const MAX_BLOCK_CHARS: usize = 4000;

/// How far a summary reaches: the source of its hint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryExtent {
    #[serde(rename = "type")]
    kind: String,
    /// The last message with content in the summary.
    pub upto: String,
    /// The number of messages, for messages without an id.
    pub count: usize,
    /// The first block of that message that is not in the summary. `None`: the whole message is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
}

const SOURCE_TYPE: &str = "compaction";

impl SummaryExtent {
    /// Reads the extent of a hint. `None`: the hint is not a summary.
    pub fn from_hint(hint: &HintBlock) -> Option<Self> {
        let source = hint.source.as_deref().filter(|source| source.starts_with('{'))?;
        let reach: Self = serde_json::from_str(source).ok()?;
        (reach.kind == SOURCE_TYPE).then_some(reach)
    }

    /// Writes the extent as the source of a hint.
    pub fn to_source(&self) -> String {
        Json::from_value(self).map(|json| json.text().to_owned()).unwrap_or_default()
    }
}

/// A part of the conversation that stays together.
struct Section<'m> {
    msg: &'m Msg,
    /// The index of the message.
    message_index: usize,
    blocks: Range<usize>,
}

impl Section<'_> {
    fn content(&self) -> &[ContentBlock] {
        let content = self.msg.content();
        content.get(self.blocks.start..self.blocks.end.min(content.len())).unwrap_or_default()
    }

    fn is_question(&self) -> bool {
        self.msg.role() == Role::User
    }
}

/// The part to summarize.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldPart {
    /// How far it reaches.
    pub extent: SummaryExtent,
    /// Its text, for the model that summarizes.
    pub text: String,
}

/// The current summary, and where the unchanged conversation starts.
struct CurrentSummary<'m> {
    summary: Option<&'m HintBlock>,
    /// The first message that stays, and its first block.
    from: (usize, usize),
    /// An earlier user message that stays.
    question: Option<usize>,
}

fn current_summary<'m>(messages: &[&'m Msg]) -> CurrentSummary<'m> {
    let hints = messages.iter().rev().flat_map(|msg| msg.content().iter().rev());
    let summaries = hints
        .filter_map(HintBlock::from_block)
        .filter_map(|hint| SummaryExtent::from_hint(hint).map(|reach| (hint, reach)));
    for (hint, reach) in summaries {
        let by_id = || messages.iter().position(|msg| msg.id() == reach.upto);
        let found = if reach.upto.is_empty() { reach.count.checked_sub(1) } else { by_id() };
        // Skip a summary of messages that were replaced since.
        let Some((at, msg)) = found.and_then(|at| Some((at, messages.get(at)?))) else { continue };
        let Some(block) = &reach.block else {
            return CurrentSummary { summary: Some(hint), from: (at + 1, 0), question: None };
        };
        let Some(first) = msg.content().iter().position(|own| own.id() == block) else { continue };
        let before = messages.iter().take(at);
        let question = before.enumerate().rev().find(|(_, msg)| msg.role() == Role::User);
        let question = question.map(|(at, _)| at);
        return CurrentSummary { summary: Some(hint), from: (at, first), question };
    }
    CurrentSummary { summary: None, from: (0, 0), question: None }
}

/// The part of a conversation that a model gets: the newest summary, and everything after it.
///
/// ```
/// use turnwire_agent::compaction::model_view;
/// use turnwire_core::Msg;
///
/// let messages = [Msg::user("ann", "Hi!"), Msg::assistant("friday", "Hello.")];
/// assert_eq!(model_view(messages.iter()), messages);
/// ```
pub fn model_view<'m>(messages: impl IntoIterator<Item = &'m Msg>) -> Vec<Msg> {
    let messages: Vec<&Msg> = messages.into_iter().collect();
    let CurrentSummary { summary, from: (first, block), question } = current_summary(&messages);
    let summary =
        summary.map(|hint| Msg::user("", format!("{SUMMARY_PREFIX}{}", hint.hint.text("\n"))));
    let question = question.and_then(|at| messages.get(at)).map(|&msg| msg.clone());
    let rest = messages.iter().enumerate().skip(first).map(|(at, msg)| {
        let from = if at == first { block } else { 0 };
        without_summaries(msg, from).into_owned()
    });
    let is_left = |msg: &Msg| msg.role() != Role::Assistant || !msg.content().is_empty();
    summary.into_iter().chain(question).chain(rest.filter(is_left)).collect()
}

/// A message from a block on, without summaries.
fn without_summaries(msg: &Msg, from: usize) -> Cow<'_, Msg> {
    let is_summary = |block: &ContentBlock| {
        HintBlock::from_block(block).and_then(SummaryExtent::from_hint).is_some()
    };
    if from == 0 && !msg.content().iter().any(is_summary) {
        return Cow::Borrowed(msg);
    }
    let left = msg.content().iter().skip(from).filter(|block| !is_summary(block));
    let content: Vec<ContentBlock> = left.cloned().collect();
    msg.to_builder().content(content).build().map_or(Cow::Borrowed(msg), Cow::Owned)
}

/// Estimates the tokens of messages: [`BYTES_PER_TOKEN`] bytes of text are a token, an image or a file is 1600, and each
/// block adds two.
///
/// ```
/// use turnwire_agent::compaction::estimate_tokens;
/// use turnwire_core::Msg;
///
/// assert_eq!(estimate_tokens(&[Msg::user("ann", "Good morning")]), 5);
/// ```
pub fn estimate_tokens(messages: &[Msg]) -> usize {
    let bytes: usize = messages.iter().map(|msg| estimate_bytes(msg.content())).sum();
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Estimates the cost of content in bytes of text.
pub(crate) fn estimate_bytes(content: &[ContentBlock]) -> usize {
    let payload = |payload: &Payload| match payload {
        Payload::Text(text) => text.len(),
        Payload::Parts(parts) => {
            let parts = parts.iter().cloned().map(ContentBlock::from);
            parts.map(|block| estimate_bytes(std::slice::from_ref(&block))).sum()
        }
    };
    let one = |block: &ContentBlock| match block {
        ContentBlock::Text(block) => block.text.len(),
        ContentBlock::Thinking(block) => block.thinking.len(),
        ContentBlock::Hint(block) => payload(&block.hint),
        ContentBlock::ToolCall(call) => call.name.len() + call.input.len(),
        ContentBlock::ToolResult(result) => payload(&result.output),
        ContentBlock::Data(block) => match &block.source {
            Source::Base64(source) => DATA_BYTES.min(source.data.len()),
            Source::Url(_) | Source::Other(_) => DATA_BYTES,
        },
        ContentBlock::Other(item) => Json::from_value(item).map_or(0, |json| json.text().len()),
    };
    content.iter().map(|block| one(block) + 2 * BYTES_PER_TOKEN).sum()
}

/// Selects the oldest part of a conversation: all but about the last `keep` bytes. `None`: nothing can be
/// replaced. The last message is the reply so far; it can be split between two rounds of tools.
pub(crate) fn select_oldest(
    history: &[Msg],
    reply: &Msg,
    keep: usize,
    most: usize,
) -> Option<OldPart> {
    let messages: Vec<&Msg> = history.iter().chain([reply]).collect();
    let standing = current_summary(&messages);
    let pieces = split_sections(&messages, &standing);
    // Count from the end. The last section always stays.
    let mut first = pieces.len().checked_sub(1)?;
    let mut kept = estimate_bytes(pieces.get(first)?.content());
    while let Some(piece) = first.checked_sub(1).and_then(|at| pieces.get(at)) {
        kept += estimate_bytes(piece.content());
        if kept > keep {
            break;
        }
        first -= 1;
    }
    // The message that is being answered stays, so there is no split directly after it.
    let question = pieces.iter().rposition(Section::is_question);
    let whole = split_points(&pieces);
    let fits = |at: usize| {
        whole.contains(&at)
            && pieces.get(at).is_some_and(|piece| match question {
                Some(question) if at > question => {
                    piece.message_index == history.len() && piece.blocks.start > 0
                }
                _ => piece.blocks.start == 0,
            })
    };
    // Rather keep a little more than a little less.
    let first = (1..=first).rev().find(|&at| fits(at))?;
    let old = pieces.iter().enumerate().take(first).filter(|(at, _)| Some(*at) != question);
    let old: Vec<String> = old.filter_map(|(_, piece)| describe_section(piece)).collect();
    if old.is_empty() {
        return None;
    }
    let before = standing.summary.map(|hint| format!("{SUMMARY_PREFIX}{}", hint.hint.text("\n")));
    let text = before.into_iter().chain(old).collect::<Vec<_>>().join("\n\n");
    let text = crate::truncate::truncate_text(&text, most);
    Some(OldPart { extent: extent_before(&pieces, first, question)?, text })
}

/// A whole conversation as text, for the model that summarizes: at most so many bytes.
pub(crate) fn describe_conversation(messages: &[Msg], most: usize) -> String {
    let whole = |msg| Section { msg, message_index: 0, blocks: 0..usize::MAX };
    let view = model_view(messages);
    let texts = view.iter().map(whole).filter_map(|piece| describe_section(&piece));
    crate::truncate::truncate_text(&texts.collect::<Vec<_>>().join("\n\n"), most)
}

fn extent_before(
    pieces: &[Section<'_>],
    first: usize,
    question: Option<usize>,
) -> Option<SummaryExtent> {
    let kind = SOURCE_TYPE.to_owned();
    let piece = pieces.get(first)?;
    if question.is_some_and(|question| first > question) {
        let block = piece.content().first().map(|block| block.id().to_owned());
        return Some(SummaryExtent {
            kind,
            upto: piece.msg.id().to_owned(),
            count: piece.message_index + 1,
            block,
        });
    }
    let last = pieces.get(first.checked_sub(1)?)?;
    Some(SummaryExtent {
        kind,
        upto: last.msg.id().to_owned(),
        count: last.message_index + 1,
        block: None,
    })
}

/// The conversation after the current summary, in sections.
fn split_sections<'m>(messages: &[&'m Msg], standing: &CurrentSummary<'_>) -> Vec<Section<'m>> {
    let (first, block) = standing.from;
    let mut pieces = Vec::new();
    if let Some((at, msg)) = standing.question.and_then(|at| Some((at, messages.get(at)?))) {
        pieces.push(Section { msg, message_index: at, blocks: 0..msg.content().len() });
    }
    for (at, msg) in messages.iter().enumerate().skip(first) {
        let mut start = if at == first { block } else { 0 };
        let content = msg.content();
        if at + 1 == messages.len() {
            // In the reply so far, a round ends with its results.
            for next in start + 1..content.len() {
                let ends = matches!(content.get(next - 1), Some(ContentBlock::ToolResult(_)));
                let begins = !matches!(content.get(next), Some(ContentBlock::ToolResult(_)));
                if ends && begins && content.get(next).is_some_and(|block| !block.id().is_empty()) {
                    pieces.push(Section { msg, message_index: at, blocks: start..next });
                    start = next;
                }
            }
        }
        if start < content.len() {
            pieces.push(Section { msg, message_index: at, blocks: start..content.len() });
        }
    }
    pieces
}

/// The sections before which no call waits for a later result.
fn split_points(pieces: &[Section<'_>]) -> HashSet<usize> {
    let mut last: HashMap<&str, usize> = HashMap::new();
    for (at, piece) in pieces.iter().enumerate() {
        for block in piece.content() {
            if let ContentBlock::ToolResult(result) = block {
                last.insert(&result.id, at);
            }
        }
    }
    let mut needed = 0;
    let mut whole = HashSet::new();
    for (at, piece) in pieces.iter().enumerate() {
        if needed < at || at == 0 {
            whole.insert(at);
        }
        for block in piece.content() {
            if let ContentBlock::ToolCall(call) = block {
                needed = needed.max(last.get(call.id.as_str()).copied().unwrap_or_default());
            }
        }
    }
    whole
}

/// A section as text, for the model that summarizes.
fn describe_section(piece: &Section<'_>) -> Option<String> {
    let (name, role) = (piece.msg.name(), piece.msg.role());
    let who = if name.is_empty() { role.as_str() } else { name };
    let lines = piece.content().iter().filter_map(|block| match block {
        ContentBlock::Text(block) => Some(format!("{who}: {}", shorten(&block.text))),
        ContentBlock::Hint(hint) if SummaryExtent::from_hint(hint).is_none() => {
            Some(format!("note: {}", shorten(&hint.hint.text("\n"))))
        }
        ContentBlock::ToolCall(call) => {
            Some(format!("{who} calls {}: {}", call.name, shorten(&call.input)))
        }
        ContentBlock::ToolResult(result) => {
            let (name, state) = (&result.name, &result.state);
            Some(format!("{name} gives ({state}): {}", shorten(&result.output.text("\n"))))
        }
        ContentBlock::Data(block) => {
            let kind = turnwire_wires::model_request::media_type(block).unwrap_or("file");
            Some(format!("{who} shows a {kind}"))
        }
        ContentBlock::Hint(_) | ContentBlock::Thinking(_) | ContentBlock::Other(_) => None,
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn shorten(text: &str) -> String {
    crate::truncate::truncate_text(text, MAX_BLOCK_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_core::{ToolCall, ToolResult};
    use turnwire_testkit::{Rng, check_property, one_in};

    /// A conversation with calls whose results come right behind them, in another message, or never.
    fn conversation(rng: &mut Rng) -> (Vec<Msg>, Msg) {
        let mut calls = 0;
        let mut next = || {
            calls += 1;
            format!("c{calls}")
        };
        let mut history = Vec::new();
        for _ in 0..rng.usize(1..8) {
            history.push(Msg::user("ann", "q".repeat(rng.usize(1..90))));
            let (mut blocks, mut later): (Vec<ContentBlock>, Vec<ToolResult>) = Default::default();
            for _ in 0..rng.usize(..3) {
                let id = next();
                blocks.push(ToolCall::new(&*id, "look", "{}").into());
                let result = ToolResult::success(&*id, "r".repeat(rng.usize(1..60)));
                match rng.usize(..3) {
                    0 => later.push(result),
                    1 => blocks.push(result.into()),
                    _ => {}
                }
            }
            blocks.push("a".repeat(rng.usize(1..60)).into());
            history.push(Msg::assistant("friday", blocks));
            if !later.is_empty() {
                history.push(Msg::tool("system", later));
            }
        }
        history.push(Msg::user("ann", "the question"));
        let mut blocks: Vec<ContentBlock> = Vec::new();
        for _ in 0..rng.usize(..5) {
            let ids: Vec<String> = (0..rng.usize(1..3)).map(|_| next()).collect();
            blocks.extend(ids.iter().map(|id| ToolCall::new(&**id, "look", "{}").into()));
            let result = |id: &String| ToolResult::success(&**id, "r".repeat(40)).into();
            blocks.extend(ids.iter().map(result));
        }
        let mut named: Vec<Msg> = history
            .into_iter()
            .chain([Msg::assistant("friday", blocks)])
            .enumerate()
            .map(|(at, msg)| {
                // Some have no ids: they are counted.
                let id = if one_in(rng, 4) { String::new() } else { format!("m{at}") };
                msg.to_builder().id(id).build().unwrap()
            })
            .collect();
        let reply = named.pop().unwrap().to_builder().id("reply").build().unwrap();
        (named, reply)
    }

    fn blocks(messages: &[Msg]) -> Vec<&ContentBlock> {
        messages.iter().flat_map(Msg::content).collect()
    }

    fn with_summary(reply: &Msg, reach: &SummaryExtent, nth: usize) -> Msg {
        let mut hint = HintBlock::new(format!("summary {nth}"));
        hint.source = Some(reach.to_source());
        reply.to_builder().block(hint).build().unwrap()
    }

    #[test]
    fn a_cut_tears_nothing_apart_and_what_is_behind_it_stays() {
        check_property("compaction", 3000, |rng| {
            let (history, mut reply) = conversation(rng);
            // Once more behind the first one: a summary of a summary.
            for nth in 0..2 {
                let before = model_view(history.iter().chain([&reply]));
                let Some(old) = select_oldest(&history, &reply, rng.usize(..400), 10_000) else {
                    return;
                };
                reply = with_summary(&reply, &old.extent, nth);
                let after = model_view(history.iter().chain([&reply]));
                let (was, is) = (blocks(&before), blocks(&after));
                let questions = |messages: &[Msg]| {
                    messages
                        .iter()
                        .filter(|msg| msg.text("") == Some("the question".to_owned()))
                        .count()
                };
                assert_eq!(questions(&after), 1, "what is asked stays");
                assert!(after[0].text("").unwrap().ends_with(&format!("summary {nth}")));
                let kept = &is[1..];
                let tail = &was[was.len() - (kept.len() - 1)..];
                assert!(kept.ends_with(tail), "what is new stays as it was");
                let calls: HashSet<&str> = is
                    .iter()
                    .filter(|block| matches!(block, ContentBlock::ToolCall(_)))
                    .map(|block| block.id())
                    .collect();
                for block in &was {
                    let ContentBlock::ToolResult(result) = block else { continue };
                    let stays = is.iter().any(|block| {
                        matches!(block, ContentBlock::ToolResult(own) if own.id == result.id)
                    });
                    assert_eq!(calls.contains(result.id.as_str()), stays, "{}", result.id);
                }
                // Everything that is gone is in what was summed up.
                let gone = was.len() - tail.len();
                for block in was.iter().take(gone) {
                    let ContentBlock::Text(block) = block else { continue };
                    let is_there = old.text.contains(&block.text) || is[1] == &block.clone().into();
                    assert!(is_there, "{} is lost in {}", block.text, old.text);
                }
                assert!(nth == 0 || old.text.contains("summary 0"));
            }
        });
    }

    #[test]
    fn a_summary_of_missing_messages_is_ignored() {
        let reach = SummaryExtent {
            kind: SOURCE_TYPE.to_owned(),
            upto: "gone".to_owned(),
            ..SummaryExtent::default()
        };
        let history = [Msg::user("ann", "hi")];
        let reply = with_summary(&Msg::reply("r", "friday"), &reach, 0);
        assert_eq!(model_view(history.iter().chain([&reply])), history);
    }
}
