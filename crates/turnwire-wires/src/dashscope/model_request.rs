//! Writes the body of a generation request.

use super::message_draft::{
    ContentPart, MessageDraft, data_part, item_to_part, media_key, result_message,
};
use crate::model_request::{
    AssistantPart, CallIds, CallOutcome, ONLY_USER_TEXT, PromptMessage, RASTER_IMAGES_ONLY,
    Request, SVG, ToolChoice, ToolDefinition, UserPart, build_prompt, default_media_type,
    describe_omitted_data, input_schema as input_of, input_to_object_text, is_strict_schema,
    media_type, merge_extra, normalize_data, read_text_file, sanitize_call_name, to_json_list,
    to_json_object,
};
use turnwire_core::{DataBlock, Fields, Json, Source};

pub(super) fn build_body(request: &Request<'_>) -> Json {
    let mut messages = Vec::new();
    let mut calls = ReplyWriter { ids: CallIds::new(usize::MAX, |_| true), tools: request.tools };
    for message in build_prompt(request.messages, request.speaker_format) {
        match message {
            PromptMessage::System(text) => {
                let mut draft = MessageDraft::new("system");
                draft.content.push(ContentPart::Text(text));
                messages.push(OutgoingMessage::Draft(draft));
            }
            PromptMessage::User(parts) => messages.push(OutgoingMessage::Draft(user_draft(&parts))),
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
        messages.push(OutgoingMessage::Draft(user_draft(&[UserPart::Text(ONLY_USER_TEXT.into())])));
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
    let mut body = Fields::default();
    body.insert("model", request.model);
    body.insert("input", to_json_object(&[("messages", messages)].into_iter().collect()));
    body.insert("parameters", to_json_object(&build_parameters(request)));
    to_json_object(&merge_extra(body, &request.extra))
}

enum OutgoingMessage {
    Draft(MessageDraft),
    Done(Json),
}

fn user_draft(parts: &[UserPart<'_>]) -> MessageDraft {
    let mut draft = MessageDraft::new("user");
    draft.content.extend(parts.iter().filter_map(|part| match part {
        UserPart::Text(text) => Some(ContentPart::Text(text.clone().into_owned())),
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

    /// A tool result. The protocol has no field for a failure, so the text says it.
    fn outcome_message(&mut self, outcome: &CallOutcome<'_>) -> Json {
        let failed = if outcome.is_error() { "Error: " } else { "" };
        let name = sanitize_call_name(&outcome.call.name, self.tools, MAX_NAME_LENGTH);
        result_message(&self.ids.next_result_id(), &name, &format!("{failed}{}", outcome.text()))
    }
}

/// A user message with the data of the results, which follows them.
fn result_data_draft(outcomes: &[CallOutcome<'_>]) -> MessageDraft {
    let mut draft = MessageDraft::new("user");
    for outcome in outcomes {
        let mut data = outcome.data().peekable();
        if data.peek().is_some() {
            let line = format!("What {} ({}) gave:", outcome.call.name, outcome.call.id);
            draft.content.push(ContentPart::Text(line));
        }
        draft.content.extend(data.map(data_or_note));
    }
    draft
}

/// A part for data, or a text that says what was left out.
fn data_or_note(block: &DataBlock) -> ContentPart {
    let bit = normalize_data(block).and_then(|ready| {
        if let Some(text) = read_text_file(&ready) {
            return Ok(ContentPart::Text(text));
        }
        if media_type(&ready) == Some(SVG) {
            return Err(RASTER_IMAGES_ONLY);
        }
        let kind = default_media_type(&ready);
        let key = media_key(kind).ok_or("the model takes only images, audio and video")?;
        if let Source::Url(source) = &ready.source {
            let url = url::Url::parse(&source.url);
            let scheme = url.as_ref().map_or("", url::Url::scheme);
            if !["http", "https", "oss"].contains(&scheme) {
                return Err("the model cannot read this address");
            }
        }
        data_part(&ready, key, kind.unwrap_or_default()).ok_or("it cannot be read")
    });
    bit.unwrap_or_else(|why| ContentPart::Text(describe_omitted_data(block, why)))
}

fn build_parameters(request: &Request<'_>) -> Fields {
    let mut parameters = Fields::default();
    parameters.insert("result_format", "message");
    if request.stream {
        parameters.insert("incremental_output", true);
    }
    if let Some(most) = request.max_tokens {
        parameters.insert("max_tokens", most);
    }
    if let Some(temperature) = request.temperature {
        parameters.insert("temperature", temperature);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let mut function = Fields::default();
            function.insert("name", tool.name.as_str());
            function.insert("description", tool.description.as_str());
            function.insert("parameters", input_of(tool));
            function_json(&function)
        });
        parameters.insert("tools", to_json_list(&tools.collect::<Vec<_>>()));
        parameters.insert("tool_choice", tool_choice(request));
    }
    if let Some(output) = request.output {
        let mut schema = Fields::default();
        schema.insert("name", output.name.as_str());
        schema.insert("schema", output.schema.clone());
        let tree: serde_json::Value = output.schema.parse_as().unwrap_or_default();
        schema.insert("strict", is_strict_schema(&tree));
        let mut format = Fields::default();
        format.insert("type", "json_schema");
        format.insert("json_schema", to_json_object(&schema));
        parameters.insert("response_format", to_json_object(&format));
    }
    parameters
}

/// The tool choice. The protocol cannot require "any tool", so a single tool is named.
fn tool_choice(request: &Request<'_>) -> Json {
    let name = match (&request.tool_choice, request.tools) {
        (ToolChoice::None, _) => return "none".into(),
        (ToolChoice::Tool(name), _) => name,
        (ToolChoice::Required, [tool]) => &tool.name,
        (ToolChoice::Auto | ToolChoice::Required, _) => return "auto".into(),
    };
    function_json(&[("name", name.as_str())].into_iter().collect())
}

fn function_json(function: &Fields) -> Json {
    let mut whole = Fields::default();
    whole.insert("type", "function");
    whole.insert("function", to_json_object(function));
    to_json_object(&whole)
}
