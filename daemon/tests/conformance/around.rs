//! What is around a session: working trees, facts of directories, pull requests, changes; and what a host tells of
//! itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_contract::host::SessionRequest;
use ostler_contract::points::{
    BranchAsked, ChangeScope, Changes, ChangesOf, ChangesState, ChecksState, Diagnostics, Directories,
    PullRequest, PullRequestChecks, PullRequestRequest, PullRequestState, PullRequests, Repository, Resource,
    Worktree, WorktreeRequest, Worktrees,
};
use ostler_contract::wire::commands::{ChangesetOperationTarget, InvokeChangesetOperationResult};
use ostler_contract::{Call, HostFunction, JsonObject, Options, PluginHost, Thrown, Value, json};
use ostler_testkit::{MemoryHost, RawClient};

use crate::side::{Both, Side, Talk, builder, lines_of, object};

const PLUGIN: Both = Both { spec: "@conformance/around", native, javascript: "around.mjs", dress: None };

both! { PLUGIN:
    a_session_is_given_a_working_tree_of_its_own,
    a_session_a_plugin_starts_is_given_one_too,
    facts_of_a_directory_stand_in_its_sessions,
    facts_that_change_are_read_again_while_a_session_is_watched,
    pull_requests_of_a_session_are_found_and_made,
    what_a_session_changed_is_listed_watched_and_operated_on,
    a_directory_is_watched_while_its_changeset_is,
    a_host_tells_of_itself_what_it_can,
    without_any_of_them_nothing_is_offered,
}

fn found(number: u32) -> PullRequest {
    PullRequest {
        owner: "inn".into(),
        repo: "stable".into(),
        url: format!("https://example.com/{number}"),
        branch: "feature".into(),
        state: PullRequestState::Open,
        checks: (number == 7).then_some(PullRequestChecks {
            state: ChecksState::Failed,
            passed: 2,
            failed: 1,
            pending: 0,
        }),
    }
}

