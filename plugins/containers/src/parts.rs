//! Parts of machines: the pinned version of a program in a volume, which machines mount read-only. A volume is filled once
//! and used by all machines of the host.
//!
//! A container named after the volume exists while it is filled. If one exists at the start of the next fill, the
//! daemon ended during the fill, and both are created again.

use std::collections::HashMap;
use std::path::PathBuf;

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType};
use bollard::query_parameters::{ListVolumesOptionsBuilder, WaitContainerOptionsBuilder};
use futures::TryStreamExt as _;
use ostler_contract::points::{MachineCopy, MachinePart};

use crate::create::mount;
use crate::machines::{Machines, label};
use crate::options::PartSource;
use crate::runtime::{CHANGE, Failure, Kind, LONG, QUICK};

/// The part that is the daemon itself.
const OWN: &str = "ostler";
/// The image of Node.
const NODE: &str = "docker.io/library/node:{version}-bookworm-slim";
/// The image that installs npm packages.
const NPM: &str = "docker.io/library/node:lts-bookworm-slim";

/// One part is filled at a time.
#[derive(Debug, Default)]
pub struct Parts(tokio::sync::Mutex<()>);

/// How a part is filled.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fill {
    /// From a directory of an image.
    Image { image: String, path: String },
    /// With an npm package.
    Npm(String),
    /// With a program of this host.
    Program(PathBuf),
}

impl Machines {
    /// Returns the mounts of parts, after filling missing ones. A suffix is used for volumes that are not shared.
    pub async fn part_volumes(&self, parts: &[MachinePart], suffix: &str) -> Result<Vec<Mount>, Failure> {
        let mut mounts = Vec::new();
        for part in parts {
            let name = self.name(&format!("part-{}-{}{suffix}", part.part, slug(&part.version)));
            let _one = self.parts.0.lock().await;
            self.filled(&name, part).await.map_err(|why| Failure {
                message: format!("part {} {}: {}", part.part, part.version, why.message),
                kind: Kind::Failed,
            })?;
            mounts.push(mount(MountType::VOLUME, &name, &part.target, true));
        }
        Ok(mounts)
    }

    async fn filled(&self, volume: &str, part: &MachinePart) -> Result<(), Failure> {
        let filler = format!("{volume}-fill");
        match self.inspect(&filler).await {
            Ok(_) => {
                self.remove_container(&filler).await?;
                self.remove_volume(volume).await?;
            }
            Err(why) if !why.is_missing() => return Err(why),
            Err(_) => {}
        }
        let fill = self.fill_of(part)?;
        if !self.is_volume(volume).await? {
            let filled = self.fill_part(volume, &filler, &fill, part).await;
            if filled.is_err() {
                let _ = self.remove_container(&filler).await;
                let _ = self.remove_volume(volume).await;
            }
            filled?;
        }
        Ok(())
    }

    async fn is_volume(&self, name: &str) -> Result<bool, Failure> {
        let what = format!("inspect volume {name}");
        let found =
            self.runtime.call(&what, QUICK, |docker| async move { docker.inspect_volume(name).await }).await;
        match found {
            Ok(_) => Ok(true),
            Err(why) if why.is_missing() => Ok(false),
            Err(why) => Err(why),
        }
    }

    fn fill_of(&self, part: &MachinePart) -> Result<Fill, Failure> {
        if let Some(PartSource { image, path }) = self.options.parts.get(&part.part) {
            return Ok(Fill::Image { image: image.replace("{version}", &part.version), path: path.clone() });
        }
        if let Some(package) = &part.package {
            return Ok(Fill::Npm(format!("{package}@{}", part.version)));
        }
        match part.part.as_str() {
            OWN => {
                self.enter.first().map(|program| Fill::Program(program.into())).ok_or_else(|| {
                    Failure::new(Kind::Failed, "this host has no program that runs in a machine")
                })
            }
            "node" => {
                let image = NODE.replace("{version}", &part.version);
                Ok(Fill::Image { image, path: "/usr/local".to_owned() })
            }
            name => Err(Failure::new(
                Kind::Failed,
                format_args!(
                    "its source is unknown; name its package in versions.json, or add parts.{name} to the options of @ostler/containers"
                ),
            )),
        }
    }

