//! `/debug/api_priority_and_fairness`: the state of the levels, as tables.

use std::fmt::Write;
use std::time::Duration;

use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use setpoint_clock::Instant;
use setpoint_flow::RequestDump;

use super::PriorityAndFairness;
use super::config::Label;
use super::objects::Distinguisher;
use crate::body::Body;
use crate::health;
use crate::query::Query;
use crate::request::Target;
use crate::server::Server;

type Rows = Vec<Vec<String>>;

/// Returns the table with this name, if it exists.
pub(crate) fn respond(server: &Server, name: &str, query: &Query<'_>) -> Option<Response<Body>> {
    let fair = server.flow.as_ref()?.fair()?;
    let rows = match name {
        "dump_priority_levels" => levels(fair),
        "dump_queues" => queues(fair),
        "dump_requests" => {
            requests(fair, server, query.get("includeRequestDetails").is_some_and(|value| !value.is_empty()))
        }
        _ => return None,
    };
    Some(health::text(StatusCode::OK, table(&rows)))
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(Into::into).to_vec()
}

fn levels(fair: &PriorityAndFairness) -> Rows {
    let mut rows = vec![row([
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ])];
    fair.look(|levels, _, _| {
        for (name, state) in levels {
            let (queues, totals, is_idle) =
                state.level.with(|set, _| (set.dump_queues(), set.totals(), set.is_idle()));
            let active = queues.iter().filter(|queue| queue.waiting > 0).count();
            let mut cells =
                vec![name.clone(), active.to_string(), is_idle.to_string(), state.is_quiescing.to_string()];
            let counts =
                [totals.waiting, totals.executing, totals.dispatched, totals.rejected, 0, totals.cancelled];
            cells.extend(counts.map(|count| count.to_string()));
            rows.push(cells);
        }
    });
    rows
}

fn queues(fair: &PriorityAndFairness) -> Rows {
    let mut rows = vec![row([
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ])];
    fair.look(|levels, _, _| {
        for (name, state) in levels {
            let queues = state.level.with(|set, _| set.dump_queues());
            rows.extend(queues.into_iter().enumerate().map(|(index, queue)| {
                vec![
                    name.clone(),
                    index.to_string(),
                    queue.waiting.to_string(),
                    queue.executing.to_string(),
                    queue.seats_in_use.to_string(),
                    queue.next_r,
                    queue.initial_seats.to_string(),
                    queue.max_seats.to_string(),
                    queue.work,
                ]
            }));
        }
    });
    rows
}

fn requests(fair: &PriorityAndFairness, server: &Server, with_details: bool) -> Rows {
    let mut head = row([
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ]);
    if with_details {
        let details =
            ["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"];
        head.extend(row(details));
    }
    let mut rows = vec![head];
    let clock = WallClock { instant: server.clock.instant(), time: server.now() };
    fair.look(|levels, _, _| {
        for (name, state) in levels {
            let requests = state.level.with(|set, _| set.dump_requests());
            rows.extend(requests.iter().map(|request| request_row(name, request, &clock, with_details)));
        }
    });
    rows
}

fn request_row(
    level: &str,
    request: &RequestDump<Label>,
    clock: &WallClock,
    with_details: bool,
) -> Vec<String> {
    let label = &request.label;
    let index = |at: Option<usize>| at.map_or("-1".into(), |at| at.to_string());
    let query = Query::parse(label.uri.query().unwrap_or(""));
    let target = Target::parse(&label.method, label.uri.path(), &query).ok();
    let resource = target.and_then(|target| target.resource);
    let namespace = resource.as_ref().and_then(|target| target.namespace.clone()).unwrap_or_default();
    let mut cells = vec![
        level.to_owned(),
        label.schema.to_string(),
        index(request.queue),
        index(request.place),
        match label.distinguisher {
            None => String::new(),
            Some(Distinguisher::ByUser) => label.user.clone(),
            Some(Distinguisher::ByNamespace) => namespace.clone(),
        },
        clock.at(Some(request.arrived)),
        request.work.initial_seats.to_string(),
        request.work.final_seats.to_string(),
        go_duration(request.work.additional_latency),
        clock.at(request.started),
    ];
    if with_details {
        let verb = resource.as_ref().and_then(|target| target.verb).map(crate::kind::Verb::name);
        let verb = verb.map_or_else(|| label.method.as_str().to_lowercase(), Into::into);
        let resource = resource.unwrap_or_default();
        let version = match resource.group.as_str() {
            "" => resource.version,
            group => format!("{group}/{}", resource.version),
        };
        cells.extend([
            label.user.clone(),
            verb,
            label.uri.path().to_owned(),
            namespace,
            resource.name.unwrap_or_default(),
            version,
            resource.resource,
            resource.subresource.unwrap_or_default(),
        ]);
    }
    cells
}

/// Converts instants to wall-clock times.
struct WallClock {
    instant: Instant,
    time: Timestamp,
}

impl WallClock {
    fn at(&self, instant: Option<Instant>) -> String {
        let Some(instant) = instant else { return "0001-01-01T00:00:00Z".into() };
        let ago = self.instant.saturating_duration_since(instant);
        let ago = SignedDuration::try_from(ago).unwrap_or_default();
        self.time.checked_sub(ago).unwrap_or(self.time).to_string()
    }
}

/// Formats a duration like Go, with seconds as the largest unit; request latencies are a fraction of one.
fn go_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let in_unit = |unit: u128, name: &str| format!("{}{name}", nanoseconds as f64 / unit as f64);
    match nanoseconds {
        0 => "0s".into(),
        1..1_000 => in_unit(1, "ns"),
        1_000..1_000_000 => in_unit(1_000, "µs"),
        1_000_000..1_000_000_000 => in_unit(1_000_000, "ms"),
        _ => in_unit(1_000_000_000, "s"),
    }
}

/// Aligns cells in columns like v1.34's tab writer: at least eight wide, one space apart.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let longest = rows.iter().map(|row| row[column].chars().count() + 2).max();
        longest.unwrap_or(0).max(8)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            // Control characters in a user name must not break lines.
            let cell: String = cell.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
            match column + 1 == columns {
                true => _ = writeln!(text, "{cell}"),
                false => _ = write!(text, "{:width$}", cell + ",", width = widths[column]),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [row(["Name", "B", "C"]), row(["a-long-name", "1", "2"])];
        assert_eq!(table(&rows), "Name,        B,      C\na-long-name, 1,      2\n");
    }

    #[test]
    fn durations_are_written_as_go_does() {
        let written = [0, 5_000_000, 16_666_666, 1_500, 2_000_000_000]
            .map(|nanoseconds| go_duration(Duration::from_nanos(nanoseconds)));
        assert_eq!(written, ["0s", "5ms", "16.666666ms", "1.5µs", "2s"]);
    }
}
