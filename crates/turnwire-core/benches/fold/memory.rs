//! Measures the peak memory of a fold. The program starts itself once per figure, because the peak of a
//! process never falls.

use crate::Result;
use crate::streams::{Shape, Stream, random_id};
use fastrand::Rng;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::{env, fs};
use turnwire_core::event::ModelCallStart;
use turnwire_core::{Event, Folder, Seq};

/// The argument that makes this program such a child process; a task and its subject follow.
pub const CHILD: &str = "peak-memory";

const STREAM: &str = "stream";
const IDS: &str = "ids";
const SEQS: &str = "seqs";
const EVENTS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// For the largest data block, as a multiple of its size.
    pub data: f64,
    /// Bytes for each event.
    pub by_id: f64,
    pub by_seq: f64,
}

/// `None` if the system does not report the peak.
pub fn measure(streams: &[Stream], folder: &Path) -> Result<Option<Memory>> {
    let Some((Shape::Data(mib), data)) = streams.last().map(|last| (last.shape, &last.path)) else {
        return Err("no stream with data".into());
    };
    let empty = folder.join("empty.ndjson");
    fs::write(&empty, "")?;
    let count = EVENTS.to_string();
    let peaks = [
        measure_peak(STREAM, &data.to_string_lossy())?,
        measure_peak(STREAM, &empty.to_string_lossy())?,
        measure_peak(IDS, &count)?,
        measure_peak(SEQS, &count)?,
        measure_peak(IDS, "0")?,
    ];
    let [Some(data), Some(empty), Some(ids), Some(seqs), Some(none)] = peaks else {
        return Ok(None);
    };
    Ok(Some(Memory {
        data: (data - empty) / (mib << 20) as f64,
        by_id: (ids - none) / EVENTS as f64,
        by_seq: (seqs - none) / EVENTS as f64,
    }))
}

/// The peak of a child, in bytes.
fn measure_peak(task: &str, subject: &str) -> Result<Option<f64>> {
    let output = Command::new(env::current_exe()?).args([CHILD, task, subject]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let kib = str::from_utf8(&output.stdout)?.trim().parse::<f64>();
    Ok(kib.ok().map(|kib| kib * 1024.0))
}

pub fn run_child(task: &str, subject: &str) -> Result<()> {
    match task {
        STREAM => fold_lines(subject)?,
        IDS => {
            let mut random = Rng::with_seed(1);
            fold_calls(subject.parse()?, |event, _| event.id = random_id(&mut random).into())?;
        }
        SEQS => fold_calls(subject.parse()?, |event, seq| event.seq = Seq::new(seq))?,
        _ => return Err(format!("no task {task}").into()),
    }
    println!("{}", read_own_peak().unwrap_or_else(|| "not reported".to_owned()));
    Ok(())
}

fn fold_lines(path: &str) -> Result<()> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut folder = Folder::default();
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        folder.push(&Event::from_json(&line)?)?;
        line.clear();
    }
    Ok(())
}

/// Folds events that change only the state of the fold, not the message.
fn fold_calls(count: u64, mut mark: impl FnMut(&mut Event<'_>, u64)) -> Result<()> {
    let start = ModelCallStart { model_name: "qwen-max".to_owned() };
    let mut event = Event::new("r", start);
    let mut folder = Folder::default();
    for seq in 1..=count {
        mark(&mut event, seq);
        folder.push(&event)?;
    }
    Ok(())
}

/// In KiB, as Linux reports it.
fn read_own_peak() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").to_owned())
}
