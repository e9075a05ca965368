//! The linkage of a program, from its ELF file.

use object::Endianness;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};

use super::table::Platform;

/// The linkage of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Linkage {
    /// Static: it contains the C library.
    Static,
    /// Dynamic: it needs a C library of at least this version.
    Dynamic {
        /// Such as `2.34`.
        glibc: String,
    },
}

/// Reads the linkage of a program.
///
/// # Errors
/// It is not a program for this platform.
pub(super) fn linkage(bytes: &[u8], platform: &Platform) -> Result<Linkage, String> {
    let not = |error: object::Error| format!("not an ELF program: {error}");
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(not)?;
    let endian = header.endian().map_err(not)?;
    if header.e_machine(endian) != platform.machine {
        return Err(format!("not a program for {}", platform.target));
    }
    let segments = header.program_headers(endian, bytes).map_err(not)?;
    if !segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP) {
        return Ok(Linkage::Static);
    }
    let sections = header.sections(endian, bytes).map_err(not)?;
    let mut newest = (0, 0);
    if let Some((mut needs, strings)) = sections.gnu_verneed(endian, bytes).map_err(not)? {
        let strings = sections.strings(endian, bytes, strings).map_err(not)?;
        while let Some((_, mut versions)) = needs.next().map_err(not)? {
            while let Some(version) = versions.next().map_err(not)? {
                let name = String::from_utf8_lossy(version.name(endian, strings).map_err(not)?).into_owned();
                newest = newest.max(glibc(&name).unwrap_or_default());
            }
        }
    }
    Ok(Linkage::Dynamic { glibc: format!("{}.{}", newest.0, newest.1) })
}

/// Parses `GLIBC_2.34` as numbers.
fn glibc(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::table::PLATFORMS;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(glibc("GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(glibc("GLIBC_2.34"), Some((2, 34)));
        assert_eq!(glibc("GLIBC_PRIVATE"), None);
        assert_eq!(glibc("GCC_3.0"), None);
    }

    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn this_program_needs_a_c_library_and_is_for_this_processor() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(
            matches!(linkage(&own, &PLATFORMS[0]), Ok(Linkage::Dynamic { glibc }) if glibc.starts_with("2."))
        );
        assert_eq!(
            linkage(&own, &PLATFORMS[1]),
            Err("not a program for aarch64-unknown-linux-gnu".to_owned())
        );
        assert!(linkage(b"#!/bin/sh\n", &PLATFORMS[0]).is_err());
    }
}
