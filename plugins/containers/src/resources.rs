//! Machines as resources: `computer://<id>` with their state, facts, statistics and files.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::models::{ContainerCpuStats, ContainerStatsResponse};
use bollard::query_parameters::{ContainerArchiveInfoOptionsBuilder, StatsOptionsBuilder};
use futures::StreamExt as _;
use ostler_contract::points::{
    Encoding, MachinePlan, Reader, ResourceContent, ResourceFacts, ResourceProvider, ResourceResolving,
    ResourceWrite, ResourceWriter, SchemeDescription,
};
use ostler_contract::wire::commands::DirectoryEntry;
use ostler_contract::{Call, RpcError, Thrown, Value, json};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::archive::FILE_LIMIT;
use crate::create::{NewMachine, over};
use crate::exec::ROOT;
use crate::machines::{ADDRESS, HostContainer, Machines, is_id, label};
use crate::options::{Machine, Mounted};
use crate::runtime::{Failure, Kind, QUICK};

pub const SCHEME: &str = "computer";
/// The resources of a machine in addition to its files.
const LEAVES: [&str; 4] = ["capabilities", "state", "stats", "status"];
/// Lists a directory: a letter for the kind and the name of each entry, ended by NUL.
const LIST: &str = r#"cd -- "$1" || exit 1; for f in * .*; do case "$f" in .|..) continue;; esac; if [ -d "$f" ]; then printf 'd%s\0' "$f"; elif [ -e "$f" ] || [ -h "$f" ]; then printf 'f%s\0' "$f"; fi; done"#;

/// A URI of the scheme.
#[derive(Debug, PartialEq, Eq)]
enum MachineResource {
    /// All machines.
    Root,
    /// One machine.
    Machine(String),
    /// A leaf of one.
    Leaf(String, &'static str),
    /// A path in one.
    File(String, String),
}

fn resource_of(uri: &str) -> Result<MachineResource, Failure> {
    let missing = || Failure::new(Kind::Missing, format_args!("nothing at {uri}"));
    let rest = uri.strip_prefix(ADDRESS).ok_or_else(missing)?;
    let decoded = percent_decode_str(rest).decode_utf8().map_err(|_| missing())?;
    let (id, path) = decoded.split_once('/').unwrap_or((&decoded, ""));
    if id.is_empty() {
        return if path.is_empty() { Ok(MachineResource::Root) } else { Err(missing()) };
    }
    if path.is_empty() {
        return Ok(MachineResource::Machine(id.to_owned()));
    }
    if let Some(leaf) = LEAVES.iter().find(|leaf| **leaf == path) {
        return Ok(MachineResource::Leaf(id.to_owned(), leaf));
    }
    let file = path.strip_prefix("files").filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let file = file.ok_or_else(missing)?;
    if file.split('/').any(|part| part == "..") || file.contains('\0') {
        return Err(missing());
    }
    Ok(MachineResource::File(id.to_owned(), if file.is_empty() { "/".to_owned() } else { file.to_owned() }))
}

/// The content of a write that creates a machine.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Manifest {
    runtime: Option<String>,
    profile: Option<String>,
    image: Option<String>,
    cpus: Option<f64>,
    memory: Option<crate::options::Memory>,
    user: Option<String>,
    network: Option<String>,
    workdir: Option<String>,
    folder: Option<String>,
    mounts: Vec<Mounted>,
    devcontainer: Option<DevContainer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DevContainer {
    folder: String,
}

/// The provider of the scheme.
pub fn provider(machines: &Arc<Machines>) -> ResourceProvider {
    let of = || machines.clone();
    let (reads, lists, writes, resolves, deletes, describes) = (of(), of(), of(), of(), of(), of());
    ResourceProvider {
        read: Call::new(move |(uri, _): (String, Option<Reader>)| {
            let machines = reads.clone();
            async move { Ok(read(&machines, &uri).await?) }
        }),
        list: Some(Call::new(move |(uri, _): (String, Option<Reader>)| {
            let machines = lists.clone();
            async move { Ok(list(&machines, &uri).await?) }
        })),
        write: Some(Call::new(move |(uri, content, _): (String, ResourceWrite, ResourceWriter)| {
            let machines = writes.clone();
            async move { write(&machines, &uri, content).await }
        })),
        resolve: Some(Call::new(move |(uri, _, _): (String, Option<Reader>, ResourceResolving)| {
            let machines = resolves.clone();
            async move { Ok(resolve(&machines, &uri).await?) }
        })),
        delete: Some(Call::new(move |(uri, _, _): (String, bool, ResourceWriter)| {
            let machines = deletes.clone();
            async move {
                match resource_of(&uri)? {
                    MachineResource::Machine(id) => Ok(machines.destroy(&id).await?),
                    _ => {
                        Err(RpcError::invalid_params(format!("{uri} cannot be deleted; delete the machine"))
                            .into())
                    }
                }
            }
        })),
        describe: Some(Call::now(move |()| {
            Ok(SchemeDescription {
                title: Some("Computers".to_owned()),
                description: Some("Machines of the container runtime that this host made".to_owned()),
                manifest: schema(describes.options.body_mounts).as_object().cloned(),
            })
        })),
        ..ResourceProvider::default()
    }
}

fn schema(mounts: bool) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "profile": { "type": "string", "description": "Profile whose values are used where this has none" },
            "image": { "type": "string" },
            "cpus": { "type": "number" },
            "memory": { "type": ["string", "integer"], "description": "Bytes, or with a unit: 512m, 2g" },
            "user": { "type": "string" },
            "network": { "type": "string" },
            "workdir": { "type": "string" },
            "devcontainer": {
                "type": "object", "description": "Dev container of a folder; not with image",
                "properties": { "folder": { "type": "string" } }, "required": ["folder"]
            }
        },
        "additionalProperties": false
    });
    if mounts {
        schema["properties"]["folder"] =
            json!({ "type": "string", "description": "Host directory to mount at its own path" });
        schema["properties"]["mounts"] = json!({ "type": "array", "items": {
            "type": "object", "required": ["source", "target"],
            "properties": { "source": { "type": "string" }, "target": { "type": "string" }, "readOnly": { "type": "boolean" } }
        } });
    }
    schema
}

