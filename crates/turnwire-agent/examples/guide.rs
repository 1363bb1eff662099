//! The guide of docs/agents.md: a program with a model and a tool.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use schemars::JsonSchema;
use serde::Deserialize;
use turnwire_agent::{Agent, HttpModel, Msg, ToolError, function};

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = HttpModel::builder("anthropic:claude-sonnet-4-5").build()?;
    let weather = async |City { city }| Ok::<_, ToolError>(format!("{city}: sunny"));
    let friday = Agent::builder("friday", model)
        .system("You are Friday.")
        .tool(function("get_weather", "The weather of a city", weather))
        .build();
    let reply = friday.call([Msg::user("ann", "How is Paris?")]).await?;
    println!("{}", reply.text("\n").unwrap_or_default());
    Ok(())
}
