//! MCP servers that are missing, crash, hang, or are stopped.

use crate::fake_server::ENDLESS;
#[cfg(target_os = "linux")]
use crate::harness::child_after_commands;
use crate::harness::{McpHarness, PATIENCE, child, eventually, serve};
use futures_util::StreamExt;
use std::time::Duration;
use tokio::net::TcpListener;
use turnwire_agent::McpServer;
use turnwire_core::{Msg, ToolResultState};

/// The error of a server that cannot be used.
async fn refused(server: &McpServer) -> String {
    let connected = tokio::time::timeout(PATIENCE, server.connect()).await.expect("it hangs");
    connected.err().expect("there is no server").to_string()
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    for (server, why) in [
        (McpServer::command(["no-such-program-at-all"]).with_name("files"), "cannot be started"),
        (McpServer::command(Vec::<String>::new()).with_name("files"), "the command is empty"),
        (McpServer::command(["true"]).with_name("files"), "ended before it was ready"),
        (
            McpServer::url(format!("http://{address}/mcp?key=secret")).with_name("files"),
            "cannot be reached",
        ),
        (McpServer::url("ftp://localhost").with_name("files"), "neither http nor https"),
        (McpServer::url("nowhere").with_name("files"), "an invalid URL"),
    ] {
        let message = refused(&server).await;
        assert!(message.starts_with("The MCP server files ") && message.contains(why), "{message}");
        assert!(!message.contains("secret"), "{message}");
    }
}

