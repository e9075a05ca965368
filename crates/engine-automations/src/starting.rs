//! Starts a run: authorizes it for its owner and sends its message to a session.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::Event;
use ostler_contract::owner::Owner;
use ostler_contract::read::Unknown;
use ostler_engine_core::message::{RUN, message};
use ostler_engine_core::refusals::{NO_SUCH_CHAT, SESSION_ENDED};
use ostler_engine_core::traces;
use ostler_engine_sessions::{NewSession, Place, SessionEntry, TurnRequest, computer_in};
use ostler_engine_users::users::policies::Use;
use ostler_protocol::grants::Grant;
use ostler_protocol::template::{TemplatePart, parts};
use ostler_protocol::wire::actions::{
    AutomationRunPrimarySessionChangedAction, AutomationRunSessionRemovedAction,
    AutomationRunSessionSetAction, StateAction,
};
use ostler_protocol::wire::state::{
    AutomationDefinition, AutomationRunLifecycle, AutomationRunState, MessageKind, ModelSelection,
};
use ostler_protocol::{json, names, uri};
use tracing::{Instrument, Span};

use super::catalogue::{CatalogueEntry, none};
use super::message::{RunPlace, is_empty, opening};
use super::order::Order;
use super::{Automations, by_value};

/// The turn of a run, and the principal it acts as.
struct RunTurn<'a> {
    entry: &'a CatalogueEntry,
    run: &'a AutomationRunState,
    model: Option<ModelSelection>,
    sender: Option<String>,
    /// Whether to queue the message if the chat is busy.
    queue: bool,
}

/// Whether a turn could not begin because the session or its chat no longer exists.
fn has_no_chat(session: &SessionEntry, why: &str) -> bool {
    session.is_gone() || why == SESSION_ENDED || why == NO_SUCH_CHAT
}

/// Why a run does not start whose message has nothing for the agent.
pub(super) fn no_message(definition: &AutomationDefinition) -> String {
    // Without a text, the title is the message.
    let mut written = [&definition.message.text, &definition.title].into_iter();
    let has_placeholders =
        |text: &String| parts(text).any(|part| matches!(part, TemplatePart::Placeholder { .. }));
    match written.any(has_placeholders) {
        true => "its message is empty: its placeholders have no values".to_owned(),
        false => "its message is empty: write a text for the agent".to_owned(),
    }
}

/// The pauses before a run is started again whose session could not be read.
pub(super) const AGAIN: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(60)];

/// Why a run did not start.
pub(super) enum Unstarted {
    /// It cannot start.
    Refused(String),
    /// The session in which it continues could not be read, so it may be able to start later.
    Unread(String),
}

impl From<String> for Unstarted {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

fn unread(why: &Unknown) -> Unstarted {
    Unstarted::Unread(format!("its session could not be read: {why}"))
}

impl Automations {
    /// Begins a run. A run that cannot start fails, unless the reason is that nothing can be stored: then it waits.
    pub(super) async fn begin_run(self: &Arc<Self>, resource: &str) {
        let Some(run) = self.run_once_storable(resource).await else { return };
        self.core
            .events
            .raise(Event::AutomationFire { automation: run.automation.clone(), run: run.resource.clone() });
        let span = traces::run(&run.resource, &run.automation);
        self.runs.lock().spans.insert(run.resource.clone(), span.clone());
        let (mut next, mut pauses) = (Some(run), AGAIN.into_iter());
        while let Some(run) = next {
            let losses = self.core.storage_losses();
            let why = match self.start_run(&run).instrument(span.clone()).await {
                Ok(()) => return,
                Err(Unstarted::Refused(why)) => why,
                Err(Unstarted::Unread(why)) => match pauses.next() {
                    Some(pause) => {
                        let seconds = pause.as_secs();
                        self.core.log.warn(format_args!(
                            "{resource} of {} could not start: {why}; trying again in {seconds} seconds",
                            run.automation
                        ));
                        tokio::time::sleep(pause).await;
                        next = self.run_once_storable(resource).await;
                        continue;
                    }
                    None => why,
                },
            };
            self.core.log.warn(format_args!("{resource} of {} could not start: {why}", run.automation));
            if self.core.storage_losses() == losses && self.core.lost_storage().is_none() {
                return self.settle_run(resource, "failed", Some(why)).await;
            }
            self.core.log.warn(format_args!("{resource} waits until it can be stored"));
            self.wait_again(resource).await;
            next = self.run_once_storable(resource).await;
        }
    }

    /// Waits until data can be stored. Returns the run, unless it has ended or the host stops before: then it is as the next
    /// start finds it.
    async fn run_once_storable(&self, resource: &str) -> Option<AutomationRunState> {
        let can_store = self.core.can_store().await;
        self.runs.lock().open.get(resource).filter(|_| can_store).cloned()
    }

