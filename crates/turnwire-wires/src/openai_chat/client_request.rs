//! Reads the request of a client of chat completions. The server calls this.

use super::{NAME, message};
use crate::client_request::{
    ClientRequest, ClientToolDefinition, get_field, invalid_request, take_field, take_name,
};
use crate::model_request::ToolKind;
use crate::native;
use serde_json::Value;
use turnwire_core::{ContentBlock, Fields, Json, Msg, Result, Role};

/// Reads a request.
pub fn read(text: &str) -> Result<ClientRequest> {
    let (mut request, mut fields) = ClientRequest::read(text)?;
    refuse_unsupported(&mut fields)?;
    if let Some(mut options) = take_field::<Fields>(&mut fields, "stream_options")? {
        request.include_usage = take_field(&mut options, "include_usage")?.unwrap_or_default();
    }
    request.read_rest(NAME, fields, read_tool, read_message)
}

/// Reads a message, with the fields that only this protocol has: its name, and whether it is of a developer.
fn read_message(text: &str) -> Result<Vec<Msg>> {
    let message = message::parse_object(text)?;
    let messages = message::decode_one(&message)?;
    let keep_fields = |msg: Msg| match msg.role() {
        Role::System => native::set_on_message(msg, NAME, &fields_of(text, &["content"])),
        Role::User if message.len() > 2 => {
            let fields = fields_of(text, &["role", "content"]);
            if fields.is_empty() { msg } else { native::set_on_message(msg, NAME, &fields) }
        }
        Role::User => msg,
        Role::Assistant | Role::Tool => {
            let is_other = |(name, value): (&String, &Value)| {
                !ANSWER_FIELDS.contains(&name.as_str()) && !value.is_null()
            };
            let is_answer = message.get("role").is_some_and(|role| role == "assistant");
            let msg = native::keep_result_parts(msg, NAME);
            if is_answer && message.iter().any(is_other) {
                keep_answer_fields(msg, text)
            } else {
                msg
            }
        }
    };
    Ok(messages.into_iter().map(keep_fields).collect())
}

/// The fields of an answer that are read as its content.
const ANSWER_FIELDS: [&str; 9] = [
    "role",
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "annotations",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
];

/// Keeps the other fields of an answer, such as `parsed` of the package `openai`, in its last block.
fn keep_answer_fields(msg: Msg, text: &str) -> Msg {
    let fields = fields_of(text, &ANSWER_FIELDS);
    let fields: Fields = fields
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name, value.clone()))
        .collect();
    let mut content = msg.content().to_vec();
    let rest = match content.last_mut() {
        Some(ContentBlock::Text(block)) => &mut block.rest,
        Some(ContentBlock::Thinking(block)) => &mut block.rest,
        Some(ContentBlock::Data(block)) => &mut block.rest,
        Some(ContentBlock::ToolCall(call)) => &mut call.rest,
        Some(ContentBlock::ToolResult(_) | ContentBlock::Hint(_) | ContentBlock::Other(_))
        | None => {
            return msg;
        }
    };
    native::set_message_fields(rest, NAME, &fields);
    msg.to_builder().content(content).build().unwrap_or(msg)
}

/// The fields of a message without some of them, as they came.
fn fields_of(text: &str, without: &[&str]) -> Fields {
    let mut fields: Fields = serde_json::from_str(text).unwrap_or_default();
    for name in without {
        fields.remove(name);
    }
    fields
}

/// Refuses options that an agent does not support.
fn refuse_unsupported(fields: &mut Fields) -> Result<()> {
    if take_field::<f64>(fields, "n")?.is_some_and(|n| (n - 1.0).abs() > f64::EPSILON) {
        return Err(invalid_request("`n` must be 1: an agent gives one answer"));
    }
    for name in ["functions", "function_call"] {
        if take_field::<Json>(fields, name)?.is_some() {
            return Err(invalid_request(format!(
                "`{name}` is obsolete: use `tools` and `tool_choice`"
            )));
        }
    }
    Ok(())
}

