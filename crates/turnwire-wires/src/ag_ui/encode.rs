//! The stream out: our events as runs of theirs.
//!
//! One reply is one run, until it has to wait for somebody: then the run is finished, and the rest
//! of the reply is another. Within a run everything that is opened is closed before its end.

use super::frame::{Frame, GONE, Mark};
use super::message::{
    Detail, Place, activity, content, has_own_id, mark, result_id, result_metadata, shown,
    shown_block,
};
use super::shown::Family;
use super::turn::{Kind, Open, Pending, Run, Step, Turn, hash};
use crate::stream::{Encode, Encoding, Frames};
use std::collections::{HashMap, HashSet};
use turnwire_core::event::{
    ConfirmResult, DataBlockStart, ModelCallEnd, ReplyEnd, TextBlockEnd, ThinkingBlockEnd,
};
use turnwire_core::{ContentBlock, Event, EventKind, Fields, Json, Msg, ToolCall, ToolResult};

/// The state of a stream on its way out.
pub(super) struct Encoder {
    /// What the caller calls the thread, and the run that this is for.
    pub(super) session_id: Option<String>,
    pub(super) run_id: Option<String>,
    /// Whether some run has that name by now.
    pub(super) named: bool,
    pub(super) run: Run,
    pub(super) turn: Turn,
    /// Messages that the client may not have, for the next start of a run.
    pub(super) before: Vec<Fields>,
    /// What came between two runs and belongs into neither, for the next one.
    pub(super) aside: Frames,
    /// Whether the next run begins with a client that has to forget everything.
    pub(super) is_anew: bool,
    /// Whether a client that comes in has to forget what it has, to get it in order.
    pub(super) forget: bool,
}

impl Encoder {
    pub(super) fn new(encoding: &Encoding) -> Self {
        Self {
            session_id: encoding.session_id.clone(),
            run_id: encoding.run_id.clone(),
            named: false,
            run: Run::Idle,
            turn: Turn::default(),
            before: Vec::new(),
            aside: Frames::default(),
            is_anew: false,
            forget: encoding.forget,
        }
    }
}

impl Encode for Encoder {
    fn event(&mut self, event: &Event<'_>, out: &mut Frames) {
        use EventKind as K;
        match &event.kind {
            K::Message(message) => {
                if !event.is_from_sub_agent() {
                    self.before.extend(shown(&message.message));
                }
            }
            K::Reset(_) => {
                self.start_anew(out);
                self.beside(event, out);
            }
            K::Custom(_)
            | K::Supersede(_)
            | K::UserInterrupt(_)
            | K::ExceedMaxIters(_)
            | K::RequestStop(_)
            | K::AllToolsDenied(_)
            | K::SubagentExposed(_)
            | K::Unknown(_) => self.beside(event, out),
            _ => {
                if self.is_of_turn(event, out) {
                    self.part(event, out);
                    if self.run == Run::Open && self.turn.is_quiet() {
                        self.finish_waiting(out);
                    }
                }
            }
        }
    }

    fn end(&mut self, out: &mut Frames) {
        self.break_off(out);
        // Whatever comes now is the answer to another request, which has the name for it.
        if self.run_id.is_some() {
            self.named = false;
            self.turn.runs = 0;
        }
    }

    fn resume(&mut self, messages: &[Msg], out: &mut Frames) {
        self.resume_run(messages, out);
    }
}

impl Encoder {
    /// Begins another turn where the event is another reply's; false where its turn is over.
    fn is_of_turn(&mut self, event: &Event<'_>, out: &mut Frames) -> bool {
        let is_other = !event.is_from_sub_agent()
            && event.reply_id != self.turn.reply
            && !event.reply_id.is_empty();
        if is_other {
            if !self.turn.reply.is_empty() {
                self.break_off(out);
                // A client keeps the messages of earlier turns: their ids stay taken.
                self.turn = Turn { shown: self.turn.shown.next(), ..Turn::default() };
                self.run = Run::Idle;
            }
            self.turn.reply = event.reply_id.to_string();
        }
        !self.turn.ended
    }

