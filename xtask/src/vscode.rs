//! `cargo xtask vscode`: drives VS Code's web UI against the daemon.
//!
//! `xtask/vscode/check.mjs` contains the steps. VS Code is the npm package `code-server`, which installs without a
//! compiler: its optional native modules are not built. The browser is Debian's `chromium`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the scripts and their package versions.
const SOURCES: &str = "xtask/vscode";
/// The folder in which npm installs the packages.
const TOOLS: &str = "target/vscode";
/// The default folder for screenshots, logs and frames.
const OUTPUT: &str = "target/verify/vscode";

/// Builds the daemon, installs VS Code and runs the steps; `--screenshots FOLDER` sets the folder for their output.
///
/// # Errors
/// The failed steps, or a missing program.
pub fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let output = match arguments {
        [] => root.join(OUTPUT),
        [option, folder] if option == "--screenshots" => PathBuf::from(folder),
        _ => return Err("use cargo xtask vscode [--screenshots FOLDER]".to_owned()),
    };
    let browser = ["chromium", "chromium-browser"].iter().find_map(|name| on_path(name));
    let browser = browser.ok_or("chromium is not installed; run apt-get install chromium")?;
    let node = install(root)?;
    let mut build = crate::cargo::cargo();
    // With the features of the whole workspace, as the tests build it: nothing is compiled twice.
    build.args(["build", "--quiet", "--locked", "--workspace", "--bin", "ostler"]).current_dir(root);
    finished(&mut build, "the daemon could not be built")?;
    let target = crate::cargo::target(root);
    let mut command = Command::new(node);
    command
        .arg(root.join(SOURCES).join("check.mjs"))
        .arg("--ostler")
        .arg(target.join("debug/ostler"))
        .arg("--tools")
        .arg(root.join(TOOLS))
        .arg("--output")
        .arg(&output)
        .env("CHROMIUM", browser)
        .current_dir(root);
    let ended = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let ended = ended.map_err(|error| format!("the steps could not be run: {error}"))?;
    let text = String::from_utf8_lossy(&ended.stdout);
    let (last, steps) =
        text.trim_end().rsplit_once('\n').map_or((text.trim_end(), ""), |(steps, last)| (last, steps));
    let told: Vec<&str> = steps.lines().filter(|line| !line.starts_with("passed: ")).collect();
    match ended.status.success() {
        true => Ok(last.to_owned()),
        false => Err(format!("{}\n{last}; see {}", told.join("\n"), output.display())),
    }
}

/// Installs the packages of the scripts if the lock file has changed; returns the Node that VS Code needs.
fn install(root: &Path) -> Result<PathBuf, String> {
    let (sources, tools) = (root.join(SOURCES), root.join(TOOLS));
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let node = tools.join(format!("node_modules/node-linux-{architecture}/bin"));
    let lock = "package-lock.json";
    let failed = |error: std::io::Error| format!("{TOOLS}: {error}");
    let wanted = fs::read(sources.join(lock)).map_err(failed)?;
    let installed = tools.join("installed-lock.json");
    if fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(node.join("node"));
    }
    fs::create_dir_all(&tools).map_err(failed)?;
    for name in ["package.json", lock] {
        fs::copy(sources.join(name), tools.join(name)).map_err(failed)?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let window = tools.join("node_modules/code-server/lib/vscode");
    // The dependencies of the packaged VS Code, at the versions that the package pins.
    for folder in [tools.clone(), window.clone(), window.join("extensions")] {
        let mut npm = Command::new("npm");
        npm.args(["install", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--silent"])
            .env("PATH", format!("{}:{path}", node.display()))
            .current_dir(&folder);
        finished(&mut npm, "VS Code could not be installed; npm is needed, which Debian has as npm")?;
    }
    fs::write(installed, wanted).map_err(failed)?;
    Ok(node.join("node"))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn finished(command: &mut Command, otherwise: &str) -> Result<(), String> {
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{otherwise} ({status})")),
        Err(error) => Err(format!("{otherwise} ({error})")),
    }
}
