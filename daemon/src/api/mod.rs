//! The HTTP API: what the commands do, for programs elsewhere. Everything is JSON; a refusal is
//! `{ "message": … }`. `rows` declares every request; the rest of the folder is derived from it or handles one.

mod body;
mod cluster;
pub mod cluster_shapes;
mod events;
pub mod explain_shapes;
mod host;
pub mod list_shapes;
mod measure;
pub mod members;
mod needs;
mod openapi;
#[cfg(test)]
mod page;
pub mod page_shapes;
mod people;
mod plugins;
pub mod problem_shapes;
pub mod profile_shapes;
pub mod query;
pub mod rows;
mod runs;
pub mod schedule_shapes;
mod secrets;
mod sessions;
pub mod shapes;
mod sign_in;
mod streams;
mod verb;
mod webhooks;

use std::sync::Arc;

use ostler_contract::bodies::{JsonBody, JsonBodyError};
use ostler_contract::http::{self, Body, BodyError, Request, Response, StatusCode, header};
use ostler_contract::{Charge, JsonObject, Value};
use ostler_engine::Principal;
use ostler_engine::users::Credential;
use ostler_protocol::RpcError;
use ostler_protocol::surrogates::what_it_is;
use ostler_server::{Guard, Handler, HangUp, HostNames, Mount, Reply, Token, charged, refuse};

use self::rows::Ask;
use self::sign_in::Page;
pub use self::streams::Streams;
use self::verb::Verb;
use crate::config::ConfigFiles;
use crate::config_redaction::without_userinfo;
use crate::control::Control;
use crate::exit::Exit;
use crate::plugins::Row;

/// The largest body that is read.
const BODY_LIMIT: usize = 1024 * 1024;
/// The same for a caller who is not known yet: a token and little else.
const UNKNOWN_BODY_LIMIT: usize = 4 * 1024;

/// Why a request is not served.
#[derive(Debug)]
enum Refused {
    Exit(Exit),
    Grant(String),
    NotThere,
    /// The path is one of the API, and what its name means does not exist.
    Missing(String),
    /// As many streams are open as may; says which limit it is.
    Streams(String),
    Method(Verb),
    Media,
    NoMemory,
    /// The host serves no clients now.
    NotReady(String),
    Token,
    Body(String),
    TooLarge(String),
    Slow(String),
}

/// The configuration as the files say it now. What is wrong in them is no mistake of the caller.
fn configured(control: &Control) -> Result<(ConfigFiles, Vec<Row>), Refused> {
    control.configured().map_err(of_the_host)
}

/// A problem of the host, not of the request.
fn of_the_host(exit: Exit) -> Refused {
    match exit {
        Exit::Usage(why) | Exit::Machine(why) => Refused::Exit(Exit::Machine(why)),
    }
}

