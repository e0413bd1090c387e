//! Random commands: everything in the grammar, in the shape that the parser produces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_lang::{
    Action, Command, Comparison, Cond, Endpoint4, ErrorPolicy, FIELDS, FastPathMode, FieldDef, FieldId,
    Filtering, HeldScope, LogFormat, LogSink, Match, MatchExpr, NatForward, NatPool, NatProto, PoolAddresses,
    PortKind, ProcessMode, PuntClass, ReversePathMode, Rule, RuleKind, RuleLabel, RuleRef, SessionLimit,
    ShowSubject, SourceSpan, Subnet, Support, Target, Timeout, Value, ValueItem, ValueKind, ValueSet, Word,
    parse_line,
};
use mmb_stream::{OnMptcp, OnOverflow, OnPickup};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::chains::instance;

pub fn name() -> impl Strategy<Value = Word> {
    "[A-Za-z0-9._-]{1,15}"
        .prop_filter("a word of the language", |name| mmb_lang::parse_line(&format!("enable {name}")).is_ok())
        .prop_map(|name| Word::from(&*name))
}

fn ifname() -> impl Strategy<Value = String> {
    "[a-z][A-Za-z0-9._-]{0,14}"
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/._-]{1,20}", "[^\0]{1,10}"]
}

fn prefix(v4: bool, whole: bool) -> BoxedStrategy<Value> {
    let bits = if v4 { 32 } else { 128 };
    let len = if whole { Just(bits).boxed() } else { prop_oneof![Just(bits), 0..=bits].boxed() };
    (any::<u128>(), len)
        .prop_map(move |(address, len)| {
            let kept = if len == 0 { 0 } else { address << (128 - len) >> (128 - len) << (bits - len) };
            let addr: IpAddr = match v4 {
                true => Ipv4Addr::from_bits(kept as u32).into(),
                false => Ipv6Addr::from_bits(kept).into(),
            };
            Value::Prefix { addr, len: len as u8 }
        })
        .boxed()
}

/// A value of the field. `whole`: no subnet.
fn value(def: &'static FieldDef, whole: bool) -> BoxedStrategy<Value> {
    match def.kind {
        ValueKind::Interface => name().prop_map(Value::Iface).boxed(),
        ValueKind::Ip4 => prefix(true, whole),
        ValueKind::Ip6 => prefix(false, whole),
        ValueKind::Bytes { max } => bytes(1, max).prop_map(Value::Bytes).boxed(),
        _ => {
            let max = def.max_int();
            prop_oneof![0..=max, 0..=max.min(300), Just(max)].prop_map(Value::Int).boxed()
        }
    }
}

fn bytes(least: usize, most: u16) -> impl Strategy<Value = Box<[u8]>> {
    let most = usize::from(most).min(40);
    let text = "[ -~]{1,16}".prop_map(|text| text.into_bytes());
    prop_oneof![vec(any::<u8>(), least..=most), text].prop_map(Vec::into_boxed_slice)
}

fn order(value: &Value) -> u128 {
    match value {
        Value::Int(number) => (*number).into(),
        Value::Prefix { addr: IpAddr::V4(addr), .. } => addr.to_bits().into(),
        Value::Prefix { addr: IpAddr::V6(addr), .. } => addr.to_bits(),
        _ => 0,
    }
}

fn item(def: &'static FieldDef) -> BoxedStrategy<ValueItem> {
    let single = value(def, false).prop_map(ValueItem::Single);
    if matches!(def.kind, ValueKind::Interface | ValueKind::Bytes { .. }) {
        return single.boxed();
    }
    let range = (value(def, true), value(def, true)).prop_map(|(a, b)| {
        let ends = if order(&a) <= order(&b) { [a, b] } else { [b, a] };
        ValueItem::Range(Box::new(ends))
    });
    prop_oneof![3 => single, 1 => range].boxed()
}

fn values(def: &'static FieldDef) -> impl Strategy<Value = ValueSet> {
    let one = item(def).prop_map(ValueSet::from);
    let many = vec(item(def), 1..5).prop_filter_map("no values", ValueSet::new);
    prop_oneof![3 => one, 1 => many]
}

