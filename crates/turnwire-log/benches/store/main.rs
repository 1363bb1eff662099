//! Speed of the SQLite engine: `cargo bench -p turnwire-log --bench store`.
//!
//! Many tasks append to many sessions, and each awaits its append. The engine is compared with three
//! simple layouts of the same events in SQLite, with the same group commit and checkpoints, in
//! alternating rounds. `-- open` measures opening a large store and reading from it instead, `-- history` finding a
//! session by the history that a client sends.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::cast_precision_loss, reason = "figures are shown with three digits")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has no figures")]

mod history;
mod large;
mod layouts;
mod load;

use layouts::{Layout, PlainStore};
use load::{Figures, Load};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{env, fs};
use turnwire_log::SqliteStore;
use turnwire_log::sqlite::Options;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    // `cargo test --all-targets` starts this program too: unoptimized, and without `--bench`.
    if !args.iter().any(|arg| arg == "--bench") {
        println!("nothing was measured; start it with `cargo bench`");
        return;
    }
    if let Some(at) = args.iter().position(|arg| arg == "look") {
        return large::measure_open(Path::new(args.get(at + 1).unwrap()));
    }
    if args.iter().any(|arg| arg == "open") {
        return large::measure(env_or("SESSIONS", 100_000));
    }
    if args.iter().any(|arg| arg == "history") {
        return with_temp_store(|path| history::measure(path, env_or("SESSIONS", 100_000)));
    }
    let time = Duration::from_secs(env_or("SECONDS", 4));
    let (rounds, layouts) = (env_or("ROUNDS", 3), env_or("LAYOUTS", Layout::ALL.len()));
    println!("256 tasks, 1,000 sessions, events of about 200 bytes; median of {rounds} rounds\n");
    println!(
        "| layout | events per append | appends/s | events/s | p50 ms | p99 ms | max ms | CPU µs per append |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for batch in [1, 64] {
        let load = Load { tasks: 256, sessions: 1000, batch, messages: None, time };
        let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); 4];
        for _ in 0..rounds {
            let [ours, others @ ..] = figures.as_mut_slice() else { return };
            ours.push(with_temp_store(|path| {
                load.run(SqliteStore::open(path, Options::default()).unwrap())
            }));
            for (layout, figures) in Layout::ALL.into_iter().zip(others).take(layouts) {
                figures
                    .push(with_temp_store(|path| load.run_plain(PlainStore::open(path, layout))));
            }
        }
        let names =
            ["the engine: tail, then segments"].into_iter().chain(Layout::ALL.map(Layout::name));
        for (name, mut figures) in names.zip(figures) {
            figures.sort_by(|one, other| one.rate.total_cmp(&other.rate));
            let Some(median) = figures.get(figures.len() / 2) else { continue };
            print(name, batch, median);
        }
    }
    let load = Load { tasks: 256, sessions: 1000, batch: 1, messages: Some(50), time };
    let figures =
        with_temp_store(|path| load.run(SqliteStore::open(path, Options::default()).unwrap()));
    print("the engine, with a message every 50 appends", 1, &figures);
}

fn print(name: &str, batch: u32, figures: &Figures) {
    println!(
        "| {name} | {batch} | {:.0} | {:.0} | {:.2} | {:.2} | {:.1} | {:.1} |",
        figures.rate,
        figures.rate * f64::from(batch),
        figures.p50,
        figures.p99,
        figures.max,
        figures.cpu
    );
}

fn env_or<T: FromStr>(name: &str, usual: T) -> T {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// In the build folder, because `/tmp` may be in memory; `FOLDER` chooses another.
fn with_temp_store<T>(work: impl FnOnce(&Path) -> T) -> T {
    let parent = env_or("FOLDER", PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    fs::create_dir_all(&parent).unwrap();
    let folder = tempfile::tempdir_in(parent).unwrap();
    work(&folder.path().join("store.db"))
}
