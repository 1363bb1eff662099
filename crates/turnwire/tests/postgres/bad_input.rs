//! Databases that a server cannot use: how `turnwire serve` ends, and that nothing was changed.

use crate::harness::{run, server};
use std::os::unix::fs::PermissionsExt;
use turnwire_testkit::postgres::PostgresServer;

/// Everything in a database that is not Postgres' own.
const CONTENT: &str =
    "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1, 2";

/// Asserts that a server and a copy end with this error, without the password, and change nothing.
fn assert_refused(server: &PostgresServer, database: &str, url: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let before = server.run(database, CONTENT);
    let with_password = url.replacen('@', ":secret@", 1);
    let url = if url.contains(":secret") { url } else { &with_password };
    for args in [
        &["serve", "--listen", "127.0.0.1:0", "--store", url][..],
        &["copy", "--from", url, "--to", "sqlite:new.db"],
    ] {
        let (status, out, error) = run(folder.path(), args);
        // What cannot be written can still be read.
        if args.contains(&"copy") && text.contains("read-only") {
            continue;
        }
        assert_eq!((status, &*out), (2, ""), "{args:?}: {error}");
        assert!(error.starts_with("error: ") && !error.contains("secret"), "{error}");
        let no_store = args.contains(&"copy") && error.contains("there is no Turnwire store");
        assert!(error.contains(text) || no_store, "{args:?}: {error}");
        assert_eq!(error.lines().filter(|line| line.starts_with("error")).count(), 1, "{error}");
    }
    assert!(!folder.path().join("new.db").exists());
    assert_eq!(server.run(database, CONTENT), before);
}

#[test]
fn a_database_that_cannot_be_used_is_refused_with_what_to_do() {
    let Some(server) = server() else { return };
    let name = server.create_database();
    let refused = |url: &str, text: &str| assert_refused(server, &name, url, text);
    let url = server.url(&name);

    refused("postgres://turnwire@127.0.0.1:1/x", "check that it runs, and its address");
    refused(&server.url("missing"), "create the database first, for example with `createdb`");
    refused(&server.url_for("nobody_knows", &name), "check user and password, and pg_hba.conf");
    refused(&format!("{url}?sslmode=require"), "without TLS: add `?sslmode=disable`");
    refused(&format!("{url}?sslmode=maybe"), "expected for example postgres://USER:PASSWORD@HOST");

    server.run("postgres", &format!("CREATE ROLE poor_{name} LOGIN"));
    refused(&server.url_for(&format!("poor_{name}"), &name), "it needs CREATE on the database");
    server
        .run("postgres", &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    refused(&url, "is read-only");
    server.run("postgres", &format!("ALTER DATABASE {name} RESET default_transaction_read_only"));
    server.run(&name, "CREATE SCHEMA turnwire; CREATE TABLE turnwire.sessions (a int)");
    refused(&url, "choose another database, or rename that schema");
    server.run(&name, "DROP SCHEMA turnwire CASCADE");

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("none"), "").unwrap();
    let (status, _, error) = run(folder.path(), &["sessions", "import", "none", "--store", &url]);
    assert_eq!(status, 0, "{error}");
    server.run(&name, "UPDATE turnwire.store SET version = 99, oldest = 99");
    refused(&url, "start the newer Turnwire that wrote them. Nothing was changed");
}

/// A server that asks some users for a password, and lets others in only with TLS, which it does not have.
#[test]
fn a_wrong_password_and_missing_tls_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let rules = folder.path().join("pg_hba.conf");
    let text = "host all turnwire 127.0.0.1/32 trust\nhost all locked 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(&rules, text).unwrap();
    let setting = format!("hba_file={}", rules.display());
    let Some(server) = PostgresServer::start("passwords of Postgres", &[&setting]) else { return };
    let name = server.create_database();
    server
        .run("postgres", "CREATE ROLE locked LOGIN PASSWORD 'right'; CREATE ROLE encrypted LOGIN");
    let refused =
        |user: &str, text: &str| assert_refused(&server, &name, &server.url_for(user, &name), text);
    refused(
        "locked",
        "refuses the login (password authentication failed for user \"locked\"); check user and",
    );
    refused("encrypted", "add `?sslmode=require` to the URL");
    let url = server.url_for("locked:right", &name);
    let (status, _, error) = run(folder.path(), &["sessions", "--store", &url]);
    assert_eq!(status, 2);
    assert!(error.contains("there is no Turnwire store"), "{error}");
}
