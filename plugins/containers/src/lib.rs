//! `@ostler/containers`: machines and dev containers of Docker and Podman, through the API of the container runtime.
//!
//! [`runtime`] finds the runtime and limits each call. [`machines`] finds the containers of this host, which have its
//! label, and describes how a process runs in one, with the program in [`container_process`]. [`create`] creates them,
//! with the volumes of [`parts`]. [`dev`] creates dev containers with the official [`command_line`], and connects clients
//! to a host inside. [`resources`] serves machines as `computer://<id>`, and [`tools`] offers some to models.

#![forbid(unsafe_code)]

mod archive;
mod command_line;
pub mod container_process;
mod create;
mod dev;
mod exec;
mod machines;
mod options;
mod parts;
mod resources;
mod runtime;
mod tools;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::{Event, EventName};
use ostler_contract::points::{Computers, MachineProcess, MachineRequest};
use ostler_contract::{Call, Frozen, Options, Plugin, PluginContext, PluginHost, Thrown, Value, json};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::oneshot;

use machines::{ADDRESS, Machines, id_of, label};
use options::Configured;
use runtime::{Failure, Runtime};

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/containers";

/// How often remains are searched: often while known ones exist.
const SWEEP: Duration = Duration::from_secs(20);

/// Returns whether a container runtime is found without options.
pub fn is_runtime_found() -> bool {
    runtime::find(None).is_ok()
}

/// The plugin. `enter` is the command that runs [`container_process::main`]; its program is also the daemon that is
/// copied into containers.
pub fn plugin(enter: Option<Vec<String>>) -> Plugin {
    Plugin::new(NAME, move |host, options| {
        let enter = enter.clone().unwrap_or_default();
        Box::pin(async move { apply(&host, &options, enter) })
    })
    .title("Containers")
    .defaults(json!({}))
    .options_schema(schema())
}

fn schema() -> Value {
    let mounts = json!({ "type": "array", "items": {
        "type": "object",
        "properties": { "source": { "type": "string" }, "target": { "type": "string" }, "readOnly": { "type": "boolean" } },
        "required": ["source", "target"], "additionalProperties": false
    } });
    let with = |mut schema: Value, description: &str| {
        schema["description"] = description.into();
        schema
    };
    json!({
        "type": "object",
        "properties": {
            "socket": {
                "type": "string",
                "description": "Address of the container runtime: a path, unix://<path> or tcp://<host>:<port> [default: DOCKER_HOST, then the sockets of Docker and Podman]"
            },
            "image": { "type": "string", "description": "Image where nothing names another [default: docker.io/library/debian:bookworm-slim]" },
            "images": {
                "type": "array", "items": { "type": "string" },
                "description": "Images that clients may name, beside the default and those of profiles; in patterns, * is any component and ** any number"
            },
            "mounts": with(mounts.clone(), "Mounts of every machine"),
            "bodyMounts": { "type": "boolean", "description": "Whether clients may name mounts of new machines [default: false]" },
            "profiles": {
                "type": "object",
                "description": "What machines are made from [default: { \"default\": {} }]",
                "additionalProperties": {
                    "type": "object",
                    "properties": {
                        "title": { "type": "string", "description": "Display name" },
                        "description": { "type": "string", "description": "One line" },
                        "agents": { "type": "array", "items": { "type": "string" }, "description": "Agents that its machines are prepared for" },
                        "needs": { "type": "object", "additionalProperties": { "type": "string" }, "description": "Values of needs by name" },
                        "disposableDelay": { "type": "integer", "minimum": 0, "description": "Milliseconds that a machine stays after its session has ended [default: 0]" },
                        "image": { "type": "string", "description": "Image" },
                        "cpus": { "type": "number", "description": "Processors" },
                        "memory": { "type": ["string", "integer"], "description": "Bytes, or with a unit: 512m, 2g" },
                        "user": { "type": "string", "description": "User of its processes" },
                        "network": { "type": "string", "description": "Network mode of the runtime, such as none" },
                        "workdir": { "type": "string", "description": "Working directory if the session's is not mounted" },
                        "folder": { "type": "string", "description": "Where the session's directory is mounted [default: its own path]" },
                        "mounts": with(mounts, "Mounts of host directories and files")
                    },
                    "additionalProperties": false
                }
            },
            "parts": {
                "type": "object",
                "description": "Where parts come from: a directory of an image; {version} stands for the pinned version",
                "additionalProperties": {
                    "type": "object",
                    "properties": { "image": { "type": "string" }, "path": { "type": "string" } },
                    "required": ["image", "path"], "additionalProperties": false
                }
            },
            "tools": { "type": "boolean", "description": "Whether models can make containers and run commands in them, where advancedTools is set [default: false]" },
            "devcontainer": {
                "type": "object",
                "description": "Dev containers",
                "properties": {
                    "program": { "type": "string", "description": "Dev-container command line [default: devcontainer]" },
                    "docker": { "type": "string", "description": "Program that it runs [default: docker or podman, whichever belongs to the runtime]" },
                    "install": { "type": "boolean", "description": "Whether ostler is copied into a container that has none [default: true]" },
                    "plugins": { "type": "array", "description": "Plugins of the host inside; without any, clients are offered no dev containers" }
                },
                "additionalProperties": false
            }
        }
    })
}

