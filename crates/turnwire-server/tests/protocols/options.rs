//! Options and tools of clients: what the agent's model gets of them, and what the client is told about the others.

use crate::test_store::test_store;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::{Extension, Router};
use http::{HeaderMap, Request, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tower::ServiceExt;
use turnwire_log::Log;
use turnwire_log::store::SessionStatus;
use turnwire_server::auth::Auth;
use turnwire_server::config::Config;
use turnwire_server::{App, agents_from_config};

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request that the provider got.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// A provider of every protocol. It answers with a text, or with a tool call if a tool call is scripted.
#[derive(Clone, Default)]
pub(crate) struct FakeProvider {
    received: Arc<Mutex<Vec<Received>>>,
    calls: Arc<Mutex<VecDeque<(&'static str, &'static str)>>>,
}

impl FakeProvider {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let provider = self.clone();
        let handler = async move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let body: Value = serde_json::from_slice(&body).unwrap();
            provider.received.lock().push(Received { headers, body });
            let call = provider.calls.lock().pop_front();
            let kind = if uri.path() == "/api/chat" {
                "application/x-ndjson"
            } else {
                "text/event-stream"
            };
            let text = answer(uri.path(), call);
            Response::builder().header("content-type", kind).body(Body::from(text)).unwrap()
        };
        let router = Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, router).await });
        base
    }

    /// Answers the next request with this call.
    pub(crate) fn call_next(&self, name: &'static str, input: &'static str) {
        self.calls.lock().push_back((name, input));
    }

    pub(crate) fn last(&self) -> Received {
        self.received.lock().last().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.received.lock().len()
    }
}

/// A stream with the text `{"a":"b"}`, or with this tool call.
fn answer(path: &str, call: Option<(&str, &str)>) -> String {
    let text = r#"{"a":"b"}"#;
    let frames: Vec<Value> = match (path, call) {
        ("/v1/chat/completions", None) => vec![
            json!({"id": "x", "choices": [{"index": 0, "delta": {"content": text}}]}),
            json!({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ],
        ("/v1/chat/completions", Some((name, input))) => vec![
            json!({"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "id": "call_Xa81kQz", "type": "function", "function": {"name": name, "arguments": input}}]}}]}),
            json!({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        ],
        ("/v1/responses", None) => {
            let part = json!({"type": "output_text", "text": text, "annotations": []});
            let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]});
            vec![
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [item]}}),
            ]
        }
        ("/v1/responses", Some((name, input))) => {
            let item = match name {
                // The whole item.
                "item" => serde_json::from_str(input).unwrap(),
                "spawn" => {
                    json!({"type": "function_call", "id": "fc_1", "call_id": "call_Xa81kQz", "name": name,
                    "namespace": "agents", "arguments": input, "status": "completed"})
                }
                "patch" => {
                    json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_Xa81kQz", "name": name,
                    "input": input, "status": "completed"})
                }
                _ => {
                    json!({"type": "function_call", "id": "fc_1", "call_id": "call_Xa81kQz", "name": name,
                    "arguments": input, "status": "completed"})
                }
            };
            vec![
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [item]}}),
            ]
        }
        // A whole answer: its blocks and its stop reason.
        ("/v1/messages", Some(("answer", answer))) => {
            let answer: Value = serde_json::from_str(answer).unwrap();
            let mut frames = vec![
                json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}}),
            ];
            for (at, block) in answer["content"].as_array().unwrap().iter().enumerate() {
                frames.push(
                    json!({"type": "content_block_start", "index": at, "content_block": block}),
                );
                frames.push(json!({"type": "content_block_stop", "index": at}));
            }
            frames.push(json!({"type": "message_delta", "delta": {"stop_reason": answer["stop_reason"]}, "usage": {"output_tokens": 1}}));
            frames.push(json!({"type": "message_stop"}));
            frames
        }
        ("/v1/messages", call) => {
            let (block, delta, reason) = match call {
                None => (
                    json!({"type": "text", "text": ""}),
                    json!({"type": "text_delta", "text": text}),
                    "end_turn",
                ),
                Some((name, input)) => (
                    json!({"type": "tool_use", "id": "toolu_Xa81kQz", "name": name, "input": {}}),
                    json!({"type": "input_json_delta", "partial_json": input}),
                    "tool_use",
                ),
            };
            vec![
                json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": block}),
                json!({"type": "content_block_delta", "index": 0, "delta": delta}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}}),
                json!({"type": "message_stop"}),
            ]
        }
        ("/api/chat", _) => {
            return format!(
                "{}\n",
                json!({"message": {"role": "assistant", "content": text}, "done": true, "done_reason": "stop"})
            );
        }
        // The agent's model says that it cannot read this.
        (path, _) => vec![json!({"error": format!("no such path: {path}")})],
    };
    let frame = |frame: &Value| {
        let kind =
            frame["type"].as_str().map(|kind| format!("event: {kind}\n")).unwrap_or_default();
        format!("{kind}data: {frame}\n\n")
    };
    frames.iter().map(frame).collect()
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    fn ignored(&self) -> &str {
        self.headers.get("turnwire-ignored-options").map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) struct TestServer {
    app: Arc<App>,
    auth: Auth,
    router: Router,
    pub(crate) provider: FakeProvider,
}

