//! Checks that involve more than one setting.

mod agents;

use super::Config;
use super::limits::{Limits, Retention};
use super::problem::{Problem, SettingsText};
use super::{ClusterConfig, ConversationsConfig, LinksConfig};
use crate::auth::is_valid_id;
use http::HeaderName;
use std::time::Duration;

pub(crate) fn check(config: &Config, source: &SettingsText<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong =
        |path: &[&str], message: String| problems.push(source.problem_at(path, message));
    agents::check(config, &mut wrong);
    check_credentials(config, &mut wrong);
    check_limits(&config.limits, &mut wrong);
    check_retention(&config.retention, &mut wrong);
    check_budgets(&config.limits, &mut wrong);
    check_links(&config.links, &mut wrong);
    check_conversations(&config.conversations, &mut wrong);
    check_cluster(&config.cluster, &mut wrong);
    problems
}

pub(crate) fn warnings(
    config: &Config,
    source: &SettingsText<'_>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut warn = |path: &[&str], message: String| found.push(source.problem_at(path, message));
    agents::warnings(config, env, &mut warn);
    if let Some(folder) = config.links.files.as_ref().filter(|folder| !folder.is_dir()) {
        warn(&["links", "files"], format!("there is no folder {}", folder.display()));
    }
    found
}

type Report<'a> = dyn FnMut(&[&str], String) + 'a;

fn check_credentials(config: &Config, wrong: &mut Report<'_>) {
    for (index, token) in config.auth.tokens.iter().enumerate() {
        let index = index.to_string();
        if !is_valid_id(&token.tenant) {
            wrong(&["auth", "tokens", &index, "tenant"], TENANT_RULE.into());
        }
        if token.scopes.is_empty() {
            let message = "a token needs a scope: read, chat, publish, approve or admin";
            wrong(&["auth", "tokens", &index, "scopes"], message.into());
        }
        let same = |other: &super::TokenConfig| other.sha256 == token.sha256;
        if config.auth.tokens.iter().filter(|other| same(other)).count() > 1 {
            let message = "this token is listed twice";
            wrong(&["auth", "tokens", &index, "sha256"], message.into());
        }
    }
    let Some(jwt) = &config.auth.jwt else { return };
    let path = |key: &'static str| ["auth", "jwt", key];
    let secrets = usize::from(jwt.secret_env.is_some()) + usize::from(jwt.secret_file.is_some());
    match (jwt.algorithm.is_symmetric(), jwt.public_key_file.is_some(), secrets) {
        (true, false, 1) | (false, true, 0) => {}
        (true, _, _) => wrong(
            &path("algorithm"),
            format!(
                "{:?} requires either `secret_env` or `secret_file`, and no public key",
                jwt.algorithm
            ),
        ),
        (false, _, _) => wrong(
            &path("algorithm"),
            format!("{:?} requires `public_key_file` (PEM), and no secret", jwt.algorithm),
        ),
    }
    for (key, value) in [("issuer", &jwt.issuer), ("audience", &jwt.audience)] {
        if value.is_empty() {
            wrong(
                &path(key),
                "must not be empty: tokens of other issuers would be accepted".into(),
            );
        }
    }
    if jwt.tenant.as_deref().is_some_and(|tenant| !is_valid_id(tenant)) {
        wrong(&path("tenant"), TENANT_RULE.into());
    }
}

/// Tenants are named as sessions are.
const TENANT_RULE: &str = "a tenant is 1 to 128 of A-Z a-z 0-9 . _ : -";

fn check_limits(limits: &Limits, wrong: &mut Report<'_>) {
    let mut at_least = |key: &str, value: u64, least: u64| {
        if value < least {
            wrong(&["limits", key], format!("must be at least {least}"));
        }
    };
    at_least("body", limits.body.0, 1024);
    at_least("event", limits.event.0, 1024);
    at_least("websocket_frame", limits.websocket_frame.0, 1024);
    at_least("headers", limits.headers.0, 1024);
    at_least("body_rate", limits.body_rate.0, 1);
    at_least("connections", limits.connections as u64, 1);
    at_least("connections_per_tenant", limits.connections_per_tenant as u64, 1);
    let messages = u64::from(limits.websocket_messages_per_second);
    at_least("websocket_messages_per_second", messages, 1);
    at_least("requests_per_second", u64::from(limits.requests_per_second), 1);
    at_least("searches", limits.searches as u64, 1);
    at_least("searches_per_tenant", limits.searches_per_tenant as u64, 1);
    let zero = [
        ("search_timeout", limits.search_timeout),
        ("headers_timeout", limits.headers_timeout),
        ("body_timeout", limits.body_timeout),
        ("idle_timeout", limits.idle_timeout),
        ("write_stall", limits.write_stall),
        ("heartbeat", limits.heartbeat),
        ("response_socket", limits.response_socket),
    ];
    for (key, _) in zero.into_iter().filter(|(_, time)| time.0.is_zero()) {
        wrong(&["limits", key], "must be more than 0".into());
    }
}

