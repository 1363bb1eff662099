//! Links on the web.
//!
//! A name is looked up by the connection itself, and only addresses that are public are handed to it:
//! there is no moment between the check and the use in which a name could come to mean something
//! else. Each redirect is a request of its own, so it is checked like the first.

use super::address::is_public;
use super::trouble::Trouble;
use super::{Fetched, name_of};
use crate::config::{HostName, LinksConfig};
use crate::limits::ReservedBytes;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use url::{Host, Url};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

const NOT_PUBLIC: &str = "leads to an address that is not on the public internet";

/// Fetches links.
#[derive(Debug, Default)]
pub(super) struct Web {
    /// Made when they are needed: TLS wants certificates that a machine may not have.
    clients: Mutex<HashMap<Way, Client>>,
}

/// How a host is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    is_plain: bool,
    /// Whether it may have any address.
    is_trusted: bool,
}

impl Web {
    /// Fetches what a link leads to.
    pub(super) async fn fetch(
        &self,
        config: &LinksConfig,
        mut url: Url,
        most: usize,
        held: ReservedBytes,
    ) -> Result<Fetched, Trouble> {
        for _ in 0..=config.redirects {
            let response = self.ask(config, &url).await?;
            let status = response.status();
            if let Some(next) = response.headers().get(LOCATION)
                && status.is_redirection()
            {
                let next = next.to_str().ok().and_then(|next| url.join(next).ok());
                url = next.ok_or(Trouble::Failed("leads to something that is no URL".into()))?;
                continue;
            }
            if status != StatusCode::OK {
                return Err(Trouble::Failed(
                    format!("was answered with the status {}", status.as_u16()).into(),
                ));
            }
            return read(response, &url, most, held).await;
        }
        Err(Trouble::Failed(format!("leads elsewhere more than {} times", config.redirects).into()))
    }

    async fn ask(&self, config: &LinksConfig, url: &Url) -> Result<Response, Trouble> {
        fits(url)?;
        let is_trusted = is_one_of(&config.private_hosts, url);
        let ip = match url.host() {
            Some(Host::Ipv4(ip)) => Some(ip.into()),
            Some(Host::Ipv6(ip)) => Some(ip.into()),
            Some(Host::Domain(_)) | None => None,
        };
        // No name is looked up here, so nobody else would look at it.
        if !is_trusted && ip.is_some_and(|ip| !is_public(ip)) {
            return Err(Trouble::Refused(NOT_PUBLIC.into()));
        }
        let client = self.client(Way { is_plain: url.scheme() == "http", is_trusted })?;
        client.get(url.clone()).header(ACCEPT, "*/*").send().await.map_err(|error| why(&error))
    }

    fn client(&self, way: Way) -> Result<Client, Trouble> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&way) {
            return Ok(client.clone());
        }
        let made = make(way).map_err(|error| {
            tracing::error!(%error, "links cannot be fetched");
            Trouble::Failed("cannot be fetched: TLS cannot be used here".into())
        })?;
        clients.insert(way, made.clone());
        Ok(made)
    }
}

fn make(way: Way) -> Result<Client, Box<dyn Error>> {
    let builder = turnwire_agent::web::client_builder(way.is_plain)?
        // A proxy would look names up by itself.
        .no_proxy()
        .connect_timeout(CONNECT)
        .pool_max_idle_per_host(0);
    let builder = if way.is_trusted { builder } else { builder.dns_resolver(OnlyPublic) };
    Ok(builder.build()?)
}

/// Whether a link may be followed, as far as it can be seen from itself.
pub(super) fn fits(url: &Url) -> Result<(), Trouble> {
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(Trouble::Refused("leads to something that is neither http nor https".into()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Trouble::Refused("has a user's name or a password in it".into()));
    }
    Ok(())
}

/// Whether a URL's host is listed, with its port or without one.
pub(super) fn is_one_of(hosts: &[HostName], url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let with_port = url.port_or_known_default().map(|port| format!("{host}:{port}"));
    hosts.iter().any(|known| known.0 == host || Some(&known.0) == with_port.as_ref())
}

/// Looks names up, and knows only addresses that are public.
struct OnlyPublic;

impl Resolve for OnlyPublic {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|found| is_public(found.ip())).collect();
            if public.is_empty() {
                return Err(NotPublic.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// A name has no address that is public.
#[derive(Debug)]
struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none of its addresses is public")
    }
}

impl Error for NotPublic {}

/// Why there is no answer.
fn why(error: &reqwest::Error) -> Trouble {
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(cause) = next {
        if cause.is::<NotPublic>() {
            return Trouble::Refused(NOT_PUBLIC.into());
        }
        next = cause.source();
    }
    Trouble::Failed(if error.is_connect() { "cannot be reached" } else { "gives no answer" }.into())
}

/// Reads an answer for as long as it is not too much, whatever it says of its length.
async fn read(
    mut response: Response,
    url: &Url,
    most: usize,
    mut held: ReservedBytes,
) -> Result<Fetched, Trouble> {
    let headers = response.headers();
    // None was asked for.
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(Trouble::Failed("comes in a coding that was not asked for".into()));
    }
    let told = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    let is_large = |length: u64| usize::try_from(length).map_or(true, |length| length > most);
    if response.content_length().is_some_and(is_large) {
        return Err(Trouble::TooLarge(most));
    }
    let mut bytes = BytesMut::new();
    loop {
        let chunk: Option<Bytes> = response
            .chunk()
            .await
            .map_err(|_| Trouble::Failed("breaks off before its end".into()))?;
        let Some(chunk) = chunk else { break };
        if bytes.len().saturating_add(chunk.len()) > most {
            return Err(Trouble::TooLarge(most));
        }
        held.grow(chunk.len())?;
        bytes.extend_from_slice(&chunk);
    }
    Ok(Fetched { bytes: bytes.freeze(), told, name: name_of(url), held })
}
