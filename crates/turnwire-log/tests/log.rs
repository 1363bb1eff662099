//! Sessions over an engine, as a producer, a subscriber and a restart see them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use turnwire_core::{Event, Fields, Seq};
use turnwire_log::store::{NewSession, SessionKey, SessionStatus};
use turnwire_log::{Error, Log, MemoryStore, PushOutcome, Session};

fn log() -> Log {
    Log::new(Arc::new(MemoryStore::default()), "test")
}

async fn session(log: &Log) -> Arc<Session> {
    let new = NewSession {
        key: SessionKey::new("t", "s"),
        agent: "external".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    };
    log.create_session(new).await.unwrap().0
}

fn line(id: &str, reply: &str, rest: &str) -> String {
    format!(r#"{{"id":"{id}","reply_id":"{reply}",{rest}}}"#)
}

fn hello_reply(reply: &str) -> Vec<String> {
    let start = r#""type":"REPLY_START","name":"friday""#;
    let text = r#""type":"TEXT_BLOCK_START","block_id":"b""#;
    let delta = r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"Hello""#;
    let end = r#""type":"TEXT_BLOCK_END","block_id":"b""#;
    let parts = [start, text, delta, end, r#""type":"REPLY_END""#];
    let parts = parts.iter().enumerate();
    parts.map(|(n, rest)| line(&format!("{reply}-{n}"), reply, rest)).collect()
}

async fn publish(session: &Arc<Session>, lines: &[String]) -> Result<(u32, u32), Error> {
    let events: Vec<Event> = lines.iter().map(|line| Event::from_json(line).unwrap()).collect();
    let touched: Vec<String> = events.iter().map(|event| event.reply_id.to_string()).collect();
    let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
    let (repeated, receipt) = session
        .transact(&touched, |tx| {
            let mut repeated = 0;
            for (at, (mut event, line)) in events.into_iter().zip(lines).enumerate() {
                match tx.push(&mut event, Some(line)) {
                    Ok(PushOutcome::Stored(_)) => {}
                    Ok(PushOutcome::Repeated) => repeated += 1,
                    Err(why) => return Err(Error::Refused { at, why }),
                }
            }
            Ok(repeated)
        })
        .await?;
    Ok((receipt.stored, repeated))
}

async fn text(session: &Session) -> String {
    let rows = session.read_events(Seq::FIRST, usize::MAX).await.unwrap();
    rows.iter().map(|rows| String::from_utf8(rows.bytes.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn a_reply_becomes_one_message_and_its_bytes_stay_as_they_came() {
    let log = log();
    let session = session(&log).await;
    let lines = hello_reply("r");
    assert_eq!(publish(&session, &lines[..3]).await.unwrap(), (3, 0));
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.head.get(), snapshot.state.status), (3, SessionStatus::Running));
    assert_eq!(snapshot.open[0].msg().text("").as_deref(), Some("Hello"));
    publish(&session, &lines[3..]).await.unwrap();
    assert_eq!(session.head_state().status, SessionStatus::Idle);
    let stored = session.find_message("r").await.unwrap().unwrap();
    assert_eq!((stored.first, stored.last.get(), &*stored.text), (Seq::FIRST, 5, "Hello"));
    assert_eq!(text(&session).await, lines.join("\n") + "\n");
}

#[tokio::test]
async fn a_batch_that_does_not_fit_leaves_nothing_behind() {
    let log = log();
    let session = session(&log).await;
    let lines = hello_reply("r");
    publish(&session, &lines[..2]).await.unwrap();
    let bad = line("x", "r", r#""type":"TEXT_BLOCK_DELTA","block_id":"?","delta":"no""#);
    let refused = publish(&session, &[lines[2].clone(), bad]).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { at: 1, .. }), "{refused}");
    assert_eq!(session.head_state().head.get(), 2);
    // An event of a refused batch is not a repeat.
    assert_eq!(publish(&session, &lines[2..]).await.unwrap(), (3, 0));
    assert_eq!(session.find_message("r").await.unwrap().unwrap().text, "Hello");
}

#[tokio::test]
async fn a_retry_is_known_before_and_after_the_end_and_after_a_restart() {
    let log = log();
    let session = session(&log).await;
    let lines = hello_reply("r");
    publish(&session, &lines[..3]).await.unwrap();
    assert_eq!(publish(&session, &lines[1..4]).await.unwrap(), (1, 2));
    publish(&session, &lines).await.unwrap();
    assert_eq!(publish(&session, &lines).await.unwrap(), (0, 5));
    // Long ago, so that it must be looked up.
    for n in 0..300 {
        publish(&session, &hello_reply(&format!("r{n}"))).await.unwrap();
    }
    assert_eq!(publish(&session, &lines).await.unwrap(), (0, 5));
    let again = Log::new(log.store().clone(), "another");
    let session = again.open_session(&SessionKey::new("t", "s")).await.unwrap().unwrap();
    assert_eq!(publish(&session, &lines).await.unwrap(), (0, 5));
    let late = line("late", "r", r#""type":"TEXT_BLOCK_START","block_id":"c""#);
    assert!(matches!(publish(&session, &[late]).await, Err(Error::Refused { at: 0, .. })));
}

#[tokio::test]
async fn an_owner_that_was_replaced_writes_nothing() {
    let log = log();
    let old = session(&log).await;
    publish(&old, &hello_reply("a")).await.unwrap();
    let other = Log::new(log.store().clone(), "other");
    let new = other.open_session(&SessionKey::new("t", "s")).await.unwrap().unwrap();
    publish(&new, &hello_reply("b")).await.unwrap();
    assert!(matches!(publish(&old, &hello_reply("c")).await, Err(Error::Fenced)));
    assert_eq!(new.head_state().head.get(), 10);
}

#[tokio::test]
async fn an_open_reply_goes_on_after_a_restart() {
    let log = log();
    let first = session(&log).await;
    let lines = hello_reply("r");
    publish(&first, &lines[..3]).await.unwrap();
    let log = Log::new(log.store().clone(), "another");
    let session = log.open_session(&SessionKey::new("t", "s")).await.unwrap().unwrap();
    assert_eq!(session.snapshot().await.unwrap().open[0].cursor().seq(), Seq::new(3));
    assert_eq!(publish(&session, &lines).await.unwrap(), (2, 3));
    let at = session.message_at("r", Seq::new(2).unwrap()).await.unwrap().unwrap();
    assert_eq!(at.text("").as_deref(), Some(""));
}

#[tokio::test]
async fn what_waits_for_a_person_is_state_of_the_log() {
    let log = log();
    let first = session(&log).await;
    let ask = r#""type":"REQUIRE_USER_CONFIRM","created_at":"2026-01-01T00:00:00.000Z","tool_calls":[{"type":"tool_call","id":"c","name":"trade","input":"{}"}]"#;
    let lines = [
        line("1", "r", r#""type":"REPLY_START","name":"friday""#),
        line("2", "r", r#""type":"TOOL_CALL_START","tool_call_id":"c","tool_call_name":"trade""#),
        line("3", "r", r#""type":"TOOL_CALL_END","tool_call_id":"c""#),
        line("4", "r", ask),
    ];
    publish(&first, &lines).await.unwrap();
    let log = Log::new(log.store().clone(), "another");
    let session = log.open_session(&SessionKey::new("t", "s")).await.unwrap().unwrap();
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.state.status, SessionStatus::Waiting);
    let pending = snapshot.pending_calls();
    assert_eq!(
        (pending[0].confirm[0].name.as_str(), &*pending[0].since),
        ("trade", "2026-01-01T00:00:00.000Z")
    );
    let answer = r#""type":"USER_CONFIRM_RESULT","confirm_results":[{"confirmed":true,"tool_call":{"type":"tool_call","id":"c","name":"trade","input":"{}"}}]"#;
    publish(&session, &[line("5", "r", answer)]).await.unwrap();
    assert_eq!(session.head_state().status, SessionStatus::Running);
}

#[tokio::test]
async fn a_deleted_session_takes_nothing_and_another_of_its_name_has_another_epoch() {
    let log = log();
    let old = session(&log).await;
    publish(&old, &hello_reply("r")).await.unwrap();
    let mut watch = old.watch_head();
    assert!(log.delete_session(old.key()).await.unwrap());
    watch.changed().await.unwrap();
    assert!(watch.borrow().is_deleted);
    assert!(matches!(publish(&old, &hello_reply("x")).await, Err(Error::NoSession)));
    let new = session(&log).await;
    assert_ne!(new.epoch(), old.epoch());
    assert_eq!(new.head_state().head.get(), 0);
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_leaves_the_append_to_land() {
    let log = log();
    let session = session(&log).await;
    for n in 0..100 {
        let (publisher, lines) = (session.clone(), hello_reply(&format!("r{n}")));
        let task = tokio::spawn(async move { publish(&publisher, &lines).await });
        tokio::task::yield_now().await;
        task.abort();
        let _ = task.await;
        // Whatever happened to it, the next one is accepted.
        publish(&session, &hello_reply(&format!("s{n}"))).await.unwrap();
    }
    assert_eq!(session.head_state().head.get() % 5, 0);
}

#[test]
fn fields_of_a_protocol_and_caching_marks_do_not_change_a_digest() {
    use turnwire_core::{ContentBlock, Json, Msg, Role};
    use turnwire_log::client_history::{HistoryDigest, history_steps};
    let read = |blocks: &str| -> Vec<ContentBlock> {
        Json::parse(blocks).and_then(|blocks| blocks.parse_as()).unwrap_or_default()
    };
    let digest = |user: &str, answer: &str| {
        let messages = [
            (Role::User, user),
            (Role::Assistant, answer),
            (Role::User, r#"[{"type":"text","text":"?"}]"#),
        ];
        let messages = messages.map(|(role, blocks)| {
            Msg::builder(role).content(read(blocks)).metadata("native", user).build()
        });
        let messages: Vec<Msg> = messages.into_iter().flatten().collect();
        assert_eq!(messages.len(), 3);
        let root = HistoryDigest::root("t", "a", "h");
        history_steps(&messages).iter().fold(root, HistoryDigest::with_step)
    };
    let marked = r#"[{"type":"text","text":"Hi!","native":{"anthropic":{"cache_control":{}}}},
        {"type":"data","source":{"type":"url","url":"u"},"native":{"openai-chat":{"detail":"low"}}}]"#;
    let plain =
        r#"[{"type":"text","text":"Hi!"},{"type":"data","source":{"type":"url","url":"u"}}]"#;
    let refused = r#"[{"type":"thinking","thinking":"x","signature":"s"},
        {"type":"text","text":"No.","part_type":"refusal"}]"#;
    let refusal = r#"[{"type":"text","text":"No."}]"#;
    assert_eq!(digest(marked, refused), digest(plain, refusal));
    assert_ne!(digest(plain, refusal), digest(refusal, refusal));
}
