//! OpenAI's Responses and models.

use crate::test_store::test_store;
use axum::body::Body;
use axum::{Extension, Router};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_log::store::{MessageQuery, SessionKey, SessionQuery};
use turnwire_log::{Log, Session};
use turnwire_server::auth::Auth;
use turnwire_server::config::Config;
use turnwire_server::{App, Caller};

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct TestServer {
    pub app: Arc<App>,
    caller: Caller,
}

pub struct Answer {
    pub status: StatusCode,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The code of an error, in whosever words it is told.
    pub fn code(&self) -> String {
        let error = &self.json()["error"];
        let code = error["code"].as_str().or(error["type"].as_str());
        code.unwrap_or_default().to_owned()
    }

    pub fn frames(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn numbers(&self) -> Vec<u64> {
        let numbers = self.frames();
        numbers.iter().map(|frame| frame["sequence_number"].as_u64().unwrap()).collect()
    }
}

impl TestServer {
    pub fn new() -> Self {
        let config = Config::parse("test", "").unwrap();
        let caller =
            Auth::without_credentials(&config.limits).authenticate_token("anybody").unwrap();
        let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(0.0));
        let agents = BTreeMap::from([("demo".to_owned(), demo.clone()), ("twin".to_owned(), demo)]);
        let log = Arc::new(Log::new(test_store(), "test"));
        Self { app: App::new(config, log, agents).unwrap(), caller }
    }

