//! Typed functions across the boundary. Calls between native code never convert to JSON; calls to and from JavaScript
//! convert by the same signature.
//!
//! [`Call`] is a function of a plugin. The caller sets a limit for the answer, or declares that it has none; a call
//! without either does not exist. [`HostFunction`] is a function of the host that a plugin calls.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, Either};
use tracing::{Instrument, Span};

pub use crate::answering::Answering;
use crate::answering::{caught, caught_either, caught_now};
pub use crate::call_measure::{ENDPOINT_CALL, Meter, PLUGIN_CALL, endpoint_call, measure};
use crate::call_measure::{Maker, Measured, Outcome, Timing, plugin_call, record};
use crate::cross::{Cross, Mismatch};
use crate::id::PluginId;
use crate::live::{Callable, Function, Live, Pending, ready};
use crate::shape::{FunctionShape, Shape};
use crate::thrown::Thrown;

/// A `fn(…) -> …` type, read as parameters and answer.
pub trait Signature: 'static {
    /// The parameters, as a tuple.
    type Arguments: Arguments;
    /// The answer.
    type Answer: Cross;
}

/// A tuple of parameters.
pub trait Arguments: Sized + Send + 'static {
    /// The shape of each.
    fn shapes() -> Vec<Shape>;
    /// For the other side.
    fn into_live(self) -> Vec<Live>;
    /// Converts from JavaScript. Missing arguments are `undefined`; surplus ones are dropped.
    fn from_live(arguments: Vec<Live>) -> Result<Self, (usize, Mismatch)>;
}

macro_rules! signatures {
    ($(($($name:ident $at:tt),*))+) => {$(
        impl<$($name: Cross,)* R: Cross> Signature for fn($($name),*) -> R {
            type Arguments = ($($name,)*);
            type Answer = R;
        }

        impl<$($name: Cross),*> Arguments for ($($name,)*) {
            fn shapes() -> Vec<Shape> {
                vec![$($name::shape()),*]
            }

            fn into_live(self) -> Vec<Live> {
                vec![$(self.$at.into_live()),*]
            }

            #[allow(unused_mut, unused_variables)]
            fn from_live(arguments: Vec<Live>) -> Result<Self, (usize, Mismatch)> {
                let mut arguments = arguments.into_iter();
                Ok(($($name::from_live(arguments.next().unwrap_or_default()).map_err(|wrong| ($at, wrong))?,)*))
            }
        }
    )+};
}

signatures! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

/// The name of a native function in JavaScript, for the message when an argument does not fit.
#[derive(Debug, Clone)]
pub struct FunctionName {
    /// The plugin that received the function, if only one did.
    pub plugin: Option<PluginId>,
    /// Its name.
    pub method: &'static str,
    /// The parameters' names.
    pub params: &'static [&'static str],
}

impl FunctionName {
    /// The error for an argument that does not fit. It names members for a function with one object, and parameters for
    /// a function with several.
    pub(crate) fn refuse(&self, at: usize, wrong: Mismatch) -> Thrown {
        let wrong = match self.params.get(at) {
            Some(param) if self.params.len() > 1 || wrong.path.is_empty() => wrong.within(param),
            _ => wrong,
        };
        let thrown = match &self.plugin {
            Some(plugin) => crate::problem::needs(plugin, self.method, wrong),
            None => Thrown::new(format_args!("{} needs {wrong}", self.method)),
        };
        Thrown { name: "TypeError".to_owned(), ..thrown }
    }
}

