//! The smallest agent: a model, a system prompt, and an answer that streams.
//!
//! The model here plays a script, so that the example runs offline.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use futures_util::StreamExt;
use turnwire_agent::Agent;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_core::{EventKind, Msg};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), turnwire_agent::AgentError> {
    let words = ["Hello", ", Ann", "! How can", " I help?"].map(str::to_owned);
    let friday =
        Agent::builder("friday", ScriptedModel::new([vec![ScriptStep::Text(words.into())]]))
            .system("You are Friday.")
            .build();

    let mut events = friday.reply([Msg::user("ann", "Hi!")]);
    while let Some(event) = events.next().await {
        match event?.kind {
            EventKind::TextBlockDelta(delta) => println!("… {}", delta.delta),
            other => println!("{}", other.type_name()),
        }
    }
    Ok(())
}
