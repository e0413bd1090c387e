//! The arms of brackets behind a function with outputs.

use mmb_lang::{Branch, Step};

use super::errors::{ChainError, Located, fail};
use crate::Instance;

/// Returns the arms in the order of their outputs, and for each output the index of its arm: the one that
/// names it, or `else`.
pub(crate) fn by_output<'a>(
    instance: &Instance,
    step: &'a Step,
) -> Result<(Vec<&'a Branch>, Vec<u8>), Located> {
    let outputs = &instance.properties().outputs;
    check_labels(instance, step)?;
    let name = instance.name();
    let (mut arms, mut of_output): (Vec<&Branch>, Vec<u8>) = (Vec::new(), Vec::new());
    for output in outputs {
        let named = step.arms.iter().find(|arm| arm.label.as_deref() == Some(output.as_str()));
        let Some(arm) = named.or_else(|| step.arms.iter().find(|arm| arm.is_else())) else {
            return fail(name, ChainError::OutputWithoutArm { name: name.into(), output: output.clone() });
        };
        let at = arms.iter().position(|&known| std::ptr::eq(known, arm)).unwrap_or(arms.len());
        if at == arms.len() {
            arms.push(arm);
        }
        // There are at most 64 outputs.
        of_output.push(at as u8);
    }
    if step.arms.iter().any(|arm| !arms.iter().any(|&known| std::ptr::eq(known, arm))) {
        return fail("else", ChainError::UnusedElse(name.into()));
    }
    Ok((arms, of_output))
}

fn check_labels(instance: &Instance, step: &Step) -> Result<(), Located> {
    let (name, outputs) = (instance.name(), &instance.properties().outputs);
    let listed = outputs.join(", ");
    if step.arms.is_empty() {
        let first = outputs.first().cloned().unwrap_or_default();
        return fail(name, ChainError::BracketsMissing { name: name.into(), outputs: listed, first });
    }
    for (n, arm) in step.arms.iter().enumerate() {
        let Some(label) = arm.label.as_deref() else {
            return fail(name, ChainError::LabelMissing { name: name.into(), outputs: listed });
        };
        let (name, text) = (name.to_owned(), label.to_owned());
        if !arm.is_else() && !outputs.iter().any(|output| output == label) {
            return fail(label, ChainError::UnknownOutput { name, label: text, outputs: listed });
        }
        if step.arms[..n].iter().any(|before| before.label.as_deref() == Some(label)) {
            return fail(label, ChainError::DuplicateOutput { name, label: text });
        }
    }
    Ok(())
}
