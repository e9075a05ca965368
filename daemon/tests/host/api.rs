//! The HTTP API as other programs use it: its OpenAPI document against what a daemon answers, and commands with
//! `--remote`.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Daemon, Ended, Folder, ended, program, wait_for};
use serde_json::{Value, json};

const TOKEN: &str = "the-token";

/// A plugin with a schema, so that options are typed and offered.
const NOTES: &str = r"
    export const name = 'notes';
    export const title = 'Notes';
    export const optionsSchema = {
        properties: { key: { type: 'string', writeOnly: true }, level: { type: 'integer', description: 'How much' } },
    };
    export function apply() {}
";

fn folder() -> Folder {
    let folder = Folder::new(json!({
        "http": true, "connectionToken": TOKEN, "users": "users.json",
        "plugins": [{ "name": "@ostler/echo" }, { "name": "./notes.js", "options": { "key": "SECRET" } }],
    }));
    folder.write("notes.js", NOTES);
    folder.write("users.json", "{}");
    folder
}

/// An answer: its status, its content type and its body.
struct Answer {
    status: u16,
    media: String,
    body: String,
}

async fn ask(daemon: &Daemon, method: &str, path: &str, token: &str, body: Option<&Value>) -> Answer {
    let body = body.map(Value::to_string).unwrap_or_default();
    let (host, length) = (daemon.address(), body.len());
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let answer = daemon.exchange(request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
    let media = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-type").then(|| value.to_owned())
    });
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        media: media.unwrap_or_default(),
        body: body.to_owned(),
    }
}

/// A part of a JSON pointer.
fn part(text: &str) -> String {
    text.replace('~', "~0").replace('/', "~1")
}

/// What an answer has that the document does not say.
fn undocumented(document: &Value, path: &str, method: &str, answer: &Answer) -> Option<String> {
    let method = method.to_lowercase();
    let at = format!("/paths/{}/{method}/responses/{}", part(path), answer.status);
    let Some(response) = document.pointer(&at) else { return Some(format!("no status {}", answer.status)) };
    let Some(content) = response["content"].get(&answer.media) else {
        return Some(format!("no content type {}", answer.media));
    };
    if content["schema"] == json!({ "type": "string" }) {
        return None;
    }
    let mut schema = content["schema"].clone();
    schema["components"] = document["components"].clone();
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    jsonschema::validator_for(&schema).unwrap().validate(&body).err().map(|error| format!("{error}: {body}"))
}

async fn document(daemon: &Daemon) -> Value {
    let answer = ask(daemon, "GET", "/api/openapi.json", TOKEN, None).await;
    assert_eq!((answer.status, answer.media.as_str()), (200, "application/json"));
    serde_json::from_str(&answer.body).unwrap()
}

