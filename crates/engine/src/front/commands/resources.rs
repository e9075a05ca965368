//! `resource…` commands on resources of providers and clients, and on stored attachments.

use ostler_contract::budget::SMALL;
use ostler_contract::points::{
    Encoding, KeptAttachment, Reader, ResourceAccess, ResourceContent, ResourceResolving, ResourceTransfer,
    ResourceWrite, ResourceWriter, WriteMode,
};
use ostler_contract::{Charge, Value, json, limit};
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::refusals::no_memory;
use ostler_engine_core::responder::Responder;
use ostler_engine_sessions::{content_of, decoded_length, size_of_attachment};
use ostler_engine_users::resources::published::{Asker, Publisher, encoded_as, to_value, unwrapped};
use ostler_engine_users::resources::{Room, member, scheme_of};
use ostler_engine_users::users::principal::Principal;
use ostler_protocol::grants::Grant;
use ostler_protocol::message::encode::text_length;
use ostler_protocol::wire::commands::{self as c, ContentEncoding, ResourceReadResult, ResourceWriteMode};
use ostler_protocol::wire::state::ResourceWatchState;
use ostler_protocol::{RpcError, uri};

use super::Requester;
use crate::front::connection::Connection;

/// The size of a directory entry in an answer in addition to its name, in bytes.
const LISTED: usize = 32;
/// From this size on, text that is much longer as JSON is sent as base64.
const LONG_TEXT: usize = 64 * 1024;

impl Connection {
    async fn read(
        &self,
        params: c::ResourceReadParams,
        principal: &Principal,
    ) -> Result<(ResourceReadResult, Charge), RpcError> {
        let front = self.front();
        let provider = front.resources.readable(&params.uri, "get", principal).await?;
        let reader = front.resources.reader_of(principal);
        let size = front.resources.size_of(&provider, &params.uri, reader.clone()).await;
        // The content, and its form as base64 or JSON text, whichever is larger.
        let mut charge = self.room(size.saturating_mul(8) / 3).await?;
        let read = provider.provider.read.within(limit::RESOURCE, (params.uri, reader));
        let mut content = front.resources.asked(&provider, "read", read).await?;
        let wants_base64 = params.encoding == Some(ContentEncoding::Base64);
        let long = |content: &ResourceContent| {
            content.data.len() >= LONG_TEXT && text_length(&content.data) > content.data.len() / 2 * 3
        };
        if content.encoding == ContentEncoding::Utf8 {
            let content_type = content.content_type.take();
            content = long_work(content.data.len(), || match wants_base64 || long(&content) {
                true => ResourceContent::base64(content.data.as_bytes()),
                false => content,
            });
            content.content_type = content_type;
        }
        if 2 * content.data.len() > charge.bytes() {
            charge.set(2 * content.data.len());
        }
        Ok((result_of(content), charge))
    }

    /// Charges memory as soon as it is available.
    async fn room(&self, bytes: usize) -> Result<Charge, RpcError> {
        let charge = self.outbox.budget().take(bytes).await;
        charge.ok_or_else(|| RpcError::internal("the connection is closed"))
    }
}

impl Requester {
    /// Serves `resourceRead`: charges its memory before the read, until the answer is written.
    pub(super) async fn read_resource(&self, params: c::ResourceReadParams, responder: Responder) {
        if let Some(text) = uri::inline_text(&params.uri) {
            return responder.settle(Ok(result_of(ResourceContent::text(text))));
        }
        if let Some(kept) = self.attachment(&params.uri).await {
            return settle_read(kept.map(|(kept, charge)| (result_of(content_of(kept)), charge)), responder);
        }
        match self.publisher("get", &params.uri, None) {
            Ok(None) => settle_read(self.connection.read(params, &self.principal).await, responder),
            Ok(Some(client)) => settle_read(self.read_published(&client, &params).await, responder),
            Err(refused) => responder.fail(refused),
        }
    }

