use hyper::header::{HeaderName, HeaderValue};

use super::*;

fn headers(list: &[(HeaderName, &str)]) -> HeaderMap {
    list.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
}

#[test]
fn tokens_are_read_from_one_header() {
    let token = |values: &[&str]| {
        let list: Vec<_> = values.iter().map(|value| (header::AUTHORIZATION, *value)).collect();
        bearer_token(&headers(&list))
            .map(|token| token.map(|token| String::from_utf8(token.to_vec()).unwrap()))
    };
    assert_eq!(token(&[]), None);
    assert_eq!(token(&["Bearer mmb_12"]), Some(Ok("mmb_12".to_owned())));
    assert_eq!(token(&["bearer  mmb_12"]), Some(Ok("mmb_12".to_owned())));
    for wrong in
        [&["mmb_12"][..], &["Basic bW1iXzEyCg=="], &["Bearer"], &["Bearer a", "Bearer b"], &["Beärer a"]]
    {
        assert!(matches!(token(wrong), Some(Err(_))), "{wrong:?}");
    }
}

#[test]
fn pages_of_other_sites_are_refused() {
    let plain = |list: &[(HeaderName, &str)]| check_site(&headers(list), false).is_ok();
    for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080"] {
        assert!(plain(&[(header::HOST, host)]), "{host}");
    }
    for host in
        ["evil.example", "localhost.evil.example", "192.0.2.1", "127.0.0.1.evil.example:80", "", "[::2]"]
    {
        assert!(!plain(&[(header::HOST, host)]), "{host}");
    }
    assert!(!plain(&[]) && !plain(&[(header::HOST, "localhost"), (header::HOST, "localhost")]));
    let from = |origin| plain(&[(header::HOST, "localhost:80"), (header::ORIGIN, origin)]);
    assert!(from("http://localhost:80"));
    for origin in ["https://localhost:80", "http://evil.example", "http://localhost:81", "null", ""] {
        assert!(!from(origin), "{origin}");
    }
    let list = [(header::HOST, "box.example"), (header::ORIGIN, "https://box.example")];
    assert!(check_site(&headers(&list), true).is_ok());
    let list = [(header::HOST, "box.example"), (header::ORIGIN, "http://box.example")];
    assert!(check_site(&headers(&list), true).is_err());
}
