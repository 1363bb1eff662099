//! The file of the SQLite engine: locked, foreign, of another version, damaged, backed up.

use crate::harness::*;
use bytes::Bytes;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use turnwire_log::sqlite::{
    ExistingStore, FindingKind, Options, StoreFinding, announced_url, restore,
};
use turnwire_log::store::{Append, Blob, MessageQuery, QueuedMessage, Retention, Store};
use turnwire_log::{Error, SqliteStore};

fn try_open(path: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(path, Options::default())
}

/// Changes one byte in the middle of the only occurrence of a text.
fn damage(path: &Path, text: &str) {
    let mut bytes = fs::read(path).unwrap();
    let found: Vec<usize> = bytes
        .windows(text.len())
        .enumerate()
        .filter(|(_, window)| *window == text.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!found.is_empty(), "{text} is not in the file");
    for at in found {
        *bytes.get_mut(at + text.len() / 2).unwrap() ^= 1;
    }
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_store() {
    let (_folder, path) = folder();
    let store = open(&path);
    let sentence = sentence!(try_open(&path), Locked);
    assert!(sentence.contains("store.db"), "{sentence}");
    assert!(sentence.contains(&format!("pid {}", std::process::id())), "{sentence}");
    drop(store);
    open(&path);
}

#[tokio::test]
async fn a_server_tells_its_url_while_it_has_the_store_open() {
    let (_folder, path) = folder();
    assert_eq!(announced_url(&path).unwrap(), None);
    let store = open(&path);
    assert_eq!(announced_url(&path).unwrap(), None);
    store.announce_url("http://127.0.0.1:4747").unwrap();
    assert_eq!(announced_url(&path).unwrap().as_deref(), Some("http://127.0.0.1:4747"));
    // The pid is still there.
    let sentence = sentence!(try_open(&path), Locked);
    assert!(sentence.contains(&format!("(pid {})", std::process::id())), "{sentence}");
    drop(store);
    // The next process is another server, or none.
    let _store = open(&path);
    assert_eq!(announced_url(&path).unwrap(), None);
}

#[cfg(unix)]
#[tokio::test]
async fn missing_folders_are_made_and_nobody_else_may_look() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/store.db");
    let store = open(&path);
    Owner::new(&store, "s").await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("a")), 0o700);
    assert_eq!(mode(&folder.path().join("a/b")), 0o700);
    for entry in fs::read_dir(folder.path().join("a/b")).unwrap() {
        let entry = entry.unwrap().path();
        assert_eq!(mode(&entry), 0o600, "{}", entry.display());
    }
}

