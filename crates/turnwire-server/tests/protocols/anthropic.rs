//! `POST /v1/messages`: what no client of Anthropic's would send.

use crate::harness::{self, ProtocolCase};
use serde_json::{Value, json};

pub const CASE: ProtocolCase = ProtocolCase {
    path: "/v1/messages",
    results: |results| {
        let blocks: Vec<Value> = results
            .iter()
            .map(|(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text}))
            .collect();
        vec![json!({"role": "user", "content": blocks})]
    },
    calls: |answer| {
        let blocks = answer["content"].as_array().unwrap().iter();
        let calls = blocks.filter(|block| block["type"] == "tool_use");
        calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect()
    },
    text: |answer| {
        let blocks = answer["content"].as_array().unwrap().iter();
        blocks.filter_map(|block| block["text"].as_str()).collect()
    },
    to_history: |answer| vec![json!({"role": "assistant", "content": answer["content"]})],
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
