//! A home folder per test, and the programs that run in it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest wait. A machine under load is slow, not wrong.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Waits until `look` returns something.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub struct TestHome {
    folder: TempDir,
    /// Deltas per second of the demo agent.
    pub rate: &'static str,
}

/// The output of a program.
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl TestHome {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), rate: "0" }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The environment of every program: its own home, and nothing of the user who runs the tests.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        let home = self.path().display().to_string();
        let mut env = vec![("HOME", home.clone()), ("TURNWIRE_DEMO_RATE", self.rate.to_owned())];
        env.push(("XDG_DATA_HOME", format!("{home}/data")));
        env
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwire"));
        command.args(args).current_dir(self.path()).envs(self.env());
        for name in ["TURNWIRE_CONFIG", "TURNWIRE_STORE", "TURNWIRE_TOKEN", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, args: &[&str]) -> CommandOutput {
        Self::output_of(&mut self.command(args))
    }

    pub fn output_of(command: &mut Command) -> CommandOutput {
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        CommandOutput {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Runs with this standard input.
    pub fn run_with_input(&self, input: &str, args: &[&str]) -> CommandOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        CommandOutput {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// A server on the store of this folder.
    pub fn serve(&self) -> Server {
        self.serve_at("127.0.0.1:0")
    }

    pub fn serve_at(&self, address: &str) -> Server {
        let args = ["serve", "--listen", address, "--store", "sqlite:served.db", "--log", "error"];
        let mut command = self.command(&args);
        command.stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut banner = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut banner).unwrap();
        let url = banner.split(' ').find(|word| word.starts_with("http"));
        let url = url.unwrap_or_else(|| panic!("no server: {banner:?}")).to_owned();
        let address = url.split("//").nth(1).unwrap().to_owned();
        Server { child, address, url }
    }
}

pub struct Server {
    child: Child,
    pub address: String,
    pub url: String,
}

impl Server {
    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        let (host, length) = (&self.address, body.len());
        self.send_request(&format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    }

    /// Publishes events as an external agent.
    pub fn publish(&self, session: &str, lines: &str) -> String {
        let (host, length) = (&self.address, lines.len());
        self.send_request(&format!(
            "POST /v1/sessions/{session}/events HTTP/1.1\r\nhost: {host}\r\nturnwire-producer: test.1\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{lines}"
        ))
    }

    pub fn get(&self, path: &str) -> String {
        let host = &self.address;
        self.send_request(&format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
        ))
    }

    fn send_request(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
