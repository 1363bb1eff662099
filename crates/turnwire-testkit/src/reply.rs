//! Random well-formed replies, with the message that they must fold into.
//!
//! The message is built from the plan, not by folding: each step says how it changes the message.

mod blocks;
mod tools;

use crate::values::{self, text};
use crate::{one_in, pick};
use fastrand::Rng;
use turnwire_core::event::{
    Custom, ExceedMaxIters, ModelCallEnd, ModelCallStart, ReplyEnd, ReplyStart, TokenCounts,
    UserInterrupt,
};
use turnwire_core::{
    ContentBlock, ErrorType, Event, EventKind, Fields, FinishedReason, Msg, ReplyError, Role, Usage,
};

/// The events of a reply, and the message that they must fold into.
#[derive(Debug, Clone)]
pub struct GeneratedReply {
    /// The events in order, with ids and timestamps, without seqs.
    pub events: Vec<Event<'static>>,
    /// The folded message.
    pub message: Msg,
}

/// Changes the blocks of the message; gets the event's timestamp.
type Effect = Box<dyn FnOnce(&mut Vec<ContentBlock>, &str)>;

/// An event, and its effect on the message.
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

/// A random reply with this id.
pub fn random_reply(rng: &mut Rng, id: &str) -> GeneratedReply {
    let mut plan = BlockScripts { rng, blocks: 0, started: false };
    let rounds = plan.rng.usize(..4);
    let mut maker = ReplyBuilder::new(id, plan.rng.u32(..));
    let name = text(plan.rng);
    if !one_in(plan.rng, 8) {
        let start =
            ReplyStart { session_id: "s".to_owned(), name: name.clone(), ..ReplyStart::default() };
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

/// Turns steps into events, and applies their effects to the message.
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

    /// One model call and its tools. Blocks start in order, and may be open at the same time.
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
                structured_output: one_in(rng, 3).then(|| values::object(rng)),
                ..ReplyEnd::default()
            };
            if reason == FinishedReason::Error {
                let types = [ErrorType::Upstream, ErrorType::RateLimit, ErrorType::Setup];
                let error = ReplyError::new(pick(rng, &types).clone(), text(rng));
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
        #[expect(clippy::expect_used, reason = "an assistant's message may contain all blocks")]
        let message = builder
            .name(self.name)
            .created_at(created_at)
            .content(self.content)
            .build()
            .expect("an assistant's message may contain all blocks");
        GeneratedReply { events: self.events, message }
    }
}

/// Generates the steps of blocks and tool calls.
struct BlockScripts<'r> {
    rng: &'r mut Rng,
    blocks: u32,
    /// Whether the reply has a `REPLY_START`.
    started: bool,
}

impl BlockScripts<'_> {
    fn id(&mut self) -> String {
        self.blocks += 1;
        // Sometimes short, always unique.
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

    /// An event that changes no block.
    fn without_content(&mut self) -> Step {
        match self.rng.u8(..5) {
            0 => step(EventKind::Unknown("X_LATER_VERSION".into())),
            1 => step(Custom { name: "x".to_owned(), ..Custom::default() }),
            2 => step(UserInterrupt {}),
            // A resumed reply repeats its start; only the first one counts.
            3 if self.started => {
                step(ReplyStart { name: "x_again".to_owned(), ..ReplyStart::default() })
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
        // The fold never takes these over.
        extra.insert("type", "x_other");
        extra.insert("id", "x_other");
        extra
    }
}
