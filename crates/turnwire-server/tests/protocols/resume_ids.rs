//! Responses that are cut after any frame and continued with `Last-Event-ID`, in AG-UI and the AI SDK. The control is
//! the response that was not cut.

use crate::test_store::test_store;
use axum::body::Body;
use axum::{Extension, Router};
use futures_util::StreamExt;
use http::{HeaderMap, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_log::Log;
use turnwire_log::Store;
use turnwire_server::App;
use turnwire_server::auth::Auth;
use turnwire_server::config::Config;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the demo agent can do; the last word of each makes it do so.
const SCENES: [&str; 10] = [
    "weather", "approve", "parallel", "browser", "image", "team", "json", "fail", "long 30",
    "hello",
];

struct TestServer {
    store: Arc<dyn Store>,
    app: Arc<App>,
    router: Router,
}

#[derive(Debug, Clone, PartialEq)]
struct Frame {
    id: Option<String>,
    data: String,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn frames(&self) -> Vec<Frame> {
        assert_eq!(self.status, 200, "{}", self.text);
        frames(&self.text)
    }

    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    fn error_kind(&self) -> String {
        let body: Value = serde_json::from_str(&self.text).unwrap_or_default();
        body["error"]["type"].as_str().unwrap_or_default().to_owned()
    }
}

fn frames(text: &str) -> Vec<Frame> {
    let field = |frame: &str, name: &str| {
        frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    };
    let whole = text.split_inclusive("\n\n").filter(|frame| frame.ends_with("\n\n"));
    let with_data = whole.filter_map(|frame| {
        Some(Frame { data: field(frame, "data: ")?, id: field(frame, "id: ") })
    });
    with_data.collect()
}

impl TestServer {
    fn new() -> Self {
        Self::over(test_store(), "", "anybody")
    }

    fn over(store: Arc<dyn Store>, settings: &str, token: &str) -> Self {
        let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(0.0));
        let agents = BTreeMap::from([("demo".to_owned(), demo)]);
        let config = Config::parse("test", settings).unwrap();
        let auth = match settings {
            "" => Auth::without_credentials(&config.limits),
            _ => Auth::new(&config, |_| None).unwrap(),
        };
        let caller = auth.authenticate_token(token).unwrap();
        let app = App::new(config, Arc::new(Log::new(store.clone(), "test")), agents).unwrap();
        let router = crate::checked_router::checked_router(app.clone()).layer(Extension(caller));
        Self { store, app, router }
    }

    /// Another server over the same store.
    async fn restart(self) -> Self {
        let Self { store, app, router } = self;
        drop((app, router));
        let server = Self::over(store, "", "anybody");
        server.app.turns.recover().await.unwrap();
        server
    }

    async fn open(
        &self,
        method: &str,
        path: &str,
        body: &str,
        id: Option<&str>,
    ) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(id) = id {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, body: &str, id: Option<&str>) -> Answer {
        let answered = async {
            let (parts, body) = self.open(method, path, body, id).await.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            Answer { status: parts.status.as_u16(), headers: parts.headers, text }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("it takes too long")
    }

    async fn publish(&self, session: &str, event: &Value) {
        let request = Request::post(format!("/v1/sessions/{session}/events"))
            .header("turnwire-producer", "p.1")
            .body(Body::from(event.to_string()));
        let stored = self.router.clone().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(stored.status(), 200, "{event}");
    }
}

/// How a client of a protocol resumes.
struct Client {
    method: &'static str,
    path: String,
    body: String,
}

impl Client {
    /// It sends the same request again.
    fn posts(agent: &str, body: &Value) -> Self {
        Self { method: "POST", path: format!("/{agent}"), body: body.to_string() }
    }

    fn gets(path: String) -> Self {
        Self { method: "GET", path, body: String::new() }
    }

    async fn ask(&self, server: &TestServer, id: Option<&str>) -> Answer {
        server.ask(self.method, &self.path, &self.body, id).await
    }

    /// Cuts a response after each frame.
    async fn check_every_cut(&self, server: &TestServer, uncut: &[Frame]) {
        for (at, frame) in uncut.iter().enumerate() {
            let id = frame.id.as_deref().expect("every frame has an id");
            let rest = self.ask(server, Some(id)).await.frames();
            assert_eq!(rest, uncut[at + 1..], "after {id} of {}", self.path);
        }
    }

    /// The same for a response that ended because the reply waited; now the reply has continued.
    async fn check_every_cut_of_a_pause(&self, server: &TestServer, uncut: &[Frame]) {
        for (at, frame) in uncut.iter().enumerate() {
            let id = frame.id.as_deref().unwrap();
            let rest = self.ask(server, Some(id)).await.frames();
            let expected = &uncut[at + 1..];
            if is_of_pause(frame) {
                assert_eq!(rest, expected, "after {id} of {}", self.path);
                continue;
            }
            let before_pause = expected.iter().take_while(|frame| !is_of_pause(frame)).count();
            assert_eq!(rest[..before_pause], expected[..before_pause], "after {id}");
            assert!(rest.len() > before_pause, "the reply has continued");
        }
    }
}

fn is_of_pause(frame: &Frame) -> bool {
    frame.id.as_deref().is_some_and(|id| id.split('~').count() == 4)
}

fn chat(id: &str, text: &str) -> Value {
    json!({"id": id, "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": text}]}]})
}

