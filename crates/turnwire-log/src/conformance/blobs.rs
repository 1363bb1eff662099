//! Blobs: pieces, quotas, and when they are deleted.

use super::harness::{Harness, Owner, assert_durable, assert_refused, message, new, seq};
use crate::error::Error;
use crate::store::{
    Append, BLOB_PIECE_BYTES, BlobInfo, EventLines, NewBlob, QueuedMessage, Retention,
    SessionPatch, Store, UploadNumber,
};
use bytes::Bytes;
use turnwire_core::Fields;

/// A blob of so many bytes, stored at time 10.
fn blob(tenant: &str, hash: [u8; 32], size: usize) -> NewBlob {
    NewBlob {
        tenant: tenant.into(),
        hash,
        media_type: "image/png".to_owned(),
        upload: None,
        bytes: Bytes::from(vec![hash[0]; size]),
        now_ms: 10,
        max_bytes: None,
    }
}

async fn put_blob(store: &dyn Store, tenant: &str, hash: [u8; 32], size: usize) {
    assert!(store.store_blob(blob(tenant, hash, size)).await.unwrap().1, "it was there already");
}

/// Deletes blobs that were unused before a time, and returns how many.
async fn remove_unused(store: &dyn Store, before_ms: i64) -> u64 {
    let retention = Retention { blobs_before_ms: Some(before_ms), ..Retention::default() };
    store.apply_retention(retention).await.unwrap().blobs
}

async fn is_there(store: &dyn Store, tenant: &str, hash: [u8; 32]) -> bool {
    store.find_blob_info(tenant, hash).await.unwrap().is_some()
}

fn url(hash: [u8; 32]) -> String {
    // All bytes of a hash are equal here.
    format!("http://127.0.0.1/v1/blobs/{}", format!("{:02x}", hash[0]).repeat(32))
}

/// An event that refers to a blob.
fn event(owner: &mut Owner, hash: [u8; 32]) -> Append {
    owner.last += 1;
    let bytes = Bytes::from(format!("{{\"source\":{{\"url\":\"{}\"}}}}\n", url(hash)));
    Append {
        lines: Some(EventLines { first: seq(owner.last), count: 1, bytes }),
        ..owner.nothing()
    }
}

fn metadata(hash: [u8; 32]) -> Fields {
    let mut fields = Fields::default();
    fields.insert("picture", url(hash).as_str());
    fields
}

fn queued(hash: [u8; 32]) -> QueuedMessage {
    let json = Bytes::from(format!("{{\"url\":{:?}}}", url(hash)));
    QueuedMessage { id: "q".to_owned(), reply_id: "r".to_owned(), json }
}

async fn upload(store: &dyn Store, bytes: &Bytes, pieces: &[usize]) -> UploadNumber {
    let upload = store.begin_upload().await.unwrap();
    let mut rest = bytes.clone();
    for size in pieces {
        store.add_upload_piece(upload, rest.split_to(*size)).await.unwrap();
    }
    upload
}

