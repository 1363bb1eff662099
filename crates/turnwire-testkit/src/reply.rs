//! Well-formed replies, with the message that they must become.
//!
//! The message is put together from the plan, not by folding: each step that changes the message
//! says how.

use crate::values::{self, text};
use crate::{one_in, pick};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fastrand::Rng;
use turnwire_core::block::Source;
use turnwire_core::event::{
    Block, Chunk, ConfirmResult, Custom, CustomValue, DataBlockDelta, DataBlockEnd, DataBlockStart,
    ExceedMaxIters, ExternalExecutionResult, Hint, ModelCallEnd, ModelCallStart, ReplyEnd,
    ReplyStart, RequireExternalExecution, RequireUserConfirm, Text, TextBlockDelta, TextBlockEnd,
    TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd, ThinkingBlockStart, TokenCounts,
    ToolCallDelta, ToolCallEnd, ToolCallStart, ToolResultDataDelta, ToolResultEnd, ToolResultStart,
    ToolResultTextDelta, UserConfirmResult, UserInterrupt,
};
use turnwire_core::{
    ContentBlock, DataBlock, ErrorType, Event, EventKind, Fields, FinishedReason, HintBlock, Msg,
    Part, Payload, ReplyError, Role, TextBlock, ThinkingBlock, ToolCall, ToolCallState, ToolResult,
    ToolResultState, Usage,
};

/// The events of a reply, and the message that they must become.
#[derive(Debug, Clone)]
pub struct GeneratedReply {
    /// The events in order, with ids and times, without seqs.
    pub events: Vec<Event<'static>>,
    /// What they fold to.
    pub message: Msg,
}

/// What a step does to the message: the blocks so far, and the event's time.
type Effect = Box<dyn FnOnce(&mut Vec<ContentBlock>, &str)>;

struct Step {
    kind: EventKind<'static>,
    metadata: Fields,
    effect: Option<Effect>,
}

fn step(kind: impl Into<EventKind<'static>>) -> Step {
    Step { kind: kind.into(), metadata: Fields::default(), effect: None }
}

impl Step {
    fn with_effect(mut self, effect: impl FnOnce(&mut Vec<ContentBlock>, &str) + 'static) -> Self {
        self.effect = Some(Box::new(effect));
        self
    }
}

/// A random reply of this id.
pub fn random_reply(rng: &mut Rng, id: &str) -> GeneratedReply {
    let mut plan = BlockScripts { rng, blocks: 0, started: false };
    let rounds = plan.rng.usize(..4);
    let mut maker = ReplyBuilder::new(id, plan.rng.u32(..));
    let name = text(plan.rng);
    if !one_in(plan.rng, 8) {
        let start =
            ReplyStart { session_id: "s".to_owned(), name: name.clone(), ..anonymous_start() };
        maker.name = name;
        plan.started = true;
        maker.emit(plan.rng, step(start));
    }
    for _ in 0..rounds {
        maker.emit_model_call(&mut plan);
    }
    let finish = !one_in(plan.rng, 6);
    maker.finish(plan.rng, finish)
}

fn anonymous_start() -> ReplyStart {
    ReplyStart { session_id: String::new(), name: String::new(), role: Role::Assistant }
}

/// Puts steps into events, and their effects into the message.
struct ReplyBuilder {
    id: String,
    name: String,
    clock: u32,
    events: Vec<Event<'static>>,
    content: Vec<ContentBlock>,
    usage: Option<Usage>,
}

impl ReplyBuilder {
    fn new(id: &str, clock: u32) -> Self {
        Self {
            id: id.to_owned(),
            name: String::new(),
            clock: clock % 1_000_000,
            events: Vec::new(),
            content: Vec::new(),
            usage: None,
        }
    }

    fn emit(&mut self, rng: &mut Rng, step: Step) {
        self.clock += 1;
        let at =
            format!("2026-11-15T08:22:{:02}.{:06}", self.clock / 1_000_000, self.clock % 1_000_000);
        let mut event = Event::new(self.id.clone(), step.kind);
        event.id = values::id(rng).into();
        if let Some(effect) = step.effect {
            effect(&mut self.content, &at);
        }
        event.created_at = at.into();
        event.metadata = step.metadata;
        event.rest = values::unknown_fields(rng);
        self.events.push(event);
    }

