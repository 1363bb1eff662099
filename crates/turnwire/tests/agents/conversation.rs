//! Messages and replies; approvals, client-side tools, metrics.

use crate::fake_provider::{FakeOutput, FakeProvider, ReceivedRequest, text};
use crate::harness::{KEY, TestServer, friday_settings, message_text};
use serde_json::{Value, json};

/// Holds the reply to `hold`, and echoes everything else.
fn echo(request: &ReceivedRequest) -> Vec<FakeOutput> {
    let last = request.last_message();
    match last["content"].as_str().unwrap_or_default() {
        "hold" => vec![
            FakeOutput::Text("Wait".into()),
            FakeOutput::Hold,
            FakeOutput::Text(" no more.".into()),
        ],
        input => text(format!("{}: {input}", last["role"].as_str().unwrap())),
    }
}

/// Calls `open_page` for each user message, then repeats the result.
fn calls_open_page(request: &ReceivedRequest) -> Vec<FakeOutput> {
    match request.last_message()["role"].as_str() {
        Some("tool") => {
            text(format!("It says {}.", request.last_message()["content"].as_str().unwrap()))
        }
        _ => {
            vec![FakeOutput::Call("c1", "open_page", json!({"url": "https://news.example/today"}))]
        }
    }
}

const OPEN_PAGE: &str = "tools = [\"external:*\"]\n[external_tools.open_page]\ndescription = \"Open a page\"\n\
    input = { type = \"object\", properties = { url = { type = \"string\" } } }\n";