/// One shape per signature, created once, because generic functions cannot have separate statics.
fn function_shape<S: Signature, const NOW: bool>() -> &'static FunctionShape {
    static SHAPES: OnceLock<Mutex<HashMap<(TypeId, bool), &'static FunctionShape>>> = OnceLock::new();
    let mut shapes = SHAPES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shape) = shapes.get(&(TypeId::of::<S>(), NOW)) {
        return shape;
    }
    drop(shapes);
    // Created outside the lock, because a signature may contain another one.
    let shape: &'static FunctionShape = Box::leak(Box::new(FunctionShape {
        params: S::Arguments::shapes(),
        returns: S::Answer::shape(),
        now: NOW,
    }));
    shapes = SHAPES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    shapes.entry((TypeId::of::<S>(), NOW)).or_insert(shape)
}

type NativeBody<S> = dyn Fn(<S as Signature>::Arguments) -> Answering<<S as Signature>::Answer> + Send + Sync;

/// The answer of a plugin, or an error that states the limit.
///
/// # Errors
/// The error that the plugin throws, or a timeout.
pub async fn in_time<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Thrown>>,
) -> Result<T, Thrown> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answered) => answered,
        Err(_) => Err(Thrown::timed_out(limit)),
    }
}

/// An asynchronous function of a plugin: a promise in JavaScript.
///
/// ```
/// use std::time::Duration;
///
/// use ostler_contract::Call;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let double = Call::<fn(n: i64) -> i64>::new(|(n,)| async move { Ok(n * 2) });
/// assert_eq!(double.within(Duration::from_secs(10), (21,)).await, Ok(42));
/// # });
/// ```
///
/// A call without a limit does not compile:
///
/// ```compile_fail,E0599
/// # use ostler_contract::Call;
/// let double = Call::<fn(n: i64) -> i64>::new(|(n,)| async move { Ok(n * 2) });
/// let answer = double.call((21,));
/// ```
pub struct Call<S: Signature> {
    body: Body<S>,
    /// Boxed, because a backend's session consists of many functions, of which few are named.
    named: Option<Box<FunctionName>>,
    maker: Option<&'static Maker>,
}

/// The implementation of a call.
enum Body<S: Signature> {
    /// A required function that is missing.
    Missing,
    /// A native function.
    Native(Arc<NativeBody<S>>),
    /// A function in JavaScript, so that a batch crosses the boundary once.
    Foreign(Function),
}

impl<S: Signature> Clone for Body<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Missing => Self::Missing,
            Self::Native(native) => Self::Native(native.clone()),
            Self::Foreign(foreign) => Self::Foreign(foreign.clone()),
        }
    }
}

impl<S: Signature> Call<S> {
    /// A native function. Its arguments come as a tuple.
    pub fn new<F, O>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> O + Send + Sync + 'static,
        O: Future<Output = Result<S::Answer, Thrown>> + Send + 'static,
    {
        Self::of(Body::Native(Arc::new(move |arguments| caught(|| function(arguments)))))
    }

    /// A native function that answers immediately where it can, and otherwise later.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ostler_contract::Call;
    /// use ostler_contract::call::Answering;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let double = Call::<fn(n: i64) -> i64>::either(|(n,)| match n {
    ///     0 => Answering::Now(Ok(0)),
    ///     n => Answering::Later(Box::pin(async move { Ok(n * 2) })),
    /// });
    /// assert_eq!(double.within(Duration::from_secs(10), (21,)).await, Ok(42));
    /// # });
    /// ```
    pub fn either<F>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> Answering<S::Answer> + Send + Sync + 'static,
    {
        Self::of(Body::Native(Arc::new(move |arguments| caught_either(|| function(arguments)))))
    }

    /// A native function that answers immediately.
    pub fn now<F>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> Result<S::Answer, Thrown> + Send + Sync + 'static,
    {
        let function = move |arguments| Answering::Now(caught_now(|| function(arguments)));
        Self::of(Body::Native(Arc::new(function)))
    }

    /// Stands for a missing required function; validation rejects it.
    pub fn missing() -> Self {
        Self::of(Body::Missing)
    }

    fn of(body: Body<S>) -> Self {
        Self { body, named: None, maker: None }
    }

