//! Finds what must not be in a history: lost, doubled, reordered and changed events, stale reads, split writes, tools
//! that ran twice, questions that were answered twice.

use crate::history::{Append, LogEvent, SessionHistory, Shown, Tick, asked_call};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

/// How many findings of one kind are described.
const MAX_DESCRIBED: u64 = 8;

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Acknowledged or shown, and not there.
    Lost,
    /// There twice, or shown twice to one watcher.
    Doubled,
    Reordered,
    /// The same seq with other content.
    Changed,
    /// A read without something that was acknowledged or shown before it began.
    StaleRead,
    /// Two acknowledged events with one seq.
    SplitWrite,
    ToolTwice,
    AnsweredTwice,
    /// Anything else.
    Wrong,
}

pub const ALL: [Violation; 9] = [
    Violation::Lost,
    Violation::Doubled,
    Violation::Reordered,
    Violation::Changed,
    Violation::StaleRead,
    Violation::SplitWrite,
    Violation::ToolTwice,
    Violation::AnsweredTwice,
    Violation::Wrong,
];

impl Violation {
    fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Doubled => "doubled",
            Self::Reordered => "reordered",
            Self::Changed => "changed",
            Self::StaleRead => "stale reads",
            Self::SplitWrite => "split writes",
            Self::ToolTwice => "tool twice",
            Self::AnsweredTwice => "question answered twice",
            Self::Wrong => "otherwise wrong",
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    counts: BTreeMap<Violation, u64>,
    pub described: Vec<String>,
}

impl Findings {
    pub fn report(&mut self, what: Violation, why: impl fmt::Display) {
        let count = self.counts.entry(what).or_default();
        *count += 1;
        if *count <= MAX_DESCRIBED {
            self.described.push(format!("{}: {why}", what.name()));
        }
    }

    pub fn count(&self, what: Violation) -> u64 {
        self.counts.get(&what).copied().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, what) in ALL.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", what.name(), self.count(what))?;
        }
        Ok(())
    }
}

/// Checks one session. `runs` says how often each call ran. Without a last log nothing is known to be lost.
pub fn check_session(
    name: &str,
    history: &SessionHistory,
    runs: &HashMap<String, u64>,
    findings: &mut Findings,
) {
    let mut check = Check { name, history, findings };
    check.find_stale_reads();
    check.find_changes();
    check.find_split_writes();
    let watchers: BTreeSet<usize> = history.shown.iter().map(|shown| shown.watcher).collect();
    for watcher in watchers {
        let shown = history.shown.iter().filter(|shown| shown.watcher == watcher);
        check.follow_watcher(watcher, shown);
    }
    check.count_accepted_answers();
    for log in &history.last_logs {
        check.check_log(log, runs);
    }
    for (what, why) in &history.wrong {
        check.report(*what, why);
    }
}

/// No call ran twice.
pub fn check_runs(runs: &HashMap<String, u64>, findings: &mut Findings) {
    for (call, times) in runs.iter().filter(|(_, times)| **times > 1) {
        findings.report(Violation::ToolTwice, format_args!("{call} ran {times} times"));
    }
}

struct Check<'c> {
    name: &'c str,
    history: &'c SessionHistory,
    findings: &'c mut Findings,
}

