//! Every request of the API: its path, the grant it needs, the shapes of its body and answer, the command that sends it, and
//! its handler.

use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use ostler_contract::http::HeaderMap;
use ostler_contract::{JsonObject, Value};
use ostler_engine::Principal;
use ostler_engine::users::{Credential, Kind};
use ostler_plugin_webhook::REPLAY_GRANT;
use ostler_telemetry::metrics;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cluster_shapes::{Drain, Evict};
use super::events::{self, Events};
use super::explain_shapes::ExplainCall;
use super::list_shapes::SESSIONS;
use super::needs::Needs;
use super::page_shapes::{CallEndpoint, SignIn, TestRule};
use super::people::{self, Groups};
use super::profile_shapes::ProfilePlugin;
use super::query::Query;
use super::shapes::{
    AddGroup, AddUser, ConfigurePlugin, InstallPlugin, Named, NamedPlugin, Nothing, RemoveOption,
    RemovePlugin, ReplayDelivery, Restart, SetOption, StoreSecret, UpdatePlugin,
};
use super::sign_in::{self, Page};
use super::verb::Verb;
use super::{
    Refused, body, cluster, host, measure, openapi, plugins, query, runs, secrets, sessions, webhooks,
};
use crate::control::Control;
use crate::exit::Exit;
use crate::pending::{AnswerRequest, ApproveRequest, CancelTurn, RejectRequest, Reply};

/// What points to the document.
pub const ROOT: &str = "/api";
/// The document of the API.
pub const DOCUMENT: &str = "/api/openapi.json";
/// Whether the process serves requests.
pub const HEALTH: &str = "/api/health";
/// Whether clients should be sent here.
pub const READY: &str = "/api/ready";

/// What is wrong now.
pub const PROBLEMS: &str = "/api/problems";
/// Where a CPU profile of a plugin is recorded.
pub const PLUGIN_PROFILE: &str = "/api/plugin/profile";
/// What a plugin has in memory.
pub const PLUGIN_MEMORY: &str = "/api/plugin/memory";
/// Where an endpoint is called.
pub const CALL_ENDPOINT: &str = "/api/webhook/test";

/// Where pages sign in.
pub const SIGN_IN: &str = "/api/sign-in";
/// Where pages sign out.
pub const SIGN_OUT: &str = "/api/sign-out";

