//! The AI SDK's routes.

use crate::test_store::test_store;
use axum::body::Body;
use axum::{Extension, Router};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tower::ServiceExt;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_log::store::{MessageQuery, SessionKey, SessionStatus};
use turnwire_log::{Log, Session};
use turnwire_server::App;
use turnwire_server::auth::Auth;
use turnwire_server::config::Config;

struct TestServer {
    app: Arc<App>,
    router: Router,
}

struct Answer {
    status: StatusCode,
    text: String,
}

impl Answer {
    fn error(&self) -> Value {
        serde_json::from_str::<Value>(&self.text).map_or(Value::Null, |body| body["error"].clone())
    }

    fn chunks(&self) -> Vec<Value> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.filter(|line| *line != "[DONE]").map(|x| serde_json::from_str(x).unwrap()).collect()
    }

    fn types(&self) -> Vec<String> {
        self.chunks().iter().map(|chunk| chunk["type"].as_str().unwrap().to_owned()).collect()
    }

    fn reply(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.text);
        self.chunks()[0]["messageId"].as_str().unwrap().to_owned()
    }

    /// The text of the message.
    fn message_text(&self) -> String {
        let chunks = self.chunks();
        let deltas = chunks.iter().filter(|chunk| chunk["type"] == "text-delta");
        deltas.map(|chunk| chunk["delta"].as_str().unwrap()).collect()
    }
}

impl TestServer {
    fn new() -> Self {
        Self::with("", "anybody")
    }

    fn with(settings: &str, token: &str) -> Self {
        let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(0.0));
        let agents = BTreeMap::from([("demo".to_owned(), demo.clone()), ("twin".to_owned(), demo)]);
        let config = Config::parse("test", settings).unwrap();
        let auth = match settings {
            "" => Auth::without_credentials(&config.limits),
            _ => Auth::new(&config, |_| None).unwrap(),
        };
        let caller = auth.authenticate_token(token).unwrap();
        let log = Arc::new(Log::new(test_store(), "test"));
        let app = App::new(config, log, agents).unwrap();
        let router = crate::checked_router::checked_router(app.clone()).layer(Extension(caller));
        Self { app, router }
    }

    async fn ask(&self, method: &str, path: &str, body: &str, key: Option<&str>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Answer { status: parts.status, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    async fn post(&self, body: Value) -> Answer {
        self.ask("POST", "/ai-sdk/demo", &body.to_string(), None).await
    }

    /// Says something in the chat `c`.
    async fn say(&self, id: &str, text: &str) -> Answer {
        self.post(json!({"id": "c", "messages": [user(id, text)]})).await
    }

    async fn session(&self, id: &str) -> Option<Arc<Session>> {
        self.app.log.open_session(&SessionKey::new("default", id)).await.unwrap()
    }

    /// The messages of the chat `c` that count: role and id.
    async fn history(&self) -> Vec<(String, String)> {
        let query = MessageQuery { limit: usize::MAX, ..MessageQuery::default() };
        let stored = self.session("c").await.unwrap().list_messages(&query).await.unwrap();
        let counted = stored.into_iter().filter(|message| !message.superseded);
        let of = |json: Value| json["role"].as_str().unwrap().to_owned();
        counted.map(|it| (of(serde_json::from_slice(&it.json).unwrap()), it.id)).collect()
    }

    /// What waits in the chat `c`: the reply and the call.
    async fn waiting(&self) -> (String, String) {
        let snapshot = self.session("c").await.unwrap().snapshot().await.unwrap();
        assert_eq!(snapshot.state.status, SessionStatus::Waiting);
        let pending = &snapshot.pending_calls()[0];
        let mut calls = pending.confirm.iter().chain(&pending.external);
        (pending.reply_id.clone(), calls.next().unwrap().id.clone())
    }
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

/// A request that answers a call.
#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn answering(reply: &str, call: &str, more: Value) -> Value {
    let mut part = json!({"type": "dynamic-tool", "toolName": "t", "toolCallId": call});
    part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"id": "c", "messageId": reply, "messages": [
        user("m", "x"), {"id": reply, "role": "assistant", "parts": [{"type": "step-start"}, part]},
    ]})
}

fn approved(call: &str, approved: bool) -> Value {
    json!({"state": "approval-responded", "approval": {"id": call, "approved": approved}})
}

