//! Random messages, blocks and events, with everything that their types allow.

use crate::{one_in, pick};
use fastrand::Rng;
use turnwire_core::block::{Base64Source, DataKind, Source, UrlSource};
use turnwire_core::event::{
    AllToolsDenied, Block, Chunk, ConfirmResult, Custom, CustomValue, DataBlockDelta, DataBlockEnd,
    DataBlockStart, ExceedMaxIters, ExternalExecutionResult, Hint, Message, ModelCallEnd,
    ModelCallStart, ReplyEnd, ReplyStart, RequestStop, RequireExternalExecution,
    RequireUserConfirm, Reset, SubAgent, SubagentExposed, Supersede, TextBlockDelta, TextBlockEnd,
    TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd, ThinkingBlockStart, TokenCounts,
    ToolCallDelta, ToolCallEnd, ToolCallStart, ToolResultDataDelta, ToolResultEnd, ToolResultStart,
    ToolResultTextDelta, UserConfirmResult, UserInterrupt,
};
use turnwire_core::{
    Behavior, ContentBlock, DataBlock, ErrorType, Event, EventKind, Fields, FinishedReason,
    HintBlock, Json, Msg, Part, Payload, PermissionRule, ReplyError, Role, Seq, TextBlock,
    ThinkingBlock, ToolCall, ToolCallState, ToolResult, ToolResultState, Usage,
};

/// A short text, with characters that break naive code.
pub fn text(rng: &mut Rng) -> String {
    const PIECES: &[&str] = &[
        "Hello",
        " ",
        "wörld",
        "\n",
        "\r\n",
        "\"quoted\"",
        "\\",
        "日本",
        "🙂",
        "👩‍👩‍👧",
        "\u{0}",
        "\u{7f}",
        "\u{2028}",
        "</think>",
        "{\"a\":",
        "]}",
        "data: x",
        "",
        "e\u{301}",
    ];
    (0..rng.usize(..5)).map(|_| *pick(rng, PIECES)).collect()
}

/// An id: 32 hexadecimal digits, or another form.
pub fn id(rng: &mut Rng) -> String {
    match rng.u8(..4) {
        0 => format!("call_{}", rng.u64(..)),
        1 => format!("{:08x}-0000-7000-8000-{:012x}", rng.u32(..), rng.u32(..)),
        _ => format!("{:032x}", rng.u128(..)),
    }
}

/// A timestamp as text, or an empty string.
pub fn time(rng: &mut Rng) -> String {
    match rng.u8(..8) {
        0 => String::new(),
        1 => "2026-11-15 06:45:37.763".to_owned(),
        _ => format!("2026-11-15T08:22:02.{:06}", rng.u32(..1_000_000)),
    }
}

fn maybe<T>(rng: &mut Rng, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    rng.bool().then(|| make(rng))
}

fn some_of<T>(rng: &mut Rng, most: usize, make: impl Fn(&mut Rng) -> T) -> Vec<T> {
    (0..rng.usize(..=most)).map(|_| make(rng)).collect()
}

/// Any JSON.
pub fn json(rng: &mut Rng) -> Json {
    let text = match rng.u8(..8) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => format!("{}", rng.i64(..)),
        3 => "1.10".to_owned(),
        4 => "123456789012345678901234567890".to_owned(),
        5 => r#"["a",{"b":[]},"\u00e9\n"]"#.to_owned(),
        6 => return object(rng),
        _ => return text(rng).into(),
    };
    Json::parse(&text).unwrap_or_else(|_| Json::from(text))
}

/// A JSON object.
pub fn object(rng: &mut Rng) -> Json {
    let fields: Fields =
        some_of(rng, 2, |rng| (format!("k{}", rng.u8(..9)), json(rng))).into_iter().collect();
    Json::from_value(&fields).unwrap_or_else(|_| Json::from(0))
}

/// Unknown fields, or none. Their names start with `x_`.
pub fn unknown_fields(rng: &mut Rng) -> Fields {
    if !one_in(rng, 4) {
        return Fields::default();
    }
    some_of(rng, 3, |rng| (format!("x_{}", rng.u8(..9)), json(rng))).into_iter().collect()
}

fn metadata(rng: &mut Rng) -> Fields {
    if !one_in(rng, 4) {
        return Fields::default();
    }
    some_of(rng, 2, |rng| (format!("m{}", rng.u8(..9)), json(rng))).into_iter().collect()
}

/// A block of an unknown type.
pub fn unknown_block(rng: &mut Rng) -> Fields {
    let mut fields = Fields::default();
    fields.insert("type", format!("x_kind{}", rng.u8(..9)));
    if rng.bool() {
        fields.insert("id", id(rng));
    }
    fields.insert("x_payload", json(rng));
    fields
}

