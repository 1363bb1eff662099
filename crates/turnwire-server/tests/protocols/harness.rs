//! An agent in the place of a model, and somebody who asks it: what chat completions and Messages have
//! in common.

use crate::test_store::test_store;
use async_trait::async_trait;
use axum::body::Body;
use axum::{Extension, Router};
use http::{HeaderMap, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tower::ServiceExt;
use turnwire_agent::{AgentError, DemoAgent, Journal, Replier, ReplyRequest};
use turnwire_core::{Event, Msg, Role, ToolCall, ToolCallState, ToolResult};
use turnwire_log::store::{SessionQuery, SessionStatus};
use turnwire_log::{Log, Session};
use turnwire_server::App;
use turnwire_server::auth::Auth;
use turnwire_server::config::Config;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct TestServer {
    pub app: Arc<App>,
    auth: Auth,
    path: &'static str,
    router: Router,
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Answer {
    pub fn session(&self) -> &str {
        self.headers["turnwire-session"].to_str().unwrap()
    }

    /// The sentence of an error.
    pub fn error_message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }
}

impl TestServer {
    /// With a path that is asked. The tokens are `all`, `mine`, which reaches only sessions that begin
    /// so, and `other`, of another tenant; `ann` and `ben` are people of one tenant.
    pub fn new(path: &'static str) -> Self {
        Self::with_settings(path, "")
    }

    pub fn with_settings(path: &'static str, more: &str) -> Self {
        let hash = |token: &str| {
            use sha2::{Digest, Sha256};
            let bytes = Sha256::digest(token);
            bytes
                .iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .filter_map(|digit| char::from_digit(digit.into(), 16))
                .collect::<String>()
        };
        let settings = format!(
            "[[auth.tokens]]\ntenant = \"default\"\nsha256 = \"{}\"\nscopes = [\"admin\"]\n\
             [[auth.tokens]]\ntenant = \"default\"\nsha256 = \"{}\"\nscopes = [\"read\", \"chat\"]\n\
             sessions = [\"mine*\"]\n\
             [[auth.tokens]]\ntenant = \"other\"\nsha256 = \"{}\"\nscopes = [\"admin\"]\n\
             [[auth.tokens]]\ntenant = \"default\"\nsha256 = \"{}\"\nscopes = [\"admin\"]\nsubject = \"ann\"\n\
             [[auth.tokens]]\ntenant = \"default\"\nsha256 = \"{}\"\nscopes = [\"admin\"]\nsubject = \"ben\"\n{more}",
            hash("all"),
            hash("mine"),
            hash("other"),
            hash("ann"),
            hash("ben"),
        );
        let config = Config::parse("test", &settings).unwrap();
        let auth = Auth::new(&config, |_| None).unwrap();
        let agents: [(_, Arc<dyn Replier>); 4] = [
            ("mirror", Arc::new(MirrorAgent)),
            ("asker", Arc::new(CallingAgent)),
            ("twin", Arc::new(CallingAgent)),
            ("demo", Arc::new(DemoAgent::with_rate(0.0))),
        ];
        let agents: BTreeMap<_, _> =
            agents.into_iter().map(|(name, agent)| (name.to_owned(), agent)).collect();
        let log = Arc::new(Log::new(test_store(), "test"));
        let app = App::new(config, log, agents).unwrap();
        let router = crate::checked_router::checked_router(app.clone());
        Self { app, auth, path, router }
    }

    pub async fn send(
        &self,
        token: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::post(path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.answer(token, request.body(body.into()).unwrap()).await
    }

    pub async fn delete(&self, token: &str, path: &str) -> Answer {
        self.answer(token, Request::delete(path).body(Body::empty()).unwrap()).await
    }

    async fn answer(&self, token: &str, request: Request<Body>) -> Answer {
        let caller = self.auth.authenticate_token(token).unwrap();
        let router = self.router.clone().layer(Extension(caller));
        let answered = async {
            let response = router.oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let body = serde_json::from_str(&text).unwrap_or_default();
            Answer { status: parts.status.as_u16(), headers: parts.headers, body, text }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("it takes too long")
    }

    /// Sends a request, and leaves before the response.
    pub async fn send_and_leave(&self, token: &str, path: &str, body: impl Into<Body>) -> String {
        let request = Request::post(path).header("content-type", "application/json");
        let caller = self.auth.authenticate_token(token).unwrap();
        let router = self.router.clone().layer(Extension(caller));
        let response = router.oneshot(request.body(body.into()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        response.headers()["turnwire-session"].to_str().unwrap().to_owned()
    }

    /// Waits until a reply has ended.
    pub async fn until_idle(&self, session: &str) {
        let session = self.session(session).await;
        let mut head = session.watch_head();
        head.wait_for(|head| head.status == SessionStatus::Idle).await.unwrap();
    }

    /// Asks, with everything allowed.
    pub async fn ask(&self, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send("all", self.path, headers, body.to_string()).await
    }

    /// Begins a session in our own words.
    pub async fn begin(&self, session: &str, agent: &str, text: &str) {
        let made = json!({"id": session, "agent": agent}).to_string();
        assert_eq!(self.send("all", "/v1/sessions", &[], made).await.status, 201);
        let path = format!("/v1/sessions/{session}/messages");
        let body = json!({"content": text}).to_string();
        assert_eq!(self.send("all", &path, &[], body).await.status, 202);
    }

    pub async fn session(&self, id: &str) -> Arc<Session> {
        let key = self.auth.authenticate_token("all").unwrap().session_key(id).unwrap();
        self.app.log.open_session(&key).await.unwrap().unwrap()
    }

    async fn until_waiting(&self, session: &str) {
        let mut head = self.session(session).await.watch_head();
        let waiting = head.wait_for(|head| head.status == SessionStatus::Waiting);
        tokio::time::timeout(PATIENCE, waiting).await.expect("it takes too long").unwrap();
    }

    /// How many sessions there are.
    pub async fn sessions(&self) -> usize {
        let query = SessionQuery::latest(
            self.auth.authenticate_token("all").unwrap().tenant().clone(),
            1000,
        );
        self.app.log.list_sessions(&query).await.unwrap().len()
    }
}

/// Answers with the conversation that it is given, and a number that never repeats.
struct MirrorAgent;

#[async_trait]
impl Replier for MirrorAgent {
    fn description(&self) -> &'static str {
        "Repeats"
    }

    fn model_name(&self) -> &'static str {
        "none"
    }

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        static ANSWERS: AtomicUsize = AtomicUsize::new(0);
        let number = ANSWERS.fetch_add(1, Ordering::Relaxed);
        let told = |msg: &Msg| match msg.role() {
            Role::User => msg.text("+").unwrap_or_default(),
            Role::Assistant | Role::System | Role::Tool => {
                let calls = msg.blocks::<ToolCall>().map(|call| call.name.as_str());
                let results = msg.blocks::<ToolResult>().map(|result| result.output.text(""));
                let tools: Vec<String> = calls.map(str::to_owned).chain(results).collect();
                let text = msg.text("").unwrap_or_default();
                let short = text.rsplit('#').next().unwrap_or_default().to_owned();
                tools.into_iter().chain([short]).collect::<Vec<_>>().join("+")
            }
        };
        let seen: Vec<String> = turn.history.iter().map(told).collect();
        let lines = text(&format!("{} #{number}", seen.join(" | ")));
        let events = lines.iter().map(|line| event(&turn.reply_id, line));
        journal.commit(events.collect()).await
    }
}

/// A call id as providers make them.
pub const RANDOM_CALL: &str = "call_9f3b1c77d20e4a6c8b51";

/// Has the client execute `c1` ([`RANDOM_CALL`] with `random`); then asks a person about `c2` and has the client execute `c3` at the
/// same time; then says what came of it. With `two` there are `c1` and `d1` at first. With `team` it is
/// a sub-agent that has the client execute `s1`.
struct CallingAgent;

#[async_trait]
impl Replier for CallingAgent {
    fn description(&self) -> &'static str {
        "Asks"
    }

    fn model_name(&self) -> &'static str {
        "none"
    }

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        let wish = turn.history.last().and_then(|msg| msg.text("")).unwrap_or_default();
        if wish == "team" {
            return team(&turn, journal).await;
        }
        let state = |id: &str| {
            let partial = turn.partial.as_ref()?;
            let call = partial.blocks::<ToolCall>().find(|call| call.id == id)?;
            Some(call.state.clone())
        };
        let first = if wish == "random" { RANDOM_CALL } else { "c1" };
        let lines = match (state(first), state("c2"), state("c3")) {
            (None, ..) => {
                let ids: &[&str] = if wish == "two" { &["c1", "d1"] } else { &[first] };
                let mut lines = calls(ids);
                lines.push(require("REQUIRE_EXTERNAL_EXECUTION", ids));
                lines
            }
            (Some(_), None, _) if wish == "both" => {
                let mut lines = calls(&["c2", "c3"]);
                lines.push(require("REQUIRE_USER_CONFIRM", &["c2"]));
                lines.push(require("REQUIRE_EXTERNAL_EXECUTION", &["c3"]));
                lines
            }
            (_, Some(ToolCallState::Asking), _) | (_, _, Some(ToolCallState::Submitted)) => {
                Vec::new()
            }
            _ => answer_with_results(turn.partial.as_ref()),
        };
        let events = lines.iter().map(|line| event(&turn.reply_id, line));
        journal.commit(events.collect()).await
    }
}

