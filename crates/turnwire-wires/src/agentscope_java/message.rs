//! Reads and writes Java's messages.
//!
//! What Java cannot hold is in its metadata, as a patch under `turnwire`. What we cannot hold is in
//! our message, as a patch in the field `java`. So both survive the way there and back.

use super::{KEPT_FIELD, block, carried_patch, patch};
use crate::json::{string_field, to_json};
use serde::Serialize;
use std::collections::HashMap;
use turnwire_core::event::ConfirmResult;
use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, FinishedReason, Json, Msg, Result, Role,
};

const GENERATE_REASON: &str = "agentscope_generate_reason";
const STRUCTURED_OUTPUT: &str = "_structured_output";
const CONFIRM_RESULTS: &str = "agentscope_confirm_results";

/// Reads a message of Java's: version 2, or version 1 with `toolUseId`, `arguments`, `result` and
/// ISO times.
pub fn decode_message(text: &str) -> Result<Msg> {
    let mut java: Fields = Json::parse(text)?
        .parse_as()
        .map_err(|_| Error::new(ErrorKind::NotAMessage, "expected a message object"))?;
    let carried = carried_patch::take_patch(&mut java);
    let msg = decode_plain(&java)?;
    // The message may have changed so that the patch no longer fits.
    let patched = carried.and_then(|carried| {
        let patched = patch::apply(&carried_patch::to_fields(&msg)?, &carried)?;
        Msg::from_json(Json::from_value(&patched).ok()?.text()).ok()
    });
    Ok(patched.unwrap_or(msg))
}

/// Reads a message without a patch of ours.
fn decode_plain(java: &Fields) -> Result<Msg> {
    let msg = from_java(java)?;
    let Some(kept) = patch::diff(&to_java(&msg), &as_version_2(java)) else { return Ok(msg) };
    let mut rest = msg.rest().clone();
    rest.insert(KEPT_FIELD, kept);
    msg.to_builder().rest(rest).build()
}

/// Writes a message for Java.
pub fn encode_message(msg: &Msg) -> String {
    let bare = to_java(msg);
    let kept = msg.rest().raw(KEPT_FIELD);
    let restored = kept.and_then(|kept| patch::apply(&bare, kept));
    let java = restored
        .and_then(|java| add_patch(java, msg, true))
        .or_else(|| add_patch(bare.clone(), msg, false))
        .unwrap_or(bare);
    Json::from(java).text().to_owned()
}

/// Adds the patch for what Java has no field for. What we kept from Java counts only if reading
/// finds it again: the message may have changed.
fn add_patch(mut java: Fields, msg: &Msg, restored: bool) -> Option<Fields> {
    let mut base = decode_plain(&java).ok()?;
    if base == *msg && !carried_patch::has_patch(&java) {
        return Some(java);
    }
    if carried_patch::remove_patch_key(&mut java) {
        base = decode_plain(&java).ok()?;
    }
    if restored && base.rest().raw(KEPT_FIELD) != msg.rest().raw(KEPT_FIELD) {
        return None;
    }
    let carried = patch::diff(&carried_patch::to_fields(&base)?, &carried_patch::to_fields(msg)?)?;
    carried_patch::insert_patch(&mut java, carried).then_some(java)
}

/// A message as version 2 writes it.
fn as_version_2(java: &Fields) -> Fields {
    let mut java = java.clone();
    if let Some(time) = string_field(&java, "timestamp") {
        java.insert("timestamp", to_java_time(&time));
    }
    if java.raw("metadata").is_none_or(Json::is_null) {
        java.insert("metadata", Fields::default());
    }
    if java.raw("content").is_some_and(|content| content.text().starts_with('[')) {
        let blocks = block::object_list(&java, "content").into_iter();
        let blocks: Vec<Fields> = blocks.map(block::as_version_2).collect();
        java.insert("content", block::list_to_json(&blocks));
    }
    java
}

/// Java's message as ours, without what we have no field for.
fn from_java(java: &Fields) -> Result<Msg> {
    let mut ours = Fields::default();
    for (from, to) in [("id", "id"), ("name", "name"), ("timestamp", "created_at")] {
        ours.insert_some(to, string_field(java, from));
    }
    let role = string_field(java, "role");
    let Some(role) = role else {
        return Err(Error::new(ErrorKind::NotAMessage, "`role` is missing"));
    };
    ours.insert("role", role.to_lowercase());
    match java.raw("content") {
        Some(content) if content.text().starts_with('"') => ours.insert("content", content.clone()),
        Some(content) if content.text().starts_with('{') => {
            ours.insert("content", block::list_from_java(vec![content.parse_as()?])?);
        }
        _ => {
            ours.insert("content", block::list_from_java(block::object_list(java, "content"))?);
        }
    }
    let mut metadata = block::object_field(java, "metadata").unwrap_or_default();
    if let Some(output) = metadata.raw(STRUCTURED_OUTPUT).filter(|json| !json.is_null()).cloned() {
        metadata.remove(STRUCTURED_OUTPUT);
        ours.insert("structured_output", output);
    }
    if let Some(reason) = string_field(&metadata, GENERATE_REASON) {
        ours.insert("finished_reason", finished_reason(&reason).as_str());
    }
    ours.insert("metadata", metadata);
    let usage = block::object_field(java, "usage");
    ours.insert_some("usage", usage.map(|usage| usage_from_java(&usage)));
    Msg::from_json(Json::from(ours).text())
}

