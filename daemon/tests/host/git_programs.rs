//! Reads of repositories that are not trusted: whatever program their configuration names, none runs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Client, Daemon, wait_for};
use serde_json::{Value, json};

use super::git::{
    ONE, SESSION, UNCOMMITTED, Yard, changeset, create, environment, file, git, names, operate, reason, text,
    turn,
};

/// The keys of git whose value is a program, a command line or the address of one. `*` is any name.
const PROGRAMS: &[&str] = &[
    "alias.*",
    "browser.*.cmd",
    "browser.*.path",
    "core.alternateRefsCommand",
    "core.askPass",
    "core.editor",
    "core.fsmonitor",
    "core.gitProxy",
    "core.hooksPath",
    "core.pager",
    "core.sshCommand",
    "credential.*.helper",
    "credential.helper",
    "diff.*.command",
    "diff.*.textconv",
    "diff.external",
    "diff.guitool",
    "diff.tool",
    "difftool.*.cmd",
    "difftool.*.path",
    "filter.*.clean",
    "filter.*.process",
    "filter.*.smudge",
    "gc.recentObjectsHook",
    "gpg.*.program",
    "gpg.program",
    "gpg.ssh.defaultKeyCommand",
    "guitool.*.cmd",
    "help.browser",
    "hook.*.command",
    "imap.tunnel",
    "include.path",
    "includeIf.*.path",
    "instaweb.browser",
    "instaweb.httpd",
    "instaweb.modulePath",
    "interactive.diffFilter",
    "lfs.customtransfer.*.path",
    "lfs.extension.*.clean",
    "man.*.cmd",
    "man.*.path",
    "merge.*.driver",
    "merge.guitool",
    "merge.tool",
    "mergetool.*.cmd",
    "mergetool.*.path",
    "pager.*",
    "remote.*.receivepack",
    "remote.*.uploadpack",
    "remote.*.url",
    "remote.*.vcs",
    "sendemail.ccCmd",
    "sendemail.headerCmd",
    "sendemail.sendmailCmd",
    "sendemail.smtpServer",
    "sendemail.toCmd",
    "sequence.editor",
    "submodule.*.update",
    "tar.*.command",
    "trailer.*.cmd",
    "trailer.*.command",
    "uploadpack.packObjectsHook",
    "url.*.insteadOf",
    "url.*.pushInsteadOf",
    "web.browser",
];

/// Parts of the names of keys that may name a program.
const SUSPICIOUS: &[&str] = &[
    "alias",
    "askpass",
    "browser",
    "clean",
    "cmd",
    "command",
    "driver",
    "editor",
    "exec",
    "filter",
    "fsmonitor",
    "helper",
    "hook",
    "httpd",
    "insteadof",
    "pack",
    "pager",
    "path",
    "process",
    "program",
    "proxy",
    "smudge",
    "textconv",
    "tool",
    "tunnel",
    "vcs",
];