fn apply(host: &PluginHost, options: &Options, enter: Vec<String>) -> Result<(), Thrown> {
    let mut configured = Configured::deserialize(&Value::Object((**options).clone())).map_err(Thrown::new)?;
    configured.check()?;
    let own = own_label(host);
    let machines = Arc::new(Machines {
        host: host.clone(),
        runtime: Runtime::new(configured.socket.clone()),
        prefix: format!("{:08x}", hash(&own) as u32),
        own,
        run: uuid::Uuid::new_v4().simple().to_string(),
        enter,
        parts: parts::Parts::default(),
        leftover: Mutex::default(),
        tool_requests: tokio::sync::Mutex::default(),
        dev_processes: Mutex::new(HashMap::new()),
        options: configured,
    });
    host.register_computers(computers(&machines), None)?;
    host.register_resource_provider(resources::SCHEME.into(), resources::provider(&machines))?;
    if !machines.options.devcontainer.plugins.is_empty() {
        host.register_containers(dev::point(&machines), None)?;
    }
    if machines.options.tools {
        tools::register(host, &machines)?;
        let of_tools = machines.clone();
        host.on(
            EventName::SessionEnd,
            Call::now(move |(event, _): (Frozen<Event>, Frozen<PluginContext>)| {
                if let Event::SessionEnd { session, reason } = event.0
                    && reason == "disposed"
                {
                    // Does not wait until their processes have ended.
                    let machines = of_tools.clone();
                    tokio::spawn(async move { machines.remove_made_by_tools(&session).await });
                }
                Ok(())
            }),
        )?;
    }
    host.on(
        EventName::Listening,
        Call::now(move |(_, _): (Frozen<Event>, Frozen<PluginContext>)| {
            tokio::spawn(sweep(Arc::downgrade(&machines)));
            Ok(())
        }),
    )
}

/// Removes remains of sessions, until the host ends.
async fn sweep(machines: std::sync::Weak<Machines>) {
    let mut whole = false;
    let mut reported = None;
    loop {
        let Some(machines) = machines.upgrade() else { return };
        if !whole || !machines.leftover.lock().is_empty() {
            // Without a runtime there is nothing to remove.
            if machines.runtime.address().is_ok() {
                match machines.sweep().await {
                    Ok(all) => whole = all,
                    Err(why) if reported.as_ref() != Some(&why) => {
                        machines.log("cannot look for containers of ended sessions", why.clone());
                        reported = Some(why);
                    }
                    Err(_) => {}
                }
            }
        }
        drop(machines);
        tokio::time::sleep(SWEEP).await;
    }
}

/// What distinguishes the containers of this host from those of others at the same runtime.
fn own_label(host: &PluginHost) -> String {
    let computer = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", computer.trim(), host.facts().config_dir)
}

