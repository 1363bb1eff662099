//! Decoding chat streams: one peculiarity of real providers per test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use turnwire_core::{
    ContentBlock, DataBlock, ErrorKind, ErrorType, Event, EventKind, FinishedReason, Folder, Msg,
    TextBlock, ThinkingBlock, ToolCall,
};
use turnwire_testkit::{Rng, check_property, pick};
use turnwire_wires::{Decoded, DecoderOptions, StreamScope, Wire};

fn body(frames: &[Value]) -> String {
    frames
        .iter()
        .flat_map(|frame| ["data: ".to_owned(), frame.to_string(), "\n\n".to_owned()])
        .collect()
}

fn decode(decoding: &DecoderOptions, body: &str) -> Vec<Event<'static>> {
    let wire = Wire::named("openai-chat").unwrap();
    wire.decoder(decoding).unwrap().decode_all(body.as_bytes()).unwrap()
}

fn fold_body(body: &str) -> Msg {
    let mut folder = Folder::default();
    for event in decode(&DecoderOptions::default(), body) {
        folder.push(&event).unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
    }
    let mut messages = folder.into_messages();
    let msg = messages.next().unwrap();
    assert!(messages.next().is_none());
    msg
}

/// The message of a complete stream.
fn fold(frames: &[Value]) -> Msg {
    fold_body(&(body(frames) + "data: [DONE]\n\n"))
}

#[expect(clippy::needless_pass_by_value, reason = "it is called with what is made there")]
fn delta(delta: Value) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// The texts of the blocks, in order.
fn block_texts(msg: &Msg) -> Vec<String> {
    let say = |block: &ContentBlock| match block {
        ContentBlock::Text(block) => format!("text {}", block.text),
        ContentBlock::Thinking(block) => format!("thinking {}", block.thinking),
        ContentBlock::ToolCall(call) => format!("call {} {} {}", call.id, call.name, call.input),
        other => format!("{} {}", other.block_type().as_str(), other.id()),
    };
    msg.content().iter().map(say).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "it is called with what is made there")]
fn call(piece: Value) -> Value {
    delta(json!({"tool_calls": [piece]}))
}

#[test]
fn the_same_reasoning_in_two_fields_counts_once() {
    let msg = fold(&[
        delta(json!({"reasoning": "Hm", "reasoning_content": "Hm"})),
        delta(json!({"reasoning": ".", "reasoning_content": null, "content": ""})),
        delta(json!({"content": "Yes"})),
        finish("stop"),
    ]);
    assert_eq!(block_texts(&msg), ["thinking Hm.", "text Yes"]);
}

#[test]
fn each_entry_of_reasoning_details_is_a_block_that_keeps_what_has_to_be_sent_back() {
    let details = |list: Value| delta(json!({"reasoning": null, "reasoning_details": list}));
    let msg = fold(&[
        details(json!([{"type": "reasoning.text", "text": "Let ", "format": "f", "index": 0}])),
        details(json!([{"type": "reasoning.text", "text": "me", "index": 0, "signature": null}])),
        details(json!([{"type": "reasoning.text", "text": "", "index": 0, "signature": "sig"}])),
        details(json!([{"type": "reasoning.summary", "summary": "short", "index": 1}])),
        details(json!([{"type": "reasoning.encrypted", "data": "x9", "id": "e", "index": 2}])),
        delta(json!({"content": "Done", "reasoning_details": []})),
        finish("stop"),
    ]);
    assert_eq!(block_texts(&msg), ["thinking Let me", "thinking short", "thinking ", "text Done"]);
    let kept: Vec<Value> = msg
        .blocks::<ThinkingBlock>()
        .map(|block| block.rest.get("reasoning_details").unwrap().unwrap())
        .collect();
    assert_eq!(
        kept,
        [
            json!([{"type": "reasoning.text", "format": "f", "index": 0, "signature": "sig"}]),
            json!([{"type": "reasoning.summary", "index": 1}]),
            json!([{"type": "reasoning.encrypted", "data": "x9", "id": "e", "index": 2}]),
        ]
    );
}

#[test]
fn reasoning_that_is_in_the_details_too_counts_once() {
    let entry = json!([{"type": "reasoning.text", "text": "Hm", "index": 0}]);
    let msg = fold(&[delta(json!({"reasoning": "Hm", "reasoning_details": entry}))]);
    assert_eq!(block_texts(&msg), ["thinking Hm"]);
}

