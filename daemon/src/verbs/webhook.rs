//! `ostler webhook …`: endpoints, beside the daemon that runs or that will.

use ostler_contract::json;

use super::ask;
use crate::answer::Answer;
use crate::api::shapes::{ReplayDelivery, ReplayedDelivery};
use crate::client::Connection;
use crate::client::screen::Screen;
use crate::compose::AUTOMATIONS_IN_MEMORY;
use crate::config::Keep;
use crate::config::RunFlags;
use crate::exit::Exit;
use crate::place::Place;
use crate::record;
use crate::settings::Settings;
use crate::webhook::{Endpoints, Told, WebhookVerb, replay_on, replayed};

/// Does it; exit 1 where what was asked for did not come about.
///
/// # Errors
/// Exit 2 for a wrong argument, 1 where the machine cannot.
pub async fn webhook(at: &Place, mut verb: WebhookVerb) -> Result<Answer, Exit> {
    if let WebhookVerb::Replay(flags) = &verb {
        if let Some(remote) = at.remote()?.filter(|_| !flags.follow) {
            let body = ReplayDelivery { delivery: flags.delivery.clone() };
            let row: ReplayedDelivery = remote.post("/api/webhook/replay", &body).await?;
            return Ok(answer(replayed(flags, &json!(row))));
        }
        // A sync call waits for its turn.
        let none = || Exit::machine("No daemon is running. Start it with: ostler start");
        let daemon = Connection::patient(at).await?.ok_or_else(none)?;
        return Ok(answer(replay_on(&daemon, Screen::of(&at.common), flags).await?));
    }
    let files = at.files()?;
    let dir = files.dir.clone();
    let mut daemon = None;
    let mut in_memory = files.config.automations == Some(Keep::Memory);
    let base = match record::running(&files.folders()) {
        Some(record) => {
            if let Some(plugin) = &record.vault {
                return Err(Exit::machine(format!(
                    "the daemon's secrets are stored by plugin {plugin}; store the secret there and write webhooks/<id>.md"
                )));
            }
            in_memory =
                record.automations.as_ref().is_some_and(|kept| kept.starts_with(AUTOMATIONS_IN_MEMORY));
            daemon = Some(record.connect_url);
            record.routes
        }
        None => {
            let settings = Settings::new(&RunFlags::default(), files, &at.working_dir)?;
            format!("http://{}", settings.routes.unwrap_or(settings.address))
        }
    };
    if let WebhookVerb::Add(flags) = &mut verb
        && flags.secret_stdin
    {
        flags.value = Some(ask::piped("secret")?);
    }
    if let WebhookVerb::Rm(flags) = &verb {
        ask::sure(at, flags.yes, &format!("Remove endpoint {}?", flags.id))?;
    }
    let mut endpoints = Endpoints::of(&dir, &base)?;
    endpoints.daemon = daemon;
    endpoints.screen = Screen::of(&at.common);
    if in_memory {
        endpoints.automations = None;
    }
    Ok(answer(endpoints.run(verb).await?))
}

fn answer(Told { lines, json, names, good }: Told) -> Answer {
    Answer { code: u8::from(!good), ..Answer::new(lines, json).named(names) }
}