async fn read(machines: &Machines, uri: &str) -> Result<ResourceContent, Failure> {
    match resource_of(uri)? {
        MachineResource::Root | MachineResource::Machine(_) => {
            Err(Failure::new(Kind::Invalid, format_args!("{uri} is a directory; list it")))
        }
        MachineResource::Leaf(id, leaf) => {
            let machine = machines.find(&id).await?;
            Ok(match leaf {
                "state" => ResourceContent::text(if machine.running { "running" } else { "stopped" }),
                "stats" => ResourceContent::json(&stats(machines, &machine).await?),
                "capabilities" => ResourceContent::json(&json!({
                    "runtime": machines.runtime.address()?, "fields": schema(machines.options.body_mounts)["properties"],
                    "limits": { "file": FILE_LIMIT },
                })),
                _ => ResourceContent::json(&status(&machine)),
            })
        }
        MachineResource::File(id, path) => {
            let machine = machines.find(&id).await?;
            let file = machines.read_file(&machine.container, &path).await?;
            Ok(match std::str::from_utf8(&file.bytes) {
                Ok(text) => ResourceContent::text(text),
                Err(_) => ResourceContent::base64(&file.bytes),
            })
        }
    }
}

fn status(machine: &HostContainer) -> Value {
    let mut status = json!({
        "id": machine.id, "container": machine.container, "running": machine.running, "image": machine.image,
        "mounts": machine.mounts(),
    });
    for (name, of) in [
        ("session", label::SESSION),
        ("profile", label::DISPOSABLE),
        ("workdir", label::WORKDIR),
        ("devcontainer", label::FOLDER),
    ] {
        if let Some(value) = machine.label(of) {
            status[name] = value.into();
        }
    }
    if let Some(agents) = machine.label(label::AGENTS) {
        status["agents"] = agents.split(',').collect::<Vec<_>>().into();
    }
    status
}

async fn stats(machines: &Machines, machine: &HostContainer) -> Result<Value, Failure> {
    if !machine.running {
        return Ok(json!({ "running": false }));
    }
    let what = format!("read the numbers of {ADDRESS}{}", machine.id);
    let options = StatsOptionsBuilder::new().stream(false).build();
    let read = machines
        .runtime
        .call(&what, QUICK, |docker| async move {
            docker.stats(&machine.container, Some(options)).boxed().next().await.transpose()
        })
        .await?;
    read.map(|read| numbers(&read))
        .ok_or_else(|| Failure::new(Kind::Failed, format_args!("{what}: there are none")))
}

