//! What sessions share that work in the same repositories, and what they do not wait for.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use crate::support::{wait_for, wait_within};
use serde_json::json;

use super::git::{Yard, changeset, create, environment, git, names};

/// How many sessions have a turn at the same time.
const SESSIONS: usize = 100;

#[tokio::test]
async fn turns_of_many_sessions_in_a_folder_share_its_snapshots() {
    let yard = Yard::with(
        &[("a.txt", "a\n"), ("b.txt", "b\n")],
        json!([{ "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "@ostler/github" }]),
    );
    yard.write("a.txt", "changed\n");
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    for number in 0..SESSIONS {
        create(&mut client, &format!("s{number}"), &yard.repo, json!({})).await.unwrap();
    }
    for number in 0..SESSIONS {
        let chat = ostler_protocol::uri::default_chat(&format!("echo:/s{number}"));
        let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "message": { "text": "Hello" } });
        client.dispatch(&chat, i64::try_from(number).unwrap() + 1, action).await;
    }
    let recorded = |what: &str| yard.git(&["for-each-ref", "refs/ostler"]).matches(what).count();
    // Each turn waits at most 5 seconds for its snapshot.
    let ended = wait_within(Duration::from_secs(60), || (recorded("/t1/after") == SESSIONS).then_some(()));
    assert!(ended.is_some(), "{} before, {} after", recorded("/t1/before"), recorded("/t1/after"));
    assert_eq!([recorded("/base"), recorded("/missed")], [SESSIONS, 0]);

    // They are removed with their sessions.
    for number in 0..SESSIONS {
        client.request("disposeSession", json!({ "channel": format!("echo:/s{number}") })).await.unwrap();
    }
    assert!(wait_for(|| (recorded("refs/ostler") == 0).then_some(())).is_some(), "{}", recorded("refs/"));
}

#[tokio::test]
async fn a_slow_repository_delays_the_snapshots_of_no_other() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let top = yard.folder.path().canonicalize().unwrap();
    let slow = yard.repo.with_file_name("slow");
    fs::create_dir(&slow).unwrap();
    git(&slow, &["init", "-q", "-b", "main"]);
    fs::write(slow.join("a.txt"), "1\n").unwrap();
    git(&slow, &["add", "."]);
    git(&slow, &["commit", "-qm", "First"]);
    // The user's filter answers until there is a file, and not any more then.
    let filter = top.join("filter");
    let hang = top.join("hang");
    fs::write(&filter, format!("#!/bin/sh\n[ -e {} ] && exec sleep 20\ncat\n", hang.display())).unwrap();
    fs::set_permissions(&filter, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(top.join("gitconfig"), format!("[filter \"slow\"]\n\tclean = {}\n", filter.display())).unwrap();
    fs::write(slow.join(".git/info/attributes"), "* filter=slow\n").unwrap();
    fs::write(slow.join("a.txt"), "2\n").unwrap();

    let mut command = yard.folder.command(&[]);
    environment(&mut command);
    command.env("GIT_CONFIG_GLOBAL", top.join("gitconfig"));
    let daemon = yard.folder.started(command);
    let mut client = daemon.initialized("c").await;
    let sessions = 12;
    for number in 0..sessions {
        create(&mut client, &format!("slow{number}"), &slow, json!({})).await.unwrap();
    }
    create(&mut client, "one", &yard.repo, json!({})).await.unwrap();
    let start = |session: &str, turn: &str| {
        let chat = ostler_protocol::uri::default_chat(&format!("echo:/{session}"));
        (chat, json!({ "type": "chat/turnStarted", "turnId": turn, "message": { "text": "Hello" } }))
    };
    let recorded = |repository: &std::path::Path, name: &str| {
        let found = wait_for(|| {
            (!git(repository, &["for-each-ref", &format!("refs/ostler/{name}")]).is_empty()).then_some(())
        });
        assert!(found.is_some(), "{name}");
    };
    for number in 0..sessions {
        let (chat, action) = start(&format!("slow{number}"), "t1");
        client.dispatch(&chat, number + 1, action).await;
    }
    for number in 0..sessions {
        recorded(&slow, &format!("slow{number}/turns/t1/after"));
    }
    // From now on, the slow repository does not answer: not before turns, and not after them.
    fs::write(&hang, "").unwrap();
    fs::write(slow.join("a.txt"), "3\n").unwrap();
    for number in 0..sessions {
        let (chat, action) = start(&format!("slow{number}"), "t2");
        client.dispatch(&chat, sessions + number + 1, action).await;
    }
    for turn in ["t1", "t2", "t3"] {
        let begun = Instant::now();
        let (chat, action) = start("one", turn);
        client.dispatch(&chat, 100, action).await;
        recorded(&yard.repo, &format!("one/turns/{turn}/after"));
        assert!(begun.elapsed() < Duration::from_secs(4), "{turn}: {:?}", begun.elapsed());
    }
    yard.write("a.txt", "changed\n");
    let begun = Instant::now();
    let state = changeset(&daemon, "echo:/one/changeset/session").await;
    assert_eq!(names(&yard, &state), ["a.txt"], "{state}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    drop(daemon);
}
