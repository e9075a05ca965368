//! The plugins that clients contribute to a session. Each plugin is copied from its client into a folder of the
//! session, and the backends receive the folders. A copy is removed with its session, or once no client contributes the
//! plugin.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::points::{ClientPlugin, ResourceContent};
use ostler_contract::{Budget, Charge, HostFunction};
use ostler_engine_core::plugin_folders::{PluginFolder, PluginFolders};
use ostler_engine_core::tasks;
use ostler_engine_users::resources::Room;
use ostler_engine_users::resources::published::{Publisher, unwrapped};
use ostler_engine_users::users::clients::{Client, ClientIdentity};
use ostler_protocol::wire::actions::{
    SessionCustomizationRemovedAction, SessionCustomizationUpdatedAction, StateAction,
};
use ostler_protocol::wire::commands::{ContentEncoding, ResourceListResult};
use ostler_protocol::wire::state::{
    ClientPluginCustomization, Customization, CustomizationEnablement, CustomizationErrorState,
    CustomizationLoadState, CustomizationLoadedState, CustomizationLoadingState, PluginCustomization,
};
use ostler_protocol::{json, uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::actor::Actor;
use super::backend::Tell;
use super::mailbox::ToSession;
use crate::Sessions;

/// Maximum disk space for the copies of all sessions, in bytes.
pub(super) const ALL_MAX: usize = 512 * 1024 * 1024;
/// Maximum number of plugins that are copied for one session.
const PLUGINS_MAX: usize = 64;
/// Maximum number of files and directories in a plugin.
const ENTRIES_MAX: usize = 1000;
/// Maximum total size of a plugin's files, in bytes.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum depth of a plugin's directories.
const DEPTH_MAX: usize = 16;
/// The disk space that a file occupies at least.
const BLOCK: usize = 4096;
/// Timeout for a copy.
const COPY_LIMIT: Duration = Duration::from_secs(120);
/// How long a turn or the start of a backend waits for copies.
const TURN_WAIT: Duration = Duration::from_secs(30);
/// The characters that are percent-encoded in a name.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The plugins of a session's clients.
#[derive(Debug, Default)]
pub(super) struct ClientPlugins {
    copies: Vec<Copied>,
    next: u64,
    now: watch::Sender<Now>,
}

/// The current plugins.
#[derive(Debug, Clone, Default)]
struct Now {
    /// The number of copies in progress.
    pending: usize,
    plugins: Vec<ClientPlugin>,
}

/// A plugin that a client contributes.
#[derive(Debug)]
struct Copied {
    number: u64,
    client: String,
    published: ClientPluginCustomization,
    /// The id under which it is listed.
    id: String,
    folder: Option<Arc<PluginFolder>>,
    /// The copy in progress, if any; `folder` is then that of the previous copy.
    task: Option<Task>,
    failed: Option<String>,
}

/// A task that is aborted when its handle is dropped.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Copied {
    /// Whether the copy matches the plugin that its client publishes now.
    fn is_of(&self, published: &ClientPluginCustomization) -> bool {
        self.published.uri == published.uri && self.published.nonce == published.nonce
    }

    /// Returns the plugin as clients see it.
    fn listed(&self, enablement: Option<Vec<CustomizationEnablement>>) -> Customization {
        let published = self.published.clone();
        let load = match (&self.task, &self.failed) {
            (Some(_), _) => CustomizationLoadState::Loading(CustomizationLoadingState {}),
            (None, Some(why)) => {
                CustomizationLoadState::Error(CustomizationErrorState { message: why.clone() })
            }
            (None, None) => CustomizationLoadState::Loaded(CustomizationLoadedState {}),
        };
        Customization::Plugin(PluginCustomization {
            id: self.id.clone(),
            uri: published.uri,
            name: published.name,
            icons: published.icons,
            range: published.range,
            meta: published.meta,
            client_id: Some(self.client.clone()),
            load: Some(load),
            children: published.children,
            enablement: enablement.or(published.enablement),
            version: published.version,
        })
    }
}

impl ClientPlugins {
    /// Whether a customization of the session is one of the plugins.
    pub fn lists(&self, customization: &Customization) -> bool {
        self.copies.iter().any(|copy| id_of(customization) == Some(&*copy.id))
    }

    /// Resolves once no copy is in progress, or after a timeout, to the plugins copied by then.
    pub fn settled(&self) -> impl Future<Output = Vec<ClientPlugin>> + Send + use<> {
        let mut now = self.now.subscribe();
        async move {
            let _ = tokio::time::timeout(TURN_WAIT, now.wait_for(|now| now.pending == 0)).await;
            now.borrow().plugins.clone()
        }
    }

