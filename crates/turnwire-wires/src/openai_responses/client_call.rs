//! Calls of tools that `OpenAI` defines and the client executes: shells, patches, a computer, a search for tools, and the
//! questions of MCP servers. Each has an item of its own for the call, and another for the result.
//!
//! A call becomes a tool call, and its result a tool result. The fields that these do not have are kept under the name of
//! this wire, so that a model of it gets the same items. The decoder, the encoder and the requests share this.

use super::item::{ITEM_ID, ITEM_TYPE, has_item_type};
use super::{NAME, media};
use crate::json::fields;
use crate::native;
use serde_json::json;
use turnwire_core::{DataBlock, Fields, Json, Part, Payload, Source, ToolCall, ToolResult};

/// One kind of such calls.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientCall {
    /// The type of the item with the call.
    pub(super) call: &'static str,
    /// The type of the item with the result.
    result: &'static str,
    /// The name of the tool.
    pub(super) name: &'static str,
    /// The field of the call with its id.
    id: &'static str,
    /// The field of the result with the id of the call.
    answers: &'static str,
    /// The field of the call with its input.
    input: Content,
    /// The field of the result with its output.
    output: Content,
}

/// A field that becomes the input of a call or the output of a result.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    field: &'static str,
    /// Whether the field is a string. Otherwise the input or output is its JSON.
    is_text: bool,
}

const fn text(field: &'static str) -> Content {
    Content { field, is_text: true }
}

const fn json(field: &'static str) -> Content {
    Content { field, is_text: false }
}

const COMPUTER: &str = "computer_call";

/// The name of the calls with which a provider asks whether it may call a tool of an MCP server.
pub(super) const MCP_APPROVAL: &str = "mcp_approval_request";

static CLIENT_CALLS: [ClientCall; 6] = [
    ClientCall {
        call: "local_shell_call",
        result: "local_shell_call_output",
        name: "local_shell",
        id: "call_id",
        answers: "call_id",
        input: json("action"),
        output: text("output"),
    },
    ClientCall {
        call: "shell_call",
        result: "shell_call_output",
        name: "shell",
        id: "call_id",
        answers: "call_id",
        input: json("action"),
        output: json("output"),
    },
    ClientCall {
        call: "apply_patch_call",
        result: "apply_patch_call_output",
        name: "apply_patch",
        id: "call_id",
        answers: "call_id",
        input: json("operation"),
        output: text("output"),
    },
    ClientCall {
        call: COMPUTER,
        result: "computer_call_output",
        name: "computer",
        id: "call_id",
        answers: "call_id",
        input: json("action"),
        output: json("output"),
    },
    ClientCall {
        call: "tool_search_call",
        result: "tool_search_output",
        name: "tool_search",
        id: "call_id",
        answers: "call_id",
        input: json("arguments"),
        output: json("tools"),
    },
    ClientCall {
        call: MCP_APPROVAL,
        result: "mcp_approval_response",
        name: MCP_APPROVAL,
        id: "id",
        answers: "approval_request_id",
        input: text("arguments"),
        output: json("approve"),
    },
];

