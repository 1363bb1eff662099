//! A server that stops during responses: they finish within `limits.stop_timeout`, or end with an
//! error of their protocol, and no question is asked twice.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../openapi/checked_http.rs"]
mod checked_http;
#[path = "../openapi/contract.rs"]
mod contract;
#[path = "../turns/fake_agent.rs"]
mod fake_agent;
#[path = "../resume/running.rs"]
mod running;
#[path = "../test_store/mod.rs"]
mod test_store;

use checked_http::send_http;
use fake_agent::FakeAgent;
use running::{Running, within};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use test_store::test_store;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use turnwire_agent::Replier;
use turnwire_log::store::{SessionQuery, SessionRecord};
use turnwire_server::App;
use turnwire_testkit::net::{HttpResponse, StreamingResponse, http};

struct Harness {
    server: Option<Running>,
    app: Arc<App>,
    actor: Arc<FakeAgent>,
    address: SocketAddr,
}

impl Harness {
    fn new(stop_timeout: &str) -> Self {
        let actor = FakeAgent::new();
        let settings = format!("[limits]\nstop_timeout = \"{stop_timeout}\"\n");
        let agent: Arc<dyn Replier> = actor.clone();
        let store = test_store();
        let (server, app) = Running::start(store, &settings, [("actor", agent)]);
        let address = server.address;
        Self { server: Some(server), app, actor, address }
    }

    /// Sends a request, and waits until the agent has begun to reply.
    async fn ask(&self, protocol: &Protocol) -> JoinHandle<std::io::Result<HttpResponse>> {
        if protocol.path.starts_with("/v1/sessions/s/") {
            let made = send_http(
                self.address,
                "POST",
                "/v1/sessions",
                &[],
                br#"{"id":"s","agent":"actor"}"#,
            )
            .await;
            assert_eq!(made.unwrap().status, 201);
        }
        let (to, path, body) = (self.address, protocol.path, protocol.body.to_string());
        let accept = if protocol.path.contains("sessions") { "text/event-stream" } else { "*/*" };
        let asking = tokio::spawn(async move {
            let headers = [("content-type", "application/json"), ("accept", accept)];
            send_http(to, "POST", path, &headers, body.as_bytes()).await
        });
        // The message, and the reply up to where the agent waits.
        let begun = async {
            while self.last().await < 4 {
                tokio::task::yield_now().await;
            }
        };
        within(begun).await;
        asking
    }

    /// Stops the server. The result waits until it has stopped.
    fn begin_stop(&mut self) -> JoinHandle<()> {
        tokio::spawn(self.server.take().unwrap().stop())
    }

    async fn sessions(&self) -> Vec<SessionRecord> {
        let query = SessionQuery::latest("default", 100);
        self.app.log.list_sessions(&query).await.unwrap()
    }

    /// The head of the first session.
    async fn last(&self) -> u64 {
        let Some(first) = self.sessions().await.into_iter().next() else { return 0 };
        self.app
            .log
            .open_session(&first.key)
            .await
            .unwrap()
            .map_or(0, |session| session.head_state().head.get())
    }

    /// How often the agent was called, and how many sessions there are.
    async fn counts(&self) -> (usize, usize) {
        let sessions = self.sessions().await.len();
        (self.actor.calls.lock().len(), sessions)
    }
}

struct Protocol {
    name: &'static str,
    path: &'static str,
    body: Value,
    /// A text in a complete response.
    whole: &'static [&'static str],
    /// A text in an incomplete response.
    cut: &'static [&'static str],
}

impl Protocol {
    fn is_stream(&self) -> bool {
        self.body["stream"] != json!(false)
    }
}

