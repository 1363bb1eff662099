//! Answers a message again, as it is or with new content. The messages after it leave the history;
//! the log keeps them.

use super::EXTERNAL;
use super::client_context;
use super::hints::is_hint_message;
use super::idempotency::IdempotencyKey;
use super::send::{
    Accepted, PreparedMessage, SendOutcome, busy, check_agent_runs, check_message,
    check_not_forking, has_content_to_store, start_reply,
};
use crate::app::App;
use crate::cluster::operation::take_ownership;
use crate::error::{ApiError, ApiResult};
use crate::links;
use crate::stream::parse_message;
use std::collections::HashMap;
use std::sync::Arc;
use turnwire_agent::ClientContext;
use turnwire_core::event::Supersede;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, Msg, Role};
use turnwire_log::store::{MessageQuery, StoredMessage};
use turnwire_log::{Error, Session, Transaction};

/// In the metadata of an edited message: the id of the message that it replaces. An id is used
/// once, so the new content has its own; clients that know only the old id are led to it.
const REPLACES: &str = "replaces";

/// Answers a user's message again. The message is named by its id, or by the id of a reply to it.
pub async fn retry(
    app: &Arc<App>,
    session: &Arc<Session>,
    id: &str,
    idempotency_key: Option<&IdempotencyKey>,
) -> ApiResult<SendOutcome> {
    retry_with(app, session, id, None, idempotency_key).await
}

/// Replaces a user's message, and answers the new one. Its id is kept unless it is in use.
pub async fn edit(
    app: &Arc<App>,
    session: &Arc<Session>,
    id: &str,
    msg: Msg,
    idempotency_key: Option<&IdempotencyKey>,
) -> ApiResult<SendOutcome> {
    if let Some(idempotency_key) = idempotency_key
        && let Some(answer) = idempotency_key.find_response(&app.log).await?
    {
        return Ok(SendOutcome::Replayed(answer));
    }
    let msg = check_message(msg)?;
    client_context::check_last_message(app, &session.key().tenant, std::slice::from_ref(&msg))
        .await?;
    if has_content_to_store(app, &msg) {
        take_ownership(app, session).await?;
        // Nothing is stored for a request that will be refused.
        let (earlier, _) =
            session.transact(&[], |tx| check_can_retry(app, session, tx, idempotency_key)).await?;
        if let Some(answer) = earlier {
            return Ok(SendOutcome::Replayed(answer));
        }
        plan_retry(session, id).await?;
    }
    let msg = links::fetch_links(app, &session.key().tenant, vec![msg]).await?.pop();
    retry_with(app, session, id, msg, idempotency_key).await
}

async fn retry_with(
    app: &Arc<App>,
    session: &Arc<Session>,
    id: &str,
    words: Option<Msg>,
    idempotency_key: Option<&IdempotencyKey>,
) -> ApiResult<SendOutcome> {
    if let Some(idempotency_key) = idempotency_key
        && let Some(answer) = idempotency_key.find_response(&app.log).await?
    {
        return Ok(SendOutcome::Replayed(answer));
    }
    loop {
        take_ownership(app, session).await?;
        let snapshot = session.snapshot().await?;
        let plan = match plan_retry(session, id).await {
            Ok(plan) => plan.with_replacement(app, session, words.as_ref()).await,
            Err(error) => Err(error),
        };
        let (sent, _) = session
            .transact(&[], |tx| {
                if let Some(answer) = check_can_retry(app, session, tx, idempotency_key)? {
                    return Ok::<_, ApiError>(Some(SendOutcome::Replayed(answer)));
                }
                if tx.head() != snapshot.head {
                    return Ok(None);
                }
                let plan = plan?;
                let accepted = plan.apply(app, session, tx)?;
                if let Some(idempotency_key) = idempotency_key {
                    idempotency_key.store_response(tx, &accepted)?;
                }
                Ok(Some(SendOutcome::New(accepted)))
            })
            .await?;
        // The log has changed since the plan was made: make a new one.
        if let Some(sent) = sent {
            return Ok(sent);
        }
    }
}

/// The stored response to the request; or an error if nothing can be retried now.
fn check_can_retry(
    app: &App,
    session: &Session,
    tx: &Transaction<'_>,
    idempotency_key: Option<&IdempotencyKey>,
) -> ApiResult<Option<Accepted>> {
    if let Some(idempotency_key) = idempotency_key
        && let Some(answer) = idempotency_key.find_response_in(tx)?
    {
        return Ok(Some(answer));
    }
    check_not_forking(tx)?;
    if !tx.replies().is_empty() || tx.queue().next().is_some() {
        return Err(busy(tx.status()));
    }
    if session.agent() != EXTERNAL {
        check_agent_runs(app, session)?;
    }
    Ok(None)
}

/// What to answer, and what leaves the history.
struct RetryPlan {
    message_id: String,
    superseded: Vec<String>,
    /// The client context of the message.
    client_context: ClientContext,
    /// The message that replaces it.
    replacement: Option<PreparedMessage>,
}

