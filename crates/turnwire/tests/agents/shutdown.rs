//! SIGTERM during a reply.

use crate::fake_provider::{FakeOutput, FakeProvider};
use crate::harness::{TestServer, friday_settings, message_text};
use serde_json::{Value, json};
use std::time::Duration;
use turnwire_testkit::net::{HttpResponse, send_http};

const TIMEOUT: Duration = Duration::from_secs(30);

fn request_body(path: &str, stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    match path {
        "/v1/responses" => json!({"model": "friday", "input": "hi", "stream": stream}),
        "/v1/messages" => {
            json!({"model": "friday", "messages": messages, "stream": stream, "max_tokens": 9})
        }
        _ => json!({"model": "friday", "messages": messages, "stream": stream}),
    }
}

const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

async fn holding_provider() -> FakeProvider {
    let parts =
        || vec![FakeOutput::Text("one ".into()), FakeOutput::Hold, FakeOutput::Text("two".into())];
    FakeProvider::start(move |_| parts()).await
}

/// Sends a request, and SIGTERM when the model has started to reply.
async fn ask_and_stop(
    server: &mut TestServer,
    provider: &FakeProvider,
    path: &'static str,
    body: Value,
) -> (tokio::task::JoinHandle<std::io::Result<HttpResponse>>, std::process::Child) {
    let (to, body) = (server.address, body.to_string());
    let asking =
        tokio::spawn(async move { send_http(to, "POST", path, &[], body.as_bytes()).await });
    let request = async {
        while provider.requests().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, request).await.expect("it asks");
    let child = server.terminate();
    let stops = async {
        while !server.log().contains("stopping; new connections are refused") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, stops).await.expect("it stops");
    (asking, child)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_finishes_in_time_arrives_whole_after_sigterm() {
    for path in PATHS {
        for stream in [false, true] {
            let provider = holding_provider().await;
            let mut server =
                TestServer::start(&friday_settings(&provider, "[limits]\nstop_timeout = \"1h\""));
            let body = request_body(path, stream);
            let (asking, mut child) = ask_and_stop(&mut server, &provider, path, body).await;
            provider.gate.add_permits(1);
            let answer = tokio::time::timeout(TIMEOUT, asking).await.expect("it answers");
            let answer = answer.unwrap().unwrap();
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            assert!(answer.text().contains("two"), "{path}: {}", answer.text());
            assert!(child.wait().unwrap().success());
            assert_eq!(provider.requests().len(), 1, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_outlasts_the_shutdown_is_in_its_session_after_the_restart() {
    for path in PATHS {
        let provider = holding_provider().await;
        let settings = friday_settings(&provider, "[limits]\nstop_timeout = \"100ms\"");
        let mut server = TestServer::start(&settings);
        let (asking, mut child) =
            ask_and_stop(&mut server, &provider, path, request_body(path, false)).await;
        let answer = tokio::time::timeout(TIMEOUT, asking).await.expect("it answers");
        let answer = answer.unwrap().unwrap();
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert_eq!(answer.header("x-should-retry"), Some("false"), "{path}");
        assert!(child.wait().unwrap().success());
        // The reply continues with a new model call, without a new request.
        provider.gate.add_permits(2);
        server.restart();
        let sessions = server.get("/v1/sessions").await;
        let sessions = sessions["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "{path}");
        let id = sessions[0]["id"].as_str().unwrap();
        assert!(answer.text().contains(id), "{path}: {}", answer.text());
        server.until(id, "idle").await;
        let page = server.get(&format!("/v1/sessions/{id}/messages")).await;
        let messages = page["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 2, "{path}: {page}");
        assert!(message_text(&messages[1]).ends_with("two"), "{path}: {page}");
        assert_eq!(provider.requests().len(), 2, "{path}");
    }
}
