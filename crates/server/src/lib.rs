//! The transports: one listener with its mounts, WebSocket connections, and stdio.
//!
//! The first mount that matches a request handles it; a mount cannot be built without a guard. A request without a
//! mount must be a WebSocket handshake, or is rejected.

mod body;
mod guard;
mod heads;
mod linger;
mod links;
mod listener;
mod mount;
mod reply;
mod routes;
mod sign_ins;
mod stdio;
mod tools;
mod websocket;

pub use guard::{Admitted, HostNames, Token, known_bearer, names_a_host};
pub use links::WebSocketLinks;
pub use listener::{HangUp, Listener, Server};
pub use mount::{Guard, Handler, Mount};
pub use reply::{Reply, TooLong, charged, refuse};
pub use routes::{no_plugin_routes, plugin_routes};
pub use sign_ins::{LIFETIME as SIGN_IN_LIFETIME, SignIns};
pub use stdio::serve_stdio;
pub use tools::ToolServers;
