//! Terminals: live objects of whoever registered the store, listed on the root channel, each with a channel.

mod client;
mod marks;
mod of_session;
mod screen;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::events::Event;
use ostler_contract::points::{Terminal, TerminalEvents, TerminalRequest, TerminalStore};
use ostler_contract::{Cross, Func, Thrown, limit};
use ostler_protocol::RpcError;
use ostler_protocol::uri::Channel;
use ostler_protocol::wire::actions::{StateAction, TerminalResizedAction};
use ostler_protocol::wire::state::{
    TerminalClaim, TerminalInfo, TerminalLifecycleState, TerminalRunningLifecycleState, TerminalState,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::core::fanout::Subscriber;
use crate::core::file_uris::file_uri;
use crate::core::log::Log;
use crate::core::refusals::{STOPPING, already_exists, not_served};
use crate::workspace::Workspace;
pub(crate) use client::size;
pub(crate) use of_session::Holder;
use screen::Screen;

/// The command line prefix that runs what follows in a terminal.
pub(crate) const PREFIX: &str = "!";
/// The size of a terminal nobody gave one.
pub(crate) const SIZE: (u16, u16) = (80, 24);
/// The longest and widest a terminal may be.
const SIZE_MAX: u16 = 4096;
/// How many terminals may be open.
const MOST: usize = 256;
/// How much typed text may wait for a terminal, in bytes.
const WAITING_MAX: usize = 1 << 20;

/// The terminals there are, in the order they were opened.
#[derive(Debug, Default)]
pub(crate) struct Terminals(Mutex<Vec<Arc<Open>>>);

/// One terminal.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) uri: String,
    screen: Mutex<Screen>,
    handle: OnceLock<Terminal>,
    /// What is typed and resized, in order.
    lane: Mutex<Option<mpsc::UnboundedSender<Tell>>>,
    waiting: AtomicUsize,
    ended: watch::Sender<Option<Option<i64>>>,
}

/// What a terminal is told.
#[derive(Debug)]
enum Tell {
    Input(String),
    Resize(u16, u16),
}

/// A terminal asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub claim: TerminalClaim,
    /// What a person calls it.
    pub name: Option<String>,
    pub request: TerminalRequest,
}

impl Terminals {
    /// The terminal of a URI, once it is listed.
    pub(crate) fn get(&self, uri: &str) -> Option<Arc<Open>> {
        let open = self.0.lock().iter().find(|open| open.uri == uri).cloned()?;
        let listed = open.screen.lock().listed;
        listed.then_some(open)
    }

    /// Takes a URI.
    fn claim(&self, open: &Arc<Open>) -> Result<(), RpcError> {
        let mut all = self.0.lock();
        if all.iter().any(|other| other.uri == open.uri) {
            return Err(RpcError::session_exists(already_exists(&open.uri)));
        }
        if all.len() >= MOST {
            let full =
                format!("{MOST} terminals are open, which is the most this host serves; dispose of one");
            return Err(RpcError::internal(full));
        }
        all.push(open.clone());
        Ok(())
    }

    fn take(&self, uri: &str) -> Option<Arc<Open>> {
        let mut all = self.0.lock();
        let at = all.iter().position(|open| open.uri == uri)?;
        Some(all.remove(at))
    }
}

impl Workspace {
    /// The terminal store.
    pub(crate) fn terminal_store(&self) -> Option<&TerminalStore> {
        self.core.registry()?.port::<TerminalStore>()
    }

