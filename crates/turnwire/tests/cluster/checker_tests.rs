//! The checker notices each violation in a history that was made by hand, and nothing in a good one.

use crate::checker::{ALL, Findings, Violation, check_runs, check_session};
use crate::history::{Answer, Append, LogEvent, Read, SessionHistory, Shown};
use std::collections::HashMap;

fn event(seq: u64) -> LogEvent {
    LogEvent { seq, name: format!("e{seq}"), digest: seq * 10, ..LogEvent::default() }
}

fn append(began: u64, first: u64, head: u64) -> Append {
    let names = (first..=head).map(|seq| format!("e{seq}")).collect();
    Append { began, acknowledged: began + 2, names, head, is_exact: true, ..Append::default() }
}

fn read(began: u64, head: u64) -> Read {
    let events = (1..=head).map(|seq| (seq, seq * 10)).collect();
    Read { began, ended: began + 2, what: "log", head: Some(head), events }
}

fn shown(at: u64, seq: u64) -> Shown {
    Shown { at, watcher: 1, first: seq, seq, digest: Some(seq * 10) }
}

/// Four events in two appends; a watcher sees all of them, and somebody reads. A question was answered, and its
/// tool ran.
fn good() -> SessionHistory {
    let mut log: Vec<LogEvent> = (1..=4).map(event).collect();
    log[1].decided = vec![("reply s-call".into(), true)];
    log[2].succeeded = Some("s-call".into());
    log[3].ended_reply = Some("reply".into());
    SessionHistory {
        created: Some(1),
        appends: vec![append(10, 1, 2), append(20, 3, 4)],
        // The second began before the append was acknowledged, so it need not have it.
        reads: vec![read(13, 2), read(21, 2), read(41, 4)],
        shown: vec![shown(31, 1), shown(32, 2), shown(33, 3), shown(34, 4)],
        answers: vec![
            Answer { question: "reply s-call".into(), id: "e2".into(), is_accepted: true },
            Answer { question: "reply s-call".into(), id: "other".into(), is_accepted: false },
        ],
        replies: vec![("reply".into(), "hello".into())],
        last_logs: vec![log.clone(), log],
        wrong: Vec::new(),
    }
}

fn check(history: &SessionHistory, runs: u64) -> Findings {
    let runs: HashMap<String, u64> =
        (runs > 0).then(|| ("s-call".into(), runs)).into_iter().collect();
    let mut findings = Findings::default();
    check_session("s", history, &runs, &mut findings);
    check_runs(&runs, &mut findings);
    findings
}

/// Spoils the good history, and asserts that exactly this is found.
fn assert_finds(expected: Violation, spoil: impl FnOnce(&mut SessionHistory)) {
    let mut history = good();
    spoil(&mut history);
    let found = check(&history, 1);
    for kind in ALL {
        let is_expected = kind == expected;
        assert_eq!(found.count(kind) > 0, is_expected, "{kind:?}: {found} {:?}", found.described);
    }
}

#[test]
fn the_checker_finds_nothing_in_a_good_history() {
    let found = check(&good(), 1);
    assert!(found.is_empty(), "{:?}", found.described);
    assert!(found.to_string().starts_with("lost 0, doubled 0, reordered 0"), "{found}");
}

#[test]
fn the_checker_notices_an_acknowledged_event_that_is_lost() {
    assert_finds(Violation::Lost, |history| {
        let append = append(20, 5, 4);
        history.appends.push(Append { names: vec!["gone".into()], is_exact: false, ..append });
    });
}

#[test]
fn the_checker_notices_a_shown_event_that_is_lost() {
    assert_finds(Violation::Lost, |history| {
        history.shown.push(shown(50, 5));
    });
}

#[test]
fn the_checker_notices_an_event_that_a_watcher_never_got() {
    assert_finds(Violation::Lost, |history| {
        history.shown.remove(1);
    });
}

