//! Instances and their shared objects: memories, tables, globals and functions, by number.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use rquickjs::{Array, Class, Ctx, Exception, Object, Result, Value, qjs};
use wasmi::{
    Extern, ExternRef, ExternType, Func, FuncType, Global, Instance, Memory, MemoryType, Mutability, Ref,
    ResumableCall, ResumableCallHostTrap, Store, Table, TableType, Val, ValType,
};

use super::charged::Charged;
use super::module::Compiled;
use super::values::{ref_type, type_name, type_of};
use super::{Asked, SLICE, binary, buffers, engine, held, words};
use crate::engine::State;
use crate::errors::{plain_error, type_error};

/// The charged size of an instance, a function or another small object of a store.
const SMALL: usize = 256;

held!(RealmRef, Realm, "WebAssemblyRealm");

/// A call that waits for an import.
struct Waiting {
    call: ResumableCallHostTrap,
    answers: Vec<ValType>,
    outputs: Vec<Val>,
}

/// A store and its objects that JavaScript knows.
pub(super) struct Realm {
    store: RefCell<Store<Charged>>,
    funcs: RefCell<Vec<Func>>,
    numbers: RefCell<HashMap<String, u32>>,
    memories: RefCell<Vec<(Memory, Cell<(usize, usize)>)>>,
    tables: RefCell<Vec<Table>>,
    globals: RefCell<Vec<Global>>,
    externs: RefCell<Vec<ExternRef>>,
    imports: RefCell<Vec<FuncType>>,
    waiting: RefCell<Vec<Waiting>>,
}

