//! What was acknowledged is there after the next start, however the process ended and whatever the disk did: killed at any
//! moment, with a disk that is slow, fails, is full or is lost, and without power.
//!
//! Everything that can be acknowledged is a lane in `roads.rs`, and is looked for in `found.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod disturbed;
mod found;
mod kills;
mod recorded;
mod roads;
mod told;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Another number every time, and the same for a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

/// A seed of its own for each run of a test, which prints it.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

/// A number from the environment, which says how long a test takes.
fn rounds(variable: &str, usual: u32) -> u32 {
    std::env::var(variable).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(usual)
}