/// Any text block.
pub fn text_block(rng: &mut Rng) -> TextBlock {
    TextBlock {
        text: text(rng),
        id: id(rng),
        created_at: time(rng),
        finished_at: maybe(rng, time),
        rest: unknown_fields(rng),
    }
}

/// A real media type, or any text.
fn media_type(rng: &mut Rng) -> String {
    match rng.u8(..8) {
        0 => "image/png".to_owned(),
        1 => "image/jpeg".to_owned(),
        2 => "audio/wav".to_owned(),
        3 => "application/pdf".to_owned(),
        _ => text(rng),
    }
}

/// Any data block.
pub fn data_block(rng: &mut Rng) -> DataBlock {
    let bytes = some_of(rng, 9, |rng| rng.u8(..));
    let source = match rng.u8(..6) {
        0 => Source::Other([("type", "x_source"), ("x_where", "there")].into_iter().collect()),
        1 | 2 => Source::Url(UrlSource {
            url: (*pick(rng, &["https://example.com/a.png", "file:///a b.png", "/v1/blobs/1", ""]))
                .to_owned(),
            media_type: maybe(rng, media_type),
            rest: unknown_fields(rng),
        }),
        _ => Source::Base64(Base64Source {
            data: match DataBlock::bytes(&bytes, "").source {
                Source::Base64(source) => source.data,
                Source::Url(_) | Source::Other(_) => String::new(),
            },
            media_type: maybe(rng, media_type),
            rest: unknown_fields(rng),
        }),
    };
    DataBlock {
        kind: *pick(
            rng,
            &[DataKind::Data, DataKind::Data, DataKind::Image, DataKind::Audio, DataKind::Video],
        ),
        id: id(rng),
        name: maybe(rng, text),
        created_at: time(rng),
        finished_at: maybe(rng, time),
        rest: unknown_fields(rng),
        ..DataBlock::from_source(source)
    }
}

fn part(rng: &mut Rng) -> Part {
    match rng.u8(..5) {
        0 => Part::Other(unknown_block(rng)),
        1 | 2 => Part::Data(data_block(rng)),
        _ => Part::Text(text_block(rng)),
    }
}

/// Any payload of a hint or a result.
pub fn payload(rng: &mut Rng) -> Payload {
    if rng.bool() { Payload::Text(text(rng)) } else { Payload::Parts(some_of(rng, 3, part)) }
}

/// Any permission rule.
pub fn rule(rng: &mut Rng) -> PermissionRule {
    PermissionRule {
        tool_name: text(rng),
        rule_content: maybe(rng, text),
        behavior: pick(
            rng,
            &[
                Behavior::Allow,
                Behavior::Deny,
                Behavior::Ask,
                Behavior::Passthrough,
                Behavior::Other("x_maybe".into()),
            ],
        )
        .clone(),
        source: text(rng),
        rest: unknown_fields(rng),
    }
}

/// Any tool call.
pub fn tool_call(rng: &mut Rng) -> ToolCall {
    ToolCall {
        id: id(rng),
        name: text(rng),
        input: text(rng),
        state: pick(
            rng,
            &[
                ToolCallState::Pending,
                ToolCallState::Asking,
                ToolCallState::Allowed,
                ToolCallState::Submitted,
                ToolCallState::Finished,
                ToolCallState::Other("x_paused".into()),
            ],
        )
        .clone(),
        suggested_rules: some_of(rng, 2, rule),
        created_at: time(rng),
        finished_at: maybe(rng, time),
        rest: unknown_fields(rng),
    }
}

fn result_state(rng: &mut Rng) -> ToolResultState {
    pick(
        rng,
        &[
            ToolResultState::Running,
            ToolResultState::Success,
            ToolResultState::Error,
            ToolResultState::Interrupted,
            ToolResultState::Denied,
            ToolResultState::Other("x_late".into()),
        ],
    )
    .clone()
}

/// Any tool result.
pub fn tool_result(rng: &mut Rng) -> ToolResult {
    ToolResult {
        id: id(rng),
        name: text(rng),
        output: payload(rng),
        state: result_state(rng),
        metadata: metadata(rng),
        created_at: time(rng),
        finished_at: maybe(rng, time),
        rest: unknown_fields(rng),
    }
}

