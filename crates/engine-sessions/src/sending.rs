//! The publication of the actions that a session has queued.

use std::sync::Arc;

use ostler_engine_core::fanout::Outgoing;

use super::actor::Actor;

impl Actor {
    /// Publishes the queued actions.
    pub(super) fn flush_out(&mut self) {
        if self.storing.has_failed {
            self.out.clear();
        }
        self.unsent |= !self.out.is_empty();
        let mut run: Vec<Outgoing> = Vec::new();
        let mut of: Option<Arc<str>> = None;
        for (channel, outgoing) in self.out.drain(..) {
            if of.as_ref() != Some(&channel) {
                if let Some(channel) = of.take() {
                    self.core.fanout.publish(&channel, std::mem::take(&mut run));
                }
                of = Some(channel);
            }
            run.push(outgoing);
        }
        if let Some(channel) = of {
            self.core.fanout.publish(&channel, run);
        }
    }

    /// Publishes the queued actions and lets connections send them before the writer occupies the processor.
    pub(super) async fn send_out(&mut self) {
        self.flush_out();
        if std::mem::take(&mut self.unsent) {
            tokio::task::yield_now().await;
        }
    }
}
