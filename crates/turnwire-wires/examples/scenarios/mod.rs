//! Turns with everything that a client must handle.

use serde_json::{Value, json};
use turnwire_core::{Event, FixedStamp, Msg};

/// A turn: the user message, and the events of the reply.
pub struct Scenario {
    pub name: &'static str,
    pub question: Msg,
    pub events: Vec<Event<'static>>,
}

/// A turn from events as JSON. Missing fields have the same value in all.
fn scenario(name: &'static str, events: Vec<Value>) -> Scenario {
    let stamp = FixedStamp::default();
    let question = Msg::builder(turnwire_core::Role::User).id("u").text("hi").build();
    let events = (1..).zip(events).map(|(seq, mut event)| {
        if let Some(fields) = event.as_object_mut() {
            fields.entry("reply_id").or_insert_with(|| "r".into());
            fields.insert("seq".to_owned(), Value::from(seq));
        }
        match Event::from_json(&event.to_string()) {
            Ok(event) => event.into_owned().stamped(&stamp),
            Err(error) => unreachable!("{event}: {error}"),
        }
    });
    let events = events.collect();
    Scenario { name, question: question.unwrap_or_default(), events }
}

fn begin() -> Vec<Value> {
    vec![json!({"type": "REPLY_START", "session_id": "t", "name": "friday"})]
}

fn end(reason: &str) -> Vec<Value> {
    vec![json!({"type": "REPLY_END", "session_id": "t", "finished_reason": reason})]
}

fn model(inside: &[Vec<Value>]) -> Vec<Value> {
    let start = json!({"type": "MODEL_CALL_START", "model_name": "demo"});
    let end = json!({"type": "MODEL_CALL_END", "input_tokens": 10, "output_tokens": 4,
        "cache_input_tokens": 3});
    [vec![start], inside.concat(), vec![end]].concat()
}

fn text(id: &str, deltas: &[&str]) -> Vec<Value> {
    let start = json!({"type": "TEXT_BLOCK_START", "block_id": id});
    let end = json!({"type": "TEXT_BLOCK_END", "block_id": id});
    let deltas = deltas
        .iter()
        .map(|delta| json!({"type": "TEXT_BLOCK_DELTA", "block_id": id, "delta": delta}));
    [vec![start], deltas.collect(), vec![end]].concat()
}

fn thinking(id: &str, deltas: &[&str]) -> Vec<Value> {
    let start = json!({"type": "THINKING_BLOCK_START", "block_id": id});
    let end = json!({"type": "THINKING_BLOCK_END", "block_id": id, "extra": {"signature": "sig"}});
    let deltas = deltas
        .iter()
        .map(|delta| json!({"type": "THINKING_BLOCK_DELTA", "block_id": id, "delta": delta}));
    [vec![start], deltas.collect(), vec![end]].concat()
}

fn call(id: &str, name: &str, deltas: &[&str]) -> Vec<Value> {
    let start = json!({"type": "TOOL_CALL_START", "tool_call_id": id, "tool_call_name": name});
    let end = json!({"type": "TOOL_CALL_END", "tool_call_id": id});
    let deltas = deltas
        .iter()
        .map(|delta| json!({"type": "TOOL_CALL_DELTA", "tool_call_id": id, "delta": delta}));
    [vec![start], deltas.collect(), vec![end]].concat()
}

