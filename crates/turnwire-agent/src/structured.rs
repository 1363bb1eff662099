//! Structured output: an answer that matches a JSON Schema.
//!
//! A provider with a schema mode gets the schema. Any other model must call a tool whose input has the
//! schema; in the events that call becomes text. So the log looks the same for both, and a reply continues
//! from it.
//!
//! The answer is checked. If it does not match, a hint tells the model why, once; if it still does not
//! match, the reply fails. A matching answer becomes the `structured_output` of `REPLY_END`.
//!
//! ```
//! use turnwire_agent::structured::AnswerSchema;
//! use turnwire_core::{Json, Msg};
//!
//! let schema = Json::parse(r#"{"type":"object","properties":{"steps":{"type":"integer"}}}"#)?;
//! let shape = AnswerSchema::new(&schema).unwrap();
//! let good = Msg::assistant("friday", "```json\n{\"steps\": 3}\n```");
//! assert_eq!(shape.parse_reply(&good).unwrap().text(), r#"{"steps":3}"#);
//! let bad = Msg::assistant("friday", r#"{"steps": "three"}"#);
//! assert!(shape.parse_reply(&bad).unwrap_err().to_string().contains("integer"));
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::schema::{self, AnswerError, Checker, MAX_ANSWER_BYTES, Schema, SchemaError};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use turnwire_core::event::{TextBlockDelta, TextBlockEnd, TextBlockStart};
use turnwire_core::{
    BlockKind, ContentBlock, Event, EventKind, Fields, FinishedReason, HintBlock, Json, Msg,
    TextBlock, event_kinds,
};
use turnwire_wires::model_options::ResponseFormat;
use turnwire_wires::model_request::{OutputFormat, ToolDefinition};

/// The source of the hint that asks the model to correct its answer.
pub const CORRECTION_SOURCE: &str = "structured_output";

/// The name of the schema and of the answer tool.
const OUTPUT_NAME: &str = "final_answer";

/// The field for an answer that is not an object: providers accept only objects.
const WRAPPER_FIELD: &str = "answer";

/// A check in addition to the schema.
pub(crate) type OutputCheck = Arc<dyn Fn(&Json) -> Result<(), String> + Send + Sync>;

/// A schema that answers must match. It holds the schema as text: the compiled form is larger, and needed
/// only during a check.
#[derive(Clone)]
pub struct AnswerSchema {
    output: OutputFormat,
    schema: Json,
    check: Option<OutputCheck>,
}

impl AnswerSchema {
    /// Validates a JSON Schema. Fetches nothing. Blocks while the schema is compiled.
    pub fn new(schema: &Json) -> Result<Self, SchemaError> {
        Schema::compile(schema)?;
        Ok(Self::from_valid(schema))
    }

    /// Validates a JSON Schema on a worker thread.
    pub async fn compile(schema: &Json) -> Result<Self, SchemaError> {
        schema::check_schema(schema).await?;
        Ok(Self::from_valid(schema))
    }

    fn from_valid(schema: &Json) -> Self {
        let output = OutputFormat::new(OUTPUT_NAME, wrap_in_object(schema));
        Self { output, schema: schema.clone(), check: None }
    }

    /// Adds a check.
    pub(crate) fn with_check(self, check: OutputCheck) -> Self {
        Self { check: Some(check), ..self }
    }

    /// What the provider gets.
    pub fn output(&self) -> &OutputFormat {
        &self.output
    }

    /// What the provider gets, with the name and the strictness that the client chose.
    pub(crate) fn output_as(&self, format: Option<&ResponseFormat>) -> OutputFormat {
        let mut output = self.output.clone();
        if let Some(ResponseFormat::JsonSchema { name, description, strict, .. }) = format {
            output.name = name.clone().unwrap_or(output.name);
            output.description.clone_from(description);
            output.strict = *strict;
        }
        output
    }

    /// The tool for models without a schema mode.
    pub(crate) fn answer_tool(&self, others: &[ToolDefinition]) -> ToolDefinition {
        let mut name = OUTPUT_NAME.to_owned();
        while others.iter().any(|tool| tool.name == name) {
            name.push('_');
        }
        let description = "Gives the final answer. Call it once, when everything else is done.";
        ToolDefinition {
            name,
            description: description.to_owned(),
            input_schema: self.output.schema.clone(),
            ..ToolDefinition::default()
        }
    }

    /// Parses the answer of a reply. Blocks while it is checked.
    pub fn parse_reply(&self, reply: &Msg) -> Result<Json, AnswerError> {
        self.parse_texts(&answer_texts(reply)?)
    }

    /// Parses the answer of a reply on a worker thread.
    pub async fn parse_reply_on_worker(&self, reply: &Msg) -> Result<Json, AnswerError> {
        let (shape, texts) = (self.clone(), answer_texts(reply)?);
        let read = schema::run_on_worker(move |_| shape.parse_texts(&texts)).await;
        read.unwrap_or_else(|| {
            let why = "the answer cannot be checked against its JSON Schema: the check panicked";
            Err(AnswerError::TooExpensive(why.to_owned()))
        })
    }

