//! Prints two tables: the figures with their goals, and the times of each stream.

use crate::Result;
use crate::agentscope::Run;
use crate::memory::Memory;
use crate::streams::{Shape, Stream};
use crate::timing::{ROUNDS, Rates, Times};

pub struct Measured<'s> {
    pub streams: &'s [Stream],
    /// Times of each stream.
    pub times: Vec<Times>,
    pub rates: Rates,
    /// `None`: the system does not report it.
    pub memory: Option<Memory>,
    /// A run for each stream. `None`: not requested.
    pub agentscope: Option<Result<Vec<Run>>>,
}

pub fn print(measured: &Measured<'_>) {
    println!("Ours and the floor: the best of {ROUNDS} interleaved rounds, on bytes in memory.");
    println!("{}\n", measured.about_agentscope());
    println!("| figure | must reach | measured |\n|---|---|---|");
    for figure in measured.figures() {
        let missed = if figure.reached == Some(false) { " (missed)" } else { "" };
        println!("| {} | {} | {}{missed} |", figure.name, figure.goal, figure.measured);
    }
    println!();
    measured.print_times();
}

const NOT_MEASURED: &str = "not measured";

struct Figure {
    name: &'static str,
    goal: &'static str,
    measured: String,
    /// `None`: not measured.
    reached: Option<bool>,
}

impl Figure {
    fn new(name: &'static str, goal: &'static str, measured: Option<(String, bool)>) -> Self {
        let (measured, reached) = match measured {
            Some((measured, reached)) => (measured, Some(reached)),
            None => (NOT_MEASURED.to_owned(), None),
        };
        Self { name, goal, measured, reached }
    }
}

