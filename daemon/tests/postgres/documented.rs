//! What the pages about PostgreSQL tell operators to do, done. `.ci/postgres` runs these tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Client, Daemon, Ended, Folder, ended, program, wait_for};
use ostler_testkit::postgres::{PASSWORD, Postgres};
use serde_json::{Value, json};

/// A page of the documentation.
fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap()
}

/// The code of a language in a section of a page.
fn code<'a>(page: &'a str, section: &str, language: &str) -> Vec<&'a str> {
    let begin = page.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let section = &page[begin + 1..];
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```").skip(1).step_by(2);
    let code: Vec<&str> =
        blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect();
    assert!(!code.is_empty(), "{section} has no {language}");
    code
}

/// A computer of an operator: a home without a configuration.
struct Computer(Folder);

impl Computer {
    fn new() -> Self {
        Self(Folder::new(json!({})))
    }

    fn config(&self) -> PathBuf {
        self.0.path().join(".config/ostler")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        let home = self.0.path();
        command.args(arguments).env("HOME", home).env("XDG_STATE_HOME", home.join("state")).current_dir(home);
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        ended(&mut self.command(arguments))
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.out
    }

    fn start(&self) -> Daemon {
        let daemon = self.0.started(self.command(&[]));
        wait_for(|| (self.run(&["status"]).code == Some(0)).then_some(())).expect("the daemon is found");
        daemon
    }

    /// Carries out the commands of a page, but for those that create the user and the database, which exist.
    fn carry_out(&self, script: &str) {
        let lines =
            script.lines().filter(|line| !line.starts_with("createuser") && !line.starts_with("createdb"));
        let script = lines.collect::<Vec<_>>().join("\n").replace("the password", PASSWORD);
        let ended = ended(Command::new("sh").args(["-euc", &script]).env("HOME", self.0.path()));
        assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{script}");
    }

    /// Writes a configuration of a page, with the addresses of this test.
    fn configure(&self, text: &str, server: &Postgres, replaced: &[(&str, &str)]) {
        let mut text = text.replace("postgresql://ostler@db.example.com:5432/ostler", &server.url());
        for (from, to) in replaced {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["port"] = json!(0);
        fs::create_dir_all(self.config()).unwrap();
        fs::write(self.config().join("config.json"), config.to_string()).unwrap();
    }
}

async fn client(daemon: &Daemon, token_file: &Path) -> Client {
    let token = fs::read_to_string(token_file).unwrap();
    let mut client = Client::connect(&format!("{}/?tkn={}", daemon.url, token.trim())).await;
    client.initialize("ada").await;
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_setup_of_one_host_and_of_a_cluster() {
    let (postgres, cluster) = (page("postgres.md"), page("cluster.md"));
    let server = Postgres::start();
    let alone = Computer::new();
    code(&postgres, "Setup", "sh").into_iter().for_each(|script| alone.carry_out(script));
    alone.configure(code(&postgres, "Setup", "json")[0], &server, &[]);
    let daemon = alone.start();
    alone.ok(&["doctor"]);
    assert_eq!(daemon.stop(), Some(0));
    server.psql("ostler", "DROP SCHEMA ostler CASCADE");

    let (first, second) = (Computer::new(), Computer::new());
    for script in code(&postgres, "Setup", "sh").into_iter().chain(code(&cluster, "Setup", "sh")) {
        first.carry_out(script);
    }
    fs::create_dir_all(second.config()).unwrap();
    for copied in ["cluster.token", "connection.token", "vault.key", "database.password"] {
        assert!(cluster.contains(&format!("`{copied}`")), "{copied} is copied");
        fs::copy(first.config().join(copied), second.config().join(copied)).unwrap();
    }
    let shared = tempfile::tempdir().unwrap();
    let shared = shared.path().to_str().unwrap();
    let mut daemons = Vec::new();
    for (computer, id) in [(&first, "host-1"), (&second, "host-2")] {
        let address =
            [("wss://host-1.example.com", "ws://127.0.0.1:0"), ("/srv/repositories", shared), ("host-1", id)];
        computer.configure(code(&cluster, "Setup", "json")[0], &server, &address);
        daemons.push(computer.start());
        computer.ok(&["doctor"]);
    }
    let status: Value = serde_json::from_str(&first.ok(&["cluster", "status", "--json"])).unwrap();
    let hosts: Vec<_> =
        status["hosts"].as_array().unwrap().iter().map(|host| (&host["id"], &host["alive"])).collect();
    assert_eq!(hosts, [(&json!("host-1"), &json!(true)), (&json!("host-2"), &json!(true))], "{status}");
    for daemon in &daemons {
        // The same token at each host.
        client(daemon, &second.config().join("connection.token")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: .ci/postgres"]
async fn the_move_of_a_host_whatever_the_working_directory_is() {
    let postgres = page("postgres.md");
    let server = Postgres::start();
    let computer = Computer::new();
    code(&postgres, "Setup", "sh").into_iter().for_each(|script| computer.carry_out(script));
    computer.configure(
        r#"{ "connectionToken": "t", "plugins": [{ "name": "@ostler/echo" }] }"#,
        &server,
        &[],
    );
    assert_eq!(computer.start().stop(), Some(0), "it has a state database");
    let script = code(&postgres, "Move a host", "sh")[0].replace("\\\n", " ");
    let line = script.lines().find(|line| line.starts_with("ostler migrate")).unwrap();
    let line = line.replace("postgresql://ostler@db.example.com/ostler", &server.url());
    let arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert!(arguments.contains(&"vault.key"), "{arguments:?}");
    let mut command = computer.command(&arguments);
    let moved = ended(command.current_dir("/"));
    assert_eq!(moved.code, Some(0), "{moved:?}");
    let daemon = computer.start();
    let stored = daemon.block.iter().any(|line| line.contains("automations from plugin postgres"));
    assert!(stored, "{:?}", daemon.block);
}
