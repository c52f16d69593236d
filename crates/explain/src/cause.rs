//! Finds the root cause in a tree: the deepest problem below the worst objects.

use crate::model::{Cause, Node, State};

/// Returns the root cause. `None` if everything has converged.
pub fn find(root: &Node) -> Option<Cause> {
    if root.state == State::Converged {
        return None;
    }
    Some(deepest(root).unwrap_or_else(|| Cause {
        object: root.object.clone(),
        text: root.summary.clone(),
        fix: String::new(),
        count: 1,
    }))
}

fn deepest(node: &Node) -> Option<Cause> {
    let own = node.problem.as_ref().map(|problem| Cause {
        object: node.object.clone(),
        text: problem.text.clone(),
        fix: problem.fix.clone(),
        count: node.more + 1,
    });
    if node.problem.as_ref().is_some_and(|problem| problem.is_root) {
        return own;
    }
    // An object's own problem outweighs dependents that are merely in progress.
    let floor = if own.is_some() { Rank::Unknown } else { Rank::Progressing };
    let mut below: Vec<&Node> = node.children.iter().filter(|child| rank(child) >= floor).collect();
    below.sort_by_key(|child| std::cmp::Reverse((rank(child), child.more)));
    let found = below.into_iter().find_map(deepest);
    found.or(own)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Converged,
    Progressing,
    Unknown,
    Stuck,
}

fn rank(node: &Node) -> Rank {
    match node.state {
        State::Converged => Rank::Converged,
        State::Progressing => Rank::Progressing,
        State::Unknown => Rank::Unknown,
        State::Blocked | State::Failed => Rank::Stuck,
    }
}

/// Returns the first line of an explanation.
pub fn headline(root: &Node, cause: Option<&Cause>) -> String {
    let Some(cause) = cause else { return format!("{} has converged: {}", root.object, root.summary) };
    let others = match cause.count {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    match &*cause.fix {
        "" => format!("{}{others}: {}", cause.object, cause.text),
        fix => format!("{}{others}: {} → {fix}", cause.object, cause.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{POD, REPLICA_SET};
    use crate::model::ObjectRef;

    fn pod(name: &str) -> Node {
        Node::new(ObjectRef::new(&POD, Some("default"), name))
    }

    fn set() -> Node {
        Node::new(ObjectRef::new(&REPLICA_SET, Some("default"), "web"))
    }

    #[test]
    fn the_deepest_problem_of_the_largest_stuck_group_is_the_cause() {
        let small = pod("a").blocked("one", "");
        let large = Node { more: 3, ..pod("b").blocked("two", "") };
        let root = set().blocked("symptom", "").children([small, large, pod("c").progressing("starts")]);
        let cause = find(&root).expect("a cause");
        assert_eq!((cause.text.as_str(), cause.count), ("two", 4));
        assert_eq!(headline(&root, Some(&cause)), "Pod default/b (and 3 more): two");
    }

    #[test]
    fn an_own_problem_counts_more_than_progress_below_and_a_root_more_than_anything() {
        let root = set().blocked("own", "").children([pod("a").progressing("x").because("waits", "")]);
        assert_eq!(find(&root).expect("a cause").text, "own");
        let root = set().blocked("paused", "").root().children([pod("a").blocked("x", "")]);
        assert_eq!(find(&root).expect("a cause").text, "paused");
        assert_eq!(find(&set().converged("fine")), None);
    }
}
