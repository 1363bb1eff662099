//! Export of sessions from one store, and import into another.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Cursor;
use std::sync::Arc;
use turnwire_core::{Event, Fields, Json, Seq};
use turnwire_log::store::{
    BLOB_PIECE_BYTES, Blob, MessageQuery, NewSession, QueuedMessage, Retention, SessionKey,
    SessionNumber, SessionRecord, Store, StoredMessage, to_hex,
};
use turnwire_log::transfer::{
    ExistingSession, ExportedBlobs, ImportOptions, ImportProblem, ImportReport, export, import,
};
use turnwire_log::{Log, MemoryStore, Session};
use turnwire_testkit::{check_property, stream};

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

async fn session(log: &Log, tenant: &str, id: &str) -> Arc<Session> {
    let new = NewSession {
        key: SessionKey::new(tenant, id),
        agent: "external".to_owned(),
        title: "A title".to_owned(),
        metadata: [("n", Json::parse("1.10").unwrap())].into_iter().collect::<Fields>(),
        now_ms: 1_767_225_600_123,
    };
    log.create_session(new).await.unwrap().0
}

async fn publish(session: &Arc<Session>, lines: &[&str]) {
    let change = |tx: &mut turnwire_log::Transaction<'_>| {
        for line in lines {
            tx.push(&mut Event::from_json(line).unwrap(), Some(line)).unwrap();
        }
        Ok::<_, turnwire_log::Error>(())
    };
    session.transact(&[], change).await.unwrap();
}

async fn all(store: &dyn Store) -> Vec<SessionRecord> {
    store.list_all_sessions(SessionNumber(0), usize::MAX).await.unwrap()
}

async fn export_all(store: &dyn Store) -> String {
    let mut bytes = Vec::new();
    let mut blobs = ExportedBlobs::default();
    for record in all(store).await {
        let report = export(store, &record, &mut blobs, &mut bytes).await.unwrap();
        assert_eq!(report.left_out, [""; 0]);
    }
    String::from_utf8(bytes).unwrap()
}

async fn import_text(
    store: &Arc<dyn Store>,
    text: &str,
    existing: ExistingSession,
) -> ImportReport {
    let importing = ImportOptions { existing, tenant: None };
    import(store.clone(), Cursor::new(text.to_owned()), importing, |_| ()).await
}

async fn text(store: &dyn Store, record: &SessionRecord) -> String {
    let rows = store.read_events(record.number, record.first, usize::MAX).await.unwrap();
    rows.iter().map(|rows| String::from_utf8(rows.bytes.to_vec()).unwrap()).collect()
}

async fn messages(store: &dyn Store, record: &SessionRecord) -> Vec<StoredMessage> {
    let query = MessageQuery { limit: usize::MAX, sub_agents: true, ..MessageQuery::default() };
    store.list_messages(record.number, &query).await.unwrap()
}

/// Unusual JSON, which must come back byte for byte.
const UNUSUAL_EVENTS: [&str; 6] = [
    r#"{"reply_id":"r", "type":"REPLY_START","id":"1", "name":"friday" ,"mood":1.0}"#,
    r#"{"id":"2","reply_id":"r","type":"TEXT_BLOCK_START","block_id":"b"}"#,
    r#"{"id":"3","reply_id":"r","type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"ä\u00e4"}"#,
    r#"{"id":"4","reply_id":"r","type":"TEXT_BLOCK_END","block_id":"b"}"#,
    r#"{"id":"5","reply_id":"r","type":"REPLY_END"}"#,
    r#"{"id":"6","type":"MESSAGE","message":{"id":"u","name":"alice","role":"user","content":"hi"}}"#,
];