    /// An event that is a part of a reply of this turn.
    fn part(&mut self, event: &Event<'_>, out: &mut Frames) {
        use EventKind as K;
        self.turn.awaits = false;
        match &event.kind {
            K::TextBlockDelta(delta) => {
                self.delta(Kind::Text, &delta.block_id, &delta.delta, event, out);
            }
            K::ThinkingBlockDelta(delta) => {
                self.delta(Kind::Thinking, &delta.block_id, &delta.delta, event, out);
            }
            K::ToolCallDelta(delta) => {
                self.delta(Kind::Call, &delta.tool_call_id, &delta.delta, event, out);
            }
            K::ReplyStart(start) => {
                let reply = self.turn.reply_of(event);
                reply.name.get_or_insert_with(|| start.name.clone());
                if !event.is_from_sub_agent() && self.turn.thread.is_empty() {
                    self.turn.thread.clone_from(&start.session_id);
                }
                // While somebody is waited for, nothing goes on.
                if self.run == Run::Idle || self.turn.pending.is_empty() {
                    self.open_run(event, out);
                }
            }
            K::RequireUserConfirm(ask) => self.ask(&ask.tool_calls, true, event, out),
            K::RequireExternalExecution(ask) => self.ask(&ask.tool_calls, false, event, out),
            K::UserConfirmResult(answer) => self.answered(&answer.confirm_results, event, out),
            K::ExternalExecutionResult(answer) => {
                self.executed(&answer.execution_results, event, out);
            }
            K::ReplyEnd(end) => self.reply_end(end, event, out),
            K::ToolResultTextDelta(delta) => self.result_goes_on(&delta.tool_call_id, event),
            K::ToolResultDataDelta(delta) => self.result_goes_on(&delta.tool_call_id, event),
            K::DataBlockDelta(delta) => {
                if let Some((_, block)) = self.turn.data.get_mut(&*delta.block_id) {
                    block.append_event_tolerant(event);
                }
            }
            K::ToolResultStart(start) => self.result_start(&start.tool_call_id, event, out),
            // It was closed with its run.
            K::TextBlockEnd(end) if self.run != Run::Open && end.text.is_none() => {}
            K::ToolCallEnd(_) if self.run != Run::Open => {}
            _ => {
                self.open_run(event, out);
                self.in_run(event, out);
            }
        }
    }

    /// An event that shows in a run.
    fn in_run(&mut self, event: &Event<'_>, out: &mut Frames) {
        use EventKind as K;
        match &event.kind {
            K::ModelCallStart(start) => self.step_start(&start.model_name, event, out),
            K::ModelCallEnd(end) => self.step_end(end, event, out),
            K::TextBlockStart(start) => self.start(Kind::Text, &start.block_id, "", event, out),
            K::TextBlockEnd(end) => self.text_end(end, event, out),
            K::ThinkingBlockStart(start) => {
                self.start(Kind::Thinking, &start.block_id, "", event, out);
            }
            K::ThinkingBlockEnd(end) => self.thinking_end(end, out),
            K::ToolCallStart(start) => {
                self.start(Kind::Call, &start.tool_call_id, &start.tool_call_name, event, out);
            }
            K::ToolCallEnd(end) => self.close(Kind::Call, &end.tool_call_id, out),
            K::DataBlockStart(start) => self.data_start(start, event, out),
            K::DataBlockEnd(end) => {
                self.data_end(&end.block_id, event, out);
            }
            K::Hint(_) => {
                let mut folded = Msg::reply(event.reply_id.to_string(), "");
                folded.append_event_tolerant(event);
                for block in folded.content() {
                    self.whole(block, event, out);
                }
            }
            K::Block(whole) => self.whole(&whole.block, event, out),
            K::ToolResultEnd(end) => {
                if let Some(mut result) = self.turn.results.remove(&*end.tool_call_id) {
                    result.append_event_tolerant(event);
                    if let Some(result) = result.first::<ToolResult>() {
                        self.result(result, event, out);
                    }
                }
            }
            _ => {}
        }
    }

    fn result_start(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if self.turn.done.contains(id) || self.turn.results.contains_key(id) {
            return;
        }
        let mut result = Msg::reply(event.reply_id.to_string(), "");
        result.append_event_tolerant(event);
        self.turn.results.insert(id.to_owned(), result);
        self.turn.running.insert(id.to_owned());
        // Whatever was to be decided is.
        self.turn.pending.retain(|pending| !(pending.confirm && pending.call == id));
        if self.run == Run::Idle || self.turn.pending.is_empty() {
            self.open_run(event, out);
        }
    }

