//! Machines: selecting and creating the machine of a session, and running its backend in it. A session with a machine
//! never falls back to this host.

mod login;
mod need;
mod plan;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use ostler_contract::points::{
    Agent, Computer, Computers, KeptSession, MachinePlan, MachineProcess, MachineProfile, MachineRequest,
    SessionComputer, UsageEntry, UsageKind, UsageSource,
};
use ostler_contract::registry::{Owned, Registrant};
use ostler_contract::{HostFunction, JsonObject, Thrown, Value, limit};
use ostler_engine_core::clock::millis_between;
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::local_system::{Found, LocalSystem, Pinned};
use ostler_engine_core::refusals::{NOT_LOADED, no_machine_for};
use ostler_engine_core::weak::upgraded;
use ostler_protocol::grants::Grant;
use ostler_protocol::wire::commands as c;
use ostler_protocol::wire::state::SessionConfigState;
use ostler_protocol::{RpcError, json};

use crate::Workspace;
use plan::{Asking, Needy, plan};

/// The setting with a session's machine.
pub const SETTING: &str = "computer";
const ADDRESS: &str = "computer://";
const DISPOSABLE: &str = "disposable:";
const DEV_CONTAINER: &str = "devcontainer://";
/// The display name of the host among machines.
const HERE: &str = "This host";

/// A machine that was created for a session that does not exist yet.
#[derive(Debug)]
pub struct Made(String);

impl Made {
    /// Returns its address.
    pub fn uri(&self) -> &str {
        &self.0
    }
}

impl Workspace {
    /// Returns the provider of machines.
    pub fn computers(&self) -> Option<&Computers> {
        self.core.registry()?.port::<Computers>()
    }

    /// Returns whether the host provides the setting for a backend: if the backend can run in a machine and the host
    /// has machines.
    fn decides(&self, agent: &Agent) -> bool {
        agent.machine.is_some() && self.computers().is_some()
    }

    /// Adds the setting to those of a backend, with the existing machines if a user is choosing.
    pub async fn offer_computers(&self, agent: &Agent, config: &mut SessionConfigState, choosing: bool) {
        if !self.decides(agent) {
            return;
        }
        let (mut values, mut labels, mut descriptions) =
            (vec![json!("")], vec![HERE.to_owned()], vec![String::new()]);
        if choosing {
            for (value, label, description) in self.computer_rows(agent).await {
                values.push(value.into());
                labels.push(label);
                descriptions.push(description);
            }
        }
        let mut property = json!({
            "type": "string", "title": "Computer", "description": "The machine the session runs in.",
            "default": "", "sessionMutable": false, "enumDynamic": true,
        });
        if choosing {
            property["enum"] = values.into();
            property["enumLabels"] = json!(labels);
            property["enumDescriptions"] = json!(descriptions);
        }
        if let Ok(property) = serde_json::from_value(property) {
            config.schema.properties.insert(SETTING.to_owned(), property);
        }
        config.values.entry(SETTING.to_owned()).or_insert_with(|| "".into());
    }

    /// Returns the rows of the setting's picker for typed text; `None` if the host does not provide the setting.
    pub async fn complete_computer(
        &self,
        agent: &Agent,
        params: &c::SessionConfigCompletionsParams,
    ) -> Option<Vec<c::SessionConfigValueItem>> {
        if params.property != SETTING || !self.decides(agent) {
            return None;
        }
        let query = params.query.as_deref().unwrap_or_default().to_lowercase();
        let here = (String::new(), HERE.to_owned(), String::new());
        let rows = std::iter::once(here).chain(self.computer_rows(agent).await);
        let fits = |text: &str| text.to_lowercase().contains(&query);
        let rows = rows.filter(|(value, label, _)| fits(value) || fits(label));
        Some(
            rows.map(|(value, label, description)| c::SessionConfigValueItem {
                value,
                label,
                description: Some(description).filter(|description| !description.is_empty()),
            })
            .collect(),
        )
    }

