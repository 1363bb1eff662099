//! JSON Schemas and tools that cost too much, on every route that takes them: each gets a 4xx in the words
//! of its protocol, and nothing is stored.

use crate::harness::TestServer;
use serde_json::{Value, json};
use turnwire_agent::ClientContext;
use turnwire_core::Msg;
use turnwire_log::store::{MessageQuery, SessionStatus};
use turnwire_server::turns::retry::edit;
use turnwire_testkit::values;

fn doubling_schema() -> Value {
    serde_json::from_str(&values::doubling_schema()).unwrap()
}

fn bad_schemas() -> Vec<Value> {
    vec![
        doubling_schema(),
        json!({"type": "object", "properties": {"x": {"pattern": "(a{1000}){1000}"}}}),
        json!({"type": "object", "description": "x".repeat(300 << 10)}),
        json!({"type": "object", "properties": {"x": {"type": "nothing"}}}),
        json!({"$ref": "http://127.0.0.1:1/elsewhere"}),
    ]
}

/// Tools that are too many, too large, or too deep.
fn bad_tools() -> Vec<Vec<(String, Value)>> {
    let small = json!({"type": "object"});
    let deep = (0..110).fold(small.clone(), |inner, _| json!({"not": inner}));
    let large = json!({"type": "object", "description": "x".repeat(70 << 10)});
    vec![
        (0..300).map(|at| (format!("tool{at}"), small.clone())).collect(),
        vec![("large".to_owned(), large)],
        vec![("deep".to_owned(), deep)],
    ]
}

/// The bodies of a protocol's requests with something bad in each.
fn bodies(path: &str) -> Vec<Value> {
    let words = json!([{"id": "m", "role": "user", "content": "hi"}]);
    let schemas = bad_schemas();
    let tools = bad_tools();
    let with_schema: Vec<Value> = match path {
        "/v1/chat/completions" => schemas
            .into_iter()
            .map(|schema| {
                json!({"model": "demo", "messages": words, "response_format":
                    {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
            })
            .collect(),
        "/v1/messages" => schemas
            .into_iter()
            .map(|schema| {
                json!({"model": "demo", "max_tokens": 9, "messages": words, "output_config":
                    {"format": {"type": "json_schema", "schema": schema}}})
            })
            .collect(),
        "/v1/responses" => schemas
            .into_iter()
            .map(|schema| {
                json!({"model": "demo", "input": "hi", "text":
                    {"format": {"type": "json_schema", "name": "x", "schema": schema}}})
            })
            .collect(),
        _ => Vec::new(),
    };
    let with_tools = tools.into_iter().map(|tools| {
        let list = |tool: &dyn Fn(&str, &Value) -> Value| -> Value {
            tools.iter().map(|(name, schema)| tool(name, schema)).collect()
        };
        match path {
            "/v1/chat/completions" => json!({"model": "demo", "messages": words, "tools":
                list(&|name, schema| json!({"type": "function", "function":
                    {"name": name, "parameters": schema}}))}),
            "/v1/messages" => json!({"model": "demo", "max_tokens": 9, "messages": words, "tools":
                list(&|name, schema| json!({"name": name, "input_schema": schema}))}),
            "/v1/responses" => json!({"model": "demo", "input": "hi", "tools":
                list(&|name, schema| json!({"type": "function", "name": name,
                    "parameters": schema}))}),
            _ => {
                json!({"threadId": "t", "runId": "r", "messages": words, "state": {}, "context": [],
                "forwardedProps": {}, "tools": list(&|name, schema|
                    json!({"name": name, "description": "", "parameters": schema}))})
            }
        }
    });
    with_schema.into_iter().chain(with_tools).collect()
}

#[tokio::test]
async fn what_costs_too_much_is_refused_in_the_words_of_each_protocol_and_makes_no_session() {
    for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/ag-ui/demo"] {
        let server = TestServer::new(path);
        let bodies = bodies(path);
        assert!(bodies.len() >= 3);
        for body in bodies {
            let answer = server.ask(&[], &body).await;
            assert!(
                (400..500).contains(&answer.status),
                "{path}: {} {}",
                answer.status,
                answer.text
            );
            assert!(
                answer.error_message().contains("nothing was stored"),
                "{path}: {}",
                answer.text
            );
        }
        assert_eq!(server.sessions().await, 0, "{path}");
    }
}

#[tokio::test]
async fn a_message_that_brings_a_schema_in_its_metadata_is_refused() {
    let server = TestServer::new("/v1/sessions/s/messages");
    server.begin("s", "demo", "hi").await;
    let path = "/v1/sessions/s/messages";
    for schema in bad_schemas() {
        let message = json!({"role": "user", "name": "ann", "content": "hi",
            "metadata": {"client": {"output_schema": schema}}});
        for queue in ["", "?queue=true"] {
            let answer =
                server.send("all", &format!("{path}{queue}"), &[], message.to_string()).await;
            assert_eq!(answer.status, 422, "{}", answer.text);
            let kind = answer.body["error"]["type"].as_str().unwrap();
            assert!(matches!(kind, "schema_too_large" | "invalid_schema"), "{kind}");
        }
    }
}

#[tokio::test]
async fn an_ordinary_schema_is_taken() {
    let server = TestServer::new("/v1/chat/completions");
    let schema = json!({"type": "object", "required": ["children"], "properties":
        {"children": {"type": "array", "items": {"$ref": "#"}}}});
    let body = json!({"model": "demo", "messages": [{"role": "user", "content": "hi"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
    let answer = server.ask(&[], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn other_words_with_a_schema_that_costs_too_much_are_refused() {
    let server = TestServer::new("/v1/sessions/s/messages");
    server.begin("s", "demo", "hi").await;
    let session = server.session("s").await;
    session.watch_head().wait_for(|head| head.status == SessionStatus::Idle).await.unwrap();
    let before = session.head_state().head;
    let offer =
        ClientContext { output_schema: Some(doubling_schema().into()), ..ClientContext::default() };
    let words = offer.attach_to(Msg::user("ann", "other words"));
    let query = MessageQuery { limit: 9, ..MessageQuery::default() };
    let first = session.list_messages(&query).await.unwrap()[0].id.clone();
    let refused = edit(&server.app, &session, &first, words, None).await.unwrap_err();
    assert!(refused.to_string().contains("nothing was stored"), "{refused}");
    assert_eq!(session.head_state().head, before);
}

#[tokio::test]
async fn an_ai_sdk_message_with_a_schema_in_its_metadata_makes_no_session() {
    let server = TestServer::new("/ai-sdk/demo");
    let body = json!({"id": "c", "trigger": "submit-message", "messages": [{"id": "m", "role": "user",
        "parts": [{"type": "text", "text": "hi"}],
        "metadata": {"turnwire": {"client": {"output_schema": doubling_schema()}},
            "client": {"output_schema": doubling_schema()}}}]});
    let answer = server.ask(&[], &body).await;
    // Either the protocol has no place for it, or it is refused.
    if answer.status == 200 {
        let reply = server.session("c").await;
        let stored =
            reply.list_messages(&MessageQuery { limit: 9, ..MessageQuery::default() }).await;
        assert!(
            stored
                .unwrap()
                .iter()
                .all(|message| { !String::from_utf8_lossy(&message.json).contains("$defs") })
        );
    } else {
        assert_eq!((answer.status, server.sessions().await), (422, 0), "{}", answer.text);
    }
}
