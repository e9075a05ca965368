//! Time zones, for `Intl.DateTimeFormat`.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ostler_contract::time_zone::time_zone;
use rquickjs::convert::List;
use rquickjs::{Ctx, Object, Result};

use super::natives;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "own": || TimeZone::system().iana_name().unwrap_or("UTC").to_owned(),
        "name": |zone: String| time_zone(&zone).map(|found| found.iana_name().unwrap_or("UTC").to_owned()),
        "offset": offset,
    }
}

/// Returns a zone's offset from UTC in minutes at a time, and its abbreviation then.
fn offset(zone: String, milliseconds: f64) -> Option<List<(f64, String)>> {
    let zone = time_zone(&zone)?;
    #[allow(clippy::cast_possible_truncation)]
    let at = Timestamp::from_millisecond(milliseconds as i64).ok()?;
    let info = zone.to_offset_info(at);
    Some(List((f64::from(info.offset().seconds()) / 60.0, info.abbreviation().to_owned())))
}
