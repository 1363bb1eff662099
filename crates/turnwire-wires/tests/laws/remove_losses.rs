//! Removes from messages what a wire cannot hold.

use serde_json::Value;
use std::collections::HashSet;
use turnwire_core::block::{DataKind, Source};
use turnwire_core::{
    ContentBlock, DataBlock, ErrorType, Fields, FinishedReason, Json, Msg, Part, Payload,
    ReplyError, Role, TextBlock, ThinkingBlock, ToolCall, ToolCallState, ToolResult,
    ToolResultState, Usage,
};
use turnwire_wires::Loss;
use turnwire_wires::model_request::media_type;

/// A message with public fields.
#[derive(Debug, Clone, PartialEq)]
pub struct PlainMessage {
    id: String,
    name: String,
    role: Role,
    content: Vec<ContentBlock>,
    metadata: Fields,
    created_at: String,
    finished_at: Option<String>,
    finished_reason: Option<FinishedReason>,
    usage: Option<Usage>,
    structured_output: Option<Json>,
    error: Option<ReplyError>,
    rest: Fields,
}

impl From<&Msg> for PlainMessage {
    fn from(msg: &Msg) -> Self {
        Self {
            id: msg.id().to_owned(),
            name: msg.name().to_owned(),
            role: msg.role(),
            content: msg.content().to_vec(),
            metadata: msg.metadata().clone(),
            created_at: msg.created_at().to_owned(),
            finished_at: msg.finished_at().map(str::to_owned),
            finished_reason: msg.finished_reason().cloned(),
            usage: msg.usage().cloned(),
            structured_output: msg.structured_output().cloned(),
            error: msg.error().cloned(),
            rest: msg.rest().clone(),
        }
    }
}

/// The messages without these losses. Losses are removed in the order of their declaration, those
/// inside messages first: a message may become empty.
pub fn remove_all(losses: &[Loss], messages: &[Msg]) -> Vec<PlainMessage> {
    let (mut between, mut inside): (Vec<Loss>, Vec<Loss>) =
        losses.iter().partition(|loss| is_between_messages(**loss));
    inside.sort();
    between.sort_by_key(|loss| (*loss != Loss::EmptyMessages, *loss));
    let mut messages: Vec<PlainMessage> = messages.iter().map(PlainMessage::from).collect();
    // After joining messages, other blocks are adjacent.
    let again = [Loss::EmptyBlocks, Loss::BlockOrder, Loss::JoinedText, Loss::BlockBoundaries];
    let again = again.into_iter().filter(|loss| losses.contains(loss));
    for loss in inside.into_iter().chain(between).chain(again) {
        remove_loss(loss, &mut messages);
    }
    messages
}

/// Whether a loss concerns whole messages.
fn is_between_messages(loss: Loss) -> bool {
    matches!(
        loss,
        Loss::SystemMessages
            | Loss::ToolMessages
            | Loss::EmptyMessages
            | Loss::AdjacentReplies
            | Loss::SubAgents
    )
}

fn remove_loss(loss: Loss, messages: &mut Vec<PlainMessage>) {
    match loss {
        Loss::SystemMessages => messages.retain(|msg| msg.role != Role::System),
        Loss::ToolMessages => join(messages, Role::Tool),
        Loss::EmptyMessages => messages.retain(|msg| !msg.content.is_empty()),
        Loss::AdjacentReplies => join(messages, Role::Assistant),
        // Only the first message is the turn's own.
        Loss::SubAgents => messages.truncate(1),
        _ => messages.iter_mut().for_each(|msg| remove_in_message(loss, msg)),
    }
}

/// Appends the content of such messages to the previous assistant message. Without one, results are
/// a reply of their own.
fn join(messages: &mut Vec<PlainMessage>, follows: Role) {
    let mut joined: Vec<PlainMessage> = Vec::new();
    for msg in messages.drain(..) {
        match joined.last_mut() {
            Some(last) if last.role == Role::Assistant && msg.role == follows => {
                last.content.extend(msg.content);
            }
            _ if msg.role == follows => joined.push(PlainMessage { role: Role::Assistant, ..msg }),
            _ => joined.push(msg),
        }
    }
    *messages = joined;
}

