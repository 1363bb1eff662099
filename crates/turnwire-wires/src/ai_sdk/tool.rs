//! Tool parts: a part is a call with its result.

use super::part::{KEPT_FIELD, add_own_metadata, take_object, take_own_metadata, without_null};
use crate::json::{to_fields, to_json};
use serde::Serialize;
use serde_json::Value;
use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, Json, Part, Payload, Result, ToolCall, ToolCallState,
    ToolResult, ToolResultState,
};

/// Says in a result's metadata that its text is JSON, so that the client gets JSON.
const MEDIA_TYPE_KEY: &str = "media_type";
const JSON_MEDIA_TYPE: &str = "application/json";

/// A tool's output for a client: a string if it is one text, otherwise parts.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Output<'a> {
    Text(&'a str),
    Json(Json),
    Parts(&'a [Part]),
}

/// The output of a result.
pub(super) fn tool_output(result: &ToolResult) -> Output<'_> {
    match &result.output {
        Payload::Text(text) if is_json_result(&result.metadata) => match Json::parse(text) {
            // A JSON string would be mistaken for plain text.
            Ok(json) if json.text() == text && !text.starts_with('"') => Output::Json(json),
            _ => Output::Text(text),
        },
        Payload::Text(text) => Output::Text(text),
        Payload::Parts(parts) => match parts.as_slice() {
            [Part::Text(block)] => Output::Text(&block.text),
            [] => Output::Text(""),
            parts => Output::Parts(parts),
        },
    }
}

fn is_json_result(metadata: &Fields) -> bool {
    metadata.raw(MEDIA_TYPE_KEY) == Some(&Json::from(JSON_MEDIA_TYPE))
}

/// The output that a client sent for a tool.
pub(super) fn payload_of(output: &Json, metadata: &mut Fields) -> Payload {
    if let Ok(text) = output.parse_as::<String>() {
        return Payload::Text(text);
    }
    metadata.insert(MEDIA_TYPE_KEY, JSON_MEDIA_TYPE);
    Payload::Text(output.text().to_owned())
}

/// The input of a call, if it is JSON. No input is an empty object, as models mean it.
pub(super) fn input_json(input: &str) -> Option<Json> {
    let text = if input.trim().is_empty() { "{}" } else { input };
    Json::parse(text).ok()
}

/// A result, and its index in the message if it does not directly follow its call.
pub(super) type PlacedResult<'a> = (&'a ToolResult, Option<usize>);

/// Writes a call, a result, or both as one part.
pub(super) fn write_tool_part(call: Option<&ToolCall>, result: Option<PlacedResult<'_>>) -> Fields {
    let mut part = Fields::default();
    part.insert("type", "dynamic-tool");
    let (id, name) = match (call, result) {
        (Some(call), _) => (call.id.as_str(), call.name.as_str()),
        (None, Some((result, _))) => (result.id.as_str(), result.name.as_str()),
        (None, None) => ("", ""),
    };
    part.insert("toolName", name);
    part.insert("toolCallId", id);
    let mut ours = Fields::default();
    let mut kept = Fields::default();
    if let Some(call) = call {
        ours = without_null(to_fields(call), &["finished_at"]);
        for known in ["type", "id", "name", "input"] {
            ours.remove(known);
        }
        if call.suggested_rules.is_empty() {
            ours.remove("suggested_rules");
        }
        kept = take_object(&mut ours, KEPT_FIELD).unwrap_or_default();
    } else {
        ours.insert("no_call", true);
    }
    let state = part_state(call, result.map(|(result, _)| result));
    part.insert("state", state);
    write_input(call, state, &mut part, &mut ours);
    // The client executes only calls that are submitted to it.
    let is_here = call.is_none_or(|call| call.state != ToolCallState::Submitted);
    part.insert("providerExecuted", is_here);
    let field = |key: &str, ours: &Fields| ours.raw(key).cloned();
    if field("state", &ours)
        == Some(to_json(&call_state(state, is_here, expected_approval(id, state).as_ref())))
    {
        ours.remove("state");
    }
    let mut about_result = Fields::default();
    if let Some((result, at)) = result {
        let mut rest = write_result(result, name, state, &mut part);
        rest.insert_some("at", at);
        if call.is_none() {
            kept = take_object(&mut rest, KEPT_FIELD).unwrap_or_default();
        }
        // A denied part has no field for metadata of its result.
        if state == "output-denied" {
            ours.insert("result", to_json(&rest));
        } else {
            about_result = rest;
        }
    }
    if let Some(mut approval) = expected_approval(id, state) {
        if let Some((result, _)) = result
            && let Payload::Text(text) = &result.output
            && state == "output-denied"
            && !text.is_empty()
        {
            approval.insert("reason", text.as_str());
        }
        part.insert("approval", to_json(&approval));
    }
    let is_static = kept.raw("type").is_some();
    part.extend(&kept);
    if is_static {
        part.remove("toolName");
    }
    add_own_metadata(&mut part, "callProviderMetadata", &ours);
    add_own_metadata(&mut part, "resultProviderMetadata", &about_result);
    part
}

