//! Full names of modules from outside: the path of a file, with the query or fragment that makes it a module of its own,
//! or a `data:` URL.

use std::path::Path;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

/// As the web decodes base64: padding may be missing.
const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Splits a full name into the path of its file and the query and fragment that follow. A path may contain their first
/// characters, so the files decide.
pub(super) fn split(name: &str) -> (&str, &str) {
    if !name.contains(['?', '#']) || Path::new(name).is_file() {
        return (name, "");
    }
    let ends = name.match_indices(['?', '#']).map(|(at, _)| name.split_at(at));
    ends.into_iter().find(|(path, _)| Path::new(path).is_file()).unwrap_or((name, ""))
}

/// Returns whether a full name or a specifier is a `data:` URL.
pub(super) fn is_data(name: &str) -> bool {
    name.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// Returns the media type of a `data:` URL, without its parameters, and the bytes.
pub(super) fn data(url: &str) -> Option<(String, Vec<u8>)> {
    let (head, body) = url.get(5..)?.split_once(',')?;
    // What is no code stays as it is.
    let body: Vec<u8> = percent_decode_str(body.split('#').next().unwrap_or_default()).collect();
    let kind = head.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_base64 = head.rsplit_once(';').is_some_and(|(_, last)| last.trim().eq_ignore_ascii_case("base64"));
    if !is_base64 {
        return Some((kind, body));
    }
    let text: Vec<u8> = body.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
    Some((kind, FORGIVING.decode(text).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls_are_decoded() {
        let of = |url: &str| data(url).map(|(kind, bytes)| (kind, String::from_utf8(bytes).unwrap()));
        let js = |text: &str| Some(("text/javascript".to_owned(), text.to_owned()));
        assert_eq!(of("data:text/javascript,a%20b#end"), js("a b"));
        assert_eq!(of("DATA:Text/JavaScript;charset=utf-8;base64,YSBi"), js("a b"));
        assert_eq!(of("data:text/javascript;base64,YSB iYw"), js("a bc"));
        assert_eq!(of("data:text/javascript,100%,%zz"), js("100%,%zz"));
        assert_eq!(of("data:,x"), Some((String::new(), "x".to_owned())));
        assert_eq!(of("data:text/javascript"), None);
        assert_eq!(of("data:text/javascript;base64,*"), None);
    }
}