impl From<Exit> for Refused {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

impl From<RpcError> for Refused {
    fn from(error: RpcError) -> Self {
        Self::Grant(error.message)
    }
}

/// The mounts of the API. Its document needs no token: it is the same on every host, except for where the host is.
pub fn mounts(control: &Arc<Control>, names: HostNames, token: Option<Token>) -> Vec<Mount> {
    let (gate, sign_ins) = (control.host.access.gate.clone(), control.sign_ins.clone());
    let open = |path| {
        let guard = Guard::Host { names: names.clone(), what: "API" };
        Mount::exact(path, guard, handler(control.clone()))
    };
    let mut mounts = vec![open(rows::ROOT), open(rows::DOCUMENT)];
    mounts.push(of_rows(rows::ROOT, Guard::Token { names, token, gate, sign_ins }, control.clone()));
    mounts
}

/// The mounts for commands on this computer: the list of problems, and what measures plugins. They are served without the
/// API, too.
pub fn of_this_computer(control: &Arc<Control>, names: &HostNames, token: Option<&Token>) -> Vec<Mount> {
    let mount = |prefix| {
        let (gate, sign_ins) = (control.host.access.gate.clone(), control.sign_ins.clone());
        let guard = Guard::Token { names: names.clone(), token: token.cloned(), gate, sign_ins };
        of_rows(prefix, guard, control.clone())
    };
    [rows::PROBLEMS, rows::PLUGIN_PROFILE, rows::PLUGIN_MEMORY].map(mount).into()
}

/// The mounts of the probes. They need no token, and name the host as their sender knows it, which can be its address.
pub fn probes(control: &Arc<Control>) -> Vec<Mount> {
    [rows::HEALTH, rows::READY].map(|prefix| of_rows(prefix, Guard::Own, control.clone())).into()
}

/// The mounts of the API on a listener that has pages: they sign in and out there.
pub fn pages(control: &Arc<Control>, names: HostNames, token: Option<Token>) -> Vec<Mount> {
    let page = |prefix| of_rows(prefix, Guard::SamePage { names: names.clone() }, control.clone());
    let mut pages = vec![page(rows::SIGN_IN), page(rows::SIGN_OUT)];
    pages.extend(mounts(control, names.clone(), token));
    pages
}

fn of_rows(prefix: &'static str, guard: Guard, control: Arc<Control>) -> Mount {
    Mount::new(prefix, guard, handler(control))
}

fn handler(control: Arc<Control>) -> Handler {
    Arc::new(move |request| {
        let control = control.clone();
        Box::pin(async move { answer(&control, request).await })
    })
}

async fn answer(control: &Arc<Control>, request: Request) -> Response {
    let page = Page { headers: request.headers().clone(), ..Page::default() };
    let mut response = answer_to(control, request, &page).await;
    if let Some(cookie) = page.cookie.get() {
        response.headers_mut().insert(header::SET_COOKIE, cookie.clone());
    }
    response
}

async fn answer_to(control: &Arc<Control>, request: Request, page: &Page) -> Response {
    let path = request.uri().path().to_owned();
    match serve(control, &path, request, page).await {
        Ok(Served::Response(response)) => response,
        Ok(Served::Value(value)) => {
            let value = hide(control, without_userinfo(value));
            match (rows::find(&path).map(|(row, _)| row.answer), value) {
                (Some(rows::Answer::Text(media)), Value::String(text)) => {
                    let mut response = Response::new(text.into());
                    response
                        .headers_mut()
                        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
                    response
                }
                (_, value) => charged(&control.host.core.bodies, http::json(StatusCode::OK, &value))
                    .await
                    .unwrap_or_else(|_| refuse(&Reply::NoMemory)),
            }
        }
        // What cannot be stored now can be later.
        Err(Refused::Exit(Exit::Machine(why))) if control.host.core.lost_storage().is_some() => {
            let why = control.hidden.hide(&why).into_owned();
            refusal(&path, &Refused::NotReady(why), control)
        }
        Err(refused) => refusal(&path, &refused, control),
    }
}

/// An answer without what was handed to a plugin, wherever the plugin put it.
fn hide(control: &Control, value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(control.hidden.hide(&text).into_owned()),
        Value::Array(entries) => entries.into_iter().map(|entry| hide(control, entry)).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, hide(control, value))).collect(),
        other => other,
    }
}

fn refusal(path: &str, refused: &Refused, control: &Control) -> Response {
    let status = refused.status();
    match refused {
        Refused::Exit(exit) => http::message(status, control.hidden.hide(&exit.to_string())),
        Refused::NotThere => refuse(&Reply::NoApi(path.to_owned())),
        Refused::Method(verb) => {
            let mut response = http::message(status, format_args!("{path} only accepts {}", verb.name()));
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(verb.allowed()));
            response
        }
        Refused::Media => http::message(status, "The content type must be application/json"),
        Refused::NoMemory => refuse(&Reply::NoMemory),
        Refused::Streams(limit) => again_later(status, format_args!("{limit}; close one, then try again")),
        Refused::NotReady(why) => again_later(status, why),
        Refused::Token => http::message(status, "The token is not valid; check it and sign in again"),
        Refused::Grant(why)
        | Refused::Missing(why)
        | Refused::Body(why)
        | Refused::TooLarge(why)
        | Refused::Slow(why) => http::message(status, why),
    }
}