    /// One model call and its tools. Blocks begin in order, and may be open at the same time.
    fn emit_model_call(&mut self, plan: &mut BlockScripts<'_>) {
        self.emit(plan.rng, step(ModelCallStart { model_name: "m".to_owned() }));
        let mut waiting: Vec<Vec<Step>> =
            (0..plan.rng.usize(..4)).map(|_| plan.random_script()).collect();
        waiting.reverse();
        let mut open: Vec<std::vec::IntoIter<Step>> = Vec::new();
        while !(waiting.is_empty() && open.is_empty()) {
            if open.is_empty() || plan.rng.bool() {
                open.extend(waiting.pop().map(Vec::into_iter));
            }
            if one_in(plan.rng, 12) {
                let noise = plan.without_content();
                self.emit(plan.rng, noise);
            }
            if open.is_empty() {
                continue;
            }
            let at = plan.rng.usize(..open.len());
            match open.get_mut(at).and_then(Iterator::next) {
                Some(step) => self.emit(plan.rng, step),
                None => drop(open.remove(at)),
            }
        }
        let discarded = plan.discarded_script();
        let mut discard = Vec::new();
        if let Some((id, steps)) = discarded {
            for step in steps {
                self.emit(plan.rng, step);
            }
            discard.push(id);
        }
        let usage = TokenCounts {
            input_tokens: plan.rng.i64(0..1000),
            output_tokens: plan.rng.i64(0..1000),
            cache_input_tokens: plan.rng.i64(0..9),
            cache_creation_input_tokens: plan.rng.i64(0..9),
        };
        let sum = self.usage.get_or_insert_with(Usage::default);
        sum.input_tokens += usage.input_tokens;
        sum.output_tokens += usage.output_tokens;
        sum.cache_input_tokens += usage.cache_input_tokens;
        sum.cache_creation_input_tokens += usage.cache_creation_input_tokens;
        let end = ModelCallEnd { usage, discard, ..ModelCallEnd::default() };
        self.emit(plan.rng, step(end));
    }

    fn finish(mut self, rng: &mut Rng, finish: bool) -> GeneratedReply {
        let mut builder = Msg::builder(Role::Assistant).id(self.id.clone());
        if finish {
            let reason = pick(
                rng,
                &[
                    FinishedReason::Completed,
                    FinishedReason::Interrupted,
                    FinishedReason::ExceedMaxIters,
                    FinishedReason::Error,
                ],
            )
            .clone();
            let mut end = ReplyEnd {
                session_id: "s".to_owned(),
                finished_reason: reason.clone(),
                error: None,
                structured_output: one_in(rng, 3).then(|| values::object(rng)),
                message_metadata: Fields::default(),
            };
            if reason == FinishedReason::Error {
                let error = ReplyError {
                    r#type: ErrorType::Upstream,
                    message: text(rng),
                    ..ReplyError::default()
                };
                end.error = Some(error.clone());
                builder = builder.error(error);
            }
            if let Some(output) = &end.structured_output {
                builder = builder.structured_output(output.clone());
            }
            if one_in(rng, 3) {
                end.message_metadata.insert("generate_reason", text(rng));
                builder = builder.all_metadata(end.message_metadata.clone());
            }
            self.emit(rng, step(end));
            let at = self.events.last().map_or("", |event| &event.created_at);
            builder = builder.finished_at(at).finished_reason(reason);
        }
        if let Some(usage) = self.usage {
            builder = builder.usage(usage);
        }
        let first = self.events.iter().find(|event| event.kind.is_part_of_reply());
        let created_at = first.map_or("", |event| &event.created_at);
        #[expect(clippy::expect_used, reason = "an assistant's message may hold anything")]
        let message = builder
            .name(self.name)
            .created_at(created_at)
            .content(self.content)
            .build()
            .expect("an assistant's message may hold anything");
        GeneratedReply { events: self.events, message }
    }
}

/// Makes the scripts of blocks.
struct BlockScripts<'r> {
    rng: &'r mut Rng,
    blocks: u32,
    /// Whether there was a start.
    started: bool,
}

