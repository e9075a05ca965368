//! TLS over a stream that JavaScript reads and writes; this module only transforms bytes and accesses no socket.

use std::cell::RefCell;
use std::io::{Cursor, Read, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use rquickjs::{Array, Ctx, Function, Object, Result, Value};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};

use super::natives;
use crate::errors::{plain_error, type_error};
use crate::values::{bytes_of, bytes_to_js};

/// Returns the native functions for `node:tls`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "connect": connect, "accept": accept, "context": context, "authorities": authorities }
}

/// Returns the certificates of the authorities that the host trusts, in PEM.
fn authorities() -> Vec<String> {
    use base64::Engine as _;
    let pem = |certificate: &CertificateDer<'_>| {
        let text = base64::engine::general_purpose::STANDARD.encode(certificate);
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        for at in (0..text.len()).step_by(64) {
            pem.push_str(&text[at..text.len().min(at + 64)]);
            pem.push('\n');
        }
        pem + "-----END CERTIFICATE-----"
    };
    ostler_net::authorities().iter().map(pem).collect()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Returns Node's code and message for an invalid certificate of the peer.
fn certificate_problem(error: &Error) -> (&'static str, String) {
    let Error::InvalidCertificate(why) = error else { return ("ERR_SSL_TLSV1_ALERT", error.to_string()) };
    match why {
        CertificateError::UnknownIssuer => {
            ("UNABLE_TO_VERIFY_LEAF_SIGNATURE", "unable to verify the first certificate".to_owned())
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("CERT_HAS_EXPIRED", "certificate has expired".to_owned())
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("CERT_NOT_YET_VALID", "certificate is not yet valid".to_owned())
        }
        CertificateError::Revoked => ("CERT_REVOKED", "certificate revoked".to_owned()),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ("ERR_TLS_CERT_ALTNAME_INVALID", "Hostname/IP does not match certificate's altnames".to_owned())
        }
        other => ("CERT_REJECTED", format!("{other:?}")),
    }
}

/// Accepts every certificate with a valid handshake and records its problem; JavaScript decides.
#[derive(Debug)]
struct Noting {
    roots: Arc<RootCertStore>,
    /// Certificates that are trusted themselves, even if they are not authorities.
    exact: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
    problem: Arc<Mutex<Option<Error>>>,
}

impl ServerCertVerifier for Noting {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let trusted = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            between,
            now,
            self.provider.signature_verification_algorithms.all,
        );
        let trusted = if self.exact.iter().any(|known| known == certificate) { Ok(()) } else { trusted };
        let named = || rustls::client::verify_server_name(&parsed, name);
        if let Err(error) = trusted.and_then(|()| named())
            && let Ok(mut problem) = self.problem.lock()
        {
            *problem = Some(error);
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The authorities that a connection trusts, in place of the system's.
struct Authorities {
    store: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
}

/// The certificates and protocols that JavaScript passes for a connection.
struct Given {
    ca: Option<Authorities>,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    alpn: Vec<Vec<u8>>,
    ask: bool,
    reject: bool,
}

fn certificates(ctx: &Ctx<'_>, pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    if pem.first() == Some(&0x30) {
        return Ok(vec![CertificateDer::from(pem.to_vec())]);
    }
    let read: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) => Err(type_error(ctx, format_args!("{what}: no certificate in PEM"))),
        Err(error) => Err(type_error(ctx, format_args!("{what}: {error}"))),
    }
}

fn given<'js>(ctx: &Ctx<'js>, options: &Object<'js>) -> Result<Given> {
    let bytes =
        |name: &str| -> Result<Option<bytes::Bytes>> { Ok(bytes_of(&options.get::<_, Value>(name)?)) };
    let ca = match bytes("ca")? {
        Some(pem) => {
            let mut store = RootCertStore::empty();
            let certificates = certificates(ctx, &pem, "ca")?;
            for certificate in &certificates {
                store
                    .add(certificate.clone())
                    .map_err(|error| type_error(ctx, format_args!("ca: {error}")))?;
            }
            Some(Authorities { store, certificates })
        }
        None => None,
    };
    let own = match (bytes("cert")?, bytes("key")?) {
        (Some(certificate), Some(key)) => {
            let key = if key.first() == Some(&0x30) {
                PrivateKeyDer::try_from(key.to_vec())
                    .map_err(|why| type_error(ctx, format_args!("key: {why}")))?
            } else {
                PrivateKeyDer::from_pem_slice(&key).map_err(|why| {
                    type_error(ctx, format_args!("key: {why}; it must be PEM without a passphrase"))
                })?
            };
            Some((certificates(ctx, &certificate, "cert")?, key))
        }
        _ => None,
    };
    let alpn: Vec<String> = options.get::<_, Option<Vec<String>>>("alpn")?.unwrap_or_default();
    Ok(Given {
        ca,
        own,
        alpn: alpn.into_iter().map(String::into_bytes).collect(),
        ask: options.get::<_, Option<bool>>("requestCert")?.unwrap_or_default(),
        reject: options.get::<_, Option<bool>>("rejectUnauthorized")?.unwrap_or(true),
    })
}

