//! The native part of `WebAssembly`: an interpreter whose calls can be interrupted.
//!
//! The interpreter does not call imported JavaScript functions. A call that reaches an import is suspended and returns
//! the import's number and arguments; `internal/webassembly` calls the function and resumes. So no interpreter frame is
//! below JavaScript on the stack, JavaScript can call into the same instance again, and this module retains no QuickJS
//! values.

mod binary;
mod buffers;
mod charged;
mod module;
mod realm;
mod values;

use std::fmt;

use rquickjs::{Ctx, Object, Result};
use wasmi::errors::{ErrorKind, HostError};
use wasmi::{CompilationMode, Config, CustomFuelCosts, Engine, TrapCode, Val};

use super::natives;

/// The fuel between two checks of the limits: some milliseconds.
const SLICE: u64 = 5_000_000;

thread_local! {
    /// One for each plugin, created by the first module.
    static ENGINE: Engine = {
        let mut config = Config::default();
        config
            .consume_fuel(true)
            .compilation_mode(CompilationMode::LazyTranslation)
            // A call that runs out of fuel while a function is translated cannot be resumed. The translation of a whole module
            // is short beside a limit.
            .fuel_cost(CustomFuelCosts {
                bytes_copied_per_fuel: 64,
                fuel_per_bytes_translated: 0,
                fuel_per_bytes_validated: 0,
            })
            .set_max_recursion_depth(20_000);
        // A separate call: it panics for a height below the minimum, and this one is above.
        config.set_max_stack_height(4 << 20);
        Engine::new(&config)
    };
}

fn engine() -> Engine {
    ENGINE.with(Clone::clone)
}

/// The import with which a call is suspended.
#[derive(Debug)]
struct Asked {
    import: u32,
    arguments: Vec<Val>,
}

impl fmt::Display for Asked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "import {} is called", self.import)
    }
}

impl HostError for Asked {}

/// Returns the class and the message of the error for an interpreter error, as V8 words it.
fn words(error: &wasmi::Error) -> (&'static str, String) {
    let trap = match error.as_trap_code() {
        Some(trap) => trap,
        None => {
            let class = match error.kind() {
                ErrorKind::Instantiation(_) | ErrorKind::Linker(_) => "LinkError",
                ErrorKind::Memory(_) | ErrorKind::Table(_) => "RangeError",
                _ => "RuntimeError",
            };
            return (class, error.to_string());
        }
    };
    let words = match trap {
        TrapCode::UnreachableCodeReached => "unreachable",
        TrapCode::MemoryOutOfBounds => "memory access out of bounds",
        TrapCode::TableOutOfBounds => "table index is out of bounds",
        TrapCode::IndirectCallToNull | TrapCode::BadSignature => {
            "null function or function signature mismatch"
        }
        TrapCode::IntegerDivisionByZero => "divide by zero",
        TrapCode::IntegerOverflow => "divide result unrepresentable",
        TrapCode::BadConversionToInteger => "float unrepresentable in integer range",
        TrapCode::StackOverflow => return ("RangeError", "Maximum call stack size exceeded".to_owned()),
        _ => return ("RuntimeError", error.to_string()),
    };
    ("RuntimeError", words.to_owned())
}

/// Returns the native functions for `internal/webassembly`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "compile": module::compile,
        "realm": realm::create,
        "instantiate": realm::instantiate,
        "call": realm::call,
        "resume": realm::resume,
        "abandon": realm::abandon,
        "signature": realm::signature,
        "hostFunction": realm::host,
        "newMemory": realm::new_memory,
        "growMemory": realm::grow_memory,
        "buffer": buffers::buffer,
        "newTable": realm::new_table,
        "tableSize": realm::table_size,
        "tableGet": realm::table_get,
        "tableSet": realm::table_set,
        "tableGrow": realm::table_grow,
        "tableType": realm::table_type,
        "newGlobal": realm::new_global,
        "globalType": realm::global_type,
        "globalGet": realm::global_get,
        "globalSet": realm::global_set,
    }
}

/// Defines a handle for JavaScript.
macro_rules! held {
    ($name:ident, $what:ty, $label:literal) => {
        #[derive(Clone)]
        pub(super) struct $name(pub(super) std::rc::Rc<$what>);

        impl<'js> rquickjs::class::Trace<'js> for $name {
            fn trace<'a>(&self, _: rquickjs::class::Tracer<'a, 'js>) {}
        }

        // SAFETY: it contains no value with a lifetime of the engine, so its type is the same for every lifetime.
        unsafe impl rquickjs::JsLifetime<'_> for $name {
            type Changed<'to> = Self;
        }

        impl<'js> rquickjs::class::JsClass<'js> for $name {
            const NAME: &'static str = $label;
            type Mutable = rquickjs::class::Readable;

            fn constructor(
                _: &rquickjs::Ctx<'js>,
            ) -> rquickjs::Result<Option<rquickjs::function::Constructor<'js>>> {
                Ok(None)
            }
        }
    };
}
use held;
