//! Lists of sessions.

use super::harness::{Harness, Owner, all_of, assert_durable, ids, new, open_from};
use crate::cost::{Cost, UsageTotal};
use crate::store::{
    Append, HeldHint, Producer, QueuedMessage, SessionOutcome, SessionQuery, SessionRecord,
    SessionState, SessionStatus, Store, StoredMessage,
};
use crate::visible_sessions::{SessionPattern, VisibleSessions};
use turnwire_core::Usage;

/// All pages of a query.
async fn pages(store: &dyn Store, query: &SessionQuery, limit: usize) -> Vec<SessionRecord> {
    let mut found: Vec<SessionRecord> = Vec::new();
    let mut query = SessionQuery { limit, ..query.clone() };
    loop {
        let page = store.list_sessions(&query).await.unwrap();
        assert!(page.len() <= limit, "more than was asked for");
        let Some(last) = page.last() else { return found };
        query.after = Some((last.updated_ms, last.number));
        found.extend(page);
        assert!(found.len() < 1000, "the pages have no end");
    }
}

/// Appends the start of a message to a session.
async fn append_reply_at(store: &dyn Store, owner: &mut Owner, now_ms: i64) {
    owner.now_ms = now_ms;
    let append = owner.events(1);
    store.append(Append { state: Some(open_from(1)), ..append }).await.unwrap();
}

pub(super) async fn sessions_are_listed_latest_change_first(harness: &mut Harness) {
    let mut owners = Vec::new();
    for id in ["a", "b", "c", "d"] {
        owners.push(Owner::new(harness.store(), "t", id).await);
    }
    for (at, now_ms) in [(2, 10), (0, 20), (3, 30), (1, 40), (2, 50)] {
        append_reply_at(harness.store(), &mut owners[at], now_ms).await;
    }
    assert_durable!(harness, |store| {
        let list = store.list_sessions(&all_of("t")).await.unwrap();
        assert_eq!(ids(&list), ["c", "b", "d", "a"]);
        for record in &list {
            assert_eq!(Some(record), store.find_session(&record.key).await.unwrap().as_ref());
        }
        let none = SessionQuery { limit: 0, ..all_of("t") };
        assert_eq!(store.list_sessions(&none).await.unwrap(), []);
        assert_eq!(store.list_sessions(&all_of("nobody")).await.unwrap(), []);
    });
}

pub(super) async fn only_the_beginning_or_end_of_a_message_moves_a_session_up(
    harness: &mut Harness,
) {
    let store = harness.store();
    let mut owner = Owner::new(store, "t", "s").await;
    append_reply_at(store, &mut owner, 100).await;
    owner.now_ms = 200;
    store.append(owner.events(3)).await.unwrap();
    let record = owner.record(store).await;
    assert_eq!((record.created_ms, record.updated_ms, record.head.get()), (0, 100, 4));
    owner.now_ms = 300;
    store.append(owner.reply(1, "m", "")).await.unwrap();
    assert_durable!(harness, |store| assert_eq!(owner.record(store).await.updated_ms, 300));
}

pub(super) async fn pages_of_any_size_give_every_session_once(harness: &mut Harness) {
    for at in 0..23_i64 {
        // Several change in the same millisecond.
        harness.store().create_session(new("t", &format!("s{at}"), at / 4)).await.unwrap();
        harness.store().create_session(new("other", &format!("s{at}"), at / 4)).await.unwrap();
    }
    assert_durable!(harness, |store| {
        let all = store.list_sessions(&all_of("t")).await.unwrap();
        assert_eq!(all.len(), 23);
        assert!(all.is_sorted_by(|a, b| a.updated_ms >= b.updated_ms));
        for limit in [1, 2, 3, 4, 5, 22, 23, 24] {
            assert_eq!(pages(store, &all_of("t"), limit).await, all, "pages of {limit}");
        }
    });
}

