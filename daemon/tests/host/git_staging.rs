//! Staging: exactly the entry that is named, both ways.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::git::{Yard, create, git, operate};

/// The two letters of each path, as `git status` has them.
fn status(repo: &Path) -> Vec<String> {
    let listed = git(repo, &["status", "--porcelain", "--no-renames", "--untracked-files=all"]);
    let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

struct Case {
    what: &'static str,
    /// Changes the tree, in which `thing`, `dir/a`, `dir/b` and the repository `module` are committed.
    change: fn(&Path),
    named: &'static str,
    /// The answer and the status after `named` is staged.
    staged: (&'static str, &'static [&'static str]),
    /// The same after it is unstaged again.
    unstaged: (&'static str, &'static [&'static str]),
}

fn write(repo: &Path, name: &str, text: &str) {
    let path = repo.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn file_to_folder(repo: &Path) {
    fs::remove_file(repo.join("thing")).unwrap();
    write(repo, "thing/in", "two\n");
}

fn folder_to_file(repo: &Path) {
    fs::remove_dir_all(repo.join("dir")).unwrap();
    write(repo, "dir", "file\n");
}

fn folder_to_link(repo: &Path) {
    let elsewhere = repo.join(".git/elsewhere");
    fs::rename(repo.join("dir"), &elsewhere).unwrap();
    symlink(elsewhere, repo.join("dir")).unwrap();
}

fn file_to_link(repo: &Path) {
    fs::remove_file(repo.join("thing")).unwrap();
    symlink("dir", repo.join("thing")).unwrap();
}

fn new_repository(repo: &Path, name: &str) {
    fs::create_dir_all(repo.join(name)).unwrap();
    git(&repo.join(name), &["init", "-q", "-b", "main"]);
    git(&repo.join(name), &["commit", "-q", "--allow-empty", "-m", "First"]);
}

fn file_to_repository(repo: &Path) {
    fs::remove_file(repo.join("thing")).unwrap();
    new_repository(repo, "thing");
}

fn submodule_moves(repo: &Path) {
    git(&repo.join("module"), &["commit", "-q", "--allow-empty", "-m", "Second"]);
}

fn submodule_to_file(repo: &Path) {
    fs::remove_dir_all(repo.join("module")).unwrap();
    write(repo, "module", "file\n");
}

fn renamed(repo: &Path) {
    git(repo, &["mv", "dir/a", "moved"]);
}

fn renamed_into_its_own_folder(repo: &Path) {
    git(repo, &["mv", "thing", "other"]);
    fs::create_dir(repo.join("thing")).unwrap();
    git(repo, &["mv", "other", "thing/in"]);
}

fn folder_with_a_new_file(repo: &Path) {
    write(repo, "dir/a", "changed\n");
    write(repo, "dir/new", "new\n");
    write(repo, "thing", "changed\n");
}

const CASES: &[Case] = &[
    Case {
        what: "the file that became a folder",
        change: file_to_folder,
        named: "thing",
        staged: ("Staged 1 file", &["D  thing", "?? thing/in"]),
        unstaged: ("Unstaged 1 file", &[" D thing", "?? thing/in"]),
    },
    Case {
        what: "the file in the folder that was a file, which git's index has instead of it",
        change: file_to_folder,
        named: "thing/in",
        staged: ("Staged 1 file", &["D  thing", "A  thing/in"]),
        unstaged: ("Unstaged 1 file", &["D  thing", "?? thing/in"]),
    },
    Case {
        what: "a file of the folder that became a file",
        change: folder_to_file,
        named: "dir/a",
        staged: ("Staged 1 file", &["D  dir/a", " D dir/b", "?? dir"]),
        unstaged: ("Unstaged 1 file", &[" D dir/a", " D dir/b", "?? dir"]),
    },
    Case {
        what: "the file that was a folder",
        change: folder_to_file,
        named: "dir",
        staged: ("Staged 1 file", &["A  dir", "D  dir/a", "D  dir/b"]),
        unstaged: ("Unstaged 1 file", &["D  dir/a", "D  dir/b", "?? dir"]),
    },
    Case {
        what: "a file of the folder that became a link to a folder with such a file",
        change: folder_to_link,
        named: "dir/a",
        staged: ("Staged 1 file", &["D  dir/a", " D dir/b", "?? dir"]),
        unstaged: ("Unstaged 1 file", &[" D dir/a", " D dir/b", "?? dir"]),
    },
    Case {
        what: "the link that was a folder",
        change: folder_to_link,
        named: "dir",
        staged: ("Staged 1 file", &["A  dir", "D  dir/a", "D  dir/b"]),
        unstaged: ("Unstaged 1 file", &["D  dir/a", "D  dir/b", "?? dir"]),
    },
    Case {
        what: "the file that became a link",
        change: file_to_link,
        named: "thing",
        staged: ("Staged 1 file", &["T  thing"]),
        unstaged: ("Unstaged 1 file", &[" T thing"]),
    },
    Case {
        what: "the file that became a repository",
        change: file_to_repository,
        named: "thing",
        staged: ("Staged 1 file", &["T  thing"]),
        unstaged: ("Unstaged 1 file", &[" T thing"]),
    },
    Case {
        what: "a new repository",
        change: |repo| new_repository(repo, "new"),
        named: "new",
        staged: ("Staged 1 file", &["A  new"]),
        unstaged: ("Unstaged 1 file", &["?? new/"]),
    },
    Case {
        what: "a submodule at another commit",
        change: submodule_moves,
        named: "module",
        staged: ("Staged 1 file", &["M  module"]),
        unstaged: ("Unstaged 1 file", &[" M module"]),
    },
    Case {
        what: "the submodule that became a file",
        change: submodule_to_file,
        named: "module",
        staged: ("Staged 1 file", &["T  module"]),
        unstaged: ("Unstaged 1 file", &[" T module"]),
    },
    Case {
        what: "both ends of a rename",
        change: renamed,
        named: "moved",
        staged: ("Staged 1 file", &["D  dir/a", "A  moved"]),
        unstaged: ("Unstaged 1 file", &[" D dir/a", "?? moved"]),
    },
    Case {
        what: "a rename, by the name before it",
        change: renamed,
        named: "dir/a",
        staged: ("Staged 1 file", &["D  dir/a", "A  moved"]),
        unstaged: ("Unstaged 1 file", &[" D dir/a", "?? moved"]),
    },
    Case {
        what: "a rename into a folder of the name before it",
        change: renamed_into_its_own_folder,
        named: "thing/in",
        staged: ("Staged 1 file", &["D  thing", "A  thing/in"]),
        unstaged: ("Unstaged 1 file", &[" D thing", "?? thing/in"]),
    },
    Case {
        what: "a folder with a file that git does not track",
        change: folder_with_a_new_file,
        named: "dir",
        staged: ("Staged 2 files", &["M  dir/a", "A  dir/new", " M thing"]),
        unstaged: ("Unstaged 2 files", &[" M dir/a", " M thing", "?? dir/new"]),
    },
];

#[tokio::test]
async fn exactly_the_entry_that_is_named_is_staged_and_unstaged() {
    let yard = Yard::new(&[]);
    let daemon = yard.start();
    let mut client = daemon.initialized("c").await;
    for (number, case) in CASES.iter().enumerate() {
        let repo = yard.repo.with_file_name(format!("case{number}"));
        new_repository(&repo, "");
        new_repository(&repo, "module");
        for (name, text) in [("thing", "one\nand more\n"), ("dir/a", "a\nand more\n"), ("dir/b", "b\n")] {
            write(&repo, name, text);
        }
        git(&repo, &["-c", "advice.addEmbeddedRepo=false", "add", "-A"]);
        git(&repo, &["commit", "-qm", "Second"]);
        (case.change)(&repo);
        create(&mut client, &format!("s{number}"), &repo, json!({})).await.unwrap();
        let channel = format!("echo:/s{number}/changeset/uncommitted");
        let target = format!("file://{}/{}", repo.display(), case.named);
        for (operation, (message, expected)) in [("stage", case.staged), ("unstage", case.unstaged)] {
            let done = operate(&mut client, &channel, operation, Some(&target)).await;
            let done = done.unwrap_or_else(|why| panic!("{}: {operation}: {why}", case.what));
            assert_eq!(done["message"], message, "{}", case.what);
            let mut expected: Vec<&str> = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(status(&repo), expected, "{}: {operation}", case.what);
        }
    }
}
