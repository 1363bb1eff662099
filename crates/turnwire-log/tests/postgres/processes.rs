//! Several stores over one database, as several processes have them, and a database that goes away.

use crate::harness::TestDatabase;
use std::time::Duration;
use tokio::task::JoinSet;
use turnwire_core::{Fields, Head};
use turnwire_log::store::{Append, EventLines, NewSession, SessionKey, Store};
use turnwire_log::{Error, PostgresStore};

fn new(id: &str) -> NewSession {
    NewSession {
        key: SessionKey::new("t", id),
        agent: "demo".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    }
}

fn line(head: Head) -> EventLines {
    EventLines { first: head.next(), count: 1, bytes: "{}\n".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_start_at_once_create_the_tables_once() {
    let Some(database) = TestDatabase::new() else { return };
    let mut starting = JoinSet::new();
    for _ in 0..8 {
        let url = database.url();
        starting.spawn(async move { PostgresStore::open(&url).await.map(drop) });
    }
    for opened in starting.join_all().await {
        opened.unwrap();
    }
    assert_eq!(database.run("SELECT version FROM turnwire.store"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lost_its_lease_writes_nothing() {
    let Some(database) = TestDatabase::new() else { return };
    let old = PostgresStore::open(&database.url()).await.unwrap();
    let new_owner = PostgresStore::open(&database.url()).await.unwrap();
    let (record, _) = old.create_session(new("s")).await.unwrap();
    let old_lease = old.acquire_lease(record.number, "old").await.unwrap();
    let lease = new_owner.acquire_lease(record.number, "new").await.unwrap();
    let append =
        |fence| Append { lines: Some(line(Head::EMPTY)), ..Append::empty(record.number, fence, 0) };
    assert!(matches!(old.append(append(old_lease.fence)).await, Err(Error::Fenced)));
    new_owner.append(append(lease.fence)).await.unwrap();
    assert_eq!(database.run("SELECT owner FROM turnwire.sessions"), "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_on_when_its_connections_were_cut() {
    let Some(database) = TestDatabase::new() else { return };
    let store = PostgresStore::open(&database.url()).await.unwrap();
    let (record, _) = store.create_session(new("s")).await.unwrap();
    let lease = store.acquire_lease(record.number, "test").await.unwrap();
    let mut head = Head::EMPTY;
    for _ in 0..5 {
        database.run(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        // What was on its way may fail; nothing acknowledged is lost, nothing is written twice.
        let appended = async {
            loop {
                let append = Append::empty(record.number, lease.fence, 0);
                match store.append(Append { lines: Some(line(head)), ..append }).await {
                    Ok(()) => return head.next(),
                    Err(Error::Store(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        };
        let last = tokio::time::timeout(Duration::from_secs(20), appended).await.unwrap();
        head = Head::from(last);
        // Each connection of the pool learns with its next use that it was cut.
        let found = loop {
            match store.find_session(&record.key).await {
                Ok(found) => break found.unwrap(),
                Err(error) => assert!(matches!(error, Error::Store(_)), "{error:?}"),
            }
        };
        assert_eq!(found.head, head);
    }
}