    /// Parses the first text that matches.
    fn parse_texts(&self, texts: &[String]) -> Result<Json, AnswerError> {
        let schema = Schema::compile(&self.schema);
        let schema = schema.map_err(|error| AnswerError::TooExpensive(error.to_string()))?;
        let mut checker = schema.checker();
        let mut wrong = None;
        for text in texts {
            match self.parse_text(text, &mut checker) {
                Ok(json) => return Ok(json),
                // Report the problem of the last text only.
                Err(AnswerError::Mismatch(why)) => wrong = wrong.or(Some(why)),
                Err(problem @ AnswerError::TooExpensive(_)) => return Err(problem),
            }
        }
        Err(AnswerError::Mismatch(wrong.unwrap_or_else(|| "there is no answer".to_owned())))
    }

    fn parse_text(&self, text: &str, checker: &mut Checker<'_>) -> Result<Json, AnswerError> {
        let not_json =
            |why: &dyn fmt::Display| AnswerError::Mismatch(format!("it is not JSON: {why}"));
        let value: Value = serde_json::from_str(text).map_err(|error| not_json(&error))?;
        let inner = value.as_object().filter(|fields| fields.len() == 1);
        let inner = inner.and_then(|fields| fields.get(WRAPPER_FIELD));
        let json = match (checker.check(&value), inner) {
            (Ok(()), _) => Json::parse(text).map_err(|error| not_json(&error))?,
            (Err(AnswerError::Mismatch(_)), Some(inner)) => {
                checker.check(inner)?;
                Json::from(inner.clone())
            }
            (Err(problem), _) => return Err(problem),
        };
        let check = self.check.as_ref().map_or(Ok(()), |check| check(&json));
        check.map_err(AnswerError::Mismatch)?;
        Ok(json)
    }
}

/// The texts after the last tool result, last one first.
fn answer_texts(reply: &Msg) -> Result<Vec<String>, AnswerError> {
    let behind = |block: &&ContentBlock| {
        !matches!(block, ContentBlock::ToolResult(_) | ContentBlock::Hint(_))
    };
    let blocks = reply.content().iter().rev().take_while(behind);
    let texts = blocks.filter_map(TextBlock::from_block).map(|block| strip_code_fence(&block.text));
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    if texts.iter().map(|text| text.len()).sum::<usize>() > MAX_ANSWER_BYTES {
        let why = format!(
            "the answer cannot be checked against its JSON Schema: it has more than \
             {MAX_ANSWER_BYTES} bytes"
        );
        return Err(AnswerError::TooExpensive(why));
    }
    Ok(texts.into_iter().map(str::to_owned).collect())
}

impl fmt::Debug for AnswerSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape").field("output", &self.output).finish_non_exhaustive()
    }
}

/// The schema, wrapped in an object unless it describes one.
fn wrap_in_object(schema: &Json) -> Json {
    let Ok(Value::Object(mut fields)) = schema.parse_as() else { return schema.clone() };
    if fields.get("type").is_some_and(|kind| kind == "object") || fields.contains_key("properties")
    {
        return schema.clone();
    }
    // References are relative to the root, so their targets stay there.
    let mut root = Map::new();
    for word in ["$defs", "definitions"] {
        if let Some(shared) = fields.remove(word) {
            root.insert(word.to_owned(), shared);
        }
    }
    root.insert("type".to_owned(), json!("object"));
    root.insert("properties".to_owned(), json!({ WRAPPER_FIELD: fields }));
    root.insert("required".to_owned(), json!([WRAPPER_FIELD]));
    root.insert("additionalProperties".to_owned(), json!(false));
    Value::Object(root).into()
}

/// Removes the code fence that models often put around JSON.
fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner).trim())
}

/// The hint for a model whose answer does not match.
pub(crate) fn correction_message(why: &str) -> String {
    format!(
        "Your answer does not match its JSON Schema: {why}. Answer again with only JSON that \
         matches the schema."
    )
}

/// Whether the model was asked to correct its answer.
pub(crate) fn was_corrected(reply: &Msg) -> bool {
    reply.blocks::<HintBlock>().any(is_correction_hint)
}

/// Whether a hint asks for a correction.
pub(crate) fn is_correction_hint(hint: &HintBlock) -> bool {
    hint.source.as_deref() == Some(CORRECTION_SOURCE)
}

/// Turns calls of the answer tool into text blocks.
pub(crate) struct AnswerToolRewriter {
    tool: String,
    prefix: String,
    /// The text blocks of its calls, by call id.
    blocks: HashMap<String, String>,
    has_other_calls: bool,
}