fn native(host: PluginHost, options: Options) -> Result<(), Thrown> {
    if options.contains_key("bare") {
        return host.register_diagnostics(Diagnostics::default(), None);
    }
    let turns: Arc<AtomicU64> = Arc::default();
    let (logs, removes) = (host.clone(), host.clone());
    host.register_worktrees(
        Worktrees {
            repository: Call::now(|(directory,): (String,)| {
                Ok(directory.starts_with("/inn").then(|| Repository { root: "/inn".into() }))
            }),
            branches: Call::now(|(_, typed): (String, String)| {
                let all = ["main", "maple", "stable"].into_iter().filter(|branch| branch.contains(&typed));
                Ok(all.map(str::to_owned).collect())
            }),
            create: Call::now(move |(asked,): (WorktreeRequest,)| {
                logs.log(format!("tree {}", json!(asked)))?;
                if asked.branch.as_deref() == Some("broken") {
                    return Err("no such branch".into());
                }
                let branch = format!("{}{}", asked.branch_prefix.unwrap_or_default(), asked.name);
                Ok(Worktree {
                    path: format!("/inn.worktrees/{}", asked.name),
                    branch: Some(branch),
                    ..Worktree::default()
                })
            }),
            dirty: Call::now(|(tree,): (String,)| Ok(tree.contains("dirty"))),
            remove: Call::now(move |(tree,): (String,)| removes.log(format!("removed {tree}"))),
            ..Worktrees::default()
        },
        None,
    )?;
    let (seen, moved) = (turns.clone(), turns.clone());
    let reports: Arc<AtomicU64> = Arc::default();
    let (reported, watches) = (reports.clone(), host.clone());
    host.register_directories(
        Directories {
            meta: Call::now(move |(directory,): (String,)| {
                let turns = seen.load(Ordering::Acquire) + reported.load(Ordering::Acquire);
                let git = json!({ "branchName": "feature", "directory": directory, "turns": turns });
                let project = json!({ "uri": "file:///inn", "displayName": "The inn" });
                Ok(object(json!({ "git": git, "project": project, "ostler.owner": "user:mallory" })))
            }),
            refresh: Some(Call::now(move |_| {
                moved.fetch_add(1, Ordering::AcqRel);
                Ok(())
            })),
            watch: Some(Call::new(move |(directory, changed): (String, HostFunction<fn()>)| {
                let (reports, watches) = (reports.clone(), watches.clone());
                async move {
                    if directory != "/inn/attic" {
                        return Ok(None);
                    }
                    reports.fetch_add(10, Ordering::AcqRel);
                    changed.call(()).await?;
                    let ended = move |()| watches.log("facts of /inn/attic are watched no more".into());
                    Ok(Some(Call::now(ended)))
                }
            })),
        },
        None,
    )?;
    let logs = host.clone();
    let mut resource = Resource::named("https://api.github.com/repos");
    resource.0.resource_name = Some("GitHub".into());
    host.register_github(
        PullRequests {
            resource,
            for_branch: Call::now(|(asked,): (BranchAsked,)| {
                let known =
                    asked.token.as_deref() == Some("secret") && asked.branch.as_deref() == Some("feature");
                Ok(known.then(|| found(7)))
            }),
            create: Call::now(move |(asked,): (PullRequestRequest,)| {
                let (branch, base) = (asked.branch.unwrap_or_default(), asked.base);
                let base = base.unwrap_or_else(|| "the usual".to_owned());
                logs.log(format!("pull request {} of {branch} into {base}", asked.title))?;
                if asked.title == "refused" {
                    return Err("not today".into());
                }
                Ok(found(8))
            }),
            ..PullRequests::default()
        },
        None,
    )?;
    let (logs, summed, starts) = (host.clone(), turns.clone(), host.clone());
    let (watches, grown) = (host.clone(), turns.clone());
    host.register_changes(
        Changes {
            scopes: Call::now(|_| {
                let scope = |scope: &str, label: &str| ChangeScope {
                    scope: scope.into(),
                    label: label.into(),
                    ..ChangeScope::default()
                };
                let change_kind = Some("uncommitted".to_owned());
                let own = ChangeScope { change_kind, review: true, ..scope("uncommitted", "Uncommitted") };
                Ok(vec![own, scope("session", "All")])
            }),
            state: Call::now(move |(of, scope): (ChangesOf, String)| {
                if scope == "none" {
                    return Err("there is no such changeset".into());
                }
                let file = |id: &str| format!("file://{}/{id}", of.directory.clone().unwrap());
                let added = turns.load(Ordering::Acquire);
                let state = json!({
                    "files": [
                        { "id": "a", "edit": { "after": { "uri": file("a"), "content": { "uri": file("a") } },
                            "diff": { "added": added, "removed": 0 } } },
                        { "id": "b", "edit": { "after": { "uri": file("b"), "content": { "uri": file("b") } } } },
                    ],
                    "operations": [
                        { "id": "commit", "label": "Commit", "scopes": ["changeset"], "status": "idle" },
                        { "id": "revert", "label": "Revert", "scopes": ["resource"], "status": "idle" },
                    ],
                });
                Ok(serde_json::from_value::<ChangesState>(state).unwrap())
            }),
            summary: Call::now(move |_| {
                let additions = summed.load(Ordering::Acquire);
                Ok(serde_json::from_value(json!({ "files": 2, "additions": additions })).unwrap())
            }),
            operate: Some(Call::now(
                move |(_, scope, operation, target, meta): (ChangesOf, String, String, Option<ChangesetOperationTarget>, Option<JsonObject>)| {
                    let target = json!(target);
                    let on = target["resource"].as_str().unwrap_or("everything");
                    logs.log(format!("{operation} {scope} {on}{}", meta.map(|meta| json!(meta).to_string()).unwrap_or_default()))?;
                    if operation == "revert" {
                        return Err("nothing to go back to".into());
                    }
                    let done = json!({ "message": "Committed." });
                    Ok(serde_json::from_value::<InvokeChangesetOperationResult>(done).unwrap())
                },
            )),
            watch: Some(Call::new(move |(directory, changed): (String, HostFunction<fn()>)| {
                let (watches, grown) = (watches.clone(), grown.clone());
                async move {
                    if directory != "/inn/yard" {
                        return Ok(None);
                    }
                    watches.log(format!("watches {directory}"))?;
                    grown.fetch_add(10, Ordering::AcqRel);
                    changed.call(()).await?;
                    Ok(Some(Call::now(move |()| watches.log(format!("{directory} is watched no more")))))
                }
            })),
            turn_start: Some(Call::now(move |(of, turn): (ChangesOf, String)| {
                starts.log(format!("before {turn} in {}", of.directory.unwrap_or_default()))
            })),
        },
        None,
    )?;
    let ends = host.clone();
    host.register_diagnostics(
        Diagnostics {
            logs: Some(Call::new(move |(level, told): (String, HostFunction<fn(JsonObject)>)| {
                let ends = ends.clone();
                async move {
                    told.call((object(json!({ "resourceLogs": [{ "level": level }] })),)).await?;
                    Ok(Some(Call::now(move |()| ends.log(format!("logs of {level} end")))))
                }
            })),
            network: Some(Call::now(|()| Ok(object(json!({ "hostname": "inn" }))))),
            fetch: Some(Call::now(|(url,): (String,)| Ok(object(json!({ "url": url, "status": 204 }))))),
            ..Diagnostics::default()
        },
        None,
    )
}

