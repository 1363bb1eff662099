//! Content of messages that only some models read: files by their id, recordings, images.

use crate::options::{Answer, TestServer};
use serde_json::{Value, json};

const WAV: &str = "UklGRiQAAABXQVZF";

/// A wire: its agent, its path, and a user message with these parts.
struct Client {
    agent: &'static str,
    path: &'static str,
    field: &'static str,
    text: fn(&str) -> Value,
    file: fn(&str) -> Value,
}

const CLIENTS: [Client; 3] = [
    Client {
        agent: "chat",
        path: "/v1/chat/completions",
        field: "messages",
        text: |text| json!({"type": "text", "text": text}),
        file: |id| json!({"type": "file", "file": {"file_id": id}}),
    },
    Client {
        agent: "responses",
        path: "/v1/responses",
        field: "input",
        text: |text| json!({"type": "input_text", "text": text}),
        file: |id| json!({"type": "input_file", "file_id": id}),
    },
    Client {
        agent: "messages",
        path: "/v1/messages",
        field: "messages",
        text: |text| json!({"type": "text", "text": text}),
        file: |id| json!({"type": "document", "source": {"type": "file", "file_id": id}}),
    },
];

impl Client {
    fn user(&self, text: &str, file: &str) -> Value {
        json!({"role": "user", "content": [(self.text)(text), (self.file)(file)]})
    }

    async fn ask(&self, server: &TestServer, agent: &str, messages: &[Value]) -> Answer {
        let mut body = json!({"model": agent, "max_tokens": 100});
        body[self.field] = json!(messages);
        server.post(self.path, &[], &body).await
    }

    fn answer(&self, answer: &Answer) -> Value {
        match self.agent {
            "chat" => answer.body["choices"][0]["message"].clone(),
            "responses" => answer.body["output"][0].clone(),
            _ => json!({"role": "assistant", "content": answer.body["content"]}),
        }
    }
}

#[tokio::test]
async fn a_file_by_its_id_reaches_a_model_of_the_same_protocol_and_is_part_of_the_history() {
    for client in CLIENTS {
        let server = TestServer::new().await;
        let history = [client.user("Read.", "file_1")];
        let first = client.ask(&server, client.agent, &history).await;
        assert_eq!(first.status, 200, "{}", first.body);
        let seen = server.provider.last().body[client.field][0]["content"].clone();
        assert_eq!(seen, history[0]["content"], "{}", client.agent);

        let [question] = history;
        let next = [question, client.answer(&first), client.user("And this?", "file_2")];
        let second = client.ask(&server, client.agent, &next).await;
        assert_eq!(second.headers["turnwire-session"], first.headers["turnwire-session"]);

        // Another file with the same text is another conversation.
        let [_, answer, last] = next;
        let other = [client.user("Read.", "file_3"), answer, last];
        let other = client.ask(&server, client.agent, &other).await;
        assert_eq!(other.status, 200, "{}", other.body);
        assert_ne!(other.headers["turnwire-session"], first.headers["turnwire-session"]);
        let seen = server.provider.last().body[client.field][0]["content"].clone();
        assert_eq!(seen[1], (client.file)("file_3"), "{}", client.agent);
    }
}

#[tokio::test]
async fn a_file_by_its_id_is_refused_where_the_model_cannot_read_it() {
    let server = TestServer::new().await;
    for (client, agent) in CLIENTS.iter().zip(["messages", "chat", "responses"]) {
        let answer = client.ask(&server, agent, &[client.user("Read.", "file_1")]).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        let message = answer.body["error"]["message"].as_str().unwrap();
        assert!(message.contains("names a file by its id"), "{message}");
    }
    assert_eq!(server.provider.count(), 0);
}

#[tokio::test]
async fn a_file_in_a_tool_result_reaches_a_model_of_the_same_protocol() {
    let server = TestServer::new().await;
    let call =
        json!({"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "call_1",
        "output": [{"type": "input_file", "file_id": "file_1"}]});
    let input = json!([{"role": "user", "content": "Hi!"}, call, output, {"role": "user", "content": "And?"}]);
    let answer =
        server.post("/v1/responses", &[], &json!({"model": "responses", "input": input})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(server.provider.last().body["input"][2]["output"], output["output"]);
}

#[tokio::test]
async fn content_that_the_model_does_not_get_is_named() {
    let server = TestServer::new().await;
    let audio = json!({"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}});
    let content = json!([{"type": "text", "text": "Hear."}, audio, audio]);
    let body =
        json!({"model": "messages", "messages": [{"role": "user", "content": content}], "seed": 3});
    let answer = server.post("/v1/chat/completions", &[], &body).await;
    assert_eq!(answer.headers["turnwire-ignored-options"], "seed, content.audio");
    assert_eq!(answer.body["ignored_options"], json!(["seed", "content.audio"]));
    assert!(server.provider.last().body.to_string().contains("was left out"));

    let body = json!({"model": "chat", "messages": [{"role": "user", "content": content}]});
    let answer = server.post("/v1/chat/completions", &[], &body).await;
    assert!(!answer.headers.contains_key("turnwire-ignored-options"));

    let pdf = json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="});
    let body = json!({"model": "ollama", "input": [{"role": "user", "content": [pdf]}]});
    let answer = server.post("/v1/responses", &[], &body).await;
    assert_eq!(answer.body["ignored_options"], json!(["content.file"]));

    let video = json!({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}});
    let body = json!({"model": "messages", "messages": [{"role": "user", "content": [{"type": "text", "text": "See."}, video]}]});
    let answer = server.post("/v1/chat/completions", &[], &body).await;
    assert_eq!(answer.body["ignored_options"], json!(["content.video_url"]), "{}", answer.body);
}

#[tokio::test]
async fn an_ai_sdk_response_names_what_the_model_does_not_get() {
    let server = TestServer::new().await;
    let file = json!({"type": "file", "mediaType": "audio/wav", "url": format!("data:audio/wav;base64,{WAV}")});
    let message =
        json!({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hear."}, file]});
    let body = json!({"id": "chat1", "trigger": "submit-message", "messages": [message]});
    let answer = server.post("/ai-sdk/messages", &[], &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["turnwire-ignored-options"], "content.audio");
    let body = json!({"threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "u1", "role": "user", "content": [{"type": "text", "text": "Hear."},
            {"type": "binary", "mimeType": "audio/wav", "data": WAV}]}]});
    let answer = server.post("/ag-ui/messages", &[], &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["turnwire-ignored-options"], "content.audio");
}

#[tokio::test]
async fn phases_of_messages_reach_a_model_of_the_same_protocol() {
    let server = TestServer::new().await;
    let said = |phase: &str, text: &str| json!({"type": "message", "role": "assistant", "phase": phase, "content": [{"type": "output_text", "text": text}]});
    let user = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say it again."}]});
    let input =
        json!([said("commentary", "I look it up."), said("final_answer", "It is four."), user]);
    let body = json!({"model": "responses", "input": input});
    let answer = server.post("/v1/responses", &[], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(server.provider.last().body["input"], input);
}
