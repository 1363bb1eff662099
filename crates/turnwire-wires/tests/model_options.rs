//! The table of options: what each wire reads and writes is what the table says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use turnwire_core::{Fields, Msg};
use turnwire_wires::model_options::{OPTION_WIRES, ResponseFormat, Support};
use turnwire_wires::model_request::{
    NativeTool, OutputFormat, ToolChoice, ToolDefinition, ToolKind,
};
use turnwire_wires::{ModelOption, ModelOptions, Request, Wire};

fn fields(value: &Value) -> Fields {
    serde_json::from_value(value.clone()).unwrap()
}

fn weather() -> ToolDefinition {
    ToolDefinition {
        name: "get_weather".into(),
        description: "The weather of a city".into(),
        input_schema: json!({"type": "object", "properties": {"city": {"type": "string"}}}).into(),
        ..ToolDefinition::default()
    }
}

fn read(wire: &str, body: &Value) -> ModelOptions {
    ModelOptions::read(wire, &fields(body)).unwrap()
}

/// The body of a request with these options.
fn written(wire: &str, options: &ModelOptions, tools: &[ToolDefinition]) -> Value {
    let messages = [Msg::user("ann", "Hi!")];
    let output = options.response_format.as_ref().and_then(|format| {
        let mut output = OutputFormat::new("plan", format.schema()?);
        if let ResponseFormat::JsonSchema { name, description, strict, .. } = format {
            output.name = name.clone().unwrap_or(output.name);
            (output.description, output.strict) = (description.clone(), *strict);
        }
        Some(output)
    });
    let request = Request {
        model: "m",
        messages: &messages,
        tools,
        tool_choice: options.tool_choice.clone().unwrap_or_default(),
        output: output.as_ref(),
        options: options.clone(),
        ..Request::default()
    };
    let body = Wire::named(wire).unwrap().model_request(&request).unwrap();
    serde_json::from_str(body.text()).unwrap()
}

fn at<'v>(body: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(body, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// A value of an option, by the names of Chat Completions or, for options that it does not have, by the canonical names.
fn example(option: ModelOption) -> Value {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
        "additionalProperties": false});
    match option {
        ModelOption::Temperature => json!(0.25),
        ModelOption::TopP | ModelOption::MinP => json!(0.5),
        ModelOption::FrequencyPenalty | ModelOption::PresencePenalty => json!(0.75),
        ModelOption::TopK | ModelOption::Seed | ModelOption::TopLogprobs => json!(5),
        ModelOption::MaxTokens => json!(77),
        ModelOption::Stop => json!(["END"]),
        ModelOption::ToolChoice => json!("none"),
        ModelOption::ParallelToolCalls => json!(false),
        ModelOption::Reasoning => json!("high"),
        ModelOption::ResponseFormat => {
            json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}})
        }
        ModelOption::Verbosity => json!("low"),
        ModelOption::PromptCacheKey | ModelOption::User | ModelOption::SafetyIdentifier => {
            json!("key")
        }
        ModelOption::CacheControl => json!({"type": "ephemeral"}),
        ModelOption::ServiceTier => json!("flex"),
        ModelOption::Metadata => json!({"k": "v"}),
        ModelOption::Store | ModelOption::Logprobs => json!(true),
        ModelOption::Include => json!(["reasoning.encrypted_content"]),
        ModelOption::Truncation => json!("auto"),
        ModelOption::Modalities => json!(["text", "audio"]),
        ModelOption::Audio => json!({"voice": "ash", "format": "pcm16"}),
    }
}

fn model_wires() -> impl Iterator<Item = &'static str> {
    OPTION_WIRES.into_iter().filter(|wire| Wire::named(wire).unwrap().can_request_model())
}