#[test]
fn think_tags_cut_across_chunks_are_thinking() {
    let pieces = ["\n<th", "ink>pl", "an</", "think>", "a <", "b"];
    let msg = fold(&pieces.map(|piece| delta(json!({"content": piece}))));
    assert_eq!(block_texts(&msg), ["thinking plan", "text a <b"]);
}

#[test]
fn text_that_may_be_a_tag_is_released_before_a_call_begins_and_at_the_end() {
    let msg = fold(&[
        delta(json!({"content": "is a <"})),
        call(json!({"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}})),
        delta(json!({"content": "or <thi"})),
    ]);
    assert_eq!(block_texts(&msg), ["text is a <", "call 1 f {}", "text or <thi"]);
}

#[test]
fn a_tag_that_never_closes_makes_the_rest_thinking() {
    let msg = fold_body(&body(&[delta(json!({"content": "<think>on and on</thi"}))]));
    assert_eq!(block_texts(&msg), ["thinking on and on</thi"]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Truncated));
}

#[test]
fn content_may_be_a_list_of_parts_and_unknown_ones_are_kept() {
    let reference = json!({"type": "reference", "reference_ids": [1, 2]});
    let msg = fold(&[
        delta(
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "2"}]}]}),
        ),
        delta(json!({"content": [{"type": "text", "text": "As "}, "said"]})),
        delta(json!({"content": [reference, {"type": "text", "text": "."}]})),
    ]);
    assert_eq!(block_texts(&msg), ["thinking 2", "text As said", "other ", "text ."]);
    let ContentBlock::Other(item) = msg.content().get(2).unwrap() else { panic!() };
    assert_eq!(
        item.parse_as::<Value>().unwrap(),
        json!({"type": "reference", "reference_ids": [1, 2], "from_wire": "openai-chat"})
    );
}

#[test]
fn a_refusal_in_its_own_field_is_text_and_the_reason() {
    let msg = fold(&[delta(json!({"content": null, "refusal": "I can't."})), finish("stop")]);
    assert_eq!(block_texts(&msg), ["text I can't."]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Refusal));
    let msg = fold(&[delta(json!({"refusal": "No."}))]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Refusal));
}

#[test]
fn ids_and_names_that_are_repeated_or_empty_in_later_fragments_change_nothing() {
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let msg = fold(&[
        call(json!({"index": 0, "id": "a", "function": function("f", "")})),
        call(json!({"index": 0, "id": "a", "function": function("f", "{\"x\"")})),
        call(json!({"index": 0, "id": "", "function": function("", ":1")})),
        call(json!({"index": 0, "id": null, "function": {"name": null, "arguments": "}"}})),
        call(json!({"index": 0, "function": null})),
    ]);
    assert_eq!(block_texts(&msg), [r#"call a f {"x":1}"#]);
}

#[test]
fn parallel_calls_grow_at_the_same_time() {
    let piece = |index: u8, arguments: &str| {
        call(json!({"index": index, "function": {"arguments": arguments}}))
    };
    let msg = fold(&[
        call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}})),
        call(json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}})),
        piece(0, "[1"),
        piece(1, "[2"),
        piece(0, "]"),
        piece(1, "]"),
        finish("tool_calls"),
    ]);
    assert_eq!(block_texts(&msg), ["call a f [1]", "call b g [2]"]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::ToolCalls));
}

#[test]
fn calls_without_an_index_are_distinguished_by_their_ids() {
    let msg = fold(&[
        delta(json!({"tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": "[1"}},
            {"id": "b", "function": {"name": "f", "arguments": "[2]"}},
        ]})),
        call(json!({"id": "a", "function": {"arguments": ",3]"}})),
        call(json!({"id": "c", "function": {"name": "h", "arguments": "["}})),
        call(json!({"function": {"arguments": "4]"}})),
    ]);
    assert_eq!(block_texts(&msg), ["call a f [1,3]", "call b f [2]", "call c h [4]"]);
}

#[test]
fn calls_that_all_have_the_index_0_are_distinguished_by_their_ids() {
    let whole =
        |id: &str| json!({"index": 0, "id": id, "function": {"name": "f", "arguments": "{}"}});
    let msg = fold(&[call(whole("a")), call(whole("b"))]);
    assert_eq!(block_texts(&msg), ["call a f {}", "call b f {}"]);
}

