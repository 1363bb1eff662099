//! Leases: only the current owner can write.

use super::appends::assert_unchanged;
use super::harness::{Harness, Owner, assert_durable, assert_refused, lines, new};
use crate::error::Error;
use crate::store::{Append, Fence, Lease, QueuedMessage, SessionState};
use bytes::Bytes;

pub(super) async fn a_later_owner_has_the_higher_fence(harness: &mut Harness) {
    let (record, _) = harness.store().create_session(new("t", "s", 0)).await.unwrap();
    let mut leases: Vec<Lease> = Vec::new();
    for round in 0..6 {
        let owner = ["one", "two", "two"][round % 3];
        let lease = harness.store().acquire_lease(record.number, owner).await.unwrap();
        assert!(leases.iter().all(|earlier| earlier.fence < lease.fence), "{leases:?} {lease:?}");
        let append =
            |lease: &Lease| harness.store().append(Append::empty(record.number, lease.fence, 0));
        append(&lease).await.unwrap();
        for earlier in &leases {
            assert_refused!(append(earlier).await, Error::Fenced);
        }
        leases.push(lease);
        if round % 2 == 1 {
            harness.reopen().await;
        }
    }
}

pub(super) async fn an_outdated_owner_is_fenced_and_writes_nothing(harness: &mut Harness) {
    let mut old = Owner::new(harness.store(), "t", "s").await;
    let queued = QueuedMessage {
        id: "q".to_owned(),
        reply_id: "r".to_owned(),
        json: Bytes::from_static(b"{}"),
    };
    let append = old.reply(3, "m", "words");
    harness.store().append(Append { enqueue: vec![queued], ..append }).await.unwrap();
    harness.store().append(old.reply(2, "n", "more")).await.unwrap();
    let record = old.record(harness.store()).await;
    let new = Owner::acquire(harness.store(), record.clone()).await;
    assert_durable!(harness, |store| {
        let mut late = old.clone();
        assert_refused!(store.append(late.events(1)).await, Error::Fenced);
        assert_refused!(store.append(late.reply(1, "m", "other")).await, Error::Fenced);
        assert_refused!(store.append(late.nothing()).await, Error::Fenced);
        let append = late.nothing();
        let dequeue = vec!["q".to_owned()];
        let state = Some(SessionState::default());
        assert_refused!(store.append(Append { state, dequeue, ..append }).await, Error::Fenced);
        assert_unchanged(store, &new).await;
    });
    let mut new = Owner::acquire(harness.store(), record).await;
    harness.store().append(new.events(2)).await.unwrap();
    assert_durable!(harness, |store| new.check(store).await);
}

pub(super) async fn nobody_writes_without_a_lease(harness: &mut Harness) {
    let (record, _) = harness.store().create_session(new("t", "s", 0)).await.unwrap();
    let other = Owner::new(harness.store(), "t", "other").await;
    let nobody = Owner { no: record.number, key: record.key.clone(), ..other.clone() };
    assert_durable!(harness, |store| {
        for fence in [Fence(0), Fence(u64::MAX), Fence(u64::MAX / 2 + 1)] {
            let append =
                Append { fence, lines: Some(lines(record.number, 1, 1)), ..nobody.nothing() };
            assert_refused!(store.append(append).await, Error::Fenced);
        }
        assert_eq!(store.find_session(&record.key).await.unwrap().as_ref(), Some(&record));
    });
}

pub(super) async fn a_queued_append_of_the_old_owner_does_not_land_after_the_takeover(
    harness: &mut Harness,
) {
    for round in 0..20 {
        let store = harness.store();
        let mut old = Owner::new(store, "t", &round.to_string()).await;
        // Some appends that nobody awaits, then immediately the new owner.
        let pending: Vec<_> = (0..round * 3).map(|_| store.append(old.events(2))).collect();
        store.acquire_lease(old.no, "new").await.unwrap();
        let end = old.record(store).await.head;
        let mut landed = 0;
        let mut fenced = false;
        for append in pending {
            match append.await {
                Ok(()) => {
                    assert!(!fenced, "one landed behind one that did not");
                    landed += 2;
                }
                Err(Error::Fenced | Error::OutOfOrder) => fenced = true,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(landed, end.get(), "what the new owner saw is not where the old one stopped");
        assert_eq!(old.record(store).await.head, end, "the old owner still wrote");
    }
}

pub(super) async fn a_takeover_in_the_middle_loses_nothing_that_was_acknowledged(
    harness: &mut Harness,
) {
    let first = Owner::new(harness.store(), "t", "s").await;
    let key = first.key.clone();
    let mut owners = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, key) = (harness.share(), key.clone());
        owners.spawn(async move {
            let mut acknowledged = Vec::new();
            for _ in 0..15 {
                let fence = {
                    let record = store.find_session(&key).await.unwrap().unwrap();
                    store.acquire_lease(record.number, "one of four").await.unwrap().fence
                };
                // The head is only certain now, unless the next owner took over already.
                let record = store.find_session(&key).await.unwrap().unwrap();
                let no = record.number;
                let mut owner =
                    Owner { key: key.clone(), no, fence, last: record.head.get(), now_ms: 0 };
                loop {
                    let append = owner.events(3);
                    match store.append(append).await {
                        Ok(()) => acknowledged.push(owner.last),
                        Err(Error::Fenced | Error::OutOfOrder) => break,
                        Err(error) => panic!("{error:?}"),
                    }
                    if acknowledged.len() % 5 == 4 {
                        break;
                    }
                }
                tokio::task::yield_now().await;
            }
            acknowledged
        });
    }
    let mut acknowledged = owners.join_all().await.concat();
    acknowledged.sort_unstable();
    let places: Vec<u64> = (1..=acknowledged.len() as u64).map(|at| at * 3).collect();
    assert_eq!(acknowledged, places, "each event was acknowledged to exactly one owner");
    let last = *places.last().unwrap();
    let everything = Owner { last, ..first };
    assert_durable!(harness, |store| everything.check(store).await);
}

pub(super) async fn a_fenced_append_does_not_disturb_the_new_owner(harness: &mut Harness) {
    let store = harness.store();
    let mut old = Owner::new(store, "t", "s").await;
    store.append(old.events(2)).await.unwrap();
    let mut new = Owner::acquire(store, old.record(store).await).await;
    let mut pending = Vec::new();
    for _ in 0..10 {
        let late = (store.append(old.events(1)), store.append(old.nothing()));
        pending.push((late, store.append(new.nothing()), store.append(new.events(1))));
    }
    for ((events, nothing), without, with) in pending {
        assert_refused!(events.await, Error::Fenced);
        assert_refused!(nothing.await, Error::Fenced);
        without.await.unwrap();
        with.await.unwrap();
    }
    assert_durable!(harness, |store| new.check(store).await);
}