/// The schema of a type; the types it refers to go into the generator.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What an answer is.
#[derive(Clone, Copy)]
pub enum Answer {
    /// JSON of this schema.
    Json(SchemaOf),
    /// Text of this content type.
    Text(&'static str),
}

/// One request as its handler gets it.
pub struct Ask {
    /// The daemon.
    pub control: Arc<Control>,
    /// The caller, which holds the grant of the row.
    pub caller: Principal,
    /// What let the caller in.
    pub(super) by: Credential,
    /// The last part of the path, decoded; empty where the row's path has none.
    pub name: String,
    pub(super) page: Page,
}

/// Serves a request with its query and its body.
type Handler = Box<
    dyn Fn(Ask, Option<&str>, JsonObject) -> BoxFuture<'static, Result<Value, Refused>>
        + Send
        + Sync
        + 'static,
>;

/// Opens the stream of a list with its query.
type Opener = Box<dyn Fn(&Ask, Option<&str>) -> Result<Events, Refused> + Send + Sync + 'static>;

/// One request of the API.
pub struct Row {
    /// The method.
    pub method: Verb,
    /// The path; `{…}` at its end is a name, percent-encoded.
    pub path: &'static str,
    /// What it does, as a phrase.
    pub summary: &'static str,
    /// The command that sends it: its words, or how it is typed where the words have several requests.
    pub command: Option<&'static str>,
    /// The body.
    pub body: Option<SchemaOf>,
    /// The schemas of the parameters of the query, by name; each is optional.
    pub query: JsonObject,
    /// The answer.
    pub answer: Answer,
    needs: Needs,
    serve: Handler,
    stream: Option<Opener>,
}

/// A request without a body.
fn get<A, F>(
    path: &'static str,
    needs: Needs,
    summary: &'static str,
    serve: impl Fn(Ask) -> F + Send + Sync + 'static,
) -> Row
where
    A: Serialize + JsonSchema,
    F: Future<Output = Result<A, Refused>> + Send + 'static,
{
    Row {
        method: Verb::Get,
        path,
        summary,
        command: None,
        body: None,
        query: JsonObject::new(),
        answer: Answer::Json(|generator| generator.subschema_for::<A>()),
        needs,
        serve: Box::new(move |ask, _, _| {
            let answer = serve(ask);
            Box::pin(async move { written(answer.await?) })
        }),
        stream: None,
    }
}

/// A request with parameters in its query.
fn select<Q, A, F>(
    path: &'static str,
    needs: Needs,
    summary: &'static str,
    serve: impl Fn(Ask, Q) -> F + Send + Sync + 'static,
) -> Row
where
    Q: Query,
    A: Serialize + JsonSchema,
    F: Future<Output = Result<A, Refused>> + Send + 'static,
{
    let reader = query::Reader::<Q>::new();
    Row {
        method: Verb::Get,
        path,
        summary,
        command: None,
        body: None,
        query: Q::parameters().clone(),
        answer: Answer::Json(|generator| generator.subschema_for::<A>()),
        needs,
        serve: Box::new(move |ask, query, _| match reader.read(query) {
            Ok(query) => {
                let answer = serve(ask, query);
                Box::pin(async move { written(answer.await?) })
            }
            Err(exit) => Box::pin(std::future::ready(Err(exit.into()))),
        }),
        stream: None,
    }
}

/// A request with parameters in its query, whose answer is a list or the stream of its changes.
fn list<Q, A, F>(
    path: &'static str,
    needs: Needs,
    summary: &'static str,
    serve: impl Fn(Ask, Q) -> F + Send + Sync + 'static,
    events: impl Fn(&Ask, Q) -> Result<Events, Refused> + Send + Sync + 'static,
) -> Row
where
    Q: Query,
    A: Serialize + JsonSchema,
    F: Future<Output = Result<A, Refused>> + Send + 'static,
{
    let reader = query::Reader::<Q>::new();
    let stream: Opener = Box::new(move |ask, query| events(ask, reader.read(query)?));
    Row { stream: Some(stream), ..select(path, needs, summary, serve) }
}

/// A request with a body.
fn post<B, A, F>(
    path: &'static str,
    needs: Needs,
    summary: &'static str,
    serve: impl Fn(Ask, B) -> F + Send + Sync + 'static,
) -> Row
where
    B: DeserializeOwned + JsonSchema + Send + 'static,
    A: Serialize + JsonSchema,
    F: Future<Output = Result<A, Refused>> + Send + 'static,
{
    let reader = body::Reader::<B>::new();
    Row {
        method: Verb::Post,
        path,
        summary,
        command: None,
        body: Some(|generator| generator.subschema_for::<B>()),
        query: JsonObject::new(),
        answer: Answer::Json(|generator| generator.subschema_for::<A>()),
        needs,
        serve: Box::new(move |ask, _, fields| match reader.read(fields) {
            Ok(body) => {
                let answer = serve(ask, body);
                Box::pin(async move { written(answer.await?) })
            }
            Err(exit) => Box::pin(std::future::ready(Err(exit.into()))),
        }),
        stream: None,
    }
}

fn written(answer: impl Serialize) -> Result<Value, Refused> {
    Ok(serde_json::to_value(answer).map_err(|error| Exit::machine(error.to_string()))?)
}

/// Every request.
pub static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    use Kind::{Project, Team, User};
    use Needs::{Client, Config, Deployment, Diagnostics, People, Plugin, Pool, Secret};
    let by = Groups::new;
    vec![
        get(ROOT, Needs::Probe, "Where the document of this API is", openapi::pointer),
        get(DOCUMENT, Needs::Probe, "This API as an OpenAPI document", openapi::serve),
        get(HEALTH, Needs::Probe, "Whether the process serves requests", cluster::health),
        get(
            READY,
            Needs::Probe,
            "Whether the host serves clients: it has its lease, does not drain, and its session store answers",
            cluster::ready,
        ),
        get("/api/cli-manifest", Needs::Nothing, "Commands that send requests, as JSON", host::manifest),
        post(
            SIGN_IN,
            Needs::Page,
            "Sign a page of this host in: the answer sets a cookie that stands for the token",
            |ask, body: SignIn| sign_in::sign_in(ask, body),
        ),
        post(SIGN_OUT, Needs::Page, "Sign a page of this host out", |ask, body: Nothing| {
            sign_in::sign_out(ask, body)
        }),
        get("/api/me", Needs::Nothing, "Who the caller is, with its effective grants", sign_in::me),
        get("/api/status", Config("settings"), "State of the daemon", host::status).sent_by("status"),
        get(PROBLEMS, Config("settings"), "What is wrong now", host::problems),
        get(
            "/api/metrics",
            Diagnostics("metrics"),
            "Metrics as OpenMetrics text, which Prometheus reads",
            host::metrics,
        )
        .of_type(metrics::CONTENT_TYPE),
        get("/api/config", Config("settings"), "The merged configuration", host::configuration)
            .sent_by("config"),
        get("/api/plugin/list", Config("settings"), "The configured plugins", plugins::list)
            .sent_by("plugin list"),
        post(
            "/api/plugin/config",
            Deployment,
            "Return a plugin, and change it first where the body says so",
            |ask, body: ConfigurePlugin| plugins::configure(ask, body),
        )
        .sent_by("plugin config <name>"),
        post("/api/plugin/config/set", Deployment, "Set an option of a plugin", |ask, body: SetOption| {
            plugins::set(ask, body)
        })
        .sent_by("plugin config <name> <key> <value>"),
        post(
            "/api/plugin/config/unset",
            Deployment,
            "Remove an option of a plugin",
            |ask, body: RemoveOption| plugins::unset(ask, body),
        )
        .sent_by("plugin config unset <name> <key>"),
        post("/api/plugin/enable", Deployment, "Enable a plugin", |ask, body: NamedPlugin| {
            plugins::enable(ask, body.name, true)
        })
        .sent_by("plugin enable"),
        post("/api/plugin/disable", Deployment, "Disable a plugin", |ask, body: NamedPlugin| {
            plugins::enable(ask, body.name, false)
        })
        .sent_by("plugin disable"),
        post("/api/plugin/install", Deployment, "Install a plugin", |ask, body: InstallPlugin| {
            plugins::install(ask, body)
        })
        .sent_by("plugin install"),
        post("/api/plugin/remove", Deployment, "Remove a plugin", |ask, body: RemovePlugin| {
            plugins::remove(ask, body)
        })
        .sent_by("plugin remove"),
        post("/api/plugin/update", Deployment, "Update a plugin", |ask, body: UpdatePlugin| {
            plugins::update(ask, body)
        })
        .sent_by("plugin update"),
        post(
            PLUGIN_PROFILE,
            Config("change"),
            "Record a CPU profile of a plugin in JavaScript and return it at its end",
            |ask, body: ProfilePlugin| measure::profile(ask, body),
        )
        .sent_by("plugin profile"),
        post(
            PLUGIN_MEMORY,
            Config("change"),
            "What a plugin in JavaScript has in memory, after a collection",
            |ask, body: NamedPlugin| measure::memory(ask, body.name),
        )
        .sent_by("plugin memory"),
        post("/api/restart", Deployment, "Restart the daemon", |ask, body: Restart| host::restart(ask, body))
            .sent_by("restart"),
        get("/api/vault/list", Needs::Nothing, "The secret names visible to the caller", secrets::list)
            .sent_by("vault list"),
        post("/api/vault/set/{name}", Secret, "Store a secret", |ask, body: StoreSecret| {
            secrets::set(ask, body)
        })
        .sent_by("vault set"),
        post("/api/vault/delete/{name}", Secret, "Delete a secret", |ask, _: Nothing| secrets::delete(ask))
            .sent_by("vault delete"),
        get(
            "/api/cluster",
            Config("settings"),
            "The hosts that share a database with this one",
            cluster::status,
        )
        .sent_by("cluster status"),
        post(
            "/api/cluster/drain",
            Config("change"),
            "Hand the sessions of this host over to others, or take sessions again",
            |ask, body: Drain| cluster::drain(ask, body),
        )
        .sent_by("cluster drain"),
        post(
            "/api/cluster/evict",
            Config("change"),
            "End the lease of another host, so that others serve its sessions",
            |ask, body: Evict| cluster::evict(ask, body),
        )
        .sent_by("cluster evict"),
        get("/api/usage/{pool}", Pool, "The usage of a pool", host::usage).sent_by("usage"),
        list(
            "/api/runs",
            Client("automation", "list"),
            "Runs of automations, newest first",
            runs::list,
            runs::events,
        )
        .sent_by("automation runs"),
        get("/api/runs/{run}", Client("automation", "list"), "A run, by its id", runs::one),
        get(
            "/api/automation/show/{automation}",
            Client("automation", "list"),
            "The schedules of an automation, and when it is due next",
            runs::automation,
        ),
        list(
            SESSIONS,
            Client("session", "list"),
            "Sessions, the one modified last first",
            sessions::list,
            sessions::events,
        )
        .sent_by("session list"),
        select(
            "/api/sessions/{session}",
            Client("session", "list"),
            "A session, by its id; its turns with the grant `chat:turns`",
            sessions::one,
        )
        .sent_by("session show"),
        post(
            "/api/session/approve/{session}",
            Client("chat", "answer"),
            "Approve a tool call that a session waits for",
            |ask, body: ApproveRequest| sessions::reply(ask, Reply::Approve(body)),
        )
        .sent_by("session approve"),
        post(
            "/api/session/reject/{session}",
            Client("chat", "answer"),
            "Reject a tool call, or decline questions, that a session waits for",
            |ask, body: RejectRequest| sessions::reply(ask, Reply::Reject(body)),
        )
        .sent_by("session reject"),
        post(
            "/api/session/answer/{session}",
            Client("chat", "answer"),
            "Answer questions that a session waits for",
            |ask, body: AnswerRequest| sessions::reply(ask, Reply::Answer(body)),
        )
        .sent_by("session answer"),
        post(
            "/api/session/cancel/{session}",
            Client("chat", "cancel"),
            "Cancel the running turn of a session's default chat",
            |ask, body: CancelTurn| sessions::cancel(ask, body),
        )
        .sent_by("session cancel"),
        get("/api/log", Diagnostics("logs"), "The last lines of the log, oldest first", webhooks::lines)
            .sent_by("logs"),
        get("/api/webhook/list", Config("settings"), "The webhook endpoints", webhooks::list)
            .sent_by("webhook list"),
        get(
            "/api/webhook/log/{endpoint}",
            Config("settings"),
            "The last calls of a webhook endpoint, oldest first",
            webhooks::log,
        )
        .sent_by("webhook log"),
        post(
            CALL_ENDPOINT,
            Plugin(REPLAY_GRANT),
            "Call a webhook endpoint as a sender would, with its secret",
            |ask, body: CallEndpoint| webhooks::test(ask, body),
        )
        .sent_by("webhook test"),
        post(
            "/api/webhook/replay",
            Plugin(REPLAY_GRANT),
            "Deliver a call of a webhook endpoint again whose body is stored",
            |ask, body: ReplayDelivery| host::replay(ask, body),
        )
        .sent_by("webhook replay"),
        post(
            "/api/webhook/explain",
            Plugin(REPLAY_GRANT),
            "Say what a call of a webhook endpoint would do, without doing it",
            |ask, body: ExplainCall| host::explain(ask, body),
        )
        .sent_by("webhook explain"),
        post(
            "/api/notify/test",
            Config("change"),
            "Send a test message as a rule of notify.yaml says",
            |ask, body: TestRule| host::test_rule(ask, body),
        )
        .sent_by("notify test"),
        get("/api/user/list", People(User, "list"), "The users", people::users).sent_by("user list"),
        get(
            "/api/user/permissions",
            People(User, "list"),
            "The effective grants of the users, by role",
            sign_in::permissions,
        ),
        post(
            "/api/user/add",
            People(User, "put"),
            "Add a user and return the personal token once",
            |ask, body: AddUser| people::add_user(ask, body),
        )
        .sent_by("user add"),
        post(
            "/api/user/token",
            People(User, "put"),
            "Replace a personal token and return the new one once",
            |ask, body: Named| people::token(ask, body),
        )
        .sent_by("user token"),
        post("/api/user/rm", People(User, "delete"), "Remove a user", |ask, body: Named| {
            people::remove(ask, User, body)
        })
        .sent_by("user rm"),
        get("/api/team/list", People(Team, "list"), "The teams", by(Team).list()).sent_by("team list"),
        post("/api/team/add", People(Team, "put"), "Add a team", |ask, body: AddGroup| {
            people::add_group(ask, Team, body)
        })
        .sent_by("team add"),
        post("/api/team/rm", People(Team, "delete"), "Remove a team", |ask, body: Named| {
            people::remove(ask, Team, body)
        })
        .sent_by("team rm"),
        get("/api/project/list", People(Project, "list"), "The projects", by(Project).list())
            .sent_by("project list"),
        post("/api/project/add", People(Project, "put"), "Add a project", |ask, body: AddGroup| {
            people::add_group(ask, Project, body)
        })
        .sent_by("project add"),
        post("/api/project/rm", People(Project, "delete"), "Remove a project", |ask, body: Named| {
            people::remove(ask, Project, body)
        })
        .sent_by("project rm"),
    ]
});

