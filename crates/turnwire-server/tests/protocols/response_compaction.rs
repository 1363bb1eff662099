//! `POST /v1/responses/compact`, and compaction items as input.

use crate::open_responses::user;
use crate::response_socket::SocketServer;
use crate::responses::TestServer;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

fn assistant(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": text})
}

/// Checks a compacted conversation, and returns its output.
fn output_of(compacted: &Value) -> Vec<Value> {
    assert_eq!(compacted["object"], "response.compaction", "{compacted}");
    assert!(compacted["id"].is_string() && compacted["created_at"].is_i64(), "{compacted}");
    let usage = &compacted["usage"];
    for count in [
        &usage["input_tokens"],
        &usage["output_tokens"],
        &usage["total_tokens"],
        &usage["input_tokens_details"]["cached_tokens"],
        &usage["output_tokens_details"]["reasoning_tokens"],
    ] {
        assert!(count.is_u64(), "{usage}");
    }
    let output = compacted["output"].as_array().unwrap().clone();
    let (item, said) = output.split_last().unwrap();
    assert_eq!(item["type"], "compaction");
    assert!(item["id"].is_string() && item["encrypted_content"].is_string(), "{item}");
    for message in said {
        assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("user")));
        assert!(message["id"].is_string() && message["status"] == "completed", "{message}");
    }
    output
}

fn texts(output: &[Value]) -> Vec<&str> {
    output.iter().filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

async fn compact(server: &TestServer, body: Value) -> Vec<Value> {
    let answer = server.post("/v1/responses/compact", body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    output_of(&answer.json())
}

#[tokio::test]
async fn a_conversation_becomes_its_user_messages_and_a_summary() {
    let server = TestServer::new();
    let body = json!({"model": "demo", "prompt_cache_key": "k", "input": [
        user("We launch on Tuesday."), assistant("Noted."), user("Support first."),
    ]});
    let output = compact(&server, body).await;
    assert_eq!(texts(&output), ["We launch on Tuesday.", "Support first."]);
    assert_eq!(server.sessions().await, 0, "nothing is stored");

    // The client goes on with it, without the rest of its history.
    let input = [output, vec![user("When do we launch?")]].concat();
    let first = server.create(&json!({"model": "demo", "input": input})).await.json();
    assert_eq!(first["status"], "completed", "{first}");
    let path = format!("/v1/responses/{}/input_items?order=asc", first["id"].as_str().unwrap());
    let list = server.get(&path).await.json();
    let items = list["data"].as_array().unwrap();
    let said = texts(items);
    assert_eq!(
        [said[0], said[1], said[3]],
        ["We launch on Tuesday.", "Support first.", "When do we launch?"]
    );
    assert!(
        said[2].starts_with("What was said before, in short:") && said[2].contains("Noted."),
        "{said:?}"
    );

    // Its next request continues the session.
    let answer = first["output"].as_array().unwrap().clone();
    let input = [input, answer, vec![user("And then?")]].concat();
    let second = server.create(&json!({"model": "demo", "input": input})).await.json();
    assert_eq!(second["status"], "completed", "{second}");
    assert_eq!(server.sessions().await, 1);

    // Compacted again: the earlier summary is part of the new one.
    let again = json!({"model": "demo", "previous_response_id": second["id"]});
    let output = compact(&server, again).await;
    assert_eq!(
        texts(&output),
        ["We launch on Tuesday.", "Support first.", "When do we launch?", "And then?"]
    );
    // Up to a response, and with something new.
    let branch = json!({"model": "demo", "previous_response_id": first["id"], "input": "Wait."});
    assert_eq!(texts(&compact(&server, branch).await).last(), Some(&"Wait."));
    assert_eq!(server.sessions().await, 1);
}

#[tokio::test]
async fn what_cannot_be_compacted_is_refused() {
    let server = TestServer::new();
    for (body, status) in [
        (json!({"input": [user("Compact this.")]}), 400),
        (json!({"model": "demo"}), 400),
        (json!({"model": "demo", "input": []}), 400),
        (json!({"model": "demo", "input": 7}), 400),
        (json!({"model": "nobody", "input": "x"}), 404),
        (json!({"model": "demo", "previous_response_id": "resp_a~b"}), 400),
        (json!([]), 400),
    ] {
        let answer = server.post("/v1/responses/compact", body.to_string()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
    }
    // An agent that cannot summarize.
    let server = SocketServer::new("");
    let body = json!({"model": "endless", "input": "x"});
    let (status, answer) = server.ask("POST", "/v1/responses/compact", &body).await;
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("no_summary")));
    server.stop().await;
}

#[tokio::test]
async fn only_whole_items_are_taken_and_they_name_no_session() {
    let server = TestServer::new();
    let secret = json!({"model": "demo", "input": "the secret of somebody else"});
    let other = server.create(&secret).await.json();
    let with = |content: &str| {
        let item = json!({"type": "compaction", "id": "cmp_x", "encrypted_content": content});
        json!({"model": "demo", "input": [item, user("go on")]})
    };
    let ours =
        |json: &Value| format!("turnwire.1.{}", BASE64_URL_SAFE_NO_PAD.encode(json.to_string()));
    for content in
        ["turnwire.1.".to_owned(), "turnwire.1.!".to_owned(), ours(&json!([])), ours(&json!({}))]
    {
        let answer = server.create(&with(&content)).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, "invalid_request".to_owned()));
    }
    assert_eq!(server.sessions().await, 1);
    // Whatever else is in it says nothing.
    let forged =
        json!({"summary": "x", "session": other["id"], "previous_response_id": other["id"]});
    let answer = server.create(&with(&ours(&forged))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(server.sessions().await, 2, "a session of its own");
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let list = server.get(&format!("/v1/responses/{id}/input_items")).await;
    assert!(!list.text.contains("secret"), "{}", list.text);
    // The item of a provider is passed on as it is.
    assert_eq!(server.create(&with("gAAAA")).await.status, 200);
}

#[tokio::test]
async fn a_compacted_conversation_goes_on_over_a_websocket() {
    let server = SocketServer::new("");
    let body = json!({"model": "demo", "input": [user("The word is slate."), assistant("OK.")]});
    let (status, compacted) = server.ask("POST", "/v1/responses/compact", &body).await;
    assert_eq!(status, 200, "{compacted}");
    let input = [output_of(&compacted), vec![user("Go on.")]].concat();
    let mut client = server.open().await;
    let response = client.create(json!({"input": input, "store": false, "tools": []})).await;
    assert!(!response["output"].as_array().unwrap().is_empty(), "{response}");
    server.stop().await;
}
