//! The description of the host in `_meta` of `initialize` and of the root state: the schemes, channels and commands of
//! plugins, and the grants.

use ostler_contract::points::{
    Description, NamedMethod, ResourceProvider, SchemeChannel, SchemeDescription, SchemeProvider,
};
use ostler_contract::registry::{Owned, Registrant};
use ostler_contract::{Call, Cross, JsonObject, Value, json, limit};
use ostler_protocol::grants::{Grant, SCHEME_READ, SCHEME_WRITE, SUBJECTS, subject};
use ostler_protocol::names;

use crate::front::Front;

/// One subject, with its operations by group.
#[derive(Default)]
struct SubjectRow {
    title: String,
    description: String,
    read: Vec<String>,
    write: Vec<String>,
}

/// Subjects by name, in the order of the listing.
type Rows = Vec<(String, SubjectRow)>;

impl Front {
    /// Returns the description of the host for `_meta`.
    pub(crate) async fn advertised(&self) -> JsonObject {
        if let Some(meta) = self.meta.get() {
            return meta.clone();
        }
        let mut rows: Rows =
            SUBJECTS.iter().map(|known| (known.name.to_owned(), SubjectRow::of_host(known))).collect();
        let mut meta = JsonObject::new();
        // In order in the answer, but concurrently.
        let (providers, channels, methods) =
            futures::join!(self.described_schemes(), self.described_channels(), self.described_methods());
        let mut say = |fact: &str, value: Value, there: bool| {
            if there {
                meta.insert(names::meta_key(fact), value);
            }
        };
        let schemes: JsonObject =
            providers.into_iter().map(|(held, told)| scheme_row(&held, told, &mut rows)).collect();
        say("resourceProviders", json!(schemes), !schemes.is_empty());
        let channels: Vec<Value> = channels
            .into_iter()
            .filter_map(|(held, told)| {
                let scheme = held.scheme.to_ascii_lowercase();
                named_row("scheme", &scheme, &held.channel.grant, told, &mut rows)
            })
            .collect();
        say("channels", json!(channels), !channels.is_empty());
        let methods: Vec<Value> = methods
            .into_iter()
            .filter_map(|(held, told)| named_row("method", &held.name, &held.method.grant, told, &mut rows))
            .collect();
        say("methods", json!(methods), !methods.is_empty());
        let grants: JsonObject = rows.into_iter().map(|(name, row)| (name, row.into_value())).collect();
        say("grants", json!(grants), true);
        if self.workspace.containers().is_some() {
            meta.insert(ostler_engine_workspace::containers::CAPABILITY.to_owned(), true.into());
        }
        if self.workspace.worktrees().is_some() {
            meta.insert(ostler_engine_workspace::detached::CAPABILITY.to_owned(), true.into());
        }
        let _ = self.meta.set(meta.clone());
        meta
    }

    async fn described_schemes(&self) -> Vec<(Owned<SchemeProvider>, SchemeDescription)> {
        let held = self.core.registry().map(|registry| registry.all::<SchemeProvider>()).unwrap_or_default();
        let described = self.resources.own_providers().iter().chain(held).map(|held| async move {
            let told =
                self.described(&held.owner, "scheme", &held.scheme, held.provider.describe.as_ref()).await;
            (held.clone(), told.unwrap_or_default())
        });
        futures::future::join_all(described).await
    }

    async fn described_channels(&self) -> Vec<(Owned<SchemeChannel>, Option<Description>)> {
        let held = self.core.registry().map(|registry| registry.all::<SchemeChannel>()).unwrap_or_default();
        let described = held.iter().map(|held| async move {
            (
                held.clone(),
                self.described(&held.owner, "channel", &held.scheme, held.channel.describe.as_ref()).await,
            )
        });
        futures::future::join_all(described).await
    }

    async fn described_methods(&self) -> Vec<(Owned<NamedMethod>, Option<Description>)> {
        let held = self.core.registry().map(|registry| registry.all::<NamedMethod>()).unwrap_or_default();
        let described = held.iter().map(|held| async move {
            (
                held.clone(),
                self.described(&held.owner, "command", &held.name, held.method.describe.as_ref()).await,
            )
        });
        futures::future::join_all(described).await
    }

