//! Checks the rules of notifications: their syntax, the answering users, and the reachability of their links.

use std::net::IpAddr;

use ostler_engine::users::{Kind, UsersFile};
use ostler_protocol::names;

use super::Check;
use crate::notify;
use crate::settings::Settings;

const WHAT: &str = "notify";

/// Does nothing without rules. Their secrets are checked with those of the configuration.
pub(super) fn rules(settings: &Settings, users: Option<&Result<UsersFile, String>>) -> Vec<Check> {
    let rules = match notify::read(&settings.dir) {
        Ok(rules) if rules.0.is_empty() => return Vec::new(),
        Ok(rules) => rules,
        Err(why) => {
            let fix = format!("correct the file; its form: {}", names::page("notifications"));
            return vec![Check::error(WHAT, why, fix)];
        }
    };
    let mut checks = Vec::new();
    for rule in &rules.0 {
        let Some(user) = &rule.user else { continue };
        let (id, fix) = (&rule.id, "set user to the id of a user, or remove it");
        match users {
            None => checks.push(Check::warning(
                WHAT,
                format!(
                    "rule {id} has user {user}, but this host has no users file; answers through its links have no user"
                ),
                "set users in the configuration, or remove user from the rule",
            )),
            Some(Ok(file)) => {
                let ids = file.ids(Kind::User);
                if !ids.iter().any(|known| known == user) {
                    checks.push(Check::error(
                        WHAT,
                        format!("rule {id}: the users file has no user {user}"),
                        fix,
                    ));
                }
            }
            // Reported by the check of that file.
            Some(Err(_)) => {}
        }
    }
    let base = notify::base(settings, None).unwrap_or_default();
    if is_local(&base) {
        checks.push(Check::warning(
            WHAT,
            format!("links begin with {base}, which only this computer can open"),
            "set publicUrl to the URL under which other people reach the daemon",
        ));
    }
    if checks.is_empty() {
        let count = rules.0.len();
        let plural = if count == 1 { "" } else { "s" };
        checks.push(Check::ok(WHAT, format!("{count} rule{plural}; links begin with {base}")));
    }
    checks
}

/// Returns whether a URL refers to the computer that opens it.
fn is_local(base: &str) -> bool {
    let Ok(url) = url::Url::parse(base) else { return true };
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}