/// The request of a path, and the name it ends in.
pub(super) fn find(path: &str) -> Option<(&'static Row, String)> {
    ROWS.iter().find_map(|row| {
        let (before, parameter) = row.parts();
        if parameter.is_none() {
            return (row.path == path).then(|| (row, String::new()));
        }
        let rest = path.strip_prefix(before).filter(|rest| !rest.is_empty() && !rest.contains('/'))?;
        let name = percent_encoding::percent_decode_str(rest).decode_utf8().ok()?;
        Some((row, name.into_owned()))
    })
}

impl Row {
    /// Declares the command that sends the request.
    fn sent_by(self, command: &'static str) -> Self {
        Self { command: Some(command), ..self }
    }

    /// Declares that the answer is text.
    fn of_type(self, media: &'static str) -> Self {
        Self { answer: Answer::Text(media), ..self }
    }

    /// The path before the name it ends in, and what that is.
    pub fn parts(&self) -> (&'static str, Option<&'static str>) {
        match self.path.split_once('{') {
            Some((before, parameter)) => (before, Some(parameter.trim_end_matches('}'))),
            None => (self.path, None),
        }
    }

    /// The words of the path below `/api`, without the name it ends in.
    pub fn words(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.parts().0.split('/').filter(|word| !word.is_empty() && *word != "api")
    }

    /// Whether the request is made without a token.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.needs, Needs::Page | Needs::Probe)
    }

    /// The required grant, as documentation writes it.
    pub fn grant(&self) -> String {
        self.needs.grant()
    }

    /// Whether the caller holds the grant.
    pub(super) fn admits(&self, control: &Control, caller: &Principal) -> Result<(), Refused> {
        self.needs.admits(control, caller)
    }

    /// Whether a list is answered as a stream of its changes where the caller accepts one.
    pub fn has_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// The stream, where there is one and the caller accepts it.
    pub(super) fn events(
        &self,
        ask: &Ask,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Option<Result<Events, Refused>> {
        let open = self.stream.as_ref().filter(|_| events::is_wanted(headers))?;
        Some(open(ask, query))
    }

    /// Serves it.
    pub(super) async fn run(
        &self,
        ask: Ask,
        query: Option<&str>,
        body: JsonObject,
    ) -> Result<Value, Refused> {
        (self.serve)(ask, query, body).await
    }
}