    /// Returns the copied plugins.
    pub fn list(&self) -> Vec<ClientPlugin> {
        self.now.borrow().plugins.clone()
    }

    /// Returns the work that a turn waits for if copies are in progress.
    pub fn before_turn(&self) -> Option<Tell> {
        (self.now.borrow().pending > 0).then(|| {
            let settled = self.now.subscribe();
            let done = HostFunction::new(move |()| {
                let mut settled = settled.clone();
                async move {
                    let _ = tokio::time::timeout(TURN_WAIT, settled.wait_for(|now| now.pending == 0)).await;
                    Ok(())
                }
            });
            Tell::Before { done }
        })
    }
}

impl Actor {
    /// Copies the plugins that clients contribute now and removes those that no client contributes any more.
    pub(super) fn sync_client_plugins(&mut self) {
        let Some(folders) = self.core.plugin_folders.get().cloned() else { return };
        let mut wanted: Vec<(String, ClientPluginCustomization)> = Vec::new();
        for client in &self.state.active_clients {
            for published in client.customizations.iter().flatten() {
                let known = |(other, plugin): &(String, ClientPluginCustomization)| {
                    *other == client.client_id && plugin.id == published.id
                };
                if !wanted.iter().any(known) {
                    wanted.push((client.client_id.clone(), published.clone()));
                }
            }
        }
        if wanted.is_empty() && self.client_plugins.copies.is_empty() {
            return;
        }
        let mut left = Vec::new();
        for mut copy in std::mem::take(&mut self.client_plugins.copies) {
            let at = wanted
                .iter()
                .position(|(client, published)| *client == copy.client && published.id == copy.published.id);
            let Some(at) = at else {
                left.extend(copy.folder.take());
                let removed = SessionCustomizationRemovedAction { id: copy.id };
                self.apply_session(StateAction::SessionCustomizationRemoved(removed), None);
                continue;
            };
            let (_, published) = wanted.remove(at);
            let same = copy.is_of(&published);
            let changed = copy.published != published;
            copy.published = published;
            if !same {
                self.start_copy(&mut copy, &folders);
            }
            if changed {
                self.show_plugin(&copy);
            }
            self.client_plugins.copies.push(copy);
        }
        for (client, published) in wanted {
            let id = self.free_id(&client, &published.id);
            let mut copy =
                Copied { number: 0, client, published, id, folder: None, task: None, failed: None };
            match self.client_plugins.copies.len() < PLUGINS_MAX {
                true => self.start_copy(&mut copy, &folders),
                false => {
                    copy.failed = Some(format!("a session copies at most {PLUGINS_MAX} plugins of clients"))
                }
            }
            self.show_plugin(&copy);
            self.client_plugins.copies.push(copy);
        }
        self.client_plugins_changed(left);
    }

    /// Handles a copy that succeeded or failed.
    pub(super) fn plugin_copied(&mut self, number: u64, outcome: Result<PluginFolder, String>) {
        let copies = &mut self.client_plugins.copies;
        let Some(at) = copies.iter().position(|copy| copy.number == number && copy.task.is_some()) else {
            return;
        };
        let mut copy = copies.remove(at);
        copy.task = None;
        let left = copy.folder.take();
        match outcome {
            Ok(folder) => copy.folder = Some(Arc::new(folder)),
            Err(why) => {
                let why = format!(
                    "the plugin {} of client {} is not copied: {why}",
                    copy.published.name, copy.client
                );
                self.core.log.warn(format_args!("{}: {why}", self.entry.uri));
                copy.failed = Some(why);
            }
        }
        self.show_plugin(&copy);
        self.client_plugins.copies.insert(at, copy);
        self.client_plugins_changed(left.into_iter().collect());
    }

    /// Adds the plugins of clients to a backend's list, which replaces the whole previous list.
    pub(super) fn list_client_plugins(&self, listed: &mut Vec<Customization>) {
        for copy in &self.client_plugins.copies {
            if !listed.iter().any(|other| id_of(other) == Some(&copy.id)) {
                listed.push(copy.listed(self.toggled(&copy.id)));
            }
        }
    }

    /// Notifies the backends that a client's plugin was enabled or disabled.
    pub(super) fn client_plugin_toggled(&mut self) {
        self.client_plugins_changed(Vec::new());
    }

    /// Returns the decisions made in this session about a customization.
    fn toggled(&self, id: &str) -> Option<Vec<CustomizationEnablement>> {
        let view = self.entry.view();
        view.record.toggled.get(id).and_then(|decisions| serde_json::from_value(decisions.clone()).ok())
    }

