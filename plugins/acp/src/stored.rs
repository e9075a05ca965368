//! The name under which the host stores an agent's session: the agent's id, marked until that session has received the
//! conversation, so that it receives it also after a restart of the host.

/// The prefix of a session that has not received the conversation.
const UNTOLD: &str = "untold:";
/// The prefix of another session whose id looks like such a name.
const TOLD: &str = "told:";

/// An agent's session in the form for the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The agent's id, once it has one.
    pub id: Option<String>,
    /// Whether the session has not received the conversation: no prompt with it was answered.
    pub untold: bool,
}

impl Stored {
    /// Parses the stored name.
    pub fn read(name: Option<&str>) -> Self {
        let untold = name.and_then(|name| name.strip_prefix(UNTOLD));
        let told = name.map(|name| name.strip_prefix(TOLD).filter(|id| is_escaped(id)).unwrap_or(name));
        let id = untold.or(told).filter(|id| !id.is_empty()).map(str::to_owned);
        Self { id, untold: untold.is_some() }
    }

    /// Creates it for a session that is not open yet and has to receive the conversation.
    pub fn to_open() -> Self {
        Self { id: None, untold: true }
    }

    /// Returns the name for the host; `None` if there is none.
    pub fn name(&self) -> Option<String> {
        match (&self.id, self.untold) {
            (id, true) => Some(format!("{UNTOLD}{}", id.as_deref().unwrap_or_default())),
            (Some(id), false) if is_escaped(id) => Some(format!("{TOLD}{id}")),
            (id, false) => id.clone(),
        }
    }
}

/// Returns whether an agent's id has one of the prefixes.
fn is_escaped(id: &str) -> bool {
    id.starts_with(UNTOLD) || id.starts_with(TOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let id = |id: &str| Some(id.to_owned());
        for (stored, name) in [
            (Stored { id: id("one"), untold: false }, Some("one")),
            (Stored { id: id("one"), untold: true }, Some("untold:one")),
            (Stored::to_open(), Some("untold:")),
            (Stored { id: id("untold:one"), untold: false }, Some("told:untold:one")),
            (Stored { id: id("untold:one"), untold: true }, Some("untold:untold:one")),
            (Stored { id: id("told:untold:one"), untold: false }, Some("told:told:untold:one")),
            (Stored { id: id("told:one"), untold: false }, Some("told:told:one")),
            (Stored::default(), None),
        ] {
            assert_eq!(stored.name().as_deref(), name);
            assert_eq!(Stored::read(name), stored);
        }
    }
}
