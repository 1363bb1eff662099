//! Reads the options of a client's request.

use super::{ModelOption, ModelOptions, Reasoning, ResponseFormat, paths};
use crate::client_request::invalid_request;
use crate::model_request::ToolChoice;
use serde::de::DeserializeOwned;
use serde_json::Value;
use turnwire_core::{Fields, Json, Result};

impl ModelOptions {
    /// Reads the options among the fields of a request, by the names of its protocol. Without a protocol the names are the
    /// canonical ones, and tool choice, reasoning and response format are those of Chat Completions.
    pub fn read(wire: &str, fields: &Fields) -> Result<Self> {
        for (parent, _) in ModelOption::ALL
            .iter()
            .flat_map(|option| option.fields(wire))
            .filter_map(|path| path.split_once('.'))
        {
            let is_object = |value: &Json| value.is_null() || value.text().starts_with('{');
            if fields.raw(parent).is_some_and(|value| !is_object(value)) {
                return Err(invalid_request(format!("`{parent}` is not an object")));
            }
        }
        let reader = Reader { wire, fields };
        let mut options = Self {
            temperature: reader.value(ModelOption::Temperature)?,
            top_p: reader.value(ModelOption::TopP)?,
            top_k: reader.value(ModelOption::TopK)?,
            min_p: reader.value(ModelOption::MinP)?,
            frequency_penalty: reader.value(ModelOption::FrequencyPenalty)?,
            presence_penalty: reader.value(ModelOption::PresencePenalty)?,
            seed: reader.value(ModelOption::Seed)?,
            max_tokens: reader.value(ModelOption::MaxTokens)?,
            stop: reader.stop()?,
            tool_choice: reader.tool_choice()?,
            parallel_tool_calls: reader.parallel_tool_calls()?,
            reasoning: reader.reasoning()?,
            response_format: reader.response_format()?,
            verbosity: reader.value(ModelOption::Verbosity)?,
            prompt_cache_key: reader.value(ModelOption::PromptCacheKey)?,
            cache_control: reader.value(ModelOption::CacheControl)?,
            service_tier: reader.value(ModelOption::ServiceTier)?,
            user: reader.value(ModelOption::User)?,
            safety_identifier: reader.value(ModelOption::SafetyIdentifier)?,
            metadata: reader.value(ModelOption::Metadata)?,
            store: reader.value(ModelOption::Store)?,
            include: reader.value(ModelOption::Include)?,
            truncation: reader.value(ModelOption::Truncation)?,
            logprobs: reader.value(ModelOption::Logprobs)?,
            top_logprobs: reader.value(ModelOption::TopLogprobs)?,
            modalities: reader.value(ModelOption::Modalities)?,
            audio: reader.value(ModelOption::Audio)?,
            wire: wire.to_owned(),
            original: Fields::default(),
            headers: Vec::new(),
        };
        let is_option = |name: &str| !NOT_OPTIONS.contains(&name);
        for (name, value) in
            fields.iter().filter(|(name, value)| is_option(name) && !value.is_null())
        {
            options.original.insert(name, value.clone());
        }
        Ok(options)
    }
}

/// Fields of a request that are never passed on as options: Turnwire writes them itself.
const NOT_OPTIONS: [&str; 16] = [
    "model",
    "messages",
    "input",
    "system",
    "instructions",
    "tools",
    "functions",
    "function_call",
    "stream",
    "stream_options",
    "n",
    "background",
    "previous_response_id",
    "conversation",
    "contents",
    "systemInstruction",
];

struct Reader<'r> {
    wire: &'r str,
    fields: &'r Fields,
}

