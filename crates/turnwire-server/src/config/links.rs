//! `[links]`: how links in messages are fetched.

use super::value::{ByteSize, HostName, HumanDuration, MediaPattern};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// `[links]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinksConfig {
    /// Whether http and https links are fetched. Otherwise the model gets them as they are.
    pub fetch: bool,
    /// Hosts whose links the model gets as they are, because its provider reads them.
    pub leave: Vec<HostName>,
    /// Hosts to fetch from although their addresses are private.
    pub private_hosts: Vec<HostName>,
    /// The folder below which `file://` links are read. `None`: they are refused.
    pub files: Option<PathBuf>,
    /// The allowed media types.
    pub types: Vec<MediaPattern>,
    /// The largest file; never more than `limits.blob`.
    pub size: ByteSize,
    /// How long all links of one request may take.
    pub timeout: HumanDuration,
    /// The most redirects of a link.
    pub redirects: usize,
    /// The most links of a message.
    pub per_message: usize,
    /// How many links are fetched at the same time.
    pub at_once: usize,
    /// How many of them for one tenant. `None`: a quarter of `at_once`, or all without credentials.
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
