//! Builds the completion of a response without streaming from the chunks of the stream, as the official client does.

use crate::collect::{ErrorResponse, ResponseCollector};
use serde_json::{Map, Value, json};
use turnwire_core::Json;

/// Collects a completion.
#[derive(Debug, Default)]
pub struct CompletionCollector {
    head: Map<String, Value>,
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    annotations: Vec<Value>,
    finish_reason: Value,
    native_finish_reason: Option<Value>,
    usage: Option<Value>,
    error: Option<Value>,
}

impl ResponseCollector for CompletionCollector {
    fn push_frame(&mut self, text: &str) {
        // The last frame is `[DONE]`, not JSON.
        let Ok(Value::Object(mut chunk)) = serde_json::from_str(text) else { return };
        if let Some(error) = chunk.remove("error") {
            self.error = Some(error);
            return;
        }
        if chunk.get("object").and_then(Value::as_str) != Some("chat.completion.chunk") {
            return;
        }
        if let Some(usage) = chunk.remove("usage").filter(|usage| !usage.is_null()) {
            self.usage = Some(usage);
        }
        let choice = chunk.get_mut("choices").and_then(|choices| choices.get_mut(0));
        if let Some(Value::Object(choice)) = choice.map(Value::take) {
            self.apply_choice(choice);
        }
        if self.head.is_empty() {
            self.head = chunk;
        }
    }

    fn finish(self: Box<Self>) -> Result<Json, ErrorResponse> {
        if let Some(error) = self.error {
            let kind = error.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            return Err(ErrorResponse::new(&kind, json!({"error": error}).into()));
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), self.content.into());
        message.insert("refusal".to_owned(), Value::Null);
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), self.reasoning.into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".to_owned(), self.calls.into());
        }
        if !self.annotations.is_empty() {
            message.insert("annotations".to_owned(), self.annotations.into());
        }
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": self.finish_reason});
        if let Some(choice) = choice.as_object_mut() {
            choice.insert("message".to_owned(), message.into());
            if let Some(native) = self.native_finish_reason {
                choice.insert("native_finish_reason".to_owned(), native);
            }
        }
        let mut completion = self.head;
        completion.insert("object".to_owned(), "chat.completion".into());
        completion.insert("choices".to_owned(), vec![choice].into());
        if let Some(usage) = self.usage {
            completion.insert("usage".to_owned(), usage);
        }
        Ok(Value::from(completion).into())
    }
}

impl CompletionCollector {
    fn apply_choice(&mut self, mut choice: Map<String, Value>) {
        if let Some(reason) = choice.remove("finish_reason").filter(|reason| !reason.is_null()) {
            self.finish_reason = reason;
        }
        if let Some(native) = choice.remove("native_finish_reason") {
            self.native_finish_reason = Some(native);
        }
        let Some(Value::Object(mut delta)) = choice.remove("delta") else { return };
        let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        self.content.push_str(text("content"));
        self.reasoning.push_str(text("reasoning_content"));
        // Our own stream sends each of them whole and in order.
        let mut list = |name: &str| match delta.remove(name) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        self.annotations.extend(list("annotations"));
        self.calls.extend(list("tool_calls").into_iter().map(|mut call| {
            if let Some(call) = call.as_object_mut() {
                call.shift_remove("index");
            }
            call
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(delta: &Value, finish: Option<&str>) -> Value {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 5, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    }

    fn whole(frames: &[String]) -> Result<Value, ErrorResponse> {
        let mut completion = Box::<CompletionCollector>::default();
        for frame in frames {
            completion.push_frame(frame);
        }
        completion.finish().map(|json| json.parse_as().unwrap())
    }

    #[test]
    fn chunks_become_the_completion_that_the_official_client_builds() {
        let call = |index: Option<u8>| {
            let mut call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
            if let Some(index) = index {
                call["index"] = index.into();
            }
            call
        };
        let frames = [
            chunk(&json!({"role": "assistant", "content": ""}), None),
            chunk(&json!({"reasoning_content": "Hm."}), None),
            chunk(&json!({"content": "H"}), None),
            chunk(&json!({"content": "i"}), None),
            chunk(&json!({"tool_calls": [call(Some(0))]}), None),
            chunk(&json!({}), Some("tool_calls")),
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 5, "model": "m",
                "choices": [], "usage": {"total_tokens": 9}}),
        ];
        let mut frames: Vec<String> = frames.iter().map(Value::to_string).collect();
        frames.push("[DONE]".to_owned());
        let expected = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 5, "model": "m",
            "choices": [{"index": 0, "logprobs": null, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": "Hi", "refusal": null, "reasoning_content": "Hm.",
                "tool_calls": [call(None)]}}],
            "usage": {"total_tokens": 9}});
        assert_eq!(whole(&frames).unwrap(), expected);
    }

    #[test]
    fn an_error_is_the_answer() {
        let error = json!({"error": {"message": "no", "type": "server_error", "code": "upstream"}});
        let said = chunk(&json!({"content": "Hi"}), None).to_string();
        let failed = whole(&[said, error.to_string(), "[DONE]".to_owned()]).unwrap_err();
        assert_eq!((failed.status, failed.body.parse_as::<Value>().unwrap()), (500, error));
    }
}
