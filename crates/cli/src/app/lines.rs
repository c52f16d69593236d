//! Differences between two texts, line by line.

/// Above this many pairs of lines, the whole text counts as changed: 4 million take 16 MB and a few milliseconds.
const MAX_PAIRS: usize = 4_000_000;
/// Lines around a difference.
const CONTEXT: usize = 3;

/// Returns a unified diff without headers. Empty if the texts are equal.
pub(crate) fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    if old == new {
        return String::new();
    }
    let edits = edits(&old, &new);
    let is_near = |at: usize| {
        let (from, to) = (at.saturating_sub(CONTEXT), (at + CONTEXT + 1).min(edits.len()));
        edits[from..to].iter().any(|(sign, _)| *sign != ' ')
    };
    let (mut out, mut gap) = (String::new(), true);
    for (at, (sign, line)) in edits.iter().enumerate() {
        if !is_near(at) {
            gap = true;
            continue;
        }
        if std::mem::take(&mut gap) && at > 0 {
            out.push_str("...\n");
        }
        out.push(*sign);
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Returns the lines of both texts in order, each with its sign, with as few changes as possible.
fn edits<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    if old.len().saturating_mul(new.len()) > MAX_PAIRS {
        return old.iter().map(|line| ('-', *line)).chain(new.iter().map(|line| ('+', *line))).collect();
    }
    let width = new.len() + 1;
    // The number of common lines from each pair of places on.
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = match old[i] == new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut edits) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j >= new.len()
            || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            edits.push(('-', old[i]));
            i += 1;
        } else {
            edits.push(('+', new[j]));
            j += 1;
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_and_its_surroundings_are_shown() {
        assert_eq!(unified("a\nb\n", "a\nb\n"), "");
        assert_eq!(unified("a\nb\nc", "a\nx\nc"), " a\n-b\n+x\n c\n");
        assert_eq!(unified("", "a"), "+a\n");
        let old: String = (0..20).map(|n| format!("{n}\n")).collect();
        let shown = unified(&old, &old.replace("10\n", "ten\n"));
        assert_eq!(shown, "...\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n");
    }
}