    fn result_goes_on(&mut self, call: &str, event: &Event<'_>) {
        if let Some(result) = self.turn.results.get_mut(call) {
            result.append_event_tolerant(event);
        }
    }

    /// A text, a reasoning or a call begins.
    fn start(&mut self, kind: Kind, id: &str, name: &str, event: &Event<'_>, out: &mut Frames) {
        let family = kind.family();
        if self.turn.shown.has(family, id) {
            return;
        }
        self.turn.shown.add(family, id, id, &event.reply_id, event.is_from_sub_agent());
        if kind == Kind::Call {
            self.turn.call(id, name, &event.reply_id);
        }
        self.open(kind, id, event, out);
    }

    /// Opens a message for a block, under the id that the client knows it by.
    fn open(&mut self, kind: Kind, id: &str, event: &Event<'_>, out: &mut Frames) {
        let known = self.turn.shown.id_of(kind.family(), id).unwrap_or(id);
        let open = Open {
            at: self.turn.count,
            id: (known != id).then(|| known.to_owned()),
            reply: event.reply_id.to_string(),
            sub: event.is_from_sub_agent(),
            sent: false,
        };
        self.turn.count += 1;
        self.write_start(kind, id, &open, out);
        self.turn.open(kind).insert(id.to_owned(), open);
    }

    pub(super) fn write_start(&self, kind: Kind, id: &str, open: &Open, out: &mut Frames) {
        let message_id = open.id.as_deref().unwrap_or(id);
        let subagent_run_id = open.sub.then_some(&*open.reply);
        let metadata = Mark::of(&open.reply);
        match kind {
            Kind::Text => {
                let name = self.turn.name_of(&open.reply);
                let role = "assistant";
                let frame =
                    Frame::TextMessageStart { message_id, role, name, subagent_run_id, metadata };
                out.push("", &frame);
            }
            Kind::Thinking => {
                out.push("", &Frame::ReasoningStart { message_id, subagent_run_id });
                let role = "reasoning";
                let frame =
                    Frame::ReasoningMessageStart { message_id, role, subagent_run_id, metadata };
                out.push("", &frame);
            }
            Kind::Call => {
                let tool_call_name = self.turn.calls.get(id).map_or("", |call| &call.name);
                let frame = Frame::ToolCallStart {
                    tool_call_id: id,
                    tool_call_name,
                    parent_message_id: open.id.as_deref(),
                    subagent_run_id,
                    metadata,
                };
                out.push("", &frame);
            }
        }
    }

    fn delta(&mut self, kind: Kind, id: &str, delta: &str, event: &Event<'_>, out: &mut Frames) {
        if delta.is_empty() {
            return;
        }
        if self.run != Run::Open || !self.turn.open(kind).contains_key(id) {
            // It was closed with the run before this one, or its start was never seen.
            let family = kind.family();
            if self.turn.shown.is_gone(family, id) {
                return;
            }
            self.open_run(event, out);
            if !self.turn.shown.has(family, id) {
                self.turn.shown.add(family, id, id, &event.reply_id, event.is_from_sub_agent());
            }
            if kind == Kind::Call {
                self.turn.call(id, "", &event.reply_id);
            }
            self.open(kind, id, event, out);
        }
        if kind == Kind::Call
            && let Some(call) = self.turn.calls.get_mut(id)
        {
            call.input = hash(call.input, delta);
        }
        let Some(open) = self.turn.open(kind).get_mut(id) else { return };
        if !open.sent {
            open.sent = true;
            self.turn.shown.fill(kind.family(), id);
        }
        let Some(open) = self.turn.open(kind).get(id) else { return };
        let message_id = open.id.as_deref().unwrap_or(id);
        match kind {
            Kind::Text => out.push("", &Frame::TextMessageContent { message_id, delta }),
            Kind::Thinking => out.push("", &Frame::ReasoningMessageContent { message_id, delta }),
            Kind::Call => out.push("", &Frame::ToolCallArgs { tool_call_id: id, delta }),
        }
    }

    /// Closes a block's message, if it is open.
    fn close(&mut self, kind: Kind, id: &str, out: &mut Frames) {
        if let Some(open) = self.turn.open(kind).remove(id) {
            write_end(kind, id, &open, out);
        }
    }

