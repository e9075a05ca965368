//! The outline of a module's binary form. The interpreter validates it.

/// The export name for a start function. No compiler generates a name with this first character.
pub(super) const START: &str = "\u{0}start";

const EXPORTS: u8 = 7;
const STARTS: u8 = 8;
const FUNCTION: u8 = 0;

/// The parts of a module that are read without the interpreter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    /// The names of its exports, in order.
    pub(super) exports: Vec<String>,
    /// The module with its start function exported as [`START`] instead of called, if it has one: a call from outside
    /// can be interrupted, the start of an instance cannot.
    pub(super) rewritten: Option<Vec<u8>>,
}

/// Reads the outline; an invalid module has an empty one.
pub(super) fn outline(bytes: &[u8]) -> Outline {
    read(bytes).unwrap_or_default()
}

fn read(bytes: &[u8]) -> Option<Outline> {
    let mut rest = bytes.get(8..)?;
    let (mut exports, mut started) = (None, None);
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let (id, after) = rest.split_first()?;
        rest = after;
        let length = usize::try_from(number(&mut rest)?).ok()?;
        let content = rest.get(..length)?;
        rest = &rest[length..];
        let end = bytes.len() - rest.len();
        match *id {
            EXPORTS => exports = Some((at, end, content)),
            STARTS => started = Some((at, end, content)),
            _ => {}
        }
    }
    let mut outline = Outline::default();
    let mut many = 0;
    let mut entries: &[u8] = &[];
    if let Some((_, _, content)) = exports {
        entries = content;
        many = number(&mut entries)?;
        let mut left = entries;
        for _ in 0..many {
            let length = usize::try_from(number(&mut left)?).ok()?;
            outline.exports.push(String::from_utf8(left.get(..length)?.to_vec()).ok()?);
            left = left.get(length + 1..)?;
            number(&mut left)?;
        }
    }
    if let Some((at, end, function)) = started {
        let mut section = leb(many.checked_add(1)?);
        section.extend_from_slice(entries);
        section.extend_from_slice(&leb(u32::try_from(START.len()).ok()?));
        section.extend_from_slice(START.as_bytes());
        section.push(FUNCTION);
        section.extend_from_slice(function);
        let (from, to) = exports.map_or((at, at), |(from, to, _)| (from, to));
        let mut made = bytes.get(..from)?.to_vec();
        made.push(EXPORTS);
        made.extend_from_slice(&leb(u32::try_from(section.len()).ok()?));
        made.extend_from_slice(&section);
        made.extend_from_slice(bytes.get(to..at)?);
        made.extend_from_slice(bytes.get(end..)?);
        outline.rewritten = Some(made);
    }
    Some(outline)
}

/// Reads a LEB128 number of at most 32 bits.
fn number(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u32;
    for shift in (0..35).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u32::from(byte & 0x7F).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn leb(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = value.to_le_bytes()[0] & 0x7F;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"\0asm\x01\0\0\0";

    fn module(sections: &[&[u8]]) -> Vec<u8> {
        [HEAD, &sections.concat()].concat()
    }

    #[test]
    fn a_start_function_is_exported_instead() {
        let types: &[u8] = &[1, 4, 1, 0x60, 0, 0];
        let functions: &[u8] = &[3, 2, 1, 0];
        let code: &[u8] = &[10, 4, 1, 2, 0, 0x0B];
        let start: &[u8] = &[8, 1, 0];
        let named: &[u8] = &[7, 12, 1, 6, 0, b's', b't', b'a', b'r', b't', 0, 0];
        let named = [&named[..1], &[10], &named[2..]].concat();
        let whole = outline(&module(&[types, functions, start, code]));
        assert_eq!(whole.rewritten, Some(module(&[types, functions, &named, code])));
        assert!(whole.exports.is_empty());
        let both: &[u8] = &[7, 5, 1, 1, b'f', 0, 0];
        let two: &[u8] = &[7, 14, 2, 1, b'f', 0, 0, 6, 0, b's', b't', b'a', b'r', b't', 0, 0];
        let whole = outline(&module(&[types, functions, both, start, code]));
        assert_eq!(whole.rewritten, Some(module(&[types, functions, two, code])));
        assert_eq!(whole.exports, ["f"]);
    }

    #[test]
    fn what_is_no_module_has_no_outline() {
        for bytes in [&b""[..], b"\0asm", b"\0asm\x01\0\0\0\x07\xff", b"\0asm\x01\0\0\0\x08\x05\0"] {
            assert_eq!(outline(bytes), Outline::default());
        }
    }
}
