//! `turnwire sessions`, `doctor`, `backup` and `restore`, from outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use turnwire_log::SqliteStore;
use turnwire_log::sqlite::Options;
use turnwire_log::store::{MessageQuery, SessionKey, Store, StoredMessage};

struct CommandOutput {
    out: String,
    err: String,
    status: i32,
}

struct TestHome(tempfile::TempDir);

impl TestHome {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn run(&self, args: &[&str], input: &str) -> CommandOutput {
        let mut child = Command::new(env!("CARGO_BIN_EXE_turnwire"))
            .args(args)
            .current_dir(self.0.path())
            .env("HOME", self.0.path())
            .env_remove("XDG_DATA_HOME")
            .env_remove("TURNWIRE_STORE")
            .env_remove("TURNWIRE_CONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program may close its input when it has read enough.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        CommandOutput {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code().unwrap(),
        }
    }

    /// Runs a command that must succeed.
    fn run_ok(&self, args: &[&str]) -> CommandOutput {
        let done = self.run(args, "");
        assert_eq!(done.status, 0, "{args:?}: {}", done.err);
        done
    }

    /// Runs a command that must fail with this status and word.
    fn run_failing(&self, args: &[&str], input: &str, status: i32, word: &str) -> CommandOutput {
        let done = self.run(args, input);
        assert_eq!(done.status, status, "{args:?}: {}{}", done.out, done.err);
        assert!(done.err.contains(word), "{args:?}: {}", done.err);
        done
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// A store with two sessions.
    fn with_sessions(&self) {
        let done =
            self.run(&["sessions", "import", "-", "--store", "sqlite:a.db"], &sample_sessions());
        assert_eq!((done.status, &*done.err), (0, "2 sessions with 6 events imported\n"));
    }
}

const STORE_A: [&str; 3] = ["--store", "sqlite:a.db", "--json"];

fn sample_sessions() -> String {
    let mut text = String::new();
    for (id, title, words) in [("rome", "Trip", "sunny in Rome"), ("paris", "", "rain in Paris")] {
        let lines = [
            format!(
                r#"{{"turnwire":"session","version":1,"tenant":"default","id":"{id}","agent":"demo","title":"{title}","metadata":{{}},"epoch":"x","created_at":"2026-01-31T10:20:30.000Z","first":1,"last":3}}"#
            ),
            r#"{"id":"1","reply_id":"r","type":"REPLY_START","name":"friday","seq":1}"#.to_owned(),
            format!(
                r#"{{"id":"2","reply_id":"r","type":"BLOCK","block":{{"type":"text","id":"b","text":"{words}"}},"seq":2}}"#
            ),
            r#"{"id":"3","reply_id":"r","type":"REPLY_END","seq":3}"#.to_owned(),
        ];
        text.push_str(&lines.join("\n"));
        text.push('\n');
    }
    text
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}

fn open_store(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, Options::default()).unwrap())
}

#[test]
fn sessions_are_listed_and_searched() {
    let shell = TestHome::new();
    shell.with_sessions();
    let table = shell.run_ok(&["sessions", "--store", "sqlite:a.db"]).out;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("SESSION  AGENT  STATUS  EVENTS"), "{table}");
    assert!(table.contains("rome     demo   idle    3"), "{table}");
    let found = shell.run_ok(&[&["sessions", "--search", "rain paris"], &STORE_A[..]].concat()).out;
    let found: serde_json::Value = serde_json::from_str(found.trim()).unwrap();
    assert_eq!((&found["id"], &found["last_seq"]), (&"paris".into(), &3.into()));
    assert_eq!(found["created_at"], "2026-01-31T10:20:30.000Z");
    let none = shell.run_ok(&[&["sessions", "--search", "snow"], &STORE_A[..]].concat());
    assert_eq!((&*none.out, &*none.err), ("", "no matching sessions\n"));
    let one = shell.run_ok(&[&["sessions", "--limit", "1"], &STORE_A[..]].concat());
    assert_eq!(one.out.lines().count(), 1);
    assert!(one.err.contains("--limit 0"), "{}", one.err);
    let other = shell.run_ok(&[&["sessions", "--tenant", "nobody"], &STORE_A[..]].concat());
    assert!(other.err.contains("some of tenant default"), "{}", other.err);
}

