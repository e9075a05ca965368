//! The git plugin: a real daemon, real repositories and clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{Client, Daemon, Folder, wait_for};
use base64::Engine as _;
use serde_json::{Value, json};

/// A repository in a folder, and a daemon that serves the folder.
pub(super) struct Yard {
    pub(super) folder: Folder,
    pub(super) repo: PathBuf,
}

/// Runs git as a user with a name and no configuration of this machine.
pub(super) fn git(directory: &Path, arguments: &[&str]) -> String {
    let out = command(directory).args(arguments).output().unwrap();
    assert!(out.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

pub(super) fn command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    environment(&mut command);
    command.arg("-C").arg(directory);
    command
}

pub(super) fn environment(command: &mut Command) {
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    // The daemon's git does not inherit `GIT_AUTHOR_NAME`.
    command.env("GIT_CONFIG_COUNT", "2");
    for (at, (name, value)) in [("name", "Ada"), ("email", "ada@example.com")].into_iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{at}"), format!("user.{name}"));
        command.env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
}

impl Yard {
    /// A repository with these files in its first commit.
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        Self::with(files, json!([{ "name": "@ostler/echo" }, { "name": "@ostler/git" }]))
    }

    pub(super) fn with(files: &[(&str, &str)], plugins: Value) -> Self {
        let folder = Folder::new(json!({}));
        let repo = folder.path().canonicalize().unwrap().join("yard/repo");
        fs::create_dir_all(&repo).unwrap();
        let config =
            json!({ "port": 0, "deltaWindowMs": 0, "paths": [repo.parent().unwrap()], "plugins": plugins });
        folder.write("config.json", &config.to_string());
        git(&repo, &["init", "-q", "-b", "main"]);
        let yard = Self { folder, repo };
        if !files.is_empty() {
            for (name, text) in files {
                yard.write(name, text);
            }
            git(&yard.repo, &["add", "-A"]);
            git(&yard.repo, &["commit", "-qm", "First"]);
        }
        yard
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.repo.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn start(&self) -> Daemon {
        let mut command = self.folder.command(&[]);
        environment(&mut command);
        self.folder.started(command)
    }

    pub(super) fn uri(&self, name: &str) -> String {
        format!("file://{}/{name}", self.repo.display())
    }

    pub(super) fn git(&self, arguments: &[&str]) -> String {
        git(&self.repo, arguments)
    }
}

pub(super) async fn create(
    client: &mut Client,
    id: &str,
    directory: &Path,
    config: Value,
) -> Result<Value, Value> {
    let params = json!({ "channel": format!("echo:/{id}"), "provider": "echo",
        "workingDirectories": [format!("file://{}", directory.display())], "config": config });
    client.request("createSession", params).await
}

/// A session on a repository, by its id `one`.
pub(super) async fn session(yard: &Yard) -> (Daemon, Client) {
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    create(&mut client, "one", &yard.repo, json!({})).await.unwrap();
    (daemon, client)
}

pub(super) const ONE: &str = "echo:/one";
pub(super) const UNCOMMITTED: &str = "echo:/one/changeset/uncommitted";

/// The content of a changeset now, from a subscription of its own.
pub(super) async fn changeset(daemon: &Daemon, channel: &str) -> Value {
    let mut client = daemon.initialized("reader").await;
    client.subscribe(channel).await
}

/// Why a changeset could not be read.
pub(super) fn reason(state: &Value) -> &str {
    assert_eq!(state["status"], "error", "{state}");
    state["error"]["message"].as_str().unwrap()
}

/// Each file: its path from the top of the repository, with lines added and removed.
pub(super) fn rows(yard: &Yard, state: &Value) -> Vec<(String, Option<i64>, Option<i64>)> {
    let top = format!("file://{}/", yard.repo.display());
    let row = |file: &Value| {
        let id = file["id"].as_str().unwrap();
        let diff = &file["edit"]["diff"];
        (id.strip_prefix(&top).unwrap_or(id).to_owned(), diff["added"].as_i64(), diff["removed"].as_i64())
    };
    state["files"].as_array().unwrap().iter().map(row).collect()
}

pub(super) fn names(yard: &Yard, state: &Value) -> Vec<String> {
    rows(yard, state).into_iter().map(|(name, ..)| name).collect()
}

pub(super) fn file<'a>(state: &'a Value, name: &str) -> &'a Value {
    let ends = |file: &&Value| file["id"].as_str().unwrap().ends_with(&format!("/{name}"));
    state["files"].as_array().unwrap().iter().find(ends).unwrap_or_else(|| panic!("no {name} in {state}"))
}

/// The text of one side of a file.
pub(super) async fn text(client: &mut Client, file: &Value, side: &str) -> String {
    let uri = &file["edit"][side]["content"]["uri"];
    let read = client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": uri })).await;
    let read = read.unwrap_or_else(|error| panic!("{uri}: {error}"));
    let data = read["data"].as_str().unwrap();
    match read["encoding"].as_str() {
        Some("base64") => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        _ => data.to_owned(),
    }
}

pub(super) async fn operate(
    client: &mut Client,
    channel: &str,
    operation: &str,
    target: Option<&str>,
) -> Result<Value, Value> {
    with_meta(client, channel, operation, target, Value::Null).await
}

async fn with_meta(
    client: &mut Client,
    channel: &str,
    operation: &str,
    target: Option<&str>,
    meta: Value,
) -> Result<Value, Value> {
    let mut params = json!({ "channel": channel, "operationId": operation });
    if let Some(target) = target {
        params["target"] = json!({ "kind": "resource", "resource": target });
    }
    if !meta.is_null() {
        params["_meta"] = meta;
    }
    client.request("invokeChangesetOperation", params).await
}

/// Runs a turn to its end.
pub(super) async fn turn(yard: &Yard, client: &mut Client, id: &str, text: &str) {
    let chat = ostler_protocol::uri::default_chat(ONE);
    client.subscribe(&chat).await;
    let action = json!({ "type": "chat/turnStarted", "turnId": id, "message": { "text": text } });
    client.dispatch(&chat, 1, action).await;
    client.actions_until("chat/turnComplete").await;
    // The state after it is recorded in the background.
    let after = format!("refs/ostler/one/turns/{id}/after");
    assert!(
        wait_for(|| (!yard.git(&["for-each-ref", &after]).is_empty()).then_some(())).is_some(),
        "{after}"
    );
}

#[tokio::test]
async fn uncommitted_changes_have_their_contents_before_and_after() {
    let yard = Yard::new(&[
        ("a.txt", "one\ntwo\n"),
        ("gone.txt", "x\n"),
        ("dir/old name.txt", "same\nlines\nhere\n"),
    ]);
    yard.write("a.txt", "one\n2\nthree\n");
    yard.write("new.txt", "n\n");
    fs::remove_file(yard.repo.join("gone.txt")).unwrap();
    yard.git(&["mv", "dir/old name.txt", "dir/renamed.txt"]);
    std::os::unix::fs::symlink("a.txt", yard.repo.join("link")).unwrap();
    let (daemon, mut client) = session(&yard).await;
    let state = client.subscribe(UNCOMMITTED).await;
    assert_eq!(state["status"], "ready");
    let mut found = rows(&yard, &state);
    found.sort();
    let row = |name: &str, added, removed| (name.to_owned(), added, removed);
    assert_eq!(
        found,
        [
            row("a.txt", Some(2), Some(1)),
            row("dir/renamed.txt", Some(0), Some(0)),
            row("gone.txt", Some(0), Some(1)),
            row("link", None, None),
            row("new.txt", Some(1), Some(0)),
        ]
    );
    let changed = file(&state, "a.txt");
    assert_eq!(text(&mut client, changed, "before").await, "one\ntwo\n");
    assert_eq!(text(&mut client, changed, "after").await, "one\n2\nthree\n");
    assert_eq!(changed["_meta"], json!({ "ostler.unstaged": "M" }));
    let renamed = file(&state, "renamed.txt");
    assert_eq!(renamed["edit"]["before"]["uri"], yard.uri("dir/old%20name.txt"));
    assert_eq!(renamed["_meta"], json!({ "ostler.staged": "R" }));
    let gone = file(&state, "gone.txt");
    assert_eq!(
        (gone["edit"].get("after"), text(&mut client, gone, "before").await),
        (None, "x\n".to_owned())
    );
    let new = file(&state, "new.txt");
    assert_eq!((new["edit"].get("before"), text(&mut client, new, "after").await), (None, "n\n".to_owned()));
    assert_eq!(text(&mut client, file(&state, "link"), "after").await, "a.txt", "a link is not followed");

    // Contents of no other file can be named.
    let uri = changed["edit"]["before"]["content"]["uri"].as_str().unwrap();
    let key = uri.split('/').nth(2).unwrap();
    yard.write(".git/secret", "s");
    for wrong in [
        ".git/secret?tree",
        "dir/../a.txt?tree",
        "/etc/passwd?tree",
        "%2e%2e/config.json?tree",
        "a.txt?HEAD",
        "a.txt",
    ] {
        let uri = format!("git-blob://{key}/{wrong}");
        let refused = client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": uri })).await;
        assert!(refused.is_err(), "{wrong}: {refused:?}");
    }
    drop(daemon);
}

#[tokio::test]
async fn facts_of_a_repository_are_in_its_sessions() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let bare = yard.repo.with_file_name("origin.git");
    git(&yard.repo, &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    yard.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    yard.git(&["fetch", "-q", "origin"]);
    yard.git(&["remote", "set-head", "origin", "main"]);
    yard.git(&["checkout", "-q", "-b", "feature", "--track", "origin/main"]);
    yard.git(&["commit", "-q", "--allow-empty", "-m", "Second"]);
    yard.write("b.txt", "b\n");
    let (_daemon, mut client) = session(&yard).await;
    let facts = json!({ "branchName": "feature", "upstreamBranchName": "origin/main", "outgoingChanges": 1,
        "incomingChanges": 0, "uncommittedChanges": 1, "baseBranchName": "main", "hasGitHubRemote": false });
    let state = client.subscribe(ONE).await;
    let told = match state["_meta"]["git"].is_null() {
        false => state["_meta"]["git"].clone(),
        true => {
            client.actions_until("session/metaChanged").await.pop().unwrap()["action"]["_meta"]["git"].clone()
        }
    };
    assert_eq!(told, facts);
}

