//! Follows the demonstration with the official client: the catalogue, the run, and the session's turn as it streams.

use std::io::Write;

use ahp::SubscriptionEvent;
use ostler_protocol::uri;
use ostler_protocol::wire::actions::StateAction;

use super::daemon::Daemon;
use super::folder::Folder;
use super::{call, step};
use crate::client::follow::Seen;
use crate::client::screen::first_line;
use crate::client::{Connection, exit, lost};
use crate::exit::Exit;

/// Calls the endpoint and prints the results.
pub(super) async fn show(daemon: &Daemon, folder: &Folder) -> Result<(), Exit> {
    let connection = Connection::open(&daemon.url, "ostler-demo").await?;
    step(format!("3. Connected the official AHP client, protocol {}", connection.version));
    let subscribed = connection.client().subscribe(uri::AUTOMATIONS.to_owned()).await;
    let (_, mut catalogue) = subscribed.map_err(exit)?;

    let (status, body) = call::post(daemon, folder).await?;
    step(format!("4. Posted a GitHub push to {}: {status} {body}", call::path()));
    if status != 202 {
        return Err(Exit::machine(format!("the endpoint returned {status} instead of 202")));
    }

    let run = loop {
        match catalogue.recv().await {
            Some(SubscriptionEvent::Action(envelope)) => {
                if let StateAction::AutomationSet(set) = envelope.action
                    && let Some(run) = set.automation.runs.first()
                {
                    let title = &set.automation.definition.title;
                    step(format!("5. Automation “{title}” started a run: {}", run.resource));
                    break run.resource.clone();
                }
            }
            Some(_) => {}
            None => return Err(lost()),
        }
    };
    let end = connection.follow_run(&run, &mut see).await?;
    match (end.status, end.error) {
        ("completed", _) => {
            step(format!("7. The run completed at {}", end.at));
            Ok(())
        }
        (_, Some(why)) => Err(Exit::machine(format!("the run failed: {why}"))),
        (status, None) => Err(Exit::machine(format!("the run was {status}"))),
    }
}

fn see(seen: &Seen<'_>) {
    match seen {
        Seen::Session(session) => {
            step(format!("6. The run started session {session}; its turn:"));
        }
        Seen::Asked(text) => step(format!("   [message of the automation] {}", first_line(text))),
        Seen::Called(tool) => step(format!("   [tool call {tool}]")),
        Seen::Answered(text) => {
            step("   [result of the TypeScript plugin's tool]");
            for line in text.lines() {
                step(format!("     {line}"));
            }
            step("   [response of the echo backend]");
            write("     ");
        }
        Seen::Text(text) => write(text),
        Seen::Waits(session, request) => {
            request.lines(session).iter().for_each(|line| step(format!("   {line}")));
        }
        Seen::Over => step(""),
    }
}

fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{}", text.replace('\n', "\n     "));
    let _ = out.flush();
}