pub(super) fn create(ctx: Ctx<'_>) -> Result<Class<'_, RealmRef>> {
    let memory = State::of(&ctx)?.watch.memory();
    if memory.wants_collection() {
        ctx.run_gc();
    }
    let mut store = Store::new(&engine(), Charged::new(memory));
    store.limiter(|charged| charged);
    let realm = Realm {
        store: RefCell::new(store),
        funcs: RefCell::default(),
        numbers: RefCell::default(),
        memories: RefCell::default(),
        tables: RefCell::default(),
        globals: RefCell::default(),
        externs: RefCell::default(),
        imports: RefCell::default(),
        waiting: RefCell::default(),
    };
    Class::instance(ctx, RealmRef(Rc::new(realm)))
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn unknown(ctx: &Ctx<'_>) -> rquickjs::Error {
    type_error(ctx, "it belongs to another WebAssembly instance")
}

impl Realm {
    /// Returns the stable number of a function.
    pub(super) fn number_of(&self, function: Func) -> u32 {
        // Handles can only be compared by their debug output.
        *self.numbers.borrow_mut().entry(format!("{function:?}")).or_insert_with(|| {
            let mut funcs = self.funcs.borrow_mut();
            funcs.push(function);
            count(funcs.len() - 1)
        })
    }

    pub(super) fn func(&self, ctx: &Ctx<'_>, number: u32) -> Result<Func> {
        self.funcs.borrow().get(index(number)).copied().ok_or_else(|| unknown(ctx))
    }

    /// Returns the reference to the JavaScript object with this number.
    pub(super) fn extern_ref(&self, number: u32) -> ExternRef {
        let mut externs = self.externs.borrow_mut();
        while externs.len() <= index(number) {
            let next = count(externs.len());
            externs.push(ExternRef::new(&mut *self.store.borrow_mut(), next));
        }
        externs[index(number)]
    }

    pub(super) fn extern_number(&self, object: ExternRef) -> u32 {
        let store = self.store.borrow();
        object.data(&*store).downcast_ref().copied().unwrap_or(u32::MAX)
    }

    /// Returns the address and length of a memory. From then on, [`Realm::moved`] reports changes of them.
    pub(super) fn seen(&self, ctx: &Ctx<'_>, number: u32) -> Result<(*mut u8, usize)> {
        let memories = self.memories.borrow();
        let (memory, seen) = memories.get(index(number)).ok_or_else(|| unknown(ctx))?;
        let store = self.store.borrow();
        let (place, length) = (memory.data_ptr(&*store), memory.data_size(&*store));
        seen.set((place.addr(), length));
        Ok((place, length))
    }

    /// Returns the memories that have moved or grown.
    pub(super) fn moved(&self) -> Vec<u32> {
        let store = self.store.borrow();
        let memories = self.memories.borrow();
        let moved = |(memory, seen): &(Memory, Cell<(usize, usize)>)| {
            let now = (memory.data_ptr(&*store).addr(), memory.data_size(&*store));
            seen.replace(now) != now
        };
        (0..).zip(memories.iter()).filter(|(_, memory)| moved(memory)).map(|(number, _)| number).collect()
    }

    fn add_memory(&self, memory: Memory) -> u32 {
        let seen = {
            let store = self.store.borrow();
            (memory.data_ptr(&*store).addr(), memory.data_size(&*store))
        };
        let mut memories = self.memories.borrow_mut();
        let print = format!("{memory:?}");
        let known = memories.iter().position(|(known, _)| format!("{known:?}") == print);
        count(known.unwrap_or_else(|| {
            memories.push((memory, Cell::new(seen)));
            memories.len() - 1
        }))
    }

    fn take_small(&self, ctx: &Ctx<'_>, many: usize) -> Result<()> {
        let mut store = self.store.borrow_mut();
        if store.data_mut().take(many.saturating_mul(SMALL)) {
            Ok(())
        } else {
            Err(range_error(ctx, "WebAssembly: out of memory"))
        }
    }
}

/// Returns the number of the entry with the same debug output, or of a new one.
fn add<T: Copy + std::fmt::Debug>(known: &RefCell<Vec<T>>, new: T) -> u32 {
    let mut known = known.borrow_mut();
    let print = format!("{new:?}");
    let at = known.iter().position(|known| format!("{known:?}") == print);
    count(at.unwrap_or_else(|| {
        known.push(new);
        known.len() - 1
    }))
}

fn range_error(ctx: &Ctx<'_>, message: &str) -> rquickjs::Error {
    Exception::throw_range(ctx, message)
}

/// Returns `[3, class, message]`: the error to throw.
fn failed<'js>(ctx: &Ctx<'js>, error: &wasmi::Error) -> Result<Value<'js>> {
    let (class, message) = words(error);
    let answer = Array::new(ctx.clone())?;
    answer.set(0, 3)?;
    answer.set(1, class)?;
    answer.set(2, message)?;
    Ok(answer.into_value())
}