#[test]
fn two_calls_of_one_id_get_two_ids() {
    let whole = |index: u8| json!({"index": index, "id": "a", "function": {"name": "f"}});
    let msg = fold(&[call(whole(0)), call(whole(1))]);
    assert_eq!(block_texts(&msg), ["call a f ", "call a-2 f "]);
}

#[test]
fn a_call_without_an_id_gets_one_and_a_name_may_come_late() {
    let msg = fold(&[
        call(json!({"index": 0, "function": {"name": "f", "arguments": "{}"}})),
        call(json!({"index": 1, "id": "b"})),
        call(json!({"index": 1, "function": {"name": "g"}})),
        call(json!({"index": 1, "function": {"arguments": "{}"}})),
        call(json!({"index": 2, "id": "c"})),
    ]);
    assert_eq!(block_texts(&msg), ["call c-0 f {}", "call b g {}", "call c  "]);
}

#[test]
fn arguments_may_be_the_json_itself() {
    let function = json!({"name": "f", "arguments": {"city": "Paris", "n": [1]}});
    let msg = fold(&[call(json!({"index": 0, "id": "a", "function": function}))]);
    assert_eq!(block_texts(&msg), [r#"call a f {"city":"Paris","n":[1]}"#]);
}

#[test]
fn the_older_function_call_is_a_call() {
    let msg = fold(&[
        delta(json!({"function_call": {"name": "f", "arguments": "{\"a\""}})),
        delta(json!({"function_call": {"arguments": ":1}"}})),
        finish("function_call"),
    ]);
    assert_eq!(block_texts(&msg), [r#"call c-0 f {"a":1}"#]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::ToolCalls));
}

#[test]
fn text_after_a_call_is_a_new_block_and_the_call_continues() {
    let msg = fold(&[
        delta(json!({"content": "one"})),
        call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "["}})),
        delta(json!({"content": "two"})),
        call(json!({"index": 0, "function": {"arguments": "]"}})),
        delta(json!({"content": "!"})),
    ]);
    assert_eq!(block_texts(&msg), ["text one", "call a f []", "text two!"]);
}

#[test]
fn arguments_that_the_limit_cut_off_are_kept_as_they_are() {
    let function = json!({"name": "f", "arguments": "{\"city\": \"Par"});
    let msg =
        fold(&[call(json!({"index": 0, "id": "a", "function": function})), finish("tool_calls")]);
    assert_eq!(block_texts(&msg), ["call a f {\"city\": \"Par"]);
}

#[test]
fn fields_that_must_be_sent_back_stay_with_their_call() {
    let google = json!({"google": {"thought_signature": "s"}});
    let msg = fold(&[
        call(json!({"index": 0, "id": "a", "function": {"name": "f"}, "extra_content": google})),
        call(json!({"index": 1, "id": "b", "custom": {"name": "sh", "input": "ls -"}})),
        call(json!({"index": 1, "custom": {"input": "l"}})),
    ]);
    assert_eq!(block_texts(&msg), ["call a f ", "call b sh ls -l"]);
    let rest: Vec<Value> =
        msg.blocks::<ToolCall>().map(|call| call.rest.parse_as().unwrap()).collect();
    assert_eq!(rest, [json!({"extra_content": google}), json!({"custom": true})]);
}

#[test]
fn a_delta_counts_and_not_the_cumulative_message_beside_it() {
    let chunk = |piece: &str, whole: &str| {
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": piece},
            "message": {"role": "assistant", "content": whole}}]})
    };
    let last =
        json!({"id": "c", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]});
    assert_eq!(
        block_texts(&fold(&[chunk("Hel", "Hel"), chunk("lo", "Hello"), last])),
        ["text Hello"]
    );
}