/// Throws if the certificates or keys are invalid.
fn context<'js>(ctx: Ctx<'js>, options: Object<'js>) -> Result<()> {
    let given = given(&ctx, &options)?;
    if given.own.is_some() {
        server_config(&ctx, given)?;
    }
    Ok(())
}

/// Returns whether a certificate has a version before 3.
fn is_old(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(why)) if why.0.to_string() == "UnsupportedCertVersion")
}

fn server_config(ctx: &Ctx<'_>, given: Given) -> Result<Arc<ServerConfig>> {
    let failed = |error: &dyn std::fmt::Display| type_error(ctx, format_args!("TLS: {error}"));
    let Some((chain, key)) = given.own else {
        return Err(type_error(ctx, "a TLS server needs the options key and cert"));
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    let builder = if given.ask {
        let roots = given.ca.map_or_else(ostler_net::roots, |ca| Arc::new(ca.store));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let verifier = if given.reject { verifier } else { verifier.allow_unauthenticated() };
        builder.with_client_cert_verifier(verifier.build().map_err(|error| failed(&error))?)
    } else {
        builder.with_no_client_auth()
    };
    let key = provider().key_provider.load_private_key(key).map_err(|error| failed(&error))?;
    let own = CertifiedKey::new(chain, key);
    match own.keys_match() {
        // Certificates of old versions, as some packages use in tests, are only sent; the peer decides.
        Err(error) if !is_old(&error) => return Err(failed(&error)),
        _ => {}
    }
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    config.alpn_protocols = given.alpn;
    Ok(Arc::new(config))
}

/// Implements `connect(name, options)`: a connection to the server `name`.
fn connect<'js>(ctx: Ctx<'js>, name: String, options: Object<'js>) -> Result<Object<'js>> {
    let given = given(&ctx, &options)?;
    let failed = |error: &dyn std::fmt::Display| type_error(&ctx, format_args!("TLS: {error}"));
    let problem = Arc::<Mutex<Option<Error>>>::default();
    let exact = given.ca.as_ref().map(|ca| ca.certificates.clone()).unwrap_or_default();
    let verifier = Noting {
        exact,
        roots: given.ca.map_or_else(ostler_net::roots, |ca| Arc::new(ca.store)),
        provider: provider(),
        problem: problem.clone(),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match given.own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| failed(&error))?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = given.alpn;
    let name = ServerName::try_from(name).map_err(|error| failed(&error))?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(|error| failed(&error))?;
    handle(&ctx, connection.into(), Some(problem))
}

/// Implements `accept(options)`: a connection from a client.
fn accept<'js>(ctx: Ctx<'js>, options: Object<'js>) -> Result<Object<'js>> {
    let config = server_config(&ctx, given(&ctx, &options)?)?;
    let connection =
        ServerConnection::new(config).map_err(|error| type_error(&ctx, format_args!("TLS: {error}")))?;
    handle(&ctx, connection.into(), None)
}

struct Tls {
    connection: Connection,
    failed: Option<Error>,
}

impl Tls {
    /// Receives bytes from the peer; returns the plaintext, and whether the peer has ended.
    fn receive(&mut self, bytes: &[u8]) -> std::result::Result<(Vec<u8>, bool), Error> {
        let mut from = Cursor::new(bytes);
        let mut plain = Vec::new();
        let mut ended = false;
        while from.position() < bytes.len() as u64 {
            if self.connection.read_tls(&mut from).map_err(|error| Error::General(error.to_string()))? == 0 {
                break;
            }
            let state = self.connection.process_new_packets()?;
            let at = plain.len();
            plain.resize(at + state.plaintext_bytes_to_read(), 0);
            if let Some(room) = plain.get_mut(at..) {
                // Exactly this many bytes are available.
                let _ = self.connection.reader().read_exact(room);
            }
            ended |= state.peer_has_closed();
        }
        Ok((plain, ended))
    }

    /// Returns the bytes to send to the peer.
    fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut bytes).is_err() {
                break;
            }
        }
        bytes
    }
}

