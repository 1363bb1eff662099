//! Generates streams: of events, and of the providers' frames.

use crate::Result;
use serde_json::{Value, json};
use std::ops::Range;
use turnwire_core::event::{
    ModelCallEnd, ModelCallStart, ReplyEnd, ReplyStart, TextBlockDelta, TextBlockEnd,
    TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd, ThinkingBlockStart, ToolCallDelta,
    ToolCallEnd, ToolCallStart, ToolResultEnd, ToolResultStart, ToolResultTextDelta,
};
use turnwire_core::{Event, EventKind, Fields, ToolResultState};
use turnwire_wires::{EncoderOptions, Frames, Wire};

/// The kind of the long block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Thinking,
    /// A call's input.
    Call,
    /// A tool's output.
    Output,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Text, Self::Thinking, Self::Call, Self::Output];
}

/// About as long as a model's tokens.
pub const WORDS: [&str; 10] =
    [" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy", " dog.", "\n"];

/// The word at this index of a long text.
pub fn word(at: usize) -> &'static str {
    WORDS.get(at * 7 % WORDS.len()).copied().unwrap_or_default()
}

/// The start of a reply.
pub fn reply_start(reply: &str) -> [Event<'static>; 2] {
    let start = ReplyStart { session_id: "s".to_owned(), ..ReplyStart::default() };
    let call = ModelCallStart { model_name: "m".to_owned() };
    [stamped(reply, start), stamped(reply, call)]
}

/// The end of a reply.
pub fn reply_end(reply: &str) -> [Event<'static>; 2] {
    [stamped(reply, ModelCallEnd::default()), stamped(reply, ReplyEnd::default())]
}

/// The start of a block.
pub fn start(reply: &str, kind: Kind, id: &str) -> Vec<Event<'static>> {
    let id = || id.to_owned().into();
    let call = ToolCallStart { tool_call_id: id(), tool_call_name: "f".into() };
    let result = ToolResultStart { tool_call_id: id(), tool_call_name: "f".into() };
    let call_end = ToolCallEnd { tool_call_id: id(), extra: Fields::default() };
    let kinds: Vec<EventKind<'static>> = match kind {
        Kind::Text => vec![TextBlockStart { block_id: id() }.into()],
        Kind::Thinking => vec![ThinkingBlockStart { block_id: id() }.into()],
        Kind::Call => vec![call.into()],
        Kind::Output => vec![call.into(), call_end.into(), result.into()],
    };
    kinds.into_iter().map(|kind| stamped(reply, kind)).collect()
}

/// A delta of a block.
pub fn delta(reply: &str, kind: Kind, id: &str, word: &'static str) -> Event<'static> {
    let (id, delta) = (id.to_owned().into(), word.into());
    let kind: EventKind<'static> = match kind {
        Kind::Text => TextBlockDelta { block_id: id, delta }.into(),
        Kind::Thinking => ThinkingBlockDelta { block_id: id, delta }.into(),
        Kind::Call => ToolCallDelta { tool_call_id: id, delta }.into(),
        Kind::Output => ToolResultTextDelta { tool_call_id: id, delta }.into(),
    };
    stamped(reply, kind)
}

/// The end of a block.
pub fn end(reply: &str, kind: Kind, id: &str) -> Event<'static> {
    let (id, extra) = (id.to_owned().into(), Fields::default());
    let kind: EventKind<'static> = match kind {
        Kind::Text => TextBlockEnd { block_id: id, text: None, extra }.into(),
        Kind::Thinking => ThinkingBlockEnd { block_id: id, extra }.into(),
        Kind::Call => ToolCallEnd { tool_call_id: id, extra }.into(),
        Kind::Output => ToolResultEnd { tool_call_id: id, state: ToolResultState::Success }.into(),
    };
    stamped(reply, kind)
}

