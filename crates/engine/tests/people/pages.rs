//! The tables of docs/threat-model.md are those of the code. `cargo xtask generate` writes them.

use std::fmt::Write as _;
use std::path::Path;

use ostler_engine::users::{Ends, Living};
use ostler_protocol::origins::{By, Effect, Rule, WayIn, rule};

/// The page, from the root of the repository.
const PAGE: &str = "docs/threat-model.md";

fn said(rule: Rule) -> String {
    match rule {
        Rule::Never(why) => format!("no: {why}"),
        Rule::Always(why) => format!("yes: {why}"),
        Rule::AsEntered => "as the way by which it first entered".to_owned(),
        Rule::Granted(grants, by) => {
            let grants: Vec<String> = grants.iter().map(|grant| format!("`{grant}`")).collect();
            format!("yes, if {} has {}", whose(by), grants.join(" and "))
        }
        Rule::GrantedOnScheme(operation, by) => {
            format!("yes, if {} has `{operation}` on the scheme of the resource", whose(by))
        }
    }
}

fn whose(by: By) -> &'static str {
    match by {
        By::Sender => "the sender",
        By::SessionOwner => "the owner of the session",
    }
}

/// The table of origins: for each effect, which ways in may set it off.
fn origins() -> String {
    let mut table = "| effect | ways in | may set it off |\n|---|---|---|\n".to_owned();
    for effect in Effect::ALL {
        let mut groups: Vec<(Rule, Vec<&str>)> = Vec::new();
        for way in WayIn::ALL {
            let found = rule(*way, *effect);
            match groups.iter_mut().find(|(rule, _)| *rule == found) {
                Some((_, ways)) => ways.push(way.name()),
                None => groups.push((found, vec![way.name()])),
            }
        }
        let everything = groups.len() == 1;
        for (rule, ways) in groups {
            let ways = if everything { "all".to_owned() } else { ways.join(", ") };
            writeln!(table, "| {} | {ways} | {} |", effect.name(), said(rule)).unwrap();
        }
    }
    table
}

/// The table of what lives by an authority.
fn living() -> String {
    let mut table = "| what | ends | what its holder sees |\n|---|---|---|\n".to_owned();
    for living in Living::ALL {
        let ends = match living.ends() {
            Ends::AtOnce => "within a second",
            Ends::AtItsNextUse => "at its next use or start",
            Ends::WithTheDaemon => "with the daemon",
        };
        writeln!(table, "| {} | {ends} | {} |", living.name(), living.seen()).unwrap();
    }
    table
}

#[test]
fn the_threat_model_has_the_tables_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let mut expected = page.clone();
    for (name, table) in [("origins", origins()), ("authority", living())] {
        let (begin, end) = (format!("<!-- {name}: from the code -->\n"), format!("<!-- end of {name} -->\n"));
        let (before, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("{PAGE} lacks {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{PAGE} lacks {end}"));
        expected = format!("{before}{begin}{table}{end}{after}");
    }
    if std::env::var_os("OSTLER_WRITE_PAGES").is_some() {
        std::fs::write(&path, expected).unwrap();
    } else {
        assert!(page == expected, "{PAGE} is not up to date; run cargo xtask generate");
    }
}
