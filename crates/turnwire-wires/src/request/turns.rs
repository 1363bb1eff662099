//! A conversation as the turns that every provider knows.

use super::Agents;
use super::agents::History;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use turnwire_core::{
    ContentBlock, DataBlock, Fields, HintBlock, Msg, Part, Payload, Role, TextBlock, ThinkingBlock,
    ToolCall, ToolResult, ToolResultState,
};

/// One turn of a conversation with a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn<'a> {
    /// What the system says.
    System(String),
    /// What a user, or another agent, or a hint says. Never empty.
    User(Vec<Given<'a>>),
    /// What the model said. Never empty.
    Assistant(Vec<Said<'a>>),
    /// What came of the calls in the turn before: exactly one answer for each, in their order.
    Results(Vec<Answer<'a>>),
}

/// A part of a user's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes, or a URL to them.
    Data(&'a DataBlock),
    /// A block of a type that we do not know.
    Item(&'a Fields),
}

/// A part of what the model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said<'a> {
    /// Text.
    Text(&'a TextBlock),
    /// Its reasoning.
    Thinking(&'a ThinkingBlock),
    /// Bytes that it made.
    Data(&'a DataBlock),
    /// A call of a tool.
    Call(&'a ToolCall),
    /// An item that only its provider knows: it goes back there, and to nobody else.
    Item(&'a Fields),
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// Its result. A call without one, after a crash or a stop, was interrupted.
    pub result: Option<&'a ToolResult>,
}

/// What a model is told of a call that has no result.
const NO_RESULT: &str = "The call was interrupted before it gave a result.";

/// What a model is told of a call that has no end yet.
const RUNNING: &str = "The call is still running.";

impl<'a> Answer<'a> {
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
    pub(crate) fn note(&self) -> Option<String> {
        let result = self.result?;
        (result.state == ToolResultState::Running).then(|| format!("[{RUNNING}]"))
    }

    /// All of its text, and what has to be said of it; never empty.
    pub fn text(&self) -> String {
        let text = self.result.map(|result| result.output.text("\n")).unwrap_or_default();
        if !text.is_empty() {
            return self.note().map_or(text.clone(), |note| format!("{text}\n{note}"));
        }
        let Some(result) = self.result else { return NO_RESULT.to_owned() };
        match &result.state {
            ToolResultState::Success if self.data().next().is_some() => "The result follows.",
            ToolResultState::Success => "The call gave no output.",
            ToolResultState::Running => RUNNING,
            ToolResultState::Error => "The call failed.",
            ToolResultState::Interrupted => NO_RESULT,
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
pub fn turns(messages: &[Msg], agents: Agents) -> Vec<Turn<'_>> {
    let mut walk = Walk { turns: Vec::new(), said: Vec::new(), results: results(messages), at: 0 };
    let mut history = History::default();
    for msg in messages {
        let tools = msg.content().iter().any(is_tool);
        match agents {
            Agents::History if may_merge(msg, tools) => history.add(msg),
            Agents::Named if may_merge(msg, tools) => {
                walk.turns.extend(super::agents::named(msg));
            }
            Agents::One | Agents::History | Agents::Named => {
                walk.turns.extend(history.take());
                walk.message(msg);
            }
        }
        walk.at += msg.content().len();
    }
    walk.turns.extend(history.take());
    walk.turns
}

/// Whether a message is just somebody's words.
fn may_merge(msg: &Msg, tools: bool) -> bool {
    let hints = msg.content().iter().any(|block| matches!(block, ContentBlock::Hint(_)));
    matches!(msg.role(), Role::User | Role::Assistant) && !tools && !hints
}

fn is_tool(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_))
}

/// The results of each id, with their places in the conversation.
type Results<'a> = HashMap<&'a str, VecDeque<(usize, &'a ToolResult)>>;

fn results(messages: &[Msg]) -> Results<'_> {
    let mut found = Results::new();
    let blocks = messages.iter().flat_map(Msg::content);
    for (at, block) in blocks.enumerate() {
        if let ContentBlock::ToolResult(result) = block {
            found.entry(&result.id).or_default().push_back((at, result));
        }
    }
    found
}

struct Walk<'a> {
    turns: Vec<Turn<'a>>,
    /// What the model has said since the last turn, with the places of the blocks.
    said: Vec<(usize, Said<'a>)>,
    results: Results<'a>,
    /// How many blocks there were before this message.
    at: usize,
}

impl<'a> Walk<'a> {
    fn message(&mut self, msg: &'a Msg) {
        match msg.role() {
            Role::System => {
                let text = msg.text("\n").unwrap_or_default();
                if !text.is_empty() {
                    self.turns.push(Turn::System(text));
                }
            }
            Role::User => self.user(msg.content().iter().filter_map(given).collect()),
            Role::Assistant => {
                for (at, block) in (self.at..).zip(msg.content()) {
                    self.block(at, block);
                }
                self.flush();
            }
            // Its results are found by the calls that they are for.
            Role::Tool => {}
        }
    }

    fn block(&mut self, at: usize, block: &'a ContentBlock) {
        let said = match block {
            ContentBlock::Text(block) if block.text.is_empty() => return,
            ContentBlock::Text(block) => Said::Text(block),
            ContentBlock::Thinking(block) => Said::Thinking(block),
            ContentBlock::Data(block) => Said::Data(block),
            ContentBlock::ToolCall(call) => Said::Call(call),
            ContentBlock::Other(item) => Said::Item(item),
            ContentBlock::ToolResult(_) => return self.flush(),
            ContentBlock::Hint(hint) => {
                self.flush();
                return self.user(hint_parts(hint));
            }
            _ => return,
        };
        self.said.push((at, said));
    }

    fn user(&mut self, parts: Vec<Given<'a>>) {
        if !parts.is_empty() {
            self.turns.push(Turn::User(parts));
        }
    }

    /// Ends the model's turn, and answers its calls.
    fn flush(&mut self) {
        let said = std::mem::take(&mut self.said);
        let calls = said.iter().filter_map(|(at, said)| match said {
            Said::Call(call) => Some((*at, *call)),
            _ => None,
        });
        let answers: Vec<_> = calls
            .map(|(at, call)| Answer { call, result: result_of(&mut self.results, at, call) })
            .collect();
        if !said.is_empty() {
            self.turns.push(Turn::Assistant(said.into_iter().map(|(_, said)| said).collect()));
        }
        if !answers.is_empty() {
            self.turns.push(Turn::Results(answers));
        }
    }
}

/// The first result behind the call that no earlier call of the same id has taken.
fn result_of<'a>(results: &mut Results<'a>, at: usize, call: &ToolCall) -> Option<&'a ToolResult> {
    let queue = results.get_mut(call.id.as_str())?;
    while let Some((place, result)) = queue.pop_front() {
        if place > at {
            return Some(result);
        }
    }
    None
}

fn given(block: &ContentBlock) -> Option<Given<'_>> {
    match block {
        ContentBlock::Text(block) if block.text.is_empty() => None,
        ContentBlock::Text(block) => Some(Given::Text((&block.text).into())),
        ContentBlock::Data(block) => Some(Given::Data(block)),
        ContentBlock::Other(item) => Some(Given::Item(item)),
        _ => None,
    }
}

fn hint_parts(hint: &HintBlock) -> Vec<Given<'_>> {
    match &hint.hint {
        Payload::Text(text) if text.is_empty() => Vec::new(),
        Payload::Text(text) => vec![Given::Text(text.into())],
        Payload::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(block) if block.text.is_empty() => None,
                Part::Text(block) => Some(Given::Text((&block.text).into())),
                Part::Data(block) => Some(Given::Data(block)),
                Part::Other(item) => Some(Given::Item(item)),
                _ => None,
            })
            .collect(),
    }
}
