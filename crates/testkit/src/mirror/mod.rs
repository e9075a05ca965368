//! A client with a copy of all state, as an editor has: it follows the listing, subscribes to each session, its chats
//! and its annotations, reduces actions with the official reducers, and reconnects with its last `serverSeq`. It has no
//! transport: frames go in and out as JSON.

mod state;
mod step;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ostler_contract::{Value, json};
use ostler_protocol::{Version, actions, uri};

pub use state::State;
pub use step::{ROWS, Step};

/// The kind of a pending request.
#[derive(Debug, Clone)]
enum RequestKind {
    Initialize,
    Reconnect,
    List,
    Subscribe(String),
    CreateSession(String),
    DisposeSession(String),
    Other,
}

/// The channels that a client follows in addition to sessions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside {
    /// The automations.
    pub automations: bool,
    /// Every terminal that the host lists.
    pub terminals: bool,
    /// The changesets of each session that belong to no turn.
    pub changesets: bool,
}

/// A client's copy of the host's state, and its outgoing frames.
#[derive(Debug)]
pub struct Mirror {
    name: String,
    version: Version,
    /// The states of the subscribed channels.
    states: BTreeMap<String, State>,
    /// The number of each channel's snapshot or latest action.
    numbers: HashMap<String, u64>,
    /// The rows of the listing by session.
    listed: BTreeMap<String, Value>,
    /// Sessions that it follows even if they are not listed.
    own: BTreeSet<String>,
    /// Channels that it currently does not follow.
    muted: BTreeSet<String>,
    beside: Beside,
    /// Channels that did not exist when it subscribed.
    refused: BTreeSet<String>,
    asked: HashMap<u64, RequestKind>,
    out: Vec<String>,
    next: u64,
    count: i64,
    /// The highest `serverSeq` so far.
    seen: u64,
    /// Whether the host has restarted since the last connection.
    restarted: bool,
    ready: bool,
    connected: bool,
}

impl Mirror {
    /// Creates a client without any state.
    pub fn new(name: &str, version: Version) -> Self {
        Self {
            name: name.to_owned(),
            version,
            states: BTreeMap::new(),
            numbers: HashMap::new(),
            listed: BTreeMap::new(),
            own: BTreeSet::new(),
            muted: BTreeSet::new(),
            beside: Beside::default(),
            refused: BTreeSet::new(),
            asked: HashMap::new(),
            out: Vec::new(),
            next: 1,
            count: 0,
            seen: 0,
            restarted: false,
            ready: false,
            connected: false,
        }
    }

    /// Follows these unlisted sessions too.
    pub fn follow_sessions(&mut self, sessions: BTreeSet<String>) {
        self.own = sessions;
        self.follow();
    }

    /// Follows channels in addition to sessions.
    #[must_use]
    pub fn with(mut self, beside: Beside) -> Self {
        self.beside = beside;
        self
    }

    /// Returns its client id.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its protocol version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns the sessions that it created, which may be drafts that are not listed.
    pub fn own(&self) -> &BTreeSet<String> {
        &self.own
    }

    /// Takes the outgoing frames in their order.
    pub fn outgoing(&mut self) -> Vec<String> {
        std::mem::take(&mut self.out)
    }

    /// Begins a connection: with `initialize` the first time, later with `reconnect`. A host that restarted does not
    /// know the version of a returning client, so a client of 0.9 initializes again.
    pub fn connect(&mut self) {
        if self.connected {
            return;
        }
        self.connected = true;
        let back = self.states.contains_key(uri::ROOT);
        if !back || self.restarted && self.version == Version::V0_9 {
            let version = match self.version {
                Version::V0_9 => "0.9.0",
                Version::V1 => "1.0.0",
            };
            let mut params =
                json!({ "channel": uri::ROOT, "clientId": self.name, "protocolVersions": [version] });
            if !back {
                params["initialSubscriptions"] = json!([uri::ROOT]);
            }
            self.request("initialize", params, RequestKind::Initialize);
        }
        if back {
            let subscriptions: Vec<&String> = self.states.keys().collect();
            let params = json!({ "channel": uri::ROOT, "clientId": self.name, "lastSeenServerSeq": self.seen,
                "subscriptions": subscriptions });
            self.request("reconnect", params, RequestKind::Reconnect);
        }
    }

