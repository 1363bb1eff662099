//! `http` and `https` links.
//!
//! The connection resolves the host name itself, and its resolver returns public addresses only. So a name
//! cannot change between the check and the use. Each redirect is a request of its own and checked again.

use super::address::is_public;
use super::link_error::LinkError;
use super::{FetchedFile, file_name};
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

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const NOT_PUBLIC: &str = "leads to an address that is not on the public internet";

/// Fetches links.
#[derive(Debug, Default)]
pub(super) struct WebFetcher {
    /// Created on first use, because TLS needs root certificates that a machine may not have.
    clients: Mutex<HashMap<ClientKind, Client>>,
}

/// What an HTTP client is configured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ClientKind {
    is_plain: bool,
    /// Whether private addresses are allowed.
    is_trusted: bool,
}

impl WebFetcher {
    /// Fetches a link, following redirects.
    pub(super) async fn fetch(
        &self,
        config: &LinksConfig,
        mut url: Url,
        most: usize,
        held: ReservedBytes,
    ) -> Result<FetchedFile, LinkError> {
        for _ in 0..=config.redirects {
            let response = self.send_request(config, &url).await?;
            let status = response.status();
            if let Some(next) = response.headers().get(LOCATION)
                && status.is_redirection()
            {
                let next = next.to_str().ok().and_then(|next| url.join(next).ok());
                url = next.ok_or(LinkError::Failed("redirects to an invalid URL".into()))?;
                continue;
            }
            if status != StatusCode::OK {
                return Err(LinkError::Failed(
                    format!("returned the status {}", status.as_u16()).into(),
                ));
            }
            return read_response(response, &url, most, held).await;
        }
        Err(LinkError::Failed(format!("redirects more than {} times", config.redirects).into()))
    }

    async fn send_request(&self, config: &LinksConfig, url: &Url) -> Result<Response, LinkError> {
        check_url(url)?;
        let is_trusted = is_listed_host(&config.private_hosts, url);
        let ip = match url.host() {
            Some(Host::Ipv4(ip)) => Some(ip.into()),
            Some(Host::Ipv6(ip)) => Some(ip.into()),
            Some(Host::Domain(_)) | None => None,
        };
        // An address is not resolved, so the resolver does not check it.
        if !is_trusted && ip.is_some_and(|ip| !is_public(ip)) {
            return Err(LinkError::Refused(NOT_PUBLIC.into()));
        }
        let client = self.client(ClientKind { is_plain: url.scheme() == "http", is_trusted })?;
        client
            .get(url.clone())
            .header(ACCEPT, "*/*")
            .send()
            .await
            .map_err(|error| classify_error(&error))
    }

    fn client(&self, kind: ClientKind) -> Result<Client, LinkError> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&kind) {
            return Ok(client.clone());
        }
        let made = build_client(kind).map_err(|error| {
            tracing::error!(%error, "cannot create the HTTP client for links");
            LinkError::Failed("cannot be fetched: the server cannot use TLS".into())
        })?;
        clients.insert(kind, made.clone());
        Ok(made)
    }
}

fn build_client(kind: ClientKind) -> Result<Client, Box<dyn Error>> {
    let builder = turnwire_agent::http_client::client_builder(kind.is_plain)?
        // A proxy would resolve names itself.
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0);
    let builder = if kind.is_trusted { builder } else { builder.dns_resolver(PublicResolver) };
    Ok(builder.build()?)
}

/// Whether the text of a link allows to fetch it.
pub(super) fn check_url(url: &Url) -> Result<(), LinkError> {
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(LinkError::Refused("is neither http nor https".into()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(LinkError::Refused("has a user name or password in it".into()));
    }
    Ok(())
}

/// Whether a URL's host is in a list, with or without its port.
pub(super) fn is_listed_host(hosts: &[HostName], url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let with_port = url.port_or_known_default().map(|port| format!("{host}:{port}"));
    hosts.iter().any(|known| known.0 == host || Some(&known.0) == with_port.as_ref())
}

/// Resolves names to public addresses only.
struct PublicResolver;

impl Resolve for PublicResolver {
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

/// A name without a public address.
#[derive(Debug)]
struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none of its addresses is public")
    }
}

impl Error for NotPublic {}

/// The reason of a failed request.
fn classify_error(error: &reqwest::Error) -> LinkError {
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(cause) = next {
        if cause.is::<NotPublic>() {
            return LinkError::Refused(NOT_PUBLIC.into());
        }
        next = cause.source();
    }
    LinkError::Failed(
        if error.is_connect() { "cannot be reached" } else { "does not answer" }.into(),
    )
}

/// Reads a response up to a limit, whatever length it announces.
async fn read_response(
    mut response: Response,
    url: &Url,
    most: usize,
    mut held: ReservedBytes,
) -> Result<FetchedFile, LinkError> {
    let headers = response.headers();
    // The request accepts none.
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(LinkError::Failed("has a content encoding that was not requested".into()));
    }
    let declared_type =
        headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    let is_large = |length: u64| usize::try_from(length).map_or(true, |length| length > most);
    if response.content_length().is_some_and(is_large) {
        return Err(LinkError::TooLarge(most));
    }
    let mut bytes = BytesMut::new();
    loop {
        let chunk: Option<Bytes> =
            response.chunk().await.map_err(|_| LinkError::Failed("ended early".into()))?;
        let Some(chunk) = chunk else { break };
        if bytes.len().saturating_add(chunk.len()) > most {
            return Err(LinkError::TooLarge(most));
        }
        held.grow(chunk.len())?;
        bytes.extend_from_slice(&chunk);
    }
    Ok(FetchedFile { bytes: bytes.freeze(), declared_type, name: file_name(url), held })
}
