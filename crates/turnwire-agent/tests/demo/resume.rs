//! The demo continues from any point of a reply's log.

use crate::session::{Answer, REPLY, Session, play_scene};
use turnwire_agent::DemoAgent;
use turnwire_core::{EventKind, Msg, ToolCall, ToolResult, ToolResultState};

const SCENES: [(&str, Answer); 17] = [
    ("hello\nthere", Answer::Yes),
    ("", Answer::Yes),
    ("weather", Answer::Yes),
    ("approve", Answer::Yes),
    ("approve", Answer::No),
    ("approve", Answer::Edit(r#"{"symbol":"ACME","quantity":7}"#)),
    ("approve", Answer::Edit("rubbish")),
    ("parallel", Answer::Yes),
    ("parallel", Answer::No),
    ("browser", Answer::Yes),
    ("browser", Answer::No),
    ("image", Answer::Yes),
    ("team", Answer::Yes),
    ("json", Answer::Yes),
    ("fail", Answer::Yes),
    ("long 300", Answer::Yes),
    ("long 0", Answer::Yes),
];

/// Whether a log ends while an approved trade runs.
fn is_inside_a_trade(partial: Option<&Msg>) -> bool {
    let Some(partial) = partial else { return false };
    partial.tool_calls().any(|(call, result)| {
        let runs = result.is_some_and(|result| result.finished_at.is_none());
        call.name == "execute_trade" && call.state.as_str() == "allowed" && runs
    })
}

#[tokio::test(start_paused = true)]
async fn cut_at_any_event_it_ends_as_if_it_had_never_been() {
    for (question, answer) in SCENES {
        let whole = play_scene(question, answer).await;
        for cut in 0..=whole.log.len() {
            let mut session = Session::with_log(&whole.log[..cut]);
            if is_inside_a_trade(session.partial().as_ref()) {
                continue;
            }
            session.play(&DemoAgent::with_rate(0.0), question, answer).await;
            let at = format!("{question:?}, {answer:?}, cut at {cut} of {}", whole.log.len());
            assert_eq!(session.messages(), whole.messages(), "{at}");
            assert_eq!(session.story(), whole.story(), "{at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cut_again_and_again_it_still_ends_the_same() {
    for (question, answer) in SCENES.into_iter().filter(|(question, _)| *question != "long 300") {
        let whole = play_scene(question, answer).await;
        let mut log = Vec::new();
        // Each process commits one event more than the last.
        while log.len() < whole.log.len() {
            let mut session = Session::with_log(&log);
            session.play(&DemoAgent::with_rate(0.0), question, answer).await;
            log = session.log[..=log.len()].to_vec();
            if is_inside_a_trade(Session::with_log(&log).partial().as_ref()) {
                break;
            }
            assert_eq!(Session::with_log(&log).story(), whole.story()[..log.len()]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_trade_that_had_started_is_never_started_again() {
    let mut crashes = 0;
    for question in ["approve", "parallel"] {
        let whole = play_scene(question, Answer::Yes).await;
        for cut in 0..=whole.log.len() {
            let mut session = Session::with_log(&whole.log[..cut]);
            if !is_inside_a_trade(session.partial().as_ref()) {
                continue;
            }
            crashes += 1;
            session.play(&DemoAgent::with_rate(0.0), question, Answer::Yes).await;
            assert_interrupted(session.message());
            // A second crash during the recovery changes nothing more.
            for second in cut..session.log.len() {
                let mut again = Session::with_log(&session.log[..second]);
                again.play(&DemoAgent::with_rate(0.0), question, Answer::Yes).await;
                assert_eq!(again.messages(), session.messages());
            }
        }
    }
    assert!(crashes > 10);
}

fn assert_interrupted(msg: &Msg) {
    let trades: Vec<_> =
        msg.blocks::<ToolResult>().filter(|result| result.name == "execute_trade").collect();
    assert_eq!(trades.len(), 1);
    assert_eq!(trades[0].state, ToolResultState::Interrupted);
    assert!(trades[0].output.text("").contains("not run again"));
    assert!(msg.text("").unwrap().contains("was interrupted"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_while_it_was_down_is_enough() {
    let whole = play_scene("approve", Answer::No).await;
    let is_answer = |kind: &EventKind<'_>| matches!(kind, EventKind::UserConfirmResult(_));
    let answered = whole.story().iter().position(is_answer).unwrap() + 1;
    let mut session = Session::with_log(&whole.log[..answered]);
    session.call(&DemoAgent::with_rate(0.0), "approve").await.unwrap();
    assert_eq!(session.messages(), whole.messages());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_reply_sends_nothing() {
    for question in ["approve", "parallel", "browser"] {
        let mut session = Session::default();
        let demo = DemoAgent::with_rate(0.0);
        session.call(&demo, question).await.unwrap();
        let (events, commits) = (session.log.len(), session.commits.len());
        session.call(&demo, question).await.unwrap();
        assert_eq!((session.log.len(), session.commits.len()), (events, commits), "{question}");
        assert!(session.partial().unwrap().finished_at().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_has_ended_stays_as_it_is() {
    let mut session = play_scene("weather", Answer::Yes).await;
    let before = session.log.clone();
    session.call(&DemoAgent::with_rate(0.0), "weather").await.unwrap();
    assert_eq!(session.log, before);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_hint_does_not_stop_the_demo() {
    let whole = play_scene("weather", Answer::Yes).await;
    for cut in 1..whole.log.len() {
        let mut session = Session::with_log(&whole.log[..cut]);
        let hint = format!(
            r#"{{"type":"HINT_BLOCK","id":"h","reply_id":"{REPLY}","block_id":"h","hint":"psst"}}"#
        );
        session.push(turnwire_core::Event::from_json(&hint).unwrap().into_owned());
        session.play(&DemoAgent::with_rate(0.0), "weather", Answer::Yes).await;
        assert_eq!(session.message().text(""), whole.message().text(""));
        assert_eq!(session.message().blocks::<ToolCall>().count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_detects_repeats_only_in_open_replies_is_enough() {
    for demo in [DemoAgent::with_rate(0.0), DemoAgent::default()] {
        for (question, answer) in [("team", Answer::Yes), ("weather", Answer::Yes)] {
            let mut whole = Session { forgets_ended_replies: true, ..Session::default() };
            whole.play(&demo, question, answer).await;
            let mut cut = 0;
            for commit in &whole.commits {
                cut += commit;
                let mut session = Session::with_log(&whole.log[..cut]);
                session.forgets_ended_replies = true;
                session.play(&demo, question, answer).await;
                assert_eq!(session.story(), whole.story(), "{question}, cut at {cut}");
            }
        }
    }
}
