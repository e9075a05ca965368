//! URLs, parsed and changed according to the standard.

use rquickjs::{Array, Ctx, Object, Result};
use url::{Url, quirks};

use super::natives;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "parse": parse,
        "change": change,
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
        Ok(url) => parts(&ctx, &url).map(Some),
        Err(_) => Ok(None),
    }
}

/// Returns the parts after one of them was set; an invalid value changes nothing.
fn change<'js>(ctx: Ctx<'js>, href: String, part: String, value: String) -> Result<Option<Array<'js>>> {
    let Ok(mut url) = Url::parse(&href) else { return Ok(None) };
    // An invalid value is ignored, as in every browser.
    let _ = match part.as_str() {
        "protocol" => quirks::set_protocol(&mut url, &value),
        "username" => quirks::set_username(&mut url, &value),
        "password" => quirks::set_password(&mut url, &value),
        "host" => quirks::set_host(&mut url, &value),
        "hostname" => quirks::set_hostname(&mut url, &value),
        "port" => quirks::set_port(&mut url, &value),
        "pathname" => {
            quirks::set_pathname(&mut url, &value);
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
    parts(&ctx, &url).map(Some)
}

fn parts<'js>(ctx: &Ctx<'js>, url: &Url) -> Result<Array<'js>> {
    let parts = [
        quirks::href(url),
        &quirks::origin(url),
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
