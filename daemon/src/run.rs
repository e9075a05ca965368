//! Runs the daemon in the foreground: start, announcement, serving, and orderly end.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::events::Event;
use ostler_engine::{Host, Log};
use ostler_loader::{Hidden, State};
use ostler_protocol::names;
use ostler_server::{HostNames, Listener, Server, Token, no_plugin_routes, plugin_routes, serve_stdio};
use ostler_telemetry::log;
use ostler_telemetry::metrics::Metrics;
use ostler_telemetry::otlp::{Exporter, Spans};
use ostler_telemetry::printable::one_line;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::address_problem::AddressProblem;
use crate::announce::{self, Listens};
use crate::api;
use crate::backends::Backends;
use crate::cli::ReusedPorts;
use crate::compose::{Composed, compose};
use crate::console_changes;
use crate::control::Control;
use crate::daemon_file::{self, Holding, Record};
use crate::edited_files::{self, watch::FileWatch};
use crate::exit::Exit;
use crate::idle;
use crate::notify::{self, Notify};
use crate::parts::postgres;
use crate::place::Place;
use crate::process::{self, Signal};
use crate::root_settings::RootSettings;
use crate::service::{self, Notice, Passed};
use crate::settings::{Http, Settings, check_reachable};
use crate::signals::{SignalSender, Signals};
use crate::token::TokenSource;

/// The log line of a restart, for which `restart` waits.
pub const RESTART_STOPPING: &str = "restart: stopping";
/// The log line if it does not restart; the reason follows.
pub const RESTART_REFUSED: &str = "restart: refused: ";

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It received a signal to stop.
    Done,
    /// It restarts, on these ports if they are to be reused.
    Again(Option<ReusedPorts>),
}

