//! Sessions: make, list, look at, change, delete.

use super::request;
use super::view::{self, SessionView};
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Payload, Query};
use crate::turns::EXTERNAL;
use crate::{Caller, Scope};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;
use turnwire_core::{Fields, Stamp, stamp::System};
use turnwire_log::store::{
    NewSession, SessionKey, SessionNo, SessionPatch, SessionQuery, SessionRecord, Status,
};

/// How many sessions a page has, unless the client says so; and at the most.
const PAGE: usize = 50;
const MAX_PAGE: usize = 200;
/// How many sessions are looked at for one page of somebody who reaches only some of them.
const LOOKED_AT: usize = 10 * MAX_PAGE;
/// A list shows all titles and all metadata, so neither may be endless.
const MAX_TITLE: usize = 1000;
const MAX_METADATA: usize = 64 * 1024;

/// What a new session may be given.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct New {
    id: Option<String>,
    agent: Option<String>,
    title: Option<String>,
    metadata: Option<Fields>,
}

/// `POST /v1/sessions`
pub async fn create_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    Payload(body): Payload,
) -> ApiResult<impl IntoResponse> {
    caller.need(Scope::Chat)?;
    let new: New = request::object(&body)?;
    let agent = new.agent.unwrap_or_else(|| app.config.default_agent.clone());
    let key = new_key(&caller, new.id)?;
    let (title, metadata) = (new.title.unwrap_or_default(), new.metadata.unwrap_or_default());
    check_about(Some(&title), Some(&metadata))?;
    check_agent(&app, &agent)?;
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let new = NewSession { key, agent, title, metadata, now_ms };
    let (record, made) = app.log.store().create(new).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(SessionView::of(&app, record).await?)))
}

/// The name of a session that is to be made.
pub(crate) fn new_key(caller: &Caller, id: Option<String>) -> ApiResult<SessionKey> {
    if let Some(id) = id {
        return caller.session(&id);
    }
    let id = System.id();
    if !caller.0.reaches(&id) {
        return Err(ApiError::forbidden("these credentials reach only certain sessions")
            .hint("name one of them as the `id`"));
    }
    caller.session(&id)
}

fn check_agent(app: &App, agent: &str) -> ApiResult<()> {
    if agent == EXTERNAL || app.agents.contains_key(agent) {
        return Ok(());
    }
    let mut names: Vec<&str> = app.agents.keys().map(String::as_str).collect();
    names.push(EXTERNAL);
    Err(ApiError::unprocessable(format!("there is no agent \"{agent}\""))
        .kind("no_such_agent")
        .hint(format!("there are: {}", names.join(", "))))
}

pub(super) fn check_about(title: Option<&str>, metadata: Option<&Fields>) -> ApiResult<()> {
    if title.is_some_and(|title| title.chars().count() > MAX_TITLE) {
        let message = format!("the title is longer than {MAX_TITLE} characters");
        return Err(ApiError::unprocessable(message));
    }
    let size =
        |fields: &Fields| serde_json::to_string(fields).map_or(usize::MAX, |text| text.len());
    if metadata.is_some_and(|metadata| size(metadata) > MAX_METADATA) {
        let message = format!("the metadata is larger than {MAX_METADATA} bytes");
        return Err(ApiError::unprocessable(message)
            .hint("store what is large with POST /v1/blobs, and keep its url here"));
    }
    Ok(())
}

/// Which sessions to list.
#[derive(Debug, Deserialize)]
pub struct Listed {
    q: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
    status: Option<Status>,
}

/// One page of sessions.
#[derive(Debug, Serialize)]
struct Page {
    sessions: Vec<SessionView>,
    next_cursor: Option<String>,
}

/// `GET /v1/sessions`
pub async fn list_sessions(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(listed): Query<Listed>,
) -> ApiResult<impl IntoResponse> {
    caller.need(Scope::Read)?;
    let limit = listed.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let mut query = SessionQuery {
        tenant: Arc::clone(caller.tenant()),
        search: listed.q.filter(|words| !words.trim().is_empty()),
        status: listed.status,
        after: listed.cursor.as_deref().map(read_cursor).transpose()?,
        limit: limit + 1,
    };
    let (found, next) = find(&app, &caller, &mut query, limit).await?;
    let views = found.into_iter().map(|record| SessionView::of(&app, record));
    // One that is deleted at this moment is not there.
    let views = stream::iter(views).buffered(8).filter_map(|view| async {
        match view {
            Err(error) if error.status() == StatusCode::NOT_FOUND => None,
            view => Some(view),
        }
    });
    let sessions = views.try_collect().await?;
    Ok(Json(Page { sessions, next_cursor: next.map(write_cursor) }))
}

