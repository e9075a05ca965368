//! Free memory of the allocator is returned, and nothing else.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used)]

/// The tests measure the same process: one at a time.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// A field of this process's status, in kilobytes.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn free_memory_is_returned_and_the_program_stays() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Blocks so small that the allocator takes them from its own heap, with every hundredth in use: what is free lies
    // between them, where only a trim returns it.
    let mut blocks: Vec<Option<Vec<u8>>> = (0..40_000).map(|_| Some(vec![1; 2000])).collect();
    for (at, block) in blocks.iter_mut().enumerate() {
        if at % 100 != 0 {
            *block = None;
        }
    }
    let (heap, program) = (status("RssAnon"), status("RssFile"));
    ostler_memory::trim();
    let (heap_after, program_after) = (status("RssAnon"), status("RssFile"));
    assert!(heap > 60_000, "{heap} kB of free memory are not retained, so there is nothing to return");
    assert!(heap_after < heap / 2, "{heap} kB before, {heap_after} kB after");
    assert!(program_after >= program / 10 * 9, "the program: {program} kB before, {program_after} kB after");
    assert!(blocks.iter().flatten().all(|block| block.iter().all(|byte| *byte == 1)));
}

#[test]
fn a_large_piece_is_returned_when_it_is_freed() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    const MIB: u64 = 1024;
    ostler_memory::map_large();
    let mut pieces: Vec<Vec<u8>> = (0..60).map(|_| vec![1; 4 << 20]).collect();
    // What is between those that stay, too.
    let mut at = 0;
    pieces.retain(|_| {
        at += 1;
        at % 10 == 0
    });
    // The allocator raises its own threshold when one is freed.
    let more: Vec<Vec<u8>> = (0..60).map(|_| vec![1; 4 << 20]).collect();
    let full = status("RssAnon");
    drop(more);
    let left = status("RssAnon");
    assert!(full > 240 * MIB && left < full - 200 * MIB, "{full} kB before, {left} kB after");
    assert_eq!(pieces.len(), 6);
}
