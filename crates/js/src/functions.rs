//! Conversion of functions: the host's as JavaScript functions, and JavaScript's as handles that the host can call from
//! any thread.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::FutureExt;
use futures::future::BoxFuture;
use ostler_contract::Thrown;
use ostler_contract::live::{Callable, Function as LiveFunction, Live, Pending};
use ostler_contract::shape::{FunctionShape, Shape};
use rquickjs::class::{ClassKind, JsCell, JsClass, Readable, Trace, Tracer};
use rquickjs::function::{Args, Constructor, Opt, Params};
use rquickjs::{Class, Ctx, Function, JsLifetime, Object, Persistent, Result, Value};

use crate::engine::{BoundFunction, Engine, Message, Reply, Settle, Shared, State};
use crate::errors::{caught, error, raise, thrown};
use crate::values::{from_js as js_to_value, helpers, to_js as value_to_js};

/// A function of the host, as a JavaScript object.
struct HostFunction(LiveFunction);

// SAFETY: it contains no JavaScript value, so its type is the same for every lifetime.
unsafe impl JsLifetime<'_> for HostFunction {
    type Changed<'to> = Self;
}

impl<'js> Trace<'js> for HostFunction {
    fn trace<'a>(&self, _: Tracer<'a, 'js>) {}
}

impl<'js> JsClass<'js> for HostFunction {
    const NAME: &'static str = "HostFunction";
    const KIND: ClassKind = ClassKind::Callable;
    type Mutable = Readable;

    fn prototype(ctx: &Ctx<'js>) -> Result<Option<Object<'js>>> {
        Ok(Some(Function::prototype(ctx.clone())))
    }

    fn constructor(_: &Ctx<'js>) -> Result<Option<Constructor<'js>>> {
        Ok(None)
    }

    fn call<'a>(this: &JsCell<'js, Self>, params: Params<'a, 'js>) -> Result<Value<'js>> {
        let function = this.borrow().0.clone();
        let ctx = params.ctx().clone();
        let state = State::of(&ctx)?;
        if let Some(refused) = function.refuses() {
            return Err(raise(&ctx, &state, &refused));
        }
        let shape = function.shape();
        let arguments = shape.params.iter().enumerate().map(|(at, shape)| match params.arg(at) {
            Some(value) => js_to_value(&ctx, &state, &value, shape),
            None => Ok(Live::Undefined),
        });
        if shape.now {
            return call_now(&ctx, &state, &function, arguments.collect::<Result<_>>()?);
        }
        match arguments.collect::<Result<_>>() {
            Ok(arguments) => call_later(&ctx, &state, &function, arguments),
            Err(error) => {
                let thrown = caught(&ctx, &state, error);
                let (promise, resolve, reject) = ctx.promise()?;
                settle_with(&ctx, &state, resolve, reject, Err(thrown))?;
                Ok(promise.into_value())
            }
        }
    }
}

fn call_now<'js>(
    ctx: &Ctx<'js>,
    state: &State,
    function: &LiveFunction,
    arguments: Vec<Live>,
) -> Result<Value<'js>> {
    let outcome = {
        let _host = state.host.enter();
        catch_unwind(AssertUnwindSafe(|| function.call_now(arguments)))
    };
    match outcome.unwrap_or_else(|_| Err(host_failed())) {
        Ok(live) => value_to_js(ctx, state, live),
        Err(thrown) => Err(raise(ctx, state, &thrown)),
    }
}

fn call_later<'js>(
    ctx: &Ctx<'js>,
    state: &State,
    function: &LiveFunction,
    arguments: Vec<Live>,
) -> Result<Value<'js>> {
    let (promise, resolve, reject) = ctx.promise()?;
    let polled = {
        let _host = state.host.enter();
        catch_unwind(AssertUnwindSafe(|| {
            let mut pending = function.call(arguments);
            // Most results are ready immediately and need no other thread.
            match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => Ok(outcome),
                Poll::Pending => Err(pending),
            }
        }))
    };
    match polled.unwrap_or_else(|_| Ok(Err(host_failed()))) {
        Ok(outcome) => settle_with(ctx, state, resolve, reject, outcome)?,
        Err(pending) => {
            let resolve = Persistent::save(ctx, resolve);
            let reject = Persistent::save(ctx, reject);
            let id = state.promises.insert(Settle { resolve, reject });
            let post = state.post.clone();
            state.host.spawn(async move {
                let outcome = AssertUnwindSafe(pending).catch_unwind().await;
                post.send(Message::Settle(id, outcome.unwrap_or_else(|_| Err(host_failed()))));
            });
        }
    }
    Ok(promise.into_value())
}

