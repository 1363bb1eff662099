//! Migrations while a server of the former version is at work.

use super::{Migration, STEPS, VERSION_1, migrate};
use crate::error::Error;
use crate::postgres::connection::Database;
use crate::postgres::url::{DatabaseUrl, Wanted};
use crate::store::{Append, EventLines, NewSession, SessionKey, Store};
use crate::{PostgresStore, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use turnwire_core::{Fields, Head};
use turnwire_testkit::postgres::PostgresServer;

/// The steps of a later version: one that only adds, and one after which the former version cannot use the tables.
fn later_steps() -> [Migration; 3] {
    [
        Migration { sql: VERSION_1, oldest: 1 },
        Migration {
            sql: "ALTER TABLE turnwire.sessions ADD COLUMN added int8 NOT NULL DEFAULT 7;
                  CREATE TABLE turnwire.more (a int8)",
            oldest: 1,
        },
        Migration { sql: "ALTER TABLE turnwire.sessions RENAME COLUMN title TO name", oldest: 3 },
    ]
}

fn database(url: &str) -> Result<Database> {
    Database::new(&DatabaseUrl::parse(url, Wanted::ReadWrite)?)
}

/// A server of this version: it appends one event after the other.
struct OldServer {
    appended: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl OldServer {
    async fn start(url: &str) -> Result<Self> {
        let store = PostgresStore::open(url).await?;
        let (appended, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (appended.clone(), is_over.clone());
        let task = tokio::spawn(async move {
            let new = NewSession {
                key: SessionKey::new("t", "s"),
                agent: "demo".to_owned(),
                title: String::new(),
                metadata: Fields::default(),
                now_ms: 0,
            };
            let (record, _) = store.create_session(new).await?;
            let lease = store.acquire_lease(record.number, "old").await?;
            let mut head = Head::EMPTY;
            while !over.load(Ordering::SeqCst) {
                let lines = EventLines { first: head.next(), count: 1, bytes: "{}\n".into() };
                head = lines.last().into();
                let append = Append::empty(record.number, lease.fence, 0);
                store.append(Append { lines: Some(lines), ..append }).await?;
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        Ok(Self { appended, is_over, task })
    }

    async fn wait_for_appends(&self) {
        let before = self.appended.load(Ordering::SeqCst);
        while self.appended.load(Ordering::SeqCst) < before + 20 {
            assert!(!self.task.is_finished(), "it has ended");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_former_version_goes_on_while_several_servers_migrate_at_once() {
    let Some(server) = PostgresServer::start("migrations", &[]) else { return };
    let name = server.create_database();
    let url = server.url(&name);
    let old = OldServer::start(&url).await.unwrap();
    old.wait_for_appends().await;
    let mut migrating = JoinSet::new();
    for _ in 0..4 {
        let database = database(&url).unwrap();
        migrating.spawn(async move { migrate(&database, &later_steps()[..2]).await });
    }
    for migrated in migrating.join_all().await {
        migrated.unwrap();
    }
    let version = || server.run(&name, "SELECT version, oldest FROM turnwire.store");
    assert_eq!(version(), "2|1");
    old.wait_for_appends().await;
    // It may also start again, and changes nothing.
    drop(PostgresStore::open(&url).await.unwrap());
    assert_eq!(version(), "2|1");
    old.is_over.store(true, Ordering::SeqCst);
    old.task.await.unwrap().unwrap();
    let stored = server.run(&name, "SELECT head, added FROM turnwire.sessions");
    assert_eq!(stored, format!("{}|7", old.appended.load(Ordering::SeqCst)));

    // What it cannot use any more, it refuses.
    migrate(&database(&url).unwrap(), &later_steps()).await.unwrap();
    assert_eq!(version(), "3|3");
    let refused = PostgresStore::open(&url).await.err().unwrap();
    assert!(matches!(refused, Error::Version(_)), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_fails_changes_nothing() {
    let Some(server) = PostgresServer::start("a migration that fails", &[]) else { return };
    let name = server.create_database();
    let url = server.url(&name);
    migrate(&database(&url).unwrap(), STEPS).await.unwrap();
    let [first, adds, _] = later_steps();
    let fails = Migration { sql: "ALTER TABLE turnwire.missing ADD COLUMN a int8", oldest: 1 };
    let steps = [first, adds, fails];
    assert!(migrate(&database(&url).unwrap(), &steps).await.is_err());
    assert_eq!(server.run(&name, "SELECT version, oldest FROM turnwire.store"), "1|1");
    let exists = "SELECT to_regclass('turnwire.more') IS NULL";
    assert_eq!(server.run(&name, exists), "t");
}
