//! The parts of the contract that `@ostler/sdk` exports: the daemon's own checks and names.

use ostler_contract::id::SLUG_RULE;
use ostler_contract::{Slug, Thrown, policy, tools_endpoint};
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
        "isSlug": |name: Value<'js>| name.is_string() && Slug::parse(&said(&name)).is_some(),
    };
    let native = native?;
    native.set("slugRule", SLUG_RULE)?;
    native.set("toolsEndpoint", tools(ctx)?)?;
    Ok(native)
}

/// Returns the messages of the daemon's tool endpoints, for `toolServers`.
fn tools<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let native: Result<Object<'js>> = natives! { ctx;
        "noEndpoint": |path: Value<'js>| tools_endpoint::no_endpoint(&said(&path)),
        "noMethod": |method: Value<'js>| tools_endpoint::no_method(&said(&method)),
        "noTool": |name: Value<'js>| tools_endpoint::no_tool(&said(&name)),
        "noClient": |name: Value<'js>| tools_endpoint::no_client(&said(&name)),
    };
    let native = native?;
    for (name, text) in [
        ("revision", tools_endpoint::REVISION),
        ("prefix", tools_endpoint::PREFIX),
        ("changed", tools_endpoint::CHANGED),
        ("notItsToken", tools_endpoint::NOT_ITS_TOKEN),
        ("noStream", tools_endpoint::NO_STREAM),
        ("notOneMessage", tools_endpoint::NOT_ONE_MESSAGE),
        ("noName", tools_endpoint::NO_NAME),
    ] {
        native.set(name, text)?;
    }
    Ok(native)
}

fn check_policy<'js>(ctx: Ctx<'js>, body: Value<'js>) -> Result<Value<'js>> {
    let row = policy::check_policy(&json(&body)?.unwrap_or_default());
    answer(&ctx, row.map(Json::Object).map_err(Thrown::from))
}

fn read_policies<'js>(ctx: Ctx<'js>, file: Value<'js>, text: Value<'js>) -> Result<Value<'js>> {
    let rows = policy::read_policies(said(&file), said(&text).as_bytes());
    answer(&ctx, rows.map(|rows| rows.into_iter().map(Json::Object).collect()))
}

/// Returns a string's text, with replacement characters if it is not well-formed.
fn said(value: &Value<'_>) -> String {
    text(value).unwrap_or_default()
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
