//! Writes the body of a Responses request.

use super::client_call::ClientCall;
use super::message::{ItemWriter, input_text, text_part};
use super::{NAME, item, media};
use crate::json::fields;
use crate::model_options::{ModelOption, write_options};
use crate::model_request::{
    ACCEPTED_IMAGES_ONLY, AssistantPart, CallIds, CallOutcome, ONLY_USER_TEXT, OutputFormat,
    PromptMessage, Request, ToolChoice, ToolDefinition, UserPart, accepts_temperature,
    build_prompt, describe_omitted_data, input_to_object_text, is_text, media_type, normalize_data,
    openai_accepts_image, sanitize_call_name, to_json_list,
};
use crate::{native, provider};
use serde_json::{Value, json};
use turnwire_core::{
    DataBlock, Fields, Json, Msg, Part, Result, Source, TextBlock, ThinkingBlock, ToolCall,
};

/// The maximum lengths that `OpenAI` accepts for an id and a tool name. A client that began its conversation here may send
/// longer ids of ours.
const MAX_ID_LENGTH: usize = 64;
const MAX_NAME_LENGTH: usize = 64;

/// Writes the body of a request.
pub(super) fn build_body(request: &Request<'_>) -> Result<Json> {
    let mut body = fields! { "model": request.model };
    let mut input = InputWriter {
        items: ItemWriter::default(),
        instructions: Vec::new(),
        is_stored: is_stored(request),
        ids: CallIds::new(MAX_ID_LENGTH, |_| true),
        tools: request.tools,
    };
    for message in build_prompt(request.messages, request.speaker_format) {
        input.push_message(message);
    }
    if input.items.list.is_empty() {
        input.items.push_message("user", &[input_text(ONLY_USER_TEXT)]);
    }
    if !input.instructions.is_empty() {
        body.insert("instructions", input.instructions.join("\n\n"));
    }
    body.insert("input", Json::from_value(&input.items.list)?);
    insert_tools(request, &mut body);
    if let Some(output) = request.output
        && !request.options.has_original(NAME, ModelOption::ResponseFormat)
    {
        let format = if request.is_any_json() {
            fields! { "type": "json_object" }
        } else {
            json_schema(output)
        };
        body.insert("text", fields! { "format": format });
    }
    body.insert_some("max_output_tokens", request.max_tokens());
    let accepted = |temperature: &f64| accepts_temperature(request.model, *temperature);
    body.insert_some("temperature", request.temperature().filter(accepted));
    if may_reason(request.model) {
        body.insert("include", vec!["reasoning.encrypted_content"]);
    }
    body.insert("store", false);
    if request.stream {
        body.insert("stream", true);
    }
    Ok(write_options(request, NAME, body).into())
}

fn json_schema(output: &OutputFormat) -> Fields {
    let mut format = fields! { "type": "json_schema", "name": output.name.as_str() };
    format.insert_some("description", output.description.as_deref());
    format.insert("schema", output.schema.clone());
    format.insert("strict", output.is_strict());
    format
}

fn insert_tools(request: &Request<'_>, body: &mut Fields) {
    let tools: Vec<Json> =
        request.tools.iter().filter_map(|tool| tool.write(NAME, write_function)).collect();
    if !tools.is_empty() {
        body.insert("tools", to_json_list(&tools));
    } else if request.extra.raw("tools").is_none() {
        // A tool choice without tools is refused.
        return;
    }
    if request.options.has_original(NAME, ModelOption::ToolChoice) {
        return;
    }
    let named = |name: &str| json!({"type": "function", "name": name});
    match &request.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => body.insert("tool_choice", "none"),
        ToolChoice::Required => body.insert("tool_choice", "required"),
        ToolChoice::Tool(name) => body.insert("tool_choice", named(name)),
        ToolChoice::Allowed { required, names } => {
            let mode = if *required { "required" } else { "auto" };
            let tools: Vec<Value> = names.iter().map(|name| named(name)).collect();
            let choice = json!({"type": "allowed_tools", "mode": mode, "tools": tools});
            body.insert("tool_choice", choice);
        }
        ToolChoice::Other(choice) => body.insert("tool_choice", choice.clone()),
    }
}

