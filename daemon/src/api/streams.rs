//! The places of event streams: so many of a daemon, and of them so many of a user.

use std::collections::HashMap;
use std::sync::Arc;

use ostler_engine::Principal;
use parking_lot::Mutex;

/// The most streams of a daemon.
pub(super) const MOST: usize = 256;
/// The most streams of a user, so that one user cannot take all of them.
pub(super) const MOST_OF_A_USER: usize = 32;

/// The open streams of a daemon.
#[derive(Debug, Clone, Default)]
pub struct Streams(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    all: usize,
    users: HashMap<String, usize>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    streams: Streams,
    user: Option<String>,
}

impl Streams {
    /// Takes a place for a caller.
    ///
    /// # Errors
    /// The limit that is reached, as text.
    pub(super) fn take(&self, caller: &Principal) -> Result<Place, String> {
        let user = match caller {
            Principal::Person(person) => Some(person.id.to_string()),
            Principal::Anyone | Principal::Root | Principal::Plugin { .. } => None,
        };
        let mut open = self.0.lock();
        if open.all >= MOST {
            return Err(format!("{MOST} streams are open, which is the limit"));
        }
        if let Some(user) = &user {
            let of = open.users.entry(user.clone()).or_default();
            if *of >= MOST_OF_A_USER {
                return Err(format!(
                    "{MOST_OF_A_USER} streams of {user} are open, which is the limit of a user"
                ));
            }
            *of += 1;
        }
        open.all += 1;
        Ok(Place { streams: self.clone(), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        open.all -= 1;
        if let Some(user) = &self.user
            && let Some(of) = open.users.get_mut(user)
        {
            *of -= 1;
            if *of == 0 {
                open.users.remove(user);
            }
        }
    }
}
