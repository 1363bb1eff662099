//! Results of client-side tools, with a provider that gives every call the same id.

use crate::fake_provider::{FakeOutput, FakeProvider, ReceivedRequest, text};
use crate::harness::{TestServer, friday_settings, message_text};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Calls `open_page` as often as the last message says, always as `call_0`, then repeats the
/// results.
fn reuses_ids(request: &ReceivedRequest) -> Vec<FakeOutput> {
    let messages = request.body["messages"].as_array().unwrap();
    let user = messages.iter().rposition(|message| message["role"] == "user").unwrap();
    let results: Vec<&str> = messages[user..]
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    let call = |page: &str| FakeOutput::Call("call_0", "open_page", json!({ "page": page }));
    match (messages[user]["content"].as_str().unwrap(), results.len()) {
        ("both at once", 0) => vec![call("a"), call("b")],
        ("one after the other" | "one", 0) => vec![call("a")],
        ("one after the other", 1) => vec![call("b")],
        _ => text(results.join(" ")),
    }
}

const TOOL: &str = "tools = [\"external:open_page\"]\n[external_tools.open_page]\ndescription = \"Open\"\n\
    input = { type = \"object\" }\n";

/// Every call sent to the provider has a unique id, followed by its result.
fn assert_valid_request(request: &ReceivedRequest) {
    let mut ids = HashSet::new();
    for message in request.body["messages"].as_array().unwrap() {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap();
            assert!(ids.insert(id) && id.len() <= 40, "{}", request.body);
        }
        if message["role"] == "tool" {
            assert!(ids.contains(message["tool_call_id"].as_str().unwrap()), "{}", request.body);
        }
    }
}

