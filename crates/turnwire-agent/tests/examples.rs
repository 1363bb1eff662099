//! Runs the examples, offline, and checks their output.
#![expect(clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;

/// The output of an example.
fn shown(name: &str) -> String {
    let mut path = std::env::current_exe().expect("a test knows where it is");
    path.pop();
    path.set_file_name("examples");
    path.push(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let output = Command::new(&path).output();
    let Ok(output) = output else {
        panic!(
            "{} is not there; `cargo test` builds it, or `cargo build --examples`",
            path.display()
        )
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} fails: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn check(name: &str, expected: &[&str]) {
    let shown = shown(name);
    let mut rest = shown.as_str();
    for line in expected {
        let Some((_, behind)) = rest.split_once(line) else {
            panic!("{name} does not show {line:?} in its place:\n{shown}")
        };
        rest = behind;
    }
}

#[test]
fn quick_start() {
    check("quick_start", &["REPLY_START\n", "… Hello\n", "… , Ann\n", "REPLY_END\n"]);
}

#[test]
fn tools() {
    check(
        "tools",
        &["18 °C and sunny", "no station in Atlantis", "the museum of Paris", "the tower"],
    );
}

#[test]
fn approval() {
    let lines = ["May I buy", "ACME", "bought 10 of ACME", "did not allow", "rules", "settled"];
    check("approval", &lines);
}

#[test]
fn structured_output() {
    check("structured_output", &["(error:", "/steps", "a cup of tea in 2 steps", "2. pour"]);
}

#[test]
fn two_agents() {
    check("two_agents", &["cat: Sleep", "dog: A day", "cat: Running", "dog: Then"]);
}

#[test]
fn mcp() {
    check(
        "mcp",
        &[
            "library/find: Where a book stands\n",
            "library/discard: ",
            "library/find {\"title\":\"Middlemarch\"} -> find: shelf 7\n",
            "The rules do not allow",
            "It stands where it should.",
        ],
    );
}

#[test]
fn agent_as_tool() {
    check(
        "agent_as_tool",
        &[
            "main: TOOL_RESULT_START\n",
            "main/researcher for call m1: REPLY_START\n",
            "main/researcher for call m1: REQUIRE_USER_CONFIRM\n",
            "May I fetch {\"page\":\"towers.example\"}?\n",
            "main/researcher for call m1: USER_CONFIRM_RESULT\n",
            "main/researcher for call m1: REPLY_END\n",
            "main: TOOL_RESULT_END\n",
            "main: REPLY_END\n",
            "researcher -> 330 m, says towers.example.\n",
            "The tower is 330 m high.\n",
        ],
    );
}

/// The guide needs a key, so it is only compiled.
#[test]
fn the_guide_of_the_documentation_is_an_example_and_names_what_it_depends_on() {
    let docs = include_str!("../../../docs/agents.md");
    let (_, code) = include_str!("../examples/guide.rs").split_once("\n\n").expect("code");
    assert!(
        docs.contains(&format!("```rust\n{code}```\n")),
        "docs/agents.md differs from examples/guide.rs"
    );
    let manifest =
        docs.split("```toml\n[package]").nth(1).and_then(|rest| rest.split("```").next());
    let manifest = manifest.expect("there is a Cargo.toml");
    let workspace = include_str!("../../../Cargo.toml");
    for line in manifest.split("[dependencies]\n").nth(1).expect("it has dependencies").lines() {
        let (name, version) = line.split_once(" = ").expect("a dependency");
        assert!(code.contains(&name.replace('-', "_")), "{name} is not used");
        let version =
            version.trim_start_matches("{ version = ").split('"').nth(1).expect("a version");
        let own = format!("{name} = ");
        let own =
            workspace.lines().find(|line| line.starts_with(&own)).expect("a dependency of ours");
        assert!(
            own.contains(&format!("\"{version}")),
            "{name} {version} is not what we use: {own}"
        );
    }
}
