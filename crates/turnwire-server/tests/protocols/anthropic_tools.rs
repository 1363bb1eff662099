//! Tools that Anthropic defines: those that the client executes, and answers in which the provider pauses.

use crate::options::{Answer, TestServer};
use serde_json::{Value, json};

async fn ask(server: &TestServer, messages: &Value, tools: &Value) -> Answer {
    let body =
        json!({"model": "messages", "max_tokens": 100, "messages": messages, "tools": tools});
    let answer = server.post("/v1/messages", &[], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
}

fn message(role: &str, content: &Value) -> Value {
    json!({"role": role, "content": content})
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

#[tokio::test]
async fn a_client_executes_calls_of_the_tools_that_anthropic_defines() {
    let server = TestServer::new().await;
    let shot = json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]);
    for (tool, input, result) in [
        (json!({"type": "bash_20250124", "name": "bash"}), r#"{"command":"ls"}"#, json!("a.txt")),
        (
            json!({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 900}),
            r#"{"command":"view","path":"a.txt"}"#,
            json!([{"type": "text", "text": "1: a"}]),
        ),
        (
            json!({"type": "computer_20250124", "name": "computer", "display_width_px": 800, "display_height_px": 600}),
            r#"{"action":"screenshot"}"#,
            shot,
        ),
        (
            json!({"type": "memory_20250818", "name": "memory"}),
            r#"{"command":"view","path":"/memories"}"#,
            json!("empty"),
        ),
    ] {
        let tools = json!([tool]);
        let name: &'static str = tool["name"].as_str().unwrap().to_owned().leak();
        server.provider.call_next(name, input);
        let question = message("user", &text(&format!("Use {name}.")));
        let first = ask(&server, &json!([question]), &tools).await;
        assert_eq!(server.provider.last().body["tools"], tools);
        let call = &first.body["content"][0];
        let input: Value = serde_json::from_str(input).unwrap();
        assert_eq!((&call["name"], &call["input"]), (&json!(name), &input), "{}", first.body);
        assert_eq!(first.body["stop_reason"], "tool_use");
        let result = json!([{"type": "tool_result", "tool_use_id": call["id"], "content": result}]);
        let messages =
            json!([question, message("assistant", &json!([call])), message("user", &result)]);
        let second = ask(&server, &messages, &tools).await;
        assert_eq!(second.headers["turnwire-session"], first.headers["turnwire-session"]);
        assert_eq!(server.provider.last().body["messages"], messages);
    }
}

#[tokio::test]
async fn an_answer_in_which_the_provider_pauses_goes_on_in_its_session() {
    let call = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}});
    let result =
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []});
    let tools = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    for paused in [
        json!([call]),
        json!([{"type": "text", "text": "I search."}, call]),
        json!([{"type": "text", "text": "I search."}, call, result]),
    ] {
        let server = TestServer::new().await;
        let script = json!({"content": paused, "stop_reason": "pause_turn"});
        server.provider.call_next("answer", script.to_string().leak());
        let question = message("user", &text("Search!"));
        let first = ask(&server, &json!([question]), &tools).await;
        assert_eq!(first.body["content"], paused);
        assert_eq!(first.body["stop_reason"], "pause_turn");

        // The client sends the answer back as it is.
        let mut messages = vec![question, message("assistant", &first.body["content"].clone())];
        let second = ask(&server, &json!(messages), &tools).await;
        assert_eq!(server.provider.last().body["messages"], json!(messages));
        let session = first.headers["turnwire-session"].clone();
        assert_eq!(second.headers["turnwire-session"], session, "{paused}");
        assert_eq!(second.body["content"], text(r#"{"a":"b"}"#));

        // And goes on after the rest, in one message.
        let mut whole = paused.as_array().unwrap().clone();
        whole.extend(second.body["content"].as_array().unwrap().clone());
        messages[1] = message("assistant", &json!(whole));
        messages.push(message("user", &text("Thanks.")));
        let third = ask(&server, &json!(messages), &tools).await;
        assert_eq!(third.headers["turnwire-session"], session, "{paused}");
        assert_eq!(server.provider.last().body["messages"].as_array().unwrap().len(), 3);
        assert_eq!(server.provider.count(), 3);
    }
}
