//! Dev containers of the real command line, `@devcontainers/cli`, which `OSTLER_TEST_DEVCONTAINER` names. `.ci/run` installs
//! it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Client, Daemon, Folder};
use crate::{
    RUNNER, client, connect, create, delete, folder, greet, names, podman, read, runtime, say, until, write,
};

/// A folder whose `work` has a dev container, with the files that it needs.
fn described(configuration: &Value, files: &[(&str, &str)]) -> Folder {
    let (socket, image) = podman();
    let folder = folder(&socket, &image, json!({}));
    // The command line has no read-only mounts.
    folder.write(
        "runner.mjs",
        &RUNNER.replace("rules: { source: options.rules, target: '/etc/deep/rules' },", ""),
    );
    let program = std::env::var("OSTLER_TEST_DEVCONTAINER")
        .expect("OSTLER_TEST_DEVCONTAINER names the program devcontainer of @devcontainers/cli");
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["plugins"][1]["options"]["devcontainer"] =
        json!({ "program": program, "plugins": [{ "name": "@ostler/echo" }] });
    fs::write(&path, config.to_string()).unwrap();
    folder.write("work/.devcontainer/devcontainer.json", &configuration.to_string().replace("IMAGE", &image));
    for (name, text) in files {
        folder.write(&format!("work/.devcontainer/{name}"), &text.replace("IMAGE", &image));
    }
    folder
}

/// Starts a daemon whose command line asks no server for its list of features.
fn start(folder: &Folder) -> Daemon {
    let user = std::process::Command::new("id").arg("-un").output().unwrap().stdout;
    let user = String::from_utf8(user).unwrap();
    let known = format!("tmp/devcontainercli-{}/control-manifest.json", user.trim());
    folder.write(&known, r#"{ "disallowedFeatures": [], "featureAdvisories": [] }"#);
    let mut command = folder.command(&[]);
    command.env("TMPDIR", folder.path().join("tmp"));
    folder.started(command)
}

fn work(folder: &Folder) -> String {
    folder.path().join("work").display().to_string()
}

/// The user of the daemon is not the one of Podman, so anyone can write what a container writes.
fn writable(path: &Path) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
}

fn volumes(of: &str) -> usize {
    runtime(&podman().0, "GET", "/v1.41/volumes").matches(of).count()
}

async fn stopped(one: &mut Client, id: &str) {
    write(one, &format!("computer://{id}/state"), "stopped").await.unwrap();
}

#[tokio::test]
#[ignore = "needs Podman and the dev-container command line: .ci/podman"]
async fn a_session_runs_in_the_dev_container_of_a_dockerfile_with_a_feature() {
    let data = tempfile::tempdir().unwrap();
    fs::set_permissions(data.path(), Permissions::from_mode(0o777)).unwrap();
    let mount = format!("source={},target=/data,type=bind", data.path().display());
    let folder = described(
        &json!({
            "name": "Barn", "build": { "dockerfile": "Dockerfile" }, "features": { "./hello": { "greeting": "hey" } },
            "mounts": [mount, { "source": "barn-${devcontainerId}", "target": "/volume", "type": "volume" }],
            "containerEnv": { "INSIDE": "1" },
            "remoteEnv": { "PATH": "${containerEnv:PATH}:/data", "WHERE": "${containerWorkspaceFolder}", "NONE": null },
            "remoteUser": "dev",
            "postCreateCommand": { "built": "cat /built > /data/built.txt", "said": ["sh", "-c", "hello > /data/said.txt"] },
        }),
        &[
            ("Dockerfile", "FROM IMAGE\nRUN echo built > /built\n"),
            (
                "hello/devcontainer-feature.json",
                r#"{ "id": "hello", "version": "1.0.0", "name": "Hello", "options": { "greeting": { "type": "string", "default": "hi" } } }"#,
            ),
            (
                "hello/install.sh",
                "#!/bin/sh\nset -e\nprintf '#!/bin/sh\\necho %s\\n' \"$GREETING\" > /bin/hello\nchmod +x /bin/hello\n",
            ),
        ],
    );
    let daemon = start(&folder);
    let mut one = client(&daemon).await;
    create(&mut one, &folder, "runner:/1", &format!("devcontainer://{}", work(&folder))).await.unwrap();
    assert_eq!(fs::read_to_string(data.path().join("built.txt")).unwrap(), "built\n");
    assert_eq!(fs::read_to_string(data.path().join("said.txt")).unwrap(), "hey\n");
    let line = "hello; id -un; pwd; cat here.txt; echo $TOKEN $INSIDE $WHERE ${PATH##*:} ${NONE-unset}; \
                echo made > made.txt; ls -d /volume; cat /var/lib/runner/seed.txt; \
                echo changed > /var/lib/runner/seed.txt; /opt/ostler/tool/bin/tool x";
    assert_eq!(
        say(&mut one, "runner:/1", "t1", line).await,
        "hey\ndev\n/workspaces/work\nhere\ns3cr3t 1 /workspaces/work /data unset\n/volume\nseeded\npart x\n"
    );
    assert_eq!(fs::read_to_string(folder.path().join("work/made.txt")).unwrap(), "made\n");
    let machines = names(&mut one, "computer://").await;
    let [id] = &machines[..] else { panic!("{machines:?}") };
    assert_eq!(volumes(&format!("-{id}\"")), 1, "a dev container has parts of its own");

    // After a crash, a stopped dev container is started by the next process, which runs as before.
    stopped(&mut one, id).await;
    daemon.kill();
    let daemon = start(&folder);
    let mut one = client(&daemon).await;
    assert_eq!(say(&mut one, "runner:/1", "t2", "id -un; echo $WHERE").await, "dev\n/workspaces/work\n");

    // A session that ended while the daemon did not run leaves nothing.
    daemon.kill();
    let state = folder.state_file("state.db");
    for file in [state.clone(), state.with_extension("db-wal"), state.with_extension("db-shm")] {
        let _ = fs::remove_file(file);
    }
    let _daemon = start(&folder);
    until("a volume is left", || volumes(&format!("-{id}\"")) == 0);
}