#[test]
fn a_response_without_streaming_is_read_too() {
    let msg = fold_body(&body(&[json!({
        "id": "c", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Well", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    })]));
    assert_eq!(block_texts(&msg), ["text Well", "call a f {}"]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::ToolCalls));
}

#[test]
fn the_older_completions_have_their_text_in_the_choice() {
    let chunk = |text: &str, reason: Option<&str>| {
        json!({"id": "c", "object": "text_completion",
            "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}]})
    };
    let msg = fold(&[chunk("Hel", None), chunk("lo", None), chunk("", Some("stop"))]);
    assert_eq!(block_texts(&msg), ["text Hello"]);
}

#[test]
fn usage_is_found_wherever_it_is_and_the_last_word_counts() {
    let tokens = |n: u8| json!({"prompt_tokens": n, "completion_tokens": n + 1});
    let none = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
    let hit = json!({"prompt_tokens": 9, "completion_tokens": 10, "prompt_cache_hit_tokens": 4});
    let details = json!({"prompt_tokens": 9, "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2}});
    let text = delta(json!({"content": "x"}));
    let top = |usage: Value| json!({"id": "c", "choices": [], "usage": usage});
    for (frames, expected) in [
        (vec![top(tokens(1)), top(tokens(2)), top(Value::Null), top(none)], (2, 3, 0, 0)),
        (vec![json!({"choices": [], "x_groq": {"usage": tokens(4)}})], (4, 5, 0, 0)),
        (vec![json!({"choices": [{"delta": {}, "usage": tokens(6)}]})], (6, 7, 0, 0)),
        (vec![top(hit.clone())], (9, 10, 4, 0)),
        (vec![top(hit), top(json!({"completion_tokens": 12}))], (9, 12, 4, 0)),
        (vec![top(details)], (9, 10, 5, 2)),
        (vec![top(json!("lots"))], (0, 0, 0, 0)),
        (vec![top(json!({"input_tokens": 1.0, "output_tokens": "many"}))], (1, 0, 0, 0)),
    ] {
        let msg = fold(&[std::slice::from_ref(&text), &*frames].concat());
        let usage = msg.usage().unwrap();
        let found = (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_input_tokens,
            usage.cache_creation_input_tokens,
        );
        assert_eq!(found, expected, "{frames:?}");
    }
}

#[test]
fn an_error_ends_the_call_whatever_its_form() {
    use ErrorType::{Authentication, InvalidRequest, Permission, RateLimit, Unknown, Upstream};
    for (frame, kind, message) in [
        (json!({"error": {"message": "m", "type": "server_error", "code": null}}), Upstream, "m"),
        (json!({"error": {"message": "m", "code": 429}}), RateLimit, "m"),
        (json!({"error": {"message": "m", "code": "502"}}), Upstream, "m"),
        (json!({"error": {"message": "m", "code": "rate_limit_exceeded"}}), RateLimit, "m"),
        (json!({"error": {"message": "m", "type": "insufficient_quota"}}), RateLimit, "m"),
        (json!({"error": {"message": "m", "type": "tokens"}}), RateLimit, "m"),
        (json!({"error": {"message": "m", "code": "invalid_api_key"}}), Authentication, "m"),
        (json!({"error": {"message": "m", "type": "permission_error"}}), Permission, "m"),
        (json!({"error": {"message": "m", "type": "invalid_request_error"}}), InvalidRequest, "m"),
        (
            json!({"error": {"message": "m", "code": "context_length_exceeded"}}),
            InvalidRequest,
            "m",
        ),
        (json!({"error": {"message": "m"}, "choices": []}), Unknown, "m"),
        (json!({"error": "overloaded"}), Upstream, "overloaded"),
        (json!({"error": {"oops": 1}}), Unknown, r#"{"oops":1}"#),
        (json!({"object": "error", "message": "m", "code": 400}), InvalidRequest, "m"),
        (json!({"type": "error", "message": "m", "code": "server_overloaded"}), Upstream, "m"),
        (json!({"code": 429, "message": "m", "choices": null}), RateLimit, "m"),
        (json!({"choices": [{"index": 0, "error": {"message": "m", "code": 500}}]}), Upstream, "m"),
        (
            json!({"choices": [], "x_groq": {"error": "over capacity, try later"}}),
            Unknown,
            "over capacity, try later",
        ),
        (
            json!({"id": "c", "error": {"message": "m", "code": 503},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}),
            Upstream,
            "m",
        ),
    ] {
        let before = [delta(json!({"content": "par"})), finish("stop")];
        let behind = delta(json!({"content": "never"}));
        let msg = fold(&[&before[..], &[frame.clone(), behind]].concat());
        assert_eq!(block_texts(&msg), ["text par"], "{frame}");
        assert_eq!(msg.finished_reason(), Some(&FinishedReason::Error), "{frame}");
        let error = msg.error().unwrap();
        assert_eq!((&error.r#type, &*error.message), (&kind, message), "{frame}");
    }
}

#[test]
fn a_success_code_is_not_an_error() {
    let last = json!({"code": 0, "message": "Success", "usage": {"prompt_tokens": 1}});
    let msg = fold(&[delta(json!({"content": "x"})), finish("stop"), last]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
}

#[test]
fn an_error_may_be_all_that_comes() {
    let events = decode(&DecoderOptions::default(), r#"{"error":{"message":"no","code":401}}"#);
    let types: Vec<&str> = events.iter().map(|event| event.kind.type_name()).collect();
    assert_eq!(types, ["REPLY_START", "MODEL_CALL_START", "MODEL_CALL_END", "REPLY_END"]);
}

#[test]
fn a_stream_without_done_or_finish_reason_is_truncated() {
    let text = delta(json!({"content": "x"}));
    let ends = |body: String| fold_body(&body).finished_reason().unwrap().clone();
    assert_eq!(
        ends(body(std::slice::from_ref(&text)) + "data: [DONE]\n\n"),
        FinishedReason::Completed
    );
    assert_eq!(ends(body(&[text.clone(), finish("stop")])), FinishedReason::Completed);
    assert_eq!(ends(body(&[text])), FinishedReason::Truncated);
    assert_eq!(ends(String::new()), FinishedReason::Truncated);
}

#[test]
fn each_finish_reason_is_mapped_and_kept_as_metadata() {
    use FinishedReason::{Completed, ContentFilter, Error, Length, Refusal, ToolCalls};
    for (word, reason) in [
        ("stop", Completed),
        ("length", Length),
        ("model_length", Length),
        ("max_tokens", Length),
        ("tool_calls", ToolCalls),
        ("content_filter", ContentFilter),
        ("refusal", Refusal),
        ("error", Error),
        ("insufficient_system_resource", Error),
        ("tired", Completed),
    ] {
        let events = decode(&DecoderOptions::default(), &body(&[finish(word)]));
        let end = events.iter().find(|event| matches!(event.kind, EventKind::ModelCallEnd(_)));
        let end = end.unwrap();
        let EventKind::ModelCallEnd(call) = &end.kind else { panic!() };
        assert_eq!(call.finished_reason, reason, "{word}");
        assert_eq!(call.error.is_some(), reason == Error, "{word}");
        let notes: Value = end.metadata.get("openai-chat").unwrap().unwrap();
        assert_eq!(notes, json!({"id": "c", "finish_reason": word}));
    }
}

#[test]
fn a_reason_may_come_twice_and_content_behind_it() {
    let msg = fold(&[
        delta(json!({"content": "a"})),
        finish("stop"),
        delta(json!({"content": "b"})),
        finish("length"),
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": ""}]}),
    ]);
    assert_eq!(block_texts(&msg), ["text ab"]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Length));
}

#[test]
fn only_the_first_of_several_choices_becomes_the_reply() {
    let two = |first: &str, second: &str| {
        json!({"id": "c", "choices": [
            {"index": 1, "delta": {"content": second}, "finish_reason": "length"},
            {"index": 0, "delta": {"content": first}},
        ]})
    };
    let other = json!({"id": "c", "choices": [{"index": 1, "delta": {"content": "z"}}]});
    let msg = fold(&[other, two("a", "x"), two("b", "y"), finish("stop")]);
    assert_eq!(block_texts(&msg), ["text ab"]);
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
}

#[test]
fn the_log_probabilities_of_a_text_stay_with_it() {
    let token =
        |text: &str| json!({"token": text, "logprob": -0.5, "bytes": null, "top_logprobs": []});
    let piece = |text: &str| {
        let logprobs = json!({"content": [token(text)], "refusal": null});
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "logprobs": logprobs}]})
    };
    let wrong = json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "!"}, "logprobs": {"content": 7}}]});
    let msg = fold(&[piece("Hel"), piece("lo"), wrong]);
    let block = msg.first::<TextBlock>().unwrap();
    assert_eq!(block.text, "Hello!");
    let expected = json!({"logprobs": [token("Hel"), token("lo")]});
    assert_eq!(block.rest.parse_as::<Value>().unwrap(), expected);
}

#[test]
fn citations_stay_with_their_text() {
    let cited = |piece: &str| {
        json!({"id": "c", "citations": ["https://a.example"], "search_results": [{"title": "A"}],
            "choices": [{"index": 0, "delta": {"content": piece}}]})
    };
    let note = json!([{"type": "url_citation", "url_citation": {"url": "https://a.example"}}]);
    let msg = fold(&[
        cited("As "),
        cited("A says"),
        delta(json!({"annotations": note})),
        delta(json!({"annotations": note})),
    ]);
    let block = msg.first::<TextBlock>().unwrap();
    assert_eq!(block.text, "As A says");
    assert_eq!(
        block.rest.parse_as::<Value>().unwrap(),
        json!({"annotations": note, "citations": ["https://a.example"],
            "search_results": [{"title": "A"}]})
    );
}

#[test]
fn pictures_and_sound_that_a_model_made_are_data() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}});
    let msg = fold(&[
        delta(json!({"content": "See", "images": [image]})),
        delta(json!({"audio": {"id": "au1", "transcript": "Hi"}})),
        delta(json!({"audio": {"data": "AAE"}})),
        delta(json!({"audio": {"data": "C"}})),
        delta(json!({"audio": {"expires_at": 9}})),
    ]);
    assert_eq!(block_texts(&msg), ["text See", "data c-1", "data au1", "text Hi"]);
    let data: Vec<&DataBlock> = msg.blocks().collect();
    assert_eq!(
        data.iter().map(|block| block.media_type()).collect::<Vec<_>>(),
        [Some("image/png"), Some("audio/*")]
    );
    assert!(data.iter().all(|block| block.decoded().unwrap().unwrap() == [0, 1, 2]));
    assert_eq!(
        data.last().unwrap().rest.parse_as::<Value>().unwrap(),
        json!({"audio_id": "au1", "audio_expires_at": 9})
    );
    let transcript: &TextBlock = msg.blocks().last().unwrap();
    assert_eq!(transcript.rest.parse_as::<Value>().unwrap(), json!({"audio_id": "au1"}));
}

