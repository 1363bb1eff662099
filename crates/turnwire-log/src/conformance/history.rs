//! Sessions that are found by the history that a client sends.

use super::harness::{Harness, Owner, assert_durable, assert_refused, lines, seq};
use crate::client_history::HistoryDigest;
use crate::error::Error;
use crate::store::{Append, HistoryMark, HistoryState, MAX_HISTORY_MATCHES, SessionState, Store};

fn mark(digest: u8, place: u64) -> HistoryMark {
    HistoryMark { digest: HistoryDigest([digest; 16]), seq: seq(place), client: i64::from(digest) }
}

/// The sessions and seqs that are found for the first known digest.
async fn find(store: &dyn Store, digests: &[u8]) -> Vec<(String, u64)> {
    let digests: Vec<_> = digests.iter().map(|digest| HistoryDigest([*digest; 16])).collect();
    let found = store.find_history(&digests).await.unwrap();
    found.into_iter().map(|found| (found.session.id.to_string(), found.mark.seq.get())).collect()
}

pub(super) async fn a_session_is_found_by_the_first_known_history(harness: &mut Harness) {
    let store = harness.store();
    let mut one = Owner::new(store, "t", "one").await;
    let mut two = Owner::new(store, "u", "two").await;
    let known = HistoryState {
        root: HistoryDigest([0; 16]),
        input: HistoryDigest([1; 16]),
        answer: Some(HistoryDigest([2; 16])),
        client: 2,
        request: 3,
        reply_id: "r".to_owned(),
        results_after: None,
        blocks: 4,
        prefill: None,
    };
    let state = SessionState { history: Some(known), ..SessionState::default() };
    let history = vec![mark(1, 1), mark(2, 2)];
    store.append(Append { history, state: Some(state.clone()), ..one.events(2) }).await.unwrap();
    store.append(Append { history: vec![mark(1, 1)], ..two.events(1) }).await.unwrap();
    store.append(Append { history: vec![mark(1, 2)], ..two.events(1) }).await.unwrap();
    let refused =
        Append { lines: Some(lines(one.no, 9, 1)), history: vec![mark(3, 9)], ..one.nothing() };
    assert_refused!(store.append(refused).await, Error::OutOfOrder);
    assert_durable!(harness, |store| {
        let owned = |found: &[(&str, u64)]| -> Vec<(String, u64)> {
            found.iter().map(|(id, seq)| ((*id).to_owned(), *seq)).collect()
        };
        assert_eq!(find(store, &[]).await, []);
        assert_eq!(find(store, &[3, 9]).await, []);
        assert_eq!(find(store, &[9, 2, 1]).await, owned(&[("one", 2)]));
        assert_eq!(find(store, &[1, 2]).await, owned(&[("two", 2), ("two", 1), ("one", 1)]));
        let digest = HistoryDigest([2; 16]);
        let found = store.find_history(&[digest]).await.unwrap().remove(0);
        assert_eq!((found.session, found.mark, &found.now), (one.key.clone(), mark(2, 2), &state));
        let record = store.find_session(&one.key).await.unwrap();
        assert_eq!(record.map(|record| record.state), Some(state.clone()));
    });
}

pub(super) async fn only_the_latest_sessions_of_a_history_are_found(harness: &mut Harness) {
    for number in 0..=MAX_HISTORY_MATCHES {
        let mut owner = Owner::new(harness.store(), "t", &format!("s{number}")).await;
        let append = Append { history: vec![mark(7, 1)], ..owner.events(1) };
        harness.store().append(append).await.unwrap();
    }
    assert_durable!(harness, |store| {
        let found = find(store, &[7]).await;
        assert_eq!(found.len(), MAX_HISTORY_MATCHES);
        assert_eq!(found[0].0, format!("s{MAX_HISTORY_MATCHES}"));
        assert!(found.iter().all(|(id, _)| id != "s0"), "{found:?}");
    });
}

pub(super) async fn a_deleted_session_is_not_found_by_its_history(harness: &mut Harness) {
    let mut owners = Vec::new();
    for id in ["gone", "stays"] {
        let mut owner = Owner::new(harness.store(), "t", id).await;
        let append = Append { history: vec![mark(5, 1)], ..owner.events(1) };
        harness.store().append(append).await.unwrap();
        owners.push(owner);
    }
    harness.store().delete_session(owners[0].no).await.unwrap();
    assert_durable!(harness, |store| assert_eq!(
        find(store, &[5]).await,
        [("stays".to_owned(), 1)]
    ));
}
