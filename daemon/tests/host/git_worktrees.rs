//! The places of the working trees of sessions, and settings of a repository that move or break them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::disk::Disk;
use crate::support::{Client, Daemon};
use serde_json::{Value, json};

use super::git::{UNCOMMITTED, Yard, create, git, operate};

fn repository(path: &Path) {
    fs::create_dir_all(path).unwrap();
    git(path, &["init", "-q", "-b", "main"]);
    fs::write(path.join("a.txt"), "a\n").unwrap();
    git(path, &["add", "."]);
    git(path, &["commit", "-qm", "First"]);
}

fn add_submodule(superproject: &Path, from: &Path, name: &str) -> PathBuf {
    let from = from.to_str().unwrap();
    git(superproject, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", from, name]);
    git(superproject, &["commit", "-qm", "Submodule"]);
    superproject.join(name)
}

/// The folder with all repositories of a test, which is served.
fn ground(yard: &Yard) -> PathBuf {
    yard.repo.parent().unwrap().to_owned()
}

async fn started(yard: &Yard) -> (Daemon, Client) {
    let daemon = yard.start();
    let client = daemon.initialized("c").await;
    (daemon, client)
}

fn isolated() -> Value {
    json!({ "isolation": "worktree" })
}

/// All paths below a folder, without the contents of git's folders.
fn listed(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("objects") && !path.ends_with("logs") {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn the_tree_of_a_submodule_is_beside_its_outermost_superproject() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let ground = ground(&yard);
    let (inner, lib) = (ground.join("from/inner"), ground.join("from/lib"));
    repository(&inner);
    repository(&lib);
    add_submodule(&lib, &inner, "inner");
    let module = add_submodule(&yard.repo, &lib, "lib");
    yard.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "update",
        "--init",
        "--recursive",
    ]);
    let (_daemon, mut client) = started(&yard).await;
    for (id, directory) in [("one", module.clone()), ("two", module.join("inner"))] {
        let before = listed(&yard.repo.join(".git/modules")).len();
        create(&mut client, id, &directory, isolated()).await.unwrap();
        let tree = ground.join("repo.worktrees").join(id);
        assert_eq!(git(&tree, &["rev-parse", "--show-toplevel"]), tree.to_str().unwrap());
        fs::write(tree.join("new.txt"), "new\n").unwrap();
        git(&tree, &["add", "-A"]);
        assert_eq!(git(&tree, &["status", "--porcelain"]), "A  new.txt");
        git(&tree, &["reset", "-q", "--hard"]);
        let channel = json!({ "channel": format!("echo:/{id}") });
        client.request("disposeSession", channel).await.unwrap();
        assert!(!tree.exists());
        let after = listed(&yard.repo.join(".git/modules")).len();
        // Git leaves the reference logs' and the trees' empty folders.
        assert!(after <= before + 6, "{before} {after}");
        assert_eq!(git(&directory, &["branch", "--list", &format!("*{id}")]), "");
    }
}

#[tokio::test]
async fn a_tree_whose_top_is_elsewhere_is_refused_and_nothing_remains() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let ground = ground(&yard);
    let lib = ground.join("from/lib");
    repository(&lib);
    let module = add_submodule(&yard.repo, &lib, "lib");
    // Git reads core.worktree in each tree now, relative to git's folder of that tree.
    git(&module, &["config", "extensions.worktreeConfig", "true"]);

    // A bare repository with a tree beside it, and settings under which git refuses every tree.
    let wedge = ground.join("wedge");
    fs::create_dir(&wedge).unwrap();
    git(&ground, &["clone", "-q", "--bare", lib.to_str().unwrap(), wedge.join(".bare").to_str().unwrap()]);
    fs::write(wedge.join(".git"), "gitdir: ./.bare\n").unwrap();
    git(&wedge, &["worktree", "add", "-q", "main", "main"]);
    git(&wedge.join(".bare"), &["config", "extensions.worktreeConfig", "true"]);
    git(&wedge.join(".bare"), &["config", "core.bare", "true"]);

    // A repository that names another folder as the top of its trees.
    let moved = ground.join("moved");
    repository(&moved);
    git(&moved, &["config", "extensions.worktreeConfig", "true"]);
    git(&moved, &["config", "core.worktree", moved.to_str().unwrap()]);

    let (_daemon, mut client) = started(&yard).await;
    for (id, directory, said) in [
        ("one", module, "as the top of the new working tree"),
        ("two", wedge.join("main"), "this operation must be run in a work tree"),
        ("three", moved, "as the top of the new working tree"),
    ] {
        let trees = git(&directory, &["worktree", "list", "--porcelain"]);
        let branches = git(&directory, &["for-each-ref", "refs/heads"]);
        let folders = || -> Vec<PathBuf> {
            listed(&ground)
                .into_iter()
                .filter(|path| {
                    path.is_dir() && path.ends_with(id)
                        || path.ends_with("worktrees") && !path.starts_with(&directory)
                })
                .collect()
        };
        let refused = create(&mut client, id, &directory, isolated()).await.unwrap_err();
        assert!(refused["message"].as_str().unwrap().contains(said), "{refused}");
        assert_eq!(git(&directory, &["worktree", "list", "--porcelain"]), trees, "{id}");
        assert_eq!(git(&directory, &["for-each-ref", "refs/heads"]), branches, "{id}");
        assert!(!folders().iter().any(|path| path.ends_with(id)), "{:?}", folders());
        assert!(
            !listed(&ground).iter().any(|path| path.to_string_lossy().ends_with(&format!(".worktrees/{id}")))
        );
    }
    // Nothing was written into git's folder.
    let inside = yard.repo.join(".git/modules/lib");
    assert!(!inside.join("a.txt").exists() && !inside.join(".git").exists());
}

