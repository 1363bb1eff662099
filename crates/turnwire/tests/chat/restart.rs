//! A server that is killed during a reply, and started again.

use crate::harness::{TestHome, wait_until};
use crate::pipe::parse_events;
use std::io::Read;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

/// The demo's reply to `long N`.
fn long_answer(count: u32) -> String {
    let numbers = (1..=count).map(|n| format!("{n:07}{}", if n % 10 == 0 { '\n' } else { ' ' }));
    numbers.collect()
}

/// Requests a long reply, kills the server during it, and returns the whole output.
fn chat_over_a_restart(more: &[&str]) -> (String, String) {
    let mut home = TestHome::new();
    home.rate = "200";
    let server = home.serve();
    let address = server.address.clone();
    let mut args = vec!["chat", "--url", &server.url, "long 400"];
    args.extend(more);
    let mut child = home.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut out, into) = (child.stdout.take().unwrap(), Arc::clone(&seen));
    let reading = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut buffer) {
            into.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    });
    let has = |part: &str| String::from_utf8_lossy(&seen.lock().unwrap()).contains(part);
    wait_until("the beginning", || has("0000040").then_some(()));
    server.kill();
    assert!(!has("0000400"), "it was too late");
    let _again = home.serve_at(&address);
    let done = child.wait_with_output().unwrap();
    reading.join().unwrap();
    let err = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(0), "{err}");
    assert!(err.contains("connection lost") && err.contains("reconnected"), "{err}");
    let out = String::from_utf8(seen.lock().unwrap().clone()).unwrap();
    (out, err)
}

#[test]
fn the_reply_is_complete_and_nothing_is_repeated() {
    let (out, _) = chat_over_a_restart(&[]);
    assert_eq!(out, long_answer(400));
}

#[test]
fn every_event_comes_once() {
    let (out, _) = chat_over_a_restart(&["--json"]);
    let events = parse_events(&out);
    assert_eq!(events[0].seq.unwrap().get(), 1);
    let mut folder = turnwire_core::Folder::default();
    for event in &events {
        folder.push(event).unwrap();
    }
    assert_eq!(folder.messages().last().unwrap().text("").unwrap(), long_answer(400));
}
