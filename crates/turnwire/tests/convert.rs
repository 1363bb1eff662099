//! `turnwire convert` and `turnwire wires`, from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

const REPLY: &str = r#"{"type":"REPLY_START","id":"1","reply_id":"r","name":"friday","session_id":"s"}
{"type":"TEXT_BLOCK_START","id":"2","reply_id":"r","block_id":"b"}
{"type":"TEXT_BLOCK_DELTA","id":"3","reply_id":"r","block_id":"b","delta":"Hé!"}
{"type":"TEXT_BLOCK_END","id":"4","reply_id":"r","block_id":"b"}
{"type":"REPLY_END","id":"5","reply_id":"r","session_id":"s"}
"#;

fn start(args: &[&str]) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_turnwire"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn turnwire(args: &[&str], input: &str) -> Output {
    let mut child = start(args);
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn convert(from: &str, to: &str, options: &[&str], input: &str) -> String {
    let args = [&["convert", "--from", from, "--to", to], options].concat();
    let output = turnwire(&args, input);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{from} to {to}");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

/// The wires that `--help` offers for an option.
fn offered_wires(option: &str) -> Vec<String> {
    let output = turnwire(&["convert", option, "no-such-wire"], "");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    let list = text.split("[possible values: ").nth(1).unwrap().split(']').next().unwrap();
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_same_wire_gives_the_same_lines() {
    let once = convert("turnwire", "turnwire", &[], REPLY);
    assert_eq!(once.lines().count(), 5);
    assert_eq!(convert("turnwire", "turnwire", &[], &once), once);
    let sse = convert("turnwire", "turnwire", &["--sse"], &once);
    assert!(sse.starts_with("data: {"));
    assert_eq!(convert("turnwire", "turnwire", &[], &sse), once);
}

#[test]
fn every_offered_pair_of_wires_converts() {
    let (readable, writable) = (offered_wires("--from"), offered_wires("--to"));
    assert!(readable.len() >= 2 && writable.len() >= 2);
    for from in readable.iter().filter(|from| writable.contains(from)) {
        // With `--sse` the stream has its end marker.
        let theirs = convert("turnwire", from, &["--sse"], REPLY);
        for to in &writable {
            for options in [&[][..], &["--sse"]] {
                let output = convert(from, to, options, &theirs);
                assert!(output.contains("Hé!"), "{from} to {to}: {output}");
            }
        }
    }
}

#[test]
fn events_are_converted_as_they_come() {
    let mut child = start(&["convert", "--from", "turnwire", "--to", "agentscope"]);
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    for line in REPLY.lines() {
        writeln!(input, "{line}").unwrap();
        let mut answer = [0; 1];
        // Blocks until the line is printed, while the input is still open.
        output.read_exact(&mut answer).unwrap();
        while answer != *b"\n" {
            output.read_exact(&mut answer).unwrap();
        }
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_invalid_event_is_reported_and_the_others_are_converted() {
    let input = REPLY.replacen('\n', "\nnot JSON\n", 1);
    let output = turnwire(&["convert", "--from", "turnwire", "--to", "turnwire"], &input);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: line 2: NotJson: "));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 5);
}

#[test]
fn an_unsupported_wire_is_refused_with_the_possible_ones() {
    let output = turnwire(&["convert", "--from", "nothing", "--to", "turnwire"], "");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("[possible values: turnwire, agentscope"), "{text}");
}

#[test]
fn wires_lists_all_of_them_and_one_by_name() {
    let all = String::from_utf8(turnwire(&["wires"], "").stdout).unwrap();
    assert!(all.starts_with("wire "), "{all}");
    assert!(all.contains("\nturnwire: the canonical form"), "{all}");
    let one = String::from_utf8(turnwire(&["wires", "agentscope"], "").stdout).unwrap();
    assert!(one.starts_with("agentscope: "), "{one}");
    let none = turnwire(&["wires", "smoke-signals"], "");
    assert_eq!(none.status.code(), Some(2));
    let text = String::from_utf8(none.stderr).unwrap();
    assert!(text.contains("unknown wire smoke-signals; known wires: turnwire, "), "{text}");
}

/// Adds the seqs that a session's log would give the events.
fn add_seqs(events: &str) -> String {
    let with =
        |(at, line): (usize, &str)| format!("{},\"seq\":{}}}\n", &line[..line.len() - 1], at + 1);
    events.lines().enumerate().map(with).collect()
}

#[test]
fn events_that_come_twice_are_converted_once_on_every_wire() {
    for events in [REPLY.to_owned(), add_seqs(REPLY)] {
        let twice: String = events.lines().flat_map(|line| [line, "\n", line, "\n"]).collect();
        let again = format!("{events}{events}");
        for to in offered_wires("--to") {
            let once = convert("turnwire", &to, &[], &events);
            assert_eq!(convert("turnwire", &to, &[], &twice), once, "each twice, to {to}");
            assert_eq!(convert("turnwire", &to, &[], &again), once, "all twice, to {to}");
        }
    }
}

#[test]
fn after_a_reset_everything_is_converted_again() {
    let reset = r#"{"type":"RESET","id":"x","epoch":"2"}"#;
    let input = format!("{REPLY}{reset}\n{REPLY}{reset}\n");
    assert_eq!(convert("turnwire", "turnwire", &[], &input).lines().count(), 11);
}

#[test]
fn a_partly_repeated_merged_event_is_reported_and_left_out() {
    let merged = r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hé!","seq":9,"seq_from":3}"#;
    let input = format!("{}{merged}\n", add_seqs(REPLY));
    let output = turnwire(&["convert", "--from", "turnwire", "--to", "turnwire"], &input);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: line 6: Overlap: "));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 5);
}

#[test]
fn interleaved_replies_are_written_one_after_the_other_where_the_wire_requires_it() {
    let other =
        REPLY.replace("\"r\"", "\"s\"").replace("Hé!", "Ho!").replace("\"id\":\"", "\"id\":\"s");
    let mixed: Vec<&str> = REPLY.lines().zip(other.lines()).flat_map(|(a, b)| [a, b]).collect();
    let mixed = mixed.join("\n");
    for to in offered_wires("--to") {
        let output = convert("turnwire", &to, &[], &mixed);
        let (first, second) = (output.find("Hé!"), output.find("Ho!"));
        assert!(first.is_some() && first < second, "{to}: {output}");
        assert!(!output.contains("truncated") && !output.contains("RUN_ERROR"), "{to}: {output}");
    }
}

#[test]
fn a_wire_of_the_other_direction_is_refused_with_the_reason() {
    for (option, wire) in [("--to", "gemini"), ("--from", "ag-ui")] {
        let output = turnwire(&["convert", option, wire], "");
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        let expected = format!("error: the wire {wire} cannot be used here: its streams can be ");
        assert!(
            text.starts_with(&expected) && text.contains("Possible wires: turnwire, "),
            "{text}"
        );
    }
}
