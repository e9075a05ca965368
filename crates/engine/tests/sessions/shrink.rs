//! Shrinks a failing list of steps.

/// Removes what a failure does not need: ever smaller parts of the list, for as long as the rest fails. Tries at most `most` lists.
pub(super) fn shrink<T: Clone>(steps: Vec<T>, most: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let (mut steps, mut tries) = (steps, 0);
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        let before = steps.len();
        while from < steps.len() && tries < most {
            let to = (from + size).min(steps.len());
            let rest: Vec<T> = steps[..from].iter().chain(&steps[to..]).cloned().collect();
            tries += 1;
            match fails(&rest) {
                true => steps = rest,
                false => from = to,
            }
        }
        if tries >= most {
            break;
        }
        // Single steps are tried again for as long as one was removed.
        size = if size == 1 && steps.len() < before { 1 } else { size / 2 };
    }
    steps
}

#[test]
fn what_a_failure_does_not_need_is_removed() {
    let all: Vec<u32> = (0..100).collect();
    let needs = |of: &[u32], steps: &[u32]| of.iter().all(|one| steps.contains(one));
    for of in [vec![0], vec![99], vec![3, 50], vec![7, 8, 9, 91], vec![]] {
        assert_eq!(shrink(all.clone(), 1000, |steps| needs(&of, steps)), of);
    }
    // The order stays, and a step that needs another one is found.
    let paired = |steps: &[u32]| steps.contains(&40) && (steps.contains(&10) || !steps.contains(&20));
    let shrunk = shrink(all.clone(), 1000, paired);
    assert_eq!(shrunk, [40]);
    let mut tried = 0;
    let shrunk = shrink(all, 5, |_| {
        tried += 1;
        false
    });
    assert_eq!((tried, shrunk.len()), (5, 100), "it ends");
}