    /// Returns a plugin's description of something it serves, if it has one. Without an answer, or after an error, only
    /// the name is known.
    async fn described<T: Cross + Default>(
        &self,
        owner: &Registrant,
        kind: &str,
        name: &str,
        describe: Option<&Call<fn() -> T>>,
    ) -> Option<T> {
        let told = describe?.within(limit::DESCRIBE, ()).await;
        Some(told.unwrap_or_else(|why| {
            self.core.report_failed(owner, &format!("the describe of its {kind} {name}"), &why);
            T::default()
        }))
    }
}

impl SubjectRow {
    fn of_host(known: &ostler_protocol::grants::Subject) -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            title: known.title.to_owned(),
            description: known.description.to_owned(),
            read: words(known.read),
            write: words(known.write),
        }
    }

    /// Adds an operation to its group of grants.
    fn add(&mut self, operation: &str) {
        let group = match SCHEME_READ.contains(&operation) {
            true => &mut self.read,
            false => &mut self.write,
        };
        if !group.iter().any(|known| known == operation) {
            group.push(operation.to_owned());
        }
    }

    fn into_value(self) -> Value {
        let operations: Vec<&String> = self.read.iter().chain(&self.write).collect();
        json!({ "title": self.title, "description": self.description, "operations": operations,
            "read": self.read, "write": self.write })
    }
}

/// Returns the row of a subject; a new one receives this title and description.
fn row<'a>(rows: &'a mut Rows, name: &str, title: &str, description: Option<&str>) -> &'a mut SubjectRow {
    let at = rows.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        let description = description.unwrap_or_default().to_owned();
        rows.push((
            name.to_owned(),
            SubjectRow { title: title.to_owned(), description, ..SubjectRow::default() },
        ));
        rows.len() - 1
    });
    &mut rows[at].1
}

/// Adds the description of a provider's scheme, which is also a subject.
fn scheme_row(held: &SchemeProvider, told: SchemeDescription, rows: &mut Rows) -> (String, Value) {
    let scheme = held.scheme.to_ascii_lowercase();
    let operations = operations(&held.provider);
    if subject(&scheme).is_none() {
        let title = told.title.as_deref().unwrap_or(&scheme);
        let row = row(rows, &scheme, title, told.description.as_deref());
        operations.iter().for_each(|operation| row.add(operation));
    }
    let mut said = match serde_json::to_value(told) {
        Ok(Value::Object(said)) => said,
        _ => JsonObject::new(),
    };
    said.insert("root".to_owned(), format!("{scheme}://").into());
    said.insert("operations".to_owned(), json!(operations));
    (scheme, Value::Object(said))
}

/// Adds the description of a channel or a command, if it has one, and its grant in any case.
fn named_row(
    called: &str,
    name: &str,
    grant: &str,
    told: Option<Description>,
    rows: &mut Rows,
) -> Option<Value> {
    let described = told.clone().unwrap_or_default();
    let title = described.title.as_deref().unwrap_or(name);
    if let Some(asked) =
        Grant::parse(grant).filter(|asked| asked.subject != "*" && subject(&asked.subject).is_none())
    {
        let row = row(rows, &asked.subject, title, described.description.as_deref());
        if !matches!(asked.operation.as_ref(), "*" | "read" | "write") {
            row.add(&asked.operation);
        }
    }
    told?;
    let mut said = json!({ called: name, "title": title, "grant": grant });
    if let Some(description) = described.description {
        said["description"] = description.into();
    }
    Some(said)
}

/// Returns the operations of a provider as grants: `read` is `get`, `write` is `put`, the others keep their names.
fn operations(provider: &ResourceProvider) -> Vec<String> {
    let there = [
        (true, "get"),
        (provider.list.is_some(), "list"),
        (provider.resolve.is_some(), "resolve"),
        (provider.watch.is_some(), "watch"),
        (provider.write.is_some(), "put"),
        (provider.delete.is_some(), "delete"),
        (provider.mkdir.is_some(), "mkdir"),
        (provider.r#move.is_some(), "move"),
        (provider.copy.is_some(), "copy"),
        (provider.request.is_some(), "request"),
    ];
    debug_assert_eq!(there.len(), SCHEME_READ.len() + SCHEME_WRITE.len());
    let own = there.iter().filter(|(there, _)| *there).map(|(_, name)| (*name).to_owned());
    own.chain(provider.operations.iter().flatten().cloned()).collect()
}
