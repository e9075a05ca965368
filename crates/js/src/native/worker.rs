//! Workers: engines on their own threads, within the memory limit of the plugin that starts them.

use std::rc::Rc;

use rquickjs::{Ctx, Function, Object, Persistent, Result, Value};

use super::natives;
use super::ports::{Endpoint, PORTS, attach, endpoints, packet};
use crate::engine::{Ended, Engine, Setup, State};
use crate::errors::plain_error;
use crate::values::{bytes_of, bytes_to_js};

/// Returns the native functions for `internal/worker`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native: Result<Object<'js>> = natives! { ctx;
        "start": start,
        "setup": setup,
        "exit": |ctx: Ctx<'js>, code: i32| {
            let state = State::of(&ctx)?;
            if let Some(link) = &state.link {
                link.ended.exit(code);
                state.shared.kill();
            }
            Ok::<_, rquickjs::Error>(())
        },
        "setExitCode": |ctx: Ctx<'js>, code: i32| {
            if let Some(link) = &State::of(&ctx)?.link {
                link.ended.set_code(code);
            }
            Ok::<_, rquickjs::Error>(())
        },
        "onFailure": |ctx: Ctx<'js>, describe: Function<'js>| {
            if let Some(link) = &State::of(&ctx)?.link {
                *link.describe.borrow_mut() = Some(Persistent::save(&ctx, describe));
            }
            Ok::<_, rquickjs::Error>(())
        },
        "onEnd": |ctx: Ctx<'js>, call: Function<'js>| {
            if let Some(link) = &State::of(&ctx)?.link {
                *link.at_end.borrow_mut() = Some(Persistent::save(&ctx, call));
            }
            Ok::<_, rquickjs::Error>(())
        },
        "online": |ctx: Ctx<'js>| {
            if let Some(link) = &State::of(&ctx)?.link {
                link.ended.tell("online", Vec::new());
            }
            Ok::<_, rquickjs::Error>(())
        },
        "import": |ctx: Ctx<'js>, path: String| {
            let path = std::fs::canonicalize(&path).map_or(path, |path| path.to_string_lossy().into_owned());
            rquickjs::Module::import(&ctx, path)
        },
        "isWorker": |ctx: Ctx<'js>| Ok::<_, rquickjs::Error>(State::of(&ctx)?.link.is_some()),
    };
    native
}

/// Starts a worker. `options` has `data` (bytes) and `ports`, and `memory` and `stack` in bytes if they are limited;
/// `tell(event, bytes, code)` receives its events.
fn start<'js>(ctx: Ctx<'js>, options: Object<'js>, tell: Function<'js>) -> Result<Object<'js>> {
    let state = State::of(&ctx)?;
    let data: Value<'js> = options.get("data")?;
    let data = bytes_of(&data).ok_or_else(|| plain_error(&ctx, "a worker's data are bytes"))?;
    let data = packet(&ctx, &state, &data, endpoints(&options.get("ports")?)?)?;
    let (own, theirs) = Endpoint::pair();
    let told = state.callbacks.insert(Persistent::save(&ctx, tell));
    let setup = Setup {
        packet: data,
        port: theirs,
        memory: options.get("memory")?,
        stack: options.get("stack")?,
        ended: Ended::new(state.post.clone(), told),
    };
    let started = Engine::start_worker(&state.shared, setup, state.host.clone())
        .map_err(|thrown| crate::errors::raise(&ctx, &state, &thrown))?;
    let (engine, number) = started;
    state.workers.borrow_mut().insert(number, engine);
    let held = Rc::new(std::cell::Cell::new(true));
    let handle = Object::new(ctx.clone())?;
    handle.set("threadId", number)?;
    handle.set("port", attach(&ctx, own)?)?;
    handle.set(
        "terminate",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let engine = State::of(&ctx)?.workers.borrow().get(&number).cloned();
            if let Some(engine) = engine {
                engine.kill();
            }
            Ok::<_, rquickjs::Error>(())
        }),
    )?;
    handle.set(
        "ended",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            let state = State::of(&ctx)?;
            let engine = state.workers.borrow_mut().remove(&number);
            drop(engine);
            let told = if held.replace(false) { state.callbacks.remove(told) } else { None };
            drop(told);
            Ok::<_, rquickjs::Error>(())
        }),
    )?;
    Ok(handle)
}

/// Returns the parameters of this worker: `{ data, ports, port, threadId }`.
fn setup<'js>(ctx: Ctx<'js>) -> Result<Option<Object<'js>>> {
    let state = State::of(&ctx)?;
    let Some(link) = &state.link else { return Ok(None) };
    let Some((packet, port)) = link.setup.borrow_mut().take() else { return Ok(None) };
    let setup = Object::new(ctx.clone())?;
    let (bytes, ports) = packet.open();
    setup.set("data", bytes_to_js(&ctx, bytes.into())?)?;
    let list = rquickjs::Array::new(ctx.clone())?;
    for (at, port) in ports.into_iter().enumerate() {
        list.set(at, attach(&ctx, port)?)?;
    }
    setup.set(PORTS, list)?;
    setup.set("port", attach(&ctx, port)?)?;
    setup.set("threadId", state.shared.number)?;
    Ok(Some(setup))
}
