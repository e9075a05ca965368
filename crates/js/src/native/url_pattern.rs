//! URL patterns, parsed according to the standard. The engine's regular expressions match them.

use rquickjs::{Ctx, Object, Result};
use urlpattern::quirks::{self, EcmaRegexp, StringOrInit};
use urlpattern::regexp::RegExp;
use urlpattern::{RegexSyntax, UrlPatternOptions};

use super::natives;
use crate::errors::type_error;

/// Returns the native functions for `internal/url-pattern`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx; "parse": parse, "read": read }
}

/// The regular expression of a part of a pattern. The engine validates it.
struct Expression(String);

impl RegExp for Expression {
    fn syntax() -> RegexSyntax {
        RegexSyntax::EcmaScript
    }

    fn parse(pattern: &str, _: &str, _: bool) -> std::result::Result<Self, ()> {
        Ok(Self(pattern.to_owned()))
    }

    fn matches<'a>(&self, text: &'a str) -> Option<Vec<Option<&'a str>>> {
        EcmaRegexp::parse(&self.0, "", false).ok()?.matches(text)
    }

    fn pattern_string(&self) -> &str {
        &self.0
    }
}

/// Returns the parts of a pattern as JSON; the input is JSON too, a string or an object of strings.
fn parse(ctx: Ctx<'_>, given: String, base: Option<String>, ignore_case: bool) -> Result<String> {
    let refused = |why: &dyn std::fmt::Display| type_error(&ctx, why);
    let given: StringOrInit<'_> = serde_json::from_str(&given).map_err(|error| refused(&error))?;
    let init =
        quirks::process_construct_pattern_input(given, base.as_deref()).map_err(|error| refused(&error))?;
    let options = UrlPatternOptions { regex_syntax: RegexSyntax::EcmaScript, ignore_case };
    let pattern = quirks::parse_pattern::<Expression>(init, options).map_err(|error| refused(&error))?;
    serde_json::to_string(&pattern).map_err(|error| refused(&error))
}

/// Returns the parts of an input to match as JSON, or `None` if it is not a URL.
fn read(ctx: Ctx<'_>, given: String, base: Option<String>) -> Result<Option<String>> {
    let refused = |why: &dyn std::fmt::Display| type_error(&ctx, why);
    let given: StringOrInit<'_> = serde_json::from_str(&given).map_err(|error| refused(&error))?;
    let read = quirks::process_match_input(given, base.as_deref()).map_err(|error| refused(&error))?;
    let Some(parts) = read.and_then(|(input, _)| quirks::parse_match_input(input)) else { return Ok(None) };
    serde_json::to_string(&parts).map(Some).map_err(|error| refused(&error))
}
