//! Writes the body of `generateContent`.

use super::{NAME, part};
use crate::json::fields;
use crate::model_options::{reduce_to_allowed_tools, write_options};
use crate::model_request::{
    AssistantPart, CallOutcome, FIRST_USER_TEXT, LAST_USER_TEXT, ONLY_USER_TEXT, PromptMessage,
    Request, ToolChoice, ToolDefinition, UserPart, build_prompt, default_media_type,
    describe_omitted_data, input_schema, is_text, normalize_data, sanitize_call_name, to_json_list,
};
use std::borrow::Cow;
use turnwire_core::{DataBlock, Fields, Json, Source};

/// The maximum length of a function name.
const MAX_NAME_LENGTH: usize = 64;

/// The value that Gemini 3 accepts instead of the signature of a call that another model made. It refuses a request
/// without either.
const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn build_body(request: &Request<'_>) -> Json {
    let mut system = Vec::new();
    let mut contents = Contents::default();
    for message in build_prompt(request.messages, request.speaker_format) {
        let (role, parts) = match message {
            PromptMessage::System(msg) => {
                let text = msg.text("\n").unwrap_or_default();
                system.push(part::text_part(&text, &Fields::default()));
                continue;
            }
            PromptMessage::User { parts, .. } => {
                ("user", parts.iter().filter_map(user_part).collect())
            }
            PromptMessage::Assistant(parts) => ("model", assistant_parts(&parts, request)),
            PromptMessage::ToolResults(outcomes) => {
                ("user", result_parts(&outcomes, request.tools))
            }
        };
        contents.push(role, parts);
    }
    let mut body = Fields::default();
    if !system.is_empty() {
        body.insert("systemInstruction", fields! { "parts": to_json_list(&system) });
    }
    body.insert("contents", contents.into_json(request.ends_with_prefill()));
    insert_tools(request, &mut body);
    let config = generation_config(request);
    body.insert_fields("generationConfig", &config);
    write_options(request, NAME, body).into()
}

/// The contents in Gemini's format. Adjacent ones of the model are joined, because calls must directly follow a user's
/// content. The first and the last are the user's, unless the last is the beginning of the answer.
#[derive(Default)]
struct Contents(Vec<(&'static str, Vec<Json>)>);

impl Contents {
    fn push(&mut self, role: &'static str, parts: Vec<Json>) {
        if parts.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(("model", content)) if role == "model" => content.extend(parts),
            _ => self.0.push((role, parts)),
        }
    }

    fn into_json(mut self, has_prefill: bool) -> Json {
        let line = |text: &str| vec![part::text_part(text, &Fields::default())];
        if self.0.first().is_some_and(|(role, _)| *role == "model") {
            self.0.insert(0, ("user", line(FIRST_USER_TEXT)));
        }
        match self.0.last() {
            None => self.push("user", line(ONLY_USER_TEXT)),
            Some(("model", _)) if !has_prefill => self.push("user", line(LAST_USER_TEXT)),
            Some(_) => {}
        }
        let contents = self.0.iter().map(|(role, parts)| part::content_json(role, parts));
        to_json_list(&contents.collect::<Vec<_>>())
    }
}

fn user_part(part: &UserPart<'_>) -> Option<Json> {
    match part {
        UserPart::Text(block) => Some(part::text_part(&block.text, &Fields::default())),
        UserPart::Data(block) => Some(data_or_note(block)),
        UserPart::Item(item) => part::item_to_part(item),
    }
}

fn assistant_parts(parts: &[AssistantPart<'_>], request: &Request<'_>) -> Vec<Json> {
    let mut first_call = true;
    let write = |part: &AssistantPart<'_>| match part {
        AssistantPart::Text(block) => Some(part::text_part(&block.text, &block.rest)),
        AssistantPart::Thinking(block)
            if block.thinking.is_empty() && block.rest.raw(part::SIGNATURE_FIELD).is_none() =>
        {
            None
        }
        AssistantPart::Thinking(block) => Some(part::thinking_part(block)),
        AssistantPart::Data(block) => Some(data_or_note(block)),
        AssistantPart::Item(item) => part::item_to_part(item),
        AssistantPart::ToolCall(call) => {
            let is_first = std::mem::replace(&mut first_call, false);
            let name = tool_name(&call.name, request.tools);
            let is_signed = call.rest.raw(part::SIGNATURE_FIELD).is_some();
            if is_first && !is_signed && wants_signatures(request.model) {
                let mut call = (*call).clone();
                call.rest.insert(part::SIGNATURE_FIELD, SKIP_SIGNATURE);
                return Some(part::call_part(&call, &name));
            }
            Some(part::call_part(call, &name))
        }
    };
    parts.iter().filter_map(write).collect()
}

/// Whether the model requires a signature on the first call of each content.
fn wants_signatures(model: &str) -> bool {
    model.rsplit('/').next().is_some_and(|name| name.starts_with("gemini-3"))
}

/// A function name that Gemini accepts: it must not begin with a digit or `-`.
fn tool_name<'n>(name: &'n str, tools: &[ToolDefinition]) -> Cow<'n, str> {
    let name = sanitize_call_name(name, tools, MAX_NAME_LENGTH);
    if name.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return format!("_{name}").into();
    }
    name
}

