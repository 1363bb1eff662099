//! Output and exit status in a pipe.

use crate::harness::{Server, TestHome, wait_until};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use turnwire_core::{Event, EventKind, FinishedReason, Folder};

const MEMORY: [&str; 3] = ["chat", "--store", "memory:"];

fn chat_args<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&MEMORY[..], more].concat()
}

#[test]
fn a_message_on_standard_input_gets_its_reply_as_plain_text() {
    let done = TestHome::new().run_with_input("hello there\n", &chat_args(&[]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(
        done.out.starts_with("## What you said\n\n> hello there\n\nI am a **demo**"),
        "{}",
        done.out
    );
    assert!(done.out.ends_with("- `fail` breaks off\n"), "{}", done.out);
    assert!(!done.out.contains('\u{1b}') && !done.err.contains('\u{1b}'));
    assert_eq!(done.err, "");
}

#[test]
fn tool_calls_are_notes_on_standard_error() {
    let done = TestHome::new().run(&chat_args(&["how is the weather?"]));
    assert_eq!(
        (done.code, &*done.out),
        (
            Some(0),
            "It is **18 °C** in Paris, with light rain. Tomorrow is the day for a walk: 22 °C and sunny.\n",
        )
    );
    assert_eq!(
        done.err,
        "tool get_weather (Look up the weather) {\"city\":\"Paris\"}\ntool ended: success\n"
    );
}

#[test]
fn approvals_are_denied_in_a_pipe_unless_yes() {
    let home = TestHome::new();
    let done = home.run(&chat_args(&["approve"]));
    assert_eq!((done.code, &*done.out), (Some(0), "You said no, so I have bought nothing.\n"));
    assert!(done.err.contains("execute_trade (Buy shares) was denied"), "{}", done.err);
    assert!(done.err.contains("--yes"), "{}", done.err);
    let done = home.run(&chat_args(&["approve", "--yes"]));
    assert_eq!(
        (done.code, &*done.out),
        (Some(0), "Done. Bought 100 ACME at 12.50 each, 1250.00 in all.\n")
    );
    assert!(!done.err.contains("denied"), "{}", done.err);
}

#[test]
fn a_client_side_tool_is_answered_as_not_executed_in_a_pipe() {
    let done = TestHome::new().run(&chat_args(&["browser"]));
    assert_eq!(done.code, Some(0));
    assert!(done.out.contains("> Not executed: this client is a terminal"), "{}", done.out);
    assert!(done.err.contains("open_page (Open a page) was not executed"), "{}", done.err);
}

#[test]
fn a_reply_that_fails_is_exit_1_with_what_to_do() {
    let done = TestHome::new().run(&chat_args(&["fail"]));
    assert_eq!(done.code, Some(1));
    assert_eq!(done.out, "This was going to be a long and thoughtful answer, but the\n");
    assert!(done.err.contains("The reply failed (upstream)"), "{}", done.err);
    assert!(done.err.contains("retry"), "{}", done.err);
    let done = TestHome::new().run(&chat_args(&["fail", "--json"]));
    assert_eq!(done.code, Some(1));
}

#[test]
fn an_image_is_saved_and_named() {
    let home = TestHome::new();
    let done = home.run(&chat_args(&["image", "--save", "pictures"]));
    assert_eq!(done.code, Some(0));
    assert!(done.err.contains("saved pictures/sunset.png (image/png)"), "{}", done.err);
    let bytes = std::fs::read(home.path().join("pictures/sunset.png")).unwrap();
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.ends_with(b"IEND\xaeB`\x82"));
}

/// The events of a `--json` output; their seqs must be dense.
pub fn parse_events(out: &str) -> Vec<Event<'static>> {
    let events: Vec<_> =
        out.lines().map(|line| Event::from_json(line).unwrap().into_owned()).collect();
    let seqs: Vec<u64> = events.iter().map(|event| event.seq.unwrap().get()).collect();
    let expected: Vec<u64> = (seqs[0]..seqs[0] + seqs.len() as u64).collect();
    assert_eq!(seqs, expected, "a gap, or an event twice");
    events
}

