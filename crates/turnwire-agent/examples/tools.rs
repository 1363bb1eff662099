//! Tools: async functions with a typed argument. Their output streams while they run.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use schemars::JsonSchema;
use serde::Deserialize;
use turnwire_agent::Agent;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::tool::{ToolContext, ToolError, function, streaming_function};
use turnwire_core::Msg;

#[derive(Deserialize, JsonSchema)]
struct City {
    /// Its name, in English.
    city: String,
}

async fn weather(City { city }: City) -> Result<String, ToolError> {
    match city.as_str() {
        "Paris" => Ok("18 °C and sunny".to_owned()),
        _ => Err(ToolError::new(format!("there is no station in {city}"))),
    }
}

async fn sights(City { city }: City, out: ToolContext) -> Result<(), ToolError> {
    for sight in ["the river", "the tower", "the museum"] {
        out.send_text(format!("{sight} of {city}\n")).await;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), turnwire_agent::CallError> {
    let model = ScriptedModel::new([
        vec![
            ScriptStep::call("1", "get_weather", r#"{"city":"Paris"}"#),
            ScriptStep::call("2", "get_weather", r#"{"city":"Atlantis"}"#),
            ScriptStep::call("3", "list_sights", r#"{"city":"Paris"}"#),
        ],
        vec![ScriptStep::text("Go to the tower while the sun shines.")],
    ]);
    let guide = Agent::builder("guide", model)
        .tool(function("get_weather", "The weather of a city", weather).idempotent())
        .tool(streaming_function("list_sights", "What to see in a city", sights))
        .build();

    let reply = guide.call([Msg::user("ann", "What shall I do in Paris?")]).await?;
    for (call, result) in reply.tool_calls() {
        let (state, output) = result.map(|it| (&it.state, it.output.text(""))).unzip();
        println!("{} {} -> {state:?}: {}", call.name, call.input, output.unwrap_or_default());
    }
    println!("{}", reply.text("").unwrap_or_default());
    Ok(())
}
