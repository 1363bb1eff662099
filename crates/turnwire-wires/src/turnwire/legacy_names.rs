//! Reads events with the names that AgentScope's TypeScript had before 2.0: `RUN_STARTED`,
//! `BINARY_BLOCK_*`, and camelCase fields.
//!
//! Only events that cannot be read with the current names get here.

use turnwire_core::{Error, ErrorKind, Event, EventKind, Fields, Json, Result};

/// Reads an event with the current or the older names.
pub(crate) fn read_event(text: &str) -> Result<Event<'_>> {
    match Event::from_json(text) {
        // AG-UI has a `RUN_STARTED` too: without a reply id it stays unknown.
        Ok(event) if matches!(&event.kind, EventKind::Unknown(word) if current_type(word).is_some()) => {
            Ok(translate_event(text).unwrap_or(event))
        }
        Ok(event) => Ok(event),
        Err(error) => translate_or(text, error),
    }
}

#[cold]
fn translate_or(text: &str, error: Error) -> Result<Event<'_>> {
    if error.kind() == ErrorKind::NotJson {
        return Err(error);
    }
    translate_event(text).ok_or(error)
}

/// The reply id in a line that is not an event.
pub(crate) fn find_reply_id(text: &str) -> Option<String> {
    let fields: Fields = serde_json::from_str(text).ok()?;
    let named = |key| fields.get::<String>(key).ok().flatten();
    named("reply_id").or_else(|| named("replyId"))
}

fn current_type(older: &str) -> Option<&'static str> {
    Some(match older {
        "RUN_STARTED" => "REPLY_START",
        "RUN_FINISHED" => "REPLY_END",
        "MODEL_CALL_STARTED" => "MODEL_CALL_START",
        "MODEL_CALL_ENDED" => "MODEL_CALL_END",
        "BINARY_BLOCK_START" => "DATA_BLOCK_START",
        "BINARY_BLOCK_DELTA" => "DATA_BLOCK_DELTA",
        "BINARY_BLOCK_END" => "DATA_BLOCK_END",
        "TOOL_RESULT_BINARY_DELTA" => "TOOL_RESULT_DATA_DELTA",
        _ => return None,
    })
}

fn current_name(older: &str) -> &str {
    match older {
        "createdAt" => "created_at",
        "finishedAt" => "finished_at",
        "sessionId" => "session_id",
        "replyId" => "reply_id",
        "blockId" => "block_id",
        "modelName" => "model_name",
        "inputTokens" => "input_tokens",
        "outputTokens" => "output_tokens",
        "mediaType" => "media_type",
        "toolCallId" => "tool_call_id",
        "toolCallName" => "tool_call_name",
        "toolCalls" => "tool_calls",
        "toolCall" => "tool_call",
        "confirmResults" => "confirm_results",
        "executionResults" => "execution_results",
        "suggestedRules" => "suggested_rules",
        "toolName" => "tool_name",
        "ruleContent" => "rule_content",
        other => other,
    }
}

/// How deep fields are renamed: a source in an output in a result in a list in an event.
const MAX_DEPTH: u8 = 8;

fn translate_event(text: &str) -> Option<Event<'static>> {
    let mut fields: Fields = serde_json::from_str(text).ok()?;
    let word: String = fields.get("type").ok()??;
    fields.insert_some("type", current_type(&word));
    let renamed = Json::from_value(&rename_fields(&fields, MAX_DEPTH)).ok()?;
    let event = Event::from_json(renamed.text()).ok()?;
    event.kind.is_known().then(|| event.into_owned())
}

fn rename_fields(fields: &Fields, depth: u8) -> Fields {
    let mut renamed = Fields::default();
    for (key, value) in fields {
        let name = current_name(key);
        // If both names are present, the current one wins.
        if name != key && fields.raw(name).is_some() {
            renamed.insert(key, value.clone());
        } else {
            renamed.insert(name, rename_inside(name, value, depth));
        }
    }
    renamed
}

/// Renames inside blocks. Application data (metadata, a tool's input) stays as it is.
fn rename_inside(name: &str, value: &Json, depth: u8) -> Json {
    let holds_names = matches!(
        name,
        "tool_calls"
            | "tool_call"
            | "confirm_results"
            | "execution_results"
            | "suggested_rules"
            | "rules"
            | "output"
            | "source"
    );
    let Some(depth) = depth.checked_sub(1).filter(|_| holds_names) else { return value.clone() };
    let renamed = match value.text().as_bytes().first() {
        Some(b'{') => {
            value.parse_as().and_then(|fields| Json::from_value(&rename_fields(&fields, depth)))
        }
        Some(b'[') => value.parse_as::<Vec<Json>>().and_then(|items| {
            Json::from_value(
                &items.iter().map(|item| rename_inside(name, item, depth)).collect::<Vec<_>>(),
            )
        }),
        _ => return value.clone(),
    };
    renamed.unwrap_or_else(|_| value.clone())
}