fn host_failed() -> Thrown {
    Thrown::new("internal error of the host; see its log")
}

/// Settles a promise that waited for the host.
pub(crate) fn settle(ctx: &Ctx<'_>, state: &State, id: u64, outcome: std::result::Result<Live, Thrown>) {
    let Some(Settle { resolve, reject }) = state.promises.remove(id) else { return };
    let settled = resolve.restore(ctx).and_then(|resolve| {
        let reject = reject.restore(ctx)?;
        settle_with(ctx, state, resolve, reject, outcome)
    });
    if let Err(error) = settled {
        crate::errors::report_uncaught(ctx, state, error);
    }
}

fn settle_with<'js>(
    ctx: &Ctx<'js>,
    state: &State,
    resolve: Function<'js>,
    reject: Function<'js>,
    outcome: std::result::Result<Live, Thrown>,
) -> Result<()> {
    match outcome {
        Ok(live) => match value_to_js(ctx, state, live) {
            Ok(value) => resolve.call((value,)),
            Err(rquickjs::Error::Exception) => reject.call((ctx.catch(),)),
            Err(other) => Err(other),
        },
        Err(thrown) => reject.call((error(ctx, state, &thrown)?,)),
    }
}

/// Converts a function of the host to JavaScript.
pub(crate) fn to_js<'js>(ctx: &Ctx<'js>, function: LiveFunction) -> Result<Value<'js>> {
    Ok(Class::instance(ctx.clone(), HostFunction(function))?.into_value())
}

/// Converts a function of the host to JavaScript, with a name for stack traces.
pub(crate) fn to_js_named<'js>(ctx: &Ctx<'js>, function: LiveFunction, name: &str) -> Result<Value<'js>> {
    let length = function.shape().params.len();
    let value = to_js(ctx, function)?;
    if let Some(function) = value.as_function() {
        function.set_name(name)?;
        function.set_length(length)?;
    }
    Ok(value)
}

/// Converts a JavaScript function for the host. A function of the host is unwrapped.
pub(crate) fn from_js<'js>(
    ctx: &Ctx<'js>,
    state: &State,
    function: &Function<'js>,
    this: Option<&Value<'js>>,
    shape: &'static FunctionShape,
) -> Option<Live> {
    if let Some(host) = Class::<HostFunction>::from_object(function.as_object()?) {
        return Some(Live::Function(host.borrow().0.clone()));
    }
    // A synchronous function cannot be on another thread.
    if shape.now {
        return None;
    }
    Some(Live::Function(LiveFunction::new(hold(ctx, state, function, this, shape)?)))
}

/// Creates a handle to a JavaScript function for use outside the engine.
pub(crate) fn hold<'js>(
    ctx: &Ctx<'js>,
    state: &State,
    function: &Function<'js>,
    this: Option<&Value<'js>>,
    shape: &'static FunctionShape,
) -> Option<JsFunction> {
    let engine = state.post.upgrade(&state.shared)?;
    let id = state.functions.insert(BoundFunction {
        function: Persistent::save(ctx, function.clone()),
        this: this.map(|this| Persistent::save(ctx, this.clone())),
    });
    Some(JsFunction { handle: Arc::new(Handle { engine, id }), shape })
}

/// A handle to a JavaScript function. The function is released when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct JsFunction {
    handle: Arc<Handle>,
    shape: &'static FunctionShape,
}

struct Handle {
    engine: Arc<Engine>,
    id: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.send(Message::Release(self.id));
    }
}

impl JsFunction {
    /// Calls the function at the plugin's start: fails as soon as nothing is left that could settle its result. `awaits`
    /// is the predicate of that error.
    pub(crate) fn call_at_start(&self, arguments: Vec<Live>, awaits: &'static str) -> Pending<Live> {
        let (handle, shape) = (self.handle.clone(), self.shape);
        self.handle.engine.ask(move |ctx, state, reply| {
            let reply = Starting::begin(state, reply, awaits);
            invoke(ctx, state, handle.id, arguments, &shape.returns, reply);
        })
    }
}

