//! Resolves `item_reference` items: a client sends the id of an earlier item of ours instead of the item. Called before
//! the session of a request is searched, so that a conversation is recognised as if its content had been sent.
//!
//! The id says which session has the item. A client may refer to items of its own conversations (same tenant, same agent,
//! same holder of the credentials), and of the session that its request names.

use super::delete::is_deleted;
use super::request::invalid_request;
use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult};
use crate::stream::parse_message;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use turnwire_core::{ContentBlock, Json, Msg, Role};
use turnwire_log::Session;
use turnwire_log::client_history::HistoryDigest;
use turnwire_log::store::MessageQuery;
use turnwire_wires::openai_responses::{ItemId, find_item};

/// How many references one request may have.
const MAX_REFERENCES: usize = 4096;
/// How many sessions the items of one request may belong to.
const MAX_SESSIONS: usize = 64;
/// How many messages back the messages of a reply's sub-agents are searched.
const LOOK_BACK: usize = 32;

/// An item of the input.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most items are messages")]
pub(super) enum InputItem {
    /// Its content.
    Message(Msg),
    /// The id of an earlier item.
    Reference(String),
}

/// Replaces the references of an input by the items.
pub(super) async fn resolve_references(
    app: &App,
    caller: &Caller,
    agent: &str,
    named: Option<&Arc<Session>>,
    input: Vec<InputItem>,
) -> ApiResult<Vec<Msg>> {
    let ids: Vec<&str> = input.iter().filter_map(InputItem::reference).collect();
    if ids.len() > MAX_REFERENCES {
        return Err(invalid_request(format!(
            "`input` has {} references; at most {MAX_REFERENCES} are allowed",
            ids.len()
        ))
        .hint("continue with `previous_response_id`, and send only what is new"));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = ids.iter().find(|id| !seen.insert(**id)) {
        return Err(invalid_request(format!("duplicate item with id '{twice}' in `input`"))
            .hint("refer to each item once"));
    }
    let mut items = if ids.is_empty() {
        HashMap::new()
    } else {
        let sessions = find_sessions(app, caller, agent, named, &ids).await?;
        read_items(app, &sessions, &ids).await?
    };
    let mut messages = Vec::with_capacity(input.len());
    for item in input {
        messages.push(match item {
            InputItem::Message(msg) => msg,
            InputItem::Reference(id) => {
                let blocks = items.remove(&id).ok_or_else(|| unknown_item(&id))?;
                let msg = Msg::builder(Role::Assistant).content(blocks).build();
                msg.map_err(ApiError::internal)?
            }
        });
    }
    Ok(messages)
}

impl InputItem {
    /// The message, if the client sent the item itself.
    pub(super) fn message(&self) -> Option<&Msg> {
        match self {
            Self::Message(msg) => Some(msg),
            Self::Reference(_) => None,
        }
    }

    fn reference(&self) -> Option<&str> {
        match self {
            Self::Message(_) => None,
            Self::Reference(id) => Some(id),
        }
    }
}

/// The sessions that the client may refer to, and that these ids or the request name.
async fn find_sessions(
    app: &App,
    caller: &Caller,
    agent: &str,
    named: Option<&Arc<Session>>,
    ids: &[&str],
) -> ApiResult<Vec<Arc<Session>>> {
    let in_ids = ids.iter().filter_map(|id| ItemId::parse(id)).map(ItemId::session);
    let in_ids: BTreeSet<&str> = in_ids.collect();
    if in_ids.len() > MAX_SESSIONS {
        return Err(invalid_request(format!(
            "`input` refers to items of {} sessions; at most {MAX_SESSIONS} are allowed",
            in_ids.len()
        ))
        .hint("send the items themselves instead of references"));
    }
    let root = HistoryDigest::root(caller.tenant(), agent, &caller.0.holder);
    let mut sessions: Vec<_> = named.into_iter().cloned().collect();
    for id in in_ids {
        let Ok(key) = caller.session_key(id) else { continue };
        let Some(session) = app.log.open_session(&key).await? else { continue };
        let history = session.snapshot().await?.state.history;
        if history.is_some_and(|history| history.root == root) {
            sessions.push(session);
        }
    }
    sessions.retain(|session| session.agent() == agent);
    Ok(sessions)
}

/// The blocks of these items, by id. Those that do not exist are missing.
async fn read_items(
    app: &App,
    sessions: &[Arc<Session>],
    ids: &[&str],
) -> ApiResult<HashMap<String, Vec<ContentBlock>>> {
    let mut by_reply: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut of_providers = Vec::new();
    for id in ids {
        match ItemId::parse(id) {
            Some(place) => by_reply.entry((place.session(), place.message())).or_default().push(id),
            None => of_providers.push(*id),
        }
    }
    let mut items = HashMap::new();
    let mut bytes = 0;
    for ((session, reply), ids) in by_reply {
        let messages = find_reply(sessions, session, reply, &ids).await?;
        if let Some(id) = ids.first().filter(|_| messages.is_empty()) {
            return Err(unknown_item(id));
        }
        for id in ids.iter().chain(&of_providers) {
            let Some(blocks) = messages.iter().find_map(|msg| find_item(msg, id)) else { continue };
            let json = Json::from_value(&blocks).map_err(ApiError::internal)?;
            bytes += json.text().len();
            items.insert((*id).to_owned(), blocks);
        }
        let limit = app.config.limits.body.bytes();
        if bytes > limit {
            return Err(ApiError::too_large(format!(
                "the items that `input` refers to have more than {limit} bytes; nothing was stored"
            ))
            .hint("refer to fewer items, or continue with `previous_response_id`"));
        }
    }
    Ok(items)
}

/// The messages of a reply: of its session or, if that is gone, of a fork of it.
async fn find_reply(
    sessions: &[Arc<Session>],
    session: &str,
    reply: &str,
    items: &[&str],
) -> ApiResult<Vec<Msg>> {
    let (first, others): (Vec<_>, Vec<_>) = sessions.iter().partition(|one| one.id() == session);
    for session in first.into_iter().chain(others) {
        let messages = read_reply(session, reply, items).await?;
        if !messages.is_empty() {
            return Ok(messages);
        }
    }
    Ok(Vec::new())
}

/// The message of a reply. If it does not have all items, those of its sub-agents, too: the client may execute their calls.
async fn read_reply(session: &Arc<Session>, id: &str, items: &[&str]) -> ApiResult<Vec<Msg>> {
    let mut stored = session.find_message(id).await?;
    if stored.is_none() {
        let open = session.snapshot().await?.open;
        if open.iter().any(|reply| reply.msg().id() == id) {
            return Ok(open.iter().map(|reply| reply.msg().clone()).collect());
        }
        // It may have ended meanwhile.
        stored = session.find_message(id).await?;
    }
    // A message that was stored whole is not a reply.
    let Some(stored) = stored.filter(|stored| stored.event_id.is_empty()) else {
        return Ok(Vec::new());
    };
    if stored.superseded && is_deleted(session, id).await? {
        return Ok(Vec::new());
    }
    let Some(msg) = parse_message(&stored.json) else { return Ok(Vec::new()) };
    if items.iter().all(|item| find_item(&msg, item).is_some()) {
        return Ok(vec![msg]);
    }
    let query = MessageQuery {
        before: Some(stored.last),
        limit: LOOK_BACK,
        sub_agents: true,
        ..MessageQuery::default()
    };
    let beside = session.list_messages(&query).await?.into_iter();
    let beside = beside.filter(|other| other.of_sub_agent && other.first > stored.first);
    let beside = beside.filter_map(|other| parse_message(&other.json));
    Ok(std::iter::once(msg).chain(beside).collect())
}

fn unknown_item(id: &str) -> ApiError {
    ApiError::not_found(format!("Item with id '{id}' not found."))
        .kind("item_not_found")
        .hint(
            "an `item_reference` names an item of an earlier response of this model and these credentials; send the \
             item itself instead",
        )
}