/// Returns the statistics of a machine, from those of the runtime.
fn numbers(read: &ContainerStatsResponse) -> Value {
    let total = |cpu: Option<&ContainerCpuStats>| cpu?.cpu_usage.as_ref()?.total_usage;
    let system = |cpu: Option<&ContainerCpuStats>| cpu?.system_cpu_usage;
    let (now, before) = (read.cpu_stats.as_ref(), read.precpu_stats.as_ref());
    let cores = now.and_then(|cpu| cpu.online_cpus).filter(|cores| *cores > 0);
    let used = total(now).unwrap_or_default().saturating_sub(total(before).unwrap_or_default());
    let passed = system(now).unwrap_or_default().saturating_sub(system(before).unwrap_or_default());
    let percent = match (passed, total(before)) {
        (1.., Some(_)) => used as f64 / passed as f64 * f64::from(cores.unwrap_or(1)) * 100.0,
        _ => 0.0,
    };
    let memory = read.memory_stats.as_ref();
    let usage = memory.and_then(|memory| memory.usage).unwrap_or_default();
    let cache = memory.and_then(|memory| {
        let stats = memory.stats.as_ref()?;
        stats.get("inactive_file").or_else(|| stats.get("total_inactive_file")).copied()
    });
    // Memory that the kernel can reclaim does not count as used.
    let usage = usage.saturating_sub(cache.unwrap_or_default());
    let limit = memory.and_then(|memory| memory.limit).unwrap_or_default();
    let networks = read.networks.iter().flat_map(|networks| networks.values());
    let (mut received, mut sent) = (0u64, 0u64);
    for network in networks {
        received = received.saturating_add(network.rx_bytes.unwrap_or_default());
        sent = sent.saturating_add(network.tx_bytes.unwrap_or_default());
    }
    let (mut reads, mut writes) = (0u64, 0u64);
    let blocks = read.blkio_stats.as_ref().and_then(|blocks| blocks.io_service_bytes_recursive.as_ref());
    for entry in blocks.into_iter().flatten() {
        let value = entry.value.unwrap_or_default();
        match entry.op.as_deref().unwrap_or_default() {
            op if op.eq_ignore_ascii_case("read") => reads = reads.saturating_add(value),
            op if op.eq_ignore_ascii_case("write") => writes = writes.saturating_add(value),
            _ => {}
        }
    }
    let mut cpu = json!({ "percent": percent });
    if let Some(cores) = cores {
        cpu["cores"] = cores.into();
    }
    let share = if limit > 0 { usage as f64 / limit as f64 * 100.0 } else { 0.0 };
    json!({
        "running": true,
        "cpu": cpu,
        "memory": { "used": usage, "limit": limit, "percent": share },
        "pids": read.pids_stats.as_ref().and_then(|pids| pids.current).unwrap_or_default(),
        "network": { "rx": received, "tx": sent },
        "block": { "read": reads, "write": writes },
    })
}

async fn list(machines: &Machines, uri: &str) -> Result<Vec<DirectoryEntry>, Failure> {
    let entry = |name: &str, directory: bool| DirectoryEntry {
        name: name.to_owned(),
        r#type: if directory { "directory" } else { "file" }.to_owned(),
    };
    match resource_of(uri)? {
        MachineResource::Root => {
            Ok(machines.list().await?.iter().map(|machine| entry(&machine.id, true)).collect())
        }
        MachineResource::Machine(id) => {
            machines.find(&id).await?;
            Ok(LEAVES.iter().map(|leaf| entry(leaf, false)).chain([entry("files", true)]).collect())
        }
        MachineResource::Leaf(..) => {
            Err(Failure::new(Kind::Invalid, format_args!("{uri} is not a directory")))
        }
        MachineResource::File(id, path) => {
            let machine = machines.find(&id).await?;
            if !machine.running {
                let what = format_args!("{ADDRESS}{id} is stopped; write running to {ADDRESS}{id}/state");
                return Err(Failure::new(Kind::Conflict, what));
            }
            let command = ["/bin/sh", "-c", LIST, "list", &path];
            let listed = machines.output(&machine.container, &command, &ROOT).await;
            let listed = listed.map_err(|why| match why.kind {
                Kind::Failed if why.message.contains("exit code 1:") => {
                    Failure::new(Kind::Missing, format_args!("no directory at {uri}"))
                }
                _ => why,
            })?;
            let rows = listed.bytes.split(|byte| *byte == 0).filter(|row| row.len() > 1);
            Ok(rows.map(|row| entry(&String::from_utf8_lossy(&row[1..]), row[0] == b'd')).collect())
        }
    }
}

