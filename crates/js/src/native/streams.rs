//! LLRT's web streams.

use rquickjs::{Ctx, Object, Result, Value};

use crate::engine::State;
use crate::errors;

const NAMES: &[&str] = &[
    "ByteLengthQueuingStrategy",
    "CountQueuingStrategy",
    "ReadableByteStreamController",
    "ReadableStream",
    "ReadableStreamBYOBReader",
    "ReadableStreamBYOBRequest",
    "ReadableStreamDefaultController",
    "ReadableStreamDefaultReader",
    "WritableStream",
    "WritableStreamDefaultController",
    "WritableStreamDefaultWriter",
];

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    // What its own tasks throw would be lost.
    llrt_context::set_spawn_error_handler(|ctx, error| {
        if let Ok(state) = State::of(ctx) {
            let error = error.throw(ctx);
            errors::report_uncaught(ctx, &state, error);
        }
    });
    // It writes to the global object, which is where these belong in any case.
    llrt_stream_web::init(ctx)?;
    let (native, globals) = (Object::new(ctx.clone())?, ctx.globals());
    for name in NAMES {
        native.set(*name, globals.get::<_, Value>(*name)?)?;
    }
    Ok(native)
}