/// Keys with such a name whose value is none: numbers, switches, formats, colors, and paths of files that are not run.
const OTHERS: &[&str] = &[
    "advice.",
    "clean.requireForce",
    "color.",
    "column.",
    "commit.cleanup",
    "commitGraph.",
    "completion.commands",
    "core.bigFileThreshold",
    "core.fsmonitorHookVersion",
    "core.multiPackIndex",
    "core.packedGitLimit",
    "core.packedGitWindowSize",
    "core.packedRefsTimeout",
    "core.quotePath",
    "core.unsetenvvars",
    "credential.useHttpPath",
    "diff.*.cachetextconv",
    "difftool.guiDefault",
    "difftool.prompt",
    "difftool.trustExitCode",
    "fastimport.",
    "fetch.",
    "fsck.",
    "fsmonitor.",
    "gc.",
    "gitcvs.",
    "gui.",
    "guitool.",
    "help.htmlPath",
    "http.",
    "index.",
    "log.",
    "mergetool.",
    "merge.*.name",
    "merge.*.recursive",
    "notes.",
    "pack.",
    "push.",
    "rebase.",
    "receive.",
    "remote.*.partialclonefilter",
    "remote.*.proxy",
    "repack.",
    "sendemail.",
    "status.",
    "submodule.",
    "transfer.",
    "uploadarchive.",
    "uploadpack.",
    "uploadpackfilter.",
    "add.interactive",
    "diff.*.",
    "extensions.",
    "maintenance.",
    "pull.",
    "sequence.",
    "stash.",
    "trace2.",
    "safe.",
    "worktree.",
    "bundle.",
    "fetch.unpackLimit",
    "protocol.",
    "lsrefs.",
    "format.",
    "rerere.",
    "blame.",
    "init.",
    "instaweb.",
    "interactive.",
    "merge.",
    "scalar.",
    "tar.",
    "trailer.",
    "versionsort.",
    "web.",
];

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn each_key_of_the_installed_git_that_can_name_a_program_is_in_the_table() {
    let out = Command::new("git").args(["help", "--config"]).output().unwrap();
    let listed = String::from_utf8(out.stdout).unwrap();
    let mut unknown = BTreeSet::new();
    for key in listed.lines().map(str::trim).filter(|key| key.contains('.')) {
        // Names stand in angle brackets, and a section without them is that of all.
        let mut shape = String::new();
        let mut depth = 0;
        for c in key.chars() {
            match c {
                '<' => {
                    depth += 1;
                    shape.push('*');
                }
                '>' => depth -= 1,
                c if depth == 0 => shape.push(c),
                _ => {}
            }
        }
        let lower = shape.to_ascii_lowercase();
        let last = lower.rsplit('.').next().unwrap();
        let of_section = ["alias", "pager"].iter().any(|section| lower.starts_with(&format!("{section}.")));
        if !of_section && !SUSPICIOUS.iter().any(|part| last.contains(part)) {
            continue;
        }
        let known = PROGRAMS.iter().any(|known| known.eq_ignore_ascii_case(&shape))
            || OTHERS.iter().any(|other| lower.starts_with(&other.to_ascii_lowercase()));
        if !known {
            unknown.insert(shape);
        }
    }
    assert!(listed.lines().count() > 100, "git help --config lists nothing");
    assert_eq!(unknown, BTreeSet::new(), "add them to PROGRAMS, or to OTHERS with no program as their value");
}

/// A repository that names a program wherever it can, and the file to which these programs write.
fn hostile(yard: &Yard) -> PathBuf {
    let top = yard.folder.path().canonicalize().unwrap();
    let (run, ran) = (top.join("run"), top.join("ran"));
    script(&run, &format!("#!/bin/sh\necho \"$1\" >> {}\ncat\n", ran.display()));
    for key in PROGRAMS {
        let program = format!("{} {key}", run.display());
        let value = match *key {
            "include.path" | "includeIf.*.path" | "core.hooksPath" => continue,
            "remote.*.url" | "url.*.insteadOf" | "url.*.pushInsteadOf" => continue,
            // Each is a remote of its own.
            "remote.*.vcs" => "evil".to_owned(),
            "submodule.*.update" => format!("!{program}"),
            _ => program,
        };
        let own = match *key {
            "alias.*" | "pager.*" => key.replace('*', "status"),
            key => key.replace('*', &format!("evil-{}", key.rsplit('.').next().unwrap())),
        };
        yard.git(&["config", &own, &value]);
    }
    // Every remote may have missing objects, by a transport that runs a program, or with a program in its place.
    yard.git(&["config", "core.repositoryFormatVersion", "1"]);
    yard.git(&["config", "extensions.partialClone", "ext"]);
    yard.git(&["config", "protocol.allow", "always"]);
    yard.git(&["config", "protocol.ext.allow", "always"]);
    yard.git(&["config", "remote.ext.url", &format!("ext::{} remote.*.url", run.display())]);
    yard.git(&["config", "remote.evil-uploadpack.url", &format!("file://{}", yard.repo.display())]);
    yard.git(&["config", "remote.evil-vcs.url", "x"]);
    for name in ["ext", "evil-uploadpack", "evil-vcs"] {
        yard.git(&["config", &format!("remote.{name}.promisor"), "true"]);
    }
    script(&top.join("git-remote-evil"), &format!("#!/bin/sh\necho 'remote.*.vcs' >> {}\n", ran.display()));
    // Hooks, also by another path and by an included file.
    let hooks = top.join("hooks");
    fs::create_dir_all(&hooks).unwrap();
    let at = yard.repo.join(".git/hooks");
    fs::create_dir_all(&at).unwrap();
    for name in
        ["post-index-change", "reference-transaction", "post-checkout", "fsmonitor-watchman", "post-rewrite"]
    {
        script(&hooks.join(name), &format!("#!/bin/sh\necho 'core.hooksPath' >> {}\n", ran.display()));
        script(&at.join(name), &format!("#!/bin/sh\necho hooks >> {}\n", ran.display()));
    }
    yard.git(&["config", "core.hooksPath", hooks.to_str().unwrap()]);
    for event in ["post-index-change", "reference-transaction"] {
        yard.git(&["config", "--add", "hook.evil-command.event", event]);
    }
    let included = top.join("included");
    fs::write(&included, format!("[filter \"included\"]\n\tclean = {} include.path\n", run.display()))
        .unwrap();
    yard.git(&["config", "include.path", included.to_str().unwrap()]);
    // Each file has one of the filters; those with `diff` and `merge` are of all.
    fs::write(
        yard.repo.join(".git/info/attributes"),
        "* diff=evil-textconv merge=evil-driver\nclean.txt filter=evil-clean\nprocess.txt filter=evil-process\n\
         included.txt filter=included\n",
    )
    .unwrap();
    ran
}

