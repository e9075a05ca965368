//! A small file system that can be filled. Mounting it needs root.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted `tmpfs`.
pub struct Disk {
    path: PathBuf,
    ballast: PathBuf,
}

impl Disk {
    /// Mounts a file system of this size at a folder.
    pub fn mount(path: &Path, mebibytes: usize) -> Self {
        Self::try_mount(path, mebibytes)
            .unwrap_or_else(|| panic!("{} cannot be mounted; run this test as root", path.display()))
    }

    /// As [`Disk::mount`]; nothing where this user may not mount one.
    pub fn try_mount(path: &Path, mebibytes: usize) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let size = format!("size={mebibytes}m,mode=0777");
        let mounted = system("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        let mounted = mounted.is_ok_and(|ended| ended.status.success());
        mounted.then(|| Self { path: path.to_owned(), ballast: path.join("ballast") })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills it up.
    pub fn fill(&self) {
        let mut ballast = File::create(&self.ballast).unwrap();
        for size in [1 << 20, 1 << 12, 1] {
            let block = vec![0; size];
            while ballast.write_all(&block).is_ok() {}
        }
    }

    /// Makes it read-only.
    pub fn seal(&self) {
        let sealed = system("mount").args(["-o", "remount,ro"]).arg(&self.path).status();
        assert!(sealed.is_ok_and(|ended| ended.success()), "{}", self.path.display());
    }

    /// Makes room again.
    pub fn clear(&self) {
        fs::remove_file(&self.ballast).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(system("umount").arg("--lazy").arg(&self.path).status());
    }
}

/// A program that may be missing from the `PATH` of a test.
fn system(name: &str) -> Command {
    let path = Path::new("/usr/bin").join(name);
    Command::new(if path.exists() { path } else { name.into() })
}
