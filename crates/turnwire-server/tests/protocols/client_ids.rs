//! Ids that programs send for their conversations, and the settings of `[conversations]`.

use crate::chat;
use crate::conversations::{ALL, Client};
use crate::harness::{ProtocolCase, TestServer, user};
use serde_json::json;

/// Where a client sends an id.
#[derive(Clone, Copy, Debug)]
enum Place {
    Header(&'static str),
    Field(&'static str),
}

/// The places of ids that the default settings name.
const DEFAULTS: [Place; 4] = [
    Place::Header("X-Claude-Code-Session-Id"),
    Place::Header("session-id"),
    Place::Header("session_id"),
    Place::Header("x-session-id"),
];

fn client<'s>(
    server: &'s TestServer,
    protocol: &'static ProtocolCase,
    place: Place,
    id: &'static str,
) -> Client<'s> {
    let mut client = Client::new(server, protocol);
    match place {
        Place::Header(name) => client.headers.push((name, id)),
        Place::Field(name) => client.fields.push((name, id)),
    }
    client
}

/// Whether a client with another id, and one with the same, continue a session whose history they have.
async fn who_continues(
    server: &TestServer,
    protocol: &'static ProtocolCase,
    place: Place,
) -> [bool; 2] {
    let mut first = client(server, protocol, place, "one");
    let (_, session) = first.say("hello").await;
    let mut other = client(server, protocol, place, "two");
    other.history.clone_from(&first.history);
    let (seen, of_other) = other.say("other").await;
    assert_eq!(seen, "hello A other", "what the client has said is never lost");
    let mut same = client(server, protocol, place, "one");
    same.history = if of_other == session { other.history } else { first.history };
    let (_, of_same) = same.say("same").await;
    [of_other == session, of_same == session]
}

#[tokio::test]
async fn conversations_with_different_ids_are_never_continued_as_one() {
    for protocol in ALL {
        for place in DEFAULTS {
            let server = TestServer::new(protocol.path);
            let found = who_continues(&server, protocol, place).await;
            assert_eq!(found, [false, true], "{} {place:?}", protocol.path);
        }
    }
}

#[tokio::test]
async fn another_prompt_cache_key_in_each_turn_is_the_same_conversation() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let key = Place::Field("prompt_cache_key");
        assert_eq!(who_continues(&server, protocol, key).await, [true, true], "{}", protocol.path);
        assert_eq!(server.sessions().await, 1);
    }
}

#[tokio::test]
async fn the_prompt_cache_key_tells_conversations_with_the_same_content_apart() {
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let mut open = Vec::new();
        for key in ["one", "two", "three"] {
            let mut history = vec![user("the same")];
            let mut body = protocol.ask("asker", &history);
            body["prompt_cache_key"] = json!(key);
            let answer = server.ask(&[], &body).await;
            history.extend((protocol.to_history)(&answer.body));
            history.extend((protocol.results)(&[("c1", key)]));
            open.push((key, history, answer.session().to_owned()));
        }
        for (key, history, session) in open {
            let mut body = protocol.ask("asker", &history);
            body["prompt_cache_key"] = json!(key);
            let answer = server.ask(&[], &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.session(), session, "{} {key}", protocol.path);
        }
    }
}

#[tokio::test]
async fn the_first_message_again_is_a_retry_if_the_client_names_its_conversation() {
    for protocol in ALL {
        for (place, is_retry) in
            [(Place::Header("x-session-id"), true), (Place::Field("prompt_cache_key"), false)]
        {
            let server = TestServer::new(protocol.path);
            let (_, first) = client(&server, protocol, place, "one").say("hello").await;
            let (_, again) = client(&server, protocol, place, "one").say("hello").await;
            assert_eq!(first == again, is_retry, "{} {place:?}", protocol.path);
            let (_, other) = client(&server, protocol, place, "two").say("hello").await;
            assert_ne!(other, first);
        }
        let server = TestServer::new(protocol.path);
        let (_, first) = Client::new(&server, protocol).say("hello").await;
        assert_ne!(Client::new(&server, protocol).say("hello").await.1, first);
    }
}

#[tokio::test]
async fn one_id_for_several_conversations_does_not_mix_them() {
    // Programs ask for a title with the id of the conversation.
    for protocol in ALL {
        let server = TestServer::new(protocol.path);
        let place = Place::Header("x-session-id");
        let mut main = client(&server, protocol, place, "one");
        let mut title = client(&server, protocol, place, "one");
        let (_, session) = main.say("Fix the bug.").await;
        let (seen, beside) = title.say("Generate a title: Fix the bug.").await;
        assert_eq!(seen, "Generate a title: Fix the bug.");
        assert_ne!(beside, session);
        let next = main.say("Thanks.").await;
        assert_eq!(next, ("Fix the bug. A Thanks.".to_owned(), session));
        assert_eq!(title.say("Shorter.").await.1, beside);
        assert_eq!(server.sessions().await, 2);
    }
}

#[tokio::test]
async fn a_client_without_an_id_continues_a_conversation_that_has_one() {
    let server = TestServer::new(chat::CASE.path);
    let mut program = client(&server, &chat::CASE, Place::Header("session-id"), "one");
    let (_, session) = program.say("hello").await;
    let mut other = Client::new(&server, &chat::CASE);
    other.history.clone_from(&program.history);
    assert_eq!(other.say("go on").await.1, session);
    program.history.clone_from(&other.history);
    assert_eq!(program.say("more").await.1, session);
}

#[tokio::test]
async fn the_settings_name_other_ids_or_none() {
    let settings =
        "[conversations]\nid_headers = [\"x-session-id\", \"x-chat\"]\nid_fields = [\"chat\"]\n";
    for (settings, place, expected) in [
        (settings, Place::Header("x-chat"), [false, true]),
        (settings, Place::Header("x-session-id"), [false, true]),
        (settings, Place::Field("chat"), [false, true]),
        // These are not in the lists any more, and do not count.
        (settings, Place::Header("session-id"), [true, true]),
        ("[conversations]\nid_headers = []\n", Place::Header("x-session-id"), [true, true]),
        ("[conversations]\nid_fields = []\n", Place::Field("prompt_cache_key"), [true, true]),
    ] {
        let server = TestServer::with_settings(chat::CASE.path, settings);
        assert_eq!(who_continues(&server, &chat::CASE, place).await, expected, "{place:?}");
    }
}

#[tokio::test]
async fn with_recognition_turned_off_each_request_starts_a_session() {
    for protocol in ALL {
        let server =
            TestServer::with_settings(protocol.path, "[conversations]\nrecognize = false\n");
        let mut client = Client::new(&server, protocol);
        let (_, first) = client.say("one").await;
        let (seen, second) = client.say("two").await;
        assert_eq!(seen, "one A two", "the history is taken in");
        assert_ne!(first, second);
        assert_eq!(server.sessions().await, 2);
    }
}