fn arg(def: &'static FieldDef) -> BoxedStrategy<Option<Comparison>> {
    let arg = |cond, values| Some(Comparison { cond, values, span: SourceSpan::default() });
    let equality =
        (select(&[Cond::Eq, Cond::Ne][..]), values(def)).prop_map(move |(cond, values)| arg(cond, values));
    let ordered = (select(&[Cond::Lt, Cond::Le, Cond::Gt, Cond::Ge][..]), value(def, true))
        .prop_map(move |(cond, value)| arg(cond, value.into()));
    let contains = values(def).prop_map(move |values| arg(Cond::Contains, values));
    match def.kind {
        ValueKind::Presence | ValueKind::Shorthand(_) => Just(None).boxed(),
        ValueKind::Interface | ValueKind::EtherType => equality.boxed(),
        ValueKind::Bytes { .. } => prop_oneof![Just(None), equality, contains].boxed(),
        _ => prop_oneof![1 => Just(None), 3 => equality, 1 => ordered].boxed(),
    }
}

fn one_match() -> impl Strategy<Value = Match> {
    let field = select(&FIELDS[..]).prop_flat_map(|def| {
        let def = def.id.def();
        arg(def).prop_map(|arg| MatchExpr::Field { field: def.id, arg })
    });
    (any::<bool>(), prop_oneof![1 => Just(MatchExpr::All), 20 => field]).prop_map(|(negated, what)| Match {
        negated,
        what,
        span: SourceSpan::default(),
    })
}

fn fields(wanted: fn(&FieldDef) -> bool) -> impl Strategy<Value = &'static FieldDef> {
    select(FIELDS.iter().filter(|def| wanted(def)).collect::<Vec<_>>())
}

fn is_option(def: &FieldDef) -> bool {
    def.name.starts_with("tcp-opt")
}

fn operand(def: &'static FieldDef) -> BoxedStrategy<Value> {
    if def.id == FieldId::TcpOpt {
        return (2_u8.., bytes(0, 38)).prop_map(|(kind, data)| Value::Option { kind, data }).boxed();
    }
    value(def, true)
}

fn action() -> impl Strategy<Value = Action> {
    let writable = |def: &FieldDef| !matches!(def.kind, ValueKind::Presence | ValueKind::Shorthand(_));
    let modify = fields(writable)
        .prop_flat_map(|def| operand(def).prop_map(|value| Action::Mod { field: def.id, value }));
    let add = fields(is_option).prop_flat_map(|def| {
        let value = match def.kind {
            ValueKind::Presence => Just(None).boxed(),
            ValueKind::Bytes { .. } => prop::option::of(operand(def)).boxed(),
            _ => operand(def).prop_map(Some).boxed(),
        };
        value.prop_map(|value| Action::Add { field: def.id, value })
    });
    let strip = (any::<bool>(), fields(is_option), prop::option::of(2_u8..)).prop_map(|(keep, def, kind)| {
        Action::Strip { keep, field: def.id, kind: kind.filter(|_| def.id == FieldId::TcpOpt) }
    });
    let map = fields(|def| def.kind != ValueKind::Presence)
        .prop_flat_map(|def| values(def).prop_map(|values| Action::Map { field: def.id, values }))
        .prop_filter("shorthands have no ranges", |action| {
            !matches!(action, Action::Map { field, .. } if matches!(field.def().kind, ValueKind::Shorthand(_)))
        });
    let shuffle = fields(|def| def.translate == Support::Yes).prop_flat_map(|def| {
        values(def).prop_map(|values| Action::Shuffle { field: def.id, values: Some(values) })
    });
    prop_oneof![
        4 => modify,
        2 => add,
        2 => strip,
        1 => Just(Action::StripAll),
        1 => map,
        1 => fields(|_| true).prop_map(|def| Action::Shuffle { field: def.id, values: None }),
        1 => shuffle,
        1 => name().prop_map(|pool| Action::Nat { pool }),
        1 => vec(any::<IpAddr>(), 1..4).prop_map(|addresses| Action::Lb { addresses }),
        2 => (1_u32..=10_000).prop_map(|ten_thousandths| Action::Drop { ten_thousandths }),
        1 => Just(Action::Drop { ten_thousandths: 10_000 }),
        2 => Just(Action::Accept),
        1 => Just(Action::Block),
        1 => Just(Action::Reject),
        1 => option::of("[a-z \"\\\\é]{1,12}").prop_map(|prefix| Action::Log { prefix: prefix.map(Into::into) }),
        1 => name().prop_map(|name| Action::Chain { name }),
        1 => instance().prop_map(|name| Action::Broker { name }),
    ]
}

pub fn rule() -> impl Strategy<Value = Rule> {
    let kind = select(&[RuleKind::Add, RuleKind::Stateless, RuleKind::Stateful][..]);
    let targets = vec(action().prop_map(Target::from), 1..4);
    (kind, vec(one_match(), 1..5), targets, label()).prop_map(|(kind, matches, targets, label)| Rule {
        kind,
        matches,
        targets,
        label,
        span: SourceSpan::default(),
    })
}

