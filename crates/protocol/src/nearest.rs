//! "Did you mean": the known name closest to a mistyped one.

/// The minimum similarity of two names, from 0 to 1.
const ALIKE: f64 = 0.75;

/// Returns `; did you mean <name>?`, or an empty text if no known name is similar.
///
/// ```
/// use ostler_protocol::nearest::did_you_mean;
///
/// assert_eq!(did_you_mean("calude", ["echo", "claude"]), "; did you mean claude?");
/// assert_eq!(did_you_mean("other", ["echo", "claude"]), "");
/// ```
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// Returns the known name most similar to a word, if any. Ignores case.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let alike = known.into_iter().map(|name| (strsim::jaro(&word, &name.to_lowercase()), name));
    alike
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_a_name_that_is_alike_is_named() {
        let keys = ["port", "host", "paths", "plugins", "users", "deltaWindowMs"];
        for (word, name) in [
            ("plugin", Some("plugins")),
            ("prot", Some("port")),
            ("deltaWindowMS", Some("deltaWindowMs")),
            ("user", Some("users")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys), name, "{word}");
        }
        assert_eq!(nearest("x", []), None);
    }
}
