//! Writes the body of a chat completion request.

use super::NAME;
use super::message::message_part;
use super::parts::{
    AssistantMessage, add_message_fields, add_native, call_part, data_part, is_plain_text,
    item_part, text_block_part, text_part, to_content,
};
use crate::json::fields;
use crate::model_options::{ModelOption, write_options};
use crate::model_request::{
    ACCEPTED_IMAGES_ONLY, AssistantPart, CallIds, CallOutcome, ONLY_USER_TEXT, OutputFormat,
    PromptMessage, Request, ToolChoice, ToolDefinition, UserPart, accepts_temperature,
    build_prompt, describe_omitted_data, input_to_object_text, is_text, media_type, normalize_data,
    openai_accepts_image, read_text_file, sanitize_call_name, to_json_list,
};
use crate::native;
use serde_json::{Value, json};
use turnwire_core::{DataBlock, Fields, Json, Msg, Result, ToolCall};

/// The maximum lengths that `OpenAI` accepts for a call id and a tool name.
const MAX_ID_LENGTH: usize = 40;
const MAX_NAME_LENGTH: usize = 64;

/// Writes the body of a request.
pub(super) fn build_body(request: &Request<'_>) -> Result<Json> {
    let mut body = Fields::default();
    body.insert("model", request.model);
    body.insert("messages", build_messages(request));
    if request.stream {
        body.insert("stream", true);
        body.insert("stream_options", json!({"include_usage": true}));
    }
    let options = &request.options;
    if let Some(limit) = request.max_tokens()
        && !options.has_original(NAME, ModelOption::MaxTokens)
    {
        body.insert(token_limit_field(request.model), limit);
    }
    if let Some(temperature) = request.temperature()
        && accepts_temperature(request.model, temperature)
    {
        body.insert("temperature", temperature);
    }
    let tools: Vec<Json> =
        request.tools.iter().filter_map(|tool| tool.write(NAME, write_function)).collect();
    if !tools.is_empty() {
        body.insert("tools", to_json_list(&tools));
        let choice = tool_choice(&request.tool_choice);
        if let Some(choice) =
            choice.filter(|_| !options.has_original(NAME, ModelOption::ToolChoice))
        {
            body.insert("tool_choice", choice);
        }
    }
    if let Some(output) = request.output
        && !options.has_original(NAME, ModelOption::ResponseFormat)
    {
        let format = if request.is_any_json() {
            json!({"type": "json_object"})
        } else {
            response_format(output)?
        };
        body.insert("response_format", format);
    }
    Json::from_value(&write_options(request, NAME, body))
}

fn write_function(tool: &ToolDefinition) -> Fields {
    let mut function = fields! { "name": tool.name.as_str() };
    function.insert_some("description", tool.written_description(NAME));
    function.insert_some("parameters", tool.written_schema(NAME));
    function.insert_some("strict", tool.strict);
    fields! { "type": "function", "function": function }
}

/// The tool choice; `None` is the default.
fn tool_choice(choice: &ToolChoice) -> Option<Json> {
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Tool(name) => Some(named(name).into()),
        ToolChoice::Allowed { required, names } => {
            let mode = if *required { "required" } else { "auto" };
            let tools: Vec<Value> = names.iter().map(|name| named(name)).collect();
            let allowed = json!({"mode": mode, "tools": tools});
            Some(json!({"type": "allowed_tools", "allowed_tools": allowed}).into())
        }
        ToolChoice::Other(choice) => Some(choice.clone()),
    }
}

/// The field for the token limit. `OpenAI`'s reasoning models require the new name; compatible APIs know only the old one.
fn token_limit_field(model: &str) -> &'static str {
    if is_openai_model(model) { "max_completion_tokens" } else { "max_tokens" }
}

/// Whether a model is one of `OpenAI`'s own.
fn is_openai_model(model: &str) -> bool {
    let model = model.strip_prefix("openai/").unwrap_or(model);
    let numbered = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    model.starts_with("gpt-") && !model.starts_with("gpt-oss")
        || model.starts_with("chatgpt-")
        || model.strip_prefix('o').is_some_and(numbered)
}