    fn text_end(&mut self, end: &TextBlockEnd<'_>, event: &Event<'_>, out: &mut Frames) {
        let id = &*end.block_id;
        let Some(text) = end.text.as_deref() else { return self.close(Kind::Text, id, out) };
        let sent = self.turn.shown.is_filled(Family::Text, id);
        self.close(Kind::Text, id, out);
        if self.turn.shown.id_of(Family::Text, id).is_none() {
            return;
        }
        // What a client has it cannot be told to forget, only to put something else in its place.
        if sent {
            self.replace(Family::Text, id, event, out);
        }
        self.open(Kind::Text, id, event, out);
        if !text.is_empty() {
            self.delta(Kind::Text, id, text, event, out);
        }
        self.close(Kind::Text, id, out);
    }

    /// Takes a block's message back, and gives the block another id for what comes instead.
    fn replace(&mut self, family: Family, id: &str, event: &Event<'_>, out: &mut Frames) {
        let known = self.turn.shown.id_of(family, id).unwrap_or(id).to_owned();
        self.discard(family, id, &known, event, out);
        let next = format!("{known}-2");
        self.turn.shown.add(family, id, &next, &event.reply_id, event.is_from_sub_agent());
    }

    /// Takes a block's message back.
    fn discard(
        &mut self,
        family: Family,
        block: &str,
        id: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        self.turn.shown.discard(family, block);
        let frame = Frame::ActivitySnapshot {
            message_id: id,
            activity_type: GONE,
            content: Json::from(serde_json::Map::new()),
            replace: true,
            subagent_run_id: event.is_from_sub_agent().then_some(&*event.reply_id),
            metadata: Mark::of(&event.reply_id),
        };
        out.push("", &frame);
    }

    fn thinking_end(&mut self, end: &ThinkingBlockEnd<'_>, out: &mut Frames) {
        let id = &*end.block_id;
        let known = self.turn.shown.id_of(Family::Thinking, id);
        if let (Some(entity_id), Ok(Some(signature))) =
            (known, end.extra.get::<String>("signature"))
        {
            let (subtype, encrypted_value) = ("message", &*signature);
            let frame = Frame::ReasoningEncryptedValue { subtype, entity_id, encrypted_value };
            out.push("", &frame);
        }
        self.close(Kind::Thinking, id, out);
    }

    fn data_start(&mut self, start: &DataBlockStart<'_>, event: &Event<'_>, out: &mut Frames) {
        let id = &*start.block_id;
        if self.turn.shown.has(Family::Activity, id) {
            return;
        }
        let mut block = Msg::reply(event.reply_id.to_string(), "");
        block.append_event_tolerant(event);
        let sub = event.is_from_sub_agent();
        self.turn.shown.add(Family::Activity, id, id, &event.reply_id, sub);
        self.turn.data.insert(id.to_owned(), (sub, block));
        // It takes its place in the list now, and gets its content when that is whole.
        self.show_data(id, out);
    }

    /// A data block is whole, or as whole as it gets.
    fn data_end(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if let Some((_, block)) = self.turn.data.get_mut(id) {
            block.append_event_tolerant(event);
        }
        self.show_data(id, out);
        self.turn.data.remove(id);
    }

    pub(super) fn show_data(&self, id: &str, out: &mut Frames) {
        if let Some((sub, msg)) = self.turn.data.get(id)
            && let Some(block) = msg.content().first()
        {
            let id = self.turn.shown.id_of(Family::Activity, id).unwrap_or(id);
            show_activity(id, block, msg.id(), *sub, out);
        }
    }

    /// A block that comes whole.
    fn whole(&mut self, block: &ContentBlock, event: &Event<'_>, out: &mut Frames) {
        let reply = self.turn.reply_of(event);
        let id = match block {
            ContentBlock::ToolResult(result) => {
                return self.result(result, event, out);
            }
            block => reply.nameless.id_of(block, &event.reply_id),
        };
        if self.turn.shown.has(Family::of(block), &id) {
            return;
        }
        let (kind, name, text) = match block {
            ContentBlock::Text(block) => (Kind::Text, "", &block.text),
            ContentBlock::Thinking(block) => (Kind::Thinking, "", &block.thinking),
            ContentBlock::ToolCall(call) => (Kind::Call, &*call.name, &call.input),
            other => {
                let sub = event.is_from_sub_agent();
                self.turn.shown.add(Family::Activity, &id, &id, &event.reply_id, sub);
                let known = self.turn.shown.id_of(Family::Activity, &id).unwrap_or(&id);
                return show_activity(known, other, &event.reply_id, sub, out);
            }
        };
        self.start(kind, &id, name, event, out);
        self.delta(kind, &id, text, event, out);
        if let ContentBlock::Thinking(block) = block {
            let (block_id, extra) = (id.as_str().into(), block.rest.clone());
            return self.thinking_end(&ThinkingBlockEnd { block_id, extra }, out);
        }
        self.close(kind, &id, out);
    }

