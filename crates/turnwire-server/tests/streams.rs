//! Subscribers that connect at any time, are cut off anywhere and resume: what they fold is what
//! the server has.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod test_store;

use std::sync::Arc;
use std::time::Duration;
use test_store::test_store;
use tokio_util::sync::CancellationToken;
use turnwire_core::{Event, Fields, FinishedReason, Folder, Msg, Seq};
use turnwire_log::store::{MessageQuery, NewSession, SessionKey};
use turnwire_log::{Log, MemoryStore, Session};
use turnwire_server::stream::{
    EndCondition, Framing, Merge, SessionSubscriber, StartPosition, StreamContext, StreamFormat,
    resolve_token,
};
use turnwire_testkit::{Rng, check_property, stream};
use turnwire_wires::Wire;

fn shared() -> Arc<StreamContext> {
    Arc::new(StreamContext {
        feeds: turnwire_server::stream::Feeds::default(),
        backlogs: turnwire_server::stream::BacklogCache::default(),
        shutdown: CancellationToken::new(),
        force_stop: CancellationToken::new(),
        heartbeat: Duration::from_secs(15),
        outlives_store_errors: false,
    })
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

async fn publish(session: &Arc<Session>, events: Vec<Event<'static>>) {
    let touched: Vec<String> = events.iter().map(|event| event.reply_id.to_string()).collect();
    let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
    session
        .transact(&touched, |tx| {
            for mut event in events {
                tx.push(&mut event, None).unwrap();
            }
            Ok::<(), turnwire_log::Error>(())
        })
        .await
        .unwrap();
}

/// A client keeps whole frames and the last token, whatever happens to the connection.
#[derive(Default)]
struct Client {
    buffer: String,
    token: Option<String>,
    folder: Folder,
    seen: Vec<u64>,
}

impl Client {
    fn take(&mut self, text: &str) {
        self.buffer.push_str(text);
        while let Some(end) = self.buffer.find("\n\n") {
            let frame: String = self.buffer.drain(..end + 2).collect();
            let mut id = None;
            for line in frame.lines() {
                if let Some(token) = line.strip_prefix("id: ") {
                    id = Some(token.to_owned());
                } else if let Some(data) = line.strip_prefix("data: ") {
                    let event = Event::from_json(data).unwrap();
                    if let Some(seq) = event.seq {
                        let from = event.seq_from.unwrap_or(seq);
                        self.seen.extend(from.get()..=seq.get());
                    }
                    self.folder.push(&event).unwrap();
                }
            }
            self.token = id.or(self.token.take());
        }
    }

    fn last(&self) -> u64 {
        self.seen.last().copied().unwrap_or_default()
    }
}

/// Subscribes until it has everything, cut off after random numbers of bytes.
async fn watch(
    session: Arc<Session>,
    shared: Arc<StreamContext>,
    mut rng: Rng,
    last: u64,
) -> Client {
    let mut client = Client::default();
    let mut shape = StreamFormat::sse(Wire::named("turnwire").unwrap());
    if rng.bool() {
        shape.merge = Merge::Nothing;
    }
    while client.last() < last {
        let start = match &client.token {
            Some(token) => resolve_token(&session, Seq::FIRST, token).into(),
            None => StartPosition::Beginning,
        };
        let watcher = SessionSubscriber::new(
            session.clone(),
            shape,
            start,
            EndCondition::Never,
            None,
            shared.clone(),
        );
        let mut watcher = watcher.await.unwrap();
        client.buffer.clear();
        let mut patience = rng.usize(1..20_000);
        while client.last() < last {
            let bytes = watcher.next().await.unwrap().unwrap();
            let text = std::str::from_utf8(&bytes).unwrap();
            if text.len() <= patience {
                client.take(text);
                patience -= text.len();
                continue;
            }
            // Cut off in the middle of a frame.
            let cut = (0..=patience).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            client.take(&text[..cut]);
            break;
        }
    }
    client
}

#[test]
fn law_8_whoever_is_cut_and_comes_back_folds_what_the_server_has() {
    check_property("law_8_whoever_is_cut_and_comes_back_folds_what_the_server_has", 60, |rng| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (mut events, mut replies) = (Vec::new(), 0);
        for _ in 0..rng.usize(1..6) {
            let (more, messages) = stream::random_replies(rng);
            replies += messages.len();
            events.extend(more);
        }
        let log = Log::new(test_store(), "test");
        let mut writer = rng.fork();
        let watchers: Vec<Rng> = (0..20).map(|_| rng.fork()).collect();
        runtime.block_on(async {
            let (session, shared) = (session(&log).await, shared());
            let last = events.len() as u64;
            let watchers: Vec<_> = watchers
                .into_iter()
                .map(|rng| tokio::spawn(watch(session.clone(), shared.clone(), rng, last)))
                .collect();
            let mut events = events.into_iter();
            loop {
                let batch: Vec<_> = events.by_ref().take(writer.usize(1..40)).collect();
                if batch.is_empty() {
                    break;
                }
                publish(&session, batch).await;
                tokio::task::yield_now().await;
            }
            let query =
                MessageQuery { limit: usize::MAX, sub_agents: true, ..MessageQuery::default() };
            let stored = session.list_messages(&query).await.unwrap();
            let stored: Vec<Msg> = stored
                .iter()
                .map(|m| Msg::from_json(std::str::from_utf8(&m.json).unwrap()).unwrap())
                .collect();
            let open = session.snapshot().await.unwrap().open;
            assert_eq!(stored.len() + open.len(), replies);
            for watcher in watchers {
                let client = watcher.await.unwrap();
                assert_eq!(client.seen, (1..=last).collect::<Vec<_>>(), "in order, once each");
                for msg in stored.iter().chain(open.iter().map(turnwire_log::OpenReply::msg)) {
                    assert_eq!(client.folder.get(msg.id()), Some(msg));
                }
            }
        });
    });
}

