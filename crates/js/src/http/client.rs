//! The HTTP client behind `fetch`.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::{AbortHandle, Abortable};
use ostler_contract::Thrown;
use ostler_contract::http::{Body, BodyError};
use ostler_net::{Client, Encoded};
use rquickjs::{Ctx, Function, Object, Promise, Result};

use super::{read_request, response_parts};
use crate::engine::State;
use crate::errors::{plain_error, raise};
use crate::native::natives;
use crate::options::HttpClient;

/// Returns the native functions for `internal/fetch`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "send": send }
}

/// Starts one request. Returns a promise of the response's parts, and a function that aborts the request.
fn send<'js>(ctx: Ctx<'js>, parts: Object<'js>) -> Result<Object<'js>> {
    let state = State::of(&ctx)?;
    let mut request = read_request(&ctx, &state, &parts)?;
    // `internal/fetch` decodes the body itself, so the headers stay unchanged.
    request.extensions_mut().insert(Encoded);
    // The request runs on the host's runtime, so a busy plugin does not delay its connection.
    let (abort, registration) = AbortHandle::new_pair();
    let answer = {
        let _host = state.host.enter();
        (state.shared.options.http)(request)
    };
    let answer = state.host.spawn(Abortable::new(answer, registration));
    let inside = ctx.clone();
    let promise = Promise::wrap_future(&ctx, async move {
        let state = State::of(&inside)?;
        match answer.await {
            Ok(Ok(Ok(response))) => response_parts(&inside, response),
            Ok(Ok(Err(thrown))) => Err(raise(&inside, &state, &thrown)),
            Ok(Err(_)) | Err(_) => Err(plain_error(&inside, "the request was cancelled")),
        }
    })?;
    let handle = Object::new(ctx.clone())?;
    handle.set("answer", promise)?;
    handle.set("abort", Function::new(ctx.clone(), move || abort.abort()))?;
    Ok(handle)
}

/// Returns the host's HTTP client, which all plugins share.
pub fn network() -> HttpClient {
    let client = Client::default();
    Arc::new(move |request| {
        let client = client.clone();
        Box::pin(async move {
            let answered = client.send(request).await.map_err(Thrown::new)?;
            Ok(answered.map(|chunks| match chunks {
                Some(chunks) => {
                    Body::stream(chunks.map(|chunk| chunk.map_err(|why| BodyError::Cut(why.to_string()))))
                }
                None => Body::Empty,
            }))
        })
    })
}
