//! Plain JSON data. It is converted as by `JSON.parse` and `JSON.stringify`, as JavaScript authors expect.

use rquickjs::{Ctx, Result, String as JsString, Value};
use serde_json::Value as Json;

use crate::errors::type_error;

/// Converts data to JavaScript.
pub(crate) fn data<'js>(ctx: &Ctx<'js>, value: &Json) -> Result<Value<'js>> {
    match value {
        Json::Null => Ok(Value::new_null(ctx.clone())),
        Json::Bool(value) => Ok(Value::new_bool(ctx.clone(), *value)),
        Json::Number(number) => Ok(match number.as_i64().and_then(|number| i32::try_from(number).ok()) {
            Some(small) => Value::new_int(ctx.clone(), small),
            None => Value::new_number(ctx.clone(), number.as_f64().unwrap_or(f64::NAN)),
        }),
        Json::String(text) => Ok(JsString::from_str(ctx.clone(), text)?.into_value()),
        Json::Array(_) | Json::Object(_) => ctx.json_parse(value.to_string()),
    }
}

/// Converts data from JavaScript like `JSON.stringify`; returns `None` if that returns `undefined`.
pub(crate) fn json(value: &Value<'_>) -> Result<Option<Json>> {
    let ctx = value.ctx();
    if let Some(small) = value.as_int() {
        return Ok(Some(small.into()));
    }
    if let Some(value) = value.as_bool() {
        return Ok(Some(value.into()));
    }
    if value.is_null() {
        return Ok(Some(Json::Null));
    }
    if value.is_undefined() || value.is_symbol() {
        return Ok(None);
    }
    if value.is_string() {
        return Ok(super::text(value).map(Json::String));
    }
    let Some(text) = ctx.json_stringify(value.clone())? else { return Ok(None) };
    let text = text.to_string()?;
    serde_json::from_str(&text).or_else(|_| serde_json::from_str(&well_formed(&text))).map(Some).map_err(
        |error| {
            if error.to_string().contains("recursion limit") {
                type_error(ctx, "this value is nested too deeply to be passed to the host")
            } else {
                type_error(ctx, format_args!("this value cannot be passed to the host: {error}"))
            }
        },
    )
}

/// Replaces escaped lone surrogates in JSON with `U+FFFD`: JavaScript strings can contain them, Rust's cannot.
fn well_formed(json: &str) -> String {
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let long = surrogate(escape);
        rest = match long {
            Some(0xD800..=0xDBFF) if matches!(surrogate(&escape[6..]), Some(0xDC00..=0xDFFF)) => {
                mended.push_str(&escape[..12]);
                &escape[12..]
            }
            Some(_) => {
                mended.push('\u{FFFD}');
                &escape[6..]
            }
            None => {
                // An escape is a backslash and one more character, which may be a backslash.
                let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
                mended.push_str(&escape[..end]);
                &escape[end..]
            }
        };
    }
    mended.push_str(rest);
    mended
}

/// Returns the escaped surrogate at the start, as `\ud83d`.
fn surrogate(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok().filter(|unit| (0xD800..=0xDFFF).contains(unit))
}

#[cfg(test)]
mod tests {
    use super::well_formed;

    #[test]
    fn lone_surrogates_are_mended_and_nothing_else() {
        assert_eq!(well_formed(r#""a\ud83d\ude00b""#), r#""a\ud83d\ude00b""#);
        assert_eq!(well_formed(r#""a\ud83d""#), "\"a\u{FFFD}\"");
        assert_eq!(well_formed(r#""\ude00\ud83d\ud83d\ude00""#), "\"\u{FFFD}\u{FFFD}\\ud83d\\ude00\"");
        assert_eq!(well_formed(r#""\\ud83d \n \"""#), r#""\\ud83d \n \"""#);
    }
}
