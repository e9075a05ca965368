//! The checks of `cargo xtask tidy`, inside the test run.

#[test]
fn the_workspace_is_tidy() {
    let problems = xtask::tidy::check(&xtask::tidy::root());
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