    /// Opens a terminal and lists it. One that cannot be leaves nothing behind.
    pub(crate) async fn open_terminal(self: &Arc<Self>, asked: Asked) -> Result<Arc<Open>, RpcError> {
        let store = self.terminal_store().ok_or_else(|| not_served("createTerminal"))?.clone();
        if self.core.is_stopping() {
            return Err(RpcError::internal(STOPPING));
        }
        let mut request = asked.request;
        if request.cwd.is_none() {
            request.cwd = self.core.options.paths.first().cloned();
        }
        let open = Arc::new(Open {
            uri: request.terminal.clone(),
            screen: Mutex::new(Screen::new(request.terminal.clone(), state_of(&request, asked.claim))),
            handle: OnceLock::new(),
            lane: Mutex::new(None),
            waiting: AtomicUsize::new(0),
            ended: watch::Sender::new(None),
        });
        self.terminals.claim(&open)?;
        let cwd = request.cwd.clone().unwrap_or_default();
        let made = store.create.within(limit::TERMINAL_OPEN, (request, self.events_of(&open))).await;
        let made = made.and_then(|made| {
            Cross::check(&made).map_err(|wrong| Thrown::new(format_args!("its terminal needs {wrong}")))?;
            Ok(made)
        });
        let terminal = match made {
            Ok(terminal) => terminal,
            Err(why) => {
                self.terminals.take(&open.uri);
                open.screen.lock().gone = true;
                return Err(match why.rpc {
                    Some(_) => why.into_rpc(),
                    None => RpcError::internal(format!("the terminal could not be opened: {}", why.message)),
                });
            }
        };
        open.start(self, terminal, asked.name);
        // Disposed of, with its session say, before it was there.
        if !self.terminals.0.lock().iter().any(|other| Arc::ptr_eq(other, &open)) {
            self.end_terminal(&open).await;
            return Err(RpcError::internal("the terminal was disposed of before it was open"));
        }
        self.list_terminals();
        self.core.events.raise(Event::TerminalOpen { terminal: open.uri.clone(), cwd });
        Ok(open)
    }

    /// What the store calls when the terminal says something. It keeps neither the host nor the terminal.
    fn events_of(self: &Arc<Self>, open: &Arc<Open>) -> TerminalEvents {
        let to = || (Arc::downgrade(self), Arc::downgrade(open));
        let both = |(workspace, open): &(Weak<Self>, Weak<Open>)| workspace.upgrade().zip(open.upgrade());
        let (data, exited, titled, moved) = (to(), to(), to(), to());
        TerminalEvents {
            data: Func::new(move |(said,): (String,)| {
                if let Some((workspace, open)) = both(&data) {
                    let now = workspace.core.clock.now().as_millisecond();
                    let retitled = open.screen.lock().said(&workspace.core.fanout, &said, now);
                    workspace.relist(&open, retitled);
                }
                Ok(())
            }),
            exited: Func::new(move |(code,): (Option<i64>,)| {
                if let Some((workspace, open)) = both(&exited) {
                    let now = workspace.core.clock.now().as_millisecond();
                    let new = open.screen.lock().exited(&workspace.core.fanout, code, now);
                    if new {
                        open.ended.send_replace(Some(code));
                        open.lane.lock().take();
                        workspace.terminal_worked(&open);
                    }
                    workspace.relist(&open, new);
                }
                Ok(())
            }),
            title: Func::new(move |(title,): (String,)| {
                if let Some((workspace, open)) = both(&titled) {
                    let retitled = open.screen.lock().calls_itself(&workspace.core.fanout, &title);
                    workspace.relist(&open, retitled);
                }
                Ok(())
            }),
            cwd: Func::new(move |(path,): (String,)| {
                if let Some((workspace, open)) = both(&moved) {
                    open.screen.lock().works_at(&workspace.core.fanout, &path);
                }
                Ok(())
            }),
        }
    }

    /// What ran in a terminal may have changed the files where it worked.
    fn terminal_worked(&self, open: &Open) {
        let (claim, cwd) = {
            let screen = open.screen.lock();
            (screen.state.claim.clone(), screen.state.cwd.clone())
        };
        if let Some(cwd) = cwd {
            self.resource_changed(&cwd);
        }
        if let TerminalClaim::Session(claim) = claim
            && let Some(session) = self.session(&claim.session)
        {
            self.session_worked(session.uri());
        }
    }

