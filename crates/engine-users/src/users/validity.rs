//! How long the users in force are known to be those that are stored, where other hosts change them too.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long a request waits for the users to be read again, and how long connections of users stay open meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Until when the users in force are known to be the stored ones; `None` without an end.
#[derive(Debug)]
pub(super) struct Validity(watch::Sender<Option<Instant>>);

impl Default for Validity {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Validity {
    /// They are valid until then.
    pub fn extend(&self, until: Instant) {
        self.0.send_replace(Some(until));
    }

    /// Returns whether they are valid now.
    pub fn holds(&self) -> bool {
        self.0.borrow().is_none_or(|until| Instant::now() < until)
    }

    /// Returns whether the validity can end.
    pub fn has_end(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub fn watch(&self) -> ValidityWatch {
        ValidityWatch(self.0.subscribe())
    }
}

/// Waits for changes of the validity.
#[derive(Debug)]
pub struct ValidityWatch(watch::Receiver<Option<Instant>>);

impl ValidityWatch {
    /// Waits until the users are valid. Returns `false` if they are not [`PATIENCE`] after they were the last time.
    pub async fn settled(&mut self) -> bool {
        loop {
            let Some(until) = *self.0.borrow_and_update() else { return true };
            if Instant::now() < until {
                return true;
            }
            if !matches!(tokio::time::timeout_at(until + PATIENCE, self.0.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
    }

    /// Waits until the users are not valid. Returns `false` once nobody extends their validity.
    pub async fn lapsed(&mut self) -> bool {
        loop {
            let until = *self.0.borrow_and_update();
            let extended = match until {
                None => Ok(self.0.changed().await),
                Some(until) => tokio::time::timeout_at(until, self.0.changed()).await,
            };
            match extended {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Waits until the users are valid again. Returns `false` once nobody extends their validity.
    pub async fn restored(&mut self) -> bool {
        loop {
            if self.0.borrow_and_update().is_none_or(|until| Instant::now() < until) {
                return true;
            }
            if self.0.changed().await.is_err() {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_moment_and_not_in_a_long_outage() {
        let validity = Validity::default();
        assert!(validity.holds() && validity.watch().settled().await, "nothing ends it");
        let begun = Instant::now();
        validity.extend(begun + Duration::from_secs(1));
        assert!(validity.holds() && validity.watch().lapsed().await);
        assert_eq!((begun.elapsed().as_millis() / 10, validity.holds()), (100, false));
        let mut waits = validity.watch();
        let (settled, ()) = tokio::join!(waits.settled(), async {
            tokio::time::sleep(PATIENCE / 2).await;
            validity.extend(Instant::now() + Duration::from_secs(1));
        });
        assert!(settled && validity.watch().restored().await);
        assert!(validity.watch().lapsed().await);
        tokio::time::sleep(10 * PATIENCE).await;
        let asked = Instant::now();
        assert!(!validity.watch().settled().await);
        assert_eq!(asked, Instant::now(), "it is answered at once");
    }
}
