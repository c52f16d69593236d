//! The cluster CIDRs, and what is allocated.

use std::collections::{BTreeMap, BTreeSet};

use crate::prefix::Prefix;

/// IPv6 CIDRs are not split into more subnets than this many bits can number: the allocation table would hold millions.
const MAX_BITS: u32 = 16;
const DEFAULT_V4: u32 = 24;
const DEFAULT_V6: u32 = 64;

/// The cluster CIDRs that node CIDRs are allocated from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRanges {
    /// One per family, with the node mask size.
    clusters: Vec<(Prefix, u32)>,
    /// The Service CIDRs.
    services: Vec<Prefix>,
}

/// The CIDR configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRanges(String);

/// The configured node mask sizes: for any family, for IPv4, for IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaskSizes {
    pub any: Option<u32>,
    pub v4: Option<u32>,
    pub v6: Option<u32>,
}

impl NodeRanges {
    /// Parses comma-separated cluster and Service CIDRs.
    pub fn new(clusters: &str, services: &str, sizes: MaskSizes) -> Result<Self, BadRanges> {
        let clusters = prefixes("--cluster-cidr", clusters)?;
        let services = prefixes("--service-cluster-ip-range", services)?;
        match &clusters[..] {
            [] => {
                return Err(bad("--cluster-cidr must be given if --allocate-node-cidrs is set"));
            }
            [_] => {}
            [one, other] if one.is_v4() != other.is_v4() => {}
            _ => return Err(bad("--cluster-cidr takes one range, or one of each IP family")),
        }
        let sizes = sizes.resolved(&clusters)?;
        let clusters: Vec<(Prefix, u32)> = clusters
            .into_iter()
            .map(|range| (range, if range.is_v4() { sizes.0 } else { sizes.1 }))
            .collect();
        for (range, size) in &clusters {
            if range.bits() > *size || *size > range.max_bits() {
                return Err(bad(
                    "--cluster-cidr: the mask of the cluster's range must not be longer than that of the nodes' \
                     (--node-cidr-mask-size)",
                ));
            }
            if !range.is_v4() && size - range.bits() > MAX_BITS {
                return Err(bad("New CIDR set failed; the node CIDR size is too big"));
            }
        }
        Ok(Self { clusters, services })
    }
}

impl MaskSizes {
    /// Returns the mask sizes for IPv4 and IPv6.
    fn resolved(self, clusters: &[Prefix]) -> Result<(u32, u32), BadRanges> {
        let dual = clusters.len() > 1;
        let only_v6 = clusters.iter().all(|range| !range.is_v4());
        match self.any {
            Some(_) if dual => {
                Err(bad("usage of --node-cidr-mask-size is not allowed with dual-stack clusters"))
            }
            Some(_) if self.v4.is_some() || self.v6.is_some() => Err(bad(
                "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if \
                 --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily specific flags",
            )),
            Some(size) => Ok((size, size)),
            None if !dual && only_v6 && self.v4.is_some() => {
                Err(bad("usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster"))
            }
            None if !dual && !only_v6 && self.v6.is_some() => {
                Err(bad("usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster"))
            }
            None => Ok((self.v4.unwrap_or(DEFAULT_V4), self.v6.unwrap_or(DEFAULT_V6))),
        }
    }
}

fn bad(why: &str) -> BadRanges {
    BadRanges(why.to_owned())
}

fn prefixes(flag: &str, text: &str) -> Result<Vec<Prefix>, BadRanges> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parse = |part: &str| {
        Prefix::parse(part).ok_or_else(|| BadRanges(format!("{flag}: invalid CIDR address: {part}")))
    };
    parts.map(parse).collect()
}

/// The allocated CIDRs.
#[derive(Debug)]
pub(super) struct Allocations {
    pools: Vec<Pool>,
    /// By node; at most one entry per existing node.
    allocated: BTreeMap<String, Vec<String>>,
}