#[tokio::test]
async fn changes_are_staged_unstaged_discarded_and_committed() {
    let yard = Yard::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("dir/c.txt", "c\n")]);
    yard.write("a.txt", "A\n");
    yard.write("b.txt", "B\n");
    yard.write("dir/new.txt", "n\n");
    let (daemon, mut client) = session(&yard).await;
    let staged = |yard: &Yard| yard.git(&["diff", "--cached", "--name-only"]);
    operate(&mut client, UNCOMMITTED, "stage", Some(&yard.uri("a.txt"))).await.unwrap();
    assert_eq!(staged(&yard), "a.txt");
    operate(&mut client, UNCOMMITTED, "stage", Some(&yard.uri("dir"))).await.unwrap();
    assert_eq!(staged(&yard), "a.txt\ndir/new.txt");
    operate(&mut client, UNCOMMITTED, "unstage", Some(&yard.uri("dir/new.txt"))).await.unwrap();
    assert_eq!(staged(&yard), "a.txt");
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(file(&state, "a.txt")["_meta"], json!({ "ostler.staged": "M" }));
    let commit =
        state["operations"].as_array().unwrap().iter().find(|it| it["id"] == "commit").unwrap().clone();
    assert_eq!(commit["confirmation"], "Commit 1 file as \"Changes of an agent session\"?");

    operate(&mut client, UNCOMMITTED, "discard", Some(&yard.uri("b.txt"))).await.unwrap();
    assert_eq!(fs::read_to_string(yard.repo.join("b.txt")).unwrap(), "b\n");
    operate(&mut client, UNCOMMITTED, "discard", Some(&yard.uri("dir/new.txt"))).await.unwrap();
    assert!(!yard.repo.join("dir/new.txt").exists());
    for outside in [format!("file://{}/config.json", yard.folder.path().display()), yard.uri(".git/config")] {
        let refused = operate(&mut client, UNCOMMITTED, "stage", Some(&outside)).await.unwrap_err();
        assert_eq!(refused["code"], -32602, "{refused}");
    }

    // Only what is staged, with the hooks of the repository.
    yard.write("b.txt", "later\n");
    yard.write(".git/hooks/commit-msg", "#!/bin/sh\necho Hooked >> \"$1\"\n");
    Command::new("chmod").arg("+x").arg(yard.repo.join(".git/hooks/commit-msg")).status().unwrap();
    let meta = json!({ "ostler.commit": { "message": "Second\n\nWith a body." } });
    let done = with_meta(&mut client, UNCOMMITTED, "commit", None, meta).await.unwrap();
    assert!(done["message"].as_str().unwrap().ends_with(" Second"), "{done}");
    assert_eq!(yard.git(&["log", "-1", "--format=%B"]), "Second\n\nWith a body.\nHooked");
    assert_eq!(yard.git(&["show", "--name-only", "--format="]), "a.txt");
    fs::remove_file(yard.repo.join(".git/hooks/commit-msg")).unwrap();
    // Nothing is staged: everything.
    operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap();
    assert_eq!(yard.git(&["status", "--porcelain"]), "");
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(state["files"], json!([]));
    let refused = operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap_err();
    assert_eq!(refused["message"], "commit cannot be run now");

    // A lock of another process is told, and nothing is lost.
    yard.write("b.txt", "again\n");
    yard.write(".git/index.lock", "");
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(names(&yard, &state), ["b.txt"], "reads take no lock");
    let refused = operate(&mut client, UNCOMMITTED, "stage", Some(&yard.uri("b.txt"))).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("holds a lock of the repository"), "{refused}");
}