/// The function responses in one content, followed by their data.
fn result_parts(outcomes: &[CallOutcome<'_>], tools: &[ToolDefinition]) -> Vec<Json> {
    let mut parts: Vec<Json> =
        outcomes.iter().map(|outcome| outcome_to_part(outcome, tools)).collect();
    for outcome in outcomes {
        let heading = outcome.data_heading();
        parts.extend(heading.map(|line| part::text_part(&line, &Fields::default())));
        parts.extend(outcome.data().map(data_or_note));
    }
    parts
}

fn outcome_to_part(outcome: &CallOutcome<'_>, tools: &[ToolDefinition]) -> Json {
    let key = if outcome.is_error() { "error" } else { "output" };
    let name = tool_name(&outcome.call.name, tools);
    part::response_part(&outcome.call.id, &name, key, &outcome.text(), &[])
}

/// A part with bytes or a URL that Gemini can read; otherwise a text that says what was left out.
fn data_or_note(block: &DataBlock) -> Json {
    accepted_data(block).unwrap_or_else(|why| {
        part::text_part(&describe_omitted_data(block, why), &Fields::default())
    })
}

/// Whether a request has data, not a note that describes it.
pub(super) fn accepts_data(block: &DataBlock) -> bool {
    accepted_data(block).is_ok()
}

/// The part for data that the model can read; the error says why it cannot.
fn accepted_data(block: &DataBlock) -> Result<Json, &'static str> {
    normalize_data(block).and_then(|ready| {
        let is_web = |url: &str| {
            let url = url::Url::parse(url);
            matches!(url.as_ref().map_or("", url::Url::scheme), "http" | "https" | "gs")
        };
        match &ready.source {
            Source::Other(_) => return Err("its source is of an unknown kind"),
            Source::Url(source) if !is_web(&source.url) => {
                return Err("the model cannot read this URL");
            }
            Source::Base64(_) | Source::Url(_) => {}
        }
        let kind = match (default_media_type(&ready), &ready.source) {
            (Some(kind), _) => Some(accepted_type(kind).ok_or("the model cannot read it")?),
            (None, Source::Base64(_)) => return Err("its type is not known"),
            (None, _) => None,
        };
        part::data_part(&ready, kind).ok_or("it cannot be read")
    })
}

/// The media type to declare; `None` if Gemini accepts no such data and would refuse the request.
fn accepted_type(kind: &str) -> Option<&str> {
    const IMAGES: [&str; 5] = ["png", "jpeg", "webp", "heic", "heif"];
    const TEXTS: [&str; 7] = ["plain", "html", "css", "csv", "markdown", "xml", "rtf"];
    match kind.split_once('/')? {
        ("image", word) => IMAGES.contains(&word).then_some(kind),
        ("audio" | "video", _) => Some(kind),
        ("text", word) if TEXTS.contains(&word) => Some(kind),
        _ if kind == "application/pdf" => Some(kind),
        _ => is_text(kind).then_some("text/plain"),
    }
}

fn insert_tools(request: &Request<'_>, body: &mut Fields) {
    let offered = reduce_to_allowed_tools(request.tools, &request.tool_choice, NAME);
    let tools = offered.tools.into_iter().filter(|tool| tool.is_written_to(NAME));
    let declarations = tools.map(|tool| {
        let function = fields! {
            "name": tool.name.as_str(),
            "description": tool.description.as_str(),
            "parametersJsonSchema": input_schema(tool),
        };
        Json::from(function)
    });
    let declarations: Vec<Json> = declarations.collect();
    if declarations.is_empty() {
        return;
    }
    let tool = fields! { "functionDeclarations": to_json_list(&declarations) };
    body.insert("tools", to_json_list(&[tool.into()]));
    let (mode, names) = match &*offered.choice {
        ToolChoice::Auto | ToolChoice::Allowed { required: false, .. } | ToolChoice::Other(_) => {
            ("AUTO", None)
        }
        ToolChoice::None => ("NONE", None),
        ToolChoice::Required | ToolChoice::Allowed { required: true, .. } => ("ANY", None),
        ToolChoice::Tool(name) => ("ANY", Some(vec![name.clone()])),
    };
    let mut config = fields! { "mode": mode };
    config.insert_some("allowedFunctionNames", names);
    body.insert("toolConfig", fields! { "functionCallingConfig": config });
}

fn generation_config(request: &Request<'_>) -> Fields {
    let mut config = Fields::default();
    config.insert_some("maxOutputTokens", request.max_tokens());
    config.insert_some("temperature", request.temperature());
    if let Some(output) = request.output {
        config.insert("responseMimeType", "application/json");
        if !request.is_any_json() {
            config.insert("responseJsonSchema", output.schema.clone());
        }
    }
    config
}
