//! Explanations as text: the cause in the first line, then the tree.

use std::fmt::Write;

use jiff::Timestamp;

use crate::model::{Evidence, Explanation, Next, Node, Source, State};
use crate::text::{clip, duration, since};

/// How much detail converged objects get.
const SHOWN_EVIDENCE: usize = 8;

/// Returns the explanation as a tree. `paint` colors a string according to a state.
pub fn tree(explanation: &Explanation, now: Timestamp, paint: impl Fn(&str, State) -> String) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", paint(&explanation.headline, explanation.state));
    let mut printer = Printer { out, now, paint: &paint };
    printer.node(&explanation.root, "", "");
    for unknown in &explanation.unknown {
        let _ = writeln!(printer.out, "\nnot readable: {}", clip(unknown));
    }
    printer.out
}

struct Printer<'a> {
    out: String,
    now: Timestamp,
    paint: &'a dyn Fn(&str, State) -> String,
}

impl Printer<'_> {
    fn node(&mut self, node: &Node, first: &str, rest: &str) {
        let mark = (self.paint)(mark(node.state), node.state);
        let more = match node.more {
            0 => String::new(),
            more => format!(" (and {more} more like this)"),
        };
        let state = (self.paint)(node.state.as_str(), node.state);
        let _ = writeln!(self.out, "{first}{mark} {}{more}  {state}: {}", node.object, node.summary);
        let bar = if node.children.is_empty() { " " } else { "│" };
        let indent = format!("{rest}{bar}   ");
        if node.state != State::Converged {
            node.evidence.iter().take(SHOWN_EVIDENCE).for_each(|evidence| self.evidence(evidence, &indent));
            if let Some(problem) = node.problem.as_ref().filter(|problem| !problem.fix.is_empty()) {
                let _ = writeln!(self.out, "{indent}fix: {}", problem.fix);
            }
            node.next.iter().for_each(|next| self.next(next, &indent));
        }
        for (nth, child) in node.children.iter().enumerate() {
            let is_last = nth + 1 == node.children.len();
            let (branch, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.node(child, &format!("{rest}{branch}"), &format!("{rest}{below}"));
        }
    }

    fn evidence(&mut self, evidence: &Evidence, indent: &str) {
        let source = match evidence.source {
            Source::Condition => "condition ",
            Source::Event => "event ",
            Source::Log => "log ",
            Source::Field | Source::Controller => "",
        };
        let when = evidence.time.map(|time| format!(" ({} ago)", since(time, self.now))).unwrap_or_default();
        let _ = writeln!(self.out, "{indent}{source}{}: {}{when}", evidence.name, evidence.value);
    }

    fn next(&mut self, next: &Next, indent: &str) {
        let when = match next.at {
            Some(at) if at > self.now => format!("in {}, ", duration(at.duration_since(self.now).as_secs())),
            Some(at) => format!("due {} ago: ", since(at, self.now)),
            None => String::new(),
        };
        let _ = writeln!(self.out, "{indent}next: {when}{}", next.what);
    }
}

fn mark(state: State) -> &'static str {
    match state {
        State::Converged => "✓",
        State::Progressing => "…",
        State::Unknown => "?",
        State::Blocked | State::Failed => "✗",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause;
    use crate::kinds::{POD, REPLICA_SET};
    use crate::model::ObjectRef;

    #[test]
    fn the_cause_comes_first_and_the_tree_below() {
        let pod = Node::new(ObjectRef::new(&POD, Some("default"), "web-1")).blocked("is stuck", "help it");
        let now: Timestamp = "2025-01-01T00:01:00Z".parse().expect("a time");
        let pod = pod.next("tries again", Some("2025-01-01T00:01:30Z".parse().expect("a time")));
        let set = Node::new(ObjectRef::new(&REPLICA_SET, Some("default"), "web"));
        let root = set.blocked("0 of 1 pods are ready", "").children([Node { more: 2, ..pod }]);
        let cause = cause::find(&root);
        let headline = cause::headline(&root, cause.as_ref());
        let explanation = Explanation {
            state: root.state,
            cause,
            headline,
            found: true,
            root,
            unknown: vec!["no permission".into()],
        };
        let expected = "\
Pod default/web-1 (and 2 more): is stuck → help it

✗ ReplicaSet default/web  blocked: 0 of 1 pods are ready
└─ ✗ Pod default/web-1 (and 2 more like this)  blocked: is stuck
       fix: help it
       next: in 30s, tries again

not readable: no permission
";
        assert_eq!(tree(&explanation, now, |text, _| text.to_owned()), expected);
    }
}