fn remove_in_message(loss: Loss, msg: &mut PlainMessage) {
    let completed = Some(FinishedReason::Completed);
    let has_calls =
        |msg: &PlainMessage| has(&msg.content, |block| matches!(block, ContentBlock::ToolCall(_)));
    match loss {
        Loss::MessageIds => msg.id.clear(),
        Loss::Times => {
            msg.created_at.clear();
            msg.finished_at = None;
        }
        Loss::Names => msg.name.clear(),
        Loss::Metadata => msg.metadata = Fields::default(),
        Loss::UnknownFields => msg.rest = Fields::default(),
        Loss::StructuredOutput => msg.structured_output = None,
        Loss::FailedStructuredOutput if msg.error.is_some() => msg.structured_output = None,
        Loss::StructuredText => {
            let text = |block: &ContentBlock| matches!(block, ContentBlock::Text(block) if !block.text.is_empty());
            if let Some(output) =
                msg.structured_output.as_ref().filter(|_| !has(&msg.content, text))
            {
                msg.content.push(TextBlock::new(output.text()).into());
            }
        }
        Loss::Endings => msg.finished_reason = None,
        Loss::UnfinishedUsage if is_unfinished(msg) => msg.usage = None,
        Loss::Unfinished if is_unfinished(msg) => {
            msg.finished_reason = Some(FinishedReason::Completed);
            msg.error = None;
        }
        Loss::FinishedReasons => {
            msg.finished_reason = msg.finished_reason.take().map(|_| FinishedReason::Completed);
        }
        Loss::OtherReasons => {
            if let Some(FinishedReason::Other(_)) = msg.finished_reason {
                msg.finished_reason = Some(FinishedReason::Completed);
            }
        }
        Loss::OpenCalls if msg.finished_reason == completed && has_calls(msg) => {
            msg.finished_reason = Some(FinishedReason::ToolCalls);
        }
        Loss::Errors => msg.error = None,
        Loss::ErrorTypes => {
            if let Some(error) = &mut msg.error {
                error.r#type = ErrorType::Unknown;
            }
        }
        Loss::Usage => msg.usage = None,
        // The client stops waiting for them.
        Loss::CallsWithoutResults if is_cut(msg) => {
            for block in &mut msg.content {
                if let ContentBlock::ToolResult(result) = block
                    && result.state == ToolResultState::Running
                {
                    result.state = ToolResultState::Interrupted;
                }
            }
        }
        Loss::NoUsage => msg.usage = Some(msg.usage.take().unwrap_or_default()),
        Loss::InputTokens => {
            if let Some(usage) = &mut msg.usage {
                usage.input_tokens = 0;
            }
        }
        _ => {}
    }
    remove_in_blocks(loss, &mut msg.content);
}

fn is_unfinished(msg: &PlainMessage) -> bool {
    matches!(msg.finished_reason, None | Some(FinishedReason::Truncated))
}

fn is_cut(msg: &PlainMessage) -> bool {
    let failed = matches!(
        msg.finished_reason,
        Some(FinishedReason::Interrupted | FinishedReason::Truncated | FinishedReason::Error)
    );
    failed || msg.error.is_some()
}

fn has(content: &[ContentBlock], is: impl Fn(&ContentBlock) -> bool) -> bool {
    content.iter().any(is)
}

fn remove_in_blocks(loss: Loss, content: &mut Vec<ContentBlock>) {
    match loss {
        Loss::EmptyBlocks => {
            content.retain(|block| !is_empty(block));
            each_part(content, |part| !matches!(part, Part::Text(block) if block.text.is_empty()));
        }
        Loss::UnsignedThinking => content.retain(|block| match block {
            ContentBlock::Thinking(block) => is_signed(block),
            _ => true,
        }),
        Loss::Hints => content.retain(|block| !matches!(block, ContentBlock::Hint(_))),
        Loss::Data => data_only(content, |_| false, |_| true),
        Loss::OtherSources => {
            let is_known = |block: &mut DataBlock| !matches!(block.source, Source::Other(_));
            data_only(content, is_known, is_known);
        }
        Loss::NotMedia => data_only(content, |block| is_media(block), |_| true),
        Loss::ImagesOnly => data_only(content, is_image, is_image),
        Loss::OtherMedia => data_only(content, |it| is_document(it), |it| is_document(it)),
        Loss::OtherBlocks => {
            content.retain(|block| !matches!(block, ContentBlock::Other(_)));
            each_part(content, |part| !matches!(part, Part::Other(_)));
        }
        Loss::ToolResults => content.retain(|block| !matches!(block, ContentBlock::ToolResult(_))),
        Loss::ResultsWithoutCalls => add_calls(content),
        Loss::CallsWithoutResults => content.retain(|block| match block {
            ContentBlock::ToolResult(result) => !NO_RESULT.contains(&&*result.output.text("")),
            _ => true,
        }),
        Loss::ResultPositions => place_results(content),
        Loss::ServedCalls => {
            let served: Vec<String> = content.iter().filter_map(result_id).collect();
            content.retain(|block| match block {
                ContentBlock::ToolCall(call) => !served.contains(&call.id),
                _ => true,
            });
        }
        Loss::BlockBoundaries => merge_neighbours(content),
        Loss::ThinkTags => *content = content.drain(..).flat_map(split_tags).collect(),
        Loss::JoinedText => join_steps(content),
        Loss::BlockOrder => sort_steps(content),
        Loss::CallOrder => {
            content.sort_by_key(|block| matches!(block, ContentBlock::ToolCall(_)));
        }
        _ => content.iter_mut().for_each(|block| remove_in_block(loss, block)),
    }
}

