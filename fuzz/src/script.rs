//! Turns bytes into a stream of events, for the targets `fold` and `encode`.
//!
//! There are only a few ids, so that events collide: they start a block twice, continue it after its end,
//! or come again. Events that do not fit are generated too: the fold must refuse them.
//!
//! A step is a letter and a few bytes of parameters. Every byte counts as a letter, so any input is a
//! script; after its end come zeros. A script of letters is readable: `T` starts a text block, `t` appends
//! to it, `x` ends it, `R` and `r` start and end the reply.

use std::fmt;
use turnwire_core::block::{Base64Source, DataKind, Source};
#[expect(clippy::wildcard_imports, reason = "it makes every kind of event")]
use turnwire_core::event::*;
use turnwire_core::{
    ContentBlock, DataBlock, Fields, FinishedReason, HintBlock, Json, Msg, Part, Payload,
    PermissionRule, ReplyError, Role, Seq, TextBlock, ThinkingBlock, ToolCall, ToolResult,
};

/// One step of a script.
#[derive(Debug)]
pub enum Step {
    /// An event arrives.
    Event(Event<'static>),
    /// The messages are stored and loaded.
    Store,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => f.write_str(&event.to_json()),
            Self::Store => f.write_str("(stored and loaded)"),
        }
    }
}

/// Iterator over the steps that the bytes stand for.
#[derive(Debug)]
pub struct Script<'a> {
    bytes: &'a [u8],
    /// The largest seq so far.
    head: u64,
    /// Earlier events, to be repeated.
    sent: Vec<Event<'static>>,
}

/// Enough to reach all states; more would only be slow.
const MAX_EVENTS: usize = 200;

const REPLIES: [&str; 4] = ["r", "s", "m", ""];
const TIMES: [&str; 2] = ["", "2026-01-02T03:04:05"];
/// Some are ids that the fold generates for the parts of the result `c`.
const BLOCKS: [&str; 6] = ["a", "b", "c", "c-0", "c-1", ""];
const CALLS: [&str; 4] = ["c", "d", "a", ""];
const TEXTS: [&str; 6] = ["Hi", "", " \n\u{e9}", "{\"a\":", "\u{1f600}\"\\", "1}"];
const MEDIA: [&str; 3] = ["", "image/png", "text/plain"];
const WORDS: [&str; 8] =
    ["completed", "running", "success", "error", "asking", "finished", "", "a later word"];
const URLS: [&str; 3] = ["https://example.com/a", "", "no scheme"];
/// Runs of base64 with padding; chunks are cut from it at any position.
const BASE64: &str = "aGVsbG8=aA==aGk";
const NOT_BASE64: [&str; 6] = ["=", "\u{e9}", "!", "a===", " \n", "aGk= aGk="];
const EXTRAS: [&str; 6] = [
    "{}",
    r#"{"signature":"s"}"#,
    r#"{"id":"z","type":"z","created_at":"z","finished_at":"z"}"#,
    r#"{"text":1,"thinking":1,"source":1}"#,
    r#"{"name":1,"input":1,"state":1,"suggested_rules":1}"#,
    r#"{"turnwire":{"a":[1e400,12345678901234567890123]},"":null}"#,
];

impl Iterator for Script<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.bytes.is_empty() || self.sent.len() == MAX_EVENTS {
            return None;
        }
        let event = match self.letter() {
            '|' => return Some(Step::Store),
            'a' if !self.sent.is_empty() => {
                let earlier = self.below(self.sent.len());
                self.sent.get(earlier)?.clone()
            }
            letter => self.event(letter),
        };
        self.sent.push(event.clone());
        Some(Step::Event(event))
    }
}

