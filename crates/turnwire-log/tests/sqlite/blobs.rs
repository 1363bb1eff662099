//! Blobs in the SQLite engine.

use crate::harness::*;
use bytes::Bytes;
use rusqlite::Connection;
use turnwire_log::Error;
use turnwire_log::sqlite::FindingKind;
use turnwire_log::store::{BLOB_PIECE_BYTES, Blob, Retention, Store};

fn blob(byte: u8, size: usize) -> Blob {
    Blob { media_type: "image/png".to_owned(), bytes: Bytes::from(vec![byte; size]) }
}

fn all_unused() -> Retention {
    Retention { blobs_before_ms: Some(i64::MAX), ..Retention::default() }
}

#[tokio::test]
async fn pieces_of_uploads_that_did_not_end_are_removed_at_the_next_start() {
    let (_folder, path) = folder();
    let store = open(&path);
    store.put_blob("tenant", [1; 32], blob(1, 3 * BLOB_PIECE_BYTES)).await.unwrap();
    for _ in 0..3 {
        let upload = store.begin_upload().await.unwrap();
        for _ in 0..10 {
            store.add_upload_piece(upload, Bytes::from(vec![2; BLOB_PIECE_BYTES])).await.unwrap();
        }
    }
    assert_eq!(count(&path, "SELECT count(*) FROM blob_pieces"), 33);
    drop(store);
    let store = open(&path);
    wait_for_count(&path, "SELECT count(*) FROM blob_pieces", 3).await;
    wait_for_count(&path, "SELECT count(*) FROM blob_uploads", 0).await;
    assert_eq!(
        store.read_blob("tenant", [1; 32]).await.unwrap(),
        Some(blob(1, 3 * BLOB_PIECE_BYTES))
    );
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
}

#[tokio::test]
async fn pieces_of_what_is_abandoned_removed_or_there_already_do_not_stay() {
    let (_folder, path) = folder();
    let store = open(&path);
    for hash in [1, 2] {
        store.put_blob("tenant", [hash; 32], blob(hash, 12 * BLOB_PIECE_BYTES)).await.unwrap();
        store.put_blob("tenant", [hash; 32], blob(hash, 12 * BLOB_PIECE_BYTES)).await.unwrap();
    }
    let upload = store.begin_upload().await.unwrap();
    store.add_upload_piece(upload, Bytes::from_static(b"x")).await.unwrap();
    store.abandon_upload(upload);
    wait_for_count(&path, "SELECT count(*) FROM blob_pieces", 24).await;
    assert!(store.delete_blob("tenant", [1; 32]).await.unwrap());
    wait_for_count(&path, "SELECT count(*) FROM blob_pieces", 12).await;
    assert_eq!(store.apply_retention(all_unused()).await.unwrap().blobs, 1);
    wait_for_count(&path, "SELECT count(*) FROM blob_pieces", 0).await;
    wait_for_count(&path, "SELECT count(*) FROM blob_uploads", 0).await;
    assert_eq!(count(&path, "SELECT count(*) FROM blob_info"), 0);
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
}

#[tokio::test]
async fn a_damaged_piece_is_named_and_never_served() {
    let (_folder, path) = folder();
    let store = open(&path);
    store.put_blob("tenant", [3; 32], blob(3, 3 * BLOB_PIECE_BYTES)).await.unwrap();
    for (damage, good) in [
        ("UPDATE blob_pieces SET bytes = zeroblob(262144) WHERE start = 262144", Some(0)),
        ("DELETE FROM blob_pieces WHERE start = 262144", Some(0)),
        ("UPDATE blob_info SET size = size + 1", None),
        ("UPDATE blob_info SET size = size - 1", None),
        ("UPDATE blob_info SET upload = upload + 1", None),
        ("UPDATE blob_info SET upload = NULL", None),
        ("DELETE FROM blob_info", None),
    ] {
        let (_copy, copy) = folder();
        store.backup(&copy, |_| {}).await.unwrap();
        Connection::open(&copy).unwrap().execute(damage, []).unwrap();
        let store = open(&copy);
        sentence!(store.read_blob("tenant", [3; 32]).await, Damaged);
        if let Some(from) = good {
            let piece = store.read_blob_piece("tenant", [3; 32], from).await.unwrap().unwrap();
            assert_eq!(piece, vec![3; BLOB_PIECE_BYTES], "{damage}");
        }
        let sentence = sentence!(store.read_blob_piece("tenant", [3; 32], 262_144).await, Damaged);
        assert!(sentence.contains("blob 0303"), "{sentence}");
        let found = store.check(|_| {}).await.unwrap();
        assert_eq!(found.first().map(|finding| finding.kind), Some(FindingKind::Blob), "{damage}");
    }
}

/// Removes what later versions added to the tables of version 1.
fn make_first_version(path: &std::path::Path) {
    let conn = Connection::open(path).unwrap();
    let tables = ["uploads", "pieces", "info", "references", "usage"];
    for table in tables {
        conn.execute_batch(&format!("DROP TABLE blob_{table}")).unwrap();
    }
    make_second_version(&conn);
    conn.pragma_update(None, "user_version", 1).unwrap();
}

#[tokio::test]
async fn blobs_of_a_store_of_the_first_version_are_counted_and_stay() {
    let (_folder, path) = folder();
    let store = open(&path);
    let mut owner = Owner::new(&store, "old").await;
    store.append(owner.events(1)).await.unwrap();
    store.put_blob("tenant", [1; 32], blob(1, 1000)).await.unwrap();
    drop(store);
    make_first_version(&path);
    // As large as one row could be in version 1.
    let large = blob(2, 2 * BLOB_PIECE_BYTES);
    let mut crc = crc32fast::Hasher::new();
    for part in [large.media_type.as_bytes(), &large.bytes] {
        crc.update(&(part.len() as u64).to_le_bytes());
        crc.update(part);
    }
    let conn = Connection::open(&path).unwrap();
    conn.execute(
        "INSERT INTO blobs (tenant, hash, media_type, crc, bytes) VALUES ('tenant', ?1, ?2, ?3, ?4)",
        rusqlite::params![[2_u8; 32], large.media_type, crc.finalize(), &*large.bytes],
    )
    .unwrap();
    drop(conn);
    let (_copy, copy) = folder();
    fs_copy(&path, &copy);
    let store = open(&path);
    assert_eq!(store.blob_bytes_used("tenant").await.unwrap(), 1000 + 2 * BLOB_PIECE_BYTES as u64);
    assert_eq!(store.read_blob("tenant", [1; 32]).await.unwrap(), Some(blob(1, 1000)));
    assert_eq!(store.read_blob("tenant", [2; 32]).await.unwrap(), Some(large));
    // References to them are unknown.
    store.delete_session(owner.no).await.unwrap();
    assert_eq!(store.apply_retention(all_unused()).await.unwrap().blobs, 0);
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
    assert!(store.delete_blob("tenant", [2; 32]).await.unwrap());
    assert_eq!(store.blob_bytes_used("tenant").await.unwrap(), 1000);
    // A backup of version 1 can be checked and restored.
    let (_restored, restored) = folder();
    let keep = turnwire_log::sqlite::ExistingStore::Keep;
    turnwire_log::sqlite::restore(&copy, &restored, keep, |_| {}).unwrap();
    assert_eq!(open(&restored).read_blob("tenant", [1; 32]).await.unwrap(), Some(blob(1, 1000)));
}

fn fs_copy(from: &std::path::Path, to: &std::path::Path) {
    Connection::open(from).unwrap().execute("VACUUM INTO ?1", [to.to_str().unwrap()]).unwrap();
}
