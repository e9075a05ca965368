//! The features that `cargo run` and `cargo test --workspace` resolve: where they differ, every crate above the difference is
//! compiled twice.

use std::collections::BTreeSet;
use std::path::Path;

/// Adds a problem for each dependency of the program that tests build with other features.
pub(crate) fn check(root: &Path, problems: &mut Vec<String>) {
    match (resolved(root, "normal,build", &[]), resolved(root, "normal,build,dev", &["--workspace"])) {
        (Ok(run), Ok(test)) => problems.extend(differences(&run, &test)),
        (Err(why), _) | (_, Err(why)) => problems.push(why),
    }
}

/// Returns the packages with their features, one line each: those of the default members, or of what the arguments select.
fn resolved(root: &Path, edges: &str, packages: &[&str]) -> Result<BTreeSet<String>, String> {
    let output = crate::cargo::cargo()
        .args(["tree", "--locked", "--target", "host-tuple", "--prefix", "none", "--format", "{p} {f}"])
        .args(["--edges", edges])
        .args(packages)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo tree could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // A package that was printed before is marked.
    Ok(text.lines().map(|line| line.trim_end_matches(" (*)").trim_end().to_owned()).collect())
}

fn differences(run: &BTreeSet<String>, test: &BTreeSet<String>) -> Vec<String> {
    let line = |line: &String| {
        format!("crates/test-features/Cargo.toml: tests build {line} with other features; add those there")
    };
    run.difference(test).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> BTreeSet<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn another_feature_is_found_and_another_package_is_not() {
        let run = lines(&["a v1.0.0 std", "b v1.0.0"]);
        assert_eq!(
            differences(&run, &lines(&["a v1.0.0 std", "b v1.0.0", "c v1.0.0"])),
            Vec::<String>::new()
        );
        let found = differences(&run, &lines(&["a v1.0.0 full,std", "b v1.0.0"]));
        assert_eq!(
            found,
            [
                "crates/test-features/Cargo.toml: tests build a v1.0.0 std with other features; add those there"
            ]
        );
    }
}