    /// Returns the id that a client chose, qualified with the client if another customization has the same id.
    fn free_id(&self, client: &str, id: &str) -> String {
        let listed = self.state.customizations.iter().flatten();
        let taken = listed.clone().any(|other| id_of(other) == Some(id))
            || self.client_plugins.copies.iter().any(|copy| copy.id == id);
        match taken {
            true => format!("{client}/{id}"),
            false => id.to_owned(),
        }
    }

    fn start_copy(&mut self, copy: &mut Copied, folders: &Arc<dyn PluginFolders>) {
        self.client_plugins.next += 1;
        copy.number = self.client_plugins.next;
        copy.failed = None;
        let client = self.active_clients.iter().find(|client| client.id == copy.client).cloned();
        let source = Source { sessions: self.sessions.clone(), client };
        let (number, session, mailbox) = (copy.number, self.entry.id.clone(), self.mailbox.clone());
        let (folders, root) = (folders.clone(), copy.published.uri.clone());
        copy.task = Some(Task(tasks::spawn(async move {
            let copied = tokio::time::timeout(COPY_LIMIT, source.copy(&folders, &session, &root)).await;
            let outcome = copied
                .unwrap_or_else(|_| Err(format!("it took longer than {} seconds", COPY_LIMIT.as_secs())));
            let _ = mailbox.send(ToSession::PluginCopied { number, outcome });
        })));
    }

    /// Publishes a plugin's load state to clients.
    fn show_plugin(&mut self, copy: &Copied) {
        let customization = copy.listed(self.toggled(&copy.id));
        let updated = SessionCustomizationUpdatedAction { customization };
        self.apply_session(StateAction::SessionCustomizationUpdated(Box::new(updated)), None);
    }

    /// Sends the backends the current plugins if they changed. The folders in `left` are removed after that.
    fn client_plugins_changed(&mut self, left: Vec<Arc<PluginFolder>>) {
        let plugins: Vec<ClientPlugin> = self
            .client_plugins
            .copies
            .iter()
            .filter_map(|copy| {
                let folder = copy.folder.as_ref()?;
                let decisions = self.toggled(&copy.id).or_else(|| copy.published.enablement.clone());
                Some(ClientPlugin {
                    id: copy.id.clone(),
                    client_id: copy.client.clone(),
                    uri: copy.published.uri.clone(),
                    name: copy.published.name.clone(),
                    version: copy.published.version.clone(),
                    path: folder.path.clone(),
                    enabled: decisions.as_deref().and_then(<[_]>::first).is_none_or(is_on),
                })
            })
            .collect();
        let pending = self.client_plugins.copies.iter().filter(|copy| copy.task.is_some()).count();
        if self.client_plugins.now.borrow().plugins != plugins {
            self.tell_all(|| Tell::SetClientPlugins { plugins: plugins.clone(), left: left.clone() });
        }
        // A turn that waits for this starts after the backend received the plugins.
        self.client_plugins.now.send_replace(Now { pending, plugins });
    }
}

fn is_on(decision: &CustomizationEnablement) -> bool {
    match decision {
        CustomizationEnablement::Global { enabled }
        | CustomizationEnablement::Workspace { enabled, .. }
        | CustomizationEnablement::Session { enabled } => *enabled,
        CustomizationEnablement::Unknown(_) => true,
    }
}

fn id_of(customization: &Customization) -> Option<&str> {
    match customization {
        Customization::Plugin(plugin) => Some(&plugin.id),
        Customization::Directory(directory) => Some(&directory.id),
        Customization::McpServer(server) => Some(&server.id),
        _ => None,
    }
}

/// The client that provides the files of a plugin.
struct Source {
    sessions: Arc<Sessions>,
    client: Option<ClientIdentity>,
}

impl Source {
    /// Returns the client's connections that belong to the same user.
    fn publisher(&self) -> Result<Publisher, String> {
        let is_of_client = |connection: &Arc<dyn Client>| {
            self.client.as_ref().is_some_and(|client| client.is_of(&**connection))
        };
        let open = self.sessions.access.clients.open().into_iter();
        let open = open.filter(|connection| !connection.is_closed() && is_of_client(connection));
        Publisher::of(open.collect()).ok_or_else(|| "the client is not connected".to_owned())
    }