fn ran(path: &Path) -> BTreeSet<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Removes an object of a repository.
fn lose(yard: &Yard, revision: &str) {
    let id = yard.git(&["rev-parse", revision]);
    fs::remove_file(yard.repo.join(format!(".git/objects/{}/{}", &id[..2], &id[2..]))).unwrap();
}

#[tokio::test]
async fn no_read_runs_a_program_that_a_repository_names() {
    let yard = Yard::with(
        &[
            ("clean.txt", "1\n"),
            ("process.txt", "1\n"),
            ("included.txt", "1\n"),
            ("lost.txt", "1 lost\n"),
            ("gone.txt", "1 gone\n"),
        ],
        json!([{ "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "@ostler/github" }]),
    );
    // A submodule is a repository with a configuration of its own.
    let module = yard.repo.join("module");
    fs::create_dir(&module).unwrap();
    git(&module, &["init", "-q", "-b", "main"]);
    fs::write(module.join("a.txt"), "1\n").unwrap();
    git(&module, &["add", "."]);
    git(&module, &["commit", "-qm", "First"]);
    yard.git(&["add", "module"]);
    yard.git(&["commit", "-qm", "Module"]);

    let daemon = start(&yard);
    let mut client = daemon.initialized("c").await;
    // A session in a working tree, which is removed while the configuration is as hostile.
    create(&mut client, "tree", &yard.repo, json!({ "isolation": "worktree" })).await.unwrap();
    let tree = yard.repo.parent().unwrap().join("repo.worktrees/tree");
    assert!(tree.join("clean.txt").exists());

    let written = hostile(&yard);
    let run = yard.folder.path().canonicalize().unwrap().join("run");
    for key in ["core.fsmonitor", "filter.own.clean"] {
        git(&module, &["config", key, &format!("{} module-{key}", run.display())]);
    }
    fs::write(module.join(".git/info/attributes"), "* filter=own\n").unwrap();
    fs::write(module.join("a.txt"), "2\n").unwrap();
    for name in ["clean.txt", "process.txt", "included.txt", "lost.txt", "new.txt"] {
        yard.write(name, "2\n");
    }
    lose(&yard, "HEAD:lost.txt");
    // A renamed file whose content is lost.
    lose(&yard, "HEAD:gone.txt");
    fs::remove_file(yard.repo.join("gone.txt")).unwrap();
    yard.write("here.txt", "1 gone\nand more\n");
    let plain =
        ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "hook.evil-command.event="];
    yard.git(&[&plain[..], &["update-index", "--add", "--remove", "--", "gone.txt", "here.txt"]].concat());
    fs::write(tree.join("clean.txt"), "2\n").unwrap();
    let _ = fs::remove_file(&written);

    create(&mut client, "one", &yard.repo, json!({})).await.unwrap();
    client.subscribe(ONE).await;
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(state["status"], "ready", "{state}");
    let mut found = names(&yard, &state);
    found.sort();
    assert_eq!(
        found,
        ["clean.txt", "gone.txt", "here.txt", "included.txt", "lost.txt", "new.txt", "process.txt"]
    );
    for name in ["clean.txt", "new.txt"] {
        assert_eq!(text(&mut client, file(&state, name), "after").await, "2\n");
    }
    let lost = &file(&state, "lost.txt")["edit"]["before"]["content"]["uri"];
    client.request("resourceRead", json!({ "channel": "ahp-root://", "uri": lost })).await.unwrap_err();
    turn(&yard, &mut client, "t1", "Hello").await;
    yard.write("clean.txt", "3 more\n");
    turn(&yard, &mut client, "t2", "Hello").await;
    for channel in [SESSION, "echo:/one/changeset/compare/t1/t2"] {
        let state = changeset(&daemon, channel).await;
        assert_eq!(state["status"], "ready", "{state}");
        assert!(names(&yard, &state).contains(&"clean.txt".to_owned()), "{state}");
    }
    let params = json!({ "channel": "ahp-root://", "provider": "echo", "property": "branch",
        "workingDirectories": [format!("file://{}", yard.repo.display())], "config": { "isolation": "worktree" } });
    drop(client.request("sessionConfigCompletions", params).await);
    // A changed tree stays, a clean one is removed; both are read.
    client.request("disposeSession", json!({ "channel": "echo:/tree" })).await.unwrap();
    assert!(tree.exists());
    client.request("disposeSession", json!({ "channel": ONE })).await.unwrap();
    assert_eq!(ran(&written), BTreeSet::new());
    drop(daemon);
}

fn start(yard: &Yard) -> Daemon {
    let mut command = yard.folder.command(&[]);
    environment(&mut command);
    let path = std::env::var("PATH").unwrap();
    // Programs of remotes are found by their names.
    command.env("PATH", format!("{}:{path}", yard.folder.path().canonicalize().unwrap().display()));
    yard.folder.started(command)
}

#[tokio::test]
async fn a_file_with_a_filter_of_the_repository_is_compared_by_its_index_entry() {
    let yard =
        Yard::new(&[("same.txt", "1\n"), ("other.txt", "1\n"), ("users.txt", "1\n"), ("plain.txt", "1\n")]);
    let top = yard.folder.path().canonicalize().unwrap();
    // The user's filter, as that of Git LFS, stores the text in capitals.
    fs::write(top.join("gitconfig"), "[filter \"users\"]\n\tclean = tr a-z A-Z\n\trequired = true\n")
        .unwrap();
    fs::write(
        yard.repo.join(".gitattributes"),
        "same.txt filter=own\nother.txt filter=own\nusers.txt filter=users\n",
    )
    .unwrap();
    // The repository names another program for both.
    yard.git(&["config", "filter.own.clean", &format!("touch {}/ran; rev", top.display())]);
    yard.git(&["config", "filter.own.required", "true"]);
    yard.git(&["config", "filter.users.clean", &format!("touch {}/ran; rev", top.display())]);
    for (name, content) in [("same.txt", "abc\n"), ("other.txt", "abc\n")] {
        yard.write(name, content);
    }
    yard.git(&["add", "-A"]);
    yard.git(&["commit", "-qm", "Second"]);
    fs::remove_file(top.join("ran")).unwrap();
    yard.write("users.txt", "1\nabc\n");
    yard.write("other.txt", "xyz\n");

    let mut command = yard.folder.command(&[]);
    environment(&mut command);
    command.env("GIT_CONFIG_GLOBAL", top.join("gitconfig"));
    let daemon = yard.folder.started(command);
    let mut client = daemon.initialized("c").await;
    create(&mut client, "one", &yard.repo, json!({})).await.unwrap();
    let state = changeset(&daemon, UNCOMMITTED).await;
    let mut found = names(&yard, &state);
    found.sort();
    assert_eq!(found, ["other.txt", "users.txt"], "{state}");
    let other = file(&state, "other.txt");
    assert_eq!(other["_meta"], json!({ "ostler.notCompared": "own" }));
    assert!(other["edit"].get("diff").is_none_or(Value::is_null), "{other}");
    assert_eq!(file(&state, "users.txt")["_meta"], json!({ "ostler.unstaged": "M" }));

    // What the user's filter makes of a file is stored in the snapshot; a file without its filter is left out.
    turn(&yard, &mut client, "t1", "Hello").await;
    yard.write("other.txt", "other\n");
    yard.write("users.txt", "1\nabcd\n");
    turn(&yard, &mut client, "t2", "Hello").await;
    let state = changeset(&daemon, "echo:/one/changeset/compare/t1/t2").await;
    let mut found = names(&yard, &state);
    found.sort();
    assert_eq!(found, ["other.txt", "users.txt"], "{state}");
    assert_eq!(text(&mut client, file(&state, "users.txt"), "before").await, "1\nABC\n");
    let refused = operate(&mut client, SESSION, "revert", Some(&yard.uri("other.txt"))).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("is not stored"), "{refused}");
    assert!(!top.join("ran").exists());
    // Git itself, as the user would run it, runs the filter to compare content of the same size.
    yard.write("other.txt", "qrs\n");
    yard.git(&["status"]);
    assert!(top.join("ran").exists(), "the filter would run");
}

#[tokio::test]
async fn slow_repositories_do_not_hold_up_others() {
    let yard = Yard::new(&[("a.txt", "1\n")]);
    let top = yard.folder.path().canonicalize().unwrap();
    let (slow, started) = (top.join("slow"), top.join("started"));
    script(&slow, &format!("#!/bin/sh\necho >> {}\nexec sleep 20\n", started.display()));
    let clean = format!("[filter \"slow\"]\n\tclean = {}\n", slow.display());
    fs::write(top.join("gitconfig"), clean).unwrap();
    let repository = |name: &str| {
        let repository = yard.repo.with_file_name(name);
        fs::create_dir(&repository).unwrap();
        git(&repository, &["init", "-q", "-b", "main"]);
        fs::write(repository.join("a.txt"), "1\n").unwrap();
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "-qm", "First"]);
        // Of the same size, so that git has to look into it.
        fs::write(repository.join("a.txt"), "2\n").unwrap();
        repository
    };
    // The user's own filter does not answer, in more repositories than git processes run at a time.
    let filtered: Vec<PathBuf> = (0..10).map(|number| repository(&format!("filtered{number}"))).collect();
    for repository in &filtered {
        fs::write(repository.join(".git/info/attributes"), "* filter=slow\n").unwrap();
    }
    // A remote that does not answer has the missing object.
    let partial = repository("partial");
    for (key, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "ext::sleep 20"),
        ("protocol.ext.allow", "always"),
    ] {
        git(&partial, &["config", key, value]);
    }
    let id = git(&partial, &["rev-parse", "HEAD:a.txt"]);
    fs::remove_file(partial.join(format!(".git/objects/{}/{}", &id[..2], &id[2..]))).unwrap();
    yard.write("a.txt", "22\n");

    let mut command = yard.folder.command(&[]);
    environment(&mut command);
    command.env("GIT_CONFIG_GLOBAL", top.join("gitconfig"));
    let daemon = yard.folder.started(command);
    let mut client = daemon.initialized("c").await;
    create(&mut client, "one", &yard.repo, json!({})).await.unwrap();
    create(&mut client, "two", &partial, json!({})).await.unwrap();
    let open = filtered.iter().enumerate().map(|(number, repository)| {
        let daemon = &daemon;
        async move {
            let mut client = daemon.initialized(&format!("filtered{number}")).await;
            let id = format!("filtered{number}");
            create(&mut client, &id, repository, json!({})).await.unwrap();
            let params = json!({ "channel": format!("echo:/{id}/changeset/uncommitted") });
            let subscribe = json!({ "jsonrpc": "2.0", "id": 99, "method": "subscribe", "params": params });
            client.send(&subscribe.to_string()).await;
            client
        }
    });
    let _waiting: Vec<Client> = futures::future::join_all(open).await;
    let running = || fs::read_to_string(&started).unwrap_or_default().lines().count();
    assert!(wait_for(|| (running() >= 8).then_some(())).is_some(), "{} filters run", running());
    let begun = Instant::now();
    let state = changeset(&daemon, UNCOMMITTED).await;
    assert_eq!(names(&yard, &state), ["a.txt"], "{state}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    // A missing object holds up nothing: it is not fetched.
    let state = changeset(&daemon, "echo:/two/changeset/uncommitted").await;
    assert_eq!(state["status"], "ready", "{state}");
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
}

