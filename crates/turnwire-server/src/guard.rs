//! The guard: checks every request before it is routed. In this order: host, origin, credentials,
//! rate.

mod hosts;
mod origins;
mod request_id;
mod shared_body;

use crate::App;
use crate::api::{self, Access, RouteLayer};
use crate::auth::{AuthError, Caller, Identity, TOO_MANY_CONNECTIONS, expired_error, is_expired};
use crate::cluster;
use crate::error::{ApiError, ApiResult, LogDetail};
use crate::extract::Query;
use crate::listen::{ActiveRequest, ClientConnection, Signal, TrackedBody};
use crate::routes::events_in;
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hosts::Hosts;
use http::header::{CONNECTION, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use hyper::body::Incoming;
use origins::Origins;
use request_id::RequestIds;
use shared_body::SharedBody;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tower::Service;
use tracing::Level;

/// The id of the route that bypasses the router.
pub(crate) const PUBLISH_ROUTE_ID: &str = "publishEvents";

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What is known of a request before its handler runs.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    identity: Result<Arc<Identity>, AuthError>,
    /// Whether it comes from this machine without a proxy.
    local: bool,
    pub(crate) start: Instant,
}

impl RequestContext {
    /// The context that the guard added to a request, or one made of the [`Caller`] that an
    /// embedding program added.
    pub(crate) fn from_extensions(extensions: &http::Extensions) -> Self {
        let context = || {
            let caller = extensions.get::<Caller>().ok_or(AuthError::Missing);
            let identity = caller.map(|Caller(identity)| Arc::clone(identity));
            Self { identity, local: false, start: Instant::now() }
        };
        extensions.get::<Self>().cloned().unwrap_or_else(context)
    }

    pub(crate) fn caller(&self) -> ApiResult<Caller> {
        match &self.identity {
            Ok(identity) if is_expired(identity.expires_at, tokio::time::Instant::now()) => {
                Err(expired_error())
            }
            Ok(identity) => Ok(Caller(Arc::clone(identity))),
            Err(refusal) => Err((*refusal).into()),
        }
    }

    /// Checks that a route may be used.
    pub(crate) fn check_access(&self, access: Access) -> ApiResult<()> {
        match access {
            Access::Public => Ok(()),
            Access::Local(_) if self.local => Ok(()),
            Access::Requires(action)
            | Access::Local(action)
            | Access::RequiresAtLeast(action, _) => self.caller()?.require(action),
            Access::RequiresOneOf(actions) => {
                let caller = self.caller()?;
                let first = actions.iter().find(|action| caller.can(**action)).or(actions.first());
                first.map_or(Ok(()), |action| caller.require(*action))
            }
            Access::NoTicket => {
                if !self.caller()?.0.is_ticket {
                    return Ok(());
                }
                Err(ApiError::forbidden("a ticket cannot create further tickets")
                    .hint("send this request with the token or the JWT itself"))
            }
            // Credentials may follow on the socket; invalid ones are refused now.
            Access::Socket => match self.identity {
                Ok(_) | Err(AuthError::Missing) => Ok(()),
                Err(refusal) => Err(refusal.into()),
            },
        }
    }
}

/// The result of admission.
enum AdmissionResult {
    Pass(RequestContext),
    /// There is a response already.
    Answered(Response<Body>),
}

/// Stands before the router.
pub(crate) struct Guard {
    pub(crate) app: Arc<App>,
    router: Router,
    /// The layer of the route that is called past the router.
    publish_layer: Option<RouteLayer>,
    hosts: Hosts,
    origins: Origins,
    ids: RequestIds,
    failures: FailureLogLimit,
    started: Instant,
}

impl Guard {
    pub(crate) fn new(app: Arc<App>, address: SocketAddr) -> Self {
        let router = api::router(Arc::clone(&app));
        let hosts = Hosts::new(&app.config, address);
        let origins = Origins::new(&app.config);
        let (ids, failures) = (RequestIds::new(), FailureLogLimit::default());
        let publish_layer = RouteLayer::for_route(&app, PUBLISH_ROUTE_ID);
        Self { app, router, publish_layer, hosts, origins, ids, failures, started: Instant::now() }
    }