    /// Makes a run pending again whose turn could not be stored. It continues in the session that it has, if any.
    async fn wait_again(self: &Arc<Self>, resource: &str) {
        if self.is_running(resource)
            && let Some(pending) = self.lifecycle(resource, "pending", None)
        {
            self.change_run(resource, vec![pending]).await;
        }
    }

    async fn start_run(self: &Arc<Self>, run: &AutomationRunState) -> Result<(), Unstarted> {
        let id = uri::automation_id(&run.automation).unwrap_or_default();
        let entry = self.entry(id).ok_or_else(|| none(&run.automation))?;
        self.may_start(entry.owner.as_deref())?;
        let definition = &entry.wire.definition;
        let settings = &entry.settings;
        if self.has_no_message(&entry, run) {
            return Err(no_message(definition).into());
        }
        let order = Order::of_run(run).filter(|order| order.session && !settings.pinned);
        let continued = match &order {
            Some(order) => self.session_of_value(id, &entry, order).await?,
            None if settings.pinned => {
                let _held = self.load_pinned(settings).await.known().map_err(|why| unread(&why))?;
                self.own_pinned(settings, entry.owner.as_deref())?
            }
            None => self.session_to_resume(&entry, run).await?,
        };
        let model = definition.session.model.clone().or(definition.message.model.clone());
        let provider = match (&continued, &definition.session.provider) {
            (Some(session), _) => Some(session.provider.clone()),
            (None, Some(provider)) => Some(provider.clone()),
            (None, None) => self.core.first_agent().map(|agent| agent.provider.to_string()),
        };
        let sender = settings.editor.clone().or_else(|| entry.owner.clone());
        // Authorizes the session, the turn and its model together, before the session is created.
        let allowed = provider.is_some();
        if let Some(agent) = &provider {
            let model = model.as_ref().map(|model| model.id.as_str());
            let turn = Use { agent, model, computer: None };
            let computer = continued.is_none().then_some(definition.session.config.as_ref()).flatten();
            let wanted = Use { computer: computer.and_then(computer_in), ..turn };
            let uses = [(entry.owner.as_deref(), wanted), (sender.as_deref(), turn)];
            let charged = match &continued {
                Some(session) => self.sessions.charged_to(session),
                None => self.access.charged_to(entry.owner.as_deref(), None),
            };
            self.access.may_all_use(&uses, &charged).await.map_err(|refused| refused.message)?;
        }
        let resumes = self.is_running(&run.resource);
        // A turn may just have begun in the chat.
        let queue = settings.pinned || order.is_some() || resumes;
        let turn = RunTurn { entry: &entry, run, model, sender, queue };
        if let Some(session) = continued {
            match self.say(&turn, &session, allowed).await {
                Err(why) if (order.is_some() || resumes) && has_no_chat(&session, &why) => {
                    self.unlink(run, &session.uri).await;
                    if !self.has_run(&run.resource) {
                        return Ok(());
                    }
                }
                said => return said.map_err(Unstarted::Refused),
            }
        }
        // The policies were checked for the session to continue; a new one may have another backend.
        let allowed = allowed && !self.is_running(&run.resource);
        let session = self.new_run_session(&entry, run, order.as_ref(), allowed).await?;
        match &order {
            Some(order) => self.keep_session_of_value(id, order, &session.uri).await,
            None if settings.pinned => self.pin(id, &session.uri).await,
            None => {}
        }
        self.say(&turn, &session, allowed).await.map_err(Unstarted::Refused)
    }

    /// Whether the message of a run has neither text nor attachments.
    pub(super) fn has_no_message(&self, entry: &CatalogueEntry, run: &AutomationRunState) -> bool {
        let definition = &entry.wire.definition;
        // It does not depend on which session it is.
        let place =
            RunPlace { run: Some(&run.resource), session: "session", links: &self.core.options.links };
        definition.message.attachments.iter().flatten().next().is_none() && is_empty(definition, run, place)
    }

