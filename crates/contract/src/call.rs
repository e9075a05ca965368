//! Typed functions across the boundary. A native function called by native code never turns into JSON; one
//! from the other side converts by the same signature.
//!
//! [`Call`] is a function of a plugin. Whoever calls it says how long the answer may take, or that it may take
//! arbitrarily long: there is no call without either. [`HostFunction`] is a function of the host that a plugin calls.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::cross::{Cross, Mismatch};
use crate::id::PluginId;
use crate::live::{Callable, Function, Live, Pending, ready};
use crate::shape::{FunctionShape, Shape};
use crate::thrown::Thrown;

/// The target of the spans of calls of plugins' functions.
pub const PLUGIN_CALL: &str = "ostler::plugin";

/// A `fn(…) -> …` type, read as parameters and answer.
pub trait Signature: 'static {
    /// The parameters, as a tuple.
    type Arguments: Arguments;
    /// The answer.
    type Answer: Cross;
}

/// A tuple of parameters.
pub trait Arguments: Sized + Send + 'static {
    /// What each looks like.
    fn shapes() -> Vec<Shape>;
    /// For the other side.
    fn into_live(self) -> Vec<Live>;
    /// From the other side. Ones left out are `undefined`; ones too many are dropped.
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

/// What a native function is called on the other side, for the sentence when an argument does not fit.
#[derive(Debug, Clone)]
pub struct FunctionName {
    /// The plugin that was handed it, where it was handed to one alone.
    pub plugin: Option<PluginId>,
    /// Its name.
    pub method: &'static str,
    /// The parameters' names.
    pub params: &'static [&'static str],
}

impl FunctionName {
    /// What is thrown where the argument at `at` does not fit. A function with one object speaks of its members, one
    /// with several parameters of those.
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

/// One shape per signature, made once: generic functions cannot hold their own statics.
fn function_shape<S: Signature, const NOW: bool>() -> &'static FunctionShape {
    static SHAPES: OnceLock<Mutex<HashMap<(TypeId, bool), &'static FunctionShape>>> = OnceLock::new();
    let mut shapes = SHAPES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shape) = shapes.get(&(TypeId::of::<S>(), NOW)) {
        return shape;
    }
    drop(shapes);
    // Made outside the lock: a signature may name another one.
    let shape: &'static FunctionShape = Box::leak(Box::new(FunctionShape {
        params: S::Arguments::shapes(),
        returns: S::Answer::shape(),
        now: NOW,
    }));
    shapes = SHAPES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    shapes.entry((TypeId::of::<S>(), NOW)).or_insert(shape)
}

type Later<S> = dyn Fn(<S as Signature>::Arguments) -> Pending<<S as Signature>::Answer> + Send + Sync;

/// The answer of a plugin, or a failure that says how long it was waited for.
///
/// # Errors
/// What the plugin throws, or that it did not answer in time.
pub async fn in_time<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Thrown>>,
) -> Result<T, Thrown> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answered) => answered,
        Err(_) => Err(Thrown::timed_out(limit)),
    }
}

/// A function of a plugin whose answer comes later: a promise on the other side.
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
    /// Boxed: a backend's session consists of many functions, and few of them are named.
    named: Option<Box<FunctionName>>,
    maker: Option<&'static Maker>,
}

/// What a call runs.
enum Body<S: Signature> {
    /// Nothing: a required function that nobody gave.
    Missing,
    /// A function of this side.
    Native(Arc<Later<S>>),
    /// A function of the other side: kept, so that a batch crosses once.
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

/// The plugin a function is from, and the function's name there.
#[derive(Debug)]
struct Maker {
    plugin: PluginId,
    method: &'static str,
}

impl Maker {
    /// The one of a plugin's function. There is one for each function of a point and each plugin, so that a backend's
    /// session, which consists of many functions, has a pointer for each.
    fn of(plugin: &PluginId, method: &'static str) -> &'static Self {
        static MAKERS: OnceLock<Mutex<HashMap<PluginId, HashMap<&'static str, &'static Maker>>>> =
            OnceLock::new();
        let mut makers = MAKERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let methods = makers.entry(plugin.clone()).or_default();
        methods.entry(method).or_insert_with(|| Box::leak(Box::new(Self { plugin: plugin.clone(), method })))
    }
}

impl<S: Signature> Call<S> {
    /// A native function. Its arguments come as a tuple.
    pub fn new<F, O>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> O + Send + Sync + 'static,
        O: Future<Output = Result<S::Answer, Thrown>> + Send + 'static,
    {
        Self::native(move |arguments| caught(|| function(arguments)))
    }

    /// A native function that answers at once all the same.
    pub fn now<F>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> Result<S::Answer, Thrown> + Send + Sync + 'static,
    {
        Self::native(move |arguments| ready(caught_now(|| function(arguments))))
    }

    fn native(native: impl Fn(S::Arguments) -> Pending<S::Answer> + Send + Sync + 'static) -> Self {
        Self { body: Body::Native(Arc::new(native)), ..Self::missing() }
    }

    /// Stands for a required function nobody gave; the check refuses it.
    pub fn missing() -> Self {
        Self { body: Body::Missing, named: None, maker: None }
    }