    /// Handles the loss of the connection and of all pending requests.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.ready = false;
        // The session may or may not be disposed; if it is not, the listing contains it.
        for asked in self.asked.values() {
            if let RequestKind::DisposeSession(session) = asked {
                self.own.remove(session);
            }
        }
        self.asked.clear();
        self.out.clear();
        self.refused.clear();
    }

    /// Handles the end of the host; the next one does not know this client.
    pub fn host_ended(&mut self) {
        self.disconnected();
        self.restarted = true;
    }

    /// Sends a request whose answer changes no state of the client.
    pub fn ask(&mut self, method: &str, params: Value) {
        self.request(method, params, RequestKind::Other);
    }

    /// Creates a session.
    pub fn create(&mut self, session: &str, mut params: Value) {
        params["channel"] = session.into();
        self.request("createSession", params, RequestKind::CreateSession(session.to_owned()));
    }

    /// Dispatches an action.
    pub fn act(&mut self, channel: &str, action: Value) {
        self.dispatch(channel, action);
    }

    /// Whether it has been let in and has the listing.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns the state of a channel that it follows.
    pub fn state(&self, channel: &str) -> Option<&State> {
        self.states.get(channel)
    }

    /// Returns the channels that it follows.
    pub fn channels(&self) -> impl Iterator<Item = &String> {
        self.states.keys()
    }

    fn request(&mut self, method: &str, params: Value, asked: RequestKind) {
        let id = self.next;
        self.next += 1;
        self.asked.insert(id, asked);
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.out.push(frame.to_string());
    }

    fn dispatch(&mut self, channel: &str, action: Value) {
        self.count += 1;
        let params = json!({ "channel": channel, "clientSeq": self.count, "action": action });
        let frame = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        self.out.push(frame.to_string());
    }

    /// Receives one frame from the host.
    ///
    /// # Panics
    /// If this client must not receive the frame.
    pub fn receive(&mut self, frame: &Value) {
        let params = &frame["params"];
        match frame["method"].as_str() {
            Some("action") => self.apply(params),
            Some("root/sessionAdded") => {
                let row = &params["summary"];
                let session = row["resource"].as_str().expect("a session").to_owned();
                self.refused.retain(|channel| !channel.starts_with(&session));
                self.listed.insert(session, row.clone());
            }
            Some("root/sessionRemoved") => {
                let session = params["session"].as_str().expect("a session");
                self.listed.remove(session);
                self.own.remove(session);
            }
            Some("root/sessionSummaryChanged") => {
                let session = params["session"].as_str().expect("a session");
                if let Some(row) = self.listed.get_mut(session) {
                    change(row, &params["changes"]);
                }
            }
            Some(_) => {}
            None => self.answered(frame),
        }
        self.follow();
    }

    fn answered(&mut self, frame: &Value) {
        let id = frame["id"].as_u64().expect("an id");
        let asked = self.asked.remove(&id).expect("an answer to something that was asked");
        let result = &frame["result"];
        let failed = frame.get("error").is_some();
        match asked {
            RequestKind::Initialize => {
                assert!(!failed, "{}: {frame}", self.name);
                self.restarted = false;
                if self.asked.values().any(|asked| matches!(asked, RequestKind::Reconnect)) {
                    return;
                }
                self.replace(&result["snapshots"]);
                self.list();
            }
            RequestKind::Reconnect => {
                assert!(!failed, "{}: {frame}", self.name);
                if result["type"] == "replay" {
                    for missing in result["missing"].as_array().expect("what is missing") {
                        self.forget(missing.as_str().expect("a channel"));
                    }
                    for envelope in result["actions"].as_array().expect("actions") {
                        self.apply(envelope);
                    }
                } else {
                    self.replace(&result["snapshots"]);
                }
                self.list();
            }
            RequestKind::List => {
                assert!(!failed, "{}: {frame}", self.name);
                let rows = result["items"].as_array().expect("rows").iter();
                self.listed = rows
                    .map(|row| (row["resource"].as_str().expect("a session").to_owned(), row.clone()))
                    .collect();
                self.refused.clear();
                self.ready = true;
            }
            RequestKind::Subscribe(channel) if failed => {
                self.own.remove(&channel);
                self.refused.insert(channel);
            }
            RequestKind::Subscribe(channel) => self.take_snapshot(&channel, &result["snapshot"]),
            RequestKind::CreateSession(session) if !failed => {
                self.own.insert(session);
            }
            // A session that was never announced is removed without a notification.
            RequestKind::DisposeSession(session) if !failed => {
                self.own.remove(&session);
            }
            RequestKind::CreateSession(_) | RequestKind::DisposeSession(_) | RequestKind::Other => {}
        }
    }

    /// Requests the listing, because notifications are not replayed.
    fn list(&mut self) {
        self.request("listSessions", json!({ "channel": uri::ROOT }), RequestKind::List);
    }

    fn take_snapshot(&mut self, channel: &str, snapshot: &Value) {
        let number = snapshot["fromSeq"].as_u64().expect("a number");
        self.seen = self.seen.max(number);
        self.numbers.insert(channel.to_owned(), number);
        self.states.insert(channel.to_owned(), State::read(channel, snapshot["state"].clone()));
    }

    /// Replaces all states by these snapshots.
    fn replace(&mut self, snapshots: &Value) {
        self.states.clear();
        self.numbers.clear();
        for snapshot in snapshots.as_array().expect("snapshots") {
            self.take_snapshot(snapshot["resource"].as_str().expect("a channel"), snapshot);
        }
    }

    fn forget(&mut self, channel: &str) {
        self.states.remove(channel);
        self.numbers.remove(channel);
        self.own.remove(channel);
    }

    fn apply(&mut self, envelope: &Value) {
        if envelope.get("rejectionReason").is_some() {
            return;
        }
        let channel = envelope["channel"].as_str().expect("a channel");
        // The channel was just unsubscribed, or its snapshot is pending and will include this action.
        let Some(state) = self.states.get_mut(channel) else { return };
        let number = envelope["serverSeq"].as_u64().expect("a number");
        let latest = self.numbers.entry(channel.to_owned()).or_default();
        assert!(number > *latest, "{}: {channel}: {number} came after {latest}", self.name);
        *latest = number;
        self.seen = self.seen.max(number);
        let action = actions::read(envelope["action"].clone()).expect("an action");
        let since = actions::row(&action).map(|row| row.since);
        assert!(since <= Some(self.version), "{} was sent {}", self.name, envelope["action"]);
        state.apply(&action);
    }

    /// Returns the channels to follow.
    fn wanted(&self) -> BTreeSet<String> {
        let mut wanted: BTreeSet<String> = self.listed.keys().chain(&self.own).cloned().collect();
        let annotations: Vec<String> = wanted.iter().map(|session| uri::annotations(session)).collect();
        wanted.extend(annotations);
        wanted.retain(|channel| !self.muted.contains(channel));
        for (session, state) in &self.states {
            if let State::Session(state) = state
                && wanted.contains(session)
            {
                let chats = state.chats.iter().map(|chat| chat.resource.clone());
                wanted.extend(chats.filter(|chat| !self.muted.contains(chat)));
            }
        }
        wanted
            .extend(self.wanted_beside(&wanted).into_iter().filter(|channel| !self.muted.contains(channel)));
        wanted.insert(uri::ROOT.to_owned());
        wanted
    }

    /// Returns the channels to follow that are not part of a session's conversation.
    fn wanted_beside(&self, sessions: &BTreeSet<String>) -> Vec<String> {
        let mut wanted = Vec::new();
        if self.beside.automations {
            wanted.push(uri::AUTOMATIONS.to_owned());
        }
        for (channel, state) in &self.states {
            match state {
                State::Root(state) if self.beside.terminals => {
                    wanted.extend(state.terminals.iter().flatten().map(|terminal| terminal.resource.clone()));
                }
                State::Session(state) if self.beside.changesets && sessions.contains(channel) => {
                    let whole = state.changesets.iter().flatten().map(|changeset| &changeset.uri_template);
                    wanted.extend(whole.filter(|template| !template.contains('{')).cloned());
                }
                _ => {}
            }
        }
        wanted
    }

    /// Subscribes to missing channels and unsubscribes from removed ones.
    fn follow(&mut self) {
        if !self.ready {
            return;
        }
        let wanted = self.wanted();
        let has: Vec<String> =
            self.states.keys().filter(|channel| !wanted.contains(*channel)).cloned().collect();
        for channel in has {
            self.states.remove(&channel);
            self.numbers.remove(&channel);
            let frame =
                json!({ "jsonrpc": "2.0", "method": "unsubscribe", "params": { "channel": channel } });
            self.out.push(frame.to_string());
        }
        for channel in wanted {
            let under_way = self
                .asked
                .values()
                .any(|asked| matches!(asked, RequestKind::Subscribe(one) if *one == channel));
            if !under_way && !self.states.contains_key(&channel) && !self.refused.contains(&channel) {
                self.request("subscribe", json!({ "channel": channel }), RequestKind::Subscribe(channel));
            }
        }
    }

    /// Follows all channels, and retries those that did not exist.
    pub fn want_everything(&mut self) {
        self.muted.clear();
        self.refused.clear();
        self.follow();
    }

    /// Compares its state with the state of a new client of the same version.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self, fresh: &Self) -> Result<(), String> {
        let name = &self.name;
        if !self.ready || !self.asked.is_empty() {
            return Err(format!("{name} waits for {:?}", self.asked));
        }
        if let Some(refused) = self.wanted().iter().find(|channel| !self.states.contains_key(*channel)) {
            return Err(format!("{name} has no {refused}"));
        }
        let sessions: BTreeSet<_> = self.listed.keys().chain(fresh.listed.keys()).collect();
        for session in sessions {
            let row = |mirror: &Self| mirror.listed.get(session).cloned().map(shown);
            let (own, new) = (row(self), row(fresh));
            differs(&format!("{name} lists {session} as"), own.as_ref(), new.as_ref())?;
        }
        for (channel, state) in &self.states {
            let shown = |state: &State| without_activity(state.shown(self.version));
            let (own, new) = (shown(state), fresh.states.get(channel).map(shown));
            differs(&format!("{name} has of {channel}"), Some(&own), new.as_ref())?;
        }
        Ok(())
    }
}

