//! The rows of the matrix: every route of the API, and every command of the sockets, as valid requests.

#![expect(clippy::needless_pass_by_value, reason = "requests are written in place")]

use crate::scene::Precondition::{self, Asking, Calling, Elsewhere, Idle, Nothing, Open, Stored};
use crate::scene::Scene;
use serde_json::{Value, json};

/// A request that is good, except perhaps for who sends it.
pub struct Row {
    /// The operation's id in `/openapi.json`; of a socket, the wire and the command.
    pub route: &'static str,
    /// What it is about, where a route can do several things.
    pub case: &'static str,
    pub given: Precondition,
    pub ask: fn(&Scene) -> RowRequest,
}

/// What is sent.
pub enum RowRequest {
    Http {
        path: String,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// Commands on a socket; the answer to the last one counts.
    Socket {
        wire: &'static str,
        commands: Vec<Value>,
    },
    /// A request on a socket of the Responses API.
    ResponseSocket(Value),
}

fn get(path: impl Into<String>) -> RowRequest {
    RowRequest::Http { path: path.into(), headers: Vec::new(), body: String::new() }
}

fn post(path: impl Into<String>, body: impl ToString) -> RowRequest {
    RowRequest::Http { path: path.into(), headers: Vec::new(), body: body.to_string() }
}

impl RowRequest {
    fn with(mut self, name: &'static str, value: &str) -> Self {
        match &mut self {
            Self::Http { headers, .. } => headers.push((name, value.to_owned())),
            Self::Socket { .. } | Self::ResponseSocket(_) => panic!("a command has no headers"),
        }
        self
    }
}

/// The path of something in the scene's session.
fn session_path(scene: &Scene, rest: &str) -> String {
    format!("/v1/sessions/{}{rest}", scene.id)
}

fn confirm(scene: &Scene) -> Value {
    let call = json!({"type": "tool_call", "id": scene.call, "name": "x", "input": ""});
    json!({"id": "answer", "type": "USER_CONFIRM_RESULT", "reply_id": scene.reply,
        "confirm_results": [{"confirmed": true, "tool_call": call}]})
}

fn result(scene: &Scene) -> Value {
    let output = json!([{"type": "text", "id": "t", "text": "done"}]);
    json!({"id": "answer", "type": "EXTERNAL_EXECUTION_RESULT", "reply_id": scene.reply,
        "execution_results": [{"type": "tool_result", "id": scene.call, "name": "x",
            "output": output, "state": "success"}]})
}

fn hint(scene: &Scene) -> Value {
    json!({"id": "hint", "type": "HINT_BLOCK", "reply_id": scene.reply, "block_id": "h", "hint": "x"})
}

fn stop() -> Value {
    json!({"id": "stop", "type": "USER_INTERRUPT", "reply_id": ""})
}

fn reply() -> String {
    let event = |id: &str, rest: &str| format!(r#"{{"id":"{id}","reply_id":"new",{rest}}}"#);
    [event("n1", r#""type":"REPLY_START","name":"x""#), event("n2", r#""type":"REPLY_END""#)]
        .join("\n")
}

fn run(scene: &Scene, messages: Value) -> Value {
    json!({"threadId": scene.id, "runId": "run", "messages": messages})
}

fn own() -> Value {
    json!([{"id": "own", "role": "user", "content": "hello"}])
}

fn parts(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

fn chat(scene: &Scene, trigger: &str, messages: Value) -> Value {
    json!({"id": scene.id, "trigger": trigger, "messages": messages})
}

/// A request of the AI SDK that answers the call that waits.
fn answered(scene: &Scene, more: &Value) -> Value {
    let mut part = json!({"type": "dynamic-tool", "toolName": "t", "toolCallId": scene.call});
    part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"id": scene.id, "messageId": scene.reply, "messages": [parts("m", "x"),
        {"id": scene.reply, "role": "assistant", "parts": [{"type": "step-start"}, part]}]})
}

fn completion(messages: Value) -> Value {
    json!({"model": "demo", "max_tokens": 100, "messages": messages})
}

fn hello_request() -> Value {
    completion(json!([{"role": "user", "content": "hello"}]))
}

fn tool_result(scene: &Scene) -> Value {
    let call = json!({"id": scene.call, "type": "function", "function": {"name": "open_page", "arguments": "{}"}});
    completion(json!([
        {"role": "user", "content": "browser"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": scene.call, "content": "done"},
    ]))
}

fn tool_use(scene: &Scene) -> Value {
    completion(json!([
        {"role": "user", "content": "browser"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": scene.call, "name": "open_page", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": scene.call, "content": "done"}]},
    ]))
}

fn response(scene: &Scene) -> String {
    format!("/v1/responses/resp_{}~r1", scene.id)
}

fn turnwire(commands: impl IntoIterator<Item = Value>) -> RowRequest {
    RowRequest::Socket { wire: "turnwire", commands: commands.into_iter().collect() }
}

fn blocks(commands: impl IntoIterator<Item = Value>) -> RowRequest {
    RowRequest::Socket { wire: "blocks", commands: commands.into_iter().collect() }
}

fn response_socket(more: Value) -> RowRequest {
    let mut message = json!({"type": "response.create", "model": "demo"});
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    RowRequest::ResponseSocket(message)
}

fn events(scene: &Scene, event: Value) -> RowRequest {
    turnwire([json!({"type": "events", "session_id": scene.id, "events": [event]})])
}

fn command(kind: &str, scene: &Scene) -> Value {
    json!({"type": kind, "session_id": scene.id, "message": "hello"})
}

macro_rules! rows {
    ($($route:literal $case:literal $given:ident |$scene:pat_param| $ask:expr;)*) => {
        &[$(Row { route: $route, case: $case, given: $given, ask: |$scene| $ask },)*]
    };
}

pub const ROWS: &[Row] = rows! {
    "createSession" "a new one" Nothing |s| post("/v1/sessions", json!({"id": s.id, "title": "mine"}));
    "createSession" "that is there" Idle |s| post("/v1/sessions", json!({"id": s.id}));
    "listSessions" "" Idle |_| get("/v1/sessions");
    "listSessions" "search" Idle |_| get("/v1/sessions?q=ruby");
    "getSession" "" Idle |s| get(session_path(s, ""));
    "patchSession" "" Idle |s| post(session_path(s, ""), json!({}));
    "deleteSession" "" Idle |s| get(session_path(s, ""));
    "listMessages" "" Idle |s| get(session_path(s, "/messages"));
    "sendMessage" "" Idle |s| post(session_path(s, "/messages"), json!({"content": "hello"}));
    "sendMessage" "and follow the reply" Idle |s| post(session_path(s, "/messages"), json!({"content": "hello"})).with("accept", "text/event-stream");
    "getMessage" "" Idle |s| get(session_path(s, "/messages/u1"));
    "cancelMessage" "" Elsewhere |s| get(session_path(s, "/messages/q1"));
    "retryMessage" "" Idle |s| post(session_path(s, "/messages/r1/retry"), "");
    "retryMessage" "and follow the reply" Idle |s| post(session_path(s, "/messages/r1/retry"), "").with("accept", "text/event-stream");
    "forkSession" "" Idle |s| post(session_path(s, "/fork"), json!({"id": format!("{}-fork", s.id)}));
    "listDecisions" "" Idle |s| get(session_path(s, "/decisions"));
    "revokeRule" "" Idle |s| post(session_path(s, "/rules/revoke"), json!({"rule": {"tool_name": "x", "behavior": "allow"}}));
    "searchMessages" "" Idle |s| get(session_path(s, "/search?q=ruby"));
    "watchEvents" "" Idle |s| get(session_path(s, "/events?after=0"));
    "watchEvents" "as lines" Idle |s| get(session_path(s, "/events")).with("accept", "application/x-ndjson");
    "publishEvents" "of a producer" Elsewhere |s| post(session_path(s, "/events"), reply()).with("turnwire-producer", "p.1");
    "publishEvents" "a confirmation" Asking |s| post(session_path(s, "/events"), confirm(s));
    "publishEvents" "a result" Calling |s| post(session_path(s, "/events"), result(s));
    "publishEvents" "a stop" Open |s| post(session_path(s, "/events"), stop());
    "publishEvents" "a hint" Open |s| post(session_path(s, "/events"), hint(s));
    "publishEvents" "a hint that starts a reply" Idle |s| post(session_path(s, "/events?reply=true"), hint(s));
    "pipeReply" "" Elsewhere |s| post(session_path(s, "/replies"), reply());
    "putBlob" "" Nothing |s| post("/v1/blobs", &s.id);
    "getBlob" "" Nothing |s| get(format!("/v1/blobs/{}", s.blob));
    "putBlob" "that is there" Nothing |_| post("/v1/blobs", "opal-blob");
    "deleteBlob" "" Stored |s| get(format!("/v1/blobs/{}", s.blob));
    "getMe" "" Idle |_| get("/v1/me");
    "listAgents" "" Idle |_| get("/v1/agents?usage=true");
    "listApprovals" "" Asking |_| get("/v1/approvals");
    "createTicket" "" Nothing |_| post("/v1/tickets", "");
    "blocksHistory" "" Idle |s| get(format!("/v2/sessions/{}/history", s.id));
    "agUiRun" "a new thread" Nothing |s| post("/ag-ui/demo", run(s, own()));
    "agUiRun" "a message" Idle |s| post("/ag-ui/demo", run(s, own()));
    "agUiRun" "come back" Idle |s| post("/ag-ui/demo", run(s, json!([])));
    "agUiRun" "a confirmation" Asking |s| {
        let mut run = run(s, json!([]));
        run["resume"] = json!([{"interruptId": s.call, "status": "resolved", "payload": {"approved": true}}]);
        post("/ag-ui/demo", run)
    };
    "agUiRun" "a result" Calling |s| post("/ag-ui/demo", run(s, json!([{"id": "own", "role": "tool", "toolCallId": s.call, "content": "done"}])));
    "agUiJoin" "find" Idle |s| get(format!("/ag-ui/demo?threadId={}", s.id));
    "agUiJoin" "join" Idle |s| get(format!("/ag-ui/demo?runId={}&offset=-1", s.id));
    "agUiStop" "" Open |s| post(format!("/ag-ui/external/{}/stop", s.id), "");
    "aiSdkChat" "a new chat" Nothing |s| post("/ai-sdk/demo", chat(s, "submit-message", json!([parts("own", "hello")])));
    "aiSdkChat" "a message" Idle |s| post("/ai-sdk/demo", chat(s, "submit-message", json!([parts("own", "hello")])));
    "aiSdkChat" "regenerate" Idle |s| post("/ai-sdk/demo", chat(s, "regenerate-message", json!([parts("u1", "x")])));
    "aiSdkChat" "edit" Idle |s| {
        let mut edit = chat(s, "submit-message", json!([parts("u1", "other words")]));
        edit["messageId"] = json!("u1");
        post("/ai-sdk/demo", edit)
    };
    "aiSdkChat" "a confirmation" Asking |s| post("/ai-sdk/demo", answered(s, &json!({"state": "approval-responded", "approval": {"id": s.call, "approved": true}})));
    "aiSdkChat" "a result" Calling |s| post("/ai-sdk/demo", answered(s, &json!({"state": "output-available", "output": "done"})));
    "aiSdkResume" "" Open |s| get(format!("/ai-sdk/external/{}/stream", s.id));
    "aiSdkStop" "" Open |s| post(format!("/ai-sdk/external/{}/stop", s.id), "");
    "listModels" "" Nothing |_| get("/v1/models");
    "getModel" "" Nothing |_| get("/v1/models/demo");
    "createChatCompletion" "a new session" Nothing |s| post("/v1/chat/completions", hello_request()).with("turnwire-session", &s.id);
    "createChatCompletion" "a message" Idle |s| post("/v1/chat/completions", hello_request()).with("turnwire-session", &s.id);
    "createChatCompletion" "a result" Calling |s| post("/v1/chat/completions", tool_result(s)).with("turnwire-session", &s.id);
    "createResponse" "a new session" Nothing |s| post("/v1/responses", json!({"model": "demo", "input": "hello"})).with("turnwire-session", &s.id);
    "createResponse" "behind another" Idle |s| post("/v1/responses", json!({"model": "demo", "input": "hello", "previous_response_id": format!("resp_{}~r1", s.id)}));
    "createResponse" "a result" Calling |s| post("/v1/responses", json!({"model": "demo", "input": [{"type": "function_call_output", "call_id": s.call, "output": "done"}]})).with("turnwire-session", &s.id);
    "openResponseSocket" "a new session" Nothing |_| response_socket(json!({"input": "hello"}));
    "openResponseSocket" "behind another" Idle |s| response_socket(json!({"input": "hello", "previous_response_id": format!("resp_{}~r1", s.id)}));
    "openResponseSocket" "in a conversation" Idle |s| response_socket(json!({"input": "hello", "conversation": format!("conv_{}", s.id)}));
    "getResponse" "" Idle |s| get(response(s));
    "getResponse" "as a stream" Idle |s| get(response(s) + "?stream=true");
    "cancelResponse" "that has ended" Idle |s| post(response(s) + "/cancel", "");
    "deleteResponse" "" Idle |s| get(response(s));
    "listInputItems" "" Idle |s| get(response(s) + "/input_items");
    "compactResponse" "" Nothing |_| post("/v1/responses/compact", json!({"model": "demo", "input": "hello"}));
    "compactResponse" "behind another" Idle |s| post("/v1/responses/compact", json!({"model": "demo", "previous_response_id": format!("resp_{}~r1", s.id)}));
    "countInputTokens" "" Nothing |_| post("/v1/responses/input_tokens", json!({"model": "demo", "input": "hello"}));
    "countInputTokens" "behind another" Idle |s| post("/v1/responses/input_tokens", json!({"model": "demo", "input": "hello", "previous_response_id": format!("resp_{}~r1", s.id)}));
    "createConversation" "" Nothing |_| post("/v1/conversations", "");
    "getConversation" "" Idle |s| get(format!("/v1/conversations/conv_{}", s.id));
    "deleteConversation" "" Idle |s| get(format!("/v1/conversations/conv_{}", s.id));
    "updateConversation" "" Idle |s| post(format!("/v1/conversations/conv_{}", s.id), json!({"metadata": {"a": "b"}}));
    "createConversationItems" "" Idle |s| post(format!("/v1/conversations/conv_{}/items", s.id), json!({"items": [{"role": "user", "content": "x"}]}));
    "getConversationItem" "" Idle |s| get(format!("/v1/conversations/conv_{}/items/msg_u1", s.id));
    "deleteConversationItem" "" Idle |s| get(format!("/v1/conversations/conv_{}/items/msg_u1", s.id));
    "listConversationItems" "" Idle |s| get(format!("/v1/conversations/conv_{}/items", s.id));
    "createResponse" "in a conversation" Idle |s| post("/v1/responses", json!({"model": "demo", "input": "hello", "conversation": format!("conv_{}", s.id)}));
    "countTokens" "" Nothing |_| post("/v1/messages/count_tokens", hello_request());
    "createMessage" "a new session" Nothing |s| post("/v1/messages", hello_request()).with("turnwire-session", &s.id);
    "createMessage" "a message" Idle |s| post("/v1/messages", hello_request()).with("turnwire-session", &s.id);
    "createMessage" "a result" Calling |s| post("/v1/messages", tool_use(s)).with("turnwire-session", &s.id);
    "healthz" "" Nothing |_| get("/healthz");
    "readyz" "" Nothing |_| get("/readyz");
    "metrics" "" Nothing |_| get("/metrics");
    "openapi" "" Nothing |_| get("/openapi.json");
    "console" "" Nothing |_| get("/");
    "consoleIcon" "" Nothing |_| get("/favicon.svg");
    "consoleAsset" "" Nothing |_| get("/assets/NAME");
    "openSocket" "turnwire ping" Nothing |_| turnwire([json!({"type": "ping"})]);
    "openSocket" "turnwire subscribe" Idle |s| turnwire([command("subscribe", s)]);
    "openSocket" "turnwire unsubscribe" Idle |s| turnwire([command("subscribe", s), command("unsubscribe", s)]);
    "openSocket" "turnwire chat" Idle |s| turnwire([command("chat", s)]);
    "openSocket" "turnwire stop" Open |s| turnwire([command("stop", s)]);
    "openSocket" "turnwire events: a confirmation" Asking |s| events(s, confirm(s));
    "openSocket" "turnwire events: a result" Calling |s| events(s, result(s));
    "openSocket" "turnwire events: a stop" Open |s| events(s, stop());
    "openSocket" "turnwire events: a hint" Open |s| events(s, hint(s));
    "openSocket" "blocks ping" Nothing |_| blocks([json!({"type": "ping"})]);
    "openSocket" "blocks subscribe" Idle |s| blocks([command("subscribe", s)]);
    "openSocket" "blocks chat, a new session" Nothing |s| blocks([command("chat", s)]);
    "openSocket" "blocks chat" Idle |s| blocks([command("chat", s)]);
    "openSocket" "blocks stop" Open |s| blocks([command("stop", s)]);
    "openSocket" "blocks approval" Asking |s| blocks([json!({"type": "approval",
        "approval_key": format!("{}_{}", s.id, s.asked_at), "decisions": [{"type": "approve"}]})]);
};
