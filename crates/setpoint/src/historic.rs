//! Bugs that Kubernetes controllers once had. Tests reintroduce them on purpose, to check that they are detected.
//!
//! Invariants:
//! - Without the feature `historic`, which only tests enable, no bug is ever active, and the compiler knows it.
//! - With it, a bug is active only on the thread that enabled it, and only while that call lasts. A simulation runs on
//!   one thread.

/// A bug, described by its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Pods are created before the cache shows the ones created already.
    ExpectationsIgnored,
    /// A failed create is waited for as if it had succeeded.
    ExpectationsKeptAfterFailure,
    /// All creates are attempted at once, even though the first one shows that they are rejected.
    CreatesAllAtOnce,
    /// Orphans are adopted for an owner that exists only in the cache (kubernetes/kubernetes#42639).
    AdoptionFromCache,
    /// Finished pods count as running, and are not replaced.
    EndedPodsCounted,
    /// Scaling down deletes ready pods before those that are not ready.
    ReadyPodsFirst,
    /// A rollout counts a ReplicaSet's desired pods as available.
    RolloutTrustsSizes,
    /// A hash collision with a ReplicaSet of the same name blocks a rollout forever (kubernetes/kubernetes#29735).
    CollisionNotCounted,
    /// A pod is counted again while the cache still shows its finalizer (kubernetes/kubernetes#105200).
    JobPodsCountedTwice,
    /// Pods of a deleted Job keep their finalizer (kubernetes/kubernetes#108645).
    JobFinalizersForgotten,
    /// A Job retries once more than its limit.
    BackoffLimitOffByOne,
    /// A StatefulSet does not wait for one ordinal before it creates the next.
    OrdinalsAllAtOnce,
    /// A StatefulSet also updates the ordinals below its partition.
    PartitionIgnored,
    /// After more than a hundred missed start times, nothing is started any more (kubernetes/kubernetes#42649).
    MissedTimesRefused,
    /// Jobs are named after the current time, so that a crash leads to a second Job.
    JobsNamedAfterNow,
    /// A daemon pod is started while the old one is still terminating.
    DaemonBesideLeaving,
    /// An owner that orphans its dependents is removed before they are released.
    OrphansForgotten,
    /// A foreground deletion does not wait for dependents.
    ForegroundNotAwaited,
    /// Slices are created again because the cache does not show them yet (kubernetes/kubernetes#100033).
    SlicesCreatedTwice,
    /// A namespace is removed while it still contains objects.
    NamespaceLetGoEarly,
    /// Pods whose eviction was granted still count as healthy.
    GrantedEvictionsForgotten,
    /// A Job whose TTL was extended is deleted because the cache does not show the change.
    ExpiryFromCache,
    /// An autoscaler scales down as soon as the load drops.
    ScaleDownAtOnce,
    /// The resources of a pod that is being bound are given to another pod.
    RoomNotAssumed,
    /// Pods are preempted by others of the same priority.
    EqualsPreempted,
}

#[cfg(feature = "historic")]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Returns whether a bug is active.
#[cfg(feature = "historic")]
pub fn has(bug: Bug) -> bool {
    PRESENT.get() == Some(bug)
}

/// Returns whether a bug is active, which is never the case.
#[cfg(not(feature = "historic"))]
pub const fn has(_bug: Bug) -> bool {
    false
}

/// Runs a function with a bug active.
#[cfg(feature = "historic")]
pub fn with<T>(bug: Bug, run: impl FnOnce() -> T) -> T {
    struct Healed;
    impl Drop for Healed {
        fn drop(&mut self) {
            PRESENT.set(None);
        }
    }
    PRESENT.set(Some(bug));
    let _healed = Healed;
    run()
}
