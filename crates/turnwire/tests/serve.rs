//! `turnwire serve`, `token new` and `config check`, from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwire"));
    command.args(args).current_dir(folder).env_remove("TURNWIRE_CONFIG");
    command
}

fn turnwire(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Running {
    child: Child,
    address: String,
    banner: String,
}

impl Running {
    fn start(folder: &Path, args: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"], args].concat();
        let mut child =
            command(folder, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut banner = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut banner).unwrap();
        let address = banner.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        Self { child, address, banner }
    }

    fn get(&self, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{header}\r\n")
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

#[test]
fn serve_prints_its_address_and_shuts_down_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Running::start(folder.path(), &[]);
    assert!(
        server.banner.starts_with("Turnwire 0.1.0 listens on http://127.0.0.1:"),
        "{}",
        server.banner
    );
    assert!(server.banner.ends_with("(store memory:)\n"), "{}", server.banner);
    assert!(server.get("/healthz", "").starts_with("HTTP/1.1 200"));
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(server.child.wait().unwrap().success());
    let mut log = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("\"stopped\""), "{log}");
    assert!(log.lines().all(|line| line.starts_with('{')), "JSON where it is no terminal: {log}");
}

#[test]
fn a_failed_start_is_reported_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path(), &[]);
    std::fs::write(folder.path().join("bad.toml"), "listn = 1\n").unwrap();
    for (args, expected) in [
        (vec!["--listen", server.address.as_str()], vec!["cannot listen on", "another program"]),
        (vec!["--listen", "0.0.0.0:0"], vec!["no credentials", "turnwire token new"]),
        (vec!["--listen", "nowhere"], vec!["invalid listen address", "127.0.0.1:4747"]),
        (vec!["--listen", "192.0.2.1:0", "--config", "bad.toml"], vec!["bad.toml:1:1", "`listen`"]),
        (vec!["--config", "none.toml"], vec!["none.toml: cannot be read"]),
        (vec!["--store", "redis:x"], vec!["invalid store", "sqlite:PATH"]),
        (vec!["--tls-cert", "x.pem"], vec!["requires --tls-key"]),
        (vec!["--log", "!!"], vec!["log.level", "debug"]),
        (vec!["--origin", "*"], vec!["invalid origin"]),
    ] {
        let mut all = vec!["serve"];
        if !args.contains(&"--store") {
            all.extend(["--store", "memory:"]);
        }
        all.extend(&args);
        let output = turnwire(folder.path(), &all);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        for part in expected {
            assert!(error.contains(part), "{args:?}: {error}");
        }
    }
}

#[test]
fn a_new_token_is_accepted_with_its_printed_settings() {
    let folder = tempfile::tempdir().unwrap();
    let output = turnwire(
        folder.path(),
        &[
            "token",
            "new",
            "--tenant",
            "acme",
            "--scopes",
            "read,chat",
            "--subject",
            "Ada",
            "--session",
            "room:*",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let token = lines.lines().find_map(|line| line.strip_prefix("# tw_")).unwrap();
    let settings: Vec<&str> = lines.lines().filter(|line| !line.contains(token)).collect();
    let settings = settings.join("\n");
    std::fs::write(folder.path().join("turnwire.toml"), settings).unwrap();
    let output = turnwire(folder.path(), &["config", "check"]);
    assert!(text(&output.stdout).starts_with("turnwire.toml: ok\n"), "{output:?}");
    let server = Running::start(folder.path(), &[]);
    assert!(server.get("/v1/agents", "").starts_with("HTTP/1.1 401"));
    let answer = server.get("/v1/agents", &format!("authorization: Bearer tw_{token}\r\n"));
    assert!(!answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[test]
fn config_check_names_the_line_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.toml"), "\n[limits]\nbody = \"big\"\n").unwrap();
    let output = turnwire(folder.path(), &["config", "check", "a.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("a.toml:3:8: limits.body: "), "{output:?}");
}