fn event(reply: &str, line: &str) -> Event<'static> {
    Event::from_json(&format!(r#"{{"reply_id":"{reply}",{line}}}"#)).unwrap().into_owned()
}

async fn team(turn: &ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
    let (own, sub) = (&turn.reply_id, format!("{}-sub", turn.reply_id));
    let path = r#""agent_path":"asker/helper","parent_tool_call_id":"c9""#;
    let mut events = Vec::new();
    if turn.partial.is_none() {
        events.extend(calls(&["c9"]).iter().map(|line| event(own, line)));
        let start = r#""type":"TOOL_RESULT_START","tool_call_name":"f","tool_call_id":"c9""#;
        events.push(event(own, start));
        let mut lines = vec![r#""type":"REPLY_START","name":"helper""#.to_owned()];
        lines.extend(calls(&["s1"]));
        lines.push(require("REQUIRE_EXTERNAL_EXECUTION", &["s1"]));
        events.extend(lines.iter().map(|line| event(&sub, &format!("{path},{line}"))));
    } else {
        let end = r#""type":"REPLY_END","finished_reason":"completed""#;
        events.push(event(&sub, &format!("{path},{end}")));
        let done = r#""type":"TOOL_RESULT_TEXT_DELTA","delta":"helped","tool_call_id":"c9""#;
        events.push(event(own, done));
        events
            .push(event(own, r#""type":"TOOL_RESULT_END","state":"success","tool_call_id":"c9""#));
        events.extend(text("helped").iter().map(|line| event(own, line)));
    }
    journal.commit(events).await
}

fn calls(ids: &[&str]) -> Vec<String> {
    let call = |id: &&str| {
        let start = r#""type":"TOOL_CALL_START","tool_call_name":"f","tool_call_id""#;
        let delta = r#""type":"TOOL_CALL_DELTA","delta":"{}","tool_call_id""#;
        let end = r#""type":"TOOL_CALL_END","tool_call_id""#;
        [start, delta, end].map(|line| format!(r#"{line}:"{id}""#))
    };
    ids.iter().flat_map(call).collect()
}

fn require(kind: &str, ids: &[&str]) -> String {
    let call =
        |id: &&str| json!({"type": "tool_call", "id": id, "name": "f", "input": "{}"}).to_string();
    let list: Vec<String> = ids.iter().map(call).collect();
    format!(r#""type":"{kind}","tool_calls":[{}]"#, list.join(","))
}

/// The rest of a reply that repeats its tool results.
fn answer_with_results(partial: Option<&Msg>) -> Vec<String> {
    let results = partial.into_iter().flat_map(Msg::blocks::<ToolResult>);
    let texts: Vec<String> = results.map(|result| result.output.text("")).collect();
    text(&texts.join(", "))
}

/// The rest of a reply with one text.
fn text(text: &str) -> Vec<String> {
    let delta = serde_json::to_string(text).unwrap();
    vec![
        r#""type":"TEXT_BLOCK_START","block_id":"b""#.to_owned(),
        format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":{delta}"#),
        r#""type":"TEXT_BLOCK_END","block_id":"b""#.to_owned(),
        r#""type":"REPLY_END","finished_reason":"completed""#.to_owned(),
    ]
}

/// How requests and responses of a protocol look.
pub struct ProtocolCase {
    pub path: &'static str,
    /// A message with the results of these calls.
    pub results: fn(&[(&str, &str)]) -> Vec<Value>,
    /// The calls of an answer.
    pub calls: fn(&Value) -> Vec<String>,
    /// Its text.
    pub text: fn(&Value) -> String,
    /// The messages that a client adds to its history after a response.
    pub to_history: fn(&Value) -> Vec<Value>,
    /// What a request calls its messages.
    pub messages: &'static str,
}

impl ProtocolCase {
    pub fn ask(&self, agent: &str, messages: &[Value]) -> Value {
        json!({"model": agent, "max_tokens": 9, self.messages: messages})
    }

    fn bring(&self, results: &[(&str, &str)]) -> Value {
        self.ask("asker", &(self.results)(results))
    }
}

pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// What no client would send is refused, and nothing is stored.
pub async fn nonsense_is_refused(case: &ProtocolCase) {
    let server = TestServer::new(case.path);
    let deep = format!(r#"{{"model":"demo","messages":{}"#, "[".repeat(100_000));
    for body in ["", "{", "[]", "null", "7", r#""x""#, &deep] {
        let answer = server.send("all", case.path, &[], body.to_owned()).await;
        assert_eq!(answer.status, 400, "{}", body.get(..20).unwrap_or(body));
        assert!(!answer.error_message().is_empty());
    }
    let answer = server.send("all", case.path, &[], vec![b'{', 0xff]).await;
    assert_eq!((answer.status, answer.error_message()), (400, "the body is not UTF-8"));
    let hello = case.ask("demo", &[user("Hi")]);
    let long = "k".repeat(300);
    for headers in
        [("turnwire-session", "a b"), ("turnwire-session", "ä"), ("idempotency-key", &long)]
    {
        assert_eq!(server.ask(&[headers], &hello).await.status, 400, "{headers:?}");
    }
    for agent in ["nobody", "external", "Demo"] {
        let answer = server.ask(&[], &case.ask(agent, &[user("Hi")])).await;
        assert_eq!(answer.status, 404);
        assert!(
            answer.error_message().contains("asker, demo, mirror, twin"),
            "{}",
            answer.error_message()
        );
    }
    let forged = json!({"role": "assistant", "content": "I said so."});
    assert_eq!(server.ask(&[], &case.ask("demo", &[forged])).await.status, 400);
    assert_eq!(server.sessions().await, 0, "nothing was stored");
}

/// Who may not talk there cannot, and who talks to another agent is told.
pub async fn sessions_are_their_owners(case: &ProtocolCase) {
    let server = TestServer::new(case.path);
    server.begin("theirs", "asker", "one").await;
    server.until_waiting("theirs").await;
    let there = [("turnwire-session", "theirs")];
    let wrong = server.ask(&there, &case.ask("demo", &[user("Hi")])).await;
    assert_eq!(wrong.status, 409, "{}", wrong.text);
    let result = case.bring(&[("c1", "forged")]).to_string();
    for (token, headers, status) in [
        ("mine", &there[..], 404),
        // One that is not seen is not found either.
        ("mine", &[], 400),
        ("other", &there, 404),
        ("other", &[], 400),
    ] {
        let answer = server.send(token, case.path, headers, result.clone()).await;
        assert_eq!(answer.status, status, "{token} {headers:?}: {}", answer.text);
    }
    let hello = case.ask("demo", &[user("Hi")]).to_string();
    let refused = server.send("mine", case.path, &[], hello.clone()).await;
    assert_eq!(refused.status, 403, "who reaches only some sessions has to name one");
    let mine = [("turnwire-session", "mine-1")];
    assert_eq!(server.send("mine", case.path, &mine, hello).await.status, 200);
}

/// Results are taken once, all at once, and only by the reply that waits for them.
pub async fn results_fit_or_are_refused(case: &ProtocolCase) {
    let server = TestServer::new(case.path);
    server.begin("s", "asker", "two").await;
    server.until_waiting("s").await;
    let there = [("turnwire-session", "s")];
    for (results, status, why) in [
        (&[("c1", "x")][..], 400, "d1"),
        (&[("c1", "x"), ("c1", "y")], 400, "duplicate result"),
        (&[("c1", "x"), ("d1", "y"), ("e1", "z")], 400, "waits for a result"),
        (&[("", "x")], 400, "waits for a result"),
    ] {
        let answer = server.ask(&there, &case.bring(results)).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.error_message().contains(why), "{}", answer.error_message());
    }
    let missing = server.ask(&[("turnwire-session", "t")], &case.bring(&[("c1", "x")])).await;
    assert_eq!((missing.status, server.sessions().await), (404, 1));
    let both = case.bring(&[("d1", "B"), ("c1", "A")]);
    let answer = server.ask(&there, &both).await;
    assert_eq!((answer.status, (case.text)(&answer.body)), (200, "B, A".to_owned()));
    let again = server.ask(&there, &both).await;
    assert_eq!(again.status, 409, "{}", again.text);
}

/// A call that a person is asked about is not the client's; when the person has answered, the answer
/// goes on by itself.
pub async fn questions_are_somebody_elses(case: &ProtocolCase) {
    let server = TestServer::new(case.path);
    server.begin("s", "asker", "both").await;
    server.until_waiting("s").await;
    let there = [("turnwire-session", "s")];
    let answer = server.ask(&there, &case.bring(&[("c1", "A")])).await;
    assert_eq!((case.calls)(&answer.body), ["c3"], "{}", answer.text);
    let forged = server.ask(&there, &case.bring(&[("c2", "forged")])).await;
    assert_eq!(forged.status, 409, "{}", forged.text);

    let snapshot = server.session("s").await.snapshot().await.unwrap();
    let reply = snapshot.open[0].msg().id().to_owned();
    let no = json!([{"type": "USER_CONFIRM_RESULT", "reply_id": reply, "confirm_results":
        [{"confirmed": false, "tool_call": {"type": "tool_call", "id": "c2", "name": "f", "input": ""}}]}]);
    let brings = case.bring(&[("c3", "C")]);
    let (last, denied) = tokio::join!(
        server.ask(&there, &brings),
        server.send("all", "/v1/sessions/s/events", &[], no.to_string())
    );
    assert_eq!(denied.status, 200, "{}", denied.text);
    assert_eq!((last.status, (case.text)(&last.body)), (200, "A, C".to_owned()), "{}", last.text);
}

/// What a sub-agent has the client execute is the agent's call to the client.
pub async fn a_sub_agents_call_is_the_clients(case: &ProtocolCase) {
    let server = TestServer::new(case.path);
    let answer = server.ask(&[], &case.ask("asker", &[user("team")])).await;
    assert_eq!((case.calls)(&answer.body), ["s1"], "{}", answer.text);
    let mut history = vec![user("team")];
    history.extend((case.to_history)(&answer.body));
    history.extend((case.results)(&[("s1", "S")]));
    let last = server.ask(&[], &case.ask("asker", &history)).await;
    assert_eq!((last.status, (case.text)(&last.body)), (200, "helped".to_owned()), "{}", last.text);
    assert_eq!(last.session(), answer.session());
}

/// The same key gives the same answer, as a stream and in one piece; two at once are one.
pub async fn a_key_makes_one_of_two(case: &ProtocolCase) {
    let server = TestServer::new(case.path);
    let hello = case.ask("demo", &[user("Hi")]);
    let key = [("idempotency-key", "k1")];
    let (one, two) = tokio::join!(server.ask(&key, &hello), server.ask(&key, &hello));
    assert_eq!((one.status, two.status), (200, 200));
    assert_eq!((one.session(), &one.text), (two.session(), &two.text));
    assert_eq!(server.sessions().await, 1);
    // Somebody else's key of the same name is another one.
    let theirs = server.send("other", case.path, &key, hello.to_string()).await;
    assert_ne!(theirs.text, one.text);
    assert_eq!(server.ask(&key, &case.ask("demo", &[user("Ho")])).await.status, 422);
}
