//! Writes turns of an agent as OpenAI's chat streams, for `tests/peers/openai` to read with the real
//! package. Each line is `{"name", "body", "expected"}`.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use serde_json::{Value, json};
use turnwire_core::event::{
    ExternalExecutionResult, ModelCallEnd, ModelCallStart, ReplyEnd, ReplyStart,
    RequireExternalExecution, TextBlockDelta, TextBlockEnd, TextBlockStart, ThinkingBlockDelta,
    ThinkingBlockEnd, ThinkingBlockStart, TokenCounts, ToolCallDelta, ToolCallEnd, ToolCallStart,
    ToolResultEnd, ToolResultStart, ToolResultTextDelta,
};
use turnwire_core::{
    ErrorType, Event, EventKind, Fields, FinishedReason, Json, ReplyError, ToolCall, ToolResult,
    ToolResultState,
};
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{EncoderOptions, Frames, Wire, sse};

const REPLY: &str = "chatcmpl-1";

fn main() {
    for (name, turn, expected) in complete_scenarios().into_iter().chain(cut_scenarios()) {
        println!("{}", json!({"name": name, "body": turn.body(), "expected": expected}));
    }
}

/// A name, a turn, and what the client must end with.
type Scenario = (&'static str, ReplyBuilder, Value);

/// Turns that come to their end.
fn complete_scenarios() -> Vec<Scenario> {
    let weather = r#"{"city":"Paris"}"#;
    let call =
        |id: &str, name: &str, input: &str| json!({"id": id, "name": name, "arguments": input});
    vec![
        (
            "plain text",
            ReplyBuilder::new().text(&["Hello, ", "wörld", " 🙂\n\u{2028}\"quoted\""]).completed(),
            json!({"content": "Hello, wörld 🙂\n\u{2028}\"quoted\"", "finish_reason": "stop",
                "usage": [10, 5, 15]}),
        ),
        (
            "thinking",
            ReplyBuilder::new().thinking(&["Let me ", "think."]).text(&["4"]).completed(),
            json!({"reasoning": "Let me think.", "content": "4", "finish_reason": "stop",
                "usage": [10, 5, 15]}),
        ),
        (
            "a tool of the client's",
            ReplyBuilder::new()
                .text(&["Let me see."])
                .call("call_1", "weather", &["{\"city\"", ":\"Paris\"}"])
                .outside(&["call_1"]),
            json!({"content": "Let me see.", "finish_reason": "tool_calls",
                "tool_calls": [call("call_1", "weather", weather)], "usage": [10, 5, 15]}),
        ),
        (
            "parallel tools of the client's",
            ReplyBuilder::new()
                .call("call_1", "weather", &[weather])
                .call("call_2", "time", &[])
                .outside(&["call_1", "call_2"]),
            json!({"content": "", "finish_reason": "tool_calls", "usage": [10, 5, 15],
                "tool_calls": [call("call_1", "weather", weather), call("call_2", "time", "{}")]}),
        ),
        (
            "tools that the agent serves",
            ReplyBuilder::new()
                .text(&["Let me see. "])
                .call("call_1", "weather", &[weather])
                .call("call_2", "browser", &["{}"])
                .result("call_1")
                .served_outside("call_2")
                .text(&["It is sunny."])
                .completed(),
            json!({"content": "Let me see. It is sunny.", "finish_reason": "stop",
                "usage": [20, 10, 30]}),
        ),
        (
            "served and open tools in one turn",
            ReplyBuilder::new()
                .call("call_1", "weather", &[weather])
                .result("call_1")
                .call("call_2", "open_page", &["{}"])
                .outside(&["call_2"]),
            json!({"content": "", "finish_reason": "tool_calls", "usage": [20, 10, 30],
                "tool_calls": [call("call_2", "open_page", "{}")]}),
        ),
        (
            "structured output",
            ReplyBuilder::new().end(ReplyEnd {
                structured_output: Some(Json::from(json!({"answer": 4}))),
                ..ReplyEnd::default()
            }),
            json!({"content": "{\"answer\":4}", "finish_reason": "stop", "usage": [10, 5, 15]}),
        ),
        (
            "nothing at all",
            ReplyBuilder::new().completed(),
            json!({"content": "", "finish_reason": "stop", "usage": [10, 5, 15]}),
        ),
    ]
}

/// Turns that do not.
fn cut_scenarios() -> Vec<Scenario> {
    vec![
        (
            "interruption",
            ReplyBuilder::new().text(&["On and"]).ended(FinishedReason::Interrupted),
            json!({"content": "On and", "finish_reason": "stop", "usage": [10, 5, 15]}),
        ),
        (
            "length",
            ReplyBuilder::new().text(&["On and on"]).ended(FinishedReason::Length),
            json!({"content": "On and on", "finish_reason": "length", "usage": [10, 5, 15]}),
        ),
        (
            "refusal",
            ReplyBuilder::new().text(&["I cannot."]).ended(FinishedReason::Refusal),
            json!({"content": "I cannot.", "finish_reason": "content_filter",
                "usage": [10, 5, 15]}),
        ),
        (
            "error",
            ReplyBuilder::new().text(&["On a"]).end(ReplyEnd {
                finished_reason: FinishedReason::Error,
                error: Some(ReplyError {
                    r#type: ErrorType::RateLimit,
                    message: "slow down".to_owned(),
                    ..ReplyError::default()
                }),
                ..ReplyEnd::default()
            }),
            json!({"content": "On a", "error": ["slow down", "rate_limit_error", "rate_limit"]}),
        ),
        (
            "a turn that breaks off",
            ReplyBuilder::new().text(&["On a"]),
            json!({"content": "On a",
                "error": ["the reply was cut off", "server_error", "connection"]}),
        ),
    ]
}

/// The events of a turn.
struct ReplyBuilder {
    events: Vec<Event<'static>>,
    blocks: u32,
}

impl ReplyBuilder {
    fn new() -> Self {
        let turn = Self { events: Vec::new(), blocks: 0 };
        let mut turn = turn.add(ReplyStart { name: "friday".to_owned(), ..ReplyStart::default() });
        for event in &mut turn.events {
            event.created_at = "2026-02-02T02:40:00Z".into();
        }
        turn.model_call()
    }

    fn add(mut self, kind: impl Into<EventKind<'static>>) -> Self {
        self.events.push(Event::new(REPLY, kind));
        self
    }

    fn model_call(self) -> Self {
        self.add(ModelCallStart { model_name: "demo".to_owned() })
    }

    fn model_call_end(self) -> Self {
        let usage = TokenCounts { input_tokens: 10, output_tokens: 5, ..TokenCounts::default() };
        self.add(ModelCallEnd { usage, ..ModelCallEnd::default() })
    }

    fn text(mut self, pieces: &[&'static str]) -> Self {
        self.blocks += 1;
        let id = format!("b{}", self.blocks);
        let mut turn = self.add(TextBlockStart { block_id: id.clone().into() });
        for piece in pieces {
            let delta = (*piece).into();
            turn = turn.add(TextBlockDelta { block_id: id.clone().into(), delta });
        }
        turn.add(TextBlockEnd { block_id: id.into(), text: None, extra: Fields::default() })
    }

    fn thinking(mut self, pieces: &[&'static str]) -> Self {
        self.blocks += 1;
        let id = format!("b{}", self.blocks);
        let mut turn = self.add(ThinkingBlockStart { block_id: id.clone().into() });
        for piece in pieces {
            let delta = (*piece).into();
            turn = turn.add(ThinkingBlockDelta { block_id: id.clone().into(), delta });
        }
        turn.add(ThinkingBlockEnd { block_id: id.into(), extra: Fields::default() })
    }

    fn call(self, id: &'static str, name: &'static str, pieces: &[&'static str]) -> Self {
        let start = ToolCallStart { tool_call_id: id.into(), tool_call_name: name.into() };
        let mut turn = self.add(start);
        for piece in pieces {
            turn = turn.add(ToolCallDelta { tool_call_id: id.into(), delta: (*piece).into() });
        }
        turn.add(ToolCallEnd { tool_call_id: id.into(), extra: Fields::default() })
    }

    /// The agent runs the tool, then asks the model again.
    fn result(self, id: &'static str) -> Self {
        self.model_call_end()
            .add(ToolResultStart { tool_call_id: id.into(), tool_call_name: "tool".into() })
            .add(ToolResultTextDelta { tool_call_id: id.into(), delta: "sunny".into() })
            .add(ToolResultEnd { tool_call_id: id.into(), state: ToolResultState::Success })
            .model_call()
    }

    /// Another client executes the tool.
    fn served_outside(self, id: &'static str) -> Self {
        let tool_calls = vec![ToolCall::new(id, "", "")];
        let execution_results = vec![ToolResult::success(id, "done")];
        self.add(RequireExternalExecution { tool_calls })
            .add(ExternalExecutionResult { execution_results })
    }

    /// The turn waits for the client.
    fn outside(self, ids: &[&'static str]) -> Self {
        let tool_calls = ids.iter().map(|id| ToolCall::new(*id, "", "")).collect();
        self.model_call_end().add(RequireExternalExecution { tool_calls })
    }

    fn completed(self) -> Self {
        self.ended(FinishedReason::Completed)
    }

    fn ended(self, finished_reason: FinishedReason) -> Self {
        self.end(ReplyEnd { finished_reason, ..ReplyEnd::default() })
    }

    fn end(self, end: ReplyEnd) -> Self {
        self.model_call_end().add(end)
    }

    fn body(&self) -> String {
        let mut body = String::new();
        let mut frames = Frames::default();
        let Some(wire) = Wire::named("openai-chat") else { return body };
        let Ok(mut encoder) =
            wire.encoder(&EncoderOptions::default().with(StreamOptions { include_usage: true }))
        else {
            return body;
        };
        for event in &self.events {
            encoder.encode(event, &mut frames);
        }
        encoder.end(&mut frames);
        if let Some(word) = wire.end_marker {
            frames.push_text("", word);
        }
        sse::write(&frames, None, &mut body);
        body
    }
}
