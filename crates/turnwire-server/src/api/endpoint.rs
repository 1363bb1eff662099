//! What the signature of a handler says about its route: the query parameters and the JSON body that it reads. The table
//! of routes asks [`Endpoint`], so that nobody has to repeat these types there.

use super::{SchemaOf, schema_of};
use crate::App;
use crate::auth::Caller;
use crate::extract::{BodyBytes, JsonBody, Path, Query};
use crate::listen::ClientConnection;
use crate::protocols::model_api::ModelRequest;
use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Request, State};
use http::{HeaderMap, Uri};
use schemars::JsonSchema;
use std::sync::Arc;

/// Something that a handler takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not known as an argument of a handler",
    label = "`/openapi.json` cannot describe this argument",
    note = "use `Query<T>`, `Path<T>` or `JsonBody<T>` of `crate::extract`, with `T: JsonSchema` for `Query` and `JsonBody`",
    note = "an argument that reads neither the query nor a JSON body gets `impl Input for … {{}}` in `api/endpoint.rs`"
)]
pub(crate) trait Input {
    /// The schema of the query parameters that it reads.
    fn query() -> Option<SchemaOf> {
        None
    }

    /// The schema of the JSON body that it reads.
    fn body() -> Option<SchemaOf> {
        None
    }
}

impl<T: JsonSchema> Input for Query<T> {
    fn query() -> Option<SchemaOf> {
        Some(T::json_schema)
    }
}

impl<T: JsonSchema> Input for JsonBody<T> {
    fn body() -> Option<SchemaOf> {
        Some(schema_of::<T>)
    }
}

impl<T> Input for Path<T> {}
impl<T> Input for axum::extract::Path<T> {}
impl Input for State<Arc<App>> {}
impl Input for Caller {}
impl Input for Option<Caller> {}
impl Input for Option<Extension<Arc<ClientConnection>>> {}
impl Input for Result<WebSocketUpgrade, WebSocketUpgradeRejection> {}
impl Input for HeaderMap {}
impl Input for Uri {}
impl Input for BodyBytes {}
impl Input for ModelRequest {}
impl Input for Request {}

/// A handler whose arguments are `A`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a handler in the table of routes",
    label = "not a handler that `/openapi.json` can describe",
    note = "a handler is an `async fn` of at most 7 arguments that all implement `Input` (see `api/endpoint.rs`)",
    note = "the types in `Query<T>` and `JsonBody<T>` need `#[derive(JsonSchema)]`, because the route's parameters and body follow from them",
    note = "use `Query`, `Path` and `JsonBody` of `crate::extract`, not those of axum"
)]
pub(crate) trait Endpoint<A> {
    /// The schema of its query parameters.
    fn query() -> Option<SchemaOf>;
    /// The schema of its JSON body.
    fn body() -> Option<SchemaOf>;
}

macro_rules! endpoints {
    ($($($argument:ident)*;)+) => {$(
        impl<F, R, $($argument: Input,)*> Endpoint<($($argument,)*)> for F
        where
            F: Fn($($argument,)*) -> R,
        {
            fn query() -> Option<SchemaOf> {
                let all: [Option<SchemaOf>; _] = [$($argument::query(),)*];
                all.into_iter().flatten().next()
            }

            fn body() -> Option<SchemaOf> {
                let all: [Option<SchemaOf>; _] = [$($argument::body(),)*];
                all.into_iter().flatten().next()
            }
        }
    )+};
}

endpoints! {
    ;
    A1;
    A1 A2;
    A1 A2 A3;
    A1 A2 A3 A4;
    A1 A2 A3 A4 A5;
    A1 A2 A3 A4 A5 A6;
    A1 A2 A3 A4 A5 A6 A7;
}
