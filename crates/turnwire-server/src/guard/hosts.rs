//! The host names that this server answers to.
//!
//! A web page elsewhere can point its own name to this machine (DNS rebinding), and then has the
//! same origin as this server. It cannot change the name, so unknown names are refused. An address
//! needs no DNS, so the ones that the server listens on are known without configuration, with any
//! port: it may be forwarded.

use crate::config::Config;
use crate::error::{ApiError, ApiResult};
use std::net::{IpAddr, SocketAddr};

pub(crate) struct Hosts {
    /// Compared first: nearly all requests have one of these.
    exact: Vec<String>,
    /// Names without a port: they match any port.
    names: Vec<String>,
    address: IpAddr,
}

impl Hosts {
    pub(crate) fn new(config: &Config, address: SocketAddr) -> Self {
        let port = address.port();
        let mut exact = vec![
            format!("127.0.0.1:{port}"),
            format!("localhost:{port}"),
            format!("[::1]:{port}"),
            address.to_string(),
        ];
        let mut names = vec!["localhost".to_owned()];
        for host in &config.hosts {
            exact.push(host.0.clone());
            if split_port(&host.0).1.is_none() {
                names.push(host.0.clone());
            }
        }
        if let Some(name) = config.public_url.as_ref().and_then(|url| url.0.host_str()) {
            names.push(name.to_owned());
        }
        Self { exact, names, address: address.ip() }
    }

    pub(crate) fn check(&self, host: &str) -> ApiResult<()> {
        if self.exact.iter().any(|known| known == host) || self.is_known(host) {
            return Ok(());
        }
        Err(ApiError::misdirected("unknown Host: this server does not answer to this name").hint(
            "add the name to `hosts` (or `public_url`) in turnwire.toml, or start with --host NAME",
        ))
    }

    fn is_known(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        if self.exact.contains(&host) {
            return true;
        }
        let (name, _) = split_port(&host);
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || ip == self.address || self.address.is_unspecified(),
            Err(_) => self.names.iter().any(|known| known == name),
        }
    }
}

/// Splits a host from its port.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') =>
        {
            (name, Some(port))
        }
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(listen: &str, config: &str) -> Hosts {
        Hosts::new(&Config::parse("test", config).unwrap(), listen.parse().unwrap())
    }

    #[test]
    fn only_known_names_pass() {
        let config = "hosts = [\"Chat.example\", \"other.example:8443\"]\npublic_url = \"https://pub.example/x\"";
        let hosts = hosts("127.0.0.1:4747", config);
        for good in [
            "127.0.0.1:4747",
            "127.0.0.1",
            "localhost:4747",
            "LOCALHOST:9",
            "[::1]:4747",
            "[::1]",
            "127.1.2.3",
            "chat.example",
            "CHAT.example:1234",
            "other.example:8443",
            "pub.example",
        ] {
            assert!(hosts.check(good).is_ok(), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:4747",
            "other.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:4747",
            "localhost.evil.example",
            "",
            ":",
            "[::1",
            "chat.example.evil",
            "0.0.0.0:4747",
        ] {
            assert_eq!(hosts.check(bad).unwrap_err().status(), 421, "{bad}");
        }
    }

    #[test]
    fn an_address_is_known_where_all_are_listened_on() {
        let hosts = hosts("0.0.0.0:4747", "");
        assert!(hosts.check("10.0.0.1:4747").is_ok());
        assert!(hosts.check("evil.example").is_err());
    }
}