async fn start(side: Side) -> (MemoryHost, RawClient) {
    let host = side.host_with_echo().start().await;
    assert!(host.problems.is_empty(), "{:?}", host.problems);
    let mut client = host.raw();
    client.initialize("c").await;
    (host, client)
}

fn session(id: &str, directory: &str, config: Value) -> Value {
    json!({ "channel": format!("echo:/{id}"), "workingDirectories": [format!("file://{directory}")], "config": config })
}

async fn state(client: &mut RawClient, channel: &str) -> Value {
    let seen = client.request("subscribe", json!({ "channel": channel })).await.unwrap();
    seen["snapshot"]["state"].clone()
}

/// What a session's `_meta` comes to once it has this key.
async fn meta_with(client: &mut RawClient, session: &str, key: &str) -> Value {
    let seen = state(client, session).await["_meta"].clone();
    if !seen[key].is_null() {
        return seen;
    }
    loop {
        let told = client.next_action().await["action"].clone();
        if told["type"] == "session/metaChanged" && !told["_meta"][key].is_null() {
            return told["_meta"].clone();
        }
    }
}

async fn a_session_is_given_a_working_tree_of_its_own(side: Side) {
    let (host, mut client) = start(side).await;
    let asked =
        |directory: &str| json!({ "provider": "echo", "workingDirectory": format!("file://{directory}") });
    let told = client.request("resolveSessionConfig", asked("/inn/yard")).await.unwrap();
    let properties = &told["schema"]["properties"];
    assert_eq!(properties["isolation"]["enum"], json!(["folder", "worktree"]));
    assert_eq!(properties["branch"]["enum"], json!(["main", "maple", "stable"]));
    assert_eq!(
        (&properties["branch"]["enumDynamic"], &properties["branch"]["sessionMutable"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(told["values"]["isolation"], "folder");
    let elsewhere = client.request("resolveSessionConfig", asked("/elsewhere")).await.unwrap();
    assert_eq!(elsewhere["schema"]["properties"].get("isolation"), None, "{elsewhere}");
    let mut typed = object(asked("/inn/yard"));
    typed.extend(object(json!({ "property": "branch", "query": "ma" })));
    let rows = client.request("sessionConfigCompletions", Value::Object(typed)).await.unwrap();
    let rows: Vec<_> = rows["items"].as_array().unwrap().iter().map(|row| row["value"].clone()).collect();
    assert_eq!(rows, ["main", "maple"]);

    let config = json!({ "isolation": "worktree", "branch": "main", "worktreeBranchPrefix": "work/",
        "worktreeIncludeFiles": ".env, *.key", "worktreeSymlinkFolders": ["node_modules"] });
    client.request("createSession", session("one", "/inn/yard", config)).await.unwrap();
    let made = state(&mut client, "echo:/one").await;
    assert_eq!(
        made["workingDirectories"],
        json!(["file:///inn.worktrees/one/yard"]),
        "where it works in the tree"
    );
    assert_eq!(made["config"]["values"]["isolation"], "worktree");
    let line = host.log.wait_for("plugin around: tree").await;
    let asked: Value = serde_json::from_str(line.split_once("tree ").unwrap().1).unwrap();
    assert_eq!(
        asked,
        json!({ "repository": "/inn", "name": "one", "branch": "main", "createNewBranch": true,
            "branchPrefix": "work/", "track": false, "includeFiles": [".env", "*.key"], "symlinkFolders": ["node_modules"] })
    );
    client
        .request("createSession", session("plain", "/inn", json!({ "isolation": "folder" })))
        .await
        .unwrap();
    assert_eq!(state(&mut client, "echo:/plain").await["workingDirectories"], json!(["file:///inn"]));

    // What cannot be isolated is not started.
    let worktree = |branch: &str| json!({ "isolation": "worktree", "branch": branch });
    for (params, why) in [
        (session("two", "/inn", worktree("broken")), "cannot create a working tree of /inn: no such branch"),
        (
            session("two", "/elsewhere", worktree("main")),
            "isolation cannot be worktree: /elsewhere is not in a repository",
        ),
    ] {
        let refused = client.request("createSession", params).await.unwrap_err();
        assert_eq!(refused["message"], why);
    }
    assert_eq!(host.host.sessions.all().len(), 2, "what is refused leaves nothing");
    // A tree goes with its session, unless it holds work.
    client.request("createSession", session("dirty", "/inn", worktree("main"))).await.unwrap();
    for id in ["one", "dirty", "plain"] {
        client.request("disposeSession", json!({ "channel": format!("echo:/{id}") })).await.unwrap();
    }
    host.log
        .wait_for(
            "echo:/dirty: kept the working tree /inn.worktrees/dirty because it has uncommitted changes",
        )
        .await;
    let removed: Vec<_> =
        lines_of(&host.log, "around").into_iter().filter(|line| line.starts_with("removed")).collect();
    assert_eq!(removed, ["removed /inn.worktrees/one"]);
}

async fn a_session_a_plugin_starts_is_given_one_too(side: Side) {
    let (host, mut client) = start(side).await;
    let request = SessionRequest {
        owner: "user:ada".into(),
        working_directory: Some("/inn".into()),
        config: Some(object(json!({ "isolation": "worktree" }))),
        ..SessionRequest::default()
    };
    let uri = host.plugin("around").start_session(request.clone()).await.unwrap();
    let id = uri.strip_prefix("echo:/").unwrap();
    let made = state(&mut client, &uri).await;
    assert_eq!(made["workingDirectories"], json!([format!("file:///inn.worktrees/{id}")]));
    let elsewhere = SessionRequest { working_directory: Some("/elsewhere".into()), ..request };
    assert!(host.plugin("around").start_session(elsewhere).await.is_err());
    assert_eq!(host.host.sessions.count(), 1);
}

async fn facts_of_a_directory_stand_in_its_sessions(side: Side) {
    let (host, mut client) = start(side).await;
    client.request("createSession", session("one", "/inn", json!({}))).await.unwrap();
    let meta = meta_with(&mut client, "echo:/one", "git").await;
    assert_eq!(meta["git"], json!({ "branchName": "feature", "directory": "/inn", "turns": 0 }));
    assert_eq!(meta.get("ostler.owner"), None, "the host's own keys are the host's");
    assert_eq!(meta.get("project"), None, "it is a field of its own");
    let project = json!({ "uri": "file:///inn", "displayName": "The inn" });
    assert_eq!(state(&mut client, "echo:/one").await["project"], project);
    let chat = ostler_protocol::uri::default_chat("echo:/one");
    let action = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "go" } });
    client.dispatch(&chat, 1, action).await;
    loop {
        let told = client.next_action().await["action"].clone();
        if told["type"] == "session/metaChanged" {
            assert_eq!(told["_meta"]["git"]["turns"], 1, "asked again once a turn has ended");
            break;
        }
    }
    let listed = client.request("listSessions", json!({ "channel": "ahp-root://" })).await.unwrap();
    assert_eq!(listed["items"][0]["project"], project);
    drop(host);
}

