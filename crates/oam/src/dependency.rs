//! Sorts items that depend on each other by name.

use std::collections::BTreeMap;

/// The sorted items: each comes after its dependencies.
#[derive(Debug)]
pub(crate) struct Ordered<'a, T> {
    /// The items that can be sorted. Otherwise in the given order.
    pub(crate) sorted: Vec<&'a T>,
    /// The items that depend on themselves, or on items that do.
    pub(crate) cyclic: Vec<&'a T>,
}

impl<'a, T> Ordered<'a, T> {
    /// Returns one of the items in a cycle.
    pub(crate) fn cycle(
        &self,
        name: impl Fn(&'a T) -> &'a str,
        needs: impl Fn(&'a T) -> &'a [String],
    ) -> Option<&'a T> {
        let cyclic: BTreeMap<&str, &'a T> =
            self.cyclic.iter().copied().map(|thing| (name(thing), thing)).collect();
        let next = |thing: &'a T| needs(thing).iter().find_map(|need| cyclic.get(need.as_str()).copied());
        // Everything here has such a dependency, so after as many steps the walk goes round in a cycle.
        (0..self.cyclic.len()).try_fold(*self.cyclic.first()?, |thing, _| next(thing))
    }
}

/// Sorts items. Unknown names are ignored. Takes time proportional to the number of items and dependencies.
pub(crate) fn ordered<'a, T>(
    things: &'a [T],
    name: impl Fn(&'a T) -> &'a str,
    needs: impl Fn(&'a T) -> &'a [String],
) -> Ordered<'a, T> {
    let index: BTreeMap<&str, usize> =
        things.iter().enumerate().map(|(index, thing)| (name(thing), index)).collect();
    let mut missing = vec![0_usize; things.len()];
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); things.len()];
    for (at, thing) in things.iter().enumerate() {
        for on in needs(thing).iter().filter_map(|need| index.get(need.as_str())) {
            missing[at] += 1;
            dependents[*on].push(at);
        }
    }
    let mut sorted = Vec::with_capacity(things.len());
    let mut layer: Vec<usize> = (0..things.len()).filter(|at| missing[*at] == 0).collect();
    while !layer.is_empty() {
        let mut next = Vec::new();
        for at in layer {
            sorted.push(&things[at]);
            for dependent in &dependents[at] {
                missing[*dependent] -= 1;
                if missing[*dependent] == 0 {
                    next.push(*dependent);
                }
            }
        }
        next.sort_unstable();
        layer = next;
    }
    let cyclic = (0..things.len()).filter(|at| missing[*at] > 0).map(|at| &things[at]).collect();
    Ordered { sorted, cyclic }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Thing = (String, Vec<String>);

    fn thing(name: &str, needs: &[&str]) -> Thing {
        (name.to_owned(), needs.iter().map(|need| (*need).to_owned()).collect())
    }

    fn check(things: &[Thing], sorted: &[&str], cyclic: &[&str]) {
        let found = ordered(things, |thing| &thing.0, |thing| &thing.1);
        let names = |all: &[&Thing]| all.iter().map(|thing| thing.0.clone()).collect::<Vec<_>>();
        assert_eq!((names(&found.sorted), names(&found.cyclic)), (own(sorted), own(cyclic)));
    }

    fn own(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_comes_after_what_it_depends_on() {
        check(&[thing("a", &["b", "c"]), thing("b", &["c", "x"]), thing("c", &[])], &["c", "b", "a"], &[]);
        check(
            &[thing("a", &["b"]), thing("b", &["a"]), thing("c", &["a"]), thing("d", &[])],
            &["d"],
            &["a", "b", "c"],
        );
        check(&[thing("a", &["a"])], &[], &["a"]);
    }

    #[test]
    fn a_cycle_is_named_by_one_of_its_members() {
        let things = [thing("behind", &["a"]), thing("a", &["b"]), thing("b", &["a"])];
        let found = ordered(&things, |thing| &thing.0, |thing| &thing.1);
        let member = found.cycle(|thing| &thing.0, |thing| &thing.1).map(|thing| thing.0.as_str());
        assert!(matches!(member, Some("a" | "b")), "{member:?}");
    }

    #[test]
    fn a_long_chain_takes_no_time() {
        let chain: Vec<Thing> = (0..100_000).map(|n| (n.to_string(), vec![(n + 1).to_string()])).collect();
        assert_eq!(ordered(&chain, |thing| &thing.0, |thing| &thing.1).sorted.len(), chain.len());
    }
}
