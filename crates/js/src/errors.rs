//! Conversion of errors between JavaScript and [`Thrown`].

use ostler_contract::Thrown;
use ostler_contract::thrown::RpcCode;
use rquickjs::{Ctx, Error, Exception, Object, Result, Value};

use crate::engine::{Rejection, State};
use crate::options::Level;
use crate::values::{self, text};

/// The maximum number of causes that a stack contains.
const CAUSES: usize = 5;

/// Converts the error of a failed call into JavaScript.
pub(crate) fn caught(ctx: &Ctx<'_>, state: &State, error: Error) -> Thrown {
    match error {
        Error::Exception => thrown(state, &ctx.catch()),
        Error::Allocation => Thrown::new(state.shared.sentence(&state.shared.out_of_memory())),
        other => Thrown::new(other),
    }
}

/// Converts a thrown value or a rejection's reason.
pub(crate) fn thrown(state: &State, value: &Value<'_>) -> Thrown {
    let Some(object) = value.as_object().filter(|object| is_error(object)) else {
        return Thrown::new(not_an_error(state, value));
    };
    let name = member(object, "name").filter(|name| !name.is_empty()).unwrap_or_else(|| "Error".to_owned());
    let message = member(object, "message").unwrap_or_default();
    let stack = stack(state, object);
    if name == "InternalError" {
        let limit = match message.as_str() {
            "interrupted" => state.watch.interrupted().map(|why| state.shared.overran(why)),
            "out of memory" => Some(state.shared.out_of_memory()),
            _ => None,
        };
        if let Some(limit) = limit {
            return Thrown { stack, ..Thrown::new(state.shared.sentence(&limit)) };
        }
    }
    let rpc = rpc_code(object, &name);
    Thrown { name, message, stack, rpc }
}

/// Returns whether an object is an error of this engine, or has a message like one.
fn is_error(object: &Object<'_>) -> bool {
    object.is_error() || (object.get::<_, Value>("message").is_ok_and(|message| message.is_string()))
}

fn member(object: &Object<'_>, name: &str) -> Option<String> {
    let value = object.get::<_, Value>(name).ok()?;
    text(&value)
}

/// Returns the stack frames of an error, without its message, at their places in the sources.
fn frames(state: &State, error: &Object<'_>) -> String {
    let stack = member(error, "stack").unwrap_or_default();
    let frames: Vec<&str> = stack.lines().skip_while(|line| !line.starts_with("    at ")).collect();
    state.modules.source_maps.apply(state, &frames.join("\n"))
}

/// Returns the stack of an error, followed by its causes.
fn stack(state: &State, error: &Object<'_>) -> Option<String> {
    let mut told = frames(state, error);
    let mut cause = error.get::<_, Value>("cause").ok();
    for _ in 0..CAUSES {
        let Some(object) = cause.as_ref().and_then(Value::as_object).filter(|object| is_error(object)) else {
            break;
        };
        let line = format!(
            "caused by {}: {}\n{}",
            member(object, "name").unwrap_or_default(),
            member(object, "message").unwrap_or_default(),
            frames(state, object)
        );
        told = format!("{told}\n{line}");
        cause = object.get::<_, Value>("cause").ok();
    }
    Some(told.trim_end().to_owned()).filter(|told| !told.is_empty())
}

/// Returns code and data of an `RpcError`.
fn rpc_code(error: &Object<'_>, name: &str) -> Option<RpcCode> {
    if name != "RpcError" {
        return None;
    }
    let code = error.get::<_, Value>("code").ok()?.as_number()?;
    #[allow(clippy::cast_possible_truncation)]
    let code = (code.fract() == 0.0 && code.abs() <= f64::from(i32::MAX)).then_some(code as i32)?;
    let data = error.get::<_, Value>("data").ok()?;
    Some(RpcCode { code, data: values::json(&data).ok().flatten() })
}

fn not_an_error(state: &State, value: &Value<'_>) -> String {
    // An engine without any free memory cannot create an error either.
    if value.is_null() && state.watch.starved() {
        return state.shared.sentence(&state.shared.out_of_memory());
    }
    // A sentence is for its reader, also without an Error around it.
    if let Some(sentence) = value.as_string().and_then(|text| text.to_string().ok())
        && !sentence.trim().is_empty()
    {
        return sentence;
    }
    let shown = match values::json(value) {
        Ok(Some(data)) => data.to_string(),
        _ => text(value).unwrap_or_else(|| value.type_name().to_owned()),
    };
    format!("{shown} was thrown, which is not an Error")
}