    /// Answers one request of a connection.
    pub(crate) async fn serve(
        &self,
        conn: &Arc<ClientConnection>,
        request: Request<Incoming>,
    ) -> Response<TrackedBody> {
        let busy = ActiveRequest::new(conn);
        let start = Instant::now();
        let request_id = self.ids.id_for(request.headers());
        let method = request.method().clone();
        let uri = request.uri().clone();
        let version = request.version();
        let origin = request.headers().get(ORIGIN).cloned();
        let (mut request, rest) = SharedBody::share(request);
        let is_stopping = conn.signal() == Signal::Stop && !is_probe(uri.path());
        // Whether the connection ends with this response.
        let mut is_last = is_stopping;
        let admitted =
            if is_stopping { Err(stopping()) } else { self.admit(conn, &mut request, start).await };
        let mut response = match admitted {
            Ok(AdmissionResult::Pass(context)) => self.dispatch(conn, context, request).await,
            Ok(AdmissionResult::Answered(answer)) => {
                drop(request);
                answer
            }
            Err(error) => {
                drop(request);
                is_last |= error.name() == TOO_MANY_CONNECTIONS;
                let dialect = api::dialect_for_path(uri.path());
                let response = dialect.translate(error.into_response());
                self.app.metrics.count_response(None, response.status(), start.elapsed());
                response
            }
        };
        if let Some(origin) = origin {
            self.origins.allow_origin(&origin, response.headers_mut());
        }
        // The rest of a late body would be read as the next request.
        is_last |= response.status() == StatusCode::REQUEST_TIMEOUT;
        if version == Version::HTTP_11 && (is_last || !rest.read().await) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let line =
            AccessLogEntry { method: &method, uri: &uri, conn, request_id: &request_id, start };
        self.log(&line, &mut response);
        let headers = response.headers_mut();
        headers.insert(X_REQUEST_ID, request_id);
        // Browsers must not guess another type than the content-type.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response.map(|body| TrackedBody::new(body, busy))
    }

    /// Runs the handler of a request. Events are published far more often than anything else, and
    /// for a small one the router costs as much as the rest of the request: they bypass it.
    async fn dispatch(
        &self,
        conn: &Arc<ClientConnection>,
        context: RequestContext,
        mut request: Request<SharedBody>,
    ) -> Response<Body> {
        if request.method() == Method::POST
            && let Some(layer) = &self.publish_layer
            && let Some(id) = events_in::session_in_path(request.uri().path())
        {
            let id = id.to_owned();
            // Boxed, so that a connection that only streams does not hold memory for it.
            return Box::pin(self.publish_directly(layer, context, id, request)).await;
        }
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(Arc::clone(conn));
        }
        request.extensions_mut().insert(context);
        match self.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn publish_directly(
        &self,
        layer: &RouteLayer,
        context: RequestContext,
        id: String,
        request: Request<SharedBody>,
    ) -> Response<Body> {
        let admitted = layer.check(&context, request.uri().query()).and_then(|()| {
            let caller = context.caller()?;
            let Query(query) = Query::from_uri(request.uri())?;
            Ok((caller, query))
        });
        let answer = match admitted {
            Ok((caller, query)) => {
                events_in::publish_request(&self.app, &caller, &id, &query, request).await
            }
            Err(refused) => Err(refused),
        };
        let response = answer.unwrap_or_else(IntoResponse::into_response);
        layer.finish(response, context.start)
    }

    async fn admit(
        &self,
        conn: &Arc<ClientConnection>,
        request: &mut Request<SharedBody>,
        start: Instant,
    ) -> ApiResult<AdmissionResult> {
        let host = host_of(request)?;
        self.hosts.check(host)?;
        check_encoding(request.headers())?;
        if let Some(origin) = request.headers().get(ORIGIN) {
            self.origins.check(origin, host)?;
            if request.method() == Method::OPTIONS
                && let Some(answer) = Origins::preflight(request.headers())
            {
                return Ok(AdmissionResult::Answered(answer));
            }
        }
        let identity = self.identify(request).await;
        if let Ok(identity) = &identity {
            identity.tenant.count_request(start)?;
            conn.set_tenant(&identity.tenant)?;
        }
        let local = conn.is_local();
        Ok(AdmissionResult::Pass(RequestContext { identity, local, start }))
    }

    /// Authenticates a request. A ticket is removed from the URL, so that nothing after this can
    /// log it.
    async fn identify(
        &self,
        request: &mut Request<SharedBody>,
    ) -> Result<Arc<Identity>, AuthError> {
        match request.uri().query().and_then(split_ticket) {
            None => self.app.auth.authenticate_headers(request.headers()),
            Some((ticket, rest)) => {
                // It is used up in any case: it was in a URL.
                let redeemed = cluster::tickets::redeem(&self.app, &ticket).await;
                let found = match self.app.auth.authenticate_headers(request.headers()) {
                    Err(AuthError::Missing) => redeemed,
                    found => found,
                };
                *request.uri_mut() = with_query(request.uri(), &rest);
                found
            }
        }
    }

    /// Logs a request if it failed or the log level asks for it.
    fn log(&self, line: &AccessLogEntry<'_>, response: &mut Response<Body>) {
        let cause = if response.status().is_server_error() {
            response.extensions_mut().remove::<LogDetail>()
        } else {
            None
        };
        let wanted = tracing::enabled!(target: "turnwire::access", Level::DEBUG);
        if cause.is_none() && !wanted {
            return;
        }
        let (method, peer) = (line.method, line.conn.peer());
        // Without the query: it may contain secrets.
        let path = line.uri.path();
        let status = response.status().as_u16();
        let id = line.request_id.to_str().unwrap_or_default();
        let took_us = u64::try_from(line.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        match cause {
            Some(LogDetail(cause))
                if self.failures.should_log(self.started.elapsed().as_secs()) =>
            {
                tracing::error!(target: "turnwire::access", %method, path, status, took_us, id, %peer, cause);
            }
            _ => {
                tracing::debug!(target: "turnwire::access", %method, path, status, took_us, id, %peer);
            }
        }
    }
}

/// Nothing was done yet, so a client may send the request again.
fn stopping() -> ApiError {
    ApiError::unavailable("the server is stopping; nothing was stored")
        .kind("stopping")
        .hint("send it again in a moment")
        .retry_after(1)
}

/// Whether a path is for monitoring.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics")
}

