//! What a model is asked.

use super::message::{Items, input_text};
use super::{NAME, item, media};
use crate::provider;
use crate::request::{
    Answer, CallIds, Given, IMAGES_TAKEN, NOTHING, Request, Said, Tool, ToolChoice, Turn,
    arguments_text, call_name, is_strict, is_text, left_out, media_type, parameters, ready,
    takes_image, takes_temperature, turns, with_extra,
};
use serde_json::{Value, json};
use turnwire_core::{
    DataBlock, Fields, Json, Part, Result, Source, TextBlock, ThinkingBlock, ToolCall,
};

/// The most characters that `OpenAI` takes as the id of a call, and as a name.
const LONGEST_ID: usize = 64;
const LONGEST_NAME: usize = 64;

/// The body of a request.
pub(super) fn body(request: &Request<'_>) -> Result<Json> {
    let mut body = Fields::default();
    body.insert("model", request.model);
    let mut input = Input {
        items: Items::default(),
        instructions: Vec::new(),
        is_stored: is_stored(request),
        ids: CallIds::new(LONGEST_ID, |_| true),
        tools: request.tools,
    };
    for turn in turns(request.messages, request.agents) {
        input.turn(turn);
    }
    if input.items.list.is_empty() {
        input.items.message("user", &[input_text(NOTHING)]);
    }
    if !input.instructions.is_empty() {
        body.insert("instructions", input.instructions.join("\n\n"));
    }
    body.insert("input", Json::from_value(&input.items.list)?);
    tools(request, &mut body)?;
    if let Some(output) = request.output {
        let schema: Value = output.schema.parse_as()?;
        let mut format = Fields::default();
        format.insert("type", "json_schema");
        format.insert("name", output.name.as_str());
        format.insert("schema", output.schema.clone());
        format.insert("strict", is_strict(&schema));
        body.insert("text", Json::from_value(&Fields::from_iter([("format", Json::from_value(&format)?)]))?);
    }
    if let Some(most) = request.max_tokens {
        body.insert("max_output_tokens", most);
    }
    if let Some(temperature) = request.temperature
        && takes_temperature(request.model, temperature)
    {
        body.insert("temperature", temperature);
    }
    if may_reason(request.model) {
        body.insert("include", vec!["reasoning.encrypted_content"]);
    }
    body.insert("store", false);
    if request.stream {
        body.insert("stream", true);
    }
    Json::from_value(&with_extra(body, &request.extra))
}

fn tools(request: &Request<'_>, body: &mut Fields) -> Result<()> {
    if !request.tools.is_empty() {
        let tools: Vec<Fields> = request
            .tools
            .iter()
            .map(|tool| {
                let mut fields = Fields::default();
                fields.insert("type", "function");
                fields.insert("name", tool.name.as_str());
                fields.insert("description", tool.description.as_str());
                fields.insert("parameters", parameters(tool));
                // Here it is strict by default, and then most schemas are refused.
                fields.insert("strict", false);
                fields
            })
            .collect();
        body.insert("tools", Json::from_value(&tools)?);
    } else if request.extra.raw("tools").is_none() {
        // There is nothing to choose from, and it would be refused.
        return Ok(());
    }
    match &request.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => body.insert("tool_choice", "none"),
        ToolChoice::Required => body.insert("tool_choice", "required"),
        ToolChoice::Tool(name) => {
            body.insert("tool_choice", json!({"type": "function", "name": name}));
        }
    }
    Ok(())
}

/// Whether the provider keeps the response, so that its items can be referred to.
fn is_stored(request: &Request<'_>) -> bool {
    request.extra.raw("store").is_some_and(|store| *store == Json::from(true))
}

/// Whether a model may reason. `OpenAI` refuses to be asked for encrypted reasoning where it does not.
fn may_reason(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let never = ["gpt-3", "gpt-4", "chatgpt-", "gpt-5-chat", "ft:gpt-3", "ft:gpt-4"];
    !never.iter().any(|prefix| name.starts_with(prefix))
}

struct Input<'a> {
    items: Items,
    /// What the system says before anybody else does.
    instructions: Vec<String>,
    is_stored: bool,
    ids: CallIds,
    tools: &'a [Tool],
}