fn run(thread: &str, messages: &Value) -> Value {
    json!({"threadId": thread, "runId": "run", "messages": messages})
}

fn says(text: &str) -> Value {
    json!([{"id": "m", "role": "user", "content": text}])
}

fn is_waiting(frames: &[Frame]) -> bool {
    frames.iter().any(is_of_pause)
}

#[tokio::test]
async fn an_ai_sdk_response_continues_after_every_frame() {
    let mut server = TestServer::new();
    let mut responses = Vec::new();
    for (at, scene) in SCENES.into_iter().enumerate() {
        let id = format!("c{at}");
        let posts = Client::posts("ai-sdk/demo", &chat(&id, scene));
        let gets = Client::gets(format!("/ai-sdk/demo/{id}/stream"));
        let uncut = posts.ask(&server, None).await;
        let run = uncut.header("x-workflow-run-id").to_owned();
        let uncut = uncut.frames();
        assert_eq!(uncut.last().unwrap().data, "[DONE]");
        posts.check_every_cut(&server, &uncut).await;
        gets.check_every_cut(&server, &uncut).await;
        for start in 0..=uncut.len() {
            let path = format!("/ai-sdk/demo/{run}/stream?startIndex={start}");
            assert_eq!(server.ask("GET", &path, "", None).await.frames(), uncut[start..], "{path}");
        }
        responses.push((gets, uncut));
    }
    server = server.restart().await;
    for (at, (gets, uncut)) in responses.iter().enumerate() {
        gets.check_every_cut(&server, uncut).await;
        if is_waiting(uncut) {
            let stopped = server.ask("POST", &format!("/ai-sdk/demo/c{at}/stop"), "", None).await;
            assert_eq!(stopped.status, 204, "{}", stopped.text);
            gets.check_every_cut_of_a_pause(&server, uncut).await;
        }
    }
    let waiting = responses.iter().filter(|(_, uncut)| is_waiting(uncut)).count();
    assert_eq!(waiting, 3, "approve, parallel, browser");
}