#[test]
fn json_output_is_one_canonical_event_per_line() {
    let done = TestHome::new().run(&chat_args(&["team", "--json"]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    let events = parse_events(&done.out);
    assert!(matches!(events[0].kind, EventKind::Message(_)));
    assert!(matches!(events.last().unwrap().kind, EventKind::ReplyEnd(_)));
    let mut folder = Folder::default();
    for event in &events {
        folder.push(event).unwrap();
    }
    let texts: Vec<_> = folder.messages().filter_map(|msg| msg.text("")).collect();
    assert_eq!(texts[0], "team");
    assert!(texts[1].starts_with("I asked the researcher."), "{texts:?}");
    for (line, event) in done.out.lines().zip(&events) {
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(line), value(&event.to_json()));
    }
}

#[test]
fn wrong_usage_exits_2_with_a_hint() {
    let home = TestHome::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for (args, parts) in [
        (
            chat_args(&["--agent", "nobody", "hi"]),
            vec!["no such agent: \"nobody\"", "the agents are demo"],
        ),
        (chat_args(&["--model", "tulip", "hi"]), vec!["\"tulip\" is not a model", "WIRE one of"]),
        (
            chat_args(&["--model", "anthropic:claude", "hi"]),
            vec!["anthropic:claude", "ANTHROPIC_API_KEY is not set"],
        ),
        (chat_args(&["--resume", "--session", "none", "hi"]), vec!["no such session"]),
        (vec!["chat", "--url", &nobody, "hi"], vec!["cannot reach", "turnwire serve"]),
        (vec!["chat", "--url", "ftp://x", "hi"], vec!["invalid server URL"]),
        (vec!["chat", "--url", &nobody, "--store", "memory:", "hi"], vec!["cannot be used with"]),
        (chat_args(&[]), vec!["the message is empty"]),
        (chat_args(&["--token", "t", "hi"]), vec!["no server has the store open", "--url"]),
    ] {
        let done = home.run(&args);
        assert_eq!(done.code, Some(2), "{args:?}: {}", done.err);
        for part in parts {
            assert!(done.err.contains(part), "{args:?}: {}", done.err);
        }
        assert_eq!(done.out, "");
    }
}

#[test]
fn the_token_comes_from_the_environment_and_is_never_printed() {
    let home = TestHome::new();
    let done = home.run(&["token", "new"]);
    let token = done.out.lines().find_map(|line| line.strip_prefix("# tw_")).unwrap();
    let token = format!("tw_{token}");
    let settings: Vec<&str> = done.out.lines().filter(|line| !line.contains(&token)).collect();
    std::fs::write(home.path().join("turnwire.toml"), settings.join("\n")).unwrap();
    let server = home.serve();
    let args = ["chat", "--url", &server.url, "weather"];
    let done = home.run(&args);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("TURNWIRE_TOKEN"), "{}", done.err);
    let done = TestHome::output_of(home.command(&args).env("TURNWIRE_TOKEN", &token));
    assert_eq!(done.code, Some(0), "{}", done.err);
    // The same for a server that is found at its store.
    let found = ["chat", "--store", "sqlite:served.db", "weather"];
    let done = home.run(&found);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("TURNWIRE_TOKEN"), "{}", done.err);
    let done = TestHome::output_of(home.command(&found).env("TURNWIRE_TOKEN", &token));
    assert_eq!(done.code, Some(0), "{}", done.err);
    let done = home.run(&[&found[..], &["--token", &token]].concat());
    assert_eq!(done.code, Some(0), "{}", done.err);
    let wrong = TestHome::output_of(home.command(&args).env("TURNWIRE_TOKEN", "tw_wrong-secret"));
    assert_eq!(wrong.code, Some(2));
    assert!(!wrong.err.contains("wrong-secret") && !done.err.contains(&token));
    // A local server ignores the credentials of the settings, and admits nobody else.
    let done = home.run(&chat_args(&["weather"]));
    assert_eq!(done.code, Some(0), "{}", done.err);
}

#[test]
fn the_documentation_names_every_provider_of_model() {
    let done = TestHome::new().run(&chat_args(&["--model", "tulip", "hi"]));
    let names = done.err.lines().next().unwrap().split("WIRE one of ").nth(1).unwrap();
    let mut names: Vec<&str> = names.split(", ").collect();
    names.push("demo");
    let docs = include_str!("../../../../docs/chat.md");
    let table = docs.split("| `--model` |").nth(1).unwrap().split("\n\n").next().unwrap();
    let rows = table.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    let mut documented: Vec<&str> = rows.map(|name| name.trim_end_matches(":MODEL")).collect();
    documented.sort_unstable();
    names.sort_unstable();
    assert_eq!(documented, names);
}

