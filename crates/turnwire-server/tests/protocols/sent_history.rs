//! The provider sees the history as the client sent it with this request, beside what the log has of it.

use crate::options::{Answer, TestServer};
use serde_json::{Value, json};

/// What the fake provider answers.
const TEXT: &str = r#"{"a":"b"}"#;

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn marked(mut block: Value) -> Value {
    block["cache_control"] = json!({"type": "ephemeral"});
    block
}

fn message(role: &str, blocks: &[Value]) -> Value {
    json!({"role": role, "content": blocks})
}

fn request(path: &str, messages: &[Value]) -> Value {
    let agent = if path == "/v1/messages" { "messages" } else { "chat" };
    let tool = match agent {
        "messages" => json!({"name": "f", "input_schema": {"type": "object"}}),
        _ => {
            json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}})
        }
    };
    json!({"model": agent, "max_tokens": 9, "messages": messages, "tools": [tool]})
}

/// Sends a history, and checks that the provider saw it unchanged. Returns the answer.
async fn pass(server: &TestServer, path: &str, messages: &[Value]) -> Answer {
    let agent = if path == "/v1/messages" { "messages" } else { "chat" };
    let tool = match agent {
        "messages" => json!({"name": "f", "input_schema": {"type": "object"}}),
        _ => {
            json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}})
        }
    };
    let body = json!({"model": agent, "max_tokens": 9, "messages": messages, "tools": [tool]});
    let answer = server.post(path, &[], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(server.provider.last().body["messages"], json!(messages));
    answer
}

#[tokio::test]
async fn caching_marks_reach_the_provider_where_this_request_has_them() {
    let server = TestServer::new().await;
    for (path, answered) in [
        ("/v1/messages", message("assistant", &[text(TEXT)])),
        ("/v1/chat/completions", json!({"role": "assistant", "content": TEXT})),
    ] {
        let user = |words: &[Value]| message("user", words);
        let (one, two) = ([text("One"), text("more")], [text("Two"), text("more")]);
        let [first, last] = one.clone();
        let mut history = vec![user(&[first.clone(), marked(last.clone())])];
        let session = pass(&server, path, &history).await.headers["turnwire-session"].clone();

        // It moves to the newest message.
        history = vec![user(&one), answered.clone(), user(&[marked(text("Two")), text("more")])];
        assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);

        // Several at once, also in front of a message that the log has without one.
        history = vec![user(&[marked(first), last]), answered.clone(), user(&two), answered];
        history.push(user(&[marked(text("Three")), text("end")]));
        assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);
    }
}

#[tokio::test]
async fn caching_marks_on_calls_and_results_reach_the_provider() {
    let server = TestServer::new().await;
    let path = "/v1/messages";
    let call = json!({"type": "tool_use", "id": "toolu_Xa81kQz", "name": "f", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_Xa81kQz",
        "content": [text("a"), text("b")]});
    let ask = |block: Value| message("user", &[block, text("Go.")]);
    server.provider.call_next("f", "{}");
    let session = pass(&server, path, &[ask(marked(text("Now.")))]).await;
    let session = session.headers["turnwire-session"].clone();

    let called = message("assistant", std::slice::from_ref(&call));
    let history = [ask(text("Now.")), called, message("user", &[marked(result.clone())])];
    assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);

    // A mark on the call, and one on a part of the result.
    let mut part = result;
    part["content"][1] = marked(text("b"));
    let answered = message("assistant", &[text(TEXT)]);
    let called = message("assistant", &[marked(call)]);
    let history =
        [ask(text("Now.")), called, message("user", &[part]), answered, ask(text("Thanks."))];
    assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);
}

