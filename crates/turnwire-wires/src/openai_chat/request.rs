//! A request to a model.

use super::parts::{Assistant, call, data_part, item, text_part};
use crate::request::{
    Answer, CallIds, Given, IMAGES_TAKEN, NOTHING, Output, Request, Said, Tool, ToolChoice, Turn,
    arguments_text, as_text, call_name, is_strict, is_text, left_out, media_type, parameters,
    ready, takes_image, takes_temperature, turns, with_extra,
};
use serde_json::{Value, json};
use turnwire_core::{DataBlock, Fields, Json, Result, ToolCall};

/// The most characters that `OpenAI` takes as the id of a call, and as a name.
const LONGEST_ID: usize = 40;
const LONGEST_NAME: usize = 64;

/// The body of a request.
pub(super) fn body(request: &Request<'_>) -> Result<Json> {
    let mut body = Fields::default();
    body.insert("model", request.model);
    body.insert("messages", messages(request));
    if request.stream {
        body.insert("stream", true);
        body.insert("stream_options", json!({"include_usage": true}));
    }
    if let Some(limit) = request.max_tokens {
        body.insert(limit_name(request.model), limit);
    }
    if let Some(temperature) = request.temperature
        && takes_temperature(request.model, temperature)
    {
        body.insert("temperature", temperature);
    }
    if !request.tools.is_empty() {
        let mut tools = Vec::new();
        for tool in request.tools {
            let function = json!({
                "name": tool.name,
                "description": tool.description,
                "parameters": parameters(tool).parse_as::<Value>()?,
            });
            tools.push(json!({"type": "function", "function": function}));
        }
        body.insert("tools", tools);
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body.insert("tool_choice", "none"),
            ToolChoice::Required => body.insert("tool_choice", "required"),
            ToolChoice::Tool(name) => {
                body.insert("tool_choice", json!({"type": "function", "function": {"name": name}}));
            }
        }
    }
    if let Some(output) = request.output {
        body.insert("response_format", response_format(output)?);
    }
    Json::from_value(&with_extra(body, &request.extra))
}

/// `OpenAI` has a new name for it, which its reasoning models insist on; the look-alikes know the
/// old one.
fn limit_name(model: &str) -> &'static str {
    if is_theirs(model) { "max_completion_tokens" } else { "max_tokens" }
}

/// Whether a model is one of `OpenAI`'s own.
fn is_theirs(model: &str) -> bool {
    let model = model.strip_prefix("openai/").unwrap_or(model);
    let numbered = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    model.starts_with("gpt-") && !model.starts_with("gpt-oss")
        || model.starts_with("chatgpt-")
        || model.strip_prefix('o').is_some_and(numbered)
}

fn response_format(output: &Output) -> Result<Value> {
    let schema: Value = output.schema.parse_as()?;
    let strict = is_strict(&schema);
    let named = json!({"name": output.name, "strict": strict, "schema": schema});
    Ok(json!({"type": "json_schema", "json_schema": named}))
}

fn messages(request: &Request<'_>) -> Vec<Value> {
    // DeepSeek and Moonshot want all of their thinking back, whoever kept it.
    let model = request.model.rsplit('/').next().unwrap_or_default();
    let wanted = ["deepseek", "kimi", "moonshot"].iter().any(|name| model.starts_with(name));
    let mut calls = Calls {
        ids: CallIds::new(LONGEST_ID, |_| true),
        tools: request.tools,
        thinking: match (is_theirs(request.model), wanted) {
            (true, _) => Thinking::Never,
            (false, false) => Thinking::AsItCame,
            (false, true) => Thinking::Or("reasoning_content"),
        },
    };

    let mut messages = Vec::new();
    for turn in turns(request.messages, request.agents) {
        match turn {
            Turn::System(text) => messages.push(json!({"role": "system", "content": text})),
            Turn::User(parts) => {
                let parts: Vec<Value> = parts.iter().filter_map(given).collect();
                if !parts.is_empty() {
                    messages.push(json!({"role": "user", "content": content(parts)}));
                }
            }
            Turn::Assistant(said) => messages.extend(assistant(&said, &mut calls)),
            Turn::Results(answers) => results(&answers, &mut calls, &mut messages),
        }
    }
    if messages.is_empty() {
        messages.push(json!({"role": "user", "content": NOTHING}));
    }
    messages
}

/// What the writing of a reply depends on.
struct Calls<'a> {
    ids: CallIds,
    tools: &'a [Tool],
    thinking: Thinking,
}

