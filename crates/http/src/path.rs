//! Paths as servers understand them.

/// Writes the path of a target without query in its normal form to `out` (RFC 3986, 6.2.2): characters that
/// are encoded by `%` are decoded, `.` and `..` are followed, and several slashes are one. Returns it, or
/// None if there is no room. The form is never longer than the path.
///
/// Rules compare this form, so that `/%61dmin` and `/x/../admin` do not pass a rule for `/admin`. What
/// follows an encoded `?` belongs to the path.
pub fn normalize_path<'o>(target: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let end = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
    let path = &target[..end];
    let (mut at, mut len) = (0, 0);
    while at < path.len() {
        let (byte, used) = decoded(&path[at..]);
        at += used;
        *out.get_mut(len)? = byte;
        len += 1;
        if byte == b'/' {
            len = end_segment(out, len);
        }
    }
    // A dot segment at the end has no slash behind it.
    *out.get_mut(len).unwrap_or(&mut 0) = b'/';
    if [b"/.".as_slice(), b"/.."].iter().any(|dots| out[..len].ends_with(dots)) && len < out.len() {
        len = end_segment(out, len + 1);
    }
    out.get(..len)
}

/// Returns the first byte of a path, and the number of bytes that it takes.
fn decoded(path: &[u8]) -> (u8, usize) {
    let digit = |at: usize| char::from(*path.get(at)?).to_digit(16);
    match (path.first(), digit(1), digit(2)) {
        (Some(b'%'), Some(high), Some(low)) => ((high << 4 | low) as u8, 3),
        (first, _, _) => (first.copied().unwrap_or(0), 1),
    }
}

/// A segment has ended with the slash at `len - 1`. Returns the length without it if it is to be left out.
fn end_segment(out: &[u8], len: usize) -> usize {
    let before = out.get(..len).unwrap_or_default();
    if before.ends_with(b"//") {
        len - 1
    } else if before.ends_with(b"/./") {
        len - 2
    } else if before.ends_with(b"/../") {
        let parent = &before[..len - 4];
        parent.iter().rposition(|&byte| byte == b'/').map_or(len - 3, |at| at + 1)
    } else {
        len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> String {
        let mut out = [0; 64];
        String::from_utf8_lossy(normalize_path(path.as_bytes(), &mut out).unwrap()).into_owned()
    }

    #[test]
    fn forms() {
        // RFC 3986, 5.2.4 has the second one.
        for (path, expected) in [
            ("/", "/"),
            ("/a/b/c/./../../g", "/a/g"),
            ("/a?/b/../c", "/a"),
            ("/%61dmin", "/admin"),
            ("/x/%2e%2E/admin", "/admin"),
            ("/x%2f..%2fadmin", "/admin"),
            ("//admin///x", "/admin/x"),
            ("/../../a", "/a"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("/..", "/"),
            ("/a%3fb", "/a?b"),
            ("/%zz%4", "/%zz%4"),
            ("/...", "/..."),
            ("/a..", "/a.."),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(normal(path), expected, "{path}");
        }
        assert_eq!(normalize_path(b"/abc", &mut [0; 3]), None);
    }

    proptest! {
        /// A path of plain characters is in its normal form after one pass, and fits where the path fits.
        #[test]
        fn the_form_is_stable(path in "/[a/.]{0,20}") {
            let mut out = vec![0; path.len() + 1];
            let once = normalize_path(path.as_bytes(), &mut out).map(<[u8]>::to_vec).unwrap();
            prop_assert!(once.len() <= path.len() && once.starts_with(b"/"));
            let mut again = vec![0; path.len() + 1];
            prop_assert_eq!(normalize_path(&once, &mut again), Some(&once[..]));
            prop_assert!(!once.windows(2).any(|two| two == b"//"));
        }
    }
}