    /// A result, in one piece.
    fn result(&mut self, result: &ToolResult, event: &Event<'_>, out: &mut Frames) {
        self.turn.settle(&result.id);
        if !self.turn.done.insert(result.id.clone()) {
            return;
        }
        let mut message_id = result_id(result);
        if !has_own_id(result) {
            message_id = self.turn.shown.free(message_id, &event.reply_id);
        }
        let message_id = &*message_id;
        let sub = event.is_from_sub_agent();
        self.turn.shown.result(&result.id, message_id, &event.reply_id, sub);
        let metadata = &result_metadata(result, mark(&event.reply_id));
        let frame = Frame::ToolCallResult {
            message_id,
            tool_call_id: &result.id,
            content: content(&result.output, Detail::Shown),
            role: "tool",
            subagent_run_id: sub.then_some(&*event.reply_id),
            metadata,
        };
        out.push("", &frame);
    }

    /// Calls that wait for somebody: the run is finished with all that are waited for.
    fn ask(&mut self, calls: &[ToolCall], confirm: bool, event: &Event<'_>, out: &mut Frames) {
        let mut asked = false;
        let waits = self.turn.pending.iter().map(|pending| (pending.call.clone(), pending.confirm));
        let mut waits: HashMap<String, bool> = waits.collect();
        for call in calls {
            let before = waits.get(&call.id).copied();
            if self.turn.done.contains(&call.id) || before == Some(confirm) {
                continue;
            }
            asked = true;
            waits.insert(call.id.clone(), confirm);
            if before.is_some() {
                self.turn.pending.retain(|pending| pending.call != call.id);
            }
            let known = self.turn.calls.get(&call.id).map(|call| call.name.clone());
            self.turn.pending.push(Pending {
                call: call.id.clone(),
                name: known.unwrap_or_else(|| call.name.clone()),
                confirm,
                rules: call.suggested_rules.clone(),
                reply: event.reply_id.to_string(),
                sub: event.is_from_sub_agent(),
                expires_at: event.metadata.get("expires_at").ok().flatten(),
            });
        }
        if asked {
            self.open_run(event, out);
            self.finish_waiting(out);
        }
    }

    /// What a person said.
    fn answered(&mut self, answers: &[ConfirmResult], event: &Event<'_>, out: &mut Frames) {
        let asks = self.turn.pending.iter().filter(|pending| pending.confirm);
        let mut asks: HashSet<String> = asks.map(|pending| pending.call.clone()).collect();
        let answered: HashSet<&str> =
            answers.iter().map(|answer| answer.tool_call.id.as_str()).collect();
        self.turn.pending.retain(|ask| !ask.confirm || !answered.contains(ask.call.as_str()));
        for answer in answers {
            let id = answer.tool_call.id.as_str();
            let asked = asks.remove(id);
            let unknown = !self.turn.calls.contains_key(id) && !self.turn.done.contains(id);
            if !asked && !unknown {
                continue;
            }
            self.turn.running.insert(id.to_owned());
            self.open_run(event, out);
            if answer.confirmed {
                self.edited(&answer.tool_call, event, out);
            }
        }
    }

    /// A call that a person changed: the client gets it anew.
    fn edited(&mut self, call: &ToolCall, event: &Event<'_>, out: &mut Frames) {
        let known = self.turn.calls.get(&call.id);
        let same = known.is_some_and(|known| known.input == hash(0, &call.input));
        if call.input.is_empty() || same {
            return;
        }
        self.turn.call(&call.id, &call.name, &event.reply_id);
        self.replace(Family::Call, &call.id, event, out);
        if let Some(known) = self.turn.calls.get_mut(&call.id) {
            known.input = 0;
        }
        self.open(Kind::Call, &call.id, event, out);
        self.delta(Kind::Call, &call.id, &call.input, event, out);
        self.close(Kind::Call, &call.id, out);
    }

