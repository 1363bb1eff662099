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
                "capabilities": {"tools": {}}, "serverInfo": {"name": "files", "version": "1"}}),
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
        writeln!(out, "\n{answer}").unwrap();
        out.flush().unwrap();
    }
    std::process::exit(0);
}

fn settings(tools: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    format!(
        "tools = [{tools}]\npermissions = [{{ tool = \"files/*\", input = {{ path = \"/etc/**\" }}, behavior = \"deny\" }}]\n\
         [mcp.files]\nenv = [\"{SERVE}\"]\ncommand = [{own:?}, \"--exact\", \"mcp::serves_when_it_is_told_to\", \
         \"--ignored\", \"--nocapture\"]\n"
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
async fn a_failing_mcp_server_keeps_turnwire_from_starting() {
    let provider = FakeProvider::start(calls_read).await;
    let none = "tools = [\"mcp:files/*\"]\n[mcp.files]\ncommand = [\"/no/such/program\"]\n";
    for (lines, expected) in [
        (
            settings("\"mcp:files/red\""),
            "turnwire.toml:8:10: agents.friday.tools.0: \"mcp:files/red\" matches no tool; there are files/read, files/write, files/format_disk",
        ),
        (none.to_owned(), "turnwire.toml:9:6: mcp.files: The MCP server files"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("turnwire.toml"), friday_settings(&provider, &lines))
            .unwrap();
        let output =
            turnwire(folder.path(), &["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
        let output_text = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && output_text.contains(expected),
            "{output_text}\n has no {expected}"
        );
        // Checking settings starts nothing.
        let check = turnwire(folder.path(), &["config", "check"]).output().unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
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