#[tokio::test]
async fn changes_are_followed_and_reviewed() {
    let yard = Yard::new(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    yard.write("a.txt", "A\n");
    let (_daemon, mut client) = session(&yard).await;
    client.subscribe(UNCOMMITTED).await;
    let seen =
        json!({ "type": "changeset/filesReviewChanged", "files": [yard.uri("a.txt")], "reviewed": true });
    client.dispatch(UNCOMMITTED, 1, seen).await;
    client.actions_until("changeset/filesReviewChanged").await;
    yard.write("b.txt", "B\n");
    yard.git(&["add", "b.txt"]);
    let mut told = client.actions_until("changeset/contentChanged").await.pop().unwrap()["action"].clone();
    while file(&told, "b.txt")["_meta"] != json!({ "ostler.staged": "M" }) {
        told = client.actions_until("changeset/contentChanged").await.pop().unwrap()["action"].clone();
    }
    assert_eq!(file(&told, "a.txt")["reviewed"], true);
    // The same number of lines, but another content: the mark goes.
    yard.write("a.txt", "other\n");
    yard.git(&["reset", "-q"]);
    // The index may be read before the file.
    let both = async {
        while file(&told, "b.txt")["_meta"] != json!({ "ostler.unstaged": "M" })
            || file(&told, "a.txt").get("reviewed").is_some()
        {
            told = client.actions_until("changeset/contentChanged").await.pop().unwrap()["action"].clone();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("the mark goes");
}

/// The next content of a watched changeset that has exactly these files.
async fn until_files(yard: &Yard, client: &mut Client, expected: &[&str]) -> Value {
    let told = async {
        loop {
            let told =
                client.actions_until("changeset/contentChanged").await.pop().unwrap()["action"].clone();
            if names(yard, &told) == expected {
                return told;
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await;
    told.unwrap_or_else(|_| panic!("never exactly {expected:?}"))
}

#[tokio::test]
async fn changes_of_other_programs_are_followed() {
    let yard = Yard::new(&[("a.txt", "a\n"), (".gitignore", "out/\n")]);
    let (daemon, mut client) = session(&yard).await;
    assert_eq!(client.subscribe(UNCOMMITTED).await["files"], json!([]));
    yard.write("a.txt", "A\n");
    until_files(&yard, &mut client, &["a.txt"]).await;
    // A folder that is new is followed too.
    yard.write("new/deep/one.txt", "1\n");
    until_files(&yard, &mut client, &["a.txt", "new/deep/one.txt"]).await;
    yard.write("new/deep/two.txt", "2\n");
    until_files(&yard, &mut client, &["a.txt", "new/deep/one.txt", "new/deep/two.txt"]).await;
    fs::remove_dir_all(yard.repo.join("new")).unwrap();
    until_files(&yard, &mut client, &["a.txt"]).await;
    // A commit, and its undoing, which moves neither the index nor the files.
    yard.git(&["commit", "-qam", "Second"]);
    until_files(&yard, &mut client, &[]).await;
    yard.git(&["reset", "-q", "--soft", "HEAD~1"]);
    let told = until_files(&yard, &mut client, &["a.txt"]).await;
    assert_eq!(file(&told, "a.txt")["_meta"], json!({ "ostler.staged": "M" }));
    // What a client writes, and what a command in a terminal changes.
    let written =
        json!({ "channel": "ahp-root://", "uri": yard.uri("b.txt"), "data": "b\n", "encoding": "utf-8" });
    client.request("resourceWrite", written).await.unwrap();
    until_files(&yard, &mut client, &["a.txt", "b.txt"]).await;
    drop(daemon);
}

#[tokio::test]
async fn turns_and_the_session_have_changesets() {
    let yard = Yard::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), (".gitignore", "ignored\n")]);
    // As the session finds it: not as it was committed.
    yard.write("b.txt", "found\n");
    let (daemon, mut client) = session(&yard).await;
    turn(&yard, &mut client, "t1", "Hello").await;
    yard.write("a.txt", "A\nB\n");
    yard.write("ignored", "i\n");
    yard.write("new.txt", "n\n");
    turn(&yard, &mut client, "t2", "Again").await;
    yard.git(&["add", "-A"]);
    yard.git(&["commit", "-qm", "Second"]);
    yard.write("b.txt", "later\n");
    let state = changeset(&daemon, "echo:/one/changeset/session").await;
    let row = |name: &str, added, removed| (name.to_owned(), Some(added), Some(removed));
    assert_eq!(rows(&yard, &state), [row("a.txt", 2, 1), row("b.txt", 1, 1), row("new.txt", 1, 0)]);
    assert_eq!(text(&mut client, file(&state, "b.txt"), "before").await, "found\n");
    // What a turn changed is what it was between its ends, whatever was committed since.
    let first = changeset(&daemon, "echo:/one/changeset/turn/t1").await;
    assert_eq!(names(&yard, &first), [""; 0]);
    let between = changeset(&daemon, "echo:/one/changeset/compare/t1/t2").await;
    assert_eq!(rows(&yard, &between), [row("a.txt", 2, 1), row("new.txt", 1, 0)]);
    assert_eq!(text(&mut client, file(&between, "a.txt"), "after").await, "A\nB\n");
    let none =
        client.request("subscribe", json!({ "channel": "echo:/one/changeset/turn/t9" })).await.unwrap_err();
    assert_eq!(
        (&none["code"], &none["message"]),
        (&json!(-32008), &json!("echo:/one has no changeset turn/t9"))
    );

    let session = "echo:/one/changeset/session";
    operate(&mut client, session, "revert", Some(&yard.uri("b.txt"))).await.unwrap();
    assert_eq!(fs::read_to_string(yard.repo.join("b.txt")).unwrap(), "found\n");
    operate(&mut client, session, "revert", Some(&yard.uri("new.txt"))).await.unwrap();
    assert!(!yard.repo.join("new.txt").exists());
    // They outlive the daemon, and go with the session.
    assert_eq!(daemon.stop(), Some(0));
    let daemon = yard.start();
    let between = changeset(&daemon, "echo:/one/changeset/compare/t1/t2").await;
    assert_eq!(names(&yard, &between), ["a.txt", "new.txt"]);
    let mut client = daemon.initialized("c").await;
    turn(&yard, &mut client, "t3", "Last").await;
    client.request("disposeSession", json!({ "channel": ONE })).await.unwrap();
    let left = wait_for(|| yard.git(&["for-each-ref", "refs/ostler"]).is_empty().then_some(()));
    assert!(left.is_some(), "{}", yard.git(&["for-each-ref", "refs/ostler"]));
}

/// The row of a session in the listing, once it has a project.
async fn with_project(client: &mut Client, session: &str) -> Value {
    for _ in 0..2_000 {
        let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
        let row = listed["items"].as_array().unwrap().iter().find(|row| row["resource"] == session);
        if let Some(row) = row.filter(|row| !row["project"].is_null()) {
            return row.clone();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{session} has no project");
}

/// A backend that works in several directories: it writes the files that a message names.
const WRITER: &str = "
    import { writeFileSync } from 'node:fs';
    export function apply(host) {
        host.registerAgent({
            provider: 'writer', displayName: 'Writer', description: 'Writes files.', multipleDirectories: true,
            schema: () => ({ properties: {} }), defaults: () => ({}),
            create: ({ emit }) => ({
                begin(turnId, text) {
                    for (const path of text.split(' ')) writeFileSync(path, 'written');
                    emit('chat', { type: 'chat/turnComplete', turnId, duration: 1 });
                },
                cancel() {},
                close() {},
            }),
        });
    }
";

#[tokio::test]
async fn changes_of_further_directories_are_in_the_same_changesets() {
    let plugins = json!([{ "name": "./writer.js" }, { "name": "@ostler/git" }]);
    let yard = Yard::with(&[("a.txt", "a\n"), ("in/c.txt", "c\n"), ("out/d.txt", "d\n")], plugins);
    yard.folder.write("writer.js", WRITER);
    let repository = |name: &str| {
        let path = yard.repo.with_file_name(name);
        fs::create_dir_all(&path).unwrap();
        git(&path, &["init", "-q", "-b", "main"]);
        fs::write(path.join("b.txt"), "b\n").unwrap();
        git(&path, &["add", "-A"]);
        git(&path, &["commit", "-qm", "First"]);
        path
    };
    let (other, third) = (repository("other"), repository("third"));
    let plain = yard.repo.with_file_name("plain");
    fs::create_dir_all(&plain).unwrap();
    let ids = |state: &Value| -> Vec<String> {
        let top = format!("file://{}/", yard.repo.parent().unwrap().display());
        let files = state["files"].as_array().unwrap().iter();
        files.map(|file| file["id"].as_str().unwrap().strip_prefix(&top).unwrap().to_owned()).collect()
    };
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    // Two directories of one repository, one of another, and one that is in none.
    let folders: Vec<String> = [yard.repo.join("in"), other.clone(), yard.repo.join("out"), plain]
        .iter()
        .map(|path| format!("file://{}", path.display()))
        .collect();
    let params = json!({ "channel": "writer:/one", "provider": "writer", "workingDirectories": folders });
    client.request("createSession", params).await.unwrap();
    let uncommitted = "writer:/one/changeset/uncommitted";
    yard.write("a.txt", "outside of the directories\n");
    yard.write("in/c.txt", "C\n");
    yard.write("out/d.txt", "D\n");
    fs::write(other.join("b.txt"), "B\n").unwrap();
    let state = client.subscribe(uncommitted).await;
    assert_eq!(ids(&state), ["repo/in/c.txt", "repo/out/d.txt", "other/b.txt"]);
    let of_other = file(&state, "b.txt");
    assert_eq!(text(&mut client, of_other, "before").await, "b\n");
    assert_eq!(text(&mut client, of_other, "after").await, "B\n");

    let staged = |path: &Path| git(path, &["diff", "--cached", "--name-only"]);
    operate(&mut client, uncommitted, "stage", None).await.unwrap();
    assert_eq!((staged(&yard.repo), staged(&other)), ("in/c.txt\nout/d.txt".into(), "b.txt".into()));
    let other_uri = format!("file://{}/b.txt", other.display());
    operate(&mut client, uncommitted, "unstage", Some(&other_uri)).await.unwrap();
    assert_eq!(staged(&other), "");
    let outside = format!("file://{}/b.txt", third.display());
    for elsewhere in [outside.as_str(), &yard.uri("a.txt")] {
        let refused = operate(&mut client, uncommitted, "stage", Some(elsewhere)).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("is not in "), "{refused}");
    }
    operate(&mut client, uncommitted, "stage", Some(&other_uri)).await.unwrap();
    let message = json!({ "ostler.commit": { "message": "Both" } });
    let done = with_meta(&mut client, uncommitted, "commit", None, message).await.unwrap();
    for path in [&yard.repo, &other] {
        let commit = git(path, &["log", "-1", "--format=%h %s"]);
        assert!(commit.ends_with(" Both"), "{commit}");
        assert!(done["message"].as_str().unwrap().contains(&format!("Committed {commit}")), "{done}");
    }
    assert_eq!(yard.git(&["status", "--porcelain"]), " M a.txt", "what is in no directory stays");

    // What changes in any of them is followed, also in one that is added during the session.
    let mut watcher = daemon.initialized("watcher").await;
    assert_eq!(ids(&watcher.subscribe(uncommitted).await), [""; 0]);
    let mut until = async |expected: &[&str]| loop {
        let content = watcher.actions_until("changeset/contentChanged").await.pop().unwrap();
        if ids(&content["action"]) == expected {
            return;
        }
    };
    fs::write(other.join("b.txt"), "again\n").unwrap();
    until(&["other/b.txt"]).await;
    operate(&mut client, uncommitted, "discard", Some(&other_uri)).await.unwrap();
    until(&[]).await;
    assert_eq!(fs::read_to_string(other.join("b.txt")).unwrap(), "B\n");
    fs::write(third.join("new.txt"), "n\n").unwrap();
    let directory = format!("file://{}", third.display());
    let added = json!({ "type": "session/workingDirectorySet", "directory": directory });
    client.dispatch("writer:/one", 1, added).await;
    until(&["third/new.txt"]).await;

    // A turn, the session and its summary count all of them.
    let chat = ostler_protocol::uri::default_chat("writer:/one");
    client.subscribe(&chat).await;
    let files = [yard.repo.join("in/t"), other.join("t"), third.join("t")];
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let action =
        json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": names.join(" ") } });
    client.dispatch(&chat, 2, action).await;
    client.actions_until("chat/turnComplete").await;
    for path in [&yard.repo, &other, &third] {
        let after = || git(path, &["for-each-ref", "refs/ostler/one/turns/t1/after"]);
        assert!(wait_for(|| (!after().is_empty()).then_some(())).is_some(), "{}", path.display());
    }
    for scope in ["turn/t1", "session"] {
        let state = changeset(&daemon, &format!("writer:/one/changeset/{scope}")).await;
        assert_eq!(ids(&state), ["repo/in/t", "other/t", "third/t"], "{scope}");
    }
    let revert = format!("file://{}", other.join("t").display());
    operate(&mut client, "writer:/one/changeset/session", "revert", Some(&revert)).await.unwrap();
    assert!(!other.join("t").exists());
    client.request("disposeSession", json!({ "channel": "writer:/one" })).await.unwrap();
    for path in [&yard.repo, &other, &third] {
        let left = || git(path, &["for-each-ref", "refs/ostler"]);
        assert!(wait_for(|| left().is_empty().then_some(())).is_some(), "{}", left());
    }
}

#[tokio::test]
async fn the_project_of_a_session_is_its_repository_also_in_a_tree_of_its_own() {
    let yard = Yard::new(&[("src/a.txt", "a\n")]);
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    create(&mut client, "one", &yard.repo.join("src"), json!({})).await.unwrap();
    create(&mut client, "two", &yard.repo, json!({ "isolation": "worktree" })).await.unwrap();
    let plain = yard.repo.with_file_name("plain");
    fs::create_dir(&plain).unwrap();
    create(&mut client, "three", &plain, json!({})).await.unwrap();
    let project = json!({ "uri": format!("file://{}", yard.repo.display()), "displayName": "repo" });
    for id in ["one", "two", "three"] {
        // A session is listed from its first turn on.
        let chat = ostler_protocol::uri::default_chat(&format!("echo:/{id}"));
        client.subscribe(&chat).await;
        let action = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
        client.dispatch(&chat, 1, action).await;
        client.actions_until("chat/turnComplete").await;
    }
    for id in ["one", "two"] {
        assert_eq!(with_project(&mut client, &format!("echo:/{id}")).await["project"], project);
    }
    let state = client.subscribe(ONE).await;
    assert_eq!(state["project"], project);
    assert!(state["_meta"].get("project").is_none(), "{state}");
    drop(client);
    daemon.stop();
    // The listing has it before anybody looks at the directory again.
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    let rows = listed["items"].as_array().unwrap();
    let projects = rows.iter().map(|row| (row["resource"].as_str().unwrap(), row["project"].clone()));
    let projects: std::collections::BTreeMap<_, _> = projects.collect();
    assert_eq!((&projects["echo:/one"], &projects["echo:/two"]), (&project, &project));
    assert_eq!(projects["echo:/three"], Value::Null);
}

#[tokio::test]
async fn a_session_works_in_a_tree_of_its_own() {
    let yard = Yard::new(&[(".gitignore", "node_modules/\n.env\n"), ("src/a.txt", "a\n")]);
    yard.git(&["branch", "release/1"]);
    yard.write("node_modules/m/index.js", "m\n");
    yard.write(".env", "KEY=1\n");
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    let asked = json!({ "channel": "ahp-root://", "provider": "echo", "workingDirectory": format!("file://{}", yard.repo.display()) });
    let offered = client.request("resolveSessionConfig", asked.clone()).await.unwrap();
    let branches = &offered["schema"]["properties"]["branch"]["enum"];
    assert!(branches.as_array().unwrap().contains(&json!("release/1")), "{offered}");
    let mut typed = asked;
    (typed["property"], typed["query"]) = (json!("branch"), json!("REL"));
    let found = client.request("sessionConfigCompletions", typed).await.unwrap();
    assert_eq!(found["items"][0]["value"], "release/1");

    let config = json!({ "isolation": "worktree", "branch": "release/1", "worktreeBranchPrefix": "agent/",
        "worktreeSymlinkFolders": ["node_modules"], "worktreeIncludeFiles": [".env"] });
    create(&mut client, "one", &yard.repo.join("src"), config.clone()).await.unwrap();
    let tree = yard.repo.with_file_name("repo.worktrees").join("one");
    let state = client.subscribe(ONE).await;
    assert_eq!(state["workingDirectories"], json!([format!("file://{}/src", tree.display())]));
    assert_eq!(git(&tree, &["branch", "--show-current"]), "agent/one");
    assert_eq!(fs::read_link(tree.join("node_modules")).unwrap(), yard.repo.join("node_modules"));
    assert_eq!(fs::read_to_string(tree.join(".env")).unwrap(), "KEY=1\n");
    assert_eq!(git(&tree, &["status", "--porcelain"]), "", "what is brought is no change");
    fs::write(tree.join("src/a.txt"), "changed\n").unwrap();
    let changed = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(text(&mut client, file(&changed, "a.txt"), "after").await, "changed\n");
    assert_eq!(text(&mut client, file(&changed, "a.txt"), "before").await, "a\n");

    // One that holds work stays; a clean one goes, and its branch stays.
    create(&mut client, "two", &yard.repo, config).await.unwrap();
    let clean = tree.with_file_name("two");
    assert!(clean.join("node_modules").exists());
    let chat = ostler_protocol::uri::default_chat("echo:/two");
    client.subscribe(&chat).await;
    let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Hello" } });
    client.dispatch(&chat, 1, action).await;
    client.actions_until("chat/turnComplete").await;
    for id in ["one", "two"] {
        client.request("disposeSession", json!({ "channel": format!("echo:/{id}") })).await.unwrap();
    }
    assert!(wait_for(|| (!clean.exists()).then_some(())).is_some(), "{}", yard.folder.read("log"));
    assert!(yard.repo.join("node_modules/m/index.js").exists(), "a link is removed, not what it leads to");
    assert_eq!(yard.git(&["branch", "--list", "agent/two"]), "  agent/two");
    yard.folder.wait_for_log(&format!(
        "kept the working tree {} because it has uncommitted changes",
        tree.display()
    ));
    assert_eq!(fs::read_to_string(tree.join("src/a.txt")).unwrap(), "changed\n");

    let unknown = json!({ "isolation": "worktree", "branch": "nowhere" });
    let refused = create(&mut client, "three", &yard.repo, unknown).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("nowhere is not a branch or commit"), "{refused}");
}

#[tokio::test]
async fn a_branch_is_checked_out_before_the_first_turn() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    yard.git(&["branch", "other"]);
    yard.write("a.txt", "A\n");
    let (_daemon, mut client) = session(&yard).await;
    let to = json!({ "treeish": "other" });
    let refused = with_meta(&mut client, UNCOMMITTED, "checkout", None, to.clone()).await.unwrap_err();
    assert_eq!(
        (&refused["code"], &refused["data"]),
        (&json!(-32602), &json!({ "reason": "dirtyWorkingTree" }))
    );
    let stash = json!({ "treeish": "other", "preCheckoutAction": "stash" });
    with_meta(&mut client, UNCOMMITTED, "checkout", None, stash).await.unwrap();
    assert_eq!(yard.git(&["branch", "--show-current"]), "other");
    assert!(yard.git(&["stash", "list"]).contains("Before the checkout of other"));
    let injected = json!({ "treeish": "--orphan" });
    assert!(with_meta(&mut client, UNCOMMITTED, "checkout", None, injected).await.is_err());
    turn(&yard, &mut client, "t1", "Hello").await;
    let refused = with_meta(&mut client, UNCOMMITTED, "checkout", None, to).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("checkout"), "{refused}");
    assert_eq!(yard.git(&["branch", "--show-current"]), "other");

    let prepared = operate(&mut client, UNCOMMITTED, "prepare-pull-request", None).await.unwrap();
    let uri = prepared["followUp"]["content"]["uri"].as_str().unwrap();
    let form = uri.strip_prefix("data:application/json,").unwrap();
    let form: Value = serde_json::from_str(&percent(form)).unwrap();
    assert_eq!((&form["branch"], &form["title"]), (&json!("other"), &json!("Hello")));
}

fn percent(text: &str) -> String {
    url::form_urlencoded::parse(format!("v={text}").as_bytes()).next().unwrap().1.into_owned()
}

#[tokio::test]
async fn operations_are_disabled_while_a_turn_runs() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    yard.write("a.txt", "A\n");
    let (daemon, mut client) = session(&yard).await;
    client.subscribe(UNCOMMITTED).await;
    let chat = ostler_protocol::uri::default_chat(ONE);
    let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "/hang" } });
    client.dispatch(&chat, 1, action).await;
    let told = client.actions_until("changeset/operationStatusChanged").await.pop().unwrap();
    assert_eq!(told["action"]["status"], "disabled");
    let state = changeset(&daemon, UNCOMMITTED).await;
    let statuses: Vec<_> =
        state["operations"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert!(statuses.iter().all(|status| status == "disabled"), "{state}");
    let refused = operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap_err();
    assert_eq!(refused["message"], "echo:/one is mid-turn");
    client.dispatch(&chat, 2, json!({ "type": "chat/turnCancelled", "turnId": "t1", "duration": 1 })).await;
    let idle = |told: &Value| told["operations"].as_array().unwrap().iter().any(|it| it["status"] == "idle");
    while !idle(&client.actions_until("changeset/contentChanged").await.pop().unwrap()["action"]) {}
}

