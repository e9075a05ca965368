//! Resources: which provider a URI goes to, and what may be done there.

pub(crate) mod patterns;
pub(crate) mod published;

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::points::{
    Encoding, Reader, ResourceAccess, ResourceChanged, ResourceContent, ResourceResolving, ResourceStore,
    ResourceTransfer, ResourceWrite, ResourceWriter, SchemeProvider, WriteMode,
};
use ostler_contract::registry::{Owned, Owner};
use ostler_contract::{Call, Charge, Pending, Thrown, Value, json};
use ostler_protocol::commands::Command;
use ostler_protocol::grants::Grant;
use ostler_protocol::message::encode::text_length;
use ostler_protocol::wire::commands::{
    ContentEncoding, ResourceReadParams, ResourceReadResult, ResourceWriteMode,
};
use ostler_protocol::wire::state::ResourceWatchState;
use ostler_protocol::{RpcError, Version, uri};

use crate::core::fanout::Outgoing;
use crate::core::refusals::nothing_serves;
use crate::core::responder::Responder;
use crate::front::connection::Connection;
use crate::host::Host;
use crate::resources::patterns::Wanted;
use crate::sessions::content_of;
use crate::usage;
use crate::users::principal::Principal;
use crate::users::{self, policies};

/// How long a watch may be open before anybody looks at it.
const WATCH_UNSEEN: Duration = Duration::from_secs(60);

/// A watch some connection opened.
#[derive(Debug)]
pub(crate) struct Watch {
    state: ResourceWatchState,
    /// Whose it is, where the host knows people.
    owner: Option<String>,
    stop: Option<Call<fn()>>,
}

fn lacks(scheme: &str, operation: &str) -> RpcError {
    RpcError::method_not_found(format!("{scheme}: cannot {operation}"))
}

/// An optional member of a provider, or the refusal that names it.
fn member<'a, T>(scheme: &str, operation: &str, member: &'a Option<T>) -> Result<&'a T, RpcError> {
    member.as_ref().ok_or_else(|| lacks(scheme, operation))
}

/// What a resource is taken for where its provider does not tell its size.
const UNKNOWN_SIZE: usize = 1024 * 1024;
/// No provider of files reads more at once.
const LARGEST_READ: usize = 32 * 1024 * 1024;
/// From this size on, text that is much longer as JSON is sent as base64.
const LONG_TEXT: usize = 64 * 1024;

impl Connection {
    /// Serves `resourceRead`: its memory is charged before the read, and until the answer is written.
    pub(crate) async fn handle_read(
        self: &Arc<Self>,
        params: ResourceReadParams,
        principal: Principal,
        responder: Responder,
    ) {
        // A connection that is gone needs no answer; the permits of one that is there last.
        let Ok(_reading) = self.reads.acquire().await else { return };
        let command = Command::ResourceRead(params);
        if let Some(answered) = self.handle_attachment(&command, &principal).await {
            return responder.settle(answered);
        }
        if let Some(answered) = self.handle_published(&command, &principal).await {
            return responder.settle(answered);
        }
        let Command::ResourceRead(params) = command else { return };
        match self.read(params, &principal).await {
            Ok((result, charge)) => responder.ok_charged(&result, charge),
            Err(error) => responder.fail(error),
        }
    }

