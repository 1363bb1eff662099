//! `/v1/blobs`: upload, download and delete blobs.

use crate::Caller;
use crate::app::App;
use crate::blobs::{self, Upload, media_type};
use crate::config::{ByteSize, Sha256};
use crate::error::{ApiError, ApiResult};
use crate::extract::{BodyReader, Pace, Path, matches_etag};
use crate::limits::ReservedBytes;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_RANGE, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;
use turnwire_log::Log;

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// Headers of every response. Blobs come from clients and are served from the console's origin: a browser
/// must neither guess their type nor run anything in them.
const PROTECTION_HEADERS: [(HeaderName, &str); 2] =
    [(X_CONTENT_TYPE_OPTIONS, "nosniff"), (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")];

#[derive(Serialize, JsonSchema)]
pub struct BlobView {
    id: String,
    url: String,
    size: u64,
    media_type: String,
}

/// `POST /v1/blobs`
pub async fn put_blob(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> ApiResult<impl IntoResponse> {
    let media_type = media_type::from_headers(request.headers()).ok_or_else(|| {
        ApiError::bad_request("invalid content-type: expected one media type")
            .hint("for example `image/png`; without one the bytes are application/octet-stream")
    })?;
    let (limits, tenant) = (&app.config.limits, caller.tenant());
    let announced = announced_size(request.headers());
    if announced.is_some_and(|size| size > limits.blob.0) {
        return Err(too_large(limits.blob));
    }
    let mut upload = Upload::begin(&app, tenant, announced).await?;
    let mut body = BodyReader::new(request.into_body(), Pace::new(limits));
    while let Some(bytes) = body.next().await? {
        if upload.size().saturating_add(bytes.len() as u64) > limits.blob.0 {
            return Err(too_large(limits.blob));
        }
        upload.write(bytes).await?;
    }
    let blobs::StoredBlob { hash, info, is_new } = upload.finish(&media_type).await?;
    // Credentials that are limited to some sessions must not learn what others have stored.
    let is_limited = caller.0.sessions.is_some();
    let status = if is_new || is_limited { StatusCode::CREATED } else { StatusCode::OK };
    let known_type = media_type::essence_or_unknown(&info.media_type);
    let stored = BlobView {
        id: blobs::blob_id(&hash),
        url: blobs::blob_url(&app.config, &hash),
        size: info.size,
        media_type: if is_limited { media_type } else { known_type },
    };
    Ok((status, Json(stored)))
}

fn announced_size(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: ByteSize) -> ApiError {
    ApiError::too_large(format!("the blob is larger than {} bytes; nothing was stored", limit.0))
        .hint("the operator can raise `limits.blob`")
}

/// `DELETE /v1/blobs/{hash}`
pub async fn delete_blob(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    if caller.0.sessions.is_some() {
        return Err(ApiError::forbidden(
            "credentials that are limited to some sessions cannot delete blobs, which others may use",
        )
        .hint("use a token for all sessions of its tenant"));
    }
    if app.log.store().delete_blob(caller.tenant(), parse_id(&id)?).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(no_blob())
    }
}

fn parse_id(id: &str) -> ApiResult<[u8; 32]> {
    id.parse::<Sha256>().map(|hash| hash.0).map_err(|_| {
        ApiError::bad_request("invalid blob id: expected 64 hexadecimal digits, the SHA-256")
    })
}

fn no_blob() -> ApiError {
    ApiError::not_found("no such blob")
}

/// `GET /v1/blobs/{hash}`
pub async fn get_blob(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    request_headers: HeaderMap,
) -> Response {
    let answer = find_blob(&app, &caller, &id, &request_headers).await;
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    let headers = response.headers_mut();
    for (name, value) in PROTECTION_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Web pages of the configured origins may show images of this server.
    let is_alone = app.config.origins.is_empty();
    let reach = if is_alone { "same-origin" } else { "cross-origin" };
    headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static(reach));
    response
}

async fn find_blob(
    app: &App,
    caller: &Caller,
    id: &str,
    request_headers: &HeaderMap,
) -> ApiResult<Response> {
    let (hash, tenant) = (parse_id(id)?, caller.tenant());
    let info = app.log.read_fairly(tenant, app.log.store().find_blob_info(tenant, hash)).await?;
    let info = info.ok_or_else(no_blob)?;
    let tag = format!("\"{}\"", blobs::blob_id(&hash));
    let mut headers = headers(&info.media_type, &tag);
    if matches_etag(request_headers, &tag) {
        headers.remove(CONTENT_TYPE);
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let range = request_headers
        .get(RANGE)
        .filter(|_| request_headers.get(IF_RANGE).is_none_or(|of| *of == *tag));
    let (status, range) = match range.and_then(|range| parse_range(range.to_str().ok()?, info.size))
    {
        None => (StatusCode::OK, 0..info.size),
        Some(RequestedRange::Satisfiable(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(RequestedRange::Unsatisfiable) => {
            let error = ApiError::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "range_not_satisfiable",
                format!("the blob has only {} bytes", info.size),
            );
            let mut response = error.into_response();
            insert_header(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{}", info.size));
            return Ok(response);
        }
    };
    if status == StatusCode::PARTIAL_CONTENT {
        let last = range.end.saturating_sub(1);
        insert_header(
            &mut headers,
            CONTENT_RANGE,
            &format!("bytes {}-{last}/{}", range.start, info.size),
        );
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
    let body = read_blob(app, tenant, hash, range).await?;
    Ok((status, headers, body).into_response())
}

/// A download in pieces: one piece is in memory, and counts in the budget.
struct Download {
    log: Arc<Log>,
    tenant: Arc<str>,
    hash: [u8; 32],
    range: Range<u64>,
    /// The first piece, which is read before the response starts.
    read: Option<Bytes>,
    _held: ReservedBytes,
}

async fn read_blob(
    app: &App,
    tenant: &Arc<str>,
    hash: [u8; 32],
    range: Range<u64>,
) -> ApiResult<Body> {
    let log = Arc::clone(&app.log);
    // Read now, while an error can still have a status.
    let first = log.store().read_blob_piece(tenant, hash, range.start);
    let first = log.read_fairly(tenant, first).await?.ok_or_else(no_blob)?;
    let download = Download {
        _held: app.buffered.reserve(tenant, first.len())?,
        log,
        tenant: Arc::clone(tenant),
        hash,
        range,
        read: Some(first),
    };
    Ok(Body::from_stream(stream::try_unfold(download, Download::next)))
}

impl Download {
    async fn next(mut self) -> turnwire_log::Result<Option<(Bytes, Self)>> {
        let Range { start, end } = self.range;
        if start >= end {
            return Ok(None);
        }
        let piece = if let Some(first) = self.read.take() {
            Some(first)
        } else {
            let piece = self.log.store().read_blob_piece(&self.tenant, self.hash, start);
            self.log.read_fairly(&self.tenant, piece).await?
        };
        let removed =
            || turnwire_log::Error::Store("the blob was deleted during the download".to_owned());
        let mut piece = piece.filter(|piece| !piece.is_empty()).ok_or_else(removed)?;
        piece.truncate(usize::try_from(end - start).unwrap_or(usize::MAX));
        self.range.start += piece.len() as u64;
        Ok(Some((piece, self)))
    }
}

fn headers(stored_type: &str, tag: &str) -> HeaderMap {
    let served = media_type::served_as(stored_type);
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, served.content_type);
    insert_header(&mut headers, CONTENT_DISPOSITION, served.disposition);
    insert_header(&mut headers, ETAG, tag);
    insert_header(&mut headers, ACCEPT_RANGES, "bytes");
    // The bytes of a hash never change, but they belong to a tenant: only the client may cache them.
    insert_header(&mut headers, CACHE_CONTROL, "private, max-age=31536000, immutable");
    headers
}

fn insert_header(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum RequestedRange {
    Satisfiable(Range<u64>),
    /// It begins after the end.
    Unsatisfiable,
}

/// The range that a `Range` header requests. `None`: the whole blob, which RFC 9110 allows for ranges that a
/// server does not support.
fn parse_range(header: &str, size: u64) -> Option<RequestedRange> {
    let (unit, range) = header.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = (first.trim(), last.trim());
    let range = if first.is_empty() {
        let count = last.parse::<u64>().ok()?;
        size.saturating_sub(count)..size
    } else {
        let first = first.parse::<u64>().ok()?;
        let end = match last {
            "" => size,
            last => last.parse::<u64>().ok()?.saturating_add(1).min(size),
        };
        if last.parse::<u64>().is_ok_and(|last| last < first) {
            return None;
        }
        first..end
    };
    Some(if range.start < range.end {
        RequestedRange::Satisfiable(range)
    } else {
        RequestedRange::Unsatisfiable
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_part_that_is_there_or_everything() {
        for (header, expected) in [
            ("bytes=0-3", Some(RequestedRange::Satisfiable(0..4))),
            ("bytes=4-", Some(RequestedRange::Satisfiable(4..10))),
            ("bytes=-3", Some(RequestedRange::Satisfiable(7..10))),
            ("bytes=-30", Some(RequestedRange::Satisfiable(0..10))),
            ("bytes=8-99", Some(RequestedRange::Satisfiable(8..10))),
            ("bytes=10-", Some(RequestedRange::Unsatisfiable)),
            ("bytes=-0", Some(RequestedRange::Unsatisfiable)),
            ("bytes=3-2", None),
            ("bytes=0-1,4-5", None),
            ("lines=0-1", None),
            ("bytes=a-b", None),
            ("bytes", None),
            ("bytes=99999999999999999999999-", None),
        ] {
            assert_eq!(parse_range(header, 10), expected, "{header}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Some(RequestedRange::Unsatisfiable));
    }
}