/// Runs until a signal to stop. `arguments` are those of the process, `passed` are the listeners of the service
/// manager.
///
/// # Errors
/// Exit 1 if it could not start.
pub async fn run(
    settings: Settings,
    place: Place,
    arguments: &[String],
    passed: &Passed,
) -> Result<Ended, Exit> {
    let hidden = Hidden::default();
    let file = settings.detached.then(|| daemon_file::log_file(&settings.folders().state));
    let (log, metrics, spans) = log::start(&settings.log, settings.otlp.is_some(), &hidden, file);
    settings.otlp.iter().for_each(|collector| collector.hide(&hidden));
    for line in &settings.warnings {
        log.warn(line);
    }
    if settings.detached {
        process::leave_terminal();
    }
    process::take_files();
    // Handled from the beginning, because a process that has read the announcement can immediately send a signal to
    // stop.
    let (mut signals, signal_sender) = Signals::listen(settings.detached || service::is_managed())?;
    if settings.stdio {
        if !passed.is_empty() {
            return Err(Exit::usage("--stdio serves no listener; remove the socket unit of this service"));
        }
        return over_stdio(&settings, &place, (&log, metrics, spans), &hidden, (&mut signals, signal_sender))
            .await
            .map(|()| Ended::Done);
    }
    let holding = Holding::take(&settings.folders())?;
    // Bound before anything is loaded, so that a port in use is reported early; requests are answered once the host is
    // up.
    let kept = settings.kept;
    let listener = match passed.listener(service::Place::Main)? {
        Some(listener) => {
            let address = listener.address();
            check_reachable(&address.to_string(), address.ip(), &settings.token)?;
            listener
        }
        None => bind(settings.address, kept.map(|kept| kept.main)).await?,
    };
    let settings = Settings { address: listener.address(), ..settings };
    let routes = match (passed.listener(service::Place::Routes)?, settings.routes) {
        (Some(listener), _) => Some(listener),
        (None, Some(address)) => Some(bind(address, kept.map(|kept| kept.routes)).await?),
        (None, None) => None,
    };
    let http = match (passed.listener(service::Place::Http)?, settings.http) {
        (Some(_), None) => {
            return Err(Exit::usage(
                "the service manager passed a listener for the HTTP API, which is off; set http in the configuration",
            ));
        }
        (Some(listener), Some(_)) => Some(listener),
        (None, Some(Http::At(address))) => Some(bind(address, kept.map(|kept| kept.http)).await?),
        (None, Some(Http::Here) | None) => None,
    };
    // After binding, when the port is known.
    let at = http.as_ref().map(|http| Http::At(http.address()));
    let settings = Settings { http: at.or(settings.http), ..settings };
    let token = settings.token.text()?;
    token.iter().for_each(|token| hidden.add(token));
    let token = token.map(Token::new);
    let composed = tokio::select! {
        composed = compose(&settings, &log, &hidden) => composed?,
        () = signals.stop() => return Ok(Ended::Done),
    };
    let port =
        |listener: &Option<Listener>| listener.as_ref().map_or(0, |listener| listener.address().port());
    let ports = ReusedPorts { main: listener.address().port(), routes: port(&routes), http: port(&http) };
    if let Err(exit) = require_backend(&composed) {
        // With `--watch`, a plugin can be broken for a while; `start` must still report it.
        if !settings.watch_plugins || (settings.detached && kept.is_none()) {
            return Err(exit);
        }
        settings.files.iter().for_each(|file| composed.sources.add(file));
        log.warn(format_args!("{exit} Waiting for a change of the configuration or of a plugin's files."));
        // It may have changed since it was read.
        let next = place.files().and_then(|files| settings.next(files));
        let has_changed = next.is_ok_and(|next| next.plugins != settings.plugins);
        let ended = tokio::select! {
            file = std::future::ready(&settings.dir), if has_changed => again_for(file, ports, &log),
            file = composed.sources.changed() => again_for(&file, ports, &log),
            () = signals.stop() => Ended::Done,
        };
        composed.host.close().await;
        return Ok(ended);
    }
    let (address, routes_address) = (listener.address(), routes.as_ref().map(Listener::address));
    let (stop, stopped) = watch::channel(false);
    let names = HostNames::of(routes_address.unwrap_or(address));
    settings.named_by().for_each(|url| names.announce(url));
    let doors = HostNames::of(address);
    settings.named_by().for_each(|url| doors.announce(url));
    let host = composed.host.clone();
    if settings.watch_plugins {
        log.info("watching plugin files; a change restarts the daemon");
    }
    let Some(registry) = host.core.registry() else {
        return Err(Exit::machine("the registry was not built"));
    };
    let control = Control::new(&settings, &place, &composed, metrics, &hidden, signal_sender);
    if let Some(token) = &token {
        let _ = control.token.set(token.clone());
    }
    let exporter = export(&settings, spans, &control, &composed, &log);
    host.channels.set_own_settings(Arc::new(RootSettings(control.clone())));
    let mut mounts = vec![composed.tools.mount(host.core.bodies.clone())];
    let routes_mount = plugin_routes(registry, names.clone(), log.clone(), host.core.bodies.clone());
    match routes {
        Some(routes) => {
            tokio::spawn(Server::new(vec![routes_mount]).serve(routes, stopped.clone()));
            mounts.push(no_plugin_routes());
        }
        None => mounts.push(routes_mount),
    }
    mounts.extend(api::probes(&control));
    mounts.extend(api::of_this_computer(&control, &doors, token.as_ref()));
    let page = api::pages(&control, doors.clone(), token.clone());
    let mut http_address = None;
    if settings.http.is_some() {
        match http {
            Some(http) => {
                http_address = Some(http.address());
                let names = HostNames::of(http.address());
                settings.named_by().for_each(|url| names.announce(url));
                let mut api_mounts = api::probes(&control);
                api_mounts.extend(api::mounts(&control, names, token.clone()));
                tokio::spawn(Server::new(api_mounts).serve(http, stopped.clone()));
                if settings.console {
                    mounts.extend(page);
                }
            }
            None => {
                http_address = Some(address);
                mounts.extend(page);
            }
        }
    }
    if settings.console {
        tokio::spawn(console_changes::watch(control.clone(), composed.changes.clone()));
    }
    let base = notify::base(&settings, None).unwrap_or_default();
    let _ = control.notify_base.set(base.clone());
    let notifying = Notify::start(host.clone(), &settings.dir, &base).await;
    mounts.push(notify::mount(&notifying, doors.clone()));
    let server = Server::new(mounts)
        .with_protocol(host.clone(), token, doors.clone())
        .with_sign_ins(control.sign_ins.clone());
    tokio::spawn(server.serve(listener, stopped));
    let _watched = watched_files(&settings, &log);
    host.core.listening();
    tokio::spawn(idle::watch());
    host.core
        .events
        .raise_and_wait(Event::Listening {
            runtime: names::HOST.to_owned(),
            host: address.ip().to_string(),
            port: address.port(),
            guarded: !matches!(settings.token, TokenSource::Unsaid | TokenSource::Without),
        })
        .await;
    let said = host.end_announcements();
    if routes_address.is_none() {
        for url in said.iter().flat_map(|line| line.split_whitespace()).filter(|word| word.contains("://")) {
            names.announce(url);
        }
    }
    let mut record = record(&settings, &composed, &place, address, arguments)?;
    record.routes = format!("http://{}", routes_address.unwrap_or(address));
    record.said = said.iter().map(|line| one_line(&hidden.hide(line))).collect();
    control.up(record.clone());
    // First, so that a start which fails has printed no address.
    holding.record(&record)?;
    let block =
        announce::block(&settings, &composed, Listens::At(address), http_address, routes_address, &said);
    let _ = std::io::stdout().lock().write_all(hidden.hide(&block).as_bytes());
    let _ = std::io::stdout().lock().flush();
    service::ready(address, &host, &log);
    let ended = loop {
        let signal = tokio::select! {
            signal = signals.next() => signal,
            file = composed.sources.changed(), if settings.watch_plugins => {
                let rests = rest(&host, &log);
                tokio::select! {
                    () = rests => break again_for(&file, ports, &log),
                    () = signals.stop() => Signal::Stop,
                }
            }
        };
        match signal {
            Signal::Stop => {
                log.info("stopping");
                break Ended::Done;
            }
            signal => {
                if signal == Signal::Restart
                    && let Some(why) = refusal(&control, &settings)
                {
                    log.warn(format_args!("{RESTART_REFUSED}{why}"));
                    continue;
                }
                log.info(format_args!("{RESTART_STOPPING} ({})", signal.name()));
                break Ended::Again(None);
            }
        }
    };
    let notice = if ended == Ended::Done { Notice::Stopping } else { Notice::Reloading };
    if let Err(why) = service::notify(&notice) {
        log.warn(why);
    }
    let closing = async {
        host.stop().await;
        stop.send_replace(true);
        host.close().await;
    };
    let in_order = unless_stopped(closing, &mut signals, &log).await;
    if let Some(exporter) = exporter.filter(|_| in_order) {
        exporter.finish().await;
    }
    host.core.record_frames(None);
    drop(holding);
    Ok(if in_order { ended } else { Ended::Done })
}