#[tokio::test]
#[ignore = "needs Podman and the dev-container command line: .ci/podman"]
async fn a_dev_container_of_an_image_is_a_resource() {
    let folder =
        described(&json!({ "image": "IMAGE", "postStartCommand": "echo started; [ ! -e /broken ]" }), &[]);
    let daemon = start(&folder);
    let mut one = client(&daemon).await;
    let manifest = json!({ "devcontainer": { "folder": work(&folder) } }).to_string();
    write(&mut one, "computer://barn", &manifest).await.unwrap();
    let taken = write(&mut one, "computer://barn", &manifest).await.unwrap_err();
    assert_eq!(taken["code"], -32010, "{taken}");
    let status = read(&mut one, "computer://barn/status").await.unwrap();
    let status: Value = serde_json::from_str(status["data"].as_str().unwrap()).unwrap();
    assert_eq!((&status["devcontainer"], &status["running"]), (&json!(work(&folder)), &json!(true)));
    write(&mut one, "computer://barn/files/root/a.txt", "hay\n").await.unwrap();
    create(&mut one, &folder, "runner:/1", "computer://barn").await.unwrap();
    assert_eq!(say(&mut one, "runner:/1", "t1", "pwd; cat /root/a.txt").await, "/workspaces/work\nhay\n");

    // A client's container of the same folder is another one, which remains if it cannot be started.
    let made = connect(&mut one, &folder.path().join("work")).await.unwrap();
    assert_eq!(made["remoteWorkspaceFolder"], "/workspaces/work");
    assert_eq!(greet(&mut one).await["result"]["protocolVersion"], "1.0.0");
    let machines = names(&mut one, "computer://").await;
    let clients = machines.iter().find(|id| *id != "barn").unwrap();
    assert_eq!(machines.len(), 2, "{machines:?}");
    write(&mut one, &format!("computer://{clients}/files/broken"), "").await.unwrap();
    one.request("x-ostler/containers/stop", json!({ "address": made["address"] })).await.unwrap();
    let failed = connect(&mut one, &folder.path().join("work")).await.unwrap_err();
    let why = failed["message"].as_str().unwrap();
    let says = "postStartCommand from devcontainer.json failed: Command failed: /bin/sh -c echo started; [ ! -e /broken ]: ";
    assert!(why.contains(says) && why.ends_with("; started"), "{failed}");
    assert_eq!(names(&mut one, "computer://").await, machines);

    one.request("x-ostler/containers/remove", json!({ "address": made["address"] })).await.unwrap();
    delete(&mut one, "computer://barn").await.unwrap();
    assert_eq!(names(&mut one, "computer://").await, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs Podman and the dev-container command line: .ci/podman"]
async fn a_dev_container_ends_with_its_session_and_a_failed_one_leaves_nothing() {
    let folder = described(
        &json!({ "image": "IMAGE", "postCreateCommand": "[ ! -e broken ] || { echo oops >&2; exit 7; }" }),
        &[],
    );
    let daemon = start(&folder);
    let mut one = client(&daemon).await;
    let computer = format!("devcontainer://{}", work(&folder));
    create(&mut one, &folder, "runner:/1", &computer).await.unwrap();
    let elsewhere = folder.path().join("elsewhere");
    writable(&elsewhere);
    let params = json!({ "channel": "runner:/2", "provider": "runner", "config": { "computer": computer },
        "workingDirectories": [format!("file://{}", elsewhere.display())] });
    one.request("createSession", params).await.unwrap();
    assert_eq!(
        say(&mut one, "runner:/2", "t1", "pwd").await,
        "/workspaces/work\n",
        "its directory is not mounted"
    );
    assert_eq!(names(&mut one, "computer://").await.len(), 2);
    folder.write("work/broken", "");
    let failed = create(&mut one, &folder, "runner:/3", &computer).await.unwrap_err();
    let why = failed["message"].as_str().unwrap();
    assert!(
        why.contains("postCreateCommand from devcontainer.json failed") && why.contains("oops"),
        "{failed}"
    );
    for session in ["runner:/1", "runner:/2"] {
        one.request("disposeSession", json!({ "channel": session })).await.unwrap();
    }
    let socket = podman().0;
    let of = work(&folder);
    until("a container is left", || {
        !runtime(&socket, "GET", "/v1.41/containers/json?all=true").contains(&of)
    });
}
