//! The command line as a client of the running daemon: the official AHP client, connected with the token of the
//! daemon's record.

pub mod automations;
pub mod follow;
pub mod screen;
pub mod sessions;
mod websocket;

use std::time::Duration;

use ahp::{Client, ClientConfig, ClientError, SubscriptionEvent};
use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::error::code;
use ostler_protocol::origins::WayIn;
use ostler_protocol::uri;
use ostler_protocol::wire::SUPPORTED_PROTOCOL_VERSIONS;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{AgentInfo, SnapshotState};

use hyper::StatusCode;
use ostler_engine::Links;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Error;

use crate::daemon_file;
use crate::exit::Exit;
use crate::place::Place;
use crate::remote::TOKEN;

/// How long the daemon may take to answer a request.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Number of events buffered between the socket and a command that prints them.
const BUFFER: usize = 65_536;

/// A connection to a daemon.
pub struct Connection {
    client: Client,
    id: String,
    /// The protocol version both sides speak.
    pub version: String,
    /// Name and version of the host, where it reports them.
    pub host: Option<(String, String)>,
    /// The services that URLs of its sessions belong to, if it is the local daemon.
    pub links: Links,
}

impl Connection {
    /// Connects to the daemon of a configuration folder, `None` when none is running; to the one `--remote` names.
    ///
    /// # Errors
    /// Exit 1 when the daemon does not accept the connection.
    pub async fn running(place: &Place) -> Result<Option<Self>, Exit> {
        if let Some(remote) = place.remote()? {
            return Self::open(&remote.websocket(), "ostler-cli").await.map(Some);
        }
        match daemon_file::running(&place.folders()?) {
            Some(record) => {
                let opened = Self::open(&record.connect_url, "ostler-cli").await?;
                Ok(Some(Self { links: record.links(), ..opened }))
            }
            None => Ok(None),
        }
    }

    /// Connects to the daemon of a configuration folder.
    ///
    /// # Errors
    /// Exit 1 when none is running or it does not accept the connection.
    pub async fn required(place: &Place) -> Result<Self, Exit> {
        let none = || Exit::machine("no daemon is running; start it with: ostler start");
        Self::running(place).await?.ok_or_else(none)
    }

    /// Connects to a daemon by its URL, token included.
    ///
    /// # Errors
    /// Exit 1 when the daemon does not accept the connection.
    pub async fn open(url: &str, name: &str) -> Result<Self, Exit> {
        Self::opened(url, name, WayIn::CommandLine, None, Some(ANSWER_LIMIT)).await
    }

    /// Connects to the running daemon, if one runs, for requests that take as long as what they start: the daemon limits
    /// them.
    ///
    /// # Errors
    /// Exit 1 when it does not accept the connection.
    pub async fn patient(place: &Place) -> Result<Option<Self>, Exit> {
        let url = match place.remote()? {
            Some(remote) => remote.websocket(),
            None => match daemon_file::running(&place.folders()?) {
                Some(record) => record.connect_url,
                None => return Ok(None),
            },
        };
        let opened = Self::opened(&url, "ostler-cli", WayIn::CommandLine, None, None);
        let opened = tokio::time::timeout(ANSWER_LIMIT, opened).await;
        opened.map_err(|_| exit(ClientError::Cancelled))?.map(Some)
    }

