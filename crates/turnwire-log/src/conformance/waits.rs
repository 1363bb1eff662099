//! Waiting: no event is missed, and nobody is woken without a reason.

use super::harness::{
    Harness, Owner, assert_durable, assert_refused, new, open_from, read_all, wait_after,
};
use crate::error::{Error, Result};
use crate::store::{Append, SessionPatch, Store};
use std::pin::pin;
use tokio::task::JoinSet;

pub(super) async fn a_wait_returns_at_once_when_there_is_something(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    harness.store().append(owner.events(3)).await.unwrap();
    harness.store().append(owner.events(2)).await.unwrap();
    assert_durable!(harness, |store| {
        for after in 0..5 {
            assert_eq!(wait_after(store, owner.no, after).await.unwrap(), 5);
        }
    });
}

pub(super) async fn a_wait_goes_on_until_there_are_events_behind_the_place(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    let mut other = Owner::new(store, "t", "other").await;
    store.append(owner.events(2)).await.unwrap();
    for after in [2, 9] {
        let mut waiting = pin!(wait_after(store, owner.no, after));
        // Other changes are no reason to wake up.
        let meanwhile = async {
            store.append(other.events(3)).await.unwrap();
            let append = owner.nothing();
            store.append(Append { state: Some(open_from(1)), ..append }).await.unwrap();
            store.patch_session(owner.no, SessionPatch::default()).await.unwrap();
            while owner.last < after {
                store.append(owner.events(1)).await.unwrap();
            }
            tokio::task::yield_now().await;
        };
        tokio::select! {
            biased;
            woken = &mut waiting => panic!("woken at {woken:?} while it waits behind {after}"),
            () = meanwhile => {}
        }
        let (woken, appended) = tokio::join!(waiting, store.append(owner.events(2)));
        appended.unwrap();
        assert_eq!(woken.unwrap(), after + 2);
    }
}

/// Tasks that wait for events after these seqs, and have all started to.
async fn spawn_waiters(harness: &Harness, owner: &Owner, places: &[u64]) -> JoinSet<Result<u64>> {
    let (begun, mut all_begun) = tokio::sync::mpsc::channel(1);
    let mut waiters = JoinSet::new();
    for &after in places {
        let (store, no, begun) = (harness.share(), owner.no, begun.clone());
        waiters.spawn(async move {
            let mut waiting = Box::pin(wait_after(&*store, no, after));
            tokio::select! {
                biased;
                woken = &mut waiting => panic!("woken at {woken:?} while it waits behind {after}"),
                () = std::future::ready(()) => drop(begun),
            }
            waiting.await
        });
    }
    drop(begun);
    // The channel closes when the last sender is dropped.
    let end: Option<()> = all_begun.recv().await;
    assert_eq!(end, None);
    waiters
}

pub(super) async fn a_wait_wakes_everybody(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    harness.store().append(owner.events(1)).await.unwrap();
    let waiting = spawn_waiters(harness, &owner, &[1; 50]).await;
    harness.store().append(owner.events(4)).await.unwrap();
    for woken in waiting.join_all().await {
        assert_eq!(woken.unwrap(), 5);
    }
}

pub(super) async fn a_wait_ends_with_the_session(harness: &mut Harness) {
    let owner = Owner::new(harness.store(), "t", "s").await;
    let waiting = spawn_waiters(harness, &owner, &[0, 0, 7]).await;
    harness.store().delete_session(owner.no).await.unwrap();
    for result in waiting.join_all().await {
        assert_refused!(result, Error::NoSession);
    }
    // Not even for a new session of the same name.
    let again = harness.store().create_session(new("t", "s", 0)).await.unwrap().0;
    let mut again = Owner::of(harness.store(), again).await;
    harness.store().append(again.events(1)).await.unwrap();
    assert_durable!(harness, |store| {
        assert_refused!(wait_after(store, owner.no, 0).await, Error::NoSession);
        assert_eq!(wait_after(store, again.no, 0).await.unwrap(), 1);
    });
}

pub(super) async fn a_wait_that_is_given_up_leaves_nothing_behind(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    for _ in 0..200 {
        tokio::select! {
            biased;
            woken = wait_after(harness.store(), owner.no, owner.last) => panic!("woken at {woken:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    let (woken, appended) = tokio::join!(
        wait_after(harness.store(), owner.no, 0),
        harness.store().append(owner.events(2)),
    );
    appended.unwrap();
    assert_eq!(woken.unwrap(), 2);
    assert_durable!(harness, |store| owner.check(store).await);
}

/// Reads a session up to a seq, as a subscriber does.
async fn read_until(store: &dyn Store, owner: Owner, end: u64) {
    let mut after = 0;
    while after < end {
        let last = wait_after(store, owner.no, after).await.unwrap();
        assert!(last > after, "woken behind {after}, and the log ends at {last}");
        let events = read_all(store, owner.no, after + 1, 500).await;
        let read = events.last().map_or(after, |(place, _)| *place);
        assert!(read >= last, "told of {last}, and could read only up to {read}");
        after = read;
    }
}

pub(super) async fn watchers_that_wait_and_read_miss_nothing(harness: &mut Harness) {
    let mut watchers = JoinSet::new();
    let mut writers = JoinSet::new();
    for id in 0..3 {
        let mut owner = Owner::new(harness.store(), "t", &id.to_string()).await;
        for _ in 0..8 {
            let (store, owner) = (harness.share(), owner.clone());
            watchers.spawn(async move { read_until(&*store, owner, 400).await });
        }
        let store = harness.share();
        writers.spawn(async move {
            for at in 0..200 {
                let append = store.append(owner.events(2));
                if at % 3 == 0 {
                    append.await.unwrap();
                }
            }
            owner
        });
    }
    let owners = writers.join_all().await;
    watchers.join_all().await;
    assert_durable!(harness, |store| {
        for owner in &owners {
            owner.check(store).await;
        }
    });
}