/// Instantiates a module. `imports` are pairs: `[0, import]` calls JavaScript; `[1, function]`, `[2, memory]`, `[3,
/// table]` and `[4, global]` belong to the realm. Returns `{ exports: [[name, number]…], start }`, or the error to
/// throw.
pub(super) fn instantiate<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    buffers: Array<'js>,
    code: Class<'js, Compiled>,
    imports: Vec<Vec<u32>>,
) -> Result<Value<'js>> {
    let realm = realm.borrow().0.clone();
    let source = code.borrow().0.clone();
    realm.take_small(&ctx, 1 + imports.len() + source.exports.len())?;
    let mut externs = Vec::new();
    for (pair, import) in imports.into_iter().zip(source.module.imports()) {
        let [kind, number] = pair[..] else { return Err(unknown(&ctx)) };
        externs.push(match (kind, import.ty()) {
            (0, ExternType::Func(kind)) => host_function(&realm, kind.clone(), number).into(),
            (1, _) => Extern::from(realm.func(&ctx, number)?),
            (2, _) => realm
                .memories
                .borrow()
                .get(index(number))
                .map(|(memory, _)| *memory)
                .ok_or_else(|| unknown(&ctx))?
                .into(),
            (3, _) => realm.tables.borrow().get(index(number)).copied().ok_or_else(|| unknown(&ctx))?.into(),
            _ => realm.globals.borrow().get(index(number)).copied().ok_or_else(|| unknown(&ctx))?.into(),
        });
    }
    let make = || {
        let mut store = realm.store.borrow_mut();
        // Instantiation makes no calls; it copies at most as much as the module's size.
        store.set_fuel(u64::MAX)?;
        Instance::new(&mut *store, &source.module, &externs)
    };
    let mut made = make();
    if made.is_err() && realm.store.borrow_mut().data_mut().take_refused() {
        ctx.run_gc();
        made = make();
    }
    buffers::refresh(&ctx, &realm, &buffers)?;
    let instance = match made {
        Ok(instance) => instance,
        Err(error) => return failed(&ctx, &error),
    };
    let found = |name: &str| instance.get_export(&*realm.store.borrow(), name);
    let exports = Array::new(ctx.clone())?;
    for (at, name) in source.exports.iter().enumerate() {
        let Some(export) = found(name) else { continue };
        let number = match export {
            Extern::Func(function) => realm.number_of(function),
            Extern::Memory(memory) => realm.add_memory(memory),
            Extern::Table(table) => add(&realm.tables, table),
            Extern::Global(global) => add(&realm.globals, global),
        };
        let row = Array::new(ctx.clone())?;
        row.set(0, name.as_str())?;
        row.set(1, number)?;
        exports.set(at, row)?;
    }
    let answer = Object::new(ctx.clone())?;
    answer.set("exports", exports)?;
    if source.starts
        && let Some(Extern::Func(start)) = found(binary::START)
    {
        answer.set("start", realm.number_of(start))?;
    }
    Ok(answer.into_value())
}

/// Creates a function that calls the import `slot` of JavaScript; returns its number.
pub(super) fn host<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    parameters: Vec<String>,
    results: Vec<String>,
    slot: u32,
) -> Result<u32> {
    let realm = realm.borrow().0.clone();
    realm.take_small(&ctx, 1)?;
    let types = |names: Vec<String>| names.iter().map(|name| type_of(name)).collect::<Option<Vec<_>>>();
    let (Some(parameters), Some(results)) = (types(parameters), types(results)) else {
        return Err(type_error(&ctx, "type incompatibility when transforming from/to JS"));
    };
    let function = host_function(&realm, FuncType::new(parameters, results), slot);
    Ok(realm.number_of(function))
}

fn host_function(realm: &Realm, kind: FuncType, slot: u32) -> Func {
    let mut imports = realm.imports.borrow_mut();
    let number = count(imports.len());
    debug_assert_eq!(number, slot);
    imports.push(kind.clone());
    Func::new(&mut *realm.store.borrow_mut(), kind, move |_, arguments, _| {
        Err(wasmi::Error::host(Asked { import: slot, arguments: arguments.to_vec() }))
    })
}

/// Calls a function: returns `[0, results…]`, `[1, import, arguments…]` if JavaScript has to be called first,
/// `[2, import, arguments…]` if the function is itself an import, or the error to throw.
pub(super) fn call<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    buffers: Array<'js>,
    number: u32,
    arguments: Array<'js>,
) -> Result<Value<'js>> {
    let realm = realm.borrow().0.clone();
    let function = realm.func(&ctx, number)?;
    let kind = function.ty(&*realm.store.borrow());
    let mut inputs = Vec::with_capacity(kind.params().len());
    for (at, kind) in kind.params().iter().enumerate() {
        inputs.push(realm.of_js(&ctx, &arguments.get(at)?, *kind)?);
    }
    let mut outputs: Vec<Val> = kind.results().iter().map(|kind| Val::default_for_ty(*kind)).collect();
    let begun = {
        let mut store = realm.store.borrow_mut();
        store.set_fuel(SLICE).map_err(|error| plain_error(&ctx, error))?;
        function.call_resumable(&mut *store, &inputs, &mut outputs)
    };
    drive(&ctx, &realm, &buffers, begun, outputs)
}