fn stamped(reply: &str, kind: impl Into<EventKind<'static>>) -> Event<'static> {
    let mut event = Event::new(reply.to_owned(), kind);
    event.id = "0192f0c1a7b87c3e9d10aa52f00c0001".into();
    event.created_at = "2026-11-15T08:22:00.000001".into();
    event
}

/// A reply with one long block.
pub fn long_reply(kind: Kind, deltas: usize) -> Vec<Event<'static>> {
    let mut events = Vec::from(reply_start("r"));
    events.extend(start("r", kind, "b"));
    events.extend((0..deltas).map(|at| delta("r", kind, "b", word(at))));
    events.push(end("r", kind, "b"));
    events.extend(reply_end("r"));
    events
}

/// The frames of a wire around a long block.
pub struct Script {
    pub begin: Vec<String>,
    /// One for each of [`WORDS`].
    pub deltas: Vec<String>,
    pub end: Vec<String>,
}

impl Script {
    /// `None` if the wire has no such deltas. A provider's frames are hand-written, as its service
    /// sends them; the other wires encode their own.
    pub fn for_wire(wire: &Wire, kind: Kind) -> Result<Option<Self>> {
        if delta_frame(wire.name, Kind::Text, "").is_none() {
            let script = Self::encoded(wire, kind)?;
            return Ok(Some(script).filter(|script| !script.deltas.is_empty()));
        }
        let deltas =
            WORDS.map(|word| delta_frame(wire.name, kind, word).map(|frame| frame.to_string()));
        let Some(deltas) = deltas.into_iter().collect() else { return Ok(None) };
        let texts = |frames: Vec<Value>| frames.iter().map(Value::to_string).collect();
        Ok(Some(Self { begin: texts(start_frames(wire.name, kind)), deltas, end: Vec::new() }))
    }

    fn encoded(wire: &Wire, kind: Kind) -> Result<Self> {
        let mut encoder = wire.encoder(&EncoderOptions::default())?;
        let mut frames_of = |events: &mut dyn Iterator<Item = Event<'static>>| {
            let mut frames = Frames::default();
            events.for_each(|event| encoder.encode(&event, &mut frames));
            frames.iter().map(|(_, text)| text.to_owned()).collect()
        };
        let begin = frames_of(&mut reply_start("r").into_iter().chain(start("r", kind, "b")));
        let deltas = frames_of(&mut WORDS.into_iter().map(|word| delta("r", kind, "b", word)));
        let end = frames_of(&mut [end("r", kind, "b")].into_iter().chain(reply_end("r")));
        Ok(Self { begin, deltas, end })
    }

    /// The delta at this index of a long block.
    pub fn delta(&self, at: usize) -> &str {
        self.deltas.get(at * 7 % self.deltas.len()).map_or("", String::as_str)
    }
}

/// A stream with the ranges of all frames and deltas.
pub struct Stream {
    pub wire: &'static Wire,
    pub body: Vec<u8>,
    /// The JSON of each frame.
    pub frames: Vec<Range<usize>>,
    /// The delta inside each frame, as written; empty if there is none.
    pub deltas: Vec<Range<usize>>,
    /// The text of all deltas.
    pub text: String,
}

const DELTAS: usize = 20_000;

impl Stream {
    /// A long text.
    pub fn for_wire(wire: &'static Wire) -> Result<Self> {
        let script = Script::for_wire(wire, Kind::Text)?.ok_or("every wire has text")?;
        let text: String = (0..DELTAS).map(word).collect();
        let (body, frames, deltas) = (Vec::new(), Vec::new(), Vec::new());
        let mut stream = Self { wire, body, frames, deltas, text };
        for frame in &script.begin {
            stream.push(frame, None);
        }
        for at in 0..DELTAS {
            stream.push(script.delta(at), Some(word(at)));
        }
        for frame in &script.end {
            stream.push(frame, None);
        }
        for frame in end_frames(wire.name, &stream.text) {
            stream.push(&frame.to_string(), None);
        }
        if wire.name == "openai-chat" {
            stream.body.extend_from_slice(b"data: [DONE]\n\n");
        }
        Ok(stream)
    }