#[test]
fn the_checker_notices_gaps_in_a_log_and_in_a_read() {
    assert_finds(Violation::Lost, |history| {
        history.reads[2].events.remove(1);
    });
    let mut history = good();
    history.last_logs[1].remove(0);
    assert!(check(&history, 1).count(Violation::Lost) > 0);
}

#[test]
fn the_checker_notices_a_reply_that_never_ended() {
    assert_finds(Violation::Lost, |history| history.replies.push(("other".into(), "hello".into())));
}

#[test]
fn the_checker_notices_a_doubled_event_in_the_log_and_at_a_watcher() {
    assert_finds(Violation::Doubled, |history| {
        for log in &mut history.last_logs {
            log.push(LogEvent { name: "e2".into(), ..event(5) });
        }
        // The names stand once, at the last place, so the append is left out.
        history.appends.remove(0);
        history.appends.remove(0);
    });
    assert_finds(Violation::Doubled, |history| history.shown.insert(2, shown(32, 2)));
}

#[test]
fn the_checker_notices_reordered_events() {
    assert_finds(Violation::Reordered, |history| history.shown.swap(1, 2));
    // Within one append.
    assert_finds(Violation::Reordered, |history| {
        history.appends[1].names.swap(0, 1);
    });
    // Between two appends of one writer: neither says exactly where it is.
    assert_finds(Violation::Reordered, |history| {
        history.reads.clear();
        for append in &mut history.appends {
            (append.head, append.is_exact) = (4, false);
        }
        let first = history.appends[0].names.clone();
        history.appends[0].names = std::mem::replace(&mut history.appends[1].names, first);
    });
    // Behind the head of its acknowledgement.
    assert_finds(Violation::Reordered, |history| {
        history.appends[1].is_exact = false;
        history.appends[1].head = 3;
    });
}

#[test]
fn the_checker_notices_an_event_that_changed() {
    assert_finds(Violation::Changed, |history| history.shown[2].digest = Some(1));
    assert_finds(Violation::Changed, |history| history.reads[0].events[0].1 = 1);
    assert_finds(Violation::Changed, |history| history.last_logs[1][3].digest = 1);
}

#[test]
fn the_checker_notices_a_stale_read() {
    // After an acknowledged append.
    assert_finds(Violation::StaleRead, |history| history.reads.push(read(23, 3)));
    // After another client was shown an event whose append nobody has acknowledged.
    assert_finds(Violation::StaleRead, |history| {
        history.appends.clear();
        history.reads.push(read(35, 3));
    });
    // After another read.
    assert_finds(Violation::StaleRead, |history| {
        history.shown.clear();
        history.appends.clear();
        history.reads.push(read(44, 3));
    });
    // A session that was created is there.
    assert_finds(Violation::StaleRead, |history| {
        history.reads.push(Read { head: None, events: Vec::new(), ..read(5, 0) });
    });
}

#[test]
fn the_checker_notices_a_split_write() {
    assert_finds(Violation::SplitWrite, |history| {
        // Both owners acknowledged what they took for event 4; no log is known yet.
        history.last_logs.clear();
        history.appends.push(Append { names: vec!["theirs".into()], ..append(20, 4, 4) });
    });
}

#[test]
fn the_checker_notices_a_tool_that_ran_twice() {
    let found = check(&good(), 2);
    assert_eq!(found.count(Violation::ToolTwice), 1);
    assert_eq!(found.described.len(), 1, "{:?}", found.described);
}

#[test]
fn the_checker_notices_a_question_that_was_answered_twice() {
    assert_finds(Violation::AnsweredTwice, |history| history.answers[1].is_accepted = true);
    assert_finds(Violation::AnsweredTwice, |history| {
        for log in &mut history.last_logs {
            log[2].decided = vec![("reply s-call".into(), true)];
        }
    });
}

#[test]
fn the_checker_notices_a_denied_call_that_ran_and_a_result_without_a_run() {
    assert_finds(Violation::Wrong, |history| {
        for log in &mut history.last_logs {
            log[1].decided = vec![("reply s-call".into(), false)];
        }
    });
    assert_eq!(check(&good(), 0).count(Violation::Wrong), 2);
}