#[test]
fn each_wire_writes_the_options_of_the_table_and_names_the_others() {
    for option in ModelOption::ALL.iter().copied() {
        let mut given = json!({});
        given[option.name()] = example(option);
        // Without a wire, options have canonical names: everything is converted.
        let options = read("", &given);
        assert!(options.is_set(option), "{}", option.name());
        for wire in model_wires() {
            let (with, without) = (
                written(wire, &options, &[weather()]),
                written(wire, &ModelOptions::default(), &[weather()]),
            );
            let is_left_out = options.left_out(wire, "m") == [option.name()];
            match option.support(wire) {
                Support::Field(path) => {
                    assert_ne!(with, without, "{wire} does not write {}", option.name());
                    let is_there = at(&with, path).is_some();
                    // Ollama has no tool choice: it gets no tools. Effort without a budget is no `thinking`.
                    let is_elsewhere = matches!(
                        (wire, option),
                        ("ollama", ModelOption::ToolChoice) | ("anthropic", ModelOption::Reasoning)
                    ) || (wire == "openai-chat"
                        && option == ModelOption::MaxTokens);
                    assert!(is_there || is_elsewhere, "{wire} has no {path}: {with}");
                    assert!(!is_left_out, "{wire} names {}", option.name());
                }
                Support::SameWire(_) | Support::LeftOut => {
                    assert_eq!(with, without, "{wire} writes {}", option.name());
                    assert!(is_left_out, "{wire} does not name {}", option.name());
                }
            }
        }
    }
}

#[test]
fn a_model_of_the_same_wire_gets_the_fields_unchanged() {
    let bodies = [
        (
            "openai-chat",
            json!({
                "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "stop": "END", "seed": 1,
                "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
                "parallel_tool_calls": true, "reasoning_effort": "low", "user": "u", "logit_bias": {"1": 2},
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
                "prediction": {"type": "content", "content": "x"}, "service_tier": "flex", "metadata": {"a": "b"},
                "modalities": ["text", "audio"], "audio": {"voice": "ash", "format": "pcm16"},
            }),
        ),
        (
            "openai-responses",
            json!({
                "max_output_tokens": 9, "reasoning": {"effort": "low", "summary": "auto"}, "store": true,
                "include": ["reasoning.encrypted_content"], "parallel_tool_calls": false, "truncation": "auto",
                "tool_choice": {"type": "web_search"}, "prompt_cache_key": "k", "client_metadata": {"thread_id": "t"},
                "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
            }),
        ),
        (
            "anthropic",
            json!({
                "max_tokens": 32000, "thinking": {"type": "adaptive", "display": "summarized"},
                "context_management": {"edits": []}, "output_config": {"effort": "medium"},
                "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "top_k": 3,
                "metadata": {"user_id": "u"}, "service_tier": "auto", "stop_sequences": ["a"],
                "cache_control": {"type": "ephemeral"}, "mcp_servers": [{"type": "url", "url": "https://h", "name": "x"}],
            }),
        ),
    ];
    for (wire, given) in bodies {
        let options = read(wire, &given);
        let body = written(wire, &options, &[weather()]);
        for (name, value) in given.as_object().unwrap() {
            assert_eq!(&body[name], value, "{wire} changes {name}");
        }
        assert_eq!(body.get("max_completion_tokens"), None, "{wire} has two limits");
        assert_eq!(options.left_out(wire, "m"), [""; 0]);
    }
}

