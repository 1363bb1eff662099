//! Reads the request of a client of the Messages API. The server calls this.

use super::message;
use crate::client_request::{ClientRequest, ClientToolDefinition, invalid_request, take_field};
use crate::json::fields;
use turnwire_core::{Fields, Json, Result};

/// Reads a request.
pub fn read(text: &str) -> Result<ClientRequest> {
    let (mut request, mut fields) = ClientRequest::read(text)?;
    // The stream always has it.
    request.include_usage = true;
    for name in ["mcp_servers", "container"] {
        if fields.remove(name).is_some_and(|value| !is_null_or_empty(&value)) {
            return Err(invalid_request(format!(
                "`{name}` is not supported: it needs Anthropic's own servers"
            )));
        }
    }
    if let Some(system) = fields.remove("system").filter(|system| !system.is_null()) {
        let as_message = Json::from(fields! { "role": "system", "content": system });
        let read = message::decode(as_message.text());
        read.map_err(|error| error.at("system"))?
            .into_iter()
            .for_each(|msg| request.add_message(msg));
    }
    for tool in take_field::<Vec<Fields>>(&mut fields, "tools")?.unwrap_or_default() {
        request.tools.push(read_tool(tool)?);
    }
    request.output_schema = output_schema(&mut fields)?;
    request.read_messages(&mut fields, message::decode)?;
    request.extra = fields;
    request.validate()
}

fn is_null_or_empty(value: &Json) -> bool {
    value.is_null() || value.text() == "[]"
}

fn read_tool(mut tool: Fields) -> Result<ClientToolDefinition> {
    let kind: Option<String> = take_field(&mut tool, "type")?;
    if let Some(kind) = kind.filter(|kind| kind != "custom") {
        return Err(invalid_request(format!(
            "the tool type `{kind}` is Anthropic's own; define the tool with an `input_schema`"
        )));
    }
    ClientToolDefinition::read(tool, "input_schema")
}

/// The schema of `output_config.format`, or of its older name `output_format`.
fn output_schema(fields: &mut Fields) -> Result<Option<Json>> {
    let mut format: Option<Fields> = take_field(fields, "output_format")?;
    if let Some(mut config) = take_field::<Fields>(fields, "output_config")? {
        format = take_field(&mut config, "format")?.or(format);
        fields.insert_fields("output_config", &config);
    }
    let Some(mut format) = format else { return Ok(None) };
    match take_field::<String>(&mut format, "type")?.as_deref() {
        Some("json_schema") => Ok(format.remove("schema")),
        _ => Err(invalid_request("unknown output format: the only one is `json_schema`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use turnwire_core::{Msg, ToolResult};

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
        assert_eq!(request.instructions.as_deref(), Some("Be brief.\nBe kind."));
        assert_eq!(request.tools[0].name, "open_page");
        assert_eq!(request.output_schema.unwrap().text(), r#"{"type":"object"}"#);
        let extra: serde_json::Value = request.extra.parse_as().unwrap();
        let kept = json!({"max_tokens": 9, "temperature": 0.5, "output_config": {"effort": "low"}});
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
            (
                json!({"tools": [{"type": "web_search_20250305", "name": "s"}]}),
                "web_search_20250305",
            ),
            (json!({"tools": [{}]}), "no `name`"),
            (json!({"mcp_servers": [{"url": "x"}]}), "mcp_servers"),
            (json!({"output_format": {"type": "yaml"}}), "json_schema"),
            (json!({"stream": "yes"}), "`stream`"),
        ] {
            let error = request_with(&more).unwrap_err().to_string();
            assert!(error.contains(why), "{error} has no {why}");
        }
        assert!(read("[]").is_err() && read("{").is_err() && read("").is_err());
    }
}
