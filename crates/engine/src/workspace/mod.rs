//! Where a session works: its directories, working tree, machine, terminals, changesets and pull requests.

pub(crate) mod changesets;
pub(crate) mod containers;
pub(crate) mod directories;
pub(crate) mod machines;
pub(crate) mod terminals;
pub(crate) mod tree_watch;
pub(crate) mod worktrees;
