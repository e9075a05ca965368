//! What is wrong now: the one list from which commands, the HTTP API, metrics and the console show it.
//!
//! Whoever notices a problem sets what is wrong with one place, and sets nothing once it is repaired.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

/// How many places with a problem are listed of each kind. A folder can have any number of unreadable files.
const PLACES: usize = 200;
/// How many findings of one place are listed.
const FINDINGS: usize = 10;
/// The longest text of a finding, in bytes. It can quote what a peer has sent.
const LONGEST: usize = 2 << 10;

/// The place of the problem that nothing can be stored now, of kind [`ProblemKind::Storage`]. Readiness says the same.
pub const STATE: &str = "state";

/// What a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemKind {
    /// The configuration files.
    Configuration,
    /// A plugin, or its options.
    Plugins,
    /// What stores sessions, automations and records.
    Storage,
    /// The hosts of the cluster.
    Cluster,
    /// The users file and the grants in it.
    Users,
    /// The policies.
    Policies,
    /// The vault.
    Vault,
    /// An automation.
    Automations,
    /// A record of another collection: an endpoint, a bot, or one of a plugin.
    Records,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Configuration,
        Self::Plugins,
        Self::Storage,
        Self::Cluster,
        Self::Users,
        Self::Policies,
        Self::Vault,
        Self::Automations,
        Self::Records,
    ];

    /// Its name in output and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Plugins => "plugins",
            Self::Storage => "storage",
            Self::Cluster => "cluster",
            Self::Users => "users",
            Self::Policies => "policies",
            Self::Vault => "vault",
            Self::Automations => "automations",
            Self::Records => "records",
        }
    }
}

/// One thing that is wrong with a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether something does not work. Otherwise it works, but may not be intended.
    pub is_error: bool,
    /// What is wrong, with its place.
    pub found: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Finding {
    /// Something does not work.
    pub fn error(found: impl Into<String>) -> Self {
        Self { is_error: true, found: found.into(), fix: None }
    }

    /// Something works, but may not be intended.
    pub fn warning(found: impl Into<String>) -> Self {
        Self { is_error: false, ..Self::error(found) }
    }

    fn bounded(self) -> Self {
        Self { found: beginning(self.found), fix: self.fix.map(beginning), ..self }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn fixed_by(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

fn beginning(mut text: String) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

/// A finding in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownProblem {
    /// What it is about.
    pub kind: ProblemKind,
    /// What is wrong with what: a file, or the name of a plugin or an automation.
    pub place: String,
    /// What is wrong.
    pub finding: Finding,
    /// When it was noticed first.
    pub since: SystemTime,
}

/// The findings of each place, with the time at which each was noticed.
type Places = BTreeMap<(ProblemKind, String), Vec<(Finding, SystemTime)>>;

/// The list of what is wrong now.
///
/// ```
/// use ostler_contract::problems::{Finding, ProblemKind, Problems};
///
/// let problems = Problems::default();
/// problems.set(ProblemKind::Records, "notes/a.md", vec![Finding::error("notes/a.md: no title")]);
/// assert_eq!(problems.list().len(), 1);
/// // It was repaired.
/// problems.set(ProblemKind::Records, "notes/a.md", Vec::new());
/// assert!(problems.list().is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Problems(Arc<Mutex<Places>>);

impl Problems {
    /// Replaces what is wrong with a place; nothing, if it was repaired. Returns what was not known before.
    pub fn set(&self, kind: ProblemKind, place: &str, findings: Vec<Finding>) -> Vec<Finding> {
        let findings: Vec<Finding> = findings.into_iter().map(Finding::bounded).collect();
        let mut places = self.0.lock();
        let key = (kind, place.to_owned());
        if findings.is_empty() {
            places.remove(&key);
            return Vec::new();
        }
        let before = places.get(&key).cloned().unwrap_or_default();
        let since =
            |finding: &Finding| before.iter().find(|(known, _)| known == finding).map(|(_, since)| *since);
        let fresh = findings.iter().filter(|finding| since(finding).is_none()).cloned().collect();
        let now = SystemTime::now();
        let listed =
            findings.into_iter().take(FINDINGS).map(|finding| (since(&finding).unwrap_or(now), finding));
        let listed = listed.map(|(since, finding)| (finding, since)).collect();
        if places.contains_key(&key) || places.keys().filter(|(other, _)| *other == kind).count() < PLACES {
            places.insert(key, listed);
        }
        fresh
    }

    /// Returns what is wrong, by kind and place.
    pub fn list(&self) -> Vec<KnownProblem> {
        let places = self.0.lock();
        let rows = places.iter().flat_map(|((kind, place), findings)| {
            findings.iter().map(move |(finding, since)| KnownProblem {
                kind: *kind,
                place: place.clone(),
                finding: finding.clone(),
                since: *since,
            })
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_before_keeps_its_time_and_is_not_new() {
        let problems = Problems::default();
        let (one, two) = (Finding::error("one"), Finding::warning("two"));
        assert_eq!(problems.set(ProblemKind::Users, "users.json", vec![one.clone()]), vec![one.clone()]);
        let since = problems.list()[0].since;
        let fresh = problems.set(ProblemKind::Users, "users.json", vec![two.clone(), one.clone()]);
        assert_eq!(fresh, vec![two]);
        let listed = problems.list();
        assert_eq!(listed.len(), 2);
        assert_eq!((&listed[1].finding, listed[1].since), (&one, since));
    }

    #[test]
    fn the_list_is_bounded_and_what_is_listed_can_still_change() {
        let problems = Problems::default();
        for at in 0..PLACES + 10 {
            let many = (0..FINDINGS + 10).map(|line| Finding::error(line.to_string())).collect();
            problems.set(ProblemKind::Records, &format!("{at:05}"), many);
        }
        assert_eq!(problems.list().len(), PLACES * FINDINGS);
        // Those of one kind leave room for the others.
        problems.set(ProblemKind::Storage, "state", vec![Finding::error("lost")]);
        assert_eq!(problems.list()[0].finding.found, "lost");
        problems.set(ProblemKind::Storage, "state", Vec::new());
        let long = Finding::error("é".repeat(LONGEST));
        assert!(problems.set(ProblemKind::Records, "00000", vec![long])[0].found.len() <= LONGEST + 3);
        problems.set(ProblemKind::Records, "00000", vec![Finding::error("other")]);
        assert_eq!(problems.list()[0].finding.found, "other");
    }
}
