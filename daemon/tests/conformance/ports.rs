//! What each port requires: every required member is named when it is missing, and nothing else is asked for.

use ostler_contract::points::{
    Changes, Computers, Containers, Diagnostics, Directories, Policies, PullRequest, PullRequests,
    RecordStore, Resource, ResourceFacts, ResourceStore, StoredCollection, TerminalStore, Usage, Vault,
    Worktree, Worktrees,
};
use ostler_contract::{Call, Options, PluginHost, Thrown, Value, json};

use crate::side::{Both, Side, builder, lines_of};

const PLUGIN: Both = Both { spec: "@conformance/ports", native, javascript: "ports.mjs", dress: None };

both! { PLUGIN:
    a_port_is_taken_with_its_required_members_and_refused_without_any_of_them,
}

/// Each port, its parameter and the members it requires.
const PORTS: &[(&str, &str, &[&str])] = &[
    ("registerVault", "vault", &["get", "set", "delete", "list"]),
    ("registerUsage", "usage", &["record", "total", "pools", "records"]),
    ("registerPolicies", "policies", &["list", "get", "put", "remove"]),
    ("registerRecords", "store", &["collection"]),
    ("registerResources", "store", &["list", "read", "resolve", "complete"]),
    ("registerTerminals", "store", &["create"]),
    ("registerComputers", "computers", &["how"]),
    ("registerContainers", "containers", &["available", "make", "write", "stop", "remove"]),
    ("registerChanges", "source", &["scopes", "state", "summary"]),
    ("registerDirectories", "facts", &["meta"]),
    ("registerWorktrees", "worktrees", &["repository", "branches", "create", "dirty", "remove"]),
    ("registerGithub", "pullRequests", &["resource", "forBranch", "create"]),
    ("registerDiagnostics", "diagnostics", &[]),
];

/// The one member that is no function.
const RESOURCE: &str = "https://api.example.com";

/// Registers ports with just what they require: each without one of its members, and then whole.
fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    macro_rules! tried {
        ($method:ident($whole:expr): $($member:ident),*) => {
            vec![
                $({
                    let mut without = $whole;
                    without.$member = Default::default();
                    host.$method(without, None)
                },)*
                host.$method($whole, None),
            ]
        };
    }
    let vault = || Vault {
        get: Call::now(|_| Ok(None)),
        set: Call::now(|_| Ok(())),
        delete: Call::now(|_| Ok(false)),
        list: Call::now(|()| Ok(vec![])),
        ..Vault::default()
    };
    let usage = || Usage {
        record: Call::now(|_| Ok(())),
        total: Call::now(|_| Ok(Default::default())),
        pools: Call::now(|()| Ok(vec![])),
        records: Call::now(|_| Ok(vec![])),
        ..Usage::default()
    };
    let policies = || Policies {
        list: Call::now(|()| Ok(vec![])),
        get: Call::now(|_| Ok(None)),
        put: Call::now(|_| Ok(())),
        remove: Call::now(|_| Ok(false)),
        ..Policies::default()
    };
    let records = || RecordStore {
        collection: Call::now(|_| Ok(StoredCollection::default())),
        ..RecordStore::default()
    };
    let resources = || ResourceStore {
        list: Call::now(|_| Ok(vec![])),
        read: Call::now(|_| Err("nothing is here".into())),
        resolve: Call::now(|_| Ok(ResourceFacts::default())),
        complete: Call::now(|_| Ok(vec![])),
        ..ResourceStore::default()
    };
    let terminals =
        || TerminalStore { create: Call::now(|_| Err("none".into())), ..TerminalStore::default() };
    let computers = || Computers { how: Call::now(|(_, process)| Ok(process)), ..Computers::default() };
    let containers = || Containers {
        available: Call::now(|()| Ok(true)),
        make: Call::now(|_| Err("none".into())),
        write: Call::now(|_| Ok(())),
        stop: Call::now(|_| Ok(())),
        remove: Call::now(|_| Ok(())),
        ..Containers::default()
    };
    let changes = || Changes {
        scopes: Call::now(|_| Ok(vec![])),
        state: Call::now(|_| Ok(Default::default())),
        summary: Call::now(|_| Ok(None)),
        ..Changes::default()
    };
    let directories =
        || Directories { meta: Call::now(|_| Ok(Default::default())), ..Directories::default() };
    let worktrees = || Worktrees {
        repository: Call::now(|_| Ok(None)),
        branches: Call::now(|_| Ok(vec![])),
        create: Call::now(|_| Ok(Worktree::default())),
        dirty: Call::now(|_| Ok(false)),
        remove: Call::now(|_| Ok(())),
        ..Worktrees::default()
    };
    let github = || PullRequests {
        resource: Resource::named(RESOURCE),
        for_branch: Call::now(|_| Ok(None)),
        create: Call::now(|_| Ok(PullRequest::default())),
        ..PullRequests::default()
    };
    let said = [
        tried!(register_vault(vault()): get, set, delete, list),
        tried!(register_usage(usage()): record, total, pools, records),
        tried!(register_policies(policies()): list, get, put, remove),
        tried!(register_records(records()): collection),
        tried!(register_resources(resources()): list, read, resolve, complete),
        tried!(register_terminals(terminals()): create),
        tried!(register_computers(computers()): how),
        tried!(register_containers(containers()): available, make, write, stop, remove),
        tried!(register_changes(changes()): scopes, state, summary),
        tried!(register_directories(directories()): meta),
        tried!(register_worktrees(worktrees()): repository, branches, create, dirty, remove),
        tried!(register_github(github()): resource, for_branch, create),
        tried!(register_diagnostics(Diagnostics::default()):),
    ];
    for outcome in said.into_iter().flatten() {
        host.log(outcome.map_or_else(|thrown| thrown.message, |()| "taken".to_owned()))?;
    }
    Ok(())
}

async fn a_port_is_taken_with_its_required_members_and_refused_without_any_of_them(side: Side) {
    let ports: Vec<Value> = PORTS
        .iter()
        .map(|(method, _, members)| json!({ "method": method, "members": members, "resource": RESOURCE }))
        .collect();
    let host = side.load(builder(), json!({ "ports": ports })).start().await;
    let expected: Vec<String> = PORTS
        .iter()
        .flat_map(|(method, param, members)| {
            let missing = members.iter().map(move |member| {
                let what = if *member == "resource" { "an object" } else { "a function" };
                format!("plugin ports: {method} needs {param}.{member} to be {what}")
            });
            missing.chain(["taken".to_owned()])
        })
        .collect();
    assert_eq!(lines_of(&host.log, "ports"), expected);
}
