//! What a response repeats of its request, from the client context that is stored with the request.

use super::wire;
use crate::error::ApiResult;
use turnwire_agent::{ClientContext, ClientTool};
use turnwire_core::{Fields, Json};

/// The fields of the request that a client context was made from.
pub(super) fn request_fields(context: &ClientContext) -> ApiResult<Fields> {
    if context.wire != wire()?.name {
        return Ok(Fields::default());
    }
    let mut body = context.extra.clone();
    body.insert_some("instructions", context.instructions.as_deref());
    // The members of a group are part of the group.
    let tools = context.tools.iter().filter(|tool| tool.namespace.is_none()).map(tool_fields);
    if let Ok(tools) = Json::from_value(&tools.collect::<Vec<_>>()) {
        body.insert("tools", tools);
    }
    Ok(body)
}

fn tool_fields(tool: &ClientTool) -> Fields {
    let mut fields = tool.fields.clone();
    if tool.kind.is_function() {
        fields.insert("type", "function");
        fields.insert("name", tool.name.as_str());
        fields.insert_unless_empty("description", &tool.description);
        fields.insert_some("parameters", tool.input.clone());
        fields.insert_some("strict", tool.strict);
    }
    fields
}
