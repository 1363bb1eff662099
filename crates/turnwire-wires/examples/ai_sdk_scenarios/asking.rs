//! Replies that wait for the client.

use crate::Scenario;
use crate::harness::{
    asking_call, call, confirm, confirmation, end, list, message, model, model_end, result,
    scenario, start, step, text, text_part, tool,
};
use serde_json::{Value, json};

#[expect(clippy::too_many_lines, reason = "it is a list")]
pub fn scenarios() -> Vec<Scenario> {
    let trade =
        |id: &str| call(id, "trade", if id == "c1" { &["{\"n\":", "1}"] } else { &["{\"n\":2}"] });
    let first = || {
        list([
            vec![start(), model()],
            text("b1", &["Buying."]),
            trade("c1"),
            vec![model_end()],
            vec![confirm(&["c1"])],
        ])
    };
    let rest = |state: &str| {
        let said = if state == "success" { "bought" } else { "The user said no." };
        list([
            result("c1", "trade", &[said], state),
            vec![model()],
            text("b2", &["Done."]),
            vec![model_end(), end()],
        ])
    };
    let after = |answer: Value, state: &str| {
        let mut list = vec![answer, start()];
        list.extend(rest(state).as_array().cloned().unwrap_or_default());
        Value::Array(list)
    };
    let out = |part: Value| {
        message(2, &[], &[step(), text_part("Buying."), part, step(), text_part("Done.")])
    };
    let pending = json!({"confirm": [asking_call("c1")]});
    let approval = |id: &str| json!({"id": id, "approved": true});
    let mut approve = scenario(
        "approval",
        &[first(), after(confirmation("c1", true, None, None), "success")],
        out(tool(
            "c1",
            "trade",
            &json!({"state": "output-available", "input": {"n": 1}, "output": "bought",
            "approval": approval("c1")}),
        )),
    );
    approve.actions = vec![json!([{"approve": "c1"}])];
    approve.pending = vec![pending.clone()];
    let mut edit = scenario(
        "approval with an edit",
        &[first(), after(confirmation("c1", true, Some(r#"{"n":5}"#), None), "success")],
        out(tool(
            "c1",
            "trade",
            &json!({"state": "output-available", "input": {"n": 5}, "output": "bought",
            "approval": approval("c1")}),
        )),
    );
    edit.actions = vec![json!([{"edit": "c1", "input": {"n": 5}}, {"approve": "c1"}])];
    edit.pending = vec![pending.clone()];
    let mut deny = scenario(
        "denial",
        &[first(), after(confirmation("c1", false, None, Some("too much")), "denied")],
        out(tool(
            "c1",
            "trade",
            &json!({"state": "output-denied", "input": {"n": 1},
            "approval": {"id": "c1", "approved": false, "reason": "too much"}}),
        )),
    );
    deny.actions = vec![json!([{"deny": "c1", "reason": "too much"}])];
    deny.pending = vec![pending];
    let both = json!({"type": "USER_CONFIRM_RESULT", "confirm_results": [
        {"confirmed": true, "tool_call": asking_call("c1"), "rules": null},
        {"confirmed": false, "tool_call": asking_call("c2"), "rules": null},
    ]});
    let mut two = scenario(
        "two approvals and a call beside them",
        &[
            list([
                vec![start(), model()],
                trade("c1"),
                trade("c2"),
                call("c3", "get_time", &["{}"]),
                vec![model_end(), confirm(&["c1", "c2"])],
            ]),
            list([
                vec![both],
                result("c1", "trade", &["bought"], "success"),
                result("c2", "trade", &["no"], "denied"),
                result("c3", "get_time", &["noon"], "success"),
                vec![model()],
                text("b2", &["Done."]),
                vec![model_end(), end()],
            ]),
        ],
        message(
            2,
            &[],
            &[
                step(),
                tool(
                    "c1",
                    "trade",
                    &json!({"state": "output-available", "input": {"n": 1}, "output": "bought",
                "approval": approval("c1")}),
                ),
                tool(
                    "c2",
                    "trade",
                    &json!({"state": "output-denied", "input": {"n": 2},
                "approval": {"id": "c2", "approved": false}}),
                ),
                tool(
                    "c3",
                    "get_time",
                    &json!({"state": "output-available", "input": {}, "output": "noon",
                "approval": {"id": "c3", "isAutomatic": true, "approved": true}}),
                ),
                step(),
                text_part("Done."),
            ],
        ),
    );
    two.actions = vec![json!([{"approve": "c1"}, {"deny": "c2"}])];
    two.pending = vec![json!({"confirm": [asking_call("c1"), asking_call("c2")]})];
    vec![approve, edit, deny, two, external(), subagent()]
}

fn external() -> Scenario {
    let open = json!({"type": "tool_call", "id": "c1", "name": "open_page", "input": r#"{"url":"https://example.com/"}"#,
        "state": "submitted", "suggested_rules": [], "finished_at": null});
    let result = json!({"type": "tool_result", "id": "c1", "name": "open_page", "output": r#"{"title":"Example"}"#,
        "state": "success", "metadata": {"media_type": "application/json"}, "finished_at": null});
    let mut scenario = scenario(
        "a tool of the client's",
        &[
            list([
                vec![start(), model()],
                call("c1", "open_page", &["{\"url\":\"https://example.com/\"}"]),
                vec![
                    model_end(),
                    json!({"type": "REQUIRE_EXTERNAL_EXECUTION", "tool_calls": [open]}),
                ],
            ]),
            list([
                vec![json!({"type": "EXTERNAL_EXECUTION_RESULT", "execution_results": [result]})],
                vec![model()],
                text("b2", &["Seen."]),
                vec![model_end(), end()],
            ]),
        ],
        message(
            2,
            &[],
            &[
                step(),
                tool(
                    "c1",
                    "open_page",
                    &json!({"state": "output-available", "input": {"url": "https://example.com/"},
                "output": {"title": "Example"}, "providerExecuted": false,
                "resultProviderMetadata": {"turnwire": {"metadata": {"media_type": "application/json"}}}}),
                ),
                step(),
                text_part("Seen."),
            ],
        ),
    );
    scenario.actions =
        vec![json!([{"output": {"title": "Example"}, "tool": "open_page", "call": "c1"}])];
    scenario.pending = vec![json!({"external": [open]})];
    scenario
}

/// A sub-agent of a call of the main agent requests an approval.
fn subagent() -> Scenario {
    let of_sub = |list: Vec<Value>| -> Vec<Value> {
        let mark = |mut event: Value| {
            if let Some(fields) = event.as_object_mut() {
                fields.insert("reply_id".to_owned(), "r2".into());
                fields.insert("agent_path".to_owned(), "friday/broker".into());
                fields.insert("parent_tool_call_id".to_owned(), "c9".into());
            }
            event
        };
        list.into_iter().map(mark).collect()
    };
    let mut scenario = scenario(
        "a sub-agent that asks",
        &[
            list([
                vec![start(), model()],
                call("c9", "broker", &["{}"]),
                vec![model_end()],
                of_sub(vec![start()]),
                of_sub(text("s1", &["I will", " trade."])),
                of_sub(call("c1", "trade", &["{\"n\":1}"])),
                of_sub(vec![confirm(&["c1"])]),
            ]),
            list([
                of_sub(vec![confirmation("c1", true, None, None)]),
                of_sub(result("c1", "trade", &["bought"], "success")),
                of_sub(vec![end()]),
                result("c9", "broker", &["It is done."], "success"),
                vec![model()],
                text("b2", &["Done."]),
                vec![model_end(), end()],
            ]),
        ],
        message(
            2,
            &[],
            &[
                step(),
                tool(
                    "c9",
                    "broker",
                    &json!({"state": "output-available", "input": {}, "output": "It is done.",
                "approval": {"id": "c9", "isAutomatic": true, "approved": true}}),
                ),
                json!({"type": "data-subagent", "id": "r2", "data": {"agentPath": "friday/broker",
                "parentToolCallId": "c9", "message": {"id": "r2", "role": "assistant",
                    "metadata": {"turnwire": {"name": "friday", "finished_reason": "completed"}},
                    "parts": [
                        step(),
                        {"type": "text", "text": "I will trade.", "state": "done",
                            "providerMetadata": {"turnwire": {"id": "s1"}}},
                        {"type": "dynamic-tool", "toolName": "trade", "toolCallId": "c1",
                            "state": "output-available", "input": {"n": 1}, "providerExecuted": true, "callProviderMetadata": {"turnwire": {}},
                            "output": "bought",
                            "resultProviderMetadata": {"turnwire": {"part": {"type": "text", "id": "c1-0"}}}},
                    ]}}}),
                tool(
                    "c1",
                    "trade",
                    &json!({"state": "output-available", "input": {"n": 1}, "output": "bought",
                "approval": {"id": "c1", "approved": true}, "title": "friday/broker"}),
                ),
                step(),
                text_part("Done."),
            ],
        ),
    );
    scenario.actions = vec![json!([{"approve": "c1"}])];
    scenario.pending = vec![json!({"confirm": [asking_call("c1")], "reply_id": "r2"})];
    scenario
}
