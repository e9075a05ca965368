//! Key derivation with scrypt.

use bytes::Bytes;
use rquickjs::convert::List;
use rquickjs::{Ctx, Promise, Result, Value};
use scrypt::Params;
use tokio::sync::Semaphore;

use super::crypto::given;
use crate::engine::State;
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// The maximum number of concurrent asynchronous derivations of all plugins, because each needs much memory.
static AT_ONCE: Semaphore = Semaphore::const_new(4);

/// The logarithm of N, r and p.
type Cost = List<(u8, u32, u32)>;

struct Stretch {
    password: Bytes,
    salt: Bytes,
    params: Params,
    length: usize,
}

impl Stretch {
    fn new(
        ctx: &Ctx<'_>,
        password: &Value<'_>,
        salt: &Value<'_>,
        List((log_n, r, p)): Cost,
        length: usize,
    ) -> Result<Self> {
        let params = Params::new(log_n, r, p).map_err(|_| plain_error(ctx, "Invalid scrypt params"))?;
        let needs = (params.n() + u64::from(p) + 2).saturating_mul(128).saturating_mul(u64::from(r));
        let has = State::of(ctx)?.watch.memory_left();
        if usize::try_from(needs).map_or(true, |needs| needs > has) {
            return Err(plain_error(
                ctx,
                "Invalid scrypt params: they take more memory than this plugin may",
            ));
        }
        Ok(Self { password: given(ctx, password)?, salt: given(ctx, salt)?, params, length })
    }

    fn run(&self) -> Vec<u8> {
        let mut out = vec![0; self.length];
        // It only fails for a length of 0; the empty buffer is the correct result then.
        let _ = scrypt::scrypt(&self.password, &self.salt, &self.params, &mut out);
        out
    }
}

pub(super) fn now<'js>(
    ctx: Ctx<'js>,
    password: Value<'js>,
    salt: Value<'js>,
    cost: Cost,
    length: usize,
) -> Result<Value<'js>> {
    bytes_to_js(&ctx, Stretch::new(&ctx, &password, &salt, cost, length)?.run().into())
}

pub(super) fn later<'js>(
    ctx: Ctx<'js>,
    password: Value<'js>,
    salt: Value<'js>,
    cost: Cost,
    length: usize,
) -> Result<Promise<'js>> {
    let stretch = Stretch::new(&ctx, &password, &salt, cost, length)?;
    let inside = ctx.clone();
    Promise::wrap_future(&ctx, async move {
        let _turn = AT_ONCE.acquire().await;
        match tokio::task::spawn_blocking(move || stretch.run()).await {
            Ok(done) => bytes_to_js(&inside, done.into()),
            Err(_) => Err(plain_error(&inside, "the password could not be stretched")),
        }
    })
}
