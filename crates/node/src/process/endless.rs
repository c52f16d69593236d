//! Detects endless loops from their text. Pure.
//!
//! Most programs that run until they are stopped are loops around a `sleep`, which need not be simulated.

use crate::shell::{List, Stage, Step};

/// Commands that may leave a loop.
const LEAVING: [&str; 8] = ["break", "exit", "return", "exec", "eval", ".", "source", "set"];

/// Whether a loop never ends: its condition always holds, and nothing in it leaves it. `may_leave` holds for the names of
/// functions.
pub(super) fn is_endless(
    is_until: bool,
    condition: &List,
    body: &List,
    may_leave: impl Fn(&str) -> bool,
) -> bool {
    let holds: &[&str] = if is_until { &["false"] } else { &["true", ":"] };
    let mut conditions = Vec::new();
    collect(condition, &mut conditions);
    let is_constant = matches!(&*conditions, [Some(only)] if condition.len() == 1 && holds.contains(only));
    let mut commands = Vec::new();
    collect(body, &mut commands);
    let stays = |name: &Option<&str>| name.is_some_and(|name| !LEAVING.contains(&name) && !may_leave(name));
    let has_plain_condition = condition.iter().all(|item| !item.pipeline.is_negated);
    is_constant && has_plain_condition && commands.iter().all(stays)
}

/// Collects the names of the commands of a list. `None` for those that depend on variables.
fn collect<'l>(list: &'l List, names: &mut Vec<Option<&'l str>>) {
    for stage in list.iter().flat_map(|item| &item.pipeline.stages) {
        collect_stage(stage, names);
    }
}

fn collect_stage<'l>(stage: &'l Stage, names: &mut Vec<Option<&'l str>>) {
    match &stage.step {
        Step::Command(command) => names.extend(command.words.first().map(crate::shell::Word::bare)),
        Step::If(branches, otherwise) => {
            for (condition, then) in branches {
                collect(condition, names);
                collect(then, names);
            }
            collect(otherwise, names);
        }
        Step::While { condition, body, .. } => {
            collect(condition, names);
            collect(body, names);
        }
        Step::For { body, .. } | Step::Group(body) => collect(body, names),
        // A subshell can only leave itself.
        Step::Subshell(_) => {}
        Step::Case { arms, .. } => arms.iter().for_each(|(_, list)| collect(list, names)),
        Step::Function(_, body) => collect_stage(body, names),
    }
}