/// Any block.
pub fn block(rng: &mut Rng) -> ContentBlock {
    match rng.u8(..7) {
        0 => text_block(rng).into(),
        1 => ThinkingBlock {
            thinking: text(rng),
            id: id(rng),
            created_at: time(rng),
            finished_at: maybe(rng, time),
            rest: provider_fields(rng),
        }
        .into(),
        2 => data_block(rng).into(),
        3 => HintBlock {
            hint: payload(rng),
            id: id(rng),
            source: maybe(rng, text),
            created_at: time(rng),
            finished_at: maybe(rng, time),
            rest: unknown_fields(rng),
        }
        .into(),
        4 => tool_call(rng).into(),
        5 => tool_result(rng).into(),
        _ => ContentBlock::Other(unknown_block(rng)),
    }
}

fn reason(rng: &mut Rng) -> FinishedReason {
    pick(
        rng,
        &[
            FinishedReason::Completed,
            FinishedReason::Interrupted,
            FinishedReason::ExceedMaxIters,
            FinishedReason::Error,
            FinishedReason::Other("x_tired".into()),
        ],
    )
    .clone()
}

/// Unknown fields, and sometimes a provider's signature.
fn provider_fields(rng: &mut Rng) -> Fields {
    let mut fields = unknown_fields(rng);
    if rng.bool() {
        fields.insert("signature", id(rng));
    }
    fields
}

fn reply_error(rng: &mut Rng) -> ReplyError {
    ReplyError {
        r#type: pick(rng, &[ErrorType::RateLimit, ErrorType::Setup, ErrorType::Other("x".into())])
            .clone(),
        message: text(rng),
        rest: unknown_fields(rng),
    }
}

/// Any message that follows the role rules.
pub fn message(rng: &mut Rng) -> Msg {
    loop {
        let role = *pick(rng, &Role::ALL);
        let blocks = (0..rng.usize(..5)).map(|_| match role {
            Role::User => match rng.u8(..5) {
                0 => ContentBlock::Other(unknown_block(rng)),
                1 | 2 => data_block(rng).into(),
                _ => text_block(rng).into(),
            },
            Role::System => text_block(rng).into(),
            Role::Tool => tool_result(rng).into(),
            Role::Assistant => block(rng),
        });
        let blocks: Vec<ContentBlock> = blocks.collect();
        let mut builder = Msg::builder(role)
            .name(text(rng))
            .id(id(rng))
            .content(blocks)
            .all_metadata(metadata(rng))
            .created_at(time(rng))
            .rest(unknown_fields(rng));
        if rng.bool() {
            builder = builder.finished_at(time(rng)).finished_reason(reason(rng));
        }
        if rng.bool() {
            let counts = [0; 4].map(|_: i64| rng.i64(-1..1 << 53));
            let [input_tokens, output_tokens, cache_input_tokens, cache_creation_input_tokens] =
                counts;
            builder = builder.usage(Usage {
                input_tokens,
                output_tokens,
                cache_input_tokens,
                cache_creation_input_tokens,
                rest: unknown_fields(rng),
            });
        }
        if one_in(rng, 4) {
            let output = if rng.bool() { object(rng) } else { json(rng) };
            if !output.is_null() {
                builder = builder.structured_output(output);
            }
        }
        if one_in(rng, 4) {
            builder = builder.error(reply_error(rng));
        }
        if let Ok(msg) = builder.build() {
            return msg;
        }
    }
}

fn chunk(rng: &mut Rng) -> Chunk<'static> {
    if rng.bool() {
        Chunk::Data(text(rng).into())
    } else {
        Chunk::Url((*pick(rng, &["https://example.com/x", "/v1/blobs/1"])).into())
    }
}

fn confirm_result(rng: &mut Rng) -> ConfirmResult {
    ConfirmResult {
        confirmed: rng.bool(),
        tool_call: tool_call(rng),
        rules: maybe(rng, |rng| some_of(rng, 2, rule)),
        rest: unknown_fields(rng),
    }
}

