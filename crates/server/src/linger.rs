//! The end of a connection to a peer that still sends. Dropping a socket with unread input resets it, and a reset
//! discards the last output: the status or the close frame with the reason.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ostler_protocol::message::MAX_FRAME;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// How long a peer can pause after the end before it is dropped.
const PAUSE_LIMIT: Duration = Duration::from_secs(2);
/// How long it can continue to send in total.
const LINGER_LIMIT: Duration = Duration::from_secs(10);
/// How many bytes it can continue to send.
const LINGER_BYTES: usize = 4 * MAX_FRAME;
const CHUNK: usize = 16 * 1024;
/// The number of reads before other tasks run.
const READS_AT_ONCE: usize = 2;

/// Reads and discards what a peer still sends, until it ends, pauses or exceeds the limits.
pub(crate) async fn linger(mut reader: impl AsyncRead + Unpin) {
    let mut lingering = Lingering::new();
    std::future::poll_fn(|context| lingering.poll(&mut reader, context)).await;
}

struct Lingering {
    end: Instant,
    pause: Pin<Box<Sleep>>,
    left: usize,
}

impl Lingering {
    fn new() -> Self {
        let end = Instant::now() + LINGER_LIMIT;
        Self { end, pause: Box::pin(sleep(PAUSE_LIMIT)), left: LINGER_BYTES }
    }

    fn poll(&mut self, reader: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
        let mut chunk = [0; CHUNK];
        let mut reads = 0;
        while self.left > 0 && Instant::now() < self.end {
            if reads == READS_AT_ONCE {
                // Other tasks run in between, because there can be a thousand such peers.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            reads += 1;
            let mut buffer = ReadBuf::new(&mut chunk);
            match Pin::new(&mut *reader).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.left = self.left.saturating_sub(buffer.filled().len());
                    self.pause.as_mut().reset(self.end.min(Instant::now() + PAUSE_LIMIT));
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.pause.as_mut().poll(context),
            }
        }
        Poll::Ready(())
    }
}

/// A socket whose shutdown also waits for the peer's end.
pub(crate) struct Socket {
    stream: TcpStream,
    lingering: Option<Lingering>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, lingering: None }
    }

    pub(crate) fn into_inner(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, lingering } = &mut *self;
        if lingering.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        lingering.get_or_insert_with(Lingering::new).poll(stream, context).map(Ok)
    }
}