    async fn read_published(
        &self,
        client: &Publisher,
        params: &c::ResourceReadParams,
    ) -> Result<(ResourceReadResult, Charge), RpcError> {
        let (resources, encoding) = (&self.front().resources, params.encoding.as_ref());
        // The content, and its form as base64 or JSON text, whichever is larger.
        let size_of = |content: &ResourceContent| content.data.len().saturating_mul(8) / 3;
        let room = Room { budget: self.connection.outbox.budget(), limit: None, full: no_memory };
        let read = resources.read_published_within(room, client, &params.uri, encoding, size_of).await;
        read.map(|(content, charge)| (result_of(encoded_as(content, encoding)), charge))
    }

    /// Lists a directory or the root of a scheme.
    pub(super) async fn list_resources(&self, params: c::ResourceListParams, responder: Responder) {
        let listed = match self.publisher("list", &params.uri, None) {
            Ok(None) => self.list(params).await,
            Ok(Some(client)) => {
                return responder.settle(client.ask_any("resourceList", &unwrapped(to_value(&params))).await);
            }
            Err(refused) => Err(refused),
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => return responder.fail(error),
        };
        let length = listed.entries.iter().map(|entry| entry.name.len() + LISTED).sum::<usize>();
        if length <= SMALL {
            return responder.ok(&listed);
        }
        match self.connection.outbox.budget().try_take(length) {
            Some(charge) => responder.ok_charged(&listed, charge),
            None => responder.fail(no_memory()),
        }
    }

    async fn list(&self, params: c::ResourceListParams) -> Result<c::ResourceListResult, RpcError> {
        let front = self.front();
        let provider = front.resources.readable(&params.uri, "list", &self.principal).await?;
        let list = member(&provider.scheme, "list", &provider.provider.list)?;
        let list = list.within(limit::RESOURCE, (params.uri, self.reader()));
        let mut entries = front.resources.asked(&provider, "list", list).await?;
        entries.sort_by(|one, other| {
            let key = |entry: &c::DirectoryEntry| entry.r#type != "directory";
            (key(one), &one.name).cmp(&(key(other), &other.name))
        });
        Ok(c::ResourceListResult { entries })
    }

    /// Returns facts about a resource.
    pub(super) async fn resolve_resource(&self, params: c::ResourceResolveParams) -> Result<Value, RpcError> {
        let front = self.front();
        if let Some(text) = uri::inline_text(&params.uri) {
            return Ok(json!({ "uri": params.uri, "type": "file", "size": text.len() }));
        }
        if let Some(kept) = self.attachment(&params.uri).await {
            let (kept, _charge) = kept?;
            let size = decoded_length(&kept.data);
            return Ok(
                json!({ "uri": params.uri, "type": "file", "size": size, "contentType": kept.content_type }),
            );
        }
        if let Some(client) = self.publisher("resolve", &params.uri, None)? {
            return client.ask_any("resourceResolve", &unwrapped(to_value(&params))).await;
        }
        let provider = front.resources.readable(&params.uri, "resolve", &self.principal).await?;
        let resolve = member(&provider.scheme, "resolve", &provider.provider.resolve)?;
        let options = ResourceResolving { follow_symlinks: params.follow_symlinks.unwrap_or(true) };
        let mut facts = front
            .resources
            .asked(
                &provider,
                "resolve",
                resolve.within(limit::RESOURCE, (params.uri.clone(), self.reader(), options)),
            )
            .await?;
        facts.uri.get_or_insert(params.uri);
        serde_json::to_value(facts).map_err(|error| RpcError::internal(error.to_string()))
    }

