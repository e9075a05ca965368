//! What is wrong with the running daemon, as commands show it: `status`, `start`, `doctor`, and each list of what has a problem.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use ostler_contract::problems::{Finding, KnownProblem, ProblemKind};
use ostler_engine::clock::iso;

use crate::answer::Answer;
use crate::api::problem_shapes::Problem;
use crate::api::rows::PROBLEMS;
use crate::daemon_file::{self, Record};
use crate::exit::Exit;
use crate::place::Place;
use crate::remote::Remote;

/// How long a command waits for the list.
const LIMIT: Duration = Duration::from_secs(2);
/// How many problems are shown besides other things.
const SHOWN: usize = 10;
/// The longest text of a problem, in characters.
const LONGEST: usize = 1000;

impl Problem {
    /// Returns the form of a problem for output.
    pub fn of(known: KnownProblem) -> Self {
        let KnownProblem { kind, place, finding, since } = known;
        Self {
            kind: kind.name().to_owned(),
            severity: if finding.is_error { "error" } else { "warning" }.to_owned(),
            place: shortened(place),
            found: shortened(finding.found),
            fix: finding.fix.map(shortened),
            since: Timestamp::try_from(since).map(iso).unwrap_or_default(),
        }
    }

    /// Returns it as lines for a person.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}: {}", self.severity, self.found)];
        lines.extend(self.fix.as_ref().map(|fix| format!("  fix: {fix}")));
        lines
    }

    /// Whether it is about one of these.
    pub fn is_about(&self, kinds: &[ProblemKind]) -> bool {
        kinds.iter().any(|kind| kind.name() == self.kind)
    }
}

/// Returns a text for a list of many.
fn shortened(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns the lines of problems for a person; of many, those of the first.
pub fn lines<'a>(problems: impl IntoIterator<Item = &'a Problem>) -> Vec<String> {
    let mut problems = problems.into_iter();
    let mut lines: Vec<String> = problems.by_ref().take(SHOWN).flat_map(Problem::lines).collect();
    match problems.count() {
        0 => {}
        more => lines.push(format!("{more} more problems; ostler doctor lists them")),
    }
    lines
}

/// Requests the list.
async fn asked(remote: &Remote) -> Result<Vec<Problem>, Exit> {
    let asked = tokio::time::timeout(LIMIT, remote.get(PROBLEMS)).await;
    asked.unwrap_or_else(|_| Err(Exit::machine("no answer in time")))
}

/// Returns the problems of the daemon of this computer, or that it does not list them to this command.
pub async fn here(record: &Record) -> Vec<Problem> {
    let Ok(remote) = Remote::here(record) else { return Vec::new() };
    match asked(&remote).await {
        Ok(problems) => problems,
        Err(why) => {
            let found = format!("cannot read the problems of the daemon: {why}");
            let fix = match why {
                // A host that knows users, without a connection token.
                Exit::Usage(_) => "set connectionTokenFile in the configuration, or see ostler logs",
                Exit::Machine(_) => "try again, or see ostler logs",
            };
            let finding = Finding::warning(found).fixed_by(fix);
            let (kind, place) = (ProblemKind::Configuration, "daemon".to_owned());
            vec![Problem::of(KnownProblem { kind, place, finding, since: SystemTime::now() })]
        }
    }
}

/// The problems that concern what a command shows, by its words.
pub fn concerning(command: &str) -> &'static [ProblemKind] {
    use ProblemKind::{Automations, Configuration, Plugins, Policies, Records, Storage, Users, Vault};
    match command {
        "plugin list" | "agent list" => &[Configuration, Plugins],
        "automation list" | "automation show" | "automation runs" => &[Automations, Storage],
        "session list" => &[Storage],
        "webhook list" | "webhook log" => &[Records, Automations, Vault, Storage],
        "vault list" => &[Vault],
        "user list" | "team list" | "project list" => &[Users, Policies],
        _ => &[],
    }
}

/// Adds what concerns a list below it, for people.
pub async fn added(place: &Place, answer: Answer, kinds: &[ProblemKind]) -> Answer {
    if kinds.is_empty() || place.common.quiet {
        return answer;
    }
    let here = || daemon_file::running(&place.folders().ok()?).and_then(|record| Remote::here(&record).ok());
    let Some(remote) = place.remote().ok().flatten().or_else(here) else { return answer };
    // Whoever may not ask, or gets no answer, is shown the list alone.
    let problems = asked(&remote).await.unwrap_or_default();
    let said = |problem: &&Problem| answer.text.contains(&problem.found);
    let concern = problems.iter().filter(|problem| problem.is_about(kinds) && !said(problem));
    let notes = lines(concern);
    notes.into_iter().fold(answer, Answer::note)
}
