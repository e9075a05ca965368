//! Plans of machines, computed from the needs of their backends, or the error that rejects the machine. Accesses the
//! host only through [`LocalSystem`]. Spec: *Backend extensions*.

use std::collections::BTreeMap;
use std::fmt;

use ostler_contract::points::{
    MachineCopy, MachineMount, MachineNeed, MachinePart, MachinePlan, MachineVolume,
};
use ostler_contract::{JsonObject, Value};
use ostler_engine_core::local_system::{LocalSystem, Pinned};
use ostler_protocol::names::HOST;

use super::login::is_login_file;
use super::need::{Shape, absolute, shape_of, target};

/// A backend and its needs. Options can contain credentials, so this is never printed.
#[derive(Clone, Default)]
pub(super) struct Needy {
    pub agent: String,
    /// The plugin that registered it.
    pub plugin: Option<String>,
    pub options: JsonObject,
    pub needs: BTreeMap<String, MachineNeed>,
}

impl Needy {
    /// Returns the name of one of its needs, for messages.
    fn whose(&self, need: &str) -> String {
        format!("need {need} of agent {}", self.agent)
    }
}

/// The inputs of a plan.
#[derive(Clone, Default)]
pub(super) struct Asking {
    /// The name and the values of the profile.
    pub profile: Option<(String, BTreeMap<String, String>)>,
    pub agents: Vec<Needy>,
    /// The owner of the state in its volumes, on a host with a users file.
    pub owner: Option<String>,
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Profile(String),
    Option(String),
    Default,
    Own,
    Fallback,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(name) => write!(formatter, "from profile {name}"),
            Self::Option(path) => write!(formatter, "from the option {path}"),
            Self::Default => formatter.write_str("the need's default"),
            Self::Own => formatter.write_str("the path the need carries"),
            Self::Fallback => formatter.write_str("the need's fallback"),
        }
    }
}

/// Creates the plan of a machine.
pub(super) fn plan(asking: &Asking, here: &dyn LocalSystem) -> Result<MachinePlan, String> {
    let mut making =
        Making { asking, here, plan: MachinePlan::default(), taken: BTreeMap::new(), parts: None };
    for needy in &asking.agents {
        for (name, need) in &needy.needs {
            let whose = needy.whose(name);
            making.meet(needy, name, need).map_err(|why| format!("{whose}: {why}"))?;
        }
    }
    Ok(making.plan)
}

struct Making<'a> {
    asking: &'a Asking,
    here: &'a dyn LocalSystem,
    plan: MachinePlan,
    /// Targets and variables, each with the need that uses it.
    taken: BTreeMap<String, String>,
    parts: Option<BTreeMap<String, Pinned>>,
}

