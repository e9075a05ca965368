//! Git's own folders, in which nothing is written for a client: their configuration, hooks and attributes name programs
//! that git runs, so that a file there is a shell of the daemon's user.

use std::ffi::OsStr;
use std::path::{Component, Path};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// What git looks for in a folder to take it for its own, and in the folder of a linked tree.
const HEAD: &str = "HEAD";
const OBJECTS: &str = "objects";
const REFS: &str = "refs";
const COMMON: &str = "commondir";

/// Returns whether a change at a path, whose links are followed, would be in one of git's folders, be one of a tree
/// (`.git`, a folder or a file that names one), or make a folder one of git's.
pub(super) fn is_in_git_folder(path: &Path) -> bool {
    let mut folder = std::path::PathBuf::new();
    for part in path.components() {
        if let Component::Normal(name) = part
            && (is_git(name) || is_git_folder(&folder) || completes(&folder, name))
        {
            return true;
        }
        folder.push(part);
    }
    false
}

/// Returns whether a name is `.git` on some file system that the daemon could run on: in other cases, with characters that
/// HFS+ ignores, and in the forms of NTFS and FAT. They are those that git itself refuses in a tree.
fn is_git(name: &OsStr) -> bool {
    let is_ignored = |c: &char| matches!(*c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let name: String = name.to_string_lossy().chars().filter(|c| !is_ignored(c)).collect();
    let name = name.split(':').next().unwrap_or_default().trim_end_matches([' ', '.']);
    name.eq_ignore_ascii_case(".git") || name.eq_ignore_ascii_case("git~1")
}

/// Returns whether git takes a folder for its own: that of a repository, also without a working tree, or of a linked tree.
fn is_git_folder(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).exists();
    folder.join(HEAD).symlink_metadata().is_ok() && (has(OBJECTS) && has(REFS) || has(COMMON))
}

/// Held by a change that could make a folder one of git's, together with another one: each would be allowed by itself.
pub(super) type Alone = ReentrantMutexGuard<'static, ()>;

/// Waits until no other change could make a folder one of git's, if a change of this name could.
pub(super) fn alone_for(name: &OsStr) -> Option<Alone> {
    static ALONE: ReentrantMutex<()> = ReentrantMutex::new(());
    makes_git_folder(name).then(|| ALONE.lock())
}

/// Returns whether a name is one by which git recognizes its folders.
fn makes_git_folder(name: &OsStr) -> bool {
    [HEAD, OBJECTS, REFS, COMMON].iter().any(|wanted| name.eq_ignore_ascii_case(wanted))
}

/// Returns whether git would take a folder for its own once it has a name.
fn completes(folder: &Path, name: &OsStr) -> bool {
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
    let has = |wanted: &str| is(wanted) || folder.join(wanted).symlink_metadata().is_ok();
    makes_git_folder(name) && has(HEAD) && (has(OBJECTS) && has(REFS) || has(COMMON))
}

#[cfg(test)]
mod tests {
    use ostler_contract::points::ResourceWrite;

    use super::*;

    #[test]
    fn each_spelling_of_the_folder_is_known() {
        for name in
            [".git", ".GIT", ".Git", "GIT~1", ".git ", ".git..", ".g\u{200c}it", ".git::$INDEX_ALLOCATION"]
        {
            assert!(is_git(OsStr::new(name)), "{name}");
        }
        for name in [".gitignore", ".gitattributes", "git", ".github", "x.git", "git~2", ""] {
            assert!(!is_git(OsStr::new(name)), "{name}");
        }
    }

    /// Each of two changes is allowed, as long as the other one is not made.
    #[test]
    fn two_changes_at_once_do_not_make_a_folder_of_git() {
        let folder = tempfile::tempdir().unwrap();
        let roots = super::super::served_path::Roots::new(&[folder.path().to_owned()], &[]);
        let uri = |path: &str| format!("file://{}/{path}", folder.path().display());
        let write = |path: &str, text: &str| {
            let content = ResourceWrite { data: text.to_owned(), ..ResourceWrite::default() };
            roots.write(&uri(path), &content)
        };
        // The content takes a while to be on the disk.
        let head = format!("ref: refs/heads/x{}\n", " ".repeat(1 << 20));
        for attempt in 0..20 {
            let name = |part: &str| format!("evil-{attempt}/{part}");
            roots.mkdir(&uri(&name("objects"))).unwrap();
            write(&name("config"), "[core]\n").unwrap();
            std::thread::scope(|scope| {
                let written = scope.spawn(|| write(&name("HEAD"), &head));
                let made = scope.spawn(|| roots.mkdir(&uri(&name("refs"))));
                let (written, made) = (written.join().unwrap(), made.join().unwrap());
                assert!(written.is_ok() != made.is_ok(), "{written:?} {made:?}");
            });
            assert!(write(&name("config"), "[core]\n").is_ok(), "it is no folder of git");
        }
    }

    #[test]
    fn folders_of_git_are_known_by_what_is_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let within = |path: &str| is_in_git_folder(&at(path));
        std::fs::create_dir_all(at("bare/objects")).unwrap();
        std::fs::create_dir_all(at("bare/refs")).unwrap();
        assert!(!within("bare/config") && !within("bare/objects/x"));
        assert!(within("bare/HEAD") && within("bare/head"), "it would be git's");
        std::fs::write(at("bare/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert!(within("bare/config") && within("bare/hooks/pre-commit") && within("bare/new/x"));
        assert!(!within("bare"), "a whole repository");
        std::fs::create_dir_all(at("tree")).unwrap();
        std::fs::write(at("tree/commondir"), "../bare\n").unwrap();
        assert!(!within("tree/config.worktree") && within("tree/HEAD"));
        std::fs::write(at("tree/HEAD"), "x").unwrap();
        assert!(within("tree/config.worktree"));
        std::fs::write(at("plain"), "").unwrap();
        std::fs::create_dir_all(at("project/refs")).unwrap();
        assert!(!within("project/objects/x") && !within("project/HEAD") && !within("project/commondir"));
        assert!(
            within("project/.git")
                && within("project/.GIT/config")
                && within("project/.git/modules/a/config")
        );
    }
}
