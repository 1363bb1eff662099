//! Bytes stored once per tenant by their hash.

use crate::app::App;
use crate::auth::sha256;
use crate::blobs;
use crate::config::Sha256;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, read_body};
use crate::{Caller, Scope};
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

/// What bytes are when nobody says.
const UNKNOWN: &str = "application/octet-stream";

/// What a browser may show by itself: nothing of this runs a script. Everything else is handed out
/// to be saved, because a page of HTML or an SVG would act in the name of whoever opens it.
const SHOWN: [&str; 25] = [
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/avif",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
    "audio/mpeg",
    "audio/mp3",
    "audio/mp4",
    "audio/aac",
    "audio/wav",
    "audio/wave",
    "audio/x-wav",
    "audio/ogg",
    "audio/webm",
    "audio/flac",
    "video/mp4",
    "video/webm",
    "video/ogg",
    "video/quicktime",
    "video/mpeg",
    "video/x-matroska",
    PDF,
];
/// Browsers show these in a viewer of their own, which a sandbox would keep from starting.
const PDF: &str = "application/pdf";

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
    if !caller.may(Scope::Publish) {
        caller.need(Scope::Chat)?;
    }
    let media_type = media_type(request.headers().get(CONTENT_TYPE))?;
    let limits = &app.config.limits;
    let bytes = read_body(request, limits.blob.bytes(), limits.body_timeout.0).await?;
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

fn media_type(header: Option<&HeaderValue>) -> ApiResult<String> {
    let Some(header) = header else { return Ok(UNKNOWN.to_owned()) };
    let text = header.to_str().ok().map(str::trim).filter(|text| text.len() <= 255);
    match text.map(|text| (text, essence(text))) {
        Some((text, essence)) if is_media_type(essence) => Ok(text.to_owned()),
        _ => Err(ApiError::bad_request("the content-type is no media type")
            .hint("it looks like `image/png`; without one the bytes are application/octet-stream")),
    }
}

/// A media type without its parameters.
fn essence(text: &str) -> &str {
    text.split_once(';').map_or(text, |(essence, _)| essence).trim()
}

fn is_media_type(text: &str) -> bool {
    let is_token = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    text.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub))
}

/// `GET /v1/blobs/{hash}`
pub async fn get_blob(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    asked: HeaderMap,
) -> ApiResult<Response> {
    caller.need(Scope::Read)?;
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

fn headers(media_type: &str, tag: &str) -> HeaderMap {
    let kind = essence(media_type).to_ascii_lowercase();
    let is_shown = SHOWN.contains(&kind.as_str());
    let mut headers = HeaderMap::new();
    let known = if is_media_type(&kind) { media_type } else { UNKNOWN };
    put_in(&mut headers, CONTENT_TYPE, known);
    put_in(&mut headers, ETAG, tag);
    put_in(&mut headers, ACCEPT_RANGES, "bytes");
    // The bytes of a hash never change; whose they are does matter, so only the client keeps them.
    put_in(&mut headers, CACHE_CONTROL, "private, max-age=31536000, immutable");
    put_in(&mut headers, X_CONTENT_TYPE_OPTIONS, "nosniff");
    put_in(&mut headers, CONTENT_DISPOSITION, if is_shown { "inline" } else { "attachment" });
    if kind != PDF {
        put_in(&mut headers, CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox");
    }
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

    #[test]
    fn what_could_run_a_script_is_not_shown() {
        for (kind, disposition) in [
            ("image/png", "inline"),
            ("IMAGE/PNG; x=y", "inline"),
            ("application/pdf", "inline"),
            ("image/svg+xml", "attachment"),
            ("text/html; charset=utf-8", "attachment"),
            ("application/xhtml+xml", "attachment"),
            ("text/plain", "attachment"),
        ] {
            let headers = headers(kind, "\"x\"");
            assert_eq!(headers[CONTENT_DISPOSITION], disposition, "{kind}");
            assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
            let sandbox = headers.contains_key(CONTENT_SECURITY_POLICY);
            assert_eq!(sandbox, kind != "application/pdf", "{kind}");
        }
    }
}
