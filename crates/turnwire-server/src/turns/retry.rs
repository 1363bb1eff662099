//! A message is answered again, as it is or in other words. What followed it leaves the history; the
//! log keeps it.

use super::EXTERNAL;
use super::hints::is_hint;
use super::offers;
use super::once::Once;
use super::send::{Accepted, Sent, Taken, agent_of, brings, busy, checked, start};
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::links;
use std::collections::HashMap;
use std::sync::Arc;
use turnwire_agent::ClientContext;
use turnwire_core::event::Supersede;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, Msg, Role};
use turnwire_log::store::{MessageQuery, StoredMessage};
use turnwire_log::{Error, Session, Transaction};

/// What the metadata of an edited message call the one that it stands for. Ids are given once, so
/// the new words have an id of their own; whoever knows only the old one is led here.
const REPLACES: &str = "replaces";

/// How many messages are read at a time, and how many bytes of them.
const PAGE: usize = 64;
const PAGE_BYTES: usize = 1 << 20;

/// Answers a user's message again. It is named by its id, or by that of the reply to it.
pub async fn retry(
    app: &Arc<App>,
    session: &Arc<Session>,
    id: &str,
    once: Option<&Once>,
) -> ApiResult<Sent> {
    again(app, session, id, None, once).await
}

/// Puts other words in the place of a user's message, and answers those. Of `msg` everything counts
/// but its id.
pub async fn edit(
    app: &Arc<App>,
    session: &Arc<Session>,
    id: &str,
    msg: Msg,
    once: Option<&Once>,
) -> ApiResult<Sent> {
    if let Some(once) = once
        && let Some(answer) = once.answered(&app.log).await?
    {
        return Ok(Sent::Before(answer));
    }
    let mut msg = checked(msg)?;
    offers::set_asked_by(std::slice::from_mut(&mut msg), None);
    offers::check_last(app, &session.key().tenant, std::slice::from_ref(&msg)).await?;
    if brings(app, &msg) {
        // Nothing is brought in for what is refused.
        let (earlier, _) = session.transact(&[], |tx| open(app, session, tx, once)).await?;
        if let Some(answer) = earlier {
            return Ok(Sent::Before(answer));
        }
        plan(session, id).await??;
    }
    let msg = links::take_in(app, &session.key().tenant, vec![msg]).await?.pop();
    again(app, session, id, msg, once).await
}

async fn again(
    app: &Arc<App>,
    session: &Arc<Session>,
    id: &str,
    words: Option<Msg>,
    once: Option<&Once>,
) -> ApiResult<Sent> {
    if let Some(once) = once
        && let Some(answer) = once.answered(&app.log).await?
    {
        return Ok(Sent::Before(answer));
    }
    loop {
        let snapshot = session.snapshot().await?;
        let plan = match plan(session, id).await? {
            Ok(plan) => plan.with(app, session, words.as_ref()).await,
            Err(error) => Err(error),
        };
        let (sent, _) = session
            .transact(&[], |tx| {
                if let Some(answer) = open(app, session, tx, once)? {
                    return Ok::<_, ApiError>(Some(Sent::Before(answer)));
                }
                if tx.last_seq() != snapshot.head {
                    return Ok(None);
                }
                let plan = plan?;
                let accepted = plan.carry_out(app, session, tx)?;
                if let Some(once) = once {
                    once.keep(tx, &accepted)?;
                }
                Ok(Some(Sent::Now(accepted)))
            })
            .await?;
        // The plan was made for a log that has gone on: another one is.
        if let Some(sent) = sent {
            return Ok(sent);
        }
    }
}

/// What the request was answered with before; or an error, where nothing is answered again now.
fn open(
    app: &App,
    session: &Session,
    tx: &Transaction<'_>,
    once: Option<&Once>,
) -> ApiResult<Option<Accepted>> {
    if let Some(once) = once
        && let Some(answer) = once.just_answered(tx)?
    {
        return Ok(Some(answer));
    }
    if !tx.replies().is_empty() || tx.queue().next().is_some() {
        return Err(busy(tx.status()));
    }
    if session.agent() != EXTERNAL {
        agent_of(app, session)?;
    }
    Ok(None)
}

/// What is to be answered, and what that puts out of the history.
struct Plan {
    message_id: String,
    superseded: Vec<String>,
    /// What came with the message.
    offer: ClientContext,
    /// What is said in place of the message.
    words: Option<Taken>,
}

