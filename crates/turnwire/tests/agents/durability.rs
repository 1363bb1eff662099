//! What survives a crash.

use crate::fake_provider::{FakeOutput, FakeProvider, ReceivedRequest, text};
use crate::harness::{TestServer, friday_settings, message_text};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first call stops halfway; later calls finish.
fn half_then_whole(calls: &AtomicUsize) -> Vec<FakeOutput> {
    match calls.fetch_add(1, Ordering::SeqCst) {
        0 => vec![FakeOutput::Text("One, ".into()), FakeOutput::Hold],
        _ => vec![FakeOutput::Text("One, ".into()), FakeOutput::Text("two.".into())],
    }
}

async fn killed_in_the_middle(lines: &str) -> (TestServer, String, FakeProvider) {
    let calls = AtomicUsize::new(0);
    let provider = FakeProvider::start(move |_| half_then_whole(&calls)).await;
    let mut server = TestServer::start(&friday_settings(&provider, lines));
    server.create_session("s").await;
    let mut watch = server.watch("/v1/sessions/s/events").await;
    let reply = server.send_message("s", "count").await;
    watch.until("TEXT_BLOCK_DELTA").await;
    server.kill();
    server.restart();
    server.until("s", "idle").await;
    (server, reply, provider)
}

#[tokio::test]
async fn a_reply_continues_after_a_crash_and_repeats_nothing() {
    let (server, reply, provider) = killed_in_the_middle("").await;
    let message = server.message("s", &reply).await;
    assert_eq!(
        (message_text(&message).as_str(), &message["finished_reason"]),
        ("One, two.", &json!("completed"))
    );
    assert_eq!(provider.requests().len(), 2);
    assert_eq!(provider.requests()[0].body, provider.requests()[1].body);
}

#[tokio::test]
async fn an_interrupted_reply_ends_if_configured() {
    let (server, reply, provider) = killed_in_the_middle("on_restart = \"stop\"").await;
    let message = server.message("s", &reply).await;
    assert_eq!(
        (message_text(&message).as_str(), &message["finished_reason"]),
        ("One, ", &json!("interrupted"))
    );
    assert_eq!(provider.requests().len(), 1, "nobody was asked again");
    server.counts(&["turnwire_replies_total{agent=\"friday\",reason=\"interrupted\"} 1"]).await;
    // The session continues.
    let next = server.send_message("s", "again").await;
    server.until("s", "idle").await;
    assert_eq!(message_text(&server.message("s", &next).await), "One, two.");
}

/// Calls `open_page` with the message, then ends.
fn calls_open_page(request: &ReceivedRequest) -> Vec<FakeOutput> {
    match request.last_message()["role"].as_str() {
        Some("tool") => text("Done."),
        _ => vec![FakeOutput::Call(
            "c",
            "open_page",
            json!({"url": request.last_message()["content"]}),
        )],
    }
}

async fn send_tool_result(server: &TestServer, session: &str, reply: &str) {
    let mut watch = server.watch(&format!("/v1/sessions/{session}/events")).await;
    let call = loop {
        let event = watch.until("REQUIRE_EXTERNAL_EXECUTION").await;
        if event["reply_id"] == reply {
            break event["tool_calls"][0]["id"].clone();
        }
    };
    let result = json!([{"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": reply, "execution_results": [
        {"type": "tool_result", "id": call, "name": "open_page", "output": "ok", "state": "success"}]}]);
    let answer = server.post(&format!("/v1/sessions/{session}/events"), result).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    server.until(session, "idle").await;
}

#[tokio::test]
async fn accepted_rules_survive_a_crash_and_a_fork() {
    let provider = FakeProvider::start(calls_open_page).await;
    let lines = "tools = [\"external:open_page\"]\npermissions = [{ tool = \"*\", behavior = \"ask\" }]\n\
        [external_tools.open_page]\ndescription = \"Open a page\"\ninput = { type = \"object\" }\n";
    let mut server = TestServer::start(&friday_settings(&provider, lines));
    server.create_session("s").await;
    let first = server.send_message("s", "https://a.example").await;
    let view = server.until("s", "waiting").await;
    let call = view["pending"][0]["confirm"][0].clone();
    let rules = call["suggested_rules"].as_array().unwrap().clone();
    let always: Vec<&Value> = rules.iter().filter(|rule| rule["rule_content"].is_null()).collect();
    assert_eq!(always.len(), 1, "{call}");
    let confirm = json!([{"type": "USER_CONFIRM_RESULT", "reply_id": first, "confirm_results":
        [{"confirmed": true, "tool_call": {"id": "c"}, "rules": always}]}]);
    assert_eq!(server.post("/v1/sessions/s/events", confirm).await.status, 200);
    send_tool_result(&server, "s", &first).await;
    server.kill();
    server.restart();
    // No approval: it goes to the client at once.
    let second = server.send_message("s", "https://b.example").await;
    send_tool_result(&server, "s", &second).await;
    assert_eq!(message_text(&server.message("s", &second).await), "Done.");
    server.kill();
    assert_doctor_finds_nothing(&server);
    let export = server.run(&["sessions", "export", "s"]);
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    std::fs::write(server.folder.path().join("s.ndjson"), &export.stdout).unwrap();
    let import = server.run(&["sessions", "import", "--replace", "s.ndjson"]);
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    assert_doctor_finds_nothing(&server);
    server.restart();
    let third = server.send_message("s", "https://c.example").await;
    send_tool_result(&server, "s", &third).await;
    assert_eq!(message_text(&server.message("s", &third).await), "Done.");
}

/// `turnwire doctor` finds nothing.
fn assert_doctor_finds_nothing(server: &TestServer) {
    let doctor = server.run(&["doctor"]);
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
}