#[tokio::test]
async fn a_repository_runs_nothing_when_it_is_read() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let ran = yard.folder.path().join("ran");
    let script = yard.folder.path().join("script");
    fs::write(&script, format!("#!/bin/sh\necho ran >> {}\n", ran.display())).unwrap();
    Command::new("chmod").arg("+x").arg(&script).status().unwrap();
    for key in
        ["core.fsmonitor", "diff.external", "core.pager", "core.sshCommand", "core.askPass", "core.editor"]
    {
        yard.git(&["config", key, script.to_str().unwrap()]);
    }
    for hook in ["post-index-change", "post-checkout", "reference-transaction"] {
        fs::create_dir_all(yard.repo.join(".git/hooks")).unwrap();
        fs::copy(&script, yard.repo.join(".git/hooks").join(hook)).unwrap();
    }
    yard.write("a.txt", "A\n");
    let (daemon, mut client) = session(&yard).await;
    let state = client.subscribe(UNCOMMITTED).await;
    assert_eq!(text(&mut client, file(&state, "a.txt"), "before").await, "a\n");
    turn(&yard, &mut client, "t1", "Hello").await;
    changeset(&daemon, "echo:/one/changeset/session").await;
    assert!(!ran.exists(), "{}", fs::read_to_string(&ran).unwrap_or_default());
}

#[tokio::test]
async fn unusual_repositories_have_rows_or_an_error() {
    // No commits.
    let yard = Yard::new(&[]);
    yard.write("a.txt", "a\n");
    let (daemon, mut client) = session(&yard).await;
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(rows(&yard, &state), [("a.txt".to_owned(), Some(1), Some(0))]);
    let unknown = create(&mut client, "two", &yard.repo, json!({ "isolation": "zzz" })).await.unwrap_err();
    assert!(unknown["message"].as_str().unwrap().contains("folder or worktree"), "{unknown}");
    let isolated =
        create(&mut client, "two", &yard.repo, json!({ "isolation": "worktree" })).await.unwrap_err();
    assert!(isolated["message"].as_str().unwrap().contains("has no commits"), "{isolated}");
    operate(&mut client, UNCOMMITTED, "stage", Some(&yard.uri("a.txt"))).await.unwrap();
    operate(&mut client, UNCOMMITTED, "unstage", Some(&yard.uri("a.txt"))).await.unwrap();
    operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap();
    assert_eq!(yard.git(&["rev-list", "--count", "HEAD"]), "1");

    // Line endings that git converts are no change, and do not count as lines.
    yard.git(&["config", "core.autocrlf", "true"]);
    yard.write("crlf.txt", "one\r\ntwo\r\n");
    yard.git(&["add", "-A"]);
    yard.git(&["commit", "-qm", "CRLF"]);
    yard.write("crlf.txt", "one\r\n2\r\n");
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(rows(&yard, &state), [("crlf.txt".to_owned(), Some(1), Some(1))]);
    yard.git(&["checkout", "-q", "crlf.txt"]);

    // Names that differ only in case are two files.
    yard.write("Name.txt", "1\n");
    yard.write("name.txt", "2\n");
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(names(&yard, &state), ["Name.txt", "name.txt"]);
    operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap();

    // What a sparse checkout leaves out is not deleted.
    yard.write("in/a", "a\n");
    yard.write("out/b", "b\n");
    yard.git(&["add", "-A"]);
    yard.git(&["commit", "-qm", "Folders"]);
    yard.git(&["sparse-checkout", "set", "in"]);
    yard.write("in/a", "A\n");
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(names(&yard, &state), ["in/a"]);
    turn(&yard, &mut client, "t1", "Hello").await;
    let state = changeset(&daemon, "echo:/one/changeset/session").await;
    assert_eq!(names(&yard, &state), [""; 0]);
    yard.git(&["sparse-checkout", "disable"]);
    yard.git(&["checkout", "-q", "."]);

    // A file of 1 GB (without blocks on the disk): a row without lines, whose content is refused.
    let large = fs::File::create(yard.repo.join("large.bin")).unwrap();
    large.set_len(1 << 30).unwrap();
    turn(&yard, &mut client, "t2", "Again").await;
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(rows(&yard, &state), [("large.bin".to_owned(), None, None)]);
    assert_eq!(file(&state, "large.bin")["edit"]["after"]["content"]["sizeHint"], 1 << 30);
    let state = changeset(&daemon, "echo:/one/changeset/session").await;
    assert_eq!(names(&yard, &state), ["in/a", "large.bin"]);
    let stored = yard.git(&["count-objects", "-v"]);
    let size = stored.lines().find_map(|line| line.strip_prefix("size: ")).unwrap().parse::<u64>().unwrap();
    assert!(size < 1000, "its content is not stored: {stored}");
    fs::remove_file(yard.repo.join("large.bin")).unwrap();

    // A damaged repository is told, and works again once it is repaired.
    let head = fs::read(yard.repo.join(".git/HEAD")).unwrap();
    fs::write(yard.repo.join(".git/HEAD"), b"nonsense\n").unwrap();
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert!(reason(&state).contains("git does not read this repository"), "{state}");
    fs::write(yard.repo.join(".git/HEAD"), head).unwrap();
    changeset(&daemon, UNCOMMITTED).await;
    let branch = fs::read(yard.repo.join(".git/refs/heads/main")).unwrap();
    fs::write(yard.repo.join(".git/refs/heads/main"), b"").unwrap();
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert!(reason(&state).contains("the branch main is damaged"), "{state}");
    operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap_err();
    fs::write(yard.repo.join(".git/refs/heads/main"), branch).unwrap();
    changeset(&daemon, UNCOMMITTED).await;

    // Outside of a repository and in a bare one there are no changes.
    let bare = yard.repo.with_file_name("bare.git");
    yard.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    for (id, directory) in [("three", bare.clone()), ("four", yard.repo.parent().unwrap().to_owned())] {
        create(&mut client, id, &directory, json!({})).await.unwrap();
        let channel = format!("echo:/{id}/changeset/uncommitted");
        let refused = client.request("subscribe", json!({ "channel": channel })).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().ends_with("is not in a git working tree"), "{refused}");
    }
    // But a tree can be made from it.
    create(&mut client, "five", &bare, json!({ "isolation": "worktree" })).await.unwrap();
    assert!(bare.with_file_name("bare.git.worktrees").join("five/crlf.txt").exists());
}

#[tokio::test]
async fn submodules_and_large_file_storage_have_rows() {
    let yard = Yard::new(&[("a.txt", "a\n"), (".gitattributes", "*.bin filter=lfs -text\n")]);
    let module = yard.repo.with_file_name("module");
    git(yard.repo.parent().unwrap(), &["init", "-q", "-b", "main", "module"]);
    git(&module, &["commit", "-q", "--allow-empty", "-m", "First"]);
    yard.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        module.to_str().unwrap(),
        "sub",
    ]);
    // As Git LFS stores a file: a pointer in the commit, the content below .git/lfs.
    let id = "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865";
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize 2\n");
    yard.write("file.bin", &pointer);
    yard.write("other.bin", &pointer.replace("4355", "5555"));
    yard.git(&["add", "-A"]);
    yard.git(&["commit", "-qm", "Second"]);
    yard.write(&format!(".git/lfs/objects/43/55/{id}"), "1\n");
    yard.write("file.bin", "2\n");
    yard.write("other.bin", "3\n");
    git(&yard.repo.join("sub"), &["commit", "-q", "--allow-empty", "-m", "Second"]);
    yard.write("sub/untracked", "u\n");
    let (_daemon, mut client) = session(&yard).await;
    let state = client.subscribe(UNCOMMITTED).await;
    assert_eq!(names(&yard, &state), ["file.bin", "other.bin", "sub"]);
    let stored = file(&state, "file.bin");
    assert_eq!(text(&mut client, stored, "before").await, "1\n", "the content, not the pointer");
    assert_eq!(stored["edit"].get("diff"), None);
    let path = |side: &str| {
        let uri = url::Url::parse(stored["edit"][side]["content"]["uri"].as_str().unwrap()).unwrap();
        uri.path().to_owned()
    };
    assert_eq!(path("before"), path("after"), "VS Code shows different paths as a rename");
    let uri = &file(&state, "other.bin")["edit"]["before"]["content"]["uri"];
    let refused =
        client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": uri })).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("run git lfs fetch"), "{refused}");
    let sub = file(&state, "sub");
    let commit = git(&yard.repo.join("sub"), &["rev-parse", "HEAD"]);
    assert_eq!(text(&mut client, sub, "after").await, format!("Subproject commit {commit}\n"));
    // VS Code puts them into URIs with an authority, whose paths begin with a slash, and reads `file:` itself.
    for file in state["files"].as_array().unwrap() {
        for side in ["before", "after"] {
            let Some(uri) = file["edit"][side]["content"]["uri"].as_str() else { continue };
            let (scheme, rest) = uri.split_once(':').unwrap();
            assert!(scheme != "file" && rest.starts_with('/'), "{uri}");
        }
    }
}

#[tokio::test]
async fn a_large_tree_is_watched() {
    let yard = Yard::new(&[(".gitignore", "target/\n"), ("a.txt", "a\n")]);
    for folder in 0..200 {
        for name in 0..100 {
            yard.write(&format!("d{folder}/f{name}"), "text\n");
        }
    }
    yard.git(&["add", "-A"]);
    yard.git(&["commit", "-qm", "Many"]);
    let (daemon, _client) = session(&yard).await;
    let now = async || names(&yard, &changeset(&daemon, UNCOMMITTED).await);
    assert_eq!(now().await, [""; 0]);
    let steps: &[(&dyn Fn(), &[&str])] = &[
        (&|| yard.write("d1/f1", "changed\n"), &["d1/f1"]),
        (&|| yard.write("fresh/deep/er/new", "n\n"), &["d1/f1", "fresh/deep/er/new"]),
        (&|| yard.write("fresh/deep/er/next", "n\n"), &["d1/f1", "fresh/deep/er/new", "fresh/deep/er/next"]),
        (&|| yard.write("target/out", "o\n"), &["d1/f1", "fresh/deep/er/new", "fresh/deep/er/next"]),
        (&|| fs::remove_dir_all(yard.repo.join("fresh")).unwrap(), &["d1/f1"]),
        (&|| fs::rename(yard.repo.join("d2"), yard.repo.join("target/d2")).unwrap(), &["d1/f1"]),
        (&|| fs::rename(yard.repo.join("target/d2"), yard.repo.join("d2")).unwrap(), &["d1/f1"]),
        (&|| yard.write("d2/f5", "again\n"), &["d1/f1", "d2/f5"]),
        (&|| drop(yard.git(&["commit", "-qam", "Next"])), &[]),
        (&|| drop(yard.git(&["reset", "-q", "HEAD~1"])), &["d1/f1", "d2/f5"]),
        (&|| drop(yard.git(&["add", "d1"])), &["d1/f1", "d2/f5"]),
        (&|| drop(yard.git(&["checkout", "-q", "HEAD", "--", "."])), &[]),
        (&|| yard.write(".gitignore", "nothing\n"), &[".gitignore", "target/out"]),
    ];
    for (at, (step, expected)) in steps.iter().enumerate() {
        step();
        let mut found = now().await;
        // The folder that is away has a hundred rows.
        found.retain(|name| !name.starts_with("d2/") || expected.contains(&name.as_str()));
        assert_eq!(found, *expected, "step {at}");
    }
}