    /// Returns the values of the setting for a backend: running machines, then templates.
    async fn computer_rows(&self, agent: &Agent) -> Vec<(String, String, String)> {
        let provider = agent.provider.to_string();
        let mut rows = Vec::new();
        let machines = match self.machines().await {
            Ok(machines) => machines.unwrap_or_default(),
            Err(why) => {
                self.core.log.warn(unlisted(&why));
                Vec::new()
            }
        };
        for machine in machines.into_iter().filter(|machine| machine.running && is_for(machine, &provider)) {
            let label = machine.title.unwrap_or_else(|| machine.id.clone());
            rows.push((format!("{ADDRESS}{}", machine.id), label, machine.description.unwrap_or_default()));
        }
        if self.computers().is_some_and(|computers| computers.make.is_none()) {
            return rows;
        }
        match self.profiles().await {
            Ok(profiles) => {
                let fitting = |profile: &MachineProfile| {
                    profile.agents.is_empty() || profile.agents.contains(&provider)
                };
                for (name, profile) in profiles.into_iter().filter(|(_, profile)| fitting(profile)) {
                    let label = profile.title.unwrap_or_else(|| name.clone());
                    rows.push((
                        format!("{DISPOSABLE}{name}"),
                        label,
                        profile.description.unwrap_or_default(),
                    ));
                }
            }
            Err(why) => self.core.log.warn(unreadable(&why)),
        }
        rows
    }

    /// Returns the existing machines, if their provider lists them.
    async fn machines(&self) -> Result<Option<Vec<Computer>>, Thrown> {
        match self.computers().and_then(|computers| computers.list.as_ref()) {
            Some(list) => list.within(limit::MACHINE, ()).await.map(Some),
            None => Ok(None),
        }
    }

    async fn profiles(&self) -> Result<BTreeMap<String, MachineProfile>, Thrown> {
        match self.computers().and_then(|computers| computers.profiles.as_ref()) {
            Some(profiles) => profiles.within(limit::MACHINE, ()).await,
            None => Ok(BTreeMap::new()),
        }
    }

    /// Determines the machine of a new session: an existing one, a new one, or this host. A new one is recorded in the
    /// settings and returned, so that it can be removed if the session does not start.
    pub async fn settle_computer(
        &self,
        session: &str,
        owner: Option<&str>,
        agent: &Owned<Agent>,
        config: &mut SessionConfigState,
        directory: Option<String>,
    ) -> Result<Option<Made>, RpcError> {
        let provider = &*agent.provider;
        let named = match config.values.get(SETTING) {
            None | Some(Value::Null) => return Ok(None),
            Some(_) if !self.decides(agent) && config.schema.properties.contains_key(SETTING) => {
                return Ok(None);
            }
            Some(Value::String(text)) if text.is_empty() => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(_) => return Err(RpcError::invalid_params("config.computer must be text")),
        };
        if agent.machine.is_none() {
            return Err(RpcError::invalid_params(no_machine_for(provider)));
        }
        let Some(computers) = self.computers() else {
            return Err(RpcError::invalid_params(format!(
                "this host has no machines, so {named} does not exist"
            )));
        };
        if let Some(id) = named.strip_prefix(ADDRESS) {
            return self.check_machine(id, &named, provider).await.map(|()| None);
        }
        let Some(make) = &computers.make else {
            return Err(RpcError::invalid_params(format!(
                "this host cannot create machines, so {named} cannot be used"
            )));
        };
        if let Some(owner) = owner {
            self.access.require_of(owner, &Grant::of("computer", "put"))?;
        }
        let request = self.machine_request((session, owner), agent, &named, directory).await?;
        let made = make.within(limit::MACHINE_BUILD, (request,)).await.map_err(|why| match why.rpc {
            Some(_) => why.into_rpc(),
            None => RpcError::internal(format!("cannot create a machine from {named}: {}", why.message)),
        })?;
        if made.strip_prefix(ADDRESS).is_none_or(str::is_empty) {
            let what =
                format!("cannot create a machine from {named}: {made:?} is not an address, {ADDRESS}<id>");
            return Err(RpcError::internal(what));
        }
        config.values.insert(SETTING.to_owned(), made.as_str().into());
        Ok(Some(Made(made)))
    }

