//! Large numbers: modular powers for Diffie-Hellman, and primes.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, NonZero, Odd};
use crypto_primes::{Flavor, is_prime, random_prime};
use rquickjs::{Ctx, Promise, Result, Value};

use super::crypto::given;
use super::rsa::Chance;
use crate::errors::plain_error;
use crate::values::bytes_to_js;

/// The maximum size of a number, in bits.
const LARGEST: usize = 16384;
/// The maximum size of a generated prime and of a safe one, in bits: larger ones take minutes.
const LARGEST_NEW: u32 = 8192;
const LARGEST_SAFE: u32 = 2048;

fn number(ctx: &Ctx<'_>, value: &Value<'_>) -> Result<BoxedUint> {
    let bytes = given(ctx, value)?;
    if bytes.len() * 8 > LARGEST {
        return Err(plain_error(ctx, format_args!("a number has more than {LARGEST} bits")));
    }
    Ok(BoxedUint::from_be_slice_vartime(&bytes))
}

/// Returns `base` to the power of `exponent` modulo an odd number, with the length of the modulus.
pub(super) fn power<'js>(
    ctx: Ctx<'js>,
    base: Value<'js>,
    exponent: Value<'js>,
    modulus: Value<'js>,
) -> Result<Value<'js>> {
    let length = given(&ctx, &modulus)?.len();
    let (base, exponent, modulus) = (number(&ctx, &base)?, number(&ctx, &exponent)?, number(&ctx, &modulus)?);
    let (Some(odd), Some(divisor)) =
        (Odd::new(modulus.clone()).into_option(), NonZero::new(modulus).into_option())
    else {
        return Err(plain_error(&ctx, "the modulus is not odd"));
    };
    let params = BoxedMontyParams::new(odd);
    let base = BoxedMontyForm::new(base.rem_vartime(&divisor), &params);
    let bytes = base.pow(&exponent).retrieve().to_be_bytes();
    let kept = bytes.get(bytes.len().saturating_sub(length)..).unwrap_or_default();
    bytes_to_js(&ctx, kept.to_vec().into())
}

/// Returns whether a number is a prime; with `safe`, a safe prime.
pub(super) fn prime<'js>(ctx: Ctx<'js>, candidate: Value<'js>, safe: bool) -> Result<bool> {
    Ok(is(&number(&ctx, &candidate)?, safe))
}

/// Like [`prime`], on another thread.
pub(super) fn prime_later<'js>(ctx: Ctx<'js>, candidate: Value<'js>, safe: bool) -> Result<Promise<'js>> {
    let candidate = number(&ctx, &candidate)?;
    let inside = ctx.clone();
    Promise::wrap_future(&ctx, async move {
        let found = tokio::task::spawn_blocking(move || is(&candidate, safe)).await;
        found.map_err(|error| plain_error(&inside, error))
    })
}

fn is(candidate: &BoxedUint, safe: bool) -> bool {
    is_prime(if safe { Flavor::Safe } else { Flavor::Any }, candidate)
}

/// Generates a prime of `bits` bits, with the highest bit set.
pub(super) fn new_prime<'js>(ctx: Ctx<'js>, bits: u32, safe: bool) -> Result<Value<'js>> {
    check(&ctx, bits, safe)?;
    bytes_to_js(&ctx, random(bits, safe).into())
}

/// Like [`new_prime`], on another thread.
pub(super) fn new_prime_later<'js>(ctx: Ctx<'js>, bits: u32, safe: bool) -> Result<Promise<'js>> {
    check(&ctx, bits, safe)?;
    let inside = ctx.clone();
    Promise::wrap_future(&ctx, async move {
        let made = tokio::task::spawn_blocking(move || random(bits, safe)).await;
        bytes_to_js(&inside, made.map_err(|error| plain_error(&inside, error))?.into())
    })
}

fn check(ctx: &Ctx<'_>, bits: u32, safe: bool) -> Result<()> {
    let largest = if safe { LARGEST_SAFE } else { LARGEST_NEW };
    if bits <= largest {
        return Ok(());
    }
    let kind = if safe { "safe prime" } else { "prime" };
    Err(plain_error(ctx, format_args!("a new {kind} has at most {largest} bits here")))
}

fn random(bits: u32, safe: bool) -> Vec<u8> {
    // There is no smaller prime or safe prime.
    let bits = bits.max(if safe { 3 } else { 2 });
    let flavor = if safe { Flavor::Safe } else { Flavor::Any };
    let prime: BoxedUint = random_prime(&mut Chance, flavor, bits);
    let bytes = prime.to_be_bytes();
    let length = bits.div_ceil(8) as usize;
    bytes.get(bytes.len().saturating_sub(length)..).unwrap_or_default().to_vec()
}
