//! Generates the streams to fold: one reply each, in the JSON that AgentScope writes.

use crate::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fastrand::Rng;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// Content of a stream, besides the start and end of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One text block with this many deltas.
    Deltas(usize),
    /// This many text blocks with 20 deltas each.
    Blocks(usize),
    /// One data block of this many MiB, in chunks of 64 KiB.
    Data(usize),
}

const SHAPES: [Shape; 7] = [
    Shape::Deltas(100_000),
    Shape::Blocks(100),
    Shape::Blocks(1_000),
    Shape::Blocks(5_000),
    Shape::Data(1),
    Shape::Data(4),
    Shape::Data(16),
];

impl Shape {
    /// How often one timing folds it. So the timings of a kind process the same bytes and use the same memory,
    /// and caches and fresh pages do not distort the growth.
    pub fn repeats(self) -> usize {
        match self {
            Self::Deltas(_) => 1,
            Self::Blocks(count) => 5_000 / count,
            Self::Data(mib) => 16 / mib,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deltas(count) => write!(f, "{} deltas", thousands(*count)),
            Self::Blocks(count) => write!(f, "{} blocks of 20 deltas", thousands(*count)),
            Self::Data(mib) => write!(f, "a data block of {mib} MiB"),
        }
    }
}

fn thousands(count: usize) -> String {
    if count < 1_000 {
        count.to_string()
    } else {
        format!("{},{:03}", count / 1_000, count % 1_000)
    }
}

pub struct Stream {
    pub shape: Shape,
    pub json: Vec<u8>,
    /// The range of the delta in each line; empty if the line has none.
    pub deltas: Vec<Range<usize>>,
    pub path: PathBuf,
}

pub fn write_all(folder: &Path) -> Result<Vec<Stream>> {
    let write = |(at, shape): (usize, &Shape)| {
        let path = folder.join(format!("{at}.ndjson"));
        let (json, deltas) = Writer::new().write(*shape);
        fs::write(&path, &json)?;
        Ok(Stream { shape: *shape, json: json.into_bytes(), deltas, path })
    };
    SHAPES.iter().enumerate().map(write).collect()
}

/// Tokens of a model, as written inside a JSON string.
const TOKENS: &str = concat!(
    " the| stream|ing| of| events|,| and| each| message| is| folded| from| its| parts|.|\\n\\n| A| to",
    "ken| has| about| five| charac|ters| \\\"quoted\\\"| naïve| in| order| to| re|assemble| blocks|:",
);

struct Writer {
    json: String,
    deltas: Vec<Range<usize>>,
    random: Rng,
    reply: String,
}

impl Writer {
    /// Always the same seed: the same streams in every run.
    fn new() -> Self {
        let mut random = Rng::with_seed(1);
        let reply = random_id(&mut random);
        Self { json: String::new(), deltas: Vec::new(), random, reply }
    }

    fn write(mut self, shape: Shape) -> (String, Vec<Range<usize>>) {
        let call = format!(r#""reply_id":"{}""#, self.reply);
        let session = format!(r#""session_id":"{}",{call}"#, random_id(&mut self.random));
        self.event("REPLY_START", &format!(r#"{session},"name":"friday","role":"assistant""#));
        self.event("MODEL_CALL_START", &format!(r#"{call},"model_name":"qwen-max""#));
        match shape {
            Shape::Deltas(count) => self.text_block(count),
            Shape::Blocks(count) => (0..count).for_each(|_| self.text_block(20)),
            Shape::Data(mib) => self.data_block(mib),
        }
        let tokens = r#""input_tokens":812,"output_tokens":4096,"cache_input_tokens":0"#;
        let end = r#""cache_creation_input_tokens":0,"finished_reason":"completed""#;
        self.event("MODEL_CALL_END", &format!("{call},{tokens},{end}"));
        let end = r#""finished_reason":"completed","error":null"#;
        self.event("REPLY_END", &format!("{session},{end}"));
        (self.json, self.deltas)
    }

    fn text_block(&mut self, deltas: usize) {
        let tokens: Vec<&str> = TOKENS.split('|').collect();
        let block = self.block();
        self.event("TEXT_BLOCK_START", &block);
        for _ in 0..deltas {
            let token = self.random.choice(&tokens).copied().unwrap_or_default();
            self.line("TEXT_BLOCK_DELTA", &format!(r#"{block},"delta":""#), token, "\"");
        }
        self.event("TEXT_BLOCK_END", &format!(r#"{block},"text":null"#));
    }

    /// Each chunk is encoded separately, with its own padding: AgentScope requires that.
    fn data_block(&mut self, mib: usize) {
        const CHUNK: usize = 64 << 10;
        let block = self.block();
        let data = format!(r#"{block},"media_type":"image/png""#);
        self.event("DATA_BLOCK_START", &format!(r#"{data},"name":null"#));
        let mut bytes = vec![0; CHUNK];
        for _ in 0..(mib << 20) / CHUNK {
            self.random.fill(&mut bytes);
            let chunk = STANDARD.encode(&bytes);
            let before = format!(r#"{data},"data":""#);
            self.line("DATA_BLOCK_DELTA", &before, &chunk, r#"","url":null"#);
        }
        self.event("DATA_BLOCK_END", &block);
    }

    fn block(&mut self) -> String {
        format!(r#""reply_id":"{}","block_id":"{}""#, self.reply, random_id(&mut self.random))
    }

    fn event(&mut self, kind: &str, fields: &str) {
        self.line(kind, fields, "", "");
    }

    fn line(&mut self, kind: &str, before: &str, delta: &str, after: &str) {
        let (id, time) = (random_id(&mut self.random), format_time(self.deltas.len()));
        let head = r#","metadata":{},"type""#;
        // Writing to a string cannot fail.
        let _ = write!(self.json, r#"{{"id":"{id}","created_at":"{time}"{head}:"{kind}",{before}"#);
        let start = self.json.len();
        self.json.push_str(delta);
        self.deltas.push(start..self.json.len());
        self.json.push_str(after);
        self.json.push_str("}\n");
    }
}

/// The timestamp of the event at this index: one every 12,345 microseconds.
fn format_time(at: usize) -> String {
    let micros = at * 12_345 + 123_456;
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (hour, minute, second) = (9 + seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("2026-03-01T{hour:02}:{minute:02}:{second:02}.{micros:06}")
}

/// An id as AgentScope makes them.
pub fn random_id(random: &mut Rng) -> String {
    format!("{:032x}", random.u128(..))
}
