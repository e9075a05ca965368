//! The users of a host: from the users file, or from a database that hosts share. They are read at the start and after each
//! change.

use std::sync::{Arc, Mutex as Lock, OnceLock, PoisonError, Weak};

use ostler_contract::Thrown;
use ostler_contract::problems::{Finding, ProblemKind};
use ostler_contract::users::{EditUsers, UsersStore};
use ostler_engine::users::{Change, UsersFile};
use ostler_engine::{Host, Log, People};
use ostler_protocol::RpcError;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::exit::Exit;
use crate::settings::Settings;
use crate::users_file::{LOOK_EVERY, UsersOnDisk, parse};

/// How often users that other hosts change too are read while what was read is valid.
const READS: u32 = 4;

#[derive(Debug)]
pub struct HostUsers {
    /// The configured file: the store, or what a database without users starts with.
    file: Option<UsersOnDisk>,
    is_shared: bool,
    store: OnceLock<Arc<dyn UsersStore>>,
    people: OnceLock<Weak<People>>,
    host: OnceLock<Weak<Host>>,
    /// What was read last. Locked from reading it until its content is in force, so that no older content follows it.
    taking: Arc<Mutex<Option<Taken>>>,
    wake: Notify,
}

/// What was read, and when that began.
#[derive(Debug)]
struct Taken {
    /// The text, if there is one, or why it cannot be read.
    text: Result<Option<String>, String>,
    begun: Instant,
}

/// Applies a change to the text of a users file; `None` if nothing changes.
///
/// # Errors
/// The text is invalid, or the change is rejected.
pub fn edited(
    place: &str,
    text: Option<&str>,
    change: impl Fn(&mut UsersFile) -> Result<(), RpcError>,
) -> Result<Option<String>, Thrown> {
    let before = parse(place, text).map_err(|why| Thrown::from(RpcError::internal(why)))?;
    let mut file = before.clone();
    change(&mut file).map_err(Thrown::from)?;
    Ok((file != before).then(|| file.text()))
}

/// Changes the users in a store, and returns them.
///
/// # Errors
/// Why they could not be read or written, or why the change was rejected.
pub async fn change(store: &dyn UsersStore, change: Change) -> Result<UsersFile, Thrown> {
    let (place, change) = (store.place(), Lock::new(change));
    let named = place.clone();
    let edit: EditUsers = Arc::new(move |text| {
        let change = change.lock().unwrap_or_else(PoisonError::into_inner);
        edited(&named, text, &*change)
    });
    let text = store.change(edit).await?;
    parse(&place, text.as_deref()).map_err(Thrown::new)
}

/// Stores the content of a users file in a database that has none. Returns whether it did.
///
/// # Errors
/// The file is invalid, or one of both cannot be used.
pub async fn import_first(store: &dyn UsersStore, file: &UsersOnDisk) -> Result<bool, Thrown> {
    if store.read().await?.is_some() {
        return Ok(false);
    }
    let unusable = |why: String| {
        Thrown::new(format_args!(
            "{why}; correct it first: its users are to be stored in the database, which has none"
        ))
    };
    let read = UsersStore::read(file).await.map_err(|why| unusable(why.message))?;
    let Some(text) = read else { return Ok(false) };
    let first = parse(&file.place(), Some(&text)).map_err(unusable)?.text();
    let stored = first.clone();
    let edit: EditUsers = Arc::new(move |there| Ok(there.is_none().then(|| first.clone())));
    Ok(store.change(edit).await? == Some(stored))
}

impl HostUsers {
    /// Returns the users of a host with these settings; none without a users file. With `is_shared`, a plugin provides the
    /// store.
    pub fn of(settings: &Settings, is_shared: bool) -> Option<Arc<Self>> {
        let file = settings.users.clone().map(UsersOnDisk::new);
        (is_shared || file.is_some()).then(|| {
            Arc::new(Self {
                file,
                is_shared,
                store: OnceLock::new(),
                people: OnceLock::new(),
                host: OnceLock::new(),
                taking: Arc::default(),
                wake: Notify::new(),
            })
        })
    }

