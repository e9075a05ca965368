//! The hosts that are measured, and what they store at the start.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::context::Context;
use super::super::super::failure::{During, Failure, Result};
use super::super::super::net::http_load::Calls;
use super::super::super::ostler::{Folder, SECRET, call};
use super::super::super::postgres::Postgres;
use super::super::super::process::Process;

/// Connections that call webhooks, each with one call at a time, and automations that they call.
pub const CONNECTIONS: usize = 32;

/// The beginning of the names of hosts in a cluster.
const HOST: &str = "host-";

/// What the runs of an automation do.
#[derive(Debug, Clone, Copy)]
pub enum Runs {
    /// The first one never ends. So a call is matched, added to the run that waits, and stored before its response, and no
    /// session is created.
    Wait,
    /// Each call starts one, which ends after a word in a session of its own.
    End,
}

impl Runs {
    /// The prefix of the ids of these automations and of their endpoints.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Wait => "waits",
            Self::End => "ends",
        }
    }

    /// The id of an automation and of its endpoint.
    pub fn endpoint(self, at: usize) -> String {
        format!("{}-{at}", self.prefix())
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Wait => "/hang",
            Self::End => "/words 1",
        }
    }

    const fn overlap(self) -> &'static str {
        match self {
            Self::Wait => "queue",
            Self::End => "parallel",
        }
    }
}

/// A running host.
pub struct Host {
    /// The process.
    pub process: Process,
    /// The address on which it listens.
    pub address: SocketAddr,
    _folder: Folder,
}

impl Host {
    fn start(context: &Context, folder: Folder) -> Result<Self> {
        let (process, address) = context.ostler.start(&folder)?;
        Ok(Self { process, address, _folder: folder })
    }

    /// Starts a host on files and SQLite.
    ///
    /// # Errors
    /// It does not start.
    pub fn on_files(context: &Context) -> Result<Self> {
        Self::start(context, files(context)?)
    }

    /// Returns a call of an endpoint.
    pub fn call(&self, runs: Runs, at: usize) -> Vec<u8> {
        let body = json!({ "ref": "refs/heads/main", "after": "76ae82c7b1a177c8d03f9e96e0adf2466113728f",
            "repository": { "full_name": format!("octo/hello-{at}") }, "pusher": { "name": "octo" } });
        call(self.address, &runs.endpoint(at), SECRET, &body.to_string()).into_bytes()
    }
}

/// Hosts on a schema of their own, which begins with a copy of [`files`].
pub struct Hosts {
    /// The hosts.
    pub each: Vec<Host>,
    /// The schema.
    pub schema: String,
}

impl Hosts {
    /// Starts a host without a cluster.
    ///
    /// # Errors
    /// It does not start.
    pub fn alone(context: &Context, server: &Postgres) -> Result<Self> {
        let schema = schema(context, server)?;
        let folder = folder(context, options(server, &schema))?;
        Ok(Self { each: vec![Host::start(context, folder)?], schema })
    }

    /// Starts the hosts of a cluster.
    ///
    /// # Errors
    /// One of them does not start.
    pub fn cluster(context: &Context, server: &Postgres, count: usize) -> Result<Self> {
        let schema = schema(context, server)?;
        let each = (0..count).map(|at| {
            let mut options = options(server, &schema);
            options["cluster"] = json!({ "url": "ws://127.0.0.1:0", "tokenFile": server.token_file(),
                "id": format!("{HOST}{at}"), "sharedPaths": ["/"] });
            Host::start(context, folder(context, options)?)
        });
        Ok(Self { each: each.collect::<Result<_>>()?, schema })
    }

    /// Returns the host of a connection; each host has the same number of them.
    pub fn host(&self, connection: usize) -> &Host {
        &self.each[connection % self.each.len()]
    }

    /// Returns the calls of every connection: each calls one automation, and each host receives those of equally many.
    pub fn calls(&self, runs: Runs) -> Vec<Calls> {
        (0..CONNECTIONS).map(|at| calls(self.host(at), |host| vec![host.call(runs, at)])).collect()
    }

    /// As [`Self::calls`], but the host that owns an automation receives its calls.
    ///
    /// # Errors
    /// An automation has no owner; the first call of each determines it.
    pub fn calls_at_owner(&self, server: &Postgres, runs: Runs) -> Result<Vec<Calls>> {
        let owners = self.owners(server)?;
        (0..CONNECTIONS)
            .map(|at| {
                let id = runs.endpoint(at);
                let owner = owners.get(&id).and_then(|owner| self.each.get(*owner));
                let owner = owner.ok_or_else(|| Failure::new(format!("no host owns the automation {id}")))?;
                Ok(calls(owner, |host| vec![host.call(runs, at)]))
            })
            .collect()
    }

