//! Explains why the certificate of another computer is not accepted.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// Says what is wrong with the other side's certificate and what to do, where that is the cause of an error.
pub fn certificate_problem(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref::<rustls::Error>() {
            return Some(explained(why));
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            // The source of such an error is the source of what it wraps.
            Some(wrapped) => Some(wrapped as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

fn explained(why: &CertificateError) -> String {
    use CertificateError::{
        Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext, NotValidForName,
        NotValidForNameContext, NotValidYet, NotValidYetContext, Other, UnknownIssuer,
    };
    let advice = match why {
        UnknownIssuer => {
            "no trusted authority signed it; if the authority is private, set SSL_CERT_FILE to the authority's certificate, \
             otherwise have the server send its intermediate certificates too"
        }
        Other(other) if other.0.to_string().contains("CaUsedAsEndEntity") => {
            "it is the certificate of an authority (CA:TRUE), as self-signed ones mostly are, and no server may use one; \
             create a certificate with CA:FALSE and the server's name in subjectAltName, sign it with the authority, and set \
             SSL_CERT_FILE to the authority's certificate"
        }
        Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => {
            "renew it, or set the clock of this computer"
        }
        NotValidForName | NotValidForNameContext { .. } => {
            "use a name that it has, or create one with this name in subjectAltName"
        }
        InvalidPurpose | InvalidPurposeContext { .. } => "create one with serverAuth in extendedKeyUsage",
        _ => "check the certificate of the server",
    };
    let cause = match why {
        Other(other) => other.0.to_string(),
        other => other.to_string(),
    };
    format!("invalid peer certificate: {cause}; {advice}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("CaUsedAsEndEntity")]
    struct Ca;

    #[derive(Debug, thiserror::Error)]
    #[error("connecting failed")]
    struct Outer(#[source] io::Error);

    fn problem(why: CertificateError) -> String {
        let inner = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(why));
        certificate_problem(&Outer(io::Error::other(inner))).unwrap()
    }

    #[test]
    fn a_certificate_that_is_not_accepted_is_explained_wherever_the_error_is() {
        let ca = problem(CertificateError::Other(OtherError(Arc::new(Ca))));
        assert!(
            ca.starts_with("invalid peer certificate: CaUsedAsEndEntity; it is the certificate of an "),
            "{ca}"
        );
        assert!(problem(CertificateError::UnknownIssuer).contains("set SSL_CERT_FILE"));
        assert!(problem(CertificateError::Expired).contains("renew it"));
        assert_eq!(certificate_problem(&Outer(io::Error::other("refused"))), None);
        assert_eq!(certificate_problem(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    }
}