/// A hash that is the same in every version (FNV-1a).
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn computers(machines: &Arc<Machines>) -> Computers {
    let of = || machines.clone();
    let (hows, lists, profiles, makes) = (of(), of(), of(), of());
    let (removes, lefts, closes) = (of(), of(), of());
    Computers {
        how: Call::new(move |(computer, process): (String, MachineProcess)| {
            let machines = hows.clone();
            async move { Ok(machines.how(&computer, process).await?) }
        }),
        list: Some(Call::new(move |()| {
            let machines = lists.clone();
            async move {
                // A host without a runtime has no machines; this is an error only when one is requested.
                if machines.runtime.address().is_err() {
                    return Ok(Vec::new());
                }
                Ok(machines.list().await?.iter().map(machines::HostContainer::computer).collect())
            }
        })),
        profiles: Some(Call::now(move |()| Ok(profiles.options.shown()))),
        make: Some(Call::new(move |(request,): (MachineRequest,)| {
            let machines = makes.clone();
            async move {
                let making = machines.clone();
                machines
                    .made(async move {
                        if request.source.starts_with(dev::SOURCE) {
                            return making.make_session_dev_container(request).await;
                        }
                        let address = making.make_disposable(request, false).await?;
                        Ok((making.name(id_of(&address)), address))
                    })
                    .await
            }
        })),
        remove: Some(Call::new(move |(computer,): (String,)| {
            let machines = removes.clone();
            async move { Ok(machines.destroy(id_of(&computer)).await?) }
        })),
        left: Some(Call::new(move |(computer, session): (String, String)| {
            let machines = lefts.clone();
            async move {
                let id = id_of(&computer).to_owned();
                // Does not wait until its processes have ended.
                tokio::spawn(async move {
                    match machines.find(&id).await {
                        Ok(machine) if machine.label(label::SESSION) == Some(session.as_str()) => {
                            let profile = machine.label(label::DISPOSABLE);
                            tokio::time::sleep(machines.options.delay(profile)).await;
                            if let Err(why) = machines.destroy(&id).await {
                                machines.log(&format!("{ADDRESS}{id} of {session}"), why);
                            }
                        }
                        Err(why) if !why.is_missing() => {
                            machines.leftover.lock().insert(machines.name(&id));
                            machines.log(&format!("{ADDRESS}{id} of {session}"), why);
                        }
                        _ => {}
                    }
                });
                Ok(())
            }
        })),
        close: Some(Call::new(move |()| {
            let machines = closes.clone();
            async move { Ok(machines.close().await?) }
        })),
    }
}

impl Machines {
    /// Creates a container on a separate task, and removes it if the request was given up.
    async fn made<T: Send + 'static>(
        self: &Arc<Self>,
        make: impl Future<Output = Result<(String, T), impl Into<Thrown> + Send + 'static>> + Send + 'static,
    ) -> Result<T, Thrown> {
        let machines = self.clone();
        let (send, made) = oneshot::channel();
        tokio::spawn(async move {
            match make.await {
                Ok((container, made)) => {
                    if send.send(Ok(made)).is_err()
                        && let Err(why) = machines.remove_container(&container).await
                    {
                        machines.log("a machine nobody waits for any more", why);
                    }
                }
                Err(why) => drop(send.send(Err(why.into()))),
            }
        });
        made.await.map_err(|_| Thrown::new("the machine was not made"))?
    }

    /// Removes the machines of tools of an ended session.
    async fn remove_made_by_tools(&self, session: &str) {
        // Without a runtime there is nothing to remove.
        if self.runtime.address().is_err() {
            return;
        }
        let made = match tools::made_for(self, session).await {
            Ok(made) => made,
            Err(why) => return self.log(&format!("cannot look for containers of {session}"), why),
        };
        for machine in made {
            if let Err(why) = self.destroy(&machine.id).await {
                self.log(&format!("{ADDRESS}{} of {session}", machine.id), why);
            }
        }
    }

    /// Stops and removes a machine, with its exclusive volumes.
    async fn destroy(&self, id: &str) -> Result<(), Failure> {
        let machine = self.find(id).await?;
        self.remove_container(&machine.container).await?;
        self.dev_processes.lock().remove(&machine.container);
        self.remove_own_volumes(id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plugin_exports() {
        let module = plugin(None).module;
        assert_eq!(module.name, Some("containers".into()));
        let schema = module.options_schema.unwrap_or_default();
        assert_eq!(schema["properties"]["socket"]["type"], "string");
    }
}
