//! Decodes hand-written streams of providers.

use serde_json::Value;
use turnwire_core::{Event, EventKind, Folder, Msg};
use turnwire_wires::{Decoded, DecoderOptions, Wire};

/// The result of a stream.
pub struct DecodedStream {
    pub events: Vec<Event<'static>>,
    /// The errors of invalid frames.
    pub errors: Vec<String>,
    pub message: Msg,
}

/// Decodes frames, one per line, and folds them strictly.
pub fn read_stream(wire: &str, frames: &[&str]) -> DecodedStream {
    let mut decoder = Wire::named(wire).unwrap().decoder(&DecoderOptions::default()).unwrap();
    let (mut events, mut errors, mut folder) = (Vec::new(), Vec::new(), Folder::default());
    let mut each = |decoded: Decoded<'_>| match decoded.event {
        Ok(event) => {
            folder.push(&event).unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
            events.push(event.into_owned());
        }
        Err(error) => errors.push(error.to_string()),
    };
    for frame in frames {
        decoder.feed(format!("data:{frame}\n\n").as_bytes(), &mut each);
    }
    decoder.end(&mut each);
    let message = folder.into_messages().next().unwrap_or_default();
    DecodedStream { events, errors, message }
}

impl DecodedStream {
    /// The blocks without fields that no provider sends.
    pub fn blocks(&self) -> Value {
        let mut blocks = serde_json::to_value(self.message.content()).unwrap();
        for block in blocks.as_array_mut().unwrap() {
            let block = block.as_object_mut().unwrap();
            for field in ["created_at", "finished_at", "state", "suggested_rules", "name"] {
                let is_tool = block["type"] == "tool_call" && field == "name";
                if !is_tool {
                    block.remove(field);
                }
            }
        }
        blocks
    }

    /// The finish reason.
    pub fn reason(&self) -> &str {
        self.message.finished_reason().map_or("", |reason| reason.as_str())
    }

    /// Input, output and cached tokens.
    pub fn usage(&self) -> (i64, i64, i64) {
        let usage = self.message.usage().unwrap();
        (usage.input_tokens, usage.output_tokens, usage.cache_input_tokens)
    }

    /// The error's type and message.
    pub fn error(&self) -> (&str, &str) {
        let error = self.message.error().unwrap();
        (error.r#type.as_str(), &error.message)
    }

    /// The wire's entry in the metadata of the model call.
    pub fn notes(&self, wire: &str) -> Value {
        let end = self.events.iter().find(|event| matches!(event.kind, EventKind::ModelCallEnd(_)));
        end.unwrap().metadata.get(wire).unwrap().unwrap_or_default()
    }

    /// The types of the events, in order.
    pub fn types(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.kind.type_name()).collect()
    }
}
