//! Takes requests of other nodes, on an address of its own.

use super::ClusterNode;
use super::hints::News;
use super::operation::{self, Call, CallAnswer};
use crate::App;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use http::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long a node may take for the handshake and the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections other nodes may have. A node needs a few.
const MAX_CONNECTIONS: usize = 4096;
/// JSON is longer than the body that it carries.
const BODY_FACTOR: usize = 3;

#[derive(Clone)]
struct Context {
    node: Arc<ClusterNode>,
    app: Arc<App>,
}

impl ClusterNode {
    /// Serves until the future is dropped.
    pub(super) async fn serve(
        self: Arc<Self>,
        app: Arc<App>,
        listener: TcpListener,
        tls: TlsAcceptor,
    ) {
        let limit = app.config.limits.body.bytes().saturating_mul(BODY_FACTOR);
        let context = Context { node: self, app };
        let router = Router::new()
            .route("/call", post(call))
            .route("/news", post(news))
            .route("/release", post(release))
            .layer(DefaultBodyLimit::max(limit))
            .layer(middleware::from_fn_with_state(context.clone(), check_secret))
            .with_state(context);
        let permits = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections of other nodes; will retry");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let (tls, router) = (tls.clone(), router.clone());
            tokio::spawn(async move {
                let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept(stream)).await else {
                    return;
                };
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection of another node ended early");
                }
                drop(permit);
            });
        }
    }
}

/// Only nodes know the secret.
async fn check_secret(State(context): State<Context>, request: Request, next: Next) -> Response {
    let wanted = context.node.peers.authorization().as_bytes();
    let given = request.headers().get(AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
    if bool::from(given.ct_eq(wanted)) {
        next.run(request).await
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

/// Runs an operation on a session that this node owns.
async fn call(State(context): State<Context>, Json(call): Json<Call>) -> Json<CallAnswer> {
    Json(operation::answer_call(&context.app, call).await)
}

/// Takes hints, and which sessions the other node watches.
async fn news(State(context): State<Context>, Json(news): Json<News>) -> Json<()> {
    let News { from, heads, interest } = news;
    context.app.log.observe_heads(&heads);
    if let Some(interest) = interest {
        context.node.interests.apply(&from, interest);
    }
    Json(())
}

/// Gives up a session for another node, unless an agent works in it. Answers whether it did.
async fn release(
    State(context): State<Context>,
    Json(session): Json<operation::SessionRef>,
) -> Json<bool> {
    Json(operation::release_session(&context.app, &session).await)
}