async fn facts_that_change_are_read_again_while_a_session_is_watched(side: Side) {
    let (host, mut client) = start(side).await;
    client.request("createSession", session("one", "/inn/attic", json!({}))).await.unwrap();
    assert!(lines_of(&host.log, "around").is_empty(), "nobody watches");
    let mut meta = state(&mut client, "echo:/one").await["_meta"].clone();
    // Each report adds 10, and each refresh one.
    while meta["git"]["turns"].as_u64() < Some(10) {
        meta = client.actions_until("session/metaChanged").await.pop().unwrap()["action"]["_meta"].clone();
    }
    client.notify("unsubscribe", json!({ "channel": "echo:/one" })).await;
    host.log.wait_for("plugin around: facts of /inn/attic are watched no more").await;
}

async fn pull_requests_of_a_session_are_found_and_made(side: Side) {
    let dir = tempfile::tempdir().unwrap();
    let db = ostler_ports::StateDb::open(dir.path()).unwrap();
    let sessions =
        Arc::new(ostler_ports::SqliteSessions::new(db, ostler_ports::Report::quiet())).into_point();
    let host = side.host_with_echo().sessions(sessions.clone()).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let root = state(&mut client, "ahp-root://").await;
    let offered = &root["agents"][0]["protectedResources"][0];
    assert_eq!(
        (&offered["resource"], &offered["resource_name"]),
        (&json!("https://api.github.com/repos"), &json!("GitHub"))
    );
    let token = json!({ "resource": "https://api.github.com/repos", "token": "secret" });
    client.request("authenticate", token).await.unwrap();
    client.request("createSession", session("one", "/inn", json!({}))).await.unwrap();
    let meta = meta_with(&mut client, "echo:/one", "github").await;
    let expected = |number: u32| {
        let url = format!("https://example.com/{number}");
        json!({ "owner": "inn", "repo": "stable", "pullRequestUrls": [url], "pullRequestBranchName": "feature",
            "pullRequestState": "open", "pullRequestStateUrl": url,
            "ostler.checks": { "state": "failed", "passed": 2, "failed": 1, "pending": 0 } })
    };
    assert_eq!(meta["github"], expected(7));
    assert_eq!(meta["githubData"], json!({ "file:///inn": expected(7) }));
    assert_eq!(meta["workingDirectoryKeys"], json!(["file:///inn"]));
    assert!(!meta.to_string().contains("secret"), "a token is told nobody");
    let create = |title: &str| json!({ "channel": "echo:/one", "title": title, "base": "main" });
    let made = client.request("x-ostler/pull-request/create", create("Oats")).await.unwrap();
    assert_eq!(made["url"], "https://example.com/8");
    host.log.wait_for("plugin around: pull request Oats of feature into main").await;
    for (params, why) in [
        (create("refused"), "not today"),
        (create(" "), "title is empty"),
        (json!({ "channel": "echo:/none", "title": "x" }), "echo:/none"),
    ] {
        let refused = client.request("x-ostler/pull-request/create", params).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
    }
    assert!(!sessions.pull_requests.unbounded(("one".into(),)).await.unwrap().is_empty(), "it is kept");
}

