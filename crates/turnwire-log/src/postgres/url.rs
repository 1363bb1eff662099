//! Reads `postgres://` URLs.
//!
//! There are two kinds of connections: plain, and TLS with a certificate that is checked.
//! `sslmode=disable` is plain; without `sslmode`, a database on this machine is plain too.

use super::tls::Tls;
use crate::error::{Error, Result};
use std::fmt::Write as _;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// How long one address may take to accept a connection, unless the URL says it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a lost connection may go unnoticed.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// What a database is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    ReadWrite,
    Any,
    CopySource,
    CopyTarget,
}

impl Wanted {
    /// Whether only a server that can be written is wanted.
    fn needs_writes(self) -> bool {
        matches!(self, Self::ReadWrite | Self::CopyTarget)
    }

    /// The name of the connections.
    fn application_name(self) -> &'static str {
        match self {
            Self::ReadWrite | Self::Any => "turnwire",
            Self::CopySource | Self::CopyTarget => "turnwire copy",
        }
    }
}

/// A URL that was read.
pub(super) struct DatabaseUrl {
    config: Config,
    /// Without the password.
    name: String,
    root_file: Option<String>,
}

impl DatabaseUrl {
    pub(super) fn parse(url: &str, wanted: Wanted) -> Result<Self> {
        // The error must not show the password.
        let invalid = |why: String| {
            Error::Store(format!(
                "invalid database URL: {why}; expected for example \
                 postgres://USER:PASSWORD@HOST:5432/DATABASE"
            ))
        };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid("it does not begin with postgres://".to_owned()));
        }
        let own = OwnParameters::take(url);
        let mut config: Config = own.url.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error);
            invalid(cause.map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        if config.get_hosts().is_empty() {
            return Err(invalid("it has no host".to_owned()));
        }
        if config.get_user().is_none() {
            return Err(invalid("it has no user".to_owned()));
        }
        let is_local = config.get_hosts().iter().all(is_local);
        let is_plain = config.get_ssl_mode() == SslMode::Disable || (is_local && !own.has_ssl_mode);
        config.ssl_mode(if is_plain { SslMode::Disable } else { SslMode::Require });
        if config.get_hosts().len() > 1 && wanted.needs_writes() {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_application_name().is_none() {
            config.application_name(wanted.application_name());
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(LOST_AFTER);
        }
        let name = name(&config);
        Ok(Self { config, name, root_file: own.root_file })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// The first host that is reached over the network, and its port.
    pub(super) fn host(&self) -> Option<(String, u16)> {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        self.config.get_hosts().iter().find_map(|host| match host {
            Host::Tcp(host) => Some((host.clone(), port)),
            #[cfg(unix)]
            Host::Unix(_) => None,
        })
    }

    /// User, hosts and database, without the password.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn tls(&self) -> Result<Tls> {
        if self.config.get_ssl_mode() == SslMode::Disable {
            return Ok(Tls::NONE);
        }
        Tls::new(self.root_file.as_deref())
    }
}

/// The parameters that the library does not know, and the URL without them.
struct OwnParameters {
    url: String,
    has_ssl_mode: bool,
    root_file: Option<String>,
}

impl OwnParameters {
    fn take(url: &str) -> Self {
        let mut own = Self { url: url.to_owned(), has_ssl_mode: false, root_file: None };
        let Some((base, query)) = url.split_once('?') else { return own };
        let mut kept = Vec::new();
        for parameter in query.split('&') {
            match parameter.split_once('=') {
                Some(("sslrootcert", file)) => own.root_file = Some(file.to_owned()),
                Some(("sslmode", mode)) => {
                    own.has_ssl_mode = true;
                    // Certificates are always checked.
                    let is_checked = matches!(mode, "verify-full" | "verify-ca");
                    kept.push(if is_checked { "sslmode=require" } else { parameter });
                }
                _ => kept.push(parameter),
            }
        }
        own.url = format!("{base}?{}", kept.join("&"));
        own
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

fn name(config: &Config) -> String {
    let user = config.get_user().unwrap_or_default();
    let mut name = format!("postgres://{user}@");
    for (at, host) in config.get_hosts().iter().enumerate() {
        let host = match host {
            Host::Tcp(host) => host.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let port = config.get_ports().get(at).or(config.get_ports().first());
        let comma = if at > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(name, "{comma}{host}:{}", port.unwrap_or(&5432));
    }
    let _ = write!(name, "/{}", config.get_dbname().unwrap_or(user));
    name
}

#[cfg(test)]
mod tests {
    use super::{DatabaseUrl, Wanted};
    use tokio_postgres::config::{SslMode, TargetSessionAttrs};

    fn parse(url: &str) -> DatabaseUrl {
        DatabaseUrl::parse(url, Wanted::ReadWrite).unwrap()
    }

    #[test]
    fn only_a_database_on_this_machine_is_plain_by_default() {
        for (url, expected) in [
            ("postgres://u@localhost/db", SslMode::Disable),
            ("postgres://u@127.0.0.1:99/db", SslMode::Disable),
            ("postgresql://u@%2Frun%2Fpg/db", SslMode::Disable),
            ("postgres://u@db.example/db", SslMode::Require),
            ("postgres://u@localhost,db.example/db", SslMode::Require),
            ("postgres://u@db.example/db?sslmode=disable", SslMode::Disable),
            ("postgres://u@db.example/db?sslmode=prefer", SslMode::Require),
            ("postgres://u@localhost/db?sslmode=require", SslMode::Require),
            ("postgres://u@localhost/db?a=1", SslMode::Disable),
            ("postgres://u@localhost/db?sslmode=verify-full&sslrootcert=ca.pem", SslMode::Require),
        ] {
            let url = url.replace("?a=1", "?connect_timeout=3");
            assert_eq!(parse(&url).config().get_ssl_mode(), expected, "{url}");
        }
    }

    #[test]
    fn of_several_hosts_the_one_that_can_be_written_is_wanted() {
        let two = parse("postgres://u:secret@one:5433,two/db");
        assert_eq!(two.config().get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(two.name(), "postgres://u@one:5433,two:5432/db");
    }

    #[test]
    fn what_is_no_database_is_refused_without_the_password() {
        for url in [
            "",
            "mysql://u:secret@h/db",
            "postgres://",
            "postgres:///db",
            "postgres://u:secret@h:port/db",
            "postgres://u:secret@h/db?sslmode=maybe",
            "postgres://u:secret@h/db?unknown=1",
            "postgres://h/db",
        ] {
            let error = DatabaseUrl::parse(url, Wanted::ReadWrite).err().unwrap().to_string();
            assert!(error.contains("postgres://USER:PASSWORD@HOST"), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
