//! Which server the connections of a host are of. While one server replaces another, both can answer, and a host that uses both
//! would read what is no longer true and write what nobody reads.

use parking_lot::Mutex;
use tokio::sync::watch;

/// What identifies a server. The database user may not read a part of it, which is then not compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The identifier of the cluster of databases, which a standby has too.
    pub system: Option<String>,
    /// The timeline, which increases when a standby becomes the primary.
    pub timeline: Option<u32>,
}

#[derive(Default)]
struct Known {
    identity: Identity,
    /// How often the server was replaced.
    changes: u64,
}

/// The server that all connections are of.
#[derive(Default)]
pub struct Server {
    known: Mutex<Known>,
    /// Changes when the open connections are abandoned.
    abandoned: watch::Sender<()>,
}

/// A connection that may be used.
pub struct Admitted {
    /// How often the server was replaced before.
    pub changes: u64,
    /// Changes when the connection is abandoned.
    pub abandoned: watch::Receiver<()>,
}

impl Server {
    /// Abandons all open connections.
    pub fn abandon(&self) {
        self.abandoned.send_replace(());
    }

    /// Admits a new connection if it is of the server that the others are of. One of a newer timeline is, and the others are
    /// abandoned. Whether a server with another identifier is used is decided by the connections of the lease.
    ///
    /// # Errors
    /// Why the connection must not be used.
    pub fn admit(&self, found: Identity, is_of_lease: bool) -> Result<Admitted, String> {
        let mut known = self.known.lock();
        let before = &known.identity;
        let is_other =
            matches!((&before.system, &found.system), (Some(before), Some(found)) if before != found);
        let is_newer = match (before.timeline, found.timeline) {
            _ if is_other && is_of_lease => true,
            _ if is_other => {
                // The lease may be at the server that was replaced.
                self.abandon();
                return Err(
                    "the server is not the one of the lease (it has another system identifier)".to_owned()
                );
            }
            (Some(before), Some(found)) if found < before => {
                return Err(format!(
                    "the server was replaced by another primary (it has timeline {found}, and the new one has {before}); stop it"
                ));
            }
            (Some(before), Some(found)) => found > before,
            _ => false,
        };
        if is_newer {
            self.abandon();
            known.changes += 1;
        }
        let system = found.system.or_else(|| known.identity.system.clone());
        let timeline = found.timeline.or(known.identity.timeline.filter(|_| !is_other));
        known.identity = Identity { system, timeline };
        Ok(Admitted { changes: known.changes, abandoned: self.abandoned.subscribe() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(system: &str, timeline: u32) -> Identity {
        Identity { system: Some(system.to_owned()), timeline: Some(timeline) }
    }

    fn admitted(server: &Server, identity: Identity, is_of_lease: bool) -> Admitted {
        server.admit(identity, is_of_lease).unwrap_or_else(|why| panic!("{why}"))
    }

    fn is_abandoned(connection: &Admitted) -> bool {
        connection.abandoned.has_changed().unwrap_or(true)
    }

    #[test]
    fn a_newer_timeline_replaces_all_connections_and_an_older_one_is_refused() {
        for is_of_lease in [true, false] {
            let server = Server::default();
            let old = [admitted(&server, identity("a", 1), true), admitted(&server, identity("a", 1), false)];
            let new = admitted(&server, identity("a", 2), is_of_lease);
            assert!(old.iter().all(is_abandoned) && !is_abandoned(&new));
            assert_eq!((old[1].changes, new.changes), (0, 1));
            assert!(server.admit(identity("a", 1), !is_of_lease).is_err());
            let next = admitted(&server, identity("a", 2), !is_of_lease);
            assert!(!is_abandoned(&new) && !is_abandoned(&next) && next.changes == 1);
        }
    }

    #[test]
    fn the_lease_decides_about_a_server_with_another_identifier() {
        let server = Server::default();
        let lease = admitted(&server, identity("a", 7), true);
        assert!(server.admit(identity("b", 1), false).is_err());
        assert!(is_abandoned(&lease), "so that the lease is renewed on a new connection");
        let lease = admitted(&server, identity("b", 1), true);
        assert_eq!(lease.changes, 1);
        let reader = admitted(&server, identity("b", 1), false);
        assert!(server.admit(identity("a", 7), false).is_err());
        assert!(is_abandoned(&reader) && is_abandoned(&lease));
    }

    #[test]
    fn what_the_user_may_not_read_is_not_compared() {
        let server = Server::default();
        let first = admitted(&server, identity("a", 2), true);
        let hidden = Identity::default();
        admitted(&server, hidden, false);
        assert!(!is_abandoned(&first));
        assert!(server.admit(identity("a", 1), false).is_err(), "what was known stays known");
    }
}
