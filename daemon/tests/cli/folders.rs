//! Where a daemon finds what users write, and where it puts what it writes itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Client, Daemon, Folder, ended, program, wait_for};
use serde_json::{Value, json};

/// A home with a user's own configuration in `.config/ostler`.
struct Home(Folder);

impl Home {
    fn new() -> Self {
        let folder = Folder::new(json!({}));
        let served = folder.path().to_owned();
        let config = json!({ "port": 0, "paths": [served], "plugins": [{ "name": "@ostler/echo" }] });
        folder.write(".config/ostler/config.json", &config.to_string());
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// The program with this home and nothing else of an environment that says where anything is.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command
            .args(arguments)
            .env_remove("XDG_STATE_HOME")
            .env("HOME", self.0.path())
            .current_dir(self.0.path());
        command
    }

    /// As [`Home::command`], with a state home of its own.
    fn with_state(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("XDG_STATE_HOME", self.path("xdg"));
        command
    }

    /// As [`Home::command`], where nothing says where the state is: it is beside the configuration, as it was in
    /// earlier versions.
    fn earlier(&self) -> Command {
        let mut command = self.command(&[]);
        command.env_remove("HOME").env("XDG_CONFIG_HOME", self.path(".config"));
        command
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

/// Says something in a session of the echo backend, and hears it.
async fn talk(daemon: &Daemon, session: &str) {
    let mut client = daemon.initialized("talker").await;
    client.request("createSession", json!({ "channel": session, "provider": "echo" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat(session);
    client.subscribe(&chat).await;
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "well met" } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnComplete").await;
}

async fn turns(client: &mut Client, session: &str) -> Value {
    client.subscribe(&ostler_protocol::uri::default_chat(session)).await["turns"].clone()
}

#[tokio::test]
async fn what_the_host_writes_is_under_the_state_home_and_what_users_write_beside_the_configuration() {
    let home = Home::new();
    let started = ended(&mut home.command(&["start"]));
    assert_eq!(started.code, Some(0), "{started:?}");
    let state = home.path(".local/state/ostler");
    assert!(started.out.contains(", serving "), "{}", started.out);
    let status = ended(&mut home.command(&["status"])).out;
    assert!(
        status.contains(&format!("\nserving {}\n", home.0.path().canonicalize().unwrap().display())),
        "{status}"
    );
    assert!(status.contains(&format!("\nstate in {}\n", state.display())), "{status}");
    assert_eq!(ended(&mut home.command(&["stop"])).code, Some(0));
    for file in ["state.db", "daemon.log"] {
        assert!(state.join(file).is_file(), "{:?}", names(&state));
    }
    assert_eq!(names(&home.path(".config/ostler")), ["config.json", "daemon.lock"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join("state.db"))), (0o700, 0o600));
    }

    // A state home of its own; what is in it is served to no client, though it lies below a directory that is.
    let daemon = home.0.started(home.with_state(&[]));
    talk(&daemon, "echo:/s").await;
    let record = home.path("xdg/ostler/daemon.json");
    wait_for(|| record.is_file().then_some(())).expect("it is found");
    let mut client = daemon.initialized("reader").await;
    for file in ["daemon.json", "state.db"] {
        let uri = format!("file://{}", home.path("xdg/ostler").join(file).display());
        let refused = client.request("resourceRead", json!({ "uri": uri })).await.unwrap_err();
        assert_eq!(refused["code"], -32009, "{file}: {refused}");
    }
    // Whatever the environment of the command, it finds the daemon of the configuration.
    let status: Value = serde_json::from_str(&ended(&mut home.command(&["status", "--json"])).out).unwrap();
    assert_eq!(status["state"], json!(home.path("xdg/ostler")));
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn a_state_beside_the_configuration_is_moved_once_however_its_host_ended() {
    let home = Home::new();
    let config = home.path(".config/ostler");
    let before = home.0.started(home.earlier());
    talk(&before, "echo:/s").await;
    before.kill();
    std::fs::write(config.join("daemon.log"), "an old line\n").unwrap();
    let left = names(&config);
    assert!(left.contains(&"state.db-wal".to_owned()), "{left:?}");

    let daemon = home.0.started(home.with_state(&[]));
    let state = home.path("xdg/ostler");
    let mut client = daemon.initialized("reader").await;
    let kept = turns(&mut client, "echo:/s").await;
    assert_eq!(kept[0]["message"]["text"], "well met", "{kept}");
    home.0.wait_for_log(&format!("moved {} to {}", config.join("state.db").display(), state.display()));
    assert_eq!(names(&config), ["config.json", "daemon.lock"]);
    assert_eq!(std::fs::read_to_string(state.join("daemon.log")).unwrap(), "an old line\n");
    assert_eq!(daemon.stop(), Some(0));

    // Another one beside the configuration is not taken for it.
    std::fs::write(config.join("state.db"), "").unwrap();
    let daemon = home.0.started(home.with_state(&[]));
    let mut client = daemon.initialized("reader").await;
    assert_eq!(turns(&mut client, "echo:/s").await, kept);
    home.0.wait_for_log("state.db is ignored because ");
    assert!(config.join("state.db").is_file());
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn each_configuration_that_is_named_has_a_state_of_its_own() {
    let home = Home::new();
    let mut states = Vec::new();
    for name in ["one", "two"] {
        home.0.write(
            &format!("{name}/config.json"),
            r#"{ "port": 0, "plugins": [{ "name": "@ostler/echo" }] }"#,
        );
        let file = home.path(name).join("config.json");
        let daemon = home.0.started(home.with_state(&["--config-file", file.to_str().unwrap()]));
        wait_for(|| names(&home.path("xdg/ostler")).len().eq(&(states.len() + 1)).then_some(()));
        let state = names(&home.path("xdg/ostler")).into_iter().find(|dir| dir.starts_with(name)).unwrap();
        assert!(home.path("xdg/ostler").join(&state).join("state.db").is_file());
        states.push(daemon);
    }
}

/// A plugin that leaves a file where it ran.
fn trace(file: &Path) -> String {
    format!(
        "import {{ writeFileSync }} from 'node:fs';\nexport function apply() {{ writeFileSync({:?}, 'ran'); }}\n",
        file.display().to_string()
    )
}

#[test]
fn a_relative_plugin_of_the_configuration_is_looked_for_beside_it_alone() {
    let home = Home::new();
    let ran = home.path("ran");
    // A repository that was cloned holds a file of that name.
    home.0.write("cloned/mine.ts", &trace(&ran));
    let config = home.path(".config/ostler/config.json");
    let listed = |file: &Path, plugins: Value| {
        std::fs::write(file, json!({ "port": 0, "plugins": plugins }).to_string()).unwrap();
    };
    listed(&config, json!([{ "name": "@ostler/echo" }, { "name": "./mine.ts" }]));
    let in_the_clone = |arguments: &[&str]| {
        let mut command = home.with_state(arguments);
        command.current_dir(home.path("cloned"));
        command
    };
    let daemon = home.0.started(in_the_clone(&[]));
    assert_eq!(daemon.stop(), Some(0));
    assert!(!ran.exists(), "a file of the working directory ran");
    let list = ended(&mut in_the_clone(&["plugin", "list"]));
    let tried = home.path(".config/ostler/mine.ts");
    let why = format!("Plugin ./mine.ts is not there: tried {}.", tried.display());
    assert!(list.out.contains(&why), "{list:?}");
    assert!(!ran.exists());

    home.0.write(".config/ostler/mine.ts", &trace(&ran));
    let daemon = home.0.started(in_the_clone(&[]));
    assert!(daemon.block.contains(&"plugins echo, mine".to_owned()), "{:?}", daemon.block);
    assert!(ran.exists());
    assert_eq!(daemon.stop(), Some(0));

    // One that a second file lists is looked for beside that file.
    std::fs::remove_file(&ran).unwrap();
    home.0.write("other/theirs.ts", &trace(&ran));
    let other = home.path("other/more.json");
    listed(&other, json!([{ "name": "@ostler/echo" }, { "name": "./theirs.ts" }]));
    let mut command = in_the_clone(&[]);
    command.env("OSTLER_CONFIG", &other);
    let daemon = home.0.started(command);
    assert!(daemon.block.contains(&"plugins echo, theirs".to_owned()), "{:?}", daemon.block);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_relative_plugin_of_the_command_line_is_looked_for_in_the_working_directory_alone() {
    let home = Home::new();
    home.0.write("work/mine.ts", "export function apply() {}\n");
    home.0.write(".config/ostler/beside.ts", "export function apply() {}\n");
    let mut command =
        home.with_state(&["--plugin", "@ostler/echo", "--plugin", "./mine.ts", "--plugin", "./beside.ts"]);
    command.current_dir(home.path("work"));
    let mut daemon = home.0.started(command);
    assert!(daemon.block.contains(&"plugins echo, mine".to_owned()), "{:?}", daemon.block);
    let mut skipped = String::new();
    std::io::BufRead::read_line(&mut daemon.out, &mut skipped).unwrap();
    let tried = home.path("work").canonicalize().unwrap().join("beside.ts");
    assert_eq!(skipped, format!("skipped: Plugin ./beside.ts is not there: tried {}.\n", tried.display()));
    assert_eq!(daemon.stop(), Some(0));
}
