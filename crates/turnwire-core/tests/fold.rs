//! The fold, case by case: the details that `docs/events.md` lists, and the differences from AgentScope.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use turnwire_core::{ErrorKind, Event, Folder, Msg, Outcome, Role};

/// An event of the reply `r` with these fields.
fn event(kind: &str, fields: Value) -> Event<'static> {
    let common = json!({"type": kind, "reply_id": "r", "created_at": "t"});
    let all = [common, fields].into_iter().flat_map(|fields| match fields {
        Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    });
    serde_json::from_value(all.collect()).unwrap()
}

fn fold(events: &[Event<'_>]) -> Msg {
    let mut msg = Msg::reply("r", "");
    for event in events {
        msg.append_event(event).unwrap();
    }
    msg
}

fn refused_kind(msg: &mut Msg, event: &Event<'_>) -> ErrorKind {
    let before = (msg.to_json(), msg.cursor());
    let kind = msg.append_event(event).unwrap_err().kind();
    assert_eq!((msg.to_json(), msg.cursor()), before, "a refused event changes nothing");
    kind
}

fn blocks(msg: &Msg) -> Value {
    serde_json::to_value(msg.content()).unwrap()
}

fn text_start(id: &str) -> Event<'static> {
    event("TEXT_BLOCK_START", json!({"block_id": id}))
}

fn text_delta(id: &str, delta: &str) -> Event<'static> {
    event("TEXT_BLOCK_DELTA", json!({"block_id": id, "delta": delta}))
}

fn text_end(id: &str) -> Event<'static> {
    event("TEXT_BLOCK_END", json!({"block_id": id}))
}

fn call(id: &str) -> Vec<Event<'static>> {
    vec![
        event("TOOL_CALL_START", json!({"tool_call_id": id, "tool_call_name": "f"})),
        event("TOOL_CALL_DELTA", json!({"tool_call_id": id, "delta": "{}"})),
        event("TOOL_CALL_END", json!({"tool_call_id": id})),
    ]
}

fn result_start(id: &str) -> Event<'static> {
    event("TOOL_RESULT_START", json!({"tool_call_id": id, "tool_call_name": "f"}))
}

fn result_end(id: &str) -> Event<'static> {
    event("TOOL_RESULT_END", json!({"tool_call_id": id, "state": "success"}))
}

fn require_confirm(id: &str) -> Event<'static> {
    let rule = json!({"tool_name": "f", "rule_content": null, "behavior": "allow", "source": "s"});
    let call =
        json!({"type": "tool_call", "id": id, "name": "f", "input": "", "suggested_rules": [rule]});
    event("REQUIRE_USER_CONFIRM", json!({"tool_calls": [call]}))
}

fn confirm(id: &str, confirmed: bool, input: &str) -> Event<'static> {
    let call = json!({"type": "tool_call", "id": id, "name": "f", "input": input, "x_new": 1});
    event(
        "USER_CONFIRM_RESULT",
        json!({"confirm_results": [{"confirmed": confirmed, "tool_call": call}]}),
    )
}

fn call_and_result_state(msg: &Msg, id: &str) -> (String, String) {
    let (call, _) = msg.tool_calls().find(|(call, _)| call.id == id).unwrap();
    (call.state.to_string(), call.input.clone())
}

mod replies {
    use super::*;

    #[test]
    fn a_reply_whose_start_was_never_seen_still_folds() {
        let msg = fold(&[text_start("b"), text_delta("b", "x")]);
        assert_eq!((msg.role(), msg.name(), msg.created_at()), (Role::Assistant, "", "t"));
        assert_eq!(msg.text("").as_deref(), Some("x"));
    }

    #[test]
    fn the_role_and_the_name_are_the_starts_and_a_repeated_start_changes_nothing() {
        let start =
            |name: &str, role: &str| event("REPLY_START", json!({"name": name, "role": role}));
        let mut msg = fold(&[start("alice", "user")]);
        assert_eq!((msg.role(), msg.name()), (Role::User, "alice"));
        assert_eq!(msg.append_event(&start("bob", "assistant")).unwrap(), Outcome::Applied);
        assert_eq!((msg.role(), msg.name()), (Role::User, "alice"));
        let thinking = event("THINKING_BLOCK_START", json!({"block_id": "t"}));
        assert_eq!(refused_kind(&mut msg, &thinking), ErrorKind::WrongRole);
    }

    #[test]
    fn a_late_start_still_names_who_replies_unless_the_role_cannot_hold_what_is_there() {
        let mut msg = fold(&[event("THINKING_BLOCK_START", json!({"block_id": "t"}))]);
        let user = event("REPLY_START", json!({"name": "alice", "role": "user"}));
        for _ in 0..2 {
            assert_eq!(refused_kind(&mut msg, &user), ErrorKind::WrongRole);
        }
        msg.append_event(&event("REPLY_START", json!({"name": "friday"}))).unwrap();
        assert_eq!(msg.name(), "friday");
    }

    #[test]
    fn a_start_without_a_name_leaves_the_name_that_is_there() {
        let mut msg = Msg::reply("r", "friday");
        msg.append_event(&event("REPLY_START", json!({}))).unwrap();
        assert_eq!(msg.name(), "friday");
    }