/// An event of any kind.
pub fn event_kind(rng: &mut Rng) -> EventKind<'static> {
    let block_id = id(rng).into();
    let tool_call_id = id(rng).into();
    let delta = text(rng).into();
    let extra = unknown_fields(rng);
    match rng.u8(..34) {
        0 => TextBlockDelta { block_id, delta }.into(),
        1 => ThinkingBlockDelta { block_id, delta }.into(),
        2 => ToolCallDelta { tool_call_id, delta }.into(),
        3 => ToolResultTextDelta { tool_call_id, delta }.into(),
        4 => {
            ReplyStart { session_id: id(rng), name: text(rng), role: *pick(rng, &Role::ALL) }.into()
        }
        5 => ReplyEnd {
            session_id: id(rng),
            finished_reason: reason(rng),
            error: maybe(rng, reply_error),
            structured_output: maybe(rng, object),
            message_metadata: metadata(rng),
        }
        .into(),
        6 => ModelCallStart { model_name: text(rng) }.into(),
        7 => ModelCallEnd {
            usage: TokenCounts {
                input_tokens: rng.i64(-1..1 << 40),
                output_tokens: rng.i64(0..9),
                cache_input_tokens: 0,
                cache_creation_input_tokens: rng.i64(0..9),
            },
            finished_reason: reason(rng),
            error: maybe(rng, reply_error),
            discard: some_of(rng, 2, id),
        }
        .into(),
        8 => TextBlockStart { block_id }.into(),
        9 => TextBlockEnd { block_id, text: maybe(rng, |rng| text(rng).into()), extra }.into(),
        10 => ThinkingBlockStart { block_id }.into(),
        11 => ThinkingBlockEnd { block_id, extra }.into(),
        12 => {
            DataBlockStart { block_id, media_type: maybe(rng, text), name: maybe(rng, text) }.into()
        }
        13 => DataBlockDelta { block_id, media_type: maybe(rng, text), chunk: chunk(rng) }.into(),
        14 => DataBlockEnd { block_id, extra }.into(),
        15 => Hint { block_id: id(rng), source: maybe(rng, text), hint: payload(rng) }.into(),
        16 => ToolCallStart { tool_call_id, tool_call_name: delta }.into(),
        17 => ToolCallEnd { tool_call_id, extra }.into(),
        18 => ToolResultStart { tool_call_id, tool_call_name: delta }.into(),
        19 => ToolResultDataDelta {
            tool_call_id,
            block_id,
            media_type: maybe(rng, media_type),
            chunk: chunk(rng),
        }
        .into(),
        20 => ToolResultEnd { tool_call_id, state: result_state(rng) }.into(),
        21 => ExceedMaxIters { name: text(rng) }.into(),
        22 => RequireUserConfirm { tool_calls: some_of(rng, 2, tool_call) }.into(),
        23 => RequireExternalExecution { tool_calls: some_of(rng, 2, tool_call) }.into(),
        24 => UserConfirmResult { confirm_results: some_of(rng, 2, confirm_result) }.into(),
        25 => ExternalExecutionResult { execution_results: some_of(rng, 2, tool_result) }.into(),
        26 => UserInterrupt {}.into(),
        27 => Custom {
            name: text(rng),
            value: CustomValue(if rng.bool() { object(rng) } else { text(rng).into() }),
        }
        .into(),
        28 => Block { block: Box::new(block(rng)) }.into(),
        29 => Message { message: Box::new(message(rng)) }.into(),
        30 => Supersede { message_ids: some_of(rng, 2, id) }.into(),
        31 => match rng.u8(..4) {
            0 => Reset { epoch: id(rng), reason: text(rng) }.into(),
            1 => RequestStop { reason: maybe(rng, text), generate_reason: maybe(rng, text) }.into(),
            2 => AllToolsDenied { denied_tool_calls: some_of(rng, 2, tool_call) }.into(),
            _ => SubagentExposed {
                session_id: id(rng),
                subagent_id: id(rng),
                agent_id: id(rng),
                label: maybe(rng, text),
            }
            .into(),
        },
        _ => EventKind::Unknown(format!("X_EVENT_{}", rng.u8(..9)).into()),
    }
}

/// Any event.
pub fn event(rng: &mut Rng) -> Event<'static> {
    let kind = event_kind(rng);
    let may_be_of_no_reply = matches!(kind, EventKind::ReplyEnd(_)) || !kind.is_part_of_reply();
    let reply_id = if may_be_of_no_reply && one_in(rng, 9) { String::new() } else { id(rng) };
    let mut event = Event::new(reply_id, kind);
    event.id = id(rng).into();
    event.created_at = time(rng).into();
    event.metadata = metadata(rng);
    event.rest = unknown_fields(rng);
    if rng.bool() {
        event.seq = Seq::new(rng.u64(1..1 << 50));
        event.seq_from = event.seq.filter(|_| one_in(rng, 4));
    }
    if one_in(rng, 4) {
        event.agent = Some(Box::new(SubAgent {
            agent_path: Some("main/researcher".to_owned()),
            parent_tool_call_id: maybe(rng, id),
        }));
    }
    event
}

/// A JSON Schema of 1.4 KB that has a billion subschemas once its references are expanded: each definition
/// applies the one before twice.
pub fn doubling_schema() -> String {
    let definitions: Vec<String> = (1..=30)
        .map(|at| {
            let before = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, at - 1);
            format!(r#""d{at}":{{"anyOf":[{before},{before}]}}"#)
        })
        .collect();
    let definitions = definitions.join(",");
    format!(r##"{{"$defs":{{"d0":{{"type":"string"}},{definitions}}},"$ref":"#/$defs/d30"}}"##)
}
