//! The MCP servers of a session's backend: the configured ones, with the secrets that their `env` and `headers` refer
//! to resolved for that session. Spec: *Daemon configuration keys*, *Secret reference*.

use ostler_contract::read::Read;
use ostler_contract::{JsonObject, Value, VaultName, limit, problem};

use crate::SessionEntry;
use crate::Sessions;

/// The fields whose values are credentials.
const CREDENTIALS: [&str; 2] = ["env", "headers"];

impl Sessions {
    /// Returns the MCP servers of a session, by name, or `None` if there are none. A server that refers to a secret
    /// that is unavailable to the session is skipped and logged.
    pub async fn mcp_servers_for(&self, entry: &SessionEntry) -> Option<JsonObject> {
        let mut servers = JsonObject::new();
        for (name, server) in self.core.mcp_servers()? {
            match self.with_secrets(entry, server).await {
                Ok(server) => drop(servers.insert(name, server)),
                Err((at, why)) => {
                    self.core.log.warn(format_args!("{}: skipped mcpServers.{name}: {at} {why}", entry.uri));
                }
            }
        }
        (!servers.is_empty()).then_some(servers)
    }

    /// Returns a server with its secret references resolved, or the place of the failing reference and the reason.
    async fn with_secrets(&self, entry: &SessionEntry, mut server: Value) -> Result<Value, (String, String)> {
        for member in CREDENTIALS {
            let Some(fields) = server.get_mut(member).and_then(Value::as_object_mut) else { continue };
            for (key, value) in fields {
                let Some(reference) = value.as_object().and_then(|value| value.get("$secret")) else {
                    continue;
                };
                let name = reference.as_str().unwrap_or_default();
                let secret = self.session_secret(entry, name).await;
                *value = secret.map_err(|why| (format!("{member}.{key}"), why))?.into();
            }
        }
        Ok(server)
    }

    /// Reads a secret for a session.
    async fn session_secret(&self, entry: &SessionEntry, name: &str) -> Result<String, String> {
        let parsed = VaultName::parse(name).map_err(|wrong| format!("is not a secret reference: {wrong}"))?;
        let names = |why: String| format!("names {parsed}: {why}");
        match &parsed {
            VaultName::Host(_) => {}
            VaultName::Team { team, .. } if self.charged_to(entry).team.as_ref() == Some(team) => {}
            VaultName::User { id, .. } if entry.owner == Some(format!("user:{id}")) => {}
            VaultName::Team { team, .. } => {
                return Err(names(format!("it is for sessions of team {team}")));
            }
            VaultName::User { id, .. } => {
                return Err(names(format!("it is for sessions of user {id}")));
            }
        }
        let vault = self.core.vault().ok_or_else(|| names(problem::no_vault(name)))?;
        match vault.get.read(limit::STORE, (name.to_owned(),)).await {
            Read::Known(Some(secret)) => Ok(secret),
            Read::Known(None) => Err(names(problem::no_secret(name))),
            Read::Unknown(why) => Err(names(why.to_string())),
        }
    }
}
