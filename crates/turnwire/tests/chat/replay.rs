//! `turnwire replay`: a session again, and its messages at an event.

use crate::harness::TestHome;
use serde_json::Value;

#[test]
fn a_session_is_shown_again_from_a_store_and_from_a_server() {
    let home = TestHome::new();
    let server = home.serve();
    for message in ["weather", "team"] {
        let args = ["chat", "--url", &server.url, "--session", "s", message];
        assert_eq!(home.run(&args).code, Some(0));
    }
    let replay = ["replay", "--session", "s", "--speed", "0"];
    let there = home.run(&[&replay[..], &["--url", &server.url]].concat());
    assert_eq!(there.code, Some(0), "{}", there.err);
    let parts =
        ["› weather\n", "⚙ get_weather", "It is 18 °C in Paris", "› team\n", "│ ┌ researcher\n"];
    let mut rest = &*there.out;
    for part in parts {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("no {part}: {}", there.out)).1;
    }
    assert!(!there.out.contains('\u{1b}'), "{}", there.out);
    // Also while the server writes.
    let here = home.run(&[&replay[..], &["--store", "sqlite:served.db"]].concat());
    assert_eq!(here.out, there.out);
    // Faster, with the same output.
    let fast = ["replay", "--session", "s", "--speed", "1000", "--store", "sqlite:served.db"];
    assert_eq!(home.run(&fast).out, there.out);
}

#[test]
fn replay_at_prints_the_messages_at_an_event() {
    let home = TestHome::new();
    let store = ["--store", "sqlite:served.db"];
    let args = [&["chat", "--session", "s", "team"][..], &store].concat();
    assert_eq!(home.run(&args).code, Some(0));
    let at = |seq: &str| -> Vec<Value> {
        let done = home.run(&[&["replay", "--session", "s", "--at", seq][..], &store].concat());
        assert_eq!(done.code, Some(0), "{}", done.err);
        done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(at("0"), Vec::<Value>::new());
    let one = at("1");
    assert_eq!((one.len(), &one[0]["role"]), (1, &Value::from("user")));
    let early = at("6");
    assert_eq!((early.len(), &early[1]["finished_at"]), (2, &Value::Null));
    let all = at("100000");
    assert_eq!(all.len(), 2, "what a sub-agent says is its own: {all:?}");
    assert_eq!(all[1]["finished_reason"], "completed");
}

#[test]
fn a_missing_session_exits_1_and_a_missing_store_exits_2() {
    let home = TestHome::new();
    let store = ["--store", "sqlite:served.db"];
    let none = [&["replay", "--session", "s"][..], &store].concat();
    assert_eq!(home.run(&none).code, Some(2), "there is no store yet");
    assert_eq!(home.run(&[&["chat", "hi"][..], &store].concat()).code, Some(0));
    let done = home.run(&none);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("there is no session s"), "{}", done.err);
    let done = home.run(&["replay", "--session", "s", "--speed", "-1"]);
    assert_eq!(done.code, Some(2));
}
