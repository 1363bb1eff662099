//! Process figures: memory, processor time, and the limit of open files.

use super::error::{BenchError, Result};
use std::fs;
use std::time::Duration;

/// The resident memory of a process, in KiB.
pub(super) fn resident_kib(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(|error| {
        BenchError::new(format!(
            "cannot read {path}: {error}. --pid is the server's process on this machine (Linux only)"
        ))
    })?;
    field(&text, "VmRSS:")
        .ok_or_else(|| BenchError::new(format!("{path} has no VmRSS: process {pid} has ended")))
}

/// The processor time of a process, over all its threads.
pub(super) fn processor_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/task");
    let unreadable = |error: &dyn std::fmt::Display| {
        BenchError::new(format!(
            "cannot read {path}: {error}. --pid is the server's process on this machine (Linux only)"
        ))
    };
    let mut nanos = 0;
    for task in fs::read_dir(&path).map_err(|error| unreadable(&error))? {
        let task = task.map_err(|error| unreadable(&error))?.path().join("schedstat");
        // A thread that has just ended has no entry.
        let Ok(text) = fs::read_to_string(task) else { continue };
        nanos += text.split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Raises the limit of open files, and fails if it is too low.
#[cfg(unix)]
pub(super) fn allow_open_files(wanted: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Open files besides the connections.
    const OTHERS: u64 = 64;
    let wanted = wanted.saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        return Err(BenchError::new(format!(
            "{wanted} open files are needed and {} allowed: raise the hard limit (ulimit -Hn), or use \
             fewer watchers. The server needs as many",
            limit.maximum.unwrap_or_default()
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
        .map_err(|error| BenchError::new(format!("cannot raise the limit of open files: {error}")))
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub(super) fn allow_open_files(_wanted: u64) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_memory_is_read_from_the_status() {
        let status = "Name:\tturnwire\nVmPeak:\t 9 kB\nVmRSS:\t   12345 kB\nThreads:\t3\n";
        assert_eq!(field(status, "VmRSS:"), Some(12345));
        assert_eq!(field("Name:\tzombie\n", "VmRSS:"), None);
    }

    #[test]
    fn too_few_open_files_are_reported_before_the_measurement() {
        assert!(allow_open_files(16).is_ok());
        let failed = allow_open_files(u64::MAX - 1000);
        assert!(failed.is_err() || getrlimit_is_unlimited());
    }

    fn getrlimit_is_unlimited() -> bool {
        rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.is_none()
    }
}
