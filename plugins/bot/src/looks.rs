//! What a bot is drawn with.

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

/// Any of the shapes.
pub(crate) fn any_body() -> &'static str {
    // The standard library seeds it at random.
    let seed = std::hash::RandomState::new().build_hasher().finish();
    BODIES[(seed % BODIES.len() as u64) as usize]
}