pub(super) async fn a_large_blob_is_stored_and_read_in_pieces(harness: &mut Harness) {
    let bytes: Bytes = (0..=250).cycle().take(2 * BLOB_PIECE_BYTES + 1000).collect();
    let store = harness.store();
    let no = upload(store, &bytes, &[BLOB_PIECE_BYTES, 1, BLOB_PIECE_BYTES - 1]).await;
    let last = bytes.slice(2 * BLOB_PIECE_BYTES..);
    let whole = NewBlob { upload: Some(no), bytes: last, ..blob("t", [1; 32], 0) };
    let info = BlobInfo { media_type: "image/png".to_owned(), size: bytes.len() as u64 };
    assert_eq!(store.store_blob(whole).await.unwrap(), (info.clone(), true));
    // One without a last part, and one that is only a last part.
    let no = upload(store, &bytes, &[BLOB_PIECE_BYTES]).await;
    let exact = NewBlob { upload: Some(no), ..blob("t", [2; 32], 0) };
    assert_eq!(store.store_blob(exact).await.unwrap().0.size, BLOB_PIECE_BYTES as u64);
    assert_durable!(harness, |store| {
        assert_eq!(store.find_blob_info("t", [1; 32]).await.unwrap().as_ref(), Some(&info));
        let found = store.read_blob("t", [1; 32]).await.unwrap().unwrap();
        assert!(found.bytes == bytes, "other bytes than were stored");
        let places = [
            0,
            1,
            BLOB_PIECE_BYTES - 1,
            BLOB_PIECE_BYTES,
            BLOB_PIECE_BYTES + 1,
            2 * BLOB_PIECE_BYTES + 999,
        ];
        for from in places {
            let piece = store.read_blob_piece("t", [1; 32], from as u64).await.unwrap().unwrap();
            assert!(!piece.is_empty() && piece.len() <= BLOB_PIECE_BYTES);
            assert!(bytes[from..].starts_with(&piece), "other bytes from {from} on");
        }
        for from in [bytes.len() as u64, u64::MAX] {
            let end = store.read_blob_piece("t", [1; 32], from).await.unwrap();
            assert_eq!(end, Some(Bytes::new()));
        }
        let exact = store.read_blob("t", [2; 32]).await.unwrap().unwrap();
        assert!(exact.bytes == bytes[..BLOB_PIECE_BYTES]);
        assert_eq!(store.read_blob_piece("u", [1; 32], 0).await.unwrap(), None);
        assert_eq!(store.find_blob_info("u", [1; 32]).await.unwrap(), None);
    });
}

pub(super) async fn an_upload_ends_once_or_leaves_nothing(harness: &mut Harness) {
    let bytes = Bytes::from(vec![7; BLOB_PIECE_BYTES]);
    let store = harness.store();
    let stored = upload(store, &bytes, &[BLOB_PIECE_BYTES]).await;
    let abandoned = upload(store, &bytes, &[BLOB_PIECE_BYTES]).await;
    let again = upload(store, &bytes, &[BLOB_PIECE_BYTES]).await;
    let of = |upload: UploadNumber| NewBlob { upload: Some(upload), ..blob("t", [1; 32], 0) };
    store.store_blob(of(stored)).await.unwrap();
    store.abandon_upload(abandoned);
    assert!(!store.store_blob(of(again)).await.unwrap().1, "stored twice");
    for ended in [stored, abandoned, again] {
        assert!(store.add_upload_piece(ended, bytes.clone()).await.is_err(), "an upload goes on");
        let other = NewBlob { upload: Some(ended), ..blob("t", [2; 32], 0) };
        assert!(store.store_blob(other).await.is_err(), "an upload is stored twice");
    }
    assert_durable!(harness, |store| {
        assert_eq!(store.blob_bytes_used("t").await.unwrap(), BLOB_PIECE_BYTES as u64);
        assert!(!is_there(store, "t", [2; 32]).await);
    });
}

pub(super) async fn a_tenant_cannot_store_more_than_its_quota(harness: &mut Harness) {
    let store = harness.store();
    let limited =
        |hash: [u8; 32], size: usize| NewBlob { max_bytes: Some(1000), ..blob("t", hash, size) };
    store.store_blob(limited([1; 32], 600)).await.unwrap();
    assert_refused!(store.store_blob(limited([2; 32], 401)).await, Error::OverQuota(1000));
    let large = upload(store, &Bytes::from(vec![3; 300]), &[300]).await;
    let in_pieces = NewBlob { upload: Some(large), ..limited([3; 32], 101) };
    assert_refused!(store.store_blob(in_pieces).await, Error::OverQuota(1000));
    // A stored blob takes no further space, and other tenants have their own quota.
    assert!(!store.store_blob(limited([1; 32], 600)).await.unwrap().1);
    put_blob(store, "u", [1; 32], 5000).await;
    store.store_blob(limited([4; 32], 400)).await.unwrap();
    assert_durable!(harness, |store| {
        assert_eq!(store.blob_bytes_used("t").await.unwrap(), 1000);
        assert_eq!(store.blob_bytes_used("u").await.unwrap(), 5000);
        assert_eq!(store.blob_bytes_used("nobody").await.unwrap(), 0);
        assert!(!is_there(store, "t", [2; 32]).await && !is_there(store, "t", [3; 32]).await);
    });
}

