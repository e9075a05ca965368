use ostler_contract::http::{Request, Response};
use ostler_contract::live::Live;
use rquickjs::{Ctx, Result, Value};
use crate::engine::State;
pub(crate) fn request_to_js<'js>(ctx: &Ctx<'js>, _: &State, _: Request) -> Result<Value<'js>> { Ok(Value::new_undefined(ctx.clone())) }
pub(crate) fn response_to_js<'js>(ctx: &Ctx<'js>, _: &State, _: Response) -> Result<Value<'js>> { Ok(Value::new_undefined(ctx.clone())) }
pub(crate) fn request_from_js<'js>(_: &Ctx<'js>, _: &State, _: &Value<'js>) -> Result<Option<Live>> { Ok(None) }
pub(crate) fn response_from_js<'js>(_: &Ctx<'js>, _: &State, _: &Value<'js>) -> Result<Option<Live>> { Ok(None) }