    /// What came of calls that were executed elsewhere.
    fn executed(&mut self, results: &[ToolResult], event: &Event<'_>, out: &mut Frames) {
        let sub = event.is_from_sub_agent();
        let mut told = Vec::new();
        for result in results {
            self.turn.pending.retain(|pending| pending.call != result.id);
            let goes_on = self.turn.results.contains_key(&result.id);
            if self.turn.done.contains(&result.id) || (goes_on && !has_own_id(result)) {
                continue;
            }
            if !has_own_id(result) {
                told.push(result);
                continue;
            }
            // The client that executed it has the message already, and nobody may get it twice:
            // only the start of a run tells messages by their ids.
            let id = result_id(result);
            if self.run == Run::Open {
                told.push(result);
                continue;
            }
            let place = Place { id: &id, reply: &event.reply_id, name: "", sub: None };
            let place = Place { sub: sub.then_some(&*event.reply_id), ..place };
            let block = ContentBlock::from(result.clone());
            self.before.push(shown_block(&block, place));
            self.turn.shown.result_behind(&result.id, &id, &event.reply_id, sub);
            self.turn.settle(&result.id);
            self.turn.done.insert(result.id.clone());
        }
        self.open_run(event, out);
        for result in told {
            self.result(result, event, out);
        }
    }

    fn step_start(&mut self, model: &str, event: &Event<'_>, out: &mut Frames) {
        let reply = self.turn.reply_of(event);
        model.clone_into(&mut reply.model);
        let base = if model.is_empty() { "model" } else { model };
        let mut name = base.to_owned();
        let mut count = reply.steps.len().max(1);
        while !reply.steps.insert(name.clone()) {
            count += 1;
            name = format!("{base} {count}");
        }
        let step = Step { reply: event.reply_id.to_string(), name, sub: event.is_from_sub_agent() };
        step.write_start(out);
        self.turn.steps.push(step);
    }

    fn step_end(&mut self, end: &ModelCallEnd, event: &Event<'_>, out: &mut Frames) {
        for id in &end.discard {
            for kind in Kind::ALL {
                self.close(kind, id, out);
            }
            self.turn.data.remove(id);
            for family in Family::ALL {
                if let Some(known) = self.turn.shown.id_of(family, id).map(str::to_owned) {
                    self.discard(family, id, &known, event, out);
                }
            }
        }
        let last = self.turn.steps.iter().rposition(|step| step.reply == event.reply_id);
        if let Some(at) = last {
            self.turn.end_step(at, out);
        }
        let model = self.turn.reply_of(event).model.clone();
        self.turn.count_tokens(model, end.usage);
    }

    fn reply_end(&mut self, end: &ReplyEnd, event: &Event<'_>, out: &mut Frames) {
        self.open_run(event, out);
        let ids: Vec<String> = self.turn.open_data(!event.is_from_sub_agent(), &event.reply_id);
        for id in ids {
            self.data_end(&id, event, out);
        }
        if event.is_from_sub_agent() {
            self.finish_sub(end, event, out);
        } else {
            self.turn.pending.clear();
            self.finish_reply(
                Some(&end.finished_reason),
                end.error.as_ref(),
                end.structured_output.as_ref(),
                out,
            );
        }
    }
}

/// Closes the message of a block.
pub(super) fn write_end(kind: Kind, id: &str, open: &Open, out: &mut Frames) {
    let message_id = open.id.as_deref().unwrap_or(id);
    match kind {
        Kind::Text => out.push("", &Frame::TextMessageEnd { message_id }),
        Kind::Thinking => {
            out.push("", &Frame::ReasoningMessageEnd { message_id });
            out.push("", &Frame::ReasoningEnd { message_id });
        }
        Kind::Call => out.push("", &Frame::ToolCallEnd { tool_call_id: id }),
    }
}

fn show_activity(id: &str, block: &ContentBlock, reply: &str, sub: bool, out: &mut Frames) {
    let (word, content) = activity(block);
    let frame = Frame::ActivitySnapshot {
        message_id: id,
        activity_type: &word,
        content,
        replace: true,
        subagent_run_id: sub.then_some(reply),
        metadata: Mark::of(reply),
    };
    out.push("", &frame);
}
