//! Clients that name no session: their history leads to the conversation that it belongs to.

use crate::harness::{Answer, ProtocolCase, RANDOM_CALL, TestServer, user};
use crate::{anthropic, chat};
use serde_json::{Value, json};
use turnwire_core::Seq;
use turnwire_log::store::{MessageQuery, Retention};

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
    to_history: |answer| answer["output"].as_array().unwrap().clone(),
    messages: "input",
};

/// A client that sends the ids of earlier items instead of their content.
const BY_REFERENCE: ProtocolCase = ProtocolCase {
    to_history: |answer| {
        let items = answer["output"].as_array().unwrap().iter();
        items.map(|item| json!({"type": "item_reference", "id": item["id"]})).collect()
    },
    ..RESPONSES
};

pub const ALL: [&ProtocolCase; 3] = [&chat::CASE, &anthropic::CASE, &RESPONSES];
const OWN: [&ProtocolCase; 4] = [&chat::CASE, &anthropic::CASE, &RESPONSES, &BY_REFERENCE];

/// A conversation as its client has it: every one waits for the call `c1`.
struct Conversation<'h> {
    server: &'h TestServer,
    protocol: &'static ProtocolCase,
    token: &'static str,
    history: Vec<Value>,
    session: String,
}

impl<'h> Conversation<'h> {
    async fn begin(
        server: &'h TestServer,
        protocol: &'static ProtocolCase,
        token: &'static str,
        text: &str,
    ) -> Self {
        let mut history = vec![user(text)];
        let body = protocol.ask("asker", &history).to_string();
        let answer = server.send(token, protocol.path, &[], body).await;
        assert_eq!((answer.status, (protocol.calls)(&answer.body)), (200, vec!["c1".to_owned()]));
        history.extend((protocol.to_history)(&answer.body));
        let session = answer.session().to_owned();
        Self { server, protocol, token, history, session }
    }

    async fn bring(&self, result: &str) -> Answer {
        self.bring_as(self.token, "asker", &self.history, result).await
    }

    async fn bring_as(&self, token: &str, agent: &str, history: &[Value], result: &str) -> Answer {
        let mut history = history.to_vec();
        history.extend((self.protocol.results)(&[("c1", result)]));
        let body = self.protocol.ask(agent, &history).to_string();
        self.server.send(token, self.protocol.path, &[], body).await
    }

    /// The result is taken in this conversation's own session.
    async fn goes_on(&self, result: &str) {
        let answer = self.bring(result).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!((self.protocol.text)(&answer.body), result);
        assert_eq!(answer.session(), self.session);
    }
}

/// The request belongs to none of these sessions, and changes none of them.
fn is_elsewhere(answer: &Answer, others: &[&str]) {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(!others.contains(&answer.session()), "{}", answer.text);
}

#[tokio::test]
async fn two_conversations_of_one_person_are_told_apart_by_what_was_said() {
    for protocol in OWN {
        let server = TestServer::new(protocol.path);
        let red = Conversation::begin(&server, protocol, "ann", "the red one").await;
        let blue = Conversation::begin(&server, protocol, "ann", "the blue one").await;
        red.goes_on("RED").await;
        is_elsewhere(&red.bring("RED again").await, &[&red.session, &blue.session]);
        blue.goes_on("BLUE").await;
    }
}

#[tokio::test]
async fn nobody_is_answered_out_of_another_persons_conversation() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let ann = Conversation::begin(&server, protocol, "ann", "same protocol").await;
        let ben = Conversation::begin(&server, protocol, "ben", "same protocol").await;
        ann.goes_on("ANN").await;
        // Hers has its result: his is not there for her, nor for anybody else.
        is_elsewhere(&ann.bring("forged").await, &[&ann.session, &ben.session]);
        for token in ["all", "mine", "other"] {
            let answer = ben.bring_as(token, "asker", &ben.history, "forged").await;
            // This one reaches only some sessions, and must name one.
            if token == "mine" {
                assert_eq!(answer.status, 403, "{}", answer.text);
            } else {
                is_elsewhere(&answer, &[&ann.session, &ben.session]);
            }
        }
        ben.goes_on("BEN").await;
    }
}

