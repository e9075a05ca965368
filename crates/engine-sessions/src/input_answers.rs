//! Input that a running turn waits for from clients: approvals, answers, and results of client tools.

use std::collections::BTreeMap;

use ostler_engine_core::fanout::Origin;
use ostler_engine_core::refusals::no_question;
use ostler_engine_core::root::AUTO_APPROVE;
use ostler_protocol::wire::actions::{
    ChatInputCompletedAction, ChatToolCallCompleteAction, ChatToolCallConfirmedAction, StateAction,
};
use ostler_protocol::wire::state::{
    ChatInputQuestion, ChatInputRequest, ChatInputResponseKind, ConfirmationOption, ConfirmationOptionKind,
    ResponsePart, SessionInputRequest, ToolCallConfirmationReason, ToolCallContributor, ToolCallState,
};

use super::actor::Actor;
use super::backend::Tell;
use super::client_actions::{Refused, refuse};
use super::mailbox::Dispatch;

/// The mark of a tool call that is only approved by a named option.
const OPTION_NEEDED: &str = "ostler.optionNeeded";

impl Actor {
    /// Drops the options of a tool call if two of them have the same id, because an answer could mean either. Clients
    /// then approve or deny the call.
    pub(super) fn drop_ambiguous(&self, options: &mut Option<Vec<ConfirmationOption>>, call: &str) {
        let all = options.as_deref().unwrap_or_default();
        let repeated = all
            .iter()
            .enumerate()
            .find(|(at, option)| all[..*at].iter().any(|earlier| earlier.id == option.id));
        if let Some((_, option)) = repeated {
            self.core.log.warn(format_args!(
                "{}: backend {} offered two options with the id {:?} for the tool call {call}; they are left out",
                self.entry.uri, self.entry.provider, option.id
            ));
            *options = None;
        }
    }

    pub(super) fn confirm(
        &mut self,
        at: usize,
        confirmed: ChatToolCallConfirmedAction,
        origin: Option<Origin>,
    ) -> Refused {
        let call = confirmed.tool_call_id.clone();
        let Some(ToolCallState::PendingConfirmation(pending)) = self.tool_call(at, &call) else {
            return refuse(format!("the tool call {call} does not wait for an approval"));
        };
        if confirmed.edited_tool_input.is_some() {
            return refuse(format!(
                "the input of the tool call {call} cannot be edited: the backend would run it unchanged; deny it instead"
            ));
        }
        let (approved, option) = (confirmed.approved, confirmed.selected_option_id.clone());
        if let Some(option) = &option {
            check_option(pending.options.as_deref().unwrap_or_default(), option, approved, &call)?;
        }
        self.flush_gathered(at);
        let mut confirmed = confirmed;
        if approved && confirmed.confirmed.is_none() {
            confirmed.confirmed = Some(ToolCallConfirmationReason::UserAction);
        }
        if !self.apply_chat(at, StateAction::ChatToolCallConfirmed(confirmed), origin) {
            return refuse(format!("the tool call {call} cannot be confirmed"));
        }
        self.withdraw_call(at, &call);
        self.tell_if_awake(at, Tell::Confirm { call: call.clone(), approved, option });
        if approved {
            self.show_links(at, &call);
            self.watch_client_tool(at, &call);
        }
        Ok(())
    }

    /// Approves a tool call that waits for it, if the setting of the host approves all calls. Which option is meant is
    /// left to a user.
    pub(super) fn approve_by_setting(&mut self, at: usize, call: &str) {
        if !self.core.root.is_in_force(AUTO_APPROVE, &true.into()) {
            return;
        }
        let Some(ToolCallState::PendingConfirmation(pending)) = self.tool_call(at, call) else { return };
        if pending.meta.as_ref().and_then(|meta| meta.get(OPTION_NEEDED)) == Some(&true.into()) {
            return;
        }
        let Some(turn_id) = self.chats[at].running().map(str::to_owned) else { return };
        let confirmed = ChatToolCallConfirmedAction {
            turn_id,
            tool_call_id: call.to_owned(),
            meta: None,
            approved: true,
            confirmed: Some(ToolCallConfirmationReason::Setting),
            reason: None,
            edited_tool_input: None,
            user_suggestion: None,
            reason_message: None,
            selected_option_id: None,
        };
        let _ = self.confirm(at, confirmed, None);
    }

    /// Whether a request is about a tool call that a setting has already approved.
    pub(super) fn is_approved_by_setting(&self, request: &SessionInputRequest) -> bool {
        let SessionInputRequest::ToolConfirmation(_) = request else { return false };
        let (Some(call), Some((_, chat))) =
            (super::tools::call_of(request), super::turns::request_of(request))
        else {
            return false;
        };
        let at = self.chats.iter().position(|open| open.uri == chat);
        matches!(at.and_then(|at| self.tool_call(at, call)), Some(ToolCallState::Running(running))
            if running.confirmed == ToolCallConfirmationReason::Setting)
    }

