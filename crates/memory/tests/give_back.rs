//! What is given back is gone, and there again when it is used.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

/// How much of this program's own file is mapped, in kilobytes.
fn of_the_program() -> u64 {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let mut sum = 0;
    for line in maps.lines() {
        if let Some(resident) = line.strip_prefix("Rss:") {
            let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
            sum += if ours { resident } else { 0 };
        } else if line.contains('-') && !line.starts_with(char::is_uppercase) {
            ours = line.ends_with(program) && !line.contains(" rw");
        }
    }
    sum
}

fn work(seed: u64) -> u64 {
    (0..50_000u64).fold(seed, |a, b| a.rotate_left(3) ^ b)
}

#[test]
fn the_pages_of_the_program_go_and_come_again() {
    // Every page of the program, whichever of it ran.
    let before = of_the_program();
    assert!(before > 200, "{before} kB");
    let threads: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || work(seed))).collect();
    ostler_memory::give_back();
    let sums: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let again: Vec<u64> = (0..4).map(work).collect();
    assert_eq!(sums, again, "whoever ran meanwhile went on");
    ostler_memory::give_back();
    let after = of_the_program();
    assert!(after < before, "{before} kB before, {after} kB after");
}