#[test]
fn an_unknown_frame_survives() {
    let first = json!({"choices": [], "id": "", "prompt_filter_results": [{"prompt_index": 0}]});
    let later = json!({"type": "heartbeat"});
    let frames = [first.clone(), delta(json!({"content": "x"})), later.clone(), finish("stop")];
    let events = decode(&DecoderOptions::default(), &body(&frames));
    let customs: Vec<Value> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Custom(custom) => Some(custom.value.0.parse_as().unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(customs, [first, later]);
    assert_eq!(fold(&frames).id(), "c");
}

#[test]
fn an_invalid_frame_is_an_error_and_the_stream_continues() {
    let lines = concat!(
        "{\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n",
        "{\"id\":\"c\",\"choi\n",
        "[1]\n",
        "{\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n",
    );
    let mut decoder =
        Wire::named("openai-chat").unwrap().decoder(&DecoderOptions::default()).unwrap();
    let mut folder = Folder::default();
    let mut problems = Vec::new();
    let mut each = |decoded: Decoded<'_>| match decoded.event {
        Ok(event) => drop(folder.push(&event).unwrap()),
        Err(error) => problems.push((decoded.line, error.kind(), decoded.reply_id)),
    };
    decoder.feed(lines.as_bytes(), &mut each);
    decoder.end(&mut each);
    let reply = Some("c".to_owned());
    assert_eq!(
        problems,
        [(2, ErrorKind::NotJson, reply.clone()), (3, ErrorKind::NotAnEvent, reply)]
    );
    assert_eq!(block_texts(&folder.into_messages().next().unwrap()), ["text ab"]);
}

