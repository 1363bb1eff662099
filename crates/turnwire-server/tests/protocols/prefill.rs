//! Requests that end with the beginning of an answer, which the model continues.

use crate::options::TestServer;
use serde_json::{Value, json};

/// What the fake provider answers.
const REST: &str = r#"{"a":"b"}"#;

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

async fn ask(server: &TestServer, path: &str, agent: &str, messages: &[Value]) -> String {
    let key = if path == "/v1/responses" { "input" } else { "messages" };
    let body = json!({"model": agent, "max_tokens": 9, key: messages});
    let answer = server.post(path, &[], &body).await;
    assert_eq!(answer.status, 200, "{path} {agent}: {}", answer.body);
    answer.headers["turnwire-session"].to_str().unwrap().to_owned()
}

/// The roles and texts that the provider saw last.
fn seen(server: &TestServer) -> Vec<(String, String)> {
    let body = server.provider.last().body;
    let messages = body["messages"].as_array().or_else(|| body["input"].as_array()).unwrap();
    let text = |content: &Value| match content {
        Value::String(text) => text.clone(),
        parts => {
            let parts = parts.as_array().unwrap().iter();
            parts.map(|part| part["text"].as_str().unwrap()).collect::<Vec<_>>().join("|")
        }
    };
    let role = |message: &Value| message["role"].as_str().unwrap().to_owned();
    messages.iter().map(|message| (role(message), text(&message["content"]))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn the_model_continues_the_answer_that_the_client_begins() {
    let server = TestServer::new().await;
    let hi = said("user", "Hi!");
    let mut number = 0;
    for path in ["/v1/messages", "/v1/chat/completions"] {
        for agent in ["messages", "chat", "responses"] {
            for is_merged in [true, false] {
                number += 1;
                let begun = format!("Hello {number}, my");
                let first = [hi.clone(), said("assistant", &begun)];
                let session = ask(&server, path, agent, &first).await;
                assert_eq!(seen(&server), pairs(&[("user", "Hi!"), ("assistant", &begun)]));

                let whole = format!("{begun}{REST}");
                let answered = if is_merged {
                    vec![hi.clone(), said("assistant", &whole)]
                } else {
                    vec![hi.clone(), said("assistant", &begun), said("assistant", REST)]
                };
                let next = [answered, vec![said("user", "And?")]].concat();
                assert_eq!(ask(&server, path, agent, &next).await, session, "{path} {agent}");
                let expected = [("user", "Hi!"), ("assistant", &*whole), ("user", "And?")];
                assert_eq!(seen(&server), pairs(&expected), "{path} {agent}");
            }
        }
    }
}

#[tokio::test]
async fn a_later_turn_with_the_beginning_of_an_answer_continues_its_session() {
    let server = TestServer::new().await;
    let mut history = vec![said("user", "Hi!")];
    let session = ask(&server, "/v1/messages", "messages", &history).await;
    history.extend([said("assistant", REST), said("user", "And?"), said("assistant", "Well,")]);
    assert_eq!(ask(&server, "/v1/messages", "messages", &history).await, session);
    let expected = [("user", "Hi!"), ("assistant", REST), ("user", "And?"), ("assistant", "Well,")];
    assert_eq!(seen(&server), pairs(&expected));

    // Another answer to the same: a retry.
    let count = server.provider.count();
    let mut other = json!({"model": "messages", "max_tokens": 10, "messages": history});
    let answer = server.post("/v1/messages", &[], &other).await;
    assert_eq!(answer.headers["turnwire-session"], session.as_str());
    assert_eq!((server.provider.count(), seen(&server)), (count + 1, pairs(&expected)));

    // Another beginning: a branch.
    other["messages"][3]["content"] = "So,".into();
    let answer = server.post("/v1/messages", &[], &other).await;
    assert_ne!(answer.headers["turnwire-session"], session.as_str());
    assert_eq!(seen(&server)[3].1, "So,");

    // The first one goes on where it was.
    let whole = format!("Well,{REST}");
    history.pop();
    history.extend([said("assistant", &whole), said("user", "Thanks.")]);
    assert_eq!(ask(&server, "/v1/messages", "messages", &history).await, session);
    let texts: Vec<String> = seen(&server).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["Hi!", REST, "And?", &whole, "Thanks."]);
}

#[tokio::test]
async fn an_answer_that_a_named_session_has_is_not_continued() {
    let server = TestServer::new().await;
    let path = "/v1/chat/completions";
    let messages = [said("user", "Hi!"), said("assistant", REST)];
    let session = ask(&server, path, "chat", &messages[..1]).await;
    let body = json!({"model": "chat", "messages": messages});
    let answer = server.post(path, &[("turnwire-session", &session)], &body).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(answer.body.to_string().contains("nothing_new"), "{}", answer.body);
}
