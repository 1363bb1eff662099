//! A reply that was cut off at any event leaves a history that every provider accepts.

use crate::fake_model::FakeModel;
use crate::harness::{Harness, approve};
use crate::subagents::open_page;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use turnwire_agent::Agent;
use turnwire_agent::model::ModelError;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolContext, ToolError, function, streaming_function};
use turnwire_core::{ErrorType, Event, FinishedReason, Json, ModelCalls, Msg, ToolResult};
use turnwire_wires::model_request::ToolDefinition;
use turnwire_wires::{Request, Wire};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A reply with everything: thinking, text, several rounds, a model that fails in the end, and parallel
/// calls that run, wait for approval, run at the client, fail, are unknown, or have invalid JSON.
async fn reference() -> Harness {
    let model = FakeModel::new(|request| match request.result_count() {
        0 => vec![
            ScriptStep::thinking("Hm."),
            ScriptStep::text("Let me see."),
            ScriptStep::call("a", "look", "{}"),
            ScriptStep::call("b", "asks", "{}"),
            ScriptStep::call("c", "open_page", "{}"),
        ],
        3 => vec![
            ScriptStep::call("d", "nothing", "{}"),
            ScriptStep::call("e", "look", "{\"ci"),
            ScriptStep::text("And on."),
        ],
        _ => vec![
            ScriptStep::text("So"),
            ScriptStep::call("f", "look", "{}"),
            ScriptStep::Fail(ModelError::new(ErrorType::Upstream, "gone")),
        ],
    });
    let look = |_: Nothing, out: ToolContext| async move {
        out.send_text("one ").await;
        Ok::<_, ToolError>("two")
    };
    let friday = Agent::builder("friday", model)
        .tool(streaming_function("look", "", look))
        .tool(
            function("asks", "", async |_: Nothing| Ok::<_, ToolError>("yes")).requires_approval(),
        )
        .tool(open_page())
        .build();
    let mut harness = Harness::new("go");
    while harness.reply().finished_at().is_none() {
        harness.run(&friday).await.unwrap();
        harness.confirm_all(approve);
        harness.execute_client_calls(|call| {
            ToolResult::success(call.id.as_str(), "a page").named("open_page")
        });
    }
    harness
}

/// The reply after these events, closed as a stop does.
fn cut(events: &[Event<'static>]) -> Msg {
    let (mut reply, mut calls) =
        (Msg::reply(crate::harness::REPLY, "friday"), ModelCalls::default());
    for event in events {
        reply.append_event(event).unwrap();
        calls.observe(event);
    }
    for event in turnwire_agent::close_reply(&reply, &calls, FinishedReason::Interrupted, None) {
        reply.append_event(&event.stamped(&turnwire_core::stamp::SystemStamp)).unwrap();
    }
    reply
}

#[tokio::test]
async fn a_reply_cut_off_anywhere_can_be_sent_to_every_provider() {
    let harness = reference().await;
    let mut bodies = 0;
    for at in 0..=harness.events.len() {
        let reply = cut(&harness.events[..at]);
        // Either a new message follows, or the next model call of the same turn.
        for next in [Some(Msg::user("ann", "And now?")), None] {
            let messages: Vec<Msg> =
                [Msg::user("ann", "go"), reply.clone()].into_iter().chain(next).collect();
            for wire in Wire::all().filter(|wire| wire.can_request_model()) {
                bodies += 1;
                let body = body(wire, &messages);
                if let Err(why) = accepts(wire.name, &body) {
                    panic!("{} refuses the history after {at} events: {why}\n{body:#}", wire.name);
                }
            }
        }
    }
    assert!(bodies > 500, "{bodies}");
}

fn body(wire: &Wire, messages: &[Msg]) -> Value {
    let empty = || Json::parse(r#"{"type":"object","properties":{}}"#).unwrap();
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: String::new(),
        input_schema: empty(),
        ..ToolDefinition::default()
    };
    let tools = ["look", "asks", "open_page"].map(tool);
    let request = Request { model: "m", messages, tools: &tools, ..Request::default() };
    wire.model_request(&request).unwrap().parse_as().unwrap()
}

/// Whether a provider accepts this body: checks what each provider refuses in practice.
fn accepts(wire: &str, body: &Value) -> Result<(), String> {
    let list = |at: &str| body.pointer(at).and_then(Value::as_array).cloned().unwrap_or_default();
    match wire {
        "openai-chat" => chat(&list("/messages"), true),
        "dashscope" => chat(&list("/input/messages"), true),
        "ollama" => chat(&list("/messages"), false),
        "openai-responses" => responses(&list("/input")),
        "anthropic" => turns(&list("/messages"), "assistant", "content", "/type", "tool_use"),
        "gemini" => turns(&list("/contents"), "model", "parts", "/functionCall", ""),
        other => Err(format!("no check for {other}")),
    }
}

fn strings(values: &[Value], at: &str) -> Vec<String> {
    let found = values.iter().filter_map(|value| value.pointer(at)?.as_str());
    found.map(str::to_owned).collect()
}

/// Each call has exactly one result, directly after its message.
fn chat(messages: &[Value], has_ids: bool) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let key = if has_ids { "tool_call_id" } else { "tool_name" };
            let id = message[key].as_str().unwrap_or_default();
            let at = open.iter().position(|own| own == id).ok_or("a result without a call")?;
            open.remove(at);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("calls without a result: {open:?}"));
        }
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        // Thinking alone is an answer if the provider accepts it back.
        let is_said = |key: &str| {
            !matches!(&message[key], Value::Null | Value::String(_))
                || message[key].as_str().is_some_and(|text| !text.is_empty())
        };
        let says = ["content", "reasoning_content", "thinking"].into_iter().any(is_said);
        if role == "assistant" && calls.is_empty() && !says {
            return Err("an answer that is empty".to_owned());
        }
        open = strings(&calls, if has_ids { "/id" } else { "/function/name" });
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls without a result: {open:?}")) }
}