    /// Calls it and waits at most `limit` for the answer, from the moment the future is first polled. The call is
    /// queued now. A call of a plugin's function is a span, and the functions in its answer also belong to the plugin.
    pub fn within(
        &self,
        limit: Duration,
        arguments: S::Arguments,
    ) -> impl Future<Output = Result<S::Answer, Thrown>> + Send + use<S> {
        match self.begin(arguments) {
            Answering::Now(answer) => Either::Left(std::future::ready(answer)),
            Answering::Later(answer) => Either::Right(in_time(limit, answer)),
        }
    }

    /// Calls it as [`Call::within`] does, for a function that passes the answer on.
    pub fn answering_within(&self, limit: Duration, arguments: S::Arguments) -> Answering<S::Answer> {
        match self.begin(arguments) {
            Answering::Later(answer) => Answering::Later(Box::pin(in_time(limit, answer))),
            now => now,
        }
    }

    /// Calls it; the answer may take arbitrarily long. Only a task that nothing else waits for may await it. The call
    /// is queued now, as with [`Call::within`].
    pub fn unbounded(&self, arguments: S::Arguments) -> Pending<S::Answer> {
        self.begin(arguments).into()
    }

    /// Calls it as [`Call::unbounded`] does, for a function that passes the answer on to a caller with a limit.
    pub fn answering_unbounded(&self, arguments: S::Arguments) -> Answering<S::Answer> {
        self.begin(arguments)
    }

    fn begin(&self, arguments: S::Arguments) -> Answering<S::Answer> {
        let Some(maker) = self.maker else { return self.invoke(arguments) };
        let (span, timing) = (plugin_call(maker), Timing::begin(maker));
        match span.in_scope(|| self.invoke(arguments)) {
            Answering::Now(mut answer) => {
                record(&mut answer, maker, &span, timing);
                Answering::Now(answer)
            }
            Answering::Later(answer) => {
                Answering::Later(Box::pin(Measured::new(answer, maker, span, timing)))
            }
        }
    }

    fn invoke(&self, arguments: S::Arguments) -> Answering<S::Answer> {
        match &self.body {
            Body::Native(native) => native(arguments),
            Body::Foreign(foreign) => Answering::Later(read(foreign.call(arguments.into_live()))),
            Body::Missing => Answering::Now(Err(Thrown::new("this function was not given"))),
        }
    }

    /// Calls it once per row, crosses the boundary once, and waits at most `limit` for all answers.
    ///
    /// # Errors
    /// It did not answer in time.
    pub fn each_within(
        &self,
        limit: Duration,
        rows: Vec<S::Arguments>,
    ) -> impl Future<Output = Result<Vec<Result<S::Answer, Thrown>>, Thrown>> + Send + use<S> {
        let answers = self.begin_each(rows);
        in_time(limit, async move { Ok(answers.await) })
    }

    fn begin_each(&self, rows: Vec<S::Arguments>) -> BoxFuture<'static, Vec<Result<S::Answer, Thrown>>> {
        if let Body::Foreign(foreign) = &self.body {
            let span = self.maker.map_or_else(Span::none, plugin_call);
            let mut timing = self.maker.and_then(Timing::begin);
            let answers = foreign.call_each(rows.into_iter().map(Arguments::into_live).collect());
            let answers = async move {
                let answers = answers.await.into_iter().map(read_answer).collect();
                if let Some(timing) = &mut timing {
                    timing.outcome = Outcome::Ok;
                }
                answers
            };
            return Box::pin(answers.instrument(span));
        }
        let calls: Vec<_> = rows.into_iter().map(|row| self.unbounded(row)).collect();
        Box::pin(futures::future::join_all(calls))
    }
}

fn read<R: Cross>(answer: Pending<Live>) -> Pending<R> {
    Box::pin(async move { read_answer(answer.await) })
}

fn read_answer<R: Cross>(answer: Result<Live, Thrown>) -> Result<R, Thrown> {
    R::from_live(answer?).map_err(|wrong| Thrown::new(format_args!("its answer needs {wrong}")))
}