impl AnswerToolRewriter {
    pub(crate) fn new(tool: String, prefix: &str) -> Self {
        Self {
            tool,
            prefix: format!("{prefix}answer-"),
            blocks: HashMap::new(),
            has_other_calls: false,
        }
    }

    pub(crate) fn rewrite(&mut self, mut event: Event<'static>) -> Event<'static> {
        event.kind = self.rewrite_kind(event.kind);
        event
    }

    fn rewrite_kind(&mut self, kind: EventKind<'static>) -> EventKind<'static> {
        match kind {
            EventKind::ToolCallStart(start) if start.tool_call_name == self.tool => {
                let block = format!("{}{}", self.prefix, self.blocks.len());
                self.blocks.insert(start.tool_call_id.into_owned(), block.clone());
                TextBlockStart { block_id: block.into() }.into()
            }
            EventKind::ToolCallStart(start) => {
                self.has_other_calls = true;
                start.into()
            }
            EventKind::ToolCallDelta(part) => match self.blocks.get(&*part.tool_call_id) {
                Some(block) => {
                    TextBlockDelta { block_id: block.clone().into(), delta: part.delta }.into()
                }
                None => part.into(),
            },
            EventKind::ToolCallEnd(end) => match self.blocks.get(&*end.tool_call_id) {
                Some(block) => {
                    let (block_id, extra) = (block.clone().into(), Fields::default());
                    TextBlockEnd { block_id, text: None, extra }.into()
                }
                None => end.into(),
            },
            EventKind::ModelCallEnd(mut end) => {
                let only_this = !self.has_other_calls && !self.blocks.is_empty();
                if only_this && end.finished_reason == FinishedReason::ToolCalls {
                    end.finished_reason = FinishedReason::Completed;
                }
                EventKind::ModelCallEnd(end)
            }
            other @ (event_kinds!(
                ModelCallStart reply content tool_result pending_call notice session
            )) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(schema: &str) -> AnswerSchema {
        AnswerSchema::new(&Json::parse(schema).unwrap()).unwrap()
    }

    fn read(shape: &AnswerSchema, text: &str) -> Result<String, String> {
        let read = shape.parse_reply(&Msg::assistant("a", text));
        read.map(|json| json.text().to_owned()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_schema_other_than_an_object_is_wrapped_for_the_provider_and_unwrapped_again() {
        let list = shape(
            r##"{"type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"integer"}}}"##,
        );
        let schema: Value = list.output().schema.parse_as().unwrap();
        assert_eq!(schema.pointer("/properties/answer/type"), Some(&json!("array")));
        assert_eq!(schema.pointer("/$defs/n/type"), Some(&json!("integer")));
        assert_eq!(read(&list, r#"{"answer":[1,2]}"#).unwrap(), "[1,2]");
        assert_eq!(read(&list, "[3]").unwrap(), "[3]");
        assert!(read(&list, r#"{"answer":["x"]}"#).unwrap_err().contains("/0"));
    }

    #[test]
    fn a_field_that_is_called_answer_is_a_field() {
        let own = shape(r#"{"type":"object","required":["answer"]}"#);
        assert_eq!(read(&own, r#"{"answer":{"answer":1}}"#).unwrap(), r#"{"answer":{"answer":1}}"#);
    }

    #[test]
    fn the_last_text_counts() {
        let any = shape(r#"{"type":"object"}"#);
        let prose: Vec<ContentBlock> = vec!["Here: {".into(), r#"{"a":1}"#.into()];
        assert_eq!(any.parse_reply(&Msg::assistant("a", prose)).unwrap().text(), r#"{"a":1}"#);
        let before: Vec<ContentBlock> = vec![r#"{"a":1}"#.into(), HintBlock::new("no").into()];
        assert_eq!(
            any.parse_reply(&Msg::assistant("a", before)).unwrap_err().to_string(),
            "there is no answer"
        );
    }

    #[test]
    fn a_schema_that_is_none_or_would_be_fetched_is_refused() {
        for schema in [
            "3",
            r#"{"type":"nothing"}"#,
            r#"{"$ref":"http://127.0.0.1:1/schema"}"#,
            r##"{"$ref":"#/$defs/missing"}"##,
            r#"{"pattern":"("}"#,
        ] {
            let refused = AnswerSchema::new(&Json::parse(schema).unwrap());
            assert!(refused.is_err(), "{schema}");
        }
    }

    #[test]
    fn a_schema_that_goes_round_in_circles_does_no_harm() {
        for schema in [
            r##"{"$ref":"#"}"##,
            r##"{"allOf":[{"$ref":"#"}]}"##,
            r##"{"properties":{"a":{"$ref":"#"}}}"##,
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
        ] {
            if let Ok(shape) = AnswerSchema::new(&Json::parse(schema).unwrap()) {
                let _ = read(&shape, r#"{"a":{"a":{}}}"#);
            }
        }
    }
}
