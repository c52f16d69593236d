//! Priority and fairness metrics.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use setpoint_clock::Instant;
use setpoint_exposition::{Number, Text};
use setpoint_flow::{FlowStats, Histogram, Reason, TimingRatio};

use crate::flow::{Flow, FlowStatsMap, LevelState, PriorityAndFairness};

type Levels = BTreeMap<String, LevelState>;

pub(super) fn write(flow: &Flow, now: Instant, text: &mut Text) {
    reads_and_writes(flow, now, text);
    if let Some(fair) = flow.fair() {
        levels(fair, now, text);
    }
}

fn reads_and_writes(flow: &Flow, now: Instant, text: &mut Text) {
    let name = full("read_vs_write_current_requests");
    let help = "[ALPHA] Time by the share of the limit of reads or writes that wait or run, in nanoseconds.";
    text.head(&name, "histogram", help);
    for (phase, kind, gauge) in flow.in_flight.ratios() {
        ratio(&name, &[("phase", phase), ("request_kind", kind)], gauge, now, text);
    }
}

fn levels(fair: &PriorityAndFairness, now: Instant, text: &mut Text) {
    fair.look(|levels, stats, fair_fraction| {
        flow_gauges(stats, text);
        flow_counters(stats, text);
        flow_histograms(stats, text);
        level_gauges(levels, text);
        progress(levels, text);
        ratios(levels, now, text);
        let name = full("seat_fair_frac");
        let help = "Share of its demand that each priority level gets when seats are scarce.";
        text.head(&name, "gauge", &format!("[ALPHA] {help}"));
        text.sample(&name, &[], fair_fraction);
    });
}

fn full(name: &str) -> String {
    format!("apiserver_flowcontrol_{name}")
}

fn labels<'a>(level: &'a str, schema: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![("flow_schema", schema), ("priority_level", level)]
}

/// Whether a flow has had requests; as in v1.34, others are omitted.
fn is_used(stats: &FlowStats) -> bool {
    stats.seats.count() > 0
}

fn per_flow<V: Number>(
    all: &FlowStatsMap,
    name: &str,
    kind: &str,
    help: &str,
    text: &mut Text,
    value: impl Fn(&FlowStats) -> V,
) {
    let name = full(name);
    text.head(&name, kind, help);
    for ((level, schema), stats) in all.iter().filter(|(_, stats)| is_used(stats)) {
        text.sample(&name, &labels(level, schema), value(stats));
    }
}

fn flow_gauges(all: &FlowStatsMap, text: &mut Text) {
    let load = |gauge: &std::sync::atomic::AtomicI64| gauge.load(Ordering::Relaxed);
    let help = "[BETA] Requests that hold seats; watches only while they start.";
    per_flow(all, "current_executing_requests", "gauge", help, text, |stats| load(&stats.executing));
    let help = "[BETA] Seats that requests hold; watches only while they start.";
    per_flow(all, "current_executing_seats", "gauge", help, text, |stats| load(&stats.executing_seats));
    let help = "[BETA] Requests that wait in queues.";
    per_flow(all, "current_inqueue_requests", "gauge", help, text, |stats| load(&stats.waiting));
    let help = "[ALPHA] Seats that requests in queues wait for.";
    per_flow(all, "current_inqueue_seats", "gauge", help, text, |stats| load(&stats.waiting_seats));
}

fn flow_counters(all: &FlowStatsMap, text: &mut Text) {
    let help = "[BETA] Requests that got seats.";
    let dispatched = |stats: &FlowStats| stats.dispatched.load(Ordering::Relaxed);
    per_flow(all, "dispatched_requests_total", "counter", help, text, dispatched);
    let name = full("rejected_requests_total");
    text.head(&name, "counter", "[BETA] Requests that were rejected, by reason.");
    for ((level, schema), stats) in all {
        for reason in Reason::ALL.into_iter().filter(|reason| stats.rejected(*reason) > 0) {
            let mut labels = labels(level, schema);
            labels.push(("reason", reason.name()));
            text.sample(&name, &labels, stats.rejected(reason));
        }
    }
    let name = full("request_dispatch_no_accommodation_total");
    let help = "[ALPHA] Attempts to dispatch a request that found too few seats free.";
    text.head(&name, "counter", help);
    for ((level, schema), stats) in all {
        let count = stats.not_accommodated.load(Ordering::Relaxed);
        if count > 0 {
            text.sample(&name, &labels(level, schema), count);
        }
    }
}

