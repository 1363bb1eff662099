//! An owner whose appends are in the database, and who does not know it yet.

use crate::cluster::{DELTA, LONG, START, TEXT, TestNode, push};
use crate::harness::TestDatabase;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use turnwire_log::store::SessionKey;

/// Forwards connections to the database, and can hold its answers back.
struct LateAnswers {
    port: u16,
    is_held: Arc<AtomicBool>,
}

impl LateAnswers {
    fn start(database_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_held = Arc::new(AtomicBool::new(false));
        let held = is_held.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", database_port)).unwrap();
                let (requests, answers) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                let held = held.clone();
                thread::spawn(move || pump(requests, server, &AtomicBool::new(false)));
                thread::spawn(move || pump(answers, client, &held));
            }
        });
        Self { port, is_held }
    }

    fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, is_held: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        while is_held.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        if buffer.get(..count).is_none_or(|bytes| to.write_all(bytes).is_err()) {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_shows_what_others_have_read_of_its_append_before_it_was_answered() {
    let Some(database) = TestDatabase::new() else { return };
    let link = LateAnswers::start(database.port());
    let url =
        database.url().replace(&format!(":{}/", database.port()), &format!(":{}/", link.port));
    let owner = TestNode::start_on(&url, LONG).await;
    let reader = TestNode::start(&database, LONG).await;
    let written = owner.create("s").await;
    push(&written, "r", START).await.unwrap();
    push(&written, "r", TEXT).await.unwrap();
    link.hold(true);
    let pushed = tokio::spawn(async move { push(&written, "r", DELTA).await });
    // The other node shows the event as soon as the database has it.
    while reader.open("s").await.head_state().head.get() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let key = SessionKey::new("t", "s");
    let opened = Arc::new(Mutex::new(None));
    let (log, seen) = (owner.log.clone(), opened.clone());
    let opening = tokio::spawn(async move {
        let session = log.open_session(&key).await.unwrap().unwrap();
        *seen.lock().unwrap() = Some(session.head_state().head.get());
    });
    // Whoever asks the owner now must not see less. It waits; a change does not.
    let key = SessionKey::new("t", "s");
    let to_write = owner.log.open_session_to_write(&key).await.unwrap().unwrap();
    assert_eq!(to_write.head_state().head.get(), 2, "the answer is held back");
    for _ in 0..50 {
        assert_eq!(*opened.lock().unwrap(), None, "a stale read");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    link.hold(false);
    opening.await.unwrap();
    assert_eq!(*opened.lock().unwrap(), Some(3));
    assert_eq!(pushed.await.unwrap().unwrap(), 3);
}
