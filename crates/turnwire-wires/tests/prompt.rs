//! The prompt: a conversation as the messages that every provider knows.

use turnwire_core::{
    ContentBlock, DataBlock, HintBlock, Msg, TextBlock, ThinkingBlock, ToolCall, ToolResult,
    ToolResultState,
};
use turnwire_testkit::{check_property, values};
use turnwire_wires::model_request::{
    AssistantPart, PromptMessage, SpeakerFormat, UserPart, build_prompt,
};

fn call(id: &str) -> ContentBlock {
    ToolCall::new(id, "tool", "{}").into()
}

fn result(id: &str, text: &str) -> ContentBlock {
    ToolResult::success(id, text).into()
}

fn assistant(content: Vec<ContentBlock>) -> Msg {
    Msg::assistant("friday", content)
}

/// The prompt in short: role and content of each message.
fn short_prompt(messages: &[Msg], agents: SpeakerFormat) -> Vec<String> {
    build_prompt(messages, agents).iter().map(show_message).collect()
}

fn show_message(turn: &PromptMessage<'_>) -> String {
    match turn {
        PromptMessage::System(msg) => format!("system {}", msg.text("\n").unwrap_or_default()),
        PromptMessage::User { parts, .. } => {
            let parts = parts.iter().map(|part| match part {
                UserPart::Text(block) => block.text.clone(),
                UserPart::Data(_) => "(data)".to_owned(),
                UserPart::Item(_) => "(item)".to_owned(),
            });
            format!("user {}", parts.collect::<Vec<_>>().join(" | "))
        }
        PromptMessage::Assistant(said) => {
            let said = said.iter().map(|said| match said {
                AssistantPart::Text(block) => block.text.clone(),
                AssistantPart::Thinking(_) => "(thinking)".to_owned(),
                AssistantPart::Data(_) => "(data)".to_owned(),
                AssistantPart::ToolCall(call) => format!("({})", call.id),
                AssistantPart::Item(_) => "(item)".to_owned(),
            });
            format!("assistant {}", said.collect::<Vec<_>>().join(" | "))
        }
        PromptMessage::ToolResults(answers) => {
            let answers = answers.iter().map(|answer| {
                let failed = if answer.is_error() { " failed" } else { "" };
                format!("{}{failed}: {}", answer.call.id, answer.text())
            });
            format!("results {}", answers.collect::<Vec<_>>().join(" | "))
        }
    }
}

#[test]
fn a_reply_with_two_rounds_is_five_turns() {
    let messages = [
        Msg::system("", "be brief"),
        Msg::user("ann", "go"),
        assistant(vec![
            ThinkingBlock::new("hm").into(),
            "let me look".into(),
            call("a"),
            call("b"),
            result("b", "two"),
            result("a", "one"),
            "done".into(),
        ]),
    ];
    assert_eq!(
        short_prompt(&messages, SpeakerFormat::SingleAgent),
        [
            "system be brief",
            "user go",
            "assistant (thinking) | let me look | (a) | (b)",
            "results a: one | b: two",
            "assistant done",
        ]
    );
}

#[test]
fn a_result_in_a_message_of_its_own_answers_its_call() {
    let messages = [
        assistant(vec![call("a")]),
        Msg::tool("", ToolResult::error("a", "no")),
        assistant(vec!["so".into()]),
    ];
    assert_eq!(
        short_prompt(&messages, SpeakerFormat::SingleAgent),
        ["assistant (a)", "results a failed: no", "assistant so"]
    );
}

#[test]
fn a_call_without_a_result_was_interrupted_and_a_result_without_a_call_is_left_out() {
    let denied = ToolResult { state: ToolResultState::Denied, ..ToolResult::success("b", "") };
    let messages = [
        Msg::tool("", ToolResult::success("a", "before its call")),
        assistant(vec![call("a"), call("b"), denied.into(), result("nobody", "x")]),
        Msg::user("", "and now?"),
    ];
    assert_eq!(
        short_prompt(&messages, SpeakerFormat::SingleAgent),
        [
            "assistant (a) | (b)",
            "results a failed: The call was interrupted before it gave a result. | b failed: The call was denied.",
            "user and now?",
        ]
    );
}

