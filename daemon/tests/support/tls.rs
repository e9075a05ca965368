//! A server's side of TLS for `localhost`, with a certificate of an authority that nobody knows.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate of the authority.
pub const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/authority.pem");

pub fn acceptor() -> TlsAcceptor {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls");
    let chain = CertificateDer::from_pem_file(format!("{folder}/localhost.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(format!("{folder}/localhost.key")).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(vec![chain], key).unwrap()))
}
