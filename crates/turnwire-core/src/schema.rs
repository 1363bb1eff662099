//! JSON schemas of messages, blocks and events (feature `schema`), for descriptions of APIs that carry them.
//!
//! ```
//! let schema = schemars::schema_for!(turnwire_core::TextBlock);
//! assert_eq!(schema.get("required").unwrap(), &serde_json::json!(["type", "text"]));
//! ```
//!
//! The macros that declare objects, events and words call the functions here. Types whose JSON is written by hand have
//! their schema here, by hand. One schema serves readers and writers: it requires only what [`Msg::from_json`] and
//! [`Event::from_json`](crate::Event::from_json) require.

use crate::block::{ContentBlock, DataBlock, HintBlock, Part, Payload, Source, TextBlock};
use crate::block::{ThinkingBlock, ToolCall, ToolResult};
use crate::event::{Chunk, CustomValue, Event, EventKind, TokenCounts};
use crate::fold::FoldCursor;
use crate::json::{Fields, Json};
use crate::msg::{Msg, ReplyError, Usage};
use crate::names::{FinishedReason, Role};
use crate::seq::Seq;
use crate::shape::Shape;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Makes the schema of one field.
pub(crate) type FieldSchema = fn(&mut SchemaGenerator) -> Schema;

/// The schema of a struct of the macro `object!`; `fields` are in the order of the shape's.
pub(crate) fn object(
    generator: &mut SchemaGenerator,
    shape: &Shape,
    fields: &[FieldSchema],
) -> Schema {
    let mut object = Object::new(shape.doc_text());
    if !shape.word.is_empty() {
        object.constant("type", shape.word);
    }
    object.fields(generator, shape, fields);
    object.finish()
}

/// The schema of an event of the macro `events!`.
pub(crate) fn event(generator: &mut SchemaGenerator, word: &str, fields: &[FieldSchema]) -> Schema {
    let shape = EventKind::SHAPES.iter().find(|shape| shape.word == word);
    let mut object = Object::new(shape.map(Shape::doc_text).unwrap_or_default());
    object.constant("type", word);
    let text = |description: &str| json!({ "type": "string", "description": description });
    object.property("id", text("The event's id: a repeated event has the same one."));
    object.property("created_at", text("When it was created, as ISO 8601."));
    object.property("reply_id", text("The reply that it belongs to."));
    let position = generator.subschema_for::<Seq>();
    object.property("seq", position.clone().to_value());
    object.property("seq_from", position.to_value());
    object.property("metadata", generator.subschema_for::<Fields>().to_value());
    object.property("agent_path", text("The sub-agent, such as `main/researcher`."));
    object.property("parent_tool_call_id", text("The tool call that the sub-agent works for."));
    if let Some(shape) = shape {
        object.fields(generator, shape, fields);
    }
    object.finish()
}

/// The schema of a word list that may grow.
pub(crate) fn words(description: &str, words: &[&str]) -> Schema {
    let description = format!("{description} Known values: {}.", words.join(", "));
    json_schema!({ "type": "string", "description": description, "x-extensible-enum": words })
}