impl TestServer {
    /// With an agent for each protocol, named after it; `own` has a system prompt and a token limit of its own.
    pub(crate) async fn new() -> Self {
        let provider = FakeProvider::default();
        let base = provider.start().await;
        let agents = [
            ("chat", "openai-chat", ""),
            ("responses", "openai-responses", ""),
            ("messages", "anthropic", ""),
            ("ollama", "ollama", ""),
            ("own", "openai-chat", "system = \"Be kind.\"\nmax_tokens = 50\ntemperature = 0.1\n"),
            ("strict", "openai-chat", "system = \"Be kind.\"\nclient_options = [\"seed\"]\n"),
            ("tool", "openai-chat", "structured_output = \"tool\"\n"),
            ("closed", "openai-chat", "client_options = \"none\"\n"),
            (
                "open",
                "openai-chat",
                "system = \"Be kind.\"\nclient_options = \"all\"\ntemperature = 0.1\n",
            ),
        ];
        let agent = |(name, wire, more): (&str, &str, &str)| {
            format!(
                "[agents.{name}]\nmodel = \"{wire}:m\"\nbase_url = \"{base}\"\nretries = 0\n{more}"
            )
        };
        let settings: String = agents.into_iter().map(agent).collect();
        let config = Config::parse("test", &settings).unwrap();
        let auth = Auth::new(&config, |_| None).unwrap();
        let agents = agents_from_config(&config).await.unwrap().agents;
        let log = Arc::new(Log::new(test_store(), "test"));
        let app = App::new(config, log, agents).unwrap();
        let router = turnwire_server::router(app.clone());
        Self { app, auth, router, provider }
    }

    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut request = Request::post(path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let caller = self.auth.authenticate_token("any").unwrap();
        let router = self.router.clone().layer(Extension(caller));
        let answered = async {
            let request = request.body(Body::from(body.to_string())).unwrap();
            let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            Answer { status: parts.status.as_u16(), headers: parts.headers, body }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("it takes too long")
    }

    async fn chat(&self, model: &str, more: &Value) -> Answer {
        let body =
            with(json!({"model": model, "messages": [{"role": "user", "content": "Hi!"}]}), more);
        self.post("/v1/chat/completions", &[], &body).await
    }

    async fn messages(&self, model: &str, more: &Value) -> Answer {
        let body =
            with(json!({"model": model, "messages": [{"role": "user", "content": "Hi!"}]}), more);
        self.post("/v1/messages", &[("anthropic-beta", "context-management-2025-06-27")], &body)
            .await
    }

    async fn responses(&self, model: &str, more: &Value) -> Answer {
        let body = with(json!({"model": model, "input": "Hi!"}), more);
        self.post("/v1/responses", &[], &body).await
    }
}

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn weather() -> Value {
    json!({"name": "get_weather", "description": "d", "strict": true, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}})
}

