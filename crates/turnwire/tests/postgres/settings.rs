//! Servers over one database whose settings differ.

use crate::harness::{command, server};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Longer than it takes to renew a lease some times.
const TIMEOUT: Duration = Duration::from_mins(1);

struct Node {
    child: Child,
    log: std::path::PathBuf,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn start(folder: &Path, name: &str, settings: &str, store: &str) -> Self {
        let config = folder.join(format!("{name}.toml"));
        std::fs::write(&config, settings).unwrap();
        let log = folder.join(format!("{name}.log"));
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", store, "--config"];
        let mut command = command(folder, &args);
        command.arg(config).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut banner = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut banner).unwrap();
        Self { child, log }
    }

    fn warns(&self) -> bool {
        std::fs::read_to_string(&self.log).unwrap().contains("this node has other settings")
    }

    fn wait_for_warning(&self) {
        let begun = Instant::now();
        while !self.warns() {
            assert!(begun.elapsed() < TIMEOUT, "{}: no warning", self.log.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn nodes_with_other_settings_are_named_in_the_log_and_those_with_the_same_are_not() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url(&server.create_database());
    let start = |name: &str, settings: &str| Node::start(folder.path(), name, settings, &url);
    let same = "default_agent = \"demo\"\n[limits]\nheartbeat = \"10s\"\n";
    let first = start("first", same);
    // What differs from machine to machine may differ.
    let second = start("second", &format!("public_url = \"http://localhost:1\"\n{same}"));
    let third = start("third", &same.replace("10s", "11s"));
    third.wait_for_warning();
    first.wait_for_warning();
    second.wait_for_warning();
    let text = std::fs::read_to_string(&first.log).unwrap();
    assert_eq!(text.matches("this node has other settings").count(), 1, "{text}");
}
