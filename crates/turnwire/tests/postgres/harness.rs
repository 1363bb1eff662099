//! Runs the binary against databases.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use turnwire_testkit::postgres::PostgresServer;

/// One server for all tests. `None` where Postgres cannot run; then a skip is recorded.
pub fn server() -> Option<&'static PostgresServer> {
    static SERVER: LazyLock<Option<PostgresServer>> =
        LazyLock::new(|| PostgresServer::start("turnwire on Postgres", &[]));
    SERVER.as_ref()
}

pub fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwire"));
    command
        .args(args)
        .current_dir(folder)
        .env_remove("TURNWIRE_CONFIG")
        .env_remove("TURNWIRE_STORE");
    command
}

/// Runs a command, and returns its status and what it printed.
pub fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command(folder, args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

pub struct Running {
    child: Child,
    address: String,
    pub banner: String,
    /// More headers of each request, each with its line end.
    pub headers: String,
}

impl Running {
    pub fn start(folder: &Path, url: &str) -> Self {
        Self::start_with(folder, url, &[])
    }

    pub fn start_with(folder: &Path, url: &str, more: &[&str]) -> Self {
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", url];
        let args = [&args[..], more].concat();
        let mut child = command(folder, &args).stdout(Stdio::piped()).spawn().unwrap();
        let mut banner = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut banner).unwrap();
        let address = banner.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        Self { child, address, banner, headers: String::new() }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Opens a stream. A line that does not come for 20 s fails.
    pub fn follow(&self, path: &str) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let host = &self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n")
            .unwrap();
        BufReader::new(stream).lines().map(Result::unwrap)
    }

    pub fn request(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length, headers) = (&self.address, body.len(), &self.headers);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}content-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session in the form of an export.
pub const SESSION: &str = concat!(
    r#"{"turnwire":"session","version":1,"tenant":"default","id":"rome","agent":"demo","title":"Trip","metadata":{},"#,
    r#""epoch":"x","created_at":"2026-01-31T10:20:30.000Z","first":1,"last":3}"#,
    "\n",
    r#"{"id":"1","reply_id":"r","type":"REPLY_START","name":"friday","seq":1}"#,
    "\n",
    r#"{"id":"2","reply_id":"r","type":"BLOCK","block":{"type":"text","id":"b","text":"sunny in Rome"},"seq":2}"#,
    "\n",
    r#"{"id":"3","reply_id":"r","type":"REPLY_END","seq":3}"#,
    "\n",
);
