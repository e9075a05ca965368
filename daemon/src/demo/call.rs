//! The call of an external program.

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use ostler_contract::{Value, json};
use tokio::net::TcpStream;

use super::daemon::Daemon;
use super::folder::{ENDPOINT, Folder, PAYLOAD};
use crate::exit::Exit;
use crate::webhook;

/// The URL of the endpoint.
pub(super) fn path() -> String {
    webhook::path(ENDPOINT)
}

/// Posts the payload to the endpoint; returns the status and the body.
pub(super) async fn post(daemon: &Daemon, folder: &Folder) -> Result<(u16, String), Exit> {
    send(daemon, folder).await.map_err(|error| Exit::machine(format!("cannot call the endpoint: {error}")))
}

async fn send(
    daemon: &Daemon,
    folder: &Folder,
) -> Result<(u16, String), Box<dyn std::error::Error + Send + Sync>> {
    let address = daemon.url.trim_start_matches("ws://").to_owned();
    let stream = TcpStream::connect(&address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::post(path())
        .header("host", &address)
        .header("authorization", format!("Bearer {}", folder.secret))
        .header("content-type", "application/json")
        .header("x-github-event", "push")
        .body(Full::new(bytes::Bytes::from_static(PAYLOAD.as_bytes())))?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Returns the command line that does the same, with the part of the payload that the automation reads.
pub(super) fn curl(daemon: &Daemon, folder: &Folder) -> String {
    let payload: Value = serde_json::from_str(PAYLOAD).unwrap_or_default();
    let short = json!({
        "ref": payload["ref"],
        "repository": { "full_name": payload["repository"]["full_name"] },
        "commits": [{ "id": payload["after"], "message": "A push by hand" }],
    });
    format!(
        "curl -i {}{} -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' -d '{short}'",
        daemon.http(),
        path(),
        folder.secret
    )
}
