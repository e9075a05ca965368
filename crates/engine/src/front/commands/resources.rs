//! `resource…` commands: on what providers serve, what clients publish, and stored attachments.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::points::{
    Encoding, ResourceAccess, ResourceContent, ResourceResolving, ResourceTransfer, ResourceWrite,
    ResourceWriter, WriteMode,
};
use ostler_contract::{Charge, Value, json};
use ostler_protocol::commands::Command;
use ostler_protocol::grants::Grant;
use ostler_protocol::message::encode::text_length;
use ostler_protocol::wire::commands::{
    ContentEncoding, ResourceReadParams, ResourceReadResult, ResourceWriteMode,
};
use ostler_protocol::wire::state::ResourceWatchState;
use ostler_protocol::{RpcError, uri};

use crate::core::responder::Responder;
use crate::front::connection::Connection;
use crate::resources::published::{to_value, unwrapped};
use crate::resources::{member, scheme_of};
use crate::sessions::content_of;
use crate::users::principal::Principal;

/// What a resource is taken for where its provider does not tell its size.
const UNKNOWN_SIZE: usize = 1024 * 1024;
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
        let front = self.front();
        let provider = front.resources.readable(&params.uri, "get", principal).await?;
        let reader = front.resources.reader_of(principal);
        let size =
            front.resources.size_of(&provider, &params.uri, reader.clone()).await.unwrap_or(UNKNOWN_SIZE);
        // The content, and as base64 or as text that is longer as JSON; the larger of both ways.
        let charge = self.outbox.budget().take(size.saturating_mul(8) / 3).await;
        let mut charge = charge.ok_or_else(|| RpcError::internal("the connection is closed"))?;
        let read = provider.provider.read.call((params.uri, reader));
        let mut content = front.resources.asked(&provider, "read", read).await?;
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
        let front = self.front().clone();
        let writer = ResourceWriter {
            owner: self.owner(),
            client: self.client_id(),
            reader: principal.reader().filter(|_| front.access.gate.guarded),
        };
        if let Some(answered) = self.handle_attachment(&command, &principal).await {
            return answered;
        }
        if let Some(answered) = self.handle_published(&command, &principal).await {
            return answered;
        }
        match command {
            Command::ResourceList(params) => {
                let provider = front.resources.readable(&params.uri, "list", &principal).await?;
                let list = member(&provider.scheme, "list", &provider.provider.list)?;
                let mut entries =
                    front.resources.asked(&provider, "list", list.call((params.uri, writer.reader))).await?;
                entries.sort_by_key(|entry| (entry.r#type != "directory", entry.name.clone()));
                Ok(json!({ "entries": entries }))
            }
            Command::ResourceResolve(params) => {
                let provider = front.resources.readable(&params.uri, "resolve", &principal).await?;
                let resolve = member(&provider.scheme, "resolve", &provider.provider.resolve)?;
                let options = ResourceResolving { follow_symlinks: params.follow_symlinks.unwrap_or(true) };
                let mut facts = front
                    .resources
                    .asked(&provider, "resolve", resolve.call((params.uri.clone(), writer.reader, options)))
                    .await?;
                facts.uri.get_or_insert(params.uri);
                serde_json::to_value(facts).map_err(|error| RpcError::internal(error.to_string()))
            }
            Command::ResourceWrite(params) => {
                let provider = front.resources.writable(&params.uri, "put", &principal)?;
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
                front
                    .resources
                    .asked(&provider, "write", write.call((params.uri.clone(), content, writer)))
                    .await?;
                front.core.events.raise(ostler_contract::events::Event::ResourceWrite { uri: params.uri });
                Ok(json!({}))
            }
            Command::ResourceDelete(params) => {
                let provider = front.resources.writable(&params.uri, "delete", &principal)?;
                let delete = member(&provider.scheme, "delete", &provider.provider.delete)?;
                front
                    .resources
                    .asked(
                        &provider,
                        "delete",
                        delete.call((params.uri, params.recursive.unwrap_or_default(), writer)),
                    )
                    .await?;
                Ok(json!({}))
            }
            Command::ResourceMkdir(params) => {
                let provider = front.resources.writable(&params.uri, "mkdir", &principal)?;
                let mkdir = member(&provider.scheme, "mkdir", &provider.provider.mkdir)?;
                front.resources.asked(&provider, "mkdir", mkdir.call((params.uri, writer))).await?;
                Ok(json!({}))
            }
            Command::ResourceMove(params) => {
                one_scheme(&params.source, &params.destination)?;
                let provider = front.resources.writable(&params.source, "move", &principal)?;
                let transfer = ResourceTransfer { fail_if_exists: params.fail_if_exists.unwrap_or_default() };
                let r#move = member(&provider.scheme, "move", &provider.provider.r#move)?;
                front
                    .resources
                    .asked(
                        &provider,
                        "move",
                        r#move.call((params.source, params.destination, transfer, writer)),
                    )
                    .await?;
                Ok(json!({}))
            }
            Command::ResourceCopy(params) => {
                one_scheme(&params.source, &params.destination)?;
                let provider = front.resources.writable(&params.source, "copy", &principal)?;
                let transfer = ResourceTransfer { fail_if_exists: params.fail_if_exists.unwrap_or_default() };
                let copy = member(&provider.scheme, "copy", &provider.provider.copy)?;
                front
                    .resources
                    .asked(
                        &provider,
                        "copy",
                        copy.call((params.source, params.destination, transfer, writer)),
                    )
                    .await?;
                Ok(json!({}))
            }
            Command::ResourceRequest(params) => {
                let provider = front.resources.writable(&params.uri, "request", &principal)?;
                let Some(request) = &provider.provider.request else {
                    return Err(RpcError::permission_denied(format!(
                        "This host does not mediate {}",
                        params.uri
                    )));
                };
                let write = params.write.unwrap_or_default();
                // Who says neither asks to read.
                let access = ResourceAccess { read: params.read.unwrap_or(!write), write };
                front
                    .resources
                    .asked(&provider, "request", request.call((params.uri, writer, access)))
                    .await?;
                Ok(json!({}))
            }
            Command::CreateResourceWatch(params) => {
                let provider = front.resources.readable(&params.uri, "watch", &principal).await?;
                let state = ResourceWatchState {
                    root: params.uri,
                    recursive: params.recursive.unwrap_or_default(),
                    excludes: params.excludes,
                    includes: params.includes,
                };
                front
                    .resources
                    .open_watch(&provider, state, self.owner())
                    .await
                    .map(|channel| json!({ "channel": channel }))
            }
            other => Err(RpcError::method_not_found(format!("{} is not about a resource", other.name()))),
        }
    }
}

