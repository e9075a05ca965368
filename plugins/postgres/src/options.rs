//! The plugin's options: the database and its secrets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::{Options, Secret, Thrown, Value, json};
use serde::Deserialize;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::tls::Tls;

/// Environment variable with the password of the database user.
const PASSWORD: &str = "OSTLER_DATABASE_PASSWORD";
/// The same variable of PostgreSQL's programs.
const PGPASSWORD: &str = "PGPASSWORD";
/// Environment variable with the key of the vault.
const VAULT_KEY: &str = "OSTLER_VAULT_KEY";
/// The environment variable for the address of this host, where the options contain none.
const CLUSTER_URL: &str = "OSTLER_CLUSTER_URL";
/// The environment variable for the name of this host, where the options contain none.
const CLUSTER_ID: &str = "OSTLER_CLUSTER_ID";
/// The maximum length of a schema's name, because its notification channel has to fit into a name of PostgreSQL.
const SCHEMA_MAX: usize = 50;
/// The maximum limit of a statement; the host waits 10 seconds for a store.
const STATEMENT_SECONDS: u64 = 8;

/// The options as configured.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    url: String,
    password_file: Option<PathBuf>,
    tls: Option<TlsMode>,
    tls_ca_file: Option<PathBuf>,
    schema: Option<String>,
    pool_size: Option<u64>,
    statement_timeout_seconds: Option<u64>,
    vault_key_file: Option<PathBuf>,
    cluster: Option<WrittenCluster>,
}

/// The option `cluster` as configured.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenCluster {
    url: Option<String>,
    token_file: PathBuf,
    id: Option<String>,
    shared_paths: Option<Vec<PathBuf>>,
}

/// Whether a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TlsMode {
    Disable,
    VerifyFull,
}

/// Everything needed to connect.
pub struct Settings {
    /// The server, the user, the password and the database.
    pub config: Config,
    /// How connections are encrypted.
    pub tls: Tls,
    /// The schema with the tables.
    pub schema: String,
    /// The number of connections that read.
    pub pool_size: usize,
    /// How long a statement may take.
    pub statement_timeout: Duration,
    pub vault_key: Secret<[u8; 32]>,
    /// How the host takes part in a cluster, if it does.
    pub cluster: Option<ClusterSettings>,
}

/// How a host takes part in a cluster.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// The address of this host for the others. Port 0 stands for the port on which it listens.
    pub url: String,
    /// The token that the hosts share.
    pub token: Secret<String>,
    /// The name of this host, if it is configured.
    pub id: Option<String>,
    /// Paths under which every host has the same files.
    pub shared_paths: Vec<PathBuf>,
}

/// Returns the schema of the options.
pub fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["url"],
        "properties": {
            "url": {
                "type": "string",
                "description": "Database: postgresql://user@host:5432/database, without a password"
            },
            "passwordFile": {
                "type": "string",
                "description": "File with the password [default: OSTLER_DATABASE_PASSWORD or PGPASSWORD in the environment, or none]"
            },
            "tls": {
                "type": "string",
                "enum": ["disable", "verify-full"],
                "description": "Encryption of the connection [default: verify-full, and disable on a Unix socket or a loopback address]"
            },
            "tlsCaFile": {
                "type": "string",
                "description": "Certificates in PEM format that the server's certificate is verified against [default: those of the system]"
            },
            "schema": { "type": "string", "description": "Schema of the tables, created if missing [default: ostler]" },
            "poolSize": {
                "type": "integer", "minimum": 1, "maximum": 64,
                "description": "Connections that read; one that writes and one for the lease come in addition [default: 4]"
            },
            "statementTimeoutSeconds": {
                "type": "integer", "minimum": 1, "maximum": STATEMENT_SECONDS,
                "description": "Maximum time of a statement [default: 8]"
            },
            "watchFiles": {
                "type": "boolean",
                "description": "Whether this host stores edits of automations, endpoints, bots and policies in files of its configuration folder in the database; set it on one host only [default: false]"
            },
            "vaultKeyFile": {
                "type": "string",
                "description": "File with the key that encrypts the vault: 32 bytes as base64 [default: OSTLER_VAULT_KEY in the environment]"
            },
            "cluster": {
                "type": "object",
                "required": ["tokenFile"],
                "description": "Share the schema with other hosts that have this option [default: this host is alone]",
                "properties": {
                    "url": {
                        "type": "string",
                        "description": "Address of this host for the others: ws://host:port or wss://host; port 0 is the port on which it listens [default: OSTLER_CLUSTER_URL in the environment]"
                    },
                    "tokenFile": { "type": "string", "description": "File with the token that all hosts of the cluster share" },
                    "id": {
                        "type": "string",
                        "description": "Name of this host, the same after a restart [default: OSTLER_CLUSTER_ID in the environment, or its host name and configuration folder]"
                    },
                    "sharedPaths": {
                        "type": "array", "items": { "type": "string" },
                        "description": "Folders with the same files on every host; sessions in other folders stay on their host [default: none]"
                    }
                }
            }
        }
    })
}

