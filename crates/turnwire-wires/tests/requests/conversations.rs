//! Conversations that the tests write as requests to every provider.

use serde_json::json;
use turnwire_core::{
    ContentBlock, DataBlock, Fields, HintBlock, Json, Msg, Part, Payload, Role, TextBlock,
    ThinkingBlock, ToolCall, ToolResult, ToolResultState,
};
use turnwire_wires::Request;
use turnwire_wires::model_request::{OutputFormat, SpeakerFormat, ToolChoice, ToolDefinition};

/// A conversation with the options of its request.
#[derive(Default)]
pub struct Conversation {
    pub name: &'static str,
    pub messages: Vec<Msg>,
    pub tools: Vec<ToolDefinition>,
    pub tool_choice: ToolChoice,
    pub output: Option<OutputFormat>,
    pub agents: SpeakerFormat,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub extra: Fields,
}

impl Conversation {
    pub fn request(&self) -> Request<'_> {
        Request {
            model: "test-model",
            messages: &self.messages,
            tools: &self.tools,
            tool_choice: self.tool_choice.clone(),
            output: self.output.as_ref(),
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            speaker_format: self.agents,
            prompt_caching: false,
            stream: true,
            options: turnwire_wires::ModelOptions::default(),
            extra: self.extra.clone(),
        }
    }
}

/// The value of all metadata: it must not be in any request.
pub const SECRET: &str = "metadata-of-ours";

fn weather() -> ToolDefinition {
    ToolDefinition {
        name: "get_weather".to_owned(),
        description: "The weather of a city".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        })
        .into(),
        ..ToolDefinition::default()
    }
}

fn clock() -> ToolDefinition {
    ToolDefinition {
        name: "get_time".to_owned(),
        description: String::new(),
        input_schema: json!({"type": "object", "properties": {}}).into(),
        ..ToolDefinition::default()
    }
}

fn user(text: &str) -> Msg {
    let msg = Msg::builder(Role::User).name("ann").text(text).metadata("note", SECRET);
    msg.build().unwrap()
}

fn friday(content: Vec<ContentBlock>) -> Msg {
    let msg = Msg::builder(Role::Assistant).name("friday").content(content);
    msg.metadata("note", SECRET).build().unwrap()
}

fn call(id: &str, name: &str, input: &str) -> ContentBlock {
    ToolCall::new(id, name, input).into()
}

fn result(id: &str, name: &str, output: impl Into<Payload>) -> ToolResult {
    let mut result = ToolResult::success(id, output).named(name);
    result.metadata.insert("note", SECRET);
    result
}

fn in_state(state: ToolResultState, result: ToolResult) -> ContentBlock {
    ToolResult { state, ..result }.into()
}

/// The bytes of an image that is not real.
fn picture() -> DataBlock {
    DataBlock::bytes(b"not really a picture", "image/png")
}

fn conversation(name: &'static str, messages: Vec<Msg>) -> Conversation {
    Conversation { name, messages, ..Conversation::default() }
}

fn with_tools(name: &'static str, messages: Vec<Msg>) -> Conversation {
    Conversation { tools: vec![weather(), clock()], ..conversation(name, messages) }
}

