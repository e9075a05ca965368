//! The programs that use npm packages in plugins, and the page that lists them. `cargo benchmarks packages` runs them.
//!
//! A program is a file in `crates/js/packages/uses`. The section `ostler` of `package.json` declares which are run for each
//! change, and which results are known to differ from Node's.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// The folder of the programs and the lock file.
pub const SOURCE: &str = "crates/js/packages";
/// The page with the packages.
pub(crate) const PAGE: &str = "docs/packages.md";
/// The beginning of the list of packages without a program, because they were tried and do not work.
const UNSUPPORTED: &str = "\nThese were tried and do not work, or not completely. Packages with native addons are not listed;\n\
                           importing one throws an error that names it.\n\n| package | why |\n|---|---|\n";

/// The programs and their manifest.
pub struct Programs {
    manifest: Value,
    names: Vec<String>,
}

impl Programs {
    /// Reads the manifest and the names of the programs.
    ///
    /// # Errors
    /// The file or folder that cannot be read.
    pub fn read(root: &Path) -> Result<Self, String> {
        let folder = root.join(SOURCE).join("uses");
        let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut names: Vec<String> = files
            .filter_map(|file| {
                Some(file.ok()?.path().file_name()?.to_str()?.strip_suffix(".mjs")?.to_owned())
            })
            .collect();
        names.sort_unstable();
        Ok(Self { manifest: json(&root.join(SOURCE).join("package.json"))?, names })
    }

    /// Returns the names of the programs, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns whether a program is run for each change.
    pub fn in_subset(&self, name: &str) -> bool {
        let subset = self.manifest.pointer("/ostler/subset").and_then(Value::as_array);
        subset.is_some_and(|subset| subset.iter().any(|listed| listed == name))
    }

    /// Returns the reason why a program's result is known to differ from Node's.
    pub fn known_difference(&self, name: &str) -> Option<&str> {
        self.manifest.pointer("/ostler/known")?.get(name)?.as_str()
    }
}

fn json(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the page: each program with the packages that it imports. A program works unless the manifest says why not.
pub(crate) fn page(root: &Path) -> Result<String, String> {
    let programs = Programs::read(root)?;
    let lock = json(&root.join(SOURCE).join("package-lock.json"))?;
    let same = programs.names.iter().filter(|name| programs.known_difference(name).is_none()).count();
    let mut page = format!(
        "# npm packages in plugins\n\n\
         Small programs that use npm packages, run under Node and in a plugin, against local servers. A package works if both\n\
         give the same answer. The programs are in [{SOURCE}](../{SOURCE}/uses); `cargo benchmarks packages`\n\
         runs them and compares the results with this page; `--subset` runs those marked with *. `cargo xtask generate` writes\n\
         the page.\n\n\
         {same} of {} programs answer as under Node.\n\n\
         ## What it does not say\n\n\
         A package that is not listed was not tried. A program uses the main functions of a package, not all of them, in the\n\
         version that is listed; another version can behave differently. No package was tried for its speed: the engine\n\
         interprets JavaScript, so computation is several times slower than in Node.\n\n\
         ## Programs\n\n\
         | program | packages | result |\n\
         |---|---|---|\n",
        programs.names.len()
    );
    for name in programs.names() {
        let text = fs::read_to_string(root.join(SOURCE).join("uses").join(format!("{name}.mjs")))
            .map_err(|error| error.to_string())?;
        let mark = if programs.in_subset(name) { " *" } else { "" };
        let result = programs.known_difference(name).unwrap_or("works");
        let _ = writeln!(page, "| `{name}`{mark} | {} | {result} |", imported(&text, &lock).join(", "));
    }
    let unsupported = programs.manifest.pointer("/ostler/unsupported").and_then(Value::as_object);
    if let Some(packages) = unsupported.filter(|packages| !packages.is_empty()) {
        page += UNSUPPORTED;
        for (package, why) in packages {
            let _ = writeln!(page, "| `{package}` | {} |", why.as_str().unwrap_or_default());
        }
    }
    Ok(page)
}

/// Returns the packages that a program imports, with their installed versions.
fn imported(text: &str, lock: &Value) -> Vec<String> {
    let mut packages = Vec::new();
    for line in text.lines() {
        let Some(specifier) = line.split_once(" from '").and_then(|(_, rest)| rest.split_once('\'')) else {
            continue;
        };
        let mut parts = specifier.0.split('/');
        let first = parts.next().unwrap_or_default();
        let package = match parts.next() {
            Some(second) if first.starts_with('@') => format!("{first}/{second}"),
            _ => first.to_owned(),
        };
        let version =
            lock.pointer(&format!("/packages/node_modules~1{}/version", package.replace('/', "~1")));
        if let Some(version) = version.and_then(Value::as_str) {
            let shown = format!("`{package}` {version}");
            if !packages.contains(&shown) {
                packages.push(shown);
            }
        }
    }
    packages
}