#[tokio::test]
async fn every_answer_is_as_the_document_says() {
    let folder = folder();
    let daemon = folder.start();
    let document = document(&daemon).await;
    assert_eq!(document["openapi"], "3.1.0");

    let notes = || json!({ "name": "notes" });
    // Path, the name it ends in, body, expected status.
    let cases: Vec<(&str, &str, &str, Option<Value>, u16)> = vec![
        ("GET", "/api", "", None, 200),
        ("GET", "/api/openapi.json", "", None, 200),
        ("GET", "/api/cli-manifest", "", None, 200),
        ("GET", "/api/me", "", None, 200),
        ("GET", "/api/log", "", None, 200),
        ("GET", "/api/runs", "", None, 200),
        ("GET", "/api/runs/{run}", "none", None, 404),
        ("GET", "/api/automation/show/{automation}", "none", None, 404),
        ("GET", "/api/sessions", "", None, 200),
        ("GET", "/api/sessions/{session}", "none", None, 404),
        ("GET", "/api/sessions/{session}", "none?turns=101", None, 400),
        ("GET", "/api/user/permissions", "", None, 200),
        ("GET", "/api/webhook/list", "", None, 200),
        ("GET", "/api/webhook/log/{endpoint}", "none", None, 404),
        ("GET", "/api/webhook/log/{endpoint}", "No", None, 400),
        ("POST", "/api/webhook/test", "", Some(json!({ "id": "none" })), 404),
        ("POST", "/api/session/approve/{session}", "none", Some(json!({})), 404),
        ("POST", "/api/session/reject/{session}", "none", None, 404),
        ("POST", "/api/session/answer/{session}", "none", Some(json!({ "answers": ["x"] })), 404),
        ("POST", "/api/session/answer/{session}", "none", Some(json!({ "answers": "x" })), 400),
        ("POST", "/api/session/cancel/{session}", "none", Some(json!({})), 404),
        ("GET", "/api/sessions", "?cursor=", None, 400),
        ("GET", "/api/runs", "?text=", None, 400),
        ("POST", "/api/vault/set/{name}", "host%3A%2e%2e", Some(json!({ "value": "v" })), 400),
        ("POST", "/api/notify/test", "", Some(json!({ "rule": "none" })), 400),
        // Only a page of the console signs in.
        ("POST", "/api/sign-in", "", Some(json!({ "token": TOKEN })), 403),
        ("POST", "/api/sign-out", "", Some(json!({})), 403),
        ("GET", "/api/status", "", None, 200),
        ("GET", "/api/problems", "", None, 200),
        ("GET", "/api/health", "", None, 200),
        ("GET", "/api/ready", "", None, 200),
        // This host is in no cluster.
        ("GET", "/api/cluster", "", None, 409),
        ("POST", "/api/cluster/drain", "", Some(json!({ "undo": true })), 409),
        ("POST", "/api/cluster/evict", "", Some(json!({ "id": "none" })), 409),
        ("GET", "/api/metrics", "", None, 200),
        ("GET", "/api/config", "", None, 200),
        ("GET", "/api/plugin/list", "", None, 200),
        ("POST", "/api/plugin/config", "", Some(notes()), 200),
        ("POST", "/api/plugin/config", "", Some(json!({ "name": "notes", "options": { "level": 2 } })), 200),
        (
            "POST",
            "/api/plugin/config",
            "",
            Some(json!({ "name": "notes", "options": { "level": "x" } })),
            400,
        ),
        ("POST", "/api/plugin/config", "", Some(json!({ "name": "notes", "enabled": false })), 200),
        ("POST", "/api/plugin/config", "", Some(json!({ "name": "nope" })), 400),
        ("POST", "/api/plugin/config", "", Some(json!([])), 400),
        ("POST", "/api/plugin/config", "", None, 400),
        ("POST", "/api/plugin/enable", "", Some(notes()), 200),
        ("POST", "/api/plugin/disable", "", Some(json!({ "name": "@ostler/echo" })), 200),
        ("POST", "/api/plugin/enable", "", Some(json!({ "name": "@ostler/echo" })), 200),
        (
            "POST",
            "/api/plugin/config/set",
            "",
            Some(json!({ "name": "notes", "key": "level", "value": 3 })),
            200,
        ),
        ("POST", "/api/plugin/config/set", "", Some(json!({ "name": "notes", "key": "level" })), 400),
        ("POST", "/api/plugin/config/unset", "", Some(json!({ "name": "notes", "key": "level" })), 200),
        ("POST", "/api/plugin/config/unset", "", Some(json!({ "name": "notes", "key": "level" })), 200),
        ("POST", "/api/plugin/profile", "", Some(json!({ "name": "notes", "seconds": 1 })), 200),
        ("POST", "/api/plugin/profile", "", Some(json!({ "name": "notes", "seconds": 61 })), 400),
        ("POST", "/api/plugin/profile", "", Some(json!({ "name": "nope" })), 400),
        ("POST", "/api/plugin/memory", "", Some(json!({ "name": "./notes.js" })), 200),
        ("POST", "/api/plugin/memory", "", Some(json!({ "name": "@ostler/echo" })), 400),
        ("POST", "/api/plugin/install", "", Some(json!({ "name": "@ostler/webhook" })), 200),
        ("POST", "/api/plugin/install", "", Some(json!({ "name": "./nope.js" })), 400),
        ("POST", "/api/plugin/update", "", Some(json!({ "name": "all" })), 200),
        ("POST", "/api/plugin/remove", "", Some(json!({ "name": "@ostler/webhook" })), 200),
        ("POST", "/api/plugin/remove", "", Some(json!({ "name": "@ostler/webhook", "keep": 1 })), 400),
        ("POST", "/api/restart", "", Some(json!({ "force": true })), 409),
        ("POST", "/api/vault/set/{name}", "host%3Ak", Some(json!({ "value": "v" })), 200),
        ("POST", "/api/vault/set/{name}", "k", Some(json!({ "value": "v" })), 400),
        ("POST", "/api/vault/set/{name}", "a/b", Some(json!({ "value": "v" })), 404),
        ("GET", "/api/vault/list", "", None, 200),
        ("POST", "/api/vault/delete/{name}", "host%3Ak", Some(json!({})), 200),
        ("POST", "/api/vault/delete/{name}", "host%3Ak", None, 409),
        ("GET", "/api/usage/{pool}", "user%3Aada", None, 200),
        ("POST", "/api/webhook/replay", "", Some(json!({})), 400),
        ("POST", "/api/webhook/replay", "", Some(json!({ "delivery": "d1" })), 409),
        ("POST", "/api/webhook/explain", "", Some(json!({})), 400),
        ("POST", "/api/webhook/explain", "", Some(json!({ "endpoint": "none" })), 409),
        ("POST", "/api/team/add", "", Some(json!({ "id": "core", "title": "Core" })), 200),
        ("POST", "/api/team/add", "", Some(json!({ "id": "core" })), 400),
        ("GET", "/api/team/list", "", None, 200),
        ("POST", "/api/project/add", "", Some(json!({ "id": "site" })), 200),
        ("GET", "/api/project/list", "", None, 200),
        ("POST", "/api/project/rm", "", Some(json!({ "id": "site" })), 200),
        (
            "POST",
            "/api/user/add",
            "",
            Some(json!({ "id": "ada", "roles": ["admin"], "memberships": ["core"], "primary": "core" })),
            200,
        ),
        ("POST", "/api/user/add", "", Some(json!({ "id": "ben" })), 200),
        ("POST", "/api/user/add", "", Some(json!({ "id": "a b" })), 400),
        ("POST", "/api/user/token", "", Some(json!({ "id": "ada" })), 200),
        ("POST", "/api/user/token", "", Some(json!({ "id": "nobody" })), 400),
        ("GET", "/api/user/list", "", None, 200),
        ("POST", "/api/team/rm", "", Some(json!({ "id": "core" })), 400),
        ("POST", "/api/user/rm", "", Some(json!({ "id": "ada" })), 200),
        ("POST", "/api/team/rm", "", Some(json!({ "id": "core" })), 200),
    ];
    let mut served = BTreeSet::new();
    for (method, path, name, body, status) in &cases {
        let asked =
            path.split_once('{').map_or(format!("{path}{name}"), |(before, _)| format!("{before}{name}"));
        let answer = ask(&daemon, method, &asked, TOKEN, body.as_ref()).await;
        assert_eq!(answer.status, *status, "{method} {asked} {body:?}: {}", answer.body);
        assert_eq!(undocumented(&document, path, method, &answer), None, "{method} {asked} {body:?}");
        served.insert((*path, answer.status == 200));
        // Whoever is not known is refused as documented too, except where nobody has to be known.
        let answer = ask(&daemon, method, &asked, "wrong", body.as_ref()).await;
        let refused = match *path {
            "/api" | "/api/openapi.json" | "/api/health" | "/api/ready" => 200,
            path if path.starts_with("/api/sign-") => 403,
            _ => 401,
        };
        assert_eq!(
            (answer.status, undocumented(&document, path, method, &answer)),
            (refused, None),
            "{asked}"
        );
    }
    for path in document["paths"].as_object().unwrap().keys() {
        // A daemon in the foreground does not restart itself, one without endpoints has no deliveries and one without rules
        // no messages, nothing ran on this one, it is in no cluster, and this is no page of the console.
        let not_here = [
            "/api/cluster",
            "/api/cluster/drain",
            "/api/cluster/evict",
            "/api/restart",
            "/api/runs/{run}",
            "/api/automation/show/{automation}",
            "/api/sessions/{session}",
            "/api/session/approve/{session}",
            "/api/session/reject/{session}",
            "/api/session/answer/{session}",
            "/api/session/cancel/{session}",
            "/api/webhook/replay",
            "/api/webhook/explain",
            "/api/webhook/log/{endpoint}",
            "/api/webhook/test",
            "/api/notify/test",
            "/api/sign-in",
            "/api/sign-out",
        ]
        .contains(&&**path);
        assert!(served.contains(&(path, true)) || not_here, "{path} was not served");
    }
    assert!(!folder.read("log").contains("panicked"));
}

