//! `/v1/conversations`, and `conversation` in a request for a response.

use crate::responses::TestServer;
use serde_json::{Value, json};

async fn create(server: &TestServer, body: &Value) -> String {
    let answer = server.post("/v1/conversations", body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_conversation_is_a_session() {
    let server = TestServer::new();
    let id = create(&server, &json!({"model": "demo", "metadata": {"topic": "tea"}})).await;
    let session = id.strip_prefix("conv_").unwrap();
    let path = format!("/v1/conversations/{id}");
    let seen = server.get(&path).await.json();
    assert_eq!(
        (&seen["object"], &seen["metadata"]),
        (&json!("conversation"), &json!({"topic": "tea"}))
    );

    let body = |input: &str, conversation: Value| json!({"model": "demo", "input": input, "conversation": conversation});
    let first = server.create(&body("hello", json!(id))).await.json();
    let second = server.create(&body("again", json!({"id": id}))).await.json();
    for response in [&first, &second] {
        let expected = format!("resp_{session}~");
        assert!(response["id"].as_str().unwrap().starts_with(&expected), "{response}");
    }
    assert_eq!(server.sessions().await, 1);

    let list = server.get(&format!("{path}/items?order=asc")).await.json();
    let items = list["data"].as_array().unwrap();
    let said: Vec<&str> = items
        .iter()
        .filter(|item| item["role"] == "user")
        .map(|item| item["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["hello", "again"]);
    assert!(items.iter().any(|item| item["role"] == "assistant"), "{list}");
    let page = server.get(&format!("{path}/items?limit=1")).await.json();
    assert_eq!((&page["data"][0], &page["has_more"]), (items.last().unwrap(), &json!(true)));

    let deleted = server.delete(&path).await.json();
    assert_eq!(deleted, json!({"id": id, "object": "conversation.deleted", "deleted": true}));
    assert_eq!(server.sessions().await, 0);
    for answer in [
        server.get(&path).await,
        server.get(&format!("{path}/items")).await,
        server.delete(&path).await,
        server.create(&body("x", json!(id))).await,
    ] {
        assert_eq!(answer.code(), "conversation_not_found", "{}", answer.text);
        assert_eq!(answer.status, 404);
    }
}

#[tokio::test]
async fn a_conversation_that_does_not_fit_is_refused() {
    let server = TestServer::new();
    let id = create(&server, &json!({"model": "demo"})).await;
    let made =
        server.create(&json!({"model": "demo", "input": "hello", "conversation": id})).await.json();
    let both = json!({"model": "demo", "input": "x", "conversation": id, "previous_response_id": made["id"]});
    assert_eq!(server.create(&both).await.status, 400);
    let twin = json!({"model": "twin", "input": "x", "conversation": id});
    assert_eq!(server.create(&twin).await.code(), "wrong_agent");
    let named = json!({"model": "demo", "input": "x", "conversation": id});
    assert_eq!(server.create_in("other", &named).await.status, 400);
    for wrong in [json!("conv_nobody"), json!("nobody"), json!("conv_a/b"), json!("")] {
        let body = json!({"model": "demo", "input": "x", "conversation": wrong});
        assert_eq!(server.create(&body).await.code(), "conversation_not_found", "{wrong}");
    }
    for wrong in [json!(7), json!({}), json!({"id": 7}), json!([])] {
        let body = json!({"model": "demo", "input": "x", "conversation": wrong});
        assert_eq!(server.create(&body).await.status, 400, "{wrong}");
    }
    for body in [json!({"items": [{"role": "user", "content": "x"}]}), json!({"metadata": 7})] {
        let answer = server.post("/v1/conversations", body.to_string()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
    }
    let unknown = server.post("/v1/conversations", json!({"model": "nobody"}).to_string()).await;
    assert_eq!((unknown.status.as_u16(), server.sessions().await), (404, 1));
}