#[tokio::test]
async fn conversations_that_are_the_same_do_not_block_each_other() {
    for protocol in OWN {
        let server = TestServer::new(protocol.path);
        let one = Conversation::begin(&server, protocol, "ann", "same protocol").await;
        let two = Conversation::begin(&server, protocol, "ann", "same protocol").await;
        let (first, second) = tokio::join!(one.bring("1"), two.bring("2"));
        assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text, second.text);
        // Each client gets what comes of its own result.
        assert_eq!((protocol.text)(&first.body), "1");
        assert_eq!((protocol.text)(&second.body), "2");
        assert_ne!(first.session(), second.session());
        is_elsewhere(&one.bring("3").await, &[first.session(), second.session()]);
    }
}

#[tokio::test]
async fn what_does_not_fit_a_conversation_starts_another() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let own = Conversation::begin(&server, protocol, "ann", "the red one").await;
        let text = Value::from(own.history.clone()).to_string();
        let altered = |from: &str, to: &str| -> Vec<Value> {
            assert!(text.contains(from), "{text}");
            serde_json::from_str(&text.replace(from, to)).unwrap()
        };
        let other_words = altered("the red one", "the blue one");
        let other_tool = altered(r#""name":"f""#, r#""name":"g""#);
        let more_words: Vec<Value> =
            [user("earlier")].into_iter().chain(own.history.clone()).collect();
        for history in [&other_words, &other_tool, &more_words] {
            let answer = own.bring_as("ann", "asker", history, "forged").await;
            is_elsewhere(&answer, &[&own.session]);
        }
        let alone = own.bring_as("ann", "asker", &[], "forged").await;
        assert_eq!(alone.status, 400, "{}", alone.text);
        let of_twin = own.bring_as("ann", "twin", &own.history, "forged").await;
        is_elsewhere(&of_twin, &[&own.session]);
        let mut forged = own.history.clone();
        forged.extend((protocol.results)(&[("c7", "forged")]));
        let body = protocol.ask("asker", &forged).to_string();
        let answer = server.send("ann", protocol.path, &[], body).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        // White space is nothing that was said.
        let spaced = altered("the red one", " the  red\\n one ");
        let answer = own.bring_as("ann", "asker", &spaced, "RED").await;
        assert_eq!((answer.status, answer.session()), (200, own.session.as_str()));
    }
}

/// A client that keeps its own history, of an agent that repeats what it is given.
pub struct Client<'s> {
    server: &'s TestServer,
    protocol: &'static ProtocolCase,
    token: &'static str,
    pub headers: Vec<(&'static str, &'static str)>,
    /// Fields of each request beside its history.
    pub fields: Vec<(&'static str, &'static str)>,
    pub history: Vec<Value>,
}

impl<'s> Client<'s> {
    pub fn new(server: &'s TestServer, protocol: &'static ProtocolCase) -> Self {
        let (headers, fields, history) = (Vec::new(), Vec::new(), Vec::new());
        Self { server, protocol, token: "ann", headers, fields, history }
    }

