//! Results of calls whose request names no session: they go to the conversation that they belong to.

use crate::harness::{Answer, ProtocolCase, TestServer, user};
use crate::{anthropic, chat};
use serde_json::{Value, json};
use turnwire_log::store::{MessageQuery, SessionStatus};

const RESPONSES: ProtocolCase = ProtocolCase {
    path: "/v1/responses",
    results: |results| {
        let item = |(id, text): &(&str, &str)| json!({"type": "function_call_output", "call_id": id, "output": text});
        results.iter().map(item).collect()
    },
    calls: |answer| {
        let items = answer["output"].as_array().unwrap().iter();
        let calls = items.filter(|item| item["type"] == "function_call");
        calls.map(|call| call["call_id"].as_str().unwrap().to_owned()).collect()
    },
    text: |answer| {
        let items = answer["output"].as_array().unwrap().iter();
        items.filter_map(|item| item["content"][0]["text"].as_str()).collect()
    },
    said: |answer| answer["output"].as_array().unwrap().clone(),
    messages: "input",
};

const ALL: [&ProtocolCase; 3] = [&chat::CASE, &anthropic::CASE, &RESPONSES];

/// A conversation as its client has it: every one waits for the call `c1`.
struct Conversation<'h> {
    server: &'h TestServer,
    words: &'static ProtocolCase,
    token: &'static str,
    history: Vec<Value>,
    session: String,
}

impl<'h> Conversation<'h> {
    async fn begin(
        server: &'h TestServer,
        words: &'static ProtocolCase,
        token: &'static str,
        text: &str,
    ) -> Self {
        let mut history = vec![user(text)];
        let body = words.ask("asker", &history).to_string();
        let answer = server.send(token, words.path, &[], body).await;
        assert_eq!((answer.status, (words.calls)(&answer.body)), (200, vec!["c1".to_owned()]));
        history.extend((words.said)(&answer.body));
        let session = answer.session().to_owned();
        Self { server, words, token, history, session }
    }

    async fn bring(&self, result: &str) -> Answer {
        self.bring_as(self.token, "asker", &self.history, result).await
    }

    async fn bring_as(&self, token: &str, agent: &str, history: &[Value], result: &str) -> Answer {
        let mut history = history.to_vec();
        history.extend((self.words.results)(&[("c1", result)]));
        let body = self.words.ask(agent, &history).to_string();
        self.server.send(token, self.words.path, &[], body).await
    }

    /// The result is taken in this conversation's own session.
    async fn goes_on(&self, result: &str) {
        let answer = self.bring(result).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!((self.words.text)(&answer.body), result);
        assert_eq!(answer.session(), self.session);
    }
}

/// Nothing waits, as far as this client can tell.
fn is_unknown(answer: &Answer, others: &[&str]) {
    let code = answer.body["error"]["code"].as_str().unwrap_or_default();
    assert!(matches!(answer.status, 400 | 409), "{}", answer.text);
    assert!(!code.contains("ambiguous"), "{}", answer.text);
    assert!(!others.iter().any(|other| answer.text.contains(other)), "{}", answer.text);
    assert!(!answer.headers.contains_key("turnwire-session"));
}

#[tokio::test]
async fn two_conversations_of_one_person_are_told_apart_by_what_was_said() {
    for words in ALL {
        let server = TestServer::new(words.path);
        let red = Conversation::begin(&server, words, "ann", "the red one").await;
        let blue = Conversation::begin(&server, words, "ann", "the blue one").await;
        red.goes_on("RED").await;
        is_unknown(&red.bring("RED again").await, &[&blue.session]);
        blue.goes_on("BLUE").await;
    }
}

