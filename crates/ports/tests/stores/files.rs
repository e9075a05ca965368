//! The files below the directories a host serves, and the fence around them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_contract::points::{
    ChangeType, Encoding, ResourceAccess, ResourceChanged, ResourceFacts, ResourceResolving, ResourceStore,
    ResourceTransfer, ResourceWrite, WriteMode,
};
use ostler_contract::wire::commands::ContentEncoding;
use ostler_contract::{Thrown, json};
use ostler_ports::DiskFiles;
use ostler_ports::conformance::Heard;
use proptest::prelude::*;

/// Two directories that are served, side by side, and one between them that is not.
struct Ground {
    dir: tempfile::TempDir,
    files: ResourceStore,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in
            [("work/a.txt", "A"), ("work/sub/b.txt", "B"), ("more/c.txt", "C"), ("secret/key", "KEEP OUT")]
        {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots: Vec<PathBuf> = ["work", "more"].map(|root| dir.path().join(root)).into();
        let files = Arc::new(DiskFiles::new(&roots)).into_point();
        Self { dir, files }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(path)
    }

    fn uri(&self, path: &str) -> String {
        format!("file://{}", self.at(path).display())
    }

    async fn read(&self, uri: &str) -> Result<String, Thrown> {
        self.files.read.unbounded((uri.to_owned(), None)).await.map(|content| content.data)
    }

    async fn resolve(&self, path: &str, follow_symlinks: bool) -> Result<ResourceFacts, Thrown> {
        self.files.resolve.unbounded((self.uri(path), None, ResourceResolving { follow_symlinks })).await
    }

    async fn write(&self, path: &str, content: ResourceWrite) -> Result<(), Thrown> {
        let write = self.files.write.as_ref().unwrap();
        write.unbounded((self.uri(path), content, Default::default())).await
    }

