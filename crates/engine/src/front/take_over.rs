//! Whether this host continues the work that another host of its cluster left.

use std::collections::HashSet;
use std::time::Duration;

use ostler_contract::Thrown;
use ostler_contract::cluster::SessionElsewhere;
use ostler_contract::read::{Read, Unknown};
use ostler_engine_sessions::ask;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::front::Front;

/// How long a host counts as alive after it was. Its work is asked about one item after the other.
const ALIVE: Duration = Duration::from_secs(10);

/// The runs of hosts that were alive when they were last looked at.
#[derive(Debug, Default)]
pub(super) struct TakeOver(Mutex<Option<(Instant, HashSet<String>)>>);

impl TakeOver {
    /// Whether this host continues work about a session. In a cluster, a session has one owner at a time.
    pub async fn takes_over(
        &self,
        front: &Front,
        from: Option<String>,
        session: &str,
    ) -> Result<bool, Thrown> {
        let Some(cluster) = front.core.cluster() else { return Ok(true) };
        let own = cluster.incarnation();
        if from.as_ref() == Some(&own) {
            return Ok(true);
        }
        if from.as_ref().is_some_and(|from| self.was_alive(from)) {
            return Ok(false);
        }
        let hosts = ask(cluster.hosts()).await?;
        let alive: HashSet<String> =
            hosts.into_iter().filter(|host| host.is_alive).map(|host| host.incarnation).collect();
        let is_alive = from.is_some_and(|from| alive.contains(&from));
        let is_first = alive.iter().min() == Some(&own);
        *self.0.lock() = Some((Instant::now(), alive));
        if is_alive {
            return Ok(false);
        }
        match front.sessions.session_at(session).await {
            Read::Known(Some(_)) => Ok(true),
            Read::Known(None) => Ok(is_first),
            Read::Unknown(Unknown(why)) if SessionElsewhere::is(&why) => Ok(false),
            Read::Unknown(why) => Err(why.into()),
        }
    }

    fn was_alive(&self, host: &str) -> bool {
        let looked = self.0.lock();
        looked.as_ref().is_some_and(|(at, alive)| at.elapsed() < ALIVE && alive.contains(host))
    }
}