#[test]
fn calls_that_share_an_id_take_their_results_in_order() {
    let messages = [assistant(vec![call("a"), result("a", "1"), call("a"), result("a", "2")])];
    assert_eq!(
        short_prompt(&messages, SpeakerFormat::SingleAgent),
        ["assistant (a)", "results a: 1", "assistant (a)", "results a: 2"]
    );
}

#[test]
fn a_hint_ends_the_models_turn_and_is_a_users() {
    let messages = [assistant(vec![
        "one".into(),
        call("a"),
        HintBlock::new("the build is green").into(),
        result("a", "1"),
        "two".into(),
    ])];
    assert_eq!(
        short_prompt(&messages, SpeakerFormat::SingleAgent),
        ["assistant one | (a)", "results a: 1", "user the build is green", "assistant two"]
    );
}

#[test]
fn empty_messages_are_left_out() {
    let messages = [
        Msg::user("", ""),
        assistant(vec![TextBlock::new("").into()]),
        assistant(Vec::new()),
        Msg::system("", ""),
    ];
    assert_eq!(short_prompt(&messages, SpeakerFormat::SingleAgent), Vec::<String>::new());
}

fn team() -> [Msg; 5] {
    let image = DataBlock::url("https://example.com/a.png", "image/png");
    [
        Msg::system("", "moderate"),
        Msg::user("ann", "tea or coffee?"),
        Msg::assistant("A", vec!["tea".into(), image.into(), ContentBlock::from("green")]),
        Msg::assistant("B", vec![call("a"), result("a", "beans"), "coffee".into()]),
        Msg::assistant("A", "no"),
    ]
}

#[test]
fn several_agents_become_a_history_and_runs_with_tools_stay() {
    assert_eq!(
        short_prompt(&team(), SpeakerFormat::HistoryTags),
        [
            "system moderate",
            "user # Conversation History\n\
             The content between <history></history> tags contains your conversation history\n\
             <history>\nann: tea or coffee?\nA: tea | (data) | A: green\n</history>",
            "assistant (a)",
            "results a: beans",
            "assistant coffee",
            "user <history>\nA: no\n</history>",
        ]
    );
}

#[test]
fn several_agents_in_the_older_form() {
    assert_eq!(
        short_prompt(&team(), SpeakerFormat::NamePrefix),
        [
            "system moderate",
            "user [ann]: tea or coffee?",
            "user [A]: tea | (data) | [A]: green",
            "assistant (a)",
            "results a: beans",
            "assistant coffee",
            "user [A]: no",
        ]
    );
}

#[test]
fn every_call_gets_exactly_one_result_directly_after_it() {
    check_property("every_call_gets_exactly_one_result_directly_after_it", 2000, |rng| {
        let messages: Vec<Msg> = (0..rng.usize(..5)).map(|_| values::message(rng)).collect();
        for agents in
            [SpeakerFormat::SingleAgent, SpeakerFormat::HistoryTags, SpeakerFormat::NamePrefix]
        {
            let turns = build_prompt(&messages, agents);
            let mut open_calls: Vec<&str> = Vec::new();
            for turn in &turns {
                match turn {
                    PromptMessage::ToolResults(answers) => {
                        let ids: Vec<&str> = answers.iter().map(|it| it.call.id.as_str()).collect();
                        assert_eq!(ids, std::mem::take(&mut open_calls));
                        assert!(answers.iter().all(|answer| !answer.text().is_empty()));
                    }
                    turn => {
                        assert!(
                            open_calls.is_empty(),
                            "{open_calls:?} have no answer before {turn:?}"
                        );
                        if let PromptMessage::Assistant(said) = turn {
                            assert!(!said.is_empty());
                            open_calls.extend(said.iter().filter_map(|said| match said {
                                AssistantPart::ToolCall(call) => Some(call.id.as_str()),
                                _ => None,
                            }));
                        }
                    }
                }
            }
            assert!(open_calls.is_empty());
        }
    });
}