impl BlockScripts<'_> {
    fn id(&mut self) -> String {
        self.blocks += 1;
        // Sometimes short, always its own.
        if self.rng.bool() {
            format!("b{}", self.blocks)
        } else {
            format!("{:032x}", u128::from(self.rng.u64(..)) << 32 | u128::from(self.blocks))
        }
    }

    fn random_script(&mut self) -> Vec<Step> {
        match self.rng.u8(..9) {
            0 | 1 => self.text(),
            2 => self.thinking(),
            3 => self.data(),
            4 => self.hint(),
            5 => self.whole_block(),
            _ => self.tool(),
        }
    }

    /// Something that changes no block.
    fn without_content(&mut self) -> Step {
        match self.rng.u8(..5) {
            0 => step(EventKind::Unknown("X_LATER_VERSION".into())),
            1 => step(Custom { name: "x".to_owned(), value: CustomValue::default() }),
            2 => step(UserInterrupt {}),
            // A reply that goes on after a pause says so again; only its first start counts.
            3 if self.started => {
                step(ReplyStart { name: "x_again".to_owned(), ..anonymous_start() })
            }
            _ => step(ExceedMaxIters { name: text(self.rng) }),
        }
    }

    fn extra(&mut self) -> Fields {
        if !one_in(self.rng, 3) {
            return Fields::default();
        }
        let mut extra = Fields::default();
        extra.insert("signature", text(self.rng));
        // Never taken over.
        extra.insert("type", "x_other");
        extra.insert("id", "x_other");
        extra
    }

    fn text(&mut self) -> Vec<Step> {
        let (id, extra) = (self.id(), self.extra());
        let (pieces, mut whole) = self.text_pieces();
        let mut steps = Vec::new();
        let replaced = one_in(self.rng, 6).then(|| text(self.rng));
        let ends = !one_in(self.rng, 6);
        if let Some(replaced) = replaced.as_ref().filter(|_| ends) {
            whole.clone_from(replaced);
        }
        let (block_id, block) = (
            Text::from(id.clone()),
            TextBlock { id: id.clone(), text: whole, ..TextBlock::default() },
        );
        steps.push(step(TextBlockStart { block_id: block_id.clone() }).with_effect(
            move |content, at| {
                content.push(TextBlock { created_at: at.to_owned(), ..block }.into());
            },
        ));
        for delta in pieces {
            steps.push(step(TextBlockDelta { block_id: block_id.clone(), delta: delta.into() }));
        }
        if ends {
            let signature = extra.raw("signature").cloned();
            let end = TextBlockEnd { block_id, text: replaced.map(Text::from), extra };
            steps.push(step(end).with_effect(move |content, at| {
                change_block(content, &id, |block: &mut ContentBlock| {
                    if let ContentBlock::Text(block) = block {
                        block.finished_at = Some(at.to_owned());
                        if let Some(signature) = signature {
                            block.rest.insert("signature", signature);
                        }
                    }
                });
            }));
        }
        steps
    }

    fn thinking(&mut self) -> Vec<Step> {
        let (id, extra) = (self.id(), self.extra());
        let (pieces, thinking) = self.text_pieces();
        let block_id = Text::from(id.clone());
        let block = ThinkingBlock { id: id.clone(), thinking, ..ThinkingBlock::default() };
        let mut steps = vec![step(ThinkingBlockStart { block_id: block_id.clone() }).with_effect(
            move |content, at| {
                content.push(ThinkingBlock { created_at: at.to_owned(), ..block }.into());
            },
        )];
        for delta in pieces {
            steps
                .push(step(ThinkingBlockDelta { block_id: block_id.clone(), delta: delta.into() }));
        }
        let signature = extra.raw("signature").cloned();
        steps.push(step(ThinkingBlockEnd { block_id, extra }).with_effect(move |content, at| {
            change_block(content, &id, |block| {
                if let ContentBlock::Thinking(block) = block {
                    block.finished_at = Some(at.to_owned());
                    if let Some(signature) = signature {
                        block.rest.insert("signature", signature);
                    }
                }
            });
        }));
        steps
    }

    fn data(&mut self) -> Vec<Step> {
        let (id, media_type) = (self.id(), Some("image/png".to_owned()));
        let block_id = Text::from(id.clone());
        let name = self.rng.bool().then(|| text(self.rng));
        let (chunks, source) = self.data_chunks();
        let block =
            DataBlock { id: id.clone(), name: name.clone(), ..DataBlock::from_source(source) };
        let begin =
            DataBlockStart { block_id: block_id.clone(), media_type: media_type.clone(), name };
        let mut steps = vec![step(begin).with_effect(move |content, at| {
            content.push(DataBlock { created_at: at.to_owned(), ..block }.into());
        })];
        for chunk in chunks {
            let media_type = media_type.clone();
            steps.push(step(DataBlockDelta { block_id: block_id.clone(), media_type, chunk }));
        }
        steps.push(step(DataBlockEnd { block_id, extra: self.ignored_extra() }).with_effect(
            move |content, at| {
                change_block(content, &id, |block| {
                    if let ContentBlock::Data(block) = block {
                        block.finished_at = Some(at.to_owned());
                    }
                });
            },
        ));
        steps
    }

    /// Additions that a block never takes over.
    fn ignored_extra(&mut self) -> Fields {
        let mut extra = Fields::default();
        if self.rng.bool() {
            extra.insert("source", "x_other");
            extra.insert("finished_at", 0);
        }
        extra
    }

    fn hint(&mut self) -> Vec<Step> {
        let block = HintBlock {
            id: self.id(),
            hint: values::payload(self.rng),
            source: self.rng.bool().then(|| text(self.rng)),
            ..HintBlock::default()
        };
        vec![step(Hint::from(block.clone())).with_effect(move |content, at| {
            let (created_at, finished_at) = (at.to_owned(), Some(at.to_owned()));
            content.push(HintBlock { created_at, finished_at, ..block }.into());
        })]
    }

    fn whole_block(&mut self) -> Vec<Step> {
        let mut fields = values::unknown_block(self.rng);
        fields.insert("id", self.id());
        let block = ContentBlock::Other(fields);
        vec![step(Block { block: Box::new(block.clone()) }).with_effect(move |content, _| {
            content.push(block);
        })]
    }

    /// A call, whoever has to agree to it, and its result.
    fn tool(&mut self) -> Vec<Step> {
        let id = self.id();
        let mut steps = self.call(&id);
        match self.rng.u8(..8) {
            0 => {}
            1 => steps.push(self.require_confirm(&id)),
            2 => {
                steps.push(self.require_confirm(&id));
                steps.push(self.confirm(&id, true));
                steps.extend(self.result(&id, ToolResultState::Success, false));
            }
            3 => {
                steps.push(self.require_confirm(&id));
                steps.push(self.confirm(&id, false));
                // Too late: nothing changes any more.
                steps.push(late(step(confirm_result(&id, true, "{\"late\":1}"))));
                steps.extend(self.result(&id, ToolResultState::Denied, false));
            }
            4 => steps.extend(self.result(&id, ToolResultState::Running, true)),
            5 => {
                steps.push(require_external(&id));
                steps.push(self.external_result(&id));
            }
            6 => {
                let mut result = self.result(&id, ToolResultState::Interrupted, false);
                result.push(late(step(RequireUserConfirm { tool_calls: vec![bare_call(&id)] })));
                result.push(late(step(RequireExternalExecution {
                    tool_calls: vec![bare_call(&id)],
                })));
                result.push(late(step(ExternalExecutionResult {
                    execution_results: vec![ToolResult::success(id.clone(), "late")],
                })));
                steps.extend(result);
            }
            _ => steps.extend(self.result(&id, ToolResultState::Error, false)),
        }
        steps
    }

    fn call(&mut self, id: &str) -> Vec<Step> {
        let (pieces, input) = self.text_pieces();
        let name = text(self.rng);
        let (call_id, key) = (Text::from(id.to_owned()), id.to_owned());
        let begin =
            ToolCallStart { tool_call_id: call_id.clone(), tool_call_name: name.clone().into() };
        let call = ToolCall::new(id, name, input);
        let mut steps = vec![step(begin).with_effect(move |content, at| {
            content.push(ToolCall { created_at: at.to_owned(), ..call }.into());
        })];
        for delta in pieces {
            steps.push(step(ToolCallDelta { tool_call_id: call_id.clone(), delta: delta.into() }));
        }
        let extra = Fields::default();
        steps.push(step(ToolCallEnd { tool_call_id: call_id, extra }).with_effect(
            move |content, at| {
                change_call(content, &key, |call| call.finished_at = Some(at.to_owned()));
            },
        ));
        steps
    }

    fn require_confirm(&mut self, id: &str) -> Step {
        let rules = vec![values::rule(self.rng)];
        let asked = ToolCall { suggested_rules: rules.clone(), ..bare_call(id) };
        let id = id.to_owned();
        // Another call in the list, of which this message knows nothing, is no hindrance.
        let mut tool_calls = vec![asked];
        if self.rng.bool() {
            tool_calls.insert(0, bare_call("x_elsewhere"));
        }
        step(RequireUserConfirm { tool_calls }).with_effect(move |content, _| {
            change_call(content, &id, |call| {
                call.state = ToolCallState::Asking;
                call.suggested_rules = rules;
            });
        })
    }

    fn confirm(&mut self, id: &str, confirmed: bool) -> Step {
        let edited = if self.rng.bool() { "{\"edited\":true}" } else { "" };
        let id = id.to_owned();
        step(confirm_result(&id, confirmed, edited)).with_effect(move |content, _| {
            change_call(content, &id, |call| {
                if confirmed && !edited.is_empty() {
                    edited.clone_into(&mut call.input);
                }
                call.state =
                    if confirmed { ToolCallState::Allowed } else { ToolCallState::Finished };
            });
        })
    }

    /// The result of a call executed outside, which no start has announced.
    fn external_result(&mut self, id: &str) -> Step {
        let result = ToolResult {
            output: values::payload(self.rng),
            rest: values::unknown_fields(self.rng),
            ..ToolResult::success(id, "")
        };
        let id = id.to_owned();
        let event = ExternalExecutionResult { execution_results: vec![result.clone()] };
        step(event).with_effect(move |content, at| {
            let (created_at, finished_at) = (at.to_owned(), Some(at.to_owned()));
            content.push(ToolResult { created_at, finished_at, ..result }.into());
            change_call(content, &id, |call| call.state = ToolCallState::Finished);
        })
    }

    fn result(&mut self, id: &str, state: ToolResultState, external: bool) -> Vec<Step> {
        let (call_id, key) = (Text::from(id.to_owned()), id.to_owned());
        let begin =
            ToolResultStart { tool_call_id: call_id.clone(), tool_call_name: "tool".into() };
        let result =
            ToolResult { id: id.to_owned(), name: "tool".to_owned(), ..ToolResult::default() };
        let mut steps = vec![step(begin).with_effect(move |content, at| {
            content.push(ToolResult { created_at: at.to_owned(), ..result }.into());
        })];
        if external {
            steps.push(require_external(id));
            let event = ExternalExecutionResult {
                execution_results: vec![ToolResult::success(id, "left to the deltas")],
            };
            let key = key.clone();
            steps.push(step(event).with_effect(move |content, _| {
                change_call(content, &key, |call| call.state = ToolCallState::Finished);
            }));
        }
        for _ in 0..self.rng.usize(..4) {
            steps.extend(if self.rng.bool() { self.text_part(id) } else { self.data_part(id) });
        }
        let mut end = step(ToolResultEnd { tool_call_id: call_id, state: state.clone() });
        if self.rng.bool() {
            end.metadata.insert("took", self.rng.u8(..));
        }
        let metadata = end.metadata.clone();
        steps.push(end.with_effect(move |content, at| {
            change_result(content, &key, |result| {
                result.state = state;
                result.metadata = metadata;
                result.finished_at = Some(at.to_owned());
            });
            change_call(content, &key, |call| call.state = ToolCallState::Finished);
        }));
        steps
    }

    fn text_part(&mut self, id: &str) -> Vec<Step> {
        let (mut pieces, _) = self.text_pieces();
        pieces.push(text(self.rng));
        let steps = pieces.into_iter().map(|delta| {
            let (key, tool_call_id) = (id.to_owned(), Text::from(id.to_owned()));
            let event = ToolResultTextDelta { tool_call_id, delta: delta.clone().into() };
            step(event).with_effect(move |content, at| {
                change_result(content, &key, |result| {
                    let Payload::Parts(parts) = &mut result.output else { return };
                    if let Some(Part::Text(block)) = parts.last_mut() {
                        block.text.push_str(&delta);
                        return;
                    }
                    parts.push(Part::Text(TextBlock {
                        text: delta,
                        id: format!("{key}-{}", parts.len()),
                        created_at: at.to_owned(),
                        ..TextBlock::default()
                    }));
                });
            })
        });
        steps.collect()
    }

    fn data_part(&mut self, id: &str) -> Vec<Step> {
        let (chunks, source) = self.data_chunks();
        let (block_id, key) = (self.id(), id.to_owned());
        let mut block = Some(DataBlock { id: block_id.clone(), ..DataBlock::from_source(source) });
        let steps = chunks.into_iter().map(|chunk| {
            let event = ToolResultDataDelta {
                tool_call_id: key.clone().into(),
                block_id: block_id.clone().into(),
                media_type: Some("image/png".to_owned()),
                chunk,
            };
            let (key, block) = (key.clone(), block.take());
            step(event).with_effect(move |content, at| {
                change_result(content, &key, |result| {
                    if let (Payload::Parts(parts), Some(block)) = (&mut result.output, block) {
                        parts.push(Part::Data(DataBlock { created_at: at.to_owned(), ..block }));
                    }
                });
            })
        });
        steps.collect()
    }

    /// Blocks of a model call that broke off, which the end of the call takes out again.
    fn discarded_script(&mut self) -> Option<(String, Vec<Step>)> {
        if !one_in(self.rng, 5) {
            return None;
        }
        let id = self.id();
        let block_id = Text::from(id.clone());
        let steps = vec![
            step(TextBlockStart { block_id: block_id.clone() }),
            step(TextBlockDelta { block_id, delta: text(self.rng).into() }),
        ];
        Some((id, steps))
    }

    /// A text, and the deltas that it comes in.
    fn text_pieces(&mut self) -> (Vec<String>, String) {
        let pieces: Vec<String> = (0..self.rng.usize(..5)).map(|_| text(self.rng)).collect();
        let whole = pieces.concat();
        (pieces, whole)
    }

    /// Bytes cut anywhere, padded or not, or a URL; and the source that they become.
    fn data_chunks(&mut self) -> (Vec<Chunk<'static>>, Source) {
        if one_in(self.rng, 5) {
            let url = "https://example.com/a.png";
            let source = DataBlock::url(url, "image/png").source;
            return (vec![Chunk::Url(url.into())], source);
        }
        let mut bytes = Vec::new();
        let mut stream = String::new();
        let runs = self.rng.usize(1..4);
        for run in 1..=runs {
            let more: Vec<u8> = (0..self.rng.usize(..12)).map(|_| self.rng.u8(..)).collect();
            let mut encoded = STANDARD.encode(&more);
            // Only the last run may go without its padding: it would run into the next one.
            if run == runs && self.rng.bool() {
                encoded.truncate(encoded.trim_end_matches('=').len());
            }
            stream.push_str(&encoded);
            bytes.extend(more);
        }
        let mut chunks = Vec::new();
        let mut rest = stream.as_str();
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(self.rng.usize(1..=rest.len().min(7)));
            chunks.push(Chunk::Data(chunk.to_owned().into()));
            rest = more;
        }
        if chunks.is_empty() || one_in(self.rng, 5) {
            chunks.push(Chunk::Data("".into()));
        }
        (chunks, DataBlock::bytes(bytes, "image/png").source)
    }
}

