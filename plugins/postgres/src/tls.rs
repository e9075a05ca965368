//! TLS to the database: rustls, with certificates that are always verified.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use ostler_contract::Thrown;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;

/// Creates encrypted streams, or unencrypted ones without TLS in the configuration.
#[derive(Clone)]
pub struct Tls(Option<Arc<ClientConfig>>);

impl Tls {
    /// Returns a connector without TLS.
    pub fn disabled() -> Self {
        Self(None)
    }

    /// Returns a connector that verifies the server's certificate and name against a file of certificates, or against those of
    /// the system.
    ///
    /// # Errors
    /// The certificates cannot be read.
    pub fn verified(ca_file: Option<&Path>) -> Result<Self, Thrown> {
        let mut roots = RootCertStore::empty();
        match ca_file {
            Some(file) => {
                let failed = |why: &dyn std::fmt::Display| {
                    Thrown::new(format_args!("tlsCaFile: {} cannot be read: {why}", file.display()))
                };
                let certificates = CertificateDer::pem_file_iter(file).map_err(|why| failed(&why))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|why| failed(&why))?;
                    roots.add(certificate).map_err(|why| failed(&why))?;
                }
                if roots.is_empty() {
                    return Err(failed(&"it has no certificate in PEM format"));
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(Thrown::new(
                        "this computer has no certificate store; set tlsCaFile to the certificate of the database's \
                         authority",
                    ));
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Thrown::new)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Some(Arc::new(config))))
    }
}

/// Encrypts one connection.
pub struct Encrypt {
    config: Option<Arc<ClientConfig>>,
    name: Result<ServerName<'static>, String>,
}

/// An encrypted connection.
pub struct Stream<S>(Encrypted<S>);

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = Encrypt;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Encrypt> {
        let name = ServerName::try_from(domain.to_owned()).map_err(|why| why.to_string());
        Ok(Encrypt { config: self.0.clone(), name })
    }
}

impl<S> TlsConnect<S> for Encrypt
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Stream<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let config = self.config.ok_or_else(|| io::Error::other("TLS is disabled"))?;
            let name = self.name.map_err(io::Error::other)?;
            TlsConnector::from(config).connect(name, stream).await.map(Stream)
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
