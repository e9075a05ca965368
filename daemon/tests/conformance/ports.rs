//! What each port requires: every required member is named when it is missing, and nothing else is asked for.

use ostler_contract::points::{
    Computers, Containers, ResourceFacts, ResourceStore, TerminalStore, Usage, Vault,
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
    ("registerResources", "store", &["list", "read", "resolve", "complete"]),
    ("registerTerminals", "store", &["create"]),
    ("registerComputers", "computers", &["how"]),
    ("registerContainers", "containers", &["available", "make", "write", "stop", "remove"]),
];

/// Registers ports with just what they require: each without one of its members, and then whole.
fn native(host: PluginHost, _: Options) -> Result<(), Thrown> {
    macro_rules! tried {
        ($method:ident($whole:expr): $($member:ident),*) => {{
            let mut said: Vec<Result<(), Thrown>> = Vec::new();
            $(
                let mut without = $whole;
                without.$member = Default::default();
                said.push(host.$method(without, None));
            )*
            said.push(host.$method($whole, None));
            said
        }};
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
    let said = [
        tried!(register_vault(vault()): get, set, delete, list),
        tried!(register_usage(usage()): record, total, pools, records),
        tried!(register_resources(resources()): list, read, resolve, complete),
        tried!(register_terminals(terminals()): create),
        tried!(register_computers(computers()): how),
        tried!(register_containers(containers()): available, make, write, stop, remove),
    ];
    for outcome in said.into_iter().flatten() {
        host.log(outcome.map_or_else(|thrown| thrown.message, |()| "taken".to_owned()))?;
    }
    Ok(())
}

async fn a_port_is_taken_with_its_required_members_and_refused_without_any_of_them(side: Side) {
    let ports: Vec<Value> =
        PORTS.iter().map(|(method, _, members)| json!({ "method": method, "members": members })).collect();
    let host = side.load(builder(), json!({ "ports": ports })).start().await;
    let expected: Vec<String> = PORTS
        .iter()
        .flat_map(|(method, param, members)| {
            let missing = members
                .iter()
                .map(move |member| format!("plugin ports: {method} needs {param}.{member} to be a function"));
            missing.chain(["taken".to_owned()])
        })
        .collect();
    assert_eq!(lines_of(&host.log, "ports"), expected);
}
