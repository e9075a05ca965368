//! The native parts of Node's modules: files, processes, sockets, digests. Each file creates one object of functions;
//! embedded JavaScript builds the Node API on it.

mod brotli;
pub(crate) mod child;
mod children;
mod ciphers;
pub(crate) mod crypto;
mod curves;
mod der;
mod descriptors;
pub(crate) mod encoding;
pub(crate) mod frames;
pub(crate) mod fs;
mod gcm;
pub(crate) mod http1;
pub(crate) mod http2;
mod interfaces;
mod keys;
pub(crate) mod languages;
pub(crate) mod net;
mod pipes;
pub(crate) mod ports;
mod primes;
pub(crate) mod process;
mod rsa;
mod scrypt;
pub(crate) mod sdk;
mod signatures;
mod system_error;
pub(crate) mod tls;
pub(crate) mod url;
pub(crate) mod url_pattern;
pub(crate) mod vm;
pub(crate) mod wasm;
pub(crate) mod websocket;
pub(crate) mod worker;
pub(crate) mod zlib;
pub(crate) mod zones;

pub use children::{awaits_child, end_children};
pub(crate) use system_error::{SystemError, system_error};

/// Creates an object of native functions.
macro_rules! natives {
    ($ctx:expr; $($name:literal: $function:expr),+ $(,)?) => {{
        let natives = rquickjs::Object::new($ctx.clone())?;
        $(natives.set($name, rquickjs::Function::new($ctx.clone(), $function)?.with_name($name)?)?;)+
        Ok(natives)
    }};
}
pub(crate) use natives;

/// Returns cryptographically secure random letters and digits.
fn random_letters(many: usize) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = vec![0; many];
    crypto::fill_random(&mut bytes);
    bytes.into_iter().map(|byte| LETTERS[usize::from(byte) % LETTERS.len()] as char).collect()
}
