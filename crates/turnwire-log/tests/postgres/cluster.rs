//! Several nodes over one database: who owns a session, who reads what, and what becomes of a node that is late.

use crate::harness::TestDatabase;
use std::sync::Arc;
use std::time::Duration;
use turnwire_core::{Event, Fields};
use turnwire_log::cluster::Cluster;
use turnwire_log::store::cluster::{Node, SessionHead};
use turnwire_log::store::{NewSession, SessionKey, SessionPatch, SessionStatus, Store};
use turnwire_log::{Error, Log, PostgresStore, Session};

/// Long enough that no lease ends by itself.
pub const LONG: Duration = Duration::from_mins(10);

pub struct TestNode {
    cluster: Arc<Cluster>,
    pub log: Arc<Log>,
}

impl TestNode {
    pub async fn start(database: &TestDatabase, ttl: Duration) -> Self {
        Self::start_on(&database.url(), ttl).await
    }

    pub async fn start_on(url: &str, ttl: Duration) -> Self {
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(url).await.unwrap());
        let cluster = Cluster::join(store.clone(), Node::default(), ttl).await.unwrap();
        Self { log: Arc::new(Log::in_cluster(store, cluster.lease().clone())), cluster }
    }

    pub async fn create(&self, id: &str) -> Arc<Session> {
        let new = NewSession {
            key: SessionKey::new("t", id),
            agent: "external".to_owned(),
            title: "before".to_owned(),
            metadata: Fields::default(),
            now_ms: 0,
        };
        self.log.create_session(new).await.unwrap().0
    }

    pub async fn open(&self, id: &str) -> Arc<Session> {
        self.log.open_session(&SessionKey::new("t", id)).await.unwrap().unwrap()
    }

    /// Declares another node dead as soon as its lease has expired.
    async fn bury(&self, other: &Self) {
        let id = other.cluster.node().id;
        while !self.cluster.store().unwrap().declare_dead(&id).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Appends one event of a reply.
pub async fn push(session: &Arc<Session>, reply: &str, event: &str) -> Result<u64, Error> {
    let json = format!(r#"{{"id":"{reply}-{}","reply_id":"{reply}",{event}}}"#, event.len());
    let mut event = Event::from_json(&json).unwrap();
    let touched = [reply];
    let change = session.transact(&touched, |tx| {
        tx.push(&mut event, Some(&json)).map(drop).map_err(|why| Error::Refused { at: 0, why })
    });
    Ok(change.await?.1.head.get())
}

pub const START: &str = r#""type":"REPLY_START","name":"a""#;
pub const TEXT: &str = r#""type":"TEXT_BLOCK_START","block_id":"b""#;
pub const DELTA: &str = r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"Hello""#;
const END: &str = r#""type":"REPLY_END""#;

fn is_owned_by(result: &Result<u64, Error>, node: &TestNode) -> bool {
    matches!(result, Err(Error::Owned(owner)) if owner.id == node.cluster.node().id)
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_reads_what_was_acknowledged_and_only_the_owner_writes() {
    let Some(database) = TestDatabase::new() else { return };
    let (one, two) =
        (TestNode::start(&database, LONG).await, TestNode::start(&database, LONG).await);
    let written = one.create("s").await;
    let read = two.open("s").await;
    for (at, event) in (1..).zip([START, TEXT, DELTA, END]) {
        assert_eq!(push(&written, "r", event).await.unwrap(), at);
        let snapshot = read.snapshot().await.unwrap();
        assert_eq!(snapshot.head.get(), at);
        let text = snapshot
            .open
            .first()
            .and_then(|reply| reply.msg().text(""))
            .filter(|text| !text.is_empty());
        assert_eq!(text.as_deref(), (at == 3).then_some("Hello"), "at {at}");
        assert!(is_owned_by(&push(&read, "other", START).await, &one));
        let again = two.open("s").await;
        let rows = again.read_events(turnwire_core::Seq::FIRST, usize::MAX).await.unwrap();
        assert_eq!(rows.iter().map(|rows| u64::from(rows.count)).sum::<u64>(), at);
    }
    assert_eq!(read.snapshot().await.unwrap().state.status, SessionStatus::Idle);
    assert_eq!(read.find_message("r").await.unwrap().unwrap().text, "Hello");
    let patch = SessionPatch { title: Some("after".to_owned()), metadata: None };
    written.patch(patch).await.unwrap();
    assert_eq!(read.snapshot().await.unwrap().title, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_hands_over_at_once() {
    let Some(database) = TestDatabase::new() else { return };
    let (one, two) =
        (TestNode::start(&database, LONG).await, TestNode::start(&database, LONG).await);
    let (first, second) = (one.create("s").await, two.open("s").await);
    push(&first, "r", START).await.unwrap();
    assert!(is_owned_by(&push(&second, "r", TEXT).await, &one));
    let orphans = async || {
        let store = two.cluster.store().unwrap();
        store.list_orphans(turnwire_log::store::SessionNumber(0), 10).await.unwrap().len()
    };
    assert_eq!(orphans().await, 0);
    one.cluster.leave().await.unwrap();
    assert_eq!(orphans().await, 1);
    assert_eq!(push(&second, "r", TEXT).await.unwrap(), 2);
    assert_eq!(orphans().await, 0);
    assert!(push(&first, "r", DELTA).await.is_err());
    assert_eq!(second.snapshot().await.unwrap().head.get(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_declared_dead_writes_nothing_and_trusts_nothing_that_it_has_in_memory() {
    let Some(database) = TestDatabase::new() else { return };
    let short = Duration::from_millis(300);
    let (late, other) =
        (TestNode::start(&database, short).await, TestNode::start(&database, LONG).await);
    let (lost, taken) = (late.create("s").await, other.open("s").await);
    push(&lost, "r", START).await.unwrap();
    assert!(is_owned_by(&push(&taken, "r", TEXT).await, &late));
    // It does not renew its lease.
    other.bury(&late).await;
    assert!(
        !late.cluster.lease().is_valid(),
        "a lease ends in its process before it ends in the database"
    );
    assert_eq!(push(&taken, "r", TEXT).await.unwrap(), 2);
    assert!(push(&lost, "r", DELTA).await.is_err());
    assert_eq!(lost.snapshot().await.unwrap().head.get(), 2, "a stale read");
    let renewal = late.cluster.renew().await.unwrap();
    assert!(renewal.has_rejoined);
    assert!(is_owned_by(&push(&lost, "r", DELTA).await, &other));
    // What another node wrote in between is another turn of ownership.
    let before = lost.snapshot().await.unwrap().ownership;
    other.cluster.leave().await.unwrap();
    assert_eq!(push(&lost, "r", DELTA).await.unwrap(), 3);
    assert!(lost.snapshot_as_owner().await.unwrap().ownership > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_renewal_keeps_the_sessions_if_nobody_declared_the_node_dead() {
    let Some(database) = TestDatabase::new() else { return };
    let node = TestNode::start(&database, Duration::from_secs(1)).await;
    let session = node.create("s").await;
    push(&session, "r", START).await.unwrap();
    let ownership = session.snapshot_as_owner().await.unwrap().ownership;
    while node.cluster.lease().is_valid() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(
        matches!(push(&session, "r", TEXT).await, Err(Error::Store(_))),
        "the lease has expired"
    );
    let store = node.cluster.store().unwrap();
    store.renew(&node.cluster.node().id, LONG).await.unwrap();
    // The process learns of it with its own renewal.
    loop {
        assert!(!node.cluster.renew().await.unwrap().has_rejoined);
        match push(&session, "r", TEXT).await {
            Ok(head) => break assert_eq!(head, 2),
            Err(error) => assert!(matches!(error, Error::Store(_)), "{error}"),
        }
    }
    node.cluster.renew().await.unwrap();
    assert_eq!(session.snapshot().await.unwrap().ownership, ownership);
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_woken_by_hints_and_without_them_by_the_next_poll() {
    let Some(database) = TestDatabase::new() else { return };
    let (one, two) =
        (TestNode::start(&database, LONG).await, TestNode::start(&database, LONG).await);
    let (hints, mut hinted) = tokio::sync::mpsc::unbounded_channel();
    one.log.set_append_listener(Box::new(move |head| hints.send(head).unwrap()));
    let (written, read) = (one.create("s").await, two.open("s").await);
    assert_eq!(two.log.watched_elsewhere(), []);
    let mut head = read.watch_head();
    assert_eq!(two.log.watched_elsewhere(), [read.number()]);
    push(&written, "r", START).await.unwrap();
    let hint = hinted.recv().await.unwrap();
    two.log.observe_heads(&[hint]);
    assert!(head.has_changed().unwrap());
    let seen = *head.borrow_and_update();
    assert_eq!((seen.head.get(), seen.status), (1, SessionStatus::Running));
    push(&written, "r", TEXT).await.unwrap();
    two.log.poll_watched().await.unwrap();
    assert_eq!(head.borrow_and_update().head.get(), 2);
    // A hint that comes late changes nothing.
    two.log.observe_heads(&[hint]);
    assert!(!head.has_changed().unwrap());
    one.log.delete_session(written.key()).await.unwrap();
    two.log.poll_watched().await.unwrap();
    assert!(head.borrow_and_update().is_deleted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_belongs_to_one_node_at_a_time_and_a_ticket_is_taken_once() {
    let Some(database) = TestDatabase::new() else { return };
    let node = TestNode::start(&database, LONG).await;
    let store = node.cluster.store().unwrap();
    assert!(store.claim_task("retention", "one", LONG).await.unwrap());
    assert!(store.claim_task("retention", "one", Duration::ZERO).await.unwrap());
    assert!(store.claim_task("retention", "two", LONG).await.unwrap());
    assert!(!store.claim_task("retention", "one", LONG).await.unwrap());
    assert!(store.claim_task("producers", "one", LONG).await.unwrap());
    assert!(store.put_once("ticket", "value", LONG, 1).await.unwrap());
    assert!(!store.put_once("one too many", "value", LONG, 1).await.unwrap());
    assert!(store.put_once("late", "value", Duration::ZERO, 2).await.unwrap());
    assert_eq!(store.take_once("ticket").await.unwrap().as_deref(), Some("value"));
    assert_eq!(store.take_once("ticket").await.unwrap(), None);
    assert_eq!(store.take_once("late").await.unwrap(), None);
    assert_eq!(store.secret().await.unwrap(), store.secret().await.unwrap());
    assert_eq!(store.secret().await.unwrap().len(), 32);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_session_is_free_unless_something_is_to_do_in_it() {
    let Some(database) = TestDatabase::new() else { return };
    let (one, two) =
        (TestNode::start(&database, LONG).await, TestNode::start(&database, LONG).await);
    for (id, event) in [("idle", END), ("open", TEXT)] {
        let session = one.create(id).await;
        push(&session, id, START).await.unwrap();
        push(&session, id, event).await.unwrap();
    }
    one.log.evict_idle().await.unwrap();
    assert_eq!(one.log.evict_idle().await.unwrap(), 2);
    assert_eq!(push(&two.open("idle").await, "r", START).await.unwrap(), 3);
    assert!(is_owned_by(&push(&two.open("open").await, "r", START).await, &one));
}

/// A process of the database that is stopped until this is dropped.
struct StoppedProcess(String);

impl StoppedProcess {
    fn stop(pid: String) -> Self {
        send_signal("-STOP", &pid);
        Self(pid)
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        send_signal("-CONT", &self.0);
    }
}

fn send_signal(signal: &str, pid: &str) {
    assert!(std::process::Command::new("kill").args([signal, pid]).status().unwrap().success());
}

/// Stops the connection of a node's appends. Its last append must have been of nothing but events: that is one
/// statement.
fn stop_appends(database: &TestDatabase) -> StoppedProcess {
    let pid = "SELECT pid FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%WITH written AS%'";
    StoppedProcess::stop(database.run(pid))
}

/// The head is still the one that the former owner knows: only the fence tells it apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_append_is_refused_though_the_new_owner_wrote_nothing() {
    let Some(database) = TestDatabase::new() else { return };
    let late = TestNode::start(&database, Duration::from_secs(2)).await;
    let other = TestNode::start(&database, LONG).await;
    let lost = late.create("s").await;
    push(&lost, "r", START).await.unwrap();
    push(&lost, "r", TEXT).await.unwrap();
    let stopped = stop_appends(&database);
    let mut hanging = Box::pin(push(&lost, "r", DELTA));
    tokio::select! {
        biased;
        written = &mut hanging => panic!("the database is stopped, but {written:?}"),
        () = tokio::task::yield_now() => {}
    }
    other.bury(&late).await;
    let taken = other.open("s").await;
    taken.acquire_ownership().await.unwrap();
    assert_eq!(taken.snapshot_as_owner().await.unwrap().head.get(), 2);
    drop(stopped);
    assert!(hanging.await.is_err(), "the append of a former owner");
    assert_eq!(database.run("SELECT head FROM turnwire.sessions"), "2");
    assert_eq!(push(&taken, "r", DELTA).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_owner_shows_what_the_new_one_wrote_and_not_its_own_append_that_hangs() {
    let Some(database) = TestDatabase::new() else { return };
    let late = TestNode::start(&database, Duration::from_secs(2)).await;
    let other = TestNode::start(&database, LONG).await;
    let lost = late.create("s").await;
    // A watched session keeps its last events in memory.
    let head = lost.watch_head();
    push(&lost, "r", START).await.unwrap();
    push(&lost, "r", TEXT).await.unwrap();
    let stopped = stop_appends(&database);
    let mut hanging = Box::pin(push(&lost, "r", DELTA));
    tokio::select! {
        biased;
        written = &mut hanging => panic!("the database is stopped, but {written:?}"),
        () = tokio::task::yield_now() => {}
    }
    // Whoever sends the same event meanwhile waits for this append.
    let mut repeated = Box::pin(push(&lost, "r", DELTA));
    tokio::select! {
        biased;
        known = &mut repeated => panic!("the append hangs, but {known:?}"),
        () = tokio::task::yield_now() => {}
    }
    other.bury(&late).await;
    let taken = other.open("s").await;
    assert_eq!(
        push(&taken, "r", r#""type":"TEXT_BLOCK_START","block_id":"other""#).await.unwrap(),
        3
    );
    let record = other.log.store().find_session(taken.key()).await.unwrap().unwrap();
    let (session, status) = (record.number, record.state.status);
    late.log.observe_heads(&[SessionHead { session, head: record.head, status }]);
    assert_eq!(head.borrow().head.get(), 3);
    let rows = lost.read_events(record.head.seq().unwrap(), usize::MAX).await.unwrap();
    let text =
        String::from_utf8(rows.iter().flat_map(|rows| rows.bytes.to_vec()).collect()).unwrap();
    assert!(text.contains(r#""block_id":"other""#), "{text}");
    // A read does not wait for the append either, and does not acknowledge it.
    let snapshot = tokio::time::timeout(Duration::from_secs(20), lost.snapshot()).await;
    assert_eq!(snapshot.unwrap().unwrap().head.get(), 3);
    drop(stopped);
    assert!(hanging.await.is_err(), "the append of a former owner");
    assert!(repeated.await.is_err(), "the same event, sent again before the append was lost");
    assert_eq!(taken.snapshot().await.unwrap().head.get(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_acquires_a_session_of_another_node_is_told_to_continue_it() {
    let Some(database) = TestDatabase::new() else { return };
    let (one, two) =
        (TestNode::start(&database, LONG).await, TestNode::start(&database, LONG).await);
    let (told, mut acquired) = tokio::sync::mpsc::unbounded_channel();
    two.log.set_acquire_listener(Box::new(move |session| told.send(session.number()).unwrap()));
    push(&one.create("s").await, "r", START).await.unwrap();
    let session = two.open("s").await;
    assert!(is_owned_by(&push(&session, "r", TEXT).await, &one));
    session.snapshot().await.unwrap();
    assert!(acquired.try_recv().is_err(), "it was only read");
    one.cluster.leave().await.unwrap();
    session.acquire_ownership().await.unwrap();
    assert_eq!(acquired.try_recv().unwrap(), session.number());
    push(&session, "r", TEXT).await.unwrap();
    assert!(acquired.try_recv().is_err(), "it was acquired once");
}
