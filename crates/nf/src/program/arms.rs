//! The arms of a bracket behind a function with outputs.

use mmb_lang::{Branch, Step};

use super::build::{Wrong, wrong};
use crate::Instance;

/// The arms, in the order of the outputs that they are of, and for each output which of them is its: the one that names
/// it, or `else`.
pub(crate) fn by_output<'a>(
    instance: &Instance,
    step: &'a Step,
) -> Result<(Vec<&'a Branch>, Vec<u8>), Wrong> {
    let outputs = &instance.properties().outputs;
    check_labels(instance, step)?;
    let name = instance.name();
    let (mut arms, mut of_output): (Vec<&Branch>, Vec<u8>) = (Vec::new(), Vec::new());
    for output in outputs {
        let named = step.arms.iter().find(|arm| arm.label.as_deref() == Some(output.as_str()));
        let Some(arm) = named.or_else(|| step.arms.iter().find(|arm| arm.is_else())) else {
            let message = format!(
                "the output `{output}` of `{name}` leads nowhere: add `{output}: pass` or `{output}: drop`"
            );
            return wrong(name, message);
        };
        let at = arms.iter().position(|&known| std::ptr::eq(known, arm)).unwrap_or(arms.len());
        if at == arms.len() {
            arms.push(arm);
        }
        // There are at most 64 outputs.
        of_output.push(at as u8);
    }
    if step.arms.iter().any(|arm| !arms.iter().any(|&known| std::ptr::eq(known, arm))) {
        return wrong(
            "else",
            format!("every output of `{name}` has a way of its own, so that `else:` is one too many"),
        );
    }
    Ok((arms, of_output))
}

fn check_labels(instance: &Instance, step: &Step) -> Result<(), Wrong> {
    let (name, outputs) = (instance.name(), &instance.properties().outputs);
    let listed = outputs.join(", ");
    if step.arms.is_empty() {
        let first = outputs.first().map_or("", String::as_str);
        let message = format!(
            "`{name}` has the outputs {listed}: say in brackets where they lead, as in `{name} [{first}: pass]`"
        );
        return wrong(name, message);
    }
    for (n, arm) in step.arms.iter().enumerate() {
        let Some(label) = arm.label.as_deref() else {
            let message = format!(
                "each way in the brackets behind `{name}` begins with one of its outputs ({listed}) and a colon"
            );
            return wrong(name, message);
        };
        if !arm.is_else() && !outputs.iter().any(|output| output == label) {
            return wrong(label, format!("`{name}` has no output `{label}`; it has {listed}"));
        }
        if step.arms[..n].iter().any(|before| before.label.as_deref() == Some(label)) {
            return wrong(label, format!("the output `{label}` of `{name}` leads two ways"));
        }
    }
    Ok(())
}