fn flow_histograms(all: &FlowStatsMap, text: &mut Text) {
    let help = "[ALPHA] Seconds that requests held seats.";
    durations(all, "request_execution_seconds", help, "type", ["regular", "watch"], text, |s| &s.executed);
    let help = "[BETA] Seconds that requests waited in a queue.";
    durations(all, "request_wait_duration_seconds", help, "execute", ["false", "true"], text, |s| &s.waited);
    let help = "[ALPHA] Length of a queue after a request was added to it.";
    numbers(all, "request_queue_length_after_enqueue", help, text, |stats| &stats.queue_length);
    let help = "[ALPHA] Watchers that a mutating request is sent to.";
    numbers(all, "watch_count_samples", help, text, |stats| &stats.watchers);
    let help = "[ALPHA] Seats that requests were estimated to need.";
    numbers(all, "work_estimated_seats", help, text, |stats| &stats.seats);
}

/// Writes two histograms of nanoseconds, shown as seconds.
fn durations<const N: usize>(
    all: &FlowStatsMap,
    name: &str,
    help: &str,
    label: &'static str,
    values: [&'static str; 2],
    text: &mut Text,
    of: impl Fn(&FlowStats) -> &[Histogram<N>; 2],
) {
    let name = full(name);
    text.head(&name, "histogram", help);
    for ((level, schema), stats) in all {
        for (histogram, value) in of(stats).iter().zip(values) {
            let mut labels = labels(level, schema);
            labels.push((label, value));
            histogram_samples(&name, &labels, histogram, 1e9, text);
        }
    }
}

fn numbers<const N: usize>(
    all: &FlowStatsMap,
    name: &str,
    help: &str,
    text: &mut Text,
    of: impl Fn(&FlowStats) -> &Histogram<N>,
) {
    let name = full(name);
    text.head(&name, "histogram", help);
    for ((level, schema), stats) in all {
        histogram_samples(&name, &labels(level, schema), of(stats), 1.0, text);
    }
}

fn histogram_samples<const N: usize>(
    name: &str,
    labels: &[(&str, &str)],
    histogram: &Histogram<N>,
    scale: f64,
    text: &mut Text,
) {
    if histogram.count() > 0 {
        let buckets = histogram.cumulative().into_iter().map(|(bound, count)| (bound as f64 / scale, count));
        let sum = histogram.sum() as f64 / scale;
        text.histogram(name, labels, buckets, histogram.count(), sum);
    }
}

fn level_gauges(levels: &Levels, text: &mut Text) {
    type Value = fn(&LevelState) -> f64;
    const GAUGES: [(&str, &str, Value); 9] = [
        (
            "current_limit_seats",
            "[ALPHA] Current seats of a priority level, after lending and borrowing.",
            |level| level.adjusted.current as f64,
        ),
        (
            "demand_seats_average",
            "[ALPHA] Average demand for seats in the last adjustment period.",
            |level| level.demand.average,
        ),
        (
            "demand_seats_high_watermark",
            "[ALPHA] Highest demand for seats in the last adjustment period.",
            |level| level.demand.high_watermark as f64,
        ),
        ("demand_seats_smoothed", "[ALPHA] Demand for seats, smoothed over adjustment periods.", |level| {
            level.demand.smoothed
        }),
        (
            "demand_seats_stdev",
            "[ALPHA] Standard deviation of the demand for seats in the last adjustment period.",
            |level| level.demand.deviation,
        ),
        ("lower_limit_seats", "[ALPHA] Seats that a priority level never lends.", |level| {
            level.limits.lower as f64
        }),
        ("nominal_limit_seats", "[BETA] Seats of a priority level by its share.", |level| {
            level.limits.nominal as f64
        }),
        ("target_seats", "[ALPHA] Seats that a priority level should have.", |level| level.adjusted.target),
        (
            "upper_limit_seats",
            "[ALPHA] Maximum seats of a priority level, including borrowed ones.",
            |level| level.limits.upper as f64,
        ),
    ];
    for (name, help, value) in GAUGES {
        let name = full(name);
        text.head(&name, "gauge", help);
        for (level, state) in levels {
            text.sample(&name, &[("priority_level", level)], value(state));
        }
    }
}

/// Writes virtual times.
fn progress(levels: &Levels, text: &mut Text) {
    let name = full("current_r");
    text.head(&name, "gauge", "[ALPHA] Virtual time of a priority level at its last change.");
    for (level, state) in levels {
        text.sample(&name, &[("priority_level", level)], state.level.with(|set, _| set.r().as_f64()));
    }
    let dispatches: Vec<_> = levels
        .iter()
        .filter_map(|(level, state)| Some((level, state.level.with(|set, _| set.last_dispatch())?)))
        .collect();
    for (name, help) in [
        ("dispatch_r", "[ALPHA] Virtual time of a priority level at its last dispatch."),
        ("latest_s", "[ALPHA] Virtual start of the request that was dispatched last."),
    ] {
        let full = full(name);
        text.head(&full, "gauge", help);
        for (level, dispatch) in &dispatches {
            let value = if name == "dispatch_r" { dispatch.r } else { dispatch.latest_s };
            text.sample(&full, &[("priority_level", level)], value.as_f64());
        }
    }
    let discounted =
        "[ALPHA] Bounds over queues of the virtual start of the oldest request, less the work in progress.";
    let plain = "[ALPHA] Bounds over queues of the virtual start of the oldest request.";
    for (name, help) in [("next_discounted_s_bounds", discounted), ("next_s_bounds", plain)] {
        let full = full(name);
        text.head(&full, "gauge", help);
        for (level, dispatch) in &dispatches {
            let bounds = if name == "next_s_bounds" { dispatch.s_bounds } else { dispatch.discounted_bounds };
            for (bound, value) in [("max", bounds.1), ("min", bounds.0)] {
                text.sample(&full, &[("bound", bound), ("priority_level", level)], value.as_f64());
            }
        }
    }
    let name = full("epoch_advance_total");
    text.head(&name, "counter", "[ALPHA] Times that the virtual time of a priority level was set back.");
    for (level, state) in levels {
        let epochs = state.level.with(|set, _| set.epochs());
        if epochs > 0 {
            text.sample(&name, &[("priority_level", level), ("success", "true")], epochs);
        }
    }
}

/// Writes utilization over time: each nanosecond is an observation.
fn ratios(levels: &Levels, now: Instant, text: &mut Text) {
    let gauges: Vec<_> = levels
        .iter()
        .map(|(level, state)| (level.as_str(), state.level.with(|set, _| set.gauges())))
        .collect();
    let name = full("demand_seats");
    text.head(
        &name,
        "histogram",
        "[ALPHA] Time by the share of its nominal seats that a priority level could use, in nanoseconds.",
    );
    for (level, gauges) in &gauges {
        ratio(&name, &[("priority_level", level)], gauges.demand.clone(), now, text);
    }
    let name = full("priority_level_request_utilization");
    text.head(
        &name,
        "histogram",
        "[ALPHA] Time by the share of the limit of requests that wait or run, in nanoseconds.",
    );
    for (level, gauges) in &gauges {
        for (phase, gauge) in [("executing", &gauges.executing), ("waiting", &gauges.waiting)] {
            ratio(&name, &[("phase", phase), ("priority_level", level)], gauge.clone(), now, text);
        }
    }
    let name = full("priority_level_seat_utilization");
    text.head(&name, "histogram", "[ALPHA] Time by the share of seats in use, in nanoseconds.");
    for (level, gauges) in &gauges {
        ratio(&name, &[("phase", "executing"), ("priority_level", level)], gauges.seats.clone(), now, text);
    }
}

fn ratio(name: &str, labels: &[(&str, &str)], mut gauge: TimingRatio, now: Instant, text: &mut Text) {
    let (buckets, count, sum) = gauge.cumulative(now);
    text.histogram(name, labels, buckets, count, sum);
}
