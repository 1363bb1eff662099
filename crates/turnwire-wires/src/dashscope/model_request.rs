//! Writes the body of a generation request.

use super::NAME;
use super::message_draft::{
    ContentPart, MessageDraft, data_part, item_to_part, media_key, result_message,
};
use crate::json::fields;
use crate::model_options::{reduce_to_allowed_tools, write_options};
use crate::model_request::{
    AssistantPart, CallIds, CallOutcome, ONLY_USER_TEXT, OutputFormat, PromptMessage,
    RASTER_IMAGES_ONLY, Request, SVG, ToolChoice, ToolDefinition, UserPart, build_prompt,
    default_media_type, describe_omitted_data, function_tool, input_to_object_text, media_type,
    normalize_data, read_text_file, sanitize_call_name, to_json_list,
};
use turnwire_core::{DataBlock, Fields, Json, Source};

pub(super) fn build_body(request: &Request<'_>) -> Json {
    let mut messages = Vec::new();
    let mut calls = ReplyWriter { ids: CallIds::new(usize::MAX, |_| true), tools: request.tools };
    for message in build_prompt(request.messages, request.speaker_format) {
        match message {
            PromptMessage::System(msg) => {
                let mut draft = MessageDraft::new("system");
                draft.content.extend(msg.text("\n").map(ContentPart::Text));
                messages.push(OutgoingMessage::Draft(draft));
            }
            PromptMessage::User { parts, .. } => {
                messages.push(OutgoingMessage::Draft(user_draft(&parts)));
            }
            PromptMessage::Assistant(parts) => {
                messages.push(OutgoingMessage::Draft(calls.assistant_draft(&parts)));
            }
            PromptMessage::ToolResults(outcomes) => {
                messages.extend(
                    outcomes
                        .iter()
                        .map(|outcome| OutgoingMessage::Done(calls.outcome_message(outcome))),
                );
                messages.push(OutgoingMessage::Draft(result_data_draft(&outcomes)));
            }
        }
    }
    let is_empty =
        |message: &OutgoingMessage| matches!(message, OutgoingMessage::Draft(it) if it.is_empty());
    if messages.iter().all(is_empty) {
        messages.push(OutgoingMessage::Draft(user_draft(&[UserPart::text(ONLY_USER_TEXT)])));
    }
    // Multimodal generation requires lists, text generation requires text.
    let lists = messages.iter().any(|message| match message {
        OutgoingMessage::Draft(draft) => draft.needs_list(),
        OutgoingMessage::Done(_) => false,
    });
    let messages = messages.into_iter().filter_map(|message| match message {
        OutgoingMessage::Done(message) => Some(message),
        OutgoingMessage::Draft(draft) if draft.is_empty() => None,
        OutgoingMessage::Draft(mut draft) if lists => {
            // An empty list is refused.
            if draft.content.is_empty() {
                draft.content.push(ContentPart::Text(String::new()));
            }
            Some(draft.into_list_message())
        }
        OutgoingMessage::Draft(draft) => Some(draft.into_text_message()),
    });
    let messages = to_json_list(&messages.collect::<Vec<_>>());
    let body = fields! {
        "model": request.model,
        "input": fields! { "messages": messages },
        "parameters": build_parameters(request),
    };
    write_options(request, NAME, body).into()
}

enum OutgoingMessage {
    Draft(MessageDraft),
    Done(Json),
}

fn user_draft(parts: &[UserPart<'_>]) -> MessageDraft {
    let mut draft = MessageDraft::new("user");
    draft.content.extend(parts.iter().filter_map(|part| match part {
        UserPart::Text(block) => Some(ContentPart::Text(block.text.clone())),
        UserPart::Data(block) => Some(data_or_note(block)),
        UserPart::Item(item) => item_to_part(item),
    }));
    draft
}

/// The maximum length of a tool name.
const MAX_NAME_LENGTH: usize = 64;

/// What the assistant messages of one request share.
struct ReplyWriter<'a> {
    ids: CallIds,
    tools: &'a [ToolDefinition],
}