    /// As the service sends it: Ollama a line, the others a server-sent event, some with a name.
    fn push(&mut self, frame: &str, delta: Option<&str>) {
        if has_names(self.wire.name)
            && let Some(name) = frame.split('"').skip_while(|word| *word != "type").nth(2)
        {
            self.body.extend_from_slice(format!("event: {name}\n").as_bytes());
        }
        let is_line = self.wire.name == "ollama";
        self.body.extend_from_slice(if is_line { b"" } else { b"data: " });
        let start = self.body.len();
        self.body.extend_from_slice(frame.as_bytes());
        self.frames.push(start..self.body.len());
        self.deltas.push(delta.map_or(0..0, |delta| {
            let delta = Value::from(delta).to_string();
            let at = start + frame.rfind(&delta).unwrap_or(0) + 1;
            at..at + delta.len() - 2
        }));
        self.body.extend_from_slice(if is_line { b"\n" } else { b"\n\n" });
    }
}

fn has_names(wire: &str) -> bool {
    matches!(wire, "anthropic" | "openai-responses")
}

/// The frames before a provider's deltas.
fn start_frames(wire: &str, kind: Kind) -> Vec<Value> {
    match wire {
        "anthropic" => {
            let block = match kind {
                Kind::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
                Kind::Call => json!({"type": "tool_use", "id": "c", "name": "f", "input": {}}),
                _ => json!({"type": "text", "text": ""}),
            };
            vec![
                json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
                    "role": "assistant", "model": "m", "content": [], "stop_reason": null,
                    "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": block}),
            ]
        }
        "openai-responses" => {
            let item = match kind {
                Kind::Thinking => json!({"id": "rs_1", "type": "reasoning", "summary": []}),
                Kind::Call => json!({"id": "fc_1", "type": "function_call", "call_id": "c",
                    "name": "f", "arguments": "", "status": "in_progress"}),
                _ => json!({"id": "msg_1", "type": "message", "status": "in_progress",
                    "role": "assistant", "content": []}),
            };
            let mut frames = vec![
                json!({"type": "response.created", "sequence_number": 0,
                    "response": response("in_progress", &json!([]))}),
                json!({"type": "response.output_item.added", "sequence_number": 1,
                    "output_index": 0, "item": item}),
            ];
            if kind == Kind::Text {
                frames.push(json!({"type": "response.content_part.added", "sequence_number": 2,
                    "item_id": "msg_1", "output_index": 0, "content_index": 0,
                    "part": {"type": "output_text", "text": "", "annotations": []}}));
            }
            frames
        }
        "openai-chat" => {
            let delta = match kind {
                Kind::Call => json!({"role": "assistant", "tool_calls": [{"index": 0, "id": "c",
                    "type": "function", "function": {"name": "f", "arguments": ""}}]}),
                _ => json!({"role": "assistant", "content": ""}),
            };
            vec![chunk(&delta, &Value::Null)]
        }
        _ => Vec::new(),
    }
}

