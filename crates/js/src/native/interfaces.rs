//! The network addresses of this machine, as `os.networkInterfaces` lists them.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::{io, ptr};

use rquickjs::{Array, Ctx, Object, Result};

use super::{SystemError, system_error};

/// One address of one interface.
#[derive(Debug)]
struct Address {
    interface: String,
    address: IpAddr,
    netmask: IpAddr,
    scope: Option<u32>,
    internal: bool,
}

/// Returns the addresses in the system's order; JavaScript groups them by interface.
pub(super) fn interfaces<'js>(ctx: Ctx<'js>) -> Result<Array<'js>> {
    let rows = Array::new(ctx.clone())?;
    let found =
        addresses().map_err(|error| system_error(&ctx, SystemError::new(error, "uv_interface_addresses")))?;
    for (at, found) in found.into_iter().enumerate() {
        let bits: u32 = match found.netmask {
            IpAddr::V4(mask) => mask.to_bits().count_ones(),
            IpAddr::V6(mask) => mask.to_bits().count_ones(),
        };
        let row = Object::new(ctx.clone())?;
        row.set("interface", found.interface)?;
        row.set("address", found.address.to_string())?;
        row.set("netmask", found.netmask.to_string())?;
        row.set("family", if found.address.is_ipv4() { "IPv4" } else { "IPv6" })?;
        row.set("mac", "00:00:00:00:00:00")?;
        row.set("internal", found.internal)?;
        row.set("cidr", format!("{}/{bits}", found.address))?;
        if let Some(scope) = found.scope {
            row.set("scopeid", scope)?;
        }
        rows.set(at, row)?;
    }
    Ok(rows)
}

fn addresses() -> io::Result<Vec<Address>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the call writes a list to `first`, or fails without changing it.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = first;
    // SAFETY: every entry, and what it points to, is valid until the list is freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let flags = i32::try_from(entry.ifa_flags).unwrap_or_default();
        if flags & libc::IFF_UP == 0 || flags & libc::IFF_RUNNING == 0 {
            continue;
        }
        // SAFETY: as above; addresses are null or have the length of their family.
        let (Some((address, scope)), Some((netmask, _))) =
            (unsafe { (read(entry.ifa_addr), read(entry.ifa_netmask)) })
        else {
            continue;
        };
        // SAFETY: the name is a null-terminated string.
        let interface = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        found.push(Address { interface, address, netmask, scope, internal: flags & libc::IFF_LOOPBACK != 0 });
    }
    // SAFETY: the list came from `getifaddrs`, and no reference to it remains.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Reads an internet address; returns `None` for other families.
///
/// # Safety
///
/// `address` is null, or points to an address with the length of its family.
unsafe fn read(address: *const libc::sockaddr) -> Option<(IpAddr, Option<u32>)> {
    // SAFETY: the caller guarantees that it is null or an address.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: an address of this family is a `sockaddr_in`, possibly unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some((Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into(), None))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a `sockaddr_in6`, possibly unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some((Ipv6Addr::from(address.sin6_addr.s6_addr).into(), Some(address.sin6_scope_id)))
        }
        _ => None,
    }
}
