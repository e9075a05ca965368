//! A message as e-mail over SMTP: encrypted, unless the server is this computer.

use std::error::Error as _;
use std::time::Duration;

use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Mail};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use ostler_contract::VaultName;

use super::{Failure, Message, is_private};
use crate::notify::rules::Fields;

/// How long one command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
/// The most addresses that a message is sent to.
const MOST_ADDRESSES: usize = 20;

/// How the connection to a server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// It begins in the clear and is encrypted before anything is sent.
    StartTls,
    /// It is encrypted from the beginning.
    Tls,
    /// It is not; for a server on this computer.
    None,
}

/// Where e-mail goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Email {
    /// The server's name.
    pub server: String,
    pub port: u16,
    /// How the connection is encrypted.
    pub security: Security,
    /// The name to sign in with, and the vault name of its password.
    pub login: Option<(String, VaultName)>,
    /// The sender.
    pub from: Mailbox,
    /// The recipients.
    pub to: Vec<Mailbox>,
}

/// Reads where e-mail goes.
///
/// # Errors
/// What is wrong, with its place.
pub(in crate::notify) fn read(fields: &Fields<'_>) -> Result<Email, String> {
    let server = fields.required("server")?.to_owned();
    let security = match fields.text("tls")? {
        None | Some("starttls") => Security::StartTls,
        Some("tls") => Security::Tls,
        Some("none") if is_private(&server) => Security::None,
        Some("none") => {
            return Err(format!(
                "{} may be none only if the server is this computer",
                fields.place_of("tls")
            ));
        }
        Some(_) => return Err(format!("{} must be starttls, tls or none", fields.place_of("tls"))),
    };
    let default = match security {
        Security::StartTls => 587,
        Security::Tls => 465,
        Security::None => 25,
    };
    let login = match (fields.text("user")?, fields.optional_secret("password")?) {
        (None, None) => None,
        (Some(user), Some(password)) => Some((user.to_owned(), password)),
        (Some(_), None) => return Err(format!("{} is missing", fields.place_of("password"))),
        (None, Some(_)) => return Err(format!("{} is missing", fields.place_of("user"))),
    };
    let address = |text: &str, name: &str| {
        let odd = || format!("{} must be an e-mail address", fields.place_of(name));
        text.parse::<Mailbox>().map_err(|_| odd())
    };
    let to = fields.texts("to")?;
    if to.is_empty() || to.len() > MOST_ADDRESSES {
        return Err(format!("{} must be 1 to {MOST_ADDRESSES} e-mail addresses", fields.place_of("to")));
    }
    Ok(Email {
        server,
        port: fields.port("port")?.unwrap_or(default),
        security,
        login,
        from: address(fields.required("from")?, "from")?,
        to: to.iter().map(|one| address(one, "to")).collect::<Result<_, _>>()?,
    })
}

/// Sends a message.
///
/// # Errors
/// Why it was not taken.
pub(super) async fn send(target: &Email, password: Option<String>, message: &Message) -> Result<(), Failure> {
    let mail = mail(target, message)?;
    let tls = match target.security {
        Security::None => Tls::None,
        Security::Tls => Tls::Wrapper(parameters(&target.server)?),
        Security::StartTls => Tls::Required(parameters(&target.server)?),
    };
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&target.server)
        .port(target.port)
        .tls(tls)
        .hello_name(ClientId::Domain("ostler".to_owned()))
        .timeout(Some(COMMAND_LIMIT));
    if let (Some((user, _)), Some(password)) = (&target.login, password) {
        builder = builder.credentials(Credentials::new(user.clone(), password));
    }
    builder.build().send(mail).await.map(drop).map_err(|error| failure(&target.server, &error))
}

/// Why a server did not take a message: its status, or the cause. The text of its answer may repeat what it was sent.
fn failure(server: &str, error: &lettre::transport::smtp::Error) -> Failure {
    if let Some(code) = error.status() {
        return format!("{server} answered {code}");
    }
    if let Some(problem) = ostler_net::certificate_problem(error) {
        return format!("{server}: {problem}");
    }
    match error.source() {
        Some(source) => format!("{server}: {source}"),
        None => format!("{server}: {error}"),
    }
}

