//! Replies as bodies of the Responses API, one JSON line each: `name`, `body` and what a client must
//! make of it. `tests/peers/openai` serves them to the client that `OpenAI` publishes.

use serde_json::{Value, json};
use std::io::Write;
use turnwire_core::block::ToolResult;
use turnwire_core::event::{
    Chunk, DataBlockDelta, DataBlockEnd, DataBlockStart, ExternalExecutionResult, Hint,
    ModelCallEnd, ModelCallStart, ReplyEnd, ReplyStart, RequireExternalExecution, SubAgent,
    TextBlockDelta, TextBlockEnd, TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd,
    ThinkingBlockStart, TokenCounts, ToolCallDelta, ToolCallEnd, ToolCallStart, ToolResultEnd,
    ToolResultStart, ToolResultTextDelta,
};
use turnwire_core::{
    ErrorType, Event, EventKind, Fields, FinishedReason, HintBlock, Json, ReplyError, ToolCall,
    ToolResultState,
};
use turnwire_wires::{EncoderOptions, Frames, Wire, sse};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for scenario in scenarios() {
        let line = json!({
            "name": scenario.name,
            "body": body(&scenario.events)?,
            "expected": scenario.expected,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

struct Scenario {
    name: &'static str,
    events: Vec<Event<'static>>,
    expected: Value,
}

fn body(events: &[Event<'_>]) -> Result<String, Box<dyn std::error::Error>> {
    let wire = Wire::named("openai-responses").ok_or("the wire is missing")?;
    let mut encoder = wire.encoder(&EncoderOptions::default())?;
    let (mut frames, mut body) = (Frames::default(), String::new());
    for event in events {
        encoder.encode(event, &mut frames);
    }
    encoder.end(&mut frames);
    sse::write(&frames, None, &mut body);
    Ok(body)
}

/// Collects the events of a reply.
#[derive(Default)]
struct ReplyBuilder(Vec<Event<'static>>);

impl ReplyBuilder {
    fn new() -> Self {
        let mut reply = Self::default();
        reply.add(ReplyStart {
            session_id: "s".into(),
            name: "friday".into(),
            ..ReplyStart::default()
        });
        reply.add(ModelCallStart { model_name: "demo".into() });
        reply
    }

    fn add(&mut self, kind: impl Into<EventKind<'static>>) -> &mut Self {
        let mut event = Event::new("reply-1", kind);
        event.created_at = "2026-11-15T08:22:02.000000".into();
        self.0.push(event);
        self
    }

    fn text(&mut self, id: &'static str, pieces: &[&'static str]) -> &mut Self {
        self.add(TextBlockStart { block_id: id.into() });
        for &delta in pieces {
            self.add(TextBlockDelta { block_id: id.into(), delta: delta.into() });
        }
        self.add(TextBlockEnd { block_id: id.into(), text: None, extra: Fields::default() })
    }

    fn thinking(&mut self, id: &'static str, pieces: &[&'static str]) -> &mut Self {
        self.add(ThinkingBlockStart { block_id: id.into() });
        for &delta in pieces {
            self.add(ThinkingBlockDelta { block_id: id.into(), delta: delta.into() });
        }
        let mut extra = Fields::default();
        extra.insert("encrypted_content", "opaque");
        self.add(ThinkingBlockEnd { block_id: id.into(), extra })
    }

    fn call(&mut self, id: &'static str, name: &'static str, pieces: &[&'static str]) -> &mut Self {
        self.add(ToolCallStart { tool_call_id: id.into(), tool_call_name: name.into() });
        for &delta in pieces {
            self.add(ToolCallDelta { tool_call_id: id.into(), delta: delta.into() });
        }
        self.add(ToolCallEnd { tool_call_id: id.into(), extra: Fields::default() })
    }

    fn result(&mut self, id: &'static str, text: &'static str) -> &mut Self {
        self.add(ToolResultStart { tool_call_id: id.into(), tool_call_name: "tool".into() })
            .add(ToolResultTextDelta { tool_call_id: id.into(), delta: text.into() })
            .add(ToolResultEnd { tool_call_id: id.into(), state: ToolResultState::Success })
    }

    fn model_end(&mut self, reason: FinishedReason) -> &mut Self {
        let usage = TokenCounts {
            input_tokens: 10,
            output_tokens: 4,
            cache_input_tokens: 6,
            cache_creation_input_tokens: 1,
        };
        self.add(ModelCallEnd { usage, finished_reason: reason, ..ModelCallEnd::default() })
    }

    fn end(&mut self, reason: FinishedReason) -> Vec<Event<'static>> {
        self.add(ReplyEnd { finished_reason: reason, ..ReplyEnd::default() });
        std::mem::take(&mut self.0)
    }
}

fn expected(status: &str, text: &[&str], thinking: &[&str], calls: &[[&str; 3]]) -> Value {
    json!({
        "id": "reply-1", "status": status, "text": text, "thinking": thinking, "calls": calls,
        "usage": [10, 4], "model": "demo", "created_at": 1_794_730_922,
    })
}

fn with(mut expected: Value, key: &str, value: Value) -> Value {
    if let Some(map) = expected.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
    expected
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn scenarios() -> Vec<Scenario> {
    let done = FinishedReason::Completed;
    let calls = FinishedReason::ToolCalls;
    vec![
        Scenario {
            name: "text",
            events: ReplyBuilder::new()
                .text("b1", &["Hel", "lo, ", "wörld 🙂", "\n\"quoted\" \\ "])
                .model_end(done.clone())
                .end(done.clone()),
            expected: expected("completed", &["Hello, wörld 🙂\n\"quoted\" \\ "], &[], &[]),
        },
        Scenario {
            name: "thinking",
            events: ReplyBuilder::new()
                .thinking("t1", &["Let me ", "see."])
                .text("b1", &["It is ", "42."])
                .model_end(done.clone())
                .end(done.clone()),
            expected: expected("completed", &["It is 42."], &["Let me see."], &[]),
        },
        Scenario {
            name: "tool",
            events: ReplyBuilder::new()
                .text("b1", &["One moment."])
                .call("call_1", "open_page", &["{\"url\":", "\"https://example.com\"}"])
                .model_end(calls.clone())
                .add(RequireExternalExecution {
                    tool_calls: vec![ToolCall::new("call_1", "open_page", "")],
                })
                .0
                .clone(),
            expected: expected(
                "completed",
                &["One moment."],
                &[],
                &[["call_1", "open_page", "{\"url\":\"https://example.com\"}"]],
            ),
        },
        Scenario {
            name: "parallel tools",
            events: parallel(),
            expected: expected(
                "completed",
                &[],
                &[],
                &[["call_1", "a", "{\"n\":1}"], ["call_2", "b", "{}"], ["call_3", "c", ""]],
            ),
        },
        Scenario {
            name: "served tools",
            events: served(),
            expected: with(
                expected("completed", &["Let me look.", "It is sunny."], &[], &[]),
                "usage",
                json!([20, 8]),
            ),
        },
        Scenario {
            name: "served and external tools",
            events: served_and_external(),
            expected: expected("completed", &[], &[], &[["call_2", "open_page", "{}"]]),
        },
        Scenario {
            name: "error",
            events: ReplyBuilder::new()
                .text("b1", &["Well, "])
                .model_end(FinishedReason::Error)
                .add(ReplyEnd {
                    finished_reason: FinishedReason::Error,
                    error: Some(ReplyError {
                        r#type: ErrorType::RateLimit,
                        message: "too much at once".into(),
                        ..ReplyError::default()
                    }),
                    ..ReplyEnd::default()
                })
                .0
                .clone(),
            expected: with(
                expected("failed", &["Well, "], &[], &[]),
                "error",
                json!(["rate_limit_exceeded", "too much at once"]),
            ),
        },
        Scenario {
            name: "interruption",
            events: ReplyBuilder::new()
                .add(TextBlockStart { block_id: "b1".into() })
                .add(TextBlockDelta { block_id: "b1".into(), delta: "I was".into() })
                .model_end(FinishedReason::Interrupted)
                .end(FinishedReason::Interrupted),
            expected: expected("cancelled", &["I was"], &[], &[]),
        },
        Scenario {
            name: "length",
            events: ReplyBuilder::new()
                .text("b1", &["Once upon"])
                .model_end(FinishedReason::Length)
                .end(FinishedReason::Length),
            expected: with(
                expected("incomplete", &["Once upon"], &[], &[]),
                "incomplete",
                json!("max_output_tokens"),
            ),
        },
        Scenario {
            name: "structured text",
            events: structured(true),
            expected: with(
                expected("completed", &["{\"city\": \"Rome\", \"days\": 3}"], &[], &[]),
                "parsed",
                json!({"city": "Rome", "days": 3}),
            ),
        },
        Scenario {
            name: "structured output",
            events: structured(false),
            expected: with(
                expected("completed", &["{\"city\":\"Rome\",\"days\":3}"], &[], &[]),
                "parsed",
                json!({"city": "Rome", "days": 3}),
            ),
        },
        Scenario {
            name: "image",
            events: image(),
            expected: with(
                expected("completed", &["Here it is."], &[], &[]),
                "images",
                json!(["iVBORw0KGgo="]),
            ),
        },
        Scenario {
            name: "everything that a client cannot know",
            events: unknown(),
            expected: expected("completed", &["Hi."], &[], &[]),
        },
    ]
}

fn parallel() -> Vec<Event<'static>> {
    let mut reply = ReplyBuilder::new();
    let start = |id: &'static str, name: &'static str| ToolCallStart {
        tool_call_id: id.into(),
        tool_call_name: name.into(),
    };
    let delta = |id: &'static str, delta: &'static str| ToolCallDelta {
        tool_call_id: id.into(),
        delta: delta.into(),
    };
    let end = |id: &'static str| ToolCallEnd { tool_call_id: id.into(), extra: Fields::default() };
    reply
        .add(start("call_1", "a"))
        .add(start("call_2", "b"))
        .add(delta("call_1", "{\"n\":"))
        .add(delta("call_2", "{}"))
        .add(delta("call_1", "1}"))
        .add(end("call_2"))
        .add(end("call_1"))
        .call("call_3", "c", &[])
        .model_end(FinishedReason::ToolCalls)
        .end(FinishedReason::ToolCalls)
}

fn served() -> Vec<Event<'static>> {
    ReplyBuilder::new()
        .text("b1", &["Let me ", "look."])
        .call("call_1", "get_weather", &["{\"city\":", "\"Rome\"}"])
        .call("call_2", "get_time", &["{}"])
        .model_end(FinishedReason::ToolCalls)
        .result("call_1", "sunny")
        .result("call_2", "noon")
        .add(ModelCallStart { model_name: "demo".into() })
        .text("b2", &["It is ", "sunny."])
        .model_end(FinishedReason::Completed)
        .end(FinishedReason::Completed)
}

fn served_and_external() -> Vec<Event<'static>> {
    let mut reply = ReplyBuilder::new();
    reply
        .call("call_1", "get_weather", &["{}"])
        .call("call_2", "open_page", &["{}"])
        .call("call_3", "old_page", &["{}"])
        .model_end(FinishedReason::ToolCalls)
        .add(RequireExternalExecution {
            tool_calls: vec![ToolCall::new("call_2", "open_page", "")],
        })
        .result("call_1", "sunny")
        .add(ExternalExecutionResult {
            execution_results: vec![ToolResult::success("call_3", "opened")],
        });
    reply.0
}

fn structured(as_text: bool) -> Vec<Event<'static>> {
    let mut reply = ReplyBuilder::new();
    if as_text {
        reply.text("b1", &["{\"city\": \"Rome\",", " \"days\": 3}"]);
    }
    reply
        .model_end(FinishedReason::Completed)
        .add(ReplyEnd {
            structured_output: Some(Json::from(json!({"city": "Rome", "days": 3}))),
            ..ReplyEnd::default()
        })
        .0
        .clone()
}

