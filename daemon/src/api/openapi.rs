//! The OpenAPI 3.1 document of the API, made from its rows.

use bytes::Bytes;
use ostler_contract::http::{Response, header};
use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::names;
use parking_lot::Mutex;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use url::Url;

use super::rows::{Answer, Ask, CALL_ENDPOINT, DOCUMENT, ROWS, Row};
use super::shapes::{Document, Error, Pointer};
use super::{Refused, events};
use crate::control::Control;

/// The version of OpenAPI.
const VERSION: &str = "3.1.0";
/// Where schemas are in the document.
const SCHEMAS: &str = "#/components/schemas/";

/// A status other than 200 that requests are answered with.
pub(super) struct Status {
    pub(super) code: u16,
    /// The cause, as documentation writes it.
    pub(super) cause: &'static str,
    /// The requests of a row that can be answered with it.
    of: fn(&Row) -> bool,
}

const fn status(code: u16, cause: &'static str, of: fn(&Row) -> bool) -> Status {
    Status { code, cause, of }
}

fn has_body(row: &Row) -> bool {
    row.body.is_some()
}

fn has_name(row: &Row) -> bool {
    row.parts().1.is_some()
}

fn has_query(row: &Row) -> bool {
    !row.query.is_empty()
}

/// Every status other than 200.
pub(super) const STATUSES: &[Status] = &[
    status(400, "The body has an unexpected shape, or a name, key, parameter or value is invalid.", |row| {
        has_body(row) || has_name(row) || has_query(row)
    }),
    status(401, "No token, or an unknown token.", |_| true),
    status(403, "A grant is missing, or the `Host` or `Origin` is not accepted.", |_| true),
    status(404, "Unknown path, run, session or webhook endpoint, or the API is disabled.", |row| {
        has_name(row) || row.path == CALL_ENDPOINT
    }),
    status(405, "Wrong method; `Allow` has the right one. `HEAD` works where `GET` does.", |_| false),
    status(408, "The body did not arrive in time.", has_body),
    status(
        409,
        "The request conflicts with the state of the host: a secret that does not exist, a configuration file that cannot \
         be read, no users file.",
        |_| true,
    ),
    status(413, "The body exceeds 1 MiB or has too many values.", has_body),
    status(415, "The content type is not JSON.", has_body),
    status(
        503,
        "The host is not ready, has no memory for it (`limits.memoryMb`), \
         has too many streams open, or cannot read the users; repeat after `Retry-After` seconds.",
        |_| true,
    ),
];

pub(super) async fn pointer(ask: Ask) -> Result<Pointer, Refused> {
    let below = public_path(&ask.control).unwrap_or_default();
    let openapi = format!("{below}{DOCUMENT}");
    Ok(Pointer { name: names::HOST.to_owned(), openapi, documentation: names::page("http") })
}

/// The document, whose row has its shape; requests are answered with [`response`].
pub(super) async fn serve(ask: Ask) -> Result<Document, Refused> {
    Ok(document(public_path(&ask.control).as_deref()))
}

/// The document as it is sent, with the public path that it was made for: anybody can ask for it, and making it takes
/// much longer than sending it.
static MADE: Mutex<Option<(Option<String>, Bytes)>> = Mutex::new(None);