/// Returns the functions of a connection: `receive(bytes)` returns `[plain or null, ended]`; `send(bytes)` takes
/// plaintext; `outgoing()` returns the bytes for the peer, or null; `end()` ends the output; `facts()` describes the
/// handshake once it is complete.
fn handle<'js>(
    ctx: &Ctx<'js>,
    mut connection: Connection,
    problem: Option<Arc<Mutex<Option<Error>>>>,
) -> Result<Object<'js>> {
    connection.set_buffer_limit(None);
    let tls = Rc::new(RefCell::new(Tls { connection, failed: None }));
    let object = Object::new(ctx.clone())?;
    let shared = tls.clone();
    object.set(
        "receive",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, bytes: Value<'js>| {
            let bytes = bytes_of(&bytes).unwrap_or_default();
            let received = shared.borrow_mut().receive(&bytes);
            let (plain, ended) = received.map_err(|error| {
                let thrown = tls_error(&ctx, &error);
                shared.borrow_mut().failed = Some(error);
                thrown
            })?;
            let answer = Array::new(ctx.clone())?;
            let plain = if plain.is_empty() {
                Value::new_null(ctx.clone())
            } else {
                bytes_to_js(&ctx, plain.into())?
            };
            answer.set(0, plain)?;
            answer.set(1, ended)?;
            Ok::<_, rquickjs::Error>(answer)
        }),
    )?;
    let shared = tls.clone();
    object.set(
        "send",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, bytes: Value<'js>| {
            let bytes = bytes_of(&bytes).unwrap_or_default();
            let sent = shared.borrow_mut().connection.writer().write_all(&bytes);
            sent.map_err(|error| plain_error(&ctx, error))
        }),
    )?;
    let shared = tls.clone();
    object.set(
        "outgoing",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let bytes = shared.borrow_mut().outgoing();
            if bytes.is_empty() { Ok(Value::new_null(ctx)) } else { bytes_to_js(&ctx, bytes.into()) }
        }),
    )?;
    let shared = tls.clone();
    object
        .set("end", Function::new(ctx.clone(), move || shared.borrow_mut().connection.send_close_notify()))?;
    object.set(
        "facts",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| facts(&ctx, &tls.borrow(), problem.as_deref())),
    )?;
    Ok(object)
}

fn tls_error(ctx: &Ctx<'_>, error: &Error) -> rquickjs::Error {
    let (code, words) = match error {
        Error::InvalidCertificate(_) => certificate_problem(error),
        Error::AlertReceived(alert) => ("ERR_SSL_ALERT", format!("the other side sent the alert {alert:?}")),
        Error::InvalidMessage(_) => ("ERR_SSL_WRONG_VERSION_NUMBER", "wrong version number".to_owned()),
        other => ("EPROTO", other.to_string()),
    };
    let thrown = plain_error(ctx, words);
    let value = ctx.catch();
    if let Some(object) = value.as_object() {
        // Best effort: the message contains the same.
        let _ = object.set("code", code);
    }
    drop(thrown);
    ctx.throw(value)
}

/// Returns undefined during the handshake, then the negotiated parameters, the peer's certificates, and their problem.
fn facts<'js>(ctx: &Ctx<'js>, tls: &Tls, problem: Option<&Mutex<Option<Error>>>) -> Result<Value<'js>> {
    if tls.connection.is_handshaking() || tls.failed.is_some() {
        return Ok(Value::new_undefined(ctx.clone()));
    }
    let facts = Object::new(ctx.clone())?;
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    facts.set("alpn", text(tls.connection.alpn_protocol()))?;
    let version = match tls.connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    };
    facts.set("protocol", version)?;
    let suite = tls.connection.negotiated_cipher_suite();
    let suite = suite.and_then(|suite| suite.suite().as_str().map(str::to_owned)).unwrap_or_default();
    facts.set("cipher", suite.replace("TLS13_", "TLS_"))?;
    let chain = Array::new(ctx.clone())?;
    for (at, certificate) in tls.connection.peer_certificates().unwrap_or_default().iter().enumerate() {
        chain.set(at, bytes_to_js(ctx, certificate.to_vec().into())?)?;
    }
    facts.set("chain", chain)?;
    if let Connection::Server(server) = &tls.connection {
        facts.set("servername", server.server_name())?;
    }
    let problem = problem.and_then(|problem| problem.lock().ok()?.clone());
    if let Some(error) = problem {
        let (code, words) = certificate_problem(&error);
        facts.set("problem", vec![code.to_owned(), words])?;
    }
    Ok(facts.into_value())
}