fn part_state(call: Option<&ToolCall>, result: Option<&ToolResult>) -> &'static str {
    match result.map(|result| &result.state) {
        Some(ToolResultState::Error | ToolResultState::Interrupted) => "output-error",
        Some(ToolResultState::Denied) => "output-denied",
        Some(ToolResultState::Running | ToolResultState::Success | ToolResultState::Other(_)) => {
            "output-available"
        }
        None => match call.map(|call| &call.state) {
            Some(ToolCallState::Asking) => "approval-requested",
            Some(ToolCallState::Allowed) => "approval-responded",
            Some(ToolCallState::Pending) if call.is_some_and(|call| !is_json(&call.input)) => {
                "input-streaming"
            }
            Some(
                ToolCallState::Pending
                | ToolCallState::Submitted
                | ToolCallState::Finished
                | ToolCallState::Other(_),
            )
            | None => "input-available",
        },
    }
}

fn is_json(input: &str) -> bool {
    input_json(input).is_some()
}

/// The approval that a state requires.
fn expected_approval(id: &str, state: &str) -> Option<Fields> {
    let approved = match state {
        "approval-requested" => None,
        "approval-responded" => Some(true),
        "output-denied" => Some(false),
        _ => return None,
    };
    let mut approval = Fields::default();
    approval.insert("id", id);
    approval.insert_some("approved", approved);
    Some(approval)
}

/// `raw_input` is the exact text of an input if its JSON differs; `true` means that the JSON is a
/// string with the text.
fn write_input(call: Option<&ToolCall>, state: &str, part: &mut Fields, ours: &mut Fields) {
    let Some(call) = call else { return part.insert("input", Value::Null) };
    match input_json(&call.input) {
        _ if state == "input-streaming" => part.insert("rawInput", call.input.as_str()),
        Some(json) => {
            if json.text() != call.input {
                ours.insert("raw_input", call.input.as_str());
            }
            part.insert("input", json);
        }
        None => {
            ours.insert("raw_input", true);
            part.insert("input", call.input.as_str());
        }
    }
}

/// Writes the output, and returns what the part has no field for.
fn write_result(result: &ToolResult, name: &str, state: &str, part: &mut Fields) -> Fields {
    let mut rest = without_null(to_fields(result), &["finished_at"]);
    for known in ["type", "id", "output"] {
        rest.remove(known);
    }
    if result.name == name {
        rest.remove("name");
    }
    let is_running = result.state == ToolResultState::Running;
    if result.state == result_state(state, is_running) {
        rest.remove("state");
    }
    let output = tool_output(result);
    if result.metadata.is_empty()
        || (matches!(output, Output::Json(_)) && result.metadata.len() == 1)
    {
        rest.remove("metadata");
    }
    let text = result.output.text("\n");
    match (state, &result.output) {
        ("output-available", payload) => {
            part.insert("output", to_json(&output));
            if is_running {
                part.insert("preliminary", true);
            }
            match (payload, output) {
                (Payload::Parts(_), Output::Parts(_)) => rest.insert("parts", true),
                (Payload::Parts(parts), _) => rest.insert("part", only_part_rest(parts)),
                (Payload::Text(_), _) => {}
            }
        }
        ("output-error", payload) => {
            part.insert("errorText", text);
            match payload {
                Payload::Text(_) => {}
                Payload::Parts(parts) if matches!(parts.as_slice(), [Part::Text(_)] | []) => {
                    rest.insert("part", only_part_rest(parts));
                }
                payload @ Payload::Parts(_) => rest.insert("output", to_json(payload)),
            }
        }
        (_, Payload::Text(_)) => {}
        (_, payload) => rest.insert("output", to_json(payload)),
    }
    rest
}

