//! `ostler webhook …`: manages endpoints, with or without a running daemon.

use ostler_contract::{Value, json};

use super::ask;
use crate::answer::Answer;
use crate::api::explain_shapes::ExplainedCall;
use crate::api::page_shapes::{CallEndpoint, CalledEndpoint, Endpoint, EndpointLog};
use crate::api::shapes::{ReplayDelivery, ReplayedDelivery};
use crate::client::Connection;
use crate::client::screen::Screen;
use crate::compose::AUTOMATIONS_IN_MEMORY;
use crate::config::RunFlags;
use crate::config::StorageLocation;
use crate::daemon_file;
use crate::database;
use crate::exit::Exit;
use crate::place::Place;
use crate::remote::Remote;
use crate::settings::Settings;
use crate::webhook::{
    Endpoints, TestFlags, VerbOutput, WebhookVerb, explain_on, explained, follow, listed, logged, replay_on,
    replayed,
};

/// Runs the command; exit 1 if it did not succeed.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 for a failure of the machine.
pub async fn webhook(at: &Place, mut verb: WebhookVerb) -> Result<Answer, Exit> {
    if let WebhookVerb::Replay(flags) = &verb {
        if let Some(remote) = at.remote()?.filter(|_| !flags.follow) {
            let body = ReplayDelivery { delivery: flags.delivery.clone() };
            let row: ReplayedDelivery = remote.post("/api/webhook/replay", &body).await?;
            return Ok(answer(replayed(flags, &json!(row))));
        }
        // A sync call waits for the end of its turn.
        let none = || Exit::machine("no daemon is running; start it with: ostler start");
        let daemon = Connection::patient(at).await?.ok_or_else(none)?;
        return Ok(answer(replay_on(&daemon, Screen::of(&at.common), flags).await?));
    }
    if let WebhookVerb::Explain(flags) = &verb {
        if let Some(remote) = at.remote()? {
            let row: ExplainedCall = remote.post("/api/webhook/explain", &flags.call()?).await?;
            return Ok(answer(explained(&row)));
        }
        let none = || Exit::machine("no daemon is running; start it with: ostler start");
        let daemon = Connection::patient(at).await?.ok_or_else(none)?;
        return Ok(answer(explain_on(&daemon, flags).await?));
    }
    if let Some(remote) = at.remote()? {
        return elsewhere(at, &remote, verb).await.map(answer);
    }
    let files = at.files()?;
    let dir = files.dir.clone();
    let database = database::connect(&files).await?;
    let mut daemon = None;
    let mut in_memory = files.config.automations == Some(StorageLocation::Memory);
    let (base, public_url) = match daemon_file::running(&files.folders()) {
        Some(record) => {
            if let Some(plugin) = record.vault.as_ref().filter(|_| database.is_none()) {
                return Err(Exit::machine(format!(
                    "the daemon's secrets are stored by plugin {plugin}; store the secret there and write webhooks/<id>.md"
                )));
            }
            in_memory =
                record.automations.as_ref().is_some_and(|kept| kept.starts_with(AUTOMATIONS_IN_MEMORY));
            daemon = Some(record.connect_url);
            (record.routes, record.public_url)
        }
        None => {
            let settings = Settings::new(&RunFlags::default(), files, &at.working_dir)?;
            (format!("http://{}", settings.routes.unwrap_or(settings.address)), settings.public_url)
        }
    };
    if let WebhookVerb::Add(flags) = &mut verb
        && flags.secret_stdin
    {
        flags.value = Some(ask::piped("secret")?);
    }
    let mut endpoints = match database {
        Some(direct) => Endpoints::in_database(direct, &base),
        None => Endpoints::of(&dir, &base)?,
    };
    endpoints.public_url = public_url;
    endpoints.daemon = daemon;
    endpoints.screen = Screen::of(&at.common);
    if in_memory {
        endpoints.automations = None;
    }
    if let WebhookVerb::Rm(flags) = &verb {
        // A mistyped id is no question.
        endpoints.find(&flags.id).await?.map_err(Exit::Usage)?;
        ask::sure(at, flags.yes, &format!("Remove endpoint {}?", flags.id))?;
    }
    Ok(answer(endpoints.run(verb).await?))
}

/// Commands on the endpoints of the daemon at a URL: requests of its HTTP API, and of the protocol for the outcomes of
/// calls.
async fn elsewhere(at: &Place, remote: &Remote, verb: WebhookVerb) -> Result<VerbOutput, Exit> {
    match verb {
        WebhookVerb::List => {
            let rows: Vec<Endpoint> = remote.get("/api/webhook/list").await?;
            Ok(listed(rows.iter().map(|row| json!(row)).collect()))
        }
        WebhookVerb::Log { id } => {
            Ok(logged(&id, calls(remote, &id).await?, Connection::patient(at).await).await)
        }
        WebhookVerb::Test(flags) => test(at, remote, flags).await,
        // These write files of this computer. The command line rejects the option for them.
        WebhookVerb::Add(_) | WebhookVerb::Rm(_) | WebhookVerb::Replay(_) | WebhookVerb::Explain(_) => {
            Err(Exit::usage("--remote is not supported by this command: it works at this computer only"))
        }
    }
}

async fn calls(remote: &Remote, id: &str) -> Result<Vec<Value>, Exit> {
    let log: EndpointLog = remote.get_named("/api/webhook/log/", id).await?;
    Ok(log.calls.into_iter().map(Value::Object).collect())
}

async fn test(at: &Place, remote: &Remote, flags: TestFlags) -> Result<VerbOutput, Exit> {
    let TestFlags { id, body, follow: follows } = flags;
    let daemon = if follows { Connection::patient(at).await? } else { None };
    let called: CalledEndpoint = remote
        .post("/api/webhook/test", &CallEndpoint { id: id.clone(), body: body.map(Value::String) })
        .await?;
    let good = (200..300).contains(&called.status);
    let text = called.answer.as_str().map_or_else(|| called.answer.to_string(), str::to_owned);
    let said = [format!("{} returned {}", called.url, called.status), text];
    let mut output = VerbOutput { lines: said.to_vec(), json: json!(called), names: vec![id.clone()], good };
    let Some(daemon) = daemon.filter(|_| good) else { return Ok(output) };
    let mut screen = Screen::of(&at.common);
    said.iter().for_each(|line| screen.line(line));
    // The answer was sent once the call was in the log.
    let call = calls(remote, &id).await?.pop().unwrap_or_default();
    let followed = follow(&daemon, screen, &call, &mut output.json).await?;
    (output.lines, output.good) = (followed.lines, followed.good);
    if !followed.any && call["chat"].is_null() {
        output.lines.push("the call started no run".to_owned());
        output.good = false;
    }
    Ok(output)
}

fn answer(VerbOutput { lines, json, names, good }: VerbOutput) -> Answer {
    Answer { code: u8::from(!good), ..Answer::new(lines, json).named(names) }
}
