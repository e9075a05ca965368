//! A host that takes what the plugin joins, and rejects every other call.

use std::sync::{Arc, Mutex};

use ostler_contract::cluster::Cluster;
use ostler_contract::host::{Fired, HostCalls, Peer, SecretScope, SessionRequest};
use ostler_contract::live::Pending;
use ostler_contract::points::{Collection, CollectionOptions, PublishOptions, Subscriber, UsageEntry};
use ostler_contract::problems::Problems;
use ostler_contract::shared_runs::{RunTransactions, SharedRuns};
use ostler_contract::users::UsersStore;
use ostler_contract::{Caller, JsonObject, NoHost, Thrown, Value};

/// What the plugin joined its host to.
#[derive(Default)]
pub struct Joined {
    pub cluster: Mutex<Option<Arc<dyn Cluster>>>,
    pub runs: Mutex<Option<Arc<dyn SharedRuns>>>,
    pub users: Mutex<Option<Arc<dyn UsersStore>>>,
    /// The lines of the log.
    pub lines: Mutex<Vec<String>>,
    /// What is wrong with the host.
    pub problems: Problems,
}

impl HostCalls for Joined {
    fn join_runs(
        &self,
        _: &Caller,
        _: Arc<dyn RunTransactions>,
        shared: Option<Arc<dyn SharedRuns>>,
    ) -> Result<(), Thrown> {
        *self.runs.lock().unwrap() = shared;
        Ok(())
    }

    fn join_cluster(&self, _: &Caller, cluster: Arc<dyn Cluster>) -> Result<(), Thrown> {
        *self.cluster.lock().unwrap() = Some(cluster);
        Ok(())
    }

    fn join_users(&self, _: &Caller, users: Arc<dyn UsersStore>) -> Result<(), Thrown> {
        *self.users.lock().unwrap() = Some(users);
        Ok(())
    }

    fn problems(&self, _: &Caller) -> Result<Problems, Thrown> {
        Ok(self.problems.clone())
    }

    fn log(&self, _: &Caller, line: String) -> Result<(), Thrown> {
        self.lines.lock().unwrap().push(line);
        Ok(())
    }

    fn say(&self, caller: &Caller, line: String) -> Result<(), Thrown> {
        NoHost.say(caller, line)
    }

    fn parse_yaml(&self, caller: &Caller, text: String) -> Result<Value, Thrown> {
        NoHost.parse_yaml(caller, text)
    }

    fn stringify_yaml(&self, caller: &Caller, value: Value) -> Result<String, Thrown> {
        NoHost.stringify_yaml(caller, value)
    }

    fn connect(&self, caller: &Caller) -> Result<Peer, Thrown> {
        NoHost.connect(caller)
    }

    fn start_session(&self, caller: &Caller, request: SessionRequest) -> Pending<String> {
        NoHost.start_session(caller, request)
    }

    fn session_kept(&self, caller: &Caller, uri: String) -> Pending<bool> {
        NoHost.session_kept(caller, uri)
    }

    fn session_owner(&self, caller: &Caller, uri: String) -> Pending<Option<String>> {
        NoHost.session_owner(caller, uri)
    }

    fn record_usage(&self, caller: &Caller, entry: UsageEntry) -> Pending<()> {
        NoHost.record_usage(caller, entry)
    }

    fn secret(&self, caller: &Caller, name: String, scope: Option<SecretScope>) -> Pending<String> {
        NoHost.secret(caller, name, scope)
    }

    fn records(
        &self,
        caller: &Caller,
        name: String,
        options: Option<CollectionOptions>,
    ) -> Result<Collection, Thrown> {
        NoHost.records(caller, name, options)
    }

    fn fire_trigger(
        &self,
        caller: &Caller,
        r#type: String,
        event: String,
        data: JsonObject,
    ) -> Result<Fired, Thrown> {
        NoHost.fire_trigger(caller, r#type, event, data)
    }

    fn publish(
        &self,
        caller: &Caller,
        scheme: String,
        uri: String,
        action: JsonObject,
        options: Option<PublishOptions>,
    ) -> Result<(), Thrown> {
        NoHost.publish(caller, scheme, uri, action, options)
    }

    fn subscribers(&self, caller: &Caller, scheme: String, uri: String) -> Result<Vec<Subscriber>, Thrown> {
        NoHost.subscribers(caller, scheme, uri)
    }
}