/// What is logged of a request.
struct AccessLogEntry<'a> {
    method: &'a Method,
    uri: &'a Uri,
    conn: &'a ClientConnection,
    request_id: &'a HeaderValue,
    start: Instant,
}

/// How many failures are logged per second: a store that cannot be written must not fill the disk.
const FAILURES_A_SECOND: u64 = 20;

/// Counts the failures of a second: the second in the upper half, the count in the lower.
#[derive(Default)]
struct FailureLogLimit(AtomicU64);

impl FailureLogLimit {
    fn should_log(&self, second: u64) -> bool {
        let count = |state: u64| if state >> 32 == second { state + 1 } else { (second << 32) | 1 };
        let before =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(count(state)));
        let counted = before.map_or(1, count);
        (counted & u64::from(u32::MAX)) <= FAILURES_A_SECOND
    }
}

/// A proxy may read an unusual encoding differently than this server.
fn check_encoding(headers: &HeaderMap) -> ApiResult<()> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_plain = match (encodings.next(), encodings.next()) {
        (None, _) => true,
        (Some(encoding), None) => encoding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    if is_plain {
        return Ok(());
    }
    Err(ApiError::bad_request("unsupported Transfer-Encoding")
        .hint("send `transfer-encoding: chunked`, once, or a content-length"))
}

/// The host that a request is for: HTTP/2 has it in the URI, HTTP/1.1 in a header.
fn host_of(request: &Request<SharedBody>) -> ApiResult<&str> {
    if let Some(authority) = request.uri().authority() {
        return Ok(authority.as_str());
    }
    let mut headers = request.headers().get_all(HOST).iter();
    match (headers.next().map(HeaderValue::to_str), headers.next()) {
        (Some(Ok(host)), None) => Ok(host),
        (None, None) if request.version() < Version::HTTP_11 => {
            Err(ApiError::bad_request("missing Host header").hint("use HTTP/1.1 or HTTP/2"))
        }
        _ => Err(ApiError::bad_request("expected exactly one Host header")
            .hint("send one header `host`, such as `host: 127.0.0.1:4747`")),
    }
}

/// The value of `ticket=`, and the rest of a query.
fn split_ticket(query: &str) -> Option<(String, String)> {
    if !query.contains("ticket=") {
        return None;
    }
    let mut ticket = None;
    let mut rest = String::with_capacity(query.len());
    for part in query.split('&') {
        if let Some(value) = part.strip_prefix("ticket=") {
            ticket = Some(value.to_owned());
            continue;
        }
        rest.push_str(if rest.is_empty() { "" } else { "&" });
        rest.push_str(part);
    }
    Some((ticket?, rest))
}

fn with_query(uri: &Uri, query: &str) -> Uri {
    let mut parts = uri.clone().into_parts();
    let join = if query.is_empty() { "" } else { "?" };
    let path = format!("{}{join}{query}", uri.path());
    // A part of a valid query is valid; if not, no query is safer than the old one.
    parts.path_and_query = path.parse().or_else(|_| uri.path().parse()).ok();
    Uri::from_parts(parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_cut_out_of_a_query() {
        let split = |query| split_ticket(query).map(|(a, b)| format!("{a} {b}"));
        assert_eq!(split("ticket=abc").as_deref(), Some("abc "));
        assert_eq!(
            split("after=1.2&ticket=abc&raw=true").as_deref(),
            Some("abc after=1.2&raw=true")
        );
        assert_eq!(split("after=1.2"), None);
        assert_eq!(split("myticket=1"), None);
    }

    #[test]
    fn failures_do_not_flood_the_log() {
        let failures = FailureLogLimit::default();
        let lines = |second| (0..100).filter(|_| failures.should_log(second)).count() as u64;
        assert_eq!(lines(0), FAILURES_A_SECOND);
        assert_eq!(lines(1), FAILURES_A_SECOND);
    }

    #[test]
    fn a_query_is_replaced_and_the_path_stays() {
        let uri: Uri = "http://h:1/v1/x?ticket=abc&a=b".parse().unwrap();
        assert_eq!(with_query(&uri, "a=b").to_string(), "http://h:1/v1/x?a=b");
        let uri: Uri = "/v1/x?ticket=abc".parse().unwrap();
        assert_eq!(with_query(&uri, "").to_string(), "/v1/x");
    }
}
