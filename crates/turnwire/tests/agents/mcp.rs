//! Tools of an MCP server of the settings. The MCP server is this test binary, started again.

use crate::fake_provider::{FakeOutput, FakeProvider, ReceivedRequest, text};
use crate::harness::{TestServer, friday_settings, message_text, turnwire};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// The variable that makes this test binary the MCP server.
const SERVE: &str = "TURNWIRE_TEST_MCP_SERVE";

#[test]
#[ignore = "it is what other tests start"]
fn serves_when_it_is_told_to() {
    if std::env::var_os(SERVE).is_none() {
        return;
    }
    // The child gets no other variables, and never a model's API key.
    assert!(std::env::var_os("FAKE_KEY").is_none());
    for line in std::io::stdin().lock().lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
        let result = match request["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "files", "version": "1"},
                "instructions": "Read a file before you write it."}),
            Some("tools/list") => {
                let input = json!({"type": "object", "properties": {"path": {"type": "string"}}});
                let tool =
                    |name: &str| json!({"name": name, "description": "", "inputSchema": input});
                json!({"tools": [tool("read"), tool("write"), tool("format_disk")]})
            }
            Some("tools/call") => {
                let output_text = format!("{} has 3 lines", request["params"]["arguments"]["path"]);
                json!({"content": [{"type": "text", "text": output_text}]})
            }
            _ => continue,
        };
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        let mut out = std::io::stdout().lock();
        let chatter = json!({"jsonrpc": "2.0", "method": "notifications/message",
            "params": {"level": "info", "data": "chatter"}});
        writeln!(out, "\n{chatter}").unwrap();
        writeln!(out, "\n{answer}").unwrap();
        out.flush().unwrap();
    }
    std::process::exit(0);
}

/// The command that makes this test binary the MCP server.
fn server_command() -> [String; 5] {
    let own = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let arguments = ["--exact", "mcp::serves_when_it_is_told_to", "--ignored", "--nocapture"];
    let [exact, test, ignored, nocapture] = arguments.map(str::to_owned);
    [own, exact, test, ignored, nocapture]
}

fn settings(tools: &str) -> String {
    let command = server_command();
    format!(
        "tools = [{tools}]\npermissions = [{{ tool = \"files/*\", input = {{ path = \"/etc/**\" }}, behavior = \"deny\" }}]\n\
         [mcp.files]\nenv = [\"{SERVE}\"]\ncommand = {command:?}\n"
    )
}

/// Calls the tool that reads the named file.
fn calls_read(request: &ReceivedRequest) -> Vec<FakeOutput> {
    match request.last_message()["role"].as_str() {
        Some("tool") => text(request.last_message()["content"].as_str().unwrap()),
        _ => vec![FakeOutput::Call(
            "c",
            "files__read",
            json!({"path": request.last_message()["content"]}),
        )],
    }
}

#[tokio::test]
async fn a_tool_of_an_mcp_server_is_called_by_the_rules() {
    let provider = FakeProvider::start(calls_read).await;
    let server = TestServer::start(&friday_settings(
        &provider,
        &settings("\"mcp:files/read\", \"mcp:*/wr*\""),
    ));
    server.create_session("s").await;
    let reply = server.send_message("s", "/tmp/a").await;
    server.until("s", "idle").await;
    let message = server.message("s", &reply).await;
    assert_eq!(message_text(&message), "\"/tmp/a\" has 3 lines");
    // The model gets names that it accepts; everybody else sees the tool's own name.
    assert_eq!(provider.requests()[0].tools(), ["files__read", "files__write"]);
    assert_eq!(message["content"][0]["name"], "files/read");
    let reply = server.send_message("s", "/etc/passwd").await;
    server.until("s", "idle").await;
    let output_text = message_text(&server.message("s", &reply).await);
    assert!(
        output_text.contains("The rules do not allow this call of files/read"),
        "{output_text}"
    );
}

