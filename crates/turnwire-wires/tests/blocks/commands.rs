//! Commands of clients, and their answers.

use serde_json::json;
use turnwire_core::{ErrorKind, Json, Msg, ToolCall};
use turnwire_wires::blocks::DisplayMode;
use turnwire_wires::blocks::{
    AnswerFrame, Approval, ApprovalDetails, ApprovalKey, Chat, Command, ContentUrl, Decision,
    History, IncomingCommand, PendingApproval, ServerAnswer, Status, SubscriptionStatus, Verdict,
};

#[test]
fn every_command_is_read() {
    let session_id = || "abc-123".to_owned();
    for (text, command) in [
        (r#"{"type":"auth","token":"secret"}"#, Command::Auth { token: "secret".to_owned() }),
        (
            r#"{"type":"subscribe","session_id":"abc-123"}"#,
            Command::Subscribe { session_id: session_id(), last_event_id: None },
        ),
        (
            r#"{"type":"subscribe","session_id":"abc-123","last_event_id":"e1.7"}"#,
            Command::Subscribe { session_id: session_id(), last_event_id: Some("e1.7".to_owned()) },
        ),
        (
            r#"{"type":"subscribe","session_id":"abc-123","last_event_id":7}"#,
            Command::Subscribe { session_id: session_id(), last_event_id: Some("7".to_owned()) },
        ),
        (
            r#"{"type":"chat","message":"hi"}"#,
            Command::Chat(Chat { message: "hi".to_owned(), ..Chat::default() }),
        ),
        (r#"{"type":"stop","session_id":"abc-123"}"#, Command::Stop { session_id: session_id() }),
        (r#"{"type":"ping"}"#, Command::Ping),
    ] {
        assert_eq!(Command::from_json(text).unwrap(), command);
    }
}

#[test]
fn a_chat_command_becomes_a_user_message() {
    let text = r#"{"type":"chat","session_id":"s","message":"Read this","display_mode":"chat",
        "content_urls":["https://example.com/a.pdf",{"url":"https://example.com/b","name":"b.png","mime_type":"image/png"}]}"#;
    let Command::Chat(chat) = Command::from_json(text).unwrap() else { panic!() };
    let urls = [
        ContentUrl { url: "https://example.com/a.pdf".to_owned(), ..ContentUrl::default() },
        ContentUrl {
            url: "https://example.com/b".to_owned(),
            name: Some("b.png".to_owned()),
            mime_type: Some("image/png".to_owned()),
        },
    ];
    assert_eq!((&chat.content_urls[..], chat.display_mode), (&urls[..], Some(DisplayMode::Chat)));
    let msg: serde_json::Value = serde_json::from_str(&chat.to_msg().to_json()).unwrap();
    assert_eq!(msg["metadata"], json!({"display_mode": "chat"}));
    assert_eq!(msg["content"][0]["text"], "Read this");
    let second = json!({"type": "url", "url": "https://example.com/b", "media_type": "image/png"});
    assert_eq!(
        (&msg["content"][2]["source"], &msg["content"][2]["name"]),
        (&second, &json!("b.png"))
    );
}

fn approval(decisions: &str) -> String {
    format!(
        r#"{{"type":"approval","session_id":"a_b","approval_key":"a_b_2","decisions":{decisions}}}"#
    )
}

#[test]
fn a_decision_is_approve_edit_or_reject() {
    let text = approval(
        r#"[{"tool_use_id":"t1","type":"approve"},{"tool_use_id":"t2","type":"edit","args":{"n":1}},
            {"tool_use_id":"t3","type":"reject","message":"no"}]"#,
    );
    let Command::Approval(approval) = Command::from_json(&text).unwrap() else { panic!() };
    let decision = |id: &str, verdict: Verdict, message: Option<&str>| Decision {
        tool_use_id: Some(id.to_owned()),
        verdict,
        message: message.map(str::to_owned),
    };
    let expected = Approval {
        session_id: "a_b".to_owned(),
        approval_key: ApprovalKey { session_id: "a_b".to_owned(), count: 2 },
        decisions: vec![
            decision("t1", Verdict::Approve, None),
            decision("t2", Verdict::Edit { args: Json::parse(r#"{"n":1}"#).unwrap() }, None),
            decision("t3", Verdict::Reject, Some("no")),
        ],
    };
    assert_eq!(approval, expected);
    let waiting = ["t1", "t2", "t3"].map(|id| ToolCall::new(id, "trade", r#"{"n":5}"#));
    let answers = approval.to_event(&waiting).unwrap().confirm_results;
    let answers: Vec<(&str, bool, &str)> = answers
        .iter()
        .map(|answer| (&*answer.tool_call.id, answer.confirmed, &*answer.tool_call.input))
        .collect();
    assert_eq!(answers, [("t1", true, ""), ("t2", true, r#"{"n":1}"#), ("t3", false, "")]);
}

#[test]
fn decisions_without_ids_go_by_index_and_unknown_ones_are_refused() {
    let waiting = [ToolCall::new("t1", "trade", ""), ToolCall::new("t2", "trade", "")];
    let read = |text: &str| match Command::from_json(&approval(text)).unwrap() {
        Command::Approval(approval) => approval.to_event(&waiting),
        other => panic!("{other:?}"),
    };
    let answers = read(r#"[{"type":"reject"},{"type":"approve"}]"#).unwrap().confirm_results;
    let answers: Vec<(&str, bool)> =
        answers.iter().map(|answer| (&*answer.tool_call.id, answer.confirmed)).collect();
    assert_eq!(answers, [("t1", false), ("t2", true)]);
    for (text, why) in [
        (r#"[{"type":"approve","tool_use_id":"t9"}]"#, "approval of t9: no such pending call"),
        (
            r#"[{"type":"approve"},{"type":"reject","tool_use_id":"t1"}]"#,
            "approval of t1: two decisions for one call",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::NotARequest, why));
    }
}

#[test]
fn an_invalid_command_is_reported_with_its_field() {
    for (text, why) in [
        (r"[]", "expected a JSON object with a `type`"),
        (r"{}", "`type` is missing; expected one of auth, subscribe, chat, approval, stop, ping"),
        (
            r#"{"type":"shout"}"#,
            "unknown command `shout`; expected one of auth, subscribe, chat, approval, stop, ping",
        ),
        (r#"{"type":"auth"}"#, "auth has no `token`"),
        (r#"{"type":"auth","token":5}"#, "`token` of auth is not a string"),
        (r#"{"type":"subscribe"}"#, "subscribe has no `session_id`"),
        (r#"{"type":"stop","session_id":""}"#, "stop has no `session_id`"),
        (r#"{"type":"chat"}"#, "chat has no `message`"),
        (
            r#"{"type":"chat","message":"x","content_urls":"u"}"#,
            "`content_urls` of chat is not a list",
        ),
        (
            r#"{"type":"chat","message":"x","content_urls":[7]}"#,
            "`content_urls[0]` of chat is not a URL",
        ),
        (
            r#"{"type":"chat","message":"x","display_mode":"loud"}"#,
            "`display_mode` of chat must be agent or chat, not `loud`",
        ),
        (r#"{"type":"approval"}"#, "approval has no `approval_key`"),
        (
            r#"{"type":"approval","approval_key":"x"}"#,
            "`approval_key` of approval must be SESSION_COUNT, not `x`",
        ),
        (
            r#"{"type":"approval","approval_key":"s_1","session_id":"t"}"#,
            "`approval_key` of approval belongs to another session",
        ),
        (r#"{"type":"approval","approval_key":"s_1"}"#, "approval has no `decisions`"),
        (
            r#"{"type":"approval","approval_key":"s_1","decisions":[{"type":"edit"}]}"#,
            "`decisions[0]` of approval is not an edit with `args`, an object",
        ),
        (
            r#"{"type":"approval","approval_key":"s_1","decisions":[{"type":"maybe"}]}"#,
            "`decisions[0]` of approval is not of `type` approve, edit or reject",
        ),
    ] {
        let error = Command::from_json(text).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::NotARequest, why), "{text}");
    }
    assert_eq!(Command::from_json("{").unwrap_err().kind(), ErrorKind::NotJson);
}

#[test]
fn an_answer_repeats_the_id_of_its_command_even_an_invalid_one() {
    let id = |text: &str| IncomingCommand::from_json(text).id;
    let bad = IncomingCommand::from_json(r#"{"type":"shout","id":"c7"}"#);
    assert!(bad.command.is_err());
    let error = ServerAnswer::error("BAD_REQUEST", "what?");
    for (answer, id, json) in [
        (ServerAnswer::Connected, None, r#"{"type":"connected"}"#),
        (ServerAnswer::AuthOk, id(r#"{"id":1}"#), r#"{"type":"auth_ok","id":1}"#),
        (
            ServerAnswer::Subscribed {
                session_id: "s".to_owned(),
                status: SubscriptionStatus::Running,
            },
            None,
            r#"{"type":"subscribed","session_id":"s","status":"running"}"#,
        ),
        (ServerAnswer::Pong, None, r#"{"type":"pong"}"#),
        (error, bad.id, r#"{"type":"error","code":"BAD_REQUEST","message":"what?","id":"c7"}"#),
    ] {
        assert_eq!(AnswerFrame { answer, id }.to_json(), json);
    }
}

#[test]
fn an_approval_key_may_contain_underscores() {
    let key = ApprovalKey { session_id: "abc_123_4".to_owned(), count: 2 };
    assert_eq!(key.to_string(), "abc_123_4_2");
    assert_eq!(ApprovalKey::parse("abc_123_4_2"), Some(key));
    for bad in ["", "abc", "abc_", "abc_x", "abc_+1", "abc_99999999999999999999"] {
        assert_eq!(ApprovalKey::parse(bad), None, "{bad}");
    }
}

#[test]
fn the_history_has_all_fields() {
    let call = ToolCall::new("t", "trade", r#"{"n":1}"#);
    let messages = [Msg::user("ann", "hi")];
    let history = History {
        status: Status::WaitingApproval,
        pending_approval: Some(PendingApproval {
            approval_key: ApprovalKey::parse("s_1").unwrap(),
            reply_id: "m1".to_owned(),
            request: ApprovalDetails::new([&call], 60),
        }),
        last_event_id: Some("e1.7".to_owned()),
        ..History::from_messages("s", &messages)
    };
    let json: serde_json::Value = serde_json::from_str(&history.to_json()).unwrap();
    let expected = json!({"session_id": "s", "messages": [{"role": "user", "sender": "ann",
        "content": [{"type": "text", "text": "hi"}]}], "message_count": 1, "status":
        "waiting_approval", "pending_approval": {"approval_key": "s_1", "reply_id": "m1",
        "action_requests": [{"name": "trade", "args": {"n": 1}, "tool_use_id": "t"}],
        "review_configs": [{"require_approval": true}], "timeout_seconds": 60},
        "display_mode": "agent", "workspace": null, "agent_status": null, "last_event_id": "e1.7"});
    assert_eq!(json, expected);
}