/// Resumes the last suspended call with the results of its import.
pub(super) fn resume<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    buffers: Array<'js>,
    results: Array<'js>,
) -> Result<Value<'js>> {
    let realm = realm.borrow().0.clone();
    let waiting = realm.waiting.borrow_mut().pop();
    let Some(Waiting { call, answers, mut outputs }) = waiting else {
        return Err(plain_error(&ctx, "no call of WebAssembly waits"));
    };
    let mut inputs = Vec::with_capacity(answers.len());
    for (at, kind) in answers.iter().enumerate() {
        inputs.push(realm.of_js(&ctx, &results.get(at)?, *kind)?);
    }
    let resumed = {
        let mut store = realm.store.borrow_mut();
        store.set_fuel(SLICE).map_err(|error| plain_error(&ctx, error))?;
        call.resume(&mut *store, &inputs, &mut outputs)
    };
    drive(&ctx, &realm, &buffers, resumed, outputs)
}

/// Drops the last suspended call, because its import threw.
pub(super) fn abandon<'js>(realm: Class<'js, RealmRef>) {
    let realm = realm.borrow().0.clone();
    drop(realm.waiting.borrow_mut().pop());
}

fn drive<'js>(
    ctx: &Ctx<'js>,
    realm: &Rc<Realm>,
    buffers: &Array<'js>,
    mut call: std::result::Result<ResumableCall, wasmi::Error>,
    mut outputs: Vec<Val>,
) -> Result<Value<'js>> {
    loop {
        match call {
            Ok(ResumableCall::OutOfFuel(paused)) => {
                if overrun(ctx)? {
                    buffers::refresh(ctx, realm, buffers)?;
                    return Err(interrupted(ctx));
                }
                let mut store = realm.store.borrow_mut();
                let fuel = SLICE.max(paused.required_fuel());
                store.set_fuel(fuel).map_err(|error| plain_error(ctx, error))?;
                call = paused.resume(&mut *store, &mut outputs);
            }
            Ok(ResumableCall::Finished) => {
                buffers::refresh(ctx, realm, buffers)?;
                let answer = Array::new(ctx.clone())?;
                answer.set(0, 0)?;
                for (at, value) in outputs.iter().enumerate() {
                    answer.set(at + 1, realm.to_js(ctx, value)?)?;
                }
                return Ok(answer.into_value());
            }
            Ok(ResumableCall::HostTrap(suspended)) => {
                buffers::refresh(ctx, realm, buffers)?;
                let Some(asked) = suspended.host_error().downcast_ref::<Asked>() else {
                    return failed(ctx, suspended.host_error());
                };
                let answer = asking(ctx, realm, 1, asked)?;
                let kind = realm.imports.borrow().get(index(asked.import)).cloned();
                let answers = kind.map(|kind| kind.results().to_vec()).unwrap_or_default();
                realm.waiting.borrow_mut().push(Waiting { call: suspended, answers, outputs });
                return Ok(answer);
            }
            Err(error) => {
                buffers::refresh(ctx, realm, buffers)?;
                return match error.downcast_ref::<Asked>() {
                    Some(asked) => asking(ctx, realm, 2, asked),
                    None => failed(ctx, &error),
                };
            }
        }
    }
}

/// Returns the call of an import that JavaScript makes.
fn asking<'js>(ctx: &Ctx<'js>, realm: &Realm, kind: i32, asked: &Asked) -> Result<Value<'js>> {
    let answer = Array::new(ctx.clone())?;
    answer.set(0, kind)?;
    answer.set(1, asked.import)?;
    for (at, value) in asked.arguments.iter().enumerate() {
        answer.set(at + 2, realm.to_js(ctx, value)?)?;
    }
    Ok(answer.into_value())
}

/// Returns whether the plugin exceeds its time or memory limit.
fn overrun(ctx: &Ctx<'_>) -> Result<bool> {
    let state = State::of(ctx)?;
    Ok(state.watch.overrun(|| ctx.run_gc()))
}

