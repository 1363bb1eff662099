//! Writes our events as Java's: the fields that Java has, and a patch for the others.
//!
//! The patch of nearly every event is known without reading the output back. Where it is not ([`JavaEvent::is_complete`]),
//! [`event`](super::event) finds it by comparing.

mod json_shape;

use super::block::{call_to_java, confirm_to_java, result_to_java};
use super::delta::IdPatch;
use super::event::is_java_event;
use super::message::{Usage, is_generate_reason};
use super::open_replies::{OpenReplies, path_of};
use super::{KEPT_FIELD, carried_patch};
use crate::json::string_field;
use crate::stream::Frames;
use json_shape::{Data, JavaEvent, Patch, Value};
use turnwire_core::event::{Chunk, ConfirmResult, ModelCallEnd, ReplyEnd, ToolResultDataDelta};
use turnwire_core::{
    Event, EventKind, Fields, FinishedReason, Json, Payload, PermissionRule, ReplyError, ToolCall,
    ToolResult,
};

/// Writes an event with its patch. Returns false if its patch has to be found by comparing.
pub(super) fn write_event(event: &Event<'_>, track: &OpenReplies, out: &mut Frames) -> bool {
    let agent = event.agent.as_deref();
    let is_plain = !event.reply_id.is_empty()
        && event.metadata.raw(carried_patch::PATCH_KEY).is_none()
        && agent
            .is_none_or(|agent| agent.agent_path.is_some() || agent.parent_tool_call_id.is_some());
    let Some(ids) = IdPatch::of_event(event).filter(|_| is_plain) else { return false };
    if is_custom(&event.kind) {
        if ids.is_empty() {
            out.push("", &JavaEvent::custom(event));
        }
        return ids.is_empty();
    }
    let mut java = JavaEvent::with_ids(event, &ids, track);
    if !java.is_complete {
        return false;
    }
    let carried = &mut java.carried;
    carried.set_some(
        "parent_tool_call_id",
        agent.and_then(|agent| agent.parent_tool_call_id.as_deref()),
    );
    for (key, seq) in [("seq", event.seq), ("seq_from", event.seq_from)] {
        carried.set.extend(seq.map(|seq| (key, Value::Seq(seq))));
    }
    let rest = event.rest.iter().filter(|(key, _)| *key != KEPT_FIELD);
    carried.set.extend(rest.map(|(key, value)| (key, Value::Json(value))));
    carried.sort();
    out.push("", &java);
    true
}

/// Whether Java has it only as a custom event.
fn is_custom(kind: &EventKind<'_>) -> bool {
    matches!(kind, EventKind::UserInterrupt(_) | EventKind::Block(_) | EventKind::Unknown(_))
}

/// Our event as Java's, without a patch. Events that Java does not have are custom events.
pub(super) fn to_java(event: &Event<'_>, track: &OpenReplies) -> Fields {
    if !is_java_event(event) {
        as_custom(event)
    } else if matches!(event.kind, EventKind::Unknown(_)) {
        native_to_java(event)
    } else {
        JavaEvent::with_ids(event, &IdPatch::default(), track).into_fields()
    }
}

/// An event of Java's that we do not know, unchanged.
pub(super) fn native_to_java(event: &Event<'_>) -> Fields {
    let mut java = JavaEvent::new(event, event.kind.type_name());
    java.insert_known("replyId", &event.reply_id);
    let rest = event.rest.iter().filter(|(key, _)| *key != KEPT_FIELD);
    rest.for_each(|(key, value)| java.insert(key, Value::Json(value)));
    java.insert_some("source", path_of(event));
    java.into_fields()
}

/// An event that Java does not have, as a custom event.
pub(super) fn as_custom(event: &Event<'_>) -> Fields {
    JavaEvent::custom(event).into_fields()
}

impl<'e> JavaEvent<'e> {
    /// What all events have.
    fn new(event: &'e Event<'_>, word: &'e str) -> Self {
        let mut java = Self {
            java: Vec::with_capacity(10),
            metadata: Some(&event.metadata),
            carried: Patch::default(),
            is_complete: true,
        };
        java.insert_text("type", word);
        java.insert_known("id", &event.id);
        java.insert_known("createdAt", &event.created_at);
        java
    }