    async fn send(&self) -> Answer {
        let mut body = self.protocol.ask("mirror", &self.history);
        for (name, value) in &self.fields {
            body[*name] = json!(value);
        }
        let body = body.to_string();
        let answer = self.server.send(self.token, self.protocol.path, &self.headers, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer
    }

    /// Says something, and returns what the agent was given, and the session.
    pub async fn say(&mut self, text: &str) -> (String, String) {
        self.history.push(user(text));
        let answer = self.send().await;
        self.history.extend((self.protocol.to_history)(&answer.body));
        self.seen(&answer)
    }

    /// What the agent was given, without numbers, and the session.
    fn seen(&self, answer: &Answer) -> (String, String) {
        let text = (self.protocol.text)(&answer.body);
        let seen: Vec<&str> = text
            .split(" | ")
            .map(|part| part.split(" #").next().unwrap_or_default())
            .map(|part| if part.parse::<usize>().is_ok() { "A" } else { part })
            .collect();
        (seen.join(" "), answer.session().to_owned())
    }
}

#[tokio::test]
async fn a_conversation_is_one_session_from_turn_to_turn() {
    for protocol in OWN {
        let server = TestServer::new(protocol.path);
        let mut client = Client::new(&server, protocol);
        let (seen, session) = client.say("one").await;
        assert_eq!(seen, "one");
        for (text, expected) in [
            ("two", "one A two"),
            ("three", "one A two A three"),
            ("four", "one A two A three A four"),
        ] {
            assert_eq!(client.say(text).await, (expected.to_owned(), session.clone()));
        }
        assert_eq!(server.sessions().await, 1);
        let shown = server.session(&session).await.snapshot().await.unwrap();
        assert_eq!(shown.title, "one");
    }
}

#[tokio::test]
async fn what_clients_change_on_the_way_does_not_matter() {
    for protocol in OWN {
        let server = TestServer::new(protocol.path);
        let mut client = Client::new(&server, protocol);
        let (_, session) = client.say("one\n\ntwo ").await;
        client.history[0] = user("one two<system-reminder>now</system-reminder>");
        client.history.insert(0, json!({"role": "system", "content": "Be brief."}));
        if protocol.messages == "messages" && protocol.path.ends_with("messages") {
            client.history[0] = user("<system-reminder>later</system-reminder>");
        }
        let (_, again) = client.say("three").await;
        assert_eq!(again, session);
    }
}

#[tokio::test]
async fn an_edited_turn_branches_and_the_first_session_stays() {
    for protocol in OWN {
        let server = TestServer::new(protocol.path);
        let mut client = Client::new(&server, protocol);
        let (_, session) = client.say("one").await;
        client.say("two").await;
        client.say("three").await;
        let keep = client.history.len();
        let whole = client.history.clone();
        // The second turn is said differently.
        let one_turn = keep / 3;
        client.history.truncate(one_turn);
        let (seen, branch) = client.say("TWO").await;
        assert_eq!(seen, "one A TWO");
        assert_ne!(branch, session);
        assert_eq!(client.say("THREE").await, ("one A TWO A THREE".to_owned(), branch));
        // The first session goes on where it was.
        client.history = whole;
        assert_eq!(client.say("four").await, ("one A two A three A four".to_owned(), session));
    }
}

#[tokio::test]
async fn conversations_are_recognised_after_retention_has_removed_their_events() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let mut client = Client::new(&server, protocol);
        let (_, session) = client.say("one").await;
        client.say("two").await;
        client.say("three").await;
        let turn = client.history.len() / 3;
        let retention = Retention { before_ms: Some(i64::MAX), ..Retention::default() };
        server.app.log.apply_retention(retention).await.unwrap();
        assert!(server.session(&session).await.first_seq().await.unwrap() > Seq::FIRST);
        let expected = "one A two A three A four".to_owned();
        assert_eq!(client.say("four").await, (expected, session.clone()));
        // An edit of an earlier turn: the events up to there are gone, but the client has the conversation.
        client.history.truncate(turn);
        let (seen, branch) = client.say("TWO").await;
        assert_eq!(seen, "one A TWO");
        assert_ne!(branch, session);
        assert_eq!(client.say("THREE").await, ("one A TWO A THREE".to_owned(), branch));
    }
}

#[tokio::test]
async fn the_last_turn_again_is_another_answer_in_the_same_session() {
    for protocol in OWN {
        let server = TestServer::new(protocol.path);
        let mut client = Client::new(&server, protocol);
        let (_, session) = client.say("one").await;
        client.history.push(user("two"));
        let first = client.send().await;
        let second = client.send().await;
        assert_ne!((protocol.text)(&first.body), (protocol.text)(&second.body), "asked again");
        assert_eq!(client.seen(&second), ("one A two".to_owned(), session.clone()));
        client.history.extend((protocol.to_history)(&second.body));
        assert_eq!(client.say("three").await, ("one A two A three".to_owned(), session));
    }
}

#[tokio::test]
async fn a_request_that_the_client_says_is_sent_again_gets_the_same_answer() {
    for protocol in OWN {
        let server = TestServer::new(protocol.path);
        for turns in [0, 1] {
            let mut client = Client::new(&server, protocol);
            for _ in 0..turns {
                client.say("before").await;
            }
            client.history.push(user("again"));
            let first = client.send().await;
            client.headers.push(("x-stainless-retry-count", "1"));
            let second = client.send().await;
            assert_eq!((protocol.text)(&first.body), (protocol.text)(&second.body));
            assert_eq!(first.session(), second.session());
        }
        assert_eq!(server.sessions().await, 2);
    }
}

