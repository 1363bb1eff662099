//! `turnwire fold`, from outside.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn turnwire(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_turnwire"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program may close its input when it has read enough.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

struct Folded {
    messages: Vec<serde_json::Value>,
    problems: String,
    status: i32,
}

fn fold(args: &[&str], input: &[u8]) -> Folded {
    let output = turnwire(&[&["fold"], args].concat(), input);
    let text = String::from_utf8(output.stdout).unwrap();
    Folded {
        messages: text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        problems: String::from_utf8(output.stderr).unwrap(),
        status: output.status.code().unwrap(),
    }
}

fn event_line(kind: &str, reply: &str, fields: &str) -> String {
    let id = next_id();
    format!(r#"{{"id":"{id}","created_at":"t","type":"{kind}","reply_id":"{reply}"{fields}}}"#)
}

fn next_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A reply with one text block, as lines.
fn reply_lines(id: &str, text: &str) -> Vec<String> {
    vec![
        event_line("REPLY_START", id, r#","name":"friday""#),
        event_line("TEXT_BLOCK_START", id, r#","block_id":"b""#),
        event_line("TEXT_BLOCK_DELTA", id, &format!(r#","block_id":"b","delta":"{text}""#)),
        event_line("TEXT_BLOCK_END", id, r#","block_id":"b""#),
        event_line("REPLY_END", id, ""),
    ]
}

fn message_texts(folded: &Folded) -> Vec<(&str, &str)> {
    folded
        .messages
        .iter()
        .map(|msg| (msg["id"].as_str().unwrap(), msg["content"][0]["text"].as_str().unwrap_or("")))
        .collect()
}

#[test]
fn interleaved_replies_come_out_in_the_order_of_their_first_events() {
    let (a, b) = (reply_lines("a", "one"), reply_lines("b", "two"));
    let mut lines = vec![b[0].clone()];
    lines.extend(a.iter().cloned());
    lines.extend(b[1..].iter().cloned());
    let folded = fold(&[], lines.join("\n").as_bytes());
    assert_eq!(message_texts(&folded), [("b", "two"), ("a", "one")]);
    assert_eq!((folded.problems.as_str(), folded.status), ("", 0));
}

#[test]
fn lines_and_server_sent_events_give_the_same_with_either_line_end() {
    let lines = reply_lines("a", "Hello");
    let plain = fold(&[], (lines.join("\n") + "\n").as_bytes());
    assert_eq!(message_texts(&plain), [("a", "Hello")]);
    let events = lines.iter().map(|line| format!("id: E.1\nevent: message\ndata: {line}\n\n"));
    let sse = format!(": comment\nretry: 3\n\n{}data: [DONE]\n\n", events.collect::<String>());
    for body in [lines.join("\r\n"), sse.clone(), sse.replace('\n', "\r\n")] {
        let folded = fold(&["-"], body.as_bytes());
        assert_eq!(
            (folded.messages, folded.problems, folded.status),
            (plain.messages.clone(), String::new(), 0)
        );
    }
}

#[test]
fn a_reply_with_a_problem_is_not_printed_and_the_others_are() {
    let mut lines = reply_lines("a", "one");
    lines.push(event_line("TEXT_BLOCK_DELTA", "bad", r#","block_id":"b7","delta":"x""#));
    lines.extend(reply_lines("bad", "lost"));
    lines.extend(reply_lines("c", "three"));
    let body = lines.join("\n");
    let strict = fold(&[], body.as_bytes());
    assert_eq!(message_texts(&strict), [("a", "one"), ("c", "three")]);
    assert_eq!(strict.status, 1);
    assert_eq!(
        strict.problems,
        "error: line 6: UnknownBlock: reply bad has no text block b7; was its TEXT_BLOCK_START lost?\n"
    );
    let tolerant = fold(&["--tolerant"], body.as_bytes());
    assert_eq!(message_texts(&tolerant), [("a", "one"), ("bad", "lost"), ("c", "three")]);
    assert_eq!(tolerant.status, 0);
    assert!(tolerant.problems.starts_with("warning: line 6: UnknownBlock: "));
}

#[test]
fn an_invalid_event_is_an_error_in_both_modes_and_loses_nothing_else() {
    let mut lines = reply_lines("a", "one");
    lines.insert(2, "{\"type\":".to_owned());
    lines.insert(4, r#"{"role":"user","content":[]}"#.to_owned());
    for args in [&[][..], &["--tolerant"]] {
        let folded = fold(args, lines.join("\n").as_bytes());
        assert_eq!((message_texts(&folded), folded.status), (vec![("a", "one")], 1));
        assert!(folded.problems.contains("line 3: NotJson: "), "{}", folded.problems);
        assert!(
            folded.problems.contains("line 5: NotAnEvent: this is a message"),
            "{}",
            folded.problems
        );
    }
}

#[test]
fn a_reply_with_an_invalid_event_is_not_printed() {
    let mut lines = reply_lines("bad", "not ok");
    lines.insert(
        3,
        r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"bad","block_id":"b","delta":null}"#.to_owned(),
    );
    lines.extend(reply_lines("good", "ok"));
    let strict = fold(&[], lines.join("\n").as_bytes());
    assert_eq!((message_texts(&strict), strict.status), (vec![("good", "ok")], 1));
    let tolerant = fold(&["--tolerant"], lines.join("\n").as_bytes());
    assert_eq!(
        (message_texts(&tolerant), tolerant.status),
        (vec![("bad", "not ok"), ("good", "ok")], 1)
    );
}

#[test]
fn after_a_reset_problems_are_forgotten() {
    let mut lines = vec![event_line("TEXT_BLOCK_DELTA", "a", r#","block_id":"lost","delta":"x""#)];
    lines.push(r#"{"type":"RESET","epoch":"e","reason":"trimmed"}"#.to_owned());
    lines.extend(reply_lines("a", "one"));
    let folded = fold(&[], lines.join("\n").as_bytes());
    assert_eq!((message_texts(&folded), folded.status), (vec![("a", "one")], 1));
}

#[cfg(target_os = "linux")]
#[test]
fn messages_that_cannot_be_written_are_an_error() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_turnwire"))
        .arg("fold")
        .stdin(Stdio::piped())
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(reply_lines("a", "one").join("\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: cannot write: "));
}

#[test]
fn invalid_utf8_is_reported_with_its_line() {
    let mut body = reply_lines("a", "one").join("\n").into_bytes();
    body.extend(b"\n{\"\xff\"}\n");
    let folded = fold(&[], &body);
    assert_eq!((message_texts(&folded), folded.status), (vec![("a", "one")], 1));
    assert_eq!(folded.problems, "error: line 6: NotUtf8: the bytes are not UTF-8\n");
}

#[test]
fn repeated_and_unknown_events_are_accepted() {
    let lines = reply_lines("a", "one");
    let mut stream: Vec<String> =
        lines.iter().flat_map(|line| [line.clone(), line.clone()]).collect();
    stream.insert(3, r#"{"type":"LATER_VERSION","reply_id":"a"}"#.to_owned());
    stream.extend(lines);
    let folded = fold(&[], stream.join("\n").as_bytes());
    assert_eq!(
        (message_texts(&folded), folded.problems.as_str(), folded.status),
        (vec![("a", "one")], "", 0)
    );
}

#[test]
fn whole_messages_are_printed_in_order() {
    let message = r#"{"type":"MESSAGE","id":"e","message":{"id":"u","name":"alice","role":"user","content":"hi"}}"#;
    let mut lines = vec![message.to_owned()];
    lines.extend(reply_lines("a", "one"));
    assert_eq!(message_texts(&fold(&[], lines.join("\n").as_bytes())), [("u", "hi"), ("a", "one")]);
}

#[test]
fn the_agentscope_wire_reads_events_inside_custom_events() {
    let line = r#"{"type":"CUSTOM","name":"message","value":{"type":"MESSAGE","message":{"id":"u","role":"user","content":"hi"}}}"#;
    assert_eq!(message_texts(&fold(&["--wire", "agentscope"], line.as_bytes())), [("u", "hi")]);
    assert_eq!(message_texts(&fold(&["--wire", "turnwire"], line.as_bytes())), []);
}

#[test]
fn a_file_is_read_and_a_missing_one_is_named() {
    let file = std::env::temp_dir().join(format!("turnwire-fold-{}.ndjson", std::process::id()));
    std::fs::write(&file, reply_lines("a", "one").join("\n")).unwrap();
    assert_eq!(message_texts(&fold(&[file.to_str().unwrap()], b"")), [("a", "one")]);
    std::fs::remove_file(&file).unwrap();
    let missing = fold(&[file.to_str().unwrap()], b"");
    assert_eq!(missing.status, 2);
    assert!(missing.problems.starts_with(&format!("error: cannot read {}: ", file.display())));
}

#[test]
fn the_example_folds() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/weather.ndjson");
    let folded = fold(&[file], b"");
    assert_eq!((folded.problems.as_str(), folded.status), ("", 0));
    let last = folded.messages[0]["content"].as_array().unwrap().last().unwrap();
    assert_eq!(last["text"], "It is **sunny** in Paris, 25 °C.");
}

#[test]
fn an_input_of_another_wire_is_an_error_that_names_the_likely_wire() {
    let chunk = r#"data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}"#;
    let input = format!("{chunk}\n\ndata: [DONE]\n\n");
    let folded = fold(&["--wire", "gemini"], input.as_bytes());
    assert_eq!((folded.status, folded.messages.len()), (1, 0));
    assert!(
        folded.problems.contains("nothing in the input was recognised as gemini"),
        "{}",
        folded.problems
    );
    assert!(folded.problems.contains("use --wire openai-chat"), "{}", folded.problems);
    let converted =
        turnwire(&["convert", "--from", "anthropic", "--to", "turnwire"], input.as_bytes());
    let err = String::from_utf8(converted.stderr).unwrap();
    assert_eq!((converted.status.code(), &*converted.stdout), (Some(1), &b""[..]), "{err}");
    assert!(err.contains("use --from openai-chat"), "{err}");
}

#[test]
fn an_event_without_a_required_field_is_not_taken_for_another_wire() {
    let folded = fold(&[], b"{\"type\":\"REPLY_END\"}\n");
    assert_eq!(folded.problems, "error: line 1: NotAnEvent: REPLY_END has no `reply_id`\n");
}

#[test]
fn nothing_in_nothing_out() {
    let folded = fold(&[], b"");
    assert_eq!((folded.messages.len(), folded.problems.as_str(), folded.status), (0, "", 0));
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_fold_quietly() {
    let lines =
        (0..2000).flat_map(|n| reply_lines(&format!("r{n}"), "one")).collect::<Vec<_>>().join("\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_turnwire"))
        .arg("fold")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn without_arguments_it_prints_help_and_wrong_usage_exits_2() {
    let help = turnwire(&[], b"");
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("Usage: turnwire"));
    let wrong = turnwire(&["fold", "--wire", "smoke"], b"");
    assert_eq!(wrong.status.code(), Some(2));
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(text.contains("turnwire, agentscope"), "{text}");
}
