//! What automations would do with an event, without its effects.

use std::sync::Arc;

use ostler_contract::host::{ExplainedAutomation, ExplainedRun, Routing};
use ostler_contract::live::ready;
use ostler_contract::{Caller, Pending, Thrown};
use ostler_protocol::sent::SentObject;
use ostler_protocol::uri;
use ostler_protocol::wire::state::AutomationRunState;
use tokio::time::Instant;

use super::catalogue::CatalogueEntry;
use super::fire::SKIPPED;
use super::lanes::{Admission, Cause};
use super::message::{RunPlace, opening};
use super::order::Order;
use super::starting::Unstarted;
use super::wake_event::{facts_for, of_plugin};
use crate::Automations;

/// The session of a message that has none yet.
const NEW_SESSION: &str = "a new session";

impl Automations {
    /// Returns what each automation that an event of a native plugin is about would do with it, sorted by id. It decides as for a
    /// real event, with copies of what that would change.
    pub fn explain_event(
        self: Arc<Self>,
        caller: &Caller,
        r#type: String,
        event: String,
        data: SentObject,
        routing: Option<Routing>,
    ) -> Pending<Vec<ExplainedAutomation>> {
        if let Err(why) = self.check_fire(caller, &r#type, &event) {
            return ready(Err(why));
        }
        let caller = caller.clone();
        Box::pin(async move {
            let required = self.required_of(&r#type);
            let (matching, mut about) = {
                let index = self.index.read();
                (index.matching(&r#type, &event, &data).0, index.about(&r#type, &required, &event, &data))
            };
            if matching.is_empty()
                && about.is_empty()
                && let Some((id, why)) = self.unread_listener(&required, &data).await
            {
                about.insert(id, (String::new(), why));
            }
            let order = routing.as_ref().and_then(|routing| Order::of(routing, data.as_sent()));
            let by = super::fire::by_plugin(&caller);
            let mut all = Vec::new();
            for (waiting, own_field, facts) in facts_for(&matching, &event, data) {
                about.remove(&waiting.automation);
                let happened = of_plugin(&by, waiting, &event, own_field);
                let outcome = match self.woken(&waiting.automation, &happened) {
                    Ok(entry) => {
                        let run = self.run_of_event(&entry, &happened, facts, 1);
                        self.explain_run(&entry, &run, order.as_ref()).await
                    }
                    Err(why) => Err(why),
                };
                let (automation, trigger) = (waiting.automation.clone(), waiting.trigger.clone());
                all.push(ExplainedAutomation { automation, trigger, outcome });
            }
            all.extend(about.into_iter().map(|(automation, (trigger, why))| ExplainedAutomation {
                automation,
                trigger,
                outcome: Err(why),
            }));
            all.sort_by(|one, other| one.automation.cmp(&other.automation));
            Ok::<_, Thrown>(all)
        })
    }

    /// Returns the run that an automation would start; the error is why it would start none.
    async fn explain_run(
        &self,
        entry: &Arc<CatalogueEntry>,
        run: &AutomationRunState,
        order: Option<&Order>,
    ) -> Result<ExplainedRun, String> {
        let id = uri::automation_id(&run.automation).unwrap_or_default();
        let settings = &entry.settings;
        let cause = order.map_or(Cause::Event, Cause::Ordered);
        let chat_busy = self.pinned_chat_is_busy(settings);
        let mut lane = self.runs.lock().lanes.get(id).cloned().unwrap_or_default();
        if order.is_some_and(|order| !lane.has_room(order, 1, settings, chat_busy)) {
            return Err("too many ordered runs wait, so the caller would get 503".to_owned());
        }
        let begins = match lane.admit(&run.resource, cause, settings, chat_busy, Instant::now()) {
            Admission::Start => "now".to_owned(),
            Admission::Wait => "after the runs before it".to_owned(),
            Admission::Fold(held) => format!("with {held}, into which it would be merged"),
            Admission::Steer(Some(held)) => format!("as a message to the running turn of {held}"),
            Admission::Steer(None) => "as a message to the running turn".to_owned(),
            Admission::Drop(_) => return Err(SKIPPED.to_owned()),
            Admission::Capped(times) => {
                return Err(format!("{times} runs in the last hour reach its hourlyCap"));
            }
        };
        let of_value = order.filter(|order| order.session && !settings.pinned);
        let (session, mut fails) = match of_value {
            Some(order) => match self.session_of_value(id, entry, order).await {
                Ok(session) => (session.map(|session| session.uri.clone()), None),
                Err(Unstarted::Refused(why) | Unstarted::Unread(why)) => (None, Some(why)),
            },
            None => (settings.pinned_session.clone().filter(|_| settings.pinned), None),
        };
        let definition = &entry.wire.definition;
        let place = RunPlace {
            run: Some(&run.resource),
            session: session.as_deref().unwrap_or(NEW_SESSION),
            links: &self.core.options.links,
        };
        fails = fails.or_else(|| self.may_start(entry.owner.as_deref()).err());
        if fails.is_none() && self.has_no_message(entry, run) {
            fails = Some(super::starting::no_message(definition));
        }
        let agent = definition.session.provider.clone();
        Ok(ExplainedRun {
            begins,
            agent: agent.or_else(|| self.core.first_agent().map(|agent| agent.provider.to_string())),
            message: opening(definition, run, place),
            session,
            fails,
        })
    }
}