pub(super) async fn a_change_between_two_pages_hides_no_other_session(harness: &mut Harness) {
    let mut owners = Vec::new();
    for at in 0..9 {
        let (record, _) =
            harness.store().create_session(new("t", &at.to_string(), at)).await.unwrap();
        owners.push(Owner::acquire(harness.store(), record).await);
    }
    let mut query = SessionQuery { limit: 3, ..all_of("t") };
    let first = harness.store().list_sessions(&query).await.unwrap();
    assert_eq!(ids(&first), ["8", "7", "6"]);
    query.after = first.last().map(|record| (record.updated_ms, record.number));
    // One session that was listed already, and one that was not.
    append_reply_at(harness.store(), &mut owners[6], 100).await;
    append_reply_at(harness.store(), &mut owners[1], 101).await;
    harness.store().delete_session(owners[4].no).await.unwrap();
    assert_durable!(harness, |store| {
        let rest = SessionQuery { limit: 100, ..query.clone() };
        assert_eq!(ids(&store.list_sessions(&rest).await.unwrap()), ["5", "3", "2", "0"]);
    });
}

pub(super) async fn a_list_is_of_one_tenant_and_of_one_status(harness: &mut Harness) {
    let all = [SessionStatus::Idle, SessionStatus::Running, SessionStatus::Waiting];
    for tenant in ["a", "b"] {
        for at in 0..12 {
            let store = harness.store();
            let (record, _) = store.create_session(new(tenant, &at.to_string(), 0)).await.unwrap();
            let mut owner = Owner::acquire(store, record).await;
            owner.now_ms = i64::try_from(at).unwrap() + 1;
            let status = all[at % 3];
            let state = match status {
                SessionStatus::Idle => SessionState::default(),
                SessionStatus::Running | SessionStatus::Waiting => {
                    SessionState { status, ..open_from(1) }
                }
            };
            let append = owner.events(1);
            store.append(Append { state: Some(state), ..append }).await.unwrap();
        }
    }
    assert_durable!(harness, |store| {
        for (at, status) in all.into_iter().enumerate() {
            let query = SessionQuery { status: Some(status), ..all_of("a") };
            let expected: Vec<_> = [9, 6, 3, 0].map(|n| (n + at).to_string()).into();
            for limit in [1, 3, 4, 100] {
                let list = pages(store, &query, limit).await;
                assert_eq!(ids(&list), expected);
                assert!(list.iter().all(|record| record.state.status == status));
                assert!(list.iter().all(|record| &*record.key.tenant == "a"));
            }
        }
    });
}

pub(super) async fn a_list_within_reach_does_not_depend_on_other_sessions(harness: &mut Harness) {
    // Ids close to the patterns: shorter, longer, before, after, of another tenant.
    let others =
        ["", "a", "room", "room-12", "room-0", "team", "team9", "team;", "tean", "zz", "team:"];
    let mine = ["room-1", "team:a", "team:b", "team:\u{10FFFF}x", "team:ü", "solo \"1\""];
    let rules =
        ["room-1", "team:*", "team:a", "team:ab*", "solo \"1\"", "missing", "team\u{10FFFF}*"];
    let reach = VisibleSessions::only(rules.map(SessionPattern::new));
    let mut at = 0;
    for id in others.iter().chain(&mine) {
        at += 1;
        harness.store().create_session(new("t", id, at / 3)).await.unwrap();
        harness.store().create_session(new("other", id, at / 3)).await.unwrap();
    }
    assert_durable!(harness, |store| {
        let query = SessionQuery { visible: reach.clone(), ..all_of("t") };
        let found = store.list_sessions(&query).await.unwrap();
        let mut names = ids(&found);
        names.sort_unstable();
        let mut expected: Vec<&str> = mine.into_iter().chain(["team:"]).collect();
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert!(
            found.is_sorted_by_key(|record| {
                std::cmp::Reverse((record.updated_ms, record.number))
            })
        );
        for limit in [1, 2, 3, 6, 7, 8] {
            assert_eq!(pages(store, &query, limit).await, found, "pages of {limit}");
            let page = SessionQuery { limit, ..query.clone() };
            let page = store.list_sessions(&page).await.unwrap();
            assert_eq!(page.len(), limit.min(found.len()), "a page is full");
        }
        for (rules, expected) in
            [(vec![], vec![]), (vec!["room-1"], vec!["room-1"]), (vec!["nobody", "nob*"], vec![])]
        {
            let reach = VisibleSessions::only(rules.into_iter().map(SessionPattern::new));
            let few = SessionQuery { visible: reach, ..all_of("t") };
            assert_eq!(ids(&store.list_sessions(&few).await.unwrap()), expected);
        }
        let idle = SessionQuery { status: Some(SessionStatus::Idle), ..query.clone() };
        assert_eq!(store.list_sessions(&idle).await.unwrap(), found);
        let waiting = SessionQuery { status: Some(SessionStatus::Waiting), ..query };
        assert_eq!(store.list_sessions(&waiting).await.unwrap(), []);
    });
}

