//! One connection over stdin and stdout: one JSON message per line. The peer started the host, so it acts as the host
//! itself.

use std::sync::Arc;
use std::time::Duration;

use ostler_engine::outbox::{Closed, Item, Outbox};
use ostler_engine::{Connection, Host};
use ostler_protocol::RpcError;
use ostler_protocol::message::{BadFrame, MAX_FRAME};
use ostler_protocol::origins::WayIn;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// Smaller frames are combined into one write of this size.
const WRITE_BUFFER: usize = 16 * 1024;
/// How long a peer that closed its end still receives answers.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// Serves one peer until it closes its end, and answers its requests before that.
pub async fn serve_stdio(
    host: &Arc<Host>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) {
    let connection = Connection::open(&host.front, host.access.gate.root(), WayIn::Client);
    let outbox = connection.outbox.clone();
    let mut writing = tokio::spawn(write(outbox.clone(), output));
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut input).take(MAX_FRAME as u64 + 1);
        let read = tokio::select! {
            biased;
            // The host has ended the connection, or the peer does not read its output.
            _ = &mut writing => return connection.close(),
            // A peer that does not read its answers is not read further.
            read = async { outbox.writable().await; limited.read_until(b'\n', &mut line).await } => read,
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(read) if read > MAX_FRAME => {
                let error = RpcError::invalid_request(format!("a message is at most {MAX_FRAME} bytes"));
                connection.refuse(&BadFrame { id: None, error });
                break;
            }
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        connection.receive_frame(text).await;
    }
    tokio::select! {
        () = outbox.settled() => {}
        () = tokio::time::sleep(LAST_ANSWERS) => {}
        // The peer does not read them.
        _ = &mut writing => return connection.close(),
    }
    connection.close();
    let _ = writing.await;
}

async fn write(outbox: Arc<Outbox>, mut output: impl AsyncWrite + Unpin) {
    let mut items = Vec::new();
    let mut bytes = Vec::new();
    while outbox.drain(&mut items).await.is_none() {
        if put(&mut items, &mut bytes, &mut output).await.is_err() {
            outbox.close(Closed::Done);
            return;
        }
    }
}

/// Writes all frames and frees each as soon as it is written.
async fn put(
    items: &mut Vec<Item>,
    gathered: &mut Vec<u8>,
    output: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    for item in items.drain(..) {
        for frame in item.frames() {
            if gathered.len() + frame.len() > WRITE_BUFFER {
                output.write_all(gathered).await?;
                gathered.clear();
                output.write_all(frame).await?;
            } else {
                gathered.extend_from_slice(frame);
            }
            gathered.push(b'\n');
        }
    }
    output.write_all(gathered).await?;
    gathered.clear();
    output.flush().await
}
