//! Asks a model over HTTP, and prints what happens as one event per line.
//!
//! ```text
//! ask_model anthropic:claude-sonnet-4-5 "How is the weather in Paris?"
//! ask_model ollama:qwen3 "What time is it?"
//! ask_model openai:my-model "Hi!" --base-url http://127.0.0.1:8000 --key-env MY_KEY
//! ```

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use std::error::Error;
use std::io::{self, Write};
use turnwire_agent::Agent;
use turnwire_agent::model::http::{ApiKey, HttpModel, HttpModelBuilder};
use turnwire_agent::tool::{ToolError, function};
use turnwire_core::Msg;

const USAGE: &str = "ask_model WIRE:MODEL QUESTION [--base-url URL] [--key-env VARIABLE] \
                     [--fallback WIRE:MODEL] [--retries N]";

#[derive(Deserialize, JsonSchema)]
struct City {
    /// Its name, in English.
    city: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (name, question) = words.next().zip(words.next()).ok_or(USAGE)?;
    let (mut base, mut key, mut fallback, mut retries) = (None, None, None, None);
    while let Some((option, value)) = words.next().zip(words.next()) {
        match option.as_str() {
            "--base-url" => base = Some(value),
            "--key-env" => key = Some(value),
            "--fallback" => fallback = Some(value),
            "--retries" => retries = Some(value.parse()?),
            _ => return Err(USAGE.into()),
        }
    }
    let at = |mut builder: HttpModelBuilder| {
        if let Some(url) = &base {
            builder = builder.base_url(url);
        }
        if let Some(variable) = &key {
            builder = builder.key(ApiKey::from_env(variable));
        }
        builder
    };
    let mut model = at(HttpModel::builder(name));
    if let Some(name) = fallback {
        model = model.fallback(at(HttpModel::builder(name)).build()?);
    }
    if let Some(retries) = retries {
        model = model.retries(retries);
    }

    let agent = Agent::builder("friday", model.build()?)
        .system("You are Friday.")
        .tool(function("get_weather", "The weather of a city", async |City { city }| {
            Ok::<_, ToolError>(format!("{city}: sunny, 18 °C"))
        }))
        .tool(function("get_time", "The time in a city", async |City { city }| {
            Ok::<_, ToolError>(format!("{city}: noon"))
        }))
        .build();
    let mut events = agent.reply([Msg::user("ann", question)]);
    let mut out = io::stdout().lock();
    while let Some(event) = events.next().await {
        writeln!(out, "{}", event?.to_json())?;
        out.flush()?;
    }
    Ok(())
}
