//! The connection of a session: JavaScript transfers its bytes between a socket and the `h2` crate.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::scan::{Frame, PREFACE, Scanner, is_settings};

/// The maximum buffered bytes per direction; beyond it, the sender waits.
const MOST: usize = 256 << 10;

/// The buffers of both directions.
pub(super) struct Wire {
    incoming: BytesMut,
    /// The socket has ended.
    ended: bool,
    outgoing: BytesMut,
    /// The output has ended.
    closed: bool,
    /// Frames to insert at the next frame boundary.
    between: VecDeque<Bytes>,
    /// The settings that the peer has not acknowledged yet, each with whether it was inserted.
    settings: VecDeque<bool>,
    /// The first bytes of a head, until it is known whether the `h2` crate receives its frame.
    head: Vec<u8>,
    pub(super) received: Scanner,
    pub(super) sent: Scanner,
    reader: Option<Waker>,
    drained: Option<Waker>,
    writer: Option<Waker>,
    taker: Option<Waker>,
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl Wire {
    /// `server` means that this side is the server and receives the client's preface.
    pub(super) fn new(server: bool) -> Self {
        let (received, sent) = if server { (PREFACE, 0) } else { (0, PREFACE) };
        Self {
            incoming: BytesMut::new(),
            ended: false,
            outgoing: BytesMut::new(),
            closed: false,
            between: VecDeque::new(),
            settings: VecDeque::new(),
            head: Vec::new(),
            received: Scanner::after(received),
            sent: Scanner::after(sent),
            reader: None,
            drained: None,
            writer: None,
            taker: None,
        }
    }

    /// Receives bytes from the socket; returns the frames that are reported to JavaScript.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut found = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(self.received.ahead().clamp(1, rest.len()));
            rest = after;
            let in_head = self.received.is_in_head();
            let before = found.len();
            self.received.scan(part, |frame| found.push(frame));
            if !in_head {
                self.forward(part);
                continue;
            }
            self.head.extend_from_slice(part);
            if self.received.is_head_partial() {
                continue;
            }
            let head = std::mem::take(&mut self.head);
            match found.get_mut(before) {
                // The `h2` crate fails for an acknowledgement of what it did not send.
                Some(Frame::SettingsAck { inserted }) if self.settings.pop_front() == Some(true) => {
                    *inserted = true
                }
                _ => self.forward(&head),
            }
        }
        found
    }

    fn forward(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.incoming.extend_from_slice(bytes);
            wake(&mut self.reader);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.incoming.len() > MOST
    }

    pub(super) fn poll_drained(&mut self, waker: &Context<'_>) -> Poll<()> {
        if !self.is_full() || self.closed {
            return Poll::Ready(());
        }
        self.drained = Some(waker.waker().clone());
        Poll::Pending
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
        wake(&mut self.reader);
    }

    /// Returns the next bytes for the socket; `None` at the end.
    pub(super) fn poll_take(&mut self, waker: &Context<'_>) -> Poll<Option<Bytes>> {
        if !self.outgoing.is_empty() {
            wake(&mut self.writer);
            return Poll::Ready(Some(self.outgoing.split().freeze()));
        }
        if self.closed {
            return Poll::Ready(None);
        }
        self.taker = Some(waker.waker().clone());
        Poll::Pending
    }

    /// Inserts a frame of the connection.
    pub(super) fn insert(&mut self, frame: Bytes) {
        if !self.closed {
            self.between.push_back(frame);
            self.fit();
        }
    }

    fn fit(&mut self) {
        if !self.sent.between() {
            return;
        }
        while let Some(frame) = self.between.pop_front() {
            if is_settings(&frame) {
                self.settings.push_back(true);
            }
            self.outgoing.extend_from_slice(&frame);
        }
        if !self.outgoing.is_empty() {
            wake(&mut self.taker);
        }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.incoming.clear();
        for waker in [&mut self.taker, &mut self.drained, &mut self.writer, &mut self.reader] {
            wake(waker);
        }
    }
}

/// The transport that the `h2` crate uses.
pub(super) struct End(pub(super) Rc<RefCell<Wire>>);

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        waker: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = self.0.borrow_mut();
        if wire.incoming.is_empty() {
            if wire.ended || wire.closed {
                return Poll::Ready(Ok(()));
            }
            wire.reader = Some(waker.waker().clone());
            return Poll::Pending;
        }
        let many = wire.incoming.len().min(into.remaining());
        into.put_slice(wire.incoming.get(..many).unwrap_or_default());
        wire.incoming.advance(many);
        if !wire.is_full() {
            wake(&mut wire.drained);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, waker: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut wire = self.0.borrow_mut();
        if wire.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if wire.outgoing.len() > MOST {
            wire.writer = Some(waker.waker().clone());
            return Poll::Pending;
        }
        wire.outgoing.extend_from_slice(bytes);
        let Wire { sent, settings, .. } = &mut *wire;
        sent.scan(bytes, |frame| {
            if matches!(frame, Frame::Settings(_)) {
                settings.push_back(false);
            }
        });
        wake(&mut wire.taker);
        wire.fit();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().close();
        Poll::Ready(Ok(()))
    }
}