#[tokio::test]
async fn each_call_of_a_reply_has_an_id_of_its_own_towards_an_openai_client() {
    let provider = FakeProvider::start(reuses_ids).await;
    let server = TestServer::start(&friday_settings(&provider, TOOL));
    let mut messages = vec![json!({"role": "user", "content": "one after the other"})];
    let mut ids = HashSet::new();
    for result in ["A", "B"] {
        let body = json!({"model": "friday", "messages": messages});
        let answer = server.post("/v1/chat/completions", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let message = answer.json()["choices"][0]["message"].clone();
        let id = message["tool_calls"][0]["id"].clone();
        assert!(ids.insert(id.to_string()), "{id} again");
        messages.push(message);
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    }
    let body = json!({"model": "friday", "messages": messages});
    let last = server.post("/v1/chat/completions", body).await;
    assert_eq!(last.json()["choices"][0]["message"]["content"], "A B", "{}", last.text());
    provider.requests().iter().for_each(assert_valid_request);
}

#[tokio::test]
async fn two_calls_of_one_answer_with_one_id_are_two_calls() {
    let provider = FakeProvider::start(reuses_ids).await;
    let server = TestServer::start(&friday_settings(&provider, TOOL));
    server.create_session("s").await;
    let reply = server.send_message("s", "both at once").await;
    let view = server.until("s", "waiting").await;
    let calls = view["pending"][0]["external"].as_array().unwrap().clone();
    assert_eq!(calls.len(), 2, "{view}");
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let results: Vec<Value> = calls
        .iter()
        .map(|call| {
            let page: Value = serde_json::from_str(call["input"].as_str().unwrap()).unwrap();
            json!({"type": "tool_result", "id": call["id"], "name": "open_page",
                "output": page["page"], "state": "success"})
        })
        .collect();
    let event = json!([{"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": reply,
        "execution_results": results}]);
    assert_eq!(server.post("/v1/sessions/s/events", event).await.status, 200);
    server.until("s", "idle").await;
    assert_eq!(message_text(&server.message("s", &reply).await), "a b");
    provider.requests().iter().for_each(assert_valid_request);
}

/// The pending call of a session.
async fn waiting_call(server: &TestServer, session: &str) -> Value {
    server.until(session, "waiting").await["pending"][0]["external"][0]["id"].clone()
}

#[tokio::test]
async fn an_ag_ui_client_that_repeats_an_old_result_does_not_answer_a_new_call() {
    let provider = FakeProvider::start(reuses_ids).await;
    let server = TestServer::start(&friday_settings(&provider, TOOL));
    let run = async |messages: &[Value]| {
        let body = json!({"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "messages": messages});
        let answer = server.post("/ag-ui/friday", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let mut messages = Vec::new();
    let mut ids = HashSet::new();
    for (turn, result) in ["A", "B"].into_iter().enumerate() {
        messages.push(json!({"id": format!("m{turn}"), "role": "user", "content": "one"}));
        run(&messages).await;
        let id = waiting_call(&server, "t").await;
        assert!(ids.insert(id.to_string()), "{id} again");
        // Sending old results again answers nothing.
        run(&messages).await;
        assert_eq!(waiting_call(&server, "t").await, id);
        messages.push(json!({"id": format!("t{turn}"), "role": "tool", "toolCallId": id,
            "content": result}));
        run(&messages).await;
        server.until("t", "idle").await;
    }
    let request = provider.requests();
    assert_eq!(request.last().unwrap().last_message()["content"], "B");
    request.iter().for_each(assert_valid_request);
}

#[tokio::test]
async fn an_ai_sdk_client_that_repeats_an_old_result_does_not_answer_a_new_call() {
    let provider = FakeProvider::start(reuses_ids).await;
    let server = TestServer::start(&friday_settings(&provider, TOOL));
    let user = json!({"id": "m", "role": "user",
        "parts": [{"type": "text", "text": "one after the other"}]});
    let send = async |messages: Value| {
        let body = json!({"id": "chat", "messages": messages, "trigger": "submit-message"});
        server.post("/ai-sdk/friday", body).await
    };
    assert_eq!(send(json!([user])).await.status, 200);
    let view = server.until("chat", "waiting").await;
    let reply = view["pending"][0]["reply_id"].clone();
    let mut parts = Vec::new();
    for result in ["A", "B"] {
        let id = waiting_call(&server, "chat").await;
        assert!(parts.iter().all(|part: &Value| part["toolCallId"] != id), "{id} again");
        parts.push(json!({"type": "tool-open_page", "toolCallId": id, "state": "output-available",
            "input": {}, "output": result}));
        let answer = send(json!([user, {"id": reply, "role": "assistant", "parts": parts}])).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    server.until("chat", "idle").await;
    let reply = server.message("chat", reply.as_str().unwrap()).await;
    assert_eq!(message_text(&reply), "A B");
}

#[tokio::test]
async fn a_call_that_its_client_abandons_ends_its_reply() {
    let provider = FakeProvider::start(reuses_ids).await;
    let server = TestServer::start(&friday_settings(
        &provider,
        &format!("result_timeout = \"400ms\"\n{TOOL}"),
    ));
    server.create_session("s").await;
    let reply = server.send_message("s", "one").await;
    let view = server.until("s", "waiting").await;
    assert!(view["pending"][0]["expires_at"].is_string(), "{view}");
    let id = view["pending"][0]["external"][0]["id"].clone();
    server.until("s", "idle").await;
    let message = server.message("s", &reply).await;
    assert_eq!(message["finished_reason"], "interrupted", "{message}");
    let result = &message["content"][1];
    assert_eq!((&result["id"], &result["state"]), (&id, &json!("interrupted")), "{message}");
    assert_eq!(result["output"], "The client sent no result within 400ms.");
    assert_eq!(provider.requests().len(), 1, "the model is not called again");
    // A late result is refused, and the session continues.
    let late = json!([{"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": reply, "execution_results":
        [{"type": "tool_result", "id": id, "name": "open_page", "output": "late",
          "state": "success"}]}]);
    assert_eq!(server.post("/v1/sessions/s/events", late).await.status, 409);
    let next = server.send_message("s", "nothing").await;
    server.until("s", "idle").await;
    assert_eq!(server.message("s", &next).await["finished_reason"], "completed");
    provider.requests().iter().for_each(assert_valid_request);
}

#[tokio::test]
async fn a_call_that_was_abandoned_expires_after_a_restart_too() {
    let provider = FakeProvider::start(reuses_ids).await;
    let mut server =
        TestServer::start(&friday_settings(&provider, &format!("result_timeout = \"1s\"\n{TOOL}")));
    let body = json!({"model": "friday", "messages": [{"role": "user", "content": "one"}]});
    let answer = server.post("/v1/chat/completions", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    server.kill();
    server.restart();
    let sessions = server.get("/v1/sessions").await;
    let session = sessions["sessions"][0]["id"].as_str().unwrap().to_owned();
    server.until(&session, "idle").await;
}
