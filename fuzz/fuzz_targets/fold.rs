//! Folds any stream of events and checks the laws of the fold.
//!
//! Every stream is folded strictly and tolerantly, each without stops and with stops at which the messages
//! are stored and loaded. Then: a refused or repeated event changes nothing, stops change nothing, both
//! modes agree until an event does not fit, and merged deltas fold into the same messages.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::mem;
use turnwire_core::event::{Event, EventKind};
use turnwire_core::{ErrorKind, Folder, Msg, Outcome, Seq, coalesce};
use turnwire_fuzz::script::{Script, Step};

fuzz_target!(|bytes: &[u8]| {
    let (mut strict, mut tolerant) = (FoldPair::new(Mode::Strict), FoldPair::new(Mode::Tolerant));
    let mut applied = Vec::new();
    let mut all_fitted = true;
    // Set to replay a finding: prints the events that the bytes stand for.
    let print = std::env::var_os("PRINT").is_some();
    for step in Script::new(bytes) {
        if print {
            eprintln!("{step}");
        }
        let event = match step {
            // The id of the last reset is not stored with the messages, so a repeat would not be recognised.
            Step::Event(event) if matches!(event.kind, EventKind::Reset(_)) => {
                Event { id: "".into(), ..event }
            }
            Step::Event(event) => event,
            Step::Store => {
                strict.store();
                tolerant.store();
                continue;
            }
        };
        check_reads_back(&event);
        let (outcome, problem) = strict.push(&event);
        let (tolerant_outcome, report) = tolerant.push(&event);
        if all_fitted {
            // If an event has two problems, each mode may report another one.
            assert_eq!(report.is_some(), problem.is_some(), "{report:?}, {problem:?}: {event:?}");
            all_fitted = problem.is_none();
        }
        if all_fitted {
            assert_eq!(tolerant_outcome, outcome, "the modes differ over {event:?}");
        }
        if outcome == Outcome::Applied {
            applied.push(event);
        }
    }

    for pair in [&strict, &tolerant] {
        assert_eq!(state(&pair.split), state(&pair.whole), "a stop changed the result");
        pair.whole.messages().for_each(check_message_reads_back);
    }
    if all_fitted {
        assert_eq!(state(&tolerant.whole), state(&strict.whole), "the modes differ");
    }
    check_repeats_change_nothing(&mut strict.whole, &applied);
    check_merged_deltas(&strict.whole, applied);
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Strict,
    Tolerant,
}

impl Mode {
    fn push(self, folder: &mut Folder, event: &Event<'_>) -> (Outcome, Option<ErrorKind>) {
        match self {
            Self::Strict => match folder.push(event) {
                Ok(outcome) => (outcome, None),
                Err(error) => (Outcome::Skipped, Some(error.kind())),
            },
            Self::Tolerant => {
                let (outcome, report) = folder.push_tolerant(event);
                (outcome, report.map(|error| error.kind()))
            }
        }
    }
}

/// The same stream in two folds: one without stops, one that is stored and loaded on the way.
struct FoldPair {
    mode: Mode,
    whole: Folder,
    split: Folder,
    /// The state of `whole`.
    state: Vec<Stored>,
}

impl FoldPair {
    fn new(mode: Mode) -> Self {
        Self { mode, whole: Folder::default(), split: Folder::default(), state: Vec::new() }
    }

    fn push(&mut self, event: &Event<'_>) -> (Outcome, Option<ErrorKind>) {
        let result = self.mode.push(&mut self.whole, event);
        let before = mem::replace(&mut self.state, state(&self.whole));
        let after = &self.state;
        match result.0 {
            Outcome::Applied if recognises_repeat(event) => {
                let again = self.mode.push(&mut self.whole, event);
                assert_eq!(again, (Outcome::Repeated, None), "applied twice: {event:?}");
                assert_eq!(state(&self.whole), *after, "a repeat changed something: {event:?}");
            }
            Outcome::Applied => {}
            // A tolerant fold adds the message of a reply with its first event, even if that is skipped.
            Outcome::Skipped if self.mode == Mode::Tolerant => {
                assert!(after.starts_with(&before), "a skipped event changed something: {event:?}");
            }
            Outcome::Skipped | Outcome::Repeated | Outcome::Ignored => {
                assert_eq!(*after, before, "{result:?}, but something changed: {event:?}");
            }
        }
        let split = self.mode.push(&mut self.split, event);
        assert_eq!(split, result, "another result after a stop: {event:?}");
        result
    }

    fn store(&mut self) {
        self.split = loaded(&state(&self.split));
    }
}

/// A stored message.
#[derive(Debug, PartialEq, Eq)]
struct Stored {
    message: String,
    cursor: String,
}

fn state(folder: &Folder) -> Vec<Stored> {
    let stored = |msg: &Msg| Stored {
        message: msg.to_json(),
        cursor: serde_json::to_string(&msg.cursor()).expect("a cursor is JSON"),
    };
    folder.messages().map(stored).collect()
}

fn loaded(state: &[Stored]) -> Folder {
    let load = |Stored { message, cursor }: &Stored| {
        let cursor = serde_json::from_str(cursor).expect("a stored cursor reads back");
        let message = Msg::from_json(message).expect("a stored message reads back");
        message.with_cursor(cursor)
    };
    state.iter().map(load).collect()
}

/// Whether a fold that has applied the event recognises a repeat.
fn recognises_repeat(event: &Event<'_>) -> bool {
    let has_memory = event.kind.is_part_of_reply() || matches!(event.kind, EventKind::Message(_));
    has_memory && (event.seq.is_some() || !event.id.is_empty())
}

/// Repeats the whole stream from its last reset on.
fn check_repeats_change_nothing(folder: &mut Folder, applied: &[Event<'_>]) {
    let before = state(folder);
    let reset = applied.iter().rposition(|event| matches!(event.kind, EventKind::Reset(_)));
    for event in
        applied.iter().skip(reset.map_or(0, |at| at + 1)).filter(|it| recognises_repeat(it))
    {
        assert_eq!(folder.push(event), Ok(Outcome::Repeated), "applied twice: {event:?}");
    }
    assert_eq!(state(folder), before, "a repeat changed something");
}

/// Folds the log of the applied events with merged deltas, from the start and from the middle.
fn check_merged_deltas(folder: &Folder, applied: Vec<Event<'_>>) {
    // A message without any id is named after its seq, and the seqs change here.
    let is_named_by_seq = |event: &Event<'_>| match &event.kind {
        EventKind::Message(it) => it.message.id().is_empty() && event.id.is_empty(),
        _ => false,
    };
    if applied.iter().any(is_named_by_seq) {
        return;
    }
    let log: Vec<Event<'_>> = (1..)
        .zip(applied)
        .map(|(seq, event)| Event { seq: Seq::new(seq), seq_from: None, ..event })
        .collect();
    let one_by_one = fold(log.clone());
    let messages = |folder: &Folder| folder.messages().map(Msg::to_json).collect::<Vec<_>>();
    assert_eq!(messages(&one_by_one), messages(folder), "other seqs gave other messages");

    assert_eq!(state(&fold(coalesce(log.clone()))), state(&one_by_one), "merged: {log:?}");
    let late = log.iter().skip(log.len() / 2).cloned();
    let early = log.iter().take(log.len() / 2).cloned();
    assert_eq!(state(&fold(early.chain(coalesce(late)))), state(&one_by_one), "late: {log:?}");
}

fn fold<'e>(events: impl IntoIterator<Item = Event<'e>>) -> Folder {
    let mut folder = Folder::default();
    for event in events {
        assert_eq!(
            folder.push(&event),
            Ok(Outcome::Applied),
            "expected it to be applied: {event:?}"
        );
    }
    folder
}

fn check_message_reads_back(msg: &Msg) {
    assert_eq!(Msg::from_json(&msg.to_json()).as_ref(), Ok(msg));
}

/// An event without the reply id that it needs cannot be read.
fn check_reads_back(event: &Event<'_>) {
    if !event.reply_id.is_empty() {
        assert_eq!(Event::from_json(&event.to_json()).as_ref(), Ok(event));
    }
}
