//! `Authorization: Basic`, for senders that can send a name and a password and nothing else, such as Azure DevOps, Postmark
//! and Alertmanager. The password is the secret, the name is ignored.
//! <https://www.rfc-editor.org/rfc/rfc7617>

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

#[cfg(test)]
use super::{BODY, MADE};
use super::{Claim, MISSING, Outgoing, Proof, Scheme, Sender, Shell, Signing, Unsigned, WRONG, one};
use crate::route::Head;
use crate::token::is_secret;

pub(super) static SENDER: Sender = Sender {
    name: "basic",
    example: "basic",
    headers: &["Authorization"],
    body_limit: crate::BODY_LIMIT,
    scheme: |_| Ok(Arc::new(Basic)),
    #[cfg(test)]
    vectors: &[super::Vector {
        of: "a name and a password",
        verify: r#""basic""#,
        headers: &[("Authorization", "Basic dXNlcjppdCBpcyBhIHNlY3JldA==")],
        body: BODY,
        proof: Proof::Sender,
        ..MADE
    }],
    ..Sender::PLAIN
};

#[derive(Debug)]
struct Basic;

impl Scheme for Basic {
    fn claim(&self, head: &Head) -> Option<Claim> {
        let (scheme, credentials) = one(&head.headers, "authorization")?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let credentials = STANDARD.decode(credentials.trim()).ok()?;
        let colon = credentials.iter().position(|byte| *byte == b':')?;
        Some(Claim { token: Some(credentials[colon + 1..].to_vec()), ..Claim::default() })
    }

    fn admit(&self, claim: &Claim, secret: &str, _: u64) -> Result<Proof, Unsigned> {
        let password = claim.token.as_ref().ok_or(MISSING)?;
        if is_secret(password, secret) { Ok(Proof::Sender) } else { Err(WRONG) }
    }

    fn sign(&self, signing: &Signing<'_>, call: &mut Outgoing) -> Result<(), String> {
        let credentials = STANDARD.encode(format!("ostler:{}", signing.secret));
        call.header("Authorization", format!("Basic {credentials}"));
        Ok(())
    }

    fn shell(&self, _: &str) -> Option<Shell> {
        let credentials = "$(printf %s \"ostler:$SECRET\" | openssl base64 -A)";
        Some(Shell { headers: vec![format!("Authorization: Basic {credentials}")], ..Shell::default() })
    }
}
