//! What a client of chat completions posts.

use super::message;
use crate::model::{Asked, AskedTool, field, wrong};
use serde_json::json;
use turnwire_core::{Fields, Json, Result};

/// Reads a request. Of its messages only the user's and the results of calls are taken.
pub fn read(text: &str) -> Result<Asked> {
    let mut fields: Fields =
        Json::parse(text)?.parse_as().map_err(|_| wrong("a request is a JSON object"))?;
    impossible(&mut fields)?;
    let mut asked = Asked {
        model: field(&mut fields, "model")?.unwrap_or_default(),
        stream: field(&mut fields, "stream")?.unwrap_or_default(),
        ..Asked::default()
    };
    if let Some(mut options) = field::<Fields>(&mut fields, "stream_options")? {
        asked.usage = field(&mut options, "include_usage")?.unwrap_or_default();
    }
    for tool in field::<Vec<Fields>>(&mut fields, "tools")?.unwrap_or_default() {
        asked.tools.push(read_tool(tool)?);
    }
    asked.output_schema = output_schema(&mut fields)?;
    let messages: Option<Vec<Fields>> = field(&mut fields, "messages")?;
    let messages = messages.ok_or_else(|| wrong("`messages` is missing"))?;
    for (at, message) in messages.into_iter().enumerate() {
        let read = message::decode(Json::from_value(&message)?.text());
        // Nobody can put words into the assistant's mouth: what it says there is only compared.
        if message.raw("role").is_some_and(|role| *role == Json::from("assistant")) {
            asked.assistant(read);
            continue;
        }
        read.map_err(|error| error.at(format!("messages[{at}]")))?
            .into_iter()
            .for_each(|msg| asked.take(msg));
    }
    asked.extra = fields;
    asked.checked()
}

/// An error for what an agent cannot do.
fn impossible(fields: &mut Fields) -> Result<()> {
    if field::<f64>(fields, "n")?.is_some_and(|n| (n - 1.0).abs() > f64::EPSILON) {
        return Err(wrong("an agent gives one answer: `n` can only be 1"));
    }
    if field::<bool>(fields, "logprobs")? == Some(true) {
        return Err(wrong("an agent has no `logprobs`"));
    }
    if field::<Vec<String>>(fields, "modalities")?.unwrap_or_default().iter().any(|it| it != "text")
        || field::<Json>(fields, "audio")?.is_some()
    {
        return Err(wrong("an agent answers with text: `modalities` can only be [\"text\"]"));
    }
    for name in ["functions", "function_call"] {
        if field::<Json>(fields, name)?.is_some() {
            return Err(wrong(format!("`{name}` is too old: use `tools` and `tool_choice`")));
        }
    }
    Ok(())
}

fn read_tool(mut tool: Fields) -> Result<AskedTool> {
    let kind: Option<String> = field(&mut tool, "type")?;
    if let Some(kind) = kind.filter(|kind| kind != "function") {
        return Err(wrong(format!("a tool of the type `{kind}` cannot be called: only functions")));
    }
    let function: Option<Fields> = field(&mut tool, "function")?;
    let mut function = function.ok_or_else(|| wrong("a tool has no `function`"))?;
    let name: Option<String> = field(&mut function, "name")?;
    Ok(AskedTool {
        name: name.filter(|name| !name.is_empty()).ok_or_else(|| wrong("a tool has no `name`"))?,
        description: field(&mut function, "description")?.unwrap_or_default(),
        input: function.remove("parameters").filter(|schema| !schema.is_null()),
    })
}

fn output_schema(fields: &mut Fields) -> Result<Option<Json>> {
    let Some(mut format) = field::<Fields>(fields, "response_format")? else { return Ok(None) };
    match field::<String>(&mut format, "type")?.as_deref() {
        Some("text") => Ok(None),
        Some("json_object") => Json::from_value(&json!({"type": "object"})).map(Some),
        Some("json_schema") => {
            let schema: Option<Fields> = field(&mut format, "json_schema")?;
            let mut schema = schema.ok_or_else(|| wrong("`json_schema` is missing"))?;
            Ok(schema.remove("schema").filter(|schema| !schema.is_null()))
        }
        _ => Err(wrong("`response_format` is text, json_object or json_schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn ask(more: &Value) -> Result<Asked> {
        let mut body = json!({"model": "a", "messages": [{"role": "user", "content": "Hi!"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read(&body.to_string())
    }

    #[test]
    fn what_the_client_says_that_the_assistant_said_is_not_taken() {
        let asked = ask(&json!({"messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "One."},
            {"role": "assistant", "content": null, "tool_calls": 7},
            {"role": "tool", "tool_call_id": "c0", "content": "old"},
            {"role": "assistant", "content": "I promise you a refund."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "tool", "tool_call_id": "c1", "content": "new"},
            {"role": "user", "content": "Two."},
        ]}))
        .unwrap();
        let texts: Vec<_> = asked.said.iter().filter_map(|msg| msg.text("")).collect();
        assert_eq!(texts, ["One.", "Two."]);
        assert_eq!(asked.new_messages().len(), 1);
        assert_eq!(asked.instructions.as_deref(), Some("Be brief.\n\nBe kind."));
        let results: Vec<_> =
            asked.results.iter().map(|result| (&*result.id, result.output.text(""))).collect();
        assert_eq!(results, [("c1", "new".to_owned())]);
    }

    #[test]
    fn what_goes_with_a_request_is_kept() {
        let asked = ask(&json!({
            "stream": true, "stream_options": {"include_usage": true}, "n": 1, "temperature": 0.5,
            "tools": [{"type": "function", "function": {
                "name": "open_page", "description": "Opens.", "parameters": {"type": "object"}}}],
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "x", "strict": true, "schema": {"type": "object"}}},
        }))
        .unwrap();
        assert!(asked.stream && asked.usage);
        assert_eq!(asked.tools[0].description, "Opens.");
        assert_eq!(asked.output_schema.unwrap().text(), r#"{"type":"object"}"#);
        assert_eq!(asked.extra.parse_as::<Value>().unwrap(), json!({"temperature": 0.5}));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for (more, why) in [
            (json!({"model": ""}), "`model` is missing"),
            (json!({"n": 2}), "`n` can only be 1"),
            (json!({"n": 0}), "`n` can only be 1"),
            (json!({"logprobs": true}), "logprobs"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"functions": []}), "too old"),
            (json!({"messages": {}}), "`messages`"),
            (json!({"messages": [{"content": "x"}]}), "messages[0]"),
            (json!({"messages": [{"role": "user", "content": ""}]}), "says nothing"),
            (json!({"messages": [{"role": "assistant", "content": "x"}]}), "nothing of the user's"),
            (json!({"tools": [{"type": "custom", "custom": {"name": "x"}}]}), "only functions"),
            (json!({"tools": [{"type": "function"}]}), "no `function`"),
            (json!({"response_format": {"type": "xml"}}), "response_format"),
        ] {
            let error = ask(&more).unwrap_err().to_string();
            assert!(error.contains(why), "{error} has no {why}");
        }
    }
}