#[tokio::test]
async fn what_is_wrong_with_the_host_is_not_said_of_the_request() {
    let folder = folder();
    let daemon = folder.start();
    let config = folder.read("config.json");
    folder.write("config.json", "{");
    for path in ["/api/config", "/api/plugin/list", "/api/vault/list"] {
        let answer = ask(&daemon, "GET", path, TOKEN, None).await;
        assert!(answer.status == 409 && answer.body.contains("config.json"), "{path}: {}", answer.body);
    }
    folder.write("config.json", &config);
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let answer = ask(&daemon, "POST", "/api/plugin/enable", TOKEN, Some(&deep)).await;
    let says = "The body is JSON with more than 127 levels of lists and objects: line 1, column ";
    assert!(answer.status == 400 && answer.body.contains(says), "{}: {}", answer.status, answer.body);
    let long = json!({ "name": "x".repeat(1024 * 1024) });
    let answer = ask(&daemon, "POST", "/api/plugin/enable", TOKEN, Some(&long)).await;
    assert_eq!(answer.status, 413, "{}", answer.body);

    let alone = Folder::new(
        json!({ "http": true, "connectionToken": TOKEN, "plugins": [{ "name": "@ostler/echo" }] }),
    );
    let daemon = alone.start();
    let answer = ask(&daemon, "GET", "/api/user/list", TOKEN, None).await;
    assert!(answer.status == 409 && answer.body.contains("no users file"), "{}", answer.body);
}

