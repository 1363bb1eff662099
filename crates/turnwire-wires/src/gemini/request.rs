//! What a model is asked, as the body of `generateContent`.

use super::part;
use crate::request::{
    Answer, CLOSING, Given, NOTHING, OPENING, Request, Said, Tool, ToolChoice, Turn, call_name,
    is_text, left_out, list, object, parameters, ready, turns, usual_type, with_extra,
};
use std::borrow::Cow;
use turnwire_core::{DataBlock, Fields, Json, Source};

/// The most characters that Gemini takes as a name.
const LONGEST_NAME: usize = 64;

/// What Gemini 3 takes in place of the signature of a call that another model made; otherwise it
/// refuses the request.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn body(request: &Request<'_>) -> Json {
    let mut system = Vec::new();
    let mut contents = Contents::default();
    for turn in turns(request.messages, request.agents) {
        let (role, parts) = match turn {
            Turn::System(text) => {
                system.push(part::text(&text, &Fields::default()));
                continue;
            }
            Turn::User(given) => ("user", given.iter().filter_map(given_part).collect()),
            Turn::Assistant(said) => ("model", said_parts(&said, request)),
            Turn::Results(answers) => ("user", answer_parts(&answers, request.tools)),
        };
        contents.add(role, parts);
    }
    let mut body = Fields::default();
    if !system.is_empty() {
        body.insert("systemInstruction", object(&[("parts", list(&system))].into_iter().collect()));
    }
    body.insert("contents", contents.list());
    if !request.tools.is_empty() {
        tools(request, &mut body);
    }
    let config = generation_config(request);
    if !config.is_empty() {
        body.insert("generationConfig", object(&config));
    }
    object(&with_extra(body, &request.extra))
}

/// The contents in Gemini's form: the model's neighbours are one, or its calls would not come right
/// behind the user's turn, and the first and the last are the user's.
#[derive(Default)]
struct Contents(Vec<(&'static str, Vec<Json>)>);

impl Contents {
    fn add(&mut self, role: &'static str, parts: Vec<Json>) {
        if parts.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(("model", content)) if role == "model" => content.extend(parts),
            _ => self.0.push((role, parts)),
        }
    }

    fn list(mut self) -> Json {
        let line = |text: &str| vec![part::text(text, &Fields::default())];
        if self.0.first().is_some_and(|(role, _)| *role == "model") {
            self.0.insert(0, ("user", line(OPENING)));
        }
        match self.0.last() {
            None => self.add("user", line(NOTHING)),
            Some(("model", _)) => self.add("user", line(CLOSING)),
            Some(_) => {}
        }
        let contents = self.0.iter().map(|(role, parts)| part::content(role, parts));
        list(&contents.collect::<Vec<_>>())
    }
}

fn given_part(given: &Given<'_>) -> Option<Json> {
    match given {
        Given::Text(text) => Some(part::text(text, &Fields::default())),
        Given::Data(block) => Some(data_part(block)),
        Given::Item(item) => part::of_item(item),
    }
}

fn said_parts(said: &[Said<'_>], request: &Request<'_>) -> Vec<Json> {
    let mut first_call = true;
    let part = |said: &Said<'_>| match said {
        Said::Text(block) => Some(part::text(&block.text, &block.rest)),
        Said::Thinking(block)
            if block.thinking.is_empty() && block.rest.raw(part::SIGNATURE).is_none() =>
        {
            None
        }
        Said::Thinking(block) => Some(part::thinking(block)),
        Said::Data(block) => Some(data_part(block)),
        Said::Item(item) => part::of_item(item),
        Said::Call(call) => {
            let is_first = std::mem::replace(&mut first_call, false);
            let name = name(&call.name, request.tools);
            let is_signed = call.rest.raw(part::SIGNATURE).is_some();
            if is_first && !is_signed && wants_signatures(request.model) {
                let mut call = (*call).clone();
                call.rest.insert(part::SIGNATURE, NO_SIGNATURE);
                return Some(part::call(&call, &name));
            }
            Some(part::call(call, &name))
        }
    };
    said.iter().filter_map(part).collect()
}

/// Whether the model refuses a call without a signature. Only the first of a turn needs one.
fn wants_signatures(model: &str) -> bool {
    model.rsplit('/').next().is_some_and(|name| name.starts_with("gemini-3"))
}

/// A name that Gemini takes: it begins with a letter.
fn name<'n>(name: &'n str, tools: &[Tool]) -> Cow<'n, str> {
    let name = call_name(name, tools, LONGEST_NAME);
    if name.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return format!("_{name}").into();
    }
    name
}