/// A provider's frame with a delta; `None` if it sends such content as a whole.
fn delta_frame(wire: &str, kind: Kind, word: &str) -> Option<Value> {
    if kind == Kind::Output {
        return None;
    }
    Some(match wire {
        "anthropic" => {
            let delta = match kind {
                Kind::Thinking => json!({"type": "thinking_delta", "thinking": word}),
                Kind::Call => json!({"type": "input_json_delta", "partial_json": word}),
                _ => json!({"type": "text_delta", "text": word}),
            };
            json!({"type": "content_block_delta", "index": 0, "delta": delta})
        }
        "openai-responses" => match kind {
            Kind::Thinking => json!({"type": "response.reasoning_summary_text.delta",
                "sequence_number": 12_345, "item_id": "rs_1", "output_index": 0,
                "summary_index": 0, "delta": word}),
            Kind::Call => json!({"type": "response.function_call_arguments.delta",
                "sequence_number": 12_345, "item_id": "fc_1", "output_index": 0, "delta": word}),
            _ => json!({"type": "response.output_text.delta", "sequence_number": 12_345,
                "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word,
                "logprobs": []}),
        },
        "openai-chat" => {
            let delta = match kind {
                Kind::Thinking => json!({"reasoning_content": word}),
                Kind::Call => {
                    json!({"tool_calls": [{"index": 0, "function": {"arguments": word}}]})
                }
                _ => json!({"content": word}),
            };
            chunk(&delta, &Value::Null)
        }
        "gemini" => {
            let part = match kind {
                Kind::Thinking => json!({"thought": true, "text": word}),
                Kind::Call => return None,
                _ => json!({"text": word}),
            };
            json!({"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}],
                "modelVersion": "m"})
        }
        "dashscope" => {
            let message = match kind {
                Kind::Thinking => json!({"content": "", "reasoning_content": word,
                    "role": "assistant"}),
                Kind::Call => json!({"content": "", "role": "assistant", "tool_calls": [{
                    "index": 0, "id": "c", "type": "function",
                    "function": {"name": "f", "arguments": word}}]}),
                _ => json!({"content": word, "role": "assistant"}),
            };
            json!({"output": {"choices": [{"message": message, "finish_reason": "null"}]},
                "request_id": "d"})
        }
        "ollama" => {
            let message = match kind {
                Kind::Thinking => json!({"role": "assistant", "content": "", "thinking": word}),
                Kind::Call => return None,
                _ => json!({"role": "assistant", "content": word}),
            };
            json!({"model": "m", "created_at": "2026-11-15T08:22:00Z", "message": message,
                "done": false})
        }
        _ => return None,
    })
}

/// The frames after a provider's text.
fn end_frames(wire: &str, text: &str) -> Vec<Value> {
    match wire {
        "anthropic" => vec![
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn",
                "stop_sequence": null}, "usage": {"output_tokens": DELTAS}}),
            json!({"type": "message_stop"}),
        ],
        "openai-responses" => {
            let part = json!({"type": "output_text", "text": text, "annotations": []});
            let item = json!({"id": "msg_1", "type": "message", "status": "completed",
                "role": "assistant", "content": [part]});
            vec![
                json!({"type": "response.output_text.done", "sequence_number": DELTAS + 3,
                    "item_id": "msg_1", "output_index": 0, "content_index": 0, "text": text,
                    "logprobs": []}),
                json!({"type": "response.content_part.done", "sequence_number": DELTAS + 4,
                    "item_id": "msg_1", "output_index": 0, "content_index": 0, "part": part}),
                json!({"type": "response.output_item.done", "sequence_number": DELTAS + 5,
                    "output_index": 0, "item": item}),
                json!({"type": "response.completed", "sequence_number": DELTAS + 6,
                    "response": response("completed", &json!([item]))}),
            ]
        }
        "openai-chat" => vec![chunk(&json!({}), &json!("stop"))],
        "gemini" => vec![json!({"candidates": [{"finishReason": "STOP", "index": 0}]})],
        "dashscope" => vec![json!({"output": {"choices": [{"message": {"content": "",
            "role": "assistant"}, "finish_reason": "stop"}]}, "request_id": "d"})],
        "ollama" => vec![json!({"model": "m", "created_at": "2026-11-15T08:22:00Z",
            "message": {"role": "assistant", "content": ""}, "done": true,
            "done_reason": "stop"})],
        _ => Vec::new(),
    }
}

fn chunk(delta: &Value, reason: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_794_000_000,
        "model": "m", "service_tier": "default", "system_fingerprint": "fp",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}],
        "usage": null})
}

fn response(status: &str, output: &Value) -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 1_794_000_000, "status": status,
        "model": "m", "output": output, "parallel_tool_calls": true, "tool_choice": "auto",
        "tools": [], "error": null, "incomplete_details": null, "instructions": null,
        "metadata": {}, "temperature": 1.0, "top_p": 1.0,
        "usage": {"input_tokens": 9, "output_tokens": DELTAS, "total_tokens": DELTAS + 9,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0}}})
}