fn write_function(tool: &ToolDefinition) -> Fields {
    let mut fields = fields! { "type": "function", "name": tool.name.as_str() };
    fields.insert_some("description", tool.written_description(NAME));
    fields.insert_some("parameters", tool.written_schema(NAME));
    match (tool.strict, tool.native_to(NAME)) {
        (Some(strict), _) => fields.insert("strict", strict),
        // The default is strict, which refuses most schemas.
        (None, None) => fields.insert("strict", false),
        (None, Some(_)) => {}
    }
    fields
}

/// Whether the provider stores the response, so that its items can be referred to.
fn is_stored(request: &Request<'_>) -> bool {
    let own = request.extra.raw("store").map(|store| *store == Json::from(true));
    own.or(request.options.store).unwrap_or(false)
}

/// Whether a model may reason. `OpenAI` refuses requests for encrypted reasoning from models that do not.
fn may_reason(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let never = ["gpt-3", "gpt-4", "chatgpt-", "gpt-5-chat", "ft:gpt-3", "ft:gpt-4"];
    !never.iter().any(|prefix| name.starts_with(prefix))
}

struct InputWriter<'a> {
    items: ItemWriter,
    /// System messages before all others.
    instructions: Vec<String>,
    is_stored: bool,
    ids: CallIds,
    tools: &'a [ToolDefinition],
}