/// Interrupts as QuickJS does, with an uncatchable error.
fn interrupted(ctx: &Ctx<'_>) -> rquickjs::Error {
    // SAFETY: the context is alive; the error is taken from it, marked and set again.
    unsafe {
        let ctx = ctx.as_raw().as_ptr();
        qjs::JS_ThrowInternalError(ctx, c"interrupted".as_ptr());
        let error = qjs::JS_GetException(ctx);
        qjs::JS_SetUncatchableError(ctx, error);
        qjs::JS_Throw(ctx, error);
    }
    rquickjs::Error::Exception
}

/// Returns the types of a function's parameters and results.
pub(super) fn signature<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    number: u32,
) -> Result<Vec<Vec<&'static str>>> {
    let realm = realm.borrow().0.clone();
    let kind = realm.func(&ctx, number)?.ty(&*realm.store.borrow());
    let names = |kinds: &[ValType]| kinds.iter().map(|kind| type_name(*kind)).collect();
    Ok(vec![names(kind.params()), names(kind.results())])
}

pub(super) fn new_memory<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    least: u32,
    most: Option<u32>,
) -> Result<u32> {
    let realm = realm.borrow().0.clone();
    let made = Memory::new(&mut *realm.store.borrow_mut(), MemoryType::new(least, most));
    let memory = made.map_err(|_| range_error(&ctx, "WebAssembly.Memory(): could not allocate memory"))?;
    Ok(realm.add_memory(memory))
}

/// Grows a memory by pages; returns the previous number of pages.
pub(super) fn grow_memory<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    buffers: Array<'js>,
    number: u32,
    more: u32,
) -> Result<f64> {
    let realm = realm.borrow().0.clone();
    let memory = realm.memories.borrow().get(index(number)).map(|(memory, _)| *memory);
    let memory = memory.ok_or_else(|| unknown(&ctx))?;
    let grown = memory.grow(&mut *realm.store.borrow_mut(), u64::from(more));
    buffers::refresh(&ctx, &realm, &buffers)?;
    #[expect(clippy::cast_precision_loss, reason = "there are at most 65536")]
    grown
        .map(|pages| pages as f64)
        .map_err(|_| range_error(&ctx, "WebAssembly.Memory.grow(): Maximum memory size exceeded"))
}

/// Converts a value for a table to a reference.
fn reference<'js>(ctx: &Ctx<'js>, realm: &Realm, value: &Value<'js>, kind: ValType) -> Result<Ref> {
    match realm.of_js(ctx, value, kind)? {
        Val::FuncRef(function) => Ok(Ref::Func(function)),
        Val::ExternRef(object) => Ok(Ref::Extern(object)),
        _ => Err(type_error(ctx, "a table holds references")),
    }
}

pub(super) fn new_table<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    kind: String,
    least: u32,
    most: Option<u32>,
    value: Value<'js>,
) -> Result<u32> {
    let realm = realm.borrow().0.clone();
    let kind = type_of(&kind).filter(|kind| ref_type(*kind).is_some());
    let kind = kind.ok_or_else(|| type_error(&ctx, "a table holds references"))?;
    let first = reference(&ctx, &realm, &value, kind)?;
    let Some(element) = ref_type(kind) else { return Err(unknown(&ctx)) };
    let made = Table::new(&mut *realm.store.borrow_mut(), TableType::new(element, least, most), first);
    let table = made.map_err(|_| range_error(&ctx, "WebAssembly.Table(): could not allocate table"))?;
    Ok(add(&realm.tables, table))
}

fn table_of(ctx: &Ctx<'_>, realm: &Realm, number: u32) -> Result<(Table, ValType)> {
    let table = realm.tables.borrow().get(index(number)).copied().ok_or_else(|| unknown(ctx))?;
    Ok((table, table.ty(&*realm.store.borrow()).element().into()))
}

pub(super) fn table_size<'js>(ctx: Ctx<'js>, realm: Class<'js, RealmRef>, number: u32) -> Result<u32> {
    let realm = realm.borrow().0.clone();
    let (table, _) = table_of(&ctx, &realm, number)?;
    let size = table.size(&*realm.store.borrow());
    Ok(u32::try_from(size).unwrap_or(u32::MAX))
}

