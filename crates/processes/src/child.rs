//! The environment of children. One function makes the command of each process that the program starts, and a table says
//! what each kind of child inherits. Variables that a caller sets on the command itself always pass.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

/// The kinds of children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildKind {
    /// An agent, and the programs that it starts, such as stdio MCP servers.
    Agent,
    /// A terminal of a user or an agent.
    Terminal,
    /// Git for reads: without hooks, locks and transports.
    Git,
    /// Git with the hooks, filters and signing programs of a repository.
    Hook,
    /// A program that does one task for the host, such as `npm`, `gh` or `docker`.
    Helper,
    /// A JavaScript plugin and what it starts: this is its `process.env`.
    Plugin,
    /// The host itself, as a daemon or a supervisor, and the program of a supervisor, whose environment the daemon selected.
    Host,
}

/// All kinds, for tests.
#[cfg(test)]
const CHILDREN: &[ChildKind] = &[
    ChildKind::Agent,
    ChildKind::Terminal,
    ChildKind::Git,
    ChildKind::Hook,
    ChildKind::Helper,
    ChildKind::Plugin,
    ChildKind::Host,
];

/// What a kind of child inherits.
enum Inherits {
    /// The whole environment.
    Everything,
    /// Everything but [`OF_THE_START`].
    MostOfIt,
    /// Nothing but [`FOR_GIT`] and [`GIT_OF_THE_OPERATOR`].
    ListedForGit,
}

/// Variables about the start of the host, which mislead other programs: a name, or a prefix with `*`.
const OF_THE_START: &[&str] = &[
    // Of the host: its tokens, its settings and the session that it was started in.
    "OSTLER_*",
    // Of git, for the hooks and aliases that it runs: the repository, its index, and the author of a commit.
    "GIT_*",
    // Of the service manager, about the service and its sockets.
    "NOTIFY_SOCKET",
    "WATCHDOG_*",
    "MAINPID",
    "MANAGERPID*",
    "LISTEN_*",
    "JOURNAL_STREAM",
    "INVOCATION_ID",
    "SYSTEMD_EXEC_PID",
    "FDSTORE",
    "MEMORY_PRESSURE_*",
    "DEBUG_INVOCATION",
    "SERVICE_RESULT",
    "EXIT_CODE",
    "EXIT_STATUS",
    "MONITOR_SERVICE_RESULT",
    "MONITOR_EXIT_CODE",
    "MONITOR_EXIT_STATUS",
    "MONITOR_INVOCATION_ID",
    "MONITOR_UNIT",
    "TRIGGER_UNIT",
    "TRIGGER_PATH",
    "TRIGGER_TIMER_REALTIME_USEC",
    "TRIGGER_TIMER_MONOTONIC_USEC",
    "PIDFILE",
    "RUNTIME_DIRECTORY",
    "STATE_DIRECTORY",
    "CACHE_DIRECTORY",
    "LOGS_DIRECTORY",
    "CONFIGURATION_DIRECTORY",
    "CREDENTIALS_DIRECTORY",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    // Of Node, npm and the editor that started the host.
    "NODE_OPTIONS",
    "NODE_CHANNEL_*",
    "NODE_UNIQUE_ID",
    "npm_lifecycle_*",
    "npm_package_*",
    "npm_command",
    "npm_execpath",
    "npm_node_execpath",
    "INIT_CWD",
    "ELECTRON_*",
    "VSCODE_*",
];

/// Settings of git that an operator makes for all repositories, which every child inherits. Git sets none of them for
/// its hooks.
const GIT_OF_THE_OPERATOR: &[&str] = &[
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_KEY_*",
    "GIT_CONFIG_VALUE_*",
    "GIT_ATTR_NOSYSTEM",
    "GIT_SSL_*",
    "GIT_PROXY_*",
    "GIT_HTTP_*",
    "GIT_ALLOW_PROTOCOL",
    "GIT_PROTOCOL_FROM_USER",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_LFS_*",
    // Makes git treat every repository as that of another user, which only refuses more.
    "GIT_TEST_ASSUME_DIFFERENT_OWNER",
];

/// What git and the helpers of the user's configuration need.
const FOR_GIT: &[&str] = &[
    // The user and the system.
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "EMAIL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "XDG_*",
    "LD_LIBRARY_PATH",
    "DYLD_*",
    "NIX_*",
    // Keys, signatures and credential helpers.
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GNUPGHOME",
    "GPG_*",
    "DBUS_SESSION_BUS_ADDRESS",
    "KRB5*",
    "GCM_*",
    "GH_*",
    "GITHUB_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
    "GITLAB_*",
    "GLAB_*",
    "AWS_*",
    // Proxies.
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "ftp_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "FTP_PROXY",
    // Certificates.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "CURL_HOME",
];

