//! AG-UI's events as serde types.

use serde::Serialize;
use turnwire_core::event::TokenCounts;
use turnwire_core::{Fields, Json};

/// The protocol version.
pub(super) const VERSION: &str = "1.0";

/// The key in AG-UI's `metadata` that holds everything of ours.
pub(super) const METADATA_KEY: &str = "turnwire";

/// The activity that replaces a discarded message: a client can replace a message only by an
/// activity.
pub(super) const DISCARDED: &str = "discarded";

/// The types of our activities.
pub(super) const ACTIVITY_TYPES: [&str; 4] = ["data", "hint", "block", DISCARDED];

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub(super) enum Frame<'a> {
    RunStarted {
        thread_id: &'a str,
        run_id: &'a str,
        protocol_version: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        input: Option<Input<'a>>,
    },
    RunFinished {
        thread_id: &'a str,
        run_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome<'a>>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        usage: &'a [ModelUsage],
        #[serde(skip_serializing_if = "Fields::is_empty")]
        metadata: Fields,
    },
    RunError {
        message: &'a str,
        code: &'a str,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        usage: &'a [ModelUsage],
    },
    StepStarted {
        step_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    StepFinished {
        step_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    TextMessageStart {
        message_id: &'a str,
        role: &'static str,
        #[serde(skip_serializing_if = "str::is_empty")]
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
        metadata: MessageMetadata<'a>,
    },
    TextMessageContent {
        message_id: &'a str,
        delta: &'a str,
    },
    TextMessageEnd {
        message_id: &'a str,
    },
    ReasoningStart {
        message_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    ReasoningMessageStart {
        message_id: &'a str,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
        metadata: MessageMetadata<'a>,
    },
    ReasoningMessageContent {
        message_id: &'a str,
        delta: &'a str,
    },
    ReasoningMessageEnd {
        message_id: &'a str,
    },
    ReasoningEnd {
        message_id: &'a str,
    },
    ReasoningEncryptedValue {
        subtype: &'static str,
        entity_id: &'a str,
        encrypted_value: &'a str,
    },
    ToolCallStart {
        tool_call_id: &'a str,
        tool_call_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
        metadata: MessageMetadata<'a>,
    },
    ToolCallArgs {
        tool_call_id: &'a str,
        delta: &'a str,
    },
    ToolCallEnd {
        tool_call_id: &'a str,
    },
    ToolCallResult {
        message_id: &'a str,
        tool_call_id: &'a str,
        content: Json,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
        metadata: &'a Fields,
    },
    ActivitySnapshot {
        message_id: &'a str,
        activity_type: &'a str,
        content: Json,
        replace: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
        metadata: MessageMetadata<'a>,
    },
    MessagesSnapshot {
        messages: Vec<Fields>,
        metadata: SnapshotMetadata,
    },
    SubagentStarted {
        subagent_run_id: &'a str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_subagent_run_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_tool_call_id: Option<&'a str>,
    },
    SubagentFinished {
        subagent_run_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a Json>,
        outcome: SubagentOutcome<'a>,
    },
    SubagentError {
        subagent_run_id: &'a str,
        message: &'a str,
        code: &'a str,
    },
    Custom {
        name: &'a str,
        value: &'a Json,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
}

/// Messages that a client may not have yet. The client adds those with unknown ids; no other AG-UI
/// event does this without changing the messages it has.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Input<'a> {
    pub thread_id: &'a str,
    pub run_id: &'a str,
    pub messages: &'a [Fields],
    /// Clients older than 1.0 require these fields.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) unused: Option<UnusedInput>,
}

/// Empty fields of a run's input.
#[derive(Serialize, Default)]
pub(super) struct UnusedInput {
    tools: [(); 0],
    context: [(); 0],
}

/// The reply that a message belongs to.
#[derive(Serialize, Clone, Copy)]
pub(super) struct MessageMetadata<'a> {
    turnwire: ReplyRef<'a>,
}

#[derive(Serialize, Clone, Copy)]
struct ReplyRef<'a> {
    reply: &'a str,
}

impl<'a> MessageMetadata<'a> {
    pub(super) fn new(reply: &'a str) -> Self {
        Self { turnwire: ReplyRef { reply } }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum Outcome<'a> {
    Success {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<&'a str>,
    },
    Interrupt {
        interrupts: Vec<Interrupt<'a>>,
    },
    Cancelled,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum SubagentOutcome<'a> {
    Success,
    Suspended {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        interrupt_ids: Vec<&'a str>,
    },
}

/// A call that waits for an approval.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interrupt<'a> {
    pub id: &'a str,
    pub reason: &'static str,
    pub message: String,
    pub tool_call_id: &'a str,
    pub response_schema: ResponseSchema,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Fields::is_empty")]
    pub metadata: Fields,
}

/// The JSON schema of an answer, for clients that build a form.
#[derive(Serialize)]
pub(super) struct ResponseSchema {
    r#type: &'static str,
    properties: Properties,
    required: [&'static str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Properties {
    approved: Type,
    edited_args: Type,
}

#[derive(Serialize)]
struct Type {
    r#type: &'static str,
}

impl ResponseSchema {
    pub(super) const APPROVAL: Self = Self {
        r#type: "object",
        properties: Properties {
            approved: Type { r#type: "boolean" },
            edited_args: Type { r#type: "object" },
        },
        required: ["approved"],
    };
}

/// Says that the snapshot is complete for our activities: those missing in it are gone.
#[derive(Serialize)]
pub(super) struct SnapshotMetadata {
    #[serde(rename = "@ag-ui/client")]
    client: ActivityTypes,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ActivityTypes {
    authoritative_activity_types: [&'static str; 4],
}

impl SnapshotMetadata {
    pub(super) const AUTHORITATIVE: Self =
        Self { client: ActivityTypes { authoritative_activity_types: ACTIVITY_TYPES } };
}

/// The tokens of one model in one run.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModelUsage {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    input_tokens: i64,
    output_tokens: i64,
    total_tokens: i64,
    #[serde(skip_serializing_if = "is_zero")]
    cached_input_tokens: i64,
    #[serde(skip_serializing_if = "is_zero")]
    cache_write_input_tokens: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}

impl ModelUsage {
    pub(super) fn new(model: String) -> Self {
        Self { model, ..Self::default() }
    }

    pub(super) fn add(&mut self, counts: TokenCounts) {
        let (read, written) = (counts.cache_input_tokens, counts.cache_creation_input_tokens);
        // AG-UI counts cached tokens as part of the input. If they exceed the input, the provider
        // counts them separately.
        let cache = read.max(0).saturating_add(written.max(0));
        let beside = cache > counts.input_tokens;
        let input = counts.input_tokens.max(0).saturating_add(if beside { cache } else { 0 });
        add_clamped(&mut self.input_tokens, input);
        add_clamped(&mut self.output_tokens, counts.output_tokens);
        add_clamped(&mut self.cached_input_tokens, read);
        add_clamped(&mut self.cache_write_input_tokens, written);
        self.total_tokens = self.input_tokens;
        add_clamped(&mut self.total_tokens, self.output_tokens);
    }
}

/// AG-UI's counters are limited to 53 bits.
fn add_clamped(sum: &mut i64, count: i64) {
    const MOST: i64 = (1 << 53) - 1;
    *sum = sum.saturating_add(count.max(0)).min(MOST);
}