/// The fields of an output's only part besides its text; null if there is no part.
fn only_part_rest(parts: &[Part]) -> Json {
    let Some(only) = parts.first() else { return Json::from(Value::Null) };
    let mut rest = without_null(to_fields(only), &["finished_at"]);
    rest.remove("text");
    to_json(&rest)
}

fn result_state(state: &str, preliminary: bool) -> ToolResultState {
    match state {
        "output-available" if preliminary => ToolResultState::Running,
        "output-error" => ToolResultState::Error,
        "output-denied" => ToolResultState::Denied,
        _ => ToolResultState::Success,
    }
}

fn call_state(state: &str, is_here: bool, approval: Option<&Fields>) -> ToolCallState {
    let approved = approval.and_then(|approval| approval.raw("approved"));
    match state {
        "approval-requested" => ToolCallState::Asking,
        "approval-responded" if approved == Some(&Json::from(true)) => ToolCallState::Allowed,
        "input-available" if !is_here => ToolCallState::Submitted,
        "input-available" | "input-streaming" => ToolCallState::Pending,
        _ => ToolCallState::Finished,
    }
}

/// Whether a part is a tool's.
pub(super) fn is_tool_part(part: &Fields) -> bool {
    let word: String = part.get("type").ok().flatten().unwrap_or_default();
    word == "dynamic-tool" || word.starts_with("tool-")
}

/// A tool part: the call, the result, and the result's index.
#[derive(Debug, Default)]
pub(super) struct ToolPart {
    pub call: Option<ToolCall>,
    pub result: Option<ToolResult>,
    pub at: Option<usize>,
}

/// Reads a tool part.
pub(super) fn read_tool_part(mut part: Fields) -> Result<ToolPart> {
    let word: String = part.need("type")?;
    let (id, state): (String, String) = (part.need("toolCallId")?, part.need("state")?);
    let name = match word.strip_prefix("tool-") {
        Some(name) => name.to_owned(),
        None => part.need("toolName")?,
    };
    let mut ours = take_own_metadata(&mut part, "callProviderMetadata");
    let mut rest = match take_object(&mut ours, "result") {
        Some(rest) => rest,
        None => take_own_metadata(&mut part, "resultProviderMetadata"),
    };
    let no_call = ours.take::<bool>("no_call")? == Some(true);
    let input = read_input(&mut part, &mut ours)?;
    let approval = take_object(&mut part, "approval");
    let result = match state.as_str() {
        "output-available" | "output-error" | "output-denied" => {
            let reason =
                approval.as_ref().and_then(|approval| approval.get("reason").ok().flatten());
            let at = rest.take::<usize>("at")?;
            Some((read_result(&mut part, rest, (&id, &name, &state), reason)?, at))
        }
        "input-streaming" | "input-available" | "approval-requested" | "approval-responded" => None,
        other => {
            let message = format!("unknown `state` `{other}` of a tool part");
            return Err(Error::new(ErrorKind::NotAMessage, message));
        }
    };
    let is_here = part.take::<bool>("providerExecuted").ok().flatten();
    let derived = call_state(&state, is_here != Some(false), approval.as_ref());
    let kept = unknown_fields(part, &word, (&id, &state), is_here, approval);
    let (result, at) = result.map_or((None, None), |(result, at)| (Some(result), at));
    if no_call {
        let result = result.map(|mut result| {
            result.rest.insert_fields(KEPT_FIELD, &kept);
            result
        });
        return Ok(ToolPart { call: None, result, at });
    }
    for (key, value) in [("type", "tool_call"), ("id", &id), ("name", &name), ("input", &input)] {
        ours.insert(key, value);
    }
    if ours.raw("state").is_none() {
        ours.insert("state", derived.as_str());
    }
    ours.insert_fields(KEPT_FIELD, &kept);
    Ok(ToolPart { call: Some(to_json(&ours).parse_as()?), result, at })
}