fn response_format(output: &OutputFormat) -> Result<Value> {
    let schema: Value = output.schema.parse_as()?;
    let mut named = json!({"name": output.name, "strict": output.is_strict(), "schema": schema});
    if let (Some(about), Some(named)) = (&output.description, named.as_object_mut()) {
        named.insert("description".to_owned(), about.as_str().into());
    }
    Ok(json!({"type": "json_schema", "json_schema": named}))
}

fn build_messages(request: &Request<'_>) -> Vec<Value> {
    // DeepSeek and Moonshot require thinking back, whichever field it came in.
    let model = request.model.rsplit('/').next().unwrap_or_default();
    let wanted = ["deepseek", "kimi", "moonshot"].iter().any(|name| model.starts_with(name));
    let mut calls = ReplyWriter {
        ids: CallIds::new(MAX_ID_LENGTH, |_| true),
        tools: request.tools,
        thinking: match (is_openai_model(request.model), wanted) {
            (true, _) => ThinkingPolicy::Never,
            (false, false) => ThinkingPolicy::Original,
            (false, true) => ThinkingPolicy::OriginalOr("reasoning_content"),
        },
    };

    let mut messages = Vec::new();
    for message in build_prompt(request.messages, request.speaker_format) {
        match message {
            PromptMessage::System(msg) => messages.push(system_message(msg)),
            PromptMessage::User { parts, msg } => {
                let parts: Vec<Value> = parts.iter().filter_map(user_part).collect();
                if !parts.is_empty() {
                    let mut message = json!({"role": "user", "content": to_content(parts)});
                    add_native(&mut message, msg.map(Msg::metadata));
                    messages.push(message);
                }
            }
            PromptMessage::Assistant(parts) => {
                messages.extend(assistant_message(&parts, &mut calls));
            }
            PromptMessage::ToolResults(outcomes) => {
                push_results(&outcomes, &mut calls, &mut messages);
            }
        }
    }
    if messages.is_empty() {
        messages.push(json!({"role": "user", "content": ONLY_USER_TEXT}));
    }
    messages
}

/// A system message. One of a client of this protocol is written as it came.
fn system_message(msg: &Msg) -> Value {
    let Some(native) = native::get(msg.metadata(), NAME) else {
        return json!({"role": "system", "content": msg.text("\n")});
    };
    let parts = msg.content().iter().filter_map(message_part).collect();
    let mut message = json!({"role": native::system_role(&native), "content": to_content(parts)});
    add_native(&mut message, Some(msg.metadata()));
    message
}

/// What the assistant messages of one request share.
struct ReplyWriter<'a> {
    ids: CallIds,
    tools: &'a [ToolDefinition],
    thinking: ThinkingPolicy,
}

/// Where thinking is sent.
#[derive(Clone, Copy)]
enum ThinkingPolicy {
    /// Nowhere: `OpenAI` sends none, and refuses that of others.
    Never,
    /// In the field that it came in.
    Original,
    /// In the field that it came in, or in this one if that is unknown.
    OriginalOr(&'static str),
}

impl ReplyWriter<'_> {
    fn write_call(&mut self, block: &ToolCall) -> Value {
        let id = self.ids.next_call_id(&block.id);
        let name = sanitize_call_name(&block.name, self.tools, MAX_NAME_LENGTH);
        // Many compatible APIs parse the input, and refuse truncated JSON.
        let mut piece = call_part(block, &id, &name, &input_to_object_text(&block.input));
        if matches!(self.thinking, ThinkingPolicy::Never)
            && let Some(piece) = piece.as_object_mut()
        {
            piece.remove("extra_content");
        }
        piece
    }
}

fn user_part(part: &UserPart<'_>) -> Option<Value> {
    match part {
        UserPart::Text(block) => Some(text_block_part(block)),
        UserPart::Data(block) => Some(data_or_note(block).unwrap_or_else(|line| text_part(&line))),
        UserPart::Item(fields) => item_part(fields),
    }
}

