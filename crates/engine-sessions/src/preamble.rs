//! Text of plugins before the first turn of a chat. Spec: *Plugin host calls*, chat preamble.

use ostler_contract::points::{ChatPreamble, PreambleChat};
use ostler_contract::{Frozen, limit};

use crate::Sessions;

impl Sessions {
    /// Calls all preambles concurrently. Returns their texts in plugin order, separated by blank lines.
    pub(super) async fn chat_preamble(&self, about: &PreambleChat) -> Option<String> {
        let preambles = self.core.registry()?.all::<ChatPreamble>();
        let asked = preambles.iter().map(|preamble| async move {
            match preamble.preamble.within(limit::PREAMBLE, (Frozen(about.clone()),)).await {
                Ok(text) => text.filter(|text| !text.trim().is_empty()),
                Err(why) => {
                    let chat = &about.chat;
                    self.core.log.warn(format_args!(
                        "{}: its preamble of {chat} failed: {}",
                        preamble.owner,
                        why.for_log()
                    ));
                    None
                }
            }
        });
        let texts: Vec<String> = futures::future::join_all(asked).await.into_iter().flatten().collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }
}
