//! Resources that clients publish, `<scheme>://<client id>/…`, accessed by requests to that client.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use ostler_contract::Charge;
use ostler_contract::points::ResourceContent;
use ostler_engine_core::long_work::long_work;
use ostler_protocol::wire::commands::{ContentEncoding, ResourceReadResult};
use ostler_protocol::{RpcError, Value, uri};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::{Resources, Room};
use crate::users::clients::{Answer, Client, ClientIdentity};
use crate::users::principal::{ANONYMOUS, Principal};

/// The scheme VS Code publishes under: `vscode-agent-client://<client>/<scheme>/<authority>/<path>`.
const WRAPPED: &str = "vscode-agent-client";
/// The form of an empty authority in it.
const NO_AUTHORITY: &str = "-";
/// The maximum size of a client's answer to a read, in bytes as sent.
const CONTENT_MAX: usize = 16 * 1024 * 1024;

/// How long to wait for an answer before the request is also sent on the client's next connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// A client that publishes resources, by its open connections, newest first. Some can be dead without the host having
/// noticed, or do not answer requests.
#[derive(Debug)]
pub struct Publisher(Vec<Arc<dyn Client>>);

impl Publisher {
    /// Creates the client of these connections; `None` without connections.
    pub fn of(mut connections: Vec<Arc<dyn Client>>) -> Option<Self> {
        connections.sort_by_key(|connection| std::cmp::Reverse(connection.id()));
        (!connections.is_empty()).then_some(Self(connections))
    }

    /// Returns its newest connection.
    pub fn newest(&self) -> &Arc<dyn Client> {
        &self.0[0]
    }

    /// Sends a change on the newest connection only, because a request on two connections would be executed twice.
    ///
    /// # Errors
    /// Like [`Client::ask`].
    pub async fn ask(&self, method: &str, params: &Value) -> Answer {
        self.newest().ask(method, params).await
    }

    /// Sends a read on the newest connection, and without an answer also on the next ones. Returns the first answer.
    ///
    /// # Errors
    /// Like [`Client::ask`].
    pub async fn ask_any(&self, method: &str, params: &Value) -> Answer {
        let (mut left, mut asked) = (self.0.iter(), FuturesUnordered::new());
        let mut outcome = Err(RpcError::internal("no connection was asked"));
        loop {
            if let Some(connection) = left.next() {
                asked.push(async move { (connection, connection.ask(method, params).await) });
            }
            let answered = match left.len() {
                0 => asked.next().await,
                _ => match tokio::time::timeout(PATIENCE, asked.next()).await {
                    Ok(answered) => answered,
                    Err(_) => continue,
                },
            };
            match answered {
                Some((connection, Err(gone))) if connection.is_closed() => outcome = Err(gone),
                Some((_, answer)) => return answer,
                None => return outcome,
            }
        }
    }
}

/// On whose behalf a client is asked for a resource. Only clients of the same user, and those that are active in the
/// asking session, are asked: a user's grants are for the files of the host, not for those of other users.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    /// The owner of the request or session.
    pub owner: Option<String>,
    /// The active clients of the session, if a session asks.
    pub active: Option<Arc<[ClientIdentity]>>,
}

impl Resources {
    /// Returns the client that publishes a URI, whose authority is the client's id and whose scheme neither the host
    /// nor a plugin serves. `None` if the URI does not belong to a client that the asker may reach.
    ///
    /// # Errors
    /// `-32008` if there is no such client, as far as the scheme identifies one.
    pub fn publisher(&self, uri: &str, asker: &Asker) -> Result<Option<Publisher>, RpcError> {
        let Some(scheme) = uri::scheme(uri) else { return Ok(None) };
        if scheme == "file" || scheme.starts_with("ahp-") || self.provider(uri).is_ok() {
            return Ok(None);
        }
        let Some(client) = authority(uri) else { return Ok(None) };
        match self.publisher_named(&client, asker) {
            None if scheme == WRAPPED => {
                let why = self.unreached(asker);
                Err(RpcError::not_found(format!("{uri}: client {client} {why}")))
            }
            publisher => Ok(publisher),
        }
    }

    /// Returns the client of an id among those that the asker may reach; the asker's own has precedence.
    pub fn publisher_named(&self, client: &str, asker: &Asker) -> Option<Publisher> {
        let mut connections = self.connections_of(client);
        let is_guarded = self.access.gate.is_guarded();
        let is_own = |connection: &Arc<dyn Client>| {
            !is_guarded || asker.owner.is_some() && connection.owner() == asker.owner
        };
        let is_active = |connection: &Arc<dyn Client>| {
            asker.active.iter().flat_map(|active| active.iter()).any(|active| active.is_of(&**connection))
        };
        match connections.iter().any(is_own) {
            true => connections.retain(is_own),
            false => connections.retain(is_active),
        }
        Publisher::of(connections)
    }