    /// Removes a machine whose session was not created.
    pub async fn unmake(&self, made: Made) {
        let remove = self.computers().and_then(|computers| computers.remove.as_ref());
        let Some(remove) = remove else {
            return self.core.log.warn(format_args!("{} was created for a session that was not", made.0));
        };
        if let Err(why) = remove.within(limit::MACHINE_BUILD, (made.0.clone(),)).await {
            self.core.log.warn(format_args!("{} could not be removed: {}", made.0, why.for_log()));
        }
    }

    async fn check_machine(&self, id: &str, named: &str, provider: &str) -> Result<(), RpcError> {
        let asked = |why: Thrown| RpcError::internal(unlisted(&why.message));
        let Some(machines) = self.machines().await.map_err(asked)? else { return Ok(()) };
        match machines.iter().find(|machine| machine.id == id) {
            None => Err(RpcError::not_found(format!("No machine at {named}"))),
            Some(machine) if !is_for(machine, provider) => {
                Err(RpcError::invalid_params(format!("{named} is not for {provider}")))
            }
            Some(_) => Ok(()),
        }
    }

    /// Creates the plan of a machine. The needs of its backends are requested only now.
    async fn machine_request(
        &self,
        (session, owner): (&str, Option<&str>),
        agent: &Owned<Agent>,
        source: &str,
        working_directory: Option<String>,
    ) -> Result<MachineRequest, RpcError> {
        let provider = agent.provider.to_string();
        let profile = match source.strip_prefix(DISPOSABLE) {
            Some(name) => Some((name.to_owned(), self.profile(name, &provider).await?)),
            None => {
                let folder =
                    source.strip_prefix(DEV_CONTAINER).map(|folder| file_path(&format!("file://{folder}")));
                if !folder.is_some_and(|folder| folder.starts_with('/')) {
                    return Err(RpcError::invalid_params(format!(
                        "config.computer must be {ADDRESS}<id>, {DISPOSABLE}<profile> or {DEV_CONTAINER}<folder>, not {source}"
                    )));
                }
                None
            }
        };
        let agents = match &profile {
            Some((_, profile)) if !profile.agents.is_empty() => profile.agents.clone(),
            _ => vec![provider],
        };
        let profile = profile.map(|(name, profile)| (name, profile.needs));
        let mut needy = Vec::new();
        for name in &agents {
            let agent = self.core.agent(name).ok_or_else(|| {
                let profile = profile.as_ref().map(|(name, _)| name.as_str()).unwrap_or_default();
                RpcError::invalid_params(format!("profile {profile} names agent {name}, which {NOT_LOADED}"))
            })?;
            needy.push(self.needs_of(&agent).await?);
        }
        let asking = Asking { profile, agents: needy, owner: owner.map(str::to_owned) };
        let (plan, asking) = self.planned(asking).await?;
        Ok(MachineRequest {
            source: source.to_owned(),
            profile: asking.profile.map(|(name, _)| name),
            session: session.to_owned(),
            owner: owner.map(str::to_owned),
            working_directory,
            agents,
            plan,
        })
    }