impl Connection {
    /// Serves a `resource…` command on what a client publishes; `None` where the URI is not a client's. Whoever may do
    /// it with files of the host may ask the client, and the client decides.
    pub(crate) async fn handle_published(
        &self,
        command: &Command,
        principal: &Principal,
    ) -> Option<Result<Value, RpcError>> {
        let (operation, uri, other, params) = match command {
            Command::ResourceRead(params) => ("get", &params.uri, None, to_value(params)),
            Command::ResourceList(params) => ("list", &params.uri, None, to_value(params)),
            Command::ResourceResolve(params) => ("resolve", &params.uri, None, to_value(params)),
            Command::ResourceWrite(params) => ("put", &params.uri, None, to_value(params)),
            Command::ResourceDelete(params) => ("delete", &params.uri, None, to_value(params)),
            Command::ResourceMkdir(params) => ("mkdir", &params.uri, None, to_value(params)),
            Command::ResourceMove(params) => {
                ("move", &params.source, Some(&params.destination), to_value(params))
            }
            Command::ResourceCopy(params) => {
                ("copy", &params.source, Some(&params.destination), to_value(params))
            }
            Command::ResourceRequest(params) => ("request", &params.uri, None, to_value(params)),
            Command::CreateResourceWatch(params) => ("watch", &params.uri, None, Value::Null),
            _ => return None,
        };
        let (front, owner) = (self.front(), self.owner());
        let client = match front.resources.publisher(uri, owner.as_deref()) {
            Ok(client) => client?,
            Err(refused) => return Some(Err(refused)),
        };
        if let Err(refused) = front.access.gate.require(principal, &Grant::on("file", operation)) {
            return Some(Err(refused));
        }
        if let Some(other) = other {
            let taker = front.resources.publisher(other, owner.as_deref()).ok().flatten();
            if taker.is_none_or(|taker| taker.id() != client.id()) {
                let why = format!("{uri} and {other} are served by different providers");
                return Some(Err(RpcError::invalid_params(why)));
            }
        }
        Some(match command {
            Command::ResourceRead(params) => {
                let read = front.resources.read_published(&*client, uri, params.encoding).await;
                read.map(|content| {
                    to_value(&ResourceReadResult {
                        data: content.data,
                        encoding: content.encoding,
                        content_type: content.content_type,
                    })
                })
            }
            Command::CreateResourceWatch(_) => {
                let scheme = uri::scheme(uri).unwrap_or_default();
                Err(RpcError::method_not_found(format!("{scheme}: cannot watch")))
            }
            other => client.ask(other.name(), &unwrapped(params)).await,
        })
    }
}

impl Connection {
    /// Serves a `resource…` command on a stored attachment, for whoever may read the messages that refer to it; `None`
    /// where the URI names something else.
    pub(crate) async fn handle_attachment(
        &self,
        command: &Command,
        principal: &Principal,
    ) -> Option<Result<Value, RpcError>> {
        let named = match command {
            Command::ResourceRead(params) => &params.uri,
            Command::ResourceResolve(params) => &params.uri,
            _ => return None,
        };
        uri::attachment_id(named)?;
        if let Err(refused) = self.front().access.gate.require(principal, &Grant::of("chat", "turns")) {
            return Some(Err(refused));
        }
        let kept = match self.front().sessions.read_attachment(named).await {
            Ok(kept) => kept,
            Err(refused) => return Some(Err(refused)),
        };
        let answer = match command {
            Command::ResourceResolve(_) => {
                let size = STANDARD.decode(&kept.data).map(|bytes| bytes.len()).unwrap_or_default();
                json!({ "uri": named, "type": "file", "size": size, "contentType": kept.content_type })
            }
            _ => {
                let content = content_of(kept);
                let result = ResourceReadResult {
                    data: content.data,
                    encoding: content.encoding,
                    content_type: content.content_type,
                };
                serde_json::to_value(result).unwrap_or_default()
            }
        };
        Some(Ok(answer))
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
