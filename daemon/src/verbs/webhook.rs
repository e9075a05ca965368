//! `ostler webhook …`: endpoints, beside the daemon that runs or that will.

use super::ask;
use crate::answer::Answer;
use crate::cli::RunFlags;
use crate::exit::Exit;
use crate::place::Place;
use crate::record;
use crate::settings::Settings;
use crate::webhook::{Endpoints, Told, WebhookVerb};

/// Does it; exit 1 where what was asked for did not come about.
///
/// # Errors
/// Exit 2 for a wrong argument, 1 where the machine cannot.
pub async fn webhook(at: &Place, mut verb: WebhookVerb) -> Result<Answer, Exit> {
    let files = at.files()?;
    let dir = files.dir.clone();
    let base = match record::running(&files.folders()) {
        Some(record) => {
            if let Some(plugin) = &record.vault {
                return Err(Exit::machine(format!(
                    "the daemon's secrets are kept by plugin {plugin}; write webhooks/<id>.md and keep the secret there"
                )));
            }
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
    let Told { lines, json, names, good } = Endpoints::of(&dir, &base)?.run(verb).await?;
    Ok(Answer { code: u8::from(!good), ..Answer::new(lines, json).named(names) })
}