fn read_tool(tool: Fields) -> Result<ClientToolDefinition> {
    let kind: Option<String> = get_field(&tool, "type")?;
    match kind.as_deref() {
        None | Some("function") => {
            let mut tool = tool;
            tool.remove("type");
            let function: Option<Fields> = take_field(&mut tool, "function")?;
            let function = function.ok_or_else(|| invalid_request("a tool has no `function`"))?;
            let mut read = ClientToolDefinition::read(function, "parameters")?;
            tool.insert_fields("function", &read.fields);
            read.fields = tool;
            Ok(read)
        }
        Some("custom") => {
            let custom: Option<Fields> = get_field(&tool, "custom")?;
            let mut custom = custom.ok_or_else(|| invalid_request("a tool has no `custom`"))?;
            Ok(ClientToolDefinition::native(ToolKind::Custom, take_name(&mut custom)?, tool))
        }
        Some(kind) => Ok(ClientToolDefinition::native(ToolKind::Hosted, kind.to_owned(), tool)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request_with(more: &Value) -> Result<ClientRequest> {
        let mut body = json!({"model": "a", "messages": [{"role": "user", "content": "Hi!"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read(&body.to_string())
    }

    #[test]
    fn the_whole_conversation_is_read() {
        let request = request_with(&json!({"messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "One."},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c0", "type": "function", "function": {"name": "t", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c0", "content": "done"},
            {"role": "assistant", "content": "Done."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "Two."},
        ]}))
        .unwrap();
        let roles: Vec<_> = request.messages.iter().map(|msg| msg.role().to_string()).collect();
        assert_eq!(
            roles,
            ["system", "user", "assistant", "assistant", "assistant", "system", "user"]
        );
    }

    #[test]
    fn options_of_a_request_are_kept() {
        let request = request_with(&json!({
            "stream": true, "stream_options": {"include_usage": true}, "n": 1, "temperature": 0.5,
            "tools": [{"type": "function", "function": {
                "name": "open_page", "description": "Opens.", "parameters": {"type": "object"}}}],
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "x", "strict": true, "schema": {"type": "object"}}},
        }))
        .unwrap();
        assert!(request.stream && request.include_usage);
        assert_eq!(request.tools[0].description, "Opens.");
        assert_eq!(request.output_schema.unwrap().text(), r#"{"type":"object"}"#);
        let format = json!({"type": "json_schema", "json_schema": {
            "name": "x", "strict": true, "schema": {"type": "object"}}});
        assert_eq!(
            request.extra.parse_as::<Value>().unwrap(),
            json!({"temperature": 0.5, "response_format": format})
        );
    }

    #[test]
    fn unsupported_requests_are_refused_with_a_reason() {
        for (more, why) in [
            (json!({"model": ""}), "`model` is missing"),
            (json!({"n": 2}), "`n` must be 1"),
            (json!({"n": 0}), "`n` must be 1"),
            (json!({"logprobs": 7}), "logprobs"),
            (json!({"functions": []}), "obsolete"),
            (json!({"messages": {}}), "`messages`"),
            (json!({"messages": [{"content": "x"}]}), "messages[0]"),
            (json!({"messages": [{"role": "user", "content": ""}]}), "user message is empty"),
            (
                json!({"messages": [{"role": "assistant", "content": "x"}]}),
                "neither a user message",
            ),
            (json!({"tools": [{"type": "custom", "custom": {}}]}), "no `name`"),
            (json!({"temperature": "hot"}), "`temperature`"),
            (json!({"tool_choice": "always"}), "`tool_choice`"),
            (json!({"tools": [{"type": "function"}]}), "no `function`"),
            (json!({"response_format": {"type": "xml"}}), "response_format"),
        ] {
            let error = request_with(&more).unwrap_err().to_string();
            assert!(error.contains(why), "{error} has no {why}");
        }
    }
}
