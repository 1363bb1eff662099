//! Writes the body of `/api/chat`.

use super::NAME;
use super::message::{MessageDraft, image_base64, result_message};
use crate::json::fields;
use crate::model_options::write_options;
use crate::model_request::{
    AssistantPart, CallOutcome, PromptMessage, RASTER_IMAGES_ONLY, Request, SVG, ToolChoice,
    UserPart, build_prompt, describe_omitted_data, function_tool, media_type, normalize_data,
    read_text_file, to_json_list,
};
use turnwire_core::{DataBlock, Fields, Json, Source};

pub(super) fn build_body(request: &Request<'_>) -> Json {
    let mut messages = Vec::new();
    for message in build_prompt(request.messages, request.speaker_format) {
        let draft = match message {
            PromptMessage::System(msg) => {
                let mut draft = MessageDraft::new("system");
                draft.text.extend(msg.text("\n"));
                draft
            }
            PromptMessage::User { parts, .. } => user_draft(&parts),
            PromptMessage::Assistant(parts) => assistant_draft(&parts),
            PromptMessage::ToolResults(outcomes) => {
                messages.extend(outcomes.iter().map(outcome_message));
                result_data_draft(&outcomes)
            }
        };
        if !draft.is_empty() {
            messages.push(draft.into_json("\n"));
        }
    }
    let mut body = fields! {
        "model": request.model,
        "messages": to_json_list(&messages),
        "stream": request.stream,
    };
    let tools = build_tools(request);
    if !tools.is_empty() {
        body.insert("tools", to_json_list(&tools));
    }
    body.insert_some("format", request.output.map(|output| output.schema.clone()));
    let mut options = Fields::default();
    options.insert_some("num_predict", request.max_tokens());
    options.insert_some("temperature", request.temperature());
    body.insert_fields("options", &options);
    write_options(request, NAME, body).into()
}

fn user_draft(parts: &[UserPart<'_>]) -> MessageDraft {
    let mut draft = MessageDraft::new("user");
    for part in parts {
        match part {
            UserPart::Text(block) => draft.text.push(block.text.clone()),
            UserPart::Data(block) => add_data(&mut draft, block),
            // Ollama has no items of its own.
            UserPart::Item(_) => {}
        }
    }
    draft
}

fn assistant_draft(parts: &[AssistantPart<'_>]) -> MessageDraft {
    let mut draft = MessageDraft::new("assistant");
    for part in parts {
        match part {
            AssistantPart::Text(block) => draft.text.push(block.text.clone()),
            AssistantPart::Thinking(block) => draft.thinking.push_str(&block.thinking),
            AssistantPart::Data(block) => add_data(&mut draft, block),
            AssistantPart::ToolCall(call) => draft.push_call(call),
            AssistantPart::Item(_) => {}
        }
    }
    draft
}

fn outcome_message(outcome: &CallOutcome<'_>) -> Json {
    result_message(&outcome.call.id, &outcome.call.name, &outcome.text_with_failure())
}

/// A user message with the data of the results, which follows them.
fn result_data_draft(outcomes: &[CallOutcome<'_>]) -> MessageDraft {
    let mut draft = MessageDraft::new("user");
    for outcome in outcomes {
        draft.text.extend(outcome.data_heading());
        outcome.data().for_each(|block| add_data(&mut draft, block));
    }
    draft
}

/// Adds an image or a text file, or a text that says what was left out.
fn add_data(draft: &mut MessageDraft, block: &DataBlock) {
    match accepted_data(block) {
        Ok(AcceptedData::Image(base64)) => draft.images.push(base64),
        Ok(AcceptedData::Text(text)) => draft.text.push(text),
        Err(why) => draft.text.push(describe_omitted_data(block, why)),
    }
}

/// Whether a request has data, not a note that describes it.
pub(super) fn accepts_data(block: &DataBlock) -> bool {
    accepted_data(block).is_ok()
}

/// Data that the model can read.
enum AcceptedData {
    Image(String),
    Text(String),
}

/// Data that the model can read; the error says why it cannot.
fn accepted_data(block: &DataBlock) -> Result<AcceptedData, &'static str> {
    let ready = normalize_data(block)?;
    if media_type(&ready) == Some(SVG) {
        return Err(RASTER_IMAGES_ONLY);
    }
    match (image_base64(&ready), read_text_file(&ready), &ready.source) {
        (Some(image), ..) => Ok(AcceptedData::Image(image.to_owned())),
        (None, Some(text), _) => Ok(AcceptedData::Text(text)),
        (None, None, Source::Url(_)) => Err("the model cannot read URLs"),
        (None, None, Source::Base64(_) | Source::Other(_)) => Err("the model accepts only images"),
    }
}

/// The tools to offer. The protocol has no tool choice, so only the allowed tools are offered.
fn build_tools(request: &Request<'_>) -> Vec<Json> {
    let offered = request.tools.iter().filter(|tool| match &request.tool_choice {
        ToolChoice::Auto | ToolChoice::Required | ToolChoice::Other(_) => true,
        ToolChoice::None => false,
        ToolChoice::Tool(name) => tool.name == *name,
        ToolChoice::Allowed { names, .. } => names.contains(&tool.name),
    });
    offered.filter(|tool| tool.is_written_to(NAME)).map(function_tool).collect()
}