fn protocols() -> Vec<Protocol> {
    let user = json!([{"role": "user", "content": "hold"}]);
    let chat = |stream: bool| json!({"model": "actor", "messages": user, "stream": stream});
    let messages = |stream: bool| json!({"model": "actor", "messages": user, "stream": stream, "max_tokens": 9});
    let responses = |stream: bool| json!({"model": "actor", "input": "hold", "stream": stream});
    vec![
        Protocol {
            name: "chat completions",
            path: "/v1/chat/completions",
            body: chat(false),
            whole: &[r#""content":"before after""#],
            cut: &[r#""code":"server_stopping""#, r#""type":"server_error""#],
        },
        Protocol {
            name: "chat completions, streamed",
            path: "/v1/chat/completions",
            body: chat(true),
            whole: &["before ", "after", r#""finish_reason":"stop""#, "data: [DONE]"],
            cut: &["before ", r#"data: {"error":{"#, r#""code":"server_stopping""#],
        },
        Protocol {
            name: "Responses",
            path: "/v1/responses",
            body: responses(false),
            whole: &["before after", r#""status":"completed""#],
            cut: &[r#""code":"server_stopping""#, r#""type":"server_error""#],
        },
        Protocol {
            name: "Responses, streamed",
            path: "/v1/responses",
            body: responses(true),
            whole: &["event: response.completed"],
            cut: &["event: response.failed", r#""code":"server_stopping""#],
        },
        Protocol {
            name: "Messages",
            path: "/v1/messages",
            body: messages(false),
            whole: &["before after", r#""stop_reason":"end_turn""#],
            cut: &[r#""type":"error""#, r#""type":"overloaded_error""#],
        },
        Protocol {
            name: "Messages, streamed",
            path: "/v1/messages",
            body: messages(true),
            whole: &["event: message_stop"],
            cut: &["before ", "event: error", "in the session"],
        },
        Protocol {
            name: "AG-UI",
            path: "/ag-ui/actor",
            body: json!({"threadId": "t", "runId": "r",
                "messages": [{"id": "m", "role": "user", "content": "hold"}]}),
            whole: &["before ", "after", "RUN_FINISHED"],
            cut: &["before ", "RUN_ERROR", "server_stopping"],
        },
        Protocol {
            name: "AI SDK",
            path: "/ai-sdk/actor",
            body: json!({"id": "c", "trigger": "submit-message", "messages": [
                {"id": "m", "role": "user", "parts": [{"type": "text", "text": "hold"}]}]}),
            whole: &["before ", "after", r#""type":"finish""#],
            cut: &["before ", r#""type":"error""#, "in the session"],
        },
        Protocol {
            name: "our own",
            path: "/v1/sessions/s/messages",
            body: json!({"content": "hold"}),
            whole: &["before ", "after", "REPLY_END"],
            cut: &["before "],
        },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_finish_when_the_server_stops() {
    for protocol in protocols() {
        let name = protocol.name;
        let mut server = Harness::new("1h");
        let asking = server.ask(&protocol).await;
        let stopping = server.begin_stop();
        within(server.app.shutdown.cancelled()).await;
        assert!(!asking.is_finished(), "{name}");
        server.actor.gate.add_permits(1);
        let answer = within(asking).await.unwrap().unwrap_or_else(|why| panic!("{name}: {why}"));
        let text = answer.text();
        assert_eq!(answer.status, 200, "{name}: {text}");
        for part in protocol.whole {
            assert!(text.contains(part), "{name}: no {part} in {text}");
        }
        assert_eq!(server.counts().await, (1, 1), "{name}");
        within(stopping).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_take_too_long_end_with_an_error_that_is_not_retried() {
    for protocol in protocols() {
        let name = protocol.name;
        let mut server = Harness::new("50ms");
        let asking = server.ask(&protocol).await;
        let stopping = server.begin_stop();
        // A body that breaks off is an error here.
        let answer = within(asking).await.unwrap().unwrap_or_else(|why| panic!("{name}: {why}"));
        let text = answer.text();
        for part in protocol.cut {
            assert!(text.contains(part), "{name}: no {part} in {text}");
        }
        assert!(!text.contains("after"), "{name}: {text}");
        if protocol.is_stream() {
            assert_eq!(answer.status, 200, "{name}: {text}");
        } else {
            assert_eq!(answer.status, 503, "{name}: {text}");
            assert_eq!(answer.header("x-should-retry"), Some("false"), "{name}");
            assert!(text.contains("do not send it again"), "{name}: {text}");
        }
        within(stopping).await.unwrap();
        assert_eq!(server.counts().await, (1, 1), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_session_end_at_once_and_cleanly() {
    let mut server = Harness::new("1h");
    let made =
        send_http(server.address, "POST", "/v1/sessions", &[], br#"{"id":"s","agent":"actor"}"#)
            .await;
    assert_eq!(made.unwrap().status, 201);
    let mut watching = Vec::new();
    for query in ["", "?wire=agentscope", "?wire=blocks", "?wire=ag-ui"] {
        let path = format!("/v1/sessions/s/events{query}");
        let request = http::request(server.address, "GET", &path, &[], b"");
        let incoming = within(StreamingResponse::send(server.address, &request)).await.unwrap();
        assert_eq!(incoming.status, 200, "{path}");
        watching.push(incoming);
    }
    let stopping = server.begin_stop();
    for incoming in watching {
        within(incoming.read_to_end()).await.unwrap();
    }
    within(stopping).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_while_the_server_stops_is_refused_before_anything_is_stored() {
    for protocol in protocols() {
        let name = protocol.name;
        // A connection without a request is closed without a response.
        let mut answer = None;
        while answer.is_none() {
            answer = within(ask_late(&protocol)).await;
        }
        let answer = answer.unwrap();
        assert_eq!(answer.status, 503, "{name}: {}", answer.text());
        assert!(answer.text().contains("nothing was stored"), "{name}: {}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"), "{name}");
        assert_eq!(answer.header("connection"), Some("close"), "{name}");
        assert_eq!(answer.header("x-should-retry"), None, "{name}");
    }
}

/// Sends the beginning of a request before the server stops, and the rest afterwards.
async fn ask_late(protocol: &Protocol) -> Option<HttpResponse> {
    let mut server = Harness::new("1h");
    let body = protocol.body.to_string();
    let request = http::request(server.address, "POST", protocol.path, &[], body.as_bytes());
    let (start, rest) = request.split_at(20);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(start).await.unwrap();
    while !server.app.metrics.text().contains("turnwire_connections 1\n") {
        tokio::task::yield_now().await;
    }
    let stopping = server.begin_stop();
    server.app.shutdown.cancelled().await;
    let answer = match stream.write_all(rest).await {
        Ok(()) => {
            async { StreamingResponse::read_head(stream).await?.read_to_end().await }.await.ok()
        }
        Err(_) => None,
    };
    stopping.await.unwrap();
    assert_eq!(server.counts().await, (0, 0), "{}", protocol.name);
    answer
}