#[test]
fn on_every_wire_that_resumes_by_its_token_nothing_is_lost_or_doubled() {
    check_property(
        "on_every_wire_that_resumes_by_its_token_nothing_is_lost_or_doubled",
        20,
        |rng| {
            let mut events = turnwire_testkit::random_reply(rng, "0a").events;
            events.extend(turnwire_testkit::random_reply(rng, "0b").events);
            let log = Log::new(test_store(), "test");
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (session, shared) = (session(&log).await, shared());
                publish(&session, events).await;
                let open = session.snapshot().await.unwrap().open;
                for reply in open {
                    let (msg, calls) = (reply.msg(), reply.model_calls());
                    let end =
                        turnwire_agent::close_reply(msg, calls, FinishedReason::Interrupted, None);
                    publish(&session, end).await;
                }
                for wire in Wire::all().filter(|wire| wire.can_encode()) {
                    if wire.resume != turnwire_wires::registry::ResumeMode::Tail {
                        continue;
                    }
                    let shape = StreamFormat { merge: Merge::Nothing, ..StreamFormat::sse(wire) };
                    let all = frames(&session, shape, StartPosition::Beginning, &shared).await;
                    for at in 0..all.len() {
                        let Some(token) = &all[at].0 else { continue };
                        let start = resolve_token(&session, Seq::FIRST, token).into();
                        let rest = frames(&session, shape, start, &shared).await;
                        assert_eq!(rest, all[at + 1..], "{} from {token}", wire.name);
                    }
                }
            });
        },
    );
}

type Frame = (Option<String>, String);

async fn frames(
    session: &Arc<Session>,
    shape: StreamFormat,
    start: StartPosition,
    shared: &Arc<StreamContext>,
) -> Vec<Frame> {
    assert_eq!(shape.framing, Framing::Sse);
    let watcher = SessionSubscriber::new(
        session.clone(),
        shape,
        start,
        EndCondition::Idle,
        None,
        shared.clone(),
    );
    let mut watcher = watcher.await.unwrap();
    let mut body = String::new();
    while let Some(bytes) = watcher.next().await {
        body.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
    }
    let frame = |text: &str| {
        let id = text.lines().find_map(|line| line.strip_prefix("id: ")).map(str::to_owned);
        let data = text.lines().filter(|line| !line.starts_with("id: ")).collect();
        (id, data)
    };
    body.split_terminator("\n\n").map(frame).collect()
}

/// A session, and a subscriber of its next events.
async fn live(shared: &Arc<StreamContext>) -> (Arc<Session>, SessionSubscriber) {
    let log = Log::new(Arc::new(MemoryStore::default()), "test");
    let session = session(&log).await;
    let shape = StreamFormat::sse(Wire::named("turnwire").unwrap());
    let watcher = SessionSubscriber::new(
        session.clone(),
        shape,
        StartPosition::Now,
        EndCondition::Never,
        None,
        shared.clone(),
    );
    (session, watcher.await.unwrap())
}

async fn next(watcher: &mut SessionSubscriber) -> Option<String> {
    let bytes = watcher.next().await?.unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_stream_says_that_it_is_there_when_it_has_been_quiet_for_so_long_and_not_before() {
    let shared = shared();
    let (session, mut watcher) = live(&shared).await;
    let begin = tokio::time::Instant::now();
    let writer = tokio::spawn(async move {
        for name in ["a", "b"] {
            tokio::time::sleep(Duration::from_secs(10)).await;
            publish(&session, vec![Event::new(name, turnwire_core::event::ReplyStart::default())])
                .await;
        }
        session
    });
    let mut received = Vec::new();
    while received.len() < 4 {
        let text = next(&mut watcher).await.unwrap();
        let what = if text.starts_with(':') { "quiet" } else { "event" };
        received.push((begin.elapsed().as_secs(), what));
    }
    // 15 s after the last event, and every 15 s from there.
    assert_eq!(received, [(10, "event"), (20, "event"), (35, "quiet"), (50, "quiet")]);
    writer.await.unwrap();
}

#[tokio::test]
async fn a_server_that_stops_ends_its_streams_whether_events_come_or_not() {
    let shared = shared();
    let (_quiet_session, mut quiet) = live(&shared).await;
    let (session, mut busy) = live(&shared).await;
    publish(&session, vec![Event::new("r", turnwire_core::event::ReplyStart::default())]).await;
    assert!(next(&mut busy).await.unwrap().contains("REPLY_START"));
    assert_eq!(shared.feeds.count(), 1);
    let both = async { tokio::join!(next(&mut quiet), next(&mut busy)) };
    let stop = async {
        tokio::task::yield_now().await;
        shared.shutdown.cancel();
    };
    let (both, ()) = tokio::join!(both, stop);
    assert_eq!(both, (None, None));
}