    /// Returns the calls of every connection: each calls every automation, whichever host owns it.
    pub fn calls_at_any(&self, runs: Runs) -> Vec<Calls> {
        let each = |at: usize| {
            move |host: &Host| {
                (0..CONNECTIONS).map(|step| host.call(runs, (at + step) % CONNECTIONS)).collect()
            }
        };
        (0..CONNECTIONS).map(|at| calls(self.host(at), each(at))).collect()
    }

    /// Returns which host of a cluster owns each automation.
    ///
    /// # Errors
    /// The error of the database.
    pub fn owners(&self, server: &Postgres) -> Result<HashMap<String, usize>> {
        let sql =
            format!("SELECT automation, host FROM {}.automation_owners WHERE owner IS NOT NULL", self.schema);
        let owned = |row: &str| {
            let (automation, host) = row.split_once('|')?;
            Some((automation.to_owned(), host.strip_prefix(HOST)?.parse().ok()?))
        };
        Ok(server.sql(&sql)?.lines().filter_map(owned).collect())
    }

    /// Waits until the runs of [`Runs::End`] have ended.
    ///
    /// # Errors
    /// They do not.
    pub fn until_runs_end(&self, server: &Postgres) -> Result<()> {
        let (schema, ends) = (&self.schema, Runs::End.prefix());
        server
            .sql(&format!(
                "DO $$ BEGIN
                     FOR look IN 1..6000 LOOP
                         IF NOT EXISTS (
                             SELECT 1 FROM {schema}.automation_runs WHERE NOT ended AND automation LIKE '{ends}-%'
                         ) THEN RETURN; END IF;
                         COMMIT;
                         PERFORM pg_sleep(0.005);
                     END LOOP;
                     RAISE EXCEPTION 'they did not within 30 seconds';
                 END $$"
            ))
            .during("the end of the runs")
            .map(drop)
    }

    /// Returns the CPU time that all hosts have used.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn processor_time(&self) -> Result<Duration> {
        self.each.iter().map(|host| host.process.processor_time()).sum()
    }
}

fn calls(host: &Host, requests: impl FnOnce(&Host) -> Vec<Vec<u8>>) -> Calls {
    Calls { address: host.address, requests: requests(host) }
}

/// Creates a folder with the automations and their endpoints.
fn files(context: &Context) -> Result<Folder> {
    let folder = Folder::usual(&context.root)?;
    for runs in [Runs::Wait, Runs::End] {
        for at in 0..CONNECTIONS {
            let (id, overlap) = (runs.endpoint(at), runs.overlap());
            folder.endpoint(&id, "automation: true")?;
            let automation = format!(
                "---\ntitle: {id}\nsession: {{ provider: echo }}\ntriggers:\n  - {{ id: called, kind: event, \
                 type: webhook, events: [{{ id: call }}], config: {{ endpoint: {id} }} }}\n\
                 _meta: {{ ostler: {{ hourlyCap: 1000000, overlap: {overlap} }} }}\n---\n{}\n",
                runs.message()
            );
            folder.write(&format!("automations/{id}.md"), &automation)?;
        }
    }
    Ok(folder)
}

/// Creates the folder of a host with these options of `@ostler/postgres`.
fn folder(context: &Context, options: Value) -> Result<Folder> {
    let plugins = [
        json!({ "name": "@ostler/postgres", "options": options }),
        json!({ "name": "@ostler/echo" }),
        json!({ "name": "@ostler/webhook" }),
    ];
    Folder::new(&context.root, &plugins)
}

fn options(server: &Postgres, schema: &str) -> Value {
    json!({ "url": server.url(), "schema": schema, "passwordFile": server.password_file(),
        "vaultKeyFile": server.vault_key_file() })
}

/// Creates a schema with a copy of [`files`]; returns its name.
fn schema(context: &Context, server: &Postgres) -> Result<String> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let schema = format!("bench_{}", LAST.fetch_add(1, Ordering::Relaxed));
    let (url, password, key) = (server.url(), server.password_file(), server.vault_key_file());
    let arguments: [&OsStr; 11] = [
        "migrate".as_ref(),
        "--to".as_ref(),
        "postgres".as_ref(),
        "--url".as_ref(),
        url.as_ref(),
        "--schema".as_ref(),
        schema.as_ref(),
        "--password-file".as_ref(),
        password.as_ref(),
        "--vault-key-file".as_ref(),
        key.as_ref(),
    ];
    context.ostler.run(&files(context)?, &arguments).during("ostler migrate")?;
    Ok(schema)
}
