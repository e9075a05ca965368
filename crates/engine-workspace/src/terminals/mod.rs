//! Terminals: live objects of the terminal store, listed on the root channel, each with a channel.

mod client;
mod marks;
mod of_session;
mod past;
mod screen;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ostler_contract::events::Event;
use ostler_contract::points::{Terminal, TerminalEvents, TerminalRequest, TerminalStore};
use ostler_contract::{Cross, Func, HostFunction, Thrown, limit};
use ostler_engine_core::fanout::{Fanout, Room, Stream, Subscriber};
use ostler_engine_core::file_uris::file_uri;
use ostler_engine_core::log::Log;
use ostler_engine_core::refusals::{STOPPING, already_exists, not_served};
use ostler_engine_core::tasks;
use ostler_protocol::RpcError;
use ostler_protocol::grants::Grant;
use ostler_protocol::uri::Channel;
use ostler_protocol::wire::actions::{StateAction, TerminalResizedAction};
use ostler_protocol::wire::state::{
    TerminalClaim, TerminalInfo, TerminalLifecycleState, TerminalRunningLifecycleState, TerminalState,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::Workspace;
pub use client::size;
pub use of_session::Holder;
use screen::Screen;

/// The message prefix that runs the following command in a terminal.
pub const PREFIX: &str = "!";
/// The default size of a terminal.
pub const SIZE: (u16, u16) = (80, 24);
/// The maximum size of a terminal.
const SIZE_MAX: u16 = 4096;
/// The maximum number of open terminals.
const MOST: usize = 256;
/// The maximum size of queued input of a terminal, in bytes.
const WAITING_MAX: usize = 1 << 20;
/// The minimum interval of updates of the list after changes of titles.
const LIST_EVERY: Duration = Duration::from_millis(200);
/// How long a terminal waits for subscribers while none can receive more.
const WAIT_FOR_ALL: Duration = Duration::from_millis(100);
/// How long it waits while one can.
const WAIT_FOR_SOME: Duration = Duration::from_millis(10);
/// How long a resize waits for earlier input, which a program may never read.
const WAIT_FOR_INPUT: Duration = Duration::from_millis(50);
/// When to retry a send for which there was no memory.
const RETRY: Duration = Duration::from_millis(100);

/// The terminals, in the order of their opening.
#[derive(Debug, Default)]
pub struct Terminals {
    open: Mutex<Vec<Arc<Open>>>,
    /// Notified when a title in the list changes.
    titles: Arc<Notify>,
    lists: AtomicBool,
}

impl Drop for Terminals {
    fn drop(&mut self) {
        self.titles.notify_one();
    }
}

/// One terminal.
#[derive(Debug)]
pub struct Open {
    pub uri: String,
    /// The owner of the work of the client that opened it.
    opener: Option<String>,
    screen: Mutex<Screen>,
    handle: OnceLock<Terminal>,
    /// Queued input and resizes, in order.
    lane: Mutex<Option<mpsc::UnboundedSender<TerminalInput>>>,
    waiting: AtomicUsize,
    /// Its latest size.
    size: watch::Sender<(u16, u16)>,
    ended: watch::Sender<Option<Option<i64>>>,
}

#[derive(Debug)]
enum TerminalInput {
    Input(String),
    /// A change of its size.
    Resize,
}

/// A request for a terminal.
#[derive(Debug)]
pub struct NewTerminal {
    pub claim: TerminalClaim,
    /// The owner of the work of the client that opens it; none for a terminal of a session.
    pub opener: Option<String>,
    pub name: Option<String>,
    pub request: TerminalRequest,
}

impl Terminals {
    /// Returns the terminal of a URI, once it is listed.
    pub fn get(&self, uri: &str) -> Option<Arc<Open>> {
        let open = self.open.lock().iter().find(|open| open.uri == uri).cloned()?;
        let listed = open.screen.lock().listed;
        listed.then_some(open)
    }

    /// Reserves a URI.
    fn claim(&self, open: &Arc<Open>) -> Result<(), RpcError> {
        let mut all = self.open.lock();
        if all.iter().any(|other| other.uri == open.uri) {
            return Err(RpcError::session_exists(already_exists(&open.uri)));
        }
        if all.len() >= MOST {
            let full = format!("{MOST} terminals are open, which is the limit; dispose of one");
            return Err(RpcError::internal(full));
        }
        all.push(open.clone());
        Ok(())
    }

    /// Removes a terminal and ends its channel.
    fn take(&self, which: impl Fn(&Arc<Open>) -> bool, fanout: &Fanout) -> Option<Arc<Open>> {
        let mut all = self.open.lock();
        let at = all.iter().position(which)?;
        let open = all.remove(at);
        // Published before another terminal can take its URI.
        open.leave(fanout);
        Some(open)
    }
}

impl Workspace {
    pub fn terminal_store(&self) -> Option<&TerminalStore> {
        self.core.registry()?.port::<TerminalStore>()
    }

    /// Opens a terminal and lists it. A failure leaves nothing behind.
    pub async fn open_terminal(self: &Arc<Self>, asked: NewTerminal) -> Result<Arc<Open>, RpcError> {
        let store = self.terminal_store().ok_or_else(|| not_served("createTerminal"))?.clone();
        if self.core.is_stopping() {
            return Err(RpcError::internal(STOPPING));
        }
        let mut request = asked.request;
        if request.cwd.is_none() {
            request.cwd = self.core.options.paths.first().cloned();
        }
        let open = Arc::new(Open {
            size: watch::Sender::new((request.cols, request.rows)),
            uri: request.terminal.clone(),
            opener: asked.opener,
            screen: Mutex::new(Screen::new(
                request.terminal.clone(),
                state_of(&request, asked.claim),
                self.core.budget.clone(),
            )),
            handle: OnceLock::new(),
            lane: Mutex::new(None),
            waiting: AtomicUsize::new(0),
            ended: watch::Sender::new(None),
        });
        self.terminals.claim(&open)?;
        // From here on `review_terminals` finds it; users can have changed since the command was let in.
        if let Some(refused) = open.opener.as_ref().and_then(|opener| self.may_still_open(opener).err()) {
            self.terminals.take(|other| Arc::ptr_eq(other, &open), &self.core.fanout);
            return Err(refused);
        }
        let cwd = request.cwd.clone().unwrap_or_default();
        let made = store.create.within(limit::TERMINAL_OPEN, (request, self.events_of(&open))).await;
        let made = made.and_then(|made| {
            Cross::check(&made).map_err(|wrong| Thrown::new(format_args!("its terminal needs {wrong}")))?;
            Ok(made)
        });
        let terminal = match made {
            Ok(terminal) => terminal,
            Err(why) => {
                self.terminals.take(|other| Arc::ptr_eq(other, &open), &self.core.fanout);
                return Err(match why.rpc {
                    Some(_) => why.into_rpc(),
                    None => RpcError::internal(format!("the terminal could not be opened: {}", why.message)),
                });
            }
        };
        self.list_titles();
        open.start(self, terminal, asked.name);
        // It was disposed of before it was open, for example with its session.
        if !self.terminals.open.lock().iter().any(|other| Arc::ptr_eq(other, &open)) {
            self.end_terminal(&open).await;
            return Err(RpcError::internal("the terminal was disposed of before it was open"));
        }
        self.list_terminals();
        self.core.events.raise(Event::TerminalOpen { terminal: open.uri.clone(), cwd });
        Ok(open)
    }

    /// Returns the callbacks for the store. They keep neither the host nor the terminal alive.
    fn events_of(self: &Arc<Self>, open: &Arc<Open>) -> TerminalEvents {
        let to = || (Arc::downgrade(self), Arc::downgrade(open));
        let both = |(workspace, open): &(Weak<Self>, Weak<Open>)| workspace.upgrade().zip(open.upgrade());
        let (data, exited, titled, moved, ready) = (to(), to(), to(), to(), to());
        TerminalEvents {
            data: Func::new(move |(said,): (String,)| {
                if let Some((workspace, open)) = both(&data) {
                    let now = workspace.core.clock.now().as_millisecond();
                    let (retitled, off) = {
                        let mut screen = open.screen.lock();
                        (screen.said(&workspace.core.fanout, &said, now), screen.off.take())
                    };
                    if let Some(why) = off {
                        let uri = &open.uri;
                        let log = &workspace.core.log;
                        log.warn(format_args!("{uri}: its shell does not report its commands: {why}"));
                    }
                    workspace.retitled(&open, retitled);
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
                    workspace.retitled(&open, retitled);
                }
                Ok(())
            }),
            cwd: Func::new(move |(path,): (String,)| {
                if let Some((workspace, open)) = both(&moved) {
                    open.screen.lock().works_at(&workspace.core.fanout, &path);
                }
                Ok(())
            }),
            ready: HostFunction::new(move |()| {
                let to = both(&ready);
                async move {
                    if let Some((workspace, open)) = to {
                        open.ready(&workspace).await;
                    }
                    Ok(())
                }
            }),
        }
    }

    /// A command in a terminal can have changed files in its directory.
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

    /// Schedules an update of a title in the list.
    fn retitled(&self, open: &Open, changed: bool) {
        if changed && open.screen.lock().listed {
            self.terminals.titles.notify_one();
        }
    }

    /// Updates the list after changes of titles, at a bounded rate.
    fn list_titles(self: &Arc<Self>) {
        if self.terminals.lists.swap(true, Ordering::AcqRel) {
            return;
        }
        let (titles, workspace) = (self.terminals.titles.clone(), Arc::downgrade(self));
        tasks::spawn(async move {
            loop {
                titles.notified().await;
                let Some(workspace) = workspace.upgrade() else { return };
                workspace.list_terminals();
                drop(workspace);
                tokio::time::sleep(LIST_EVERY).await;
            }
        });
    }

    fn relist(&self, open: &Open, changed: bool) {
        if changed && open.screen.lock().listed {
            self.list_terminals();
        }
    }

    /// Publishes the list of terminals on the root channel.
    fn list_terminals(&self) {
        // Under one lock until it is sent, so that an older list never follows a newer one.
        let all = self.terminals.open.lock();
        let listed = |open: &Arc<Open>| -> Option<TerminalInfo> {
            let screen = open.screen.lock();
            (screen.listed && !screen.gone).then(|| screen.info())
        };
        self.core.root.set_terminals(&self.core.fanout, all.iter().filter_map(listed).collect());
    }

    /// Ends a terminal and removes it from the list; returns whether there was one.
    pub async fn dispose_terminal(&self, uri: &str) -> bool {
        let taken = self.terminals.take(|open| open.uri == uri, &self.core.fanout);
        let Some(open) = taken else { return false };
        self.list_terminals();
        self.end_terminal(&open).await;
        true
    }

    async fn end_terminal(&self, open: &Open) {
        open.lane.lock().take();
        if let Some(handle) = open.handle.get() {
            match handle.dispose.within(limit::TERMINAL_CLOSE, ()).await {
                Ok(()) => {}
                Err(why) => {
                    self.core.log.warn(format_args!("{}: its dispose failed: {}", open.uri, why.for_log()))
                }
            }
        }
        open.ended.send_if_modified(|ended| ended.replace(ended.flatten()).is_none());
    }

    /// Ends the terminals of clients whose user may no longer open one, after users have changed.
    pub fn review_terminals(self: &Arc<Self>) {
        let may = |open: &Open| open.opener.as_ref().is_none_or(|opener| self.may_still_open(opener).is_ok());
        let forbidden: Vec<String> = self
            .terminals
            .open
            .lock()
            .iter()
            .filter(|open| !may(open))
            .map(|open| open.uri.clone())
            .collect();
        for uri in forbidden {
            let workspace = self.clone();
            tasks::spawn(async move { workspace.dispose_terminal(&uri).await });
        }
    }

    fn may_still_open(&self, opener: &str) -> Result<(), RpcError> {
        self.access.require_still(opener, &Grant::of("terminal", "create"))
    }

    /// Ends the terminals that a session claims.
    pub async fn end_terminals_of(&self, session: &str) {
        let of_session = |open: &&Arc<Open>| match &open.screen.lock().state.claim {
            TerminalClaim::Session(claim) => {
                self.session(&claim.session).is_some_and(|held| held.uri() == session)
            }
            TerminalClaim::Client(_) => false,
        };
        let held: Vec<String> =
            self.terminals.open.lock().iter().filter(of_session).map(|open| open.uri.clone()).collect();
        futures::future::join_all(held.iter().map(|uri| self.dispose_terminal(uri))).await;
    }

    /// Ends every terminal.
    pub async fn close_terminals(&self) {
        let all: Vec<String> = self.terminals.open.lock().iter().map(|open| open.uri.clone()).collect();
        futures::future::join_all(all.iter().map(|uri| self.dispose_terminal(uri))).await;
    }
}

impl Open {
    /// Ends its channel; nothing of it is published from now on.
    fn leave(&self, fanout: &Fanout) {
        let stream = {
            let mut screen = self.screen.lock();
            screen.gone = true;
            screen.stream.take()
        };
        if let Some(stream) = stream {
            stream.wake();
        }
        fanout.end(&self.uri, &[]);
    }

    /// Makes it available to clients.
    fn start(self: &Arc<Self>, workspace: &Arc<Workspace>, terminal: Terminal, name: Option<String>) {
        let (lane, told) = mpsc::unbounded_channel();
        let mut screen = self.screen.lock();
        screen.named = name.is_some();
        match (name, &terminal.title) {
            (Some(name), _) => screen.state.title = name,
            // A title that the process has set in the meantime stays.
            (None, Some(title)) if screen.state.title == UNTITLED => screen.state.title.clone_from(title),
            _ => {}
        }
        if let Some(cwd) = &terminal.cwd {
            screen.state.cwd = Some(file_uri(cwd));
        }
        let now = workspace.core.clock.now().as_millisecond();
        // Another terminal can have the URI of one that was disposed of.
        if !screen.gone {
            screen.list(&workspace.core.fanout, terminal.is_pty == Some(true), now);
        }
        if !screen.has_exited() {
            *self.lane.lock() = Some(lane);
        }
        let stream = screen.stream.clone();
        drop(screen);
        let _ = self.handle.set(terminal);
        let me = Arc::downgrade(self);
        tasks::spawn(serve(me.clone(), told, self.size.subscribe(), workspace.core.log.clone()));
        if let Some(stream) = stream {
            tasks::spawn(bring_up(me, Arc::downgrade(workspace), stream));
        }
    }

    /// Waits until subscribers can receive more, within the limit for delaying a program.
    async fn ready(&self, workspace: &Workspace) {
        let Some(stream) = self.screen.lock().stream.clone() else { return };
        let since = Instant::now();
        loop {
            let taken = stream.taken();
            tokio::pin!(taken);
            taken.as_mut().enable();
            let wait = match workspace.core.fanout.room(&self.uri) {
                Room::ForAll => return,
                Room::ForSome => WAIT_FOR_SOME,
                Room::ForNone => WAIT_FOR_ALL,
            };
            if tokio::time::timeout_at(since + wait, taken).await.is_err() {
                return;
            }
        }
    }

    /// Adds a subscriber; returns the snapshot and its number.
    pub fn subscribe(&self, workspace: &Workspace, subscriber: Subscriber) -> Option<(String, u64)> {
        self.screen.lock().subscribe(&workspace.core.fanout, subscriber)
    }

    /// Queues input.
    fn input(&self, data: String) -> Result<(), &'static str> {
        const EXITED: &str = "the terminal has exited";
        if self.screen.lock().has_exited() {
            return Err(EXITED);
        }
        let lane = self.lane.lock();
        let Some(lane) = &*lane else { return Err(EXITED) };
        if self.waiting.load(Ordering::Acquire) + data.len() > WAITING_MAX {
            return Err("the terminal has not read its earlier input; try again later");
        }
        self.waiting.fetch_add(data.len(), Ordering::AcqRel);
        lane.send(TerminalInput::Input(data)).map_err(|_| EXITED)
    }

    /// Returns its stored output.
    fn output(&self) -> String {
        self.screen.lock().output()
    }

    /// Changes its size, and publishes that.
    fn resized(&self, workspace: &Workspace, cols: u16, rows: u16) {
        let resized = TerminalResizedAction { cols: cols.into(), rows: rows.into() };
        self.screen.lock().apply(&workspace.core.fanout, &StateAction::TerminalResized(resized), None);
        self.resize(cols, rows);
    }

    fn resize(&self, cols: u16, rows: u16) {
        self.size.send_replace((cols, rows));
        if let Some(lane) = &*self.lane.lock() {
            let _ = lane.send(TerminalInput::Resize);
        }
    }

    async fn kill(&self) -> Result<(), Thrown> {
        match self.handle.get() {
            Some(Terminal { kill: Some(kill), .. }) => kill.within(limit::TERMINAL_CLOSE, (None,)).await,
            Some(terminal) => terminal.dispose.within(limit::TERMINAL_CLOSE, ()).await,
            None => Ok(()),
        }
    }

    /// Returns the exit code, once it has ended.
    async fn wait(&self) -> Option<i64> {
        let mut ended = self.ended.subscribe();
        let code = ended.wait_for(Option::is_some).await.ok().and_then(|ended| *ended);
        code.flatten()
    }
}

