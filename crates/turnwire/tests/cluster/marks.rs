//! Tools that leave a mark outside: an MCP server, which is this test binary started again, writes a line to a file for
//! each call. Neither tool may run twice for one call.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

/// The variable with the path of the file. Without it the test below does nothing.
pub const FILE: &str = "TURNWIRE_TEST_MARKS";

/// The settings of the MCP server.
pub fn settings() -> String {
    let program = std::env::current_exe().unwrap();
    let command = json!([
        program.to_str().unwrap(),
        "--exact",
        "marks::writes_marks_when_started_by_a_node",
        "--ignored",
        "--nocapture"
    ]);
    format!("[mcp.marks]\nenv = [\"{FILE}\"]\ncommand = {command}\n")
}

/// How often each call ran.
pub fn read(file: &Path) -> HashMap<String, u64> {
    let mut runs = HashMap::new();
    for call in std::fs::read_to_string(file).unwrap_or_default().lines() {
        *runs.entry(call.to_owned()).or_default() += 1;
    }
    runs
}

#[test]
#[ignore = "it is what nodes start"]
fn writes_marks_when_started_by_a_node() {
    let Some(file) = std::env::var_os(FILE) else { return };
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(result) = answer(&request, Path::new(&file)) {
            let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
            // After the words of the test harness comes a line of its own. The node may be gone.
            let _ = io::stdout().write_all(format!("\n{response}\n").as_bytes());
            let _ = io::stdout().flush();
        }
    }
    std::process::exit(0);
}

fn answer(request: &Value, file: &Path) -> Option<Value> {
    let params = &request["params"];
    Some(match request["method"].as_str()? {
        "initialize" => {
            json!({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "marks", "version": "1"}})
        }
        "tools/list" => {
            let tools = ["mark", "ask"].map(|name| {
                json!({"name": name, "description": "Leaves a mark", "inputSchema": {"type": "object"}})
            });
            json!({"tools": tools})
        }
        "tools/call" => {
            let input = &params["arguments"];
            let mut marks = OpenOptions::new().create(true).append(true).open(file).unwrap();
            marks.write_all(format!("{}\n", input["call"].as_str().unwrap()).as_bytes()).unwrap();
            // The tool's work. Nodes die meanwhile.
            std::thread::sleep(Duration::from_millis(input["millis"].as_u64().unwrap_or_default()));
            json!({"content": [{"type": "text", "text": "marked"}]})
        }
        _ => return None,
    })
}