#[tokio::test]
async fn conversations_that_begin_the_same_are_never_mixed() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let mut red = Client::new(&server, protocol);
        let mut blue = Client::new(&server, protocol);
        let (_, red_session) = red.say("same").await;
        let (_, blue_session) = blue.say("same").await;
        assert_ne!(red_session, blue_session);
        assert_eq!(red.say("red").await, ("same A red".to_owned(), red_session));
        assert_eq!(blue.say("blue").await, ("same A blue".to_owned(), blue_session));
        let mut ben = Client::new(&server, protocol);
        ben.token = "ben";
        ben.history.clone_from(&red.history);
        let (seen, session) = ben.say("mine").await;
        assert_eq!(seen, "same A red A mine", "the agent sees what the client claims");
        let others =
            [red.send().await.session().to_owned(), blue.send().await.session().to_owned()];
        assert!(!others.contains(&session), "another person's session");
    }
}

#[tokio::test]
async fn an_unknown_history_is_taken_in_and_marked() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let mut client = Client::new(&server, protocol);
        client.history = vec![user("one"), json!({"role": "assistant", "content": "#77"})];
        let (seen, session) = client.say("two").await;
        assert_eq!(seen, "one A two");
        let query = MessageQuery { limit: 9, ..Default::default() };
        let stored = server.session(&session).await.list_messages(&query).await.unwrap();
        let claimed: Vec<bool> = stored
            .iter()
            .map(|stored| serde_json::from_slice::<Value>(&stored.json).unwrap())
            .map(|msg| msg["metadata"]["claimed"] == true)
            .collect();
        assert_eq!(claimed, [true, true, false, false]);
        assert_eq!(client.say("three").await, ("one A two A three".to_owned(), session));
    }
}

/// Sends the history as references, and expects that an item is unknown.
async fn expect_unknown_item(client: &Client<'_>, agent: &str) {
    let body = client.protocol.ask(agent, &client.history).to_string();
    let before = client.server.sessions().await;
    let answer =
        client.server.send(client.token, client.protocol.path, &client.headers, body).await;
    assert_eq!((answer.status, &answer.body["error"]["code"]), (404, &json!("item_not_found")));
    assert!(answer.error_message().contains("send the item itself"), "{}", answer.text);
    assert_eq!(client.server.sessions().await, before, "nothing was stored");
}

#[tokio::test]
async fn a_request_has_a_limited_number_of_references() {
    let server = TestServer::new(BY_REFERENCE.path);
    let mut client = Client::new(&server, &BY_REFERENCE);
    let reference = |number| json!({"type": "item_reference", "id": format!("msg_{number}")});
    client.history.extend((0..4097).map(reference));
    let body = client.protocol.ask("demo", &client.history).to_string();
    let answer = server.send(client.token, client.protocol.path, &client.headers, body).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.error_message().contains("at most 4096"), "{}", answer.text);
}

#[tokio::test]
async fn a_client_can_refer_to_items_of_its_own_conversations_only() {
    let server = TestServer::new(BY_REFERENCE.path);
    let mut client = Client::new(&server, &BY_REFERENCE);
    client.headers = vec![("turnwire-session", "s")];
    client.say("secret").await;
    client.headers.clear();
    client.history.push(user("two"));
    expect_unknown_item(&client, "demo").await;
    for token in ["ben", "other", "all"] {
        client.token = token;
        expect_unknown_item(&client, "mirror").await;
    }
    // Who names the session may use what is in it.
    client.token = "ben";
    client.headers = vec![("turnwire-session", "s")];
    assert_eq!(client.say("three").await, ("secret A two three".to_owned(), "s".to_owned()));
}

