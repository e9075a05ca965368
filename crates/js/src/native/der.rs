//! The subset of DER that keys use.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BITS: u8 = 0x03;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;

/// Reads one value; returns its tag, its content and the remaining bytes.
pub(super) fn read(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short @ 0..=0x7F => (usize::from(*short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            if digits.len() > 4 {
                return None;
            }
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
    };
    let (inside, after) = rest.split_at_checked(length)?;
    Some((*tag, inside, after))
}

/// Reads a value with this tag; returns its content and the remaining bytes.
pub(super) fn expect(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    read(der).filter(|(found, ..)| *found == tag).map(|(_, inside, after)| (inside, after))
}

/// Reads the values of a sequence, each with its tag.
pub(super) fn members(mut inside: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut members = Vec::new();
    while !inside.is_empty() {
        let (tag, member, after) = read(inside)?;
        members.push((tag, member));
        inside = after;
    }
    Some(members)
}

/// Encodes one value.
pub(super) fn write(tag: u8, inside: &[u8]) -> Vec<u8> {
    let length = inside.len();
    let mut out = vec![tag];
    let digits = length.to_be_bytes();
    if length < 0x80 {
        out.push(digits[digits.len() - 1]);
    } else {
        let skipped = digits.iter().take_while(|digit| **digit == 0).count();
        out.push(0x80 | u8::try_from(digits.len() - skipped).unwrap_or_default());
        out.extend(&digits[skipped..]);
    }
    out.extend(inside);
    out
}