fn rule_name() -> impl Strategy<Value = Word> {
    let word = "[a-zA-Z][a-zA-Z0-9._-]{0,30}"
        .prop_filter("no keyword", |word| parse_line(&format!("add all drop name {word}")).is_ok());
    word.prop_map(|word| word.as_str().into())
}

fn label() -> impl Strategy<Value = Option<Box<RuleLabel>>> {
    let comment = prop_oneof![r#"[ -~]{1,40}"#, r#"["\\#é日]{1,8}"#].prop_map(String::into_boxed_str);
    let both = (option::of(rule_name()), option::of(comment));
    both.prop_map(|(name, comment)| {
        let is_empty = name.is_none() && comment.is_none();
        (!is_empty).then(|| Box::new(RuleLabel { name, comment }))
    })
}

fn port() -> impl Strategy<Value = PortKind> {
    prop_oneof![
        ifname().prop_map(|ifname| PortKind::AfXdp { ifname }),
        ifname().prop_map(|ifname| PortKind::AfPacket { ifname }),
        prop::option::of(ifname()).prop_map(|ifname| PortKind::Tap { ifname }),
        "[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f][.][0-7]".prop_map(|address| PortKind::Pci { address }),
        path().prop_map(|socket| PortKind::Memif { socket }),
        (path(), path()).prop_map(|(rx, tx)| PortKind::Pcap { rx, tx }),
        Just(PortKind::Null),
    ]
}

pub fn command() -> impl Strategy<Value = Command> {
    use ShowSubject::*;
    let show =
        select(&[Tables, Nat, Interfaces, Runtime, Drops, Fields, Chains, Functions, Version, Config][..]);
    prop_oneof![
        20 => rule().prop_map(Command::Add),
        1 => (1_u32..).prop_map(|index| Command::Del { rule: RuleRef::Index(index) }),
        1 => rule_name().prop_map(|name| Command::Del { rule: RuleRef::Name(name) }),
        1 => select(&[Command::Flush, Command::Confirm][..]),
        1 => proptest::option::of(1..u64::MAX).prop_map(|revision| Command::History { revision }),
        1 => proptest::option::of(1..u64::MAX).prop_map(|revision| Command::Rollback { revision }),
        1 => vec(name(), 1..4).prop_map(Command::Enable),
        1 => vec(name(), 1..4).prop_map(Command::Disable),
        1 => (show, any::<bool>()).prop_map(|(what, verbose)| Command::Show { what, verbose }),
        4 => (name(), port()).prop_map(|(name, kind)| Command::InterfaceAdd { name, kind }),
        1 => name().prop_map(|name| Command::InterfaceDel { name }),
        1 => (name(), name()).prop_map(|(a, b)| Command::Wire { a, b }),
        1 => name().prop_map(|a| Command::Unwire { a }),
        1 => select(&[ErrorPolicy::Forward, ErrorPolicy::Drop][..]).prop_map(Command::SetOnError),
        1 => select(&[LogFormat::Text, LogFormat::Json][..]).prop_map(Command::SetLogFormat),
        1 => select(&[LogSink::Stderr, LogSink::Syslog][..]).prop_map(Command::SetLogTo),
        1 => vec(name(), 1..4).prop_map(Command::Route),
        1 => name().prop_map(|name| Command::Unroute { name }),
        1 => prop::option::of(subnet()).prop_map(|within| Command::ShowFib { within }),
        1 => prop::option::of(subnet()).prop_map(|within| Command::ShowNeighbors { within }),
        4 => about_sessions(),
        8 => super::chains::command(),
    ]
}

fn subnet() -> impl Strategy<Value = Subnet> {
    any::<bool>().prop_flat_map(|v4| prefix(v4, false)).prop_map(|value| match value {
        Value::Prefix { addr, len } => Subnet { address: addr, len },
        _ => unreachable!("a prefix"),
    })
}

fn about_sessions() -> impl Strategy<Value = Command> {
    let filter = || vec(one_match(), 0..4);
    let seconds = 1..=Timeout::MAX_SECONDS;
    prop_oneof![
        (any::<bool>(), filter())
            .prop_map(|(verbose, matches)| Command::ShowConnections { verbose, matches }),
        filter().prop_map(|matches| Command::ClearConnections { matches }),
        filter().prop_map(|matches| Command::List { matches }),
        pool().prop_map(Command::NatPoolAdd),
        name().prop_map(|name| Command::NatPoolDel { name }),
        (proto(), socket(), socket()).prop_map(|(proto, outside, inside)| {
            Command::NatForwardAdd(NatForward { proto, outside, inside })
        }),
        (proto(), socket()).prop_map(|(proto, outside)| Command::NatForwardDel { proto, outside }),
        (select(&Timeout::ALL[..]), seconds)
            .prop_map(|(timeout, seconds)| Command::SetTimeout { timeout, seconds }),
        (select(&PuntClass::ALL[..]), option::of(1..=PuntClass::MAX_RATE))
            .prop_map(|(class, rate)| Command::SetPuntLimit { class, rate }),
        prop_oneof![
            Just(SessionLimit::Default),
            Just(SessionLimit::Off),
            (1..=SessionLimit::MAX).prop_map(SessionLimit::Sessions),
        ]
        .prop_map(Command::SetSessionLimit),
        any::<bool>().prop_map(Command::SetTcpPickup),
        any::<bool>().prop_map(Command::SetTcpWindowCheck),
        (select(&[HeldScope::Session, HeldScope::Worker][..]), 0..=HeldScope::MAX)
            .prop_map(|(scope, packets)| Command::SetHeldPackets { scope, packets }),
        select(&[OnPickup::Pass, OnPickup::Inspect, OnPickup::Reset][..]).prop_map(Command::SetStreamPickup),
        select(&[OnOverflow::Drop, OnOverflow::Pass, OnOverflow::Reset][..])
            .prop_map(Command::SetStreamOverflow),
        select(&[OnMptcp::Strip, OnMptcp::Pass][..]).prop_map(Command::SetStreamMptcp),
        (0..=mmb_stream::Policy::MOST_HOLD_TIME).prop_map(Command::SetStreamHoldTime),
        any::<bool>().prop_map(Command::SetMartianCheck),
        select(&[ReversePathMode::Off, ReversePathMode::Loose, ReversePathMode::Strict][..])
            .prop_map(Command::SetRpf),
        (option::of(select(&[ReversePathMode::Off, ReversePathMode::Strict][..])), vec(name(), 1..4))
            .prop_map(|(mode, names)| Command::SetInterfaceRpf { mode, names }),
        select(&[FastPathMode::Off, FastPathMode::Auto, FastPathMode::Xdp, FastPathMode::Tc][..])
            .prop_map(Command::SetFastPath),
        select(&ProcessMode::ALL[..]).prop_map(Command::SetWorkerMode),
        any::<bool>().prop_map(Command::SetGro),
    ]
}

fn proto() -> impl Strategy<Value = NatProto> {
    select(&[NatProto::Tcp, NatProto::Udp][..])
}

/// An address of a host.
fn host() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![0x0100_0000..0x7f00_0000_u32, 0x8000_0000..0xe000_0000_u32].prop_map(Ipv4Addr::from_bits)
}