#[tokio::test]
async fn a_reference_that_leads_nowhere_is_an_error() {
    let server = TestServer::new(BY_REFERENCE.path);
    let mut client = Client::new(&server, &BY_REFERENCE);
    client.say("one").await;
    let known = client.history[1]["id"].as_str().unwrap().to_owned();
    let (place, _) = known.rsplit_once('~').unwrap();
    for id in
        ["msg_1", "", "msg_nobody~r~b", "rs_a/b~r~c", &format!("{place}~x"), &format!("{known}x")]
    {
        client.history =
            vec![user("one"), json!({"type": "item_reference", "id": id}), user("two")];
        expect_unknown_item(&client, "mirror").await;
    }
    for (items, message) in [
        (vec![json!({"type": "item_reference"})], "no `id`"),
        (
            vec![json!({"type": "item_reference", "id": known}), json!({"id": known})],
            "duplicate item",
        ),
    ] {
        let body = BY_REFERENCE.ask("mirror", &items).to_string();
        let answer = server.send("ann", BY_REFERENCE.path, &[], body).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.error_message().contains(message), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_reference_outlives_the_session_that_was_branched_from() {
    let server = TestServer::new(BY_REFERENCE.path);
    let mut client = Client::new(&server, &BY_REFERENCE);
    let (_, first) = client.say("one").await;
    client.say("two").await;
    client.history.truncate(2);
    let (_, branch) = client.say("TWO").await;
    let key = server.session(&first).await.key().clone();
    assert!(server.app.log.delete_session(&key).await.unwrap());
    assert_eq!(client.say("three").await, ("one A TWO A three".to_owned(), branch));
    // Nothing leads to the branch any more.
    client.history.truncate(2);
    client.history.push(user("four"));
    expect_unknown_item(&client, "mirror").await;
}

#[tokio::test]
async fn a_deleted_response_cannot_be_referred_to() {
    let server = TestServer::new(BY_REFERENCE.path);
    let mut client = Client::new(&server, &BY_REFERENCE);
    client.history.push(user("one"));
    let answer = client.send().await;
    client.history.extend((BY_REFERENCE.to_history)(&answer.body));
    let path = format!("/v1/responses/{}", answer.body["id"].as_str().unwrap());
    assert_eq!(server.delete("ann", &path).await.status, 200);
    client.history.push(user("two"));
    expect_unknown_item(&client, "mirror").await;
}

#[tokio::test]
async fn a_call_of_a_sub_agent_can_be_referred_to_before_and_after_its_result() {
    let server = TestServer::new(BY_REFERENCE.path);
    let mut history = vec![user("team")];
    let ask = async |history: &[Value]| {
        let body = BY_REFERENCE.ask("asker", history).to_string();
        let answer = server.send("ann", BY_REFERENCE.path, &[], body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer
    };
    let first = ask(&history).await;
    history.extend((BY_REFERENCE.to_history)(&first.body));
    let calls = (BY_REFERENCE.calls)(&first.body);
    let results: Vec<_> = calls.iter().map(|call| (call.as_str(), "done")).collect();
    history.extend((BY_REFERENCE.results)(&results));
    let second = ask(&history).await;
    assert_eq!(second.session(), first.session());
    history.extend((BY_REFERENCE.to_history)(&second.body));
    history.push(user("thanks"));
    let third = ask(&history).await;
    assert_eq!(third.session(), first.session());
}

#[tokio::test]
async fn results_may_stand_behind_their_calls() {
    for protocol in OWN {
        let server = TestServer::new(protocol.path);
        let ask = async |history: &[Value]| {
            let body = protocol.ask("asker", history).to_string();
            let answer = server.send("ann", protocol.path, &[], body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            answer
        };
        let mut history = vec![user("two")];
        let first = ask(&history).await;
        assert_eq!((protocol.calls)(&first.body), ["c1", "d1"]);
        let made = (protocol.to_history)(&first.body);
        let results = |id, text| (protocol.results)(&[(id, text)]);
        if made.len() == 2 {
            history.extend([made[0].clone()].into_iter().chain(results("c1", "A")));
            history.extend([made[1].clone()].into_iter().chain(results("d1", "B")));
        } else {
            // One message has both calls.
            history.extend(made.into_iter().chain((protocol.results)(&[("c1", "A"), ("d1", "B")])));
        }
        let second = ask(&history).await;
        assert_eq!(second.session(), first.session());
        assert_eq!((protocol.text)(&second.body), "A, B");
        history.extend((protocol.to_history)(&second.body));
        history.push(user("two"));
        assert_eq!(ask(&history).await.session(), first.session());
        assert_eq!(server.sessions().await, 1);
    }
}

#[tokio::test]
async fn items_before_the_first_message_reach_the_agent() {
    let server = TestServer::new(RESPONSES.path);
    let mut client = Client::new(&server, &RESPONSES);
    client.history.push(json!({"type": "vendor_item", "value": 1}));
    let (_, session) = client.say("one").await;
    let query = MessageQuery { limit: 9, ..Default::default() };
    let stored = server.session(&session).await.list_messages(&query).await.unwrap();
    let first: Value = serde_json::from_slice(&stored[0].json).unwrap();
    assert_eq!(first["content"][0]["type"], "vendor_item", "{first}");
    let (_, again) = client.say("two").await;
    assert_eq!(again, session);
}

#[tokio::test]
async fn a_lost_answer_comes_again_although_the_program_changed_its_request() {
    // Codex notes other things with each request, and keeps what arrived of the answer. Claude Code does not stream the
    // second time.
    for protocol in ALL {
        for (begun, turns) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
            let server = TestServer::new(protocol.path);
            let mut client = Client::new(&server, protocol);
            for _ in 0..turns {
                client.say("before").await;
            }
            client.history.push(user("again"));
            let mut body = protocol.ask("mirror", &client.history);
            body["stream"] = true.into();
            body["metadata"] = json!({"turn": "1"});
            server.send_and_leave(client.token, protocol.path, body.to_string()).await;
            if begun {
                client.history.push(json!({"role": "assistant", "content": "aga"}));
            }
            let answer = client.send().await;
            assert_eq!(client.seen(&answer).0, ["again", "before A again"][turns]);
            assert_eq!(server.sessions().await, 1, "{} {begun} {turns}", protocol.path);
        }
    }
}

#[tokio::test]
async fn results_find_their_call_although_the_client_changed_the_answer() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let mut history = vec![user("hello"), json!({"role": "assistant", "content": "Hello."})];
        history.push(user("random"));
        let send = async |history: &[Value]| {
            let body = protocol.ask("asker", history).to_string();
            let answer = server.send("ann", protocol.path, &[], body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            answer
        };
        let asked = send(&history).await;
        // A connection broke, and the client has the beginning of the answer twice.
        history.push(json!({"role": "assistant", "content": "I call."}));
        history.extend((protocol.to_history)(&asked.body));
        history.extend((protocol.results)(&[(RANDOM_CALL, "done")]));
        let done = send(&history).await;
        assert_eq!((protocol.text)(&done.body), "done");
        assert_eq!(done.session(), asked.session());
        history.extend((protocol.to_history)(&done.body));
        history.push(user("both"));
        assert_eq!(send(&history).await.session(), asked.session());
        assert_eq!(server.sessions().await, 1);
    }
}

#[tokio::test]
async fn a_title_is_what_the_user_said() {
    let server = TestServer::new(chat::CASE.path);
    let mut client = Client::new(&server, &chat::CASE);
    client.history.push(user("<environment_context>\n<cwd>/home</cwd>\n</environment_context>"));
    let (_, session) = client.say("<system-reminder>now</system-reminder>\nHow are you?").await;
    let shown = server.session(&session).await.snapshot().await.unwrap();
    assert_eq!(shown.title, "How are you?");
}

#[tokio::test]
async fn a_client_that_lost_an_answer_may_go_on_from_what_arrived() {
    // Claude Code keeps the text that arrived, and asks to go on.
    for protocol in ALL {
        for (turns, begun, expected) in [
            (0, "aga", Some("again aga go on")),
            (1, "bef", Some("before A again bef go on")),
            // This is not how the answer begins: the client has changed it.
            (0, "other", None),
        ] {
            let server = TestServer::new(protocol.path);
            let mut client = Client::new(&server, protocol);
            for _ in 0..turns {
                client.say("before").await;
            }
            client.history.push(user("again"));
            let mut body = protocol.ask("mirror", &client.history);
            body["stream"] = true.into();
            let first = server.send_and_leave(client.token, protocol.path, body.to_string()).await;
            server.until_idle(&first).await;
            client.history.push(json!({"role": "assistant", "content": begun}));
            let (seen, session) = client.say("go on").await;
            let count = server.sessions().await;
            let Some(expected) = expected else {
                assert_eq!((seen.as_str(), count), ("again other go on", 2), "{}", protocol.path);
                continue;
            };
            assert_eq!((seen.as_str(), count), (expected, 1), "{}", protocol.path);
            let next = client.say("more").await;
            assert_eq!(next, (format!("{expected} A more"), session.clone()));
            let query = MessageQuery { limit: 100, ..MessageQuery::default() };
            let stored = server.session(&session).await.list_messages(&query).await.unwrap();
            let current = stored.iter().filter(|stored| !stored.superseded);
            let texts: Vec<String> =
                current.map(|stored| String::from_utf8(stored.json.to_vec()).unwrap()).collect();
            assert_eq!(texts.len(), 6 + 2 * turns);
            assert!(texts.iter().any(|text| text.contains(&format!("\"{begun}\""))));
            assert!(!texts.iter().any(|text| text.contains("claimed")), "{texts:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_lost_a_whole_answer_may_add_to_its_message() {
    // Claude Code adds that the answer was cut off, if nothing of it arrived.
    for protocol in ALL {
        for turns in [0, 1] {
            let server = TestServer::new(protocol.path);
            let mut client = Client::new(&server, protocol);
            for _ in 0..turns {
                client.say("before").await;
            }
            let kind = if protocol.messages == "input" { "input_text" } else { "text" };
            let block = |text: &str| json!({"type": kind, "text": text});
            client.history.push(user("again"));
            let mut body = protocol.ask("mirror", &client.history);
            body["stream"] = true.into();
            let first = server.send_and_leave(client.token, protocol.path, body.to_string()).await;
            client.history.pop();
            let more = json!({"role": "user", "content": [block("again"), block("go on")]});
            client.history.push(more);
            let answer = client.send().await;
            let expected = ["again+go on", "before A again+go on"][turns];
            assert_eq!(client.seen(&answer), (expected.to_owned(), first.clone()));
            client.history.extend((protocol.to_history)(&answer.body));
            assert_eq!(client.say("more").await, (format!("{expected} A more"), first));
            assert_eq!(server.sessions().await, 1);
        }
    }
}

#[tokio::test]
async fn an_answer_that_arrived_and_was_shortened_is_another_conversation() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let mut client = Client::new(&server, protocol);
        let (_, session) = client.say("again").await;
        client.history.truncate(1);
        client.history.push(json!({"role": "assistant", "content": "aga"}));
        assert_ne!(client.say("go on").await.1, session);
        assert_eq!(server.sessions().await, 2);
    }
}

#[tokio::test]
async fn a_long_conversation_is_the_same_from_memory_and_from_the_log() {
    // Long conversations are kept in memory from turn to turn.
    let server = TestServer::new(chat::CASE.path);
    let mut client = Client::new(&server, &chat::CASE);
    let mut expected = String::new();
    for turn in 0..20 {
        let words = format!("{turn}t");
        expected += &words;
        assert_eq!(client.say(&words).await.0, expected, "{turn}");
        expected += " A ";
    }
    // Another answer supersedes the last turn: its message stays, its answer is another one.
    let (answer, question) = (client.history.pop().unwrap(), client.history.pop().unwrap());
    client.history.push(question);
    let again = client.send().await;
    assert_eq!(client.seen(&again).0, expected.trim_end_matches(" A "));
    client.history.extend((client.protocol.to_history)(&again.body));
    assert_ne!(client.history.last(), Some(&answer));
    let session = server.session(again.session()).await;
    let (seen, id) = client.say("end").await;
    assert_eq!((seen, id.as_str()), (format!("{expected}end"), session.id()));
    let query = MessageQuery { limit: 100, ..MessageQuery::default() };
    let stored = session.list_messages(&query).await.unwrap();
    assert_eq!(stored.iter().filter(|stored| stored.superseded).count(), 2);
}