fn paris() -> ContentBlock {
    call("call_1", "get_weather", r#"{"city": "Paris"}"#)
}

/// All conversations.
pub fn all() -> Vec<Conversation> {
    let mut all = text_conversations();
    all.extend(tool_conversations());
    all.extend(provider_item_conversations());
    all.extend(media_conversations());
    all.extend(tool_choice_conversations());
    all.extend(odd_call_conversations());
    all.extend(speaker_conversations());
    all.extend(setting_conversations());
    all
}

fn text_conversations() -> Vec<Conversation> {
    let mut signed = ThinkingBlock::new("She greets me.");
    signed.rest.insert("signature", "c2lnbmVk");
    vec![
        conversation("plain", vec![user("hello")]),
        conversation(
            "system and several turns",
            vec![
                Msg::system("", "Be brief."),
                user("hello"),
                friday(vec!["Hi!".into()]),
                user("and again"),
            ],
        ),
        conversation(
            "thinking, signed by Anthropic",
            vec![user("hello"), friday(vec![signed.into(), "Hi!".into()]), user("again")],
        ),
        conversation(
            "a hint in the middle",
            vec![
                user("hello"),
                friday(vec![
                    "One.".into(),
                    HintBlock::new("The build is green.").into(),
                    "Two.".into(),
                ]),
                user("again"),
            ],
        ),
    ]
}

/// Messages in an order that some providers refuse.
fn tool_conversations() -> Vec<Conversation> {
    vec![
        conversation("nothing at all", Vec::new()),
        conversation("only the system has spoken", vec![Msg::system("", "Be brief.")]),
        conversation(
            "the assistant begins",
            vec![friday(vec!["Hello, I am Friday.".into()]), user("hi")],
        ),
        conversation("the assistant ends", vec![user("hello"), friday(vec!["Hi! ".into()])]),
        conversation("two users in a row", vec![user("hello"), user("are you there?")]),
        with_tools(
            "two replies in a row",
            vec![
                user("weather"),
                friday(vec!["Let me look.".into()]),
                friday(vec![paris(), result("call_1", "get_weather", "sunny").into()]),
            ],
        ),
        conversation(
            "the system speaks again",
            vec![
                Msg::system("", "Be brief."),
                user("hello"),
                friday(vec!["Hi!".into()]),
                Msg::system("", "It is late."),
                user("bye"),
            ],
        ),
        conversation(
            "nothing but space",
            vec![user(" \n"), friday(vec!["".into(), "\n\n".into(), "Hi!".into()]), user("hello")],
        ),
        conversation(
            "other scripts",
            vec![user("你好，世界 🌍"), friday(vec!["Grüße \u{0} \"\\".into()]), user("مرحبا")],
        ),
        conversation(
            "a hint with an image",
            vec![
                user("hello"),
                friday(vec!["One.".into(), hint(vec!["This is new:".into(), picture().into()])]),
            ],
        ),
    ]
}

fn hint(parts: Vec<Part>) -> ContentBlock {
    let mut hint = HintBlock::new(parts);
    hint.source = Some(SECRET.to_owned());
    hint.into()
}

fn thinking(text: &str, extra: serde_json::Value) -> ContentBlock {
    let rest: Fields = serde_json::from_value(extra).unwrap();
    ThinkingBlock { rest, ..ThinkingBlock::new(text) }.into()
}

fn item(item: serde_json::Value) -> ContentBlock {
    ContentBlock::Other(serde_json::from_value(item).unwrap())
}

/// Items that must be sent back to the provider that made them, and to no other.
fn provider_item_conversations() -> Vec<Conversation> {
    let with = |name, mut content: Vec<ContentBlock>| {
        content.push("Hi!".into());
        conversation(name, vec![user("hello"), friday(content), user("again")])
    };
    let mut signed_call = ToolCall::new("call_1", "get_weather", r#"{"city": "Paris"}"#);
    signed_call.rest.insert("thought_signature", "Z2VtaW5p");
    vec![
        with_tools(
            "thinking before a call, signed by Anthropic",
            vec![
                user("weather"),
                friday(vec![
                    thinking("I look it up.", json!({"signature": "c2lnbmVk"})),
                    paris(),
                    result("call_1", "get_weather", "sunny").into(),
                ]),
            ],
        ),
        with(
            "thinking, redacted by Anthropic",
            vec![thinking("", json!({"redacted_thinking_data": "cmVkYWN0ZWQ="}))],
        ),
        with(
            "thinking, encrypted by OpenAI",
            vec![thinking(
                "She greets me.",
                json!({
                    "item_id": "rs_1",
                    "summary": [{"type": "summary_text", "text": "She greets me."}],
                    "encrypted_content": "ZW5jcnlwdGVk",
                }),
            )],
        ),
        with(
            "thinking as DeepSeek writes it",
            vec![thinking("She greets me.", json!({"reasoning_field": "reasoning_content"}))],
        ),
        conversation(
            "thinking that broke off",
            vec![
                user("hello"),
                friday(vec![
                    "Hm.".into(),
                    thinking("She", json!({"signature": "c2lnbmVk"})),
                    thinking(
                        "She",
                        json!({"item_id": "rs_1", "summary": [], "encrypted_content": "eA=="}),
                    ),
                ]),
                user("again"),
            ],
        ),
        with_tools(
            "a call, signed by Gemini",
            vec![
                user("weather"),
                friday(vec![
                    thinking("Where is she?", json!({})),
                    signed_call.into(),
                    result("call_1", "get_weather", "sunny").into(),
                ]),
            ],
        ),
        with(
            "a search by Anthropic",
            vec![
                item(json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
                    "input": {"query": "x"}, "from_wire": "anthropic"})),
                item(json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
                    "content": [], "from_wire": "anthropic"})),
            ],
        ),
        with(
            "a search by Anthropic that broke off",
            vec![item(json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
                "input": {"query": "x"}, "from_wire": "anthropic"}))],
        ),
        with(
            "a search by OpenAI",
            vec![item(json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
                "action": {"type": "search", "query": "x"}, "from_wire": "openai-responses"}))],
        ),
        with(
            "code run by Gemini",
            vec![item(json!({"type": "gemini_part", "from_wire": "gemini",
                "part": {"executableCode": {"language": "PYTHON", "code": "1"}}}))],
        ),
        with("an item of nobody's", vec![item(json!({"type": "x", "note": SECRET}))]),
    ]
}

