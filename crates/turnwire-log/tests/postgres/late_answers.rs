//! Connections to the database that are slow at the wrong moment: an owner whose appends are in the database, and who does
//! not know it yet; a reader between two of its reads.

use crate::cluster::{DELTA, LONG, START, TEXT, TestNode, push};
use crate::harness::TestDatabase;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use turnwire_core::Event;
use turnwire_log::Error;
use turnwire_log::store::{QueuedMessage, SessionKey};

/// Forwards connections to the database, and can hold its answers back, or the requests after a certain answer.
struct LateAnswers {
    port: u16,
    is_held: Arc<AtomicBool>,
    are_requests_held: Arc<AtomicBool>,
    /// Requests are held back as soon as an answer contains this text.
    last_answer: Arc<Mutex<Option<&'static str>>>,
}

impl LateAnswers {
    fn start(database_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_held = Arc::new(AtomicBool::new(false));
        let are_requests_held = Arc::new(AtomicBool::new(false));
        let last_answer = Arc::new(Mutex::new(None::<&'static str>));
        let (held, requests_held, last) =
            (is_held.clone(), are_requests_held.clone(), last_answer.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", database_port)).unwrap();
                let (requests, answers) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (held, requests_held, last) =
                    (held.clone(), requests_held.clone(), last.clone());
                let hold_requests = requests_held.clone();
                thread::spawn(move || pump(requests, server, &requests_held, |_| {}));
                thread::spawn(move || {
                    pump(answers, client, &held, |answer| {
                        let mut last = last.lock().unwrap();
                        let is_last = |text: &mut &str| {
                            answer.windows(text.len()).any(|part| part == text.as_bytes())
                        };
                        if last.take_if(is_last).is_some() {
                            hold_requests.store(true, Ordering::SeqCst);
                        }
                    });
                });
            }
        });
        Self { port, is_held, are_requests_held, last_answer }
    }

    fn url(&self, database: &TestDatabase) -> String {
        database.url().replace(&format!(":{}/", database.port()), &format!(":{}/", self.port))
    }

    fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, is_held: &AtomicBool, look: impl Fn(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..count).unwrap();
        look(bytes);
        while is_held.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_shows_what_others_have_read_of_its_append_before_it_was_answered() {
    let Some(database) = TestDatabase::new() else { return };
    let link = LateAnswers::start(database.port());
    let owner = TestNode::start_on(&link.url(&database), LONG).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_leaves_the_queue_during_a_read_is_in_the_queue_or_has_its_reply() {
    let Some(database) = TestDatabase::new() else { return };
    let link = LateAnswers::start(database.port());
    let owner = TestNode::start(&database, LONG).await;
    let reader = TestNode::start_on(&link.url(&database), LONG).await;
    let written = owner.create("s").await;
    let queued = QueuedMessage {
        id: "m".to_owned(),
        reply_id: "r".to_owned(),
        json: r#"{"id":"m","name":"a","role":"user","content":"Hi!"}"#.into(),
    };
    let enqueue = written.transact(&[], |tx| {
        tx.enqueue(queued.clone());
        Ok::<_, Error>(())
    });
    enqueue.await.unwrap();
    let read = reader.open("s").await;
    // The reader gets the head of the session, and its next request is late.
    *link.last_answer.lock().unwrap() = Some("before");
    let reading = tokio::spawn(async move { read.snapshot().await.unwrap() });
    while !link.are_requests_held.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let json = format!(r#"{{"id":"e","reply_id":"r",{START}}}"#);
    let mut event = Event::from_json(&json).unwrap();
    let change = written.transact(&["r"], |tx| {
        tx.dequeue("m");
        tx.push(&mut event, Some(&json)).map(drop).map_err(|why| Error::Refused { at: 0, why })
    });
    change.await.unwrap();
    link.are_requests_held.store(false, Ordering::SeqCst);
    let snapshot = reading.await.unwrap();
    let (queued, replies) = (snapshot.queue.len(), snapshot.open.len());
    assert_eq!((queued, replies), (0, 1), "what the owner wrote is there whole");
}