fn chat_tool() -> Value {
    json!({"type": "function", "function": weather()})
}

#[tokio::test]
async fn a_model_of_the_same_protocol_gets_every_option_unchanged() {
    let server = TestServer::new().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let chat = json!({
        "temperature": 0.5, "max_tokens": 100, "stop": ["END"], "seed": 3, "top_p": 0.9, "user": "ann",
        "tools": [chat_tool()], "tool_choice": "auto", "parallel_tool_calls": false, "logit_bias": {"5": 1},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": false, "schema": schema}},
        "reasoning_effort": "low", "service_tier": "flex",
    });
    let answer = server.chat("chat", &chat).await;
    assert_eq!((answer.status, answer.ignored()), (200, ""), "{}", answer.body);
    assert_eq!(answer.body["choices"][0]["message"]["content"], r#"{"a":"b"}"#);
    let seen = server.provider.last().body;
    for (name, value) in chat.as_object().unwrap() {
        assert_eq!(&seen[name], value, "{name}");
    }
    assert_eq!((&seen["model"], seen.get("max_completion_tokens")), (&json!("m"), None));

    let messages = json!({
        "max_tokens": 32000, "thinking": {"type": "adaptive", "display": "summarized"}, "top_k": 3,
        "context_management": {"edits": []}, "output_config": {"effort": "medium"}, "stop_sequences": ["END"],
        "metadata": {"user_id": "{\"session_id\":\"s\"}"},
        "tools": [
            {"name": "t", "input_schema": {"type": "object"}, "defer_loading": true, "cache_control": {"type": "ephemeral"}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        ],
    });
    let answer = server.messages("messages", &messages).await;
    assert_eq!((answer.status, answer.ignored()), (200, ""), "{}", answer.body);
    let seen = server.provider.last();
    for (name, value) in messages.as_object().unwrap() {
        assert_eq!(&seen.body[name], value, "{name}");
    }
    assert_eq!(seen.body.get("tool_choice"), None);
    assert_eq!(seen.headers["anthropic-beta"], "context-management-2025-06-27");

    // What Codex sends.
    let responses = json!({
        "store": false, "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"],
        "parallel_tool_calls": false, "tool_choice": "auto", "prompt_cache_key": "k",
        "client_metadata": {"thread_id": "t"}, "text": {"verbosity": "low"},
        "tools": [
            with(json!({"type": "function"}), &weather()),
            {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}},
            {"type": "namespace", "name": "agents", "description": "d", "tools": [
                {"type": "function", "name": "spawn", "parameters": {"type": "object", "properties": {}}}]},
            {"type": "web_search", "external_web_access": false},
            {"type": "local_shell"},
        ],
    });
    let answer = server.responses("responses", &responses).await;
    assert_eq!((answer.status, answer.ignored()), (200, ""), "{}", answer.body);
    assert_eq!(answer.body["status"], "completed", "{}", answer.body);
    let seen = server.provider.last().body;
    for (name, value) in responses.as_object().unwrap() {
        assert_eq!(&seen[name], value, "{name}");
    }
}