fn media_conversations() -> Vec<Conversation> {
    let parts = |parts: Vec<DataBlock>| {
        let mut content: Vec<ContentBlock> = vec!["What is this?".into()];
        content.extend(parts.into_iter().map(ContentBlock::from));
        vec![Msg::builder(Role::User).content(content).build().unwrap()]
    };
    let older: DataBlock = serde_json::from_value(json!({
        "type": "image",
        "source": {"type": "base64", "data": "/9j/4AAQSkZJRg=="},
    }))
    .unwrap();
    let mut report = DataBlock::bytes(b"%PDF-1.4", "application/pdf");
    report.name = Some("report.pdf".to_owned());
    vec![
        conversation("an image as bytes", parts(vec![picture()])),
        conversation(
            "an image elsewhere",
            parts(vec![DataBlock::url("https://example.com/a.png", "image/png")]),
        ),
        conversation("sound", parts(vec![DataBlock::bytes(b"not really sound", "audio/wav")])),
        conversation("a file", parts(vec![report])),
        conversation(
            "a text file",
            parts(vec![DataBlock {
                name: Some("notes.md".to_owned()),
                ..DataBlock::bytes("# Notes", "text/markdown; charset=utf-8")
            }]),
        ),
        conversation(
            "a film",
            parts(vec![DataBlock::url("https://example.com/a.mp4", "video/mp4")]),
        ),
        conversation(
            "an image in its URL",
            parts(vec![DataBlock::url("data:image/png;base64,AQID", "")]),
        ),
        conversation("an older image block", parts(vec![older])),
        conversation("an image without bytes", parts(vec![DataBlock::bytes([], "image/png")])),
        conversation(
            "images of all kinds",
            parts(
                ["image/jpg", "image/gif", "image/webp", "image/svg+xml", "image/bmp"]
                    .map(|kind| DataBlock::bytes(b"no picture", kind))
                    .into(),
            ),
        ),
        conversation(
            "an image that the assistant made",
            vec![user("paint"), friday(vec!["Here:".into(), picture().into()]), user("thanks")],
        ),
        conversation(
            "what no provider takes",
            parts(vec![
                DataBlock::url("file:///a.png", "image/png"),
                DataBlock::bytes(b"?", "application/x-unheard-of"),
            ]),
        ),
    ]
}

