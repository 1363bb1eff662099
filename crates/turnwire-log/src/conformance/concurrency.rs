//! Concurrent writers and readers.

use super::harness::{Harness, Owner, assert_durable, message};
use crate::store::{Append, IdempotencyRecord, MessageQuery, SessionState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;
use turnwire_core::Head;

pub(super) async fn many_writers_of_many_sessions_lose_nothing(harness: &mut Harness) {
    let mut writers = JoinSet::new();
    for at in 0..40_u32 {
        let store = harness.share();
        writers.spawn(async move {
            let mut owner = Owner::new(&*store, "t", &at.to_string()).await;
            let mut pending = Vec::new();
            for round in 0..25 {
                pending.push(store.append(owner.events((at + round) % 5 + 1)));
                // Some await each append, some several, and some the last one first.
                if round % (at % 7 + 1) == 0 {
                    for append in pending.drain(..).rev() {
                        append.await.unwrap();
                    }
                }
            }
            for append in pending {
                append.await.unwrap();
            }
            owner.check(&*store).await;
            owner
        });
    }
    let owners = writers.join_all().await;
    assert_durable!(harness, |store| {
        for owner in &owners {
            owner.check(store).await;
        }
    });
}

pub(super) async fn what_was_written_together_is_seen_together(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let (key, no) = (owner.key.clone(), owner.no);
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let (store, done, key) = (harness.share(), Arc::clone(&done), key.clone());
        readers.spawn(async move {
            let query = MessageQuery { limit: 1000, ..MessageQuery::default() };
            loop {
                let finished = done.load(Ordering::Acquire);
                let before = store.find_session(&key).await.unwrap().unwrap();
                let messages = store.list_messages(no, &query).await.unwrap();
                let after = store.find_session(&key).await.unwrap().unwrap();
                let known: Head = messages.last().map(|message| message.last).into();
                assert!(before.head <= known, "events to {}, messages to {known}", before.head);
                assert!(known <= after.head, "messages to {known}, events to {}", after.head);
                assert_eq!(before.state.usage.output_tokens.unsigned_abs(), before.head.get());
                let known_key =
                    store.find_idempotency_record("t", &before.head.to_string()).await.unwrap();
                assert!(
                    known_key.is_some() || before.head.is_empty(),
                    "no key for {}",
                    before.head
                );
                if finished {
                    break;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let mut pending = Vec::new();
    for at in 0..120_u64 {
        let append = owner.events(2);
        let mut state = SessionState::default();
        state.usage.output_tokens = i64::try_from(owner.last).unwrap();
        let append = Append {
            messages: vec![message(&at.to_string(), owner.last - 1, owner.last, "")],
            state: Some(state),
            idempotency: Some(IdempotencyRecord {
                tenant: "t".into(),
                key: owner.last.to_string(),
                fingerprint: [0; 32],
                response: String::new(),
            }),
            ..append
        };
        pending.push(harness.store().append(append));
        if at % 5 == 0 {
            for append in pending.drain(..) {
                append.await.unwrap();
            }
        }
    }
    for append in pending {
        append.await.unwrap();
    }
    done.store(true, Ordering::Release);
    readers.join_all().await;
    assert_durable!(harness, |store| owner.check(store).await);
}