    /// Calls it and waits for the answer at most for `limit`, from the moment the answer is first awaited. The call takes
    /// its place in order now. A call of a plugin's function is a span, and the functions in its answer are the plugin's
    /// too.
    pub fn within(
        &self,
        limit: Duration,
        arguments: S::Arguments,
    ) -> impl Future<Output = Result<S::Answer, Thrown>> + Send + use<S> {
        in_time(limit, self.begin(arguments))
    }

    /// Calls it; the answer may take arbitrarily long. Only a task that nothing else waits for may await it. The call
    /// takes its place in order now, as with [`Call::within`].
    pub fn unbounded(&self, arguments: S::Arguments) -> Pending<S::Answer> {
        self.begin(arguments)
    }

    fn begin(&self, arguments: S::Arguments) -> Pending<S::Answer> {
        let Some(maker) = self.maker else { return self.invoke(arguments) };
        let span = plugin_call(maker);
        let answer = span.in_scope(|| self.invoke(arguments));
        let answered = async move {
            let mut answer = answer.await;
            match &mut answer {
                Ok(answer) => answer.made_by(&maker.plugin, maker.method),
                Err(_) => {
                    Span::current().record("outcome", "failed");
                }
            }
            answer
        };
        Box::pin(answered.instrument(span))
    }

    fn invoke(&self, arguments: S::Arguments) -> Pending<S::Answer> {
        match &self.body {
            Body::Native(native) => native(arguments),
            Body::Foreign(foreign) => call_foreign(foreign, arguments),
            Body::Missing => ready(Err(Thrown::new("this function was not given"))),
        }
    }

    /// Calls it once per row, crossing the boundary once, and waits for all answers at most for `limit`.
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
            let answers = foreign.call_each(rows.into_iter().map(Arguments::into_live).collect());
            let answers = async move { answers.await.into_iter().map(read_answer).collect() };
            return Box::pin(answers.instrument(span));
        }
        let calls: Vec<_> = rows.into_iter().map(|row| self.begin(row)).collect();
        Box::pin(futures::future::join_all(calls))
    }
}

/// The span of a call of a plugin's function. Its outcome is recorded if it fails.
fn plugin_call(maker: &Maker) -> Span {
    let Maker { plugin, method } = maker;
    tracing::debug_span!(target: PLUGIN_CALL, "plugin_call", %plugin, method, outcome = Empty)
}

fn call_foreign<A: Arguments, R: Cross>(foreign: &Function, arguments: A) -> Pending<R> {
    let answer = foreign.call(arguments.into_live());
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
            Body::Native(native) => {
                Live::Function(Function::new(Native::<S, Arc<Later<S>>>(native, self.named, PhantomData)))
            }
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

/// A function of the host that a plugin calls, and whose answer comes later: a promise on the other side. The host
/// limits what it does itself.
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

    /// A native function that answers at once all the same.
    pub fn now<F>(function: F) -> Self
    where
        F: Fn(S::Arguments) -> Result<S::Answer, Thrown> + Send + Sync + 'static,
    {
        Self(Call::now(function))
    }

    /// Stands for a function that nobody gave; calling it fails.
    pub fn missing() -> Self {
        Self(Call::missing())
    }

    /// Calls it. The call takes its place in order now; the answer comes later.
    pub fn call(&self, arguments: S::Arguments) -> Pending<S::Answer> {
        self.0.begin(arguments)
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

/// A native function that answers at once, handed to a plugin. Nothing a plugin hands over is one: it may
/// live on another thread.
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
    /// What the function throws; one that panicked throws that it did.
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
        // A host's own function on its way back, as in a context handed on.
        match live {
            Live::Function(function) if function.shape().now => {
                Ok(Self::new(move |arguments| read_answer(function.call_now(arguments.into_live()))))
            }
            _ => Err(Mismatch::of::<Self>()),
        }
    }
}

/// A native function as the other side sees it.
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

impl<S: Signature> Callable for Native<S, Arc<Later<S>>> {
    fn shape(&self) -> &'static FunctionShape {
        function_shape::<S, false>()
    }

    fn call(&self, arguments: Vec<Live>) -> Pending<Live> {
        match read_arguments(arguments, self.1.as_deref()) {
            Ok(arguments) => {
                let answer = (self.0)(arguments);
                Box::pin(async move { answer.await.map(Cross::into_live) })
            }
            Err(thrown) => ready(Err(thrown)),
        }
    }

    fn call_now(&self, _: Vec<Live>) -> Result<Live, Thrown> {
        Err(Thrown::new("this function answers later"))
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

/// A native function that panics fails that call, as a JavaScript one that throws does.
fn caught<T: Send + 'static, O>(begin: impl FnOnce() -> O) -> Pending<T>
where
    O: Future<Output = Result<T, Thrown>> + Send + 'static,
{
    match std::panic::catch_unwind(AssertUnwindSafe(begin)) {
        Ok(answer) => Box::pin(async move {
            AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|panic| Err(panicked(&*panic)))
        }),
        Err(panic) => ready(Err(panicked(&*panic))),
    }
}

fn caught_now<T>(call: impl FnOnce() -> Result<T, Thrown>) -> Result<T, Thrown> {
    std::panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> Thrown {
    let said = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    match said {
        Some(said) => Thrown::new(format_args!("it panicked: {said}")),
        None => Thrown::new("it panicked"),
    }
}