/// A budget must have room for one body of the allowed size.
fn check_budgets(limits: &Limits, wrong: &mut Report<'_>) {
    let smaller = |what: &str| format!("must be at least `{what}`");
    if limits.buffered_per_tenant < limits.body {
        wrong(&["limits", "buffered_per_tenant"], smaller("body"));
    }
    if limits.buffered < limits.buffered_per_tenant {
        wrong(&["limits", "buffered"], smaller("buffered_per_tenant"));
    }
    if limits.uploads_per_tenant < limits.blob {
        wrong(&["limits", "uploads_per_tenant"], smaller("blob"));
    }
    if limits.uploads < limits.uploads_per_tenant {
        wrong(&["limits", "uploads"], smaller("uploads_per_tenant"));
    }
}

fn check_retention(retention: &Retention, wrong: &mut Report<'_>) {
    let blobs = retention.blobs.0;
    if !blobs.is_zero() && blobs < MIN_BLOB_RETENTION {
        let message = "must be at least 10m, so that a message can still refer to an upload; \
                       0s keeps blobs forever";
        wrong(&["retention", "blobs"], message.into());
    }
}

/// The shortest allowed retention of unreferenced blobs.
const MIN_BLOB_RETENTION: Duration = Duration::from_mins(10);

fn check_conversations(conversations: &ConversationsConfig, wrong: &mut Report<'_>) {
    let is_name = |name: &str| HeaderName::from_bytes(name.as_bytes()).is_ok();
    if let Some(name) = conversations.id_headers.iter().find(|name| !is_name(name)) {
        wrong(&["conversations", "id_headers"], format!("{name:?} is not the name of a header"));
    }
}

/// A node needs some time to renew its lease, also on a busy machine.
const MIN_LEASE: Duration = Duration::from_secs(1);

fn check_cluster(cluster: &ClusterConfig, wrong: &mut Report<'_>) {
    if cluster.lease.0 < MIN_LEASE {
        wrong(
            &["cluster", "lease"],
            "a lease of less than 1s would be lost on a busy machine".into(),
        );
    }
    if cluster.listen.is_some_and(|address| address.ip().is_unspecified())
        && cluster.advertise.is_none()
    {
        let message =
            "other nodes cannot reach this address: set `cluster.advertise` to HOST:PORT, too";
        wrong(&["cluster", "listen"], message.into());
    }
    if cluster.poll.0.is_zero() {
        wrong(&["cluster", "poll"], "must be more than 0".into());
    }
    let is_address = |address: &str| {
        address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    if cluster.advertise.as_deref().is_some_and(|address| !is_address(address)) {
        wrong(&["cluster", "advertise"], "expected HOST:PORT, for example 10.0.0.5:4748".into());
    }
}

fn check_links(links: &LinksConfig, wrong: &mut Report<'_>) {
    let counts = [
        ("per_message", links.per_message),
        ("at_once", links.at_once),
        ("at_once_per_tenant", links.at_once_per_tenant.unwrap_or(1)),
    ];
    for (key, _) in counts.into_iter().filter(|(_, count)| *count == 0) {
        wrong(&["links", key], "must be at least 1; `fetch = false` turns the fetching off".into());
    }
    if links.timeout.0.is_zero() {
        wrong(&["links", "timeout"], "must be more than 0".into());
    }
    if links.size.0 == 0 {
        wrong(
            &["links", "size"],
            "must be more than 0; `fetch = false` turns the fetching off".into(),
        );
    }
    if links.types.is_empty() {
        wrong(&["links", "types"], "must not be empty: nothing could be fetched".into());
    }
}
