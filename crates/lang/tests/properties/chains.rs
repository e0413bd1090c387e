//! Random functions and chains.

use std::net::{IpAddr, SocketAddr};

use mmb_lang::{
    Body, Branch, BranchEnd, Broker, BrokerOption, Chain, Command, Domain, DomainKind, NfInstance, OnFailure,
    ProcessMode, ProcessPlace, Step, Word,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::rules::name;

/// Maximum depth of generated brackets.
const DEPTH: u32 = 4;

fn word(shape: &'static str) -> impl Strategy<Value = Word> + Clone {
    shape.prop_map(|text| Word::from(&*text))
}

pub fn instance() -> impl Strategy<Value = Word> + Clone {
    word("[A-Za-z0-9._-]{1,15}|nat|lb|all|tcp-syn")
        .prop_filter("a word of chains", |name| !matches!(&**name, "then" | "else" | "drop" | "pass"))
}

fn label() -> impl Strategy<Value = Word> {
    word("[A-Za-z0-9._-]{1,15}|else|drop|then|pass")
}

/// A branch without its label, around a generated body.
fn arm(body: impl Strategy<Value = Body>) -> impl Strategy<Value = (BranchEnd, Body)> {
    prop_oneof![
        1 => Just((BranchEnd::Drop, Body::default())),
        1 => Just((BranchEnd::Join, Body::default())),
        3 => body.prop_map(|body| (BranchEnd::Join, body)),
    ]
}

fn step(body: BoxedStrategy<Body>) -> impl Strategy<Value = Step> {
    let labelled = vec((label(), arm(body.clone())), 1..4).prop_map(|arms| {
        let mut kept: Vec<Branch> = Vec::new();
        for (label, (end, body)) in arms {
            if kept.iter().all(|arm| arm.label.as_ref() != Some(&label)) {
                kept.push(Branch { label: Some(label), end, body });
            }
        }
        // `else` stands last.
        kept.sort_by_key(Branch::is_else);
        kept
    });
    let by_class = (vec(arm(body.clone()), 1..3), option::of(arm(body))).prop_map(|(arms, rest)| {
        let unlabelled = arms.into_iter().map(|(end, body)| Branch { label: None, end, body });
        let rest = rest.map(|(end, body)| Branch { label: Some("else".into()), end, body });
        unlabelled.chain(rest).collect::<Vec<_>>()
    });
    prop_oneof![
        (instance(), labelled).prop_map(|(function, arms)| Step { function: Some(function), arms }),
        by_class.prop_map(|arms| Step { function: None, arms }),
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let plain = instance().prop_map(|function| Step { function: Some(function), arms: Vec::new() });
    let leaf = vec(plain.clone(), 1..4).prop_map(Body);
    leaf.prop_recursive(DEPTH, 40, 3, move |inner| {
        vec(prop_oneof![plain.clone(), step(inner.boxed())], 1..3).prop_map(Body)
    })
}

/// Arguments of functions: names, paths, any text.
fn args() -> impl Strategy<Value = Vec<Box<str>>> {
    let word = prop_oneof!["[!-~]{1,12}", "[^\0]{1,10}", "[a-z0-9.:/-]{1,12}"];
    let own = select(&["process", "event", "d", "cpu", "7"][..]).prop_map(str::to_owned);
    let word = prop_oneof![3 => word, 1 => own];
    vec(word.prop_map(|word: String| word.into_boxed_str()), 0..5)
}

fn broker() -> impl Strategy<Value = Broker> {
    let option = select(
        &[
            BrokerOption::Connections,
            BrokerOption::SourceConnections,
            BrokerOption::BodyLimit,
            BrokerOption::HeaderTimeout,
            BrokerOption::IdleTimeout,
            BrokerOption::ConnectTimeout,
            BrokerOption::ResponseTimeout,
            BrokerOption::TunnelTimeout,
        ][..],
    );
    let options = btree_map(option, 1..1000_u64, 0..4);
    let listen = (any::<IpAddr>(), 1..=u16::MAX).prop_map(|(address, port)| SocketAddr::new(address, port));
    let entrances = (option::of(listen), any::<bool>(), any::<bool>());
    (instance(), entrances, name(), options).prop_map(
        |(name, (listen, is_transparent, keeps_source), chain, options)| Broker {
            name,
            listen,
            is_transparent: is_transparent || listen.is_none(),
            keeps_source: keeps_source && (is_transparent || listen.is_none()),
            chain,
            options,
        },
    )
}

fn process() -> impl Strategy<Value = ProcessPlace> {
    let domain = prop_oneof![4 => name(), 1 => select(&["poll", "event", "cpu"][..]).prop_map(Word::from)];
    let cpu = option::of(0..=ProcessPlace::LAST_CPU);
    (domain, select(&ProcessMode::ALL[..]), cpu).prop_map(|(domain, mode, cpu)| ProcessPlace {
        domain,
        mode,
        cpu,
    })
}

pub fn command() -> impl Strategy<Value = Command> {
    let chain = || (name(), body()).prop_map(|(name, body)| Chain { name, body });
    prop_oneof![
        1 => (name(), select(&DomainKind::ALL[..]), Domain::BUFFER_RANGE, any::<bool>()).prop_map(
            |(name, kind, buffers, passes)| {
                let on_failure = if passes { OnFailure::Pass } else { OnFailure::Drop };
                Command::DomainAdd(Domain { name, kind, buffers, on_failure })
            },
        ),
        2 => (instance(), word("[A-Za-z0-9._-]{1,31}"), args(), option::of(process()))
            .prop_map(|(name, kind, args, process)| Command::NfAdd(NfInstance { name, kind, args, process })),
        1 => instance().prop_map(|name| Command::NfDel { name }),
        1 => (instance(), args()).prop_filter_map("no words", |(name, words)| {
            (!words.is_empty()).then_some(Command::NfSet { name, words })
        }),
        4 => chain().prop_map(Command::ChainAdd),
        1 => chain().prop_map(Command::ChainSet),
        1 => name().prop_map(|name| Command::ChainDel { name }),
        2 => broker().prop_map(Command::BrokerAdd),
        1 => instance().prop_map(|name| Command::BrokerDel { name }),
    ]
}
