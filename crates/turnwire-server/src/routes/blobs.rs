//! Bytes stored once per tenant by their hash.

use crate::Caller;
use crate::app::App;
use crate::auth::sha256;
use crate::blobs::{self, media_type};
use crate::config::Sha256;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, read_body};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;
use turnwire_log::store::Blob;

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// Every answer has these. Blobs come from outside and are served from the console's origin: a
/// browser must neither guess their type nor run anything in them.
const PROTECTION: [(HeaderName, &str); 2] =
    [(X_CONTENT_TYPE_OPTIONS, "nosniff"), (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")];

#[derive(Serialize)]
struct Stored {
    id: String,
    url: String,
    size: usize,
    media_type: String,
}

/// `POST /v1/blobs`
pub async fn put_blob(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> ApiResult<impl IntoResponse> {
    let media_type = media_type::of_request(request.headers()).ok_or_else(|| {
        ApiError::bad_request("invalid content-type: expected one media type")
            .hint("for example `image/png`; without one the bytes are application/octet-stream")
    })?;
    let limit = app.config.limits.blob.bytes();
    let bytes = read_body(&app, caller.tenant(), request, limit).await?;
    let (hash, size) = (sha256(&bytes), bytes.len());
    let (id, url) = (blobs::id(&hash), blobs::url(&app.config, &hash));
    let (media_type, status) = put(&app, &caller, hash, Blob { media_type, bytes }).await?;
    Ok((status, Json(Stored { id, url, size, media_type })))
}

/// Stores bytes that are not there yet, and says what they are.
async fn put(
    app: &App,
    caller: &Caller,
    hash: [u8; 32],
    blob: Blob,
) -> ApiResult<(String, StatusCode)> {
    let store = app.log.store();
    // Whoever came first has said what they are.
    if let Some(there) = store.blob(caller.tenant(), hash).await? {
        return Ok((there.media_type, StatusCode::OK));
    }
    let media_type = blob.media_type.clone();
    store.put_blob(caller.tenant(), hash, blob).await?;
    Ok((media_type, StatusCode::CREATED))
}

/// `GET /v1/blobs/{hash}`
pub async fn get_blob(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    asked: HeaderMap,
) -> Response {
    let answer = find_blob(&app, &caller, &id, &asked).await;
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    let headers = response.headers_mut();
    for (name, value) in PROTECTION {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Pages elsewhere that the settings let use this server may show its pictures.
    let is_alone = app.config.origins.is_empty();
    let reach = if is_alone { "same-origin" } else { "cross-origin" };
    headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static(reach));
    response
}

async fn find_blob(app: &App, caller: &Caller, id: &str, asked: &HeaderMap) -> ApiResult<Response> {
    let hash = id.parse::<Sha256>().map_err(|_| {
        ApiError::bad_request("this is no id of a blob: 64 hexadecimal digits, its SHA-256")
    })?;
    let blob = app.log.store().blob(caller.tenant(), hash.0).await?;
    let Blob { media_type, bytes } =
        blob.ok_or_else(|| ApiError::not_found("there is no such blob"))?;
    let tag = format!("\"{}\"", blobs::id(&hash.0));
    let mut headers = headers(&media_type, &tag);
    if asked.get_all(IF_NONE_MATCH).iter().any(|value| names(value, &tag)) {
        headers.remove(CONTENT_TYPE);
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let range = asked.get(RANGE).filter(|_| asked.get(IF_RANGE).is_none_or(|of| *of == *tag));
    match range.and_then(|range| part(range.to_str().ok()?, bytes.len())) {
        None => Ok((headers, bytes).into_response()),
        Some(Part::Some(range)) => {
            let last = range.end.saturating_sub(1);
            put_in(
                &mut headers,
                CONTENT_RANGE,
                &format!("bytes {}-{last}/{}", range.start, bytes.len()),
            );
            Ok((StatusCode::PARTIAL_CONTENT, headers, bytes.slice(range)).into_response())
        }
        Some(Part::Beyond) => {
            let error = ApiError::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "range_not_satisfiable",
                format!("there are only {} bytes", bytes.len()),
            );
            let mut response = error.into_response();
            put_in(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{}", bytes.len()));
            Ok(response)
        }
    }
}

fn headers(stored_type: &str, tag: &str) -> HeaderMap {
    let served = media_type::served(stored_type);
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, served.content_type);
    put_in(&mut headers, CONTENT_DISPOSITION, served.disposition);
    put_in(&mut headers, ETAG, tag);
    put_in(&mut headers, ACCEPT_RANGES, "bytes");
    // The bytes of a hash never change; whose they are does matter, so only the client keeps them.
    put_in(&mut headers, CACHE_CONTROL, "private, max-age=31536000, immutable");
    headers
}

fn put_in(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Whether an `If-None-Match` names the blob.
fn names(value: &HeaderValue, tag: &str) -> bool {
    let tags = value.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.map(|one| one.strip_prefix("W/").unwrap_or(one)).any(|one| one == "*" || one == tag)
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Some(Range<usize>),
    /// It begins behind the end.
    Beyond,
}

/// The part that a `Range` asks for. `None`: all of it, which is what a server may answer to a range
/// that it does not understand, and to several.
fn part(header: &str, size: usize) -> Option<Part> {
    let (unit, range) = header.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = (first.trim(), last.trim());
    let range = if first.is_empty() {
        let count = last.parse::<usize>().ok()?;
        size.saturating_sub(count)..size
    } else {
        let first = first.parse::<usize>().ok()?;
        let end = match last {
            "" => size,
            last => last.parse::<usize>().ok()?.saturating_add(1).min(size),
        };
        if last.parse::<usize>().is_ok_and(|last| last < first) {
            return None;
        }
        first..end
    };
    Some(if range.start < range.end { Part::Some(range) } else { Part::Beyond })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_part_that_is_there_or_everything() {
        for (header, expected) in [
            ("bytes=0-3", Some(Part::Some(0..4))),
            ("bytes=4-", Some(Part::Some(4..10))),
            ("bytes=-3", Some(Part::Some(7..10))),
            ("bytes=-30", Some(Part::Some(0..10))),
            ("bytes=8-99", Some(Part::Some(8..10))),
            ("bytes=10-", Some(Part::Beyond)),
            ("bytes=-0", Some(Part::Beyond)),
            ("bytes=3-2", None),
            ("bytes=0-1,4-5", None),
            ("lines=0-1", None),
            ("bytes=a-b", None),
            ("bytes", None),
            ("bytes=99999999999999999999999-", None),
        ] {
            assert_eq!(part(header, 10), expected, "{header}");
        }
        assert_eq!(part("bytes=0-", 0), Some(Part::Beyond));
    }
}
