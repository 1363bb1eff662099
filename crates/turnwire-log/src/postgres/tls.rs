//! TLS to the database, with the same library and the same trust as all outgoing connections.

use crate::error::{Error, Result};
use futures_util::future::BoxFuture;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::Verifier;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;

/// Makes TLS connections. Without settings it makes none.
#[derive(Clone)]
pub(super) struct Tls(Option<Arc<ClientConfig>>);

impl Tls {
    /// No TLS.
    pub(super) const NONE: Self = Self(None);

    /// TLS that trusts what the system trusts, and the certificates in a file.
    pub(super) fn new(root_file: Option<&str>) -> Result<Self> {
        let cannot = |why: String| Error::Store(format!("TLS to the database: {why}"));
        let mut roots: Vec<CertificateDer<'static>> = Vec::new();
        if let Some(file) = root_file {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
            roots = read.map_err(|error| cannot(format!("cannot read {file}: {error}")))?;
        }
        let provider = Arc::new(ring::default_provider());
        let config = Verifier::new_with_extra_roots(roots, Arc::clone(&provider))
            .and_then(|verifier| {
                let builder = ClientConfig::builder_with_provider(provider);
                let builder = builder.with_safe_default_protocol_versions()?.dangerous();
                Ok(builder.with_custom_certificate_verifier(Arc::new(verifier)))
            })
            .map_err(|error| cannot(error.to_string()))?;
        Ok(Self(Some(Arc::new(config.with_no_client_auth()))))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { config: self.0.clone(), host: host.to_owned() })
    }
}

/// A connection that will be encrypted.
pub(super) struct Handshake {
    config: Option<Arc<ClientConfig>>,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Stream<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let config = self.config.ok_or(io::ErrorKind::Unsupported)?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(Stream(TlsConnector::from(config).connect(name, stream).await?))
        })
    }
}

/// An encrypted connection. Without channel binding: the certificate is checked, so nobody is in
/// between.
pub(super) struct Stream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