/// Marks a session as archived, or not.
async fn archive(client: &mut Client, session: &str, seq: i64, archived: bool) {
    let action = json!({ "type": "session/isArchivedChanged", "isArchived": archived });
    client.dispatch(session, seq, action).await;
    client.actions_until("session/isArchivedChanged").await;
}

#[tokio::test]
async fn the_tree_of_an_archived_session_leaves_the_disk_and_comes_back() {
    let yard = Yard::new(&[("a.txt", "a\n"), (".gitignore", ".env\n")]);
    yard.write(".env", "KEY=1\n");
    let (daemon, mut client) = {
        let daemon = yard.start();
        let mut client = daemon.initialized("c").await;
        let config = json!({ "isolation": "worktree", "worktreeIncludeFiles": [".env"] });
        create(&mut client, "one", &yard.repo, config).await.unwrap();
        (daemon, client)
    };
    let tree = yard.repo.with_file_name("repo.worktrees").join("one");
    client.subscribe(ONE).await;
    turn(&yard, &mut client, "t1", "Hello").await;
    fs::write(tree.join("a.txt"), "changed\n").unwrap();
    archive(&mut client, ONE, 2, true).await;
    yard.folder.wait_for_log(&format!("kept the working tree {}", tree.display()));
    assert_eq!(fs::read_to_string(tree.join("a.txt")).unwrap(), "changed\n", "work stays");
    archive(&mut client, ONE, 3, false).await;
    git(&tree, &["commit", "-qam", "Second"]);

    archive(&mut client, ONE, 4, true).await;
    assert!(wait_for(|| (!tree.exists()).then_some(())).is_some(), "{}", yard.folder.read("log"));
    assert_eq!(yard.git(&["branch", "--list", "one", "--format=%(refname:short)"]), "one");
    // The daemon that puts it back may be another one.
    assert_eq!(daemon.stop(), Some(0));
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    client.subscribe(ONE).await;
    archive(&mut client, ONE, 1, false).await;
    let back = || fs::read_to_string(tree.join("a.txt")).ok().filter(|text| text == "changed\n");
    assert!(wait_for(back).is_some(), "{}", yard.folder.read("log"));
    assert_eq!(git(&tree, &["branch", "--show-current"]), "one");
    assert!(
        wait_for(|| fs::read_to_string(tree.join(".env")).ok()).is_some(),
        "what is copied comes back too"
    );

    // A turn in an archived session brings it back as well.
    archive(&mut client, ONE, 2, true).await;
    assert!(wait_for(|| (!tree.exists()).then_some(())).is_some(), "{}", yard.folder.read("log"));
    let chat = ostler_protocol::uri::default_chat(ONE);
    client.subscribe(&chat).await;
    let action = json!({ "type": "chat/turnStarted", "turnId": "t2", "message": { "text": "Again" } });
    client.dispatch(&chat, 3, action).await;
    client.actions_until("chat/turnComplete").await;
    assert!(tree.join("a.txt").exists(), "{}", yard.folder.read("log"));
}

#[tokio::test]
async fn a_window_looks_after_detached_trees() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let daemon = yard.start();
    let mut client = daemon.client().await;
    assert_eq!(client.initialize("c").await["_meta"]["vscode.detachedWorktrees"], true);
    create(&mut client, "plain", &yard.repo, json!({})).await.unwrap();
    create(&mut client, "one", &yard.repo, json!({ "isolation": "worktree", "branch": "main" }))
        .await
        .unwrap();
    let create = "vscode/createAgentHostDetachedWorktree";
    let refused =
        client.request(create, json!({ "session": "echo:/plain", "prompt": "p" })).await.unwrap_err();
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!(-32602), &json!("echo:/plain has no separate working tree"))
    );
    let mut made = Vec::new();
    for _ in 0..2 {
        let answer = client.request(create, json!({ "session": ONE, "prompt": "p" })).await.unwrap();
        let path = answer["resource"].as_str().unwrap().strip_prefix("file://").unwrap().to_owned();
        made.push((json!({ "handle": answer["handle"] }), PathBuf::from(path)));
    }
    assert_ne!(made[0].1, made[1].1);
    let (handle, tree) = &made[0];
    let branch = git(tree, &["branch", "--show-current"]);
    assert!(branch.starts_with("agents/"), "{branch}");
    assert_eq!(fs::read_to_string(tree.join("a.txt")).unwrap(), "a\n");

    let claim = "vscode/claimAgentHostDetachedWorktree";
    client.request(claim, handle.clone()).await.unwrap();
    let unknown = client.request(claim, json!({ "handle": "7" })).await.unwrap_err();
    assert_eq!(unknown["message"], "Unknown detached worktree handle 7");

    let set = "vscode/setAgentHostDetachedWorktreeArchived";
    let archived = |archived: bool| json!({ "handle": handle["handle"], "archived": archived });
    client.request(set, archived(true)).await.unwrap();
    assert!(!tree.exists());
    assert!(yard.git(&["branch", "--list", &branch]).contains(&branch), "its branch stays");
    client.request(set, archived(false)).await.unwrap();
    assert_eq!(git(tree, &["branch", "--show-current"]), branch);

    // What no window names goes after a day, not now.
    let reconcile = "vscode/reconcileAgentHostDetachedWorktrees";
    client.request(reconcile, json!({ "scope": "s", "activeHandles": [] })).await.unwrap();
    assert!(tree.exists() && made[1].1.exists());

    let delete = "vscode/deleteAgentHostDetachedWorktree";
    for _ in 0..2 {
        client.request(delete, handle.clone()).await.unwrap();
    }
    assert!(!tree.exists());
    assert_eq!(yard.git(&["branch", "--list", &branch]), "");
    assert!(client.request(claim, handle.clone()).await.is_err());
    // Work is not deleted: neither changed files nor commits.
    let (handle, tree) = &made[1];
    git(tree, &["commit", "-q", "--allow-empty", "-m", "Second"]);
    let branch = git(tree, &["branch", "--show-current"]);
    client.request(delete, handle.clone()).await.unwrap();
    assert!(!tree.exists());
    assert!(yard.git(&["branch", "--list", &branch]).contains(&branch));
    yard.folder.wait_for_log("no other branch has its commits");
}

#[tokio::test]
async fn detached_trees_outlive_the_host_and_their_session() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    create(&mut client, "one", &yard.repo, json!({ "isolation": "worktree", "branch": "main" }))
        .await
        .unwrap();
    let mut made = Vec::new();
    for _ in 0..4 {
        let params = json!({ "session": ONE, "prompt": "p" });
        let answer = client.request("vscode/createAgentHostDetachedWorktree", params).await.unwrap();
        let path = answer["resource"].as_str().unwrap().strip_prefix("file://").unwrap().to_owned();
        made.push((answer["handle"].clone(), PathBuf::from(path)));
    }
    let [clean, changed, archived, unnamed] = &made[..] else { panic!("{made:?}") };
    fs::write(changed.1.join("work.txt"), "w\n").unwrap();
    let set = "vscode/setAgentHostDetachedWorktreeArchived";
    client.request(set, json!({ "handle": archived.0, "archived": true })).await.unwrap();
    assert!(!archived.1.exists());
    daemon.kill();

    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    // They are no sessions.
    let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    let listed: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|row| &row["resource"]).collect();
    assert!(listed.iter().all(|resource| **resource == json!(ONE)), "{listed:?}");
    client.request("disposeSession", json!({ "channel": ONE })).await.unwrap();
    let claim = "vscode/claimAgentHostDetachedWorktree";
    client.request(claim, json!({ "handle": clean.0 })).await.unwrap();
    client.request(set, json!({ "handle": archived.0, "archived": false })).await.unwrap();
    assert_eq!(fs::read_to_string(archived.1.join("a.txt")).unwrap(), "a\n");
    let active = json!({ "scope": "s", "activeHandles": [clean.0] });
    client.request("vscode/reconcileAgentHostDetachedWorktrees", active).await.unwrap();
    assert!(made.iter().all(|(_, tree)| tree.exists()), "none is unnamed for a day");
    let delete = "vscode/deleteAgentHostDetachedWorktree";
    for (handle, _) in [clean, changed] {
        client.request(delete, json!({ "handle": handle })).await.unwrap();
    }
    assert!(!clean.1.exists());
    yard.folder.wait_for_log(&format!("kept the working tree {}", changed.1.display()));
    assert_eq!(fs::read_to_string(changed.1.join("work.txt")).unwrap(), "w\n");
    assert_eq!(daemon.stop(), Some(0));

    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    for (handle, _) in [clean, changed] {
        let unknown = client.request(claim, json!({ "handle": handle })).await.unwrap_err();
        assert_eq!(
            unknown["message"],
            format!("Unknown detached worktree handle {}", handle.as_str().unwrap())
        );
    }
    for (handle, tree) in [archived, unnamed] {
        client.request(delete, json!({ "handle": handle })).await.unwrap();
        assert!(!tree.exists());
    }
    assert_eq!(yard.git(&["branch", "--list", "agents/*", "--format=%(refname:short)"]).lines().count(), 1);
    drop(daemon);
}

#[tokio::test]
async fn trees_beside_a_served_repository_are_served() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let config = json!({ "port": 0, "paths": [yard.repo], "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/git" }] });
    yard.folder.write("config.json", &config.to_string());
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    create(&mut client, "one", &yard.repo, json!({ "isolation": "worktree" })).await.unwrap();
    let trees = yard.repo.with_file_name("repo.worktrees");
    let uri = |path: &str| format!("file://{}/{path}", trees.display());
    let write =
        json!({ "channel": "ahp-root://", "uri": uri("one/a.txt"), "data": "A\n", "encoding": "utf-8" });
    client.request("resourceWrite", write).await.unwrap();
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(file(&state, "a.txt")["edit"]["after"]["uri"], uri("one/a.txt"));
    assert_eq!(text(&mut client, file(&state, "a.txt"), "after").await, "A\n");
    create(&mut client, "two", &trees.join("one"), json!({})).await.unwrap();
    // But nothing else beside it is.
    let other = yard.repo.with_file_name("repo.other");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("a.txt"), "o\n").unwrap();
    std::os::unix::fs::symlink(&other, trees.join("link")).unwrap();
    assert_eq!(create(&mut client, "three", &other, json!({})).await.unwrap_err()["code"], -32009);
    for path in ["../repo.other/a.txt", "link/a.txt"] {
        let uri = format!("file://{}", trees.join(path).display());
        let refused = client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": uri })).await;
        assert!(refused.is_err(), "{path}: {refused:?}");
    }
}

