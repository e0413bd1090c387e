//! The web page: its files, which need no token, and the headers that confine it.
//!
//! Theory of operation. The files are part of the program. They hold nothing of this daemon; all that the
//! page shows comes by the API, with the token that the user enters. The policy of the page lets the
//! browser load scripts and styles from these files only, connect to this daemon only, and make no markup
//! of text, so that the text of a rule stays text (Content Security Policy level 3, Trusted Types).

use axum::http::{HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Response};
use hyper::header;

/// Path, media type and content of each file.
const FILES: [(&str, &str, &str); 10] = [
    ("/", "text/html; charset=utf-8", include_str!("web/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("web/style.css")),
    ("/main.js", SCRIPT, include_str!("web/main.js")),
    ("/api.js", SCRIPT, include_str!("web/api.js")),
    ("/capture.js", SCRIPT, include_str!("web/capture.js")),
    ("/dom.js", SCRIPT, include_str!("web/dom.js")),
    ("/views.js", SCRIPT, include_str!("web/views.js")),
    ("/editor.js", SCRIPT, include_str!("web/editor.js")),
    ("/graph.js", SCRIPT, include_str!("web/graph.js")),
    ("/trace.js", SCRIPT, include_str!("web/trace.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What the page may do.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// The file of a path. None: the request is none for the page.
pub(super) fn file(method: &Method, uri: &Uri) -> Option<Response> {
    if *method != Method::GET && *method != Method::HEAD {
        return None;
    }
    let (_, media_type, text) = FILES.into_iter().find(|(path, ..)| *path == uri.path())?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        // After an upgrade, all files are those of one release.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Some((headers, text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_that_the_page_names_is_there() {
        let found = |path: &str| file(&Method::GET, &path.parse().unwrap());
        for (path, _, text) in FILES {
            assert!(found(path).is_some());
            for named in text.split('"').filter(|word| word.ends_with(".js") || word.ends_with(".css")) {
                assert!(found(named.trim_start_matches('.')).is_some(), "{path}: {named}");
            }
            // The policy forbids what these would need.
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "style=", "<script>"] {
                assert!(!text.contains(forbidden), "{path}: {forbidden}");
            }
            assert!(!text.replace("http://www.w3.org/2000/svg", "").contains("://"), "{path}");
        }
        assert!(found("/v1/rules").is_none() && found("/../etc/passwd").is_none());
        assert!(file(&Method::POST, &"/".parse().unwrap()).is_none());
    }
}
