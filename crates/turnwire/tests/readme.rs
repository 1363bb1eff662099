//! The commands of the README, as they stand there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const README: &str = include_str!("../../../README.md");
const SECTION: &str = "Kill it, and watch it resume";

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, address: &str) -> Self {
        let args = ["serve", "--listen", address, "--store", "sqlite:a.db", "--log", "error"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_turnwire"))
            .args(args)
            .current_dir(folder)
            .env_remove("TURNWIRE_CONFIG")
            .env("TURNWIRE_DEMO_RATE", "200")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut banner = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut banner).unwrap();
        let address = banner.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A block of shell commands of the section, for a server at this address.
fn commands(number: usize, address: &str) -> String {
    let section = README.split(&format!("## {SECTION}")).nth(1).unwrap();
    let block = section.split("```sh\n").nth(number + 1).unwrap().split("```").next().unwrap();
    assert!(block.contains("localhost:4747"), "{block}");
    block.replace("localhost:4747", address)
}

fn shell(commands: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", commands]).stdout(Stdio::piped());
    command
}

#[test]
fn the_example_of_resuming_ends_and_has_every_event_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), "127.0.0.1:0");
    let address = server.address.clone();
    let mut watching = shell(&commands(0, &address)).spawn().unwrap();
    let out = BufReader::new(watching.stdout.take().unwrap());
    let (mut ids, mut server) = (Vec::new(), Some(server));
    for line in out.lines() {
        let line = line.unwrap();
        ids.extend(line.strip_prefix("id: ").map(str::to_owned));
        // In the middle of the reply.
        if ids.len() > 20 {
            drop(server.take());
        }
    }
    // curl reports the lost connection.
    assert!(!watching.wait().unwrap().success());
    let _again = Server::start(folder.path(), &address);
    let rest = commands(1, &address).replace("TOKEN", ids.last().unwrap());
    let done = shell(&rest).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let rest = String::from_utf8(done.stdout).unwrap();
    assert!(rest.contains("REPLY_END"), "{rest}");
    ids.extend(rest.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned));
    let seqs: Vec<u64> =
        ids.iter().map(|id| id.rsplit_once('.').unwrap().1.parse().unwrap()).collect();
    // Adjacent deltas may come as one event.
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
    assert_eq!(seqs.first(), Some(&1));
}

#[test]
fn the_example_of_watching_ends_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), "127.0.0.1:0");
    let done = shell(&commands(0, &server.address)).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8(done.stdout).unwrap().contains("REPLY_END"));
}