#[test]
fn options_are_converted_between_protocols() {
    let anthropic = read(
        "anthropic",
        &json!({
            "max_tokens": 50, "stop_sequences": ["END"], "thinking": {"type": "enabled", "budget_tokens": 4000},
            "tool_choice": {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": true},
            "metadata": {"user_id": "ann"}, "context_management": {"edits": []}, "top_k": 3,
        }),
    );
    let chat = written("openai-chat", &anthropic, &[weather()]);
    assert_eq!(chat["max_tokens"], 50);
    assert_eq!(chat["stop"], json!(["END"]));
    assert_eq!(chat["reasoning_effort"], "medium");
    assert_eq!(chat["user"], "ann");
    assert_eq!(chat["parallel_tool_calls"], false);
    assert_eq!(
        chat["tool_choice"],
        json!({"type": "function", "function": {"name": "get_weather"}})
    );
    assert_eq!(anthropic.left_out("openai-chat", "m"), ["top_k", "context_management"]);

    let responses = read(
        "openai-responses",
        &json!({
            "max_output_tokens": 50, "reasoning": {"effort": "xhigh"}, "parallel_tool_calls": false,
            "tool_choice": "required", "user": "ann", "text": {"verbosity": "low"}, "truncation": "auto",
        }),
    );
    let messages = written("anthropic", &responses, &[weather()]);
    assert_eq!(messages["max_tokens"], 50);
    assert_eq!(messages["output_config"], json!({"effort": "xhigh"}));
    assert_eq!(messages["tool_choice"], json!({"type": "any", "disable_parallel_tool_use": true}));
    assert_eq!(messages["metadata"], json!({"user_id": "ann"}));
    assert_eq!(responses.left_out("anthropic", "m"), ["text.verbosity", "truncation"]);
    let gemini = written("gemini", &responses, &[weather()]);
    assert_eq!(gemini["generationConfig"]["thinkingConfig"], json!({"thinkingBudget": 24576}));
    assert_eq!(gemini["toolConfig"]["functionCallingConfig"]["mode"], "ANY");

    let ai_sdk = read(
        "ai-sdk",
        &json!({"maxTokens": 5, "toolChoice": {"type": "tool", "toolName": "get_weather"}, "app": 1}),
    );
    let chat = written("openai-chat", &ai_sdk, &[weather()]);
    assert_eq!((&chat["max_tokens"], &chat["app"]), (&json!(5), &Value::Null));
    assert_eq!(chat["tool_choice"]["function"]["name"], "get_weather");
    let ag_ui = read("ag-ui", &json!({"forwardedProps": {"temperature": 0.5}, "state": {"x": 1}}));
    assert_eq!(written("anthropic", &ag_ui, &[])["temperature"], 0.5);
    assert_eq!(ag_ui.left_out("anthropic", "m"), [""; 0]);
}

#[test]
fn a_response_format_is_converted_to_the_form_of_each_protocol() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
        "additionalProperties": false});
    let named =
        json!({"name": "plan", "description": "A plan.", "strict": false, "schema": schema});
    let flat = |more: Value| {
        let mut format = json!({"type": "json_schema"});
        format.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format
    };
    let clients = [
        ("openai-chat", json!({"response_format": {"type": "json_schema", "json_schema": named}})),
        ("openai-responses", json!({"text": {"format": flat(named.clone())}})),
        ("anthropic", json!({"output_config": {"format": flat(json!({"schema": schema}))}})),
        ("anthropic", json!({"output_format": flat(json!({"schema": schema}))})),
    ];
    for (client, given) in &clients {
        let options = read(client, given);
        let format = options.response_format.as_ref().unwrap();
        // Anthropic has neither name nor strictness: the schema can be enforced, so it is.
        let named = match *client {
            "anthropic" => json!({"name": "plan", "strict": true, "schema": schema}),
            _ => named.clone(),
        };
        for wire in model_wires().filter(|wire| wire != client) {
            assert!(format.is_native_to(wire), "{wire}");
            let body = written(wire, &options, &[]);
            let (path, expected) = match wire {
                "openai-chat" => {
                    ("response_format", json!({"type": "json_schema", "json_schema": named}))
                }
                "openai-responses" => ("text.format", flat(named.clone())),
                "anthropic" => ("output_config.format", flat(json!({"schema": schema}))),
                "gemini" => ("generationConfig.responseJsonSchema", schema.clone()),
                "ollama" => ("format", schema.clone()),
                "dashscope" => {
                    let mut named = named.clone();
                    named.as_object_mut().unwrap().remove("description");
                    let format = json!({"type": "json_schema", "json_schema": named});
                    ("parameters.response_format", format)
                }
                other => panic!("what does {other} get?"),
            };
            assert_eq!(at(&body, path), Some(&expected), "{client} to {wire}: {body}");
        }
    }
}