fn bare_call(id: &str) -> ToolCall {
    ToolCall::new(id, "tool", "")
}

fn confirm_result(id: &str, confirmed: bool, input: &str) -> UserConfirmResult {
    let tool_call = ToolCall::new(id, "tool", input);
    UserConfirmResult {
        confirm_results: vec![ConfirmResult { confirmed, tool_call, ..ConfirmResult::default() }],
    }
}

fn require_external(id: &str) -> Step {
    let key = id.to_owned();
    step(RequireExternalExecution { tool_calls: vec![bare_call(id)] }).with_effect(
        move |content, _| {
            change_call(content, &key, |call| call.state = ToolCallState::Submitted);
        },
    )
}

/// Marks a step that comes too late to change anything.
fn late(step: Step) -> Step {
    step
}

fn change_block(content: &mut [ContentBlock], id: &str, change: impl FnOnce(&mut ContentBlock)) {
    if let Some(block) = content.iter_mut().find(|block| block.id() == id) {
        change(block);
    }
}

fn change_call(content: &mut [ContentBlock], id: &str, change: impl FnOnce(&mut ToolCall)) {
    let call = content.iter_mut().find_map(|block| match block {
        ContentBlock::ToolCall(call) if call.id == id => Some(call),
        _ => None,
    });
    if let Some(call) = call {
        change(call);
    }
}

fn change_result(content: &mut [ContentBlock], id: &str, change: impl FnOnce(&mut ToolResult)) {
    let result = content.iter_mut().find_map(|block| match block {
        ContentBlock::ToolResult(result) if result.id == id => Some(result),
        _ => None,
    });
    if let Some(result) = result {
        change(result);
    }
}