/// The result of an agent, as `REPLY_END` has it: structured output and message metadata.
pub(super) struct AgentResult {
    pub finished_reason: Option<FinishedReason>,
    pub structured_output: Option<Json>,
    pub metadata: Fields,
}

/// How the reply of this final message ended.
pub(super) fn read_agent_result(result: &Fields) -> AgentResult {
    let mut metadata = block::object_field(result, "metadata").unwrap_or_default();
    let output = metadata.remove(STRUCTURED_OUTPUT).filter(|json| !json.is_null());
    // Our patch, after a way through Java and back.
    metadata.remove(carried_patch::PATCH_KEY);
    AgentResult {
        finished_reason: string_field(&metadata, GENERATE_REASON)
            .map(|word| finished_reason(&word)),
        structured_output: output,
        metadata,
    }
}

/// Our finish reason. Java's are finer, and stay in the metadata. A reply that waits for an
/// approval or an external tool was stopped, and continues as another one.
fn finished_reason(generate_reason: &str) -> FinishedReason {
    match generate_reason {
        "INTERRUPTED"
        | "TOOL_SUSPENDED"
        | "PERMISSION_ASKING"
        | "REASONING_STOP_REQUESTED"
        | "ACTING_STOP_REQUESTED"
        | "MIDDLEWARE_STOP_REQUESTED" => FinishedReason::Interrupted,
        "MAX_ITERATIONS" => FinishedReason::ExceedMaxIters,
        "TOOL_CALLS" => FinishedReason::ToolCalls,
        _ => FinishedReason::Completed,
    }
}

/// Java's reasons for a message.
pub(super) fn is_generate_reason(word: &str) -> bool {
    matches!(
        word,
        "MODEL_STOP"
            | "TOOL_CALLS"
            | "STRUCTURED_OUTPUT"
            | "TOOL_SUSPENDED"
            | "REASONING_STOP_REQUESTED"
            | "ACTING_STOP_REQUESTED"
            | "PERMISSION_ASKING"
            | "MIDDLEWARE_STOP_REQUESTED"
            | "ALL_TOOLS_DENIED"
            | "INTERRUPTED"
            | "MAX_ITERATIONS"
    )
}

/// Java's word for a finish reason, if leaving it out would mean that the model stopped.
fn generate_reason(reason: &FinishedReason) -> Option<&'static str> {
    match reason {
        FinishedReason::Interrupted | FinishedReason::Truncated => Some("INTERRUPTED"),
        FinishedReason::ExceedMaxIters => Some("MAX_ITERATIONS"),
        FinishedReason::ToolCalls => Some("TOOL_CALLS"),
        FinishedReason::Completed
        | FinishedReason::Error
        | FinishedReason::Length
        | FinishedReason::Refusal
        | FinishedReason::ContentFilter
        | FinishedReason::Other(_) => None,
    }
}

fn usage_from_java(java: &Fields) -> Fields {
    let mut usage = Fields::default();
    for (from, to) in TOKENS {
        let count: Option<i64> = java.get(from).ok().flatten();
        usage.insert(to, count.unwrap_or_default());
    }
    usage.insert_some("time", java.raw("time").filter(|json| !json.is_null()).cloned());
    usage
}

const TOKENS: [(&str, &str); 3] = [
    ("inputTokens", "input_tokens"),
    ("outputTokens", "output_tokens"),
    ("cachedTokens", "cache_input_tokens"),
];

/// Java counts tokens in 32 bits.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage<'a> {
    input_tokens: i32,
    output_tokens: i32,
    cached_tokens: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a Json>,
    total_tokens: i32,
}

impl<'a> Usage<'a> {
    pub(super) fn new(input: i64, output: i64, cached: i64, time: Option<&'a Json>) -> Self {
        let int = |count: i64| i32::try_from(count.max(0)).unwrap_or(i32::MAX);
        Self {
            input_tokens: int(input),
            output_tokens: int(output),
            cached_tokens: int(cached),
            time,
            total_tokens: int(input).saturating_add(int(output)),
        }
    }
}

