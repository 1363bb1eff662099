//! Checks the client context of messages: tools, and the JSON Schema of the answer. Everything that
//! takes a message calls this before it stores anything.

use crate::app::App;
use crate::config::Config;
use crate::error::{ApiError, ApiResult};
use crate::limits::FairQueue;
use turnwire_agent::ClientContext;
use turnwire_agent::schema::{self, SchemaError};
use turnwire_core::Msg;

/// How many schemas may wait to be compiled. A few threads compile them.
const MAX_CONCURRENT: usize = 64;

/// The queue for compiling schemas.
pub(crate) fn schema_queue(config: &Config) -> FairQueue {
    let share = if config.auth.has_credentials() { MAX_CONCURRENT / 4 } else { MAX_CONCURRENT };
    FairQueue::new(MAX_CONCURRENT, share)
}

/// Checks the client context of the last message, which is the one that is answered.
pub(crate) async fn check_last_message(app: &App, tenant: &str, messages: &[Msg]) -> ApiResult<()> {
    match messages.last() {
        Some(last) => check_client_context(app, tenant, &ClientContext::from_msg(last)).await,
        None => Ok(()),
    }
}

/// Sets the requester in the last message, and removes what clients claim about it: tool results
/// are matched to conversations by it.
pub(crate) fn set_requester(messages: &mut [Msg], holder: Option<&str>) {
    let count = messages.len();
    for (at, msg) in messages.iter_mut().enumerate() {
        let holder = holder.filter(|_| at + 1 == count);
        let offer = ClientContext::from_msg(msg);
        if offer.asked_by.as_deref() != holder {
            *msg = ClientContext { asked_by: holder.map(str::to_owned), ..offer }
                .replace_in(msg.clone());
        }
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