fn image() -> Vec<Event<'static>> {
    let chunk = |data: &'static str| DataBlockDelta {
        block_id: "d1".into(),
        media_type: Some("image/png".into()),
        chunk: Chunk::Data(data.into()),
    };
    ReplyBuilder::new()
        .text("b1", &["Here it is."])
        .add(DataBlockStart {
            block_id: "d1".into(),
            media_type: Some("image/png".into()),
            name: Some("a.png".into()),
        })
        .add(chunk("iVBOR"))
        .add(chunk("w0KGgo"))
        .add(DataBlockEnd { block_id: "d1".into(), extra: Fields::default() })
        .model_end(FinishedReason::Completed)
        .end(FinishedReason::Completed)
}

fn unknown() -> Vec<Event<'static>> {
    let mut reply = ReplyBuilder::new();
    let mut inner = Event::new("reply-2", TextBlockStart { block_id: "x".into() });
    inner.agent = Some(Box::new(SubAgent {
        agent_path: Some("main/researcher".into()),
        parent_tool_call_id: Some("call_1".into()),
    }));
    reply.call("call_1", "research", &["{}"]);
    reply.add(ToolResultStart { tool_call_id: "call_1".into(), tool_call_name: "research".into() });
    reply.0.push(inner);
    reply
        .add(TextBlockDelta { block_id: "nobody".into(), delta: "x".into() })
        .add(Hint::from(HintBlock { id: "h".into(), ..HintBlock::new("remember") }))
        .add(ReplyStart::default())
        .text("b1", &["Hi."])
        .model_end(FinishedReason::Completed)
        .end(FinishedReason::Completed)
}
