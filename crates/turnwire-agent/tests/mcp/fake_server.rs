//! A small MCP server. As a child process it is this test binary, started again.

use rmcp::model::{
    AudioContent, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
    EmbeddedResource, ErrorData, ImageContent, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, Resource, ResourceContents, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::stdio;
use rmcp::{ServerHandler, ServiceExt};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The environment variable with the folder for the server's files. Without it the test below does nothing.
pub const FOLDER: &str = "TURNWIRE_TEST_MCP_FOLDER";

/// The full name of the test below, which a child process runs.
pub const TEST: &str = "fake_server::serves_in_child_process";

/// With this environment variable, the server's list of tools never ends.
pub const ENDLESS: &str = "TURNWIRE_TEST_MCP_ENDLESS";

/// A page of tools: one that is too large, one that is too deep, and two that can be used. There is always
/// another page.
fn endless_tools(page: Option<PaginatedRequestParams>) -> ListToolsResult {
    let page = page.and_then(|page| page.cursor).map_or(0, |cursor| cursor.parse().unwrap());
    let with_schema = |name: &str, schema: Value| {
        let Value::Object(schema) = schema else { panic!() };
        Tool::new(format!("{name}{page}"), "", Arc::new(schema))
    };
    let deep = (0..110).fold(json!({}), |inner, _| json!({"not": inner}));
    let tools = vec![
        with_schema("good", json!({"type": "object"})),
        with_schema("large", json!({"description": "x".repeat(70 << 10)})),
        with_schema("deep", deep),
        with_schema("fine", json!({"type": "object"})),
    ];
    let mut listed = ListToolsResult::with_all_items(tools);
    listed.next_cursor = Some((page + 1).to_string());
    listed
}

#[derive(Clone)]
pub struct FakeServer {
    pub folder: PathBuf,
}

#[test]
#[ignore = "it is what other tests start"]
fn serves_in_child_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let server = FakeServer { folder: folder.into() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let running = server.serve(stdio()).await.unwrap();
        running.waiting().await.unwrap();
    });
    // A blocked read of stdin must not keep the process alive.
    std::process::exit(0);
}

fn tool(name: &'static str, about: &'static str) -> Tool {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let Value::Object(schema) = schema else { panic!() };
    Tool::new(name, about, Arc::new(schema))
}

impl FakeServer {
    /// Creates a file, so that the test sees what was called.
    fn note(&self, what: &str) {
        std::fs::write(self.folder.join(what), "").unwrap();
    }
}

impl ServerHandler for FakeServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if std::env::var_os(ENDLESS).is_some() {
            return Ok(endless_tools(page));
        }
        let reading = ToolAnnotations::with_title("Echo").read_only(true);
        let again = ToolAnnotations::new().idempotent(true);
        let destroying = ToolAnnotations::new().destructive(true);
        let mut tools = vec![
            tool("echo", "Says it again").with_annotations(reading),
            tool("again", "May run again").with_annotations(again),
            tool("destroys", "Destroys").with_annotations(destroying),
        ];
        tools.extend(
            [
                "show",
                "structured",
                "fails",
                "refuses",
                "broken",
                "steps",
                "environment",
                "pid",
                "dies",
                "hangs",
                "freezes",
            ]
            .map(|name| tool(name, "")),
        );
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text =
            |text: String| Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
        let arguments = request.arguments.unwrap_or_default();
        match &*request.name {
            "echo" | "again" => {
                let input = arguments.get("text").and_then(Value::as_str).unwrap_or("nothing");
                text(input.to_owned())
            }
            "show" => {
                let link = Resource::new("file:///a.txt", "a.txt").with_description("A file");
                let blocks = vec![
                    ContentBlock::text("one"),
                    ContentBlock::text("two"),
                    ContentBlock::Image(ImageContent::new("AAEC", "image/png")),
                    ContentBlock::Audio(AudioContent::new("AwQF", "audio/wav")),
                    ContentBlock::Resource(EmbeddedResource::new(ResourceContents::text(
                        "inside",
                        "file:///b.txt",
                    ))),
                    ContentBlock::Resource(EmbeddedResource::new(ResourceContents::blob(
                        "BgcI",
                        "file:///c.bin",
                    ))),
                    ContentBlock::ResourceLink(link),
                ];
                Ok(CallToolResult::success(blocks).into())
            }
            "structured" => {
                let mut result = CallToolResult::success(Vec::new());
                result.structured_content = Some(json!({"answer": 42}));
                Ok(result.into())
            }
            "fails" => Ok(CallToolResult::error(vec![ContentBlock::text("no such file")]).into()),
            "refuses" => Err(ErrorData::invalid_params("text is missing", None)),
            "broken" => {
                let image = ContentBlock::Image(ImageContent::new("not base64!", "image/png"));
                Ok(CallToolResult::success(vec![image]).into())
            }
            "steps" => {
                let token = context.meta.get_progress_token().unwrap();
                let step = ProgressNotificationParam::new(token, 1.0).with_message("one");
                context.peer.notify_progress(step).await.unwrap();
                while !self.folder.join("delta_received").exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                text("done".to_owned())
            }
            "environment" => {
                let mut names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                names.sort();
                text(names.join(" "))
            }
            "pid" => text(std::process::id().to_string()),
            "dies" => std::process::exit(3),
            "hangs" => {
                self.note("begun");
                context.ct.cancelled().await;
                self.note("cancelled");
                text("too late".to_owned())
            }
            // The whole server neither reads nor writes any more.
            "freezes" => loop {
                std::thread::park();
            },
            other => Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        }
    }
}
