//! Idempotency keys, the queue, and storing blobs.

use super::harness::{Harness, Owner, assert_durable, assert_refused, lines};
use crate::error::Error;
use crate::store::{Append, Blob, IdempotencyRecord, QueuedMessage};
use bytes::Bytes;
use tokio::task::JoinSet;

fn key(tenant: &str, key: &str, fingerprint: u8) -> IdempotencyRecord {
    IdempotencyRecord {
        tenant: tenant.into(),
        key: key.to_owned(),
        fingerprint: [fingerprint; 32],
        response: format!("{{\"answer\":\"{tenant} {key}\0\"}}"),
    }
}

fn queued(id: &str) -> QueuedMessage {
    QueuedMessage {
        id: id.to_owned(),
        reply_id: format!("reply to {id}"),
        json: Bytes::from(format!("{{ \"id\": {id:?} }}")),
    }
}

pub(super) async fn a_key_is_written_with_its_append_or_not_at_all(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    assert_eq!(store.find_idempotency_record("t", "with events").await.unwrap(), None);
    let append = owner.events(2);
    let with_events = Some(key("t", "with events", 0));
    store.append(Append { idempotency: with_events.clone(), ..append }).await.unwrap();
    let without_events = Some(key("t", "without events", 255));
    store.append(Append { idempotency: without_events.clone(), ..owner.nothing() }).await.unwrap();
    let refused = Append {
        lines: Some(lines(owner.no, 9, 1)),
        idempotency: Some(key("t", "refused", 1)),
        ..owner.nothing()
    };
    assert_refused!(store.append(refused).await, Error::OutOfOrder);
    // The append is not awaited: either both are written or neither.
    let append = owner.events(1);
    let unwatched = Some(key("t", "unwatched", 1));
    drop(store.append(Append { idempotency: unwatched.clone(), ..append }));
    store.append(owner.events(1)).await.unwrap();
    assert_durable!(harness, |store| {
        assert_eq!(store.find_idempotency_record("t", "with events").await.unwrap(), with_events);
        assert_eq!(
            store.find_idempotency_record("t", "without events").await.unwrap(),
            without_events
        );
        assert_eq!(store.find_idempotency_record("t", "unwatched").await.unwrap(), unwatched);
        assert_eq!(store.find_idempotency_record("t", "refused").await.unwrap(), None);
        owner.check(store).await;
    });
}

pub(super) async fn a_key_belongs_to_its_tenant(harness: &mut Harness) {
    for (tenant, fingerprint) in [("a", 1), ("b", 2)] {
        let mut owner = Owner::new(harness.store(), tenant, "s").await;
        let append = owner.events(1);
        let key = Some(key(tenant, "key '1' 日本\0", fingerprint));
        harness.store().append(Append { idempotency: key, ..append }).await.unwrap();
    }
    assert_durable!(harness, |store| {
        for (tenant, fingerprint) in [("a", 1), ("b", 2)] {
            let found = store.find_idempotency_record(tenant, "key '1' 日本\0").await.unwrap();
            assert_eq!(found, Some(key(tenant, "key '1' 日本\0", fingerprint)));
        }
        assert_eq!(store.find_idempotency_record("c", "key '1' 日本\0").await.unwrap(), None);
        assert_eq!(store.find_idempotency_record("a", "key '1' 日本").await.unwrap(), None);
    });
}

pub(super) async fn the_queue_keeps_its_order(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let other = Owner::new(harness.store(), "t", "other").await;
    let store = harness.store();
    let enqueue = vec![queued("z"), queued("a")];
    store.append(Append { enqueue, ..owner.nothing() }).await.unwrap();
    store.append(Append { enqueue: vec![queued("z")], ..other.nothing() }).await.unwrap();
    let append = owner.events(1);
    store.append(Append { enqueue: vec![queued("m '\" 日本\0")], ..append }).await.unwrap();
    assert_durable!(harness, |store| {
        let expected = ["z", "a", "m '\" 日本\0"].map(queued);
        assert_eq!(store.list_queued(owner.no).await.unwrap(), expected);
    });
    let mut owner = Owner::acquire(harness.store(), owner.record(harness.store()).await).await;
    let append = owner.events(1);
    let append = Append {
        enqueue: vec![queued("last")],
        dequeue: vec!["z".to_owned(), "nobody".to_owned()],
        ..append
    };
    harness.store().append(append).await.unwrap();
    assert_durable!(harness, |store| {
        let expected = ["a", "m '\" 日本\0", "last"].map(queued);
        assert_eq!(store.list_queued(owner.no).await.unwrap(), expected);
        assert_eq!(store.list_queued(other.no).await.unwrap(), [queued("z")]);
    });
}

pub(super) async fn the_queue_changes_with_its_append_or_not_at_all(harness: &mut Harness) {
    let store = harness.store();
    let old = Owner::new(store, "t", "s").await;
    let enqueue = ["a", "b", "c"].map(queued).into();
    store.append(Append { enqueue, ..old.nothing() }).await.unwrap();
    let owner = Owner::acquire(store, old.record(store).await).await;
    let change = |owner: &Owner| Append {
        enqueue: vec![queued("d")],
        dequeue: vec!["b".to_owned()],
        ..owner.nothing()
    };
    assert_refused!(store.append(change(&old)).await, Error::Fenced);
    let gap = Append { lines: Some(lines(owner.no, 2, 1)), ..change(&owner) };
    assert_refused!(store.append(gap).await, Error::OutOfOrder);
    assert_durable!(harness, |store| {
        assert_eq!(store.list_queued(owner.no).await.unwrap(), ["a", "b", "c"].map(queued));
    });
}

pub(super) async fn a_blob_is_stored_once_for_each_tenant(harness: &mut Harness) {
    let blob = |media_type: &str, bytes: Vec<u8>| Blob {
        media_type: media_type.to_owned(),
        bytes: Bytes::from(bytes),
    };
    let picture = blob("image/png", (0..=255).cycle().take(1 << 20).collect());
    let empty = blob("", Vec::new());
    let store = harness.store();
    store.put_blob("a", [1; 32], picture.clone()).await.unwrap();
    store.put_blob("a", [0; 32], empty.clone()).await.unwrap();
    store.put_blob("b", [1; 32], blob("text/plain", b"of b".to_vec())).await.unwrap();
    let mut again = JoinSet::new();
    for _ in 0..8 {
        let (store, picture) = (harness.share(), picture.clone());
        again.spawn(async move {
            store.put_blob("a", [1; 32], picture.clone()).await.unwrap();
            store.put_blob("c", [1; 32], picture).await.unwrap();
        });
    }
    again.join_all().await;
    assert_durable!(harness, |store| {
        for tenant in ["a", "c"] {
            let found = store.read_blob(tenant, [1; 32]).await.unwrap();
            assert!(found.as_ref() == Some(&picture), "not what was stored for {tenant}");
        }
        assert_eq!(store.read_blob("a", [0; 32]).await.unwrap().as_ref(), Some(&empty));
        let of_b = store.read_blob("b", [1; 32]).await.unwrap().unwrap();
        assert_eq!((&*of_b.media_type, &of_b.bytes[..]), ("text/plain", &b"of b"[..]));
        assert_eq!(store.read_blob("b", [0; 32]).await.unwrap(), None);
        assert_eq!(store.read_blob("a", [2; 32]).await.unwrap(), None);
    });
}

pub(super) async fn a_healthy_store_says_so(harness: &mut Harness) {
    assert_durable!(harness, |store| store.check_health().await.unwrap());
}
