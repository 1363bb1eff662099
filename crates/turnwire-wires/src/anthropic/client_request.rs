//! What a client of the Messages API posts.

use super::message;
use crate::client_request::{ClientRequest, ClientToolDefinition, invalid_request, take_field};
use turnwire_core::{Fields, Json, Result};

/// Reads a request. Of its messages only the user's and the results of calls are taken.
pub fn read(text: &str) -> Result<ClientRequest> {
    let mut fields: Fields =
        Json::parse(text)?.parse_as().map_err(|_| invalid_request("a request is a JSON object"))?;
    let mut asked = ClientRequest {
        model: take_field(&mut fields, "model")?.unwrap_or_default(),
        stream: take_field(&mut fields, "stream")?.unwrap_or_default(),
        // Its stream always has them.
        include_usage: true,
        ..ClientRequest::default()
    };
    for name in ["mcp_servers", "container"] {
        if fields.remove(name).is_some_and(|value| !is_null_or_empty(&value)) {
            return Err(invalid_request(format!("`{name}` is for Anthropic's own servers")));
        }
    }
    if let Some(system) = fields.remove("system").filter(|system| !system.is_null()) {
        let mut as_message = Fields::default();
        as_message.insert("role", "system");
        as_message.insert("content", system);
        add_messages(&mut asked, &as_message).map_err(|error| error.at("system"))?;
    }
    for tool in take_field::<Vec<Fields>>(&mut fields, "tools")?.unwrap_or_default() {
        asked.tools.push(read_tool(tool)?);
    }
    asked.output_schema = output_schema(&mut fields)?;
    let messages: Option<Vec<Fields>> = take_field(&mut fields, "messages")?;
    let messages = messages.ok_or_else(|| invalid_request("`messages` is missing"))?;
    for (at, message) in messages.into_iter().enumerate() {
        // Nobody can put words into the assistant's mouth: what it says there is only compared.
        if message.raw("role").is_some_and(|role| *role == Json::from("assistant")) {
            asked.add_claimed_reply(message::decode(Json::from_value(&message)?.text()));
        } else {
            add_messages(&mut asked, &message)
                .map_err(|error| error.at(format!("messages[{at}]")))?;
        }
    }
    asked.extra = fields;
    asked.validate()
}

fn is_null_or_empty(value: &Json) -> bool {
    value.is_null() || value.text() == "[]"
}

fn add_messages(asked: &mut ClientRequest, message: &Fields) -> Result<()> {
    for msg in message::decode(Json::from_value(message)?.text())? {
        asked.add_message(msg);
    }
    Ok(())
}

fn read_tool(mut tool: Fields) -> Result<ClientToolDefinition> {
    let kind: Option<String> = take_field(&mut tool, "type")?;
    if let Some(kind) = kind.filter(|kind| kind != "custom") {
        return Err(invalid_request(format!(
            "a tool of the type `{kind}` is Anthropic's own; describe it with an `input_schema`"
        )));
    }
    let name: Option<String> = take_field(&mut tool, "name")?;
    Ok(ClientToolDefinition {
        name: name
            .filter(|name| !name.is_empty())
            .ok_or_else(|| invalid_request("a tool has no `name`"))?,
        description: take_field(&mut tool, "description")?.unwrap_or_default(),
        input_schema: tool.remove("input_schema").filter(|schema| !schema.is_null()),
    })
}

/// The schema of `output_config.format`, or of `output_format` as it was called before.
fn output_schema(fields: &mut Fields) -> Result<Option<Json>> {
    let mut format: Option<Fields> = take_field(fields, "output_format")?;
    if let Some(mut config) = take_field::<Fields>(fields, "output_config")? {
        format = take_field(&mut config, "format")?.or(format);
        if !config.is_empty() {
            fields.insert("output_config", Json::from_value(&config)?);
        }
    }
    let Some(mut format) = format else { return Ok(None) };
    match take_field::<String>(&mut format, "type")?.as_deref() {
        Some("json_schema") => Ok(format.remove("schema")),
        _ => Err(invalid_request(
            "the format of the output is none that we know: it is `json_schema`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request_with(more: &serde_json::Value) -> Result<ClientRequest> {
        let mut body = json!({"model": "a", "messages": [{"role": "user", "content": "Hi!"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read(&body.to_string())
    }

    #[test]
    fn what_the_client_says_that_the_assistant_said_is_not_taken() {
        let asked = request_with(&json!({"messages": [
            {"role": "user", "content": "One."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c0", "name": "t", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c0", "content": "old"}]},
            {"role": "assistant", "content": {"this": "is not even read"}},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "new", "is_error": true},
                {"type": "text", "text": "Two."}
            ]},
        ]}))
        .unwrap();
        let texts: Vec<_> = asked.user_messages.iter().filter_map(|msg| msg.text("")).collect();
        assert_eq!(texts, ["One.", "Two."]);
        assert_eq!(asked.new_messages().len(), 1);
        let results: Vec<_> =
            asked.results.iter().map(|result| (&*result.id, result.output.text(""))).collect();
        assert_eq!(results, [("c1", "new".to_owned())]);
    }

    #[test]
    fn what_goes_with_a_request_is_kept() {
        let asked = request_with(&json!({
            "stream": true, "max_tokens": 9, "temperature": 0.5,
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
            "tools": [{"name": "open_page", "description": "Opens.", "input_schema": {"type": "object"}}],
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        }))
        .unwrap();
        assert!(asked.stream);
        assert_eq!(asked.instructions.as_deref(), Some("Be brief.\nBe kind."));
        assert_eq!(asked.tools[0].name, "open_page");
        assert_eq!(asked.output_schema.unwrap().text(), r#"{"type":"object"}"#);
        let extra: serde_json::Value = asked.extra.parse_as().unwrap();
        let kept = json!({"max_tokens": 9, "temperature": 0.5, "output_config": {"effort": "low"}});
        assert_eq!(extra, kept);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for (more, why) in [
            (json!({"model": null}), "`model`"),
            (json!({"messages": []}), "nothing of the user's"),
            (json!({"messages": null}), "`messages` is missing"),
            (json!({"messages": "Hi!"}), "`messages`"),
            (json!({"messages": [{"role": "user", "content": " "}]}), "says nothing"),
            (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0]"),
            (json!({"messages": [{"role": "robot", "content": "x"}]}), "`robot` is no role"),
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