    async fn transfer(&self, keep: bool, from: &str, to: &str, fail_if_exists: bool) -> Result<(), Thrown> {
        let transfer = if keep { &self.files.copy } else { &self.files.r#move };
        let options = ResourceTransfer { fail_if_exists };
        transfer
            .as_ref()
            .unwrap()
            .unbounded((self.uri(from), self.uri(to), options, Default::default()))
            .await
    }
}

fn text(data: &str) -> ResourceWrite {
    ResourceWrite { data: data.to_owned(), ..ResourceWrite::default() }
}

fn code(outcome: Result<impl std::fmt::Debug, Thrown>) -> i32 {
    outcome.unwrap_err().into_rpc().code
}

const OUTSIDE: i32 = -32009;
const NOT_THERE: i32 = -32008;
const EXISTS: i32 = -32010;
const WRONG: i32 = -32602;

#[tokio::test]
async fn a_file_is_read_by_its_uri_and_by_its_path() {
    let ground = Ground::new();
    assert_eq!(ground.read(&ground.uri("work/sub/b.txt")).await, Ok("B".into()));
    assert_eq!(ground.read(&ground.at("more/c.txt").display().to_string()).await, Ok("C".into()));
    assert_eq!(ground.read(&ground.uri("work/./sub/b%2Etxt")).await, Ok("B".into()));
    let localhost = ground.uri("work/a.txt").replace("file://", "file://localhost");
    assert_eq!(ground.read(&localhost).await, Ok("A".into()));
    fs::write(ground.at("work/ünï cödé?.txt"), "U").unwrap();
    assert_eq!(ground.read(&ground.uri("work/%C3%BCn%C3%AF%20c%C3%B6d%C3%A9%3F.txt")).await, Ok("U".into()));
    for (path, encoding) in [
        (&b"\xff\xfe"[..], ContentEncoding::Base64),
        (b"a\0b", ContentEncoding::Base64),
        (b"", ContentEncoding::Utf8),
    ] {
        fs::write(ground.at("work/bytes"), path).unwrap();
        let read = ground.files.read.unbounded((ground.uri("work/bytes"), None)).await.unwrap();
        assert_eq!(read.encoding, encoding, "{path:?}");
    }
    assert_eq!(code(ground.read(&ground.uri("work/none")).await), NOT_THERE);
    assert_eq!(code(ground.read(&ground.uri("work/sub")).await), WRONG);
    let listed = ground.files.list.unbounded((ground.uri("work"), None)).await.unwrap();
    let mut listed: Vec<_> =
        listed.iter().map(|entry| (entry.name.as_str(), entry.r#type.as_str())).collect();
    listed.sort_unstable();
    assert_eq!(
        listed,
        [("a.txt", "file"), ("bytes", "file"), ("sub", "directory"), ("ünï cödé?.txt", "file")]
    );
    assert_eq!(code(ground.files.list.unbounded((ground.uri("work/a.txt"), None)).await), WRONG);
}

#[tokio::test]
async fn nothing_outside_is_reached_whatever_way_goes_there() {
    let ground = Ground::new();
    let work = ground.at("work");
    symlink("../secret", work.join("up")).unwrap();
    symlink(ground.at("secret"), work.join("over")).unwrap();
    symlink(ground.at("secret/key"), work.join("key")).unwrap();
    symlink("/", work.join("everything")).unwrap();
    symlink("loop", work.join("loop")).unwrap();
    let inside = format!("file://{}", work.display());
    let ways = [
        ground.uri("secret/key"),
        ground.at("secret/key").display().to_string(),
        format!("{inside}/../secret/key"),
        format!("{inside}/%2e%2e/secret/key"),
        format!("{inside}/..%2fsecret%2fkey"),
        format!("{inside}/sub%2f..%2f..%2fsecret/key"),
        format!("{}/../secret/key", work.display()),
        format!("{inside}/up/key"),
        format!("{inside}/over/key"),
        format!("{inside}/key"),
        format!("{inside}/everything/etc/passwd"),
        format!("{inside}-not/key"),
        format!("file://elsewhere{}/a.txt", work.display()),
        format!("{inside}/a.txt%00"),
        "file:///proc/self/environ".to_owned(),
        "file:///proc/self/root/etc/passwd".to_owned(),
        "file:relative".to_owned(),
        "file:".to_owned(),
        "//a.txt".to_owned(),
        format!("{inside}/loop"),
    ];
    for uri in ways {
        let refused = ground.read(&uri).await.unwrap_err();
        assert!(!refused.message.contains("KEEP OUT"), "{uri}: {refused}");
        assert!(refused.rpc.is_some(), "{uri}: {refused}");
        let new = format!("{uri}.new");
        let write = ground.files.write.as_ref().unwrap();
        if !uri.contains("/work/a.txt") && !uri.ends_with("/work/key") && !uri.ends_with("loop") {
            assert!(write.unbounded((new.clone(), text("x"), Default::default())).await.is_err(), "{new}");
        }
        let delete = ground.files.delete.as_ref().unwrap();
        if !uri.ends_with("/work/key") && !uri.ends_with("loop") {
            assert!(delete.unbounded((uri.clone(), true, Default::default())).await.is_err(), "{uri}");
        }
    }
    assert_eq!(code(ground.read(&ground.uri("work/over/key")).await), OUTSIDE);
    // A link is itself removed, never what it leads to.
    let delete = ground.files.delete.as_ref().unwrap();
    delete.unbounded((ground.uri("work/over"), true, Default::default())).await.unwrap();
    assert_eq!(code(ground.write("work/key", text("mine")).await), WRONG);
    assert_eq!(code(ground.resolve("work/key", true).await), OUTSIDE);
    assert_eq!(ground.resolve("work/key", false).await.unwrap().r#type, "symlink");
    assert_eq!(fs::read_to_string(ground.at("secret/key")).unwrap(), "KEEP OUT");
    assert_eq!(fs::read_dir(ground.at("secret")).unwrap().count(), 1);
    // The directories themselves stay.
    for uri in [ground.uri("work"), ground.uri("more")] {
        assert_eq!(code(delete.unbounded((uri, true, Default::default())).await), OUTSIDE);
    }
    assert_eq!(code(ground.transfer(false, "work", "more/work", false).await), OUTSIDE);
}

#[tokio::test]
async fn links_that_lead_to_what_is_served_are_followed() {
    let ground = Ground::new();
    symlink("sub/b.txt", ground.at("work/near")).unwrap();
    symlink(ground.at("work/sub"), ground.at("work/absolute")).unwrap();
    symlink(ground.at("more/c.txt"), ground.at("work/across")).unwrap();
    symlink(ground.at("work"), ground.at("door")).unwrap();
    for (path, held) in
        [("work/near", "B"), ("work/absolute/b.txt", "B"), ("work/across", "C"), ("door/a.txt", "A")]
    {
        assert_eq!(ground.read(&ground.uri(path)).await, Ok(held.into()), "{path}");
    }
    let real = ground.resolve("work/absolute/b.txt", true).await.unwrap();
    assert_eq!(real.uri, Some(ground.uri("work/sub/b.txt")));
    ground.write("work/absolute/new.txt", text("N")).await.unwrap();
    assert_eq!(fs::read_to_string(ground.at("work/sub/new.txt")).unwrap(), "N");
    let listed = ground.files.list.unbounded((ground.uri("work"), None)).await.unwrap();
    let kind = |name: &str| listed.iter().find(|entry| entry.name == name).unwrap().r#type.clone();
    assert_eq!((kind("absolute"), kind("near")), ("directory".to_owned(), "file".to_owned()));
}

#[tokio::test]
async fn a_write_is_whole_and_refuses_what_it_is_told_to() {
    let ground = Ground::new();
    let held = |path: &str| fs::read(ground.at(path)).unwrap();
    fs::set_permissions(ground.at("work/a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    ground.write("work/a.txt", text("hello")).await.unwrap();
    assert_eq!(held("work/a.txt"), b"hello");
    assert_eq!(fs::metadata(ground.at("work/a.txt")).unwrap().permissions().mode() & 0o777, 0o640);
    let placed = |mode, position, data: &str| ResourceWrite { mode: Some(mode), position, ..text(data) };
    for (mode, position, after) in [
        (WriteMode::Truncate, 4, "hellJ"),
        (WriteMode::Append, 0, "hellJJ"),
        (WriteMode::Append, 2, "hellJJJ"),
        (WriteMode::Insert, 1, "hJellJJJ"),
    ] {
        ground.write("work/a.txt", placed(mode, position, "J")).await.unwrap();
        assert_eq!(held("work/a.txt"), after.as_bytes());
    }
    for mode in [WriteMode::Truncate, WriteMode::Append, WriteMode::Insert] {
        assert_eq!(code(ground.write("work/a.txt", placed(mode, 9, "J")).await), WRONG, "{mode:?}");
    }
    let base64 = |data: &str| ResourceWrite { encoding: Some(Encoding::Base64), ..text(data) };
    ground.write("work/raw", base64("/wA=")).await.unwrap();
    assert_eq!(held("work/raw"), [0xff, 0]);
    assert_eq!(code(ground.write("work/raw", base64("not base64")).await), WRONG);
    let new = || ResourceWrite { create_only: true, ..text("new") };
    assert_eq!(code(ground.write("work/raw", new()).await), EXISTS);
    ground.write("work/fresh", new()).await.unwrap();
    assert_eq!(held("work/fresh"), b"new");
    assert_eq!(code(ground.write("work/no/such/folder", text("")).await), NOT_THERE);
    assert_eq!(code(ground.write("work/sub", text("")).await), WRONG);
    assert_eq!(code(ground.write("work/large", text(&"x".repeat((32 << 20) + 1))).await), WRONG);

    let etag = ground.resolve("work/fresh", true).await.unwrap().etag;
    let matching = |data: &str| ResourceWrite { if_match: etag.clone(), ..text(data) };
    ground.write("work/fresh", matching("one")).await.unwrap();
    assert_eq!(code(ground.write("work/fresh", matching("two")).await), -32011);
    assert_eq!(code(ground.write("work/gone", matching("two")).await), -32011);
    assert_eq!(held("work/fresh"), b"one");
    let left = fs::read_dir(ground.at("work")).unwrap().count();
    assert_eq!(left, 4, "nothing half-written is left behind");
}

#[tokio::test]
async fn files_too_large_and_pipes_are_not_read() {
    let ground = Ground::new();
    let large = fs::File::create(ground.at("work/large")).unwrap();
    large.set_len((32 << 20) + 1).unwrap();
    assert_eq!(code(ground.read(&ground.uri("work/large")).await), WRONG);
    assert_eq!(ground.resolve("work/large", true).await.unwrap().size, Some((32 << 20) + 1));
    let made = std::process::Command::new("mkfifo").arg(ground.at("work/pipe")).status();
    assert!(made.unwrap().success());
    assert_eq!(code(ground.read(&ground.uri("work/pipe")).await), WRONG);
    assert_eq!(code(ground.write("work/pipe", text("x")).await), WRONG);
}

#[tokio::test]
async fn directories_are_made_moved_copied_and_removed() {
    let ground = Ground::new();
    let mkdir = ground.files.mkdir.as_ref().unwrap();
    let make = |path: &str| mkdir.unbounded((ground.uri(path), Default::default()));
    make("work/new/deep").await.unwrap();
    make("work/new").await.unwrap();
    make("work").await.unwrap();
    assert_eq!(code(make("work/a.txt").await), EXISTS);
    assert_eq!(code(make("secret/new").await), OUTSIDE);
    symlink("b.txt", ground.at("work/sub/link")).unwrap();
    symlink("../../../secret/key", ground.at("work/sub/out")).unwrap();
    ground.transfer(true, "work/sub", "work/new/sub", false).await.unwrap();
    assert_eq!(ground.read(&ground.uri("work/new/sub/link")).await, Ok("B".into()));
    assert_eq!(
        code(ground.read(&ground.uri("work/new/sub/out")).await),
        OUTSIDE,
        "a link is never what it leads to"
    );
    assert_eq!(code(ground.transfer(true, "work/a.txt", "work/new/sub/b.txt", true).await), EXISTS);
    ground.transfer(true, "work/a.txt", "work/new/sub/b.txt", false).await.unwrap();
    assert_eq!(ground.read(&ground.uri("work/new/sub/b.txt")).await, Ok("A".into()));
    ground.transfer(false, "work/new/sub", "more/sub", true).await.unwrap();
    assert!(!ground.at("work/new/sub").exists());
    assert_eq!(ground.read(&ground.uri("more/sub/b.txt")).await, Ok("A".into()));
    // A file is no directory, and neither takes the place of the other.
    for (keep, from, to) in [
        (true, "more/sub", "work/a.txt"),
        (true, "work/a.txt", "more/sub"),
        (false, "work/a.txt", "more/sub"),
    ] {
        assert_eq!(code(ground.transfer(keep, from, to, false).await), EXISTS, "{from} {to}");
    }
    assert_eq!(ground.read(&ground.uri("work/a.txt")).await, Ok("A".into()));
    // What is in the way makes way whole.
    ground.transfer(false, "more/sub", "work/new", false).await.unwrap();
    assert!(ground.at("work/new/b.txt").exists() && !ground.at("work/new/deep").exists());
    for (from, to) in
        [("work/new", "work/new/inside"), ("work/new/b.txt", "work/new"), ("work/new", "work/new")]
    {
        assert_eq!(code(ground.transfer(false, from, to, false).await), WRONG, "{from} {to}");
    }
    assert_eq!(code(ground.transfer(false, "work/none", "work/other", false).await), NOT_THERE);
    assert_eq!(code(ground.transfer(true, "secret/key", "work/stolen", false).await), OUTSIDE);
    assert_eq!(code(ground.transfer(true, "work/a.txt", "secret/put", false).await), OUTSIDE);
    let delete = ground.files.delete.as_ref().unwrap();
    let remove = |path: &str, recursive| delete.unbounded((ground.uri(path), recursive, Default::default()));
    assert_eq!(code(remove("work/new", false).await), WRONG);
    remove("work/new", true).await.unwrap();
    remove("work/a.txt", false).await.unwrap();
    assert_eq!(code(remove("work/a.txt", false).await), NOT_THERE);
    assert!(ground.at("secret/key").exists() && ground.at("work/sub/b.txt").exists());
}

#[tokio::test]
async fn access_is_told_of_and_facts_are_facts() {
    let ground = Ground::new();
    let request = ground.files.request.as_ref().unwrap();
    let access = ResourceAccess { read: true, write: true };
    let ask = |uri: String| request.unbounded((uri, Default::default(), access));
    ask(ground.uri("work/not/yet/there")).await.unwrap();
    let denied = ask(ground.uri("secret/key")).await.unwrap_err().into_rpc();
    let outside = format!("{} is outside the directories this host serves; ", ground.uri("secret/key"));
    assert!(denied.message.starts_with(&outside), "{}", denied.message);
    assert_eq!(denied.code, OUTSIDE);
    let facts = ground.resolve("work/a.txt", true).await.unwrap();
    assert_eq!((facts.r#type.as_str(), facts.size), ("file", Some(1)));
    assert!(facts.mtime.is_some() && facts.etag.is_some());
    assert_eq!(ground.resolve("work", true).await.unwrap().r#type, "directory");
    assert_eq!(code(ground.resolve("work/none", true).await), NOT_THERE);
}

#[tokio::test]
async fn what_a_person_types_is_found() {
    let ground = Ground::new();
    for path in ["work/src/main.rs", "work/src/deep/Main.txt", "work/node_modules/main.js", "work/.git/main"]
    {
        let path = ground.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let complete = async |typed: &str| -> Vec<String> {
        let found = ground.files.complete.unbounded((ground.uri("work"), typed.to_owned())).await.unwrap();
        found.into_iter().map(|found| found.path).collect()
    };
    assert_eq!(complete("").await, ["a.txt", "src/", "sub/"]);
    assert_eq!(complete("node_modules").await, ["node_modules/"]);
    assert_eq!(complete("node_modules/m").await, ["node_modules/main.js"]);
    assert_eq!(
        complete("s").await,
        ["src/", "sub/", "src/main.rs", "src/deep/", "sub/b.txt", "src/deep/Main.txt"]
    );
    assert_eq!(complete("main").await, ["src/main.rs", "src/deep/Main.txt"]);
    assert_eq!(complete("src/ma").await, ["src/main.rs"]);
    assert_eq!(complete("./src/").await, ["src/deep/", "src/main.rs"]);
    for nothing in ["../secret/", "/etc/", "zebra", ".g", ".git/", ".git/m"] {
        assert_eq!(complete(nothing).await, [""; 0], "{nothing}");
    }
    let found = ground.files.complete.unbounded((ground.uri("work"), "a.t".to_owned())).await.unwrap();
    assert_eq!(found[0].uri, ground.uri("work/a.txt"));
    assert_eq!(code(ground.files.complete.unbounded((ground.uri("secret"), String::new())).await), OUTSIDE);
}

#[tokio::test]
async fn files_that_lie_deep_are_found_by_name_unless_they_are_ignored() {
    let ground = Ground::new();
    let put = |path: &str, text: &str| {
        let path = ground.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for path in [
        "work/app/menu-old/a.rs",
        "work/app/my-menu.rs",
        "work/app/deep/er/menus.rs",
        "work/app/deep/er/still/menu.rs",
        "work/app/build/menu.rs",
        "work/app/build/keep/menu.txt",
        "work/app/deep/target/menu.rs",
        "work/app/deep/menu.log",
        "work/app/private/menu.rs",
        "work/app/elsewhere/menu.tmp",
        "work/app/.github/workflows/release.yml",
    ] {
        put(path, "");
    }
    put("work/.gitignore", "*.log\n/app/build/\n[\n");
    put("work/app/.ignore", "target\n");
    put("work/.git/info/exclude", "private\n");
    put("work/app/elsewhere/.gitignore", "*.tmp\n");
    let complete = async |directory: &str, typed: &str| -> Vec<String> {
        let found = ground.files.complete.unbounded((ground.uri(directory), typed.to_owned())).await.unwrap();
        found.into_iter().map(|found| found.path).collect()
    };
    assert_eq!(
        complete("work/app", "menu").await,
        ["menu-old/", "deep/er/still/menu.rs", "deep/er/menus.rs", "my-menu.rs", "menu-old/a.rs"],
        "the name itself, then what begins with it, then what has it"
    );
    assert_eq!(complete("work/app", "menu.tmp").await, [""; 0], "patterns of the directory it is in");
    // By its own path, also what is ignored.
    assert_eq!(complete("work/app", "build/m").await, ["build/menu.rs"]);
    assert_eq!(complete("work/app", "build").await, ["build/"]);
    assert_eq!(complete("work/app", "buil").await, [""; 0]);
    let listed = complete("work/app", "").await;
    assert_eq!(listed, ["deep/", "elsewhere/", "menu-old/", "my-menu.rs"]);
    assert_eq!(
        complete("work/app", "release").await,
        [".github/workflows/release.yml"],
        "hidden, not ignored"
    );
    assert_eq!(
        complete("work/app", ".gi").await,
        [".github/", "elsewhere/.gitignore", ".github/workflows/", ".github/workflows/release.yml"]
    );
    assert_eq!(complete("work", "er/still").await, ["app/deep/er/still/", "app/deep/er/still/menu.rs"]);
}

#[tokio::test]
async fn a_large_tree_is_searched_while_somebody_types() {
    let ground = Ground::new();
    for folder in 0..200 {
        let folder = ground.at(&format!("work/many/{folder}"));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..150 {
            fs::write(folder.join(format!("file-{file}.txt")), "").unwrap();
        }
    }
    fs::create_dir_all(ground.at("work/many/199/x")).unwrap();
    fs::write(ground.at("work/many/199/x/needle.rs"), "").unwrap();
    fs::write(ground.at("work/many/.gitignore"), "ignored/\n").unwrap();
    fs::create_dir_all(ground.at("work/many/ignored")).unwrap();
    fs::write(ground.at("work/many/ignored/needle.rs"), "").unwrap();
    // Each answer comes soon; on a busy computer, the first ones without what has not been read yet.
    let until = async |expected: &[&str]| {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let begun = Instant::now();
            let found =
                ground.files.complete.unbounded((ground.uri("work"), "needle".to_owned())).await.unwrap();
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(10), "{took:?}");
            let paths: Vec<&str> = found.iter().map(|found| found.path.as_str()).collect();
            if paths == expected {
                return;
            }
            assert!(Instant::now() < end, "{paths:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until(&["many/199/x/needle.rs"]).await;
    // A new file is found a little later.
    fs::write(ground.at("work/many/needle.rs"), "").unwrap();
    until(&["many/needle.rs", "many/199/x/needle.rs"]).await;
}

#[tokio::test]
async fn changes_are_told_until_nobody_listens() {
    let ground = Ground::new();
    symlink("sub", ground.at("work/alias")).unwrap();
    let heard: Heard<Vec<ResourceChanged>> = Heard::default();
    let watch = ground.files.watch.as_ref().unwrap();
    let stop = watch.unbounded((ground.uri("work/alias"), true, heard.listener())).await.unwrap().unwrap();
    ground.write("work/sub/new.txt", text("N")).await.unwrap();
    let until = async |uri: String| loop {
        if let Some(change) = heard.next().await.into_iter().find(|change| change.uri == uri) {
            return change.r#type;
        }
    };
    // By the name it was asked for, whatever links are on the way.
    assert_eq!(until(ground.uri("work/alias/new.txt")).await, ChangeType::Added);
    fs::remove_file(ground.at("work/sub/b.txt")).unwrap();
    assert_eq!(until(ground.uri("work/alias/b.txt")).await, ChangeType::Deleted);
    stop.unbounded(()).await.unwrap();
    assert_eq!(code(watch.unbounded((ground.uri("secret"), true, heard.listener())).await), OUTSIDE);
    assert_eq!(code(watch.unbounded((ground.uri("work/none"), true, heard.listener())).await), NOT_THERE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// No spelling of strangers reads what is not served.
    #[test]
    fn no_spelling_leaves_the_ground(parts in prop::collection::vec(
        prop_oneof![Just("..".to_owned()), Just("%2e%2e".to_owned()), Just("..%2f".to_owned()), Just("up".to_owned()),
            Just("over".to_owned()), Just("sub".to_owned()), Just("secret".to_owned()), Just("key".to_owned()),
            Just("%00".to_owned()), Just(".".to_owned()), "[a-z%./]{0,8}"], 0..8), bare in any::<bool>()) {
        thread_local!(static GROUND: Ground = {
            let ground = Ground::new();
            symlink("../secret", ground.at("work/up")).unwrap();
            symlink(ground.at("secret"), ground.at("work/over")).unwrap();
            ground
        });
        GROUND.with(|ground| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let scheme = if bare { "" } else { "file://" };
            let uri = format!("{scheme}{}/{}", ground.at("work").display(), parts.join("/"));
            runtime.block_on(async {
                if let Ok(read) = ground.read(&uri).await {
                    assert!(["A", "B", "C"].contains(&read.as_str()), "{uri}: {read}");
                }
                if let Ok(listed) = ground.files.list.unbounded((uri.clone(), None)).await {
                    assert!(!json!(listed).to_string().contains("\"key\""), "{uri}");
                }
            });
        });
    }
}

#[test]
fn a_directory_that_is_not_there_yet_is_served_once_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let root: &Path = &dir.path().canonicalize().unwrap().join("later");
    let files = Arc::new(DiskFiles::new(&[root.to_owned()])).into_point();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let read = || runtime.block_on(files.read.unbounded((root.join("a").display().to_string(), None)));
    assert_eq!(code(read()), NOT_THERE);
    fs::create_dir(root).unwrap();
    fs::write(root.join("a"), "here").unwrap();
    assert_eq!(read().unwrap().data, "here");
}

#[tokio::test]
async fn the_hosts_own_folder_is_not_served_whichever_way_leads_there() {
    let mut ground = Ground::new();
    fs::create_dir_all(ground.at("work/.config/host/open")).unwrap();
    fs::write(ground.at("work/.config/host/vault.json"), "KEEP OUT").unwrap();
    fs::write(ground.at("work/.config/host/open/a"), "a").unwrap();
    fs::write(ground.at("work/token"), "KEEP OUT").unwrap();
    symlink(ground.at("work/.config/host"), ground.at("work/way")).unwrap();
    symlink(ground.at("work/token"), ground.at("work/token-link")).unwrap();
    let own = [ground.at("work/.config/host"), ground.at("work/token"), ground.at("work/none-yet")];
    let served = [ground.at("work"), ground.at("work/.config/host/open")];
    ground.files = Arc::new(DiskFiles::without(&served, &own)).into_point();
    for path in [
        "work/.config/host",
        "work/.config/host/vault.json",
        "work/.config/host/new",
        "work/way",
        "work/way/vault.json",
        "work/token",
        "work/token-link",
        "work/none-yet",
    ] {
        assert_eq!(code(ground.read(&ground.uri(path)).await), OUTSIDE, "{path}");
        assert_eq!(code(ground.resolve(path, true).await), OUTSIDE, "{path}");
        assert_eq!(code(ground.write(path, text("x")).await), OUTSIDE, "{path}");
        assert_eq!(code(ground.files.list.unbounded((ground.uri(path), None)).await), OUTSIDE, "{path}");
        let delete = ground.files.delete.as_ref().unwrap();
        assert_eq!(
            code(delete.unbounded((ground.uri(path), true, Default::default())).await),
            OUTSIDE,
            "{path}"
        );
        assert_eq!(code(ground.transfer(true, path, "work/taken", false).await), OUTSIDE, "{path}");
        assert_eq!(code(ground.transfer(false, "work/a.txt", path, false).await), OUTSIDE, "{path}");
    }
    // Nor does it go along with what holds it.
    for keep in [true, false] {
        assert_eq!(code(ground.transfer(keep, "work/.config", "more/taken", false).await), OUTSIDE);
    }
    let delete = ground.files.delete.as_ref().unwrap();
    assert_eq!(code(delete.unbounded((ground.uri("work/.config"), true, Default::default())).await), OUTSIDE);
    for typed in [".config/host/", "way/", ".config/host/va"] {
        let found = ground.files.complete.unbounded((ground.uri("work"), typed.to_owned())).await.unwrap();
        assert!(!json!(found).to_string().contains("vault"), "{typed}: {found:?}");
    }
    assert_eq!(fs::read_to_string(ground.at("work/.config/host/vault.json")).unwrap(), "KEEP OUT");
    // A directory in it that is served for itself is.
    assert_eq!(ground.read(&ground.uri("work/.config/host/open/a")).await.unwrap(), "a");
}

#[tokio::test]
async fn nothing_is_written_in_git_s_own_folder_whatever_the_command_and_the_path() {
    let ground = Ground::new();
    let work = ground.at("work");
    for (path, text) in [
        ("work/.git/config", "old"),
        ("work/.git/modules/lib/config", "old"),
        ("work/lib/.git", "gitdir: ../.git/modules/lib"),
        ("work/bare/.bare/config", "old"),
        ("work/bare/.bare/HEAD", "ref: refs/heads/main"),
        ("work/bare/.bare/refs/heads/main", "old"),
        ("work/bare/.bare/objects/info/alternates", "old"),
        ("work/bare/.git", "gitdir: ./.bare"),
        ("work/half/objects/x", "x"),
        ("work/half/refs/x", "x"),
        ("more/ready/config", "[filter \"x\"]\n\tclean = touch ran\n"),
    ] {
        let path = ground.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    symlink(".git", work.join("linked")).unwrap();
    symlink("../.git/hooks", work.join("sub/hooks")).unwrap();
    fs::create_dir(work.join(".git/hooks")).unwrap();
    let before = tree(&work);
    let inside = [
        "work/.git",
        "work/.git/config",
        "work/.git/hooks/pre-commit",
        "work/.git/info/attributes",
        "work/.git/modules/lib/config",
        "work/.GIT/config",
        "work/.Git",
        "work/new/.git",
        "work/new/.git/config",
        "work/linked/config",
        "work/sub/hooks/pre-commit",
        "work/lib/.git",
        "work/bare/.git",
        "work/bare/.bare/config",
        "work/bare/.bare/hooks/pre-commit",
        "work/half/HEAD",
    ];
    for path in inside {
        assert_eq!(code(ground.write(path, text("new")).await), OUTSIDE, "{path}");
        let mkdir = ground.files.mkdir.as_ref().unwrap();
        assert_eq!(code(mkdir.unbounded((ground.uri(path), Default::default())).await), OUTSIDE, "{path}");
        let delete = ground.files.delete.as_ref().unwrap();
        let deleted = delete.unbounded((ground.uri(path), true, Default::default())).await;
        assert_eq!(code(deleted), OUTSIDE, "{path}");
        for keep in [true, false] {
            let moved = ground.transfer(keep, "more/ready/config", path, false).await.unwrap_err();
            assert!(moved.message.contains("git's own folder"), "{path}: {moved:?}");
            assert_eq!(code(ground.transfer(keep, "more/ready", path, false).await), OUTSIDE, "{path}");
        }
        assert_eq!(code(ground.transfer(false, path, "more/taken", false).await), OUTSIDE, "{path}");
    }
    assert_eq!(tree(&work), before);
    // Reading is as before, and so are names that only begin alike, whole repositories, and copies out of the folder.
    assert_eq!(ground.read(&ground.uri("work/.git/config")).await.unwrap(), "old");
    ground.write("work/.gitignore", text("x")).await.unwrap();
    assert_eq!(code(ground.write("work/.github/a.yml", text("x")).await), NOT_THERE);
    ground.write("work/refs", text("x")).await.unwrap();
    ground.transfer(true, "work/.git/config", "more/copied", false).await.unwrap();
    ground.transfer(false, "work/bare", "more/bare", false).await.unwrap();
    let delete = ground.files.delete.as_ref().unwrap();
    delete.unbounded((ground.uri("more/bare"), true, Default::default())).await.unwrap();
}

/// All files and links below a folder, with their contents and targets.
fn tree(folder: &Path) -> Vec<(PathBuf, String)> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match (path.is_symlink(), path.is_dir()) {
                (true, _) => found.push((path.clone(), path.read_link().unwrap().display().to_string())),
                (_, true) => open.push(path),
                _ => found.push((path.clone(), fs::read_to_string(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

/// The calls of the system that change names, and those that make them durable.
const TRACED: &str = "rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,fsync,fdatasync,syncfs";

/// Changes files below a folder, each in folders that no other change touches.
async fn change_files(folder: &Path) {
    for (path, text) in [("d/old", "x"), ("a/f", "x"), ("c1/f", "x"), ("t1/tree/sub/f", "x")] {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for name in ["w", "m", "b", "c2", "t2"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    let files = Arc::new(DiskFiles::new(&[folder.to_owned()])).into_point();
    let uri = |path: &str| format!("file://{}", folder.join(path).display());
    let moved = |from: &str, to: &str| (uri(from), uri(to), ResourceTransfer::default(), Default::default());
    files.write.as_ref().unwrap().unbounded((uri("w/new"), text("x"), Default::default())).await.unwrap();
    files.mkdir.as_ref().unwrap().unbounded((uri("m/x/y"), Default::default())).await.unwrap();
    files.delete.as_ref().unwrap().unbounded((uri("d/old"), false, Default::default())).await.unwrap();
    files.r#move.as_ref().unwrap().unbounded(moved("a/f", "b/f")).await.unwrap();
    files.copy.as_ref().unwrap().unbounded(moved("c1/f", "c2/f")).await.unwrap();
    files.copy.as_ref().unwrap().unbounded(moved("t1/tree", "t2/tree")).await.unwrap();
}

#[tokio::test]
async fn every_change_of_files_is_synced() {
    if let Some(folder) = crate::killed::folder() {
        return change_files(&folder).await;
    }
    let (dir, trace) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let folder = dir.path().canonicalize().unwrap();
    // Its place in Debian, which need not be in the `PATH` of a test.
    let traced = std::process::Command::new("/usr/bin/strace")
        .args(["-f", "-qq", "-yy", "-s", "4096", "-e"])
        .arg(format!("trace={TRACED}"))
        .arg("-o")
        .arg(trace.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "files::every_change_of_files_is_synced", "--test-threads=1"])
        .env(crate::killed::FOLDER, &folder)
        .output();
    let traced = match traced {
        Ok(traced) => traced,
        Err(error) => return crate::not_run::not_run(&format!("strace cannot be started: {error}")),
    };
    let lines = fs::read_to_string(trace.path()).unwrap();
    if !traced.status.success() && lines.is_empty() {
        let why = String::from_utf8_lossy(&traced.stderr).into_owned();
        return crate::not_run::not_run(&format!("strace cannot trace: {why}"));
    }
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stdout));
    let last = |call: &dyn Fn(&str) -> bool, path: &str| {
        let named = format!("<{}>", folder.join(path).display());
        lines.lines().enumerate().filter(|(_, line)| call(line) && line.contains(&named)).last()
    };
    let is_sync = |line: &str| line.contains("sync(") || line.contains("syncfs(");
    for path in ["w", "m", "m/x", "d", "a", "b", "c2", "c2/f", "t2", "t2/tree"] {
        let synced = last(&is_sync, path).unwrap_or_else(|| panic!("{path} is not synced:\n{lines}"));
        if let Some(changed) = last(&|line| !is_sync(line), path) {
            assert!(changed.0 < synced.0, "{path} changes after it was synced:\n{lines}");
        }
    }
}