/// A part for data; the error is a text that says what was left out.
fn data_or_note(block: &DataBlock) -> std::result::Result<Value, String> {
    normalize_data(block)
        .and_then(|ready| data_to_part(&ready))
        .map_err(|why| describe_omitted_data(block, why))
}

/// Whether a request has data, not a note that describes it.
pub(super) fn accepts_data(block: &DataBlock) -> bool {
    data_or_note(block).is_ok()
}

fn data_to_part(block: &DataBlock) -> std::result::Result<Value, &'static str> {
    // Only PDF is accepted as a file.
    if let Some(text) = read_text_file(block) {
        return Ok(text_part(&text));
    }
    match media_type(block) {
        Some(kind) if is_text(kind) => Err("it is not UTF-8 text"),
        Some(kind) if kind.starts_with("image/") && !openai_accepts_image(kind) => {
            Err(ACCEPTED_IMAGES_ONLY)
        }
        _ => data_part(block),
    }
}

fn assistant_message(parts: &[AssistantPart<'_>], calls: &mut ReplyWriter<'_>) -> Option<Value> {
    let mut message = AssistantMessage::default();
    let rests = parts.iter().filter_map(rest_of);
    for part in parts {
        match part {
            AssistantPart::Text(block) => message.add_text(block),
            AssistantPart::Thinking(block) => match calls.thinking {
                ThinkingPolicy::Never => {}
                ThinkingPolicy::Original => message.add_thinking(block, None),
                ThinkingPolicy::OriginalOr(field) => message.add_thinking(block, Some(field)),
            },
            AssistantPart::Data(block) => {
                if !message.add_audio(block) {
                    let why = "the model cannot be shown what it made";
                    message.parts.push(text_part(&describe_omitted_data(block, why)));
                }
            }
            AssistantPart::ToolCall(block) => message.calls.push(calls.write_call(block)),
            AssistantPart::Item(fields) => message.parts.extend(item_part(fields)),
        }
    }
    if message.is_empty() {
        return None;
    }
    let parts = std::mem::take(&mut message.parts);
    let content = if parts.is_empty() {
        // Content may be null beside tool calls or a refusal; otherwise some APIs require text.
        if message.needs_content() { "".into() } else { Value::Null }
    } else if parts.iter().all(|part| part.as_object().is_some_and(is_plain_text)) {
        // Many compatible APIs accept no list here.
        let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
        texts.join("\n").into()
    } else {
        parts.into()
    };
    let mut message = message.into_json("", content);
    for rest in rests {
        add_message_fields(&mut message, rest);
    }
    Some(message)
}

/// The other fields of a part.
fn rest_of<'a>(part: &AssistantPart<'a>) -> Option<&'a Fields> {
    match part {
        AssistantPart::Text(block) => Some(&block.rest),
        AssistantPart::Thinking(block) => Some(&block.rest),
        AssistantPart::Data(block) => Some(&block.rest),
        AssistantPart::ToolCall(call) => Some(&call.rest),
        AssistantPart::Item(_) => None,
    }
}

/// Adds one tool message per call, then a user message with the data that a tool message cannot hold.
fn push_results(
    outcomes: &[CallOutcome<'_>],
    calls: &mut ReplyWriter<'_>,
    messages: &mut Vec<Value>,
) {
    let mut result_data = Vec::new();
    for outcome in outcomes {
        let id = calls.ids.next_result_id();
        if let Some(parts) = outcome.client_parts(NAME) {
            let parts: Vec<Value> =
                parts.iter().filter_map(|part| user_part(&part.into())).collect();
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": parts}));
            continue;
        }
        let mut text = outcome.text_with_failure();
        let mut parts = Vec::new();
        for block in outcome.data() {
            match data_or_note(block) {
                Ok(part) => parts.push(part),
                Err(line) => {
                    text.push('\n');
                    text.push_str(&line);
                }
            }
        }
        if !parts.is_empty() {
            let name = &outcome.call.name;
            result_data.push(text_part(&format!("What the call {id} of {name} gave:")));
            result_data.extend(parts);
        }
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
    }
    if !result_data.is_empty() {
        messages.push(json!({"role": "user", "content": result_data}));
    }
}