/// The results of one turn in one turn, and behind them all that they hold besides text.
fn answer_parts(answers: &[Answer<'_>], tools: &[Tool]) -> Vec<Json> {
    let mut parts: Vec<Json> = answers.iter().map(|answer| response(answer, tools)).collect();
    for answer in answers {
        let mut data = answer.data().peekable();
        if data.peek().is_some() {
            let line = format!("What {} ({}) gave:", answer.call.name, answer.call.id);
            parts.push(part::text(&line, &Fields::default()));
        }
        parts.extend(data.map(data_part));
    }
    parts
}

fn response(answer: &Answer<'_>, tools: &[Tool]) -> Json {
    let key = if answer.is_error() { "error" } else { "output" };
    let name = name(&answer.call.name, tools);
    part::response(&answer.call.id, &name, key, &answer.text(), &[])
}

/// Bytes, or a URL that Gemini can read; otherwise a line that says what was left out.
fn data_part(block: &DataBlock) -> Json {
    let part = ready(block).and_then(|ready| {
        let is_web = |url: &str| {
            let url = url::Url::parse(url);
            matches!(url.as_ref().map_or("", url::Url::scheme), "http" | "https" | "gs")
        };
        match &ready.source {
            Source::Other(_) => return Err("its source is of an unknown kind"),
            Source::Url(source) if !is_web(&source.url) => {
                return Err("the model cannot read this address");
            }
            Source::Base64(_) | Source::Url(_) => {}
        }
        let kind = match (usual_type(&ready), &ready.source) {
            (Some(kind), _) => Some(taken(kind).ok_or("the model cannot read it")?),
            (None, Source::Base64(_)) => return Err("its type is not known"),
            (None, _) => None,
        };
        part::data(&ready, kind).ok_or("it cannot be read")
    });
    part.unwrap_or_else(|why| part::text(&left_out(block, why), &Fields::default()))
}

/// The type that Gemini is told; none where it takes no such data, and would refuse the request.
fn taken(kind: &str) -> Option<&str> {
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

fn tools(request: &Request<'_>, body: &mut Fields) {
    let declarations: Vec<Json> = request
        .tools
        .iter()
        .map(|tool| {
            let mut function = Fields::default();
            function.insert("name", tool.name.as_str());
            function.insert("description", tool.description.as_str());
            function.insert("parametersJsonSchema", parameters(tool));
            object(&function)
        })
        .collect();
    let tool = object(&[("functionDeclarations", list(&declarations))].into_iter().collect());
    body.insert("tools", list(&[tool]));
    let (mode, names) = match &request.tool_choice {
        ToolChoice::Auto => ("AUTO", None),
        ToolChoice::None => ("NONE", None),
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Tool(name) => ("ANY", Some(vec![name.clone()])),
    };
    let mut config = Fields::default();
    config.insert("mode", mode);
    if let Some(names) = names {
        config.insert("allowedFunctionNames", names);
    }
    let config = object(&[("functionCallingConfig", object(&config))].into_iter().collect());
    body.insert("toolConfig", config);
}

fn generation_config(request: &Request<'_>) -> Fields {
    let mut config = Fields::default();
    if let Some(most) = request.max_tokens {
        config.insert("maxOutputTokens", most);
    }
    if let Some(temperature) = request.temperature {
        config.insert("temperature", temperature);
    }
    if let Some(output) = request.output {
        config.insert("responseMimeType", "application/json");
        config.insert("responseJsonSchema", output.schema.clone());
    }
    config
}
