//! Sessions and their chats: what clients see and change, what plugins do in them, what is stored and what another host relays.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod annotations;
mod awake;
mod backends;
mod catalogue;
mod changes;
mod chats;
mod cluster;
mod customizations;
mod detached_trees;
mod directories;
mod drafts;
mod draining;
mod durability;
mod editors;
mod files;
mod host_calls;
mod identity;
mod lanes;
mod moving;
mod order;
mod own_settings;
mod plugin_channels;
mod plugins;
mod queue;
mod random;
mod read_memory;
mod renaming;
mod session_settings;
mod sessions;
mod subscribing;
mod truncation;
mod unstored;
mod usage;
mod world;
