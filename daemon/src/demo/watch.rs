//! Watching with the official client: the catalogue, the run, the session's turn as it streams in.

use std::io::Write;

use ahp::{Client, ClientConfig, SubscriptionEvent};
use ostler_protocol::uri;
use ostler_protocol::wire::SUPPORTED_PROTOCOL_VERSIONS;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{
    AutomationRunLifecycle, AutomationRunState, SnapshotState, ToolResultContent,
};

use super::daemon::Daemon;
use super::folder::Folder;
use super::{call, step};
use crate::exit::Exit;

fn failed(error: impl std::fmt::Display) -> Exit {
    Exit::machine(format!("the client lost the host: {error}"))
}

/// Calls the endpoint and shows what comes of it.
pub(super) async fn show(daemon: &Daemon, folder: &Folder) -> Result<(), Exit> {
    let transport = ahp_ws::WebSocketTransport::connect(&daemon.url).await.map_err(failed)?;
    let config = ClientConfig { subscription_buffer: 4096, ..ClientConfig::default() };
    let client = Client::connect(transport, config).await.map_err(failed)?;
    let versions = SUPPORTED_PROTOCOL_VERSIONS.iter().map(|version| (*version).to_owned()).collect();
    let agreed = client.initialize("ostler-demo".to_owned(), versions, vec![]).await.map_err(failed)?;
    step(format!("3. The official AHP client is connected, protocol {}", agreed.protocol_version));
    let (_, mut catalogue) = client.subscribe(uri::AUTOMATIONS.to_owned()).await.map_err(failed)?;

    let (status, body) = call::post(daemon, folder).await?;
    step(format!("4. A GitHub push was posted to {}: {status} {body}", call::path()));
    if status != 202 {
        return Err(Exit::machine(format!("the endpoint answered {status}, not 202")));
    }

    let run = loop {
        match catalogue.recv().await {
            Some(SubscriptionEvent::Action(envelope)) => {
                if let StateAction::AutomationSet(set) = envelope.action
                    && let Some(run) = set.automation.runs.first()
                {
                    step(format!(
                        "5. Automation “{}” runs: {}",
                        set.automation.definition.title, run.resource
                    ));
                    break run.resource.clone();
                }
            }
            Some(_) => {}
            None => return Err(failed("the connection ended")),
        }
    };
    follow(&client, &run).await
}

/// Follows a run to its end, and its session's turn meanwhile.
async fn follow(client: &Client, run: &str) -> Result<(), Exit> {
    let (subscribed, mut changes) = client.subscribe(run.to_owned()).await.map_err(failed)?;
    let state = subscribed.snapshot.map(|snapshot| snapshot.state);
    let Some(SnapshotState::AutomationRun(mut state)) = state else {
        return Err(failed("the run has no state"));
    };
    while state.primary_session.is_none() && !is_over(&state) {
        match changes.recv().await {
            Some(SubscriptionEvent::Action(envelope)) => {
                ahp::reducers::apply_action_to_automation_run(&mut state, &envelope.action);
            }
            Some(_) => {}
            None => return Err(failed("the connection ended")),
        }
    }
    if let Some(session) = &state.primary_session {
        step(format!("6. It started session {session}; its turn, as it streams in:"));
        stream(client, session).await?;
    }
    while !is_over(&state) {
        match changes.recv().await {
            Some(SubscriptionEvent::Action(envelope)) => {
                ahp::reducers::apply_action_to_automation_run(&mut state, &envelope.action);
            }
            Some(_) => {}
            None => return Err(failed("the connection ended")),
        }
    }
    match &state.lifecycle {
        AutomationRunLifecycle::Completed(completed) => {
            step(format!("7. The run completed at {}", completed.completed_at));
            Ok(())
        }
        AutomationRunLifecycle::Failed(run) => {
            Err(Exit::machine(format!("the run failed: {}", run.error.message)))
        }
        _ => Err(Exit::machine("the run was cancelled")),
    }
}

fn is_over(run: &AutomationRunState) -> bool {
    !matches!(run.lifecycle, AutomationRunLifecycle::Pending(_) | AutomationRunLifecycle::Running(_))
}

/// Shows the turn of a session's default chat until it has ended.
async fn stream(client: &Client, session: &str) -> Result<(), Exit> {
    let chat = uri::default_chat(session);
    let (subscribed, mut events) = client.subscribe(chat).await.map_err(failed)?;
    let Some(SnapshotState::Chat(chat)) = subscribed.snapshot.map(|snapshot| snapshot.state) else {
        return Err(failed("the chat has no state"));
    };
    // What was said before the client came is in the snapshot.
    for message in
        chat.turns.iter().map(|turn| &turn.message).chain(chat.active_turn.iter().map(|turn| &turn.message))
    {
        step(format!("   [the automation asks] {}", first_line(&message.text)));
    }
    for part in chat
        .turns
        .iter()
        .flat_map(|turn| &turn.response_parts)
        .chain(chat.active_turn.iter().flat_map(|turn| &turn.response_parts))
    {
        show_part(part);
    }
    if chat.active_turn.is_none() && !chat.turns.is_empty() {
        step("");
        return Ok(());
    }
    loop {
        let action = match events.recv().await {
            Some(SubscriptionEvent::Action(envelope)) => envelope.action,
            Some(_) => continue,
            None => return Err(failed("the connection ended")),
        };
        match action {
            StateAction::ChatTurnStarted(turn) => {
                step(format!("   [the automation asks] {}", first_line(&turn.message.text)))
            }
            StateAction::ChatToolCallStart(call) => step(format!("   [{} is called]", call.tool_name)),
            StateAction::ChatToolCallComplete(done) => {
                show_result(done.result.content.as_deref().unwrap_or_default())
            }
            StateAction::ChatDelta(delta) => write(&delta.content),
            StateAction::ChatTurnComplete(_)
            | StateAction::ChatTurnCancelled(_)
            | StateAction::ChatError(_) => {
                step("");
                return Ok(());
            }
            _ => {}
        }
    }
}

fn show_part(part: &ostler_protocol::wire::state::ResponsePart) {
    use ostler_protocol::wire::state::{ResponsePart, ToolCallState};
    match part {
        ResponsePart::Markdown(part) => write(&part.content),
        ResponsePart::ToolCall(part) => {
            // Whatever state it is in, it was called.
            let call = serde_json::to_value(&part.tool_call).unwrap_or_default();
            step(format!("   [{} is called]", call["toolName"].as_str().unwrap_or("a tool")));
            if let ToolCallState::Completed(call) = &part.tool_call {
                show_result(call.content.as_deref().unwrap_or_default());
            }
        }
        _ => {}
    }
}

/// What the TypeScript plugin's tool contributed.
fn show_result(content: &[ToolResultContent]) {
    for part in content {
        if let ToolResultContent::Text(text) = part {
            step("   [the TypeScript plugin's tool answers]");
            for line in text.text.lines() {
                step(format!("     {line}"));
            }
            step("   [the echo backend says it back]");
            write("     ");
        }
    }
}

fn first_line(text: &str) -> String {
    let line: String = text.lines().next().unwrap_or_default().chars().take(100).collect();
    if line.len() < text.len() { format!("{line} …") } else { line }
}

fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{}", text.replace('\n', "\n     "));
    let _ = out.flush();
}
