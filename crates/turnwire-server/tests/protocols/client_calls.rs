//! Calls of tools that OpenAI defines and the client executes: `local_shell`, `shell`, `apply_patch`, a computer, questions
//! of MCP servers. The provider sees what it would see without Turnwire.

use crate::options::{Answer, TestServer};
use serde_json::{Value, json};

/// A tool, the provider's call of it, and the client's result.
struct Case {
    tool: Value,
    call: Value,
    result: Value,
}

fn cases() -> Vec<Case> {
    let shell = json!({"type": "exec", "command": ["ls", "-l"], "env": {}, "timeout_ms": null,
        "user": null, "working_directory": "/tmp"});
    let operation = json!({"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"});
    let screenshot =
        json!({"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="});
    vec![
        Case {
            tool: json!({"type": "local_shell"}),
            call: json!({"type": "local_shell_call", "id": "lsh_1", "call_id": "call_Xa81kQz", "action": shell, "status": "completed"}),
            result: json!({"type": "local_shell_call_output", "call_id": "call_Xa81kQz", "output": "a.txt"}),
        },
        // The reference has no `call_id` here.
        Case {
            tool: json!({"type": "local_shell"}),
            call: json!({"type": "local_shell_call", "id": "lsh_2", "call_id": "call_Yb81kQz", "action": shell, "status": "completed"}),
            result: json!({"type": "local_shell_call_output", "id": "lsh_2", "output": "b.txt", "status": "completed"}),
        },
        Case {
            tool: json!({"type": "shell", "environment": {"type": "local"}}),
            call: json!({"type": "shell_call", "id": "sh_1", "call_id": "call_Zc81kQz", "status": "completed",
                "action": {"commands": ["ls"], "max_output_length": null, "timeout_ms": 1000}}),
            result: json!({"type": "shell_call_output", "call_id": "call_Zc81kQz", "max_output_length": 900, "output": [
                {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
        },
        Case {
            tool: json!({"type": "apply_patch"}),
            call: json!({"type": "apply_patch_call", "id": "apc_1", "call_id": "call_Ad81kQz", "operation": operation, "status": "completed"}),
            result: json!({"type": "apply_patch_call_output", "call_id": "call_Ad81kQz", "status": "failed", "output": "no such file"}),
        },
        Case {
            tool: json!({"type": "apply_patch"}),
            call: json!({"type": "apply_patch_call", "id": "apc_2", "call_id": "call_Be81kQz", "operation": operation, "status": "completed"}),
            result: json!({"type": "apply_patch_call_output", "call_id": "call_Be81kQz", "status": "completed"}),
        },
        Case {
            tool: json!({"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "linux"}),
            call: json!({"type": "computer_call", "id": "cu_1", "call_id": "call_Cf81kQz", "status": "completed",
                "action": {"type": "click", "button": "left", "x": 1, "y": 2},
                "pending_safety_checks": [{"id": "cu_sc_1", "code": "c", "message": "m"}]}),
            result: json!({"type": "computer_call_output", "call_id": "call_Cf81kQz", "output": screenshot,
                "acknowledged_safety_checks": [{"id": "cu_sc_1"}]}),
        },
        Case {
            tool: json!({"type": "computer"}),
            call: json!({"type": "computer_call", "id": "cu_2", "call_id": "call_Dg81kQz", "status": "completed",
                "actions": [{"type": "screenshot"}, {"type": "wait"}], "pending_safety_checks": []}),
            result: json!({"type": "computer_call_output", "call_id": "call_Dg81kQz",
                "output": {"type": "computer_screenshot", "file_id": "file_1"}}),
        },
        Case {
            tool: json!({"type": "mcp", "server_label": "wiki", "server_url": "https://example.com", "require_approval": "always"}),
            call: json!({"type": "mcp_approval_request", "id": "mcpr_Eh81kQz", "name": "ask", "server_label": "wiki", "arguments": "{\"q\":1}"}),
            result: json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_Eh81kQz", "approve": true}),
        },
    ]
}

async fn ask(server: &TestServer, body: &Value) -> Answer {
    let answer = server.post("/v1/responses", &[], body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
}

fn last_input(server: &TestServer) -> Value {
    server.provider.last().body["input"].clone()
}

/// Without what only a written message has beside the short form.
fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

#[tokio::test]
async fn a_client_executes_calls_of_the_tools_that_openai_defines() {
    for by_id in [false, true] {
        let server = TestServer::new().await;
        for (at, Case { tool, call, result }) in cases().into_iter().enumerate() {
            let question = format!("Do {at}!");
            server.provider.call_next("item", call.to_string().leak());
            let body = json!({"model": "responses", "input": question, "tools": [tool]});
            let first = ask(&server, &body).await;
            assert_eq!(first.body["output"], json!([call]), "{call}");
            assert_eq!(first.body["status"], "completed");
            assert_eq!(server.provider.last().body["tools"], json!([tool]));

            // Its result, with the whole history or with the id of the response.
            let asked = server.provider.count();
            let mut history =
                vec![user(&question), first.body["output"][0].clone(), result.clone()];
            let body = if by_id {
                json!({"model": "responses", "input": [result], "tools": [tool], "previous_response_id": first.body["id"]})
            } else {
                json!({"model": "responses", "input": history, "tools": [tool]})
            };
            let second = ask(&server, &body).await;
            assert_eq!(second.body["output"][0]["type"], "message", "{}", second.body);
            assert_eq!(server.provider.count(), asked + 1);
            assert_eq!(last_input(&server), json!([user(&question), call, result]));
            let session = first.headers["turnwire-session"].clone();
            assert_eq!(second.headers["turnwire-session"], session, "{call}");

            // The next turn.
            history.push(second.body["output"][0].clone());
            history.push(user("And?"));
            let body = if by_id {
                json!({"model": "responses", "input": "And?", "tools": [tool], "previous_response_id": second.body["id"]})
            } else {
                json!({"model": "responses", "input": history, "tools": [tool]})
            };
            let third = ask(&server, &body).await;
            assert_eq!(third.headers["turnwire-session"], session, "{call}");
            let seen = last_input(&server);
            let seen = seen.as_array().unwrap();
            assert_eq!(seen.len(), 5, "{seen:?}");
            assert_eq!(seen[..3], [user(&question), call.clone(), result.clone()]);
            assert_eq!(seen[4], user("And?"));
        }
    }
}

#[tokio::test]
async fn an_unknown_history_with_such_calls_reaches_the_provider_whole() {
    let server = TestServer::new().await;
    for (at, Case { tool, call, result }) in cases().into_iter().enumerate() {
        let history = json!([user(&format!("Before {at}.")), call, result]);
        let body = json!({"model": "responses", "input": [history[0], call, result, user("And?")], "tools": [tool]});
        ask(&server, &body).await;
        assert_eq!(last_input(&server), json!([history[0], call, result, user("And?")]));
    }
}

#[tokio::test]
async fn calls_that_the_provider_executes_stay_as_they_are() {
    let server = TestServer::new().await;
    let tool = json!({"type": "shell", "environment": {"type": "container_auto"}});
    let call = json!({"type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "completed",
        "action": {"commands": ["ls"]}, "environment": {"type": "container_reference", "container_id": "cntr_1"}});
    let output = json!({"type": "shell_call_output", "id": "sho_1", "call_id": "call_1", "status": "completed",
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]});
    let said = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]});
    let input = json!([user("ls"), call, output, said, user("And?")]);
    let body = json!({"model": "responses", "input": input, "tools": [tool]});
    ask(&server, &body).await;
    assert_eq!(last_input(&server), input);
    assert_eq!(server.provider.last().body["tools"], json!([tool]));
}

#[tokio::test]
async fn a_result_of_an_unknown_kind_is_refused_and_the_model_is_not_asked() {
    let server = TestServer::new().await;
    let (call, output) = (
        json!({"type": "robot_call", "id": "r_1", "call_id": "call_1"}),
        json!({"type": "robot_call_output", "call_id": "call_1", "output": "done"}),
    );
    for input in
        [json!([user("Hi!"), call, output]), json!([user("Hi!"), call, output, user("And?")])]
    {
        let body = json!({"model": "responses", "input": input});
        let answer = server.post("/v1/responses", &[], &body).await;
        let error = &answer.body["error"];
        assert_eq!((answer.status, &error["code"]), (400, &json!("unsupported_option")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("robot_call_output"), "{error}");
    }
    assert_eq!(server.provider.count(), 0);
    // After its answer it is history.
    let said = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]});
    let body =
        json!({"model": "responses", "input": [user("Hi!"), call, output, said, user("And?")]});
    ask(&server, &body).await;
    assert_eq!(last_input(&server), body["input"]);
}

#[tokio::test]
async fn a_model_of_another_protocol_is_said_not_to_have_such_tools() {
    let server = TestServer::new().await;
    let body = json!({"model": "chat", "input": "Hi!", "tools": [{"type": "local_shell"}, {"type": "apply_patch"}]});
    let answer = ask(&server, &body).await;
    assert_eq!(answer.body["ignored_options"], json!(["tools.local_shell", "tools.apply_patch"]));
    assert_eq!(server.provider.last().body.get("tools"), None);
}
