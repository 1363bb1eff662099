//! The server process that is killed: this test program, started again with a folder.

use async_trait::async_trait;
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::model::{Model, ModelError, ModelRequest, ModelStream};
use turnwire_agent::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use turnwire_agent::{Agent, AgentTool, Replier};
use turnwire_core::{Behavior, Json, ToolCall};
use turnwire_log::sqlite::Options;
use turnwire_log::{Log, SqliteStore};
use turnwire_server::config::Config;
use turnwire_server::{App, Server};

const FOLDER: &str = "TURNWIRE_TEST_CRASH_FOLDER";
/// Slow enough to be killed between two events.
const PACE: Duration = Duration::from_millis(2);

/// A server process.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
}

impl Process {
    pub fn start(folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server::the_server_that_is_killed", "--nocapture"])
            .env(FOLDER, folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().split_once("http://")?.1.parse().ok());
        Self { child, address: address.expect("the server starts") }
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself.
#[test]
fn the_server_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(folder.join("turnwire.db"), Options::default()).unwrap();
        let log = Arc::new(Log::new(Arc::new(store), format!("pid-{}", std::process::id())));
        let config = Config::parse("test", "listen = \"127.0.0.1:0\"").unwrap();
        let agent: Arc<dyn Replier> = Arc::new(friday(&folder));
        let agents: [(_, Arc<dyn Replier>); 3] =
            [("demo", agent.clone()), ("friday", agent), ("answers", Arc::new(answers()))];
        let agents: BTreeMap<_, _> =
            agents.into_iter().map(|(name, agent)| (name.to_owned(), agent)).collect();
        let server = Server::bind(App::new(config, log, agents).unwrap()).unwrap();
        println!("listens on {}", server.url());
        server.run(std::future::pending()).await;
    });
}

/// How often a tool has had its effect.
pub fn effects(folder: &Path, tool: &str) -> usize {
    std::fs::read(folder.join(tool)).map_or(0, |bytes| bytes.len())
}

/// A tool whose effect is a byte in a file.
struct Effect {
    spec: ToolSpec,
    file: PathBuf,
}

impl Effect {
    fn new(folder: &Path, name: &str) -> Self {
        let input = Json::from_value(&serde_json::json!({"type": "object"})).unwrap();
        Self { spec: ToolSpec::new(name, "", input), file: folder.join(name) }
    }
}

#[async_trait]
impl Tool for Effect {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn run(&self, _: ToolCall, out: ToolContext) -> Result<ToolOutput, ToolError> {
        let file = OpenOptions::new().create(true).append(true).open(&self.file);
        file.unwrap().write_all(b"x").unwrap();
        for part in ["one ", "two"] {
            tokio::time::sleep(PACE).await;
            out.send_text(part).await;
        }
        Ok(ToolOutput::Empty)
    }
}

fn says(texts: &[&str]) -> ScriptStep {
    ScriptStep::Text(texts.iter().map(|&text| text.to_owned()).collect())
}

/// The answer depends on how many calls have a result, never on the result.
fn friday(folder: &Path) -> Agent {
    let below = ScriptedModel::new([
        vec![says(&["Digging", "."]), ScriptStep::call("x", "dig", "{}")],
        vec![says(&["Found ", "it."])],
    ]);
    let researcher = Agent::builder("researcher", Paced(below.by_history()))
        .tool(Effect::new(folder, "dig"))
        .build();
    let model = ScriptedModel::new([
        vec![
            ScriptStep::thinking("Hm."),
            says(&["Let ", "me ", "see. "]),
            ScriptStep::call("a", "once", "{}"),
            ScriptStep::call("b", "again", "{}"),
        ],
        vec![],
        vec![says(&["May ", "I? "]), ScriptStep::call("c", "asked", "{}")],
        vec![ScriptStep::call("d", "researcher", r#"{"task":"dig"}"#)],
        vec![says(&["All ", "done."])],
    ]);
    let mut again = Effect::new(folder, "again");
    again.spec.idempotent = true;
    let mut asked = Effect::new(folder, "asked");
    asked.spec.behavior = Behavior::Ask;
    Agent::builder("friday", Paced(model.by_history()))
        .tool(Effect::new(folder, "once"))
        .tool(again)
        .tool(asked)
        .tool(AgentTool::new(researcher, "Digs"))
        .build()
}

/// Answers with a long JSON string.
fn answers() -> Agent {
    let answer = format!("\"{}\"", "a".repeat(2000));
    let script =
        ScriptedModel::new([vec![ScriptStep::text(&answer)], vec![ScriptStep::text(&answer)]]);
    Agent::builder("answers", Paced(script.by_history())).build()
}

/// A model that answers slowly.
struct Paced(ScriptedModel);

#[async_trait]
impl Model for Paced {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn stream(&self, ask: ModelRequest<'_>) -> Result<ModelStream, ModelError> {
        let slowly = |event| async {
            tokio::time::sleep(PACE).await;
            event
        };
        Ok(self.0.stream(ask).await?.then(slowly).boxed())
    }
}
