//! What survives a crash, and what does not.

use crate::house::{House, friday, text_of};
use crate::provider::{Asked, Provider, Said, text};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first time it says half of it and no more; then all of it.
fn half(calls: &AtomicUsize) -> Vec<Said> {
    match calls.fetch_add(1, Ordering::SeqCst) {
        0 => vec![Said::Text("One, ".into()), Said::Hold],
        _ => vec![Said::Text("One, ".into()), Said::Text("two.".into())],
    }
}

async fn killed_in_the_middle(lines: &str) -> (House, String, Provider) {
    let calls = AtomicUsize::new(0);
    let provider = Provider::start(move |_| half(&calls)).await;
    let mut house = House::start(&friday(&provider, lines));
    house.session("s").await;
    let mut watch = house.watch("/v1/sessions/s/events").await;
    let reply = house.say("s", "count").await;
    watch.until("TEXT_BLOCK_DELTA").await;
    house.kill();
    house.again();
    house.until("s", "idle").await;
    (house, reply, provider)
}

#[tokio::test]
async fn a_reply_goes_on_after_a_crash_and_says_nothing_twice() {
    let (house, reply, provider) = killed_in_the_middle("").await;
    let message = house.message("s", &reply).await;
    assert_eq!(
        (text_of(&message).as_str(), &message["finished_reason"]),
        ("One, two.", &json!("completed"))
    );
    assert_eq!(provider.asked().len(), 2);
    assert_eq!(provider.asked()[0].body, provider.asked()[1].body);
}

#[tokio::test]
async fn a_reply_ends_where_the_settings_want_it_to() {
    let (house, reply, provider) = killed_in_the_middle("on_restart = \"stop\"").await;
    let message = house.message("s", &reply).await;
    assert_eq!(
        (text_of(&message).as_str(), &message["finished_reason"]),
        ("One, ", &json!("interrupted"))
    );
    assert_eq!(provider.asked().len(), 1, "nobody was asked again");
    house.counts(&["turnwire_replies_total{agent=\"friday\",reason=\"interrupted\"} 1"]).await;
    // The session goes on.
    let next = house.say("s", "again").await;
    house.until("s", "idle").await;
    assert_eq!(text_of(&house.message("s", &next).await), "One, two.");
}

/// Calls `open_page` with what was said, and then is done.
fn opens(asked: &Asked) -> Vec<Said> {
    match asked.last()["role"].as_str() {
        Some("tool") => text("Done."),
        _ => vec![Said::Call("c", "open_page", json!({"url": asked.last()["content"]}))],
    }
}

async fn hand_in(house: &House, session: &str, reply: &str) {
    let mut watch = house.watch(&format!("/v1/sessions/{session}/events")).await;
    let call = loop {
        let event = watch.until("REQUIRE_EXTERNAL_EXECUTION").await;
        if event["reply_id"] == reply {
            break event["tool_calls"][0]["id"].clone();
        }
    };
    let result = json!([{"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": reply, "execution_results": [
        {"type": "tool_result", "id": call, "name": "open_page", "output": "ok", "state": "success"}]}]);
    let answer = house.post(&format!("/v1/sessions/{session}/events"), result).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    house.until(session, "idle").await;
}

#[tokio::test]
async fn what_a_person_always_allows_is_known_after_a_crash_and_in_a_copy() {
    let provider = Provider::start(opens).await;
    let lines = "tools = [\"external:open_page\"]\npermissions = [{ tool = \"*\", behavior = \"ask\" }]\n\
        [external_tools.open_page]\ndescription = \"Open a page\"\ninput = { type = \"object\" }\n";
    let mut house = House::start(&friday(&provider, lines));
    house.session("s").await;
    let first = house.say("s", "https://a.example").await;
    let view = house.until("s", "waiting").await;
    let call = view["pending"][0]["confirm"][0].clone();
    let rules = call["suggested_rules"].as_array().unwrap().clone();
    let always: Vec<&Value> = rules.iter().filter(|rule| rule["rule_content"].is_null()).collect();
    assert_eq!(always.len(), 1, "{call}");
    let confirm = json!([{"type": "USER_CONFIRM_RESULT", "reply_id": first, "confirm_results":
        [{"confirmed": true, "tool_call": {"id": "c"}, "rules": always}]}]);
    assert_eq!(house.post("/v1/sessions/s/events", confirm).await.status, 200);
    hand_in(&house, "s", &first).await;
    house.kill();
    house.again();
    // Nobody is asked: it is handed over at once.
    let second = house.say("s", "https://b.example").await;
    hand_in(&house, "s", &second).await;
    assert_eq!(text_of(&house.message("s", &second).await), "Done.");
    house.kill();
    doctor(&house);
    let export = house.run(&["sessions", "export", "s"]);
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    std::fs::write(house.folder.path().join("s.ndjson"), &export.stdout).unwrap();
    let import = house.run(&["sessions", "import", "--replace", "s.ndjson"]);
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    doctor(&house);
    house.again();
    let third = house.say("s", "https://c.example").await;
    hand_in(&house, "s", &third).await;
    assert_eq!(text_of(&house.message("s", &third).await), "Done.");
}

/// Nothing is wrong with the store.
fn doctor(house: &House) {
    let doctor = house.run(&["doctor"]);
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
}