fn is_empty(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Text(block) => block.text.is_empty(),
        ContentBlock::Thinking(block) => block.thinking.is_empty() && block.rest.is_empty(),
        _ => false,
    }
}

fn is_signed(block: &ThinkingBlock) -> bool {
    let is_text = |name| matches!(block.rest.get::<String>(name), Ok(Some(_)));
    is_text("signature") || is_text("redacted_thinking_data")
}

fn result_id(block: &ContentBlock) -> Option<String> {
    match block {
        ContentBlock::ToolResult(result) => Some(result.id.clone()),
        _ => None,
    }
}

/// What the results say that calls without a result get.
const NO_RESULT: [&str; 3] = ["It was stopped.", "There is no result.", "The input is not JSON."];

/// Adds calls for results that have none.
fn add_calls(content: &mut Vec<ContentBlock>) {
    let mut calls: HashSet<String> = content.iter().filter_map(call_id).collect();
    for block in std::mem::take(content) {
        if let ContentBlock::ToolResult(result) = &block
            && calls.insert(result.id.clone())
        {
            content.push(ToolCall::new(&*result.id, &*result.name, "{}").into());
        }
        content.push(block);
    }
}

fn call_id(block: &ContentBlock) -> Option<String> {
    match block {
        ContentBlock::ToolCall(call) => Some(call.id.clone()),
        _ => None,
    }
}

/// Moves each result behind its call, and those without a call to the end.
fn place_results(content: &mut Vec<ContentBlock>) {
    let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
    let (mut results, others): (Vec<_>, Vec<_>) = content.drain(..).partition(is_result);
    results.sort_by_key(result_id);
    for block in others {
        let id = block.id().to_owned();
        let is_call = matches!(block, ContentBlock::ToolCall(_));
        content.push(block);
        content.extend(results.extract_if(.., |result| is_call && result.id() == id));
    }
    content.append(&mut results);
}

/// Removes parts from results.
fn each_part(content: &mut [ContentBlock], mut keep: impl FnMut(&mut Part) -> bool) {
    for block in content {
        if let ContentBlock::ToolResult(ToolResult { output: Payload::Parts(parts), .. }) = block {
            parts.retain_mut(&mut keep);
        }
    }
}

/// Removes data from messages and from results.
fn data_only(
    content: &mut Vec<ContentBlock>,
    keep: impl Fn(&mut DataBlock) -> bool,
    keep_part: impl Fn(&mut DataBlock) -> bool,
) {
    content.retain_mut(|block| match block {
        ContentBlock::Data(block) => keep(block),
        _ => true,
    });
    each_part(content, |part| match part {
        Part::Data(block) => keep_part(block),
        _ => true,
    });
}

/// Whether it is an inline image. An older image block without a media type counts as PNG.
fn is_image(block: &mut DataBlock) -> bool {
    let Source::Base64(source) = &mut block.source else { return false };
    if block.kind == DataKind::Image && source.media_type.is_none() {
        source.media_type = Some("image/png".to_owned());
    }
    source.media_type.as_deref().is_some_and(|kind| kind.starts_with("image/"))
}

fn is_media(block: &DataBlock) -> bool {
    let kind = media_type(block).unwrap_or_default();
    ["image/", "audio/", "video/"].iter().any(|media| kind.starts_with(media))
}

/// Whether data is an image or a document, inline or at a web URL.
fn is_document(block: &DataBlock) -> bool {
    const DOCUMENTS: [&str; 5] =
        ["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"];
    let kind = media_type(block).filter(|kind| !["audio/*", "video/*"].contains(kind));
    let kind = kind.unwrap_or_default();
    match &block.source {
        Source::Base64(_) => DOCUMENTS.contains(&kind) || kind.starts_with("text/"),
        Source::Url(source) => {
            source.url.starts_with("http")
                && (kind.starts_with("image/") || kind == "application/pdf")
        }
        Source::Other(_) => false,
    }
}

