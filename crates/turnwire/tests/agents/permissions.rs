//! Permission rules of the settings, and rules that a user accepts.

use crate::fake_provider::{FakeOutput, FakeProvider, ReceivedRequest, text};
use crate::harness::{TestServer, friday_settings, message_text};
use serde_json::{Value, json};

/// Calls `open_page` with the message as input, and repeats the result.
fn calls_open_page(request: &ReceivedRequest) -> Vec<FakeOutput> {
    let input = request.last_message()["content"].as_str().unwrap();
    if request.last_message()["role"] == "tool" {
        return text(input);
    }
    vec![FakeOutput::Call("c", "open_page", serde_json::from_str(input).unwrap())]
}

const OPEN_PAGE: &str =
    "[external_tools.open_page]\ndescription = \"Open\"\ninput = { type = \"object\" }\n";

fn start_server(provider: &FakeProvider, permissions: &str) -> TestServer {
    let lines = format!("tools = [\"external:*\"]\npermissions = [{permissions}]\n{OPEN_PAGE}");
    TestServer::start(&friday_settings(provider, &lines))
}

/// The outcome of a call with this input: `"confirm"`, `"external"`, or the result for the model.
async fn call_outcome(server: &TestServer, session: &str, input: &Value) -> String {
    let reply = server.send_message(session, &input.to_string()).await;
    let view = server.until_settled(session).await;
    match &view["pending"][0] {
        Value::Null => message_text(&server.message(session, &reply).await),
        pending if pending["confirm"][0].is_object() => "confirm".to_owned(),
        _ => "external".to_owned(),
    }
}

#[tokio::test]
async fn permission_rules_match_other_spellings_of_the_same_input() {
    let provider = FakeProvider::start(calls_open_page).await;
    let server = start_server(
        &provider,
        "{ tool = \"open_*\", input = { url = \"https://evil.test/**\" }, behavior = \"deny\" }, \
         { tool = \"open_*\", input = { url = \"https://*.example.com/**\" }, behavior = \"allow\" }, \
         { tool = \"*\", behavior = \"ask\" }",
    );
    for (number, (url, expected)) in [
        (json!("https://www.example.com/a?b=c"), "external"),
        (json!("https://evil.test/.example.com/"), "The rules do not allow"),
        (json!("https://other.test/.example.com/"), "confirm"),
        (json!("https://www.example.com@other.test/"), "confirm"),
        (json!("https://EVIL.test.:443//a"), "The rules do not allow"),
        (json!("https:evil.test"), "The rules do not allow"),
        (json!(["https://www.example.com/", "https://evil.test/"]), "The rules do not allow"),
        (json!(7), "The rules do not allow"),
    ]
    .into_iter()
    .enumerate()
    {
        let input = json!({ "url": url });
        let session = format!("s{number}");
        server.create_session(&session).await;
        let found = call_outcome(&server, &session, &input).await;
        assert!(found.contains(expected), "{input}: {found}");
    }
}

/// Stops the reply of the session `s`.
async fn stop_reply(server: &TestServer) {
    let stop = json!([{"type": "USER_INTERRUPT", "reply_id": ""}]);
    assert_eq!(server.post("/v1/sessions/s/events", stop).await.status, 200);
    server.until("s", "idle").await;
}

#[tokio::test]
async fn an_accepted_rule_covers_exactly_its_description() {
    let provider = FakeProvider::start(calls_open_page).await;
    let server = start_server(&provider, "{ tool = \"*\", behavior = \"ask\" }");
    server.create_session("s").await;
    let smuggled = json!({"url=*": "https://a.example"});
    let reply = server.send_message("s", &smuggled.to_string()).await;
    let view = server.until("s", "waiting").await;
    let call = &view["pending"][0]["confirm"][0];
    let rule = &call["suggested_rules"][0];
    assert_eq!(
        rule["description"],
        "Always allow `open_page` with exactly \"url=*\" = \"https://a.example\""
    );
    assert_eq!(call["suggested_rules"][1]["description"], "Always allow every call of `open_page`");
    // A client may omit the field; a made-up rule is ignored.
    let known = json!({"tool_name": rule["tool_name"], "rule_content": rule["rule_content"],
        "behavior": "allow", "source": "suggested"});
    let made_up = json!({"tool_name": "open_page", "rule_content": "url=*", "behavior": "allow"});
    let confirm = json!([{"type": "USER_CONFIRM_RESULT", "reply_id": reply, "confirm_results":
        [{"confirmed": true, "tool_call": {"id": call["id"]}, "rules": [known, made_up]}]}]);
    assert_eq!(server.post("/v1/sessions/s/events", confirm).await.status, 200);
    let mut watch = server.watch("/v1/sessions/s/events").await;
    watch.until("REQUIRE_EXTERNAL_EXECUTION").await;
    stop_reply(&server).await;
    assert_eq!(call_outcome(&server, "s", &json!({"url": "https://a.example"})).await, "confirm");
    stop_reply(&server).await;
    assert_eq!(call_outcome(&server, "s", &smuggled).await, "external");
}
