//! The health of each zone, and its eviction rate. Pure.
//!
//! ```text
//!  Normal            less than 55% of the nodes, or at most two, are unready   one node per 10 s
//!  Partial           more than that: possibly the network, not the nodes       one per 100 s; none in a
//!                                                                              zone of up to 50 nodes
//!  Full              no node of the zone is ready                              one per 10 s
//!  Full, everywhere  no node is ready: the controller is probably cut off      none
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use setpoint::Instant;

use super::config::NodeLifecycle;

/// A zone with at most this many unready nodes is normal.
const ALWAYS_NORMAL: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneState {
    Normal,
    Partial,
    Full,
}

/// The number of ready and unready nodes in a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) ready: usize,
    pub(super) not_ready: usize,
}

/// A change that affects all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutageChange {
    None,
    /// No node is ready any more: eviction taints are removed.
    Started,
    /// Some node is ready again: grace periods restart.
    Ended,
}

/// All zones. One entry per zone, with one entry per node that waits to be tainted.
#[derive(Debug, Default)]
pub(super) struct Zones {
    config: NodeLifecycle,
    zones: BTreeMap<String, Zone>,
    /// Whether no node is ready anywhere.
    full_outage: bool,
}

#[derive(Debug, Default)]
struct Zone {
    state: Option<ZoneState>,
    /// The interval between nodes. `None` means that none is tainted.
    interval: Option<Duration>,
    /// When the next node may be tainted.
    next: Option<Instant>,
    /// Waiting nodes, in order.
    queued: BTreeSet<Box<str>>,
}

impl Census {
    pub(super) fn count(&mut self, ready: bool) {
        *if ready { &mut self.ready } else { &mut self.not_ready } += 1;
    }

    fn size(self) -> usize {
        self.ready + self.not_ready
    }

    fn state(self, threshold: f64) -> ZoneState {
        let unhealthy = self.not_ready as f64 / self.size() as f64 >= threshold;
        match self {
            Self { ready: 0, not_ready: 1.. } => ZoneState::Full,
            Self { not_ready, .. } if not_ready > ALWAYS_NORMAL && unhealthy => ZoneState::Partial,
            _ => ZoneState::Normal,
        }
    }
}

impl Zones {
    pub(super) fn new(config: NodeLifecycle) -> Self {
        Self { config, ..Self::default() }
    }

    /// Applies a census of all zones.
    pub(super) fn assess(&mut self, census: &BTreeMap<String, Census>, now: Instant) -> OutageChange {
        self.zones.retain(|name, zone| census.contains_key(name) || !zone.queued.is_empty());
        for name in census.keys() {
            self.zone(name);
        }
        let full_outage = !census.is_empty()
            && census.values().all(|census| census.state(self.config.unhealthy_zone) == ZoneState::Full);
        if full_outage && self.full_outage {
            return OutageChange::None;
        }
        if full_outage {
            self.full_outage = true;
            for zone in self.zones.values_mut() {
                zone.state = Some(ZoneState::Full);
                zone.interval = None;
                zone.queued.clear();
            }
            return OutageChange::Started;
        }
        let change =
            if std::mem::take(&mut self.full_outage) { OutageChange::Ended } else { OutageChange::None };
        for (name, census) in census {
            let state = census.state(self.config.unhealthy_zone);
            let interval = self.interval(state, census.size());
            let zone = self.zone(name);
            if zone.state != Some(state) || change == OutageChange::Ended {
                zone.enter(state, interval, now);
            }
        }
        change
    }

    /// Adds a node to be tainted when its zone allows it.
    pub(super) fn enqueue(&mut self, zone: &str, node: &str) {
        if !self.full_outage {
            self.zone(zone).queued.insert(node.into());
        }
    }

    /// Removes a node that need not be tainted any more.
    pub(super) fn dequeue(&mut self, zone: &str, node: &str) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.queued.remove(node);
        }
    }

    /// Returns the next node to taint in a zone, if it is due.
    pub(super) fn due(&self, zone: &str, now: Instant) -> Option<Box<str>> {
        let zone = self.zones.get(zone).filter(|zone| zone.interval.is_some())?;
        zone.queued.first().filter(|_| zone.next.is_none_or(|next| next <= now)).cloned()
    }

    /// Records that a node was tainted.
    pub(super) fn mark_tainted(&mut self, zone: &str, node: &str, now: Instant) {
        let zone = self.zone(zone);
        zone.queued.remove(node);
        zone.next = zone.interval.map(|interval| now + interval);
    }

    /// Returns how long until the next node of a zone may be tainted, if one waits.
    pub(super) fn next(&self, zone: &str, now: Instant) -> Option<Duration> {
        let zone = self.zones.get(zone).filter(|zone| !zone.queued.is_empty() && zone.interval.is_some())?;
        Some(zone.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now)))
    }

    fn zone(&mut self, name: &str) -> &mut Zone {
        let interval = NodeLifecycle::interval(self.config.eviction_rate);
        self.zones.entry(name.to_owned()).or_insert_with(|| Zone { interval, ..Zone::default() })
    }

    /// Returns the interval between nodes in a zone of this state and size.
    fn interval(&self, state: ZoneState, size: usize) -> Option<Duration> {
        match state {
            ZoneState::Normal | ZoneState::Full => NodeLifecycle::interval(self.config.eviction_rate),
            ZoneState::Partial if size > self.config.large_cluster => {
                NodeLifecycle::interval(self.config.secondary_eviction_rate)
            }
            ZoneState::Partial => None,
        }
    }
}

impl Zone {
    fn enter(&mut self, state: ZoneState, interval: Option<Duration>, now: Instant) {
        // If a wait is in progress, restart it with the new interval.
        if self.interval != interval && self.next.is_some_and(|next| next > now) {
            self.next = interval.map(|interval| now + interval);
        }
        self.interval = interval;
        self.state = Some(state);
    }
}