async fn what_a_session_changed_is_listed_watched_and_operated_on(side: Side) {
    let (host, mut client) = start(side).await;
    client.request("createSession", session("one", "/inn", json!({}))).await.unwrap();
    let mut listed = state(&mut client, "echo:/one").await["changesets"].clone();
    while listed.is_null() {
        listed = client.next_action().await["action"]["changesets"].clone();
    }
    assert_eq!(
        listed,
        json!([
            { "label": "Uncommitted", "uriTemplate": "echo:/one/changeset/uncommitted", "changeKind": "uncommitted",
                "capabilities": { "review": {} } },
            { "label": "All", "uriTemplate": "echo:/one/changeset/session", "changeKind": "other" }
        ])
    );
    let channel = "echo:/one/changeset/uncommitted";
    let held = state(&mut client, channel).await;
    assert_eq!((&held["status"], &held["files"][0]["edit"]["diff"]["added"]), (&json!("ready"), &json!(0)));
    let none =
        client.request("subscribe", json!({ "channel": "echo:/one/changeset/none" })).await.unwrap_err();
    assert_eq!(none["message"], "there is no such changeset");
    let none =
        client.request("subscribe", json!({ "channel": "echo:/no/changeset/session" })).await.unwrap_err();
    assert_eq!(none["code"], ostler_protocol::error::code::SESSION_NOT_FOUND);

    // Marks stay with what is as it was.
    let mark = json!({ "type": "changeset/filesReviewChanged", "files": ["a", "b"], "reviewed": true });
    client.dispatch(channel, 1, mark.clone()).await;
    client.actions_until("changeset/filesReviewChanged").await;
    client.dispatch("echo:/one/changeset/session", 2, mark).await;
    let refused = client.actions_until("changeset/filesReviewChanged").await.pop().unwrap();
    assert_eq!(refused["rejectionReason"], "echo:/one/changeset/session does not support reviews");
    let operate = |operation: &str, target: Value| {
        let mut params = object(json!({ "channel": channel, "operationId": operation }));
        if !target.is_null() {
            params.insert("target".to_owned(), target);
        }
        Value::Object(params)
    };
    let mut commit = operate("commit", Value::Null);
    commit["_meta"] = json!({ "ostler.commit": { "message": "Done" } });
    let done = client.request("invokeChangesetOperation", commit).await.unwrap();
    assert_eq!(done["message"], "Committed.");
    let told = client.actions_until("changeset/contentChanged").await;
    let statuses: Vec<_> = told.iter().filter_map(|told| told["action"]["status"].as_str()).collect();
    assert_eq!(statuses, ["running", "idle"]);
    let files = &told.last().unwrap()["action"]["files"];
    assert_eq!(files[0]["edit"]["diff"]["added"], 1, "asked again once something was done");
    assert_eq!((files[0].get("reviewed"), &files[1]["reviewed"]), (None, &json!(true)));
    let file = json!({ "kind": "resource", "resource": "file:///inn/a" });
    let failed =
        client.request("invokeChangesetOperation", operate("revert", file.clone())).await.unwrap_err();
    assert_eq!(failed["message"], "nothing to go back to");
    let told = client.actions_until("changeset/operationStatusChanged").await;
    assert!(told.len() <= 2);
    for (params, why) in [
        (operate("commit", file), "commit does not apply to a file"),
        (operate("revert", Value::Null), "revert does not apply to the whole changeset"),
        (operate("dance", Value::Null), "echo:/one/changeset/uncommitted offers no operation dance"),
    ] {
        let refused = client.request("invokeChangesetOperation", params).await.unwrap_err();
        assert_eq!((&refused["code"], &refused["message"]), (&json!(-32602), &json!(why)));
    }
    let lines = lines_of(&host.log, "around");
    let commit = r#"commit uncommitted everything{"ostler.commit":{"message":"Done"}}"#;
    assert_eq!(lines, [commit, "revert uncommitted file:///inn/a"]);
    let chat = ostler_protocol::uri::default_chat("echo:/one");
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "go" } });
    client.dispatch(&chat, 9, turn).await;
    client.actions_until("session/ready").await;
    host.log.wait_for("plugin around: before t in /inn").await;
    let rows = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(rows["items"][0]["changes"]["files"], 2);
    client.request("disposeSession", json!({ "channel": "echo:/one" })).await.unwrap();
    client.actions_until("changeset/cleared").await;
}