    /// Returns why an asker reaches no client of an id, after the id. Whether another user has such a client is not revealed.
    pub fn unreached(&self, asker: &Asker) -> String {
        let owner = asker.owner.as_deref().unwrap_or(ANONYMOUS);
        match (self.access.gate.is_guarded(), &asker.active) {
            (false, _) => "is not connected".to_owned(),
            (true, None) => format!("is not connected as {owner}"),
            (true, Some(_)) => format!("is neither connected as {owner} nor active in this session"),
        }
    }

    /// Returns the open connections of clients with an id.
    fn connections_of(&self, client: &str) -> Vec<Arc<dyn Client>> {
        let of_client = |connection: &Arc<dyn Client>| {
            !connection.is_closed()
                && !matches!(connection.principal(), Principal::Plugin { .. })
                // Some clients write the authority in lower case.
                && connection.client_id().is_some_and(|id| id.eq_ignore_ascii_case(client))
        };
        self.access.clients.open().into_iter().filter(of_client).collect()
    }

    /// Returns whether only the client that names a URI can read it: no provider serves it, it is not of a client, and
    /// not on the web.
    pub fn is_of_clients(&self, named: &str) -> bool {
        let Some(scheme) = uri::scheme(named) else { return false };
        let elsewhere = ["file", "http", "https", "data", WRAPPED].contains(&scheme.as_str())
            || scheme.starts_with("ahp-")
            || uri::attachment_id(named).is_some()
            || uri::inline_text(named).is_some();
        let names_a_client =
            || authority(named).is_some_and(|client| !self.connections_of(&client).is_empty());
        !elsewhere && self.provider(named).is_err() && !names_a_client()
    }

    /// Reads a resource of a client as text for a backend or a tool. Its memory is charged to the host while it is read.
    ///
    /// # Errors
    /// Like [`Self::read_published_within`].
    pub async fn read_published(&self, client: &Publisher, uri: &str) -> Result<ResourceContent, RpcError> {
        let encoding = Some(&ContentEncoding::Utf8);
        let size_of = |content: &ResourceContent| content.data.len().saturating_mul(2);
        let read = self.read_published_within(self.reads(), client, uri, encoding, size_of).await;
        let (content, _charge) = read?;
        Ok(encoded_as(content, encoding))
    }

    /// Reads a resource of a client in the encoding of its answer; `size_of` is the memory of the content, which is
    /// charged. It is known once the client has answered: if there is no room then, the content is dropped, and requested
    /// again when there is. A client that does not answer thus occupies no memory.
    ///
    /// # Errors
    /// That of the client; that of `room` if there is none in time, or not enough for the second answer.
    pub async fn read_published_within(
        &self,
        room: Room<'_>,
        client: &Publisher,
        uri: &str,
        encoding: Option<&ContentEncoding>,
        size_of: impl Fn(&ResourceContent) -> usize,
    ) -> Result<(ResourceContent, Charge), RpcError> {
        let content = self.ask_for_content(client, uri, encoding).await?;
        let size = size_of(&content);
        if let Some(charge) = room.budget.try_take(size) {
            return Ok((content, charge));
        }
        // The client's answer needs room as well, which is free when it is asked again.
        let answer = 2 * content.data.len();
        drop(content);
        let mut charge = room.take(size.saturating_add(answer), size).await?;
        charge.set(size);
        let content = self.ask_for_content(client, uri, encoding).await?;
        let more = size_of(&content).saturating_sub(charge.bytes());
        match more == 0 || charge.try_grow(more) {
            true => Ok((content, charge)),
            false => Err((room.full)()),
        }
    }

    /// Requests the content of a resource from a client; returns it in the encoding of the answer.
    async fn ask_for_content(
        &self,
        client: &Publisher,
        uri: &str,
        encoding: Option<&ContentEncoding>,
    ) -> Result<ResourceContent, RpcError> {
        let mut params = ostler_protocol::json!({ "channel": uri::ROOT, "uri": original(uri) });
        if let Some(encoding) = encoding {
            params["encoding"] = serde_json::to_value(encoding).unwrap_or_default();
        }
        let name = client.newest().client_id().unwrap_or_default();
        let answer = client.ask_any("resourceRead", &params).await?;
        let read: ResourceReadResult = serde_json::from_value(answer).map_err(|error| {
            RpcError::internal(format!("client {name}: invalid response to resourceRead: {error}"))
        })?;
        if read.data.len() > CONTENT_MAX {
            return Err(RpcError::internal(format!(
                "client {name} answered resourceRead with {} bytes; the limit is {CONTENT_MAX}",
                read.data.len()
            )));
        }
        Ok(ResourceContent { data: read.data, encoding: read.encoding, content_type: read.content_type })
    }
}

