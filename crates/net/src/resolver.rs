//! How a statically linked program resolves names (D-381).

/// Makes a statically linked C library resolve names only with `/etc/hosts` and DNS.
///
/// `/etc/nsswitch.conf` names modules of the system's C library. A program that contains another build of it would load
/// them with that second C library, which is undefined. Call it once, before threads start. It does nothing in a program
/// that is linked with the system's C library.
pub fn use_own_resolver() {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_feature = "crt-static"))]
    for (database, services) in [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")] {
        configure(database, services);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu", target_feature = "crt-static"))]
#[allow(unsafe_code)]
fn configure(database: &std::ffi::CStr, services: &std::ffi::CStr) {
    use std::ffi::{c_char, c_int};
    // SAFETY: `int __nss_configure_lookup (const char *, const char *)` of <nss.h>.
    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }
    // SAFETY: it copies both strings, which end with NUL, and no other thread looks up names yet. It rejects unknown
    // names, and these are known.
    unsafe {
        __nss_configure_lookup(database.as_ptr(), services.as_ptr());
    }
}