    pub(super) fn answer(
        &mut self,
        at: usize,
        completed: ChatInputCompletedAction,
        origin: Option<Origin>,
    ) -> Refused {
        let request = completed.request_id.clone();
        let Some(open) = self.open_question(at, &request).cloned() else {
            return refuse(no_question(&request));
        };
        let mut answers: BTreeMap<_, _> = open.answers.clone().unwrap_or_default().into_iter().collect();
        answers.extend(completed.answers.clone().unwrap_or_default());
        let accepted = completed.response == ChatInputResponseKind::Accept;
        let response = match completed.response {
            ChatInputResponseKind::Accept => "accept",
            ChatInputResponseKind::Decline => "decline",
            ChatInputResponseKind::Cancel => "cancel",
        };
        if accepted && let Some(missing) = required(&open).find(|question| !answers.contains_key(*question)) {
            return refuse(format!("the question {missing} needs an answer"));
        }
        self.flush_gathered(at);
        if !self.apply_chat(at, StateAction::ChatInputCompleted(completed), origin) {
            return refuse(no_question(&request));
        }
        self.withdraw(&request);
        self.tell_if_awake(at, Tell::Answer { request, accepted, answers, response });
        Ok(())
    }

    /// Returns a tool call of the running turn.
    pub(super) fn tool_call(&self, at: usize, call: &str) -> Option<&ToolCallState> {
        let active = self.chats[at].state.active_turn.as_ref()?;
        active.response_parts.iter().find_map(|part| match part {
            ResponsePart::ToolCall(part) if super::tools::call_id(&part.tool_call) == Some(call) => {
                Some(&part.tool_call)
            }
            _ => None,
        })
    }

    /// Returns an unanswered question of the running turn.
    pub(super) fn open_question(&self, at: usize, request: &str) -> Option<&ChatInputRequest> {
        let active = self.chats[at].state.active_turn.as_ref()?;
        active.response_parts.iter().find_map(|part| match part {
            ResponsePart::InputRequest(part) if part.response.is_none() && part.request.id == request => {
                Some(&part.request)
            }
            _ => None,
        })
    }

    /// Checks whether a tool call is running and belongs to a client's tool.
    pub(super) fn owned_call(&self, at: usize, call: &str, client: &str) -> Refused {
        let Some(state) = self.tool_call(at, call) else {
            return refuse(format!("there is no tool call {call} in the running turn"));
        };
        let ToolCallState::Running(running) = state else {
            return refuse(format!("the tool call {call} is not running"));
        };
        match &running.contributor {
            Some(ToolCallContributor::Client(owner)) if owner.client_id == client => Ok(()),
            _ => refuse(format!("the tool call {call} is not run by this client")),
        }
    }

    pub(super) fn client_tool_done(
        &mut self,
        at: usize,
        done: ChatToolCallCompleteAction,
        dispatch: &Dispatch,
    ) -> Refused {
        self.owned_call(at, &done.tool_call_id, &dispatch.origin.client_id)?;
        let result = serde_json::to_value(&done.result).unwrap_or_default();
        self.client_tool_result(at, done.tool_call_id, &dispatch.origin.client_id, result);
        Ok(())
    }
}

/// Rejects an option that was not offered or that contradicts the answer, because a backend may use either of the two.
fn check_option(offered: &[ConfirmationOption], option: &str, approved: bool, call: &str) -> Refused {
    let Some(chosen) = offered.iter().find(|offered| offered.id == option) else {
        return refuse(format!("{option} is not an option of the tool call {call}"));
    };
    match (&chosen.kind, approved) {
        (ConfirmationOptionKind::Deny, true) => {
            refuse(format!("the option {option} denies the tool call {call}, so approved cannot be true"))
        }
        (ConfirmationOptionKind::Approve, false) => {
            refuse(format!("the option {option} approves the tool call {call}, so approved cannot be false"))
        }
        _ => Ok(()),
    }
}

/// Returns the ids of a request's questions that need an answer.
fn required(request: &ChatInputRequest) -> impl Iterator<Item = &str> {
    request.questions.iter().flatten().filter_map(|question| {
        let (id, required) = match question {
            ChatInputQuestion::Text(question) => (&question.id, question.required),
            ChatInputQuestion::Number(question) | ChatInputQuestion::Integer(question) => {
                (&question.id, question.required)
            }
            ChatInputQuestion::Boolean(question) => (&question.id, question.required),
            ChatInputQuestion::SingleSelect(question) => (&question.id, question.required),
            ChatInputQuestion::MultiSelect(question) => (&question.id, question.required),
            ChatInputQuestion::Unknown(_) => return None,
        };
        (required == Some(true)).then_some(id.as_str())
    })
}