async fn resolve(machines: &Machines, uri: &str) -> Result<ResourceFacts, Failure> {
    let kind = |kind: &str| ResourceFacts { r#type: kind.to_owned(), ..ResourceFacts::default() };
    match resource_of(uri)? {
        MachineResource::Root => Ok(kind("directory")),
        MachineResource::Machine(id) => machines.find(&id).await.map(|_| kind("directory")),
        MachineResource::Leaf(id, _) => machines.find(&id).await.map(|_| kind("file")),
        MachineResource::File(id, path) => {
            let machine = machines.find(&id).await?;
            let options = ContainerArchiveInfoOptionsBuilder::new().path(&path).build();
            let what = format!("look at {path}");
            let container = &machine.container;
            let facts = machines
                .runtime
                .call(&what, QUICK, |docker| async move {
                    docker.get_container_archive_info(container, Some(options)).await
                })
                .await
                .map_err(|why| {
                    if why.is_missing() {
                        Failure::new(Kind::Missing, format_args!("nothing at {uri}"))
                    } else {
                        why
                    }
                })?;
            // Bits of Go's file modes.
            let found = match facts.file_mode {
                mode if mode & (1 << 31) != 0 => "directory",
                mode if mode & (1 << 27) != 0 => "symlink",
                _ => "file",
            };
            Ok(ResourceFacts { size: Some(facts.size), mtime: facts.modification_time, ..kind(found) })
        }
    }
}

async fn write(machines: &Arc<Machines>, uri: &str, content: ResourceWrite) -> Result<(), Thrown> {
    match resource_of(uri)? {
        MachineResource::Machine(id) => make(machines, id, &content).await,
        MachineResource::Leaf(id, "state") => {
            let machine = machines.find(&id).await?;
            match content.data.trim() {
                "running" if !machine.running => machines.start(&machine).await?,
                "stopped" if machine.running => machines.stop(&machine).await?,
                "restarted" => machines.restart(&machine).await?,
                "running" | "stopped" => {}
                other => {
                    let what = format!("{other:?} is not a state; write running, stopped or restarted");
                    return Err(RpcError::invalid_params(what).into());
                }
            }
            Ok(())
        }
        MachineResource::File(id, path) if path != "/" => {
            if content.mode.is_some()
                || content.position > 0
                || content.create_only
                || content.if_match.is_some()
            {
                let what = format!("{uri}: a file in a machine can only be written as a whole");
                return Err(RpcError::invalid_params(what).into());
            }
            let machine = machines.find(&id).await?;
            let data = match content.encoding {
                Some(Encoding::Base64) => STANDARD
                    .decode(&content.data)
                    .map_err(|error| RpcError::invalid_params(format!("{uri}: not base64: {error}")))?,
                _ => content.data.into_bytes(),
            };
            if data.len() > FILE_LIMIT {
                let what = format!("{uri}: more than {} KiB", FILE_LIMIT >> 10);
                return Err(RpcError::invalid_params(what).into());
            }
            Ok(machines.write(&machine.container, &path, &data, 0o644).await?)
        }
        _ => Err(RpcError::invalid_params(format!("{uri} cannot be written")).into()),
    }
}

async fn make(machines: &Arc<Machines>, id: String, content: &ResourceWrite) -> Result<(), Thrown> {
    if !is_id(&id) {
        let what = format!("{id} is not an id of a machine; use letters, digits, - _ and .");
        return Err(RpcError::invalid_params(what).into());
    }
    let manifest: Manifest = serde_json::from_str(&content.data)
        .map_err(|error| RpcError::invalid_params(format!("the manifest of {ADDRESS}{id}: {error}")))?;
    let manifest = wanted(machines, manifest)
        .map_err(|why| RpcError::invalid_params(format!("the manifest of {ADDRESS}{id}: {why}")))?;
    match machines.find(&id).await {
        Ok(_) => return Err(RpcError::already_exists(format!("{ADDRESS}{id} exists")).into()),
        Err(why) if !why.is_missing() => return Err(why.into()),
        Err(_) => {}
    }
    let making = machines.clone();
    match manifest {
        ManifestTarget::DevContainer(folder) => {
            let name = id.clone();
            machines
                .made(async move {
                    making.make_named_dev_container(&name, &folder).await.map(|found| (found, ()))
                })
                .await
        }
        ManifestTarget::Machine(machine, mounts) => {
            machines
                .made(async move {
                    let mounts = mounts.iter().map(Into::into).collect();
                    let wanted = NewMachine {
                        id: &id,
                        machine,
                        mounts,
                        plan: MachinePlan::default(),
                        labels: Vec::new(),
                    };
                    making.make(wanted).await?;
                    Ok::<_, Failure>((making.name(&id), ()))
                })
                .await
        }
    }
}

enum ManifestTarget {
    Machine(Machine, Vec<Mounted>),
    DevContainer(String),
}

fn wanted(machines: &Machines, manifest: Manifest) -> Result<ManifestTarget, String> {
    if let Some(runtime) = manifest.runtime.filter(|runtime| runtime != "docker" && runtime != "podman") {
        return Err(format!("runtime: {runtime} is not served; leave it out"));
    }
    if let Some(DevContainer { folder }) = manifest.devcontainer {
        if manifest.image.is_some() {
            return Err("devcontainer: not together with image".to_owned());
        }
        return match folder.starts_with('/') {
            true => Ok(ManifestTarget::DevContainer(folder)),
            false => Err(format!("devcontainer.folder: {folder} is not an absolute path")),
        };
    }
    let profiles = &machines.options.profiles;
    let known = || profiles.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let profile = match &manifest.profile {
        Some(name) => {
            let profile = profiles.get(name);
            Some(
                profile
                    .ok_or_else(|| format!("profile: there is no profile {name}; there are {}", known()))?,
            )
        }
        None => None,
    };
    if !machines.options.body_mounts && (!manifest.mounts.is_empty() || manifest.folder.is_some()) {
        let field = if manifest.folder.is_some() { "folder" } else { "mounts" };
        return Err(format!(
            "{field}: not allowed here; name a profile ({}), or set the option bodyMounts of @ostler/containers",
            known()
        ));
    }
    if let Some(image) = manifest.image.as_deref().filter(|image| !machines.options.allows(image)) {
        return Err(format!(
            "image: {image} is not allowed here; add it to the option images of @ostler/containers"
        ));
    }
    let body = Machine {
        image: manifest.image,
        cpus: manifest.cpus,
        memory: manifest.memory,
        user: manifest.user,
        network: manifest.network,
        workdir: manifest.workdir,
        folder: manifest.folder.clone(),
        mounts: manifest.mounts,
    };
    body.check()?;
    let (mut machine, mut mounts) = over(profile.map(|profile| &profile.machine), body);
    mounts.splice(0..0, machines.options.mounts.iter().cloned());
    if let Some(folder) = manifest.folder {
        machine.workdir.get_or_insert_with(|| folder.clone());
        mounts.push(Mounted { source: folder.clone(), target: folder, read_only: false });
    }
    Ok(ManifestTarget::Machine(machine, mounts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_a_place() {
        let machine = |id: &str| MachineResource::Machine(id.to_owned());
        for (uri, found) in [
            ("computer://", Some(MachineResource::Root)),
            ("computer://barn", Some(machine("barn"))),
            ("computer://barn/", Some(machine("barn"))),
            ("computer://barn/stats", Some(MachineResource::Leaf("barn".to_owned(), "stats"))),
            ("computer://barn/files", Some(MachineResource::File("barn".to_owned(), "/".to_owned()))),
            (
                "computer://barn/files/a%20b",
                Some(MachineResource::File("barn".to_owned(), "/a b".to_owned())),
            ),
            ("computer://barn/files/a/../b", None),
            ("computer://barn/files%2f..%2fb", None),
            ("computer://barn/filesystem", None),
            ("computer:///stats", None),
        ] {
            assert_eq!(resource_of(uri).ok(), found, "{uri}");
        }
    }

    /// As Docker 27 answers to `GET /containers/{id}/stats?stream=false`, shortened.
    #[test]
    fn numbers_are_those_of_the_runtime() {
        let read = json!({
            "read": "2026-01-01T00:00:01Z", "preread": "2026-01-01T00:00:00Z",
            "pids_stats": { "current": 3 },
            "cpu_stats": { "cpu_usage": { "total_usage": 600 }, "system_cpu_usage": 10_000, "online_cpus": 4 },
            "precpu_stats": { "cpu_usage": { "total_usage": 100 }, "system_cpu_usage": 8_000, "online_cpus": 4 },
            "memory_stats": { "usage": 5000, "limit": 16000, "stats": { "inactive_file": 1000 } },
            "blkio_stats": { "io_service_bytes_recursive": [
                { "major": 8, "minor": 0, "op": "read", "value": 7 }, { "major": 8, "minor": 0, "op": "Write", "value": 9 }
            ] },
            "networks": { "eth0": { "rx_bytes": 10, "tx_bytes": 20 }, "eth1": { "rx_bytes": 1, "tx_bytes": 2 } },
        });
        let read: ContainerStatsResponse = serde_json::from_value(read).unwrap();
        assert_eq!(
            numbers(&read),
            json!({
                "running": true,
                "cpu": { "percent": 100.0, "cores": 4 },
                "memory": { "used": 4000, "limit": 16000, "percent": 25.0 },
                "pids": 3,
                "network": { "rx": 11, "tx": 22 },
                "block": { "read": 7, "write": 9 },
            })
        );
        let none = numbers(&ContainerStatsResponse::default());
        assert_eq!((&none["cpu"]["percent"], &none["memory"]["percent"]), (&json!(0.0), &json!(0.0)));
    }
}