    /// Copies a directory of the client.
    async fn copy(
        &self,
        folders: &Arc<dyn PluginFolders>,
        session: &str,
        root: &str,
    ) -> Result<PluginFolder, String> {
        let mut folder = PluginFolder::make(folders, session).await?;
        let (mut entries, mut bytes) = (0, 0);
        let mut directories = vec![(root.to_owned(), Vec::new())];
        while let Some((directory, path)) = directories.pop() {
            for entry in self.list(&directory).await?.entries {
                let name = entry.name;
                entries += 1;
                if entries > ENTRIES_MAX {
                    return Err(format!("it has more than {ENTRIES_MAX} files and directories"));
                }
                if !is_plain(&name) {
                    return Err(format!("{directory} has an entry {name:?}, which is not a plain file name"));
                }
                let mut path: Vec<String> = path.clone();
                path.push(name);
                if path.len() > DEPTH_MAX {
                    return Err(format!("its directories are nested more than {DEPTH_MAX} levels deep"));
                }
                let uri = child(&directory, &path[path.len() - 1]);
                match entry.r#type.as_str() {
                    "directory" => {
                        folder.charges.push(charged(&self.sessions.limits.client_plugins, BLOCK)?);
                        directories.push((uri, path));
                    }
                    "file" => {
                        let (content, _memory) = self.read(&uri, &mut folder, &mut bytes).await?;
                        folder.write(&path, content).await?;
                    }
                    // Other types of entries cannot be copied.
                    _ => {}
                }
            }
        }
        Ok(folder)
    }

    async fn list(&self, directory: &str) -> Result<ResourceListResult, String> {
        let params = unwrapped(json!({ "channel": uri::ROOT, "uri": directory }));
        let listed = self.publisher()?.ask_any("resourceList", &params).await;
        let listed = listed.map_err(|refused| format!("{directory}: {}", refused.message))?;
        serde_json::from_value(listed)
            .map_err(|error| format!("{directory}: invalid response to resourceList: {error}"))
    }

    /// Returns the content of a file, with the charge of its memory.
    async fn read(
        &self,
        uri: &str,
        folder: &mut PluginFolder,
        bytes: &mut usize,
    ) -> Result<(Vec<u8>, Charge), String> {
        let client = self.publisher()?;
        let (resources, encoding) = (&self.sessions.resources, ContentEncoding::Base64);
        // The received text and its decoded content.
        let size_of = |content: &ResourceContent| content.data.len().saturating_mul(2);
        // A copy that fails is not repeated, and has a time limit of its own.
        let room = Room { limit: None, ..resources.reads() };
        let read = resources.read_published_within(room, &client, uri, Some(&encoding), size_of).await;
        let (content, charge) = read.map_err(|refused| format!("{uri}: {}", refused.message))?;
        let content = match content.encoding {
            ContentEncoding::Base64 => STANDARD
                .decode(&content.data)
                .map_err(|error| format!("{uri}: the content is not base64: {error}"))?,
            _ => content.data.into_bytes(),
        };
        *bytes += content.len();
        if *bytes > BYTES_MAX {
            return Err(format!("its files exceed {} MiB", BYTES_MAX >> 20));
        }
        folder.charges.push(charged(&self.sessions.limits.client_plugins, content.len().max(BLOCK))?);
        Ok((content, charge))
    }
}

fn charged(budget: &Budget, bytes: usize) -> Result<Charge, String> {
    budget.try_take(bytes).ok_or_else(|| {
        format!(
            "the limit of {} MiB for the plugins of all sessions' clients is reached",
            budget.limit() >> 20
        )
    })
}

/// Whether a name stays in its directory on every operating system.
fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= 255
        && !name.contains(['/', '\\', ':'])
        && !name.chars().any(char::is_control)
}

/// Returns the URI of an entry of a directory.
fn child(directory: &str, name: &str) -> String {
    let end = directory.find(['?', '#']).unwrap_or(directory.len());
    let (path, rest) = directory.split_at(end);
    format!("{}/{}{rest}", path.trim_end_matches('/'), utf8_percent_encode(name, NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        for name in ["", ".", "..", "a/b", "..\\a", "c:", "a\0", "a\n", &"a".repeat(256)] {
            assert!(!is_plain(name), "{name:?}");
        }
        for name in [".mcp.json", "a b", "skill-é", "..."] {
            assert!(is_plain(name), "{name:?}");
        }
    }

    #[test]
    fn an_entry_is_below_its_directory() {
        assert_eq!(child("file:///a%20b/", "c d"), "file:///a%20b/c%20d");
        assert_eq!(child("kit:/one?v=1", "a#b"), "kit:/one/a%23b?v=1");
    }
}
