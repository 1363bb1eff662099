//! Reading and writing the history.

use serde_json::{Value, json};
use turnwire_core::{
    ContentBlock, DataBlock, ErrorKind, FinishedReason, Json, Msg, ReplyError, Role, TextBlock,
    ThinkingBlock, ToolCall, ToolResult,
};
use turnwire_wires::Wire;

fn encode(messages: &[Msg]) -> Value {
    let entries = Wire::named("blocks").unwrap().encode_messages(messages).unwrap();
    serde_json::from_str(Json::from_value(&entries).unwrap().text()).unwrap()
}

fn decode(entries: &Value) -> turnwire_core::Result<Vec<Msg>> {
    Wire::named("blocks").unwrap().decode_messages(&entries.to_string())
}

fn reply() -> Msg {
    let mut call = ToolCall::new("t", "search_stock", r#"{"symbol":"VNM"}"#);
    call.rest.insert("title", "Search");
    let mut result = ToolResult::success("t", "82,000 ".repeat(100)).named("search_stock");
    result.metadata.insert("artifact", json!({"kind": "chart"}));
    let content: Vec<ContentBlock> = vec![
        ThinkingBlock::new("hm").into(),
        "Let me look.".into(),
        call.into(),
        result.into(),
        "It is at 82,000.".into(),
    ];
    let builder = Msg::builder(Role::Assistant).id("m1").content(content);
    builder.finished_reason(FinishedReason::Completed).build().unwrap()
}

#[test]
fn a_reply_is_assistant_entries_and_unshortened_tool_entries() {
    let expected = json!([
        {"role": "assistant", "id": "m1", "stop_reason": "end_turn", "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "Let me look.", "is_final": false},
            {"type": "tool_use", "id": "t", "name": "search_stock", "tool_use_id": "t",
                "tool_content_message": "Search", "input": {"symbol": "VNM"}, "state": "pending"},
        ], "tool_calls": [{"id": "t", "name": "search_stock", "tool_content_message": "Search",
            "args": {"symbol": "VNM"}}]},
        {"role": "tool", "id": "m1", "tool_use_id": "t", "name": "search_stock",
            "status": "success", "content": "82,000 ".repeat(100), "artifact": {"kind": "chart"}},
        {"role": "assistant", "id": "m1", "content": [
            {"type": "text", "text": "It is at 82,000.", "is_final": true}]},
    ]);
    assert_eq!(encode(&[reply()]), expected);
    assert_eq!(decode(&expected).unwrap(), [reply()]);
}

#[test]
fn a_users_files_are_attachments() {
    let msg = Msg::user(
        "",
        [
            "See".into(),
            DataBlock {
                name: Some("a.pdf".to_owned()),
                ..DataBlock::url("https://example.com/a.pdf", "application/pdf")
            }
            .into(),
            DataBlock::bytes(b"\x89PNG", "image/png").into(),
        ],
    );
    let expected = json!([{"role": "user", "content": [
        {"type": "text", "text": "See"},
        {"type": "attachment", "url": "https://example.com/a.pdf", "name": "a.pdf",
            "mime_type": "application/pdf"},
        {"type": "attachment", "url": "data:image/png;base64,iVBORw==", "name": null,
            "mime_type": "image/png"},
    ]}]);
    assert_eq!(encode(std::slice::from_ref(&msg)), expected);
    assert_eq!(decode(&expected).unwrap(), [msg]);
}

#[test]
fn a_turn_in_chat_mode_has_no_thinking() {
    let question =
        Msg::user("", "?").to_builder().metadata("display_mode", "chat").build().unwrap();
    let entries = encode(&[question, reply(), Msg::user("", "?"), reply()]);
    let thinks = |entry: &Value| entry["content"][0]["type"] == "thinking";
    let with: Vec<bool> = entries.as_array().unwrap().iter().map(thinks).collect();
    assert_eq!(with, [false, false, false, false, false, true, false, false]);
}

#[test]
fn the_history_shows_how_a_reply_ended() {
    let error = ReplyError { message: "slow down".to_owned(), ..ReplyError::default() };
    let failed = Msg::builder(Role::Assistant).text("I").finished_reason(FinishedReason::Error);
    let failed = failed.error(error).build().unwrap();
    let stopped =
        Msg::builder(Role::Assistant).text("I").finished_reason(FinishedReason::Interrupted);
    let messages = [failed, stopped.build().unwrap()];
    let entries = encode(&messages);
    assert_eq!(entries[0]["content"][1]["type"], "terminal_error");
    assert_eq!(entries[1]["content"][1]["type"], "terminal_user_stopped");
    assert_eq!(entries[0]["content"][0]["is_final"], false);
    assert_eq!(decode(&entries).unwrap(), messages);
}

#[test]
fn a_history_of_another_server_is_read() {
    let answer = json!({"session_id": "s", "message_count": 4, "messages": [
        {"role": "user", "content": "How much?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "t", "name": "search", "args": {"a": 1}}]},
        {"role": "tool", "tool_use_id": "t", "content": "5"},
        {"role": "assistant", "content": [{"type": "text", "text": "Five."},
            {"type": "terminal_error", "text": "broke", "extras": {"code": "LLM_ERROR"}}]},
    ]});
    let messages = decode(&answer).unwrap();
    let roles: Vec<Role> = messages.iter().map(Msg::role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Assistant]);
    let (_, result) = messages[1].tool_calls().next().unwrap_or_else(|| panic!("{messages:?}"));
    assert_eq!(result.unwrap().output.text(""), "5");
    assert_eq!(messages[2].first::<TextBlock>().unwrap().text, "Five.");
    assert_eq!(messages[2].error().unwrap().r#type.as_str(), "upstream");
    assert_eq!(messages[2].finished_reason(), Some(&FinishedReason::Error));
}

#[test]
fn an_invalid_entry_is_reported() {
    for (entries, why) in [
        (
            json!([{"role": "user", "content": "x"}, {"role": "king"}]),
            "[1]: `role` must be user, assistant or tool",
        ),
        (
            json!([{"role": "user", "content": 5}]),
            "[0]: `content` must be a string or a list of blocks",
        ),
        (json!(5), "expected an entry object"),
    ] {
        let error = decode(&entries).unwrap_err();
        assert_eq!(error.to_string(), format!("NotAMessage: {why}"));
        assert_eq!(error.kind(), ErrorKind::NotAMessage);
    }
}
