//! The one table of routes. The router and the API's description are both made from it, so that they
//! cannot differ.

mod openapi;
mod table;

pub(crate) use openapi::document;
pub(crate) use table::ROUTES;

use crate::App;
use crate::auth::Action;
use crate::error::{self, Dialect};
use crate::guard::RequestContext;
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, Route as Inner};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Cx, Poll};
use tower::{Layer, Service};

/// One line of the table.
pub(crate) struct Route {
    pub(crate) method: HttpMethod,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    /// Unique: what generated clients call it.
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) params: &'static [Param],
    pub(crate) body: Option<RequestBody>,
    pub(crate) responses: &'static [ResponseSpec],
    pub(crate) handler: fn() -> MethodRouter<Arc<App>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpMethod {
    Get,
    Post,
    Patch,
    Delete,
}

impl HttpMethod {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody.
    Public,
    /// Everybody may connect; commands on the socket say who it is.
    Socket,
    /// Who comes from this machine, and who may do this.
    Local(Action),
    /// Who may do this.
    Requires(Action),
    /// Who may do the first. Some requests take more: the handler checks these.
    RequiresAtLeast(Action, &'static [Action]),
    /// Who may do one of these. The handler checks the one that the request is about.
    RequiresOneOf(&'static [Action]),
    /// Who has a token or a JWT. A ticket is not enough, whatever it may do.
    NoTicket,
}

/// A parameter.
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) location: ParamLocation,
    pub(crate) kind: ParamType,
    pub(crate) about: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParamLocation {
    Path,
    Query,
    Header,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParamType {
    Text,
    Integer,
    Flag,
}

/// What a request carries.
pub(crate) struct RequestBody {
    pub(crate) types: &'static [&'static str],
    pub(crate) about: &'static str,
}

/// What is answered when it works.
pub(crate) struct ResponseSpec {
    pub(crate) status: u16,
    pub(crate) types: &'static [&'static str],
    pub(crate) about: &'static str,
}

/// All routes, for a program that serves connections itself. Who asks is the [`Caller`](crate::Caller)
/// that it puts into the extensions of each request; without one nobody does.
pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for (index, route) in ROUTES.iter().enumerate() {
        let dialect = Dialect::from_path(route.path);
        let gate = RouteLayer { app: Arc::clone(&app), index, access: route.access, dialect };
        router = router.route(route.path, (route.handler)().layer(gate));
    }
    router
        .method_not_allowed_fallback(error::no_such_method)
        .fallback(error::no_such_path)
        .with_state(app)
}

/// Stands before every handler: who may pass, and how long it took.
#[derive(Clone)]
struct RouteLayer {
    app: Arc<App>,
    index: usize,
    access: Access,
    dialect: Dialect,
}

impl Layer<Inner> for RouteLayer {
    type Service = RouteService;

    fn layer(&self, inner: Inner) -> RouteService {
        RouteService { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
struct RouteService {
    inner: Inner,
    layer: RouteLayer,
}

impl Service<Request> for RouteService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Cx<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let gate = self.layer.clone();
        let context = RequestContext::from_extensions(request.extensions());
        let start = context.start;
        let refused = context.check_access(gate.access);
        let pending = refused.map(|()| self.inner.call(request));
        Box::pin(async move {
            let response = match pending {
                Ok(pending) => pending.await?,
                Err(error) => error.into_response(),
            };
            gate.app.metrics.count_response(Some(gate.index), response.status(), start.elapsed());
            Ok(gate.dialect.translate(response))
        })
    }
}
