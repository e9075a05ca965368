//! Commands for sessions: listing, creating, disposing and reading them in pages.

use std::sync::Arc;

use ostler_contract::cluster::SessionElsewhere;
use ostler_contract::points::ListedPlace;
use ostler_contract::read::Unknown;
use ostler_engine_core::refusals::{no_provider, nothing_at, try_again, unread};
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_sessions::{NewSession, Place, ToSession};
use ostler_engine_users::users::principal::Principal;
use ostler_engine_workspace::directories::Directories;
use ostler_protocol::uri::Channel;
use ostler_protocol::wire::commands as c;
use ostler_protocol::{RpcError, json, uri};

use crate::front::Front;
use crate::front::connection::Connection;

/// The maximum number of rows in a page of sessions.
const PAGE_MAX: usize = 500;
/// The maximum number of rows of a request without a limit, which is answered at once.
const UNLIMITED_MAX: usize = 1000;

impl Connection {
    /// Creates a session. `unknown` is why the store could not report whether its id is taken.
    pub(super) fn handle_create_session(
        self: &Arc<Self>,
        params: c::CreateSessionParams,
        unknown: Option<Unknown>,
        responder: Responder,
    ) {
        let front = self.front().clone();
        let Some(id) = uri::session_id(&params.channel) else {
            let error = format!("{} is not a session URI: <scheme>:/<id>", params.channel);
            return responder.fail(RpcError::invalid_params(error));
        };
        if params.channel.contains(char::is_control) {
            let error = format!("{:?} is not a session URI: it contains a control character", params.channel);
            return responder.fail(RpcError::invalid_params(error));
        }
        if !matches!(Channel::parse(&params.channel), Channel::Session(_)) {
            let error = format!("{} is not a session URI: its scheme is reserved", params.channel);
            return responder.fail(RpcError::invalid_params(error));
        }
        if let Some(provider) = &params.provider
            && front.core.listed_agent(provider).is_none()
        {
            return responder.fail(no_provider(&front.core, provider));
        }
        let agent = match &params.provider {
            Some(provider) => front.core.agent(provider),
            None => front.core.first_agent(),
        };
        if let Err(refused) = self.check_tokens(agent.as_deref()) {
            return responder.fail(refused);
        }
        // If the store cannot report it, the id may be taken.
        if let Some(why) = unknown {
            if SessionElsewhere::is(&why.0) {
                return responder.fail(RpcError::session_exists(format!("a session {id} exists already")));
            }
            let error = format!("the session store could not be asked whether {id} is taken: {why}");
            return responder.fail(try_again(error));
        }
        let client = self.client_id();
        let mut active_client = params.active_client;
        if let (Some(active), Some(client)) = (&mut active_client, &client) {
            active.client_id.clone_from(client);
        }
        let new = NewSession {
            id: id.to_owned(),
            provider: params.provider,
            owner: self.owner(),
            working_directories: params.working_directories.unwrap_or_default(),
            directories: Directories::Served,
            config: params.config.unwrap_or_default(),
            active_client,
            client,
            // A session of a plugin is work, not a draft that a user has opened.
            draft: !matches!(self.principal(), Principal::Plugin { .. }),
            credentials: self.credentials(),
            ..NewSession::default()
        };
        let isolated = new.config.get("isolation").is_some_and(|isolation| isolation == "worktree");
        let claimed = match front.sessions.claim_session(new) {
            Ok(claimed) => claimed,
            Err(error) => return responder.fail(error),
        };
        let progress = params.progress_token.map(|token| Progress { token, connection: self.clone() });
        tasks::spawn(async move {
            if let Some(progress) = &progress {
                progress.say(0, if isolated { "Making a working tree" } else { "Starting the session" });
                progress.say(1, "Starting the agent");
            }
            match claimed.start(&front.sessions).await {
                Ok(_) => {
                    if let Some(progress) = &progress {
                        progress.say(2, "Ready");
                    }
                    responder.done();
                }
                Err(error) => {
                    if let Some(progress) = &progress {
                        progress.say(2, "Failed");
                    }
                    responder.fail(error);
                }
            }
        });
    }

