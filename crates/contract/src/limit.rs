//! How long calls of plugins' functions may take, one declaration for each kind of call.
//!
//! A call that takes longer fails for its caller. A call that may take arbitrarily long says `unbounded` where it is
//! made: what a backend does in a turn, tools, listeners, builds of containers, input of terminals, and functions that
//! end something that no caller waits for. Such a call is awaited by a task that only serves the plugin that is called, or the
//! request that asked for it.

use std::time::Duration;

/// A read or write of a store: sessions, automations, records, usage, attachments, secrets. Local stores answer within
/// milliseconds; a store on a network gets a retry.
pub const STORE: Duration = Duration::from_secs(10);
/// Reading everything a store has, once, when the host starts.
pub const STORE_SCAN: Duration = Duration::from_secs(120);
/// Ending a store, when the host closes.
pub const STORE_CLOSE: Duration = Duration::from_secs(5);
/// Reading the policies: work waits for it.
pub const POLICIES: Duration = Duration::from_secs(5);

/// Starting a backend: it may start processes and load a conversation.
pub const BACKEND_START: Duration = Duration::from_secs(120);
/// Ending a backend.
pub const BACKEND_CLOSE: Duration = Duration::from_secs(5);
/// What a backend says of itself: its id, its settings and their defaults.
pub const BACKEND_FACTS: Duration = Duration::from_secs(10);
/// Taking a message into a running turn.
pub const STEER: Duration = Duration::from_secs(5);
/// Deleting a backend's own copy of a conversation.
pub const BACKEND_DELETE: Duration = Duration::from_secs(30);
/// The models and customizations a backend offers: it may start processes for that.
pub const BACKEND_PROBE: Duration = Duration::from_secs(120);
/// Hidden context before the first turn of a chat; without an answer, the chat opens without it.
pub const PREAMBLE: Duration = Duration::from_secs(10);

/// The description of a channel, a command or a scheme that a plugin serves; without an answer, the host continues without it.
pub const DESCRIBE: Duration = Duration::from_secs(5);
/// Whether a client may use something; without an answer, it may not.
pub const AUTHORIZE: Duration = Duration::from_secs(10);
/// The snapshot of a plugin's channel.
pub const SNAPSHOT: Duration = Duration::from_secs(10);
/// Which clients see an action of a plugin's channel; without an answer, they do not.
pub const VISIBLE: Duration = Duration::from_secs(5);
/// Telling a plugin's channel that a client left.
pub const LEFT: Duration = Duration::from_secs(10);
/// A command of a plugin: as long as a client's tool, which is long.
pub const COMMAND: Duration = Duration::from_secs(600);
/// The choices of a setting that are shown first.
pub const CHOICES: Duration = Duration::from_secs(5);
/// The choices of a setting for what a user typed.
pub const CHOICES_TYPED: Duration = Duration::from_secs(10);
/// What a plugin wants to do when the host closes.
pub const CLOSE: Duration = Duration::from_secs(10);

/// Reading a resource, or facts about it; a client has 30 seconds for its own.
pub const RESOURCE: Duration = Duration::from_secs(60);
/// Changing a resource: a copy of a large directory takes long.
pub const RESOURCE_CHANGE: Duration = Duration::from_secs(600);
/// Completing a file's name while it is typed.
pub const COMPLETION: Duration = Duration::from_secs(10);

/// Facts about a directory: its branch, its pull request, what changed in it.
pub const DIRECTORY: Duration = Duration::from_secs(30);
/// A question about a repository.
pub const REPOSITORY: Duration = Duration::from_secs(10);
/// Making or removing a working tree.
pub const WORKTREE: Duration = Duration::from_secs(120);
/// An operation on a changeset, such as a push.
pub const CHANGESET_OPERATION: Duration = Duration::from_secs(300);
/// Recording the state of a directory: the turn of a backend waits for it.
pub const BEFORE_TURN: Duration = Duration::from_secs(5);
/// Opening a pull request: it may push first.
pub const PULL_REQUEST: Duration = Duration::from_secs(120);

/// What machines there are, and how to reach one.
pub const MACHINE: Duration = Duration::from_secs(10);
/// Making, stopping or removing a machine or a container: it may fetch images.
pub const MACHINE_BUILD: Duration = Duration::from_secs(900);
/// Passing a frame on to a container.
pub const RELAY: Duration = Duration::from_secs(60);
/// Opening a terminal.
pub const TERMINAL_OPEN: Duration = Duration::from_secs(30);
/// Ending a terminal or its process.
pub const TERMINAL_CLOSE: Duration = Duration::from_secs(5);
/// A question about telemetry or the network.
pub const DIAGNOSTICS: Duration = Duration::from_secs(30);
