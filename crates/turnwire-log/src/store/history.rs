//! Rows about conversations of clients that keep their own history.

use super::{SessionKey, SessionState};
use crate::client_history::HistoryDigest;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use turnwire_core::{Head, Seq};

/// How far a client that keeps its own history knows the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryState {
    /// The empty conversation of the same client. It stays after input that came another way; the rest is forgotten then.
    pub root: HistoryDigest,
    /// The conversation up to the last input.
    pub input: HistoryDigest,
    /// The conversation up to the answer, if there is one: the reply has ended, or waits for results of
    /// the client's tools.
    pub answer: Option<HistoryDigest>,
    /// A hash of the id that the client sends for its conversation; 0 if it sends none.
    pub client: i64,
    /// A hash of the client's request, to recognise it when it is sent again.
    pub request: i64,
    /// The reply that answers the input; empty if the client does not know how the conversation went on.
    pub reply_id: String,
    /// The position before the input, if it is the results of calls of an open reply.
    pub results_after: Option<Head>,
    /// How many blocks the reply had when the input came. The answer is what follows them.
    pub blocks: i64,
    /// The beginning of the answer, if the client gave it with the input.
    pub prefill: Option<HistoryPrefill>,
}

/// The beginning of an answer that a client gives, and the model continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPrefill {
    /// The conversation before it.
    pub before: HistoryDigest,
    /// Its text without white space.
    pub text: String,
}

impl HistoryState {
    /// The state after input that the client does not know of.
    pub(crate) fn forgotten(root: HistoryDigest) -> Self {
        Self {
            root,
            input: root,
            answer: None,
            client: 0,
            request: 0,
            reply_id: String::new(),
            results_after: None,
            blocks: 0,
            prefill: None,
        }
    }

    /// The state in a compact form: about 75 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { root, input, answer, client, request, reply_id, .. } = self;
        let Self { results_after, blocks, prefill, .. } = self;
        let numbers = [*client, *request, results_after.map_or(0, to_i64), *blocks];
        let packed_id = pack_hex(reply_id);
        let mut present = 0;
        let mut set = |flag: u8, is_set: bool| present |= if is_set { flag } else { 0 };
        set(HAS_ANSWER, answer.is_some());
        set(HAS_RESULTS, results_after.is_some());
        set(HAS_HEX_ID, packed_id.is_some());
        set(HAS_PREFILL, prefill.is_some());
        for (flag, number) in NUMBERS.into_iter().zip(numbers) {
            set(flag, number != 0);
        }
        let mut bytes = vec![present];
        bytes.extend([root, input].into_iter().chain(answer).flat_map(|digest| digest.0));
        bytes.extend(numbers.into_iter().filter(|number| *number != 0).flat_map(i64::to_be_bytes));
        if let Some(HistoryPrefill { before, text }) = prefill {
            bytes.extend(before.0);
            bytes.extend((text.len() as u64).to_be_bytes());
            bytes.extend(text.bytes());
        }
        match packed_id {
            Some(id) => bytes.extend(id),
            None => bytes.extend(reply_id.bytes()),
        }
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::Store("the state of a client's history is damaged".to_owned());
        Self::read(bytes).ok_or_else(damaged)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let present = take::<1>(&mut rest)?[0];
        let mut digest = || take(&mut rest).map(HistoryDigest);
        let (root, input) = (digest()?, digest()?);
        let answer = if present & HAS_ANSWER == 0 { None } else { Some(digest()?) };
        let mut numbers = [0; NUMBERS.len()];
        for (flag, number) in NUMBERS.into_iter().zip(&mut numbers) {
            if present & flag != 0 {
                *number = i64::from_be_bytes(take(&mut rest)?);
            }
        }
        let [client, request, results_after, blocks] = numbers;
        let results_after = Head::new(u64::try_from(results_after).ok()?);
        let prefill =
            if present & HAS_PREFILL == 0 { None } else { Some(take_prefill(&mut rest)?) };
        let reply_id = if present & HAS_HEX_ID == 0 {
            String::from_utf8(rest.to_owned()).ok()?
        } else {
            format!("{:032x}", u128::from_be_bytes(rest.try_into().ok()?))
        };
        let results_after = (present & HAS_RESULTS != 0).then_some(results_after);
        Some(Self {
            root,
            input,
            answer,
            client,
            request,
            reply_id,
            results_after,
            blocks,
            prefill,
        })
    }
}

