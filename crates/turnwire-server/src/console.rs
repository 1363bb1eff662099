//! Serves the console: files inside the binary, with a policy that lets the page connect to this server only.

use crate::error::ApiError;
use crate::extract::matches_etag;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    REFERRER_POLICY, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::LazyLock;
use turnwire_console::File;

/// The content security policy. The page may contain its own script and style, which are known by their hashes.
static CONTENT_POLICY: LazyLock<String> = LazyLock::new(|| {
    let page = turnwire_console::file("index.html");
    let page = page.map_or("", |file| std::str::from_utf8(&file.bytes).unwrap_or(""));
    let [scripts, styles] = ["script", "style"].map(|tag| inline_hashes(page, tag));
    format!(
        "default-src 'none'; script-src 'self'{scripts}; style-src 'self'{styles}; \
         img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// The hash sources of the inline elements with this tag: ` 'sha256-…'` for each.
fn inline_hashes(page: &str, tag: &str) -> String {
    let (start, end) = (format!("<{tag}>"), format!("</{tag}>"));
    let elements = page.split(&start).skip(1).filter_map(|rest| rest.split_once(&end));
    let mut sources = String::new();
    for (content, _) in elements {
        let hash = BASE64_STANDARD.encode(Sha256::digest(content));
        let _ = write!(sources, " 'sha256-{hash}'");
    }
    sources
}

pub(crate) async fn page(request_headers: HeaderMap) -> Response {
    serve_file("index.html", &request_headers)
}

pub(crate) async fn icon(request_headers: HeaderMap) -> Response {
    serve_file("favicon.svg", &request_headers)
}

pub(crate) async fn asset(Path(name): Path<String>, request_headers: HeaderMap) -> Response {
    serve_file(&format!("assets/{name}"), &request_headers)
}

fn serve_file(path: &str, request_headers: &HeaderMap) -> Response {
    match turnwire_console::file(path) {
        Some(file) => file_response(file, request_headers),
        None => ApiError::not_found(format!("the console has no file {path}"))
            .hint("after an update, reload the page: its files have new names")
            .into_response(),
    }
}

fn file_response(file: &'static File, request_headers: &HeaderMap) -> Response {
    let keep = if file.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    put(CONTENT_TYPE, file.media_type);
    put(CACHE_CONTROL, keep);
    put(VARY, "accept-encoding");
    put(CONTENT_SECURITY_POLICY, &CONTENT_POLICY);
    put(REFERRER_POLICY, "no-referrer");
    put(ETAG, &file.etag);
    if matches_etag(request_headers, &file.etag) {
        headers.remove(CONTENT_TYPE);
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    match &file.gzip {
        Some(short) if accepts_gzip(request_headers) => {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            (headers, short.as_slice()).into_response()
        }
        _ => (headers, file.bytes.as_slice()).into_response(),
    }
}

/// Whether the client accepts gzip with a weight above 0.
fn accepts_gzip(request_headers: &HeaderMap) -> bool {
    request_headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(
        |value| {
            value.split(',').any(|part| {
                let mut words = part.split(';').map(str::trim);
                let is_gzip = words.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
                let refused = words.any(|word| {
                    word.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()) == Some(0.0)
                });
                is_gzip && !refused
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_what_is_inside_the_page_by_its_hash() {
        let page = "<script>alert(1)</script> <script src=\"./a.js\"></script> <style>b{}</style>";
        let hash = " 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='";
        assert_eq!(inline_hashes(page, "script"), hash);
        assert_eq!(inline_hashes(page, "style").matches("'sha256-").count(), 1);
        assert_eq!(inline_hashes("<p>nothing</p>", "script"), "");
    }
}
