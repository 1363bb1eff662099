//! Reads: from any seq, in pages of any size.

use super::harness::{Harness, Owner, assert_durable, line, read_all, seq};
use crate::error::Error;
use crate::store::{Retention, Store};
use bytes::Bytes;

/// A session with appends of many sizes.
async fn filled_session(store: &dyn Store) -> Owner {
    let mut owner = Owner::new(store, "t", "s").await;
    let mut other = Owner::new(store, "t", "other").await;
    for count in [1, 7, 1, 1, 20, 2, 3, 50, 1] {
        store.append(owner.events(count)).await.unwrap();
        store.append(other.events(1)).await.unwrap();
    }
    owner
}

fn expected(owner: &Owner, from: u64) -> Vec<(u64, Bytes)> {
    let line = |place| Bytes::from(line(owner.no, place).trim_end().to_owned());
    (from..=owner.last).map(|place| (place, line(place))).collect()
}

pub(super) async fn a_read_begins_anywhere_in_an_append(harness: &mut Harness) {
    let owner = filled_session(harness.store()).await;
    assert_durable!(harness, |store| {
        for from in 1..=owner.last + 1 {
            let found = read_all(store, owner.no, from, 1 << 20).await;
            assert_eq!(found, expected(&owner, from), "from {from}");
        }
    });
}

pub(super) async fn a_read_gives_at_least_one_event(harness: &mut Harness) {
    let owner = filled_session(harness.store()).await;
    assert_durable!(harness, |store| {
        for max_bytes in [0, 1, 10] {
            for from in 1..=owner.last {
                let page = store.read_events(owner.no, seq(from), max_bytes).await.unwrap();
                let count: u32 = page.iter().map(|lines| lines.count).sum();
                assert_eq!(count, 1, "from {from}, {max_bytes} bytes");
            }
            assert_eq!(read_all(store, owner.no, 1, max_bytes).await, expected(&owner, 1));
        }
    });
}

pub(super) async fn a_read_stops_when_it_has_so_many_bytes(harness: &mut Harness) {
    let owner = filled_session(harness.store()).await;
    let all: usize = (1..=owner.last).map(|place| line(owner.no, place).len()).sum();
    assert_durable!(harness, |store| {
        for max_bytes in [50, 51, 100, 333, 1000, all - 1, all, all + 1, usize::MAX] {
            for from in [1, 2, 5, 12, owner.last] {
                let page = store.read_events(owner.no, seq(from), max_bytes).await.unwrap();
                let bytes: usize = page.iter().map(|lines| lines.bytes.len()).sum();
                let last = page.last().unwrap().last().get();
                let without_the_last = bytes - line(owner.no, last).len();
                assert!(
                    without_the_last < max_bytes,
                    "{bytes} bytes where {max_bytes} were asked for, from {from}",
                );
                let next = line(owner.no, last + 1).len();
                assert!(
                    last == owner.last || bytes + next > max_bytes,
                    "{bytes} bytes, and {next} more would still have been below {max_bytes}",
                );
            }
            assert_eq!(read_all(store, owner.no, 1, max_bytes).await, expected(&owner, 1));
        }
    });
}

pub(super) async fn a_read_behind_the_end_is_empty(harness: &mut Harness) {
    let owner = filled_session(harness.store()).await;
    let empty = Owner::new(harness.store(), "t", "empty").await;
    assert_durable!(harness, |store| {
        for from in [owner.last + 1, owner.last + 2, 1 << 40, u64::MAX] {
            assert_eq!(store.read_events(owner.no, seq(from), 1000).await.unwrap(), []);
        }
        assert_eq!(store.read_events(empty.no, seq(1), 1000).await.unwrap(), []);
        assert_eq!(store.read_events(empty.no, seq(2), 1000).await.unwrap(), []);
    });
}

pub(super) async fn a_read_before_what_is_kept_says_where_it_begins(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    harness.store().append(owner.reply(5, "old", "")).await.unwrap();
    owner.now_ms = 100;
    harness.store().append(owner.reply(5, "young", "")).await.unwrap();
    let retention = Retention { before_ms: Some(50), ..Retention::default() };
    harness.store().apply_retention(retention).await.unwrap();
    assert_durable!(harness, |store| {
        for from in 1..=5 {
            let refused = store.read_events(owner.no, seq(from), 1000).await;
            assert!(
                matches!(refused, Err(Error::Trimmed(first)) if first == seq(6)),
                "from {from}: {refused:?}",
            );
        }
        for from in 6..=11 {
            let found = read_all(store, owner.no, from, 1000).await;
            assert_eq!(found, expected(&owner, from));
        }
    });
}
