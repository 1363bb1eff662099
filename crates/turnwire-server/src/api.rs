//! The table of routes. Each route is declared once, in `table`: path, method, scope, handler and responses. Its query
//! parameters and JSON body are the types that the handler takes. The router and `/openapi.json` are made from the
//! table.

mod bodies;
mod endpoint;
mod openapi;
mod table;

pub(crate) use openapi::document;

use crate::App;
use crate::auth::Action;
use crate::error::{self, ApiError, ApiResult, Dialect};
use crate::guard::RequestContext;
use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter, Route as AxumRoute};
use endpoint::Endpoint;
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;
use tower::{Layer, Service};
use url::form_urlencoded;

/// Every route.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(table::routes);

/// Makes the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    /// Unique: the name of the operation in generated clients.
    pub(crate) id: &'static str,
    summary: &'static str,
    headers: Vec<HeaderParam>,
    query: QuerySpec,
    body: Option<RequestBody>,
    responses: Vec<ResponseSpec>,
    /// How it writes errors.
    dialect: Dialect,
    handler: MethodRouter<Arc<App>>,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody.
    Public,
    /// Everybody may connect; commands on the socket carry credentials.
    Socket,
    /// Requests from this machine, and callers who may do this.
    Local(Action),
    /// Callers who may do this.
    Requires(Action),
    /// Callers who may do the first. Some requests need one of the others too, which their handler checks.
    RequiresAtLeast(Action, &'static [Action]),
    /// Callers who may do one of these. The handler checks the one that the request is about.
    RequiresOneOf(&'static [Action]),
    /// Callers with a token or a JWT. A ticket is not enough.
    NoTicket,
}

/// A request header that a route reads.
#[derive(Debug, Clone, Copy)]
struct HeaderParam {
    name: &'static str,
    description: &'static str,
}

/// The query parameters of a route.
#[derive(Default)]
struct QuerySpec {
    /// The schema of the struct that holds them.
    schema: Option<SchemaOf>,
    /// Whether others are ignored rather than refused: clients of other protocols send parameters that Turnwire does
    /// not have.
    accepts_unknown: bool,
}

struct RequestBody {
    description: &'static str,
    content: Content,
    is_required: bool,
}

struct ResponseSpec {
    status: u16,
    description: &'static str,
    content: Content,
}

/// Media types, each with the schema of its content.
type Content = Vec<(&'static str, SchemaOf)>;

/// Any media type.
const ANY: &str = "*/*";
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
const NDJSON: &str = "application/x-ndjson";
const SSE: &str = "text/event-stream";

macro_rules! route_methods {
    ($($name:ident $method:ident)+) => {
        impl Route {
            $(fn $name<H, T, A>(path: &'static str, access: Access, id: &'static str, handler: H) -> Self
            where
                H: Handler<T, Arc<App>> + Endpoint<A>,
                T: 'static,
            {
                Self::new::<H, A>(Method::$method, path, access, id, routing::$name(handler))
            })+
        }
    };
}

route_methods!(get GET post POST patch PATCH delete DELETE);

impl Route {
    fn new<H: Endpoint<A>, A>(
        method: Method,
        path: &'static str,
        access: Access,
        id: &'static str,
        handler: MethodRouter<Arc<App>>,
    ) -> Self {
        // A body that is missing is an empty object.
        let body = H::body().map(|schema| RequestBody {
            description: "",
            content: vec![(JSON, schema)],
            is_required: false,
        });
        let query = QuerySpec { schema: H::query(), accepts_unknown: false };
        let (headers, responses) = (Vec::new(), Vec::new());
        Self {
            method,
            path,
            access,
            id,
            summary: "",
            headers,
            query,
            body,
            responses,
            dialect: Dialect::Turnwire,
            handler,
        }
    }

    /// Writes errors as another protocol does.
    fn errors_of(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Documents a header.
    fn header(mut self, header: HeaderParam) -> Self {
        self.headers.push(header);
        self
    }

    /// Ignores query parameters that the route does not have.
    fn any_query(mut self) -> Self {
        self.query.accepts_unknown = true;
        self
    }

    /// Declares a body that the handler reads itself.
    fn body<T: JsonSchema>(mut self, media_type: &'static str, description: &'static str) -> Self {
        let body = self.body.get_or_insert(RequestBody {
            description,
            content: Vec::new(),
            is_required: true,
        });
        body.content.push((media_type, schema_of::<T>));
        self
    }

    /// The body may be left out.
    fn optional(mut self) -> Self {
        self.body.iter_mut().for_each(|body| body.is_required = false);
        self
    }

    /// Declares a response in JSON.
    fn returns<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.returns_as::<T>(status, JSON, description)
    }

    /// Declares a response of a media type; a second media type of the same status is an alternative.
    fn returns_as<T: JsonSchema>(
        mut self,
        status: u16,
        media_type: &'static str,
        description: &'static str,
    ) -> Self {
        let content = (media_type, schema_of::<T> as SchemaOf);
        match self.responses.iter_mut().find(|response| response.status == status) {
            Some(response) => response.content.push(content),
            None => {
                self.responses.push(ResponseSpec { status, description, content: vec![content] });
            }
        }
        self
    }

    /// Declares a response without a body.
    fn returns_nothing(mut self, status: u16, description: &'static str) -> Self {
        self.responses.push(ResponseSpec { status, description, content: Vec::new() });
        self
    }

    /// Whether a path fits the pattern of this route.
    fn has_path(&self, path: &str) -> bool {
        let mut parts = path.split('/');
        let fits = self.path.split('/').all(|pattern| {
            parts.next().is_some_and(|part| part == pattern || pattern.starts_with('{'))
        });
        fits && parts.next().is_none()
    }

    /// The names of the query parameters; `None` where any are accepted.
    fn query_names(&self) -> Option<Vec<String>> {
        if self.query.accepts_unknown {
            return None;
        }
        let schema = self.query.schema.map(|schema| schema(&mut SchemaGenerator::default()));
        let properties = schema.as_ref().and_then(|schema| schema.get("properties")?.as_object());
        Some(properties.map(|all| all.keys().cloned().collect()).unwrap_or_default())
    }
}

/// How errors of a path are written that its route does not see: by the guard, or because of the method.
pub(crate) fn dialect_for_path(path: &str) -> Dialect {
    ROUTES
        .iter()
        .find(|route| route.has_path(path))
        .map_or(Dialect::Turnwire, |route| route.dialect)
}

/// All routes, for a program that serves connections itself. The caller of a request is the
/// [`Caller`](crate::Caller) that the program puts into its extensions; a request without one has no credentials.
pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for (index, route) in ROUTES.iter().enumerate() {
        let layer = RouteLayer::new(&app, index, route);
        router = router.route(route.path, route.handler.clone().layer(layer));
    }
    router
        .method_not_allowed_fallback(error::no_such_method)
        .fallback(error::no_such_path)
        .with_state(app)
}

/// What every handler has around it: checks the scope and the names of the query parameters before, counts the request
/// after, and writes errors in the protocol's dialect.
#[derive(Clone)]
pub(crate) struct RouteLayer {
    app: Arc<App>,
    index: usize,
    access: Access,
    dialect: Dialect,
    query_names: Option<Arc<[String]>>,
}

impl RouteLayer {
    fn new(app: &Arc<App>, index: usize, route: &Route) -> Self {
        Self {
            app: Arc::clone(app),
            index,
            access: route.access,
            dialect: route.dialect,
            query_names: route.query_names().map(Into::into),
        }
    }

    /// The layer of a route, for a handler that is called past the router.
    pub(crate) fn for_route(app: &Arc<App>, id: &str) -> Option<Self> {
        let (index, route) = ROUTES.iter().enumerate().find(|(_, route)| route.id == id)?;
        Some(Self::new(app, index, route))
    }

    pub(crate) fn check(&self, context: &RequestContext, query: Option<&str>) -> ApiResult<()> {
        context.check_access(self.access)?;
        match (query, &self.query_names) {
            (Some(query), Some(names)) => check_query(query, names),
            (None, _) | (_, None) => Ok(()),
        }
    }

    pub(crate) fn finish(&self, response: Response, start: Instant) -> Response {
        let took = start.elapsed();
        self.app.metrics.count_response(Some(self.index), response.status(), took);
        self.dialect.translate(response)
    }
}

/// The longest part of a client's text that an error repeats.
const MAX_SHOWN: usize = 64;

/// Refuses query parameters that are not among these.
pub(crate) fn check_query<S: AsRef<str>>(query: &str, names: &[S]) -> ApiResult<()> {
    let is_known = |name: &str| {
        // The guard has read it.
        name == "ticket" || names.iter().any(|known| known.as_ref() == name)
    };
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    let Some((name, _)) = parameters.find(|(name, _)| !is_known(name)) else { return Ok(()) };
    let name: String = name.chars().take(MAX_SHOWN).collect();
    let known: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let hint = match known.as_slice() {
        [] => "this route has no query parameters".to_owned(),
        known => format!("this route has: {}", known.join(", ")),
    };
    Err(ApiError::bad_request(format!("unknown query parameter `{name}`"))
        .kind("unknown_parameter")
        .hint(hint))
}

impl Layer<AxumRoute> for RouteLayer {
    type Service = RouteService;

    fn layer(&self, inner: AxumRoute) -> RouteService {
        RouteService { inner, layer: self.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct RouteService {
    inner: AxumRoute,
    layer: RouteLayer,
}

impl Service<Request> for RouteService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let layer = self.layer.clone();
        let context = RequestContext::from_extensions(request.extensions());
        let start = context.start;
        let checked = layer.check(&context, request.uri().query());
        let pending = checked.map(|()| self.inner.call(request));
        Box::pin(async move {
            let response = match pending {
                Ok(pending) => pending.await?,
                Err(error) => error.into_response(),
            };
            Ok(layer.finish(response, start))
        })
    }
}
