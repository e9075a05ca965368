//! The stores a host has without any plugin.

#![deny(missing_docs)]

pub mod yaml;