/// Reads the options, and the secrets that they name. Relative files are in the configuration folder.
///
/// # Errors
/// What is wrong and what to do, without secrets.
pub fn read(
    options: &Options,
    config_dir: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, Thrown> {
    let written: Written = serde_json::from_value(Value::Object((**options).clone()))
        .map_err(|why| Thrown::new(format_args!("options: {why}")))?;
    let mut config: Config = written.url.parse().map_err(|_| {
        // The text is not repeated, because it can contain a password.
        Thrown::new("url: not a database URL; write postgresql://user@host:5432/database")
    })?;
    if config.get_password().is_some() {
        return Err(Thrown::new(format_args!(
            "url: must not contain a password; write it to a file and set passwordFile, or set {PASSWORD}"
        )));
    }
    if config.get_user().is_none() {
        return Err(Thrown::new("url: names no user; write postgresql://user@host:5432/database"));
    }
    if config.get_ssl_mode() != SslMode::Prefer {
        return Err(Thrown::new("url: sslmode is not read; set the option tls"));
    }
    if config.get_options().is_some() {
        return Err(Thrown::new("url: options are not read; set them for the database user with ALTER ROLE"));
    }
    let variable = |name: &str| environment(name).filter(|text| !text.is_empty());
    let password = match &written.password_file {
        Some(file) => Some(secret_file("passwordFile", &config_dir.join(file))?),
        None => variable(PASSWORD).or_else(|| variable(PGPASSWORD)),
    };
    if let Some(password) = password {
        config.password(password);
    }
    let mode = written.tls.unwrap_or(if is_local(&config) { TlsMode::Disable } else { TlsMode::VerifyFull });
    let tls = match mode {
        TlsMode::Disable => {
            config.ssl_mode(SslMode::Disable);
            Tls::disabled()
        }
        TlsMode::VerifyFull => {
            config.ssl_mode(SslMode::Require);
            Tls::verified(written.tls_ca_file.map(|file| config_dir.join(file)).as_deref())?
        }
    };
    let schema = written.schema.unwrap_or_else(|| "ostler".to_owned());
    let is_name = schema.len() <= SCHEMA_MAX
        && schema.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && schema.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_')
        && !schema.starts_with("pg_");
    if !is_name {
        return Err(Thrown::new(format_args!(
            "schema: {schema:?} is not lowercase letters, digits and underscores, at most {SCHEMA_MAX}"
        )));
    }
    let vault_key = match &written.vault_key_file {
        Some(file) => secret_file("vaultKeyFile", &config_dir.join(file))?,
        None => variable(VAULT_KEY).ok_or_else(|| {
            Thrown::new(format_args!(
                "vaultKeyFile: missing; create a key with `head -c 32 /dev/urandom | base64 > vault.key`, keep a copy of it \
                 elsewhere, and set vaultKeyFile or {VAULT_KEY}"
            ))
        })?,
    };
    let cluster =
        written.cluster.map(|cluster| cluster_settings(cluster, config_dir, &variable)).transpose()?;
    let timeout = Duration::from_secs(written.statement_timeout_seconds.unwrap_or(STATEMENT_SECONDS));
    config
        .connect_timeout(Duration::from_secs(3))
        .tcp_user_timeout(Duration::from_secs(5))
        .keepalives_idle(Duration::from_secs(10))
        .application_name("ostler");
    Ok(Settings {
        config,
        tls,
        schema,
        pool_size: written.pool_size.and_then(|size| usize::try_from(size).ok()).unwrap_or(4),
        statement_timeout: timeout,
        vault_key: Secret::new(key(&vault_key)?),
        cluster,
    })
}

fn cluster_settings(
    written: WrittenCluster,
    config_dir: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ClusterSettings, Thrown> {
    let WrittenCluster { url, token_file, id, shared_paths } = written;
    let url = url.or_else(|| variable(CLUSTER_URL)).ok_or_else(|| {
        Thrown::new(format_args!(
            "cluster.url: missing; set it, or {CLUSTER_URL}, to the address of this host for the others, such as ws://host:port"
        ))
    })?;
    let id = id.or_else(|| variable(CLUSTER_ID));
    let rest = url.strip_prefix("ws://").or_else(|| url.strip_prefix("wss://"));
    // An address with credentials is not repeated.
    if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['@', '?', '#'])) {
        return Err(Thrown::new(
            "cluster.url: not an address for the other hosts; write ws://host:port or wss://host, without credentials",
        ));
    }
    if id.as_ref().is_some_and(|id| id.is_empty() || id.len() > 200 || id.contains(char::is_control)) {
        return Err(Thrown::new("cluster.id: must have 1 to 200 characters and no control characters"));
    }
    let shared_paths = shared_paths.unwrap_or_default();
    if let Some(relative) = shared_paths.iter().find(|path| !path.is_absolute()) {
        return Err(Thrown::new(format_args!(
            "cluster.sharedPaths: {} is relative; write an absolute path",
            relative.display()
        )));
    }
    let token = Secret::new(secret_file("cluster.tokenFile", &config_dir.join(token_file))?);
    Ok(ClusterSettings { url, token, id, shared_paths })
}

