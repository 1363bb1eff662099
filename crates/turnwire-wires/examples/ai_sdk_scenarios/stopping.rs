//! Replies that are interrupted.

use crate::Scenario;
use crate::harness::{
    call, confirm, list, message, model, model_end, result, scenario, start, step, text, text_part,
    tool,
};
use serde_json::json;

pub fn scenarios() -> Vec<Scenario> {
    let interrupted =
        json!({"type": "REPLY_END", "session_id": "s", "finished_reason": "interrupted"});
    let error = json!({"type": "rate_limit", "message": "Too many requests."});
    let failed =
        json!({"type": "REPLY_END", "session_id": "s", "finished_reason": "error", "error": error});
    let mut open = text("b1", &["I was say"]);
    open.pop();
    let mut asking = call("c2", "trade", &["{\"n\":2}"]);
    asking.push(confirm(&["c2"]));
    let mut half = call("c3", "get_time", &["{\"zone\": \"Eu"]);
    half.pop();
    let reason = ("finished_reason", json!("interrupted"));
    vec![
        scenario(
            "error",
            &[list([vec![start(), model()], open.clone(), vec![failed]])],
            message(
                0,
                &[("finished_reason", json!("error")), ("error", error)],
                &[step(), text_part("I was say")],
            ),
        ),
        scenario(
            "interruption",
            &[list([
                vec![start(), model()],
                call("c1", "get_weather", &["{}"]),
                vec![model_end()],
                result("c1", "get_weather", &["half of", " it"], "x").into_iter().take(3).collect(),
                asking,
                half,
                open,
                vec![json!({"type": "USER_INTERRUPT"}), interrupted],
            ])],
            message(
                1,
                std::slice::from_ref(&reason),
                &[
                    step(),
                    tool(
                        "c1",
                        "get_weather",
                        &json!({"state": "output-error", "input": {}, "errorText": "half of it",
                    "approval": {"id": "c1", "isAutomatic": true, "approved": true},
                    "resultProviderMetadata": {"turnwire": {"state": "interrupted"}}}),
                    ),
                    tool(
                        "c2",
                        "trade",
                        &json!({"state": "output-denied", "input": {"n": 2},
                    "approval": {"id": "c2", "approved": false, "reason": "It was stopped."}}),
                    ),
                    tool(
                        "c3",
                        "get_time",
                        &json!({"state": "output-error", "input": "{\"zone\": \"Eu",
                    "errorText": "It was stopped.",
                    "resultProviderMetadata": {"turnwire": {"state": "interrupted"}}}),
                    ),
                    text_part("I was say"),
                ],
            ),
        ),
    ]
}
