//! Waiting: nobody sleeps through an event, and nobody is woken for nothing.

use super::bench::{Bench, Owner, assert_refused, new, open_from, read_all};
use crate::error::{Error, Result};
use crate::store::{Append, SessionPatch, Store};
use std::pin::pin;
use tokio::task::JoinSet;

pub(super) async fn a_wait_returns_at_once_when_there_is_something(bench: &mut Bench) {
    let mut owner = Owner::new(bench.store(), "t", "s").await;
    bench.store().append(owner.events(3)).await.unwrap();
    bench.store().append(owner.events(2)).await.unwrap();
    bench
        .see(async |store| {
            for after in 0..5 {
                assert_eq!(store.wait_for_events(owner.no, after).await.unwrap(), 5);
            }
        })
        .await;
}

pub(super) async fn a_wait_goes_on_until_there_are_events_behind_the_place(bench: &mut Bench) {
    let store = bench.store();
    let mut owner = Owner::new(store, "t", "s").await;
    let mut other = Owner::new(store, "t", "other").await;
    store.append(owner.events(2)).await.unwrap();
    for after in [2, 9] {
        let mut waiting = pin!(store.wait_for_events(owner.no, after));
        // Whatever else happens is no reason to wake up.
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

/// Tasks that wait behind these places, and have all begun to.
async fn spawn_waiters(bench: &Bench, owner: &Owner, places: &[u64]) -> JoinSet<Result<u64>> {
    let (begun, mut all_begun) = tokio::sync::mpsc::channel(1);
    let mut waiters = JoinSet::new();
    for &after in places {
        let (store, no, begun) = (bench.share(), owner.no, begun.clone());
        waiters.spawn(async move {
            let mut waiting = store.wait_for_events(no, after);
            tokio::select! {
                biased;
                woken = &mut waiting => panic!("woken at {woken:?} while it waits behind {after}"),
                () = std::future::ready(()) => drop(begun),
            }
            waiting.await
        });
    }
    drop(begun);
    // Nothing is sent: it ends when the last of them has let go.
    let end: Option<()> = all_begun.recv().await;
    assert_eq!(end, None);
    waiters
}

pub(super) async fn a_wait_wakes_everybody(bench: &mut Bench) {
    let mut owner = Owner::new(bench.store(), "t", "s").await;
    bench.store().append(owner.events(1)).await.unwrap();
    let waiting = spawn_waiters(bench, &owner, &[1; 50]).await;
    bench.store().append(owner.events(4)).await.unwrap();
    for woken in waiting.join_all().await {
        assert_eq!(woken.unwrap(), 5);
    }
}

pub(super) async fn a_wait_ends_with_the_session(bench: &mut Bench) {
    let owner = Owner::new(bench.store(), "t", "s").await;
    let waiting = spawn_waiters(bench, &owner, &[0, 0, 7]).await;
    bench.store().delete_session(owner.no).await.unwrap();
    for result in waiting.join_all().await {
        assert_refused!(result, Error::NoSession);
    }
    // Not even for one that has its name now.
    let again = bench.store().create_session(new("t", "s", 0)).await.unwrap().0;
    let mut again = Owner::of(bench.store(), again).await;
    bench.store().append(again.events(1)).await.unwrap();
    bench
        .see(async |store| {
            assert_refused!(store.wait_for_events(owner.no, 0).await, Error::NoSession);
            assert_eq!(store.wait_for_events(again.no, 0).await.unwrap(), 1);
        })
        .await;
}

pub(super) async fn a_wait_that_is_given_up_leaves_nothing_behind(bench: &mut Bench) {
    let mut owner = Owner::new(bench.store(), "t", "s").await;
    for _ in 0..200 {
        tokio::select! {
            biased;
            woken = bench.store().wait_for_events(owner.no, owner.last) => panic!("woken at {woken:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    let (woken, appended) = tokio::join!(
        bench.store().wait_for_events(owner.no, 0),
        bench.store().append(owner.events(2)),
    );
    appended.unwrap();
    assert_eq!(woken.unwrap(), 2);
    bench.see(async |store| owner.check(store).await).await;
}

/// Follows a session to a place, as a watcher does.
async fn read_until(store: &dyn Store, owner: Owner, end: u64) {
    let mut after = 0;
    while after < end {
        let last = store.wait_for_events(owner.no, after).await.unwrap();
        assert!(last > after, "woken behind {after}, and the log ends at {last}");
        let events = read_all(store, owner.no, after + 1, 500).await;
        let read = events.last().map_or(after, |(place, _)| *place);
        assert!(read >= last, "told of {last}, and could read only up to {read}");
        after = read;
    }
}

pub(super) async fn watchers_that_wait_and_read_miss_nothing(bench: &mut Bench) {
    let mut watchers = JoinSet::new();
    let mut writers = JoinSet::new();
    for id in 0..3 {
        let mut owner = Owner::new(bench.store(), "t", &id.to_string()).await;
        for _ in 0..8 {
            let (store, owner) = (bench.share(), owner.clone());
            watchers.spawn(async move { read_until(&*store, owner, 400).await });
        }
        let store = bench.share();
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
    bench
        .see(async |store| {
            for owner in &owners {
                owner.check(store).await;
            }
        })
        .await;
}
