//! Conversations and checks for the tests of requests to models.

use serde_json::Value;
use turnwire_core::{
    ContentBlock, DataBlock, Fields, HintBlock, Json, Msg, Part, Role, ThinkingBlock, ToolCall,
    ToolResult, ToolResultState,
};
use turnwire_testkit::{check_property, values};
use turnwire_wires::model_request::{OutputFormat, SpeakerFormat, ToolDefinition};
use turnwire_wires::{Request, Wire};

/// The body of a request.
pub fn body(wire: &str, request: &Request<'_>) -> Value {
    let body = Wire::named(wire).unwrap().model_request(request).unwrap();
    serde_json::from_str(body.text()).unwrap()
}

/// The body of a request with only these messages.
pub fn messages_body(wire: &str, messages: &[Msg]) -> Value {
    body(wire, &Request { model: "m", messages, ..Request::default() })
}

pub fn weather() -> ToolDefinition {
    ToolDefinition {
        name: "get_weather".into(),
        description: "The weather of a city".into(),
        input_schema: Json::parse(r#"{"type":"object","properties":{"city":{"type":"string"}}}"#)
            .unwrap(),
        ..ToolDefinition::default()
    }
}

pub fn answer_format() -> OutputFormat {
    OutputFormat::new("answer", Json::parse(r#"{"type":"object"}"#).unwrap())
}

/// Two parallel calls: one returns text and an image, one is denied. Then the answer.
pub fn tool_round() -> Vec<Msg> {
    let map = DataBlock::bytes(b"\x89PNG", "image/png");
    vec![
        Msg::user("ann", "Paris or Rome?"),
        Msg::assistant(
            "friday",
            [
                "Let me look.".into(),
                ContentBlock::from(ToolCall::new("c1", "get_weather", r#"{"city": "Paris"}"#)),
                ToolCall::new("c2", "get_weather", "").into(),
                ToolResult::success("c1", [Part::from("sunny"), map.into()])
                    .named("get_weather")
                    .into(),
                ToolResult {
                    state: ToolResultState::Denied,
                    ..ToolResult::error("c2", "not allowed").named("get_weather")
                }
                .into(),
                "Paris.".into(),
            ],
        ),
    ]
}

/// A call without a result, and one whose input is not JSON.
pub fn crashed_round() -> Vec<Msg> {
    vec![
        Msg::user("ann", "Go."),
        Msg::assistant(
            "friday",
            [
                ContentBlock::from(ToolCall::new("c1", "f", r#"{"n":12345678901234567890123}"#)),
                ToolCall::new("c2", "f", r#"{"city": "Par"#).into(),
            ],
        ),
        Msg::user("ann", "Again."),
    ]
}

/// A hint between two texts of one reply.
pub fn hinted_reply() -> Vec<Msg> {
    vec![
        Msg::user("ann", "Hi"),
        Msg::assistant(
            "friday",
            ["One.".into(), ContentBlock::from(HintBlock::new("Time is up.")), "Two.".into()],
        ),
    ]
}

/// Several agents; one of them calls a tool.
pub fn team() -> Vec<Msg> {
    vec![
        Msg::system("sys", "Be brief."),
        Msg::user("ann", "Who is right?"),
        Msg::assistant("bob", "I am."),
        Msg::assistant(
            "friday",
            [
                ContentBlock::from(ToolCall::new("c1", "f", "{}")),
                ToolResult::success("c1", "ok").into(),
            ],
        ),
        Msg::assistant("eve", "No, I am."),
    ]
}

/// A thinking block with extra fields of a provider.
pub fn thinking(text: &str, extra: &[(&str, &str)]) -> ContentBlock {
    let rest: Fields = extra.iter().map(|(key, value)| (*key, *value)).collect();
    ThinkingBlock { rest, ..ThinkingBlock::new(text) }.into()
}

/// Checks that metadata of messages and results, times and unknown fields are never sent to a provider.
pub fn metadata_never_reaches(wire: &str) {
    const SECRET: &str = "S3CRET";
    let mark = |fields: &mut Fields| fields.insert("x_secret", SECRET);
    check_property("metadata_never_reaches_a_provider", 300, |rng| {
        let messages: Vec<Msg> = (0..rng.usize(1..6))
            .map(|_| {
                let msg = values::message(rng);
                let mut content = msg.content().to_vec();
                for block in &mut content {
                    match block {
                        ContentBlock::Text(block) => mark(&mut block.rest),
                        ContentBlock::Thinking(block) => mark(&mut block.rest),
                        ContentBlock::Data(block) => mark(&mut block.rest),
                        ContentBlock::Hint(block) => {
                            block.source = Some(SECRET.to_owned());
                            mark(&mut block.rest);
                        }
                        ContentBlock::ToolCall(block) => mark(&mut block.rest),
                        ContentBlock::ToolResult(block) => {
                            mark(&mut block.metadata);
                            mark(&mut block.rest);
                        }
                        ContentBlock::Other(item) => mark(item),
                    }
                }
                let mut rest = msg.rest().clone();
                mark(&mut rest);
                let msg = msg.to_builder().content(content).rest(rest).id(SECRET);
                let msg = msg.metadata("x_secret", SECRET).created_at(SECRET).finished_at(SECRET);
                msg.structured_output(SECRET).build().unwrap()
            })
            .collect();
        for speaker_format in
            [SpeakerFormat::SingleAgent, SpeakerFormat::HistoryTags, SpeakerFormat::NamePrefix]
        {
            let request =
                Request { model: "m", messages: &messages, speaker_format, ..Request::default() };
            let body = body(wire, &request).to_string();
            assert!(!body.contains(SECRET), "{body}");
        }
    });
}

/// Checks that every call has exactly one result in any conversation. `calls` and `results` find the ids in a body.
pub fn every_call_gets_one_result(
    wire: &str,
    calls: fn(&Value) -> Vec<String>,
    results: fn(&Value) -> Vec<String>,
) {
    check_property("every_call_gets_one_result", 500, |rng| {
        let messages: Vec<Msg> = (0..rng.usize(1..6)).map(|_| values::message(rng)).collect();
        let expected = messages
            .iter()
            .filter(|msg| msg.role() == Role::Assistant)
            .flat_map(|msg| msg.blocks::<ToolCall>().map(|call| call.id.clone()))
            .collect::<Vec<_>>();
        let body = messages_body(wire, &messages);
        assert_eq!(calls(&body), expected, "{body}");
        assert_eq!(results(&body), expected, "{body}");
    });
}
