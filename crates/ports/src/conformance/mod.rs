//! What every store of a point has to do, whoever provides it: one suite per point. A case that fails panics.
//!
//! Each wants an empty store, and a tokio runtime around it.

// These are tests, in a place where others can run them too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod vault;

pub use vault::vault_conformance;
