//! Builds the prompt: a conversation as the messages that every provider knows.

use super::SpeakerFormat;
use super::speakers::HistoryText;
use crate::native;
use crate::provider::has_failed;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, HintBlock, Msg, Part, Payload, Role, TextBlock, ThinkingBlock,
    ToolCall, ToolResult, ToolResultState, content_blocks,
};

/// One message of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptMessage<'a> {
    /// A system message with text.
    System(&'a Msg),
    /// From the user, another agent, or a hint.
    User {
        /// Its parts; at least one.
        parts: Vec<UserPart<'a>>,
        /// The message that it is, if it is exactly one.
        msg: Option<&'a Msg>,
    },
    /// From the model. Never empty.
    Assistant(Vec<AssistantPart<'a>>),
    /// The outcomes of the calls in the message before: exactly one for each call, in their order.
    ToolResults(Vec<CallOutcome<'a>>),
}

/// A part of a user message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserPart<'a> {
    /// Text.
    Text(Cow<'a, TextBlock>),
    /// Bytes, or their URL.
    Data(&'a DataBlock),
    /// A block of an unknown type.
    Item(&'a Fields),
}

impl UserPart<'_> {
    /// A part with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Cow::Owned(TextBlock::new(text)))
    }
}

impl<'a> From<&'a Part> for UserPart<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Text(block) => Self::Text(Cow::Borrowed(block)),
            Part::Data(block) => Self::Data(block),
            Part::Other(item) => Self::Item(item),
        }
    }
}

/// A part of an assistant message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssistantPart<'a> {
    /// Text.
    Text(&'a TextBlock),
    /// Its reasoning.
    Thinking(&'a ThinkingBlock),
    /// Bytes that the model made.
    Data(&'a DataBlock),
    /// A tool call.
    ToolCall(&'a ToolCall),
    /// An item that only its provider knows. It is sent back there and nowhere else.
    Item(&'a Fields),
}

/// A tool call and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// The result. A call without one was interrupted by a crash or a stop.
    pub result: Option<&'a ToolResult>,
}

/// What the model reads for a call without a result.
const INTERRUPTED_TEXT: &str = "The call was interrupted before it gave a result.";

/// What the model reads for a call that has not ended.
const RUNNING_TEXT: &str = "The call is still running.";

impl<'a> CallOutcome<'a> {
    /// Whether the call failed.
    pub fn is_error(&self) -> bool {
        self.result.is_none_or(|result| has_failed(&result.state))
    }

    /// A note for the model if the output is not complete.
    pub(crate) fn running_note(&self) -> Option<String> {
        let result = self.result?;
        (result.state == ToolResultState::Running).then(|| format!("[{RUNNING_TEXT}]"))
    }

    /// The text for the model: the output, with a note if it is not complete. Never empty.
    pub fn text(&self) -> String {
        let text = self.result.map(|result| result.output.text("\n")).unwrap_or_default();
        if !text.is_empty() {
            return self.running_note().map_or(text.clone(), |note| format!("{text}\n{note}"));
        }
        let Some(result) = self.result else { return INTERRUPTED_TEXT.to_owned() };
        match &result.state {
            ToolResultState::Success if self.data().next().is_some() => "The result follows.",
            ToolResultState::Success => "The call gave no output.",
            ToolResultState::Running => RUNNING_TEXT,
            ToolResultState::Error => "The call failed.",
            ToolResultState::Interrupted => INTERRUPTED_TEXT,
            ToolResultState::Denied => "The call was denied.",
            ToolResultState::Other(_) => "The call has ended.",
        }
        .to_owned()
    }

    /// The text, marked if the call failed: for protocols that have no field for a failure.
    pub(crate) fn text_with_failure(&self) -> String {
        let failed = if self.is_error() { "Error: " } else { "" };
        format!("{failed}{}", self.text())
    }

    /// The line before the data of the output, for protocols in which a user message carries them; `None` without data.
    pub(crate) fn data_heading(&self) -> Option<String> {
        self.data().next()?;
        Some(format!("What {} ({}) gave:", self.call.name, self.call.id))
    }

    /// The parts of the output in order. A plain string has none.
    pub fn parts(&self) -> &'a [Part] {
        match self.result.map(|result| &result.output) {
            Some(Payload::Parts(parts)) => parts,
            Some(Payload::Text(_)) | None => &[],
        }
    }

    /// The parts of the output, if a client sent them on this wire and the call succeeded.
    pub(crate) fn client_parts(&self, wire: &str) -> Option<&'a [Part]> {
        let is_native = |result: &&ToolResult| native::get(&result.rest, wire).is_some();
        self.result.filter(is_native).filter(|_| !self.is_error() && !self.parts().is_empty())?;
        Some(self.parts())
    }

    /// The data blocks of the output.
    pub fn data(&self) -> impl Iterator<Item = &'a DataBlock> {
        self.parts().iter().filter_map(|part| match part {
            Part::Data(block) => Some(block),
            Part::Text(_) | Part::Other(_) => None,
        })
    }
}

/// A conversation as the messages of a prompt. Every call has exactly one outcome, right after the message with the call. A
/// hint is a user message. Results without a call are left out, and so is everything empty.
pub fn build_prompt(messages: &[Msg], agents: SpeakerFormat) -> Vec<PromptMessage<'_>> {
    let mut walk = PromptBuilder {
        messages: Vec::new(),
        assistant_parts: Vec::new(),
        results: collect_results(messages),
        blocks_before: 0,
    };
    let mut history = HistoryText::default();
    for msg in messages {
        let tools = msg.content().iter().any(is_tool_block);
        match agents {
            SpeakerFormat::HistoryTags if is_plain_message(msg, tools) => history.add_message(msg),
            SpeakerFormat::NamePrefix if is_plain_message(msg, tools) => {
                walk.messages.extend(super::speakers::name_prefixed_message(msg));
            }
            SpeakerFormat::SingleAgent | SpeakerFormat::HistoryTags | SpeakerFormat::NamePrefix => {
                walk.messages.extend(history.take_message());
                walk.push_message(msg);
            }
        }
        walk.blocks_before += msg.content().len();
    }
    walk.messages.extend(history.take_message());
    walk.messages
}

