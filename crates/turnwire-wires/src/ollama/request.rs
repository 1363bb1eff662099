//! What a model is asked, as the body of `/api/chat`.

use super::message::{Draft, image, result};
use crate::request::{
    Answer, Given, NO_PIXELS, Request, SVG, Said, ToolChoice, Turn, as_text, left_out, list,
    media_type, object, parameters, ready, turns, with_extra,
};
use turnwire_core::{DataBlock, Fields, Json, Source};

pub(super) fn body(request: &Request<'_>) -> Json {
    let mut messages = Vec::new();
    for turn in turns(request.messages, request.agents) {
        let draft = match turn {
            Turn::System(text) => {
                let mut draft = Draft::new("system");
                draft.text.push(text);
                draft
            }
            Turn::User(given) => user(&given),
            Turn::Assistant(said) => assistant(&said),
            Turn::Results(answers) => {
                messages.extend(answers.iter().map(answered));
                shown(&answers)
            }
        };
        if !draft.is_empty() {
            messages.push(draft.written("\n"));
        }
    }
    let mut body = Fields::default();
    body.insert("model", request.model);
    body.insert("messages", list(&messages));
    body.insert("stream", request.stream);
    let tools = tools(request);
    if !tools.is_empty() {
        body.insert("tools", list(&tools));
    }
    if let Some(output) = request.output {
        body.insert("format", output.schema.clone());
    }
    let mut options = Fields::default();
    if let Some(most) = request.max_tokens {
        options.insert("num_predict", most);
    }
    if let Some(temperature) = request.temperature {
        options.insert("temperature", temperature);
    }
    if !options.is_empty() {
        body.insert("options", object(&options));
    }
    object(&with_extra(body, &request.extra))
}

fn user(given: &[Given<'_>]) -> Draft {
    let mut draft = Draft::new("user");
    for given in given {
        match given {
            Given::Text(text) => draft.text.push(text.clone().into_owned()),
            Given::Data(block) => add_data(&mut draft, block),
            // Ollama has no items of its own.
            Given::Item(_) => {}
        }
    }
    draft
}

fn assistant(said: &[Said<'_>]) -> Draft {
    let mut draft = Draft::new("assistant");
    for said in said {
        match said {
            Said::Text(block) => draft.text.push(block.text.clone()),
            Said::Thinking(block) => draft.thinking.push_str(&block.thinking),
            Said::Data(block) => add_data(&mut draft, block),
            Said::Call(call) => draft.call(call),
            Said::Item(_) => {}
        }
    }
    draft
}

/// There is no field that says that a call failed, so its text does.
fn answered(answer: &Answer<'_>) -> Json {
    let failed = if answer.is_error() { "Error: " } else { "" };
    result(&answer.call.id, &answer.call.name, &format!("{failed}{}", answer.text()))
}

/// What the results of one turn hold besides text, behind all of them.
fn shown(answers: &[Answer<'_>]) -> Draft {
    let mut draft = Draft::new("user");
    for answer in answers {
        let mut data = answer.data().peekable();
        if data.peek().is_some() {
            draft.text.push(format!("What {} ({}) gave:", answer.call.name, answer.call.id));
        }
        data.for_each(|block| add_data(&mut draft, block));
    }
    draft
}

/// Adds an image or a text, or a line that says what was left out.
fn add_data(draft: &mut Draft, block: &DataBlock) {
    let why = match ready(block) {
        Ok(ready) if media_type(&ready) == Some(SVG) => NO_PIXELS,
        Ok(ready) => match (image(&ready), as_text(&ready), &ready.source) {
            (Some(image), ..) => return draft.images.push(image.to_owned()),
            (None, Some(text), _) => return draft.text.push(text),
            (None, None, Source::Url(_)) => "the model cannot read addresses",
            (None, None, Source::Base64(_) | Source::Other(_)) => "the model takes only images",
        },
        Err(why) => why,
    };
    draft.text.push(left_out(block, why));
}

/// There is no field for the choice: a tool that must not, or alone may, be called is offered that
/// way.
fn tools(request: &Request<'_>) -> Vec<Json> {
    let offered = request.tools.iter().filter(|tool| match &request.tool_choice {
        ToolChoice::Auto | ToolChoice::Required => true,
        ToolChoice::None => false,
        ToolChoice::Tool(name) => tool.name == *name,
    });
    let written = offered.map(|tool| {
        let mut function = Fields::default();
        function.insert("name", tool.name.as_str());
        function.insert("description", tool.description.as_str());
        function.insert("parameters", parameters(tool));
        let mut whole = Fields::default();
        whole.insert("type", "function");
        whole.insert("function", object(&function));
        object(&whole)
    });
    written.collect()
}