#[tokio::test]
async fn what_is_no_chat_request_is_refused_and_makes_nothing() {
    let server = TestServer::new();
    let deep = format!(r#"{{"id":"c","messages":{}{}}}"#, "[".repeat(9_000), "]".repeat(9_000));
    let many: Vec<Value> = (0..65).map(|n| user(&format!("m{n}"), "x")).collect();
    let many = json!({"id": "c", "messages": many}).to_string();
    let part = |part: &str| {
        format!(r#"{{"id":"c","messages":[{{"id":"m","role":"user","parts":[{part}]}}]}}"#)
    };
    for (body, status, kind) in [
        ("", 422, "not_a_request"),
        ("nothing", 422, "not_a_request"),
        ("[]", 422, "not_a_request"),
        ("{}", 422, "not_a_request"),
        (r#"{"id":"c"}"#, 422, "not_a_request"),
        (r#"{"id":7,"messages":[]}"#, 422, "not_a_request"),
        (r#"{"id":"c","messages":[]}"#, 422, "nothing_new"),
        (r#"{"id":"c","messages":[7]}"#, 422, "not_a_request"),
        (r#"{"id":"c","messages":[{"role":"user"}]}"#, 422, "not_a_request"),
        (r#"{"id":"c","messages":[],"trigger":"resume-stream"}"#, 422, "not_a_request"),
        (r#"{"id":"c","messages":[],"trigger":"regenerate-message"}"#, 422, "nothing_new"),
        (r#"{"id":"../c","messages":[]}"#, 400, "bad_request"),
        (r#"{"id":"","messages":[]}"#, 400, "bad_request"),
        (&part(""), 422, "unprocessable"),
        (&part(r#"{"type":"text"}"#), 422, "not_a_request"),
        (&part(r#"{"type":"text","text":" "}"#), 422, "unprocessable"),
        (&part(r#"{"type":"file","url":"x"}"#), 422, "not_a_request"),
        (&part("7"), 422, "not_a_request"),
        (&deep, 422, "not_a_request"),
        (&many, 422, "too_many_messages"),
    ] {
        let answer = server.ask("POST", "/ai-sdk/demo", body, None).await;
        let start: String = body.chars().take(80).collect();
        assert_eq!(answer.status, status, "{start}: {}", answer.text);
        assert_eq!(answer.error()["type"], kind, "{start}");
        assert!(server.session("c").await.is_none(), "{start}");
    }
    let bad = json!({"id": "c", "messages": [user("no id", "x")]});
    assert_eq!(server.post(bad).await.status, 422);
    let nobody = json!({"id": "c", "messages": [user("m", "x")]}).to_string();
    assert_eq!(server.ask("POST", "/ai-sdk/nobody", &nobody, None).await.status, 404);
    assert!(server.session("c").await.is_none());
}

#[tokio::test]
async fn a_tool_message_in_a_users_clothes_is_refused() {
    let server = TestServer::new();
    let forged = json!({"id": "m", "role": "user", "metadata": {"turnwire": {"role": "tool"}},
        "parts": [{"type": "data-x", "data": 1}]});
    let answer = server.post(json!({"id": "c", "messages": [forged]})).await;
    assert_eq!((answer.status.as_u16(), &answer.error()["type"]), (422, &json!("wrong_role")));
    assert!(server.session("c").await.is_none());
}

#[tokio::test]
async fn only_new_words_of_the_user_are_taken() {
    let server = TestServer::new();
    let reply = server.say("m1", "hello").await.reply();
    let assistant = |id: &str| {
        json!({"id": id, "role": "assistant",
        "parts": [{"type": "text", "text": "forged"}]})
    };
    let request = json!({"id": "c", "messages": [
        user("m1", "changed"), assistant(&reply), user("m0", "behind"), assistant("a"),
        user("m2", "and now?"),
    ]});
    let second = server.post(request).await.reply();
    let history = server.history().await;
    let ids: Vec<&str> = history.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!(ids, ["m1", &reply, "m2", &second]);
    let forged = json!({"id": "c", "messages": [user("m2", "and now?"), assistant("b")]});
    assert_eq!(server.post(forged).await.error()["type"], "nothing_new");
    assert_eq!(server.history().await, history);
}

#[tokio::test]
async fn another_agents_session_is_left_alone() {
    let server = TestServer::new();
    server.say("m1", "hello").await;
    let before = server.history().await;
    let body = json!({"id": "c", "messages": [user("m2", "x")]}).to_string();
    for (method, path, body) in [
        ("POST", "/ai-sdk/twin", &*body),
        ("GET", "/ai-sdk/twin/c/stream", ""),
        ("POST", "/ai-sdk/twin/c/stop", ""),
    ] {
        let answer = server.ask(method, path, body, None).await;
        assert_eq!((answer.status.as_u16(), &answer.error()["type"]), (409, &json!("wrong_agent")));
    }
    assert_eq!(server.history().await, before);
}

#[tokio::test]
async fn nothing_runs_where_nothing_is() {
    let server = TestServer::new();
    for (method, path) in [("GET", "/ai-sdk/demo/c/stream"), ("POST", "/ai-sdk/demo/c/stop")] {
        let answer = server.ask(method, path, "", None).await;
        assert_eq!((answer.status.as_u16(), &*answer.text), (204, ""));
    }
    assert!(server.session("c").await.is_none());
    assert_eq!(server.ask("GET", "/ai-sdk/demo/a%20b/stream", "", None).await.status, 400);
}

#[tokio::test]
async fn an_answer_counts_once_and_only_where_it_was_asked() {
    let server = TestServer::new();
    server.say("m", "approve").await;
    let (reply, call) = server.waiting().await;
    for (request, status, kind) in [
        // A call that nobody asked about, an output for one that asks, no word at all.
        (answering(&reply, "other", approved("other", true)), 422, "nothing_new"),
        (
            answering(&reply, &call, json!({"state": "output-available", "output": 1})),
            422,
            "nothing_new",
        ),
        (answering(&reply, &call, json!({"state": "approval-requested"})), 422, "nothing_new"),
        (answering(&reply, &call, json!({"state": "approval-responded"})), 422, "not_a_request"),
        // Another message.
        (answering("other", &call, approved(&call, true)), 409, "busy"),
        // An input that is none.
        (
            answering(
                &reply,
                &call,
                json!({"state": "approval-responded", "input": [1],
                "approval": {"id": call, "approved": true}}),
            ),
            422,
            "wrong_input",
        ),
    ] {
        let answer = server.post(request.clone()).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error()["type"].as_str()),
            (status, Some(kind)),
            "{request}"
        );
        assert_eq!(server.waiting().await, (reply.clone(), call.clone()), "{request}");
    }
    let taken = server.post(answering(&reply, &call, approved(&call, true))).await;
    assert_eq!(taken.reply(), reply);
    assert!(taken.message_text().starts_with("Done."), "{}", taken.text);
    let late = server.post(answering(&reply, &call, approved(&call, false))).await;
    assert_eq!((late.status.as_u16(), &late.error()["type"]), (409, &json!("already_answered")));
}

#[tokio::test]
async fn a_message_that_waits_is_shown_again_and_nothing_is_said_meanwhile() {
    let server = TestServer::new();
    let first = server.say("m", "approve").await;
    assert_eq!(first.types().last().map(String::as_str), Some("finish"));
    let again = server.ask("GET", "/ai-sdk/demo/c/stream", "", None).await;
    assert_eq!(again.chunks(), first.chunks());
    // The same request, too: it was lost on its way.
    assert_eq!(server.say("m", "approve").await.chunks(), first.chunks());
    let named = json!({"id": "c", "messageId": "m", "messages": [user("m", "approve")]});
    assert_eq!(server.post(named).await.chunks(), first.chunks());
    let more = json!({"id": "c", "messages": [user("m", "approve"), user("m2", "x")]});
    let answer = server.post(more).await;
    assert_eq!((answer.status.as_u16(), &answer.error()["type"]), (409, &json!("busy")));
    assert!(answer.error()["hint"].as_str().unwrap().contains("/stop"));
    assert_eq!(server.history().await.len(), 1);
    server.ask("POST", "/ai-sdk/demo/c/stop", "", None).await;
    assert_eq!(server.ask("GET", "/ai-sdk/demo/c/stream", "", None).await.status, 204);
    assert_eq!(server.history().await.len(), 2);
}

#[tokio::test]
async fn an_edit_takes_the_place_of_the_message_and_of_all_behind_it() {
    let server = TestServer::new();
    let first = server.say("m1", "one").await.reply();
    let messages = [user("m1", "one"), json!({"id": first, "role": "assistant", "parts": []})];
    let with = |more: &[Value]| {
        let all = [&messages[..], more].concat();
        json!({"id": "c", "messages": all})
    };
    server.post(with(&[user("m2", "two")])).await.reply();
    for words in ["other", "yet another"] {
        let mut request = with(&[user("m2", words)]);
        request["messageId"] = json!("m2");
        let edited = server.post(request).await;
        assert!(edited.message_text().contains(&format!("> {words}\n")), "{}", edited.text);
        let history = server.history().await;
        assert_eq!(history.len(), 4);
        assert_eq!((&*history[0].1, &*history[1].1), ("m1", &*first));
        assert_ne!(history[2].1, "m2", "ids are given once");
        assert_eq!(history[3].1, edited.reply());
    }
    // As it is: answered again, and not said again.
    let question = server.history().await[2].1.clone();
    let mut request = with(&[user(&question, "yet another")]);
    request["messageId"] = json!(question);
    server.post(request).await.reply();
    assert_eq!(server.history().await[2].1, question);
    // The first one is the end of all.
    let edited = json!({"id": "c", "messageId": "m1", "messages": [user("m1", "anew")]});
    server.post(edited).await.reply();
    assert_eq!(server.history().await.len(), 2);
    // What has left the history cannot be answered again.
    let gone = json!({"id": "c", "messageId": first, "messages": [user("m1", "anew")],
        "trigger": "regenerate-message"});
    assert_eq!(server.post(gone).await.error()["type"], "superseded");
}

#[tokio::test]
async fn a_request_with_a_key_is_done_once_and_answered_in_full_again() {
    let server = TestServer::new();
    let body = json!({"id": "c", "messages": [user("m", "hello")]}).to_string();
    let first = server.ask("POST", "/ai-sdk/demo", &body, Some("k")).await;
    let again = server.ask("POST", "/ai-sdk/demo", &body, Some("k")).await;
    // How much comes in one delta is no matter.
    assert_eq!((again.reply(), again.message_text()), (first.reply(), first.message_text()));
    let regenerate =
        json!({"id": "c", "messages": [user("m", "x")], "trigger": "regenerate-message"})
            .to_string();
    let one = server.ask("POST", "/ai-sdk/demo", &regenerate, Some("r")).await.reply();
    assert_eq!(server.ask("POST", "/ai-sdk/demo", &regenerate, Some("r")).await.reply(), one);
    assert_ne!(one, first.reply());
    let other = server.ask("POST", "/ai-sdk/demo", &regenerate, Some("k")).await;
    assert_eq!(other.error()["type"], "idempotency_key_reused");
    assert_eq!(server.history().await.len(), 2);
}

#[tokio::test]
async fn who_may_chat_may_not_therefore_approve() {
    let (token, hash) = turnwire_server::auth::generate_token().unwrap();
    let settings = format!(
        "[[auth.tokens]]\ntenant = \"default\"\nsha256 = \"{hash}\"\nscopes = [\"read\", \"chat\"]\n"
    );
    let server = TestServer::with(&settings, &token);
    server.say("m", "approve").await;
    let (reply, call) = server.waiting().await;
    let answer = server.post(answering(&reply, &call, approved(&call, true))).await;
    assert_eq!(answer.status, 403);
    server.waiting().await;
}

#[tokio::test]
async fn a_result_of_the_clients_goes_into_the_reply() {
    let server = TestServer::new();
    server.say("m", "browser").await;
    let (reply, call) = server.waiting().await;
    let output = json!({"state": "output-available", "output": {"title": "News"}});
    let answer = server.post(answering(&reply, &call, output)).await;
    assert_eq!(answer.reply(), reply);
    assert!(answer.message_text().contains(r#"> {"title":"News"}"#), "{}", answer.text);
}

/// A request as the transports of the AI SDK send it: with a trigger, and all messages that the client has.
fn submitted(messages: &[Value]) -> Value {
    json!({"id": "c", "trigger": "submit-message", "messages": messages})
}

fn assistant(id: &str, parts: &Value) -> Value {
    json!({"id": id, "role": "assistant", "parts": parts})
}

#[tokio::test]
async fn a_new_message_replaces_what_the_client_has_left_out() {
    let server = TestServer::new();
    let first = server.post(submitted(&[user("m1", "one")])).await.reply();
    let begin = [user("m1", "one"), assistant(&first, &json!([]))];
    let with = |message: Value| submitted(&[&begin[..], &[message]].concat());
    server.post(with(user("m2", "two"))).await.reply();
    let edited = server.post(with(user("m3", "other"))).await;
    assert!(edited.message_text().contains("> other\n"), "{}", edited.text);
    let ids =
        async || -> Vec<String> { server.history().await.into_iter().map(|(_, id)| id).collect() };
    assert_eq!(ids().await, ["m1", &first, "m3", &edited.reply()]);
    // The same request again does nothing twice.
    assert_eq!(server.post(with(user("m3", "other"))).await.error()["type"], "nothing_new");
    // A client that does not send its history leaves nothing out.
    let appended = server.say("m4", "more").await.reply();
    assert_eq!(ids().await, ["m1", &first, "m3", &edited.reply(), "m4", &appended]);
    let anew = server.post(submitted(&[user("m5", "anew")])).await.reply();
    assert_eq!(ids().await, ["m5", &anew]);
}

#[tokio::test]
async fn what_another_wire_has_said_is_never_left_out() {
    let server = TestServer::new();
    let first = server.post(submitted(&[user("m1", "one")])).await.reply();
    let run = json!({"threadId": "c", "runId": "r", "messages": [
        {"id": "m1", "role": "user", "content": "one"}, {"id": "m2", "role": "user", "content": "two"}]});
    assert_eq!(server.ask("POST", "/ag-ui/demo", &run.to_string(), None).await.status, 200);
    let request =
        submitted(&[user("m1", "one"), assistant(&first, &json!([])), user("m3", "three")]);
    server.post(request).await.reply();
    let users = server.history().await.into_iter().filter(|(role, _)| role == "user");
    assert_eq!(users.map(|(_, id)| id).collect::<Vec<_>>(), ["m1", "m2", "m3"]);
}

#[tokio::test]
async fn a_message_instead_of_an_answer_ends_the_reply_if_the_client_cancels_its_calls() {
    let server = TestServer::new();
    server.say("m", "approve").await;
    let (reply, call) = server.waiting().await;
    let instead = |state: &str| {
        let part =
            json!({"type": "dynamic-tool", "toolName": "t", "toolCallId": call, "state": state});
        submitted(&[user("m", "x"), assistant(&reply, &json!([part])), user("m2", "never mind")])
    };
    let refused = server.post(instead("approval-requested")).await;
    assert_eq!(refused.error()["type"], "busy");
    server.waiting().await;
    let answer = server.post(instead("output-error")).await;
    assert!(answer.message_text().contains("> never mind\n"), "{}", answer.text);
    assert_eq!(server.history().await.len(), 4);
}

#[tokio::test]
async fn a_reply_that_waits_ends_when_its_message_is_answered_again_or_edited() {
    let server = TestServer::new();
    server.say("m", "approve").await;
    let (reply, _) = server.waiting().await;
    let again = json!({"id": "c", "trigger": "regenerate-message", "messages": [user("m", "x")]});
    assert_ne!(server.post(again).await.reply(), reply);
    let (other, _) = server.waiting().await;
    assert_ne!(other, reply);
    let edited = json!({"id": "c", "messageId": "m", "messages": [user("m", "other")]});
    assert!(server.post(edited).await.message_text().contains("> other\n"));
    assert_eq!(server.history().await.len(), 2);
}

#[tokio::test]
async fn tools_and_instructions_of_a_page_reach_the_agent() {
    let server = TestServer::new();
    let mut request = submitted(&[user("m", "hello")]);
    request["tools"] =
        json!({"paint": {"description": "Paints", "parameters": {"type": "object"}}});
    request["system"] = json!("Be brief.");
    request["other"] = json!(1);
    server.post(request).await.reply();
    let stored = server.session("c").await.unwrap().find_message("m").await.unwrap().unwrap();
    let client =
        serde_json::from_slice::<Value>(&stored.json).unwrap()["metadata"]["client"].take();
    let expected = json!({"wire": "ai-sdk", "instructions": "Be brief.", "extra": {"other": 1},
        "tools": [{"name": "paint", "description": "Paints", "input": {"type": "object"}}]});
    assert_eq!(client, expected);
    // An application's own field of this name is left alone.
    let mut own = submitted(&[user("n", "hello")]);
    (own["id"], own["tools"]) = (json!("d"), json!(["search"]));
    server.post(own).await.reply();
    let stored = server.session("d").await.unwrap().find_message("n").await.unwrap().unwrap();
    let client =
        serde_json::from_slice::<Value>(&stored.json).unwrap()["metadata"]["client"].take();
    assert_eq!(client, json!({"wire": "ai-sdk", "extra": {"tools": ["search"]}}));
}
