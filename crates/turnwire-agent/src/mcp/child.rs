//! MCP servers as child processes.

use super::ChildConfig;
use futures_util::StreamExt;
use process_wrap::tokio::{CommandWrap, KillOnDrop};
use rmcp::transport::TokioChildProcess;
use std::io;
use std::process::Stdio;
use tokio::process::{ChildStderr, Command};
use tokio_util::codec::{FramedRead, LinesCodec};

/// The variables that a child always inherits.
const INHERITED_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    // Windows programs need these.
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// The longest logged line of standard error.
const MAX_LINE_BYTES: usize = 4096;

/// The transport to a child.
#[cfg(target_os = "linux")]
pub(super) type Process = super::descendants::ChildTransport;
#[cfg(not(target_os = "linux"))]
pub(super) type Process = TokioChildProcess;

/// Starts the child process.
pub(super) fn spawn_server(name: &str, child: &ChildConfig) -> io::Result<Process> {
    let Some((program, arguments)) = child.command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    let inherited = INHERITED_VARIABLES
        .iter()
        .copied()
        .chain(child.inherited_variables.iter().map(String::as_str));
    for name in inherited {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.envs(child.env.iter().map(|(name, value)| (name, value)));
    if let Some(folder) = &child.working_dir {
        command.current_dir(folder);
    }
    let mut command = CommandWrap::from(command);
    command.wrap(KillOnDrop);
    // Its own children end with it, and it does not get a Ctrl-C of our terminal.
    #[cfg(unix)]
    command.wrap(process_wrap::tokio::ProcessGroup::leader());
    #[cfg(target_os = "linux")]
    let descendants = {
        let end = super::descendants::EndDescendants::new()?;
        let descendants = end.descendants();
        command.wrap(end);
        descendants
    };
    #[cfg(windows)]
    command.wrap(process_wrap::tokio::JobObject);
    let (process, stderr) = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn()?;
    if let Some(stderr) = stderr {
        tokio::spawn(log_stderr(name.to_owned(), stderr));
    }
    #[cfg(target_os = "linux")]
    let process = super::descendants::ChildTransport { process, descendants };
    Ok(process)
}

/// Logs the child's standard error.
async fn log_stderr(server: String, stderr: ChildStderr) {
    let mut lines = FramedRead::new(stderr, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => tracing::debug!(server, line, "stderr of an MCP server"),
            Err(error) => tracing::debug!(server, %error, "invalid stderr line of an MCP server"),
        }
    }
}
