//! Invalid agent settings are reported before the server starts.

use crate::harness::turnwire;
use std::path::Path;

fn check(settings: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("turnwire.toml"), settings).unwrap();
    run(folder.path(), &["config", "check"])
}

fn run(folder: &Path, args: &[&str]) -> (bool, String) {
    let mut command = turnwire(folder, args);
    command.env_remove("ANTHROPIC_API_KEY").env_remove("OPENAI_API_KEY");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn config_check_lists_agents_and_warns_about_missing_keys() {
    let (is_good, text) = check("[agents.a]\nmodel = \"anthropic:claude\"\n");
    assert!(is_good, "{text}");
    assert!(text.contains("agents       a (anthropic:claude)"), "{text}");
    let warning = "warning: turnwire.toml:2:1: agents.a.model: no API key for the model: ANTHROPIC_API_KEY is not set";
    assert!(text.contains(warning), "{text}");
    let (is_good, text) = check("[agents.a]\nmodel = \"openai:x\"\napi_key_env = \"FAKE_KEY\"\n");
    assert!(is_good && !text.contains("warning"), "{text}");
}

#[test]
fn invalid_agent_settings_are_reported_with_their_line() {
    for (settings, expected) in [
        (
            "[agents.a]\nmodel = \"openai:x\"\ntools = [\"agent:b\"]\n[agents.b]\nmodel = \"openai:x\"\ntools = [\"agent:a\"]\n",
            "error: turnwire.toml:3:1: agents.a.tools: these agents call each other without end: a → b → a",
        ),
        (
            "[agents.a]\nmodel = \"openai:x\"\ntools = [\"agent:b\", \"mcp:f/*\", \"external:g\"]\n",
            "error: turnwire.toml:3:10: agents.a.tools.0: \"agent:b\" matches no other agent",
        ),
        (
            &format!(
                "[external_tools.x]\ndescription = \"x\"\ninput = {{ type = \"object\", description = \"{}\" }}\n",
                "x".repeat(70_000)
            ),
            "error: turnwire.toml:3:1: external_tools.x.input: the tool `x` has 70",
        ),
    ] {
        let (is_good, text) = check(settings);
        assert!(
            !is_good && text.contains(expected),
            "{settings}\n gives {text}\n and not {expected}"
        );
    }
}

#[test]
fn a_server_with_invalid_settings_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[agents.a]\nmodel = \"openai:x\"\ntools = [\"external:nothing\"]\n";
    std::fs::write(folder.path().join("turnwire.toml"), settings).unwrap();
    let (is_good, text) = run(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert!(!is_good, "{text}");
    assert!(text.contains("invalid settings\nturnwire.toml:3:10: agents.a.tools.0: "), "{text}");
}
