//! Hints, with and without an open reply.

use crate::fake_model::{FakeModel, check_law_10, hints};
use crate::harness::*;
use crate::test_store::test_store;
use axum::body::Body;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolContext, ToolError, ToolOutput, streaming_function};
use turnwire_agent::{Agent, Replier};
use turnwire_core::{Event, EventKind, FinishedReason, HintBlock, Msg, Role, ToolResultState};
use turnwire_log::store::SessionStatus;
use turnwire_log::{Session, Store};
use turnwire_wires::{Loss, Wire};

fn hint(id: &str, text: &str) -> Value {
    json!({"type": "HINT_BLOCK", "id": id, "reply_id": "", "block_id": id, "hint": text})
}

type Nothing = std::collections::BTreeMap<String, String>;

/// An agent on a fake model, with a tool that waits for the test, and one that runs in the
/// background until the test ends it.
fn friday_agent(fake_model: &Arc<FakeModel>, gate: &Arc<Semaphore>) -> Arc<dyn Replier> {
    let (wait, find) = (gate.clone(), gate.clone());
    let slow = move |_: Nothing, _: ToolContext| {
        let gate = wait.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, ToolError>("done")
        }
    };
    let search = move |_: Nothing, out: ToolContext| {
        let gate = find.clone();
        async move {
            let later = out.hint_sender().clone();
            tokio::spawn(async move {
                gate.acquire().await.unwrap().forget();
                later.send("Found it.").await;
            });
            Ok::<_, ToolError>(ToolOutput::Background("Searching.".to_owned()))
        }
    };
    let agent = Agent::builder("friday", fake_model.clone());
    let agent = agent.tool(streaming_function("slow", "Takes its time", slow));
    Arc::new(agent.tool(streaming_function("search", "Searches", search)).build())
}

fn closed() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

fn harness_with(fake_model: &Arc<FakeModel>, gate: &Arc<Semaphore>, settings: &str) -> Harness {
    let store: Arc<dyn Store> = test_store();
    Harness::with_agents(store, settings, vec![("friday", friday_agent(fake_model, gate))])
}

async fn begin(server: &Harness) -> (Arc<Session>, String) {
    let session = server.session("s", "friday").await;
    let answer = server.send_text("go").await;
    (session, answer.body["reply_id"].as_str().unwrap().to_owned())
}

