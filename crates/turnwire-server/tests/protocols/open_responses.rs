//! What the public Open Responses specification requires of a response, in the cases that its acceptance suite has. The
//! suite itself is not part of this repository.
//!
//! | its case | ours |
//! |---|---|
//! | `basic-response`, `system-prompt`, `image-input`, `multi-turn` | `a_text_an_image_a_file_…` |
//! | `streaming-response` | `a_stream_has_whole_responses_and_numbered_events` |
//! | `tool-calling` | the same, and `a_function_call_gets_its_result` |
//! | `assistant-phase`, `response-output-phase-schema` | `phases_of_messages_…` |
//! | `compact-response`, `compact-missing-model` | `response_compaction` |
//! | `websocket-response`, `websocket-sequential-responses`, `websocket-continuation`, `websocket-reconnect-store-false-recovery`, `websocket-previous-response-not-found`, `websocket-failed-continuation-evicts-cache` | `response_socket` |
//! | `websocket-compact-new-chain` | `response_compaction` |

use crate::responses::TestServer;
use serde_json::{Value, json};

const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Whether a value may stand in a field of a response.
type Check = fn(&Value) -> bool;

const REQUIRED: [(&str, Check); 31] = [
    ("id", Value::is_string),
    ("object", |value| value == "response"),
    ("created_at", Value::is_i64),
    ("completed_at", |value| value.is_null() || value.is_i64()),
    ("status", Value::is_string),
    ("incomplete_details", |value| value.is_null() || value["reason"].is_string()),
    ("model", Value::is_string),
    ("previous_response_id", |value| value.is_null() || value.is_string()),
    ("instructions", |value| value.is_null() || value.is_string()),
    ("output", |value| value.as_array().is_some_and(|items| items.iter().all(is_item))),
    ("error", |value| value.is_null() || value["code"].is_string()),
    ("tools", |value| value.as_array().is_some_and(|tools| tools.iter().all(is_function))),
    ("tool_choice", |value| value.is_string() || value.is_object()),
    ("truncation", |value| value == "auto" || value == "disabled"),
    ("parallel_tool_calls", Value::is_boolean),
    ("text", |value| value["format"]["type"].is_string()),
    ("top_p", Value::is_number),
    ("presence_penalty", Value::is_number),
    ("frequency_penalty", Value::is_number),
    ("top_logprobs", Value::is_u64),
    ("temperature", Value::is_number),
    ("reasoning", |value| has(value, "effort") && has(value, "summary")),
    ("usage", |value| value.is_null() || value["input_tokens_details"]["cached_tokens"].is_i64()),
    ("max_output_tokens", |value| value.is_null() || value.is_u64()),
    ("max_tool_calls", |value| value.is_null() || value.is_u64()),
    ("store", Value::is_boolean),
    ("background", Value::is_boolean),
    ("service_tier", Value::is_string),
    ("metadata", Value::is_object),
    ("safety_identifier", |value| value.is_null() || value.is_string()),
    ("prompt_cache_key", |value| value.is_null() || value.is_string()),
];

fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some()
}

fn is_item(item: &Value) -> bool {
    let is_of_type = match item["type"].as_str().unwrap_or_default() {
        "message" => item["role"] == "assistant" && item["content"].is_array(),
        "function_call" => item["call_id"].is_string() && item["arguments"].is_string(),
        "reasoning" => return item["id"].is_string() && item["summary"].is_array(),
        _ => false,
    };
    is_of_type && item["id"].is_string() && item["status"].is_string()
}

fn is_function(tool: &Value) -> bool {
    let all = ["name", "description", "parameters", "strict"];
    tool["type"] == "function" && all.iter().all(|key| has(tool, key))
}

/// Checks a response, and returns it.
pub fn checked(response: Value) -> Value {
    for (field, is_valid) in REQUIRED {
        assert!(response.get(field).is_some_and(is_valid), "`{field}` of {response}");
    }
    response
}