impl Making<'_> {
    fn meet(&mut self, needy: &Needy, name: &str, need: &MachineNeed) -> Result<(), String> {
        let shape = shape_of(need)?;
        let whose = needy.whose(name);
        let given = self.given(needy, name, need, &shape)?;
        match (shape, given) {
            (Shape::Part { part, fallback }, given) => self.part(&whose, need, part, fallback, given),
            (_, None) if need.required == Some(true) => Err(self.lacks(needy, name)),
            (_, None) => Ok(()),
            (Shape::Directory { target: at, read_only, .. }, Some((path, origin))) => {
                let source = self.standing(&path, &origin, Some(true))?;
                self.mount(&whose, &origin, source, at, read_only)
            }
            (Shape::File { target: at, read_only, .. }, Some((path, origin))) => {
                let source = self.standing(&path, &origin, Some(false))?;
                self.mount(&whose, &origin, source, at, read_only)
            }
            (Shape::Copy { target: at, .. }, Some((path, origin))) => {
                let source = self.standing(&path, &origin, None)?;
                let target = self.take(&whose, &origin, at)?;
                self.plan.copies.push(MachineCopy { source, target });
                Ok(())
            }
            (Shape::Variable { name: variable }, Some((value, origin))) => {
                self.variable(&whose, variable, value, &origin)
            }
            (Shape::State { seed, .. }, Some((path, origin))) => {
                let target = self.take(&whose, &origin, &path)?;
                let seed = self.seeds(seed, &target)?;
                let name = volume(&needy.agent, name, self.asking.owner.as_deref());
                self.plan.volumes.push(MachineVolume { name, target, seed });
                Ok(())
            }
        }
    }

    /// Returns the value of a need and its source: the profile, the plugin option, the default, or the need itself.
    fn given(
        &self,
        needy: &Needy,
        name: &str,
        need: &MachineNeed,
        shape: &Shape<'_>,
    ) -> Result<Option<(String, Origin)>, String> {
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        if let Some((profile, needs)) = &self.asking.profile
            && let Some(value) = needs.get(name).and_then(said)
        {
            return Ok(Some((value, Origin::Profile(profile.clone()))));
        }
        if let Some(plugin) = &needy.plugin
            && let Some(option) = needy.options.get(name)
        {
            let origin = Origin::Option(format!("plugins.{plugin}.options.{name}"));
            match option {
                Value::String(text) => {
                    if let Some(value) = said(text) {
                        return Ok(Some((value, origin)));
                    }
                }
                Value::Null => {}
                Value::Bool(_) | Value::Number(_) if matches!(shape, Shape::Variable { .. }) => {
                    return Ok(Some((option.to_string(), origin)));
                }
                _ => return Err(format!("its value must be text ({origin})")),
            }
        }
        let fallen = need.default.as_ref().and_then(said).map(|value| (value, Origin::Default));
        Ok(fallen.or_else(|| {
            let own = shape.own().filter(|own| !own.is_empty())?;
            Some((own.to_owned(), Origin::Own))
        }))
    }

    fn lacks(&self, needy: &Needy, name: &str) -> String {
        let mut ways = Vec::new();
        if let Some((profile, _)) = &self.asking.profile {
            ways.push(format!("as {name} in the needs of profile {profile}"));
        }
        if let Some(plugin) = &needy.plugin {
            ways.push(format!("as the option plugins.{plugin}.options.{name}"));
        }
        match ways.is_empty() {
            true => "it is required and has no value".to_owned(),
            false => format!("it is required and has no value; give one {}", ways.join(" or ")),
        }
    }

    /// Expands the home directory in a path of this host.
    fn path(&self, path: &str, origin: &Origin) -> Result<String, String> {
        let whole = match path.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self.here.home();
                let home = home.ok_or_else(|| format!("{path}: the host's user has no home ({origin})"))?;
                format!("{}{rest}", home.trim_end_matches('/'))
            }
            _ => path.to_owned(),
        };
        absolute(&whole).ok_or_else(|| format!("{path} is not an absolute path ({origin})"))
    }

    /// Returns an existing path of this host.
    fn standing(&self, path: &str, origin: &Origin, directory: Option<bool>) -> Result<String, String> {
        let whole = self.path(path, origin)?;
        let found = self.here.look(&whole).ok_or_else(|| format!("{path} does not exist ({origin})"))?;
        match directory {
            Some(true) if !found.is_directory => Err(format!("{path} is not a directory ({origin})")),
            Some(false) if found.is_directory => Err(format!("{path} is not a file ({origin})")),
            _ => Ok(whole),
        }
    }

    /// Reserves a target in the machine.
    fn take(&mut self, whose: &str, origin: &Origin, at: &str) -> Result<String, String> {
        let target = target(at)
            .ok_or_else(|| format!("its target {at} is not an absolute path below the root ({origin})"))?;
        if let Some(other) = self.taken.insert(target.clone(), whose.to_owned()) {
            return Err(format!("{other} has the target {target} too ({origin})"));
        }
        Ok(target)
    }

    fn mount(
        &mut self,
        whose: &str,
        origin: &Origin,
        source: String,
        at: &str,
        read_only: bool,
    ) -> Result<(), String> {
        let target = self.take(whose, origin, at)?;
        self.plan.mounts.push(MachineMount { source, target, read_only });
        Ok(())
    }

    /// Messages about a variable never contain its value.
    fn variable(&mut self, whose: &str, name: &str, value: String, origin: &Origin) -> Result<(), String> {
        if value.contains('\0') {
            return Err(format!(
                "its value contains a character that an environment variable cannot ({origin})"
            ));
        }
        match self.plan.env.get(name) {
            Some(held) if *held != value => {
                let other = self.taken.get(&format!("${name}")).cloned().unwrap_or_default();
                Err(format!("{other} sets {name} to another value ({origin})"))
            }
            _ => {
                self.taken.insert(format!("${name}"), whose.to_owned());
                self.plan.env.insert(name.to_owned(), value);
                Ok(())
            }
        }
    }

    fn part(
        &mut self,
        whose: &str,
        need: &MachineNeed,
        part: &str,
        fallback: Option<&str>,
        given: Option<(String, Origin)>,
    ) -> Result<(), String> {
        if let Some((path, origin)) = given {
            let source = self.standing(&path, &origin, Some(true))?;
            return self.mount(whose, &origin, source, &part_target(part), true);
        }
        if self.parts.is_none() {
            self.parts = Some(self.here.parts()?);
        }
        let pinned = self.parts.clone().unwrap_or_default();
        if pinned.contains_key(part) {
            return self.pin(whose, part, &pinned);
        }
        match fallback.filter(|fallback| !fallback.is_empty()) {
            Some(path) => {
                let source = self.standing(path, &Origin::Fallback, Some(true))?;
                self.mount(whose, &Origin::Fallback, source, &part_target(part), true)
            }
            None if need.required == Some(true) => {
                Err(format!("it is required, and the versions file pins no part {part}"))
            }
            None => Ok(()),
        }
    }

    /// Adds a pinned part with the parts that it requires, each once.
    fn pin(&mut self, whose: &str, part: &str, pinned: &BTreeMap<String, Pinned>) -> Result<(), String> {
        let mut wanted = vec![(part.to_owned(), None::<String>)];
        while let Some((name, by)) = wanted.pop() {
            if self.plan.parts.iter().any(|there| there.part == name) {
                continue;
            }
            let Some(row) = pinned.get(&name) else {
                let by = by.unwrap_or_default();
                return Err(format!("part {by} requires part {name}, which the versions file does not pin"));
            };
            let target = part_target(&name);
            if let Some(other) = self.taken.insert(target.clone(), whose.to_owned()) {
                return Err(format!("{other} has the target {target} too (part {name})"));
            }
            self.plan.parts.push(MachinePart {
                part: name.clone(),
                version: row.version.clone(),
                target,
                package: row.package.clone(),
            });
            wanted.extend(row.requires.iter().map(|next| (next.clone(), Some(name.clone()))));
        }
        Ok(())
    }

    /// Returns the initial files of a volume. Omits missing files; rejects login files.
    fn seeds(&self, listed: &[String], target: &str) -> Result<Vec<MachineCopy>, String> {
        let mut copies: Vec<MachineCopy> = Vec::new();
        for path in listed {
            let source = self.path(path, &Origin::Own)?;
            let found = self.here.look(&source);
            let real = found.as_ref().map(|found| found.real.as_str());
            if is_login_file(&source) || real.is_some_and(is_login_file) {
                return Err(format!("{path} is a login file, and no volume is seeded from one"));
            }
            match found {
                Some(found) if found.is_directory => {
                    return Err(format!("{path} is not a file (in its seed)"));
                }
                Some(_) => {
                    let name = source.rsplit('/').next().unwrap_or_default();
                    let target = format!("{target}/{name}");
                    if copies.iter().any(|copy| copy.target == target) {
                        return Err(format!("its seed has two files named {name}"));
                    }
                    copies.push(MachineCopy { source, target });
                }
                None => {}
            }
        }
        Ok(copies)
    }
}

fn part_target(part: &str) -> String {
    format!("/opt/{HOST}/{part}")
}

/// Returns the name of a volume, which is unique per backend, need and owner.
fn volume(agent: &str, need: &str, owner: Option<&str>) -> String {
    let mut name = HOST.to_owned();
    for part in [Some(agent), Some(need), owner].into_iter().flatten() {
        name.push('-');
        for byte in part.bytes() {
            match byte {
                byte if byte.is_ascii_alphanumeric() => name.push(byte.into()),
                byte => name.push_str(&format!("_{byte:02x}")),
            }
        }
    }
    name
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