#[tokio::test]
async fn a_message_goes_in_and_a_reply_comes_out() {
    let provider = FakeProvider::start(echo).await;
    let lines = "about = \"Knows it all\"\nprice_per_million = { input = 2.0, output = 10.0, cache_input = 1.0 }";
    let server = TestServer::start(&friday_settings(&provider, lines));
    let agents = server.get("/v1/agents").await;
    let own = agents["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == "friday");
    assert_eq!(
        own.unwrap(),
        &json!({"name": "friday", "about": "Knows it all", "model": "openai:fake", "default": true,
            "price_per_million": {"input": 2.0, "output": 10.0, "cache_input": 1.0}})
    );
    server.create_session("s").await;
    let mut watch = server.watch("/v1/sessions/s/events?after=now").await;
    let reply = server.send_message("s", "hello").await;
    let mut reply_text = String::new();
    let end = loop {
        let event = watch.next().await.unwrap();
        if event["type"] == "TEXT_BLOCK_DELTA" {
            reply_text += event["delta"].as_str().unwrap();
        } else if event["type"] == "REPLY_END" {
            break event;
        }
    };
    assert_eq!(
        (reply_text.as_str(), &end["finished_reason"]),
        ("user: hello", &json!("completed"))
    );
    let message = server.message("s", &reply).await;
    assert_eq!(message_text(&message), "user: hello");
    assert_eq!(message["usage"]["input_tokens"], 1000);
    // The request to the model, and its API key.
    let request = provider.requests();
    assert_eq!(request[0].body["messages"][0]["content"], "You are Friday.");
    assert!(request[0].head.contains(&format!("Bearer {KEY}")), "{}", request[0].head);
    // The second turn has the first in its history.
    server.send_message("s", "again").await;
    let session = server.until("s", "idle").await;
    let history = provider.requests()[1].body["messages"].clone();
    assert_eq!(history.as_array().unwrap().len(), 4);
    assert_eq!(history[2]["content"], "user: hello");
    // Twice 600 at 2, 400 at 1 and 10 at 10, of a million.
    assert_eq!(session["usage"]["output_tokens"], 20);
    let cost = session["cost"].as_f64().unwrap();
    assert!((cost - 0.0034).abs() < 1e-12, "{cost}");
    let lines = [
        "turnwire_tokens_total{agent=\"friday\",kind=\"input\"} 2000",
        "turnwire_tokens_total{agent=\"friday\",kind=\"output\"} 20",
        "turnwire_tokens_total{agent=\"friday\",kind=\"cache_input\"} 800",
        "turnwire_replies_total{agent=\"friday\",reason=\"completed\"} 2",
        "turnwire_replies_running{agent=\"friday\"} 0",
        "turnwire_model_first_token_seconds_count{agent=\"friday\"} 2",
        "turnwire_model_call_duration_seconds_count{agent=\"friday\"} 2",
        "turnwire_cost_total{agent=\"friday\"} 0.0034",
    ];
    server.counts(&lines).await;
}

#[tokio::test]
async fn a_second_message_is_refused_or_queued() {
    let provider = FakeProvider::start(echo).await;
    let server = TestServer::start(&friday_settings(&provider, ""));
    server.create_session("s").await;
    let mut watch = server.watch("/v1/sessions/s/events").await;
    let first = server.send_message("s", "hold").await;
    watch.until("TEXT_BLOCK_DELTA").await;
    let refused = server.post("/v1/sessions/s/messages", json!({"content": "me too"})).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let queued =
        server.post("/v1/sessions/s/messages?queue=true", json!({"content": "later"})).await;
    assert_eq!(queued.status, 202);
    server.counts(&["turnwire_replies_running{agent=\"friday\"} 1"]).await;
    provider.gate.add_permits(1);
    watch.until("REPLY_END").await;
    watch.until("REPLY_END").await;
    assert_eq!(message_text(&server.message("s", &first).await), "Wait no more.");
    let second = queued.json()["reply_id"].as_str().unwrap().to_owned();
    assert_eq!(message_text(&server.message("s", &second).await), "user: later");
}

#[tokio::test]
async fn a_stop_ends_the_reply_and_cancels_the_model_call() {
    let provider = FakeProvider::start(echo).await;
    let server = TestServer::start(&friday_settings(&provider, ""));
    server.create_session("s").await;
    let mut watch = server.watch("/v1/sessions/s/events").await;
    let reply = server.send_message("s", "hold").await;
    watch.until("TEXT_BLOCK_DELTA").await;
    let stop = json!([{"type": "USER_INTERRUPT", "reply_id": reply}]);
    assert_eq!(server.post("/v1/sessions/s/events", stop).await.status, 200);
    server.until("s", "idle").await;
    let message = server.message("s", &reply).await;
    assert_eq!(message["finished_reason"], "interrupted");
    assert_eq!(message_text(&message), "Wait");
    server.counts(&["turnwire_replies_total{agent=\"friday\",reason=\"interrupted\"} 1"]).await;
    // A stopped reply is a valid history for the model.
    server.send_message("s", "on").await;
    server.until("s", "idle").await;
    assert_eq!(provider.requests()[1].body["messages"][2]["content"], "Wait");
}

/// The pending call and its reply id.
fn pending_call(view: &Value, what: &str) -> (Value, Value) {
    (view["pending"][0]["reply_id"].clone(), view["pending"][0][what][0].clone())
}

#[tokio::test]
async fn an_external_tool_is_approved_executed_by_the_client_and_the_reply_continues() {
    let provider = FakeProvider::start(calls_open_page).await;
    let rules = format!(
        "permissions = [{{ tool = \"open_*\", input = {{ url = \"https://*.example/**\" }}, behavior = \"ask\" }}]\n{OPEN_PAGE}"
    );
    let server = TestServer::start(&friday_settings(&provider, &rules));
    server.create_session("s").await;
    let id = server.send_message("s", "open the news").await;
    let view = server.until("s", "waiting").await;
    assert_eq!(provider.requests()[0].tools(), ["open_page"]);
    let (reply, call) = pending_call(&view, "confirm");
    assert_eq!((&reply, &call["name"]), (&json!(id), &json!("open_page")));
    let confirm = json!([{"type": "USER_CONFIRM_RESULT", "reply_id": reply,
        "confirm_results": [{"confirmed": true, "tool_call": {"id": call["id"]}}]}]);
    let answer = server.post("/v1/sessions/s/events", confirm).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // Now the client executes it.
    let mut watch = server.watch("/v1/sessions/s/events").await;
    watch.until("REQUIRE_EXTERNAL_EXECUTION").await;
    let (_, call) = pending_call(&server.until("s", "waiting").await, "external");
    let result = json!([{"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": id, "execution_results": [
        {"type": "tool_result", "id": call["id"], "name": "open_page", "output": "nothing new",
         "state": "success"}]}]);
    let answer = server.post("/v1/sessions/s/events", result).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    server.until("s", "idle").await;
    assert_eq!(message_text(&server.message("s", &id).await), "It says nothing new.");
}

#[tokio::test]
async fn a_denied_call_is_reported_to_the_model() {
    let provider = FakeProvider::start(calls_open_page).await;
    let rules = format!("permissions = [{{ tool = \"*\", behavior = \"deny\" }}]\n{OPEN_PAGE}");
    let server = TestServer::start(&friday_settings(&provider, &rules));
    server.create_session("s").await;
    let id = server.send_message("s", "open the news").await;
    server.until("s", "idle").await;
    let reply_text = message_text(&server.message("s", &id).await);
    assert!(reply_text.contains("The rules do not allow this call of open_page"), "{reply_text}");
}

#[tokio::test]
async fn a_tool_of_an_openai_client_reaches_the_model_and_its_call_returns() {
    let provider = FakeProvider::start(calls_open_page).await;
    let server = TestServer::start(&friday_settings(&provider, ""));
    let tool = json!({"type": "function", "function": {"name": "open_page", "description": "Opens",
        "parameters": {"type": "object", "properties": {"url": {"type": "string"}}}}});
    let user = json!({"role": "user", "content": "the news"});
    let first = json!({"model": "friday", "messages": [user], "tools": [tool]});
    let first = server.post("/v1/chat/completions", first).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let message = first.json()["choices"][0]["message"].clone();
    let request = provider.requests();
    let sent = &request[0].body["tools"][0]["function"];
    assert_eq!((&sent["name"], &sent["description"]), (&json!("open_page"), &json!("Opens")));
    assert_eq!(sent["parameters"]["properties"]["url"]["type"], "string");
    let call = &message["tool_calls"][0];
    assert_eq!(call["function"]["name"], "open_page");
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"});
    let second = json!({"model": "friday", "messages": [user, message, result], "tools": [tool]});
    let second = server.post("/v1/chat/completions", second).await;
    assert_eq!(second.status, 200, "{}", second.text());
    assert_eq!(second.json()["choices"][0]["message"]["content"], "It says rain.");
    assert_eq!(provider.requests()[1].last_message()["content"], "rain");
}

#[tokio::test]
async fn a_model_that_fails_ends_the_reply_with_its_error_and_no_secret() {
    let provider = FakeProvider::start(|_| vec![FakeOutput::Status(401)]).await;
    let mut server = TestServer::start(&friday_settings(&provider, ""));
    server.create_session("s").await;
    let reply = server.send_message("s", "hello").await;
    server.until("s", "idle").await;
    let message = server.message("s", &reply).await;
    assert_eq!(message["finished_reason"], "error");
    assert_eq!(message["error"]["type"], "authentication", "{message}");
    assert!(message["error"]["message"].as_str().unwrap().contains("check FAKE_KEY"), "{message}");
    let line = "turnwire_replies_total{agent=\"friday\",reason=\"error\"} 1";
    let metrics = server.counts(&[line]).await;
    server.kill();
    let events = server.run(&["sessions", "export", "s"]);
    let everything =
        format!("{}{}{metrics}{message}", server.log(), String::from_utf8_lossy(&events.stdout));
    assert!(!everything.contains(KEY));
}

#[tokio::test]
async fn a_fallback_of_the_same_wire_uses_the_same_base_url() {
    let provider = FakeProvider::start(|request| match request.body["model"].as_str() {
        Some("spare") => text("Here I am."),
        _ => vec![FakeOutput::Status(500)],
    })
    .await;
    let server = TestServer::start(&friday_settings(&provider, "fallback = \"openai:spare\""));
    server.create_session("s").await;
    let reply = server.send_message("s", "hello").await;
    server.until("s", "idle").await;
    assert_eq!(message_text(&server.message("s", &reply).await), "Here I am.");
    assert!(provider.requests()[1].head.contains(KEY));
}

#[tokio::test]
async fn the_fallback_has_its_own_prices() {
    let provider = FakeProvider::start(|request| match request.body["model"].as_str() {
        Some("spare") => text("Here I am."),
        _ if request.last_message()["content"] == "first" => text("I."),
        _ => vec![FakeOutput::Status(500)],
    })
    .await;
    let lines = "price_per_million = { input = 2.0, output = 10.0, cache_input = 1.0 }\n\
        fallback = { model = \"openai:spare\", price_per_million = { input = 4.0, output = 20.0 } }";
    let server = TestServer::start(&friday_settings(&provider, lines));
    server.create_session("s").await;
    // 600 input tokens, 400 of them cached, and 10 output tokens, each time.
    for (words, cost, sum) in [("first", 0.0017, 0.0017), ("second", 0.0042, 0.0059)] {
        let reply = server.send_message("s", words).await;
        let session = server.until("s", "idle").await;
        assert_eq!(server.message("s", &reply).await["metadata"]["cost"], json!(cost));
        assert_eq!(session["cost"], json!(sum));
    }
}

#[tokio::test]
async fn an_agent_can_be_a_tool_of_another_agent() {
    let provider = FakeProvider::start(|request| {
        let is_below = request.body["messages"][0]["content"] == "You look things up.";
        match (is_below, request.last_message()["role"].as_str()) {
            (true, _) => text("Paris"),
            (false, Some("tool")) => {
                text(format!("It is {}.", request.last_message()["content"].as_str().unwrap()))
            }
            (false, _) => {
                vec![FakeOutput::Call("c1", "researcher", json!({"task": "The capital?"}))]
            }
        }
    })
    .await;
    let researcher = format!(
        "tools = [\"agent:*\"]\n[agents.researcher]\nmodel = \"openai:fake\"\nabout = \"Looks things up\"\n\
         base_url = \"http://{}\"\nsystem = \"You look things up.\"\n",
        provider.address
    );
    let server = TestServer::start(&friday_settings(&provider, &researcher));
    server.create_session("s").await;
    let reply = server.send_message("s", "What is the capital of France?").await;
    server.until("s", "idle").await;
    assert_eq!(message_text(&server.message("s", &reply).await), "It is Paris.");
    let sent = &provider.requests()[0].body["tools"][0]["function"];
    assert_eq!(sent["description"], "Looks things up");
    let all = server.get("/v1/sessions/s/messages?agents=all").await;
    let names: Vec<_> = all["messages"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(names.contains(&&json!("researcher")), "{names:?}");
    let lines = [
        "turnwire_tokens_total{agent=\"friday\",kind=\"output\"} 20",
        "turnwire_tokens_total{agent=\"researcher\",kind=\"output\"} 10",
        "turnwire_replies_total{agent=\"researcher\",reason=\"completed\"} 1",
    ];
    server.counts(&lines).await;
}