impl ClientCall {
    /// The kind of a call, by its item. `None` if it is another item, or the provider executes the call.
    pub(super) fn of_item(item: &Fields) -> Option<&'static Self> {
        let item_type = string(item, "type")?;
        let kind = CLIENT_CALLS.iter().find(|kind| kind.call == item_type)?;
        let is_hosted = match kind.name {
            "shell" => is_hosted_shell(item),
            "tool_search" => !is_client_search(item),
            _ => false,
        };
        (!is_hosted && !kind.call_id(item).is_empty()).then_some(kind)
    }

    /// The kind of a result, by its item.
    pub(super) fn of_result_item(item: &Fields) -> Option<&'static Self> {
        let item_type = string(item, "type")?;
        CLIENT_CALLS.iter().find(|kind| kind.result == item_type)
    }

    /// The kind of a tool call.
    pub(super) fn of_call(rest: &Fields) -> Option<&'static Self> {
        rest.raw(ITEM_TYPE)?;
        CLIENT_CALLS.iter().find(|kind| has_item_type(rest, kind.call))
    }

    /// The kind of a tool result that came as an item of its own.
    pub(super) fn of_result(result: &ToolResult) -> Option<&'static Self> {
        Self::of_result_item(&native::get(&result.rest, NAME)?)
    }

    fn call_id(&self, item: &Fields) -> String {
        string(item, self.id).or_else(|| string(item, "id")).unwrap_or_default()
    }

    /// Reads a call.
    pub(super) fn read_call(&self, mut item: Fields) -> ToolCall {
        let id = self.call_id(&item);
        let input = self.input_content(&item).take(&mut item);
        let mut call = ToolCall::new(id, self.name, input);
        call.rest.insert(ITEM_TYPE, self.call);
        for field in ["type", self.id, "discarded"] {
            item.remove(field);
        }
        if let Some(item_id) = string(&item, "id") {
            call.rest.insert_unless_empty(ITEM_ID, &item_id);
            item.remove("id");
        }
        native::set(&mut call.rest, NAME, &item);
        call
    }

    /// The id of a call's item.
    pub(super) fn item_id(&self, call_id: &str, rest: &Fields) -> Option<String> {
        if self.id == "id" { Some(call_id.to_owned()) } else { string(rest, ITEM_ID) }
    }

    /// Writes a call as the item that it was.
    pub(super) fn write_call(&self, id: &str, input: &str, rest: &Fields) -> Fields {
        let mut item = fields! { "type": self.call };
        item.insert_some("id", rest.raw(ITEM_ID).cloned());
        item.insert(self.id, id);
        native::add(&mut item, rest, NAME);
        self.written_input(input).put(input, &mut item);
        item
    }

    /// Some models make several actions in one call.
    fn input_content(&self, item: &Fields) -> Content {
        let has_several = self.call == COMPUTER && item.raw("actions").is_some();
        self.content_of_input(has_several)
    }

    fn written_input(&self, input: &str) -> Content {
        self.content_of_input(self.call == COMPUTER && input.starts_with('['))
    }

    fn content_of_input(&self, has_several: bool) -> Content {
        let Content { field, is_text } = self.input;
        Content { field: if has_several { "actions" } else { field }, is_text }
    }

    /// Reads a result.
    pub(super) fn read_result(&self, mut item: Fields) -> ToolResult {
        // The reference of OpenAI calls the id of a shell's result the id of its call.
        let id = string(&item, self.answers).or_else(|| string(&item, "id"));
        let output = match self.take_screenshot(&mut item) {
            Some(image) => Payload::Parts(vec![Part::Data(image)]),
            None => Payload::Text(self.output.take(&mut item)),
        };
        let mut result = ToolResult::success(id.unwrap_or_default(), output);
        native::set(&mut result.rest, NAME, &item);
        result
    }

    fn take_screenshot(&self, item: &mut Fields) -> Option<DataBlock> {
        if self.call != COMPUTER {
            return None;
        }
        let mut output: Fields = item.get(self.output.field).ok()??;
        let image = media::image_from_url(&string(&output, "image_url")?);
        output.remove("image_url");
        item.insert(self.output.field, output);
        Some(image)
    }

    /// Writes a result as the item that it was, or as one that the provider accepts.
    pub(super) fn write_result(&self, id: &str, result: Option<&ToolResult>, text: &str) -> Fields {
        let own = result.filter(|result| Self::of_result(result) == Some(self));
        own.and_then(|own| self.write_own_result(id, own))
            .unwrap_or_else(|| self.write_other_result(id, result, text))
    }

    fn write_own_result(&self, id: &str, result: &ToolResult) -> Option<Fields> {
        let mut item = native::get(&result.rest, NAME)?;
        let by_call = [self.answers, "id"].into_iter().find(|field| item.raw(field).is_some())?;
        if string(&item, by_call).is_some_and(|sent| sent == result.id) {
            item.insert(by_call, id);
        }
        match &result.output {
            Payload::Parts(parts) => {
                let url = parts.iter().find_map(image_url)?;
                let mut output: Fields = item.get(self.output.field).ok()??;
                output.insert("image_url", url);
                item.insert(self.output.field, output);
            }
            // It was shortened.
            Payload::Text(text) if !self.output.is_text && !text.is_empty() => {
                if item.raw(self.output.field).is_none() {
                    item.insert(self.output.field, Json::parse(text).ok()?);
                }
            }
            Payload::Text(text) => self.output.put(text, &mut item),
        }
        Some(item)
    }

    /// A result that this protocol's client did not send: another client's, or of a call that was interrupted.
    fn write_other_result(&self, id: &str, result: Option<&ToolResult>, text: &str) -> Fields {
        let is_error = result.is_none_or(|result| crate::provider::has_failed(&result.state));
        let status = if is_error { "failed" } else { "completed" };
        let mut item = fields! { "type": self.result };
        item.insert(self.answers, id);
        let more = match self.name {
            "shell" => json!({"output": [{"stdout": text, "stderr": "",
                "outcome": {"type": "exit", "exit_code": i32::from(is_error)}}]}),
            "apply_patch" => json!({"status": status, "output": text}),
            "computer" => {
                let parts = match result.map(|result| &result.output) {
                    Some(Payload::Parts(parts)) => parts.as_slice(),
                    Some(Payload::Text(_)) | None => &[],
                };
                match parts.iter().find_map(image_url) {
                    Some(url) => {
                        json!({"output": {"type": "computer_screenshot", "image_url": url}})
                    }
                    None => json!({"output": {"type": "computer_screenshot"}}),
                }
            }
            "tool_search" => json!({"execution": "client", "tools": []}),
            MCP_APPROVAL => json!({"approve": false, "reason": text}),
            _ => json!({"output": text}),
        };
        if let Ok(more) = Json::from(more).parse_as() {
            item.extend(&more);
        }
        item
    }
}

