//! Removes or replaces what AgentScope's models reject.

use turnwire_core::block::{DataKind, Source, UrlSource};
use turnwire_core::event::{Chunk, ConfirmResult, CustomValue};
use turnwire_core::{
    Behavior, ContentBlock, DataBlock, ErrorType, Event, EventKind, FinishedReason, Msg, Part,
    Payload, PermissionRule, Result, Role, ToolCall, ToolCallState, ToolResult, ToolResultState,
    event_kinds,
};
use url::Url;

pub(super) fn restrict_event(event: &mut Event<'_>) {
    match &mut event.kind {
        EventKind::ReplyStart(start) => restrict_role(&mut start.role),
        EventKind::ReplyEnd(end) => {
            restrict_reason(&mut end.finished_reason);
            if let Some(error) = &mut end.error {
                restrict_error_type(&mut error.r#type);
            }
        }
        EventKind::ModelCallEnd(end) => {
            restrict_reason(&mut end.finished_reason);
            // AgentScope's model call has only two finish reasons.
            if end.finished_reason != FinishedReason::Completed {
                end.finished_reason = FinishedReason::Interrupted;
            }
        }
        EventKind::DataBlockStart(start) => require_media_type(&mut start.media_type),
        EventKind::DataBlockDelta(delta) => {
            require_media_type(&mut delta.media_type);
            restrict_chunk(&mut delta.chunk);
        }
        EventKind::ToolResultDataDelta(delta) => {
            require_media_type(&mut delta.media_type);
            restrict_chunk(&mut delta.chunk);
        }
        EventKind::Hint(hint) => restrict_payload(&mut hint.hint),
        EventKind::ToolResultEnd(end) => restrict_result_state(&mut end.state),
        EventKind::RequireUserConfirm(ask) => {
            ask.tool_calls.iter_mut().for_each(restrict_tool_call);
        }
        EventKind::RequireExternalExecution(ask) => {
            ask.tool_calls.iter_mut().for_each(restrict_tool_call);
        }
        EventKind::UserConfirmResult(answer) => {
            answer.confirm_results.iter_mut().for_each(restrict_confirm_result);
        }
        EventKind::ExternalExecutionResult(answer) => {
            answer.execution_results.iter_mut().for_each(restrict_tool_result);
        }
        EventKind::Custom(custom) => {
            if !custom.value.0.text().starts_with('{') {
                custom.value = CustomValue::default();
            }
        }
        event_kinds!(
            ModelCallStart DataBlockEnd Block ToolResultStart ToolResultTextDelta Message Supersede
            Reset Unknown text thinking tool_call notice
        ) => {}
    }
}

pub(super) fn restrict_message(msg: &Msg) -> Result<Msg> {
    let mut strict_role = msg.role();
    restrict_role(&mut strict_role);
    let mut content = msg.content().to_vec();
    content.retain_mut(restrict_block);
    let mut builder = msg.to_builder().role(strict_role).content(content);
    if let Some(known) = msg.finished_reason() {
        let mut known = known.clone();
        restrict_reason(&mut known);
        builder = builder.finished_reason(known);
    }
    if let Some(error) = msg.error() {
        let mut error = error.clone();
        restrict_error_type(&mut error.r#type);
        builder = builder.error(error);
    }
    if msg.structured_output().is_some_and(|output| !output.text().starts_with('{')) {
        builder = builder.without_structured_output();
    }
    builder.build()
}

/// Restricts a block. Returns whether it can stay.
fn restrict_block(block: &mut ContentBlock) -> bool {
    match block {
        ContentBlock::Text(_) | ContentBlock::Thinking(_) => true,
        ContentBlock::Data(block) => restrict_data(block),
        ContentBlock::Hint(hint) => {
            restrict_payload(&mut hint.hint);
            true
        }
        ContentBlock::ToolCall(call) => {
            restrict_tool_call(call);
            true
        }
        ContentBlock::ToolResult(result) => {
            restrict_tool_result(result);
            true
        }
        ContentBlock::Other(_) => false,
    }
}

fn restrict_payload(payload: &mut Payload) {
    match payload {
        Payload::Text(_) => {}
        Payload::Parts(parts) => parts.retain_mut(|part| match part {
            Part::Text(_) => true,
            Part::Data(block) => restrict_data(block),
            Part::Other(_) => false,
        }),
    }
}

fn restrict_data(block: &mut DataBlock) -> bool {
    block.kind = DataKind::Data;
    match &mut block.source {
        Source::Base64(source) => require_media_type(&mut source.media_type),
        Source::Url(UrlSource { url: to, media_type: media, .. }) => {
            require_media_type(media);
            if let Some(absolute) = absolute_url(to) {
                *to = absolute;
            }
        }
        Source::Other(_) => return false,
    }
    true
}

/// AgentScope requires a media type.
fn require_media_type(media_type: &mut Option<String>) {
    media_type.get_or_insert_with(|| "application/octet-stream".to_owned());
}

/// A URL that AgentScope's fold accepts instead: its events accept any URL, its blocks only one
/// with a scheme.
fn absolute_url(url: &str) -> Option<String> {
    Url::parse(url).is_err().then(|| format!("turnwire:{url}"))
}

fn restrict_chunk(chunk: &mut Chunk<'_>) {
    match chunk {
        Chunk::Data(_) => {}
        Chunk::Url(url) => {
            if let Some(absolute) = absolute_url(url) {
                *url = absolute.into();
            }
        }
    }
}

fn restrict_tool_call(call: &mut ToolCall) {
    if !call.state.is_known() {
        call.state = ToolCallState::default();
    }
    call.suggested_rules.iter_mut().for_each(restrict_rule);
}

fn restrict_tool_result(result: &mut ToolResult) {
    restrict_result_state(&mut result.state);
    restrict_payload(&mut result.output);
}

fn restrict_confirm_result(result: &mut ConfirmResult) {
    restrict_tool_call(&mut result.tool_call);
    result.rules.iter_mut().flatten().for_each(restrict_rule);
}

fn restrict_rule(rule: &mut PermissionRule) {
    if !rule.behavior.is_known() {
        rule.behavior = Behavior::default();
    }
}

fn restrict_role(role: &mut Role) {
    if *role == Role::Tool {
        *role = Role::Assistant;
    }
}

/// AgentScope has four: completed, interrupted, exceeded the iterations, failed.
fn restrict_reason(reason: &mut FinishedReason) {
    use FinishedReason::{
        Completed, ContentFilter, Error, ExceedMaxIters, Interrupted, Length, Other, Refusal,
        ToolCalls, Truncated,
    };
    match reason {
        Completed | Interrupted | ExceedMaxIters | Error => {}
        ToolCalls | Refusal | Other(_) => *reason = Completed,
        Length | ContentFilter | Truncated => *reason = Interrupted,
    }
}

fn restrict_error_type(error_type: &mut ErrorType) {
    if !error_type.is_known() {
        *error_type = ErrorType::default();
    }
}

fn restrict_result_state(state: &mut ToolResultState) {
    if !state.is_known() {
        *state = ToolResultState::default();
    }
}
