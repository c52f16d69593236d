//! Finds conflicting definitions of a container port.

use std::collections::BTreeMap;

/// A host address, which may be empty, and a host port, which may be 0.
type Host<'a> = (&'a str, i64);

/// The definitions of one container port and protocol, in order. Conflicts are found without comparing all pairs: a
/// pod has room for 75,000.
#[derive(Default)]
pub(super) struct Definitions<'a> {
    all: Vec<(String, Host<'a>)>,
    /// Indexes of those without a host port.
    without_host_port: Vec<usize>,
    by_host: BTreeMap<i64, BTreeMap<&'a str, Vec<usize>>>,
}

impl<'a> Definitions<'a> {
    pub(super) fn add(&mut self, path: String, host: Host<'a>) {
        let (address, port) = host;
        let same = match port {
            0 => &mut self.without_host_port,
            port => self.by_host.entry(port).or_default().entry(address).or_default(),
        };
        same.push(self.all.len());
        self.all.push((path, host));
    }

    /// Returns the definitions that conflict with another: the type of conflict, and their paths.
    pub(super) fn clashes(&self, host: Host<'_>) -> impl Iterator<Item = (&'static str, &str)> {
        let places = self.places(host);
        let clash = move |place: usize| {
            let (path, other) = &self.all[place];
            Some((clash(host, *other)?, path.as_str()))
        };
        places.into_iter().filter_map(clash)
    }

    fn places(&self, (address, port): Host<'_>) -> Vec<usize> {
        if port == 0 {
            return (0..self.all.len()).collect();
        }
        let mut places = self.without_host_port.clone();
        if let Some(same_port) = self.by_host.get(&port) {
            match address {
                // All of them conflict.
                "" => places.extend(same_port.values().flatten()),
                address => {
                    let near = ["", address].into_iter().filter_map(|address| same_port.get(address));
                    places.extend(near.flatten());
                }
            }
        }
        places.sort_unstable();
        places
    }
}

fn clash((address, port): Host<'_>, (other_address, other_port): Host<'_>) -> Option<&'static str> {
    if address == other_address && port == other_port {
        Some("duplicate")
    } else if port == 0 || other_port == 0 {
        Some("overlapping")
    } else if port == other_port && address.is_empty() != other_address.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_reported_in_order() {
        let hosts = [("", 0), ("1.1.1.1", 80), ("2.2.2.2", 80), ("", 80), ("", 81), ("1.1.1.1", 0)];
        for (at, host) in hosts.into_iter().enumerate() {
            let mut definitions = Definitions::default();
            hosts[..at].iter().for_each(|host| definitions.add(format!("{host:?}"), *host));
            let expected =
                hosts[..at].iter().filter_map(|other| Some((clash(host, *other)?, format!("{other:?}"))));
            let found = definitions.clashes(host).map(|(how, path)| (how, path.to_owned()));
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{host:?}");
        }
    }
}