fn result(id: &str, name: &str, deltas: &[&str], state: &str) -> Vec<Value> {
    let start = json!({"type": "TOOL_RESULT_START", "tool_call_id": id, "tool_call_name": name});
    let end = json!({"type": "TOOL_RESULT_END", "tool_call_id": id, "state": state});
    let deltas = deltas
        .iter()
        .map(|delta| json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": id, "delta": delta}));
    [vec![start], deltas.collect(), vec![end]].concat()
}

fn asking_call(id: &str, name: &str) -> Value {
    json!({"id": id, "name": name, "input": "",
        "suggested_rules": [{"tool_name": name, "behavior": "allow"}]})
}

fn ask(calls: &[Value]) -> Vec<Value> {
    vec![json!({"type": "REQUIRE_USER_CONFIRM", "tool_calls": calls})]
}

fn answer(id: &str, confirmed: bool, input: &str) -> Value {
    json!({"confirmed": confirmed, "tool_call": {"id": id, "name": "x", "input": input}})
}

fn answers(answers: &[Value]) -> Vec<Value> {
    vec![json!({"type": "USER_CONFIRM_RESULT", "confirm_results": answers})]
}

/// The same events as a sub-agent's.
fn of_subagent(events: Vec<Value>, reply: &str, path: &str, call: &str) -> Vec<Value> {
    let each = events.into_iter().map(|mut event| {
        if let Some(fields) = event.as_object_mut() {
            fields.insert("reply_id".to_owned(), reply.into());
            fields.insert("agent_path".to_owned(), path.into());
            fields.insert("parent_tool_call_id".to_owned(), call.into());
        }
        event
    });
    each.collect()
}

/// Alternates: one of the first, one of the second, and so on.
fn interleaved(first: Vec<Value>, second: Vec<Value>) -> Vec<Value> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut both = Vec::new();
    loop {
        let (a, b) = (first.next(), second.next());
        if a.is_none() && b.is_none() {
            return both;
        }
        both.extend(a);
        both.extend(b);
    }
}

/// All turns.
pub fn all() -> Vec<Scenario> {
    let mut all = plain();
    all.extend(waiting());
    all.extend(broken());
    all
}

fn weather() -> Vec<Value> {
    call("c1", "get_weather", &["{\"city\":", "\"Paris\"}"])
}

fn trade() -> Vec<Value> {
    call("c1", "execute_trade", &["{\"n\":", "1}"])
}

fn done() -> Vec<Value> {
    model(&[text("x2", &["All ", "done."])])
}

/// Turns that complete.
fn plain() -> Vec<Scenario> {
    vec![
        scenario(
            "plain",
            [begin(), model(&[text("x1", &["Hel", "lo ", "wörld 🙂\n"])]), end("completed")]
                .concat(),
        ),
        scenario(
            "thinking",
            [
                begin(),
                model(&[thinking("h1", &["Let me ", "see."]), text("x1", &["Yes", "."])]),
                end("completed"),
            ]
            .concat(),
        ),
        scenario(
            "tools",
            [
                begin(),
                model(&[text("x1", &["I look."]), weather()]),
                result("c1", "get_weather", &["sun", "ny"], "success"),
                done(),
                end("completed"),
            ]
            .concat(),
        ),
        scenario(
            "parallel",
            [
                begin(),
                model(&[interleaved(weather(), call("c2", "get_time", &["{\"z\":", "0}"]))]),
                interleaved(
                    result("c1", "get_weather", &["sun", "ny", "!"], "success"),
                    result("c2", "get_time", &["noon"], "error"),
                ),
                done(),
                end("completed"),
            ]
            .concat(),
        ),
        scenario("data", data()),
    ]
}

/// Turns that wait for the client.
fn waiting() -> Vec<Scenario> {
    vec![
        scenario("approval", approval(&trade(), true, "", "success", &done())),
        scenario("edit", approval(&trade(), true, "{\"n\":2}", "success", &done())),
        scenario("denial", approval(&trade(), false, "", "denied", &done())),
        scenario(
            "asks",
            [
                begin(),
                model(&[trade(), call("c2", "send_mail", &["{}"]), call("c3", "now", &["{}"])]),
                ask(&[asking_call("c1", "execute_trade"), asking_call("c2", "send_mail")]),
                result("c3", "now", &["noon"], "success"),
                answers(&[answer("c1", true, ""), answer("c2", false, "")]),
                result("c1", "execute_trade", &["sold"], "success"),
                result("c2", "send_mail", &["denied"], "denied"),
                done(),
                end("completed"),
            ]
            .concat(),
        ),
        scenario(
            "external",
            [
                begin(),
                model(&[call("c1", "open_page", &["{\"url\":\"/\"}"])]),
                vec![json!({"type": "REQUIRE_EXTERNAL_EXECUTION",
                    "tool_calls": [{"id": "c1", "name": "open_page", "input": ""}]})],
                vec![json!({"type": "EXTERNAL_EXECUTION_RESULT", "execution_results": [{
                    "id": "c1", "name": "open_page", "output": "opened", "state": "success",
                    "message_id": "client-1"}]})],
                done(),
                end("completed"),
            ]
            .concat(),
        ),
        scenario("team", team(&done())),
    ]
}