/// TLS as the rest of the program speaks it: with the authorities of the system, and those of Mozilla where it has none.
fn parameters(server: &str) -> Result<TlsParameters, Failure> {
    let failed = |error: lettre::transport::smtp::Error| format!("TLS to {server} cannot be set up: {error}");
    let authorities = ostler_net::authorities();
    let mut builder = TlsParameters::builder(server.to_owned());
    builder = match authorities.is_empty() {
        true => builder.certificate_store(CertificateStore::WebpkiRoots),
        false => builder.certificate_store(CertificateStore::None),
    };
    for authority in authorities {
        builder = builder.add_root_certificate(Certificate::from_der(authority.to_vec()).map_err(failed)?);
    }
    builder.build_rustls().map_err(failed)
}

fn mail(target: &Email, message: &Message) -> Result<Mail, Failure> {
    let mut builder = Mail::builder()
        .from(target.from.clone())
        .subject(one_line(&format!("[ostler] {}", message.headline())))
        .header(ContentType::TEXT_PLAIN);
    // The same in every try, so that a mailbox that was sent one twice shows it once.
    let domain = target.from.email.domain();
    builder = builder.message_id(Some(format!("<{}@{domain}>", message.id)));
    for to in &target.to {
        builder = builder.to(to.clone());
    }
    builder.body(text(message)).map_err(|error| format!("the e-mail cannot be written: {error}"))
}

fn text(message: &Message) -> String {
    let mut text = format!("{}\n\n{}\n", message.headline(), message.asks);
    if message.is_test {
        text.push_str(&format!("\nA link of this host:\n{}\n", message.link));
        return text;
    }
    if message.is_answered() {
        text.push_str(&format!("\nShow the request and answer it:\n{}\n", message.link));
        let by = message.user.as_ref().map(|user| format!(" as {user}")).unwrap_or_default();
        text.push_str(&format!(
            "\nThe link answers{by}, once, until {}. Do not forward this message.\n",
            message.expiry()
        ));
    } else {
        text.push_str(&format!("\nShow the request and what to do:\n{}\n", message.link));
    }
    text.push_str(&format!("\nSession: {}\nRule: {}\n", message.session, message.rule));
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::rules::{Rules, Target};
    use crate::notify::send::sample;

    fn target(more: &str) -> Result<Email, String> {
        let text = format!("rules: [{{ id: one, email: {{ {more} }} }}]");
        let rules = Rules::parse(&text)?;
        match &rules.0[0].target {
            Target::Email(email) => Ok(email.clone()),
            other => Err(format!("{other:?}")),
        }
    }

    const MAIL: &str = "from: 'Ostler <ostler@host.example>', to: ada@host.example";

    #[test]
    fn a_server_has_a_port_for_its_kind_of_encryption() {
        let of = |more: &str| target(&format!("server: mail.example, {more} {MAIL}")).unwrap();
        assert_eq!((of("").port, of("").security), (587, Security::StartTls));
        assert_eq!((of("tls: tls,").port, of("tls: tls, port: 1465,").port), (465, 1465));
        assert!(target(&format!("server: 127.0.0.1, tls: none, {MAIL}")).is_ok());
        for (more, says) in [
            (format!("server: mail.example, tls: none, {MAIL}"), "tls may be none only if"),
            (format!("server: mail.example, tls: ssl, {MAIL}"), "must be starttls, tls or none"),
            (format!("server: mail.example, user: ada, {MAIL}"), "email.password is missing"),
            (format!("server: mail.example, port: 0, {MAIL}"), "between 1 and 65535"),
            ("server: mail.example, from: a@b.example".to_owned(), "to must be 1 to 20"),
            (
                "server: mail.example, from: nobody, to: a@b.example".to_owned(),
                "from must be an e-mail address",
            ),
            (format!("server: mail.example, user: a, password: hunter2, {MAIL}"), "must be the vault name"),
        ] {
            let why = target(&more).unwrap_err();
            assert!(why.contains(says) && !why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn no_line_of_a_session_becomes_a_header() {
        let message = Message { title: "x\r\nBcc: evil@host.example".to_owned(), ..sample() };
        let mail = mail(&target(&format!("server: mail.example, {MAIL}")).unwrap(), &message).unwrap();
        let text = String::from_utf8(mail.formatted()).unwrap();
        let head = text.split("\r\n\r\n").next().unwrap();
        assert!(!head.lines().any(|line| line.to_ascii_lowercase().starts_with("bcc")), "{head}");
        assert!(head.contains("Message-ID: <n1@host.example>"), "{head}");
    }
}
