//! What is done with the changes of a run after its turn: a commit, or a pull request on a code host on loopback.

use std::fs;
use std::path::PathBuf;

use super::git::{Yard, environment, git};
use super::github::{CREATE, Forge, PULLS, REPO, Reply, ok, row, status};
use crate::support::{Daemon, wait_for};
use serde_json::{Value, json};

/// A backend that writes the file of its message, `name=content`, where it works; `fail` fails.
const WRITER: &str = "
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
export const apply = (host) => host.registerAgent({
  provider: 'writer', displayName: 'Writer', multipleDirectories: true, schema: () => ({ properties: {} }), defaults: () => ({}),
  create: (start) => ({
    begin(turnId, text) {
      const [name, content] = text.trim().split('=');
      if (name === 'fail') throw new Error('no pen');
      if (content !== undefined) writeFileSync(join(start.workingDirectory, name), content);
      start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
    },
    cancel() {},
    close() {},
  }),
});
";

/// A repository, and automations that work in it.
struct Ground {
    yard: Yard,
    /// What its daemon has in its environment.
    environment: Vec<(&'static str, String)>,
}

impl Ground {
    fn new(plugins: &[Value]) -> Self {
        let own = [json!({ "name": "./writer.mjs" }), json!({ "name": "@ostler/git" })];
        let plugins: Vec<&Value> = own.iter().chain(plugins).collect();
        let yard = Yard::with(&[("a.txt", "a\n")], json!(plugins));
        yard.folder.write("writer.mjs", WRITER);
        Self { yard, environment: Vec::new() }
    }

    fn automation(&self, id: &str, config: &Value, more: &str, message: &str) {
        self.automation_in(std::slice::from_ref(&self.yard.repo), id, config, more, message);
    }

    fn automation_in(&self, folders: &[PathBuf], id: &str, config: &Value, more: &str, message: &str) {
        let directories: Vec<String> =
            folders.iter().map(|folder| format!("file://{}", folder.display())).collect();
        let directories = json!(directories);
        let text = format!(
            "---\ntitle: Oats\nenabled: true\nsession: {{ provider: writer, config: {config}, workingDirectories: {directories} }}\n\
             triggers: []\n{more}\n---\n{message}\n"
        );
        self.yard.folder.write(&format!("automations/{id}.md"), &text);
    }