/// Starts the export of traces and metrics if a collector is configured.
fn export(
    settings: &Settings,
    spans: Option<Spans>,
    control: &Arc<Control>,
    composed: &Composed,
    log: &Log,
) -> Option<Exporter> {
    let (collector, spans) = settings.otlp.clone().zip(spans)?;
    let control = control.clone();
    Some(Exporter::start(collector, spans, move || control.metrics(), composed.http.clone(), log.clone()))
}

/// Closes, unless another signal to stop arrives first. Returns whether it closed completely.
async fn unless_stopped(closing: impl Future<Output = ()>, signals: &mut Signals, log: &Log) -> bool {
    tokio::select! {
        () = closing => true,
        () = signals.stop() => {
            log.info("second stop signal; exiting immediately");
            false
        }
    }
}

/// How long a change of a plugin waits for running turns, which may need the change.
const TURNS_END_WITHIN: Duration = Duration::from_secs(5);

/// Waits until no turn runs, within a limit.
async fn rest(host: &Host, log: &Log) {
    let end = Instant::now() + TURNS_END_WITHIN;
    let mut waits = false;
    while !busy(host).is_empty() && Instant::now() < end {
        if !std::mem::replace(&mut waits, true) {
            log.warn(format_args!(
                "a plugin file changed; waiting for the turn in {}",
                busy(host).join(", ")
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns why the daemon does not restart now, unless it is forced to.
fn refusal(control: &Control, settings: &Settings) -> Option<String> {
    let busy = busy(&control.host);
    if !busy.is_empty() {
        return Some(format!("a turn is running in {}", busy.join(", ")));
    }
    match control.place.files().and_then(|files| settings.next(files)) {
        Ok(next) => control.backends.refusal(&next.plugins),
        Err(exit) => Some(exit.to_string()),
    }
}

fn again_for(file: &Path, ports: ReusedPorts, log: &Log) -> Ended {
    log.info(format_args!("{RESTART_STOPPING} ({} changed)", file.display()));
    Ended::Again(Some(ports))
}

/// Returns the sessions with a running turn.
pub fn busy(host: &Host) -> Vec<String> {
    let mut busy: Vec<String> = host
        .sessions
        .all()
        .into_iter()
        .filter(|entry| entry.is_awake() && entry.view().is_running())
        .map(|entry| entry.uri.clone())
        .collect();
    busy.sort_unstable();
    busy
}

/// Returns the record of this daemon.
fn record(
    settings: &Settings,
    composed: &Composed,
    place: &Place,
    address: SocketAddr,
    arguments: &[String],
) -> Result<Record, Exit> {
    let url = format!("ws://{address}");
    let token = settings.token.text()?;
    let query = token.map(|token| {
        let token = percent_encoding::utf8_percent_encode(&token, percent_encoding::NON_ALPHANUMERIC);
        format!("?tkn={token}")
    });
    Ok(Record {
        pid: std::process::id(),
        routes: format!("http://{address}"),
        public_url: settings.public_url.clone(),
        connect_url: format!("{url}/{}", query.unwrap_or_default()),
        url,
        paths: settings.paths.clone(),
        started_at: ostler_telemetry::clock().iso(),
        state: Some(settings.state_dir.clone()),
        automations: Some(composed.automations.clone()),
        vault: composed.vault_plugin.clone(),
        said: Vec::new(),
        backends: Backends::of(settings, composed).specs,
        console: composed.host.core.options.links.console.clone(),
        api: composed.host.core.options.links.api.clone(),
        argv: Some(arguments.iter().skip(1).cloned().collect()),
        foreground: !settings.detached,
        cwd: Some(place.working_dir.clone()),
    })
}

/// Binds an address; for port 0 the previous port, if it is still free.
async fn bind(address: SocketAddr, kept: Option<u16>) -> Result<Listener, Exit> {
    if let (0, Some(kept)) = (address.port(), kept)
        && let Ok(listener) = Listener::bind(SocketAddr::new(address.ip(), kept)).await
    {
        return Ok(listener);
    }
    Listener::bind(address).await.map_err(|error| {
        let AddressProblem { found, fix } = AddressProblem::of(address, &error);
        Exit::machine(format!("cannot listen on {found}; {fix}"))
    })
}

/// Follows the files that users edit, if the options of the stores say so.
fn watched_files(settings: &Settings, log: &Log) -> Option<FileWatch> {
    let mut entries = settings.plugins.iter().filter(|entry| entry.enabled);
    let stores = entries.find(|entry| entry.name == postgres::NAME)?;
    let follow = || {
        edited_files::watch::follow(
            stores.options.clone(),
            (settings.dir.clone(), settings.state_dir.clone()),
            settings.users.clone(),
            log.clone(),
        )
    };
    edited_files::is_watched(&stores.options).then(follow)
}

/// A host without a backend cannot serve sessions.
fn require_backend(composed: &Composed) -> Result<(), Exit> {
    if composed.host.core.listed_agents().next().is_some() {
        return Ok(());
    }
    let mut why = composed
        .skipped
        .iter()
        .map(|line| format!("{}\n", announce::skipped(&one_line(line))))
        .collect::<String>();
    why.push_str("No backend is loaded, so this host could serve nothing. ");
    let off = composed.plugins.iter().filter(|plugin| plugin.state == State::Off);
    let off: Vec<&str> = off.map(|plugin| plugin.id.as_deref().unwrap_or(&plugin.spec)).collect();
    if !off.is_empty() {
        let names = one_line(&off.join(", "));
        why.push_str(&format!("Disabled: {names}; enable one with: ostler plugin enable <name>. "));
    }
    why.push_str(
        "Run ostler plugin install <spec>; ostler plugin install @ostler/echo adds the bundled one, which \
         needs no model.",
    );
    Err(Exit::machine(why))
}

async fn over_stdio(
    settings: &Settings,
    place: &Place,
    (log, metrics, spans): (&Log, Metrics, Option<Spans>),
    hidden: &Hidden,
    (signals, signal_sender): (&mut Signals, SignalSender),
) -> Result<(), Exit> {
    // At its start a host ends runs that it finds in the store, so the store must belong to it.
    let _holding = match settings.needs_state_db() {
        true => Some(Holding::take(&settings.folders())?),
        false => None,
    };
    let composed = tokio::select! {
        composed = compose(settings, log, hidden) => composed?,
        () = signals.stop() => return Ok(()),
    };
    require_backend(&composed)?;
    let host = composed.host.clone();
    let control = Control::new(settings, place, &composed, metrics, hidden, signal_sender);
    host.channels.set_own_settings(Arc::new(RootSettings(control.clone())));
    if notify::read(&settings.dir).is_ok_and(|rules| !rules.0.is_empty()) {
        log.warn("notify.yaml: no messages are sent over --stdio, as no listener serves their links");
    }
    let exporter = export(settings, spans, &control, &composed, log);
    host.core.listening();
    tokio::spawn(idle::watch());
    host.core
        .events
        .raise_and_wait(Event::Listening {
            runtime: names::HOST.to_owned(),
            host: "stdio".to_owned(),
            port: 0,
            guarded: false,
        })
        .await;
    let said = host.end_announcements();
    let block = announce::block(settings, &composed, Listens::Stdio, None, None, &said);
    let _ = std::io::stderr().lock().write_all(hidden.hide(&block).as_bytes());
    tokio::select! {
        () = serve_stdio(&host, tokio::io::stdin(), tokio::io::stdout()) => {}
        () = signals.stop() => {}
    }
    unless_stopped(host.close(), signals, log).await;
    if let Some(exporter) = exporter {
        exporter.finish().await;
    }
    host.core.record_frames(None);
    Ok(())
}
