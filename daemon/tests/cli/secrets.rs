//! Secrets by name: in options at load, and through `host.secret`, over a real daemon.

use crate::support::{Daemon, Folder};
use serde_json::{Value, json};

/// A plugin whose route asks for the secret in its query, and counts what a vault was asked.
const READER: &str = r"
    export const name = 'reader';
    export const optionsSchema = { properties: {
        key: { type: 'string', writeOnly: true }, later: { type: 'object', secretAtUse: true },
        fromHome: { type: 'string', fromEnv: true, writeOnly: true } } };
    export function apply(host, options) {
        host.registerRoute(async (request) => {
            const asked = await request.json();
            if (asked.options) return Response.json(options);
            try {
                if (asked.loud) { console.log('it is ' + await host.secret(asked.name)); throw new Error('not ' + await host.secret(asked.name)); }
                return Response.json({ value: await host.secret(asked.name, asked.scope) });
            } catch (error) {
                return Response.json({ refused: error.message });
            }
        });
    }
";

/// A vault that answers everything and logs what it is asked.
const VAULT: &str = r"
    export const name = 'vault';
    export function apply(host) {
        const get = async (name) => { host.log('asked for ' + name); return 'from the plugin: ' + name; };
        host.registerVault({ get, set: async () => {}, delete: async () => false, list: async () => [] }, 'replace');
    }
";

fn folder(plugins: Value) -> Folder {
    let mut all = vec![json!({ "name": "@ostler/echo" })];
    all.extend(plugins.as_array().unwrap().clone());
    let folder = Folder::new(json!({ "plugins": all }));
    folder.write("reader.js", READER);
    folder.write("vault.js", VAULT);
    folder
}

