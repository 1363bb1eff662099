//! A fake model with prepared answers, which wait for the test.

use async_trait::async_trait;
use futures_util::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Semaphore;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::model::{Model, ModelError, ModelRequest, ModelStream};
use turnwire_core::{EventKind, Folder, HintBlock, Msg, Role};
use turnwire_log::Session;

/// A model whose answers wait after their first block start until the test lets them continue.
pub struct FakeModel {
    answers: Mutex<VecDeque<Vec<ScriptStep>>>,
    asked: Mutex<Vec<Vec<Msg>>>,
    pub gate: Arc<Semaphore>,
}

impl FakeModel {
    pub fn new(answers: impl IntoIterator<Item = Vec<ScriptStep>>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            asked: Mutex::default(),
            gate: Arc::new(Semaphore::new(0)),
        })
    }

    /// The same, without waiting.
    pub fn ungated(answers: impl IntoIterator<Item = Vec<ScriptStep>>) -> Arc<Self> {
        let fake_model = Self::new(answers);
        fake_model.gate.add_permits(1000);
        fake_model
    }

    /// The messages of each request, without system prompts.
    pub fn asked(&self) -> Vec<Vec<Msg>> {
        self.asked.lock().clone()
    }
}

#[async_trait]
impl Model for FakeModel {
    fn name(&self) -> &'static str {
        "stage"
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        let messages = ask.messages.iter().filter(|msg| msg.role() != Role::System);
        self.asked.lock().push(messages.cloned().collect());
        let lines = self.answers.lock().pop_front().unwrap_or_default();
        let gate = self.gate.clone();
        let answer =
            ScriptedModel::new([lines]).stream(ask).await?.enumerate().then(move |(at, event)| {
                let gate = gate.clone();
                async move {
                    // After the start of the call and of its first block.
                    if at == 2 {
                        gate.acquire().await.unwrap().forget();
                    }
                    event
                }
            });
        Ok(answer.boxed())
    }
}

/// Law 10: what the model was sent each time is the fold of the log at that time.
pub async fn check_law_10(session: &Session, asked: &[Vec<Msg>]) {
    let mut folder = Folder::default();
    let mut asked = asked.iter();
    for event in crate::harness::events(session).await {
        if let EventKind::ModelCallStart(_) = &event.kind {
            let by_then = folder.history().filter(|msg| !msg.content().is_empty()).map(comparable);
            let sent = asked.next().expect("it was asked").iter().map(comparable);
            assert_eq!(sent.collect::<Vec<_>>(), by_then.collect::<Vec<_>>());
        }
        folder.push(&event).unwrap();
    }
    assert!(asked.next().is_none());
}

/// The content of a message: times and metadata are not sent to models.
fn comparable(msg: &Msg) -> Value {
    fn plain(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(plain),
            Value::Object(fields) => {
                fields.retain(|key, _| {
                    !matches!(key.as_str(), "created_at" | "finished_at" | "metadata")
                });
                fields.values_mut().for_each(plain);
            }
            _ => {}
        }
    }
    let mut content = serde_json::to_value(msg.content()).unwrap();
    plain(&mut content);
    content
}

/// The texts of all hints.
pub fn hints(messages: &[Msg]) -> Vec<String> {
    let hints = messages.iter().flat_map(Msg::blocks::<HintBlock>);
    hints.map(|hint| hint.hint.text("")).collect()
}
