//! A store in memory whose appends and reads finish only when the test says so.

use crate::wrapped_store::{Hooks, WrappedStore};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use turnwire_log::store::*;
use turnwire_log::{Error, MemoryStore, Result, Store};

/// What can be held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Appends,
    /// The answers to appends that are durable.
    Acknowledgements,
    Reads,
    /// Lists of messages, after they were read.
    Messages,
    Deletes,
    /// Searches of the tenant `slow`.
    Searches,
}

/// What is held back, what has been done, and which errors are set.
#[derive(Debug, Clone, Default)]
pub struct State {
    closed: Vec<Operation>,
    waiting: Vec<Operation>,
    pub reads: usize,
    /// How many lists of sessions were read.
    pub lists: usize,
    /// The most bytes of messages that were read at once.
    pub largest_page: usize,
    /// How many writes were refused.
    pub refused: usize,
    writes: Option<Error>,
    reading: Option<Error>,
}

impl State {
    fn remove_waiting(&mut self, pass: Operation) {
        if let Some(at) = self.waiting.iter().position(|waits| *waits == pass) {
            self.waiting.remove(at);
        }
    }
}

type Held = (Append, oneshot::Sender<Result<()>>);

#[derive(Default)]
pub struct Gate {
    state: watch::Sender<State>,
    held: Mutex<VecDeque<Held>>,
}

pub type GatedStore = WrappedStore<Gate>;

impl WrappedStore<Gate> {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Over the store of another one: like a process after a crash.
    pub fn with_store(store: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { store, hooks: Gate::default() })
    }

    /// What is durable.
    pub fn durable(&self) -> Arc<MemoryStore> {
        self.store.clone()
    }

    pub fn open(&self, pass: Operation) {
        let mut held = self.held.lock();
        self.state.send_modify(|state| state.closed.retain(|closed| *closed != pass));
        if pass == Operation::Appends {
            for (append, done) in held.drain(..) {
                // The caller may be gone.
                let _ = done.send(at_once(self.store.append(append)));
            }
        }
    }
}

impl Gate {
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub fn close(&self, pass: Operation) {
        self.state.send_modify(|state| state.closed.push(pass));
    }

    /// Drops the appends that are held back: they never become durable.
    pub fn drop_held(&self) {
        let mut held = self.held.lock();
        self.state.send_modify(|state| state.closed.retain(|closed| *closed != Operation::Appends));
        for (_, done) in held.drain(..) {
            let _ = done.send(Err(Error::Store("it was lost".to_owned())));
        }
    }

    /// Waits until so many operations are held back.
    pub async fn wait_for_waiting(&self, pass: Operation, count: usize) {
        self.until(|state| state.waiting.iter().filter(|waits| **waits == pass).count() >= count)
            .await;
    }

    /// How many operations are held back now.
    pub fn waiting(&self, pass: Operation) -> usize {
        self.state().waiting.iter().filter(|waits| **waits == pass).count()
    }

    pub async fn until(&self, wanted: impl FnMut(&State) -> bool) {
        let mut state = self.state.subscribe();
        let found = state.wait_for(wanted);
        let found = tokio::time::timeout(Duration::from_mins(1), found).await;
        found.expect("it takes too long").unwrap();
    }

    /// From now on writes fail with this error, or succeed.
    pub fn fail_writes(&self, error: Option<Error>) {
        self.state.send_modify(|state| state.writes = error);
    }

    pub fn fail_reads(&self, error: Option<Error>) {
        self.state.send_modify(|state| state.reading = error);
    }

    async fn wait_open(&self, pass: Operation) {
        wait_open(&self.state, pass).await;
    }

    fn check_writable(&self) -> Result<()> {
        let Some(error) = self.state().writes else { return Ok(()) };
        self.state.send_modify(|state| state.refused += 1);
        Err(error)
    }
}

async fn wait_open(gate: &watch::Sender<State>, pass: Operation) {
    let mut state = gate.subscribe();
    if !state.borrow().closed.contains(&pass) {
        return;
    }
    gate.send_modify(|state| state.waiting.push(pass));
    let _ = state.wait_for(|state| !state.closed.contains(&pass)).await;
    gate.send_modify(|state| state.remove_waiting(pass));
}

/// The result of the store in memory, which is ready at once.
fn at_once(pending: StoreFuture<()>) -> Result<()> {
    futures_util::FutureExt::now_or_never(pending).unwrap()
}

#[async_trait]
impl Hooks for Gate {
    fn before_write(&self) -> Result<()> {
        self.check_writable()
    }

    async fn before_delete(&self) {
        self.wait_open(Operation::Deletes).await;
    }

    async fn before_list(&self, query: &SessionQuery) {
        self.state.send_modify(|state| state.lists += 1);
        if query.search.is_some() && &*query.tenant == "slow" {
            self.wait_open(Operation::Searches).await;
        }
    }

    fn before_read(&self) -> Result<()> {
        self.state().reading.map_or(Ok(()), Err)
    }

    async fn before_events(&self) -> Result<()> {
        self.state.send_modify(|state| state.reads += 1);
        self.before_read()?;
        self.wait_open(Operation::Reads).await;
        Ok(())
    }

    async fn after_messages(&self, messages: &[StoredMessage]) -> Result<()> {
        let bytes = messages.iter().map(StoredMessage::size).sum();
        self.state.send_modify(|state| state.largest_page = state.largest_page.max(bytes));
        self.wait_open(Operation::Messages).await;
        Ok(())
    }

    fn append(&self, store: &MemoryStore, append: Append) -> StoreFuture<()> {
        if let Err(error) = self.check_writable() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let mut held = self.held.lock();
        if !self.state.borrow().closed.contains(&Operation::Appends) {
            let (stored, gate) = (store.append(append), self.state.clone());
            return Box::pin(async move {
                let stored = stored.await;
                wait_open(&gate, Operation::Acknowledgements).await;
                stored
            });
        }
        let (sender, done) = oneshot::channel();
        held.push_back((append, sender));
        self.state.send_modify(|state| state.waiting.push(Operation::Appends));
        let state = self.state.clone();
        Box::pin(async move {
            let done = done.await.unwrap_or(Err(Error::OutOfOrder));
            state.send_modify(|state| state.remove_waiting(Operation::Appends));
            done
        })
    }

    fn check_health(&self) -> Result<()> {
        self.state().writes.map_or(Ok(()), Err)
    }
}
