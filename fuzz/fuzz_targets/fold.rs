//! Any stream of events, folded in every way that the laws speak of.
//!
//! Every stream is folded strictly and tolerantly, each of them at once and with stops at which all
//! is stored and loaded. Then: what is refused or repeated changes nothing, stops change nothing,
//! both modes agree until something does not fit, and merged deltas fold to the same messages.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::mem;
use turnwire_core::event::{Event, EventKind};
use turnwire_core::{ErrorKind, Folder, Msg, Outcome, Seq, coalesce};
use turnwire_fuzz::script::{Script, Step};

fuzz_target!(|bytes: &[u8]| {
    let (mut strict, mut tolerant) = (Lane::new(Mode::Strict), Lane::new(Mode::Tolerant));
    let mut applied = Vec::new();
    let mut all_fitted = true;
    // Set when a finding is replayed: shows the stream that the bytes stand for.
    let print = std::env::var_os("PRINT").is_some();
    for step in Script::new(bytes) {
        if print {
            eprintln!("{step}");
        }
        let event = match step {
            // That a reset is a repeat is known to the folder, and not stored with its messages.
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
        reads_back(&event);
        let (outcome, problem) = strict.push(&event);
        let (tolerant_outcome, report) = tolerant.push(&event);
        if all_fitted {
            // Of two problems in one event each mode may name the other.
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

    for lane in [&strict, &tolerant] {
        assert_eq!(state(&lane.split), state(&lane.whole), "a stop changed something");
        lane.whole.messages().for_each(message_reads_back);
    }
    if all_fitted {
        assert_eq!(state(&tolerant.whole), state(&strict.whole), "the modes differ");
    }
    repeats_change_nothing(&mut strict.whole, &applied);
    merged_deltas_fold_alike(&strict.whole, applied);
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

/// The same stream in two folds: one without a stop, one that is stored and loaded on its way.
struct Lane {
    mode: Mode,
    whole: Folder,
    split: Folder,
    /// The state of `whole`.
    state: Vec<Stored>,
}

impl Lane {
    fn new(mode: Mode) -> Self {
        Self { mode, whole: Folder::default(), split: Folder::default(), state: Vec::new() }
    }

    fn push(&mut self, event: &Event<'_>) -> (Outcome, Option<ErrorKind>) {
        let result = self.mode.push(&mut self.whole, event);
        let before = mem::replace(&mut self.state, state(&self.whole));
        let after = &self.state;
        match result.0 {
            Outcome::Applied if is_known_again(event) => {
                let again = self.mode.push(&mut self.whole, event);
                assert_eq!(again, (Outcome::Repeated, None), "applied twice: {event:?}");
                assert_eq!(state(&self.whole), *after, "a repeat changed something: {event:?}");
            }
            Outcome::Applied => {}
            // The message of a reply is there from its first event on, fitting or not.
            Outcome::Skipped if self.mode == Mode::Tolerant => {
                assert!(after.starts_with(&before), "skipped, and yet it changed: {event:?}");
            }
            Outcome::Skipped | Outcome::Repeated | Outcome::Ignored => {
                assert_eq!(*after, before, "{result:?}, and yet it changed: {event:?}");
            }
        }
        let split = self.mode.push(&mut self.split, event);
        assert_eq!(split, result, "after a stop it is another matter: {event:?}");
        result
    }

    fn store(&mut self) {
        self.split = loaded(&state(&self.split));
    }
}

/// What is stored of a message.
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

/// Whether a fold that has applied the event can tell when it comes again.
fn is_known_again(event: &Event<'_>) -> bool {
    let has_memory = event.kind.is_part_of_reply() || matches!(event.kind, EventKind::Message(_));
    has_memory && (event.seq.is_some() || !event.id.is_empty())
}

/// The whole stream comes again, from its last reset on.
fn repeats_change_nothing(folder: &mut Folder, applied: &[Event<'_>]) {
    let before = state(folder);
    let reset = applied.iter().rposition(|event| matches!(event.kind, EventKind::Reset(_)));
    for event in applied.iter().skip(reset.map_or(0, |at| at + 1)).filter(|it| is_known_again(it)) {
        assert_eq!(folder.push(event), Ok(Outcome::Repeated), "applied twice: {event:?}");
    }
    assert_eq!(state(folder), before, "a repeat changed something");
}

/// A log has only what was applied, at dense places. Its deltas may be merged from anywhere on.
fn merged_deltas_fold_alike(folder: &Folder, applied: Vec<Event<'_>>) {
    // A message without any id is named after its place, and the places are about to change.
    let is_named_by_place = |event: &Event<'_>| match &event.kind {
        EventKind::Message(it) => it.message.id().is_empty() && event.id.is_empty(),
        _ => false,
    };
    if applied.iter().any(is_named_by_place) {
        return;
    }
    let log: Vec<Event<'_>> = (1..)
        .zip(applied)
        .map(|(place, event)| Event { seq: Seq::new(place), seq_from: None, ..event })
        .collect();
    let one_by_one = fold(log.clone());
    let messages = |folder: &Folder| folder.messages().map(Msg::to_json).collect::<Vec<_>>();
    assert_eq!(messages(&one_by_one), messages(folder), "other seqs, other messages");

    assert_eq!(state(&fold(coalesce(log.clone()))), state(&one_by_one), "merged: {log:?}");
    let late = log.iter().skip(log.len() / 2).cloned();
    let early = log.iter().take(log.len() / 2).cloned();
    assert_eq!(state(&fold(early.chain(coalesce(late)))), state(&one_by_one), "late: {log:?}");
}

fn fold<'e>(events: impl IntoIterator<Item = Event<'e>>) -> Folder {
    let mut folder = Folder::default();
    for event in events {
        assert_eq!(folder.push(&event), Ok(Outcome::Applied), "it was applied before: {event:?}");
    }
    folder
}

fn message_reads_back(msg: &Msg) {
    assert_eq!(Msg::from_json(&msg.to_json()).as_ref(), Ok(msg));
}

/// Without a reply an event that needs one is none.
fn reads_back(event: &Event<'_>) {
    if !event.reply_id.is_empty() {
        assert_eq!(Event::from_json(&event.to_json()).as_ref(), Ok(event));
    }
}
