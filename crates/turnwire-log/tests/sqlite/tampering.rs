//! Stores and backups with planted objects are refused, and the error names the object.

use crate::harness::{Owner, folder, open};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use turnwire_log::sqlite::{ExistingStore, Options, restore};
use turnwire_log::store::Store;
use turnwire_log::{Error, SqliteStore};

/// A closed store with one session.
async fn closed_store() -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = folder();
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    store.append(owner.reply(2, "m", "some words")).await.unwrap();
    drop(store);
    (folder, path)
}

/// Asserts that a file can be neither opened nor restored, and that the error names the reason.
#[track_caller]
fn assert_rejected(path: &Path, name: &str) {
    let target = path.with_extension("restored");
    let refused = [
        SqliteStore::open(path, Options::default()).map(drop),
        SqliteStore::open_read_only(path).map(drop),
        restore(path, &target, ExistingStore::Keep, |_| {}),
    ];
    for refused in refused {
        let named = matches!(&refused, Err(Error::Damaged(why)) if why.contains(name));
        assert!(named, "{name} is not refused, or not named: {refused:?}");
    }
    assert!(!target.exists());
    assert!(!target.with_extension("restored.new").exists());
}

#[tokio::test]
async fn whatever_turnwire_does_not_make_is_refused_and_named() {
    for (sql, name) in [
        ("CREATE TRIGGER planted AFTER INSERT ON messages BEGIN DELETE FROM keys; END", "trigger `planted`"),
        ("CREATE TRIGGER planted INSTEAD OF DELETE ON v BEGIN SELECT 1; END", "`"),
        ("CREATE INDEX planted ON sessions (title)", "index `planted`"),
        ("CREATE INDEX planted ON sessions (lower(title))", "index `planted`"),
        ("CREATE INDEX planted ON messages (text) WHERE superseded", "index `planted`"),
        ("CREATE UNIQUE INDEX planted ON blobs (media_type)", "index `planted`"),
        ("CREATE VIEW planted AS SELECT * FROM keys", "view `planted`"),
        ("CREATE TABLE planted (x)", "table `planted`"),
        ("CREATE TABLE planted (x PRIMARY KEY) WITHOUT ROWID", "planted"),
        ("CREATE VIRTUAL TABLE planted USING fts5 (x)", "table `planted`"),
        ("ALTER TABLE sessions ADD COLUMN planted TEXT", "table `sessions`"),
        ("ALTER TABLE sessions ADD COLUMN planted TEXT DEFAULT 'x' NOT NULL", "table `sessions`"),
        (
            "ALTER TABLE keys ADD COLUMN planted TEXT GENERATED ALWAYS AS (hex(answer)) VIRTUAL",
            "table `keys`",
        ),
        ("ALTER TABLE sessions RENAME COLUMN title TO planted", "`sessions`"),
        ("ALTER TABLE probe RENAME TO planted", "`planted`"),
        ("DROP TABLE probe; CREATE TABLE probe (filler BLOB)", "table `probe`"),
        ("DROP TABLE unindexed; CREATE VIEW unindexed AS SELECT 1 AS no", "view `unindexed`"),
        ("DROP TABLE words; CREATE TABLE words (text TEXT)", "words"),
        ("DROP INDEX keys_age", "index `keys_age` is missing"),
        ("DROP INDEX keys_age; CREATE INDEX keys_age ON keys (ms) WHERE ms > 5", "index `keys_age`"),
        ("DROP INDEX sessions_name; CREATE INDEX sessions_name ON sessions (tenant, id)", "`sessions_name`"),
        ("ANALYZE", "table `sqlite_stat1`"),
        (
            "PRAGMA writable_schema = 1;
             UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', 'CHECK (1)') WHERE name = 'store'",
            "table `store`",
        ),
    ] {
        let (_folder, path) = closed_store().await;
        let conn = Connection::open(&path).unwrap();
        let sql = if sql.contains(" ON v ") {
            format!("CREATE VIEW v AS SELECT 1; {sql}")
        } else {
            sql.to_owned()
        };
        conn.execute_batch(&sql).unwrap();
        drop(conn);
        assert_rejected(&path, name);
    }
}

#[tokio::test]
async fn texts_in_another_encoding_are_refused() {
    let (folder, path) = closed_store().await;
    let ours = Connection::open(&path).unwrap();
    let planted = folder.path().join("planted.db");
    let other = Connection::open(&planted).unwrap();
    other.execute_batch("PRAGMA encoding = 'UTF-16le'").unwrap();
    let id: i64 = ours.query_one("PRAGMA application_id", [], |row| row.get(0)).unwrap();
    let version: i64 = ours.query_one("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    other
        .execute_batch(&format!("PRAGMA application_id = {id}; PRAGMA user_version = {version}"))
        .unwrap();
    let mut statements = ours
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'words_%' AND name NOT LIKE 'sqlite_%'")
        .unwrap();
    let statements = statements.query_map([], |row| row.get::<_, String>(0)).unwrap();
    for sql in statements {
        other.execute_batch(&sql.unwrap()).unwrap();
    }
    drop(other);
    assert_rejected(&planted, "UTF-16le");
}

#[tokio::test]
async fn a_store_that_nobody_changed_is_opened_and_restored() {
    let (_folder, path) = closed_store().await;
    let target = path.with_extension("restored");
    restore(&path, &target, ExistingStore::Keep, |_| {}).unwrap();
    for path in [&path, &target] {
        assert_eq!(open(path).check(|_| {}).await.unwrap(), []);
        SqliteStore::open_read_only(path).unwrap();
    }
}