fn again_later(status: StatusCode, why: impl std::fmt::Display) -> Response {
    let mut response = http::message(status, why);
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static(http::RETRY_AFTER));
    response
}

impl Refused {
    /// The status of the answer; `openapi::STATUSES` documents it.
    fn status(&self) -> StatusCode {
        match self {
            Self::Exit(Exit::Usage(_)) | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::Exit(Exit::Machine(_)) => StatusCode::CONFLICT,
            Self::Grant(_) => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::NotThere | Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Media => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NoMemory | Self::Streams(_) | Self::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// What a request is answered with.
enum Served {
    Value(Value),
    Response(Response),
}

async fn serve(control: &Arc<Control>, path: &str, request: Request, page: &Page) -> Result<Served, Refused> {
    let (row, name) = rows::find(path).ok_or(Refused::NotThere)?;
    if !row.method.is_of(request.method()) {
        return Err(Refused::Method(row.method));
    }
    // Nobody reads its events.
    let is_head = *request.method() == http::Method::HEAD;
    // Set by the guard; without it no caller is authenticated.
    let known = request.extensions().get::<Principal>().cloned();
    let by = request.extensions().get::<Credential>().cloned().unwrap_or_default();
    let (caller, is_known) = (known.clone().unwrap_or_default(), known.is_some());
    if let Principal::Person(person) = &caller {
        control.host.access.record_sign_in(person);
    }
    row.admits(control, &caller)?;
    let ask = Ask { control: control.clone(), caller, by, name, page: page.clone() };
    if !is_head && let Some(events) = row.events(&ask, request.uri().query(), request.headers()) {
        let hang_up = request.extensions().get::<HangUp>().cloned();
        return Ok(Served::Response(events?.response(hang_up)));
    }
    if row.path == rows::DOCUMENT {
        return Ok(Served::Response(openapi::response(control)));
    }
    if row.body.is_none() {
        return row.run(ask, request.uri().query(), JsonObject::new()).await.map(Served::Value);
    }
    // Charged until the request is served.
    let (body, _charge) = body(control, request, is_known).await?;
    row.run(ask, None, body).await.map(Served::Value)
}

/// A body's object, with its charge; no body is an empty object. That of a caller who is not known is short, and charged
/// to the memory for such bodies while it arrives.
async fn body(control: &Control, request: Request, is_known: bool) -> Result<(JsonObject, Charge), Refused> {
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let is_json = media.is_some_and(|media| {
        media.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
    });
    let bodies = &control.host.core.bodies;
    let body = match is_known {
        true => Ok(request.into_body()),
        false => bodies.read_unverified(request.into_body(), UNKNOWN_BODY_LIMIT).await.map(Body::from),
    };
    let read = match body {
        Ok(body) => bodies.read_json(body, BODY_LIMIT).await,
        Err(why) => Err(why.into()),
    };
    match read {
        Ok(JsonBody { value: None, charge }) => Ok((JsonObject::new(), charge)),
        Err(JsonBodyError::Body(BodyError::NoMemory)) => Err(Refused::NoMemory),
        Err(JsonBodyError::Body(why @ (BodyError::TooLarge(_) | BodyError::TooManyValues { .. }))) => {
            Err(Refused::TooLarge(why.to_string()))
        }
        Err(JsonBodyError::Body(why @ BodyError::Slow(_))) => Err(Refused::Slow(why.to_string())),
        Err(JsonBodyError::Body(why)) => Err(Refused::Body(why.to_string())),
        _ if !is_json => Err(Refused::Media),
        Ok(JsonBody { value: Some(Value::Object(fields)), charge }) => Ok((fields, charge)),
        Ok(_) => Err(Refused::Body("The body is not a JSON object".to_owned())),
        // The position of the error, not the text, which may be a secret.
        Err(JsonBodyError::Json(error)) => Err(Refused::Body(format!(
            "The body is {}: line {}, column {}",
            what_it_is(&error),
            error.line(),
            error.column()
        ))),
    }
}