/// Creates the JavaScript error for a `Thrown` of the host.
pub(crate) fn error<'js>(ctx: &Ctx<'js>, state: &State, thrown: &Thrown) -> Result<Value<'js>> {
    let helpers = values::helpers(ctx, state)?;
    match &thrown.rpc {
        Some(rpc) => {
            let data = match &rpc.data {
                Some(data) => values::data(ctx, data)?,
                None => Value::new_undefined(ctx.clone()),
            };
            helpers.rpc_error.clone().restore(ctx)?.call((rpc.code, thrown.message.as_str(), data))
        }
        None => helpers.error.clone().restore(ctx)?.call((thrown.name.as_str(), thrown.message.as_str())),
    }
}

/// Throws a `Thrown` of the host in JavaScript.
pub(crate) fn raise(ctx: &Ctx<'_>, state: &State, thrown: &Thrown) -> Error {
    match error(ctx, state, thrown) {
        Ok(error) => ctx.throw(error),
        Err(error) => error,
    }
}

/// Throws a `TypeError`.
pub(crate) fn type_error(ctx: &Ctx<'_>, message: impl std::fmt::Display) -> Error {
    named_error(ctx, "TypeError", &message.to_string())
}

/// Throws an `Error`.
pub(crate) fn plain_error(ctx: &Ctx<'_>, message: impl std::fmt::Display) -> Error {
    named_error(ctx, "Error", &message.to_string())
}

fn named_error(ctx: &Ctx<'_>, name: &str, message: &str) -> Error {
    let thrown = Thrown { name: name.to_owned(), ..Thrown::new(message) };
    match State::of(ctx) {
        Ok(state) => raise(ctx, &state, &thrown),
        Err(_) => Exception::throw_message(ctx, message),
    }
}

/// Formats an uncaught value. An error begins with its name, or with that of its class if it has no name of its own, as
/// Node prints it.
fn uncaught(state: &State, value: &Value<'_>) -> String {
    let thrown = thrown(state, value);
    let Some(object) = value.as_object().filter(|object| is_error(object)) else { return thrown.for_log() };
    let class = object.get::<_, Object>("constructor").ok().and_then(|class| member(&class, "name"));
    let class = class.filter(|class| thrown.name == "Error" && !class.is_empty() && class != "Object");
    format!("{}: {}", class.as_deref().unwrap_or(&thrown.name), thrown.for_log())
}

/// Logs an uncaught error, for example of a timer's callback or a listener.
pub(crate) fn report_uncaught(ctx: &Ctx<'_>, state: &State, error: Error) {
    let value = match error {
        Error::Exception => ctx.catch(),
        other => {
            state.shared.log(Level::Uncaught, format!("uncaught error: {other}"));
            return;
        }
    };
    if state.shared.is_killed() {
        // The engine has ended; the interruption for that is not an error.
    } else if state.watch.interrupted().is_some()
        && let Some(link) = &state.link
    {
        link.fail(ctx, state, &value);
    } else if let Some(why) = state.watch.interrupted() {
        let thrown = thrown(state, &value);
        let at = thrown.stack.map(|stack| format!("\n{stack}")).unwrap_or_default();
        state.shared.log(Level::Uncaught, format!("{}{at}", state.shared.overran(why)));
    } else if !state.heard(ctx, "uncaughtException", &value, None) {
        if let Some(link) = &state.link {
            return link.fail(ctx, state, &value);
        }
        state.shared.log(Level::Uncaught, format!("uncaught error: {}", uncaught(state, &value)));
    }
}

/// Logs a rejection without a handler.
pub(crate) fn report_rejection(ctx: &Ctx<'_>, state: &State, rejection: Rejection) {
    let (Ok(reason), Ok(promise)) = (rejection.reason.restore(ctx), rejection.promise.restore(ctx)) else {
        return;
    };
    if !state.heard(ctx, "unhandledRejection", &reason, Some(promise)) {
        if let Some(link) = &state.link {
            return link.fail(ctx, state, &reason);
        }
        state.shared.log(Level::Uncaught, format!("unhandled rejection: {}", uncaught(state, &reason)));
    }
}