    #[test]
    fn a_resumed_reply_with_a_second_start_keeps_its_name_also_after_a_stop() {
        let msg = fold(&[event("REPLY_START", json!({"name": "alice", "role": "user"}))]);
        let cursor = serde_json::to_string(&msg.cursor()).unwrap();
        let mut later = Msg::from_json(&msg.to_json())
            .unwrap()
            .with_cursor(serde_json::from_str(&cursor).unwrap());
        later.append_event(&event("REPLY_START", json!({"name": "bob"}))).unwrap();
        assert_eq!((later.name(), later.role()), ("alice", Role::User));
    }

    #[test]
    fn everything_at_the_end_is_in_the_message() {
        let end = event(
            "REPLY_END",
            json!({
                "finished_reason": "error", "created_at": "t9",
                "error": {"type": "rate_limit", "message": "slow down"},
                "structured_output": {"goal": "tea"}, "message_metadata": {"generate_reason": "MODEL_STOP"},
            }),
        );
        let usage = json!({"input_tokens": 3, "output_tokens": 4, "cache_input_tokens": 5, "cache_creation_input_tokens": 6});
        let call_end = event("MODEL_CALL_END", usage);
        let msg = fold(&[call_end.clone(), call_end, end]);
        assert_eq!(
            serde_json::to_value(&msg).unwrap(),
            json!({
                "name": "", "content": [], "role": "assistant", "id": "r",
                "metadata": {"generate_reason": "MODEL_STOP"}, "created_at": "t",
                "usage": {"input_tokens": 6, "output_tokens": 8, "cache_input_tokens": 10, "cache_creation_input_tokens": 12},
                "finished_at": "t9", "finished_reason": "error", "structured_output": {"goal": "tea"},
                "error": {"type": "rate_limit", "message": "slow down"},
            })
        );
    }

    #[test]
    fn after_the_end_come_only_events_outside_of_the_reply() {
        let mut msg = fold(&[event("REPLY_END", json!({"id": "end"}))]);
        for late in [
            event("REPLY_END", json!({"id": "another"})),
            event("REPLY_START", json!({"name": "x"})),
            text_start("b"),
            event("MODEL_CALL_START", json!({})),
        ] {
            assert_eq!(refused_kind(&mut msg, &late), ErrorKind::AlreadyEnded);
        }
        let same = event("REPLY_END", json!({"id": "end"}));
        assert_eq!(msg.append_event(&same).unwrap(), Outcome::Repeated);
        for beside in [event("CUSTOM", json!({"name": "x"})), event("LATER", json!({}))] {
            assert_eq!(msg.append_event(&beside).unwrap(), Outcome::Ignored);
        }
    }

    #[test]
    fn an_event_of_another_reply_is_refused() {
        let mut msg = Msg::reply("another", "");
        assert_eq!(refused_kind(&mut msg, &text_start("b")), ErrorKind::WrongReply);
    }

    #[test]
    fn a_sub_agents_reply_is_a_message_of_its_own() {
        let mut folder = Folder::default();
        for line in [
            r#"{"type":"TEXT_BLOCK_START","reply_id":"main","block_id":"b"}"#,
            r#"{"type":"TEXT_BLOCK_START","reply_id":"sub","block_id":"b","agent_path":"main/sub","parent_tool_call_id":"c"}"#,
            r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"sub","block_id":"b","delta":"found","agent_path":"main/sub"}"#,
        ] {
            folder.push(&Event::from_json(line).unwrap()).unwrap();
        }
        assert_eq!(folder.get("sub").unwrap().text("").as_deref(), Some("found"));
        assert_eq!(folder.get("main").unwrap().text("").as_deref(), Some(""));
    }
}

mod repeats {
    use super::*;

    #[test]
    fn with_a_seq_everything_up_to_the_cursor_is_a_repeat() {
        let numbered =
            |event: Event<'static>, seq| Event { seq: turnwire_core::Seq::new(seq), ..event };
        let mut msg = fold(&[numbered(text_start("b"), 3), numbered(text_delta("b", "x"), 7)]);
        for seq in [1, 3, 5, 7] {
            let again = numbered(text_delta("b", "again"), seq);
            assert_eq!(msg.append_event(&again).unwrap(), Outcome::Repeated);
        }
        assert_eq!(msg.append_event(&numbered(text_delta("b", "y"), 8)).unwrap(), Outcome::Applied);
        assert_eq!(msg.text("").as_deref(), Some("xy"));
        assert_eq!(
            serde_json::to_value(msg.cursor()).unwrap(),
            json!({"started": false, "seq": 8})
        );
    }

    #[test]
    fn an_event_that_was_skipped_may_come_again_and_is_then_applied() {
        let mut msg = Msg::reply("r", "");
        let delta = event("TEXT_BLOCK_DELTA", json!({"id": "d", "block_id": "b", "delta": "x"}));
        assert_eq!(refused_kind(&mut msg, &delta), ErrorKind::UnknownBlock);
        msg.append_event(&text_start("b")).unwrap();
        assert_eq!(msg.append_event(&delta).unwrap(), Outcome::Applied);
        assert_eq!(msg.append_event(&delta).unwrap(), Outcome::Repeated);
    }

