//! Creation of machines: the image, the container with mounts, volumes and parts, the copied files, and the start. A
//! failure leaves no container behind.

use std::path::PathBuf;

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, VolumeCreateRequest};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, RemoveVolumeOptions,
    UploadToContainerOptionsBuilder,
};
use bollard::{body_full, body_try_stream};
use bytes::Bytes;
use futures::TryStreamExt as _;
use ostler_contract::points::{MachineCopy, MachineMount, MachinePlan, MachineRequest, MachineVolume};
use ostler_contract::{RpcError, Thrown};
use serde_json::json;

use crate::archive::{self, Packed};
use crate::machines::{ADDRESS, Machines, label};
use crate::options::{Machine, Mounted};
use crate::runtime::{CHANGE, Failure, Kind, LONG, QUICK};

/// The main process of a machine, next to which the processes of sessions run.
const IDLE: &str = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done";
/// The source of a machine from a profile.
const DISPOSABLE: &str = "disposable:";

/// A machine to create.
pub struct NewMachine<'a> {
    pub id: &'a str,
    /// Its description.
    pub machine: Machine,
    /// Mounts of the plugin and the profile, in ascending priority.
    pub mounts: Vec<MachineMount>,
    /// The content that backends need.
    pub plan: MachinePlan,
    /// Labels in addition to those of every machine.
    pub labels: Vec<(&'static str, String)>,
}

impl Machines {
    /// Creates the machine of a session from a profile; with `tool`, one in which the session does not run.
    pub async fn make_disposable(&self, request: MachineRequest, tool: bool) -> Result<String, Thrown> {
        let profile =
            request.source.strip_prefix(DISPOSABLE).and_then(|name| self.options.profiles.get(name));
        let profile = profile
            .ok_or_else(|| RpcError::invalid_params(format!("there is no profile for {}", request.source)))?;
        let name = request.profile.as_deref().unwrap_or("machine");
        let random = uuid::Uuid::new_v4().simple().to_string();
        let id = format!("{name}-{}", &random[..8]);
        let machine = profile.machine.clone();
        let mut mounts: Vec<MachineMount> = self.options.mounts.iter().map(MachineMount::from).collect();
        mounts.extend(machine.mounts.iter().map(MachineMount::from));
        let mut workdir = machine.workdir.clone();
        if let Some(directory) = request.working_directory.filter(|directory| directory != "/") {
            let target = machine.folder.clone().unwrap_or_else(|| directory.clone());
            workdir = workdir.or_else(|| Some(target.clone()));
            mounts.push(MachineMount { source: directory, target, read_only: false });
        }
        let mut labels = vec![
            (label::SESSION, request.session),
            (label::DISPOSABLE, name.to_owned()),
            (label::AGENTS, request.agents.join(",")),
        ];
        labels.extend(tool.then(|| (label::TOOL, "1".to_owned())));
        let wanted = NewMachine {
            id: &id,
            machine: Machine { workdir, ..machine },
            mounts,
            plan: request.plan,
            labels,
        };
        self.make(wanted).await?;
        Ok(format!("{ADDRESS}{id}"))
    }

    /// Creates and starts a machine.
    pub async fn make(&self, wanted: NewMachine<'_>) -> Result<(), Failure> {
        let image = wanted.machine.image.clone().unwrap_or_else(|| self.options.image.clone());
        self.image(&image).await?;
        let mounts = merged(&wanted.mounts, &wanted.plan.mounts);
        let mut volumes = self.part_volumes(&wanted.plan.parts, "").await?;
        let mut new = Vec::new();
        for volume in &wanted.plan.volumes {
            if self.volume(&self.name(&volume.name)).await? {
                new.push(volume);
            }
            volumes.push(mount(MountType::VOLUME, &self.name(&volume.name), &volume.target, false));
        }
        let made = self.container(&wanted, &image, &mounts, volumes).await;
        let made = match made {
            Ok(()) => self.fill(&wanted, &new).await,
            Err(why) => Err(why),
        };
        if made.is_err() {
            let _ = self.remove_container(&self.name(wanted.id)).await;
            for volume in new {
                // Removed, so that the next machine seeds it.
                let _ = self.remove_volume(&self.name(&volume.name)).await;
            }
        }
        made
    }