impl Callable for JsFunction {
    fn shape(&self) -> &'static FunctionShape {
        self.shape
    }

    fn call(&self, arguments: Vec<Live>) -> Pending<Live> {
        // The message contains the handle, so the function is retained until the call.
        let (handle, shape) = (self.handle.clone(), self.shape);
        self.handle.engine.ask(move |ctx, state, reply| {
            invoke(ctx, state, handle.id, arguments, &shape.returns, reply);
        })
    }

    fn call_now(&self, _: Vec<Live>) -> std::result::Result<Live, Thrown> {
        Err(Thrown::new("JavaScript functions are asynchronous; use `call`, not `call_now`"))
    }

    fn call_each(&self, rows: Vec<Vec<Live>>) -> BoxFuture<'static, Vec<std::result::Result<Live, Thrown>>> {
        let (handle, shape) = (self.handle.clone(), self.shape);
        let many = rows.len();
        let answers = self.handle.engine.ask(move |ctx, state, reply| {
            let gather = Rc::new(Gather::new(rows.len(), reply));
            for (at, arguments) in rows.into_iter().enumerate() {
                let row = Row { gather: gather.clone(), shared: state.shared.clone(), at, answered: false };
                invoke(ctx, state, handle.id, arguments, &shape.returns, row);
            }
            gather.send_if_complete();
        });
        Box::pin(async move {
            answers.await.unwrap_or_else(|thrown| (0..many).map(|_| Err(thrown.clone())).collect())
        })
    }
}

/// The receiver of one result. If it is dropped without one, it sends an error with the reason.
pub(crate) trait Answer<T>: 'static {
    fn answer(self, outcome: std::result::Result<T, Thrown>);
}

impl<T: 'static> Answer<T> for Reply<T> {
    fn answer(self, outcome: std::result::Result<T, Thrown>) {
        self.send(outcome);
    }
}

/// The reply of an import or an `apply`, which fails if nothing is left that could settle it.
pub(crate) struct Starting<T>(Rc<RefCell<Option<Reply<T>>>>);

impl<T: 'static> Starting<T> {
    /// `awaits` is the predicate of the error.
    pub(crate) fn begin(state: &State, reply: Reply<T>, awaits: &'static str) -> Self {
        let reply = Rc::new(RefCell::new(Some(reply)));
        let (waiting, shared) = (Starting(reply.clone()), state.shared.clone());
        *state.starting.borrow_mut() = Some(Box::new(move || {
            let never = shared.sentence(&format!("{awaits} a promise that nothing can settle"));
            waiting.answer(Err(Thrown::new(never)));
        }));
        Self(reply)
    }
}

impl<T: 'static> Answer<T> for Starting<T> {
    fn answer(self, outcome: std::result::Result<T, Thrown>) {
        let reply = self.0.borrow_mut().take();
        if let Some(reply) = reply {
            reply.send(outcome);
        }
    }
}

type Outcomes = Vec<std::result::Result<Live, Thrown>>;

/// Collects the results of a batch, which are returned together.
struct Gather {
    answers: RefCell<Vec<Option<std::result::Result<Live, Thrown>>>>,
    missing: Cell<usize>,
    reply: RefCell<Option<Reply<Outcomes>>>,
}

impl Gather {
    fn new(rows: usize, reply: Reply<Outcomes>) -> Self {
        Self {
            answers: RefCell::new((0..rows).map(|_| None).collect()),
            missing: Cell::new(rows),
            reply: RefCell::new(Some(reply)),
        }
    }

    fn send_if_complete(&self) {
        if self.missing.get() == 0
            && let Some(reply) = self.reply.borrow_mut().take()
        {
            reply.send(Ok(self.answers.take().into_iter().flatten().collect()));
        }
    }
}

struct Row {
    gather: Rc<Gather>,
    shared: Arc<Shared>,
    at: usize,
    answered: bool,
}

impl Row {
    fn put(&mut self, outcome: std::result::Result<Live, Thrown>) {
        self.answered = true;
        self.gather.answers.borrow_mut()[self.at] = Some(outcome);
        self.gather.missing.set(self.gather.missing.get() - 1);
        self.gather.send_if_complete();
    }
}