/// Text that starts with a `<think>` tag, as thinking and text.
fn split_tags(block: ContentBlock) -> Vec<ContentBlock> {
    let ContentBlock::Text(text) = &block else { return vec![block] };
    let tagged = text.text.strip_prefix("<think>").and_then(|rest| rest.split_once("</think>"));
    let Some((thinking, rest)) = tagged else { return vec![block] };
    vec![ThinkingBlock::new(thinking).into(), TextBlock::new(rest).into()]
}

fn merge_neighbours(content: &mut Vec<ContentBlock>) {
    let mut merged: Vec<ContentBlock> = Vec::new();
    for block in content.drain(..) {
        if !merged.last_mut().is_some_and(|last| append_text(last, &block)) {
            merged.push(block);
        }
    }
    *content = merged;
}

/// Between two results: one text and one thinking block, at the position of the first.
fn join_steps(content: &mut Vec<ContentBlock>) {
    let mut joined: Vec<ContentBlock> = Vec::new();
    let mut step = 0;
    for block in content.drain(..) {
        let mut before = joined.iter_mut().skip(step).rev();
        let same = before.find(|last| last.block_type() == block.block_type());
        if !same.is_some_and(|last| append_text(last, &block)) {
            joined.push(block);
        }
        if let Some(ContentBlock::ToolResult(_)) = joined.last() {
            step = joined.len();
        }
    }
    *content = joined;
}

/// Appends text to text, or thinking to thinking. Returns false for other blocks.
fn append_text(last: &mut ContentBlock, next: &ContentBlock) -> bool {
    match (last, next) {
        (ContentBlock::Text(last), ContentBlock::Text(next)) => last.text.push_str(&next.text),
        (ContentBlock::Thinking(last), ContentBlock::Thinking(next)) => {
            last.thinking.push_str(&next.thinking);
        }
        _ => return false,
    }
    true
}

/// Between two results: thinking, text, everything else, calls.
fn sort_steps(content: &mut [ContentBlock]) {
    let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
    for step in content.split_mut(is_result) {
        step.sort_by_key(|block| match block {
            ContentBlock::Thinking(_) => 0,
            ContentBlock::ToolCall(_) => 3,
            ContentBlock::Text(_) => 1,
            _ => 2,
        });
    }
}

fn remove_in_block(loss: Loss, block: &mut ContentBlock) {
    match block {
        ContentBlock::Text(block) => remove_in_text(loss, block),
        ContentBlock::Thinking(block) => remove_in_thinking(loss, block),
        ContentBlock::Data(block) => remove_in_data(loss, block),
        ContentBlock::Hint(block) => {
            match loss {
                Loss::BlockIds => block.id.clear(),
                Loss::UnknownFields => block.rest = Fields::default(),
                Loss::Times => clear_times(&mut block.created_at, &mut block.finished_at),
                _ => {}
            }
            remove_in_payload(loss, &mut block.hint);
        }
        ContentBlock::ToolCall(block) => remove_in_call(loss, block),
        ContentBlock::ToolResult(block) => remove_in_result(loss, block),
        ContentBlock::Other(_) => {}
    }
}

fn clear_times(created_at: &mut String, finished_at: &mut Option<String>) {
    created_at.clear();
    *finished_at = None;
}

fn remove_in_thinking(loss: Loss, block: &mut ThinkingBlock) {
    match loss {
        Loss::BlockIds => block.id.clear(),
        Loss::ThinkingExtras => block.rest = Fields::default(),
        Loss::UnknownFields => {
            let signature = block.rest.remove("signature").filter(|json| json.text() != "\"\"");
            block.rest = signature.map(|json| ("signature", json)).into_iter().collect();
        }
        Loss::Times => clear_times(&mut block.created_at, &mut block.finished_at),
        _ => {}
    }
}

fn remove_in_call(loss: Loss, call: &mut ToolCall) {
    match loss {
        Loss::CallStates => call.state = ToolCallState::Pending,
        Loss::SuggestedRules => call.suggested_rules.clear(),
        Loss::UnknownFields => call.rest = Fields::default(),
        Loss::EmptyInput if call.input.trim_ascii().is_empty() => "{}".clone_into(&mut call.input),
        Loss::InputText => call.input = normalize_input(&call.input),
        Loss::InvalidInput if serde_json::from_str::<Value>(&call.input).is_err() => {
            call.input = Value::from(call.input.as_str()).to_string();
        }
        Loss::Times => clear_times(&mut call.created_at, &mut call.finished_at),
        _ => {}
    }
}

