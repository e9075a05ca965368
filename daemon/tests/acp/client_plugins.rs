//! Plugins that clients bring to a session are copied into a folder of it, and backends are handed the folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agent;
use crate::support::{Folder, wait_for};
use crate::talk::{Stage, Talk, all, last, text_of};

/// A backend in JavaScript that says which plugins it was handed.
const BACKEND: &str = "
export const name = 'backend';
export function apply(host) {
  host.registerAgent({
    provider: 'script', displayName: 'Script', schema: () => ({ type: 'object', properties: {} }), defaults: () => ({}),
    create(start) {
      let plugins = start.clientPlugins ?? [];
      return {
        begin(turnId) {
          const content = JSON.stringify(plugins);
          start.emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: turnId, content } });
          start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
        },
        setClientPlugins(now) { plugins = now; return true; },
        cancel() {},
        close() {},
      };
    },
  });
}
";

/// A client that serves the files of its plugins: text by URI, and the names below a directory.
struct Serving {
    talk: Talk,
    client: String,
    files: BTreeMap<String, String>,
    seq: i64,
}

impl Serving {
    async fn of(stage: &Stage, session: &str, provider: &str) -> Self {
        let name = session.replace([':', '/'], "-");
        let mut client = stage.daemon.initialized(&name).await;
        let params = json!({ "channel": session, "provider": provider });
        client.request("createSession", params).await.unwrap();
        let talk = Talk::join(client, session).await;
        Self { talk, client: name, files: BTreeMap::new(), seq: 1000 }
    }

    fn file(&mut self, uri: &str, text: &str) {
        self.files.insert(uri.to_owned(), text.to_owned());
    }

    /// Brings these plugins, and waits for nothing.
    async fn bring(&mut self, plugins: Value) {
        let client = json!({ "clientId": self.client, "tools": [], "customizations": plugins });
        self.on_session(json!({ "type": "session/activeClientSet", "activeClient": client })).await;
    }

    async fn on_session(&mut self, action: Value) {
        self.seq += 1;
        let session = self.talk.session.clone();
        self.talk.client.dispatch(&session, self.seq, action).await;
    }

    /// What the daemon asks for.
    fn answer(&self, method: &str, params: &Value) -> Value {
        let uri = params["uri"].as_str().unwrap();
        let found = match method {
            "resourceRead" => self.files.get(uri).map(|text| json!({ "data": text, "encoding": "utf-8" })),
            "resourceList" => {
                let below = |file: &String| file.strip_prefix(uri)?.strip_prefix('/').map(str::to_owned);
                let mut names: Vec<(String, &str)> = self
                    .files
                    .keys()
                    .filter_map(below)
                    .map(|rest| match rest.split_once('/') {
                        Some((directory, _)) => (directory.to_owned(), "directory"),
                        None => (rest, "file"),
                    })
                    .collect();
                names.dedup();
                let entries =
                    names.iter().map(|(name, kind)| json!({ "name": name.replace('|', "/"), "type": kind }));
                (!names.is_empty()).then(|| json!({ "entries": entries.collect::<Vec<_>>() }))
            }
            _ => None,
        };
        match found {
            Some(result) => json!({ "result": result }),
            None => json!({ "error": { "code": -32008, "message": format!("no {uri}") } }),
        }
    }

    /// The actions until one is as wanted, that one last; what the daemon asks for meanwhile is answered.
    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let frame = self.talk.client.next_frame().await.expect("the connection is open");
            let method = frame["method"].as_str().unwrap_or_default();
            if method.starts_with("resource") {
                let mut answer = self.answer(method, &frame["params"]);
                answer["jsonrpc"] = "2.0".into();
                answer["id"] = frame["id"].clone();
                self.talk.client.send(&answer.to_string()).await;
            } else if method == "action" {
                let action = frame["params"]["action"].clone();
                let found = wanted(&action);
                seen.push(action);
                if found {
                    return seen;
                }
            }
        }
    }

    /// Runs a turn; answers its actions.
    async fn turn(&mut self) -> Vec<Value> {
        self.talk.begin("hello").await;
        let seen = self
            .until(|action| ["chat/turnComplete", "chat/error"].contains(&action["type"].as_str().unwrap()));
        let seen = seen.await;
        assert_eq!(last(&seen)["type"], "chat/turnComplete", "{seen:#?}");
        seen
    }

    /// Waits until a plugin is listed as copied, or not copied; answers how it is listed.
    async fn settled(&mut self) -> Value {
        let seen = self.until(|action| {
            action["type"] == "session/customizationUpdated"
                && action["customization"]["load"]["kind"] != "loading"
        });
        last(&seen.await)["customization"].clone()
    }
}