#[derive(Debug)]
struct Pool {
    range: Prefix,
    size: u32,
    /// The numbers of allocated subnets: at most one per node, and those of Services.
    used: BTreeSet<u64>,
    next: u64,
    counters: Counters,
}

/// Counts allocations and releases of a CIDR, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) allocated: u64,
    pub(super) released: u64,
    /// For each allocation, the number of used subnets that were skipped.
    pub(super) tries: Vec<u64>,
}

/// The usage of a cluster CIDR, for metrics.
pub(super) struct RangeUsage {
    pub(super) range: String,
    pub(super) parts: u64,
    pub(super) used: u64,
    /// Changes since the last call.
    pub(super) since: Counters,
}

impl Allocations {
    pub(super) fn new(ranges: &NodeRanges) -> Self {
        let pool = |(range, size): &(Prefix, u32)| {
            let mut pool = Pool {
                range: *range,
                size: *size,
                used: BTreeSet::new(),
                next: 0,
                counters: Counters::default(),
            };
            ranges.services.iter().for_each(|service| pool.occupy(service));
            pool
        };
        Self { pools: ranges.clusters.iter().map(pool).collect(), allocated: BTreeMap::new() }
    }

    /// Records the CIDRs of a node.
    pub(super) fn occupy(&mut self, node: &str, ranges: &[String]) {
        if ranges.is_empty() {
            return;
        }
        if self.allocated.get(node).is_some_and(|allocated| allocated != ranges) {
            // Someone else allocated another CIDR. Release the one chosen for the node.
            self.release(node, &[]);
        }
        self.each(ranges, Pool::occupy);
        self.allocated.insert(node.to_owned(), ranges.to_vec());
    }

    /// Releases the CIDRs of a deleted node.
    pub(super) fn release(&mut self, node: &str, ranges: &[String]) {
        let allocated = self.allocated.remove(node).unwrap_or_default();
        self.each(&allocated, Pool::release);
        self.each(ranges, Pool::release);
    }

    fn each(&mut self, ranges: &[String], act: fn(&mut Pool, &Prefix)) {
        for (pool, range) in self.pools.iter_mut().zip(ranges) {
            if let Some(range) = Prefix::parse(range) {
                act(pool, &range);
            }
        }
    }

    /// Returns the CIDRs of a node: those already allocated, or the next free ones. `None` if there are none left.
    pub(super) fn allocate(&mut self, node: &str) -> Option<Vec<String>> {
        if let Some(allocated) = self.allocated.get(node) {
            return Some(allocated.clone());
        }
        let free: Option<Vec<u64>> = self.pools.iter().map(Pool::free).collect();
        let taken: Vec<String> =
            self.pools.iter_mut().zip(free?).map(|(pool, number)| pool.take(number).to_string()).collect();
        self.allocated.insert(node.to_owned(), taken.clone());
        Some(taken)
    }

    /// Returns the usage of each cluster CIDR, and the changes since the last call.
    pub(super) fn usage(&mut self) -> Vec<RangeUsage> {
        let of = |pool: &mut Pool| RangeUsage {
            range: pool.range.to_string(),
            parts: pool.parts(),
            used: pool.used.len() as u64,
            since: std::mem::take(&mut pool.counters),
        };
        self.pools.iter_mut().map(of).collect()
    }
}

impl Pool {
    fn parts(&self) -> u64 {
        1 << (self.size - self.range.bits())
    }

    /// Returns the numbers of the subnets that a CIDR overlaps.
    fn overlapping(&self, range: &Prefix) -> Option<std::ops::RangeInclusive<u64>> {
        if !self.range.overlaps(range) {
            return None;
        }
        if range.bits() <= self.range.bits() {
            return Some(0..=self.parts() - 1);
        }
        let first = self.range.number_of(range, self.size);
        let more = self.size.saturating_sub(range.bits());
        Some(first..=first + (1 << more) - 1)
    }

    fn occupy(&mut self, range: &Prefix) {
        for number in self.overlapping(range).into_iter().flatten() {
            self.counters.allocated += u64::from(self.used.insert(number));
        }
    }