    async fn profile(&self, name: &str, provider: &str) -> Result<MachineProfile, RpcError> {
        let profiles = self.profiles().await;
        let mut profiles = profiles.map_err(|why| RpcError::internal(unreadable(&why.message)))?;
        let Some(profile) = profiles.remove(name) else {
            let known: Vec<&str> = profiles.keys().map(String::as_str).collect();
            let known = if known.is_empty() {
                "there are none".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            return Err(RpcError::invalid_params(format!("there is no profile {name}; {known}")));
        };
        match profile.agents.is_empty() || profile.agents.iter().any(|agent| agent == provider) {
            true => Ok(profile),
            false => Err(RpcError::invalid_params(format!("profile {name} is not for agent {provider}"))),
        }
    }

    async fn needs_of(&self, agent: &Owned<Agent>) -> Result<Needy, RpcError> {
        let name = agent.provider.to_string();
        let needs = match &agent.machine {
            Some(machine) => machine.within(limit::MACHINE, ()).await.map_err(|why| {
                RpcError::internal(format!(
                    "agent {name} could not say what a machine needs: {}",
                    why.message
                ))
            })?,
            None => BTreeMap::new(),
        };
        let plugin = match &agent.owner {
            Registrant::Plugin(id) => self.core.registry().and_then(|registry| registry.plugin(id)),
            Registrant::Host => None,
        };
        Ok(Needy {
            agent: name,
            plugin: plugin.map(|plugin| plugin.id().to_string()),
            options: plugin.map(|plugin| plugin.options().clone()).unwrap_or_default(),
            needs,
        })
    }

    /// Creates the plan on a separate thread, because it accesses paths of this host.
    async fn planned(&self, asking: Asking) -> Result<(MachinePlan, Asking), RpcError> {
        let here = self.core.local_system.get().cloned().unwrap_or_else(|| Arc::new(NoLocalSystem));
        let planned = tokio::task::spawn_blocking(move || plan(&asking, &*here).map(|plan| (plan, asking)));
        match planned.await {
            Ok(planned) => planned.map_err(RpcError::invalid_params),
            Err(error) => Err(RpcError::internal(error.to_string())),
        }
    }

    /// Why a session in a machine cannot continue: its backend no longer supports machines and would run on this host.
    pub fn stranded(&self, agent: &Agent, config: &SessionConfigState) -> Option<String> {
        let named = config.values.get(SETTING)?.as_str().filter(|named| named.starts_with(ADDRESS))?;
        let own = agent.machine.is_some() || config.schema.properties.contains_key(SETTING);
        (!own).then(|| format!("this session runs in {named}, and {}", no_machine_for(&agent.provider)))
    }

    /// Returns the machine of a session, for its backend.
    pub fn session_computer(
        self: &Arc<Self>,
        agent: &Agent,
        values: Option<&JsonObject>,
        directory: Option<String>,
        env: BTreeMap<String, String>,
    ) -> Option<SessionComputer> {
        let uri = values?.get(SETTING)?.as_str().filter(|named| named.starts_with(ADDRESS))?.to_owned();
        agent.machine.as_ref()?;
        let (workspace, placed) = (Arc::downgrade(self), Arc::downgrade(self));
        let (of, at) = (uri.clone(), uri.clone());
        let place = HostFunction::new(move |(path,): (String,)| {
            let (workspace, uri) = (placed.clone(), of.clone());
            async move {
                let workspace = upgraded(&workspace)?;
                Ok(seen(&workspace, &uri).await?.and_then(|machine| mapped(&machine, &path)))
            }
        });
        let how = HostFunction::new(move |(mut process,): (MachineProcess,)| {
            let (workspace, uri, directory) = (workspace.clone(), at.clone(), directory.clone());
            for (name, value) in &env {
                process.env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            async move {
                let workspace = upgraded(&workspace)?;
                if process.cwd.is_none()
                    && let Some(machine) = seen(&workspace, &uri).await?
                {
                    let inside = directory.and_then(|directory| mapped(&machine, &directory));
                    process.cwd = inside.or(machine.workdir);
                }
                let computers =
                    workspace.computers().ok_or_else(|| Thrown::new("this host has no machines"))?;
                computers.how.within(limit::MACHINE, (uri, process)).await
            }
        });
        Some(SessionComputer { uri, place, how })
    }

    /// After a session was removed, records how long it used its machine, and allows the removal of a machine that was
    /// created only for it.
    pub async fn leave_computer(&self, kept: &KeptSession) {
        if self.core.agent(&kept.provider).is_none_or(|agent| !self.decides(&agent)) {
            return;
        }
        let named =
            kept.values.get(SETTING).and_then(Value::as_str).filter(|named| named.starts_with(ADDRESS));
        let Some(named) = named.map(str::to_owned) else { return };
        let scope = |key: &str| kept.scope.as_ref()?.get(key)?.as_str().map(str::to_owned);
        let held = UsageEntry {
            kind: UsageKind::Computer,
            source: Some(UsageSource::Computer),
            owner: kept.owner.clone(),
            team: scope("team"),
            project: scope("project"),
            session: Some(kept.uri.clone()),
            agent: Some(kept.provider.clone()),
            computer: Some(named.clone()),
            seconds: Some(millis_between(&kept.created_at, self.core.clock.now()) as f64 / 1000.0),
            ..UsageEntry::default()
        };
        if let Err(why) = self.usage.record_use(held).await {
            self.core.log.warn(format_args!(
                "{}: the use of {named} could not be recorded: {}",
                kept.uri,
                why.for_log()
            ));
        }
        let Some(left) = self.computers().and_then(|computers| computers.left.as_ref()) else { return };
        if let Err(why) = left.within(limit::MACHINE, (named.clone(), kept.uri.clone())).await {
            self.core.log.warn(format_args!("{named}: {}", why.for_log()));
        }
    }
}

fn is_for(machine: &Computer, provider: &str) -> bool {
    machine.agents.as_ref().is_none_or(|agents| agents.iter().any(|agent| agent == provider))
}

fn unlisted(why: &dyn Display) -> String {
    format!("the machines could not be listed: {why}")
}

fn unreadable(why: &dyn Display) -> String {
    format!("the profiles of machines could not be read: {why}")
}

/// A machine from the provider's list.
async fn seen(workspace: &Workspace, uri: &str) -> Result<Option<Computer>, Thrown> {
    let id = uri.strip_prefix(ADDRESS).unwrap_or(uri);
    Ok(workspace.machines().await?.into_iter().flatten().find(|machine| machine.id == id))
}

/// Converts a path of this host to one in a machine, by the longest mount that contains it.
fn mapped(machine: &Computer, path: &str) -> Option<String> {
    let path = need::absolute(path)?;
    let held = |source: &str| {
        let source = need::absolute(source)?;
        match path.strip_prefix(&source) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') || source == "/" => {
                Some((source.len(), rest.to_owned()))
            }
            _ => None,
        }
    };
    let mounts = machine.mounts.iter().filter_map(|mount| Some((held(&mount.source)?, &mount.target)));
    let ((_, rest), target) = mounts.max_by_key(|((length, _), _)| *length)?;
    need::absolute(&format!("{target}/{rest}"))
}

