//! The history as text.

use super::columns::Align::{Left, Right};
use super::columns::Columns;
use crate::api::{HistoryList, RevisionEntry};

/// `history`: a line for each change, the latest first.
pub fn history(list: &HistoryList) -> String {
    let mut columns = Columns::new([("revision", Right), ("time", Left), ("by", Left), ("change", Left)]);
    for r in &list.revisions {
        columns.row([r.revision.to_string(), r.time.clone(), author(r), r.change.clone()]);
    }
    let mut text = columns.render();
    if let Some(pending) = &list.pending {
        text.push_str(&format!(
            "# revision {} comes back in {} s without `mmb confirm`\n",
            pending.revision, pending.seconds
        ));
    }
    text
}

fn author(r: &RevisionEntry) -> String {
    if let (Some(name), Some(address)) = (&r.name, &r.address) {
        return format!("{name} at {address}");
    }
    match (r.user, r.process) {
        (Some(user), Some(process)) => format!("user {user}, process {process}"),
        (Some(user), None) => format!("user {user}"),
        _ => "mmb".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PendingEntry;

    #[test]
    fn each_change_has_a_line() {
        let time = "2026-11-25T10:00:00.000Z".to_owned();
        let first =
            RevisionEntry { revision: 1, time: time.clone(), change: "start".into(), ..Default::default() };
        let user = Some(1000);
        let change = "add all drop".to_owned();
        let second = RevisionEntry {
            revision: 2,
            time: time.clone(),
            user,
            process: Some(7),
            change,
            ..first.clone()
        };
        let (name, address) = (Some("ci".to_owned()), Some("192.0.2.7".to_owned()));
        let third = RevisionEntry { revision: 3, change: "flush".into(), name, address, ..first.clone() };
        let pending = Some(PendingEntry { seconds: 9, revision: 1 });
        let expected = "\
revision  time                      by                    change
       3  2026-11-25T10:00:00.000Z  ci at 192.0.2.7       flush
       2  2026-11-25T10:00:00.000Z  user 1000, process 7  add all drop
       1  2026-11-25T10:00:00.000Z  mmb                   start
# revision 1 comes back in 9 s without `mmb confirm`
";
        assert_eq!(history(&HistoryList { revisions: vec![third, second, first], pending }), expected);
    }
}