#[tokio::test]
async fn a_pattern_that_matches_no_tool_of_a_connected_server_keeps_turnwire_from_starting() {
    let provider = FakeProvider::start(calls_read).await;
    let lines = settings("\"mcp:files/red\"");
    let expected = "turnwire.toml:8:10: agents.friday.tools.0: \"mcp:files/red\" matches no tool; there are files/read, files/write, files/format_disk";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("turnwire.toml"), friday_settings(&provider, &lines))
        .unwrap();
    let output = turnwire(folder.path(), &["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    let output_text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output_text.contains(expected), "{output_text}");
    // Checking settings starts nothing, unless it is asked to.
    let check = turnwire(folder.path(), &["config", "check"]).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let check = turnwire(folder.path(), &["config", "check", "--connect"]).output().unwrap();
    let errors = String::from_utf8(check.stderr).unwrap();
    assert!(!check.status.success() && errors.contains(expected), "{errors}");
}

#[cfg(unix)]
#[tokio::test]
async fn agents_reply_without_the_tools_of_a_missing_mcp_server_until_it_is_there() {
    use std::os::unix::fs::PermissionsExt;
    let provider = FakeProvider::start(calls_read).await;
    let lines = format!(
        "tools = [\"mcp:files/read\"]\n[mcp.files]\nenv = [\"{SERVE}\"]\ncommand = [\"./files-server\"]\n"
    );
    let server = TestServer::start(&friday_settings(&provider, &lines));
    let friday = async || {
        let agents = server.get("/v1/agents").await;
        let mut agents = agents["agents"].as_array().unwrap().iter();
        agents.find(|agent| agent["name"] == "friday").unwrap().clone()
    };
    let why = "The MCP server files cannot be started: No such file or directory (os error 2).";
    assert_eq!(friday().await["unavailable"], json!([why]));
    assert_eq!(server.get("/readyz").await, json!({"status": "ready", "degraded_agents": 1}));
    assert!(server.log().contains(why), "{}", server.log());
    server.create_session("s").await;
    server.send_message("s", "/tmp/a").await;
    server.until("s", "idle").await;
    let system = |request: &ReceivedRequest| request.body["messages"][0]["content"].clone();
    assert_eq!(
        system(&provider.requests()[0]),
        "You are Friday.\n\nThe tools of the server \"files\" are unavailable at the moment. Say so if they are needed."
    );
    // The program is installed.
    let program = server.folder.path().join("files-server");
    let command = server_command().map(|part| format!("'{part}'")).join(" ");
    let written = server.folder.path().join("written");
    std::fs::write(&written, format!("#!/bin/sh\nexec {command}\n")).unwrap();
    std::fs::set_permissions(&written, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&written, &program).unwrap();
    while friday().await.get("unavailable").is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(server.get("/readyz").await, json!({"status": "ready"}));
    let reply = server.send_message("s", "/tmp/b").await;
    server.until("s", "idle").await;
    assert_eq!(message_text(&server.message("s", &reply).await), "\"/tmp/b\" has 3 lines");
    let last = provider.requests().pop().unwrap();
    assert_eq!(
        system(&last),
        "You are Friday.\n\nInstructions for the tools of the server \"files\":\nRead a file before you write it."
    );
    assert!(!server.log().contains("chatter"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_tried_with_the_models_and_mcp_servers_that_they_name() {
    let provider = FakeProvider::start(|_| text("OK")).await;
    let folder = tempfile::tempdir().unwrap();
    let missing = "[mcp.gone]\ncommand = [\"/no/such/program\"]\n[agents.broken]\nmodel = \"openai:x\"\n\
        base_url = \"http://127.0.0.1:1\"\ntools = [\"mcp:gone/*\"]\n";
    let toml = folder.path().join("turnwire.toml");
    // The provider answers on another thread while this one waits for the program.
    let good = friday_settings(&provider, &settings("\"mcp:files/read\""));
    std::fs::write(&toml, &good).unwrap();
    let check = turnwire(folder.path(), &["config", "check", "--connect"]).output().unwrap();
    let found = String::from_utf8(check.stdout).unwrap();
    let errors = String::from_utf8(check.stderr).unwrap();
    assert!(check.status.success(), "{errors}");
    for expected in ["mcp files", "ok, 3 tools", "agent friday", "openai:fake responds"] {
        assert!(found.contains(expected), "{found}\n has no {expected}");
    }
    std::fs::write(&toml, good + missing).unwrap();
    let check = turnwire(folder.path(), &["config", "check", "--connect"]).output().unwrap();
    let found = String::from_utf8(check.stdout).unwrap();
    assert_eq!(check.status.code(), Some(1), "{found}");
    for expected in ["openai:fake responds", "cannot be started", "openai:x: "] {
        assert!(found.contains(expected), "{found}\n has no {expected}");
    }
}

/// Whether a process runs. A zombie does not.
#[cfg(target_os = "linux")]
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn processes_of_mcp_servers_end_with_turnwire() {
    let provider = FakeProvider::start(calls_read).await;
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let starts = [
        "setsid sh -c 'echo $$ > pid; exec sleep 1000' </dev/null >/dev/null 2>&1 &",
        "setsid -f sh -c 'echo $$ > pid; exec sleep 1000' </dev/null >/dev/null 2>&1;",
        // Neither its parent nor its environment says who started it.
        "env -i setsid -f sh -c 'echo $$ > pid; exec sleep 1000' </dev/null >/dev/null 2>&1;",
    ];
    for start in starts {
        let script = format!("{start} exec \"$@\"");
        let command = json!([
            "sh",
            "-c",
            script,
            "sh",
            own,
            "--exact",
            "mcp::serves_when_it_is_told_to",
            "--ignored",
            "--nocapture"
        ]);
        let lines = format!(
            "tools = [\"mcp:files/read\"]\n[mcp.files]\nenv = [\"{SERVE}\"]\ncommand = {command}\n"
        );
        let mut server = TestServer::start(&friday_settings(&provider, &lines));
        let file = server.folder.path().join("pid");
        let pid = loop {
            // The shell in the background writes it when it is scheduled.
            match std::fs::read_to_string(&file) {
                Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
                _ => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        };
        assert!(is_running(&pid), "{start}");
        assert!(server.terminate().wait().unwrap().success());
        assert!(!is_running(&pid), "{start}");
    }
}