pub(super) async fn open_sessions_are_those_of_all_tenants_with_an_open_reply_or_a_queue(
    harness: &mut Harness,
) {
    for (tenant, id, status) in [
        ("a", "idle", SessionStatus::Idle),
        ("a", "running", SessionStatus::Running),
        ("b", "waiting", SessionStatus::Waiting),
        ("c", "closed", SessionStatus::Running),
    ] {
        let mut owner = Owner::new(harness.store(), tenant, id).await;
        if status != SessionStatus::Idle {
            let append = owner.events(1);
            let state = SessionState { status, ..open_from(1) };
            harness.store().append(Append { state: Some(state), ..append }).await.unwrap();
        }
        if id == "closed" {
            let append = owner.events(1);
            let state = Some(SessionState::default());
            let messages: Vec<StoredMessage> = vec![super::harness::message("m", 1, 2, "")];
            harness.store().append(Append { messages, state, ..append }).await.unwrap();
        }
    }
    harness.store().create_session(new("a", "untouched", 0)).await.unwrap();
    let owner = Owner::new(harness.store(), "d", "queued").await;
    let queued = QueuedMessage { id: "m".to_owned(), reply_id: "r".to_owned(), json: "{}".into() };
    let append = Append { enqueue: vec![queued], ..owner.nothing() };
    harness.store().append(append).await.unwrap();
    assert_durable!(harness, |store| {
        let mut open = store.list_open_sessions().await.unwrap();
        open.sort_by_key(|record| record.number);
        assert_eq!(ids(&open), ["running", "waiting", "queued"]);
        for record in &open {
            assert_eq!(Some(record), store.find_session(&record.key).await.unwrap().as_ref());
        }
    });
}

pub(super) async fn a_state_comes_back_as_it_was_written(harness: &mut Harness) {
    let mut owner = Owner::new(harness.store(), "t", "s").await;
    let mut usage = Usage { input_tokens: i64::MAX, output_tokens: 2, ..Usage::default() };
    usage.rest.insert("more", 3);
    let state = SessionState {
        outcome: Some(SessionOutcome::Failed),
        history: None,
        status: SessionStatus::Waiting,
        open_from: Some(super::harness::seq(2)),
        usage: usage.clone(),
        cost: Cost::new(12.5),
        subs: [("sub \"1\"".to_owned(), UsageTotal { usage, cost: Cost::new(0.5) })].into(),
        former_producers: vec![Producer { id: "p 0".to_owned(), fence: 7, holder: String::new() }],
        is_produced: true,
        is_forking: true,
        rules: Vec::new(),
        held: vec![HeldHint {
            reply_id: "r".to_owned(),
            event_id: "e".to_owned(),
            block_id: "b \"1\"".to_owned(),
            json: r#"{"type":"HINT_BLOCK"}"#.to_owned(),
        }],
        producer: Some(Producer {
            id: "p \"1\"".to_owned(),
            fence: u64::MAX,
            holder: "h \"1\"".to_owned(),
        }),
    };
    let append = owner.events(2);
    harness.store().append(Append { state: Some(state.clone()), ..append }).await.unwrap();
    harness.store().append(owner.events(2)).await.unwrap();
    assert_durable!(harness, |store| assert_eq!(owner.record(store).await.state, state));
    let owner = Owner::acquire(harness.store(), owner.record(harness.store()).await).await;
    let append = owner.nothing();
    let state = Some(SessionState::default());
    harness.store().append(Append { state, ..append }).await.unwrap();
    assert_durable!(harness, |store| {
        assert_eq!(owner.record(store).await.state, SessionState::default());
    });
}