#[tokio::test]
async fn a_model_of_another_protocol_gets_what_it_has_and_the_client_is_told_the_rest() {
    let server = TestServer::new().await;
    let given = json!({
        "temperature": 0.5, "max_completion_tokens": 100, "stop": "END", "seed": 3, "logit_bias": {"5": 1},
        "tools": [chat_tool(), {"type": "custom", "custom": {"name": "patch"}}], "tool_choice": "required",
        "reasoning_effort": "low",
    });
    let answer = server.chat("messages", &given).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.ignored(), "seed, logit_bias");
    assert_eq!(answer.body["ignored_options"], json!(["seed", "logit_bias"]));
    let seen = server.provider.last().body;
    assert_eq!((&seen["temperature"], &seen["max_tokens"]), (&json!(0.5), &json!(100)));
    assert_eq!(
        (&seen["stop_sequences"], &seen["tool_choice"]["type"]),
        (&json!(["END"]), &json!("any"))
    );
    assert_eq!(seen["output_config"], json!({"effort": "low"}));
    assert_eq!(seen["tools"].as_array().unwrap().len(), 2);
    assert!(!server.provider.last().headers.contains_key("anthropic-beta"));

    let answer = server
        .responses(
            "chat",
            &json!({"max_output_tokens": 9, "truncation": "auto",
        "tools": [{"type": "web_search"}, with(json!({"type": "function"}), &weather())]}),
        )
        .await;
    assert_eq!(answer.ignored(), "truncation, tools.web_search");
    assert_eq!(answer.body["ignored_options"], json!(["truncation", "tools.web_search"]));
    let seen = server.provider.last().body;
    assert_eq!(seen["max_tokens"], 9);
    assert_eq!(seen["tools"], json!([chat_tool()]));

    // The message in the log says it, too.
    let path =
        format!("/v1/sessions/{}/messages", answer.headers["turnwire-session"].to_str().unwrap());
    let caller = server.auth.authenticate_token("any").unwrap();
    let router = server.router.clone().layer(Extension(caller));
    let listed = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let text = axum::body::to_bytes(listed.into_body(), usize::MAX).await.unwrap();
    assert!(
        String::from_utf8_lossy(&text)
            .contains(r#""ignored_options":["truncation","tools.web_search"]"#)
    );
}

#[tokio::test]
async fn values_that_only_a_model_of_the_same_protocol_gives_are_refused_elsewhere() {
    let server = TestServer::new().await;
    let answer = server.chat("messages", &json!({"logprobs": true})).await;
    assert_eq!((answer.status, &answer.body["error"]["code"]), (400, &json!("unsupported_option")));
    assert!(answer.body["error"]["message"].as_str().unwrap().contains("`logprobs`"));
    assert_eq!(server.chat("messages", &json!({"logprobs": false})).await.status, 200);

    let include = |value: &str| json!({"include": [value]});
    for value in ["message.output_text.logprobs", "web_search_call.action.sources"] {
        let answer = server.responses("messages", &include(value)).await;
        let error = &answer.body["error"];
        assert_eq!((answer.status, &error["code"]), (400, &json!("unsupported_option")), "{value}");
        assert!(error["message"].as_str().unwrap().contains(value), "{error}");
    }
    let reasoning = include("reasoning.encrypted_content");
    assert_eq!(server.responses("messages", &reasoning).await.status, 200);
}

#[tokio::test]
async fn a_tool_that_the_model_cannot_be_forced_to_call_is_refused() {
    let server = TestServer::new().await;
    let forced = json!({"tools": [chat_tool()], "tool_choice": "required"});
    let answer = server.chat("ollama", &forced).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(answer.body["error"]["code"], "unsupported_option");
    assert!(
        answer.body["error"]["message"].as_str().unwrap().contains("cannot require"),
        "{}",
        answer.body
    );
    let answer = server.messages("ollama", &json!({"max_tokens": 9,
        "tools": [{"name": "t", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}})).await;
    assert_eq!(
        (answer.status, &answer.body["error"]["type"]),
        (400, &json!("invalid_request_error"))
    );
    let answer = server
        .responses(
            "chat",
            &json!({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}),
        )
        .await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    for n in [0, 2] {
        let answer = server.chat("chat", &json!({"n": n})).await;
        assert_eq!(answer.status, 400);
        assert!(answer.body["error"]["message"].as_str().unwrap().contains("`n` must be 1"));
    }
    assert_eq!(server.provider.count(), 0);
}

#[tokio::test]
async fn an_agent_decides_which_options_reach_its_model() {
    let server = TestServer::new().await;
    let given =
        json!({"temperature": 0.9, "max_tokens": 40, "seed": 3, "service_tier": "flex", "x": 1});
    for (agent, ignored, temperature, limit, seed) in [
        ("own", "temperature, service_tier, x", json!(0.1), json!(40), json!(3)),
        ("strict", "temperature, max_tokens, service_tier, x", Value::Null, Value::Null, json!(3)),
        (
            "closed",
            "temperature, seed, max_tokens, service_tier, x",
            Value::Null,
            Value::Null,
            Value::Null,
        ),
        ("open", "", json!(0.9), json!(40), json!(3)),
    ] {
        let answer = server.chat(agent, &given).await;
        assert_eq!((answer.status, answer.ignored()), (200, ignored), "{agent}: {}", answer.body);
        let seen = server.provider.last().body;
        assert_eq!(
            (&seen["temperature"], &seen["max_tokens"], &seen["seed"]),
            (&temperature, &limit, &seed),
            "{agent}"
        );
    }
    // A limit can only be lowered.
    server.chat("own", &json!({"max_tokens": 4000})).await;
    assert_eq!(server.provider.last().body["max_tokens"], 50);
    // Tool choice and response format are always taken.
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}});
    server
        .chat(
            "closed",
            &json!({"tools": [chat_tool()], "tool_choice": "none", "response_format": format}),
        )
        .await;
    let seen = server.provider.last().body;
    assert_eq!((&seen["tool_choice"], &seen["response_format"]), (&json!("none"), &format));
}