#[tokio::test]
async fn no_tree_is_made_in_a_superproject_or_in_git_s_folder() {
    for (root, said) in [("repo/trees", "the superproject"), ("repo/.git/trees", "git's own folder")] {
        let yard = Yard::new(&[("a.txt", "a\n")]);
        let ground = ground(&yard);
        let lib = ground.join("from/lib");
        repository(&lib);
        let module = add_submodule(&yard.repo, &lib, "lib");
        let config = json!({ "port": 0, "paths": [ground], "plugins": [{ "name": "@ostler/echo" },
            { "name": "@ostler/git", "options": { "worktreesRoot": ground.join(root) } }] });
        yard.folder.write("config.json", &config.to_string());
        let (_daemon, mut client) = started(&yard).await;
        let refused = create(&mut client, "one", &module, isolated()).await.unwrap_err();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(said) && message.contains("worktreesRoot"), "{refused}");
        assert!(!ground.join(root).exists());
    }
}

#[tokio::test]
async fn a_place_that_the_host_cannot_write_is_refused_with_the_setting_that_changes_it() {
    let yard = Yard::new(&[("a.txt", "a\n")]);
    let ground = ground(&yard);
    // A file system that is mounted read-only, as all but some folders are for the service of systemd.
    let sealed = ground.join("sealed");
    let Some(disk) = Disk::try_mount(&sealed, 16) else {
        eprintln!("NOT RUN: a place that the host cannot write (mounting needs root)");
        return;
    };
    let (plain, bare, linked) = (sealed.join("plain"), sealed.join("bare"), sealed.join("linked"));
    repository(&plain);
    repository(&linked);
    git(&linked, &["worktree", "add", "-q", "../linked-tree"]);
    // A bare repository with its trees beside it.
    fs::create_dir(&bare).unwrap();
    git(&sealed, &["clone", "-q", "--bare", "plain", "bare/.bare"]);
    fs::write(bare.join(".git"), "gitdir: ./.bare\n").unwrap();
    git(&bare, &["worktree", "add", "-q", "main", "main"]);
    // A repository of which only the folder can be written.
    let opened = sealed.join("opened");
    fs::create_dir(&opened).unwrap();
    let inner = Disk::mount(&opened, 16);
    repository(&opened);
    // The other way round: the folder of the trees can be written, git's folder cannot.
    let locked = ground.join("locked");
    let git_dir = Disk::mount(&locked.join(".git"), 16);
    repository(&locked);
    git_dir.seal();
    disk.seal();

    let (daemon, mut client) = started(&yard).await;
    let trees = |name: &str| sealed.join(name).display().to_string();
    let set = "set worktreesRoot of @ostler/git to a folder that the host can write";
    for (id, directory, place, remedy) in [
        ("one", plain.clone(), trees("plain.worktrees"), set),
        ("two", bare.join("main"), trees("bare/.bare.worktrees"), set),
        ("three", sealed.join("linked-tree"), trees("linked.worktrees"), set),
        ("four", opened.clone(), trees("opened.worktrees"), set),
        (
            "five",
            locked.clone(),
            locked.join(".git").display().to_string(),
            "where git records working trees",
        ),
    ] {
        let branches = git(&directory, &["for-each-ref", "refs/heads"]);
        let refused = create(&mut client, id, &directory, isolated()).await.unwrap_err();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&place) && message.contains(remedy), "{refused}");
        assert!(message.contains("Read-only file system"), "{refused}");
        assert_eq!(git(&directory, &["for-each-ref", "refs/heads"]), branches, "{id}");
    }
    drop(daemon);

    // With a folder that can be written, the repository whose own folder can be is isolated.
    let root = ground.join("trees");
    let config = json!({ "port": 0, "paths": [ground], "plugins": [{ "name": "@ostler/echo" },
        { "name": "@ostler/git", "options": { "worktreesRoot": root } }] });
    yard.folder.write("config.json", &config.to_string());
    let (_daemon, mut client) = started(&yard).await;
    create(&mut client, "six", &opened, isolated()).await.unwrap();
    assert!(root.join("opened/six/a.txt").exists());
    drop(inner);
}

#[tokio::test]
async fn a_tag_with_the_name_of_a_branch_is_not_taken_for_it() {
    let plugins = json!([{ "name": "@ostler/echo" }, { "name": "@ostler/git" }, { "name": "./pulls.mjs" }]);
    let yard = Yard::with(&[("a.txt", "a\n")], plugins);
    yard.folder.write(
        "pulls.mjs",
        "export const name = 'pulls';
        export const apply = (host) => host.registerGithub({
          resource: { resource: 'https://api.example.com' },
          forBranch: () => null,
          create: ({ branch }) => ({ owner: 'inn', repo: 'yard', url: 'https://example.com/1', branch, state: 'open' }),
        });",
    );
    let bare = yard.repo.with_file_name("origin.git");
    yard.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    yard.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    for tag in ["main", "one"] {
        yard.git(&["tag", tag]);
    }
    yard.git(&["commit", "-q", "--allow-empty", "-m", "Second"]);
    let (_daemon, mut client) = started(&yard).await;
    create(&mut client, "one", &yard.repo, isolated()).await.unwrap();
    let tree = yard.repo.with_file_name("repo.worktrees").join("one");
    assert_eq!(git(&tree, &["log", "-1", "--format=%s"]), "Second");
    assert_eq!(yard.git(&["config", "branch.one.ostler-base"]), "main");
    fs::write(tree.join("a.txt"), "changed\n").unwrap();
    operate(&mut client, UNCOMMITTED, "create-pr", None).await.unwrap();
    let pushed = git(&bare, &["for-each-ref", "--format=%(refname)", "refs/heads"]);
    assert_eq!(pushed, "refs/heads/main\nrefs/heads/one");
}
