//! Servers that are started for one measurement.

use crate::Result;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The program under test: server and load generator.
const TURNWIRE: &str = env!("CARGO_BIN_EXE_turnwire");
/// The longest start of a server.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Which server.
#[derive(Clone)]
pub enum ServerKind {
    Turnwire,
    /// With these settings.
    Agents(String),
    /// A node of a cluster, over this database, with these settings.
    Node {
        url: String,
        settings: String,
    },
    /// Turnwire in an earlier version: its program.
    Earlier(PathBuf),
    DurableStreams(PathBuf),
}

impl ServerKind {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Turnwire | Self::Agents(_) | Self::Node { .. } | Self::Earlier(_) => "turnwire",
            Self::DurableStreams(_) => "durable-streams",
        }
    }

    fn command(&self, port: u16, store: &Path) -> Result<Command> {
        let port = port.to_string();
        Ok(match self {
            Self::Turnwire | Self::Agents(_) | Self::Node { .. } | Self::Earlier(_) => {
                let program =
                    if let Self::Earlier(path) = self { path } else { Path::new(TURNWIRE) };
                let mut command = Command::new(program);
                command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--store"]);
                command.arg(match self {
                    Self::Node { url, .. } => url.clone(),
                    _ => format!("sqlite:{}", store.join("turnwire.db").display()),
                });
                if let Self::Agents(settings) | Self::Node { settings, .. } = self {
                    let file = store.join("turnwire.toml");
                    fs::write(&file, settings)?;
                    command.arg("--config").arg(file);
                }
                command
            }
            // Its default: an append is answered after the sync.
            Self::DurableStreams(path) => {
                let mut command = Command::new(path);
                command.args(["--port", &port, "--durability", "wal", "--data-dir"]).arg(store);
                command
            }
        })
    }

    fn ready(&self) -> &'static str {
        match self {
            Self::Turnwire | Self::Agents(_) | Self::Node { .. } | Self::Earlier(_) => "/readyz",
            Self::DurableStreams(_) => "/health",
        }
    }
}

/// A folder on disk that is deleted on drop.
pub struct TempFolder(PathBuf);

impl TempFolder {
    pub fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("server-{}-{nth}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path)?;
        let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(&path).output();
        if kind.is_ok_and(|kind| kind.stdout.starts_with(b"tmpfs")) {
            return Err(format!(
                "{} is in memory, where a sync costs nothing: set CARGO_TARGET_DIR to a disk",
                path.display()
            )
            .into());
        }
        Ok(Self(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server.
pub struct RunningServer {
    child: Child,
    pub url: String,
    /// From the start of the process until it was ready.
    pub ready_after: Duration,
}

impl RunningServer {
    pub fn start(kind: &ServerKind, folder: &TempFolder) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = folder.0.join("server.log");
        let store = folder.0.join("store");
        fs::create_dir_all(&store)?;
        let begin = Instant::now();
        let child = kind
            .command(port, &store)?
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .spawn()?;
        let url = format!("http://127.0.0.1:{port}");
        let mut running = Self { child, url, ready_after: Duration::ZERO };
        while !is_ready(&running.url, kind.ready()) {
            if running.child.try_wait()?.is_some() || begin.elapsed() > START_TIMEOUT {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("{} did not get ready: {}", kind.name(), said.trim()).into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        running.ready_after = begin.elapsed();
        Ok(running)
    }

    /// Runs `turnwire bench` against it, and returns the figures.
    pub fn bench(&self, args: &[&str]) -> Result<Value> {
        let output = Command::new(TURNWIRE)
            .args(["bench", "--url", &self.url, "--json", "--keep"])
            .args(args)
            .stderr(Stdio::piped())
            .output()?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            return Err(String::from_utf8_lossy(&said).trim().to_owned().into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// In MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: f64 = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Stops it, and waits for its end.
    pub fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > START_TIMEOUT {
                return Err("the server did not stop when asked".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(url: &str, path: &str) -> bool {
    // Electric's server has no such path in this version: any response will do.
    send_request(url, "GET", path, "", "")
        .is_ok_and(|(status, _)| status == 200 || (path == "/health" && status == 404))
}

/// Sends a request on a connection of its own, and returns the status and the body.
pub fn send_request(
    url: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    status.zip(body).ok_or_else(|| io::Error::other(format!("no response: {response}")))
}

/// Raises the limit of open files for ten thousand subscribers; child processes inherit it.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum.or(Some(1 << 20)), maximum: limit.maximum },
    );
}
