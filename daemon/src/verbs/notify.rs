//! `ostler notify …`: tests the rules of `notify.yaml`.

use std::sync::Arc;

use clap::Subcommand;
use ostler_contract::json;
use ostler_contract::points::Vault;
use ostler_ports::{FileVault, Report};

use crate::answer::Answer;
use crate::api::page_shapes::{TestRule, TestedRule};
use crate::config::RunFlags;
use crate::daemon_file;
use crate::database;
use crate::exit::Exit;
use crate::notify::{self, Tester};
use crate::place::Place;
use crate::settings::Settings;

/// The `ostler notify` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum NotifyVerb {
    /// Send a test message as a rule of notify.yaml says
    Test {
        /// Rule id
        rule: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Exit 2 for an invalid argument or file, 1 if the message was not sent.
pub async fn notify(at: &Place, NotifyVerb::Test { rule }: NotifyVerb) -> Result<Answer, Exit> {
    if let Some(remote) = at.remote()? {
        return Ok(answer(&remote.post("/api/notify/test", &TestRule { rule }).await?));
    }
    let files = at.files()?;
    let running = daemon_file::running(&files.folders());
    let database = database::connect(&files).await?;
    if let Some(plugin) = running.as_ref().and_then(|record| record.vault.as_ref())
        && database.is_none()
    {
        return Err(Exit::machine(format!(
            "the daemon's secrets are stored by plugin {plugin}; send the test with --remote and the daemon's URL"
        )));
    }
    let quiet = Report::quiet();
    let vault: Vault = match (database, FileVault::new(&files.dir, quiet)) {
        (Some(direct), _) => direct.vault(),
        (None, Ok(vault)) => Arc::new(vault).into_point(),
        (None, Err(why)) => return Err(Exit::machine(why.message)),
    };
    let folder = files.dir.clone();
    let settings = Settings::new(&RunFlags::default(), files, &at.working_dir)?;
    let listens = running.map(|record| record.url);
    let base = notify::base(&settings, listens.as_deref()).unwrap_or_default();
    let tested = Tester { folder: &folder, vault: &vault, base: &base }.test(&rule).await?;
    Ok(answer(&tested))
}

fn answer(tested: &TestedRule) -> Answer {
    let TestedRule { rule, by, link } = tested;
    let lines = [format!("Rule {rule} sent a test message by {by}."), format!("Links begin like {link}.")];
    Answer::new(lines, json!(tested)).named([rule.as_str()])
}