    pub(super) async fn write_resource(&self, params: c::ResourceWriteParams) -> Result<Value, RpcError> {
        let front = self.front();
        if let Some(client) = self.publisher("put", &params.uri, None)? {
            return client.ask("resourceWrite", &unwrapped(to_value(&params))).await;
        }
        let writer = self.writer();
        let provider = front.resources.writable(&params.uri, "put", &self.principal)?;
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
                .map_err(|_| RpcError::invalid_params("position must be 0 or more"))?,
        };
        front
            .resources
            .asked(
                &provider,
                "write",
                write.within(limit::RESOURCE_CHANGE, (params.uri.clone(), content, writer)),
            )
            .await?;
        front.workspace.resource_changed(&params.uri);
        front.core.events.raise(ostler_contract::events::Event::ResourceWrite { uri: params.uri });
        Ok(json!({}))
    }

    /// Creates a directory and its parents.
    pub(super) async fn make_directory(&self, params: c::ResourceMkdirParams) -> Result<Value, RpcError> {
        let front = self.front();
        if let Some(client) = self.publisher("mkdir", &params.uri, None)? {
            return client.ask("resourceMkdir", &unwrapped(to_value(&params))).await;
        }
        let writer = self.writer();
        let provider = front.resources.writable(&params.uri, "mkdir", &self.principal)?;
        let mkdir = member(&provider.scheme, "mkdir", &provider.provider.mkdir)?;
        front
            .resources
            .asked(&provider, "mkdir", mkdir.within(limit::RESOURCE_CHANGE, (params.uri, writer)))
            .await?;
        Ok(json!({}))
    }

    pub(super) async fn delete_resource(&self, params: c::ResourceDeleteParams) -> Result<Value, RpcError> {
        let front = self.front();
        if let Some(client) = self.publisher("delete", &params.uri, None)? {
            return client.ask("resourceDelete", &unwrapped(to_value(&params))).await;
        }
        let writer = self.writer();
        let provider = front.resources.writable(&params.uri, "delete", &self.principal)?;
        let delete = member(&provider.scheme, "delete", &provider.provider.delete)?;
        front
            .resources
            .asked(
                &provider,
                "delete",
                delete.within(
                    limit::RESOURCE_CHANGE,
                    (params.uri.clone(), params.recursive.unwrap_or_default(), writer),
                ),
            )
            .await?;
        front.workspace.resource_changed(&params.uri);
        Ok(json!({}))
    }

    /// Moves a resource within a scheme.
    pub(super) async fn move_resource(&self, params: c::ResourceMoveParams) -> Result<Value, RpcError> {
        let front = self.front();
        if let Some(client) = self.publisher("move", &params.source, Some(&params.destination))? {
            return client.ask("resourceMove", &unwrapped(to_value(&params))).await;
        }
        let writer = self.writer();
        one_scheme(&params.source, &params.destination)?;
        let provider = front.resources.writable(&params.source, "move", &self.principal)?;
        let transfer = ResourceTransfer { fail_if_exists: params.fail_if_exists.unwrap_or_default() };
        let r#move = member(&provider.scheme, "move", &provider.provider.r#move)?;
        front
            .resources
            .asked(
                &provider,
                "move",
                r#move.within(
                    limit::RESOURCE_CHANGE,
                    (params.source.clone(), params.destination.clone(), transfer, writer),
                ),
            )
            .await?;
        front.workspace.resource_changed(&params.source);
        front.workspace.resource_changed(&params.destination);
        Ok(json!({}))
    }

    /// Copies a resource within a scheme.
    pub(super) async fn copy_resource(&self, params: c::ResourceCopyParams) -> Result<Value, RpcError> {
        let front = self.front();
        if let Some(client) = self.publisher("copy", &params.source, Some(&params.destination))? {
            return client.ask("resourceCopy", &unwrapped(to_value(&params))).await;
        }
        let writer = self.writer();
        one_scheme(&params.source, &params.destination)?;
        let provider = front.resources.writable(&params.source, "copy", &self.principal)?;
        let transfer = ResourceTransfer { fail_if_exists: params.fail_if_exists.unwrap_or_default() };
        let copy = member(&provider.scheme, "copy", &provider.provider.copy)?;
        front
            .resources
            .asked(
                &provider,
                "copy",
                copy.within(
                    limit::RESOURCE_CHANGE,
                    (params.source, params.destination.clone(), transfer, writer),
                ),
            )
            .await?;
        front.workspace.resource_changed(&params.destination);
        Ok(json!({}))
    }

    /// Requests access to a resource.
    pub(super) async fn request_resource(&self, params: c::ResourceRequestParams) -> Result<Value, RpcError> {
        let front = self.front();
        if let Some(client) = self.publisher("request", &params.uri, None)? {
            return client.ask("resourceRequest", &unwrapped(to_value(&params))).await;
        }
        let writer = self.writer();
        let provider = front.resources.writable(&params.uri, "request", &self.principal)?;
        let Some(request) = &provider.provider.request else {
            return Err(RpcError::permission_denied(format!("This host does not mediate {}", params.uri)));
        };
        let write = params.write.unwrap_or_default();
        // Without either, the request is for read access.
        let access = ResourceAccess { read: params.read.unwrap_or(!write), write };
        front
            .resources
            .asked(&provider, "request", request.within(limit::RESOURCE_CHANGE, (params.uri, writer, access)))
            .await?;
        Ok(json!({}))
    }

    /// Opens a channel with the changes under a URI.
    pub(super) async fn watch_resource(
        &self,
        params: c::CreateResourceWatchParams,
    ) -> Result<Value, RpcError> {
        let front = self.front();
        if self.publisher("watch", &params.uri, None)?.is_some() {
            let scheme = uri::scheme(&params.uri).unwrap_or_default();
            return Err(RpcError::method_not_found(format!("{scheme}: cannot watch")));
        }
        let provider = front.resources.readable(&params.uri, "watch", &self.principal).await?;
        let state = ResourceWatchState {
            root: params.uri,
            recursive: params.recursive.unwrap_or_default(),
            excludes: params.excludes,
            includes: params.includes,
        };
        front
            .resources
            .open_watch(&provider, state, self.connection.owner(), self.connection.id())
            .await
            .map(|channel| json!({ "channel": channel }))
    }

    /// Returns the reader, if the host has a users file.
    fn reader(&self) -> Option<Reader> {
        self.principal.reader().filter(|_| self.front().access.gate.is_guarded())
    }

    /// Returns the writer in the form for providers.
    fn writer(&self) -> ResourceWriter {
        ResourceWriter {
            owner: self.connection.owner(),
            client: self.connection.client_id(),
            reader: self.reader(),
        }
    }

    /// Returns the user's own client that publishes a URI, if any. A caller with the grant for files of the host can send
    /// requests to the client, and the client decides. `other` must belong to the same client.
    fn publisher(
        &self,
        operation: &'static str,
        uri: &str,
        other: Option<&String>,
    ) -> Result<Option<Publisher>, RpcError> {
        let (front, asker) = (self.front(), Asker { owner: self.connection.owner(), active: None });
        let Some(client) = front.resources.publisher(uri, &asker)? else { return Ok(None) };
        front.access.gate.require(&self.principal, &Grant::on("file", operation))?;
        if let Some(other) = other {
            let taker = front.resources.publisher(other, &asker).ok().flatten();
            if taker.is_none_or(|taker| taker.newest().id() != client.newest().id()) {
                let why = format!("{uri} and {other} are served by different providers");
                return Err(RpcError::invalid_params(why));
            }
        }
        Ok(Some(client))
    }

    /// Returns a stored attachment for callers that can read the messages that refer to it, with the charge of its
    /// memory, which begins before it is read; `None` if the URI is something else.
    async fn attachment(&self, named: &str) -> Option<Result<(KeptAttachment, Charge), RpcError>> {
        let id = uri::attachment_id(named)?;
        let front = self.front();
        if let Err(refused) = front.access.gate.require(&self.principal, &Grant::of("chat", "turns")) {
            return Some(Err(refused));
        }
        // The content as base64, and the answer.
        let size = size_of_attachment(id).saturating_mul(8) / 3;
        let most = self.connection.outbox.budget().largest();
        let mut charge = match self.connection.room(size.min(most)).await {
            Ok(charge) => charge,
            Err(closed) => return Some(Err(closed)),
        };
        let kept = front.sessions.read_attachment(named).await;
        Some(kept.map(|kept| {
            charge.set(2 * kept.data.len());
            (kept, charge)
        }))
    }
}

/// Answers with content whose memory is charged.
fn settle_read(read: Result<(ResourceReadResult, Charge), RpcError>, responder: Responder) {
    match read {
        Ok((result, charge)) => responder.ok_charged(&result, charge),
        Err(error) => responder.fail(error),
    }
}

fn result_of(content: ResourceContent) -> ResourceReadResult {
    ResourceReadResult { data: content.data, encoding: content.encoding, content_type: content.content_type }
}

fn one_scheme(source: &str, destination: &str) -> Result<(), RpcError> {
    match scheme_of(source) == scheme_of(destination) {
        true => Ok(()),
        false => Err(RpcError::invalid_params(format!(
            "{source} and {destination} are served by different providers"
        ))),
    }
}