/// The answer with the document.
pub(super) fn response(control: &Control) -> Response {
    let path = public_path(control);
    let mut made = MADE.lock();
    let bytes = match &*made {
        Some((of, bytes)) if *of == path => bytes.clone(),
        _ => {
            // A document always encodes.
            let bytes = Bytes::from(serde_json::to_vec(&document(path.as_deref())).unwrap_or_default());
            *made = Some((path, bytes.clone()));
            bytes
        }
    };
    drop(made);
    let mut response = Response::new(bytes.into());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The path of the public URL, where it has one: a proxy removes it before the request gets here.
pub(super) fn public_path(control: &Control) -> Option<String> {
    let url = Url::parse(control.record().ok()?.public_url.as_deref()?).ok()?;
    Some(url.path().trim_end_matches('/').to_owned()).filter(|path| !path.is_empty())
}

/// The document. Where the public URL has a path, the requests are below it for those who come by that URL.
pub fn document(public_path: Option<&str>) -> Document {
    let settings = || SchemaSettings::draft2020_12().with(|with| with.definitions_path = SCHEMAS[1..].into());
    let mut read = settings().for_deserialize().into_generator();
    let mut written = settings().for_serialize().into_generator();
    let error = written.subschema_for::<Error>().to_value();
    let mut paths = JsonObject::new();
    for row in ROWS.iter() {
        let operation = operation(row, &mut read, &mut written, &error);
        paths.insert(row.path.to_owned(), json!({ row.method.name().to_lowercase(): operation }));
    }
    let mut schemas = written.take_definitions(true);
    schemas.values_mut().for_each(without_null);
    schemas.extend(read.take_definitions(true));
    let token =
        |more: &str| format!("The connection token, which has full access, or a personal token{more}.");
    let components = json!({
        "schemas": schemas,
        "securitySchemes": {
            "bearer": { "type": "http", "scheme": "bearer", "description": token("") },
            "query": {
                "type": "apiKey", "in": "query", "name": "tkn",
                "description": token("; it takes precedence over the header"),
            },
        },
    });
    Document {
        openapi: VERSION.to_owned(),
        info: object(json!({
            "title": names::HOST,
            "summary": "HTTP API of the daemon",
            "description": "What the commands do, for other programs. Bodies and answers are JSON; every error has a `message`.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") },
        })),
        servers: servers(public_path),
        tags: tags().into_iter().map(|name| object(json!({ "name": name }))).collect(),
        paths,
        components: object(components),
        security: ["bearer", "query"].map(|scheme| object(json!({ scheme: [] }))).to_vec(),
    }
}

fn servers(public_path: Option<&str>) -> Vec<JsonObject> {
    let own = json!({ "url": "/" });
    let all = match public_path {
        Some(path) => vec![
            json!({ "url": path, "description": "Under the public URL." }),
            json!({ "url": "/", "description": "At the address of the daemon." }),
        ],
        None => vec![own],
    };
    all.into_iter().map(object).collect()
}

/// Members of an answer that are not required are absent, never `null`.
fn without_null(schema: &mut Value) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
    for (_, node) in properties.filter(|(name, _)| !required.iter().any(|one| one == name.as_str())) {
        let Some(types) = node.get_mut("type") else { continue };
        let other = types.as_array().and_then(|types| match types.as_slice() {
            [one, null] if null == "null" => Some(one.clone()),
            _ => None,
        });
        if let Some(other) = other {
            *types = other;
        }
    }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(fields) => fields,
        _ => JsonObject::new(),
    }
}

/// The group of a row: its first word where others share it.
fn tag(row: &Row) -> &'static str {
    match row.words().count() {
        1 if !shares_words(row) => "host",
        _ => row.words().next().unwrap_or("host"),
    }
}

/// Whether another row has the same words: a list and one of its entries.
fn shares_words(row: &Row) -> bool {
    ROWS.iter().any(|other| other.path != row.path && other.words().eq(row.words()))
}

fn tags() -> Vec<&'static str> {
    let mut tags: Vec<&str> = Vec::new();
    for tag in ROWS.iter().map(tag) {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags
}

/// `pluginConfigSet`
fn operation_id(row: &Row) -> String {
    if let Some(name) = row.parts().1.filter(|_| shares_words(row)) {
        return name.to_owned();
    }
    if row.words().next().is_none() {
        return "api".to_owned();
    }
    let words = row.words().flat_map(|word| word.split(['-', '.'])).enumerate();
    words
        .map(|(at, word)| match (at, word.split_at_checked(1)) {
            (1.., Some((first, rest))) => first.to_uppercase() + rest,
            _ => word.to_owned(),
        })
        .collect()
}

/// The schema of a name in a path.
fn schema_of_name(name: &str) -> Value {
    match name {
        "name" => json!({ "type": "string", "minLength": 1, "pattern": "^(host:|(team|user):[^/]+/)[^/]" }),
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}

/// What a name in a path looks like.
fn example(name: &str) -> &'static str {
    match name {
        "pool" => "user:ada",
        "endpoint" => "in",
        "run" | "session" => "6f1c2f4e-3c1a-4a55-9d5e-0b1f6f3f7a11",
        _ => "host:github",
    }
}