impl Reader<'_> {
    /// The field of an option, and its value.
    fn raw(&self, option: ModelOption) -> Option<(&'static str, Json)> {
        option.fields(self.wire).find_map(|path| Some((path, paths::get(self.fields, path)?)))
    }

    fn value<T: DeserializeOwned>(&self, option: ModelOption) -> Result<Option<T>> {
        self.raw(option).map(|(path, value)| parse(path, &value)).transpose()
    }

    fn stop(&self) -> Result<Option<Vec<String>>> {
        let Some((path, value)) = self.raw(ModelOption::Stop) else { return Ok(None) };
        if value.text().starts_with('"') {
            return Ok(Some(vec![parse(path, &value)?]));
        }
        parse(path, &value).map(Some)
    }

    fn tool_choice(&self) -> Result<Option<ToolChoice>> {
        let Some((path, json)) = self.raw(ModelOption::ToolChoice) else { return Ok(None) };
        let value: Value = parse(path, &json)?;
        let wrong = || {
            invalid_request(format!(
                "`{path}` is invalid: expected auto, none, required, or an object that names a tool"
            ))
        };
        let word = value.as_str().or_else(|| value.get("type")?.as_str()).ok_or_else(wrong)?;
        let inner = |key: &str| value.get(key).unwrap_or(&value);
        let name = |of: &Value| {
            let name = of.get("name").or_else(|| of.get("toolName"))?;
            name.as_str().map(str::to_owned)
        };
        Ok(Some(match word {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" | "any" => ToolChoice::Required,
            "function" | "tool" | "custom" => {
                ToolChoice::Tool(name(inner(word)).ok_or_else(wrong)?)
            }
            "allowed_tools" => {
                let inner = inner(word);
                let mode = inner.get("mode").and_then(Value::as_str);
                let tools = inner.get("tools").and_then(Value::as_array).ok_or_else(wrong)?;
                let allowed = tools.iter().map(|tool| {
                    name(tool.get("function").or_else(|| tool.get("custom")).unwrap_or(tool))
                });
                match allowed.collect::<Option<Vec<String>>>() {
                    Some(names) => {
                        ToolChoice::Allowed { required: mode == Some("required"), names }
                    }
                    // Hosted tools have no names.
                    None => ToolChoice::Other(json),
                }
            }
            _ if value.is_object() => ToolChoice::Other(json),
            _ => return Err(wrong()),
        }))
    }

    fn parallel_tool_calls(&self) -> Result<Option<bool>> {
        let parallel: Option<bool> = self.value(ModelOption::ParallelToolCalls)?;
        Ok(if self.wire == "anthropic" { parallel.map(|disabled| !disabled) } else { parallel })
    }

    fn reasoning(&self) -> Result<Option<Reasoning>> {
        let mut reasoning = Reasoning::default();
        let mut is_set = false;
        for path in ModelOption::Reasoning.fields(self.wire) {
            let Some(json) = paths::get(self.fields, path) else { continue };
            is_set = true;
            match parse::<Value>(path, &json)? {
                Value::String(effort) => reasoning.effort = Some(effort),
                Value::Bool(enabled) => reasoning.enabled = Some(enabled),
                Value::Object(fields) => {
                    let text = |key: &str| fields.get(key)?.as_str().map(str::to_owned);
                    let number = |key: &str| fields.get(key)?.as_u64()?.try_into().ok();
                    reasoning.effort = text("effort").or(reasoning.effort);
                    reasoning.summary = text("summary");
                    reasoning.budget_tokens =
                        number("budget_tokens").or_else(|| number("max_tokens"));
                    reasoning.enabled = match text("type").as_deref() {
                        Some("disabled") => Some(false),
                        Some(_) => Some(true),
                        None => fields.get("enabled").and_then(Value::as_bool),
                    };
                }
                Value::Null | Value::Number(_) | Value::Array(_) => {
                    return Err(invalid_request(format!(
                        "`{path}` is invalid: expected an effort, or an object"
                    )));
                }
            }
        }
        if reasoning.effort.as_deref() == Some("none") {
            reasoning.enabled = Some(false);
        }
        Ok(is_set.then_some(reasoning))
    }

    fn response_format(&self) -> Result<Option<ResponseFormat>> {
        let Some((path, json)) = self.raw(ModelOption::ResponseFormat) else { return Ok(None) };
        let mut format: Fields = parse(path, &json)?;
        let kind: Option<String> = take(&mut format, path, "type")?;
        match kind.as_deref() {
            Some("text") => Ok(Some(ResponseFormat::Text)),
            Some("json_object") => Ok(Some(ResponseFormat::JsonObject)),
            Some("json_schema") => {
                // Chat Completions has an object inside, the others have the fields here.
                let mut inner: Fields = take(&mut format, path, "json_schema")?.unwrap_or(format);
                let schema: Option<Json> = take(&mut inner, path, "schema")?;
                let schema =
                    schema.filter(|schema| schema.text().starts_with('{')).ok_or_else(|| {
                        invalid_request(format!("`{path}` has no `schema`, which is a JSON Schema"))
                    })?;
                Ok(Some(ResponseFormat::JsonSchema {
                    name: take(&mut inner, path, "name")?,
                    description: take(&mut inner, path, "description")?,
                    strict: take(&mut inner, path, "strict")?,
                    schema,
                }))
            }
            _ => Err(invalid_request(format!(
                "`{path}` has an unknown type: expected text, json_object or json_schema"
            ))),
        }
    }
}

fn parse<T: DeserializeOwned>(path: &str, value: &Json) -> Result<T> {
    value.parse_as().map_err(|error| invalid_request(format!("`{path}` {}", error.message())))
}

fn take<T: DeserializeOwned>(fields: &mut Fields, path: &str, key: &str) -> Result<Option<T>> {
    fields.take(key).map_err(|error| invalid_request(format!("`{path}.{key}` {}", error.message())))
}