#[tokio::test]
async fn a_forced_tool_of_the_client_is_called_and_the_next_request_decides_again() {
    let server = TestServer::new().await;
    let tools = json!([chat_tool()]);
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    server.provider.calls.lock().push_back(("get_weather", r#"{"city":"Paris"}"#));
    let first = server
        .chat("chat", &json!({"tools": tools, "tool_choice": named, "temperature": 0.2}))
        .await;
    let call = &first.body["choices"][0]["message"];
    assert_eq!(call["tool_calls"][0]["function"]["name"], "get_weather", "{}", first.body);
    assert_eq!(server.provider.last().body["tool_choice"], named);

    let history = json!([{"role": "user", "content": "Hi!"}, call,
        {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "sunny"}]);
    let body = json!({"model": "chat", "messages": history, "tools": tools, "temperature": 0.7});
    let second = server.post("/v1/chat/completions", &[], &body).await;
    assert_eq!(second.status, 200, "{}", second.body);
    let seen = server.provider.last().body;
    assert_eq!((&seen["tool_choice"], &seen["temperature"]), (&Value::Null, &json!(0.7)));
    assert_eq!(seen["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_tool_choice_that_is_repeated_with_the_results_holds_again() {
    let server = TestServer::new().await;
    let tools = json!([chat_tool()]);
    server.provider.calls.lock().extend([("get_weather", r#"{"city":"Paris"}"#); 2]);
    let first = server.chat("chat", &json!({"tools": tools, "tool_choice": "required"})).await;
    let call = &first.body["choices"][0]["message"];
    let history = json!([{"role": "user", "content": "Hi!"}, call,
        {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "sunny"}]);
    let body =
        json!({"model": "chat", "messages": history, "tools": tools, "tool_choice": "required"});
    let second = server.post("/v1/chat/completions", &[], &body).await;
    assert_eq!(second.body["choices"][0]["finish_reason"], "tool_calls", "{}", second.body);
    assert_eq!(server.provider.last().body["tool_choice"], "required");
}

#[tokio::test]
async fn calls_of_custom_tools_and_of_groups_reach_the_client() {
    let server = TestServer::new().await;
    let tools = json!([
        {"type": "custom", "name": "patch", "format": {"type": "text"}},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]},
    ]);
    server.provider.calls.lock().push_back(("patch", "*** Begin\nno JSON"));
    let answer = server.responses("responses", &json!({"tools": tools})).await;
    let item = &answer.body["output"][0];
    assert_eq!(
        (&item["type"], &item["input"]),
        (&json!("custom_tool_call"), &json!("*** Begin\nno JSON")),
        "{}",
        answer.body
    );
    server.provider.calls.lock().push_back(("spawn", "{}"));
    let answer = server.responses("responses", &json!({"tools": tools})).await;
    let item = &answer.body["output"][0];
    assert_eq!(
        (&item["type"], &item["namespace"]),
        (&json!("function_call"), &json!("agents")),
        "{}",
        answer.body
    );
    // A model of another protocol gets the function, and the client gets the call with its group.
    server.provider.calls.lock().push_back(("spawn", "{}"));
    let answer = server.responses("chat", &json!({"tools": tools})).await;
    assert_eq!(answer.ignored(), "");
    assert_eq!(answer.body["output"][0]["namespace"], "agents", "{}", answer.body);
    assert_eq!(server.provider.last().body["tools"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn functions_of_groups_with_the_same_name_are_told_apart_on_another_protocol() {
    let server = TestServer::new().await;
    let group = |name: &str| json!({"type": "namespace", "name": name, "tools": [{"type": "function", "name": "find"}]});
    let tools = json!([group("files"), group("web")]);
    for (called, of) in [("find", "files"), ("web__find", "web")] {
        server.provider.calls.lock().push_back((called, "{}"));
        let answer = server.responses("chat", &json!({"tools": tools, "user": of})).await;
        let call = &answer.body["output"][0];
        let expected = (&json!("find"), &json!(of));
        assert_eq!((&call["name"], &call["namespace"]), expected, "{}", answer.body);
        let seen = server.provider.last().body;
        let names: Vec<&Value> = seen["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| &tool["function"]["name"])
            .collect();
        assert_eq!(names, ["find", "web__find"]);

        let output =
            json!({"type": "function_call_output", "call_id": call["call_id"], "output": "done"});
        let input = json!([{"role": "user", "content": "Hi!"}, call, output]);
        let body = json!({"model": "chat", "input": input, "tools": tools, "user": of});
        let next = server.post("/v1/responses", &[], &body).await;
        assert_eq!(next.headers["turnwire-session"], answer.headers["turnwire-session"]);
        let messages = server.provider.last().body["messages"].clone();
        assert_eq!(messages[1]["tool_calls"][0]["function"]["name"], called, "{messages}");
    }
}

/// A free-text call, the tool's result, and what the provider sees of both, on a protocol that has only functions.
#[tokio::test]
async fn free_text_tools_are_functions_for_a_model_of_another_protocol() {
    let server = TestServer::new().await;
    let schema = json!({"type": "object", "properties": {"input": {"type": "string"}},
        "required": ["input"], "additionalProperties": false});
    let patch = "*** Begin\n\"no\" JSON";
    let arguments: &'static str = json!({"input": patch}).to_string().leak();
    let grammar = json!({"syntax": "lark", "definition": "start: /x/"});

    // Responses to Chat Completions and to Messages.
    let tools = json!([{"type": "custom", "name": "patch", "description": "Patches.",
        "format": with(json!({"type": "grammar"}), &grammar)}]);
    for agent in ["chat", "messages"] {
        server.provider.calls.lock().push_back(("patch", arguments));
        let answer = server.responses(agent, &json!({"tools": tools})).await;
        let item = &answer.body["output"][0];
        let call = (&item["type"], &item["name"], &item["input"]);
        let expected = (&json!("custom_tool_call"), &json!("patch"), &json!(patch));
        assert_eq!(call, expected, "{}", answer.body);
        assert_eq!(answer.ignored(), "");
        let seen = &server.provider.last().body["tools"][0];
        let (function, key) = match agent {
            "chat" => (&seen["function"], "parameters"),
            _ => (seen, "input_schema"),
        };
        assert_eq!((&function["name"], &function[key]), (&json!("patch"), &schema), "{agent}");
        let about = function["description"].as_str().unwrap();
        assert!(about.starts_with("Patches.") && about.ends_with("start: /x/"), "{about}");

        let output = json!({"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "done"});
        let input = json!([{"role": "user", "content": "Hi!"}, item, output]);
        let body = json!({"model": agent, "input": input, "tools": tools});
        let next = server.post("/v1/responses", &[], &body).await;
        assert_eq!(next.headers["turnwire-session"], answer.headers["turnwire-session"]);
        let seen = server.provider.last().body["messages"].to_string();
        assert!(
            seen.contains(&json!({"input": patch}).to_string())
                || seen.contains(&json!(arguments).to_string()),
            "{seen}"
        );
        assert!(seen.contains("done"), "{seen}");
    }

    // Chat Completions to Responses and to Messages.
    let format = json!({"type": "grammar", "grammar": grammar});
    let tools = json!([{"type": "custom", "custom": {"name": "edit", "format": format}}]);
    let choice = json!({"type": "custom", "custom": {"name": "edit"}});
    for agent in ["responses", "messages"] {
        server.provider.calls.lock().push_back(("edit", arguments));
        let answer = server.chat(agent, &json!({"tools": tools, "tool_choice": choice})).await;
        let message = &answer.body["choices"][0]["message"];
        let call = &message["tool_calls"][0];
        assert_eq!(call["type"], "custom", "{}", answer.body);
        assert_eq!(call["custom"], json!({"name": "edit", "input": patch}));
        assert_eq!(call.get("function"), None);
        assert_eq!(server.provider.last().body["tool_choice"]["name"], "edit");
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "done"});
        let messages = json!([{"role": "user", "content": "Hi!"}, message, result]);
        let body = json!({"model": agent, "messages": messages, "tools": tools});
        let next = server.post("/v1/chat/completions", &[], &body).await;
        assert_eq!(next.headers["turnwire-session"], answer.headers["turnwire-session"]);
        let body = server.provider.last().body;
        assert!(!body.to_string().contains("custom"), "{body}");
        assert!(body.to_string().contains("done"), "{body}");
    }
}

#[tokio::test]
async fn a_result_cannot_bring_options_past_the_checks() {
    let server = TestServer::new().await;
    let caller = server.auth.authenticate_token("any").unwrap();
    server.post("/v1/sessions", &[], &json!({"id": "q", "agent": "chat"})).await;
    server.provider.calls.lock().push_back(("get_weather", r#"{"city":"Paris"}"#));
    let tools = json!([{"name": "get_weather"}]);
    let first = json!({"content": "Hi!", "metadata": {"client": {"tools": tools}}});
    assert_eq!(server.post("/v1/sessions/q/messages", &[], &first).await.status, 202);
    let key = caller.session_key("q").unwrap();
    let session = server.app.log.open_session(&key).await.unwrap().unwrap();
    let mut head = session.watch_head();
    let waiting = head.wait_for(|head| head.status == SessionStatus::Waiting);
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    let pending = session.snapshot().await.unwrap().pending_calls();
    let (reply, call) = (&pending[0].reply_id, &pending[0].external[0].id);
    let forged = json!({"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": reply, "execution_results": [
        {"type": "tool_result", "id": call, "name": "get_weather", "output": "sunny", "state": "success",
         "metadata": {"kept": 1, "client": {"extra": {"temperature": 1.5}, "tools": []}}}]});
    let answer = server.post("/v1/sessions/q/events", &[], &forged).await;
    assert!(answer.status < 300, "{}", answer.body);
    let idle = head.wait_for(|head| head.status == SessionStatus::Idle);
    tokio::time::timeout(PATIENCE, idle).await.unwrap().unwrap();
    let seen = server.provider.last().body;
    assert_eq!(seen["temperature"], Value::Null);
    assert_eq!(seen["tools"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn structured_output_is_requested_natively_on_the_same_protocol() {
    let server = TestServer::new().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let format = json!({"type": "json_schema", "name": "x", "strict": true, "schema": schema});
    let answer = server.responses("responses", &json!({"text": {"format": format}})).await;
    assert_eq!(answer.body["status"], "completed", "{}", answer.body);
    assert_eq!(server.provider.last().body["text"]["format"], format);
    let format = json!({"type": "json_schema", "schema": schema});
    let answer = server
        .messages("messages", &json!({"max_tokens": 9, "output_config": {"format": format}}))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(server.provider.last().body["output_config"]["format"], format);
    let answer = server.chat("chat", &json!({"response_format": {"type": "json_object"}})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(server.provider.last().body["response_format"], json!({"type": "json_object"}));
    assert_eq!(server.provider.last().body.get("tools"), None);
}

#[tokio::test]
async fn structured_output_is_requested_natively_on_another_protocol() {
    let server = TestServer::new().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "required": ["a"], "additionalProperties": false});
    let named = json!({"name": "plan", "strict": true, "schema": schema});
    let chat = json!({"response_format": {"type": "json_schema", "json_schema": named}});
    let flat = json!({"type": "json_schema", "name": "plan", "strict": true, "schema": schema});
    let bare = json!({"type": "json_schema", "schema": schema});

    let answer = server.chat("messages", &chat).await;
    assert_eq!(answer.body["choices"][0]["message"]["content"], r#"{"a":"b"}"#);
    assert_eq!(server.provider.last().body["output_config"]["format"], bare);
    assert_eq!(server.provider.last().body.get("tools"), None);
    assert_eq!(answer.ignored(), "");
    server.chat("responses", &chat).await;
    assert_eq!(server.provider.last().body["text"]["format"], flat);

    let responses = json!({"text": {"format": flat}});
    let answer = server.responses("chat", &responses).await;
    assert_eq!(answer.body["status"], "completed", "{}", answer.body);
    assert_eq!(server.provider.last().body["response_format"], chat["response_format"]);
    server.responses("messages", &responses).await;
    assert_eq!(server.provider.last().body["output_config"]["format"], bare);

    let messages = json!({"max_tokens": 9, "output_config": {"format": bare}});
    let answer = server.messages("chat", &messages).await;
    assert_eq!(answer.body["content"][0]["text"], r#"{"a":"b"}"#, "{}", answer.body);
    let seen = &server.provider.last().body["response_format"]["json_schema"];
    assert_eq!((&seen["schema"], &seen["strict"]), (&schema, &json!(true)));
    server.messages("responses", &messages).await;
    assert_eq!(server.provider.last().body["text"]["format"]["schema"], schema);
}

#[tokio::test]
async fn structured_output_is_a_tool_where_the_model_has_no_such_format_or_the_settings_say_so() {
    let server = TestServer::new().await;
    let object = json!({"response_format": {"type": "json_object"}});
    let tool_answer = ("final_answer", r#"{"a":"b"}"#);
    for agent in ["messages", "tool"] {
        server.provider.calls.lock().push_back(tool_answer);
        let answer = server.chat(agent, &object).await;
        assert_eq!(answer.body["choices"][0]["message"]["content"], r#"{"a":"b"}"#, "{agent}");
        let seen = server.provider.last().body;
        let fields = (seen.get("output_config"), seen.get("response_format"));
        assert_eq!(fields, (None, None), "{agent}");
        assert_eq!(seen["tools"].as_array().unwrap().len(), 1, "{agent}");
    }
}

#[tokio::test]
async fn options_of_a_queued_message_are_kept() {
    let server = TestServer::new().await;
    let caller = server.auth.authenticate_token("any").unwrap();
    let made = server.post("/v1/sessions", &[], &json!({"id": "q", "agent": "chat"})).await;
    assert_eq!(made.status, 201);
    server.provider.calls.lock().push_back(("get_weather", r#"{"city":"Paris"}"#));
    let tools = json!([{"name": "get_weather"}]);
    let first = json!({"content": "Hi!", "metadata": {"client": {"tools": tools}}});
    assert_eq!(server.post("/v1/sessions/q/messages", &[], &first).await.status, 202);
    let session =
        server.app.log.open_session(&caller.session_key("q").unwrap()).await.unwrap().unwrap();
    let mut head = session.watch_head();
    let waiting = head.wait_for(|head| head.status == SessionStatus::Waiting);
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    let queued = json!({"content": "And?", "metadata": {"client": {"extra": {"temperature": 0.3, "stop": "END"}}}});
    let answer = server.post("/v1/sessions/q/messages?queue=true", &[], &queued).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let stop = json!({"type": "USER_INTERRUPT", "reply_id": ""});
    assert!(server.post("/v1/sessions/q/events", &[], &stop).await.status < 300);
    let idle =
        head.wait_for(|head| head.status == SessionStatus::Idle && server.provider.count() == 2);
    tokio::time::timeout(PATIENCE, idle).await.unwrap().unwrap();
    let seen = server.provider.last().body;
    assert_eq!((&seen["temperature"], &seen["stop"]), (&json!(0.3), &json!(["END"])));
}
