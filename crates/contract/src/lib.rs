//! What a plugin and the host agree on.
//!
//! A plugin is a module with an `apply(host, options)`: native Rust (a [`Plugin`]) or a JavaScript module run
//! on an embedded engine. Both meet the same [registration points](points), each declared once as a plain
//! struct; the conversion of JavaScript values, the check and its sentence, and the TypeScript declarations
//! are made from that declaration.
//!
//! ```
//! use ostler_contract::{Call, Plugin, points::{Tool, ToolContext, ToolSpec}, Value};
//!
//! fn plugin() -> Plugin {
//!     Plugin::new("@example/clock", |host, _options| {
//!         Box::pin(async move {
//!             host.register_tool(Tool {
//!                 definition: ToolSpec {
//!                     name: "time_of_day".into(),
//!                     description: Some("What time it is.".into()),
//!                     ..ToolSpec::default()
//!                 },
//!                 run: Call::new(|(_input, _at): (Value, ToolContext)| async { Ok("noon".into()) }),
//!                 ..Tool::default()
//!             })?;
//!             Ok(())
//!         })
//!     })
//! }
//! # assert_eq!(plugin().spec, "@example/clock");
//! ```
//!
//! Nothing here knows the engine, a socket or a JavaScript runtime.

#![deny(missing_docs)]

// The derive writes paths from outside; here they have to resolve too.
extern crate self as ostler_contract;

mod answering;
pub mod bodies;
pub mod budget;
pub mod call;
mod call_measure;
pub mod cluster;
pub mod cross;
pub mod duration;
pub mod events;
pub mod host;
pub mod http;
pub mod id;
pub mod limit;
pub mod live;
pub mod media_type;
pub mod owner;
pub mod plugin;
pub mod points;
pub mod policy;
pub mod problem;
pub mod problems;
pub mod proxy;
pub mod read;
pub mod recorder;
pub mod registry;
pub mod reserved;
pub mod secret;
pub mod settings;
pub mod shape;
pub mod shared_runs;
pub mod stores;
pub mod thrown;
pub mod time_zone;
pub mod tools_endpoint;
pub mod users;
pub mod vault_name;

pub use bodies::Bodies;
pub use budget::{Budget, Charge};
pub use call::{Call, Func, HostFunction, in_time};
pub use cross::{Cross, Frozen, Mismatch, Text};
pub use host::{Caller, HostCalls, HostFacts, NoHost, PluginContext, PluginHost};
pub use id::{PluginId, Slug};
pub use live::{Function, Live, Pending};
pub use ostler_contract_derive::Cross;
pub use ostler_protocol::{self as protocol, JsonObject, RpcError, Value, grants::Grant, json, wire};
pub use plugin::{Module, Options, Plugin, PluginSource};
pub use problem::Problem;
pub use registry::Registry;
pub use secret::Secret;
pub use thrown::Thrown;
pub use vault_name::VaultName;
