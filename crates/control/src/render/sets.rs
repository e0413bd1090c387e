//! Named sets as text.

use super::columns::Align::{Left, Right};
use super::columns::Columns;
use crate::api::{SetElementList, SetList};

/// `show sets`: a line for each set.
pub fn sets(list: &SetList) -> String {
    if list.sets.is_empty() {
        return "no sets; add one with `set add NAME address|prefix|port`\n".to_owned();
    }
    let mut columns = Columns::new([
        ("name", Left),
        ("kind", Left),
        ("elements", Right),
        ("expiring", Right),
        ("timeout", Right),
        ("rules", Left),
        ("packets", Right),
        ("file", Left),
        ("comment", Left),
    ]);
    for s in &list.sets {
        let rules: Vec<String> = s.rules.iter().map(u32::to_string).collect();
        columns.row([
            s.name.clone(),
            s.kind.clone(),
            s.elements.to_string(),
            s.expiring.to_string(),
            s.timeout.map_or("-".to_owned(), |seconds| format!("{seconds} s")),
            if rules.is_empty() { "-".to_owned() } else { rules.join(",") },
            s.packets.to_string(),
            s.file.clone().unwrap_or_else(|| "-".to_owned()),
            s.comment.clone().unwrap_or_default(),
        ]);
    }
    columns.render()
}

/// `show set NAME`: a line for each element.
pub fn set_elements(list: &SetElementList) -> String {
    if list.elements.is_empty() {
        return format!("no elements; add one with `set {} add ELEMENT`\n", list.set);
    }
    let mut columns =
        Columns::new([("element", Left), ("expires", Right), ("from", Left), ("comment", Left)]);
    for e in &list.elements {
        columns.row([
            e.element.clone(),
            e.expires.map_or("-".to_owned(), |seconds| format!("{seconds} s")),
            if e.from_file { "file" } else { "command" }.to_owned(),
            e.comment.clone().unwrap_or_default(),
        ]);
    }
    columns.render()
}