/// Where thinking goes.
#[derive(Clone, Copy)]
enum Thinking {
    /// Nowhere: `OpenAI` never sends any, and refuses that of others.
    Never,
    /// Where it came.
    AsItCame,
    /// Into this field, where it does not say where it came.
    Or(&'static str),
}

impl Calls<'_> {
    fn written(&mut self, block: &ToolCall) -> Value {
        let id = self.ids.call(&block.id);
        let name = call_name(&block.name, self.tools, LONGEST_NAME);
        // Many look-alikes read the input, and refuse what is cut off.
        let mut piece = call(block, &id, &name, &arguments_text(&block.input));
        if matches!(self.thinking, Thinking::Never)
            && let Some(piece) = piece.as_object_mut()
        {
            piece.remove("extra_content");
        }
        piece
    }
}

fn given(part: &Given<'_>) -> Option<Value> {
    match part {
        Given::Text(text) => Some(text_part(text)),
        Given::Data(block) => Some(data(block).unwrap_or_else(|line| text_part(&line))),
        Given::Item(fields) => item(fields),
    }
}

/// A part for data, or a line that says what was left out.
fn data(block: &DataBlock) -> std::result::Result<Value, String> {
    ready(block).and_then(|ready| part(&ready)).map_err(|why| left_out(block, why))
}

fn part(block: &DataBlock) -> std::result::Result<Value, &'static str> {
    // Only PDF is taken as a file.
    if let Some(text) = as_text(block) {
        return Ok(text_part(&text));
    }
    match media_type(block) {
        Some(kind) if is_text(kind) => Err("it is no text"),
        Some(kind) if kind.starts_with("image/") && !takes_image(kind) => Err(IMAGES_TAKEN),
        _ => data_part(block),
    }
}

/// A single text is a string, as every look-alike takes it.
fn content(mut parts: Vec<Value>) -> Value {
    match parts.as_mut_slice() {
        [Value::Object(part)] if is_text_part(part) => part.remove("text").unwrap_or_default(),
        _ => parts.into(),
    }
}

fn is_text_part(part: &serde_json::Map<String, Value>) -> bool {
    part.get("type").is_some_and(|kind| kind == "text")
}

fn assistant(said: &[Said<'_>], calls: &mut Calls<'_>) -> Option<Value> {
    let mut message = Assistant::default();
    for said in said {
        match said {
            Said::Text(block) => message.parts.push(text_part(&block.text)),
            Said::Thinking(block) => match calls.thinking {
                Thinking::Never => {}
                Thinking::AsItCame => message.thinking(block, None),
                Thinking::Or(field) => message.thinking(block, Some(field)),
            },
            Said::Data(block) => {
                if !message.audio(block) {
                    let why = "the model cannot be shown what it made";
                    message.parts.push(text_part(&left_out(block, why)));
                }
            }
            Said::Call(block) => message.calls.push(calls.written(block)),
            Said::Item(fields) => message.parts.extend(item(fields)),
        }
    }
    if message.is_empty() {
        return None;
    }
    let parts = std::mem::take(&mut message.parts);
    let content = if parts.is_empty() {
        // With calls there may be none; without, some insist on a text.
        if message.calls.is_empty() { "".into() } else { Value::Null }
    } else if parts.iter().all(|part| part.as_object().is_some_and(is_text_part)) {
        // Many look-alikes take no list here.
        let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
        texts.join("\n").into()
    } else {
        parts.into()
    };
    Some(message.message("", content))
}

/// One message for each call, then one of the user's with what a tool's message cannot hold.
fn results(answers: &[Answer<'_>], calls: &mut Calls<'_>, messages: &mut Vec<Value>) {
    let mut shown = Vec::new();
    for answer in answers {
        let mut text = answer.text();
        if answer.is_error() {
            text.insert_str(0, "Error: ");
        }
        let mut parts = Vec::new();
        for block in answer.data() {
            match data(block) {
                Ok(part) => parts.push(part),
                Err(line) => {
                    text.push('\n');
                    text.push_str(&line);
                }
            }
        }
        let id = calls.ids.answer();
        if !parts.is_empty() {
            let name = &answer.call.name;
            shown.push(text_part(&format!("What the call {id} of {name} gave:")));
            shown.extend(parts);
        }
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
    }
    if !shown.is_empty() {
        messages.push(json!({"role": "user", "content": shown}));
    }
}
