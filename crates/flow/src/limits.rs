//! Concurrency limits: the seats of each level, based on its shares and, every few seconds, on the demand of all
//! levels.

use crate::allocation::{AllocationError, Class, allocate};
use crate::integrator::Demand;

/// How much of the smoothed demand remains after a period: a half-life of five minutes with periods of ten seconds.
const SMOOTHING: f64 = 0.977;
/// The largest share of a level's seats that one request may take.
const MAX_PART_OF_A_REQUEST: f64 = 0.15;

/// The seat settings in a level's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub nominal: u32,
    pub lendable_percent: u32,
    /// If `None`, a level may borrow all seats there are.
    pub borrowing_percent: Option<u32>,
}

/// The limits of a level according to its configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelLimits {
    pub nominal: u64,
    /// The limit when everything lendable is lent.
    pub lower: u64,
    /// The limit when it borrows as much as it may.
    pub upper: u64,
}

impl LevelLimits {
    /// Returns the limit of a new level until its demand is known: half of what it can lend is lent.
    pub fn initial(&self) -> u64 {
        self.nominal - (self.nominal - self.lower) / 2
    }
}

/// Divides the server's seats by shares. The sum is slightly higher, because limits are rounded up.
pub fn nominal_limits(server: u64, shares: &[Shares]) -> Vec<LevelLimits> {
    let sum: f64 = shares.iter().map(|one| f64::from(one.nominal)).sum();
    let limits = |one: &Shares| {
        let nominal = match sum > 0.0 {
            true => (server as f64 * f64::from(one.nominal) / sum).ceil(),
            false => 0.0,
        };
        let percent = |percent: u32| (nominal * f64::from(percent) / 100.0).round() as u64;
        let nominal_seats = nominal as u64;
        let borrowed = one.borrowing_percent.map_or(server, percent);
        LevelLimits {
            nominal: nominal_seats,
            lower: nominal_seats.saturating_sub(percent(one.lendable_percent)),
            upper: nominal_seats.saturating_add(borrowed),
        }
    };
    shares.iter().map(limits).collect()
}

/// Returns the maximum number of seats for one request of a level with queues.
pub fn max_seats(nominal: u64, hand_size: usize) -> u64 {
    let part = (nominal as f64 * MAX_PART_OF_A_REQUEST).ceil() as u64;
    part.min(nominal / hand_size.max(1) as u64).max(1)
}

/// The demand of a level over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DemandStats {
    pub average: f64,
    pub deviation: f64,
    pub high_watermark: u64,
    pub smoothed: f64,
}