    /// A custom event: its name is the type in lower case, its value the whole event.
    fn custom(event: &'e Event<'_>) -> Self {
        let mut java = Self::new(event, "CUSTOM");
        java.insert("name", Value::Word(event.kind.type_name().to_lowercase()));
        java.insert("value", Value::Event(event));
        // The value contains it.
        java.metadata = None;
        java
    }

    /// Java's fields, with the ids that Java gave it, and the patch for the fields of its kind.
    fn with_ids(event: &'e Event<'_>, ids: &IdPatch<'_>, track: &'e OpenReplies) -> Self {
        let type_name = if let EventKind::ReplyStart(_) = &event.kind {
            "AGENT_START"
        } else if let EventKind::ReplyEnd(_) = &event.kind {
            "AGENT_END"
        } else {
            event.kind.type_name()
        };
        let mut java = Self::new(event, type_name);
        java.set_kind(event, ids, track);
        java.insert_some("source", path_of(event));
        java
    }

    /// Sets Java's fields, and the patch.
    #[expect(clippy::too_many_lines, reason = "an arm for each kind")]
    fn set_kind(&mut self, event: &'e Event<'_>, ids: &IdPatch<'_>, track: &'e OpenReplies) {
        let path = path_of(event);
        let open = track.find_reply(path);
        // The id of the event's step, from which the ids of its reply and its block follow.
        let own = ids.reply.as_deref().unwrap_or(&event.reply_id);
        let block_id = |id: &'e str| match ids.block.as_deref() {
            Some(raw) => {
                let is_ours = raw != id && track.block_id(path, own, raw) == id;
                (Value::Word(raw.to_owned()), is_ours)
            }
            None => (Value::Text(id), track.block_id(path, own, id) == id),
        };
        let tool_name = |call: &str| track.tool_name(path, call);
        let has_reply_id = !matches!(
            event.kind,
            EventKind::Custom(_)
                | EventKind::RequestStop(_)
                | EventKind::AllToolsDenied(_)
                | EventKind::SubagentExposed(_)
        );
        let starts_or_ends =
            matches!(event.kind, EventKind::ReplyStart(_) | EventKind::ReplyEnd(_));
        if has_reply_id {
            match &ids.reply {
                Some(own) => self.insert("replyId", Value::Word(own.clone().into_owned())),
                None => self.insert_known("replyId", &event.reply_id),
            }
        }
        self.is_complete &= if starts_or_ends || !has_reply_id {
            ids.is_empty()
        } else {
            track.outer_reply_id(path, own) == event.reply_id
        };
        let has_block_id = matches!(
            event.kind,
            EventKind::TextBlockStart(_)
                | EventKind::TextBlockDelta(_)
                | EventKind::TextBlockEnd(_)
                | EventKind::ThinkingBlockStart(_)
                | EventKind::ThinkingBlockDelta(_)
                | EventKind::ThinkingBlockEnd(_)
        );
        self.is_complete &= ids.block.is_none() || has_block_id;
        match &event.kind {
            EventKind::ReplyStart(start) => {
                self.insert_known("sessionId", &start.session_id);
                self.insert_known("name", &start.name);
                self.insert_text("role", start.role.as_str());
            }
            EventKind::ReplyEnd(end) => {
                let open = open.filter(|open| open.reply_id == event.reply_id);
                self.is_complete &= open.is_none_or(|open| open.agent_result.is_none());
                self.set_reply_end(end, open.map_or("", |open| &open.session_id));
            }
            EventKind::ModelCallStart(start) => {
                self.carried.set_known("model_name", &start.model_name);
            }
            EventKind::ModelCallEnd(end) => self.set_model_call_end(end),
            EventKind::ExceedMaxIters(exceed) => self.carried.set_known("name", &exceed.name),
            EventKind::TextBlockStart(start) => self.set_block_id(block_id(&start.block_id)),
            EventKind::TextBlockDelta(delta) => {
                self.set_block_id(block_id(&delta.block_id));
                self.insert_text("delta", &delta.delta);
            }
            EventKind::TextBlockEnd(end) => {
                self.set_block_id(block_id(&end.block_id));
                self.carried.set_some("text", end.text.as_deref());
                self.carried.set_fields("extra", &end.extra);
            }
            EventKind::ThinkingBlockStart(start) => self.set_block_id(block_id(&start.block_id)),
            EventKind::ThinkingBlockDelta(delta) => {
                self.set_block_id(block_id(&delta.block_id));
                self.insert_text("delta", &delta.delta);
            }
            EventKind::ThinkingBlockEnd(end) => {
                self.set_block_id(block_id(&end.block_id));
                self.carried.set_fields("extra", &end.extra);
            }
            EventKind::DataBlockStart(start) => {
                self.insert_text("blockId", &start.block_id);
                self.carried.set_some("media_type", start.media_type.as_deref());
                self.carried.set_some("name", start.name.as_deref());
            }
            EventKind::DataBlockDelta(delta) => {
                self.insert_text("blockId", &delta.block_id);
                self.carried.set_some("media_type", delta.media_type.as_deref());
                self.set_chunk(&delta.chunk);
            }
            EventKind::DataBlockEnd(end) => {
                self.insert_text("blockId", &end.block_id);
                self.carried.set_fields("extra", &end.extra);
            }
            EventKind::Hint(hint) => {
                self.insert_text("blockId", &hint.block_id);
                self.insert_some("hintSource", hint.source.as_deref());
                self.set_hint(&hint.hint);
            }
            EventKind::ToolCallStart(start) => {
                self.set_call(&start.tool_call_id, Some(&start.tool_call_name));
            }
            EventKind::ToolCallDelta(delta) => {
                self.set_call(&delta.tool_call_id, tool_name(&delta.tool_call_id));
                self.insert_text("delta", &delta.delta);
            }
            EventKind::ToolCallEnd(end) => {
                self.set_call(&end.tool_call_id, tool_name(&end.tool_call_id));
                self.carried.set_fields("extra", &end.extra);
            }
            EventKind::ToolResultStart(start) => {
                self.set_call(&start.tool_call_id, Some(&start.tool_call_name));
            }
            EventKind::ToolResultTextDelta(delta) => {
                self.set_call(&delta.tool_call_id, tool_name(&delta.tool_call_id));
                self.insert_text("delta", &delta.delta);
            }
            EventKind::ToolResultDataDelta(delta) => {
                self.set_call(&delta.tool_call_id, tool_name(&delta.tool_call_id));
                self.set_data(delta, string_field(&event.rest, "name"));
                self.is_complete &= event.rest.raw("name").is_none();
            }
            EventKind::ToolResultEnd(end) => {
                self.set_call(&end.tool_call_id, tool_name(&end.tool_call_id));
                let known = Some(end.state.as_str()).filter(|_| end.state.is_known());
                self.insert_text("state", known.unwrap_or(RUNNING));
                if known.is_none() {
                    self.carried.set("state", Value::Text(end.state.as_str()));
                }
            }
            EventKind::RequireUserConfirm(ask) => self.set_calls(&ask.tool_calls),
            EventKind::RequireExternalExecution(ask) => self.set_calls(&ask.tool_calls),
            EventKind::UserConfirmResult(answer) => {
                let answers = &answer.confirm_results;
                let java = answers.iter().map(confirm_to_java).collect();
                self.insert("confirmResults", Value::List(java));
                self.patch_list("confirm_results", answers.iter().map(answer_patch));
            }
            EventKind::ExternalExecutionResult(answer) => {
                let results = &answer.execution_results;
                let java = results.iter().map(result_to_java).collect();
                self.insert("toolResults", Value::List(java));
                self.patch_list("execution_results", results.iter().map(result_patch));
            }
            EventKind::RequestStop(stop) => {
                self.insert_some("reason", stop.reason.as_deref());
                let word = stop.generate_reason.as_deref();
                self.insert_some("generateReason", word.filter(|word| is_generate_reason(word)));
                self.is_complete = false;
            }
            EventKind::AllToolsDenied(denied) => {
                let calls = denied.denied_tool_calls.iter().map(call_to_java).collect();
                self.insert("deniedToolCalls", Value::List(calls));
                self.is_complete = false;
            }
            EventKind::SubagentExposed(exposed) => {
                self.insert_known("subagentId", &exposed.subagent_id);
                self.insert_known("agentId", &exposed.agent_id);
                self.insert_known("sessionId", &exposed.session_id);
                self.insert_some("label", exposed.label.as_deref());
                self.is_complete = false;
            }
            EventKind::Custom(custom) => {
                self.insert_text("name", &custom.name);
                self.set_custom(&custom.value.0, event, open.map(|open| &*open.reply_id));
            }
            // Written as custom events.
            EventKind::Message(_)
            | EventKind::Supersede(_)
            | EventKind::Reset(_)
            | EventKind::UserInterrupt(_)
            | EventKind::Block(_)
            | EventKind::Unknown(_) => self.is_complete = false,
        }
    }

    fn set_block_id(&mut self, (id, is_ours): (Value<'e>, bool)) {
        self.insert("blockId", id);
        self.is_complete &= is_ours;
    }

    fn patch_list(&mut self, key: &str, patches: impl Iterator<Item = Option<Patch<'e>>>) {
        self.is_complete &= self.carried.patch_list(key, patches).is_some();
    }

    /// Java requires an object. One that looks like an event of ours would be read as that event.
    fn set_custom(&mut self, value: &'e Json, event: &'e Event<'_>, reply_id: Option<&str>) {
        self.is_complete &= !value.text().contains(r#""type""#);
        if value.text().starts_with('{') {
            self.insert("value", Value::Json(value));
        } else {
            self.insert("value", Value::Nothing {});
            self.carried.set("value", Value::Json(value));
        }
        if reply_id != Some(&event.reply_id) {
            self.carried.set("reply_id", Value::Text(&event.reply_id));
        }
    }

    fn set_reply_end(&mut self, end: &'e ReplyEnd, session_id: &str) {
        if end.session_id != session_id {
            self.carried.set("session_id", Value::Text(&end.session_id));
        }
        self.set_ending(&end.finished_reason, end.error.as_ref());
        let output = end.structured_output.as_ref();
        self.carried.set.extend(output.map(|output| ("structured_output", Value::Json(output))));
        self.carried.set_fields("message_metadata", &end.message_metadata);
    }

    fn set_ending(&mut self, reason: &'e FinishedReason, error: Option<&'e ReplyError>) {
        if *reason != FinishedReason::default() {
            self.carried.set("finished_reason", Value::Text(reason.as_str()));
        }
        self.carried.set.extend(error.map(|error| ("error", Value::Failure(error))));
    }

    fn set_model_call_end(&mut self, end: &'e ModelCallEnd) {
        let usage = &end.usage;
        let (input, output, cached) =
            (usage.input_tokens, usage.output_tokens, usage.cache_input_tokens);
        self.insert("usage", Value::Usage(Usage::new(input, output, cached, None)));
        for (key, count) in
            [("input_tokens", input), ("output_tokens", output), ("cache_input_tokens", cached)]
        {
            // Java's numbers have 32 bits.
            if !(0..=i64::from(i32::MAX)).contains(&count) {
                self.carried.set(key, Value::Int(count));
            }
        }
        let made = usage.cache_creation_input_tokens;
        if made != 0 {
            self.carried.set("cache_creation_input_tokens", Value::Int(made));
        }
        self.set_ending(&end.finished_reason, end.error.as_ref());
        if !end.discard.is_empty() {
            self.carried.set("discard", Value::Texts(&end.discard));
        }
    }

    fn set_chunk(&mut self, chunk: &'e Chunk<'_>) {
        match chunk {
            Chunk::Data(data) => self.insert_text("delta", data),
            Chunk::Url(url) => {
                self.insert_text("delta", "");
                self.carried.set("data", Value::Null);
                self.carried.set("url", Value::Text(url));
            }
        }
    }

    fn set_hint(&mut self, hint: &'e Payload) {
        match hint {
            Payload::Text(text) => self.insert_text("hint", text),
            Payload::Parts(_) => {
                self.insert("hint", Value::Word(hint.text("\n")));
                self.carried.set("hint", Value::Payload(hint));
            }
        }
    }

    fn set_call(&mut self, call: &'e str, name: Option<&'e str>) {
        self.insert_text("toolCallId", call);
        self.insert_some("toolCallName", name);
    }

    fn set_data(&mut self, delta: &'e ToolResultDataDelta<'_>, name: Option<String>) {
        self.insert("data", Value::Data(Data { delta, name }));
        // Java's bytes always have a media type.
        if delta.media_type.is_none() && matches!(delta.chunk, Chunk::Data(_)) {
            self.carried.drop = Some("media_type");
        }
    }

    fn set_calls(&mut self, calls: &'e [ToolCall]) {
        self.insert("toolCalls", Value::List(calls.iter().map(call_to_java).collect()));
        self.patch_list("tool_calls", calls.iter().map(call_patch));
    }
}

const RUNNING: &str = "running";

fn call_patch(call: &ToolCall) -> Option<Patch<'_>> {
    // Java has metadata of its own, perhaps of another type.
    if call.rest.raw("metadata").is_some() {
        return None;
    }
    let mut patch = Patch::default();
    if !call.state.is_known() {
        patch.set("state", Value::Text(call.state.as_str()));
    }
    if !call.suggested_rules.is_empty() {
        patch.set("suggested_rules", Value::Rules(&call.suggested_rules));
    }
    patch.set_known("created_at", &call.created_at);
    patch.set_some("finished_at", call.finished_at.as_deref());
    patch.set_all(&call.rest);
    Some(patch)
}

