//! API keys: which header they are sent in, and that they appear nowhere else.

use crate::bodies::{Scene, WIRES, body};
use crate::fake_provider::{FakeProvider, status_response, whole_stream};
use crate::scenes::{collect_events, model_at};
use std::io::Write;
use turnwire_agent::model::Model;
use turnwire_agent::model::http::{ApiKey, HttpModel};
use turnwire_agent::model::script::ScriptedModel;
use turnwire_core::ErrorType;

const HEADERS: [&str; 3] = ["authorization", "x-api-key", "x-goog-api-key"];

#[tokio::test]
async fn a_key_goes_into_one_header_and_nowhere_else() {
    for wire in WIRES {
        let fake = FakeProvider::start([whole_stream(&body(wire, Scene::Text), 99)]).await;
        collect_events(&model_at(wire, &fake).build().unwrap()).await;
        let request = fake.requests().remove(0);
        let found: Vec<&str> = HEADERS.iter().filter_map(|name| request.header(name)).collect();
        let expected = match wire {
            "anthropic" | "gemini" => "sk-secret",
            _ => "Bearer sk-secret",
        };
        assert_eq!(found, [expected], "{wire}");
        assert_eq!(request.head.matches("sk-secret").count(), 1, "{wire}");
        assert!(!request.body.to_string().contains("sk-secret"), "{wire}");
    }
}

#[tokio::test]
async fn the_default_key_is_not_sent_to_another_address() {
    for wire in WIRES {
        let fake = FakeProvider::start([whole_stream(&body(wire, Scene::Text), 99)]).await;
        let name = format!("{wire}:m");
        collect_events(&HttpModel::builder(name).base_url(&fake.base).build().unwrap()).await;
        let request = fake.requests().remove(0);
        assert!(HEADERS.iter().all(|name| request.header(name).is_none()), "{wire}");
    }
}

#[tokio::test]
async fn a_refused_key_is_not_shown_but_where_it_comes_from_is() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "  sk-secret-in-a-file ").unwrap();
    let path = file.path().display().to_string();
    // Cargo sets this one for tests.
    let variable = std::env::var("CARGO_PKG_NAME").unwrap();
    for (key, value, place) in [
        (ApiKey::from_file(file.path()), "sk-secret-in-a-file", path.as_str()),
        (ApiKey::from_env("CARGO_PKG_NAME"), variable.as_str(), "CARGO_PKG_NAME"),
        (ApiKey::none(), "\u{0}", "no key is configured"),
    ] {
        let echo = format!(
            r#"{{"error":{{"message":"Incorrect API key provided: {}"}}}}"#,
            value.escape_debug()
        );
        let echo = echo.replace("\\u{0}", "none");
        for text in [echo, format!("no such key: {value}")] {
            let fake = FakeProvider::start([status_response("401 Unauthorized", "", &text)]).await;
            let model = model_at("anthropic", &fake).key(key.clone()).build().unwrap();
            let (_, error) = collect_events(&model).await;
            let error = error.unwrap();
            assert_eq!(error.kind, ErrorType::Authentication);
            assert!(error.message.contains(place), "{error}");
            let printed = format!("{error} {error:?} {model:?}");
            assert!(!printed.contains(value), "{printed}");
        }
    }
}

#[tokio::test]
async fn a_key_is_read_for_each_request() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let fake = FakeProvider::start(vec![status_response("400 Bad Request", "", ""); 2]).await;
    let model = model_at("openai", &fake).key(ApiKey::from_file(file.path())).build().unwrap();
    let (_, error) = collect_events(&model).await;
    assert_eq!(error.unwrap().kind, ErrorType::Authentication, "the file is empty");
    assert!(fake.requests().is_empty(), "nothing was sent");
    for key in ["first", "second"] {
        std::fs::write(file.path(), key).unwrap();
        collect_events(&model).await;
    }
    let requests = fake.requests();
    let sent: Vec<_> =
        requests.iter().map(|request| request.header("authorization").unwrap()).collect();
    assert_eq!(sent, ["Bearer first", "Bearer second"]);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere =
        FakeProvider::start([whole_stream(&body("openai-chat", Scene::Text), 99)]).await;
    for line in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("location: {}/v1/chat/completions\r\n", elsewhere.base);
        let fake = FakeProvider::start([status_response(line, &location, "")]).await;
        let (events, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
        assert!(events.is_empty());
        let error = error.unwrap();
        assert_eq!(error.kind, ErrorType::Setup);
        assert!(error.message.contains("not followed"), "{error}");
        assert!(error.message.contains(&elsewhere.base), "{error}");
        assert_eq!(fake.requests().len(), 1);
    }
    assert!(elsewhere.requests().is_empty());
}

#[test]
fn a_model_that_cannot_be_built_returns_the_reason() {
    let why = |name: &str, base: &str| {
        HttpModel::builder(name).base_url(base).build().unwrap_err().message
    };
    assert!(why("gpt-5", "http://h").contains("WIRE:MODEL"));
    assert!(why("openai:", "http://h").contains("openai:MODEL"));
    assert!(why("openai:m", "ftp://h").contains("neither http nor https"));
    assert!(why("openai:m", "http://sk-secret@h").contains("configure the key separately"));
    assert!(!why("openai:m", "http://sk-secret@h").contains("sk-secret"));
}

#[test]
fn a_schema_is_for_those_that_can_be_held_to_it() {
    let model = |name: &str| HttpModel::builder(name);
    assert!(model("openai:m").build().unwrap().has_schema_mode());
    assert!(model("ollama:m").base_url("http://h").build().unwrap().has_schema_mode());
    let other = || model("openai:m").base_url("http://h");
    assert!(!other().build().unwrap().has_schema_mode());
    assert!(other().with_schema_mode().build().unwrap().has_schema_mode());
    assert!(!model("gemini:m").without_schema_mode().build().unwrap().has_schema_mode());
    assert!(other().build().unwrap().takes_response_format(), "a client that asks knows it");
    assert!(!other().without_schema_mode().build().unwrap().takes_response_format());
    let spare = model("gemini:m").fallback(ScriptedModel::default()).build().unwrap();
    assert!(!spare.has_schema_mode(), "the fallback cannot");
    assert!(!spare.takes_response_format(), "the fallback cannot");
}
