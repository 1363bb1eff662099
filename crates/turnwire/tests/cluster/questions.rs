//! Questions that one node asks and another one answers, directly and through pgbouncer.

use crate::approvers::answer;
use crate::client::Client;
use crate::connection::Request;
use crate::harness::{ClusterTest, pause};
use crate::load::{check, print_summary, read_everything};
use crate::nodes::{Cluster, ClusterOptions};
use crate::users;
use jiff::Timestamp;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The longest time until a question is listed.
const ASK_TIMEOUT: Duration = Duration::from_mins(1);

#[test]
fn a_question_is_answered_at_other_nodes_also_when_the_node_that_asked_was_killed() {
    answer_elsewhere("questions", &ClusterOptions::THREE_NODES);
}

#[test]
fn behind_pgbouncer_a_question_is_answered_at_other_nodes_also_when_the_one_that_asked_was_killed()
{
    answer_elsewhere("questions behind pgbouncer", &ClusterOptions::BEHIND_PGBOUNCER);
}

#[test]
fn a_question_has_its_full_time_also_at_nodes_whose_clocks_differ() {
    answer_elsewhere("questions and wrong clocks", &ClusterOptions::WRONG_CLOCKS);
}

fn answer_elsewhere(what: &str, options: &ClusterOptions) {
    let Some(cluster) = Cluster::start(what, options) else { return };
    let test = ClusterTest::new(cluster.addresses());
    let [mut asking, mut first, mut second] = [0, 1, 2].map(|node| Client::at(&test, node));
    let session = test.create_session(&mut asking, "marker");
    let id = &session.id;

    assert!(users::send(&mut asking, id, 0, 0, &format!("ask {id}-c0 0"), false));
    let (reply, call) = wait_for_question(&mut first, id);
    assert!(answer(&mut first, id, &reply, &call, "allow-0", true));
    assert!(!answer(&mut second, id, &reply, &call, "deny-0", false), "it was answered twice");
    users::wait_until_idle(&mut second, id);

    assert!(users::send(&mut asking, id, 0, 1, &format!("ask {id}-c1 0"), false));
    let (reply, call) = wait_for_question(&mut second, id);
    cluster.nodes[0].kill();
    let begun = Instant::now();
    assert!(answer(&mut second, id, &reply, &call, "allow-1", true));
    println!("{what}: answered {} ms after the kill", begun.elapsed().as_millis());
    assert!(!answer(&mut first, id, &reply, &call, "deny-1", false), "it was answered twice");
    users::wait_until_idle(&mut first, id);
    assert_eq!(cluster.tool_runs().into_values().collect::<Vec<_>>(), [1, 1]);

    session.settle();
    cluster.nodes[0].heal();
    read_everything(&cluster, &test);
    let findings = check(&cluster, &test);
    print_summary(&cluster, &test, &findings);
    assert!(findings.is_empty(), "{findings}");
}

/// The default of `approval_timeout`.
const APPROVAL_TIMEOUT: Duration = Duration::from_mins(5);

/// Waits until this client's node lists a question of a session, and returns its reply and its call.
fn wait_for_question(client: &mut Client, session: &str) -> (Value, String) {
    let begun = Instant::now();
    loop {
        let list = client.call(&Request::get("/v1/approvals")).json();
        let mut pending = list["approvals"].as_array().into_iter().flatten();
        let question = pending.find(|pending| pending["session_id"] == session);
        if let Some(question) = question {
            let expires_at: Timestamp = question["expires_at"].as_str().unwrap().parse().unwrap();
            let left = expires_at.duration_since(Timestamp::now()).as_secs_f64();
            let limit = APPROVAL_TIMEOUT.as_secs_f64();
            assert!(left > limit / 2.0 && left < limit + 5.0, "{left} s are left: {question}");
            let call = question["confirm"][0]["id"].as_str().unwrap();
            return (question["reply_id"].clone(), call.to_owned());
        }
        assert!(begun.elapsed() < ASK_TIMEOUT, "{session} asks nothing: {list}");
        pause(Duration::from_millis(10));
    }
}
