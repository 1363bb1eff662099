//! Builds the message of a response without streaming from the frames of the stream, as the official client does.

use super::content;
use crate::collect::{ErrorResponse, ResponseCollector};
use serde_json::{Map, Value, json};
use turnwire_core::Json;

/// Collects a message.
#[derive(Debug, Default)]
pub struct MessageCollector {
    message: Map<String, Value>,
    content: Vec<Value>,
    /// The input of the open tool call so far.
    input: String,
    error: Option<Value>,
}

impl ResponseCollector for MessageCollector {
    fn push_frame(&mut self, text: &str) {
        // The frames are our own, so parsing them does not fail.
        let Ok(Value::Object(mut frame)) = serde_json::from_str(text) else { return };
        let mut part = |name: &str| frame.remove(name).unwrap_or_default();
        let kind = part("type");
        match kind.as_str().unwrap_or_default() {
            "message_start" => {
                if let Value::Object(message) = part("message") {
                    self.message = message;
                }
            }
            "content_block_start" => self.content.push(part("content_block")),
            "content_block_delta" => {
                if let Value::Object(delta) = part("delta") {
                    self.apply_delta(delta);
                }
            }
            "content_block_stop" => self.close_block(),
            "message_delta" => {
                merge_fields(&mut self.message, part("delta"));
                let usage = self.message.entry("usage").or_insert_with(|| json!({}));
                if let Value::Object(usage) = usage {
                    merge_fields(usage, part("usage"));
                }
            }
            "error" => self.error = Some(part("error")),
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Json, ErrorResponse> {
        if let Some(error) = self.error {
            let kind = error.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            return Err(ErrorResponse::new(&kind, json!({"type": "error", "error": error}).into()));
        }
        self.message.insert("content".to_owned(), self.content.into());
        Ok(Value::from(self.message).into())
    }
}

/// Copies the fields that are not null.
fn merge_fields(into: &mut Map<String, Value>, from: Value) {
    if let Value::Object(from) = from {
        into.extend(from.into_iter().filter(|(_, value)| !value.is_null()));
    }
}

impl MessageCollector {
    fn apply_delta(&mut self, mut delta: Map<String, Value>) {
        let Some(Value::Object(block)) = self.content.last_mut() else { return };
        let (name, kind) = match delta.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text_delta" => ("text", DeltaKind::Text),
            "thinking_delta" => ("thinking", DeltaKind::Text),
            "signature_delta" => ("signature", DeltaKind::Text),
            "citations_delta" => ("citations", DeltaKind::List),
            "input_json_delta" => ("partial_json", DeltaKind::Input),
            _ => return,
        };
        match kind {
            DeltaKind::Text => match (block.get_mut(name), delta.get(name)) {
                (Some(Value::String(text)), Some(Value::String(more))) => text.push_str(more),
                (_, more) => drop(block.insert(name.to_owned(), more.cloned().unwrap_or_default())),
            },
            DeltaKind::List => {
                let more = delta.remove("citation").unwrap_or_default();
                match block.get_mut(name) {
                    Some(Value::Array(list)) => list.push(more),
                    _ => drop(block.insert(name.to_owned(), vec![more].into())),
                }
            }
            DeltaKind::Input => {
                self.input.push_str(delta.get(name).and_then(Value::as_str).unwrap_or_default());
            }
        }
    }

    /// Ends a block: the input of a tool call is complete.
    fn close_block(&mut self) {
        let text = std::mem::take(&mut self.input);
        if let Some(Value::Object(block)) = self.content.last_mut()
            && !text.is_empty()
            && let Ok(input) = content::input_to_json(&text).parse_as::<Value>()
        {
            block.insert("input".to_owned(), input);
        }
    }
}

/// What a delta adds to a block.
enum DeltaKind {
    Text,
    List,
    Input,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(frames: &[Value]) -> Result<Value, ErrorResponse> {
        let mut message = Box::<MessageCollector>::default();
        for frame in frames {
            message.push_frame(&frame.to_string());
        }
        message.finish().map(|json| json.parse_as().unwrap())
    }

    fn start() -> Value {
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
            "role": "assistant", "model": "m", "content": [], "stop_reason": null,
            "stop_sequence": null, "usage": {"input_tokens": 0, "output_tokens": 0}}})
    }

    #[test]
    fn frames_become_the_message_that_the_official_client_builds() {
        let delta = |index: u8, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        let begin = |index: u8, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
        let stop = |index: u8| json!({"type": "content_block_stop", "index": index});
        let got = whole(&[
            start(),
            begin(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "Hm"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "m."})),
            delta(0, json!({"type": "signature_delta", "signature": "s1"})),
            stop(0),
            json!({"type": "ping"}),
            begin(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "Hi"})),
            delta(1, json!({"type": "citations_delta", "citation": {"n": 1}})),
            stop(1),
            begin(2, json!({"type": "tool_use", "id": "c", "name": "f", "input": {}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "{\"a\":"})),
            delta(2, json!({"type": "input_json_delta", "partial_json": " [1]}"})),
            stop(2),
            begin(3, json!({"type": "tool_use", "id": "d", "name": "f", "input": {}})),
            stop(3),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
                "usage": {"input_tokens": 3, "output_tokens": 7}}),
            json!({"type": "message_stop"}),
        ]);
        let expected = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [
                {"type": "thinking", "thinking": "Hmm.", "signature": "s1"},
                {"type": "text", "text": "Hi", "citations": [{"n": 1}]},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": [1]}},
                {"type": "tool_use", "id": "d", "name": "f", "input": {}},
            ],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 3, "output_tokens": 7}});
        assert_eq!(got.unwrap(), expected);
    }

    #[test]
    fn an_error_is_the_answer() {
        for (kind, status) in
            [("api_error", 500), ("authentication_error", 500), ("rate_limit_error", 429)]
        {
            let error = json!({"type": "error", "error": {"type": kind, "message": "no"}});
            let failed = whole(&[start(), error.clone()]).unwrap_err();
            assert_eq!((failed.status, failed.body.parse_as::<Value>().unwrap()), (status, error));
        }
    }
}