fn read_input(part: &mut Fields, ours: &mut Fields) -> Result<String> {
    let json = part.remove("input");
    let streamed: Option<String> = part.take("rawInput").ok().flatten();
    Ok(match (ours.remove("raw_input"), json) {
        (Some(raw), Some(json)) if raw == Json::from(true) => {
            json.parse_as().unwrap_or_else(|_| json.text().to_owned())
        }
        (Some(raw), _) => raw.parse_as()?,
        (None, Some(json)) => json.text().to_owned(),
        (None, None) => streamed.unwrap_or_default(),
    })
}

fn read_result(
    part: &mut Fields,
    mut rest: Fields,
    (id, name, state): (&str, &str, &str),
    reason: Option<String>,
) -> Result<ToolResult> {
    let preliminary = part.take::<bool>("preliminary").ok().flatten() == Some(true);
    let mut metadata: Option<Fields> = rest.take("metadata")?;
    let payload = match state {
        "output-available" => {
            let output = part.remove("output").unwrap_or_else(|| Json::from(Value::Null));
            if rest.remove("parts").is_some() {
                output.parse_as()?
            } else {
                let mut fields = Fields::default();
                let payload = payload_of(&output, &mut fields);
                metadata = metadata.or(Some(fields));
                payload
            }
        }
        "output-error" => Payload::Text(part.take("errorText")?.unwrap_or_default()),
        _ => Payload::Text(reason.unwrap_or_default()),
    };
    let payload = match (rest.remove("output"), rest.remove("part"), payload) {
        (Some(output), _, _) => output.parse_as()?,
        (None, Some(only), _) if only.is_null() => Payload::Parts(Vec::new()),
        (None, Some(only), Payload::Text(text)) => {
            let mut block: Fields = only.parse_as()?;
            block.insert("text", text);
            Payload::Parts(vec![to_json(&block).parse_as()?])
        }
        (None, _, payload) => payload,
    };
    for (key, value) in [("type", "tool_result"), ("id", id)] {
        rest.insert(key, value);
    }
    if rest.raw("name").is_none() {
        rest.insert("name", name);
    }
    if rest.raw("state").is_none() {
        rest.insert("state", result_state(state, preliminary).as_str());
    }
    rest.insert("output", to_json(&payload));
    rest.insert("metadata", to_json(&metadata.unwrap_or_default()));
    to_json(&rest).parse_as()
}

/// The fields that we would not write ourselves.
fn unknown_fields(
    mut part: Fields,
    word: &str,
    (id, state): (&str, &str),
    is_here: Option<bool>,
    approval: Option<Fields>,
) -> Fields {
    for empty in ["output", "errorText", "title", "rawInput", "preliminary"] {
        part = without_null(part, &[empty]);
    }
    if word != "dynamic-tool" {
        part.insert("type", word);
    }
    if is_here == Some(false) && state != "input-available" {
        part.insert("providerExecuted", false);
    }
    if let Some(approval) = approval {
        let mut plain = approval.clone();
        if state == "output-denied" {
            plain.remove("reason");
        }
        if Some(plain) != expected_approval(id, state) {
            part.insert("approval", to_json(&approval));
        }
    }
    part
}

/// Adds the blocks in their original order.
pub(super) fn push_blocks(
    read: ToolPart,
    content: &mut Vec<ContentBlock>,
    placed: &mut Vec<(usize, ToolResult)>,
) {
    content.extend(read.call.map(ContentBlock::from));
    match (read.result, read.at) {
        (Some(result), Some(at)) => placed.push((at, result)),
        (Some(result), None) => content.push(result.into()),
        (None, _) => {}
    }
}