impl<'a> Script<'a> {
    /// The script of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, head: 0, sent: Vec::new() }
    }

    fn byte(&mut self) -> u8 {
        self.bytes.split_off_first().copied().unwrap_or_default()
    }

    /// One of the 64 characters from `@` on; a letter is itself.
    fn letter(&mut self) -> char {
        char::from(b'@' + self.byte() % 64)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        let at = self.below(words.len());
        words.get(at).copied().unwrap_or_default()
    }

    fn event(&mut self, letter: char) -> Event<'static> {
        let mut event = Event::new(self.one_of(&REPLIES), EventKind::Unknown("".into()));
        (event.seq_from, event.seq) = self.seqs();
        event.id = self.id();
        event.created_at = self.one_of(&TIMES).into();
        if self.below(4) == 1 {
            event.metadata = self.fields();
        }
        event.kind = self.kind(letter);
        event
    }

    /// `seq_from` and `seq`: the next seq, none, a repeated one, a later one, or a range that may overlap
    /// earlier events.
    fn seqs(&mut self) -> (Option<Seq>, Option<Seq>) {
        let (from, to) = match self.below(8) {
            0..=2 => (None, self.head + 1),
            3 | 4 => return (None, None),
            5 => (None, self.head),
            6 => (None, self.head + 3),
            _ => {
                let from = (self.head + 1).saturating_sub(u64::from(self.byte() % 3));
                (Some(from), from + u64::from(self.byte() % 4))
            }
        };
        self.head = self.head.max(to);
        (from.and_then(Seq::new), Seq::new(to))
    }

    /// No id, one of a few, a new one, or a new one in AgentScope's form.
    fn id(&mut self) -> Text<'static> {
        let new = self.sent.len();
        match self.below(4) {
            0 => format!("e{new}").into(),
            1 => "".into(),
            2 => self.one_of(&["e0", "e1", "again"]).into(),
            _ => format!("{new:032x}").into(),
        }
    }

    fn kind(&mut self, letter: char) -> EventKind<'static> {
        match letter {
            'R' => ReplyStart {
                session_id: String::new(),
                name: self.one_of(&TEXTS).into(),
                role: self.role(),
            }
            .into(),
            'r' => ReplyEnd {
                session_id: String::new(),
                finished_reason: self.one_of(&WORDS).into(),
                error: self.flag().then(|| self.error()),
                structured_output: self.flag().then(|| Json::from(self.one_of(&TEXTS))),
                message_metadata: self.fields(),
            }
            .into(),
            'M' => ModelCallStart { model_name: self.one_of(&TEXTS).into() }.into(),
            'm' => ModelCallEnd {
                usage: self.tokens(),
                finished_reason: FinishedReason::default(),
                error: None,
                discard: self.some(2, |script| script.one_of(&BLOCKS).to_owned()),
            }
            .into(),
            'T' => TextBlockStart { block_id: self.block_id() }.into(),
            'x' => TextBlockEnd {
                block_id: self.block_id(),
                text: self.flag().then(|| self.text()),
                extra: self.fields(),
            }
            .into(),
            'K' => ThinkingBlockStart { block_id: self.block_id() }.into(),
            'k' => ThinkingBlockDelta { block_id: self.block_id(), delta: self.text() }.into(),
            'j' => ThinkingBlockEnd { block_id: self.block_id(), extra: self.fields() }.into(),
            'D' => DataBlockStart {
                block_id: self.block_id(),
                media_type: self.media_type(),
                name: self.flag().then(|| self.one_of(&TEXTS).into()),
            }
            .into(),
            'd' | 'b' => DataBlockDelta {
                block_id: self.block_id(),
                media_type: self.media_type(),
                chunk: self.chunk(),
            }
            .into(),
            'e' => DataBlockEnd { block_id: self.block_id(), extra: self.fields() }.into(),
            'H' => Hint {
                block_id: self.one_of(&BLOCKS).into(),
                source: self.flag().then(|| self.one_of(&TEXTS).into()),
                hint: self.payload(),
            }
            .into(),
            'B' => Block { block: Box::new(self.block()) }.into(),
            'G' => Message { message: Box::new(self.message()) }.into(),
            'S' => Supersede { message_ids: self.some(2, |it| it.one_of(&REPLIES).into()) }.into(),
            'Z' => Reset { epoch: String::new(), reason: String::new() }.into(),
            'X' => ExceedMaxIters { name: String::new() }.into(),
            'I' => UserInterrupt {}.into(),
            'P' => RequestStop { reason: None, generate_reason: Some(String::new()) }.into(),
            'A' => AllToolsDenied { denied_tool_calls: self.some(2, Self::call) }.into(),
            'N' => SubagentExposed {
                session_id: String::new(),
                subagent_id: self.one_of(&TEXTS).into(),
                agent_id: String::new(),
                label: None,
            }
            .into(),
            'O' => Custom { name: "mood".into(), value: CustomValue(self.one_of(&TEXTS).into()) }
                .into(),
            'Y' => EventKind::Unknown("LATER".into()),
            letter => self.tool_kind(letter),
        }
    }

    fn tool_kind(&mut self, letter: char) -> EventKind<'static> {
        match letter {
            'C' => {
                ToolCallStart { tool_call_id: self.call_id(), tool_call_name: self.text() }.into()
            }
            'c' => ToolCallDelta { tool_call_id: self.call_id(), delta: self.text() }.into(),
            'f' => ToolCallEnd { tool_call_id: self.call_id(), extra: self.fields() }.into(),
            'U' => {
                ToolResultStart { tool_call_id: self.call_id(), tool_call_name: self.text() }.into()
            }
            'u' => ToolResultTextDelta { tool_call_id: self.call_id(), delta: self.text() }.into(),
            'v' | 'p' => ToolResultDataDelta {
                tool_call_id: self.call_id(),
                block_id: self.block_id(),
                media_type: self.media_type(),
                chunk: self.chunk(),
            }
            .into(),
            'w' => {
                ToolResultEnd { tool_call_id: self.call_id(), state: self.one_of(&WORDS).into() }
                    .into()
            }
            'Q' => RequireUserConfirm { tool_calls: self.some(3, Self::call) }.into(),
            'q' => UserConfirmResult { confirm_results: self.some(3, Self::answer) }.into(),
            'E' => RequireExternalExecution { tool_calls: self.some(3, Self::call) }.into(),
            'F' => ExternalExecutionResult { execution_results: self.some(3, Self::result) }.into(),
            // All other letters: most events of a stream are text deltas.
            _ => TextBlockDelta { block_id: self.block_id(), delta: self.text() }.into(),
        }
    }

    fn some<T>(&mut self, most: usize, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| one(self)).collect()
    }

    fn text(&mut self) -> Text<'static> {
        self.one_of(&TEXTS).into()
    }

    fn block_id(&mut self) -> Text<'static> {
        self.one_of(&BLOCKS).into()
    }

    fn call_id(&mut self) -> Text<'static> {
        self.one_of(&CALLS).into()
    }

    fn role(&mut self) -> Role {
        match self.below(6) {
            1 => Role::User,
            2 => Role::System,
            3 => Role::Tool,
            _ => Role::Assistant,
        }
    }

    fn media_type(&mut self) -> Option<String> {
        self.below(4).checked_sub(1).and_then(|at| MEDIA.get(at)).map(ToString::to_string)
    }

    fn fields(&mut self) -> Fields {
        serde_json::from_str(self.one_of(&EXTRAS)).unwrap_or_default()
    }

    fn tokens(&mut self) -> TokenCounts {
        let count = if self.flag() { i64::MAX } else { i64::from(self.byte()) };
        TokenCounts { input_tokens: count, output_tokens: 1, ..TokenCounts::default() }
    }

    fn error(&mut self) -> ReplyError {
        ReplyError {
            r#type: self.one_of(&WORDS).into(),
            message: self.one_of(&TEXTS).into(),
            rest: Fields::default(),
        }
    }

    /// Base64, cut anywhere.
    fn base64(&mut self) -> &'static str {
        let (from, len) = (self.below(BASE64.len() + 4), self.below(6));
        match BASE64.get(from..) {
            Some(rest) => rest.get(..len).unwrap_or(rest),
            None => self.one_of(&NOT_BASE64),
        }
    }

    fn chunk(&mut self) -> Chunk<'static> {
        match self.below(8) {
            7 => Chunk::Url(self.one_of(&URLS).into()),
            _ => Chunk::Data(self.base64().into()),
        }
    }

    fn finished_at(&mut self) -> Option<String> {
        self.flag().then(|| self.one_of(&TIMES).into())
    }

    fn text_block(&mut self) -> TextBlock {
        TextBlock {
            id: self.one_of(&BLOCKS).into(),
            finished_at: self.finished_at(),
            ..TextBlock::new(self.one_of(&TEXTS))
        }
    }

    fn data_block(&mut self) -> DataBlock {
        let source = match self.below(4) {
            0 => DataBlock::url(self.one_of(&URLS), self.one_of(&MEDIA)).source,
            1 => Source::Other([("type", "blob")].into_iter().collect()),
            _ => Source::Base64(Base64Source {
                data: self.base64().into(),
                ..Base64Source::default()
            }),
        };
        DataBlock {
            kind: if self.flag() { DataKind::Image } else { DataKind::Data },
            id: self.one_of(&BLOCKS).into(),
            finished_at: self.finished_at(),
            ..DataBlock::from_source(source)
        }
    }

    /// A block of an unknown type, whose id is missing, a string, or a number.
    fn other(&mut self) -> Fields {
        let mut fields: Fields = [("type", "citation")].into_iter().collect();
        match self.below(3) {
            0 => {}
            1 => fields.insert("id", self.one_of(&BLOCKS)),
            _ => fields.insert("id", 7),
        }
        fields
    }

    fn part(&mut self) -> Part {
        match self.below(4) {
            0 => Part::Text(self.text_block()),
            1 => Part::Other(self.other()),
            _ => Part::Data(self.data_block()),
        }
    }

    fn payload(&mut self) -> Payload {
        match self.below(4) {
            0 => Payload::Text(self.one_of(&TEXTS).into()),
            // Enough parts that the fold builds its index.
            1 => Payload::Parts(self.some(12, Self::part)),
            _ => Payload::Parts(self.some(2, Self::part)),
        }
    }

    fn call(&mut self) -> ToolCall {
        ToolCall {
            state: self.one_of(&WORDS).into(),
            suggested_rules: self.some(1, |script| PermissionRule {
                tool_name: "t".into(),
                behavior: script.one_of(&WORDS).into(),
                ..PermissionRule::default()
            }),
            finished_at: self.finished_at(),
            ..ToolCall::new(self.one_of(&CALLS), "t", self.one_of(&TEXTS))
        }
    }

    fn result(&mut self) -> ToolResult {
        ToolResult {
            state: self.one_of(&WORDS).into(),
            finished_at: self.finished_at(),
            ..ToolResult::success(self.one_of(&CALLS), self.payload())
        }
    }

    fn answer(&mut self) -> ConfirmResult {
        ConfirmResult {
            confirmed: self.flag(),
            tool_call: self.call(),
            rules: None,
            rest: Fields::default(),
        }
    }

    fn block(&mut self) -> ContentBlock {
        match self.below(7) {
            0 => self.text_block().into(),
            1 => {
                ThinkingBlock { id: self.one_of(&BLOCKS).into(), ..ThinkingBlock::new("hm") }.into()
            }
            2 => self.data_block().into(),
            3 => HintBlock { id: self.one_of(&BLOCKS).into(), ..HintBlock::new(self.payload()) }
                .into(),
            4 => self.call().into(),
            5 => self.result().into(),
            _ => ContentBlock::Other(self.other()),
        }
    }

    fn message(&mut self) -> Msg {
        let (role, id) = (self.role(), self.one_of(&REPLIES));
        let most = if self.flag() { 12 } else { 2 };
        let content = self.some(most, Self::block);
        let message = Msg::builder(role).id(id).content(content).build();
        message.unwrap_or_else(|_| Msg::reply(id, ""))
    }
}
