//! `/v1/sessions`: create, list, get, change and delete sessions.

use super::view::{self, SessionResponse, SessionView};
use crate::Caller;
use crate::app::App;
use crate::auth::is_valid_id;
use crate::cluster::operation::{OwnerOperation, run_at_owner};
use crate::error::{ApiError, ApiResult};
use crate::extract::{JsonBody, Path, Query};
use crate::turns::EXTERNAL;
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;
use turnwire_core::{Fields, Stamp, stamp::SystemStamp};
use turnwire_log::log::now_ms;
use turnwire_log::store::{
    NewSession, SessionKey, SessionNumber, SessionPatch, SessionQuery, SessionRecord, SessionStatus,
};
use turnwire_log::{SearchQuery, Session};

/// The default and the largest page.
const DEFAULT_PAGE: usize = 50;
const MAX_PAGE: usize = 200;
/// Lists have all titles and metadata, so both are limited.
const MAX_TITLE: usize = 1000;
const MAX_METADATA: usize = 64 * 1024;

/// The body of `POST /v1/sessions`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// 1 to 128 characters of A-Z a-z 0-9 . _ : -; assigned if missing.
    id: Option<String>,
    /// The agent that replies; the default agent if missing.
    agent: Option<String>,
    title: Option<String>,
    metadata: Option<Fields>,
}

/// `POST /v1/sessions`
pub async fn create_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(new): JsonBody<CreateSession>,
) -> ApiResult<impl IntoResponse> {
    let agent = new.agent.unwrap_or_else(|| app.config.default_agent().to_owned());
    let key = new_session_key(&caller, new.id)?;
    let (title, metadata) = (new.title.unwrap_or_default(), new.metadata.unwrap_or_default());
    check_title_and_metadata(Some(&title), Some(&metadata))?;
    check_agent(&app, &agent)?;
    let new = NewSession { key, agent, title, metadata, now_ms: now_ms() };
    let (record, made) = app.log.store().create_session(new).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    // The caller knows everything about a new session, even without the scope `read`.
    if made {
        return Ok((
            status,
            Json(SessionResponse::Whole(SessionView::from_record(&app, record).await?.into())),
        ));
    }
    Ok((status, Json(SessionResponse::for_caller(&caller, &app, record).await?)))
}

/// The key of a new session.
pub(crate) fn new_session_key(caller: &Caller, id: Option<String>) -> ApiResult<SessionKey> {
    if let Some(id) = id {
        return caller.session_key(&id);
    }
    let id = SystemStamp.id();
    if !caller.0.reaches(&id) {
        return Err(ApiError::forbidden("these credentials are limited to some sessions")
            .hint("set `id` to one of them"));
    }
    caller.session_key(&id)
}

fn check_agent(app: &App, agent: &str) -> ApiResult<()> {
    if agent == EXTERNAL || app.agents.contains_key(agent) {
        return Ok(());
    }
    let mut names: Vec<&str> = app.agents.keys().map(String::as_str).collect();
    names.push(EXTERNAL);
    Err(ApiError::unprocessable(format!("no such agent: \"{agent}\""))
        .kind("no_such_agent")
        .hint(format!("the agents are {}", names.join(", "))))
}

pub(crate) fn check_title_and_metadata(
    title: Option<&str>,
    metadata: Option<&Fields>,
) -> ApiResult<()> {
    if title.is_some_and(|title| title.chars().count() > MAX_TITLE) {
        let message = format!("the title is longer than {MAX_TITLE} characters");
        return Err(ApiError::unprocessable(message));
    }
    let size =
        |fields: &Fields| serde_json::to_string(fields).map_or(usize::MAX, |text| text.len());
    if metadata.is_some_and(|metadata| size(metadata) > MAX_METADATA) {
        let message = format!("the metadata is larger than {MAX_METADATA} bytes");
        return Err(ApiError::unprocessable(message)
            .hint("upload large data with POST /v1/blobs, and store its URL here"));
    }
    Ok(())
}

/// The query of `GET /v1/sessions`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListSessionsQuery {
    /// Words that one message or the title must have.
    q: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// The size of the page: by default 50, at most 200.
    limit: Option<usize>,
    /// Only sessions with this status.
    status: Option<SessionStatus>,
}

/// One page of sessions.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionPage {
    sessions: Vec<SessionView>,
    next_cursor: Option<String>,
}

/// `GET /v1/sessions`
pub async fn list_sessions(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(listed): Query<ListSessionsQuery>,
) -> ApiResult<impl IntoResponse> {
    let limit = listed.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let after = match &listed.cursor {
        Some(cursor) => Some(PageCursor::decode(cursor)?.position(&app, &caller).await?),
        None => None,
    };
    let query = SessionQuery {
        visible: caller.0.reach(),
        search: parse_search(listed.q.as_deref().unwrap_or_default())?,
        status: listed.status,
        after,
        max_time: Some(app.config.limits.search_timeout.0),
        // One more shows whether there is another page.
        ..SessionQuery::latest(Arc::clone(caller.tenant()), limit + 1)
    };
    let _permit = match query.search {
        Some(_) => Some(app.searches.acquire(caller.tenant()).await?),
        None => None,
    };
    let mut found = app.log.list_sessions(&query).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(PageCursor::after_record);
    let views = found.into_iter().map(|record| SessionView::from_record(&app, record));
    // A session may be deleted in the meantime.
    let views = stream::iter(views).buffered(8).filter_map(|view| async {
        match view {
            Err(error) if error.status() == StatusCode::NOT_FOUND => None,
            view => Some(view),
        }
    });
    let sessions = views.try_collect().await?;
    Ok(Json(SessionPage { sessions, next_cursor: next.map(|cursor| cursor.encode()) }))
}

