//! Differences between objects in messages: unified diffs of their lines, as v1.34 shows them.
//!
//! v1.34 finds them like Python's `difflib`: the longest run of equal lines first, then the same on both sides of it. In
//! long texts, frequent lines do not start a run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use serde_json::Value;

use crate::declared;

/// The number of unchanged lines around a change.
const CONTEXT: usize = 3;
/// From this many lines on, a line is frequent if more than one in a hundred is like it.
const LONG: usize = 200;
/// The search takes n² steps at worst: a million for this many lines. Larger objects are compared only at both ends, and
/// show that many lines.
const MAX_LINES: usize = 1_000;

/// Returns the changes from one object of a Go type to another.
pub fn difference(go_type: &str, old: &Value, new: &Value) -> String {
    unified(&declared::pretty(go_type, old), &declared::pretty(go_type, new))
}

/// Returns a unified diff without a header.
pub fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let steps = match old.len().max(new.len()) <= MAX_LINES {
        true => Matcher::new(&old, &new).steps(),
        false => ends(&old, &new),
    };
    let mut text = String::new();
    for hunk in hunks(steps) {
        write_hunk(&mut text, &hunk, &old, &new);
    }
    text
}

/// A part of the old lines and what it becomes.
#[derive(Clone)]
struct Step {
    is_equal: bool,
    old: Range<usize>,
    new: Range<usize>,
}

/// Equal lines.
#[derive(Clone, Copy)]
struct Run {
    old: usize,
    new: usize,
    length: usize,
}

struct Matcher<'a> {
    old: &'a [&'a str],
    new: &'a [&'a str],
    /// Where lines are in the new text, without frequent ones.
    places: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Matcher<'a> {
    fn new(old: &'a [&'a str], new: &'a [&'a str]) -> Self {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, line) in new.iter().enumerate() {
            places.entry(line).or_default().push(at);
        }
        if new.len() >= LONG {
            places.retain(|_, at| at.len() <= new.len() / 100 + 1);
        }
        Self { old, new, places }
    }

    fn steps(&self) -> Vec<Step> {
        let (mut steps, mut old, mut new) = (Vec::new(), 0, 0);
        let end = Run { old: self.old.len(), new: self.new.len(), length: 0 };
        for run in self.runs().into_iter().chain([end]) {
            if old < run.old || new < run.new {
                steps.push(Step { is_equal: false, old: old..run.old, new: new..run.new });
            }
            (old, new) = (run.old + run.length, run.new + run.length);
            if run.length > 0 {
                steps.push(Step { is_equal: true, old: run.old..old, new: run.new..new });
            }
        }
        steps
    }

    /// Returns the runs in order. Adjacent ones are one.
    fn runs(&self) -> Vec<Run> {
        let mut found: Vec<Run> = Vec::new();
        let mut open = vec![(0..self.old.len(), 0..self.new.len())];
        while let Some((old, new)) = open.pop() {
            let run = self.longest(&old, &new);
            if run.length == 0 || old.is_empty() || new.is_empty() {
                continue;
            }
            found.push(run);
            open.push((old.start..run.old, new.start..run.new));
            open.push((run.old + run.length..old.end, run.new + run.length..new.end));
        }
        found.sort_by_key(|run| run.old);
        let mut runs: Vec<Run> = Vec::new();
        for run in found {
            match runs.last_mut() {
                Some(last) if last.old + last.length == run.old && last.new + last.length == run.new => {
                    last.length += run.length;
                }
                _ => runs.push(run),
            }
        }
        runs
    }

    /// Returns the longest run within these lines, the first of several.
    fn longest(&self, old: &Range<usize>, new: &Range<usize>) -> Run {
        let mut best = Run { old: old.start, new: new.start, length: 0 };
        // The lengths of runs that end at the previous old line, by their end in the new lines.
        let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
        for at in old.clone() {
            let places = self.places.get(self.old[at]).into_iter().flatten();
            let mut next = BTreeMap::new();
            for &place in places.filter(|place| new.contains(place)) {
                let before = place.checked_sub(1).and_then(|place| lengths.get(&place));
                let length = before.map_or(1, |before| before + 1);
                next.insert(place, length);
                if length > best.length {
                    best = Run { old: at + 1 - length, new: place + 1 - length, length };
                }
            }
            lengths = next;
        }
        self.extended(best, old, new)
    }

    /// Extends a run by equal lines that are frequent.
    fn extended(&self, mut run: Run, old: &Range<usize>, new: &Range<usize>) -> Run {
        while run.old > old.start && run.new > new.start && self.old[run.old - 1] == self.new[run.new - 1] {
            run = Run { old: run.old - 1, new: run.new - 1, length: run.length + 1 };
        }
        let is_next_equal = |run: &Run| {
            let (old_end, new_end) = (run.old + run.length, run.new + run.length);
            old_end < old.end && new_end < new.end && self.old[old_end] == self.new[new_end]
        };
        while is_next_equal(&run) {
            run.length += 1;
        }
        run
    }
}