#[tokio::test]
async fn an_ag_ui_response_continues_after_every_frame() {
    let mut server = TestServer::new();
    let mut responses = Vec::new();
    for (at, scene) in SCENES.into_iter().enumerate() {
        let thread = format!("t{at}");
        let mut messages = says(scene);
        for begin in ["~start~", "~snapshot", "~reset"] {
            let posts = Client::posts("ag-ui/demo", &run(&thread, &messages));
            let uncut = posts.ask(&server, None).await.frames();
            assert!(uncut[0].id.as_ref().unwrap().contains(begin), "{begin} {scene}: {uncut:?}");
            posts.check_every_cut(&server, &uncut).await;
            // Without messages a client gets a snapshot; one that lacks the first message is also told to remove what it has.
            messages = json!([]);
            if begin == "~snapshot" {
                let snapshot: Value = serde_json::from_str(&uncut[1].data).unwrap();
                messages = json!(snapshot["messages"].as_array().unwrap()[1..]);
            }
            let has_reply = !messages.as_array().unwrap().is_empty();
            responses.push((thread.clone(), posts, uncut));
            if begin == "~snapshot" && !has_reply {
                break;
            }
        }
    }
    server = server.restart().await;
    for (thread, posts, uncut) in &responses {
        posts.check_every_cut(&server, uncut).await;
        // A reply that waits ends now. The response to the first request still ends where the reply waited.
        let stopped = server.ask("POST", &format!("/ag-ui/demo/{thread}/stop"), "", None).await;
        assert_eq!(stopped.status, 204, "{}", stopped.text);
        posts.check_every_cut(&server, uncut).await;
    }
}

/// Responses that continue a reply after the client's answer.
#[tokio::test]
async fn a_response_to_an_answer_continues_after_every_frame() {
    let server = TestServer::new();
    let first =
        Client::posts("ai-sdk/demo", &chat("c", "approve")).ask(&server, None).await.frames();
    let chunks: Vec<Value> =
        first.iter().filter_map(|frame| serde_json::from_str(&frame.data).ok()).collect();
    let reply = chunks[0]["messageId"].as_str().unwrap();
    let asks = chunks.iter().find(|chunk| chunk["type"] == "tool-approval-request").unwrap();
    let call = asks["toolCallId"].as_str().unwrap();
    let part = json!({"type": "dynamic-tool", "toolName": "t", "toolCallId": call,
        "state": "approval-responded", "approval": {"id": call, "approved": true}});
    let mut answer = chat("c", "approve");
    answer["messageId"] = json!(reply);
    let message = json!({"id": reply, "role": "assistant", "parts": [part]});
    answer["messages"].as_array_mut().unwrap().push(message);
    let posts = Client::posts("ai-sdk/demo", &answer);
    let uncut = posts.ask(&server, None).await;
    let run_id = uncut.header("x-workflow-run-id").to_owned();
    let uncut = uncut.frames();
    assert!(run_id.contains("~after"), "{run_id}");
    posts.check_every_cut(&server, &uncut).await;
    let path = format!("/ai-sdk/demo/{run_id}/stream?startIndex=2");
    assert_eq!(server.ask("GET", &path, "", None).await.frames(), uncut[2..]);

    let asked = run("t", &says("approve"));
    let first = Client::posts("ag-ui/demo", &asked).ask(&server, None).await.frames();
    let end: Value = serde_json::from_str(&first.last().unwrap().data).unwrap();
    let mut answer = asked;
    let interrupt = &end["outcome"]["interrupts"][0]["id"];
    answer["resume"] =
        json!([{"interruptId": interrupt, "status": "resolved", "payload": {"approved": true}}]);
    let posts = Client::posts("ag-ui/demo", &answer);
    let uncut = posts.ask(&server, None).await.frames();
    posts.check_every_cut(&server, &uncut).await;
    server.restart().await;
}

/// The events of a reply that another program publishes, one by one.
fn published() -> Vec<Value> {
    let mut events = vec![
        json!({"type": "REPLY_START", "name": "other"}),
        json!({"type": "TEXT_BLOCK_START", "block_id": "b"}),
    ];
    events.extend((0..9).map(|number| {
        json!({"type": "TEXT_BLOCK_DELTA", "block_id": "b", "delta": format!("{number} ")})
    }));
    events.push(json!({"type": "TEXT_BLOCK_END", "block_id": "b"}));
    events.push(json!({"type": "REPLY_END", "finished_reason": "completed"}));
    for (at, event) in events.iter_mut().enumerate() {
        event["id"] = json!(format!("e{at}"));
        event["reply_id"] = json!("r");
        event["created_at"] = json!("2026-01-01T00:00:00Z");
    }
    events
}