/// Settings about presentation, which change what git prints for people, with values that would change or break what is
/// read. Each is set in the repository and by the user.
const PRESENTATION: &[(&str, &str)] = &[
    ("color.branch", "always"),
    ("color.diff", "always"),
    ("color.status", "always"),
    ("color.ui", "always"),
    ("column.status", "always"),
    ("column.ui", "always"),
    ("core.abbrev", "40"),
    ("core.pager", "false"),
    ("core.quotePath", "true"),
    ("diff.algorithm", "patience"),
    ("diff.colorMoved", "zebra"),
    ("diff.context", "0"),
    ("diff.dstPrefix", "x/"),
    ("diff.external", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("diff.interHunkContext", "9"),
    ("diff.mnemonicPrefix", "true"),
    ("diff.noPrefix", "true"),
    ("diff.orderFile", "/nonexistent"),
    ("diff.relative", "true"),
    ("diff.renameLimit", "1"),
    ("diff.renames", "copies"),
    ("diff.renames", "false"),
    ("diff.statNameWidth", "1"),
    ("diff.submodule", "log"),
    ("diff.suppressBlankEmpty", "true"),
    ("diff.wordRegex", "."),
    ("diff.wsErrorHighlight", "all"),
    ("format.pretty", "raw"),
    ("i18n.logOutputEncoding", "ISO-8859-1"),
    ("log.abbrevCommit", "true"),
    ("log.date", "raw"),
    ("log.decorate", "full"),
    ("log.follow", "true"),
    ("log.showRoot", "false"),
    ("log.showSignature", "true"),
    ("pager.status", "false"),
    ("status.aheadBehind", "false"),
    ("status.branch", "true"),
    ("status.displayCommentPrefix", "true"),
    ("status.relativePaths", "false"),
    ("status.renameLimit", "1"),
    ("status.renames", "copies"),
    ("status.renames", "false"),
    ("status.short", "true"),
    ("status.showStash", "true"),
    ("status.showUntrackedFiles", "no"),
    ("status.submoduleSummary", "true"),
    ("submodule.module.ignore", "all"),
];

/// The number of repositories with such settings.
const GROUPS: usize = 7;

/// What a session shows of a repository: its changes since the last commit and since its first turn, and its commit.
async fn shown(daemon: &Daemon, client: &mut Client, id: &str, repository: &Path) -> Value {
    create(client, id, repository, json!({})).await.unwrap();
    let (session, top) = (format!("echo:/{id}"), format!("file://{}", repository.display()));
    let chat = ostler_protocol::uri::default_chat(&session);
    let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Hello" } });
    client.dispatch(&chat, 1, action).await;
    let after = format!("refs/ostler/{id}/turns/t1/after");
    let recorded = wait_for(|| (!git(repository, &["for-each-ref", &after]).is_empty()).then_some(()));
    assert!(recorded.is_some(), "{id}: no snapshot");
    // Renames, a copy, a name with other letters, a submodule at another commit.
    for (from, to) in [("one.txt", "eins.txt"), ("two.txt", "zwei.txt")] {
        git(repository, &["mv", from, to]);
    }
    fs::copy(repository.join("three.txt"), repository.join("copy.txt")).unwrap();
    fs::write(repository.join("three.txt"), "three\nchanged\n".repeat(20)).unwrap();
    fs::write(repository.join("größe.txt"), "g\n").unwrap();
    git(repository, &["add", "copy.txt", "three.txt"]);
    git(&repository.join("module"), &["commit", "-q", "--allow-empty", "-m", "Second"]);
    git(repository, &["-c", "submodule.module.ignore=none", "add", "module"]);
    let mut seen = Vec::new();
    for scope in ["uncommitted", "session"] {
        let state = changeset(daemon, &format!("{session}/changeset/{scope}")).await;
        assert_eq!(state["status"], "ready", "{id}: {state}");
        let mut rows: Vec<Value> = state["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| {
                let uri = |side: &str| file["edit"][side]["uri"].as_str().map(|uri| uri.replace(&top, ""));
                json!([uri("before"), uri("after"), file["edit"]["diff"], file["_meta"]])
            })
            .collect();
        rows.sort_by_key(Value::to_string);
        seen.push(json!(rows));
    }
    let params = json!({ "channel": format!("{session}/changeset/uncommitted"), "operationId": "commit",
        "_meta": { "ostler.commit": { "message": "Größe" } } });
    let commit = client.request("invokeChangesetOperation", params).await.unwrap();
    let commit = commit["message"].as_str().unwrap().splitn(3, ' ').nth(2).unwrap().to_owned();
    seen.push(json!(commit));
    let status = ["-c", "core.quotePath=true", "status", "--porcelain", "--untracked-files=all"];
    seen.push(json!(git(repository, &[&status[..], &["--ignore-submodules=none"]].concat())));
    json!(seen)
}

