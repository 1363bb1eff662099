//! HTTP requests over a connection, whose responses are compared with `/openapi.json`.

use crate::contract::{Answer, contract};
use std::io;
use std::net::SocketAddr;
use turnwire_testkit::net::{self, HttpResponse};

/// Like `turnwire_testkit::net::send_http`; the response is compared.
pub async fn send_http(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<HttpResponse> {
    let response = net::send_http(to, method, path, headers, body).await?;
    check_http(method, path, &response).await;
    Ok(response)
}

/// Compares a response that came over a connection.
pub async fn check_http(method: &str, path: &str, response: &HttpResponse) {
    contract().await.check(&Answer {
        method,
        path: path.split('?').next().unwrap_or(path),
        status: response.status,
        media_type: response.header("content-type"),
        body: Some(&response.body),
    });
}