#[tokio::test]
async fn nobody_is_answered_out_of_another_persons_conversation() {
    for words in ALL {
        let server = TestServer::new(words.path);
        let ann = Conversation::begin(&server, words, "ann", "same words").await;
        let ben = Conversation::begin(&server, words, "ben", "same words").await;
        ann.goes_on("ANN").await;
        // Hers has its result: his is not there for her, nor for anybody else.
        is_unknown(&ann.bring("forged").await, &[&ben.session]);
        for token in ["all", "mine", "other"] {
            let answer = ben.bring_as(token, "asker", &ben.history, "forged").await;
            is_unknown(&answer, &[&ben.session]);
        }
        ben.goes_on("BEN").await;
    }
}

#[tokio::test]
async fn nobody_can_claim_that_somebody_else_asked() {
    for words in ALL {
        let server = TestServer::new(words.path);
        let ann = Conversation::begin(&server, words, "ann", "same words").await;
        let session = server.session(&ann.session).await;
        let stored =
            session.list_messages(&MessageQuery { limit: 10, ..MessageQuery::default() }).await;
        let question: Value = serde_json::from_slice(&stored.unwrap()[0].json).unwrap();
        let client = &question["metadata"]["client"];
        assert!(client["asked_by"].is_string(), "{question}");
        // Ben asks the same in a session of his own, and says that it was Ann: hers would be taken there.
        let made = json!({"id": "trap", "agent": "asker"}).to_string();
        assert_eq!(server.send("ben", "/v1/sessions", &[], made).await.status, 201);
        let trap = json!({"role": "user", "name": "ann", "content": "same words",
            "metadata": {"client": client}});
        let path = "/v1/sessions/trap/messages";
        let sent = server.send("ben", path, &[], trap.to_string()).await;
        assert_eq!(sent.status, 202, "{}", sent.text);
        let trap = server.session("trap").await;
        let mut head = trap.watch_head();
        head.wait_for(|head| head.status == SessionStatus::Waiting).await.unwrap();
        ann.goes_on("ANN").await;
    }
}

#[tokio::test]
async fn conversations_that_are_the_same_do_not_block_each_other() {
    for words in ALL {
        let server = TestServer::new(words.path);
        let one = Conversation::begin(&server, words, "ann", "same words").await;
        let two = Conversation::begin(&server, words, "ann", "same words").await;
        let (first, second) = tokio::join!(one.bring("1"), two.bring("2"));
        assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text, second.text);
        // Each client gets what comes of its own result.
        assert_eq!((words.text)(&first.body), "1");
        assert_eq!((words.text)(&second.body), "2");
        assert_ne!(first.session(), second.session());
        is_unknown(&one.bring("3").await, &[]);
    }
}

#[tokio::test]
async fn what_does_not_fit_the_conversation_is_refused() {
    for words in ALL {
        let server = TestServer::new(words.path);
        let own = Conversation::begin(&server, words, "ann", "the red one").await;
        let text = Value::from(own.history.clone()).to_string();
        let altered = |from: &str, to: &str| -> Vec<Value> {
            assert!(text.contains(from), "{text}");
            serde_json::from_str(&text.replace(from, to)).unwrap()
        };
        let other_words = altered("the red one", "the blue one");
        let other_tool = altered(r#""name":"f""#, r#""name":"g""#);
        let more_words: Vec<Value> =
            [user("earlier")].into_iter().chain(own.history.clone()).collect();
        for history in [&other_words, &other_tool, &more_words, &Vec::new()] {
            let answer = own.bring_as("ann", "asker", history, "forged").await;
            is_unknown(&answer, &[&own.session]);
        }
        is_unknown(&own.bring_as("ann", "twin", &own.history, "forged").await, &[&own.session]);
        let mut forged = own.history.clone();
        forged.extend((words.results)(&[("c7", "forged")]));
        let body = words.ask("asker", &forged).to_string();
        is_unknown(&server.send("ann", words.path, &[], body).await, &[&own.session]);
        // White space is nothing that was said.
        let spaced = altered("the red one", " the  red\\n one ");
        let answer = own.bring_as("ann", "asker", &spaced, "RED").await;
        assert_eq!((answer.status, answer.session()), (200, own.session.as_str()));
    }
}
