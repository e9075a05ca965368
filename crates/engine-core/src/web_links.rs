//! URLs of runs and sessions of this host, for users and programs.

use ostler_protocol::uri::Channel;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that need no escape in a segment of a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The HTTP services of runs and sessions. Without either, they have no URL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// The page of the web console, such as `https://host.example/plugins/console/`.
    pub console: Option<String>,
    /// The HTTP API, such as `https://host.example/api`.
    pub api: Option<String>,
}

impl Links {
    /// Returns the URL of a run or a session by its URI: its page in the console, otherwise its address in the API.
    pub fn of(&self, uri: &str) -> Option<String> {
        match (&self.console, Channel::parse(uri)) {
            (Some(console), Channel::AutomationRun(_)) => Some(page(console, "run", uri)),
            (Some(console), Channel::Session(_)) => Some(page(console, "session", uri)),
            _ => self.in_api(uri),
        }
    }

    /// Returns the address of a run or a session in the API.
    pub fn in_api(&self, uri: &str) -> Option<String> {
        let api = self.api.as_ref()?;
        let (list, id) = match Channel::parse(uri) {
            Channel::AutomationRun(id) => ("runs", id),
            Channel::Session(id) => ("sessions", id),
            _ => return None,
        };
        Some(format!("{api}/{list}/{}", utf8_percent_encode(&id, PLAIN)))
    }
}

/// The console reads the URI from the fragment, which no server sees.
fn page(console: &str, kind: &str, uri: &str) -> String {
    format!("{console}#/{kind}/{}", utf8_percent_encode(uri, PLAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_and_a_session_have_a_page_or_an_address() {
        let api = Some("https://a.example/api".to_owned());
        let both = Links { console: Some("https://a.example/plugins/console/".to_owned()), api: api.clone() };
        let (run, session) = ("ahp-automation-run:/1f", "echo:/a b");
        assert_eq!(
            both.of(run).unwrap(),
            "https://a.example/plugins/console/#/run/ahp-automation-run%3A%2F1f"
        );
        assert_eq!(both.of(session).unwrap(), "https://a.example/plugins/console/#/session/echo%3A%2Fa%20b");
        let alone = Links { console: None, api };
        assert_eq!(alone.of(run), alone.in_api(run));
        assert_eq!(alone.of(run).unwrap(), "https://a.example/api/runs/1f");
        assert_eq!(alone.of(session).unwrap(), "https://a.example/api/sessions/a%20b");
        for other in ["ahp-root://", "ahp-automations://", "nonsense", ""] {
            assert_eq!((both.of(other), alone.of(other)), (None, None), "{other}");
        }
        assert_eq!(Links::default().of(run), None);
    }
}