/// Each call has exactly one output.
fn responses(items: &[Value]) -> Result<(), String> {
    let of = |kind: &str| -> Vec<String> {
        let own: Vec<Value> = items.iter().filter(|item| item["type"] == kind).cloned().collect();
        let mut ids = strings(&own, "/call_id");
        ids.sort();
        ids
    };
    let (calls, outputs) = (of("function_call"), of("function_call_output"));
    if calls == outputs { Ok(()) } else { Err(format!("calls {calls:?}, outputs {outputs:?}")) }
}

/// Each model turn follows a user turn, none is empty or the last, and the results of its calls are all in
/// the next turn.
fn turns(
    turns: &[Value],
    model: &str,
    content: &str,
    kind: &str,
    call: &str,
) -> Result<(), String> {
    let parts = |turn: &Value| turn[content].as_array().cloned().unwrap_or_default();
    let is_call = |part: &Value| match part.pointer(kind) {
        Some(Value::String(kind)) => kind == call,
        found => found.is_some(),
    };
    for (at, turn) in turns.iter().enumerate() {
        let is_model = turn["role"] == model;
        let is_behind_the_user =
            at.checked_sub(1).and_then(|at| turns.get(at)).is_some_and(|it| it["role"] != model);
        if is_model && !is_behind_the_user {
            return Err(format!("turn {at} does not answer anything"));
        }
        if turn[content].as_array().is_some_and(Vec::is_empty) || turn[content] == "" {
            return Err(format!("turn {at} is empty"));
        }
        let calls = parts(turn).into_iter().filter(is_call).count();
        let next = turns.get(at + 1).map(parts).unwrap_or_default();
        let is_result =
            |part: &&Value| part["type"] == "tool_result" || part.get("functionResponse").is_some();
        let results = next.iter().filter(is_result).count();
        if is_model && calls != results {
            return Err(format!("turn {at} has {calls} calls, and the next {results} results"));
        }
    }
    if turns.last().is_some_and(|turn| turn["role"] == model) {
        return Err("the model's turn is the last".to_owned());
    }
    Ok(())
}

#[test]
fn the_checks_refuse_what_providers_refuse() {
    let refused = [
        ("openai-chat", r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c"}]}]}"#),
        ("openai-chat", r#"{"messages":[{"role":"tool","tool_call_id":"c"}]}"#),
        ("dashscope", r#"{"input":{"messages":[{"role":"assistant","content":""}]}}"#),
        (
            "ollama",
            r#"{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]}"#,
        ),
        ("openai-responses", r#"{"input":[{"type":"function_call","call_id":"c"}]}"#),
        ("anthropic", r#"{"messages":[{"role":"assistant","content":"Hi"}]}"#),
        (
            "anthropic",
            r#"{"messages":[{"role":"user","content":"Hi"},
                {"role":"assistant","content":[{"type":"tool_use","id":"c"}]},
                {"role":"user","content":"And?"}]}"#,
        ),
        (
            "gemini",
            r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]},
                {"role":"model","parts":[{"functionCall":{"name":"f"}},{"functionCall":{"name":"f"}}]},
                {"role":"user","parts":[{"functionResponse":{"name":"f"}}]}]}"#,
        ),
    ];
    for (wire, body) in refused {
        let body = serde_json::from_str(body).unwrap();
        assert!(accepts(wire, &body).is_err(), "{wire}: {body}");
    }
}