/// Returns a row of the listing without empty values. A change of a row cannot remove a field, so it sets an empty
/// value or a single chat.
fn shown(mut row: Value) -> Value {
    let says_nothing = |key: &str, value: &Value| match key {
        "chats" => value.as_array().is_some_and(|chats| chats.len() < 2),
        "activity" => value == "",
        "_meta" => value == &json!({}),
        _ => false,
    };
    if let Some(row) = row.as_object_mut() {
        row.retain(|key, value| !says_nothing(key, value));
    }
    row
}

/// Returns the state of a session without its activity: no action tells it, and subscribers know that of its chats.
fn without_activity(mut state: Value) -> Value {
    const ACTIVITY: u64 = 0b1_1111;
    if state.get("lifecycle").is_some()
        && let Some(status) = state["status"].as_u64()
    {
        state["status"] = (status & !ACTIVITY).into();
    }
    state
}

/// Merges changes into a row: `null` removes a field.
fn change(row: &mut Value, changes: &Value) {
    let row = row.as_object_mut().expect("a row");
    for (key, value) in changes.as_object().expect("changes") {
        match value {
            Value::Null => drop(row.shift_remove(key)),
            value => drop(row.insert(key.clone(), value.clone())),
        }
    }
}

/// Returns the first place in which two values differ as an error.
fn differs(what: &str, own: Option<&Value>, new: Option<&Value>) -> Result<(), String> {
    match (own, new) {
        (Some(Value::Object(own)), Some(Value::Object(new))) => {
            let keys: BTreeSet<_> = own.keys().chain(new.keys()).collect();
            keys.into_iter().try_for_each(|key| differs(&format!("{what}/{key}"), own.get(key), new.get(key)))
        }
        (Some(Value::Array(own)), Some(Value::Array(new))) if own.len() == new.len() => {
            let mut pairs = own.iter().zip(new).enumerate();
            pairs.try_for_each(|(at, (own, new))| differs(&format!("{what}/{at}"), Some(own), Some(new)))
        }
        _ if own == new => Ok(()),
        _ => {
            let text = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
            Err(format!("{what} {}, and the host has {}", text(own), text(new)))
        }
    }
}
