//! Kills the processes that an MCP server has started, also those that left its process group. Called when
//! the connection to the MCP server closes.
//!
//! A process that calls `setsid` leaves the process group of the MCP server. Linux lists the parent and the
//! initial environment of every process in `/proc`. A process is a descendant of the MCP server if one of
//! its ancestors is the MCP server, or if its environment contains the mark that the MCP server was started
//! with. A process that cleared its environment and whose parent has ended has neither: it is found if this
//! process [adopts orphans](adopt_orphans), because then its parent is this process.

use parking_lot::Mutex;
use process_wrap::tokio::{ChildWrapper, CommandWrap, CommandWrapper};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{TokioChildProcess, Transport};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitpid,
};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::process::Command;

/// The environment variable with the mark.
const MARK_VARIABLE: &str = "TURNWIRE_MCP_SERVER";

/// How many times descendants are searched and killed, until none is left.
const MAX_KILL_ROUNDS: usize = 100;

/// The pause between two searches, in which killed processes end.
const KILL_ROUND_TIME: Duration = Duration::from_millis(10);

/// How often adopted processes that have ended are collected.
const REAP_INTERVAL: Duration = Duration::from_secs(10);

/// Makes this process the parent (subreaper) of processes that MCP servers leave behind, so that
/// [`end_descendants`] finds all of them. Collects the exit codes of those that end, and of every other
/// child of this process that no code waits for. Call it inside a Tokio runtime, in a program that starts
/// no other processes.
pub fn adopt_orphans() {
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        tracing::warn!(%error, "cannot adopt the processes that MCP servers leave behind");
        return;
    }
    tokio::spawn(async {
        let mut interval = tokio::time::interval(REAP_INTERVAL);
        let mut before = HashSet::new();
        loop {
            interval.tick().await;
            // A child that other code waits for has disappeared before the second look.
            let ended = tokio::task::spawn_blocking(move || reap(&before)).await;
            before = ended.unwrap_or_default();
        }
    });
}

/// Kills every descendant of this process. Blocks until none is left.
pub fn end_descendants() {
    let own = getpid().as_raw_nonzero().get();
    kill_all(|processes| processes.descendants_of(&HashSet::from([own])));
}

/// Collects the exit codes of children that had ended by the last call. Returns those that have ended now.
fn reap(before: &HashSet<(i32, u64)>) -> HashSet<(i32, u64)> {
    let own = getpid().as_raw_nonzero().get();
    let all = Processes::read();
    let ended = all.list.iter().filter(|process| process.parent == own && process.has_ended);
    let ended: HashSet<(i32, u64)> = ended.map(|process| (process.id, process.start)).collect();
    for (id, _) in ended.intersection(before) {
        let _ = waitpid(Pid::from_raw(*id), WaitOptions::NOHANG);
    }
    ended
}

/// Kills the processes that `find` returns, until it returns none.
fn kill_all(find: impl Fn(&Processes) -> Vec<Process>) {
    for _ in 0..MAX_KILL_ROUNDS {
        let found = find(&Processes::read());
        if found.is_empty() {
            return;
        }
        found.iter().for_each(Process::kill);
        thread::sleep(KILL_ROUND_TIME);
    }
    tracing::warn!("processes of MCP servers are still running after repeated kills");
}

/// An entry of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    /// The start time. Process ids are reused; id and start time together are unique.
    start: u64,
    /// Whether it is a zombie: only its exit code is left.
    has_ended: bool,
}

impl Process {
    fn read(id: i32) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name, in parentheses, may contain any character.
        let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
        let parent = fields.next()?.parse().ok()?;
        let start = fields.nth(17)?.parse().ok()?;
        Some(Self { id, parent, start, has_ended })
    }

    fn has_mark(&self, mark: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.id)).unwrap_or_default();
        let entry = format!("{MARK_VARIABLE}={mark}");
        environment.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
    }

    /// Kills it, but not another process that has got the same id since.
    fn kill(&self) {
        let Some(id) = Pid::from_raw(self.id) else { return };
        let Ok(handle) = pidfd_open(id, PidfdFlags::empty()) else { return };
        if Self::read(self.id).is_some_and(|now| now.start == self.start) {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// All processes of the system.
struct Processes {
    list: Vec<Process>,
}

impl Processes {
    fn read() -> Self {
        let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = folders.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self { list: ids.filter_map(Process::read).collect() }
    }

    /// The running processes that have one of `roots` as an ancestor.
    fn descendants_of(&self, roots: &HashSet<i32>) -> Vec<Process> {
        let parents: HashMap<i32, i32> =
            self.list.iter().map(|process| (process.id, process.parent)).collect();
        let is_below = |process: &&Process| {
            let mut id = process.parent;
            // `/proc` was not read at one moment, so there might be a cycle.
            for _ in 0..self.list.len() {
                if roots.contains(&id) {
                    return true;
                }
                match parents.get(&id) {
                    Some(parent) => id = *parent,
                    None => return false,
                }
            }
            false
        };
        self.list.iter().filter(|process| !process.has_ended).filter(is_below).copied().collect()
    }
}

/// Wraps the command of an MCP server, so that its descendants end with it.
#[derive(Debug)]
pub(super) struct EndDescendants {
    descendants: SharedDescendants,
}

impl EndDescendants {
    pub(super) fn new() -> io::Result<Self> {
        let mark = getrandom::u64().map_err(io::Error::other)?;
        let mark = format!("{}-{mark:016x}", std::process::id());
        let descendants = Arc::new(Mutex::new(Descendants { mark, known: Vec::new() }));
        Ok(Self { descendants })
    }

    pub(super) fn descendants(&self) -> SharedDescendants {
        self.descendants.clone()
    }
}

impl CommandWrapper for EndDescendants {
    fn pre_spawn(&mut self, command: &mut Command, _: &CommandWrap) -> io::Result<()> {
        command.env(MARK_VARIABLE, &self.descendants.lock().mark);
        Ok(())
    }

    fn wrap_child(
        &mut self,
        inner: Box<dyn ChildWrapper>,
        _: &CommandWrap,
    ) -> io::Result<Box<dyn ChildWrapper>> {
        let descendants = self.descendants.clone();
        let root = process_id(inner.id());
        Ok(Box::new(McpProcess {
            guard: DescendantGuard { descendants, root, has_ended: false },
            inner,
        }))
    }
}

/// The connection to an MCP server that is a child process. It records the descendants before it closes the
/// server's input: after the server has ended, their parent is another process.
pub(super) struct ChildTransport {
    pub(super) process: TokioChildProcess,
    pub(super) descendants: SharedDescendants,
}

impl Transport<RoleClient> for ChildTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.process.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.process.receive()
    }

    async fn close(&mut self) -> io::Result<()> {
        let (descendants, root) = (self.descendants.clone(), process_id(self.process.id()));
        let _ = tokio::task::spawn_blocking(move || record_descendants(&descendants, root)).await;
        self.process.close().await
    }
}

