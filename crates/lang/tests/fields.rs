//! `docs/fields.md` agrees with the field table. `MMB_BLESS=1` writes it.

use std::path::Path;

use mmb_lang::{Command, FIELDS, check, fields_markdown, parse_line};

#[test]
fn the_documentation_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fields.md");
    let wanted = fields_markdown();
    if std::env::var_os("MMB_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/fields.md is not current: MMB_BLESS=1 cargo test -p mmb-lang --test fields"
    );
}

/// Every example parses, prints in the canonical form, and matches what the table says.
#[test]
fn examples_hold() {
    for def in &FIELDS {
        let line = format!("add {} drop", def.example);
        let Ok(Some(Command::Add(rule))) = parse_line(&line) else { panic!("{line}") };
        assert!(check(&rule).is_ok(), "{line}");
        assert!(
            !def.help.is_empty() && !def.help.contains('|') && !def.example.contains('|'),
            "{}",
            def.name
        );
        let uses = def.example.split(' ').next();
        assert_eq!(uses, Some(def.name));
        let again = rule.to_string();
        let hexadecimal = def.example.contains("0x");
        assert!(again == line || hexadecimal, "{line} prints as {again}");
    }
}