impl DemandStats {
    pub fn update(&mut self, demand: &Demand) {
        self.high_watermark = demand.max.round() as u64;
        if demand.seconds <= 0.0 {
            return;
        }
        (self.average, self.deviation) = (demand.average, demand.deviation);
        let envelope = demand.average + demand.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

/// The limits of a level until the next adjustment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Adjusted {
    pub current: u64,
    pub target: f64,
}

/// A level whose limit is adjusted.
struct Bid {
    is_exempt: bool,
    limits: LevelLimits,
    /// Its minimum, as far as there are enough seats.
    at_least: u64,
    target: f64,
}

/// Moves seats between levels by demand. Each level is given by its limits, its demand, whether it is exempt, and its
/// current limit. Also returns the fair fraction.
///
/// Exempt levels get what they used. The others share the rest: first their lower limits, then what they used up to
/// their nominal limits, then the remainder in proportion to their smoothed demand.
pub fn adjust(levels: &[(LevelLimits, DemandStats, bool, u64)]) -> (Vec<Adjusted>, f64) {
    let bids: Vec<Bid> =
        levels.iter().map(|(limits, demand, exempt, _)| bid(limits, demand, *exempt)).collect();
    let sum = |value: fn(&Bid) -> u64, of_exempt: bool| -> u64 {
        bids.iter().filter(|bid| bid.is_exempt == of_exempt).map(value).sum()
    };
    let nominal: u64 = levels.iter().map(|(limits, ..)| limits.nominal).sum();
    let left = nominal.saturating_sub(sum(|bid| bid.at_least, true));
    let (lower, at_least) = (sum(|bid| bid.limits.lower, false), sum(|bid| bid.at_least, false));
    let seats = |current: &dyn Fn(&Bid) -> u64| {
        let adjusted = |bid: &Bid| Adjusted {
            current: if bid.is_exempt { bid.at_least } else { current(bid) },
            target: bid.target,
        };
        bids.iter().map(adjusted).collect()
    };
    if left <= lower {
        return (seats(&|bid| bid.limits.lower), 0.0);
    }
    if left <= at_least {
        let part = (left - lower) as f64 / (at_least - lower) as f64;
        let current =
            |bid: &Bid| bid.limits.lower + ((bid.at_least - bid.limits.lower) as f64 * part).round() as u64;
        return (seats(&current), 0.0);
    }
    match share(nominal, &bids) {
        Ok((adjusted, fair)) => (adjusted, fair),
        // There is no solution, so keep the current limits.
        Err(_) => {
            let keep = |(bid, (.., current)): (&Bid, &(LevelLimits, DemandStats, bool, u64))| Adjusted {
                current: *current,
                target: bid.target,
            };
            (bids.iter().zip(levels).map(keep).collect(), 0.0)
        }
    }
}

fn bid(limits: &LevelLimits, demand: &DemandStats, is_exempt: bool) -> Bid {
    let used = if is_exempt { demand.high_watermark } else { demand.high_watermark.min(limits.nominal) };
    let at_least = used.max(limits.lower);
    Bid { is_exempt, limits: *limits, at_least, target: demand.smoothed.max(at_least as f64) }
}

/// As in v1.34, the limited levels share the sum of all nominal limits, including those of exempt levels, which have
/// none by default.
fn share(nominal: u64, bids: &[Bid]) -> Result<(Vec<Adjusted>, f64), AllocationError> {
    let class =
        |bid: &Bid| Class { target: bid.target, lower: bid.at_least as f64, upper: bid.limits.upper as f64 };
    let classes: Vec<Class> = bids.iter().filter(|bid| !bid.is_exempt).map(class).collect();
    let (allocations, fair) = allocate(nominal, &classes)?;
    let mut allocations = allocations.into_iter();
    let adjusted = |bid: &Bid| Adjusted {
        current: match bid.is_exempt {
            true => bid.at_least,
            false => allocations.next().unwrap_or_default().round() as u64,
        },
        target: bid.target,
    };
    Ok((bids.iter().map(adjusted).collect(), fair))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(nominal: u32, lendable_percent: u32, borrowing_percent: Option<u32>) -> Shares {
        Shares { nominal, lendable_percent, borrowing_percent }
    }

    #[test]
    fn the_default_levels_have_the_limits_of_v1_34() {
        // catch-all, exempt, system, node-high, leader-election, workload-high, workload-low, global-default
        let table = [(5, 0), (0, 0), (30, 33), (40, 25), (10, 0), (40, 50), (100, 90), (20, 50)];
        let all: Vec<Shares> = table.iter().map(|(n, lendable)| shares(*n, *lendable, None)).collect();
        let limits = nominal_limits(600, &all);
        let nominal: Vec<u64> = limits.iter().map(|one| one.nominal).collect();
        assert_eq!(nominal, [13, 0, 74, 98, 25, 98, 245, 49]);
        let lower: Vec<u64> = limits.iter().map(|one| one.lower).collect();
        assert_eq!(lower, [13, 0, 50, 73, 25, 49, 24, 24]);
        assert!(limits.iter().all(|one| one.upper == one.nominal + 600));
        assert_eq!(limits[5].initial(), 74);
    }

    #[test]
    fn percentages_round_half_up() {
        let limits = nominal_limits(5, &[shares(1, 50, Some(50))]);
        assert_eq!(limits, [LevelLimits { nominal: 5, lower: 2, upper: 8 }]);
        assert_eq!(nominal_limits(5, &[shares(0, 0, None)])[0].nominal, 0);
    }

    #[test]
    fn a_request_takes_a_part_of_its_level() {
        assert_eq!([max_seats(98, 6), max_seats(245, 6), max_seats(1, 6), max_seats(0, 1)], [15, 37, 1, 1]);
    }

    #[test]
    fn an_idle_level_lends_to_a_busy_one() {
        let limits = nominal_limits(100, &[shares(50, 80, None), shares(50, 0, None)]);
        let busy = DemandStats { high_watermark: 200, smoothed: 180.0, ..DemandStats::default() };
        let levels = [(limits[0], DemandStats::default(), false, 50), (limits[1], busy, false, 50)];
        let (adjusted, fair) = adjust(&levels);
        assert_eq!([adjusted[0].current, adjusted[1].current], [10, 90]);
        assert!(fair > 0.0 && fair < 1.0);
    }

    #[test]
    fn exempt_demand_squeezes_the_others_to_their_lower_limits() {
        let limits = nominal_limits(100, &[shares(0, 0, None), shares(60, 50, None), shares(40, 50, None)]);
        let exempt = DemandStats { high_watermark: 70, ..DemandStats::default() };
        let busy = DemandStats { high_watermark: 90, smoothed: 90.0, ..DemandStats::default() };
        let level = |at: usize, demand| (limits[at], demand, at == 0, limits[at].nominal);
        let (adjusted, fair) = adjust(&[level(0, exempt), level(1, busy), level(2, busy)]);
        assert_eq!(adjusted.iter().map(|one| one.current).collect::<Vec<_>>(), [70, 30, 20]);
        assert_eq!(fair, 0.0);
        let exempt = DemandStats { high_watermark: 25, ..exempt };
        let (adjusted, _) = adjust(&[level(0, exempt), level(1, busy), level(2, busy)]);
        // 75 are left: the lower limits of 50, and half of the 50 that both want on top.
        assert_eq!(adjusted.iter().map(|one| one.current).collect::<Vec<_>>(), [25, 45, 30]);
    }

    #[test]
    fn smoothed_demand_rises_at_once_and_falls_slowly() {
        let demand = |average| Demand { seconds: 10.0, average, deviation: 0.0, max: average };
        let mut stats = DemandStats::default();
        stats.update(&demand(100.0));
        assert_eq!(stats.smoothed, 100.0);
        (0..30).for_each(|_| stats.update(&demand(0.0)));
        assert!((stats.smoothed - 50.0).abs() < 1.0, "{}", stats.smoothed);
        assert_eq!(stats.high_watermark, 0);
    }
}
