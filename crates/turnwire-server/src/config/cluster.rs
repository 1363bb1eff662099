//! `[cluster]`: several servers over one database.

use super::value::HumanDuration;
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

/// `[cluster]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// How long a node that does not answer keeps its sessions.
    pub lease: HumanDuration,
    /// How late a subscriber may be if all hints between nodes are lost.
    pub poll: HumanDuration,
    /// Where this node listens for the others. `None`: on the address from which it reaches the database, any port.
    pub listen: Option<SocketAddr>,
    /// `HOST:PORT` under which the others reach it, if that is not `listen`.
    pub advertise: Option<String>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            lease: HumanDuration(Duration::from_secs(10)),
            poll: HumanDuration(Duration::from_millis(500)),
            listen: None,
            advertise: None,
        }
    }
}