/// Compares the beginnings and the ends of long texts.
fn ends(old: &[&str], new: &[&str]) -> Vec<Step> {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let changed = |rest: &[&str]| head..head + (rest.len() - tail).min(MAX_LINES);
    let (old, new) = (changed(old_rest), changed(new_rest));
    let equal = Step { is_equal: true, old: 0..head, new: 0..head };
    let different = Step { is_equal: false, old, new };
    let is_different = !different.old.is_empty() || !different.new.is_empty();
    std::iter::once(equal).chain(is_different.then_some(different)).collect()
}

/// Groups changes that are close to each other, with the unchanged lines around them.
fn hunks(mut steps: Vec<Step>) -> Vec<Vec<Step>> {
    if let Some(first) = steps.first_mut().filter(|step| step.is_equal) {
        *first = last_lines(first);
    }
    if let Some(last) = steps.last_mut().filter(|step| step.is_equal) {
        *last = first_lines(last);
    }
    let (mut hunks, mut hunk) = (Vec::new(), Vec::new());
    for step in steps {
        if step.is_equal && step.old.len() > 2 * CONTEXT {
            hunk.push(first_lines(&step));
            hunks.push(std::mem::take(&mut hunk));
            hunk.push(last_lines(&step));
        } else {
            hunk.push(step);
        }
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|step| !step.is_equal));
    hunks
}

fn first_lines(step: &Step) -> Step {
    let first = |lines: &Range<usize>| lines.start..lines.end.min(lines.start + CONTEXT);
    Step { is_equal: step.is_equal, old: first(&step.old), new: first(&step.new) }
}

fn last_lines(step: &Step) -> Step {
    let last = |lines: &Range<usize>| lines.start.max(lines.end.saturating_sub(CONTEXT))..lines.end;
    Step { is_equal: step.is_equal, old: last(&step.old), new: last(&step.new) }
}

fn write_hunk(text: &mut String, hunk: &[Step], old: &[&str], new: &[&str]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
    let (from, to) = (first.old.start..last.old.end, first.new.start..last.new.end);
    _ = writeln!(text, "@@ -{} +{} @@", shown_range(&from), shown_range(&to));
    for step in hunk {
        let signs = if step.is_equal { [' ', ' '] } else { ['-', '+'] };
        let added = if step.is_equal { &[][..] } else { &new[step.new.clone()] };
        for (sign, lines) in signs.into_iter().zip([&old[step.old.clone()], added]) {
            lines.iter().for_each(|line| _ = writeln!(text, "{sign}{line}"));
        }
    }
}

/// Formats a range of lines, counted from one. An empty range is named by the line before it.
fn shown_range(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        length => format!("{},{length}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_changed_field_is_shown_with_its_neighbours() {
        let spec = |node: &str| json!({"nodeName": node, "serviceAccountName": "default"});
        assert_eq!(
            difference("PodSpec", &spec("n1"), &spec("n2")),
            "@@ -10,7 +10,7 @@\n  \"NodeSelector\": null,\n  \"ServiceAccountName\": \"default\",\n  \
             \"AutomountServiceAccountToken\": null,\n- \"NodeName\": \"n1\",\n+ \"NodeName\": \"n2\",\n  \
             \"SecurityContext\": null,\n  \"ImagePullSecrets\": null,\n  \"Hostname\": \"\",\n"
        );
    }

    #[test]
    fn changes_that_are_far_apart_have_a_hunk_each() {
        let (old, new) = ("a\nb\nc\nd\ne\nf\ng\nh\ni", "A\nb\nc\nd\ne\nf\ng\nh\ni\nj");
        assert_eq!(
            unified(old, new),
            "@@ -1,4 +1,4 @@\n-a\n+A\n b\n c\n d\n@@ -7,3 +7,4 @@\n g\n h\n i\n+j\n"
        );
        assert_eq!(unified("a\nb\nc", "a\nX\nc"), "@@ -1,3 +1,3 @@\n a\n-b\n+X\n c\n");
        assert_eq!(unified("a", "a"), "");
        assert_eq!(unified("a\nb", "b"), "@@ -1,2 +1 @@\n-a\n b\n");
    }

    #[test]
    fn the_longest_run_of_equal_lines_stays() {
        assert_eq!(unified("a\nb", "a\nc\na\nb"), "@@ -1,2 +1,4 @@\n+a\n+c\n a\n b\n");
    }

    #[test]
    fn frequent_lines_of_a_long_text_do_not_start_a_run() {
        let text = |first: &str| {
            let rest: Vec<String> = (0..100).map(|nth| format!("same\nline {nth}")).collect();
            format!("{first}\n{}", rest.join("\n"))
        };
        assert_eq!(unified(&text("x"), &text("y")), "@@ -1,4 +1,4 @@\n-x\n+y\n same\n line 0\n same\n");
    }

    #[test]
    fn huge_objects_are_compared_at_their_ends() {
        let text = |middle: &str| format!("{}{}b", "a\n".repeat(600), middle.repeat(100_000));
        let shown = unified(&text("x\n"), &text("y\n"));
        assert!(shown.starts_with("@@ -598,1003 +598,1003 @@\n a\n a\n a\n-x\n"), "{}", &shown[..60]);
        assert_eq!(shown.lines().count(), 1 + 3 + 2 * MAX_LINES);
        assert_eq!(unified(&text("x\n"), &text("x\n")), "", "equal ones have no hunk");
    }
}