#[test]
fn json_without_a_schema_is_requested_where_the_protocol_has_it() {
    let options = read("openai-chat", &json!({"response_format": {"type": "json_object"}}));
    let format = options.response_format.as_ref().unwrap();
    for wire in model_wires() {
        let body = written(wire, &options, &[]);
        let object = json!({"type": "json_object"});
        let expected = match wire {
            "openai-chat" => Some(("response_format", object)),
            "openai-responses" => Some(("text.format", object)),
            "dashscope" => Some(("parameters.response_format", object)),
            "gemini" => Some(("generationConfig.responseMimeType", json!("application/json"))),
            "ollama" => Some(("format", json!({"type": "object"}))),
            _ => None,
        };
        assert_eq!(format.is_native_to(wire), expected.is_some(), "{wire}");
        match expected {
            Some((path, value)) => assert_eq!(at(&body, path), Some(&value), "{wire}: {body}"),
            None => assert_eq!(at(&body, "output_config"), None, "{wire}: {body}"),
        }
    }
}

#[test]
fn a_choice_among_tools_becomes_fewer_tools_where_a_protocol_has_none() {
    let allowed = json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": "get_weather"}}]}}});
    let options = read("openai-chat", &allowed);
    let tools = [weather(), ToolDefinition { name: "other".into(), ..weather() }];
    let body = written("anthropic", &options, &tools);
    assert_eq!(body["tools"].as_array().unwrap().len(), 1);
    assert_eq!(body["tool_choice"], json!({"type": "any"}));
    let body = written("openai-responses", &options, &tools);
    assert_eq!(body["tools"].as_array().unwrap().len(), 2);
    let expected = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]});
    assert_eq!(body["tool_choice"], expected);
}

#[test]
fn a_tool_that_cannot_be_required_is_refused() {
    let two = [weather(), ToolDefinition { name: "other".into(), ..weather() }];
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}});
    for (given, wire, tools, why) in [
        (json!({"tool_choice": "required"}), "ollama", &two[..], "cannot require"),
        (named.clone(), "ollama", &two[..], "cannot require"),
        (json!({"tool_choice": "required"}), "dashscope", &two[..], "name the tool"),
        (json!({"tool_choice": "required"}), "gemini", &[][..], "no tool"),
        (
            json!({"tool_choice": {"type": "function", "function": {"name": "x"}}}),
            "gemini",
            &two[..],
            "not in `tools`",
        ),
        (
            json!({"tool_choice": {"type": "web_search"}}),
            "anthropic",
            &two[..],
            "only a model of the protocol",
        ),
    ] {
        let error = read("openai-chat", &given).check_tool_choice(wire, tools).unwrap_err();
        assert!(error.to_string().contains(why), "{error} has no {why}");
    }
    for (given, wire) in [
        (json!({"tool_choice": "required"}), "anthropic"),
        (named.clone(), "dashscope"),
        (json!({"tool_choice": "none"}), "ollama"),
        (json!({}), "ollama"),
        (json!({"tool_choice": {"type": "web_search"}}), "openai-chat"),
    ] {
        read("openai-chat", &given).check_tool_choice(wire, &two).unwrap();
    }
}