/// Turns that fail, are interrupted or discard blocks.
fn broken() -> Vec<Scenario> {
    vec![
        scenario(
            "error",
            [
                begin(),
                vec![json!({"type": "MODEL_CALL_START", "model_name": "demo"})],
                cut(&text("x1", &["It was ", "a dark"]), 3),
                vec![json!({"type": "REPLY_END", "session_id": "t", "finished_reason": "error",
                    "error": {"type": "upstream", "message": "the model broke off"}})],
            ]
            .concat(),
        ),
        scenario("interruption", interruption(&weather())),
        scenario(
            "stop",
            [
                begin(),
                model(&[trade()]),
                ask(&[asking_call("c1", "execute_trade")]),
                vec![json!({"type": "USER_INTERRUPT"})],
                result("c1", "execute_trade", &["stopped"], "interrupted"),
                end("interrupted"),
            ]
            .concat(),
        ),
        scenario(
            "discard",
            [
                begin(),
                vec![json!({"type": "MODEL_CALL_START", "model_name": "demo"})],
                cut(&text("x1", &["Once ", "upon"]), 3),
                cut(&weather(), 2),
                vec![json!({"type": "MODEL_CALL_END", "finished_reason": "error",
                    "discard": ["x1", "c1"]})],
                done(),
                end("completed"),
            ]
            .concat(),
        ),
        scenario(
            "replaced",
            [
                begin(),
                model(&[
                    cut(&text("x1", &["It is ", "going to rain all"]), 3),
                    vec![
                        json!({"type": "TEXT_BLOCK_END", "block_id": "x1", "text": "It is going"}),
                    ],
                    text("x2", &["Next."]),
                ]),
                end("exceed_max_iters"),
            ]
            .concat(),
        ),
        scenario("truncated", cut(&[begin(), model(&[text("x1", &["Hel", "lo"])])].concat(), 5)),
    ]
}

fn cut(events: &[Value], at: usize) -> Vec<Value> {
    events.iter().take(at).cloned().collect()
}

fn approval(
    trade: &[Value],
    confirmed: bool,
    edited: &str,
    state: &str,
    done: &[Value],
) -> Vec<Value> {
    [
        begin(),
        model(&[text("x1", &["I ask."]), trade.to_vec()]),
        ask(&[asking_call("c1", "execute_trade")]),
        answers(&[answer("c1", confirmed, edited)]),
        // As AgentScope's service continues.
        begin(),
        result("c1", "execute_trade", &["that was ", state], state),
        done.to_vec(),
        end("completed"),
    ]
    .concat()
}

fn interruption(weather: &[Value]) -> Vec<Value> {
    [
        begin(),
        vec![json!({"type": "MODEL_CALL_START", "model_name": "demo"})],
        text("x1", &["I look."]),
        weather.to_vec(),
        cut(&text("x2", &["And ", "then"]), 3),
        vec![json!({"type": "USER_INTERRUPT"})],
        cut(&result("c1", "get_weather", &["half"], "interrupted"), 2),
        vec![
            json!({"type": "TOOL_RESULT_END", "tool_call_id": "c1", "state": "interrupted"}),
            json!({"type": "MODEL_CALL_END", "finished_reason": "interrupted"}),
        ],
        end("interrupted"),
    ]
    .concat()
}