    fn release(&mut self, range: &Prefix) {
        for number in self.overlapping(range).into_iter().flatten() {
            self.counters.released += u64::from(self.used.remove(&number));
        }
    }

    /// Returns the next free subnet after the last allocated one.
    fn free(&self) -> Option<u64> {
        let all = self.parts();
        (0..all).map(|step| (self.next + step) % all).find(|number| !self.used.contains(number))
    }

    fn take(&mut self, number: u64) -> Prefix {
        let tries = (number + self.parts() - self.next) % self.parts();
        // Read after every allocation, so this stays small.
        self.counters.tries.push(tries);
        self.counters.allocated += u64::from(self.used.insert(number));
        self.next = (number + 1) % self.parts();
        self.range.part(number, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocations(clusters: &str, services: &str, any: Option<u32>) -> Allocations {
        Allocations::new(
            &NodeRanges::new(clusters, services, MaskSizes { any, ..MaskSizes::default() }).unwrap(),
        )
    }

    #[test]
    fn nodes_get_consecutive_subnets_outside_of_service_ranges() {
        let mut allocations = allocations("10.0.0.0/22", "10.0.1.0/24", None);
        let mut assign = |node: &str| allocations.allocate(node).map(|ranges| ranges.join(","));
        assert_eq!(assign("a").as_deref(), Some("10.0.0.0/24"));
        assert_eq!(assign("a").as_deref(), Some("10.0.0.0/24"));
        assert_eq!(assign("b").as_deref(), Some("10.0.2.0/24"));
        assert_eq!(assign("c").as_deref(), Some("10.0.3.0/24"));
        assert_eq!(assign("d"), None);
        allocations.release("b", &["10.0.2.0/24".into()]);
        assert_eq!(allocations.allocate("d").unwrap(), ["10.0.2.0/24"]);
        let usage = allocations.usage().remove(0);
        assert_eq!((&*usage.range, usage.parts, usage.used), ("10.0.0.0/22", 4, 4));
        // The Service subnet is counted too, as in v1.34.
        assert_eq!(usage.since, Counters { allocated: 5, released: 1, tries: vec![0, 1, 0, 2] });
        assert_eq!(allocations.usage()[0].since, Counters::default());
    }

    #[test]
    fn existing_node_ranges_are_not_allocated_again() {
        let mut allocations = allocations("10.0.0.0/16,fd00::/56", "", None);
        allocations.occupy("a", &["10.0.0.0/24".into(), "fd00::/64".into()]);
        assert_eq!(allocations.allocate("b").unwrap(), ["10.0.1.0/24", "fd00:0:0:1::/64"]);
        // Someone else allocated another CIDR to b. The one chosen for it is free again.
        allocations.occupy("b", &["10.0.9.0/24".into(), "fd00:0:0:9::/64".into()]);
        allocations.release("b", &["10.0.9.0/24".into(), "fd00:0:0:9::/64".into()]);
        assert_eq!(allocations.usage()[0].used, 1);
    }

    #[test]
    fn an_invalid_configuration_is_rejected() {
        let check = |clusters: &str, sizes: MaskSizes, expected: &str| {
            let error = NodeRanges::new(clusters, "", sizes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let any = |size| MaskSizes { any: Some(size), ..MaskSizes::default() };
        check("", MaskSizes::default(), "--cluster-cidr must be given");
        check("nonsense", MaskSizes::default(), "--cluster-cidr: invalid CIDR address: nonsense");
        check("10.0.0.0/16,10.1.0.0/16", MaskSizes::default(), "one of each IP family");
        check("10.0.0.0/16,fd00::/48", any(24), "not allowed with dual-stack clusters");
        check("10.0.0.0/26", MaskSizes::default(), "must not be longer");
        check("fd00::/40", MaskSizes::default(), "the node CIDR size is too big");
        let v6 = MaskSizes { v6: Some(64), ..MaskSizes::default() };
        check("10.0.0.0/16", v6, "--node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster");
    }
}