#[tokio::test]
async fn reads_depend_on_no_setting_about_presentation() {
    let yard = Yard::new(&[("a.txt", "1\n")]);
    let top = yard.folder.path().canonicalize().unwrap();
    let repository = |name: &str| {
        let repository = yard.repo.with_file_name(name);
        let module = repository.join("module");
        fs::create_dir_all(&module).unwrap();
        for at in [&repository, &module] {
            git(at, &["init", "-q", "-b", "main"]);
        }
        git(&module, &["commit", "-q", "--allow-empty", "-m", "First"]);
        for name in ["one.txt", "two.txt", "three.txt"] {
            fs::write(repository.join(name), format!("{name}\nline\n").repeat(20)).unwrap();
        }
        let url = "[submodule \"module\"]\n\tpath = module\n\turl = ./module\n";
        fs::write(repository.join(".gitmodules"), url).unwrap();
        git(&repository, &["-c", "advice.addEmbeddedRepo=false", "add", "-A"]);
        git(&repository, &["commit", "-qm", "First"]);
        repository
    };
    let started = |global: &str| {
        fs::write(top.join("gitconfig"), global).unwrap();
        let mut command = yard.folder.command(&[]);
        environment(&mut command);
        command.env("GIT_CONFIG_GLOBAL", top.join("gitconfig"));
        yard.folder.started(command)
    };
    let daemon = started("");
    let mut client = daemon.initialized("c").await;
    let expected = shown(&daemon, &mut client, "plain", &repository("plain")).await;
    assert_eq!(expected[0].as_array().unwrap().len(), 6, "{expected}");
    // Neighbors, of which one can hide the other, are in different repositories.
    for group in 0..GROUPS {
        let (id, repository) = (format!("own{group}"), repository(&format!("own{group}")));
        let set: Vec<_> = PRESENTATION.iter().skip(group).step_by(GROUPS).collect();
        for (key, value) in &set {
            git(&repository, &["config", key, value]);
        }
        let found = shown(&daemon, &mut client, &id, &repository).await;
        assert_eq!(found, expected, "one of {set:?}");
    }
    drop((client, daemon));
    // Those of the user, all at once: the last of two values is in force.
    let global: String = PRESENTATION
        .iter()
        .map(|(key, value)| {
            let (section, name) = key.split_once('.').unwrap();
            match name.split_once('.') {
                Some((part, name)) => format!("[{section} \"{part}\"]\n\t{name} = {value}\n"),
                None => format!("[{section}]\n\t{name} = {value}\n"),
            }
        })
        .collect();
    let daemon = started(&global);
    let mut client = daemon.initialized("c").await;
    let found = shown(&daemon, &mut client, "users", &repository("users")).await;
    assert_eq!(found, expected, "settings of the user");
    fs::write(yard.repo.join(".git/index"), b"nonsense").unwrap();
    create(&mut client, "one", &yard.repo, json!({})).await.unwrap();
    assert!(reason(&changeset(&daemon, UNCOMMITTED).await).contains("index"));
}