    #[test]
    fn a_merged_event_that_was_applied_in_part_is_an_overlap() {
        let merged = |from: u64, to: u64| {
            event(
                "TEXT_BLOCK_DELTA",
                json!({"block_id": "b", "delta": "x", "seq_from": from, "seq": to}),
            )
        };
        let mut msg = fold(&[text_start("b"), merged(2, 5)]);
        assert_eq!(refused_kind(&mut msg, &merged(4, 9)), ErrorKind::Overlap);
        assert_eq!(refused_kind(&mut msg, &merged(5, 9)), ErrorKind::Overlap);
        assert_eq!(msg.append_event(&merged(2, 5)).unwrap(), Outcome::Repeated);
        assert_eq!(msg.append_event(&merged(6, 9)).unwrap(), Outcome::Applied);
        assert_eq!(msg.text("").as_deref(), Some("xx"));
    }

    #[test]
    fn events_that_know_their_time_are_not_merged_with_those_that_do_not() {
        let delta = |seq: u64, time: &str| {
            let fields = json!({"block_id": "b", "delta": "x", "seq": seq, "created_at": time});
            event("TEXT_BLOCK_DELTA", fields)
        };
        let start = event("TEXT_BLOCK_START", json!({"block_id": "b", "seq": 1, "created_at": ""}));
        let events = [start, delta(2, ""), delta(3, ""), delta(4, "t4"), delta(5, "t5")];
        let merged: Vec<Event<'_>> = turnwire_core::coalesce(events.clone()).collect();
        assert_eq!(merged.len(), 3);
        assert_eq!(fold(&merged), fold(&events));
        assert_eq!(fold(&events).created_at(), "t4");
    }

    #[test]
    fn deltas_are_merged_only_where_nothing_is_lost() {
        let delta = |fields: Value| event("TEXT_BLOCK_DELTA", fields);
        let plain = |seq: u64| json!({"block_id": "b", "delta": "x", "seq": seq});
        let with = |seq: u64, key: &str, value: Value| {
            let mut fields = plain(seq);
            fields[key] = value;
            fields
        };
        let large = "x".repeat(40_000);
        for (case, second, expected) in [
            ("neighbours", plain(2), 1),
            ("a gap", plain(3), 2),
            ("the same seq", plain(1), 2),
            ("no seq", json!({"block_id": "b", "delta": "x"}), 2),
            ("another block", with(2, "block_id", json!("c")), 2),
            ("another agent", with(2, "agent_path", json!("main/sub")), 2),
            ("metadata", with(2, "metadata", json!({"k": 1})), 2),
            ("a field of its own", with(2, "logprobs", json!([1])), 2),
            ("another reply", with(2, "reply_id", json!("s")), 2),
        ] {
            let merged = turnwire_core::coalesce([delta(plain(1)), delta(second)]);
            assert_eq!(merged.count(), expected, "{case}");
        }
        let too_large = [1, 2].map(|seq| delta(with(seq, "delta", json!(large))));
        assert_eq!(turnwire_core::coalesce(too_large).count(), 2, "an event of ordinary size");
    }

    #[test]
    fn an_event_applied_by_id_is_a_repeat_when_it_comes_again_with_a_seq() {
        let delta = event("TEXT_BLOCK_DELTA", json!({"id": "d", "block_id": "b", "delta": "x"}));
        let mut msg = fold(&[text_start("b"), delta.clone()]);
        let logged = Event { seq: turnwire_core::Seq::new(2), ..delta };
        assert_eq!(msg.append_event(&logged).unwrap(), Outcome::Repeated);
    }
}

mod blocks_of_text {
    use super::*;