/// Sets the usage of a session.
async fn append_usage(store: &dyn Store, owner: &mut Owner, tokens: i64, cost: Option<f64>) {
    let usage = Usage { input_tokens: tokens, output_tokens: 1, ..Usage::default() };
    let half = Usage { input_tokens: tokens / 2, ..Usage::default() };
    let cost = cost.and_then(Cost::new);
    let subs = [("helper".to_owned(), UsageTotal { usage: half, cost: None })].into();
    let state = SessionState { usage, cost, subs, ..SessionState::default() };
    let append = owner.events(1);
    store.append(Append { state: Some(state), ..append }).await.unwrap();
}

/// Input tokens, cost, and the input tokens of the sub-agent, by agent.
async fn totals(
    store: &dyn Store,
    tenant: &str,
    reach: &VisibleSessions,
) -> Vec<(String, i64, Option<f64>, i64)> {
    let totals = store.agent_totals(tenant, reach, None).await.unwrap();
    let totals = totals.into_iter().map(|(agent, totals)| {
        let UsageTotal { usage, cost } = totals.total();
        let helper = totals.sub_agents().find(|(name, _)| *name == "helper");
        let helper = helper.map_or(0, |(_, spent)| spent.usage.input_tokens);
        (agent, usage.input_tokens, cost.map(Cost::amount), helper)
    });
    totals.filter(|(_, tokens, ..)| *tokens != 0).collect()
}

pub(super) async fn totals_are_those_of_the_sessions_that_are_there(harness: &mut Harness) {
    let mut owners = Vec::new();
    for (tenant, id, agent) in
        [("t", "a", "one"), ("t", "b", "one"), ("t", "c", "two"), ("u", "a", "one")]
    {
        let new = crate::store::NewSession { agent: agent.to_owned(), ..new(tenant, id, 0) };
        let (record, _) = harness.store().create_session(new).await.unwrap();
        owners.push(Owner::acquire(harness.store(), record).await);
    }
    for (owner, tokens) in owners.iter_mut().zip([10, 20, 40, 80]) {
        append_usage(harness.store(), owner, 2, Some(9.0)).await;
        append_usage(harness.store(), owner, tokens, Some(0.5)).await;
        // Other appends change nothing.
        harness.store().append(owner.events(3)).await.unwrap();
    }
    let one = |tokens, cost| ("one".to_owned(), tokens, cost, tokens / 2);
    let two = || ("two".to_owned(), 40, Some(0.5), 20);
    assert_durable!(harness, |store| {
        assert_eq!(totals(store, "t", &VisibleSessions::ALL).await, [one(30, Some(1.0)), two()]);
        assert_eq!(totals(store, "u", &VisibleSessions::ALL).await, [one(80, Some(0.5))]);
        assert_eq!(totals(store, "nobody", &VisibleSessions::ALL).await, []);
        for (rules, expected) in [
            (vec!["a"], vec![one(10, Some(0.5))]),
            (vec!["b*", "c", "d"], vec![one(20, Some(0.5)), two()]),
            (vec!["d"], vec![]),
            (vec![], vec![]),
        ] {
            let reach = VisibleSessions::only(rules.into_iter().map(SessionPattern::new));
            assert_eq!(totals(store, "t", &reach).await, expected);
        }
    });
    // More than fits, and removed again.
    for owner in &mut owners {
        *owner = Owner::acquire(harness.store(), owner.record(harness.store()).await).await;
    }
    for at in [0, 1] {
        append_usage(harness.store(), &mut owners[at], i64::MAX, None).await;
    }
    let most = ("one".to_owned(), i64::MAX, None, i64::MAX - 1);
    assert_eq!(totals(harness.store(), "t", &VisibleSessions::ALL).await, [most, two()]);
    harness.store().delete_session(owners[0].no).await.unwrap();
    harness.store().delete_session(owners[2].no).await.unwrap();
    append_usage(harness.store(), &mut owners[1], 5, None).await;
    assert_durable!(harness, |store| {
        assert_eq!(
            totals(store, "t", &VisibleSessions::ALL).await,
            [("one".to_owned(), 5, None, 2)]
        );
        assert_eq!(totals(store, "u", &VisibleSessions::ALL).await, [one(80, Some(0.5))]);
    });
}