#[tokio::test]
async fn a_branch_is_pushed_and_gets_a_pull_request() {
    let without = Yard::new(&[("a.txt", "a\n")]);
    without.write("a.txt", "A\n");
    let (_daemon, mut client) = session(&without).await;
    let refused = operate(&mut client, UNCOMMITTED, "create-pr", None).await.unwrap_err();
    assert!(
        refused["message"].as_str().unwrap().contains("this host cannot create pull requests"),
        "{refused}"
    );
    assert_eq!(without.git(&["rev-list", "--count", "HEAD"]), "1", "nothing was done");

    let plugins = json!([{ "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "./pulls.mjs" }]);
    let yard = Yard::with(&[("a.txt", "a\n")], plugins);
    yard.folder.write(
        "pulls.mjs",
        "export const name = 'pulls';
        let open = null;
        export const apply = (host) => host.registerGithub({
          resource: { resource: 'https://api.example.com' },
          forBranch: ({ branch }) => (open?.branch === branch ? open : null),
          create: (asked) => {
            host.log(`asked ${JSON.stringify(asked)}`);
            open = { owner: 'inn', repo: 'yard', url: 'https://example.com/1', branch: asked.branch, state: 'open' };
            return open;
          },
        });",
    );
    yard.write("a.txt", "A\n");
    let (daemon, mut client) = session(&yard).await;
    let refused = operate(&mut client, UNCOMMITTED, "create-pr", None).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("has no remote to push to"), "{refused}");
    let bare = yard.repo.with_file_name("origin.git");
    yard.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    yard.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    yard.git(&["fetch", "-q", "origin"]);
    let form =
        json!({ "vscode.pullRequest": { "title": "Feed: the oats!", "description": "Why", "draft": true } });
    let done = with_meta(&mut client, UNCOMMITTED, "create-pr", None, form.clone()).await.unwrap();
    assert_eq!(done["message"], "Created https://example.com/1");
    assert_eq!(done["followUp"], json!({ "content": { "uri": "https://example.com/1" }, "external": true }));
    // On the base, the work gets a branch of its own.
    assert_eq!(yard.git(&["branch", "--show-current"]), "agents/feed-the-oats");
    assert_eq!(git(&bare, &["log", "-1", "--format=%s", "agents/feed-the-oats"]), "Feed: the oats!");
    assert_eq!(yard.git(&["rev-parse", "main"]), yard.git(&["rev-parse", "origin/main"]));
    let line = yard.folder.wait_for_log("plugin pulls: asked ");
    let asked: Value = serde_json::from_str(line.split_once("asked ").unwrap().1.trim()).unwrap();
    assert_eq!(
        (&asked["title"], &asked["body"], &asked["draft"], &asked["branch"], &asked["base"]),
        (
            &json!("Feed: the oats!"),
            &json!("Why"),
            &json!(true),
            &json!("agents/feed-the-oats"),
            &json!("main")
        )
    );
    // What follows is pushed to the one that is open.
    yard.write("b.txt", "b\n");
    let done = with_meta(&mut client, UNCOMMITTED, "create-pr", None, form).await.unwrap();
    assert_eq!(done["message"], "Updated https://example.com/1");
    assert_eq!(git(&bare, &["rev-list", "--count", "main..agents/feed-the-oats"]), "2");
    drop(daemon);
}

#[tokio::test]
async fn conflicts_and_damaged_or_refused_repositories_are_told() {
    let yard = Yard::new(&[("a.txt", "a\n"), ("Name.txt", "n\n")]);
    yard.git(&["checkout", "-q", "-b", "other"]);
    yard.write("a.txt", "theirs\n");
    yard.git(&["commit", "-qam", "Theirs"]);
    yard.git(&["checkout", "-q", "main"]);
    yard.write("a.txt", "ours\n");
    yard.git(&["commit", "-qam", "Ours"]);
    assert!(!command(&yard.repo).args(["merge", "-q", "other"]).output().unwrap().status.success());
    let (daemon, mut client) = session(&yard).await;
    let state = changeset(&daemon, UNCOMMITTED).await;
    let conflict = file(&state, "a.txt");
    assert_eq!(conflict["_meta"], json!({ "ostler.conflict": "U" }));
    assert_eq!(text(&mut client, conflict, "before").await, "ours\n");
    assert!(text(&mut client, conflict, "after").await.contains("<<<<<<<"));
    let refused = operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap_err();
    assert_eq!(refused["message"], "commit cannot be run now");
    // A turn works in it, too.
    turn(&yard, &mut client, "t1", "Hello").await;
    yard.write("a.txt", "both\n");
    operate(&mut client, UNCOMMITTED, "stage", Some(&yard.uri("a.txt"))).await.unwrap();
    operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap();
    assert_eq!(yard.git(&["rev-list", "--count", "--merges", "HEAD"]), "1");

    // Where git takes names that differ only in case for one, a file renamed so is one row.
    yard.git(&["config", "core.ignorecase", "true"]);
    fs::rename(yard.repo.join("Name.txt"), yard.repo.join("name.txt")).unwrap();
    assert_eq!(names(&yard, &changeset(&daemon, UNCOMMITTED).await), ["Name.txt"]);
    fs::rename(yard.repo.join("name.txt"), yard.repo.join("Name.txt")).unwrap();

    // A damaged index is told, and works again once it is repaired.
    let index = fs::read(yard.repo.join(".git/index")).unwrap();
    fs::write(yard.repo.join(".git/index"), b"nonsense").unwrap();
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert!(reason(&state).contains("index"), "{state}");
    fs::write(yard.repo.join(".git/index"), index).unwrap();
    assert_eq!(names(&yard, &changeset(&daemon, UNCOMMITTED).await), [""; 0]);
    drop(daemon);

    // A repository of another user: git says how to allow it.
    let mut start = yard.folder.command(&[]);
    environment(&mut start);
    start.env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1");
    let daemon = yard.folder.started(start);
    let mut client = daemon.initialized("c").await;
    create(&mut client, "two", &yard.repo, json!({})).await.unwrap();
    let state = changeset(&daemon, "echo:/two/changeset/uncommitted").await;
    let said = reason(&state);
    assert!(said.contains("dubious ownership") && said.contains("safe.directory"), "{state}");
}

/// The changes of the session `one`.
pub(super) const SESSION: &str = "echo:/one/changeset/session";

#[tokio::test]
async fn nothing_is_touched_where_a_file_cannot_be_restored() {
    let yard = Yard::new(&[("a.txt", "a\n"), ("b.bin", "b\n"), ("c.txt", "c\n")]);
    // Over 16 MiB: the content before the turn is not stored.
    let large = |byte: u8| {
        let mut content = vec![byte; 17 << 20];
        content[0] = b'#';
        content
    };
    fs::write(yard.repo.join("a.txt"), large(b'1')).unwrap();
    let (_daemon, mut client) = session(&yard).await;
    turn(&yard, &mut client, "t1", "Hello").await;
    fs::write(yard.repo.join("a.txt"), large(b'2')).unwrap();
    let refused = operate(&mut client, SESSION, "revert", Some(&yard.uri("a.txt"))).await.unwrap_err();
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("/a.txt cannot be restored") && said.contains("is not stored"), "{refused}");
    assert!(fs::read(yard.repo.join("a.txt")).unwrap() == large(b'2'), "the file is as it was");

    // A filter that fails, as that of Git LFS without the object.
    yard.write(".gitattributes", "*.bin filter=broken\n");
    yard.git(&["config", "filter.broken.smudge", "false"]);
    yard.git(&["config", "filter.broken.required", "true"]);
    yard.git(&["config", "filter.broken.clean", "cat"]);
    yard.write("b.bin", "changed\n");
    let refused = operate(&mut client, UNCOMMITTED, "discard", Some(&yard.uri("b.bin"))).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("/b.bin, and left it as it is"), "{refused}");
    assert_eq!(fs::read_to_string(yard.repo.join("b.bin")).unwrap(), "changed\n");

    // The index is locked: the file is put back.
    yard.write("c.txt", "changed\n");
    yard.write(".git/index.lock", "");
    let refused = operate(&mut client, UNCOMMITTED, "discard", Some(&yard.uri("c.txt"))).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("holds a lock"), "{refused}");
    assert_eq!(fs::read_to_string(yard.repo.join("c.txt")).unwrap(), "changed\n");
    fs::remove_file(yard.repo.join(".git/index.lock")).unwrap();
    operate(&mut client, UNCOMMITTED, "discard", Some(&yard.uri("c.txt"))).await.unwrap();
    assert_eq!(fs::read_to_string(yard.repo.join("c.txt")).unwrap(), "c\n");

    // A file that the session removed, and one that it renamed.
    yard.git(&["rm", "-q", "--cached", "c.txt"]);
    fs::remove_file(yard.repo.join("c.txt")).unwrap();
    operate(&mut client, SESSION, "revert", Some(&yard.uri("c.txt"))).await.unwrap();
    assert_eq!(fs::read_to_string(yard.repo.join("c.txt")).unwrap(), "c\n");
    // An ignored file is no change, and stays.
    yard.write(".git/info/exclude", "ignored\n");
    yard.write("ignored", "i\n");
    operate(&mut client, SESSION, "revert", Some(&yard.uri("ignored"))).await.unwrap_err();
    assert!(yard.repo.join("ignored").exists());
    let left = fs::read_dir(yard.repo.join(".git")).unwrap().flatten();
    let left: Vec<_> = left.filter(|it| it.file_name().to_string_lossy().starts_with(".ostler")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn what_git_does_not_discard_is_refused() {
    let yard = Yard::new(&[("a.txt", "a\n"), ("old.txt", "one\ntwo\nthree\n")]);
    let module = yard.repo.with_file_name("module");
    git(yard.repo.parent().unwrap(), &["init", "-q", "-b", "main", "module"]);
    git(&module, &["commit", "-q", "--allow-empty", "-m", "First"]);
    let module = module.to_str().unwrap();
    yard.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", module, "sub"]);
    yard.git(&["commit", "-qm", "Second"]);
    git(&yard.repo.join("sub"), &["commit", "-q", "--allow-empty", "-m", "Second"]);
    git(&yard.repo, &["init", "-q", "nested"]);
    yard.write("nested/file", "n\n");
    fs::remove_file(yard.repo.join("a.txt")).unwrap();
    yard.write("a.txt/in", "i\n");
    let (_daemon, mut client) = session(&yard).await;
    for (name, why) in
        [("sub", "is a submodule"), ("nested", "a separate repository"), ("a.txt", "is a folder now")]
    {
        let refused = operate(&mut client, UNCOMMITTED, "discard", Some(&yard.uri(name))).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains(why), "{name}: {refused}");
    }
    assert!(yard.repo.join("a.txt/in").exists() && yard.repo.join("nested/file").exists());
    // Both ends of a rename.
    yard.git(&["mv", "old.txt", "new.txt"]);
    operate(&mut client, UNCOMMITTED, "discard", Some(&yard.uri("new.txt"))).await.unwrap();
    assert_eq!(fs::read_to_string(yard.repo.join("old.txt")).unwrap(), "one\ntwo\nthree\n");
    assert!(!yard.repo.join("new.txt").exists());
    assert_eq!(yard.git(&["diff", "--cached", "--name-only"]), "");
}

#[tokio::test]
async fn a_failed_commit_leaves_the_index_as_it_was() {
    let yard = Yard::new(&[("s/a.txt", "a\n"), ("t/b.txt", "b\n")]);
    yard.write("s/a.txt", "first\n");
    yard.write("s/new.txt", "n\n");
    yard.write(".git/hooks/pre-commit", "#!/bin/sh\necho no >&2\nexit 1\n");
    Command::new("chmod").arg("+x").arg(yard.repo.join(".git/hooks/pre-commit")).status().unwrap();
    let (_daemon, mut client) = session(&yard).await;
    let refused = operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("no"), "{refused}");
    assert_eq!(refused["code"], -32602, "{refused}");
    assert_eq!(yard.git(&["diff", "--cached", "--name-only"]), "");
    fs::remove_file(yard.repo.join(".git/hooks/pre-commit")).unwrap();
    yard.write("s/a.txt", "second\n");
    operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap();
    assert_eq!(yard.git(&["show", "HEAD:s/a.txt"]), "second");
    assert_eq!(yard.git(&["status", "--porcelain"]), "");

    // A hook that changes what is committed.
    yard.write(".git/hooks/pre-commit", "#!/bin/sh\necho formatted > s/a.txt\ngit add s/a.txt\n");
    Command::new("chmod").arg("+x").arg(yard.repo.join(".git/hooks/pre-commit")).status().unwrap();
    yard.write("s/a.txt", "third\n");
    operate(&mut client, UNCOMMITTED, "commit", None).await.unwrap();
    assert_eq!(yard.git(&["show", "HEAD:s/a.txt"]), "formatted");
    assert_eq!(yard.git(&["status", "--porcelain"]), "");
    fs::remove_file(yard.repo.join(".git/hooks/pre-commit")).unwrap();

    // A session in a folder commits what it shows: of what is staged, and of everything.
    create(&mut client, "two", &yard.repo.join("s"), json!({})).await.unwrap();
    let two = "echo:/two/changeset/uncommitted";
    yard.write("t/b.txt", "B\n");
    yard.git(&["add", "t/b.txt"]);
    yard.write("s/a.txt", "fourth\n");
    operate(&mut client, two, "commit", None).await.unwrap();
    assert_eq!(yard.git(&["show", "--name-only", "--format="]), "s/a.txt");
    assert_eq!(yard.git(&["diff", "--cached", "--name-only"]), "t/b.txt");
    yard.write("s/a.txt", "fifth\n");
    yard.write("s/new.txt", "not staged\n");
    yard.git(&["add", "s/a.txt"]);
    operate(&mut client, two, "commit", None).await.unwrap();
    assert_eq!(yard.git(&["show", "--name-only", "--format="]), "s/a.txt");
    assert_eq!(yard.git(&["status", "--porcelain"]), " M s/new.txt\nM  t/b.txt");
}

