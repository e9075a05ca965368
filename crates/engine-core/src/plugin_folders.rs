//! Folders for copies of the plugins that clients contribute to a session, passed in because the engine writes no
//! files.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_contract::Charge;

/// Folders for copies of clients' plugins.
pub trait PluginFolders: Send + Sync {
    /// Creates an empty folder for one plugin of a session; returns its path.
    fn make<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<String, String>>;
    /// Writes a new file of a folder. The parts of its path are plain names.
    fn write<'a>(
        &'a self,
        folder: &'a str,
        path: &'a [String],
        bytes: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), String>>;
    /// Removes a folder in the background.
    fn remove(&self, folder: &str);
}

impl fmt::Debug for dyn PluginFolders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PluginFolders")
    }
}

/// A copy of a client's plugin; its folder is removed when this is dropped.
#[derive(Debug)]
pub struct PluginFolder {
    pub path: String,
    /// Its size on the disk.
    pub charges: Vec<Charge>,
    folders: Arc<dyn PluginFolders>,
}

impl PluginFolder {
    /// Creates an empty one.
    ///
    /// # Errors
    /// Why it could not be created.
    pub async fn make(folders: &Arc<dyn PluginFolders>, session: &str) -> Result<Self, String> {
        let path = folders.make(session).await?;
        Ok(Self { path, charges: Vec::new(), folders: folders.clone() })
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// Why it could not be written.
    pub async fn write(&self, path: &[String], bytes: Vec<u8>) -> Result<(), String> {
        self.folders.write(&self.path, path, bytes).await
    }
}

impl Drop for PluginFolder {
    fn drop(&mut self) {
        self.folders.remove(&self.path);
    }
}