#[test]
fn files_are_attached_to_a_message_in_a_pipe() {
    let home = TestHome::new();
    let server = home.serve();
    std::fs::write(home.path().join("notes.txt"), "one\n").unwrap();
    let args = ["chat", "--url", &server.url, "--session", "s", "--attach"];
    let done = home.run_with_input("weather", &[&args[..], &["notes.txt"]].concat());
    assert_eq!(done.code, Some(0), "{}", done.err);
    let messages = server.get("/v1/sessions/s/messages");
    assert!(messages.contains("\"name\":\"notes.txt\""), "{messages}");
    let done = home.run(&[&args[..], &[".", "weather"]].concat());
    assert_eq!((done.code, &*done.err), (Some(2), "error: cannot attach .: it is not a file\n"));
}

fn wait_for_pending_call(server: &Server, session: &str) {
    server.post("/v1/sessions", &format!("{{\"id\": \"{session}\"}}"));
    server.post(&format!("/v1/sessions/{session}/messages"), "{\"content\": \"approve\"}");
    wait_until("the question", || {
        server.get(&format!("/v1/sessions/{session}")).contains("\"waiting\"").then_some(())
    });
}

#[test]
fn resume_continues_the_latest_session_and_answers_pending_calls() {
    let home = TestHome::new();
    let server = home.serve();
    server.post("/v1/sessions", "{\"id\": \"older\"}");
    wait_for_pending_call(&server, "latest");
    let done = home.run(&["chat", "--url", &server.url, "--resume", "--yes"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(done.out, "Done. Bought 100 ACME at 12.50 each, 1250.00 in all.\n");
    let done = home.run_with_input("weather", &["chat", "--url", &server.url, "--resume"]);
    assert!(done.out.starts_with("It is **18 °C**"), "{}", done.out);
    let page = server.get("/v1/sessions/latest/messages");
    assert_eq!(page.matches("\"role\":\"user\"").count(), 2, "{page}");
}

#[test]
fn a_busy_session_is_reported() {
    let home = TestHome::new();
    let server = home.serve();
    wait_for_pending_call(&server, "busy");
    let done = home.run(&["chat", "--url", &server.url, "--session", "busy", "weather"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.starts_with("error: "), "{}", done.err);
    assert!(server.get("/v1/sessions/busy").contains("\"waiting\""), "nothing was answered");
}

#[test]
fn a_closed_pipe_ends_chat_without_a_panic() {
    let home = TestHome::new();
    for more in [&["long 20000"][..], &["long 20000", "--json"]] {
        let mut child = home.command(&chat_args(more)).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(141), "{done:?}");
        assert!(done.stderr.is_empty(), "{done:?}");
    }
}

#[test]
fn tls_uses_the_root_certificates_of_the_machine() {
    let home = TestHome::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(home.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(home.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let settings = "[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    std::fs::write(home.path().join("turnwire.toml"), settings).unwrap();
    let server = home.serve();
    let url = server.url.replace("127.0.0.1", "localhost");
    let args = ["chat", "--url", &url, "weather"];
    let done = TestHome::output_of(home.command(&args).env("SSL_CERT_FILE", "cert.pem"));
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.out.starts_with("It is **18 °C**"), "{}", done.out);
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(home.path().join("other.pem"), other.cert.pem()).unwrap();
    let done = TestHome::output_of(home.command(&args).env("SSL_CERT_FILE", "other.pem"));
    assert_eq!(done.code, Some(2), "{}", done.out);
    assert!(done.err.contains("TLS handshake failed"), "{}", done.err);
}

#[test]
fn the_first_message_becomes_the_title_of_the_session() {
    let home = TestHome::new();
    let store = ["--store", "sqlite:served.db"];
    for message in ["weather in Rome", "hello again"] {
        let args = [&["chat", "--session", "s", message][..], &store].concat();
        assert_eq!(home.run(&args).code, Some(0));
    }
    let done = home.run(&[&["sessions", "--json"][..], &store].concat());
    assert!(done.out.contains("\"title\":\"weather in Rome\""), "{}", done.out);
}

#[test]
fn an_interrupt_stops_the_reply_and_waits_for_its_end() {
    let mut home = TestHome::new();
    home.rate = "50";
    let mut child = home.command(&chat_args(&["long 100000", "--json"])).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut all, mut line) = (String::new(), String::new());
    while !line.contains("TEXT_BLOCK_DELTA") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it ended: {all}");
        all += &line;
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    out.read_to_string(&mut all).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let events = parse_events(&all);
    let EventKind::ReplyEnd(end) = &events.last().unwrap().kind else { panic!("no end: {all}") };
    assert_eq!(end.finished_reason, FinishedReason::Interrupted);
}

#[test]
fn help_has_examples_and_exit_statuses() {
    let done = TestHome::new().run(&["chat", "--help"]);
    for part in ["Examples:", "Exit status:", "--resume", "Ctrl-C", "TURNWIRE_TOKEN"] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
}