/// Reads a response until it has a number of frames, and drops the connection.
async fn read_some(response: http::Response<Body>, count: usize) -> Vec<Frame> {
    let mut body = response.into_body().into_data_stream();
    let mut text = String::new();
    let read = async {
        while frames(&text).len() < count {
            text.push_str(std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("it takes too long");
    let mut read = frames(&text);
    read.truncate(count);
    read
}

/// A running reply: the client is cut off again and again, and gets every frame once.
#[tokio::test]
async fn a_running_reply_is_continued_after_every_cut() {
    for (posts, session) in [
        (Client::posts("ai-sdk/external", &chat("c", "go")), "c"),
        (Client::posts("ag-ui/external", &run("t", &says("go"))), "t"),
    ] {
        let server = TestServer::new();
        let follow = async {
            let mut got: Vec<Frame> = Vec::new();
            let is_end =
                |frame: &Frame| frame.data == "[DONE]" || frame.data.contains("RUN_FINISHED");
            while !got.last().is_some_and(is_end) {
                let last = got.last().and_then(|frame| frame.id.clone());
                let opened = server.open(posts.method, &posts.path, &posts.body, last.as_deref());
                got.extend(read_some(opened.await, 1).await);
            }
            got
        };
        let publish = async {
            // The message creates the session.
            let path = format!("/v1/sessions/{session}");
            while server.ask("GET", &path, "", None).await.status != 200 {
                tokio::task::yield_now().await;
            }
            for event in published() {
                server.publish(session, &event).await;
                tokio::task::yield_now().await;
            }
        };
        let (got, ()) = tokio::join!(follow, publish);
        let first = got[0].id.as_deref().unwrap();
        let rest = posts.ask(&server, Some(first)).await.frames();
        assert_eq!(got[1..], rest, "{}", posts.path);
        let numbers =
            got.iter().map(|frame| frame.id.as_ref().unwrap().rsplit('~').next().unwrap());
        let expected = (0..got.len()).map(|number| number.to_string());
        assert!(numbers.eq(expected), "{got:?}");
        let text: String = got.iter().map(|frame| frame.data.as_str()).collect();
        for number in 0..9 {
            assert_eq!(text.matches(&format!("\"delta\":\"{number} \"")).count(), 1, "{text}");
        }
    }
}

/// A snapshot in the middle of a reply can be made again after the reply has ended.
#[tokio::test]
async fn an_ag_ui_snapshot_of_a_running_reply_continues_after_every_frame() {
    let server = TestServer::new();
    let made = json!({"id": "t", "agent": "external"}).to_string();
    assert_eq!(server.ask("POST", "/v1/sessions", &made, None).await.status, 201);
    let (before, after) = (published()[..6].to_vec(), published()[6..].to_vec());
    for event in before {
        server.publish("t", &event).await;
    }
    let posts = Client::posts("ag-ui/external", &run("t", &json!([])));
    let opened = server.open(posts.method, &posts.path, &posts.body, None).await;
    for event in after {
        server.publish("t", &event).await;
    }
    let bytes = axum::body::to_bytes(opened.into_body(), usize::MAX).await.unwrap();
    let uncut = frames(std::str::from_utf8(&bytes).unwrap());
    assert!(uncut[0].id.as_ref().unwrap().starts_with("r~snapshot6~"), "{uncut:?}");
    assert!(uncut.len() > 8, "{uncut:?}");
    posts.check_every_cut(&server, &uncut).await;
    posts.check_every_cut(&server.restart().await, &uncut).await;
}

/// `TanStack` AI asks after a reload what there is in a thread, and joins it.
#[tokio::test]
async fn a_client_that_only_knows_its_thread_finds_and_joins_the_run() {
    let server = TestServer::new();
    let made = json!({"id": "t", "agent": "external"}).to_string();
    assert_eq!(server.ask("POST", "/v1/sessions", &made, None).await.status, 201);
    let find = async |query: &str| {
        let answer = server.ask("GET", &format!("/ag-ui/external?{query}"), "", None).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        serde_json::from_str::<Value>(&answer.text).unwrap()
    };
    let found = find("threadId=t&limit=20&history=client").await;
    assert_eq!(found, json!({"messages": [], "activeRun": {"runId": "t"}}));
    for unknown in ["u", "a%20b", ""] {
        let found = find(&format!("threadId={unknown}")).await;
        assert_eq!(found, json!({"messages": [], "activeRun": null}));
    }
    let (before, after) = (published()[..6].to_vec(), published()[6..].to_vec());
    for event in before {
        server.publish("t", &event).await;
    }
    let joins = Client::gets("/ag-ui/external?runId=t&offset=-1".to_owned());
    let opened = server.open(joins.method, &joins.path, &joins.body, None).await;
    for event in after {
        server.publish("t", &event).await;
    }
    let bytes = axum::body::to_bytes(opened.into_body(), usize::MAX).await.unwrap();
    let uncut = frames(std::str::from_utf8(&bytes).unwrap());
    let kinds: Vec<Value> = uncut
        .iter()
        .map(|frame| serde_json::from_str::<Value>(&frame.data).unwrap()["type"].take())
        .collect();
    assert_eq!((&kinds[0], kinds.last().unwrap()), (&json!("RUN_STARTED"), &json!("RUN_FINISHED")));
    assert!(kinds.contains(&json!("MESSAGES_SNAPSHOT")), "{kinds:?}");
    joins.check_every_cut(&server, &uncut).await;
    // A page that keeps the ids of its runs names its thread in the address.
    let named = Client::gets("/ag-ui/external?threadId=t&runId=own-7&offset=-1".to_owned());
    let named = named.ask(&server, None).await;
    assert!(named.frames()[0].data.contains("own-7"), "{}", named.text);
    for (query, status) in
        [("runId=own-7&offset=-1", 404), ("runId=a%20b", 404), ("offset=-1", 400)]
    {
        let answer = server.ask("GET", &format!("/ag-ui/external?{query}"), "", None).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
    }
    let wrong = server.ask("GET", "/ag-ui/demo?threadId=t", "", None).await;
    assert_eq!((wrong.status, wrong.error_kind().as_str()), (409, "wrong_agent"));
}

#[tokio::test]
async fn workflow_transports_get_the_last_frames_and_their_number() {
    let server = TestServer::new();
    let uncut = Client::posts("ai-sdk/demo", &chat("c", "long 30")).ask(&server, None).await;
    let run = uncut.header("x-workflow-run-id").to_owned();
    let uncut = uncut.frames();
    // They do not count `[DONE]`.
    let chunks = uncut.len() - 1;
    for (start, from) in [(-1, chunks - 1), (-5, chunks - 5), (-1000, 0)] {
        let path = format!("/ai-sdk/demo/{run}/stream?startIndex={start}");
        let rest = server.ask("GET", &path, "", None).await;
        assert_eq!(rest.header("x-workflow-stream-tail-index"), (chunks - 1).to_string());
        assert_eq!(rest.frames(), uncut[from..], "{start}");
    }
    // With the id of the chat it is the last reply, if the client has a part of it.
    let get = async |query: &str| {
        server.ask("GET", &format!("/ai-sdk/demo/c/stream{query}"), "", None).await
    };
    assert_eq!(get("?startIndex=3").await.frames(), uncut[3..]);
    for query in ["", "?startIndex=0", "?startIndex=-3"] {
        assert_eq!(get(query).await.status, 204, "{query}: no reply runs");
    }
    assert_eq!(get("?startIndex=x").await.status, 400);
    for run in ["c~", "c~r", "c~r~start~1", "c~nobody~start", "c~r~after999", "d~r~start"] {
        let missing = server.ask("GET", &format!("/ai-sdk/demo/{run}/stream"), "", None).await;
        assert_eq!(missing.status, 404, "{run}: {}", missing.text);
    }
}

#[tokio::test]
async fn ids_of_other_frames_are_refused_and_store_nothing() {
    let server = TestServer::new();
    for (path, body, session) in
        [("/ai-sdk/demo", chat("c", "hello"), "c"), ("/ag-ui/demo", run("t", &says("hello")), "t")]
    {
        let body = body.to_string();
        let missing = server.ask("POST", path, &body, Some("r~start~1")).await;
        assert_eq!(missing.status, 404, "there is no session: {}", missing.text);
        let first = server.ask("POST", path, &body, None).await.frames();
        let head = server.ask("GET", &format!("/v1/sessions/{session}"), "", None).await.text;
        for (id, status, kind) in [
            ("7", 400, "invalid_last_event_id"),
            ("e1.7", 400, "invalid_last_event_id"),
            ("nobody~start~1", 404, "not_found"),
            // A message of the user is not a reply.
            ("m~start~1", 404, "not_found"),
            ("nobody~after99999~1", 404, "not_found"),
            ("~snapshot99999~1", 404, "not_found"),
        ] {
            let refused = server.ask("POST", path, &body, Some(id)).await;
            assert_eq!(
                (refused.status, &*refused.error_kind()),
                (status, kind),
                "{id}: {}",
                refused.text
            );
        }
        // A number beyond the end has nothing after it.
        let beyond = first[0].id.as_ref().unwrap().replace("~0", "~99999");
        assert_eq!(server.ask("POST", path, &body, Some(&beyond)).await.frames(), []);
        let now = server.ask("GET", &format!("/v1/sessions/{session}"), "", None).await.text;
        assert_eq!(now, head, "nothing was stored");
    }
}

#[tokio::test]
async fn to_continue_a_response_needs_the_right_to_read() {
    use sha2::{Digest, Sha256};
    use std::fmt::Write as _;
    let hash = Sha256::digest("chat").iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let settings = format!(
        "[[auth.tokens]]\ntenant = \"default\"\nsha256 = \"{hash}\"\nscopes = [\"chat\"]\n"
    );
    let server = TestServer::over(test_store(), &settings, "chat");
    for (path, body) in
        [("/ai-sdk/demo", chat("c", "hello")), ("/ag-ui/demo", run("t", &says("hello")))]
    {
        let body = body.to_string();
        let first = server.ask("POST", path, &body, None).await.frames();
        let refused = server.ask("POST", path, &body, first[0].id.as_deref()).await;
        assert_eq!(refused.status, 403, "{}", refused.text);
    }
}

/// The frames at the end of a response whose reply waits for the client are left out, too.
#[tokio::test]
async fn an_openai_response_that_waits_continues_after_every_number() {
    let server = TestServer::new();
    let body = json!({"model": "demo", "input": "browser", "stream": true}).to_string();
    let uncut = server.ask("POST", "/v1/responses", &body, None).await.frames();
    let data: Vec<Value> =
        uncut.iter().map(|frame| serde_json::from_str(&frame.data).unwrap()).collect();
    let id = data[0]["response"]["id"].as_str().unwrap();
    assert_eq!(data.last().unwrap()["type"], "response.completed");
    for (at, frame) in data.iter().enumerate() {
        let after = &frame["sequence_number"];
        let path = format!("/v1/responses/{id}?stream=true&starting_after={after}");
        assert_eq!(server.ask("GET", &path, "", None).await.frames(), uncut[at + 1..], "{after}");
    }
}