#[test]
fn commands_find_the_store_like_the_server() {
    let shell = TestHome::new();
    let none = shell.run_failing(&["sessions"], "", 2, "there is no store at");
    assert!(none.err.contains("turnwire.db") && none.err.contains("hint: "), "{}", none.err);
    shell.with_sessions();
    std::fs::write(shell.path("turnwire.toml"), "store = \"sqlite:a.db\"").unwrap();
    assert_eq!(shell.run_ok(&["sessions", "--json"]).out.lines().count(), 2);
    std::fs::write(shell.path("turnwire.toml"), "stor = 1").unwrap();
    shell.run_failing(&["sessions"], "", 2, "turnwire.toml:1:1");
    shell.run_failing(&["sessions", "--store", "memory:"], "", 2, "exists only inside its server");
    shell.run_failing(&["sessions", "--store", "x"], "", 2, "invalid store");
}

#[test]
fn every_command_that_opens_a_store_takes_the_settings_that_name_it() {
    let shell = TestHome::new();
    shell.with_sessions();
    std::fs::write(shell.path("other.toml"), "store = \"sqlite:a.db\"").unwrap();
    for args in [
        &["sessions", "--json"][..],
        &["sessions", "export", "rome"],
        &["doctor"],
        &["backup", "a.bak"],
        &["copy", "--to", "sqlite:copy.db"],
        &["replay", "--session", "rome", "--at", "1"],
    ] {
        shell.run_ok(&[args, &["--config", "other.toml"]].concat());
    }
}

#[test]
fn a_mistyped_path_of_a_store_creates_no_folders() {
    let shell = TestHome::new();
    shell.with_sessions();
    shell.run_ok(&["backup", "a.bak", "--store", "sqlite:a.db"]);
    for args in [
        &["serve", "--store", "sqlite:no/such/x.db"][..],
        &["sessions", "import", "-", "--store", "sqlite:no/such/x.db"],
        &["copy", "--from", "sqlite:a.db", "--to", "sqlite:no/such/x.db"],
        &["restore", "a.bak", "--store", "sqlite:no/such/x.db"],
    ] {
        shell.run_failing(args, "", 2, "there is no folder no/such");
        assert!(!shell.path("no").exists(), "{args:?}");
    }
}

