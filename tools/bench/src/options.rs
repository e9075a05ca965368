//! The options of `cargo benchmarks run`.

use std::path::PathBuf;

use super::figures::GROUPS;

/// The options of `cargo benchmarks run`.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The profile that the daemon is built with.
    pub profile: String,
    /// The program of the daemon, which is not built then.
    pub program: Option<PathBuf>,
    /// Whether to print JSON instead of a table.
    pub json: bool,
    /// The number of rounds, instead of each figure's default.
    pub rounds: Option<usize>,
    /// A part of the names of the attacks that `peaks` makes; all and the costs of sessions if absent.
    pub attack: Option<String>,
    names: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: "dist".to_owned(),
            program: None,
            json: false,
            rounds: None,
            attack: None,
            names: Vec::new(),
        }
    }
}

impl Options {
    /// Parses the arguments after `run`.
    ///
    /// # Errors
    /// The invalid argument, and the valid ones.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--json" => options.json = true,
                "--profile" => {
                    options.profile =
                        arguments.next().ok_or("--profile takes the name of a profile")?.clone();
                }
                "--program" => {
                    let program =
                        arguments.next().ok_or("--program takes the path of the daemon's program")?;
                    options.program =
                        Some(std::path::absolute(program).map_err(|why| format!("{program}: {why}"))?);
                }
                "--rounds" => {
                    let rounds =
                        arguments.next().and_then(|rounds| rounds.parse().ok()).filter(|rounds| *rounds > 0);
                    options.rounds = Some(rounds.ok_or("--rounds takes a number from 1 on")?);
                }
                "--attack" => {
                    let attack = arguments.next().ok_or("--attack takes a part of the name of an attack")?;
                    options.attack = Some(attack.clone());
                }
                name if GROUPS.iter().any(|group| group.name == name) => options.names.push(name.to_owned()),
                other => {
                    let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
                    return Err(format!(
                        "there is no benchmark {other}; there are {}, and --json, --rounds <n>, --profile <name>, --program <file> and --attack <name>",
                        names.join(", ")
                    ));
                }
            }
        }
        match options.attack.is_some() && !options.names.iter().any(|name| name == "peaks") {
            true => {
                Err("--attack selects an attack of the benchmark peaks, which has to be named too".to_owned())
            }
            false => Ok(options),
        }
    }

    /// Returns whether a benchmark is selected.
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Options, String> {
        Options::read(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn everything_runs_unless_some_are_named() {
        assert!(read(&[]).unwrap().wants("turn"));
        let some = read(&["turn", "--json", "webhook", "--rounds", "3"]).unwrap();
        assert!(some.json && some.wants("turn") && some.wants("webhook") && !some.wants("start"));
        assert_eq!((some.rounds, some.profile.as_str()), (Some(3), "dist"));
        assert_eq!(read(&["peaks", "--attack", "prompts"]).unwrap().attack.as_deref(), Some("prompts"));
        assert_eq!(read(&["--profile", "release", "git"]).unwrap().profile, "release");
        assert_eq!(read(&["--program", "/bin/true", "git"]).unwrap().program, Some("/bin/true".into()));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for wrong in [
            &["turns"][..],
            &["--rounds"],
            &["--rounds", "0"],
            &["--program"],
            &["--attack"],
            &["--attack", "prompts"],
            &["--quick"],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
