//! The appearance of bots.

use std::hash::{BuildHasher, Hasher};

/// The shapes.
pub(crate) const BODIES: &[&str] = &[
    "robot",
    "humanoid",
    "alien",
    "gumbo",
    "circle",
    "semicircle",
    "smash",
    "square",
    "triangle",
    "pentagon",
    "hexagon",
    "drop",
    "bean",
    "cloud",
    "ghost",
];

/// The colours.
pub(crate) const COLORS: &[&str] =
    &["red", "orange", "yellow", "green", "teal", "blue", "purple", "pink", "brown", "grey", "black"];

/// Returns a random shape.
pub(crate) fn any_body() -> &'static str {
    // The standard library seeds it randomly.
    let seed = std::hash::RandomState::new().build_hasher().finish();
    BODIES[(seed % BODIES.len() as u64) as usize]
}