    async fn fill_part(
        &self,
        volume: &str,
        filler: &str,
        fill: &Fill,
        part: &MachinePart,
    ) -> Result<(), Failure> {
        let (image, at, command) = match fill {
            // An empty volume receives what the image has at its target.
            Fill::Image { image, path } => {
                (image.clone(), path.clone(), vec!["/bin/sh".to_owned(), "-c".to_owned(), ":".to_owned()])
            }
            Fill::Npm(package) => {
                let install = [
                    "npm",
                    "install",
                    "--global",
                    "--no-audit",
                    "--no-fund",
                    "--prefix",
                    &part.target,
                    package,
                ];
                (NPM.to_owned(), part.target.clone(), install.map(str::to_owned).to_vec())
            }
            Fill::Program(_) => (
                self.options.image.clone(),
                part.target.clone(),
                vec!["/bin/sh".to_owned(), "-c".to_owned(), ":".to_owned()],
            ),
        };
        self.image(&image).await?;
        let body = ContainerCreateBody {
            image: Some(image),
            entrypoint: Some(command),
            cmd: Some(Vec::new()),
            labels: Some([(label::HOST.to_owned(), self.own.clone())].into()),
            host_config: Some(HostConfig {
                mounts: Some(vec![mount(MountType::VOLUME, volume, &at, false)]),
                network_mode: (!matches!(fill, Fill::Npm(_))).then(|| "none".to_owned()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        self.create(&format!("make {filler}"), filler, body).await?;
        if let Fill::Program(program) = fill {
            let copy =
                MachineCopy { source: program.display().to_string(), target: format!("{at}/bin/{OWN}") };
            self.copy_into_volume(filler, &at, &copy).await?;
        }
        self.runtime
            .call(&format!("start {filler}"), CHANGE, |docker| async move {
                docker.start_container(filler, None).await
            })
            .await?;
        let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
        self.runtime
            .call(&format!("wait for {filler}"), LONG, |docker| async move {
                docker.wait_container(filler, Some(options)).try_for_each(|_| async { Ok(()) }).await
            })
            .await?;
        // Last, because its existence means that the volume is incomplete.
        self.remove_container(filler).await
    }

    /// Removes the parts of only one machine.
    pub async fn remove_own_volumes(&self, id: &str) -> Result<(), Failure> {
        if !id.starts_with("dev-") {
            return Ok(());
        }
        let filters = HashMap::from([("name", vec![self.name("part-")])]);
        let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
        let volumes = self
            .runtime
            .call("list volumes", QUICK, |docker| async move { docker.list_volumes(Some(options)).await })
            .await?;
        for volume in
            volumes.volumes.into_iter().flatten().filter(|volume| volume.name.ends_with(&format!("-{id}")))
        {
            self.remove_volume(&volume.name).await?;
        }
        Ok(())
    }

    /// Copies a host file or directory into a volume of a container that was not started.
    pub async fn copy_into_volume(
        &self,
        container: &str,
        volume: &str,
        copy: &MachineCopy,
    ) -> Result<(), Failure> {
        use crate::archive::{Packed, pack};
        let inside = copy.target.strip_prefix(volume).unwrap_or(&copy.target).trim_start_matches('/');
        let above = inside.rsplit_once('/').map(|(above, _)| Packed::Directory(above.to_owned()));
        let packed = above.into_iter().chain([Packed::Copy(PathBuf::from(&copy.source), inside.to_owned())]);
        self.upload(container, volume, pack(packed.collect())).await
    }
}

fn slug(version: &str) -> String {
    version
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
        .collect()
}