fn to_java(msg: &Msg) -> Fields {
    let mut java = Fields::default();
    let null = || Json::from(serde_json::Value::Null);
    let known = |text: &str| if text.is_empty() { null() } else { text.into() };
    java.insert("id", known(msg.id()));
    java.insert("name", known(msg.name()));
    java.insert("role", msg.role().as_str().to_uppercase());
    let content: Vec<Fields> = msg.content().iter().filter_map(block::to_java).collect();
    java.insert("content", block::list_to_json(&content));
    let mut metadata = msg.metadata().clone();
    metadata.insert_some(STRUCTURED_OUTPUT, msg.structured_output().cloned());
    if metadata.raw(GENERATE_REASON).is_none()
        && let Some(word) = msg.finished_reason().and_then(generate_reason)
    {
        metadata.insert(GENERATE_REASON, word);
    }
    java.insert("metadata", metadata);
    java.insert("timestamp", known(&to_java_time(msg.created_at())));
    let usage = msg.usage().map(|usage| {
        let time = usage.rest.raw("time").filter(|json| json.parse_as::<f64>().is_ok());
        Usage::new(usage.input_tokens, usage.output_tokens, usage.cache_input_tokens, time)
    });
    java.insert("usage", to_json(&usage));
    java
}

/// A time in Java's format: `yyyy-MM-dd HH:mm:ss.SSS`, without a zone. Other texts are kept.
fn to_java_time(time: &str) -> String {
    let parts = time.get(..19).zip(time.get(19..)).filter(|(date, _)| {
        date.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            10 => matches!(byte, b'T' | b't' | b' '),
            13 | 16 => byte == b':',
            _ => byte.is_ascii_digit(),
        })
    });
    let Some((seconds, rest)) = parts else { return time.to_owned() };
    let digits = rest.strip_prefix('.').unwrap_or_default().bytes();
    let digits = digits.take_while(u8::is_ascii_digit).map(char::from);
    let millis: String = digits.chain("000".chars()).take(3).collect();
    format!("{}.{millis}", seconds.replace(['T', 't'], " "))
}

/// The user's answers for a waiting agent, from the message's metadata.
pub fn confirm_results(msg: &Msg) -> Result<Vec<ConfirmResult>> {
    let answers: Vec<Fields> = msg.metadata().get(CONFIRM_RESULTS)?.unwrap_or_default();
    answers.into_iter().map(|answer| block::confirm_from_java(answer).parse_as()).collect()
}

/// The message with these answers for a waiting agent.
#[must_use]
pub fn with_confirm_results(msg: &Msg, answers: &[ConfirmResult]) -> Msg {
    let answers: Vec<Fields> = answers.iter().map(block::confirm_to_java).collect();
    let changed = msg.to_builder().metadata(CONFIRM_RESULTS, block::list_to_json(&answers));
    changed.build().unwrap_or_else(|_| msg.clone())
}

/// Joins the results in messages of the role tool to the replies that called for them.
///
/// Java stores every step of a reply in a message, and the results of its tools in messages after
/// it. A result is appended to the message with its call, unless that has a result already. A message
/// without remaining results is removed. Results without a call stay where they are.
pub fn join_tool_messages(messages: Vec<Msg>) -> Vec<Msg> {
    let mut callers: HashMap<String, usize> = HashMap::new();
    let mut joined: Vec<Msg> = Vec::new();
    // Collected per message, so that each is built once.
    let mut results: Vec<Vec<ContentBlock>> = Vec::new();
    for msg in messages {
        if msg.role() != Role::Tool {
            for (call, result) in msg.tool_calls() {
                match result {
                    None => callers.insert(call.id.clone(), joined.len()),
                    Some(_) => callers.remove(&call.id),
                };
            }
            joined.push(msg);
            results.push(Vec::new());
            continue;
        }
        let mut left = Vec::new();
        for block in msg.content() {
            let caller = if let ContentBlock::ToolResult(result) = block {
                callers.remove(&result.id)
            } else {
                None
            };
            match caller.and_then(|at| results.get_mut(at)) {
                Some(results) => results.push(block.clone()),
                None => left.push(block.clone()),
            }
        }
        if left.len() == msg.content().len() {
            joined.push(msg);
            results.push(Vec::new());
        } else if !left.is_empty() {
            joined.push(msg.to_builder().content(left).build().unwrap_or(msg));
            results.push(Vec::new());
        }
    }
    let with_results = |(msg, results): (Msg, Vec<ContentBlock>)| {
        if results.is_empty() {
            return msg;
        }
        let content = [msg.content().to_vec(), results].concat();
        msg.to_builder().content(content).build().unwrap_or(msg)
    };
    joined.into_iter().zip(results).map(with_results).collect()
}
