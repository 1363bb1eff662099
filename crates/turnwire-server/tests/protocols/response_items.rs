//! The input of a response, deleting a response, and the tokens of a request.

use crate::responses::{TestServer, output};
use serde_json::{Value, json};
use turnwire_log::store::MessageQuery;

fn texts(list: &Value) -> Vec<&str> {
    let items = list["data"].as_array().unwrap().iter();
    items.map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

async fn items(server: &TestServer, id: &Value, query: &str) -> Value {
    let answer =
        server.get(&format!("/v1/responses/{}/input_items{query}", id.as_str().unwrap())).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn the_input_of_a_response_is_what_it_answers() {
    let server = TestServer::new();
    let input = json!([
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]);
    let first = server.create(&json!({"model": "demo", "input": input})).await.json();
    let list = items(&server, &first["id"], "?order=asc").await;
    assert_eq!(texts(&list), ["one", "two", "three"]);
    assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
    let ids: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!((list["first_id"].as_str(), list["last_id"].as_str()), (Some(ids[0]), Some(ids[2])));
    let page = items(&server, &first["id"], "?limit=2").await;
    assert_eq!((texts(&page), &page["has_more"]), (vec!["three", "two"], &json!(true)));
    let query = format!("?limit=2&after={}", page["last_id"].as_str().unwrap());
    assert_eq!(texts(&items(&server, &first["id"], &query).await), ["one"]);

    let body = json!({"model": "demo", "input": "four", "previous_response_id": first["id"]});
    let second = server.create(&body).await.json();
    assert_eq!(texts(&items(&server, &second["id"], "").await), ["four"]);

    for query in ["?limit=0", "?limit=101", "?order=up", "?after=nobody"] {
        let path = format!("/v1/responses/{}/input_items{query}", first["id"].as_str().unwrap());
        assert_eq!(server.get(&path).await.status, 400, "{query}");
    }
    let unknown = server.get("/v1/responses/resp_s~r/input_items").await;
    assert_eq!((unknown.status.as_u16(), unknown.code().as_str()), (404, "response_not_found"));
}

#[tokio::test]
async fn the_input_of_a_response_after_tool_results_are_the_results() {
    let server = TestServer::new();
    server.calls("s", "r", &["a", "b"]).await;
    let body = json!({"model": "demo", "input": [output("a"), output("b")], "background": true});
    let next = server.create_in("s", &body).await.json();
    let list = items(&server, &next["id"], "?order=asc").await;
    let found: Vec<(&str, &str)> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["type"].as_str().unwrap(), item["call_id"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [("function_call_output", "a"), ("function_call_output", "b")]);
}

#[tokio::test]
async fn a_retried_response_answers_the_same_message() {
    let server = TestServer::new();
    let made = server.create_in("s", &json!({"model": "demo", "input": "hello"})).await.json();
    let reply = made["id"].as_str().unwrap().trim_start_matches("resp_s~").to_owned();
    let retried = server.post(&format!("/v1/sessions/s/messages/{reply}/retry"), "").await.json();
    let again = json!(format!("resp_s~{}", retried["reply_id"].as_str().unwrap()));
    for id in [&made["id"], &again] {
        assert_eq!(texts(&items(&server, id, "").await), ["hello"], "{id}");
    }
}

#[tokio::test]
async fn a_deleted_response_is_gone_from_the_history() {
    let server = TestServer::new();
    let first = server.create_in("s", &json!({"model": "demo", "input": "hello"})).await.json();
    let body = json!({"model": "demo", "input": "again", "previous_response_id": first["id"]});
    let second = server.create(&body).await.json();
    let path = format!("/v1/responses/{}", second["id"].as_str().unwrap());
    let deleted = server.delete(&path).await.json();
    assert_eq!(deleted, json!({"id": second["id"], "object": "response", "deleted": true}));
    for answer in [
        server.get(&path).await,
        server.get(&format!("{path}?stream=true")).await,
        server.get(&format!("{path}/input_items")).await,
        server.post(&format!("{path}/cancel"), "").await,
        server.delete(&path).await,
    ] {
        assert_eq!(answer.code(), "response_not_found", "{}", answer.text);
    }
    let after = json!({"model": "demo", "input": "x", "previous_response_id": second["id"]});
    assert_eq!(server.create(&after).await.code(), "previous_response_not_found");
    let query = MessageQuery { limit: usize::MAX, ..MessageQuery::default() };
    let messages = server.session("s").await.list_messages(&query).await.unwrap();
    let left: Vec<bool> = messages.iter().map(|stored| !stored.superseded).collect();
    assert_eq!(left, [true, true, false, false, false]);
    // The response before it continues in the same session.
    let body = json!({"model": "demo", "input": "third", "previous_response_id": first["id"]});
    let third = server.create(&body).await.json();
    assert!(third["id"].as_str().unwrap().starts_with("resp_s~"), "{third}");
}

#[tokio::test]
async fn a_response_that_has_not_ended_is_not_deleted() {
    let server = TestServer::new();
    server.calls("s", "r", &["a"]).await;
    let refused = server.delete("/v1/responses/resp_s~r").await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (409, "busy"));
    assert_eq!(server.get("/v1/responses/resp_s~r").await.status, 200);
    assert_eq!(server.delete("/v1/responses/resp_s~nobody").await.status, 404);
}

#[tokio::test]
async fn tokens_are_estimated_and_nothing_is_stored() {
    let server = TestServer::new();
    let count = async |path: &str, body: Value| {
        let answer = server.post(path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["input_tokens"].as_u64().unwrap()
    };
    let path = "/v1/responses/input_tokens";
    let short = count(path, json!({"model": "demo", "input": "x".repeat(40)})).await;
    assert_eq!(short, 12, "a token for four bytes, and two for the block");
    let more = json!({"model": "demo", "input": "x".repeat(40), "instructions": "y".repeat(40),
        "tools": [{"type": "function", "name": "f", "description": "z".repeat(37), "parameters": {}}]});
    assert_eq!(count(path, more).await, 12 + 20);
    let messages = json!([{"role": "user", "content": "x".repeat(40)}]);
    let theirs = json!({"model": "demo", "messages": messages, "system": "y".repeat(40)});
    assert_eq!(count("/v1/messages/count_tokens", theirs).await, 24, "two blocks");
    assert_eq!(server.sessions().await, 0);

    let made = server.create(&json!({"model": "demo", "input": "hello"})).await.json();
    let next =
        json!({"model": "demo", "input": "x".repeat(40), "previous_response_id": made["id"]});
    assert!(count(path, next).await > short + 2);
    for path in [path, "/v1/messages/count_tokens"] {
        let body = json!({"model": "nobody", "input": "x", "messages": [{"role": "user", "content": "x"}]});
        assert_eq!(server.post(path, body.to_string()).await.status, 404, "{path}");
        assert_eq!(server.post(path, "{").await.status, 400, "{path}");
    }
}
