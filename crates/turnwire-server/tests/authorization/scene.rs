//! What each cell of the matrix finds: a session with something in it that not everybody may see.

use crate::harness::{ADMIN, Server, hash};
use crate::running::within;
use serde_json::{Value, json};
use std::sync::Arc;
use turnwire_core::{Event, Fields, Head};
use turnwire_log::store::{NewSession, QueuedMessage, SessionKey, SessionStatus};
use turnwire_log::{Error, Session, Transaction};

/// Words that only whoever may read the session may be shown.
pub const SECRETS: [&str; 6] =
    ["topaz-title", "onyx-metadata", "ruby-question", "jade-answer", "pearl-queued", "opal-blob"];

/// What is there before the request of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// No session.
    Nothing,
    /// A conversation with the agent `demo`.
    Idle,
    /// A conversation with an agent elsewhere.
    Elsewhere,
    /// The same, and a reply is open.
    Open,
    /// The agent `demo` waits for a person.
    Asking,
    /// The agent `demo` waits for the result of a tool that its client runs.
    Calling,
    /// No session, and a blob of its own.
    Stored,
}

/// A session, and what is waited for in it.
#[derive(Debug, Default)]
pub struct Scene {
    pub id: String,
    pub reply: String,
    pub call: String,
    /// Where the question is in the log.
    pub asked_at: Head,
    /// The SHA-256 of a blob of the tenant.
    pub blob: String,
}

impl Precondition {
    pub async fn set_up(self, server: &Server, id: &str, blob: &str) -> Scene {
        let mut scene = Scene { id: id.to_owned(), blob: blob.to_owned(), ..Scene::default() };
        match self {
            Self::Nothing => {}
            Self::Idle => drop(seed_session(server, id, "demo").await),
            Self::Elsewhere => drop(seed_session(server, id, "external").await),
            Self::Open => {
                let session = seed_session(server, id, "external").await;
                let start =
                    json!({"id": "o", "reply_id": "open", "type": "REPLY_START", "name": "x"});
                publish(&session, &[start]).await;
                "open".clone_into(&mut scene.reply);
            }
            Self::Asking => wait_for_demo(server, &mut scene, "approve").await,
            Self::Calling => wait_for_demo(server, &mut scene, "browser").await,
            Self::Stored => {
                assert_eq!(server.call("POST", "/v1/blobs", ADMIN, id).await.status, 201);
                scene.blob = hash(id);
            }
        }
        scene
    }
}

/// Makes a session with a title, metadata, a question, its answer, and a message that waits.
async fn seed_session(server: &Server, id: &str, agent: &str) -> Arc<Session> {
    let new = NewSession {
        key: SessionKey::new("acme", id),
        agent: agent.to_owned(),
        title: "topaz-title".to_owned(),
        metadata: Fields::from_iter([("about", "onyx-metadata")]),
        now_ms: 0,
    };
    let (session, _) = server.app.log.create_session(new).await.unwrap();
    let message = |id: &str, text: &str| json!({"id": id, "name": "ada", "role": "user", "content": [{"type": "text", "id": "t", "text": text}]});
    let of_reply = |id: &str, rest: Value| {
        let mut event = json!({"id": id, "reply_id": "r1"});
        event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        event
    };
    let events = [
        json!({"id": "e1", "type": "MESSAGE", "message": message("u1", "ruby-question")}),
        of_reply("e2", json!({"type": "REPLY_START", "name": agent})),
        of_reply("e3", json!({"type": "TEXT_BLOCK_START", "block_id": "b"})),
        of_reply(
            "e4",
            json!({"type": "TEXT_BLOCK_DELTA", "block_id": "b", "delta": "jade-answer"}),
        ),
        of_reply("e5", json!({"type": "TEXT_BLOCK_END", "block_id": "b"})),
        of_reply("e6", json!({"type": "REPLY_END"})),
    ];
    publish(&session, &events).await;
    if agent == "external" {
        let json = message("q1", "pearl-queued").to_string().into();
        let queued = QueuedMessage { id: "q1".to_owned(), reply_id: "rq".to_owned(), json };
        let queue = |tx: &mut Transaction<'_>| {
            tx.enqueue(queued.clone());
            Ok::<_, Error>(())
        };
        session.transact(&[], queue).await.unwrap();
    }
    session
}

async fn publish(session: &Arc<Session>, events: &[Value]) {
    let change = |tx: &mut Transaction<'_>| {
        for (at, event) in events.iter().enumerate() {
            let text = event.to_string();
            let mut event = Event::from_json(&text).unwrap();
            tx.push(&mut event, None).map_err(|why| Error::Refused { at, why })?;
        }
        Ok::<_, Error>(())
    };
    session.transact(&[], change).await.unwrap();
}

/// Has the demo agent ask for something, and waits until it does.
async fn wait_for_demo(server: &Server, scene: &mut Scene, word: &str) {
    let session = seed_session(server, &scene.id, "demo").await;
    let path = format!("/v1/sessions/{}/messages", scene.id);
    let body = json!({"content": word}).to_string();
    assert_eq!(server.call("POST", &path, ADMIN, &body).await.status, 202);
    let mut head = session.watch_head();
    let waits =
        within(head.wait_for(|head| head.status == SessionStatus::Waiting)).await.unwrap().head;
    let pending = session.snapshot().await.unwrap().pending_calls().remove(0);
    let call = pending.confirm.iter().chain(&pending.external).next().unwrap();
    (scene.reply, scene.call, scene.asked_at) = (pending.reply_id, call.id.clone(), waits);
}