impl<S: Signature> Clone for Call<S> {
    fn clone(&self) -> Self {
        Self { body: self.body.clone(), named: self.named.clone(), maker: self.maker }
    }
}

impl<S: Signature> Default for Call<S> {
    fn default() -> Self {
        Self::missing()
    }
}

impl<S: Signature> fmt::Debug for Call<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Call")
    }
}

impl<S: Signature> Cross for Call<S> {
    fn shape() -> Shape {
        Shape::Function(function_shape::<S, false>)
    }

    fn into_live(self) -> Live {
        match self.body {
            Body::Native(native) => Live::Function(Function::new(Native::<S, Arc<NativeBody<S>>>(
                native,
                self.named,
                PhantomData,
            ))),
            Body::Foreign(foreign) => Live::Function(foreign),
            Body::Missing => Live::Undefined,
        }
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        match live {
            Live::Function(function) => Ok(Self { body: Body::Foreign(function), ..Self::missing() }),
            _ => Err(Mismatch::of::<Self>()),
        }
    }

    fn named(mut self, named: FunctionName) -> Self {
        self.named.get_or_insert_with(|| Box::new(named));
        self
    }

    fn made_by(&mut self, plugin: &PluginId, method: &'static str) {
        self.maker.get_or_insert_with(|| Maker::of(plugin, method));
    }

    fn check(&self) -> Result<(), Mismatch> {
        match &self.body {
            Body::Missing => Err(Mismatch::of::<Self>()),
            _ => Ok(()),
        }
    }
}

/// An asynchronous function of the host that a plugin calls: a promise in JavaScript. The host limits the duration of
/// its own work.
///
/// ```
/// use ostler_contract::HostFunction;
///
/// # tokio_test(async {
/// let double = HostFunction::<fn(n: i64) -> i64>::new(|(n,)| async move { Ok(n * 2) });
/// assert_eq!(double.call((21,)).await, Ok(42));
/// # });
/// # fn tokio_test(future: impl Future<Output = ()>) { futures::executor::block_on(future) }
/// ```
pub struct HostFunction<S: Signature>(Call<S>);

impl<S: Signature> HostFunction<S> {
    /// A native function. Its arguments come as a tuple.
    pub fn new<F, O>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> O + Send + Sync + 'static,
        O: Future<Output = Result<S::Answer, Thrown>> + Send + 'static,
    {
        Self(Call::new(function))
    }

    /// A native function that answers immediately.
    pub fn now<F>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> Result<S::Answer, Thrown> + Send + Sync + 'static,
    {
        Self(Call::now(function))
    }

    /// A native function that answers immediately where it can, and otherwise later.
    pub fn either<F>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> Answering<S::Answer> + Send + Sync + 'static,
    {
        Self(Call::either(function))
    }

    /// Stands for a missing function; calling it fails.
    pub fn missing() -> Self {
        Self(Call::missing())
    }

    /// Calls it. The call is queued now; the answer arrives later.
    pub fn call(&self, arguments: S::Arguments) -> Pending<S::Answer> {
        self.0.unbounded(arguments)
    }
}

impl<S: Signature> Clone for HostFunction<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Signature> Default for HostFunction<S> {
    fn default() -> Self {
        Self::missing()
    }
}

impl<S: Signature> fmt::Debug for HostFunction<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HostFunction")
    }
}

impl<S: Signature> Cross for HostFunction<S> {
    fn shape() -> Shape {
        Call::<S>::shape()
    }

    fn into_live(self) -> Live {
        self.0.into_live()
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        Call::from_live(live).map(Self)
    }

    fn named(self, named: FunctionName) -> Self {
        Self(self.0.named(named))
    }

    fn made_by(&mut self, plugin: &PluginId, method: &'static str) {
        self.0.made_by(plugin, method);
    }

