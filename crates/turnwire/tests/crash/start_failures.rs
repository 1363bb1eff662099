//! Shutdown, and reasons why a server does not start.

use crate::expectations::Expectations;
use crate::http::{Answer, Connection, Request};
use crate::rounds::{self, EndMode};
use crate::server::{Server, failure_output, serve_command, store_url, turnwire};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use turnwire_testkit::skip;

/// The user id of `nobody`.
const NOBODY: u32 = 65534;

/// Checks that a server does not start, and that the error has these words.
fn assert_refuses_to_start(command: Command, words: &[&str]) {
    let (status, error) = failure_output(command);
    assert_eq!(status, Some(2), "{error}");
    for word in words {
        assert!(error.contains(word), "no {word:?} in {error}");
    }
}

#[test]
fn a_stop_under_load_loses_nothing_and_is_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let expected = Expectations::new(fastrand::u64(..));
    rounds::run(folder.path(), &expected, 5, EndMode::InOrder);
    assert!(expected.has_no_violations(), "seed {}", expected.seed);
    // Every accepted request was answered.
    let durable = expected.tally().counts.get("publishes broken off that were durable").copied();
    assert_eq!(durable, None, "seed {}", expected.seed);
}

#[test]
fn a_store_is_used_by_one_server_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let pid = format!("pid {}", server.id());
    assert_refuses_to_start(
        serve_command(folder.path()),
        &[
            "cannot open the store",
            "is in use by another process",
            &pid,
            "one server only",
            "--store",
        ],
    );
    let mut conn = Connection::open(&server.address).unwrap();
    assert_eq!(conn.call(&Request::get("/readyz")).unwrap().status, 200);
    // A killed server holds no lock.
    server.kill();
    drop(Server::start(folder.path()));
}

#[test]
fn a_port_in_use_leaves_the_store_unchanged() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(one.path());
    let store = store_url(other.path());
    let second = turnwire(&["serve", "--listen", &server.address, "--store", &store]);
    assert_refuses_to_start(second, &["cannot listen on", "another program", "--listen"]);
    drop(Server::start(other.path()));
}

#[test]
fn a_file_that_is_not_a_store_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("turnwire.db");
    let mine = "my letters, which are no database at all\n".repeat(500);
    fs::write(&file, &mine).unwrap();
    assert_refuses_to_start(
        serve_command(folder.path()),
        &["is not a Turnwire store", "nothing in it was changed"],
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), mine);
}

#[test]
fn a_store_of_a_later_version_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.terminate();
    assert!(server.wait().success());
    let file = folder.path().join("turnwire.db");
    let store = fs::OpenOptions::new().read(true).write(true).open(&file).unwrap();
    // The offset of SQLite's user version.
    store.write_all_at(&99_u32.to_be_bytes(), 60).unwrap();
    let before = fs::read(&file).unwrap();
    assert_refuses_to_start(serve_command(folder.path()), &["version", "99", "or a later one"]);
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn a_folder_without_write_permission_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("closed");
    fs::create_dir(&inner).unwrap();
    fs::set_permissions(&inner, PermissionsExt::from_mode(0o500)).unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let as_somebody = || {
        let store = store_url(&inner);
        let mut command = turnwire(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
        command.current_dir("/");
        if fs::metadata(&inner).is_ok_and(|_| is_root(&inner)) {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    if let Err(error) = as_somebody().arg("--help").output() {
        return skip(
            "a folder without write permission",
            &format!("cannot run the program as nobody: {error}"),
        );
    }
    assert_refuses_to_start(
        as_somebody(),
        &["cannot open the store", "closed", "permissions", "read and write"],
    );
}

/// Whether we ignore file permissions.
fn is_root(closed: &Path) -> bool {
    fs::write(closed.join("probe"), "").is_ok()
}

/// A file system of a few megabytes.
struct SmallDisk<'d>(&'d Path);

impl<'d> SmallDisk<'d> {
    fn mount(at: &'d Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(at))
    }

    /// Fills the disk.
    fn fill(&self) {
        let mut size = 6 << 20;
        let mut rest = Vec::new();
        while size > 0 {
            match fs::write(self.0.join(format!("filler-{}", rest.len())), vec![0; size]) {
                Ok(()) => rest.push(size),
                Err(_) => size /= 2,
            }
        }
    }

    fn make_room(&self) {
        for entry in fs::read_dir(self.0).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with("filler") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[test]
fn a_full_disk_is_reported_and_service_resumes_when_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path()) else {
        return skip("a full disk", "cannot mount a tmpfs here");
    };
    disk.fill();
    assert_refuses_to_start(
        serve_quietly(folder.path()),
        &["cannot open the store", "no space left", "make room", "--store"],
    );
    disk.make_room();
    let server = start_quietly(folder.path());
    let mut conn = Connection::open(&server.address).unwrap();
    let make = Request::post("/v1/sessions", &json!({"id": "s", "agent": "external"}));
    assert_eq!(conn.call(&make).unwrap().status, 201);
    let mut acknowledged = 0;
    let mut say = |conn: &mut Connection| -> Answer {
        let id = format!("m{acknowledged}");
        let message = json!({"id": id, "content": "x".repeat(20_000)});
        let answer = conn.call(&Request::post("/v1/sessions/s/messages", &message)).unwrap();
        acknowledged += u32::from(answer.status == 202);
        answer
    };
    assert_eq!(say(&mut conn).status, 202);
    disk.fill();
    let refused = loop {
        let answer = say(&mut conn);
        if answer.status != 202 {
            break answer;
        }
    };
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert_eq!(refused.json()["error"]["type"], "storage_full");
    let ready = conn.call(&Request::get("/readyz")).unwrap();
    assert_eq!(ready.status, 507, "{}", ready.text());
    disk.make_room();
    let answer = say(&mut conn);
    assert_eq!(answer.status, 202, "{}", answer.text());
    drop(conn);
    server.kill();
    let server = start_quietly(folder.path());
    let mut conn = Connection::open(&server.address).unwrap();
    let view = conn.call(&Request::get("/v1/sessions/s")).unwrap().json();
    assert_eq!(view["last_seq"], acknowledged);
}

/// With the log in another place.
fn serve_quietly(folder: &Path) -> Command {
    let mut command = serve_command(folder);
    command.stderr(std::process::Stdio::piped());
    command
}

fn start_quietly(folder: &Path) -> Server {
    Server::from_command(serve_quietly(folder))
}
