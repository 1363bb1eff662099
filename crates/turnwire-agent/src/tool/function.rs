//! Async functions as tools.

use super::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec, spec_options};
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;
use turnwire_core::{Json, ToolCall};

/// A function as a tool.
#[must_use]
pub struct FunctionTool<A, F> {
    spec: ToolSpec,
    run: F,
    takes: PhantomData<fn(A)>,
}

/// Makes a tool from an async function.
pub fn function<A, G, F, Fut>(
    name: &str,
    description: &str,
    function: F,
) -> FunctionTool<A, impl Fn(A, ToolContext) -> Fut + Send + Sync + 'static>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    G: Into<ToolOutput>,
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<G, ToolError>> + Send + 'static,
{
    streaming_function(name, description, move |argument, _| function(argument))
}

/// Makes a tool from an async function that streams its output.
pub fn streaming_function<A, G, F, Fut>(
    name: &str,
    description: &str,
    function: F,
) -> FunctionTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    G: Into<ToolOutput>,
    F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<G, ToolError>> + Send + 'static,
{
    let schema = schemars::schema_for!(A);
    let input = Json::from_value(&schema).unwrap_or_else(|_| serde_json::Map::new().into());
    FunctionTool {
        spec: ToolSpec::new(name, description, input),
        run: function,
        takes: PhantomData,
    }
}

impl<A, F> FunctionTool<A, F> {
    /// Allows it to run again after a crash.
    pub fn idempotent(mut self) -> Self {
        self.spec.idempotent = true;
        self
    }

    /// The time limit of a call.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.spec.time_limit = Some(limit);
        self
    }

    spec_options!();
}

#[async_trait]
impl<A, G, F, Fut> Tool for FunctionTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    G: Into<ToolOutput>,
    F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<G, ToolError>> + Send + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn run(&self, call: ToolCall, out: ToolContext) -> Result<ToolOutput, ToolError> {
        let input = if call.input.trim_ascii().is_empty() { "{}" } else { call.input.as_str() };
        let argument: A = serde_json::from_str(input).map_err(|error| {
            ToolError::new(format!("the input does not match the schema: {error}"))
        })?;
        (self.run)(argument, out).await.map(Into::into)
    }
}
