//! The cost of replies: logged once at the current prices, and summed up.

use crate::fake_model::FakeModel;
use crate::harness::*;
use crate::test_store::test_store;
use async_trait::async_trait;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::model::{MODEL_METADATA_KEY, Model, ModelError, ModelRequest, ModelStream};
use turnwire_agent::{Agent, AgentTool, Replier};
use turnwire_core::EventKind;
use turnwire_log::Store;

/// Prices are per million tokens.
const SETTINGS: &str = r#"
[agents.friday]
model = "openai:big"
price_per_million = { input = 1000000, output = 2000000 }
fallback = { model = "anthropic:other", price_per_million = { input = 10000000, output = 20000000 } }
tools = ["agent:helper"]

[agents.helper]
model = "openai:small"
price_per_million = { input = 100000, output = 200000 }

[agents.free]
model = "openai:small"
"#;

/// A model that reports its name, like those over HTTP.
struct NamedModel(&'static str, Arc<FakeModel>);

#[async_trait]
impl Model for NamedModel {
    fn name(&self) -> &str {
        self.0
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        let name = self.0;
        let answer = self.1.stream(ask).await?.map(move |event| {
            event.map(|mut event| {
                if let EventKind::ModelCallEnd(_) = event.kind {
                    event.metadata.insert(MODEL_METADATA_KEY, name);
                }
                event
            })
        });
        Ok(answer.boxed())
    }
}

fn agent(model: &'static str, says: &[&str]) -> Agent {
    let fake_model = FakeModel::ungated(says.iter().map(|text| vec![ScriptStep::text(text)]));
    Agent::builder("friday", NamedModel(model, fake_model)).build()
}

fn harness(store: &Arc<dyn Store>, settings: &str, friday: Agent) -> Harness {
    let store: Arc<dyn Store> = store.clone();
    let free = agent("openai:small", &["Hi."; 9]);
    let friday: Arc<dyn Replier> = Arc::new(friday);
    Harness::with_agents(store, settings, vec![("friday", friday), ("free", Arc::new(free))])
}

async fn view(server: &Harness) -> Value {
    server.request_json("GET", "/v1/sessions/s", None, &Value::Null).await.body
}

async fn cost_of(server: &Harness, reply: &str) -> Value {
    let path = format!("/v1/sessions/s/messages/{reply}");
    let message = server.request_json("GET", &path, None, &Value::Null).await.body;
    message["metadata"]["cost"].clone()
}

#[tokio::test]
async fn a_call_costs_what_its_model_costs_at_that_moment() {
    // One token in, one out.
    let store = test_store();
    for (life, (model, settings, cost, sum)) in [
        ("openai:big", SETTINGS.to_owned(), json!(3.0), json!(3.0)),
        ("anthropic:other", SETTINGS.to_owned(), json!(30.0), json!(33.0)),
        // The prices have changed: the logged cost stays.
        ("openai:big", SETTINGS.replace("1000000,", "500000,"), json!(2.5), json!(35.5)),
        ("openai:big", String::new(), Value::Null, json!(35.5)),
    ]
    .into_iter()
    .enumerate()
    {
        let server = harness(&store, &settings, agent(model, &["Hi."]));
        let session = server.session("s", "friday").await;
        let before = view(&server).await["cost"].clone();
        let reply = server.send_text("hi").await.body["reply_id"].as_str().unwrap().to_owned();
        until_idle(&session).await;
        assert_eq!(cost_of(&server, &reply).await, cost, "{life}");
        assert_eq!(view(&server).await["cost"], sum, "{life}");
        assert!(life == 0 || before.is_number(), "{life}: it is kept");
        let metrics = server.app.metrics.text();
        let line = "turnwire_cost_total{agent=\"friday\"}";
        match &cost {
            Value::Null => assert!(!metrics.contains(line)),
            cost => assert!(metrics.contains(&format!("{line} {cost}")), "{metrics}"),
        }
        check_projection(&session).await;
    }
}

#[tokio::test]
async fn a_reply_that_was_replaced_is_paid_for_all_the_same() {
    let store = test_store();
    let server = harness(&store, SETTINGS, agent("openai:big", &["Hi."; 9]));
    let session = server.session("s", "friday").await;
    let reply = server.send_text("hi").await.body["reply_id"].as_str().unwrap().to_owned();
    until_idle(&session).await;
    server.post(&format!("/v1/sessions/s/messages/{reply}/retry"), Value::Null).await;
    until_idle(&session).await;
    let view = view(&server).await;
    assert_eq!((&view["cost"], &view["usage"]["output_tokens"]), (&json!(6.0), &json!(2)));
}

#[tokio::test]
async fn a_reply_that_is_stopped_says_what_it_had_cost() {
    let store = test_store();
    let fake_model =
        FakeModel::new([vec![ScriptStep::call("c", "ask", "{}")], vec![ScriptStep::text("So.")]]);
    let friday = Agent::builder("friday", fake_model.clone());
    let ask = turnwire_agent::tool::function(
        "ask",
        "",
        async |_: std::collections::BTreeMap<String, String>| {
            Ok::<_, turnwire_agent::tool::ToolError>("yes")
        },
    );
    let server = harness(&store, SETTINGS, friday.tool(ask).build());
    let session = server.session("s", "friday").await;
    let reply = server.send_text("hi").await.body["reply_id"].as_str().unwrap().to_owned();
    fake_model.gate.add_permits(1);
    eventually(|| fake_model.asked().len() == 2).await;
    server.stop(&session).await;
    assert_eq!(cost_of(&server, &reply).await, json!(3.0));
    assert_eq!(view(&server).await["cost"], json!(3.0));
}

#[tokio::test]
async fn each_agent_is_counted_by_its_own_prices() {
    let store = test_store();
    let helper = FakeModel::ungated([vec![ScriptStep::text("Found.")]]);
    let helper = Agent::builder("helper", NamedModel("openai:small", helper)).build();
    let fake_model = FakeModel::ungated([
        vec![ScriptStep::call("c", "helper", r#"{"task":"find"}"#)],
        vec![ScriptStep::text("There.")],
    ]);
    let friday = Agent::builder("friday", NamedModel("openai:big", fake_model));
    let friday = friday.tool(AgentTool::new(helper, "Helps")).build();
    let server = harness(&store, SETTINGS, friday);
    let session = server.session("s", "friday").await;
    let other = server.session("other", "free").await;
    server.post("/v1/sessions/other/messages", json!({"content": "hi"})).await;
    until_idle(&other).await;
    let reply = server.send_text("find it").await.body["reply_id"].as_str().unwrap().to_owned();
    until_idle(&session).await;
    // Two calls of its own; that of the helper is in the helper's message.
    assert_eq!(cost_of(&server, &reply).await, json!(6.0));
    assert_eq!(cost_of(&server, &format!("{reply}.0")).await, json!(0.3));
    let view = view(&server).await;
    assert_eq!((&view["cost"], &view["usage"]["input_tokens"]), (&json!(6.3), &json!(3)));
    let metrics = server.app.metrics.text();
    for line in [
        "turnwire_cost_total{agent=\"friday\"} 6.0",
        "turnwire_cost_total{agent=\"helper\"} 0.3",
        "turnwire_tokens_total{agent=\"helper\",kind=\"output\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let agents = server.request_json("GET", "/v1/agents?usage=true", None, &Value::Null).await.body;
    let spent = |name: &str| {
        let agents = agents["agents"].as_array().unwrap();
        let agent = agents.iter().find(|agent| agent["name"] == name).unwrap();
        (agent["usage"]["input_tokens"].clone(), agent["cost"].clone())
    };
    // The helper is not an agent of its own here.
    assert_eq!(spent("friday"), (json!(3), json!(6.3)));
    assert_eq!(spent("free"), (json!(1), Value::Null));
    assert_eq!(spent("demo"), (json!(0), Value::Null));
    let plain = server.request_json("GET", "/v1/agents", None, &Value::Null).await.body;
    assert_eq!(plain["agents"][0]["usage"], Value::Null);
}

#[tokio::test]
async fn what_an_agent_elsewhere_says_that_a_call_cost_is_added_up() {
    let server = Harness::new();
    let session = server.session("s", "external").await;
    let of = |id: &str, kind: &str, cost: Value| {
        json!({"type": kind, "id": id, "reply_id": "r", "session_id": "s", "name": "far",
            "model_name": "m", "usage": {"input_tokens": 1}, "metadata": {"cost": cost}})
    };
    let events = json!([
        of("1", "REPLY_START", json!(7)),
        of("2", "MODEL_CALL_END", json!(0.1)),
        of("3", "MODEL_CALL_END", json!(-5)),
        of("4", "MODEL_CALL_END", json!("much")),
        of("5", "MODEL_CALL_END", json!(0.2)),
        of("6", "REPLY_END", Value::Null),
    ]);
    let request = http::Request::post("/v1/sessions/s/events").header("turnwire-producer", "p.1");
    let body = axum::body::Body::from(events.to_string());
    assert_eq!(server.request(request.body(body).unwrap()).await.status(), 200);
    until_idle(&session).await;
    assert_eq!(view(&server).await["cost"], json!(0.3));
}