#[tokio::test]
async fn the_document_is_found_without_a_token_and_says_where_the_api_is() {
    for (public, servers, below) in [
        (None, json!([{ "url": "/" }]), ""),
        (Some("https://x.example"), json!([{ "url": "/" }]), ""),
        (
            Some("https://x.example/ostler/"),
            json!([
                { "url": "/ostler", "description": "Under the public URL." },
                { "url": "/", "description": "At the address of the daemon." },
            ]),
            "/ostler",
        ),
    ] {
        let mut config = json!({
            "http": true, "connectionToken": TOKEN, "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/console" }],
        });
        if let Some(public) = public {
            config["publicUrl"] = public.into();
        }
        let folder = Folder::new(config);
        let daemon = folder.start();
        // It is known where it is once it is up.
        wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
        let (status, pointer) = daemon.ask("GET /api", "", "").await;
        assert_eq!((status, &pointer["openapi"]), (200, &json!(format!("{below}/api/openapi.json"))));
        let (status, document) = daemon.ask("GET /api/openapi.json", "", "").await;
        assert_eq!((status, &document["servers"]), (200, &servers), "{public:?}");
        // It is made once.
        let head = format!(
            "GET /api/openapi.json HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            daemon.address()
        );
        let again = daemon.exchange(head.as_bytes()).await;
        assert!(
            again.starts_with("HTTP/1.1 200 ") && again.contains("content-type: application/json\r\n"),
            "{again}"
        );
        assert_eq!(serde_json::from_str::<Value>(again.split_once("\r\n\r\n").unwrap().1).unwrap(), document);
        // Only these two.
        for path in ["/api/", "/api/me", "/api/openapi.json/x", "/api/cli-manifest"] {
            assert_eq!(daemon.ask(&format!("GET {path}"), "", "").await.0, 401, "{path}");
        }
        // A page gets its cookie for the path below which it has the host.
        for (origin, path) in [("https://x.example", below), (&*format!("http://{}", daemon.address()), "")] {
            let (host, body) = (daemon.address(), json!({ "token": TOKEN }).to_string());
            let length = body.len();
            let request = format!(
                "POST /api/sign-in HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nOrigin: {origin}\r\nSec-Fetch-Site: same-origin\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let answer = daemon.exchange(request.as_bytes()).await;
            let path = if path.is_empty() { "/" } else { path };
            assert!(answer.contains(&format!("; Path={path}; ")), "{public:?} {origin}: {answer}");
        }
        // A proxy that sends another Host is named, with the header that it has to send.
        let request = format!(
            "POST /api/sign-in HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nOrigin: https://x.example\r\nContent-Length: 0\r\n\r\n",
            daemon.address()
        );
        let answer = daemon.exchange(request.as_bytes()).await;
        for says in [format!("Host: {}", daemon.address()), "have it send Host: x.example".to_owned()] {
            assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(&says), "{answer}");
        }
    }
}

/// A command at another computer: on an empty configuration, with a token.
fn remote(elsewhere: &Folder, token: &str, url: &str, line: &[&str]) -> Command {
    let mut command = program();
    command.arg("--config-file").arg(elsewhere.path().join("config.json"));
    command.args(line).args(["--remote", url]).current_dir(elsewhere.path());
    command.env("XDG_STATE_HOME", elsewhere.state_home()).env("OSTLER_TOKEN", token);
    command
}

