//! A daemon with a fake agent, and a client in one of its sessions.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent;
use crate::support::{Client, Daemon, Folder};

/// A daemon with one fake agent, as provider `fake`.
pub struct Stage {
    pub folder: Folder,
    pub daemon: Daemon,
    work: TempDir,
}

/// A client in a session of its own.
pub struct Talk {
    pub client: Client,
    pub session: String,
    pub chat: String,
    turns: i64,
}

impl Stage {
    /// With an agent of this configuration.
    pub fn new(config: Value) -> Self {
        Self::with(config, json!({}))
    }

    /// With more options of the plugin.
    pub fn with(config: Value, options: Value) -> Self {
        Self::of(agent::entry(config), options)
    }

    /// With an agent of this entry.
    pub fn of(entry: Value, options: Value) -> Self {
        Self::configured(entry, options, json!({}), None)
    }

    /// With more keys of the configuration, of whose plugins each is added, and a JavaScript plugin beside.
    pub fn configured(entry: Value, mut options: Value, mut config: Value, beside: Option<&str>) -> Self {
        options["agents"]["fake"] = entry;
        let work = tempfile::tempdir().unwrap();
        let mut plugins = vec![json!({ "name": "@ostler/acp", "options": options })];
        plugins.extend(config["plugins"].as_array().cloned().unwrap_or_default());
        plugins.extend(beside.map(|_| json!({ "name": "./beside.mjs" })));
        config["paths"] = json!([work.path()]);
        config["plugins"] = plugins.into();
        let folder = Folder::new(config);
        if let Some(beside) = beside {
            folder.write("beside.mjs", beside);
        }
        let daemon = folder.start();
        Self { folder, daemon, work }
    }

    /// The directory the sessions work in.
    pub fn work(&self) -> PathBuf {
        self.work.path().canonicalize().unwrap()
    }

    /// Stops the daemon and starts it again.
    pub fn restarted(self, kill: bool) -> Self {
        let Self { folder, daemon, work } = self;
        match kill {
            true => daemon.kill(),
            false => drop(daemon.stop()),
        }
        let daemon = folder.start();
        Self { folder, daemon, work }
    }

    pub async fn talk(&self) -> Talk {
        self.talk_in("fake:/one", json!({})).await
    }

    /// In a session with these settings.
    pub async fn talk_in(&self, session: &str, config: Value) -> Talk {
        let mut client = self.daemon.initialized(&session.replace([':', '/'], "-")).await;
        let params = json!({ "channel": session, "provider": "fake", "config": config });
        client.request("createSession", params).await.unwrap();
        Talk::join(client, session).await
    }
}

impl Talk {
    /// Watches a session that is there.
    pub async fn join(mut client: Client, session: &str) -> Self {
        let chat = ostler_protocol::uri::default_chat(session);
        client.subscribe(session).await;
        client.subscribe(&chat).await;
        Self { client, session: session.to_owned(), chat, turns: 0 }
    }

    /// Starts a turn; answers its id.
    pub async fn begin(&mut self, text: &str) -> String {
        self.turns += 1;
        static TURNS: AtomicU64 = AtomicU64::new(0);
        let turn = format!("t{}", TURNS.fetch_add(1, Ordering::Relaxed));
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } });
        self.act(action).await;
        turn
    }

    /// Dispatches an action on the chat.
    pub async fn act(&mut self, action: Value) {
        let chat = self.chat.clone();
        self.act_on(&chat, action).await;
    }

    /// Dispatches an action on a channel.
    pub async fn act_on(&mut self, channel: &str, action: Value) {
        self.turns += 1;
        self.client.dispatch(channel, self.turns, action).await;
    }

    /// The actions until one of these types, that one last.
    pub async fn until(&mut self, types: &[&str]) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let frame = self.client.next_frame().await.expect("the connection is open");
            if frame["method"] == "action" {
                let action = frame["params"]["action"].clone();
                let last = types.contains(&action["type"].as_str().unwrap());
                seen.push(action);
                if last {
                    return seen;
                }
            }
        }
    }

    /// Sends a prompt and waits for its end; answers the turn's actions.
    pub async fn turn(&mut self, text: &str) -> Vec<Value> {
        self.begin(text).await;
        self.until(&["chat/turnComplete", "chat/error", "chat/turnCancelled"]).await
    }

    /// The same; answers the text of the answer.
    pub async fn say(&mut self, text: &str) -> String {
        let seen = self.turn(text).await;
        assert_eq!(last(&seen)["type"], "chat/turnComplete", "{seen:#?}");
        text_of(&seen)
    }

    /// The same for a turn that fails; answers the error.
    pub async fn fail(&mut self, text: &str) -> Value {
        let seen = self.turn(text).await;
        assert_eq!(last(&seen)["type"], "chat/error", "{seen:#?}");
        last(&seen)["part"]["error"].clone()
    }
}

pub fn last(seen: &[Value]) -> &Value {
    seen.last().unwrap()
}

/// The Markdown of a turn.
pub fn text_of(seen: &[Value]) -> String {
    seen.iter()
        .filter_map(|action| match action["type"].as_str().unwrap() {
            "chat/responsePart" if action["part"]["kind"] == "markdown" => action["part"]["content"].as_str(),
            "chat/delta" => action["content"].as_str(),
            _ => None,
        })
        .collect()
}

/// The actions of a type.
pub fn all<'a>(seen: &'a [Value], kind: &str) -> Vec<&'a Value> {
    seen.iter().filter(|action| action["type"] == kind).collect()
}