type Cursor = (i64, SessionNo);

/// The sessions of a page, and where the next one begins. For who reaches only some of the
/// sessions a page may have fewer than it could, even none, and yet there is a next one.
async fn find(
    app: &App,
    caller: &Caller,
    query: &mut SessionQuery,
    limit: usize,
) -> ApiResult<(Vec<SessionRecord>, Option<Cursor>)> {
    let mut found: Vec<SessionRecord> = Vec::new();
    let mut looked_at = 0;
    loop {
        let page = app.log.list(query).await?;
        let is_last = page.len() < query.limit;
        for record in page {
            if found.len() == limit {
                return Ok((found, query.after));
            }
            looked_at += 1;
            query.after = Some((record.updated_ms, record.no));
            if caller.0.reaches(&record.key.id) {
                found.push(record);
            }
        }
        if is_last {
            return Ok((found, None));
        }
        if looked_at >= LOOKED_AT {
            return Ok((found, query.after));
        }
    }
}

fn write_cursor((updated_ms, no): Cursor) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{updated_ms}.{}", no.0))
}

fn read_cursor(text: &str) -> ApiResult<Cursor> {
    let read = || {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (updated_ms, no) = std::str::from_utf8(&bytes).ok()?.split_once('.')?;
        Some((updated_ms.parse().ok()?, SessionNo(no.parse().ok()?)))
    };
    read().ok_or_else(|| {
        ApiError::bad_request("this `cursor` is none of ours")
            .hint("use the `next_cursor` of the page before, as it is")
    })
}

/// `GET /v1/sessions/{s}`
pub async fn get_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<impl IntoResponse> {
    caller.need(Scope::Read)?;
    let record = view::record(&app, &caller, &id).await?;
    Ok(Json(SessionView::of(&app, record).await?))
}

/// What can be changed of a session. A `title` that is `null` takes the title away.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    #[serde(default, deserialize_with = "given")]
    title: Option<String>,
    metadata: Option<Fields>,
}

/// A title that is given; `null` is an empty one.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from).map(|title| Some(title.unwrap_or_default()))
}

/// `PATCH /v1/sessions/{s}`
pub async fn patch_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Payload(body): Payload,
) -> ApiResult<impl IntoResponse> {
    caller.need(Scope::Chat)?;
    let key = caller.session(&id)?;
    let patch: Patch = request::object(&body)?;
    let patch = SessionPatch { title: patch.title, metadata: patch.metadata };
    check_about(patch.title.as_deref(), patch.metadata.as_ref())?;
    let session = app.log.open(&key).await?.ok_or(turnwire_log::Error::NoSession)?;
    session.patch(patch).await?;
    let record = view::record(&app, &caller, &id).await?;
    Ok(Json(SessionView::of(&app, record).await?))
}

/// `DELETE /v1/sessions/{s}`
pub async fn delete_session(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<impl IntoResponse> {
    caller.need(Scope::Chat)?;
    let key = caller.session(&id)?;
    // Nothing depends on it: what comes after the deletion is refused. It spares the work.
    if let Some(session) = app.log.held(&key) {
        app.turns.let_go(&session, None);
    }
    if !app.log.delete(&key).await? {
        return Err(turnwire_log::Error::NoSession.into());
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_and_nothing_else_is_one() {
        for cursor in [(0, SessionNo(1)), (i64::MAX, SessionNo(i64::MAX)), (-5, SessionNo(-1))] {
            assert_eq!(read_cursor(&write_cursor(cursor)).unwrap(), cursor);
        }
        for wrong in ["", "x", "MS4", "ä", "MS4yLjM", "////"] {
            assert!(read_cursor(wrong).is_err(), "{wrong}");
        }
    }
}