impl Measured<'_> {
    /// The times of each stream; the columns of AgentScope only if it ran.
    fn print_times(&self) {
        let has_agentscope = matches!(&self.agentscope, Some(Ok(_)));
        let (columns, line) = if has_agentscope {
            (" AgentScope | with a faster reader | AgentScope / ours |", "---|---|---|")
        } else {
            ("", "")
        };
        println!("| JSON to message | ours | floor | ours / floor |{columns}");
        println!("|---|---|---|---|{line}");
        for (stream, Times { ours, floor }) in self.streams.iter().zip(&self.times) {
            let shape = stream.shape;
            print!(
                "| {shape} | {} | {} | {:.2} |",
                format_seconds(*ours),
                format_seconds(*floor),
                ours / floor
            );
            if let Some(run) = self.run(shape) {
                let (own, faster) = (run.own / ours, run.faster / ours);
                print!(
                    " {} | {} | {own:.0}, {faster:.0} |",
                    format_seconds(run.own),
                    format_seconds(run.faster)
                );
            }
            println!();
        }
    }

    fn figures(&self) -> [Figure; 7] {
        [
            Figure::new(
                "JSON to message, against AgentScope, 100 thousand deltas",
                "100 times as fast",
                self.against_agentscope(Shape::Deltas(100_000), 100.0),
            ),
            Figure::new(
                "the same, against the raw-JSON floor",
                "no slower than 2.5 times the floor",
                self.against_floor(Shape::Deltas(100_000), 2.5),
            ),
            Figure::new(
                "folding parsed events, identified by seq / by id",
                "30 / 12 million a second",
                Some(self.already_parsed(30e6, 12e6)),
            ),
            Figure::new(
                "JSON to message, 5,000 blocks of 20 deltas, against AgentScope",
                "500 times as fast",
                self.against_agentscope(Shape::Blocks(5_000), 500.0),
            ),
            Figure::new(
                "growth from 100 to 5,000 blocks, and from 1 to 16 MiB",
                "slope at most 1.1",
                Some(self.growth(1.1)),
            ),
            Figure::new(
                "peak memory while folding a 16 MiB data block, less that of an empty fold",
                "at most 3 times its size",
                self.memory.map(|Memory { data, .. }| (format!("{data:.2} times"), data <= 3.0)),
            ),
            Figure::new(
                "memory to recognise a repeated event, by id / by seq",
                "48 bytes / 0",
                self.memory.map(|Memory { by_id, by_seq, .. }| {
                    // The system counts whole pages, so zero is measured as a little more.
                    let reached = by_id <= 48.0 && by_seq < 0.5;
                    (format!("{by_id:.1} bytes / {by_seq:.1}"), reached)
                }),
            ),
        ]
    }

    fn against_agentscope(&self, shape: Shape, goal: f64) -> Option<(String, bool)> {
        let (run, ours) = (self.run(shape)?, self.times(shape)?.ours);
        let (own, faster) = (run.own / ours, run.faster / ours);
        let text = format!("{own:.0} times ({faster:.0} times with a faster reader than its own)");
        Some((text, own >= goal))
    }

    fn against_floor(&self, shape: Shape, goal: f64) -> Option<(String, bool)> {
        let Times { ours, floor } = self.times(shape)?;
        Some((format!("{:.2} times", ours / floor), ours / floor <= goal))
    }

    fn already_parsed(&self, seq_goal: f64, id_goal: f64) -> (String, bool) {
        let Rates { by_seq, by_id } = self.rates;
        let text = format!("{:.1} / {:.1} million a second", by_seq / 1e6, by_id / 1e6);
        (text, by_seq >= seq_goal && by_id >= id_goal)
    }

    /// The growth of ours, next to that of the floor, which shows the influence of the machine.
    fn growth(&self, goal: f64) -> (String, bool) {
        let blocks = |shape| match shape {
            Shape::Blocks(count) => Some(count),
            Shape::Deltas(_) | Shape::Data(_) => None,
        };
        let data = |shape| match shape {
            Shape::Data(mib) => Some(mib),
            Shape::Deltas(_) | Shape::Blocks(_) => None,
        };
        let ours = |times: &Times| times.ours;
        let floor = |times: &Times| times.floor;
        let (of_blocks, of_data) = (self.slope(blocks, ours), self.slope(data, ours));
        let (floor_blocks, floor_data) = (self.slope(blocks, floor), self.slope(data, floor));
        (
            format!(
                "{of_blocks:.2}, {of_data:.2}; of the floor {floor_blocks:.2}, {floor_data:.2}"
            ),
            of_blocks <= goal && of_data <= goal,
        )
    }

    /// The exponent of the growth of time with size: least squares of the logarithms.
    fn slope(&self, size: fn(Shape) -> Option<usize>, time: fn(&Times) -> f64) -> f64 {
        let sizes = self.streams.iter().map(|stream| size(stream.shape));
        let points: Vec<(f64, f64)> = sizes
            .zip(&self.times)
            .filter_map(|(size, times)| Some(((size? as f64).ln(), time(times).ln())))
            .collect();
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        covariance / variance
    }

    fn times(&self, shape: Shape) -> Option<Times> {
        self.times.get(self.stream_index(shape)?).copied()
    }

    fn run(&self, shape: Shape) -> Option<&Run> {
        self.agentscope.as_ref()?.as_ref().ok()?.get(self.stream_index(shape)?)
    }

    fn stream_index(&self, shape: Shape) -> Option<usize> {
        self.streams.iter().position(|stream| stream.shape == shape)
    }

    fn about_agentscope(&self) -> String {
        match &self.agentscope {
            None => {
                "AgentScope: not measured, because AGENTSCOPE_PYTHON is not set.".to_owned()
            }
            Some(Err(error)) => format!("AgentScope: not measured, because it failed: {error}"),
            Some(Ok(runs)) => runs.first().map_or(String::new(), |run| {
                format!(
                    "AgentScope {}: CPU seconds, with its own reader (pydantic's union of its event \
                     classes) and with one that reads the type first.",
                    run.version
                )
            }),
        }
    }
}

fn format_seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.3} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}
