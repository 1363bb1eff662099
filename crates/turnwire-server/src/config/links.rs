//! `[links]`: what becomes of links in messages.

use super::value::{ByteSize, HostName, HumanDuration, MediaPattern};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// `[links]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinksConfig {
    /// Whether http and https links are fetched. Otherwise they go to the model as they are.
    pub fetch: bool,
    /// Hosts whose links go to the model as they are: it reads them itself.
    pub leave: Vec<HostName>,
    /// Hosts that are fetched from although their addresses are not public.
    pub private_hosts: Vec<HostName>,
    /// The folder below which `file://` links are read. `None`: they are not.
    pub files: Option<PathBuf>,
    /// What may be brought in.
    pub types: Vec<MediaPattern>,
    /// The most that one may have. Never more than a blob may.
    pub size: ByteSize,
    /// How long all links of one request may take together.
    pub timeout: HumanDuration,
    /// How often one may lead elsewhere.
    pub redirects: usize,
    /// How many one message may have.
    pub per_message: usize,
    /// How many are brought in at the same time, for everybody together.
    pub at_once: usize,
    /// How many of one tenant. `None`: a quarter of `at_once`, or all where there is one tenant.
    pub at_once_per_tenant: Option<usize>,
}

impl Default for LinksConfig {
    fn default() -> Self {
        let hosts =
            ["generativelanguage.googleapis.com", "www.youtube.com", "youtube.com", "youtu.be"];
        let types = [
            "image/*",
            "audio/*",
            "video/*",
            "text/*",
            "application/pdf",
            "application/json",
            "application/xml",
            "application/yaml",
            "application/vnd.openxmlformats-officedocument.*",
        ];
        Self {
            fetch: true,
            leave: hosts.map(|host| HostName(host.to_owned())).into(),
            private_hosts: Vec::new(),
            files: None,
            types: types.map(|kind| MediaPattern(kind.to_owned())).into(),
            size: ByteSize::mib(20),
            timeout: HumanDuration(Duration::from_secs(30)),
            redirects: 5,
            per_message: 16,
            at_once: 16,
            at_once_per_tenant: None,
        }
    }
}