/// Whether a message has neither tools nor hints.
fn is_plain_message(msg: &Msg, tools: bool) -> bool {
    let hints = msg.content().iter().any(|block| matches!(block, ContentBlock::Hint(_)));
    matches!(msg.role(), Role::User | Role::Assistant) && !tools && !hints
}

fn is_tool_block(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_))
}

/// The results of each call id, with their positions in the conversation.
type ResultsById<'a> = HashMap<&'a str, VecDeque<(usize, &'a ToolResult)>>;

fn collect_results(messages: &[Msg]) -> ResultsById<'_> {
    let mut found = ResultsById::new();
    let blocks = messages.iter().flat_map(Msg::content);
    for (at, block) in blocks.enumerate() {
        if let ContentBlock::ToolResult(result) = block {
            found.entry(&result.id).or_default().push_back((at, result));
        }
    }
    found
}

struct PromptBuilder<'a> {
    messages: Vec<PromptMessage<'a>>,
    /// What the model has said since the last message, with the positions of the blocks.
    assistant_parts: Vec<(usize, AssistantPart<'a>)>,
    results: ResultsById<'a>,
    /// The number of blocks before this message.
    blocks_before: usize,
}

impl<'a> PromptBuilder<'a> {
    fn push_message(&mut self, msg: &'a Msg) {
        match msg.role() {
            Role::System => {
                if msg.text("").is_some_and(|text| !text.is_empty()) {
                    self.messages.push(PromptMessage::System(msg));
                }
            }
            Role::User => {
                let parts = msg.content().iter().filter_map(user_part).collect();
                self.push_user(parts, Some(msg));
            }
            Role::Assistant => {
                for (at, block) in (self.blocks_before..).zip(msg.content()) {
                    self.push_block(at, block);
                }
                self.end_assistant();
            }
            // The results are found through their calls.
            Role::Tool => {}
        }
    }

    fn push_block(&mut self, at: usize, block: &'a ContentBlock) {
        let part = match block {
            ContentBlock::Text(block) if block.text.is_empty() => return,
            ContentBlock::Text(block) => AssistantPart::Text(block),
            ContentBlock::Thinking(block) => AssistantPart::Thinking(block),
            ContentBlock::Data(block) => AssistantPart::Data(block),
            ContentBlock::ToolCall(call) => AssistantPart::ToolCall(call),
            ContentBlock::Other(item) => AssistantPart::Item(item),
            ContentBlock::ToolResult(_) => return self.end_assistant(),
            ContentBlock::Hint(hint) => {
                self.end_assistant();
                return self.push_user(hint_parts(hint), None);
            }
        };
        self.assistant_parts.push((at, part));
    }

    fn push_user(&mut self, parts: Vec<UserPart<'a>>, msg: Option<&'a Msg>) {
        if !parts.is_empty() {
            self.messages.push(PromptMessage::User { parts, msg });
        }
    }

    /// Ends the assistant message, and adds the outcomes of its calls.
    fn end_assistant(&mut self) {
        let parts = std::mem::take(&mut self.assistant_parts);
        let calls = parts.iter().filter_map(|(at, part)| match part {
            AssistantPart::ToolCall(call) => Some((*at, *call)),
            AssistantPart::Text(_)
            | AssistantPart::Thinking(_)
            | AssistantPart::Data(_)
            | AssistantPart::Item(_) => None,
        });
        let answers: Vec<_> = calls
            .map(|(at, call)| CallOutcome {
                call,
                result: take_result(&mut self.results, at, call),
            })
            .collect();
        if !parts.is_empty() {
            self.messages
                .push(PromptMessage::Assistant(parts.into_iter().map(|(_, part)| part).collect()));
        }
        if !answers.is_empty() {
            self.messages.push(PromptMessage::ToolResults(answers));
        }
    }
}

/// The first result after the call that no earlier call with the same id has taken.
fn take_result<'a>(
    results: &mut ResultsById<'a>,
    at: usize,
    call: &ToolCall,
) -> Option<&'a ToolResult> {
    let queue = results.get_mut(call.id.as_str())?;
    while let Some((place, result)) = queue.pop_front() {
        if place > at {
            return Some(result);
        }
    }
    None
}

fn user_part(block: &ContentBlock) -> Option<UserPart<'_>> {
    match block {
        ContentBlock::Text(block) if block.text.is_empty() => None,
        ContentBlock::Text(block) => Some(UserPart::Text(Cow::Borrowed(block))),
        ContentBlock::Data(block) => Some(UserPart::Data(block)),
        ContentBlock::Other(item) => Some(UserPart::Item(item)),
        content_blocks!(Thinking Hint ToolCall ToolResult) => None,
    }
}

fn hint_parts(hint: &HintBlock) -> Vec<UserPart<'_>> {
    match &hint.hint {
        Payload::Text(text) if text.is_empty() => Vec::new(),
        Payload::Text(text) => vec![UserPart::text(text)],
        Payload::Parts(parts) => parts
            .iter()
            .filter(|part| !matches!(part, Part::Text(block) if block.text.is_empty()))
            .map(UserPart::from)
            .collect(),
    }
}