/// The input as normalized JSON; empty input is `{}`.
fn normalize_input(input: &str) -> String {
    if input.trim().is_empty() {
        return "{}".to_owned();
    }
    serde_json::from_str::<Value>(input)
        .map_or_else(|_| input.to_owned(), |value| value.to_string())
}

fn remove_in_result(loss: Loss, block: &mut ToolResult) {
    match loss {
        Loss::ResultNames => block.name.clear(),
        Loss::AllResultStates => block.state = ToolResultState::Success,
        Loss::ResultStates => {
            block.state = match &block.state {
                ToolResultState::Success | ToolResultState::Running => ToolResultState::Success,
                _ => ToolResultState::Error,
            }
        }
        Loss::DeniedOutput if block.state == ToolResultState::Denied => {
            block.output = Payload::default();
        }
        Loss::FailedOutput
            if matches!(block.state, ToolResultState::Error | ToolResultState::Interrupted) =>
        {
            let text = block.output.text("\n");
            let text = if text.is_empty() { block.state.as_str().to_owned() } else { text };
            block.output = Payload::Text(text);
        }
        Loss::ResultMetadata => block.metadata = Fields::default(),
        Loss::ResultParts => join_text(&mut block.output),
        Loss::LongResults => {
            if let Payload::Text(text) = &mut block.output {
                *text = text.chars().take(500).collect();
            }
        }
        Loss::ResultData => {
            if let Payload::Parts(parts) = &mut block.output {
                parts.retain(|part| matches!(part, Part::Text(_)));
            }
        }
        Loss::SingleParts => {
            if let Payload::Parts(parts) = &block.output
                && matches!(parts.as_slice(), [] | [Part::Text(_)])
            {
                block.output = Payload::Text(block.output.text(""));
            }
        }
        Loss::ResultPartDetails => remove_part_details(&mut block.output),
        Loss::UnknownFields => block.rest = Fields::default(),
        Loss::Times => clear_times(&mut block.created_at, &mut block.finished_at),
        _ => {}
    }
    remove_in_payload(loss, &mut block.output);
}

fn remove_part_details(output: &mut Payload) {
    let Payload::Parts(parts) = output else { return };
    parts.retain(|part| match part {
        Part::Data(block) => !matches!(block.source, Source::Other(_)),
        Part::Text(_) => true,
        Part::Other(_) => false,
    });
    for part in parts.iter_mut() {
        if let Part::Data(block) = part {
            block.id.clear();
            remove_in_data(Loss::DataNames, block);
            remove_in_data(Loss::MediaTypes, block);
        }
    }
    if let [Part::Text(only)] = parts.as_slice() {
        *output = Payload::Text(only.text.clone());
    }
}

/// Joins all text of an output, before everything else.
fn join_text(output: &mut Payload) {
    let text = output.text("");
    let others = match std::mem::take(output) {
        Payload::Parts(parts) => parts,
        Payload::Text(_) => Vec::new(),
    };
    let mut parts = vec![Part::from(text.as_str())];
    parts.extend(others.into_iter().filter(|part| !matches!(part, Part::Text(_))));
    *output = if parts.len() == 1 { Payload::Text(text) } else { Payload::Parts(parts) };
}

fn remove_in_payload(loss: Loss, payload: &mut Payload) {
    let Payload::Parts(parts) = payload else { return };
    for part in parts {
        match part {
            Part::Text(block) => remove_in_text(loss, block),
            Part::Data(block) => remove_in_data(loss, block),
            Part::Other(_) => {}
        }
    }
}

fn remove_in_text(loss: Loss, block: &mut TextBlock) {
    match loss {
        Loss::BlockIds => block.id.clear(),
        Loss::UnknownFields => block.rest = Fields::default(),
        Loss::Times => clear_times(&mut block.created_at, &mut block.finished_at),
        _ => {}
    }
}

fn remove_in_data(loss: Loss, block: &mut DataBlock) {
    match loss {
        Loss::BlockIds => block.id.clear(),
        Loss::DataNames => {
            block.name = None;
            block.kind = DataKind::Data;
        }
        Loss::MediaTypes => match &mut block.source {
            Source::Base64(source) => drop(source.media_type.take()),
            Source::Url(source) => drop(source.media_type.take()),
            Source::Other(_) => {}
        },
        Loss::UnknownFields => {
            block.rest = Fields::default();
            match &mut block.source {
                Source::Base64(source) => source.rest = Fields::default(),
                Source::Url(source) => source.rest = Fields::default(),
                Source::Other(_) => {}
            }
        }
        Loss::Times => clear_times(&mut block.created_at, &mut block.finished_at),
        _ => {}
    }
}