    fn start(&self) -> Daemon {
        let mut command = self.yard.folder.command(&[]);
        environment(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let daemon = self.yard.folder.started(command);
        // It records where it listens after it has said so.
        wait_for(|| (self.run(&["status"]).0 == Some(0)).then_some(())).expect("the daemon is found");
        daemon
    }

    fn run(&self, line: &[&str]) -> (Option<i32>, String) {
        let ended = self.yard.folder.run(line);
        (ended.code, format!("{}{}", ended.out, ended.err))
    }

    /// Starts a run.
    fn fire(&self, id: &str) {
        let started = || Some(self.run(&["automation", "run", id])).filter(|(code, _)| *code == Some(0));
        wait_for(started)
            .unwrap_or_else(|| panic!("{id} does not start: {:?}", self.run(&["automation", "run", id])));
    }

    /// The last run of an automation, as soon as it is as it should be.
    fn last_run(&self, id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let last = || {
            // What is wrong is on standard error.
            let listed = self.yard.folder.run(&["automation", "runs", id, "--json"]).out;
            let listed: Value = serde_json::from_str(&listed).unwrap_or_default();
            listed["runs"][0].clone()
        };
        wait_for(|| Some(last()).filter(&is)).unwrap_or_else(|| panic!("{id}: {}", last()))
    }

    /// Starts a run and waits until it has ended.
    fn ended(&self, id: &str) -> Value {
        self.fire(id);
        self.last_run(id, |run| !run["endedAt"].is_null())
    }

    /// The working tree of a run.
    fn tree(&self, run: &Value) -> PathBuf {
        let id = run["session"].as_str().unwrap().rsplit('/').next().unwrap();
        self.yard.repo.with_file_name("repo.worktrees").join(id)
    }
}

fn isolated() -> Value {
    json!({ "isolation": "worktree" })
}

const COMMIT: &str = "_meta: { ostler: { after: commit } }";
const PULL_REQUEST: &str = "_meta: { ostler: { after: create-pr } }";

#[test]
fn changes_of_a_run_are_committed_in_its_working_tree() {
    let ground = Ground::new(&[]);
    ground.automation("writes", &isolated(), COMMIT, "b.txt=oats");
    ground.automation("idles", &isolated(), COMMIT, "hello");
    ground.automation("fails", &isolated(), COMMIT, "fail");
    ground.automation("plain", &isolated(), "", "b.txt=oats");
    ground.automation("shared", &json!({}), COMMIT, "b.txt=oats");
    ground.automation("unknown", &isolated(), "_meta: { ostler: { after: push } }", "b.txt=oats");
    // Somebody works in another repository.
    let other = ground.yard.repo.with_file_name("other");
    ground.yard.git(&["clone", "-q", ".", other.to_str().unwrap()]);
    fs::write(other.join("a.txt"), "half of a thought\n").unwrap();
    let both = [ground.yard.repo.clone(), other.clone()];
    ground.automation_in(&both, "several", &isolated(), COMMIT, "b.txt=oats");
    let _daemon = ground.start();
    let head = ground.yard.git(&["rev-parse", "HEAD"]);

    let run = ground.ended("writes");
    let tree = ground.tree(&run);
    let commit = git(&tree, &["log", "-1", "--format=%h %s"]);
    assert!(commit.ends_with(" Oats"), "{commit}");
    assert_eq!(
        (&run["state"], &run["after"]),
        (
            &json!("completed"),
            &json!({ "operation": "commit", "state": "done", "message": format!("Committed {commit}") })
        )
    );
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");
    assert_eq!(fs::read_to_string(tree.join("b.txt")).unwrap(), "oats");
    assert_eq!(ground.yard.git(&["rev-parse", "HEAD"]), head, "the repository's own branch");
    for line in [&["automation", "runs", "writes"][..], &["automation", "show", "writes"]] {
        let (_, shown) = ground.run(line);
        assert!(shown.contains(&format!(": Committed {commit}")), "{shown}");
    }
    assert!(ground.run(&["automation", "show", "writes"]).1.contains("after each run commit"));

    for (id, state, after, error) in [
        // Nothing to commit is no failure.
        (
            "idles",
            "completed",
            json!({ "operation": "commit", "state": "done", "message": "Nothing to commit" }),
            None,
        ),
        ("fails", "failed", Value::Null, Some("its turn failed: ")),
        ("plain", "completed", Value::Null, None),
        ("unknown", "completed", Value::Null, None),
    ] {
        let run = ground.ended(id);
        assert_eq!((&run["state"], &run["after"]), (&json!(state), &after), "{id}: {run}");
        assert_eq!(run["error"].as_str().is_some(), error.is_some(), "{id}: {run}");
        assert!(
            run["error"].as_str().unwrap_or_default().starts_with(error.unwrap_or_default()),
            "{id}: {run}"
        );
        assert_eq!(git(&ground.tree(&run), &["rev-parse", "HEAD"]), head, "{id}");
    }

    // Without a tree of its own, the files of others could be among the changes.
    let run = ground.ended("shared");
    let why = "has no separate working tree; set session.config.isolation of the automation to worktree";
    assert_eq!(run["state"], "failed");
    assert!(run["error"].as_str().unwrap().starts_with("its commit failed: "), "{run}");
    assert!(run["error"].as_str().unwrap().ends_with(why), "{run}");
    assert_eq!((&run["after"]["state"], &run["after"]["operation"]), (&json!("failed"), &json!("commit")));
    assert_eq!(ground.yard.git(&["rev-parse", "HEAD"]), head);
    let run = ground.ended("several");
    assert!(run["error"].as_str().unwrap().ends_with("give the automation one working directory"), "{run}");
    assert_eq!(git(&other, &["rev-parse", "HEAD"]), head);
    assert_eq!(git(&other, &["status", "--porcelain"]), " M a.txt");
    for says in [
        "automation several: _meta.ostler.after fails with a backend that works in several directories: only the first is a working tree of the run",
        "automation shared: _meta.ostler.after fails: a run has no separate working tree; set session.config.isolation to worktree",
        "automation unknown: _meta.ostler.after is not one of commit, create-pr, so nothing is done after a run",
    ] {
        ground.yard.folder.wait_for_log(says);
    }
}

#[test]
fn a_pull_request_is_created_once_whenever_the_host_is_killed() {
    // At first the code host answers nothing about the branch.
    let forge = Forge::new(|seen| match seen.head.as_str() {
        PULLS => None,
        REPO => Some(ok(json!({ "full_name": "inn/stable", "default_branch": "main" }))),
        _ => Some(status(404, "Not Found")),
    });
    let options = json!({ "hosts": { "github.com": { "api": forge.url } } });
    let mut ground = Ground::new(&[json!({ "name": "@ostler/github", "options": options })]);
    let yard = &ground.yard;
    let bare = yard.repo.with_file_name("origin.git");
    yard.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    yard.git(&["remote", "add", "origin", "git@github.com:inn/stable.git"]);
    // Pushes arrive in a folder.
    yard.folder.write("bin/ssh", &format!("#!/bin/sh\nexec git receive-pack {}\n", bare.display()));
    yard.folder.write("bin/gh", "#!/bin/sh\necho gh-SECRET\n");
    let bin = yard.folder.path().join("bin");
    for program in ["gh", "ssh"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(bin.join(program), mode).unwrap();
    }
    ground.environment = vec![
        ("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())),
        ("GIT_SSH", bin.join("ssh").display().to_string()),
        ("GIT_SSH_VARIANT", "simple".to_owned()),
    ];
    ground.automation("writes", &isolated(), PULL_REQUEST, "b.txt=oats");
    ground.automation("idles", &isolated(), PULL_REQUEST, "hello");

    let daemon = ground.start();
    ground.fire("writes");
    let begun = json!({ "operation": "create-pr", "state": "running" });
    let run = ground.last_run("writes", |run| run["after"] == begun);
    assert_eq!(run["state"], "running");
    let branch = git(&ground.tree(&run), &["branch", "--show-current"]);
    let pushed =
        || git(&bare, &["for-each-ref", "--format=%(refname:short)", &format!("refs/heads/{branch}")]);
    wait_for(|| (pushed() == branch).then_some(())).expect("the branch is pushed");
    let commit = git(&bare, &["rev-parse", &branch]);
    daemon.kill();

    // Once it is there, a pull request is found again.
    let open = std::sync::atomic::AtomicBool::new(false);
    let made = branch.clone();
    forge.answers(move |seen| {
        use std::sync::atomic::Ordering::SeqCst;
        let row = || row("inn/stable", "inn/stable", &made, 8, "open");
        let reply: Reply = match seen.head.as_str() {
            REPO => ok(json!({ "full_name": "inn/stable", "default_branch": "main" })),
            PULLS if open.load(SeqCst) && seen.query.contains(&made) => ok(json!([row()])),
            PULLS => ok(json!([])),
            CREATE if !open.swap(true, SeqCst) => ok(row()),
            _ => status(404, "Not Found"),
        };
        Some(reply)
    });
    let daemon = ground.start();
    let url = "https://github.com/inn/stable/pull/8";
    let done =
        json!({ "operation": "create-pr", "state": "done", "message": format!("Created {url}"), "url": url });
    let again = ground.last_run("writes", |run| !run["endedAt"].is_null());
    assert_eq!(
        (&again["id"], &again["state"], &again["after"]),
        (&run["id"], &json!("completed"), &done),
        "{again}"
    );
    assert_eq!(git(&bare, &["rev-parse", &branch]), commit, "nothing is committed twice");
    let asked = forge.asked(CREATE);
    assert_eq!(
        (asked.len(), &asked[0].body["title"], &asked[0].body["head"]),
        (1, &json!("Oats"), &json!(branch))
    );

    // Without changes there is nothing to propose.
    let run = ground.ended("idles");
    assert_eq!((&run["state"], &run["after"]["state"]), (&json!("completed"), &json!("done")), "{run}");
    assert_eq!(run["after"]["message"], "there are no commits that main does not have");
    assert_eq!(forge.asked(CREATE).len(), 1);
    drop(daemon);
}

#[test]
fn an_operation_needs_the_grants_of_the_owner_when_it_begins() {
    let ground = Ground::new(&[]);
    let mut config: Value = serde_json::from_str(&ground.yard.folder.read("config.json")).unwrap();
    config["users"] = "users.json".into();
    config["connectionToken"] = "the-token".into();
    ground.yard.folder.write("config.json", &config.to_string());
    let users = |grants: &[&str]| {
        let hash = ostler_engine::users::hash_of;
        let signed_in = "2026-01-01T00:00:00Z";
        let ada =
            json!({ "id": "ada", "roles": ["maker"], "token": hash("ada-token"), "signedIn": signed_in });
        json!({ "roles": { "maker": grants }, "users": [ada] }).to_string()
    };
    ground.yard.folder.write("users.json", &users(&["session:create", "session:list"]));
    ground.automation("writes", &isolated(), &format!("owner: user:ada\n{COMMIT}"), "b.txt=oats");
    let _daemon = ground.start();
    let run = ground.ended("writes");
    assert_eq!(run["state"], "failed", "{run}");
    assert_eq!(run["error"], "its commit failed: user:ada may not session:changes here");
    assert_eq!(git(&ground.tree(&run), &["status", "--porcelain"]), "?? b.txt");

    ground.yard.folder.write("users.json", &users(&["session:create", "session:list", "session:changes"]));
    let committed = || Some(ground.ended("writes")).filter(|run| run["state"] == "completed");
    let run = wait_for(committed).expect("the grant is read");
    assert!(run["after"]["message"].as_str().unwrap().starts_with("Committed "), "{run}");
}
