//! The editor's unsaved text: agents of its open sessions read it in place of the files.

use ostler_contract::json;
use ostler_protocol::error::code;
use ostler_protocol::wire::messages::JsonRpcError;

use super::Bridge;
use crate::acp::editor_connection::EditorError;

/// The scheme of the daemon's requests for unsaved text.
const SCHEME: &str = "ostler-buffer";

impl Bridge {
    /// Announces to the daemon that the editor has files of a session open, and answers its requests.
    pub(super) fn announce_files(&self, session: &str) {
        if !self.editor.files {
            return;
        }
        let wire = self.wire.clone();
        self.daemon.client().set_server_request_handler(move |method, params| {
            let wire = wire.clone();
            async move {
                let asked = params["uri"].as_str().filter(|_| method == "resourceRead").and_then(asked);
                let Some((session, path)) = asked else {
                    return Err(refused(code::METHOD_NOT_FOUND, format!("{method} is not served")));
                };
                let (answer, _) =
                    wire.request("fs/read_text_file", json!({ "sessionId": session, "path": path }));
                match answer.await {
                    Ok(answer) => Ok(json!({ "data": answer["content"], "encoding": "utf-8" })),
                    Err(EditorError::Refused(why)) => Err(refused(code::NOT_FOUND, why)),
                    Err(EditorError::Closed) => {
                        Err(refused(code::NOT_FOUND, "the editor has disconnected".to_owned()))
                    }
                }
            }
        });
        let (daemon, params) = (self.daemon.clone(), json!({ "session": session }));
        // This has no effect for a backend that reads no files through the host.
        tokio::spawn(async move {
            let _ = daemon.request("x-acp/buffers", params).await;
        });
    }
}

fn refused(code: i32, message: String) -> JsonRpcError {
    JsonRpcError { code, message, data: None }
}

/// Returns the session and the path of a URI.
fn asked(uri: &str) -> Option<(String, String)> {
    let uri = url::Url::parse(uri).ok().filter(|uri| uri.scheme() == SCHEME)?;
    let session = uri.query_pairs().find(|(name, _)| name == "session")?.1.into_owned();
    let path = percent_encoding::percent_decode_str(uri.path()).decode_utf8().ok()?.into_owned();
    Some((session, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_and_the_path_are_in_the_uri() {
        let uri = "ostler-buffer://ostler-acp-1/a%20b/c.txt?session=fake%3A%2Fone";
        assert_eq!(asked(uri), Some(("fake:/one".to_owned(), "/a b/c.txt".to_owned())));
        assert_eq!(asked("file:///a?session=s"), None);
    }
}
