//! What a model is asked, as the body of a generation.

use super::draft::{Bit, Draft, data, media_key, of_item, result};
use crate::request::{
    Answer, CallIds, Given, NO_PIXELS, NOTHING, Request, SVG, Said, Tool, ToolChoice, Turn,
    arguments_text, as_text, call_name, is_strict, left_out, list, media_type, object,
    parameters as input_of, ready, turns, usual_type, with_extra,
};
use turnwire_core::{DataBlock, Fields, Json, Source};

pub(super) fn body(request: &Request<'_>) -> Json {
    let mut written = Vec::new();
    let mut calls = Calls { ids: CallIds::new(usize::MAX, |_| true), tools: request.tools };
    for turn in turns(request.messages, request.agents) {
        match turn {
            Turn::System(text) => {
                let mut draft = Draft::new("system");
                draft.content.push(Bit::Text(text));
                written.push(Written::Draft(draft));
            }
            Turn::User(given) => written.push(Written::Draft(user(&given))),
            Turn::Assistant(said) => written.push(Written::Draft(calls.assistant(&said))),
            Turn::Results(answers) => {
                written.extend(answers.iter().map(|answer| Written::Done(calls.answered(answer))));
                written.push(Written::Draft(shown(&answers)));
            }
        }
    }
    let is_empty = |written: &Written| matches!(written, Written::Draft(it) if it.is_empty());
    if written.iter().all(is_empty) {
        written.push(Written::Draft(user(&[Given::Text(NOTHING.into())])));
    }
    // Multimodal generation takes lists, text generation takes text.
    let lists = written.iter().any(|written| match written {
        Written::Draft(draft) => draft.needs_list(),
        Written::Done(_) => false,
    });
    let messages = written.into_iter().filter_map(|written| match written {
        Written::Done(message) => Some(message),
        Written::Draft(draft) if draft.is_empty() => None,
        Written::Draft(mut draft) if lists => {
            // A list with nothing in it is refused.
            if draft.content.is_empty() {
                draft.content.push(Bit::Text(String::new()));
            }
            Some(draft.with_list())
        }
        Written::Draft(draft) => Some(draft.with_text()),
    });
    let messages = list(&messages.collect::<Vec<_>>());
    let mut body = Fields::default();
    body.insert("model", request.model);
    body.insert("input", object(&[("messages", messages)].into_iter().collect()));
    body.insert("parameters", object(&parameters(request)));
    object(&with_extra(body, &request.extra))
}

enum Written {
    Draft(Draft),
    Done(Json),
}

fn user(given: &[Given<'_>]) -> Draft {
    let mut draft = Draft::new("user");
    draft.content.extend(given.iter().filter_map(|given| match given {
        Given::Text(text) => Some(Bit::Text(text.clone().into_owned())),
        Given::Data(block) => Some(data_bit(block)),
        Given::Item(item) => of_item(item),
    }));
    draft
}

/// The most characters that `DashScope` takes as a name.
const LONGEST_NAME: usize = 64;

/// What the writing of a reply depends on.
struct Calls<'a> {
    ids: CallIds,
    tools: &'a [Tool],
}

impl Calls<'_> {
    fn assistant(&mut self, said: &[Said<'_>]) -> Draft {
        let mut draft = Draft::new("assistant");
        for said in said {
            match said {
                Said::Text(block) => draft.content.push(Bit::Text(block.text.clone())),
                Said::Thinking(block) => draft.thinking.push_str(&block.thinking),
                Said::Data(block) => draft.content.push(data_bit(block)),
                Said::Call(call) => {
                    let name = call_name(&call.name, self.tools, LONGEST_NAME);
                    // An input that is no JSON is refused.
                    draft.call(&self.ids.call(&call.id), &name, &arguments_text(&call.input));
                }
                Said::Item(item) => draft.content.extend(of_item(item)),
            }
        }
        draft
    }

    /// There is no field that says that a call failed, so its text does.
    fn answered(&mut self, answer: &Answer<'_>) -> Json {
        let failed = if answer.is_error() { "Error: " } else { "" };
        let name = call_name(&answer.call.name, self.tools, LONGEST_NAME);
        result(&self.ids.answer(), &name, &format!("{failed}{}", answer.text()))
    }
}

/// What the results of one turn hold besides text, behind all of them.
fn shown(answers: &[Answer<'_>]) -> Draft {
    let mut draft = Draft::new("user");
    for answer in answers {
        let mut data = answer.data().peekable();
        if data.peek().is_some() {
            let line = format!("What {} ({}) gave:", answer.call.name, answer.call.id);
            draft.content.push(Bit::Text(line));
        }
        draft.content.extend(data.map(data_bit));
    }
    draft
}

/// A part for the data, or a line that says what was left out.
fn data_bit(block: &DataBlock) -> Bit {
    let bit = ready(block).and_then(|ready| {
        if let Some(text) = as_text(&ready) {
            return Ok(Bit::Text(text));
        }
        if media_type(&ready) == Some(SVG) {
            return Err(NO_PIXELS);
        }
        let kind = usual_type(&ready);
        let key = media_key(kind).ok_or("the model takes only images, audio and video")?;
        if let Source::Url(source) = &ready.source {
            let url = url::Url::parse(&source.url);
            let scheme = url.as_ref().map_or("", url::Url::scheme);
            if !["http", "https", "oss"].contains(&scheme) {
                return Err("the model cannot read this address");
            }
        }
        data(&ready, key, kind.unwrap_or_default()).ok_or("it cannot be read")
    });
    bit.unwrap_or_else(|why| Bit::Text(left_out(block, why)))
}

fn parameters(request: &Request<'_>) -> Fields {
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
            function_object(&function)
        });
        parameters.insert("tools", list(&tools.collect::<Vec<_>>()));
        parameters.insert("tool_choice", tool_choice(request));
    }
    if let Some(output) = request.output {
        let mut schema = Fields::default();
        schema.insert("name", output.name.as_str());
        schema.insert("schema", output.schema.clone());
        let tree: serde_json::Value = output.schema.parse_as().unwrap_or_default();
        schema.insert("strict", is_strict(&tree));
        let mut format = Fields::default();
        format.insert("type", "json_schema");
        format.insert("json_schema", object(&schema));
        parameters.insert("response_format", object(&format));
    }
    parameters
}

/// There is no word for "any tool": where there is only one, it is named.
fn tool_choice(request: &Request<'_>) -> Json {
    let name = match (&request.tool_choice, request.tools) {
        (ToolChoice::None, _) => return "none".into(),
        (ToolChoice::Tool(name), _) => name,
        (ToolChoice::Required, [tool]) => &tool.name,
        (ToolChoice::Auto | ToolChoice::Required, _) => return "auto".into(),
    };
    function_object(&[("name", name.as_str())].into_iter().collect())
}

fn function_object(function: &Fields) -> Json {
    let mut whole = Fields::default();
    whole.insert("type", "function");
    whole.insert("function", object(function));
    object(&whole)
}
