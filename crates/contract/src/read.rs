//! Failure is not absence. A read of a store, the vault or the policies has three outcomes: found, absent and unknown.

use std::time::Duration;

use futures::{Future, FutureExt};
use ostler_protocol::RpcError;
use ostler_protocol::error::code;
use ostler_protocol::{json, names};

use crate::call::{Call, HostFunction, Signature};
use crate::thrown::Thrown;

/// The outcome of a read.
///
/// It has neither `ok` nor `unwrap_or`: a caller that continues as if nothing were stored says why with
/// [`Read::or_assume`].
///
/// ```
/// use ostler_contract::read::{Read, Unknown};
/// use ostler_contract::Thrown;
///
/// fn title(read: Read<Option<String>>) -> Result<String, Unknown> {
///     Ok(read.known()?.unwrap_or_else(|| "untitled".to_owned()))
/// }
/// assert_eq!(title(Read::Known(None)).unwrap(), "untitled");
/// assert!(title(Read::Unknown(Unknown(Thrown::new("the disk is gone")))).is_err());
/// ```
#[must_use = "a read that failed says nothing about what is stored"]
#[derive(Debug, Clone, PartialEq)]
pub enum Read<T> {
    /// What is stored. Of a lookup, `None` if it is absent.
    Known(T),
    /// The read failed, so that nothing is known about what is stored.
    Unknown(Unknown),
}

/// Why a read failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub Thrown);

impl<T> Read<T> {
    /// Returns what is stored, for a caller that fails when it is unknown.
    ///
    /// # Errors
    /// Why the read failed.
    pub fn known(self) -> Result<T, Unknown> {
        match self {
            Self::Known(stored) => Ok(stored),
            Self::Unknown(why) => Err(why),
        }
    }

    /// Returns what is stored, or a value to continue with when it is unknown. `reason` says in the code why that value
    /// does no harm; `tell` receives the failure.
    pub fn or_assume(self, assumed: T, reason: &'static str, tell: impl FnOnce(&Unknown)) -> T {
        debug_assert!(!reason.is_empty());
        match self {
            Self::Known(stored) => stored,
            Self::Unknown(why) => {
                tell(&why);
                assumed
            }
        }
    }

    /// Converts what is stored.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Read<U> {
        match self {
            Self::Known(stored) => Read::Known(convert(stored)),
            Self::Unknown(why) => Read::Unknown(why),
        }
    }
}

impl<T> Read<Option<T>> {
    /// The outcome of a function of the host that refuses what does not exist, such as
    /// [`HostCalls::secret`](crate::host::HostCalls::secret).
    pub fn of_lookup(answer: Result<T, Thrown>) -> Self {
        match answer {
            Ok(found) => Self::Known(Some(found)),
            Err(why) if why.rpc.as_ref().is_some_and(|rpc| rpc.code == code::NOT_FOUND) => Self::Known(None),
            Err(why) => Self::Unknown(Unknown(why)),
        }
    }
}

impl<S: Signature> Call<S> {
    /// Calls a read of a store, the vault or the policies, as [`Call::within`] does. A failure says nothing about what is
    /// stored.
    pub fn read(
        &self,
        limit: Duration,
        arguments: S::Arguments,
    ) -> impl Future<Output = Read<S::Answer>> + Send + use<S> {
        self.within(limit, arguments).map(Read::from)
    }
}

impl<S: Signature> HostFunction<S> {
    /// Calls a read of the plugin's records. A failure says nothing about what is stored.
    pub fn read(&self, arguments: S::Arguments) -> impl Future<Output = Read<S::Answer>> + Send + use<S> {
        self.call(arguments).map(Read::from)
    }
}

impl<T> From<Result<T, Thrown>> for Read<T> {
    fn from(answer: Result<T, Thrown>) -> Self {
        match answer {
            Ok(stored) => Self::Known(stored),
            Err(why) => Self::Unknown(Unknown(why)),
        }
    }
}

impl From<Unknown> for Thrown {
    fn from(why: Unknown) -> Self {
        why.0
    }
}

/// An error without data says that the request can be repeated.
impl From<Unknown> for RpcError {
    fn from(why: Unknown) -> Self {
        let error = why.0.into_rpc();
        match error.data {
            None if error.code == code::INTERNAL_ERROR => {
                error.with_data(json!({ (names::RETRYABLE): true }))
            }
            _ => error,
        }
    }
}
