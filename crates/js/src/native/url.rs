//! URLs, parsed and changed according to the standard.

use rquickjs::{Array, Ctx, Object, Result};
use url::{Url, quirks};

use super::natives;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "parse": parse,
        "change": change,
        "unicode": unicode,
    }
}

/// Returns a domain with its labels in Unicode; empty if it is invalid or an address.
fn unicode(domain: String) -> String {
    quirks::domain_to_unicode(&domain)
}

/// Escapes `^` in a path, as the standard does since 2023; the crate leaves it.
fn escape_carets(url: &mut Url) {
    if url.path().contains('^') && !url.cannot_be_a_base() {
        let path = url.path().replace('^', "%5E");
        url.set_path(&path);
    }
}

/// Returns the parts of a URL, or `None` if it is invalid.
fn parse<'js>(ctx: Ctx<'js>, text: String, base: Option<String>) -> Result<Option<Array<'js>>> {
    let base = match base.map(|base| Url::parse(&base)) {
        Some(Err(_)) => return Ok(None),
        Some(Ok(base)) => Some(base),
        None => None,
    };
    match Url::options().base_url(base.as_ref()).parse(&text) {
        Ok(mut url) => {
            escape_carets(&mut url);
            parts(&ctx, &url).map(Some)
        }
        Err(_) => Ok(None),
    }
}

/// Returns the parts after one of them was set; an invalid value changes nothing.
fn change<'js>(ctx: Ctx<'js>, href: String, part: String, value: String) -> Result<Option<Array<'js>>> {
    let Ok(mut url) = Url::parse(&href) else { return Ok(None) };
    // An invalid value is ignored, as in every browser.
    let _ = match part.as_str() {
        "protocol" => set_protocol(&mut url, &value),
        "username" => quirks::set_username(&mut url, &value),
        "password" => quirks::set_password(&mut url, &value),
        "host" => quirks::set_host(&mut url, &value),
        "hostname" => quirks::set_hostname(&mut url, &value),
        "port" => quirks::set_port(&mut url, &value),
        "pathname" => {
            let had_host = url.has_authority();
            quirks::set_pathname(&mut url, &value);
            if !had_host {
                separate_path(&mut url);
            }
            Ok(())
        }
        "search" => {
            quirks::set_search(&mut url, &value);
            Ok(())
        }
        _ => {
            quirks::set_hash(&mut url, &value);
            Ok(())
        }
    };
    escape_carets(&mut url);
    parts(&ctx, &url).map(Some)
}

/// Returns the origin of a URL. Of a blob, the standard only takes that of `http` and `https`; the crate takes any.
fn origin(url: &Url) -> String {
    let is_web = |inner: &Url| matches!(inner.scheme(), "http" | "https");
    match url.scheme() {
        "blob" if !Url::parse(url.path()).is_ok_and(|inner| is_web(&inner)) => "null".to_owned(),
        _ => quirks::origin(url),
    }
}

/// Writes `/.` before a path that starts with two slashes where there is no host, which would otherwise begin one; the
/// crate does so when it parses, not when a path is set.
fn separate_path(url: &mut Url) {
    let rest = &url[url::Position::AfterScheme..];
    if rest.starts_with("://")
        && let Ok(fixed) = Url::parse(&format!("{}:/.{}", url.scheme(), &rest[1..]))
    {
        *url = fixed;
    }
}

/// Sets the protocol. The crate refuses `file` where there is a host, which the standard allows.
fn set_protocol(url: &mut Url, value: &str) -> std::result::Result<(), ()> {
    let name = value.split(':').next().unwrap_or_default();
    let bare = url.username().is_empty() && url.password().is_none() && url.port().is_none();
    if url.is_special() && bare && name.eq_ignore_ascii_case("file") {
        let (scheme, rest) = url.as_str().split_at(url.scheme().len());
        if scheme != "file" {
            *url = Url::parse(&format!("file{rest}")).map_err(|_| ())?;
        }
        return Ok(());
    }
    quirks::set_protocol(url, value)
}

fn parts<'js>(ctx: &Ctx<'js>, url: &Url) -> Result<Array<'js>> {
    let parts = [
        quirks::href(url),
        &origin(url),
        quirks::protocol(url),
        quirks::username(url),
        quirks::password(url),
        quirks::host(url),
        quirks::hostname(url),
        quirks::port(url),
        quirks::pathname(url),
        quirks::search(url),
        quirks::hash(url),
    ];
    let list = Array::new(ctx.clone())?;
    for (at, part) in parts.into_iter().enumerate() {
        list.set(at, part)?;
    }
    Ok(list)
}