    #[test]
    fn a_delta_without_its_start_names_the_block() {
        let mut msg = Msg::reply("r", "");
        let error = msg.append_event(&text_delta("b1", "x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "UnknownBlock: reply r has no text block b1; was its TEXT_BLOCK_START lost?"
        );
    }

    #[test]
    fn a_second_start_of_a_block_is_refused_but_families_do_not_collide() {
        let mut msg =
            fold(&[text_start("b"), event("THINKING_BLOCK_START", json!({"block_id": "b"}))]);
        assert_eq!(refused_kind(&mut msg, &text_start("b")), ErrorKind::DuplicateBlock);
        assert_eq!(msg.content().len(), 2);
    }

    #[test]
    fn a_delta_after_the_end_is_refused_or_applied_and_reported() {
        let mut msg = fold(&[text_start("b"), text_end("b")]);
        assert_eq!(refused_kind(&mut msg, &text_delta("b", "late")), ErrorKind::AlreadyEnded);
        let (outcome, problem) = msg.append_event_tolerant(&text_delta("b", "late"));
        assert_eq!((outcome, problem.unwrap().kind()), (Outcome::Applied, ErrorKind::AlreadyEnded));
        assert_eq!(msg.text("").as_deref(), Some("late"));
        assert_eq!(refused_kind(&mut msg, &text_end("b")), ErrorKind::AlreadyEnded);
    }

    #[test]
    fn the_end_may_replace_the_text_and_an_empty_text_replaces_too() {
        for (text, expected) in
            [(json!("heard"), "heard"), (json!(""), ""), (json!(null), "all of it")]
        {
            let end = event("TEXT_BLOCK_END", json!({"block_id": "b", "text": text}));
            let msg = fold(&[text_start("b"), text_delta("b", "all of it"), end]);
            assert_eq!(msg.text("").as_deref(), Some(expected));
        }
    }

    #[test]
    fn extra_becomes_fields_of_the_block_but_never_its_own() {
        let extra =
            json!({"signature": "s", "type": "x", "id": "x", "thinking": "x", "finished_at": "x"});
        let end = event("THINKING_BLOCK_END", json!({"block_id": "b", "extra": extra}));
        let msg = fold(&[event("THINKING_BLOCK_START", json!({"block_id": "b"})), end]);
        let expected = json!({
            "type": "thinking", "thinking": "", "id": "b", "created_at": "t", "finished_at": "t", "signature": "s",
        });
        assert_eq!(blocks(&msg), json!([expected]));
    }

    #[test]
    fn fields_that_an_event_has_beyond_what_we_know_never_enter_the_message() {
        let delta =
            event("TEXT_BLOCK_DELTA", json!({"block_id": "b", "delta": "x", "logprobs": [1]}));
        let msg = fold(&[text_start("b"), delta]);
        assert!(!msg.to_json().contains("logprobs"));
    }

    #[test]
    fn discarded_blocks_are_removed_and_their_ids_are_free_again() {
        let end = event("MODEL_CALL_END", json!({"discard": ["b", "c", "never there"]}));
        let mut events = vec![text_start("a"), text_start("b"), text_delta("b", "lost")];
        events.extend(call("c"));
        events.extend([end, text_start("b"), text_delta("b", "kept"), text_delta("a", "first")]);
        let msg = fold(&events);
        assert_eq!(msg.text("|").as_deref(), Some("first|kept"));
        assert_eq!(msg.content().len(), 2);
    }

    #[test]
    fn blocks_are_found_after_a_discard_however_many_there_are() {
        let mut events: Vec<Event<'static>> = (0..20).map(|n| text_start(&n.to_string())).collect();
        events.push(text_delta("19", "x"));
        events.push(event("MODEL_CALL_END", json!({"discard": ["3", "11"]})));
        events.extend(
            (0..20)
                .filter(|n| ![3, 11].contains(n))
                .map(|n| text_delta(&n.to_string(), &format!("{n} "))),
        );
        events.push(text_start("3"));
        events.push(text_delta("3", "again"));
        let msg = fold(&events);
        assert_eq!(msg.text("").unwrap(), "0 1 2 4 5 6 7 8 9 10 12 13 14 15 16 17 18 x19 again");
        assert_eq!(refused_kind(&mut msg.clone(), &text_delta("11", "x")), ErrorKind::UnknownBlock);
    }

    #[test]
    fn a_hint_keeps_what_is_inside_its_blocks() {
        let parts = json!([{"type": "text", "text": "done", "id": "p", "x_new": [1]}, {"type": "x_kind", "y": 2}]);
        let hint = event("HINT_BLOCK", json!({"block_id": "h", "source": "team", "hint": parts}));
        let msg = fold(std::slice::from_ref(&hint));
        assert_eq!(
            blocks(&msg),
            json!([{
                "type": "hint", "id": "h", "source": "team", "created_at": "t", "finished_at": "t",
                "hint": [{"type": "text", "text": "done", "id": "p", "finished_at": null, "x_new": [1]}, {"type": "x_kind", "y": 2}],
            }])
        );
        assert_eq!(refused_kind(&mut msg.clone(), &hint), ErrorKind::DuplicateBlock);
    }

    #[test]
    fn a_block_that_no_event_can_build_is_appended_whole() {
        let block = json!({"type": "server_tool_use", "id": "s1", "deep": {"er": [1.50]}});
        let msg = fold(&[event("BLOCK", json!({"block": block}))]);
        assert_eq!(blocks(&msg), json!([block]));
        let again = event("BLOCK", json!({"block": block}));
        assert_eq!(refused_kind(&mut msg.clone(), &again), ErrorKind::DuplicateBlock);
        let without_id = event("BLOCK", json!({"block": {"type": "search_result"}}));
        assert_eq!(fold(&[without_id.clone(), without_id]).content().len(), 2);
    }

    #[test]
    fn the_last_of_several_blocks_with_one_id_counts_also_after_a_stop_and_in_a_table() {
        for others in [0, 20] {
            let mut blocks = vec![json!({"type": "text", "text": "", "id": "a"}); 3];
            blocks.extend(
                (0..others).map(|n| json!({"type": "text", "text": "", "id": n.to_string()})),
            );
            let stored = json!({"role": "assistant", "id": "r", "content": blocks}).to_string();
            let mut msg = Msg::from_json(&stored).unwrap();
            for _ in 0..2 {
                msg.append_event(&text_delta("a", "x")).unwrap();
                msg.append_event(&text_start(&format!("new {}", msg.content().len()))).unwrap();
                msg = Msg::from_json(&msg.to_json()).unwrap().with_cursor(msg.cursor());
            }
            let texts: Vec<&str> = msg
                .blocks::<turnwire_core::TextBlock>()
                .take(3)
                .map(|it| it.text.as_str())
                .collect();
            assert_eq!(texts, ["", "", "xx"]);
        }
    }
}

mod data {
    use super::*;

    fn start() -> Event<'static> {
        event("DATA_BLOCK_START", json!({"block_id": "d", "media_type": "image/png"}))
    }