pub(super) async fn a_deleted_blob_is_gone_and_makes_room(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    store.append(event(&mut owner, [1; 32])).await.unwrap();
    for tenant in ["t", "u"] {
        put_blob(store, tenant, [1; 32], 3 * BLOB_PIECE_BYTES).await;
        put_blob(store, tenant, [2; 32], 10).await;
    }
    assert!(store.delete_blob("t", [1; 32]).await.unwrap());
    assert!(!store.delete_blob("t", [1; 32]).await.unwrap());
    assert!(!store.delete_blob("t", [9; 32]).await.unwrap());
    assert_eq!(store.read_blob_piece("t", [1; 32], 0).await.unwrap(), None);
    assert_durable!(harness, |store| {
        assert!(!is_there(store, "t", [1; 32]).await && is_there(store, "u", [1; 32]).await);
        assert_eq!(store.blob_bytes_used("t").await.unwrap(), 10);
    });
    // It can be stored again.
    put_blob(harness.store(), "t", [1; 32], 20).await;
    assert_eq!(harness.store().read_blob("t", [1; 32]).await.unwrap().unwrap().bytes, vec![1; 20]);
}

pub(super) async fn the_type_of_a_blob_can_be_changed(harness: &mut Harness) {
    let store = harness.store();
    put_blob(store, "t", [1; 32], 10).await;
    let large = Bytes::from(vec![2; BLOB_PIECE_BYTES]);
    let no = upload(store, &large, &[BLOB_PIECE_BYTES]).await;
    let new = NewBlob { upload: Some(no), ..blob("t", [2; 32], 10) };
    store.store_blob(new).await.unwrap();
    for hash in [[1; 32], [2; 32], [3; 32]] {
        store.set_blob_type("t", hash, "text/plain").await.unwrap();
    }
    assert_durable!(harness, |store| {
        for (hash, size) in [([1; 32], 10), ([2; 32], BLOB_PIECE_BYTES + 10)] {
            let found = store.read_blob("t", hash).await.unwrap().unwrap();
            assert_eq!((&*found.media_type, found.bytes.len()), ("text/plain", size));
        }
        assert!(!is_there(store, "t", [3; 32]).await);
    });
}

pub(super) async fn a_blob_that_nobody_uses_goes_after_a_while(harness: &mut Harness) {
    let store = harness.store();
    for number in 1..=100 {
        put_blob(store, "t", [number; 32], usize::from(number)).await;
    }
    put_blob(store, "u", [1; 32], 3 * BLOB_PIECE_BYTES).await;
    assert_eq!(remove_unused(store, 10).await, 0);
    // Storing it again, or touching it, gives it as much time again.
    store.store_blob(NewBlob { now_ms: 20, ..blob("t", [1; 32], 1) }).await.unwrap();
    let touched = store.touch_blob("t", [2; 32], 20).await.unwrap();
    assert_eq!(touched.map(|info| info.size), Some(2));
    assert_eq!(store.touch_blob("t", [200; 32], 20).await.unwrap(), None);
    harness.reopen().await;
    let store = harness.store();
    assert_eq!(remove_unused(store, 20).await, 99);
    assert_durable!(harness, |store| {
        assert_eq!(store.blob_bytes_used("t").await.unwrap(), 3);
        assert_eq!(store.blob_bytes_used("u").await.unwrap(), 0);
        assert!(is_there(store, "t", [1; 32]).await && is_there(store, "t", [2; 32]).await);
    });
    assert_eq!(remove_unused(harness.store(), 21).await, 2);
}