    async fn container(
        &self,
        wanted: &NewMachine<'_>,
        image: &str,
        mounts: &[MachineMount],
        volumes: Vec<Mount>,
    ) -> Result<(), Failure> {
        let machine = &wanted.machine;
        let mut labels = self.labels(wanted.id);
        labels.insert(label::MOUNTS.to_owned(), json!(mounts).to_string());
        labels.extend(wanted.labels.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        if let Some(workdir) = &machine.workdir {
            labels.insert(label::WORKDIR.to_owned(), workdir.clone());
        }
        let binds =
            mounts.iter().map(|bind| mount(MountType::BIND, &bind.source, &bind.target, bind.read_only));
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), IDLE.to_owned()]),
            cmd: Some(Vec::new()),
            env: Some(wanted.plan.env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
            user: machine.user.clone(),
            working_dir: machine.workdir.clone(),
            labels: Some(labels),
            host_config: Some(HostConfig {
                mounts: Some(binds.chain(volumes).collect()),
                nano_cpus: machine.cpus.map(|cpus| (cpus * 1e9) as i64),
                memory: machine.memory.as_ref().and_then(|memory| i64::try_from(memory.bytes()?).ok()),
                network_mode: machine.network.clone(),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        self.create(&format!("make {ADDRESS}{}", wanted.id), &self.name(wanted.id), body).await
    }

    /// Copies the initial files and starts the machine.
    async fn fill(&self, wanted: &NewMachine<'_>, new: &[&MachineVolume]) -> Result<(), Failure> {
        let name = self.name(wanted.id);
        for copy in &wanted.plan.copies {
            self.copy(&name, copy).await?;
        }
        for volume in new {
            for seed in &volume.seed {
                self.copy_into_volume(&name, &volume.target, seed).await?;
            }
        }
        self.start(&self.find(wanted.id).await?).await
    }

    pub async fn create(&self, what: &str, name: &str, body: ContainerCreateBody) -> Result<(), Failure> {
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        self.runtime
            .call(what, CHANGE, |docker| async move { docker.create_container(Some(options), body).await })
            .await
            .map(drop)
    }

    /// Copies a host file or directory into a container, and creates its parent directories.
    pub async fn copy(&self, container: &str, copy: &MachineCopy) -> Result<(), Failure> {
        let (above, name) = copy.target.rsplit_once('/').unwrap_or(("", &copy.target));
        if !above.is_empty() {
            let above = vec![Packed::Directory(above.to_owned())];
            self.upload(container, "/", archive::pack(above)).await?;
        }
        let above = if above.is_empty() { "/" } else { above };
        let packed = vec![Packed::Copy(PathBuf::from(&copy.source), name.to_owned())];
        self.upload(container, above, archive::pack(packed)).await
    }

    /// Extracts an archive in a directory of a container.
    pub async fn upload(
        &self,
        container: &str,
        path: &str,
        archive: impl futures::Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), Failure> {
        let options = UploadToContainerOptionsBuilder::new().path(path).build();
        let body = body_try_stream(archive);
        let what = format!("copy to {path}");
        self.runtime
            .call(&what, LONG, |docker| async move {
                docker.upload_to_container(container, Some(options), body).await
            })
            .await
    }

    /// Writes one file into a container.
    pub async fn write(&self, container: &str, path: &str, data: &[u8], mode: u32) -> Result<(), Failure> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = if above.is_empty() { "/" } else { above };
        let archive = archive::file(name, data, mode)
            .map_err(|error| Failure::new(Kind::Failed, format_args!("write {path}: {error}")))?;
        let options = UploadToContainerOptionsBuilder::new().path(above).build();
        let body = body_full(archive);
        let what = format!("write {path}");
        self.runtime
            .call(&what, CHANGE, |docker| async move {
                docker.upload_to_container(container, Some(options), body).await
            })
            .await
    }

    /// Pulls a missing image.
    pub async fn image(&self, image: &str) -> Result<(), Failure> {
        let what = format!("inspect image {image}");
        let found =
            self.runtime.call(&what, QUICK, |docker| async move { docker.inspect_image(image).await }).await;
        match found {
            Ok(_) => return Ok(()),
            Err(why) if !why.is_missing() => return Err(why),
            Err(_) => {}
        }
        let mut options = CreateImageOptionsBuilder::new().from_image(image);
        // Without a tag, all of them are pulled.
        if !image.contains('@') && !image.rsplit('/').next().is_some_and(|name| name.contains(':')) {
            options = options.tag("latest");
        }
        let options = options.build();
        let what = format!("pull image {image}");
        let pulled = self
            .runtime
            .call(&what, LONG, |docker| async move {
                docker.create_image(Some(options), None, None).try_for_each(|_| async { Ok(()) }).await
            })
            .await;
        pulled.map_err(|why| Failure { kind: Kind::Failed, ..why })
    }

    /// Creates a volume; returns whether it is new.
    pub async fn volume(&self, name: &str) -> Result<bool, Failure> {
        let what = format!("inspect volume {name}");
        match self.runtime.call(&what, QUICK, |docker| async move { docker.inspect_volume(name).await }).await
        {
            Ok(_) => return Ok(false),
            Err(why) if !why.is_missing() => return Err(why),
            Err(_) => {}
        }
        let request = VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some([(label::HOST.to_owned(), self.own.clone())].into()),
            ..VolumeCreateRequest::default()
        };
        let what = format!("make volume {name}");
        self.runtime.call(&what, CHANGE, |docker| async move { docker.create_volume(request).await }).await?;
        Ok(true)
    }

    pub async fn remove_volume(&self, name: &str) -> Result<(), Failure> {
        let what = format!("remove volume {name}");
        self.runtime
            .call(&what, CHANGE, |docker| async move {
                docker.remove_volume(name, None::<RemoveVolumeOptions>).await
            })
            .await
    }
}