    fn check(&self) -> Result<(), Mismatch> {
        self.0.check()
    }
}

type AtOnce<S> =
    dyn Fn(<S as Signature>::Arguments) -> Result<<S as Signature>::Answer, Thrown> + Send + Sync;

/// A native function that answers immediately, passed to a plugin. Functions of plugins are never of this type, because
/// they may run on another thread.
pub struct Func<S: Signature>(Arc<AtOnce<S>>, Option<Box<FunctionName>>);

impl<S: Signature> Func<S> {
    /// Wraps a native function. Its arguments come as a tuple.
    pub fn new<F>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> Result<S::Answer, Thrown> + Send + Sync + 'static,
    {
        Self(Arc::new(function), None)
    }

    /// Calls it.
    ///
    /// # Errors
    /// The error that the function throws, or that it panicked.
    pub fn call(&self, arguments: S::Arguments) -> Result<S::Answer, Thrown> {
        caught_now(|| (self.0)(arguments))
    }
}

impl<S: Signature> Clone for Func<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

impl<S: Signature> fmt::Debug for Func<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Func")
    }
}

impl<S: Signature> Cross for Func<S> {
    fn shape() -> Shape {
        Shape::Function(function_shape::<S, true>)
    }

    fn into_live(self) -> Live {
        Live::Function(Function::new(Native::<S, Arc<AtOnce<S>>>(self.0, self.1, PhantomData)))
    }

    fn named(mut self, named: FunctionName) -> Self {
        self.1.get_or_insert_with(|| Box::new(named));
        self
    }

    fn from_live(live: Live) -> Result<Self, Mismatch> {
        // A function of the host that is passed back to it, as in a context that a plugin passes on.
        match live {
            Live::Function(function) if function.shape().now => {
                Ok(Self::new(move |arguments| read_answer(function.call_now(arguments.into_live()))))
            }
            _ => Err(Mismatch::of::<Self>()),
        }
    }
}

/// A native function as JavaScript sees it.
struct Native<S, F>(F, Option<Box<FunctionName>>, PhantomData<fn() -> S>);

fn read_arguments<A: Arguments>(arguments: Vec<Live>, named: Option<&FunctionName>) -> Result<A, Thrown> {
    A::from_live(arguments).map_err(|(at, wrong)| match named {
        Some(named) => named.refuse(at, wrong),
        None => Thrown {
            name: "TypeError".to_owned(),
            ..Thrown::new(format_args!("argument {} needs {wrong}", at + 1))
        },
    })
}

impl<S: Signature> Callable for Native<S, Arc<NativeBody<S>>> {
    fn shape(&self) -> &'static FunctionShape {
        function_shape::<S, false>()
    }

    fn call(&self, arguments: Vec<Live>) -> Pending<Live> {
        match read_arguments(arguments, self.1.as_deref()) {
            Ok(arguments) => match (self.0)(arguments) {
                Answering::Now(answer) => ready(answer.map(Cross::into_live)),
                Answering::Later(answer) => Box::pin(async move { answer.await.map(Cross::into_live) }),
            },
            Err(thrown) => ready(Err(thrown)),
        }
    }

    fn call_now(&self, _: Vec<Live>) -> Result<Live, Thrown> {
        Err(Thrown::new("this function is asynchronous; use `call`, not `call_now`"))
    }
}

impl<S: Signature> Callable for Native<S, Arc<AtOnce<S>>> {
    fn shape(&self) -> &'static FunctionShape {
        function_shape::<S, true>()
    }

    fn call(&self, arguments: Vec<Live>) -> Pending<Live> {
        ready(self.call_now(arguments))
    }

    fn call_now(&self, arguments: Vec<Live>) -> Result<Live, Thrown> {
        let arguments = read_arguments(arguments, self.1.as_deref())?;
        caught_now(|| (self.0)(arguments)).map(Cross::into_live)
    }
}
