//! What a model is asked, as the body of a request.

use super::content::{self, json, object, plain_text};
use super::{NAME, schema};
use crate::provider;
use crate::request::{
    Answer, CLOSING, CallIds, Given, NOTHING, OPENING, Request, Said, Tool, ToolChoice, Turn,
    call_name, is_plain, left_out, parameters, ready, takes_temperature, turns, with_extra,
};
use std::collections::HashSet;
use turnwire_core::{DataBlock, Fields, Json, Part};

/// Anthropic wants a limit.
const MAX_TOKENS: u32 = 4096;

/// The most characters that Anthropic takes as a name.
const LONGEST_NAME: usize = 128;

pub(super) fn body(request: &Request<'_>) -> Json {
    let mut system: Vec<String> = Vec::new();
    let mut messages = Messages::default();
    let mut calls = Calls { ids: CallIds::new(usize::MAX, is_plain), tools: request.tools };
    for turn in turns(request.messages, request.agents) {
        match turn {
            Turn::System(text) if text.trim().is_empty() => {}
            Turn::System(text) => system.push(text),
            Turn::User(parts) => messages.add("user", parts.iter().filter_map(given)),
            Turn::Assistant(parts) => {
                let blocks = parts.iter().filter_map(|part| calls.said(part));
                messages.add("assistant", blocks);
            }
            Turn::Results(answers) => messages.add("user", calls.answers(&answers)),
        }
    }
    let mut body = object([
        ("model", request.model.into()),
        ("max_tokens", request.max_tokens.unwrap_or(MAX_TOKENS).into()),
    ]);
    if !system.is_empty() {
        body.insert("system", system.join("\n\n"));
    }
    body.insert("messages", messages.list());
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let mut fields = object([("name", tool.name.as_str().into())]);
            if !tool.description.is_empty() {
                fields.insert("description", tool.description.as_str());
            }
            fields.insert("input_schema", parameters(tool));
            json(&fields)
        });
        body.insert("tools", content::list(&tools.collect::<Vec<_>>()));
        body.insert("tool_choice", json(&tool_choice(&request.tool_choice)));
    }
    if let Some(output) = request.output {
        let format =
            object([("type", "json_schema".into()), ("schema", schema::closed(&output.schema))]);
        body.insert("output_config", json(&object([("format", json(&format))])));
    }
    if let Some(temperature) = request.temperature
        && takes_temperature(request.model, temperature)
    {
        body.insert("temperature", temperature);
    }
    if request.stream {
        body.insert("stream", true);
    }
    json(&with_extra(body, &request.extra))
}

fn tool_choice(choice: &ToolChoice) -> Fields {
    match choice {
        ToolChoice::Auto => object([("type", "auto".into())]),
        ToolChoice::None => object([("type", "none".into())]),
        ToolChoice::Required => object([("type", "any".into())]),
        ToolChoice::Tool(name) => object([("type", "tool".into()), ("name", name.as_str().into())]),
    }
}

