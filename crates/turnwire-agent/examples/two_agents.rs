//! Two agents talk. Each reads the whole conversation, with the names of the speakers.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use turnwire_agent::Agent;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_core::Msg;
use turnwire_wires::model_request::SpeakerFormat;

fn debater(name: &str, words: &[&str]) -> Agent {
    Agent::builder(name, ScriptedModel::new(words.iter().map(|text| vec![ScriptStep::text(text)])))
        .system(format!("You are {name}. Argue your side in one sentence."))
        .speakers(SpeakerFormat::HistoryTags)
        .build()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), turnwire_agent::CallError> {
    let cat = debater("cat", &["Sleep is the point of a day.", "Running ends in a nap, too."]);
    let dog = debater("dog", &["A day without a run is no day.", "Then let us run first!"]);

    let mut messages = vec![Msg::user("ann", "What is a good day?")];
    for agent in [&cat, &dog, &cat, &dog] {
        let reply = agent.call(messages.iter().cloned()).await?;
        println!("{}: {}", reply.name(), reply.text("").unwrap_or_default());
        messages.push(reply);
    }
    Ok(())
}