#[tokio::test]
async fn a_session_comes_back_byte_for_byte_with_another_epoch() {
    let from = store();
    let log = Log::new(from.clone(), "test");
    publish(&session(&log, "t", "s").await, &UNUSUAL_EVENTS).await;
    session(&log, "other", "empty").await;
    let lines = export_all(&*from).await;
    let header = lines.lines().next().unwrap();
    assert!(
        header.starts_with(r#"{"turnwire":"session","version":1,"tenant":"t","id":"s","#),
        "{header}"
    );
    assert!(lines.lines().nth(1).unwrap().ends_with(r#","mood":1.0,"seq":1}"#), "{lines}");

    let to = store();
    let imported = import_text(&to, &lines, ExistingSession::Refuse).await;
    assert_eq!((imported.sessions, imported.events, imported.problem_count), (2, 6, 0));
    for old in all(&*from).await {
        let new = to.find_session(&old.key).await.unwrap().unwrap();
        assert_ne!(new.epoch, old.epoch);
        assert_eq!(text(&*to, &new).await, text(&*from, &old).await);
        assert_eq!(messages(&*to, &new).await, messages(&*from, &old).await);
        let kept = |record: &SessionRecord| {
            let SessionRecord { agent, title, metadata, created_ms, head, state, .. } =
                record.clone();
            (agent, title, metadata, created_ms, head, state)
        };
        assert_eq!(kept(&new), kept(&old));
    }
}

#[tokio::test]
async fn messages_whose_events_are_gone_come_along() {
    let from = store();
    let log = Log::new(from.clone(), "test");
    let session = session(&log, "t", "s").await;
    publish(&session, &UNUSUAL_EVENTS).await;
    let sub = r#"{"id":"7","type":"MESSAGE","agent_path":"main/sub","message":{"id":"m","name":"sub","role":"assistant","content":"x"}}"#;
    publish(&session, &[sub, r#"{"id":"8","type":"SUPERSEDE","message_ids":["r"]}"#]).await;
    let retention = Retention { before_ms: Some(i64::MAX), ..Retention::default() };
    log.apply_retention(retention).await.unwrap();
    let later = r#"{"id":"9","type":"MESSAGE","message":{"id":"v","name":"alice","role":"user","content":"again"}}"#;
    publish(&session, &[later]).await;

    let lines = export_all(&*from).await;
    assert_eq!(lines.lines().count(), 5, "{lines}");
    let to = store();
    assert_eq!(import_text(&to, &lines, ExistingSession::Refuse).await.problems, []);
    let (old, new) = (&all(&*from).await[0], &all(&*to).await[0]);
    let without_places = |messages: Vec<StoredMessage>| -> Vec<StoredMessage> {
        let plain = |message: StoredMessage| StoredMessage {
            first: Seq::FIRST,
            last: Seq::FIRST,
            // A reply in one event is stored with the id of that event.
            event_id: String::new(),
            ..message
        };
        messages.into_iter().map(plain).collect()
    };
    let expected = without_places(messages(&*from, old).await);
    assert_eq!(without_places(messages(&*to, new).await), expected);
    // Three messages, the event that superseded one of them, and the event that was kept.
    assert_eq!((new.first, new.head.get()), (Seq::FIRST, 5));
}

#[tokio::test]
async fn what_is_there_already_is_refused_or_skipped_or_replaced() {
    let from = store();
    let log = Log::new(from.clone(), "test");
    publish(&session(&log, "t", "s").await, &UNUSUAL_EVENTS).await;
    let lines = export_all(&*from).await;
    let to = store();
    import_text(&to, &lines, ExistingSession::Refuse).await;
    let first = all(&*to).await;

    let again = import_text(&to, &lines, ExistingSession::Refuse).await;
    let why = "a session with this id already exists".to_owned();
    let problem = ImportProblem { line: 1, session: Some("s".to_owned()), why };
    assert_eq!((again.sessions, again.problems), (0, vec![problem]));
    let again = import_text(&to, &lines, ExistingSession::Skip).await;
    assert_eq!((again.sessions, again.skipped, again.problem_count), (0, 1, 0));
    assert_eq!(all(&*to).await, first);
    let again = import_text(&to, &lines, ExistingSession::Replace).await;
    assert_eq!((again.sessions, again.problem_count), (1, 0));
    let replaced = all(&*to).await;
    assert_ne!(replaced[0].epoch, first[0].epoch);
    assert_eq!(text(&*to, &replaced[0]).await, text(&*from, &all(&*from).await[0]).await);
}

#[tokio::test]
async fn a_tenant_can_be_given() {
    let from = store();
    session(&Log::new(from.clone(), "test"), "t", "s").await;
    let to = store();
    let importing = ImportOptions { tenant: Some("new".into()), ..ImportOptions::default() };
    import(to.clone(), Cursor::new(export_all(&*from).await), importing, |_| ()).await;
    assert_eq!(all(&*to).await[0].key, SessionKey::new("new", "s"));
}

#[tokio::test]
async fn a_bad_line_is_named_and_nothing_of_its_session_stays() {
    let from = store();
    let log = Log::new(from.clone(), "test");
    for id in ["a", "b", "c"] {
        publish(&session(&log, "t", id).await, &UNUSUAL_EVENTS).await;
    }
    let good = export_all(&*from).await;
    let lines: Vec<&str> = good.lines().collect();
    assert_eq!(lines.len(), 21);
    // Line 10 is the second event of `b`.
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        change(&mut lines);
        lines.join("\n")
    };
    for (text, line, word) in [
        (with(&|lines| lines[9] = "{".to_owned()), 10, "NotJson"),
        (with(&|lines| lines[9] = r#"{"x":1}"#.to_owned()), 10, "type"),
        (
            with(&|lines| lines[9] = lines[9].replace("\"seq\":2", "\"seq\":3")),
            10,
            "expected event 2",
        ),
        (with(&|lines| drop(lines.remove(9))), 10, "expected event 2"),
        (with(&|lines| lines[9] = lines[9].replace("TEXT_BLOCK_START", "TEXT_BLOCK_END")), 10, "b"),
        (
            with(&|lines| lines[7] = lines[7].replace("\"version\":1", "\"version\":2")),
            8,
            "version 2",
        ),
        (with(&|lines| lines[7] = lines[7].replace("\"b\"", "\"b/b\"")), 8, "A-Z"),
        (with(&|lines| drop(lines.remove(13))), 8, "event 6 of this session is missing"),
        (with(&|lines| lines.insert(9, String::new())).replace("\"seq\":3}", "\"seq\":4}"), 0, ""),
    ] {
        let to = store();
        let imported = import_text(&to, &text, ExistingSession::Refuse).await;
        if line == 0 {
            // All three are wrong, and empty lines count.
            let mut at: Vec<u64> = imported.problems.iter().map(|problem| problem.line).collect();
            at.sort_unstable();
            assert_eq!((at, imported.sessions), (vec![4, 12, 19], 0));
            continue;
        }
        let [problem] = &imported.problems[..] else { panic!("{:?}", imported.problems) };
        assert_eq!(problem.line, line, "{problem:?}");
        assert!(problem.why.contains(word), "{problem:?}");
        let mut left: Vec<_> = all(&*to).await.into_iter().map(|record| record.key.id).collect();
        left.sort();
        assert_eq!(left, ["a".into(), "c".into()] as [Arc<str>; 2], "{problem:?}");
        assert_eq!(imported.sessions, 2);
    }
}

#[tokio::test]
async fn what_is_no_export_is_one_problem() {
    let to = store();
    let imported = import_text(&to, "hello\nyou\n\u{0}\n", ExistingSession::Refuse).await;
    assert_eq!((imported.problem_count, imported.problems[0].line), (1, 1));
    let bytes =
        Cursor::new(b"{\"turnwire\":\"session\",\"version\":1,\"id\":\"s\"}\n{}\n\xff\n".to_vec());
    let imported = import(to.clone(), bytes, ImportOptions::default(), |_| ()).await;
    assert_eq!(imported.problems[0].line, 3, "{:?}", imported.problems);
    assert_eq!(all(&*to).await, []);
}

#[test]
fn any_log_comes_back() {
    check_property("any_log_comes_back", 60, |rng| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            let from = store();
            let log = Log::new(from.clone(), "test");
            for n in 0..rng.usize(1..20) {
                let session = session(&log, "t", &format!("s{n}")).await;
                let (events, _) = stream::random_replies(rng);
                let lines: Vec<String> = events.iter().map(Event::to_json).collect();
                publish(&session, &lines.iter().map(String::as_str).collect::<Vec<_>>()).await;
            }
            let to = store();
            let imported =
                import_text(&to, &export_all(&*from).await, ExistingSession::Refuse).await;
            assert_eq!(imported.problems, []);
            for old in all(&*from).await {
                let new = to.find_session(&old.key).await.unwrap().unwrap();
                assert_eq!(text(&*to, &new).await, text(&*from, &old).await);
                assert_eq!(messages(&*to, &new).await, messages(&*from, &old).await);
                assert_eq!(new.state, old.state);
            }
        });
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_go_into_a_file_and_come_out_the_same() {
    let from = store();
    let log = Log::new(from.clone(), "test");
    for n in 0..600 {
        publish(&session(&log, "t", &format!("s{n}")).await, &UNUSUAL_EVENTS).await;
    }
    let lines = export_all(&*from).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turnwire.db");
    let to: Arc<dyn Store> = Arc::new(
        turnwire_log::SqliteStore::open(path, turnwire_log::sqlite::Options::default()).unwrap(),
    );
    let imported = import_text(&to, &lines, ExistingSession::Refuse).await;
    assert_eq!((imported.sessions, imported.events), (600, 3600));
    // They are written concurrently, so their order differs, and their epochs are new.
    let sorted = |text: String| {
        let sessions = text.split(r#"{"turnwire""#).skip(1);
        let mut sessions: Vec<String> = sessions
            .map(|text| {
                let (head, tail) = text.split_once(r#""epoch":"#).unwrap();
                format!("{head}{}", tail.split_once(',').unwrap().1)
            })
            .collect();
        sessions.sort();
        sessions
    };
    assert_eq!(sorted(export_all(&*to).await), sorted(lines));
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    <sha2::Sha256 as sha2::Digest>::digest(bytes).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_and_the_queue_come_along() {
    let from = store();
    let log = Log::new(from.clone(), "test");
    // Several pieces, and the same blob in two sessions.
    let large: Vec<u8> =
        (0..BLOB_PIECE_BYTES * 2 + 7).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let mut hashes = Vec::new();
    for bytes in [large, b"small".to_vec(), Vec::new()] {
        let hash = sha256(&bytes);
        let blob = Blob { media_type: "image/png".to_owned(), bytes: bytes.into() };
        from.put_blob("t", hash, blob).await.unwrap();
        hashes.push(hash);
    }
    let link = |id: &str, hash: [u8; 32]| {
        let url = format!("/v1/blobs/{}", to_hex(&hash));
        format!(
            r#"{{"id":"{id}","type":"MESSAGE","message":{{"id":"{id}","name":"a","role":"user","content":"{url}"}}}}"#
        )
    };
    for id in ["a", "b"] {
        let session = session(&log, "t", id).await;
        let lines = [link("m1", hashes[0]), link("m2", hashes[2])];
        publish(&session, &lines.each_ref().map(String::as_str)).await;
    }
    let a = log.open_session(&SessionKey::new("t", "a")).await.unwrap().unwrap();
    let json = format!(
        r#"{{"id":"q","role":"user","name":"a","content":"blobs/{}"}}"#,
        to_hex(&hashes[1])
    );
    let queued = QueuedMessage { id: "q".to_owned(), reply_id: "r2".to_owned(), json: json.into() };
    let wanted = queued.clone();
    let change = |tx: &mut turnwire_log::Transaction<'_>| {
        tx.enqueue(queued);
        Ok::<_, turnwire_log::Error>(())
    };
    a.transact(&["q"], change).await.unwrap();

    let text = export_all(&*from).await;
    assert_eq!(text.matches(r#"{"turnwire":"blob""#).count(), 3, "each once");
    let to = store();
    let imported = import_text(&to, &text, ExistingSession::Refuse).await;
    assert_eq!(imported.problems, []);
    assert_eq!((imported.sessions, imported.blobs, imported.left_out), (2, 3, 0));
    for hash in &hashes {
        let blob =
            |store: Arc<dyn Store>| async move { store.read_blob("t", *hash).await.unwrap() };
        assert!(blob(to.clone()).await.is_some());
        assert_eq!(blob(to.clone()).await, blob(from.clone()).await);
    }
    let record = all(&*to).await.into_iter().find(|record| &*record.key.id == "a").unwrap();
    assert_eq!(to.list_queued(record.number).await.unwrap(), [wanted]);
    // Once more the same, except for the epochs.
    let without_epoch = |text: &str| {
        let part = |line: &str| match line.split_once("\"epoch\":\"") {
            Some((before, rest)) => format!("{before}{}", &rest[rest.find('"').unwrap()..]),
            None => line.to_owned(),
        };
        text.lines().map(part).collect::<Vec<_>>()
    };
    assert_eq!(without_epoch(&export_all(&*to).await), without_epoch(&text));

    // Another tenant, and bytes that are not those of the hash.
    let to = store();
    let importing = ImportOptions { tenant: Some("u".into()), ..ImportOptions::default() };
    let wrong = text.replace("c21hbGw=", "c21hbGx=");
    let wrong = if wrong == text { text.replace("\"c21h", "\"d21h") } else { wrong };
    let imported = import(to.clone(), Cursor::new(wrong), importing, |_| ()).await;
    let [problem] = &imported.problems[..] else { panic!("{:?}", imported.problems) };
    assert!(problem.why.contains("blob"), "{problem:?}");
    assert!(to.read_blob("u", hashes[0]).await.unwrap().is_some());
    assert!(to.read_blob("u", hashes[1]).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_missing_or_too_many_are_a_problem() {
    let hash = to_hex(&sha256(b"small"));
    let head =
        |size| format!(r#"{{"turnwire":"blob","hash":"{hash}","media_type":"x/y","size":{size}}}"#);
    let bytes = r#"{"turnwire":"bytes","data":"c21hbGw="}"#;
    for (lines, blobs, problem) in [
        (vec![head(5), bytes.to_owned()], 1, ""),
        (vec![head(6), bytes.to_owned()], 0, "missing"),
        (vec![head(4), bytes.to_owned()], 0, "expected at most"),
        (vec![head(5)], 0, "missing"),
        (vec![head(5), r#"{"turnwire":"bytes","data":"?"}"#.to_owned()], 0, "invalid bytes"),
        (vec![head(5).replace(&hash, "12")], 0, "SHA-256"),
    ] {
        let to = store();
        let imported = import_text(&to, &lines.join("\n"), ExistingSession::Refuse).await;
        assert_eq!(imported.blobs, blobs, "{lines:?}");
        match &imported.problems[..] {
            [] => assert_eq!(problem, "", "{lines:?}"),
            [found] => assert!(!problem.is_empty() && found.why.contains(problem), "{found:?}"),
            many => panic!("{many:?}"),
        }
    }
}
