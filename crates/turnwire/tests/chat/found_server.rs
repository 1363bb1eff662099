//! Without `--url`, a conversation takes place at the server that has the store open.

use crate::harness::TestHome;
use crate::tmux::{Terminal, skip_without_tmux};
use std::fs;

const STORE: [&str; 2] = ["--store", "sqlite:served.db"];

#[test]
fn chat_uses_the_server_that_has_the_store_open() {
    let home = TestHome::new();
    let server = home.serve();
    let done = home.run(&[&["chat", "--session", "s", "weather"], &STORE[..]].concat());
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.out.starts_with("It is **18 °C**"), "{}", done.out);
    let note = format!("using the server at {}, which has served.db open\n", server.url);
    assert!(done.err.starts_with(&note), "{}", done.err);
    assert!(server.get("/v1/sessions/s").contains("\"status\":\"idle\""));
    // Commands that read the store do so beside the server.
    let done = home.run(&[&["sessions"], &STORE[..]].concat());
    assert!(done.out.contains("\ns  "), "{}", done.out);
    let done = home.run(&[&["replay", "--session", "s", "--at", "1"], &STORE[..]].concat());
    assert_eq!(done.out.lines().count(), 1, "{}", done.err);
    // A model of one's own needs a server of one's own.
    let done = home.run(&[&["chat", "--model", "demo", "hi"], &STORE[..]].concat());
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("--agent") && done.err.contains(&server.url), "{}", done.err);
}

#[test]
fn a_server_that_was_killed_is_not_found() {
    let home = TestHome::new();
    let server = home.serve();
    let url = server.url.clone();
    server.kill();
    let lock = fs::read_to_string(home.path().join("served.db.lock")).unwrap();
    assert!(lock.contains(&url), "it could not tidy up: {lock}");
    let done = home.run(&[&["chat", "weather"], &STORE[..]].concat());
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!done.err.contains("using the server"), "{}", done.err);
}

/// The token goes to the address in this file.
#[cfg(unix)]
#[test]
fn a_lock_file_that_others_can_write_is_not_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let home = TestHome::new();
    let server = home.serve();
    let lock = home.path().join("served.db.lock");
    assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o622)).unwrap();
    let done = home.run(&[&["chat", "weather"], &STORE[..]].concat());
    assert_eq!(done.code, Some(2), "{}", done.out);
    assert!(done.err.contains("not trusted") && done.err.contains("--url"), "{}", done.err);
    drop(server);
}

#[test]
fn another_chat_is_no_server_and_its_line_for_resuming_works() {
    if skip_without_tmux() {
        return;
    }
    let home = TestHome::new();
    fs::write(home.path().join("my settings.toml"), "").unwrap();
    let options = ["--store", "sqlite:my talk.db", "--config", "my settings.toml"];
    let terminal = Terminal::start(&home, &[], &[&["chat"], &options[..]].concat());
    terminal.wait_for_prompt("›");
    terminal.type_line("weather");
    terminal.wait_for("It is 18 °C in Paris", 1);
    let done = home.run(&["chat", "--store", "sqlite:my talk.db", "hi"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("another `turnwire chat`"), "{}", done.err);
    terminal.wait_for_prompt("›");
    terminal.type_line("/quit");
    terminal.wait_for("left with 0", 1);
    // tmux joins a line that the terminal has broken, as a terminal does when one copies it.
    let text = terminal.joined_text();
    let line = text.lines().find_map(|line| line.strip_prefix("resume with: turnwire ")).unwrap();
    assert!(line.len() > 90, "it is longer than the terminal is wide: {line}");
    let program = env!("CARGO_BIN_EXE_turnwire");
    let script = format!("{program} {line} < /dev/null");
    let command = home.command(&[]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).current_dir(home.path());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let done = TestHome::output_of(&mut shell);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("no open reply"), "{}", done.err);
}
