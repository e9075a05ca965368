//! The names of secrets, which determine the work that may read them. Spec: *Options and credentials*.

use std::fmt;

use crate::thrown::Thrown;

/// The name of a secret.
///
/// ```
/// use ostler_contract::VaultName;
///
/// let name = VaultName::parse("team:inn/stable-key")?;
/// assert_eq!(name, VaultName::Team { team: "inn".into(), name: "stable-key".into() });
/// assert_eq!(name.to_string(), "team:inn/stable-key");
/// # Ok::<(), ostler_contract::vault_name::NotAVaultName>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VaultName {
    /// `host:<name>`: readable by all work.
    Host(String),
    /// `team:<team>/<name>`: readable by work of that team.
    Team {
        /// The team.
        team: String,
        /// The name within the team.
        name: String,
    },
    /// `user:<id>/<name>`: readable by work of that user.
    User {
        /// The user.
        id: String,
        /// The name within the user.
        name: String,
    },
}

/// An invalid name. The message does not repeat it, because it may be the secret itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>")]
pub struct NotAVaultName;

impl From<NotAVaultName> for Thrown {
    fn from(wrong: NotAVaultName) -> Self {
        Self::new(wrong)
    }
}

impl VaultName {
    /// Parses one of the three forms.
    ///
    /// # Errors
    /// Any other form.
    pub fn parse(text: &str) -> Result<Self, NotAVaultName> {
        let (whose, rest) = text.split_once(':').ok_or(NotAVaultName)?;
        let owned = || {
            let (of, name) = rest.split_once('/').ok_or(NotAVaultName)?;
            Ok((part(of)?, part(name)?))
        };
        match whose {
            "host" => part(rest).map(Self::Host),
            "team" => owned().map(|(team, name)| Self::Team { team, name }),
            "user" => owned().map(|(id, name)| Self::User { id, name }),
            _ => Err(NotAVaultName),
        }
    }
}

/// Reads a part of a name. A vault can store names as paths, so none of its segments is empty or leads elsewhere.
fn part(text: &str) -> Result<String, NotAVaultName> {
    let is_path = text.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    let good = is_path && text.trim() == text && !text.chars().any(char::is_control);
    if good { Ok(text.to_owned()) } else { Err(NotAVaultName) }
}

impl fmt::Display for VaultName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => write!(formatter, "host:{name}"),
            Self::Team { team, name } => write!(formatter, "team:{team}/{name}"),
            Self::User { id, name } => write!(formatter, "user:{id}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms() {
        for good in [
            "host:k",
            "host:a..b",
            "host:.a",
            "host:...",
            "host:a/b",
            "team:t/k",
            "user:ada/k",
            "user:ada@inn.org/k/2",
            "host:a b",
        ] {
            assert_eq!(VaultName::parse(good).map(|name| name.to_string()).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "k",
            "host",
            "host:",
            "host: k",
            "host:k\n",
            "Host:k",
            "team:k",
            "team:/k",
            "team:t/",
            "user:",
            "user:ada",
            "root:x",
            "host:..",
            "host:.",
            "host:a/..",
            "host:../b",
            "host:a//b",
            "host:/a",
            "host:a/",
            "team:../k",
            "team:t/..",
            "user:./k",
            "user:ada/../k",
            "plugin:a/b",
        ] {
            assert_eq!(VaultName::parse(bad), Err(NotAVaultName), "{bad}");
        }
    }

    #[test]
    fn the_refusal_spells_them_out() {
        insta::assert_snapshot!(NotAVaultName, @"a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>");
    }

    proptest::proptest! {
        #[test]
        fn a_name_reads_back(text in "(host|team|user):[ -~]{0,12}(/[ -~]{0,12})?") {
            if let Ok(name) = VaultName::parse(&text) {
                assert_eq!(name.to_string(), text);
            }
        }
    }
}