fn kit(nonce: &str) -> Value {
    json!({ "type": "plugin", "id": "kit", "uri": "file:///kit", "name": "Kit", "nonce": nonce })
}

/// What the folder of all copies holds.
fn copies(folder: &Folder) -> Vec<PathBuf> {
    let sessions = fs::read_dir(folder.state_file("client-plugins")).into_iter().flatten();
    let copies = sessions.flat_map(|session| fs::read_dir(session.unwrap().path()).into_iter().flatten());
    copies.map(|copy| copy.unwrap().path()).collect()
}

fn gone(path: &Path) {
    wait_for(|| (!path.exists()).then_some(())).unwrap_or_else(|| panic!("{} is there", path.display()));
}

#[tokio::test]
async fn an_agent_is_told_of_copies_of_its_clients_plugins() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::with(json!({ "log": log.path() }), json!({}));
    let opened = || -> Vec<Value> {
        let sent = fs::read_to_string(log.path()).unwrap();
        let frames = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let frames = frames.filter(|frame| frame["method"] == "session/new");
        frames.map(|frame| frame["params"]["_meta"]["ostler.clientPlugins"].clone()).collect()
    };
    let mut client = Serving::of(&stage, "fake:/one", "fake").await;
    client.file("file:///kit/.plugin/plugin.json", "{}");
    client.file("file:///kit/skills/braid/SKILL.md", "one");
    // The turn follows at once, as an editor sends it.
    client.bring(json!([kit("1")])).await;
    let seen = client.turn().await;
    let listed = all(&seen, "session/customizationUpdated");
    let loads: Vec<&Value> = listed.iter().map(|action| &action["customization"]["load"]["kind"]).collect();
    assert_eq!(loads, ["loading", "loaded"]);
    assert_eq!(listed[1]["customization"]["clientId"], client.client);
    let told = opened().pop().unwrap();
    assert_eq!(told[0]["name"], "Kit", "{told}");
    let first = PathBuf::from(told[0]["path"].as_str().unwrap());
    assert_eq!(copies(&stage.folder), std::slice::from_ref(&first));
    assert_eq!(fs::read_to_string(first.join("skills/braid/SKILL.md")).unwrap(), "one");
    assert_eq!(fs::read_to_string(first.join(".plugin/plugin.json")).unwrap(), "{}");

    // Another version: the agent starts again with it.
    client.file("file:///kit/skills/braid/SKILL.md", "two");
    client.bring(json!([kit("2")])).await;
    client.turn().await;
    let second = PathBuf::from(opened().pop().unwrap()[0]["path"].as_str().unwrap());
    assert_eq!(fs::read_to_string(second.join("skills/braid/SKILL.md")).unwrap(), "two");
    gone(&first);

    client.bring(json!([])).await;
    client.until(|action| action["type"] == "session/customizationRemoved").await;
    gone(&second);
    client.turn().await;
    assert_eq!(opened().pop().unwrap(), Value::Null);
}

#[tokio::test]
async fn a_copy_that_a_running_turn_uses_is_removed_after_it() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let stage = Stage::with(json!({ "log": log.path() }), json!({}));
    let mut client = Serving::of(&stage, "fake:/one", "fake").await;
    client.file("file:///kit/a", "one");
    client.bring(json!([kit("1")])).await;
    client.turn().await;
    let first = copies(&stage.folder).pop().unwrap();
    let flag = stage.work().join("flag");
    let used = format!("until [ -e {} ]; do sleep 0.05; done; cat {}/a", flag.display(), first.display());
    client.talk.begin(&format!("!say busy\n!output {used}")).await;
    client.until(|action| action["type"] == "chat/responsePart").await;
    // Another version, and then none, while the agent works with the first.
    client.file("file:///kit/a", "two");
    client.bring(json!([kit("2")])).await;
    client.settled().await;
    client.bring(json!([])).await;
    client.until(|action| action["type"] == "session/customizationRemoved").await;
    // A removal is done beside everything else, which no answer waits for.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(first.exists());
    fs::write(flag, "").unwrap();
    let seen = client.until(|action| action["type"] == "chat/turnComplete").await;
    assert_eq!(text_of(&seen), "one");
    gone(&first);
    wait_for(|| copies(&stage.folder).is_empty().then_some(())).expect("nothing of them is left");
    client.turn().await;
    let sent = fs::read_to_string(log.path()).unwrap();
    assert_eq!(sent.matches("\"method\":\"initialize\"").count(), 2, "it was started again");
}