pub fn to_value(params: &impl Serialize) -> Value {
    serde_json::to_value(params).unwrap_or_default()
}

/// Returns parameters in the client's form, with the client's own URIs.
pub fn unwrapped(mut params: Value) -> Value {
    params["channel"] = uri::ROOT.into();
    for field in ["uri", "source", "destination"] {
        if let Some(Value::String(named)) = params.get_mut(field) {
            *named = original(named);
        }
    }
    params
}

/// Returns the client id in the authority of a URI.
fn authority(uri: &str) -> Option<String> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let client = percent_decode_str(authority).decode_utf8().ok()?;
    (!client.is_empty()).then(|| client.into_owned())
}

/// Returns a client's own URI of its resource. VS Code wraps its URIs and expects them unwrapped; other URIs are passed
/// on unchanged.
fn original(uri: &str) -> String {
    let unwrapped = || {
        let rest = uri.strip_prefix(WRAPPED)?.strip_prefix("://")?;
        let (_, path) = rest.split_once('/')?;
        let (scheme, rest) = path.split_once('/')?;
        let (authority, path) = rest.split_once('/')?;
        let (scheme, opaque) = match scheme.strip_suffix('!').or_else(|| scheme.strip_suffix("%21")) {
            Some(scheme) => (scheme, true),
            None => (scheme, false),
        };
        let known = opaque || authority == NO_AUTHORITY || scheme == "file" || scheme.starts_with("vscode");
        let authority = if authority == NO_AUTHORITY { "" } else { authority };
        (uri::is_scheme(scheme) && known).then(|| match opaque {
            true => format!("{scheme}:{path}"),
            false if authority.is_empty() && scheme != "file" => format!("{scheme}:/{path}"),
            false => format!("{scheme}://{authority}/{path}"),
        })
    };
    unwrapped().unwrap_or_else(|| uri.to_owned())
}

/// Converts content to the requested encoding, if possible.
pub fn encoded_as(content: ResourceContent, asked: Option<&ContentEncoding>) -> ResourceContent {
    long_work(content.data.len(), || encoded(content, asked))
}

fn encoded(content: ResourceContent, asked: Option<&ContentEncoding>) -> ResourceContent {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let ResourceContent { data, encoding, content_type } = content;
    match (asked, encoding) {
        (Some(ContentEncoding::Base64), ContentEncoding::Utf8) => {
            ResourceContent { content_type, ..ResourceContent::base64(data.as_bytes()) }
        }
        (Some(ContentEncoding::Utf8), ContentEncoding::Base64) => {
            let text = STANDARD.decode(&data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            match text.filter(|text| !text.contains('\0')) {
                Some(text) => ResourceContent { content_type, ..ResourceContent::text(text) },
                None => ResourceContent { data, encoding: ContentEncoding::Base64, content_type },
            }
        }
        (_, encoding) => ResourceContent { data, encoding, content_type },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_names_the_client() {
        assert_eq!(authority("vscode-agent-client://one/file/-/a").as_deref(), Some("one"));
        assert_eq!(authority("memory://a%20b?x").as_deref(), Some("a b"));
        assert_eq!(authority("memory:/one/a"), None);
        assert_eq!(authority("memory:///a"), None);
    }

    #[test]
    fn a_wrapped_uri_is_unwrapped_and_any_other_left() {
        for (wrapped, plain) in [
            ("vscode-agent-client://c/file/-/home/a%20b.txt", "file:///home/a%20b.txt"),
            ("vscode-agent-client://c/file/share/a", "file://share/a"),
            ("vscode-agent-client://c/vscode-remote/ssh%2Bbox/a?q#f", "vscode-remote://ssh%2Bbox/a?q#f"),
            ("vscode-agent-client://c/inmemory/-/plugins/one", "inmemory:/plugins/one"),
            ("vscode-agent-client://c/untitled!/-/Untitled-1", "untitled:Untitled-1"),
        ] {
            assert_eq!(original(wrapped), plain);
        }
        for same in [
            "vscode-agent-client://c/notes.txt",
            "vscode-agent-client://c/plugins/one/two",
            "memory://c/file/-/a",
            "vscode-agent-client://c",
        ] {
            assert_eq!(original(same), same);
        }
    }
}