/// The schema of an object, while it is built.
struct Object {
    description: String,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl Object {
    fn new(description: String) -> Self {
        Self { description, properties: Map::new(), required: Vec::new() }
    }

    fn constant(&mut self, name: &str, value: &str) {
        self.required.push(name.into());
        self.property(name, json!({ "type": "string", "const": value }));
    }

    fn property(&mut self, name: &str, schema: Value) {
        self.properties.insert(name.to_owned(), schema);
    }

    fn fields(&mut self, generator: &mut SchemaGenerator, shape: &Shape, fields: &[FieldSchema]) {
        for (field, schema) in shape.fields.iter().zip(fields) {
            let mut schema = schema(generator).to_value();
            // These two have several names of their own in the event's JSON.
            if field.kind.starts_with("Chunk") || field.kind == "TokenCounts" {
                if let Some(Value::Object(inner)) = schema.get_mut("properties") {
                    self.properties.append(inner);
                }
                continue;
            }
            if let Value::Object(schema) = &mut schema {
                schema.insert("description".to_owned(), field.doc_text().into());
            }
            let name = crate::object::key(field.name);
            if field.need == "needed" {
                self.required.push(name.into());
            }
            self.properties.insert(name.to_owned(), schema);
        }
    }

    fn finish(self) -> Schema {
        let Self { description, properties, required } = self;
        let mut schema = json_schema!({
            "type": "object",
            "description": description,
            "properties": properties,
        });
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        schema
    }
}

/// Implements [`JsonSchema`] for types whose JSON is written by hand.
macro_rules! schemas {
    ($($type:ty, $name:literal, $inline:literal: |$generator:ident| $schema:expr;)+) => {$(
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                $inline
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+};
}

schemas! {
    Json, "Json", true: |_generator| json_schema!({});
    CustomValue, "CustomValue", true: |_generator| json_schema!({});
    Fields, "Fields", true: |_generator| json_schema!({ "type": "object", "additionalProperties": true });
    Seq, "Seq", true: |_generator| json_schema!({
        "type": "integer",
        "minimum": 1,
        "description": "Position in the session's log.",
    });
    FoldCursor, "FoldCursor", false: |_generator| json_schema!({
        "type": "object",
        "description": "What the fold needs to continue an open reply. Pass it on as it is.",
        "additionalProperties": true,
    });
    Role, "Role", false: |_generator| json_schema!({
        "type": "string",
        "enum": Role::ALL.map(Role::as_str),
        "description": "Who speaks.",
    });
    Chunk<'_>, "Chunk", true: |_generator| json_schema!({
        "type": "object",
        "properties": {
            "data": { "type": ["string", "null"], "description": "Base64, split anywhere." },
            "url": { "type": ["string", "null"], "description": "Where the bytes are, instead of `data`." },
        },
    });
    TokenCounts, "TokenCounts", true: |_generator| json_schema!({
        "type": "object",
        "properties": {
            "input_tokens": { "type": "integer" },
            "output_tokens": { "type": "integer" },
            "cache_input_tokens": { "type": "integer" },
            "cache_creation_input_tokens": { "type": "integer" },
        },
    });
    Source, "Source", false: |_generator| {
        let source = |word: &str, field: &str, description: &str| json!({
            "type": "object",
            "description": description,
            "required": ["type", field],
            "properties": {
                "type": { "type": "string", "const": word },
                field: { "type": "string" },
                "media_type": { "type": "string", "description": "Such as `image/png`." },
            },
        });
        json_schema!({
            "description": "The bytes of a data block, or where they are.",
            "anyOf": [
                source("base64", "data", "Bytes as base64."),
                source("url", "url", "A URL to the bytes."),
                unknown("source"),
            ],
        })
    };
    DataBlock, "DataBlock", false: |generator| json_schema!({
        "type": "object",
        "description": "Bytes (an image, audio, any file), or a URL to them.",
        "required": ["type", "source"],
        "properties": {
            "type": { "type": "string", "enum": ["data", "image", "audio", "video"] },
            "id": { "type": "string" },
            "source": generator.subschema_for::<Source>(),
            "name": { "type": ["string", "null"], "description": "The file's name." },
            "created_at": { "type": "string" },
            "finished_at": { "type": ["string", "null"] },
        },
    });
    Part, "Part", false: |generator| json_schema!({
        "description": "A block inside a hint or a tool's output.",
        "anyOf": [
            generator.subschema_for::<TextBlock>(),
            generator.subschema_for::<DataBlock>(),
            unknown("block"),
        ],
    });
    Payload, "Payload", false: |generator| json_schema!({
        "description": "Plain text, or a list of blocks.",
        "anyOf": [{ "type": "string" }, generator.subschema_for::<Vec<Part>>()],
    });
    ContentBlock, "ContentBlock", false: |generator| json_schema!({
        "description": "A typed part of a message. A block of an unknown type is kept as it is.",
        "anyOf": [
            generator.subschema_for::<TextBlock>(),
            generator.subschema_for::<ThinkingBlock>(),
            generator.subschema_for::<DataBlock>(),
            generator.subschema_for::<HintBlock>(),
            generator.subschema_for::<ToolCall>(),
            generator.subschema_for::<ToolResult>(),
            unknown("block"),
        ],
    });
    Msg, "Msg", false: |generator| json_schema!({
        "type": "object",
        "description": "A message: a user's input, an agent's reply, a system prompt, a tool's result.",
        "required": ["role", "content"],
        "properties": {
            "name": { "type": "string", "description": "Who sent it." },
            "content": generator.subschema_for::<Vec<ContentBlock>>(),
            "role": generator.subschema_for::<Role>(),
            "id": { "type": "string", "description": "Its id; of a reply, the `reply_id` of its events." },
            "metadata": generator.subschema_for::<Fields>(),
            "created_at": { "type": "string" },
            "usage": generator.subschema_for::<Option<Usage>>(),
            "finished_at": { "type": ["string", "null"] },
            "finished_reason": generator.subschema_for::<Option<FinishedReason>>(),
            "structured_output": generator.subschema_for::<Json>(),
            "error": generator.subschema_for::<Option<ReplyError>>(),
        },
    });
    Event<'_>, "Event", false: |generator| {
        let mut events = EventKind::schemas(generator);
        events.push(json_schema!({
            "type": "object",
            "description": "An event of an unknown type.",
            "required": ["type"],
            "properties": { "type": { "type": "string" } },
            "additionalProperties": true,
        }));
        json_schema!({
            "description": "One increment of a reply, or an input to it.",
            "anyOf": events,
        })
    };
}

/// Something of a type that this version does not know, which is kept as it came.
fn unknown(what: &str) -> Value {
    json!({
        "type": "object",
        "description": format!("A {what} of an unknown type."),
        "required": ["type"],
        "properties": { "type": { "type": "string" } },
        "additionalProperties": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockType;

    /// Every schema that another one refers to.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_event_and_block_has_a_schema_and_every_reference_leads_to_one() {
        let mut generator = SchemaGenerator::default();
        generator.subschema_for::<Event<'_>>();
        generator.subschema_for::<Msg>();
        let definitions = generator.definitions();
        for shape in EventKind::SHAPES {
            let schema = &definitions[&format!("{}Event", shape.name)];
            assert_eq!(schema["properties"]["type"]["const"], shape.word);
            assert!(!schema["description"].as_str().unwrap().is_empty(), "{}", shape.name);
        }
        let mut blocks = Vec::new();
        references(&definitions["ContentBlock"], &mut blocks);
        let blocks = blocks.iter().filter_map(|block| block.strip_prefix("#/$defs/"));
        let blocks: String = blocks.map(|name| definitions[name].to_string()).collect();
        for word in BlockType::KNOWN.iter().map(|block| block.as_str()) {
            assert!(blocks.contains(&format!("\"{word}\"")), "no schema for blocks of type {word}");
        }
        let mut found = Vec::new();
        definitions.values().for_each(|schema| references(schema, &mut found));
        assert!(found.len() > 20);
        for reference in found {
            let name = reference.strip_prefix("#/$defs/").unwrap();
            assert!(definitions.contains_key(name), "{name}");
        }
    }
}