impl ReplyWriter<'_> {
    fn assistant_draft(&mut self, parts: &[AssistantPart<'_>]) -> MessageDraft {
        let mut draft = MessageDraft::new("assistant");
        for part in parts {
            match part {
                AssistantPart::Text(block) => {
                    draft.content.push(ContentPart::Text(block.text.clone()));
                }
                AssistantPart::Thinking(block) => draft.thinking.push_str(&block.thinking),
                AssistantPart::Data(block) => draft.content.push(data_or_note(block)),
                AssistantPart::ToolCall(call) => {
                    let name = sanitize_call_name(&call.name, self.tools, MAX_NAME_LENGTH);
                    // Input that is not JSON is refused.
                    draft.push_call(
                        &self.ids.next_call_id(&call.id),
                        &name,
                        &input_to_object_text(&call.input),
                    );
                }
                AssistantPart::Item(item) => draft.content.extend(item_to_part(item)),
            }
        }
        draft
    }

    fn outcome_message(&mut self, outcome: &CallOutcome<'_>) -> Json {
        let name = sanitize_call_name(&outcome.call.name, self.tools, MAX_NAME_LENGTH);
        result_message(&self.ids.next_result_id(), &name, &outcome.text_with_failure())
    }
}

/// A user message with the data of the results, which follows them.
fn result_data_draft(outcomes: &[CallOutcome<'_>]) -> MessageDraft {
    let mut draft = MessageDraft::new("user");
    for outcome in outcomes {
        draft.content.extend(outcome.data_heading().map(ContentPart::Text));
        draft.content.extend(outcome.data().map(data_or_note));
    }
    draft
}

/// A part for data, or a text that says what was left out.
fn data_or_note(block: &DataBlock) -> ContentPart {
    accepted_data(block).unwrap_or_else(|why| ContentPart::Text(describe_omitted_data(block, why)))
}

/// Whether a request has data, not a note that describes it.
pub(super) fn accepts_data(block: &DataBlock) -> bool {
    accepted_data(block).is_ok()
}

/// The part for data that the model can read; the error says why it cannot.
fn accepted_data(block: &DataBlock) -> Result<ContentPart, &'static str> {
    normalize_data(block).and_then(|ready| {
        if let Some(text) = read_text_file(&ready) {
            return Ok(ContentPart::Text(text));
        }
        if media_type(&ready) == Some(SVG) {
            return Err(RASTER_IMAGES_ONLY);
        }
        let kind = default_media_type(&ready);
        let key = media_key(kind).ok_or("the model accepts only images, audio and video")?;
        if let Source::Url(source) = &ready.source {
            let url = url::Url::parse(&source.url);
            let scheme = url.as_ref().map_or("", url::Url::scheme);
            if !["http", "https", "oss"].contains(&scheme) {
                return Err("the model cannot read this URL");
            }
        }
        data_part(&ready, key, kind.unwrap_or_default()).ok_or("it cannot be read")
    })
}

fn build_parameters(request: &Request<'_>) -> Fields {
    let mut parameters = fields! { "result_format": "message" };
    if request.stream {
        parameters.insert("incremental_output", true);
    }
    parameters.insert_some("max_tokens", request.max_tokens());
    parameters.insert_some("temperature", request.temperature());
    let offered = reduce_to_allowed_tools(request.tools, &request.tool_choice, NAME);
    let tools: Vec<&ToolDefinition> =
        offered.tools.into_iter().filter(|tool| tool.is_written_to(NAME)).collect();
    if !tools.is_empty() {
        let written: Vec<Json> = tools.iter().map(|tool| function_tool(tool)).collect();
        parameters.insert("tools", to_json_list(&written));
        parameters.insert("tool_choice", tool_choice(&offered.choice, &tools));
    }
    if let Some(output) = request.output {
        let format = if request.is_any_json() {
            fields! { "type": "json_object" }
        } else {
            fields! { "type": "json_schema", "json_schema": json_schema(output) }
        };
        parameters.insert("response_format", format);
    }
    parameters
}

fn json_schema(output: &OutputFormat) -> Fields {
    fields! {
        "name": output.name.as_str(),
        "schema": output.schema.clone(),
        "strict": output.is_strict(),
    }
}

/// The tool choice. The protocol cannot require "any tool", so a single tool is named.
fn tool_choice(choice: &ToolChoice, tools: &[&ToolDefinition]) -> Json {
    let name = match (choice, tools) {
        (ToolChoice::None, _) => return "none".into(),
        (ToolChoice::Tool(name), _) => name,
        (ToolChoice::Required | ToolChoice::Allowed { required: true, .. }, [tool]) => &tool.name,
        (
            ToolChoice::Auto
            | ToolChoice::Required
            | ToolChoice::Allowed { .. }
            | ToolChoice::Other(_),
            _,
        ) => return "auto".into(),
    };
    fields! { "type": "function", "function": fields! { "name": name.as_str() } }.into()
}
