//! An agent as a backend of the host.

use std::sync::Arc;

use ostler_contract::points::{Agent, AgentSession, BoundTool, ChatAbilities, ClientPlugin, Start, TurnFrom};
use ostler_contract::wire::state::{MessageAttachment, ModelSelection, ProtectedResourceMetadata};
use ostler_contract::{Call, Frozen, Thrown, Value, json};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::account::Account;
use crate::command_turn::{CommandTurns, Run};
use crate::emitter::Emitter;
use crate::options::AgentOptions;
use crate::prompt::Message;
use crate::session::{Answers, Command, Conversation, Shared};
use crate::stored::Stored;

type Begin = (String, String, Option<ModelSelection>, Option<TurnFrom>, Option<Vec<MessageAttachment>>);

/// The backend of one agent. The catalogue contains the known facts. The host drops it, with `registered`, if another
/// plugin has its name.
pub fn agent(shared: Shared, registered: Arc<()>) -> Agent {
    let (options, catalogue) = (shared.agent.clone(), shared.catalogue.clone());
    let (schema, defaults, offered, models) =
        (catalogue.clone(), catalogue.clone(), catalogue, options.clone());
    let (needy, deletes) = (options.clone(), shared.clone());
    Agent {
        provider: options.provider.as_str().into(),
        display_name: options.name.as_str().into(),
        description: options.description.clone(),
        schema: Call::new(move |()| {
            let catalogue = schema.clone();
            async move {
                catalogue.load().await;
                Ok(catalogue.schema())
            }
        }),
        defaults: Call::new(move |()| {
            let catalogue = defaults.clone();
            async move {
                catalogue.reread_defaults().await;
                Ok(catalogue.defaults())
            }
        }),
        create: Call::now(move |(start,): (Frozen<Start>,)| {
            let _held = &registered;
            Ok(session(shared.clone(), start.0))
        }),
        chats: Some(ChatAbilities { fork: true, side_chat: true }),
        multiple_directories: Some(true),
        protected_resources: protected(&options),
        delete: Some(Call::new(move |(name, _): (String, Option<String>)| {
            let shared = deletes.clone();
            async move {
                match Stored::read(Some(&name)).id {
                    Some(id) => delete(&shared, id).await,
                    None => Ok(()),
                }
            }
        })),
        machine: Some(Call::now(move |()| Ok(needy.needs.of(&needy.provider)))),
        probe: Some(Call::new(move |()| {
            let (catalogue, options) = (offered.clone(), models.clone());
            async move {
                catalogue.load().await;
                Ok(catalogue.offered(&options.models))
            }
        })),
        ..Agent::default()
    }
}

/// Deletes the agent's copy of a sleeping session, which its conversation has not deleted. An agent without deletion is
/// not started.
async fn delete(shared: &Shared, id: String) -> Result<(), Thrown> {
    if shared.deleted.lock().remove(&id) {
        return Ok(());
    }
    let Shared { agent, runtime, catalogue, .. } = shared;
    catalogue.load().await;
    match catalogue.facts(agent) {
        Some(facts) if facts.delete => {}
        _ => return Ok(()),
    }
    Account { agent, runtime, catalogue }.delete(&id).await.map_err(Thrown::new)
}

/// The resources whose tokens the agent receives from clients.
fn protected(options: &AgentOptions) -> Option<Vec<ProtectedResourceMetadata>> {
    let resource = |resource: &String| {
        let told = options.resources.get(resource).cloned().unwrap_or_default();
        let name = told.name.as_ref().unwrap_or(&options.name);
        let mut record = json!({ "resource": resource, "resource_name": name, "required": told.required });
        let mut add = |member: &str, value: Value| record[member] = value;
        if !told.authorization_servers.is_empty() {
            add("authorization_servers", told.authorization_servers.into());
        }
        if !told.scopes.is_empty() {
            add("scopes_supported", told.scopes.into());
        }
        if let Some(page) = told.documentation {
            add("resource_documentation", page.into());
        }
        serde_json::from_value(record).ok()
    };
    (!options.credentials.is_empty()).then(|| options.credentials.keys().filter_map(resource).collect())
}