impl Check<'_> {
    fn report(&mut self, what: Violation, why: impl fmt::Display) {
        self.findings.report(what, format_args!("{}: {why}", self.name));
    }

    /// A read has everything that was known somewhere before it began.
    fn find_stale_reads(&mut self) {
        let SessionHistory { appends, reads, shown, .. } = self.history;
        let created = self.history.created.map(|at| (at, 0));
        let mut known: Vec<(Tick, u64)> = created.into_iter().collect();
        known.extend(appends.iter().map(|append| (append.acknowledged, append.head)));
        known.extend(shown.iter().map(|shown| (shown.at, shown.seq)));
        known.extend(reads.iter().filter_map(|read| Some((read.ended, read.head?))));
        known.sort_unstable();
        let mut highest = 0;
        for (_, head) in &mut known {
            highest = highest.max(*head);
            *head = highest;
        }
        for read in reads {
            let before = known.partition_point(|(at, _)| *at < read.began);
            let Some((at, least)) = before.checked_sub(1).and_then(|last| known.get(last)) else {
                continue;
            };
            if read.head.is_none_or(|head| head < *least) {
                let (what, head, began) = (read.what, read.head, read.began);
                let why = format!("{what} at {began} has {head:?}; {least} was known at {at}");
                self.report(Violation::StaleRead, why);
            }
            let wanted = 1..=read.head.unwrap_or_default();
            if !read.events.is_empty() && !read.events.iter().map(|(seq, _)| *seq).eq(wanted) {
                let (what, head) = (read.what, read.head);
                self.report(Violation::Lost, format_args!("{what} up to {head:?} has gaps"));
            }
        }
    }

    /// Everybody who sees an event sees the same.
    fn find_changes(&mut self) {
        let SessionHistory { reads, shown, last_logs, .. } = self.history;
        let read = reads.iter().flat_map(|read| read.events.iter().copied());
        let shown = shown.iter().filter_map(|shown| Some((shown.seq, shown.digest?)));
        let last = last_logs.iter().flatten().map(|event| (event.seq, event.digest));
        let mut known = HashMap::new();
        for (seq, digest) in last.chain(read).chain(shown) {
            if *known.entry(seq).or_insert(digest) != digest {
                self.report(
                    Violation::Changed,
                    format_args!("event {seq} was seen with another content"),
                );
            }
        }
    }

    fn find_split_writes(&mut self) {
        let mut claims: HashMap<u64, &str> = HashMap::new();
        for append in self.history.appends.iter().filter(|append| append.is_exact) {
            for (seq, name) in claimed(append) {
                if let Some(other) = claims.insert(seq, name).filter(|other| *other != name) {
                    let why = format!("{other} and {name} were both acknowledged at {seq}");
                    self.report(Violation::SplitWrite, why);
                }
            }
        }
    }

    /// A watcher gets every event once, in order, however often it reconnects.
    fn follow_watcher<'s>(&mut self, watcher: usize, shown: impl Iterator<Item = &'s Shown>) {
        let mut last = 0;
        let mut missing: BTreeSet<u64> = BTreeSet::new();
        for Shown { first, seq, .. } in shown {
            for one in *first..=*seq {
                if one > last {
                    missing.extend(last + 1..one);
                    last = one;
                } else if missing.remove(&one) {
                    self.report(
                        Violation::Reordered,
                        format_args!("{watcher} got {one} after {last}"),
                    );
                } else {
                    self.report(Violation::Doubled, format_args!("{watcher} got {one} twice"));
                }
            }
        }
        if !missing.is_empty() {
            self.report(Violation::Lost, format_args!("{watcher} never got {missing:?}"));
        }
    }

    fn count_accepted_answers(&mut self) {
        let mut accepted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for answer in self.history.answers.iter().filter(|answer| answer.is_accepted) {
            accepted.entry(&answer.question).or_default().insert(&answer.id);
        }
        for (question, ids) in accepted.iter().filter(|(_, ids)| ids.len() > 1) {
            self.report(Violation::AnsweredTwice, format_args!("{question} by {ids:?}"));
        }
    }

    /// What one node has at the end.
    fn check_log(&mut self, log: &[LogEvent], runs: &HashMap<String, u64>) {
        if !log.iter().map(|event| event.seq).eq(1..=log.len() as u64) {
            self.report(Violation::Lost, "the last log has gaps");
        }
        let mut places: HashMap<&str, u64> = HashMap::new();
        for event in log.iter().filter(|event| !event.name.is_empty()) {
            if let Some(before) = places.insert(&event.name, event.seq) {
                let (name, seq) = (&event.name, event.seq);
                self.report(Violation::Doubled, format_args!("{name} is at {before} and {seq}"));
            }
        }
        let shown = self.history.shown.iter().map(|shown| shown.seq).max().unwrap_or_default();
        if shown > log.len() as u64 {
            let length = log.len();
            self.report(
                Violation::Lost,
                format_args!("{shown} was shown, the log ends at {length}"),
            );
        }
        for append in &self.history.appends {
            self.check_append(append, &places);
        }
        self.check_order_of_writers(&places);
        let ended: HashSet<&str> =
            log.iter().filter_map(|event| event.ended_reply.as_deref()).collect();
        for (reply, _) in &self.history.replies {
            if !ended.contains(reply.as_str()) {
                self.report(Violation::Lost, format_args!("reply {reply} never ended"));
            }
        }
        self.check_decisions(log, runs);
    }

    fn check_append(&mut self, append: &Append, places: &HashMap<&str, u64>) {
        let mut last = 0;
        for name in &append.names {
            let Some(&seq) = places.get(name.as_str()) else {
                self.report(Violation::Lost, format_args!("{name} was acknowledged"));
                continue;
            };
            if seq <= last || (append.head > 0 && seq > append.head) {
                let head = append.head;
                self.report(
                    Violation::Reordered,
                    format_args!("{name} is at {seq}, after {last}, acknowledged up to {head}"),
                );
            }
            last = seq;
        }
        for (seq, name) in claimed(append).filter(|_| append.is_exact) {
            if places.get(name).is_some_and(|place| *place != seq) {
                self.report(Violation::Reordered, format_args!("{name} was acknowledged at {seq}"));
            }
        }
    }

    /// What a writer had acknowledged stands before what it sent afterwards.
    fn check_order_of_writers(&mut self, places: &HashMap<&str, u64>) {
        let mut last: HashMap<usize, (Tick, u64)> = HashMap::new();
        let mut appends: Vec<&Append> = self.history.appends.iter().collect();
        appends.sort_unstable_by_key(|append| append.began);
        for append in appends.into_iter().filter(|append| append.head > 0) {
            let seqs: Vec<u64> =
                append.names.iter().filter_map(|name| places.get(name.as_str()).copied()).collect();
            let (Some(first_seq), Some(last_seq)) = (seqs.iter().min(), seqs.iter().max()) else {
                continue;
            };
            let before = last.insert(append.writer, (append.acknowledged, *last_seq));
            if before.is_some_and(|(at, seq)| at < append.began && seq >= *first_seq) {
                let (names, seq) = (&append.names, before.unwrap_or_default().1);
                self.report(Violation::Reordered, format_args!("{names:?} is not after {seq}"));
            }
        }
    }

    /// Each call is decided once, one that was denied did not run, and a result says what happened.
    fn check_decisions(&mut self, log: &[LogEvent], runs: &HashMap<String, u64>) {
        let mut decided: HashMap<&str, bool> = HashMap::new();
        for (question, is_allowed) in log.iter().flat_map(|event| &event.decided) {
            if decided.insert(question, *is_allowed).is_some() {
                self.report(Violation::AnsweredTwice, format_args!("{question}, in the log"));
            }
            if !is_allowed && runs.contains_key(asked_call(question)) {
                self.report(Violation::Wrong, format_args!("{question} was denied, and ran"));
            }
        }
        for call in log.iter().filter_map(|event| event.succeeded.as_deref()) {
            // The calls that leave marks are named after their session.
            if call.starts_with(self.name) && !runs.contains_key(call) {
                self.report(Violation::Wrong, format_args!("{call} has a result, and never ran"));
            }
        }
    }
}

/// Seq and name of each event of an append that is exact.
fn claimed(append: &Append) -> impl Iterator<Item = (u64, &str)> {
    let first = (append.head + 1).saturating_sub(append.names.len() as u64);
    (first..).zip(append.names.iter().map(String::as_str))
}
