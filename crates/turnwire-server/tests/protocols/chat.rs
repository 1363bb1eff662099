//! `POST /v1/chat/completions`: what no client of `OpenAI`'s would send.

use crate::harness::{self, ProtocolCase};
use serde_json::json;

pub const CASE: ProtocolCase = ProtocolCase {
    path: "/v1/chat/completions",
    results: |results| {
        let message = |(id, text): &(&str, &str)| json!({"role": "tool", "tool_call_id": id, "content": text});
        results.iter().map(message).collect()
    },
    calls: |answer| {
        let calls = answer["choices"][0]["message"]["tool_calls"].as_array().unwrap().iter();
        calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect()
    },
    text: |answer| answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
    to_history: |answer| vec![answer["choices"][0]["message"].clone()],
    messages: "messages",
};

#[tokio::test]
async fn nonsense_is_refused() {
    harness::nonsense_is_refused(&CASE).await;
}

#[tokio::test]
async fn sessions_are_their_owners() {
    harness::sessions_are_their_owners(&CASE).await;
}

#[tokio::test]
async fn results_fit_or_are_refused() {
    harness::results_fit_or_are_refused(&CASE).await;
}

#[tokio::test]
async fn questions_are_somebody_elses() {
    harness::questions_are_somebody_elses(&CASE).await;
}

#[tokio::test]
async fn a_sub_agents_call_is_the_clients() {
    harness::a_sub_agents_call_is_the_clients(&CASE).await;
}

#[tokio::test]
async fn a_key_makes_one_of_two() {
    harness::a_key_makes_one_of_two(&CASE).await;
}
