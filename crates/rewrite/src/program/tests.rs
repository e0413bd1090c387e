//! Tests of compiled programs and of corner cases of their application.

use mmb_lang::{Action, FieldId, Target, Value};
use mmb_packet::{Kind, Meta};

use crate::EditProgram;

fn modify(field: FieldId, value: u64) -> Target {
    Action::Mod { field, value: Value::Int(value) }.into()
}

fn port_of(name: &str) -> Option<u16> {
    (name == "wan").then_some(7)
}

fn compile(targets: &[Target]) -> EditProgram {
    EditProgram::compile(targets, &port_of).unwrap()
}

fn out(name: &str) -> Target {
    Action::Mod { field: FieldId::Out, value: Value::Iface(name.into()) }.into()
}

#[test]
fn later_edits_of_the_same_bits_win() {
    use FieldId::*;
    let program = compile(&[modify(IpEcn, 3), modify(IpDscp, 10), modify(IpEcn, 1), modify(IpDscp, 46)]);
    assert_eq!(program, compile(&[modify(IpDscp, 46), modify(IpEcn, 1)]));
    assert_eq!(program.words.len(), 1);

    let flags = compile(&[modify(TcpFlags, 0x12), modify(TcpAck, 0), modify(TcpFin, 1)]);
    assert_eq!(flags, compile(&[modify(TcpFlags, 0x03)]));
    assert_ne!(flags, compile(&[modify(TcpFin, 1), modify(TcpAck, 0), modify(TcpFlags, 0x12)]));

    assert_eq!(
        compile(&[out("wan"), modify(IpTtl, 9), modify(IpTtl, 9)]),
        compile(&[modify(IpTtl, 9), out("wan")])
    );
}

#[test]
fn verdicts_add_no_edits() {
    let program = compile(&[Action::Accept.into(), Action::Drop { ten_thousandths: 10_000 }.into()]);
    assert!(program.is_empty());
    assert_eq!(program, EditProgram::default());
    assert!(!compile(&[out("wan")]).is_empty());
    assert!(!compile(&[modify(FieldId::IpTtl, 0)]).is_empty());
}

#[test]
fn errors_name_the_target() {
    let error = EditProgram::compile(&[out("moon")], &port_of).unwrap_err();
    assert_eq!(error.message, "there is no interface \"moon\"");
    let refused = |target: Target| EditProgram::compile(&[target], &port_of).unwrap_err().message;
    let chain = Action::Chain { name: "web".into() };
    assert_eq!(refused(chain.into()), "the target `chain web` cannot be compiled");
    for target in [
        modify(FieldId::TcpOpt, 8),
        modify(FieldId::TcpPayload, 1),
        modify(FieldId::Ip6EhAh, 1),
        Action::Add { field: FieldId::TcpOptMss, value: None }.into(),
        Action::Add { field: FieldId::TcpSport, value: Some(Value::Int(1)) }.into(),
        Action::Add { field: FieldId::TcpOpt, value: Some(Value::Option { kind: 1, data: [].into() }) }
            .into(),
    ] {
        assert!(refused(target).ends_with("cannot be compiled"));
    }
}

#[test]
fn the_output_port_changes_for_any_packet() {
    let mut meta = Meta { out_port: 1, ..Meta::default() };
    compile(&[out("wan")]).apply(&mut [], &mut meta);
    assert_eq!(meta, Meta { out_port: 7, ..Meta::default() });
}

/// An address is not written if the checksum that covers it is beyond the head.
#[test]
fn headers_change_together_or_not_at_all() {
    let program = compile(&[modify(FieldId::IpTtl, 1), modify(FieldId::TcpWin, 1)]);
    for length in 0..40 {
        let mut head = vec![0x5a; length];
        let mut meta = Meta { l4_off: 20, kind: Kind(Kind::IP4 | Kind::TCP), ..Meta::default() };
        program.apply(&mut head, &mut meta);
        assert_eq!(head, vec![0x5a; length]);
        meta.kind = Kind(Kind::IP4);
        program.apply(&mut head, &mut meta);
        assert_eq!(head != vec![0x5a; length], length >= 20);
    }
}
