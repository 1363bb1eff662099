//! The timing of commits.

use crate::session::{Answer, Session};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use turnwire_agent::{AgentError, DemoAgent};
use turnwire_core::TextBlock;

#[tokio::test(start_paused = true)]
async fn a_delta_takes_its_time_and_is_a_commit_of_its_own() {
    let begun = Instant::now();
    let mut session = Session::default();
    session.play(&DemoAgent::default(), "long 80", Answer::Yes).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_millis(2200), "{took:?}");
    assert_eq!(session.deltas.iter().max(), Some(&1));
    assert_eq!(session.commits[0], 3, "what takes no time does not wait for the first delta");
}

#[tokio::test(start_paused = true)]
async fn without_a_rate_it_takes_no_time_and_few_commits() {
    let begun = Instant::now();
    let mut session = Session::default();
    session.play(&DemoAgent::with_rate(0.0), "long 1000", Answer::Yes).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(session.commits.iter().max(), Some(&64));
    assert_eq!(session.commits.len(), session.log.len().div_ceil(64));
}

#[tokio::test(start_paused = true)]
async fn every_rate_comes_to_an_end() {
    for rate in [1e12, 1e300, f64::INFINITY, f64::NAN, -1.0, 0.000_001, f64::MIN_POSITIVE] {
        let mut session = Session::default();
        session.play(&DemoAgent::with_rate(rate), "long 10", Answer::Yes).await;
        assert_eq!(session.message().first::<TextBlock>().unwrap().text.len(), 80, "{rate}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_high_rate_batches_deltas_within_the_timer_resolution() {
    let begun = Instant::now();
    let mut session = Session::default();
    session.play(&DemoAgent::with_rate(100_000.0), "long 10000", Answer::Yes).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(95) && took < Duration::from_millis(120), "{took:?}");
    assert!(session.commits.len() < 1000, "{} commits", session.commits.len());
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_heard_while_it_waits_for_the_next_delta() {
    let mut session = Session::default();
    let stop = session.stop.clone();
    let begun = Instant::now();
    let stopping = async {
        sleep(Duration::from_secs(61)).await;
        stop.cancel();
    };
    let demo = DemoAgent::with_rate(0.1);
    let (error, ()) = tokio::join!(session.call(&demo, "weather"), stopping);
    assert_eq!(error, Err(AgentError::Stopped));
    assert_eq!(begun.elapsed().as_secs(), 61);
    assert_eq!(session.deltas.iter().sum::<usize>(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_heard_without_a_rate_too() {
    let mut session = Session { stop_after: Some(3), ..Session::default() };
    let error = session.call(&DemoAgent::with_rate(0.0), "long 100000").await;
    assert_eq!((error, session.commits.len()), (Err(AgentError::Stopped), 3));
}

#[tokio::test(start_paused = true)]
async fn a_reply_stopped_before_its_start_emits_nothing() {
    for question in ["hello", "approve", "team"] {
        let mut session = Session::default();
        session.stop.cancel();
        let error = session.call(&DemoAgent::default(), question).await;
        assert_eq!((error, session.log.len()), (Err(AgentError::Stopped), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_log_ends_it_with_the_reason() {
    let mut session = Session { lose_after: Some(2), ..Session::default() };
    let error = session.call(&DemoAgent::default(), "weather").await;
    assert_eq!(error, Err(AgentError::LogLost("gone".to_owned())));
    assert_eq!(session.commits.len(), 2);
}
