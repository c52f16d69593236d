//! Load models: many clients of several flows, in virtual time.

use std::collections::BTreeSet;

use proptest::prelude::*;
use setpoint_clock::Clock;

use super::*;

/// The clients of one flow. Each sends its next request when the previous one is answered.
#[derive(Clone, Copy)]
struct Clients {
    count: usize,
    service: Duration,
    work: Work,
}

impl Clients {
    fn new(count: usize, service_millis: u64) -> Self {
        Self { count, service: Duration::from_millis(service_millis), work: Work::ONE_SEAT }
    }
}

struct World {
    set: QueueSet<usize>,
    flows: Vec<Arc<FlowStats>>,
    clients: Vec<Clients>,
    hashes: Vec<u64>,
    now: Instant,
    ends: BTreeSet<(Instant, RequestId)>,
    /// The seat-time each flow got.
    served: Vec<Duration>,
    longest_wait: Vec<Duration>,
    rejected: Vec<u64>,
}

impl World {
    fn new(queuing: Queuing, limit: u64, clients: &[Clients]) -> Self {
        let now = Clock::system().instant();
        let mut world = Self {
            set: QueueSet::new(now, queuing, limit).unwrap(),
            flows: clients.iter().map(|_| Arc::default()).collect(),
            clients: clients.to_vec(),
            hashes: (0..clients.len() as u64)
                .map(|flow| (1 + flow).wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .collect(),
            now,
            ends: BTreeSet::new(),
            served: vec![Duration::ZERO; clients.len()],
            longest_wait: vec![Duration::ZERO; clients.len()],
            rejected: vec![0; clients.len()],
        };
        for (flow, clients) in clients.iter().enumerate() {
            (0..clients.count).for_each(|_| world.send(flow));
        }
        world
    }

    fn send(&mut self, flow: usize) {
        let (work, hash) = (self.clients[flow].work, self.hashes[flow]);
        match self.set.start(self.now, work, hash, &self.flows[flow], flow) {
            Start::Executing(id) => self.run(id),
            Start::Waiting(_) => {}
            Start::Rejected(_) => self.rejected[flow] += 1,
        }
        self.run_dispatched();
    }

    fn run(&mut self, id: RequestId) {
        let request = &self.set.requests[&id];
        let flow = request.label;
        let waited = self.now - request.arrived;
        self.longest_wait[flow] = self.longest_wait[flow].max(waited);
        self.served[flow] += self.clients[flow].service * request.work.initial_seats as u32;
        self.ends.insert((self.now + self.clients[flow].service, id));
    }

    fn run_dispatched(&mut self) {
        for id in self.set.take_dispatched() {
            self.run(id);
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let finishing = self.ends.first().copied().filter(|(at, _)| *at <= end);
            let due = self.set.next_release().filter(|due| *due <= end);
            match (finishing, due) {
                (Some((at, id)), due) if due.is_none_or(|due| at <= due) => self.finish(at, id),
                (_, Some(due)) => {
                    self.now = due;
                    self.set.advance(due);
                    self.run_dispatched();
                }
                (_, None) => return,
            }
            self.check();
        }
    }

    fn finish(&mut self, at: Instant, id: RequestId) {
        self.ends.remove(&(at, id));
        self.now = at;
        let flow = self.set.requests[&id].label;
        self.set.finish(at, id);
        self.run_dispatched();
        self.send(flow);
    }

    /// Checks that the totals match the parts.
    fn check(&self) {
        check(&self.set);
    }
}

fn check<T>(set: &QueueSet<T>) {
    let waiting: Vec<_> = set.requests.values().filter(|request| request.started.is_none()).collect();
    let running: Vec<_> = set.requests.values().filter(|request| request.started.is_some()).collect();
    let seats = |requests: &[&Request<T>]| requests.iter().map(|one| one.work.max_seats()).sum::<u64>();
    let lingering: u64 = set.lingering.values().map(|one| one.seats).sum();
    assert_eq!(set.totals.waiting, waiting.len() as u64);
    assert_eq!(set.totals.executing, running.len() as u64);
    assert_eq!(set.totals.seats_waiting, seats(&waiting));
    assert_eq!(set.totals.seats_in_use, seats(&running) + lingering);
    assert_eq!(set.queues.iter().map(|queue| queue.waiting() as u64).sum::<u64>(), set.totals.waiting);
    let in_queues: u64 = set.queues.iter().map(|queue| queue.seats_in_use + queue.max_seats).sum();
    assert_eq!(set.queue_seats, in_queues);
    assert_eq!(set.active_queues, set.queues.iter().filter(|queue| !queue.is_idle()).count() as u64);
    for (at, queue) in set.queues.iter().enumerate() {
        for id in queue.requests() {
            assert_eq!(set.requests[id].queue, Some(at));
        }
    }
}

const QUEUES: Queuing = Queuing::Queue { queues: 16, hand_size: 4, length_limit: 50 };

fn share(world: &World, flow: usize) -> f64 {
    let total: Duration = world.served.iter().sum();
    world.served[flow].as_secs_f64() / total.as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_flow_with_few_clients_gets_its_share_beside_one_with_many() {
    let mut world = World::new(QUEUES, 4, &[Clients::new(100, 10), Clients::new(4, 10)]);
    world.run_for(Duration::from_secs(20));
    // The small flow requests four seats and shares some queues with the other one. Without fairness, it would get 4 of
    // 104.
    assert!(share(&world, 1) > 0.3, "{}", share(&world, 1));
    assert!(world.longest_wait[1] < Duration::from_millis(100), "{:?}", world.longest_wait);
}

#[tokio::test(start_paused = true)]
async fn flows_with_slow_requests_get_no_more_seats_than_those_with_fast_ones() {
    let one_card = Queuing::Queue { queues: 64, hand_size: 1, length_limit: 50 };
    let mut world = World::new(one_card, 6, &[Clients::new(20, 100), Clients::new(20, 5)]);
    world.run_for(Duration::from_secs(40));
    assert!((share(&world, 0) - 0.5).abs() < 0.05, "{}", share(&world, 0));
}

#[tokio::test(start_paused = true)]
async fn wide_requests_count_by_their_seats() {
    let one_card = Queuing::Queue { queues: 64, hand_size: 1, length_limit: 50 };
    let wide = Clients { work: Work::seats(4), ..Clients::new(20, 10) };
    let mut world = World::new(one_card, 8, &[wide, Clients::new(20, 10)]);
    world.run_for(Duration::from_secs(20));
    assert!((share(&world, 0) - 0.5).abs() < 0.1, "{}", share(&world, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_wider_than_its_level_is_not_starved() {
    let wide = Clients { work: Work::seats(9), ..Clients::new(1, 10) };
    let mut world = World::new(QUEUES, 4, &[wide, Clients::new(40, 10)]);
    world.run_for(Duration::from_secs(10));
    assert!(world.served[0] > Duration::from_secs(1), "{:?}", world.served);
}

#[tokio::test(start_paused = true)]
async fn no_flow_starves_among_many() {
    let clients: Vec<Clients> = (0..40).map(|flow| Clients::new(1 + flow, 1 + flow as u64)).collect();
    let mut world = World::new(QUEUES, 5, &clients);
    world.run_for(Duration::from_secs(10));
    assert!(world.served.iter().all(|served| !served.is_zero()), "{:?}", world.served);
}

#[tokio::test(start_paused = true)]
async fn lingering_seats_are_part_of_the_limit() {
    let work = Work { initial_seats: 1, final_seats: 2, additional_latency: Duration::from_millis(30) };
    let mut world = World::new(QUEUES, 4, &[Clients { work, ..Clients::new(10, 10) }]);
    world.run_for(Duration::from_secs(4));
    // Two at a time, each for 40 ms including lingering: 50 per second.
    let requests = world.served[0].as_millis() / 10;
    assert!((195..=205).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_rejects() {
    let short = Queuing::Queue { queues: 1, hand_size: 1, length_limit: 3 };
    let world = World::new(short, 2, &[Clients::new(10, 10)]);
    assert_eq!((world.rejected[0], world.set.totals.waiting, world.set.totals.executing), (5, 3, 2));
    assert_eq!(world.flows[0].rejected(Reason::QueueFull), 5);
}

#[tokio::test(start_paused = true)]
async fn without_seats_queued_levels_wait_and_others_run_one_request() {
    let short = Queuing::Queue { queues: 1, hand_size: 1, length_limit: 1 };
    let world = World::new(short, 0, &[Clients::new(2, 10)]);
    assert_eq!((world.rejected[0], world.set.totals.waiting, world.set.totals.executing), (1, 1, 0));
    let world = World::new(Queuing::Reject, 0, &[Clients::new(2, 10)]);
    assert_eq!((world.rejected[0], world.set.totals.executing), (1, 1));
    let world = World::new(Queuing::Exempt, 0, &[Clients::new(20, 10)]);
    assert_eq!((world.rejected[0], world.set.totals.executing), (0, 20));
}

#[tokio::test(start_paused = true)]
async fn a_level_that_loses_its_queues_drains_them() {
    let mut world = World::new(QUEUES, 2, &[Clients::new(20, 10)]);
    world.set.configure(world.now, Queuing::Reject, 2, 2).unwrap();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.set.totals.waiting, 0);
    // Surplus queues disappear once they are idle.
    assert!(world.set.queues.iter().all(Queue::is_idle));
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_dispatches_at_once() {
    let mut world = World::new(QUEUES, 1, &[Clients::new(5, 10)]);
    world.set.configure(world.now, QUEUES, 3, 3).unwrap();
    assert_eq!(world.set.take_dispatched().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_progress_meter_is_set_back_before_it_overflows() {
    let mut world = World::new(QUEUES, 1, &[Clients::new(3, 10)]);
    let high = EPOCH.plus(EPOCH.divided_by(2)).minus(SeatSeconds::of(1.0, Duration::from_secs(1)));
    world.set.r = high;
    world.set.queues.iter_mut().for_each(|queue| queue.next_r = queue.next_r.plus(high));
    world.set.requests.values_mut().for_each(|request| request.arrival_r = high);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.set.epochs(), 1);
    assert!(world.set.r() < EPOCH);
}

#[derive(Clone, Debug)]
enum Step {
    Start { flow: u64, seats: u64, last: u64, linger: u64 },
    Finish(usize),
    Cancel(usize),
    Wait(u64),
    Configure { queues: usize, limit: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..6, 1u64..4, 0u64..6, 0u64..20)
            .prop_map(|(flow, seats, last, linger)| Step::Start { flow, seats, last, linger }),
        4 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Cancel),
        3 => (0u64..30).prop_map(Step::Wait),
        1 => (0usize..9, 0u64..9).prop_map(|(queues, limit)| Step::Configure { queues, limit }),
    ]
}

fn chosen(set: &QueueSet<()>, is_running: bool, at: usize) -> Option<RequestId> {
    let matching = |(_, request): &(&RequestId, &Request<()>)| request.started.is_some() == is_running;
    let ids: Vec<RequestId> = set.requests.iter().filter(matching).map(|(id, _)| *id).collect();
    (!ids.is_empty()).then(|| ids[at % ids.len()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn totals_add_up_and_all_seats_are_returned(steps in proptest::collection::vec(step(), 1..120)) {
        let queues = |queues| match queues {
            0 => Queuing::Reject,
            queues => Queuing::Queue { queues, hand_size: queues.min(3), length_limit: 4 },
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut now = Clock::system().instant();
            let mut set = QueueSet::new(now, queues(4), 4).unwrap();
            let flow = Arc::<FlowStats>::default();
            for step in steps {
                match step {
                    Step::Start { flow: hash, seats, last, linger } => {
                        let additional_latency = Duration::from_millis(linger);
                        let work = Work { initial_seats: seats, final_seats: last, additional_latency };
                        set.start(now, work, hash * 7919, &flow, ());
                    }
                    Step::Finish(at) => {
                        if let Some(id) = chosen(&set, true, at) {
                            set.finish(now, id);
                        }
                    }
                    Step::Cancel(at) => {
                        if let Some(id) = chosen(&set, false, at) {
                            set.cancel(now, id);
                        }
                    }
                    Step::Wait(millis) => {
                        now += Duration::from_millis(millis);
                        set.advance(now);
                    }
                    Step::Configure { queues: count, limit } => {
                        set.configure(now, queues(count), limit, limit.max(1)).unwrap();
                    }
                }
                set.take_dispatched();
                check(&set);
            }
            while let Some(id) = chosen(&set, true, 0).or_else(|| chosen(&set, false, 0)) {
                set.cancel(now, id);
                check(&set);
            }
            set.advance(now + Duration::from_secs(1));
            assert!(set.is_idle());
            assert_eq!((set.totals.seats_in_use, set.totals.seats_waiting, set.queue_seats), (0, 0, 0));
            assert_eq!(flow.executing_seats.load(Ordering::Relaxed), 0);
            assert_eq!(flow.waiting_seats.load(Ordering::Relaxed), 0);
        });
    }
}