pub(super) fn table_type<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    number: u32,
) -> Result<&'static str> {
    let realm = realm.borrow().0.clone();
    table_of(&ctx, &realm, number).map(|(_, kind)| type_name(kind))
}

pub(super) fn table_get<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    number: u32,
    at: u32,
) -> Result<Value<'js>> {
    let realm = realm.borrow().0.clone();
    let (table, _) = table_of(&ctx, &realm, number)?;
    let entry = table.get(&*realm.store.borrow(), u64::from(at));
    match entry {
        Some(Ref::Func(function)) => realm.to_js(&ctx, &Val::FuncRef(function)),
        Some(Ref::Extern(object)) => realm.to_js(&ctx, &Val::ExternRef(object)),
        None => Err(range_error(&ctx, "WebAssembly.Table.get(): invalid address")),
    }
}

pub(super) fn table_set<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    number: u32,
    at: u32,
    value: Value<'js>,
) -> Result<()> {
    let realm = realm.borrow().0.clone();
    let (table, kind) = table_of(&ctx, &realm, number)?;
    let entry = reference(&ctx, &realm, &value, kind)?;
    let set = table.set(&mut *realm.store.borrow_mut(), u64::from(at), entry);
    set.map_err(|_| range_error(&ctx, "WebAssembly.Table.set(): invalid address"))
}

pub(super) fn table_grow<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    number: u32,
    more: u32,
    value: Value<'js>,
) -> Result<u32> {
    let realm = realm.borrow().0.clone();
    let (table, kind) = table_of(&ctx, &realm, number)?;
    let entry = reference(&ctx, &realm, &value, kind)?;
    let grown = table.grow(&mut *realm.store.borrow_mut(), u64::from(more), entry);
    let before = grown.map_err(|_| range_error(&ctx, "WebAssembly.Table.grow(): failed to grow table"))?;
    Ok(u32::try_from(before).unwrap_or(u32::MAX))
}

pub(super) fn new_global<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    kind: String,
    mutable: bool,
    value: Value<'js>,
) -> Result<u32> {
    let realm = realm.borrow().0.clone();
    realm.take_small(&ctx, 1)?;
    let kind = type_of(&kind).ok_or_else(|| type_error(&ctx, "a global has no such type"))?;
    let first = realm.of_js(&ctx, &value, kind)?;
    let mutability = if mutable { Mutability::Var } else { Mutability::Const };
    let global = Global::new(&mut *realm.store.borrow_mut(), first, mutability);
    Ok(add(&realm.globals, global))
}

fn global_of(ctx: &Ctx<'_>, realm: &Realm, number: u32) -> Result<Global> {
    realm.globals.borrow().get(index(number)).copied().ok_or_else(|| unknown(ctx))
}

pub(super) fn global_type<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    number: u32,
) -> Result<&'static str> {
    let realm = realm.borrow().0.clone();
    let global = global_of(&ctx, &realm, number)?;
    let kind = global.ty(&*realm.store.borrow()).content();
    Ok(type_name(kind))
}

pub(super) fn global_get<'js>(ctx: Ctx<'js>, realm: Class<'js, RealmRef>, number: u32) -> Result<Value<'js>> {
    let realm = realm.borrow().0.clone();
    let value = global_of(&ctx, &realm, number)?.get(&*realm.store.borrow());
    realm.to_js(&ctx, &value)
}

pub(super) fn global_set<'js>(
    ctx: Ctx<'js>,
    realm: Class<'js, RealmRef>,
    number: u32,
    value: Value<'js>,
) -> Result<()> {
    let realm = realm.borrow().0.clone();
    let global = global_of(&ctx, &realm, number)?;
    let kind = global.ty(&*realm.store.borrow()).content();
    let value = realm.of_js(&ctx, &value, kind)?;
    let set = global.set(&mut *realm.store.borrow_mut(), value);
    set.map_err(|_| {
        type_error(&ctx, "set WebAssembly.Global.value: Can't set the value of an immutable global.")
    })
}