    pub async fn ask(&self, request: Request<Body>) -> Answer {
        let router: Router = crate::checked_router::checked_router(self.app.clone());
        let router = router.layer(Extension(self.caller.clone()));
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX);
        let bytes = tokio::time::timeout(PATIENCE, body).await.expect("it hangs").unwrap();
        Answer { status, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.ask(Request::post(path).body(body.into()).unwrap()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.ask(Request::delete(path).body(Body::empty()).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub async fn create(&self, body: &Value) -> Answer {
        self.post("/v1/responses", body.to_string()).await
    }

    pub async fn create_in(&self, session: &str, body: &Value) -> Answer {
        let request = Request::post("/v1/responses").header("turnwire-session", session);
        self.ask(request.body(body.to_string().into()).unwrap()).await
    }

    /// How many sessions there are.
    pub async fn sessions(&self) -> usize {
        let query = SessionQuery::latest(self.caller.tenant().clone(), 1000);
        self.app.log.list_sessions(&query).await.unwrap().len()
    }

    pub async fn session(&self, id: &str) -> Arc<Session> {
        self.app.log.open_session(&SessionKey::new("default", id)).await.unwrap().unwrap()
    }

    /// An agent elsewhere asks the clients of a session to execute these calls.
    pub async fn calls(&self, session: &str, reply: &str, calls: &[&str]) {
        let mut events = vec![json!({"type": "REPLY_START", "name": "demo"})];
        let mut blocks = Vec::new();
        for call in calls {
            events.extend([
                json!({"type": "TOOL_CALL_START", "tool_call_id": call, "tool_call_name": "f"}),
                json!({"type": "TOOL_CALL_DELTA", "tool_call_id": call, "delta": "{}"}),
                json!({"type": "TOOL_CALL_END", "tool_call_id": call}),
            ]);
            blocks.push(json!({"type": "tool_call", "id": call, "name": "f", "input": "{}"}));
        }
        events.push(json!({"type": "REQUIRE_EXTERNAL_EXECUTION", "tool_calls": blocks}));
        self.publish(session, reply, events).await;
    }

    /// An agent elsewhere publishes events of a reply in a session, which is created if it does not exist.
    pub async fn publish(&self, session: &str, reply: &str, mut events: Vec<Value>) {
        let made =
            self.post("/v1/sessions", json!({"id": session, "agent": "demo"}).to_string()).await;
        assert!(made.status.is_success(), "{}", made.text);
        for (at, event) in events.iter_mut().enumerate() {
            event["id"] = json!(format!("{reply}-{at}"));
            event["reply_id"] = json!(reply);
        }
        let request = Request::post(format!("/v1/sessions/{session}/events"))
            .header("turnwire-producer", "p.1")
            .header("content-type", "application/json");
        let taken = self.ask(request.body(json!(events).to_string().into()).unwrap()).await;
        assert_eq!(taken.status, 200, "{}", taken.text);
    }
}

pub fn output(call: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call, "output": format!("result of {call}")})
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_makes_nothing() {
    let server = TestServer::new();
    let with = |key: &str, value: Value| {
        let mut body = json!({"model": "demo", "input": "hi"});
        body[key] = value;
        body.to_string()
    };
    let input = |value: Value| with("input", value);
    let bodies = [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
        json!({"model": "demo"}).to_string(),
        json!({"input": "hi"}).to_string(),
        with("model", json!("")),
        with("model", json!(7)),
        with("stream", json!("yes")),
        with("background", json!(1)),
        with("instructions", json!([1])),
        with("conversation", json!({"id": "c"})),
        with("previous_response_id", json!(7)),
        with("previous_response_id", json!("resp_s~r")),
        with("previous_response_id", json!("../../etc")),
        with("tools", json!("f")),
        with("tools", json!([{"type": "function"}])),
        with("tools", json!([{"type": "function", "name": "f", "parameters": [1]}])),
        with("tools", json!([{"server_url": "http://127.0.0.1"}])),
        with("tool_choice", json!("always")),
        with("temperature", json!("hot")),
        with("text", json!("json")),
        with("text", json!({"format": {"type": "xml"}})),
        with("text", json!({"format": {"type": "json_schema"}})),
        with("text", json!({"format": {"type": "json_schema", "schema": "s"}})),
        input(Value::Null),
        input(json!(7)),
        input(json!({"role": "user", "content": "hi"})),
        input(json!("")),
        input(json!("   ")),
        input(json!([])),
        input(json!([null])),
        input(json!(["hi"])),
        input(json!([{}])),
        input(json!([{"content": "hi"}])),
        input(json!([{"type": 7}])),
        input(json!([{"role": "user"}])),
        input(json!([{"role": "user", "content": []}])),
        input(json!([{"role": "user", "content": 7}])),
        input(json!([{"role": "user", "content": [7]}])),
        input(json!([{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}])),
        input(json!([{"role": "user", "content": [
            {"type": "input_image", "image_url": "data:image/png;base64,!!!"}
        ]}])),
        input(json!([{"role": "user", "content": [{"type": "tool_call", "id": "c"}]}])),
        input(json!([{"role": "tool", "content": "hi"}])),
        input(json!([{"role": "system", "content": "only this"}])),
        input(json!([{"role": "assistant", "content": "I said so"}])),
        input(json!([{"role": "user", "content": "hi"}, {"type": "function_call_output"}])),
        input(json!([output("nobody")])),
        input(json!([{"type": "reasoning", "summary": []}])),
    ];
    for body in bodies {
        let answer = server.post("/v1/responses", body.clone()).await;
        assert!(answer.status.is_client_error(), "{body}: {} {}", answer.status, answer.text);
        assert!(!answer.code().is_empty(), "{body}: {}", answer.text);
        assert_eq!(server.sessions().await, 0, "{body}");
    }
    assert_eq!(server.post("/v1/responses", vec![0xff, 0xfe]).await.status, 400);
    let named = server.create_in("a/b", &json!({"model": "demo", "input": "hi"})).await;
    assert_eq!((named.status.as_u16(), server.sessions().await), (400, 0));
    let elsewhere = server.create(&json!({"model": "external", "input": "hi"})).await;
    assert_eq!((elsewhere.status.as_u16(), elsewhere.code().as_str()), (404, "model_not_found"));
}

#[tokio::test]
async fn only_a_response_is_found_by_its_name() {
    let server = TestServer::new();
    let made = server.create_in("s", &json!({"model": "demo", "input": "team"})).await.json();
    let id = made["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/responses/{id}")).await.json(), made);
    let query = MessageQuery { limit: usize::MAX, sub_agents: true, ..MessageQuery::default() };
    let messages = server.session("s").await.list_messages(&query).await.unwrap();
    let (user, sub) = (&messages[0], messages.iter().find(|msg| msg.of_sub_agent).unwrap());
    for wrong in [
        format!("resp_s~{}", user.id),
        format!("resp_s~{}", sub.id),
        "resp_s~nobody".to_owned(),
        "resp_other~r".to_owned(),
        id.trim_start_matches("resp_").to_owned(),
        format!("{id}~1"),
        format!("{id}~3"),
        format!("{id}~99999999999999999999"),
        format!("{id}~18446744073709551615"),
        format!("{id}~"),
        "x".repeat(5000),
        "%00".to_owned(),
        "resp_%2e%2e~r".to_owned(),
    ] {
        for answer in [
            server.get(&format!("/v1/responses/{wrong}")).await,
            server.get(&format!("/v1/responses/{wrong}?stream=true")).await,
            server.post(&format!("/v1/responses/{wrong}/cancel"), "").await,
        ] {
            assert_eq!(answer.code(), "response_not_found", "{wrong}: {}", answer.text);
            assert_eq!(answer.status, 404);
        }
    }
    for query in ["stream=true&starting_after=x", "stream=true&starting_after=-1", "stream=maybe"] {
        let answer = server.get(&format!("/v1/responses/{id}?{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
    }
}

#[tokio::test]
async fn the_events_behind_a_number_are_the_rest() {
    let server = TestServer::new();
    let all = server.create(&json!({"model": "demo", "input": "long 30", "stream": true})).await;
    let frames = all.frames();
    let id = frames[0]["response"]["id"].as_str().unwrap();
    let count = frames.len() as u64;
    assert_eq!(all.numbers(), (0..count).collect::<Vec<_>>());
    for after in [0, 1, 2, 7, count - 2, count - 1, count, u64::MAX] {
        let path = format!("/v1/responses/{id}?stream=true&starting_after={after}");
        let rest = server.get(&path).await.frames();
        let expected = frames.iter().skip(usize::try_from(after.min(count)).unwrap() + 1);
        assert_eq!(rest, expected.cloned().collect::<Vec<_>>(), "{after}");
    }
}

#[tokio::test]
async fn all_calls_of_a_response_are_answered_together() {
    let server = TestServer::new();
    server.calls("s", "r", &["a", "b"]).await;
    let shown = server.get("/v1/responses/resp_s~r").await.json();
    assert_eq!(shown["status"], "completed");
    assert_eq!(shown["output"].as_array().unwrap().len(), 2);
    let session = server.session("s").await;
    let before = session.head_state().head;
    let send = |items: Value| json!({"model": "demo", "input": items, "background": true});
    for (items, status) in [
        (json!([output("a")]), 400),
        (json!([output("a"), output("a")]), 400),
        (json!([output("a"), output("b"), output("b")]), 400),
        (json!([output("a"), output("b"), output("c")]), 400),
        (json!([{"role": "user", "content": "hi"}]), 409),
    ] {
        let answer = server.create_in("s", &send(items.clone())).await;
        assert_eq!(answer.status.as_u16(), status, "{items}: {}", answer.text);
        assert_eq!(session.head_state().head, before, "{items}");
    }
    // A client that repeats its history puts each result behind its call.
    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let items =
        json!([{"role": "user", "content": "x"}, call("a"), output("a"), call("b"), output("b")]);
    let going = server.create_in("s", &send(items)).await.json();
    assert_eq!(going["status"], "in_progress", "{going}");
    assert_eq!(going["background"], true);
    let id = going["id"].as_str().unwrap();
    assert_eq!(id, format!("resp_s~r~{}", before.next()));
    assert_eq!(server.get("/v1/responses/resp_s~r").await.json(), shown, "it is what it was");
    let again = server.create_in("s", &send(json!([output("a"), output("b")]))).await;
    assert_eq!((again.status.as_u16(), again.code().as_str()), (409, "already_answered"));
}

#[tokio::test]
async fn a_result_never_goes_to_one_of_two_sessions() {
    let server = TestServer::new();
    server.calls("one", "r1", &["call_0"]).await;
    server.calls("two", "r2", &["call_0"]).await;
    let body = json!({"model": "demo", "input": [output("call_0")], "background": true});
    // Neither was asked by this client: nobody learns that they are there.
    let unclear = server.create(&body).await;
    assert_eq!((unclear.status.as_u16(), unclear.code().as_str()), (400, "unknown_call"));
    assert!(!unclear.text.contains("two"), "{}", unclear.text);
    // Another agent's sessions do not count.
    let twin = json!({"model": "twin", "input": [output("call_0")], "background": true});
    assert_eq!(server.create(&twin).await.code(), "unknown_call");
    let mut named = body.clone();
    named["previous_response_id"] = json!("resp_two~r2");
    let taken = server.create(&named).await;
    assert!(taken.json()["id"].as_str().unwrap().starts_with("resp_two~r2~"), "{}", taken.text);
    assert_eq!(server.session("one").await.snapshot().await.unwrap().pending_calls().len(), 1);
    assert_eq!(server.create(&body).await.code(), "unknown_call", "the other one stays");
}

#[tokio::test]
async fn a_reply_that_is_retried_is_still_the_json_that_was_requested() {
    let server = TestServer::new();
    let format = json!({"type": "json_schema", "name": "x", "schema": {"type": "object"}});
    let body = json!({"model": "demo", "input": "json", "text": {"format": format}});
    let first = server.create_in("s", &body).await.json();
    assert_eq!(first["output"].as_array().unwrap().len(), 1, "{first}");
    let mut reply = first["id"].as_str().unwrap().rsplit('~').next().unwrap().to_owned();
    for _ in 0..2 {
        let again = server.post(&format!("/v1/sessions/s/messages/{reply}/retry"), "").await;
        assert_eq!(again.status, 202, "{}", again.text);
        again.json()["reply_id"].as_str().unwrap().clone_into(&mut reply);
        let id = format!("resp_s~{reply}");
        // It waits for the end.
        server.get(&format!("/v1/responses/{id}?stream=true")).await;
        let second = server.get(&format!("/v1/responses/{id}")).await.json();
        assert_eq!(second["status"], "completed", "{second}");
        let texts = |response: &Value| -> Vec<Value> {
            let items = response["output"].as_array().unwrap().iter();
            items.map(|item| item["content"][0]["text"].clone()).collect()
        };
        assert_eq!(texts(&second), texts(&first));
    }
}

#[tokio::test]
async fn a_session_stays_with_its_agent_and_its_name() {
    let server = TestServer::new();
    let made = server.create_in("s", &json!({"model": "demo", "input": "hello"})).await.json();
    let session = server.session("s").await;
    let before = session.head_state().head;
    let mut body = json!({"model": "twin", "input": "hello", "previous_response_id": made["id"]});
    assert_eq!(server.create(&body).await.code(), "wrong_agent");
    assert_eq!(server.create_in("s", &body).await.code(), "wrong_agent");
    body["model"] = json!("demo");
    let elsewhere = server.create_in("other", &body).await;
    assert_eq!((elsewhere.status.as_u16(), server.sessions().await), (400, 1));
    assert_eq!(session.head_state().head, before);
}

#[tokio::test]
async fn models_are_read_by_both_protocols_clients() {
    let server = TestServer::new();
    let list = server.get("/v1/models").await.json();
    assert_eq!((&list["first_id"], &list["last_id"]), (&json!("demo"), &json!("twin")));
    assert_eq!(list["data"][0], server.get("/v1/models/demo").await.json());
    assert_eq!(
        list["data"][1],
        json!({
            "id": "twin", "object": "model", "created": 0, "owned_by": "turnwire",
            "type": "model", "display_name": "twin", "created_at": "1970-01-01T00:00:00Z",
        })
    );
    assert_eq!(server.get("/v1/models/external").await.code(), "model_not_found");
}
