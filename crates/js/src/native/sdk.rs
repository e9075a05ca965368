//! What `@ostler/sdk` has from the contract: the checks and the names the daemon itself goes by.

use ostler_contract::Thrown;
use ostler_contract::id::SLUG_RULE;
use ostler_contract::policy;
use rquickjs::{Ctx, Object, Result, Value};
use serde_json::Value as Json;

use super::natives;
use crate::engine::State;
use crate::errors::raise;
use crate::values::{data, json, text};

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native: Result<Object<'js>> = natives! { ctx;
        "checkPolicy": check_policy,
        "readPolicies": read_policies,
        "isSlug": |name: Value<'js>| name.is_string()
            && text(&name).is_some_and(|name| ostler_contract::Slug::parse(&name).is_some()),
    };
    let native = native?;
    native.set("slugRule", SLUG_RULE)?;
    Ok(native)
}

fn check_policy<'js>(ctx: Ctx<'js>, body: Value<'js>) -> Result<Value<'js>> {
    let row = policy::check_policy(&json(&body)?.unwrap_or_default());
    answer(&ctx, row.map(Json::Object).map_err(Thrown::from))
}

fn read_policies<'js>(ctx: Ctx<'js>, file: String, text: Value<'js>) -> Result<Value<'js>> {
    let text = crate::values::text(&text).unwrap_or_default();
    let rows = policy::read_policies(file, text.as_bytes());
    answer(&ctx, rows.map(|rows| rows.into_iter().map(Json::Object).collect()))
}

fn answer<'js>(ctx: &Ctx<'js>, answer: std::result::Result<Json, Thrown>) -> Result<Value<'js>> {
    match answer {
        Ok(value) => data(ctx, &value),
        Err(thrown) => {
            let state = State::of(ctx)?;
            Err(raise(ctx, &state, &thrown))
        }
    }
}