/// Returns what a kind of child inherits: a new kind needs a row.
fn inherits(child: ChildKind) -> Inherits {
    match child {
        ChildKind::Agent | ChildKind::Terminal | ChildKind::Hook | ChildKind::Helper | ChildKind::Plugin => {
            Inherits::MostOfIt
        }
        ChildKind::Git => Inherits::ListedForGit,
        ChildKind::Host => Inherits::Everything,
    }
}

/// What a kind of child is given in place of what it would inherit.
fn given(child: ChildKind) -> &'static [(&'static str, &'static str)] {
    match child {
        // A read takes no locks and fetches nothing: a repository's configuration can name a program as its remote. Older
        // versions of git know only the list of allowed protocols, which is empty.
        ChildKind::Git => &[
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", ""),
            ("GIT_TERMINAL_PROMPT", "0"),
        ],
        _ => &[],
    }
}

fn is_listed(name: &OsStr, list: &[&str]) -> bool {
    let name = name.as_bytes();
    list.iter().any(|listed| match listed.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == listed.as_bytes(),
    })
}

impl ChildKind {
    /// Returns whether it inherits a variable.
    pub fn inherits(self, name: &OsStr) -> bool {
        let of_the_operator = || is_listed(name, GIT_OF_THE_OPERATOR);
        match inherits(self) {
            Inherits::Everything => true,
            Inherits::MostOfIt => !is_listed(name, OF_THE_START) || of_the_operator(),
            Inherits::ListedForGit => is_listed(name, FOR_GIT) || of_the_operator(),
        }
    }

    /// Returns the variables of this process that it inherits.
    pub fn environment(self) -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().filter(move |(name, _)| self.inherits(name))
    }

    /// Returns the command of a child. Every process is started with a command from here, which `cargo xtask tidy` checks.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if !matches!(inherits(self), Inherits::Everything) {
            command.env_clear().envs(self.environment()).envs(given(self).iter().copied());
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What git 2.47 sets for the hook of a commit with an author in a linked tree, and systemd for a service.
    const OF_A_HOOK: &[&str] = &[
        "GIT_AUTHOR_DATE",
        "GIT_AUTHOR_EMAIL",
        "GIT_AUTHOR_NAME",
        "GIT_COMMITTER_NAME",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_EDITOR",
        "GIT_EXEC_PATH",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_WORK_TREE",
        "GIT_QUARANTINE_PATH",
        "GIT_REFLOG_ACTION",
        "GIT_EXTERNAL_DIFF",
        "GIT_ASKPASS",
    ];
    const OF_A_SERVICE: &[&str] = &[
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "MAINPID",
        "MANAGERPID",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "JOURNAL_STREAM",
        "INVOCATION_ID",
        "SYSTEMD_EXEC_PID",
        "NODE_OPTIONS",
        "VSCODE_GIT_IPC_HANDLE",
        "OSTLER_TOKEN",
    ];
    const OF_EVERYONE: &[&str] = &[
        "HOME",
        "PATH",
        "SSH_AUTH_SOCK",
        "https_proxy",
        "SSL_CERT_FILE",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_KEY_0",
        "GIT_CONFIG_VALUE_0",
    ];

    #[test]
    fn each_kind_of_child_inherits_what_its_row_says() {
        for child in CHILDREN.iter().copied() {
            let has = |name: &str| child.inherits(OsStr::new(name));
            let is_host = child == ChildKind::Host;
            for name in OF_A_HOOK.iter().chain(OF_A_SERVICE) {
                assert_eq!(has(name), is_host, "{child:?}: {name}");
            }
            for name in OF_EVERYONE {
                assert!(has(name), "{child:?}: {name}");
            }
            // Keys of agents, and any other name.
            for name in ["ANTHROPIC_API_KEY", "GITFLOW", "NOTIFY", "JAVA_HOME"] {
                assert_eq!(has(name), child != ChildKind::Git, "{child:?}: {name}");
            }
        }
    }

    #[test]
    fn what_a_caller_sets_passes() {
        let mut command = ChildKind::Terminal.command("env");
        let out = command.env("GIT_DIR", "/set").output().expect("env is installed");
        let out = String::from_utf8_lossy(&out.stdout);
        assert!(out.lines().any(|line| line == "GIT_DIR=/set"), "{out}");
    }

    #[test]
    fn the_page_has_each_name() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        for name in OF_THE_START.iter().chain(GIT_OF_THE_OPERATOR).chain(FOR_GIT) {
            assert!(page.contains(&format!("`{name}`")), "docs/environment.md lacks {name}");
        }
    }
}