fn operation(row: &Row, read: &mut SchemaGenerator, written: &mut SchemaGenerator, error: &Value) -> Value {
    let mut answer = match row.answer {
        Answer::Json(schema) => json!({ "application/json": { "schema": schema(written) } }),
        Answer::Text(media) => json!({ media: { "schema": { "type": "string" } } }),
    };
    if row.has_stream() {
        answer[events::MEDIA] = json!({ "schema": { "type": "string" } });
    }
    let mut responses = JsonObject::new();
    responses.insert("200".to_owned(), json!({ "description": "Success.", "content": answer }));
    for status in STATUSES.iter().filter(|status| (status.of)(row)) {
        let mut response =
            json!({ "description": status.cause, "content": { "application/json": { "schema": error } } });
        if status.code == 503 {
            let schema = json!({ "type": "integer", "minimum": 0 });
            response["headers"] =
                json!({ "Retry-After": { "description": "Seconds to wait.", "schema": schema } });
        }
        responses.insert(status.code.to_string(), response);
    }
    let mut operation = json!({
        "operationId": operation_id(row),
        "summary": row.summary,
        "description": format!("Required grant: {}.", row.grant()),
        "tags": [tag(row)],
        "x-ostler-grant": row.grant(),
    });
    if let Some(command) = row.command {
        operation["x-ostler-command"] = format!("{} {command}", names::HOST).into();
    }
    let in_path = row.parts().1.map(|name| {
        json!({
            "name": name, "in": "path", "required": true, "description": "Percent-encoded.",
            "schema": schema_of_name(name), "example": example(name),
        })
    });
    let in_query = row.query.iter().map(|(name, schema)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        json!({ "name": name, "in": "query", "required": false, "description": description, "schema": schema })
    });
    let parameters: Vec<Value> = in_path.into_iter().chain(in_query).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = row.body {
        operation["requestBody"] = json!({
            "required": row.members().iter().any(|member| member.required),
            "content": { "application/json": { "schema": body(read) } },
        });
    }
    operation["responses"] = responses.into();
    if row.is_open() {
        operation["security"] = json!([]);
    }
    operation
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn shown() -> Value {
        json!(document(None))
    }

    /// Every reference of a document.
    fn references(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                into.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, into));
            }
            Value::Array(entries) => entries.iter().for_each(|value| references(value, into)),
            _ => {}
        }
    }

    #[test]
    fn every_row_is_an_operation_with_an_id_of_its_own() {
        let document = shown();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), ROWS.len());
        let mut ids = BTreeSet::new();
        for row in ROWS.iter() {
            let operation = &paths[row.path][row.method.name().to_lowercase()];
            for text in ["operationId", "summary", "x-ostler-grant"] {
                assert!(
                    operation[text].as_str().is_some_and(|text| !text.is_empty()),
                    "{}: {text}",
                    row.path
                );
            }
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{}", row.path);
            let statuses: BTreeSet<&str> =
                operation["responses"].as_object().unwrap().keys().map(String::as_str).collect();
            assert!(statuses.is_superset(&["200", "401", "403", "409"].into()), "{}: {statuses:?}", row.path);
            assert_eq!(operation.get("requestBody").is_some(), row.method.name() == "POST", "{}", row.path);
            let parameters = operation["parameters"].as_array().map_or(0, Vec::len);
            let in_path = usize::from(row.path.contains('{'));
            assert_eq!(parameters, in_path + row.query.len(), "{}", row.path);
        }
        assert!(ids.contains("pluginConfigSet") && ids.contains("cliManifest"), "{ids:?}");
    }

    #[test]
    fn every_schema_is_one_and_every_reference_leads_to_one() {
        let document = shown();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for (name, schema) in schemas {
            assert!(jsonschema::meta::is_valid(schema), "{name}: {schema}");
            assert!(schema["description"].as_str().is_some(), "{name} is described");
            let is_numbered = name.ends_with(|last: char| last.is_ascii_digit());
            assert!(!is_numbered, "two types are named {}", name.trim_end_matches(char::is_numeric));
        }
        let mut named = BTreeSet::new();
        references(&document, &mut named);
        for reference in &named {
            assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
        }
        for name in schemas.keys() {
            assert!(named.contains(&format!("{SCHEMAS}{name}")), "nothing refers to {name}");
        }
    }

    #[test]
    fn every_refusal_has_a_documented_status() {
        use crate::exit::Exit;
        let text = String::new;
        for refused in [
            Refused::Exit(Exit::usage("")),
            Refused::Exit(Exit::machine("")),
            Refused::Grant(text()),
            Refused::NotThere,
            Refused::Missing(text()),
            Refused::Streams(text()),
            Refused::NotReady(text()),
            Refused::Method(crate::api::verb::Verb::Get),
            Refused::Media,
            Refused::NoMemory,
            Refused::Body(text()),
            Refused::TooLarge(text()),
            Refused::Slow(text()),
        ] {
            let code = refused.status().as_u16();
            assert!(STATUSES.iter().any(|status| status.code == code), "{refused:?}");
        }
    }
}
