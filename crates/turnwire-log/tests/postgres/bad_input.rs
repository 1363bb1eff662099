//! Databases that cannot be used: the error says what to do, and nothing is changed.

use crate::harness::TestDatabase;
use turnwire_core::Fields;
use turnwire_log::store::{Append, EventLines, NewSession, SessionKey, Store};
use turnwire_log::{Error, PostgresStore};

/// Everything in a database that is not Postgres' own.
const CONTENT: &str =
    "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1, 2";

/// Asserts that a database is refused with an error that contains this text, and is not changed.
async fn assert_refused(database: &TestDatabase, url: &str, text: &str) -> Error {
    let before = database.run(CONTENT);
    let error = PostgresStore::open(url).await.err().unwrap();
    assert!(error.to_string().contains(text), "{error}");
    assert_eq!(database.run(CONTENT), before, "{error}");
    error
}

#[tokio::test]
async fn a_database_that_is_not_ours_is_left_alone() {
    let Some(database) = TestDatabase::new() else { return };
    let text = "is not a Turnwire store, so nothing in it was changed; choose another database";
    for foreign in [
        "CREATE SCHEMA turnwire",
        "CREATE TABLE turnwire.sessions (a int)",
        "CREATE TABLE turnwire.store (a int)",
        "DROP TABLE turnwire.store; CREATE TABLE turnwire.store (application text, version int8, oldest int8)",
        "INSERT INTO turnwire.store VALUES ('other', 1, 1)",
        "INSERT INTO turnwire.store VALUES ('turnwire', 1, 1)",
    ] {
        database.run(foreign);
        assert_refused(&database, &database.url(), text).await;
    }
}

#[tokio::test]
async fn tables_of_a_newer_version_are_used_only_if_they_allow_it() {
    let Some(database) = TestDatabase::new() else { return };
    drop(PostgresStore::open(&database.url()).await.unwrap());
    database.run("UPDATE turnwire.store SET version = 99, oldest = 98");
    let text =
        "have format 99, but this Turnwire supports formats up to 1; start the newer Turnwire";
    let error = assert_refused(&database, &database.url(), text).await;
    assert!(matches!(error, Error::Version(_)));
    let error = PostgresStore::open_read_only(&database.url()).await.err().unwrap();
    assert!(matches!(error, Error::Version(_)), "{error}");
    // Only added to: an older process may still use it.
    database.run("UPDATE turnwire.store SET oldest = 1");
    PostgresStore::open(&database.url()).await.unwrap().check_health().await.unwrap();
    assert_eq!(database.run("SELECT version, oldest FROM turnwire.store"), "99|1");
}

#[tokio::test]
async fn a_user_without_rights_is_told_which() {
    let Some(database) = TestDatabase::new() else { return };
    let user = format!("poor_{}", database.name);
    database.run(&format!("CREATE ROLE {user} LOGIN"));
    let url = database.url_for(&user);
    let error = assert_refused(&database, &url, "it needs CREATE on the database").await;
    assert!(matches!(error, Error::Denied(_)));
    // With tables, but without the right to read them.
    drop(PostgresStore::open(&database.url()).await.unwrap());
    let error = assert_refused(&database, &url, "must own the schema `turnwire`").await;
    assert!(matches!(error, Error::Denied(_)));
}

#[tokio::test]
async fn a_read_only_database_is_told_apart() {
    let Some(database) = TestDatabase::new() else { return };
    database.set("default_transaction_read_only = on");
    let error = assert_refused(&database, &database.url(), "is read-only").await;
    assert!(matches!(error, Error::Denied(_)));
    let error = PostgresStore::open_read_only(&database.url()).await.err().unwrap();
    assert!(error.to_string().contains("there is no Turnwire store"), "{error}");

    database.set("default_transaction_read_only = off");
    let store = PostgresStore::open(&database.url()).await.unwrap();
    let session = new_session(&store).await;
    drop(store);
    database.set("default_transaction_read_only = on");
    let store = PostgresStore::open_read_only(&database.url()).await.unwrap();
    assert!(store.find_session(&SessionKey::new("t", "s")).await.unwrap().is_some());
    assert!(matches!(store.append(session).await, Err(Error::Denied(_))));
    assert!(matches!(store.check_health().await, Err(Error::Denied(_))));
}

#[tokio::test]
async fn an_address_where_nothing_is_says_what_to_check() {
    let Some(database) = TestDatabase::new() else { return };
    for (url, text) in [
        ("postgres://turnwire@127.0.0.1:1/x".to_owned(), "check that it runs, and its address"),
        ("postgres://turnwire@turnwire.invalid/x?sslmode=disable".to_owned(), "check that it runs"),
        (database.url().replace("test_", "missing_"), "create the database first"),
        (database.url_for("nobody_knows"), "refuses the login"),
        ("postgres://turnwire@".to_owned(), "invalid database URL"),
        // This server has no TLS.
        (format!("{}?sslmode=require", database.url()), "cannot reach the database"),
    ] {
        assert_refused(&database, &url, text).await;
    }
}

#[tokio::test]
async fn settings_that_break_a_promise_are_refused() {
    let Some(database) = TestDatabase::new() else { return };
    let name = &database.name;
    database.set("synchronous_commit = off");
    assert_refused(&database, &database.url(), "synchronous_commit = off").await;
    database.run(&format!("CREATE DATABASE {name}_ascii TEMPLATE template0 ENCODING 'SQL_ASCII'"));
    let url = database.url().replace(name, &format!("{name}_ascii"));
    let error = PostgresStore::open(&url).await.err().unwrap();
    assert!(error.to_string().contains("create the database with the encoding UTF8"), "{error}");
}

async fn new_session(store: &PostgresStore) -> Append {
    let new = NewSession {
        key: SessionKey::new("t", "s"),
        agent: "demo".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    };
    let (record, _) = store.create_session(new).await.unwrap();
    let lease = store.acquire_lease(record.number, "test").await.unwrap();
    let lines = EventLines { first: record.head.next(), count: 1, bytes: "{}\n".into() };
    Append { lines: Some(lines), ..Append::empty(record.number, lease.fence, 0) }
}

/// A trigger stands for the disk: it fails with the error that the server gives when there is no room.
#[tokio::test]
async fn without_room_nothing_is_written_until_there_is_some() {
    let Some(database) = TestDatabase::new() else { return };
    let store = PostgresStore::open(&database.url()).await.unwrap();
    let append = new_session(&store).await;
    database.run(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
         CREATE TRIGGER no_room BEFORE INSERT ON turnwire.segments EXECUTE FUNCTION no_room()",
    );
    let error = store.append(append.clone()).await.unwrap_err();
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    assert!(error.to_string().contains("free some space, then writing continues"), "{error}");
    let key = SessionKey::new("t", "s");
    assert!(store.find_session(&key).await.unwrap().unwrap().head.is_empty());
    database.run("DROP TRIGGER no_room ON turnwire.segments");
    store.append(append).await.unwrap();
    assert_eq!(store.find_session(&key).await.unwrap().unwrap().head.get(), 1);
}
