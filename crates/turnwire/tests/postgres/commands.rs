//! The server, `sessions`, `doctor`, and the commands that work with files.

use crate::harness::{Running, SESSION, run, server};

#[test]
fn commands_and_a_server_that_is_killed_work_on_a_database() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (folder, database) = (folder.path(), server.create_database());
    let url = server.url(&database).replace("turnwire@", "turnwire:secret@");

    let (status, _, error) = run(folder, &["sessions", "--store", &url]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("there is no Turnwire store") && !error.contains("secret"), "{error}");

    std::fs::write(folder.join("rome.ndjson"), SESSION).unwrap();
    let (status, _, error) = run(folder, &["sessions", "import", "rome.ndjson", "--store", &url]);
    assert_eq!((status, &*error), (0, "1 sessions with 3 events imported\n"));

    let running = Running::start(folder, &url);
    assert!(!running.banner.contains("secret"), "{}", running.banner);
    let created = running.request("POST", "/v1/sessions", r#"{"id":"paris","agent":"demo"}"#);
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let message = r#"{"content":"rain in Paris"}"#;
    let posted = running.request("POST", "/v1/sessions/paris/messages", message);
    assert!(posted.starts_with("HTTP/1.1 20"), "{posted}");
    drop(running);

    let running = Running::start(folder, &url);
    let messages = running.request("GET", "/v1/sessions/paris/messages", "");
    assert!(messages.contains("rain in Paris"), "{messages}");
    assert!(running.request("GET", "/readyz", "").starts_with("HTTP/1.1 200"));
    // While the server runs.
    let (status, listed, error) = run(folder, &["sessions", "--search", "Rome", "--store", &url]);
    assert_eq!(status, 0, "{error}");
    assert!(listed.contains("rome") && !listed.contains("paris"), "{listed}");
    let (status, _, error) = run(folder, &["doctor", "--store", &url]);
    assert_eq!(status, 0, "{error}");
    assert!(error.contains("2 sessions, no findings") && !error.contains("secret"), "{error}");
    drop(running);

    let (status, exported, error) = run(folder, &["sessions", "export", "rome", "--store", &url]);
    assert_eq!(status, 0, "{error}");
    assert_eq!(
        exported.lines().skip(1).collect::<Vec<_>>(),
        SESSION.lines().skip(1).collect::<Vec<_>>()
    );

    server.run(&database, "UPDATE turnwire.messages SET json = '{}' WHERE id = 'r'");
    let (status, found, error) = run(folder, &["doctor", "--store", &url]);
    assert_eq!(status, 1, "{error}");
    assert!(found.contains("default/rome: "), "{found}");
    let (status, _, error) = run(folder, &["doctor", "--repair", "--store", &url]);
    assert_eq!(status, 0, "{error}");
    assert!(error.contains("1 findings, 1 of them repaired"), "{error}");
    let (status, _, error) = run(folder, &["doctor", "--store", &url]);
    assert_eq!(status, 0, "{error}");

    for args in [["backup", "a.db", "--store", &url], ["restore", "a.db", "--store", &url]] {
        let (status, _, error) = run(folder, &args);
        assert_eq!(status, 2, "{error}");
        assert!(
            error.contains("pg_dump")
                && error.contains("turnwire copy")
                && !error.contains("secret"),
            "{error}"
        );
    }
    let (status, _, error) = run(folder, &["serve", "--store", "postgres://x@127.0.0.1:1/x"]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("cannot reach the database"), "{error}");
}
