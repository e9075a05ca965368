//! The plugin for pull requests: a real daemon, real repositories, and code hosts that are recorded answers on loopback.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::support::{Client, Daemon, Folder, wait_for};
use serde_json::{Value, json};

/// A request that a code host received.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// `GET /path`, without the query.
    pub(super) head: String,
    pub(super) query: String,
    headers: HashMap<String, String>,
    pub(super) body: Value,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A response: its status, lines of headers, and a body.
pub(super) type Reply = (u16, Vec<(&'static str, String)>, Value);

pub(super) fn ok(body: Value) -> Reply {
    (200, Vec::new(), body)
}

pub(super) fn status(status: u16, message: &str) -> Reply {
    (status, Vec::new(), json!({ "message": message }))
}

type Answers = Box<dyn FnMut(&Seen) -> Option<Reply> + Send>;

/// A code host: what it answers, and what it was asked. `None` leaves the request open for ever.
#[derive(Clone)]
pub(super) struct Forge {
    pub(super) url: String,
    answers: Arc<Mutex<Answers>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Forge {
    pub(super) fn new(answers: impl FnMut(&Seen) -> Option<Reply> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let forge = Self { url, answers: Arc::new(Mutex::new(Box::new(answers))), seen: Arc::default() };
        let serving = forge.clone();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming().flatten() {
                let left_open = serving.serve(stream);
                open.extend(left_open);
            }
        });
        forge
    }

    /// From a table of `METHOD /path` and bodies; everything else is not there.
    fn of(table: Vec<(&'static str, Value)>) -> Self {
        let table: HashMap<_, _> = table.into_iter().collect();
        Self::new(move |seen| {
            Some(table.get(seen.head.as_str()).map_or(status(404, "Not Found"), |body| ok(body.clone())))
        })
    }

    pub(super) fn answers(&self, answers: impl FnMut(&Seen) -> Option<Reply> + Send + 'static) {
        *self.answers.lock().unwrap() = Box::new(answers);
    }

    fn serve(&self, stream: TcpStream) -> Option<TcpStream> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let seen = Seen {
            head: format!("{method} {path}"),
            query: query.to_owned(),
            headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        self.seen.lock().unwrap().push(seen.clone());
        let reply = (self.answers.lock().unwrap())(&seen);
        let mut stream = reader.into_inner();
        let Some((status, headers, body)) = reply else { return Some(stream) };
        let body = if status == 304 { String::new() } else { body.to_string() };
        let mut text =
            format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let _ = stream.write_all(format!("{text}\r\n{body}").as_bytes());
        None
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The requests with this head.
    pub(super) fn asked(&self, head: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.head == head).collect()
    }
}

/// A pull request as GitHub and Forgejo have it.
pub(super) fn row(base: &str, head: &str, branch: &str, number: u32, state: &str) -> Value {
    let (state, merged_at) = match state {
        "merged" => ("closed", json!("2026-11-22T10:00:00Z")),
        state => (state, Value::Null),
    };
    let end = |repo: &str, branch: &str| {
        json!({ "ref": branch, "label": branch, "sha": format!("{number:040}"),
            "repo": { "full_name": repo, "default_branch": "main" } })
    };
    json!({ "number": number, "html_url": format!("https://github.com/{base}/pull/{number}"), "state": state,
        "merged_at": merged_at, "head": end(head, branch), "base": end(base, "main") })
}

pub(super) const PULLS: &str = "GET /repos/inn/stable/pulls";
pub(super) const CREATE: &str = "POST /repos/inn/stable/pulls";
pub(super) const REPO: &str = "GET /repos/inn/stable";

/// A repository on a branch `feature`, in a folder that a daemon serves.
struct Yard {
    folder: Folder,
    repo: PathBuf,
}

impl Yard {
    fn new(remotes: &[(&str, &str)], options: Value) -> Self {
        let folder = Folder::new(json!({}));
        let repo = folder.path().canonicalize().unwrap().join("yard/repo");
        fs::create_dir_all(&repo).unwrap();
        let config = json!({ "port": 0, "deltaWindowMs": 0, "paths": [repo.parent().unwrap()], "plugins": [
            { "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "@ostler/github", "options": options }
        ] });
        folder.write("config.json", &config.to_string());
        let yard = Self { folder, repo };
        yard.git(&["init", "-q", "-b", "main"]);
        yard.git(&["commit", "-q", "--allow-empty", "-m", "First"]);
        yard.git(&["checkout", "-q", "-b", "feature"]);
        for (name, url) in remotes {
            yard.git(&["remote", "add", name, url]);
        }
        yard
    }

    /// On `github.com`, whose API is the forge.
    fn on(forge: &Forge, remotes: &[(&str, &str)]) -> Self {
        Self::new(remotes, json!({ "hosts": { "github.com": { "api": forge.url } } }))
    }

    fn git(&self, arguments: &[&str]) {
        git(&self.repo, arguments);
    }

    /// A program `gh` that knows this token.
    fn gh(&self, token: &str) {
        let script =
            format!("#!/bin/sh\necho \"$@\" >> \"$0.log\"\ntest -n '{token}' || exit 1\necho '{token}'\n");
        self.folder.write("bin/gh", &script);
        fs::set_permissions(self.folder.path().join("bin/gh"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&self) -> Daemon {
        let mut command = self.folder.command(&[]);
        environment(&mut command);
        let path = std::env::var("PATH").unwrap();
        // Without a `gh` of this machine.
        let own = self.folder.path().join("bin");
        let others = path.split(':').filter(|folder| !Path::new(folder).join("gh").exists());
        let path: Vec<&str> = [own.to_str().unwrap()].into_iter().chain(others).collect();
        command.env("PATH", path.join(":"));
        self.folder.started(command)
    }

    /// A daemon, and a client with a session on the repository.
    async fn session(&self) -> (Daemon, Client) {
        let daemon = self.start();
        let mut client = daemon.initialized("c").await;
        create(&mut client, "one", &self.repo).await;
        (daemon, client)
    }

    /// The log, without secrets.
    fn log(&self) -> String {
        let log = self.folder.read("log");
        assert!(!log.contains("SECRET"), "{log}");
        log
    }
}

fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    environment(&mut command);
    let out = command.arg("-C").arg(directory).args(arguments).output().unwrap();
    assert!(out.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn environment(command: &mut Command) {
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    // The daemon's git does not inherit `GIT_AUTHOR_NAME`.
    command.env("GIT_CONFIG_COUNT", "2");
    for (at, (name, value)) in [("name", "Ada"), ("email", "ada@example.com")].into_iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{at}"), format!("user.{name}"));
        command.env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
}

const ONE: &str = "echo:/one";

async fn create(client: &mut Client, id: &str, directory: &Path) {
    let params = json!({ "channel": format!("echo:/{id}"), "provider": "echo",
        "workingDirectories": [format!("file://{}", directory.display())] });
    client.request("createSession", params).await.unwrap();
}

/// The `_meta` of the session as soon as it is as it should be.
async fn meta(daemon: &Daemon, is: impl Fn(&Value) -> bool) -> Value {
    let mut client = daemon.initialized("reader").await;
    let mut meta = client.subscribe(ONE).await["_meta"].clone();
    while !is(&meta) {
        meta = client.actions_until("session/metaChanged").await.pop().unwrap()["action"]["_meta"].clone();
    }
    meta
}

/// The pull request of the session as soon as there is one.
async fn pull_request(daemon: &Daemon) -> Value {
    meta(daemon, |meta| !meta["github"].is_null()).await["github"].clone()
}

/// Runs a turn to its end.
async fn turn(client: &mut Client, id: &str) {
    let chat = ostler_protocol::uri::default_chat(ONE);
    client.subscribe(&chat).await;
    let action = json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": "Hello" } });
    client.dispatch(&chat, 1, action).await;
    client.actions_until("chat/turnComplete").await;
}

async fn propose(client: &mut Client, params: Value) -> Result<Value, Value> {
    let mut all = json!({ "channel": ONE, "title": "Oats" });
    all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    client.request("x-ostler/pull-request/create", all).await
}

async fn lend(client: &mut Client, forge: &Forge, token: &str) {
    let params = json!({ "resource": format!("{}/repos", forge.url), "token": token });
    client.request("authenticate", params).await.unwrap();
}

const ORIGIN: (&str, &str) = ("origin", "https://github.com/inn/stable.git");

#[tokio::test]
async fn the_pull_request_of_a_branch_is_in_its_session_and_asked_for_again_after_a_turn() {
    let checks = "GET /repos/inn/stable/commits/0000000000000000000000000000000000000007";
    let table = move |state: &'static str| {
        move |seen: &Seen| {
            let etag = format!("\"{state}\"");
            Some(match seen.head.as_str() {
                PULLS if seen.header("if-none-match") == etag => (304, Vec::new(), Value::Null),
                PULLS => {
                    (200, vec![("ETag", etag)], json!([row("inn/stable", "inn/stable", "feature", 7, state)]))
                }
                head if head == format!("{checks}/check-runs") => ok(json!({ "check_runs": [
                    { "status": "completed", "conclusion": "success" }, { "status": "completed", "conclusion": "skipped" },
                    { "status": "completed", "conclusion": "timed_out" }, { "status": "in_progress", "conclusion": null } ] })),
                head if head == format!("{checks}/status") => {
                    ok(json!({ "statuses": [{ "state": "pending" }, { "state": "success" }] }))
                }
                _ => status(404, "Not Found"),
            })
        }
    };
    let forge = Forge::new(table("open"));
    let yard = Yard::on(&forge, &[ORIGIN]);
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    let root = client.subscribe("ahp-root://").await;
    assert_eq!(
        root["agents"][0]["protectedResources"],
        json!([{ "resource": format!("{}/repos", forge.url), "resource_name": "GitHub Repository",
            "authorization_servers": ["https://github.com/login/oauth"], "scopes_supported": ["repo"], "required": false }])
    );
    lend(&mut client, &forge, "lent-SECRET").await;
    create(&mut client, "one", &yard.repo).await;
    let url = "https://github.com/inn/stable/pull/7";
    let expected = json!({ "owner": "inn", "repo": "stable", "pullRequestUrls": [url], "pullRequestBranchName": "feature",
        "pullRequestState": "open", "pullRequestStateUrl": url,
        "ostler.checks": { "state": "failed", "passed": 3, "failed": 1, "pending": 2 } });
    let found = meta(&daemon, |meta| !meta["github"].is_null() && !meta["git"].is_null()).await;
    let directory = format!("file://{}", yard.repo.display());
    assert_eq!(found["github"], expected);
    assert_eq!(found["githubData"], json!({ &directory: expected }));
    assert_eq!(found["workingDirectoryKeys"], json!([directory]));
    assert_eq!(found["git"]["branchName"], "feature");
    let asked = forge.asked(PULLS);
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(
        asked[0].query, "head=inn%3Afeature&state=all&sort=created&direction=desc&per_page=30",
        "the branch as it is pushed"
    );
    assert!(forge.seen().iter().all(|seen| seen.header("authorization") == "Bearer lent-SECRET"));
    assert!(forge.seen().iter().all(|seen| seen.header("user-agent").starts_with("ostler/")));

    // After a turn only what has changed is sent.
    turn(&mut client, "t1").await;
    wait_for(|| (forge.asked(PULLS).len() == 2).then_some(())).expect("asked again");
    assert_eq!(forge.asked(PULLS)[1].header("if-none-match"), "\"open\"");
    forge.answers(table("merged"));
    turn(&mut client, "t2").await;
    let merged = meta(&daemon, |meta| meta["github"]["pullRequestState"] == "merged").await;
    assert_eq!(merged["github"].get("ostler.checks"), None, "those of a merged one are not asked for");

    // It stays after a restart, also while the host does not answer.
    forge.answers(|_| None);
    drop(daemon);
    let daemon = yard.start();
    assert_eq!(pull_request(&daemon).await["pullRequestState"], "merged");
    assert_eq!(meta(&daemon, |meta| !meta["git"].is_null()).await["git"]["branchName"], "feature");
    yard.log();
}

#[tokio::test]
async fn a_branch_of_a_fork_is_found_where_it_is_proposed() {
    let forge = Forge::of(vec![
        ("GET /repos/ada/stable/pulls", json!([])),
        (
            "GET /repos/ada/stable",
            json!({ "full_name": "ada/stable", "default_branch": "main",
                "parent": { "full_name": "inn/stable", "default_branch": "trunk" } }),
        ),
        (
            PULLS,
            json!([
                row("inn/stable", "inn/stable", "feature", 4, "open"),
                row("inn/stable", "ada/stable", "feature-2", 5, "open"),
                row("inn/stable", "ada/stable", "feature", 6, "closed"),
                row("inn/stable", "ada/stable", "feature", 3, "open"),
            ]),
        ),
        (CREATE, row("inn/stable", "ada/stable", "feature", 8, "open")),
    ]);
    let fork = ("origin", "git@github.com:ada/stable.git");
    for remotes in [&[fork][..], &[fork, ("upstream", "ssh://git@ssh.github.com:443/inn/stable")]] {
        forge.seen.lock().unwrap().clear();
        let yard = Yard::on(&forge, remotes);
        yard.gh("gh-SECRET");
        let (daemon, mut client) = yard.session().await;
        let found = pull_request(&daemon).await;
        assert_eq!(
            found["pullRequestUrls"],
            json!(["https://github.com/inn/stable/pull/3"]),
            "of this fork, and open"
        );
        assert_eq!((&found["owner"], &found["repo"]), (&json!("inn"), &json!("stable")));
        assert_eq!(forge.asked(PULLS)[0].query.split('&').next(), Some("head=ada%3Afeature"));
        let has_parent_asked = !forge.asked("GET /repos/ada/stable").is_empty();
        assert_eq!(has_parent_asked, remotes.len() == 1, "a remote names it already");
        if remotes.len() == 1 {
            propose(&mut client, json!({ "body": "For the horses" })).await.unwrap();
            let sent = &forge.asked(CREATE)[0];
            assert_eq!(
                sent.body,
                json!({ "title": "Oats", "body": "For the horses", "head": "ada:feature", "base": "trunk", "draft": false })
            );
        }
    }
}

#[tokio::test]
async fn a_pull_request_is_created_once() {
    let forge = Forge::of(vec![
        (PULLS, json!([])),
        (REPO, json!({ "full_name": "inn/stable", "default_branch": "main" })),
        (CREATE, row("inn/stable", "inn/stable", "feature", 8, "open")),
    ]);
    let yard = Yard::on(&forge, &[ORIGIN]);
    yard.gh("");
    let (daemon, mut client) = yard.session().await;

    // Without a token nothing is sent, and a client learns which one is missing.
    let refused = propose(&mut client, json!({})).await.unwrap_err();
    assert_eq!(
        (&refused["code"], &refused["data"]["resources"][0]["resource"]),
        (&json!(-32007), &json!(format!("{}/repos", forge.url)))
    );
    let message = refused["message"].as_str().unwrap();
    assert_eq!(
        message,
        "creating a pull request on github.com needs a token: sign in with the client, set hosts.\"github.com\".token in the \
         options of @ostler/github, or run gh auth login --hostname github.com"
    );
    assert!(forge.asked(CREATE).is_empty());

    // With the token of the client that asks, though the session was created without one.
    lend(&mut client, &forge, "lent-SECRET").await;
    let made = propose(&mut client, json!({ "base": "next", "draft": true })).await.unwrap();
    assert_eq!(made["url"], "https://github.com/inn/stable/pull/8");
    let sent = &forge.asked(CREATE)[0];
    assert_eq!(sent.header("authorization"), "Bearer lent-SECRET");
    assert_eq!(
        sent.body,
        json!({ "title": "Oats", "body": null, "head": "feature", "base": "next", "draft": true })
    );
    assert_eq!(pull_request(&daemon).await["pullRequestState"], "open", "it is in the session");

    // One that is there is returned.
    forge.answers(|seen| {
        Some(match seen.head.as_str() {
            REPO => ok(json!({ "full_name": "inn/stable", "default_branch": "main" })),
            PULLS => ok(json!([row("inn/stable", "inn/stable", "feature", 5, "open")])),
            CREATE => (
                422,
                Vec::new(),
                json!({ "message": "Validation Failed", "errors": [{ "message": "A pull request already exists for inn:feature." }] }),
            ),
            _ => status(404, "Not Found"),
        })
    });
    let made = propose(&mut client, json!({})).await.unwrap();
    assert_eq!(made["url"], "https://github.com/inn/stable/pull/5");

    // What is refused says what to do.
    let mut refusal = async |branches: u16, reply: Reply| {
        let reply = Mutex::new(reply);
        forge.answers(move |seen| {
            Some(match seen.head.as_str() {
                REPO => ok(json!({ "full_name": "inn/stable", "default_branch": "main" })),
                PULLS => ok(json!([])),
                CREATE => reply.lock().unwrap().clone(),
                "GET /repos/inn/stable/branches/feature" => status(branches, "x"),
                _ => status(404, "Not Found"),
            })
        });
        let refused = propose(&mut client, json!({})).await.unwrap_err();
        (refused["code"].as_i64().unwrap(), refused["message"].as_str().unwrap().to_owned())
    };
    let invalid =
        |errors: Value| (422, Vec::new(), json!({ "message": "Validation Failed", "errors": errors }));
    assert_eq!(
        refusal(404, invalid(json!([{ "field": "head", "code": "invalid" }]))).await,
        (
            -32602,
            "the branch feature is not on inn/stable (github.com); push it with git push --set-upstream origin feature"
                .to_owned()
        )
    );
    assert_eq!(
        refusal(200, invalid(json!([{ "message": "No commits between main and feature" }]))).await,
        (
            -32602,
            "github.com does not create the pull request from feature into main of inn/stable: Validation Failed: No commits \
             between main and feature"
                .to_owned()
        )
    );
    let (code, message) = refusal(200, status(403, "Resource not accessible by lent-SECRET")).await;
    assert_eq!(
        (code, message.as_str()),
        (
            -32009,
            "github.com does not allow the client's token to use the pull requests of inn/stable (Resource not accessible by \
             <set>); give it that right, or authorize it for the organization"
        )
    );
    let (code, message) = refusal(200, status(401, "Bad credentials")).await;
    assert_eq!(
        (code, message.as_str()),
        (
            -32007,
            "github.com does not accept the client's token: it has expired or was revoked; sign in again"
        )
    );
    let (_, message) = refusal(200, (502, Vec::new(), json!("a page"))).await;
    assert_eq!(message, "github.com has a problem: response 502; try again later");
    let (_, message) = refusal(200, ok(json!("a page"))).await;
    assert_eq!(
        message,
        format!(
            "github.com: the response of {} is not that of a GitHub API (line 1, column 8); check hosts.\"github.com\".api and kind",
            forge.url
        )
    );
    yard.git(&["checkout", "-q", "main"]);
    turn(&mut client, "t1").await;
    meta(&daemon, |meta| meta["git"]["branchName"] == "main").await;
    let refused = propose(&mut client, json!({})).await.unwrap_err();
    assert_eq!(
        refused["message"],
        "main is the branch that a pull request of inn/stable goes to; create another branch with git switch -c <name>"
    );
    yard.log();
}

#[tokio::test]
async fn what_has_no_place_on_a_code_host_asks_none() {
    let forge = Forge::of(Vec::new());
    let bare = |remotes: &[(&str, &str)]| Yard::on(&forge, remotes);
    let detached = bare(&[ORIGIN]);
    detached.git(&["checkout", "-q", "--detach"]);
    let outside = bare(&[]);
    fs::remove_dir_all(outside.repo.join(".git")).unwrap();
    let pushed_elsewhere = bare(&[ORIGIN]);
    pushed_elsewhere.git(&["remote", "set-url", "--push", "origin", "https://me:SECRET@code.example/stable"]);
    for (yard, why) in [
        (detached, "has no branch checked out; create one with git switch -c <name>"),
        (outside, "is not in a git repository"),
        (bare(&[]), "has no remote on a code host; add one with git remote add origin <url>"),
        (
            bare(&[("origin", "/srv/git/inn/stable.git")]),
            "/srv/git/inn/stable.git, is not on a code host; change it with git remote set-url origin <url>",
        ),
        (pushed_elsewhere, "the push URL of the remote origin of"),
        (
            bare(&[("origin", "https://me:SECRET@code.example/inn/stable.git")]),
            "is on code.example, which is not configured; add hosts.\"code.example\" to the options of @ostler/github",
        ),
    ] {
        let (daemon, mut client) = yard.session().await;
        turn(&mut client, "t1").await;
        let refused = propose(&mut client, json!({})).await.unwrap_err();
        assert_eq!(refused["code"], -32602, "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(yard.repo.to_str().unwrap()), "{refused}");
        assert!(!refused.to_string().contains("SECRET"));
        // A look that has ended is followed by its facts.
        let found = meta(&daemon, |_| true).await;
        assert!(found["github"].is_null(), "{found}");
        assert!(!yard.log().contains("its pull request"), "{}", yard.log());
    }
    assert!(forge.seen().is_empty(), "{:?}", forge.seen());
}

#[tokio::test]
async fn the_token_of_gh_is_used_and_a_newer_one_when_it_is_not_accepted() {
    let forge = Forge::new(|seen| {
        Some(match (seen.header("authorization"), seen.head.as_str()) {
            ("Bearer new-SECRET", PULLS) => {
                ok(json!([row("inn/stable", "inn/stable", "feature", 2, "closed")]))
            }
            ("Bearer new-SECRET", _) => status(404, "Not Found"),
            _ => status(401, "Bad credentials"),
        })
    });
    let yard = Yard::on(&forge, &[ORIGIN]);
    yard.gh("old-SECRET");
    let (daemon, mut client) = yard.session().await;
    let line = yard.folder.wait_for_log("its pull request");
    assert!(
        line.ends_with(
            "echo:/one: its pull request: github.com does not accept the token of gh: it has expired or was revoked; run gh auth \
             login --hostname github.com"
        ),
        "{line}"
    );
    // The same problem is told once.
    turn(&mut client, "t1").await;
    wait_for(|| (forge.asked(PULLS).len() == 2).then_some(())).expect("asked again");
    yard.gh("new-SECRET");
    turn(&mut client, "t2").await;
    assert_eq!(pull_request(&daemon).await["pullRequestState"], "closed");
    assert_eq!(yard.folder.read("bin/gh.log").lines().next(), Some("auth token --hostname github.com"));
    assert_eq!(yard.log().matches("its pull request").count(), 1, "{}", yard.log());
}

#[tokio::test]
async fn limits_of_a_host_are_respected() {
    let forge =
        Forge::new(|_| Some((403, vec![("Retry-After", "2".to_owned())], json!({ "message": "slow down" }))));
    let yard = Yard::on(&forge, &[ORIGIN]);
    // Before the first answer, with which the two seconds begin.
    let begun = std::time::Instant::now();
    let (daemon, mut client) = yard.session().await;
    let line = yard.folder.wait_for_log("its pull request");
    assert!(line.contains("github.com allows no more requests until "), "{line}");
    assert!(line.contains(" UTC; with a token there are more: sign in with the client"), "{line}");
    turn(&mut client, "t1").await;
    turn(&mut client, "t2").await;
    // Another credential has limits of its own.
    lend(&mut client, &forge, "lent-SECRET").await;
    let refused = propose(&mut client, json!({})).await.unwrap_err();
    assert!(
        refused["message"].as_str().unwrap().starts_with("github.com allows no more requests until "),
        "{refused}"
    );
    let early = forge.seen().len();
    if begun.elapsed().as_millis() < 1500 {
        assert_eq!(early, 2, "one for each credential: {:?}", forge.seen());
    }
    forge.answers(|seen| {
        Some(match seen.head.as_str() {
            PULLS => ok(json!([row("inn/stable", "inn/stable", "feature", 9, "closed")])),
            _ => status(404, "Not Found"),
        })
    });
    let answered = std::time::Instant::now();
    wait_for(|| (answered.elapsed().as_secs() >= 3).then_some(())).expect("the time to pass");
    turn(&mut client, "t3").await;
    assert_eq!(pull_request(&daemon).await["pullRequestState"], "closed");
}

#[tokio::test]
async fn pages_and_renamed_repositories_are_followed_but_no_other_host() {
    let other = Forge::of(vec![(PULLS, json!([row("inn/stable", "inn/stable", "feature", 66, "open")]))]);
    let elsewhere = other.url.clone();
    let forge = Forge::new(|_| None);
    let own = forge.url.clone();
    forge.answers(move |seen| {
        let link = |to: &str| vec![("Link", format!("<{to}>; rel=\"next\", <{own}/x>; rel=\"last\""))];
        Some(match (seen.head.as_str(), seen.query.as_str()) {
            (PULLS, query) => {
                let to = format!("/repositories/1/pulls?{query}");
                (301, vec![("Location", to)], Value::Null)
            }
            ("GET /repositories/1/pulls", query)
                if query.contains("page=2") && !query.contains("per_page=30") =>
            {
                (
                    200,
                    link(&format!("{elsewhere}/repos/inn/stable/pulls")),
                    json!([row("inn/manger", "inn/manger", "feature", 1, "open")]),
                )
            }
            ("GET /repositories/1/pulls", _) => (
                200,
                link(&format!("{own}/repositories/1/pulls?page=2")),
                json!([row("inn/manger", "inn/manger", "feature", 2, "closed")]),
            ),
            ("GET /repos/inn/manger/commits/0000000000000000000000000000000000000001/status", _) => {
                (302, vec![("Location", format!("{elsewhere}/repos/inn/stable/pulls"))], Value::Null)
            }
            _ => status(404, "Not Found"),
        })
    });
    let yard = Yard::on(&forge, &[ORIGIN]);
    yard.gh("gh-SECRET");
    let (daemon, _client) = yard.session().await;
    let found = pull_request(&daemon).await;
    assert_eq!(found["pullRequestUrls"], json!(["https://github.com/inn/manger/pull/1"]));
    assert_eq!(found["repo"], "manger", "as it is called now");
    assert!(other.seen().is_empty(), "a token goes to no other host: {:?}", other.seen());
}

#[tokio::test]
async fn a_host_that_does_not_answer_delays_nothing_else() {
    let forge = Forge::new(|_| None);
    let yard = Yard::on(&forge, &[ORIGIN]);
    let (daemon, mut client) = yard.session().await;
    wait_for(|| (!forge.seen().is_empty()).then_some(())).expect("it is asked");
    let found = meta(&daemon, |meta| !meta["git"].is_null()).await;
    assert_eq!((&found["git"]["branchName"], &found["github"]), (&json!("feature"), &Value::Null));
    turn(&mut client, "t1").await;
    let state = client.subscribe(ONE).await;
    assert!(state["changesets"].as_array().is_some_and(|changesets| !changesets.is_empty()), "{state}");
    assert!(!yard.log().contains("did not respond"), "all of that while it is asked");
    let line = yard.folder.wait_for_log("its pull request");
    assert!(
        line.ends_with("github.com did not respond within 10 seconds; it is asked again after the next turn"),
        "{line}"
    );
}

#[tokio::test]
async fn merge_requests_of_gitlab_are_found_and_created() {
    let project = "/projects/inn%2Fgroup%2Fstable";
    let open = json!({ "iid": 7, "web_url": "https://lab.example/inn/group/stable/-/merge_requests/7", "state": "opened",
        "source_project_id": 1 });
    let lab = Forge::new(move |seen| {
        let path = |rest: &str| format!("{project}{rest}");
        Some(match seen.head.split_once(' ').unwrap() {
            ("GET", at) if at == path("") => {
                ok(json!({ "id": 1, "path_with_namespace": "inn/group/stable", "default_branch": "main" }))
            }
            ("GET", at) if at == path("/merge_requests") => {
                let mut other = open.clone();
                other["source_project_id"] = json!(2);
                other["web_url"] = json!("https://lab.example/other");
                ok(json!([other, open]))
            }
            ("GET", at) if at == path("/merge_requests/7") => {
                ok(json!({ "head_pipeline": { "status": "success" } }))
            }
            ("POST", at) if at == path("/merge_requests") => {
                (409, Vec::new(), json!({ "message": ["Another open merge request already exists: !7"] }))
            }
            _ => status(404, "404 Not Found"),
        })
    });
    let hub = Forge::of(Vec::new());
    let token = json!({ "$secret": "host:lab" });
    let hosts = json!({ "github.com": { "api": hub.url }, "lab.example": { "kind": "gitlab", "api": lab.url, "token": token } });
    let yard = Yard::new(&[("origin", "git@lab.example:inn/group/stable.git")], json!({ "hosts": hosts }));
    yard.folder.write("vault.json", r#"{ "host:lab": "lab-SECRET" }"#);
    yard.gh("gh-SECRET");
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    lend(&mut client, &hub, "lent-SECRET").await;
    create(&mut client, "one", &yard.repo).await;
    let found = pull_request(&daemon).await;
    let url = "https://lab.example/inn/group/stable/-/merge_requests/7";
    assert_eq!(
        found,
        json!({ "owner": "inn/group", "repo": "stable", "pullRequestUrls": [url], "pullRequestBranchName": "feature",
            "pullRequestState": "open", "pullRequestStateUrl": url,
            "ostler.checks": { "state": "passed", "passed": 1, "failed": 0, "pending": 0 } })
    );
    let made = propose(&mut client, json!({ "draft": true })).await.unwrap();
    assert_eq!(made["url"], url, "the one that is open");
    let sent = &lab.asked(&format!("POST {project}/merge_requests"))[0];
    assert_eq!(
        sent.body,
        json!({ "title": "Draft: Oats", "description": null, "source_branch": "feature", "target_branch": "main" })
    );
    assert!(lab.seen().iter().all(|seen| seen.header("authorization") == "Bearer lab-SECRET"));
    assert!(hub.seen().is_empty(), "what a client lends is for GitHub alone");
    assert!(!yard.folder.path().join("bin/gh.log").exists(), "and so is gh");

    // A secret that is replaced is used without a restart.
    yard.folder.write("vault.json", r#"{ "host:lab": "newer-SECRET" }"#);
    for attempt in 0.. {
        assert!(attempt < 500, "the new secret is used");
        let before = lab.seen().len();
        propose(&mut client, json!({})).await.unwrap();
        if lab.seen()[before..].iter().all(|seen| seen.header("authorization") == "Bearer newer-SECRET") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    yard.log();
}

#[tokio::test]
async fn pull_requests_of_forgejo_are_found_and_created() {
    let forge = Forge::new(|seen| {
        Some(match (seen.head.as_str(), seen.query.contains("state=open")) {
            (PULLS, true) => ok(json!([row("inn/stable", "inn/stable", "other", 1, "open")])),
            (PULLS, false) => ok(json!([row("inn/stable", "inn/stable", "feature", 2, "merged")])),
            (REPO, _) => ok(json!({ "full_name": "inn/stable", "default_branch": "main", "parent": null })),
            (CREATE, _) => ok(row("inn/stable", "inn/stable", "feature", 3, "open")),
            ("GET /repos/inn/stable/commits/0000000000000000000000000000000000000003/status", _) => ok(
                json!({ "state": "failure", "statuses": [{ "status": "failure" }, { "status": "success" }] }),
            ),
            _ => status(404, "Not Found"),
        })
    });
    let hosts =
        json!({ "forge.example:3000": { "kind": "forgejo", "api": forge.url, "token": "forge-SECRET" } });
    let yard = Yard::new(&[("origin", "https://forge.example:3000/inn/stable")], json!({ "hosts": hosts }));
    let (daemon, mut client) = yard.session().await;
    assert_eq!(pull_request(&daemon).await["pullRequestState"], "merged");
    let made = propose(&mut client, json!({ "draft": true })).await.unwrap();
    assert_eq!(
        (&made["state"], &made["checks"]),
        (&json!("open"), &json!({ "state": "failed", "passed": 1, "failed": 1, "pending": 0 }))
    );
    let sent = &forge.asked(CREATE)[0];
    assert_eq!(sent.body, json!({ "title": "WIP: Oats", "body": null, "head": "feature", "base": "main" }));
    assert!(forge.seen().iter().all(|seen| seen.header("authorization") == "token forge-SECRET"));
    yard.log();
}

#[tokio::test]
async fn a_remote_on_a_company_s_github_is_on_github() {
    let forge = Forge::of(vec![
        (PULLS, json!([])),
        (REPO, json!({ "full_name": "inn/stable", "default_branch": "main" })),
    ]);
    for (kind, expected) in [("github", true), ("forgejo", false)] {
        let hosts = json!({ "code.example": { "kind": kind, "api": forge.url } });
        let yard = Yard::new(&[("origin", "git@code.example:inn/stable.git")], json!({ "hosts": hosts }));
        let (daemon, _client) = yard.session().await;
        let found = meta(&daemon, |meta| !meta["git"].is_null()).await;
        assert_eq!(found["git"]["hasGitHubRemote"], expected, "{found}");
    }
}

#[tokio::test]
async fn wrong_options_are_named() {
    for (options, why) in [
        (
            json!({ "hosts": { "code.example": {} } }),
            "hosts.code.example.kind is missing; set it to github, gitlab or forgejo",
        ),
        (
            json!({ "hosts": { "github.com": { "api": "http://api.example", "token": "SECRET" } } }),
            "hosts.github.com.api: http://api.example/ is not an https URL",
        ),
    ] {
        let yard = Yard::new(&[], options);
        let mut daemon = yard.start();
        let mut line = String::new();
        daemon.out.read_line(&mut line).unwrap();
        assert!(
            line.starts_with("skipped: plugin github failed in ") && line.ends_with(&format!("{why}\n")),
            "{line}"
        );
        yard.log();
    }
}