fn tool_choice_conversations() -> Vec<Conversation> {
    let seen: Payload = vec![Part::from("See the picture."), Part::from(picture())].into();
    vec![
        with_tools("tools to choose from", vec![user("weather")]),
        with_tools(
            "two calls at once",
            vec![
                user("weather and time"),
                friday(vec![
                    "Let me look.".into(),
                    paris(),
                    call("call_2", "get_time", ""),
                    result("call_1", "get_weather", "sunny").into(),
                    result("call_2", "get_time", "noon").into(),
                    "Sunny, at noon.".into(),
                ]),
                user("thanks"),
            ],
        ),
        with_tools(
            "results in a message of their own",
            vec![
                user("weather"),
                friday(vec![paris()]),
                Msg::tool("", result("call_1", "get_weather", "sunny")),
            ],
        ),
        with_tools(
            "failed and denied",
            vec![
                user("weather and time"),
                friday(vec![
                    paris(),
                    call("call_2", "get_time", "{}"),
                    in_state(
                        ToolResultState::Error,
                        result("call_1", "get_weather", "no such city"),
                    ),
                    in_state(ToolResultState::Denied, result("call_2", "get_time", "")),
                ]),
            ],
        ),
        with_tools(
            "a call without a result",
            vec![user("weather"), friday(vec![paris()]), user("still there?")],
        ),
        with_tools(
            "an image in a result",
            vec![
                user("weather"),
                friday(vec![paris(), result("call_1", "get_weather", seen).into()]),
            ],
        ),
        with_tools(
            "arguments that broke off",
            vec![
                user("weather"),
                friday(vec![
                    call("call_1", "get_weather", r#"{"city": "Par"#),
                    result("call_1", "get_weather", "no JSON").into(),
                ]),
            ],
        ),
    ]
}

/// Calls that a model or a crash left unusual or incomplete.
fn odd_call_conversations() -> Vec<Conversation> {
    let seen: Payload = vec![Part::from("Half of it:"), Part::from(picture())].into();
    vec![
        with_tools(
            "a result that is not whole yet",
            vec![
                user("weather and time"),
                friday(vec![
                    paris(),
                    call("call_2", "get_time", "{}"),
                    in_state(ToolResultState::Running, result("call_1", "get_weather", "sun")),
                    in_state(ToolResultState::Running, result("call_2", "get_time", "")),
                ]),
            ],
        ),
        with_tools(
            "an image in a result that failed",
            vec![
                user("weather"),
                friday(vec![
                    paris(),
                    in_state(ToolResultState::Error, result("call_1", "get_weather", seen)),
                ]),
            ],
        ),
        with_tools(
            "names that nobody offered",
            vec![
                user("weather"),
                friday(vec![
                    call("call_1", "functions.wetter_für", "{}"),
                    call("call_2", "", "{}"),
                    result("call_1", "functions.wetter_für", "no such tool").into(),
                    result("call_2", "", "no such tool").into(),
                ]),
            ],
        ),
        with_tools(
            "ids of other providers",
            vec![
                user("weather"),
                friday(vec![
                    call("", "get_time", "{}"),
                    call("functions.get_time:0", "get_time", "{}"),
                    call("functions:get_time:0", "get_time", "{}"),
                    call(&"x".repeat(65), "get_time", "{}"),
                    result("", "get_time", "one").into(),
                    result("functions.get_time:0", "get_time", "two").into(),
                    result("functions:get_time:0", "get_time", "three").into(),
                    result(&"x".repeat(65), "get_time", "four").into(),
                ]),
            ],
        ),
        with_tools(
            "one id twice",
            vec![
                user("time"),
                friday(vec![call("1", "get_time", "{}"), result("1", "get_time", "noon").into()]),
                user("and now?"),
                friday(vec![call("1", "get_time", "{}"), result("1", "get_time", "one").into()]),
            ],
        ),
        with_tools(
            "results that nobody asked for",
            vec![user("time"), Msg::tool("", result("call_9", "get_time", "noon"))],
        ),
        Conversation {
            tools: vec![ToolDefinition {
                name: "anything".to_owned(),
                description: String::new(),
                input_schema: json!({}).into(),
                ..ToolDefinition::default()
            }],
            ..conversation("a tool that says nothing of its input", vec![user("hello")])
        },
    ]
}

fn speaker_conversations() -> Vec<Conversation> {
    let messages = || {
        vec![
            Msg::system("", "Moderate."),
            user("tea or coffee?"),
            Msg::assistant("A", "Tea."),
            Msg::assistant(
                "B",
                vec![ContentBlock::from(TextBlock::new("Coffee.")), picture().into()],
            ),
        ]
    };
    let several = |name, agents| Conversation { agents, ..conversation(name, messages()) };
    let with_calls = || {
        vec![
            user("tea or coffee?"),
            Msg::assistant("A", "Tea."),
            Msg::assistant(
                "B",
                vec![call("1", "get_time", "{}"), result("1", "get_time", "noon").into()],
            ),
            Msg::assistant("A", "It is noon."),
            user("so?"),
        ]
    };
    let calling = |name, agents| Conversation { agents, ..with_tools(name, with_calls()) };
    vec![
        several("agents as a history", SpeakerFormat::HistoryTags),
        several("agents by name", SpeakerFormat::NamePrefix),
        calling("agents as a history, with a call", SpeakerFormat::HistoryTags),
        calling("agents by name, with a call", SpeakerFormat::NamePrefix),
    ]
}

fn setting_conversations() -> Vec<Conversation> {
    let schema = json!({
        "type": "object",
        "properties": {"goal": {"type": "string"}},
        "required": ["goal"],
        "additionalProperties": false,
    });
    let loose = json!({
        "type": "object",
        "properties": {"steps": {"type": "array", "minItems": 2, "items": {"type": "string"}}},
    });
    let choosing =
        |name, tool_choice| Conversation { tool_choice, ..with_tools(name, vec![user("weather")]) };
    let mut extra = Fields::default();
    extra.insert("seed", Json::from(7));
    vec![
        choosing("no tool", ToolChoice::None),
        choosing("some tool", ToolChoice::Required),
        choosing("this tool", ToolChoice::Tool("get_time".to_owned())),
        Conversation {
            output: Some(OutputFormat::new("plan", schema.into())),
            ..conversation("structured output", vec![user("plan")])
        },
        Conversation {
            output: Some(OutputFormat::new("plan", loose.into())),
            ..conversation("structured output that leaves room", vec![user("plan")])
        },
        Conversation {
            max_tokens: Some(99),
            temperature: Some(0.5),
            extra,
            ..conversation("limits and extras", vec![user("hello")])
        },
    ]
}