async fn ask(daemon: &Daemon, body: Value) -> Value {
    let (status, body) = daemon.post("/plugins/reader/", None, &body.to_string()).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn reader(options: Value) -> Value {
    json!({ "name": "./reader.js", "options": options })
}

#[tokio::test]
async fn options_are_handed_the_values_their_names_stand_for() {
    let folder = folder(json!([reader(json!({
        "key": { "$secret": "host:k" }, "later": { "a": { "$secret": "user:ada/k" }, "b": { "$secret": "host:gone" } }
    }))]));
    folder.write("vault.json", r#"{ "host:k": "sk-live-1" }"#);
    let mut command = folder.command(&[]);
    command.env("FROM_HOME", "from the environment");
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let url = line.split(' ').find(|word| word.starts_with("ws://")).unwrap().to_owned();
    let daemon = Daemon { child, out, block: vec![line], url };
    assert_eq!(
        ask(&daemon, json!({ "options": true })).await,
        json!({
            "key": "sk-live-1", "fromHome": "from the environment",
            "later": { "a": { "$secret": "user:ada/k" }, "b": { "$secret": "host:gone" } }
        })
    );
    // What it was handed is nowhere in the file.
    assert!(!folder.read("config.json").contains("sk-live-1"));
}

#[test]
fn options_that_name_what_cannot_be_read_cost_the_plugin_and_one_line() {
    for (reference, says) in [
        (json!("host:gone"), "names host:gone: the vault holds no host:gone"),
        (json!("team:inn/k"), "names team:inn/k: "),
        (json!("user:ada/k"), "names user:ada/k: "),
        (json!("k"), "a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>"),
        (json!(5), "a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>"),
    ] {
        let folder = folder(json!([reader(json!({ "key": { "$secret": reference } }))]));
        folder.write("vault.json", r#"{ "team:inn/k": "SECRET-team", "user:ada/k": "SECRET-user" }"#);
        let mut daemon = folder.start();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut daemon.out, &mut line).unwrap();
        assert!(line.starts_with("plugin reader skipped: plugins.reader.options.key names "), "{line}");
        assert!(line.contains(says), "{says:?} is not in {line:?}");
        assert!(!(line + &*folder.read("log")).contains("SECRET-"));
        assert_eq!(daemon.stop(), Some(0));
    }
}

#[tokio::test]
async fn a_secret_is_read_for_the_work_it_belongs_to() {
    let folder = folder(json!([{ "name": "./vault.js" }, reader(json!({}))]));
    let daemon = folder.start();
    for (name, scope) in [
        ("host:k", Value::Null),
        ("host:k", json!({ "team": "other" })),
        ("team:inn/k", json!({ "team": "inn" })),
        ("user:ada/k", json!({ "owner": "user:ada" })),
    ] {
        let answer = ask(&daemon, json!({ "name": name, "scope": scope })).await;
        assert_eq!(answer, json!({ "value": format!("from the plugin: {name}") }));
    }
    let asked = || folder.read("log").matches("asked for ").count();
    let before = asked();
    for (name, scope, says) in [
        ("k", Value::Null, "a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>"),
        ("root:k", Value::Null, "a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>"),
        ("team:inn/k", Value::Null, "team:inn/k"),
        ("team:inn/k", json!({ "team": "other" }), "team:inn/k"),
        ("team:inn/k", json!({ "owner": "user:ada" }), "team:inn/k"),
        ("user:ada/k", Value::Null, "user:ada/k"),
        ("user:ada/k", json!({ "owner": "user:bob" }), "user:ada/k"),
        ("user:ada/k", json!({ "team": "ada" }), "user:ada/k"),
    ] {
        let answer = ask(&daemon, json!({ "name": name, "scope": scope })).await;
        let refused = answer["refused"].as_str().unwrap_or_else(|| panic!("{name} {scope}: {answer}"));
        assert!(refused.contains(says), "{name} {scope}: {refused}");
    }
    assert_eq!(asked(), before, "the vault is not asked for what is refused");
    assert!(folder.read("config.json").find("from the plugin").is_none());
}

#[tokio::test]
async fn a_name_the_vault_lacks_is_refused() {
    let folder = folder(json!([reader(json!({}))]));
    let daemon = folder.start();
    let answer = ask(&daemon, json!({ "name": "host:k" })).await;
    assert_eq!(answer, json!({ "refused": "the vault holds no host:k" }));
    folder.write("vault.json", r#"{ "host:k": "now", "host:loud": "SECRET-loud" }"#);
    let end = std::time::Instant::now() + crate::support::LIMIT;
    while ask(&daemon, json!({ "name": "host:k" })).await != json!({ "value": "now" }) {
        assert!(std::time::Instant::now() < end, "the vault is read again");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // What a plugin says of what it read is not said on.
    ask(&daemon, json!({ "name": "host:loud", "loud": true })).await;
    assert_eq!(folder.wait_for_log("plugin reader: it is ").split("it is ").nth(1), Some("<set>"));
}

#[test]
fn a_vault_plugin_comes_first() {
    let named = || reader(json!({ "key": { "$secret": "host:k" } }));
    let skipped = |plugins: Value| {
        let folder = folder(plugins);
        folder.write("vault.json", r#"{ "host:k": "from the daemon" }"#);
        let mut daemon = folder.start();
        daemon.signal(crate::support::Signal::TERM);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut daemon.out, &mut rest).unwrap();
        (rest, daemon.block.iter().find(|line| line.starts_with("vault ")).cloned().unwrap())
    };
    let (none, vault) = skipped(json!([{ "name": "./vault.js" }, named()]));
    assert_eq!((none.as_str(), vault.as_str()), ("", "vault from a plugin"));
    let (late, vault) = skipped(json!([named(), { "name": "./vault.js" }]));
    assert!(
        late.contains("plugin vault sets vault, but plugin reader already named a secret; list vault first"),
        "{late}"
    );
    assert!(vault.ends_with("vault.json"), "{vault}");
    let own = json!({ "name": "./vault.js", "options": { "key": { "$secret": "host:k" } } });
    let (own, _) = skipped(json!([own]));
    assert!(own.contains("plugin vault skipped: a vault plugin's own options cannot name a secret"), "{own}");
}

#[tokio::test]
async fn a_sentence_a_plugin_throws_is_told_without_its_secrets() {
    let folder = folder(json!([{ "name": "./loud.js", "options": { "key": "sk-option-1" } }]));
    folder.write("vault.json", r#"{ "host:k": "sk-vault-2" }"#);
    folder.write(
        "loud.js",
        r"
        export const name = 'loud';
        export const optionsSchema = { properties: { key: { type: 'string', writeOnly: true } } };
        export function apply(host, { key }) {
            host.registerMethod('x-loud/shout', { grant: 'loud:shout', handle: async () => {
                throw new Error(`not ${key} and not ${await host.secret('host:k')}`);
            } });
        }
    ",
    );
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let refused = client.request("x-loud/shout", json!({ "channel": "ahp-root://" })).await.unwrap_err();
    assert_eq!(refused["message"], "not <set> and not <set>");
    assert!(folder.wait_for_log("its command x-loud/shout failed").contains("not <set> and not <set>"));
}

#[tokio::test]
async fn an_answer_larger_than_a_queue_is_answered() {
    let folder = folder(json!([{ "name": "./large.js" }]));
    folder.write(
        "large.js",
        r"
        export const name = 'large';
        export function apply(host) {
            host.registerMethod('x-large/fetch', { grant: 'large:fetch', handle: () => 'x'.repeat(20_000_000) });
        }
    ",
    );
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    for _ in 0..2 {
        let answer = client.request("x-large/fetch", json!({ "channel": "ahp-root://" })).await.unwrap();
        assert_eq!(answer.as_str().unwrap().len(), 20_000_000);
    }
    client.request("listSessions", json!({})).await.unwrap();
}

#[tokio::test]
async fn files_of_the_configuration_are_not_served_as_files() {
    let folder = Folder::with_webhook("x");
    folder.write("token", "of-the-deployment\n");
    folder.write("people.json", r#"{ "users": [] }"#);
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    let above = folder.path().parent().unwrap();
    config["paths"] = json!([above]);
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    let mut client = daemon.initialized("c").await;
    let uri = |name: &str| format!("file://{}", folder.path().join(name).display());
    for name in ["config.json", "vault.json", "daemon.json", "state.db", "webhooks/in.md", "people.json"] {
        let read = client.request("resourceRead", json!({ "uri": uri(name) })).await.unwrap_err();
        let why = format!("{} is this host's configuration, which is not served", uri(name));
        assert_eq!((&read["code"], &read["message"]), (&json!(-32009), &json!(why)));
        let write = json!({ "uri": uri(name), "data": "{}", "encoding": "utf-8" });
        assert_eq!(client.request("resourceWrite", write).await.unwrap_err()["code"], -32009, "{name}");
    }
    let listed = json!({ "uri": format!("file://{}", above.display()) });
    assert!(client.request("resourceList", listed).await.is_ok(), "what holds it is served");
}

#[test]
fn a_secret_whose_name_is_no_longer_accepted_can_only_be_deleted() {
    let folder = folder(json!([]));
    folder.write("vault.json", r#"{ "host:a//b": "x", "host:c": "y" }"#);
    let delete = || folder.run(&["vault", "delete", "host:a//b", "--yes"]);
    let deleted = delete();
    assert_eq!((deleted.code, deleted.out.as_str()), (Some(0), "Deleted host:a//b.\n"), "{deleted:?}");
    assert_eq!(folder.read("vault.json").matches("host:").count(), 1);
    let again = delete();
    assert!(again.code == Some(2) && again.err.contains("host:<name>"), "{again:?}");
}
