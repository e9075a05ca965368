//! The two protocol versions that the host serves, and what the older one does not have.

use ahp_types::version::{SUPPORTED_PROTOCOL_VERSIONS, negotiate_protocol_version};
use serde_json::json;

use crate::RpcError;
use crate::error::code;

/// The version line of a connection. Later ones compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `0.9.x`
    V0_9,
    /// `1.x`
    V1,
}

/// The result of the version negotiation in `initialize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// One of the offered strings, verbatim.
    pub offered: String,
    /// The version line.
    pub version: Version,
}

/// Selects the highest offered version in a supported range.
///
/// # Errors
/// An entry that is not `MAJOR.MINOR.PATCH`: `-32602` with the entry. No supported version: `-32005` with
/// `data.supportedVersions`.
pub fn negotiate(offered: &[String]) -> Result<Negotiated, RpcError> {
    let chosen = negotiate_protocol_version(offered)
        .map_err(|why| RpcError::invalid_params(format!("initialize: protocolVersions: {why}")))?;
    match chosen {
        Some(text) => Ok(Negotiated {
            offered: text.to_owned(),
            version: if text.starts_with("0.") { Version::V0_9 } else { Version::V1 },
        }),
        None => Err(RpcError::new(
            code::UNSUPPORTED_PROTOCOL_VERSION,
            format!(
                "none of {} is a protocol version of this host; it supports {}",
                if offered.is_empty() { "the versions offered".to_owned() } else { offered.join(", ") },
                SUPPORTED_PROTOCOL_VERSIONS.join(" and ")
            ),
        )
        .with_data(json!({ "supportedVersions": SUPPORTED_PROTOCOL_VERSIONS }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(offered: &[&str]) -> Result<String, i32> {
        let offered: Vec<String> = offered.iter().map(|&text| text.to_owned()).collect();
        negotiate(&offered).map(|negotiated| negotiated.offered).map_err(|error| error.code)
    }

    #[test]
    fn the_highest_version_in_range_wins() {
        assert_eq!(pick(&["0.9.0"]), Ok("0.9.0".into()));
        assert_eq!(pick(&["0.9.3", "1.2.0", "1.0.0"]), Ok("1.2.0".into()));
        assert_eq!(pick(&["0.5.1", "0.9.0"]), Ok("0.9.0".into()));
    }

    #[test]
    fn unacceptable_and_unreadable_versions_differ() {
        assert_eq!(pick(&["0.5.1"]), Err(code::UNSUPPORTED_PROTOCOL_VERSION));
        assert_eq!(pick(&[]), Err(code::UNSUPPORTED_PROTOCOL_VERSION));
        for bad in ["1.0", "01.0.0", "1.0.0-beta", ""] {
            assert_eq!(pick(&["0.9.0", bad]), Err(code::INVALID_PARAMS), "{bad}");
        }
    }
}
