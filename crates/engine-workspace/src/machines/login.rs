//! Login files, which are never copied into volumes.

/// Login files that are not recognizable by their names.
const NAMES: &[&str] =
    &[".netrc", "_netrc", ".pypirc", ".npmrc", "hosts.yml", "hosts.json", "apps.json", ".claude.json"];
/// Words that identify a login file by its name.
const WORDS: &[&str] = &[
    "auth",
    "authentication",
    "cookies",
    "cred",
    "credential",
    "credentials",
    "creds",
    "key",
    "keys",
    "login",
    "oauth",
    "oauth2",
    "password",
    "passwords",
    "secret",
    "secrets",
    "session",
    "token",
    "tokens",
];

/// Returns whether a path is a login file. Splits the name into words: `.credentials.json`, `oauth_creds.json`,
/// `authToken`.
pub(super) fn is_login_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let lower = name.to_ascii_lowercase();
    NAMES.contains(&lower.as_str())
        || lower.starts_with("id_")
        || words(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in name.chars() {
        let begins = character.is_ascii_uppercase() && was_lower;
        if begins || !character.is_alphanumeric() {
            words.push(String::new());
        }
        if character.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(character.to_ascii_lowercase());
        }
        was_lower = character.is_lowercase() || character.is_ascii_digit();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::is_login_file;

    #[test]
    fn a_name_says_what_a_file_holds() {
        for path in [
            "/h/.claude/.credentials.json",
            "/h/.codex/auth.json",
            "/h/.gemini/oauth_creds.json",
            "/h/.netrc",
            "/h/.config/gh/hosts.yml",
            "/h/.git-credentials",
            "/h/accessToken.json",
            "/h/.ssh/id_ed25519",
            "TOKEN",
            "/h/api-key.txt",
            "/h/.claude.json",
        ] {
            assert!(is_login_file(path), "{path}");
        }
        for path in [
            "/h/.claude/settings.json",
            "/h/.codex/config.toml",
            "/h/author.md",
            "/auth/settings.json",
            "/h/monkey",
        ] {
            assert!(!is_login_file(path), "{path}");
        }
    }
}