#[test]
fn fields_of_a_wrong_type_fail_nothing() {
    let msg = fold(&[
        json!({"id": 7, "model": ["m"], "created": "now", "choices": [null, 3, {
            "index": "0", "finish_reason": false, "delta": {
                "content": "x", "reasoning": {"effort": 1}, "reasoning_details": "none",
                "tool_calls": {"0": 1}, "function_call": [], "audio": "x", "annotations": 1,
                "refusal": 0, "images": {}, "role": 5}}],
            "usage": [], "x_groq": 1, "citations": "x"}),
        json!({"choices": [{"delta": "y"}]}),
        delta(json!({"tool_calls": [1, {"index": "a", "id": 5, "function": "f"}]})),
    ]);
    assert_eq!(block_texts(&msg), ["text x", "call reply-1  "]);
}

#[test]
fn ids_that_change_in_mid_stream_change_nothing() {
    let chunk = |id: &str, text: &str| json!({"id": id, "choices": [{"delta": {"content": text}}]});
    let msg = fold(&[chunk("one", "a"), chunk("two", "b"), chunk("", "c")]);
    assert_eq!((msg.id(), block_texts(&msg)), ("one", vec!["text abc".to_owned()]));
}

#[test]
fn a_model_call_of_another_reply_has_its_ids_and_no_ends_of_its_own() {
    let decoding = DecoderOptions {
        reply_id: Some("r".into()),
        block_prefix: Some("p".into()),
        scope: StreamScope::ModelCall,
        ..DecoderOptions::default()
    };
    let first = json!({"id": "c", "model": "m", "created": 1_770_000_000,
        "choices": [{"delta": {"content": "x"}}]});
    let events = decode(&decoding, &body(&[first, finish("stop")]));
    let lines: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(&event.to_json()).unwrap()).collect();
    let types: Vec<&Value> = lines.iter().map(|line| line.get("type").unwrap()).collect();
    assert_eq!(
        types,
        [
            "MODEL_CALL_START",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "MODEL_CALL_END"
        ]
    );
    assert!(lines.iter().all(|line| line.get("reply_id").unwrap() == "r"));
    let start = lines.first().unwrap();
    assert_eq!(start.get("model_name").unwrap(), "m");
    assert_eq!(start.get("created_at").unwrap(), "2026-02-02T02:40:00Z");
    assert_eq!(lines.get(1).unwrap().get("block_id").unwrap(), "p-0");
}

