//! The files of the console, which are compiled into the program.

use std::collections::HashMap;

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// One file with its response headers.
pub(crate) struct File {
    pub(crate) media: &'static str,
    pub(crate) body: Bytes,
    /// Its `ETag`.
    pub(crate) tag: String,
}

macro_rules! files {
    ($($name:literal)*) => {
        const FILES: &[(&str, &[u8])] = &[$(($name, include_bytes!(concat!("../web/", $name)))),*];
    };
}

files! {
    "index.html" "style.css" "icon.svg"
    "ahp.js" "api.js" "app.js" "chat.js" "dom.js" "fold.js" "format.js" "list.js"
    "pages/automations.js" "pages/bots.js" "pages/endpoints.js" "pages/health.js" "pages/help.js" "pages/log.js"
    "pages/plugins.js" "pages/policies.js" "pages/runs.js" "pages/session.js" "pages/sessions.js" "pages/sign-in.js" "pages/usage.js"
    "pages/users.js"
}

/// The total size of all files.
pub const SIZE: usize = {
    let (mut at, mut sum) = (0, 0);
    while at < FILES.len() {
        sum += FILES[at].1.len();
        at += 1;
    }
    sum
};

/// The files by their path below the route.
pub(crate) struct Files(HashMap<&'static str, File>);

impl Files {
    pub(crate) fn new() -> Self {
        let file = |(name, body): &(&'static str, &'static [u8])| {
            let media = match name.rsplit_once('.').map(|(_, ending)| ending) {
                Some("html") => "text/html; charset=utf-8",
                Some("css") => "text/css; charset=utf-8",
                Some("svg") => "image/svg+xml",
                _ => "text/javascript; charset=utf-8",
            };
            let tag = hex::encode(&Sha256::digest(body)[..12]);
            (*name, File { media, body: Bytes::from_static(body), tag: format!("\"{tag}\"") })
        };
        Self(FILES.iter().map(file).collect())
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.0.get(if path.is_empty() { "index.html" } else { path })
    }
}