#[tokio::test]
async fn a_pull_request_without_commits_leaves_the_branch() {
    let plugins = json!([{ "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "./pulls.mjs" }]);
    let yard = Yard::with(&[("a.txt", "a\n")], plugins);
    yard.folder.write(
        "pulls.mjs",
        "export const name = 'pulls';
        export const apply = (host) => host.registerGithub({
          resource: { resource: 'https://api.example.com' },
          forBranch: () => null,
          create: () => { throw new Error('rate limit exceeded'); },
        });",
    );
    let origin = yard.repo.with_file_name("origin.git");
    git(&yard.repo, &["clone", "-q", "--bare", ".", origin.to_str().unwrap()]);
    yard.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    yard.git(&["fetch", "-q", "origin"]);
    let (_daemon, mut client) = session(&yard).await;
    let refused = operate(&mut client, UNCOMMITTED, "create-pr", None).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("no commits that main does not have"), "{refused}");
    let branches = |yard: &Yard| yard.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    assert_eq!(
        (yard.git(&["symbolic-ref", "--short", "HEAD"]), branches(&yard)),
        ("main".into(), "main".into())
    );
    // A commit that fails.
    yard.write("a.txt", "A\n");
    yard.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n");
    Command::new("chmod").arg("+x").arg(yard.repo.join(".git/hooks/pre-commit")).status().unwrap();
    operate(&mut client, UNCOMMITTED, "create-pr", None).await.unwrap_err();
    assert_eq!(
        (yard.git(&["symbolic-ref", "--short", "HEAD"]), branches(&yard)),
        ("main".into(), "main".into())
    );
    assert_eq!(yard.git(&["diff", "--cached", "--name-only"]), "");
    // A push that fails: what was done is told.
    fs::remove_file(yard.repo.join(".git/hooks/pre-commit")).unwrap();
    yard.git(&["remote", "set-url", "--push", "origin", "/nowhere"]);
    let refused = operate(&mut client, UNCOMMITTED, "create-pr", None).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("on the new branch agents/"), "{refused}");
    // The code host refuses: the message says what stays.
    yard.git(&["remote", "set-url", "--push", "origin", origin.to_str().unwrap()]);
    let refused = operate(&mut client, UNCOMMITTED, "create-pr", None).await.unwrap_err();
    let said = refused["message"].as_str().unwrap();
    assert!(
        said.contains("rate limit exceeded; the branch agents/") && said.contains("is committed"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_turn_without_a_snapshot_is_told_and_leaves_no_objects() {
    let yard = Yard::new(&[("a.txt", "a\n"), (".gitattributes", "*.slow filter=slow\n")]);
    // Git waits for the user's filter longer than the host does.
    let config = yard.folder.path().join("gitconfig");
    fs::write(&config, "[filter \"slow\"]\n\tclean = sleep 20 && cat\n").unwrap();
    let start = || {
        let mut command = yard.folder.command(&[]);
        environment(&mut command);
        command.env("GIT_CONFIG_GLOBAL", &config);
        yard.folder.started(command)
    };
    yard.write("b.txt", &"some text\n".repeat(1000));
    yard.write("c.slow", "c\n");
    let daemon = start();
    let mut client = daemon.initialized("c").await;
    create(&mut client, "one", &yard.repo, json!({})).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(ONE);
    client.subscribe(&chat).await;
    let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Hello" } });
    client.dispatch(&chat, 1, action).await;
    client.actions_until("chat/turnComplete").await;
    for channel in [SESSION, "echo:/one/changeset/turn/t1"] {
        let state = changeset(&daemon, channel).await;
        assert!(reason(&state).contains("are not recorded"), "{state}");
    }
    let left = fs::read_dir(yard.repo.join(".git/objects")).unwrap().flatten();
    assert_eq!(left.filter(|it| it.file_name().to_string_lossy().starts_with("tmp_")).count(), 0);
    // Also after a restart.
    drop(client);
    drop(daemon);
    let daemon = start();
    assert!(reason(&changeset(&daemon, SESSION).await).contains("are not recorded"));
}

#[tokio::test]
async fn review_marks_are_stored() {
    let yard = Yard::new(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    yard.write("a.txt", "A\n");
    yard.write("b.txt", "B\n");
    let (daemon, mut client) = session(&yard).await;
    client.subscribe(UNCOMMITTED).await;
    for name in ["a.txt", "b.txt"] {
        let seen =
            json!({ "type": "changeset/filesReviewChanged", "files": [yard.uri(name)], "reviewed": true });
        client.dispatch(UNCOMMITTED, 1, seen).await;
        client.actions_until("changeset/filesReviewChanged").await;
    }
    turn(&yard, &mut client, "t1", "Hello").await;
    // Nobody watches it any more.
    drop(client);
    yard.write("b.txt", "later\n");
    let marks = |state: &Value| {
        [&file(state, "a.txt")["reviewed"], &file(state, "b.txt")["reviewed"]].map(Value::clone)
    };
    assert_eq!(marks(&changeset(&daemon, UNCOMMITTED).await), [json!(true), Value::Null]);
    drop(daemon);
    let daemon = yard.start();
    assert_eq!(marks(&changeset(&daemon, UNCOMMITTED).await), [json!(true), Value::Null]);
}

/// Waits until the facts of a session's repository have a value, in what its subscribers receive.
async fn until_fact(client: &mut Client, key: &str, expected: Value) {
    let told = async {
        loop {
            let told = client.actions_until("session/metaChanged").await.pop().unwrap();
            if told["action"]["_meta"]["git"][key] == expected {
                return;
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await;
    told.unwrap_or_else(|_| panic!("{key} never becomes {expected}"));
}

async fn listed(client: &mut Client, session: &str) -> Option<Value> {
    let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    listed["items"].as_array().unwrap().iter().find(|row| row["resource"] == session).cloned()
}

#[tokio::test]
async fn a_branch_and_a_commit_of_other_programs_are_facts_of_a_session() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let (daemon, mut client) = session(&yard).await;
    turn(&yard, &mut client, "t1", "Hello").await;
    // Only the session is watched, not its changes.
    let state = client.subscribe(ONE).await;
    if state["_meta"]["git"]["branchName"] != "main" {
        until_fact(&mut client, "branchName", json!("main")).await;
    }
    yard.git(&["checkout", "-q", "-b", "other"]);
    until_fact(&mut client, "branchName", json!("other")).await;
    yard.write("a.txt", "A\n");
    yard.git(&["commit", "-qam", "Second"]);
    yard.git(&["checkout", "-q", "--detach"]);
    until_fact(&mut client, "isDetachedHead", json!(true)).await;
    // While nobody watches, the branch is another one again.
    drop(client);
    yard.git(&["checkout", "-q", "main"]);
    let mut client = daemon.initialized("d").await;
    let shown = async {
        loop {
            let state = client.subscribe(ONE).await;
            if state["_meta"]["git"]["branchName"] == "main" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), shown).await.expect("the branch is shown again");

    // A host that starts again lists them before anyone opens the session.
    assert_eq!(daemon.stop(), Some(0));
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    let row = listed(&mut client, ONE).await.unwrap();
    assert_eq!(row["_meta"]["git"]["branchName"], "main", "{row}");
}

#[tokio::test]
async fn pushes_and_fetches_of_other_programs_are_facts_of_a_session() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let remote = yard.repo.with_file_name("remote.git");
    git(&yard.repo, &["init", "-q", "--bare", "-b", "main", remote.to_str().unwrap()]);
    let (daemon, mut client) = session(&yard).await;
    let state = client.subscribe(ONE).await;
    if state["_meta"]["git"]["branchName"] != "main" {
        until_fact(&mut client, "branchName", json!("main")).await;
    }
    // The first push creates the upstream.
    yard.git(&["remote", "add", "origin", remote.to_str().unwrap()]);
    yard.git(&["push", "-q", "-u", "origin", "main"]);
    until_fact(&mut client, "outgoingChanges", json!(0)).await;
    yard.git(&["commit", "-q", "--allow-empty", "-m", "Second"]);
    until_fact(&mut client, "outgoingChanges", json!(1)).await;
    yard.git(&["push", "-q"]);
    until_fact(&mut client, "outgoingChanges", json!(0)).await;

    let other = yard.repo.with_file_name("other");
    git(&yard.repo, &["clone", "-q", remote.to_str().unwrap(), other.to_str().unwrap()]);
    git(&other, &["commit", "-q", "--allow-empty", "-m", "Third"]);
    git(&other, &["push", "-q"]);
    yard.git(&["fetch", "-q"]);
    until_fact(&mut client, "incomingChanges", json!(1)).await;
    // A packed ref changes in another file, and its directory disappears.
    yard.git(&["pack-refs", "--all"]);
    yard.git(&["update-ref", "-d", "refs/remotes/origin/main"]);
    until_fact(&mut client, "incomingChanges", Value::Null).await;
    yard.git(&["fetch", "-q"]);
    until_fact(&mut client, "incomingChanges", json!(1)).await;

    // Another branch has another upstream, in a directory that does not exist yet.
    yard.git(&["checkout", "-q", "-b", "work/one"]);
    until_fact(&mut client, "branchName", json!("work/one")).await;
    yard.git(&["push", "-q", "-u", "origin", "work/one"]);
    until_fact(&mut client, "upstreamBranchName", json!("origin/work/one")).await;
    yard.git(&["branch", "-q", "--set-upstream-to", "main"]);
    until_fact(&mut client, "upstreamBranchName", json!("main")).await;
    drop(daemon);
}

#[tokio::test]
async fn a_killed_creation_leaves_no_tree_and_no_branch() {
    let plugins = json!([{ "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "./slow.mjs" }]);
    let yard = Yard::with(&[("a.txt", "a\n")], plugins);
    yard.folder.write(
        "slow.mjs",
        "export const apply = (host) => host.registerAgent({
            provider: 'slow', displayName: 'Slow', schema: () => ({ properties: {} }), defaults: () => ({}),
            create: ({ uri }) => { host.log(`creates ${uri}`); return new Promise((done) => setTimeout(done, 600_000)); },
        });",
    );
    let daemon = yard.start();
    let mut waiting = Vec::new();
    for id in ["one", "two"] {
        let mut client = daemon.initialized(id).await;
        let params = json!({ "jsonrpc": "2.0", "id": 7, "method": "createSession", "params": {
            "channel": format!("slow:/{id}"), "provider": "slow",
            "workingDirectories": [format!("file://{}", yard.repo.display())],
            "config": { "isolation": "worktree", "worktreeBranchPrefix": "agent/" } } });
        client.send(&params.to_string()).await;
        waiting.push(client);
        yard.folder.wait_for_log(&format!("creates slow:/{id}"));
    }
    let tree = |id: &str| yard.repo.with_file_name("repo.worktrees").join(id);
    assert!(tree("one").join("a.txt").exists(), "{}", yard.folder.read("log"));
    // What someone wrote into a tree is not deleted.
    fs::write(tree("two").join("work.txt"), "w\n").unwrap();
    daemon.kill();
    assert!(tree("one").exists());

    drop(waiting);
    let daemon = yard.start();
    assert!(!tree("one").exists(), "{}", yard.folder.read("log"));
    assert_eq!(yard.git(&["branch", "--list", "agent/one"]), "");
    yard.folder.wait_for_log(&format!("kept the working tree {}", tree("two").display()));
    assert_eq!(fs::read_to_string(tree("two").join("work.txt")).unwrap(), "w\n");
    // The id can be used again, but not for a tree with work.
    let mut client = daemon.initialized("c").await;
    let config = json!({ "isolation": "worktree", "worktreeBranchPrefix": "agent/" });
    create(&mut client, "one", &yard.repo, config.clone()).await.unwrap();
    let refused = create(&mut client, "two", &yard.repo, config).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("exists already"), "{refused}");
    assert_eq!(fs::read_to_string(tree("two").join("work.txt")).unwrap(), "w\n");
}

#[tokio::test]
async fn a_tree_that_git_did_not_complete_is_removed() {
    let yard = Yard::new(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    let trees = yard.repo.with_file_name("repo.worktrees");
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    let config = json!({ "isolation": "worktree", "worktreeBranchPrefix": "agent/" });
    for id in ["one", "two", "gone"] {
        create(&mut client, id, &yard.repo, config.clone()).await.unwrap();
    }
    daemon.kill();
    // As git leaves a tree that it has not filled yet.
    for id in ["one", "two", "gone"] {
        let own = yard.repo.join(".git/worktrees").join(id);
        fs::write(own.join("locked"), "initializing").unwrap();
        fs::remove_file(own.join("index")).unwrap();
        fs::remove_file(trees.join(id).join("b.txt")).unwrap();
    }
    fs::write(trees.join("two/a.txt"), "changed\n").unwrap();
    fs::remove_dir_all(trees.join("gone")).unwrap();
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    for id in ["one", "two", "gone"] {
        client.request("disposeSession", json!({ "channel": format!("echo:/{id}") })).await.unwrap();
    }
    yard.folder.wait_for_log(&format!("kept the working tree {}", trees.join("two").display()));
    let gone = || {
        (!trees.join("one").exists() && yard.git(&["branch", "--list", "agent/*"]) == "+ agent/two")
            .then_some(())
    };
    assert!(wait_for(gone).is_some(), "{} {}", yard.git(&["branch"]), yard.folder.read("log"));
    assert_eq!(fs::read_to_string(trees.join("two/a.txt")).unwrap(), "changed\n");
}

#[tokio::test]
async fn refused_creations_and_unused_sessions_leave_no_branch() {
    let plugins =
        json!([{ "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "./refusing.mjs" }]);
    let yard = Yard::with(&[("a.txt", "a\n")], plugins);
    yard.folder.write(
        "refusing.mjs",
        "export const apply = (host) => host.registerAgent({
            provider: 'refusing', displayName: 'Refusing', schema: () => ({ properties: {} }), defaults: () => ({}),
            create: () => { throw new Error('not today'); },
        });",
    );
    yard.git(&["branch", "own"]);
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    let params = |config: Value| {
        json!({ "channel": "refusing:/one", "provider": "refusing", "config": config,
            "workingDirectories": [format!("file://{}", yard.repo.display())] })
    };
    let branches = || yard.git(&["branch", "--format=%(refname:short)"]);
    for config in [
        json!({ "isolation": "worktree" }),
        json!({ "isolation": "worktree", "branch": "own", "worktreeCreateNewBranch": false }),
    ] {
        let refused = client.request("createSession", params(config)).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains("not today"), "{refused}");
        assert_eq!(branches(), "main\nown");
    }
    assert_eq!(listed(&mut client, "refusing:/one").await, None);
    // A session without a turn, and one with a commit that only its branch has.
    for id in ["two", "three"] {
        create(&mut client, id, &yard.repo, json!({ "isolation": "worktree" })).await.unwrap();
    }
    let trees = yard.repo.with_file_name("repo.worktrees");
    git(&trees.join("three"), &["commit", "-q", "--allow-empty", "-m", "Second"]);
    for id in ["two", "three"] {
        client.request("disposeSession", json!({ "channel": format!("echo:/{id}") })).await.unwrap();
    }
    assert!(wait_for(|| (branches() == "main\nown\nthree").then_some(())).is_some(), "{}", branches());
    assert!(!trees.join("two").exists() && !trees.join("three").exists());
}

#[tokio::test]
async fn lines_are_counted_as_git_counts_them() {
    let settings: &[(&str, &str)] = &[
        ("false", ""),
        ("true", ""),
        ("input", ""),
        ("false", "*.txt text=auto\n"),
        ("false", "*.txt text\n"),
        ("true", "*.txt -text\n"),
        ("false", "*.txt eol=crlf\n"),
        ("false", "*.txt -diff\n"),
    ];
    for (autocrlf, attributes) in settings {
        let yard = Yard::new(&[
            ("unix.txt", "a\nb\nc\n"),
            ("windows.txt", "a\r\nb\r\nc\r\n"),
            ("both.txt", "a\r\nb\nc\n"),
            ("ends.txt", "a\nb\n"),
            ("plain.txt", "a\n"),
        ]);
        yard.git(&["config", "core.autocrlf", autocrlf]);
        yard.write(".gitattributes", attributes);
        yard.write("unix.txt", "a\r\nB\r\nc\r\n");
        yard.write("windows.txt", "a\nB\nc\n");
        yard.write("both.txt", "a\nB\r\nc\r\n");
        yard.write("ends.txt", "a\r\nb\r\n");
        yard.write("plain.txt", "A\nb\n");
        let (_daemon, mut client) = session(&yard).await;
        let state = client.subscribe(UNCOMMITTED).await;
        let shown: Vec<_> =
            rows(&yard, &state).into_iter().filter(|(name, ..)| name != ".gitattributes").collect();
        let counted = yard.git(&["diff", "--numstat", "HEAD"]);
        let counted: Vec<_> = counted
            .lines()
            .map(|line| {
                let fields: Vec<&str> = line.split('\t').collect();
                (fields[2].to_owned(), fields[0].parse::<i64>().ok(), fields[1].parse::<i64>().ok())
            })
            .collect();
        // Git's status lists some files whose stored content is the same.
        let changed: Vec<_> = shown
            .iter()
            .filter(|(name, added, removed)| {
                counted.iter().any(|(other, ..)| other == name) || (*added, *removed) != (Some(0), Some(0))
            })
            .cloned()
            .collect();
        assert_eq!(changed, counted, "autocrlf {autocrlf}, {attributes:?}");
    }
}

#[tokio::test]
async fn a_tree_with_submodules_is_removed_unless_they_hold_work() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let module = yard.repo.with_file_name("module");
    git(yard.repo.parent().unwrap(), &["init", "-q", "-b", "main", "module"]);
    fs::write(module.join("m.txt"), "m\n").unwrap();
    git(&module, &["add", "-A"]);
    git(&module, &["commit", "-q", "-m", "First"]);
    let allow = ["-c", "protocol.file.allow=always", "submodule", "--quiet"];
    yard.git(&[&allow[..], &["add", module.to_str().unwrap(), "sub"]].concat());
    yard.git(&["commit", "-qm", "Second"]);
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    let trees = yard.repo.with_file_name("repo.worktrees");
    let ids = ["clean", "bare", "changed", "committed", "stashed"];
    for id in ids {
        create(&mut client, id, &yard.repo, json!({ "isolation": "worktree" })).await.unwrap();
        if id != "bare" {
            git(&trees.join(id), &[&allow[..], &["update", "--init"]].concat());
        }
    }
    let sub = |id: &str| trees.join(id).join("sub");
    fs::write(sub("changed").join("m.txt"), "M\n").unwrap();
    // The commit is in the superproject's commit, and nowhere else.
    git(&sub("committed"), &["commit", "-q", "--allow-empty", "-m", "Second"]);
    git(&trees.join("committed"), &["commit", "-qam", "Third"]);
    fs::write(sub("stashed").join("m.txt"), "M\n").unwrap();
    git(&sub("stashed"), &["stash", "-q"]);
    for id in ids {
        client.request("disposeSession", json!({ "channel": format!("echo:/{id}") })).await.unwrap();
    }
    for id in ["clean", "bare"] {
        let gone = wait_for(|| (!trees.join(id).exists()).then_some(()));
        assert!(gone.is_some(), "{id}: {}", yard.folder.read("log"));
    }
    yard.folder.wait_for_log("has commits that are on no remote");
    yard.folder.wait_for_log("has a stash");
    yard.folder.wait_for_log(&format!("kept the working tree {}", trees.join("changed").display()));
    for id in ["changed", "committed", "stashed"] {
        assert!(sub(id).join("m.txt").exists(), "{id}");
    }
}

#[tokio::test]
async fn a_tree_is_served_where_the_session_works() {
    let yard = Yard::new(&[("bar/a.txt", "a\n"), ("cellar/b.txt", "b\n")]);
    let bar = yard.repo.join("bar");
    let config = json!({ "port": 0, "paths": [bar], "plugins": [{ "name": "@ostler/echo" }, { "name": "@ostler/git" }] });
    yard.folder.write("config.json", &config.to_string());
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    create(&mut client, "one", &bar, json!({ "isolation": "worktree" })).await.unwrap();
    let tree = yard.repo.with_file_name("repo.worktrees").join("one");
    let list =
        |path: PathBuf| json!({ "channel": "ahp-root://", "uri": format!("file://{}", path.display()) });
    let found = client.request("resourceList", list(tree.join("bar"))).await.unwrap();
    assert_eq!(found["entries"], json!([{ "name": "a.txt", "type": "file" }]));
    fs::write(tree.join("bar/a.txt"), "A\n").unwrap();
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(text(&mut client, file(&state, "a.txt"), "after").await, "A\n");
    create(&mut client, "two", &tree.join("bar"), json!({})).await.unwrap();
    // What is not served in the repository is not served in its trees.
    for path in [tree.join("cellar"), tree.clone(), yard.repo.join("cellar")] {
        let refused = client.request("resourceList", list(path.clone())).await.unwrap_err();
        assert_eq!(refused["code"], -32009, "{}: {refused}", path.display());
        assert_eq!(create(&mut client, "three", &path, json!({})).await.unwrap_err()["code"], -32009);
    }
}

#[tokio::test]
async fn a_list_that_is_cut_says_so() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    fs::create_dir(yard.repo.join("many")).unwrap();
    for name in 0..10_000 {
        fs::write(yard.repo.join(format!("many/{name:05}")), "").unwrap();
    }
    let (daemon, _client) = session(&yard).await;
    let state = changeset(&daemon, UNCOMMITTED).await;
    let last = |state: &Value| state["files"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last(&state)["_meta"].get("ostler.truncated"), None, "all are listed");
    yard.write("one-more", "1\n");
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(state["files"].as_array().unwrap().len(), 10_000);
    assert_eq!(last(&state)["_meta"]["ostler.truncated"], true);
    let commit = state["operations"].as_array().unwrap().iter().find(|it| it["id"] == "commit").unwrap();
    assert!(commit["confirmation"].as_str().unwrap().starts_with("Commit at least 10000 files"), "{commit}");
}