/// The turns in Anthropic's form: neighbours of one role are one, none is empty, and the first and
/// the last are the user's.
#[derive(Default)]
struct Messages(Vec<(&'static str, Vec<Fields>)>);

impl Messages {
    fn add(&mut self, role: &'static str, blocks: impl IntoIterator<Item = Fields>) {
        let mut blocks = blocks.into_iter().filter(|block| !is_blank(block)).peekable();
        if blocks.peek().is_none() {
            return;
        }
        match self.0.last_mut() {
            Some((last, content)) if *last == role => content.extend(blocks),
            _ => self.0.push((role, blocks.collect())),
        }
    }

    fn list(self) -> Json {
        let mut turns = Self::default();
        for (role, blocks) in self.without_orphans().0 {
            turns.add(role, whole(role, blocks));
        }
        if turns.0.first().is_some_and(|(role, _)| *role == "assistant") {
            turns.0.insert(0, ("user", vec![plain_text(OPENING)]));
        }
        match turns.0.last() {
            None => turns.add("user", [plain_text(NOTHING)]),
            // An item of its own that comes last is one that it paused at, and goes on from.
            Some(("assistant", blocks)) if blocks.last().is_some_and(|block| is(block, "text")) => {
                turns.add("user", [plain_text(CLOSING)]);
            }
            Some(_) => {}
        }
        let messages = turns.0.iter().map(|(role, blocks)| {
            let blocks: Vec<Json> = blocks.iter().map(json).collect();
            json(&object([("role", (*role).into()), ("content", content::list(&blocks))]))
        });
        content::list(&messages.collect::<Vec<_>>())
    }

    /// Without the calls of Anthropic's own tools that have no result, and the results that have no
    /// call: a reply broke off there, and both are refused. Where nobody has spoken since, the
    /// result is still to come.
    fn without_orphans(mut self) -> Self {
        let blocks = || self.0.iter().flat_map(|(_, blocks)| blocks);
        let called: HashSet<String> = blocks().filter_map(server_call).collect();
        let answered: HashSet<String> = blocks().filter_map(server_result).collect();
        let is_spoken = |(role, blocks): &(&str, Vec<Fields>)| {
            *role == "user" && !blocks.iter().all(|block| is(block, "tool_result"))
        };
        let over = self.0.iter().rposition(is_spoken).unwrap_or(0);
        for (at, (_, blocks)) in self.0.iter_mut().enumerate() {
            blocks.retain(|block| match (server_call(block), server_result(block)) {
                (Some(id), _) => at > over || answered.contains(&id),
                (None, Some(id)) => called.contains(&id),
                (None, None) => true,
            });
        }
        self
    }
}

/// The id of a call of a tool that Anthropic runs itself.
fn server_call(block: &Fields) -> Option<String> {
    if is(block, "server_tool_use") || is(block, "mcp_tool_use") { word(block, "id") } else { None }
}

/// The id of the call that a result of such a tool is for.
fn server_result(block: &Fields) -> Option<String> {
    let kind = word(block, "type")?;
    if kind.ends_with("_tool_result") { word(block, "tool_use_id") } else { None }
}

fn word(block: &Fields, key: &str) -> Option<String> {
    block.get(key).ok().flatten()
}

/// What the model said, up to the last block that is no thinking: thinking that comes last was cut
/// off, and is refused.
fn whole(role: &str, mut blocks: Vec<Fields>) -> Vec<Fields> {
    let is_thinking = |block: &Fields| is(block, "thinking") || is(block, "redacted_thinking");
    while role == "assistant" && blocks.last().is_some_and(is_thinking) {
        blocks.pop();
    }
    blocks
}

fn is(block: &Fields, kind: &str) -> bool {
    block.raw("type").is_some_and(|word| *word == Json::from(kind))
}

/// Whether a block is a text of nothing but space, which is refused.
fn is_blank(block: &Fields) -> bool {
    is(block, "text") && word(block, "text").is_none_or(|text| text.trim().is_empty())
}

fn given(part: &Given<'_>) -> Option<Fields> {
    match part {
        Given::Text(text) => Some(plain_text(text)),
        Given::Data(block) => Some(data(block).unwrap_or_else(|line| line)),
        Given::Item(item) => provider::item(NAME, item),
    }
}

/// An image or a document; otherwise a line that says what was left out.
fn data(block: &DataBlock) -> Result<Fields, Fields> {
    let cannot = "the model cannot read it";
    ready(block)
        .and_then(|ready| content::data(&ready).ok_or(cannot))
        .map_err(|why| plain_text(&left_out(block, why)))
}

/// What the writing of a reply depends on.
struct Calls<'a> {
    ids: CallIds,
    tools: &'a [Tool],
}

impl Calls<'_> {
    fn said(&mut self, part: &Said<'_>) -> Option<Fields> {
        match part {
            Said::Text(block) => Some(content::text(block)),
            Said::Thinking(block) => content::thinking(block),
            Said::Data(block) => Some(plain_text(&left_out(block, "it was made by the assistant"))),
            Said::Call(call) => {
                let mut fields = content::call(call, &self.ids.call(&call.id));
                fields.insert("name", &*call_name(&call.name, self.tools, LONGEST_NAME));
                Some(fields)
            }
            Said::Item(item) => provider::item(NAME, item),
        }
    }

    /// The results, and behind them what they could not hold: one that failed holds only text.
    fn answers(&mut self, answers: &[Answer<'_>]) -> Vec<Fields> {
        let mut shown = Vec::new();
        let mut blocks: Vec<Fields> = Vec::new();
        for answer in answers {
            let id = self.ids.answer();
            let has_data = answer.data().next().is_some();
            let content = if has_data && !answer.is_error() {
                let mut parts = parts(answer.parts());
                parts.extend(answer.note().map(|note| json(&plain_text(&note))));
                content::list(&parts)
            } else {
                answer.text().into()
            };
            if has_data && answer.is_error() {
                let (id, name) = (&answer.call.id, &answer.call.name);
                shown.push(plain_text(&format!("What the call {id} of {name} gave:")));
                shown.extend(answer.data().map(|block| data(block).unwrap_or_else(|line| line)));
            }
            blocks.push(content::result(&id, content, answer.is_error()));
        }
        blocks.extend(shown);
        blocks
    }
}

/// The parts of a result.
fn parts(parts: &[Part]) -> Vec<Json> {
    let blocks = parts.iter().filter_map(|part| match part {
        Part::Text(block) => Some(content::text(block)),
        Part::Data(block) => Some(data(block).unwrap_or_else(|line| line)),
        Part::Other(item) => provider::item(NAME, item),
        _ => None,
    });
    blocks.filter(|block| !is_blank(block)).map(|block| json(&block)).collect()
}
