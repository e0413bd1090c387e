//! The classes of characters.

/// `tchar` of RFC 9110, 5.6.2: methods and names of headers.
pub(crate) const TOKEN: u8 = 1 << 0;
/// Targets: visible characters of US-ASCII but `#`, since no form of a target has a fragment (RFC 9112, 3.2).
pub(crate) const TARGET: u8 = 1 << 1;
/// Values of headers, reason phrases and chunk extensions (RFC 9110, 5.5): visible characters, blanks, and
/// bytes from 128 on.
pub(crate) const VALUE: u8 = 1 << 2;
/// White space within a line: space and horizontal tab.
pub(crate) const BLANK: u8 = 1 << 3;
/// Characters of hosts and ports (RFC 3986, 3.2.2 and 3.2.3), without the comma that separates lists.
pub(crate) const HOST: u8 = 1 << 4;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let one = byte as u8;
        let mut class = 0;
        if one.is_ascii_alphanumeric() || is_any(one, b"!#$%&'*+-.^_`|~") {
            class |= TOKEN;
        }
        if one.is_ascii_graphic() && one != b'#' {
            class |= TARGET;
        }
        if one == b' ' || one == b'\t' {
            class |= BLANK | VALUE;
        }
        if one.is_ascii_graphic() || one >= 128 {
            class |= VALUE;
        }
        if one.is_ascii_alphanumeric() || is_any(one, b"-._~%!$&'()*+;=:[]") {
            class |= HOST;
        }
        table[byte] = class;
        byte += 1;
    }
    table
}

const fn is_any(byte: u8, of: &[u8]) -> bool {
    let mut at = 0;
    while at < of.len() {
        if of[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

/// Whether a byte is of a class.
pub(crate) fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Returns the number of bytes at the beginning that are of a class.
pub(crate) fn run(bytes: &[u8], class: u8) -> usize {
    bytes.iter().position(|&byte| !is(byte, class)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_grammar() {
        let count = |class| (0..=255).filter(|&byte| is(byte, class)).count();
        assert_eq!([count(TOKEN), count(TARGET), count(VALUE), count(BLANK)], [77, 93, 224, 2]);
        assert!(b" \t\r\n\0\x7f()<>@,;:\\\"/[]?={}".iter().all(|&byte| !is(byte, TOKEN)));
        assert!(!is(0x7f, VALUE) && !is(b',', HOST) && !is(b'@', HOST) && !is(b'/', HOST));
        assert_eq!((run(b"abc def", TOKEN), run(b"", TOKEN), run(b"abc", TOKEN)), (3, 0, 3));
    }
}
