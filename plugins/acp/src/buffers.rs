//! Unsaved text: clients announce that they have files of a session open, and receive a request before a file is read
//! from disk.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::HostFunction;
use ostler_contract::points::ResourceContent;
use ostler_contract::wire::commands::ContentEncoding;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The limit of a client's answer, after which the file is read from disk.
const LIMIT: Duration = Duration::from_secs(2);
/// The maximum number of clients per session; the latest ones count.
const CLIENTS: usize = 4;
/// The maximum number of sessions with such clients.
const SESSIONS: usize = 1024;
/// The characters that are encoded in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The clients of each session that have files open, the latest last.
#[derive(Debug, Clone, Default)]
pub struct Buffers(Arc<Mutex<HashMap<String, Vec<String>>>>);

/// The clients of one session, with their requests.
#[derive(Debug, Clone)]
pub struct Unsaved {
    buffers: Buffers,
    session: String,
    read: Option<HostFunction<fn(uri: String) -> ResourceContent>>,
}

impl Buffers {
    /// A client announces that it has files of a session open.
    pub fn announce(&self, session: &str, client: &str) {
        let mut sessions = self.0.lock();
        if sessions.len() >= SESSIONS && !sessions.contains_key(session) {
            return;
        }
        let clients = sessions.entry(session.to_owned()).or_default();
        clients.retain(|known| known != client);
        clients.push(client.to_owned());
        clients.drain(..clients.len().saturating_sub(CLIENTS));
    }

    fn withdraw(&self, session: &str, client: &str) {
        let mut sessions = self.0.lock();
        let Some(clients) = sessions.get_mut(session) else { return };
        clients.retain(|known| known != client);
        if clients.is_empty() {
            sessions.remove(session);
        }
    }

    /// Drops the clients of a session that ends.
    pub fn forget(&self, session: &str) {
        self.0.lock().remove(session);
    }

    /// The clients of a session.
    pub fn of(
        &self,
        session: &str,
        read: Option<HostFunction<fn(uri: String) -> ResourceContent>>,
    ) -> Unsaved {
        Unsaved { buffers: self.clone(), session: session.to_owned(), read }
    }
}

impl Unsaved {
    /// Returns the text of a file from a client; `None` if none answers with text.
    pub async fn text(&self, path: &Path) -> Option<String> {
        let read = self.read.as_ref()?;
        let clients = self.buffers.0.lock().get(&self.session).cloned().unwrap_or_default();
        for client in clients.into_iter().rev() {
            let path = path.to_str()?;
            let (encoded, session) =
                (utf8_percent_encode(path, PATH), utf8_percent_encode(&self.session, NON_ALPHANUMERIC));
            let uri = format!("ostler-buffer://{client}{encoded}?session={session}");
            match tokio::time::timeout(LIMIT, read.call((uri,))).await {
                Ok(Ok(content)) if content.encoding != ContentEncoding::Base64 => return Some(content.data),
                // A client that has closed the file answers so and stays; one that does not answer is removed.
                Ok(_) => {}
                Err(_) => self.buffers.withdraw(&self.session, &client),
            }
        }
        None
    }
}