#[test]
fn a_foreign_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "Dear diary, today I learned about databases. ".repeat(50)).unwrap();
    let other = folder.path().join("other.db");
    let conn = rusqlite::Connection::open(&other).unwrap();
    conn.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE mine (x)").unwrap();
    conn.execute_batch("PRAGMA user_version = 1; INSERT INTO mine VALUES (1)").unwrap();
    for path in [&text, &other] {
        let before = fs::read(path).unwrap();
        for opened in [try_open(path), SqliteStore::open_read_only(path)] {
            let sentence = sentence!(opened, Store);
            assert!(sentence.contains("is not a Turnwire store"), "{sentence}");
            assert!(sentence.contains(path.file_name().unwrap().to_str().unwrap()), "{sentence}");
        }
        let refused = restore(path, folder.path().join("new.db"), ExistingStore::Keep, |_| {});
        sentence!(refused, Store);
        assert_eq!(fs::read(path).unwrap(), before);
    }
    assert!(fs::metadata(folder.path().join("other.db-wal")).unwrap().len() > 0);
    let inner = folder.path().join("folder");
    fs::create_dir(&inner).unwrap();
    sentence!(try_open(&inner), Store);
    let locks = fs::read_dir(folder.path()).unwrap().filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "lock")
    });
    assert_eq!(locks.count(), 0, "something was made beside a file that is not ours");
    sentence!(SqliteStore::open_read_only(folder.path().join("nothing.db")), Store);
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_as_it_is() {
    let (_folder, path) = folder();
    drop(open(&path));
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(conn);
    let before = fs::read(&path).unwrap();
    for opened in [try_open(&path), SqliteStore::open_read_only(&path)] {
        let sentence = sentence!(opened, Version);
        assert!(sentence.contains("format 99") && sentence.contains("newer"), "{sentence}");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let (_folder, path) = folder();
    fs::write(&path, "").unwrap();
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    store.append(owner.events(1)).await.unwrap();
    assert_eq!(count(&path, "PRAGMA user_version"), 4);
}

#[tokio::test]
async fn damaged_events_are_named_and_never_served() {
    // Once in `tail`, and once in `segments`.
    for moving in [false, true] {
        let (_folder, path) = folder();
        let store = if moving { open_small(&path) } else { open(&path) };
        let mut hurt = Owner::new(&store, "hurt").await;
        let mut well = Owner::new(&store, "well").await;
        for _ in 0..40 {
            store.append(hurt.events(1)).await.unwrap();
            store.append(well.events(1)).await.unwrap();
        }
        drop(store);
        damage(&path, "event 17 of hurt");
        let store = if moving { open_small(&path) } else { open(&path) };
        let sentence = sentence!(read(&store, hurt.no, 1).await, Damaged);
        for word in ["store.db", "`hurt`", "tenant"] {
            assert!(sentence.contains(word), "{sentence}");
        }
        let first = store.read_events(hurt.no, seq(1), 1 << 20).await.unwrap();
        let good = first.last().unwrap().last().get();
        assert!(good < 17, "{good}");
        assert!(sentence.contains(&format!("event {}", good + 1)), "{sentence}");
        assert_events(&store, &well, 1, 40).await;
        let findings = store.check(|_| {}).await.unwrap();
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!(finding.kind, FindingKind::Events);
        assert_eq!(finding.seq, Some(seq(good + 1)));
        assert_eq!(&*finding.session.as_ref().unwrap().id, "hurt");
        // Writing continues, and nothing hides the damage.
        for mut owner in [Owner::new(&store, "hurt").await, Owner::new(&store, "well").await] {
            assert_eq!(owner.last, 40);
            for _ in 0..30 {
                store.append(owner.events(2)).await.unwrap();
            }
        }
        drop(store);
        let store = open_small(&path);
        sentence!(read(&store, hurt.no, 1).await, Damaged);
        assert_events(&store, &Owner::new(&store, "well").await, 1, 100).await;
        let findings = store.check(|_| {}).await.unwrap();
        assert_eq!(findings.iter().map(|one| one.kind).collect::<Vec<_>>(), [FindingKind::Events]);
    }
}

#[tokio::test]
async fn damage_in_the_last_events_does_not_make_them_disappear() {
    let (_folder, path) = folder();
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    for _ in 0..3 {
        store.append(owner.events(2)).await.unwrap();
    }
    drop(store);
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute("UPDATE tail SET last = 77, count = 70 WHERE last = 6", []).unwrap();
    drop(conn);
    let store = open(&path);
    let record = record(&store, "s").await.unwrap();
    assert!(record.head.get() > 4, "acknowledged events are silently gone");
    sentence!(store.read_events(owner.no, seq(5), 100).await, Damaged);
}

#[tokio::test]
async fn damaged_messages_blobs_and_queues_are_named() {
    let (_folder, path) = folder();
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    let queued = QueuedMessage {
        id: "q".to_owned(),
        reply_id: "r".to_owned(),
        json: Bytes::from_static(b"{\"waits\":\"for its turn\"}"),
    };
    let append = owner.reply(1, "m", "");
    let mut whole = append.messages.first().unwrap().clone();
    whole.json = Bytes::from_static(b"{\"said\":\"once upon a time\"}");
    let append = Append { messages: vec![whole], enqueue: vec![queued], ..append };
    store.append(append).await.unwrap();
    let blob = Blob { media_type: "text/plain".into(), bytes: Bytes::from_static(b"a picture") };
    store.put_blob("tenant", [3; 32], blob).await.unwrap();
    drop(store);
    for text in ["once upon a time", "for its turn", "a picture"] {
        damage(&path, text);
    }
    let store = open(&path);
    let sentence = sentence!(store.find_message(owner.no, "m").await, Damaged);
    assert!(sentence.contains("message `m`"), "{sentence}");
    let query = MessageQuery { limit: 10, ..MessageQuery::default() };
    sentence!(store.list_messages(owner.no, &query).await, Damaged);
    sentence!(store.list_queued(owner.no).await, Damaged);
    let sentence = sentence!(store.read_blob("tenant", [3; 32]).await, Damaged);
    assert!(sentence.contains("blob 0303"), "{sentence}");
    assert_events(&store, &owner, 1, 1).await;
    let found: Vec<FindingKind> =
        store.check(|_| {}).await.unwrap().iter().map(|finding| finding.kind).collect();
    assert_eq!(found, [FindingKind::Message, FindingKind::Queued, FindingKind::Blob]);
}

#[tokio::test]
async fn a_file_that_sqlite_cannot_read_is_damaged() {
    let (_folder, path) = folder();
    let store = open_small(&path);
    let mut owner = Owner::new(&store, "s").await;
    for _ in 0..200 {
        store.append(owner.events(3)).await.unwrap();
    }
    drop(store);
    // All but the first two pages, which hold the header and the names of tables.
    let whole = fs::read(&path).unwrap();
    let (head, rest) = whole.split_at(2 * 8192);
    let torn: Vec<u8> = rest.iter().map(|byte| byte ^ 0x5a).collect();
    fs::write(&path, [head, &torn].concat()).unwrap();
    let result = match try_open(&path) {
        Err(error) => Err(error),
        Ok(store) => read(&store, owner.no, 1).await,
    };
    let sentence = sentence!(result, Damaged);
    assert!(sentence.contains("store.db"), "{sentence}");
    let mut broken = head.to_vec();
    *broken.get_mut(3).unwrap() ^= 1;
    fs::write(&path, [&broken, rest].concat()).unwrap();
    sentence!(try_open(&path), Damaged);
}

#[tokio::test]
async fn a_disk_that_reads_well_again_is_used_again() {
    let (_folder, path) = folder();
    let store = open_small(&path);
    let mut owner = Owner::new(&store, "s").await;
    let mut other = Owner::new(&store, "other").await;
    let all: Vec<_> = (0..3000).map(|_| store.append(owner.events(5))).collect();
    for append in all {
        append.await.unwrap();
    }
    store.append(other.events(5)).await.unwrap();
    drop(store);
    // The page where the first rows of the first session are looked up.
    let leaf = "SELECT min(pageno) FROM dbstat WHERE name = 'segments_place' AND pagetype = 'leaf'";
    let at = u64::try_from((count(&path, leaf) - 1) * 8192).unwrap();
    let mut page = vec![0; 8192];
    let mut file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut page).unwrap();
    let mut overwrite = |bytes: &[u8]| {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
    };
    let store = open_small(&path);
    overwrite(&[0x5a; 8192]);
    sentence!(store.read_events(owner.no, seq(1), 100).await, Damaged);
    let everything = Retention { before_ms: Some(1), ..Retention::default() };
    sentence!(store.apply_retention(everything).await, Damaged);
    // A read that does not need that page succeeds.
    let mut other = Owner::new(&store, "other").await;
    store.append(other.events(5)).await.unwrap();
    assert_events(&store, &other, 1, 10).await;
    // The writer hits the damage itself, and continues too.
    store.delete_session(owner.no).await.unwrap();
    let end = Instant::now() + Duration::from_millis(50);
    while Instant::now() < end {
        store.append(other.events(1)).await.unwrap();
    }
    overwrite(&page);
    wait_for_count(&path, "SELECT count(*) FROM deleted", 0).await;
    assert_events(&store, &other, 1, other.last).await;
    assert_eq!(store.check(|_| {}).await.unwrap(), []);
}