/// Passes input to a terminal in order, except that a resize does not wait long.
async fn serve(
    open: Weak<Open>,
    mut told: mpsc::UnboundedReceiver<TerminalInput>,
    mut size: watch::Receiver<(u16, u16)>,
    log: Log,
) {
    while let Some(tell) = told.recv().await {
        let Some(open) = open.upgrade() else { return };
        let Some(terminal) = open.handle.get() else { return };
        let failed = |why: Thrown| log.warn(format_args!("{}: {}", open.uri, why.for_log()));
        let data = match tell {
            TerminalInput::Input(data) => data,
            TerminalInput::Resize => {
                // It can have overtaken input.
                if size.has_changed().unwrap_or_default() {
                    resize(terminal, &mut size).await.unwrap_or_else(failed);
                }
                continue;
            }
        };
        let length = data.len();
        let (input, late) = (terminal.input.unbounded((data,)), tokio::time::sleep(WAIT_FOR_INPUT));
        tokio::pin!(input, late);
        let mut is_late = false;
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut input => break outcome,
                () = &mut late, if !is_late => is_late = true,
                Ok(()) = size.changed(), if is_late => resize(terminal, &mut size).await.unwrap_or_else(failed),
            }
        };
        outcome.unwrap_or_else(failed);
        open.waiting.fetch_sub(length, Ordering::AcqRel);
    }
}

