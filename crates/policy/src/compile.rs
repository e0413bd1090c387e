//! Compiles rules for a policy.

use std::fmt::Write;
use std::sync::Arc;

use mmb_classify::Pattern;
use mmb_lang::{Action, Diagnostic, Match, Rule, Target, Word};
use mmb_rewrite::EditProgram;

use crate::StatefulRule;
use crate::chain::ChainClasses;
use crate::effect::{Effect, EffectFlags};
use crate::offload::obstacle::rule_obstacle;
use crate::ports::Area;
use crate::rule_info::log::RuleLog;
use crate::rule_info::text::RuleText;
use crate::scope::{reads_out, scope};
use crate::stateful::is_open_target;

/// Room for the text of most rules, in bytes, so that it does not grow in steps.
const TYPICAL_TEXT: usize = 128;

/// Everything that a policy stores of a rule.
pub(crate) struct Compiled {
    pub pattern: Pattern,
    pub effect: Effect,
    pub edits: Option<Arc<EditProgram>>,
    pub stateful: Option<Arc<StatefulRule>>,
    pub log: Option<Arc<RuleLog>>,
    pub area: Option<Area>,
    pub text: RuleText,
    pub name: Option<Box<str>>,
    /// The named sets that the rule refers to.
    pub sets: Vec<Box<str>>,
}

pub(crate) fn compile(
    rule: &Rule,
    ifaces: &dyn Fn(&str) -> Option<u16>,
    classes: &ChainClasses<'_>,
) -> Result<Compiled, Diagnostic> {
    mmb_lang::check(rule)?;
    if broker_of(rule).is_some() {
        let mut tcp = rule.clone();
        tcp.matches.push(Match::tcp());
        return compile_checked(&tcp, rule, ifaces);
    }
    let Some((target, name)) = chain_of(rule) else { return compile_checked(rule, rule, ifaces) };
    let class = classes(name).ok_or_else(|| {
        Diagnostic::new(target.span.span(), format!("there is no chain `{name}`"))
            .with_help("`chain add` adds one; `show chains` lists all chains")
    })?;
    if class.is_empty() {
        return compile_checked(rule, rule, ifaces);
    }
    let both = restrict_to_class(rule, target, name, class)?;
    compile_checked(&both, rule, ifaces).map_err(|error| match Pattern::compile(rule, ifaces) {
        Err(own) => own,
        // The diagnostic is about the chain's words, which the rule's text does not contain.
        Ok(_) => Diagnostic { span: target.span.span(), ..error },
    })
}

/// The target that names a service chain, and the chain.
fn chain_of(rule: &Rule) -> Option<(&Target, &str)> {
    rule.targets.iter().find_map(|target| match &target.action {
        Action::Chain { name } => Some((target, &**name)),
        _ => None,
    })
}

/// The broker that a rule names.
fn broker_of(rule: &Rule) -> Option<&Word> {
    rule.targets.iter().find_map(|target| match &target.action {
        Action::Broker { name } => Some(name),
        _ => None,
    })
}

/// The name that stands for the port of a broker, where interfaces are mapped to their ports. No interface
/// can have it.
pub fn broker_port_name(broker: &str) -> String {
    format!("broker {broker}")
}

/// The port that leads to a broker.
fn broker_port(name: &Word, ifaces: &dyn Fn(&str) -> Option<u16>) -> Result<u16, Diagnostic> {
    ifaces(&broker_port_name(name)).ok_or_else(|| {
        Diagnostic::new(name.span.span(), format!("there is no transparent broker `{name}`"))
            .with_help(format!("`broker add {name} transparent chain CHAIN` adds one"))
    })
}

/// The rule with the matches of its chain's class.
fn restrict_to_class(
    rule: &Rule,
    target: &Target,
    name: &str,
    class: Vec<Match>,
) -> Result<Rule, Diagnostic> {
    let takes: Vec<String> = class.iter().map(Match::to_string).collect();
    let mut both = rule.clone();
    both.matches.extend(class);
    match mmb_lang::check_matches(&both.matches) {
        Ok(()) => Ok(both),
        Err(why) => {
            let takes = takes.join(" ");
            let message = format!("the chain `{name}` accepts only `{takes}`, and {}", why.message);
            Err(Diagnostic::new(target.span.span(), message)
                .with_help("`show chains` lists what each chain accepts"))
        }
    }
}

/// Compiles a rule that passed the checks. `written`: the rule as it was given.
fn compile_checked(
    rule: &Rule,
    written: &Rule,
    ifaces: &dyn Fn(&str) -> Option<u16>,
) -> Result<Compiled, Diagnostic> {
    let pattern = Pattern::compile(rule, ifaces)?;
    let broker = broker_of(rule).map(|name| broker_port(name, ifaces)).transpose()?;
    let stateful = rule.is_stateful().then(|| Arc::new(StatefulRule::of(rule, broker)));
    let program = match &stateful {
        Some(stateful) if *stateful.as_ref() != StatefulRule::default() => {
            let others: Vec<Target> =
                rule.targets.iter().filter(|target| !is_open_target(target)).cloned().collect();
            EditProgram::compile(&others, ifaces)?
        }
        _ => EditProgram::compile(&rule.targets, ifaces)?,
    };
    let mut effect = Effect { scope: scope(rule), ..Effect::default() };
    let mut mark = |flag, on| effect.flags.set(flag, on);
    mark(EffectFlags::EDITS, !program.is_empty());
    mark(EffectFlags::STATEFUL, stateful.is_some());
    mark(EffectFlags::BINDS, stateful.as_ref().is_some_and(|stateful| !stateful.bindings.is_empty()));
    mark(EffectFlags::CHAIN, stateful.as_ref().is_some_and(|stateful| stateful.chain.is_some()));
    mark(EffectFlags::READS_OUT, reads_out(rule));
    mark(EffectFlags::NOT_OFFLOADABLE, rule_obstacle(rule).is_some());
    let has = |action| rule.targets.iter().any(|target| target.action == action);
    mark(EffectFlags::ACCEPT, has(Action::Accept));
    mark(EffectFlags::BLOCK, has(Action::Block));
    for target in &rule.targets {
        match target.action {
            Action::Drop { ten_thousandths } => effect.drop = ten_thousandths.min(10_000) as u16,
            Action::Block => effect.drop = 10_000,
            Action::Reject => effect.drop = Effect::REJECT,
            _ => {}
        }
    }
    let edits = effect.edits().then(|| Arc::new(program));
    let mut text = String::with_capacity(TYPICAL_TEXT);
    // Writing to a string does not fail.
    let _ = write!(text, "{written}");
    let body = if written.label.is_some() { written.body().to_string().len() } else { text.len() };
    Ok(Compiled {
        pattern,
        effect,
        edits,
        stateful,
        log: RuleLog::of(written).map(Arc::new),
        area: Area::of(rule, ifaces),
        text: RuleText::new(text.into(), body),
        name: written.name().map(|name| name.text.clone()),
        sets: crate::sets::names(&rule.matches),
    })
}