impl Content {
    /// Takes the field out of an item. A value of another kind stays there, too.
    fn take(&self, item: &mut Fields) -> String {
        let Some(json) = item.raw(self.field).filter(|json| !json.is_null()).cloned() else {
            return String::new();
        };
        let string: Option<String> = json.parse_as().ok();
        let is_expected = string.is_some() == self.is_text;
        let text = string.unwrap_or_else(|| json.text().to_owned());
        if is_expected && !text.is_empty() {
            item.remove(self.field);
        }
        text
    }

    fn put(&self, text: &str, item: &mut Fields) {
        if text.is_empty() || item.raw(self.field).is_some() {
            return;
        }
        let json = Json::parse(text).ok().filter(|_| !self.is_text);
        item.insert(self.field, json.unwrap_or_else(|| Json::from(text)));
    }
}

fn string(item: &Fields, field: &str) -> Option<String> {
    item.get::<String>(field).ok().flatten().filter(|text| !text.is_empty())
}

fn image_url(part: &Part) -> Option<String> {
    match part {
        Part::Data(DataBlock { source: Source::Url(source), .. }) => Some(source.url.clone()),
        Part::Data(block) => string(
            &media::data_to_part(&DataBlock { rest: Fields::default(), ..block.clone() }).ok()?,
            "image_url",
        ),
        Part::Text(_) | Part::Other(_) => None,
    }
}

/// Whether a shell runs in a container of the provider.
fn is_hosted_shell(item_or_tool: &Fields) -> bool {
    let environment: Option<Fields> = item_or_tool.get("environment").ok().flatten();
    let kind = environment.and_then(|environment| string(&environment, "type"));
    kind.is_some_and(|kind| kind.starts_with("container"))
}

fn is_client_search(item_or_tool: &Fields) -> bool {
    string(item_or_tool, "execution").is_some_and(|who| who == "client")
}

/// The name of the calls of a tool that the protocol defines, if the client executes them.
pub(super) fn client_tool(tool_type: &str, tool: &Fields) -> Option<&'static str> {
    match tool_type {
        "local_shell" => Some("local_shell"),
        "shell" => (!is_hosted_shell(tool)).then_some("shell"),
        "apply_patch" => Some("apply_patch"),
        "computer" | "computer_use" | "computer_use_preview" => Some("computer"),
        "tool_search" => is_client_search(tool).then_some("tool_search"),
        _ => None,
    }
}

/// The id of a call of such a tool that the provider executes, by the call's item. The call and its result are kept
/// verbatim.
pub fn hosted_call_id(item: &Fields) -> Option<String> {
    let item_type = string(item, "type")?;
    let is_hosted = CLIENT_CALLS.iter().any(|kind| kind.call == item_type)
        && ClientCall::of_item(item).is_none();
    string(item, "call_id").filter(|_| is_hosted)
}

/// The id of the call that an item of such a tool answers.
pub fn answered_call_id(item: &Fields) -> Option<String> {
    string(item, ClientCall::of_result_item(item)?.answers)
}

/// Whether a call is of a tool that the protocol defines and the client executes.
pub fn is_client_call(call: &ToolCall) -> bool {
    ClientCall::of_call(&call.rest).is_some()
}

/// Lets results refer to their calls by the id of the call, not by that of its item: programs do both.
pub fn refer_by_call_id<'c>(result: &mut ToolResult, calls: impl Iterator<Item = &'c ToolCall>) {
    if ClientCall::of_result(result).is_none() {
        return;
    }
    let mut by_item = None;
    for call in calls {
        if call.id == result.id {
            return;
        }
        if string(&call.rest, ITEM_ID).is_some_and(|id| id == result.id) {
            by_item = Some(&call.id);
        }
    }
    if let Some(id) = by_item {
        result.id.clone_from(id);
    }
}
