//! Reads the request of a client of the Messages API. The server calls this.

use super::{NAME, message};
use crate::client_request::{ClientRequest, ClientToolDefinition, get_field};
use crate::json::fields;
use crate::model_request::ToolKind;
use crate::native;
use turnwire_core::{Fields, Json, Msg, Result, Role};

/// Reads a request.
pub fn read(text: &str) -> Result<ClientRequest> {
    let (mut request, mut fields) = ClientRequest::read(text)?;
    // The stream always has it.
    request.include_usage = true;
    if let Some(system) = fields.remove("system").filter(|system| !system.is_null()) {
        let as_message = Json::from(fields! { "role": "system", "content": system });
        let read = message::decode(as_message.text());
        request.messages.extend(read.map_err(|error| error.at("system"))?);
    }
    request.read_rest(NAME, fields, read_tool, read_message)
}

/// Reads a message. A system message keeps its role: it is not part of `system`.
fn read_message(text: &str) -> Result<Vec<Msg>> {
    let role = fields! { "role": "system" };
    let keep_role = |msg: Msg| match msg.role() {
        Role::System => native::set_on_message(msg, NAME, &role),
        Role::User | Role::Assistant | Role::Tool => native::keep_result_parts(msg, NAME),
    };
    Ok(message::decode(text)?.into_iter().map(keep_role).collect())
}

fn read_tool(tool: Fields) -> Result<ClientToolDefinition> {
    let kind: Option<String> = get_field(&tool, "type")?;
    let Some(kind) = kind.filter(|kind| kind != "custom") else {
        return ClientToolDefinition::read(tool, "input_schema");
    };
    // Anthropic's own tools have no schema. Some of them (`bash_…`, `text_editor_…`) are executed by the client.
    Ok(match get_field::<String>(&tool, "name")? {
        Some(name) => ClientToolDefinition::native(ToolKind::Custom, name, tool),
        None => ClientToolDefinition::native(ToolKind::Hosted, kind, tool),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use turnwire_core::ToolResult;

    fn request_with(more: &serde_json::Value) -> Result<ClientRequest> {
        let mut body = json!({"model": "a", "messages": [{"role": "user", "content": "Hi!"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read(&body.to_string())
    }

    #[test]
    fn the_whole_conversation_is_read() {
        let request = request_with(&json!({"messages": [
            {"role": "user", "content": "One."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c0", "name": "t", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c0", "content": "new", "is_error": true},
                {"type": "text", "text": "Two."}
            ]},
        ]}))
        .unwrap();
        let texts: Vec<_> = request.messages.iter().filter_map(|msg| msg.text("")).collect();
        assert_eq!(texts, ["One.", "Two."]);
        let results: Vec<_> = request.messages.iter().flat_map(Msg::blocks::<ToolResult>).collect();
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].output.text(""), "new");
    }

    #[test]
    fn options_of_a_request_are_kept() {
        let request = request_with(&json!({
            "stream": true, "max_tokens": 9, "temperature": 0.5,
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
            "tools": [{"name": "open_page", "description": "Opens.", "input_schema": {"type": "object"}}],
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        }))
        .unwrap();
        assert!(request.stream);
        assert_eq!(request.messages[0].text("\n").as_deref(), Some("Be brief.\nBe kind."));
        assert_eq!(request.tools[0].name, "open_page");
        assert_eq!(request.output_schema.unwrap().text(), r#"{"type":"object"}"#);
        let extra: serde_json::Value = request.extra.parse_as().unwrap();
        let kept = json!({"max_tokens": 9, "temperature": 0.5, "output_config": {
            "effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}});
        assert_eq!(extra, kept);
    }

    #[test]
    fn unsupported_requests_are_refused_with_a_reason() {
        for (more, why) in [
            (json!({"model": null}), "`model`"),
            (json!({"messages": []}), "neither a user message"),
            (json!({"messages": null}), "`messages` is missing"),
            (json!({"messages": "Hi!"}), "`messages`"),
            (json!({"messages": [{"role": "user", "content": " "}]}), "user message is empty"),
            (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0]"),
            (json!({"messages": [{"role": "robot", "content": "x"}]}), "unknown role `robot`"),
            (json!({"tools": [{}]}), "no `name`"),
            (json!({"stop_sequences": 3}), "`stop_sequences`"),
            (json!({"output_config": "low"}), "`output_config` is not an object"),
            (json!({"output_format": {"type": "yaml"}}), "json_schema"),
            (json!({"stream": "yes"}), "`stream`"),
        ] {
            let error = request_with(&more).unwrap_err().to_string();
            assert!(error.contains(why), "{error} has no {why}");
        }
        assert!(read("[]").is_err() && read("{").is_err() && read("").is_err());
    }
}