fn data() -> Vec<Value> {
    let bytes = |data: &str| {
        json!({"type": "DATA_BLOCK_DELTA", "block_id": "d1", "data": data,
        "media_type": "image/png"})
    };
    let inside = vec![
        json!({"type": "DATA_BLOCK_START", "block_id": "d1", "media_type": "image/png",
            "name": "dot.png"}),
        bytes("iVBOR"),
        json!({"type": "TEXT_BLOCK_START", "block_id": "x1"}),
        bytes("w0KGg"),
        json!({"type": "TEXT_BLOCK_DELTA", "block_id": "x1", "delta": "A dot."}),
        bytes("o="),
        json!({"type": "DATA_BLOCK_END", "block_id": "d1"}),
        json!({"type": "TEXT_BLOCK_END", "block_id": "x1"}),
        json!({"type": "HINT_BLOCK", "block_id": "n1", "hint": "Mind the gap.", "source": "team"}),
        json!({"type": "BLOCK", "block": {"type": "x_map", "zoom": 3}}),
        json!({"type": "BLOCK", "block": {"type": "text", "id": "x9", "text": "All at once."}}),
        json!({"type": "CUSTOM", "name": "progress", "value": {"done": 0.5}}),
        json!({"type": "X_LATER", "mood": "good"}),
    ];
    let drawn = vec![
        json!({"type": "TOOL_RESULT_START", "tool_call_id": "c1", "tool_call_name": "draw"}),
        json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "c1", "delta": "Here:"}),
        json!({"type": "TOOL_RESULT_DATA_DELTA", "tool_call_id": "c1", "block_id": "p1",
            "media_type": "image/png", "data": "iVBORw0KGgo="}),
        json!({"type": "TOOL_RESULT_END", "tool_call_id": "c1", "state": "success",
            "metadata": {"took": 3}}),
    ];
    let finish = json!({"type": "REPLY_END", "session_id": "t", "finished_reason": "completed",
        "structured_output": {"dots": 1}});
    [begin(), model(&[inside, call("c1", "draw", &["{}"])]), drawn, vec![finish]].concat()
}

/// A sub-agent with a sub-agent of its own requests an approval.
fn team(done: &[Value]) -> Vec<Value> {
    let researcher = |events| of_subagent(events, "s1", "main/researcher", "c1");
    let helper = |events| of_subagent(events, "s2", "main/researcher/helper", "k1");
    let name = |name: &str| vec![json!({"type": "REPLY_START", "session_id": "t", "name": name})];
    let work = [
        name("researcher"),
        model(&[text("y1", &["I re", "search."]), call("k1", "delegate", &["{}"])]),
        vec![json!({"type": "TOOL_RESULT_START", "tool_call_id": "k1",
            "tool_call_name": "delegate"})],
    ];
    let help = [
        name("helper"),
        model(&[thinking("z0", &["hm"]), text("z1", &["I help."]), call("m1", "write", &["{}"])]),
        ask(&[asking_call("m1", "write")]),
        answers(&[answer("m1", true, "")]),
        result("m1", "write", &["written"], "success"),
        end("completed"),
    ];
    let rest = [
        vec![json!({"type": "TOOL_RESULT_END", "tool_call_id": "k1", "state": "success"})],
        model(&[text("y2", &["Found."])]),
        end("completed"),
    ];
    [
        begin(),
        model(&[call("c1", "research", &["{}"])]),
        vec![json!({"type": "TOOL_RESULT_START", "tool_call_id": "c1",
            "tool_call_name": "research"})],
        researcher(work.concat()),
        helper(help.concat()),
        researcher(rest.concat()),
        vec![
            json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "c1", "delta": "facts"}),
            json!({"type": "TOOL_RESULT_END", "tool_call_id": "c1", "state": "success"}),
        ],
        done.to_vec(),
        end("completed"),
    ]
    .concat()
}
