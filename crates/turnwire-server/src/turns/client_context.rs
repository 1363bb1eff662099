//! Checks the client context of messages: tools, and the JSON Schema of the answer. Everything that
//! takes a message calls this before it stores anything.

use crate::app::App;
use crate::config::Config;
use crate::error::{ApiError, ApiResult};
use crate::limits::FairQueue;
use turnwire_agent::ClientContext;
use turnwire_agent::schema::{self, SchemaError};
use turnwire_core::{Msg, Role};

/// How many schemas may wait to be compiled. A few threads compile them.
const MAX_CONCURRENT: usize = 64;

/// The queue for compiling schemas.
pub(crate) fn schema_queue(config: &Config) -> FairQueue {
    let share = if config.auth.has_credentials() { MAX_CONCURRENT / 4 } else { MAX_CONCURRENT };
    FairQueue::new(MAX_CONCURRENT, share)
}

/// Checks the client context of the last user message, which is the one that is answered.
pub(crate) async fn check_last_message(app: &App, tenant: &str, messages: &[Msg]) -> ApiResult<()> {
    match messages.iter().rev().find(|msg| msg.role() == Role::User) {
        Some(last) => check_client_context(app, tenant, &ClientContext::from_msg(last)).await,
        None => Ok(()),
    }
}

/// Checks a client context.
pub(crate) async fn check_client_context(
    app: &App,
    tenant: &str,
    offer: &ClientContext,
) -> ApiResult<()> {
    schema::check_tools(&offer.tools).map_err(|why| {
        ApiError::unprocessable(format!("{why}; nothing was stored"))
            .kind("tools_too_large")
            .hint("send only the tools that this turn needs, with shorter schemas")
    })?;
    let Some(output_schema) = &offer.output_schema else { return Ok(()) };
    let _permit = app.schemas.acquire(tenant).await?;
    schema::check_schema(output_schema).await.map_err(|error| {
        let kind = match &error {
            SchemaError::Invalid(_) => "invalid_schema",
            SchemaError::TooLarge(_) | SchemaError::TooSlow => "schema_too_large",
        };
        ApiError::unprocessable(format!("output schema: {error}; nothing was stored"))
            .kind(kind)
            .hint("docs/agents.md lists the limits under \"Schemas and their limits\"")
    })
}