impl Drop for ChildTransport {
    fn drop(&mut self) {
        // After `close` there is no process.
        let root = process_id(self.process.id());
        if root.is_some() {
            record_descendants(&self.descendants, root);
        }
    }
}

fn process_id(id: Option<u32>) -> Option<i32> {
    id.and_then(|id| i32::try_from(id).ok())
}

/// Adds the descendants that run now to the known ones.
fn record_descendants(descendants: &SharedDescendants, root: Option<i32>) {
    let known = descendants.lock().clone();
    let found = known.find(&Processes::read(), root);
    descendants.lock().known.extend(found);
}

/// Shared by the process and the connection to it.
pub(super) type SharedDescendants = Arc<Mutex<Descendants>>;

/// The descendants of an MCP server.
#[derive(Debug, Clone)]
pub(super) struct Descendants {
    mark: String,
    /// Descendants that were found before the server ended.
    known: Vec<Process>,
}

impl Descendants {
    /// All running descendants, and the server itself while it runs.
    fn find(&self, all: &Processes, root: Option<i32>) -> Vec<Process> {
        let is_known = |process: &Process| {
            self.known.iter().any(|known| (known.id, known.start) == (process.id, process.start))
        };
        let known = all.list.iter().filter(|process| is_known(process));
        let roots: HashSet<i32> = known.map(|process| process.id).chain(root).collect();
        let mut found = all.descendants_of(&roots);
        let others = all
            .list
            .iter()
            .filter(|process| !process.has_ended)
            .filter(|process| roots.contains(&process.id) || process.has_mark(&self.mark));
        found.extend(others);
        found
    }
}

/// Kills the descendants when it is dropped, unless they were killed before.
#[derive(Debug)]
struct DescendantGuard {
    descendants: SharedDescendants,
    /// The process id of the MCP server, until its exit code was collected.
    root: Option<i32>,
    has_ended: bool,
}

impl Drop for DescendantGuard {
    fn drop(&mut self) {
        if !self.has_ended {
            let descendants = self.descendants.lock().clone();
            kill_all(|all| descendants.find(all, self.root));
        }
    }
}

/// A running MCP server. Its descendants are killed before it: fields are dropped in this order.
#[derive(Debug)]
struct McpProcess {
    guard: DescendantGuard,
    inner: Box<dyn ChildWrapper>,
}

impl ChildWrapper for McpProcess {
    fn inner(&self) -> &dyn ChildWrapper {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn ChildWrapper {
        &mut *self.inner
    }

    fn into_inner(self: Box<Self>) -> Box<dyn ChildWrapper> {
        let Self { mut guard, inner } = *self;
        guard.has_ended = true;
        inner
    }

    fn start_kill(&mut self) -> io::Result<()> {
        record_descendants(&self.guard.descendants, self.guard.root);
        let known = self.guard.descendants.lock().known.clone();
        known.iter().for_each(Process::kill);
        self.inner.start_kill()
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.inner.try_wait()?;
        if status.is_some() {
            self.guard.root = None;
        }
        Ok(status)
    }

    fn wait(&mut self) -> Pin<Box<dyn Future<Output = io::Result<ExitStatus>> + Send + '_>> {
        Box::pin(async {
            // A server that ends by itself may leave descendants: record them while it is their ancestor.
            let (descendants, root) = (self.guard.descendants.clone(), self.guard.root);
            let _ =
                tokio::task::spawn_blocking(move || record_descendants(&descendants, root)).await;
            let status = self.inner.wait().await?;
            self.guard.root = None;
            let descendants = self.guard.descendants.lock().clone();
            let ended =
                tokio::task::spawn_blocking(move || kill_all(|all| descendants.find(all, None)));
            self.guard.has_ended = ended.await.is_ok();
            Ok(status)
        })
    }
}