async fn resize(terminal: &Terminal, size: &mut watch::Receiver<(u16, u16)>) -> Result<(), Thrown> {
    let size = *size.borrow_and_update();
    match &terminal.resize {
        Some(resize) => resize.unbounded(size).await,
        None => Ok(()),
    }
}

/// Updates subscribers that were left behind and have received what was queued for them.
async fn bring_up(open: Weak<Open>, workspace: Weak<Workspace>, stream: Arc<Stream>) {
    loop {
        stream.due().await;
        let Some((open, workspace)) = open.upgrade().zip(workspace.upgrade()) else { return };
        let done = {
            let mut screen = open.screen.lock();
            if screen.gone {
                return;
            }
            screen.bring_up(&workspace.core.fanout)
        };
        if !done {
            tokio::time::sleep(RETRY).await;
            stream.wake();
        }
    }
}

/// The default title of a terminal.
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

/// Returns the error for an unknown terminal.
pub fn no_terminal(uri: &str) -> RpcError {
    RpcError::not_found(format!("No terminal at {uri}"))
}

/// Returns whether a URI can be that of a terminal.
pub fn is_terminal(uri: &str) -> bool {
    let named = uri.split_once(':').is_some_and(|(_, rest)| !rest.trim_start_matches('/').is_empty());
    named && matches!(Channel::parse(uri), Channel::Terminal(_))
}
