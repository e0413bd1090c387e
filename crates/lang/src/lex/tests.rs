//! Tests of the parent module.

use super::*;

fn tokens(text: &str) -> Vec<(Tok, &str)> {
    let mut lexer = Lexer::new(text);
    let mut all = Vec::new();
    loop {
        let token = lexer.next();
        if token.tok == Tok::End {
            return all;
        }
        all.push((token.tok, lexer.text(token.span)));
    }
}

#[test]
fn operators_need_no_blanks() {
    use crate::ast::Cond::{Ge, Le, Ne};
    use Tok::*;
    assert_eq!(
        tokens("!tcp-dport!={80, 8000-8100}<=>= = \"a # \\\"b\" # rest"),
        [
            (Bang, "!"),
            (Word, "tcp-dport"),
            (Cond(Ne), "!="),
            (Open, "{"),
            (Word, "80"),
            (Comma, ","),
            (Word, "8000-8100"),
            (Close, "}"),
            (Cond(Le), "<="),
            (Cond(Ge), ">="),
            (Assign, "="),
            (Text, "\"a # \\\"b\""),
        ]
    );
}

#[test]
fn chains_have_their_own_operators() {
    use Tok::*;
    let mut lexer = Lexer::new(" web|a[x:b|c,else :d]# e");
    assert_eq!(lexer.text(lexer.peek().span), "web|a[x:b|c");
    lexer.enter_chain();
    let mut all = Vec::new();
    while lexer.peek().tok != End {
        all.push((lexer.colon_follows(), lexer.next()));
    }
    let texts: Vec<&str> = all.iter().map(|(_, token)| lexer.text(token.span)).collect();
    assert_eq!(texts, ["web", "|", "a", "[", "x", ":", "b", "|", "c", ",", "else", ":", "d", "]"]);
    let followed: Vec<&str> =
        all.iter().filter(|(colon, _)| *colon).map(|(_, token)| lexer.text(token.span)).collect();
    assert_eq!(followed, ["x", "else"]);
    assert_eq!(all[1].1.tok, Pipe);
}

#[test]
fn texts_without_end_and_escapes() {
    assert_eq!(tokens("\"abc")[0].0, Tok::OpenText);
    assert_eq!(tokens("\"abc\\\"")[0].0, Tok::OpenText);
    assert_eq!(tokens("\"abc\\")[0].0, Tok::OpenText);
    assert_eq!(unquote(r#""a\"\\\n\x00\xfF""#).unwrap(), b"a\"\\\n\x00\xff");
    assert_eq!(unquote(r#""ab\q""#), Err(3));
    assert_eq!(unquote(r#""\x1""#), Err(1));
    for text in ["", "a b", "\"\\", "\u{85}\u{1}é"] {
        assert_eq!(unquote(&quote_text(text)).unwrap(), text.as_bytes());
    }
}
