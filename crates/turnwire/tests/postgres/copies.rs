//! `turnwire copy`, also if it is killed in the middle.

use crate::harness::{Running, SESSION, command, run, server};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;

/// Fills a store with sessions, the last of which have many events.
fn import(folder: &Path, store: &str, sessions: usize) {
    let mut file = String::new();
    for n in 0..sessions {
        file.push_str(
            &SESSION
                .replace("\"rome\"", &format!("\"rome-{n}\""))
                .replace("\"last\":3", "\"last\":2003"),
        );
        for seq in 4..=2003 {
            let text = "x".repeat(500);
            writeln!(
                file,
                r#"{{"id":"{seq}","type":"CUSTOM","name":"n","value":"{text}","seq":{seq}}}"#
            )
            .unwrap();
        }
    }
    std::fs::write(folder.join("all.ndjson"), file).unwrap();
    let (status, _, error) = run(folder, &["sessions", "import", "all.ndjson", "--store", store]);
    assert_eq!(status, 0, "{error}");
}

#[test]
fn a_store_moves_to_postgres_and_back_and_resume_tokens_stay_valid() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (folder, database) = (folder.path(), server.create_database());
    let url = server.url(&database).replace("turnwire@", "turnwire:secret@");
    import(folder, "sqlite:one.db", 2);
    let epoch = |store: &str| {
        let (_, listed, _) = run(folder, &["sessions", "export", "rome-1", "--store", store]);
        let header: serde_json::Value =
            serde_json::from_str(listed.lines().next().unwrap()).unwrap();
        header["epoch"].as_str().unwrap().to_owned()
    };

    let (status, out, error) = run(folder, &["copy", "--from", "sqlite:one.db", "--to", &url]);
    assert_eq!((status, &*out), (0, ""), "{error}");
    assert!(
        error.contains("has all of sqlite:one.db: 2 sessions, 4006 events, 0 blobs"),
        "{error}"
    );
    assert!(error.starts_with("copying sessions: 0 of 2\n"), "{error}");
    assert!(error.contains("\ncomparing sessions: 0 of 2\n"), "{error}");
    assert!(!error.contains("secret"), "{error}");
    let resumed = epoch("sqlite:one.db");
    assert_eq!(epoch(&url), resumed);

    // The token of a client that has seen the first 2002 events.
    let running = Running::start(folder, &url);
    let rest = running.request(
        "GET",
        &format!("/v1/sessions/rome-1/events?after={resumed}.2002&until=idle"),
        "",
    );
    assert!(rest.contains("HTTP/1.1 200") && rest.contains(&format!("{resumed}.2003")), "{rest}");
    let back = ["copy", "--from", &url, "--to", "sqlite:back.db"];
    let (status, _, error) = run(folder, &back);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("1 of our servers use"), "{error}");
    drop(running);
    // It was killed: its lease ends.
    server.run(&database, "UPDATE turnwire.nodes SET expires_at = clock_timestamp()");

    let (status, _, error) = run(folder, &["copy", "--from", &url, "--to", "sqlite:back.db"]);
    assert_eq!(status, 0, "{error}");
    assert_eq!(epoch("sqlite:back.db"), resumed);
    let (status, _, error) =
        run(folder, &["copy", "--from", "sqlite:one.db", "--to", "sqlite:back.db", "--compare"]);
    assert_eq!(status, 0, "{error}");
    let (status, _, error) = run(folder, &["doctor", "--store", "sqlite:back.db"]);
    assert_eq!(status, 0, "{error}");

    // A target with data is refused, and a difference is shown.
    let (status, _, error) = run(folder, &["copy", "--from", "sqlite:one.db", "--to", &url]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("a copy needs a database without; choose another database"), "{error}");
    let (status, _, error) = run(folder, &["copy", "--from", &url, "--to", "sqlite:back.db"]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("already exists; a copy never changes a file"), "{error}");
    server.run(&database, "UPDATE turnwire.sessions SET title = 'Other' WHERE id = 'rome-0'");
    let (status, out, error) =
        run(folder, &["copy", "--from", "sqlite:one.db", "--to", &url, "--compare"]);
    assert_eq!((status, &*out), (1, "default/rome-0: differs: title\n"), "{error}");
}

#[test]
fn a_copy_that_is_killed_continues_and_is_not_used_before() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    import(folder, "sqlite:one.db", 12);
    let seed = std::env::var("TURNWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("run it again with TURNWIRE_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);

    let database = server.create_database();
    let url = server.url(&database);
    let args = ["copy", "--from", "sqlite:one.db", "--to", &url];
    let mut killed = 0;
    for _ in 0..4 {
        // From some number of stored sessions on, which is sooner or later in the copy.
        let wanted = rng.u32(..12);
        let mut child = command(folder, &args).stderr(Stdio::null()).spawn().unwrap();
        let count = "SELECT CASE WHEN to_regclass('turnwire.segments') IS NULL THEN 0 ELSE
            (xpath('/row/n/text()', query_to_xml('SELECT count(DISTINCT session) AS n FROM turnwire.segments', false, true, '')))[1]::text::int END";
        while child.try_wait().unwrap().is_none() {
            if server.run(&database, count).parse::<u32>().unwrap() >= wanted {
                break;
            }
        }
        let _ = child.kill();
        killed += i32::from(!child.wait().unwrap().success());
        let (status, _, error) = run(folder, &["sessions", "--store", &url]);
        if status == 0 {
            break;
        }
        assert!(
            error.contains("turnwire copy` again to continue")
                || error.contains("no Turnwire store"),
            "{error}"
        );
    }
    assert!(killed > 0, "every copy was complete before it was killed");
    let (status, _, error) = run(folder, &args);
    if status != 0 {
        // The last one was killed after its end.
        assert!(error.contains("a copy needs a database without"), "{error}");
    }
    let (status, out, error) = run(folder, &[&args[..], &["--compare"]].concat());
    assert_eq!((status, &*out), (0, ""), "{error}");
    assert!(error.contains("12 sessions, 24036 events"), "{error}");
    let (status, _, error) = run(folder, &["doctor", "--store", &url]);
    assert_eq!(status, 0, "{error}");
}

#[test]
fn a_file_that_a_server_uses_is_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let running = Running::start(folder, "sqlite:one.db");
    let (status, _, error) =
        run(folder, &["copy", "--from", "sqlite:one.db", "--to", "sqlite:two.db"]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("is in use by another process"), "{error}");
    assert!(!folder.join("two.db").exists());
    drop(running);
    let (status, _, error) =
        run(folder, &["copy", "--from", "sqlite:one.db", "--to", "sqlite:two.db"]);
    assert_eq!(status, 0, "{error}");
    for (to, text) in [
        ("sqlite:one.db", "cannot be copied to itself"),
        ("memory:", "a store in memory exists only inside its server"),
    ] {
        let (status, _, error) = run(folder, &["copy", "--from", "sqlite:one.db", "--to", to]);
        assert_eq!(status, 2, "{error}");
        assert!(error.contains(text), "{error}");
    }
    let (status, _, error) =
        run(folder, &["copy", "--from", "sqlite:missing.db", "--to", "sqlite:x.db"]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("there is no store at"), "{error}");
    assert!(!folder.join("missing.db.lock").exists());
}