async fn a_directory_is_watched_while_its_changeset_is(side: Side) {
    let (host, mut client) = start(side).await;
    client.request("createSession", session("one", "/inn/yard", json!({}))).await.unwrap();
    assert!(lines_of(&host.log, "around").is_empty(), "nobody watches");
    let channel = "echo:/one/changeset/uncommitted";
    let mut held = state(&mut client, channel).await;
    // A change that is reported is told.
    while held["files"][0]["edit"]["diff"]["added"] != 10 {
        held = client.actions_until("changeset/contentChanged").await.pop().unwrap()["action"].clone();
    }
    client.notify("unsubscribe", json!({ "channel": channel })).await;
    host.log.wait_for("plugin around: /inn/yard is watched no more").await;
    assert_eq!(lines_of(&host.log, "around"), ["watches /inn/yard", "/inn/yard is watched no more"]);
}

async fn a_host_tells_of_itself_what_it_can(side: Side) {
    let host = side.host_with_echo().start().await;
    let mut client = host.raw();
    let told = client.initialize("c").await;
    assert_eq!(
        told["telemetry"],
        json!({ "logs": "ahp-otlp://logs/{level}" }),
        "what is there, and nothing else"
    );
    assert_eq!(
        client.request("x-ostler/diagnostics/network", json!({})).await.unwrap(),
        json!({ "hostname": "inn" })
    );
    let url = json!({ "url": "https://example.com/" });
    let tried = client.request("x-ostler/diagnostics/fetch", url).await.unwrap();
    assert_eq!(tried, json!({ "url": "https://example.com/", "status": 204 }));
    let file = client
        .request("x-ostler/diagnostics/fetch", json!({ "url": "file:///etc/passwd" }))
        .await
        .unwrap_err();
    assert_eq!(file["code"], -32602);
    let answer = client.request("subscribe", json!({ "channel": "ahp-otlp://logs/warn" })).await.unwrap();
    assert_eq!(answer, json!({}));
    let told = loop {
        let frame = client.next_frame().await.unwrap();
        if frame["method"] == "otlp/exportLogs" {
            break frame["params"].clone();
        }
    };
    assert_eq!(
        told,
        json!({ "channel": "ahp-otlp://logs/warn", "payload": { "resourceLogs": [{ "level": "warn" }] } })
    );
    for nothing in ["ahp-otlp://logs/loud", "ahp-otlp://traces", "ahp-otlp://metrics"] {
        assert!(client.request("subscribe", json!({ "channel": nothing })).await.is_err(), "{nothing}");
    }
    client.notify("unsubscribe", json!({ "channel": "ahp-otlp://logs/warn" })).await;
    host.log.wait_for("plugin around: logs of warn end").await;
    // Nothing at all may be told.
    let bare = side.load(builder(), json!({ "bare": true })).start().await;
    let mut client = bare.raw();
    assert_eq!(client.initialize("c").await.get("telemetry"), None);
    let refused = client.request("x-ostler/diagnostics/network", json!({})).await.unwrap_err();
    assert_eq!(refused["message"], "this host has no network diagnostics");
}