    /// Returns its users for a new host: none until [`Self::open`]. Without a configured file, grants are checked once the
    /// database has users.
    pub fn people(self: &Arc<Self>, settings: &Settings, host_name: &str) -> Arc<People> {
        let resource = settings.resource.clone().unwrap_or_else(|| format!("https://{}", settings.address));
        let (writer, reader) = (self.clone(), self.clone());
        let people = People::new(&resource, host_name)
            .reread_by(Arc::new(move || {
                let users = reader.clone();
                Box::pin(async move {
                    users.look().await;
                })
            }))
            .trusting(settings.trust_token)
            .issued_by(settings.issuer.clone())
            .written_by(Arc::new(move |change: Change| {
                let users = writer.clone();
                Box::pin(async move {
                    // The caller may no longer wait; what is written has to be in force anyway.
                    tokio::spawn(async move { users.change(change).await }).await.map_err(Thrown::new)?
                })
            }));
        let people = Arc::new(if self.file.is_none() { people.pending() } else { people });
        let _ = self.people.set(Arc::downgrade(&people));
        people
    }

    /// Reads the users, from the store of a plugin or from the file.
    ///
    /// # Errors
    /// Exit 1 if the database cannot be read; a file that cannot be read is logged, and no user can sign in.
    pub async fn open(&self, shared: Option<Arc<dyn UsersStore>>, log: &Log) -> Result<(), Exit> {
        let failed = |why: Thrown| Exit::machine(why.message);
        let store: Arc<dyn UsersStore> = match (self.is_shared, shared, &self.file) {
            (true, Some(store), _) => store,
            (false, _, Some(file)) => Arc::new(file.clone()),
            _ => return Err(Exit::machine("the plugin with the stores provides no users")),
        };
        let place = store.place();
        let mut seen = self.taking.lock().await;
        if let (true, Some(file)) = (self.is_shared, &self.file) {
            self.begin(&*store, file, log).await.map_err(failed)?;
        }
        let begun = Instant::now();
        let text = match store.read().await {
            Ok(text) => Ok(text),
            Err(why) if self.is_shared => return Err(failed(why)),
            Err(why) => Err(why.message),
        };
        match (&self.file, &text) {
            (Some(_), Ok(None)) if self.is_shared => log.warn(format_args!(
                "{place}: there are none; no user can sign in until one is added with ostler user add"
            )),
            (Some(file), _) if !self.is_shared => file.absent().iter().for_each(|line| log.warn(line)),
            _ => {}
        }
        let people = self.people.get().and_then(Weak::upgrade);
        if let Some(people) = people {
            if self.is_shared && matches!(text, Ok(Some(_))) {
                people.enforce();
            }
            take(&place, &people, text.as_ref().map(Option::as_deref), log);
            if let Some(valid_for) = store.valid_for() {
                people.confirm(begun, valid_for);
            }
        }
        *seen = Some(Taken { text, begun });
        let _ = self.store.set(store);
        Ok(())
    }

    /// Stores the users of the file in a database without users, or logs that the file differs.
    async fn begin(&self, store: &dyn UsersStore, file: &UsersOnDisk, log: &Log) -> Result<(), Thrown> {
        let place = store.place();
        if import_first(store, file).await? {
            log.warn(format_args!(
                "{} was stored as the {place}, which all its hosts use from now on; the file is no longer read",
                file.place()
            ));
            return Ok(());
        }
        let there = parse(&place, store.read().await?.as_deref());
        let differs = matches!(UsersStore::read(file).await, Ok(Some(text))
            if parse(&file.place(), Some(&text)).ok() != there.ok());
        if differs {
            log.warn(format_args!(
                "{} is not read and differs from the {place}; see ostler files import and export",
                file.place()
            ));
        }
        Ok(())
    }

