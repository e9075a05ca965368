//! Users as resources: `user:`, `team:`, `project:` and `role:`, on hosts with a users file.

use std::sync::Arc;

use ostler_contract::points::{
    Encoding, Reader, ResourceContent, ResourceFacts, ResourceProvider, ResourceWrite, ResourceWriter,
    SchemeDescription, SchemeProvider,
};
use ostler_contract::{Call, JsonObject, Text, Thrown, Value};
use ostler_protocol::RpcError;
use ostler_protocol::wire::commands::DirectoryEntry;
use ostler_protocol::{grants, json};

use super::{Caller, Kind, People};

/// One provider for each kind.
pub fn providers(people: &Arc<People>) -> Vec<SchemeProvider> {
    Kind::ALL
        .iter()
        .map(|kind| SchemeProvider {
            scheme: Text::from(kind.name()),
            provider: provider(people.clone(), *kind),
        })
        .collect()
}

/// Returns the id of a record's URI: `<kind>://<id>`.
fn id_of(kind: Kind, uri: &str) -> Result<String, RpcError> {
    let rest = uri.get(kind.name().len()..).unwrap_or_default();
    let id = rest.strip_prefix("://").unwrap_or_default().trim_end_matches('/');
    match id.is_empty() || id.contains('/') {
        true => Err(RpcError::not_found(format!("{uri} is not a {0} URI: {0}://<id>", kind.name()))),
        false => Ok(id.to_owned()),
    }
}

/// Returns whether a URI names all records of a kind.
fn is_root(uri: &str) -> bool {
    uri.trim_end_matches('/').ends_with(':')
}

fn body_of(data: &str, encoding: Option<Encoding>) -> Result<JsonObject, RpcError> {
    let wrong = || RpcError::invalid_params("the record must be one JSON object");
    if encoding == Some(Encoding::Base64) {
        return Err(wrong());
    }
    match serde_json::from_str(data) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(wrong()),
    }
}

fn provider(people: Arc<People>, kind: Kind) -> ResourceProvider {
    let missing = move |id: &str| Thrown::from(RpcError::not_found(format!("unknown {} {id}", kind.name())));
    let (read, list, resolve, write, delete) =
        (people.clone(), people.clone(), people.clone(), people.clone(), people);
    ResourceProvider {
        read: Call::now(move |(uri, _): (String, Option<Reader>)| {
            let id = id_of(kind, &uri)?;
            let body = read.file().body(kind, &id).ok_or_else(|| missing(&id))?;
            Ok(ResourceContent::json(&Value::Object(body)))
        }),
        list: Some(Call::now(move |(uri, _): (String, Option<Reader>)| {
            if !is_root(&uri) {
                let id = id_of(kind, &uri)?;
                list.file().body(kind, &id).ok_or_else(|| missing(&id))?;
                let why = format!("{uri} is a {} and has no entries", kind.name());
                return Err(RpcError::invalid_params(why).into());
            }
            let entry = |name: String| DirectoryEntry { name, r#type: "file".to_owned() };
            Ok(list.file().ids(kind).into_iter().map(entry).collect())
        })),
        resolve: Some(Call::now(move |(uri, ..): (String, _, _)| {
            if is_root(&uri) {
                return Ok(ResourceFacts { r#type: "directory".to_owned(), ..ResourceFacts::default() });
            }
            let id = id_of(kind, &uri)?;
            let body = resolve.file().body(kind, &id).ok_or_else(|| missing(&id))?;
            let size = i64::try_from(format!("{:#}", Value::Object(body)).len()).ok();
            let content_type = Some("application/json".to_owned());
            Ok(ResourceFacts { r#type: "file".to_owned(), size, content_type, ..ResourceFacts::default() })
        })),
        write: Some(Call::new(move |(uri, content, writer): (String, ResourceWrite, ResourceWriter)| {
            let people = write.clone();
            async move {
                let id = id_of(kind, &uri)?;
                let body = body_of(&content.data, content.encoding)?;
                let (new, by) = (content.create_only, Caller::of(writer.reader.as_ref()));
                people.change(Box::new(move |file| file.put(kind, &id, &body, new, &by))).await
            }
        })),
        delete: Some(Call::new(move |(uri, _, writer): (String, bool, ResourceWriter)| {
            let people = delete.clone();
            async move {
                let id = id_of(kind, &uri)?;
                let by = Caller::of(writer.reader.as_ref());
                people.change(Box::new(move |file| file.remove(kind, &id, &by))).await
            }
        })),
        // Users can read their own records.
        authorize: (kind == Kind::User).then(|| {
            Call::now(move |(uri, reader): (String, Reader)| {
                Ok(id_of(kind, &uri).is_ok_and(|id| reader.id == format!("user:{id}")))
            })
        }),
        describe: Some(Call::now(move |()| {
            let known = grants::subject(kind.name());
            Ok(SchemeDescription {
                title: known.map(|known| known.title.to_owned()),
                description: known.map(|known| known.description.to_owned()),
                manifest: manifest(kind),
            })
        })),
        ..ResourceProvider::default()
    }
}

/// Returns the schema of a body.
fn manifest(kind: Kind) -> Option<JsonObject> {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let text = json!({ "type": "string" });
    let cleared = json!({ "type": ["string", "null"] });
    let properties = match kind {
        Kind::User => {
            json!({ "roles": texts, "issuer": cleared, "rolesFrom": cleared, "memberships": texts, "primary": cleared })
        }
        Kind::Team | Kind::Project => json!({ "title": text }),
        Kind::Role => json!({ "grants": texts }),
    };
    json!({ "type": "object", "additionalProperties": false, "properties": properties }).as_object().cloned()
}