#[tokio::test]
async fn what_the_user_says_beside_results_keeps_its_caching_mark() {
    let server = TestServer::new().await;
    let path = "/v1/messages";
    let call = json!({"type": "tool_use", "id": "toolu_Xa81kQz", "name": "f", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_Xa81kQz", "content": "a"});
    server.provider.call_next("f", "{}");
    let mut history = vec![message("user", &[text("Now.")])];
    pass(&server, path, &history).await;
    let said = [result, text("Look"), marked(text("here."))];
    history.extend([message("assistant", &[call]), message("user", &said)]);
    pass(&server, path, &history).await;
}

#[tokio::test]
async fn an_answer_may_be_begun_behind_tool_results() {
    let server = TestServer::new().await;
    let call = json!({"type": "tool_use", "id": "toolu_Xa81kQz", "name": "f", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_Xa81kQz", "content": "a"});
    let function = json!({"name": "f", "arguments": "{}"});
    let calls = json!([{"id": "call_Xa81kQz", "type": "function", "function": function}]);
    let answer = |text: &str| message("assistant", &[json!({"type": "text", "text": text})]);
    let plain = |role: &str, text: &str| json!({"role": role, "content": text});
    let whole = format!("Well, {TEXT}");
    for (path, results, begun, next) in [
        (
            "/v1/messages",
            [message("assistant", &[call]), message("user", &[result])],
            answer("Well, "),
            [answer(&whole), message("user", &[text("Thanks.")])],
        ),
        (
            "/v1/chat/completions",
            [
                json!({"role": "assistant", "content": null, "tool_calls": calls}),
                json!({"role": "tool", "tool_call_id": "call_Xa81kQz", "content": "a"}),
            ],
            plain("assistant", "Well, "),
            [plain("assistant", &whole), plain("user", "Thanks.")],
        ),
    ] {
        let first = match path {
            "/v1/messages" => message("user", &[text("Now.")]),
            _ => plain("user", "Now."),
        };
        server.provider.call_next("f", "{}");
        let mut history = vec![first];
        let session = pass(&server, path, &history).await.headers["turnwire-session"].clone();
        history.extend(results);
        history.push(begun);
        let rest = pass(&server, path, &history).await;
        assert_eq!(rest.headers["turnwire-session"], session, "{path}");
        let said = rest.body["content"][0]["text"].as_str();
        let said = said.or(rest.body["choices"][0]["message"]["content"].as_str());
        assert_eq!(said, Some(TEXT), "only what the model adds: {}", rest.body);
        // The same request again, after its answer was lost.
        let count = server.provider.count();
        let body = request(path, &history);
        let again = server.post(path, &[("x-stainless-retry-count", "1")], &body).await;
        let content = |body: &Value| [body["content"].clone(), body["choices"].clone()];
        assert_eq!(content(&again.body), content(&rest.body));
        assert_eq!(server.provider.count(), count);

        history.pop();
        history.extend(next);
        assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);
    }
}

#[tokio::test]
async fn what_a_client_adds_to_an_answer_reaches_a_model_of_its_protocol() {
    let server = TestServer::new().await;
    let plain = |role: &str, text: &str| json!({"role": role, "content": text});
    // The package `openai` adds `parsed`.
    let parsed = json!({"role": "assistant", "content": TEXT, "parsed": {"a": "b"}, "name": "bob"});
    let path = "/v1/chat/completions";
    let mut history = vec![plain("user", "One.")];
    let session = pass(&server, path, &history).await.headers["turnwire-session"].clone();
    for turn in ["Two.", "Three.", "Four."] {
        history.extend([parsed.clone(), plain("user", turn)]);
        assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);
    }
    // Another protocol has no such field.
    let body = json!({"model": "messages", "messages": history});
    assert_eq!(server.post(path, &[], &body).await.status, 200);
    assert!(!server.provider.last().body.to_string().contains("parsed"));
}

#[tokio::test]
async fn reasoning_that_only_the_client_has_reaches_the_model() {
    let server = TestServer::new().await;
    let path = "/v1/messages";
    let thinking = |text: &str| json!({"type": "thinking", "thinking": text, "signature": "s"});
    let call = json!({"type": "tool_use", "id": "toolu_Xa81kQz", "name": "f", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_Xa81kQz", "content": "a"});
    let mut history = vec![message("user", &[text("One.")])];
    let session = pass(&server, path, &history).await.headers["turnwire-session"].clone();
    server.provider.call_next("f", "{}");
    history.push(message("assistant", &[thinking("First"), text(TEXT)]));
    history.push(message("user", &[text("Two.")]));
    assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);
    history.push(message("assistant", &[thinking("Then"), call]));
    history.push(message("user", &[result]));
    assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);
    history.push(message("assistant", &[thinking("Last"), text(TEXT)]));
    history.push(message("user", &[text("Three.")]));
    assert_eq!(pass(&server, path, &history).await.headers["turnwire-session"], session);
}

#[tokio::test]
async fn what_a_client_adds_to_an_answer_that_its_session_does_not_have_reaches_nobody() {
    let server = TestServer::new().await;
    let path = "/v1/messages";
    let user = |words: &str| message("user", &[text(words)]);
    let first = pass(&server, path, &[user("One.")]).await;
    let session = [("turnwire-session", first.headers["turnwire-session"].to_str().unwrap())];
    let thinking = json!({"type": "thinking", "thinking": "A pony!", "signature": "s"});
    let claimed = message("assistant", &[thinking, text("I promise you a pony.")]);
    let body = request(path, &[user("One."), claimed, user("Two.")]);
    let answer = server.post(path, &session, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answered = message("assistant", &[text(TEXT)]);
    let seen = &server.provider.last().body["messages"];
    assert_eq!(*seen, json!([user("One."), answered, user("Two.")]));
}
