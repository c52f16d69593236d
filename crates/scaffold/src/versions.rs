//! Adds a version to a CRD that the author has changed: a copy of another version, in place, with everything around it
//! as it was.
//!
//! This works on the text, so that comments and layout survive. A layout that it does not recognize is left alone, and
//! the author adds the version.

/// Returns the text of a CRD with the version `new`, a copy of `from`. With `stored`, objects are stored in the new
/// version. Returns `None` if the layout is not recognized. A version that is there already is not added again.
pub(crate) fn with_version(text: &str, from: &str, new: &str, stored: bool) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let list = lines.iter().position(|line| line.trim_end() == "  versions:")? + 1;
    let end = (list..lines.len()).find(|nth| is_outside(lines[*nth])).unwrap_or(lines.len());
    let items = items(&lines, list, end);
    if items.is_empty() || items.iter().any(|item| name(&lines[item.clone()]).is_none()) {
        return None;
    }
    let named =
        |wanted: &str| items.iter().find(|item| name(&lines[(*item).clone()]) == Some(wanted)).cloned();
    let mut versions: Vec<Vec<String>> = items.iter().map(|item| owned(&lines[item.clone()])).collect();
    if named(new).is_none() {
        let copy = owned(&lines[named(from)?]).iter().map(|line| renamed(line, from, new)).collect();
        versions.push(copy);
    }
    for version in &mut versions {
        let is_new = version.iter().any(|line| name_in(line) == Some(new));
        if is_new || stored {
            set_storage(version, is_new && stored)?;
        }
    }
    let all = owned(&lines[..list]).into_iter().chain(versions.into_iter().flatten());
    let all: Vec<String> = all.chain(owned(&lines[end..])).collect();
    Some(all.join("\n") + "\n")
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Whether a line belongs to something after the list of versions.
fn is_outside(line: &str) -> bool {
    let trimmed = line.trim_start();
    let indent = line.len() - trimmed.len();
    !trimmed.is_empty() && (indent < 2 || (indent == 2 && !trimmed.starts_with(['-', '#'])))
}

/// Returns the lines of each item. Comments before an item belong to it.
fn items(lines: &[&str], start: usize, end: usize) -> Vec<std::ops::Range<usize>> {
    let first = (start..end).find(|nth| lines[*nth].trim_start().starts_with("- "));
    let Some(first) = first else { return Vec::new() };
    let indent = lines[first].len() - lines[first].trim_start().len();
    let is_item = |line: &str| {
        line.len() > indent
            && line.trim_start().starts_with("- ")
            && line.len() - line.trim_start().len() == indent
    };
    let mut starts: Vec<usize> = (first..end).filter(|nth| is_item(lines[*nth])).collect();
    starts[0] = start;
    let ends = starts.iter().skip(1).copied().chain([end]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// Returns the name of the version in these lines.
fn name<'a>(lines: &[&'a str]) -> Option<&'a str> {
    lines.iter().copied().find_map(name_in)
}

fn name_in(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    let indent = line.len() - trimmed.len();
    let content = trimmed.strip_prefix("- ").unwrap_or(trimmed);
    // Deeper lines belong to the schema.
    (indent <= 6)
        .then(|| content.strip_prefix("name:"))
        .flatten()
        .map(|name| name.trim().trim_matches(['"', '\'']))
}

fn renamed(line: &str, from: &str, new: &str) -> String {
    match name_in(line) {
        Some(_) => line.replacen(from, new, 1),
        None => line.to_owned(),
    }
}

fn set_storage(version: &mut [String], storage: bool) -> Option<()> {
    let line = version.iter_mut().find(|line| {
        let content = line.trim_start();
        line.len() - content.len() <= 6 && content.trim_start_matches("- ").starts_with("storage:")
    })?;
    let start = line.find("storage:")?;
    *line = format!("{}storage: {storage}", &line[..start]);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRD: &str = "\
spec:
  group: example.com
  # Mine.
  versions:
    # The first one.
    - name: v1
      schema:
        openAPIV3Schema:
          properties:
            name: {type: string}
            storage: {type: string}
      served: true
      storage: true
  conversion: {strategy: None}
";

    #[test]
    fn a_version_is_a_copy_and_the_rest_stays() {
        let changed = with_version(CRD, "v1", "v2", false).expect("recognized");
        assert!(changed.starts_with(
            "spec:\n  group: example.com\n  # Mine.\n  versions:\n    # The first one.\n    - name: v1\n"
        ));
        assert!(changed.ends_with("      storage: false\n  conversion: {strategy: None}\n"), "{changed}");
        assert_eq!(changed.matches("name: {type: string}").count(), 2);
        assert_eq!(changed.matches("storage: true").count(), 1);
        assert_eq!(with_version(&changed, "v1", "v2", false).as_ref(), Some(&changed), "once");
    }

    #[test]
    fn a_version_can_become_the_stored_one() {
        let changed = with_version(CRD, "v1", "v2", true).expect("recognized");
        let second = changed.find("name: v2").expect("added");
        assert!(
            changed[..second].contains("      storage: false")
                && changed[second..].contains("      storage: true"),
            "{changed}"
        );
        assert_eq!(changed.matches("storage: {type: string}").count(), 2);
    }

    #[test]
    fn other_layouts_are_left_alone() {
        assert_eq!(with_version("spec: {versions: [{name: v1}]}", "v1", "v2", false), None);
        assert_eq!(with_version(CRD, "v3", "v4", false), None);
        assert_eq!(with_version("spec:\n  versions:\n    - served: true\n", "v1", "v2", false), None);
        let compact = "spec:\n  versions:\n  - name: v1\n    served: true\n    storage: true\n";
        assert!(
            with_version(compact, "v1", "v2", false)
                .is_some_and(|text| text.ends_with("  - name: v2\n    served: true\n    storage: false\n"))
        );
    }
}