async fn create(server: &TestServer, more: Value) -> Value {
    let mut body = json!({"model": "demo", "stream": false});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = server.create(&body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    checked(answer.json())
}

pub fn user(content: impl Into<Value>) -> Value {
    json!({"type": "message", "role": "user", "content": content.into()})
}

fn browser() -> Value {
    let parameters =
        json!({"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]});
    json!([{"type": "function", "name": "open_page", "description": "Opens a page", "parameters": parameters}])
}

#[tokio::test]
async fn a_text_an_image_a_file_a_system_message_and_a_history_are_answered() {
    let server = TestServer::new();
    let text = |text: &str| json!({"type": "input_text", "text": text});
    let inputs = [
        json!([user("Say hello in three words.")]),
        json!([{"type": "message", "role": "system", "content": "Speak like a pirate."}, user("Say hello.")]),
        json!([user(json!([text("What is this?"), {"type": "input_image", "image_url": PIXEL}]))]),
        json!([user(json!([text("Read it."), {"type": "input_file", "filename": "a.pdf",
            "file_data": "data:application/pdf;base64,JVBERi0xLjQKJSVFT0YK"}]))]),
        json!([user("My name is Ann."), {"type": "message", "role": "assistant", "content": "Hello Ann!"},
            user("What is my name?")]),
    ];
    for input in inputs {
        let response = create(&server, json!({"input": input})).await;
        assert_eq!(response["status"], "completed", "{response}");
        assert!(!response["output"].as_array().unwrap().is_empty(), "{response}");
        assert!(response["completed_at"].as_i64() >= response["created_at"].as_i64(), "{response}");
    }
}

#[tokio::test]
async fn a_stream_has_whole_responses_and_numbered_events() {
    let server = TestServer::new();
    for (input, expected) in [
        ("Count to five.", "response.output_text.delta"),
        ("browser", "response.function_call_arguments.done"),
    ] {
        let body =
            json!({"model": "demo", "stream": true, "input": [user(input)], "tools": browser()});
        let frames = server.create(&body).await.frames();
        assert!(frames.iter().any(|frame| frame["type"] == expected), "{frames:?}");
        for (at, frame) in frames.iter().enumerate() {
            assert_eq!(frame["sequence_number"], at);
            if let Some(response) = frame.get("response") {
                checked(response.clone());
            }
            if let Some(item) = frame.get("item") {
                assert!(is_item(item), "{frame}");
            }
        }
        assert_eq!(frames.last().unwrap()["type"], "response.completed");
    }
}

#[tokio::test]
async fn a_function_call_gets_its_result() {
    let server = TestServer::new();
    let first = create(&server, json!({"input": "browser", "tools": browser()})).await;
    let items = first["output"].as_array().unwrap();
    let call = items.iter().find(|item| item["type"] == "function_call").unwrap();
    let output =
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "opened"});
    let second =
        json!({"input": [output], "tools": browser(), "previous_response_id": first["id"]});
    let second = create(&server, second).await;
    assert_eq!(second["status"], "completed", "{second}");
}

#[tokio::test]
async fn a_response_repeats_its_request() {
    let server = TestServer::new();
    let first = create(&server, json!({"input": "Remember it."})).await;
    assert_eq!(first["store"], true);
    let asked = json!({
        "input": "What was it?", "previous_response_id": first["id"], "instructions": "Be brief.",
        "temperature": 0.5, "top_p": 0.25, "max_output_tokens": 100, "max_tool_calls": 3, "store": false,
        "metadata": {"team": "red"}, "parallel_tool_calls": false, "truncation": "auto", "user": "ann",
        "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}, "tool_choice": "none", "tools": browser(),
        "service_tier": "flex", "safety_identifier": "s", "prompt_cache_key": "k", "top_logprobs": 2,
    });
    let second = create(&server, asked.clone()).await;
    for key in [
        "previous_response_id",
        "instructions",
        "temperature",
        "top_p",
        "max_output_tokens",
        "max_tool_calls",
        "store",
        "metadata",
        "parallel_tool_calls",
        "truncation",
        "user",
        "tool_choice",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "top_logprobs",
    ] {
        assert_eq!(second[key], asked[key], "{key}");
    }
    assert_eq!(second["reasoning"], json!({"effort": "low", "summary": null}));
    assert_eq!(second["text"], json!({"verbosity": "low", "format": {"type": "text"}}));
    let mut tool = browser()[0].clone();
    tool["strict"] = Value::Null;
    assert_eq!(second["tools"], json!([tool]));
    let path = format!("/v1/responses/{}", second["id"].as_str().unwrap());
    let again = checked(server.get(&path).await.json());
    let mut second = second;
    second.as_object_mut().unwrap().remove("ignored_options");
    assert_eq!(again, second);
}

#[tokio::test]
async fn phases_of_messages_are_taken_and_given_back() {
    let server = TestServer::new();
    let assistant = |phase: &str, text: &str| json!({"type": "message", "role": "assistant", "phase": phase, "content": text});
    let input = json!([
        assistant("commentary", "I look it up."),
        assistant("final_answer", "It is four."),
        user("Say it again."),
    ]);
    assert_eq!(create(&server, json!({"input": input})).await["status"], "completed");

    // A model that names the phases of its messages.
    let events: Vec<Value> = ["commentary", "final_answer"]
        .iter()
        .flat_map(|phase| {
            [
                json!({"type": "TEXT_BLOCK_START", "block_id": phase}),
                json!({"type": "TEXT_BLOCK_DELTA", "block_id": phase, "delta": phase}),
                json!({"type": "TEXT_BLOCK_END", "block_id": phase, "extra": {"phase": phase}}),
            ]
        })
        .collect();
    let start = json!({"type": "REPLY_START", "name": "demo"});
    let all = [vec![start], events, vec![json!({"type": "REPLY_END"})]].concat();
    server.publish("s", "r", all).await;
    let response = checked(server.get("/v1/responses/resp_s~r").await.json());
    let phases: Vec<&Value> =
        response["output"].as_array().unwrap().iter().map(|item| &item["phase"]).collect();
    assert_eq!(phases, ["commentary", "final_answer"]);
}