    /// Links a run with a session and begins its turn there.
    async fn say(
        self: &Arc<Self>,
        turn: &RunTurn<'_>,
        session: &Arc<SessionEntry>,
        allowed: bool,
    ) -> Result<(), String> {
        let RunTurn { entry, run, model, sender, queue } = turn;
        let definition = &entry.wire.definition;
        let links = &self.core.options.links;
        let place = RunPlace { run: Some(&run.resource), session: &session.uri, links };
        let text = opening(definition, run, place);
        self.runs.lock().by_session.insert(session.uri.clone(), run.resource.clone());
        let running = self.lifecycle(&run.resource, "running", None);
        let linked = [
            StateAction::AutomationRunSessionSet(AutomationRunSessionSetAction {
                session: session.uri.clone(),
            }),
            StateAction::AutomationRunPrimarySessionChanged(AutomationRunPrimarySessionChangedAction {
                primary_session: Some(session.uri.clone()),
            }),
        ];
        let linked = self.change_run(&run.resource, running.into_iter().chain(linked).collect());
        let mut first = message(text, MessageKind::Automation);
        first.attachments.clone_from(&definition.message.attachments);
        first.agent.clone_from(&definition.session.agent);
        first.meta.get_or_insert_default().insert(names::meta_key(RUN), run.resource.as_str().into());
        let request = TurnRequest {
            place: Place::DefaultChat,
            message: first,
            model: model.clone(),
            sender: sender.clone(),
            allowed,
            queue: *queue,
            span: Span::current(),
        };
        // The run's state precedes the turn in the store, and both share a commit.
        futures::join!(linked, self.sessions.start_turn(session, request)).1?;
        let mut runs = self.runs.lock();
        if runs.open.contains_key(&run.resource) {
            runs.said.insert(run.resource.clone());
        }
        Ok(())
    }

    /// Returns the session in which a resumed run continues: `None` for another run, or if the session cannot take another
    /// turn here.
    async fn session_to_resume(
        &self,
        entry: &CatalogueEntry,
        run: &AutomationRunState,
    ) -> Result<Option<Arc<SessionEntry>>, Unstarted> {
        let Some(session) = run.primary_session.as_ref() else { return Ok(None) };
        // Another host may have it.
        let session = self.sessions.session_at_here(session).await.known().map_err(|why| unread(&why))?;
        let usable = |session: &Arc<SessionEntry>| !session.is_gone() && session.owner == entry.owner;
        let Some(session) = session.filter(usable) else { return Ok(None) };
        Ok(self.sessions.can_continue(&session).await.then_some(session))
    }

    /// Removes a session from a run whose turn cannot begin there.
    async fn unlink(self: &Arc<Self>, run: &AutomationRunState, session: &str) {
        self.runs.lock().by_session.remove(session);
        let removed = AutomationRunSessionRemovedAction { session: session.to_owned() };
        self.change_run(&run.resource, vec![StateAction::AutomationRunSessionRemoved(removed)]).await;
    }

    fn is_running(&self, run: &str) -> bool {
        let runs = self.runs.lock();
        runs.open.get(run).is_some_and(|run| matches!(run.lifecycle, AutomationRunLifecycle::Running(_)))
    }

    async fn new_run_session(
        self: &Arc<Self>,
        entry: &CatalogueEntry,
        run: &AutomationRunState,
        order: Option<&Order>,
        allowed: bool,
    ) -> Result<Arc<SessionEntry>, String> {
        let definition = &entry.wire.definition;
        let title = match order {
            Some(order) => by_value::title(&definition.title, order),
            None => definition.title.clone(),
        };
        let new = NewSession {
            id: self.core.new_id(),
            provider: definition.session.provider.clone(),
            owner: entry.owner.clone(),
            working_directories: definition.session.working_directories.clone().unwrap_or_default(),
            config: definition.session.config.clone().unwrap_or_default(),
            title: Some(title),
            allowed,
            origin: Some(json!({ "kind": "automation", "automation": run.automation, "run": run.resource })),
            ..NewSession::default()
        };
        let claimed = self.sessions.claim_session(new).map_err(|error| error.message)?;
        claimed.start(&self.sessions).await.map_err(|error| error.message)
    }

    /// Checks that an owner may start work; the error is the reason.
    pub(super) fn may_start(&self, owner: Option<&str>) -> Result<(), String> {
        let Some(owner) = owner else { return Ok(()) };
        let has_been_here = self.access.has_been_here(owner);
        let id = Owner::parse(owner).and_then(Owner::user).unwrap_or(owner);
        if !has_been_here && self.access.person(id).is_none() {
            return Err(format!("{id} is not a user of this host, so no automation of theirs may run"));
        }
        // A sign-in would not give what the user may not do.
        self.access.require_of(owner, &Grant::of("session", "create")).map_err(|error| error.message)?;
        match has_been_here {
            true => Ok(()),
            false => Err(format!("{id} has to sign in once before an automation of theirs may run")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_empty_because_of_its_placeholders_or_its_text() {
        let (values, text) = ("its placeholders have no values", "write a text for the agent");
        for (title, message, why) in [
            ("Hub", "{{event.ref}}\n", values),
            ("{{event.ref}}", " ", values),
            ("", "", text),
            (" ", "\n", text),
        ] {
            let definition: AutomationDefinition = serde_json::from_value(json!({
                "title": title, "enabled": true, "session": {}, "triggers": [],
                "message": { "text": message, "origin": { "kind": "automation" } },
            }))
            .expect("a definition");
            assert_eq!(no_message(&definition), format!("its message is empty: {why}"), "{title} {message}");
        }
    }
}
