//! A real server process that tests kill.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

pub struct Server {
    child: Child,
    pub address: String,
}

pub fn turnwire(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwire"));
    command.args(args).stdin(Stdio::null()).env_remove("TURNWIRE_CONFIG");
    command
}

pub fn store_url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("turnwire.db").display())
}

/// A server on the store of a folder.
pub fn serve_command(folder: &Path) -> Command {
    let store = store_url(folder);
    let args =
        ["serve", "--listen", "127.0.0.1:0", "--store", &store, "--log", "warn,turnwire=warn"];
    let mut command = turnwire(&args);
    // Fast enough to finish many replies, slow enough to be killed during one.
    command.current_dir(folder).env("TURNWIRE_DEMO_RATE", "1500");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The log goes to a file beside the store.
fn command_with_log(folder: &Path) -> Command {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("server.log"));
    let mut command = serve_command(folder);
    command.stderr(log.unwrap());
    command
}

impl Server {
    /// Starts a server, and waits until it listens.
    pub fn start(folder: &Path) -> Self {
        Self::from_command(command_with_log(folder))
    }

    pub fn from_command(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut banner = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut banner).unwrap();
        let address = banner.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        let Some(address) = address.map(str::to_owned) else {
            panic!("the server did not start: {:?}; its log says why", child.wait());
        };
        Self { child, address }
    }

    /// Starts a server, and kills it during the start.
    pub fn start_and_kill(folder: &Path, wait: impl FnOnce()) {
        let mut child = command_with_log(folder).spawn().unwrap();
        wait();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM: it shuts down.
    pub fn terminate(&self) {
        let pid = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exit status and standard error of a command that must end.
pub fn failure_output(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    let mut text = String::new();
    stderr.as_slice().read_to_string(&mut text).unwrap();
    (status.code(), text)
}
