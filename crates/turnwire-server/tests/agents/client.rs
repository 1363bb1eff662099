//! A client that sends messages, approves calls and subscribes.

use crate::checked_http::send_http;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use turnwire_testkit::net::{SseParser, StreamingResponse, http};

/// No wait in these tests takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct TestClient {
    address: SocketAddr,
    incoming: StreamingResponse,
    sse: SseParser,
    waiting: std::collections::VecDeque<Value>,
}

pub async fn ask(to: SocketAddr, method: &str, path: &str, body: &Value) -> io::Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = [("content-type", "application/json")];
    let answer = send_http(to, method, path, &headers, body.as_bytes());
    Ok(tokio::time::timeout(PATIENCE, answer).await.expect("it hangs")?.json())
}

/// Creates the session, and sends a message.
pub async fn begin(to: SocketAddr) -> String {
    begin_with(to, "friday", &json!({"content": "go"})).await
}

/// The same, with another agent and another message.
pub async fn begin_with(to: SocketAddr, agent: &str, message: &Value) -> String {
    ask(to, "POST", "/v1/sessions", &json!({"id": "s", "agent": agent})).await.unwrap();
    let sent = ask(to, "POST", "/v1/sessions/s/messages", message).await.unwrap();
    sent["reply_id"].as_str().expect("the message is taken").to_owned()
}

impl TestClient {
    /// Subscribes from the first event, without merging.
    pub async fn connect(address: SocketAddr) -> Self {
        let path = "/v1/sessions/s/events?raw=true";
        let request = http::request(address, "GET", path, &[], b"");
        let incoming = StreamingResponse::send(address, &request).await.unwrap();
        Self {
            address,
            incoming,
            sse: SseParser::default(),
            waiting: std::collections::VecDeque::new(),
        }
    }

    /// The next event.
    pub async fn next(&mut self) -> Value {
        while self.waiting.is_empty() {
            let bytes = tokio::time::timeout(PATIENCE, self.incoming.next_bytes()).await;
            let bytes = bytes.expect("it hangs").unwrap().expect("the stream goes on");
            let data = self.sse.feed(&bytes).into_iter().filter_map(|frame| frame.data);
            self.waiting.extend(data.map(|data| serde_json::from_str::<Value>(&data).unwrap()));
        }
        self.waiting.pop_front().unwrap()
    }

    /// Approves all pending calls. Calls that were answered already stay as they are.
    pub async fn allow(&self) {
        let view = self.get("/v1/sessions/s").await;
        for pending in view["pending"].as_array().unwrap() {
            let yes = |call: &Value| json!({"confirmed": true, "tool_call": {"id": call["id"]}});
            let calls: Vec<Value> =
                pending["confirm"].as_array().unwrap().iter().map(yes).collect();
            let answer = json!([{"type": "USER_CONFIRM_RESULT", "reply_id": pending["reply_id"],
                "confirm_results": calls}]);
            ask(self.address, "POST", "/v1/sessions/s/events", &answer).await.unwrap();
        }
    }

    pub async fn get(&self, path: &str) -> Value {
        ask(self.address, "GET", path, &Value::Null).await.unwrap()
    }

    /// Reads events until the reply has ended, and returns them.
    pub async fn events_until_end(&mut self, reply: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            let is_question = event["type"] == "REQUIRE_USER_CONFIRM";
            let is_end = event["type"] == "REPLY_END" && event["reply_id"] == reply;
            events.push(event);
            if is_question {
                self.allow().await;
            } else if is_end {
                return events;
            }
        }
    }
}
