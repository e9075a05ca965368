//! A plugin written twice, and what a case needs to run one of the two.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_contract::wire::StateAction;
use ostler_contract::{JsonObject, Options, Plugin, PluginHost, Thrown, Value, json};
use ostler_engine::Yaml;
use ostler_js::{JsOptions, JsSource};
use ostler_loader::PluginConfig;
use ostler_testkit::{Builder, Lines, MemoryHost, RawClient};

/// A plugin written twice.
#[derive(Clone, Copy)]
pub struct Both {
    /// `@conformance/<id>`; the JavaScript one exports the id as its name.
    pub spec: &'static str,
    /// The native `apply`.
    pub native: fn(PluginHost, Options) -> Result<(), Thrown>,
    /// A file in `js/`, or one from the repository's root.
    pub javascript: &'static str,
    /// What the native module exports beside `apply`.
    pub dress: Option<fn(Plugin) -> Plugin>,
}

/// Which of the two a case runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Native,
    JavaScript,
}

/// One of the two.
#[derive(Clone, Copy)]
pub struct Side {
    pub kind: Kind,
    both: Both,
}

impl Side {
    pub fn new(kind: Kind, both: Both) -> Self {
        Self { kind, both }
    }

    /// The same kind of another plugin.
    pub fn other(self, both: Both) -> Self {
        Self { both, ..self }
    }

    /// A host about to load the plugin.
    pub fn host(self) -> Builder {
        self.load(builder(), json!({}))
    }

    /// A host about to load the echo backend and the plugin.
    pub fn host_with_echo(self) -> Builder {
        self.load(builder().plugin(ostler_plugin_echo::plugin(), json!({})), json!({}))
    }

    /// Names the plugin as one more on a host.
    pub fn load(self, builder: Builder, options: Value) -> Builder {
        let options = object(options);
        self.load_as(builder, |entry| PluginConfig { options, ..entry })
    }

    /// The same, with its configuration entry changed.
    pub fn load_as(self, builder: Builder, change: impl FnOnce(PluginConfig) -> PluginConfig) -> Builder {
        let Both { spec, native, javascript: file, dress } = self.both;
        match self.kind {
            Kind::Native => {
                let plugin = Plugin::new(spec, move |host, options| {
                    Box::pin(std::future::ready(native(host, options)))
                });
                let plugin = match dress {
                    Some(dress) => dress(plugin),
                    None => plugin,
                };
                builder.bundled(plugin).entry(change(PluginConfig::named(spec)))
            }
            Kind::JavaScript => {
                builder.entry(change(PluginConfig::named(&javascript(file).display().to_string())))
            }
        }
    }
}

fn javascript(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match file.contains('/') {
        true => here.parent().unwrap().join(file),
        false => here.join("tests/conformance/js").join(file),
    }
}

/// A host that imports JavaScript, reads YAML and gathers no deltas.
pub fn builder() -> Builder {
    let builder = MemoryHost::builder();
    let log = builder.log();
    let options =
        JsOptions { log: Arc::new(move |line| log.write(&line.to_string())), ..JsOptions::default() };
    let yaml = Yaml {
        parse: Arc::new(|text| ostler_ports::yaml::parse(text).map_err(Thrown::new)),
        stringify: Arc::new(|value| Ok(ostler_ports::yaml::stringify(value))),
    };
    builder.source(Arc::new(JsSource::new(options))).yaml(yaml).options(|options| options.delta_window_ms = 0)
}

/// Makes the native and the JavaScript test of each case.
macro_rules! both {
    ($both:ident: $($case:ident),+ $(,)?) => {
        mod native {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case($crate::side::Side::new($crate::side::Kind::Native, super::$both)).await;
            })+
        }

        mod javascript {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case($crate::side::Side::new($crate::side::Kind::JavaScript, super::$both)).await;
            })+
        }
    };
}

/// An action of the protocol from its JSON.
pub fn action(value: Value) -> Result<StateAction, Thrown> {
    serde_json::from_value(value).map_err(Thrown::new)
}

pub fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(fields) => fields,
        other => panic!("no object: {other}"),
    }
}

/// A client in a session of its own, watching its chat.
pub struct Talk {
    pub client: RawClient,
    pub session: String,
    pub chat: String,
    turns: u64,
}

impl Talk {
    pub async fn with(host: &MemoryHost, provider: &str) -> Self {
        let mut client = host.raw();
        client.initialize("talker").await;
        let session = format!("{provider}:/talk");
        let create = json!({ "channel": session, "provider": provider });
        client.request("createSession", create).await.unwrap();
        let chat = ostler_protocol::uri::default_chat(&session);
        client.request("subscribe", json!({ "channel": chat })).await.unwrap();
        Self { client, session, chat, turns: 0 }
    }

    /// Begins a turn; answers its id.
    pub async fn begin(&mut self, text: &str) -> String {
        self.turns += 1;
        let turn = format!("t{}", self.turns);
        let action = json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": text } });
        self.client.dispatch(&self.chat, self.turns as i64, action).await;
        turn
    }

    /// Says something and answers what came back, once the turn is over.
    pub async fn say(&mut self, text: &str) -> String {
        self.begin(text).await;
        let mut said = String::new();
        loop {
            let action = self.client.next_action().await["action"].clone();
            match action["type"].as_str().unwrap() {
                "chat/responsePart" => said.push_str(action["part"]["content"].as_str().unwrap_or_default()),
                "chat/delta" => said.push_str(action["content"].as_str().unwrap()),
                "chat/error" => {
                    return format!("error: {}", action["part"]["error"]["message"].as_str().unwrap());
                }
                "chat/turnComplete" => return said,
                _ => {}
            }
        }
    }

    /// Has the echo backend call a tool; answers what it said.
    pub async fn tool(&mut self, name: &str, input: Value) -> String {
        self.say(&format!("/tool {name} {input}")).await
    }
}

/// The lines of a log a plugin wrote with `host.log`, without its name.
pub fn lines_of(log: &Lines, plugin: &str) -> Vec<String> {
    let prefix = format!("plugin {plugin}: ");
    log.all().iter().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}
