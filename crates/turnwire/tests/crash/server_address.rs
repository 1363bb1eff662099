//! The current address of the server, for all clients of the test.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Tells clients when the server starts and stops.
#[derive(Default)]
pub struct ServerAddress {
    now: Mutex<AddressState>,
    changed: Condvar,
}

#[derive(Default)]
struct AddressState {
    /// Counts server starts.
    generation: u64,
    address: Option<String>,
    is_over: bool,
}

/// A server that is, or was a moment ago, reachable.
#[derive(Clone)]
pub struct RunningServer {
    pub generation: u64,
    pub address: String,
}

impl ServerAddress {
    /// A server has started.
    pub fn set_running(&self, address: &str) {
        let mut now = self.now.lock().unwrap();
        now.generation += 1;
        now.address = Some(address.to_owned());
        self.changed.notify_all();
    }

    /// The server has stopped.
    pub fn set_stopped(&self) {
        self.now.lock().unwrap().address = None;
        self.changed.notify_all();
    }

    /// Clients start nothing new, and finish what they started.
    pub fn stop_clients(&self) {
        self.now.lock().unwrap().is_over = true;
        self.changed.notify_all();
    }

    pub fn is_ending(&self) -> bool {
        self.now.lock().unwrap().is_over
    }

    /// Waits for a server.
    pub fn wait_for_server(&self) -> RunningServer {
        let mut now = self.now.lock().unwrap();
        loop {
            if let Some(address) = &now.address {
                return RunningServer { generation: now.generation, address: address.clone() };
            }
            now = self.changed.wait(now).unwrap();
        }
    }

    /// A pause between two requests; ends early when the server starts or stops, or the test ends.
    pub fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut now = self.now.lock().unwrap();
        let (generation, was_lit) = (now.generation, now.address.is_some());
        while now.generation == generation && now.address.is_some() == was_lit && !now.is_over {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            now = self.changed.wait_timeout(now, left).unwrap().0;
        }
    }
}