// What a stored state has, in its first byte.
const HAS_ANSWER: u8 = 1;
const HAS_RESULTS: u8 = 2;
const HAS_HEX_ID: u8 = 4;
/// Those of the numbers `client`, `request`, `results_after` and `blocks` that are not 0.
const NUMBERS: [u8; 4] = [8, 16, 32, 64];
const HAS_PREFILL: u8 = 128;

fn to_i64(head: Head) -> i64 {
    i64::try_from(head.get()).unwrap_or(i64::MAX)
}

/// The bytes of an id that is 32 lower-case hexadecimal digits, as ours are.
fn pack_hex(id: &str) -> Option<[u8; 16]> {
    let is_packable = id.len() == 32 && id.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let number = is_packable.then(|| u128::from_str_radix(id, 16).ok())?;
    number.map(u128::to_be_bytes)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

fn take_prefill(rest: &mut &[u8]) -> Option<HistoryPrefill> {
    let before = HistoryDigest(take(rest)?);
    let length = usize::try_from(u64::from_be_bytes(take(rest)?)).ok()?;
    let (text, others) = rest.split_at_checked(length)?;
    *rest = others;
    Some(HistoryPrefill { before, text: String::from_utf8(text.to_owned()).ok()? })
}

/// A state of a conversation that a client may send again as its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryMark {
    /// The conversation up to this state.
    pub digest: HistoryDigest,
    /// The seq of the last event that belongs to it.
    pub seq: Seq,
    /// A hash of the id that the client sends for its conversation; 0 if it sends none.
    pub client: i64,
}

/// A session that has, or had, a state of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryMatch {
    /// The session.
    pub session: SessionKey,
    /// The state.
    pub mark: HistoryMark,
    /// The state of the session now.
    pub now: SessionState,
    /// When a message of it last began or ended, in milliseconds since 1970.
    pub updated_ms: i64,
}

/// How many sessions with the same state of a conversation are found, latest first.
pub const MAX_HISTORY_MATCHES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_read_as_it_was_written() {
        let digest = |byte| HistoryDigest([byte; 16]);
        let simple = HistoryState {
            root: digest(1),
            input: digest(2),
            answer: None,
            client: 0,
            request: 0,
            reply_id: "8f14e45fceea167a5a36dedd4bea2543".to_owned(),
            results_after: None,
            blocks: 0,
            prefill: None,
        };
        let full = HistoryState {
            answer: Some(digest(3)),
            client: i64::MIN,
            request: -1,
            results_after: Some(Head::new(7)),
            blocks: 2,
            prefill: Some(HistoryPrefill { before: digest(4), text: "Hellö,".to_owned() }),
            ..simple.clone()
        };
        let foreign =
            ["", "r", "8F14E45FCEEA167A5A36DEDD4BEA2543", "8f14e45fceea167a5a36dedd4bea254é"];
        let foreign = foreign.map(|id| HistoryState { reply_id: id.to_owned(), ..full.clone() });
        let at_start = HistoryState { results_after: Some(Head::EMPTY), ..simple.clone() };
        for state in [simple, full, at_start].into_iter().chain(foreign) {
            let bytes = state.to_bytes();
            assert_eq!(HistoryState::from_bytes(&bytes).unwrap(), state);
        }
        HistoryState::from_bytes(&[0; 20]).unwrap_err();
        HistoryState::from_bytes(&[]).unwrap_err();
    }
}