fn answer_patch(answer: &ConfirmResult) -> Option<Patch<'_>> {
    let is_javas = |rule: &PermissionRule| rule.behavior.is_known() && rule.rest.is_empty();
    if !answer.rules.iter().flatten().all(is_javas) {
        return None;
    }
    let mut patch = Patch::default();
    patch.patch("tool_call", call_patch(&answer.tool_call)?);
    patch.set_all(&answer.rest);
    Some(patch)
}

fn result_patch(result: &ToolResult) -> Option<Patch<'_>> {
    // Java's output is a list, and its metadata has no null.
    let Payload::Text(_) = &result.output else { return None };
    if result.metadata.iter().any(|(_, value)| value.is_null()) {
        return None;
    }
    let mut patch = Patch::default();
    patch.set("output", Value::Payload(&result.output));
    if !result.state.is_known() {
        patch.set("state", Value::Text(result.state.as_str()));
    }
    patch.set_known("created_at", &result.created_at);
    patch.set_some("finished_at", result.finished_at.as_deref());
    patch.set_all(&result.rest);
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::super::delta::parse;
    use super::super::event;
    use super::*;
    use turnwire_testkit::{check_property, values};

    #[test]
    fn the_direct_encoder_agrees_with_the_general_one() {
        check_property("the_direct_encoder_agrees_with_the_general_one", 2000, |rng| {
            let mut track = OpenReplies::default();
            let mut events = turnwire_testkit::random_reply(rng, "r").events;
            events.extend((0..8).map(|_| values::event(rng)));
            for event in &events {
                let mut frames = Frames::default();
                if write_event(event, &track, &mut frames) {
                    let (_, text) = frames.iter().next().unwrap();
                    let slow = event::encode(event, &track);
                    assert_eq!(parse(text).unwrap(), slow, "{}", event.to_json());
                }
                track.apply_event(event);
            }
        });
    }

    #[test]
    fn nearly_every_event_of_ours_is_encoded_directly() {
        let mut rng = turnwire_testkit::Rng::with_seed(1);
        let mut track = OpenReplies::default();
        let (mut taken, mut all) = (0, 0);
        for event in (0..300).flat_map(|_| turnwire_testkit::random_reply(&mut rng, "r").events) {
            all += 1;
            taken += usize::from(write_event(&event, &track, &mut Frames::default()));
            track.apply_event(&event);
        }
        assert!(taken * 100 > all * 97, "{taken} of {all}");
    }
}