async fn until_logged(session: &Session, kind: &str, times: usize) {
    let wait = async {
        let mut head = session.watch_head();
        while count(session, kind).await < times {
            head.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it takes too long");
}

fn position_of(types: &[String], kind: &str) -> usize {
    types.iter().position(|name| name == kind).unwrap()
}

#[tokio::test]
async fn what_comes_while_the_model_speaks_stands_behind_its_call_and_is_read() {
    let fake_model = FakeModel::new([
        vec![ScriptStep::thinking("Hm."), ScriptStep::text("Well.")],
        vec![ScriptStep::text("I see.")],
    ]);
    let server = harness_with(&fake_model, &closed(), "");
    let (session, reply) = begin(&server).await;
    until_logged(&session, "THINKING_BLOCK_START", 1).await;
    let before = session.head_state().head;
    for _ in 0..2 {
        let answer = server.post("/v1/sessions/s/events", json!([hint("h1", "one")])).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    // Two at once, one of them a repeat, and one without ids.
    let more = json!([hint("h1", "one"), {"type": "HINT_BLOCK", "block_id": "", "reply_id": reply,
        "hint": [{"type": "text", "text": "two"}], "source": "team"}]);
    let answer = server.post("/v1/sessions/s/events", more).await;
    assert_eq!((&answer.body["stored"], &answer.body["repeated"]), (&json!(1), &json!(1)));
    assert_eq!(session.head_state().head, before, "they wait until the model has spoken");
    fake_model.gate.add_permits(10);
    until_idle(&session).await;
    let types = types(&session).await;
    let at = position_of(&types, "MODEL_CALL_END");
    assert_eq!(
        types[at..at + 4],
        ["MODEL_CALL_END", "HINT_BLOCK", "HINT_BLOCK", "MODEL_CALL_START"]
    );
    let reply = message(&session, &reply).await;
    assert_eq!(reply.text("").as_deref(), Some("Well.I see."));
    assert_eq!(hints(std::slice::from_ref(&reply)), ["one", "two"]);
    assert_eq!(hints(&fake_model.asked()[1]), ["one", "two"]);
    check_law_10(&session, &fake_model.asked()).await;
    check_projection(&session).await;
    // It is still the same hint after the reply has ended.
    let answer = server.post_event(hint("h1", "one")).await;
    assert_eq!((&answer.body["stored"], &answer.body["repeated"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn what_comes_while_a_tool_works_is_logged_at_once() {
    let fake_model = FakeModel::ungated([
        vec![ScriptStep::call("c", "slow", "{}")],
        vec![ScriptStep::text("Done.")],
    ]);
    let gate = closed();
    let server = harness_with(&fake_model, &gate, "");
    let (session, reply) = begin(&server).await;
    until_logged(&session, "TOOL_RESULT_START", 1).await;
    server.post_event(hint("h", "psst")).await;
    assert_eq!(types(&session).await.last().unwrap(), "HINT_BLOCK");
    gate.add_permits(1);
    until_idle(&session).await;
    assert_eq!(message(&session, &reply).await.text("").as_deref(), Some("Done."));
    assert_eq!(fake_model.asked().len(), 2);
    assert_eq!(hints(&fake_model.asked()[1]), ["psst"]);
    check_law_10(&session, &fake_model.asked()).await;
}

#[tokio::test]
async fn what_comes_while_nothing_runs_is_in_the_history_of_the_next_reply() {
    let fake_model = FakeModel::ungated([
        vec![ScriptStep::text("One.")],
        vec![ScriptStep::text("Two.")],
        vec![],
    ]);
    let server = harness_with(&fake_model, &closed(), "");
    let (session, first) = begin(&server).await;
    until_idle(&session).await;
    let answer = server.post_event(hint("h", "The build is green.")).await;
    assert_eq!((&answer.body["stored"], &answer.body["repeated"]), (&json!(1), &json!(0)));
    assert_eq!(session.head_state().status, SessionStatus::Idle);
    let again = server.post_event(hint("h", "The build is green.")).await;
    assert_eq!((&again.body["stored"], &again.body["repeated"]), (&json!(0), &json!(1)));
    let logged = events(&session).await;
    let EventKind::Message(logged) = &logged.last().unwrap().kind else { panic!("a message") };
    assert_eq!(logged.message.role(), Role::Assistant);
    assert_eq!(logged.message.first::<HintBlock>().unwrap().id, "h");
    // A retry of the first message keeps it.
    let path = format!("/v1/sessions/s/messages/{first}/retry");
    assert_eq!(server.post(&path, Value::Null).await.status, 202);
    until_idle(&session).await;
    assert_eq!(hints(&fake_model.asked()[1]), ["The build is green."]);
    assert_eq!(hints(&fake_model.asked()[0]), Vec::<String>::new());
    server.send_text("and now?").await;
    until_idle(&session).await;
    assert_eq!(hints(&fake_model.asked()[2]), ["The build is green."]);
    let roles: Vec<Role> = fake_model.asked()[2].iter().map(Msg::role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Assistant, Role::User]);
}

#[tokio::test]
async fn a_trigger_starts_a_reply() {
    for (settings, query, starts) in [
        ("", "", false),
        ("", "?reply=true", true),
        ("[agents.friday]\nmodel = \"demo\"\non_hint = \"reply\"", "", true),
        ("[agents.friday]\nmodel = \"demo\"\non_hint = \"reply\"", "?reply=false", false),
    ] {
        let fake_model = FakeModel::ungated([vec![ScriptStep::text("Good morning.")]]);
        let server = harness_with(&fake_model, &closed(), settings);
        let session = server.session("s", "friday").await;
        let path = format!("/v1/sessions/s/events{query}");
        let answer = server.post(&path, json!([hint("h", "It is nine o'clock.")])).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body["reply_id"].is_string(), starts, "{settings} {query}");
        until_idle(&session).await;
        assert_eq!(fake_model.asked().len(), usize::from(starts));
        if let Some(reply) = answer.body["reply_id"].as_str() {
            let reply = message(&session, reply).await;
            assert_eq!(reply.text("").as_deref(), Some("Good morning."));
            assert_eq!(hints(&fake_model.asked()[0]), ["It is nine o'clock."]);
            check_law_10(&session, &fake_model.asked()).await;
        }
        // A repeat does not start a second reply.
        let again = server.post(&path, json!([hint("h", "It is nine o'clock.")])).await;
        assert_eq!(again.body["repeated"], 1);
        assert_eq!(again.body["reply_id"], Value::Null);
        assert_eq!(session.head_state().status, SessionStatus::Idle);
    }
}

#[tokio::test]
async fn hints_that_come_in_a_crowd_are_all_read_in_the_order_of_the_log() {
    let fake_model = FakeModel::ungated(
        std::iter::once(vec![ScriptStep::call("c", "slow", "{}")])
            .chain((0..50).map(|_| vec![ScriptStep::text(".")])),
    );
    let gate = closed();
    let server = Arc::new(harness_with(&fake_model, &gate, ""));
    let (session, _) = begin(&server).await;
    let posts: Vec<_> = (0..30)
        .map(|n| {
            let server = server.clone();
            tokio::spawn(
                async move { server.post_event(hint(&format!("h{n}"), &format!("{n}"))).await },
            )
        })
        .collect();
    gate.add_permits(1);
    for post in posts {
        assert_eq!(post.await.unwrap().body["stored"], 1);
    }
    until_idle(&session).await;
    // Hints that came after the end of the reply are messages.
    server.send_text("more").await;
    until_idle(&session).await;
    let mut logged = Vec::new();
    for event in events(&session).await {
        match &event.kind {
            EventKind::Hint(hint) => logged.push(hint.hint.text("")),
            EventKind::Message(message) => logged.extend(hints(&[(*message.message).clone()])),
            _ => {}
        }
    }
    assert_eq!(logged.len(), 30);
    assert_eq!(hints(fake_model.asked().last().unwrap()), logged);
    check_projection(&session).await;
}

#[tokio::test]
async fn a_stop_loses_no_hint() {
    let fake_model =
        FakeModel::new([vec![ScriptStep::text("Well.")], vec![ScriptStep::text("Yes.")]]);
    let server = harness_with(&fake_model, &closed(), "");
    let (session, reply) = begin(&server).await;
    until_logged(&session, "TEXT_BLOCK_START", 1).await;
    server.post_event(hint("h", "psst")).await;
    server.stop(&session).await;
    let stopped = message(&session, &reply).await;
    assert_eq!(stopped.finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(hints(std::slice::from_ref(&stopped)), ["psst"]);
    fake_model.gate.add_permits(10);
    server.send_text("go on").await;
    until_idle(&session).await;
    assert_eq!(hints(&fake_model.asked()[1]), ["psst"]);
}

#[tokio::test]
async fn hints_that_cannot_be_taken_are_named() {
    let fake_model = FakeModel::ungated([vec![ScriptStep::text("One.")]]);
    let server = harness_with(&fake_model, &closed(), "[limits]\nevent = \"1KiB\"");
    let (session, reply) = begin(&server).await;
    until_idle(&session).await;
    let before = session.head_state().head;
    let of = |reply: &str| json!({"type": "HINT_BLOCK", "reply_id": reply, "block_id": "h", "hint": "x"});
    for (event, status, kind) in [
        (of("nobody"), 422, "unknown_reply"),
        (of(&reply), 409, "reply_ended"),
        (hint("h", " "), 422, "unprocessable"),
        (hint("h", &"x".repeat(2000)), 413, "too_large"),
    ] {
        let answer = server.post_event(event.clone()).await;
        assert_eq!((answer.status.as_u16(), answer.kind()), (status, kind), "{event}");
        assert!(answer.body["error"]["hint"].is_string() || status == 422);
    }
    assert_eq!(session.head_state().head, before);
}

#[tokio::test]
async fn an_agent_elsewhere_finds_hints_in_its_log() {
    let server = Harness::new();
    let session = server.session("s", "external").await;
    // An external agent decides itself what starts a reply.
    server.post("/v1/sessions/s/events?reply=true", json!([hint("h1", "one")])).await;
    assert_eq!(types(&session).await, ["MESSAGE"]);
    let publish = async |body: Value| {
        let request =
            http::Request::post("/v1/sessions/s/events").header("turnwire-producer", "p.1");
        let body = Body::from(body.to_string());
        assert_eq!(server.request(request.body(body).unwrap()).await.status(), 200);
    };
    let of = |id: &str, kind: &str| json!({"type": kind, "id": id, "reply_id": "r", "session_id": "s", "name": "far", "model_name": "m"});
    publish(json!([of("1", "REPLY_START"), of("2", "MODEL_CALL_START")])).await;
    server.post_event(hint("h2", "two")).await;
    assert_eq!(types(&session).await.last().unwrap(), "HINT_BLOCK");
    publish(json!([of("3", "MODEL_CALL_END"), of("4", "REPLY_END")])).await;
    let reply = message(&session, "r").await;
    assert_eq!(hints(&[reply]), ["two"]);
}

#[tokio::test]
async fn what_a_tool_finds_later_is_part_of_the_reply_or_of_the_next() {
    for in_time in [true, false] {
        let fake_model = FakeModel::new([
            vec![ScriptStep::call("c", "search", "{}")],
            vec![ScriptStep::text("It takes a while.")],
            vec![ScriptStep::text("There it is.")],
        ]);
        let gate = closed();
        let server = harness_with(&fake_model, &gate, "");
        let (session, reply) = begin(&server).await;
        fake_model.gate.add_permits(1);
        until_logged(&session, "MODEL_CALL_START", 2).await;
        if in_time {
            gate.add_permits(1);
            let found = async || session.snapshot().await.unwrap().state.held.len();
            while found().await == 0 {
                tokio::task::yield_now().await;
            }
            fake_model.gate.add_permits(10);
            until_idle(&session).await;
        } else {
            fake_model.gate.add_permits(10);
            until_idle(&session).await;
            gate.add_permits(1);
            until_logged(&session, "MESSAGE", 2).await;
            server.send_text("and?").await;
            until_idle(&session).await;
        }
        let reply_message = message(&session, &reply).await;
        let (_, result) = reply_message.tool_calls().next().unwrap();
        assert_eq!(result.unwrap().state, ToolResultState::Running);
        assert_eq!(hints(&[reply_message]).len(), usize::from(in_time));
        assert_eq!(fake_model.asked().len(), 3);
        assert_eq!(hints(&fake_model.asked()[2]), ["Found it."]);
        check_law_10(&session, &fake_model.asked()).await;
    }
}

#[tokio::test]
async fn every_wire_that_holds_hints_shows_them() {
    let fake_model = FakeModel::ungated([
        vec![ScriptStep::call("c", "slow", "{}")],
        vec![ScriptStep::text("Done.")],
    ]);
    let gate = closed();
    let server = harness_with(&fake_model, &gate, "");
    let session = server.session("s", "friday").await;
    server.post_event(hint("h1", "earlier")).await;
    server.send_text("go").await;
    until_logged(&session, "TOOL_RESULT_START", 1).await;
    server.post_event(hint("h2", "meanwhile")).await;
    gate.add_permits(1);
    until_idle(&session).await;
    for wire in Wire::all().filter(|wire| wire.can_encode()) {
        let path = format!("/v1/sessions/s/events?until=idle&wire={}", wire.name);
        let response = server.request(http::Request::get(path).body(Body::empty()).unwrap()).await;
        let text = body(response).await;
        assert!(text.contains("Done."), "{}: {text}", wire.name);
        let shows = !wire.stream_losses.contains(&Loss::Hints);
        assert_eq!(text.contains("meanwhile"), shows, "{}: {text}", wire.name);
        assert!(shows || !text.contains("earlier"), "{}: {text}", wire.name);
    }
    for wire in Wire::all().filter(|wire| wire.has_messages()) {
        let path = format!("/v1/sessions/s/messages?wire={}", wire.name);
        let response = server.request(http::Request::get(path).body(Body::empty()).unwrap()).await;
        let text = body(response).await;
        let shows = !wire.message_losses.contains(&Loss::Hints);
        for word in ["earlier", "meanwhile"] {
            assert_eq!(text.contains(word), shows, "{}: {text}", wire.name);
        }
    }
}

async fn body(response: http::Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a server, then ends it like a crash.
fn run_server<R>(
    store: &Arc<dyn Store>,
    fake_model: &Arc<FakeModel>,
    gate: &Arc<Semaphore>,
    live: impl AsyncFnOnce(Harness, Arc<Session>) -> R,
) -> R {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store: Arc<dyn Store> = store.clone();
    let result = runtime.block_on(async {
        let server =
            Harness::with_agents(store, "", vec![("friday", friday_agent(fake_model, gate))]);
        let session = server.session("s", "friday").await;
        server.app.turns.recover().await.unwrap();
        live(server, session).await
    });
    runtime.shutdown_timeout(Duration::from_secs(20));
    result
}

#[test]
fn a_hint_that_was_taken_is_there_after_a_crash_and_once() {
    let store = test_store();
    let fake_model = FakeModel::new([
        vec![ScriptStep::text("Well.")],
        vec![ScriptStep::text("Well.")],
        vec![ScriptStep::text("I see.")],
    ]);
    let reply = run_server(&store, &fake_model, &closed(), async |server, session| {
        let answer = server.send_text("go").await;
        until_logged(&session, "TEXT_BLOCK_START", 1).await;
        assert_eq!(server.post_event(hint("h", "psst")).await.body["stored"], 1);
        answer.body["reply_id"].as_str().unwrap().to_owned()
    });
    fake_model.gate.add_permits(10);
    run_server(&store, &fake_model, &closed(), async |server, session| {
        assert_eq!(server.post_event(hint("h", "psst")).await.body["repeated"], 1);
        until_idle(&session).await;
        let reply = message(&session, &reply).await;
        assert_eq!(hints(std::slice::from_ref(&reply)), ["psst"]);
        // The interrupted model call is repeated, with the hint.
        assert_eq!(reply.text("").as_deref(), Some("Well."));
        assert_eq!(hints(&fake_model.asked()[1]), ["psst"]);
        check_projection(&session).await;
    });
    run_server(&store, &fake_model, &closed(), async |server, session| {
        assert_eq!(server.post_event(hint("h", "psst")).await.body["repeated"], 1);
        server.post_event(hint("h2", "later")).await;
        drop(session);
    });
    run_server(&store, &fake_model, &closed(), async |server, session| {
        assert_eq!(server.post_event(hint("h2", "later")).await.body["repeated"], 1);
        server.send_text("and?").await;
        until_idle(&session).await;
        assert_eq!(hints(&fake_model.asked()[2]), ["psst", "later"]);
    });
}

#[test]
fn work_in_the_background_that_died_with_its_process_is_said_to_have() {
    for dies_in_reply in [true, false] {
        let store = test_store();
        let call = || vec![ScriptStep::call("c", "search", "{}")];
        let fake_model = FakeModel::new(
            [call()].into_iter().chain((0..5).map(|_| vec![ScriptStep::text("So it is.")])),
        );
        fake_model.gate.add_permits(1);
        let found = closed();
        run_server(&store, &fake_model, &found, async |server, session| {
            server.send_text("search").await;
            until_logged(&session, "MODEL_CALL_START", 2).await;
            if !dies_in_reply {
                fake_model.gate.add_permits(1);
                until_idle(&session).await;
            }
        });
        fake_model.gate.add_permits(100);
        let asked = fake_model.asked().len();
        for life_no in 0..2 {
            run_server(&store, &fake_model, &closed(), async |server, session| {
                until_idle(&session).await;
                if !dies_in_reply || life_no > 0 {
                    server.send_text("and?").await;
                    until_idle(&session).await;
                }
                let hints_after_crash = hints(fake_model.asked().last().unwrap());
                assert_eq!(hints_after_crash.len(), 1, "it is said once");
                assert!(
                    hints_after_crash[0].contains("what it had found is lost"),
                    "{hints_after_crash:?}"
                );
                check_projection(&session).await;
            });
        }
        assert_eq!(
            hints(&fake_model.asked()[asked]).len(),
            1,
            "the first call after the crash is told"
        );
    }
}

#[tokio::test]
async fn work_in_the_background_that_goes_on_is_not_said_to_have_died() {
    let fake_model = FakeModel::ungated([
        vec![ScriptStep::call("c", "search", "{}")],
        vec![ScriptStep::text("Later.")],
        vec![],
    ]);
    let server = harness_with(&fake_model, &closed(), "");
    let (session, _) = begin(&server).await;
    until_idle(&session).await;
    server.send_text("and?").await;
    until_idle(&session).await;
    assert_eq!(hints(&fake_model.asked()[2]), Vec::<String>::new());
    let is_background = |event: &Event<'_>| event.metadata.raw("background").is_some();
    assert_eq!(events(&session).await.iter().filter(|event| is_background(event)).count(), 1);
}