    /// Follows the changes of the users, until the host ends.
    pub fn follow(self: Arc<Self>, host: &Arc<Host>) {
        let _ = self.host.set(Arc::downgrade(host));
        if let Some(store) = self.store.get() {
            let users = Arc::downgrade(&self);
            store.listen(Arc::new(move || {
                if let Some(users) = users.upgrade() {
                    users.wake.notify_one();
                }
            }));
        }
        // They may have changed before the store had a listener.
        self.wake.notify_one();
        let valid_for = self.store.get().and_then(|store| store.valid_for());
        let pause = valid_for.map_or(LOOK_EVERY, |valid_for| valid_for / READS);
        tokio::spawn(async move {
            loop {
                drop(tokio::time::timeout(pause, self.wake.notified()).await);
                if self.look().await.is_none() {
                    return;
                }
            }
        });
    }

    /// Changes the users, and puts them in force.
    async fn change(&self, edit: Change) -> Result<(), Thrown> {
        let store = self.store.get().ok_or_else(|| Thrown::new("the users of this host are not read yet"))?;
        change(&**store, edit).await?;
        // If it cannot be read now, nobody is served by what was in force before.
        self.look().await;
        Ok(())
    }

    /// Reads them again, and applies them if they have changed. `None` once the host has ended.
    async fn look(&self) -> Option<()> {
        let (asked, store) = (Instant::now(), self.store.get()?);
        let mut seen = self.taking.lock().await;
        if seen.as_ref().is_some_and(|seen| seen.begun > asked) {
            // Another one read them while this one waited.
            return Some(());
        }
        let begun = Instant::now();
        let text = store.read().await.map_err(|why| why.message);
        let host = self.host.get()?.upgrade()?;
        let people = self.people.get()?.upgrade()?;
        let before = seen.replace(Taken { text, begun }).map(|taken| taken.text);
        let text = &seen.as_ref()?.text;
        let was_confirmed = people.are_confirmed();
        let is_same = match (&before, text) {
            // Each try can fail for another reason.
            (Some(Err(_)), Err(_)) => true,
            (before, text) => before.as_ref() == Some(text),
        };
        if self.is_shared && text.is_ok() && matches!(before, Some(Err(_))) {
            host.core.log.info(format_args!("the {} can be read again", store.place()));
        }
        if !is_same {
            self.apply(text, &host, &people, &store.place());
        }
        if let (Ok(_), Some(valid_for)) = (text, store.valid_for()) {
            people.confirm(begun, valid_for);
        }
        drop(seen);
        if !is_same || !was_confirmed {
            host.review_authority();
        }
        Some(())
    }

    /// Puts what was read in force.
    fn apply(&self, text: &Result<Option<String>, String>, host: &Arc<Host>, people: &People, place: &str) {
        let log = &host.core.log;
        match text {
            Ok(None) => {
                let found = format!("{place} was removed; keeping the last valid users and grants");
                let finding =
                    Finding::error(found).fixed_by("create it again, or restart the host without it");
                return log.set_problems(ProblemKind::Users, place, vec![finding]);
            }
            Err(why) if self.is_shared => {
                let found = format!(
                    "the {place} cannot be read, so calls of users are refused until they can be: {why}"
                );
                let finding = Finding::error(found).fixed_by("make the database available again");
                return log.set_problems(ProblemKind::Users, place, vec![finding]);
            }
            _ => take(place, people, text.as_ref().map(Option::as_deref), log),
        }
        if text.is_ok() && people.enforce() {
            log.warn(format_args!(
                "grants are checked from now on, because there are {place}; restart this host to tell clients how to sign in"
            ));
            host.disconnect_clients();
        }
    }
}

/// Applies the content. An invalid one is listed and logged, and the previous one stays in force.
fn take(place: &str, people: &People, text: Result<Option<&str>, &String>, log: &Log) {
    let file = text.map_err(Clone::clone).and_then(|text| parse(place, text));
    let findings: Vec<Finding> = match file.and_then(|file| people.set(file)) {
        Ok(lines) => lines.iter().map(|line| Finding::warning(format!("{place}: {line}"))).collect(),
        Err(why) => vec![Finding::error(format!("{why}; keeping the last valid users and grants"))],
    };
    let fix = format!("correct {place}");
    let findings = findings.into_iter().map(|finding| finding.fixed_by(&fix)).collect();
    log.set_problems(ProblemKind::Users, place, findings);
}