    fn relist(&self, open: &Open, changed: bool) {
        if changed && open.screen.lock().listed {
            self.list_terminals();
        }
    }

    /// Says on the root channel which terminals there are.
    fn list_terminals(&self) {
        // Under one lock to the end, so that an older list never follows a newer one.
        let all = self.terminals.0.lock();
        let listed = |open: &Arc<Open>| -> Option<TerminalInfo> {
            let screen = open.screen.lock();
            (screen.listed && !screen.gone).then(|| screen.info())
        };
        self.core.root.set_terminals(&self.core.fanout, all.iter().filter_map(listed).collect());
    }

    /// Ends a terminal and takes it off the list; answers whether there was one.
    pub(crate) async fn dispose_terminal(&self, uri: &str) -> bool {
        let Some(open) = self.terminals.take(uri) else { return false };
        self.list_terminals();
        self.end_terminal(&open).await;
        true
    }

    async fn end_terminal(&self, open: &Open) {
        open.screen.lock().gone = true;
        open.lane.lock().take();
        self.core.fanout.remove(&open.uri);
        if let Some(handle) = open.handle.get() {
            match handle.dispose.within(limit::TERMINAL_CLOSE, ()).await {
                Ok(()) => {}
                Err(why) => {
                    self.core.log.line(format_args!("{}: its dispose failed: {}", open.uri, why.for_log()))
                }
            }
        }
        open.ended.send_if_modified(|ended| ended.replace(ended.flatten()).is_none());
    }

    /// Ends the terminals a session holds.
    pub(crate) async fn end_terminals_of(&self, session: &str) {
        let of_session = |open: &&Arc<Open>| match &open.screen.lock().state.claim {
            TerminalClaim::Session(claim) => {
                self.session(&claim.session).is_some_and(|held| held.uri() == session)
            }
            TerminalClaim::Client(_) => false,
        };
        let held: Vec<String> =
            self.terminals.0.lock().iter().filter(of_session).map(|open| open.uri.clone()).collect();
        futures::future::join_all(held.iter().map(|uri| self.dispose_terminal(uri))).await;
    }

    /// Ends every terminal.
    pub(crate) async fn close_terminals(&self) {
        let all: Vec<String> = self.terminals.0.lock().iter().map(|open| open.uri.clone()).collect();
        futures::future::join_all(all.iter().map(|uri| self.dispose_terminal(uri))).await;
    }
}

impl Open {
    /// Lets clients at it.
    fn start(&self, workspace: &Arc<Workspace>, terminal: Terminal, name: Option<String>) {
        let (lane, told) = mpsc::unbounded_channel();
        let mut screen = self.screen.lock();
        screen.named = name.is_some();
        match (name, &terminal.title) {
            (Some(name), _) => screen.state.title = name,
            // Unless its process said something else meanwhile.
            (None, Some(title)) if screen.state.title == UNTITLED => screen.state.title.clone_from(title),
            _ => {}
        }
        if let Some(cwd) = &terminal.cwd {
            screen.state.cwd = Some(file_uri(cwd));
        }
        let now = workspace.core.clock.now().as_millisecond();
        screen.list(&workspace.core.fanout, terminal.is_pty == Some(true), now);
        if !screen.has_exited() {
            *self.lane.lock() = Some(lane);
        }
        drop(screen);
        let _ = self.handle.set(terminal);
        if let Some(me) = workspace.terminals.0.lock().iter().find(|open| open.uri == self.uri).cloned() {
            tokio::spawn(serve(Arc::downgrade(&me), told, workspace.core.log.clone()));
        }
    }

    /// Adds a watcher; answers the state it begins with and the number it was taken at.
    pub(crate) fn subscribe(&self, workspace: &Workspace, subscriber: Subscriber) -> Option<(String, u64)> {
        self.screen.lock().subscribe(&workspace.core.fanout, subscriber)
    }