fn socket() -> impl Strategy<Value = Endpoint4> {
    (host(), 1..=u16::MAX).prop_map(|(address, port)| Endpoint4 { address, port })
}

fn pool() -> impl Strategy<Value = NatPool> {
    let addresses = (host(), 0..NatPool::MAX_ADDRESSES).prop_map(|(first, more)| {
        // At most to the end of the /8: the addresses after it may be no host's.
        let last = first.to_bits().saturating_add(more).min(first.to_bits() | 0x00ff_ffff);
        PoolAddresses::Range([first, Ipv4Addr::from_bits(last)])
    });
    let subnet = (host(), 20..=32_u8).prop_map(|(address, length)| {
        let hosts = u32::MAX.checked_shr(length.into()).unwrap_or(0);
        PoolAddresses::Subnet { first: Ipv4Addr::from_bits(address.to_bits() & !hosts), length }
    });
    let addresses = prop_oneof![addresses, subnet, name().prop_map(PoolAddresses::Interface)];
    let some = (1..=u16::MAX, 1..=u16::MAX).prop_map(|(a, b)| [a.min(b), a.max(b)]);
    let ports = prop_oneof![Just(NatPool::PORTS), some];
    let filtering = select(
        &[Filtering::EndpointIndependent, Filtering::AddressDependent, Filtering::AddressAndPortDependent][..],
    );
    let rest = (prop::option::of(1..=u16::MAX), prop::option::of(1_u32..), filtering);
    (name(), addresses, ports, rest).prop_map(|(name, addresses, ports, (block, limit, filtering))| {
        let block = block.map(|block| block.min(ports[1] - ports[0]).max(1));
        NatPool { name, addresses, ports, block, limit, filtering }
    })
}
