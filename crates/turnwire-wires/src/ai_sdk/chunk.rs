//! The chunks of the UI message stream as serde types.

use super::tool::Output;
use serde::Serialize;
use turnwire_core::{Fields, Json};

/// Our metadata, under our key.
#[derive(Debug, Serialize)]
pub(super) struct OwnMetadata<T> {
    pub turnwire: T,
}

/// Our metadata, unless it is empty.
pub(super) fn own_metadata(fields: &Fields) -> Option<OwnMetadata<&Fields>> {
    (!fields.is_empty()).then_some(OwnMetadata { turnwire: fields })
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum Chunk<'a> {
    Start {
        message_id: &'a str,
        #[serde(skip_serializing_if = "Fields::is_empty")]
        message_metadata: &'a Fields,
    },
    StartStep,
    FinishStep,
    /// Removes all parts of the current step.
    ResetStep,
    TextStart {
        id: &'a str,
    },
    TextDelta {
        id: &'a str,
        delta: &'a str,
    },
    TextEnd {
        id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider_metadata: Option<OwnMetadata<&'a Fields>>,
    },
    ReasoningStart {
        id: &'a str,
    },
    ReasoningDelta {
        id: &'a str,
        delta: &'a str,
    },
    ReasoningEnd {
        id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider_metadata: Option<OwnMetadata<&'a Fields>>,
    },
    ToolInputStart {
        tool_call_id: &'a str,
        tool_name: &'a str,
        provider_executed: bool,
        dynamic: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    ToolInputDelta {
        tool_call_id: &'a str,
        input_text_delta: &'a str,
    },
    ToolInputAvailable {
        tool_call_id: &'a str,
        tool_name: &'a str,
        input: &'a Json,
        provider_executed: bool,
        dynamic: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider_metadata: Option<OwnMetadata<&'a Fields>>,
    },
    ToolInputError {
        tool_call_id: &'a str,
        tool_name: &'a str,
        input: &'a Json,
        provider_executed: bool,
        dynamic: bool,
        error_text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider_metadata: Option<OwnMetadata<&'a Fields>>,
    },
    ToolApprovalRequest {
        approval_id: &'a str,
        tool_call_id: &'a str,
        /// Requested and answered without the user.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_automatic: bool,
    },
    ToolApprovalResponse {
        approval_id: &'a str,
        approved: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider_executed: Option<bool>,
    },
    ToolOutputAvailable {
        tool_call_id: &'a str,
        output: Output<'a>,
        dynamic: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        preliminary: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider_metadata: Option<OwnMetadata<&'a Fields>>,
    },
    ToolOutputError {
        tool_call_id: &'a str,
        error_text: &'a str,
        dynamic: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        provider_metadata: Option<OwnMetadata<&'a Fields>>,
    },
    ToolOutputDenied {
        tool_call_id: &'a str,
    },
    Error {
        error_text: &'a str,
    },
    Abort {
        reason: &'a str,
    },
    MessageMetadata {
        message_metadata: &'a Fields,
    },
    Finish {
        finish_reason: &'a str,
        #[serde(skip_serializing_if = "Fields::is_empty")]
        message_metadata: &'a Fields,
    },
    DataCustom {
        data: Custom<'a>,
        transient: bool,
    },
    DataSubagent {
        id: &'a str,
        data: Subagent<'a>,
    },
}

/// The value of a `CUSTOM` event.
#[derive(Debug, Serialize)]
pub(super) struct Custom<'a> {
    pub name: &'a str,
    pub value: &'a Json,
}

/// A sub-agent's message so far.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subagent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<&'a str>,
    pub message: &'a Fields,
}

impl Chunk<'_> {
    pub(super) fn to_json(&self) -> String {
        // Serializing a map with string keys does not fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