/// Parses a search. A text without words finds everything.
pub(super) fn parse_search(typed: &str) -> ApiResult<Option<SearchQuery>> {
    SearchQuery::new(typed).map_err(|why| {
        ApiError::bad_request(why.to_string())
            .kind("search_too_long")
            .hint("search for a few specific words")
    })
}

/// The end of a page: its last session. It holds only what the client has seen of that session, so it
/// reveals nothing about others.
#[derive(Debug, PartialEq, Eq)]
struct PageCursor {
    updated_ms: i64,
    id: String,
}

impl PageCursor {
    /// Cursors of another version are refused.
    const VERSION: &str = "1";

    fn after_record(record: &SessionRecord) -> Self {
        Self { updated_ms: record.updated_ms, id: record.key.id.to_string() }
    }

    fn encode(&self) -> String {
        let Self { updated_ms, id } = self;
        BASE64_URL_SAFE_NO_PAD.encode(format!("{}.{updated_ms}.{id}", Self::VERSION))
    }

    fn decode(text: &str) -> ApiResult<Self> {
        let read = || {
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
            let (version, rest) = std::str::from_utf8(&bytes).ok()?.split_once('.')?;
            let (updated_ms, id) = rest.split_once('.').filter(|_| version == Self::VERSION)?;
            Some(Self { updated_ms: updated_ms.parse().ok()?, id: id.to_owned() })
        };
        read().filter(|cursor| is_valid_id(&cursor.id)).ok_or_else(Self::invalid)
    }

    /// Its position among the sessions of the tenant.
    async fn position(&self, app: &App, caller: &Caller) -> ApiResult<(i64, SessionNumber)> {
        // Whether or not there is such a session.
        let key = caller.session_key(&self.id).map_err(|_| Self::invalid())?;
        let record = app.log.read_fairly(&key.tenant, app.log.store().find_session(&key)).await?;
        // If the session is gone, sessions of the same millisecond are repeated rather than skipped.
        Ok((self.updated_ms, record.map_or(SessionNumber(i64::MAX), |record| record.number)))
    }

    fn invalid() -> ApiError {
        ApiError::bad_request("invalid `cursor`").hint("use the `next_cursor` of the previous page")
    }
}

/// `GET /v1/sessions/{s}`
pub async fn get_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<impl IntoResponse> {
    let record = view::find_record(&app, &caller, &id).await?;
    Ok(Json(SessionView::from_record(&app, record).await?))
}

/// The body of `PATCH /v1/sessions/{s}`. A `title` of `null` removes the title.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchSession {
    #[serde(default, deserialize_with = "null_as_empty")]
    title: Option<String>,
    metadata: Option<Fields>,
}

/// Reads `null` as an empty title.
fn null_as_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from).map(|title| Some(title.unwrap_or_default()))
}

/// `PATCH /v1/sessions/{s}`
pub async fn patch_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    JsonBody(patch): JsonBody<PatchSession>,
) -> ApiResult<impl IntoResponse> {
    let key = caller.session_key(&id)?;
    let patch = SessionPatch { title: patch.title, metadata: patch.metadata };
    check_title_and_metadata(patch.title.as_deref(), patch.metadata.as_ref())?;
    let session = app.log.open_session(&key).await?.ok_or(turnwire_log::Error::NoSession)?;
    let SessionPatch { title, metadata } = patch;
    run_at_owner(&app, &session, PatchOperation { title, metadata }).await?;
    let record = view::find_record(&app, &caller, &id).await?;
    Ok(Json(SessionResponse::for_caller(&caller, &app, record).await?))
}

/// `DELETE /v1/sessions/{s}`
pub async fn delete_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<impl IntoResponse> {
    let key = caller.session_key(&id)?;
    let session = app.log.open_session(&key).await?.ok_or(turnwire_log::Error::NoSession)?;
    run_at_owner(&app, &session, DeleteSession {}).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes title or metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PatchOperation {
    title: Option<String>,
    metadata: Option<Fields>,
}

impl OwnerOperation for PatchOperation {
    const NAME: &'static str = "patch";
    type Output = ();

    async fn run(self, _app: &Arc<App>, session: &Arc<Session>) -> ApiResult<()> {
        let Self { title, metadata } = self;
        Ok(session.patch(SessionPatch { title, metadata }).await?)
    }

    fn is_repeatable(&self) -> bool {
        true
    }
}

/// Deletes the session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DeleteSession {}

impl OwnerOperation for DeleteSession {
    const NAME: &'static str = "delete";
    type Output = ();

    async fn run(self, app: &Arc<App>, session: &Arc<Session>) -> ApiResult<()> {
        // Only saves work: events after the deletion are refused anyway.
        app.turns.cancel_reply(session, None);
        if !app.log.delete_session(session.key()).await? {
            return Err(turnwire_log::Error::NoSession.into());
        }
        Ok(())
    }

    fn is_repeatable(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_and_nothing_else_is_one() {
        for (updated_ms, id) in [(0, "a"), (i64::MAX, "team:1.b"), (-5, "..")] {
            let cursor = PageCursor { updated_ms, id: id.to_owned() };
            assert_eq!(PageCursor::decode(&cursor.encode()).unwrap(), cursor);
        }
        let encoded = ["1.5.", "2.5.a", "1.x.a", "5.1", "1.5.a b", "1.5", "\u{0}"];
        let encoded = encoded.map(|text| BASE64_URL_SAFE_NO_PAD.encode(text));
        let wrong = ["", "x", "MS4", "ä", "MS4yLjM=", "////"];
        for wrong in encoded.iter().map(String::as_str).chain(wrong) {
            assert!(PageCursor::decode(wrong).is_err(), "{wrong}");
        }
    }
}