#[tokio::test]
async fn a_backend_in_javascript_is_handed_copies_and_hears_of_changes() {
    let stage = Stage::configured(agent::entry(json!({})), json!({}), json!({}), Some(BACKEND));
    let mut client = Serving::of(&stage, "script:/one", "script").await;
    client.file("file:///kit/a", "one");
    client.bring(json!([kit("1")])).await;
    let handed = async |client: &mut Serving| -> Value {
        serde_json::from_str(&text_of(&client.turn().await)).unwrap()
    };
    let plugins = handed(&mut client).await;
    let path = PathBuf::from(plugins[0]["path"].as_str().unwrap());
    assert_eq!(
        plugins,
        json!([{ "id": "kit", "clientId": client.client, "uri": "file:///kit", "name": "Kit", "path": path, "enabled": true }])
    );
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "one");
    let off = json!([{ "kind": "session", "enabled": false }]);
    client
        .on_session(json!({ "type": "session/customizationToggled", "id": "kit", "enablement": off }))
        .await;
    assert_eq!(handed(&mut client).await[0]["enabled"], false);

    // It goes with its client.
    let session = client.talk.session.clone();
    let removed = json!({ "type": "session/activeClientRemoved", "clientId": client.client });
    client.on_session(removed).await;
    assert_eq!(handed(&mut client).await, json!([]));
    gone(&path);

    // And with its session.
    client.bring(json!([kit("1")])).await;
    client.settled().await;
    let path = PathBuf::from(handed(&mut client).await[0]["path"].as_str().unwrap());
    assert!(path.exists());
    client.talk.client.request("disposeSession", json!({ "channel": session })).await.unwrap();
    gone(&path);
}

#[tokio::test]
async fn a_plugin_that_leads_elsewhere_or_is_too_large_is_not_copied() {
    let stage = Stage::configured(agent::entry(json!({})), json!({}), json!({}), Some(BACKEND));
    let mut client = Serving::of(&stage, "script:/one", "script").await;
    let mut number = 0;
    let mut why = async |client: &mut Serving| {
        number += 1;
        client.bring(json!([kit(&number.to_string())])).await;
        let listed = client.settled().await;
        assert_eq!(listed["load"]["kind"], "error", "{listed}");
        listed["load"]["message"].as_str().unwrap().to_owned()
    };
    let said = why(&mut client).await;
    assert!(said.contains("no file:///kit"), "{said}");
    for name in ["..|..|evil", "..", "c:", "a\\b"] {
        client.files.clear();
        client.file(&format!("file:///kit/{name}"), "evil");
        let said = why(&mut client).await;
        assert!(said.contains("not a plain file name"), "{said}");
    }
    client.files.clear();
    for number in 0..1001 {
        client.file(&format!("file:///kit/{number}"), "");
    }
    let said = why(&mut client).await;
    assert!(said.contains("more than 1000 files"), "{said}");
    client.files.clear();
    for number in 0..5 {
        client.file(&format!("file:///kit/{number}"), &"x".repeat(8 << 20));
    }
    let said = why(&mut client).await;
    assert!(said.contains("exceed 32 MiB"), "{said}");
    client.files.clear();
    client.file(&format!("file:///kit{}", "/d".repeat(17)), "");
    let said = why(&mut client).await;
    assert!(said.contains("deep"), "{said}");
    wait_for(|| copies(&stage.folder).is_empty().then_some(())).expect("nothing of them is left");
    assert_eq!(text_of(&client.turn().await), "[]");
}

#[tokio::test]
async fn copies_that_a_killed_daemon_left_are_removed() {
    let stage = Stage::configured(agent::entry(json!({})), json!({}), json!({}), Some(BACKEND));
    let mut client = Serving::of(&stage, "script:/one", "script").await;
    client.file("file:///kit/a", "one");
    client.bring(json!([kit("1")])).await;
    assert_eq!(client.settled().await["load"]["kind"], "loaded");
    assert_eq!(copies(&stage.folder).len(), 1);
    let stage = stage.restarted(true);
    assert_eq!(copies(&stage.folder), Vec::<PathBuf>::new());
}