    /// The same for a client that reads only while there is room.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub async fn paced(url: &str, name: &str, room: watch::Receiver<bool>) -> Result<Self, Exit> {
        Self::opened(url, name, WayIn::Editor, Some(room), Some(ANSWER_LIMIT)).await
    }

    async fn opened(
        url: &str,
        name: &str,
        way: WayIn,
        room: Option<watch::Receiver<bool>>,
        limit: Option<Duration>,
    ) -> Result<Self, Exit> {
        let shown = url.split('?').next().unwrap_or_default();
        let failed =
            |error: &dyn std::fmt::Display| Exit::machine(format!("cannot connect to {shown}: {error}"));
        let transport = websocket::WebSocket::connect(url, way).await.map_err(|error| match error {
            Error::Http(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
                Exit::usage(format!(
                    "{shown} does not accept the token; set {TOKEN} or pass --token-file; clients of the protocol need the \
                     connection token, or a personal one where the daemon's configuration sets trustToken"
                ))
            }
            Error::Http(answer) => Exit::machine(format!(
                "{shown} is not a daemon's address for clients: it returned {}",
                answer.status()
            )),
            error => match ostler_net::certificate_problem(&error) {
                Some(problem) => failed(&problem),
                None => failed(&error),
            },
        })?;
        let transport = match room {
            Some(room) => transport.paced(room),
            None => transport,
        };
        let config = ClientConfig { subscription_buffer: BUFFER, default_request_timeout: limit };
        let client = Client::connect(transport, config).await.map_err(|error| failed(&error))?;
        let versions = SUPPORTED_PROTOCOL_VERSIONS.iter().map(|version| (*version).to_owned()).collect();
        let id = format!("{name}-{}", uuid::Uuid::new_v4());
        let agreed = client.initialize(id.clone(), versions, vec![]).await.map_err(exit)?;
        let host = agreed.server_info.map(|host| (host.name, host.version.unwrap_or_default()));
        Ok(Self { client, id, version: agreed.protocol_version, host, links: Links::default() })
    }

    /// The client itself.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The id it has towards the daemon.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends a request and returns its result.
    ///
    /// # Errors
    /// What the daemon answers: exit 1 for an internal error or a missing sign-in, else exit 2.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, Exit> {
        self.client.request(method, params).await.map_err(exit)
    }

    /// The state of a channel.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn state(&self, channel: &str) -> Result<SnapshotState, Exit> {
        let (subscribed, _) = self.client.subscribe(channel.to_owned()).await.map_err(exit)?;
        let state = subscribed.snapshot.map(|snapshot| snapshot.state);
        let _ = self.client.unsubscribe(channel.to_owned()).await;
        state.ok_or_else(|| Exit::machine(format!("{channel} has no state")))
    }

    /// The backends of the host.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn agents(&self) -> Result<Vec<AgentInfo>, Exit> {
        match self.state(uri::ROOT).await? {
            SnapshotState::Root(root) => Ok(root.agents),
            _ => Err(Exit::machine("the root channel has no state")),
        }
    }

    /// Dispatches an action and waits until the host has applied it.
    ///
    /// # Errors
    /// Exit 2 with the reason when the host rejects it.
    pub async fn dispatch(&self, channel: &str, action: JsonObject) -> Result<(), Exit> {
        let action: StateAction = serde_json::from_value(Value::Object(action))
            .map_err(|error| Exit::machine(format!("the action is not part of the protocol: {error}")))?;
        let mut events = self.client.attach_subscription(channel).await;
        let sent = self.client.dispatch(channel.to_owned(), action).await.map_err(exit)?;
        loop {
            match events.recv().await {
                Some(SubscriptionEvent::Action(envelope)) => {
                    let own = envelope.origin.as_ref().is_some_and(|origin| {
                        origin.client_id == self.id && origin.client_seq == sent.client_seq
                    });
                    match envelope.rejection_reason {
                        _ if !own => {}
                        Some(why) => return Err(Exit::usage(why)),
                        None => return Ok(()),
                    }
                }
                Some(_) => {}
                None => return Err(lost()),
            }
        }
    }

    /// Creates a session with a backend, the first one where none is named; returns its URI.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn create_session(&self, provider: Option<String>) -> Result<String, Exit> {
        let provider = match provider {
            Some(provider) => provider,
            None => {
                let first = self.agents().await?.into_iter().next();
                first.ok_or_else(|| Exit::machine("the daemon has no backend"))?.provider
            }
        };
        let session = uri::session(&provider, &uuid::Uuid::new_v4().to_string());
        self.request("createSession", json!({ "channel": session, "provider": provider })).await?;
        Ok(session)
    }
}

/// The connection ended before the answer.
pub fn lost() -> Exit {
    Exit::machine("the daemon closed the connection")
}

/// A client error as the exit of a command.
pub fn exit(error: ClientError) -> Exit {
    match error {
        ClientError::Rpc(error) if error.code == code::AUTH_REQUIRED => Exit::machine(format!(
            "{}; the host has a users file, so this command needs its connection token (start it with \
             --connection-token-file), or a personal token if its configuration sets trustToken",
            error.message
        )),
        ClientError::Rpc(error) if error.code == code::INTERNAL_ERROR => Exit::machine(error.message),
        ClientError::Rpc(error) => Exit::usage(error.message),
        other => Exit::machine(format!("the daemon did not respond: {other}")),
    }
}