impl InputWriter<'_> {
    fn push_message(&mut self, message: PromptMessage<'_>) {
        match message {
            PromptMessage::System(msg) => self.push_system(msg),
            PromptMessage::User { parts, .. } => self.push_user(&parts),
            PromptMessage::Assistant(parts) => self.push_assistant(&parts),
            PromptMessage::ToolResults(outcomes) => {
                for outcome in &outcomes {
                    self.push_outcome(outcome);
                }
            }
        }
    }

    /// Adds a system message. One of a client of this protocol is an item again.
    fn push_system(&mut self, msg: &Msg) {
        if let Some(native) = native::get(msg.metadata(), NAME) {
            return self.items.write_system_item(msg, &native);
        }
        let text = msg.text("\n").unwrap_or_default();
        if self.items.list.is_empty() {
            self.instructions.push(text);
        } else {
            self.items.push_message("system", &[input_text(&text)]);
        }
    }

    fn push_user(&mut self, parts: &[UserPart<'_>]) {
        let mut message = Vec::new();
        for part in parts {
            match part {
                UserPart::Text(block) => message.push(text_part(block)),
                UserPart::Data(block) => message.push(data_part(block)),
                // For example, a file by its id.
                UserPart::Item(fields) => message.extend(provider::block_to_item(NAME, fields)),
            }
        }
        self.items.push_message("user", &message);
    }

    fn push_assistant(&mut self, parts: &[AssistantPart<'_>]) {
        // Reasoning without an item after it was cut off, and is refused.
        let mut whole = self.items.list.len();
        for part in parts {
            match part {
                AssistantPart::Text(block) => self.items.push_text(block),
                AssistantPart::Thinking(block) => {
                    self.push_thinking(block);
                    continue;
                }
                AssistantPart::ToolCall(call) => self.push_call(call),
                AssistantPart::Data(block) => self.push_generated_data(block),
                AssistantPart::Item(fields) => match provider::block_to_item(NAME, fields) {
                    Some(item) => self.items.push(&item),
                    None => continue,
                },
            }
            whole = self.items.list.len();
        }
        self.items.list.truncate(whole);
    }

    fn push_call(&mut self, call: &ToolCall) {
        let mut call = call.clone();
        call.id = self.ids.next_call_id(&call.id);
        if ClientCall::of_call(&call.rest).is_some() {
            return self.items.push_call(&call);
        }
        call.name = sanitize_call_name(&call.name, self.tools, MAX_NAME_LENGTH).into_owned();
        // `OpenAI` requires this prefix; an item of another provider may have any id.
        let is_custom = item::has_item_type(&call.rest, item::CUSTOM_CALL);
        let begin = if is_custom { "ctc" } else { "fc" };
        let id: Option<String> = call.rest.get(item::ITEM_ID).ok().flatten();
        if !id.is_some_and(|id| id.starts_with(begin) && id.len() <= MAX_ID_LENGTH) {
            call.rest.remove(item::ITEM_ID);
        }
        if !is_custom {
            call.input = input_to_object_text(&call.input).into_owned();
        }
        self.items.push_call(&call);
    }

    /// Adds reasoning only as its original item, and only if the provider can read it: it is encrypted, or plain text, or
    /// stored.
    fn push_thinking(&mut self, block: &ThinkingBlock) {
        let Some(mut item) = item::reasoning_item(&block.rest) else { return };
        let id: Option<String> = item.get("id").ok().flatten();
        if id.is_some_and(|id| id.len() > MAX_ID_LENGTH) {
            item.remove("id");
        }
        let has = |key| {
            item.raw(key)
                .is_some_and(|value| !value.is_null() && !["[]", "\"\""].contains(&value.text()))
        };
        if self.is_stored || has("encrypted_content") || has("content") {
            self.items.push(&item);
        }
    }

    /// Adds data that the model made: an image of this wire is sent back, other data is replaced by a note.
    fn push_generated_data(&mut self, block: &DataBlock) {
        if item::has_item_type(&block.rest, item::IMAGE_CALL) && self.items.push_image(block) {
            return;
        }
        self.items.push_text(&TextBlock::new(describe_omitted_data(
            block,
            "a model cannot be shown what it made",
        )));
    }

    fn push_outcome(&mut self, outcome: &CallOutcome<'_>) {
        let text = outcome.text_with_failure();
        if let Some(kind) = ClientCall::of_call(&outcome.call.rest) {
            let id = self.ids.next_result_id();
            return self.items.push(&kind.write_result(&id, outcome.result, &text));
        }
        let has_data = outcome.data().next().is_some();
        let parts = if let Some(parts) = outcome.client_parts(NAME) {
            parts.iter().filter_map(result_part).collect()
        } else if has_data {
            let is_data_only = !outcome.is_error() && outcome.parts().iter().all(is_data);
            let text = (!is_data_only).then(|| input_text(&text));
            text.into_iter().chain(outcome.data().map(data_part)).collect()
        } else {
            Vec::new()
        };
        let output = match parts.as_slice() {
            [] => Json::from(text),
            parts => Json::from_value(parts).unwrap_or_else(|_| Json::from(text)),
        };
        let is_custom = item::has_item_type(&outcome.call.rest, item::CUSTOM_CALL);
        let id = self.ids.next_result_id();
        self.items.push_output(&id, is_custom, output);
    }
}

fn is_data(part: &Part) -> bool {
    match part {
        Part::Data(_) => true,
        Part::Text(block) => block.text.is_empty(),
        Part::Other(_) => false,
    }
}

fn result_part(part: &Part) -> Option<Fields> {
    match part {
        Part::Text(block) => Some(text_part(block)),
        Part::Data(block) => Some(data_part(block)),
        Part::Other(fields) => provider::block_to_item(NAME, fields),
    }
}

fn data_part(block: &DataBlock) -> Fields {
    accepted_data(block).unwrap_or_else(|why| input_text(&describe_omitted_data(block, why)))
}

/// The part for data that the model accepts; the error says why it does not.
fn accepted_data(block: &DataBlock) -> std::result::Result<Fields, &'static str> {
    let ready = normalize_data(block)?;
    check_accepted(&ready)?;
    media::data_to_part(&ready)
}

/// Whether a request has data, not a note that describes it.
pub(super) fn accepts_data(block: &DataBlock) -> bool {
    accepted_data(block).is_ok()
}

/// Documents other than text that are accepted as files.
const ACCEPTED_DOCUMENTS: [&str; 10] = [
    "application/pdf",
    "application/csv",
    "application/rtf",
    "application/msword",
    "application/vnd.ms-excel",
    "application/vnd.ms-powerpoint",
    "application/vnd.oasis.opendocument.text",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
];

/// Checks that the model accepts the data. The error says why not.
fn check_accepted(block: &DataBlock) -> std::result::Result<(), &'static str> {
    if matches!(block.source, Source::Other(_)) {
        return Ok(());
    }
    let kind = media_type(block).unwrap_or_default();
    match kind.split_once('/') {
        Some(("image", _)) if !openai_accepts_image(kind) => Err(ACCEPTED_IMAGES_ONLY),
        Some(("audio", _)) => Err("audio is not accepted"),
        Some(("application", _)) if !is_text(kind) && !ACCEPTED_DOCUMENTS.contains(&kind) => {
            Err("this kind of file is not accepted")
        }
        _ => Ok(()),
    }
}
