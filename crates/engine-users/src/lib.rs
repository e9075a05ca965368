//! The users of an ostler host, what they may do, what they used, and resources.

pub mod resources;
pub mod usage;
pub mod users;