/// Whether every address of the server is on this computer.
fn is_local(config: &Config) -> bool {
    let named = config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    });
    named && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

/// Reads a secret from a file. One end of line after it is not part of it.
fn secret_file(option: &str, file: &Path) -> Result<String, Thrown> {
    let text = std::fs::read_to_string(file)
        .map_err(|why| Thrown::new(format_args!("{option}: {} cannot be read: {why}", file.display())))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(Thrown::new(format_args!("{option}: {} is empty", file.display())));
    }
    Ok(text.to_owned())
}

/// Reads the key of the vault: 32 bytes as base64.
fn key(text: &str) -> Result<[u8; 32], Thrown> {
    STANDARD
        .decode(text.trim())
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| Thrown::new("the key of the vault is not 32 bytes as base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn with(options: Value) -> Result<Settings, String> {
        let options = Options::from(options.as_object().cloned().unwrap_or_default());
        let environment = |name: &str| match name {
            VAULT_KEY => Some(KEY.to_owned()),
            PGPASSWORD => Some("from-pg".to_owned()),
            _ => None,
        };
        read(&options, Path::new("/nowhere"), &environment).map_err(|why| why.message)
    }

    #[test]
    fn reads_defaults() {
        let settings =
            with(json!({ "url": "postgresql://ada@localhost/inn" })).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(settings.schema, "ostler");
        assert_eq!(settings.pool_size, 4);
        assert_eq!(settings.config.get_password(), Some(&b"from-pg"[..]));
        assert_eq!(settings.config.get_ssl_mode(), SslMode::Disable);
        assert_eq!(settings.vault_key.reveal()[..3], [0, 1, 2]);
    }

    #[test]
    fn verifies_servers_on_other_computers() {
        let settings = with(json!({ "url": "postgresql://ada@db.example/inn" }));
        assert!(settings.is_ok_and(|settings| settings.config.get_ssl_mode() == SslMode::Require));
    }

    #[test]
    fn reads_the_address_and_the_name_of_a_host_from_its_environment() {
        let folder = tempfile::tempdir().unwrap_or_else(|why| panic!("{why}"));
        let token = folder.path().join("token");
        std::fs::write(&token, "of-the-cluster\n").unwrap_or_else(|why| panic!("{why}"));
        let read = |cluster: Value, environment: &dyn Fn(&str) -> Option<String>| {
            let options = json!({ "url": "postgresql://ada@localhost/inn", "cluster": cluster });
            let options = Options::from(options.as_object().cloned().unwrap_or_default());
            let settings = super::read(&options, folder.path(), environment);
            let settings = settings.unwrap_or_else(|why| panic!("{}", why.message));
            settings.cluster.map(|cluster| (cluster.url, cluster.id))
        };
        let own = |name: &str| match name {
            VAULT_KEY => Some(KEY.to_owned()),
            CLUSTER_URL => Some("ws://inn-2:9187".to_owned()),
            CLUSTER_ID => Some("inn-2".to_owned()),
            _ => None,
        };
        let of = |url: &str, id: Option<&str>| Some((url.to_owned(), id.map(str::to_owned)));
        assert_eq!(read(json!({ "tokenFile": "token" }), &own), of("ws://inn-2:9187", Some("inn-2")));
        let written = json!({ "tokenFile": "token", "url": "ws://written:1", "id": "written" });
        assert_eq!(read(written, &own), of("ws://written:1", Some("written")));
        let empty =
            |name: &str| own(name).map(|value| if name == CLUSTER_ID { String::new() } else { value });
        assert_eq!(read(json!({ "tokenFile": "token" }), &empty), of("ws://inn-2:9187", None));
    }

    #[test]
    fn refuses_what_is_wrong_without_repeating_secrets() {
        for (options, why) in [
            (json!({ "url": "postgresql://ada:hunter2@localhost/inn" }), "must not contain a password"),
            (json!({ "url": "hunter2:// hunter2" }), "not a database URL"),
            (json!({ "url": "postgresql://localhost/inn" }), "names no user"),
            (json!({ "url": "postgresql://ada@localhost/inn?sslmode=require" }), "set the option tls"),
            (
                json!({ "url": "postgresql://ada@localhost/inn", "schema": "Inn; DROP" }),
                "is not lowercase letters",
            ),
            (
                json!({ "url": "postgresql://ada@localhost/inn", "cluster": {
                    "url": "ws://me:hunter2@inn:9187", "tokenFile": "token" } }),
                "cluster.url: not an address",
            ),
            (
                json!({ "url": "postgresql://ada@localhost/inn", "cluster": { "tokenFile": "token" } }),
                "cluster.url: missing; set it, or OSTLER_CLUSTER_URL",
            ),
            (
                json!({ "url": "postgresql://ada@localhost/inn", "cluster": {
                    "url": "ws://inn:9187", "tokenFile": "missing" } }),
                "cluster.tokenFile: /nowhere/missing cannot be read",
            ),
            (
                json!({ "url": "postgresql://ada@localhost/inn", "cluster": {
                    "url": "ws://inn:9187", "tokenFile": "token", "sharedPaths": ["repos"] } }),
                "repos is relative",
            ),
            (
                json!({ "url": "postgresql://ada@localhost/inn", "passwordFile": "missing" }),
                "/nowhere/missing cannot be read",
            ),
        ] {
            let refused = with(options.clone()).err().unwrap_or_default();
            assert!(refused.contains(why) && !refused.contains("hunter2"), "{options}: {refused}");
        }
    }
}