#[tokio::test]
async fn a_silent_server_does_not_block_the_start() {
    let silent = McpServer::command(["sleep", "1000"]).start_limit(Duration::from_millis(50));
    assert!(refused(&silent).await.contains("did not start within"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent =
        McpServer::url(format!("http://{address}/")).start_limit(Duration::from_millis(50));
    assert!(refused(&silent).await.contains("did not start within"));
}

#[tokio::test]
async fn a_crashed_server_is_restarted() {
    let harness = McpHarness::child().await;
    let before = harness.call("files__pid", "{}").await.output.text("");
    let result = harness.call("files__dies", "{}").await;
    assert_eq!(result.state, ToolResultState::Error);
    let why = result.output.text("");
    assert!(why.contains("closed the connection; it is unknown whether the call ran"), "{why}");
    let after = harness.call("files__pid", "{}").await;
    assert_eq!(after.state, ToolResultState::Success, "{}", after.output.text(""));
    assert_ne!(after.output.text(""), before);
}

#[tokio::test]
async fn a_call_fails_if_the_server_cannot_be_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let harness = McpHarness::child_with(|server| server.working_dir(&inside)).await;
    std::fs::remove_dir(&inside).unwrap();
    harness.call("files__dies", "{}").await;
    let result = harness.call("files__pid", "{}").await;
    assert_eq!(result.state, ToolResultState::Error);
    assert!(result.output.text("").contains("cannot be started"), "{}", result.output.text(""));
    // It starts when it can be started again.
    std::fs::create_dir(&inside).unwrap();
    assert_eq!(harness.call("files__pid", "{}").await.state, ToolResultState::Success);
}

#[tokio::test]
async fn one_over_http_that_was_restarted_is_reached_again() {
    let mut harness = McpHarness::http().await;
    let address = harness.http.as_ref().unwrap().address;
    harness.http = None;
    // Until the listener is closed, it may still accept a connection.
    let mut listener = None;
    eventually(|| {
        listener = std::net::TcpListener::bind(address).ok();
        listener.is_some()
    })
    .await;
    drop(listener);
    let gone = harness.call("files__pid", "{}").await;
    assert_eq!(gone.state, ToolResultState::Error);
    assert!(gone.output.text("").contains("The MCP server files "), "{}", gone.output.text(""));
    let listener = TcpListener::bind(address).await.unwrap();
    harness.http = Some(serve(listener, harness.folder.path()));
    let back = harness.call("files__pid", "{}").await;
    assert_eq!(back.state, ToolResultState::Success, "{}", back.output.text(""));
}

#[tokio::test]
async fn a_silent_call_times_out_and_is_cancelled_at_the_server() {
    let harness = McpHarness::child_with(|server| server.call_limit(Duration::from_secs(4))).await;
    let before = harness.call("files__pid", "{}").await.output.text("");
    let result = harness.call("files__hangs", "{}").await;
    assert_eq!(result.state, ToolResultState::Error);
    assert!(
        result.output.text("").contains("sent no progress for 4s"),
        "{}",
        result.output.text("")
    );
    harness.wait_for_trace("cancelled").await;
    // The server is healthy, and keeps running.
    assert_eq!(harness.call("files__pid", "{}").await.output.text(""), before);
}

#[tokio::test]
async fn a_frozen_server_is_restarted() {
    let harness = McpHarness::child_with(|server| server.call_limit(Duration::from_secs(4))).await;
    let before = harness.call("files__pid", "{}").await.output.text("");
    assert_eq!(harness.call("files__freezes", "{}").await.state, ToolResultState::Error);
    let after = harness.call("files__pid", "{}").await;
    assert_eq!(after.state, ToolResultState::Success, "{}", after.output.text(""));
    assert_ne!(after.output.text(""), before);
    // The frozen one is killed, although it does not see that its input has ended.
    #[cfg(target_os = "linux")]
    eventually(|| !std::path::Path::new("/proc").join(&before).exists()).await;
}

#[tokio::test]
async fn a_stop_reaches_the_server() {
    for harness in [McpHarness::child().await, McpHarness::http().await] {
        let mut events = harness.agent("files__hangs", "{}").reply([Msg::user("ann", "go")]);
        while let Some(event) = events.next().await {
            if event.unwrap().kind.type_name() == "TOOL_RESULT_START" {
                break;
            }
        }
        harness.wait_for_trace("begun").await;
        drop(events);
        harness.wait_for_trace("cancelled").await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_ends_with_its_tools() {
    let folder = tempfile::tempdir().unwrap();
    let harness = McpHarness::child().await;
    let pid = harness.call("files__pid", "{}").await.output.text("");
    let process = std::path::Path::new("/proc").join(pid);
    assert!(process.exists());
    drop(harness);
    eventually(|| !process.exists()).await;
    // `Debug` does not show it.
    let shown = format!("{:?}", child(folder.path()).env("KEY", "secret"));
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn tools_that_are_too_large_or_too_many_are_left_out() {
    let harness = McpHarness::child_with(|server| server.env(ENDLESS, "1")).await;
    let names: Vec<&str> = harness.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
    assert_eq!(names.len(), turnwire_agent::schema::MAX_TOOLS);
    assert!(names.starts_with(&["files/good0", "files/fine0", "files/good1"]), "{names:?}");
    assert!(names.iter().all(|name| !name.contains("large") && !name.contains("deep")));
}

/// Whether a process runs. A zombie does not.
#[cfg(target_os = "linux")]
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Starts a server after these commands, one of which writes a process id to a file. Returns that id.
#[cfg(target_os = "linux")]
async fn with_grandchild(commands: &str) -> (McpHarness, String) {
    let folder = tempfile::tempdir().unwrap();
    let tools = child_after_commands(commands, folder.path()).connect().await.unwrap().tools;
    let file = folder.path().join("pid");
    let mut pid = String::new();
    eventually(|| {
        std::fs::read_to_string(&file).unwrap_or_default().trim().clone_into(&mut pid);
        !pid.is_empty()
    })
    .await;
    assert!(runs(&pid));
    (McpHarness { folder, tools, http: None }, pid)
}

#[cfg(target_os = "linux")]
const GRANDCHILDREN: [&str; 5] = [
    // In the process group of the server.
    "sh -c 'echo $$ > '$F'/pid; exec sleep 1000' </dev/null >/dev/null 2>&1 &",
    // In its own session (`setsid`).
    "setsid sh -c 'echo $$ > '$F'/pid; exec sleep 1000' </dev/null >/dev/null 2>&1 &",
    // The same, and its parent has ended.
    "setsid -f sh -c 'echo $$ > '$F'/pid; exec sleep 1000' </dev/null >/dev/null 2>&1;",
    // With an empty environment.
    "env -i setsid sh -c 'echo $$ > '$F'/pid; exec sleep 1000' </dev/null >/dev/null 2>&1 &",
    // Starts a new process whenever one ends.
    "setsid sh -c 'while :; do sleep 1000 & echo $! > '$F'/pid; wait; done' </dev/null >/dev/null 2>&1 &",
];

#[cfg(target_os = "linux")]
#[tokio::test]
async fn processes_of_a_server_end_with_it_in_any_group_or_session() {
    for commands in GRANDCHILDREN {
        let (mut harness, first) = with_grandchild(commands).await;
        harness.tools.clear();
        // It may have started another one since.
        let file = harness.folder.path().join("pid");
        let last = || std::fs::read_to_string(&file).unwrap();
        eventually(|| !runs(&first) && !runs(last().trim())).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn processes_of_a_crashed_server_end_when_it_is_restarted() {
    let setsid = GRANDCHILDREN[2];
    let (harness, pid) = with_grandchild(setsid).await;
    harness.call("files__dies", "{}").await;
    assert_eq!(harness.call("files__echo", "{}").await.state, ToolResultState::Success);
    eventually(|| !runs(&pid)).await;
}
