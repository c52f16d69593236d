//! Suggestions for misspelled names.

/// Returns the name closest to the one given, if it is close enough to be a misspelling.
pub(crate) fn closest(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let limit = (name.chars().count() / 3).clamp(1, 3);
    // Names are short; a long one is not worth the quadratic comparison.
    let candidates = candidates.filter(|candidate| candidate.len() < 64 && name.len() < 64).take(500);
    let scored =
        candidates.map(|candidate| (distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate));
    scored.filter(|(distance, _)| *distance <= limit).min().map(|(_, candidate)| candidate)
}

/// Returns how many letters must be inserted, deleted, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(row[j - 1] + 1).min(rows[i - 1][j] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_are_recognized() {
        let names = || ["replicas", "image", "Ports"].map(String::from).into_iter();
        assert_eq!(closest("replcas", names()).as_deref(), Some("replicas"));
        assert_eq!(closest("ports", names()).as_deref(), Some("Ports"));
        assert_eq!(closest("imgae", names()).as_deref(), Some("image"));
        assert_eq!(closest("volume", names()), None);
    }
}
