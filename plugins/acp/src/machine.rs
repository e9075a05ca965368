//! Agents in machines: their needs, and the start of their process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ostler_contract::points::{MachineNeed, MachineProcess, SessionComputer};
use ostler_processes::{ChildKind, Program};

use crate::agent::{Surroundings, owner};
use crate::errors::AgentError;
use crate::options::AgentOptions;

/// The `PATH` of most images.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The needs of an agent in a machine, from its preset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// The part with its program, or with the program that downloads it.
    pub part: Option<String>,
    /// The variable with its API key.
    pub key: Option<String>,
    /// The method that signs in with the key, if the agent does not use the key by itself.
    pub key_method: Option<String>,
    /// The variable that names the folder of its configuration.
    pub state_variable: Option<String>,
    /// The file of its configuration, in the user's home.
    pub seed: Option<String>,
}

impl Needs {
    /// The needs by name.
    pub fn of(&self, provider: &str) -> BTreeMap<String, MachineNeed> {
        let described = |description: &str| Some(description.to_owned());
        let mut needs = BTreeMap::new();
        let state = MachineNeed {
            state: Some(state(provider)),
            // In the home of the agent the file would have another place than in the folder of its configuration.
            seed: self.state_variable.as_ref().and(self.seed.as_ref()).map(|file| vec![format!("~/{file}")]),
            description: described("Configuration, sign-in and sessions of the agent"),
            ..MachineNeed::default()
        };
        needs.insert("state".to_owned(), state);
        if let Some(key) = &self.key {
            let need = MachineNeed {
                name: Some(key.clone()),
                description: described("API key of the agent"),
                ..MachineNeed::default()
            };
            needs.insert(key.clone(), need);
        }
        if let Some(part) = &self.part {
            let need = MachineNeed {
                part: Some(part.clone()),
                description: described("Program that runs the agent"),
                ..MachineNeed::default()
            };
            needs.insert(part.clone(), need);
        }
        needs
    }
}

/// The path of an agent's volume in a machine.
fn state(provider: &str) -> String {
    format!("/var/lib/ostler/{provider}")
}

/// Returns the program on this host that runs an agent in a machine, and the agent's secrets there.
///
/// # Errors
/// The machine cannot run it.
pub async fn program(
    agent: &AgentOptions,
    at: &Surroundings,
    computer: &SessionComputer,
) -> Result<(Program, Vec<String>), AgentError> {
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    let folder = agent.needs.state_variable.clone().unwrap_or_else(|| "HOME".to_owned());
    env.insert(folder, state(&agent.provider));
    let parts = agent.needs.part.iter().map(|part| format!("/opt/ostler/{part}/bin:")).collect::<String>();
    env.insert("PATH".to_owned(), format!("{parts}{PATH}"));
    let own = at.env.iter().chain(&agent.env).chain(&at.lent);
    env.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    let (cwd, _) = directories(computer, &at.cwd, &[]).await;
    let inside = MachineProcess {
        program: agent.command.clone(),
        args: agent.args.clone(),
        cwd: Some(cwd.display().to_string()),
        env,
        ..MachineProcess::default()
    };
    let failed = |why: ostler_contract::Thrown| AgentError::NotStarted(format!("{}: {why}", computer.uri));
    let outside = computer.how.call((inside,)).await.map_err(failed)?;
    let program = Program {
        kind: ChildKind::Helper,
        owner: owner(agent, at),
        command: outside.program,
        args: outside.args,
        env: outside.env,
        cwd: outside.cwd.map_or_else(|| PathBuf::from("/"), PathBuf::from),
        supervisor: None,
        supervised: false,
    };
    Ok((program, outside.secrets))
}

/// Returns the session's directories in the machine: the first, and the others that exist there.
pub async fn directories(
    computer: &SessionComputer,
    cwd: &Path,
    additional: &[PathBuf],
) -> (PathBuf, Vec<PathBuf>) {
    let place = async |path: &Path| {
        let placed = computer.place.call((path.display().to_string(),)).await;
        placed.ok().flatten().map(PathBuf::from)
    };
    let first = place(cwd).await.unwrap_or_else(|| "/".into());
    let mut others = Vec::new();
    for path in additional {
        others.extend(place(path).await);
    }
    (first, others)
}