pub(super) async fn a_blob_stays_while_a_session_refers_to_it(harness: &mut Harness) {
    let store = harness.store();
    for number in 1..=9 {
        put_blob(store, "t", [number; 32], 1).await;
    }
    put_blob(store, "u", [1; 32], 1).await;
    let mut owner = Owner::new(store, "t", "s").await;
    store.append(event(&mut owner, [1; 32])).await.unwrap();
    let referring = message("m", 1, 1, &url([2; 32]));
    store.append(Append { messages: vec![referring], ..owner.nothing() }).await.unwrap();
    store.append(Append { enqueue: vec![queued([3; 32])], ..owner.nothing() }).await.unwrap();
    let made = crate::store::NewSession { metadata: metadata([4; 32]), ..new("t", "made", 0) };
    let made = store.create_session(made).await.unwrap().0;
    let waits = Owner::new(store, "t", "waits").await;
    store.append(Append { enqueue: vec![queued([5; 32])], ..waits.nothing() }).await.unwrap();
    let patch = SessionPatch { metadata: Some(metadata([6; 32])), ..SessionPatch::default() };
    store.patch_session(made.number, patch).await.unwrap();
    let again = message("m", 1, 1, &url([7; 32]));
    store.replace_messages(owner.no, vec![again]).await.unwrap();
    // A refused append refers to nothing.
    let old = owner.clone();
    let mut owner = Owner::acquire(store, owner.record(store).await).await;
    let mut late = old.clone();
    assert_refused!(store.append(event(&mut late, [8; 32])).await, Error::Fenced);
    let gap = Append {
        lines: Some(EventLines { first: seq(99), ..lines_with_blob([8; 32]) }),
        ..owner.nothing()
    };
    assert_refused!(store.append(gap).await, Error::OutOfOrder);
    store.append(event(&mut owner, [1; 32])).await.unwrap();
    harness.reopen().await;
    let store = harness.store();
    // The two that no session refers to, and that of the other tenant.
    assert_eq!(remove_unused(store, i64::MAX).await, 3);
    assert_durable!(harness, |store| {
        for number in 1..=7 {
            assert!(is_there(store, "t", [number; 32]).await, "blob {number} is gone");
        }
        assert_eq!(remove_unused(store, i64::MAX).await, 0);
    });
}

fn lines_with_blob(hash: [u8; 32]) -> EventLines {
    let bytes = Bytes::from(format!("{{\"url\":\"{}\"}}\n", url(hash)));
    EventLines { first: seq(1), count: 1, bytes }
}

pub(super) async fn a_blob_goes_with_the_last_session_that_refers_to_it(harness: &mut Harness) {
    let store = harness.store();
    let mut owners = Vec::new();
    for (tenant, id) in [("t", "a"), ("t", "b"), ("u", "a")] {
        owners.push(Owner::new(store, tenant, id).await);
    }
    for number in 1..=100 {
        put_blob(store, "t", [number; 32], 1).await;
        for owner in &mut owners {
            store.append(event(owner, [number; 32])).await.unwrap();
        }
    }
    store.delete_session(owners[0].no).await.unwrap();
    assert_eq!(remove_unused(store, i64::MAX).await, 0);
    // Trimmed events do not count: their messages stay, and may refer to the blob.
    let retention = Retention { before_ms: Some(i64::MAX), ..Retention::default() };
    store.apply_retention(retention).await.unwrap();
    assert_eq!(remove_unused(store, i64::MAX).await, 0);
    store.delete_session(owners[1].no).await.unwrap();
    harness.reopen().await;
    let store = harness.store();
    assert_eq!(remove_unused(store, 1000).await, 0, "they are unused since now");
    assert_eq!(remove_unused(store, i64::MAX).await, 100);
    assert_eq!(store.blob_bytes_used("t").await.unwrap(), 0);
}

pub(super) async fn a_reference_may_come_before_its_blob(harness: &mut Harness) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    store.append(event(&mut owner, [1; 32])).await.unwrap();
    put_blob(store, "t", [1; 32], 1).await;
    assert_eq!(remove_unused(store, i64::MAX).await, 0);
    store.delete_session(owner.no).await.unwrap();
    assert_eq!(remove_unused(store, i64::MAX).await, 1);
}

pub(super) async fn retention_takes_no_blob_from_whoever_begins_to_use_it(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let sweeping = harness.share();
    let sweep = tokio::spawn(async move {
        while stopped.try_recv().is_err() {
            remove_unused(&*sweeping, i64::MAX).await;
            tokio::task::yield_now().await;
        }
    });
    let mut kept = Vec::new();
    for number in 0..200 {
        let store = harness.store();
        put_blob(store, "t", [number; 32], 1).await;
        store.append(event(&mut owner, [number; 32])).await.unwrap();
        if is_there(store, "t", [number; 32]).await {
            kept.push(number);
        }
    }
    stop.send(()).unwrap();
    sweep.await.unwrap();
    assert_eq!(remove_unused(harness.store(), i64::MAX).await, 0);
    for number in kept {
        assert!(is_there(harness.store(), "t", [number; 32]).await, "blob {number} is gone");
    }
}