/// Random frames made of the protocol's words: there is one end, and the events fold without errors.
#[test]
fn no_frame_breaks_the_decoder() {
    fn any(rng: &mut Rng, depth: u8) -> Value {
        const WORDS: &[&str] = &[
            "choices",
            "delta",
            "content",
            "index",
            "id",
            "tool_calls",
            "function",
            "name",
            "text",
            "arguments",
            "finish_reason",
            "usage",
            "error",
            "reasoning",
            "reasoning_details",
            "type",
            "reasoning.text",
            "thinking",
            "message",
            "audio",
            "data",
            "images",
            "image_url",
            "url",
            "stop",
            "<think>",
            "</think>",
            "refusal",
            "annotations",
            "function_call",
            "custom",
            "",
            "é",
        ];
        let word = |rng: &mut Rng| (*pick(rng, WORDS)).to_owned();
        match rng.u8(..if depth == 0 { 4 } else { 9 }) {
            0 => Value::Null,
            1 => rng.i32(-1..3).into(),
            2 | 3 => word(rng).into(),
            4 => (0..rng.usize(..3)).map(|_| any(rng, depth - 1)).collect(),
            _ => (0..rng.usize(..4)).map(|_| (word(rng), any(rng, depth - 1))).collect(),
        }
    }
    check_property("no_frame_breaks_the_decoder", 3000, |rng| {
        let frames: Vec<Value> = (0..rng.usize(..8))
            .map(|_| match rng.u8(..3) {
                0 => any(rng, 5),
                1 => json!({"id": "c", "choices": [any(rng, 4), {"delta": any(rng, 3)}]}),
                _ => json!({"id": "c", "choices": [{"delta": {
                    "content": any(rng, 2), "reasoning_details": any(rng, 2), "tool_calls": any(rng, 3),
                    "function_call": any(rng, 2), "audio": {"transcript": any(rng, 1)}}}]}),
            })
            .collect();
        let wire = Wire::named("openai-chat").unwrap();
        let mut decoder = wire.decoder(&DecoderOptions::default()).unwrap();
        let mut folder = Folder::default();
        let mut ends = 0;
        let mut each = |decoded: Decoded<'_>| {
            if let Ok(event) = decoded.event {
                ends += u8::from(matches!(event.kind, EventKind::ReplyEnd(_)));
                match folder.push(&event) {
                    // Sound that is no base64 is the provider's fault.
                    Err(error) if error.kind() != ErrorKind::BadBase64 => {
                        panic!("{error}: {}", event.to_json())
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        };
        decoder.feed(body(&frames).as_bytes(), &mut each);
        decoder.end(&mut each);
        assert_eq!(ends, 1);
    });
}