#[tokio::test]
async fn a_check_finds_gaps_and_orphans() {
    let (_folder, path) = folder();
    let store = open_small(&path);
    let mut owner = Owner::new(&store, "s").await;
    for number in 0..20 {
        store.append(owner.reply(5, &number.to_string(), "")).await.unwrap();
    }
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let check = store.check(move |progress| seen.lock().unwrap().push(progress.stage));
    assert_eq!(check.await.unwrap(), []);
    assert!(steps.lock().unwrap().contains(&"events"));
    drop(store);
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(
        "DELETE FROM segments WHERE no = (SELECT no FROM segments ORDER BY last LIMIT 1 OFFSET 3);
         UPDATE messages SET session = 44 WHERE id = '7';
         UPDATE messages SET last = 500 WHERE id = '9';",
    )
    .unwrap();
    drop(conn);
    let store = open(&path);
    let findings: Vec<StoreFinding> = store.check(|_| {}).await.unwrap();
    let kinds: Vec<FindingKind> = findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(
        kinds,
        [FindingKind::Gap, FindingKind::Message, FindingKind::Orphan],
        "{findings:?}"
    );
    sentence!(read(&store, owner.no, 1).await, Damaged);
}

#[tokio::test]
async fn a_backup_is_made_while_events_come_and_becomes_another_store() {
    let (folder, path) = folder();
    let store = Arc::new(open_small(&path));
    let mut owners = Vec::new();
    for number in 0..5 {
        let mut owner = Owner::new(&store, &number.to_string()).await;
        for at in 0..40 {
            store.append(owner.reply(2, &at.to_string(), "words")).await.unwrap();
        }
        owners.push(owner);
    }
    let (to, writing) = (folder.path().join("copies/backup.db"), Arc::clone(&store));
    let mut busy = Owner::new(&store, "busy").await;
    let writer = tokio::spawn(async move {
        for _ in 0..300 {
            writing.append(busy.events(1)).await.unwrap();
        }
        busy
    });
    store.backup(&to, |_| {}).await.unwrap();
    let busy = writer.await.unwrap();
    let sentence = sentence!(store.backup(&to, |_| {}).await, Store);
    assert!(sentence.contains("already exists"), "{sentence}");
    let left: Vec<_> = fs::read_dir(folder.path().join("copies")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");

    let restored = folder.path().join("restored/store.db");
    restore(&to, &restored, ExistingStore::Keep, |_| {}).unwrap();
    let copy = open(&restored);
    for owner in &owners {
        assert_events(&copy, owner, 1, owner.last).await;
        let (old, new) =
            (record(&store, &owner.id).await.unwrap(), record(&copy, &owner.id).await.unwrap());
        assert_ne!(old.epoch, new.epoch);
        assert_eq!(old, turnwire_log::store::SessionRecord { epoch: old.epoch.clone(), ..new });
        let query = MessageQuery { limit: 100, ..MessageQuery::default() };
        assert_eq!(
            store.list_messages(owner.no, &query).await.unwrap(),
            copy.list_messages(owner.no, &query).await.unwrap()
        );
    }
    let seen = record(&copy, "busy").await.unwrap().head.get();
    assert_events(&copy, &busy, 1, seen).await;
    assert_eq!(copy.check(|_| {}).await.unwrap(), []);
    let mut owner = Owner::new(&copy, "0").await;
    copy.append(owner.events(1)).await.unwrap();

    sentence!(restore(&to, &restored, ExistingStore::Replace, |_| {}), Locked);
    drop(copy);
    sentence!(restore(&to, &restored, ExistingStore::Keep, |_| {}), Store);
    sentence!(restore(&restored, &restored, ExistingStore::Replace, |_| {}), Store);
    restore(&to, &restored, ExistingStore::Replace, |_| {}).unwrap();
    let copy = open(&restored);
    assert_events(&copy, owners.first().unwrap(), 1, 80).await;
}

#[tokio::test]
async fn a_damaged_backup_is_not_restored() {
    let (folder, path) = folder();
    let store = open(&path);
    let mut owner = Owner::new(&store, "s").await;
    store.append(owner.events(9)).await.unwrap();
    let backup = folder.path().join("backup.db");
    store.backup(&backup, |_| {}).await.unwrap();
    damage(&backup, "event 7 of s");
    drop(store);
    let sentence = sentence!(restore(&backup, &path, ExistingStore::Replace, |_| {}), Damaged);
    assert!(sentence.contains("backup.db"), "{sentence}");
    assert_events(&open(&path), &owner, 1, 9).await;
}