/// The running half of one chat.
fn session(shared: Shared, start: Start) -> AgentSession {
    // The stable protocol can neither fork nor rewind a session, so a new one receives the remaining turns as text.
    let stored = match (&start.fork_at, &start.rewind_at) {
        (Some(_), _) => Stored::default(),
        (None, Some(_)) => Stored::to_open(),
        (None, None) => Stored::read(start.resume.as_deref()),
    };
    let stored = Arc::new(Mutex::new(stored));
    let (tell, commands) = mpsc::unbounded_channel();
    let own = tell.downgrade();
    let emitter = Emitter::of(&start);
    let in_terminals = CommandTurns::of(start.seed.as_deref().unwrap_or_default());
    let conversation =
        Conversation::new(shared, start, stored.clone(), in_terminals.clone(), (own, commands));
    tokio::spawn(conversation.run());
    let cancels_commands = in_terminals.clone();
    let with = || tell.clone();
    let (begins, resumes, cancels, confirms, sets, closes) = (with(), with(), with(), with(), with(), with());
    let (answers, tools, completes, stops, forks, lends) = (with(), with(), with(), with(), with(), with());
    let (renames, plugins) = (with(), with());
    AgentSession {
        begin: Call::new(move |(turn, text, model, _, attachments): Begin| {
            let (begun, wait) = oneshot::channel();
            let message = Message { text, attachments: attachments.unwrap_or_default(), context: None };
            let sent = begins.send(Command::Begin { turn, message, model, begun });
            async move {
                sent.map_err(|_| Thrown::new("the conversation has ended"))?;
                // The agent has named its session by now.
                let _ = wait.await;
                Ok(())
            }
        }),
        resume: Some(Call::new(move |(turn,): (String,)| {
            let (begun, wait) = oneshot::channel();
            let _ = resumes.send(Command::Resume { turn, begun });
            async move { Ok(wait.await.unwrap_or_default()) }
        })),
        ran: Some(Call::new(move |(turn, command, run): (String, String, Run)| {
            in_terminals.run(emitter.clone(), turn, command, run)
        })),
        cancel: Call::now(move |(turn,): (String,)| {
            if !cancels_commands.cancel(&turn) {
                let _ = cancels.send(Command::Cancel { turn });
            }
            Ok(())
        }),
        confirm: Some(Call::now(move |(call, approved, option): (String, bool, Option<String>)| {
            let _ = confirms.send(Command::Confirm { call, approved, option });
            Ok(())
        })),
        set_config: Some(Call::new(move |(key, value): (String, Value)| {
            let (done, wait) = oneshot::channel();
            let _ = sets.send(Command::Set { key, value, done });
            async move {
                Ok(match wait.await {
                    Ok(Ok(())) => Value::Bool(true),
                    Ok(Err(sentence)) => sentence.into(),
                    Err(_) => "the conversation has ended".into(),
                })
            }
        })),
        set_title: Some(Call::now(move |(_title,): (String,)| {
            let _ = renames.send(Command::Renamed);
            Ok(())
        })),
        stop_worker: Some(Call::now(move |(call,): (String,)| {
            let _ = stops.send(Command::StopWorker { call });
            Ok(())
        })),
        fork_point: Some(Call::new(move |(turn,): (String,)| {
            let (done, wait) = oneshot::channel();
            let _ = forks.send(Command::ForkPoint { turn: turn.clone(), done });
            async move { Ok(Some(wait.await.unwrap_or(turn))) }
        })),
        agent_id: Some(Call::now(move |()| Ok(stored.lock().name()))),
        answer: Some(Call::new(move |(id, _, given, response): (String, bool, Answers, String)| {
            let (done, wait) = oneshot::channel();
            let _ = answers.send(Command::Answer { id, answers: given, response, done });
            async move { Ok(wait.await.unwrap_or_default()) }
        })),
        set_tools: Some(Call::now(move |(all,): (Vec<BoundTool>,)| {
            Ok(tools.send(Command::Tools(all)).is_ok())
        })),
        set_client_plugins: Some(Call::new(move |(all,): (Vec<ClientPlugin>,)| {
            let (done, wait) = oneshot::channel();
            let sent = plugins.send(Command::Plugins { plugins: all, done }).is_ok();
            async move {
                // Left folders are removed after that.
                let _ = wait.await;
                Ok(sent)
            }
        })),
        complete_tool_call: Some(Call::new(move |(call, _, result): (String, String, Value)| {
            let (done, wait) = oneshot::channel();
            let _ = completes.send(Command::Completed { call, result, done });
            async move { Ok(wait.await.unwrap_or_default()) }
        })),
        authenticated: Some(Call::now(move |(resource, token): (String, String)| {
            let _ = lends.send(Command::Lent { resource, token });
            Ok(())
        })),
        close: Call::new(move |(removing,): (Option<bool>,)| {
            let (done, wait) = oneshot::channel();
            let _ = closes.send(Command::Close { removing: removing == Some(true), done });
            async move {
                let _ = wait.await;
                Ok(())
            }
        }),
        ..AgentSession::default()
    }
}