/// The local system of a host that has none.
struct NoLocalSystem;

impl LocalSystem for NoLocalSystem {
    fn home(&self) -> Option<String> {
        None
    }

    fn look(&self, _: &str) -> Option<Found> {
        None
    }

    fn parts(&self) -> Result<BTreeMap<String, Pinned>, String> {
        Ok(BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::points::{Computer, MachineMount};

    use super::mapped;

    #[test]
    fn the_longest_mount_that_holds_a_path_says_where_it_is() {
        let mount = |source: &str, target: &str| MachineMount {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only: false,
        };
        let machine = Computer {
            mounts: vec![mount("/srv", "/work"), mount("/srv/inn/", "/inn"), mount("/srv/inn-2", "/two")],
            ..Computer::default()
        };
        for (path, inside) in [
            ("/srv/a/b", Some("/work/a/b")),
            ("/srv/inn", Some("/inn")),
            ("/srv/inn/x", Some("/inn/x")),
            ("/srv/inn-3", Some("/work/inn-3")),
            ("/srv2", None),
            ("/srv/../etc", None),
            ("srv", None),
        ] {
            assert_eq!(mapped(&machine, path).as_deref(), inside, "{path}");
        }
        let root = Computer { mounts: vec![mount("/", "/host")], ..Computer::default() };
        assert_eq!(mapped(&root, "/etc/x").as_deref(), Some("/host/etc/x"));
    }
}