/// A mount of a container.
pub fn mount(kind: MountType, source: &str, target: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(kind),
        source: Some(source.to_owned()),
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        ..Mount::default()
    }
}

/// Merges mounts; a later one replaces one with the same target.
fn merged(weaker: &[MachineMount], stronger: &[MachineMount]) -> Vec<MachineMount> {
    let mut mounts: Vec<MachineMount> = Vec::new();
    for mount in weaker.iter().chain(stronger) {
        mounts.retain(|other| other.target.trim_end_matches('/') != mount.target.trim_end_matches('/'));
        mounts.push(mount.clone());
    }
    mounts
}

/// Merges the machine of a manifest with its profile.
pub fn over(profile: Option<&Machine>, body: Machine) -> (Machine, Vec<Mounted>) {
    let below = profile.cloned().unwrap_or_default();
    let mounts = below.mounts.iter().chain(&body.mounts).cloned().collect();
    let machine = Machine {
        image: body.image.or(below.image),
        cpus: body.cpus.or(below.cpus),
        memory: body.memory.or(below.memory),
        user: body.user.or(below.user),
        network: body.network.or(below.network),
        workdir: body.workdir.or(below.workdir),
        folder: body.folder.or(below.folder),
        mounts: Vec::new(),
    };
    (machine, mounts)
}

#[cfg(test)]
mod tests {
    use ostler_contract::points::MachineMount;

    use super::merged;

    #[test]
    fn the_later_mount_wins_on_a_target() {
        let mount = |source: &str, target: &str| MachineMount {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only: false,
        };
        let mounts = merged(&[mount("/a", "/x"), mount("/b", "/y")], &[mount("/c", "/x/")]);
        assert_eq!(mounts, [mount("/b", "/y"), mount("/c", "/x/")]);
    }
}