impl Input<'_> {
    fn turn(&mut self, turn: Turn<'_>) {
        match turn {
            Turn::System(text) if self.items.list.is_empty() => self.instructions.push(text),
            Turn::System(text) => self.items.message("system", &[input_text(&text)]),
            Turn::User(parts) => self.user(&parts),
            Turn::Assistant(said) => self.assistant(&said),
            Turn::Results(answers) => answers.iter().for_each(|answer| self.answer(answer)),
        }
    }

    fn user(&mut self, parts: &[Given<'_>]) {
        let mut message = Vec::new();
        for part in parts {
            match part {
                Given::Text(text) => message.push(input_text(text)),
                Given::Data(block) => message.push(data(block)),
                // Such as the answer to a question of the provider's own tools.
                Given::Item(fields) => {
                    if let Some(item) = provider::item(NAME, fields) {
                        self.items.message("user", &std::mem::take(&mut message));
                        self.items.push(&item);
                    }
                }
            }
        }
        self.items.message("user", &message);
    }

    fn assistant(&mut self, said: &[Said<'_>]) {
        // Reasoning with nothing behind it is refused: it was cut off.
        let mut whole = self.items.list.len();
        for said in said {
            match said {
                Said::Text(block) => self.items.text(block),
                Said::Thinking(block) => {
                    self.thinking(block);
                    continue;
                }
                Said::Call(call) => self.call(call),
                Said::Data(block) => self.made(block),
                Said::Item(fields) => match provider::item(NAME, fields) {
                    Some(item) => self.items.push(&item),
                    None => continue,
                },
            }
            whole = self.items.list.len();
        }
        self.items.list.truncate(whole);
    }

    fn call(&mut self, call: &ToolCall) {
        let mut call = call.clone();
        call.id = self.ids.call(&call.id);
        call.name = call_name(&call.name, self.tools, LONGEST_NAME).into_owned();
        // An item of another provider's may have any id; here it has to begin like this.
        let is_custom = item::is(&call.rest, item::CUSTOM_CALL);
        let begin = if is_custom { "ctc" } else { "fc" };
        let id: Option<String> = call.rest.get(item::ITEM_ID).ok().flatten();
        if !id.is_some_and(|id| id.starts_with(begin)) {
            call.rest.remove(item::ITEM_ID);
        }
        if !is_custom {
            call.input = arguments_text(&call.input).into_owned();
        }
        self.items.call(&call);
    }

    /// Reasoning goes back only as the item that it came in, and only where the provider can still
    /// read it: it was encrypted for that, or is open, or the provider has stored it.
    fn thinking(&mut self, block: &ThinkingBlock) {
        let Some(item) = item::reasoning(&block.rest) else { return };
        let has = |key| {
            item.raw(key)
                .is_some_and(|value| !value.is_null() && !["[]", "\"\""].contains(&value.text()))
        };
        if self.is_stored || has("encrypted_content") || has("content") {
            self.items.push(&item);
        }
    }

    /// Bytes that the model made: an image goes back where it came from.
    fn made(&mut self, block: &DataBlock) {
        if item::is(&block.rest, item::IMAGE_CALL) && self.items.image(block) {
            return;
        }
        self.items.text(&TextBlock::new(left_out(block, "a model cannot be shown what it made")));
    }

    fn answer(&mut self, answer: &Answer<'_>) {
        let mut text = answer.text();
        if answer.is_error() {
            text.insert_str(0, "Error: ");
        }
        let has_data = answer.data().next().is_some();
        let output = if has_data {
            let mut parts = vec![input_text(&text)];
            parts.extend(answer.parts().iter().filter_map(|part| match part {
                Part::Data(block) => Some(data(block)),
                _ => None,
            }));
            Json::from_value(&parts).unwrap_or_else(|_| Json::from(text))
        } else {
            Json::from(text)
        };
        let is_custom = item::is(&answer.call.rest, item::CUSTOM_CALL);
        let id = self.ids.answer();
        self.items.output(&id, is_custom, output);
    }
}

fn data(block: &DataBlock) -> Fields {
    let part = ready(block).and_then(|ready| {
        taken(&ready)?;
        media::part(&ready)
    });
    part.unwrap_or_else(|why| input_text(&left_out(block, why)))
}

/// Documents besides text that are taken as files.
const DOCUMENTS: [&str; 10] = [
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

/// Whether a model can be shown the data, or why not.
fn taken(block: &DataBlock) -> std::result::Result<(), &'static str> {
    if matches!(block.source, Source::Other(_)) {
        return Ok(());
    }
    let kind = media_type(block).unwrap_or_default();
    match kind.split_once('/') {
        Some(("image", _)) if !takes_image(kind) => Err(IMAGES_TAKEN),
        Some(("audio", _)) => Err("sound is not taken"),
        Some(("application", _)) if !is_text(kind) && !DOCUMENTS.contains(&kind) => {
            Err("this kind of file is not taken")
        }
        _ => Ok(()),
    }
}
