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
        assert_eq!(response["conversation"], json!({"id": id}));
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
    for body in [json!({"items": [{"role": "nobody", "content": "x"}]}), json!({"metadata": 7})] {
        let answer = server.post("/v1/conversations", body.to_string()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
    }
    let unknown = server.post("/v1/conversations", json!({"model": "nobody"}).to_string()).await;
    assert_eq!((unknown.status.as_u16(), server.sessions().await), (404, 1));
}

fn texts(list: &Value) -> Vec<(String, String)> {
    let items = list["data"].as_array().unwrap().iter();
    let read = |item: &Value| {
        let text = item["content"][0]["text"].as_str().or(item["output"].as_str());
        let role = item["role"].as_str().or(item["type"].as_str()).unwrap();
        (role.to_owned(), text.unwrap_or_default().to_owned())
    };
    items.map(read).collect()
}

fn pair(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[tokio::test]
async fn items_are_added_read_and_deleted() {
    let server = TestServer::new();
    let first = json!([{"type": "message", "role": "user", "content": "My name is Ann."}]);
    let id = create(&server, &json!({"model": "demo", "items": first})).await;
    let path = format!("/v1/conversations/{id}");
    let more = json!({"items": [
        {"role": "assistant", "content": "Hello Ann!"},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a tree"},
    ]});
    let added = server.post(&format!("{path}/items"), more.to_string()).await.json();
    assert_eq!((&added["object"], &added["has_more"]), (&json!("list"), &json!(false)));
    let list = server.get(&format!("{path}/items?order=asc")).await.json();
    let said = [
        pair("user", "My name is Ann."),
        pair("assistant", "Hello Ann!"),
        pair("system", "Be brief."),
        pair("user", "Look."),
        pair("function_call", ""),
        pair("function_call_output", "a tree"),
    ];
    assert_eq!(texts(&list), said);
    assert_eq!(texts(&added), said[1..]);

    for item in list["data"].as_array().unwrap() {
        let item_path = format!("{path}/items/{}", item["id"].as_str().unwrap());
        assert_eq!(server.get(&item_path).await.json(), *item);
    }
    // Two items of one message can only be deleted together.
    let id_of = |at: usize| list["data"][at]["id"].as_str().unwrap();
    let call = server.delete(&format!("{path}/items/{}", id_of(4))).await;
    assert_eq!((call.status.as_u16(), call.code()), (409, "item_not_deletable".to_owned()));
    let first = format!("{path}/items/{}", id_of(0));
    assert_eq!(server.delete(&first).await.json()["id"], id);
    for answer in [server.get(&first).await, server.delete(&first).await] {
        assert_eq!((answer.status.as_u16(), answer.code()), (404, "item_not_found".to_owned()));
    }
    let list = server.get(&format!("{path}/items?order=asc")).await.json();
    assert_eq!(texts(&list), said[1..]);

    // The next response has them before it.
    let body = json!({"model": "demo", "input": "hello", "conversation": id});
    assert_eq!(server.create(&body).await.json()["status"], "completed");
    let list = server.get(&format!("{path}/items?order=asc")).await.json();
    assert_eq!(texts(&list)[..6], [&said[1..], &[pair("user", "hello")]].concat());

    let update = json!({"metadata": {"topic": "trees"}}).to_string();
    assert_eq!(server.post(&path, update).await.json()["metadata"], json!({"topic": "trees"}));
    assert_eq!(server.get(&path).await.json()["metadata"], json!({"topic": "trees"}));
    assert_eq!(server.post(&path, "{}").await.status, 400);
}

#[tokio::test]
async fn items_that_cannot_be_added_are_refused_and_nothing_is_stored() {
    let server = TestServer::new();
    server.calls("waiting", "r", &["c1"]).await;
    let add = async |conversation: &str, items: Value| {
        let body = json!({"items": items}).to_string();
        server.post(&format!("/v1/conversations/{conversation}/items"), body).await
    };
    let user = json!({"role": "user", "content": "x"});
    let busy = add("conv_waiting", json!([user])).await;
    assert_eq!((busy.status.as_u16(), busy.code()), (409, "busy".to_owned()));
    assert_eq!(add("conv_nobody", json!([user])).await.code(), "conversation_not_found");

    let id = create(&server, &json!({"model": "demo"})).await;
    for (items, status) in [
        (json!([]), 400),
        (json!(vec![user.clone(); 21]), 400),
        (json!([user, {"role": "nobody", "content": "x"}]), 400),
        (json!([{"type": "item_reference", "id": "msg_nothing"}]), 404),
    ] {
        let answer = add(&id, items.clone()).await;
        assert_eq!(answer.status, status, "{items}: {}", answer.text);
    }
    let too_many = json!({"items": vec![user; 21]}).to_string();
    assert_eq!(server.post("/v1/conversations", too_many).await.status, 400);
    let list = server.get(&format!("/v1/conversations/{id}/items")).await.json();
    assert_eq!(list["data"], json!([]));
    assert_eq!(server.sessions().await, 2);
}
