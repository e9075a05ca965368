//! The way plugins reach the network: one client for all of them.

use futures::StreamExt;
use ostler_contract::Thrown;
use ostler_contract::http::{Body, BodyError, Request, Response};
use ostler_contract::live::{Pending, ready};
use ostler_net::Client;

/// Sends a plugin's request. Made once; a client that could not be set up is said whenever it is asked for.
pub fn sender() -> impl Fn(Request) -> Pending<Response> + Send + Sync + 'static {
    let client = Client::new();
    move |request| match &client {
        Ok(client) => {
            let client = client.clone();
            Box::pin(async move { exchange(&client, request).await })
        }
        Err(why) => ready(Err(Thrown::new(format_args!("no connection can be made: {why}")))),
    }
}

async fn exchange(client: &Client, request: Request) -> Result<Response, Thrown> {
    let answered = client.send(request).await.map_err(Thrown::new)?;
    Ok(answered.map(|chunks| match chunks {
        Some(chunks) => {
            Body::stream(chunks.map(|chunk| chunk.map_err(|why| BodyError::Cut(why.to_string()))))
        }
        None => Body::Empty,
    }))
}
