//! A host to load plugins on, which writes down what they do.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_contract::host::{self, Caller, HostCalls, HostFacts};
use ostler_contract::live::{Pending, ready};
use ostler_contract::points::*;
use ostler_contract::recorder::Recorder;
use ostler_contract::registry::Fold;
use ostler_contract::*;
use ostler_js::{Engine, JsOptions, JsSource, Line};
use tokio::sync::Notify;

mod not_run;

pub use not_run::not_run;

/// Node, to compare with: the program that `OSTLER_NODE` names, or the npm package `node` that `.ci/lint` installs.
pub fn node() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("OSTLER_NODE") {
        return Some(named.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join("target/tools/node_modules/node/bin/node");
    installed.is_file().then_some(installed)
}

/// Lines a plugin logged, in order.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<(Mutex<Vec<Line>>, Notify)>);

impl Lines {
    pub fn sink(&self) -> ostler_js::LogSink {
        let lines = self.clone();
        Arc::new(move |line| {
            lines.0.0.lock().unwrap().push(line);
            lines.0.1.notify_waiters();
        })
    }

    pub fn all(&self) -> Vec<Line> {
        self.0.0.lock().unwrap().clone()
    }

    pub fn texts(&self) -> Vec<String> {
        self.all().into_iter().map(|line| line.to_string()).collect()
    }

    /// Waits for a line that holds these words.
    pub async fn wait_for(&self, words: &str) -> Line {
        let found = async {
            loop {
                let notified = self.0.1.notified();
                if let Some(line) = self.all().into_iter().find(|line| line.to_string().contains(words)) {
                    return line;
                }
                notified.await;
            }
        };
        tokio::time::timeout(LONG, found)
            .await
            .unwrap_or_else(|_| panic!("no line holds {words:?}: {:#?}", self.texts()))
    }
}

/// Longer than anything here may take.
pub const LONG: Duration = Duration::from_secs(60);

/// A host whose calls are written down.
#[derive(Default)]
pub struct Host {
    pub said: Mutex<Vec<String>>,
    pub secrets: Mutex<BTreeMap<String, String>>,
    pub usage: Mutex<Vec<UsageEntry>>,
    pub fired: Mutex<Vec<(String, String, JsonObject)>>,
    pub messages: Mutex<Option<Call<fn(message: Value)>>>,
    pub closed: AtomicUsize,
}

fn not_here<T>() -> Result<T, Thrown> {
    Err("not here".into())
}

impl HostCalls for Host {
    fn log(&self, caller: &Caller, line: String) -> Result<(), Thrown> {
        self.said.lock().unwrap().push(format!("{}: {line}", caller.plugin));
        Ok(())
    }
    fn say(&self, _: &Caller, _: String) -> Result<(), Thrown> {
        not_here()
    }
    fn parse_yaml(&self, _: &Caller, text: String) -> Result<Value, Thrown> {
        serde_json::from_str(&text).map_err(|error| Thrown::new(format_args!("no YAML: {error}")))
    }
    fn stringify_yaml(&self, _: &Caller, value: Value) -> Result<String, Thrown> {
        assert_ne!(value, "panic", "asked to");
        Ok(value.to_string())
    }
    fn connect(&self, _: &Caller) -> Result<host::Peer, Thrown> {
        not_here()
    }
    fn start_session(&self, _: &Caller, request: host::SessionRequest) -> Pending<String> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            match request.prompt.as_deref() {
                Some("") => Err(RpcError::new(-32602, "prompt is blank")
                    .with_data(json!({ "field": "prompt" }))
                    .into()),
                _ => Ok(format!("{}:/1", request.provider.unwrap_or_else(|| "echo".to_owned()))),
            }
        })
    }
    fn session_kept(&self, _: &Caller, uri: String) -> Pending<bool> {
        ready(Ok(uri == "echo:/1"))
    }
    fn session_owner(&self, _: &Caller, _: String) -> Pending<Option<String>> {
        ready(Ok(None))
    }
    fn record_usage(&self, _: &Caller, entry: UsageEntry) -> Pending<()> {
        self.usage.lock().unwrap().push(entry);
        ready(Ok(()))
    }
    fn secret(&self, _: &Caller, name: String, _: Option<host::SecretScope>) -> Pending<String> {
        let found = self.secrets.lock().unwrap().get(&name).cloned();
        ready(found.ok_or_else(|| Thrown::new(format_args!("the vault holds no {name}"))))
    }
    fn records(&self, _: &Caller, name: String, _: Option<CollectionOptions>) -> Result<Collection, Thrown> {
        Err(Thrown::new(format_args!("records {name} cannot be read: this host has no record store")))
    }
    fn fire_trigger(
        &self,
        _: &Caller,
        r#type: String,
        event: String,
        data: JsonObject,
    ) -> Result<host::Fired, Thrown> {
        self.fired.lock().unwrap().push((r#type, event, data));
        Ok(host::Fired { kept: HostFunction::now(|()| Ok(vec!["automations:/a/runs/1".to_owned()])) })
    }
    fn publish(
        &self,
        _: &Caller,
        _: String,
        _: String,
        _: JsonObject,
        _: Option<PublishOptions>,
    ) -> Result<(), Thrown> {
        not_here()
    }
    fn subscribers(&self, _: &Caller, _: String, _: String) -> Result<Vec<Subscriber>, Thrown> {
        not_here()
    }
}

/// A folder of its own, removed in the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ostler-js-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(std::fs::canonicalize(path).unwrap())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// How tests load plugins.
pub struct Loader {
    pub options: JsOptions,
    pub lines: Lines,
    pub host: Arc<Host>,
}

impl Default for Loader {
    fn default() -> Self {
        let lines = Lines::default();
        let options = JsOptions { log: lines.sink(), listen: Arc::new(|_, _| true), ..JsOptions::default() };
        Self { options, lines, host: Arc::default() }
    }
}

impl Loader {
    pub async fn import(&self, path: &Path, label: &str) -> Result<Module, Thrown> {
        let source = JsSource::new(self.options.clone());
        tokio::time::timeout(LONG, source.import(path, label)).await.expect("the import takes too long")
    }

    /// Imports and applies.
    pub async fn load(&self, path: &Path, id: &str, options: Value) -> Result<Applied, Thrown> {
        let module = self.import(path, id).await?;
        self.apply(module, id, options).await
    }

    pub async fn apply(&self, module: Module, id: &str, options: Value) -> Result<Applied, Thrown> {
        let host = self.plugin_host(id);
        let options = Options::from(options.as_object().cloned().unwrap_or_default());
        tokio::time::timeout(LONG, module.apply(host.clone(), options))
            .await
            .expect("apply takes too long")?;
        let recorder = host.seal();
        Ok(Applied { module, host, recorder: Some(recorder), lines: self.lines.clone() })
    }

    pub fn plugin_host(&self, id: &str) -> PluginHost {
        let facts = HostFacts {
            paths: vec!["/srv/work".to_owned()],
            version: "1.2.3".to_owned(),
            host_name: "inn".to_owned(),
            config_dir: "/etc/ostler".to_owned(),
        };
        let caller = Caller { plugin: Slug::parse(id).unwrap(), grants: Arc::new([]), vault: None };
        PluginHost::new(Arc::new(facts), caller, self.host.clone())
    }

    /// A plugin from its text.
    pub async fn text(&self, text: &str) -> Result<Applied, Thrown> {
        let folder = Folder::new();
        self.load(&folder.write("index.mjs", text), "text", Value::Null).await
    }
}

/// A plugin that was applied.
#[derive(Debug)]
pub struct Applied {
    pub module: Module,
    pub host: PluginHost,
    pub recorder: Option<Recorder>,
    pub lines: Lines,
}

impl Applied {
    pub fn engine(&self) -> Arc<Engine> {
        self.module.keep.clone().unwrap().downcast::<Engine>().unwrap()
    }

    pub fn recorder(&self) -> &Recorder {
        self.recorder.as_ref().unwrap()
    }

    pub fn fold(&mut self) -> Registry {
        let mut fold = Fold::default();
        fold.plugin(self.host.clone(), self.recorder.take().unwrap());
        let (registry, problems) = fold.finish();
        assert!(problems.is_empty(), "{problems:?}");
        registry
    }

    pub fn tool(&self, name: &str) -> Tool {
        self.recorder().all::<Tool>().find(|tool| *tool.definition.name == *name).unwrap().clone()
    }

    /// Runs the tool `name`.
    pub async fn run(&self, name: &str, input: Value) -> Result<Value, Thrown> {
        let call = self.tool(name).run.unbounded((input, place()));
        tokio::time::timeout(LONG, call).await.expect("the tool takes too long")
    }
}

/// Where a tool of a test runs.
pub fn place() -> ToolContext {
    ToolContext {
        session: "echo:/1".to_owned(),
        chat: "ahp-chat:/1".to_owned(),
        provider: None,
        turn: HostFunction::missing(),
        sessions: HostFunction::missing(),
        chats: HostFunction::missing(),
        context: HostFunction::missing(),
        send: HostFunction::missing(),
        create: HostFunction::missing(),
        create_chat: HostFunction::missing(),
        rename: HostFunction::missing(),
        remove: HostFunction::missing(),
        read: HostFunction::missing(),
    }
}

/// What the body of an async function answers, on an engine of its own.
pub async fn run_with(loader: &Loader, imports: &str, body: &str) -> Result<Value, Thrown> {
    let text = format!(
        "{imports}\nexport function apply(host) {{\n\
         host.registerTool({{ definition: {{ name: 'run' }}, run: async (input) => {{\n{body}\n}} }});\n}}"
    );
    loader.text(&text).await?.run("run", Value::Null).await
}

pub async fn run(imports: &str, body: &str) -> Value {
    let loader = Loader::default();
    match run_with(&loader, imports, body).await {
        Ok(value) => value,
        Err(thrown) => panic!("{}: {}\n{:#?}", thrown.name, thrown.for_log(), loader.lines.texts()),
    }
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let held = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, held).await.unwrap_or_else(|_| panic!("never: {what}"));
}