    /// Types into it, after what waits.
    fn input(&self, data: String) -> Result<(), &'static str> {
        const EXITED: &str = "the terminal has exited";
        if self.screen.lock().has_exited() {
            return Err(EXITED);
        }
        let lane = self.lane.lock();
        let Some(lane) = &*lane else { return Err(EXITED) };
        if self.waiting.load(Ordering::Acquire) + data.len() > WAITING_MAX {
            return Err("the terminal has not taken what was typed before; wait for it");
        }
        self.waiting.fetch_add(data.len(), Ordering::AcqRel);
        lane.send(Tell::Input(data)).map_err(|_| EXITED)
    }

    /// Everything it said, as far as it is kept.
    fn output(&self) -> String {
        self.screen.lock().output()
    }

    /// Gives it another size, and says so.
    fn resized(&self, workspace: &Workspace, cols: u16, rows: u16) {
        let resized = TerminalResizedAction { cols: cols.into(), rows: rows.into() };
        self.screen.lock().apply(&workspace.core.fanout, &StateAction::TerminalResized(resized), None);
        self.resize(cols, rows);
    }

    fn resize(&self, cols: u16, rows: u16) {
        if let Some(lane) = &*self.lane.lock() {
            let _ = lane.send(Tell::Resize(cols, rows));
        }
    }

    async fn kill(&self) -> Result<(), Thrown> {
        match self.handle.get() {
            Some(Terminal { kill: Some(kill), .. }) => kill.within(limit::TERMINAL_CLOSE, (None,)).await,
            Some(terminal) => terminal.dispose.within(limit::TERMINAL_CLOSE, ()).await,
            None => Ok(()),
        }
    }

    /// The exit code, once there is an end.
    async fn wait(&self) -> Option<i64> {
        let mut ended = self.ended.subscribe();
        let code = ended.wait_for(Option::is_some).await.ok().and_then(|ended| *ended);
        code.flatten()
    }
}

/// Tells a terminal what it is told, one after the other.
async fn serve(open: Weak<Open>, mut told: mpsc::UnboundedReceiver<Tell>, log: Log) {
    while let Some(tell) = told.recv().await {
        let Some(open) = open.upgrade() else { return };
        let Some(terminal) = open.handle.get() else { return };
        let outcome = match tell {
            Tell::Input(data) => {
                let length = data.len();
                let outcome = terminal.input.unbounded((data,)).await;
                open.waiting.fetch_sub(length, Ordering::AcqRel);
                outcome
            }
            Tell::Resize(cols, rows) => match &terminal.resize {
                Some(resize) => resize.unbounded((cols, rows)).await,
                None => Ok(()),
            },
        };
        if let Err(why) = outcome {
            log.line(format_args!("{}: {}", open.uri, why.for_log()));
        }
    }
}

/// What a terminal is called until somebody says.
const UNTITLED: &str = "Terminal";

fn state_of(request: &TerminalRequest, claim: TerminalClaim) -> TerminalState {
    TerminalState {
        title: UNTITLED.to_owned(),
        cwd: request.cwd.as_deref().map(file_uri),
        cols: Some(request.cols.into()),
        rows: Some(request.rows.into()),
        content: Vec::new(),
        lifecycle: TerminalLifecycleState::Running(TerminalRunningLifecycleState {}),
        claim,
        supports_command_detection: Some(false),
        is_pty: Some(false),
    }
}

/// The sentence for a terminal nobody knows.
pub(crate) fn no_terminal(uri: &str) -> RpcError {
    RpcError::not_found(format!("No terminal at {uri}"))
}

/// Whether a URI may name a terminal.
pub(crate) fn is_terminal(uri: &str) -> bool {
    let named = uri.split_once(':').is_some_and(|(_, rest)| !rest.trim_start_matches('/').is_empty());
    named && matches!(Channel::parse(uri), Channel::Terminal(_))
}
