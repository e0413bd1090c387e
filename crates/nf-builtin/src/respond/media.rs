//! Media types of files.

/// Media types by the end of a file's name (IANA's registry).
const TYPES: [(&str, &str); 18] = [
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("pdf", "application/pdf"),
    ("wasm", "application/wasm"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("ico", "image/vnd.microsoft.icon"),
    ("woff2", "font/woff2"),
];

/// Returns the media type of a file.
pub(super) fn media_of(path: &str) -> &'static str {
    let end = path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, end)| end);
    let known = TYPES.iter().find(|(known, _)| end.eq_ignore_ascii_case(known));
    known.map_or("application/octet-stream", |(_, media)| media)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_ends_of_names() {
        for (path, expected) in [
            ("/a/index.html", "text/html; charset=utf-8"),
            ("logo.min.SVG", "image/svg+xml"),
            ("/a.html/file", "application/octet-stream"),
            ("data", "application/octet-stream"),
        ] {
            assert_eq!(media_of(path), expected, "{path}");
        }
    }
}
