//! JSON Schemas of clients, compiled and checked within limits. The agent loop and the server call it.
//!
//! A schema comes from a client, so neither compiling it nor checking an answer against it may cost more
//! than a fixed amount. The `jsonschema` crate repeats the work of a subschema each time it is referred
//! to, which is exponential for a few hundred bytes of schema. So only its single-value keywords are
//! used here (`type`, `enum`, `pattern`, `format`, …). The keywords that apply other schemas (`$ref`,
//! `anyOf`, `properties`, …) are checked by `schema::check`, over a graph in which a subschema that is
//! referred to often is there once. What it found for a subschema and a value is remembered, and every
//! step is counted.
//!
//! ```
//! use turnwire_agent::schema::{AnswerError, Schema};
//! use turnwire_core::Json;
//!
//! let text = r##"{"properties": {"children": {"items": {"$ref": "#"}}}, "required": ["name"]}"##;
//! let tree = Schema::compile(&Json::parse(text)?).unwrap();
//! assert!(tree.check(&serde_json::json!({"name": "a", "children": [{"name": "b"}]})).is_ok());
//! let Err(AnswerError::Mismatch(why)) = tree.check(&serde_json::json!({"name": "a", "children": [{}]}))
//! else { panic!() };
//! assert!(why.contains("/children/0"));
//! # Ok::<(), turnwire_core::Error>(())
//! ```

mod check;
mod graph;
mod keywords;
mod measure;
mod tools;
mod workers;

pub use tools::{MAX_TOOL_BYTES, MAX_TOOLS, MAX_TOOLS_BYTES, check_tool, check_tools};
pub(crate) use workers::run_on_worker;

#[cfg(test)]
mod tests;

pub(crate) use check::Checker;
use graph::Graph;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use turnwire_core::Json;

/// The largest schema, in bytes of JSON.
pub const MAX_BYTES: usize = 256 << 10;
/// The deepest nesting of arrays and objects in a schema.
pub const MAX_DEPTH: usize = 96;
/// The most subschemas.
pub const MAX_NODES: usize = 10_000;
/// The most subschemas after each reference is replaced by its target.
pub const MAX_EXPANDED_NODES: u64 = 1_000_000;
/// The most different regular expressions in a schema.
pub const MAX_PATTERNS: usize = 200;
/// The longest regular expression, in bytes.
pub const MAX_PATTERN_BYTES: usize = 4096;
/// The most bytes of all compiled regular expressions of a schema.
pub const MAX_COMPILED_PATTERN_BYTES: usize = 4 << 20;
/// The largest answer that is checked, in bytes of JSON.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;
/// The most steps to check one answer.
pub const MAX_STEPS: u64 = 5_000_000;

/// Why a schema is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is not a JSON Schema, or has an unresolved reference.
    #[error("invalid JSON Schema: {0}")]
    Invalid(String),
    /// It is above a limit.
    #[error("the JSON Schema is too large: {0}")]
    TooLarge(String),
    /// Compiling it took too long.
    #[error("the JSON Schema takes too long to compile")]
    TooSlow,
}

/// The longest reason: it may contain the whole schema.
const MAX_REASON_BYTES: usize = 500;

impl SchemaError {
    fn invalid(why: impl fmt::Display) -> Self {
        let mut why = why.to_string();
        if why.len() > MAX_REASON_BYTES {
            why.truncate(why.floor_char_boundary(MAX_REASON_BYTES));
            why.push('…');
        }
        Self::Invalid(why)
    }
}

/// Why an answer is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub enum AnswerError {
    /// It does not match the schema.
    Mismatch(String),
    /// Checking it costs too much.
    TooExpensive(String),
}

/// A compiled schema.
pub struct Schema {
    graph: Graph,
}

impl Schema {
    /// Compiles a schema within the limits. Fetches nothing. Blocks, up to a second for the largest
    /// schemas.
    pub fn compile(schema: &Json) -> Result<Self, SchemaError> {
        Self::compile_until(schema, workers::deadline())
    }

    fn compile_until(schema: &Json, deadline: std::time::Instant) -> Result<Self, SchemaError> {
        let value = measure::parse(schema)?;
        let graph = Graph::build(&value, deadline)?;
        Ok(Self { graph })
    }

    /// Checks a value. Blocks for at most [`MAX_STEPS`] steps.
    pub fn check(&self, value: &Value) -> Result<(), AnswerError> {
        self.checker().check(value)
    }

    /// A checker that counts its steps over all values.
    pub(crate) fn checker(&self) -> Checker<'_> {
        Checker::new(&self.graph, MAX_STEPS, workers::deadline())
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").finish_non_exhaustive()
    }
}

/// Validates a schema on a worker thread. Remembers valid schemas: most clients send the same schema with
/// each message.
pub async fn check_schema(schema: &Json) -> Result<(), SchemaError> {
    static ACCEPTED: LazyLock<AcceptedSchemas> = LazyLock::new(AcceptedSchemas::default);
    let key = ACCEPTED.hasher.hash_one(schema.text());
    if ACCEPTED.keys.lock().contains(&key) {
        return Ok(());
    }
    let schema = schema.clone();
    let compiled =
        run_on_worker(move |deadline| Schema::compile_until(&schema, deadline).map(drop)).await;
    compiled.unwrap_or(Err(SchemaError::TooSlow))?;
    let mut keys = ACCEPTED.keys.lock();
    keys.push_back(key);
    if keys.len() > MAX_ACCEPTED {
        keys.pop_front();
    }
    Ok(())
}

/// How many valid schemas are remembered.
const MAX_ACCEPTED: usize = 256;

/// The hashes of valid schemas. A collision does no harm: a schema is compiled again before an answer is
/// checked.
#[derive(Default)]
struct AcceptedSchemas {
    hasher: RandomState,
    keys: Mutex<VecDeque<u64>>,
}