/// Decides what a retry of a message answers. It goes through the messages some at a time: only ids
/// are kept.
async fn plan(session: &Session, id: &str) -> Result<Result<Plan, ApiError>, Error> {
    let Some(named) = current(session, id).await? else {
        let error =
            ApiError::not_found(format!("there is no finished message {id} in this session"));
        return Ok(Err(error.hint("GET /v1/sessions/{s}/messages lists them")));
    };
    if named.superseded {
        return Ok(Err(ApiError::conflict(format!("{id} is no longer part of the history"))
            .kind("superseded")
            .hint("something before it was answered again; retry what is there now")));
    }
    let Some(question) = question(session, &named).await? else {
        return Ok(Err(ApiError::unprocessable(format!(
            "there is no user's message before {id} to be answered"
        ))));
    };
    let mut superseded = Vec::new();
    let mut behind = session.message_pages().after(question.first);
    loop {
        let messages = behind.next_page().await?;
        if messages.is_empty() {
            let offer = read(&question).map(|msg| ClientContext::from_msg(&msg)).unwrap_or_default();
            return Ok(Ok(Plan { message_id: question.id, superseded, offer, words: None }));
        }
        let counted = messages.into_iter().filter(|message| !message.superseded);
        // What the agent was told by somebody else is true of the new answer, too.
        let gone = counted.filter(|message| !read(message).is_some_and(|msg| is_hint(&msg)));
        superseded.extend(gone.map(|message| message.id));
    }
}

/// The last message of the user that a message answers, or that message itself.
async fn question(
    session: &Session,
    named: &StoredMessage,
) -> Result<Option<StoredMessage>, Error> {
    let mut before = named.first.next();
    loop {
        let query = MessageQuery {
            before: Some(before),
            limit: PAGE,
            max_bytes: Some(PAGE_BYTES),
            ..MessageQuery::default()
        };
        let mut messages = session.list_messages(&query).await?;
        let Some(first) = messages.first() else { return Ok(None) };
        before = first.first;
        let is_question =
            |message: &StoredMessage| !message.superseded && role(message) == Some(Role::User);
        if let Some(at) = messages.iter().rposition(is_question) {
            return Ok(Some(messages.swap_remove(at)));
        }
    }
}

/// The message of an id, or the one that was put in its place.
async fn current(session: &Session, id: &str) -> Result<Option<StoredMessage>, Error> {
    let Some(mut named) = session.find_message(id).await? else { return Ok(None) };
    if !named.superseded {
        return Ok(Some(named));
    }
    // Which message stands for which other: one pass, however often it was edited.
    let mut stands_for: HashMap<String, String> = HashMap::new();
    let mut later = session.message_pages().after(named.first);
    loop {
        let messages = later.next_page().await?;
        if messages.is_empty() {
            break;
        }
        for message in messages {
            if let Some(other) = read(&message).and_then(|msg| replaced(&msg)) {
                stands_for.insert(other, message.id);
            }
        }
    }
    // Each is used once, so this comes to an end.
    while let Some(next) = stands_for.remove(&named.id).filter(|_| named.superseded) {
        let Some(next) = session.find_message(&next).await? else { break };
        named = next;
    }
    Ok(Some(named))
}

/// The message that this one was put in the place of.
pub(crate) fn replaced(msg: &Msg) -> Option<String> {
    msg.metadata().get(REPLACES).ok().flatten()
}

fn role(message: &StoredMessage) -> Option<Role> {
    read(message).map(|msg| msg.role())
}

fn read(message: &StoredMessage) -> Option<Msg> {
    Msg::from_json(std::str::from_utf8(&message.json).ok()?).ok()
}

impl Plan {
    /// The same with other words in the place of the message.
    async fn with(
        mut self,
        app: &Arc<App>,
        session: &Arc<Session>,
        words: Option<&Msg>,
    ) -> ApiResult<Self> {
        if let Some(msg) = words {
            let msg = msg.to_builder().id("").metadata(REPLACES, self.message_id.as_str()).build();
            let msg = msg.map_err(ApiError::internal)?;
            let taken = Taken::new(app, session, msg).await?;
            self.superseded.insert(0, std::mem::replace(&mut self.message_id, taken.id.clone()));
            self.words = Some(taken);
        } else {
            // It may have been stored by a version that took more.
            offers::check_offer(app, &session.key().tenant, &self.offer).await?;
        }
        Ok(self)
    }

    fn carry_out(
        self,
        app: &Arc<App>,
        session: &Arc<Session>,
        tx: &mut Transaction<'_>,
    ) -> ApiResult<Accepted> {
        let is_external = session.agent() == EXTERNAL;
        let refused = |why| ApiError::from(Error::Refused { at: 0, why });
        let from = tx.last_seq();
        if !self.superseded.is_empty() {
            let supersede = Event::new("", Supersede { message_ids: self.superseded });
            tx.push(&mut supersede.stamped(&SystemStamp), None).map_err(refused)?;
        }
        if let Some(words) = &self.words {
            words.log(tx)?;
        }
        let mut reply_id = None;
        if !is_external {
            start(tx, session, reply_id.insert(SystemStamp.id())).map_err(refused)?;
            app.turns.wake(session);
        }
        Ok(Accepted {
            message_id: self.message_id,
            reply_id,
            // Whoever watches from here also learns what was taken back.
            last_event_id: session.resume_token(from),
            queued: false,
        })
    }
}
