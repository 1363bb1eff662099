//! Measures the speed and memory of the fold: `make bench`.
//!
//! Three programs fold the same streams, which are in memory before the clock starts:
//!
//! - ours: parses each line to an [`Event`] and folds it with a [`Folder`];
//! - the floor: parses each line with `serde_json` as raw JSON and copies its delta from a known position. A
//!   program that reads every byte can hardly do less;
//! - AgentScope for Python, if `AGENTSCOPE_PYTHON` is the path of an interpreter that has it.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::print_stderr, reason = "a benchmark prints its progress")]
#![expect(clippy::cast_precision_loss, reason = "figures are shown with three digits")]

mod agentscope;
mod memory;
mod report;
mod streams;
mod timing;

use agentscope::AgentScope;
use report::Measured;
use std::error::Error;
use std::path::PathBuf;
use std::{env, fs, process};
use turnwire_core::{ContentBlock, Event, Folder, Msg, Source};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let [memory::CHILD, task, subject] = args.as_slice() {
        return memory::run_child(task, subject);
    }
    // `cargo test --all-targets` starts this program too: unoptimized, and without `--bench`.
    if !args.contains(&"--bench") {
        println!("nothing was measured; run it with `cargo bench`");
        return Ok(());
    }
    let temp = TempFolder::new()?;
    eprintln!("writing the streams");
    let streams = streams::write_all(&temp.0)?;
    eprintln!("timing ours and the floor");
    let times = timing::measure_interleaved(&streams)?;
    let rates = timing::measure_parsed(&streams)?;
    eprintln!("measuring memory");
    let memory = memory::measure(&streams, &temp.0)?;
    let agentscope = AgentScope::from_env().map(|agentscope| agentscope.fold_all(&streams));
    report::print(&Measured { streams: &streams, times, rates, memory, agentscope });
    Ok(())
}

/// The measured work: from the bytes of a stream to its message.
fn json_to_message(json: &[u8]) -> Result<Folder> {
    let mut folder = Folder::default();
    for line in lines(json) {
        folder.push(&Event::from_json(std::str::from_utf8(line)?)?)?;
    }
    Ok(folder)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', bytes).filter_map(move |end| {
        let line = bytes.get(start..end);
        start = end + 1;
        line
    })
}

/// The concatenated content of all deltas.
fn content(folder: &Folder) -> String {
    let blocks = folder.messages().flat_map(Msg::content);
    let texts = blocks.map(|block| match block {
        ContentBlock::Text(block) => block.text.as_str(),
        ContentBlock::Data(block) => match &block.source {
            Source::Base64(source) => source.data.as_str(),
            Source::Url(_) | Source::Other(_) => "",
        },
        _ => "",
    });
    texts.collect()
}

/// A directory that is removed on exit.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> Result<Self> {
        let path = env::temp_dir().join(format!("turnwire-bench-{}", process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
