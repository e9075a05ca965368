//! Stores whose calls are wrapped, for stores that fail, wait or report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler_contract::call::Signature;
use ostler_contract::points::{
    AutomationStore, CollectionOptions, Policies, RecordStore, SessionStore, StoredCollection, Vault,
};
use ostler_contract::{Call, Thrown};
use parking_lot::Mutex;

/// Wraps the calls of a store.
pub trait WrapCall {
    /// Wraps one call. `writes` is true if the call changes the store.
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S>;
}

/// Lets the reads of stores fail or wait while it is set. Writes go through, because nothing is written that was not read before.
#[derive(Debug, Clone, Default)]
pub struct Away {
    fails: Arc<AtomicBool>,
    delay: Arc<Mutex<Duration>>,
}

impl Away {
    /// Lets reads fail, or answers them again.
    pub fn set(&self, is_away: bool) {
        self.fails.store(is_away, Ordering::SeqCst);
    }

    /// Answers reads after this time.
    pub fn delay(&self, time: Duration) {
        *self.delay.lock() = time;
    }
}

impl WrapCall for Away {
    fn wrap<S: Signature>(&self, call: &Call<S>, writes: bool) -> Call<S> {
        let (away, call) = (self.clone(), call.clone());
        Call::new(move |arguments| {
            let fails = !writes && away.fails.load(Ordering::SeqCst);
            let delay = if writes { Duration::ZERO } else { *away.delay.lock() };
            let answer = (!fails).then(|| call.unbounded(arguments));
            async move {
                if !delay.is_zero() {
                    // A slow store. Tests pause time, or set some milliseconds.
                    tokio::time::sleep(delay).await;
                }
                match answer {
                    Some(answer) => answer.await,
                    None => Err(Thrown::new("the store is away")),
                }
            }
        })
    }
}

/// Returns an automation store whose calls are wrapped, except those that watch and close it.
pub fn wrapped_automations(store: &AutomationStore, with: &impl WrapCall) -> AutomationStore {
    AutomationStore {
        list: with.wrap(&store.list, false),
        get: with.wrap(&store.get, false),
        triggers: with.wrap(&store.triggers, false),
        create: with.wrap(&store.create, true),
        update: with.wrap(&store.update, true),
        remove: with.wrap(&store.remove, true),
        run: with.wrap(&store.run, true),
        run_of: with.wrap(&store.run_of, false),
        runs: with.wrap(&store.runs, false),
        find_runs: store.find_runs.as_ref().map(|call| with.wrap(call, false)),
        unfinished: store.unfinished.as_ref().map(|call| with.wrap(call, false)),
        progress: store.progress.as_ref().map(|call| with.wrap(call, false)),
        keep_progress: store.keep_progress.as_ref().map(|call| with.wrap(call, true)),
        ..store.clone()
    }
}

/// Returns a record store of which one collection is wrapped.
pub fn wrapped_collection(
    store: &RecordStore,
    name: &'static str,
    with: &(impl WrapCall + Clone + Send + Sync + 'static),
) -> RecordStore {
    let (plain, wrapped) = (store.collection.clone(), wrapped_records(store, with).collection);
    let collection = Call::new(move |arguments: (String, CollectionOptions)| match arguments.0 == name {
        true => wrapped.unbounded(arguments),
        false => plain.unbounded(arguments),
    });
    RecordStore { collection, ..store.clone() }
}

/// Returns a record store whose collections are wrapped.
pub fn wrapped_records(
    store: &RecordStore,
    with: &(impl WrapCall + Clone + Send + Sync + 'static),
) -> RecordStore {
    let (collection, with) = (store.collection.clone(), with.clone());
    let collection = Call::new(move |arguments: (String, CollectionOptions)| {
        let (opened, with) = (collection.unbounded(arguments), with.clone());
        async move {
            let opened = opened.await?;
            Ok(StoredCollection {
                get: with.wrap(&opened.get, false),
                ids: opened.ids.as_ref().map(|call| with.wrap(call, false)),
                list: with.wrap(&opened.list, false),
                find: with.wrap(&opened.find, false),
                put: with.wrap(&opened.put, true),
                remove: with.wrap(&opened.remove, true),
                ..opened
            })
        }
    });
    RecordStore { collection, close: store.close.clone() }
}

/// Returns a vault whose calls are wrapped.
pub fn wrapped_vault(vault: &Vault, with: &impl WrapCall) -> Vault {
    Vault {
        get: with.wrap(&vault.get, false),
        set: with.wrap(&vault.set, true),
        delete: with.wrap(&vault.delete, true),
        list: with.wrap(&vault.list, false),
        close: vault.close.clone(),
    }
}

/// Returns policies whose calls are wrapped.
pub fn wrapped_policies(policies: &Policies, with: &impl WrapCall) -> Policies {
    Policies {
        list: with.wrap(&policies.list, false),
        get: with.wrap(&policies.get, false),
        put: with.wrap(&policies.put, true),
        remove: with.wrap(&policies.remove, true),
        close: policies.close.clone(),
    }
}

/// Returns a session store whose calls are wrapped, except the one that closes it.
pub fn wrapped_store(store: &SessionStore, with: &impl WrapCall) -> SessionStore {
    macro_rules! each {
        ($($must:ident $writes:literal,)+; $($may:ident $and_writes:literal,)+) => {
            SessionStore {
                $($must: with.wrap(&store.$must, $writes),)+
                $($may: store.$may.as_ref().map(|call| with.wrap(call, $and_writes)),)+
                close: store.close.clone(),
            }
        };
    }
    each!(
        flags false, set_flags true, config false, set_config true, artifacts false, set_artifacts true,
        pull_requests false, set_pull_requests true, chat_title false, set_chat_title true, chats false,
        set_chats true, sessions false, forget true,;
        all false, session false, page false, session_of_chat false, drafts false, waiting false, count false, turns false,
        set_turn true, drop_turns true, annotations false, set_annotations true, reported false,
        set_reported true, set_attachment true, attachment false,
    )
}
