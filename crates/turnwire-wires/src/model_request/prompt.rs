//! A conversation as the turns that every provider knows.

use super::SpeakerFormat;
use super::speakers::HistoryText;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, HintBlock, Msg, Part, Payload, Role, TextBlock, ThinkingBlock,
    ToolCall, ToolResult, ToolResultState,
};

/// One turn of a conversation with a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptMessage<'a> {
    /// What the system says.
    System(String),
    /// What a user, or another agent, or a hint says. Never empty.
    User(Vec<UserPart<'a>>),
    /// What the model said. Never empty.
    Assistant(Vec<AssistantPart<'a>>),
    /// What came of the calls in the turn before: exactly one answer for each, in their order.
    ToolResults(Vec<CallOutcome<'a>>),
}

/// A part of a user's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserPart<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes, or a URL to them.
    Data(&'a DataBlock),
    /// A block of a type that we do not know.
    Item(&'a Fields),
}

/// A part of what the model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssistantPart<'a> {
    /// Text.
    Text(&'a TextBlock),
    /// Its reasoning.
    Thinking(&'a ThinkingBlock),
    /// Bytes that it made.
    Data(&'a DataBlock),
    /// A call of a tool.
    ToolCall(&'a ToolCall),
    /// An item that only its provider knows: it goes back there, and to nobody else.
    Item(&'a Fields),
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// Its result. A call without one, after a crash or a stop, was interrupted.
    pub result: Option<&'a ToolResult>,
}

/// What a model is told of a call that has no result.
const INTERRUPTED_TEXT: &str = "The call was interrupted before it gave a result.";

/// What a model is told of a call that has no end yet.
const RUNNING: &str = "The call is still running.";

impl<'a> CallOutcome<'a> {
    /// Whether the model should know that it failed.
    pub fn is_error(&self) -> bool {
        match self.result.map(|result| &result.state) {
            Some(ToolResultState::Success | ToolResultState::Running) => false,
            Some(
                ToolResultState::Error
                | ToolResultState::Interrupted
                | ToolResultState::Denied
                | ToolResultState::Other(_),
            )
            | None => true,
        }
    }

    /// What has to be said of an output that is not whole yet.
    pub(crate) fn running_note(&self) -> Option<String> {
        let result = self.result?;
        (result.state == ToolResultState::Running).then(|| format!("[{RUNNING}]"))
    }

    /// All of its text, and what has to be said of it; never empty.
    pub fn text(&self) -> String {
        let text = self.result.map(|result| result.output.text("\n")).unwrap_or_default();
        if !text.is_empty() {
            return self.running_note().map_or(text.clone(), |note| format!("{text}\n{note}"));
        }
        let Some(result) = self.result else { return INTERRUPTED_TEXT.to_owned() };
        match &result.state {
            ToolResultState::Success if self.data().next().is_some() => "The result follows.",
            ToolResultState::Success => "The call gave no output.",
            ToolResultState::Running => RUNNING,
            ToolResultState::Error => "The call failed.",
            ToolResultState::Interrupted => INTERRUPTED_TEXT,
            ToolResultState::Denied => "The call was denied.",
            ToolResultState::Other(_) => "The call has ended.",
        }
        .to_owned()
    }

    /// The parts of its output in order; a bare string is none.
    pub fn parts(&self) -> &'a [Part] {
        match self.result.map(|result| &result.output) {
            Some(Payload::Parts(parts)) => parts,
            Some(Payload::Text(_)) | None => &[],
        }
    }

    /// The bytes in its output.
    pub fn data(&self) -> impl Iterator<Item = &'a DataBlock> {
        self.parts().iter().filter_map(|part| match part {
            Part::Data(block) => Some(block),
            _ => None,
        })
    }
}

/// The conversation as turns: every call has exactly one answer, right behind the turn that made it;
/// a hint is a user's turn; results of calls that nobody made are left out, and so is what is empty.
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

/// Whether a message is just somebody's words.
fn is_plain_message(msg: &Msg, tools: bool) -> bool {
    let hints = msg.content().iter().any(|block| matches!(block, ContentBlock::Hint(_)));
    matches!(msg.role(), Role::User | Role::Assistant) && !tools && !hints
}

fn is_tool_block(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_))
}

/// The results of each id, with their places in the conversation.
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
    /// What the model has said since the last turn, with the places of the blocks.
    assistant_parts: Vec<(usize, AssistantPart<'a>)>,
    results: ResultsById<'a>,
    /// How many blocks there were before this message.
    blocks_before: usize,
}

impl<'a> PromptBuilder<'a> {
    fn push_message(&mut self, msg: &'a Msg) {
        match msg.role() {
            Role::System => {
                let text = msg.text("\n").unwrap_or_default();
                if !text.is_empty() {
                    self.messages.push(PromptMessage::System(text));
                }
            }
            Role::User => self.push_user(msg.content().iter().filter_map(user_part).collect()),
            Role::Assistant => {
                for (at, block) in (self.blocks_before..).zip(msg.content()) {
                    self.push_block(at, block);
                }
                self.end_assistant();
            }
            // Its results are found by the calls that they are for.
            Role::Tool => {}
        }
    }

    fn push_block(&mut self, at: usize, block: &'a ContentBlock) {
        let said = match block {
            ContentBlock::Text(block) if block.text.is_empty() => return,
            ContentBlock::Text(block) => AssistantPart::Text(block),
            ContentBlock::Thinking(block) => AssistantPart::Thinking(block),
            ContentBlock::Data(block) => AssistantPart::Data(block),
            ContentBlock::ToolCall(call) => AssistantPart::ToolCall(call),
            ContentBlock::Other(item) => AssistantPart::Item(item),
            ContentBlock::ToolResult(_) => return self.end_assistant(),
            ContentBlock::Hint(hint) => {
                self.end_assistant();
                return self.push_user(hint_parts(hint));
            }
        };
        self.assistant_parts.push((at, said));
    }

    fn push_user(&mut self, parts: Vec<UserPart<'a>>) {
        if !parts.is_empty() {
            self.messages.push(PromptMessage::User(parts));
        }
    }

    /// Ends the model's turn, and answers its calls.
    fn end_assistant(&mut self) {
        let said = std::mem::take(&mut self.assistant_parts);
        let calls = said.iter().filter_map(|(at, said)| match said {
            AssistantPart::ToolCall(call) => Some((*at, *call)),
            _ => None,
        });
        let answers: Vec<_> = calls
            .map(|(at, call)| CallOutcome {
                call,
                result: take_result(&mut self.results, at, call),
            })
            .collect();
        if !said.is_empty() {
            self.messages
                .push(PromptMessage::Assistant(said.into_iter().map(|(_, said)| said).collect()));
        }
        if !answers.is_empty() {
            self.messages.push(PromptMessage::ToolResults(answers));
        }
    }
}

/// The first result behind the call that no earlier call of the same id has taken.
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
        ContentBlock::Text(block) => Some(UserPart::Text((&block.text).into())),
        ContentBlock::Data(block) => Some(UserPart::Data(block)),
        ContentBlock::Other(item) => Some(UserPart::Item(item)),
        _ => None,
    }
}

fn hint_parts(hint: &HintBlock) -> Vec<UserPart<'_>> {
    match &hint.hint {
        Payload::Text(text) if text.is_empty() => Vec::new(),
        Payload::Text(text) => vec![UserPart::Text(text.into())],
        Payload::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(block) if block.text.is_empty() => None,
                Part::Text(block) => Some(UserPart::Text((&block.text).into())),
                Part::Data(block) => Some(UserPart::Data(block)),
                Part::Other(item) => Some(UserPart::Item(item)),
            })
            .collect(),
    }
}