    fn delta(data: &str) -> Event<'static> {
        event("DATA_BLOCK_DELTA", json!({"block_id": "d", "media_type": "image/png", "data": data}))
    }

    fn end() -> Event<'static> {
        event("DATA_BLOCK_END", json!({"block_id": "d"}))
    }

    fn decoded(msg: &Msg) -> Vec<u8> {
        msg.first::<turnwire_core::DataBlock>().unwrap().decoded().unwrap().unwrap()
    }

    #[test]
    fn pieces_may_be_cut_anywhere() {
        for pieces in
            [&["aGVs", "bG8="][..], &["a", "GVsb", "G8"], &["aGVsbG8="], &["aGVsbA==", "bw=="]]
        {
            let mut events = vec![start()];
            events.extend(pieces.iter().map(|piece| delta(piece)));
            events.push(end());
            let msg = fold(&events);
            assert_eq!(decoded(&msg), b"hello", "{pieces:?}");
            assert!(msg.to_json().contains(r#""data":"aGVsbG8=""#));
        }
    }

    #[test]
    fn a_rest_of_one_character_is_bad_base64_at_the_end_of_the_block_and_of_the_reply() {
        let mut msg = fold(&[start(), delta("aGVsb")]);
        assert_eq!(decoded(&msg), b"hel", "what is certain can be read before the end");
        let reply_end = event("REPLY_END", json!({}));
        assert_eq!(refused_kind(&mut msg, &end()), ErrorKind::BadBase64);
        assert_eq!(refused_kind(&mut msg, &reply_end), ErrorKind::BadBase64);
        let (outcome, problem) = msg.append_event_tolerant(&end());
        assert_eq!((outcome, problem.unwrap().kind()), (Outcome::Applied, ErrorKind::BadBase64));
        assert_eq!(decoded(&msg), b"hel");
    }

    #[test]
    fn invalid_base64_is_refused_without_a_change() {
        let mut msg = fold(&[start(), delta("aGVs")]);
        for bad in ["!", "=", "a=b=", "ü"] {
            assert_eq!(refused_kind(&mut msg, &delta(bad)), ErrorKind::BadBase64, "{bad}");
        }
    }

    #[test]
    fn data_that_comes_late_has_to_be_whole() {
        let mut msg = fold(&[start(), delta("aGk="), end()]);
        let (outcome, problem) = msg.append_event_tolerant(&delta("aGVsb"));
        assert_eq!((outcome, problem.unwrap().kind()), (Outcome::Skipped, ErrorKind::BadBase64));
        assert_eq!(decoded(&msg), b"hi");
        let part = |data: &str| {
            event(
                "TOOL_RESULT_DATA_DELTA",
                json!({
                    "tool_call_id": "c", "block_id": "p", "media_type": "image/png", "data": data,
                }),
            )
        };
        let mut msg = fold(&[result_start("c"), result_end("c")]);
        for (late, outcome) in
            [("a", Outcome::Skipped), ("aG", Outcome::Applied), ("aGk=", Outcome::Applied)]
        {
            assert_eq!(msg.append_event_tolerant(&part(late)).0, outcome, "{late}");
        }
        assert_eq!(blocks(&msg)[0]["output"][0]["source"]["data"], "aGhp");
    }

    #[test]
    fn a_url_without_a_media_type_keeps_the_starts() {
        let url =
            event("DATA_BLOCK_DELTA", json!({"block_id": "d", "url": "https://example.com/"}));
        let msg = fold(&[start(), url]);
        assert_eq!(blocks(&msg)[0]["source"]["media_type"], "image/png");
    }

    #[test]
    fn extra_never_sets_what_a_data_block_has_by_itself() {
        let extra = json!({"source": 1, "name": 1, "created_at": 1, "detail": "high"});
        let end = event("DATA_BLOCK_END", json!({"block_id": "d", "extra": extra}));
        let block = &blocks(&fold(&[start(), end]))[0];
        assert_eq!((&block["name"], &block["detail"]), (&json!(null), &json!("high")));
        assert_eq!(block["source"]["type"], "base64");
    }

    #[test]
    fn data_that_comes_late_is_joined_and_closed() {
        let mut msg = fold(&[start(), delta("aGk="), end()]);
        for late in ["aG", "aGk="] {
            let (outcome, problem) = msg.append_event_tolerant(&delta(late));
            assert_eq!(
                (outcome, problem.unwrap().kind()),
                (Outcome::Applied, ErrorKind::AlreadyEnded)
            );
        }
        assert_eq!(decoded(&msg), b"hihhi");
        assert_eq!(blocks(&msg)[0]["source"]["data"], "aGloaGk=");
    }

    #[test]
    fn a_url_is_the_whole_content_and_takes_no_bytes() {
        let url = event(
            "DATA_BLOCK_DELTA",
            json!({"block_id": "d", "media_type": "image/jpeg", "url": "https://example.com/"}),
        );
        let mut msg = fold(&[start(), delta("aGk="), url]);
        assert_eq!(
            blocks(&msg)[0]["source"],
            json!({"type": "url", "url": "https://example.com/", "media_type": "image/jpeg"})
        );
        assert_eq!(refused_kind(&mut msg, &delta("aGk=")), ErrorKind::MixedSource);
        assert_eq!(msg.append_event(&delta("")).unwrap(), Outcome::Applied);
    }

    #[test]
    fn a_reply_that_ends_closes_the_data_that_is_open() {
        let msg = fold(&[start(), delta("aGVsbG8"), event("REPLY_END", json!({}))]);
        assert_eq!(decoded(&msg), b"hello");
        assert!(msg.to_json().contains(r#""data":"aGVsbG8=""#));
    }
}

mod tools {
    use super::*;

    fn with(
        mut events: Vec<Event<'static>>,
        more: impl IntoIterator<Item = Event<'static>>,
    ) -> Msg {
        events.extend(more);
        fold(&events)
    }

    #[test]
    fn a_result_ends_its_call() {
        let text = event("TOOL_RESULT_TEXT_DELTA", json!({"tool_call_id": "c", "delta": "sun"}));
        let end = event(
            "TOOL_RESULT_END",
            json!({"tool_call_id": "c", "state": "success", "metadata": {"k": 1}}),
        );
        let msg = with(call("c"), [result_start("c"), text.clone(), text, end]);
        assert_eq!(
            blocks(&msg)[1],
            json!({
                "type": "tool_result", "id": "c", "name": "f", "state": "success", "metadata": {"k": 1},
                "output": [{"type": "text", "text": "sunsun", "id": "c-0", "created_at": "t", "finished_at": null}],
                "created_at": "t", "finished_at": "t",
            })
        );
        assert_eq!(call_and_result_state(&msg, "c").0, "finished");
        let (call, result) = msg.tool_calls().next().unwrap();
        assert_eq!(call.id, result.unwrap().id);
    }

    #[test]
    fn data_of_one_block_id_is_one_part_and_later_text_a_new_one() {
        let data = |id: &str, data: &str| {
            event(
                "TOOL_RESULT_DATA_DELTA",
                json!({
                    "tool_call_id": "c", "block_id": id, "media_type": "image/png", "data": data,
                }),
            )
        };
        let text = event("TOOL_RESULT_TEXT_DELTA", json!({"tool_call_id": "c", "delta": "x"}));
        let msg = with(
            call("c"),
            [
                result_start("c"),
                text.clone(),
                data("d", "aG"),
                text,
                data("d", "k="),
                result_end("c"),
            ],
        );
        let output = &blocks(&msg)[1]["output"];
        assert_eq!(output[0]["id"], "c-0");
        assert_eq!(output[1]["source"]["data"], "aGk=");
        assert_eq!(output[2]["id"], "c-2");
        assert_eq!(output.as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_reply_that_ends_closes_the_data_of_an_open_result() {
        let data = event(
            "TOOL_RESULT_DATA_DELTA",
            json!({
                "tool_call_id": "c", "block_id": "p", "media_type": "image/png", "data": "aGVsbG8",
            }),
        );
        let msg = with(call("c"), [result_start("c"), data, event("REPLY_END", json!({}))]);
        assert_eq!(blocks(&msg)[1]["output"][0]["source"]["data"], "aGVsbG8=");
    }

    #[test]
    fn one_block_id_is_one_part_however_many_there_are() {
        let data = |n: usize| {
            event(
                "TOOL_RESULT_DATA_DELTA",
                json!({
                    "tool_call_id": "c", "block_id": format!("p{n}"), "media_type": "image/png", "data": "aGk=",
                }),
            )
        };
        let mut events = vec![result_start("c")];
        events.extend((0..40).map(|n| data(n % 20)));
        let msg = fold(&events);
        let output = blocks(&msg)[0]["output"].clone();
        assert_eq!(output.as_array().unwrap().len(), 20);
        assert!(output.as_array().unwrap().iter().all(|part| part["source"]["data"] == "aGloaQ=="));
    }

    #[test]
    fn extra_never_sets_what_a_call_has_by_itself() {
        let extra = json!({"name": "g", "input": "x", "state": "finished", "suggested_rules": [1], "index": 0});
        let mut events = call("c");
        events.pop();
        events.push(event("TOOL_CALL_END", json!({"tool_call_id": "c", "extra": extra})));
        assert_eq!(
            blocks(&fold(&events)),
            json!([{
                "type": "tool_call", "id": "c", "name": "f", "input": "{}", "state": "pending",
                "suggested_rules": [], "created_at": "t", "finished_at": "t", "index": 0,
            }])
        );
    }

    #[test]
    fn a_results_end_without_a_start_is_skipped_and_does_not_end_the_call() {
        let mut msg = fold(&call("c"));
        assert_eq!(refused_kind(&mut msg, &result_end("c")), ErrorKind::UnknownBlock);
        assert_eq!(call_and_result_state(&msg, "c").0, "pending");
    }

    #[test]
    fn an_approval_may_edit_the_input_and_a_denial_may_not() {
        let edited = with(call("c"), [require_confirm("c"), confirm("c", true, "{\"n\":2}")]);
        assert_eq!(call_and_result_state(&edited, "c"), ("allowed".into(), "{\"n\":2}".into()));
        let plain = with(call("c"), [require_confirm("c"), confirm("c", true, "")]);
        assert_eq!(call_and_result_state(&plain, "c"), ("allowed".into(), "{}".into()));
        let denied = with(call("c"), [require_confirm("c"), confirm("c", false, "{\"n\":2}")]);
        assert_eq!(call_and_result_state(&denied, "c"), ("finished".into(), "{}".into()));
        assert!(!edited.to_json().contains("x_new"), "an answer gives its input and nothing more");
    }

    #[test]
    fn an_answer_counts_only_while_the_call_asks() {
        let msg = with(call("c"), [confirm("c", true, "{\"n\":2}")]);
        assert_eq!(call_and_result_state(&msg, "c"), ("pending".into(), "{}".into()));
        let twice = with(
            call("c"),
            [require_confirm("c"), confirm("c", false, ""), confirm("c", true, "{\"n\":2}")],
        );
        assert_eq!(call_and_result_state(&twice, "c"), ("finished".into(), "{}".into()));
    }

    #[test]
    fn late_confirm_does_not_reopen_a_finished_call() {
        let outside = event(
            "REQUIRE_EXTERNAL_EXECUTION",
            json!({"tool_calls": [{"type": "tool_call", "id": "c", "name": "f", "input": ""}]}),
        );
        let msg =
            with(call("c"), [result_start("c"), result_end("c"), require_confirm("c"), outside]);
        assert_eq!(call_and_result_state(&msg, "c").0, "finished");
        assert_eq!(blocks(&msg)[0]["suggested_rules"], json!([]));
    }

    #[test]
    fn an_event_that_lists_several_calls_applies_those_that_fit() {
        let listed: Vec<Value> = ["a", "elsewhere", "b"]
            .map(|id| json!({"type": "tool_call", "id": id, "name": "f", "input": ""}))
            .into();
        let mut events = call("a");
        events.extend(call("b"));
        let msg = with(events, [event("REQUIRE_USER_CONFIRM", json!({"tool_calls": listed}))]);
        assert_eq!(
            (
                call_and_result_state(&msg, "a").0.as_str(),
                call_and_result_state(&msg, "b").0.as_str()
            ),
            ("asking", "asking")
        );
        assert_eq!(
            refused_kind(&mut msg.clone(), &require_confirm("nowhere")),
            ErrorKind::UnknownBlock
        );
    }

    fn external(id: &str) -> Event<'static> {
        let result = json!({"type": "tool_result", "id": id, "name": "f", "output": "found", "state": "success", "x_new": 1});
        event("EXTERNAL_EXECUTION_RESULT", json!({"execution_results": [result]}))
    }

    #[test]
    fn an_external_result_is_appended_where_there_is_none_and_ends_the_call() {
        let msg = with(call("c"), [external("c")]);
        assert_eq!(
            blocks(&msg)[1],
            json!({
                "type": "tool_result", "id": "c", "name": "f", "output": "found", "state": "success",
                "metadata": {}, "created_at": "t", "finished_at": "t", "x_new": 1,
            })
        );
        assert_eq!(call_and_result_state(&msg, "c").0, "finished");
    }

    #[test]
    fn an_external_result_leaves_a_running_result_to_its_deltas() {
        let text = event("TOOL_RESULT_TEXT_DELTA", json!({"tool_call_id": "c", "delta": "found"}));
        let msg = with(call("c"), [result_start("c"), external("c"), text, result_end("c")]);
        assert_eq!(blocks(&msg)[1]["output"][0]["text"], "found");
        assert_eq!(msg.content().len(), 2);
    }

    #[test]
    fn a_late_external_result_changes_nothing() {
        let interrupted =
            event("TOOL_RESULT_END", json!({"tool_call_id": "c", "state": "interrupted"}));
        let before = with(call("c"), [result_start("c"), interrupted.clone()]);
        let after = with(call("c"), [result_start("c"), interrupted, external("c")]);
        assert_eq!(before, after);
    }

    #[test]
    fn text_for_a_result_that_came_as_a_string_makes_a_list_of_it() {
        let running = json!({"type": "tool_result", "id": "c", "name": "f", "output": "so far"});
        let text =
            event("TOOL_RESULT_TEXT_DELTA", json!({"tool_call_id": "c", "delta": ", and more"}));
        let msg = fold(&[event("BLOCK", json!({"block": running})), text]);
        assert_eq!(blocks(&msg)[0]["output"][0]["text"], "so far, and more");
        assert_eq!(blocks(&msg)[0]["output"][0]["id"], "c-0");
    }
}

mod streams {
    use super::*;

    fn push(folder: &mut Folder, line: &str) -> Result<Outcome, ErrorKind> {
        folder.push(&Event::from_json(line).unwrap()).map_err(|error| error.kind())
    }

    const HI: &str = r#"{"type":"MESSAGE","id":"e1","message":{"id":"u1","name":"alice","role":"user","content":"hi"}}"#;

    #[test]
    fn whole_messages_keep_their_position_and_a_repeat_changes_nothing() {
        let mut folder = Folder::default();
        assert_eq!(push(&mut folder, HI), Ok(Outcome::Applied));
        assert_eq!(
            push(&mut folder, r#"{"type":"REPLY_START","reply_id":"r","name":"friday"}"#),
            Ok(Outcome::Applied)
        );
        assert_eq!(push(&mut folder, HI), Ok(Outcome::Repeated));
        for _ in 0..2 {
            let another = HI.replace("e1", "e2");
            assert_eq!(push(&mut folder, &another), Err(ErrorKind::DuplicateMessage));
        }
        let names: Vec<&str> = folder.messages().map(Msg::name).collect();
        assert_eq!(names, ["alice", "friday"]);
    }

    #[test]
    fn messages_without_any_id_do_not_get_in_each_others_way() {
        let mut folder = Folder::default();
        let hi = r#"{"type":"MESSAGE","message":{"role":"user","content":"hi"}}"#;
        let logged = r#"{"type":"MESSAGE","seq":7,"message":{"role":"user","content":"hi"}}"#;
        for (line, outcome) in [
            (hi, Outcome::Applied),
            (hi, Outcome::Applied),
            (logged, Outcome::Applied),
            (logged, Outcome::Repeated),
        ] {
            assert_eq!(push(&mut folder, line), Ok(outcome));
        }
        assert_eq!(folder.messages().count(), 3);
    }

    #[test]
    fn a_superseded_message_leaves_the_history_and_stays_in_the_log() {
        let mut folder = Folder::default();
        push(&mut folder, HI).unwrap();
        push(&mut folder, r#"{"type":"SUPERSEDE","message_ids":["u1"]}"#).unwrap();
        assert_eq!((folder.history().count(), folder.messages().count()), (0, 1));
    }

    #[test]
    fn a_reset_empties_everything() {
        let mut folder = Folder::default();
        push(&mut folder, HI).unwrap();
        let reset = r#"{"type":"RESET","id":"x","epoch":"e","reason":"trimmed"}"#;
        assert_eq!(push(&mut folder, reset), Ok(Outcome::Applied));
        assert_eq!(folder.messages().count(), 0);
        assert_eq!(push(&mut folder, HI), Ok(Outcome::Applied));
        assert_eq!(push(&mut folder, reset), Ok(Outcome::Repeated));
        assert_eq!(folder.messages().count(), 1);
    }

    #[test]
    fn a_whole_message_takes_no_events_also_after_a_stop() {
        let mut folder = Folder::default();
        push(&mut folder, HI).unwrap();
        let start = r#"{"type":"REPLY_START","id":"s","reply_id":"u1","name":"friday"}"#;
        let stored: Folder = folder
            .messages()
            .map(|msg| {
                let cursor = serde_json::to_string(&msg.cursor()).unwrap();
                Msg::from_json(&msg.to_json())
                    .unwrap()
                    .with_cursor(serde_json::from_str(&cursor).unwrap())
            })
            .collect();
        for mut folder in [folder, stored] {
            assert_eq!(push(&mut folder, start), Err(ErrorKind::DuplicateMessage));
            assert_eq!(push(&mut folder, HI), Ok(Outcome::Repeated));
            assert_eq!(folder.get("u1").unwrap().role(), Role::User);
        }
    }

    #[test]
    fn a_reply_begins_with_the_first_event_that_fits() {
        let mut folder = Folder::default();
        let delta = r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"x"}"#;
        assert_eq!(push(&mut folder, delta), Err(ErrorKind::UnknownBlock));
        assert_eq!(folder.messages().count(), 0);
        let (outcome, problem) = folder.push_tolerant(&Event::from_json(delta).unwrap());
        assert_eq!(
            (outcome, problem.is_some(), folder.messages().count()),
            (Outcome::Skipped, true, 1)
        );
    }

    #[test]
    fn customs_belong_to_no_message() {
        let mut folder = Folder::default();
        for line in [
            r#"{"type":"CUSTOM","name":"x"}"#,
            r#"{"type":"CUSTOM","name":"x","reply_id":"r","value":{"a":1}}"#,
        ] {
            assert_eq!(push(&mut folder, line), Ok(Outcome::Ignored));
        }
        assert_eq!(folder.messages().count(), 0);
    }
}

#[test]
fn repeats_are_known_as_the_fold_knows_them() {
    let mut repeats = turnwire_core::RepeatDetector::default();
    let mut is_repeat = |line: &str| {
        repeats.is_repeat(&Event::from_json(line).unwrap()).map_err(|error| error.kind())
    };
    let message = r#"{"type":"MESSAGE","seq":1,"message":{"id":"u","name":"a","role":"user","content":"hi"}}"#;
    // The stream may continue with another session, whose seqs start again.
    for (line, expected) in [
        (r#"{"type":"REPLY_START","reply_id":"a","seq":5}"#, Ok(false)),
        (r#"{"type":"REPLY_START","reply_id":"a","seq":5}"#, Ok(true)),
        (r#"{"type":"REPLY_START","reply_id":"b","seq":2}"#, Ok(false)),
        (r#"{"type":"CUSTOM","id":"c1","name":"n","seq":9}"#, Ok(false)),
        (r#"{"type":"CUSTOM","id":"c2","name":"n","seq":3}"#, Ok(false)),
        (r#"{"type":"CUSTOM","id":"c1","name":"n","seq":9}"#, Ok(true)),
        (r#"{"type":"CUSTOM","name":"n"}"#, Ok(false)),
        (r#"{"type":"CUSTOM","name":"n"}"#, Ok(false)),
        (message, Ok(false)),
        (message, Ok(true)),
        (
            r#"{"type":"USER_INTERRUPT","reply_id":"a","seq":7,"seq_from":4}"#,
            Err(ErrorKind::Overlap),
        ),
        (r#"{"type":"USER_INTERRUPT","reply_id":"a","seq":6}"#, Ok(false)),
        (r#"{"type":"RESET","id":"x"}"#, Ok(false)),
        (message, Ok(false)),
        (r#"{"type":"RESET","id":"x"}"#, Ok(true)),
        (message, Ok(true)),
    ] {
        assert_eq!(is_repeat(line), expected, "{line}");
    }
}
