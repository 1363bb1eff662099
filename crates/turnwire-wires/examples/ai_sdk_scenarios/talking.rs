//! Replies that complete.

use crate::Scenario;
use crate::harness::{
    block, call, end, list, message, model, model_end, result, scenario, start, step, text,
    text_part, tool, tool_output,
};
use serde_json::json;

#[expect(clippy::too_many_lines, reason = "it is a list")]
pub fn scenarios() -> Vec<Scenario> {
    let weather = || call("c1", "get_weather", &["{\"city\": ", "\"Par", "is\"}"]);
    let thinking_end = json!({"type": "THINKING_BLOCK_END", "block_id": "t1",
        "extra": {"signature": "sig"}});
    let mut thinking = block("THINKING", "t1", &["Let me", " see"]);
    thinking.pop();
    thinking.push(thinking_end);
    let pieces = ["sun", "ny, ", "22 de", "grees, ", "and a light wind from the ", "west"];
    let png = "iVBORw0KGgo=";
    let data = vec![
        json!({"type": "DATA_BLOCK_START", "block_id": "d1", "media_type": "image/png", "name": "a.png"}),
        json!({"type": "DATA_BLOCK_DELTA", "block_id": "d1", "media_type": "image/png", "data": "iVBOR"}),
        json!({"type": "DATA_BLOCK_DELTA", "block_id": "d1", "media_type": "image/png", "data": "w0KGgo="}),
        json!({"type": "DATA_BLOCK_END", "block_id": "d1"}),
        json!({"type": "HINT_BLOCK", "block_id": "h1", "source": "cron", "hint": "It is noon."}),
        json!({"type": "CUSTOM", "name": "progress", "value": {"done": 1}}),
        json!({"type": "BLOCK", "block": {"type": "x_map", "id": "x1", "zoom": 3}}),
        json!({"type": "BLOCK", "block": {"type": "source-url", "sourceId": "s1",
            "url": "https://example.com/", "from_wire": "ai-sdk"}}),
    ];
    let discard = json!({"type": "MODEL_CALL_END", "input_tokens": 3, "output_tokens": 2,
        "cache_input_tokens": 0, "cache_creation_input_tokens": 0, "finished_reason": "interrupted",
        "discard": ["b1", "c1"]});
    let mut broken = call("c1", "get_weather", &["{\"city\": "]);
    broken.pop();
    vec![
        scenario(
            "plain",
            &[list([
                vec![start(), model()],
                text("b1", &["Hel", "lo", " there"]),
                vec![model_end(), end()],
            ])],
            message(1, &[], &[step(), text_part("Hello there")]),
        ),
        scenario(
            "thinking",
            &[list([
                vec![start(), model()],
                thinking,
                text("b1", &["Yes."]),
                vec![model_end(), end()],
            ])],
            message(
                1,
                &[],
                &[
                    step(),
                    json!({"type": "reasoning", "id": "t1", "text": "Let me see", "state": "done",
                    "providerMetadata": {"turnwire": {"signature": "sig"}}}),
                    text_part("Yes."),
                ],
            ),
        ),
        scenario(
            "tools",
            &[list([
                vec![start(), model()],
                text("b1", &["Let me look."]),
                weather(),
                vec![model_end()],
                result("c1", "get_weather", &pieces, "success"),
                vec![model()],
                text("b2", &["Sun", "ny."]),
                vec![model_end(), end()],
            ])],
            message(
                2,
                &[],
                &[
                    step(),
                    text_part("Let me look."),
                    tool(
                        "c1",
                        "get_weather",
                        &tool_output(&json!({"city": "Paris"}), &pieces.concat().into()),
                    ),
                    step(),
                    text_part("Sunny."),
                ],
            ),
        ),
        scenario(
            "parallel",
            &[list([
                vec![start(), model()],
                weather(),
                call("c2", "get_time", &[]),
                vec![model_end()],
                vec![
                    json!({"type": "TOOL_RESULT_START", "tool_call_id": "c1", "tool_call_name": "get_weather"}),
                    json!({"type": "TOOL_RESULT_START", "tool_call_id": "c2", "tool_call_name": "get_time"}),
                    json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "c2", "delta": "no clock"}),
                    json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "c1", "delta": "see: "}),
                    json!({"type": "TOOL_RESULT_END", "tool_call_id": "c2", "state": "error"}),
                    json!({"type": "TOOL_RESULT_DATA_DELTA", "tool_call_id": "c1", "block_id": "p1",
                        "media_type": "image/png", "data": png}),
                    json!({"type": "TOOL_RESULT_END", "tool_call_id": "c1", "state": "success"}),
                ],
                vec![model()],
                text("b2", &["Done."]),
                vec![model_end(), end()],
            ])],
            message(
                2,
                &[],
                &[
                    step(),
                    tool(
                        "c1",
                        "get_weather",
                        &json!({"state": "output-available", "input": {"city": "Paris"},
                    "output": [
                        {"type": "text", "text": "see: ", "id": "c1-0"},
                        {"type": "data", "id": "p1", "name": null,
                            "source": {"type": "base64", "data": png, "media_type": "image/png"}},
                    ],
                    "resultProviderMetadata": {"turnwire": {"parts": true}}}),
                    ),
                    tool(
                        "c2",
                        "get_time",
                        &json!({"state": "output-error", "input": {}, "errorText": "no clock"}),
                    ),
                    step(),
                    text_part("Done."),
                ],
            ),
        ),
        scenario(
            "data",
            &[list([
                vec![start(), model()],
                text("b1", &["Look:"]),
                data,
                vec![model_end(), end()],
            ])],
            message(
                1,
                &[],
                &[
                    step(),
                    text_part("Look:"),
                    json!({"type": "file", "mediaType": "image/png", "url": format!("data:image/png;base64,{png}"),
                    "providerMetadata": {"turnwire": {"id": "d1", "name": "a.png"}}}),
                    json!({"type": "data-hint", "id": "h1",
                    "data": {"hint": "It is noon.", "id": "h1", "source": "cron"}}),
                    json!({"type": "data-block", "id": "x1", "data": {"type": "x_map", "id": "x1", "zoom": 3}}),
                    json!({"type": "source-url", "sourceId": "s1", "url": "https://example.com/"}),
                ],
            ),
        ),
        // The first model call is discarded: nothing appears twice.
        scenario(
            "retried",
            &[list([
                vec![start(), model()],
                text("b1", &["Let m"]),
                vec![
                    json!({"type": "HINT_BLOCK", "block_id": "h1", "source": null, "hint": "Quick."}),
                ],
                broken,
                vec![discard, model()],
                text("b2", &["Let me look."]),
                vec![model_end(), end()],
            ])],
            message(
                2,
                &[],
                &[
                    step(),
                    json!({"type": "data-hint", "id": "h1", "data": {"hint": "Quick.", "id": "h1"}}),
                    step(),
                    text_part("Let me look."),
                ],
            ),
        ),
        scenario(
            "no json",
            &[list([
                vec![start(), model()],
                call("c1", "get_weather", &["{\"city\": Par"]),
                vec![model_end()],
                result("c1", "get_weather", &["bad input"], "error"),
                vec![end()],
            ])],
            message(
                1,
                &[],
                &[
                    step(),
                    tool(
                        "c1",
                        "get_weather",
                        &json!({"state": "output-error", "input": "{\"city\": Par",
                    "errorText": "bad input"}),
                    ),
                ],
            ),
        ),
    ]
}
