//! What the programs that a daemon starts inherit: the daemon is started as from a git hook of another repository, from an
//! editor and by a service manager.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use crate::support::{Folder, wait_for};
use serde_json::json;

/// What a client's terminal runs to write its environment.
const WRITE: &str = "env -0 > dump/.part.$$ && mv dump/.part.$$ dump/";

/// Variables of the start of the daemon, which no program may inherit.
const OF_THE_START: &[(&str, &str)] = &[
    ("GIT_AUTHOR_NAME", "hook"),
    ("GIT_AUTHOR_EMAIL", "hook@example.org"),
    ("GIT_AUTHOR_DATE", "@1 +0000"),
    ("GIT_PREFIX", ""),
    ("GIT_EDITOR", ":"),
    ("GIT_EXEC_PATH", "/nonexistent"),
    ("GIT_CONFIG_PARAMETERS", "'user.name=hook'"),
    ("WATCHDOG_USEC", "600000000"),
    ("MAINPID", "1"),
    ("INVOCATION_ID", "abc"),
    ("JOURNAL_STREAM", "8:1"),
    ("LISTEN_FDNAMES", "none"),
    ("NODE_OPTIONS", "--no-warnings"),
    ("ELECTRON_RUN_AS_NODE", "1"),
    ("VSCODE_IPC_HOOK_CLI", "/nonexistent"),
    ("OSTLER_LOG", "info"),
];

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let out = command.arg("-C").arg(directory).args(arguments).output().unwrap();
    assert!(out.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The environment that a program wrote.
fn written(path: &Path) -> BTreeMap<String, String> {
    let text = wait_for(|| fs::read(path).ok()).unwrap_or_else(|| panic!("no {}", path.display()));
    let text = String::from_utf8(text).unwrap();
    let lines = text.split('\0').filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[tokio::test]
async fn no_program_inherits_what_is_about_the_start_of_the_daemon() {
    let folder = Folder::new(json!({}));
    let top = folder.path().canonicalize().unwrap();
    let (other, repo, dump) = (top.join("other"), top.join("yard/repo"), top.join("yard/repo/dump"));
    for repository in [&other, &repo] {
        fs::create_dir_all(repository).unwrap();
        git(repository, &["init", "-q", "-b", "main"]);
        git(repository, &["config", "user.name", "Ada"]);
        git(repository, &["config", "user.email", "ada@example.com"]);
        fs::write(repository.join("a.txt"), "a\n").unwrap();
        git(repository, &["add", "a.txt"]);
        git(repository, &["commit", "-qm", "First"]);
    }
    fs::create_dir(&dump).unwrap();
    fs::write(repo.join(".git/info/exclude"), "dump\n").unwrap();
    let write = |name: &str| format!("cd {} && {WRITE}{name}", repo.display());
    // A filter of the user's configuration runs in reads, and a hook in writes.
    script(&top.join("filter"), &format!("#!/bin/sh\n({}) >&2; cat\n", write("git")));
    script(&repo.join(".git/hooks/post-commit"), &format!("#!/bin/sh\n{}\n", write("hook")));
    script(&top.join("agent"), &format!("#!/bin/sh\n{}\nexec cat > /dev/null\n", write("agent")));
    fs::write(top.join("gitconfig"), format!("[filter \"own\"]\n\tclean = {}/filter\n", top.display()))
        .unwrap();
    fs::write(repo.join(".gitattributes"), "*.txt filter=own\n").unwrap();
    fs::write(repo.join("a.txt"), "b\n").unwrap();
    let plugin = "import { spawnSync } from 'node:child_process';\nimport { writeFileSync } from 'node:fs';\n\
        export const name = 'dump';\nexport function apply(host, options) {\n\
        writeFileSync(`${options.folder}/plugin`, Object.entries(process.env).map(([k, v]) => `${k}=${v}`).join('\\0'));\n\
        writeFileSync(`${options.folder}/child`, spawnSync('env', ['-0']).stdout);\n\
        writeFileSync(`${options.folder}/set`, spawnSync('env', ['-0'], { env: { ...process.env, GIT_DIR: '/set' } }).stdout);\n\
        }\n";
    folder.write("dump.mjs", plugin);
    let config = json!({ "port": 0, "paths": [repo.parent().unwrap()], "plugins": [
        { "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "@ostler/terminal" },
        { "name": "@ostler/acp", "options": { "startTimeoutSeconds": 2, "agents": {
            "own": { "command": top.join("agent"), "env": { "NODE_OPTIONS": "--configured" } } } } },
        { "name": "./dump.mjs", "options": { "folder": dump } },
    ] });
    folder.write("config.json", &config.to_string());

    let notify = UnixDatagram::bind(top.join("notify")).unwrap();
    let mut command = folder.command(&[]);
    command
        .envs(OF_THE_START.iter().copied())
        .env("GIT_DIR", other.join(".git"))
        .env("GIT_INDEX_FILE", other.join(".git/index"))
        .env("GIT_WORK_TREE", &other)
        .env("NOTIFY_SOCKET", top.join("notify"))
        .env("GIT_CONFIG_GLOBAL", top.join("gitconfig"))
        .env("ANTHROPIC_API_KEY", "key");
    let daemon = folder.started(command);
    drop(notify);
    let mut client = daemon.initialized("c").await;
    let params = json!({ "channel": "echo:/one", "provider": "echo",
        "workingDirectories": [format!("file://{}", repo.display())] });
    client.request("createSession", params).await.unwrap();
    let state = client.subscribe("echo:/one/changeset/uncommitted").await;
    assert_eq!(state["files"].as_array().unwrap().len(), 2, "{state}");
    let of_a_read = written(&dump.join("git"));
    let commit = json!({ "channel": "echo:/one/changeset/uncommitted", "operationId": "commit" });
    client.request("invokeChangesetOperation", commit).await.unwrap();
    let params = json!({ "channel": "own:/two", "provider": "own",
        "workingDirectories": [format!("file://{}", repo.display())] });
    client.request("createSession", params).await.unwrap();
    // It is started for a turn, and answers nothing.
    let chat = ostler_protocol::uri::default_chat("own:/two");
    client.subscribe(&chat).await;
    let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Hello" } });
    client.dispatch(&chat, 1, action).await;
    let shell = "ahp-terminal:/one";
    client.request("createTerminal", json!({ "channel": shell })).await.unwrap();
    let line = format!(
        "{}; cd {} && git commit --allow-empty -qm typed; {}\r",
        write("terminal"),
        repo.display(),
        write("typed")
    );
    client.dispatch(shell, 2, json!({ "type": "terminal/input", "data": line })).await;

    let programs = ["git", "hook", "agent", "plugin", "child", "terminal", "typed"];
    for name in programs {
        let found = if name == "git" { of_a_read.clone() } else { written(&dump.join(name)) };
        let git_sets = |variable: &str| matches!(name, "git" | "hook") && variable.starts_with("GIT_");
        for (variable, value) in OF_THE_START.iter().copied().chain([("NOTIFY_SOCKET", "")]) {
            let has = found
                .get(variable)
                .filter(|found| !git_sets(variable) || (*found == value && value.len() > 1));
            let has = has.filter(|found| *found != "--configured");
            assert_eq!(has, None, "{name} has {variable}");
        }
        for (variable, value) in &found {
            assert!(!value.contains(&*other.to_string_lossy()), "{name} has {variable}={value}");
        }
        assert_eq!(
            found.get("GIT_CONFIG_GLOBAL").map(String::as_str),
            top.join("gitconfig").to_str(),
            "{name}"
        );
        assert_eq!(found.contains_key("ANTHROPIC_API_KEY"), name != "git", "{name}");
    }
    // What is set for a program passes.
    assert_eq!(written(&dump.join("agent"))["NODE_OPTIONS"], "--configured");
    assert_eq!(written(&dump.join("set"))["GIT_DIR"], "/set");
    let log = |at: &Path| git(at, &["log", "--format=%an %s"]);
    assert_eq!(log(&repo), "Ada typed\nAda Changes of an agent session\nAda First");
    assert_eq!(log(&other), "Ada First");
}