async fn without_any_of_them_nothing_is_offered(side: Side) {
    let host = side
        .load(builder().plugin(ostler_plugin_echo::plugin(), json!({})), json!({ "bare": true }))
        .start()
        .await;
    let mut client = host.raw();
    client.initialize("c").await;
    let told =
        client.request("resolveSessionConfig", json!({ "workingDirectory": "file:///inn" })).await.unwrap();
    assert_eq!(told["schema"]["properties"].get("isolation"), None);
    let refused =
        client.request("createSession", session("two", "/inn", json!({ "isolation": "worktree" }))).await;
    assert_eq!(
        refused.unwrap_err()["message"],
        "isolation cannot be worktree: this host has no working trees"
    );
    let mut talk = Talk::with(&host, "echo").await;
    talk.say("hello").await;
    let seen = state(&mut client, "echo:/talk").await;
    assert_eq!((seen.get("_meta"), seen.get("changesets")), (None, None), "{seen}");
    for (method, params) in [
        ("subscribe", json!({ "channel": "echo:/talk/changeset/session" })),
        (
            "invokeChangesetOperation",
            json!({ "channel": "echo:/talk/changeset/session", "operationId": "commit" }),
        ),
        ("x-ostler/pull-request/create", json!({ "channel": "echo:/talk", "title": "x" })),
        ("x-ostler/diagnostics/fetch", json!({ "url": "https://example.com/" })),
        ("vscode/createAgentHostDetachedWorktree", json!({ "session": "echo:/talk" })),
        ("vscode/claimAgentHostDetachedWorktree", json!({ "handle": "h" })),
        ("vscode/setAgentHostDetachedWorktreeArchived", json!({ "handle": "h", "archived": true })),
        ("vscode/deleteAgentHostDetachedWorktree", json!({ "handle": "h" })),
        ("vscode/reconcileAgentHostDetachedWorktrees", json!({ "scope": "w", "activeHandles": [] })),
    ] {
        assert_eq!(client.request(method, params).await.unwrap_err()["code"], -32601, "{method}");
    }
}
