//! The command line of the program.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        Command::new(env!("CARGO_BIN_EXE_ostler-bench")).args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn without_a_known_task_the_tasks_are_listed() {
    for arguments in [&[][..], &["turn"]] {
        let (code, listed) = bench(arguments);
        assert_eq!(code, Some(2));
        for task in ["cargo benchmarks run ", "cargo benchmarks soak ", "cargo benchmarks packages "] {
            assert!(listed.contains(task), "{listed}");
        }
    }
}

#[test]
fn invalid_arguments_of_a_task_are_refused() {
    for (arguments, why) in [
        (["run", "turns"], "there is no benchmark turns"),
        (["soak", "--minutes"], "unknown argument --minutes"),
    ] {
        let (code, printed) = bench(&arguments);
        assert!(code == Some(1) && printed.contains(why), "{printed}");
    }
}
