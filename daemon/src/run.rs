//! The daemon in the foreground: up, announced, serving, and down again in order.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use ostler_contract::events::Event;
use ostler_engine::Log;
use ostler_server::{HostNames, Listener, Server, no_plugin_routes, plugin_routes, serve_stdio};
use tokio::sync::watch;

use crate::announce::{self, Listens};
use crate::compose::{Composed, compose};
use crate::exit::Exit;
use crate::log;
use crate::settings::Settings;
use crate::token::TokenSource;
use crate::told::Told;

/// Runs until it is told to stop.
///
/// # Errors
/// Exit 1 where it could not start.
pub async fn run(settings: Settings, working_dir: PathBuf) -> Result<(), Exit> {
    let log = log::stderr();
    for line in &settings.warnings {
        log.line(line);
    }
    // Heard from the first moment on: who has read the announcement may tell it to end at once.
    let mut told = Told::listen()?;
    if settings.stdio {
        return over_stdio(&settings, &working_dir, &log, &mut told).await;
    }
    // Bound before anything is loaded, so that a taken port costs nothing; nobody is answered before the host is up.
    let listener = bind(settings.address).await?;
    let routes = match settings.routes {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let token = settings.token.token()?;
    let composed = tokio::select! {
        composed = compose(&settings, &working_dir, &log) => composed?,
        () = told.wait() => return Ok(()),
    };
    require_backend(&composed)?;
    let (address, routes_address) = (listener.address(), routes.as_ref().map(Listener::address));
    let (stop, stopped) = watch::channel(false);
    let names = HostNames::of(routes_address.unwrap_or(address));
    for origin in &settings.origins {
        names.announce(origin);
    }
    let doors = HostNames::of(address);
    settings.origins.iter().for_each(|origin| doors.announce(origin));
    let host = composed.host.clone();
    let Some(registry) = host.registry() else { return Err(Exit::machine("the registry was not built")) };
    let mount = plugin_routes(registry, names.clone(), log.clone());
    match routes {
        Some(routes) => {
            tokio::spawn(Server::new(vec![mount]).serve(routes, stopped.clone()));
            let server =
                Server::new(vec![no_plugin_routes()]).with_protocol(host.clone(), token, doors.clone());
            tokio::spawn(server.serve(listener, stopped));
        }
        None => {
            let server = Server::new(vec![mount]).with_protocol(host.clone(), token, doors.clone());
            tokio::spawn(server.serve(listener, stopped));
        }
    }
    host.listening();
    host.events
        .raise_and_wait(Event::Listening {
            runtime: "ostler".to_owned(),
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
    let block = announce::block(&settings, &composed, Listens::At(address), routes_address, &said);
    let _ = std::io::stdout().lock().write_all(block.as_bytes());
    let _ = std::io::stdout().lock().flush();
    told.wait().await;
    log.line("stopping");
    let closing = async {
        host.stop().await;
        stop.send_replace(true);
        host.close().await;
    };
    unless_told_again(closing, &mut told, &log).await;
    Ok(())
}

/// Closes; whoever does not want to wait for that says so by telling a second time.
async fn unless_told_again(closing: impl Future<Output = ()>, told: &mut Told, log: &Log) {
    tokio::select! {
        () = closing => {}
        () = told.wait() => log.line("told to stop a second time; ending at once"),
    }
}

async fn bind(address: SocketAddr) -> Result<Listener, Exit> {
    Listener::bind(address)
        .await
        .map_err(|error| Exit::machine(format!("Could not listen on {address}: {error}")))
}

/// A host without a backend could serve nothing.
fn require_backend(composed: &Composed) -> Result<(), Exit> {
    if composed.host.listed_agents().next().is_some() {
        return Ok(());
    }
    let mut why = composed.skipped.iter().map(|line| format!("skipped: {line}\n")).collect::<String>();
    why.push_str(
        "No backend is loaded, so this host could serve nothing. Name one under \"plugins\" in the configuration: \
         { \"plugins\": [{ \"name\": \"@ostler/echo\" }] } loads one that comes with this host and needs no model.",
    );
    Err(Exit::machine(why))
}

async fn over_stdio(
    settings: &Settings,
    working_dir: &std::path::Path,
    log: &Log,
    told: &mut Told,
) -> Result<(), Exit> {
    let composed = compose(settings, working_dir, log).await?;
    require_backend(&composed)?;
    let host = composed.host.clone();
    host.listening();
    host.events
        .raise_and_wait(Event::Listening {
            runtime: "ostler".to_owned(),
            host: "stdio".to_owned(),
            port: 0,
            guarded: false,
        })
        .await;
    let said = host.end_announcements();
    let block = announce::block(settings, &composed, Listens::Stdio, None, &said);
    let _ = std::io::stderr().lock().write_all(block.as_bytes());
    tokio::select! {
        () = serve_stdio(&host, tokio::io::stdin(), tokio::io::stdout()) => {}
        () = told.wait() => {}
    }
    unless_told_again(host.close(), told, log).await;
    Ok(())
}