    async fn read(
        &self,
        params: ResourceReadParams,
        principal: &Principal,
    ) -> Result<(ResourceReadResult, Charge), RpcError> {
        let host = self.host();
        let provider = host.readable(&params.uri, "get", principal).await?;
        let reader = host.reader_of(principal);
        let size = host.size_of(&provider, &params.uri, reader.clone()).await.unwrap_or(UNKNOWN_SIZE);
        // The content, and as base64 or as text that is longer as JSON; the larger of both ways.
        let charge = self.outbox.budget().take(size.saturating_mul(8) / 3).await;
        let mut charge = charge.ok_or_else(|| RpcError::internal("the connection is closed"))?;
        let read = provider.provider.read.call((params.uri, reader));
        let mut content = host.asked(&provider, "read", read).await?;
        let wants_base64 = params.encoding == Some(ContentEncoding::Base64);
        let long =
            || content.data.len() >= LONG_TEXT && text_length(&content.data) > content.data.len() / 2 * 3;
        if content.encoding == ContentEncoding::Utf8 && (wants_base64 || long()) {
            let content_type = content.content_type.take();
            content = ResourceContent { content_type, ..ResourceContent::base64(content.data.as_bytes()) };
        }
        if 2 * content.data.len() > charge.bytes() {
            charge.set(2 * content.data.len());
        }
        let ResourceContent { data, encoding, content_type } = content;
        Ok((ResourceReadResult { data, encoding, content_type }, charge))
    }