#[test]
fn an_export_can_be_imported_without_changes() {
    let shell = TestHome::new();
    shell.with_sessions();
    let all = shell.run_ok(&["sessions", "export", "--store", "sqlite:a.db"]).out;
    assert_eq!(all.lines().count(), 8);
    let done = shell.run_ok(&["sessions", "export", "rome", "-o", "one", "--store", "sqlite:a.db"]);
    assert_eq!(done.err, "1 sessions with 3 events written to one\n");
    assert!(!shell.path("one.partial").exists());
    shell.run_ok(&["sessions", "import", "one", "--store", "sqlite:b.db", "--tenant", "t"]);
    let events = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with(r#"{"turnwire""#)).map(str::to_owned).collect()
    };
    let again =
        shell.run_ok(&["sessions", "export", "--tenant", "t", "--store", "sqlite:b.db"]).out;
    let one = std::fs::read_to_string(shell.path("one")).unwrap();
    assert_eq!((events(&again), events(&one).len()), (events(&one), 3));
    assert!(again.contains(r#""tenant":"t","id":"rome""#), "{again}");
    let folded = shell.run(&["fold"], &events(&one).join("\n"));
    assert!(folded.out.contains("sunny in Rome"), "{}{}", folded.out, folded.err);
    let gone = &["sessions", "export", "rome", "none", "--store", "sqlite:a.db", "-o", "x"];
    shell.run_failing(gone, "", 1, "there is no session none");
    assert!(!shell.path("x").exists() && !shell.path("x.partial").exists());
    shell.run_failing(
        &["sessions", "export", "--store", "sqlite:a.db", "-o", "no/x"],
        "",
        2,
        "no/x",
    );
}

#[test]
fn an_import_reports_what_it_cannot_import() {
    let shell = TestHome::new();
    shell.with_sessions();
    let import = ["sessions", "import", "-", "--store", "sqlite:a.db"];
    let again = shell.run_failing(
        &import,
        &sample_sessions(),
        1,
        "-:1: session rome: a session with this id",
    );
    assert!(again.err.contains("--skip-existing"), "{}", again.err);
    let skip = shell.run(&[&import[..], &["--skip-existing"]].concat(), &sample_sessions());
    assert_eq!((skip.status, &*skip.err), (0, "0 sessions with 0 events imported; 2 skipped\n"));
    let replace = shell.run(&[&import[..], &["--replace"]].concat(), &sample_sessions());
    assert_eq!((replace.status, &*replace.err), (0, "2 sessions with 6 events imported\n"));
    let bad = sample_sessions().replace("\"id\":\"rome\"", "\"id\":\"new\"").replacen(
        "REPLY_END",
        "NO",
        1,
    );
    let bad = bad.replacen("\"seq\":3", "\"seq\":4", 1).replace("\"paris\"", "\"other\"");
    shell.run_failing(&import, &bad, 1, "-:4: session new: ");
    let ids = shell.run_ok(&[&["sessions"], &STORE_A[..]].concat()).out;
    assert!(ids.contains("\"other\"") && !ids.contains("\"new\""), "{ids}");
    shell.run_failing(
        &["sessions", "import", "none", "--store", "sqlite:a.db"],
        "",
        2,
        "cannot read none",
    );
    shell.run_failing(
        &[&import[..], &["--skip-existing", "--replace"]].concat(),
        "",
        2,
        "cannot be used",
    );
}

#[test]
fn reading_works_while_a_server_runs_and_writing_does_not() {
    let shell = TestHome::new();
    shell.with_sessions();
    let store = open_store(&shell.path("a.db"));
    assert_eq!(shell.run_ok(&[&["sessions"], &STORE_A[..]].concat()).out.lines().count(), 2);
    shell.run_ok(&["sessions", "export", "--store", "sqlite:a.db"]);
    shell.run_ok(&["doctor", "--store", "sqlite:a.db"]);
    shell.run_ok(&["backup", "copy.db", "--store", "sqlite:a.db"]);
    let import = ["sessions", "import", "-", "--store", "sqlite:a.db"];
    for args in [&import[..], &["doctor", "--repair", "--store", "sqlite:a.db"]] {
        shell.run_failing(args, "", 2, "without --repair work at the same time");
    }
    let restore = ["restore", "copy.db", "--replace", "--store", "sqlite:a.db"];
    shell.run_failing(&restore, "", 2, "in use by another process");
    drop(store);
    shell.run_ok(&restore);
}

#[test]
fn a_backup_becomes_a_store_again() {
    let shell = TestHome::new();
    shell.with_sessions();
    shell.run_ok(&["backup", "copy.db", "--store", "sqlite:a.db"]);
    shell.run_failing(&["backup", "copy.db", "--store", "sqlite:a.db"], "", 2, "already exists");
    shell.run_failing(&["backup", "x.db", "--store", "sqlite:none.db"], "", 2, "there is no store");
    shell.run_failing(&["restore", "copy.db", "--store", "sqlite:a.db"], "", 2, "--replace");
    shell.run_ok(&["restore", "copy.db", "--store", "sqlite:b.db"]);
    let list = |store: &str| {
        let out = shell.run_ok(&["sessions", "--json", "--store", store]).out;
        let mut lines: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.sort_by_key(|line| line["id"].as_str().unwrap().to_owned());
        lines
    };
    for (mut old, mut new) in list("sqlite:a.db").into_iter().zip(list("sqlite:b.db")) {
        assert_ne!(old["epoch"].take(), new["epoch"].take());
        assert_eq!(old, new);
    }
    std::fs::write(shell.path("bad.db"), "this is no store").unwrap();
    shell.run_failing(&["restore", "bad.db", "--store", "sqlite:c.db"], "", 2, "bad.db");
    assert!(!shell.path("c.db").exists());
}

#[test]
fn doctor_finds_and_repairs_wrong_messages() {
    let shell = TestHome::new();
    shell.with_sessions();
    let doctor = ["doctor", "--store", "sqlite:a.db"];
    let healthy = shell.run_ok(&doctor);
    assert!(healthy.err.contains("2 sessions, no findings"), "{}", healthy.err);
    assert_eq!(healthy.out, "");
    let key = SessionKey::new("default", "rome");
    let message = |store: Arc<SqliteStore>| async move {
        let no =
            store.find_session(&SessionKey::new("default", "rome")).await.unwrap().unwrap().number;
        let query = MessageQuery { limit: 1, ..MessageQuery::default() };
        store.list_messages(no, &query).await.unwrap().remove(0)
    };
    let good: StoredMessage = block_on(async {
        let store = open_store(&shell.path("a.db"));
        let good = message(store.clone()).await;
        let no = store.find_session(&key).await.unwrap().unwrap().number;
        let wrong = StoredMessage { json: "{\"id\":\"r\"}".into(), ..good.clone() };
        store.replace_messages(no, vec![wrong]).await.unwrap();
        good
    });
    let found = shell.run_failing(&doctor, "", 1, "--repair");
    assert_eq!(found.out, "default/rome: message r differs from its events\n");
    let repaired = shell.run_ok(&[&doctor[..], &["--repair"]].concat());
    assert!(repaired.err.contains("1 findings, 1 of them repaired"), "{}", repaired.err);
    shell.run_ok(&doctor);
    assert_eq!(block_on(async { message(open_store(&shell.path("a.db"))).await }), good);
}

/// Changes one byte in the middle of a text.
fn damage(path: &Path, text: &str) {
    let mut bytes = std::fs::read(path).unwrap();
    let found: Vec<usize> = bytes
        .windows(text.len())
        .enumerate()
        .filter(|(_, window)| *window == text.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!found.is_empty(), "{text} is not in the file");
    for at in found {
        *bytes.get_mut(at + text.len() / 2).unwrap() ^= 1;
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_export_of_a_damaged_store_has_what_can_be_read_and_says_what_it_left_out() {
    let shell = TestHome::new();
    shell.with_sessions();
    // In one file, without a write-ahead log.
    shell.run_ok(&["backup", "b.db", "--store", "sqlite:a.db"]);
    damage(&shell.path("b.db"), r#""text":"sunny in Rome""#);
    let damaged = ["--store", "sqlite:b.db"];
    let done = shell.run_failing(&[&["doctor"], &damaged[..]].concat(), "", 1, "findings");
    assert!(done.out.contains("rome"), "{}", done.out);
    let export = [&["sessions", "export", "-o", "saved"], &damaged[..]].concat();
    let done = shell.run_failing(&export, "", 1, "left out: session rome: events ");
    assert!(done.err.contains("backup"), "{}", done.err);
    let saved = std::fs::read_to_string(shell.path("saved")).unwrap();
    assert!(saved.contains("rain in Paris") && !saved.contains("sunny"), "{saved}");
    assert_eq!(saved.matches(r#"{"turnwire":"left_out""#).count(), 1, "{saved}");
    let done = shell.run_ok(&["sessions", "import", "saved", "--store", "sqlite:c.db"]);
    assert!(done.err.contains("left out 1 damaged part"), "{}", done.err);
    let all = shell.run_ok(&["sessions", "--json", "--store", "sqlite:c.db"]).out;
    assert!(all.contains("\"id\":\"rome\"") && all.contains("\"id\":\"paris\""), "{all}");
    let paris = shell.run_ok(&["sessions", "export", "paris", "--store", "sqlite:c.db"]).out;
    assert!(paris.contains("rain in Paris"), "{paris}");
}

#[test]
fn an_export_can_be_folded() {
    let shell = TestHome::new();
    shell.with_sessions();
    let export = shell.run_ok(&["sessions", "export", "--store", "sqlite:a.db"]).out;
    // Both sessions have a reply with the same id.
    let done = shell.run(&["fold"], &export);
    assert_eq!((done.status, &*done.err), (0, ""), "{}", done.out);
    assert_eq!(done.out.lines().count(), 2, "{}", done.out);
    assert!(
        done.out.contains("sunny in Rome") && done.out.contains("rain in Paris"),
        "{}",
        done.out
    );
    // Lines are counted as in the file.
    let wrong = export.replace(r#""type":"REPLY_END","seq":3}"#, r#""type":"REPLY_END","seq":3"#);
    let done = shell.run_failing(&["fold"], &wrong, 1, "error: line 4: ");
    assert!(done.err.contains("error: line 8: "), "{}", done.err);
}

#[test]
fn every_command_has_help_with_examples_and_exit_statuses() {
    let shell = TestHome::new();
    for args in [
        &["sessions"][..],
        &["sessions", "export"],
        &["sessions", "import"],
        &["doctor"],
        &["backup"],
        &["restore"],
    ] {
        let help = shell.run_ok(&[args, &["--help"]].concat()).out;
        assert!(help.contains("Examples:\n") && help.contains("Exit status:\n"), "{help}");
    }
    shell.run_failing(&["backup"], "", 2, "FILE");
}

#[cfg(unix)]
#[test]
fn exports_and_backups_are_readable_only_by_their_owner_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let shell = TestHome::new();
    shell.with_sessions();
    for (umask, name) in [("000", "open"), ("022", "usual"), ("077", "closed"), ("277", "strange")]
    {
        // Leftovers and overwritten files were readable by everybody.
        for left in [format!("{name}.ndjson"), format!("{name}.ndjson.partial")] {
            std::fs::write(shell.path(&left), "old").unwrap();
            let open = std::fs::Permissions::from_mode(0o666);
            std::fs::set_permissions(shell.path(&left), open).unwrap();
        }
        let program = env!("CARGO_BIN_EXE_turnwire");
        let script = format!(
            "umask {umask} && {program} sessions export -o {name}.ndjson --store sqlite:a.db && \
             {program} backup {name}.db --store sqlite:a.db"
        );
        let mut done = Command::new("sh");
        done.args(["-c", &script]).current_dir(shell.0.path());
        let done = done.env("HOME", shell.0.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        for file in [format!("{name}.ndjson"), format!("{name}.db")] {
            let mode = std::fs::metadata(shell.path(&file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file} with umask {umask}");
        }
    }
}

#[cfg(unix)]
#[test]
fn an_export_does_not_follow_symbolic_links() {
    let shell = TestHome::new();
    shell.with_sessions();
    std::fs::write(shell.path("victim"), "mine").unwrap();
    std::os::unix::fs::symlink(shell.path("victim"), shell.path("out.partial")).unwrap();
    shell.run_ok(&["sessions", "export", "-o", "out", "--store", "sqlite:a.db"]);
    assert_eq!(std::fs::read_to_string(shell.path("victim")).unwrap(), "mine");
    assert!(std::fs::read_to_string(shell.path("out")).unwrap().contains("rome"));
}