/// Decides what a retry of a message answers. It reads the messages page by page, and keeps only
/// ids.
async fn plan_retry(session: &Session, id: &str) -> ApiResult<RetryPlan> {
    let Some(named) = find_current(session, id).await? else {
        let error = ApiError::not_found(format!("this session has no finished message {id}"));
        return Err(error.hint("GET /v1/sessions/{s}/messages lists them"));
    };
    if named.superseded {
        return Err(ApiError::conflict(format!("{id} is no longer part of the history"))
            .kind("superseded")
            .hint("a message before it was retried; retry a message of the current history"));
    }
    let Some(question) = find_question(session, &named).await? else {
        let message = format!("no user message before {id} can be answered");
        return Err(ApiError::unprocessable(message));
    };
    let mut superseded = Vec::new();
    let mut behind = session.message_pages().after(question.first);
    loop {
        let messages = behind.next_page().await?;
        if messages.is_empty() {
            let client_context = parse_message(&question.json)
                .map(|msg| ClientContext::from_msg(&msg))
                .unwrap_or_default();
            return Ok(RetryPlan {
                message_id: question.id,
                superseded,
                client_context,
                replacement: None,
            });
        }
        let counted = messages.into_iter().filter(|message| !message.superseded);
        // Hints from others are still true for the new answer.
        let gone = counted.filter(|message| {
            !parse_message(&message.json).is_some_and(|msg| is_hint_message(&msg))
        });
        superseded.extend(gone.map(|message| message.id));
    }
}

/// The last user message up to this message.
async fn find_question(
    session: &Session,
    named: &StoredMessage,
) -> Result<Option<StoredMessage>, Error> {
    let mut before = named.first.next();
    loop {
        let mut messages = session.list_messages(&MessageQuery::page_before(before)).await?;
        let Some(first) = messages.first() else { return Ok(None) };
        before = first.first;
        let is_question =
            |message: &StoredMessage| !message.superseded && role_of(message) == Some(Role::User);
        if let Some(at) = messages.iter().rposition(is_question) {
            return Ok(Some(messages.swap_remove(at)));
        }
    }
}

/// The message with this id, or the one that replaced it.
async fn find_current(session: &Session, id: &str) -> Result<Option<StoredMessage>, Error> {
    let Some(mut named) = session.find_message(id).await? else { return Ok(None) };
    if !named.superseded {
        return Ok(Some(named));
    }
    // Which message replaced which: one pass, however often it was edited.
    let mut stands_for: HashMap<String, String> = HashMap::new();
    let mut later = session.message_pages().after(named.first);
    loop {
        let messages = later.next_page().await?;
        if messages.is_empty() {
            break;
        }
        for message in messages {
            if let Some(other) = parse_message(&message.json).and_then(|msg| replaced_id(&msg)) {
                stands_for.insert(other, message.id);
            }
        }
    }
    // Each entry is used once, so this ends.
    while let Some(next) = stands_for.remove(&named.id).filter(|_| named.superseded) {
        let Some(next) = session.find_message(&next).await? else { break };
        named = next;
    }
    Ok(Some(named))
}

/// The id of the message that this one replaces.
pub(crate) fn replaced_id(msg: &Msg) -> Option<String> {
    msg.metadata().get(REPLACES).ok().flatten()
}

fn role_of(message: &StoredMessage) -> Option<Role> {
    parse_message(&message.json).map(|msg| msg.role())
}

impl RetryPlan {
    /// The same plan with a replacement of the message.
    async fn with_replacement(
        mut self,
        app: &Arc<App>,
        session: &Arc<Session>,
        words: Option<&Msg>,
    ) -> ApiResult<Self> {
        if let Some(msg) = words {
            let is_used = session.find_message(msg.id()).await?.is_some();
            let id = if is_used { "" } else { msg.id() };
            let msg = msg.to_builder().id(id).metadata(REPLACES, self.message_id.as_str()).build();
            let msg = msg.map_err(ApiError::internal)?;
            let taken = PreparedMessage::new(app, session, msg).await?;
            self.superseded.insert(0, std::mem::replace(&mut self.message_id, taken.id.clone()));
            self.replacement = Some(taken);
        } else {
            // An earlier version may have stored a larger one.
            client_context::check_client_context(app, &session.key().tenant, &self.client_context)
                .await?;
        }
        Ok(self)
    }

    fn apply(
        self,
        app: &Arc<App>,
        session: &Arc<Session>,
        tx: &mut Transaction<'_>,
    ) -> ApiResult<Accepted> {
        let is_external = session.agent() == EXTERNAL;
        let refused = |why| ApiError::from(Error::Refused { at: 0, why });
        let from = tx.head();
        if !self.superseded.is_empty() {
            let supersede = Event::new("", Supersede { message_ids: self.superseded });
            tx.push(&mut supersede.stamped(&SystemStamp), None).map_err(refused)?;
        }
        if let Some(words) = &self.replacement {
            words.append_to(tx)?;
        }
        let mut reply_id = None;
        if !is_external {
            start_reply(tx, session, reply_id.insert(SystemStamp.id())).map_err(refused)?;
            app.turns.wake(session);
        }
        Ok(Accepted {
            message_id: self.message_id,
            reply_id,
            // A client that subscribes from here also sees what was superseded.
            last_event_id: session.resume_token(from),
            queued: false,
        })
    }
}