    /// Serves a `resource…` command. A scheme nobody serves is said before who may use it.
    pub(crate) async fn handle_resource(
        self: &Arc<Self>,
        command: Command,
        principal: Principal,
    ) -> Result<Value, RpcError> {
        let host = self.host().clone();
        let writer = ResourceWriter {
            owner: self.owner(),
            client: self.client_id(),
            reader: principal.reader().filter(|_| host.gate.guarded),
        };
        if let Some(answered) = self.handle_attachment(&command, &principal).await {
            return answered;
        }
        if let Some(answered) = self.handle_published(&command, &principal).await {
            return answered;
        }
        match command {
            Command::ResourceList(params) => {
                let provider = host.readable(&params.uri, "list", &principal).await?;
                let list = member(&provider.scheme, "list", &provider.provider.list)?;
                let mut entries =
                    host.asked(&provider, "list", list.call((params.uri, writer.reader))).await?;
                entries.sort_by_key(|entry| (entry.r#type != "directory", entry.name.clone()));
                Ok(json!({ "entries": entries }))
            }
            Command::ResourceResolve(params) => {
                let provider = host.readable(&params.uri, "resolve", &principal).await?;
                let resolve = member(&provider.scheme, "resolve", &provider.provider.resolve)?;
                let options = ResourceResolving { follow_symlinks: params.follow_symlinks.unwrap_or(true) };
                let mut facts = host
                    .asked(&provider, "resolve", resolve.call((params.uri.clone(), writer.reader, options)))
                    .await?;
                facts.uri.get_or_insert(params.uri);
                serde_json::to_value(facts).map_err(|error| RpcError::internal(error.to_string()))
            }
            Command::ResourceWrite(params) => {
                let provider = host.writable(&params.uri, "put", &principal)?;
                let write = member(&provider.scheme, "write", &provider.provider.write)?;
                let content = ResourceWrite {
                    data: params.data,
                    encoding: Some(match params.encoding {
                        ContentEncoding::Utf8 => Encoding::Utf8,
                        ContentEncoding::Base64 => Encoding::Base64,
                    }),
                    content_type: params.content_type,
                    create_only: params.create_only.unwrap_or_default(),
                    if_match: params.if_match,
                    mode: params.mode.map(|mode| match mode {
                        ResourceWriteMode::Truncate => WriteMode::Truncate,
                        ResourceWriteMode::Append => WriteMode::Append,
                        ResourceWriteMode::Insert => WriteMode::Insert,
                    }),
                    position: u64::try_from(params.position.unwrap_or_default())
                        .map_err(|_| RpcError::invalid_params("position has to be 0 or more"))?,
                };
                host.asked(&provider, "write", write.call((params.uri.clone(), content, writer))).await?;
                host.events.raise(ostler_contract::events::Event::ResourceWrite { uri: params.uri });
                Ok(json!({}))
            }
            Command::ResourceDelete(params) => {
                let provider = host.writable(&params.uri, "delete", &principal)?;
                let delete = member(&provider.scheme, "delete", &provider.provider.delete)?;
                host.asked(
                    &provider,
                    "delete",
                    delete.call((params.uri, params.recursive.unwrap_or_default(), writer)),
                )
                .await?;
                Ok(json!({}))
            }
            Command::ResourceMkdir(params) => {
                let provider = host.writable(&params.uri, "mkdir", &principal)?;
                let mkdir = member(&provider.scheme, "mkdir", &provider.provider.mkdir)?;
                host.asked(&provider, "mkdir", mkdir.call((params.uri, writer))).await?;
                Ok(json!({}))
            }
            Command::ResourceMove(params) => {
                one_scheme(&params.source, &params.destination)?;
                let provider = host.writable(&params.source, "move", &principal)?;
                let transfer = ResourceTransfer { fail_if_exists: params.fail_if_exists.unwrap_or_default() };
                let r#move = member(&provider.scheme, "move", &provider.provider.r#move)?;
                host.asked(
                    &provider,
                    "move",
                    r#move.call((params.source, params.destination, transfer, writer)),
                )
                .await?;
                Ok(json!({}))
            }
            Command::ResourceCopy(params) => {
                one_scheme(&params.source, &params.destination)?;
                let provider = host.writable(&params.source, "copy", &principal)?;
                let transfer = ResourceTransfer { fail_if_exists: params.fail_if_exists.unwrap_or_default() };
                let copy = member(&provider.scheme, "copy", &provider.provider.copy)?;
                host.asked(
                    &provider,
                    "copy",
                    copy.call((params.source, params.destination, transfer, writer)),
                )
                .await?;
                Ok(json!({}))
            }
            Command::ResourceRequest(params) => {
                let provider = host.writable(&params.uri, "request", &principal)?;
                let Some(request) = &provider.provider.request else {
                    return Err(RpcError::permission_denied(format!(
                        "This host does not mediate {}",
                        params.uri
                    )));
                };
                let write = params.write.unwrap_or_default();
                // Who says neither asks to read.
                let access = ResourceAccess { read: params.read.unwrap_or(!write), write };
                host.asked(&provider, "request", request.call((params.uri, writer, access))).await?;
                Ok(json!({}))
            }
            Command::CreateResourceWatch(params) => {
                let provider = host.readable(&params.uri, "watch", &principal).await?;
                let state = ResourceWatchState {
                    root: params.uri,
                    recursive: params.recursive.unwrap_or_default(),
                    excludes: params.excludes,
                    includes: params.includes,
                };
                host.open_watch(&provider, state, self.owner())
                    .await
                    .map(|channel| json!({ "channel": channel }))
            }
            other => Err(RpcError::method_not_found(format!("{} is not about a resource", other.name()))),
        }
    }
}

fn one_scheme(source: &str, destination: &str) -> Result<(), RpcError> {
    match scheme_of(source) == scheme_of(destination) {
        true => Ok(()),
        false => Err(RpcError::invalid_params(format!(
            "{source} and {destination} are served by different providers"
        ))),
    }
}

/// A bare path is a file.
fn scheme_of(uri: &str) -> String {
    uri::scheme(uri).unwrap_or_else(|| "file".to_owned())
}

impl Host {
    /// Schemes the host serves itself; no plugin can take their names.
    pub(crate) fn own_providers(&self) -> &[Owned<SchemeProvider>] {
        self.own_providers.get_or_init(|| {
            let mut own = self.gate.people().map(users::providers).unwrap_or_default();
            if self.policies().is_some() {
                own.push(policies::provider(self.weak()));
            }
            if self.usage_store().is_some() {
                own.push(usage::provider(self.weak()));
            }
            own.into_iter().map(|own| Owned { owner: Owner::Host, value: Arc::new(own) }).collect()
        })
    }

    /// Who serves `file:`, where somebody does. It is no scheme of a provider and is not advertised as one.
    fn files(&self) -> Option<&Owned<SchemeProvider>> {
        let files = self.files.get_or_init(|| {
            let registry = self.registry()?;
            let owner = registry.holder::<ResourceStore>()?.clone();
            let value = Arc::new(registry.port::<ResourceStore>()?.provider());
            Some(Owned { owner, value })
        });
        files.as_ref()
    }

    pub(crate) fn provider(&self, uri: &str) -> Result<Owned<SchemeProvider>, RpcError> {
        let scheme = scheme_of(uri);
        let of_plugins = self.registry().map(|registry| registry.all::<SchemeProvider>()).unwrap_or_default();
        let mut served = of_plugins.iter().chain(self.own_providers()).chain(self.files());
        served
            .find(|held| held.scheme.eq_ignore_ascii_case(&scheme))
            .cloned()
            .ok_or_else(|| nothing_serves(&scheme))
    }

    /// How many bytes a file holds; nothing where a provider does not tell that.
    async fn size_of(
        &self,
        held: &Owned<SchemeProvider>,
        uri: &str,
        reader: Option<Reader>,
    ) -> Option<usize> {
        let resolve = held.provider.resolve.as_ref().filter(|_| held.scheme.eq_ignore_ascii_case("file"))?;
        let options = ResourceResolving { follow_symlinks: true };
        // What is wrong with it the read says.
        let facts = resolve.call((uri.to_owned(), reader, options)).await.ok()?;
        usize::try_from(facts.size?).ok().map(|size| size.min(LARGEST_READ))
    }

    /// The provider of a URI that may be read: its own `authorize` is asked before the grant is.
    /// What a member of a provider answers. What it throws is told, and logged against whose it is.
    async fn asked<T>(
        &self,
        held: &Owned<SchemeProvider>,
        member: &str,
        answer: Pending<T>,
    ) -> Result<T, RpcError> {
        answer.await.map_err(|why| {
            if why.rpc.is_none() {
                self.report_failed(&held.owner, &format!("the {member} of its scheme {}", held.scheme), &why);
            }
            why.into_rpc()
        })
    }

    async fn readable(
        &self,
        uri: &str,
        operation: &'static str,
        principal: &Principal,
    ) -> Result<Owned<SchemeProvider>, RpcError> {
        let provider = self.provider(uri)?;
        let asked = Grant::on(&provider.scheme, operation);
        if let Err(refusal) = self.gate.require(principal, &asked) {
            let admitted = match (&provider.provider.authorize, principal.reader()) {
                (Some(authorize), Some(reader)) => {
                    self.asked(&provider, "authorize", authorize.call((uri.to_owned(), reader))).await?
                }
                _ => false,
            };
            if !admitted {
                return Err(refusal);
            }
        }
        Ok(provider)
    }

    /// What a provider is told of who reads. A plugin is told of even on a host with no users directory: what
    /// it reads may be its own, and it holds everything there.
    fn reader_of(&self, principal: &Principal) -> Option<Reader> {
        let reader = principal.reader()?;
        match (self.gate.guarded, principal) {
            (true, _) => Some(reader),
            (false, Principal::Plugin { .. }) => Some(Reader { grants: vec!["*:*".to_owned()], ..reader }),
            (false, _) => None,
        }
    }

    fn writable(
        &self,
        uri: &str,
        operation: &'static str,
        principal: &Principal,
    ) -> Result<Owned<SchemeProvider>, RpcError> {
        let provider = self.provider(uri)?;
        self.gate.require(principal, &Grant::on(&provider.scheme, operation))?;
        Ok(provider)
    }

    /// Reads what a URI names for a host tool: what the owner of its session may read.
    pub(crate) async fn read_as_session(&self, session: &str, uri: &str) -> Result<String, Thrown> {
        Ok(self.content_for_session(session, uri).await?.data)
    }

    /// Reads what a URI names as the owner of a session: an attachment, what a client publishes, or what a provider
    /// serves.
    pub(crate) async fn content_for_session(
        &self,
        session: &str,
        uri: &str,
    ) -> Result<ResourceContent, Thrown> {
        if uri::attachment_id(uri).is_some() {
            return Ok(content_of(self.read_attachment(uri).await?));
        }
        let owned = self.session_at(session).await.and_then(|entry| entry.owner.clone());
        let owner = owned.clone().unwrap_or_else(|| "nobody".to_owned());
        if let Some(client) = self.publisher(uri, owned.as_deref())? {
            self.require_of(&owner, &Grant::on("file", "get"))?;
            return Ok(self.read_published(&client, uri, Some(ContentEncoding::Utf8)).await?);
        }
        let provider = self.provider(uri)?;
        let reader = self.reader_for(&owner);
        if let Err(refusal) = self.require_of(&owner, &Grant::on(&provider.scheme, "get")) {
            let admitted = match (&provider.provider.authorize, &reader) {
                (Some(authorize), Some(reader)) => authorize.call((uri.to_owned(), reader.clone())).await?,
                _ => false,
            };
            if !admitted {
                return Err(refusal.into());
            }
        }
        provider.provider.read.call((uri.to_owned(), reader)).await
    }

    async fn open_watch(
        self: &Arc<Self>,
        provider: &Owned<SchemeProvider>,
        state: ResourceWatchState,
        owner: Option<String>,
    ) -> Result<String, RpcError> {
        let watch = member(&provider.scheme, "watch", &provider.provider.watch)?;
        let wanted = Wanted::read(&state)?;
        let channel = uri::resource_watch(&self.new_id());
        let (host, published) = (Arc::downgrade(self), channel.clone());
        let on_change = Call::now(move |(changes,): (Vec<ResourceChanged>,)| {
            let changes: Vec<_> = changes.into_iter().filter(|change| wanted.holds(&change.uri)).collect();
            if let Some(host) = host.upgrade().filter(|_| !changes.is_empty()) {
                let action = json!({ "type": "resourceWatch/changed", "changes": { "items": changes } });
                host.fanout.publish(&published, vec![Outgoing::host(action.to_string(), Version::V0_9)]);
            }
            Ok(())
        });
        let stop = self
            .asked(provider, "watch", watch.call((state.root.clone(), state.recursive, on_change)))
            .await?;
        self.watches.lock().insert(channel.clone(), Watch { state, owner, stop });
        // One that nobody looks at in time is released as one that nobody looks at any more.
        let (host, unwatched) = (Arc::downgrade(self), channel.clone());
        tokio::spawn(async move {
            tokio::time::sleep(WATCH_UNSEEN).await;
            if let Some(host) = host.upgrade() {
                host.release_watch(&unwatched);
            }
        });
        Ok(channel)
    }

    /// The state of a watch, while it is open.
    pub(crate) fn watched(&self, channel: &str) -> Option<ResourceWatchState> {
        self.watches.lock().get(channel).map(|watch| watch.state.clone())
    }

    /// Whether somebody may look at a watch: whoever opened it, and who could have.
    pub(crate) fn may_watch(&self, channel: &str, principal: &Principal) -> Result<(), RpcError> {
        let watch =
            self.watches.lock().get(channel).map(|watch| (watch.state.root.clone(), watch.owner.clone()));
        match watch {
            None => Ok(()),
            Some((_, owner)) if owner.is_some() && owner == principal.owner(&self.options.host_name) => {
                Ok(())
            }
            Some((root, _)) => self.gate.require(principal, &Grant::on(&scheme_of(&root), "watch")),
        }
    }

    /// Ends a watch nobody looks at any more.
    pub(crate) fn release_watch(&self, channel: &str) {
        if !self.fanout.watchers(channel).is_empty() {
            return;
        }
        let watch = self.watches.lock().remove(channel);
        self.fanout.remove(channel);
        if let Some(stop) = watch.and_then(|watch| watch.stop) {
            tokio::spawn(stop.call(()));
        }
    }
}