impl Answer<Live> for Row {
    fn answer(mut self, outcome: std::result::Result<Live, Thrown>) {
        self.put(outcome);
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        if !self.answered {
            let unanswered = Thrown::new(self.shared.unanswered());
            self.put(Err(unanswered));
        }
    }
}

fn invoke(
    ctx: &Ctx<'_>,
    state: &Rc<State>,
    id: u64,
    arguments: Vec<Live>,
    returns: &'static Shape,
    to: impl Answer<Live>,
) {
    let Some(held) = state.functions.get(id) else { return };
    let called = held.function.restore(ctx).and_then(|function| {
        let mut given = Args::new(ctx.clone(), arguments.len());
        if let Some(this) = held.this {
            given.this(this.restore(ctx)?)?;
        }
        for argument in arguments {
            given.push_arg(value_to_js(ctx, state, argument)?)?;
        }
        given.apply::<Value>(&function)
    });
    match called {
        Ok(value) => {
            answer(ctx, state, value, to, |ctx, state, value| js_to_value(ctx, state, value, returns))
        }
        Err(error) => to.answer(Err(caught(ctx, state, error))),
    }
}

/// Answers with a value, or with what a promise resolves to. A promise that can no longer be settled drops `to`.
pub(crate) fn answer<'js, T, A, F>(ctx: &Ctx<'js>, state: &Rc<State>, value: Value<'js>, to: A, convert: F)
where
    T: 'static,
    A: Answer<T>,
    F: for<'a> Fn(&Ctx<'a>, &Rc<State>, &Value<'a>) -> Result<T> + 'static,
{
    let to = Rc::new(RefCell::new(Some(to)));
    if value.is_object() {
        match wait(ctx, state, &value, &to, convert) {
            Ok(None) => {}
            Ok(Some(convert)) => reply(ctx, state, &to, convert(ctx, state, &value)),
            Err(error) => reply(ctx, state, &to, Err(error)),
        }
    } else {
        reply(ctx, state, &to, convert(ctx, state, &value));
    }
}

type Waiting<A> = Rc<RefCell<Option<A>>>;

fn reply<T, A: Answer<T>>(ctx: &Ctx<'_>, state: &Rc<State>, to: &Waiting<A>, outcome: Result<T>) {
    let to = to.borrow_mut().take();
    if let Some(to) = to {
        to.answer(outcome.map_err(|error| caught(ctx, state, error)));
    }
}

/// Answers once the value is settled, if it is a promise; otherwise returns the conversion.
fn wait<'js, T, A, F>(
    ctx: &Ctx<'js>,
    state: &Rc<State>,
    value: &Value<'js>,
    to: &Waiting<A>,
    convert: F,
) -> Result<Option<F>>
where
    T: 'static,
    A: Answer<T>,
    F: for<'a> Fn(&Ctx<'a>, &Rc<State>, &Value<'a>) -> Result<T> + 'static,
{
    let convert = Rc::new(RefCell::new(Some(convert)));
    let (kept, resolved_to, rejected_to) = (convert.clone(), to.clone(), to.clone());
    let resolved = Function::new(ctx.clone(), move |ctx: Ctx<'js>, value: Opt<Value<'js>>| -> Result<()> {
        let state = State::of(&ctx)?;
        let value = value.0.unwrap_or_else(|| Value::new_undefined(ctx.clone()));
        let convert = kept.borrow_mut().take();
        if let Some(convert) = convert {
            reply(&ctx, &state, &resolved_to, convert(&ctx, &state, &value));
        }
        Ok(())
    })?;
    let rejected = Function::new(ctx.clone(), move |ctx: Ctx<'js>, reason: Opt<Value<'js>>| -> Result<()> {
        let state = State::of(&ctx)?;
        let reason = reason.0.unwrap_or_else(|| Value::new_undefined(ctx.clone()));
        let to = rejected_to.borrow_mut().take();
        if let Some(to) = to {
            to.answer(Err(thrown(&state, &reason)));
        }
        Ok(())
    })?;
    let waits: bool =
        helpers(ctx, state)?.wait.clone().restore(ctx)?.call((value.clone(), resolved, rejected))?;
    Ok(if waits { None } else { convert.borrow_mut().take() })
}