    pub(super) fn handle_dispose_session(self: &Arc<Self>, channel: &str, responder: Responder) {
        let front = self.front().clone();
        let Some(entry) = front.sessions.by_uri(channel) else {
            return responder.fail(nothing_at(channel));
        };
        if front.access.gate.is_guarded() && !self.owns(entry.owner.as_deref()) {
            return responder.fail(RpcError::permission_denied("Only the session's owner can delete it."));
        }
        tasks::spawn(async move {
            match front.sessions.dispose_session(&entry).await {
                Ok(()) => responder.done(),
                Err(error) => responder.fail(error),
            }
        });
    }

    /// Returns whether this connection can remove the work of an owner.
    pub(super) fn owns(&self, owner: Option<&str>) -> bool {
        let principal = self.principal();
        owner.is_none()
            || principal.owner(&self.front().core.options.host_name).as_deref() == owner
            || principal.is_administrator()
    }

    pub(super) fn handle_fetch_turns(self: &Arc<Self>, params: c::FetchTurnsParams, responder: Responder) {
        let front = self.front();
        let located = front.sessions.locate(&front.sessions.channel(&params.channel));
        let Some((entry, place)) = located.filter(|(_, place)| *place != Place::Annotations) else {
            return responder.fail(match Channel::parse(&params.channel) {
                Channel::Session(_) | Channel::Chat(_) | Channel::DefaultChat(_) => {
                    nothing_at(&params.channel)
                }
                _ => RpcError::invalid_params(format!("{} is not a session or a chat", params.channel)),
            });
        };
        let place = if place == Place::Session { Place::DefaultChat } else { place };
        let message = ToSession::FetchTurns {
            spelled: params.channel,
            place,
            cursor: params.cursor,
            connection: self.reference(),
            responder,
            room: None,
        };
        front.sessions.tell(&entry, message);
    }
}

/// The progress of a session's creation, reported to the requester.
struct Progress {
    token: String,
    connection: Arc<Connection>,
}

impl Progress {
    pub(super) fn say(&self, progress: u8, message: &str) {
        let params = json!({ "channel": uri::ROOT, "progressToken": self.token, "progress": progress,
            "total": 2, "message": message });
        if let Ok(frame) = ostler_protocol::message::encode::notification("root/progress", &params) {
            self.connection.outbox.send(frame);
        }
    }
}

pub(super) async fn handle_list_sessions(front: &Front, params: c::ListSessionsParams, responder: Responder) {
    let (after, limit) = match place_and_limit(&params) {
        Ok(asked) => asked,
        Err(refused) => return responder.fail(refused),
    };
    let elsewhere = front.relay().map(|relay| relay.begin_listing());
    let read = tokio::select! {
        read = front.sessions.session_page(after, limit) => read,
        // Nothing is read for a client that has left.
        () = responder.left() => return responder.leave(),
    };
    let page = match read {
        Ok(page) => page,
        Err(why) => {
            return responder.fail(unread("the sessions", &Unknown(why)));
        }
    };
    responder.ok_first(|| {
        let reported = elsewhere.as_ref().map(|elsewhere| elsewhere.reported()).unwrap_or_default();
        let (mut items, more) = page.rows(reported);
        let last = items.last().filter(|_| more);
        let next_cursor = last.map(|row| format!("{}|{}", row.modified_at, row.resource));
        if let Some(elsewhere) = &elsewhere {
            elsewhere.show(front, &mut items);
        }
        c::ListSessionsResult { items, next_cursor }
    });
}

/// Returns the place after which a page begins, and the maximum number of its rows.
fn place_and_limit(params: &c::ListSessionsParams) -> Result<(Option<ListedPlace>, usize), RpcError> {
    // The row itself may have moved, but the rows after it have not.
    let after = match &params.cursor {
        None => None,
        Some(cursor) => {
            let unknown = || RpcError::unrecognised_cursor(cursor);
            let (modified, uri) = cursor.split_once('|').ok_or_else(unknown)?;
            if modified.parse::<jiff::Timestamp>().is_err() {
                return Err(unknown());
            }
            Some(ListedPlace { modified_at: modified.to_owned(), uri: uri.to_owned() })
        }
    };
    let limit = match params.limit {
        None => UNLIMITED_MAX,
        Some(limit) => usize::try_from(limit).unwrap_or_default().clamp(1, PAGE_MAX),
    };
    Ok((after, limit))
}
