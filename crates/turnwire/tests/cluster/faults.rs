//! Random faults of nodes and of their connections.

use crate::nodes::{Cluster, Node};
use crate::proxy::Link;
use std::time::Duration;
use turnwire_testkit::{Rng, pick};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL, and a start when the fault ends.
    Kill,
    /// SIGTERM, and a start when the fault ends.
    Terminate,
    /// SIGSTOP for longer than the lease.
    Pause,
    CutDatabase,
    /// Statements arrive late: after another node has taken over.
    StallDatabase,
    CutClients,
    StallClients,
    /// All connections of clients break, and can be opened again at once.
    BreakClients,
}

const ALL: [Fault; 8] = [
    Fault::Kill,
    Fault::Terminate,
    Fault::Pause,
    Fault::CutDatabase,
    Fault::StallDatabase,
    Fault::CutClients,
    Fault::StallClients,
    Fault::BreakClients,
];

/// A fault of one node.
#[derive(Debug)]
pub struct PlannedFault {
    pub node: usize,
    pub fault: Fault,
}

impl PlannedFault {
    /// Faults of one or two different nodes.
    pub fn random(rng: &mut Rng, nodes: usize) -> Vec<Self> {
        let first = rng.usize(..nodes);
        let mut faults = vec![Self { node: first, fault: *pick(rng, &ALL) }];
        if nodes > 1 && rng.bool() {
            let node = (first + rng.usize(1..nodes)) % nodes;
            faults.push(Self { node, fault: *pick(rng, &ALL) });
        }
        faults
    }

    pub fn apply(&self, cluster: &Cluster) {
        let node: &Node = &cluster.nodes[self.node];
        match self.fault {
            Fault::Kill => node.kill(),
            Fault::Terminate => node.terminate(),
            Fault::Pause => node.pause(),
            Fault::CutDatabase => node.database.set(Link::Cut),
            Fault::StallDatabase => node.database.set(Link::Stalled),
            Fault::CutClients => node.clients.set(Link::Cut),
            Fault::StallClients => node.clients.set(Link::Stalled),
            Fault::BreakClients => node.clients.break_connections(),
        }
    }

    /// How long it lasts.
    pub fn time(&self, rng: &mut Rng, lease: Duration) -> Duration {
        let is_long = match self.fault {
            // Another node has to notice.
            Fault::Pause => true,
            Fault::Kill | Fault::CutDatabase | Fault::StallDatabase => rng.bool(),
            Fault::Terminate | Fault::CutClients | Fault::StallClients | Fault::BreakClients => {
                false
            }
        };
        let at_least = if is_long { lease.mul_f64(1.25) } else { Duration::ZERO };
        at_least + Duration::from_millis(rng.u64(100..1000))
    }
}
