//! One agent, on every wire.

use crate::fake_provider::{FakeProvider, text};
use crate::harness::{TestServer, friday_settings};
use serde_json::{Value, json};

#[tokio::test]
async fn an_agent_is_reachable_on_every_wire() {
    let provider = FakeProvider::start(|_| text("Forty-two.")).await;
    let server = TestServer::start(&friday_settings(&provider, ""));
    let user = json!([{"role": "user", "content": "The answer?"}]);
    let ag_ui = json!({"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [],
        "forwardedProps": {}, "messages": [{"id": "m", "role": "user", "content": "The answer?"}]});
    let ai_sdk = json!({"id": "chat", "messages": [{"id": "m2", "role": "user",
        "parts": [{"type": "text", "text": "The answer?"}]}], "trigger": "submit-message"});
    let request: [(&str, Value); 5] = [
        ("/v1/chat/completions", json!({"model": "friday", "messages": user})),
        ("/v1/responses", json!({"model": "friday", "input": "The answer?"})),
        ("/v1/messages", json!({"model": "friday", "max_tokens": 100, "messages": user})),
        ("/ag-ui/friday", ag_ui),
        ("/ai-sdk/friday", ai_sdk),
    ];
    for (index, (path, body)) in request.into_iter().enumerate() {
        let answer = server.post(path, body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(answer.text().contains("Forty-two."), "{path}: {}", answer.text());
        assert_eq!(provider.requests().len(), index + 1, "{path}");
        let sent = &provider.requests()[index].body["messages"];
        assert_eq!(
            (&sent[0]["content"], &sent[1]["content"]),
            (&json!("You are Friday."), &json!("The answer?")),
            "{path}"
        );
    }
    // A conversation on one wire is a session on the others.
    for wire in ["turnwire", "agentscope", "agentscope-java", "blocks", "ag-ui"] {
        let path = format!("/v1/sessions/t/events?wire={wire}&until=idle");
        let answer = server.request("GET", &path, &Value::Null).await;
        assert!(answer.text().contains("Forty-two."), "{wire}: {}", answer.text());
    }
}