fn piped(command: &mut Command, text: &str) -> Ended {
    use std::io::Write;
    use std::process::Stdio;
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_command_prints_of_another_computer_what_it_prints_there() {
    let (folder, elsewhere) = (folder(), Folder::new(json!({})));
    let daemon = folder.start();
    let url = format!("http://{}", daemon.address());
    // It records where it listens after it has told.
    wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
    let there = |line: &[&str]| {
        let ended = ended(&mut remote(&elsewhere, TOKEN, &url, line));
        assert_eq!(ended.code, Some(0), "{line:?}: {ended:?}");
        ended
    };
    let same = |line: &[&str]| {
        let (here, there) = (folder.run(line), there(line));
        assert_eq!((&here.out, here.code), (&there.out, there.code), "{line:?}: {here:?} {there:?}");
        there.out
    };
    assert!(same(&["status"]).starts_with("ostler on ws://"));
    assert!(same(&["plugin", "list"]).contains("key: <set>"));
    same(&["plugin", "list", "--json"]);
    same(&["plugin", "list", "--quiet"]);
    assert!(same(&["plugin", "config", "notes"]).contains("level is not set: How much"));
    let set = there(&["plugin", "config", "notes", "level", "3"]);
    assert!(set.out.contains("level: 3") && set.err.contains("ostler restart"), "{set:?}");
    assert!(folder.read("config.json").contains(r#""level":3"#), "{}", folder.read("config.json"));
    there(&["plugin", "config", "unset", "notes", "level"]);
    assert!(there(&["plugin", "disable", "notes"]).out.starts_with("disabled "));
    assert!(there(&["plugin", "enable", "notes"]).out.contains("./notes.js"));
    assert_eq!(
        there(&["plugin", "install", "@ostler/webhook"]).out,
        "Installed @ostler/webhook, id webhook.\n"
    );
    assert_eq!(there(&["plugin", "update", "all"]).out, "Nothing to update.\n");
    assert_eq!(there(&["plugin", "remove", "@ostler/webhook", "--yes"]).out, "Removed @ostler/webhook.\n");
    let config = there(&["config"]);
    assert!(config.out.contains("connectionToken") && !config.out.contains(TOKEN), "{config:?}");

    let stored = piped(&mut remote(&elsewhere, TOKEN, &url, &["vault", "set", "host:k"]), "v\n");
    assert_eq!((stored.code, stored.out.as_str()), (Some(0), "Set host:k.\n"), "{stored:?}");
    assert_eq!(same(&["vault", "list"]), "host:k set\n");
    assert_eq!(there(&["vault", "delete", "host:k", "--yes"]).out, "Deleted host:k.\n");
    assert_eq!(there(&["team", "add", "core", "--title", "Core"]).out, "Added team core.\n");
    assert_eq!(there(&["project", "add", "site"]).out, "Added project site.\n");
    let ada = there(&["user", "add", "ada", "--role", "guest", "--member", "core"]);
    assert!(ada.out.trim().len() > 30 && ada.err.contains("not shown again"), "{ada:?}");
    same(&["user", "list"]);
    same(&["team", "list", "--json"]);
    same(&["project", "list"]);
    let token = there(&["user", "token", "ada"]).out;
    assert_ne!(token, ada.out);
    assert_eq!(same(&["usage", "user:ada"]).lines().count(), 3);
    // A guest holds no grant of the configuration.
    let refused = ended(&mut remote(&elsewhere, token.trim(), &url, &["plugin", "list"]));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("denied the request: ada may not config:settings here"), "{refused:?}");
    assert_eq!(there(&["user", "rm", "ada", "--yes"]).out, "Removed user ada.\n");
    assert_eq!(there(&["team", "rm", "core", "--yes"]).out, "Removed team core.\n");

    // Over the protocol.
    let sent = there(&["session", "send", "--new", "Hello"]);
    assert!(sent.out.contains("Hello"), "{sent:?}");
    there(&["session", "send", "--new", "Another"]);
    let listed = same(&["session", "list"]);
    let uris: Vec<&str> = listed.lines().map(|line| line.rsplit_once(": ").unwrap().0).collect();
    assert!(uris.len() == 2 && uris.iter().all(|uri| uri.starts_with("echo:/")), "{listed}");
    let id = uris[1].strip_prefix("echo:/").unwrap();
    let shown = same(&["session", "show", id]);
    assert!(shown.starts_with(uris[1]) && shown.ends_with("\n> Hello\n  Hello\n"), "{shown}");
    assert_eq!(same(&["session", "show", uris[1]]), shown);
    assert_eq!(same(&["session", "show", &id[..12]]), shown, "the beginning of an id");
    assert!(!same(&["session", "show", id, "-n", "0"]).contains("Hello\n  Hello"));
    // With the URLs of the sessions.
    let rows: Value = serde_json::from_str(&same(&["session", "list", "--json"])).unwrap();
    let row: Value = serde_json::from_str(&same(&["session", "show", id, "--json"])).unwrap();
    assert_eq!(row["url"], format!("{url}/api/sessions/{id}"));
    assert_eq!(rows["sessions"][1]["url"], row["url"]);
    for line in
        [&["session", "list", "--limit", "1"][..], &["session", "list", "--text", "another", "--quiet"]]
    {
        assert_eq!(same(line).lines().count(), 1, "{line:?}");
    }
    let page: Value = serde_json::from_str(&there(&["session", "list", "-n", "1", "--json"]).out).unwrap();
    let next = page["next"].as_str().unwrap();
    assert_eq!(same(&["session", "list", "--quiet", "--cursor", next]), format!("{}\n", uris[1]));
    for name in ["zz", "echo:/zz", ""] {
        let unknown = ended(&mut remote(&elsewhere, TOKEN, &url, &["session", "show", name]));
        assert_eq!(unknown.code, Some(2), "{name}: {unknown:?}");
    }
    same(&["automation", "list"]);
    same(&["agent", "list"]);
    // Nothing was done at this computer.
    assert_eq!(elsewhere.read("users.json") + &*elsewhere.read("vault.json"), "");
}

#[tokio::test]
async fn a_session_with_its_turns_is_as_the_document_says() {
    let folder = folder();
    let daemon = folder.start();
    let document = document(&daemon).await;
    let url = format!("http://{}", daemon.address());
    let elsewhere = Folder::new(json!({}));
    let send = |session: &[&str]| {
        let line = [&["session", "send"], session, &["--json"]].concat();
        let sent = ended(&mut remote(&elsewhere, TOKEN, &url, &line));
        serde_json::from_str::<Value>(&sent.out).unwrap()["session"].as_str().unwrap().to_owned()
    };
    let session = send(&["--new", "One"]);
    send(&[&session, "Two"]);
    let id = session.strip_prefix("echo:/").unwrap();
    for (query, turns, earlier) in [
        ("", None, None),
        ("?turns=0", None, None),
        ("?turns=1", Some(vec!["Two"]), Some(true)),
        ("?turns=2", Some(vec!["One", "Two"]), Some(false)),
        ("?turns=100", Some(vec!["One", "Two"]), Some(false)),
    ] {
        let answer = ask(&daemon, "GET", &format!("/api/sessions/{id}{query}"), TOKEN, None).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.body);
        assert_eq!(undocumented(&document, "/api/sessions/{session}", "GET", &answer), None, "{query}");
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((&body["uri"], body["chats"].as_array().unwrap().len()), (&json!(session), 1), "{query}");
        let texts = body["turns"].as_array().map(|turns| {
            turns.iter().map(|turn| turn["message"]["text"].as_str().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!((texts, body["earlierTurns"].as_bool()), (turns, earlier), "{query}");
    }
    for query in ["?turns=101", "?turns=-1", "?turns=x", "?limit=1"] {
        let answer = ask(&daemon, "GET", &format!("/api/sessions/{id}{query}"), TOKEN, None).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.body);
    }
}

#[test]
fn a_personal_token_reads_the_sessions_of_another_computer() {
    let (folder, elsewhere) = (folder(), Folder::new(json!({})));
    let users = json!({
        "roles": { "reader": ["session:list"] },
        "users": [
            { "id": "ada", "roles": ["member"], "token": ostler_engine::users::hash_of("adas") },
            { "id": "bob", "roles": ["reader"], "token": ostler_engine::users::hash_of("bobs") },
            { "id": "eve", "roles": [], "token": ostler_engine::users::hash_of("eves") },
        ],
    });
    folder.write("users.json", &users.to_string());
    let daemon = folder.start();
    let url = format!("http://{}", daemon.address());
    let as_user = |token: &str, line: &[&str]| ended(&mut remote(&elsewhere, token, &url, line));
    let sent = as_user(TOKEN, &["session", "send", "--new", "Hello", "--json"]);
    let session = serde_json::from_str::<Value>(&sent.out).unwrap()["session"].as_str().unwrap().to_owned();
    for token in ["adas", "bobs"] {
        let listed = as_user(token, &["session", "list", "--quiet"]);
        assert_eq!((listed.code, listed.out), (Some(0), format!("{session}\n")), "{}", listed.err);
    }
    let shown = as_user("adas", &["session", "show", &session]);
    assert!(shown.code == Some(0) && shown.out.ends_with("\n> Hello\n  Hello\n"), "{shown:?}");
    let refused = as_user("bobs", &["session", "show", &session]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("denied the request: bob may not chat:turns here"), "{refused:?}");
    assert_eq!(as_user("bobs", &["session", "show", &session, "-n", "0"]).code, Some(0));
    let refused = as_user("eves", &["session", "list"]);
    assert!(refused.code == Some(2) && refused.err.contains("eve may not session:list here"), "{refused:?}");
}

#[test]
fn a_daemon_at_a_url_restarts_and_is_waited_for() {
    let folder = folder();
    // It has to listen there again.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut config: Value = serde_json::from_str(&folder.read("config.json")).unwrap();
    config["port"] = json!(port);
    folder.write("config.json", &config.to_string());
    let started = folder.run(&["start", "--json"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let url = serde_json::from_str::<Value>(&started.out).unwrap()["url"].as_str().unwrap().to_owned();
    let restarted = ended(&mut remote(&folder, TOKEN, &url, &["restart"]));
    let stopped = folder.run(&["stop"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    assert!(restarted.out.starts_with(&format!("ostler on {url}")), "{restarted:?}");
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
}

#[test]
fn what_keeps_a_command_from_another_computer_is_said() {
    let (folder, elsewhere) = (folder(), Folder::new(json!({})));
    let daemon = folder.start();
    let url = format!("http://{}", daemon.address());
    let off = Folder::new(json!({ "connectionToken": TOKEN, "plugins": [{ "name": "@ostler/echo" }] }));
    let without = off.start();
    let without = format!("http://{}", without.address());
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let status = ["status"].as_slice();
    let sessions = ["session", "list"].as_slice();
    let agents = ["agent", "list"].as_slice();
    for (url, token, line, code, says) in [
        (nobody.as_str(), TOKEN, status, 1, "cannot reach the daemon at http://127.0.0.1:"),
        (&nobody, TOKEN, sessions, 1, "cannot reach the daemon at http://127.0.0.1:"),
        (&nobody, TOKEN, agents, 1, "cannot connect to ws://127.0.0.1:"),
        (&url, "wrong", status, 2, "does not accept the token of OSTLER_TOKEN or --token-file"),
        (&url, "wrong", sessions, 2, "does not accept the token of OSTLER_TOKEN or --token-file"),
        (&url, "wrong", agents, 2, "does not accept the token; set OSTLER_TOKEN or pass --token-file"),
        (&url, "wrong", &["webhook", "replay", "d1"], 2, "does not accept the token of OSTLER_TOKEN"),
        (
            &url,
            "wrong",
            &["webhook", "replay", "d1", "--follow"],
            2,
            "where the daemon's configuration sets trustToken",
        ),
        (&url, "", status, 2, "requires a token; set OSTLER_TOKEN or pass --token-file"),
        (&without, TOKEN, status, 1, "serves no HTTP API, or an older one"),
        (&without, TOKEN, sessions, 1, "serves no HTTP API, or an older one"),
        ("http://192.0.2.1", TOKEN, status, 2, "is not encrypted"),
        ("nonsense", TOKEN, status, 2, "--remote: nonsense is not a URL"),
        (&url, TOKEN, &["plugin", "config", "nope"], 2, "unknown plugin nope"),
        (&url, TOKEN, &["plugin", "install", "./x.js"], 2, "./x.js is a relative path"),
        (&url, TOKEN, &["vault", "delete", "host:x", "--yes"], 1, "the vault holds no host:x"),
        (&url, TOKEN, &["restart"], 1, "the daemon runs in the foreground and cannot restart itself"),
        (
            &url,
            TOKEN,
            &["start"],
            2,
            "--remote is not supported by ostler start: it works at this computer only",
        ),
        (&url, TOKEN, &["webhook", "rm", "in"], 2, "--remote is not supported by ostler webhook rm"),
        (&url, TOKEN, &[], 2, "--remote is not supported by ostler:"),
    ] {
        let ended = ended(&mut remote(&elsewhere, token, url, line));
        assert_eq!(ended.code, Some(code), "{line:?}: {ended:?}");
        assert!(ended.err.contains(says) && !ended.err.contains(TOKEN), "{line:?}: {ended:?}");
        assert_eq!(ended.out, "");
    }
    elsewhere.write("token", &format!("{TOKEN}\n"));
    let mut of_file = remote(&elsewhere, "wrong", &url, &["status", "--token-file", "token"]);
    assert_eq!(ended(&mut of_file).code, Some(0));
    let alone = elsewhere.run(&["status", "--token-file", "token"]);
    assert!(alone.code == Some(2) && alone.err.contains("--token-file requires --remote"), "{alone:?}");
}

#[test]
fn endpoints_and_the_log_of_another_computer_are_shown() {
    let (folder, elsewhere) = (Folder::with_webhook("hello"), Folder::new(json!({})));
    let plugins = json!([{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }]);
    let config = json!({ "port": 0, "http": true, "connectionToken": TOKEN, "plugins": plugins });
    folder.write("config.json", &config.to_string());
    let daemon = folder.start();
    let url = format!("http://{}", daemon.address());
    wait_for(|| (folder.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
    let there = |line: &[&str]| ended(&mut remote(&elsewhere, TOKEN, &url, line));
    let same = |line: &[&str]| {
        let (here, there) = (folder.run(line), there(line));
        assert_eq!((&here.out, here.code), (&there.out, there.code), "{line:?}: {here:?} {there:?}");
        there.out
    };
    assert!(same(&["webhook", "list"]).starts_with("in: automations, "));
    assert_eq!(same(&["webhook", "log", "in"]), "no calls of in recorded yet\n");
    let followed = there(&["webhook", "test", "in", "--follow"]);
    assert_eq!(followed.code, Some(0), "{followed:?}");
    assert!(
        followed.out.contains(" returned 202\n") && followed.out.ends_with(" completed\n"),
        "{followed:?}"
    );
    let called = there(&["webhook", "test", "in", "--body", r#"{ "n": 2 }"#, "--json"]);
    let called: Value = serde_json::from_str(&called.out).unwrap();
    assert_eq!((&called["status"], &called["answer"]), (&json!(202), &json!({ "endpoint": "in" })));
    // The second call's run ends later.
    let log = wait_for(|| {
        let log = there(&["webhook", "log", "in"]).out;
        (log.matches(" completed in echo:/").count() == 2).then_some(log)
    });
    assert_eq!(log.expect("the outcomes of both calls").matches(" 202 ").count(), 2);
    same(&["webhook", "log", "in"]);
    same(&["webhook", "list", "--quiet"]);
    for verb in ["test", "log"] {
        let unknown = there(&["webhook", verb, "inn"]);
        assert!(unknown.code == Some(2) && unknown.err.contains("unknown endpoint inn"), "{unknown:?}");
    }
    let all = there(&["logs"]);
    assert!(all.code == Some(0) && all.out.contains("plugin webhook from bundled"), "{all:?}");
    assert_eq!(there(&["logs", "-n", "1"]).out.lines().count(), 1);
}

#[tokio::test]
async fn a_delivery_is_replayed_as_the_document_says() {
    let folder = Folder::new(json!({
        "http": true, "connectionToken": TOKEN, "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/webhook" }],
    }));
    let vault = json!({ "host:hook": "s3cret", "host:webhook-bodies": "0123456789abcdef" });
    folder.write("vault.json", &vault.to_string());
    let record = "---\nid: fire\nautomation: true\nsecret: host:hook\nkeepBodies: 7d\n---\n";
    folder.write("webhooks/fire.md", record);
    let daemon = folder.start();
    let body = json!({ "what": "it" });
    assert_eq!(ask(&daemon, "POST", "/plugins/webhook/fire", "s3cret", Some(&body)).await.status, 202);
    let log = folder.path().join("webhook-deliveries/fire.md");
    let delivery = crate::support::wait_for(|| {
        let text = std::fs::read_to_string(&log).ok()?;
        let is_id = |word: &&str| word.len() == 33 && word.starts_with('d');
        text.split(|c: char| !c.is_ascii_alphanumeric()).find(is_id).map(str::to_owned)
    });
    let body = json!({ "delivery": delivery.expect("a row of the log") });
    let path = "/api/webhook/replay";
    let answer = ask(&daemon, "POST", path, TOKEN, Some(&body)).await;
    let document = document(&daemon).await;
    assert_eq!(
        (answer.status, undocumented(&document, path, "POST", &answer)),
        (200, None),
        "{}",
        answer.body
    );
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((&answer["replays"], &answer["status"]), (&body["delivery"], &json!(202)));
    let url = format!("http://{}", daemon.address());
    let id = body["delivery"].as_str().unwrap();
    let replayed = ended(&mut remote(&Folder::new(json!({})), TOKEN, &url, &["webhook", "replay", id]));
    assert!(replayed.out.starts_with(&format!("replayed {id} on fire: 202; no automation")), "{replayed:?}");
    let answer = ask(&daemon, "POST", path, TOKEN, Some(&json!({ "delivery": "nothing" }))).await;
    assert_eq!(
        (answer.status, undocumented(&document, path, "POST", &answer)),
        (400, None),
        "{}",
        answer.body
    );
}