#[test]
fn tools_of_other_kinds_are_written_to_their_own_wire_only() {
    let of = |name: &str, kind, fields_json: Value, namespace: Option<&str>| ToolDefinition {
        name: name.into(),
        native: Some(NativeTool {
            wire: "openai-responses".into(),
            kind,
            fields: fields(&fields_json),
            namespace: namespace.map(str::to_owned),
            has_schema: kind == ToolKind::Function,
        }),
        ..weather()
    };
    let custom = json!({"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}});
    let group = json!({"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]});
    let hosted = json!({"type": "web_search", "external_web_access": false});
    let tools = [
        of("get_weather", ToolKind::Function, json!({"defer_loading": true}), None),
        of("patch", ToolKind::Custom, custom.clone(), None),
        of("agents", ToolKind::Namespace, group.clone(), None),
        of("spawn", ToolKind::Function, json!({}), Some("agents")),
        of("web_search", ToolKind::Hosted, hosted.clone(), None),
    ];
    let own = written("openai-responses", &ModelOptions::default(), &tools);
    assert_eq!(own["tools"].as_array().unwrap().len(), 4);
    assert_eq!(own["tools"][0]["defer_loading"], true);
    assert_eq!((&own["tools"][1], &own["tools"][2], &own["tools"][3]), (&custom, &group, &hosted));
    for wire in model_wires().filter(|wire| *wire != "openai-responses") {
        let text = written(wire, &ModelOptions::default(), &tools).to_string();
        assert!(text.contains("\"get_weather\"") && text.contains("\"spawn\""), "{wire}: {text}");
        for lost in ["patch", "web_search", "agents", "defer_loading"] {
            assert!(!text.contains(lost), "{wire} has {lost}");
        }
    }
}

#[test]
fn options_cannot_replace_the_conversation() {
    let given =
        json!({"model": "other", "messages": [], "tools": [], "stream": false, "n": 3, "seed": 1});
    let options = read("openai-chat", &given);
    let body = written("openai-chat", &options, &[weather()]);
    assert_eq!((&body["model"], &body["seed"], &body["n"]), (&json!("m"), &json!(1), &Value::Null));
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    assert_eq!(body["tools"].as_array().unwrap().len(), 1);
    assert_eq!(options.tool_choice, None::<ToolChoice>);
}

#[test]
fn the_table_in_the_docs_is_this_table() {
    let docs = include_str!("../../../docs/agents.md");
    for option in ModelOption::ALL.iter().copied() {
        let cells = OPTION_WIRES.iter().map(|wire| match option.support(wire) {
            Support::Field(path) => format!("`{path}`"),
            Support::SameWire(path) => format!("(`{path}`)"),
            Support::LeftOut => "-".to_owned(),
        });
        let row = format!("| `{}` | {} |", option.name(), cells.collect::<Vec<_>>().join(" | "));
        assert!(docs.contains(&row), "docs/agents.md needs the row\n{row}");
    }
}

#[test]
fn a_changed_option_is_written_in_its_canonical_form() {
    let mut options = read("openai-chat", &json!({"max_tokens": 100, "x": 1}));
    options.forget_original(ModelOption::MaxTokens);
    options.max_tokens = Some(10);
    let body = written("openai-chat", &options, &[]);
    assert_eq!((&body["max_tokens"], &body["x"]), (&json!(10), &json!(1)));
}

#[test]
fn options_that_only_the_same_protocol_supports_are_refused_unless_they_reach_the_model() {
    let none = ModelOptions::default();
    let include = ["reasoning.encrypted_content", "message.output_text.logprobs"];
    let asking = [
        ("openai-chat", json!({"modalities": ["text", "audio"]}), "`modalities` asks for audio"),
        ("openai-chat", json!({"logprobs": true}), "`logprobs` asks for log probabilities"),
        (
            "openai-responses",
            json!({"include": include}),
            "`include` asks for message.output_text.logprobs",
        ),
    ];
    for (wire, given, asked) in asking {
        let options = read(wire, &given);
        assert!(options.check_answer(wire, &options).is_ok(), "{given}");
        let error = |model: &str, passed| {
            let error = options.check_answer(model, passed).unwrap_err();
            let (what, why) = error.message().split_once(": ").unwrap();
            assert_eq!(what, format!("{asked}, which the agent's model does not give"));
            why.to_owned()
        };
        assert_eq!(error(wire, &none), "the settings of this agent do not let clients choose it");
        let other = format!("only a model of the protocol {wire} does");
        assert_eq!(error("anthropic", &options), other);
        assert_eq!(error("", &none), other);
    }
    let usual = [
        ("openai-chat", json!({"modalities": ["text"], "logprobs": false})),
        ("openai-responses", json!({"include": ["reasoning.encrypted_content"]})),
    ];
    for (wire, given) in usual {
        assert!(read(wire, &given).check_answer("anthropic", &none).is_ok(), "{given}");
    }
}
